"""The counting listener: turns access and branch events into per-instruction counters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpusim.counters import rules
from gpusim.machine.events import Access, Branch
from gpusim.machine.outer import Outer
from gpusim.sass.form import MemoryOp
from gpusim.sass.program import Program

Array = np.ndarray[Any, Any]

LINE_BYTES = 128
FAR = 1 << 38  # keeps differences of global addresses positive; a multiple of the line
BYPASS_CAVEAT = (
    "wavefronts and sectors of asynchronous copies around L1 under a condition (@P LDGSTS.BYPASS) are not certain: the "
    "hardware's counters were seen to leave them out, and to count lanes that do not copy"
)
COPY_CAVEAT = (
    "wavefronts of asynchronous copies (LDGSTS through L1) are a lower bound here: lanes conflict both where they read "
    "and where they write"
)
KEYED = 4096  # addresses of a chunk up to which accesses are compared as they are, as measured
ALL_LANES: Array = np.ones((1, 1), bool)

FIELDS = (
    "requests", "sectors", "sectors_ideal", "copy_sectors", "atomic_passes", "tags", "wavefronts", "wavefronts_ideal",
    "conflicts", "uniform", "divergent", "branches", "branch_targets",
)  # fmt: skip


def shared_operation(op: MemoryOp) -> str:
    """The name of the wavefront counter that a shared access belongs to."""
    names = {"load": "ld", "store": "st", "matrix_load": "ldsm", "matrix_store": "stsm", "async_copy": "ldgsts"}
    return names.get(op.operation, "atom")


COUNTED = FIELDS[: FIELDS.index("uniform")]  # what accesses add to


@dataclass(frozen=True)
class Counted:
    """Counters of a set of warps for one access, summed.

    ``copy_sectors``: what the sector counter of asynchronous copies says, which leaves some of their ``sectors`` out.
    ``atomic_passes``: sectors that L1 sends on for atomics, serialised by word where the hardware does.
    """

    requests: int = 0
    sectors: int = 0
    sectors_ideal: int = 0
    tags: int = 0
    wavefronts: int = 0
    wavefronts_ideal: int = 0
    conflicts: int = 0
    copy_sectors: int = 0
    atomic_passes: int = 0


@lru_cache(maxsize=8)
def _all_lanes(rows: int) -> Array:
    """The mask of so many warps of which all lanes take part; do not change it."""
    lanes: Array = np.ones((rows, 32), bool)
    lanes.setflags(write=False)
    return lanes


def _from_line(addresses: Array) -> Array:
    """Addresses from the beginning of the first one's line: only places within a line matter."""
    return addresses - (int(addresses.min()) & -LINE_BYTES)


def _content(addresses: Array) -> tuple[Any, ...]:
    """A key for addresses; one a block and one a thread may be the same numbers."""
    return addresses.shape, addresses.tobytes()


def _totals(parts: list[tuple[Counted, int]]) -> list[tuple[str, int]]:
    """The sums that are not 0 of counters that are to be taken so many times each."""
    if len(parts) == 1:
        ((counted, times),) = parts
        return [(name, amount * times) for name in COUNTED if (amount := getattr(counted, name))]
    found = [(name, sum(getattr(counted, name) * times for counted, times in parts)) for name in COUNTED]
    return [(name, amount) for name, amount in found if amount]


def count_rows(op: MemoryOp, space: str, addresses: Array, mask: Array, generic: bool = False) -> Counted:
    """Count warps given as rows: ``addresses`` int64 (n, 32), ``mask`` bool (n, 32).  Pure.

    ``generic``: the instruction's addresses are generic and these lanes' fall into ``space``.
    """
    requests = len(mask) if mask.all() else int(rules.requests(mask).sum())
    if space == "shared":
        wavefronts, ideal, conflicts = _shared(op, addresses, mask, generic)
        return Counted(
            requests=requests,
            wavefronts=int(wavefronts.sum()),
            wavefronts_ideal=int(ideal.sum()),
            conflicts=int(conflicts.sum()),
        )
    if space == "local":
        sectors = _local_sectors(addresses, mask, op.width)
        ideal = np.minimum(-(-mask.sum(axis=1) * op.width // rules.SECTOR_BYTES), sectors)
        return Counted(requests=requests, sectors=int(sectors.sum()), sectors_ideal=int(ideal.sum()))
    touched, least, lines = (int(counts.sum()) for counts in rules.global_counts(addresses, mask, op.width))
    passes = 0
    if op.operation in ("atomic", "reduce"):
        passes = int(rules.global_atomic_passes(addresses, mask, op.width, global_atomic_name(op)).sum())
    copied = 0
    if op.operation == "async_copy" and op.bypass and (op.partial or not op.zero_fill):
        touched = least = 0  # these depend on where the copy writes: see count_copy
    elif op.operation == "async_copy":
        copied = int(rules.async_copy_sectors(addresses, mask, op.width, op.bypass, op.zero_fill).sum())
    return Counted(requests, touched, least, lines, copy_sectors=copied, atomic_passes=passes)


def count_copy(
    op: MemoryOp, target: Array, writing: Array, origin: Array, reading: Array, guarded: bool = False
) -> Counted:
    """Count what an asynchronous copy does to shared memory; rows as in count_rows.  Pure.

    ``guarded``: the instruction has a guard: then a copy around L1 is not counted, unless it may fill with zeros.
    """
    where = (target, writing, origin, reading, op.width, op.bypass)
    if op.bypass and guarded and not (op.partial or op.zero_fill):
        return Counted()
    if op.bypass and (op.partial or not op.zero_fill):
        sectors = rules.bypass_sectors(target, origin, reading)
        least = np.minimum(sectors, -(-reading.sum(axis=1) * op.width // rules.SECTOR_BYTES))
        wavefronts = rules.bypass_wavefronts(target, origin, writing)
        if op.partial:  # lanes that read nothing have an address too, and count here
            wavefronts = wavefronts + rules.async_copy_wavefronts(target, writing, origin, writing, op.width)
        return Counted(
            sectors=int(sectors.sum()),
            sectors_ideal=int(least.sum()),
            copy_sectors=int(sectors.sum()),
            wavefronts=int(wavefronts.sum()),
            wavefronts_ideal=int(rules.shared_wavefronts_ideal(writing, op.width).sum()),
        )
    return Counted(
        wavefronts=int(rules.async_copy_wavefronts(*where, op.zero_fill).sum()),
        wavefronts_ideal=int(rules.shared_wavefronts_ideal(writing, op.width).sum()),
        conflicts=int(rules.async_copy_conflicts(*where).sum()),
    )


def global_atomic_name(op: MemoryOp) -> str:
    """The rule's name for a global atomic."""
    if op.atomic == "add" and op.element in ("f16", "f32"):
        return "fadd" if op.element == "f32" else "hadd"
    return str(op.atomic)


def _shared(op: MemoryOp, addresses: Array, mask: Array, generic: bool) -> tuple[Array, Array, Array]:
    kind = shared_operation(op)
    if kind in ("ldsm", "stsm"):
        wavefronts = rules.matrix_wavefronts(addresses, mask, op.matrices)
        conflicts = rules.matrix_conflicts(addresses, mask, op.matrices)
        return wavefronts, wavefronts - conflicts, conflicts
    if kind == "atom":
        name = "cast_spin" if op.atomic == "cast" else str(op.atomic)
        wavefronts, conflicts = rules.shared_atomic_counts(addresses, mask, op.width, name)
        return wavefronts, wavefronts - conflicts, conflicts
    wavefronts = rules.shared_wavefronts(addresses, mask, op.width, kind)
    ideal = np.minimum(rules.shared_wavefronts_ideal(mask, op.width), wavefronts)  # less where a load merges parts
    conflicts = rules.shared_conflicts(addresses, mask, op.width, kind, generic)
    return wavefronts, ideal, conflicts


def _local_sectors(addresses: Array, mask: Array, width: int) -> Array:
    """Local memory interleaves the lanes' 4-byte words: word w of lane l lies at 128*w + 4*l of the warp's area."""
    lane = np.arange(32, dtype=np.int64)
    total = np.zeros(addresses.shape[0], np.int64)
    for word in range(max(1, width // 4)):
        place = ((addresses >> 2) + word) * 128 + lane * 4
        total += rules.global_sectors(place, mask, 4)
    return total


@dataclass(slots=True)
class _Seen:
    """An access that may happen again: what it adds, and how many times it is to be added yet.

    ``places``: kept so that its id, or those of its parts, stay its own.
    """

    index: int
    space: str
    amounts: list[tuple[str, int]]
    places: Any
    times: int = 0


class Collector:
    """Per-instruction counters of a launch, by instruction index."""

    repeats = True

    def __init__(self, program: Program) -> None:
        self.program = program
        count = len(program.instructions)
        self._fields: dict[str, Array] = {name: np.zeros(count, np.int64) for name in FIELDS}
        self._by_space: dict[str, dict[str, Array]] = {}
        self._cache: dict[tuple[Any, ...], Counted] = {}
        self._kinds: dict[tuple[int, str], int] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._recent: dict[tuple[Any, ...], _Seen] = {}
        self._alike: dict[tuple[Any, ...], list[tuple[str, int]]] = {}
        self.caveats: set[str] = set()  # sentences on counts that are not certain

    @property
    def fields(self) -> dict[str, Array]:
        """Counters by name, each an int64 array by instruction."""
        self._settle()
        return self._fields

    @property
    def by_space(self) -> dict[str, dict[str, Array]]:
        """The same by the space that accesses went to, of which a generic instruction may have several."""
        self._settle()
        return self._by_space

    def access(self, event: Access, again: int = 1) -> None:
        """Count an access; ``again``: how many times it happens.

        What it adds is known already where the last ones were the same: loops come back to the same addresses.
        """
        key = self._key(event)
        if key is None:
            self._add(event.index, event.space, _totals(self._counted(event)), again)
            return
        seen = self._recent.get(key)
        if seen is None:
            if len(self._recent) >= 1024:
                self._settle()
                self._recent.clear()
            seen = self._recent[key] = self._see(event, key)
        seen.times += again

    def _see(self, event: Access, key: tuple[Any, ...]) -> _Seen:
        """What a new access adds: the same as a like one of another instruction, or one that differs by whole lines."""
        places = event.places
        content, _, _, *shape = key
        if isinstance(places, np.ndarray) and len(places) == 1:
            content = _content(_from_line(places))
        alike = (content, self._kind(event), *shape)
        amounts = self._alike.get(alike)
        if amounts is None:
            if len(self._alike) >= 1024:
                self._alike.clear()
            amounts = self._alike[alike] = _totals(self._counted(event))
        # an array of many rows is known by its content alone
        kept = None if isinstance(places, np.ndarray) and len(places) > 1 else places
        return _Seen(event.index, event.space, amounts, kept)

    def _settle(self) -> None:
        """Add what was seen again."""
        for seen in self._recent.values():
            if seen.times:
                self._add(seen.index, seen.space, seen.amounts, seen.times)
                seen.times = 0

    def _add(self, index: int, space: str, amounts: list[tuple[str, int]], times: int) -> None:
        columns = self._by_space.get(space)
        if columns is None:
            columns = self._by_space[space] = {name: np.zeros_like(self._fields[name]) for name in FIELDS}
        for name, amount in amounts:
            self._fields[name][index] += amount * times
            columns[name][index] += amount * times

    # -- parts of a grid that are counted apart ----------------------------------------------------------------------
    def begin_part(self) -> None:
        """Start from zero."""
        for column in self.fields.values():
            column[:] = 0
        self._by_space.clear()
        self.caveats.clear()

    def part(self) -> tuple[Any, ...]:
        """What was counted, for :meth:`merge`."""
        return self.fields, self.by_space, self.caveats

    def merge(self, part: tuple[Any, ...]) -> None:
        """Add what another collector counted."""
        fields, by_space, caveats = part
        for name, column in fields.items():
            self._fields[name] += column
        for space, columns in by_space.items():
            known = self._by_space.setdefault(space, {name: np.zeros_like(column) for name, column in columns.items()})
            for name, column in columns.items():
                known[name] += column
        self.caveats |= caveats

    @staticmethod
    def _key(event: Access) -> tuple[Any, ...] | None:
        """What tells accesses apart that count differently; None where it is not worth finding out.

        It is what the places are, instruction, space, number of blocks and threads, and mask.
        """
        places, mask = event.places, event.mask
        if event.origin is not None or (mask is not None and mask.shape[0] > 1):
            return None
        content: Any
        if isinstance(places, Outer):
            content = places.within(LINE_BYTES)
        elif places.shape[0] == 1:
            content = _content(places) if places.flags.writeable else id(places)
        elif places.size <= KEYED:
            content = _content(_from_line(places))
        else:
            return None
        lanes = None if mask is None else mask.tobytes()
        return content, event.index, event.space, event.blocks, event.threads, lanes

    def _counted(self, event: Access) -> list[tuple[Counted, int]]:
        """Counters of the event's warps and how often to take them: blocks that repeat a pattern are counted once."""
        if event.origin is not None:
            return [self._copied(event)]
        mask = ALL_LANES if event.mask is None else event.mask
        if isinstance(event.places, Outer) and mask.shape[0] == 1:
            return self._by_parts(event, event.places, mask)
        addresses = event.addresses
        rows = max(addresses.shape[0], mask.shape[0])
        if rows > 1 and (mask.shape[0] == 1 or bool((mask == mask[:1]).all())):
            shape = (rows, event.threads)
            wide = addresses if addresses.shape == shape else np.broadcast_to(addresses, shape)
            patterns = self._repeated(wide, None if event.mask is None else np.broadcast_to(mask[:1], (1, shape[1]))[0])
            if patterns is not None:
                again = event.blocks // rows
                return [(self._once(event, where, lanes), times * again) for where, lanes, times in patterns]
        if addresses.shape != (rows, event.threads):
            addresses = np.broadcast_to(addresses, (rows, event.threads))
        addresses = addresses.reshape(-1, 32)
        if event.mask is None:
            masks = _all_lanes(len(addresses))
        else:
            masks = np.broadcast_to(mask, (rows, event.threads)).reshape(-1, 32)
        if event.mask is not None and rows > 1:
            issued = masks.any(axis=1)
            addresses, masks = addresses[issued], masks[issued]
        return [(self._once(event, addresses, masks), event.blocks // rows)]

    def _by_parts(self, event: Access, places: Outer, mask: Array) -> list[tuple[Counted, int]]:
        """The same where all blocks share the threads' part: the blocks' parts modulo a line tell them apart."""
        threads = np.zeros(event.threads, np.int64) if places.columns is None else places.columns.values
        lanes = np.broadcast_to(mask, (1, event.threads))
        lowest = int(threads.min())
        phases = np.bincount((places.rows.values + (places.c + lowest)) % LINE_BYTES, minlength=LINE_BYTES)
        rows, masks = (threads - lowest).reshape(-1, 32), lanes.reshape(-1, 32)
        return [(self._once(event, rows + int(phase), masks), int(phases[phase])) for phase in np.flatnonzero(phases)]

    def _copied(self, event: Access) -> tuple[Counted, int]:
        """The same for an asynchronous copy's shared side, where only places within a line matter."""
        target, writing, origin, reading, repeat = event.copy_rows()
        if event.op.bypass:  # which lanes share a line counts, but not where it lies
            by_block = origin.reshape(-1, event.threads)
            origin = (by_block - by_block[:, :1] // LINE_BYTES * LINE_BYTES + FAR).reshape(-1, 32)
            places = [np.where(writing, target, 0), np.where(writing, origin, 0)]
        else:
            places = [np.where(writing, target % LINE_BYTES, 0), np.where(reading, origin % LINE_BYTES, 0)]
        target, origin, writing, reading = (array.reshape(-1, event.threads) for array in (*places, writing, reading))
        blocks = len(target)
        if all(bool((array == array[:1]).all()) for array in (target, origin, writing, reading)):
            target, origin, writing, reading = target[:1], origin[:1], writing[:1], reading[:1]
            repeat *= blocks
        rows = [array.reshape(-1, 32) for array in (target, writing, origin, reading)]
        guarded = self.program.instructions[event.index].guard is not None
        if event.op.bypass and guarded:
            self.caveats.add(BYPASS_CAVEAT)
        elif event.op.partial or not event.op.bypass:
            shown = rows[1] if event.op.bypass else rows[3]
            if not rules.async_copy_decided(rows[0], rows[1], rows[2], shown, event.op.width).all():
                self.caveats.add(COPY_CAVEAT)
        return count_copy(event.op, rows[0], rows[1], rows[2], rows[3], guarded), repeat

    @staticmethod
    def _repeated(addresses: Array, lanes: Array | None) -> list[tuple[Array, Array, int]] | None:
        """The distinct patterns of blocks that access the same offsets from their first lane's address, else None.

        ``addresses`` (blocks, threads), ``lanes`` (threads,) bool, None for all.  Each pattern is the rows (warps, 32)
        of one block, their mask, and how many blocks have it: only the first address modulo a 128-byte line tells
        blocks apart.
        """
        everyone = lanes is None or bool(lanes.all())
        if lanes is None:
            lanes = _all_lanes(addresses.shape[1] // 32).reshape(-1)
        starts = addresses[:, int(lanes.argmax())]
        taking = addresses if everyone else addresses[:, lanes]
        last = taking[:, -1:] - starts[:, None]
        if not bool((last == last[:1]).all()):
            return None
        relative = taking - starts[:, None]
        if not bool((relative == relative[:1]).all()):
            return None
        row = relative[0]
        if not everyone:
            row = np.zeros(len(lanes), np.int64)
            row[lanes] = relative[0]
        masks = lanes.reshape(-1, 32)
        # a multiple of the line keeps every address positive
        start = LINE_BYTES * (1 + int(-row.min()) // LINE_BYTES) if row.min() < 0 else 0
        phases = np.bincount(starts & (LINE_BYTES - 1), minlength=LINE_BYTES)
        return [
            ((row + (start + int(phase))).reshape(-1, 32), masks, int(phases[phase]))
            for phase in np.flatnonzero(phases)
        ]

    def _once(self, event: Access, addresses: Array, mask: Array) -> Counted:
        generic = self._is_generic(event)
        if addresses.shape[0] > 64:
            return count_rows(event.op, event.space, addresses, mask, generic)
        addresses = _from_line(addresses)
        key = (self._kind(event), addresses.tobytes(), mask.tobytes())
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) > 4096:
                self._cache.clear()
            found = self._cache[key] = count_rows(event.op, event.space, addresses, mask, generic)
        return found

    def _is_generic(self, event: Access) -> bool:
        """Whether the instruction's addresses are: the machine tells of it space by space, with that in the op."""
        return getattr(self.program.meanings[event.index], "space", None) == "generic"

    def _kind(self, event: Access) -> int:
        """A number for what, besides addresses and mask, decides the counters of an access."""
        key = (event.index, event.space)
        found = self._kinds.get(key)
        if found is None:
            op = event.op
            facts = (
                event.space, self._is_generic(event), op.operation, op.width, op.atomic, op.element, op.matrices,
                op.bypass, op.partial, op.zero_fill,
            )  # fmt: skip
            found = self._kinds[key] = self._numbers.setdefault(facts, len(self._numbers))
        return found

    def branch(self, event: Branch) -> None:
        fields, index = self._fields, event.index
        fields["branches"][index] += event.warps
        fields["branch_targets"][index] += event.targets
        fields["divergent"][index] += event.divergent
        fields["uniform"][index] += event.taken + event.fallen
