"""Histograms: atomics in global and in shared memory, and what the values themselves do to them.

Each kernel comes with four inputs: cyclic (a warp meets 32 different values), random, constant (all lanes want the
same counter) and skewed (a quarter of the elements are zero). Counts are integers: any order gives the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpusim.kernels import SEED, Case, Launch, Problem, Reference

SOURCE = Path(__file__).with_name("histogram.cu")
GRID, BLOCK = 256, 256


def _random(n: int) -> np.ndarray:
    return np.random.default_rng([SEED, 0]).integers(0, 256, n, np.uint8)


def _cyclic(n: int) -> np.ndarray:
    return np.resize(np.arange(256, dtype=np.uint8), n)


def _constant(n: int) -> np.ndarray:
    return np.full(n, 7, np.uint8)


def _skewed(n: int) -> np.ndarray:
    """Small values are frequent: a uniform one between 0 and 1, to the fourth power."""
    return (np.arange(256) ** 4 // 255**3).astype(np.uint8)[_random(n)]


INPUTS: dict[str, Callable[[int], np.ndarray]] = {
    "cyclic": _cyclic,
    "random": _random,
    "constant": _constant,
    "skewed": _skewed,
}


def problem(launches: dict[str, str], n: int, kind: str) -> Problem:
    """Kernels that each count the same input into a buffer of their own: ``launches`` is {buffer: kernel}."""
    values = INPUTS[kind]

    def reference() -> Reference:
        counts = np.bincount(values(n), minlength=256).astype(np.uint32)
        return Reference({name: counts.copy() for name in launches})

    return Problem(
        buffers={"data": values(n)} | {name: np.zeros(256, np.uint32) for name in launches},
        launches=[
            Launch(kernel, (GRID, 1, 1), (BLOCK, 1, 1), ("data", name, np.int32(n)))
            for name, kernel in launches.items()
        ],
        reference=reference,
    )


def _case(name: str, kind: str, launches: dict[str, str], title: str, lesson: str, wrong: str | None = None) -> Case:
    return Case(
        name=name,
        family="histogram",
        source=SOURCE,
        build=lambda n: problem(launches, n, kind),
        sizes=(2**20, 2**26, 1_000_003),
        small_sizes=(1, 1000, 4096, 100_001),
        title=title,
        lesson=lesson,
        wrong=wrong,
    )


KERNELS = {
    "hist_global": (
        "hist_global<unsigned char>",
        "one global atomic an element",
        "Every element costs an atomic addition in the L2 cache, and all blocks of the device use the same 256 "
        "counters, 32 sectors of memory in all.",
    ),
    "hist_shared": (
        "hist_shared<unsigned char>",
        "bins in shared memory, merged at the end",
        "A block counts on its own and adds its 256 sums to the result at the end: 65,536 global atomics in all, "
        "however long the input. The increments of a warp go to shared memory, where the hardware adds the lanes that "
        "have the same counter at once: what costs wavefronts is different counters in one bank.",
    ),
    "hist_vec4": (
        "hist_vec4",
        "bins in shared memory, four bytes a load",
        "A byte a lane makes a load of a single sector, and many of them are needed to keep the memory busy. With four "
        "bytes a lane one load fetches 4 sectors, and there is one turn of the loop for four elements. The atomics are "
        "as many as before.",
    ),
}
INPUT_LESSONS = {
    "cyclic": (
        "values 0, 1, 2 ... 255",
        "With values that count up, the lanes of a warp have different counters, and neighbouring ones. It is the "
        "kindest input there is, and a measurement with it says little about any other.",
    ),
    "random": (
        "random values",
        "With random values a few lanes of a warp share a counter by chance, and several different counters share a "
        "bank: how many wavefronts an atomic takes is decided by the data.",
    ),
    "constant": (
        "all values equal",
        "With one value all lanes want the same counter: for global atomics the worst case, since every addition has "
        "to wait for the one before it, while an increment in shared memory counts the lanes of a warp in one go.",
    ),
    "skewed": (
        "few values frequent",
        "With a few frequent values, as in most real data, lanes often share a counter. It lies between the random "
        "and the constant input.",
    ),
}


def _cases() -> list[Case]:
    cases = []
    for name, (kernel, title, lesson) in KERNELS.items():
        for kind, (input_title, input_lesson) in INPUT_LESSONS.items():
            cases.append(
                _case(
                    name if kind == "cyclic" else f"{name}_{kind}",
                    kind,
                    {"bins": kernel},
                    f"{title}: {input_title}",
                    f"{lesson} {input_lesson}",
                )
            )
    return cases


CASES: tuple[Case, ...] = (
    *_cases(),
    _case(
        "hist_signed_bug",
        "cyclic",
        {"bins_global": "hist_global<signed char>", "bins_shared": "hist_shared<signed char>"},
        "two versions that agree with each other and are both wrong",
        "The bytes are read as signed char. Values over 127 become negative, and a test that was meant to be careful, "
        "value >= 0 && value < 256, drops them without a word: half of the cyclic input. The global and the shared "
        "version give the same counts, so comparing one with the other finds nothing. Compare with a reference that "
        "was written independently, and check what must hold anyway: the counts add up to the number of elements.",
        wrong="the element type is signed: values over 127 are negative, fail the range test and are never counted",
    ),
)
