"""Sums: divergence, bank conflicts, barriers, shuffles, vector loads and atomics on one small task.

The references add in the order of the kernels, in the kernels' precision, so their results can be compared bit for
bit. Only where blocks add atomically, in whatever order they come, is there a bound instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpusim.kernels import Case, Float, Launch, Problem, Reference, Tolerance, blocks_to_cover, poisoned, random_values

HERE = Path(__file__).parent
FLOATS = HERE / "reduce.cu"
DOUBLES = HERE / "reduce_double.cu"

Tree = Callable[[np.ndarray], np.ndarray]
"""Sums of the last axis, in the order of one tree."""

FLOAT_SIZES = (2**20, 2**26, 1_000_003)
DOUBLE_SIZES = (2**20, 2**26, 10**8, 1_000_003)
SMALL_SIZES = (1, 1000, 4096, 100_000)


def neighbours_first(values: np.ndarray) -> np.ndarray:
    """Each with its neighbour, then each pair with the next pair, and so on."""
    while values.shape[-1] > 1:
        values = values[..., 0::2] + values[..., 1::2]
    return values[..., 0]


def halves_first(values: np.ndarray) -> np.ndarray:
    """The far half onto the near half, then the same with what is left."""
    while (half := values.shape[-1] // 2) > 0:
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def warps_first(values: np.ndarray) -> np.ndarray:
    """``halves_first`` inside each warp of 32, then over the warps: the order of shuffles."""
    return halves_first(halves_first(values.reshape(*values.shape[:-1], -1, 32)))


def _in_blocks(values: np.ndarray, per_block: int) -> np.ndarray:
    """One row a block; zeros where the last block reaches beyond the end."""
    blocks = blocks_to_cover(len(values), per_block)
    padded = np.zeros(blocks * per_block, values.dtype)
    padded[: len(values)] = values
    return padded.reshape(blocks, per_block)


def _levels(n: int, per_block: int) -> list[int]:
    """How many partial sums each launch leaves, down to one."""
    counts = [blocks_to_cover(n, per_block)]
    while counts[-1] > 1:
        counts.append(blocks_to_cover(counts[-1], per_block))
    return counts


def repeated(
    kernel: str,
    n: int,
    *,
    block: int,
    elements_a_thread: int = 1,
    dtype: Float = np.float32,
    tree: Tree = halves_first,
    in_place: bool = False,
    shared_bytes: int = 0,
) -> Problem:
    """Partial sums a block, launched again on those until one is left: ``sums1``, ``sums2`` and so on."""
    per_block = block * elements_a_thread
    counts = _levels(n, per_block)
    buffers = {"in": random_values(n, dtype)}
    launches = []
    source, length = "in", n
    for level, count in enumerate(counts, 1):
        target = f"sums{level}"
        buffers[target] = poisoned(count, dtype)
        args = (source, target, np.int32(length))
        launches.append(Launch(kernel, (count, 1, 1), (block, 1, 1), args, shared_bytes))
        source, length = target, count

    def reference() -> Reference:
        values = random_values(n, dtype)
        expected: dict[str, np.ndarray] = {}
        source = "in"
        for level in range(1, len(counts) + 1):
            rows = _in_blocks(values, per_block)
            if in_place:
                sums = _tree_in_place(rows)
                expected[source] = rows.reshape(-1)[: len(values)].copy()
            else:
                # What a thread adds while it loads lies a block apart; then comes the tree of the block.
                loaded = rows.reshape(-1, elements_a_thread, block)
                sums = tree(loaded[:, 0] if elements_a_thread == 1 else loaded[:, 0] + loaded[:, 1])
            source, values = f"sums{level}", sums
            expected[source] = sums
        return Reference(expected)

    return Problem(buffers, launches, reference)


def _tree_in_place(rows: np.ndarray) -> np.ndarray:
    """``halves_first`` with every intermediate sum left where the kernel leaves it.

    A pair whose far element lies beyond the end is skipped by the kernel; here it adds zero, which is the same.
    """
    half = rows.shape[1] // 2
    while half > 0:
        rows[:, :half] += rows[:, half : 2 * half]
        half //= 2
    return rows[:, 0].copy()


def atomic(n: int, *, block: int = 256, most_blocks: int = 1024) -> Problem:
    """One launch of ``reduce_vec4``: as many blocks as there are float4 for, up to a limit; then threads loop."""
    blocks = min(max(blocks_to_cover(n, 4 * block), 1), most_blocks)

    def reference() -> Reference:
        values = random_values(n)
        threads = blocks * block
        quads = values[: n // 4 * 4].reshape(-1, 4)
        sums = np.zeros(threads, np.float32)
        for start in range(0, len(quads), threads):
            x, y, z, w = quads[start : start + threads].T
            sums[: len(x)] += x + y + z + w
        rest = values[n // 4 * 4 :]
        sums[: len(rest)] += rest
        partials = warps_first(sums.reshape(blocks, block))
        if blocks == 1:
            return Reference({"out": partials})
        exact = np.sum(partials, dtype=np.float64)
        # Each of `blocks` additions rounds by at most 2^-24 of a sum that no order makes larger than the sum of the
        # absolute values.
        bound = blocks * 2.0**-24 / (1 - blocks * 2.0**-24) * float(np.abs(partials).sum(dtype=np.float64))
        reason = (
            f"{blocks} blocks add their sums to one float atomically, in an order that the hardware chooses; "
            "the bound holds for every order"
        )
        return Reference({"out": np.array([exact], np.float32)}, Tolerance(reason, absolute=bound))

    return Problem(
        buffers={"in": random_values(n), "out": np.zeros(1, np.float32)},
        launches=[Launch(f"reduce_vec4<{block}>", (blocks, 1, 1), (block, 1, 1), ("in", "out", np.int32(n)))],
        reference=reference,
    )


def _case(name: str, build: Callable[[int], Problem], title: str, lesson: str, wrong: str | None = None) -> Case:
    return Case(
        name=name,
        family="reduce",
        source=FLOATS,
        build=build,
        sizes=FLOAT_SIZES,
        small_sizes=SMALL_SIZES,
        title=title,
        lesson=lesson,
        wrong=wrong,
    )


def _double(name: str, title: str, lesson: str, *, in_place: bool = False, shared_bytes: int = 0) -> Case:
    def build(n: int) -> Problem:
        return repeated(name, n, block=128, dtype=np.float64, in_place=in_place, shared_bytes=shared_bytes)

    return Case(
        name=name,
        family="reduce",
        source=DOUBLES,
        build=build,
        sizes=DOUBLE_SIZES,
        small_sizes=SMALL_SIZES,
        title=title,
        lesson=lesson,
    )


CASES: tuple[Case, ...] = (
    _case(
        "reduce_interleaved",
        lambda n: repeated("reduce_interleaved<1024>", n, block=1024, tree=neighbours_first),
        "tid % (2 * s) == 0: every warp stays, with ever fewer lanes at work",
        "In step s one lane in 2s adds. All 32 warps of the block issue every instruction of every step, the division "
        "behind % included, until the work of one lane is left in each. Bank conflicts there are none, whatever s is: "
        "sums[tid] and sums[tid + s] are two separate loads, and within either the active lanes are 2s words apart "
        "and so few that no two meet in a bank.",
    ),
    _case(
        "reduce_interleaved_256",
        lambda n: repeated("reduce_interleaved<256>", n, block=256, tree=neighbours_first),
        "the same in blocks of 256: two steps fewer, and fewer warps wait at a barrier",
        "A block of 256 needs 8 steps instead of 10 and each barrier waits for 8 warps instead of 32, while other "
        "blocks on the same multiprocessor go on. The first launch leaves four times as many partial sums, which is "
        "little beside what is saved.",
    ),
    _case(
        "reduce_strided",
        lambda n: repeated("reduce_strided<256>", n, block=256, tree=neighbours_first),
        "index 2 * s * tid: divergence gone, bank conflicts come",
        "The first threads do the work, so warps are full or idle. But now the words of neighbouring lanes are 2s "
        "apart: a 2-way conflict at s = 1, 4-way at s = 2 and 8-way at s = 4. From there on it stays at 8, since each "
        "further step halves both the banks in use and, in a block of 256, the lanes at work. Fewer instructions, "
        "more wavefronts for each.",
    ),
    _case(
        "reduce_first_add",
        lambda n: repeated("reduce_first_add<1024>", n, block=1024, elements_a_thread=2, tree=neighbours_first),
        "two elements are added while loading: half the blocks, twice the loads in flight",
        "Compared with reduce_interleaved each thread has two loads under way and every tree serves 2048 elements. "
        "Nothing about the tree itself is better; there are only half as many.",
    ),
    _case(
        "reduce_sequential",
        lambda n: repeated("reduce_sequential<256>", n, block=256),
        "tid < s with s halving: whole warps, neighbouring words",
        "Active lanes are neighbours and touch neighbouring words, one wavefront a request, and down to s = 32 a warp "
        "is either full or does not add. Only the last five steps use a part of one warp.",
    ),
    _case(
        "reduce_sequential_1024",
        lambda n: repeated("reduce_sequential<1024>", n, block=1024),
        "the same in blocks of 1024: more threads wait for fewer",
        "The tree is as free of conflicts, but 32 warps meet at 10 barriers, and in the later steps 31 of them only "
        "do that.",
    ),
    _case(
        "reduce_unroll_warp",
        lambda n: repeated("reduce_unroll_warp<256>", n, block=256),
        "the last warp without block barriers, with its own synchronisation",
        "Once 64 values are left one warp can finish alone, and the other warps leave. Since sm_70 the lanes of a warp "
        "have program counters of their own, so each step needs __syncwarp(): between reading and overwriting, and "
        "between writing and reading. Where the compiler sees the warp together it costs next to nothing.",
    ),
    _case(
        "reduce_unroll_warp_1024",
        lambda n: repeated("reduce_unroll_warp<1024>", n, block=1024),
        "the same in blocks of 1024",
        "Six of ten steps need no block barrier any more. With 32 warps a block, those are the steps where 31 warps "
        "would wait for one.",
    ),
    _case(
        "reduce_unroll_warp_race",
        lambda n: repeated("reduce_unroll_warp_race<256>", n, block=256),
        "the last warp with volatile only: a race that usually gives the right sum",
        "The compiler must keep each load and store of a volatile array, and as long as the warp happens to run in "
        "step the result is right, on most days and in most tests. Nothing in the programming model promises that. "
        "What a test cannot show, a check for conflicting accesses without a synchronisation between them can.",
        wrong="lanes of the last warp read words that other lanes write, and no __syncwarp() orders them: since sm_70 "
        "lanes need not run in step, and volatile does not make them",
    ),
    _case(
        "reduce_shuffle",
        lambda n: repeated("reduce_shuffle<256>", n, block=256, elements_a_thread=2, tree=warps_first),
        "shuffles inside the warp: registers instead of shared memory",
        "A shuffle hands a register to another lane, with no store, no load and no barrier. Shared memory carries one "
        "word a warp, a block needs one barrier, and the first warp adds the eight words by shuffles again.",
    ),
    _case(
        "reduce_vec4",
        atomic,
        "float4 loads and one atomic a block: bytes in flight, and a single launch",
        "A thread loads 16 bytes at a time, 16 sectors a request, and goes on until the input is used up, so that few "
        "blocks keep many bytes under way. One atomic a block replaces the second launch. The price: blocks add in "
        "no fixed order, so the last bits of a float sum may differ from run to run.",
    ),
    _double(
        "reduce_global",
        "the tree in place in global memory",
        "Each step reads and writes global memory, but a block touches only its own 1024 bytes: the caches absorb "
        "all of it except the first read. The input is destroyed, and the barrier orders global accesses of the "
        "block just as it orders shared ones.",
        in_place=True,
    ),
    _double(
        "reduce_shared",
        "the same tree in static shared memory: not automatically faster",
        "Shared memory takes the steps of the tree off the caches. Since those served them well, the time, which the "
        "first read of the input decides, hardly moves. Shared memory pays where it saves traffic to the device's "
        "memory.",
    ),
    _double(
        "reduce_dynamic",
        "dynamic shared memory: the same counters as static",
        "The size is given at launch instead of at compile time. The instructions are the same and so are the "
        "counters; what is gained is a size that the program can choose.",
        shared_bytes=128 * 8,
    ),
)
