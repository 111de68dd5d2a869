"""The same kernel at another address: what an A/A comparison uses to tell how much place matters.

The cubin gets two more kernels that nobody launches, one before and one behind the real one in the
text. Neither the instructions of the real one nor its resources change, and they move by whole
`STEP_BYTES`: a cubin's code begins where an allocation of the driver does, so that a kernel which
is alone in its cubin moves between processes by such steps too. A shift by less makes another
kernel of it, as instruction caches work on aligned lines (experiment 32 of ``templates/README.md``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct

from monomoe_gen.errors import MonomoeError
from monomoe_gen.render import Source

STEP_BYTES = 64 << 10
_PAD = """
extern "C" __global__ void monomoe_pad_{name}() {{
{body}}}
"""
_SLEEPS = STEP_BYTES // 16 - 14  # 16 bytes each; the compiler adds 11 to 18 instructions
_BODY = '  asm volatile("nanosleep.u32 1;");\n' * _SLEEPS


def moved(source: Source) -> Source:
    """``source`` with `STEP_BYTES` of other code before and behind it, under a hash of its own."""
    main, *headers = source.texts
    before, behind = (_PAD.format(name=name, body=_BODY) for name in ("a", "b"))
    texts = {main: before + source.texts[main] + behind}
    texts |= {name: source.texts[name] for name in headers}
    own = hashlib.sha256(f"moved {STEP_BYTES} {source.sources_hash}".encode()).hexdigest()
    return dataclasses.replace(source, texts=texts, sources_hash=own)


def code_of(cubin: bytes, kernel_name: str) -> bytes:
    """The instructions of one kernel: its section of the ELF file.

    Raises:
        MonomoeError: the cubin has no such kernel.
    """
    offset, length = _code_sections(cubin, kernel_name)[kernel_name]
    return cubin[offset : offset + length]


def place_of(cubin: bytes, kernel_name: str) -> int:
    """Bytes from where the cubin's code begins to where one kernel does.

    Raises:
        MonomoeError: the cubin has no such kernel.
    """
    sections = _code_sections(cubin, kernel_name)
    return sections[kernel_name][0] - min(offset for offset, _ in sections.values())


def _code_sections(cubin: bytes, wanted: str) -> dict[str, tuple[int, int]]:
    """Offset and length in the file of each kernel's instructions, that of ``wanted`` among them."""
    section = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, ...
    found = {}
    try:
        table = struct.unpack_from("<Q", cubin, 0x28)[0]
        size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
        headers = [section.unpack_from(cubin, table + i * size) for i in range(count)]
        names = headers[names_index][4]
        for name, _, _, _, offset, length, *_ in headers:
            text = cubin[names + name : cubin.index(b"\0", names + name)].decode()
            if text.startswith(".text."):
                found[text.removeprefix(".text.")] = offset, length
    except (struct.error, IndexError, ValueError):
        pass
    if wanted not in found:
        raise MonomoeError(f"the cubin has no code of {wanted}")
    return found
