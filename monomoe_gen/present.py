"""Which records are of the kernels that the templates give today, and what stands in for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from monomoe_gen.render import render
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.tuning_db import Record
from monomoe_gen.variant import Variant


@dataclass(frozen=True)
class Newest:
    """The records that count, in their order.

    ``left_out`` is how many others there are, of older sources. At the token counts ``older`` few
    or none are of the present sources, and so all of them count.
    """

    records: tuple[Record, ...]
    left_out: int
    older: tuple[int, ...]

    @property
    def remark(self) -> str:
        """What to say about that; empty if every record is of the present sources."""
        parts = []
        if self.left_out:
            parts.append(f"times of older sources left out: {self.left_out}")
        if self.older:
            tokens = ", ".join(map(str, self.older))
            parts.append(
                f"older times count at {tokens} tokens, where the present sources have few or none"
            )
        return "; ".join(parts)


@dataclass(frozen=True)
class Present:
    """What the templates render for the kernels of ``shape`` today. Each is rendered once."""

    shape: Shape
    _hashes: dict[KernelSpec, str] = field(default_factory=dict, repr=False)

    def sources_hash(self, spec: KernelSpec) -> str:
        """The hash of the sources of ``spec``."""
        if spec not in self._hashes:
            self._hashes[spec] = render(spec).sources_hash
        return self._hashes[spec]

    def has(self, record: Record) -> bool:
        """Whether the templates still give the sources that were measured."""
        schedule = Schedule.from_dict(record.schedule)
        spec = Variant.of(record).spec(self.shape, schedule, record.token_tile)
        return record.sources_hash == self.sources_hash(spec)

    def newest(self, records: Iterable[Record], least: int = 1) -> Newest:
        """At each token count the records of the present sources; all of them if those are few.

        Few is less than ``least`` schedules.
        """
        every = [(record, self.has(record)) for record in records]
        found: dict[int, set[Schedule]] = {}
        for record, now in every:
            if now:
                found.setdefault(record.tokens, set()).add(Schedule.from_dict(record.schedule))
        known = {tokens for tokens, schedules in found.items() if len(schedules) >= least}
        kept = tuple(r for r, now in every if now or r.tokens not in known)
        older = sorted({r.tokens for r in kept} - known)
        return Newest(kept, len(every) - len(kept), tuple(older))
