"""What is committed in ``generated/`` is what the templates, the compiler and the records give."""

from pathlib import Path

import pytest

from monomoe_gen import dispatch, objective, tuning_db, validation_report
from monomoe_gen.device import KNOWN, Device
from monomoe_gen.ledger import Ledger
from monomoe_gen.paths import data_dir
from monomoe_gen.shapes import load_shape
from monomoe_gen.variant import Variant
from monomoe_gen.verify import verify

TABLES = [
    device
    for device in KNOWN.values()
    if (dispatch.table_folder(device.slug) / dispatch.FILE).exists()
]
REPORTS = sorted(data_dir("generated").glob(f"*/{validation_report.FOLDER}/*.json"))


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_validation_reports_pass_and_are_of_the_kernels_that_they_name(path: Path) -> None:
    report = validation_report.read(path)
    assert validation_report.stem(report.shape.name, Variant.of(report)) == path.stem
    assert report.problems == []
    assert path.with_suffix(".md").read_text(encoding="utf-8") == validation_report.render(report)
    table = dispatch.load(path.parents[1])
    hashes = {kernel.id: kernel.cubin_sha256 for kernel in table.kernels}
    for run in report.runs:
        assert hashes.get(run.kernel, run.cubin_sha256) == run.cubin_sha256


@pytest.mark.parametrize("device", TABLES, ids=lambda device: device.slug)
def test_generated_files_verify(device: Device) -> None:
    wrong = [finding for finding in verify(device) if finding.status == "wrong"]
    assert not wrong


@pytest.mark.parametrize("device", TABLES, ids=lambda device: device.slug)
def test_dispatched_kernels_fit_the_device(device: Device) -> None:
    for kernel in dispatch.load(dispatch.table_folder(device.slug)).kernels:
        assert kernel.shared_bytes <= device.shared_per_block
        assert kernel.registers * kernel.threads <= device.registers_per_sm
        assert kernel.schedule.grid <= device.sms


@pytest.mark.parametrize("device", TABLES, ids=lambda device: device.slug)
def test_the_table_has_the_winners_that_tune_tells_of(device: Device) -> None:
    table = dispatch.load(dispatch.table_folder(device.slug))
    cells: dict[tuple[str, int, Variant], dict[int, dispatch.Entry]] = {}
    for entry in table.entries:
        tile = table.kernel(entry).token_tile
        cells.setdefault((entry.model, tile, entry.variant), {})[entry.tuned_at] = entry
    for (model, tile, variant), entries in cells.items():
        weights = objective.DEFAULT.routings
        ledger = Ledger(load_shape(model), tuple(entries), tile, "uniform", None, variant, weights)
        ledger.load(tuning_db.read(tuning_db.database_path(device.slug, model)))
        told = {n: winner.record.schedule for n, winner in ledger.winners().items()}
        assert told == {n: table.kernel(e).schedule.to_dict() for n, e in entries.items()}
