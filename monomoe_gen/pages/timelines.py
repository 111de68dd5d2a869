"""Timelines that `trace` and `draw` wrote: found, checked, titled, and their legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from monomoe_gen.errors import MonomoeError
from monomoe_gen.paths import data_dir
from monomoe_gen.timeline import COLOURS
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
    """SVG texts by title: of the files ``paths``, and of all ``.svg`` files of folders in it.

    Without ``paths`` those that ship with the kernel, as far as they are of ``models``.

    Raises:
        MonomoeError: a folder without a timeline, or a file that is no SVG.
        OSError: a file that cannot be read.
    """
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.svg")) if path.is_dir() else [path]
        if not found:
            raise MonomoeError(
                f"{path} holds no .svg file; `monomoe-gen trace -o {path}` writes one on a GPU, "
                "`monomoe-gen draw -o FILE.svg` anywhere"
            )
        files += found
    if not paths:
        shipped = sorted((data_dir("templates") / SHIPPED).glob("*.svg"))
        files = [p for p in shipped if any(p.stem.startswith(f"{m}-b") for m in models)]
    texts = {path: path.read_text(encoding="utf-8") for path in dict.fromkeys(files)}
    titles = {path: _title(path, text) for path, text in texts.items()}
    counts = Counter(titles.values())
    return {
        titles[path] if counts[titles[path]] == 1 else f"{titles[path]}: {path}": text
        for path, text in texts.items()
    }


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
