"""What fake_driver.cpp runs for a launch: the reference that rounds where the kernel rounds.

python fake_launch.py FOLDER-OF-THE-TABLE
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from monomoe_gen import dispatch
from monomoe_gen.fallback import moe_in_torch
from monomoe_gen.kernel import LayerWeights, workspace_bytes
from monomoe_gen.schedule import BLOCK_BYTES, ROW_TILE
from monomoe_gen.wait_limit import DEFAULT_MS


def main() -> None:
    table = dispatch.load(Path(sys.argv[1]))
    lines = Path(os.environ["FAKE_DRIVER"], "launch").read_text().splitlines()
    name, grid, threads, shared, *files, half_bytes, tokens, wait_limit_ns = lines
    x, logits, bias, w13, w13_scale, w2, w2_scale, y, workspace = files
    kernel = next(k for k in table.kernels if k.kernel_name == name)
    assert (int(grid), int(threads)) == (kernel.schedule.grid, kernel.threads)
    assert int(shared) == kernel.shared_bytes and bias == "-"
    assert int(half_bytes) == kernel.workspace_half_bytes
    assert int(wait_limit_ns) == DEFAULT_MS * 10**6
    assert Path(workspace).stat().st_size == workspace_bytes(int(half_bytes))
    s, b = kernel.shape, int(tokens)
    e, h, n = s.experts, s.hidden, s.intermediate
    weights = LayerWeights(
        mapped(w13, np.uint8, e, 2 * n // ROW_TILE, h // 128, BLOCK_BYTES),
        mapped(w13_scale, np.float32, e, 2 * n // 128, h // 128),
        mapped(w2, np.uint8, e, h // ROW_TILE, n // 128, BLOCK_BYTES),
        mapped(w2_scale, np.float32, e, h // 128, n // 128),
    )
    out = mapped(y, np.int16, b, h).view(torch.bfloat16)
    inputs = mapped(x, np.int16, b, h).view(torch.bfloat16)
    moe_in_torch(inputs, mapped(logits, np.float32, b, e), weights, s, out)


def mapped(path: str, dtype: type, *shape: int) -> Tensor:
    """A file as a tensor; writing to it changes the file."""
    assert Path(path).stat().st_size == np.prod(shape) * np.dtype(dtype).itemsize
    return torch.from_numpy(np.memmap(path, dtype, "r+", shape=shape))


if __name__ == "__main__":
    main()
