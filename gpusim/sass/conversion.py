"""Conversions: between integers and floating point, between floating-point types, between integer widths, and packs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.sass.doubles import f64_to_integer, integer_to_f64, integer_to_odd
from gpusim.sass.form import Form, Semantics, ValueType
from gpusim.sass.half import pack, take_halves, to_half_bits
from gpusim.sass.numeric import (
    Array,
    canonical,
    canonical64,
    f32,
    f64,
    flush,
    i32,
    narrow_nan,
    round_f64_to_f32,
    saturate,
    u32,
    u64,
)
from gpusim.sass.operands import Register
from gpusim.sass.registry import opcode

_INTEGERS = ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")
_FLOATS = ("F16", "BF16", "F32", "F64")
_MODES = ("RN", "RZ", "RM", "RP")
_MANTISSAS = {"F32": 23, "F16": 10, "BF16": 7}
_ROUNDINGS: dict[str, Any] = {"TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil, "RN": np.rint}
_PARTS = {"B0": 0, "B1": 8, "B2": 16, "B3": 24, "H0": 0, "H1": 16, "H0_H0": 0, "H1_H1": 16}


def _take_float(form: Form, kind: str, ftz: bool) -> Callable[[Array], Array]:
    """Take a floating-point operand of the type; returns what turns the fetched value into float64."""
    if kind in ("F16", "BF16"):
        read = take_halves(form, kind.lower(), ftz)
        return lambda word: read(word)[0]
    if kind == "F64":
        if ftz:
            raise form.refuse("flushing a double")
        form.source("f64")
        return lambda a: a
    form.source("f32")
    return lambda a: (flush(a) if ftz else a).astype(f64)


def _rounded(value: Array, kind: str, mode: str) -> Array:
    """float64 to the bits of the type (a word; 64 bits for F64)."""
    if kind == "F64":
        return canonical64(value, value)
    if kind == "F32":
        return canonical(round_f64_to_f32(value, mode))
    return to_half_bits(value, kind.lower(), mode)


def _take_integer(form: Form, kind: str) -> Callable[[Array], Array]:
    """Take an integer operand of the width; returns what turns the fetched value into a signed or unsigned array."""
    bits = int(kind[1:])
    if bits == 64:
        form.source("u64" if kind[0] == "U" else "i64")
        return lambda a: a
    if bits == 32:
        form.source("u32" if kind[0] == "U" else "i32")
        return lambda a: a
    operand = form.source("u32", bare=True, suffixes=tuple(_PARTS))
    suffixes = getattr(operand, "suffixes", ())
    if any(getattr(operand, mark, False) for mark in ("negated", "inverted", "absolute")):
        raise form.refuse("a marked narrow integer")
    shift = _PARTS[suffixes[0]] if suffixes else 0
    left = 32 - bits - shift

    def narrow(word: Array) -> Array:
        if kind[0] == "U":
            return word >> u32(shift) & u32((1 << bits) - 1)
        return (word << u32(left)).view(i32) >> i32(32 - bits)

    return narrow


@opcode("I2F", "I2FP", "UI2F", "UI2FP")
def integer_to_float(form: Form) -> Semantics:
    """d = a as a floating-point number under a rounding mode."""
    mode = form.choice(*_MODES, default="RN")
    integer = form.choice(*_INTEGERS, default="S32")
    kind = form.choice(*_FLOATS, default="F32")
    form.dest(2 if kind == "F64" else 1)
    read = _take_integer(form, integer)
    small = not integer.endswith(("32", "64"))

    def compute(a: Array) -> Array:
        value = read(a)
        if kind == "F64":
            return integer_to_f64(value, mode).view(u64)
        if kind == "F32" and mode == "RN" and not small:
            return value.astype(f32).view(u32)
        return _rounded(integer_to_odd(value), kind, mode)

    return form.alu(compute)


@opcode("F2I", "UF2I")
def float_to_integer(form: Form) -> Semantics:
    """d = a rounded to an integer and clamped to the type's range, sign- or zero-extended to a word.

    NaN becomes 0 under .NTZ, else the pattern with only the type's top bit set.
    """
    ftz = form.flag("FTZ")
    rounding = _ROUNDINGS[form.choice("TRUNC", "FLOOR", "CEIL", "RN", default="RN")]
    integer = form.choice(*_INTEGERS, default="S32")
    kind = form.choice(*_FLOATS, default="F32")
    nan_to_zero = form.flag("NTZ")
    bits, signed = int(integer[1:]), integer[0] == "S"
    form.dest(2 if bits == 64 else 1)
    read = _take_float(form, kind, ftz)
    top = u64(1 << (bits - 1))
    if signed and bits < 64:
        top |= u64(2**64 - (1 << bits))
    nan_value = u64(0) if nan_to_zero else top

    def compute(a: Array) -> Array:
        value = read(a)
        whole = np.where(value != value, nan_value, f64_to_integer(rounding(value), bits, signed))
        return whole if bits == 64 else whole.astype(u32)

    return form.alu(compute)


@opcode("F2IP")
def pack_float_to_integer(form: Form) -> Semantics:
    """d = b rounded to an integer and clamped to a byte; the forms that also pack a or c are refused. NaN becomes 0."""
    rounding = _ROUNDINGS[form.choice("TRUNC", "FLOOR", "CEIL", "RN", default="RN")]
    integer = form.choice("U8", "S8")
    form.choice("F32")
    form.choice("NTZ")
    form.dest()
    _take_nothing(form)
    form.source("f32")
    _take_nothing(form)

    def compute(a: Array) -> Array:
        value = a.astype(f64)
        whole = f64_to_integer(rounding(value), 8, integer[0] == "S").astype(u32) & u32(0xFF)
        return np.where(value != value, u32(0), whole)

    return form.alu(compute)


def _take_nothing(form: Form) -> None:
    operand = form.take()
    if not (isinstance(operand, Register) and operand.is_zero):
        raise form.refuse("packing with another register")


@opcode("FRND", "UFRND")
def round_to_integral(form: Form) -> Semantics:
    """d = a rounded to an integral value of the same type."""
    ftz = form.flag("FTZ")
    rounding = _ROUNDINGS[form.choice("TRUNC", "FLOOR", "CEIL", "RN", default="RN")]
    kind = form.choice(*_FLOATS, default="F32")
    form.dest(2 if kind == "F64" else 1)
    if kind == "F32":
        form.source("f32")
        return form.alu(lambda a: canonical(rounding(flush(a) if ftz else a)))
    read = _take_float(form, kind, ftz)
    return form.alu(lambda a: _rounded(rounding(read(a)), kind, "RN"))


@opcode("F2F", "UF2F")
def float_to_float(form: Form) -> Semantics:
    """Conversion between precisions (destination type first in the text).

    A NaN keeps sign and payload to and from a double; between the narrower types it becomes 0x7fffffff or 0x7fff.
    """
    ftz, sat = form.flag("FTZ"), form.flag("SAT")
    mode = form.choice(*_MODES, default="RN")
    kinds = [m for m in form.instruction.modifiers if m in _FLOATS]
    for kind in kinds:
        form.flag(kind)
    if len(kinds) != 2 or kinds[0] == kinds[1]:
        raise form.refuse("this conversion")
    target, origin = kinds
    form.dest(2 if target == "F64" else 1)
    if ftz and (target == "F64" or origin == "F64") and kinds != ["F32", "F64"] and kinds != ["F64", "F32"]:
        raise form.refuse("flushing in this conversion")
    if sat and target != "F32":
        raise form.refuse("clamping in this conversion")
    read = _take_float(form, origin, ftz and origin != "F64")

    def compute(a: Array) -> Array:
        value = read(a)
        if target == "F32":
            single = round_f64_to_f32(value, mode)
            if ftz:
                single = flush(single)
            bits = canonical(saturate(single) if sat else single)
        else:
            bits = _rounded(value, target, mode)
        if origin == "F64" and not sat:
            return np.where(value != value, narrow_nan(value, _MANTISSAS[target]), bits)
        return bits

    return form.alu(compute)


@opcode("F2FP")
def pack_floats(form: Form) -> Semantics:
    """Two singles rounded to half precision or bfloat16: a to the high, b to the low half; or one to TF32."""
    if form.flag("TF32"):
        return _to_tf32(form)
    relu = form.flag("RELU")
    kind = "bf16" if form.flag("BF16") else "f16"
    form.without_effect("F16", "F32")  # names of the types that it is without .BF16
    merge = form.choice("PACK_AB", "MERGE_C") == "MERGE_C"
    mode = form.choice("RN", "RZ", default="RN")
    form.dest()
    form.source("f32")
    if merge:
        other = form.take()
        if not (isinstance(other, Register) and other.is_zero):
            raise form.refuse("merging with another register")
    else:
        form.source("f32")

    def narrow(a: Array) -> Array:
        if relu:
            a = np.where(a <= 0, f32(0), a)
        return to_half_bits(a.astype(f64), kind, mode)

    if merge:
        return form.alu(narrow)
    return form.alu(lambda a, b: pack(narrow(b), narrow(a)))


def _to_tf32(form: Form) -> Semantics:
    """Ten mantissa bits are left, in the place of a single's; NaN is 0x7fffe000."""
    form.without_effect("F32")  # the name of the only source type
    form.choice("PACK_B")
    relu = form.flag("RELU")
    mode = form.choice("RN", "RZ", default="RN")
    form.dest()
    form.source("f32")

    def compute(a: Array) -> Array:
        if relu:
            a = np.where(a <= 0, f32(0), a)
        bits = a.view(u32)
        step = u32(0xFFF) + (bits >> u32(13) & u32(1)) if mode == "RN" else u32(0)
        return np.where(a != a, u32(0x7FFFE000), (bits + step) & u32(0xFFFFE000))

    return form.alu(compute)


def clamp_integer(value: Array, kind: str) -> Array:
    """int64 values clamped to an integer type's range, as words in two's complement."""
    bits = int(kind[1:])
    low, high = (0, 2**bits - 1) if kind[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return np.clip(value, low, high).astype(u32)


@opcode("I2I", "UI2I")
def integer_to_integer(form: Form) -> Semantics:
    """d = a clamped to a narrower type."""
    form.choice("SAT")
    kinds = [m for m in form.instruction.modifiers if m in _INTEGERS]
    for kind in kinds:
        form.flag(kind)
    if len(kinds) != 2 or kinds[1] not in ("S32", "U32"):
        raise form.refuse("this conversion")
    form.dest()
    form.source("i32" if kinds[1] == "S32" else "u32")
    return form.alu(lambda a: clamp_integer(a.astype(np.int64), kinds[0]))


@opcode("I2IP")
def pack_integers(form: Form) -> Semantics:
    """d = {c, clamped a, clamped b}: the two narrow numbers at the bottom, c moved up above them."""
    form.choice("SAT")
    kinds = [m for m in form.instruction.modifiers if m in _INTEGERS]
    for kind in kinds:
        form.flag(kind)
    if len(kinds) != 2 or kinds[1] not in ("S32", "U32") or kinds[0] not in ("U8", "S8", "U16", "S16"):
        raise form.refuse("this conversion")
    bits = int(kinds[0][1:])
    source: ValueType = "i32" if kinds[1] == "S32" else "u32"
    form.dest()
    form.source(source)
    form.source(source)
    form.source("u32")
    mask = u32((1 << bits) - 1)

    def compute(a: Array, b: Array, c: Array) -> Array:
        first, second = (clamp_integer(x.astype(np.int64), kinds[0]) & mask for x in (a, b))
        return (second | first << u32(bits)) | (c << u32(16) if bits == 8 else u32(0))

    return form.alu(compute)
