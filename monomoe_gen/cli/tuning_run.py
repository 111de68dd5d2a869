"""Carries out what ``tune`` was asked for, and finds the GPUs that take part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from monomoe_gen.cli.output import progress_bar, say
from monomoe_gen.device import DEFAULT, KNOWN, Device, current_device, equal_gpus
from monomoe_gen.errors import EnvironmentProblem, MonomoeError

if TYPE_CHECKING:
    from monomoe_gen.campaign import Plan, Progress, Report
    from monomoe_gen.sandbox import Box

    Found = tuple[Device | None, Sequence[Callable[[], AbstractContextManager[Box]]]]


def run(
    plans: Sequence[Plan], gpus: AbstractContextManager[Found], measuring: Sequence[str] = ()
) -> Iterator[tuple[Plan, Report | MonomoeError]]:
    """Carries out one plan after another, until one is interrupted.

    Of several, one that cannot be carried out does not keep the others from it. They share the
    sandboxes, and a GPU that one of them leaves out serves no later one. ``measuring`` are the
    given options that say something only about measuring.
    """
    with ExitStack() as opened:
        update = opened.enter_context(progress_bar())
        device, boxes = opened.enter_context(gpus)

        def observe(progress: Progress) -> None:
            update(progress.stage, progress.done, progress.total, progress.note)

        if device is None:
            from monomoe_gen.replay import replay

            if measuring:
                say(f"no CUDA device: nothing is timed, so without effect: {', '.join(measuring)}")
            for plan in plans:
                try:
                    replayed = replay(plan, KNOWN[DEFAULT], say=say, observe=observe)
                except MonomoeError as error:
                    if len(plans) == 1:
                        raise
                    yield plan, error
                    continue
                yield plan, replayed
            return
        from monomoe_gen import tune as tuner

        if len(plans) > 1:
            boxes = [_opened(opened.enter_context(make())) for make in boxes]
        for plan in plans:
            first, *others = boxes
            try:
                report = tuner.tune(
                    plan, device, say=say, observe=observe, sandbox=first, others=others
                )
            except MonomoeError as error:
                if len(plans) == 1 or isinstance(error, EnvironmentProblem):
                    raise
                yield plan, error
                continue
            boxes = [make for i, make in enumerate(boxes) if i not in report.left_out]
            yield plan, report
            if report.interrupted:
                return


@contextmanager
def own_gpus(every: bool) -> Iterator[Found]:
    """The kind of GPU that this host has, and what opens a sandbox on the first one or on each."""
    from monomoe_gen.sandbox import sandboxes

    device = current_device()
    gpus = (equal_gpus() if every else [None]) if device else []
    with ExitStack() as opened:
        yield device, [opened.enter_context(sandboxes(gpu)) for gpu in gpus]


@contextmanager
def cluster_gpus(address: str | None, most: int | None) -> Iterator[Found]:
    """The same for a Ray cluster."""
    from monomoe_gen import ray_executor

    with ray_executor.gpus(address, most) as (device, sandboxes):
        say(f"{len(sandboxes)} {device.name} of the Ray cluster")
        yield device, sandboxes


def _opened(box: Box) -> Callable[[], AbstractContextManager[Box]]:
    return lambda: nullcontext(box)
