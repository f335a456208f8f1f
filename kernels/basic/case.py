"""Ideal streams: what every other access pattern is compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpusim.kernels import Case, Launch, Problem, Reference, blocks_to_cover, poisoned, random_values

SOURCE = Path(__file__).with_name("basic.cu")
BLOCK = 256
SIZES = (2**20, 2**25, 1_000_003)
SMALL_SIZES = (1, 1000, 4096, 100_001)


def scale(n: int) -> Problem:
    factor = np.float32(2)
    return Problem(
        buffers={"a": random_values(n)},
        launches=[
            Launch("scale", (blocks_to_cover(n, BLOCK), 1, 1), (BLOCK, 1, 1), args=("a", factor, np.int32(n))),
        ],
        reference=lambda: Reference({"a": random_values(n) * factor}),
    )


def vector_add(n: int) -> Problem:
    return Problem(
        buffers={"a": random_values(n, stream=0), "b": random_values(n, stream=1), "c": poisoned(n)},
        launches=[
            Launch("vector_add", (blocks_to_cover(n, BLOCK), 1, 1), (BLOCK, 1, 1), ("a", "b", "c", np.int32(n))),
        ],
        reference=lambda: Reference({"c": random_values(n, stream=0) + random_values(n, stream=1)}),
    )


CASES: tuple[Case, ...] = (
    Case(
        name="scale",
        family="basic",
        source=SOURCE,
        build=scale,
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        title="a[i] = factor * a[i]: an ideal stream, 4 sectors a request",
        lesson="A warp reads and writes 32 neighbouring floats: 128 bytes, 4 sectors of 32 bytes, all of them used. "
        "8 bytes move for one multiplication, so the memory decides the time and the arithmetic is free.",
    ),
    Case(
        name="vector_add",
        family="basic",
        source=SOURCE,
        build=vector_add,
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        title="c[i] = a[i] + b[i]: 12 bytes an element",
        lesson="Two streams in, one out, 4 sectors a request each. 12 bytes move for one addition: the time is the "
        "number of bytes divided by the memory's bandwidth, and no change to the arithmetic can matter.",
    ),
)
