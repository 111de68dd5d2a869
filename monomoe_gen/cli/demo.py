"""Commands that show the kernels at work: demo decode."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from monomoe_gen.cli.options import TokensType, model_option
from monomoe_gen.cli.output import format_option, print_rows, say
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.files import write_atomically
from monomoe_gen.shapes import Shape, load_shape

MODEL = "qwen3.5-35b"
TIMES = {"ms_per_token": ".3f", "faster": ".2f"}


@click.group()
def demo() -> None:
    """Run whole models with and without the kernels."""


@demo.command()
@model_option(required=False)
@click.option(
    "--layers", type=click.IntRange(1), default=8, show_default=True, help="Of the model."
)
@click.option(
    "--sequences",
    type=TokensType(),
    default="1,2,4,8",
    show_default=True,
    help="How many sequences to decode together, comma separated.",
)
@click.option(
    "--prompt", type=click.IntRange(1), default=16, show_default=True, help="Tokens of each prompt."
)
@click.option(
    "--tokens", type=click.IntRange(1), default=32, show_default=True, help="Tokens to decode."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of weights and prompts.")
@click.option(
    "--device",
    "place",
    type=click.Choice(["cuda", "cpu"]),
    default="cuda",
    show_default=True,
    help="Where to run. On a CPU it is the kernels' reference, which is slow.",
)
@click.option(
    "--json",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result to this file too.",
)
@format_option
def decode(
    shape: Shape | None,
    layers: int,
    sequences: tuple[int, ...],
    prompt: int,
    tokens: int,
    seed: int,
    place: str,
    target: Path | None,
    form: str,
) -> None:
    """Time greedy decode of a Qwen3.5-MoE of random weights in transformers, and compare the texts.

    The model has the layers of --model (by default those of qwen3.5-35b) with full attention, and a
    small vocabulary. Nothing is downloaded. Each step is one token of every sequence, over a static
    cache, in a CUDA graph where that works. ms_per_token is the time of a step; faster is how many
    times as fast the kernels are. Needs the extra [transformers].
    """
    import torch

    if place == "cuda" and not torch.cuda.is_available():
        raise EnvironmentProblem("there is no CUDA device; --device cpu runs the reference")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from monomoe_gen.integrations.transformers import require_transformers

    require_transformers()
    import transformers

    from monomoe_gen.demo import decode as decoding
    from monomoe_gen.demo.model import VOCABULARY, make_model
    from monomoe_gen.demo.results import rows, to_json

    if target and not target.absolute().parent.is_dir():
        raise MonomoeError(f"--json {target}: there is no folder {target.absolute().parent}")
    device = (
        torch.device("cuda", torch.cuda.current_device())
        if place == "cuda"
        else torch.device("cpu")
    )
    shape = shape or load_shape(MODEL)
    say(f"making {layers} layers of {shape.name} on {device}")
    model = make_model(shape, layers, device, seed)
    settings = decoding.Settings(sequences, prompt, tokens, seed)
    runs = decoding.compare(model, settings, done=_tell)
    print_rows(rows(runs), form, TIMES)
    if target:
        about: dict[str, Any] = {
            "model": shape.name,
            "layers": layers,
            "vocabulary": VOCABULARY,
            "prompt": prompt,
            "tokens": tokens,
            "seed": seed,
            "device": torch.cuda.get_device_name(device) if place == "cuda" else "cpu",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
        text = json.dumps(to_json(runs, about), indent=1) + "\n"
        write_atomically(target, text.encode())


def _tell(run: Any) -> None:
    time = f"{run.ms_per_token:.3f} ms a token" if run.ms_per_token else "no time"
    graph = "" if run.graph else ", no CUDA graph"
    why = f" ({'; '.join(run.problems)})" if run.problems else ""
    say(f"{run.kind}, {run.sequences} sequences: {time}{graph}{why}")


COMMANDS = (demo,)
