"""GPUs of several hosts through Ray: an actor for each GPU holds the sandbox on it.

To `tune` an actor is what a sandbox of its own host is. The driver alone keeps the queue, compiles
and writes the database; actors get lines of `protocol` and answer with outcomes. What a kernel does
stays inside the actor's sandbox. An actor or host that dies is a GPU that stops to answer: it is
left out, and its candidate goes to another one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from monomoe_gen.device import Device, current_device
from monomoe_gen.errors import EnvironmentProblem
from monomoe_gen.protocol import Env, Measure, decode_request, encode
from monomoe_gen.sandbox import Box, Outcome, Sandbox

PLACED_S = 600.0  # until an actor has a GPU, has started on it and its worker has run a kernel
CLOSED_S = 90.0  # until an actor has ended its worker


class SandboxActor:
    """What an actor runs. Its answers carry the sandbox's ``env`` and ``restarts``."""

    def __init__(self, make: Callable[[], Box]) -> None:
        self._sandbox = make()

    def open(self) -> tuple[Env, int, None]:
        self._sandbox.__enter__()
        return self._answer(None)

    def measure(self, line: str) -> tuple[Env, int, Outcome]:
        request = decode_request(line)
        assert isinstance(request, Measure)
        return self._answer(self._sandbox.measure(request))

    def renew(self) -> tuple[Env, int, None]:
        self._sandbox.renew()
        return self._answer(None)

    def close(self) -> tuple[Env, int, None]:
        self._sandbox.__exit__()
        return self._answer(None)

    def _answer(self, outcome: Any) -> tuple[Env, int, Any]:
        return self._sandbox.env, self._sandbox.restarts, outcome


class RaySandbox:
    """A `sandbox.Box` whose sandbox, made by ``make``, is in an actor with a GPU like ``device``.

    The actor starts at once, so that many start at the same time; entering waits for it.
    """

    def __init__(self, device: Device, make: Callable[[], Box]) -> None:
        import ray

        self.env: Env = {}
        self.restarts = 0
        self._device = device
        self._actor = cast(Any, ray.remote(num_gpus=1, num_cpus=0)(SandboxActor)).remote(make)
        self._opening = self._actor.open.remote()

    def __enter__(self) -> RaySandbox:
        """Waits until the GPU has run a kernel.

        Raises:
            EnvironmentProblem: it does not answer, or is of another kind than ``device``.
        """
        try:
            self._result(self._opening, PLACED_S)
            found = self.env["gpu"], self.env["sms"]
            if found != (self._device.name, self._device.sms):
                raise EnvironmentProblem(
                    f"asked for the GPUs of a Ray cluster, but one is {found[0]} ({found[1]} SMs) "
                    f"beside {self._device.name} ({self._device.sms} SMs): times of different "
                    "cards do not compare; let the cluster have equal ones"
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        import ray

        with contextlib.suppress(EnvironmentProblem):
            self._result(self._actor.close.remote(), CLOSED_S)
        ray.kill(self._actor)

    def measure(self, request: Measure) -> Outcome:
        """As `Sandbox.measure`; an actor that is gone raises EnvironmentProblem too."""
        outcome: Outcome = self._result(self._actor.measure.remote(encode(request)))
        return outcome

    def renew(self) -> None:
        """As `Sandbox.renew`."""
        self._result(self._actor.renew.remote())

    def _result(self, answer: Any, timeout_s: float | None = None) -> Any:
        """What the actor answers. A request has no limit here: its stages have theirs."""
        import ray
        from ray import exceptions

        try:
            self.env, self.restarts, result = ray.get(answer, timeout=timeout_s)
        except exceptions.RayTaskError as error:
            raise error.cause from None
        except exceptions.GetTimeoutError:
            raise EnvironmentProblem(
                f"asked Ray for a GPU, and its actor does not answer within {timeout_s:g} s; look "
                "at `ray status`: others may hold the GPU"
            ) from None
        except exceptions.RayError as error:
            raise EnvironmentProblem(f"its actor is gone: {_line(error)}") from None
        return result


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def _knock(address: str) -> None:
    """Raises OSError if nobody listens at ``host:port``: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), 10).close()


def _itself(box: Box) -> Box:
    return box


@contextmanager
def gpus(
    address: str | None = None,
    most: int | None = None,
    make: Callable[[], Box] = Sandbox,
    find: Callable[[], Device | None] = current_device,
) -> Iterator[tuple[Device, list[Callable[[], Box]]]]:
    """The kind of GPU that a Ray cluster has, and what opens a sandbox on each free one.

    ``address`` is that of `ray.init`: without one and without RAY_ADDRESS the cluster of this host
    is taken, or one is started with its GPUs. At most ``most`` GPUs are taken. In the actors
    ``make`` makes the sandbox and ``find`` describes the GPU.

    Raises:
        EnvironmentProblem: no Ray, no cluster at ``address``, or no free GPU in it.
    """
    try:
        import ray
    except ImportError:
        raise EnvironmentProblem(
            "asked for the GPUs of a Ray cluster, but Ray is not installed: install the extra "
            "[ray], for instance with `pip install 'monomoe-gen[ray]'`"
        ) from None
    own = not ray.is_initialized()
    if own:
        address = address or os.environ.get("RAY_ADDRESS")
        try:
            _knock(address or "")
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError) as error:
            raise EnvironmentProblem(
                f"asked for the Ray cluster at {address}: {error}; `ray start --head` starts one, "
                "`ray status` shows it"
            ) from None
    try:
        free = int(ray.available_resources().get("GPU", 0))
        if not free:
            raise EnvironmentProblem(
                f"the Ray cluster has {ray.cluster_resources().get('GPU', 0):g} GPUs and none of "
                "them is free; look at `ray status`, and start Ray on the hosts that have GPUs"
            )
        try:
            device = ray.get(ray.remote(num_gpus=1, max_calls=1)(find).remote())
        except ray.exceptions.RayError as error:
            raise EnvironmentProblem(
                f"asked a host of the Ray cluster for its GPU: {_line(error)}; every host needs "
                "this version of monomoe-gen with the same extras"
            ) from None
        if device is None:
            raise EnvironmentProblem(
                "Ray gave a GPU, but torch finds no CUDA device there; run `monomoe-gen doctor` on "
                "the hosts of the cluster"
            )
        boxes = [RaySandbox(device, make) for _ in range(min(free, most or free))]
        yield device, [partial(_itself, box) for box in boxes]
    finally:
        if own:
            ray.shutdown()
