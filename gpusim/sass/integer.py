"""Integer arithmetic, logic and shifts (the vector and the uniform data path share these)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.sass.form import Form, Semantics
from gpusim.sass.numeric import (
    ONE64,
    Array,
    flush,
    high_word,
    i64,
    logic3,
    low_word,
    pair,
    select,
    u32,
    u64,
)
from gpusim.sass.operands import Constant, Immediate, Predicate, Register
from gpusim.sass.registry import opcode

CARRY = u64(1 << 32)


def _marks(operand: object) -> tuple[bool, bool]:
    """(negated, inverted) of a source operand."""
    if isinstance(operand, Register | Constant):
        return operand.negated, operand.inverted
    return False, False


def _is_zero(operand: object) -> bool:
    if isinstance(operand, Register):
        return operand.is_zero and not operand.inverted
    return isinstance(operand, Immediate) and operand.value == 0


def _addend(value: Array, negated: bool, inverted: bool) -> Array:
    """The 33-bit addend that an adder sees: -x is 2**32 - x (so that -0 carries), ~x is 2**32 - 1 - x."""
    wide = value.astype(u64)
    if negated:
        return CARRY - wide
    if inverted:
        return (CARRY - u64(1)) - wide
    return wide


def _sum_with_carries(operands: list[Any], carries_out: int, carries_in: int) -> Callable[..., Any]:
    """compute(values..., carry predicates...) for adders of up to three operands.

    The first carry out is set when the sum reaches 2**32, the second when it reaches 2**33.
    """
    marks = [_marks(o) for o in operands]
    used = [k for k, o in enumerate(operands) if not _is_zero(o) or marks[k][0]]
    count = len(operands)

    def plain(*values: Array) -> Array:
        total: Array | None = None
        for k in used:
            value = values[k]
            negated, inverted = marks[k]
            if inverted:
                value = ~value
            if total is None:
                total = (u32(0) - value) if negated else value
            else:
                total = total - value if negated else total + value
        if total is None:
            total = np.zeros((1, 1), u32)
        for carry in values[count:]:
            total = total + carry.astype(u32)
        return total

    def pairwise(*values: Array) -> tuple[Array, Array]:
        first, second = values[used[0]], values[used[1]]
        total = first + second
        return total, total < first

    def full(*values: Array) -> tuple[Array, ...]:
        total: Array = np.zeros((1, 1), u64)
        for k in used:
            total = total + _addend(values[k], *marks[k])
        for carry in values[count:]:
            total = total + carry.astype(u64)
        outs = [total >= CARRY, total >= CARRY * u64(2)]
        return low_word(total), *outs[:carries_out]

    if carries_out == 0:
        return plain
    if carries_out == 1 and carries_in == 0 and len(used) == 2 and not any(m[0] or m[1] for m in marks):
        return pairwise
    return full


def _carry_inputs(form: Form) -> int:
    """Take carry-in predicates; constant false ones (!PT) add nothing and are left out."""
    count = 0
    while isinstance(form.peek(), Predicate):
        operand = form.peek()
        assert isinstance(operand, Predicate)
        if operand.is_constant and operand.negated:
            form.take()
            continue
        form.source_predicate()
        count += 1
    return count


@opcode("IADD3", "UIADD3", "IADD", "UIADD")
def integer_add(form: Form) -> Semantics:
    """d = a + b (+ c) with up to two carries out and, under .X, carries in."""
    if form.flag("64"):
        return _add64(form)
    operands_wanted = 3 if form.instruction.opcode.endswith("3") else 2
    extended = form.flag("X")
    form.dest()
    carries_out = form.dest_predicates(2)
    operands = [form.source("u32", bare=True) for _ in range(operands_wanted)]
    carries_in = _carry_inputs(form)
    if carries_in and not extended:
        raise form.refuse("a carry-in without .X")
    return form.alu(_sum_with_carries(operands, carries_out, carries_in))


def _add64(form: Form) -> Semantics:
    """The same in 64 bits: carries are counted out of bit 63, and -x is ~x and one more (so that -0 carries)."""
    extended = form.flag("X")
    form.dest(2)
    carries_out = form.dest_predicates(2)
    operands = [form.source("u64", bare=True) for _ in range(3 if form.instruction.opcode.endswith("3") else 2)]
    if _carry_inputs(form) and not extended:
        raise form.refuse("a carry-in without .X")
    marks = [_marks(o) for o in operands]

    def compute(*values: Array) -> Any:
        terms: list[Any] = [~v if any(m) else v for v, m in zip(values, marks, strict=False)]
        terms += [v.astype(u64) for v in values[len(operands) :]]
        terms += [ONE64] * sum(negated for negated, _ in marks)
        total, carries = terms[0], np.zeros((1, 1), u32)
        for term in terms[1:]:
            total = total + term
            if carries_out:
                carries = carries + (total < term)
        return (total, carries > 0, carries > 1)[: 1 + carries_out] if carries_out else total

    return form.alu(compute)


@opcode("IMAD", "UIMAD")
def multiply_add(form: Form) -> Semantics:
    """d = a*b + c in 32 bits, .WIDE in 64, .HI the high word; .MOV, .SHL and .IADD are spellings of the same."""
    form.without_effect("MOV", "SHL", "IADD")  # what the operands make of it
    unsigned = form.flag("U32")
    extended = form.flag("X")
    if form.flag("WIDE"):
        return _multiply_wide(form, unsigned, extended, high=False)
    if form.flag("HI"):
        return _multiply_wide(form, unsigned, extended, high=True)
    form.dest()
    carries_out = form.dest_predicates(1)
    a, b = form.source("u32", bare=True), form.source("u32", bare=True)
    negative = _marks(a)[0] != _marks(b)[0]
    if _marks(a)[1] or _marks(b)[1]:
        raise form.refuse("a complemented factor")
    c = form.source("u32", bare=True)
    carries_in = _carry_inputs(form)
    zero = _is_zero(a) or _is_zero(b)
    one = isinstance(b, Immediate) and b.value == 1
    add = _sum_with_carries([a if not zero else Immediate("0x0", 0), c], carries_out, carries_in)
    if zero and not carries_out and not carries_in and not any(_marks(c)):
        return form.alu(lambda a, b, c: c)
    if carries_in and not extended:
        raise form.refuse("a carry-in without .X")
    if negative:
        if carries_out or carries_in:
            raise form.refuse("a negated product with carries")
        negated_c = _marks(c)
        if negated_c[1]:
            raise form.refuse("a negated product with a complemented addend")
        if negated_c[0]:
            return form.alu(lambda a, b, c: u32(0) - a * b - c)
        return form.alu(lambda a, b, c: c - a * b)

    add_plain = _sum_with_carries([Register("R", 0), c], carries_out, carries_in) if not zero else add

    def compute(a: Array, b: Array, c: Array, *carries: Array) -> Any:
        product = a if zero or one else a * b
        return add_plain(product, c, *carries)

    return form.alu(compute)


def _multiply_wide(form: Form, unsigned: bool, extended: bool, high: bool) -> Semantics:
    form.dest(1 if high else 2)
    carries_out = form.dest_predicates(1)
    a, b = form.source("u32", bare=True), form.source("u32", bare=True)
    c = form.source("u64", bare=True)
    carries_in = _carry_inputs(form)
    if carries_in and not extended:
        raise form.refuse("a carry-in without .X")
    if any(_marks(a)) or any(_marks(b)) or _marks(c)[1]:
        raise form.refuse("a marked operand of a wide product")
    c_negated = _marks(c)[0]
    if c_negated and (carries_out or carries_in):
        raise form.refuse("a negated addend with carries")
    no_addend = _is_zero(c)

    def product_of(a: Array, b: Array) -> Array:
        if unsigned:
            return a.astype(u64) * b
        return (a.view(np.int32).astype(i64) * b.view(np.int32)).view(u64)

    def compute(a: Array, b: Array, c: Array, *carries: Array) -> Any:
        product = product_of(a, b)
        total = product if no_addend else (product - c if c_negated else product + c)
        overflow: Any = total < product if carries_out else None
        for carry in carries:
            step = carry.astype(u64)
            total = total + step
            if carries_out:
                overflow = overflow | (total < step)
        value = high_word(total) if high else total
        return (value, overflow) if carries_out else value

    return form.alu(compute)


@opcode("LEA", "ULEA")
def shift_add(form: Form) -> Semantics:
    """d = (a << s) + b; .HI takes the high word of ({c:a} << s); .X adds a carry, .SX32 sign-extends a."""
    high, extended, sign_extend = form.flag("HI"), form.flag("X"), form.flag("SX32")
    form.dest()
    carries_out = form.dest_predicates(1)
    a = form.source("u32", bare=True)
    b = form.source("u32", bare=True)
    c: object = None
    if high and not sign_extend:
        c = form.source("u32", bare=True)
        if any(_marks(c)):
            raise form.refuse("a marked high word")
    shift = form.integer()
    carries_in = _carry_inputs(form)
    if carries_in and not extended:
        raise form.refuse("a carry-in without .X")
    if _marks(a)[1]:
        raise form.refuse("a complemented shifted operand")
    a_negated = _marks(a)[0]
    c_zero = c is None or _is_zero(c)
    if a_negated and high and (carries_in or carries_out):
        raise form.refuse("a negated high word with a carry")
    # the sign applies after the shift, so that a negated zero carries, as in IADD3
    term = Register("R", 0, negated=a_negated and not high)
    add = _sum_with_carries([term, b], carries_out, carries_in)

    def compute(a: Array, b: Array, *rest: Array) -> Any:
        carries = rest
        if high and not sign_extend:
            c_value, carries = rest[0], rest[1:]
            if a_negated:
                whole = u64(0) - pair(a, c_value)
                shifted = high_word(whole << u64(shift))
            elif c_zero:
                shifted = a >> u32(32 - shift) if shift else np.zeros((1, 1), u32)
            else:
                shifted = high_word(pair(a, c_value) << u64(shift))
        elif sign_extend:
            wide = a.view(np.int32).astype(i64)
            if a_negated:
                wide = -wide
            shifted = high_word((wide << i64(shift)).view(u64))
        else:
            shifted = a << u32(shift) if shift else a
        return add(shifted, b, *carries)

    return form.alu(compute)


@opcode("LOP3", "ULOP3")
def logic_three(form: Form) -> Semantics:
    """Bitwise function of three words by truth table; an optional predicate says whether the result is not 0."""
    form.without_effect("LUT")  # the only form there is
    tests = form.dest_predicates(1)
    form.dest()
    for _ in range(3):
        form.source("u32")
    table = form.integer()
    joined = form.take()
    if not (isinstance(joined, Predicate) and joined.is_constant and joined.negated):
        raise form.refuse("a predicate joined to the result test")

    def compute(a: Array, b: Array, c: Array) -> Any:
        result = logic3(a, b, c, table)
        return (result != 0, result) if tests else result

    return form.alu(compute)


@opcode("SEL", "USEL", "FSEL", "UFSEL")
def choose(form: Form) -> Semantics:
    """d = p ? a : b."""
    wide = form.flag("64")
    floating = form.instruction.opcode.endswith("FSEL")
    ftz = floating and form.flag("FTZ")
    form.dest(2 if wide else 1)
    for _ in range(2):
        form.source("u64" if wide else "f32" if floating else "u32")
    form.source_predicate()
    if floating:
        if ftz:
            return form.alu(lambda a, b, p: select(p, flush(a).view(u32), flush(b).view(u32)))
        return form.alu(lambda a, b, p: select(p, a.view(u32), b.view(u32)))
    return form.alu(lambda a, b, p: select(p, a, b))


@opcode("IABS", "UIABS")
def absolute(form: Form) -> Semantics:
    """d = |a| (the most negative value stays itself)."""
    form.dest()
    form.source("i32")
    return form.alu(lambda a: np.abs(a).view(u32))
