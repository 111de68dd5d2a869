"""NVRTC as this project uses it: find the library, compile a set of texts, read what ptxas reports.

Needs neither a GPU nor a driver. NVRTC can crash or hang on a program it does not like, so only
worker processes (`compile_worker`) call what loads it.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monomoe_gen.errors import CompileError, EnvironmentProblem

LIBRARY_VARIABLE = "MONOMOE_NVRTC"  # path of the libnvrtc to use instead of the one found
_WHEEL_FOLDERS = {"12": "nvidia/cuda_nvrtc/lib", "13": "nvidia/cu13/lib"}


@dataclass(frozen=True)
class Resources:
    """What ptxas reports of a kernel: registers per thread, bytes per thread, bytes per block."""

    registers: int
    spill_bytes: int  # spill stores and loads together
    local_bytes: int  # stack frame
    static_shared: int


def library() -> Path | None:
    """The libnvrtc to load: the variable's, else the one of CuPy's CUDA version in site-packages.

    CuPy 13 looks only where the dynamic loader does; CuPy 14 searches site-packages but takes the
    newest CUDA there, which need not be its own. None leaves the choice to CuPy.
    """
    chosen = os.environ.get(LIBRARY_VARIABLE)
    if chosen:
        return Path(chosen)
    for major, folder in _WHEEL_FOLDERS.items():
        try:
            importlib.metadata.distribution(f"cupy-cuda{major}x")
        except importlib.metadata.PackageNotFoundError:
            continue
        for entry in sys.path:
            path = Path(entry) / folder / f"libnvrtc.so.{major}"
            if path.is_file():
                return path
    return None


def load() -> tuple[Any, str]:
    """CuPy's NVRTC binding, and the compiler behind it with its build, e.g. ``nvrtc 12.9.86``.

    Raises:
        EnvironmentProblem: CuPy or libnvrtc is not installed or does not work.
    """
    path = library()
    try:
        if path:
            # The wheels of NVRTC 13.0 do not find their own builtins.
            for companion in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(companion), mode=ctypes.RTLD_GLOBAL)
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        from cupy.cuda import nvrtc

        return nvrtc, _version(nvrtc)
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise EnvironmentProblem(
            f"NVRTC cannot be used{f' from {path}' if path else ''}: {reason}. Install the extra "
            f"[cuda12] or [cuda13], or set {LIBRARY_VARIABLE} to the path of a libnvrtc.so"
        ) from None


def loaded_library() -> str:
    """Path of the libnvrtc in this process ("" when none is mapped)."""
    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if "libnvrtc.so" in line]
    return paths[0] if paths else ""


def _version(nvrtc: Any) -> str:
    """Reads the build number from the header of a PTX text: the API tells only major and minor."""
    program = nvrtc.createProgram("", "version.cu", (), ())
    nvrtc.compileProgram(program, ("--gpu-architecture=compute_90",))
    header = nvrtc.getPTX(program).decode()
    nvrtc.destroyProgram(program)
    build = re.search(r"release [\d.]+, V([\d.]+)", header)
    return f"nvrtc {build[1] if build else '.'.join(map(str, nvrtc.getVersion()))}"


def compile_texts(
    nvrtc: Any, texts: Mapping[str, str], options: Sequence[str]
) -> tuple[bytes, str]:
    """Compiles the first text, the others being its headers: the cubin and the compiler's log.

    Raises:
        CompileError: NVRTC refused the program; the log says why.
    """
    (main, text), *headers = texts.items()
    program = nvrtc.createProgram(
        text, main, [t.encode() for _, t in headers], [name.encode() for name, _ in headers]
    )
    try:
        nvrtc.compileProgram(program, list(options))
        return complete_elf(nvrtc.getCUBIN(program)), _log(nvrtc, program)
    except nvrtc.NVRTCError as error:
        raise CompileError(f"{main} does not compile: {error}", _log(nvrtc, program)) from None
    finally:
        nvrtc.destroyProgram(program)


def _log(nvrtc: Any, program: int) -> str:
    return str(nvrtc.getProgramLog(program)).rstrip("\0\n")


def complete_elf(cubin: bytes) -> bytes:
    """Restores the last byte, a NUL, where CuPy's ``getCUBIN`` dropped it.

    The program headers end the file, so the ELF header tells its size.
    """
    program_headers = struct.unpack_from("<Q", cubin, 0x20)[0]
    entry_bytes, entries = struct.unpack_from("<HH", cubin, 0x36)
    missing = program_headers + entry_bytes * entries - len(cubin)
    if missing not in (0, 1):
        raise CompileError(f"the cubin is {missing} bytes short of what its ELF header says")
    return cubin + b"\0" * missing


def parse_resources(log: str, kernel_name: str) -> Resources:
    """Reads the ``ptxas -v`` part of a log. Spills count every function of the program."""
    used = re.search(
        rf"Compiling entry function '{kernel_name}'.*?Used (\d+) registers(.*?)$",
        log,
        re.DOTALL | re.MULTILINE,
    )
    frames = re.findall(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
    )
    if not used or not frames:
        raise CompileError(f"no ptxas report of a kernel named {kernel_name}", log)
    shared = re.search(r"(\d+) bytes smem", used[2])
    return Resources(
        registers=int(used[1]),
        spill_bytes=sum(int(stores) + int(loads) for _, stores, loads in frames),
        local_bytes=max(int(frame) for frame, _, _ in frames),
        static_shared=int(shared[1]) if shared else 0,
    )


def warnings_of(log: str) -> str:
    """The log without ptxas' report: only what a programmer should read."""
    report = re.compile(r"ptxas info\s+: |ptxas\s+\. ")
    return "\n".join(line for line in log.splitlines() if not report.match(line)).strip()
