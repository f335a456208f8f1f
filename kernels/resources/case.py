"""Registers, local memory, and what limits the number of warps on a multiprocessor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpusim.kernels import Case, Launch, Problem, Reference, blocks_to_cover, poisoned, random_values

SOURCE = Path(__file__).with_name("resources.cu")
SHIFT = 5
FLOATS_IN_48_KIB = 12288


def rotation(kernel: str, n: int, *more: np.generic) -> Problem:
    """A matrix of 16 rows and at least n elements, rotated upwards by ``SHIFT`` rows; a column a thread."""
    cols = blocks_to_cover(n, 16)
    shape = (16, cols)
    return Problem(
        buffers={"in": random_values(shape), "out": poisoned(shape)},
        launches=[
            Launch(kernel, (blocks_to_cover(cols, 256), 1, 1), (256, 1, 1), ("in", "out", *more, np.int32(cols))),
        ],
        reference=lambda: Reference({"out": np.roll(random_values(shape), -SHIFT, axis=0)}),
    )


def chunks(kernel: str, shape: tuple[int, ...], n: int) -> Problem:
    """At least n floats in whole chunks of a shape, one a block; each has its rows in reverse order."""
    shape = (blocks_to_cover(n, int(np.prod(shape))), *shape)
    return Problem(
        buffers={"in": random_values(shape), "out": poisoned(shape)},
        launches=[Launch(kernel, (shape[0], 1, 1), (256, 1, 1), ("in", "out"))],
        reference=lambda: Reference({"out": np.ascontiguousarray(random_values(shape)[:, ::-1])}),
    )


def small_blocks(n: int) -> Problem:
    factor = np.float32(2)
    return Problem(
        buffers={"a": random_values(n)},
        launches=[Launch("occupancy_block", (blocks_to_cover(n, 32), 1, 1), (32, 1, 1), ("a", factor, np.int32(n)))],
        reference=lambda: Reference({"a": random_values(n) * factor}),
    )


def _case(name: str, build: Callable[[int], Problem], title: str, lesson: str) -> Case:
    return Case(
        name=name,
        family="resources",
        source=SOURCE,
        build=build,
        sizes=(2**20, 2**25, 1_000_003),
        small_sizes=(1, 1000, 4096, 100_001),
        title=title,
        lesson=lesson,
    )


CASES: tuple[Case, ...] = (
    _case(
        "local_array",
        lambda n: rotation("local_array", n, np.int32(SHIFT)),
        "an array indexed at run time lives in local memory",
        "Registers are named in the instruction and cannot be indexed by a variable. An array that is has to have "
        "addresses, so the compiler puts it into local memory: device memory that each thread has to itself, cached "
        "in L1. The 16 elements are stored there and loaded again, for nothing but their order. Look for STL and LDL.",
    ),
    _case(
        "register_array",
        lambda n: rotation(f"register_array<{SHIFT}>", n),
        "an array with constant indices lives in registers",
        "Here the rotation is known at compile time and the loops are unrolled, so every index is a constant and each "
        "element is a register of its own. The rotation costs no instruction at all: the stores name other registers. "
        "Where the index cannot be constant, a switch, a shuffle or shared memory may serve.",
    ),
    _case(
        "occupancy_registers",
        lambda n: chunks("occupancy_registers", (96, 256), n),
        "96 elements in registers at once: registers limit the resident warps",
        "A multiprocessor has 65,536 registers, 16,384 for each of its four schedulers. At 128 registers a thread a "
        "warp takes 4,096 of them: 4 warps a scheduler, 16 of the 64 that sm_90 could hold. Few warps are no fault in "
        "themselves: each of these threads has 96 loads in flight, and to have much in flight is what warps are wanted "
        "for.",
    ),
    _case(
        "occupancy_shared",
        lambda n: chunks("occupancy_shared", (FLOATS_IN_48_KIB,), n),
        "48 KiB of shared memory a block: shared memory limits the resident blocks",
        "On sm_90 a multiprocessor has 228 KiB of shared memory at most, and a block takes its own 48 KiB and 1 KiB "
        "more: 4 blocks of 8 warps, 32 of 64 warps. On sm_75 with its 64 KiB it is a single block, and while that "
        "waits at its barrier nothing else runs.",
    ),
    _case(
        "occupancy_block",
        small_blocks,
        "blocks of one warp: the number of blocks limits the resident warps",
        "A multiprocessor holds a limited number of blocks, 32 on sm_90 and 16 on sm_75, however small they are. With "
        "one warp each these are 32 of 64 and 16 of 32 warps: half of what fits. Registers and shared memory are left "
        "over. Blocks of 128 to 256 threads avoid this.",
    ),
)
