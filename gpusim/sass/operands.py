"""Typed operands, parsed from the disassembler's text.

The text is nvdisasm's, for example ``-|R4|.reuse``, ``c[0x0][0x210]``, ``desc[UR4][R2.64+0x10]``.  A form that is not
known raises :class:`ValueError`; the decoder turns it into an error that names the instruction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

ZERO_INDEX = 255  # index of RZ and URZ: reads as zero, writes are dropped
TRUE_INDEX = 7  # index of PT and UPT

RegisterFile = Literal["R", "UR"]
PredicateFile = Literal["P", "UP"]


@dataclass(frozen=True, slots=True)
class Register:
    """A general or uniform register; ``suffixes`` are what follows the name, such as ``64``, ``X4``, ``H0_H0``."""

    file: RegisterFile
    index: int
    suffixes: tuple[str, ...] = ()
    negated: bool = False
    inverted: bool = False
    absolute: bool = False

    @property
    def is_zero(self) -> bool:
        return self.index == ZERO_INDEX


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate register, possibly negated; index 7 is the constant true."""

    file: PredicateFile
    index: int
    negated: bool = False

    @property
    def is_constant(self) -> bool:
        return self.index == TRUE_INDEX


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal: ``value`` is an int for hexadecimal text, else a float (``text`` keeps how it was written)."""

    text: str
    value: int | float


@dataclass(frozen=True, slots=True)
class Constant:
    """A word of a constant bank: ``c[bank][base+offset]``, ``base`` a register for run-time indexing."""

    bank: int
    offset: int
    base: Register | None = None
    suffixes: tuple[str, ...] = ()
    negated: bool = False
    inverted: bool = False
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    """A memory operand: the sum of ``bases`` and ``offset``; ``descriptor`` is the uniform register of ``desc[..]``."""

    bases: tuple[Register, ...]
    offset: int
    descriptor: Register | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A special register, a convergence barrier (``B0``), a scoreboard (``SB0``) or a list such as ``{4,3}``."""

    name: str


Operand = Register | Predicate | Immediate | Constant | Address | Named

_REGISTER = re.compile(r"(U?)R(Z|\d+)((?:\.[A-Za-z0-9_]+)*)$")
_PREDICATE = re.compile(r"(!?)(U?)P(T|\d)$")
_CONSTANT = re.compile(r"c\[(0x[0-9a-f]+)\]\[([^\]]+)\]((?:\.[A-Za-z0-9_]+)*)$")
_ADDRESS = re.compile(r"(?:desc\[(UR\w+)\])?\[([^\[\]]+)\]((?:\.[A-Za-z0-9_]+)*)$")
_INTEGER = re.compile(r"-?0x[0-9a-f]+$")
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|INF|QNAN|SNAN)$")
_NAMED = re.compile(
    r"(?:SR_?[A-Z][A-Za-z0-9_.]*|B\d+|SB\d+|PR|Rpc\.(?:LO|HI)|\{[\d,]+\}|ThreadState[A-Za-z0-9_.]*|TRAP[A-Za-z_.]*)$"
)


def _register(text: str) -> Register | None:
    match = _REGISTER.match(text)
    if match is None:
        return None
    index = ZERO_INDEX if match[2] == "Z" else int(match[2])
    suffixes = tuple(s for s in match[3].split(".") if s and s != "reuse")
    return Register("UR" if match[1] else "R", index, suffixes)


def _sum(text: str) -> tuple[tuple[Register, ...], int]:
    """Split ``R2.64+UR4+-0x10`` into registers and the literal offset in bytes."""
    bases: list[Register] = []
    offset = 0
    for part in text.split("+"):
        if _INTEGER.match(part):
            offset += int(part, 16)
            continue
        register = _register(part)
        if register is None:
            raise ValueError(f"address part {part!r}")
        bases.append(register)
    return tuple(bases), offset


def _float_value(text: str) -> float:
    if text.endswith("INF"):
        return float("-inf") if text[0] == "-" else float("inf")
    if text.endswith("NAN"):
        return float("nan")
    return float(text)


def parse_operand(text: str) -> Operand:
    """Parse one operand.  Raises ValueError for a form that is not known."""
    text = text.strip()
    predicate = _PREDICATE.match(text)
    if predicate:
        index = TRUE_INDEX if predicate[3] == "T" else int(predicate[3])
        return Predicate("UP" if predicate[2] else "P", index, bool(predicate[1]))
    if _INTEGER.match(text):
        return Immediate(text, int(text, 16))
    if _FLOAT.match(text):
        return Immediate(text, _float_value(text))
    if _NAMED.match(text):
        return Named(text)
    address = _ADDRESS.match(text)
    if address and not text.startswith("c["):
        if address[3]:
            raise ValueError(f"address suffix {address[3]!r}")
        bases, offset = _sum(address[2])
        return Address(bases, offset, _register(address[1]) if address[1] else None)
    return _value(text)


def _value(text: str) -> Register | Constant:
    """A register or constant with its sign, complement and magnitude marks."""
    body, negated, inverted, absolute = text, False, False, False
    while body and body[0] in "-~|+":
        if body[0] == "-":
            negated = True
        elif body[0] == "~":
            inverted = True
        elif body[0] == "|":
            absolute = True
            head, _, tail = body[1:].partition("|")
            body = "+" + head + tail
        body = body[1:]
    register = _register(body)
    if register is not None:
        return Register(register.file, register.index, register.suffixes, negated, inverted, absolute)
    constant = _CONSTANT.match(body)
    if constant:
        bases, offset = _sum(constant[2])
        bases = tuple(b for b in bases if not b.is_zero)
        if len(bases) > 1:
            raise ValueError(f"constant address {text!r}")
        suffixes = tuple(s for s in constant[3].split(".") if s and s != "reuse")
        base = bases[0] if bases else None
        return Constant(int(constant[1], 16), offset, base, suffixes, negated, inverted, absolute)
    raise ValueError(f"operand {text!r}")


def split_operands(text: str) -> list[str]:
    """Split the operand text at commas outside brackets and braces.

    A blank between two operands separates too, and so does ``][`` between two plain addresses.
    """
    parts: list[str] = []
    depth = 0
    current = ""
    for character in text:
        if character == "[" and depth == 0 and current.startswith("["):
            parts.append(current)
            current = ""
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        if depth == 0 and character in ", ":
            if current:
                parts.append(current)
            current = ""
        else:
            current += character
    if current:
        parts.append(current)
    return parts
