"""Is ``generated/<gpu>/`` what the templates, the compiler and the database give?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from monomoe_gen import c_header, tuning_db
from monomoe_gen.compile import KernelBinary, compile_many
from monomoe_gen.device import Device
from monomoe_gen.dispatch import (
    Entry,
    Kernel,
    Table,
    load,
    part,
    read_cubin,
    read_source,
    table_folder,
)
from monomoe_gen.emit import origin_of, orphans
from monomoe_gen.errors import CompileError, DatabaseError
from monomoe_gen.render import Source, render
from monomoe_gen.shapes import load_shape
from monomoe_gen.tuning_db import Record
from monomoe_gen.variant import USUAL, Variant

_NOT_COMPARED = "bytes not compared"


@dataclass(frozen=True)
class Finding:
    """What verification found about a kernel, an entry or a file.

    ``equal``: it is exactly what the sources and the database give. ``compiles``: as far as this
    compiler, which is not the recorded one, can tell. ``wrong``: it has to be emitted again.
    """

    subject: str
    status: Literal["equal", "compiles", "wrong"]
    message: str


@dataclass(frozen=True)
class Rebuilt:
    """A dispatched kernel, what the templates give for it now, and what compiling that gave."""

    kernel: Kernel
    source: Source
    outcome: KernelBinary | CompileError


def verify(
    device: Device,
    models: Collection[str] = (),
    *,
    database: Path | None = None,
    folder: Path | None = None,
    done: Callable[[str], object] = lambda kernel_id: None,
) -> list[Finding]:
    """Renders and compiles dispatched kernels again and compares them with what is written.

    These are the kernels and entries of `models`, none meaning all; the header and files that no
    kernel has are always looked at.

    Bytes of a cubin are compared if the installed compiler is the recorded one. Entries are
    compared with the records they came from, the C++ header with the table. A model's database
    that cannot be read is a finding, in place of those about its entries.

    Raises:
        DatabaseError: no table, or an unreadable one.
        NoKernel: the table has nothing for one of `models`.
        EnvironmentProblem: no usable NVRTC.
    """
    folder = folder or table_folder(device.slug)
    table = load(folder)
    asked = part(table, models)
    found = _check_parts(device, asked, rebuild(device, asked, done), folder, database)
    return found + _check_whole(table, folder)


def rebuild(
    device: Device, table: Table, done: Callable[[str], object] = lambda kernel_id: None
) -> list[Rebuilt]:
    """Renders and compiles every kernel of ``table``; the cache of cubins is not asked.

    Raises:
        EnvironmentProblem: no usable NVRTC.
    """
    shapes = {model: load_shape(model) for model in {k.shape.name for k in table.kernels}}
    sources = [
        render(dataclasses.replace(kernel.spec, shape=shapes[kernel.shape.name]))
        for kernel in table.kernels
    ]
    outcomes = compile_many(
        sources,
        on_result=lambda i, _: done(table.kernels[i].id),
        arch=device.arch,
        fresh=True,
    )
    return [Rebuilt(*found) for found in zip(table.kernels, sources, outcomes, strict=True)]


def findings(
    device: Device,
    table: Table,
    rebuilt: Iterable[Rebuilt],
    folder: Path,
    database: Path | None = None,
) -> list[Finding]:
    """What `verify` says of ``table`` in ``folder``, given what its kernels were rebuilt to."""
    return _check_parts(device, table, rebuilt, folder, database) + _check_whole(table, folder)


def gathered(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of findings, with ``subject`` and ``message``, for people to read.

    Where bytes are not compared, because of one and the same pair of compilers, one row counts the
    kernels. All other rows stay.
    """
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for index, row in enumerate(rows):
        message = row["message"]
        key = message if message.startswith(_NOT_COMPARED) else index
        groups.setdefault(key, []).append(row)
    return [
        group[0] if len(group) == 1 else {**group[0], "subject": f"{len(group)} kernels"}
        for group in groups.values()
    ]


def _check_parts(
    device: Device,
    table: Table,
    rebuilt: Iterable[Rebuilt],
    folder: Path,
    database: Path | None,
) -> list[Finding]:
    """About each kernel and each entry."""
    found = [_check_kernel(r.kernel, r.source, r.outcome, folder) for r in rebuilt]
    home = tuning_db.database_path(device.slug, "", database).parent
    if not any(home.glob("*.jsonl")):
        why = "there are none, so the times of entries are not compared"
        return [*found, Finding(f"records in {home}", "compiles", why)]
    for model in sorted({entry.model for entry in table.entries}):
        entries = [entry for entry in table.entries if entry.model == model]
        try:
            records = tuning_db.read(tuning_db.database_path(device.slug, model, database))
        except DatabaseError as error:
            found.append(Finding(f"records of {model}", "wrong", f"{error}; {tuning_db.MEND}"))
            continue
        found += [_check_entry(entry, records) for entry in entries]
    return found


def _check_whole(table: Table, folder: Path) -> list[Finding]:
    """About what is made from the table as a whole."""
    return [_check_header(table, folder)] + [
        Finding(path.name, "wrong", "no kernel of the table has this file")
        for path in orphans(folder, table)
    ]


def _check_kernel(
    kernel: Kernel, source: Source, outcome: KernelBinary | CompileError, folder: Path
) -> Finding:
    def wrong(message: str) -> Finding:
        return Finding(kernel.id, "wrong", message)

    if source.sources_hash != kernel.sources_hash:
        return wrong("the templates or the shape changed since it was compiled")
    assert source.spec, "only operator kernels are dispatched"
    needed = source.spec.geometry.workspace_half_bytes
    if kernel.workspace_half_bytes != needed:
        return wrong(
            f"workspace_half_bytes is {kernel.workspace_half_bytes}, its sources need {needed}"
        )
    try:
        cubin = read_cubin(folder, kernel)
        text = read_source(folder, kernel)
    except DatabaseError as error:
        return wrong(str(error))
    if text != source.bundle():
        return wrong(f"{kernel.id}.cu is not what the templates give")
    if isinstance(outcome, CompileError):
        return wrong(str(outcome))
    if outcome.compiler != kernel.compiler:
        return Finding(
            kernel.id,
            "compiles",
            f"{_NOT_COMPARED}: compiled by {kernel.compiler}, installed is {outcome.compiler}",
        )
    if outcome.cubin != cubin:
        return wrong(f"{outcome.compiler} gives other bytes than {kernel.id}.cubin")
    return Finding(kernel.id, "equal", f"{len(cubin)} bytes by {kernel.compiler}")


def _check_entry(entry: Entry, records: Iterable[Record]) -> Finding:
    variant = "" if entry.variant == USUAL else f", {entry.variant}"
    subject = f"{entry.model}, {entry.tuned_at} tokens{variant}"
    for record in records:
        about = record.tokens, Variant.of(record), origin_of(record)
        same = about == (entry.tuned_at, entry.variant, entry.record)
        if same and record.time_us and record.time_us.median == entry.time_us:
            return Finding(subject, "equal", f"measured {entry.record.at}")
    return Finding(subject, "wrong", "no record of the database has this time")


def _check_header(table: Table, folder: Path) -> Finding:
    path = folder / c_header.FILE
    try:
        same = path.read_text(encoding="utf-8") == c_header.c_header(table)
    except OSError as error:
        return Finding(path.name, "wrong", f"cannot be read: {error.strerror}")
    if not same:
        return Finding(path.name, "wrong", "is not what the table gives")
    return Finding(path.name, "equal", f"{len(table.kernels)} kernels")
