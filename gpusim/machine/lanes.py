"""What a warp-wide operation may see: the active lanes, their numbers, each other's values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.errors import UnsupportedError
from gpusim.machine import memory

if TYPE_CHECKING:
    from gpusim.machine.chunk import Chunk

Array = np.ndarray[Any, Any]
u32 = np.uint32
MULTIPROCESSORS, PLACES = 132, 64
_BITS = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)


class Lanes:
    """View of one chunk under a mask (None: every lane takes part)."""

    __slots__ = ("chunk", "mask")

    def __init__(self, chunk: Chunk, mask: Array | None) -> None:
        self.chunk = chunk
        self.mask = mask

    # -- shapes ----------------------------------------------------------------------------------------------------
    def _wide(self, value: Array) -> Array:
        """Broadcast over the threads of a block: (b, T)."""
        return np.broadcast_to(value, (value.shape[0], self.chunk.threads))

    def _warps(self, *values: Array) -> list[Array]:
        """The values as (b, warps, 32) with a common b."""
        rows = max(v.shape[0] for v in values)
        threads = self.chunk.threads
        return [np.broadcast_to(v, (rows, threads)).reshape(rows, threads // 32, 32) for v in values]

    def _active(self) -> Array:
        return np.ones((1, 1), bool) if self.mask is None else self.mask

    def _spread(self, per_warp: Array) -> Array:
        """One value a warp to all of its lanes: (b, warps) -> (b, T)."""
        return np.repeat(per_warp, 32, axis=1)

    # -- reads -----------------------------------------------------------------------------------------------------
    def special(self, name: str) -> Array:
        """A special register.  Raises UnsupportedError for one that has no defined value here."""
        chunk = self.chunk
        if name in chunk.special:
            return chunk.special[name]
        if name in ("SR_LANEID",):
            return self.lane_ids().astype(u32)
        if name in ("SR_SWINHI",):
            return np.full((1, 1), memory.SHARED_WINDOW >> 32, u32)
        if name in ("SR_LWINHI",):
            return np.full((1, 1), memory.LOCAL_WINDOW >> 32, u32)
        if name in ("SR_VIRTID", "SR_VIRTUALSMID", "SR_VIRTCFG"):
            return self._residence(name)
        if name in ("SR_CLOCKLO", "SR_GLOBALTIMERLO"):
            return self.clock(name, 32)
        if name in ("SR_CgaCtaId", "SRZ", "SR_CLOCKHI", "SR_GLOBALTIMERHI"):
            return np.zeros((1, 1), u32)
        lane = self.lane_ids().astype(u32)
        below = (u32(1) << lane) - u32(1)
        if name in ("SR_LTMASK",):
            return below
        if name in ("SR_LEMASK",):
            return below | (u32(1) << lane)
        if name in ("SR_EQMASK",):
            return u32(1) << lane
        if name in ("SR_GTMASK",):
            return ~(below | (u32(1) << lane))
        if name in ("SR_GEMASK",):
            return ~below
        raise UnsupportedError(f"the special register {name} has no defined value in the simulator")

    def _residence(self, name: str) -> Array:
        """Where a warp runs: defined, not exact, since nothing runs anywhere here.

        A block runs on the multiprocessor of its number modulo an H200's 132, its warps in places 0, 1, ...; a
        multiprocessor has places for 64 (where the fields are was read off compiled code).
        """
        chunk = self.chunk
        if name == "SR_VIRTCFG":
            return np.full((1, 1), PLACES << 8 | MULTIPROCESSORS << 20, u32)
        if name == "SR_VIRTID":
            return (chunk.warp_starts // 32 << 8).astype(u32)
        return (chunk.numbers % MULTIPROCESSORS).astype(u32)[:, None]

    def zero(self, bits: int) -> Array:
        return np.zeros((1, 1), np.uint64 if bits == 64 else u32)

    def clock(self, name: str, bits: int) -> Array:
        """A clock: defined (the number of warp instructions issued so far in this chunk), not exact."""
        if not name.startswith(("SR_CLOCK", "SR_GLOBALTIMER")):
            raise UnsupportedError(f"the special register {name} has no defined value in the simulator")
        return np.full((1, 1), self.chunk.ticks, np.uint64 if bits == 64 else u32)

    def keep(self, half: int, value: Array) -> tuple[()]:
        """Put words into half (0 low, 1 high) of Rpc."""
        kept = self.chunk.kept
        kept[half] = value if self.mask is None else np.where(self.mask, value, kept[half])
        return ()

    def kept(self, half: int) -> Array:
        return self.chunk.kept[half]

    def code_address(self, place: int) -> Array:
        """The address of the instruction at ``place`` (bytes within the program)."""
        return np.full((1, 1), self.chunk.code_base + place, np.uint64)

    def lane_ids(self) -> Array:
        """(1, T) lane number of each thread."""
        return self.chunk.lane_ids

    def by_warp(self, *values: Array) -> list[Array]:
        """The values as (blocks, warps, 32), with the same number of blocks each."""
        return self._warps(*values)

    def in_window(self, address: Array, window: str) -> Array:
        """Which generic addresses point into the shared (S) or local (L) window."""
        start = np.uint64({"S": memory.SHARED_WINDOW, "L": memory.LOCAL_WINDOW}[window])
        return (address >= start) & (address < start + np.uint64(memory.WINDOW_BYTES))

    # -- exchange --------------------------------------------------------------------------------------------------
    def gather(self, value: Array, source: Array) -> Array:
        """value of lane ``source`` (0..31) of the same warp."""
        value = self._wide(value)
        index = source + self.chunk.warp_starts
        if index.shape[0] == 1:
            return np.take(value, index[0], axis=1)
        return np.take_along_axis(np.broadcast_to(value, (index.shape[0], value.shape[1])), index, axis=1)

    def first_active(self, value: Array) -> Array:
        """Each warp's value in its first active lane."""
        if value.shape[1] == 1:
            return value
        values, active = self._warps(value, self._active())
        first = active.argmax(axis=2)[:, :, None]
        return self._spread(np.take_along_axis(values, first, axis=2)[:, :, 0])

    def ballot(self, predicate: Array) -> tuple[Array, Array, Array, Array]:
        """(ballot word, any, all, none) over the active lanes, spread to all lanes."""
        values, active = self._warps(predicate, self._active())
        true = values & active
        word = (true * _BITS).sum(axis=2, dtype=u32)
        some: Array = np.asarray(true.any(axis=2))
        every: Array = np.asarray((values | ~active).all(axis=2))
        return self._spread(word), self._spread(some), self._spread(every), self._spread(~some)

    def match(self, value: Array) -> tuple[Array, Array]:
        """(mask of active lanes with an equal value, whether all active lanes agree)."""
        values, active = self._warps(value, self._active())
        equal = (values[:, :, :, None] == values[:, :, None, :]) & active[:, :, None, :]
        word = (equal * _BITS).sum(axis=3, dtype=u32)
        everyone = (active * _BITS).sum(axis=2, dtype=u32)
        agree = (word == everyone[:, :, None]) | ~active
        rows = word.shape[0]
        return word.reshape(rows, -1), self._spread(np.asarray(agree.all(axis=2)))

    def reduce(self, value: Array, name: str) -> Array:
        """Reduction of int64 values over the active lanes."""
        values, active = self._warps(value, self._active())
        neutral = {"SUM": 0, "OR": 0, "XOR": 0, "AND": -1, "MIN": 1 << 40, "MAX": -(1 << 40)}[name]
        values = np.where(active, values, neutral)
        operation: Any = {
            "SUM": np.add, "OR": np.bitwise_or, "XOR": np.bitwise_xor, "AND": np.bitwise_and, "MIN": np.minimum,
            "MAX": np.maximum,
        }[name]  # fmt: skip
        return self._spread(operation.reduce(values, axis=2))

    def barrier_result(self, count: int) -> Any:
        """The last block-barrier reduction: the number (or truth) as a word, and as a predicate if asked for."""
        word = self.chunk.barrier_result
        return (word, word != 0) if count == 2 else word
