"""Special functions and the division check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.sass import mufu
from gpusim.sass.form import Form, Semantics, Source
from gpusim.sass.half import take_halves, to_half_bits
from gpusim.sass.numeric import Array, canonical, f32, f64, flush, high_word, u32, u64
from gpusim.sass.operands import Immediate
from gpusim.sass.registry import opcode

LEAST_NORMAL64 = 2.0**-1022


def _turns(x: Array) -> Array:
    """What is left of an angle in revolutions, in [-1/2, 1/2] (exact)."""
    return np.where(np.isfinite(x), x - np.rint(x), np.nan)


def _sine(x: Array) -> Array:
    """sin(2 pi x): the argument is in revolutions."""
    rest = _turns(x)
    return np.where(np.abs(rest) == 0.5, np.copysign(0.0, rest), np.sin(2 * np.pi * rest))


def _cosine(x: Array) -> Array:
    """cos(2 pi x)."""
    rest = np.abs(_turns(x))
    return np.where(rest == 0.25, 0.0, np.cos(2 * np.pi * rest))


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "RCP": lambda x: 1.0 / x,
    "RSQ": lambda x: 1.0 / np.sqrt(x),
    "SQRT": np.sqrt,
    "EX2": np.exp2,
    "LG2": np.log2,
    "SIN": _sine,
    "COS": _cosine,
    "TANH": np.tanh,
}


# the recorded tables follow monotone functions within their error (2 units in the last place, LG2 2**-22 near 1)
_MONOTONE = {"RCP": "signed nearly", "RSQ": "signed nearly", "SQRT": "nearly", "EX2": "nearly", "LG2": "roughly"}


@opcode("MUFU")
def special_function(form: Form) -> Semantics:
    """d = a hardware approximation of a special function.

    RCP, RSQ, SQRT, EX2 and LG2 of float32 are the hardware's own, bit for bit (mufu.py). The others are computed to the
    nearest number of the type; the hardware's table may differ in the last bits. Subnormal
    operands and results are zeros of the same sign, except under TANH and in half precision (PTX ISA, rcp.approx.ftz,
    ex2.approx and the like; the compiler scales around MUFU to make the forms without .ftz).
    """
    if form.flag("RCP64H"):
        return _high_word(form, lambda x: 1.0 / x)
    if form.flag("RSQ64H"):
        return _high_word(form, lambda x: 1.0 / np.sqrt(x))
    name = form.choice(*_FUNCTIONS)
    function = _FUNCTIONS[name]
    narrow = form.choice("F16", "BF16", default="")
    form.dest()
    if narrow:
        if name not in ("EX2", "TANH"):
            raise form.refuse("this function in half precision")
        return _half(form, function, narrow.lower(), narrow == "BF16" and name == "EX2")
    form.source("f32")
    flushes = name != "TANH"
    if name in mufu.EXACT:
        recorded = mufu.EXACT[name]
        return form.alu(lambda a: canonical(recorded(a)), monotone=_MONOTONE[name])

    def compute(a: Array) -> Array:
        if flushes:
            a = flush(a)
        result = function(a.astype(f64)).astype(f32)
        return canonical(flush(result) if flushes else result)

    return form.alu(compute)


def _half(form: Form, function: Callable[[Array], Array], kind: str, flushes: bool) -> Semantics:
    read = take_halves(form, kind, flushes)

    def compute(a: Array) -> Array:
        result = function(read(a)[0])
        if flushes:
            result = flush(result.astype(f32)).astype(f64)
        return to_half_bits(result, kind)

    return form.alu(compute)


def _high_word(form: Form, function: Callable[[Array], Any]) -> Semantics:
    """d = the high word of a function of the double whose high word is a and whose low word is 0 (to nearest)."""
    form.dest()
    operand = form.source("u32", bare=True)
    negated, absolute = getattr(operand, "negated", False), getattr(operand, "absolute", False)
    if getattr(operand, "inverted", False):
        raise form.refuse("a complemented high word")
    if isinstance(operand, Immediate) and isinstance(operand.value, float):  # printed as that double
        word = int(f64(operand.value).view(u64)) >> 32
        form.sources[-1] = Source(Immediate(operand.text, word), "u32")

    def compute(a: Array) -> Array:
        value = (a.astype(u64) << u64(32)).view(f64)
        value = np.where(np.abs(value) < LEAST_NORMAL64, np.copysign(0.0, value), value)
        value = np.abs(value) if absolute else value
        result = function(-value if negated else value)
        result = np.where(np.abs(result) < LEAST_NORMAL64, np.copysign(0.0, result), result)
        bits = result.view(u64)
        rounded = high_word(bits + np.where(np.isfinite(result), u64(0x80000000), u64(0)))
        return np.where(result != result, u32(0x7FFFFFFF), rounded)

    return form.alu(compute)


@opcode("FCHK")
def division_check(form: Form) -> Semantics:
    """p = dividing a by b needs the slow path: an exponent, or the difference of both, near the ends of the range.

    Measured on an H200: a division timed for all 65,536 pairs of exponents, with four pairs of mantissas, which make no
    difference.
    """
    form.choice("DIVIDE", default="DIVIDE")
    form.dest_predicate()
    form.source("f32")
    form.source("f32")

    def compute(a: Array, b: Array) -> Array:
        exponent_a = (a.view(u32) >> u32(23) & u32(255)).astype(np.int32)
        exponent_b = (b.view(u32) >> u32(23) & u32(255)).astype(np.int32)
        difference = exponent_a - exponent_b
        return (
            (exponent_b <= 1)
            | (exponent_b >= 252)
            | (exponent_a <= 24)
            | (exponent_a == 255)
            | (difference >= 127)
            | (difference <= -125)
        )

    return form.alu(compute, monotone="signed")
