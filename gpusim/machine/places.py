"""Where accesses to shared memory lie that all blocks of a chunk make alike, worked out once: loops come back to them.

With few threads, looking up and checking addresses takes longer than moving the data.  Addresses that are one row for
all blocks are therefore known by their content, and loads of a basic block between which nothing is stored are carried
out in one go (:class:`LoadGroup`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.machine.chunk import Chunk
from gpusim.machine.outer import words_of
from gpusim.sass.form import MemoryOp

Array = np.ndarray[Any, Any]
REMEMBERED, GROUPS = 1024, 64  # addresses, and groups at some addresses
FEW = 4096  # threads of a chunk up to which element numbers of all blocks are kept
MOST_WORDS = 1 << 15  # words that are loaded in one go: beyond, moving them takes the time


@dataclass(eq=False)
class LoadGroup:
    """Loads from shared memory in one basic block, with nothing between them that stores or changes their addresses.

    ``bases``: which of the group's addresses each starts from, ``offsets``: what is added in bytes; ``first``: the
    number of each one's first word in the result, of ``words`` in all.
    """

    indices: tuple[int, ...]
    ops: tuple[MemoryOp, ...]
    bases: tuple[int, ...]
    offsets: tuple[np.uint32, ...]

    def __post_init__(self) -> None:
        sizes = [op.width // 4 for op in self.ops]
        self.first = {index: sum(sizes[:k]) for k, index in enumerate(self.indices)}
        self.words = sum(sizes)


class SharedPlaces:
    """Checked byte offsets (1, T), and the numbers of elements (blocks, T) that they are, by the addresses' content."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self._right: dict[tuple[bytes, int], Array] = {}
        self._units: dict[tuple[int, int], Array] = {}
        self._groups: dict[tuple[Any, ...], GroupPlaces] = {}
        self._blocks = 0

    def begin(self) -> None:
        """The chunk has been started anew."""
        if self.chunk.blocks != self._blocks:
            self._units.clear()
            self._groups.clear()
            self._blocks = self.chunk.blocks

    def checked(self, addresses: Array, width: int, check: Callable[[], Array]) -> Array:
        """What ``check`` returns for these addresses (1, T): int64 offsets, the same read-only array for equal ones."""
        key = (addresses.tobytes(), width)
        offsets = self._right.get(key)
        if offsets is None:
            offsets = check()
            if len(self._right) >= REMEMBERED:
                for known in (self._right, self._units, self._groups):
                    known.clear()
            offsets.setflags(write=False)
            self._right[key] = offsets
        return offsets

    def units(self, offsets: Array, shift: int) -> Array:
        """Numbers of elements of ``2**shift`` bytes in the memory of all blocks, for byte offsets in one block's."""
        chunk = self.chunk
        if offsets.flags.writeable or chunk.blocks * chunk.threads > FEW:
            return (offsets + chunk.shared_rows) >> shift
        units = self._units.get((id(offsets), shift))
        if units is None:
            units = self._units[id(offsets), shift] = (offsets + chunk.shared_rows) >> shift
        return units

    def of_group(
        self, group: LoadGroup, bases: list[Array], check: Callable[[int, MemoryOp, Array], Array]
    ) -> GroupPlaces | None:
        """Where a group's loads lie; None if blocks differ in that.

        ``check``: the checked offsets of an instruction's addresses.
        """
        if any(base.shape[0] > 1 for base in bases):
            return None
        key = (group, *(base.tobytes() for base in bases))
        known = self._groups.get(key)
        if known is None:
            if len(self._groups) >= GROUPS:
                self._groups.clear()
            places = zip(group.indices, group.ops, group.bases, group.offsets, strict=True)
            offsets = [check(index, op, bases[base] + offset) for index, op, base, offset in places]
            known = self._groups[key] = GroupPlaces(group, offsets, self.chunk)
        return known


class GroupPlaces:
    """Checked byte offsets (1, T) of each load of a group, and how to get the data."""

    def __init__(self, group: LoadGroup, offsets: list[Array], chunk: Chunk) -> None:
        self.group, self.offsets = group, offsets
        self.words: Array | None = None  # numbers of the words in the memory of all blocks, (words, blocks, T)
        self.units = [each[0] >> (op.width.bit_length() - 1) for each, op in zip(offsets, group.ops, strict=True)]
        if group.words * chunk.blocks * chunk.threads <= MOST_WORDS:
            first = [(each + chunk.shared_rows) >> 2 for each in offsets]
            words = [each + k for each, op in zip(first, group.ops, strict=True) for k in range(op.width // 4)]
            self.words = np.stack([np.broadcast_to(each, chunk.shape) for each in words])

    def load(self, chunk: Chunk) -> list[Array]:
        """The words of all loads."""
        if self.words is not None:
            return list(chunk.shared_flat.view(np.uint32).take(self.words))
        found: list[Array] = []
        for op, units in zip(self.group.ops, self.units, strict=True):
            if op.width == 4:
                found.append(chunk.shared.view(np.uint32).take(units, axis=1))
            else:
                found.extend(words_of(chunk.shared.view(f"V{op.width}").take(units, axis=1)))
        return found
