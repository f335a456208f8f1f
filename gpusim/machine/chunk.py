"""The state of a chunk of blocks that execute together: registers, masks, shared and local memory."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import numpy as np

from gpusim.machine.lanes import Lanes
from gpusim.machine.outer import by_block

Array = np.ndarray[Any, Any]
u32 = np.uint32
NOWHERE = np.int32(1 << 30)  # an address that no lane stands at
MOST_PLACES = 16  # addresses at which lanes wait up to which it is worked out what they may read
PLAIN = 4096  # threads of a chunk up to which block numbers are arrays: sums take longer than their elements
EACH_BYTE = np.uint64(0x0101010101010101)
ELEMENTS = 1024  # more than there are registers and predicates
ZERO: Array = np.zeros((1, 1), u32)
NEVER: Array = np.zeros((1, 1), bool)
ALWAYS: Array = np.ones((1, 1), bool)
for _constant in (ZERO, NEVER, ALWAYS):
    _constant.setflags(write=False)


def shrink_rows(mask: Array) -> Array:
    """(b, T) -> (1, T) when all rows are equal."""
    if mask.shape[0] > 1 and bool((mask == mask[:1]).all()):
        return mask[:1]
    return mask


def _words(mask: Array) -> Array:
    """A mask (b, T) as (b, warps, 4) words of eight lanes."""
    return np.ascontiguousarray(mask).view(np.uint64).reshape(mask.shape[0], -1, 4)


def by_warp(mask: Array) -> Array:
    """Whether any lane of each warp is set: (b, T) -> (b, warps)."""
    words = _words(mask)
    return ((words[:, :, 0] | words[:, :, 1]) | (words[:, :, 2] | words[:, :, 3])) != 0


def lanes_by_warp(mask: Array) -> Array:
    """How many lanes of each warp are set: (b, T) -> (b, warps)."""
    words = _words(mask)
    eight = (words[:, :, 0] + words[:, :, 1]) + (words[:, :, 2] + words[:, :, 3])  # up to four in each byte
    return eight * EACH_BYTE >> np.uint64(56)


def to_lanes(warps: Array) -> Array:
    """Truth values by warp in all lanes: (b, warps) -> (b, T)."""
    words: Array = np.empty((*warps.shape, 4), np.uint64)
    words[...] = (warps.astype(np.uint64) * EACH_BYTE)[:, :, None]
    return words.view(bool).reshape(warps.shape[0], -1)


class Chunk:
    """Registers are arrays of the smallest shape that broadcasts to (blocks, threads); threads is padded to 32."""

    def __init__(self, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int, local_bytes: int):
        self.grid, self.block = grid, block
        self.block_threads = block[0] * block[1] * block[2]
        self.threads = (self.block_threads + 31) // 32 * 32
        self.warps = self.threads // 32
        self.shared_bytes, self.local_bytes = shared_bytes, local_bytes
        self.R: list[Array] = [ZERO] * 256
        self.UR: list[Array] = [ZERO] * 256
        self.P: list[Array] = [NEVER] * 8
        self.UP: list[Array] = [NEVER] * 8
        thread = np.arange(self.threads)
        self.lane_ids = (thread % 32).astype(np.int32)[None]
        self.warp_starts = (thread // 32 * 32)[None]
        self.blocks = 0
        self.first_block = 0
        self.shape = (0, self.threads)
        self.rows: dict[int, tuple[list[Array], Array]] = {}  # by id of the first: arrays that are the rows of another
        self.numbers: Array = np.zeros(1, np.int64)
        self.ticks = 0
        self.news = 0  # changes of asynchronous barriers
        self.code_base = 0  # address of the program's first instruction
        self._thread_special = self._thread_registers(thread)
        self.special: dict[str, Array] = {}
        self.predicated_on: dict[int, int] = {}
        self._hook()

    def _hook(self) -> None:
        """What is asked of the engine, without one."""
        # (bank, offset, base) -> words of a constant bank at run-time addresses; set by the engine
        self.constant_load: Callable[[int, int, Array], Array] = lambda bank, offset, base: ZERO
        # elements live before the instruction at an address, and where each lane stands; set by the engine
        self.before: Callable[[int], frozenset[int]] = lambda address: frozenset()
        self.places: Callable[[], Array] = lambda: np.zeros((1, 1), np.int32)

    def _thread_registers(self, thread: Array) -> dict[str, Array]:
        bx, by, _ = self.block
        parts = {"X": thread % bx, "Y": thread // bx % by, "Z": thread // (bx * by)}
        found = {}
        for axis, values in parts.items():
            words = values.astype(u32)[None]
            if bool((words == words[0, 0]).all()):
                words = words[:, :1].copy()
            found[f"SR_TID.{axis}"] = words
        found["SR_LANEID"] = (thread % 32).astype(u32)[None]
        found["SR_NTID"] = ZERO
        return found

    def start(self, numbers: Array) -> None:
        """Reset for the blocks with these linear numbers, in ascending order."""
        self.numbers = number = numbers
        self.first_block = int(numbers[0])
        self.blocks = blocks = len(numbers)
        self.shape = (blocks, self.threads)
        self.rows.clear()
        gx, gy, _ = self.grid
        parts = {"X": number % gx, "Y": number // gx % gy, "Z": number // (gx * gy)}
        self.special = dict(self._thread_special)
        for axis, values in parts.items():
            words = values.astype(u32)[:, None]
            same = bool((words == words[0, 0]).all())
            words = words[:1].copy() if same else (words if blocks * self.threads <= PLAIN else by_block(words))
            self.special[f"SR_CTAID.{axis}"] = words
        del self.special["SR_NTID"]
        for file in (self.R, self.UR):
            file[:] = [ZERO] * len(file)
        for predicates in (self.P, self.UP):
            predicates[:] = [NEVER] * 7 + [ALWAYS]
        self.barrier_result: Array = ZERO
        self.kept: list[Array] = [ZERO, ZERO]  # Rpc
        self.shared = np.zeros((blocks, self.shared_bytes), np.uint8)
        self.shared_flat = self.shared.reshape(-1)
        self.shared_rows = (np.arange(blocks, dtype=np.int64) * self.shared_bytes)[:, None]
        self._local: Array | None = None
        self.alive: Array | None = None
        if self.threads != self.block_threads:
            self.alive = (np.arange(self.threads) < self.block_threads)[None]
        self.set_active(self.alive)

    def let_go(self) -> None:
        """Give back the arrays of the last blocks, and what refers to the engine."""
        self._hook()
        self.start(np.zeros(1, np.int64))
        self.shared = self.shared_flat = np.zeros((1, 0), np.uint8)

    @property
    def local(self) -> Array:
        """Local memory as (words, blocks, threads), made at first use."""
        if self._local is None:
            self._local = np.zeros((max(1, self.local_bytes // 4), self.blocks, self.threads), u32)
        return self._local

    def set_active(self, mask: Array | None) -> None:
        """Make ``mask`` the executing lanes (None: all).  ``m`` is exact; ``w`` is None when no living lane is left
        out, so that results may be written without a mask; ``lane_count`` and ``warp_count`` count what is active."""
        self.m = mask
        self._elsewhere: Container[int] | None = None
        self._warp_mask: Array | None = None
        total_warps = self.blocks * self.warps
        if mask is None:
            self.warp_count, self.lane_count = total_warps, self.blocks * self.threads
        else:
            repeat = self.blocks // mask.shape[0]
            wide = np.broadcast_to(mask, (mask.shape[0], self.threads))
            self.lane_count = int(np.count_nonzero(wide)) * repeat
            self.warp_count = self.total(by_warp(wide))
        self.w = None if mask is self.alive else mask

    def set_alive(self, mask: Array | None) -> None:
        self.alive = mask

    # -- masks -----------------------------------------------------------------------------------------------------
    def wide(self, mask: Array) -> Array:
        return np.broadcast_to(mask, (mask.shape[0], self.threads))

    def active_mask(self) -> Array:
        return np.ones((1, self.threads), bool) if self.m is None else self.wide(self.m)

    def alive_mask(self) -> Array:
        return np.ones((1, self.threads), bool) if self.alive is None else self.wide(self.alive)

    def warp_any(self, mask: Array) -> Array:
        """Lanes of warps in which any lane is set."""
        return mask if mask.shape[1] == 1 else to_lanes(by_warp(mask))

    def warp_write_mask(self) -> Array:
        """Whole warps with any executing lane: what a uniform register is written under."""
        if self._warp_mask is None:
            self._warp_mask = self.warp_any(self.active_mask())
        return self._warp_mask

    def elsewhere(self) -> Container[int]:
        """Elements that lanes which do not execute now may read yet."""
        if self._elsewhere is None:
            self._elsewhere = self._live_elsewhere()
        return self._elsewhere

    def _live_elsewhere(self) -> Container[int]:
        waiting = self.alive_mask() & ~self.active_mask()
        left = np.where(waiting, self.places(), NOWHERE)
        found: frozenset[int] = frozenset()
        for _ in range(MOST_PLACES):
            address = int(left.min())
            if address == NOWHERE:
                return found
            found = found | self.before(address)
            left[left == address] = NOWHERE
        return range(ELEMENTS)

    def count(self, mask: Array) -> int:
        """Lanes set in a mask of broadcastable shape."""
        return int(np.count_nonzero(mask)) * (self.blocks * self.threads // mask.size)

    def warp_total(self, mask: Array) -> int:
        """Warps with any lane set."""
        return self.total(by_warp(self.wide(mask)))

    def total(self, warps: Array) -> int:
        """Warps set in all blocks, of truth values by warp."""
        return int(np.count_nonzero(warps)) * (self.blocks // warps.shape[0])

    def guarded(self, index: int, mask: Array) -> int:
        """Count the lanes in which instruction ``index`` is predicated on; returns that number."""
        number = self.count(mask)
        self.predicated_on[index] = self.predicated_on.get(index, 0) + number
        return number

    def lanes(self, mask: Array | None) -> Lanes:
        return Lanes(self, mask)
