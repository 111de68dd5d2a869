"""The measurements: ``tuning_db/<gpu>/<shape>.jsonl``, append-only, the only memory of the tuner.

``tuning_db/README.md`` describes the file. A record is on disk when `append` returns. A line that a
killed writer left unfinished is reported and passed over by `read`, and removed by the next
`append`; everything else that is not a record is an error with file and line.
"""

from __future__ import annotations

import dataclasses
import fcntl
import logging
import os
from collections.abc import Iterable
from datetime import datetime, timezone
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import pydantic
from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from monomoe_gen.errors import DatabaseError, MonomoeError
from monomoe_gen.paths import tuning_db_dir
from monomoe_gen.schedule import Layout, Router, Schedule

if TYPE_CHECKING:
    import pandas

FORMAT = 1
MEND = "mend that line, or take it or the file away"
"""What to do about a file that `read` refuses."""

_T = TypeVar("_T")
Status = Literal[
    "ok", "infeasible", "compile_error", "launch_error", "wrong", "timeout", "unstable"
]
Stage = Literal["screen", "final", "confirm"]

_log = logging.getLogger(__name__)
_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, config=_CONFIG)
class Time:
    """Microseconds per launch over `n` graph replays."""

    median: PositiveFloat
    p10: PositiveFloat
    p90: PositiveFloat
    n: PositiveInt


@dataclass(frozen=True, config=_CONFIG)
class Errors:
    """The worst token: against fp32, and against the reference with the kernel's roundings."""

    cosine: float
    rel_l2: NonNegativeFloat
    mirror_rel_l2: NonNegativeFloat


@dataclass(frozen=True, config=_CONFIG)
class Binary:
    """What was measured: registers per thread, bytes, SHA-256 of the cubin."""

    registers: PositiveInt
    spill_bytes: NonNegativeInt
    shared_bytes: NonNegativeInt
    text_hash: str


@dataclass(frozen=True, config=_CONFIG)
class Record:
    """One candidate and what became of it, for one token count and routing.

    `floor_us` and `empty_us` (stream floor, empty graph node) come from the run of `time_us`;
    `distinct_experts` is the mean per launch. `layout` is that of the weights, `router` and `pdl`
    are as in `KernelSpec`. `env` describes the machine: driver, GPU name and UUID, SMs, clocks,
    power cap. `at` is an ISO time. `message` says why a status is not ok.
    """

    tokens: PositiveInt
    token_tile: PositiveInt
    schedule: dict[str, int]
    sources_hash: str
    compiler: str
    status: Status
    stage: Stage
    routing: str
    time_us: Time | None
    floor_us: PositiveFloat | None
    empty_us: PositiveFloat | None
    distinct_experts: PositiveFloat | None
    errors: dict[str, Errors]
    binary: Binary | None
    env: dict[str, str | int | float | bool | None]
    message: str = ""
    layout: Layout = "packed"
    router: Router = "logits"
    pdl: bool = False
    at: str = Field(default_factory=lambda: datetime.now(timezone.utc).isoformat("T", "seconds"))

    def __post_init__(self) -> None:
        try:
            Schedule.from_dict(self.schedule)
        except MonomoeError as error:
            raise ValueError(str(error)) from None
        if (self.status == "ok") != (self.time_us is not None):
            raise ValueError("time_us belongs to status ok, and only to it")
        if self.tokens > self.token_tile:
            raise ValueError(f"{self.tokens} tokens do not fit a tile of {self.token_tile}")

    @property
    def candidate(self) -> tuple[int, int, str, str, str]:
        """What the record is about: tokens, token tile, layout, schedule id, sources hash."""
        schedule = Schedule.from_dict(self.schedule)
        return self.tokens, self.token_tile, self.layout, schedule.id, self.sources_hash


@dataclass(frozen=True, config=_CONFIG)
class _Header:
    format: int
    gpu: str
    shape: str


_UNSAID: dict[str, object] = {"router": "logits", "pdl": False}  # left out of a line
_RECORD = pydantic.TypeAdapter(Record)
_HEADER = pydantic.TypeAdapter(_Header)


def database_path(gpu: str, shape: str, root: Path | None = None) -> Path:
    """The file of a GPU (its slug) and a shape (its name), below `root` or the project's."""
    return (root or tuning_db_dir()) / gpu / f"{shape}.jsonl"


def append(path: Path, record: Record) -> None:
    """Adds one record and returns when it is on disk. Several processes may do so at once.

    Raises:
        DatabaseError: the file is no tuning database, or cannot be written; then it is as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        with os.fdopen(descriptor, "rb+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = _repair(path, file)
            start = b""
            if size == 0:
                start = _line(_HEADER, _Header(FORMAT, path.parent.name, path.stem))
            try:
                _write(file, start + _line(_RECORD, record))
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise DatabaseError(path, 0, f"the record cannot be written: {error.strerror}") from error


def read(path: Path) -> list[Record]:
    """All records in the order they were added; none if the file does not exist.

    Raises:
        DatabaseError: a line is not what `append` writes, for instance has an unknown field.
    """
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # no writer is in the middle of a line
            content = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DatabaseError(path, 0, f"cannot be read: {error.strerror}") from error
    torn = _torn_bytes(content)
    if torn:
        _log.warning("%s, is passed over", _torn_message(path, content, torn))
    lines = content[: len(content) - torn].splitlines()
    if lines:
        _check_header(path, lines[0])
    return [_parse(_RECORD, path, i, line) for i, line in enumerate(lines[1:], start=2)]


def unfinished(path: Path) -> str:
    """What `read` passes over at the end of a file that it can read; empty if nothing."""
    content = path.read_bytes()
    torn = _torn_bytes(content)
    return _torn_message(path, content, torn) if torn else ""


def merge(target: Path, source: Path) -> int:
    """Adds to `target` the records of `source` that it lacks; how many there were."""
    known = {_line(_RECORD, record) for record in read(target)}
    missing = [r for r in read(source) if _line(_RECORD, r) not in known]
    for record in missing:
        append(target, record)
    return len(missing)


def latest_of(records: Iterable[Record], routing: str = "uniform") -> list[Record]:
    """What each candidate stands for under `routing`: its latest record, a final one if any.

    A confirmed time stands for nothing: only winners have one.
    """
    latest: dict[tuple[object, ...], Record] = {}
    for record in records:
        if record.routing == routing and record.stage != "confirm":
            old = latest.get(record.candidate)
            if not (old and old.stage == "final" and record.stage == "screen"):
                latest[record.candidate] = record
    return list(latest.values())


def frame(records: Iterable[Record]) -> pandas.DataFrame:
    """One row a record; nested fields are columns such as ``time_us.median``, ``schedule.grid``."""
    import pandas

    return pandas.json_normalize([dataclasses.asdict(record) for record in records])


def _repair(path: Path, file: FileIO) -> int:
    """Leaves whole lines only, the first of them a header, and returns their size in bytes."""
    file.seek(0)
    first = file.readline()
    if first.endswith(b"\n"):
        _check_header(path, first)
    size = file.seek(0, os.SEEK_END)
    if size:
        file.seek(size - 1)
        if file.read() == b"\n":
            return size
    file.seek(0)
    content = file.readall()
    torn = _torn_bytes(content)
    if torn:
        _log.warning("%s, is removed", _torn_message(path, content, torn))
        file.truncate(size - torn)
    return size - torn


def _torn_bytes(content: bytes) -> int:
    """Length of an unfinished last line."""
    return len(content) - content.rfind(b"\n") - 1


def _torn_message(path: Path, content: bytes, torn: int) -> str:
    line = content.count(b"\n") + 1
    return f"{path}:{line}: an unfinished line of {torn} bytes, left by a writer that was killed"


def _check_header(path: Path, line: bytes) -> None:
    found = _parse(_HEADER, path, 1, line)
    if found.format > FORMAT:
        raise DatabaseError(
            path,
            1,
            f"format {found.format} is newer than this program, which reads format {FORMAT}; "
            "upgrade monomoe-gen",
        )
    if found.format < FORMAT:
        raise DatabaseError(path, 1, f"there is no format {found.format}")
    if (found.gpu, found.shape) != (path.parent.name, path.stem):
        raise DatabaseError(
            path,
            1,
            f"holds {found.shape} on {found.gpu}, so its place is {found.gpu}/{found.shape}.jsonl; "
            "give it back its name, or start a new file",
        )


def _parse(adapter: pydantic.TypeAdapter[_T], path: Path, number: int, line: bytes) -> _T:
    try:
        return adapter.validate_json(line, strict=True)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        unknown = first["type"] == "unexpected_keyword_argument"
        reason = "unknown field" if unknown else first["msg"]
        raise DatabaseError(path, number, f"{field}: {reason}" if field else reason) from None


def _line(adapter: pydantic.TypeAdapter[_T], value: _T) -> bytes:
    unsaid = {name for name, usual in _UNSAID.items() if getattr(value, name, None) == usual}
    return adapter.dump_json(value, exclude=unsaid) + b"\n"


def _write(file: FileIO, data: bytes) -> None:
    """Appends all of `data` and waits until it is on disk."""
    while data:
        data = data[file.write(data) :]
    os.fsync(file.fileno())
