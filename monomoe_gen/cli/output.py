"""How commands answer: rows on stdout in one of four formats, progress and remarks on stderr."""

from __future__ import annotations

import csv
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

Row = Mapping[str, Any]

WIDE = 10_000  # columns of a table that no terminal limits: nothing is folded or cut

FOR_PROGRAMS = ("json", "csv")
"""Formats that carry every row and value as it is."""

_STDERR = Console(stderr=True)

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "markdown"]),
    default="table",
    show_default=True,
    help="How to print the result.",
)


def print_rows(rows: Sequence[Row], form: str, formats: Mapping[str, str] | None = None) -> None:
    """Prints rows that share their keys; ``formats`` gives format specs for columns of a table.

    JSON and CSV carry every value as it is; a table and markdown show None as "-".
    """
    if form == "json":
        print_json(list(rows))
    elif form == "csv":
        writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
    elif form == "markdown":
        _print_markdown(rows, formats or {})
    else:
        _print_table(rows, formats or {})


def print_json(value: Any) -> None:
    """Prints one JSON value."""
    json.dump(value, sys.stdout, indent=1)
    print()


def _print_markdown(rows: Sequence[Row], formats: Mapping[str, str]) -> None:
    if not rows:
        return
    lines = [list(rows[0]), ["---:" if _numeric(rows, name) else "---" for name in rows[0]]]
    lines += [[_cell(row[name], formats.get(name, "")) for name in row] for row in rows]
    for line in lines:
        click.echo(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |")


def _numeric(rows: Sequence[Row], name: str) -> bool:
    return all(isinstance(row[name], int | float | None) for row in rows)


def _print_table(rows: Sequence[Row], formats: Mapping[str, str]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0] if rows else ():
        numeric = _numeric(rows, name)
        table.add_column(
            name, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold"
        )
    for row in rows:
        table.add_row(*(_cell(row[name], formats.get(name, "")) for name in row))
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        console.print(table)
        return
    console.width = WIDE
    with console.capture() as text:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in text.get().splitlines()))


def _cell(value: Any, spec: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value, spec)


def say(text: str) -> None:
    """A remark for the person who waits: stderr, never data."""
    _STDERR.print(text, markup=False, highlight=False, soft_wrap=True)


Update = Callable[[str, int, int | None, str], None]
"""Moves a bar: what is going on, steps done, steps in all (None: unknown), a note beside it."""


@contextmanager
def progress_bar() -> Iterator[Update]:
    """A progress bar on stderr, off when that is no terminal."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=_STDERR,
        disable=not _STDERR.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None, note="")
        yield lambda title, done, total, note: bar.update(
            task, description=title, completed=done, total=total, note=note
        )


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[str], None]]:
    """A progress bar whose yielded function counts one step and shows a short text."""
    steps = itertools.count(1)
    with progress_bar() as update:
        update(title, 0, total, "")
        yield lambda note: update(title, next(steps), total, note)
