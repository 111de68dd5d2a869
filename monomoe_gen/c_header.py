"""The dispatch table as ``monomoe_kernels.h``: constexpr data and the launch, for C++ programs."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from monomoe_gen.dispatch import Table
from monomoe_gen.paths import data_dir
from monomoe_gen.render import expand
from monomoe_gen.schedule import HEADER_BYTES, Schedule
from monomoe_gen.wait_limit import DEFAULT_MS

FILE = "monomoe_kernels.h"


def c_header(table: Table, templates: Path | None = None) -> str:
    """The text of the header: sorted, the same for the same table.

    `templates` is the folder of its template, by default the project's.

    Raises:
        RenderError: the template does not parse, or asks for an unknown value.
    """
    kernels = sorted(table.kernels, key=lambda k: k.id)
    entries = sorted(table.entries, key=lambda e: e.key)
    capability = table.device.arch.removeprefix("sm_").rstrip("a")
    values = {
        "device": table.device,
        "compute_major": capability[:-1],
        "compute_minor": capability[-1],
        "schedule_docs": [(f.name, f.metadata["doc"]) for f in fields(Schedule)],
        "shapes": list(dict.fromkeys(k.shape for k in kernels)),
        "kernels": kernels,
        "kernel_ids": [k.id for k in kernels],
        "entries": entries,
        "header_bytes": HEADER_BYTES,
        "wait_limit_ms": DEFAULT_MS,
        "quote": json.dumps,
        "boolean": lambda value: "true" if value else "false",
    }
    return expand(templates or data_dir("templates"), f"{FILE}.j2", values)
