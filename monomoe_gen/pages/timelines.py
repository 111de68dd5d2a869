"""Timelines that `trace` and `draw` wrote: found, checked, titled, paired, and their legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from monomoe_gen import trace_file
from monomoe_gen.errors import MonomoeError
from monomoe_gen.paths import data_dir
from monomoe_gen.role_rows import COLOURS
from monomoe_gen.side_by_side import side_by_side_svg
from monomoe_gen.trace import ROLE_WARPS, Role

SHIPPED = "traces"
"""The folder in ``templates`` whose timelines are shown when none are asked for."""

_SVG = "{http://www.w3.org/2000/svg}"
_DOES = {
    Role.MMA: "multiply weights with tokens",
    Role.REQUANT: "select experts, quantize x and h, combine",
    Role.EPILOGUE: "sum, activate and publish h",
    Role.PRODUCER: "lists the active experts and requests weights",
}


def legend() -> Mapping[str, str]:
    """The colour of each role in a traced launch, by what its warps do."""
    return {
        f"{role.value} ({ROLE_WARPS[role]}): {_DOES[role]}": colour
        for role, colour in COLOURS.items()
    }


def read_timelines(paths: Sequence[Path], models: Sequence[str]) -> dict[str, str]:
    """SVG texts by title: of the files ``paths``, and of all timelines of folders in it.

    A launch that was kept as JSON is drawn beside the model, in place of the SVG of its name.
    Without ``paths`` those that ship with the kernel, as far as they are of ``models``.

    Raises:
        MonomoeError: a folder without a timeline, or a file that is no SVG and no kept launch.
        OSError: a file that cannot be read.
    """
    files: list[Path] = []
    for path in paths:
        found = _of_folder(path) if path.is_dir() else [path]
        if not found:
            raise MonomoeError(
                f"{path} holds no .svg file; `monomoe-gen trace -o {path}` writes one on a GPU, "
                "`monomoe-gen draw -o FILE.svg` anywhere"
            )
        files += found
    if not paths:
        shipped = _of_folder(data_dir("templates") / SHIPPED)
        files = [p for p in shipped if any(p.name.startswith(f"{m}-b") for m in models)]
    texts = {path: _svg(path) for path in dict.fromkeys(files)}
    titles = {path: _title(path, text) for path, text in texts.items()}
    counts = Counter(titles.values())
    return {
        titles[path] if counts[titles[path]] == 1 else f"{titles[path]}: {path}": text
        for path, text in texts.items()
    }


def _of_folder(folder: Path) -> list[Path]:
    """Its timelines in order: of each name the kept launch, else the SVG."""
    found = {path.name.removesuffix(".svg"): path for path in folder.glob("*.svg")}
    kept = folder.glob(f"*{trace_file.SUFFIX}")
    found |= {path.name.removesuffix(trace_file.SUFFIX): path for path in kept}
    return [path for _, path in sorted(found.items())]


def _svg(path: Path) -> str:
    if path.name.endswith(trace_file.SUFFIX):
        return side_by_side_svg(trace_file.read(path))
    return path.read_text(encoding="utf-8")


def _title(path: Path, text: str) -> str:
    """The headline of the drawing, else the name of the file."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise _no_svg(path, str(error)) from None
    if root.tag != f"{_SVG}svg":
        raise _no_svg(path, f"its root is {root.tag}")
    headlines = (e.text for e in root.iter(f"{_SVG}text") if e.get("class") == "t")
    return next(filter(None, headlines), path.stem)


def _no_svg(path: Path, reason: str) -> MonomoeError:
    return MonomoeError(
        f"{path} is no SVG ({reason}); give one that `monomoe-gen trace` or `draw` wrote"
    )
