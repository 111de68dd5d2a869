"""What is committed in ``generated/`` is what the templates, the compiler and the records give."""

import pytest

from monomoe_gen import dispatch
from monomoe_gen.device import KNOWN, Device
from monomoe_gen.verify import verify

TABLES = [
    device
    for device in KNOWN.values()
    if (dispatch.table_folder(device.slug) / dispatch.FILE).exists()
]


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
