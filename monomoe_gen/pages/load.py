"""Reads what a report is made of: records, results, anchors, and the size of the space."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from pathlib import Path

from monomoe_gen import dispatch, search_study, tuning_db
from monomoe_gen.device import Device
from monomoe_gen.dispatch import Table, table_folder
from monomoe_gen.errors import MonomoeError
from monomoe_gen.pages.analysis import ModelData
from monomoe_gen.report import read_anchors, read_results
from monomoe_gen.shapes import Shape, list_shapes
from monomoe_gen.space import removal_counts
from monomoe_gen.variant import USUAL, Variant


def load_models(
    shapes: Sequence[Shape],
    device: Device,
    *,
    database: Path | None = None,
    generated: Path | None = None,
    done: Callable[[str], object] = lambda model: None,
) -> tuple[list[ModelData], float | None]:
    """The data of `shapes` (none: every one with a timed record), and the card's read rate in GB/s.

    Raises:
        MonomoeError: one of `shapes`, or every model, has no timed record of the usual kernel on
            this device.
        DatabaseError: a file that cannot be read.
    """
    folder = generated or table_folder(device.slug)
    results = read_results(folder / "bench.json")
    anchors_path = folder / "anchors.json"
    anchors = read_anchors(anchors_path) if anchors_path.exists() else {"shapes": {}}
    studies = {s.model: s for s in search_study.read(search_study.study_path(device.slug))}
    models = []
    others: set[Variant] = set()
    for shape in shapes or list_shapes():
        path = tuning_db.database_path(device.slug, shape.name, database)
        every = tuning_db.read(path)
        timed = {Variant.of(r) for r in every if r.time_us and r.routing == "uniform"}
        if USUAL in timed:
            records = [r for r in every if Variant.of(r) == USUAL]
            published = anchors["shapes"].get(shape.name, {})
            models.append(
                ModelData(
                    shape,
                    records,
                    [r for r in results if (r.model, Variant.of(r)) == (shape.name, USUAL)],
                    {int(tokens): figures for tokens, figures in published.items()},
                    removal_counts(shape, device),
                    studies.get(shape.name),
                )
            )
        elif shapes:
            raise _nothing(shape.name, device, timed)
        others |= timed
        done(shape.name)
    if not models:
        raise _nothing("any model", device, others)
    return models, anchors.get("read_bandwidth_gb_s")


def load_table(device: Device) -> Table:
    """What is dispatched on `device`; empty where there is no table yet.

    Raises:
        DatabaseError: a table that cannot be read.
    """
    folder = table_folder(device.slug)
    return dispatch.load(folder) if (folder / dispatch.FILE).exists() else Table(device, (), ())


def _nothing(what: str, device: Device, others: Set[Variant]) -> MonomoeError:
    """That nothing is timed, or only kernels of the variants ``others``."""
    kernels = "; ".join(str(variant) for variant in sorted(others))
    usual = f" of the usual kernels (the records are of: {kernels})" if others else ""
    return MonomoeError(
        f"there are no times of {what} on {device.name}{usual}; `monomoe-gen tune` on that GPU "
        "makes some"
    )
