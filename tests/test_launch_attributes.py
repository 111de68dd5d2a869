"""Driver calls with launch attributes, with the driver replaced by a recorder."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from monomoe_gen import launch_attributes
from monomoe_gen.errors import EnvironmentProblem
from monomoe_gen.launch_attributes import LaunchAttribute, LaunchConfig


def test_the_structures_are_those_of_cuda_h() -> None:
    assert ctypes.sizeof(LaunchAttribute) == 72
    assert (LaunchAttribute.id.offset, LaunchAttribute.value.offset) == (0, 8)
    assert ctypes.sizeof(LaunchConfig) == 56
    names = "grid", "block", "shared_bytes", "stream", "attributes", "attribute_count"
    assert [getattr(LaunchConfig, n).offset for n in names] == [0, 12, 24, 32, 40, 48]


def test_a_launch_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def driver(config: Any, function: Any, pointers: Any, extra: object) -> int:
        c = config._obj
        attribute = c.attributes[0]
        seen.update(
            grid=list(c.grid),
            block=list(c.block),
            shared=c.shared_bytes,
            stream=c.stream,
            attributes=[(attribute.id, list(attribute.value))] * c.attribute_count,
            function=function.value,
            first=ctypes.c_uint64.from_address(pointers[0]).value,
            second=ctypes.c_uint32.from_address(pointers[1]).value,
            extra=extra,
        )
        return 700

    monkeypatch.setattr(launch_attributes, "_driver_call", lambda name: driver)
    arguments = np.uint64(2**40 + 3), np.uint32(7)
    assert launch_attributes.launch_early(77, 132, 608, 1000, 99, arguments) == 700
    assert seen == {
        "grid": [132, 1, 1],
        "block": [608, 1, 1],
        "shared": 1000,
        "stream": 99,
        "attributes": [(6, [1, 0, 0])],
        "function": 77,
        "first": 2**40 + 3,
        "second": 7,
        "extra": None,
    }


def test_the_driver_is_asked_for_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    def driver(count: Any, function: Any, config: Any) -> int:
        c = config._obj
        attribute = c.attributes[0]
        assert (list(c.grid), list(c.block), c.shared_bytes) == ([128, 1, 1], [608, 1, 1], 1000)
        assert (attribute.id, list(attribute.value), c.attribute_count) == (4, [2, 1, 1], 1)
        count._obj.value = 66
        return 0 if function.value == 77 else 1

    monkeypatch.setattr(launch_attributes, "_driver_call", lambda name: driver)
    assert launch_attributes.resident_clusters(77, 2, 128, 608, 1000) == (0, 66)
    assert launch_attributes.resident_clusters(78, 2, 128, 608, 1000)[0] == 1


def test_a_machine_without_the_call_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    launch_attributes._driver_call.cache_clear()
    monkeypatch.setattr(launch_attributes, "LIBRARY", "libc.so.6")
    with pytest.raises(EnvironmentProblem, match="cuLaunchKernelEx"):
        launch_attributes.launch_early(1, 1, 32, 0, 0, ())
