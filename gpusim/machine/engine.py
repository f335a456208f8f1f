"""Running a program over all blocks of a grid."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from gpusim import native
from gpusim.errors import ExecutionError, GpusimError
from gpusim.machine import mbarrier, parallel
from gpusim.machine.batches import FEW, FEW_WITH_PRODUCTS
from gpusim.machine.chunk import Chunk
from gpusim.machine.compiled import Compiled
from gpusim.machine.control import Control
from gpusim.machine.events import Access, Branch, Listener
from gpusim.machine.flow import STEP, Flow
from gpusim.machine.memory import DeviceMemory
from gpusim.machine.memory_unit import MemoryUnit
from gpusim.machine.packing import Packed, Touched, touched_by
from gpusim.machine.runtime import Runtime
from gpusim.sass.form import MemoryOp
from gpusim.sass.program import BasicBlock

Array = np.ndarray[Any, Any]

# Threads executed together: enough to spread the interpreter's cost, few enough that the registers in use stay in the
# processor's cache (2**20 words, 4 MiB).  Measured on two cores with 32 MiB of L3.
CHUNK_WORDS = 1 << 20
LEAST_CHUNK, MOST_CHUNK = 1 << 14, 1 << 16
SHARED_CHUNK = 1 << 12  # threads of a chunk below which two take as long as one with both


HELD_BYTES = 31 << 20


@cache
def keep_freed_memory() -> None:
    """Let glibc's malloc keep what NumPy's temporaries give back, instead of returning it to the system each time.

    A page that comes back costs a page fault, for arrays of some hundred KiB several times what computing them does.
    malloc maps a large block apart, and when the first of them is freed it takes that size (at most 32 MiB) as the new
    limit from which to do so: mallopt(3), M_MMAP_THRESHOLD.  Nothing is touched, so no memory is used; other
    allocators ignore it.
    """
    np.empty(HELD_BYTES, np.uint8)


def chunk_size(registers: int) -> int:
    """Threads a chunk, for a kernel with this many registers a thread."""
    return max(LEAST_CHUNK, min(MOST_CHUNK, CHUNK_WORDS // max(1, registers)))


@dataclass
class Tally:
    """What was executed, by instruction: issued warps, lanes in them, lanes predicated on."""

    executed: Array
    thread_executed: Array
    predicated_on: Array


class Engine(Control):
    """Executes one launch.  ``constants`` maps bank numbers to bytes."""

    packing = True  # blocks of arithmetic may be executed for few lanes alone

    def __init__(
        self,
        compiled: Compiled,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        device: DeviceMemory,
        constants: dict[int, bytes],
        shared_bytes: int,
        shared_start: int,
        local_bytes: int,
        listeners: tuple[Listener, ...] = (),
        chunk_threads: int = MOST_CHUNK,
        runtime: Runtime | None = None,
    ) -> None:
        self.runtime = runtime or Runtime()
        self.log: Callable[[int], None] | None = None  # told of every basic block that is issued
        self.compiled, self.program = compiled, compiled.program
        self.listeners = listeners
        self.constants = {k: np.frombuffer(v + b"\0" * 8, np.uint8) for k, v in constants.items()}
        self.sizes = {k: len(v) for k, v in constants.items()}
        self.device, self.shared_start = device, shared_start
        self.chunk = self._new_chunk(grid, block, shared_bytes, local_bytes)
        self.chunk.constant_load = self._constant_load
        self.chunk.code_base = self.runtime.code_base
        self.flow = Flow(self.chunk)
        self.chunk.places = lambda: self.flow.place
        self.chunk.before = self._live_before
        self.memory = self._new_memory()
        self.total_blocks = grid[0] * grid[1] * grid[2]
        self.chunk_blocks = self._blocks_a_chunk(chunk_threads)
        self.sharing: parallel.Sharing | None = None
        self._bind()
        count = len(self.program.blocks)
        self.block_warps = [0] * count
        self.block_lanes = [0] * count

    def _live_before(self, address: int) -> frozenset[int]:
        live, index = self.compiled.live, self.program.index_of.get(address)
        assert live is not None  # or else nobody asks
        return frozenset() if index is None else live.before[index]

    # -- preparing --------------------------------------------------------------------------------------------------
    def _new_chunk(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int, local_bytes: int
    ) -> Chunk:
        return Chunk(grid, block, shared_bytes, local_bytes)

    def _blocks_a_chunk(self, most: int) -> int:
        """Half of the grid, so that two processes can share it, within a least and the most number of threads."""
        threads = self.chunk.threads
        half = -(-self.total_blocks // 2) * threads
        return max(1, min(self.total_blocks, min(most, max(half, SHARED_CHUNK)) // threads))

    def _new_memory(self) -> Any:
        return MemoryUnit(self.chunk, self.device, self.shared_start, self._access, self._describe)

    def _names(self) -> dict[str, Any]:
        """What the block functions' text refers to besides the launch's constants."""
        return dict(self.compiled.names)

    def _bind(self) -> None:
        """Bind the block functions to this launch's constants."""
        self._namespace = namespace = self._names()
        namespace["M"], namespace["F"] = self.memory, self.flow
        for bank, offset in self.compiled.constants:
            namespace[f"c{bank}_{offset:x}"] = self._constant_word(bank, offset)
        exec(self.compiled.code, namespace)
        self.functions = {}
        # by block, for chunks of up to so many threads
        self.few: dict[int, tuple[Callable[..., None], int]] = {}
        self.packable: dict[int, Touched] = {}
        self.packed = Packed(self.chunk)
        self.tests = {}
        self.reads = {}
        self.looks: dict[int, Callable[[Chunk], tuple[Array, ...]]] = {}
        self.serial = set()
        for block in self.program.blocks:
            address = self.program.instructions[block.first].address
            number = block.number
            self.functions[address] = (block, namespace[f"fast{number}"], namespace[f"masked{number}"])
            for name, most in (("few", FEW), ("products", FEW_WITH_PRODUCTS)):
                if f"{name}{number}" in namespace:
                    self.few[number] = (namespace[f"{name}{number}"], most)
            touched = touched_by(self.program, block) if self.packing else None
            if touched is not None:
                self.packable[number] = touched
            if f"test{number}" in namespace:
                self.tests[number] = namespace[f"test{number}"]
            if f"read{number}" in namespace:
                self.reads[number] = namespace[f"read{number}"]
            if f"look{number}" in namespace:
                self.looks[number] = namespace[f"look{number}"]
            if self._has_retry(block):
                self.serial.add(number)

    def _has_retry(self, block: BasicBlock) -> bool:
        """A block with a compare-and-swap that the compiler retries: its warps go one after the other, as on a GPU,
        where they seldom collide, instead of all at once, where each would retry for all others."""
        for index in range(block.first, block.last + 1):
            meaning = self.program.meanings[index]
            if isinstance(meaning, MemoryOp) and meaning.atomic == "cast":
                return True
        return False

    def _constant_word(self, bank: int, offset: int) -> Array:
        """A constant word as (1, 1); a bank or offset that does not exist reads as zero, as unused words do."""
        data = self.constants.get(bank)
        if data is None or offset + 4 > data.size:
            return np.zeros((1, 1), np.uint32)
        return data[offset : offset + 4].copy().view(np.uint32).reshape(1, 1)

    def _constant_load(self, bank: int, offset: int, base: Array) -> Array:
        """Words at run-time addresses of a constant bank (any byte address)."""
        data = self.constants.get(bank)
        if data is None:
            raise ExecutionError(f"constant bank {bank} does not exist in this kernel")
        where = base.astype(np.int64) + offset
        where = np.where(where & 0x80000000, where - (1 << 32), where)
        last = self.sizes[bank]
        where = np.clip(where, 0, max(0, last - 1))
        word = data[where].astype(np.uint32)
        for k in range(1, 4):
            word |= data[np.minimum(where + k, data.size - 1)].astype(np.uint32) << np.uint32(8 * k)
        return word

    def _describe(self, index: int) -> str:
        instruction = self.program.instructions[index]
        where = f" ({instruction.location})" if instruction.location else ""
        return f"instruction {instruction.address:#06x} {instruction.text}{where}"

    def _access(self, event: Access) -> None:
        for listener in self.listeners:
            listener.access(event)

    def _branched(self, event: Branch) -> None:
        for listener in self.listeners:
            listener.branch(event)

    # -- running ----------------------------------------------------------------------------------------------------
    def run(self, progress: Callable[[int, int], None] | None = None, numbers: Array | None = None) -> Tally:
        """Execute the whole grid, chunk by chunk in order of block number; ``progress(done, total)`` in blocks.

        ``numbers``: only the blocks with these linear numbers (int64, ascending).
        """
        keep_freed_memory()
        parallel.reap()
        parallel.launching.add(threading.get_ident())
        if native.wanted_at_once():
            native.load()
        before = time.perf_counter()
        total = self.total_blocks if numbers is None else len(numbers)
        ends = [*range(0, total, self.chunk_blocks), total]
        try:
            self._run(
                [np.arange(a, b) if numbers is None else numbers[a:b] for a, b in pairwise(ends)], progress, total
            )
        finally:
            parallel.launching.discard(threading.get_ident())
            native.spent(time.perf_counter() - before)
            tally = self.tally()
            self._let_go()
        return tally

    def _let_go(self) -> None:
        """Break circles of references, so that the arrays' memory can be used again at once, not some time later."""
        self.chunk.let_go()
        self._namespace.clear()
        del self.memory

    def _run(self, pieces: list[Array], progress: Callable[[int, int], None] | None, total: int) -> None:
        """Execute chunks, given as the numbers of their blocks."""
        ends = np.cumsum([len(piece) for piece in pieces]).tolist()

        def tell(position: int) -> None:
            if progress is not None:
                progress(ends[position], total)

        with np.errstate(all="ignore"):
            processes = min(self._processes(), len(pieces))
            if processes > 1 and self.kind not in self.compiled.conflicts:
                sharing = parallel.Sharing(self, pieces, processes)
                try:
                    self._run_shared(sharing, tell)
                    return
                except parallel.Conflict:
                    self.compiled.conflicts.add(self.kind)
                except GpusimError as error:
                    # it may come of what other processes wrote, or did not write yet
                    if sharing.open or len(sharing.watches) == 1 or isinstance(error, parallel.Final):
                        raise
                self._begin_anew()
            for position, piece in enumerate(pieces):
                self.run_chunk(piece)
                tell(position)

    def _run_shared(self, sharing: parallel.Sharing, tell: Callable[[int], None]) -> None:
        """Execute chunks as long as no other process has got them.  Raises Conflict."""
        self.sharing = sharing
        try:
            with self.heard_by(sharing.watches[0]):
                sharing.begin()
                while sharing.position < sharing.mine:
                    self.run_chunk(sharing.pieces[sharing.position])
                    tell(sharing.position)
                    sharing.position += 1
            sharing.finish()
        finally:
            self.sharing = None
            sharing.close()

    def run_chunk(self, numbers: Array) -> None:
        """Execute the blocks with these linear numbers."""
        self.chunk.start(numbers)
        self.memory.begin(all(getattr(each, "repeats", False) for each in self.listeners))
        self._run_blocks()
        self.memory.tell(self.listeners)
        self.runtime.end_chunk()

    # -- parts of a grid ---------------------------------------------------------------------------------------------
    @property
    def kind(self) -> tuple[int, int]:
        """What launches have in common whose blocks are taken to need about the same time: threads, blocks a chunk."""
        return self.chunk.threads, self.chunk_blocks

    def _processes(self) -> int:
        """How many processes may share the launch."""
        if not all(hasattr(listener, "begin_part") for listener in self.listeners):
            return 1
        if self.device.total > parallel.LARGEST_MEMORY or not parallel.separable(self.program):
            return 1
        return parallel.workers()

    @contextmanager
    def heard_by(self, listener: Listener) -> Iterator[None]:
        """Add a listener for a while."""
        before = self.listeners
        self.listeners = (*before, listener)
        try:
            yield
        finally:
            self.listeners = before

    def begin_part(self) -> None:
        """Start all counters from zero."""
        count = len(self.program.blocks)
        self.block_warps[:], self.block_lanes[:] = [0] * count, [0] * count
        self.chunk.predicated_on.clear()
        for listener in self.listeners:
            listener.begin_part()  # type: ignore[attr-defined]

    def part(self) -> dict[str, Any]:
        """The counters, to be merged into another engine's."""
        return {
            "warps": list(self.block_warps),
            "lanes": list(self.block_lanes),
            "on": dict(self.chunk.predicated_on),
            "caveats": set(self.flow.caveats),
            "listeners": [each.part() for each in self.listeners if hasattr(each, "begin_part")],  # type: ignore[attr-defined]
        }

    def merge(self, part: dict[str, Any]) -> None:
        """Add another engine's counters, of later blocks."""
        for number, (warps, lanes) in enumerate(zip(part["warps"], part["lanes"], strict=True)):
            self.block_warps[number] += warps
            self.block_lanes[number] += lanes
        on = self.chunk.predicated_on
        for index, lanes in part["on"].items():
            on[index] = on.get(index, 0) + lanes
        self.flow.caveats |= part["caveats"]
        for listener, content in zip(self.listeners, part["listeners"], strict=True):
            listener.merge(content)  # type: ignore[attr-defined]

    def _begin_anew(self) -> None:
        """Forget everything that was executed."""
        self.begin_part()
        self.flow.caveats.clear()
        self.device.reset()

    def _run_blocks(self) -> None:
        """Execute the blocks that the chunk was started with."""
        chunk = self.chunk
        self.flow.start()
        address: int | None = self.program.instructions[0].address
        functions, warps, lanes = self.functions, self.block_warps, self.block_lanes
        size = chunk.blocks * chunk.threads
        few = {number: function for number, (function, most) in self.few.items() if size <= most}
        while address is not None:
            if self.sharing is not None and self.sharing.open:
                self.sharing.poll()
            entry = functions.get(address)
            if entry is None:
                raise ExecutionError(f"control reached {address:#x}, which is no instruction of the kernel")
            block, fast, masked = entry
            number = block.number
            if number in self.looks and (held := self._held(block)) is not None:
                address = self.flow.hold(held, address)
                continue
            if number in self.serial:
                self.flow.restrict_to_first_warp(address)
            if self.log is not None:
                self.log(number)
            warps[number] += chunk.warp_count
            lanes[number] += chunk.lane_count
            chunk.ticks += len(block)
            if chunk.w is None:
                few.get(number, fast)(chunk, chunk.m, None)
            elif number in self.packable and self.packed.worth():
                self.packed.run(self.packable[number], fast)
            else:
                masked(chunk, chunk.m, chunk.w)
            if block.control is None:
                last = self.program.instructions[block.last]
                address = self.flow.go(last.address + STEP)
            else:
                address = self._control(block, block.control)

    def _held(self, block: BasicBlock) -> Array | None:
        """The executing lanes whose phase of an asynchronous barrier is not complete, if any: they look again later."""
        chunk, flow = self.chunk, self.flow
        flow.caveats.add(mbarrier.CAVEAT)
        place, phase, guard = self.looks[block.number](chunk)
        op = self.program.meanings[block.first]
        assert isinstance(op, MemoryOp)
        active = chunk.active_mask()
        held = self.memory.waits(op, place, phase, active & guard & ~flow.forced)
        flow.forced = flow.forced & ~active
        return held if held.any() else None

    def tally(self) -> Tally:
        """What was executed so far."""
        count = len(self.program.instructions)
        executed, threads = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for block in self.program.blocks:
            executed[block.first : block.last + 1] = self.block_warps[block.number]
            threads[block.first : block.last + 1] = self.block_lanes[block.number]
        on = threads.copy()
        for index, instruction in enumerate(self.program.instructions):
            if instruction.guard is not None:
                on[index] = self.chunk.predicated_on.get(index, 0)
        for meaning, warps in zip(self.program.meanings, executed, strict=True):
            if warps and isinstance(meaning, MemoryOp) and mbarrier.is_first(meaning):
                self.flow.caveats.add(mbarrier.COST_CAVEAT)
        return Tally(executed, threads, on)
