"""Templates and a `KernelSpec` to CUDA text. Pure: the same inputs give the same bytes.

Delimiters do not collide with CUDA or PTX: ``${name}`` is a value, a line that starts with ``//%``
a statement, a line that starts with ``//#`` a comment of the template. Neither kind of line leaves
a trace in the output, not even an empty line. An undefined name is an error.

Only files called ``*.j2`` are templates. Every other file of the folder is plain CUDA and enters a
source unchanged, under the name by which it is included.
"""

from __future__ import annotations

import hashlib
import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from io import StringIO
from pathlib import Path

import jinja2

from monomoe_gen.errors import RenderError
from monomoe_gen.paths import data_dir
from monomoe_gen.rules import RULES
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.variant import Variant

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)".*$', re.MULTILINE)
_NO_HASH = "0" * 64  # stands for the sources hash while it is computed


@dataclass(frozen=True)
class Source:
    """One CUDA program, complete: nothing but these texts is compiled.

    `texts` maps include names to texts, the file with the entry point first, every header after the
    first file that includes it. `sources_hash` is a SHA-256 over all of it (see `hash_texts`).
    `threads` and `shared_bytes` (dynamic shared memory) are the launch configuration. `spec` is
    None for a program that is no operator kernel, such as the stream floor.
    """

    kernel_name: str
    texts: Mapping[str, str]
    sources_hash: str
    threads: int
    shared_bytes: int
    spec: KernelSpec | None = None

    def bundle(self) -> str:
        """The program as one self-contained text: each header stands where it is first included."""
        seen: set[str] = set()
        return "".join(_inline(next(iter(self.texts)), self.texts, seen))


def render(spec: KernelSpec, templates: Path | None = None, trace: bool = False) -> Source:
    """Renders the operator kernel of `spec`.

    `templates` is the template folder, by default the project's. With `trace` the kernel records
    time stamps of its warps; a traced kernel has a name of its own.

    Raises:
        RenderError: a template does not parse, or asks for an unknown value or file.
    """
    kernel_name = spec.kernel_name + ("_trace" if trace else "")
    context = {
        "shape": spec.shape,
        "schedule": spec.schedule,
        "geometry": spec.geometry,
        "token_tile": spec.token_tile,
        "layout": spec.layout,
        "router": spec.router,
        "pdl": spec.pdl,
        "kernel_name": kernel_name,
        "parameters": _parameters(spec.schedule),
        "rules": [rule for rule in RULES if rule.cuda],
        "trace": trace,
    }
    arguments = ",".join(f"{name}={value}" for name, value in spec.schedule.to_dict().items())
    provenance = [
        f"shape {spec.shape.name}, up to {spec.token_tile} tokens, schedule {spec.schedule.id}"
        f"{'' if spec.layout == 'packed' else f', {spec.layout} weights'}"
        f"{'' if spec.router == 'logits' else ', router inside'}"
        f"{', programmatic dependent launch' if spec.pdl else ''}",
        f"rebuild: monomoe-gen render --model {spec.shape.name} --token-tile {spec.token_tile}"
        f"{Variant.of(spec).options} --schedule {arguments}",
    ]
    texts, sources_hash = _render("monomoe.cu", context, provenance, templates)
    geometry = spec.geometry
    return Source(kernel_name, texts, sources_hash, geometry.threads, geometry.shared_bytes, spec)


def render_floor(chunk_bytes: int, depth: int, grid: int, templates: Path | None = None) -> Source:
    """Renders the stream floor: `grid` CTAs that keep `depth` copies of `chunk_bytes` in flight.

    `chunk_bytes` has to divide the bytes of an expert's w13 and of its w2.
    """
    shared_bytes = _up(_up(chunk_bytes * depth, 128) + 8 * depth, 128)
    context = {
        "chunk_bytes": chunk_bytes,
        "depth": depth,
        "grid": grid,
        "shared_bytes": shared_bytes,
    }
    provenance = [f"stream floor: {grid} CTAs, each {depth} x {chunk_bytes} bytes in flight"]
    texts, sources_hash = _render("stream_floor.cu", context, provenance, templates)
    return Source("monomoe_stream_floor", texts, sources_hash, 32, shared_bytes)


def render_empty(templates: Path | None = None) -> Source:
    """Renders a kernel that does nothing, to time what any kernel node of a graph costs."""
    texts, sources_hash = _render("empty.cu", {}, ["an empty kernel"], templates)
    return Source("monomoe_empty", texts, sources_hash, 32, 0)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _parameters(schedule: Schedule) -> list[tuple[str, int, str]]:
    """CUDA name, value and meaning of each parameter: ``k_up`` becomes ``kKUp``."""
    return [
        ("k" + f.name.title().replace("_", ""), getattr(schedule, f.name), f.metadata["doc"])
        for f in fields(schedule)
    ]


def hash_texts(texts: Mapping[str, str], own_hash: str = _NO_HASH) -> str:
    """SHA-256 over names and texts in order; `own_hash`, where quoted, counts as zeros."""
    digest = hashlib.sha256()
    for name, text in texts.items():
        digest.update(_hashed(name, text.replace(own_hash, _NO_HASH)))
    return digest.hexdigest()


def _hashed(name: str, text: str) -> bytes:
    data = text.encode()
    return f"{name} {len(data)}\n".encode() + data


def _render(
    main: str, context: Mapping[str, object], provenance: list[str], templates: Path | None
) -> tuple[dict[str, str], str]:
    """Texts of `main` and all it includes, and their hash, which the provenance quotes."""
    folder = templates or data_dir("templates")
    lines = [*provenance, f"sources {_NO_HASH}"]
    values = {**context, "provenance": lines, "sources_hash": _NO_HASH}
    parts: dict[str, _Part] = {}
    _collect(main, f"the folder {folder}", folder, values, parts)
    digest = hashlib.sha256()
    for part in parts.values():
        digest.update(part.hashed)
    sources_hash = digest.hexdigest()
    texts = {
        name: part.text.replace(_NO_HASH, sources_hash) if part.quotes else part.text
        for name, part in parts.items()
    }
    return texts, sources_hash


@dataclass(frozen=True)
class _Part:
    """A text and what follows from it: what it includes, what is hashed, if it quotes the hash."""

    text: str
    includes: tuple[str, ...]
    is_header: bool
    hashed: bytes
    quotes: bool


def _part(name: str, text: str) -> _Part:
    return _Part(
        text,
        tuple(_INCLUDE.findall(text)),
        re.search(r"^#pragma once$", text, re.MULTILINE) is not None,
        _hashed(name, text),
        _NO_HASH in text,
    )


@lru_cache(maxsize=256)
def _plain(name: str, content: bytes) -> _Part:
    """The same headers enter every source of a space: each is looked at once."""
    return _part(name, StringIO(content.decode(), newline=None).getvalue())


def _collect(
    name: str, asked_by: str, folder: Path, values: Mapping[str, object], parts: dict[str, _Part]
) -> None:
    """Adds `name`, which is not there, and, depth first, what it includes to `parts`."""
    if os.path.isfile(f"{folder}/{name}.j2"):
        part = _part(name, expand(folder, f"{name}.j2", values))
    else:
        try:
            with open(f"{folder}/{name}", "rb") as file:
                part = _plain(name, file.read())
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise RenderError(
                f"{asked_by} includes {name}: {folder} has neither {name} nor {name}.j2"
            ) from None
    if parts and not part.is_header:
        raise RenderError(f"{folder / name}: a header needs '#pragma once'")
    parts[name] = part
    for included in part.includes:
        if included not in parts:
            _collect(included, name, folder, values, parts)


def expand(folder: Path, file: str, values: Mapping[str, object]) -> str:
    """The template `file` of `folder` with these values.

    Raises:
        RenderError: it does not parse, or asks for an unknown value.
    """
    try:
        return _environment(folder).get_template(file).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise RenderError(f"{folder / file}:{error.lineno}: {error.message}") from error
    except Exception as error:  # whatever an expression of a template raises
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(frames) if f.filename.endswith(file)), 0)
        raise RenderError(f"{folder / file}:{line}: {error}") from error


class _Loader(jinja2.FileSystemLoader):
    """Turns whole-line delimiters into block ones, for which Jinja keeps the lines around."""

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        text, path, up_to_date = super().get_source(environment, template)
        text = re.sub(r"^[ \t]*//%(.*)$", r"<%\1 %>", text, flags=re.MULTILINE)
        text = re.sub(r"^[ \t]*//#(.*)$", r"<#\1#>", text, flags=re.MULTILINE)
        return text, path, up_to_date


@lru_cache(maxsize=8)
def _environment(folder: Path) -> jinja2.Environment:
    return jinja2.Environment(
        loader=_Loader(folder),
        undefined=jinja2.StrictUndefined,
        variable_start_string="${",
        variable_end_string="}",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _inline(name: str, texts: Mapping[str, str], seen: set[str]) -> Iterator[str]:
    """The lines of `name` with each first include replaced by the included text.

    `#line` marks the joints, so a diagnostic names the same file and line as for separate texts.
    """
    seen.add(name)
    for number, line in enumerate(texts[name].splitlines(keepends=True), start=1):
        include = _INCLUDE.match(line)
        if line.strip() == "#pragma once":
            yield "\n"
        elif not include:
            yield line
        elif include[1] in seen:
            yield "\n"
        else:
            yield f'#line 1 "{include[1]}"\n'
            yield from _inline(include[1], texts, seen)
            yield f'#line {number + 1} "{name}"\n'
