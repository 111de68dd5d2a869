"""What threads do together, and where they are: inputs of the probes, and what they give."""

from __future__ import annotations

import numpy as np
from probes import ALL, GRID, THREADS, Array, Column, Probe


def places() -> Probe:
    thread, cta = np.tile(np.arange(THREADS), GRID), np.repeat(np.arange(GRID), THREADS)
    functions = ("thread_index()", "cta_index()", "shared_storage()", "shared_address(const void*)")
    columns = (
        Column("thread_index", thread.astype("u4")),
        Column("cta_index", cta.astype("u4")),
        Column("shared_address", (16 * thread).astype("u4")),
        Column("negative_infinity", np.full(ALL, 0xFF800000, "u4")),
        Column("not_a_number", np.full(ALL, 0x7FFFFFFF, "u4")),
        Column("kAllLanes", np.full(ALL, 0xFFFFFFFF, "u4")),
    )
    functions += ("negative_infinity()", "not_a_number()")
    return Probe("places", functions, ALL, np.empty(0, "u4"), columns)


def exchanges(random: np.random.Generator) -> Probe:
    rounds = 40
    value = random.integers(0, 2**32, (rounds, ALL // 32, 32), np.uint32)
    value[1::2] |= 2
    value[2::5] &= np.uint32(0xFFFFFFFE)
    value[3::5] = value[3::5] % 7
    source = random.integers(0, 32, value.shape, np.uint32)
    mask = random.integers(1, 32, (rounds, 1, 1), np.uint32)
    lane = np.arange(32, dtype=np.uint32)

    def take(index: Array) -> Array:
        return np.take_along_axis(value, np.broadcast_to(index, value.shape).astype(int), 2)

    def warp(of_warp: Array) -> Array:
        return np.repeat(of_warp.astype(np.uint32)[..., None], 32, 2)

    results = {
        "shuffle": take(source),
        "shuffle of float": take(source),
        "shuffle_xor": take(lane ^ mask),
        "ballot": warp(((value & 1) << lane).sum(2)),
        "all": warp((value & 2).all(2)),
        "reduce_max": warp(value.max(2)),
        "reduce_min": warp(value.min(2)),
        "reduce_add": warp(value.sum(2) & 0xFFFFFFFF),
        "lanes that elect chooses": np.ones_like(value),
    }
    inputs = np.stack([np.broadcast_to(v, value.shape) for v in (value, source, mask)], -1)
    columns = tuple(Column(name, result.ravel()) for name, result in results.items())
    functions = ("shuffle(u32, u32)", "shuffle(float, u32)", "shuffle_xor(float, u32)")
    functions += ("ballot(bool)", "all(bool)", "reduce_max(u32)")
    functions += ("reduce_min(u32)", "reduce_add(u32)", "elect()")
    return Probe("exchanges", functions, value.size, inputs, columns)


def fold(words: Array) -> Array:
    """As in probes.cu: ``[..., 4]`` words -> one."""
    return (words * np.array([1, 3, 5, 7], "u4")).sum(-1, dtype=np.uint32)


def shared(random: np.random.Generator) -> Probe:
    value = random.integers(0, 2**31, (GRID, THREADS), np.uint32)
    received = np.zeros_like(value)
    received[:, :64] = value[:, 95:31:-1] + 1
    columns = (
        Column("sync_warp", value[:, np.arange(THREADS) ^ 1].ravel()),
        Column("sync_named of all", value[:, ::-1].ravel()),
        Column("load_shared_early", np.repeat(fold(value.reshape(GRID, -1, 4)), 4)),
        Column("sync_named and arrive_named", received.ravel()),
    )
    functions = ("sync_warp()", "sync_named(u32, u32)", "arrive_named(u32, u32)")
    functions += ("load_shared_early(const void*)",)
    return Probe("shared", functions, ALL, value, columns)


def cluster(random: np.random.Generator) -> Probe:
    value = random.integers(0, 2**32, (GRID, THREADS, 4), np.uint32)
    sent = value[::-1, ::-1].reshape(ALL, 4)
    columns = tuple(Column(f"store_remote, word {i}", sent[:, i].copy()) for i in range(4))
    functions = ("cluster_arrive()", "cluster_wait()", "mbarrier_wait_cluster(Mbarrier*, u32, u64)")
    functions += ("store_remote(F32x4*, const F32x4&, Mbarrier*, u32)",)
    return Probe("cluster", functions, ALL, value, columns)


def memory(random: np.random.Generator) -> Probe:
    rows = random.integers(0, 2**32, (ALL, 4), np.uint32)
    first = rows[:, 0].reshape(GRID, THREADS)
    lines = np.repeat(fold(first.reshape(GRID, -1, 4)), 4)
    counter, steps = np.arange(ALL, dtype=np.uint32) % 8, []
    for _ in range(7):
        steps.append(counter)
        counter = np.where(counter >= 4, 0, counter + 1).astype(np.uint32)
    columns = (
        Column("load_input of a word", rows[:, 0].copy()),
        Column("load_input of a float", rows[:, 1].copy()),
        Column("load_input of a bf16", rows[:, 2] >> np.uint32(16)),
        Column("load_input of four words", fold(rows)),
        Column("load_input of four floats", fold(rows)),
        Column("load_relaxed of a float", first[:, ::-1].ravel()),
        Column("load_relaxed of four floats", lines),
        Column("load_relaxed of four words", lines),
        Column("a polled value", rows[::-1, 0] | np.uint32(1)),
        *(Column(f"atomic_increment_wrap, {i}", step) for i, step in enumerate(steps[:6])),
        Column("a counter after six increments", steps[6]),
        Column("old values of a common counter", np.ones(ALL, "u4")),
        Column("a common counter in the end", np.zeros(ALL, "u4")),
        Column("load_behind of a word", rows[:, 0].copy()),
        Column("load_behind of a bf16", rows[:, 2] >> np.uint32(16)),
        Column("load_behind of two words", rows[:, 0] + np.uint32(3) * rows[:, 1]),
        Column("load_behind of four floats", fold(rows)),
        Column("load_input of two words", rows[:, 0] + np.uint32(3) * rows[:, 1]),
    )
    functions = ("load_input(const T*)", "load_input(const F32x4*)", "load_input(const U32x4*)")
    functions += ("load_relaxed(const F32x4*)", "load_relaxed(const float*)")
    functions += ("load_relaxed(const U32x4*)", "store_relaxed(float*, float)")
    functions += ("store_relaxed(u32*, u32)", "atomic_increment_wrap(u32*, u32)", "check()")
    functions += ("wait_for_prerequisites()", "launch_dependents()", "load_behind(const T*)")
    functions += ("load_input(const U32x2*)",)
    return Probe("memory", functions, ALL, rows, columns)


COPY_SIZES = (
    (16, 0),
    (32, 16),
    (4096, 1024),
    (2048, 2048),  # the second one crosses the end
    (16, 5008),
    (8192, 0),
    (8176, 16),
    (3184, 5008),
    (48, 0),
    (16, 8176),
    (2048, 4096),
)


def copies(random: np.random.Generator) -> Probe:
    sizes = np.array(COPY_SIZES)
    payload = random.integers(0, 2**32, 8192, np.uint32)
    starts = random.integers(0, (payload.nbytes - sizes.sum(1)) // 16 + 1) * 16
    rows = np.zeros((len(sizes), 4), np.uint32)
    rows[:, 0], rows[:, 1:3] = starts + rows.nbytes, sizes
    wanted = [payload[at // 4 : (at + n) // 4] for at, n in zip(starts, sizes.sum(1), strict=True)]
    columns = (
        Column("copied", np.tile(np.concatenate(wanted), GRID)),
        Column("mbarrier_try_wait", np.ones(len(sizes) * ALL, "u4")),
    )
    functions = ("evict_first_policy()", "mbarrier_init_fence()", "mbarrier_arrive(Mbarrier*)")
    functions += ("bulk_copy(void*, const void*, u32, Mbarrier*, CachePolicy)",)
    functions += ("mbarrier_init(Mbarrier*, u32)", "mbarrier_arrive_expect(Mbarrier*, u32)")
    functions += ("mbarrier_try_wait(Mbarrier*, u32)", "mbarrier_wait(Mbarrier*, u32, u64)")
    inputs = np.concatenate([rows.ravel(), payload])
    return Probe("copies", functions, len(sizes), inputs, columns)


def async_copies(random: np.random.Generator) -> Probe:
    rows = random.integers(0, 2**32, (GRID, THREADS, 8), np.uint32)
    thread = np.arange(THREADS)
    taken = (thread, thread ^ 31, thread ^ 1, thread | 1, thread, thread[::-1])  # by each thread
    words = [rows[:, source, i].ravel() for i, source in enumerate(taken)]
    columns = (
        *(Column(f"copy_async, {i}", word) for i, word in enumerate(words)),
        Column("copy_async, 0 again", rows[:, (thread + 32) % THREADS, 0].ravel()),
    )
    functions = ("copy_async(float*, const float*)", "commit_async()", "wait_async()")
    return Probe("async_copies", functions, ALL, rows, columns)


def clocks() -> Probe:
    names = "sm_clock", "global_nanoseconds", "sm_clock_behind", "spin_since"
    columns = tuple(Column(name, np.ones(ALL, "u4")) for name in names)
    calls = (
        "sm_clock()",
        "global_nanoseconds()",
        "sm_clock_behind(const u32*)",
        "spin_since(u32, u32)",
    )
    return Probe("clocks", calls, ALL, np.empty(0, "u4"), columns)
