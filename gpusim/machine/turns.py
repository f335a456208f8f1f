"""The lanes of diverged warps that wait for their turn, and the order in which they get it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.machine.chunk import NOWHERE, Chunk, by_warp, lanes_by_warp, to_lanes
from gpusim.machine.lanes import Lanes
from gpusim.sass.numeric import either

Array = np.ndarray[Any, Any]
u32, i32, i8 = np.uint32, np.int32, np.int8

EXITED, RUNNING, READY, AT_SYNC, AT_BARRIER, AT_WARPSYNC, HELD, ASIDE = (i8(k) for k in range(8))
RECURSION_CAVEAT = (
    "executed counts are not certain here: lanes of a warp return from different depths of recursion together (of 98 "
    "recorded launches of recursive kernels 13 differ, by up to 19 % of the instructions; counters that the profiler "
    "reads without instrumentation differ more often)"
)
JOIN_CAVEAT = (
    "counts are not certain here: lanes that wait for their turn stand where others of their warp wait already, and "
    "when the two go on together was seen to differ (recorded: up to 9 in 1,243 instructions, mostly BSYNC; 37 % in a "
    "loop that is entered in the middle)"
)
STEP = 16
FEW_WARPS = 4  # one in so many at most is looked at alone


class Turns:
    """State of a chunk's lanes; groups put aside get their turn last come, first served."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.caveats: set[str] = set()  # sentences on counts that the model does not decide for certain

    def start(self) -> None:
        """All living lanes at address 0."""
        self.together = True  # every living lane executes at the same address
        self.barriers: list[Array | None] = [None] * 17  # members by convergence barrier; None: never set
        self.status: Array = np.full((1, 1), RUNNING)
        self.place: Array = np.zeros((1, 1), i32)
        self.order: Array = np.zeros((1, 1), i32)  # of ready lanes: which group of the warp was put aside last
        self.joinable: Array = np.zeros((1, 1), bool)  # of ready lanes: whether a group put aside next may join them
        self.apart: Array = np.full((1, 1), i32(-1))  # of ready lanes that others joined: their order before that
        self.yielded: Array = np.zeros((1, 1), bool)  # ready lanes that barriers do not wait for
        self.splits = 0
        self.next_other = int(NOWHERE)  # lowest address at which other running lanes stand
        self.sync_points: dict[int, int] = {}
        self.warpsync_masks: dict[int, Array] = {}
        self.collectives: dict[int, Array] = {}  # masks of lanes that wait for a collective section, by address
        self.targets: Array = np.zeros((1, 1), i32)  # where lanes go after it
        self.deferred: Array = np.zeros((1, 1), bool)  # lanes that wait for their turn at a WARPSYNC

    def _separate(self, address: int) -> None:
        """Leave the state in which everyone is at one address: give each lane its own."""
        if not self.together:
            return
        alive = self.chunk.alive_mask()
        self.status = either(alive, RUNNING, EXITED)
        self.place = np.full((1, self.chunk.threads), address, i32)
        self.order = np.zeros((1, self.chunk.threads), i32)
        self.together = False

    def _keep(self, address: int) -> None:
        """Note where the executing lanes stand."""
        self.place = either(self.chunk.active_mask(), i32(address), self.place)

    def _put_aside(self, lanes: Array, joining: Array, retried: bool = False) -> None:
        """Lanes (one group a warp) wait for their turn, before all that wait already.

        In warps where they are among ``joining`` they become one with the group put aside before them, if that stands
        at the same address and had jumped there, too.  ``retried``: they left a loop around a compare-and-swap: then
        they join all that wait at the same address (recording h200_access_more, kernels atoms_*).
        """
        self.splits += 1
        before = (self.status, self.place, self.order, self.joinable, self.apart)
        rows = np.flatnonzero(by_warp(lanes))
        shape = (self.chunk.blocks, self.chunk.threads)
        if lanes.shape != shape or len(rows) * FEW_WARPS > lanes.size // 32:
            self.status, self.order, self.joinable, self.apart = self._aside(lanes, joining, retried, *before)
            return

        def part(state: Array) -> Array:
            return np.broadcast_to(state, shape).reshape(-1, 32)[rows]

        after = self._aside(part(lanes), part(joining), retried, *map(part, before))
        for name, new in zip(("status", "order", "joinable", "apart"), after, strict=True):
            state = getattr(self, name)
            if state.shape != shape or not (state.flags.c_contiguous and state.flags.writeable):
                state = np.broadcast_to(state, shape).copy()
                setattr(self, name, state)
            state.reshape(-1, 32)[rows] = new

    def _aside(
        self, lanes: Array, joining: Array, retried: bool, status: Array, place: Array, order: Array, joinable: Array,
        apart: Array,
    ) -> tuple[Array, Array, Array, Array]:  # fmt: skip
        """Status, order, joinable and apart of lanes, after some of them were put aside."""
        ready = status == READY
        latest = self._warp_max(either(ready, order, i32(-1)))
        before = ready if retried else ready & (order == latest) & joinable
        here = self._warp_max(either(lanes if retried else lanes & joining, place, i32(-1)))
        united = before & (place == here)
        if not retried:
            self._note_doubt(lanes, united, status, place)
        apart = either(united, order, either(lanes, i32(-1), apart))
        status = either(lanes, READY, status)
        order = either(lanes | united, i32(self.splits), order)
        return status, order, either(lanes, joining, joinable), apart

    def _part(self, ending: Array) -> None:
        """Where lanes that end have nobody beside them, the groups that wait next and had joined are two again.

        So lanes join others only if those that run meanwhile come to a barrier (recordings h200_flow, h200_flow_held,
        kernel call_switch).
        """
        if not (self.apart >= 0).any():
            return
        ready = self.status == READY
        latest = self._warp_max(either(ready, self.order, i32(-1)))
        alone = self.chunk.warp_any(ending) & ~self.chunk.warp_any(self.chunk.active_mask() & ~ending)
        parting = ready & (self.order == latest) & (self.apart >= 0) & alone
        self.order = either(parting, self.apart, self.order)
        self.apart = either(parting, i32(-1), self.apart)

    def _note_doubt(self, lanes: Array, united: Array, status: Array, place: Array) -> None:
        """Add a caveat where ``lanes`` stand with others that wait and it is not sure whether they join them."""
        here = self._warp_max(either(lanes, place, i32(-1)))
        same = (status == READY) & ~lanes & (place == here)
        if same.any():
            running = (status == RUNNING) & ~lanes
            alone = to_lanes(lanes_by_warp(np.broadcast_to(running, lanes.shape)) == 1)
            if (same & (~united | alone)).any():
                self.caveats.add(JOIN_CAVEAT)

    @staticmethod
    def _warp_max(values: Array) -> Array:
        """The largest value of each warp, in all its lanes."""
        return np.repeat(values.reshape(values.shape[0], -1, 32).max(axis=2), 32, axis=1)

    def _turns(self, targets: Array, active: Array) -> Array:
        """In which order the groups of each warp go to their targets: 0 for the first.

        The group of the lowest lane goes first, unless it has more than half of the lanes that are left; so do the
        others after it (recording h200_flow, kernels indirect_*).
        """
        turn = np.zeros(active.shape, i32)
        left, number = active, 0
        while left.any():
            group = left & (targets == Lanes(self.chunk, left).first_active(targets))
            rest = left & ~group
            large = self._fewer(rest, group)
            other = rest & (targets == Lanes(self.chunk, rest).first_active(targets))
            group = either(large & self.chunk.warp_any(rest), other, group)
            turn = either(group, i32(number), turn)
            left, number = left & ~group, number + 1
        return turn

    def _fewer(self, lanes: Array, others: Array) -> Array:
        """Whether a warp has fewer of these lanes than of the others, in all its lanes."""
        one, other = (lanes_by_warp(self.chunk.wide(each)) for each in (lanes, others))
        return to_lanes(one < other)
