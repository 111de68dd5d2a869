"""Which records count: those of the present sources, and older ones where there are no others."""

from dataclasses import replace

import pytest

from monomoe_gen import present
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.present import Newest, Present
from monomoe_gen.ranking import medians, timed
from monomoe_gen.render import render
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.tuning_db import Record, Time

TOY = load_shape("toy")
A, B, C = feasible(TOY, KNOWN[DEFAULT])[::40][:3]


def record(schedule: Schedule, tokens: int, us: float, sources_hash: str = "0" * 64) -> Record:
    return Record(
        tokens=tokens,
        token_tile=8,
        schedule=schedule.to_dict(),
        sources_hash=sources_hash,
        compiler="nvrtc 0.0",
        status="ok",
        stage="screen",
        routing="uniform",
        time_us=Time(us, us, us, 20),
        floor_us=None,
        empty_us=None,
        distinct_experts=None,
        errors={},
        binary=None,
        env={},
    )


def today(schedule: Schedule, tokens: int, us: float) -> Record:
    return record(schedule, tokens, us, render(KernelSpec(TOY, schedule, 8)).sources_hash)


def test_older_times_count_only_where_there_are_no_others() -> None:
    """A was timed again for one token, more slowly; B was not; nobody was for eight tokens."""
    again = [today(A, 1, 12.0), today(C, 1, 13.0)]
    eight = [record(A, 8, 60.0), record(A, 8, 50.0)]
    every = [record(A, 1, 9.0), again[0], record(B, 1, 8.0), *eight, again[1], record(A, 1, 7.0)]
    found = Present(TOY).newest(every)
    assert found == Newest((again[0], *eight, again[1]), 3, (8,))
    assert medians(found.records, 1, 8) == {A: 12.0, C: 13.0}
    assert medians(found.records, 8, 8) == {A: 50.0}
    assert found.remark == (
        "times of older sources left out: 3; "
        "older times count at 8 tokens, where the present sources have few or none"
    )


def test_older_times_count_where_others_are_too_few() -> None:
    records = [record(C, 1, 9.0), today(A, 1, 12.0), today(A, 1, 12.5), today(B, 1, 13.0)]
    assert Present(TOY).newest(records, 2) == Newest(tuple(records[1:]), 1, ())
    assert Present(TOY).newest(records, 3) == Newest(tuple(records), 0, (1,))


def test_there_is_nothing_to_say_about_present_sources_alone() -> None:
    records = (today(A, 1, 9.0), today(B, 2, 9.0))
    assert Present(TOY).newest(records) == Newest(records, 0, ())
    assert Present(TOY).newest(records).remark == Present(TOY).newest([]).remark == ""


def test_a_variant_has_sources_of_its_own() -> None:
    raw = KernelSpec(TOY, A, 8, layout="raw")
    known = replace(today(A, 1, 9.0), layout="raw", sources_hash=render(raw).sources_hash)
    assert Present(TOY).has(known)
    assert not Present(TOY).has(replace(known, layout="packed"))
    assert not Present(TOY).has(replace(known, token_tile=16))


def test_each_kernel_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = []
    monkeypatch.setattr(present, "render", lambda spec: rendered.append(spec) or render(spec))
    own = Present(TOY)
    own.newest([today(A, n, 9.0) for n in (1, 2, 4)] + [record(B, 1, 9.0)] * 2)
    own.newest([today(A, 8, 9.0)])
    assert [spec.schedule for spec in rendered] == [A, B]


def test_only_what_medians_looks_at_decides() -> None:
    """A present time of another routing, tile or variant does not displace older ones."""
    other = today(A, 1, 5.0)
    others = [
        replace(other, routing="zipf"),
        replace(other, stage="confirm"),
        replace(other, tokens=2),
        replace(other, token_tile=16),
        replace(other, layout="raw"),
    ]
    old = record(B, 1, 9.0)
    assert timed([*others, old], (1, 4), 8) == [old]
    assert timed([*others, old], (1,), 8, "zipf") == others[:1]
