"""What the machine tells its listeners.  It knows no counter; counters, hazards and traces listen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gpusim.sass.form import MemoryOp

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Access:
    """One memory instruction executed by the active warps of a chunk.

    ``addresses``: int64, broadcastable to (blocks, threads): device addresses in global space, byte offsets into the
    block's shared memory (its reserved part included) in shared space, per-thread byte addresses in local space.
    ``mask``: bool, broadcastable likewise, None when every thread takes part; lanes are already guarded.
    ``active``: the warps' executing lanes before the guard (None: all), which tells which warps issued it.
    ``space``: where these lanes went (a generic access makes one event a space).
    ``index``: the instruction's number in its program.
    """

    index: int
    op: MemoryOp
    space: str
    addresses: Array
    mask: Array | None
    active: Array | None
    first_block: int
    blocks: int
    threads: int

    def rows(self) -> tuple[Array, Array, int]:
        """(addresses (n, 32), mask (n, 32), how many times these warps repeat)."""
        mask = np.ones((1, 1), bool) if self.mask is None else self.mask
        rows = max(self.addresses.shape[0], mask.shape[0])
        shape = (rows, self.threads)
        return (
            np.broadcast_to(self.addresses, shape).reshape(-1, 32),
            np.broadcast_to(mask, shape).reshape(-1, 32),
            self.blocks // rows,
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch executed by ``warps`` warps, of which ``divergent`` went both ways and ``taken`` all to the target.

    ``fallen`` went all to the next instruction; warps = taken + fallen + divergent.
    """

    index: int
    kind: str
    warps: int
    taken: int
    fallen: int
    divergent: int
    targets: int


class Listener(Protocol):
    """Receives events; must not change the arrays in them."""

    def access(self, event: Access) -> None: ...

    def branch(self, event: Branch) -> None: ...
