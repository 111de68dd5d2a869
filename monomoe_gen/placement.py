"""The same kernel at another address: what an A/A comparison uses to tell how much place matters.

The cubin gets two more kernels that nobody launches, one before and one behind the real one in the
text. Neither the instructions of the real one nor its resources change.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct

from monomoe_gen.errors import MonomoeError
from monomoe_gen.render import Source

_PAD = """
extern "C" __global__ void monomoe_pad_{name}(volatile float* p) {{
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < {loads}; ++i) sum += p[i];
  p[0] = sum;
}}
"""


def moved(source: Source) -> Source:
    """``source`` with a few KiB of other code round it, under a hash of its own."""
    main, *headers = source.texts
    text = _PAD.format(name="a", loads=83) + source.texts[main] + _PAD.format(name="b", loads=29)
    texts = {main: text, **{name: source.texts[name] for name in headers}}
    own = hashlib.sha256(f"moved {source.sources_hash}".encode()).hexdigest()
    return dataclasses.replace(source, texts=texts, sources_hash=own)


def code_of(cubin: bytes, kernel_name: str) -> bytes:
    """The instructions of one kernel: its section of the ELF file.

    Raises:
        MonomoeError: the cubin has no such kernel.
    """
    section = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, ...
    try:
        table = struct.unpack_from("<Q", cubin, 0x28)[0]
        size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
        headers = [section.unpack_from(cubin, table + i * size) for i in range(count)]
        names = headers[names_index][4]
        for name, _, _, _, offset, length, *_ in headers:
            end = cubin.index(b"\0", names + name)
            if cubin[names + name : end] == f".text.{kernel_name}".encode():
                return cubin[offset : offset + length]
    except (struct.error, IndexError, ValueError):
        pass
    raise MonomoeError(f"the cubin has no code of {kernel_name}")
