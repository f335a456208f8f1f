"""How an H200's tensor cores add: all products of an output and the addend at once, in fixed point.

The products are exact.  Their exponents are the sums of the factors' (a subnormal factor has the smallest normal
exponent); the largest exponent, the addend's included, sets the unit 2**(largest - 25), and every term is cut off
towards zero to a multiple of it.  The sum of what is left is exact.  A result in single precision is cut off too, one
in half precision rounded to nearest.  A sum too large for the type is infinite (in
single precision one from 2**128 on), and a zero is +0, that of a tiny negative sum or of negative zeros too.

Equal to an H200's results for 12,288 outputs of every shape and type (tests/data/h200_edges.npz.xz).  The sum's rules
were found with 8,192 others; overflow and zeros with these.  Other generations are known to add fewer products at
once; they are computed alike here.
"""

from __future__ import annotations

import numpy as np

from gpusim.sass.numeric import Array, canonical, f32, i32, round_f64_to_f16, round_f64_to_f32, u32

FRACTION_BITS = 25
_NOTHING = -(1 << 13)  # the exponent of a zero
LEAST_EXPONENTS = {"F16": -14, "BF16": -126, "TF32": -126, "F32": -126}


def exponents(values: Array, least: int) -> Array:
    """The exponents as the adder sees them; garbage for infinities and NaNs."""
    found = np.maximum(np.frexp(values)[1] - i32(1), i32(least)).astype(np.int16)
    return np.where(values == 0, np.int16(_NOTHING), found)


def fused_product(a: Array, b: Array, c: Array, kind: str, kind_c: str) -> Array:
    """a @ b + c (float64 arrays of matrices in the last two axes) before the last rounding.

    ``kind`` and ``kind_c``, of the factors and of c, are keys of LEAST_EXPONENTS. The arrays' first axes broadcast.
    """
    m, k = a.shape[-2:]
    n = c.shape[-1]
    first = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    a, b, c = (np.broadcast_to(x, (*first, *x.shape[-2:])) for x in (a, b, c))
    many = c.size // (m * n)
    # the matrices along the last axis, so that NumPy's inner loops are long
    left = np.ascontiguousarray(a.reshape(many, m, 1, k).T)  # k, 1, m, many
    right = np.ascontiguousarray(b.reshape(many, 1, k, n).transpose(2, 3, 1, 0))  # k, n, 1, many
    addend = np.ascontiguousarray(c.reshape(many, m, n).T)  # n, m, many
    largest = exponents(addend, LEAST_EXPONENTS[kind_c])
    pair = np.empty_like(largest)
    for x, y in zip(exponents(left, LEAST_EXPONENTS[kind]), exponents(right, LEAST_EXPONENTS[kind]), strict=True):
        np.maximum(largest, np.add(x, y, out=pair), out=largest)
    largest[largest < _NOTHING // 2] = 0
    scale = np.ldexp(1.0, FRACTION_BITS - largest.astype(i32))
    total = np.trunc(addend * scale)
    term = np.empty_like(total)
    for x, y in zip(left, right, strict=True):
        np.multiply(x, y, out=term)
        term *= scale
        total += np.trunc(term, out=term)
    total /= scale
    result = total.T.reshape(c.shape)
    if all(np.isfinite(x).all() for x in (left, right, addend)):
        return result
    plain = np.matmul(a, b) + c
    return np.where(np.isfinite(plain), result, plain)


def single_bits(total: Array) -> Array:
    """A float64 sum as the bits of the float32 result: cut off, from 2**128 on infinite, never -0."""
    result = round_f64_to_f32(total, "RZ")
    above = np.abs(total) >= 2.0**128
    if above.any():
        result = np.where(above, np.copysign(f32(np.inf), result), result)
    return canonical(result + f32(0))  # -0 + 0 is +0


def half_bits(total: Array) -> Array:
    """A float64 sum as the 16 bits (in words) of the half-precision result: rounded to nearest, never -0."""
    bits = round_f64_to_f16(total).astype(u32)
    return np.where(bits & u32(0x7FFF), bits, u32(0))
