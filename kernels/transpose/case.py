"""Transposes: what the order of global accesses costs, and what the banks of a shared tile cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpusim.kernels import Case, Launch, Problem, Reference, blocks_to_cover, poisoned, random_values

SOURCE = Path(__file__).with_name("transpose.cu")


def problem(
    kernel: str,
    rows: int,
    cols: int,
    *,
    block: tuple[int, int],
    covers: tuple[int, int],
    over_output: bool = False,
    plain_copy: bool = False,
) -> Problem:
    """A transpose of ``rows`` x ``cols``; ``covers`` is the width and height that one block takes care of.

    That is of the input, or of the output for a kernel whose blocks are laid over the output.
    """
    width, height = (rows, cols) if over_output else (cols, rows)

    def reference() -> Reference:
        matrix = random_values((rows, cols))
        return Reference({"out": matrix if plain_copy else np.ascontiguousarray(matrix.T)})

    return Problem(
        buffers={
            "in": random_values((rows, cols)),
            "out": poisoned((rows, cols) if plain_copy else (cols, rows)),
        },
        launches=[
            Launch(
                kernel,
                grid=(blocks_to_cover(width, covers[0]), blocks_to_cover(height, covers[1]), 1),
                block=(*block, 1),
                args=("in", "out", np.int32(rows), np.int32(cols)),
            )
        ],
        reference=reference,
    )


def _square(
    kernel: str,
    block: tuple[int, int],
    covers: tuple[int, int] | None = None,
    *,
    over_output: bool = False,
    plain_copy: bool = False,
) -> Callable[[int], Problem]:
    def build(n: int) -> Problem:
        return problem(
            kernel, n, n, block=block, covers=covers or block, over_output=over_output, plain_copy=plain_copy
        )

    return build


def _case(name: str, build: Callable[[int], Problem], title: str, lesson: str) -> Case:
    return Case(
        name=name,
        family="transpose",
        source=SOURCE,
        build=build,
        sizes=(8192, 1024, 1000),
        small_sizes=(1, 97, 128, 1000),
        title=title,
        lesson=lesson,
    )


CASES: tuple[Case, ...] = (
    _case(
        "transpose_copy",
        _square("transpose_copy", (32, 32), plain_copy=True),
        "a plain copy: the floor that every transpose is measured against",
        "A transpose has to read and write every element once, and so does a copy. Both accesses of a warp cover 32 "
        "neighbouring floats, 128 bytes in 4 sectors, and no byte of them is unused. What a transpose takes beyond "
        "this is the price of its order.",
    ),
    _case(
        "transpose_naive",
        _square("transpose_naive", (16, 16)),
        "coalesced loads, strided stores: 4 sectors a load, 16 a store",
        "A warp is two rows of 16 threads. It loads two runs of 64 bytes, 4 sectors. It stores to 16 rows of the "
        "output, two neighbouring floats in each: 16 sectors of 32 bytes to write 8 bytes into each of them. With "
        "blocks 32 wide it would be 32 sectors.",
    ),
    _case(
        "transpose_naive_colread",
        _square("transpose_naive_colread", (32, 32), over_output=True),
        "strided loads, coalesced stores: the other half of the same trade",
        "Turned round, the stores are whole lines and each load touches 32 sectors. The sectors are as many as in a "
        "row-reading version with blocks 32 wide, yet it is faster: a strided load leaves its sectors in the L1 "
        "cache, where the next row of threads finds them, and a strided store has no such help.",
    ),
    _case(
        "transpose_smem",
        _square("transpose_smem<32>", (32, 16)),
        "both global accesses coalesced through a shared tile, at a 16-way bank conflict",
        "The tile turns the data round inside the chip, so loads and stores both run along rows: 4 sectors each. Now "
        "shared memory pays: a warp reads two columns of 16 rows, and with rows of 32 words all 16 words of a column "
        "lie in the same bank. It is a 16-way conflict and not a 32-way one, since the two columns use different "
        "banks.",
    ),
    _case(
        "transpose_pad",
        _square("transpose_smem<33>", (32, 16)),
        "one padding column leaves a 2-way conflict",
        "With rows of 33 words a column spreads over 16 neighbouring banks. A warp reads two such columns, though, and "
        "they start one bank apart: 15 of the banks are hit by both. Padding by one is the remedy for a warp that "
        "reads one column of 32, and this one reads two of 16.",
    ),
    _case(
        "transpose_pad2",
        _square("transpose_smem<34>", (32, 16)),
        "two padding columns: no conflict is left",
        "With rows of 34 words the 16 words of one column take every other bank, and the next column, one word "
        "further, takes those between. 32 lanes, 32 banks, one wavefront.",
    ),
    _case(
        "transpose_unroll",
        _square("transpose_unroll", (32, 16), (64, 16)),
        "two elements a thread: the same sectors with fewer instructions",
        "Each thread moves two elements 32 columns apart. Sectors stay as they are, index arithmetic and barriers are "
        "shared by two elements, and two loads are in flight where there was one. A block now covers 64 columns: a "
        "grid computed from blockDim.x would launch twice the blocks, half of which have nothing to do.",
    ),
    _case(
        "transpose_vec2",
        _square("transpose_vec2", (16, 16), (32, 16)),
        "float2 loads and stores: half the requests, each twice as wide",
        "Half the threads do the work with 64-bit global accesses: 8 sectors a request in half as many requests. "
        "The tile is still accessed word by word, because a padded row of 33 words cannot hold aligned pairs, and a "
        "2-way conflict remains on the reads. A float2 must be aligned to 8 bytes, so rows of odd length go through "
        "single floats.",
    ),
    _case(
        "transpose_bank",
        _square("transpose_bank<32>", (32, 32)),
        "the textbook 32 x 32 tile: a 32-way conflict",
        "A warp reads one column of a tile whose rows are 32 words long. All 32 words lie in one bank, and the access "
        "takes 32 wavefronts where one would do.",
    ),
    _case(
        "transpose_bank_pad",
        _square("transpose_bank<33>", (32, 32)),
        "one padding column: no conflict",
        "Rows of 33 words put each element of a column into the next bank. Here padding by one is right, since a warp "
        "reads one whole column of 32.",
    ),
    _case(
        "transpose_tile4",
        _square("transpose_tile4<32>", (32, 8), (32, 32)),
        "four rows a thread, with the 32-way conflict",
        "A quarter of the threads do the same work: four loads are in flight a thread and the index arithmetic is "
        "shared. The unpadded tile still costs 32 wavefronts a read and hides what that could gain.",
    ),
    _case(
        "transpose_tile4_pad",
        _square("transpose_tile4<33>", (32, 8), (32, 32)),
        "four rows a thread and no conflict: the copy's order of speed",
        "More work a thread and a padded tile together: the sectors are those of the copy, shared memory needs one "
        "wavefront a request.",
    ),
    _case(
        "transpose_tile4_swizzle",
        _square("transpose_tile4_swizzle", (32, 8), (32, 32)),
        "an XOR swizzle instead of padding: as free of conflicts, with no extra memory",
        "The element of row r and column c is kept in column c ^ r. Along a row this only permutes the banks, down a "
        "column it gives each element its own. Sectors and wavefronts equal those of the padded tile, and the tile "
        "stays at 4096 bytes, which also keeps its rows aligned for vector accesses. What it costs is a few more "
        "instructions for the addresses.",
    ),
)
