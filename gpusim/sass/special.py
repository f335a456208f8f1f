"""Special functions and the division check."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpusim.sass import mufu
from gpusim.sass.form import Form, Semantics, Source
from gpusim.sass.half import take_halves, to_half_bits
from gpusim.sass.numeric import Array, canonical, f32, f64, u32, u64
from gpusim.sass.operands import Immediate
from gpusim.sass.registry import opcode

# the recorded tables follow monotone functions within their error (2 units in the last place, LG2 2**-22 near 1)
_MONOTONE = {"RCP": "signed nearly", "RSQ": "signed nearly", "SQRT": "nearly", "EX2": "nearly", "LG2": "nearly roughly"}


@opcode("MUFU")
def special_function(form: Form) -> Semantics:
    """d = a hardware approximation of a special function.

    All are the hardware's own, bit for bit (mufu.py). Subnormal operands and results are zeros of the same sign, except
    under TANH and in half precision (the compiler scales around MUFU to make the forms without .ftz).
    """
    if form.flag("RCP64H"):
        return _high_word(form, mufu.high_reciprocal)
    if form.flag("RSQ64H"):
        return _high_word(form, mufu.high_reciprocal_root)
    name = form.choice(*mufu.EXACT)
    narrow = form.choice("F16", "BF16", default="")
    form.dest()
    if narrow:
        if name not in ("EX2", "TANH"):
            raise form.refuse("this function in half precision")
        return _half(form, name, narrow.lower())
    form.source("f32")
    recorded = mufu.EXACT[name]
    return form.alu(lambda a: canonical(recorded(a)), monotone=_MONOTONE.get(name, ""))


def _half(form: Form, name: str, kind: str) -> Semantics:
    """EX2 and TANH of half precision and bfloat16: float32's, rounded towards zero; EX2 is infinite from 2**16 on.

    They equal an H200's for every operand (tests/data/h200_edges.npz.xz).
    """
    read = take_halves(form, kind, kind == "bf16" and name == "EX2")
    recorded = mufu.EXACT[name]

    def compute(a: Array) -> Array:
        value = read(a)[0]
        result = recorded(value.astype(f32)).astype(f64)
        bits = to_half_bits(result, kind, "RZ")
        return np.where(result >= 2.0**16, u32(0x7C00), bits) if kind == "f16" else bits

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

    return form.alu(compute, monotone="signed false")  # the pairs of exponents without are a convex set
