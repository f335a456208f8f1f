"""Values of all blocks of a box at once, kept as a sum of one part a thread and one a block axis.

A *box* is a set of blocks: all combinations of some x, y and z block indices.  A value that differs between its blocks
is held as ``c + t[thread] + x[i] + y[j] + z[k] + slack`` in unbounded integers, to be read modulo the size of its type:
index arithmetic stays that sum through additions, products with constants, shifts, and masks of low bits, whatever the
number of blocks.  ``slack`` is an interval of which only the bounds are known: data.  :class:`Floats` is a float32 of
which only the bounds are known.

These classes stand in for NumPy arrays in the opcode functions (through NumPy's dispatch protocols), so that what an
instruction means is not stated a second time.  What they cannot express becomes a value known to be of its type and
nothing more, which is always right.  Where control or an address would depend on such a value, :class:`Undecided` is
raised; where blocks of the box disagree, :class:`Split` tells into which boxes to cut it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

Array = np.ndarray[Any, Any]
AXES = 3
LIMIT = 1 << 61  # parts stay below, so that their sums fit into int64
U32: np.dtype[Any] = np.dtype(np.uint32)


class Undecided(Exception):
    """Something depends on a value that is not known."""


class Split(Exception):
    """The blocks of a box disagree: ``groups`` are arrays of positions along ``axis``, to be boxes of their own."""

    def __init__(self, axis: int, groups: list[Array]) -> None:
        super().__init__(f"split along axis {axis}")
        self.axis, self.groups = axis, groups


class Part:
    """int64 numbers along one axis, with what is asked of them again and again."""

    __slots__ = ("_phases", "_steps", "_zeros", "high", "low", "values")

    def __init__(self, values: Array) -> None:
        self.values = values
        self.low, self.high = int(values.min()), int(values.max())
        self._zeros: int | None = None
        self._phases: tuple[Array, bytes] | None = None
        self._steps: bytes | None = None

    @property
    def zeros(self) -> int:
        """Low bits that are zero in all of the numbers."""
        if self._zeros is None:
            every = int(np.bitwise_or.reduce(self.values))
            self._zeros = (every & -every).bit_length() - 1 if every else 64
        return self._zeros

    @property
    def phases(self) -> Array:
        """How many of the numbers have each remainder modulo 128."""
        return self._counted()[0]

    @property
    def phase_key(self) -> bytes:
        """The same as bytes."""
        return self._counted()[1]

    def _counted(self) -> tuple[Array, bytes]:
        if self._phases is None:
            counts = np.bincount(self.values & 127, minlength=128)
            self._phases = counts, counts.tobytes()
        return self._phases

    @property
    def steps(self) -> bytes:
        """The numbers less the first, as bytes."""
        if self._steps is None:
            self._steps = (self.values - self.values[0]).tobytes()
        return self._steps


Parts = tuple[Part | None, Part | None, Part | None, Part | None]  # thread, x, y, z
NO_PARTS: Parts = (None, None, None, None)


def bits_of(dtype: np.dtype[Any]) -> int:
    return 8 * dtype.itemsize


def _least(dtype: np.dtype[Any]) -> int:
    return -(1 << (bits_of(dtype) - 1)) if dtype.kind == "i" else 0


def make(dtype: Any, c: int, parts: Parts, slack: tuple[int, int] = (0, 0)) -> Any:
    """The value as a Sep, or as an ordinary array (1, T) where all blocks agree and it is known."""
    kind = np.dtype(dtype)
    kept: list[Part | None] = []
    for part in parts:
        if part is not None and part.low == part.high:
            c += part.low
            part = None
        kept.append(part)
    size = 1 << bits_of(kind)
    c = ((c + (size >> 1)) & (size - 1)) - (size >> 1)
    if kept[1] is None and kept[2] is None and kept[3] is None and slack == (0, 0):
        c &= size - 1
        unsigned = np.uint64 if kind.itemsize == 8 else np.uint32
        word: Array = np.array([[c]], unsigned)
        if kept[0] is not None:
            word = (kept[0].values.astype(unsigned) + word[0])[None]
        return word.view(kind)
    return Sep(kind, c, (kept[0], kept[1], kept[2], kept[3]), slack)


def along(dtype: Any, axis: int, numbers: Array) -> Any:
    """A value that depends on one axis alone (0 the thread's, 1 to 3 the blocks' x, y and z)."""
    parts: list[Part | None] = [None] * (1 + AXES)
    parts[axis] = Part(numbers.astype(np.int64))
    return make(dtype, 0, (parts[0], parts[1], parts[2], parts[3]))


def known_to_be(dtype: Any) -> Sep:
    """A value of which nothing is known."""
    kind = np.dtype(dtype)
    return Sep(kind, 0, NO_PARTS, (_least(kind), _least(kind) + (1 << bits_of(kind)) - 1))


class Symbolic(np.lib.mixins.NDArrayOperatorsMixin):
    """What all values have in common that are not plain arrays; their operations are in gpusim.machine.separable."""

    __slots__ = ()
    ndim = 2
    size = 2  # not one value
    shape = (1, 2)
    dtype: np.dtype[Any]
    __hash__ = object.__hash__
    operate: ClassVar[Callable[..., Any]]
    call: ClassVar[Callable[..., Any]]

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """The value converted, as of an array."""
        raise NotImplementedError

    def view(self, dtype: Any) -> Any:
        """The value's bits read as another type of the same size."""
        raise Undecided("a view of a truth value")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return Symbolic.operate(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return Symbolic.call(function, args)

    def __bool__(self) -> bool:
        raise Undecided("a choice that depends on data")

    def item(self) -> Any:
        raise Undecided("a choice that depends on data")

    def any(self) -> Any:
        raise Undecided("a choice that depends on data")

    all = any


class Sep(Symbolic):
    """An integer that differs between blocks, see the module's text; ``dtype`` is how it is read."""

    __slots__ = ("c", "dtype", "high", "low", "parts", "slack")

    def __init__(self, dtype: np.dtype[Any], c: int, parts: Parts, slack: tuple[int, int]) -> None:
        self.dtype, self.c, self.parts, self.slack = dtype, c, parts, slack
        self.low, self.high = c + slack[0], c + slack[1]
        for part in parts:
            if part is not None:
                self.low += part.low
                self.high += part.high
        if self.low < -LIMIT or self.high > LIMIT:
            shift = 1 << bits_of(dtype)
            if abs(self.low) < 8 * shift and abs(self.high) < 8 * shift and not any(parts):
                return  # a 64-bit interval: only Python's integers meet it
            raise Undecided("numbers too large to be kept apart")

    @property
    def exact(self) -> bool:
        return self.slack == (0, 0)

    @property
    def only_axis(self) -> int | None:
        """The axis that the value depends on if it is one alone and the value is known, as in :func:`along`."""
        used = [axis for axis, part in enumerate(self.parts) if part is not None]
        return used[0] if self.exact and len(used) == 1 else None

    # -- types -----------------------------------------------------------------------------------------------------
    def canonical(self) -> Sep:
        """The same value with all sums in the range of its type.  Raises Split or Undecided where they straddle it."""
        bits, least = bits_of(self.dtype), _least(self.dtype)
        first, last = (self.low - least) >> bits, (self.high - least) >> bits
        if first == last:
            return self if first == 0 else Sep(self.dtype, self.c - (first << bits), self.parts, self.slack)
        if not self.exact:
            return known_to_be(self.dtype)
        bound = least + ((first + 1) << bits)
        split(np.less, self.c - bound, self.parts)
        raise Undecided("a number that wraps around in some threads")

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        kind = np.dtype(dtype)
        if kind.kind == "b":
            return self != 0
        if kind.kind == "f":
            return Floats(None, kind)
        if kind.itemsize < 4:
            return known_to_be(kind)
        value = self.canonical() if kind.itemsize > self.dtype.itemsize else self
        return make(kind, value.c, value.parts, value.slack)

    def view(self, dtype: Any) -> Any:
        kind = np.dtype(dtype)
        if kind.kind == "f":
            return floats_of_bits(self) if kind.itemsize == 4 else Floats(None, kind)
        if kind.itemsize != self.dtype.itemsize:
            raise Undecided("a view of another size")
        return Sep(kind, self.c, self.parts, self.slack)


class Floats(Symbolic):
    """A floating-point value: ``bounds`` as float32 (never NaN), or None where it may be anything.

    In a register it stands for the bits of that number (dtype uint32).
    """

    __slots__ = ("bounds", "dtype")

    def __init__(self, bounds: tuple[np.float32, np.float32] | None, dtype: Any = np.uint32) -> None:
        self.bounds, self.dtype = bounds, np.dtype(dtype)

    def bits(self) -> Sep:
        """As an integer: bounded where all of the numbers have the same sign.

        Bounds do not tell zeros apart, so that a zero among the numbers may have either sign.
        """
        if self.bounds is not None and (self.bounds[0] > 0 or self.bounds[1] < 0):
            low, high = (int(b.view(np.uint32)) for b in self.bounds)
            if low >> 31 == high >> 31:
                low, high = min(low, high), max(low, high)
                return Sep(U32, low, NO_PARTS, (0, high - low))
        return known_to_be(np.uint32)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        kind = np.dtype(dtype)
        if self.dtype.kind == "f":
            if kind.kind == "f":
                return Floats(None, kind)
            return Truth() if kind.kind == "b" else known_to_be(kind)
        return self.bits().view(self.dtype).astype(kind)

    def view(self, dtype: Any) -> Any:
        kind = np.dtype(dtype)
        if kind.itemsize == self.dtype.itemsize:
            return Floats(self.bounds, kind)
        raise Undecided("a view of another size")


class Truth(Symbolic):
    """A predicate of which nothing is known."""

    __slots__ = ()
    dtype = np.dtype(bool)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        kind = np.dtype(dtype)
        return self if kind.kind == "b" else Sep(kind, 0, NO_PARTS, (0, 1))


SYMBOLIC = (Sep, Floats, Truth)


def classes(test: Any, values: Array, low: int, high: int) -> Array:
    """For each value: 1 where ``test(value + rest, 0)`` holds for all rests in low..high, 0 for none, else 2."""
    least, most = values + low, values + high
    if test in (np.less, np.greater_equal):
        yes, no = most < 0, least >= 0
    elif test in (np.less_equal, np.greater):
        yes, no = most <= 0, least > 0
    else:
        yes, no = (least == 0) & (most == 0), (least > 0) | (most < 0)
    if test in (np.greater_equal, np.greater, np.not_equal):
        yes, no = no, yes
    return np.where(yes, 1, np.where(no, 0, 2))


def split(test: Any, c: int, parts: Parts) -> bool | None:
    """Raise Split by ``test(sum, 0)``, on the axis that leaves the fewest blocks undecided.

    Returns the answer where it turns out to be the same in all of them, None if no block axis is left.
    """
    best: tuple[float, int, Array] | None = None
    for axis in range(AXES):
        part = parts[1 + axis]
        if part is None:
            continue
        rest = [p for k, p in enumerate(parts) if p is not None and k != 1 + axis]
        found = classes(test, part.values, c + sum(p.low for p in rest), c + sum(p.high for p in rest))
        mixed = int(np.count_nonzero(found == 2)) / len(found)
        if best is None or mixed < best[0]:
            best = (mixed, axis, found)
    if best is None:
        return None
    mixed, axis, found = best
    if mixed == 0.0 and (found == found[0]).all():  # as for 2 * x == 5
        return bool(found[0])
    if mixed == 1.0:
        axis = max((k for k in range(AXES) if parts[1 + k] is not None), key=lambda k: len(parts[1 + k].values))  # type: ignore[union-attr]
        part = parts[1 + axis]
        assert part is not None
        order = np.argsort(part.values, kind="stable")
        half = len(order) // 2
        raise Split(axis, [np.sort(order[:half]), np.sort(order[half:])])
    raise Split(axis, [group for k in range(3) if (group := np.flatnonzero(found == k)).size])


def bounds_of(value: Any) -> tuple[np.float32, np.float32] | None:
    """The bounds of a word's bits as float32; None when there are none (a NaN, mixed signs of unknown bits)."""
    if isinstance(value, Floats):
        return value.bounds
    if isinstance(value, Sep):
        found = floats_of_bits(value)
        return found.bounds
    numbers = np.asarray(value)
    if numbers.dtype.itemsize != 4:
        return None
    numbers = numbers.view(np.float32)
    low, high = numbers.min(), numbers.max()
    return None if low != low or high != high else (low, high)


def floats_of_bits(value: Sep) -> Floats:
    """An integer's bits read as float32."""
    try:
        known = Sep(U32, value.c, value.parts, value.slack).canonical()
    except (Split, Undecided):
        return Floats(None, np.float32)
    low, high = known.low, known.high
    if high <= 0x7F800000:
        ends = (low, high)
    elif low >= 0x80000000 and high <= 0xFF800000:
        ends = (high, low)
    else:
        return Floats(None, np.float32)
    first, last = (np.uint32(e).view(np.float32) for e in ends)
    return Floats((first, last), np.float32)
