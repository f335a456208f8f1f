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


@intrinsic  # type: ignore[untyped-decorator]
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


@_compiled(_read(types.uint64, 2), _read(types.boolean, 2), types.int64, types.int64[::1])
def degrees(units: Array, active: Array, banks: int, out: Array) -> None:
    """Most different units of active lanes in any one bank, row by row; ``banks``: a power of two up to 32."""
    seen = np.empty((LANES, LANES), np.uint64)
    filled = np.empty(LANES, np.int64)
    for row in range(units.shape[0]):
        filled[:] = 0
        most = 0
        for lane in range(units.shape[1]):
            if not active[row, lane]:
                continue
            unit = units[row, lane]
            bank = np.int64(unit & np.uint64(banks - 1))
            count = filled[bank]
            known = False
            for k in range(count):
                if seen[bank, k] == unit:
                    known = True
                    break
            if not known:
                seen[bank, count] = unit
                filled[bank] = count + 1
                most = max(most, count + 1)
        out[row] = most


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
