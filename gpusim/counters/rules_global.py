"""Global memory: sectors and tag look-ups of one warp instruction, from its addresses alone.

Rows, arguments and source are those of `gpusim.counters.rules_shared`: ``addresses`` (n, 32) bytes, ``active`` (n, 32),
result (n,), 0 for a row without active lanes. Recorded on an NVIDIA H200, driver 580, in
``tests/data/h200_access.jsonl.gz``.

A *sector* is 32 aligned bytes, a *line* 128. The caching operators (.cg, .nc) change none of these counts, nor does it
matter whether an instruction names global memory or reaches it by a generic address. An asynchronous copy (LDGSTS)
looks up tags like a load, but its sectors are not among those of loads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.counters.rules_shared import (
    WARP_LANES,
    BoolArray,
    IntArray,
    UIntArray,
    _checked,
    _fill_inactive,
)

SECTOR_BYTES = 32
LINE_BYTES = 128

# A 4-byte add carries at most one value a word with each sector; other kinds carry all lanes of a sector at once.
SERIAL_ATOMICS = frozenset({"add", "fadd"})


def _different(units: UIntArray, active: BoolArray) -> IntArray:
    """How many different units the active lanes of each row touch; units (n, 32), result (n,)."""
    ordered = np.sort(_fill_inactive(units, active), axis=1)
    return np.where(active.any(axis=1), 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1), 0)


def requests(active: npt.ArrayLike) -> IntArray:
    """Requests to the L1: one for a warp instruction with an active lane."""
    taking_part: BoolArray = np.asarray(active, dtype=np.bool_)
    return np.any(taking_part, axis=1).astype(np.int64)


def global_sectors(addresses: npt.ArrayLike, active: npt.ArrayLike, width: int) -> IntArray:
    """Sectors of a load or store of `width` bytes a lane: the different sectors touched by the whole warp.

    Accesses are aligned to their width, so that none crosses a sector.
    """
    if width not in (1, 2, 4, 8, 16, SECTOR_BYTES):
        raise ValueError(f"width must be 1, 2, 4, 8, 16 or 32 bytes, not {width!r}")
    address_array, active_array = _checked(addresses, active)
    return _different(address_array >> np.uint64(5), active_array)


def global_sectors_ideal(active: npt.ArrayLike, width: int) -> IntArray:
    """Sectors that the active lanes would fill if their bytes lay side by side."""
    lanes = np.asarray(active, dtype=np.bool_).sum(axis=1)
    return -(-lanes * width // SECTOR_BYTES)


def global_tags(addresses: npt.ArrayLike, active: npt.ArrayLike) -> IntArray:
    """Tag look-ups: the different lines touched by the whole warp; the same for every width and operation."""
    address_array, active_array = _checked(addresses, active)
    return _different(address_array >> np.uint64(7), active_array)


def global_atomic_sectors(addresses: npt.ArrayLike, active: npt.ArrayLike, width: int, op: str) -> IntArray:
    """Sectors of a global atomic (ATOMG) or reduction (REDG); both count alike, in a counter each.

    An 'add' or 'fadd' of 4 bytes sends a sector once for every lane on that sector's busiest word. Compare-and-swap
    ('cas') and 8-byte operations send each touched sector once, like a load.
    """
    if op not in SERIAL_ATOMICS or width != 4:
        return global_sectors(addresses, active, width)
    address_array, active_array = _checked(addresses, active)
    # Sorted, equal words form runs; a lane's place in its run, the largest in each sector, is what that sector costs.
    words = np.sort(np.where(active_array, address_array, np.uint64(np.iinfo(np.uint64).max)), axis=1)
    words >>= np.uint64(2)
    lanes = np.arange(WARP_LANES)
    run_start = np.ones(words.shape, dtype=np.bool_)
    np.not_equal(words[:, 1:], words[:, :-1], out=run_start[:, 1:])
    place = lanes - np.maximum.accumulate(np.where(run_start, lanes, 0), axis=1)
    sector_start = np.ones(words.shape, dtype=np.bool_)
    np.not_equal(words[:, 1:] >> np.uint64(3), words[:, :-1] >> np.uint64(3), out=sector_start[:, 1:])
    valid = lanes < active_array.sum(axis=1)[:, None]
    # Each row opens its own segments, hence no segment runs across rows.
    starts = np.flatnonzero(sector_start)
    if len(starts) == 0:
        return np.zeros(len(words), dtype=np.int64)
    cost = np.maximum.reduceat(np.where(valid, place + 1, 0).ravel(), starts)
    return np.bincount(starts // WARP_LANES, weights=cost, minlength=len(words)).astype(np.int64)
