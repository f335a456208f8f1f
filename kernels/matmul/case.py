"""Matrix products: how often one loaded element is used, and from where.

All inputs are multiples of 1/32 between -1 and 1, so few that every product and every sum of up to 4096 of them is a
float32 without rounding: the reference is the exact result, and any order of additions must give its very bits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpusim.errors import UsageError
from gpusim.kernels import SEED, Case, Launch, Problem, Reference, blocks_to_cover

SOURCE = Path(__file__).with_name("matmul.cu")
ALPHA, BETA = np.float32(0.5), np.float32(-2)
LARGEST = 8192
"""Sums of more products than that could need rounding."""


def coarse_values(n: int, stream: int) -> np.ndarray:
    """An n x n matrix of multiples of 1/32 in [-1, 1)."""
    steps = np.random.default_rng([SEED, stream]).integers(-32, 32, (n, n), np.int8)
    return steps.astype(np.float32) / np.float32(32)


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """alpha * a * b + beta * c; exact for ``coarse_values``."""
    return ALPHA * (a @ b) + BETA * c


def problem(kernel: str, n: int, *, block: tuple[int, int], covers: int, legal: int = 1) -> Problem:
    """A product of n x n matrices in blocks that make ``covers`` x ``covers`` results; n is a multiple of ``legal``."""
    if n % legal:
        raise UsageError(
            f"{kernel} has no guards at the edges of its tiles: the size must be a multiple of {legal}, "
            f"and {n} is not; try {max(1, round(n / legal)) * legal}"
        )
    if n > LARGEST:
        raise UsageError(f"a size of {n} is too large for {kernel}'s reference: at most {LARGEST}")
    blocks = blocks_to_cover(n, covers)
    return Problem(
        buffers={"A": coarse_values(n, 0), "B": coarse_values(n, 1), "C": coarse_values(n, 2)},
        launches=[
            Launch(kernel, (blocks, blocks, 1), (*block, 1), ("A", "B", "C", np.int32(n), ALPHA, BETA)),
        ],
        reference=lambda: Reference({"C": product(*(coarse_values(n, stream) for stream in range(3)))}),
    )


def _any_size(kernel: str) -> Callable[[int], Problem]:
    return lambda n: problem(kernel, n, block=(32, 32), covers=32)


def _tiles(kernel: str, threads: int, edge: int) -> Callable[[int], Problem]:
    return lambda n: problem(kernel, n, block=(threads, 1), covers=edge, legal=edge)


def _case(name: str, build: Callable[[int], Problem], small_sizes: tuple[int, ...], title: str, lesson: str) -> Case:
    return Case(
        name=name,
        family="matmul",
        source=SOURCE,
        build=build,
        sizes=(1024, 4096, 256),
        small_sizes=small_sizes,
        title=title,
        lesson=lesson,
    )


CASES: tuple[Case, ...] = (
    _case(
        "matmul_naive",
        _any_size("matmul_naive"),
        (1, 33, 97, 256),
        "one result a thread: coalesced, but every product needs two loads",
        "The lanes of a warp work on neighbours of one row of C. They all read the same element of A, one sector that "
        "is handed to all of them, and 32 neighbours of B, 4 sectors. No access is wasteful by itself. But two loads "
        "serve one multiplication, and each element of A and B is fetched n / 32 and n times over by different warps: "
        "what is missing is reuse.",
    ),
    _case(
        "matmul_naive_swapped",
        _any_size("matmul_naive_swapped"),
        (1, 33, 97, 256),
        "the same with x down a column: 32 sectors a request",
        "Only the roles of threadIdx.x and threadIdx.y are exchanged. Now the lanes of a warp work on 32 rows of C: "
        "each load of A touches 32 sectors and so do the load and the store of C, while B's element is the same for "
        "all. Which index runs along threadIdx.x decides a factor of ten.",
    ),
    _case(
        "matmul_smem",
        _tiles("matmul_smem<32>", 1024, 32),
        (32, 64, 256),
        "tiles in shared memory: each loaded element serves 32 threads",
        "A block loads 32 x 32 elements of A and of B, and each of them is used 32 times: global loads fall to a "
        "32nd. The products now load from shared memory. The element of A is the same for a whole warp and four of "
        "them lie side by side, so the compiler reads them as one 128-bit load: of the 64 loads that the source asks "
        "for in a tile 32 + 8 are left. The size must be a multiple of 32.",
    ),
    _case(
        "matmul_thread_tile",
        _tiles("matmul_thread_tile<64, 64, 8, 4, 4>", 256, 64),
        (64, 128, 256),
        "4 x 4 results a thread: 8 loads from shared memory serve 16 products",
        "matmul_smem spends its time on loads from shared memory. Here a thread keeps 16 sums in registers, and 4 "
        "elements of A with 4 of B make 16 products; the compiler turns these into 16 loads of 128 bits a tile. "
        "Threads beyond those that the tile needs would return before the barriers, which is tolerated by the "
        "hardware and promised by nobody; with blocks of 256 there are none. The size must be a multiple of 64.",
    ),
    _case(
        "matmul_vec4",
        _tiles("matmul_vec4<128, 128, 8, 8, 8>", 256, 128),
        (128, 256),
        "128-bit accesses everywhere; the tile of A is stored transposed",
        "8 x 8 results a thread: 16 loaded elements serve 64 products. To read its 8 elements of A as two vectors a "
        "thread needs them side by side, so A's tile is stored transposed, one float at a time: two lanes of a warp "
        "hold the same row and meet in one bank, a 2-way conflict on those stores, paid once a tile. The 128-bit reads "
        "of B are 2-way as well, since lanes are 32 bytes apart. The size must be a multiple of 128.",
    ),
    _case(
        "matmul_double_buffer_naive",
        _tiles("matmul_double_buffer_naive<128, 128, 8, 8, 8>", 256, 128),
        (128, 256),
        "double-buffered registers, indexed at run time: they live in local memory",
        "Two shared buffers and two register buffers, and it is five times slower. Which register buffer is meant is "
        "decided by a variable, registers cannot be indexed, and so both arrays move to local memory, 128 bytes a "
        "thread: look for LDL and STL. The next tile, moreover, is stored to shared memory right after it is loaded, "
        "so that the wait for it comes before the arithmetic that was to hide it. The size must be a multiple of 128.",
    ),
    _case(
        "matmul_double_buffer",
        _tiles("matmul_double_buffer<128, 128, 8, 8, 8>", 256, 128),
        (128, 256),
        "the next tile waits in registers while this one is multiplied",
        "Loads of the next tile are issued first and their values are needed only after the arithmetic, when they are "
        "stored to the other shared buffer: the wait is hidden. All register indices are constants, no local memory is "
        "used, and one barrier a tile is enough. The size must be a multiple of 128.",
    ),
    _case(
        "matmul_warp_tile",
        _tiles("matmul_warp_tile<128, 128, 16, 64, 64, 4, 4, 8>", 128, 128),
        (128, 256),
        "a tile for each warp: 128 results a thread, few different words a warp",
        "A warp makes 64 x 64 results in four steps of 64 x 16, 4 x 8 a lane in each. Only two different columns of "
        "lanes read B, so that a load touches few different words, and 36 loaded elements serve 128 products. The "
        "price is registers: few warps fit a multiprocessor, and with 128 threads for 128 x 128 results a small matrix "
        "has too few blocks to fill a large GPU. The size must be a multiple of 128.",
    ),
)
