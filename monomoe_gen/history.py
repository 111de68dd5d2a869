"""What checks found over time, ``tuning_db/history.jsonl``, and slow drift in it.

A check compares two kernels of today and cannot see what creeps by less than its threshold each
month. The ratio of a kernel's time to the stream floor of the same run can be compared over years.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass as plain_dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pydantic
from pydantic import ConfigDict, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from monomoe_gen.errors import DatabaseError, EnvironmentProblem
from monomoe_gen.paths import tuning_db_dir

FILE = "history.jsonl"
_LEAST_RUNS = 3  # on either side of a change
_NEIGHBOURS = 3  # runs on either side that tell what is usual
_NOISE_FREE = 1e-3  # log ratio that no series is trusted below
_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, config=_CONFIG)
class Row:
    """One timed cell of one check. Times are microseconds per launch, ``effect`` is relative.

    ``commit`` is the state of the checkout, if that is known.
    """

    at: str
    commit: str | None
    gpu: str
    uuid: str
    driver: str | None
    model: str
    tokens: PositiveInt
    routing: str
    kernel: str
    sources_hash: str
    compiler: str
    method: str
    verdict: str
    effect: float | None
    time_us: PositiveFloat
    floor_us: PositiveFloat


@plain_dataclass(frozen=True)
class Drift:
    """A series of one kind of GPU and cell: runs, and where its level changed.

    ``steps`` are (time stamp of the first run after it, relative change). ``change`` is from the
    first level to the last.
    """

    gpu: str
    model: str
    tokens: int
    routing: str
    runs: int
    steps: tuple[tuple[str, float], ...]
    change: float


_ROW = pydantic.TypeAdapter(Row)


def history_path() -> Path:
    return tuning_db_dir() / FILE


def append(path: Path, rows: Iterable[Row]) -> None:
    """Adds rows and returns when they are on disk; a line that a killed writer left is removed.

    Raises:
        DatabaseError: the file cannot be written.
    """
    data = b"".join(_ROW.dump_json(row) + b"\n" for row in rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        with os.fdopen(descriptor, "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise DatabaseError(path, 0, f"cannot be written: {error.strerror}") from error


def read(path: Path) -> list[Row]:
    """All rows, oldest first; none if there is no such file. An unfinished last line is left out.

    Raises:
        DatabaseError: a line is not what `append` writes.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DatabaseError(path, 0, f"cannot be read: {error.strerror}") from error
    rows = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            rows.append(_ROW.validate_json(line))
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise DatabaseError(path, number, f"{field}: {first['msg']}") from None
    return rows


def drift(rows: Iterable[Row]) -> list[Drift]:
    """The series that ``rows`` hold, with the changes of their levels.

    Raises:
        EnvironmentProblem: the library for change-point detection is not installed.
    """
    series: dict[tuple[str, str, int, str], list[Row]] = {}
    for row in rows:
        series.setdefault((row.gpu, row.model, row.tokens, row.routing), []).append(row)
    return [_drift(key, runs) for key, runs in sorted(series.items())]


def _drift(key: tuple[str, str, int, str], runs: Sequence[Row]) -> Drift:
    values = np.log([row.time_us / row.floor_us for row in runs])
    bounds = [0, *_change_points(values), len(values)]
    levels = [float(np.median(values[a:b])) for a, b in pairwise(bounds)]
    steps = tuple(
        (runs[start].at, math.expm1(after - before))
        for start, before, after in zip(bounds[1:], levels, levels[1:], strict=False)
    )
    return Drift(*key, runs=len(runs), steps=steps, change=math.expm1(levels[-1] - levels[0]))


def _change_points(values: np.ndarray) -> list[int]:
    """Where the mean of ``values`` changes, by optimal partitioning with a penalty per change."""
    try:
        import ruptures
    except ImportError:
        raise EnvironmentProblem(
            "looking for drift needs the library ruptures: pip install 'monomoe-gen[drift]'"
        ) from None
    if len(values) < 2 * _LEAST_RUNS:
        return []
    # A change of level touches one difference only, so their median tells the noise of a run.
    spread = 1.4826 * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2)
    spread = max(spread, _NOISE_FREE)
    # One bad run is no level: it counts as far from its neighbours as noise may be.
    padded = np.pad(values, _NEIGHBOURS, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEIGHBOURS + 1)
    near = np.median(windows, axis=1)
    values = np.clip(values, near - 2 * spread, near + 2 * spread)
    penalty = 3 * math.log(len(values)) * spread**2
    search = ruptures.Pelt(model="l2", min_size=_LEAST_RUNS, jump=1).fit(values.reshape(-1, 1))
    return [int(point) for point in search.predict(pen=penalty)[:-1]]
