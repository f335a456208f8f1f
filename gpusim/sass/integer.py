"""Integer arithmetic, logic and shifts (the vector and the uniform data path share these)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.sass.form import Form, Semantics, ValueType
from gpusim.sass.numeric import (
    Array,
    high_word,
    i64,
    logic3,
    low_word,
    pair,
    select,
    shift_left,
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


def _sum_with_carries(
    operands: list[Any], carries_out: int, carries_in: int
) -> Callable[..., Any]:
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
    form.dest(2)
    operands_wanted = 3 if form.instruction.opcode.endswith("3") else 2
    for _ in range(operands_wanted):
        form.source("u64")
    if _carry_inputs(form):
        raise form.refuse("a carry with .64")
    return form.alu(lambda *values: sum(values[1:], values[0]))


@opcode("VIADD", "UVIADD")
def integer_add_two(form: Form) -> Semantics:
    """d = a + b."""
    form.dest()
    form.source("u32")
    form.source("u32")
    return form.alu(lambda a, b: a + b)


@opcode("IMAD", "UIMAD")
def multiply_add(form: Form) -> Semantics:
    """d = a*b + c in 32 bits, .WIDE in 64, .HI the high word; .MOV, .SHL and .IADD are spellings of the same."""
    form.without_effect("MOV", "SHL", "IADD")
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
        overflow = total < product
        for carry in carries:
            step = carry.astype(u64)
            total = total + step
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
    add = _sum_with_carries([Register("R", 0), b], carries_out, carries_in)

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
            value = u32(0) - a if a_negated else a
            shifted = value << u32(shift) if shift else value
        return add(shifted, b, *carries)

    return form.alu(compute)


@opcode("LOP3", "ULOP3")
def logic_three(form: Form) -> Semantics:
    """Bitwise function of three words by truth table; an optional predicate says whether the result is not 0."""
    form.without_effect("LUT")
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


@opcode("PRMT", "UPRMT")
def byte_permute(form: Form) -> Semantics:
    """Pick four bytes of {c:a} by the nibbles of the selector; bit 3 of a nibble replicates the byte's sign."""
    form.dest()
    form.source("u32")
    selector = form.source("u32")
    form.source("u32")
    known = selector.value if isinstance(selector, Immediate) and isinstance(selector.value, int) else None

    def fixed(a: Array, _: Array, c: Array) -> Array:
        assert known is not None
        result: Array | None = None
        for position in range(4):
            nibble = known >> (4 * position) & 15
            word = a if nibble & 4 == 0 else c
            byte = word >> u32(8 * (nibble & 3)) & u32(255)
            if nibble & 8:
                byte = (byte >> u32(7)) * u32(255)
            byte = byte << u32(8 * position)
            result = byte if result is None else result | byte
        assert result is not None
        return result

    def variable(a: Array, selector: Array, c: Array) -> Array:
        wide = pair(a, c)
        result: Array = np.zeros((1, 1), u32)
        for position in range(4):
            nibble = selector >> u32(4 * position) & u32(15)
            byte = (wide >> ((nibble & u32(7)).astype(u64) * u64(8))).astype(u32) & u32(255)
            byte = np.where(nibble & u32(8), (byte >> u32(7)) * u32(255), byte)
            result = result | byte << u32(8 * position)
        return result

    return form.alu(variable if known is None else fixed)


@opcode("SEL", "USEL", "FSEL")
def choose(form: Form) -> Semantics:
    """d = p ? a : b."""
    wide = form.flag("64")
    floating = form.instruction.opcode == "FSEL"
    form.without_effect("FTZ") if floating and not form.flag("FTZ") else None
    form.dest(2 if wide else 1)
    for _ in range(2):
        form.source("u64" if wide else "f32" if floating else "u32")
    form.source_predicate()
    if floating:
        return form.alu(lambda a, b, p: select(p, a.view(u32), b.view(u32)))
    return form.alu(lambda a, b, p: select(p, a, b))


@opcode("IMNMX", "VIMNMX", "UIMNMX", "UVIMNMX")
def minimum_maximum(form: Form) -> Semantics:
    """d = p ? min(a, b) : max(a, b)."""
    kind: ValueType = "u32" if form.choice("U32", "S32", default="S32") == "U32" else "i32"
    form.dest()
    for _ in range(form.dest_predicates(2)):
        if not form.dests.pop().is_sink:
            raise form.refuse("a predicate result of a minimum or maximum")
    form.source(kind)
    form.source(kind)
    form.source_predicate()

    def compute(a: Array, b: Array, p: Array) -> Array:
        if p.size == 1:
            return (np.minimum(a, b) if p.item() else np.maximum(a, b)).view(u32)
        return np.where(p, np.minimum(a, b), np.maximum(a, b)).view(u32)

    return form.alu(compute)


@opcode("IABS", "UIABS")
def absolute(form: Form) -> Semantics:
    """d = |a| (the most negative value stays itself)."""
    form.dest()
    form.source("i32")
    return form.alu(lambda a: np.abs(a).view(u32))


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
    form.without_effect("C")
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
