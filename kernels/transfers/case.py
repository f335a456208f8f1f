"""Pageable against page-locked host memory, and copies that overlap with kernels: measured on a real GPU.

The simulator knows no host memory and no streams; it counts the kernel that the copies surround.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from gpusim.kernels import SEED, Case, Launch, Problem, Reference, blocks_to_cover

SOURCE = Path(__file__).with_name("transfers.cu")
BLOCK = 256
FACTOR, SUMMAND = np.uint32(1664525), np.uint32(1013904223)
ROUNDS = 1000
"""Of ``stream_overlap``: about as long as copying the element to an H200 and back takes."""
CHECKING = 32
"""Rounds of the other two, where the kernel only shows that the data has arrived."""
POISON = 0xDEADBEEF
NOT_SIMULATED = "copies between host and device and streams are not simulated"


def inputs(n: int) -> np.ndarray:
    """Random words, always the same."""
    return np.random.default_rng([SEED, 7]).integers(0, 1 << 32, n, np.uint32)


def stirred(values: np.ndarray, rounds: int) -> np.ndarray:
    """What the kernel computes: ``rounds`` steps in one, since a step of a step is again of the same form."""
    factor, summand = 1, 0
    for _ in range(rounds):
        factor, summand = factor * int(FACTOR) % (1 << 32), (summand * int(FACTOR) + int(SUMMAND)) % (1 << 32)
    return values * np.uint32(factor) + np.uint32(summand)


def problem(n: int, rounds: int) -> Problem:
    """The kernel over n words, without the copies."""
    args = ("in", "out", np.int32(n), np.int32(rounds), FACTOR, SUMMAND)
    return Problem(
        buffers={"in": inputs(n), "out": np.full(n, POISON, np.uint32)},
        launches=[Launch("stir", (blocks_to_cover(n, BLOCK), 1, 1), (BLOCK, 1, 1), args)],
        reference=lambda: Reference({"out": stirred(inputs(n), rounds)}),
    )


SIZES = (2**24, 2**10, 2**14, 2**18, 2**20, 2**22, 2**26)
SMALL_SIZES = (1, 1000, 4096)

CASES: tuple[Case, ...] = (
    Case(
        name="transfer_pageable",
        family="transfers",
        source=SOURCE,
        build=partial(problem, rounds=CHECKING),
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        title="copies between a GPU and ordinary host memory: through the driver's own buffer",
        lesson="The GPU's copy engine needs to know where in physical memory the data lies, and the operating system "
        "may move the pages of ordinary memory at any time. So the driver copies piece by piece into a page-locked "
        "buffer of its own and the engine fetches it there: every byte is moved twice, the second time by a "
        "processor core, which is what limits the speed. cudaMemcpyAsync waits for that core, so nothing overlaps"
        " with such a copy.",
        needs_gpu=NOT_SIMULATED,
    ),
    Case(
        name="transfer_pinned",
        family="transfers",
        source=SOURCE,
        build=partial(problem, rounds=CHECKING),
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        title="copies between a GPU and page-locked host memory: as fast as the bus goes",
        lesson="Memory from cudaMallocHost stays where it is, so the copy engine fetches it by itself at the speed of "
        "the bus. Small copies do not reach it: below some hundred kilobytes starting a copy takes longer than "
        "moving its bytes, and many small copies are better made one. Locked pages are lost to everybody else, so"
        " lock buffers that are used again and again, not all memory.",
        needs_gpu=NOT_SIMULATED,
    ),
    Case(
        name="stream_overlap",
        family="transfers",
        source=SOURCE,
        build=partial(problem, rounds=ROUNDS),
        sizes=(2**24, 2**22, 2**26),
        small_sizes=SMALL_SIZES,
        title="copy in, compute, copy out, in pieces: one stream after the other, several at the same time",
        lesson="What is put into one stream runs in order, one thing at a time. In several streams the copy in of one "
        "piece, the kernel of another and the copy out of a third run together, each on an engine of its own; the"
        " whole then takes as long as the slowest of the three and not as their sum, plus the first copy in and "
        "the last copy out. It needs page-locked memory: a copy from ordinary memory makes the host wait, and the"
        " streams with it.",
        needs_gpu=NOT_SIMULATED,
    ),
)
