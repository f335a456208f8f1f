"""More measurements behind a device profile: bandwidth of L2 and DRAM, global atomics, launches and blocks.

As :mod:`gpusim.runner.sweeps`, whose ``Gpu`` times them: rows of what was varied and what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np

if __package__:
    from gpusim.runner.sweeps import FLUSH, GIB, GLOBAL_ATOMICS, KIB, MIB, NONE, Gpu, Row, Stream, timed
else:  # a plain file, where gpusim is not installed
    from sweeps import (  # type: ignore[import-not-found, no-redef]
        FLUSH,
        GIB,
        GLOBAL_ATOMICS,
        KIB,
        MIB,
        NONE,
        Gpu,
        Row,
        Stream,
        timed,
    )


def dram(gpu: Gpu) -> Iterator[Row]:
    """Bandwidth over 1 GiB by width, loads in flight a thread and warps an SM."""
    a, b = gpu.cupy.zeros(GIB, np.uint8), gpu.cupy.zeros(GIB, np.uint8)
    for way, words, flight, warps in product(("read", "write", "copy"), (1, 2, 4), (1, 2, 4, 8), (4, 8, 16, 32, 64)):
        stream = Stream(gpu, way, words, flight, warps, GIB, a, b)
        if stream.possible:
            yield timed(gpu, stream)
    for words, warps in product((1, 4), (16, 32, 64)):
        stream = Stream(gpu, "read", words, 4, warps, GIB, a, cached=True)
        if stream.possible:
            yield timed(gpu, stream)


def strides(gpu: Gpu) -> Iterator[Row]:
    """Isolated granules: 4 to 128 neighbouring bytes, every 32, 64, ... bytes of 1 GiB or of some 18 MiB, and random
    sectors."""
    a = gpu.cupy.zeros(GIB, np.uint8)
    for way, granule, spacing, footprint in product(
        ("read", "write", "copy"), (4, 16, 32, 64, 128), (32, 64, 128, 256, 512), (GIB, 18 * MIB)
    ):
        if spacing < granule:
            continue
        words = 1 if granule == 4 else 4
        group = max(0, (granule // 16).bit_length() - 1)
        rounds = 1 if footprint == GIB else 20
        stream = Stream(gpu, way, words, 4, 32, footprint, a, group=group, apart=spacing // (4 * words), rounds=rounds)
        if stream.possible:
            yield timed(gpu, stream, spacing=spacing, granule=granule)
    for store, flight, log2, warps in product((0, 1), (1, 4, 8), (19, 25), (16, 32, 64)):
        count = gpu.sms * warps * 32 * 8 * 8
        if not gpu.fits(f"stream_random<{store}, {flight}>", 256, warps // 8):
            continue

        name, grid = f"stream_random<{store}, {flight}>", gpu.sms * warps // 8
        job = partial(gpu.run, name, grid, 256, a, gpu.out, np.uint32(count), np.uint32((1 << log2) - 1))

        found = gpu.ms(job, times=3)
        yield {"way": "random write" if store else "random read", "flight": flight, "warps": warps,
               "footprint": 32 << log2, "sectors": count, "sectors_ns": count / found["ms"] / 1e6, **found}  # fmt: skip


def l2(gpu: Gpu) -> Iterator[Row]:
    """Bandwidth of L2: reads, writes and copies in place of some 8 and 16 MiB, and how it grows with the SMs."""
    data = gpu.cupy.zeros(64 * MIB, np.uint8)
    for way, words, flight, warps, size in product(
        ("read", "write", "copy"), (1, 2, 4), (1, 4), (8, 16, 32, 64), (9 * MIB, 18 * MIB)
    ):
        stream = Stream(gpu, way, words, flight, warps, size, data, rounds=40)
        if stream.possible:
            yield timed(gpu, stream)
    counts = [n for n in (1, 2, 4, 8, 16, 33, 66, 99) if n < gpu.sms] + [gpu.sms]
    for way, words, sms in product(("read", "write", "copy"), (1, 4), counts):
        rounds = max(4, min(2000, 40 * 16 // sms)) if sms > 8 else 20
        size = 17 * MIB if sms > 8 else 4 * MIB
        stream = Stream(gpu, way, words, 4, 32, size, data, rounds=rounds, sms=sms)
        if stream.possible:
            yield timed(gpu, stream, sms=sms)


def cold(gpu: Gpu) -> Iterator[Row]:
    """What a reader, writer or copier of some MiB takes after the L2 was filled by writes, by reads, or by itself."""
    data, other, fill = (gpu.cupy.zeros(n, np.uint8) for n in (128 * MIB, 128 * MIB, FLUSH))
    dirty = Stream(gpu, "write", 4, 4, 32, FLUSH, fill)
    clean = Stream(gpu, "read", 4, 4, 32, FLUSH, fill)

    def both() -> None:
        dirty()
        clean()

    for way, size in product(("read", "write", "copy"), (5, 9, 17, 33, 65, 100)):
        stream = Stream(gpu, way, 4, 1, 32, size * MIB, data, other)
        states: tuple[tuple[str, Callable[[], None]], ...] = (
            ("dirty", dirty), ("clean", clean), ("dirty then clean", both), ("itself", stream),
        )  # fmt: skip
        for state, before in states:
            yield timed(gpu, stream, times=9, before=before, state=state)
    for state, before in (("dirty", dirty), ("clean", clean), ("dirty then clean", both)):
        found = gpu.ms(lambda: gpu.run("empty", 1, 32), times=15, before=before)
        yield {"way": "empty", "state": state, **found}


def hot(gpu: Gpu) -> Iterator[Row]:
    """Reading, and reading and writing, the same data again and again, by footprint: what stays in L2."""
    data = gpu.cupy.zeros(256 * MIB, np.uint8)
    sizes = (4.2, 8.4, 12.5, 16.6, 20.7, 24.8, 28.9, 33, 37.2, 41.3, 45.4, 50, 55, 60, 66, 74, 83, 100, 120, 160, 250)
    for way, size in product(("read", "copy", "write"), sizes):
        few = Stream(gpu, way, 4, 1, 32, int(size * MIB), data, rounds=4)
        many = Stream(gpu, way, 4, 1, 32, int(size * MIB), data, rounds=12)
        row = timed(gpu, many)
        less = gpu.ms(few, times=3)["ms"]
        each = (row["ms"] - less) / 8
        yield {**row, "round_ms": each, "round_gb_s": row["bytes"] / 12 / each / 1e6}
        one = Stream(gpu, way, 4, 1, 32, int(size * MIB), data)
        graph = gpu.graph(one, 20)
        found = gpu.ms(graph, times=3)
        yield {**one.row, "launches": 20, **found, "gb_s": 20 * one.bytes / found["ms"] / 1e6}


def atomics(gpu: Gpu) -> Iterator[Row]:
    """Global atomic adds by number of addresses, their distance, and how a warp's lanes choose among them."""
    data = gpu.cupy.zeros(512 * MIB, np.uint8)
    ways = ("same", "neighbours", "random")
    for kind, distinct, far, how in product(
        GLOBAL_ATOMICS, (1, 32, 256, 1024, 1 << 16, 1 << 20, 1 << 23), (False, True), (0, 1, 2)
    ):
        wide = kind in ("RED_LONG", "RED_DOUBLE")
        if (distinct == 1 and (how or far)) or (kind not in ("RED_INT", "ATOM_INT", "RED_FLOAT") and far):
            continue
        apart = 8 if far else 2 if wide else 1
        loops = 64

        job = partial(
            gpu.run, f"stream_atomic<{kind}>", gpu.sms * 4, 256, data, gpu.out, np.uint32(distinct - 1), apart, how,
            np.uint32(0), loops,
        )  # fmt: skip

        found = gpu.ms(job, times=2)
        lanes = gpu.sms * 4 * 256 * loops
        yield {"kind": kind, "distinct": distinct, "apart": 4 * apart, "lanes": ways[how], "operations": lanes,
               "operations_ns": lanes / found["ms"] / 1e6, **found}  # fmt: skip


def launches(gpu: Gpu) -> Iterator[Row]:
    """Empty kernels by grid and block: alone, after a flush, back to back and in a graph."""
    fill = gpu.cupy.zeros(FLUSH, np.uint8)
    dirty = Stream(gpu, "write", 4, 4, 32, FLUSH, fill)
    found = gpu.ms(times=30)
    yield {"kind": "nothing", **found}
    grids = (1, 132, 1000, 10_000, 100_000, 1_000_000)
    for block, grid, shared in product((32, 64, 128, 256, 512, 1024), grids, (0, 16)):
        if shared and grid < 10_000:
            continue
        job = partial(gpu.run, "empty", grid, block, shared=shared * KIB)

        yield {"kind": "alone", "block": block, "grid": grid, "shared": shared * KIB, **gpu.ms(job, times=10)}
        if grid <= 10_000:
            yield {"kind": "back to back", "block": block, "grid": grid, "shared": shared * KIB, "launches": 50,
                   **gpu.ms(*[job] * 50, times=5)}  # fmt: skip
            yield {"kind": "flushed", "block": block, "grid": grid, "shared": shared * KIB,
                   **gpu.ms(job, times=10, before=dirty)}  # fmt: skip
    arguments = (gpu.out, gpu.out, gpu.out, 0)
    for grid, block, name, args in (
        (1, 32, "empty", ()), (132, 256, "empty", ()), (1320, 256, "empty", ()), (10_000, 256, "empty", ()),
        (100_000, 256, "empty", ()), (1, 32, "empty_arguments", arguments), (1320, 256, "empty_arguments", arguments),
        (100_000, 256, "empty_arguments", arguments),
        (100_000, 256, "empty_registers<32>", (gpu.out, 0)), (100_000, 256, "empty_registers<128>", (gpu.out, 0)),
    ):  # fmt: skip
        found = gpu.ms(gpu.graph(partial(gpu.run, name, grid, block, *args), 100), times=10)
        yield {"kind": "graph", "name": name, "block": block, "grid": grid, "launches": 100, **found}


def slots(gpu: Gpu) -> Iterator[Row]:
    """From the end of a block to the start of the next one in its place; from the first block's start to the last
    one's of the first wave."""
    data = gpu.cupy.zeros(GIB, np.uint8)
    for block, resident, how, work in product((64, 128, 256, 512, 1024), (1, 2, 4, 8, 16), (0, 1, 2), (500, 4000)):
        if block * resident > gpu.threads_per_sm or (how and work == 500):
            continue
        waves = 12
        grid = gpu.sms * resident * waves
        records = gpu.cupy.zeros(5 * grid, np.int64)
        room = gpu.room(resident)
        words = np.int32(GIB // 4)
        for _ in range(2):
            gpu.run("slots", grid, block, records, data, work, how, words, shared=room)
            gpu.stream.synchronize()
        found = records.get().reshape(grid, 5)
        gaps: list[int] = []
        first: list[int] = []
        together = 0
        for sm in np.unique(found[:, 0]):
            mine = found[found[:, 0] == sm]
            start, end = np.sort(mine[:, 1]), np.sort(mine[:, 2])
            gaps += (start[resident:] - end[: len(end) - resident]).tolist()
            first += np.diff(start[:resident]).tolist()
            together = max(together, int(np.searchsorted(start, end[0])))
        wave = np.sort(found[:, 3])[: gpu.sms * resident]
        span = float(found[:, 4].max() - found[:, 3].min())
        low, middle, high = np.percentile(gaps, (25, 50, 75))
        yield {"block": block, "resident": resident, "seen_resident": together, "how": how, "work": work,
               "waves": waves, "shared": room, "gap": float(middle), "gap_quartiles": [float(low), float(high)],
               "busy": float(np.median(found[:, 2] - found[:, 1])),
               "between_first": float(np.median(first)) if first else 0.0,
               "first_wave_ns": float(wave[-1] - wave[0]), "total_ns": span}  # fmt: skip


def turnaround(gpu: Gpu) -> Iterator[Row]:
    """Microseconds a wave of blocks that leave no records: 30 waves less 10."""
    data = gpu.cupy.zeros(GIB, np.uint8)
    for block, resident, how, work in product((64, 128, 256, 512, 1024), (1, 2, 4, 8, 16), (0, 1, 2), (0, 2000)):
        if block * resident > gpu.threads_per_sm:
            continue
        room = gpu.room(resident)
        times = []
        for waves in (10, 30):
            job = partial(gpu.run, "slots", gpu.sms * resident * waves, block, NONE, data, work, how,
                          np.int32(GIB // 4), shared=room)  # fmt: skip
            times.append(gpu.ms(job, times=4)["ms"])
        yield {"block": block, "resident": resident, "how": how, "work": work, "ms": times,
               "wave_us": (times[1] - times[0]) / 20 * 1e3}  # fmt: skip
