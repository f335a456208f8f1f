"""Reading a trace file and counting its events again."""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.counters.collect import Collector
from gpusim.errors import GpusimError, InputError
from gpusim.explain.patterns import PatternSampler
from gpusim.machine.engine import Tally
from gpusim.machine.events import Access, Branch, Listener
from gpusim.machine.limits import limits_of
from gpusim.result import Finished, LaunchFacts, Result, build_result
from gpusim.sass.form import ControlOp, MemoryOp
from gpusim.sass.instruction import Instruction, Location, decode
from gpusim.sass.program import Program
from gpusim.trace import format as layout
from gpusim.trace.format import Array, Damaged, StoredPool

_BROKEN = (
    Damaged, zipfile.BadZipFile, zlib.error, struct.error, KeyError, IndexError, ValueError, TypeError, AttributeError,
    EOFError, OverflowError, MemoryError, NotImplementedError, RuntimeError, RecursionError,
)  # fmt: skip
MOST_BLOCKS = 1 << 31


@dataclass
class RecordedLaunch:
    """One launch of a trace; ``count()`` gives the Result that executing it gave."""

    path: Path
    folder: str
    facts: LaunchFacts
    pieces: int
    barriers: int
    execution: str
    tally: Tally
    source: dict[str, list[str]] = field(repr=False)
    caveats: frozenset[str]
    output: str
    branch_targets: dict[int, tuple[int, ...]] = field(repr=False)
    listing: list[Instruction] = field(repr=False)

    @cached_property
    def program(self) -> Program:
        """The kernel's instructions."""
        return Program(self.listing, self.branch_targets)

    def events(self) -> Iterator[Access | Branch]:
        """The events in the order in which they happened.  Raises InputError if the file is damaged."""
        with _reading(self.path), zipfile.ZipFile(self.path) as archive:
            for piece in range(self.pieces):
                yield from self._piece(archive, piece)

    def replay(self, *listeners: Listener) -> None:
        """Tell the events to listeners, as the launch did."""
        for event in self.events():
            for listener in listeners:
                if isinstance(event, Access):
                    listener.access(event)
                else:
                    listener.branch(event)

    def count(self) -> Result:
        """Count the recorded events, with the same rules as an execution."""
        collector, sampler = Collector(self.program), PatternSampler(self.program)
        self.replay(collector, sampler)
        facts, program, tally = self.facts, self.program, self.tally
        blocks = math.prod(facts.grid)  # only what executes is recorded
        done = Finished(
            facts, program, tally, self.barriers, self.execution, self.source, self.caveats, self.output, blocks
        )
        return build_result(done, collector, sampler)

    def _piece(self, archive: zipfile.ZipFile, piece: int) -> Iterator[Access | Branch]:
        def table(name: str) -> Array:
            return _array(archive, f"{self.folder}/{name}-{piece}.npy")

        pool = StoredPool(table("arrays"), table("vectors"), table("words"), table("bits"))
        rows = table("events")
        if rows.ndim != 2 or rows.shape[1] != layout.COLUMNS or rows.dtype != np.int64:
            raise Damaged("the table of events has another shape")
        for row in rows.tolist():
            yield self._event(row, pool)

    def _event(self, row: list[int], pool: StoredPool) -> Access | Branch:
        kind, index, what = row[:3]
        meaning = self.program.meanings[index] if 0 <= index < len(self.program.meanings) else None
        if kind == layout.BRANCH:
            if not isinstance(meaning, ControlOp) or not 0 <= what < len(layout.BRANCH_KINDS) or min(row[3:7]) < 0:
                raise Damaged("a branch event is none")
            warps, taken, fallen, divergent = row[3:7]
            return Branch(index, layout.BRANCH_KINDS[what], warps, taken, fallen, divergent)
        if kind != layout.ACCESS or not isinstance(meaning, MemoryOp) or not 0 <= what < len(layout.SPACES):
            raise Damaged("an access event is none")
        first_block, blocks, threads = row[3:6]
        possible = 0 <= first_block < MOST_BLOCKS and 0 < blocks < MOST_BLOCKS
        if not possible or threads % 32 or not 0 < threads <= 1024:
            raise Damaged("an access event has an impossible shape")
        addresses = pool.get(row[6], "i", blocks, threads)
        mask, active = (pool.get(number, "b", blocks, threads) for number in row[7:9])
        origin, reading = pool.get(row[9], "i", blocks, threads), pool.get(row[10], "b", blocks, threads)
        if addresses is None:
            raise Damaged("an access event has no addresses")
        space = layout.SPACES[what]
        op = _in_space(meaning, space) if meaning.space == "generic" else meaning
        return Access(index, op, space, addresses, mask, active, first_block, blocks, threads, origin, reading)


@dataclass
class Trace:
    """A trace file: the version of gpusim that made it, and its launches."""

    path: Path
    made_by: str
    launches: list[RecordedLaunch]

    def count(self) -> list[Result]:
        """The Results of all launches, counted from their events."""
        return [launch.count() for launch in self.launches]


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace.  Raises InputError if it is none, is damaged, or was made by a newer gpusim."""
    path = Path(path)
    with _reading(path):
        with path.open("rb"):
            pass  # says what is wrong where there is no such file
        if not zipfile.is_zipfile(path):
            raise InputError(
                f"{path} is not a gpusim trace, or is cut off: record one with 'gpusim analyze --trace FILE'"
            )
        with zipfile.ZipFile(path) as archive:
            if "header.json" not in archive.namelist():
                raise InputError(f"{path} is a zip file, but not a gpusim trace")
            header = _json(archive, "header.json")
            if header.get("format") != layout.FORMAT:
                raise InputError(f"{path} is a zip file, but not a gpusim trace")
            if int(header["version"]) > layout.VERSION:
                raise InputError(
                    f"{path} was made by a newer gpusim ({header.get('made_by', 'version unknown')}, trace format "
                    f"{header['version']}; this one reads {layout.VERSION}): update gpusim or record the trace anew"
                )
            if int(header["version"]) != layout.VERSION:
                raise Damaged("no such version")
            launches = [_launch(path, archive, str(folder)) for folder in header["launches"]]
            if not launches:
                raise InputError(f"{path} holds no launch: record one that runs to its end")
            return Trace(path, str(header["made_by"]), launches)


def _launch(path: Path, archive: zipfile.ZipFile, folder: str) -> RecordedLaunch:
    about = _json(archive, f"{folder}/launch.json")
    known = {entry.name for entry in fields(LaunchFacts)}
    launch = {name: value for name, value in about["launch"].items() if name in known}
    launch |= {name: _triple(launch[name]) for name in ("grid", "block")}
    facts = LaunchFacts(**launch)
    limits_of(int(facts.arch.removeprefix("sm_")))
    listing = [_instruction(*entry) for entry in about["instructions"]]
    tally = _array(archive, f"{folder}/tally.npy")
    if tally.shape != (3, len(listing)) or tally.dtype != np.int64 or not listing:
        raise Damaged("the tally does not fit the instructions")
    return RecordedLaunch(
        path=path,
        folder=folder,
        facts=facts,
        pieces=int(about["pieces"]),
        barriers=int(about["barriers"]),
        execution=str(about["path"]),
        tally=Tally(*tally),
        source={str(file): [str(line) for line in lines] for file, lines in about["source"].items()},
        caveats=frozenset(str(caveat) for caveat in about["caveats"]),
        output=str(about.get("output", "")),
        branch_targets={int(at): tuple(int(to) for to in targets) for at, targets in about["branch_targets"].items()},
        listing=listing,
    )


def _triple(value: Any) -> tuple[int, int, int]:
    x, y, z = (int(part) for part in value)
    if min(x, y, z) < 1:
        raise Damaged("a shape is empty")
    return x, y, z


def _instruction(address: int, text: str, encoding: str, file: str | None, line: int | None) -> Instruction:
    """An instruction from its text, which is the disassembler's fields put together."""
    words = text.split(" ", 2 if text.startswith("@") else 1)
    predicate = words.pop(0) if text.startswith("@") else ""
    operands = words[1].replace(", ", ",") if len(words) > 1 else ""
    location = Location(str(file), int(line)) if file is not None and line is not None else None
    return decode(int(address), predicate, words[0], operands, text, int(encoding, 16), location)


@lru_cache(maxsize=256)
def _in_space(op: MemoryOp, space: str) -> MemoryOp:
    return replace(op, space=space)  # type: ignore[arg-type]


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > layout.LARGEST_MEMBER:
        raise Damaged("a part is too large")
    return archive.read(name)


def _json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    found = json.loads(_read(archive, name))
    if not isinstance(found, dict):
        raise Damaged("a part is not what it should be")
    return found


def _array(archive: zipfile.ZipFile, name: str) -> Array:
    found = np.load(io.BytesIO(_read(archive, name)), allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise Damaged("a part is not what it should be")
    return found


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns whatever a damaged file can cause into one sentence."""
    try:
        yield
    except GpusimError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except _BROKEN:
        raise InputError(f"{path} is a damaged trace: record it anew with 'gpusim analyze --trace FILE'") from None
