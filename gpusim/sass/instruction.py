"""A decoded machine instruction."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.errors import UnsupportedError
from gpusim.sass.operands import Immediate, Operand, Predicate, parse_operand, split_operands


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's source."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: ``address`` in bytes from its section's start, ``modifiers`` in the order of the text."""

    address: int
    opcode: str
    modifiers: tuple[str, ...]
    guard: Predicate | None
    operands: tuple[Operand, ...]
    text: str
    encoding: int = 0
    location: Location | None = None
    problem: str | None = field(default=None, compare=False)  # why its text could not be parsed

    def unsupported(self, reason: str) -> UnsupportedError:
        """The error that names this instruction: address, text, encoding, source line."""
        where = f" ({self.location})" if self.location else ""
        return UnsupportedError(
            f"instruction at {self.address:#06x} is not supported: {self.text}{where}: {reason}"
            f" [encoding {self.encoding:#034x}]"
        )


def _with_payload(operand: Operand, encoding: int) -> Operand:
    """A NaN literal as the bits that the encoding holds (from bit 32): the text does not tell one NaN from another."""
    if not encoding or not isinstance(operand, Immediate) or operand.value == operand.value:
        return operand
    return Immediate(operand.text, encoding >> 32 & 0xFFFFFFFF)


def decode(
    address: int, predicate: str, opcode: str, operands: str, text: str, encoding: int, location: Location | None
) -> Instruction:
    """Build an Instruction from the disassembler's fields; text that is not understood is kept as its ``problem``."""
    name, *modifiers = opcode.split(".")
    guard: Predicate | None = None
    parsed: list[Operand] = []
    problem: str | None = None
    try:
        if predicate:
            operand = parse_operand(predicate.lstrip("@"))
            if not isinstance(operand, Predicate):
                raise ValueError(f"guard {predicate!r}")
            guard = None if operand.is_constant and not operand.negated else operand
        parsed = [_with_payload(parse_operand(part), encoding) for part in split_operands(operands)]
    except ValueError as error:
        problem = f"cannot read {error}"
    return Instruction(address, name, tuple(modifiers), guard, tuple(parsed), text, encoding, location, problem)
