"""The dispatch table ``generated/<gpu>/dispatch.json``: the kernel for a model and token count.

This module reads, checks, looks up and formats the table; `emit` makes one from measurements.
``generated/README.md`` describes the file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from monomoe_gen.device import DEFAULT, Device
from monomoe_gen.errors import DatabaseError, NoKernel, OlderFormat
from monomoe_gen.files import copy_folder
from monomoe_gen.paths import data_dir, home
from monomoe_gen.schedule import KernelSpec, Layout, Router, Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.strict import read_versioned
from monomoe_gen.variant import USUAL, Variant

FORMAT = 2
FILE = "dispatch.json"


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel: ``<id>.cu`` and ``<id>.cubin`` beside the table.

    `token_tile` is the most tokens it takes, `threads` the CTA size, `shared_bytes` its dynamic
    shared memory, `workspace_half_bytes` the bytes of a workspace half that it needs at full
    capacity, whatever the present sources need. `registers` are per thread, `layout` is how its
    weights lie in memory. `router` and `pdl` are as in `KernelSpec`.
    """

    id: str
    kernel_name: str
    shape: Shape
    schedule: Schedule
    token_tile: int
    threads: int
    shared_bytes: int
    workspace_half_bytes: int
    registers: int
    sources_hash: str
    compiler: str
    cubin_sha256: str
    layout: Layout = "packed"
    router: Router = "logits"
    pdl: bool = False

    @property
    def variant(self) -> Variant:
        return Variant.of(self)

    @property
    def spec(self) -> KernelSpec:
        return self.variant.spec(self.shape, self.schedule, self.token_tile)


@dataclass(frozen=True)
class Origin:
    """The measurement an entry was chosen by: its time stamp, compiler, cubin hash and stage."""

    at: str
    compiler: str
    text_hash: str
    stage: str


@dataclass(frozen=True)
class Entry:
    """The kernel (its id) for `model`, measured with `tuned_at` tokens, good for `capacity`.

    `layout`, `router` and `pdl` are the kernel's. Its time lies in `low_us` to `high_us`, None if
    nobody knows; the schedules of `ties` (ids) could not be told apart from the fastest. A table of
    older versions lacks these fields.
    """

    model: str
    tuned_at: int
    capacity: int
    kernel: str
    time_us: float
    floor_us: float | None
    record: Origin
    layout: Layout = "packed"
    low_us: float | None = None
    high_us: float | None = None
    ties: tuple[str, ...] = ()
    router: Router = "logits"
    pdl: bool = False

    @property
    def variant(self) -> Variant:
        return Variant.of(self)

    @property
    def key(self) -> tuple[str, Variant, int]:
        """What a table has one entry for: model, variant, tokens."""
        return self.model, self.variant, self.tuned_at


@dataclass(frozen=True)
class Table:
    """Kernels by id and entries by their key, both sorted, of one kind of GPU."""

    device: Device
    kernels: tuple[Kernel, ...]
    entries: tuple[Entry, ...]

    def kernel(self, entry: Entry) -> Kernel:
        return next(kernel for kernel in self.kernels if kernel.id == entry.kernel)


@dataclass(frozen=True)
class Match:
    """An answer of `lookup`, and how the entry fits the request."""

    entry: Entry
    kernel: Kernel
    how: Literal["exact", "nearest_below", "smallest_above"]


def table_folder(gpu: str = DEFAULT) -> Path:
    """Where the table for a GPU (its slug) is read: the user's own, else the one that ships."""
    own, shipped = home() / "generated" / gpu, data_dir("generated") / gpu
    return own if own.exists() or not shipped.exists() else shipped


def writable_folder(gpu: str = DEFAULT) -> Path:
    """Where the table for a GPU is written: the user's own folder, never that of an installation.

    It begins as a copy of the one that ships, so that nothing is lost when it takes its place.
    """
    own, shipped = home() / "generated" / gpu, data_dir("generated") / gpu
    if shipped.exists() and not own.exists():
        copy_folder(shipped, own)
    return own


def entries_of(table: Table, model: str, variant: Variant = USUAL) -> list[Entry]:
    """All entries of `model`, of any variant; `variant` is the one to advise tuning for.

    Raises:
        NoKernel: there are none.
    """
    entries = [entry for entry in table.entries if entry.model == model]
    if not entries:
        models = ", ".join(sorted({entry.model for entry in table.entries})) or "no model"
        raise NoKernel(
            f"{model} on {table.device.name}",
            f"the table has {models}; run `{_tune(model, variant)}` to add one",
        )
    return entries


def part(table: Table, models: Collection[str]) -> Table:
    """The kernels and entries of ``models``; the whole table if none is named.

    Raises:
        NoKernel: the table has nothing for one of them.
    """
    if not models:
        return table
    for model in models:
        entries_of(table, model)
    return dataclasses.replace(
        table,
        kernels=tuple(k for k in table.kernels if k.shape.name in models),
        entries=tuple(e for e in table.entries if e.model in models),
    )


def _tune(model: str, variant: Variant) -> str:
    return f"monomoe-gen tune --model {model}{variant.options}"


def lookup(table: Table, model: str, tokens: int, variant: Variant = USUAL) -> Match:
    """The kernel of `variant` for `tokens` tokens of `model`.

    An entry tuned for exactly that count, else the nearest tuned below whose capacity suffices,
    else the smallest tuned above.

    Raises:
        NoKernel: the model is unknown, or no entry of the variant takes that many tokens.
    """
    every = entries_of(table, model, variant)
    entries = [entry for entry in every if entry.variant == variant]
    fits = [entry for entry in entries if entry.capacity >= tokens > 0]
    below = [entry for entry in fits if entry.tuned_at <= tokens]
    if below:
        entry = max(below, key=lambda e: e.tuned_at)
        exact = entry.tuned_at == tokens
        return Match(entry, table.kernel(entry), "exact" if exact else "nearest_below")
    if fits:
        entry = min(fits, key=lambda e: e.tuned_at)
        return Match(entry, table.kernel(entry), "smallest_above")
    request = f"{model} with {tokens} token{'' if tokens == 1 else 's'} on {table.device.name}"
    if entries:
        most = max(entry.capacity for entry in entries)
        raise NoKernel(request, f"the table has 1 to {most} tokens for this model")
    known = " / ".join(str(found) for found in sorted({e.variant for e in every}))
    raise NoKernel(
        f"{request}, {variant}",
        f"the table has {known} for this model; run `{_tune(model, variant)}`",
    )


def read_cubin(folder: Path, kernel: Kernel) -> bytes:
    """The cubin of a kernel of the table in `folder`.

    Raises:
        DatabaseError: the file is missing or is not the one that the table speaks of.
    """
    path = folder / f"{kernel.id}.cubin"
    try:
        cubin = path.read_bytes()
    except OSError as error:
        raise DatabaseError(path, 0, f"cannot be read: {error.strerror}") from error
    if hashlib.sha256(cubin).hexdigest() != kernel.cubin_sha256:
        raise DatabaseError(path, 0, f"is not the file of {FILE} (its hash differs); emit it again")
    return cubin


def read_source(folder: Path, kernel: Kernel) -> str:
    """The CUDA text of a kernel of the table in `folder`.

    Raises:
        DatabaseError: the file is missing or is no text.
    """
    path = folder / f"{kernel.id}.cu"
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DatabaseError(path, 0, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DatabaseError(path, 0, f"is not UTF-8 text: {error.reason}") from None


def load(folder: Path) -> Table:
    """Reads the table of `folder`.

    Raises:
        OlderFormat: an older version wrote it.
        DatabaseError: no table there, or one with a field that is unknown, missing or wrong.
    """
    path = folder / FILE
    if not path.exists():
        raise DatabaseError(
            path,
            0,
            "there is no such file, so nothing is generated for this GPU; run `monomoe-gen tune` "
            "on one, or `monomoe-gen emit --device` with its name if its measurements are here",
        )
    file = read_versioned(_File, path, FORMAT, "run `monomoe-gen emit`")
    for problem in _problems(file):
        raise DatabaseError(path, 0, problem)
    return Table(file.device, file.kernels, file.entries)


def load_baseline(folder: Path, device: Device) -> tuple[Table, str]:
    """The table of `folder` to compare with, and why nothing of it can be ("": it can).

    One of an older format does not say how its kernels are to be launched; it counts as empty.

    Raises:
        DatabaseError: no table there, or an unreadable one.
    """
    try:
        return load(folder), ""
    except OlderFormat as error:
        return Table(device, (), ()), f"nothing is compared with it: {error}"


def dump(table: Table) -> str:
    """The text of ``dispatch.json``: sorted, one field a line, the same for the same table."""
    kernels = tuple(sorted(table.kernels, key=lambda k: k.id))
    entries = tuple(sorted(table.entries, key=lambda e: e.key))
    file = _File(FORMAT, table.device, kernels, entries)
    text = dataclasses.asdict(file)
    for kernel, row in zip(file.kernels, text["kernels"], strict=True):
        row["shape"] = kernel.shape.to_dict()
    for row in (*text["kernels"], *text["entries"]):
        for name, usual in (("router", "logits"), ("pdl", False)):
            if row.get(name) == usual:
                del row[name]
    return json.dumps(text, indent=1, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class _File:
    format: int
    device: Device
    kernels: tuple[Kernel, ...]
    entries: tuple[Entry, ...]


def _problems(file: _File) -> Iterator[str]:
    """What does not hold between fields; a later check may rely on the earlier ones."""
    kernels = {kernel.id: kernel for kernel in file.kernels}
    if len(kernels) < len(file.kernels):
        yield "two kernels have the same id"
    if len({e.key for e in file.entries}) < len(file.entries):
        yield "two entries have the same model, layout, router, pdl and tuned_at"
    for e in file.entries:
        name = f"entry {e.model}, tuned_at {e.tuned_at}"
        kernel = kernels.get(e.kernel)
        if not kernel or kernel.shape.name != e.model:
            yield f"{name}: no kernel {e.kernel} of this model"
        elif kernel.layout != e.layout:
            yield f"{name}: layout {e.layout}, but {e.kernel} takes {kernel.layout} weights"
        elif kernel.router != e.router:
            yield f"{name}: router {e.router}, but {e.kernel} has router {kernel.router}"
        elif kernel.pdl != e.pdl:
            yield f"{name}: pdl {e.pdl}, but {e.kernel} has pdl {kernel.pdl}"
        elif not 1 <= e.tuned_at <= e.capacity <= kernel.token_tile:
            yield (
                f"{name}: capacity {e.capacity} must be tuned_at to {kernel.token_tile}, "
                "the kernel's token_tile"
            )
