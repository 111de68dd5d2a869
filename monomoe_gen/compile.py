"""`Source` to `KernelBinary`: NVRTC in worker processes, behind a content-addressed cache.

A compiler that crashes or hangs is a `CompileError` with ``crashed`` set; the worker is replaced
and the caller goes on. Idle workers are kept for later calls and end with this process.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from monomoe_gen import cubin_cache
from monomoe_gen.compile_worker import Reply, Worker, acquire, release, wait_any
from monomoe_gen.errors import CompileError
from monomoe_gen.nvrtc import parse_resources, warnings_of
from monomoe_gen.pipeline import usable_cpus
from monomoe_gen.render import Source


@dataclass(frozen=True)
class KernelBinary:
    """A compiled kernel and what is known about it without loading it.

    `registers` and `local_bytes` (stack frame) are per thread, `spill_bytes` adds spill stores and
    loads, `static_shared` and `shared_bytes` (dynamic) are bytes per CTA, `threads` is the CTA
    size. `compiler` reads like ``nvrtc 12.9.86``; `text_hash` is the SHA-256 of `cubin`;
    `warnings` is what the compiler had to say ("" as a rule), `cached` whether it said so earlier.
    """

    kernel_name: str
    cubin: bytes
    registers: int
    spill_bytes: int
    local_bytes: int
    static_shared: int
    shared_bytes: int
    threads: int
    sources_hash: str
    compiler: str
    text_hash: str
    warnings: str = ""
    cached: bool = field(default=False, compare=False)


Outcome = KernelBinary | CompileError


def options(arch: str) -> tuple[str, ...]:
    """The compiler's options. They are part of the cache key and of what a cubin's bytes mean."""
    return (
        f"--gpu-architecture={arch}",
        "-std=c++17",
        "-default-device",
        "--ptxas-options=-v",
    )


def compiler_version() -> str:
    """The compiler that the workers use, e.g. ``nvrtc 12.9.86``.

    Raises:
        EnvironmentProblem: no usable NVRTC.
    """
    return _compiler()[0]


def compiler_library() -> str:
    """The path of the libnvrtc that the workers use."""
    return _compiler()[1]


def compile_source(
    source: Source, arch: str = "sm_90a", timeout_s: float = 120, fresh: bool = False
) -> KernelBinary:
    """Compiles one program for `arch`. `fresh` ignores what the cache holds.

    Raises:
        CompileError: NVRTC refused (the log says why), crashed, or took longer than `timeout_s`.
        EnvironmentProblem: no usable NVRTC.
    """
    return _binaries(compile_many([source], 1, arch=arch, timeout_s=timeout_s, fresh=fresh))[0]


def compile_all(
    sources: Sequence[Source],
    on_result: Callable[[int, Outcome], object] = lambda index, outcome: None,
    *,
    arch: str = "sm_90a",
) -> list[KernelBinary]:
    """Compiles programs that are all needed, as `compile_many` does.

    Raises:
        CompileError: the first that does not compile.
        EnvironmentProblem: no usable NVRTC.
    """
    return _binaries(compile_many(sources, on_result=on_result, arch=arch))


def _binaries(outcomes: Sequence[Outcome]) -> list[KernelBinary]:
    binaries = []
    for outcome in outcomes:
        if isinstance(outcome, CompileError):
            raise outcome
        binaries.append(outcome)
    return binaries


def compile_many(
    sources: Sequence[Source],
    workers: int | None = None,
    on_result: Callable[[int, Outcome], object] = lambda index, outcome: None,
    *,
    arch: str = "sm_90a",
    timeout_s: float = 120,
    fresh: bool = False,
) -> list[Outcome]:
    """Compiles in up to `workers` processes (default: one per CPU); results in order of `sources`.

    `on_result(index, outcome)` is called in this thread as each one finishes, cached ones first.
    An exception it raises, Ctrl-C included, stops the compilations in progress and passes on.
    `timeout_s` bounds each compilation. A `CompileError` is a result here, not an exception.

    Raises:
        EnvironmentProblem: no usable NVRTC.
    """
    compiler = compiler_version()
    keys = [cubin_cache.key(s.sources_hash, options(arch), compiler) for s in sources]
    outcomes: dict[int, Outcome] = {}

    def finish(index: int, outcome: Outcome) -> None:
        outcomes[index] = outcome
        on_result(index, outcome)

    waiting: deque[int] = deque()
    for index, source in enumerate(sources):
        cached = None if fresh else cubin_cache.get(keys[index])
        if cached:
            finish(index, replace(_binary(source, compiler, *cached), cached=True))
        else:
            waiting.append(index)

    busy: dict[Worker, int] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < (workers or usable_cpus()):
                worker = acquire()
                busy[worker] = index = waiting.popleft()
                worker.submit(sources[index].texts, options(arch), timeout_s)
            for worker in wait_any(list(busy)):
                reply = worker.receive()
                if reply:  # else it has only become ready
                    index = busy.pop(worker)
                    release(worker)
                    finish(index, _outcome(sources[index], reply, compiler, keys[index]))
    finally:
        for worker in busy:
            worker.kill()
    return [outcomes[index] for index in range(len(sources))]


@lru_cache(maxsize=1)
def _compiler() -> tuple[str, str]:
    worker = acquire()
    try:
        while not worker.compiler:
            wait_any([worker])
            worker.receive()
    finally:
        release(worker)
    return worker.compiler, worker.library


def _outcome(source: Source, reply: Reply, compiler: str, key: str) -> Outcome:
    kind, result, log = reply
    if isinstance(result, str):
        return CompileError(f"{source.kernel_name}: {result}", log, crashed=kind == "crashed")
    try:
        binary = _binary(source, compiler, result, log)
    except CompileError as error:
        return error
    cubin_cache.put(key, result, log)
    return binary


def _binary(source: Source, compiler: str, cubin: bytes, log: str) -> KernelBinary:
    used = parse_resources(log, source.kernel_name)
    if source.spec and used.static_shared:
        raise CompileError(
            f"{source.kernel_name} has {used.static_shared} bytes of static shared memory beside "
            f"the {source.shared_bytes} that its schedule accounts for: put them in SharedStorage"
        )
    return KernelBinary(
        kernel_name=source.kernel_name,
        cubin=cubin,
        registers=used.registers,
        spill_bytes=used.spill_bytes,
        local_bytes=used.local_bytes,
        static_shared=used.static_shared,
        shared_bytes=source.shared_bytes,
        threads=source.threads,
        sources_hash=source.sources_hash,
        compiler=compiler,
        text_hash=hashlib.sha256(cubin).hexdigest(),
        warnings=warnings_of(log),
    )
