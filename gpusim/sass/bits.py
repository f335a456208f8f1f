"""Shifts, byte permutes, bit counts, bit fields and masks (the vector and the uniform data path share these)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.sass.form import Form, Semantics
from gpusim.sass.numeric import Array, high_word, i64, low_word, pair, shift_left, u32, u64
from gpusim.sass.operands import Immediate
from gpusim.sass.registry import opcode


def _shift_amount(amount: Array, width: int, wrap: bool) -> Array:
    """Shift counts clamp at the width, or wrap under .W."""
    if wrap:
        return amount & u32(width - 1)
    return np.minimum(amount, u32(width))


@opcode("SHF", "USHF")
def funnel_shift(form: Form) -> Semantics:
    """Shift of the 64-bit value {high:low}: .L or .R, .HI takes the high word; counts clamp unless .W."""
    left = form.choice("L", "R") == "L"
    wrap = form.flag("W")
    kind = form.choice("U32", "S32", "U64", "S64")
    high = form.flag("HI")
    form.dest()
    form.source("u32")
    form.source("u32")
    form.source("u32")
    width = 32 if kind.endswith("32") else 64
    signed = kind[0] == "S"

    def compute(low: Array, amount: Array, upper: Array) -> Array:
        count = _shift_amount(amount, width, wrap)
        if left and not high and width == 32:
            return shift_left(low, count)
        if not left and high and width == 32:
            if signed:
                return (upper.view(np.int32) >> np.minimum(count, u32(31)).astype(np.int32)).view(u32)
            return (upper.astype(u64) >> count.astype(u64)).astype(u32)
        wide = pair(low, upper)
        steps = np.minimum(count, u32(63)).astype(u64)
        if left:
            shifted = wide << steps
            if width == 64:
                shifted = np.where(count >= u32(64), u64(0), shifted)
        elif signed:
            shifted = (wide.view(i64) >> steps.view(i64)).view(u64)
        else:
            shifted = wide >> steps
            if width == 64:
                shifted = np.where(count >= u32(64), u64(0), shifted)
        return high_word(shifted) if high else low_word(shifted)

    return form.alu(compute)


# Bytes that a special mode picks, lowest first, by the selector's two low bits (PTX ISA, prmt).
_PERMUTATIONS: dict[str, tuple[tuple[int, ...], ...]] = {
    "F4E": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "B4E": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "RC8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ECL": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ECR": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "RC16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def _selector(places: tuple[int, ...]) -> int:
    return sum(place << (4 * k) for k, place in enumerate(places))


@opcode("PRMT", "UPRMT")
def byte_permute(form: Form) -> Semantics:
    """Pick four bytes of {c:a} by the nibbles of the selector; bit 3 of a nibble replicates the byte's sign.

    The named modes look their nibbles up by the selector's two low bits.
    """
    mode = form.choice(*_PERMUTATIONS, default="")
    form.dest()
    form.source("u32")
    operand = form.source("u32")
    form.source("u32")
    if mode:
        table = np.array([_selector(places) for places in _PERMUTATIONS[mode]], u32)
        return form.alu(lambda a, b, c: _permute(a, table[b & u32(3)], c))
    if isinstance(operand, Immediate) and isinstance(operand.value, int):
        known = operand.value
        return form.alu(lambda a, b, c: _permute_fixed(a, known, c))
    return form.alu(_permute)


def _permute_fixed(a: Array, selector: int, c: Array) -> Array:
    result: Array | None = None
    for position in range(4):
        nibble = selector >> (4 * position) & 15
        word = a if nibble & 4 == 0 else c
        byte = word >> u32(8 * (nibble & 3)) & u32(255)
        if nibble & 8:
            byte = (byte >> u32(7)) * u32(255)
        byte = byte << u32(8 * position)
        result = byte if result is None else result | byte
    assert result is not None
    return result


def _permute(a: Array, selector: Array, c: Array) -> Array:
    wide = pair(a, c)
    result: Array = np.zeros((1, 1), u32)
    for position in range(4):
        nibble = selector >> u32(4 * position) & u32(15)
        byte = (wide >> ((nibble & u32(7)).astype(u64) * u64(8))).astype(u32) & u32(255)
        byte = np.where(nibble & u32(8), (byte >> u32(7)) * u32(255), byte)
        result = result | byte << u32(8 * position)
    return result


@opcode("POPC", "UPOPC")
def population_count(form: Form) -> Semantics:
    """d = number of set bits."""
    form.dest()
    form.source("u32")
    return form.alu(lambda a: np.bitwise_count(a).astype(u32))


@opcode("FLO", "UFLO")
def find_leading_one(form: Form) -> Semantics:
    """d = position of the highest set bit (.SH: counted from the top); all ones when there is none."""
    signed = form.choice("U32", "S32", default="S32") == "S32"
    from_top = form.flag("SH")
    form.dest()
    found = form.dest_predicates(1)
    form.source("u32")

    def compute(a: Array) -> Any:
        value = np.where(a.view(np.int32) < 0, ~a, a) if signed else a
        position = (np.frexp(value.astype(np.float64))[1] - 1).astype(u32)
        if from_top:
            position = u32(31) - position
        none = value == 0
        result = np.where(none, u32(0xFFFFFFFF), position)
        return (result, ~none) if found else result

    return form.alu(compute)


@opcode("BREV", "UBREV")
def bit_reverse(form: Form) -> Semantics:
    """d = the bits of a in reverse order."""
    form.dest()
    form.source("u32")

    def compute(a: Array) -> Array:
        for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
            a = ((a >> u32(shift)) & u32(mask)) | ((a & u32(mask)) << u32(shift))
        return a.byteswap()

    return form.alu(compute)


@opcode("SGXT", "USGXT")
def sign_extend(form: Form) -> Semantics:
    """Keep the low b bits of a, sign- or (.U32) zero-extended; b clamps at 32 unless .W."""
    unsigned = form.flag("U32")
    wrap = form.flag("W")
    form.dest()
    form.source("u32")
    form.source("u32")

    def compute(a: Array, bits: Array) -> Array:
        count = bits & u32(31) if wrap else np.minimum(bits, u32(32))
        drop = u32(32) - count
        shifted = shift_left(a, drop)
        if unsigned:
            return (shifted.astype(u64) >> drop.astype(u64)).astype(u32)
        result = (shifted.view(np.int32) >> np.minimum(drop, u32(31)).astype(np.int32)).view(u32)
        return np.where(count == 0, u32(0), result)

    return form.alu(compute)


@opcode("BMSK", "UBMSK")
def bit_mask(form: Form) -> Semantics:
    """d = b ones starting at bit a."""
    wrap = form.flag("W")
    form.without_effect("C")  # clamps, which is what happens without .W
    form.dest()
    form.source("u32")
    form.source("u32")

    def compute(start: Array, count: Array) -> Array:
        if wrap:
            start, count = start & u32(31), count & u32(31)
        first = np.minimum(start, u32(32)).astype(u64)
        ones = (u64(1) << np.minimum(count, u32(32)).astype(u64)) - u64(1)
        return (ones << first).astype(u32)

    return form.alu(compute)
