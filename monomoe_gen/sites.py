"""Names for what the simulator reports: source lines for addresses of code, fields for data."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from monomoe_gen.host_build import Program
from monomoe_gen.schedule import EPILOGUE_WARPS, HEADER_BYTES, MMA_WARPS, REQUANT_WARPS

Frame = tuple[str, str]  # function, file:line

_UNROUTED = (
    "tokens that are not routed here hold anything; what becomes of them is dropped, and the "
    "simulator fills them with NaN to prove it"
)
DELIBERATE = {
    ("never_written", "shared_operands", "x"): _UNROUTED,
    ("never_written", "shared_operands", "h"): _UNROUTED,
    ("never_written", "input_scales", "x_scale"): _UNROUTED,
    ("never_written", "down_project", "h_scale"): _UNROUTED,
}
"""Findings that the design allows, by kind, function and field, with the reason."""


class Namer:
    """Describes the answers of one program. ``pcs`` are all return addresses they hold."""

    def __init__(self, program: Program, layout: Mapping[str, Any], pcs: Iterable[int]) -> None:
        self._program = program
        self._fields = layout["fields"]
        self._frames = _resolve(program, sorted(set(pcs) - {0}))

    def reports(self, reports: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """The arguments of a `Finding` for every report that the design does not allow."""
        for report in reports:
            here, there = report["here"], report["there"]
            if self._deliberate(report) or self._one_call(report):
                continue
            yield {
                "kind": report["kind"],
                "message": report["note"],
                "here": self._site(here),
                "there": self._site(there) if there else "",
                "where": self._data(report["at"], report["bytes"]) if report["at"] else "",
                "count": report["count"],
            }

    def _one_call(self, report: Mapping[str, Any]) -> bool:
        """Whether lanes only seem to diverge: they make one call that the compiler duplicated."""
        here, there = report["here"], report["there"]
        return (
            report["kind"] == "lanes_diverge"
            and here["what"] == there["what"]
            and self._place(here["pc"]) == self._place(there["pc"])
        )

    def _deliberate(self, report: Mapping[str, Any]) -> bool:
        at = report["at"]
        if not at or at["space"] != "shared":
            return False
        functions = [function for function, _ in self._frames.get(report["here"]["pc"], [])]
        return any(
            (report["kind"], function, field["name"]) in DELIBERATE
            for function in functions
            for field in self._fields_at(at["offset"])
        )

    def waits(self, waits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """One line for all warps of a CTA that wait for the same: who, for what, how it stands.

        A wait that a watchdog bounds says when it would end in a trap.
        """
        groups: dict[tuple[int, str, str], list[int]] = {}
        for wait in waits:
            bound = f"; traps after {wait['limit_ns'] / 1e6:g} ms" if "limit_ns" in wait else ""
            key = wait["cta"], _lanes(wait["lanes"]), self._waits_for(wait) + bound
            groups.setdefault(key, []).append(wait["warp"])
        for (cta, lanes, what), warps in groups.items():
            who = ", ".join(dict.fromkeys(role(warp).split(" ")[0] for warp in warps))
            yield f"CTA {cta}, {who} ({_many('warp', warps)}, {lanes}): {what}"

    def _waits_for(self, wait: Mapping[str, Any]) -> str:
        if wait["for"] == "an SM":
            return "waits for an SM, all are taken by CTAs that do not end"
        place = self._place(wait["pc"])
        if wait["for"] == "barrier":
            seen = wait["phase"] - 1
            return (
                f"waits for a phase of parity {wait['parity']} of {self._data(wait['at'], 8)} at "
                f"{place}; complete are phases up to {seen}, phase {wait['phase']} (parity "
                f"{wait['phase'] & 1}) lacks {wait['pending']} of {wait['count']} arrivals and "
                f"{wait['bytes']} bytes"
            )
        if wait["for"] == "warp":
            return f"waits at {place} for {_lanes(~wait['present'] & 0xFFFFFFFF)} of its warp"
        if wait["for"] == "named barrier":
            return f"waits at {place} with {wait['arrived']} of {wait['count']} threads"
        if wait["for"] == "cluster":
            return (
                f"waits at {place} for its cluster, of which {wait['arrived']} of {wait['count']} "
                "threads have arrived"
            )
        if wait["for"] == "copies":
            return f"waits at {place} for asynchronous copies that it asked for"
        if wait["for"] == "poll" and wait["at"]:
            return f"polls {self._data(wait['at'], 4)} at {place}"
        if wait["for"] == "poll":  # it has what it wants
            return f"polls at {place} until its warp goes on"
        return f"can run, last waited at {place}"

    def _site(self, site: Mapping[str, Any]) -> str:
        thread = site["thread"]
        if thread is None:
            who = f"the copy engine of CTA {site['cta']}"
        else:
            who = (
                f"CTA {site['cta']}, {role(thread // 32)} (warp {thread // 32}, lane {thread % 32})"
            )
        place = f" at {self._place(site['pc'])}" if site["pc"] else ""
        return f"{site['what'] or 'call'} by {who}{place}"

    def _place(self, pc: int) -> str:
        """The innermost line that is the kernel's own, and the function around it."""
        frames = self._frames.get(pc) or [("?", "?")]
        for function, line in frames:
            if not line.startswith("device/"):
                return f"{line} ({function})"
        return f"{frames[-1][1]} ({frames[-1][0]})"

    def _data(self, at: Mapping[str, Any], size: int) -> str:
        offset = at["offset"]
        if at["space"] == "shared":
            return f"CTA {at['cta']}: {self._shared(offset, size)}"
        if at["space"] == "workspace":
            return self._workspace(offset)
        return f"{at['space']} + {offset}"

    def _shared(self, offset: int, size: int) -> str:
        fits = self._fields_at(offset)
        if not fits:
            return f"shared memory + {offset}"
        names = []
        for field in fits:  # more than one in a union
            element, rest = divmod(offset - field["offset"], field["element"])
            indices = []
            for extent in reversed(field["extents"]):
                element, index = divmod(element, extent)
                indices.append(f"[{index}]")
            tail = f" + {rest}" if rest else ""
            names.append(f"{field['name']}{''.join(reversed(indices))}{tail}")
        return " or ".join(names) + f" ({size} bytes)"

    def _fields_at(self, offset: int) -> list[Mapping[str, Any]]:
        return [f for f in self._fields if f["offset"] <= offset < f["offset"] + f["bytes"]]

    def _workspace(self, offset: int) -> str:
        geometry = self._program.spec.geometry
        if offset < HEADER_BYTES:
            return f"workspace header + {offset}"
        half, rest = divmod(offset - HEADER_BYTES, geometry.workspace_half_bytes)
        row, column = divmod(rest // 4, self._program.spec.shape.intermediate)
        return f"workspace half {half} + {rest} (as h: row {row}, column {column})"


def role(warp: int) -> str:
    """What a warp does."""
    for name, count in (
        ("mma", MMA_WARPS),
        ("requant", REQUANT_WARPS),
        ("epilogue", EPILOGUE_WARPS),
    ):
        if warp < count:
            return f"{name} {warp}"
        warp -= count
    return "producer"


def _lanes(mask: int) -> str:
    lanes = [i for i in range(32) if mask >> i & 1]
    return "all lanes" if len(lanes) == 32 else _many("lane", lanes)


def _many(what: str, numbers: Sequence[int]) -> str:
    """``lane 3`` or ``lanes 0-3, 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"{what}{'s' if len(numbers) > 1 else ''} {text}"


def _resolve(program: Program, pcs: Sequence[int]) -> dict[int, list[Frame]]:
    """Every return address with its frames, the innermost first."""
    if not pcs:
        return {}
    command = ["addr2line", "-e", str(program.path), "-a", "-i", "-f", "-C"]
    asked = "\n".join(hex(pc - 1) for pc in pcs)  # inside the call
    text = subprocess.run(command, input=asked, capture_output=True, text=True).stdout
    frames: dict[int, list[Frame]] = {}
    current: list[Frame] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("0x"):
            current = frames[int(line, 16) + 1] = []
        else:
            function = re.sub(r"[(<].*", "", line.replace("(anonymous namespace)::", ""))
            current.append((function.split(" ")[-1], _short(next(lines))))
    return frames


def _short(place: str) -> str:
    """``/.../ops/ring.cuh:46`` -> ``ops/ring.cuh:46``."""
    path, _, line = place.partition(":")
    parts = path.split("/")
    kept = (
        parts[-2:] if parts[-2:-1] and parts[-2] in ("ops", "device", "simulator") else parts[-1:]
    )
    return f"{'/'.join(kept)}:{line.split(' ')[0]}"
