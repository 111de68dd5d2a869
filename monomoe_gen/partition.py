"""How many SMs the launches of a stream may use: fewer than the GPU has inside a green context.

torch reports the SMs of the GPU, or of the MIG instance. A green context takes a part of them, for
the streams made in it or for as long as it is current; only the driver knows.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_SM_RESOURCE = 1  # CU_DEV_RESOURCE_TYPE_SM
_SM_COUNT_AT = 96  # of a CUdevResource: its type and 92 bytes of padding come first
_RESOURCE_BYTES = 512  # more than any version of CUdevResource
_DEFAULT_STREAMS = 0, 1, 2  # handles that every context has a stream of: legacy and per-thread


def stream_sms(stream: int | None, all_sms: int) -> int:
    """SMs that kernels on the raw CUDA ``stream`` handle may use, ``all_sms`` without a partition.

    The stream belongs to the current device; None is any stream of the current context. A driver
    that knows no green contexts has none.
    """
    driver = load_driver()
    return all_sms if driver is None else partition_sms(driver, stream) or all_sms


def stream_owner(stream: int) -> int:
    """What tells the streams apart that share the raw handle ``stream``.

    The handle of the current context for a default stream, since a green context that is current
    has its own; 0 for any other stream.
    """
    driver, context = load_driver(), ctypes.c_void_p()
    if stream in _DEFAULT_STREAMS and driver is not None:
        driver.cuCtxGetCurrent(ctypes.byref(context))
    return context.value or 0


@cache
def load_driver() -> Any | None:
    """libcuda; None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def partition_sms(driver: Any, stream: int | None) -> int | None:
    """SMs of the stream's green context, else of the current context; None if it cannot be told."""
    resource = ctypes.create_string_buffer(_RESOURCE_BYTES)
    context = ctypes.c_void_p()
    try:
        ask, found = driver.cuGreenCtxGetDevResource, 0
        if stream is not None:
            found = driver.cuStreamGetGreenCtx(ctypes.c_void_p(stream), ctypes.byref(context))
        if found != 0 or not context:
            ask = driver.cuCtxGetDevResource
            found = driver.cuCtxGetCurrent(ctypes.byref(context))
        if found != 0 or ask(context, resource, _SM_RESOURCE) != 0:
            return None
    except AttributeError:
        return None
    return ctypes.c_uint32.from_buffer(resource, _SM_COUNT_AT).value or None
