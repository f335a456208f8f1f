"""Executing memory instructions on a chunk: what is more than a load, a store or an atomic."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.errors import ExecutionError
from gpusim.machine import mbarrier
from gpusim.machine.access import Accesses
from gpusim.machine.outer import plain
from gpusim.sass.form import MemoryOp
from gpusim.sass.numeric import either

Array = np.ndarray[Any, Any]
u32, u64, i64 = np.uint32, np.uint64, np.int64


def _first_bytes(word: Array, count: Array) -> Array:
    """The first ``count`` bytes (0 to 4; less or more are cut) of words, zeros after them."""
    bits = (8 * np.clip(count, 0, 4)).astype(u64)
    return (word.astype(u64) & ((u64(1) << bits) - u64(1))).astype(u32)


def _left_out(op: MemoryOp, origin: Array) -> Array:
    """Bytes at the end of an asynchronous copy that are not read."""
    return origin & u64(op.width - 1 if op.partial else 0)


class MemoryUnit(Accesses):
    """Carries out MemoryOps for a chunk."""

    # -- asynchronous barriers ---------------------------------------------------------------------------------------
    def mbarrier(
        self, index: int, op: MemoryOp, address: Array, mask: Array | None, *values: Array
    ) -> tuple[Array, ...]:
        """An operation on asynchronous barriers: the words that arriving returns, or whether a phase is complete."""
        address = plain(address)
        shape = (self.chunk.blocks, self.chunk.threads)
        if not self._anyone(mask):
            nothing = np.zeros((1, 1), u32)
            return (np.zeros((1, 1), bool),) if op.atomic == "check" else (nothing, nothing)
        offsets = self._checked_shared(index, address, mask, op.width)
        chosen = np.broadcast_to(self._exact(mask), shape)
        place = np.broadcast_to(offsets + self.chunk.shared_rows, shape) >> 3
        lanes_of = [np.broadcast_to(value, shape)[chosen] for value in values]
        found = mbarrier.carry_out(op, self.chunk.shared_flat.view(u64), place, chosen, lanes_of)
        if op.atomic != "check":
            self.chunk.news += 1
        return tuple(self._scattered(word, chosen) for word in found)

    def waits(self, op: MemoryOp, address: Array, phase: Array, lanes: Array) -> Array:
        """The lanes of a check whose phase is not complete; places that are no barrier's are left to the check."""
        address = plain(address)
        shape = (self.chunk.blocks, self.chunk.threads)
        lanes = np.broadcast_to(lanes, shape)
        offsets = np.broadcast_to(address.astype(i64), shape)
        lanes = lanes & (offsets % op.width == 0) & (offsets >= 0) & (offsets + op.width <= self.chunk.shared_bytes)
        place = (offsets + self.chunk.shared_rows)[lanes] >> 3
        memory = self.chunk.shared_flat.view(u64)
        return self._scattered(~mbarrier.complete(memory, place, np.broadcast_to(phase, shape)[lanes]), lanes)

    # -- matrices and asynchronous copies --------------------------------------------------------------------------
    def _matrix_rows(self, index: int, op: MemoryOp, address: Array, mask: Array | None) -> tuple[Array, Array]:
        """Flat 4-byte word index of each lane's row, as (b, warps, 32); the exact mask in the event."""
        address = plain(address)
        lanes = 8 * op.matrices
        used = (self.chunk.lane_ids < lanes) & self._exact(mask)
        offsets = self._checked_shared(index, address, used, op.width)
        self._event(index, op, "shared", offsets, mask)
        rows = np.broadcast_to(offsets, (self.chunk.blocks, self.chunk.threads)) + self.chunk.shared_rows
        return (rows >> 2).reshape(self.chunk.blocks, -1, 32), used

    def matrix_load(self, index: int, op: MemoryOp, address: Array, mask: Array | None) -> tuple[Array, ...]:
        """ldmatrix: lane l receives elements (l/4, 2*(l%4)) and the next one of each matrix (transposed: swapped)."""
        if not self._anyone(mask):
            return tuple(np.zeros((1, 1), u32) for _ in range(op.matrices))
        rows, _ = self._matrix_rows(index, op, address, mask)
        flat = self.chunk.shared_flat.view(u32)
        lane = np.arange(32)
        shape = (self.chunk.blocks, self.chunk.threads)
        found = []
        for matrix in range(op.matrices):
            if not op.transposed:
                words = flat[rows[:, :, 8 * matrix + lane // 4] + lane % 4]
            else:
                halves = self.chunk.shared_flat.view(np.uint16)
                column = lane // 4
                parts = []
                for element in range(2):
                    row = rows[:, :, 8 * matrix + 2 * (lane % 4) + element]
                    parts.append(halves[row * 2 + column].astype(u32))
                words = parts[0] | parts[1] << u32(16)
            found.append(words.reshape(shape))
        return tuple(found)

    def matrix_store(self, index: int, op: MemoryOp, address: Array, mask: Array | None, *values: Array) -> None:
        """stmatrix: the reverse of matrix_load."""
        if not self._anyone(mask):
            return
        rows, _ = self._matrix_rows(index, op, address, mask)
        lane = np.arange(32)
        shape = (self.chunk.blocks, self.chunk.threads // 32, 32)
        warps = np.broadcast_to(self._exact(mask), (*shape[:1], self.chunk.threads)).reshape(shape)[:, :, 0]
        for matrix, value in enumerate(values):
            words = np.broadcast_to(value, (shape[0], self.chunk.threads)).reshape(shape)[warps]
            if not op.transposed:
                where = rows[:, :, 8 * matrix + lane // 4] + lane % 4
                self.chunk.shared_flat.view(u32)[where[warps]] = words
                continue
            halves = self.chunk.shared_flat.view(np.uint16)
            for element in range(2):
                row = rows[:, :, 8 * matrix + 2 * (lane % 4) + element]
                halves[(row * 2 + lane // 4)[warps]] = (words >> u32(16 * element)).astype(np.uint16)

    def copy(
        self, index: int, op: MemoryOp, target: Array, origin: Array, mask: Array | None, condition: Array | None = None
    ) -> None:
        """cp.async: global to shared, at once.  Lanes whose ``condition`` fails read nothing and write zeros."""
        left_out = _left_out(op, origin)
        source, offsets, reads = self._copy_events(index, op, target, origin, mask, condition)
        if not self._anyone(mask):
            return
        words = tuple(np.zeros((1, 1), u32) for _ in range(op.width // 4))
        if reads:
            words = tuple(np.take(self.device.words32, (source >> 2) + k) for k in range(op.width // 4))
            if op.partial:
                words = tuple(_first_bytes(word, op.width - left_out.view(i64) - 4 * k) for k, word in enumerate(words))
            if condition is not None:
                words = tuple(either(condition, word, u32(0)) for word in words)
        self._write(self.chunk.shared_flat, offsets + self.chunk.shared_rows, op.width, mask, words)

    def _copy_events(
        self, index: int, op: MemoryOp, target: Array, origin: Array, mask: Array | None, condition: Array | None
    ) -> tuple[Array, Array, bool]:
        """Checks and both events of an asynchronous copy: (offsets read, offsets written, whether any lane reads)."""
        target, origin = plain(target), plain(origin)
        reading = mask
        if condition is not None:
            reading = condition if mask is None else condition & mask
        reads = self._anyone(reading)
        left_out = _left_out(op, origin)
        origin = origin - left_out
        source = self._copy_source(index, op, origin, left_out, reading) if reads else np.zeros((1, 1), i64)
        offsets = self._checked_shared(index, target, mask, op.width) if self._anyone(mask) else target.astype(i64)
        place = source + self.device.base
        self._event(index, op, "global", place, reading)
        if op.partial:
            place = origin.view(i64)  # lanes that read nothing count with their address
        self._event(index, op, "shared", offsets, mask, place, reading)
        return source, offsets, reads

    def _copy_source(self, index: int, op: MemoryOp, origin: Array, left_out: Array, reading: Array | None) -> Array:
        """Byte offsets into device memory that a copy reads from; only what is read must lie in a buffer."""
        if not op.partial:
            return self._checked_global(index, origin, reading, op.width)
        source = self._checked_global(index, origin, reading, 1)
        self._checked_global(index, origin + (u64(op.width - 1) - left_out), reading, 1)
        return source

    # -- counting alone --------------------------------------------------------------------------------------------
    def touch(self, index: int, op: MemoryOp, address: Array, mask: Array | None) -> None:
        """The access without its data: checks and the event."""
        if op.space == "generic":
            for space, where, lanes in self._split(address, mask):
                if op.operation in ("atomic", "reduce") and space != "global" and op.element in ("f16", "bf16"):
                    continue
                self.touch(index, self._as(op, space), where, lanes)
        elif op.operation in ("matrix_load", "matrix_store"):
            if self._anyone(mask):
                self._matrix_rows(index, op, address, mask)
        elif not self._anyone(mask):
            self._event(index, op, op.space, address.astype(i64), mask)
        elif op.space == "local":
            if op.operation in ("atomic", "reduce"):
                raise ExecutionError(f"an atomic operation on local memory, {self.describe(index)}")
            self._local_units(index, op, address, mask)
        elif op.space == "global":
            offsets = self._checked_global(index, address, mask, op.width)
            self._event(index, op, "global", offsets + self.device.base, mask)
        else:
            self._event(index, op, "shared", self._checked_shared(index, address, mask, op.width), mask)

    def touch_copy(
        self, index: int, op: MemoryOp, target: Array, origin: Array, mask: Array | None, condition: Array | None = None
    ) -> None:
        """An asynchronous copy without its data."""
        self._copy_events(index, op, target, origin, mask, condition)
