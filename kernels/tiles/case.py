"""Tiles in shared memory by special means: asynchronous copies into them, matrix loads out of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpusim.kernels import SEED, Case, Launch, Problem, Reference, blocks_to_cover, poisoned, random_values

HERE = Path(__file__).parent
MOST_BLOCKS = 264
EDGE = 64
"""Of an ldmatrix tile, in elements of two bytes."""


def copies(n: int) -> Problem:
    """At least n floats in whole tiles of 256 float4, the float4 of each in reverse order."""
    tiles = blocks_to_cover(n, 1024)
    shape = (tiles, 256, 4)
    return Problem(
        buffers={"in": random_values(shape), "out": poisoned(shape)},
        launches=[
            Launch("async_copy", (min(tiles, MOST_BLOCKS), 1, 1), (256, 1, 1), ("in", "out", np.int32(tiles))),
        ],
        reference=lambda: Reference({"out": np.ascontiguousarray(random_values(shape)[:, ::-1])}),
    )


def _elements(tiles: int) -> np.ndarray:
    return np.random.default_rng([SEED, 0]).integers(0, 1 << 16, (tiles, EDGE, EDGE), np.uint16)


def fragments(tiles: np.ndarray) -> np.ndarray:
    """What ldmatrix leaves in registers: [tile][warp][k][lane][matrix], two elements each, as 32-bit words."""
    count = len(tiles)
    # row = 16 warp + 8 m + l, column = 16 k + 8 h + 2 p + e: matrix 2 h + m, lane 4 l + p, half e of the register
    split = tiles.reshape(count, 4, 2, 8, 4, 2, 4, 2)  # tile, warp, m, l, k, h, p, e
    ordered = split.transpose(0, 1, 4, 3, 6, 5, 2, 7)  # tile, warp, k, l, p, h, m, e
    return np.ascontiguousarray(ordered).view(np.uint32).reshape(count, 4, 4, 32, 4)


def matrices(pitch: int, n: int) -> Problem:
    """At least n elements in whole tiles."""
    tiles = blocks_to_cover(n, EDGE * EDGE)
    return Problem(
        buffers={"in": _elements(tiles), "out": np.zeros((tiles, 4, 4, 32, 4), np.uint32)},
        launches=[Launch(f"ldmatrix_tile<{pitch}>", (tiles, 1, 1), (128, 1, 1), ("in", "out"))],
        reference=lambda: Reference({"out": fragments(_elements(tiles))}),
    )


SIZES = (2**20, 2**25)
SMALL_SIZES = (1, 5000, 100_001)

CASES: tuple[Case, ...] = (
    Case(
        name="async_copy",
        family="tiles",
        source=HERE / "async_copy.cu",
        build=copies,
        sizes=SIZES,
        small_sizes=(*SMALL_SIZES, 400_000),
        title="cp.async into two buffers: the next tile is on its way while this one is used",
        lesson="An ordinary copy to shared memory is a load into a register and a store from it, and the thread waits "
        "between the two. cp.async is one instruction without a register: the thread goes on, and waits for a whole "
        "group of copies where it needs the data. With two buffers one tile is used while the next arrives. Each "
        "thread waits for its own copies only, so a block barrier has to follow before it reads what others copied.",
        min_arch=80,
    ),
    Case(
        name="ldmatrix_tile",
        family="tiles",
        source=HERE / "ldmatrix_tile.cu",
        build=lambda n: matrices(64, n),
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        title="matrix loads from rows 128 bytes apart: an 8-way conflict",
        lesson="ldmatrix reads 8 x 8 matrices of two-byte elements, a row of 16 bytes from each address. With rows of "
        "64 elements, 128 bytes, the 8 rows of a matrix begin in the same bank: each matrix takes 8 wavefronts "
        "instead of one, and an instruction that reads four of them takes 32.",
    ),
    Case(
        name="ldmatrix_tile_pad",
        family="tiles",
        source=HERE / "ldmatrix_tile.cu",
        build=lambda n: matrices(72, n),
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        title="matrix loads from rows 144 bytes apart: no conflict",
        lesson="Eight more elements a row, 16 bytes, move each row on by four banks: the 8 rows of a matrix fill the "
        "32 banks exactly once. The padding has to be a multiple of 16 bytes here, because each row of a matrix must "
        "lie on such an address; one more element, as with single floats, would not do.",
    ),
)
