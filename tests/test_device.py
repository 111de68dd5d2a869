"""Devices: the table, and what a query makes of the properties that torch reports."""

from types import SimpleNamespace

import pytest
import torch

from monomoe_gen.device import DEFAULT, KNOWN, current_device, device_slug


def test_the_default_device() -> None:
    h200 = KNOWN[DEFAULT]
    assert (h200.sms, h200.shared_per_block, h200.l2_bytes) == (132, 227 * 1024, 60 * 2**20)
    assert h200.arch == "sm_90a"


def test_slugs() -> None:
    assert device_slug("NVIDIA H200") == "nvidia-h200"
    assert device_slug("NVIDIA H100 80GB HBM3") == "nvidia-h100"
    assert device_slug("NVIDIA A100-SXM4-40GB") == "nvidia-a100-sxm4-40gb"


def pretend(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    properties = {
        "name": "NVIDIA H200",
        "major": 9,
        "minor": 0,
        "multi_processor_count": 132,
        "shared_memory_per_block_optin": 232448,
        "regs_per_multiprocessor": 65536,
        "L2_cache_size": 62914560,
    }
    found = SimpleNamespace(**{**properties, **changes})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)


def test_a_queried_h200_equals_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    assert current_device() == KNOWN[DEFAULT]


def test_another_architecture_is_reported_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, name="NVIDIA B200", major=10)
    found = current_device()
    assert found is not None
    assert (found.arch, found.slug) == ("sm_100", "nvidia-b200")


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert current_device() is None


@pytest.mark.gpu
def test_the_real_device_can_be_asked() -> None:
    found = current_device()
    assert found is not None
    assert found.sms > 0 and found.shared_per_block > 48 * 1024
    if found.slug in KNOWN:
        assert found == KNOWN[found.slug]
