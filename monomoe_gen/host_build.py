"""A rendered kernel as a program for this machine: the kernel's own text, other `device/` headers.

`templates/host/device` implements `templates/device` for the CPU, `templates/host/simulator` is
what those headers stand on. The kernel is compiled with the hooks of ``-fsanitize=thread``, which
the simulator implements itself: it sees every load and store of the kernel with its address and
its place in the source. Needs g++ 11 or newer.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import platformdirs

from monomoe_gen.errors import CompileError, EnvironmentProblem
from monomoe_gen.paths import data_dir
from monomoe_gen.render import Source, render
from monomoe_gen.schedule import KernelSpec

PERFORMANCE_RULES = ("ring_covers_latency", "ring_is_shared", "up_stage_feeds_the_mma_warps")
"""Rules that keep a kernel fast, not right: the simulator runs schedules that break them."""

_COMMON = (
    "-std=c++20",
    "-g1",  # lines and functions, no variables
    "-fno-pie",
    "-ffp-contract=off",
    "-fno-omit-frame-pointer",
)
_RUNTIME = (*_COMMON, "-O3")
_KERNEL = (
    *_COMMON,
    "-O1",
    "-fno-optimize-sibling-calls",  # a tail call would hide who called
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "-fsanitize=bounds",
    "-w",
)
_MAIN = "kernel.cpp"


@dataclass(frozen=True)
class Program:
    """A compiled simulation of `spec`; `path` is the executable, `source` what it was made of."""

    spec: KernelSpec
    path: Path
    source: Source


def build(spec: KernelSpec, templates: Path | None = None) -> Program:
    """Renders and compiles the kernel of ``spec``, or finds it in the cache.

    ``templates`` is the template folder, by default the project's; the host headers are taken from
    the same folder.

    Raises:
        RenderError: as `render.render`.
        CompileError: g++ refuses the text.
        EnvironmentProblem: there is no g++.
    """
    folder = templates or data_dir("templates")
    source = render(spec, folder)
    host = simulator_texts(folder)
    return Program(spec, link(spec.kernel_name, host_texts(source, host), host), source)


def link(name: str, texts: Mapping[str, str], host: Mapping[str, str]) -> Path:
    """Compiles ``kernel.cpp`` of ``texts``, which defines ``sim::kProgram``, into a simulator.

    ``texts`` holds what it includes, ``host`` the simulator (`simulator_texts`). Returns the
    executable, whose file name begins with ``name``.

    Raises:
        CompileError: g++ refuses the text.
        EnvironmentProblem: there is no g++.
    """
    version = compiler_version()
    key = _key(version, *_KERNEL, *_RUNTIME, *_flat(texts), *_flat(host))
    path = cache_folder() / f"{name}-{key[:16]}"
    if not path.is_file():
        objects = _runtime(host)
        with tempfile.TemporaryDirectory(dir=_made(cache_folder())) as scratch:
            work = Path(scratch)
            _write(work, texts)
            _compile(work, work / _MAIN, work / "kernel.o", _KERNEL)
            _call(["g++", "-no-pie", *map(str, objects), "kernel.o", "-o", "program"], work)
            os.replace(work / "program", path)
    return path


def simulator_texts(templates: Path) -> dict[str, str]:
    """The simulator and the host's ``device/`` headers, by the names they are included under."""
    folder = templates / "host"
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".cuh", ".h", ".cpp")
    }


def host_texts(source: Source, host: Mapping[str, str]) -> dict[str, str]:
    """What is compiled: the kernel's texts with the host's `device/` headers, and an entry."""
    texts = {name: text for name, text in source.texts.items() if not name.startswith("device/")}
    texts |= {name: text for name, text in host.items() if name.startswith("device/")}
    texts |= {name: host[name] for name in ("simulator/machine.h", "simulator/entry.h")}
    texts["schedule.cuh"] = _without_rules(texts["schedule.cuh"], PERFORMANCE_RULES)
    texts[_MAIN] = _entry(source, texts["ops/storage.cuh"])
    return texts


def _without_rules(text: str, names: Sequence[str]) -> str:
    pattern = "|".join(map(re.escape, names))
    return re.sub(rf'^static_assert\(.*"({pattern}): .*$', "", text, flags=re.MULTILINE)


def _entry(source: Source, storage: str) -> str:
    """The text that binds a kernel to the simulator, with a table of its shared memory."""
    barrier = "offsetof(SharedStorage, barrier)"
    rows = [
        f"    MONOMOE_FIELD({base}, {struct}, {name}),\n"
        for struct, base in (("SharedStorage", "0"), ("Barriers", barrier))
        for name in members(storage, struct)
        if name != "barrier"
    ]
    return (
        f'#include "{next(iter(source.texts))}"\n#include "simulator/entry.h"\n\n'
        f"namespace sim {{\nstatic const Field kFields[] = {{\n{''.join(rows)}}};\n"
        f"MONOMOE_PROGRAM({source.kernel_name}, {source.shared_bytes}, kFields);\n}}\n"
    )


def members(text: str, struct: str) -> Iterator[str]:
    """The data members of a struct, those of anonymous unions included, in order."""
    body = re.search(rf"^struct (?:alignas\(\d+\) )?{struct} {{\n(.*?)^}};", text, re.M | re.S)
    for line in body[1].splitlines() if body else ():
        found = re.match(r"(?:    |        )(?:alignas\(\d+\) )?[\w:]+ (\w+)(?:\[[^;=]*\])*;", line)
        if found and not re.match(r"\s*(return|static|using|constexpr)\b", line):
            yield found[1]


def has_compiler() -> bool:
    return shutil.which("g++") is not None


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """What g++ calls itself. Raises `EnvironmentProblem` without one."""
    if not has_compiler():
        raise EnvironmentProblem("the simulator compiles kernels with g++, which is not on PATH")
    return _call(["g++", "--version"], Path.cwd()).splitlines()[0]


def cache_folder() -> Path:
    chosen = os.environ.get("MONOMOE_CACHE")
    return (Path(chosen) if chosen else Path(platformdirs.user_cache_dir("monomoe-gen"))) / "host"


def _runtime(host: Mapping[str, str]) -> list[Path]:
    """The objects of the simulator itself, compiled once."""
    texts = {name: text for name, text in host.items() if name.startswith("simulator/")}
    key = _key(compiler_version(), *_RUNTIME, *_flat(texts))
    folder = _made(cache_folder())
    units = [name for name in texts if name.endswith(".cpp")]
    objects = [folder / f"{Path(name).stem}-{key[:16]}.o" for name in units]
    if all(path.is_file() for path in objects):
        return objects
    with tempfile.TemporaryDirectory(dir=folder) as scratch, ThreadPoolExecutor() as pool:
        work = Path(scratch)
        _write(work, texts)

        def one(unit: str, target: Path) -> None:
            made = work / f"{Path(unit).stem}.o"
            _compile(work, work / unit, made, _RUNTIME)
            os.replace(made, target)

        list(pool.map(one, units, objects))
    return objects


def _compile(work: Path, unit: Path, target: Path, options: Sequence[str]) -> None:
    _call(["g++", *options, "-I.", "-c", str(unit), "-o", str(target)], work)


def _call(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"{' '.join(command[:3])} ... failed", done.stderr)
    return done.stdout


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _flat(texts: Mapping[str, str]) -> Iterator[str]:
    for name, text in texts.items():
        yield name
        yield text


def _key(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}\n".encode() + part.encode())
    return digest.hexdigest()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
