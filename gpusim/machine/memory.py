"""Device memory: one address space that holds the launch's buffers with guard zones between them."""

from __future__ import annotations

import mmap
import sys
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

ALIGNMENT = 256  # bytes; what cudaMalloc guarantees
GUARD_BYTES = 4096
POISON = 0xCB
DEFAULT_BASE = 0x7F00_1000_0000

# Windows of the generic address space; outside of every buffer.
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7E01_0000_0000
WINDOW_BYTES = 1 << 24


@dataclass(frozen=True)
class Buffer:
    """A device allocation: ``start`` is its device address, ``size`` in bytes."""

    name: str
    start: int
    size: int
    writable: bool = True

    @property
    def end(self) -> int:
        return self.start + self.size


ALONE = 2  # references to an array that one name refers to, as sys.getrefcount sees it
MOST_SPARE = 256 << 20  # bytes


class Spare:
    """Memory of a launch that has ended, kept for the next one: new pages take longer to get than to fill."""

    def __init__(self) -> None:
        self._kept: np.ndarray[Any, Any] | None = None

    def take(self, size: int) -> np.ndarray[Any, Any]:
        """At least ``size`` bytes with any contents, which processes forked later share."""
        kept, self._kept = self._kept, None
        if kept is not None and size <= kept.nbytes <= max(4 * size, 1 << 20):
            return kept
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)

    def keep(self, memory: np.ndarray[Any, Any]) -> None:
        """Keep memory that nobody uses any more."""
        if memory.nbytes <= MOST_SPARE:
            self._kept = memory


class DeviceMemory:
    """Bytes of all buffers in one array, so that a lane's address is an index into it.

    ``base`` is the device address of the first byte; buffers are 256-byte aligned, as real allocations are, and
    separated by poisoned guard zones that no access may touch.
    """

    def __init__(self, base: int = DEFAULT_BASE, spare: Spare | None = None) -> None:
        if base % ALIGNMENT:
            raise ValueError(f"the base address must be a multiple of {ALIGNMENT}")
        self.base = base
        self._spare = spare or Spare()
        self._owner: np.ndarray[Any, Any] | None = None
        self.buffers: list[Buffer] = []
        self._contents: list[np.ndarray[Any, Any]] = []
        self._top = GUARD_BYTES

    def add(self, name: str, contents: np.ndarray[Any, Any] | bytes, writable: bool = True) -> Buffer:
        """Reserve a buffer with these initial contents (any array; its bytes in C order)."""
        if isinstance(contents, bytes):
            raw = np.frombuffer(contents, np.uint8)
        else:
            raw = np.ascontiguousarray(contents).reshape(-1).view(np.uint8)
        buffer = Buffer(name, self.base + self._top, raw.nbytes, writable)
        self.buffers.append(buffer)
        self._contents.append(raw)
        end = self._top + raw.nbytes + GUARD_BYTES
        self._top = (end + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return buffer

    def build(self) -> None:
        """Settle the layout; call once after the last :meth:`add`."""
        self._written = mmap.mmap(-1, max(1, len(self.buffers)))  # a byte a buffer, which processes forked later share
        self._starts = [b.start - self.base for b in self.buffers]
        self._ends = [b.end - self.base for b in self.buffers]

    @cached_property
    def bytes(self) -> np.ndarray[Any, Any]:
        """All bytes; copied together when first asked for, so that a launch that reads nothing copies nothing.

        Processes forked later share them.
        """
        self._owner = self._spare.take(self.total)
        whole = self._owner[: self.total]
        self._fill(whole)
        return whole

    def end(self) -> None:
        """The launch has ended: let the next one have the memory, unless somebody still looks at it."""
        for name in ("bytes", "words16", "words32"):
            self.__dict__.pop(name, None)
        owner, self._owner = self._owner, None
        if owner is not None and sys.getrefcount(owner) <= ALONE:
            self._spare.keep(owner)

    @property
    def total(self) -> int:
        """Bytes of all buffers with their guard zones."""
        return self._top + GUARD_BYTES

    def reset(self) -> None:
        """Bring back the contents that the buffers were added with."""
        if "bytes" in self.__dict__:
            self._fill(self.bytes)
        self._written[:] = bytes(len(self._written))

    def _fill(self, whole: np.ndarray[Any, Any]) -> None:
        after = 0
        for buffer, raw in zip(self.buffers, self._contents, strict=True):
            offset = buffer.start - self.base
            whole[after:offset] = POISON
            after = offset + buffer.size
            whole[offset:after] = raw
        whole[after:] = POISON

    @cached_property
    def words16(self) -> np.ndarray[Any, Any]:
        """The bytes as halfwords."""
        return self.bytes.view(np.uint16)

    @cached_property
    def words32(self) -> np.ndarray[Any, Any]:
        """The bytes as words."""
        return self.bytes.view(np.uint32)

    def find(self, low: int, high: int) -> int | None:
        """The number of the buffer that holds device addresses ``low`` .. ``high`` (inclusive), None if none does."""
        k = bisect_right(self._starts, low - self.base) - 1
        return k if k >= 0 and high - self.base < self._ends[k] else None

    def between(self, low: int, high: int) -> range:
        """The numbers of the buffers from the one that holds device address ``low`` to the one that holds ``high``."""
        first, last = (bisect_right(self._starts, address - self.base) - 1 for address in (low, high))
        return range(max(first, 0), last + 1)

    def note_writing(self, low: int, high: int) -> None:
        """The byte offsets ``low`` .. ``high`` (inclusive) are being written, or some of them."""
        for number in self.between(low + self.base, high + self.base):
            self._written[number] = 1

    def was_written(self, buffer: Buffer) -> bool:
        """Whether the launch wrote to a buffer."""
        return bool(self._written[self.buffers.index(buffer)])

    def initial(self, number: int) -> np.ndarray[Any, Any]:
        """Bytes of a buffer as they were added."""
        return self._contents[number]

    def read(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        """The buffer's bytes as they are now (a view)."""
        offset = buffer.start - self.base
        return self.bytes[offset : offset + buffer.size]

    def inside(self, low: int, high: int) -> bool:
        """Whether the byte offsets ``low`` .. ``high`` (inclusive) lie in one buffer."""
        k = bisect_right(self._starts, low) - 1
        return k >= 0 and high < self._ends[k]

    def outside_mask(self, offsets: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
        """For each byte offset, whether an access of ``width`` bytes there leaves every buffer."""
        if not self._starts:
            return np.ones(offsets.shape, bool)
        k = np.searchsorted(np.array(self._starts), offsets, side="right") - 1
        ends = np.array(self._ends)[np.maximum(k, 0)]
        return (k < 0) | (offsets + width > ends)

    def nearest(self, address: int) -> str:
        """A few words on the buffer nearest to an address: for error messages."""
        if not self.buffers:
            return "no device buffer exists"
        distances = [(max(b.start - address, address - b.end + 1, 0), b) for b in self.buffers]
        distance, buffer = min(distances, key=lambda pair: pair[0])
        kind = f"{buffer.name} ({buffer.size} bytes at {buffer.start:#x})"
        if not distance:
            return f"nearest buffer: byte {address - buffer.start} of {kind}"
        if address < buffer.start:
            return f"nearest buffer: {distance} bytes before {kind}"
        return f"nearest buffer: {address - buffer.end} bytes past the end of {kind}"
