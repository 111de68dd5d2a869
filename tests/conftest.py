"""Shared test set-up: tests marked ``gpu`` are skipped on a machine without a CUDA device.

Workers of pytest-xdist have one thread each for torch and numpy: with more of them than cores, the
many small products of these tests take more than ten times as long.
"""

import os
from collections.abc import Iterator

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # before anything imports torch or numpy
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny operations wait for their threads when tests run side by side."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in marked:
        item.add_marker(skip)
