"""Half-precision and bfloat16 arithmetic: two numbers a word, each result rounded once.

Operands and results are converted to float64, where products are exact and sums are rounded to odd, so that the one
rounding to the narrow type decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.sass.form import Alu, Form, Semantics, Source
from gpusim.sass.numeric import (
    Array,
    canonical,
    choose_extreme,
    f32,
    f64,
    round_f64_to_bf16,
    round_f64_to_f16,
    sum_to_odd,
    u32,
    widen_bf16,
    widen_f16,
)
from gpusim.sass.operands import Constant, Immediate, Register
from gpusim.sass.predicate import FLOAT_TESTS, JOINS, float_compare
from gpusim.sass.registry import opcode

Pair = tuple[Array, Array]
# Which half stands in the low and in the high place; the names say the high one first (H0_NH1: high = H0, low = -H1).
_PICKS = {"": (0, 1), "H0_H0": (0, 0), "H1_H1": (1, 1), "H0_NH1": (1, 0), "H0": (0, 0), "H1": (1, 1)}
LEAST_NORMAL = {"f16": 2.0**-14, "bf16": 2.0**-126}


def half_kind(form: Form) -> str:
    """The number type: bf16 under .BF16_V2, else f16."""
    return "bf16" if form.flag("BF16_V2") else "f16"


def widen(bits: Array, kind: str) -> Array:
    """The float64 value of the 16 bits in the low half of each word."""
    return widen_bf16(bits) if kind == "bf16" else widen_f16(bits)


def to_half_bits(value: Array, kind: str, mode: str = "RN") -> Array:
    """float64 to the 16 bits of the type, as words."""
    return (round_f64_to_bf16 if kind == "bf16" else round_f64_to_f16)(value, mode).astype(u32)


def pack(low: Array, high: Array) -> Array:
    """Two 16-bit patterns as one word."""
    return low | high << u32(16)


def _literal_bits(value: int | float, kind: str) -> int:
    if isinstance(value, int):
        return value & 0xFFFF
    return int(to_half_bits(np.array([float(value)]), kind)[0])


def _literals(form: Form, kind: str) -> Source:
    """Two literals, high half first; their exact bits are in the encoding where there is one."""
    high, low = form.take(), form.take()
    if not (isinstance(high, Immediate) and isinstance(low, Immediate)):
        raise form.refuse("expected two literals")
    word = form.instruction.encoding >> 32 & 0xFFFFFFFF
    if not form.instruction.encoding:
        word = _literal_bits(low.value, kind) | _literal_bits(high.value, kind) << 16
    return Source(Immediate(f"{word:#x}", word), "u32")


def take_halves(form: Form, kind: str, flush: bool = False) -> Callable[[Array], Pair]:
    """Take an operand of two halves; returns what turns its word into two float64 arrays, marks applied."""
    if isinstance(form.peek(), Immediate):
        form.sources.append(_literals(form, kind))
        return _reader((0, 1), (False, False), False, kind, flush)
    operand = form.take()
    if not isinstance(operand, Register | Constant) or operand.inverted or len(operand.suffixes) > 1:
        raise form.refuse("expected halves")
    suffix = operand.suffixes[0] if operand.suffixes else ""
    if suffix == "F32" and kind == "f16" and not operand.absolute and not flush:
        return _truncated_single(form, operand)
    if suffix not in _PICKS:
        raise form.refuse(f"operand suffix {suffix}")
    form.sources.append(Source(operand, "u32", bare=True))
    negate = (operand.negated != (suffix == "H0_NH1"), operand.negated)
    return _reader(_PICKS[suffix], negate, operand.absolute, kind, flush)


def _truncated_single(form: Form, operand: Register | Constant) -> Callable[[Array], Pair]:
    """A single, cut to half precision, as both halves (sm_75's way to round towards zero)."""
    form.sources.append(Source(operand, "u32", bare=True))

    def read(word: Array) -> Pair:
        value = widen_f16(round_f64_to_f16(word.view(f32).astype(f64), "RZ"))
        value = -value if operand.negated else value
        return value, value

    return read


def _reader(
    picks: tuple[int, int], negate: tuple[bool, bool], absolute: bool, kind: str, flush: bool
) -> Callable[[Array], Pair]:
    def one(word: Array, which: int, negated: bool) -> Array:
        value = widen(word >> u32(16) if which else word & u32(0xFFFF), kind)
        if flush:
            value = np.where(np.abs(value) < LEAST_NORMAL[kind], np.copysign(0.0, value), value)
        if absolute:
            value = np.abs(value)
        return -value if negated else value

    def read(word: Array) -> Pair:
        low = one(word, picks[0], negate[0])
        same = picks[0] == picks[1] and negate[0] == negate[1]
        return low, low if same else one(word, picks[1], negate[1])

    return read


def _finisher(form: Form, kind: str) -> Callable[[Array], Array]:
    """What turns one exact (or rounded to odd) result into 16 bits: .SAT, .RELU, the rounding, .FTZ.

    Under .FTZ a result is also 0 if it is the smallest normal number only because a subnormal one has fewer bits
    (HMUL2 and HFMA2 on an H200, as FMUL: tests/data/h200_edges.npz.xz).
    """
    saturate, relu = form.flag("SAT"), form.flag("RELU")
    flush = "FTZ" in form.instruction.modifiers

    def finish(value: Array) -> Array:
        if saturate:
            value = np.where(value > 0, np.minimum(value, 1.0), 0.0)
        if relu:
            value = np.where(value <= 0, 0.0, value)
        bits = to_half_bits(value, kind)
        if flush:
            exponent = u32(0x7F80 if kind == "bf16" else 0x7C00)
            normal = (bits & exponent) != 0
            least = u32(1 << 7 if kind == "bf16" else 1 << 10)
            at_least = (bits & u32(0x7FFF)) == least
            if at_least.any():
                enlarged = to_half_bits(np.where(at_least, value, 0.0) * 2.0**8, kind)
                normal &= ~at_least | ((enlarged & u32(0x7FFF)) >= least * u32(9))
            bits = np.where(normal, bits, bits & u32(0x8000))
        return bits

    return finish


def _arithmetic(form: Form, operands: int, combine: Callable[..., Array]) -> Alu:
    kind = half_kind(form)
    single = form.flag("F32")
    flush = form.flag("FTZ")
    form.without_effect("MMA")  # which unit computes it
    finish = _finisher(form, kind)
    form.dest()
    read = [take_halves(form, kind, flush) for _ in range(operands)]

    def compute(*words: Array) -> Array:
        values = [take(word) for take, word in zip(read, words, strict=True)]
        low = combine(*(v[0] for v in values))
        if single:
            return canonical(low.astype(f32))
        same = all(v[0] is v[1] for v in values)
        bits = finish(low)
        return pack(bits, bits if same else finish(combine(*(v[1] for v in values))))

    if single and ("SAT" in form.instruction.modifiers or "RELU" in form.instruction.modifiers or flush):
        raise form.refuse("a clamp or flush of a single-precision result")
    return form.alu(compute)


@opcode("HADD2")
def half_add(form: Form) -> Semantics:
    """Two sums a + b; .F32: one sum, of the low halves, in single precision."""
    return _arithmetic(form, 2, sum_to_odd)


@opcode("HMUL2")
def half_multiply(form: Form) -> Semantics:
    """Two products a * b."""
    return _arithmetic(form, 2, np.multiply)


@opcode("HFMA2")
def half_multiply_add(form: Form) -> Semantics:
    """Two a*b + c with one rounding each; -RZ*RZ + literals is how the compiler writes constants."""
    meaning = _arithmetic(form, 3, lambda a, b, c: sum_to_odd(a * b, c))
    operands = [source.operand for source in meaning.sources]
    if not all(isinstance(x, Immediate) or (isinstance(x, Register) and x.is_zero) for x in operands):
        return meaning
    words = [np.full((1, 1), x.value if isinstance(x, Immediate) else 0, u32) for x in operands]
    with np.errstate(all="ignore"):
        constant = meaning.compute(*words)
    return Alu((), meaning.dests, lambda: constant)


@opcode("HMNMX2")
def half_minimum_maximum(form: Form) -> Semantics:
    """d = p ? min : max of both halves; a NaN loses, or wins under .NAN; .XORSIGN: the product's sign."""
    kind = half_kind(form)
    flush, keep_nan, product_sign = form.flag("FTZ"), form.flag("NAN"), form.flag("XORSIGN")
    form.dest()
    first = form.peek()
    read_a = take_halves(form, kind, flush)
    second = form.peek()
    read_b = take_halves(form, kind, flush)
    form.source_predicate()
    picks = [_magnitude_picks(form, x) for x in (first, second)] if product_sign else []

    def choose(a: Array, b: Array, p: Array) -> Array:
        value = choose_extreme(p, a, b)
        if keep_nan:
            value = np.where((a != a) | (b != b), np.nan, value)
        return to_half_bits(value, kind)

    def compute(a: Array, b: Array, p: Array) -> Array:
        (a_low, a_high), (b_low, b_high) = read_a(a), read_b(b)
        result = pack(choose(a_low, b_low, p), choose(a_high, b_high, p))
        if product_sign:
            result = _with_product_sign(result, _picked(a, picks[0]) ^ _picked(b, picks[1]), kind)
        return result

    return form.alu(compute)


def _magnitude_picks(form: Form, operand: object) -> tuple[int, int]:
    """Which halves a magnitude operand stands for."""
    if isinstance(operand, Register) and operand.absolute and not operand.negated:
        suffix = operand.suffixes[0] if operand.suffixes else ""
        if suffix in ("", "H0_H0", "H1_H1"):
            return _PICKS[suffix]
    raise form.refuse("a product's sign without magnitudes")


def _picked(word: Array, picks: tuple[int, int]) -> Array:
    """The word of the halves that an operand stands for."""
    if picks == (0, 1):
        return word
    half = word >> u32(16) if picks[0] else word & u32(0xFFFF)
    return pack(half, half)


def _with_product_sign(result: Array, signs: Array, kind: str) -> Array:
    """The sign bits of ``signs`` on each half that is not NaN."""
    infinity = u32(0x7F80 if kind == "bf16" else 0x7C00)
    numbers: Array = np.zeros((1, 1), u32)
    for shift in (u32(0), u32(16)):
        is_number = (result >> shift & u32(0x7FFF)) <= infinity
        numbers = numbers | np.where(is_number, u32(0x8000) << shift, u32(0))
    return result | (signs & numbers)


def _tests(form: Form) -> tuple[str, str, bool, Any]:
    """(type, comparison, flush, joining function)."""
    kind = half_kind(form)
    name = form.choice(*FLOAT_TESTS)
    flush = form.flag("FTZ")
    return kind, name, flush, JOINS[form.choice("AND", "OR", "XOR")]


@opcode("HSETP2")
def half_set_predicate(form: Form) -> Semantics:
    """p, q = the comparisons of the low and of the high halves, each joined with a predicate."""
    kind, name, flush, combine = _tests(form)
    form.dest_predicate()
    form.dest_predicate()
    read_a, read_b = take_halves(form, kind, flush), take_halves(form, kind, flush)
    form.source_predicate()

    def compute(a: Array, b: Array, other: Array) -> Any:
        (a_low, a_high), (b_low, b_high) = read_a(a), read_b(b)
        low = combine(float_compare(name, a_low, b_low), other)
        return low, combine(float_compare(name, a_high, b_high), other)

    return form.alu(compute)


@opcode("HSET2")
def half_set(form: Form) -> Semantics:
    """Each half all ones, or 1.0 under .BF, where the joined comparison holds, else 0."""
    as_float = form.flag("BF")
    kind, name, flush, combine = _tests(form)
    form.dest()
    read_a, read_b = take_halves(form, kind, flush), take_halves(form, kind, flush)
    form.source_predicate()
    yes = u32((0x3F80 if kind == "bf16" else 0x3C00) if as_float else 0xFFFF)

    def compute(a: Array, b: Array, other: Array) -> Array:
        (a_low, a_high), (b_low, b_high) = read_a(a), read_b(b)
        low = np.where(combine(float_compare(name, a_low, b_low), other), yes, u32(0))
        return pack(low, np.where(combine(float_compare(name, a_high, b_high), other), yes, u32(0)))

    return form.alu(compute)
