"""Operations that decide which instruction comes next: branches, calls, barriers, exits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.errors import ExecutionError, UnsupportedError
from gpusim.machine.barriers import COUNT_MASK, NUMBERS, PACKED_COUNT
from gpusim.machine.chunk import Chunk
from gpusim.machine.events import Branch
from gpusim.machine.flow import STEP, Flow
from gpusim.machine.runtime import Runtime, thread_name
from gpusim.sass.form import ControlOp
from gpusim.sass.operands import Predicate
from gpusim.sass.program import BasicBlock, Program

Array = np.ndarray[Any, Any]
_BRANCHES = ("branch", "branch_any", "branch_divergent", "branch_convergent", "call")


class Control:
    """Carries out control operations; what executes blocks (:class:`~gpusim.machine.engine.Engine`) extends it.

    ``tests`` and ``reads``: by block, functions that evaluate its control operation's guard and sources; ``serial``:
    blocks whose warps go one after the other.
    """

    program: Program
    runtime: Runtime
    chunk: Chunk
    flow: Flow
    memory: Any
    functions: dict[int, tuple[BasicBlock, Callable[..., None], Callable[..., None]]]
    tests: dict[int, Callable[[Chunk], Array]]
    reads: dict[int, Callable[[Chunk], tuple[Array, ...]]]
    serial: set[int]
    block_warps: list[int]
    block_lanes: list[int]

    def _describe(self, index: int) -> str:
        raise NotImplementedError

    def _branched(self, event: Branch) -> None:
        raise NotImplementedError

    def _control(self, block: BasicBlock, op: ControlOp) -> int | None:
        """Carry out the operation that ends a block; returns the next block's address."""
        chunk, flow, index = self.chunk, self.flow, block.last
        instruction = self.program.instructions[index]
        address, following = instruction.address, instruction.address + STEP
        test = self.tests.get(block.number)
        chosen: Array | None = None  # the lanes that take part; None: all executing ones
        if test is not None:
            value = test(chunk)
            exact = value if chunk.m is None else value & chunk.m
            if instruction.guard is not None:
                self._count_guard(index, instruction.guard)
            if chunk.count(exact) == chunk.lane_count:
                chosen = None
            elif not exact.any() and op.kind not in ("branch_divergent", "branch_convergent"):
                self._branch_event(index, op, 0, chunk.warp_count, 0)
                return flow.go(following)
            else:
                chosen = exact
        kind = op.kind
        if kind in _BRANCHES:
            return self._branch(block, op, chosen, address, following)
        if kind == "exit":
            leaving = chunk.active_mask() if chosen is None else chunk.wide(chosen)
            return flow.exit(leaving, address, following)
        if kind == "sync":
            return flow.sync(op.barrier, chosen, address)
        if kind == "barrier":
            return self._barrier(block, op, chosen, address)
        if kind == "yield":
            return flow.give_way(address) if chosen is None else flow.go(following)
        if kind == "sync_break":
            return flow.leave(op.barrier, chosen, address)
        if kind == "warp_sync":
            return self._warp_sync(block, op, chosen, address)
        if kind == "collective_end":
            return flow.end_collective(address)
        if kind == "call_register":
            return self._call_register(block, op, chosen, address, following)
        if kind in ("indirect", "return"):
            return self._indirect(block, op, chosen, address, following)
        if kind == "trap":
            lanes = np.broadcast_to(chunk.active_mask() if chosen is None else chosen, (chunk.blocks, chunk.threads))
            at, thread = (int(x) for x in np.argwhere(lanes)[0])
            who = thread_name(chunk, at, thread)
            raise ExecutionError(f"the kernel stopped itself with a trap, first {who}, {self._describe(index)}")
        raise instruction.unsupported(f"control operation {kind}")

    def _barrier(self, block: BasicBlock, op: ControlOp, chosen: Array | None, address: int) -> int | None:
        """BAR: number and thread count are literals, or come from registers, from one together if ``packed``."""
        values = list(self.reads[block.number](self.chunk)) if op.sources else []
        number = np.full((1, 1), op.barrier, np.int32)
        count = None if op.detail["count"] is None else np.full((1, 1), op.detail["count"], np.int32)
        if op.detail["packed"]:
            word = values.pop(0).view(np.int32)
            number, count = word & np.int32(NUMBERS - 1), word >> PACKED_COUNT & COUNT_MASK
        else:
            if op.detail["number_read"]:
                number = values.pop(0).view(np.int32)
            if op.detail["count_read"]:
                count = values.pop(0).view(np.int32)
        where = self._describe(block.last)
        if op.detail["kind"] == "ARV":
            assert count is not None
            return self.flow.arrive(chosen, address, number, count, where)
        if op.detail["kind"] == "RED":
            lanes = self.chunk.active_mask() if chosen is None else self.chunk.wide(chosen)
            self.flow.named.contribute(number, op.detail["reduction"], values.pop(), lanes)
        return self.flow.barrier(chosen, address, number, count, where)

    def _warp_sync(self, block: BasicBlock, op: ControlOp, chosen: Array | None, address: int) -> int | None:
        """Lanes whose mask differs from their warp's first one wait for their turn; they were issued all the same."""
        chunk, flow = self.chunk, self.flow
        read = self.reads.get(block.number)
        word = read(chunk)[0] if read else None
        how = op.detail["kind"]
        if word is not None and how:
            active = chunk.active_mask()
            if how == "exclusive":
                self._exclusive_event(block.last, word, active & ~flow.deferred)
            flow.deferred = flow.deferred & ~active
            differs = (word != chunk.lanes(chunk.m).first_active(word)) & active
            if differs.any():
                # counted when they are let in, with the warp's other lanes here
                self.block_warps[block.number] -= chunk.warp_total(chunk.warp_any(differs))
                self.block_lanes[block.number] -= chunk.count(differs)
                flow.defer(differs, address)
        return flow.warp_sync(word, chosen, address, op.target if how == "collective" else None)

    def _exclusive_event(self, index: int, word: Array, lanes: Array) -> None:
        """WARPSYNC.EXCLUSIVE counts as a branch that splits a warp into its groups (recording h200_groups)."""
        chunk = self.chunk
        rows = max(word.shape[0], lanes.shape[0])
        shape = (rows, chunk.warps, 32)
        words = np.where(lanes, word.astype(np.int64), -1)
        ordered = np.sort(np.broadcast_to(words, (rows, chunk.threads)).reshape(shape), axis=2)
        groups = (ordered[:, :, 1:] != ordered[:, :, :-1]).sum(axis=2) + (ordered[:, :, 0] >= 0)
        groups = groups[groups > 0]
        repeat = chunk.blocks // rows
        uniform = int((groups == 1).sum()) * repeat
        divergent = int((groups[groups > 1] - 1).sum()) * repeat
        if groups.size:
            event = Branch(index, "branch", int(groups.size) * repeat, uniform, 0, divergent)
            self._branched(event)

    def _count_guard(self, index: int, guard: Predicate) -> None:
        """Predicated-on lanes of a control instruction: its guard alone decides."""
        chunk = self.chunk
        value = (chunk.UP if guard.file == "UP" else chunk.P)[guard.index]
        if guard.negated:
            value = ~value
        chunk.guarded(index, value if chunk.m is None else value & chunk.m)

    def _branch(
        self, block: BasicBlock, op: ControlOp, chosen: Array | None, address: int, following: int
    ) -> int | None:
        chunk, flow = self.chunk, self.flow
        target = op.target
        assert target is not None
        if op.kind in ("branch_divergent", "branch_convergent"):
            chosen = self._by_convergence(block, chosen, op.kind == "branch_divergent")
            if not chosen.any():
                self._branch_event(block.last, op, 0, chunk.warp_count, 0)
                return flow.go(following)
        if op.kind == "branch_any" and chosen is not None:
            chosen = chunk.active_mask() & chunk.warp_any(chunk.wide(chosen))
        if chosen is None:
            self._branch_event(block.last, op, chunk.warp_count, 0, 0)
            return flow.go(target)
        result, taken, fallen, divergent = flow.branch(chosen, address, target, following, block.number in self.serial)
        self._branch_event(block.last, op, taken, fallen, divergent)
        return result

    def _by_convergence(self, block: BasicBlock, chosen: Array | None, diverged: bool) -> Array:
        """BRA.DIV: the lanes of warps in which a living lane of the mask does not execute, or is guarded off.

        BRA.CONV: those of the other warps.  ``chosen``: lanes whose guard holds, None for all executing ones.
        """
        chunk = self.chunk
        active = chunk.active_mask()
        wanted = chunk.alive_mask()
        read = self.reads.get(block.number)
        if read is not None:
            word = read(chunk)[0]
            wanted = wanted & (word >> chunk.lane_ids.astype(np.uint32) & np.uint32(1)).astype(bool)
        covered = active if chosen is None else chunk.wide(chosen)
        missing = chunk.warp_any(wanted & ~covered)
        return active & (missing if diverged else ~missing)

    def _indirect(
        self, block: BasicBlock, op: ControlOp, chosen: Array | None, address: int, following: int
    ) -> int | None:
        chunk = self.chunk
        value = self.reads[block.number](chunk)[0]
        offset = op.target or 0
        if op.kind == "return":
            targets = value.astype(np.int64) + offset
        else:
            targets = value.astype(np.int64) + offset + following
        return self._scattered(block, op, targets, chosen, address, following)

    def _call_register(
        self, block: BasicBlock, op: ControlOp, chosen: Array | None, address: int, following: int
    ) -> int | None:
        """A call of the function whose address a register pair holds: one of the kernel's, or one of the runtime's."""
        chunk = self.chunk
        targets = self.reads[block.number](chunk)[0]
        lanes = chunk.active_mask() if chosen is None else chunk.wide(chosen)
        shape = np.broadcast_shapes(targets.shape, lanes.shape)
        called = np.unique(np.broadcast_to(targets, shape)[np.broadcast_to(lanes, shape)])
        externals = [self.runtime.externals.get(int(target)) for target in called]
        if len(externals) == 1 and externals[0] is not None:
            self.runtime.call(externals[0], chunk, self.memory.device, lanes, lambda: self._describe(block.last))
            self._branch_event(block.last, op, chunk.warp_count, 0, 0)
            return self.flow.go(following)
        base = self.runtime.code_base if op.detail["absolute"] else -(op.target or 0)
        places = targets.astype(np.int64) - base
        unknown = ~np.isin(places, list(self.functions)) & lanes
        if unknown.any():
            at, thread = (int(x) for x in np.argwhere(np.broadcast_to(unknown, (chunk.blocks, chunk.threads)))[0])
            holds = int(np.broadcast_to(targets, (chunk.blocks, chunk.threads))[at, thread])
            if holds in self.runtime.separate:
                raise UnsupportedError(
                    f"a call of {self.runtime.separate[holds]}, which has a code section of its own: calls between "
                    f"separately compiled functions (nvcc -rdc=true) are not simulated; {self._describe(block.last)}"
                )
            raise ExecutionError(
                f"a call through a pointer that holds no function of this kernel, by {thread_name(chunk, at, thread)}, "
                f"{self._describe(block.last)}"
            )
        return self._scattered(block, op, places, chosen, address, following)

    def _scattered(
        self, block: BasicBlock, op: ControlOp, targets: Array, chosen: Array | None, address: int, following: int
    ) -> int | None:
        """Each executing lane goes to its own address, those that are not ``chosen`` on."""
        if chosen is not None:
            targets = np.where(chosen, targets, following)
        before = self.chunk.warp_count
        result, split, times = self.flow.scatter(targets, address)
        self._branch_event(block.last, op, before - split, 0, times, before)
        return result

    def _branch_event(
        self, index: int, op: ControlOp, taken: int, fallen: int, divergent: int, warps: int | None = None
    ) -> None:
        """Tell the listeners; ``warps`` that branched: left out where none splits into more than two groups."""
        if op.kind not in (*_BRANCHES, "indirect", "return", "call_register"):
            return
        total = taken + fallen + divergent if warps is None else warps
        kind = "call" if op.kind == "call_register" else op.kind
        self._branched(Branch(index, kind, total, taken, fallen, divergent))
