"""Integers compared, added and multiplied side by side in a word: minima, maxima, differences, dot products.

Whole words and register pairs are the case of one number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.sass.form import Form, Semantics, ValueType
from gpusim.sass.numeric import Array, i64, u32
from gpusim.sass.operands import Constant, Predicate, Register
from gpusim.sass.registry import opcode

_PACKED = {"S16x2": 16, "U16x2": 16, "16x2": 16, "S8x4": 8, "U8x4": 8}


def _split(word: Array, bits: int, signed: bool) -> list[Array]:
    """The numbers of a word, lowest first, as int64."""
    parts = []
    for shift in range(0, 32, bits):
        part = (word >> u32(shift) & u32((1 << bits) - 1)).astype(i64)
        parts.append(np.where(part >> i64(bits - 1), part - i64(1 << bits), part) if signed else part)
    return parts


def _join(parts: list[Array], bits: int) -> Array:
    """Numbers (wrapped to their width) back to a word."""
    result: Array = np.zeros((1, 1), u32)
    for place, part in enumerate(parts):
        result = result | (part & i64((1 << bits) - 1)).astype(u32) << u32(bits * place)
    return result


def _packed_source(form: Form, bits: int, signed: bool) -> Callable[[Array], list[Array]]:
    """Take a word of several numbers; a minus sign negates each of them."""
    operand = form.source("u32", bare=True)
    if getattr(operand, "inverted", False) or getattr(operand, "absolute", False):
        raise form.refuse("a marked operand of packed numbers")
    negated = getattr(operand, "negated", False)

    def read(word: Array) -> list[Array]:
        parts = _split(word, bits, signed)
        return [-p for p in parts] if negated else parts

    return read


def _pick(least: Array, a: Array, b: Array) -> Array:
    """min(a, b) where ``least`` holds, max(a, b) elsewhere."""
    if least.size == 1:
        return np.minimum(a, b) if least.item() else np.maximum(a, b)
    return np.where(least, np.minimum(a, b), np.maximum(a, b))


def _relu(value: Array) -> Array:
    return np.maximum(value, value.dtype.type(0))


@opcode("VIADD", "UVIADD")
def integer_add_two(form: Form) -> Semantics:
    """d = a + b; several numbers side by side wrap each for itself, .ISAT clamps."""
    packed = form.choice(*_PACKED, default="")
    clamp = form.flag("ISAT")
    if clamp and not form.flag("S32"):
        raise form.refuse("this clamped sum")
    form.dest()
    if packed:
        bits = _PACKED[packed]
        reads = [_packed_source(form, bits, False) for _ in range(2)]

        def several(a: Array, b: Array) -> Array:
            return _join([x + y for x, y in zip(reads[0](a), reads[1](b), strict=True)], bits)

        return form.alu(several)
    if clamp:
        signs = [_sign(form) for _ in range(2)]
        return form.alu(lambda a, b: clamp_signed(a.astype(i64) * signs[0] + b.astype(i64) * signs[1]))
    form.source("u32")
    form.source("u32")
    return form.alu(lambda a, b: a + b)


def _sign(form: Form) -> Any:
    """Take a signed word; returns -1 if it has a minus sign, else 1."""
    operand = form.source("i32", bare=True)
    if getattr(operand, "inverted", False) or getattr(operand, "absolute", False):
        raise form.refuse("a marked operand of a clamped sum")
    return i64(-1 if getattr(operand, "negated", False) else 1)


def clamp_signed(value: Array) -> Array:
    """int64 values clamped to 32 bits."""
    return np.clip(value, -(2**31), 2**31 - 1).astype(u32)


def _choice(form: Form, operands: int, combine: Callable[..., Array]) -> Semantics:
    """Common part of minima and maxima: types, .RELU, predicate results, operands; ``combine(p, *numbers)``."""
    packed = form.choice(*_PACKED, default="")
    name = packed or form.choice("U32", "S32", default="S32")
    relu = form.flag("RELU")
    signed = not name.startswith("U")
    if packed == "16x2":
        raise form.refuse("numbers that are neither signed nor unsigned")
    form.dest()
    wanted = form.dest_predicates(2)
    if all(d.is_sink for d in form.dests[1:]):
        del form.dests[1:]
        wanted = 0
    if wanted and (wanted != 2 or packed not in ("S16x2", "U16x2") or operands != 2 or relu):
        raise form.refuse("a predicate result of a minimum or maximum")
    reads: list[Callable[[Array], list[Array]]] = []
    for _ in range(operands):
        if packed:
            reads.append(_packed_source(form, _PACKED[packed], signed))
        else:
            form.source("i32" if signed else "u32")
    form.source_predicate()

    def whole(*values: Array) -> Array:
        result = combine(values[-1], *values[:-1])
        return (_relu(result) if relu else result).view(u32)

    def several(*values: Array) -> Any:
        least = values[-1]
        numbers = list(zip(*(read(v) for read, v in zip(reads, values[:-1], strict=True)), strict=True))
        parts = [combine(least, *n) for n in numbers]
        word = _join([_relu(p) for p in parts] if relu else parts, _PACKED[packed])
        if not wanted:
            return word
        return (word, *(np.where(least, a <= b, a >= b) for a, b in numbers))

    return form.alu(several if packed else whole)


@opcode("IMNMX", "VIMNMX", "UIMNMX", "UVIMNMX")
def minimum_maximum(form: Form) -> Semantics:
    """d = p ? min(a, b) : max(a, b); predicates say, for the low and the high half, whether a is taken."""
    for kind in ("S64", "U64"):
        if form.flag(kind):
            return _wide_choice(form, "i64" if kind == "S64" else "u64")
    return _choice(form, 2, _pick)


def _wide_choice(form: Form, kind: ValueType) -> Semantics:
    for _ in range(2):
        if not form.dest_predicate().is_sink:
            raise form.refuse("a predicate result of a minimum or maximum")
    form.dests.clear()
    form.dest(2)
    form.source(kind)
    form.source(kind)
    form.source_predicate()
    last = form.take()
    if not (isinstance(last, Predicate) and last.is_constant and last.negated):
        raise form.refuse("a second predicate of a minimum or maximum")
    return form.alu(lambda a, b, p: _pick(p, a, b).view(np.uint64))


@opcode("VIMNMX3", "UVIMNMX3")
def minimum_maximum_three(form: Form) -> Semantics:
    """d = p ? min(a, b, c) : max(a, b, c)."""
    return _choice(form, 3, lambda p, a, b, c: _pick(p, _pick(p, a, b), c))


@opcode("VIADDMNMX", "UVIADDMNMX")
def add_minimum_maximum(form: Form) -> Semantics:
    """d = p ? min(a + b, c) : max(a + b, c); the sum wraps."""
    packed = [m for m in form.instruction.modifiers if m in _PACKED]
    bits = _PACKED[packed[0]] if packed else 32
    unsigned = any(m.startswith("U") for m in form.instruction.modifiers)

    def combine(p: Array, a: Array, b: Array, c: Array) -> Array:
        total = a + b
        if bits < 32:
            total = total & i64((1 << bits) - 1)
            if not unsigned:
                total = np.where(total >> i64(bits - 1), total - i64(1 << bits), total)
        return _pick(p, total, c)

    return _choice(form, 3, combine)


@opcode("VABSDIFF")
def absolute_difference(form: Form) -> Semantics:
    """d = |a - b| + c."""
    kind: ValueType = "u32" if form.choice("U32", "S32", default="S32") == "U32" else "i32"
    form.dest()
    form.source(kind)
    form.source(kind)
    form.source("u32")
    return form.alu(lambda a, b, c: np.abs(a.astype(i64) - b.astype(i64)).astype(u32) + c)


@opcode("VABSDIFF4")
def absolute_differences(form: Form) -> Semantics:
    """Four differences of bytes, side by side; .ACC: their sum, added to c."""
    signed = form.choice("U8", "S8") == "S8"
    accumulate = form.flag("ACC")
    form.dest()
    reads = [_packed_source(form, 8, signed) for _ in range(2)]
    c = form.source("u32")
    if not accumulate and not (isinstance(c, Register) and c.is_zero):
        raise form.refuse("an addend of packed differences")

    def compute(a: Array, b: Array, c: Array) -> Array:
        parts = [np.abs(x - y) for x, y in zip(reads[0](a), reads[1](b), strict=True)]
        return sum(parts).astype(u32) + c if accumulate else _join(parts, 8)

    return form.alu(compute)


@opcode("IDP", "UIDP")
def dot_product(form: Form) -> Semantics:
    """d = c + sum of products: four bytes by four bytes (.4A), or two halves by two bytes of b (.2A.LO, .2A.HI)."""
    types = [m for m in form.instruction.modifiers if m[0] in "US" and m[1:].isdigit()]
    four = form.choice("4A", "2A") == "4A"
    high = not four and form.choice("LO", "HI") == "HI"
    if len(types) != 2 or types[0][1:] != ("8" if four else "16") or types[1][1:] != "8":
        raise form.refuse("this dot product")
    for name in types:
        form.flag(name)
    form.dest()
    read_a = _packed_source(form, 8 if four else 16, types[0][0] == "S")
    read_b = _packed_source(form, 8, types[1][0] == "S")
    if any(isinstance(s.operand, Register | Constant) and s.operand.negated for s in form.sources):
        raise form.refuse("a negated operand of a dot product")
    form.source("u32")

    def compute(a: Array, b: Array, c: Array) -> Array:
        second = read_b(b)
        if not four:
            second = second[2:] if high else second[:2]
        total = sum(x * y for x, y in zip(read_a(a), second, strict=True))
        return (total & i64(0xFFFFFFFF)).astype(u32) + c

    return form.alu(compute)
