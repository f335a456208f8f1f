"""Single, double and half precision arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.sass.form import Form, Semantics
from gpusim.sass.numeric import (
    Array,
    add32,
    canonical,
    canonical64,
    flush,
    fma32,
    mul32,
    round_f64_to_f32,
    saturate,
    u32,
)
from gpusim.sass.operands import Immediate
from gpusim.sass.registry import opcode


def _rounding(form: Form) -> str:
    return form.choice("RN", "RZ", "RM", "RP", default="RN")


def _finisher(form: Form) -> tuple[bool, bool]:
    return form.flag("FTZ"), form.flag("SAT")


def _binary32(form: Form, operation: Any) -> Semantics:
    ftz, sat = _finisher(form)
    mode = _rounding(form)
    form.dest()
    form.source("f32")
    form.source("f32")

    def compute(a: Array, b: Array) -> Array:
        if ftz:
            a, b = flush(a), flush(b)
        result = operation(a, b, mode)
        if ftz:
            result = flush(result)
        if sat:
            result = saturate(result)
        return canonical(result)

    return form.alu(compute)


@opcode("FADD")
def float_add(form: Form) -> Semantics:
    """d = a + b."""
    return _binary32(form, add32)


@opcode("FMUL")
def float_multiply(form: Form) -> Semantics:
    """d = a * b."""
    return _binary32(form, mul32)


@opcode("FFMA")
def float_multiply_add(form: Form) -> Semantics:
    """d = a*b + c with one rounding."""
    ftz, sat = _finisher(form)
    mode = _rounding(form)
    form.dest()
    for _ in range(3):
        form.source("f32")

    def compute(a: Array, b: Array, c: Array) -> Array:
        if ftz:
            a, b, c = flush(a), flush(b), flush(c)
        result = fma32(a, b, c, mode)
        if ftz:
            result = flush(result)
        if sat:
            result = saturate(result)
        return canonical(result)

    return form.alu(compute)


@opcode("FMNMX")
def float_minimum_maximum(form: Form) -> Semantics:
    """d = p ? min(a, b) : max(a, b); a NaN loses against a number, -0 is below +0."""
    ftz = form.flag("FTZ")
    form.dest()
    form.source("f32")
    form.source("f32")
    form.source_predicate()

    def compute(a: Array, b: Array, p: Array) -> Array:
        if ftz:
            a, b = flush(a), flush(b)
        low, high = np.fmin(a, b), np.fmax(a, b)
        equal = a == b
        if equal.any():
            low = np.where(equal & (np.signbit(a) | np.signbit(b)), np.where(np.signbit(a), a, b), low)
            high = np.where(equal & (np.signbit(a) | np.signbit(b)), np.where(np.signbit(a), b, a), high)
        return canonical(np.where(p, low, high))

    return form.alu(compute)


def _binary64(form: Form, operation: Any) -> Semantics:
    if _rounding(form) != "RN":
        raise form.refuse("a directed rounding of double precision")
    form.dest(2)
    form.source("f64")
    form.source("f64")
    return form.alu(lambda a, b: canonical64(operation(a, b)))


@opcode("DADD")
def double_add(form: Form) -> Semantics:
    """d = a + b."""
    return _binary64(form, np.add)


@opcode("DMUL")
def double_multiply(form: Form) -> Semantics:
    """d = a * b."""
    return _binary64(form, np.multiply)


def _half_pair(value: Array) -> tuple[Array, Array]:
    """The two half-precision numbers of a word (low, high), widened to float64 for exact arithmetic."""
    low = (value & u32(0xFFFF)).astype(np.uint16).view(np.float16).astype(np.float64)
    high = (value >> u32(16)).astype(np.uint16).view(np.float16).astype(np.float64)
    return low, high


def _pack_half(low: Array, high: Array) -> Array:
    """Round both to half precision and join them."""

    def bits(value: Array) -> Array:
        half = value.astype(np.float16)
        return np.where(half != half, np.uint16(0x7FFF), half.view(np.uint16)).astype(u32)

    return bits(low) | bits(high) << u32(16)


@opcode("HFMA2")
def half_multiply_add(form: Form) -> Semantics:
    """Two half-precision a*b + c; the addend may be two literals (how the compiler writes constants)."""
    form.without_effect("MMA")
    form.dest()
    form.source("u32", bare=False)
    form.source("u32", bare=False)
    a, b = form.sources[0].operand, form.sources[1].operand
    if not (getattr(a, "is_zero", False) and getattr(b, "is_zero", False)):
        raise form.refuse("half-precision arithmetic other than writing a constant")
    high, low = form.take(), form.take()
    if not (isinstance(high, Immediate) and isinstance(low, Immediate)):
        raise form.refuse("half-precision arithmetic other than writing a constant")
    form.sources.clear()
    # -0*0 + x is x, but for x = -0 it stays -0: the product is -0 and the sum of two -0 is -0
    halves = [np.float64(float(x.value)).astype(np.float16).view(np.uint16) for x in (low, high)]
    word = np.full((1, 1), int(halves[0]) | int(halves[1]) << 16, u32)
    return form.alu(lambda: word)


@opcode("F2F")
def float_to_float(form: Form) -> Semantics:
    """Conversion between precisions."""
    ftz = form.flag("FTZ")
    mode = _rounding(form)
    kinds = [m for m in form.instruction.modifiers if m in ("F16", "F32", "F64")]
    for kind in kinds:
        form.flag(kind)
    if kinds == ["F64", "F32"]:
        form.dest(2)
        form.source("f32")
        return form.alu(lambda a: canonical64((flush(a) if ftz else a).astype(np.float64)))
    if kinds == ["F32", "F64"]:
        form.dest()
        form.source("f64")

        def narrow(a: Array) -> Array:
            result = round_f64_to_f32(a, mode)
            return canonical(flush(result) if ftz else result)

        return form.alu(narrow)
    raise form.refuse("this conversion")
