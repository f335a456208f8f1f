"""MUFU.SIN and MUFU.COS as an H200 computes them, bit for bit; the argument is in turns.

The argument's size is cut off to 25 fractional bits. The upper two of them say the quarter turn, in every other one of
which the remaining 23 are complemented. Six of these choose coefficients, and 17 are the place in that sixty-fourth:
c0 + c1 t + c2 square(t), cut off to a float32. ``square`` is close to t * t; the hardware leaves out small parts.

``mufu_sine_h200.npz`` holds coefficients and squares, fitted to the results for all 2**23 places, what is then left of
each result (-1 to 2 in the last place), and the first results as they are. Recorded with the instruction itself on an
H200 (driver 580.159.04) and checked with 380,000 other arguments of every size.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np

from gpusim.sass.numeric import Array, f32, f64, i32, i64, round_f64_to_f32, u32

QUARTER = 1 << 23
PLACES = 1 << 17


@cache
def _quarter() -> Array:
    """sin at all places of the first quarter turn, as float32 bits."""
    with as_file(files("gpusim.sass") / "mufu_sine_h200.npz") as path, np.load(path) as tables:
        coefficients, square = tables["coefficients"], tables["square"]
        residual, small = tables["residual"], tables["small"]
    t = np.arange(PLACES) / PLACES
    squares = t * t + square.astype(f64) / (1 << 20)
    rows = [c0 + c1 * t + c2 * squares for c0, c1, c2 in coefficients.tolist()]
    bits = round_f64_to_f32(np.concatenate(rows), "RZ").view(i32) + residual
    bits[: small.size] = small
    return bits.astype(u32)


def _at(place: Array, negative: Array) -> Array:
    """The function's float32 at a place (in 2**-25 turns, less than a turn), negated or not."""
    quarter, within = place >> i64(23), place & i64(QUARTER - 1)
    size = _quarter()[np.where(quarter & 1, i64(QUARTER - 1) - within, within)]
    return (size ^ np.where((quarter >= 2) ^ negative, u32(1 << 31), u32(0))).view(f32)


def _place(x: Array) -> Array:
    known = np.where(np.isfinite(x), np.abs(x), 0).astype(f64)
    return np.asarray(np.mod(np.floor(known * 2.0**25), 2.0**25).astype(i64))


def sine(x: Array) -> Array:
    """sin(2 pi x)."""
    return np.where(np.isfinite(x), _at(_place(x), np.signbit(x)), f32(np.nan))


def cosine(x: Array) -> Array:
    """cos(2 pi x)."""
    place = (_place(x) + i64(QUARTER)) & i64(4 * QUARTER - 1)
    never: Any = np.zeros((1, 1), bool)
    return np.where(np.isfinite(x), _at(place, never), f32(np.nan))
