"""Double-precision sums, products and fused multiply-adds under every rounding mode, exact to the last bit.

Lanes of ordinary size go through error-free transformations in NumPy (Knuth's two-sum, Dekker's two-product, the
fused multiply-add by rounding to odd of Boldo and Melquiond); lanes near the ends of the range, where those do not
hold, are computed one by one with Python's integers.
"""

from __future__ import annotations

import math

import numpy as np

from gpusim.sass.numeric import Array, f64, i64, sum_to_odd, two_sum, u64

_SPLITTER = 134217729.0  # 2**27 + 1
_LEAST_PRODUCT, _MOST_PRODUCT, _MOST_FACTOR = 2.0**-900, 2.0**1000, 2.0**990
_BIGGEST = math.ldexp(2.0**53 - 1, 971)


def _stepped(nearest: Array, error: Array, mode: str) -> Array:
    """The directed rounding, from the nearest value and the sign of (exact - nearest)."""
    if mode == "RN":
        return nearest
    if mode == "RM":
        return np.where(error < 0, np.nextafter(nearest, -np.inf), nearest)
    if mode == "RP":
        return np.where(error > 0, np.nextafter(nearest, np.inf), nearest)
    return np.where(error * np.sign(nearest) < 0, np.nextafter(nearest, 0.0), nearest)


def add64(a: Array, b: Array, mode: str = "RN") -> Array:
    """a + b."""
    if mode == "RN":
        return a + b
    total, error = two_sum(a, b)
    overflow = np.isinf(total) & np.isfinite(a) & np.isfinite(b)
    result = _stepped(total, np.where(overflow, -np.sign(total), error), mode)
    if mode == "RM":
        opposite = (total == 0) & (np.signbit(a) != np.signbit(b))
        result = np.where(opposite, -0.0, result)
    return result


def _split(value: Array) -> tuple[Array, Array]:
    scaled = value * _SPLITTER
    high = scaled - (scaled - value)
    return high, value - high


def _product_error(a: Array, b: Array, product: Array) -> Array:
    """The exact a*b - product."""
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _ordinary(a: Array, b: Array, product: Array) -> Array:
    """Lanes whose product and its error are far from overflow and underflow."""
    size = np.abs(product)
    fits = (size > _LEAST_PRODUCT) & (size < _MOST_PRODUCT)
    return fits & (np.abs(a) < _MOST_FACTOR) & (np.abs(b) < _MOST_FACTOR)


def mul64(a: Array, b: Array, mode: str = "RN") -> Array:
    """a * b."""
    product = a * b
    if mode == "RN":
        return product
    ordinary = _ordinary(a, b, product)
    result = np.where(ordinary, _stepped(product, _product_error(a, b, product), mode), product)
    doubtful = ~ordinary & (a != 0) & (b != 0) & np.isfinite(a) & np.isfinite(b)
    return _one_by_one(result, doubtful, (a, b, np.zeros((1, 1))), mode)


def fma64(a: Array, b: Array, c: Array, mode: str = "RN") -> Array:
    """a * b + c with a single rounding."""
    product = a * b
    ordinary = _ordinary(a, b, product) & (np.abs(c) < _MOST_PRODUCT)
    error = _product_error(a, b, product)
    middle, low = two_sum(c, error)
    high, rest = two_sum(product, middle)
    last = sum_to_odd(low, rest)
    result = add64(high, last, mode)
    if mode == "RM":  # a sum of exactly 0 comes from cancellation
        result = np.where((result == 0) & ordinary, -0.0, result)
    if ordinary.all():
        return result
    finite = np.isfinite(a) & np.isfinite(b)
    known = ~(finite & np.isfinite(c)) | (a == 0) | (b == 0)
    plain = np.where(finite & ~np.isfinite(c), c, add64(product, c, mode))
    result = np.where(known, plain, result)
    return _one_by_one(result, ~(ordinary | known), (a, b, c), mode)


def _one_by_one(result: Array, lanes: Array, operands: tuple[Array, Array, Array], mode: str) -> Array:
    """Replace the given lanes of ``result`` by exactly computed ones."""
    if not lanes.any():
        return result
    lanes = np.broadcast_to(lanes, result.shape)
    a, b, c = (np.broadcast_to(x, result.shape)[lanes].tolist() for x in operands)
    result = result.copy()
    result[lanes] = [_exact_fma(*values, mode) for values in zip(a, b, c, strict=True)]
    return result


def _integer(value: float) -> tuple[int, int]:
    """(m, e) with value = m * 2**e."""
    fraction, exponent = math.frexp(value)
    return int(math.ldexp(fraction, 53)), exponent - 53


def _exact_fma(a: float, b: float, c: float, mode: str) -> float:
    """a*b + c for finite a, b, c, of which a and b are not 0."""
    (ma, ea), (mb, eb), (mc, ec) = _integer(a), _integer(b), _integer(c)
    exponent = min(ea + eb, ec) if mc else ea + eb
    total = (ma * mb) << (ea + eb - exponent)
    if mc:
        total += mc << (ec - exponent)
    if total == 0:
        return -0.0 if mode == "RM" else 0.0
    return round_integer(total, exponent, mode)


def round_integer(value: int, exponent: int, mode: str) -> float:
    """value * 2**exponent (not 0) as the double that the rounding mode gives."""
    negative, size = value < 0, abs(value)
    last = max(size.bit_length() - 53 + exponent, -1074)  # weight of the result's last bit
    shift = last - exponent
    if shift <= 0:
        whole = size << -shift
    else:
        whole, rest = size >> shift, size & ((1 << shift) - 1)
        half = 1 << (shift - 1)
        if mode == "RN":
            whole += rest > half or (rest == half and whole & 1)
        elif rest and mode == ("RM" if negative else "RP"):
            whole += 1
    if whole.bit_length() + last > 1024:
        away = mode == "RN" or mode == ("RM" if negative else "RP")
        result = math.inf if away else _BIGGEST
    else:
        result = math.ldexp(whole, last)
    return -result if negative else result


def integer_to_f64(value: Array, mode: str = "RN") -> Array:
    """32- or 64-bit integers (signed or not) as doubles under a rounding mode."""
    high, low = _halves(value)
    return add64(high, low, mode)


def integer_to_odd(value: Array) -> Array:
    """Integers as doubles rounded to odd, for a further rounding to a narrower type."""
    return sum_to_odd(*_halves(value))


def _halves(value: Array) -> tuple[Array, Array]:
    """Two doubles whose sum is exactly the integer."""
    if value.dtype.itemsize < 8:
        return value.astype(f64), np.zeros((1, 1))
    low = value & value.dtype.type(0x7FF)
    return (value - low).astype(f64), low.astype(f64)


def f64_to_integer(value: Array, bits: int, signed: bool) -> Array:
    """Integral doubles clamped to the type's range, as uint64 (two's complement); NaN must be handled apart."""
    if signed:
        lowest, above = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1)
    else:
        lowest, above = 0.0, 2.0**bits
    inside = (value >= lowest) & (value < above)
    safe = np.where(inside, value, 0.0)
    whole = safe.astype(i64).view(u64) if signed else safe.astype(u64)
    most = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
    least = -(1 << (bits - 1)) & (2**64 - 1) if signed else 0
    return np.where(inside, whole, np.where(value > 0, u64(most), u64(least)))
