"""The loops of :mod:`gpusim.native`; importing this compiles them or takes them from Numba's cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

Array = np.ndarray[Any, Any]
LANES = 32
MOST_PLACES = np.uint64(1 << 16)


@intrinsic
def _fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a*b + c with one rounding."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


def _read(kind: Any, dimensions: int) -> Any:
    """An array that is only read, and may not be writable."""
    return types.Array(kind, dimensions, "C", readonly=True)


_FLOATS = _read(types.float32, 1)


def _compiled(*arguments: Any) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        try:
            return numba.njit(types.void(*arguments), cache=True, error_model="numpy")(function)
        except RuntimeError:  # nowhere to keep it
            return numba.njit(types.void(*arguments), error_model="numpy")(function)

    return decorate


@_compiled(_FLOATS, _FLOATS, _FLOATS, types.uint32[::1])
def fused(a: Array, b: Array, c: Array, out: Array) -> None:
    """Bits of a*b + c with one rounding, every NaN made 0x7fffffff."""
    numbers = out.view(np.float32)
    for k in range(len(out)):
        numbers[k] = _fma(a[k], b[k], c[k])
    for k in range(len(out)):
        if numbers[k] != numbers[k]:
            out[k] = 0x7FFFFFFF


@numba.njit(error_model="numpy")
def _degrees_of_near(units: Array, active: Array, banks: int, out: Array, least: int, places: int) -> None:
    """Units that lie near each other: the last row that had each one is noted at its place."""
    noted = np.full(places, -1, np.int64)
    filled = np.empty(LANES, np.int64)
    for row in range(units.shape[0]):
        filled[:] = 0
        for lane in range(units.shape[1]):
            if active[row, lane]:
                unit = units[row, lane]
                place = np.int64(unit - least)
                filled[np.int64(unit & np.uint64(banks - 1))] += noted[place] != row
                noted[place] = row
        out[row] = filled.max()


@numba.njit(error_model="numpy")
def _degrees_of_far(units: Array, active: Array, banks: int, out: Array) -> None:
    seen = np.empty((LANES, LANES), np.uint64)
    filled = np.empty(LANES, np.int64)
    for row in range(units.shape[0]):
        filled[:] = 0
        for lane in range(units.shape[1]):
            if not active[row, lane]:
                continue
            unit = units[row, lane]
            bank = np.int64(unit & np.uint64(banks - 1))
            known = False
            for k in range(filled[bank]):
                if seen[bank, k] == unit:
                    known = True
                    break
            if not known:
                seen[bank, filled[bank]] = unit
                filled[bank] += 1
        out[row] = filled.max()


@_compiled(_read(types.uint64, 2), _read(types.boolean, 2), types.int64, types.int64[::1])
def degrees(units: Array, active: Array, banks: int, out: Array) -> None:
    """Most different units of active lanes in any one bank, row by row; ``banks``: a power of two up to 32."""
    least, most = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)
    for row in range(units.shape[0]):
        for lane in range(units.shape[1]):
            if active[row, lane]:
                least, most = min(least, units[row, lane]), max(most, units[row, lane])
    if most >= least and most - least < MOST_PLACES:
        _degrees_of_near(units, active, banks, out, least, np.int64(most - least) + 1)
    else:
        _degrees_of_far(units, active, banks, out)


def work() -> bool:
    """Whether the product is rounded once, as on every processor that gpusim knows."""
    a = np.array([1 + 2.0**-23, 1.0, 2.0**-126, np.nan], np.float32)
    c = np.array([-1.0, 2.0**-25, -(2.0**-149), 1], np.float32)
    b = np.array([1 - 2.0**-23, 1 + 2.0**-23, 2.0**-23, 0], np.float32)
    out = np.empty(4, np.uint32)
    fused(a, b, c, out)
    exact = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    expected = exact.astype(np.float32).view(np.uint32)
    return bool((out[:3] == expected[:3]).all()) and int(out[3]) == 0x7FFFFFFF
