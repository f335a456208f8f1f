"""Conversions between integers and floating point."""

from __future__ import annotations

import numpy as np

from gpusim.sass.form import Form, Semantics, ValueType
from gpusim.sass.numeric import Array, canonical, f64, i64, round_f64_to_f32, u32, u64
from gpusim.sass.registry import opcode

_INTEGERS = ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")


@opcode("I2F", "I2FP", "UI2F", "UI2FP")
def integer_to_float(form: Form) -> Semantics:
    """d = a as a floating-point number under a rounding mode."""
    mode = form.choice("RN", "RZ", "RM", "RP", default="RN")
    kind = form.choice(*_INTEGERS, default="S32")
    if kind not in ("U32", "S32"):
        raise form.refuse("conversion from this integer width")
    double = form.flag("F64")
    form.flag("F32")
    form.dest(2 if double else 1)
    form.source("u32" if kind == "U32" else "i32")
    if double:
        return form.alu(lambda a: a.astype(f64).view(u64))
    return form.alu(lambda a: round_f64_to_f32(a.astype(f64), mode).view(u32))


@opcode("F2I", "UF2I")
def float_to_integer(form: Form) -> Semantics:
    """d = a rounded to an integer and clamped to the type's range; NaN becomes 0 (or the type's lowest)."""
    ftz = form.flag("FTZ")
    round_how = form.choice("TRUNC", "FLOOR", "CEIL", "RN", default="RN")
    kind = form.choice("U32", "S32", default="S32")
    wide = form.flag("F64")
    form.without_effect("NTZ")
    source: ValueType = "f64" if wide else "f32"
    form.dest()
    form.source(source)
    lowest, highest = (0, 2**32 - 1) if kind == "U32" else (-(2**31), 2**31 - 1)
    rounding = {"TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil, "RN": np.rint}[round_how]
    del ftz  # a subnormal rounds to zero, one or minus one alike only under FLOOR and CEIL
    if "FTZ" in form.instruction.modifiers and round_how in ("FLOOR", "CEIL"):
        raise form.refuse("FTZ with a directed rounding")

    def compute(a: Array) -> Array:
        value = rounding(a.astype(f64))
        value = np.where(np.isnan(value), 0.0, np.clip(value, lowest, highest))
        return value.astype(i64).astype(u32)

    return form.alu(compute)


@opcode("FRND")
def round_to_integral(form: Form) -> Semantics:
    """d = a rounded to an integral value."""
    round_how = form.choice("TRUNC", "FLOOR", "CEIL", "RN", default="RN")
    rounding = {"TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil, "RN": np.rint}[round_how]
    form.dest()
    form.source("f32")
    return form.alu(lambda a: canonical(rounding(a)))
