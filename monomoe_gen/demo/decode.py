"""Greedy decode of a whole model: time per output token, and the text, by each kind of experts.

One step is one token of every sequence, prompts included, so that all kinds take the same path. It
is captured into a CUDA graph where that works, and otherwise run eagerly, which the result says.
"""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from monomoe_gen.demo.model import VOCABULARY, dequantized
from monomoe_gen.demo.standin import standing_in
from monomoe_gen.errors import MonomoeError
from monomoe_gen.integrations.transformers import patch, unpatch
from monomoe_gen.plan import KernelTable

OURS, STANDIN, SILENT = "monomoe", "fp8 batched_mm, stand-in kernel", "no experts"
REPEATS = 5


@dataclass(frozen=True)
class Settings:
    """Prompt and text length in tokens, and the numbers of sequences to decode together."""

    sequences: tuple[int, ...] = (1, 2, 4, 8)
    prompt: int = 16
    tokens: int = 32
    seed: int = 0


@dataclass
class Run:
    """One kind of experts at one number of sequences."""

    kind: str
    sequences: int
    ms_per_token: float | None = None
    graph: bool = False
    text: list[list[int]] = field(default_factory=list)  # the new tokens of each sequence
    margins: list[list[float]] = field(default_factory=list)  # best logit less second best
    problems: list[str] = field(default_factory=list)


class Decoder:
    """The decode step of one model and number of sequences, on tensors that stay in place."""

    def __init__(self, model: Any, settings: Settings, sequences: int) -> None:
        from transformers import StaticCache

        device = model.lm_head.weight.device
        length = settings.prompt + settings.tokens
        self.model, self.settings, self.steps = model, settings, length - 1
        generator = torch.Generator().manual_seed(settings.seed)
        prompts = torch.randint(VOCABULARY, (sequences, settings.prompt), generator=generator)
        self.start = torch.full((sequences, length), -1)
        self.start[:, : settings.prompt] = prompts
        self.start = self.start.to(device)
        self.text = self.start.clone()
        self.margins = torch.zeros(sequences, length, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.mask = torch.zeros(sequences, 1, 1, length, dtype=torch.bool, device=device)
        self.cache = StaticCache(config=model.config, max_cache_len=length)
        taken = inspect.signature(model.forward).parameters
        self.cache_name = "cache" if "cache" in taken else "past_key_values"

    def reset(self) -> None:
        self.text.copy_(self.start)
        self.position.zero_()
        self.mask.zero_()
        self.cache.reset()

    def step(self) -> None:
        """Feeds the token at ``position``, writes the next one unless the prompt has it."""
        self.mask.index_fill_(3, self.position, True)
        logits = self.model(
            input_ids=self.text.index_select(1, self.position),
            attention_mask={"full_attention": self.mask, "linear_attention": None},
            position_ids=self.position.expand(len(self.text), 1),
            use_cache=True,
            **{self.cache_name: self.cache},
        ).logits[:, -1]
        values, ids = logits.float().topk(2)
        self.position.add_(1)
        given = self.text.index_select(1, self.position)
        self.text.index_copy_(1, self.position, torch.where(given >= 0, given, ids[:, :1]))
        self.margins.index_copy_(1, self.position, values[:, :1] - values[:, 1:])

    def capture(self) -> Callable[[], None]:
        """The step as the replay of a CUDA graph."""
        self.reset()  # there may be no place left for a token
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.reset()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay

    def run(self, step: Callable[[], None]) -> float:
        """Decodes the whole text; milliseconds per new token (of each sequence)."""
        self.reset()
        for _ in range(self.settings.prompt - 1):
            step()
        _wait(self.text.device)
        began = time.perf_counter()
        for _ in range(self.settings.tokens):
            step()
        _wait(self.text.device)
        return 1e3 * (time.perf_counter() - began) / self.settings.tokens


@torch.no_grad()
def decode(model: Any, settings: Settings, sequences: int, kind: str) -> Run:
    """One run; what fails is among its ``problems``, and a failed capture is timed eagerly."""
    run = Run(kind, sequences)
    try:
        decoder = Decoder(model, settings, sequences)
        repeats = 1
        step: Callable[[], None] = decoder.step
        if decoder.text.device.type == "cuda":
            repeats = REPEATS
            decoder.run(step)
            try:
                step, run.graph = decoder.capture(), True
            except Exception as error:  # whatever a capture may not hold
                run.problems.append(f"no CUDA graph: {_first_line(error)}")
                torch.cuda.synchronize()
                decoder = Decoder(model, settings, sequences)
                step = decoder.step
        run.ms_per_token = statistics.median([decoder.run(step) for _ in range(repeats)])
        run.text = decoder.text[:, settings.prompt :].tolist()
        run.margins = decoder.margins[:, settings.prompt :].tolist()
    except Exception as error:  # one kind that cannot run leaves the others their numbers
        run.problems.append(_first_line(error))
    return run


def compare(
    model: Any,
    settings: Settings,
    table: KernelTable | None = None,
    done: Callable[[Run], None] = lambda run: None,
) -> list[Run]:
    """All kinds of experts at every number of sequences; those of the table's kernels first.

    The others are those of transformers: block-FP8 with the stand-in, and with the downloaded
    kernel where there is one; bf16 with the same values; and none, to see what the text owes them.

    On a CPU it is the operator's reference in place of kernels, for any shape.

    Raises:
        MonomoeError: the kernels may not run here.
    """
    kinds: dict[str, AbstractContextManager[None]] = {
        OURS: _patched(model, table),
        STANDIN: _fp8(model, "batched_mm", stand_in=True),
        "fp8 batched_mm": _fp8(model, "batched_mm", stand_in=False),
        "fp8 grouped_mm": _fp8(model, "grouped_mm", stand_in=False),
        "bf16 grouped_mm": _bf16(model),
        SILENT: _silent(model),
    }
    runs = []
    for kind, context in kinds.items():
        try:
            with context:
                for count in settings.sequences:
                    runs.append(decode(model, settings, count, kind))
                    done(runs[-1])
        except Exception as error:  # one kind that cannot be set up leaves the others
            if kind == OURS:
                raise
            runs.append(Run(kind, settings.sequences[0], problems=[_first_line(error)]))
            done(runs[-1])
    return runs


@contextmanager
def _patched(model: Any, table: KernelTable | None) -> Iterator[None]:
    on_gpu = model.lm_head.weight.device.type == "cuda"
    done = patch(model, table, on_missing="leave" if on_gpu else "fallback")
    try:
        if done.left:
            raise MonomoeError(str(done))
        yield
    finally:
        unpatch(model)


@contextmanager
def _fp8(model: Any, implementation: str, stand_in: bool) -> Iterator[None]:
    """transformers' own block-FP8 experts."""
    if not stand_in:
        from transformers.integrations.finegrained_fp8 import load_finegrained_fp8_kernel

        load_finegrained_fp8_kernel()
    model.config._experts_implementation = implementation
    with standing_in() if stand_in else nullcontext():
        yield


@contextmanager
def _bf16(model: Any) -> Iterator[None]:
    """transformers' own bf16 experts, which read twice the bytes."""
    model.config._experts_implementation = "grouped_mm"
    blocks = [layer.mlp for layer in model.model.layers]
    own = [block.experts for block in blocks]
    try:
        for block in blocks:
            block.experts = dequantized(block.experts)
        yield
    finally:
        for block, experts in zip(blocks, own, strict=True):
            block.experts = experts


@contextmanager
def _silent(model: Any) -> Iterator[None]:
    """Experts that add nothing: shows whether the text depends on them."""
    scales = [layer.mlp.experts.down_proj_scale_inv for layer in model.model.layers]
    kept = [scale.clone() for scale in scales]
    try:
        for scale in scales:
            scale.zero_()
        with _fp8(model, "batched_mm", stand_in=True):
            yield
    finally:
        for scale, values in zip(scales, kept, strict=True):
            scale.copy_(values)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
