"""What the compiler made of a kernel: instruction counts of its main loops, from the SASS.

Needs ``nvdisasm`` or ``cuobjdump``, from the CUDA toolkit, from Triton's wheel or from the wheel
``nvidia-cuda-nvdisasm``. A main loop is the smallest loop round a matrix instruction or a bulk
copy: what the kernel does for every block of weights.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from monomoe_gen.errors import EnvironmentProblem

_INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?);"
)
_LABEL = re.compile(r"^\.?(L_\w+):")
_SECTION = re.compile(r"^(?:\.text\.(\w+):|\s*Function : (\w+))")
_TARGET = re.compile(r"`?\(\.(L_\w+)\)|\b0x([0-9a-f]+)\b")
_MATRIX = re.compile(r"^(?:[HIBQD]MMA|[HIBQ]GMMA)\b")
_COPY = re.compile(r"^UBLK")
_TIMEOUT_S = 120


@dataclass(frozen=True)
class Loop:
    """One main loop: ``kind`` is matrix or copy; ``opcodes`` counts its instructions by name."""

    kind: str
    opcodes: Mapping[str, int]

    @property
    def instructions(self) -> int:
        return sum(self.opcodes.values())


@dataclass(frozen=True)
class _Instruction:
    address: int
    opcode: str
    operands: str


def find_disassembler() -> tuple[str, ...] | None:
    """The command that prints SASS, less the name of the cubin; None if there is none."""
    for tool, arguments in (("nvdisasm", ("-c",)), ("cuobjdump", ("-sass",))):
        found = shutil.which(tool, path=os.pathsep.join(map(str, _folders())))
        if found:
            return (found, *arguments)
    return None


def _folders() -> Iterator[Path | str]:
    yield os.environ.get("PATH", "")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin"
    yield Path("/usr/local/cuda/bin")
    for package, pattern in (("triton", "backends/nvidia/bin"), ("nvidia", "*/bin")):
        spec = importlib.util.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            yield from sorted(Path(place).glob(pattern))


def main_loops(cubin: bytes, kernel_name: str, tool: tuple[str, ...]) -> tuple[Loop, ...]:
    """The main loops of a kernel in the order of the code.

    Raises:
        EnvironmentProblem: as `disassemble`.
    """
    return parse_loops(disassemble(cubin, tool), kernel_name)


def disassemble(cubin: bytes, tool: tuple[str, ...]) -> str:
    """The SASS of all kernels of a cubin, as `tool` prints it.

    Raises:
        EnvironmentProblem: the disassembler does not work on this cubin.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            done = subprocess.run(
                [*tool, file.name], capture_output=True, text=True, timeout=_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentProblem(f"{tool[0]} cannot disassemble: {error}") from None
    if done.returncode:
        raise EnvironmentProblem(f"{tool[0]} cannot disassemble: {done.stderr.strip()[:500]}")
    return done.stdout


def parse_loops(text: str, kernel_name: str) -> tuple[Loop, ...]:
    """The main loops of a kernel in the text of ``nvdisasm -c`` or ``cuobjdump -sass``."""
    code, labels = _read(text, kernel_name)
    loops = sorted(_loops(code, labels), key=lambda span: span[1] - span[0])
    found: dict[tuple[int, int], str] = {}
    for instruction in code:
        kind = _kind(instruction.opcode)
        inside = [s for s in loops if s[0] <= instruction.address <= s[1]]
        if kind and inside and found.get(inside[0]) != "matrix":
            found[inside[0]] = kind
    return tuple(
        Loop(found[span], Counter(i.opcode for i in code if span[0] <= i.address <= span[1]))
        for span in sorted(found)
        if not _seeming(span, found)
    )


def _seeming(span: tuple[int, int], found: Mapping[tuple[int, int], str]) -> bool:
    """Whether a loop only seems to be round its instruction, or has a smaller one of its kind.

    Code out of line jumps back: a copy outside of all loops may seem to be in one round much of the
    kernel, others included. That is never said of the only loop of copies, nor of products that
    have copies inside.
    """

    def inside(outer: tuple[int, int]) -> list[str]:
        return [
            kind
            for one, kind in found.items()
            if one != outer and outer[0] <= one[0] and one[1] <= outer[1]
        ]

    if found[span] == "matrix":
        return "matrix" in inside(span)
    return bool(inside(span)) and any(k == "copy" and not inside(s) for s, k in found.items())


def _kind(opcode: str) -> str | None:
    if _MATRIX.match(opcode):
        return "matrix"
    return "copy" if _COPY.match(opcode) else None


def _read(text: str, kernel_name: str) -> tuple[list[_Instruction], dict[str, int]]:
    code: list[_Instruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    inside = False
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section:
            inside = kernel_name in section.groups()
        elif inside and (label := _LABEL.match(line)):
            waiting.append(label[1])
        elif inside and (found := _INSTRUCTION.match(line)):
            address = int(found[1], 16)
            labels |= dict.fromkeys(waiting, address)
            waiting.clear()
            code.append(_Instruction(address, found[2], found[3]))
    return code, labels


def _loops(code: list[_Instruction], labels: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """First and last address of every loop, short loops over the lanes of a warp excepted."""
    for instruction in code:
        kind, _, modifiers = instruction.opcode.partition(".")
        target = _TARGET.search(instruction.operands)
        if kind != "BRA" or "ANY" in modifiers or "DIV" in modifiers or not target:
            continue
        first = labels.get(target[1], -1) if target[1] else int(target[2], 16)
        if 0 <= first < instruction.address:
            yield first, instruction.address
