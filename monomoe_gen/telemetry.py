"""What NVML says about a GPU: what it is, and the state it was measured in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_REASONS = {
    0x001: "idle",
    0x002: "application_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clock",
}

Values = dict[str, str | int | float | bool | None]


class Gpu:
    """NVML's view of the GPU with this UUID (``GPU-...``). What NVML cannot tell is None."""

    def __init__(self, uuid: str) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = pynvml
        except ImportError:
            pass
        except pynvml.NVMLError:
            pass

    def facts(self) -> Values:
        """Driver version and power cap in watts."""
        return {
            "driver": self._ask(lambda nvml, gpu: nvml.nvmlSystemGetDriverVersion()),
            "power_cap_w": self._ask(
                lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimit(gpu) / 1000
            ),
        }

    def state(self) -> Values:
        """Clocks in MHz, temperature in degrees C, power in watts, reasons of a lowered clock."""
        return {
            "sm_clock_mhz": self._ask(
                lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)
            ),
            "memory_clock_mhz": self._ask(
                lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)
            ),
            "temperature_c": self._ask(
                lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
            ),
            "power_w": self._ask(lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
            "throttle": self._ask(
                lambda nvml, gpu: _names(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
            ),
        }

    def _ask(self, question: Callable[[Any, Any], Any]) -> Any:
        if self._nvml is None:
            return None
        try:
            return question(self._nvml, self._handle)
        except self._nvml.NVMLError:
            return None


def _names(bits: int) -> str:
    """The reasons in ``bits`` by name, joined by ``+``; unknown ones as a number."""
    names = [name for bit, name in _REASONS.items() if bits & bit]
    rest = bits & ~sum(_REASONS)
    return "+".join([*names, *([hex(rest)] if rest else [])]) or "none"
