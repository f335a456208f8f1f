"""Control flow of diverged warps: who runs, who waits, where lanes meet again.

Model, found by comparing executed counts and traces of lanes with an H200's (recordings h200_control, h200_flow*,
h200_locks).  Of a warp's lanes one group runs at a time; the others wait for their turn in a stack:

- A branch that splits the group runs the side with fewer lanes (the side that falls through when they are equal) and
  puts the other aside.  An indirect branch or a return that splits it runs the group of the lowest lane first, unless
  it has more than half of the lanes; so do the rest.
- When the running group is gone, the group that was put aside last runs.  A group put aside joins the one before it
  if both had jumped and stand at the same address, unless the lanes that run meanwhile end.
- BSYNC makes lanes wait until all living members of the convergence barrier set by BSSY wait for it, at whatever
  address; the members go on, lanes that are none do not wait.  The barriers belong to the warp: in recursion the
  lanes of one depth replace those of another.
- Lanes that an exit or a BREAK sets free compete with those that run: the fewer go first.
- YIELD lets the group that was put aside last run before; no barrier waits for lanes that yield.

Different warps do not influence each other's counts; they go at the lowest address first, so that they execute
together again as soon as they can.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.errors import ExecutionError
from gpusim.machine.chunk import by_warp, lanes_by_warp, shrink_rows, to_lanes
from gpusim.machine.lanes import Lanes
from gpusim.machine.turns import (
    ASIDE,
    AT_BARRIER,
    AT_SYNC,
    AT_WARPSYNC,
    EXITED,
    HELD,
    NOWHERE,
    READY,
    RECURSION_CAVEAT,
    RUNNING,
    STEP,
)
from gpusim.machine.waiting import PATIENCE, Waiting
from gpusim.sass.numeric import either

Array = np.ndarray[Any, Any]
u32, i32 = np.uint32, np.int32


def same_lanes(first: Array, second: Array) -> bool:
    """Whether two masks of broadcastable shapes name the same lanes."""
    return bool((first == second).all())


class Flow(Waiting):
    """Who executes next in a chunk.  Addresses are bytes within the program."""

    # -- choosing ---------------------------------------------------------------------------------------------------
    def go(self, address: int) -> int | None:
        """The executing lanes continue at ``address``; returns where the next block starts."""
        if self.together:
            return address
        if address < self.next_other:
            self.turns += 1
            if self.turns < PATIENCE:
                return address
        self._keep(address)
        return self.pick()

    def pick(self) -> int | None:
        """Choose the lanes to execute next, at the lowest address; None when all threads have ended."""
        chunk = self.chunk
        running = self.status == RUNNING
        ready = self.status == READY
        if ready.any():
            running = self._promote(running, ready)
        if not running.any():
            if not (self.status != EXITED).any():
                return None
            running = self._unstick()
            if not running.any():
                running = self._wake()
        self.turns += 1
        if self.turns >= PATIENCE:
            running = self._lose_patience(running)
        places = either(running, self.place, NOWHERE)
        address = int(places.min())
        chosen = places == address
        self.next_other = int(either(chosen, NOWHERE, places).min())
        chosen = shrink_rows(chosen)
        alive = chunk.alive_mask()
        if same_lanes(chosen, alive):
            self.together = True
            chunk.set_active(chunk.alive)
        else:
            chunk.set_active(chosen)
        return address

    def restrict_to_first_warp(self, address: int) -> None:
        """Let only the first executing warp of each block go on; the others stay at ``address``."""
        chunk = self.chunk
        active = chunk.active_mask()
        warps = active.reshape(active.shape[0], -1, 32).any(axis=2)
        first = warps & (np.cumsum(warps, axis=1) == 1)
        chosen = active & np.repeat(first, 32, axis=1)
        if np.array_equal(chosen, active):
            return
        self._separate(address)
        self._keep(address)
        self.next_other = min(self.next_other, address)
        chunk.set_active(chosen)

    def _promote(self, running: Array, ready: Array) -> Array:
        """In warps with nobody running, the ready group that was put aside last runs."""
        chunk = self.chunk
        waiting = ready & ~chunk.warp_any(running | (self.status == ASIDE))
        if not waiting.any():
            return running
        stamps = either(waiting, self.order, i32(-1))
        chosen = waiting & (stamps == self._warp_max(stamps))
        self.yielded = self.yielded & ~chosen
        self.status = either(chosen, RUNNING, self.status)
        return self.status == RUNNING

    def _unstick(self) -> Array:
        """Warps whose lanes all wait at a BSYNC go on: lanes of different depths of recursion replaced each other's
        barriers.  The hardware goes on, too; with which lanes first is not known.
        """
        waiting = self.status == AT_SYNC
        stuck = waiting & ~self.chunk.warp_any((self.status != EXITED) & ~waiting)
        if stuck.any():
            self.caveats.add(RECURSION_CAVEAT)
            chosen = stuck & (self.place == self._warp_max(either(stuck, self.place, i32(-1))))
            self.place = either(chosen, self.place + i32(STEP), self.place)
            self.status = either(chosen, RUNNING, self.status)
        return self.status == RUNNING

    def _deadlock(self) -> ExecutionError:
        chunk = self.chunk
        shape = (chunk.blocks, chunk.threads)
        stuck = np.broadcast_to(self.status != EXITED, shape)
        block, thread = (int(x) for x in np.argwhere(stuck)[0])
        kinds = np.broadcast_to(self.status, shape)
        at_barrier = int(np.count_nonzero(kinds == AT_BARRIER))
        held = int(np.count_nonzero(kinds == HELD))
        looking = f", {held} at an asynchronous barrier (mbarrier)" if held else ""
        meeting = int(np.count_nonzero((kinds == AT_SYNC) | (kinds == AT_WARPSYNC)))
        address = int(np.broadcast_to(self.place, shape)[block, thread])
        which = self.named.describe(block, self.status == AT_BARRIER, self.status == EXITED)
        barriers = f"; in that block wait {which}" if which else ""
        return ExecutionError(
            f"deadlock: no thread can go on; {at_barrier} wait at a block barrier{looking} and {meeting} for lanes of "
            f"their warp (first: thread {thread} of block {chunk.numbers[block]}, at {address:#x}{barriers}); is "
            f"a barrier inside a condition that only some threads meet?"
        )

    # -- branches ---------------------------------------------------------------------------------------------------
    def branch(
        self, taken: Array, address: int, target: int, following: int, retried: bool = False
    ) -> tuple[int | None, int, int, int]:
        """Lanes in ``taken`` (a subset of the executing ones) go to ``target``, the others to ``following``.

        ``retried``: it is the branch of a loop around a compare-and-swap.

        Returns (next address, warps all taken, warps all fallen through, warps that split).
        """
        chunk = self.chunk
        active = chunk.active_mask()
        warps = chunk.warp_count  # of those that execute now, not of those that go() chooses
        if not taken.any():
            return self.go(following), 0, warps, 0
        fallen = active & ~taken
        if not fallen.any():
            return self.go(target), warps, 0, 0
        taken = shrink_rows(chunk.wide(taken))
        fallen = active & ~taken
        self._separate(address)
        taken_warps, fallen_warps = by_warp(taken), by_warp(fallen)
        mixed = taken_warps & fallen_warps
        divergent = chunk.total(mixed)
        all_taken = chunk.total(taken_warps) - divergent
        all_fallen = chunk.total(fallen_warps) - divergent
        self.place = either(active, either(taken, i32(target), i32(following)), self.place)
        if divergent:
            fewer = lanes_by_warp(taken) < lanes_by_warp(fallen)
            waiting = (to_lanes(mixed & fewer) & fallen) | (to_lanes(mixed & ~fewer) & taken)
            self._put_aside(waiting, taken, retried)
        return self.pick(), all_taken, all_fallen, divergent

    def scatter(self, targets: Array, address: int) -> tuple[int | None, int, int]:
        """Each executing lane goes to its own address (indirect branch, return).

        Returns (next address, warps that split, groups that they split into besides the first).
        """
        chunk = self.chunk
        active = chunk.active_mask()
        rows = max(targets.shape[0], active.shape[0])
        wide = np.broadcast_to(targets, (rows, chunk.threads)).astype(i32)
        active = np.broadcast_to(active, wide.shape)
        distinct = np.unique(wide[active])
        if len(distinct) == 1:
            return self.go(int(distinct[0])), 0, 0
        self._separate(address)
        turn = self._turns(wide, active)
        later = active & (turn > 0)
        self.place = either(active, wide, self.place)
        for number in range(int(turn.max()), 0, -1):
            self._put_aside(later & (turn == number), later)
        split = chunk.warp_total(later)
        last = self._warp_max(turn).reshape(turn.shape[0], -1, 32)[:, :, 0]
        return self.pick(), split, int(last.sum()) * (chunk.blocks // last.shape[0])

    def exit(self, leaving: Array, address: int, following: int) -> int | None:
        """Lanes in ``leaving`` end; the other executing ones go on at ``following``."""
        chunk = self.chunk
        if not leaving.any():
            return self.go(following)
        self.stalls = 0
        alive = shrink_rows(chunk.alive_mask() & ~chunk.wide(leaving))
        if self.together:
            if not alive.any():
                return None
            chunk.set_alive(alive)
            chunk.set_active(alive)
            return following
        self._keep(following)
        self._part(chunk.wide(leaving))
        self.status = either(leaving, EXITED, self.status)
        chunk.set_alive(alive)
        if not alive.any():
            return None
        self._release_syncs()
        self._release_barrier()
        return self.pick()

    # -- convergence barriers ---------------------------------------------------------------------------------------
    def push(self, barrier: int, mask: Array | None) -> None:
        """BSSY: the executing lanes (of each executing warp) become the members."""
        chunk = self.chunk
        active = chunk.active_mask() if mask is None else chunk.wide(mask)
        old = self.barriers[barrier]
        if old is None or self.together:
            self.barriers[barrier] = active
            return
        self.barriers[barrier] = shrink_rows(either(chunk.warp_any(active), active, old))

    def _members(self, barrier: int) -> Array:
        members = self.barriers[barrier]
        if members is None:
            raise ExecutionError(f"convergence barrier B{barrier} is used before it was set")
        return members & self.chunk.alive_mask()

    def sync(self, barrier: int, waiting: Array | None, address: int) -> int | None:
        """BSYNC: wait for all living members of the barrier (``waiting``: guarded lanes, None all executing)."""
        following = address + STEP
        if self.together and waiting is None:
            return following
        chunk = self.chunk
        active = chunk.active_mask()
        arriving = active if waiting is None else chunk.wide(waiting)
        members = self._members(barrier) & ~self.yielded
        missing = chunk.warp_any(arriving) & members & ~arriving
        if not missing.any():
            self._forget(barrier, arriving & chunk.warp_any(self.yielded & self._members(barrier)))
            return self.go(following)
        self._separate(address)
        self.sync_points[address] = barrier
        staying = arriving & members
        waiting = staying | self._waiting_for(barrier)
        complete = ~chunk.warp_any(members & ~waiting) & chunk.warp_any(active)
        # members that wait at other places of the same barrier (lanes in different depths of recursion)
        others = members & complete & ~staying & (self.place != address)
        here = members & complete & ~others
        self._forget(barrier, (here | others) & chunk.warp_any(self.yielded & self._members(barrier)))
        # those that complete the barrier go on with its members, and so do lanes that are none
        self.place = either(active | here, i32(following), self.place)
        self.status = either(here, RUNNING, self.status)
        staying = staying & ~complete
        self.place = either(staying, i32(address), self.place)
        self.status = either(staying, AT_SYNC, self.status)
        while others.any():
            self.caveats.add(RECURSION_CAVEAT)
            group = others & (self.place == self._warp_max(either(others, self.place, i32(-1))))
            self.place = either(group, self.place + i32(STEP), self.place)
            self._put_aside(group, group)
            others = others & ~group
        return self.pick()

    def _waiting_for(self, barrier: int) -> Array:
        """Lanes that wait at a BSYNC of the barrier."""
        places = [a for a, b in self.sync_points.items() if b == barrier]
        return (self.status == AT_SYNC) & np.isin(self.place, places)

    def _forget(self, barrier: int, lanes: Array) -> None:
        """Lanes that went on without members that yield are no longer waited for."""
        members = self.barriers[barrier]
        if members is not None and lanes.any():
            self.barriers[barrier] = shrink_rows(members & ~lanes)

    def _complete(self, barrier: int) -> Array:
        """Living members of the barrier in warps where all of them wait for it."""
        members = self._members(barrier) & ~self.yielded
        return members & ~self.chunk.warp_any(members & ~self._waiting_for(barrier))

    def leave(self, barrier: int, leaving: Array | None, address: int) -> int | None:
        """BREAK: the executing lanes are no longer members."""
        chunk = self.chunk
        active = chunk.active_mask() if leaving is None else chunk.wide(leaving)
        members = self.barriers[barrier]
        if members is not None:
            self.barriers[barrier] = shrink_rows(members & ~active)
        if self.together:
            return address + STEP
        self._keep(address + STEP)
        self._release_syncs()
        return self.pick()

    def give_way(self, address: int) -> int | None:
        """YIELD: where lanes of their warp can go on, the executing lanes wait, and no convergence barrier for them.

        So lanes at a BSYNC go on if all others of the barrier yield (recording h200_locks).
        """
        following = address + STEP
        if self.together:
            return following
        chunk = self.chunk
        active = chunk.active_mask()
        self._keep(following)
        self.yielded = self.yielded | active
        free = np.zeros((1, 1), bool)
        for barrier in set(self.sync_points.values()):
            free = free | self._complete(barrier)
        ready = (self.status == READY) & chunk.warp_any(active)
        lanes = active & chunk.warp_any(ready | free)
        self.yielded = self.yielded & ~(active & ~lanes)
        if not lanes.any():
            return self.go(following)
        next_ones = ready & (self.order == self._warp_max(either(ready, self.order, i32(-1)))) & ~chunk.warp_any(free)
        self._put_aside(lanes, np.zeros((1, 1), bool))
        self.yielded = self.yielded & ~next_ones
        self.status = either(next_ones, RUNNING, self.status)
        self._release_syncs()
        return self.pick()

    def barrier_word(self, barrier: int) -> Array:
        """BMOV from a barrier: the members as a mask word (the same in all lanes of a warp)."""
        members = self.barriers[barrier]
        if members is None:
            return np.zeros((1, 1), u32)
        return self.chunk.lanes(None).ballot(self._members(barrier))[0]

    def copy_barrier(self, barrier: int, origin: int, mask: Array | None) -> None:
        """BMOV between barriers: the executing warps' members are copied."""
        chunk = self.chunk
        active = chunk.active_mask() if mask is None else chunk.wide(mask)
        members = self._members(origin)
        old = self.barriers[barrier]
        before = np.zeros((1, chunk.threads), bool) if old is None else old
        self.barriers[barrier] = shrink_rows(either(chunk.warp_any(active), members, before))

    def set_barrier(self, barrier: int, word: Array, mask: Array | None) -> None:
        """BMOV to a barrier: the members are the bits of the first executing lane's word."""
        chunk = self.chunk
        active = chunk.active_mask() if mask is None else chunk.wide(mask)
        bits = Lanes(chunk, active).first_active(word)
        if ((bits != word) & active).any():
            self.caveats.add(RECURSION_CAVEAT)
        members = (bits >> chunk.lane_ids.astype(u32) & u32(1)).astype(bool)
        old = self.barriers[barrier]
        before = np.zeros((1, chunk.threads), bool) if old is None else old
        self.barriers[barrier] = shrink_rows(either(chunk.warp_any(active), members, before))

    def _release_syncs(self) -> None:
        """Let go every group whose barrier has all its living members waiting."""
        waiting = self.status == AT_SYNC
        if waiting.any():
            free = {barrier: self._complete(barrier) for barrier in set(self.sync_points.values())}
            for address, barrier in list(self.sync_points.items()):
                here = waiting & (self.place == address)
                if not here.any():
                    del self.sync_points[address]
                    continue
                self._resume(here & free[barrier], address + STEP)
            for barrier, lanes in free.items():
                self._forget(barrier, lanes & self.chunk.warp_any(self.yielded & self._members(barrier)))
        self._release_collectives()
        waiting = self.status == AT_WARPSYNC
        if waiting.any():
            for address, mask in list(self.warpsync_masks.items()):
                here = waiting & (self.place == address)
                if not here.any():
                    continue
                wanted = self.chunk.warp_any(here) & mask & self.chunk.alive_mask()
                self._resume(here & ~self.chunk.warp_any(wanted & ~here), address + STEP)

    def _resume(self, lanes: Array, address: int) -> None:
        """Lanes go on at ``address``: of them and the lanes of their warp that run, the fewer go first."""
        if not lanes.any():
            return
        self.place = either(lanes, i32(address), self.place)
        running = (self.status == RUNNING) & self.chunk.warp_any(lanes)
        fewer = self._fewer(lanes, running)
        aside = either(fewer, running, lanes & self.chunk.warp_any(running))
        self.status = either(lanes, RUNNING, self.status)
        if aside.any():
            self._put_aside(aside, np.zeros((1, 1), bool))

    def warp_sync(
        self, word: Array | None, waiting: Array | None, address: int, target: int | None = None
    ) -> int | None:
        """WARPSYNC: wait until the living lanes of the mask (None: all of the warp) are here.

        ``target``: of a collective section, where the lanes that come from here go after it.
        """
        following = address + STEP
        chunk = self.chunk
        if target is not None:
            self.targets = either(chunk.active_mask(), i32(target), self.targets)
        if self.together:
            return following
        running = chunk.active_mask()
        active = running if waiting is None else running & waiting
        passing = running & ~active
        if (chunk.warp_any(active) & passing).any():
            raise ExecutionError(f"a partly predicated warp synchronisation at {address:#x} is not supported")
        wanted = np.ones((1, chunk.threads), bool)
        if word is not None:
            bits = Lanes(chunk, active).first_active(word)
            wanted = (bits >> chunk.lane_ids.astype(u32) & u32(1)).astype(bool)
        wanted = wanted & chunk.alive_mask()
        missing = chunk.warp_any(active) & wanted & ~active
        if not missing.any():
            return self.go(following)
        if passing.any():
            raise ExecutionError(f"a warp synchronisation at {address:#x} that some warps skip is not supported here")
        masks = self.warpsync_masks if target is None else self.collectives
        old = masks.pop(address, None)
        before = np.zeros((1, chunk.threads), bool) if old is None else old
        masks[address] = either(chunk.warp_any(active), wanted, before)
        self._keep(address)
        self.status = either(active, AT_WARPSYNC, self.status)
        self._release_syncs()
        return self.pick()

    def _release_collectives(self) -> None:
        """Lanes of a warp that wait for one section at any of its places start it together, where the last came to."""
        chunk = self.chunk
        for address in reversed(self.collectives):
            waiting = self.status == AT_WARPSYNC
            sites = np.isin(self.place, list(self.collectives)) & waiting
            here = sites & (self.place == address)
            if not here.any():
                continue
            wanted = self.collectives[address] & chunk.alive_mask() & chunk.warp_any(here)
            complete = ~chunk.warp_any(wanted & ~sites)
            self._resume(sites & wanted & complete, address + STEP)

    def end_collective(self, address: int) -> int | None:
        """ENDCOLLECTIVE: each lane goes to its own target; returns where the next block starts."""
        return self.scatter(self.targets, address)[0]

    def defer(self, lanes: Array, address: int) -> None:
        """Some of the executing lanes stay at ``address`` until the others of their warp have gone on and wait."""
        chunk = self.chunk
        active = chunk.active_mask()
        self._separate(address)
        self.deferred = self.deferred | lanes
        self._keep(address)
        self.splits += 1
        self.status = either(lanes, READY, self.status)
        self.order = either(lanes, i32(self.splits), self.order)
        chunk.set_active(shrink_rows(active & ~lanes))
