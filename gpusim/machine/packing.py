"""Executing a basic block for the few lanes that execute it, where most of a chunk's lanes wait elsewhere.

In a loop that lanes leave one after the other, most of what full arrays hold is soon of lanes that have left.  A block
of plain arithmetic is then executed on the remaining lanes' values, side by side, by the same function that executes
it when all lanes do: what it reads is gathered, what it writes is scattered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.machine.chunk import Chunk
from gpusim.machine.outer import plain
from gpusim.sass.form import Alu
from gpusim.sass.operands import Constant
from gpusim.sass.program import BasicBlock, Program
from gpusim.sass.slices import PREDICATE, UNIFORM, UNIFORM_PREDICATE, facts_of

Array = np.ndarray[Any, Any]
SHARE = 3  # one in so many lanes may execute at most, as measured
LEAST_LANES = 2048  # of a chunk
LEAST_LENGTH = 3  # instructions


Place = tuple[int, int]  # register file (R, UR, P, UP by number), register


@dataclass(frozen=True)
class Touched:
    """What a block reads and writes."""

    read: tuple[Place, ...]
    written: tuple[Place, ...]


def _place(element: int) -> Place:
    for file, first in ((3, UNIFORM_PREDICATE), (2, PREDICATE), (1, UNIFORM)):
        if element >= first:
            return file, element - first
    return 0, element


def touched_by(program: Program, block: BasicBlock) -> Touched | None:
    """What a block touches; None if it does more than compute, or writes what a warp has but once."""
    last = block.last - 1 if block.control is not None else block.last
    read: set[int] = set()
    written: set[int] = set()
    if last - block.first + 1 < LEAST_LENGTH:
        return None
    for index in range(block.first, last + 1):
        meaning = program.meanings[index]
        if not isinstance(meaning, Alu):
            return None
        if any(isinstance(s.operand, Constant) and s.operand.base is not None for s in meaning.sources):
            return None
        facts = facts_of(program, index)
        read |= facts.reads | facts.roots | facts.always
        if facts.guard is not None:
            read |= facts.writes
        written |= facts.writes
    found = Touched(tuple(map(_place, sorted(read))), tuple(map(_place, sorted(written))))
    return None if any(file in (1, 3) for file, _ in found.written) else found


class Packed:
    """Stands in for a chunk: its registers are arrays (1, lanes) of the executing lanes alone, or (1, 1)."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.files: tuple[list[Any], ...] = ([None] * 256, [None] * 256, [None] * 8, [None] * 8)
        self.R, self.UR, self.P, self.UP = self.files
        self.lane_count = 0
        self._mask: Array | None = None
        self._shape = (0, 0)
        self._lanes: Array = np.zeros(0, np.int64)
        self._columns: Array | None = None
        self._rows: Array | None = None

    def worth(self) -> bool:
        """Whether few enough of the chunk's lanes execute."""
        total = self.chunk.blocks * self.chunk.threads
        return total >= LEAST_LANES and self.chunk.lane_count * SHARE <= total

    def run(self, touched: Touched, function: Callable[..., None]) -> None:
        """Execute a block for the executing lanes."""
        chunk = self.chunk
        if chunk.m is not self._mask or chunk.shape != self._shape:
            self._take_lanes()
        files = (chunk.R, chunk.UR, chunk.P, chunk.UP)
        for file, k in touched.written:
            self.files[file][k] = None
        gathered = {}
        for file, k in touched.read:
            gathered[file, k] = self.files[file][k] = self._gather(files[file][k])
        function(self, None, None)
        for file, k in touched.written:
            value = self.files[file][k]
            if value is not None and value is not gathered.get((file, k)):
                self._scatter(files[file], k, plain(value))

    def guarded(self, index: int, mask: Array) -> int:
        """Count the lanes in which instruction ``index`` is predicated on; returns that number."""
        number = int(np.count_nonzero(mask)) * (self.lane_count // mask.size)
        known = self.chunk.predicated_on
        known[index] = known.get(index, 0) + number
        return number

    def _take_lanes(self) -> None:
        chunk = self.chunk
        assert chunk.m is not None
        self._mask, self._shape = chunk.m, chunk.shape
        self._lanes = np.flatnonzero(np.broadcast_to(chunk.m, chunk.shape))
        self._columns = self._rows = None
        self.lane_count = len(self._lanes)

    def _gather(self, value: Any) -> Array:
        array = plain(value)
        rows, columns = array.shape
        if rows == columns == 1:
            return array
        if rows > 1 and columns > 1:
            return array.take(self._lanes)[None]
        if columns > 1:
            if self._columns is None:
                self._columns = self._lanes % self.chunk.threads
            return array.take(self._columns)[None]
        if self._rows is None:
            self._rows = self._lanes // self.chunk.threads
        return array.take(self._rows)[None]

    def _scatter(self, file: list[Any], k: int, value: Array) -> None:
        """Write the executing lanes' values: in place where nothing but the register holds the array."""
        if _holders(file, k) > ALONE or not self._fits(file[k], value):
            full: Array = np.empty(self.chunk.shape, value.dtype)
            full[...] = plain(file[k])
            file[k] = full
        file[k].reshape(-1)[self._lanes] = value[0]

    def _fits(self, array: Any, value: Array) -> bool:
        return (
            type(array) is np.ndarray
            and array.shape == self.chunk.shape
            and array.dtype == value.dtype
            and array.base is None
            and array.flags.c_contiguous
            and array.flags.writeable
        )


def _holders(file: list[Any], k: int) -> int:
    array = file[k]
    return sys.getrefcount(array)


ALONE = _holders([np.zeros(1)], 0)  # what it counts for an array that only the list holds

__all__ = ["Packed", "Touched", "touched_by"]
