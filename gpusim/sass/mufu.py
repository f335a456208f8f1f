"""The hardware's approximations of special functions, bit for bit.

``mufu_h200.npz`` holds, for every mantissa, by how many units in the last place an H200's MUFU differs from the nearest
float32 (by -2 to 1; by far more where a logarithm is close to 0), recorded with rcp.approx.ftz, rsqrt.approx.ftz,
sqrt.approx.ftz, ex2.approx.ftz and lg2.approx.ftz on 2026-11-30 (driver 580.159.04).  What other exponents change was
checked with 200,000 random inputs a function.  Subnormal operands and results are zeros of the same sign.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np

from gpusim.sass.mufu_sine import cosine, sine
from gpusim.sass.mufu_tanh import hyperbolic_tangent
from gpusim.sass.numeric import Array, f32, f64, flush, i32, i64, u32

MANTISSAS = 1 << 23


@cache
def _table(name: str) -> Array:
    with as_file(files("gpusim.sass") / "mufu_h200.npz") as path, np.load(path) as tables:
        return tables[name]


def _corrected(exact: Array, ulps: Array) -> Array:
    """The nearest float32, moved by ``ulps``; as float64."""
    return (exact.astype(f32).view(i32) + ulps).view(f32).astype(f64)


def _parts(x: Array) -> tuple[Array, Array]:
    """(mantissa bits, exponent) of float32 numbers."""
    bits = x.view(u32)
    return (bits & u32(MANTISSAS - 1)).astype(i64), (bits >> u32(23) & u32(255)).astype(i64) - 127


def reciprocal(x: Array) -> Array:
    """1/x."""
    x = flush(x)
    mantissa, exponent = _parts(x)
    size = _corrected(1 / (1 + mantissa / MANTISSAS), _table("rcp")[mantissa])
    result = np.copysign(np.ldexp(size, -exponent), x).astype(f32)
    result = np.where(x == 0, np.copysign(f32(np.inf), x), result)
    result = np.where(np.isinf(x), np.copysign(f32(0), x), result)
    return np.where(np.isnan(x), f32(np.nan), flush(result))


def _root(x: Array, name: str, function: Callable[[Array], Any], sign: int) -> Array:
    """A function of the square root: ``sign`` says whether its exponent goes with or against x's."""
    x = flush(x)
    mantissa, exponent = _parts(x)
    odd = exponent & 1
    size = _corrected(function((1 + mantissa / MANTISSAS) * (1 + odd)), _table(name)[mantissa + MANTISSAS * odd])
    result = np.ldexp(size, sign * ((exponent - odd) >> 1)).astype(f32)
    return np.where((x < 0) | np.isnan(x), f32(np.nan), result)


def reciprocal_root(x: Array) -> Array:
    """1/sqrt(x)."""
    result = _root(x, "rsq", lambda v: 1 / np.sqrt(v), -1)
    flushed = flush(x)
    result = np.where(flushed == 0, np.copysign(f32(np.inf), x), result)
    return np.where(x == np.inf, f32(0), result).astype(f32)


def root(x: Array) -> Array:
    """sqrt(x)."""
    result = _root(x, "sqrt", np.sqrt, 1)
    flushed = flush(x)
    return np.where((flushed == 0) | (x == np.inf), flushed, result).astype(f32)


def power_of_two(x: Array) -> Array:
    """2**x: x becomes a fixed-point number with 23 fractional bits; a negative one its one's complement."""
    wide = np.clip(np.where(x == x, flush(x), f32(0)).astype(f64), -300, 300)
    fixed = (np.abs(wide) * MANTISSAS).astype(i64)
    doubled = 2 * fixed
    negative = wide < 0
    if negative.any():
        doubled = np.where(negative, -doubled - ((fixed & (MANTISSAS - 1)) != 0), doubled)
    fraction = doubled & (2 * MANTISSAS - 1)
    size = _corrected(np.exp2(fraction / (2 * MANTISSAS)), _table("ex2")[fraction])
    scale = (((doubled >> 24) + 1023) << 52).view(f64)
    result = flush((size * scale).astype(f32))
    return np.where(x == x, result, f32(np.nan))


def logarithm(x: Array) -> Array:
    """log2(x): the exponent plus a fixed-point number with 23 fractional bits, cut off at the end of a float32.

    Negative results are the one's complement, so those of 1/2, 1/4, ... are a little too large.  From 1/2 to 2, where
    the result may be close to 0, more bits are kept: a table of results for each of the two exponents.
    """
    x = flush(x)
    mantissa, exponent = _parts(x)
    exact = np.log2(1 + mantissa / MANTISSAS)
    above = _corrected(exact, _table("lg2")[mantissa])
    fixed = exponent + np.floor(above * MANTISSAS) / MANTISSAS
    result = _cut(np.where(exponent < 0, fixed + 1 / MANTISSAS, fixed))
    result = np.where(exponent == 0, above, result)
    result = np.where(exponent == -1, _corrected(exact - 1, _table("lg2_half")[mantissa]), result)
    result = np.where(x == 0, -np.inf, np.where(x == np.inf, np.inf, result))
    return np.where((x < 0) | np.isnan(x), np.nan, result).astype(f32)


def _cut(x: Array) -> Array:
    """float64 numbers rounded towards zero to a float32."""
    nearest = x.astype(f32)
    return np.where(np.abs(nearest.astype(f64)) > np.abs(x), np.nextafter(nearest, f32(0)), nearest).astype(f64)


def _high_parts(word: Array) -> tuple[Array, Array]:
    """(1.mantissa as float32, exponent) of the double whose high word is given and whose low word is 0."""
    single = ((word & u32(0xFFFFF)) << u32(3) | u32(0x3F800000)).view(f32)
    return single, (word >> u32(20) & u32(0x7FF)).astype(i64) - 1023


def _high_result(size: Array, exponent: Array, sign: Array, word: Array) -> Array:
    """The high word of size * 2**exponent cut off after 20 mantissa bits; zero where that is subnormal."""
    bits = size.view(u32)
    place = (bits >> u32(23) & u32(255)).astype(i64) - 127 + exponent + 1023
    whole = (np.clip(place, 0, 0x7FF).astype(u32) << u32(20)) | (bits >> u32(3) & u32(0xFFFFF))
    result = np.where(place <= 0, u32(0), whole) | sign
    nan = (word & u32(0x7FFFFFFF)) > u32(0x7FF00000)
    return np.where(nan, u32(0x7FFFFFFF), result)


def high_reciprocal(word: Array) -> Array:
    """RCP64H: the float32 function of the mantissa, cut off. A subnormal operand counts as zero."""
    single, exponent = _high_parts(word)
    sign = word & u32(0x80000000)
    result = _high_result(reciprocal(single), -exponent, sign, word)
    result = np.where(exponent == -1023, sign | u32(0x7FF00000), result)
    return np.where(word & u32(0x7FFFFFFF) == u32(0x7FF00000), sign, result)


def high_reciprocal_root(word: Array) -> Array:
    """RSQ64H: likewise."""
    single, exponent = _high_parts(word)
    sign, odd = word & u32(0x80000000), exponent & 1
    size = reciprocal_root((single.view(u32) + (odd.astype(u32) << u32(23))).view(f32))
    result = _high_result(size, -((exponent - odd) >> 1), sign & u32(0), word)
    result = np.where(word == u32(0x7FF00000), u32(0), np.where(sign != 0, u32(0x7FFFFFFF), result))
    return np.where(exponent == -1023, sign | u32(0x7FF00000), result)


EXACT: dict[str, Callable[[Array], Array]] = {
    "RCP": reciprocal,
    "RSQ": reciprocal_root,
    "SQRT": root,
    "EX2": power_of_two,
    "LG2": logarithm,
    "SIN": sine,
    "COS": cosine,
    "TANH": hyperbolic_tangent,
}
