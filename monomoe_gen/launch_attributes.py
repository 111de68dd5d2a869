"""Driver calls with launch attributes, which CuPy's bindings lack.

They are called as cuda.h declares them: ``cuLaunchKernelEx`` for launches that may begin before the
kernel ahead of them in the stream has ended, ``cuOccupancyMaxActiveClusters`` for kernels of thread
block clusters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from monomoe_gen.errors import EnvironmentProblem

LIBRARY = "libcuda.so.1"
_CLUSTER_DIMENSION = 4
_PROGRAMMATIC_STREAM_SERIALIZATION = 6


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``: an id, padded to 8 bytes, and a value of 64 bytes."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("pad", ctypes.c_char * 4),
        ("value", ctypes.c_uint * 3),
        ("rest", ctypes.c_char * 52),
    )


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


def launch_early(
    function: int,
    grid: int,
    threads: int,
    shared_bytes: int,
    stream: int,
    arguments: Sequence[np.generic],
) -> int:
    """Enqueues one launch with programmatic stream serialization; the driver's error code or 0.

    Under stream capture the attribute becomes a programmatic edge of the graph. ``function`` and
    ``stream`` are raw handles, ``arguments`` NumPy scalars of exactly the parameters' widths.

    Raises:
        EnvironmentProblem: the driver is older than CUDA 11.8, or there is none.
    """
    attribute = LaunchAttribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION, value=(1,))
    config = _config(grid, threads, shared_bytes, stream, attribute)
    values = [np.array(argument) for argument in arguments]  # copied by the call
    pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
    call = _driver_call("cuLaunchKernelEx")
    return int(call(ctypes.byref(config), ctypes.c_void_p(function), pointers, None))


def resident_clusters(
    function: int, cluster: int, grid: int, threads: int, shared_bytes: int
) -> tuple[int, int]:
    """The driver's error code or 0, and how many clusters of ``cluster`` CTAs can run at a time.

    Raises:
        EnvironmentProblem: the driver is older than CUDA 11.8, or there is none.
    """
    attribute = LaunchAttribute(id=_CLUSTER_DIMENSION, value=(cluster, 1, 1))
    config = _config(grid, threads, shared_bytes, None, attribute)
    count = ctypes.c_int()
    call = _driver_call("cuOccupancyMaxActiveClusters")
    code = call(ctypes.byref(count), ctypes.c_void_p(function), ctypes.byref(config))
    return int(code), count.value


def _config(
    grid: int, threads: int, shared_bytes: int, stream: int | None, attribute: LaunchAttribute
) -> LaunchConfig:
    return LaunchConfig(
        (grid, 1, 1), (threads, 1, 1), shared_bytes, stream, ctypes.pointer(attribute), 1
    )


@lru_cache
def _driver_call(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(LIBRARY), name)
    except (OSError, AttributeError) as error:
        raise EnvironmentProblem(
            f"{LIBRARY} has no {name} ({error}): kernels of programmatic dependent launch or of "
            "thread block clusters need a driver of CUDA 11.8 or newer; without it use others, of "
            "schedules with g_down = grid"
        ) from error
