"""Executing the blocks of a launch with several processes, with the same results and counters as with one.

Blocks are independent until they share global memory.  Each process gets a contiguous part of the grid and notes which
words it reads and writes; if a word that one writes is read or written by another, the launch is executed anew in one
process, in order of the blocks.  Kernels with atomic operations on global memory are always executed in order.
"""

from __future__ import annotations

import mmap
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.errors import ExecutionError, GpusimError
from gpusim.machine.events import Access, Branch
from gpusim.machine.memory import DeviceMemory
from gpusim.sass.form import ControlOp, MemoryOp
from gpusim.sass.program import Program

if TYPE_CHECKING:
    from gpusim.machine.engine import Engine

Array = np.ndarray[Any, Any]
WORKERS_VARIABLE = "GPUSIM_WORKERS"
MOST_WORKERS = 8
WORTH = 0.3  # seconds of work that are left when it pays to start processes
LARGEST_MEMORY = 1 << 30  # bytes of device memory up to which every word of it is watched


class Conflict(Exception):
    """Parts of the grid do not leave each other's memory alone."""


def workers() -> int:
    """How many processes to use: the environment's wish, else one for each core that this process may use."""
    wish = os.environ.get(WORKERS_VARIABLE, "")
    if wish.isdigit():
        return max(1, int(wish))
    if sys.platform != "linux":
        return 1
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)))


def separable(program: Program) -> bool:
    """Whether parts of a grid may be executed apart from each other: no atomics in global memory, no calls outside."""
    for meaning in program.meanings:
        if isinstance(meaning, ControlOp) and meaning.kind == "call_register":
            return False
        if isinstance(meaning, MemoryOp) and meaning.operation in ("atomic", "reduce") and meaning.space != "shared":
            return False
    return True


class Watch:
    """A listener that notes the words of global memory that are written, and read where they may be written."""

    def __init__(self, device: DeviceMemory) -> None:
        self.device = device
        self.written: set[int] = set()  # numbers of buffers
        self.writes: Array | None = None
        self.reads: Array | None = None
        self.surprise = False  # a buffer was written that was not when the parts were made

    def begin(self) -> None:
        """Start to note words."""
        words = self.device.bytes.nbytes // 4
        self.writes = np.frombuffer(mmap.mmap(-1, words), np.bool_)
        self.reads = np.frombuffer(mmap.mmap(-1, words), np.bool_)

    def access(self, event: Access) -> None:
        if event.space != "global" or (event.mask is not None and not event.mask.any()):
            return
        stores = event.op.operation == "store"
        if not stores and (self.reads is None or not self.written):
            return
        addresses = event.addresses
        number = self.device.find(int(addresses.flat[0]), int(addresses.flat[0]))
        if number is None:
            return
        if stores and number not in self.written:
            self.surprise = self.writes is not None
            self.written.add(number)
        words = self.writes if stores else self.reads
        if words is None or number not in self.written:
            return
        if event.mask is not None:
            shape = np.broadcast_shapes(addresses.shape, event.mask.shape)
            addresses = np.broadcast_to(addresses, shape)[np.broadcast_to(event.mask, shape)]
        places = (addresses - self.device.base) >> 2
        for word in range(max(1, event.op.width // 4)):
            words[places + word if word else places] = True

    def branch(self, event: Branch) -> None:
        """Branches access nothing."""


def _overlap(watches: Iterable[Watch]) -> bool:
    writes: Array | None = None
    reads: Array | None = None
    for watch in watches:
        assert watch.writes is not None and watch.reads is not None
        if writes is None or reads is None:
            writes, reads = watch.writes.copy(), watch.reads.copy()
            continue
        if (writes & watch.writes).any() or (writes & watch.reads).any() or (reads & watch.writes).any():
            return True
        writes |= watch.writes
        reads |= watch.reads
    return False


def run_apart(engine: Engine, pieces: list[Array], processes: int, watch: Watch, done: Callable[[int], None]) -> None:
    """Run chunks (arrays of block numbers) in several processes and take over their counters.

    ``done(k)`` is told of every chunk finished here.  Raises Conflict, or the first error in order of the blocks.
    """
    bounds = np.linspace(0, len(pieces), processes + 1).astype(int)
    parts = [pieces[a:b] for a, b in pairwise(bounds) if b > a]
    watches = [Watch(engine.device) for _ in parts]
    for each in watches:
        each.written |= watch.written
        each.begin()
    children = []
    try:
        for number in range(1, len(parts)):
            children.append(_start(engine, parts[number], watches[number]))
        with engine.heard_by(watches[0]):
            for count, piece in enumerate(parts[0], 1):
                engine.run_chunk(piece)
                done(count)
        surprise = watches[0].surprise
        while children:
            process, stream = children.pop(0)
            with os.fdopen(stream, "rb") as pipe:
                answer = pipe.read()
            os.waitpid(process, 0)
            if not answer:
                raise ExecutionError("a process that executed a part of the grid ended without an answer")
            what, content = pickle.loads(answer)
            if what == "error":
                raise content
            surprise |= content["surprise"]
            engine.merge(content)
    finally:
        for process, stream in children:
            os.close(stream)
            os.kill(process, 9)
            os.waitpid(process, 0)
    if surprise or _overlap(watches):
        raise Conflict


def _start(engine: Engine, pieces: list[Array], watch: Watch) -> tuple[int, int]:
    """Fork a process that executes ``pieces``; returns its number and where it writes its answer."""
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
        engine.begin_part()
        try:
            with engine.heard_by(watch):
                for piece in pieces:
                    engine.run_chunk(piece)
            answer: tuple[str, Any] = ("done", engine.part() | {"surprise": watch.surprise})
        except GpusimError as error:
            answer = ("error", error)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(answer))
        code = 0
    finally:
        os._exit(code)
