"""Each function of `templates/device` and its twin of `templates/host/device` do the same.

Both are compiled from one program (`cpp/probes.cu`) and judged by the same expectations; the host's
side here, the GPU's where there is one. `pytest -m gpu -rP tests/test_probes.py` prints how far
inexact results are apart.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from probe_traffic import async_copies, clocks, cluster, copies, exchanges, memory, places, shared
from probe_values import exponentials, floats, products, quotients, wide_products, words
from probes import GRID, TEXT, WORKSPACE_WORDS, Array, Probe, gpu_source, host_program, run_on_host

from monomoe_gen import host_build
from monomoe_gen.compile import compile_source
from monomoe_gen.paths import data_dir
from monomoe_gen.simulate import POLICIES, plan

DRAW = np.random.default_rng(7)
PROBES = (  # in the order of their numbers in probes.cu
    places(),
    words(DRAW),
    floats(DRAW),
    quotients(DRAW),
    exponentials(DRAW),
    exchanges(DRAW),
    shared(DRAW),
    memory(DRAW),
    copies(DRAW),
    products(DRAW),
    clocks(),
    wide_products(DRAW),
    cluster(DRAW),
    async_copies(DRAW),
)
NOT_PROBED = {"trap()": "it ends the launch; the simulator's tests see it reported"}

needs_compiler = pytest.mark.skipif(not host_build.has_compiler(), reason="needs g++")
each_probe = pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)


def type_of(parameter: str) -> str:
    """``const u32* address`` -> ``const u32*``."""
    if "(&" in parameter:
        return re.sub(r"\(&\w+\)", "(&)", parameter)
    return re.sub(r"\s*\b\w+$", "", parameter)


def signatures() -> set[str]:
    """The functions of ``device/``, overloads and specialisations apart: ``name(types)``."""
    found = set()
    for path in (data_dir("templates") / "device").glob("*.cuh"):
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        for head in re.findall(r"MONOMOE_DEVICE ([^{;]*\))(?: const)?\s*\{", text):
            name, parameters = re.fullmatch(r".*?(\w+)\((.*)\)", " ".join(head.split())).groups()
            types = [type_of(parameter) for parameter in parameters.split(", ")]
            found.add(f"{name}({', '.join(types)})")
    return found


def test_every_function_has_a_probe() -> None:
    probed = [name for probe in PROBES for name in probe.functions]
    assert len(set(probed)) == len(probed)
    missing = signatures() - set(probed) - set(NOT_PROBED)
    assert not missing, f"add them to a probe of cpp/probes.cu and to its `functions`: {missing}"
    assert set(probed) | set(NOT_PROBED) == signatures(), "functions that are no more"


def test_every_function_is_called() -> None:
    text = TEXT.read_text(encoding="utf-8")
    for name in {signature.split("(")[0] for probe in PROBES for signature in probe.functions}:
        assert re.search(rf"(device::|watchdog\.){name}[(<]", text), name


def test_the_probes_compile_for_the_gpu() -> None:
    binary = compile_source(gpu_source())
    assert binary.warnings == ""
    assert binary.static_shared == 0


# -- the host's side


@needs_compiler
def test_the_host_gives_what_is_expected_under_every_scheduler(tmp_path: Path) -> None:
    runs = plan(2 * len(POLICIES))
    first: Mapping[str, Array] = {}
    for run, outputs in zip(runs, run_on_host(host_program(), PROBES, runs, tmp_path), strict=True):
        complaints = [text for probe in PROBES for text in probe.complaints(outputs[probe.name])]
        assert not complaints, (run, complaints)
        first = first or outputs
        assert all(np.array_equal(outputs[name], first[name]) for name in first), run


NUMERIC, EXCHANGE, MEMORY = (f"simulator/{name}.cpp" for name in ("numeric", "exchange", "memory"))
FAULTS = (  # an edit of templates/host, and the column that shows it
    (NUMERIC, "std::nearbyint(", "std::floor(", "float_to_e4m3x4"),
    (NUMERIC, "(high + 6)", "(high + 5)", "e4m3x4_to_half, first two"),
    (NUMERIC, "0x7fff + (bits >> 16 & 1)", "0x8000", "float_to_bf16"),
    (NUMERIC, "i] = half(a[lane][1]", "i] = half(a[lane][2]", "exact sums"),
    (NUMERIC, "(bf16 << 16)", "(bf16 << 15)", "exact sums of bf16"),
    (EXCHANGE, "machine.current) ^ mask", "machine.current) + mask", "shuffle_xor"),
    (EXCHANGE, "return a + b;", "return a | b;", "reduce_add"),
    (EXCHANGE, "(copy.from + copy.landed)", "(copy.from + copy.landed + 16)", "copied"),
    (EXCHANGE, "copy.value + copy.landed, bytes", "copy.value + 1, bytes", "store_remote, word 0"),
    (MEMORY, "old >= last", "old > last", "atomic_increment_wrap, 1"),
    ("device/numeric.cuh", "std::exp(static", "std::exp2(static", "exponential_fast"),
)


@needs_compiler
def test_faults_of_the_host_are_seen(tmp_path: Path) -> None:
    shutil.copytree(data_dir("templates") / "host", tmp_path / "host")
    for file, old, new, _ in FAULTS:
        path = tmp_path / "host" / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new), encoding="utf-8")
    (outputs,) = run_on_host(host_program(tmp_path), PROBES, plan(1), tmp_path)
    complaints = [text for probe in PROBES for text in probe.complaints(outputs[probe.name])]
    for _, _, new, column in FAULTS:
        assert any(f", {column}: " in text for text in complaints), new


# -- the GPU's side


@pytest.fixture(scope="module")
def gpu() -> Mapping[str, Array]:
    """Every probe's output, by name."""
    from monomoe_gen.kernel import LoadedKernel, address

    source = gpu_source()
    binary = compile_source(source)
    kernel = LoadedKernel.from_cubin(
        binary.cubin, source.kernel_name, GRID, source.threads, source.shared_bytes
    )
    outputs = {}
    for number, probe in enumerate(PROBES):
        inputs = torch.from_numpy(probe.memory.view(np.int32)).cuda()
        out = torch.full((probe.words,), -1, dtype=torch.int32, device="cuda")
        workspace = torch.zeros(WORKSPACE_WORDS, dtype=torch.int32, device="cuda")
        arguments = (address(inputs), address(out), address(workspace), np.uint32(number))
        kernel.launch(arguments, torch.cuda.current_stream().cuda_stream)
        outputs[probe.name] = out.cpu().numpy().view(np.uint32)
    return outputs


@pytest.mark.gpu
@each_probe
def test_the_gpu_gives_what_is_expected(probe: Probe, gpu: Mapping[str, Array]) -> None:
    for column, found in probe.split(gpu[probe.name]):
        if column.inexact:
            print(f"{probe.name}, {column.name}: at most {column.ulps(found):.2f} units off")
    assert not probe.complaints(gpu[probe.name])


@needs_compiler
@pytest.mark.gpu
def test_the_gpu_agrees_with_the_host(gpu: Mapping[str, Array], tmp_path: Path) -> None:
    """Redundant but for inexact results, whose distance it prints."""
    (host,) = run_on_host(host_program(), PROBES, plan(1), tmp_path)
    for probe in PROBES:
        sides = zip(probe.split(gpu[probe.name]), probe.split(host[probe.name]), strict=True)
        for (column, found), (_, there) in sides:
            same = replace(column, expected=there.view(column.expected.dtype))
            if column.inexact:
                print(f"{probe.name}, {column.name}: at most {same.ulps(found):.2f} units apart")
            else:
                assert not same.wrong(found).size, column.name
