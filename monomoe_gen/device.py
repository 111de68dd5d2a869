"""What a schedule has to fit into: the limits of a GPU, from a table or asked of the machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from monomoe_gen.errors import EnvironmentProblem


@dataclass(frozen=True)
class Device:
    """Limits of one GPU.

    ``slug`` names its folders (``tuning_db/<slug>``, ``generated/<slug>``), ``shared_per_block`` is
    the opt-in maximum in bytes, ``registers_per_sm`` counts 32-bit registers, ``arch`` is the
    target that NVRTC compiles for.
    """

    name: str
    slug: str
    sms: int
    shared_per_block: int
    registers_per_sm: int
    l2_bytes: int
    arch: str


DEFAULT = "nvidia-h200"

KNOWN = {
    device.slug: device
    for device in (
        Device("NVIDIA H200", DEFAULT, 132, 232448, 65536, 60 * 2**20, "sm_90a"),
        Device("NVIDIA H100 80GB HBM3", "nvidia-h100", 132, 232448, 65536, 50 * 2**20, "sm_90a"),
    )
}


def device_slug(name: str) -> str:
    """The folder name of a GPU: ``NVIDIA H200`` -> ``nvidia-h200``.

    Cards of the table keep their short slug whatever memory size their full name carries.
    """
    for device in KNOWN.values():
        if device.name == name:
            return device.slug
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def current_device() -> Device | None:
    """torch's current CUDA device as torch reports it, or None without one.

    Compute capability 9.0 compiles for ``sm_90a``, whose instructions the kernel uses; another
    capability is reported as it is, for the caller to refuse.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    found: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = f"sm_{found.major}{found.minor}"
    return Device(
        name=found.name,
        slug=device_slug(found.name),
        sms=found.multi_processor_count,
        shared_per_block=found.shared_memory_per_block_optin,
        registers_per_sm=found.regs_per_multiprocessor,
        l2_bytes=found.L2_cache_size,
        arch="sm_90a" if capability == "sm_90" else capability,
    )


def equal_gpus() -> list[str]:
    """The UUIDs of all visible CUDA devices, the current one first.

    Raises:
        EnvironmentProblem: one is of another kind than the current one.
    """
    import torch

    current = torch.cuda.current_device()
    own = torch.cuda.get_device_properties(current)
    order = [current, *(i for i in range(torch.cuda.device_count()) if i != current)]
    found: list[Any] = [torch.cuda.get_device_properties(i) for i in order]
    for i, each in zip(order, found, strict=True):
        if (each.name, each.multi_processor_count) != (own.name, own.multi_processor_count):
            raise EnvironmentProblem(
                f"asked for all GPUs, but device {i} is {each.name} beside {own.name}: times of "
                "different cards do not compare; let CUDA_VISIBLE_DEVICES name equal ones"
            )
    return [f"GPU-{each.uuid}" for each in found]


_MUST_AGREE = {  # fields of Device, and what a refusal says about one beside the GPU's name
    "slug": "",
    "arch": " (compute target {})",
    "sms": " ({} SMs)",
    "shared_per_block": " ({} bytes of shared memory for a CTA)",
    "registers_per_sm": " ({} registers on an SM)",
}


def mismatch(tuned: Device, found: Device | None) -> str:
    """Why kernels tuned on one kind of GPU may not run on another; "" if they may."""
    if found is None:
        return f"the kernels were tuned on {tuned.name}, and there is no CUDA device"
    for name, words in _MUST_AGREE.items():
        needs, has = getattr(tuned, name), getattr(found, name)
        if needs != has:
            return (
                f"the kernels were tuned on {tuned.name}{words.format(needs)}, this GPU is "
                f"{found.name}{words.format(has)}; tune for it with `monomoe-gen tune`, or give "
                'on_missing="fallback"'
            )
    return ""
