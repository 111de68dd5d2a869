"""``monomoe_kernels.h`` says what the table says, and the worked example compiles and is right.

Without a GPU the example runs against `cpp/fake_driver.cpp`, which hands a launch to the reference.
"""

import ctypes.util
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from serving import TINY, make_table

from monomoe_gen import c_header, dispatch
from monomoe_gen.device import DEFAULT
from monomoe_gen.errors import NoKernel, RenderError
from monomoe_gen.kernel import workspace_bytes
from monomoe_gen.weights import pack_w2, pack_w13

CPP = Path(__file__).with_name("cpp")
FOLDER = dispatch.table_folder(DEFAULT)
TABLE = dispatch.load(FOLDER)
WARNINGS = ("-std=c++17", "-Wall", "-Wextra", "-Werror")

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc on PATH")


def cuda_include() -> Path:
    """A folder with cuda.h: of a CUDA toolkit, or of the runtime's wheel."""
    nvcc = shutil.which("nvcc")
    folders = [Path(nvcc).resolve().parent.parent / "include"] if nvcc else []
    folders += [Path("/usr/local/cuda/include")]
    for base in map(Path, sys.path):
        folders += [path.parent for path in base.glob("nvidia/*/include/cuda.h")]
    for folder in folders:
        if (folder / "cuda.h").is_file():
            return folder
    pytest.skip("needs cuda.h")


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def build(out: Path, *arguments: str | Path, compiler: str = "g++") -> Path:
    done = run(compiler, *WARNINGS, "-O2", *arguments, "-o", out)
    assert done.returncode == 0, done.stderr
    return out


def test_the_header_is_stable_whatever_the_tables_order() -> None:
    text = c_header.c_header(TABLE)
    turned = dispatch.Table(TABLE.device, TABLE.kernels[::-1], TABLE.entries[::-1])
    assert c_header.c_header(turned) == text
    assert (FOLDER / c_header.FILE).read_text() == text
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_a_template_that_asks_for_more_is_an_error(tmp_path: Path) -> None:
    (tmp_path / f"{c_header.FILE}.j2").write_text("${colour}\n")
    with pytest.raises(RenderError, match="colour"):
        c_header.c_header(TABLE, tmp_path)


def test_the_wait_limit_and_the_gpu_are_stated() -> None:
    text = c_header.c_header(make_table())
    assert "wait_limit_ns = 2000ull * 1000 * 1000;" in text
    assert '{"NVIDIA H200", 132, 9, 0, 232448}' in text


PROBE = """
#include "monomoe_kernels.h"
#include <cstdio>
using namespace monomoe;
static_assert(find("no such model", 1) == nullptr, "look-up is constexpr");
int main() {
    for (const Shape& s : kShapes)
        for (unsigned tokens = 0; tokens < 40; ++tokens) {
            const Entry* entry = find(s.name, tokens);
            if (!entry) { std::printf("%s %u -\\n", s.name, tokens); continue; }
            const Kernel& k = kernel_of(*entry);
            std::printf("%s %u %u %s %s %s ", s.name, tokens, entry->tuned_at, k.file, k.name,
                k.cubin_sha256);
            std::printf("%u %u %u %u %u %zu\\n", k.grid, k.threads, k.shared_bytes, k.capacity,
                shape_of(k).hidden, workspace_bytes(k.workspace_half_bytes));
        }
}
"""


def test_a_kernel_gets_the_workspace_that_the_table_says() -> None:
    table = make_table()
    (kernel,) = table.kernels
    half = kernel.workspace_half_bytes + 4096
    larger = dataclasses.replace(kernel, workspace_half_bytes=half)
    text = c_header.c_header(dataclasses.replace(table, kernels=(larger,)))
    assert f", {kernel.registers}, {half}, Layout::kPacked" in text


@needs_compiler
def test_look_up_in_c_is_that_of_the_table(tmp_path: Path) -> None:
    source = tmp_path / "probe.cpp"
    source.write_text(PROBE)
    program = build(tmp_path / "probe", "-pedantic", "-I", FOLDER, source)
    expected = []
    for shape in dict.fromkeys(k.shape for k in TABLE.kernels):
        for tokens in range(40):
            try:
                match = dispatch.lookup(TABLE, shape.name, tokens)
            except NoKernel:
                expected.append(f"{shape.name} {tokens} -")
                continue
            k = match.kernel
            values = [
                shape.name, tokens, match.entry.tuned_at, f"{k.id}.cubin", k.kernel_name,
                k.cubin_sha256, k.schedule.grid, k.threads, k.shared_bytes, k.token_tile,
                shape.hidden, workspace_bytes(k.workspace_half_bytes),
            ]  # fmt: skip
            expected.append(" ".join(map(str, values)))
    assert run(program).stdout.splitlines() == expected


PACK = """
#include "monomoe_kernels.h"
#include <cstdio>
using namespace monomoe;
int main() {
    const Shape& s = kShapes[0];
    const unsigned h = s.hidden, n = s.intermediate;
    for (unsigned e = 0; e < all_experts(s); ++e) {
        for (unsigned i = 0; i < 2 * n * h; ++i)
            std::printf("%zu\\n", w13_offset(s, e, i / h, i % h));
        for (unsigned i = 0; i < h * n; ++i) std::printf("%zu\\n", w2_offset(s, e, i / n, i % n));
    }
    std::printf("%zu %zu\\n", w13_bytes(s), w2_bytes(s));
}
"""


@needs_compiler
def test_packing_in_c_is_that_of_python(tmp_path: Path) -> None:
    """Every byte of every expert, in a shape whose matrices are not square."""
    shared = dataclasses.replace(TINY, shared_experts=2)
    (tmp_path / c_header.FILE).write_text(c_header.c_header(make_table(shared)))
    (tmp_path / "pack.cpp").write_text(PACK)
    program = build(tmp_path / "pack", "-I", tmp_path, tmp_path / "pack.cpp")
    *lines, sizes = run(program).stdout.splitlines()
    e, h, n = shared.all_experts, TINY.hidden, TINY.intermediate
    offsets = torch.tensor([int(line) for line in lines]).view(e, 3 * n * h)
    for shape, at, pack in (
        ((e, 2 * n, h), offsets[:, : 2 * n * h], pack_w13),
        ((e, h, n), offsets[:, 2 * n * h :], pack_w2),
    ):
        codes = torch.randint(0, 127, shape, dtype=torch.uint8)
        packed = pack(codes.view(torch.float8_e4m3fn)).flatten()
        assert torch.equal(packed[at.flatten()], codes.flatten())
        assert at.flatten().unique().numel() == codes.numel()
    assert sizes == f"{2 * e * n * h} {e * n * h}"


@needs_nvcc
def test_the_example_compiles_with_nvcc(tmp_path: Path) -> None:
    """As its first lines say, up to the driver's library."""
    text = (CPP / "call_kernel.cpp").read_text()
    command = re.search(r"nvcc (.*) -lcuda -o call_kernel\n", text)
    assert command
    top = CPP.parent.parent
    words = [str(top / w) if "/" in w else w for w in command[1].split()]
    done = run("nvcc", "-Werror", "all-warnings", *words, "-c", "-o", tmp_path / "call_kernel.o")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with the fake driver."""
    out = tmp_path_factory.mktemp("example") / "call_kernel"
    sources = CPP / "call_kernel.cpp", CPP / "fake_driver.cpp"
    return build(out, "-I", FOLDER, "-I", cuda_include(), *sources)


@pytest.fixture
def call(example: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def call(model: str, tokens: int, **variables: str) -> subprocess.CompletedProcess[str]:
        serve = f"'{sys.executable}' '{CPP / 'fake_launch.py'}' '{FOLDER}'"
        fake = {"FAKE_DRIVER": str(tmp_path), "FAKE_DRIVER_LAUNCH": serve, **variables}
        return run(example, FOLDER, model, str(tokens), **fake)

    return call


Call = Callable[..., subprocess.CompletedProcess[str]]


@needs_compiler
def test_the_example_is_right(call: Call) -> None:
    """It packs, fills the arguments, launches with the table's configuration, and compares."""
    done = call("qwen3.5-35b", 2, FAKE_DRIVER_CLUSTER="2")
    assert done.returncode == 0, done.stderr
    kernel = dispatch.lookup(TABLE, "qwen3.5-35b", 2).kernel
    assert f"qwen3.5-35b, 2 tokens: {kernel.kernel_name}, worst cosine 0.99" in done.stdout


@needs_compiler
@pytest.mark.parametrize(
    ("model", "tokens", "variables", "message"),
    [
        ("qwen3.5-35b", 1, {"FAKE_DRIVER_LAUNCH": "true"}, "the result is wrong"),
        ("qwen3.5-35b", 1, {"FAKE_DRIVER_LAUNCH": "false"}, "cuLaunchKernel.*said the fake driver"),
        ("qwen3.5-35b", 1, {"FAKE_DRIVER_SMS": "66"}, "are for NVIDIA H200, found .* and 66 SMs"),
        (
            "qwen3.5-35b",
            1,
            {"FAKE_DRIVER_CLUSTER": "2", "FAKE_DRIVER_FULL": "true"},
            "the clusters cannot be resident as a whole",
        ),
        ("qwen3.5-35b", 99, {}, "no kernel for qwen3.5-35b with 99 tokens"),
        ("deepseek-v3.1-tp8", 1, {}, "routes by a plain softmax"),
    ],
)
def test_the_example_fails_with_a_reason(
    call: Call, model: str, tokens: int, variables: dict[str, str], message: str
) -> None:
    done = call(model, tokens, **variables)
    assert done.returncode == 1
    assert re.search(message, done.stderr, re.DOTALL), done.stderr


@needs_compiler
def test_the_example_says_how_it_is_used(example: Path) -> None:
    done = run(example)
    assert done.returncode == 2
    assert "FOLDER MODEL TOKENS" in done.stderr


def driver_library() -> str:
    """The file of the CUDA driver that this process has loaded."""
    torch.cuda.init()
    maps = Path("/proc/self/maps").read_text()
    found = re.search(r"/\S*libcuda\.so\S*", maps)
    return found[0] if found else f"-l:{ctypes.util.find_library('cuda')}"


@pytest.mark.gpu
@needs_compiler
@pytest.mark.parametrize("tokens", [1, 4, 8])
def test_the_example_runs_on_the_gpu(tmp_path: Path, tokens: int) -> None:
    sources = CPP / "call_kernel.cpp", driver_library()
    program = build(tmp_path / "call_kernel", "-I", FOLDER, "-I", cuda_include(), *sources)
    done = run(program, FOLDER, "qwen3.5-35b", str(tokens))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"qwen3.5-35b, {tokens} tokens" in done.stdout


@needs_compiler
def test_look_up_in_c_tells_variants_apart(tmp_path: Path) -> None:
    packed, raw = make_table(tuned_at=(2, 4)), make_table(tuned_at=(1,), layout="raw")
    inside, early = make_table(tuned_at=(3,), router="weight"), make_table(tuned_at=(5,), pdl=True)
    tables = packed, raw, inside, early
    both = dispatch.Table(
        packed.device,
        tuple(k for table in tables for k in table.kernels),
        tuple(e for table in tables for e in table.entries),
    )
    (tmp_path / c_header.FILE).write_text(c_header.c_header(both))
    source = tmp_path / "probe.cpp"
    source.write_text(
        '#include "monomoe_kernels.h"\n'
        "using namespace monomoe;\n"
        'static_assert(find("tiny", 3)->tuned_at == 2, "packed by default");\n'
        'static_assert(find("tiny", 3, {Layout::kRaw})->tuned_at == 1, "raw when asked");\n'
        'static_assert(kernel_of(*find("tiny", 1, {Layout::kRaw})).layout == Layout::kRaw, "");\n'
        'static_assert(kernel_of(*find("tiny", 1)).layout == Layout::kPacked, "");\n'
        "constexpr Variant kInside = {Layout::kPacked, Router::kWeight, false};\n"
        "constexpr Variant kEarly = {Layout::kPacked, Router::kLogits, true};\n"
        'static_assert(find("tiny", 3, kInside)->tuned_at == 3, "the router inside");\n'
        'static_assert(kernel_of(*find("tiny", 3, kEarly)).pdl, "dependent launch");\n'
        "constexpr Variant kNowhere = {Layout::kRaw, Router::kWeight, true};\n"
        'static_assert(find("tiny", 3, kNowhere) == nullptr, "no such kernel");\n'
        "int main() {}\n"
    )
    build(tmp_path / "probe", "-pedantic", "-I", tmp_path, source)
