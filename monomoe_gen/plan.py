"""Which kernel serves how many tokens on which GPU: decided once, said once, and never guessed.

A `Plan` is what the layers of one model share: the table, what to do where it has no answer, and
the decisions taken so far. A kernel runs only on the kind of GPU that it was tuned on, from the
cubin that the table names, with its whole grid resident. Anything else is refused with the reason,
or handed to the fallback if the plan says so.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from monomoe_gen import dispatch
from monomoe_gen.device import current_device, mismatch
from monomoe_gen.dispatch import Match
from monomoe_gen.errors import (
    DatabaseError,
    EnvironmentProblem,
    LaunchError,
    MonomoeError,
    NoKernel,
)
from monomoe_gen.kernel import LoadedKernel
from monomoe_gen.shapes import Shape
from monomoe_gen.variant import USUAL, Variant
from monomoe_gen.workspaces import device_index

LOG = logging.getLogger("monomoe_gen")
REQUIRE_TUNED = "MONOMOE_REQUIRE_TUNED"

OnMissing = Literal["error", "fallback"]
Fallback = Callable[[Tensor, Tensor], Tensor]
"""The layer by other means: x bf16 ``[B, H]`` and router logits ``[B, E]`` -> y bf16 ``[B, H]``."""

_REFUSALS = (DatabaseError, EnvironmentProblem, LaunchError)


@dataclass(frozen=True)
class KernelTable:
    """A dispatch table and the folder that holds its cubins."""

    folder: Path
    table: dispatch.Table


@dataclass(frozen=True)
class Choice:
    """What serves a token count on a device: a kernel, or torch for the ``reason`` given."""

    kernel: LoadedKernel | None
    line: str
    reason: str = ""


@dataclass(eq=False)
class Plan:
    """How one model is served. `make_plan` makes and names it; the name is how the op finds it."""

    table: KernelTable
    shape: Shape
    on_missing: OnMissing
    fallback: Fallback | None
    require_tuned: bool
    variant: Variant = USUAL
    name: str = ""
    _choices: dict[tuple[str, int, int], Choice] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> tuple[dispatch.Kernel, ...]:
        """The table's kernels of the model and variant."""
        asked = self.shape.name, self.variant
        return tuple(k for k in self.table.table.kernels if (k.shape.name, k.variant) == asked)

    @cached_property
    def half_bytes(self) -> int:
        """What a workspace half needs for the largest of the kernels."""
        return max((k.workspace_half_bytes for k in self.kernels), default=0)

    def prepare(self, device: torch.device) -> bool:
        """Loads the model's kernels on a CUDA ``device``, since a graph capture cannot.

        Whether any may run there.

        Raises:
            EnvironmentProblem, DatabaseError, LaunchError: a kernel may not run there, and there
                is to be no fallback.
        """
        loaded = 0
        for kernel in self.kernels:
            try:
                self._load(kernel, device)
                loaded += 1
            except _REFUSALS as error:
                self.refuse(error)
        return loaded > 0

    def choose(self, device: torch.device, tokens: int) -> Choice:
        """What serves ``tokens`` tokens on ``device``; the first time, it is also logged.

        Raises:
            NoKernel, EnvironmentProblem, DatabaseError, LaunchError: nothing may.
        """
        key = device.type, device_index(device) if device.type == "cuda" else 0, tokens
        choice = self._choices.get(key)
        if choice is None:
            choice = self._choices[key] = self._choose(device, tokens)
            announce(self, choice)
        return choice

    def refuse(self, error: MonomoeError) -> str:
        """The reason to fall back for, unless there is to be no fallback: then raises ``error``."""
        if self.require_tuned or self.on_missing == "error":
            raise error
        return str(error)

    def instead(self, tokens: int, reason: str) -> Choice:
        """The fallback, for ``reason``."""
        by = "torch fallback" if self.fallback is None else "the caller's fallback"
        return Choice(None, f"{self.shape.name}, {tokens} tokens: {by} ({reason})", reason)

    def _choose(self, device: torch.device, tokens: int) -> Choice:
        title = f"{self.shape.name}, {tokens} tokens"
        match, nearest = None, ""
        try:
            match = dispatch.lookup(self.table.table, self.shape.name, tokens, self.variant)
        except NoKernel as error:
            if self.require_tuned:
                raise
            nearest = error.nearest
        if match and self.require_tuned and (match.how != "exact" or device.type != "cuda"):
            raise NoKernel(
                title,
                f"{REQUIRE_TUNED}=1 allows only a kernel tuned for exactly that, on a GPU; found "
                f"tensors on {device.type} and {_served(match)}",
            )
        if device.type != "cuda":
            there = _served(match) if match else f"the fallback ({nearest})"
            return Choice(
                None,
                f"{title}: the reference in torch, as the tensors are on {device.type}; on "
                f"{self.table.table.device.name}: {there}",
            )
        if match is None:
            return self.instead(tokens, nearest)
        try:
            kernel = self._load(match.kernel, device)
        except _REFUSALS as error:
            return self.instead(tokens, self.refuse(error))
        return Choice(kernel, f"{title}: {_served(match)}")

    def _load(self, kernel: dispatch.Kernel, device: torch.device) -> LoadedKernel:
        index = device_index(device)
        key = index, kernel
        if key not in _LOADED:
            with torch.cuda.device(index):
                found = current_device()
            problem = mismatch(self.table.table.device, found)
            if problem:
                raise EnvironmentProblem(problem)
            _LOADED[key] = LoadedKernel.from_cubin(
                dispatch.read_cubin(self.table.folder, kernel),
                kernel.kernel_name,
                kernel.schedule.grid,
                kernel.threads,
                kernel.shared_bytes,
                index,
                kernel.pdl,
            )
        return _LOADED[key]

    def __deepcopy__(self, memo: dict[int, Any]) -> Plan:
        return self


_LOADED: dict[tuple[int, dispatch.Kernel], LoadedKernel] = {}  # by device; layers share them
_PLANS: weakref.WeakValueDictionary[str, Plan] = weakref.WeakValueDictionary()
_SAID: set[str] = set()


def make_plan(
    table: KernelTable,
    model: str | Shape,
    on_missing: OnMissing = "error",
    fallback: Fallback | None = None,
    variant: Variant = USUAL,
) -> Plan:
    """The plan for a model of the table, or for a `Shape`; an equal one is shared.

    Its name is the same in every process that makes the same plans in the same order.

    Raises:
        NoKernel: the table has no kernel of the variant for the model, and nothing may stand in.
        MonomoeError: the table's model of that name has other dimensions; an option is misspelt.
    """
    if on_missing not in ("error", "fallback"):
        raise MonomoeError(f'on_missing must be "error" or "fallback", found {on_missing!r}')
    name = model if isinstance(model, str) else model.name
    mine = [k for k in table.table.kernels if k.shape.name == name]
    known = mine[0].shape if mine else None
    required = _tuned_is_required()
    strict = on_missing == "error" or required
    if (known is None and isinstance(model, str)) or strict:
        dispatch.lookup(table.table, name, 1, variant)  # raises, and says what there is
    shape = model if isinstance(model, Shape) else known
    assert shape, "lookup has raised"
    if known and dataclasses.replace(shape, source="") != dataclasses.replace(known, source=""):
        raise MonomoeError(
            f"the kernels of {name} are for {_dimensions(known)}; asked for {_dimensions(shape)}"
        )
    plan = Plan(table, shape, on_missing, fallback, required, variant)
    digest = hashlib.sha256(dispatch.dump(table.table).encode()).hexdigest()[:8]
    number = 1
    while True:
        suffix = "" if variant.layout == "packed" else f"-{variant.layout}"
        suffix += "" if variant.router == "logits" else "-router"
        suffix += "-pdl" if variant.pdl else ""
        suffix += f"#{number}" if number > 1 else ""
        plan.name = f"{name}@{digest}{suffix}"
        present = _PLANS.setdefault(plan.name, plan)
        if present is plan or _same(present, plan):
            return present
        number += 1


def find_plan(name: str) -> Plan:
    """The plan of that name.

    Raises:
        MonomoeError: there is none, or its layers are gone.
    """
    plan = _PLANS.get(name)
    if plan is None:
        raise MonomoeError(
            f"no plan {name!r} in this process; make the layer with MoELayer.from_weights, keep "
            "it, and pass its plan_name"
        )
    return plan


def announce(plan: Plan, choice: Choice) -> None:
    """Logs a decision once: a kernel once per token count, a fallback once per reason."""
    if choice.reason:
        key, level = f"{plan.shape.name}: {choice.reason}", logging.WARNING
    else:
        key, level = choice.line, logging.INFO
    if key not in _SAID:
        _SAID.add(key)
        LOG.log(level, choice.line)


def _same(one: Plan, other: Plan) -> bool:
    fields = ("table", "shape", "on_missing", "fallback", "require_tuned", "variant")
    return all(getattr(one, name) == getattr(other, name) for name in fields)


def _served(match: Match) -> str:
    entry = match.entry
    floor = f", stream floor {entry.floor_us:g} us" if entry.floor_us else ""
    return (
        f"{match.kernel.schedule.id} ({match.how.replace('_', ' ')}: tuned at {entry.tuned_at}, "
        f"good for up to {entry.capacity}; {entry.time_us:g} us when tuned{floor})"
    )


def _tuned_is_required() -> bool:
    value = os.environ.get(REQUIRE_TUNED, "")
    if value not in ("", "0", "1"):
        raise MonomoeError(f"{REQUIRE_TUNED} must be 0 or 1, found {value!r}")
    return value == "1"


def _dimensions(shape: Shape) -> str:
    fields = {k: v for k, v in shape.to_dict().items() if k not in ("name", "source")}
    return " ".join(f"{name}={value}" for name, value in fields.items())
