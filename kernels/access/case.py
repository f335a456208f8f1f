"""Single accesses to global and constant memory: what a warp's addresses cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpusim.kernels import SEED, Case, Launch, Problem, Reference, blocks_to_cover, poisoned, random_values

SOURCE = Path(__file__).with_name("access.cu")
BLOCK = 256
SIZES = (2**20, 2**25, 1_000_003)
SMALL_SIZES = (1, 1000, 4096, 100_001)
FACTOR = np.float32(2)
FIRST = np.int32(5)
"""Where constant_uniform begins in its table: an argument, so that the compiler cannot know the addresses."""


def _launch(kernel: str, n: int, *args: str | np.generic, columns: int = 1) -> Launch:
    return Launch(kernel, (blocks_to_cover(n, BLOCK), columns, 1), (BLOCK, 1, 1), args)


def stride(step: int, n: int) -> Problem:
    """n floats, rounded up to whole rows of ``step`` floats; the output has the columns one after the other."""
    rows = blocks_to_cover(n, step)
    return Problem(
        buffers={"in": random_values((rows, step)), "out": poisoned((step, rows))},
        launches=[_launch(f"access_stride<{step}>", rows, "in", "out", np.int32(rows), columns=step)],
        reference=lambda: Reference({"out": np.ascontiguousarray(random_values((rows, step)).T)}),
    )


def offset(by: int, n: int) -> Problem:
    return Problem(
        buffers={"in": random_values(n + by), "out": poisoned(n)},
        launches=[_launch(f"access_offset<{by}>", n, "in", "out", np.int32(n))],
        reference=lambda: Reference({"out": random_values(n + by)[by:].copy()}),
    )


def _in_order(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int32)


def _shuffled(n: int) -> np.ndarray:
    index = np.arange(n, dtype=np.int32)
    np.random.default_rng([SEED, 0]).shuffle(index)
    return index


def gather(index: Callable[[int], np.ndarray], n: int) -> Problem:
    return Problem(
        buffers={"in": random_values(n), "index": index(n), "out": poisoned(n)},
        launches=[_launch("access_gather", n, "in", "index", "out", np.int32(n))],
        reference=lambda: Reference({"out": random_values(n)[index(n)]}),
    )


def structures(n: int) -> Problem:
    def reference() -> Reference:
        particles = random_values((n, 4))
        particles[:, 0] *= FACTOR
        return Reference({"particles": particles})

    return Problem(
        buffers={"particles": random_values((n, 4))},
        launches=[_launch("layout_aos", n, "particles", FACTOR, np.int32(n))],
        reference=reference,
    )


def arrays(n: int) -> Problem:
    return Problem(
        buffers={"x": random_values(n)},
        launches=[_launch("layout_soa", n, "x", FACTOR, np.int32(n))],
        reference=lambda: Reference({"x": random_values(n) * FACTOR}),
    )


PRIMES = np.array([n for n in range(2, 132) if all(n % d for d in range(2, n))], np.uint32)


def constant(kernel: str, n: int) -> Problem:
    def reference() -> Reference:
        index = np.arange(n, dtype=np.uint32)
        begin = FIRST + (index % BLOCK if kernel == "constant_lane" else np.zeros_like(index))
        hashes = index.copy()
        for k in range(32):
            hashes = hashes * np.uint32(31) + PRIMES[(begin + k) % 32]
        return Reference({"out": hashes})

    return Problem(
        buffers={"out": np.zeros(n, np.uint32)},
        launches=[_launch(kernel, n, "out", FIRST, np.int32(n))],
        reference=reference,
    )


def _case(name: str, build: Callable[[int], Problem], title: str, lesson: str, aliases: tuple[str, ...] = ()) -> Case:
    return Case(
        name=name,
        family="access",
        source=SOURCE,
        build=build,
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        title=title,
        lesson=lesson,
        aliases=aliases,
    )


STRIDES = {
    1: "Neighbouring lanes read neighbouring floats: 4 sectors of 32 bytes, all of their bytes used. The other strides "
    "read the same elements in another order, so that whatever they take longer is due to the order.",
    2: "Every second float: a warp's words lie in 8 sectors and use half of each. The other half is fetched again when "
    "the other column is read, unless a cache has kept it till then.",
    4: "Every fourth float: 16 sectors a request, 8 of 32 bytes used. This is what reading one field of a structure of "
    "four floats does.",
    8: "Every eighth float: each lane has a sector of its own, 32 a request, and uses 4 of its 32 bytes. More sectors "
    "than lanes there cannot be, and so far each doubling of the stride has doubled the time.",
    16: "The sectors a request are as many as with a stride of 8, and yet it takes longer: the sectors lie in 16 lines "
    "of 128 bytes instead of 8, and memory likes neighbouring sectors together.",
    32: "Each lane has a line of 128 bytes of its own: 32 sectors a request in 32 lines, so far apart that "
    "neither caches nor memory find anything to share. It is the access of threads that each walk along a row of "
    "their own.",
}
STRIDE_SECTORS = {1: 4, 2: 8, 4: 16, 8: 32, 16: 32, 32: 32}

OFFSETS = {
    0: "A warp's 128 bytes are exactly one line, 4 sectors. This is what cudaMalloc's alignment gives to an array that "
    "is read from its beginning.",
    1: "Shifted by one float the 128 bytes reach into a fifth sector and a second line. The next warp needs the rest "
    "of that sector, so a cache absorbs most of it: an extra sector a request is hardly any extra memory traffic.",
    4: "16 bytes are half a sector: 5 sectors and 2 lines a request, as with every offset that is not a multiple of 8 "
    "floats. Half of the first sector is left to the warp before and half of the last to the next one.",
    8: "32 bytes are a whole sector: 4 sectors a request again, as few as without an offset, though they now lie in "
    "two lines of 128 bytes. Memory traffic is counted in sectors.",
    17: "An odd offset costs what every offset that is not a multiple of 8 floats costs: a fifth sector. By how much "
    "it is off makes no difference.",
    32: "128 bytes are a whole line: as if there were no offset. Rows of a matrix begin like this if their length is "
    "rounded up to a multiple of 32 floats.",
}
OFFSET_SECTORS = {0: 4, 1: 5, 4: 5, 8: 4, 17: 5, 32: 4}

GATHERS = {
    "sequential": (
        _in_order,
        "an index in order: as good as no index",
        "The index says 0, 1, 2 and so on. Its load is an additional stream of 4 sectors a request, and the load that "
        "depends on it has to wait for it; but the addresses are neighbours, and the hardware sees addresses, not how "
        "they came about.",
    ),
    "permutation": (
        _shuffled,
        "a random permutation: up to 32 sectors a request",
        "The instructions are the same as with an index in order, only the data of the index differs: each lane reads "
        "from somewhere else, a sector for each, and 28 of its 32 bytes are for nothing. No line will be in a cache "
        "when it is needed again, unless the whole array fits. To sort the index is often worth its cost.",
    ),
}

CASES: tuple[Case, ...] = (
    *(
        _case(
            f"access_stride_{step}",
            lambda n, step=step: stride(step, n),  # type: ignore[misc]
            f"lanes {step} float{'s' if step > 1 else ''} apart: {STRIDE_SECTORS[step]} sectors a request",
            lesson,
            ("access_stride",) if step == 1 else (),
        )
        for step, lesson in STRIDES.items()
    ),
    *(
        _case(
            f"access_offset_{by}",
            lambda n, by=by: offset(by, n),  # type: ignore[misc]
            f"neighbours, {by} float{'s' if by != 1 else ''} from an aligned address: {OFFSET_SECTORS[by]} sectors",
            lesson,
            ("access_offset",) if by == 0 else (),
        )
        for by, lesson in OFFSETS.items()
    ),
    *(
        _case(
            f"access_gather_{kind}",
            lambda n, index=index: gather(index, n),  # type: ignore[misc]
            title,
            lesson,
            ("access_gather",) if kind == "sequential" else (),
        )
        for kind, (index, title, lesson) in GATHERS.items()
    ),
    _case(
        "layout_aos",
        structures,
        "an array of structures, one field of four used: 16 sectors a request",
        "The x of neighbouring particles are 16 bytes apart, so a warp's load and its store touch 16 sectors each, and "
        "a quarter of every sector is what was asked for. The other three fields travel along in both directions.",
    ),
    _case(
        "layout_soa",
        arrays,
        "a structure of arrays: 4 sectors a request",
        "Each field has an array of its own. Those that are not needed are not touched, and the one that is lies "
        "side by side: a quarter of the sectors of layout_aos for the same work. Where a thread needs all four fields "
        "of a particle, one 16-byte load from the array of structures would do as well.",
    ),
    _case(
        "constant_uniform",
        lambda n: constant("constant_uniform", n),
        "constant memory, one address a warp: a broadcast",
        "Constant memory has a small cache that hands one word at a time to all lanes of a warp. When all of them read "
        "the same one, it costs about as much as a register, and the compiler can even use it as an operand.",
    ),
    _case(
        "constant_lane",
        lambda n: constant("constant_lane", n),
        "constant memory, 32 addresses a warp: one after the other",
        "Each lane begins at another place of the table, so that a load has 32 different addresses and is served in 32 "
        "turns. The instructions are nearly the same as in constant_uniform; the addresses decide. A table that lanes "
        "look up at different places belongs into shared memory or is read as ordinary memory.",
    ),
)
