"""Recording launches into a trace file."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from gpusim.errors import InputError
from gpusim.machine.events import Access, Branch
from gpusim.result import Finished
from gpusim.sass.instruction import Instruction
from gpusim.toolchain import cuda_include_directories
from gpusim.trace import format as layout

LARGEST_SOURCE = 1 << 20
"""Characters of source text that are kept with a launch, so that reports of a trace can show it."""

_NO_TIME = (1980, 1, 1, 0, 0, 0)


class TraceRecorder:
    """A listener that writes the events of launches to a file.

    Use it as a context manager: ``with TraceRecorder("x.gpusim-trace") as r: kernel.launch(..., listeners=(r,))``.
    The file appears, complete, when the block ends; after an exception there is none.  Launches that fail are left out.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises InputError if no file can be made there."""
        self.path = Path(path)
        if self.path.is_dir():
            raise InputError(f"the trace cannot be written to {self.path}: it is a directory")
        with self._writing():
            handle, self._temporary = tempfile.mkstemp(prefix=".new-", suffix=".tmp", dir=self.path.parent)
            self._file: IO[bytes] = os.fdopen(handle, "wb")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=4)
        self._folders: list[str] = []
        self._started = 0
        self._begin()

    # -- as a context manager -----------------------------------------------------------------------------------------
    def __enter__(self) -> TraceRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def close(self) -> None:
        """Finish the file and put it in its place."""
        from gpusim import __version__

        if self._file.closed:
            return
        header = {
            "format": layout.FORMAT,
            "version": layout.VERSION,
            "made_by": __version__,
            "launches": self._folders,
        }
        try:
            with self._writing():
                self._member("header.json", json.dumps(header, indent=1).encode())
                self._zip.close()
                self._file.close()
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self._temporary, 0o666 & ~mask)  # as any new file
                os.replace(self._temporary, self.path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Leave no file."""
        with suppress(OSError, ValueError):
            self._zip.close()
        with suppress(OSError, ValueError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self._temporary)

    # -- as a listener ------------------------------------------------------------------------------------------------
    def started(self) -> None:
        """A launch begins."""
        self._begin()

    def access(self, event: Access) -> None:
        pool = self._pool
        arrays = [pool.add(getattr(event, name)) for name in layout.ARRAYS]
        space = layout.SPACES.index(event.space)
        row = (layout.ACCESS, event.index, space, event.first_block, event.blocks, event.threads, *arrays)
        self._events.append(row)
        if pool.word_count + pool.bit_bytes // 8 > layout.PIECE_WORDS or len(self._events) >= layout.PIECE_EVENTS:
            self._flush()

    def branch(self, event: Branch) -> None:
        kind = layout.BRANCH_KINDS.index(event.kind)
        counts = (event.warps, event.taken, event.fallen, event.divergent)
        self._events.append((layout.BRANCH, event.index, kind, *counts))
        if len(self._events) >= layout.PIECE_EVENTS:
            self._flush()

    def finished(self, done: Finished) -> None:
        """A launch has run to its end."""
        self._flush()
        tally = np.stack([done.tally.executed, done.tally.thread_executed, done.tally.predicated_on])
        about = {
            "launch": asdict(done.launch),
            "barriers": done.barriers,
            "path": done.path,
            "pieces": self._pieces,
            "instructions": [_instruction(i) for i in done.program.instructions],
            "branch_targets": {str(address): list(to) for address, to in done.program.branch_targets.items()},
            "source": _source(done),
            "caveats": sorted(done.caveats),
            "output": done.output,
        }
        with self._writing():
            self._array("tally", tally.astype(np.int64))
            self._member(f"{self._folder}/launch.json", json.dumps(about).encode())
        self._folders.append(self._folder)
        self._begin()

    # -- the file -----------------------------------------------------------------------------------------------------
    def _begin(self) -> None:
        self._started += 1
        self._folder = f"launch-{self._started}"
        self._pieces = 0
        self._events: list[tuple[int, ...]] = []
        self._pool = layout.Pool()

    def _flush(self) -> None:
        """Write the events so far as one piece."""
        if not self._events:
            return
        rows = np.zeros((len(self._events), layout.COLUMNS), np.int64)
        for place, row in enumerate(self._events):
            rows[place, : len(row)] = row
        with self._writing():
            for name, table in {"events": rows, **self._pool.members()}.items():
                self._array(f"{name}-{self._pieces}", table)
        self._pieces += 1
        self._events = []
        self._pool = layout.Pool()

    def _array(self, name: str, table: layout.Array) -> None:
        buffer = io.BytesIO()
        np.save(buffer, table, allow_pickle=False)
        self._member(f"{self._folder}/{name}.npy", buffer.getvalue())

    def _member(self, name: str, data: bytes) -> None:
        info = zipfile.ZipInfo(name, _NO_TIME)  # equal launches make equal files
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        self._zip.writestr(info, data, compresslevel=4)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(f"the trace cannot be written to {self.path}: {error.strerror or error}") from None


def _instruction(i: Instruction) -> tuple[int, str, str, str | None, int | None]:
    at = i.location
    return i.address, i.text, f"{i.encoding:x}", at.file if at else None, at.line if at else None


def _source(done: Finished) -> dict[str, list[str]]:
    """Source text of the files that the kernel's lines are in, as far as it is short; CUDA's own headers stay out."""
    cuda = tuple(f"{directory}{os.sep}" for directory in cuda_include_directories())
    files = dict.fromkeys(i.location.file for i in done.program.instructions if i.location)
    kept: dict[str, list[str]] = {}
    left = LARGEST_SOURCE
    for file in files:
        lines = done.source.get(file, []) if not file.startswith(cuda) else []
        size = sum(map(len, lines))
        if lines and size <= left:
            kept[file] = lines
            left -= size
    return kept
