"""Shared memory's banks: one access pattern each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpusim.kernels import Case, Launch, Problem, Reference, blocks_to_cover, poisoned, random_values

SOURCE = Path(__file__).with_name("banks.cu")
TILE = 1024
"""Floats that a block takes care of."""


def problem(kernel: str, n: int, order: Callable[[np.ndarray], np.ndarray], vector: int = 1) -> Problem:
    """n floats, rounded up to whole vectors.  ``order`` turns tiles of 32 x 32 into what is read from them."""
    vectors = blocks_to_cover(n, vector)
    floats = vectors * vector
    blocks = blocks_to_cover(floats, TILE)

    def reference() -> Reference:
        tiles = np.zeros(blocks * TILE, np.float32)
        tiles[:floats] = random_values(floats)
        read = order(tiles.reshape(blocks, 32, 32))
        return Reference({"out": np.ascontiguousarray(read).reshape(-1)[:floats].copy()})

    return Problem(
        buffers={"in": random_values(floats), "out": poisoned(floats)},
        launches=[
            Launch(kernel, (blocks, 1, 1), (32, TILE // vector // 32, 1), ("in", "out", np.int32(vectors))),
        ],
        reference=reference,
    )


def rows_reversed(tiles: np.ndarray) -> np.ndarray:
    return tiles[:, ::-1]


def vector_rows_reversed(vector: int) -> Callable[[np.ndarray], np.ndarray]:
    """A row of 32 vectors is as long as ``vector`` rows of the tile."""
    return lambda tiles: tiles.reshape(len(tiles), -1, 32 * vector)[:, ::-1]


def columns(tiles: np.ndarray) -> np.ndarray:
    return tiles.transpose(0, 2, 1)


def first_of_row(tiles: np.ndarray) -> np.ndarray:
    return np.repeat(tiles[:, ::-1, :1], 32, axis=2)


def _case(name: str, build: Callable[[int], Problem], title: str, lesson: str) -> Case:
    return Case(
        name=name,
        family="banks",
        source=SOURCE,
        build=build,
        sizes=(2**20, 2**25, 1_000_003),
        small_sizes=(1, 1000, 4096, 100_001),
        title=title,
        lesson=lesson,
    )


CASES: tuple[Case, ...] = (
    _case(
        "bank_row",
        lambda n: problem("bank_row", n, rows_reversed),
        "a row of 32 words: one wavefront",
        "Neighbouring lanes read neighbouring words, and 32 neighbouring words lie in 32 different banks. This is the "
        "access that shared memory is made for.",
    ),
    _case(
        "bank_column",
        lambda n: problem("bank_column<32>", n, columns),
        "a column of a 32-wide tile: a 32-way conflict",
        "The words of a column are 32 apart, and word w lies in bank w % 32: all of them in the same one. The access "
        "takes 32 wavefronts where one would do. In the source it looks no different from reading a row.",
    ),
    _case(
        "bank_column_pad",
        lambda n: problem("bank_column<33>", n, columns),
        "a column of a 33-wide tile: one wavefront",
        "One unused word at the end of each row moves each row on by one bank, so that a column goes through all 32. "
        "Rows can still be read without a conflict. It costs 128 bytes a tile.",
    ),
    _case(
        "bank_broadcast",
        lambda n: problem("bank_broadcast", n, first_of_row),
        "one word for all lanes: one wavefront",
        "A conflict is about different words in one bank. When all lanes read the same word it is read once and handed "
        "to all of them.",
    ),
    _case(
        "bank_pairs64",
        lambda n: problem("bank_pairs64", n, vector_rows_reversed(2), 2),
        "64 bits a lane: half a warp at a time, two wavefronts",
        "32 lanes with 8 bytes each want 256 bytes, and the banks deliver 128 at a time: the two halves of the warp "
        "are served one after the other. That is no conflict, for no order could do it in less.",
    ),
    _case(
        "bank_quads128",
        lambda n: problem("bank_quads128", n, vector_rows_reversed(4), 4),
        "128 bits a lane: a quarter of a warp at a time, four wavefronts",
        "32 lanes with 16 bytes each want 512 bytes in four wavefronts, a quarter of the warp in each. Only lanes of "
        "the same quarter can be in conflict with each other. One instruction moves what four would have moved.",
    ),
)
