"""The kernel catalogue: CUDA kernels with their inputs, NumPy references, launches and lessons.

A *family* is a subpackage that has a ``case.py`` with a tuple ``CASES``; its CUDA source lies beside it.  Families
are found by looking, so adding a kernel, or a whole family, touches that one folder only.  Importing this package
imports no family, and importing a family builds no arrays: inputs are made when ``Case.build`` is called.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpusim.errors import UsageError

__all__ = [
    "Case",
    "Check",
    "Float",
    "Launch",
    "Problem",
    "Reference",
    "Tolerance",
    "blocks_to_cover",
    "check",
    "families",
    "find",
    "names",
    "poisoned",
    "random_values",
]

SEED = 20_240_229
"""Every input of the catalogue comes from this seed, so that a count or a result can be repeated anywhere."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    ``kernel`` is a C++ name expression (``transpose_smem<33>``) or an ``extern "C"`` name of the case's source.
    Each of ``args``, in parameter order, is either the name of one of ``Problem.buffers`` or a NumPy scalar.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[str | np.generic, ...]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Tolerance:
    """How far a result may be from its reference: ``absolute + relative * |expected|``, and why it may be at all."""

    reason: str
    relative: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True)
class Reference:
    """What NumPy says the written buffers hold afterwards; ``tolerance`` None asks for the very same bits."""

    expected: dict[str, np.ndarray]
    tolerance: Tolerance | None = None


@dataclass
class Problem:
    """Everything to run a case at one size.

    ``buffers`` are the device buffers with their contents before the first launch.  Whoever executes the launches
    may write results back into them, so ``reference``, called at most once and only when its answer is wanted, has
    to make its own inputs.
    """

    buffers: dict[str, np.ndarray]
    launches: list[Launch]
    reference: Callable[[], Reference]

    @functools.cached_property
    def _reference(self) -> Reference:
        return self.reference()

    @property
    def expected(self) -> dict[str, np.ndarray]:
        """The NumPy reference of every buffer that the launches write."""
        return self._reference.expected

    @property
    def tolerance(self) -> Tolerance | None:
        """None if results must be bit-exact."""
        return self._reference.tolerance

    def differences(self, results: Mapping[str, np.ndarray] | None = None) -> list[str]:
        """One sentence for each buffer that differs from the reference; ``results`` defaults to ``buffers``."""
        results = self.buffers if results is None else results
        return [
            sentence
            for name, expected in self.expected.items()
            if (sentence := _difference(name, results[name], expected, self.tolerance))
        ]


@dataclass(frozen=True)
class Case:
    """One entry of the catalogue."""

    name: str
    """The name on the command line."""
    family: str
    source: Path
    build: Callable[[int], Problem]
    """Makes the problem of a size: the matrix edge, or the number of elements."""
    sizes: tuple[int, ...]
    """The default first."""
    small_sizes: tuple[int, ...]
    """For tests: sizes that fill the tiles and sizes that do not, down to one element."""
    title: str
    """One line: what it shows."""
    lesson: str
    """One paragraph: what to look at and what to learn from it."""
    wrong: str | None = None
    """For a kernel that is wrong on purpose: what is wrong with it."""
    options: tuple[str, ...] = ()
    """Compiler options beyond the architecture."""
    min_arch: int = 75
    hangs: bool = False
    """Threads may wait for others that never come, so that a GPU could run it forever: it is not launched on one."""
    needs_gpu: str | None = None
    """For what only a GPU can show: what of it is not simulated.  Its launches, the kernel part alone, are."""
    aliases: tuple[str, ...] = ()
    """Other names that ``find`` knows it by: the first of a row of variants also has the name of the row."""

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The kernels that the launches name, each once, in order: the name expressions to compile."""
        launches = (launch for size in self.small_sizes for launch in self.build(size).launches)
        return tuple(dict.fromkeys(launch.kernel for launch in launches))


@dataclass(frozen=True)
class Check:
    """What the launches computed, compared with NumPy."""

    equal: bool
    expected_to_differ: bool
    text: str
    differences: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether it differs and should not."""
        return not self.equal and not self.expected_to_differ


def check(case: Case, problem: Problem) -> Check:
    """Compare the problem's buffers, after its launches, with the reference."""
    differences = tuple(problem.differences())
    wrong = case.wrong is not None
    if not differences:
        text = "equal to the NumPy reference"
        if problem.tolerance is not None:
            text = f"equal to the NumPy reference within its tolerance ({problem.tolerance.reason})"
        if wrong:
            text += ", although the kernel is wrong"
    elif wrong:
        text = "differs from the NumPy reference, as it must"
    else:
        text = "differs from the NumPy reference"
    return Check(not differences, wrong, text, differences)


@functools.cache
def families() -> dict[str, tuple[Case, ...]]:
    """Every family's cases, families in alphabetical order and cases in the order of their family."""
    found: dict[str, tuple[Case, ...]] = {}
    seen: dict[str, str] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if not module.ispkg or not any((Path(root) / module.name / "case.py").is_file() for root in __path__):
            continue
        cases: Sequence[Case] = importlib.import_module(f"{__name__}.{module.name}.case").CASES
        for case in cases:
            if case.family != module.name:
                raise ValueError(f"{case.name} is in the folder {module.name} but says family {case.family!r}")
            for name in (case.name, *case.aliases):
                if name in seen:
                    raise ValueError(f"the name {name} is used twice: in {seen[name]} and in {module.name}")
                seen[name] = module.name
        found[module.name] = tuple(cases)
    return found


def names() -> list[str]:
    """The names of all cases."""
    return [case.name for cases in families().values() for case in cases]


def find(name: str) -> Case:
    """The case of that name; ``UsageError`` with the nearest names if there is none."""
    for cases in families().values():
        for case in cases:
            if name == case.name or name in case.aliases:
                return case
    near = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`gpusim list` shows them all"
    raise UsageError(f"no kernel named {name!r} in the catalogue; {hint}")


# What most families need to build a problem.


def blocks_to_cover(count: int, covered: int) -> int:
    """How many blocks of ``covered`` elements hold ``count`` elements."""
    return -(-count // covered)


Float = type[np.float32] | type[np.float64]


def random_values(shape: int | tuple[int, ...], dtype: Float = np.float32, stream: int = 0) -> np.ndarray:
    """Uniform in [-1, 1), always the same for the same arguments; another ``stream`` gives other values.

    Both signs on purpose: sums stay small, so that one element left out, taken twice or added in another order
    changes the bits of the result.
    """
    values = np.random.default_rng([SEED, stream]).random(shape, dtype=dtype)
    values *= 2
    values -= 1
    return values


def poisoned(shape: int | tuple[int, ...], dtype: Float = np.float32) -> np.ndarray:
    """An output buffer of NaNs: an element that no thread writes shows."""
    return np.full(shape, np.nan, dtype)


def _difference(name: str, actual: np.ndarray, expected: np.ndarray, tolerance: Tolerance | None) -> str | None:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{name} is {actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}"
    if tolerance is None:
        # Bits, not values: that tells -0.0 from 0.0 and lets a NaN be equal to itself.
        bits = np.dtype(f"u{expected.itemsize}")
        wrong = np.ascontiguousarray(actual).view(bits) != np.ascontiguousarray(expected).view(bits)
    else:
        allowed = tolerance.absolute + tolerance.relative * np.abs(expected.astype(np.float64))
        wrong = ~(np.abs(actual.astype(np.float64) - expected) <= allowed)
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    index = ", ".join(map(str, where))
    return f"{name}[{index}] is {actual[where]!s}, expected {expected[where]!s} ({count} of {wrong.size} differ)"
