"""Threads among themselves: divergence, exchange in registers and shared memory, barriers, and a shared counter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpusim.kernels import SEED, Case, Launch, Problem, Reference, blocks_to_cover, poisoned, random_values

HERE = Path(__file__).parent
SOURCE = HERE / "threads.cu"
REDUX = HERE / "reduce_add_sync.cu"
BLOCK = 256
ALL_LANES = 0xFFFFFFFF
LANES_0_TO_27 = 0xFFFFFFF
"""Seven F instead of eight."""


def _launch(kernel: str, n: int, *args: str | np.generic) -> Launch:
    return Launch(kernel, (blocks_to_cover(n, BLOCK), 1, 1), (BLOCK, 1, 1), (*args, np.int32(n)))


def _in_rows(values: np.ndarray, length: int) -> np.ndarray:
    """Rows of ``length``, the last one filled with zeros."""
    rows = np.zeros((blocks_to_cover(len(values), length), length), values.dtype)
    rows.reshape(-1)[: len(values)] = values
    return rows


def neighbor(n: int) -> Problem:
    return Problem(
        buffers={"in": random_values(n), "out": poisoned(n)},
        launches=[_launch("shared_neighbor", n, "in", "out")],
        reference=lambda: Reference({"out": np.diff(random_values(n), prepend=np.float32(0))}),
    )


def diverge(group: int, n: int) -> Problem:
    def reference() -> Reference:
        hashes = np.arange(n, dtype=np.uint32)
        first = hashes // group % 2 == 0
        factor = np.where(first, np.uint32(1664525), np.uint32(22695477))
        summand = np.where(first, np.uint32(1013904223), np.uint32(1))
        for _ in range(32):
            hashes = hashes * factor + summand
        return Reference({"out": hashes})

    return Problem(
        buffers={"out": np.zeros(n, np.uint32)},
        launches=[_launch(f"diverge<{group}>", n, "out")],
        reference=reference,
    )


def _halves_first(values: np.ndarray) -> np.ndarray:
    """Sums of the last axis: the far half onto the near half, then the same with what is left."""
    while (half := values.shape[-1] // 2) > 0:
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def _warp_sums(n: int) -> np.ndarray:
    return _halves_first(_in_rows(random_values(n), 32))


def down(n: int) -> Problem:
    return Problem(
        buffers={"in": random_values(n), "out": poisoned(blocks_to_cover(n, 32))},
        launches=[_launch("shuffle_down", n, "in", "out")],
        reference=lambda: Reference({"out": _warp_sums(n)}),
    )


def butterfly(n: int) -> Problem:
    # Each lane adds the same pairs, only with the two of a pair exchanged: the sums are equal bit by bit.
    return Problem(
        buffers={"in": random_values(n), "out": poisoned(n)},
        launches=[_launch("shuffle_xor", n, "in", "out")],
        reference=lambda: Reference({"out": np.repeat(_warp_sums(n), 32)[:n].copy()}),
    )


def _integers(n: int) -> np.ndarray:
    return np.random.default_rng([SEED, 0]).integers(1, 1000, n, np.int32)


def integer_sum(members: int, n: int) -> Problem:
    return Problem(
        buffers={"in": _integers(n), "out": np.zeros(n, np.int32)},
        launches=[_launch(f"reduce_add_sync<{members:#x}u>", n, "in", "out")],
        reference=lambda: Reference(
            {"out": np.repeat(_in_rows(_integers(n), 32).sum(axis=1, dtype=np.int32), 32)[:n].copy()}
        ),
    )


def counter(kernel: str, n: int) -> Problem:
    return Problem(
        buffers={"counter": np.zeros(1, np.uint32)},
        launches=[_launch(kernel, n, "counter")],
        reference=lambda: Reference({"counter": np.array([n], np.uint32)}),
    )


def barrier(n: int) -> Problem:
    def reference() -> Reference:
        rows = _in_rows(random_values(n), BLOCK).reshape(-1, 8, 32)
        sums = _halves_first(rows.transpose(0, 2, 1))  # of what lane 0 of all warps have, of what lane 1 has, ...
        return Reference({"out": np.repeat(sums[:, np.newaxis], 8, axis=1).reshape(-1)[:n].copy()})

    return Problem(
        buffers={"in": random_values(n), "out": poisoned(n)},
        launches=[_launch("barrier_in_branch", n, "in", "out")],
        reference=reference,
    )


def _case(
    name: str,
    build: Callable[[int], Problem],
    title: str,
    lesson: str,
    *,
    source: Path = SOURCE,
    wrong: str | None = None,
    min_arch: int = 75,
    hangs: bool = False,
    aliases: tuple[str, ...] = (),
) -> Case:
    return Case(
        name=name,
        family="threads",
        source=source,
        build=build,
        sizes=(2**20, 2**25, 1_000_003),
        small_sizes=(1, 1000, 4096, 100_001),
        title=title,
        lesson=lesson,
        wrong=wrong,
        min_arch=min_arch,
        hangs=hangs,
        aliases=aliases,
    )


DIVERGE = {
    1: "Every other lane goes the other way. A warp has one stream of instructions at a time: it runs the first loop "
    "with 16 lanes and then the second one with the other 16, and takes as long as both together.",
    2: "Pairs of lanes take turns. How the lanes are divided does not matter as long as both sides are in one warp: "
    "both loops are run, each with half the lanes.",
    8: "Groups of 8 are still inside a warp: every warp runs both sides, one after the other, with half of its lanes "
    "in each.",
    16: "Half-warps are the largest groups that still share a warp, and they cost as much as single lanes: how the "
    "lanes are divided does not matter.",
    32: "Each warp goes one way as a whole. The branch and its two sides are the same as before, and no time is lost: "
    "different warps may go different ways for nothing.",
    64: "Two neighbouring warps go the same way. Larger groups gain nothing over groups of a single warp, since no "
    "warp waits for another one at a branch.",
    256: "Whole blocks of 256 go one way, as little divided as groups of 32: what counts is that all lanes of a warp "
    "agree.",
}

CASES: tuple[Case, ...] = (
    _case(
        "shared_neighbor",
        neighbor,
        "own and left neighbour through shared memory, with a barrier between",
        "Each thread stores its element to shared memory and reads its neighbour's from there: an element is read once "
        "from global memory although two threads use it. Between the store and the read there has to be a barrier, for "
        "the neighbour of lane 0 belongs to another warp, which may not have come that far. The first thread fetches "
        "what the block to the left has.",
    ),
    *(
        _case(
            f"diverge_{group}",
            lambda n, group=group: diverge(group, n),  # type: ignore[misc]
            f"groups of {group} take turns at a branch: "
            + ("both sides are run by every warp" if group < 32 else "each warp runs one side"),
            lesson,
            aliases=("diverge",) if group == 1 else (),
        )
        for group, lesson in DIVERGE.items()
    ),
    _case(
        "shuffle_down",
        down,
        "a sum over the warp, right in lane 0",
        "In five steps each lane adds the value of the lane 16, 8, 4, 2 and 1 further on. Values go from register to "
        "register: no shared memory, no barrier. Lanes near the end read beyond it, get their own value back and carry "
        "on with something useless; only lane 0 ends with the sum. The mask names the lanes that take part, and "
        "0xffffffff has eight F.",
    ),
    _case(
        "shuffle_xor",
        butterfly,
        "a sum over the warp, right in all lanes",
        "With lane ^ s instead of lane + s the exchange goes both ways, and after the same five steps every lane has "
        "the sum. Where all lanes need it, as in a softmax, that saves handing it out.",
    ),
    _case(
        "reduce_add_sync",
        lambda n: integer_sum(ALL_LANES, n),
        "a sum over the warp in one instruction, for integers only",
        "From sm_80 on one instruction adds a 32-bit integer over all lanes and gives the sum to each of them, where "
        "shuffles take five with an addition after each. It is for integers. A float handed to it is converted to an "
        "integer first, if the compiler lets it pass at all, and the fractions are gone.",
        source=REDUX,
        min_arch=80,
    ),
    _case(
        "reduce_add_sync_mask",
        lambda n: integer_sum(LANES_0_TO_27, n),
        "a member mask of 0xFFFFFFF: seven F, 28 lanes",
        "0xFFFFFFF is easily taken for 0xFFFFFFFF. It names lanes 0 to 27; the last four call the function without "
        "being members, and what they get, or whether their values are added, is not defined. A test may pass on one "
        "GPU and fail on another. Count the digits, or write ~0u.",
        source=REDUX,
        min_arch=80,
        hangs=True,
        wrong="the member mask 0xFFFFFFF has 28 bits and leaves lanes 28 to 31 out, though they take part in the call",
    ),
    _case(
        "counter_race",
        lambda n: counter("counter_race", n),
        "a plain read-modify-write of one counter: updates are lost",
        "To add one to a counter in memory is a load, an addition and a store. All threads that load before another's "
        "store has arrived see the same old value and store the same new one: a warp that adds 32 ones raises the "
        "counter by one. How much is lost depends on timing and differs from run to run.",
        wrong="threads read, add and write back one word with nothing to keep others away in between: updates are lost",
    ),
    _case(
        "counter_atomic",
        lambda n: counter("counter_atomic", n),
        "atomicAdd: no update is lost, and the compiler adds up a warp first",
        "An atomic addition is done where the memory is, and nothing comes in between. All threads want the same "
        "address and the same summand here, so the compiler lets each warp count its active lanes and sends one "
        "atomic for all of them: 32 times fewer than the source asks for.",
    ),
    _case(
        "barrier_in_branch",
        barrier,
        "a block barrier under a condition: some threads arrive at another one",
        "A __syncthreads() is a meeting of all threads of the block that are still running. Here only those that have "
        "something to add come to it, and the others go on to the barrier after the loop. The hardware counts "
        "arrivals and takes the two for one, so these read sums that are not finished. If there were no later barrier "
        "to arrive at, or if lanes of one warp were divided, the block could wait for ever. Take barriers out of "
        "branches.",
        hangs=True,
        wrong="only the threads that add meet the barriers in the loop: the others pass them by way of the one after "
        "the loop and read sums that are not finished",
    ),
)
