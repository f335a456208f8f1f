"""Softmax of rows: one pass over memory or three, and how the threads of a row agree on its maximum and sum.

The size of a case is the number of rows. Rows have 128 columns, and 1024 in the cases whose name ends in ``_1024``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpusim.kernels import Case, Launch, Problem, Reference, Tolerance, blocks_to_cover, poisoned, random_values

SOURCE = Path(__file__).with_name("softmax.cu")
BLOCK = 128
RANGE = 8
"""Inputs lie between -RANGE and RANGE, a power of two."""


def inputs(rows: int, cols: int) -> np.ndarray:
    values = random_values((rows, cols))
    values *= RANGE
    return values


def softmax(values: np.ndarray) -> np.ndarray:
    """In double precision, rounded at the end; some rows at a time, so that large inputs take little memory."""
    out = np.empty_like(values)
    step = max(1, (1 << 20) // values.shape[1])
    for start in range(0, len(values), step):
        rows = values[start : start + step].astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        np.exp(rows, out=rows)
        rows /= rows.sum(axis=1, keepdims=True)
        out[start : start + step] = rows
    return out


def tolerance(cols: int) -> Tolerance:
    """In units of 2^-24: one for each addition; 2 * RANGE, twice, for the rounding of value - max, which an exponential
    magnifies; and some for expf (2 units), the reciprocal and the products. What softmax_online scales over and over is
    no more: its differences of maxima add up to no more than 2 * RANGE, and it adds only cols / 32 + 5 times."""
    return Tolerance(
        "expf on the GPU is an approximation (within 2 units in the last place), and the additions round in another "
        "order than in double precision",
        relative=(cols + 4 * RANGE + 68) * 2.0**-24,
    )


def problem(kernel: str, rows: int, cols: int, *, rows_a_block: int = 1, block: int = BLOCK) -> Problem:
    """``rows_a_block``: how many rows one block takes care of.  softmax_vec4 has its columns in its name."""
    shape = (np.int32(rows),) if kernel.startswith("softmax_vec4") else (np.int32(rows), np.int32(cols))
    return Problem(
        buffers={"in": inputs(rows, cols), "out": poisoned((rows, cols))},
        launches=[
            Launch(kernel, (blocks_to_cover(rows, rows_a_block), 1, 1), (block, 1, 1), ("in", "out", *shape)),
        ],
        reference=lambda: Reference({"out": softmax(inputs(rows, cols))}, tolerance(cols)),
    )


@dataclass(frozen=True)
class Kernel:
    """A row of the catalogue; ``{cols}`` in ``expression`` is replaced.  One lesson for each number of columns."""

    expression: str
    rows_a_block: int
    title: str
    lessons: dict[int, str]


KERNELS = {
    "softmax_naive": Kernel(
        "softmax_naive",
        BLOCK,
        "one thread a row: the lanes of a warp are a whole row apart",
        {
            128: "Each thread walks along its own row, three times for maximum, sum and result. At any moment the 32 "
            "lanes read 32 different rows, 32 sectors a request, and use 4 of the 32 bytes in each. The rest of a "
            "sector is used in the next seven turns of the loop, if the L1 cache still has it. A row for a thread is "
            "the natural way to write a loop and the wrong one for memory: neighbouring lanes should read neighbours.",
            1024: "The rows are longer and there are as many sectors a request, 32. The passes over a long row do not "
            "find it in the cache any more when they come back to it, because 128 threads of a block walk along 128 "
            "rows of 4 KiB each. With 4096 rows there are only 32 blocks: most of the multiprocessors have nothing to "
            "do.",
        },
    ),
    "softmax_smem": Kernel(
        f"softmax_smem<{BLOCK}>",
        1,
        "a block a row, maximum and sum by trees in shared memory",
        {
            128: "A block of 128 threads shares a row, so that all global accesses are whole lines. Each tree takes 7 "
            "steps with a barrier after each, for one element a thread: with rows this short the time goes into "
            "barriers, not into memory. The exponentials go out to memory and come back to be scaled.",
            1024: "Now each thread has 8 elements of the row for the same 18 barriers, which therefore hardly matter. "
            "What matters is traffic: the row is read twice, its exponentials are written, read and written again. "
            "Caches take some of it.",
        },
    ),
    "softmax_shuffle": Kernel(
        f"softmax_shuffle<{BLOCK}>",
        1,
        "shuffles inside each warp, thread 0 folds the four results",
        {
            128: "Five shuffles replace most of a tree, and 6 barriers are left of 18. With one element a thread that "
            "halves the time. Thread 0 folds the results of the four warps while 127 threads wait.",
            1024: "With 8 elements a thread the loads and stores dominate, and they are the same as in softmax_smem: "
            "that shuffles are faster holds for short rows. An advantage in one place need not be one in another.",
        },
    ),
    "softmax_block": Kernel(
        f"softmax_block<{BLOCK}>",
        1,
        "every thread folds the four warp results itself: two barriers",
        {
            128: "Reading the same four words is a broadcast and costs all threads no more than it costs one, so each "
            "folds the results itself: 2 barriers where thread 0 on its own needs 6. The exponentials are computed "
            "twice instead of going through memory.",
            1024: "The input is read three times and the output written once, against two reads, a write, and a read "
            "and write of the output where exponentials are kept in it. The second and third reading mostly find the "
            "row, 4 KiB, in the L1 cache.",
        },
    ),
    "softmax_vec4": Kernel(
        "softmax_vec4<{cols}>",
        BLOCK // 32,
        "a warp a row, float4 kept in registers: one load and one store of each element",
        {
            128: "A row of 128 columns is one float4 a lane. It is loaded once, 16 sectors a request, stays in "
            "registers through maximum, exponential and sum, and is stored once. No shared memory and no barrier: the "
            "warps of a block have nothing to do with each other. Memory traffic is at its minimum.",
            1024: "Eight float4 a lane, 32 registers for the row, and eight loads in flight. The traffic is at its "
            "minimum here too: every element is read once and written once. Whether that gains anything over versions "
            "that read the row again depends on how well a cache serves those.",
        },
    ),
    "softmax_online": Kernel(
        "softmax_online",
        BLOCK // 32,
        "maximum and sum in a single pass",
        {
            128: "The maximum is not needed before the sum: when a larger one turns up, the sum so far is multiplied "
            "by exp(old - new). That saves a pass over the row at the price of a second exponential an element, and "
            "the same rule puts lanes together. With 4 elements a lane there is not much to save.",
            1024: "One pass for maximum and sum and one for the result: two reads and a write of each element, "
            "whatever the length of the row, and no register holds a row. Rows too long to be kept anywhere are what "
            "this is for, and attention kernels are built on it.",
        },
    ),
}


def _builder(kernel: Kernel, cols: int) -> Callable[[int], Problem]:
    expression = kernel.expression.replace("{cols}", str(cols))
    return lambda rows: problem(expression, rows, cols, rows_a_block=kernel.rows_a_block)


def _cases() -> list[Case]:
    cases = []
    for name, kernel in KERNELS.items():
        for cols, lesson in kernel.lessons.items():
            cases.append(
                Case(
                    name=name if cols == 128 else f"{name}_{cols}",
                    family="softmax",
                    source=SOURCE,
                    build=_builder(kernel, cols),
                    sizes=(65536, 4096, 1000),
                    small_sizes=(1, 13, 128),
                    title=f"{kernel.title} ({cols} columns)",
                    lesson=lesson,
                )
            )
    return cases


CASES: tuple[Case, ...] = tuple(_cases())
