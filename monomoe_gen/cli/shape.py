"""Commands that make shape files: shape import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from monomoe_gen.cli.options import device_option
from monomoe_gen.cli.output import progress, say
from monomoe_gen.device import Device
from monomoe_gen.errors import ShapeError
from monomoe_gen.files import write_atomically
from monomoe_gen.hf_config import default_name, import_shape, read_config
from monomoe_gen.hf_families import FAMILIES
from monomoe_gen.space import first_feasible


class _StatedType(click.ParamType):
    name = "field=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        key, sign, text = value.partition("=")
        if not key or not sign:
            self.fail(f"{value!r}: write FIELD=VALUE", param, ctx)
        try:
            return key, json.loads(text)
        except ValueError:
            return key, text  # a word needs no quotes
        except RecursionError:
            self.fail(f"{key}: the value is nested too deeply", param, ctx)


@click.group()
def shape() -> None:
    """Make shape files."""


@shape.command("import", epilog=f"Known model types: {', '.join(sorted(FAMILIES))}.")
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--tp",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Tensor-parallel GPUs that share each expert's intermediate columns.",
)
@click.option(
    "--name",
    help="Name of the shape. Default: that of the file of --output, which a name given has to be; "
    "without one, that of the config or of its folder.",
)
@click.option(
    "--set",
    "stated",
    type=_StatedType(),
    multiple=True,
    help="A field of the config that the file lacks, e.g. norm_topk_prob=true; may be repeated.",
)
@click.option(
    "--block-fp8",
    is_flag=True,
    help="The weights will be FP8 with one scale per 128x128 block, whatever the config says.",
)
@click.option(
    "--shared-experts/--no-shared-experts",
    default=False,
    show_default=True,
    help="Make the model's shared experts part of the launch, as experts that take every token.",
)
@click.option(
    "--logits-dtype",
    type=click.Choice(["float32", "bfloat16"]),
    default="float32",
    show_default=True,
    help="What the server hands to the kernel as router logits.",
)
@click.option("--source", help="Text of the file's source field. Default: the config, the model.")
@device_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write here, <name>.yaml, instead of to stdout.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def import_(
    config: Path,
    tp: int,
    name: str | None,
    stated: tuple[tuple[str, Any], ...],
    block_fp8: bool,
    shared_experts: bool,
    logits_dtype: str,
    source: str | None,
    device: Device,
    output: Path | None,
    force: bool,
) -> None:
    """Make a shape from a Hugging Face config.json.

    What decides the result and is not in the file is asked for, never guessed. A model that the
    kernel does not compute is refused with the reason.
    """
    if output is not None and output.suffix != ".yaml":
        raise click.UsageError(
            f"a shape is found by the name of its file, which ends in .yaml, and --output {output} "
            f"does not; give {output.name.removesuffix('.yml')}.yaml"
        )
    if output is not None and name not in (None, output.stem):
        raise click.UsageError(
            f"a shape is found by the name of its file, and --output {output} is not {name}.yaml; "
            "leave --name away, or give --output that name"
        )
    if output is not None and output.exists() and not force:
        raise click.UsageError(
            f"{output} is there already; give --output another name, or --force to replace it"
        )
    name = output.stem if output else name
    values = read_config(config)
    made = import_shape(
        values,
        name=name or default_name(config, values, tp),
        where=str(config),
        tp=tp,
        stated=dict(stated),
        block_fp8=block_fp8,
        shared_experts=shared_experts,
        logits_dtype=logits_dtype,
        source=source,
    )
    with progress("looking for a schedule", None):
        schedule = first_feasible(made.shape, device)
    text = made.shape.to_yaml()
    if schedule is None:
        raise ShapeError(
            str(config),
            "",
            f"gives {made.shape.hidden} x {made.shape.intermediate} experts, and no schedule of "
            f"those on {device.name} keeps the rules of the space; a larger --tp makes the "
            "intermediate size smaller",
        )
    for remark in made.remarks:
        say(f"note: {remark}")
    if output is None:
        click.echo(text, nl=False)
        return
    write_atomically(output, text.encode())
    say(f"wrote {output}: try `monomoe-gen space --model {output}`")


COMMANDS = (shape,)
