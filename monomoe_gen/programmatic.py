"""Launches that may begin before the kernel ahead of them in the stream has ended.

CuPy's launcher takes no launch attributes, so this calls the driver: ``cuLaunchKernelEx`` with
``CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION``, as cuda.h declares them. Under stream
capture the attribute becomes a programmatic edge of the graph.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from monomoe_gen.errors import EnvironmentProblem

LIBRARY = "libcuda.so.1"
_PROGRAMMATIC_STREAM_SERIALIZATION = 6


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``: an id, padded to 8 bytes, and a value of 64 bytes."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("pad", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
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


def launch(
    function: int,
    grid: int,
    threads: int,
    shared_bytes: int,
    stream: int,
    arguments: Sequence[np.generic],
) -> int:
    """Enqueues one launch; the driver's error code, 0 if there is none.

    ``function`` and ``stream`` are raw handles, ``arguments`` NumPy scalars of exactly the
    parameters' widths.

    Raises:
        EnvironmentProblem: the driver is older than CUDA 11.8, or there is none.
    """
    attribute = LaunchAttribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
    config = LaunchConfig(
        (grid, 1, 1), (threads, 1, 1), shared_bytes, stream, ctypes.pointer(attribute), 1
    )
    values = [np.array(argument) for argument in arguments]  # copied by the call
    pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
    return int(_driver_call()(ctypes.byref(config), ctypes.c_void_p(function), pointers, None))


@lru_cache(maxsize=1)
def _driver_call() -> Any:
    try:
        return ctypes.CDLL(LIBRARY).cuLaunchKernelEx
    except (OSError, AttributeError) as error:
        raise EnvironmentProblem(
            f"{LIBRARY} has no cuLaunchKernelEx ({error}): a kernel of programmatic dependent "
            "launch needs a driver of CUDA 11.8 or newer; use the kernel without it"
        ) from error
