"""Runs a rendered kernel on the CPU under a scheduler that looks for races and deadlocks.

The simulator runs every thread of every CTA in one process, picks who goes next from a seed, and
checks each access; `templates/host/README.md` says what it sees. Here a problem is drawn, the
program is run under any number of policies and seeds, and the outputs are judged: in every run the
bits that the kernel's sums have in the order of its schedule (`ordered`).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from monomoe_gen.errors import MonomoeError
from monomoe_gen.host_build import Program
from monomoe_gen.ordered import moe_sums
from monomoe_gen.reference import router_logits
from monomoe_gen.schedule import Geometry, KernelSpec, Layout, Router
from monomoe_gen.shapes import Shape
from monomoe_gen.sites import Namer
from monomoe_gen.wait_limit import DEFAULT_MS
from monomoe_gen.weights import BlockWeights, lay_out
from monomoe_gen.workload import activations, block_weights, rotation, router_weight

POLICIES = (
    "round_robin",
    "random",
    "starve_producer",
    "starve_mma",
    "starve_requant",
    "starve_epilogue",
    "starve_cta",
    "slow_copies",
    "fast_copies",
    "late_cta",
    "mixed",
)
_STEPS_PER_CTA = 2_000_000  # scheduler decisions of a launch; a toy launch takes some 30000
_BATCH = 32  # most runs of one process; the first have fewer, to show a fault soon


@dataclass(frozen=True)
class Run:
    """How one simulation is scheduled: a policy (one of `POLICIES`) and its seed."""

    policy: str
    seed: int


@dataclass(frozen=True)
class Finding:
    """Something that must not happen. ``here`` and ``there`` are the two sites, ``where`` the data.

    ``kind`` is the simulator's name for it, `wrong_numbers`, `unstable`, or how a run ended
    (`deadlock`, `livelock`, `crash`).
    """

    kind: str
    message: str
    here: str = ""
    there: str = ""
    where: str = ""
    count: int = 1

    def __str__(self) -> str:
        parts = [self.kind if not self.message else f"{self.kind}: {self.message}"]
        parts += [f"  {name} {value}" for name, value in self._sites() if value]
        return "\n".join(parts)

    @property
    def sites(self) -> tuple[str, str, str]:
        """What two reports of the same fault have in common."""
        return self.kind, self.here.split(" at ")[-1], self.there.split(" at ")[-1]

    def _sites(self) -> Iterator[tuple[str, str]]:
        yield "at", self.where
        yield "by", self.here
        yield "against", self.there


@dataclass(frozen=True)
class Outcome:
    """What one run showed. ``launch`` is the one that failed, or the number of launches."""

    run: Run
    launch: int
    steps: int
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


@dataclass(frozen=True)
class Problem:
    """Launches that share a layer and a workspace.

    ``inputs`` are the kernel's arguments: name, launch (None: all of them), tensor.
    """

    shape: Shape
    tokens: tuple[int, ...]
    layer: BlockWeights
    inputs: tuple[tuple[str, int | None, Tensor], ...]

    def expected(self, spec: KernelSpec) -> list[Tensor]:
        """The output of every launch of ``spec``'s kernel, bf16 ``[B, H]``."""
        return [sums.bfloat16() for sums in self.sums(spec)]

    def sums(self, spec: KernelSpec) -> list[Tensor]:
        """The same before it is rounded, fp32."""
        given = {(name, launch): tensor for name, launch, tensor in self.inputs}
        router = given.get(("router", None))
        weights = (self.layer.w13, self.layer.w13_scale, self.layer.w2, self.layer.w2_scale)
        return [
            moe_sums(
                spec,
                given["x", i],
                given["logits", i] if router is None else _logits(given["x", i], router, spec),
                *weights,
                given.get(("bias", i)),
            )
            for i in range(len(self.tokens))
        ]


def _logits(x: Tensor, router: Tensor, spec: KernelSpec) -> Tensor:
    return router_logits(x, router, spec.shape)


def make_problem(
    shape: Shape,
    tokens: Sequence[int],
    routing: str,
    seed: int = 0,
    layout: Layout = "packed",
    router: Router = "logits",
) -> Problem:
    """Draws one launch for each entry of ``tokens``; all share the weights.

    In every second launch the last token is all zero. With ``router`` "weight" the launches share a
    router's weight, and ``routing`` "ties" gives half of the experts the rows of the others; no
    other routing makes a difference then.
    """
    layer = block_weights(shape, "gaussian", seed)
    w13, w2 = lay_out(layout, layer.w13, layer.w2)
    inputs: list[tuple[str, int | None, Tensor]] = [
        ("w13", None, w13),
        ("w13_scale", None, layer.w13_scale),
        ("w2", None, w2),
        ("w2_scale", None, layer.w2_scale),
    ]
    if router == "weight":
        weight = router_weight(shape, seed)
        if routing == "ties":
            weight[shape.experts // 2 :] = weight[: (shape.experts + 1) // 2].clone()
        inputs.append(("router", None, weight))
    for i, count in enumerate(tokens):
        drawn = rotation(shape, count, routing, 1, 0, seed + i)
        logits = drawn.logits[0].to(getattr(torch, shape.logits_dtype))
        x = activations(shape, count, "student_t3" if i % 2 else "gaussian", seed + i)
        if i % 2:
            x[-1] = 0  # h is zero too, which is what the hand-off takes for "not there yet"
        inputs.append(("x", i, x))
        if router == "logits":
            inputs.append(("logits", i, logits))
        if drawn.bias is not None:
            inputs.append(("bias", i, drawn.bias))
    return Problem(shape, tuple(tokens), layer, tuple(inputs))


def plan(count: int, policies: Sequence[str] = POLICIES, first_seed: int = 0) -> list[Run]:
    """``count`` runs that take the policies in turn, each turn with the next seed."""
    return [Run(policies[i % len(policies)], first_seed + i // len(policies)) for i in range(count)]


def simulate(
    program: Program,
    problem: Problem,
    runs: Sequence[Run],
    resident: int | None = None,
    timeout_s: float = 600,
    wait_limit_ms: int = DEFAULT_MS,
) -> Iterator[Outcome]:
    """Yields the outcome of every run, in order.

    ``resident`` is the number of CTAs that the simulated GPU can hold at once, by default the whole
    grid. No time passes, so ``wait_limit_ms``, the kernel's bound of a wait, shows in reports of
    deadlocks only. A run that brings the simulator down ends with a `crash`, and the next run
    starts afresh.

    Raises:
        MonomoeError: more tokens than the kernel takes.
    """
    spec = program.spec
    if max(problem.tokens) > spec.token_tile:
        raise MonomoeError(
            f"{max(problem.tokens)} tokens, but {spec.kernel_name} takes {spec.token_tile}: "
            "raise --token-tile"
        )
    expected = problem.expected(spec)
    first: list[Tensor] | None = None
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write(problem, folder, spec.geometry, wait_limit_ms)
        left = list(runs)
        size = 1
        while left:
            batch = left[:size]
            size = min(2 * size, _BATCH)
            done, namer = _execute(program, folder, batch, resident, timeout_s)
            for answer, outputs in zip(done, _outputs(folder, problem), strict=False):
                outcome = _judge(left.pop(0), answer, outputs, expected, first, namer)
                if outcome.ok and first is None:
                    first = outputs
                yield outcome


def _write(problem: Problem, folder: Path, geometry: Geometry, wait_limit_ms: int) -> None:
    lines = [f"launches {len(problem.tokens)}", f"half_bytes {geometry.workspace_half_bytes}"]
    lines.append(f"wait_limit_ns {wait_limit_ms * 10**6}")
    for i, count in enumerate(problem.tokens):
        lines += [f"tokens {i} {count}", f"y_bytes {i} {2 * count * problem.shape.hidden}"]
    for name, launch, tensor in problem.inputs:
        which = "-" if launch is None else str(launch)
        file = f"{name}{which}.bin"
        data = tensor.contiguous().flatten().view(torch.uint8)
        (folder / file).write_bytes(data.numpy().tobytes())
        lines.append(f"input {name} {which} {file}")
    (folder / "manifest.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _execute(
    program: Program, folder: Path, runs: Sequence[Run], resident: int | None, timeout_s: float
) -> tuple[list[dict[str, Any]], Namer]:
    """The simulator's answers; a crash or a time-out adds one for the run that did not end."""
    output = folder / "y.bin"
    output.unlink(missing_ok=True)
    command = [
        program.path,
        folder,
        output,
        resident or 0,
        _STEPS_PER_CTA * program.spec.schedule.grid,
    ]
    asked = "".join(f"{run.policy} {run.seed}\n" for run in runs)
    try:
        done = subprocess.run(
            list(map(str, command)), input=asked, capture_output=True, text=True, timeout=timeout_s
        )
        text, ending = done.stdout, f"exit status {done.returncode}\n{done.stderr}".strip()
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode() if isinstance(error.stdout, bytes) else ""
        ending = f"no answer for {timeout_s:g} s"
    head, *answers = [json.loads(line) for line in text.splitlines()] or [{"program": None}]
    if head["program"] is None:
        raise MonomoeError(f"{program.path} does not start: {ending}")
    if len(answers) < len(runs):
        answers.append({"status": "crash", "ending": ending})
    pcs = {pc for answer in answers for pc in _pcs(answer)}
    return answers, Namer(program, head["program"], pcs)


def _pcs(answer: dict[str, Any]) -> Iterator[int]:
    for report in answer.get("reports", ()):
        yield from (site["pc"] for site in (report["here"], report["there"]) if site)
    yield from (wait["pc"] for wait in answer.get("waits", ()))


def _outputs(folder: Path, problem: Problem) -> Iterator[list[Tensor]]:
    path = folder / "y.bin"
    data = path.read_bytes() if path.is_file() else b""
    hidden = problem.shape.hidden
    size = 2 * hidden * sum(problem.tokens)
    for start in range(0, max(len(data), 1), size):
        one = data[start : start + size]
        whole = one if len(one) == size else b"\xff" * size
        rows = torch.frombuffer(bytearray(whole), dtype=torch.bfloat16).view(-1, hidden)
        yield list(rows.split(list(problem.tokens)))
    yield [torch.full((count, hidden), torch.nan) for count in problem.tokens]  # of a crash


def _judge(
    run: Run,
    answer: dict[str, Any],
    outputs: list[Tensor],
    expected: Sequence[Tensor],
    first: list[Tensor] | None,
    namer: Namer,
) -> Outcome:
    status = answer["status"]
    if status == "crash":
        return Outcome(run, 0, 0, 0.0, (Finding("crash", answer["ending"]),))
    findings = [Finding(**described) for described in namer.reports(answer["reports"])]
    if status in ("deadlock", "livelock"):
        findings.insert(0, Finding(status, "\n".join(namer.waits(answer["waits"]))))
    elif status == "ok":
        findings += _compare(outputs, expected, first)
    return Outcome(run, answer["launch"], answer["steps"], answer["seconds"], tuple(findings))


def _compare(
    outputs: Sequence[Tensor], expected: Sequence[Tensor], first: Sequence[Tensor] | None
) -> Iterator[Finding]:
    for i, (found, right) in enumerate(zip(outputs, expected, strict=True)):
        wrong = _bits(found) != _bits(right)
        if wrong.any():
            token = int(wrong.any(-1).nonzero()[0])
            error = (found[token].double() - right[token].double()).norm() / right[token].norm()
            yield Finding(
                "wrong_numbers",
                f"launch {i}, token {token}: {int(wrong[token].sum())} of {wrong.shape[1]} values, "
                f"relative error {error:.2e}",
            )
        if first is not None and not torch.equal(_bits(found), _bits(first[i])):
            yield Finding("unstable", f"launch {i}: other bits than in the first run")


def _bits(values: Tensor) -> Tensor:
    return values.view(torch.int16)
