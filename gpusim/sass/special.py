"""Special functions and the division check."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpusim.sass import mufu
from gpusim.sass.form import Form, Semantics, Source
from gpusim.sass.half import take_halves, to_half_bits
from gpusim.sass.numeric import Array, canonical, f32, f64, flush, u32, u64
from gpusim.sass.operands import Immediate
from gpusim.sass.registry import opcode


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


@opcode("MUFU")
def special_function(form: Form) -> Semantics:
    """d = a hardware approximation of a special function.

    RCP, RSQ, SQRT, EX2 and LG2 of float32 are the hardware's own, bit for bit (mufu.py). The others are computed to the
    nearest number of the type; the hardware's table may differ in the last bits. Subnormal
    operands and results are zeros of the same sign, except under TANH and in half precision (PTX ISA, rcp.approx.ftz,
    ex2.approx and the like; the compiler scales around MUFU to make the forms without .ftz).
    """
    if form.flag("RCP64H"):
        return _high_word(form, mufu.high_reciprocal)
    if form.flag("RSQ64H"):
        return _high_word(form, mufu.high_reciprocal_root)
    name = form.choice(*_FUNCTIONS)
    function = _FUNCTIONS[name]
    narrow = form.choice("F16", "BF16", default="")
    form.dest()
    if narrow:
        if name not in ("EX2", "TANH"):
            raise form.refuse("this function in half precision")
        return _half(form, name, narrow.lower())
    form.source("f32")
    flushes = name != "TANH"
    if name in mufu.EXACT:
        recorded = mufu.EXACT[name]
        return form.alu(lambda a: canonical(recorded(a)))

    def compute(a: Array) -> Array:
        if flushes:
            a = flush(a)
        result = function(a.astype(f64)).astype(f32)
        return canonical(flush(result) if flushes else result)

    return form.alu(compute)


def _half(form: Form, name: str, kind: str) -> Semantics:
    """EX2 and TANH of half precision and bfloat16: those of float32, rounded towards zero, but infinite from 2**16 on.

    Compared with an H200 for every operand (tests/data/h200_edges.npz.xz).
    """
    read = take_halves(form, kind, kind == "bf16" and name == "EX2")
    recorded, function = mufu.EXACT.get(name), _FUNCTIONS[name]

    def compute(a: Array) -> Array:
        value = read(a)[0]
        if recorded is not None:
            result = recorded(value.astype(f32)).astype(f64)
            bits = to_half_bits(result, kind, "RZ")
            return np.where(result >= 2.0**16, u32(0x7C00), bits) if kind == "f16" else bits
        return to_half_bits(function(value), kind)

    return form.alu(compute)


def _high_word(form: Form, function: Callable[[Array], Array]) -> Semantics:
    """d = the high word of a function of the double whose high word is a and whose low word is 0."""
    form.dest()
    operand = form.source("u32", bare=True)
    negated, absolute = getattr(operand, "negated", False), getattr(operand, "absolute", False)
    if getattr(operand, "inverted", False):
        raise form.refuse("a complemented high word")
    if isinstance(operand, Immediate) and isinstance(operand.value, float):  # printed as that double
        word = int(f64(operand.value).view(u64)) >> 32
        form.sources[-1] = Source(Immediate(operand.text, word), "u32")

    def compute(a: Array) -> Array:
        word = a & u32(0x7FFFFFFF) if absolute else a
        return function(word ^ u32(0x80000000) if negated else word)

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

    return form.alu(compute)
