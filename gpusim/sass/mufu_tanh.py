"""MUFU.TANH as an H200 computes it, bit for bit.

From 2**-8 to 8 an exponent has 1 to 16 segments, and a segment 2**17 places, on which the rest of the mantissa is cut
off. Within a segment the result is c0 + c1 t + c2 square(t), cut off to a float32. ``square`` is close to t * t; the
hardware leaves out small parts. A number below 2**-8 is its own tanh (subnormals too), that of one from 8 on is 1.

``mufu_tanh_h200.npz`` holds coefficients and squares, fitted to the results at all places, and what is then left of
each result (-1 to 1 in the last place; 0 for 98.6 % of them). Recorded with tanh.approx.f32 on an H200 (driver
580.159.04): every mantissa of every exponent from -10 to 3, negative arguments too.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files

import numpy as np

from gpusim.sass.numeric import SIGN32, Array, f32, f64, i32, i64, round_f64_to_f32, u32

PLACES = 1 << 17
LEAST_EXPONENT = -8
SEGMENT_BITS = (0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3)  # of the exponents from LEAST_EXPONENT on


@cache
def _results() -> Array:
    """tanh at all places of all segments, as float32 bits."""
    with as_file(files("gpusim.sass") / "mufu_tanh_h200.npz") as path, np.load(path) as tables:
        coefficients, square, residual = tables["coefficients"], tables["square"], tables["residual"]
    t = np.arange(PLACES) / PLACES
    squares = t * t + square.astype(f64) / (1 << 20)
    rows = [c0 + c1 * t + c2 * squares for c0, c1, c2 in coefficients.tolist()]
    bits = round_f64_to_f32(np.concatenate(rows), "RZ").view(i32) + residual
    return bits.astype(u32)


@cache
def _layout() -> tuple[Array, Array]:
    """By exponent: the first place of its segments, and how many mantissa bits are cut off."""
    bits = np.array(SEGMENT_BITS)
    first = np.concatenate([[0], np.cumsum(1 << bits)[:-1]]) * PLACES
    return first.astype(i64), 23 - 17 - bits.astype(i64)


def hyperbolic_tangent(x: Array) -> Array:
    """tanh(x)."""
    bits = x.view(u32)
    size = bits & ~SIGN32
    exponent = (size >> u32(23)).astype(i64) - 127
    inside = np.clip(exponent - LEAST_EXPONENT, 0, len(SEGMENT_BITS) - 1)
    first, cut = _layout()
    place = first[inside] + ((size & u32((1 << 23) - 1)).astype(i64) >> cut[inside])
    result = _results()[place]
    result = np.where(exponent < LEAST_EXPONENT, size, result)
    result = np.where(exponent >= LEAST_EXPONENT + len(SEGMENT_BITS), f32(1).view(u32), result)
    return np.where(np.isnan(x), f32(np.nan), (result | (bits & SIGN32)).view(f32))
