"""The table of opcode functions, filled by the family modules at import."""

from __future__ import annotations

from collections.abc import Callable

from gpusim.sass.form import Form, Semantics
from gpusim.sass.instruction import Instruction

OpcodeFunction = Callable[[Form], Semantics]

_table: dict[str, OpcodeFunction] = {}


def opcode(*mnemonics: str) -> Callable[[OpcodeFunction], OpcodeFunction]:
    """Register the decorated function for the mnemonics; registering one twice is a programming error."""

    def register(function: OpcodeFunction) -> OpcodeFunction:
        for mnemonic in mnemonics:
            if mnemonic in _table:
                raise RuntimeError(f"opcode {mnemonic} is registered twice")
            _table[mnemonic] = function
        return function

    return register


def mnemonics() -> list[str]:
    """All opcodes that have a function, sorted."""
    return sorted(_table)


def semantics(instruction: Instruction) -> Semantics:
    """What the instruction does.

    Raises UnsupportedError, naming the instruction, for an unknown opcode, modifier or operand form.
    """
    if instruction.problem:
        raise instruction.unsupported(instruction.problem)
    function = _table.get(instruction.opcode)
    if function is None:
        raise instruction.unsupported(f"opcode {instruction.opcode} is not known")
    return function(Form(instruction))
