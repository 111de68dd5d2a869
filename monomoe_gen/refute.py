"""What the simulator proves against a kernel before a GPU runs it.

For shapes whose launches the simulator takes whole; `simulate` says how a run is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from monomoe_gen.errors import MonomoeError
from monomoe_gen.host_build import build, compiler_version
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import Shape
from monomoe_gen.simulate import POLICIES, Problem, make_problem, plan, simulate
from monomoe_gen.variant import USUAL, Variant

LARGEST_LAUNCH = 8 * 2**20  # weight bytes; a toy launch of 128 CTAs reads 0.8 MB in some 4 s
_NO_PROOF = "crash"  # the simulator's own end, by a time limit or a signal


@dataclass(frozen=True)
class Refuter:
    """Simulates kernels on ``problems``, each under every policy with ``seeds`` seeds."""

    problems: tuple[Problem, ...]
    seeds: int

    def refute(self, spec: KernelSpec, over: Callable[[], bool] = lambda: False) -> str | None:
        """What is wrong with the kernel of ``spec``: its first finding; "" if nothing was found.

        None when ``over`` came true before the last run. A simulator that crashes or runs out of
        time proves nothing about the kernel.

        Raises:
            CompileError, EnvironmentProblem: as `host_build.build`.
        """
        if over():
            return None
        program = build(spec)
        for problem in self.problems:
            for outcome in simulate(program, problem, plan(self.seeds * len(POLICIES))):
                proofs = [f for f in outcome.findings if f.kind != _NO_PROOF]
                if proofs:
                    run, count = outcome.run, problem.tokens[0]
                    return f"simulated with {count} tokens, {run.policy}, seed {run.seed}: " + str(
                        proofs[0]
                    )
                if over():
                    return None
        return ""


def make_refuter(
    shape: Shape,
    tokens: tuple[int, ...],
    token_tile: int,
    routing: str,
    seeds: int,
    variant: Variant = USUAL,
) -> Refuter:
    """A refuter of kernels of ``shape``, which runs them with each of ``tokens``.

    Raises:
        MonomoeError: a launch is too large for the simulator.
        EnvironmentProblem: there is no g++.
    """
    require_small(shape, token_tile)
    compiler_version()
    problems = (
        make_problem(
            shape, launches(n, token_tile), routing, layout=variant.layout, router=variant.router
        )
        for n in tokens
    )
    return Refuter(tuple(problems), seeds)


def require_small(shape: Shape, token_tile: int) -> None:
    """Raises `MonomoeError` unless the simulator takes launches of ``token_tile`` tokens whole."""
    experts = min(token_tile * shape.top_k, shape.experts) + shape.shared_experts
    size = experts * shape.expert_bytes
    if size > LARGEST_LAUNCH:
        raise MonomoeError(
            f"asked to simulate the kernels of {shape.name}, whose launches of {token_tile} tokens "
            f"read up to {size / 2**20:.0f} MiB of weights: the simulator runs every thread of "
            f"every CTA in turn, and a launch of more than {LARGEST_LAUNCH // 2**20} MiB takes it "
            "minutes; tune without --simulate, and look for races with `monomoe-gen simulate "
            "--model toy`, whose kernels are the same text"
        )


def launches(tokens: int, token_tile: int) -> tuple[int, int, int]:
    """Token counts of the launches of one simulation: ``tokens`` twice, another count between."""
    return tokens, 1 if tokens == token_tile else token_tile, tokens
