"""The recorded times that commands compare."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from monomoe_gen.cli.output import say
from monomoe_gen.variant import USUAL, Variant

if TYPE_CHECKING:
    from monomoe_gen.present import Present
    from monomoe_gen.tuning_db import Record


def counting_times(
    about: str,
    present: Present,
    records: Iterable[Record],
    tokens: Container[int],
    token_tile: int,
    routing: str = "uniform",
    variant: Variant = USUAL,
    least: int = 1,
) -> tuple[Record, ...]:
    """The timed ones that count (`Present.newest`); says of ``about`` what is left out."""
    from monomoe_gen.ranking import timed

    newest = present.newest(timed(records, tokens, token_tile, routing, variant), least)
    if newest.remark:
        say(f"{about}: {newest.remark}")
    return newest.records
