"""Control flow of diverged warps: who runs, who waits, where lanes meet again.

Model, found by comparing executed counts with an H200's: of a warp's lanes one group runs at a time.  A branch that
splits the group runs the side with fewer lanes first (the side that falls through when they are equal) and leaves the
other ready; BSYNC makes lanes wait until all living members of the convergence barrier set by BSSY are there; when a
warp's running group is gone, the group that split off last runs, joined by all ready lanes at the same address.
Different warps do not influence each other's counts; they go at the lowest address first, so that they execute
together again as soon as they can.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.errors import ExecutionError
from gpusim.machine.barriers import BlockBarriers
from gpusim.machine.chunk import Chunk, shrink_rows
from gpusim.machine.lanes import Lanes
from gpusim.machine.waiting import (
    ASIDE,
    AT_BARRIER,
    AT_SYNC,
    AT_WARPSYNC,
    EXITED,
    HELD,
    NOWHERE,
    PATIENCE,
    READY,
    RUNNING,
    STEP,
    Waiting,
)

Array = np.ndarray[Any, Any]
u32, i32 = np.uint32, np.int32

RECURSION_CAVEAT = (
    "executed counts are not certain here: lanes of a warp return from different depths of recursion together, and "
    "where the hardware brings them together again differs (recorded: up to 70 % fewer instructions)"
)
INDIRECT_CAVEAT = (
    "counts are not certain here: an indirect branch (a switch table) splits warps, and no recording confirms in which "
    "order its targets run and how it is counted"
)
BREAK_CAVEAT = (
    "counts of BSYNC may be off by a few: lanes leave a divergent region early (BREAK), and which of them wait "
    "together was seen to differ (recorded: 5 in 1,247 instructions)"
)


def same_lanes(first: Array, second: Array) -> bool:
    """Whether two masks of broadcastable shapes name the same lanes."""
    return bool((first == second).all())


class Flow(Waiting):
    """Who executes next in a chunk.  Addresses are bytes within the program."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.named = BlockBarriers(chunk)
        self.caveats: set[str] = set()  # sentences on counts that the model does not decide for certain

    def start(self) -> None:
        """All living lanes at address 0."""
        self.together = True  # every living lane executes at the same address
        self.barriers: list[Array | None] = [None] * 17  # members by convergence barrier; None: never set
        self.status: Array = np.full((1, 1), RUNNING)
        self.place: Array = np.zeros((1, 1), i32)
        self.order: Array = np.zeros((1, 1), i32)  # which ready group split off last
        self.splits = 0
        self.next_other = int(NOWHERE)  # lowest address at which other running lanes stand
        self.sync_points: dict[int, int] = {}
        self.warpsync_masks: dict[int, Array] = {}
        self.collectives: dict[int, Array] = {}  # masks of lanes that wait for a collective section, by address
        self.targets: Array = np.zeros((1, 1), i32)  # where lanes go after it
        self.turns = 0  # blocks that lanes executed while others had to wait for them
        self.stalls = 0  # times that these were PATIENCE blocks since a thread last ended or came to a block barrier
        self.wakes, self.news = 0, 0  # times in a row that held lanes had to look again though there were no news
        self.forced: Array = np.zeros((1, 1), bool)  # lanes that do so now
        self.deferred: Array = np.zeros((1, 1), bool)  # lanes that wait for their turn at a WARPSYNC
        self.named.start()

    # -- choosing ---------------------------------------------------------------------------------------------------
    def _separate(self, address: int) -> None:
        """Leave the state in which everyone is at one address: give each lane its own."""
        if not self.together:
            return
        alive = self.chunk.alive_mask()
        self.status = np.where(alive, RUNNING, EXITED)
        self.place = np.full((1, self.chunk.threads), address, i32)
        self.order = np.zeros((1, self.chunk.threads), i32)
        self.together = False

    def _keep(self, address: int) -> None:
        """Note where the executing lanes stand."""
        self.place = np.where(self.chunk.active_mask(), i32(address), self.place)

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
            running = self._wake()
        self.turns += 1
        if self.turns >= PATIENCE:
            running = self._lose_patience(running)
        places = np.where(running, self.place, NOWHERE)
        address = int(places.min())
        chosen = places == address
        others = running & ~chosen
        self.next_other = int(np.where(others, self.place, NOWHERE).min()) if others.any() else int(NOWHERE)
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
        """In warps with nobody running, the ready group that split off last runs."""
        chunk = self.chunk
        waiting = ready & ~chunk.warp_any(running | (self.status == ASIDE))
        if not waiting.any():
            return running
        stamps = np.where(waiting, self.order, i32(-1))
        rows = stamps.shape[0]
        latest = np.repeat(stamps.reshape(rows, -1, 32).max(axis=2), 32, axis=1)
        chosen = waiting & (stamps == latest)
        # ready lanes that stand at the same address go with them
        place = np.where(chosen, self.place, i32(-1))
        shared = np.repeat(place.reshape(place.shape[0], -1, 32).max(axis=2), 32, axis=1)
        chosen = waiting & (self.place == shared)
        self.status = np.where(chosen, RUNNING, self.status)
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
            f"their warp (first: thread {thread} of block {chunk.first_block + block}, at {address:#x}{barriers}); is "
            f"a barrier inside a condition that only some threads meet?"
        )

    # -- branches ---------------------------------------------------------------------------------------------------
    def branch(self, taken: Array, address: int, target: int, following: int) -> tuple[int | None, int, int, int]:
        """Lanes in ``taken`` (a subset of the executing ones) go to ``target``, the others to ``following``.

        Returns (next address, warps all taken, warps all fallen through, warps that split).
        """
        chunk = self.chunk
        active = chunk.active_mask()
        warps = chunk.warp_count  # before others are chosen
        if not taken.any():
            return self.go(following), 0, warps, 0
        fallen = active & ~taken
        if not fallen.any():
            return self.go(target), warps, 0, 0
        taken = shrink_rows(chunk.wide(taken))
        fallen = active & ~taken
        self._separate(address)
        taken_warps, fallen_warps = chunk.warp_any(taken), chunk.warp_any(fallen)
        mixed = taken_warps & fallen_warps
        divergent = chunk.warp_total(mixed)
        all_taken = chunk.warp_total(taken_warps) - divergent
        all_fallen = chunk.warp_total(fallen_warps) - divergent
        if divergent:
            self.splits += 1
            waiting = np.where(self._fewer_taken(taken, fallen), fallen, taken)
            self.status = np.where(waiting & mixed, READY, self.status)
            self.order = np.where(mixed & active, i32(self.splits), self.order)
        self.place = np.where(taken, i32(target), np.where(fallen, i32(following), self.place))
        return self.pick(), all_taken, all_fallen, divergent

    @staticmethod
    def _fewer_taken(taken: Array, fallen: Array) -> Array:
        """Lanes of warps in which fewer lanes take the branch than fall through: these go first there."""
        rows = max(taken.shape[0], fallen.shape[0])
        shape = (rows, taken.shape[1] // 32, 32)
        counts = [
            np.count_nonzero(np.broadcast_to(lanes, (rows, lanes.shape[1])).reshape(shape), axis=2)
            for lanes in (taken, fallen)
        ]
        return np.repeat(counts[0] < counts[1], 32, axis=1)

    def scatter(self, targets: Array, address: int) -> tuple[int | None, int, int]:
        """Each executing lane goes to its own address (indirect branch, call, return).

        Returns (next address, warps that split, how often: into k groups k - 1 times; recording h200_calls).
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
        lowest = np.where(active, wide, NOWHERE).reshape(rows, -1, 32).min(axis=2)
        lowest = np.repeat(lowest, 32, axis=1)
        later = active & (wide != lowest)
        self.splits += 1
        self.status = np.where(later, READY, self.status)
        # of the waiting groups the lowest address goes first
        rank = np.searchsorted(distinct, wide).astype(i32)
        self.order = np.where(active, i32(self.splits + len(distinct)) - rank, self.order)
        self.splits += len(distinct)
        self.place = np.where(active, wide, self.place)
        split = chunk.warp_total(chunk.warp_any(later))
        ordered = np.sort(np.where(active, wide, lowest).reshape(rows, -1, 32), axis=2)
        times = int((ordered[:, :, 1:] != ordered[:, :, :-1]).sum()) * (chunk.blocks // rows)
        return self.pick(), split, times

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
        self.status = np.where(leaving, EXITED, self.status)
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
        self.barriers[barrier] = shrink_rows(np.where(chunk.warp_any(active), active, old))

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
        members = self._members(barrier)
        missing = chunk.warp_any(arriving) & members & ~arriving
        if not missing.any():
            return self.go(following)
        self._separate(address)
        staying = arriving & members
        self.place = np.where(active, i32(following), self.place)
        self.place = np.where(staying, i32(address), self.place)
        self.status = np.where(staying, AT_SYNC, self.status)
        self.sync_points[address] = barrier
        self._release_syncs()
        return self.pick()

    def leave(self, barrier: int, leaving: Array | None, address: int) -> int | None:
        """BREAK: the executing lanes are no longer members."""
        chunk = self.chunk
        active = chunk.active_mask() if leaving is None else chunk.wide(leaving)
        members = self.barriers[barrier]
        if members is not None:
            self.barriers[barrier] = shrink_rows(members & ~active)
        if self.together:
            return address + STEP
        self.caveats.add(BREAK_CAVEAT)
        self._keep(address + STEP)
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
        self.barriers[barrier] = shrink_rows(np.where(chunk.warp_any(active), members, before))

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
        self.barriers[barrier] = shrink_rows(np.where(chunk.warp_any(active), members, before))

    def _release_syncs(self) -> None:
        """Let go every group whose barrier has all its living members waiting."""
        waiting = self.status == AT_SYNC
        if waiting.any():
            for address, barrier in list(self.sync_points.items()):
                here = waiting & (self.place == address)
                if not here.any():
                    del self.sync_points[address]
                    continue
                missing = self._members(barrier) & ~here
                self._resume(here & ~self.chunk.warp_any(missing), address + STEP)
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
        """Lanes go on: at once where nobody of their warp runs, else when their turn comes."""
        if not lanes.any():
            return
        running = self.chunk.warp_any(self.status == RUNNING)
        self.splits += 1
        self.order = np.where(lanes, i32(self.splits), self.order)
        self.status = np.where(lanes, np.where(running, READY, RUNNING), self.status)
        self.place = np.where(lanes, i32(address), self.place)

    def warp_sync(
        self, word: Array | None, waiting: Array | None, address: int, target: int | None = None
    ) -> int | None:
        """WARPSYNC: wait until the living lanes of the mask (None: all of the warp) are here.

        ``target``: of a collective section, where the lanes that come from here go after it.
        """
        following = address + STEP
        chunk = self.chunk
        if target is not None:
            self.targets = np.where(chunk.active_mask(), i32(target), self.targets)
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
        masks[address] = np.where(chunk.warp_any(active), wanted, before)
        self._keep(address)
        self.status = np.where(active, AT_WARPSYNC, self.status)
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
        self.status = np.where(lanes, READY, self.status)
        self.order = np.where(lanes, i32(self.splits), self.order)
        chunk.set_active(shrink_rows(active & ~lanes))
