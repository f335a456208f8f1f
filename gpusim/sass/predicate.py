"""Comparisons into predicates, predicate logic, and moves between predicates and registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.sass.form import Form, Semantics, ValueType
from gpusim.sass.numeric import Array, flush, logic3_bool, u32
from gpusim.sass.operands import Immediate, Named, Predicate, Register
from gpusim.sass.registry import opcode

JOINS = {"AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}
_ORDER = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}
TRUE: Array = np.ones((1, 1), bool)
FALSE: Array = np.zeros((1, 1), bool)


def _integer_compare(name: str, a: Array, b: Array) -> Array:
    if name == "T":
        return TRUE
    if name == "F":
        return FALSE
    return _ORDER[name](a, b)


def float_compare(name: str, a: Array, b: Array) -> Array:
    """Ordered comparisons are false with a NaN, the ones ending in U are true; NUM and NAN test for NaN."""
    if name == "T":
        return TRUE
    if name == "F":
        return FALSE
    if name == "NUM":
        return (a == a) & (b == b)
    if name == "NAN":
        return (a != a) | (b != b)
    if name == "NE":
        return (a < b) | (a > b)
    if name == "NEU":
        return a != b
    if name == "EQU":
        return ~((a < b) | (a > b))
    if name.endswith("U"):
        opposite = {"LTU": np.greater_equal, "LEU": np.greater, "GTU": np.less_equal, "GEU": np.less}[name]
        return ~opposite(a, b)
    return _ORDER[name](a, b)


def _joined(form: Form, test: Any, join: str, arity: int, monotone: str = "") -> Semantics:
    """Two results: test joined with the last predicate, and its complement joined with it."""
    if form.remaining():
        raise form.refuse("more operands than this form has")
    combine = JOINS[join]
    joined = form.sources[-1].operand if arity < len(form.sources) else None
    trivial = isinstance(joined, Predicate) and joined.is_constant and not joined.negated and join == "AND"
    both = len(form.dests) == 2

    def compute(*values: Array) -> Any:
        result = test(*values[:arity])
        other = values[arity]
        if trivial:
            return (result, ~result) if both else result
        first = combine(result, other)
        return (first, combine(~result, other)) if both else first

    return form.alu(compute, monotone)


def _dest_pair(form: Form) -> None:
    """Take the two destination predicates; the second is usually PT (dropped)."""
    form.dest_predicate()
    if isinstance(form.peek(), Predicate):
        form.dest_predicate()


@opcode("ISETP", "UISETP")
def integer_set_predicate(form: Form) -> Semantics:
    """p, q = compare(a, b) joined with a predicate; .EX compares high words after an equal low comparison."""
    name = form.choice("LT", "LE", "GT", "GE", "EQ", "NE", "T", "F")
    extended = form.flag("EX")
    wide = form.choice("U64", "S64", default="no")
    unsigned = form.flag("U32") or wide == "U64"
    form.flag("S32")
    join = form.choice("AND", "OR", "XOR")
    kind: ValueType = "u32" if unsigned else "i32"
    if wide != "no":
        kind = "u64" if unsigned else "i64"
    _dest_pair(form)
    form.source(kind)
    form.source(kind)
    form.source_predicate()
    if extended:
        form.source_predicate()
        return _extended(form, name, join)
    return _joined(form, lambda a, b: _integer_compare(name, a, b), join, 2)


def _extended(form: Form, name: str, join: str) -> Semantics:
    combine = JOINS[join]
    both = len(form.dests) == 2

    def compute(a: Array, b: Array, other: Array, low: Array) -> Any:
        if name == "EQ":
            result = (a == b) & low
        elif name == "NE":
            result = (a != b) | low
        elif name in ("T", "F"):
            result = _integer_compare(name, a, b)
        else:
            result = _ORDER[name[0] + "T"](a, b) | ((a == b) & low)
        first = combine(result, other)
        return (first, combine(~result, other)) if both else first

    return form.alu(compute)


FLOAT_TESTS = (
    "LT", "EQ", "LE", "GT", "NE", "GE", "NUM", "NAN", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "T", "F",
)  # fmt: skip


@opcode("FSETP", "DSETP", "UFSETP")
def float_set_predicate(form: Form) -> Semantics:
    """p, q = compare(a, b) joined with a predicate (.FTZ flushes subnormal operands first)."""
    double = form.instruction.opcode[0] == "D"
    if double and form.instruction.modifiers[:1] in (("MIN",), ("MAX",)):
        return _double_choice(form)
    name = form.choice(*FLOAT_TESTS)
    flush_operands = form.flag("FTZ")
    join = form.choice("AND", "OR", "XOR")
    _dest_pair(form)
    form.source("f64" if double else "f32")
    form.source("f64" if double else "f32")
    form.source_predicate()

    def test(a: Array, b: Array) -> Array:
        if flush_operands:
            a, b = flush(a), flush(b)
        return float_compare(name, a, b)

    ordering = not double and name[:2] in ("LT", "LE", "GT", "GE")
    return _joined(form, test, join, 2, "always" if ordering else "")


def _double_choice(form: Form) -> Semantics:
    """How minima and maxima of doubles are made: p says whether a is taken, q that both are NaN.

    -0 is below +0, and a number is taken before a NaN.
    """
    least = form.choice("MIN", "MAX") == "MIN"
    combine = JOINS[form.choice("AND")]
    form.dest_predicate()
    form.dest_predicate()
    form.source("f64")
    form.source("f64")
    form.source_predicate()

    def compute(a: Array, b: Array, p: Array) -> Any:
        ahead = a < b if least else a > b
        tie = (a == b) & (np.signbit(a) if least else ~np.signbit(a))
        takes = ahead | tie | ((b != b) & (a == a))
        return combine(takes, p), combine((a != a) & (b != b), p)

    return form.alu(compute)


@opcode("FSET", "UFSET")
def float_set(form: Form) -> Semantics:
    """d = all ones, or 1.0 under .BF, where the joined comparison holds, else 0."""
    as_float = form.flag("BF")
    name = form.choice(*FLOAT_TESTS)
    flush_operands = form.flag("FTZ")
    combine = JOINS[form.choice("AND", "OR", "XOR")]
    form.dest()
    form.source("f32")
    form.source("f32")
    form.source_predicate()
    yes = u32(0x3F800000) if as_float else u32(0xFFFFFFFF)

    def compute(a: Array, b: Array, other: Array) -> Array:
        if flush_operands:
            a, b = flush(a), flush(b)
        return np.where(combine(float_compare(name, a, b), other), yes, u32(0))

    return form.alu(compute)


@opcode("PLOP3", "UPLOP3")
def predicate_logic(form: Form) -> Semantics:
    """Two boolean functions of three predicates by truth tables."""
    form.without_effect("LUT")  # the only form there is
    form.dest_predicate()
    form.dest_predicate()
    for _ in range(3):
        _truth(form)
    signs = [s.type == "i32" for s in form.sources]
    first, second = form.integer(), form.integer()

    def compute(*inputs: Array) -> Any:
        a, b, c = (x < 0 if sign else x for x, sign in zip(inputs, signs, strict=True))
        return logic3_bool(a, b, c, first), logic3_bool(a, b, c, second)

    return form.alu(compute)


def _truth(form: Form) -> None:
    """Take a predicate, or the sign of a register (R0.SIGN) as one."""
    if isinstance(form.peek(), Predicate):
        form.source_predicate()
        return
    operand = form.source("i32", bare=True, suffixes=("SIGN",))
    if not (isinstance(operand, Register) and operand.suffixes == ("SIGN",)):
        raise form.refuse("a word where a truth value is expected")
    if operand.negated or operand.inverted or operand.absolute:
        raise form.refuse("a marked sign")


@opcode("P2R", "UP2R")
def predicates_to_register(form: Form) -> Semantics:
    """d = (a with the masked bits cleared) | the predicates P0..P6 in the masked bits (.B1.. a byte higher)."""
    byte = form.choice("B0", "B1", "B2", "B3", default="B0")
    uniform = form.instruction.opcode[0] == "U"
    form.dest()
    if not isinstance(form.peek(), Named):
        raise form.refuse("only PR as the predicate set")
    form.named()
    form.source("u32")
    mask = form.integer() & 0x7F
    wanted = [k for k in range(7) if mask >> k & 1]
    for k in wanted:
        _predicate_source(form, k, uniform)
    shift = 8 * int(byte[1])

    def compute(a: Array, *predicates: Array) -> Array:
        result = a & u32(~(mask << shift) & 0xFFFFFFFF)
        for k, predicate in zip(wanted, predicates, strict=True):
            result = result | predicate.astype(u32) << u32(k + shift)
        return result

    return form.alu(compute)


def _predicate_source(form: Form, index: int, uniform: bool) -> None:
    from gpusim.sass.form import Source

    form.sources.append(Source(Predicate("UP" if uniform else "P", index), "pred"))


@opcode("R2P", "UR2P")
def register_to_predicates(form: Form) -> Semantics:
    """P0..P6 = the masked bits of a (.B1.. a byte higher)."""
    from gpusim.sass.form import Dest

    byte = form.choice("B0", "B1", "B2", "B3", default="B0")
    uniform = form.instruction.opcode[0] == "U"
    if not isinstance(form.peek(), Named):
        raise form.refuse("only PR as the predicate set")
    form.named()
    form.source("u32")
    operand = form.take()
    if not (isinstance(operand, Immediate) and isinstance(operand.value, int)):
        raise form.refuse("a mask that is not a literal")
    wanted = [k for k in range(7) if operand.value >> k & 1]
    form.dests.extend(Dest(Predicate("UP" if uniform else "P", k)) for k in wanted)
    shift = 8 * int(byte[1])

    def compute(a: Array) -> Any:
        bits = tuple((a >> u32(k + shift) & u32(1)).astype(bool) for k in wanted)
        return bits if len(bits) != 1 else bits[0]

    return form.alu(compute)
