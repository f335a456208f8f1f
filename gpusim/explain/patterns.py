"""What one warp's addresses look like: a sample for each memory instruction, and what can be told from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gpusim.machine.events import Access, Branch
from gpusim.sass.program import Program

Array = np.ndarray[Any, Any]
WARP_LANES = 32


@dataclass(frozen=True, slots=True)
class Pattern:
    """The addresses of one warp: ``offsets`` in bytes from ``base``, the lowest; None for a lane without an access."""

    space: str
    width: int
    base: int
    offsets: tuple[int | None, ...]

    def row(self) -> tuple[Array, Array]:
        """(addresses, mask), each (1, 32), as the counting rules take them."""
        mask = np.array([[offset is not None for offset in self.offsets]])
        return np.array([[self.base + (offset or 0) for offset in self.offsets]], np.int64), mask

    @property
    def used(self) -> list[int]:
        """The offsets of the accessing lanes, in order of the lanes."""
        return [offset for offset in self.offsets if offset is not None]

    @property
    def stride(self) -> int | None:
        """Bytes from each accessing lane to the next where that is the same throughout, else None."""
        steps = {b - a for a, b in pairwise(self.used)}
        return steps.pop() if len(steps) == 1 else None

    @property
    def common_step(self) -> int | None:
        """The most frequent distance in bytes from an accessing lane to the next, if most of them have it."""
        steps = Counter(b - a for a, b in pairwise(self.used))
        if not steps:
            return None
        step, times = steps.most_common(1)[0]
        return step if 2 * times > sum(steps.values()) else None

    @property
    def contiguous(self) -> bool:
        """Whether the lanes' bytes form one run without a gap."""
        places = sorted(set(self.used))
        return all(b - a <= self.width for a, b in pairwise(places))


class PatternSampler:
    """A listener that keeps, of every memory instruction, its first accessing warp in the lowest block with one."""

    repeats = True

    def __init__(self, program: Program) -> None:
        self._addresses = [instruction.address for instruction in program.instructions]
        self.patterns: dict[int, Pattern] = {}
        self._blocks: dict[int, int] = {}  # which block each is from

    def access(self, event: Access, again: int = 1) -> None:
        address = self._addresses[event.index]
        known = self._blocks.get(address)
        if known is not None and known <= event.first_block:
            return
        rows, mask, _ = event.rows()
        active = mask.any(axis=1)
        if not active.any():
            return
        first = int(np.argmax(active))
        row = first * WARP_LANES // event.threads
        block = event.first_block + row if event.numbers is None else int(event.numbers[row])
        if known is not None and known <= block:
            return
        self._blocks[address] = block
        lanes, places = mask[first], rows[first]
        base = int(places[lanes].min())
        offsets = tuple(int(p) - base if on else None for p, on in zip(places, lanes, strict=True))
        self.patterns[address] = Pattern(event.space, event.op.width, base, offsets)

    def branch(self, event: Branch) -> None:
        """Branches access nothing."""

    def begin_part(self) -> None:
        """Start without a sample."""
        self.patterns.clear()
        self._blocks.clear()

    def part(self) -> tuple[Any, ...]:
        """The samples, for :meth:`merge`."""
        return self.patterns, self._blocks

    def merge(self, part: tuple[Any, ...]) -> None:
        """Take over samples of lower blocks than the known ones."""
        patterns, blocks = part
        for address, block in blocks.items():
            if block < self._blocks.get(address, block + 1):
                self._blocks[address], self.patterns[address] = block, patterns[address]
