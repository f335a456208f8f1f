"""Moves: registers, constants, special registers, and between the vector and the uniform file."""

from __future__ import annotations

from typing import Any

from gpusim.sass.form import Dest, Form, Semantics, Source
from gpusim.sass.numeric import Array, u32
from gpusim.sass.operands import Constant, Register
from gpusim.sass.registry import opcode


@opcode("MOV", "UMOV")
def move(form: Form) -> Semantics:
    """d = a; an all-lanes mask operand (0xf) may follow."""
    wide = form.flag("64")
    form.dest(2 if wide else 1)
    form.source("u64" if wide else "u32")
    if form.remaining() and form.integer() != 0xF:
        raise form.refuse("a partial byte mask")
    return form.alu(lambda a: a)


@opcode("LDC", "ULDC", "LDCU")
def load_constant(form: Form) -> Semantics:
    """d = word(s) of a constant bank; the narrow forms are zero- or sign-extended."""
    kind = form.choice("64", "128", "U8", "S8", "U16", "S16", "32", default="32")
    words = {"64": 2, "128": 4}.get(kind, 1)
    destination = form.dest(words)
    operand = form.take()
    if not isinstance(operand, Constant) or operand.suffixes or operand.negated or operand.inverted:
        raise form.refuse("expected a constant bank operand")
    form.dests.clear()
    register = destination.operand
    assert isinstance(register, Register)
    for word in range(words):
        form.sources.append(Source(operand, "u32", word=word))
    form.dests.extend(register_words(register, words))
    if kind in ("U8", "S8", "U16", "S16"):
        bits = int(kind[1:])
        if kind[0] == "U":
            return form.alu(lambda a: a & u32((1 << bits) - 1))
        drop = 32 - bits
        return form.alu(lambda a: ((a << u32(drop)).view("int32") >> drop).view(u32))
    return form.alu(lambda *values: values if len(values) > 1 else values[0])


def register_words(register: Register, words: int) -> list[Dest]:
    """Destinations for a run of registers, one word each."""
    if register.is_zero:
        return [Dest(register) for _ in range(words)]
    return [Dest(Register(register.file, register.index + k)) for k in range(words)]


@opcode("S2R", "S2UR")
def special_to_register(form: Form) -> Semantics:
    """d = a special register (thread and block indices, lane, masks)."""
    form.dest()
    name = form.named()
    return form.warp(lambda lanes: lanes.special(name))


@opcode("CS2R", "CS2UR")
def special_pair_to_register(form: Form) -> Semantics:
    """d = a special register pair; SRZ writes zeros (how the compiler clears register pairs)."""
    single = form.flag("32")
    form.dest(1 if single else 2)
    name = form.named()
    if name == "SRZ":
        return form.warp(lambda lanes: lanes.zero(64 if not single else 32))
    return form.warp(lambda lanes: lanes.clock(name, 32 if single else 64))


@opcode("R2UR")
def register_to_uniform(form: Form) -> Semantics:
    """Uniform d = a of the warp's first active lane; an optional predicate: this lane's a is another."""
    form.without_effect("FILL")  # tells a debugger that a spilled register comes back
    tells = form.dest_predicates(1)
    form.dest()
    form.source("u32")

    def compute(lanes: Any, a: Array) -> Any:
        first = lanes.first_active(a)
        return (a != first, first) if tells else first

    return form.warp(compute)


@opcode("LEPC")
def load_program_counter(form: Form) -> Semantics:
    """d = an address of code, this instruction's or the one named: a return address for a function of the runtime."""
    form.dest(2)
    place = form.integer() if form.remaining() else form.instruction.address

    def compute(lanes: Any) -> Array:
        return lanes.code_address(place)

    return form.warp(compute)
