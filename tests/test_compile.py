"""Compilation: facts of a binary, diagnostics, the cache, and compilers that crash or hang."""

import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from monomoe_gen import compile_worker, cubin_cache, nvrtc
from monomoe_gen.compile import (
    KernelBinary,
    compile_many,
    compile_source,
    compiler_library,
    compiler_version,
)
from monomoe_gen.errors import CompileError, EnvironmentProblem
from monomoe_gen.render import Source, hash_texts, render
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape

SPEC = KernelSpec(load_shape("qwen3.5-35b"), Schedule(132, 64, 1024, 128, 512, 8, 8))
HEADER = "#pragma once\n__device__ inline float twice(float x) { return x + x; }\n"


def source(body: str, name: str = "k", header: str = HEADER) -> Source:
    main = f'#include "ops/twice.cuh"\nextern "C" __global__ void {name}(float* p) {{ {body} }}\n'
    texts = {"main.cu": main, "ops/twice.cuh": header}
    return Source(name, texts, hash_texts(texts), threads=64, shared_bytes=128)


GOOD = source("p[threadIdx.x] = twice(p[0]);")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cubin_cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def no_worker(*_: object) -> None:
    raise AssertionError("a worker was started")


def test_a_binary_states_its_facts() -> None:
    binary = compile_source(GOOD)
    assert binary.kernel_name == "k"
    assert binary.cubin[:4] == b"\x7fELF"
    assert b"k" in binary.cubin
    assert 1 <= binary.registers <= 32
    assert (binary.spill_bytes, binary.local_bytes, binary.static_shared) == (0, 0, 0)
    assert (binary.threads, binary.shared_bytes) == (64, 128)
    assert binary.sources_hash == GOOD.sources_hash
    assert binary.text_hash == hashlib.sha256(binary.cubin).hexdigest()
    assert binary.warnings == ""
    assert binary.compiler == compiler_version()
    assert Path(compiler_library()).name.startswith("libnvrtc.so")


def test_the_cubin_is_a_whole_elf_file() -> None:
    cubin = compile_source(GOOD).cubin
    assert nvrtc.complete_elf(cubin) == cubin
    assert nvrtc.complete_elf(cubin[:-1]) == cubin
    with pytest.raises(CompileError, match="bytes short"):
        nvrtc.complete_elf(cubin[:-2])


def test_stack_spills_and_shared_memory_are_read_back() -> None:
    body = """
        __shared__ float tile[1000];
        float a[300];
        #pragma unroll
        for (int i = 0; i < 300; ++i) a[i] = p[i * 64 + threadIdx.x];
        tile[threadIdx.x] = a[7];
        __syncthreads();
        float sum = tile[threadIdx.x ^ 1];
        for (int round = 0; round < 3; ++round) {
            #pragma unroll
            for (int i = 0; i < 300; ++i) sum = sum * a[i] + a[299 - i];
            __syncthreads();
        }
        p[threadIdx.x] = sum;
    """
    binary = compile_source(source(body))
    assert binary.registers == 255
    assert binary.spill_bytes > 0
    assert binary.local_bytes > 0
    assert binary.static_shared == 4000


def test_an_operator_kernel_has_no_shared_memory_but_the_predicted() -> None:
    hidden = source("__shared__ float extra[8]; extra[threadIdx.x % 8] = *p; *p = extra[1];")
    with pytest.raises(CompileError, match="32 bytes of static shared memory beside the 128"):
        compile_source(dataclasses.replace(hidden, spec=SPEC))
    binary = compile_source(render(SPEC))
    assert binary.shared_bytes == SPEC.geometry.shared_bytes
    assert binary.registers * binary.threads <= 65536


def test_the_bytes_are_stable_and_the_bundle_gives_the_same() -> None:
    whole = render(SPEC)
    first = compile_source(whole)
    compile_worker.stop_idle()  # the second comes from another process
    assert compile_source(whole, fresh=True) == first
    texts = {"monomoe.cu": whole.bundle()}  # names of internal symbols contain the file name
    bundle = dataclasses.replace(whole, texts=texts, sources_hash="other")
    assert compile_source(bundle).cubin == first.cubin


def test_a_refusal_carries_the_compilers_log_with_the_header_and_line() -> None:
    with pytest.raises(CompileError) as caught:
        compile_source(source("p[0] = twice(1);", header="#pragma once\n\nint twice(nonsense);\n"))
    assert "ops/twice.cuh(3): error" in caught.value.log
    assert caught.value.log in str(caught.value)
    assert str(caught.value).startswith("k: main.cu does not compile")
    assert not caught.value.crashed


def test_warnings_are_kept() -> None:
    assert "declared but never referenced" in compile_source(source("int unused;")).warnings


def test_a_program_without_the_kernel_is_refused() -> None:
    other = dataclasses.replace(GOOD, kernel_name="elsewhere")
    with pytest.raises(CompileError, match="no ptxas report of a kernel named elsewhere"):
        compile_source(other)


def test_the_cache_answers_without_a_worker(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_source(GOOD)
    assert len(list(cache.iterdir())) == 1
    with monkeypatch.context() as patch:
        patch.setattr("monomoe_gen.compile.acquire", no_worker)
        assert compile_source(GOOD) == first
        with pytest.raises(AssertionError, match="a worker was started"):
            compile_source(GOOD, fresh=True)
        with pytest.raises(AssertionError, match="a worker was started"):
            compile_source(GOOD, arch="sm_90")
    (entry,) = cache.iterdir()
    entry.write_bytes(entry.read_bytes()[:-100])
    assert compile_source(GOOD) == first, "a damaged entry counts as absent"
    assert cubin_cache.get(entry.stem)


def test_an_unwritable_cache_only_warns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(cubin_cache.FOLDER_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="set MONOMOE_CACHE"):
        assert compile_source(GOOD).kernel_name == "k"


def test_many_compile_in_parallel_and_come_back_in_order() -> None:
    sources = [source(f"p[0] = {i};", name=f"k{i}") for i in range(6)]
    sources[3] = source("this is no C++;", name="k3")
    compile_source(sources[5])
    compile_worker.stop_idle()
    seen: list[int] = []
    outcomes = compile_many(sources, 2, lambda i, _: seen.append(i))
    assert sorted(seen) == list(range(6))
    assert seen[0] == 5, "what is cached comes first"
    assert [o.kernel_name for o in outcomes if isinstance(o, KernelBinary)] == [
        "k0", "k1", "k2", "k4", "k5",
    ]  # fmt: skip
    assert isinstance(outcomes[3], CompileError)
    assert len(compile_worker._idle) == 2, "workers are kept"
    assert compile_many([]) == []


# NVRTC does neither on purpose, so the worker is made to.
def misbehave(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, action: str) -> None:
    """New workers run `action` when they see a text with the word MISBEHAVE."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys, time\n"
        "if 'monomoe_gen.compile_worker' in getattr(sys, 'orig_argv', ()):\n"
        "    from monomoe_gen import nvrtc\n"
        "    real = nvrtc.compile_texts\n"
        "    def wrapped(binding, texts, options):\n"
        "        if 'MISBEHAVE' in str(texts):\n"
        f"            {action}\n"
        "        return real(binding, texts, options)\n"
        "    nvrtc.compile_texts = wrapped\n"
    )
    compile_worker.stop_idle()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def fresh_workers() -> object:
    yield
    compile_worker.stop_idle()


@pytest.mark.usefixtures("fresh_workers")
@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "k: NVRTC crashed its process (SIGSEGV)"),
        ("sys.stderr.write('internal error'); os._exit(3)", "(exit code 3)\ninternal error"),
        ("time.sleep(600)", "k: NVRTC did not finish within 2 s and was stopped"),
    ],
)
def test_a_crash_or_a_hang_is_a_result_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, action: str, message: str
) -> None:
    misbehave(monkeypatch, tmp_path, action)
    bad = source("/* MISBEHAVE */")
    good = [source(f"p[0] = {i};") for i in range(3)]
    outcomes = compile_many([good[0], bad, good[1], bad, good[2]], 1, timeout_s=2)
    for failed in (outcomes[1], outcomes[3]):
        assert isinstance(failed, CompileError)
        assert failed.crashed
        assert message in str(failed)
    assert all(isinstance(outcomes[i], KernelBinary) for i in (0, 2, 4))


@pytest.mark.usefixtures("fresh_workers")
def test_an_interrupt_stops_the_compilations_in_progress(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    misbehave(monkeypatch, tmp_path, "time.sleep(600)")
    started: list[compile_worker.Worker] = []
    monkeypatch.setattr(
        "monomoe_gen.compile.acquire",
        lambda: started.append(compile_worker.acquire()) or started[-1],  # type: ignore[func-returns-value]
    )
    compiler_version()

    def interrupt(index: int, outcome: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_many([source("/* MISBEHAVE */"), GOOD], 2, interrupt)
    assert len(started) == 2
    assert started[0].process.poll() == -signal.SIGKILL


def test_a_worker_ends_with_its_parent() -> None:
    program = (
        "import sys, time\n"
        "from monomoe_gen import compile\n"
        "from monomoe_gen.compile_worker import _idle\n"
        "compile.compiler_version()\n"
        "print(_idle[0].process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    worker = int(parent.stdout.readline())
    os.kill(worker, 0)
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{worker}/cmdline").exists() and Path(f"/proc/{worker}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "the worker outlives its parent"
        time.sleep(0.02)


def test_the_drivers_cache_does_not_stand_in_for_the_compiler() -> None:
    worker = compile_worker.Worker()
    try:
        while not worker.compiler:
            compile_worker.wait_any([worker])
            worker.receive()
        environment = Path(f"/proc/{worker.process.pid}/environ").read_bytes().split(b"\0")
    finally:
        worker.kill()
    assert b"CUDA_CACHE_DISABLE=1" in environment


def test_compilations_may_come_from_several_threads() -> None:
    results: dict[int, KernelBinary] = {}

    def work(i: int) -> None:
        results[i] = compile_source(source(f"p[0] = {i};"))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({r.text_hash for r in results.values()}) == 3


@pytest.mark.usefixtures("fresh_workers")
def test_a_missing_library_is_an_environment_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compile_worker.stop_idle()
    monkeypatch.setenv(nvrtc.LIBRARY_VARIABLE, str(tmp_path / "libnvrtc.so.99"))
    with pytest.raises(EnvironmentProblem, match=r"libnvrtc\.so\.99.*set MONOMOE_NVRTC"):
        compile_source(GOOD)


def test_the_library_is_the_one_of_cupys_cuda(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder, major in (("nvidia/cuda_nvrtc/lib", 12), ("nvidia/cu13/lib", 13)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f"libnvrtc.so.{major}").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert nvrtc.library() is None, "no CuPy, no choice"
    for major in (12, 13):
        info = tmp_path / f"cupy_cuda{major}x-14.0.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: cupy-cuda{major}x\nVersion: 14.0.0\n")
        path = nvrtc.library()
        assert path and path.name == f"libnvrtc.so.{major}"
        (info / "METADATA").unlink()
        info.rmdir()
    monkeypatch.setenv(nvrtc.LIBRARY_VARIABLE, "/opt/libnvrtc.so")
    assert nvrtc.library() == Path("/opt/libnvrtc.so")
