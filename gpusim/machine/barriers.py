"""Block barriers with numbers and thread counts (BAR.SYNC, .ARV and .RED; PTX bar and barrier.cta).

A barrier counts whole warps: a warp has arrived when all its living lanes have, at whichever instructions, and then
counts as 32 threads (PTX ISA, "bar": the number of threads is a multiple of the warp size).  Without a thread count a
barrier waits for all living threads of the block.  If more warps wait than a barrier needs, the first ones go on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.errors import ExecutionError
from gpusim.machine.chunk import Chunk

Array = np.ndarray[Any, Any]
i32, u32 = np.int32, np.uint32
WARP = 32
NUMBERS = 16
PACKED_COUNT = i32(16)  # bit from which on a register with number and count holds the count
COUNT_MASK = i32(0xFFF)


class BlockBarriers:
    """What is known of each numbered barrier of each block of a chunk.

    ``number`` is the barrier at which each waiting lane waits.  ``expected`` are the threads that complete a barrier
    (0: all of the block, -1: nobody has come yet), ``arrived`` the lanes that arrived without waiting.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk

    def start(self) -> None:
        """Forget everything: a new chunk of blocks."""
        self.number: Array = np.zeros((1, 1), i32)
        self.expected: dict[int, Array] = {}
        self.arrived: dict[int, Array] = {}  # (blocks, warps)
        self.sums: dict[int, Array] = {}  # of a reduction: lanes whose predicate holds, and lanes, (blocks, 1)
        self.lanes: dict[int, Array] = {}
        self.reduction: dict[int, str] = {}

    def passes(self, number: Array, count: Array | None) -> bool:
        """Whether a barrier that all living threads of all blocks have reached together lets them all go on."""
        if number.size != 1 or (count is not None and count.size != 1):
            return False
        if not 0 <= int(number.item()) < NUMBERS:
            return False
        arrived = self.arrived.get(int(number.item()))
        if arrived is not None and arrived.any():
            return False
        chunk = self.chunk
        if count is None:
            return True
        every_warp = chunk.warp_total(chunk.alive_mask()) == chunk.blocks * chunk.warps
        return every_warp and int(count.item()) == WARP * chunk.warps

    def deliver_to_all(self, number: Array) -> None:
        """Such a barrier was passed: its reduction's result is there."""
        self._deliver(int(number.item()), np.ones((1, 1), bool))

    def announce(self, number: Array, count: Array | None, lanes: Array, where: str) -> None:
        """Lanes come to barriers: note how many threads each needs.  ``where`` names the instruction for errors."""
        shape = (self.chunk.blocks, self.chunk.threads)
        lanes = np.broadcast_to(lanes, shape)
        numbers = np.broadcast_to(number, shape)
        counts = np.broadcast_to(i32(0) if count is None else count, shape)
        if count is not None:
            wrong = lanes & ((counts % WARP != 0) | (counts <= 0))
            if wrong.any():
                raise ExecutionError(
                    f"a barrier for {int(counts[wrong][0])} threads, which is no multiple of the warp size, {where}"
                )
        for each in np.unique(numbers[lanes]).tolist():
            if not 0 <= each < NUMBERS:
                raise ExecutionError(f"a block has no barrier {each}, only 0 to {NUMBERS - 1}, {where}")
            here = lanes & (numbers == each)
            threads = np.where(here, counts, 0).max(axis=1, keepdims=True).astype(i32)
            coming = here.any(axis=1, keepdims=True)
            before = self.expected.get(each, np.full_like(threads, -1))
            least = np.where(here, counts, i32(1 << 30)).min(axis=1, keepdims=True)
            least = np.where(before >= 0, np.minimum(least, before), least)
            most = np.maximum(threads, before)
            other = coming & (least != most)
            if other.any():
                raise ExecutionError(
                    f"threads that come to barrier {each} do not agree on how many it is for "
                    f"({int(least[other][0])} or {int(most[other][0])}; 0: all), {where}"
                )
            self.expected[each] = np.where(coming, threads, before)

    def arrive(self, number: Array, lanes: Array) -> None:
        """Lanes arrive and do not wait."""
        chunk = self.chunk
        shape = (chunk.blocks, chunk.threads)
        lanes, numbers = np.broadcast_to(lanes, shape), np.broadcast_to(number, shape)
        for each in np.unique(numbers[lanes]).tolist():
            here = (lanes & (numbers == each)).reshape(chunk.blocks, chunk.warps, WARP).sum(axis=2)
            self.arrived[each] = self.arrived.get(each, np.zeros_like(here)) + here

    def contribute(self, number: Array, reduction: str, predicate: Array, lanes: Array) -> None:
        """BAR.RED: lanes add their predicate to their barrier's running count."""
        shape = (self.chunk.blocks, self.chunk.threads)
        lanes, numbers = np.broadcast_to(lanes, shape), np.broadcast_to(number, shape)
        holds = np.broadcast_to(predicate, shape) & lanes
        for each in np.unique(numbers[lanes]).tolist():
            here = numbers == each
            nothing = np.zeros((shape[0], 1), u32)
            for found, which in ((self.sums, holds), (self.lanes, lanes)):
                found[each] = found.get(each, nothing) + (which & here).sum(axis=1, keepdims=True, dtype=u32)
            self.reduction[each] = reduction

    # -- completing -------------------------------------------------------------------------------------------------
    def release(self, waiting: Array, exited: Array) -> Array:
        """The waiting lanes that may go on now, (blocks, threads); reductions' results are delivered to them."""
        chunk = self.chunk
        shape = (chunk.blocks, chunk.threads)
        waiting, exited = np.broadcast_to(waiting, shape), np.broadcast_to(exited, shape)
        numbers = np.broadcast_to(self.number, shape)
        free = np.zeros(shape, bool)
        coming = {int(each) for each in np.unique(numbers[waiting])}
        for each in sorted(coming | {key for key, lanes in self.arrived.items() if lanes.any()}):
            here = waiting & (numbers == each)
            expected = self.expected.get(each)
            everyone = (here | exited).all(axis=1, keepdims=True) & here.any(axis=1, keepdims=True)
            if expected is None:
                going = here & everyone
            else:
                going = here & everyone & (expected <= 0)
                going |= self._by_count(each, here, exited, expected)
                empty = ~(here & ~going).any(axis=1, keepdims=True) & going.any(axis=1, keepdims=True)
                self.expected[each] = np.where(empty, i32(-1), self.expected[each])
            if going.any():
                self._deliver(each, going)
                free |= going
        return free

    def _threads(self, each: int, here: Array, exited: Array) -> tuple[Array, Array]:
        """(threads that arrived without waiting (blocks, 1), whether a whole warp waits (blocks, warps))."""
        chunk = self.chunk
        shape = (chunk.blocks, chunk.warps, WARP)
        living = (~exited).reshape(shape).sum(axis=2)
        arrived = self.arrived.get(each)
        passed = np.zeros((chunk.blocks, 1), i32)
        if arrived is not None:
            passed = (arrived // np.maximum(living, 1)).sum(axis=1, keepdims=True).astype(i32) * WARP
        whole = (here | exited).reshape(shape).all(axis=2) & here.reshape(shape).any(axis=2)
        return passed, np.asarray(whole)

    def _by_count(self, each: int, here: Array, exited: Array, expected: Array) -> Array:
        """Lanes released because their barrier has its number of threads."""
        going = np.zeros(here.shape, bool)
        while True:
            passed, whole = self._threads(each, here & ~going, exited)
            turn = passed + np.cumsum(whole, axis=1, dtype=i32) * WARP
            complete = (expected > 0) & (turn[:, -1:] >= expected)
            if not complete.any():
                return going
            chosen = whole & complete & (turn <= expected)
            going |= np.repeat(chosen, WARP, axis=1) & here
            if each in self.arrived:
                self.arrived[each] = np.where(complete, 0, self.arrived[each])

    def _deliver(self, each: int, going: Array) -> None:
        """Released lanes see the result of a reduction; its running count starts anew."""
        if each not in self.reduction:
            return
        chunk, kind = self.chunk, self.reduction[each]
        count, lanes = self.sums[each], self.lanes[each]
        if kind == "POPC":
            result = count
        else:
            holds = count == lanes if kind == "AND" else count > 0
            result = np.where(holds, u32(0xFFFFFFFF), u32(0))
        chunk.barrier_result = np.where(going, result, chunk.barrier_result)
        done = going.any(axis=1, keepdims=True)
        self.sums[each] = np.where(done, u32(0), count)
        self.lanes[each] = np.where(done, u32(0), lanes)

    # -- errors -----------------------------------------------------------------------------------------------------
    def describe(self, block: int, waiting: Array, exited: Array) -> str:
        """Who waits at which barrier of a block of the chunk, in words."""
        shape = (self.chunk.blocks, self.chunk.threads)
        waiting, exited = np.broadcast_to(waiting, shape), np.broadcast_to(exited, shape)
        numbers = np.broadcast_to(self.number, shape)
        told = []
        for each in np.unique(numbers[block][waiting[block]]).tolist():
            here = waiting & (numbers == each)
            text = f"{int(here[block].sum())} at barrier {each}"
            expected = self.expected.get(each)
            if expected is None or expected[block, 0] <= 0:
                text += f" for all {int((~exited[block]).sum())} threads of the block"
            else:
                passed, whole = self._threads(each, here, exited)
                have = int(passed[block, 0]) + WARP * int(whole[block].sum())
                text += f" for {int(expected[block, 0])} threads, of which {have} have come"
            told.append(text)
        return ", ".join(told)
