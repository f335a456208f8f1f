"""Arithmetic of the values of a box: what NumPy's functions give for the classes of gpusim.machine.symbolic.

Each operation keeps the form of a sum where it can, an interval where it cannot, and else a value of which nothing is
known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.machine.symbolic import (
    LIMIT,
    NO_PARTS,
    SYMBOLIC,
    Floats,
    Part,
    Parts,
    Sep,
    Symbolic,
    Truth,
    Undecided,
    bits_of,
    bounds_of,
    classes,
    known_to_be,
    make,
    split,
)


def sums(value: Any, true: bool = False) -> tuple[int, Parts, tuple[int, int]]:
    """(c, parts, slack) of a Sep or an integer array of one block, (1, 1) or (1, T), or a number.

    Modulo the size of its type, unless it must be ``true``: then as its type reads it.
    """
    if isinstance(value, Sep):
        return value.c, value.parts, value.slack
    if isinstance(value, int):
        return value, NO_PARTS, (0, 0)
    array = np.asarray(value)
    if array.dtype.kind not in "iub":
        raise Undecided("not an integer")
    if array.size == 1:
        return int(array.item()), NO_PARTS, (0, 0)
    if array.shape[0] != 1:
        raise Undecided("more than one block")
    if true and array.dtype == np.uint64 and int(array.max()) >> 63:
        raise Undecided("a number of 64 bits")
    numbers = array[0].astype(np.int64)
    if not true and array.dtype == np.uint32 and int(numbers.max()) - int(numbers.min()) >= 1 << 31:
        numbers = array[0].view(np.int32).astype(np.int64)
    return 0, (Part(numbers), None, None, None), (0, 0)


def _plus(a: Part | None, b: Part | None, sign: int) -> Part | None:
    if b is None:
        return a
    if a is None:
        return b if sign > 0 else Part(-b.values)
    return Part(a.values + b.values if sign > 0 else a.values - b.values)


def _combine(dtype: Any, a: Any, b: Any, sign: int) -> Any:
    c, parts, slack = sums(a)
    d, others, extra = sums(b)
    joined = tuple(_plus(p, q, sign) for p, q in zip(parts, others, strict=True))
    low, high = extra if sign > 0 else (-extra[1], -extra[0])
    return make(dtype, c + sign * d, joined, (slack[0] + low, slack[1] + high))  # type: ignore[arg-type]


def _scaled(dtype: Any, value: Any, factor: int) -> Any:
    c, parts, slack = sums(value)
    most = max([abs(c), *(max(abs(p.low), abs(p.high)) for p in parts if p is not None)])
    if most * abs(factor) > LIMIT:
        return known_to_be(dtype)
    scaled = tuple(None if p is None else Part(p.values * factor) for p in parts)
    ends = sorted((slack[0] * factor, slack[1] * factor))
    return make(dtype, c * factor, scaled, (ends[0], ends[1]))  # type: ignore[arg-type]


def _type_of(*inputs: Any) -> np.dtype[Any]:
    kinds = [i.dtype for i in inputs if not isinstance(i, int | bool) and i.dtype.kind != "b"]
    return np.result_type(*kinds) if kinds else np.dtype(np.uint32)


def _as(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value read as another integer type; widening needs it within its own."""
    if isinstance(value, int):
        return value
    if isinstance(value, Floats):
        value = value.bits().view(value.dtype) if value.dtype.kind != "f" else known_to_be(dtype)
    if isinstance(value, Truth):
        return value.astype(dtype)
    return value.astype(dtype) if value.dtype != dtype else value


def _compare(test: Any, a: Any, b: Any) -> Any:
    kind = _type_of(a, b)
    a, b = _as(a, kind), _as(b, kind)
    a = a.canonical() if isinstance(a, Sep) else a
    b = b.canonical() if isinstance(b, Sep) else b
    c, parts, slack = sums(a, True)
    d, others, extra = sums(b, True)
    c -= d
    if any(max(abs(p.low), abs(p.high)) > LIMIT for p in (*parts, *others) if p is not None):
        raise Undecided("numbers too large to be compared")
    joined = tuple(_plus(p, q, -1) for p, q in zip(parts, others, strict=True))
    kept = []
    for part in joined:
        if part is not None and part.low == part.high:
            c += part.low
            part = None
        kept.append(part)
    low = c + slack[0] - extra[1] + sum(p.low for p in kept if p is not None)
    high = c + slack[1] - extra[0] + sum(p.high for p in kept if p is not None)
    found = int(classes(test, np.zeros(1, object), low, high)[0])
    if found != 2:
        return np.full((1, 1), bool(found))
    if (slack, extra) != ((0, 0), (0, 0)):
        return Truth()
    answer = split(test, c, (kept[0], kept[1], kept[2], kept[3]))
    if answer is not None:
        return np.full((1, 1), answer)
    assert kept[0] is not None
    return test(kept[0].values + c, 0)[None]


def _constant(value: Any) -> int | None:
    if isinstance(value, int):
        return value
    if isinstance(value, SYMBOLIC):
        return None
    array = np.asarray(value)
    return int(array.item()) if array.size == 1 else None


def _multiply(a: Any, b: Any) -> Any:
    kind = _type_of(a, b)
    a, b = _as(a, kind), _as(b, kind)
    for one, other in ((a, b), (b, a)):
        factor = _constant(other)
        if factor is not None:
            if kind.kind == "u" and factor >> (bits_of(kind) - 1):
                factor -= 1 << bits_of(kind)
            return _scaled(kind, one, factor)
    bounds = []
    for value in (a, b):
        value = value.canonical() if isinstance(value, Sep) else value
        bounds.append((value.low, value.high) if isinstance(value, Sep) else (int(value.min()), int(value.max())))
    ends = [x * y for x in bounds[0] for y in bounds[1]]
    low, high = min(ends), max(ends)
    if high - low >= 1 << bits_of(kind) or max(abs(low), abs(high)) > LIMIT:
        return known_to_be(kind)
    return Sep(kind, low, NO_PARTS, (0, high - low))


def _left(a: Any, b: Any) -> Any:
    steps = _constant(b)
    if steps is None or not isinstance(a, Sep):
        return known_to_be(a.dtype)
    if steps >= bits_of(a.dtype):
        return np.zeros((1, 1), a.dtype)
    return _scaled(a.dtype, a, 1 << steps)


def _divided(
    value: Sep, k: int
) -> tuple[tuple[int, list[Part | None]], tuple[int, list[Part | None], tuple[int, int]]]:
    """A canonical value as ``2**k * whole + rest``: (c, parts) of whole and (c, parts, slack) of rest."""
    whole: list[Part | None] = []
    rest: list[Part | None] = []
    for part in value.parts:
        if part is not None and part.zeros >= k:
            whole.append(Part(part.values >> k))
            rest.append(None)
        else:
            whole.append(None)
            rest.append(part)
    c = value.c & ((1 << k) - 1)
    return (value.c >> k, whole), (c, rest, value.slack)


def _floor(value: Sep, k: int) -> tuple[Any, Any]:
    """(value >> k, value modulo 2**k) as (c, parts, slack) each; None where that is no sum."""
    (whole_c, whole), (c, rest, slack) = _divided(value, k)
    low = c + slack[0] + sum(p.low for p in rest if p is not None)
    high = c + slack[1] + sum(p.high for p in rest if p is not None)
    window = low >> k
    if window == high >> k:  # the rest never carries
        return (whole_c + window, whole, (0, 0)), (c - (window << k), rest, slack)
    used = [n for n, p in enumerate(rest) if p is not None]
    if len(used) == 1 and slack == (0, 0):
        part = rest[used[0]]
        assert part is not None
        values = part.values + c
        more = list(whole)
        more[used[0]] = _plus(whole[used[0]], Part(values >> k), 1)
        low_bits: list[Part | None] = [None] * 4
        low_bits[used[0]] = Part(values & ((1 << k) - 1))
        return (whole_c, more, (0, 0)), (0, low_bits, (0, 0))
    if not any(whole) and k < 62:  # an interval of what is left
        return (whole_c + window, whole, (0, (high >> k) - window)), (0, [None] * 4, (0, (1 << k) - 1))
    return None, (0, [None] * 4, (0, (1 << k) - 1))


def _right(a: Any, b: Any) -> Any:
    steps = _constant(b)
    if steps is None or not isinstance(a, Sep):
        return known_to_be(a.dtype)
    steps = min(steps, bits_of(a.dtype) - 1)
    if steps == 0:
        return a
    whole, _ = _floor(a.canonical(), steps)
    if whole is None:
        value = a.canonical()
        low, high = value.low >> steps, value.high >> steps
        return Sep(a.dtype, low, NO_PARTS, (0, high - low))
    return make(a.dtype, whole[0], tuple(whole[1]), whole[2])


def _lowbits_of(value: Sep, k: int) -> Any:
    _, rest = _floor(value.canonical(), k)
    return make(value.dtype, rest[0], tuple(rest[1]), rest[2])


def _and(a: Any, b: Any) -> Any:
    kind = _type_of(a, b)
    a, b = _as(a, kind), _as(b, kind)
    if not isinstance(a, Sep):
        a, b = b, a
    mask = _constant(b)
    if mask is None:
        return known_to_be(kind)
    mask &= (1 << bits_of(kind)) - 1
    if mask == 0:
        return np.zeros((1, 1), kind)
    first = (mask & -mask).bit_length() - 1
    last = mask.bit_length()
    if mask != (1 << last) - (1 << first):
        return Sep(kind, 0, NO_PARTS, (0, mask)) if kind.kind == "u" else known_to_be(kind)
    value = a if last == bits_of(kind) else _lowbits_of(a, last)
    if first == 0 or not isinstance(value, Sep):
        return value if first == 0 else value & kind.type(mask - (1 << bits_of(kind)) if kind.kind == "i" else mask)
    if value.slack != (0, 0):
        value = value.canonical()
        low, high = value.low >> first << first, value.high >> first << first
        if not any(value.parts):
            return Sep(kind, low, NO_PARTS, (0, high - low))
    return _combine(kind, value, _lowbits_of(value, first), -1)


def _or(a: Any, b: Any) -> Any:
    kind = _type_of(a, b)
    a, b = _as(a, kind), _as(b, kind)
    for one, other in ((a, b), (b, a)):
        if _constant(one) == 0:
            return other
        zeros = _zerobits_of(one)
        small = other.canonical() if isinstance(other, Sep) else other
        low, high = (small.low, small.high) if isinstance(small, Sep) else (int(small.min()), int(small.max()))
        if zeros and low >= 0 and high < 1 << min(zeros, 63):
            return _combine(kind, one, small, 1)
    for one, other in ((a, b), (b, a)):
        if _constant(other) is not None:
            shared = _and(one, other)
            return _combine(kind, _combine(kind, one, other, 1), shared, -1)
    return known_to_be(kind)


def _zerobits_of(value: Any) -> int:
    """Low bits that are zero in the value, whatever the block and thread."""
    c, parts, slack = sums(value)
    if slack != (0, 0):
        return 0
    zeros = [p.zeros for p in parts if p is not None]
    if c:
        zeros.append((c & -c).bit_length() - 1)
    return min(zeros, default=64)


def _xor(a: Any, b: Any) -> Any:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Floats) and one.dtype.kind == "u" and _constant(other) == 0x80000000:
            return Floats(None if one.bounds is None else (-one.bounds[1], -one.bounds[0]), one.dtype)
    kind = _type_of(a, b)
    a, b = _as(a, kind), _as(b, kind)
    for one, other in ((a, b), (b, a)):
        mask = _constant(other)
        if mask is not None and isinstance(one, Sep):
            if mask & ((1 << bits_of(kind)) - 1) == (1 << bits_of(kind)) - 1:
                return _combine(kind, -1, one, -1)
            shared = _and(one, other)
            return _combine(kind, _combine(kind, one, other, 1), _scaled(kind, shared, 2), -1)
    return known_to_be(kind)


def _without_sign(value: Floats) -> Floats:
    if value.bounds is None:
        return value
    low, high = value.bounds
    if low >= 0:
        return Floats((np.abs(low), high), value.dtype)
    if high <= 0:
        return Floats((np.abs(high), -low), value.dtype)
    return Floats((np.float32(0), max(-low, high)), value.dtype)


def _bitwise(ufunc: Any, a: Any, b: Any) -> Any:
    if ufunc is np.bitwise_and:
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Floats) and one.dtype.kind == "u" and _constant(other) == 0x7FFFFFFF:
                return _without_sign(one)
        return _and(a, b)
    return _or(a, b) if ufunc is np.bitwise_or else _xor(a, b)


def _extreme(ufunc: Any, a: Any, b: Any) -> Any:
    kind = _type_of(a, b)
    return choose(_compare(np.less if ufunc is np.minimum else np.greater, _as(a, kind), _as(b, kind)), a, b)


def _logical(ufunc: Any, a: Any, b: Any) -> Any:
    """Of predicates: a known one may decide."""
    for one in (a, b):
        if not isinstance(one, SYMBOLIC):
            array = np.asarray(one)
            if ufunc in (np.logical_and, np.bitwise_and) and not array.any():
                return np.zeros((1, 1), bool)
            if ufunc in (np.logical_or, np.bitwise_or) and array.all():
                return np.ones((1, 1), bool)
    return Truth()


_COMPARISONS = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}
_BITWISE = {np.bitwise_and, np.bitwise_or, np.bitwise_xor}
_TRUTH = {np.logical_and, np.logical_or, np.logical_xor, np.logical_not, np.isfinite, np.isnan, np.signbit, np.isinf}
_BINARY: dict[Any, Callable[[Any, Any], Any]] = {
    np.multiply: _multiply,
    np.left_shift: _left,
    np.right_shift: _right,
}


def _dispatch(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if method != "__call__" or options:
        raise Undecided(f"{ufunc.__name__}.{method}")
    inputs = tuple(i.item() if isinstance(i, np.bool) else i for i in inputs)
    if any(isinstance(i, Truth) or _type_is_bool(i) for i in inputs) and (
        ufunc in _BITWISE or ufunc in _TRUTH or ufunc is np.invert
    ):
        return Truth() if len(inputs) == 1 else _logical(ufunc, *inputs)
    if ufunc in _TRUTH:
        return Truth()
    if any(getattr(i, "dtype", np.dtype(int)).kind == "f" or isinstance(i, float) for i in inputs):
        if ufunc in _COMPARISONS:
            return Truth()
        kinds = [i.dtype for i in inputs if getattr(i, "dtype", np.dtype(int)).kind == "f"]
        return Floats(None, np.result_type(*kinds) if kinds else np.float32)
    if ufunc in _COMPARISONS:
        return _compare(ufunc, *inputs)
    if ufunc in _BITWISE:
        return _bitwise(ufunc, *inputs)
    if ufunc in (np.add, np.subtract):
        kind = _type_of(*inputs)
        return _combine(kind, _as(inputs[0], kind), _as(inputs[1], kind), 1 if ufunc is np.add else -1)
    if ufunc in (np.minimum, np.maximum):
        return _extreme(ufunc, *inputs)
    value = inputs[0]
    if ufunc in (np.invert, np.negative, np.absolute):
        value = _as(value, value.dtype)
        if ufunc is np.invert:
            return _combine(value.dtype, -1, value, -1)
        if ufunc is np.negative:
            return _combine(value.dtype, 0, value, -1)
        return choose(_compare(np.less, value, 0), _combine(value.dtype, 0, value, -1), value)
    if ufunc in _BINARY:
        if isinstance(value, Floats | Truth):
            value = _as(value, _type_of(value))
        return _BINARY[ufunc](value, inputs[1])
    raise Undecided(f"the operation {ufunc.__name__}")


def _dispatch_function(function: Any, args: tuple[Any, ...]) -> Any:
    if function is np.where and len(args) == 3:
        return choose(*args)
    raise Undecided("a choice that depends on data")


def choose(mask: Any, yes: Any, no: Any) -> Any:
    """np.where for such values."""
    if not isinstance(mask, Truth):
        array = np.asarray(mask)
        if array.all():
            return yes
        if not array.any():
            return no
        if not isinstance(yes, SYMBOLIC) and not isinstance(no, SYMBOLIC):
            return np.where(array, yes, no)
    if isinstance(yes, Truth) or isinstance(no, Truth) or _type_is_bool(yes):
        return Truth()
    if isinstance(yes, Floats) or isinstance(no, Floats):
        return _float_union(yes, no)
    kind = _type_of(yes, no)
    yes, no = _as(yes, kind), _as(no, kind)
    if not isinstance(mask, Truth):
        c, parts, slack = sums(yes)
        d, others, extra = sums(no)
        if slack == extra == (0, 0) and all(alike(p, q) for p, q in zip(parts[1:], others[1:], strict=True)):
            first = c if parts[0] is None else parts[0].values + c
            second = d if others[0] is None else others[0].values + d
            return make(kind, 0, (Part(np.where(array[0], first, second)), *parts[1:]))
    low, high = 1 << 65, -(1 << 65)
    for value in (yes, no):
        value = value.canonical() if isinstance(value, Sep) else value
        ends = (value.low, value.high) if isinstance(value, Sep) else _ends(value)
        low, high = min(low, ends[0]), max(high, ends[1])
    return Sep(kind, low, NO_PARTS, (0, high - low)) if high - low < LIMIT else known_to_be(kind)


def _ends(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value.min()), int(value.max()))


def _type_is_bool(value: Any) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", np.dtype(int)).kind == "b"


def alike(a: Part | None, b: Part | None) -> bool:
    """Whether two parts hold the same numbers."""
    if a is b:
        return True
    return a is not None and b is not None and np.array_equal(a.values, b.values)


def _float_union(a: Any, b: Any) -> Floats:
    kind = next(v.dtype for v in (a, b) if isinstance(v, Floats))
    first, second = bounds_of(a), bounds_of(b)
    if first is None or second is None:
        return Floats(None, kind)
    return Floats((min(first[0], second[0]), max(first[1], second[1])), kind)


Symbolic.operate, Symbolic.call = staticmethod(_dispatch), staticmethod(_dispatch_function)
