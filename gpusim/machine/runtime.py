"""Functions that a kernel calls and the driver provides: ``printf`` (vprintf) and a failed ``assert`` (__assertfail).

Their code is not in the cubin.  They are called at the addresses that :mod:`gpusim.toolchain.link` gives to undefined
functions, with arguments in registers from R4 on, pairs for pointers, and the result in R4 (read off compiled calls).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from gpusim.errors import ExecutionError, UnsupportedError
from gpusim.machine import memory as spaces
from gpusim.machine import printf
from gpusim.machine.chunk import Chunk
from gpusim.machine.memory import DeviceMemory

Array = np.ndarray[Any, Any]
u32, u64 = np.uint32, np.uint64

OUTPUT_LIMIT = 1 << 20  # characters kept of a launch's output: the size of the driver's own buffer unless it is changed
STRING_LIMIT = 1 << 16  # bytes of one string
PRINTF_CAVEAT = (
    "the kernel calls printf, whose instructions a GPU executes and counts too, but which are not part of the kernel's "
    "machine code: the totals lack them"
)
FIRST_ARGUMENT = 4  # register
CALLABLE = ("vprintf", "__assertfail")


class Runtime:
    """The functions of one launch; ``externals`` names them by address, ``code_base`` is where the kernel's code lies.

    ``output`` is what was printed: blocks in order of their number, and within a block in order of execution.
    """

    def __init__(
        self,
        externals: Mapping[int, str] | None = None,
        code_base: int = 0,
        separate: Mapping[int, str] | None = None,
    ) -> None:
        self.externals = dict(externals or {})
        self.separate = dict(separate or {})  # functions in sections of their own, by address
        self.code_base = code_base
        self.caveats: set[str] = set()
        self._lines: list[tuple[int, str]] = []  # of the chunk in progress: block, text
        self._done: list[str] = []
        self._kept = 0
        self._dropped = 0

    @property
    def output(self) -> str:
        """All text so far."""
        self.end_chunk()
        text = "".join(self._done)
        if self._dropped:
            text += f"\n[{self._dropped:,} more calls of printf: only the first {OUTPUT_LIMIT:,} characters are kept]\n"
        return text

    def end_chunk(self) -> None:
        """Put what the blocks of a chunk printed in order."""
        self._lines.sort(key=lambda line: line[0])
        self._done += [text for _, text in self._lines]
        self._lines = []

    def call(self, name: str, chunk: Chunk, device: DeviceMemory, lanes: Array, describe: Callable[[], str]) -> None:
        """Carry out one function for the lanes of a mask (broadcastable to blocks and threads)."""
        shape = (chunk.blocks, chunk.threads)
        chosen = np.broadcast_to(lanes, shape)
        where = [(int(block), int(thread)) for block, thread in np.argwhere(chosen)]
        reader = _Reader(chunk, device, describe)
        if name == "vprintf":
            self._print(chunk, reader, where, chosen)
        elif name == "__assertfail":
            raise _failed_assertion(chunk, reader, *where[0])
        else:
            raise UnsupportedError(
                f"the kernel calls {name}, a function of the device runtime that is not simulated: {describe()}"
            )

    def _print(self, chunk: Chunk, reader: _Reader, where: list[tuple[int, int]], chosen: Array) -> None:
        self.caveats.add(PRINTF_CAVEAT)
        results = np.zeros(chosen.shape, u32)
        for block, thread in where:
            pointer, buffer = reader.pair(FIRST_ARGUMENT, block, thread), reader.pair(FIRST_ARGUMENT + 2, block, thread)
            if not pointer:
                results[block, thread] = u32(0xFFFFFFFF)
                continue
            pieces = printf.parse(reader.string(pointer, block, thread))
            if (text := printf.refused(pieces)) is not None:
                raise UnsupportedError(
                    f"printf with {text}: CUDA documents no such conversion, and an H200 prints other words for it: "
                    f"{reader.describe()}"
                )
            results[block, thread] = printf.argument_count(pieces)
            if self._kept >= OUTPUT_LIMIT:
                self._dropped += 1
                continue
            packed = reader.read(buffer, printf.argument_bytes(pieces), block, thread)
            text = printf.render(pieces, packed, partial(reader.string, block=block, thread=thread))
            text = text[: OUTPUT_LIMIT - self._kept]
            self._kept += len(text)
            self._lines.append((block, text))
        chunk.R[FIRST_ARGUMENT] = np.where(chosen, results, chunk.R[FIRST_ARGUMENT])


class _Reader:
    """Reads registers and memory of one thread."""

    def __init__(self, chunk: Chunk, device: DeviceMemory, describe: Callable[[], str]) -> None:
        self.chunk, self.device, self.describe = chunk, device, describe
        self._strings: dict[int, bytes] = {}

    def register(self, index: int, block: int, thread: int) -> int:
        value = self.chunk.R[index]
        return int(value[block if value.shape[0] > 1 else 0, thread if value.shape[1] > 1 else 0])

    def pair(self, index: int, block: int, thread: int) -> int:
        return self.register(index, block, thread) | self.register(index + 1, block, thread) << 32

    def _here(self, address: int, size: int, block: int, thread: int) -> bytes:
        """Bytes from a generic address on, fewer at the end of what they lie in; empty where nothing lies."""
        chunk = self.chunk
        if spaces.LOCAL_WINDOW <= address < spaces.LOCAL_WINDOW + spaces.WINDOW_BYTES:
            first = address - spaces.LOCAL_WINDOW
            words = chunk.local[first // 4 : -(-(first + size) // 4), block, thread]
            return words.tobytes()[first % 4 : first % 4 + size]
        if spaces.SHARED_WINDOW <= address < spaces.SHARED_WINDOW + spaces.WINDOW_BYTES:
            first = address - spaces.SHARED_WINDOW
            return chunk.shared[block, first : first + size].tobytes()
        for buffer in self.device.buffers:
            if buffer.start <= address < buffer.end:
                first = address - self.device.base
                return self.device.bytes[first : first + min(size, buffer.end - address)].tobytes()
        return b""

    def read(self, address: int, size: int, block: int, thread: int) -> bytes:
        found = self._here(address, size, block, thread)
        if len(found) < size:
            raise self._fault(f"cannot read {size} bytes of arguments at {address:#x}", block, thread)
        return found

    def string(self, address: int, block: int, thread: int) -> bytes:
        """The bytes before the terminating zero."""
        if address in self._strings:
            return self._strings[address]
        text = b""
        while len(text) < STRING_LIMIT:
            piece = self._here(address + len(text), 256, block, thread)
            end = piece.find(b"\0")
            if end >= 0:
                text += piece[:end]
                if address >= spaces.LOCAL_WINDOW + spaces.WINDOW_BYTES:  # the same for all threads
                    self._strings[address] = text
                return text
            if not piece:
                break
            text += piece
        raise self._fault(f"there is no string that ends at {address:#x}", block, thread)

    def _fault(self, what: str, block: int, thread: int) -> ExecutionError:
        return ExecutionError(f"{what}, for {thread_name(self.chunk, block, thread)}, {self.describe()}")


def thread_name(chunk: Chunk, block: int, thread: int) -> str:
    """A thread of a chunk's block in words: "thread (3, 0, 0) of block (1, 0, 0)"."""
    number = int(chunk.numbers[block])
    gx, gy, _ = chunk.grid
    bx, by, _ = chunk.block
    block_at = (number % gx, number // gx % gy, number // (gx * gy))
    thread_at = (thread % bx, thread // bx % by, thread // (bx * by))
    return f"thread {thread_at} of block {block_at}"


def _failed_assertion(chunk: Chunk, reader: _Reader, block: int, thread: int) -> ExecutionError:
    """__assertfail(message, file, line, function, size of a character)."""
    message, file, function = (
        reader.string(at, block, thread).decode("utf-8", "replace") if at else "?"
        for at in (reader.pair(FIRST_ARGUMENT + k, block, thread) for k in (0, 2, 6))
    )
    line = reader.register(FIRST_ARGUMENT + 4, block, thread)
    message = " ".join(message.split())
    return ExecutionError(
        f"assertion failed: {message} ({file}:{line}, in {function}), first by {thread_name(chunk, block, thread)}"
    )
