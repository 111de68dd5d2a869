"""The log of faults with workers that make them up: each is a record, nothing else changes."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import fault_log
import pytest
from fault_log import FAULTS, Fault, Workers

from monomoe_gen import cubin_cache
from monomoe_gen.compile import KernelBinary
from monomoe_gen.device import KNOWN, Device
from monomoe_gen.render import render
from monomoe_gen.sandbox import Limits
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape

H200 = KNOWN["nvidia-h200"]
FAKE = (sys.executable, str(Path(__file__).parent / "fake_worker.py"))
ACTS = {
    "NaN output (nothing written)": "wrong",
    "wrong result (all zero)": "wrong",
    "launch failure (grid beyond the GPU)": "fail_kernel_alive",
    "illegal address": "fail_kernel_fatal",
    "misaligned access": "fail_kernel_fatal",
    "infinite spin": "hang",
    "worker killed from outside": "hang",
}
LIMITS = Limits(start_s=20, stage_s=1.5, death_s=10, pause_s=0.01, lock_s=1, attempts=2)


def made_up(fault: Fault | None, spec: KernelSpec, device: Device) -> KernelBinary:
    name = ACTS[fault.name] if fault else "fine"
    return KernelBinary(name, b"", 32, 0, 0, 0, 0, 32, "0" * 64, "nvrtc", "0" * 64)


def test_every_fault_is_a_record_and_the_good_kernel_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cubin_cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    wordless = tuple(dataclasses.replace(f, words="") for f in FAULTS)
    monkeypatch.setattr(fault_log, "FAULTS", wordless)
    said: list[str] = []
    log = fault_log.measure(H200, tmp_path, Workers(FAKE), made_up, LIMITS, said.append)
    entries = {e["fault"]: e for e in log["entries"]}
    assert list(entries) == [f.name for f in FAULTS] and len(said) == len(FAULTS)
    assert {n: e["status"] for n, e in entries.items()} == {f.name: f.expected for f in FAULTS}
    assert all(e["fine"] and e["change"] == 0 for e in entries.values())
    assert "crashed its process (SIGKILL)" in entries["compiler crash"]["message"]
    assert "SIGKILL" in entries["worker killed from outside"]["message"]
    replaced = {n for n, e in entries.items() if e["worker_replaced"]}
    fatal = {"illegal address", "misaligned access", "infinite spin"}
    assert replaced == {*fatal, "worker killed from outside"}
    fault_log.write(log, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "faults.json").read_text()) == log
    page = (tmp_path / "out" / "faults.md").read_text()
    assert page.count("\n| ") == len(FAULTS) + 1 and "unexpected" not in page


def test_an_unexpected_end_is_marked() -> None:
    entry = fault_log.Entry("spin", "timeout", "ok", "a|b", 10.0, 11.0, False, 1.0, False)
    row = dataclasses.asdict(entry) | {"change": entry.change}
    log = {"at": "now", "seconds": 1, "good_kernel": "k", "tokens": 1, "entries": [row]}
    assert "| spin | ok (unexpected) | no | 10.00 | 11.00 | +10.00% | a\\|b |" in (
        fault_log.markdown(log)
    )


def test_a_broken_kernel_takes_what_a_good_one_takes() -> None:
    spec = KernelSpec(load_shape("toy"), Schedule(4, 4, 256, 4, 128, 2, 2))
    good, bad = (
        re.search(rf"{name}\(([^)]*)\)", text)
        for name, text in (
            (spec.kernel_name, render(spec).texts["monomoe.cu"]),
            ("bad", fault_log.SIGNATURE),
        )
    )
    assert good and bad
    names = [re.findall(r"(\w+)\s*(?:,|$)", found[1]) for found in (good, bad)]
    assert names[0] == names[1] and len(names[0]) == 12
