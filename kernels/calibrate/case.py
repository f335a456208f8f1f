"""Microbenchmarks: what `gpusim calibrate` measures a GPU with, one property of the hardware each.

They write the clock before and after into ``stamps``, which no reference can know; everything else has one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpusim.kernels import SEED, Case, Launch, Problem, Reference, blocks_to_cover

FOLDER = Path(__file__).parent
BLOCK = 256
STAMPS = 5
"""64-bit words that a warp writes: two clocks, two times, its SM."""
LOOPS = 3
STEPS, CHAINS = 16, 8
"""Of ``issue<..., 8>``: steps of each chain in a loop, and chains."""
UNROLL = 8
"""Accesses a loop, in shared.cu."""
WINDOW = 32 * 1024
"""Bytes among which a block of ``pattern_load`` stays."""

Step = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def random_words(count: int) -> np.ndarray:
    """Any 32-bit values, always the same."""
    return np.random.default_rng([SEED, 5]).integers(0, 1 << 32, count, dtype=np.uint32)


def _stamps(blocks: int, block: int) -> np.ndarray:
    return np.zeros(STAMPS * blocks * blocks_to_cover(block, 32), np.int64)


def _unwritten(count: int) -> np.ndarray:
    """An output that no kernel here would leave like this."""
    return np.full(count, 0xDEADBEEF, np.uint32)


def issue(operation: str, step: Step, n: int) -> Problem:
    """n threads, rounded up to whole blocks; ``step(x, y, third)`` is the operation on 32-bit words."""
    blocks = blocks_to_cover(n, BLOCK)
    a, b, c = np.uint32(0x3F8CCCCD), np.uint32(0x3F79999A), np.uint32(3)

    def reference() -> Reference:
        lane = np.arange(BLOCK, dtype=np.uint32)
        first = a + lane * c
        second = b + lane * first
        third = c ^ (lane * (second + np.uint32(1)))
        x = [first + np.uint32(k) * c for k in range(CHAINS)]
        y = [second + np.uint32(k) * c for k in range(CHAINS)]
        for _ in range(LOOPS * STEPS // 2):
            x = [step(x[k], y[k], third) for k in range(CHAINS)]
            y = [step(y[k], x[k], third) for k in range(CHAINS)]
        return Reference({"out": np.tile(np.bitwise_xor.reduce([*x, *y]), blocks)})

    return Problem(
        buffers={"out": _unwritten(blocks * BLOCK), "stamps": _stamps(blocks, BLOCK)},
        launches=[
            Launch(f"issue<{operation}, {CHAINS}>", (blocks, 1, 1), (BLOCK, 1, 1),
                   ("out", "stamps", a, b, c, np.int32(LOOPS)))
        ],
        reference=reference,
    )  # fmt: skip


def _add_floats(x: np.ndarray, y: np.ndarray, third: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return (x.view(np.float32) + y.view(np.float32)).view(np.uint32)


def _shift(x: np.ndarray, y: np.ndarray, third: np.ndarray) -> np.ndarray:
    """The high half of {y, x} << (third mod 32)."""
    both = (y.astype(np.uint64) << np.uint64(32)) | x
    return ((both << (third % 32).astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)


def _bits(x: np.ndarray, y: np.ndarray, third: np.ndarray) -> np.ndarray:
    return np.bitwise_count(y).astype(np.uint32)


def _from_lane_below(x: np.ndarray, y: np.ndarray, third: np.ndarray) -> np.ndarray:
    rows = y.reshape(-1, 32)
    return np.concatenate([rows[:, :1], rows[:, :-1]], axis=1).reshape(-1)


def loop(kernel: str, n: int, expected: Callable[[np.ndarray], np.ndarray], *more: np.generic) -> Problem:
    """A kernel of nothing but control flow; ``expected`` gives the results of the threads of a block."""
    blocks = blocks_to_cover(n, BLOCK)
    return Problem(
        buffers={"out": _unwritten(blocks * BLOCK), "stamps": _stamps(blocks, BLOCK)},
        launches=[Launch(kernel, (blocks, 1, 1), (BLOCK, 1, 1), ("out", "stamps", *more, np.int32(LOOPS)))],
        reference=lambda: Reference({"out": np.tile(expected(np.arange(BLOCK, dtype=np.uint32)), blocks)}),
    )


def chase(kind: str, n: int) -> Problem:
    """A ring of n places, one a 128-byte line; out is where the chase ends, in bytes from the start."""
    skip, steps = 5, 48
    order = np.random.default_rng([SEED, 6]).permutation(n).astype(np.uint32)

    def reference() -> Reference:
        start = int(np.flatnonzero(order == 0)[0])
        return Reference({"out": np.array([int(order[(start + skip + steps) % n]) * 128], np.uint64)})

    return Problem(
        buffers={
            "ring": np.zeros(n * 128, np.uint8),
            "order": order.copy(),
            "out": np.ones(1, np.uint64),
            "stamps": _stamps(1, 32),
        },
        launches=[
            Launch(f"chase<{kind}>", (1, 1, 1), (32, 1, 1),
                   ("out", "stamps", "ring", "order", np.uint32(n), np.int32(skip), np.int32(steps))),
        ],
        reference=reference,
    )  # fmt: skip


def shared_chase(width: int, n: int) -> Problem:
    """n blocks of one warp; a ring of 256 places 16 bytes apart, from each to the one 37 places on."""
    steps = 32
    return Problem(
        buffers={"out": _unwritten(n), "stamps": _stamps(n, 32)},
        launches=[Launch(f"shared_chase<{width}>", (n, 1, 1), (32, 1, 1), ("out", "stamps", np.int32(steps)))],
        reference=lambda: Reference({"out": np.full(n, steps * 37 % 256 * 16, np.uint32)}),
    )


def shared_load(width: int, degree: int, n: int) -> Problem:
    """n threads, rounded up to whole blocks, whose lanes read ``degree`` times their width apart."""
    blocks = blocks_to_cover(n, BLOCK)

    def reference() -> Reference:
        first = np.arange(BLOCK, dtype=np.uint32) % 32 * (degree * width // 4)
        words = [first + 4 * k + j for k in range(UNROLL) for j in range(width // 4)]  # an odd number of times
        return Reference({"out": np.tile(np.bitwise_xor.reduce(words), blocks).astype(np.uint32)})

    return Problem(
        buffers={"out": _unwritten(blocks * BLOCK), "stamps": _stamps(blocks, BLOCK)},
        launches=[
            Launch(f"shared_load<{width}>", (blocks, 1, 1), (BLOCK, 1, 1),
                   ("out", "stamps", np.int32(degree * width), np.int32(0), np.int32(LOOPS)))
        ],
        reference=reference,
    )  # fmt: skip


def shared_atomic(stride: int, n: int) -> Problem:
    """n blocks of one warp, whose lanes add to words ``stride`` bytes apart and get what was there."""
    added = np.arange(UNROLL * LOOPS, dtype=np.uint32) * np.uint32(5)
    return Problem(
        buffers={"out": _unwritten(32 * n), "stamps": _stamps(n, 32)},
        launches=[
            Launch("shared_atomic<ADD_RETURN>", (n, 1, 1), (32, 1, 1),
                   ("out", "stamps", np.int32(stride), np.uint32(5), np.int32(LOOPS)))
        ],
        reference=lambda: Reference({"out": np.full(32 * n, np.bitwise_xor.reduce(added), np.uint32)}),
    )  # fmt: skip


def lane_offsets(lines: int, sectors: int = 4, width: int = 4) -> np.ndarray:
    """Where the lanes of a warp begin, in bytes: in ``sectors`` sectors of ``lines`` lines, spread over a window."""
    lane = np.arange(32)
    each = 32 // lines
    within = lane % each
    return lane // each * (WINDOW // lines) + within % sectors * 32 + within // sectors * width % 32


def pattern(lines: int, n: int) -> Problem:
    """n threads, rounded up to whole blocks; each block reads in its own window."""
    blocks = blocks_to_cover(n, BLOCK)
    offsets = lane_offsets(lines)

    def reference() -> Reference:
        words = random_words(blocks * WINDOW // 4).reshape(blocks, -1)
        reads = [words[:, (offsets + 128 * k) // 4 % (WINDOW // 4)] for k in range(UNROLL)]
        once = np.bitwise_xor.reduce(reads)  # with the first time round, an odd number of times
        return Reference({"out": np.tile(once, (1, BLOCK // 32)).reshape(-1)})

    return Problem(
        buffers={
            "out": _unwritten(blocks * BLOCK), "stamps": _stamps(blocks, BLOCK),
            "in": random_words(blocks * WINDOW // 4),
        },
        launches=[
            Launch("pattern_load<CA, 4>", (blocks, 1, 1), (BLOCK, 1, 1),
                   ("out", "stamps", "in", np.int32(lines), np.int32(4), np.int64(WINDOW), np.int32(0),
                    np.int32(LOOPS + 1)))
        ],
        reference=reference,
    )  # fmt: skip


def stream(way: str, words: int, flight: int, n: int) -> Problem:
    """n threads, rounded up to whole blocks, each ``flight`` accesses of ``words`` words, three times."""
    blocks = blocks_to_cover(n, BLOCK)
    threads, rounds = blocks * BLOCK, 3
    count = threads * flight
    data = random_words(count * words)
    if way == "write":
        data = _unwritten(count * words)

    def reference() -> Reference:
        source = random_words(count * words).reshape(flight, threads, words)
        if way == "read":
            return Reference(
                {"out": np.bitwise_xor.reduce(np.bitwise_xor.reduce(source, axis=2))}
            )  # an odd number of times
        if way == "write":
            return Reference({"data": np.full(count * words, rounds - 1, np.uint32),
                              "out": np.full(threads, rounds, np.uint32)})  # fmt: skip
        folded = np.bitwise_xor.reduce(source, axis=2) + np.uint32(1)
        return Reference({"out": np.repeat(folded.reshape(-1), words)})

    out = _unwritten(count * words if way == "copy" else threads)
    return Problem(
        buffers={"data": data, "out": out},
        launches=[
            Launch(f"stream_{way}<{words}, {flight}>", (blocks, 1, 1), (BLOCK, 1, 1),
                   ("data", "out", np.int64(count), np.int32(0), np.int32(1), np.int32(rounds)))
        ],
        reference=reference,
    )  # fmt: skip


def mixed(x: np.ndarray) -> np.ndarray:
    """The kernels' hash."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def random_sectors(n: int) -> Problem:
    """n threads, rounded up to whole blocks, each four words of random sectors, among 1024."""
    blocks = blocks_to_cover(n, BLOCK)
    threads, flight, sectors = blocks * BLOCK, 4, 1024

    def reference() -> Reference:
        at = mixed(np.arange(threads * flight, dtype=np.uint32)) & np.uint32(sectors - 1)
        words = random_words(8 * sectors)[at * 8].reshape(flight, threads)
        return Reference({"out": np.bitwise_xor.reduce(words)})

    return Problem(
        buffers={"data": random_words(8 * sectors), "out": _unwritten(threads)},
        launches=[
            Launch(f"stream_random<0, {flight}>", (blocks, 1, 1), (BLOCK, 1, 1),
                   ("data", "out", np.uint32(threads * flight), np.uint32(sectors - 1)))
        ],
        reference=reference,
    )  # fmt: skip


def atomic(distinct: int, how: int, n: int) -> Problem:
    """n threads, rounded up to whole blocks, each LOOPS additions to one of ``distinct`` words."""
    blocks = blocks_to_cover(n, BLOCK)
    threads = blocks * BLOCK

    def reference() -> Reference:
        thread = np.arange(threads, dtype=np.uint32)
        at = []
        for i in range(LOOPS):
            step = np.uint32(i)
            at.append((thread // 32 + step, thread + np.uint32(32) * step, mixed(thread * np.uint32(64) + step))[how])
        counts = np.bincount(np.concatenate(at) & np.uint32(distinct - 1), minlength=distinct)
        return Reference({"data": (counts * 3).astype(np.uint32), "out": np.zeros(threads, np.uint32)})

    return Problem(
        buffers={"data": np.zeros(distinct, np.uint32), "out": _unwritten(threads)},
        launches=[
            Launch("stream_atomic<RED_INT>", (blocks, 1, 1), (BLOCK, 1, 1),
                   ("data", "out", np.uint32(distinct - 1), np.int32(1), np.int32(how), np.uint32(3), np.int32(LOOPS)))
        ],
        reference=reference,
    )  # fmt: skip


def _case(name: str, source: str, build: Callable[[int], Problem], title: str, lesson: str, large: int = 2**18) -> Case:
    return Case(
        name=name,
        family="calibrate",
        source=FOLDER / f"{source}.cu",
        build=build,
        sizes=(large,),
        small_sizes=(1, 1000, 4096),
        title=title,
        lesson=lesson,
    )


OPERATIONS: tuple[tuple[str, str, str, Step], ...] = (
    ("fadd", "FADD", "float additions", _add_floats),
    ("iadd", "IADD", "integer additions of three values", lambda x, y, c: x + y + c),
    ("imad", "IMAD", "integer multiply-adds", lambda x, y, c: x * y + c),
    ("lop3", "LOP3", "logic of three values", lambda x, y, c: (x & y) ^ c),
    ("shf", "SHF", "funnel shifts", _shift),
    ("popc", "POPC", "population counts", _bits),
    ("shfl", "SHFL", "shuffles", _from_lane_below),
)

STREAMS = (
    ("read", 1, 1), ("read", 1, 4), ("read", 4, 4), ("write", 1, 1), ("write", 4, 2), ("copy", 1, 1), ("copy", 4, 4),
)  # fmt: skip
"""Way, words an access, accesses in flight."""

CASES: tuple[Case, ...] = (
    *(
        _case(
            f"calibrate_{name}",
            "issue",
            lambda n, operation=operation, step=step: issue(operation, step, n),  # type: ignore[misc]
            f"eight independent chains of {words}: how many of them an SM issues",
            f"Every thread keeps eight chains of {words} going, so that enough of them are ready at any time. The "
            "clock before and after then tells how many such instructions an SM issues in a cycle; with a single chain "
            "and a single warp it would tell how long the next one waits for the result.",
        )
        for name, operation, words, step in OPERATIONS
    ),
    _case(
        "calibrate_branch",
        "issue",
        lambda n: loop("branch_loop", n, lambda x: x ^ np.uint32(0) ^ np.uint32(1) ^ np.uint32(2)),
        "a loop of little but its own branch",
        "Counter, comparison and branch are three instructions, and a branch that is taken costs more than that: the "
        "next instructions have to be fetched from elsewhere. Unrolling a short loop saves exactly this.",
    ),
    _case(
        "calibrate_barrier",
        "issue",
        lambda n: loop("barrier_loop", n, lambda x: np.full_like(x, LOOPS)),
        "block barriers one after the other",
        "With nothing between them, block barriers cost what their own machinery takes: each warp has to arrive, and "
        "the more warps a block has, the longer that lasts. Real kernels also wait for the slowest warp.",
    ),
    _case(
        "calibrate_chase",
        "latency",
        lambda n: chase("CA64", n),
        "a pointer chase: each load waits for the one before",
        "A ring of addresses in random order, followed by one warp: no load can begin before the one before it is "
        "there, so the time of a step is the latency of wherever the ring fits, L1, L2 or DRAM.",
        large=2**15,
    ),
    *(
        _case(
            f"calibrate_shared_chase_{width * 8}",
            "latency",
            lambda n, width=width: shared_chase(width, n),  # type: ignore[misc]
            f"a pointer chase in shared memory by {width * 8}-bit loads",
            "Shared memory answers after some twenty to thirty cycles, far sooner than L2 but later than arithmetic. A "
            "kernel that reads an address from shared memory to read there again pays it every time.",
            large=2**12,
        )
        for width in (4, 8, 16)
    ),
    *(
        _case(
            f"calibrate_shared_load_{width * 8}_{degree}",
            "shared",
            lambda n, width=width, degree=degree: shared_load(width, degree, n),  # type: ignore[misc]
            f"{width * 8}-bit shared loads, lanes {degree * width} bytes apart",
            "The distance between the lanes decides how many of their words lie in the same bank, and each such word "
            "takes a wavefront of its own. Nothing else happens here, so the cycles of a wavefront can be read off.",
        )
        for width, degree in ((4, 1), (4, 2), (4, 32), (8, 1), (8, 4), (16, 1), (16, 8))
    ),
    *(
        _case(
            f"calibrate_shared_atomic_{stride}",
            "shared",
            lambda n, stride=stride: shared_atomic(stride, n),  # type: ignore[misc]
            f"shared atomic additions that return, lanes {stride} bytes apart",
            "An atomic addition in shared memory reads and writes, bank by bank, and the lanes whose words lie in one "
            "bank take turns. What was there before comes back to the register after a latency like that of a load.",
            large=2**12,
        )
        for stride in (4, 128)
    ),
    *(
        _case(
            f"calibrate_lines_{lines}",
            "shared",
            lambda n, lines=lines: pattern(lines, n),  # type: ignore[misc]
            f"global loads that hit in L1, {lines} line{'s' * (lines > 1)} a request",
            "L1 looks up one 128-byte line at a time, so a request takes as many turns as it touches lines, though "
            "everything is in the cache. Neighbouring lanes should therefore read from the same line even there.",
            large=2**14,
        )
        for lines in (1, 4, 32)
    ),
    *(
        _case(
            f"calibrate_{way}_{32 * words}_{flight}",
            "stream",
            lambda n, way=way, words=words, flight=flight: stream(way, words, flight, n),  # type: ignore[misc]
            f"{way} by {32 * words}-bit accesses, {flight} in flight a thread",
            "Bandwidth needs bytes in flight: the latency of DRAM times its bandwidth. They come from wider accesses, "
            "from more loads of a thread before the first use, or from more warps, and it does not matter which.",
        )
        for way, words, flight in STREAMS
    ),
    _case(
        "calibrate_random",
        "stream",
        random_sectors,
        "random sectors: 32 a request",
        "Each lane reads one word of a sector of its own. The memory moves 32 bytes for each 4 that are used, and from "
        "DRAM it comes in granules larger still, so that scattered accesses reach a fraction of the bandwidth.",
    ),
    *(
        _case(
            f"calibrate_atomic_{name}",
            "stream",
            lambda n, distinct=distinct, how=how: atomic(distinct, how, n),  # type: ignore[misc]
            f"global atomic additions: {title}",
            "Atomics are carried out in L2, where additions to the same address wait for each other. The number of "
            "addresses, and whether the lanes of a warp share one, decide how many of them a nanosecond sees.",
        )
        for name, title, distinct, how in (
            ("one", "one address for all", 1, 0),
            ("warp", "1024 addresses, one a warp", 1024, 0),
            ("lanes", "1024 addresses, neighbouring ones a warp", 1024, 1),
            ("random", "65536 addresses, random", 65536, 2),
        )
    ),
)
