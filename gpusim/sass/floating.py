"""Single- and double-precision arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.sass.doubles import add64, fma64, mul64
from gpusim.sass.form import Form, Semantics
from gpusim.sass.numeric import (
    SIGN32,
    SMALLEST_NORMAL32,
    Array,
    add32,
    canonical,
    canonical64,
    choose_extreme,
    f32,
    f64,
    flush,
    fma32,
    fused_bits,
    mul32,
    saturate,
    u32,
)
from gpusim.sass.operands import Constant, Register
from gpusim.sass.registry import opcode


def _rounding(form: Form) -> str:
    return form.choice("RN", "RZ", "RM", "RP", default="RN")


def _finisher(form: Form) -> tuple[bool, bool]:
    return form.flag("FTZ"), form.flag("SAT")


def _binary32(form: Form, operation: Any, product: bool = False, modes: tuple[str, ...] = ()) -> Semantics:
    """d = operation(a, b, rounding mode); ``product``: it multiplies; ``modes``: those that are known, if not all."""
    ftz, sat = _finisher(form)
    mode = _rounding(form)
    if modes and mode not in modes:
        raise form.refuse(f"a scaled product under .{mode}")
    form.dest()
    form.source("f32")
    form.source("f32")

    def compute(a: Array, b: Array) -> Array:
        if ftz:
            a, b = flush(a), flush(b)
        result = operation(a, b, mode)
        if ftz:
            result = flush(result)
            if product:
                result = _flush_tiny(result, lambda scale: operation(a * scale, b, mode))
        if sat:
            result = saturate(result)
        return canonical(result)

    return form.alu(compute, monotone="always")


def _flush_tiny(result: Array, enlarged: Callable[[Array], Array]) -> Array:
    """Zeros for results that are the smallest normal number only because a subnormal one has fewer bits.

    FMUL.FTZ and FFMA.FTZ on an H200 decide after rounding to 24 bits as if there were no smallest exponent
    (tests/data/h200_edges.npz.xz). ``enlarged`` computes the result times a power of two. The factor is safe: next to
    such a result a factor that is not multiplied by 0 is below 2**47, an addend below 2**-77.
    """
    least = np.abs(result) == SMALLEST_NORMAL32
    if not least.any():
        return result
    scale = np.full((1, 1), 2.0**64, f32)
    tiny = least & (np.abs(enlarged(scale)) < SMALLEST_NORMAL32 * scale)
    return np.where(tiny, np.copysign(f32(0), result), result)


@opcode("FADD", "UFADD")
def float_add(form: Form) -> Semantics:
    """d = a + b."""
    return _binary32(form, add32)


SCALES = {"D2": 1 / 2, "D4": 1 / 4, "D8": 1 / 8, "M4": 4.0, "M8": 8.0}


@opcode("FMUL", "UFMUL")
def float_multiply(form: Form) -> Semantics:
    """d = a * b, with .D2 to .M8 times a power of two, which is how the compiler writes a factor after a product.

    The scaled product is rounded once (recording h200_scaled_products).
    """
    scale = SCALES.get(form.choice(*SCALES, default=""))
    if scale is None:
        return _binary32(form, mul32, product=True)
    factor = f64(scale)

    def scaled(a: Array, b: Array, mode: str) -> Array:
        return (a.astype(f64) * b.astype(f64) * factor).astype(f32)

    return _binary32(form, scaled, product=True, modes=("RN",))


@opcode("FFMA", "UFFMA")
def float_multiply_add(form: Form) -> Semantics:
    """d = a*b + c with one rounding."""
    ftz, sat = _finisher(form)
    mode = _rounding(form)
    form.dest()
    for _ in range(3):
        form.source("f32")

    if mode == "RN" and not ftz and not sat:
        return form.alu(fused_bits, monotone="always")

    def compute(a: Array, b: Array, c: Array) -> Array:
        if ftz:
            a, b, c = flush(a), flush(b), flush(c)
        result = fma32(a, b, c, mode)
        if ftz:
            result = _flush_tiny(flush(result), lambda scale: fma32(a * scale, b, c * scale, mode))
        if sat:
            result = saturate(result)
        return canonical(result)

    return form.alu(compute, monotone="always")


@opcode("FMNMX", "UFMNMX", "FMNMX3", "UFMNMX3")
def float_minimum_maximum(form: Form) -> Semantics:
    """d = p ? min : max of two or three; a NaN loses, or wins under .NAN; -0 is below +0.

    .XORSIGN gives the result the sign of the product of both operands (they are compared by magnitude then).
    """
    count = 3 if form.instruction.opcode.endswith("3") else 2
    ftz, keep_nan, product_sign = form.flag("FTZ"), form.flag("NAN"), form.flag("XORSIGN")
    form.dest()
    operands = [form.source("f32", bare=product_sign) for _ in range(count)]
    form.source_predicate()
    if product_sign and (count == 3 or not all(_magnitude(x) for x in operands)):
        raise form.refuse("a product's sign without magnitudes")

    def choose(a: Array, b: Array, p: Array) -> Array:
        value = choose_extreme(p, a, b)
        return np.where((a != a) | (b != b), f32(np.nan), value) if keep_nan else value

    def compute(*inputs: Array) -> Array:
        *values, p = inputs
        signs = values[0].view(u32) ^ values[1].view(u32)
        if ftz:
            values = [flush(v) for v in values]
        if product_sign:
            values = [np.abs(v) for v in values]
        result = choose(values[0], values[1], p)
        if count == 3:
            result = choose(result, values[2], p)
        bits = canonical(result)
        return np.where(result == result, bits | (signs & SIGN32), bits) if product_sign else bits

    return form.alu(compute, monotone="" if product_sign else "always")


def _magnitude(operand: object) -> bool:
    return isinstance(operand, Register | Constant) and operand.absolute and not operand.negated


def _double(form: Form, operands: int, operation: Callable[..., Array]) -> Semantics:
    """Marks are applied here and not at the fetch, since a NaN passes without them (see canonical64)."""
    mode = _rounding(form)
    form.dest(2)
    marks = [_marks(form, form.source("f64", bare=True)) for _ in range(operands)]

    def compute(*values: Array) -> Array:
        result = operation(*(mark(v) for mark, v in zip(marks, values, strict=True)), mode)
        return canonical64(result, *values[1:], values[0])

    return form.alu(compute)


def _marks(form: Form, operand: object) -> Callable[[Array], Array]:
    """What applies an operand's minus and magnitude marks."""
    if not isinstance(operand, Register | Constant):
        return lambda value: value
    if operand.inverted:
        raise form.refuse("a complemented number")
    negated = operand.negated
    if operand.absolute:
        return (lambda value: -np.abs(value)) if negated else np.abs
    return np.negative if negated else lambda value: value


@opcode("DADD")
def double_add(form: Form) -> Semantics:
    """d = a + b."""
    return _double(form, 2, add64)


@opcode("DMUL")
def double_multiply(form: Form) -> Semantics:
    """d = a * b."""
    return _double(form, 2, mul64)


@opcode("DFMA")
def double_multiply_add(form: Form) -> Semantics:
    """d = a*b + c with one rounding."""
    return _double(form, 3, fma64)
