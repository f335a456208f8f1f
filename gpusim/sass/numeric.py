"""Number rules as named helpers: 64-bit pairs, shifts, rounding, fused multiply-add, flush to zero, NaN.

All take and return NumPy arrays of any shape that broadcasts; nothing here knows of registers or threads.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np

from gpusim.native import Loops

u32, i32, f32 = np.uint32, np.int32, np.float32
u64, i64, f64 = np.uint64, np.int64, np.float64
Array = np.ndarray[Any, Any]

LITTLE = sys.byteorder == "little"
SIGN32 = u32(0x80000000)
HALF = i32(-(2**31))
QUIET64 = u64(1 << 51)
CANONICAL_NAN = u32(0x7FFFFFFF)
ONE64 = u64(1)
MASK32 = u64(0xFFFFFFFF)
SMALLEST_NORMAL32 = f32(2.0**-126)
# bits of 2**-125 and of infinity, shifted left by one
TWICE_NORMAL_TWICE, INFINITY_TWICE = u32(2 << 24), u32(0xFF000000)


def pair(low: Array, high: Array) -> Array:
    """The 64-bit value of a register pair."""
    if type(high) is not np.ndarray:
        return low.astype(u64) | (high.astype(u64) << u64(32))
    if type(low) is not np.ndarray and high.shape[0] == 1 < high.shape[1] and bool((high == high[0, 0]).all()):
        high = high[:, :1]  # so that what is kept in parts, and no array, can stay so
    if type(low) is np.ndarray and low.shape == high.shape and LITTLE:
        words = np.empty((*low.shape, 2), u32)
        words[..., 0], words[..., 1] = low, high
        joined: Array = words.view(u64)[..., 0]
        return joined
    return low.astype(u64) | (high.astype(u64) << u64(32))


def low_word(value: Array) -> Array:
    return value.astype(u32)


def high_word(value: Array) -> Array:
    return (value >> u64(32)).astype(u32)


def select(mask: Array, yes: Array, no: Array) -> Array:
    """np.where that keeps the smaller shape when the mask is one value."""
    if mask.size == 1:
        return yes if mask.item() else no
    if mask.shape[0] == 1 and max(yes.size, no.size) > FEW:
        columns = progression(mask[0])
        if columns is not None:
            shape = np.broadcast_shapes(mask.shape, yes.shape, no.shape)
            result: Array = np.empty(shape, np.result_type(yes, no))
            result[...] = no
            result[:, columns] = yes[:, columns] if yes.shape[1] > 1 else yes
            return result
    return either(mask, yes, no)


FEW = 4096  # elements from which on slices are faster than masks, and bits than np.where
_PLAIN = (np.ndarray, np.generic, int)
_WORDS: dict[int, tuple[Any, Any]] = {1: (np.int8, np.uint8), 4: (i32, u32), 8: (i64, u64)}


def either(mask: Array, yes: Any, no: Any) -> Array:
    """np.where, by bits where arrays are large: its branch for each element takes several times as long if masks are
    irregular."""
    if type(mask) is not np.ndarray or not (isinstance(yes, _PLAIN) and isinstance(no, _PLAIN)):
        return np.where(mask, yes, no)
    yes, no = np.asarray(yes), np.asarray(no)
    kind = yes.dtype
    if max(mask.size, yes.size, no.size) < FEW or kind != no.dtype or kind.itemsize not in _WORDS:
        return np.where(mask, yes, no)
    signed, word = _WORDS[kind.itemsize]
    chosen = np.negative(mask.view(np.int8)).astype(signed, copy=False).view(word)  # all ones where the mask is set
    yes, no = yes.view(word), no.view(word)
    bits = (yes ^ no) & chosen
    if bits.shape == no.shape or no.ndim == 0:
        bits ^= no
    else:
        bits = bits ^ no
    return bits.view(kind)


def progression(mask: Array) -> slice | None:
    """The set places of a row as a slice, if they are equally far apart."""
    places = np.flatnonzero(mask)
    if len(places) < 2:
        return slice(places[0], places[0] + 1) if len(places) else slice(0, 0)
    first, last = int(places[0]), int(places[-1])
    step = int(places[1]) - first
    if first + step * (len(places) - 1) != last or (step > 1 and bool((np.diff(places) != step).any())):
        return None
    return slice(first, last + 1, step)


def shift_left(value: Array, amount: Array) -> Array:
    """32-bit left shift; amounts over 31 give 0."""
    wide = value.astype(u64) << np.minimum(amount, u32(32)).astype(u64)
    return wide.astype(u32)


def canonical(result: Array) -> Array:
    """Bits of a float32 result with every NaN made the hardware's one NaN (0x7fffffff)."""
    bits = result.view(u32)
    nan = result != result
    if nan.any():
        bits = np.where(nan, CANONICAL_NAN, bits)
    return bits


def flush(value: Array) -> Array:
    """Subnormal float32 values become zero of the same sign (.FTZ)."""
    tiny = np.abs(value) < SMALLEST_NORMAL32
    if not tiny.any():
        return value
    return np.where(tiny, np.copysign(f32(0), value), value)


def saturate(value: Array) -> Array:
    """Clamp float32 to [0, 1]; NaN becomes 0 (.SAT)."""
    return np.where(value > 0, np.minimum(value, f32(1)), f32(0)).astype(f32)


def _to_odd(total: Array, error: Array) -> Array:
    """Round-to-odd of the exact sum ``total + error`` (both float64, |error| at most half an ulp of total)."""
    bits = total.view(i64)
    inexact = (error != 0) & ((bits & 1) == 0) & np.isfinite(total)
    # step one ulp towards the error's side; the magnitude grows when signs agree
    grows = (error > 0) == (total > 0)
    return np.where(inexact, bits + np.where(grows, 1, -1), bits).view(f64)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """(a + b rounded to nearest, the exact error of that) in float64; the error is 0 where it is not finite."""
    total = a + b
    virtual = total - a
    error = (a - (total - virtual)) + (b - virtual)
    return total, np.where(np.isfinite(error), error, 0.0)


def _narrowed(value: Array, kind: Any, mode: str) -> Array:
    """float64 to a narrower NumPy float type under a rounding mode: RN, RZ, RM (down), RP (up)."""
    nearest = value.astype(kind)
    if mode == "RN":
        return nearest
    back = nearest.astype(f64)
    if mode == "RM":
        step, target = back > value, kind(-np.inf)
    elif mode == "RP":
        step, target = back < value, kind(np.inf)
    else:
        step, target = np.abs(back) > np.abs(value), kind(0)
    return np.where(step & np.isfinite(value), np.nextafter(nearest, target), nearest).astype(kind)


def round_f64_to_f32(value: Array, mode: str) -> Array:
    """float64 to float32 under a rounding mode."""
    return _narrowed(value, f32, mode)


def round_f64_to_f16(value: Array, mode: str = "RN") -> Array:
    """float64 to the bits (uint16) of half precision; NaN is 0x7fff."""
    half = _narrowed(value, np.float16, mode)
    return np.where(half != half, np.uint16(0x7FFF), half.view(np.uint16))


def round_f64_to_bf16(value: Array, mode: str = "RN") -> Array:
    """float64 to the bits (uint16) of bfloat16; NaN is 0x7fff."""
    kept = round_f64_to_f32(value, "RZ")
    inexact = (kept.astype(f64) != value) & np.isfinite(value)
    bits = kept.view(u32) | inexact.astype(u32)  # rounded to odd: a second rounding to 8 bits is then exact
    negative = bits >> u32(31)
    step: Any = {
        "RN": u32(0x7FFF) + (bits >> u32(16) & u32(1)),
        "RZ": u32(0),
        "RM": negative * u32(0xFFFF),
        "RP": (u32(1) - negative) * u32(0xFFFF),
    }[mode]
    return np.where(value != value, u32(0x7FFF), (bits + step) >> u32(16)).astype(np.uint16)


def widen_f16(bits: Array) -> Array:
    """The float64 value of half-precision bits in the low half of each word."""
    return bits.astype(np.uint16).view(np.float16).astype(f64)


def widen_bf16(bits: Array) -> Array:
    """The float64 value of bfloat16 bits in the low half of each word."""
    return (bits.astype(u32) << u32(16)).view(f32).astype(f64)


def sum_to_odd(a: Array, b: Array) -> Array:
    """a + b (float64) rounded to odd: what a further rounding to at most 51 bits needs to be exact."""
    total, error = two_sum(a, b)
    return _to_odd(total, error)


def _zero_sign(total: Array, a: Array, b: Array, mode: str) -> Array:
    """Rounding down, an exact sum of 0 of terms with different signs is -0."""
    if mode != "RM":
        return total
    zero = total == 0
    if not zero.any():
        return total
    return np.where(zero & (np.signbit(a) != np.signbit(b)), np.copysign(total, -1.0), total)


def _directed_sum(a: Array, b: Array, mode: str) -> Array:
    """a + b (float64) as float32 under RZ, RM or RP.

    Which of two neighbours it is, the sum rounded to float64 tells, unless that is a float32: then its error does.
    """
    total = _zero_sign(a + b, a, b, mode)
    nearest = total.astype(f32)
    back = nearest.astype(f64)
    step = np.abs(back) > np.abs(total) if mode == "RZ" else back > total if mode == "RM" else back < total
    same = back == total
    if same.any():
        same &= np.isfinite(total) & (total != 0)
    if same.any():
        first, second = (np.broadcast_to(x, total.shape)[same] for x in (a, b))
        error = two_sum(first, second)[1]
        beyond = error * np.sign(total[same]) < 0 if mode == "RZ" else error < 0 if mode == "RM" else error > 0
        step = np.array(np.broadcast_to(step, total.shape))
        step[same] = beyond
    target = f32(0) if mode == "RZ" else f32(-np.inf) if mode == "RM" else f32(np.inf)
    return np.where(step & np.isfinite(total), np.nextafter(nearest, target), nearest)


def fma32(a: Array, b: Array, c: Array, mode: str = "RN") -> Array:
    """float32 a*b+c with a single rounding; under round-to-nearest every NaN is the hardware's one.

    The product of two float32 is exact in float64; the sum is rounded to odd before the last rounding, where that
    can matter (a tie of the float32 result, a subnormal result, a directed mode).
    """
    product = a.astype(f64) * b.astype(f64)
    if mode != "RN":
        return _directed_sum(product, c.astype(f64), mode)
    return fused_sum(product, c).view(f32)


def fused_sum(product: Array, c: Array, into: tuple[Array, Array, Array] | None = None) -> Array:
    """Bits of ``product`` (the exact product of two float32, as float64) + ``c`` (float32), NaN made canonical.

    ``into``: a float64 and a uint32 array to be overwritten and a uint32 one for the result, all of its shape.
    """
    if into is None:
        total = product + c.astype(f64)
        word = total.view(u64).astype(u32)
        bits = np.empty(total.shape, u32)
    else:
        total, word, bits = into
        if c.size == 1:
            np.add(product, c.astype(f64), out=total)
        else:
            np.copyto(total, c)
            np.add(product, total, out=total)
        np.copyto(word, total.view(u64), casting="unsafe")
    result = bits.view(f32)
    np.copyto(result, total, casting="same_kind")
    # the 29 bits that are lost, at the top of a word: one half of the last place is the least int32
    np.left_shift(word, u32(3), out=word)
    if word.view(i32).min(initial=0) == HALF:
        _settle(result, product, c, word == SIGN32)
    np.left_shift(bits, u32(1), out=word)  # without the sign, numbers compare as their bits do
    if word.min(initial=INFINITY_TWICE) <= TWICE_NORMAL_TWICE:
        small = word <= TWICE_NORMAL_TWICE
        small &= total != 0  # a float64 sum of 0 is exact
        if small.any():
            _settle(result, product, c, small)
    if word.max(initial=0) > INFINITY_TWICE:
        bits[word > INFINITY_TWICE] = CANONICAL_NAN
    return bits


def _settle(result: Array, a: Array, b: Array, where: Array) -> None:
    """Round a + b (a float64) to float32 once, at some places of the result."""
    places = np.flatnonzero(where)
    terms = (x if x.shape == where.shape else np.broadcast_to(x, where.shape) for x in (a, b))
    first, second = (x.take(places).astype(f64) for x in terms)
    np.put(result, places, sum_to_odd(first, second).astype(f32))


class _Scratch(threading.local):
    """Arrays to be overwritten, so that they are the same memory each time."""

    def __init__(self) -> None:
        self.arrays = (np.empty(0), np.empty(0), np.empty(0, u32))

    def take(self, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """Two arrays of float64 and one of uint32."""
        count = math.prod(shape)
        if self.arrays[0].size < count:
            self.arrays = (np.empty(count), np.empty(count), np.empty(count, u32))
        first, second, word = (array[:count].reshape(shape) for array in self.arrays)
        return first, second, word


scratch = _Scratch()
LEAST_SCRATCH, MOST_SCRATCH = 1 << 12, 1 << 17  # numbers for which it pays


def fused_bits(a: Array, b: Array, c: Array) -> Array:
    """Bits of a*b+c with a single rounding to nearest, NaN made canonical."""
    loop = Loops.fused
    if not all(isinstance(x, np.ndarray) for x in (a, b, c)):
        return fused_sum(a.astype(f64) * b.astype(f64), c)
    shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
    if loop is None:
        if not LEAST_SCRATCH <= math.prod(shape) <= MOST_SCRATCH:
            return fused_sum(a.astype(f64) * b.astype(f64), c)
        product, total, word = scratch.take(shape)
        if a.size == 1:
            a, b = b, a
        np.copyto(product, a)
        if b.size == 1:
            np.multiply(product, b.astype(f64), out=product)
        else:
            np.copyto(total, b)
            np.multiply(product, total, out=product)
        return fused_sum(product, c, (total, word, np.empty(shape, u32)))
    a, b, c = (np.ascontiguousarray(x if x.shape == shape else np.broadcast_to(x, shape)) for x in (a, b, c))
    bits: Array = np.empty(shape, u32)
    loop(a.reshape(-1), b.reshape(-1), c.reshape(-1), bits.reshape(-1))
    return bits


def add32(a: Array, b: Array, mode: str = "RN") -> Array:
    """float32 sum under a rounding mode."""
    if mode == "RN":
        return a + b
    return _directed_sum(a.astype(f64), b.astype(f64), mode)


def mul32(a: Array, b: Array, mode: str = "RN") -> Array:
    """float32 product under a rounding mode (exact in float64, then rounded once)."""
    if mode == "RN":
        return a * b
    return round_f64_to_f32(a.astype(f64) * b.astype(f64), mode)


def minimum(a: Array, b: Array) -> Array:
    """The smaller float: -0 is below +0, a NaN loses against a number."""
    result = np.fmin(a, b)
    if not (result == 0).any():
        return result
    equal = a == b
    return np.where(equal & np.signbit(a), a, np.where(equal & np.signbit(b), b, result))


def maximum(a: Array, b: Array) -> Array:
    """The larger float, by the same order."""
    result = np.fmax(a, b)
    if not (result == 0).any():
        return result
    equal = a == b
    return np.where(equal & ~np.signbit(a), a, np.where(equal & ~np.signbit(b), b, result))


def choose_extreme(least: Array, a: Array, b: Array) -> Array:
    """minimum(a, b) where ``least`` holds, maximum(a, b) elsewhere."""
    if least.size == 1:
        return minimum(a, b) if least.item() else maximum(a, b)
    return np.where(least, minimum(a, b), maximum(a, b))


def canonical64(result: Array, *operands: Array) -> Array:
    """Bits of a float64 result: a NaN is the first of the operands that is one, made quiet, else 0xfff8000000000000.

    ``operands`` in the hardware's order (second factor or addend, then the third operand, then the first), as they are
    in the registers: minus and magnitude marks do not change the sign of a NaN.  Recorded on an H200
    (tests/data/h200_edges.npz.xz).
    """
    bits = result.view(u64)
    nan = result != result
    if nan.any():
        made: Array = np.full((1, 1), 0xFFF8000000000000, u64)
        for operand in reversed(operands):
            made = np.where(operand != operand, operand.view(u64) | QUIET64, made)
        bits = np.where(nan, made, bits)
    return bits


def narrow_nan(value: Array, mantissa: int) -> Array:
    """A float64 NaN as a narrower type with 23 (single), 10 (half) or 7 (bfloat16) mantissa bits, as words.

    The sign and the payload's upper bits stay, and it is made quiet.  Recorded on an H200, as for canonical64.
    """
    bits = value.view(u64)
    exponent = 0x7C00 if mantissa == 10 else 0xFF << mantissa
    width = 32 if mantissa == 23 else 16
    kept = (bits & u64((1 << 52) - 1)) >> u64(52 - mantissa) | (bits >> u64(63)) << u64(width - 1)
    return kept.astype(u32) | u32(exponent | 1 << (mantissa - 1))


def logic3(a: Array, b: Array, c: Array, table: int) -> Array:
    """Bitwise function of three words by truth table (a = 0xF0, b = 0xCC, c = 0xAA)."""
    known = _LOGIC.get(table)
    if known is not None:
        return known(a, b, c)
    result: Array | None = None
    for index in range(8):
        if table >> index & 1:
            term = (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
            result = term if result is None else result | term
    return np.zeros((1, 1), u32) if result is None else result


_LOGIC: dict[int, Any] = {
    0xC0: lambda a, b, c: a & b,
    0xFC: lambda a, b, c: a | b,
    0x3C: lambda a, b, c: a ^ b,
    0x33: lambda a, b, c: ~b,
    0x0F: lambda a, b, c: ~a,
    0xF0: lambda a, b, c: a,
    0xCC: lambda a, b, c: b,
    0xAA: lambda a, b, c: c,
    0x30: lambda a, b, c: a & ~b,
    0xF8: lambda a, b, c: a | (b & c),
    0xFE: lambda a, b, c: a | b | c,
    0x80: lambda a, b, c: a & b & c,
    0x96: lambda a, b, c: a ^ b ^ c,
    0xEA: lambda a, b, c: (a & b) | c,
    0xE2: lambda a, b, c: (a & b) | (c & ~b),
    0xCA: lambda a, b, c: (a & b) | (~a & c),
    0x78: lambda a, b, c: a ^ (b & c),
    0x6A: lambda a, b, c: (a & b) ^ c,
}


def logic3_bool(a: Array, b: Array, c: Array, table: int) -> Array:
    """The same for predicates."""
    result: Array = np.zeros((1, 1), bool)
    for index in range(8):
        if table >> index & 1:
            result = result | ((a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c))
    return result
