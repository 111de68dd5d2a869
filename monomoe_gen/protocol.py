"""What the tuner asks of a GPU worker and what it hears back: one JSON object a line, both ways.

A worker opens with `Ready`. It answers a request with a `Stage` before everything that may hang, a
`Cell` per token count of a `Measure` or a `Traced` per launch of a `Trace`, and `Done`; `Failed`
ends a request instead of `Done`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from pydantic import ConfigDict, Field, PositiveFloat
from pydantic.dataclasses import dataclass

from monomoe_gen.comparison import Comparison
from monomoe_gen.errors import MonomoeError

_STRICT = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

Env = dict[str, str | int | float | bool | None]


@dataclass(frozen=True, config=_STRICT)
class Image:
    """A cubin and how to launch it (see `kernel.LoadedKernel.from_cubin`).

    A kernel of ``router`` "weight" takes the router's weight where others take logits.
    ``half_bytes`` is what the kernel needs of a workspace half.
    """

    name: str
    cubin: bytes
    grid: int
    threads: int
    shared_bytes: int
    router: Literal["logits", "weight"] = "logits"
    pdl: bool = False
    half_bytes: int = 0


@dataclass(frozen=True, config=_STRICT)
class Timed:
    """Time a kernel: replays that warm up, replays that count, and the floors' kernels.

    Without ``streams`` no floor is timed.
    """

    warmups: int
    replays: int
    streams: tuple[Image, ...]
    empty: Image


@dataclass(frozen=True, config=_STRICT)
class Weights:
    """A layer of a checkpoint, in place of drawn weights (see `checkpoint.find_layer`).

    ``layer`` is its number, None where the files give none. Of ``shards`` equal parts of the
    intermediate columns, ``shard`` is taken.
    """

    files: tuple[str, ...]
    layer: int | None
    shard: int = 0
    shards: int = 1


@dataclass(frozen=True, config=_STRICT)
class Measure:
    """Validate and time one kernel on one shape (``Shape.to_dict()``) for some token counts.

    ``layout`` is that of its weights. ``validate`` runs every validation case first; ``timed`` is
    None for a request that only validates. ``logits_kernel`` is given logits, and timed too, behind
    a GEMM of the router. ``weights`` is None for drawn ones. ``report`` asks for the comparisons of
    every validated case; it goes with drawn weights only. ``trace_file`` holds the captured routing
    that ``routing`` names (see `routing_trace`).
    """

    shape: dict[str, Any]
    kernel: Image
    tokens: tuple[int, ...]
    routing: str
    validate: bool
    timed: Timed | None
    seed: int = 0
    layout: Literal["packed", "raw"] = "packed"
    weights: Weights | None = None
    report: bool = False
    logits_kernel: Image | None = None
    trace_file: str | None = None
    kind: Literal["measure"] = "measure"


@dataclass(frozen=True, config=_STRICT)
class Trace:
    """Launch a traced kernel on cold weights; the time stamps of ``launches`` launches are wanted.

    The other fields are as in `Measure`.
    """

    shape: dict[str, Any]
    kernel: Image
    tokens: int
    routing: str
    launches: int
    seed: int = 0
    layout: Literal["packed", "raw"] = "packed"
    kind: Literal["trace"] = "trace"


Request = Measure | Trace


@dataclass(frozen=True, config=_STRICT)
class Ready:
    """The GPU ran a small kernel. ``env`` holds at least gpu (its name), uuid and sms."""

    env: Env
    kind: Literal["ready"] = "ready"


@dataclass(frozen=True, config=_STRICT)
class Stage:
    """What begins now, and how many seconds it may take (None: the usual limit)."""

    name: str
    limit_s: float | None = None
    kind: Literal["stage"] = "stage"


@dataclass(frozen=True, config=_STRICT)
class CellErrors:
    """The worst token, see `validate.Errors`."""

    cosine: float
    rel_l2: float
    mirror_rel_l2: float


@dataclass(frozen=True, config=_STRICT)
class Floor:
    """Lower bounds measured in the same process, microseconds per launch."""

    stream_us: PositiveFloat
    empty_us: PositiveFloat


@dataclass(frozen=True, config=_STRICT)
class Cell:
    """The result for one token count.

    ``status`` is ok, wrong or unstable, with a ``message`` unless ok. ``samples`` are microseconds
    per launch of each timed replay, empty if nothing was timed. ``env`` is the state of the GPU
    right after. ``cases`` is what a report is about, empty if none was asked for. ``separate_us``
    is the time per launch of torch's GEMM and ``logits_kernel`` together, if that was given.
    """

    tokens: int
    status: Literal["ok", "wrong", "unstable"]
    message: str = ""
    errors: dict[str, CellErrors] = Field(default_factory=dict)
    samples: tuple[PositiveFloat, ...] = ()
    floor: Floor | None = None
    separate_us: PositiveFloat | None = None
    distinct_experts: float | None = None
    reuse_bytes: int | None = None
    env: Env = Field(default_factory=dict)
    cases: tuple[Comparison, ...] = ()
    kind: Literal["cell"] = "cell"


@dataclass(frozen=True, config=_STRICT)
class Traced:
    """The time stamps of one launch.

    ``records`` is the trace buffer as `trace.pack` packs it, ``env`` the state of the GPU right
    after.
    """

    records: bytes
    env: Env
    kind: Literal["traced"] = "traced"


@dataclass(frozen=True, config=_STRICT)
class Done:
    """The request is answered."""

    kind: Literal["done"] = "done"


@dataclass(frozen=True, config=_STRICT)
class Failed:
    """The request ended early.

    ``fault`` is whose: the kernel's (it does not load or launch, or the GPU reports an error), the
    caller's (a request that cannot be served), or the worker's own (a bug). After ``fatal`` the
    worker is gone.
    """

    fault: Literal["kernel", "request", "worker"]
    message: str
    fatal: bool
    kind: Literal["failed"] = "failed"


Event = Ready | Stage | Cell | Traced | Done | Failed

_REQUEST: pydantic.TypeAdapter[Request] = pydantic.TypeAdapter(
    Annotated[Request, Field(discriminator="kind")]
)
_EVENT: pydantic.TypeAdapter[Event] = pydantic.TypeAdapter(
    Annotated[Event, Field(discriminator="kind")]
)


class ProtocolError(MonomoeError):
    """A line that is no message."""


def encode(message: Request | Event) -> str:
    """One line of text, with its end."""
    asks = isinstance(message, Measure | Trace)
    adapter: pydantic.TypeAdapter[Any] = _REQUEST if asks else _EVENT
    return adapter.dump_json(message).decode() + "\n"


def decode_request(line: str) -> Request:
    """Raises `ProtocolError` if the line is none."""
    return _decode(_REQUEST, line)


def decode_event(line: str) -> Event:
    """Raises `ProtocolError` if the line is none."""
    return _decode(_EVENT, line)


def _decode(adapter: pydantic.TypeAdapter[Any], line: str) -> Any:
    try:
        return adapter.validate_json(line)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ProtocolError(f"not a message: {where}: {first['msg']}: {line[:200]!r}") from None
