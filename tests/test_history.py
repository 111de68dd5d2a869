"""The history of checks, the drift in it, and the file of A/A floors."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from monomoe_gen import history, noise
from monomoe_gen.errors import DatabaseError
from monomoe_gen.history import Row
from monomoe_gen.noise import Noise


def row(ratio: float, day: int = 1, tokens: int = 1) -> Row:
    return Row(
        at=f"2026-01-{day:02d}T00:00:00+00:00",
        commit=None,
        gpu="nvidia-h200",
        uuid="GPU-one",
        driver="600.1",
        model="m",
        tokens=tokens,
        routing="uniform",
        kernel="k",
        sources_hash="0" * 64,
        compiler="nvrtc 0.0",
        method="paired",
        verdict="OK",
        effect=0.001,
        time_us=8 * ratio,
        floor_us=8,
    )


def series(ratios: Sequence[float]) -> list[Row]:
    return [row(ratio, day) for day, ratio in enumerate(ratios, start=1)]


def noisy(levels: Sequence[float], runs: int, sigma: float = 0.003) -> list[float]:
    random = np.random.default_rng(7)
    return [level * float(np.exp(random.normal(0, sigma))) for level in levels for _ in range(runs)]


def test_rows_come_back(tmp_path: Path) -> None:
    path = tmp_path / "db" / "history.jsonl"
    assert history.read(path) == []
    history.append(path, series([1.2, 1.3]))
    history.append(path, [row(1.4)])
    assert [r.time_us for r in history.read(path)] == pytest.approx([9.6, 10.4, 11.2])


def test_a_torn_line_is_passed_over_and_then_removed(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history.append(path, [row(1.2)])
    with path.open("a") as file:
        file.write('{"at": "2026')
    assert len(history.read(path)) == 1
    history.append(path, [row(1.3)])
    assert len(history.read(path)) == 2


@pytest.mark.parametrize("line", ["{}", "no json", '{"surprise": 1}'])
def test_anything_else_is_an_error_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "history.jsonl"
    history.append(path, [row(1.2)])
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DatabaseError, match=r"history\.jsonl:2: "):
        history.read(path)


def test_a_small_step_is_found_where_it_happened() -> None:
    pytest.importorskip("ruptures")
    (found,) = history.drift(series(noisy([1.2, 1.2 * 1.015], 12)))
    ((at, step),) = found.steps
    assert at == "2026-01-13T00:00:00+00:00"
    assert step == pytest.approx(0.015, abs=0.004)
    assert found.change == step


def test_what_creeps_adds_up() -> None:
    """Steps of 1 % each, none of which a check would call a regression."""
    pytest.importorskip("ruptures")
    (found,) = history.drift(series(noisy([1.2 * 1.01**i for i in range(4)], 7)))
    assert len(found.steps) >= 2
    assert found.change == pytest.approx(0.03, abs=0.006)


def test_noise_is_no_drift() -> None:
    pytest.importorskip("ruptures")
    for seed in range(40):
        random = np.random.default_rng(seed)
        ratios = 1.2 * np.exp(0.005 * random.standard_t(4, 30))
        (found,) = history.drift(series([float(r) for r in ratios]))
        assert abs(found.change) < 0.02
    assert history.drift(series([1.2] * 20))[0].steps == ()
    assert history.drift(series([1.2, 1.5]))[0].steps == ()


def test_cells_are_series_of_their_own() -> None:
    pytest.importorskip("ruptures")
    rows = [row(ratio, tokens=tokens) for tokens, ratio in ((1, 1.4), (8, 1.1)) for _ in range(5)]
    assert [(d.tokens, d.runs, d.steps) for d in history.drift(rows)] == [(1, 5, ()), (8, 5, ())]


def test_floors_are_kept_for_each_card(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-h200" / "noise.json"
    one = Noise("GPU-one", None, 0.003, 0.006, 12, 8, "2026-01-01T00:00:00+00:00")
    two = Noise("GPU-two", "600.1", 0.004, 0.002, 12, 8, "2026-01-01T00:00:00+00:00")
    again = Noise("GPU-one", "600.2", 0.005, 0.001, 12, 8, "2026-02-01T00:00:00+00:00")
    assert noise.find(path, "GPU-one") is None
    for known in (two, one, again):
        noise.store(path, known)
    assert noise.read(path) == (again, two)
    assert (one.floor, two.floor) == (0.006, 0.004)
    path.write_text(path.read_text().replace('"driver"', '"diver"'))
    with pytest.raises(DatabaseError, match="diver: unknown field"):
        noise.find(path, "GPU-one")
