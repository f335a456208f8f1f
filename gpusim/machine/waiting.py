"""Who waits in a chunk: lanes at block barriers, at asynchronous barriers, and in loops for what others write."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.errors import ExecutionError
from gpusim.machine.barriers import BlockBarriers
from gpusim.machine.chunk import Chunk, shrink_rows
from gpusim.machine.turns import ASIDE, AT_BARRIER, EXITED, HELD, NOWHERE, READY, RUNNING, STEP, Turns
from gpusim.sass.numeric import either

Array = np.ndarray[Any, Any]
i32 = np.int32

# Warps go at the lowest address first.  One that waits in a loop for what another one writes would keep that one from
# running for ever; so after this many blocks of the program it is set aside (ASIDE) until the others can do no more.
PATIENCE = 1024
# Lanes of one warp that wait in a loop for what its other lanes write let these go on after so many times PATIENCE.
STALLS = 16
# Looks at an mbarrier, of all lanes that wait at one, while nothing else happens: then it is a deadlock.
MOST_WAKES = 100
SPIN_CAVEAT = (
    "counts are not certain here: lanes of a warp wait in a loop for its other lanes, and how often they go round "
    "depends on timing"
)


class Waiting(Turns):
    """How long lanes wait for others than those of their warp."""

    def __init__(self, chunk: Chunk) -> None:
        super().__init__(chunk)
        self.named = BlockBarriers(chunk)

    def start(self) -> None:
        """All living lanes at address 0."""
        super().start()
        self.turns = 0  # blocks that lanes executed while others had to wait for them
        self.stalls = 0  # times that these were PATIENCE blocks since a thread last ended or came to a block barrier
        self.wakes, self.news = 0, 0  # times in a row that held lanes had to look again though there were no news
        self.forced: Array = np.zeros((1, 1), bool)  # lanes that do so now
        self.named.start()

    def pick(self) -> int | None:
        """Choose the lanes to execute next."""
        raise NotImplementedError

    def _deadlock(self) -> ExecutionError:
        raise NotImplementedError

    # -- waiting in turn --------------------------------------------------------------------------------------------
    def _wake(self) -> Array:
        """Nobody runs: lanes that were set aside go on, or else those that are held at an mbarrier look at it again."""
        aside = self.status == ASIDE
        if not aside.any():
            aside = self.status == HELD
            self.wakes = self.wakes + 1 if self.news == self.chunk.news else 0
            self.news = self.chunk.news
            if not aside.any() or self.wakes > MOST_WAKES:
                raise self._deadlock()
            self.forced = self.forced | aside
        self.turns = 0
        self.status = either(aside, RUNNING, self.status)
        return np.asarray(self.status == RUNNING)

    def _lose_patience(self, running: Array) -> Array:
        """The lanes whose turn it is have had many: let other warps go on, or at last other lanes of their warps."""
        self.turns = 0
        self.stalls += 1
        waiting = running | (self.status == ASIDE)
        siblings = self.chunk.warp_any(waiting) & (self.status == READY)
        if self.stalls >= STALLS and siblings.any():
            self.stalls = 0
            self.caveats.add(SPIN_CAVEAT)
            self.splits += 1
            swapped = waiting & self.chunk.warp_any(siblings)
            self.status = either(swapped, READY, either(siblings, RUNNING, self.status))
            self.order = either(swapped, i32(0), self.order)
        else:
            chosen = running & (self.place == either(running, self.place, NOWHERE).min())
            if not (waiting & ~chosen).any():
                return running
            self.status = either(chosen, ASIDE, self.status)
        running = np.asarray(self.status == RUNNING)
        return running if running.any() else self._wake()

    def hold(self, lanes: Array, address: int) -> int | None:
        """Executing lanes that wait for what others do stay at ``address`` until those can do no more.

        Returns ``address`` if lanes are left that go on there, else where the next block starts.
        """
        chunk = self.chunk
        active = chunk.active_mask()
        lanes = chunk.wide(lanes) & active
        if not lanes.any():
            return address
        self._separate(address)
        self._keep(address)
        self.status = either(lanes, HELD, self.status)
        going = shrink_rows(active & ~lanes)
        if not going.any():
            return self.pick()
        chunk.set_active(going)
        return address

    # -- block barriers ---------------------------------------------------------------------------------------------
    def barrier(
        self, waiting: Array | None, address: int, number: Array, count: Array | None, where: str
    ) -> int | None:
        """BAR.SYNC and BAR.RED: wait until the threads that the barrier is for are here.

        ``number`` of the barrier and ``count`` of threads (None: all of the block) by lane; ``where`` is for errors.
        """
        following = address + STEP
        self.stalls = 0
        chunk, named = self.chunk, self.named
        active = chunk.active_mask()
        arriving = active if waiting is None else chunk.wide(waiting)
        if self.together and waiting is None and named.passes(number, count):
            named.deliver_to_all(number)
            return following
        self._separate(address)
        self._keep(following)
        if count is not None or named.expected or number.any():
            named.announce(number, count, arriving, where)
        self.status = either(arriving, AT_BARRIER, self.status)
        named.number = either(arriving, number, named.number)
        self._release_barrier()
        return self.pick()

    def arrive(self, arriving: Array | None, address: int, number: Array, count: Array, where: str) -> int | None:
        """BAR.ARV: count at the barrier and go on."""
        lanes = self.chunk.active_mask() if arriving is None else self.chunk.wide(arriving)
        self._separate(address)
        self._keep(address + STEP)
        self.named.announce(number, count, lanes, where)
        self.named.arrive(number, lanes)
        self._release_barrier()
        return self.pick()

    def _release_barrier(self) -> None:
        waiting = self.status == AT_BARRIER
        if not waiting.any() and not self.named.arrived:
            return
        free = self.named.release(waiting, self.status == EXITED)
        if not free.any():
            return
        free = shrink_rows(free)
        self.status = either(free, RUNNING, self.status)
        # lanes of one warp that stood at different barriers go on one group after the other
        rows = max(free.shape[0], self.place.shape[0])
        place = np.broadcast_to(either(free, self.place, NOWHERE), (rows, self.chunk.threads))
        lowest = np.repeat(place.reshape(rows, -1, 32).min(axis=2), 32, axis=1)
        later = free & (place != lowest)
        if later.any():
            self.splits += 1
            self.status = either(later, READY, self.status)
            self.order = either(later, i32(self.splits), self.order)
