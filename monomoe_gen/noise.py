"""The A/A floor of each GPU, ``tuning_db/<gpu>/noise.json``: how much equal kernels seem to differ.

`gate.calibrate` measures it, the threshold of a check depends on it. One entry a card, by UUID.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from monomoe_gen.files import write_atomically
from monomoe_gen.paths import tuning_db_dir
from monomoe_gen.strict import read_versioned

FORMAT = 1
FILE = "noise.json"


@dataclass(frozen=True)
class Noise:
    """What `regress.noise_floor` gives on one card, as a change of the time: 0.004 is 0.4 %.

    ``identical`` compares a cubin with itself, ``placement`` two cubins of the same instructions
    that lie elsewhere in memory. ``cells`` comparisons of ``processes`` processes each.
    """

    uuid: str
    driver: str | None
    identical: float
    placement: float
    cells: int
    processes: int
    at: str

    @property
    def floor(self) -> float:
        return max(self.identical, self.placement)


@dataclass(frozen=True)
class _File:
    format: int
    cards: tuple[Noise, ...]


def noise_path(gpu: str) -> Path:
    """The project's file for a kind of GPU (its slug)."""
    return tuning_db_dir() / gpu / FILE


def read(path: Path) -> tuple[Noise, ...]:
    """The calibrated cards; none if there is no such file.

    Raises:
        DatabaseError: a field is unknown, missing or wrong.
    """
    if not path.exists():
        return ()
    return read_versioned(_File, path, FORMAT).cards


def current_uuid() -> str:
    """The UUID of torch's current CUDA device, as NVML writes it."""
    import torch

    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


def find(path: Path, uuid: str) -> Noise | None:
    """What is known of the card with this UUID.

    Raises:
        DatabaseError: as `read`.
    """
    return next((noise for noise in read(path) if noise.uuid == uuid), None)


def store(path: Path, noise: Noise) -> None:
    """Puts ``noise`` in place of what was known of its card.

    Raises:
        DatabaseError: as `read`.
    """
    others = [known for known in read(path) if known.uuid != noise.uuid]
    cards = sorted([*others, noise], key=lambda known: known.uuid)
    text = json.dumps(dataclasses.asdict(_File(FORMAT, tuple(cards))), indent=1) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
