"""Instructions: decoding to typed form, and what each opcode means."""

from gpusim.sass import (
    bits,
    control,
    conversion,
    floating,
    half,
    integer,
    matrix,
    memory,
    move,
    packed,
    predicate,
    special,
    warp,
)
from gpusim.sass.program import BasicBlock, Program
from gpusim.sass.registry import mnemonics, semantics

__all__ = [
    "BasicBlock",
    "Program",
    "bits",
    "control",
    "conversion",
    "floating",
    "half",
    "integer",
    "matrix",
    "memory",
    "mnemonics",
    "move",
    "packed",
    "predicate",
    "semantics",
    "special",
    "warp",
]
