"""Instructions: decoding to typed form, and what each opcode means."""

from gpusim.sass import control, conversion, floating, integer, memory, move, predicate, special, warp
from gpusim.sass.program import BasicBlock, Program
from gpusim.sass.registry import mnemonics, semantics

__all__ = [
    "BasicBlock",
    "Program",
    "control",
    "conversion",
    "floating",
    "integer",
    "memory",
    "mnemonics",
    "move",
    "predicate",
    "semantics",
    "special",
    "warp",
]
