"""Imports point only to a lower rank, and the runtime needs none of the generator's libraries."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import monomoe_gen

PACKAGE = Path(monomoe_gen.__file__).parent

# From the bottom up; a module may import those of the lines above its own.
LAYERS = (
    ("errors", "paths", "files", "interrupt", "pipeline", "samplers", "meter", "prune"),
    ("shapes", "device", "e4m3", "nvrtc", "cubin_cache", "strict", "partition", "comparison"),
    ("launch_attributes", "routings", "wait_limit"),
    ("protocol", "telemetry", "worker_process", "hf_families", "hf_quantization", "shape_table"),
    ("routing_trace",),
    ("schedule", "patterns", "compile_worker", "hf_config"),
    ("rules", "reference", "weights", "tuning_db", "search", "cost", "trace", "variant"),
    ("regress", "sass", "noise", "history", "ci", "winner", "t4", "objective", "ordered"),
    ("space", "render", "ranking", "perfetto", "trace_summary", "workload", "checkpoint"),
    ("trace_format", "present"),
    (
        "compile",
        "kernel",
        "published",
        "ledger",
        "host_build",
        "rehearsal",
        "trace_file",
        "role_rows",
    ),
    ("search_study", "cover", "untuned"),
    ("drawing", "timeline", "side_by_side", "transfer", "prune_study"),
    ("sites", "placement"),
    ("validate", "bench", "dispatch", "workspaces"),
    ("recorder", "agreement"),
    ("testbed",),
    ("plan", "fallback", "c_header"),
    ("sandbox", "worker", "emit", "jobs", "simulate", "torch_op"),
    ("runtime", "verify", "refute", "ray_executor"),
    ("campaign",),
    ("finals", "confirm", "cards", "replay", "inspection", "candidates", "integrations"),
    ("tune", "lab", "demo"),
    ("calibration",),
    ("report", "gate", "validation_report", "variant_report"),
    ("gate_report",),
    ("remeasure", "tracing", "pages", "doctor", "variant_bench"),
    ("cli",),
    ("documents",),
)
RANKS = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

RUNTIME = ("errors", "shapes", "schedule", "kernel", "dispatch", "weights", "runtime")
GENERATOR_LIBRARIES = ("jinja2", "optuna", "yaml", "pandas", "click", "pydantic", "rich")


def module_files() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def owner(path: Path) -> str:
    """The ranked module a file belongs to: itself, or the package folder it lies in."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    """Modules of this package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: write the import in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        parts = [name.split(".") for name in names]
        found |= {p[1] for p in parts if p[0] == "monomoe_gen" and len(p) > 1}
    return found - {"__version__"}


@pytest.mark.parametrize("path", module_files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_to_a_lower_rank(path: Path) -> None:
    own = owner(path)
    others = imported_modules(path) - {own}
    for name in {own, *others}:
        assert name in RANKS, f"give {name} its line in LAYERS of {Path(__file__).name}"
    for other in others:
        assert RANKS[other] < RANKS[own], f"{own} may not import {other}"


def test_the_runtime_imports_without_the_generator() -> None:
    present = [name for name in RUNTIME if (PACKAGE / f"{name}.py").is_file()]
    program = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({GENERATOR_LIBRARIES!r}))\n"
        f"import {', '.join(f'monomoe_gen.{name}' for name in present)}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_dispatch_table_is_served_without_the_generator() -> None:
    script = Path(__file__).with_name("dispatch_check.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
