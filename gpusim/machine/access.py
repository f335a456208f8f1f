"""Executing loads, stores and atomics on a chunk: bounds and alignment checks, the data, the events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpusim.errors import ExecutionError
from gpusim.machine import memory as spaces
from gpusim.machine.atomics import add_vectors, apply_atomic, cast_spin_winners
from gpusim.machine.chunk import Chunk
from gpusim.machine.events import Access
from gpusim.machine.memory import DeviceMemory
from gpusim.machine.outer import Outer, plain, words_of
from gpusim.machine.places import LoadGroup, SharedPlaces
from gpusim.sass.form import MemoryOp
from gpusim.sass.numeric import either, progression

Array = np.ndarray[Any, Any]
u32, u64, i64 = np.uint32, np.uint64, np.int64


def _narrow(value: Array, width: int, signed: bool) -> Array:
    """Zero- or sign-extend loaded bytes or halfwords to a word."""
    if signed:
        return value.view(np.int8 if width == 1 else np.int16).astype(np.int32).view(u32)
    return value.astype(u32)


def _join(mask: Array | None, *values: Array) -> tuple[Array, list[Array]]:
    """Select the active lanes of values of broadcastable shapes, flat, in lane order."""
    shape = np.broadcast_shapes(*(v.shape for v in values), *(() if mask is None else (mask.shape,)))
    if mask is None:
        return np.ones(shape, bool), [np.broadcast_to(v, shape).reshape(-1) for v in values]
    chosen = np.broadcast_to(mask, shape)
    if len(shape) == 2 and mask.shape[0] == 1 < shape[0]:  # the same lanes in all blocks
        columns = progression(chosen[0])
        picked: Any = np.flatnonzero(chosen[0]) if columns is None else columns
        return chosen, [np.broadcast_to(v, shape)[:, picked].reshape(-1) for v in values]
    return chosen, [np.broadcast_to(v, shape)[chosen] for v in values]


class Accesses:
    """Carries out loads, stores and atomics.  ``describe(index)`` names an instruction for error messages."""

    def __init__(
        self,
        chunk: Chunk,
        device: DeviceMemory,
        shared_start: int,
        listen: Callable[[Access], None],
        describe: Callable[[int], str],
    ) -> None:
        self.chunk, self.device = chunk, device
        self.shared_start = shared_start
        self.listen, self.describe = listen, describe
        self.base = u64(device.base)
        self.places = SharedPlaces(chunk)
        # accesses to shared memory by instruction and offsets, and how many more times they happened
        self.again: dict[tuple[int, int], list[Any]] | None = None
        self.sums: Array | None = None  # where to add instead of in device memory, words at the same places

    # -- common ----------------------------------------------------------------------------------------------------
    def begin(self, repeats: bool) -> None:
        """The chunk has been started; ``repeats``: listeners can be told how many times something happened."""
        self.again = {} if repeats else None
        self.places.begin()

    def _event(
        self,
        index: int,
        op: MemoryOp,
        space: str,
        addresses: Array | Outer,
        mask: Array | None,
        origin: Array | None = None,
        reading: Array | None = None,
    ) -> Access:
        """Tell of an access, and return what was told."""
        chunk = self.chunk
        event = Access(
            index, op, space, addresses, mask, chunk.m, chunk.first_block, chunk.blocks, chunk.threads, origin, reading,
            chunk.numbers,
        )  # fmt: skip
        self.listen(event)
        return event

    def _shared_event(self, index: int, op: MemoryOp, offsets: Array, mask: Array | None) -> None:
        """Tell of an access to shared memory, or only note that it happened again."""
        if self.again is None or offsets.flags.writeable or self.chunk.m is not None:
            self._event(index, op, "shared", offsets, mask)
            return
        known = self.again.get((index, id(offsets)))
        if known is None:
            self.again[index, id(offsets)] = [self._event(index, op, "shared", offsets, mask), 0]
        else:
            known[1] += 1

    def tell(self, listeners: Sequence[Any]) -> None:
        """Tell of the accesses that were noted."""
        for event, times in (self.again or {}).values():
            if times:
                for listener in listeners:
                    listener.access(event, times)
        self.again = None

    def _fault(self, index: int, what: str, bad: Array, addresses: Array, space: str) -> ExecutionError:
        """The error for the first bad lane: thread, block, address, instruction, source line, nearest buffer."""
        chunk = self.chunk
        shape = (chunk.blocks, chunk.threads)
        block, thread = (int(x) for x in np.argwhere(np.broadcast_to(bad, shape))[0])
        address = int(np.broadcast_to(addresses, shape)[block, thread])
        number = int(chunk.numbers[block])
        gx, gy, _ = chunk.grid
        bx, by, _ = chunk.block
        block_at = (number % gx, number // gx % gy, number // (gx * gy))
        thread_at = (thread % bx, thread // bx % by, thread // (bx * by))
        near = ""
        if space == "global":
            near = f"; {self.device.nearest(address)}"
        elif space == "shared":
            size = chunk.shared_bytes - self.shared_start
            address -= self.shared_start
            near = f"; the block has {size} bytes of shared memory"
        elif space == "local":
            near = f"; a thread has {chunk.local_bytes} bytes of local memory"
        return ExecutionError(
            f"{what} at {space} address {address:#x} by thread {thread_at} of block {block_at}, "
            f"{self.describe(index)}{near}"
        )

    def _anyone(self, mask: Array | None) -> bool:
        return mask is None or bool(mask.any())

    def _exact(self, mask: Array | None) -> Array:
        return np.ones((1, 1), bool) if mask is None else mask

    def _checked_global(
        self, index: int, addresses: Array, mask: Array | None, width: int, writing: bool = False
    ) -> Array:
        """Byte offsets into device memory; inactive lanes get the offset of an active one."""
        offsets = (addresses - self.base).view(i64)
        if mask is not None:
            shape = np.broadcast_shapes(offsets.shape, mask.shape)
            wide_mask = np.broadcast_to(mask, shape)
            first = int(np.argmax(wide_mask))
            offsets = np.broadcast_to(offsets, shape)
            offsets = either(wide_mask, offsets, offsets.reshape(-1)[first])
        low, high = int(offsets.min()), int(offsets.max())
        if width > 1 and int(np.bitwise_or.reduce(offsets, axis=None)) & (width - 1):
            bad = ((offsets & (width - 1)) != 0) & self._exact(mask)
            raise self._fault(index, f"misaligned {width}-byte access", bad, addresses, "global")
        if not self.device.inside(low, high + width - 1):
            outside = self.device.outside_mask(offsets, width) & self._exact(mask)
            if outside.any():
                raise self._fault(index, f"{width}-byte access outside every buffer", outside, addresses, "global")
        if writing:
            self.device.note_writing(low, high + width - 1)
        return offsets

    def _known_global(self, address: Any, width: int) -> Outer | None:
        """The address if it is a sum that is certainly right in all threads, those that do not take part included."""
        known = address.canonical() if isinstance(address, Outer) else None
        if known is None or not known.aligned(width):
            return None
        base = self.device.base
        return known if self.device.inside(known.low - base, known.high - base + width - 1) else None

    def _table(self, width: int) -> Array:
        """Device memory in elements of ``width`` bytes, at most 4."""
        return self.device.bytes if width == 1 else self.device.words16 if width == 2 else self.device.words32

    def _checked_shared(self, index: int, addresses: Array, mask: Array | None, width: int) -> Array:
        """Byte offsets into a block's shared memory; inactive lanes get a harmless one.

        Those that all blocks share are checked once: loops come back to them.
        """
        if mask is None and addresses.shape[0] == 1:
            return self.places.checked(addresses, width, lambda: self._check_shared(index, addresses, None, width))
        return self._check_shared(index, addresses, mask, width)

    def _check_shared(self, index: int, addresses: Array, mask: Array | None, width: int) -> Array:
        offsets = addresses.astype(i64)
        if mask is not None:
            addresses = offsets = either(mask, offsets, self.shared_start)
        if width > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (width - 1):
            bad = ((offsets & (width - 1)) != 0) & self._exact(mask)
            raise self._fault(index, f"misaligned {width}-byte access", bad, offsets, "shared")
        if addresses.min() < self.shared_start or int(addresses.max()) + width > self.chunk.shared_bytes:
            outside = (offsets < self.shared_start) | (offsets + width > self.chunk.shared_bytes)
            outside = outside & self._exact(mask)
            if outside.any():
                raise self._fault(
                    index, f"{width}-byte access outside the block's shared memory", outside, offsets, "shared"
                )
        return offsets

    # -- loads and stores ------------------------------------------------------------------------------------------
    def _nothing(self, op: MemoryOp) -> tuple[Array, ...]:
        words = tuple(np.zeros((1, 1), u32) for _ in range(max(1, op.width // 4)))
        if op.success is None:
            return words
        nowhere = np.zeros((1, 1), bool)
        return (nowhere,) if op.atomic == "cast" else (*words, nowhere)

    def load(self, index: int, op: MemoryOp, address: Array, mask: Array | None) -> tuple[Array, ...]:
        """Words loaded by each lane."""
        if op.space != "global":
            address = plain(address)
        if op.space == "generic":
            return self._generic_load(index, op, address, mask)
        if not self._anyone(mask):
            self._event(index, op, op.space, address.astype(i64), mask)
            return self._nothing(op)
        if op.space == "global":
            return self._load_global(index, op, address, mask)
        if op.space == "shared":
            return self._load_shared(index, op, address, mask)
        return self._load_local(index, op, address, mask)

    def _load_global(self, index: int, op: MemoryOp, address: Any, mask: Array | None) -> tuple[Array, ...]:
        known = self._known_global(address, op.width)
        if known is not None:
            self._event(index, op, "global", known.view(i64), mask)
            table = self._table(op.width)
            if op.width > 4:
                table = table.view(f"V{op.width}")
            spread, first = known.spread(self.chunk.threads, table.itemsize, self.device.base)
            found = spread.take(table, first)
            if op.width < 4:
                return (_narrow(found, op.width, op.signed),)
            return (found,) if op.width == 4 else words_of(found)
        address = plain(address)
        offsets = self._checked_global(index, address, mask, op.width)
        same = mask is None and address.dtype == u64
        self._event(index, op, "global", address.view(i64) if same else offsets + self.device.base, mask)
        if op.width < 4:
            return (_narrow(np.take(self._table(op.width), offsets >> (op.width - 1)), op.width, op.signed),)
        if op.width == 4:
            return (self.device.words32.take(offsets >> 2),)
        return words_of(self.device.words32.view(f"V{op.width}").take(offsets >> (op.width.bit_length() - 1)))

    def _load_shared(self, index: int, op: MemoryOp, address: Array, mask: Array | None) -> tuple[Array, ...]:
        offsets = self._checked_shared(index, address, mask, op.width)
        self._shared_event(index, op, offsets, mask)
        view: Any = {1: np.uint8, 2: np.uint16, 4: u32}.get(op.width, f"V{op.width}")
        shift = op.width.bit_length() - 1
        if offsets.shape[0] == 1:
            found = self.chunk.shared.view(view).take(offsets[0] >> shift, axis=1)
        else:
            found = self.chunk.shared_flat.view(view).take((offsets + self.chunk.shared_rows) >> shift)
        if op.width < 4:
            return (_narrow(found, op.width, op.signed),)
        return (found,) if op.width == 4 else words_of(found)

    def load_group(self, group: LoadGroup, bases: Sequence[Any], mask: Array | None) -> Sequence[Array]:
        """Words of several loads from shared memory; ``bases``: the addresses that they start from."""
        addresses = [plain(base) for base in bases]
        known = None
        if mask is None:
            known = self.places.of_group(
                group, addresses, lambda index, op, place: self._checked_shared(index, place, None, op.width)
            )
        if known is None:
            found: list[Array] = []
            for index, op, base, offset in zip(group.indices, group.ops, group.bases, group.offsets, strict=True):
                found.extend(self._load_shared(index, op, addresses[base] + offset, mask))
            return found
        for index, op, offsets in zip(group.indices, group.ops, known.offsets, strict=True):
            self._shared_event(index, op, offsets, None)
        return known.load(self.chunk)

    def _local_units(self, index: int, op: MemoryOp, address: Array, mask: Array | None) -> Array:
        offsets = address.astype(i64)
        if mask is not None:
            offsets = either(mask, offsets, 0)
        bad = (offsets & (op.width - 1)) != 0
        if bad.any():
            raise self._fault(index, f"misaligned {op.width}-byte access", bad & self._exact(mask), address, "local")
        outside = (offsets < 0) | (offsets + op.width > self.chunk.local_bytes)
        if outside.any():
            raise self._fault(
                index, "access outside the thread's local memory", outside & self._exact(mask), address, "local"
            )
        self._event(index, op, "local", offsets, mask)
        return offsets

    def _load_local(self, index: int, op: MemoryOp, address: Array, mask: Array | None) -> tuple[Array, ...]:
        offsets = self._local_units(index, op, address, mask)
        table = self.chunk.local
        words = max(1, op.width // 4)
        if offsets.size == 1:
            found = [table[int(offsets.item()) // 4 + k].copy() for k in range(words)]
        else:
            block, thread = np.ogrid[: self.chunk.blocks, : self.chunk.threads]
            found = [table[(offsets >> 2) + k, block, thread] for k in range(words)]
        if op.width < 4:
            shift = ((offsets & 3) * 8).astype(u32)
            part = (found[0] >> shift).astype(np.uint8 if op.width == 1 else np.uint16)
            return (_narrow(part, op.width, op.signed),)
        return tuple(found)

    def store(self, index: int, op: MemoryOp, address: Array, mask: Array | None, *values: Array) -> None:
        """Write each lane's words; of lanes that write the same place the last one wins."""
        known = self._known_global(address, op.width) if op.space == "global" and mask is None else None
        if known is not None:
            self._event(index, op, "global", known.view(i64), mask)
            self.device.note_writing(known.low - self.device.base, known.high - self.device.base + op.width - 1)
            table = self._table(op.width)
            spread, first = known.spread(self.chunk.threads, table.itemsize, self.device.base)
            for k, value in enumerate(values):
                spread.put(table, first + k, value.astype(table.dtype, copy=False))
            return
        address = plain(address)
        if op.space == "generic":
            self._generic_store(index, op, address, mask, values)
            return
        if not self._anyone(mask):
            self._event(index, op, op.space, address.astype(i64), mask)
            return
        if op.space == "local":
            self._store_local(index, op, address, mask, values)
            return
        if op.space == "global":
            offsets = self._checked_global(index, address, mask, op.width, writing=True)
            self._event(index, op, "global", offsets + self.device.base, mask)
            target = self.device.bytes
        else:
            offsets = self._checked_shared(index, address, mask, op.width)
            self._shared_event(index, op, offsets, mask)
            target = self.chunk.shared_flat
            if mask is None:
                self._put(target, self.places.units(offsets, min(op.width, 4).bit_length() - 1), op.width, values)
                return
            offsets = offsets + self.chunk.shared_rows
        self._write(target, offsets, op.width, mask, values)

    def _write(self, target: Array, offsets: Array, width: int, mask: Array | None, values: tuple[Array, ...]) -> None:
        """Write lanes' words at byte offsets."""
        shift = min(width, 4).bit_length() - 1
        if mask is None:
            self._put(target, offsets >> shift, width, values)
        else:
            _, (chosen, *flat) = _join(mask, offsets, *values)
            self._put(target, chosen >> shift, width, flat)

    @staticmethod
    def _put(target: Array, units: Array, width: int, values: Sequence[Array]) -> None:
        """Write words, or one byte or halfword, from these element numbers on."""
        kinds: dict[int, Any] = {1: np.uint8, 2: np.uint16}
        kind = kinds.get(width, u32)
        memory = target.view(kind)
        for k, value in enumerate(values):
            where = units + k if k else units
            if any(one < other for one, other in zip(where.shape, value.shape, strict=True)):
                where = np.broadcast_to(where, np.broadcast_shapes(where.shape, value.shape))
            memory[where] = value.astype(kind) if width < 4 else value

    def _store_local(
        self, index: int, op: MemoryOp, address: Array, mask: Array | None, values: tuple[Array, ...]
    ) -> None:
        offsets = self._local_units(index, op, address, mask)
        table = self.chunk.local
        if mask is None and offsets.size == 1 and op.width >= 4:
            for k, value in enumerate(values):
                table[int(offsets.item()) // 4 + k] = value
            return
        shape = (self.chunk.blocks, self.chunk.threads)
        chosen = np.broadcast_to(self._exact(mask), shape)
        block, thread = np.nonzero(chosen)
        where = np.broadcast_to(offsets, shape)[chosen]
        for k, value in enumerate(values):
            lane_values = np.broadcast_to(value, shape)[chosen]
            if op.width < 4:
                shift = ((where & 3) * 8).astype(u32)
                keep = ~(u32((1 << 8 * op.width) - 1) << shift)
                fresh = (lane_values & u32((1 << 8 * op.width) - 1)) << shift
                lane_values = (table[where >> 2, block, thread] & keep) | fresh
            table[(where >> 2) + k, block, thread] = lane_values

    # -- generic addresses -----------------------------------------------------------------------------------------
    def _split(self, address: Array, mask: Array | None) -> list[tuple[str, Array, Array]]:
        """(space, address in that space, mask) of the lanes of a generic access."""
        exact = self._exact(mask)
        parts = []
        rest = np.ones((1, 1), bool)
        for space, window in (("shared", spaces.SHARED_WINDOW), ("local", spaces.LOCAL_WINDOW)):
            inside = (address >= u64(window)) & (address < u64(window + spaces.WINDOW_BYTES))
            rest = rest & ~inside
            lanes = inside & exact
            if lanes.any():
                parts.append((space, (address - u64(window)).astype(u32), lanes))
        lanes = rest & exact
        if lanes.any() or not parts:
            parts.append(("global", address, lanes))
        return parts

    def _as(self, op: MemoryOp, space: str) -> MemoryOp:
        from dataclasses import replace

        return replace(op, space=space)  # type: ignore[arg-type]

    def _generic_load(self, index: int, op: MemoryOp, address: Array, mask: Array | None) -> tuple[Array, ...]:
        result = self._nothing(op)
        for space, where, lanes in self._split(address, mask):
            loaded = self.load(index, self._as(op, space), where, lanes)
            result = tuple(either(lanes, new, old) for new, old in zip(loaded, result, strict=True))
        return result

    def _generic_store(
        self, index: int, op: MemoryOp, address: Array, mask: Array | None, values: tuple[Array, ...]
    ) -> None:
        for space, where, lanes in self._split(address, mask):
            self.store(index, self._as(op, space), where, lanes, *values)

    # -- atomics ---------------------------------------------------------------------------------------------------
    def atomic(self, index: int, op: MemoryOp, address: Array, mask: Array | None, *values: Array) -> tuple[Array, ...]:
        """Apply an atomic; returns the words of the old contents (of 1 for a lane whose cast stored).

        With a predicate result that says where it was done, that is the last item.
        """
        address = plain(address)
        if op.space == "generic":
            result = self._nothing(op)
            for space, where, lanes in self._split(address, mask):
                if space != "global" and op.element in ("f16", "bf16"):
                    continue  # not done there: the predicate sends such lanes to a loop over compare-and-swap
                got = self.atomic(index, self._as(op, space), where, lanes, *values)
                result = tuple(either(lanes, new, old) for new, old in zip(got, result, strict=True))
            return result
        if not self._anyone(mask):
            self._event(index, op, op.space, address.astype(i64), mask)
            return self._nothing(op)
        if op.space == "global":
            offsets = self._checked_global(index, address, mask, op.width, writing=True)
            self._event(index, op, "global", offsets + self.device.base, mask)
            target = self.device.bytes
            if self.sums is not None and op.operation == "reduce":
                target = self.sums.view(np.uint8)
        elif op.space == "shared":
            offsets = self._checked_shared(index, address, mask, op.width)
            self._event(index, op, "shared", offsets, mask)
            target, offsets = self.chunk.shared_flat, offsets + self.chunk.shared_rows
        else:
            raise ExecutionError(f"an atomic operation on local memory, {self.describe(index)}")
        shape = (self.chunk.blocks, self.chunk.threads)
        chosen = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
        if op.atomic == "cast":
            rows = np.broadcast_to(offsets - self.chunk.shared_rows, shape).reshape(-1, 32)
            mask = chosen = cast_spin_winners(rows, chosen.reshape(-1, 32), op.width).reshape(shape)
        wide = [v if v.shape == shape else np.broadcast_to(v, shape) for v in (offsets, *values)]
        lanes_of = [v.reshape(-1) if mask is None else v[chosen] for v in wide]
        kind: Any = u32 if op.width == 4 else u64
        where = lanes_of[0] >> (op.width.bit_length() - 1)
        words = lanes_of[1:]
        if op.vector > 1:
            wants = op.dest is not None and not op.dest.is_sink
            before = add_vectors(target, lanes_of[0], op.element, op.vector, words, wants)
            return (*(self._scattered(word, chosen) for word in before or [words[0]]), *self._done(op, chosen))
        if op.width == 8:
            words = [lo.astype(u64) | hi.astype(u64) << u64(32) for lo, hi in zip(words[::2], words[1::2], strict=True)]
        assert op.atomic is not None
        wanted = op.atomic == "cast" or (op.dest is not None and not op.dest.is_sink)
        old = apply_atomic(
            target.view(kind), where, op.atomic, op.element, tuple(np.ascontiguousarray(w) for w in words), wanted
        )
        if old is None:
            return self._nothing(op)
        if op.atomic == "cast":
            old = (old == words[0]).astype(kind)
        result_words = [old] if op.width == 4 else [old.astype(u32), (old >> u64(32)).astype(u32)]
        if op.atomic == "cast" and op.success is not None:
            return (self._scattered(old, chosen).astype(bool),)
        return (*(self._scattered(word, chosen) for word in result_words), *self._done(op, chosen))

    def _scattered(self, values: Array, chosen: Array) -> Array:
        """Values of the chosen lanes back in their places."""
        full = np.zeros(chosen.shape, values.dtype)
        full[chosen] = values
        return full

    def _done(self, op: MemoryOp, chosen: Array) -> tuple[Array, ...]:
        """The predicate result, if the operation has one."""
        return () if op.success is None else (chosen,)
