"""A program's block functions as Python code."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from gpusim.machine.codegen import BlockWriter
from gpusim.sass.form import MemoryOp
from gpusim.sass.operands import Predicate
from gpusim.sass.program import BasicBlock, Program
from gpusim.sass.slices import Slice, liveness_of


@dataclass
class Compiled:
    """A program's block functions as code, to be bound to a launch's constants.

    ``slice``: of what counters need; ``live``: which registers may still be read, None where that is not known.
    ``pace``: seconds that a block took in the latest launches, by threads a block and blocks a chunk; ``conflicts``: of
    which kinds launches turned out to need one process.
    """

    program: Program
    code: CodeType
    names: dict[str, Any]
    constants: set[tuple[int, int]]
    slice: Slice | None = None
    live: Slice | None = None
    pace: dict[tuple[int, int], float] = field(default_factory=dict)
    conflicts: set[tuple[int, int]] = field(default_factory=set)


def compile_program(
    program: Program, part: Slice | None = None, writer_type: type[BlockWriter] = BlockWriter
) -> Compiled:
    """Write and compile the block functions (and the expressions that control operations read).

    ``part``: compute only what this slice needs, and of other accesses only the events.
    """
    live = part or liveness_of(program)
    writer = writer_type(program, part, live)
    text = writer.text()
    extra: list[str] = []
    for block in program.blocks:
        extra += _look(program, block, writer)
        if block.control is None:
            continue
        instruction = program.instructions[block.last]
        tests: list[Predicate] = list(block.control.condition)
        if instruction.guard is not None:
            tests.insert(0, instruction.guard)
        if tests:
            joined = " & ".join(f"({writer.predicate(t)})" for t in tests)
            extra.append(f"def test{block.number}(s):\n R = s.R; UR = s.UR; P = s.P; UP = s.UP\n return {joined}")
        if block.control.sources:
            values = ", ".join(writer.value(s) for s in block.control.sources)
            extra.append(f"def read{block.number}(s):\n R = s.R; UR = s.UR; P = s.P; UP = s.UP\n return ({values},)")
    text += "\n".join(extra) + "\n"
    return Compiled(program, compile(text, "<sass>", "exec"), writer.names, writer.constants, part, live)


def _look(program: Program, block: BasicBlock, writer: BlockWriter) -> list[str]:
    """Of a block that starts with a look at an asynchronous barrier: a function that reads its operands."""
    meaning, instruction = program.meanings[block.first], program.instructions[block.first]
    if not (isinstance(meaning, MemoryOp) and meaning.is_wait):
        return []
    place = writer.address(meaning.address, meaning.wide, meaning.space)
    guard = "ALWAYS" if instruction.guard is None else writer.predicate(instruction.guard)
    return [
        f"def look{block.number}(s):\n R = s.R; UR = s.UR; P = s.P; UP = s.UP\n"
        f" return {place}, {writer.value(meaning.sources[0])}, {guard}"
    ]
