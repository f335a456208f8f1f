"""Integers of a chunk that are the sum of one number a block and one a thread.

``blockIdx.x * blockDim.x + threadIdx.x`` has as many values as there are threads, but is known from a number for each
block and one for each thread.  :class:`Outer` keeps it so, through the arithmetic that addresses are made of, and
becomes an ordinary array wherever something else is asked of it: it stands in for an array in NumPy's functions, so
that what an instruction means is not stated a second time.  An access at such an address is checked, counted and
carried out from its parts.

:mod:`gpusim.machine.symbolic` does the same for whole grids, where nothing can become an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.machine.spread import Spread
from gpusim.machine.symbolic import LIMIT, Part, bits_of
from gpusim.sass.numeric import pair as pair_of_arrays

Array = np.ndarray[Any, Any]
WORDS = (np.dtype(np.uint32), np.dtype(np.int32), np.dtype(np.uint64), np.dtype(np.int64))
U64 = np.dtype(np.uint64)
TRUE, FALSE = np.full((1, 1), True), np.full((1, 1), False)
TRUE.setflags(write=False)
FALSE.setflags(write=False)
Sum = tuple[int, "Numbers | None", "Numbers | None"]  # constant, by block, by thread


class Numbers(Part):
    """int64 numbers along one axis, with what was made of them: a loop comes back to the same sums and products."""

    __slots__ = ("_made",)

    def __init__(self, values: Array) -> None:
        super().__init__(values)
        self._made: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any], other: Any = None) -> Any:
        """What ``make`` gives, worked out once; ``other``, whose id is in the key, is kept with it."""
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= 64:
                self._made.clear()
            found = self._made[key] = (make(), other)
        return found[0]

    def times(self, factor: int) -> Numbers:
        """The products with a number."""
        return self._once(("times", factor), lambda: Numbers(self.values * factor))

    def plus(self, other: Numbers, sign: int) -> Numbers:
        """The sums, or differences."""

        def make() -> Numbers:
            return Numbers(self.values + other.values if sign > 0 else self.values - other.values)

        return self._once(("plus", id(other), sign), make, other)

    def modulo(self, size: int) -> bytes:
        """What the numbers are modulo a power of two, as a key."""
        return self._once(("modulo", size), lambda: (self.values & (size - 1)).tobytes())

    def differences(self) -> bytes:
        """How far each number is from the first, as a key."""
        return self._once(("differences",), lambda: (self.values - self.values[0]).tobytes())

    def spread(self, threads: Numbers | None, count: int, shift: int) -> Spread:
        """Where the elements of ``2**shift`` bytes lie: this is the blocks' part."""
        return self._once(("spread", id(threads), shift), lambda: Spread(self, threads, count, shift), threads)


_columns: dict[int, tuple[Array, Numbers]] = {}  # of arrays (1, T)


def _by_thread(array: Array) -> Numbers:
    """An array (1, T) as numbers by thread; that of the same array is the same."""
    found = _columns.get(id(array))
    if found is None:
        if len(_columns) >= 64:
            _columns.clear()
        found = _columns[id(array)] = (array, Numbers(array[0].astype(np.int64)))
    return found[1]


class Outer(np.lib.mixins.NDArrayOperatorsMixin):
    """``c + rows[block] + columns[thread]`` modulo the size of ``dtype``, as that type reads it."""

    __slots__ = ("_full", "_paired", "c", "columns", "dtype", "high", "low", "rows")
    ndim = 2
    __hash__ = object.__hash__

    def __init__(self, dtype: np.dtype[Any], c: int, rows: Numbers, columns: Numbers | None) -> None:
        self.dtype, self.c, self.rows, self.columns = dtype, c, rows, columns
        self.low, self.high = c + rows.low, c + rows.high
        if columns is not None:
            self.low += columns.low
            self.high += columns.high
        self._full: Array | None = None
        self._paired: tuple[Any, Any] | None = None

    # -- as an array -----------------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows.values), 1 if self.columns is None else len(self.columns.values)

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def full(self) -> Array:
        """The ordinary array; do not change it."""
        if self._full is None:
            kind: Any = np.uint64 if self.dtype.itemsize == 8 else np.uint32
            words = (self.rows.values + self.c).astype(kind)[:, None]
            if self.columns is not None:
                words = words + self.columns.values.astype(kind)
            self._full = words.view(self.dtype)
        return self._full

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.full, dtype, copy=copy)

    # without the way through NumPy's dispatch, which takes longer than the sum
    def __add__(self, other: Any) -> Any:
        found = _RULES[np.add](self, other)
        return np.add(self.full, _plain(other)) if found is None else found

    def __lshift__(self, other: Any) -> Any:
        found = _left(self, other)
        return np.left_shift(self.full, _plain(other)) if found is None else found

    def __rshift__(self, other: Any) -> Any:
        found = _right(self, other)
        return np.right_shift(self.full, _plain(other)) if found is None else found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.full, name)

    def __getitem__(self, key: Any) -> Any:
        return self.full[key]

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self.full)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return function(*_plain(args), **{name: _plain(value) for name, value in kwargs.items()})

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if options and any(isinstance(x, Outer) for x in options.get("out", ())):
            del options["out"]  # x += y, where x may stay what it is
        if method == "__call__" and not options:
            rule = _RULES.get(ufunc)
            found = None if rule is None else rule(*inputs)
            if found is None and all(_by_block(x) for x in inputs):
                found = ufunc(*(x.full if isinstance(x, Outer) else x for x in inputs))
                if isinstance(found, np.ndarray) and found.dtype in WORDS and found.dtype != U64:
                    kept = _small(by_block(found))
                    found = found if kept is None else kept
            if found is not None:
                return found
        return getattr(ufunc, method)(*(x.full if isinstance(x, Outer) else x for x in inputs), **options)

    def further(self, distance: int) -> Outer:
        """The sums with a number that is the same for all."""
        size = 1 << bits_of(self.dtype)
        c = ((self.c + distance + (size >> 1)) & (size - 1)) - (size >> 1)
        return Outer(self.dtype, c, self.rows, self.columns)

    # -- as addresses ----------------------------------------------------------------------------------------------
    def within(self, size: int) -> tuple[Any, ...]:
        """A key for what the addresses are but for multiples of ``size``, a power of two, that differ by block."""
        first = 0 if self.columns is None else int(self.columns.values[0])
        columns = b"" if self.columns is None else self.columns.differences()
        return (self.c + first) % size, self.rows.modulo(size), columns

    def aligned(self, width: int) -> bool:
        """Whether all are multiples of a power of two."""
        return width == 1 or 1 << min(_zeros(self.c, self.rows, self.columns), 62) >= width

    def spread(self, threads: int, size: int, base: int) -> tuple[Spread, int]:
        """How to gather elements of ``size`` bytes at these aligned addresses, and the number of the first one.

        Elements are numbered from the address ``base`` on.
        """
        shift = size.bit_length() - 1
        return self.rows.spread(self.columns, threads, shift), (self.c - base) >> shift

    # -- types -----------------------------------------------------------------------------------------------------
    def canonical(self) -> Outer | None:
        """The same with all sums in the range of the type, or None where they straddle its end."""
        bits = bits_of(self.dtype)
        least = -(1 << (bits - 1)) if self.dtype.kind == "i" else 0
        first = (self.low - least) >> bits
        if first != (self.high - least) >> bits:
            return None
        return self if first == 0 else Outer(self.dtype, self.c - (first << bits), self.rows, self.columns)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        kind = np.dtype(dtype)
        if kind not in WORDS:
            return self.full.astype(kind)
        value: Outer | None = self
        if kind.itemsize > self.dtype.itemsize:
            value = self.canonical()
        if value is None:
            return self.full.astype(kind)
        return outer(kind, value.c, value.rows, value.columns)

    def view(self, dtype: Any) -> Any:
        kind = np.dtype(dtype)
        if kind not in WORDS or kind.itemsize != self.dtype.itemsize:
            return self.full.view(kind)
        return Outer(kind, self.c, self.rows, self.columns)


def outer(dtype: np.dtype[Any], c: int, rows: Numbers | None, columns: Numbers | None) -> Any:
    """The sum as an Outer, or as an ordinary array where all blocks agree."""
    if rows is not None and rows.low == rows.high:
        c, rows = c + rows.low, None
    if columns is not None and columns.low == columns.high:
        c, columns = c + columns.low, None
    size = 1 << bits_of(dtype)
    c = ((c + (size >> 1)) & (size - 1)) - (size >> 1)
    if rows is None:
        kind: Any = np.uint64 if dtype.itemsize == 8 else np.uint32
        word: Array = np.array([[c & (size - 1)]], kind)
        return (word if columns is None else word + columns.values.astype(kind)).view(dtype)
    return Outer(dtype, c, rows, columns)


def by_block(words: Array) -> Any:
    """Integers (blocks, 1) as an Outer."""
    return outer(words.dtype, 0, Numbers(words[:, 0].astype(np.int64)), None)


def plain(value: Any) -> Array:
    """An ordinary array."""
    return value.full if isinstance(value, Outer) else value


def least_and_most(value: Any) -> tuple[int, int]:
    """The extremes of int64 numbers, of a sum by its parts."""
    return (value.low, value.high) if isinstance(value, Outer) else (int(value.min()), int(value.max()))


def words_of(values: Array) -> tuple[Array, ...]:
    """Elements of several words, of a type without a meaning, as an array for each of their words."""
    words = values.view(np.uint32).reshape(*values.shape, -1)
    return tuple(words.transpose(2, 0, 1).copy())


def pair(low: Any, high: Any) -> Any:
    """The 64-bit value of a register pair; that of the same two words is worked out once."""
    if type(low) is not Outer:
        return pair_of_arrays(low, high)
    if low._paired is None or low._paired[0] is not high:
        low._paired = (high, pair_of_arrays(low, high))  # type: ignore[arg-type]
    return low._paired[1]


def _plain(value: Any) -> Any:
    if isinstance(value, Outer):
        return value.full
    if isinstance(value, list | tuple):
        return type(value)(_plain(each) for each in value)
    return value


def _by_block(value: Any) -> bool:
    if isinstance(value, Outer):
        return value.columns is None
    return getattr(value, "size", 1) == 1


# -- arithmetic ----------------------------------------------------------------------------------------------------
def _kind(a: Any, b: Any) -> np.dtype[Any] | None:
    """The type of a result, if it is an integer of 32 or 64 bits."""
    first, second = getattr(a, "dtype", None), getattr(b, "dtype", None)
    if first is second and first in WORDS:
        return first
    kind = np.result_type(*(x.dtype if isinstance(x, Outer) else x for x in (a, b)))
    return kind if kind in WORDS else None


def _sum(value: Any, kind: np.dtype[Any]) -> Sum | None:
    """The value as a sum, modulo the size of ``kind``; None for an array that is none."""
    if isinstance(value, Outer):
        if value.dtype.itemsize < kind.itemsize:
            value = value.canonical()
        return None if value is None else (value.c, value.rows, value.columns)
    if not isinstance(value, np.ndarray):
        return int(value), None, None
    if value.size == 1:
        return int(value.item()), None, None
    if value.ndim != 2 or value.dtype == U64 or value.dtype.kind not in "iub":
        return None
    if value.shape[0] == 1:
        return 0, None, _by_thread(value)
    return (0, Numbers(value[:, 0].astype(np.int64)), None) if value.shape[1] == 1 else None


def _plus(a: Numbers | None, b: Numbers | None, sign: int) -> Numbers | None:
    if b is None:
        return a
    if a is None:
        return b if sign > 0 else b.times(-1)
    return a.plus(b, sign)


def _combined(kind: np.dtype[Any], a: Sum, b: Sum, sign: int) -> Any:
    found = outer(kind, a[0] + sign * b[0], _plus(a[1], b[1], sign), _plus(a[2], b[2], sign))
    return _small(found)


def _small(value: Any) -> Any:
    """None for sums that might leave int64 later on."""
    return None if isinstance(value, Outer) and max(-value.low, value.high) > LIMIT else value


def _adder(sign: int) -> Callable[[Any, Any], Any]:
    def rule(a: Any, b: Any) -> Any:
        if type(b) is np.ndarray and b.size == 1 and b.dtype is a.dtype:
            return _small(a.further(sign * int(b.item())))
        kind = _kind(a, b)
        if kind is None:
            return None
        first = _sum(a, kind)
        second = None if first is None else _sum(b, kind)
        return None if first is None or second is None else _combined(kind, first, second, sign)

    return rule


def _scaled(value: Any, kind: np.dtype[Any], factor: int) -> Any:
    """value * factor."""
    size = 1 << bits_of(kind)
    factor = ((factor + (size >> 1)) & (size - 1)) - (size >> 1)
    found = _sum(value, kind)
    if found is None or abs(factor) >= 1 << 40:
        return None
    c, rows, columns = found
    if any(max(-p.low, p.high) * abs(factor) > LIMIT for p in (rows, columns) if p is not None):
        return None
    parts = (None if p is None else p.times(factor) for p in (rows, columns))
    return _small(outer(kind, c * factor, *parts))


def _multiply(a: Any, b: Any) -> Any:
    kind = _kind(a, b)
    if kind is None:
        return None
    if isinstance(b, Outer):
        a, b = b, a
    return _scaled(a, kind, int(b.item() if isinstance(b, np.ndarray) else b)) if getattr(b, "size", 1) == 1 else None


def _steps(value: Any) -> int | None:
    if isinstance(value, Outer) or getattr(value, "size", 1) != 1:
        return None
    return int(value.item() if isinstance(value, np.ndarray) else value)


def _left(a: Any, b: Any) -> Any:
    steps = _steps(b)
    if steps is None or not isinstance(a, Outer) or not 0 <= steps < bits_of(a.dtype) or _kind(a, b) != a.dtype:
        return None
    return _scaled(a, a.dtype, 1 << steps)


def _right(a: Any, b: Any) -> Any:
    steps = _steps(b)
    if steps is None or not isinstance(a, Outer) or not 0 <= steps < bits_of(a.dtype) or _kind(a, b) != a.dtype:
        return None
    value = a.canonical()
    if value is None:
        return None
    if value.low >> steps == value.high >> steps:
        return np.array([[value.low >> steps]], a.dtype)
    if _small(value) is None:  # an unsigned number that reaches beyond int64
        return None
    if value.columns is None:
        return outer(a.dtype, 0, Numbers((value.rows.values + value.c) >> steps), None)
    if value.rows.zeros >= steps:
        return outer(
            a.dtype, 0, Numbers(value.rows.values >> steps), Numbers((value.columns.values + value.c) >> steps)
        )
    if value.columns.zeros >= steps:
        return outer(
            a.dtype, 0, Numbers((value.rows.values + value.c) >> steps), Numbers(value.columns.values >> steps)
        )
    return None


def _zeros(c: int, *parts: Part | None) -> int:
    """Low bits that are 0 in all sums."""
    found = [p.zeros for p in parts if p is not None]
    if c:
        found.append((c & -c).bit_length() - 1)
    return min(found, default=64)


def _or(a: Any, b: Any) -> Any:
    """Of numbers without a common bit, as of the halves of a pair."""
    kind = _kind(a, b)
    if kind is None or kind.kind == "i":
        return None
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Outer):
            small = one.canonical()
            if small is None:
                return None
            low, high = small.low, small.high
        else:
            array = np.asarray(one)
            if array.size > 1 and array.shape[0] > 1:
                return None
            low, high = int(array.min()), int(array.max())
            small = one
        first, second = _sum(small, kind), _sum(other, kind)
        if first is None or second is None:
            return None
        if low >= 0 and high < 1 << min(_zeros(*second), 62):
            return _combined(kind, first, second, 1)
    return None


def _and(a: Any, b: Any) -> Any:
    """With a mask of low bits."""
    if isinstance(b, Outer):
        a, b = b, a
    mask = _steps(b)
    if mask is None or _kind(a, b) != a.dtype or mask <= 0 or mask & (mask + 1):
        return None
    bits = mask.bit_length()
    if a.columns is None:
        return None
    if a.rows.zeros >= bits:
        return ((a.columns.values + a.c) & mask).astype(a.dtype)[None]
    if a.columns.zeros >= bits:
        return outer(a.dtype, 0, Numbers((a.rows.values + a.c) & mask), None)
    return None


def _difference(a: Any, b: Any) -> tuple[int, int] | None:
    """The least and the greatest of a - b, as numbers; None where that is not known from their parts."""
    if type(b) is np.ndarray and b.size == 1 and b.dtype is a.dtype and b.dtype != U64:
        known = a.canonical()
        k = int(b.item())
        return None if known is None else (known.low - k, known.high - k)
    kind = _kind(a, b)
    if kind is None:
        return None
    sums: list[Sum] = []
    for value in (a, b):
        if isinstance(value, Outer):
            known = value.canonical()
            if known is None or (value.dtype != kind and known.low < 0):
                return None
            sums.append((known.c, known.rows, known.columns))
            continue
        if np.asarray(value).dtype == U64 and np.asarray(value).max() >> np.uint64(62):
            return None
        found = _sum(value, kind)
        if found is None:
            return None
        sums.append(found)
    low = high = sums[0][0] - sums[1][0]
    (_, *parts), (_, *others) = sums
    for part, other in zip(parts, others, strict=True):
        if part is other:
            continue
        difference = _plus(part, other, -1)
        if difference is not None:
            low, high = low + difference.low, high + difference.high
    return low, high


def _truth(value: Any) -> Array:
    """A predicate that is the same for all."""
    return TRUE if value else FALSE


def _comparison(test: Any) -> Callable[[Any, Any], Any]:
    """Decided where the difference has the same sign for all."""

    def rule(a: Any, b: Any) -> Any:
        ends = _difference(a, b)
        if ends is None:
            return None
        low, high = ends
        if low == high or low > 0 or high < 0:
            return _truth(test(low, 0))
        for end in (low, high):
            if end == 0 and test in (np.less, np.greater_equal, np.greater, np.less_equal):
                answers = {bool(test(low, 0)), bool(test(high, 0))}
                if len(answers) == 1:
                    return _truth(answers.pop())
        return None

    return rule


def _negated(c: int) -> Callable[[Any], Any]:
    """c - a."""

    def rule(a: Outer) -> Any:
        return _combined(a.dtype, (c, None, None), (a.c, a.rows, a.columns), -1)

    return rule


_RULES: dict[Any, Callable[..., Any]] = {
    np.add: _adder(1),
    np.subtract: _adder(-1),
    np.multiply: _multiply,
    np.left_shift: _left,
    np.right_shift: _right,
    np.bitwise_or: _or,
    np.bitwise_and: _and,
    np.invert: _negated(-1),
    np.negative: _negated(0),
}
for _test in (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal):
    _RULES[_test] = _comparison(_test)
