"""What the machine tells its listeners.  It knows no counter; counters, hazards and traces listen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gpusim.machine.outer import plain
from gpusim.sass.form import MemoryOp

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Access:
    """One memory instruction executed by the active warps of a chunk.

    ``addresses``: int64, broadcastable to (blocks, threads): device addresses in global space, byte offsets into the
    block's shared memory (its reserved part included) in shared space, per-thread byte addresses in local space.
    ``mask``: bool, broadcastable likewise, None when every thread takes part; lanes are already guarded.
    ``active``: the warps' executing lanes before the guard (None: all), which tells which warps issued it.
    ``space``: where these lanes went (a generic access makes one event a space).
    ``index``: the instruction's number in its program.
    An asynchronous copy makes two events: "global" for the lanes that read, then "shared" for all that write, and the
    latter carries the former's ``origin`` addresses and ``reading`` lanes (None: all that write; zeros go elsewhere).
    """

    index: int
    op: MemoryOp
    space: str
    places: Any  # the addresses, as an array or a sum of one part a block and one a thread
    mask: Array | None
    active: Array | None
    first_block: int
    blocks: int
    threads: int
    origin: Array | None = None
    reading: Array | None = None
    numbers: Array | None = None  # the blocks' linear numbers where they do not follow one another

    @property
    def addresses(self) -> Array:
        """The addresses as an array."""
        return plain(self.places)

    def used(self) -> Any:
        """The places of the lanes that take part, as an array or a sum; None if none does."""
        if self.mask is None:
            return self.places
        if not self.mask.any():
            return None
        shape = np.broadcast_shapes(self.places.shape, self.mask.shape)
        return np.broadcast_to(self.places, shape)[np.broadcast_to(self.mask, shape)]

    def rows(self) -> tuple[Array, Array, int]:
        """(addresses (n, 32), mask (n, 32), how many times these warps repeat)."""
        (addresses, mask), repeat = self._rows(self.addresses, self.mask)
        return addresses, mask, repeat

    def copy_rows(self) -> tuple[Array, Array, Array, Array, int]:
        """Of an asynchronous copy's shared event: rows(), with the origins and the reading lanes put in between."""
        assert self.origin is not None
        reading = self.mask if self.reading is None else self.reading
        (target, writing, origin, reads), repeat = self._rows(self.addresses, self.mask, self.origin, reading)
        return target, writing, origin, reads, repeat

    def _rows(self, *arrays: Array | None) -> tuple[list[Array], int]:
        """Arrays (None: a mask of all) as (n, 32) with as few blocks as tell them apart, and how often these repeat."""
        exact = [np.ones((1, 1), bool) if array is None else array for array in arrays]
        rows = max(array.shape[0] for array in exact)
        shape = (rows, self.threads)
        return [np.broadcast_to(array, shape).reshape(-1, 32) for array in exact], self.blocks // rows


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch executed by ``warps`` warps: in ``taken`` of them all lanes go to the target, in ``fallen`` all go on.

    ``divergent`` counts the other warps, those that split into k groups k - 1 times.
    """

    index: int
    kind: str
    warps: int
    taken: int
    fallen: int
    divergent: int

    @property
    def targets(self) -> int:
        """Branch targets, as the hardware counts them."""
        return self.taken + self.fallen + self.divergent


class Listener(Protocol):
    """Receives events; must not change the arrays in them."""

    def access(self, event: Access) -> None: ...

    def branch(self, event: Branch) -> None: ...
