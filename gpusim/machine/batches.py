"""Computing several like instructions in one NumPy call, where a launch has few threads.

With some hundred threads a NumPy call costs more in overhead than in arithmetic.  A matrix product's inner loop has
dozens of FFMA in a row that do not feed each other; these are computed together, on their operands one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpusim.sass.form import Alu
from gpusim.sass.program import Program
from gpusim.sass.slices import facts_of

Array = np.ndarray[Any, Any]
OPCODES = ("FFMA", "FMUL", "FADD")
LEAST, MOST = 4, 64
WORDS = 1 << 16  # computed at once, as measured: more leaves the cache, less takes more calls
SMALL = 4096  # threads of a chunk up to which it pays: beyond, the arithmetic itself takes the time


def schedule(program: Program, first: int, last: int) -> list[list[int]]:
    """Instructions ``first`` .. ``last`` in an order that gives the same results, those to be batched side by side.

    A batch is put off past instructions that neither read nor write what it writes, and do not write what it reads.
    """
    order: list[list[int]] = []
    batch: list[int] = []
    kind: tuple[Any, ...] | None = None
    reads: set[int] = set()
    writes: set[int] = set()

    def flush() -> None:
        nonlocal kind
        if len(batch) >= LEAST:
            order.append(list(batch))
        else:
            order.extend([index] for index in batch)
        batch.clear()
        reads.clear()
        writes.clear()
        kind = None

    for index in range(first, last + 1):
        facts = facts_of(program, index)
        sources = facts.reads | facts.roots | facts.always
        found = _kind(program, index)
        independent = not (sources & writes) and not (facts.writes & writes)
        if found is not None and independent and kind in (None, found) and len(batch) < MOST:
            kind = found
            batch.append(index)
            reads |= sources
            writes |= facts.writes
            continue
        if batch and (not independent or facts.writes & reads):
            flush()
        if found is not None and not batch:
            kind = found
            batch.append(index)
            reads |= sources
            writes |= facts.writes
        else:
            order.append([index])
    flush()
    return order


def _kind(program: Program, index: int) -> tuple[Any, ...] | None:
    """What instructions must have in common to be computed by the same function; None for one that is not batched."""
    instruction, meaning = program.instructions[index], program.meanings[index]
    if instruction.opcode not in OPCODES or instruction.guard is not None or not isinstance(meaning, Alu):
        return None
    if len(meaning.dests) != 1 or meaning.dests[0].is_sink or any(s.type != "f32" for s in meaning.sources):
        return None
    return (instruction.opcode, instruction.modifiers, len(meaning.sources))


def compute(function: Callable[..., Array], shape: tuple[int, int], *operands: Sequence[Array]) -> Any:
    """``function`` of each instruction's operands; ``operands`` holds all first ones, all second ones and so on.

    They are float32 numbers or their bits.
    """
    count = len(operands[0])
    step = max(1, WORDS // (shape[0] * shape[1]))
    found: list[Array] = []
    for first in range(0, count, step):
        values = operands if step >= count else [each[first : first + step] for each in operands]
        found.extend(_together(function, shape, values))
    return found


def _together(function: Callable[..., Array], shape: tuple[int, int], operands: Sequence[Sequence[Array]]) -> Any:
    count = len(operands[0])
    try:
        joined = [np.concatenate(values) for values in operands]
    except ValueError:  # of different widths
        joined = []
    if not joined or any(j.shape != (count * shape[0], shape[1]) for j in joined):
        return [function(*(value.view(np.float32) for value in each)) for each in zip(*operands, strict=True)]
    return function(*(j.view(np.float32) for j in joined)).reshape(count, *shape)
