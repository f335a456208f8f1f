"""The counting listener: turns access and branch events into per-instruction counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.counters import rules
from gpusim.machine.events import Access, Branch
from gpusim.sass.form import MemoryOp
from gpusim.sass.program import Program

Array = np.ndarray[Any, Any]

LINE_BYTES = 128
ALL_LANES: Array = np.ones((1, 1), bool)

FIELDS = (
    "requests", "sectors", "sectors_ideal", "tags", "wavefronts", "wavefronts_ideal", "conflicts", "uniform",
    "divergent", "branch_targets",
)  # fmt: skip

BRANCH_OPCODES = ("BRA", "BRX", "BRXU", "JMP", "JMX", "CALL", "RET")


def shared_operation(op: MemoryOp) -> str:
    """The name of the wavefront counter that a shared access belongs to."""
    names = {"load": "ld", "store": "st", "matrix_load": "ldsm", "matrix_store": "stsm", "async_copy": "ldgsts"}
    return names.get(op.operation, "atom")


@dataclass(frozen=True)
class Counted:
    """Counters of a set of warps for one access, summed."""

    requests: int = 0
    sectors: int = 0
    sectors_ideal: int = 0
    tags: int = 0
    wavefronts: int = 0
    wavefronts_ideal: int = 0
    conflicts: int = 0


def count_rows(op: MemoryOp, space: str, addresses: Array, mask: Array) -> Counted:
    """Count warps given as rows: ``addresses`` int64 (n, 32), ``mask`` bool (n, 32).  Pure."""
    requests = int(rules.requests(mask).sum())
    if space == "shared":
        wavefronts, ideal, conflicts = _shared(op, addresses, mask)
        return Counted(
            requests=requests,
            wavefronts=int(wavefronts.sum()),
            wavefronts_ideal=int(ideal.sum()),
            conflicts=int(conflicts.sum()),
        )
    if space == "local":
        sectors = _local_sectors(addresses, mask, op.width)
        ideal = rules.global_sectors_ideal(mask, op.width)
        return Counted(requests=requests, sectors=int(sectors.sum()), sectors_ideal=int(ideal.sum()))
    tags = int(rules.global_tags(addresses, mask).sum())
    if op.operation in ("atomic", "reduce"):
        assert op.atomic is not None
        sectors = rules.global_atomic_sectors(addresses, mask, op.width, global_atomic_name(op))
    else:
        sectors = rules.global_sectors(addresses, mask, op.width)
    ideal = rules.global_sectors_ideal(mask, op.width)
    return Counted(requests, int(sectors.sum()), int(ideal.sum()), tags)


def global_atomic_name(op: MemoryOp) -> str:
    """The rule's name for a global atomic."""
    if op.atomic == "add" and op.element == "f32":
        return "fadd"
    return str(op.atomic)


def _shared(op: MemoryOp, addresses: Array, mask: Array) -> tuple[Array, Array, Array]:
    kind = shared_operation(op)
    if kind in ("ldsm", "stsm"):
        wavefronts = rules.matrix_wavefronts(addresses, mask, op.matrices)
        conflicts = rules.matrix_conflicts(addresses, mask, op.matrices)
        return wavefronts, wavefronts - conflicts, conflicts
    if kind == "atom":
        name = "cast_spin" if op.atomic == "cast" else str(op.atomic)
        wavefronts = rules.shared_atomic_wavefronts(addresses, mask, op.width, name)
        conflicts = rules.shared_atomic_conflicts(addresses, mask, op.width, name)
        return wavefronts, wavefronts - conflicts, conflicts
    ideal = rules.shared_wavefronts_ideal(mask, op.width)
    if kind == "ldgsts":
        wavefronts = rules.async_copy_wavefronts(addresses, mask, op.width, op.bypass)
        return wavefronts, ideal, rules.async_copy_conflicts(addresses, mask, op.width, op.bypass)
    wavefronts = rules.shared_wavefronts(addresses, mask, op.width, kind)
    conflicts = rules.shared_conflicts(addresses, mask, op.width, kind)
    return wavefronts, ideal, conflicts


def _local_sectors(addresses: Array, mask: Array, width: int) -> Array:
    """Local memory interleaves the lanes' 4-byte words: word w of lane l lies at 128*w + 4*l of the warp's area."""
    lane = np.arange(32, dtype=np.int64)
    total = np.zeros(addresses.shape[0], np.int64)
    for word in range(max(1, width // 4)):
        place = ((addresses >> 2) + word) * 128 + lane * 4
        total += rules.global_sectors(place, mask, 4)
    return total


class Collector:
    """Per-instruction counters of a launch, by instruction index."""

    def __init__(self, program: Program) -> None:
        self.program = program
        count = len(program.instructions)
        self.fields: dict[str, Array] = {name: np.zeros(count, np.int64) for name in FIELDS}
        # what went where: a generic instruction may count in several spaces
        self.by_space: dict[str, dict[str, Array]] = {}
        self._cache: dict[tuple[Any, ...], Counted] = {}

    def access(self, event: Access) -> None:
        counted, times = self._counted(event)
        fields, index = self.fields, event.index
        space = self.by_space.get(event.space)
        if space is None:
            space = self.by_space[event.space] = {name: np.zeros_like(fields["requests"]) for name in FIELDS}
        # the global side of an asynchronous copy counts tags, but no sectors of a load (H200 recording)
        quiet = event.op.operation == "async_copy" and event.space == "global"
        for name in ("requests", "sectors", "sectors_ideal", "tags", "wavefronts", "wavefronts_ideal", "conflicts"):
            if quiet and name == "requests":
                continue
            amount = getattr(counted, name) * times
            if amount:
                fields[name][index] += amount
                space[name][index] += amount

    def _counted(self, event: Access) -> tuple[Counted, int]:
        """Counters of the event's warps and how often to take them: blocks that repeat a pattern are counted once."""
        mask = ALL_LANES if event.mask is None else event.mask
        addresses = event.addresses
        rows = max(addresses.shape[0], mask.shape[0])
        if rows > 1 and (mask.shape[0] == 1 or bool((mask == mask[:1]).all())):
            pattern = self._repeated(np.broadcast_to(addresses, (rows, event.threads)), mask[:1], event.threads)
            if pattern is not None:
                return self._once(event, *pattern), event.blocks
        addresses = np.broadcast_to(addresses, (rows, event.threads)).reshape(-1, 32)
        masks = np.broadcast_to(mask, (rows, event.threads)).reshape(-1, 32)
        if event.mask is not None and rows > 1:
            issued = masks.any(axis=1)
            addresses, masks = addresses[issued], masks[issued]
        return self._once(event, addresses, masks), event.blocks // rows

    @staticmethod
    def _repeated(addresses: Array, mask: Array, threads: int) -> tuple[Array, Array] | None:
        """The rows (warps, 32) of one block, when all blocks access the same offsets modulo a 128-byte line."""
        lanes = np.broadcast_to(mask, (1, threads))[0]
        first = int(lanes.argmax())
        taking = addresses if lanes.all() else addresses[:, lanes]
        relative = taking - (addresses[:, first : first + 1] & -LINE_BYTES)
        if not bool((relative == relative[:1]).all()):
            return None
        row = np.zeros(threads, np.int64)
        row[lanes] = relative[0]
        return row.reshape(-1, 32), lanes.reshape(-1, 32)

    def _once(self, event: Access, addresses: Array, mask: Array) -> Counted:
        if addresses.shape[0] > 64:
            return count_rows(event.op, event.space, addresses, mask)
        key = (event.index, event.space, addresses.tobytes(), mask.tobytes())
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) > 4096:
                self._cache.clear()
            found = self._cache[key] = count_rows(event.op, event.space, addresses, mask)
        return found

    def branch(self, event: Branch) -> None:
        fields, index = self.fields, event.index
        fields["branch_targets"][index] += event.warps
        fields["divergent"][index] += event.divergent
        fields["uniform"][index] += event.taken + event.fallen
