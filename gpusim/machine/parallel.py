"""Executing the blocks of a launch with several processes, with the same results and counters as with one.

Blocks are independent until they share global memory.  Each process gets a contiguous part of the grid and notes which
words it reads and writes; if a word that one writes is read or written by another, the launch is executed anew in one
process, in order of the blocks.  Integers that are added without asking for what was there (RED) are added up by each
process for itself.  Kernels with other atomic operations on global memory are always executed in order.

A launch begins in one process and is shared while it runs: when it has taken so long that starting processes is worth
it, they get chunks that have not been begun.  Which blocks make a chunk does not depend on the number of processes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.errors import ExecutionError, GpusimError
from gpusim.machine.events import Access, Branch
from gpusim.machine.memory import DeviceMemory
from gpusim.machine.outer import least_and_most, plain
from gpusim.sass.form import ControlOp, MemoryOp
from gpusim.sass.program import Program

if TYPE_CHECKING:
    from gpusim.machine.engine import Engine

Array = np.ndarray[Any, Any]
WORKERS_VARIABLE = "GPUSIM_WORKERS"
MOST_WORKERS = 8
# Seconds after which a launch is shared if as many are left, and how many more for each byte of device memory, whose
# pages each process is given one by one.  Measured.
START, START_A_BYTE = 0.02, 2.5e-10
KEPT = 8  # arrays of offsets that are kept of an instruction
SLAB = 1 << 20  # words that are compared at once
LARGEST_MEMORY = 1 << 30  # bytes of device memory up to which every word of it is watched


class Conflict(Exception):
    """Parts of the grid do not leave each other's memory alone."""


class Final(GpusimError):
    """What executing the launch in one process would not change."""


class Failure(ExecutionError, Final):
    """A process did not do what it was started for."""


def workers() -> int:
    """How many processes to use: the environment's wish, else one for each core that this process may use."""
    wish = os.environ.get(WORKERS_VARIABLE, "")
    if wish.isdigit():
        return max(1, int(wish))
    if sys.platform != "linux":
        return 1
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)))


def separable(program: Program) -> bool:
    """Whether parts of a grid may be executed apart from each other: no calls outside, no atomics in global memory but
    additions of integers without a result."""
    for meaning in program.meanings:
        if isinstance(meaning, ControlOp) and meaning.kind == "call_register":
            return False
        if isinstance(meaning, MemoryOp) and meaning.operation in ("atomic", "reduce") and meaning.space != "shared":
            adds = (meaning.operation, meaning.space, meaning.atomic) == ("reduce", "global", "add")
            if not adds or meaning.element not in ("u32", "i32") or meaning.vector > 1:
                return False
    return True


class Words:
    """Words of device memory: one truth value each, and the least and the greatest that is set (inclusive)."""

    def __init__(self, count: int) -> None:
        self.set: Array = np.frombuffer(mmap.mmap(-1, count), np.bool_)
        self.low, self.high = count, -1

    def note(self, places: Array, width: int) -> None:
        """Set the words of accesses of ``width`` bytes at these byte offsets."""
        first = plain(places) >> 2
        self.low = min(self.low, int(first.min()))
        for word in range(max(1, width // 4)):
            self.set[first + word if word else first] = True
        self.high = max(self.high, int(first.max()) + max(1, width // 4) - 1)

    def has(self, places: Array, width: int) -> bool:
        """Whether any word of such accesses is set."""
        first = plain(places) >> 2
        return any(bool(self.set[first + word].any()) for word in range(max(1, width // 4)))

    def meets(self, other: Words) -> bool:
        """Whether any word is set in both."""
        for low in range(max(self.low, other.low), min(self.high, other.high) + 1, SLAB):
            high = min(low + SLAB, self.high + 1, other.high + 1)
            if (self.set[low:high] & other.set[low:high]).any():
                return True
        return False

    def within(self, low: int, high: int) -> bool:
        """Whether any word from ``low`` to ``high`` (inclusive) is set."""
        low, high = max(low, self.low), min(high, self.high)
        return low <= high and bool(self.set[low : high + 1].any())


@dataclass
class _Loads:
    """What one instruction read in buffers that were not written: device addresses, and their range."""

    width: int
    low: int
    high: int
    kept: list[Array] | None  # None once there were many


class Watch:
    """A listener that notes the words of global memory that are written, and read in buffers that are written.

    Of an instruction that reads in other buffers it keeps the words of its first accesses, since a buffer may turn out
    to be written, and if there are more, their range, since mostly none is.
    """

    repeats = True

    def __init__(self, device: DeviceMemory, written: set[int] | None = None) -> None:
        self.device = device
        self.written = set(written or ())  # numbers of buffers
        count = device.bytes.nbytes // 4
        self.writes, self.reads, self.added = Words(count), Words(count), Words(count)
        # what a process adds to each word, if it is not the one that started the launch
        self.sums: Array = np.frombuffer(mmap.mmap(-1, 4 * count), np.uint32)
        self.loads: dict[int, _Loads] = {}  # by instruction
        self.ranges: list[tuple[int, int]] = []  # words
        # of processes with earlier blocks and this one's, if what they add does not come to memory before the end
        self.adding: list[Words] = []

    def access(self, event: Access, again: int = 1) -> None:
        places = event.used() if event.space == "global" else None
        if places is None:
            return
        base, width = self.device.base, event.op.width
        low, high = least_and_most(places)
        high += width - 1
        buffers = self.device.between(low, high)
        if event.op.operation == "store":
            self.written.update(buffers)
            self.writes.note(places - base, width)
        elif event.op.operation == "reduce":
            self.written.update(buffers)
            self.added.note(places - base, width)
        elif not self.written.isdisjoint(buffers):
            offsets = places - base
            self.reads.note(offsets, width)
            self._look_for_sums(offsets, width)
        else:
            loads = self.loads.get(event.index)
            if loads is None:
                loads = self.loads[event.index] = _Loads(width, low, high, [])
            loads.low, loads.high = min(loads.low, low), max(loads.high, high)
            if len(self.adding) > 1:
                self._look_for_sums(places - base, width)
            if loads.kept is not None:
                loads.kept = [*loads.kept, places] if len(loads.kept) < KEPT else None

    def _look_for_sums(self, places: Any, width: int) -> None:
        """Raise Conflict if words are read that were added to: a loop may wait for the sum."""
        if any(words.has(places, width) for words in self.adding):
            raise Conflict

    def branch(self, event: Branch) -> None:
        """Branches access nothing."""

    def settle(self) -> tuple[Any, ...]:
        """Work out what was kept; returns what the process that started this one needs besides the shared words."""
        base = self.device.base
        for loads in self.loads.values():
            if loads.kept is None:
                self.ranges.append(((loads.low - base) >> 2, (loads.high - base) >> 2))
            else:
                for places in loads.kept:
                    self.reads.note(places - base, loads.width)
        self.loads.clear()
        return [(words.low, words.high) for words in (self.writes, self.reads, self.added)], self.ranges

    def take(self, settled: tuple[Any, ...]) -> None:
        """Take over what :meth:`settle` returned in another process."""
        ends, self.ranges = settled
        for words, (low, high) in zip((self.writes, self.reads, self.added), ends, strict=True):
            words.low, words.high = low, high

    def conflicts(self, other: Watch) -> bool:
        """Whether one may have written what the other read or wrote, or added to it."""
        if self.writes.meets(other.writes):
            return True
        return self._disturbs(other) or other._disturbs(self)

    def _disturbs(self, other: Watch) -> bool:
        """Whether this one wrote or added where the other read, or added where it wrote."""
        if self.writes.meets(other.reads) or self.added.meets(other.reads) or self.added.meets(other.writes):
            return True
        return any(self.writes.within(*ends) or self.added.within(*ends) for ends in other.ranges)

    @property
    def uses_sums(self) -> bool:
        """Whether words that were added to are also read or written, which needs them to be there."""
        if self.added.meets(self.reads) or self.added.meets(self.writes):
            return True
        return any(self.added.within(*ends) for ends in self.ranges)

    def add_up(self) -> None:
        """Add what was added in another process."""
        low, end = self.added.low, self.added.high + 1
        if low < end:
            self.device.words32[low:end] += self.sums[low:end]
            self.device.note_writing(4 * low, 4 * end - 1)


class Sharing:
    """A launch that several processes may come to share.

    ``pieces``: its chunks (arrays of block numbers), of which this process executes those before ``mine`` in order and
    sets ``position`` to the one that it is at; ``processes``: how many may take part.
    """

    def __init__(self, engine: Engine, pieces: list[Array], processes: int) -> None:
        self.engine, self.pieces, self.processes = engine, pieces, processes
        self.position, self.mine = 0, len(pieces)
        self.watches = [Watch(engine.device)]
        self.cost = START + engine.device.total * START_A_BYTE
        self.patience = self.cost  # seconds until it is decided
        self.started = time.perf_counter()
        self.children: list[tuple[int, int]] = []
        self.open = True  # not decided yet

    def begin(self) -> None:
        """Share the launch at once, if one like it was there before and what it took is worth it, else not soon."""
        # a process that is started must not find their locks held by a thread that it does not have
        _ = self.engine.device.words16, self.engine.device.words32
        pace = self.engine.compiled.pace.get(self.engine.kind)
        if pace is None:
            return
        expected = pace * sum(map(len, self.pieces))
        if self._worth(expected):
            self.open = False
            self._share(len(self.pieces))
        else:
            self.patience = max(self.patience, 2 * expected)

    def poll(self) -> None:
        """Share the launch, if it is time; called between basic blocks."""
        taken = time.perf_counter() - self.started
        if taken < self.patience:
            return
        self.open = False
        count = len(self.pieces) - self.position
        if count > 1 and (not self.position or self._worth(taken / self.position * count)):
            self._share(count)

    def _worth(self, left: float) -> bool:
        """Whether what processes save of so many seconds is more than they cost."""
        return left * (1 - 1 / self.processes) > self.cost

    def _share(self, count: int) -> None:
        """Give the chunks that have not been begun to processes of their own; the present one stays here."""
        processes = 1 if len(launching) > 1 else min(self.processes, count)
        bounds = self.position + np.linspace(0, count, processes + 1).astype(int)
        self.mine = int(bounds[1])
        for first, end in pairwise(bounds[1:]):
            watch = Watch(self.engine.device, self.watches[0].written)
            watch.adding = [each.added for each in (*self.watches[1:], watch)]
            self.watches.append(watch)
            self.children.append(_start(self.engine, self.pieces[first:end], self.watches[0], self.watches[-1]))

    def finish(self) -> None:
        """Take over the processes' counters.  Raises Conflict, or the first error in order of the blocks."""
        done = sum(len(piece) for piece in self.pieces[: self.position])
        self.engine.compiled.pace[self.engine.kind] = (time.perf_counter() - self.started) / max(1, done)
        for watch in self.watches[1:]:
            process, stream = self.children.pop(0)
            with os.fdopen(stream, "rb") as pipe:
                answer = pipe.read()
            _ending.append(process)
            if not answer:
                raise Failure("a process that executed a part of the grid ended without an answer")
            what, content = pickle.loads(answer)
            if what == "conflict":
                raise Conflict
            if what == "error":
                raise content
            watch.take(content["watch"])
            self.engine.merge(content)
        self.watches[0].settle()
        if any(watch.uses_sums for watch in self.watches[1:]):
            raise Conflict
        if any(one.conflicts(other) for one, other in combinations(self.watches, 2)):
            raise Conflict
        for watch in self.watches[1:]:
            watch.add_up()

    def close(self) -> None:
        """End what still runs."""
        for process, stream in self.children:
            os.close(stream)
            os.kill(process, 9)
            _ending.append(process)
        self.children.clear()
        reap()


launching: set[int] = set()  # threads that are in a launch; with several, a process that is started may miss a lock
_ending: list[int] = []  # processes that have answered: giving back their memory takes them some milliseconds


def reap() -> None:
    """Take note of processes that have come to their end."""
    for process in list(_ending):
        try:
            done = os.waitpid(process, os.WNOHANG)[0]
        except ChildProcessError:  # somebody else did
            done = process
        if done:
            with suppress(ValueError):  # another thread was faster
                _ending.remove(process)


@cache
def _death_signal() -> Callable[[], Any]:
    """What a process calls to be ended with the one that started it: prctl(PR_SET_PDEATHSIG, SIGKILL)."""
    try:
        call = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return lambda: None
    return lambda: call(1, 9, 0, 0, 0)


def _start(engine: Engine, pieces: list[Array], before: Watch, watch: Watch) -> tuple[int, int]:
    """Fork a process that executes ``pieces`` and listens with ``watch`` in place of the one ``before``.

    Returns its number and where it writes its answer.
    """
    end_with_parent = _death_signal()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of NumPy's, which the child does not use
        process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    code = 1
    try:
        os.close(reading)
        end_with_parent()
        engine.sharing, engine.memory.sums = None, watch.sums
        engine.listeners = tuple(each for each in engine.listeners if each is not before)
        try:
            engine.begin_part()
            with engine.heard_by(watch):
                for piece in pieces:
                    engine.run_chunk(piece)
            answer: tuple[str, Any] = ("done", engine.part() | {"watch": watch.settle()})
        except Conflict:
            answer = ("conflict", None)
        except GpusimError as error:
            answer = ("error", error)
        except Exception as error:
            answer = ("error", Failure(f"a process that executed a part of the grid failed: {error!r}"))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(answer))
        code = 0
    finally:
        os._exit(code)
