"""Memory as a box of blocks sees it: accesses are recorded as patterns, contents only as far as they are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpusim.machine import memory as spaces
from gpusim.machine.chunk import Chunk
from gpusim.machine.events import Access
from gpusim.machine.memory import DeviceMemory
from gpusim.machine.separable import choose
from gpusim.machine.symbolic import (
    NO_PARTS,
    SYMBOLIC,
    Floats,
    Sep,
    Truth,
    Undecided,
    along,
    bounds_of,
    known_to_be,
)
from gpusim.sass.form import MemoryOp

Array = np.ndarray[Any, Any]
u32, u64, i64 = np.uint32, np.uint64, np.int64
LINE_BYTES = 128
ALL = b""  # stands for all lanes
KNOWN, BOUNDED, UNKNOWN = 0, 1, 2  # of a word: its bits, bounds of its float32, nothing


class Restart(Exception):
    """What was assumed of global memory does not hold: all boxes must be counted anew."""


@dataclass
class World:
    """What the boxes of a launch know and assume of global memory, by number of the buffer."""

    device: DeviceMemory
    read: set[int] = field(default_factory=set)  # contents used as they were before the launch
    written: dict[int, Any] = field(default_factory=dict)  # the union of all words stored into them
    assumed: set[int] = field(default_factory=set)  # of these, the ones that were read
    stored: set[int] = field(default_factory=set)  # written by the present box
    counted: set[int] = field(default_factory=set)  # written by the boxes that were counted
    restarts: int = 0
    _bounds: dict[tuple[int, int, bool], Any] = field(default_factory=dict)

    def store(self, number: int, value: Any) -> None:
        """Note that a word is stored.  Raises Restart where boxes relied on it not being."""
        self.stored.add(number)
        old = self.written.get(number)
        if old is None:
            self.written[number] = value if isinstance(value, SYMBOLIC) else choose(Truth(), value, value)
            changed = number in self.read
        else:
            union = choose(Truth(), old, value)
            changed = not _same(union, old)
            if changed:
                self.written[number] = _widened(union, self.restarts)
            changed = changed and number in self.assumed
        if changed:
            self.restarts += 1
            raise Restart

    def initial(self, number: int, width: int, signed: bool) -> Any:
        """Bounds of the words (or narrow elements) of a buffer before the launch."""
        key = (number, width, signed)
        if key not in self._bounds:
            self._bounds[key] = _bounds_of_bytes(self.device.initial(number), width, signed)
        return self._bounds[key]


def _widened(value: Any, restarts: int) -> Any:
    """Bounds that keep growing are made wide, so that they may come to hold; in the end nothing is assumed."""
    if restarts < 2 or not isinstance(value, Floats) or value.bounds is None:
        return value if restarts < 4 else known_to_be(u32)
    if restarts >= 4:
        return known_to_be(u32)
    low, high = value.bounds
    quarter, four = np.float32(0.25), np.float32(4)
    return Floats((low * (quarter if low > 0 else four), high * (four if high > 0 else quarter)))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Floats) and isinstance(b, Floats):
        return a.bounds == b.bounds
    return isinstance(a, Sep) and isinstance(b, Sep) and (a.low, a.high) == (b.low, b.high)


def _bounds_of_bytes(raw: Array, width: int, signed: bool) -> Any:
    size = min(width, 4)
    usable = raw[: raw.nbytes // size * size]
    if width < 4:
        kind = f"{'i' if signed else 'u'}{width}"
        low, high = _extremes(usable.view(kind))
        return Sep(np.dtype(u32), low, NO_PARTS, (0, high - low))
    first, last = _extremes(usable.view(np.float32))
    if first == first and last == last:
        return Floats((np.float32(first), np.float32(last)))
    low, high = _extremes(usable.view(np.int32))
    return Sep(np.dtype(u32), low, NO_PARTS, (0, high - low))


def _extremes(values: Array) -> tuple[Any, Any]:
    """Least and greatest number, a NaN if there is one; in pieces, so that each is read once."""
    step = 1 << 16
    least = [values[k : k + step].min() for k in range(0, len(values), step)]
    most = [values[k : k + step].max() for k in range(0, len(values), step)]
    return np.array(least).min().item(), np.array(most).max().item()


class BoxMemory:
    """Carries out MemoryOps for a box.  Same methods as :class:`~gpusim.machine.access.MemoryUnit`."""

    def __init__(self, chunk: Chunk, device: DeviceMemory, shared_start: int, describe: Callable[[int], str]) -> None:
        self.chunk, self.device, self.shared_start, self.describe = chunk, device, shared_start, describe

    def begin(self, world: World) -> None:
        """Forget all of the last box."""
        self.world = world
        self.everyone = np.ones((1, self.chunk.threads), bool)
        self.hits: dict[tuple[Any, ...], int] = {}  # patterns of access, and how often each was met
        self.samples: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        words = max(1, self.chunk.shared_bytes // 4)
        self.kind = np.zeros(words, np.uint8)
        self.least, self.most = np.zeros(words, np.float32), np.zeros(words, np.float32)
        self.cells: dict[int, Any] = {}  # local memory at places that are the same in all threads
        self.scattered = False  # local memory was stored to at different places
        self.own: dict[tuple[Any, ...], Array] = {}  # where threads have stored themselves: mask by address

    # -- common ----------------------------------------------------------------------------------------------------
    def _mask(self, mask: Array | None) -> Array:
        """The lanes that take part as (1, T)."""
        if isinstance(mask, Truth):
            raise Undecided("which lanes access memory")
        return self.everyone if mask is None else _wide(mask, self.everyone.shape)

    def _undecided(self, index: int, why: str) -> Undecided:
        return Undecided(f"{why}: {self.describe(index)}")

    def _record(self, index: int, op: MemoryOp, space: str, mask: Array, *addresses: Any) -> None:
        """Count an access: the same pattern is worked out once, at the end."""
        who = ALL if mask is self.everyone else mask.tobytes()
        key = (index, space, who, *(_pattern(a, mask, self.chunk.threads, who == ALL) for a in addresses))
        seen = self.hits.get(key, 0)
        if not seen:
            self.samples[key] = (op, mask, addresses)
        self.hits[key] = seen + 1

    def accesses(self, weight: int) -> list[tuple[Access, int, bool]]:
        """All accesses as events of one block and how often they happen in the box, in order of occurrence.

        ``weight``: blocks of the box.  The first event of each pattern is what the first block did; it is marked.
        """
        found = []
        for key, times in self.hits.items():
            op, mask, addresses = self.samples[key]
            phases = _by_phase(addresses, mask, self.chunk.threads)
            total = sum(blocks for _, blocks in phases)
            for number, (places, blocks) in enumerate(phases):
                event = Access(
                    key[0], op, key[1], places[0], mask, None, self.chunk.first_block, 1, self.chunk.threads,
                    *(places[1:2] or (None,)), *((addresses[-1],) if len(addresses) > 2 else ()),
                )  # fmt: skip
                found.append((event, times * blocks * (weight // total), number == 0))
        return found

    def _range(self, index: int, address: Any, mask: Array) -> tuple[int, int]:
        """Least and greatest address of the lanes."""
        if not isinstance(address, Sep):
            if address.size == 1:
                return int(address.item()), int(address.item())
            used = address[mask]
            return int(used.min()), int(used.max())
        if not address.exact:
            raise self._undecided(index, "an address that depends on data")
        low = high = address.c
        thread = address.parts[0]
        if thread is not None and mask is not self.everyone:
            used = thread.values[mask[0]]
            low, high = low + int(used.min()), high + int(used.max())
        for part in address.parts[0 if mask is self.everyone else 1 :]:
            if part is not None:
                low, high = low + part.low, high + part.high
        return low, high

    @staticmethod
    def _aligned(address: Any, mask: Array, width: int) -> bool:
        if width == 1:
            return True
        if not isinstance(address, Sep):
            if address.size == 1:
                return not int(address.item()) & (width - 1)
            return not bool((address[mask] & address.dtype.type(width - 1)).any())
        if all(part is None or 1 << part.zeros >= width for part in address.parts):
            return address.c & (width - 1) == 0
        rest = address.c
        for k, part in enumerate(address.parts):
            if part is not None:
                values = part.values[mask[0]] if k == 0 else part.values
                first = int(values[0])
                rest += first
                if ((values - first) & (width - 1)).any():
                    return False
        return rest & (width - 1) == 0

    def _global(self, index: int, op: MemoryOp, address: Any, mask: Array) -> tuple[Any, int]:
        """(address, number of the buffer) of a checked global access, which is not recorded yet."""
        if isinstance(address, Floats):
            raise self._undecided(index, "an address that depends on data")
        if isinstance(address, Sep):
            address = address.canonical()
        low, high = self._range(index, address, mask)
        number = self.device.find(low, high + op.width - 1)
        if number is None or not self._aligned(address, mask, op.width):
            # full execution says what is wrong
            raise self._undecided(index, "an access outside of a buffer or out of line")
        return address, number

    def _shared(self, index: int, op: MemoryOp, address: Any, mask: Array) -> Any:
        if isinstance(address, Floats):
            raise self._undecided(index, "an address that depends on data")
        if isinstance(address, Sep):
            address = address.canonical()
        low, high = self._range(index, address, mask)
        if low < self.shared_start or high + op.width > self.chunk.shared_bytes:
            raise self._undecided(index, "an access outside of shared memory")
        if not self._aligned(address, mask, op.width):
            raise self._undecided(index, "an access out of line")
        return address

    def _placed(self, index: int, op: MemoryOp, address: Any, mask: Array) -> tuple[MemoryOp, Any]:
        """A generic access with the space that all of its lanes fall into."""
        if op.space != "generic":
            return op, address
        if isinstance(address, Floats):
            raise self._undecided(index, "an address that depends on data")
        if isinstance(address, Sep):
            address = address.canonical()
        low, high = self._range(index, address, mask)
        for space, window in (("shared", spaces.SHARED_WINDOW), ("local", spaces.LOCAL_WINDOW)):
            end = window + spaces.WINDOW_BYTES
            if window <= low and high < end:
                return replace(op, space=space), (address - u64(window)).astype(u32)  # type: ignore[arg-type]
            if low < end and high >= window:
                raise self._undecided(index, "a generic access to several spaces")
        return replace(op, space="global"), address

    # -- counting alone --------------------------------------------------------------------------------------------
    def touch(self, index: int, op: MemoryOp, address: Any, mask: Array | None) -> None:
        """The access without its data."""
        lanes = self._mask(mask)
        if lanes is not self.everyone and not lanes.any():
            return
        op, address = self._placed(index, op, address, lanes)
        if op.operation in ("matrix_load", "matrix_store"):
            used = lanes & (self.chunk.lane_ids < 8 * op.matrices)
            address = self._shared(index, op, address, used) if used.any() else address
            if isinstance(address, Sep):
                raise self._undecided(index, "a matrix at an address that depends on the block")
            address = np.where(used, address, u32(self.shared_start))  # as lanes without a row are shown
        elif op.space == "global":
            address, _ = self._global(index, op, address, lanes)
        elif op.space == "shared":
            address = self._shared(index, op, address, lanes)
        else:
            address = self._local_place(index, op, address, lanes)
        self._record(index, op, op.space, lanes, address)

    def touch_copy(
        self, index: int, op: MemoryOp, target: Any, origin: Any, mask: Array | None, condition: Any = None
    ) -> None:
        """An asynchronous copy without its data."""
        if op.partial:
            raise self._undecided(index, "a copy of a size that is in its address")
        lanes = self._mask(mask)
        reading = lanes
        if condition is not None:
            reading = lanes & self._mask(condition)
        if reading.any():
            origin, _ = self._global(index, op, origin, reading)
            self._record(index, op, "global", reading, origin)
        else:
            origin = np.zeros((1, 1), i64)
        if lanes.any():
            target = self._shared(index, op, target, lanes)
            if isinstance(target, Sep):
                raise self._undecided(index, "a copy to an address that depends on the block")
            self._record(index, op, "shared", lanes, target, origin, reading)

    # -- loads -----------------------------------------------------------------------------------------------------
    def load(self, index: int, op: MemoryOp, address: Any, mask: Array | None) -> tuple[Any, ...]:
        """Words loaded by each lane."""
        lanes = self._mask(mask)
        words = max(1, op.width // 4)
        if not lanes.any():
            return tuple(np.zeros((1, 1), u32) for _ in range(words))
        op, address = self._placed(index, op, address, lanes)
        if op.space == "global":
            address, number = self._global(index, op, address, lanes)
            self._record(index, op, "global", lanes, address)
            return self._global_words(op, address, number, lanes)
        if op.space == "shared":
            address = self._shared(index, op, address, lanes)
            self._record(index, op, "shared", lanes, address)
            return self._shared_words(op, address, lanes)
        address = self._local_place(index, op, address, lanes)
        self._record(index, op, "local", lanes, address)
        if self.scattered or op.width < 4 or address.size > 1:
            return tuple(known_to_be(u32) for _ in range(words))
        first = int(address.item())
        return tuple(self.cells.get(first + 4 * k, np.zeros((1, 1), u32)) for k in range(words))

    def _global_words(self, op: MemoryOp, address: Any, number: int, mask: Array) -> tuple[Any, ...]:
        words = max(1, op.width // 4)
        world = self.world
        if number in world.written:
            world.assumed.add(number)
            if op.width < 4:
                return (known_to_be(u32),)
            value = world.written[number]
            if not self._stored_before(op, address, number, mask):
                value = choose(Truth(), value, world.initial(number, 4, False))
            return (value,) * words
        world.read.add(number)
        start = self.device.buffers[number].start
        raw = self.device.initial(number)
        if isinstance(address, Sep):
            axis = address.only_axis
            if axis is None:
                return (world.initial(number, op.width, op.signed),) * words
            part = address.parts[axis]
            assert part is not None
            return tuple(along(u32, axis, w) for w in _take(raw, part.values + (address.c - start), op))
        places = np.where(mask, address.astype(i64) - start, int(_wide(address, mask.shape)[mask][0]) - start)
        return tuple(w[None] for w in _take(raw, places[0], op))

    def _key(self, op: MemoryOp, address: Any, number: int) -> tuple[Any, ...]:
        if not isinstance(address, Sep):
            return (number, op.width, address.tobytes())
        return (number, op.width, address.c, *(None if p is None else p.values.tobytes() for p in address.parts))

    def _stored_before(self, op: MemoryOp, address: Any, number: int, mask: Array) -> bool:
        """Whether each of these lanes has stored to the place that it loads from."""
        own = self.own.get(self._key(op, address, number))
        return own is not None and bool((own | ~mask).all())

    def _shared_words(self, op: MemoryOp, address: Any, mask: Array) -> tuple[Any, ...]:
        words = max(1, op.width // 4)
        if isinstance(address, Sep):
            return tuple(known_to_be(u32) for _ in range(words))
        offsets = np.where(mask, address.astype(i64), int(_wide(address, mask.shape)[mask][0]))[0]
        if op.width < 4:
            if self.kind[offsets >> 2].any():
                return (known_to_be(u32),)
            return tuple(w[None] for w in _take(self.chunk.shared_flat, offsets, op))
        found = []
        for k in range(words):
            units = (offsets >> 2) + k
            state = int(self.kind[units].max())
            known = self.chunk.shared_flat.view(u32)[units]
            if state == KNOWN:
                found.append(known[None])
            elif state == UNKNOWN:
                found.append(known_to_be(u32))
            else:
                bounded = self.kind[units] == BOUNDED
                least = np.where(bounded, self.least[units], known.view(np.float32)).min()
                most = np.where(bounded, self.most[units], known.view(np.float32)).max()
                found.append(Floats((least, most)) if least == least and most == most else known_to_be(u32))
        return tuple(found)

    def _local_place(self, index: int, op: MemoryOp, address: Any, mask: Array) -> Array:
        if isinstance(address, SYMBOLIC):
            raise self._undecided(index, "an address in local memory that depends on the block")
        used = (address if address.size == 1 else address[mask]).astype(i64).reshape(-1)
        if int(used.max()) + op.width > self.chunk.local_bytes or (used & (op.width - 1)).any():
            raise self._undecided(index, "an access outside of local memory or out of line")
        if op.operation in ("atomic", "reduce"):
            raise self._undecided(index, "an atomic operation on local memory")
        if len(used) == 1 or int(used.min()) == int(used.max()):
            return used[:1].reshape(1, 1)
        return np.where(mask, _wide(address, mask.shape).astype(i64), used[0])

    # -- stores ----------------------------------------------------------------------------------------------------
    def store(self, index: int, op: MemoryOp, address: Any, mask: Array | None, *values: Any) -> None:
        """Note what becomes of memory."""
        lanes = self._mask(mask)
        if not lanes.any():
            return
        op, address = self._placed(index, op, address, lanes)
        if op.space == "global":
            address, number = self._global(index, op, address, lanes)
            self._record(index, op, "global", lanes, address)
            for value in values if op.width >= 4 else [known_to_be(u32)]:
                self.world.store(number, value)
            key = self._key(op, address, number)
            old = self.own.get(key)
            self.own[key] = lanes if old is None else old | lanes
        elif op.space == "shared":
            address = self._shared(index, op, address, lanes)
            self._record(index, op, "shared", lanes, address)
            self._put_shared(op, address, lanes, values)
        else:
            address = self._local_place(index, op, address, lanes)
            self._record(index, op, "local", lanes, address)
            if op.width < 4 or address.size > 1:
                self.scattered = True
                return
            for k, value in enumerate(values):
                place = int(address.item()) + 4 * k
                old = self.cells.get(place, np.zeros((1, 1), u32))
                self.cells[place] = value if lanes.all() else choose(lanes, value, old)

    def _put_shared(self, op: MemoryOp, address: Any, mask: Array, values: tuple[Any, ...]) -> None:
        if isinstance(address, Sep):
            self.kind[:] = UNKNOWN
            return
        offsets = _wide(address, mask.shape)[mask].astype(i64)
        for k, value in enumerate(values):
            units = (offsets >> 2) + k
            if not isinstance(value, SYMBOLIC):
                size = min(op.width, 4)
                flat = self.chunk.shared_flat.view(f"u{size}")
                flat[offsets // size + k] = _wide(value, mask.shape)[mask].astype(flat.dtype)
                if op.width >= 4:
                    self.kind[units] = KNOWN
                else:  # the other bytes of a word with bounds are not known
                    self.kind[units[self.kind[units] == BOUNDED]] = UNKNOWN
                continue
            bounds = bounds_of(value) if op.width >= 4 and not isinstance(value, Truth) else None
            self.kind[units] = UNKNOWN if bounds is None else BOUNDED
            if bounds is not None:
                self.least[units], self.most[units] = bounds

    # -- what leaves nothing known -----------------------------------------------------------------------------------
    def atomic(self, index: int, op: MemoryOp, address: Any, mask: Array | None, *values: Any) -> tuple[Any, ...]:
        """An atomic whose effect matters: what it leaves and returns is not known."""
        lanes = self._mask(mask)
        words = tuple(known_to_be(u32) for _ in range(max(1, op.width // 4)))
        if lanes.any():
            op, address = self._placed(index, op, address, lanes)
            if op.space != "global" and op.element in ("f16", "bf16"):
                raise self._undecided(index, "a packed atomic outside of global memory")
            if op.space == "global":
                address, number = self._global(index, op, address, lanes)
                self._record(index, op, "global", lanes, address)
                self.world.store(number, known_to_be(u32))
            else:
                address = self._shared(index, op, address, lanes)
                self._record(index, op, "shared", lanes, address)
                self._put_shared(op, address, lanes, words)
        if op.atomic == "cast" and op.success is not None:
            return (Truth(),)
        return words if op.success is None else (*words, Truth())

    def matrix_load(self, index: int, op: MemoryOp, address: Any, mask: Array | None) -> tuple[Any, ...]:
        self.touch(index, op, address, mask)
        return tuple(known_to_be(u32) for _ in range(op.matrices))

    def matrix_store(self, index: int, op: MemoryOp, address: Any, mask: Array | None, *values: Any) -> None:
        self.touch(index, op, address, mask)
        self.kind[:] = UNKNOWN

    def copy(
        self, index: int, op: MemoryOp, target: Any, origin: Any, mask: Array | None, condition: Any = None
    ) -> None:
        self.touch_copy(index, op, target, origin, mask, condition)
        lanes = self._mask(mask)
        if lanes.any():
            self._put_shared(op, target, lanes, tuple(known_to_be(u32) for _ in range(op.width // 4)))


def _take(raw: Array, places: Array, op: MemoryOp) -> list[Array]:
    """Words at byte offsets of a buffer, narrow elements extended."""
    size = min(op.width, 4)
    kind = f"{'i' if op.signed and size < 4 else 'u'}{size}"
    elements = raw[: raw.nbytes // size * size].view(kind)
    if size < 4:
        found = elements[places // size]
        return [found.astype(np.int32).view(u32) if op.signed else found.astype(u32)]
    return [elements[places // size + k] for k in range(op.width // 4)]


def _wide(array: Array, shape: tuple[int, ...]) -> Array:
    """np.broadcast_to, which takes its time, only where it is needed."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


def _rows(address: Any, mask: Array, threads: int) -> tuple[Array, int]:
    """(offsets of all threads from a place, that place): lanes that take no part stand where one that does is."""
    if isinstance(address, Sep):
        thread = address.parts[0]
        numbers, base = (np.zeros(threads, i64) if thread is None else thread.values), address.c
    else:
        numbers, base = _wide(address, mask.shape)[0].astype(i64), 0
    first = int(numbers[int(mask[0].argmax())])
    return np.where(mask[0], numbers - first, 0), base + first


def _pattern(address: Any, mask: Array, threads: int, everyone: bool) -> tuple[Any, ...]:
    """What an address has in common with all others that count the same."""
    if not isinstance(address, Sep) and address.size == 1:
        return (int(address.item()) % LINE_BYTES,)
    thread = address.parts[0] if isinstance(address, Sep) else None
    if everyone and thread is not None:
        key: tuple[Any, ...] = (thread.steps, (address.c + int(thread.values[0])) % LINE_BYTES)
    else:
        numbers, base = _rows(address, mask, threads)
        key = (numbers.tobytes(), base % LINE_BYTES)
    if isinstance(address, Sep):
        key += tuple(None if p is None else p.phase_key for p in address.parts[1:])
    return key


def _by_phase(addresses: tuple[Any, ...], mask: Array, threads: int) -> list[tuple[list[Array], int]]:
    """The addresses as arrays (1, T) for each way the blocks' lines can lie, and how many blocks have it.

    The first is the first block's own.
    """
    varying = [a for a in addresses if isinstance(a, Sep)]
    if not varying:
        return [([_as_row(a, mask) for a in addresses], 1)]
    (address,) = varying  # one address at most depends on the block
    numbers, base = _rows(address, mask, threads)
    own = base + sum(int(p.values[0]) for p in address.parts[1:] if p is not None)
    counts = np.zeros(LINE_BYTES, np.int64)
    counts[base % LINE_BYTES] = 1
    for part in address.parts[1:]:
        if part is not None:
            counts = _spread(counts, part.phases)
    low = min(int(numbers.min()), 0)
    lift = -(low // LINE_BYTES) * LINE_BYTES
    phases = [own % LINE_BYTES, *(int(p) for p in np.flatnonzero(counts) if p != own % LINE_BYTES)]
    found: list[tuple[list[Array], int]] = []
    for phase in phases:
        start = own if not found else lift + phase
        row = (numbers + start)[None]
        found.append(([row if a is address else _as_row(a, mask) for a in addresses], int(counts[phase])))
    return found


def _as_row(address: Array, mask: Array) -> Array:
    if address.dtype == bool:
        return address
    wide = _wide(address, mask.shape).astype(i64)
    return np.where(mask, wide, int(wide[mask][0]))


def _spread(counts: Array, phases: Array) -> Array:
    """How many sums of one of each have each remainder modulo 128."""
    total = np.zeros(LINE_BYTES, np.int64)
    for shift in np.flatnonzero(phases):
        total += np.roll(counts, int(shift)) * int(phases[shift])
    return total
