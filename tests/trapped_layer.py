"""A process whose kernel traps, and what torch and a layer then say; `test_gpu_serving` runs it."""

from __future__ import annotations

import torch
from fault_log import broken_source
from test_gpu_serving import MODEL, Served

from monomoe_gen.compile import compile_source
from monomoe_gen.errors import LaunchError
from monomoe_gen.kernel import LayerWeights, LoadedKernel, launch_moe
from monomoe_gen.torch_op import WORKSPACES
from monomoe_gen.workspaces import current_stream


def main() -> None:
    served = Served(MODEL)
    x, logits, _ = served.problem(1)
    out = torch.empty_like(x)
    served.layer(x, logits, out)
    binary = compile_source(broken_source("__trap();"))
    trap = LoadedKernel.from_cubin(binary.cubin, binary.kernel_name, 1, 32, 0)
    layer = served.layer
    weights = LayerWeights(layer.w13, layer.w13_scale, layer.w2, layer.w2_scale)
    workspace = WORKSPACES.get(current_stream(x.device), x.device, 0)
    launch_moe(trap, weights, x, logits, out, workspace)
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        print("torch:", str(error).splitlines()[0])
    try:
        layer(x, logits, out)
    except LaunchError as error:
        print("layer:", error)


if __name__ == "__main__":
    main()
