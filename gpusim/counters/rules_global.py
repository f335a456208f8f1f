"""Global memory: sectors and tag look-ups of one warp instruction, from its addresses alone.

Rows, arguments and source are those of `gpusim.counters.rules_shared`: ``addresses`` (n, 32) bytes, ``active`` (n, 32),
result (n,), 0 for a row without active lanes. Recorded on an NVIDIA H200, driver 580, in
``tests/data/h200_access*.jsonl.gz``.

A *sector* is 32 aligned bytes, a *line* 128. The caching operators (.cg, .nc) change none of these counts, nor does it
matter whether an instruction names global memory or reaches it by a generic address. An asynchronous copy (LDGSTS)
looks up tags and makes a request like a load, but its sectors have a counter of their own.
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
# See global_atomic_sectors for the doubt about it; an empty set says that no operation is special.
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


def global_sectors_ideal(addresses: npt.ArrayLike, active: npt.ArrayLike, width: int) -> IntArray:
    """Fewest sectors for the same lanes: their bytes side by side, or the sectors touched where lanes share bytes.

    As Nsight Compute's "L2 Theoretical Sectors Global Ideal" (recording `h200_control`).
    """
    lanes = np.asarray(active, dtype=np.bool_).sum(axis=1)
    return np.minimum(-(-lanes * width // SECTOR_BYTES), global_sectors(addresses, active, width))


def global_counts(addresses: npt.ArrayLike, active: npt.ArrayLike, width: int) -> tuple[IntArray, IntArray, IntArray]:
    """(sectors, ideal sectors, tags) in one go: `global_sectors`, `global_sectors_ideal` and `global_tags`."""
    address_array, active_array = _checked(addresses, active)
    lanes = active_array.sum(axis=1)
    ordered = np.sort(_fill_inactive(address_array >> np.uint64(5), active_array), axis=1)
    lines = ordered >> np.uint64(2)
    sectors, tags = (
        np.where(lanes > 0, 1 + np.count_nonzero(units[:, 1:] != units[:, :-1], axis=1), 0)
        for units in (ordered, lines)
    )
    return sectors, np.minimum(-(-lanes * width // SECTOR_BYTES), sectors), tags


def global_tags(addresses: npt.ArrayLike, active: npt.ArrayLike) -> IntArray:
    """Tag look-ups: the different lines touched by the whole warp; the same for every width and operation."""
    address_array, active_array = _checked(addresses, active)
    return _different(address_array >> np.uint64(7), active_array)


def global_atomic_sectors(addresses: npt.ArrayLike, active: npt.ArrayLike, width: int) -> IntArray:
    """Sectors of a global atomic (ATOMG) or reduction (REDG): each touched sector once, like a load."""
    return global_sectors(addresses, active, width)


def global_atomic_passes(addresses: npt.ArrayLike, active: npt.ArrayLike, width: int, op: str) -> IntArray:
    """Sectors that L1 sends on for a global atomic or reduction (``l1tex__t_sectors_..._op_red`` and ``_atom``).

    An 'add' or 'fadd' of 4 bytes sends a sector once for every lane on that sector's busiest word; all others send each
    touched sector once. Both counters of the same launches were recorded side by side (`h200_atomics`): where lanes
    share a word this one is larger than the instrumented ``smsp__sass_...`` counter, which is `global_atomic_sectors`.
    """
    if op not in SERIAL_ATOMICS or width != 4:
        return global_sectors(addresses, active, width)
    rows, _, times = global_atomic_pass_sectors(addresses, active, width, op)
    return np.bincount(rows, weights=times, minlength=len(np.asarray(addresses))).astype(np.int64)


def global_atomic_pass_sectors(
    addresses: npt.ArrayLike, active: npt.ArrayLike, width: int, op: str
) -> tuple[IntArray, IntArray, IntArray]:
    """How often each sector that an atomic touches is sent on: (row, sector, times), by row and then by sector."""
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
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    times = np.maximum.reduceat(np.where(valid, place + 1, 0).ravel(), starts)
    used = times > 0
    sectors = (words.ravel()[starts[used]] >> np.uint64(3)).astype(np.int64)
    serial = op in SERIAL_ATOMICS and width == 4
    return starts[used] // WARP_LANES, sectors, times[used] if serial else np.ones_like(sectors)


def async_copy_sectors(
    addresses: npt.ArrayLike, active: npt.ArrayLike, width: int, bypass: bool = False, zero_fill: bool = False
) -> IntArray:
    """Sectors in the counter of asynchronous copies (..._op_ldgsts); ``active`` are the lanes that read.

    Through L1 they are those of a load. Around it (``bypass``) none is counted, except with a condition for reading
    (``zero_fill``): then one a lane, two adjacent lanes on the two halves of a sector sharing theirs.
    """
    if not bypass:
        return global_sectors(addresses, active, width)
    address_array, active_array = _checked(addresses, active)
    if not zero_fill:
        return np.zeros(len(address_array), dtype=np.int64)
    even, odd = address_array[:, ::2], address_array[:, 1::2]
    share = active_array[:, ::2] & active_array[:, 1::2] & (even >> np.uint64(5) == odd >> np.uint64(5)) & (even != odd)
    return active_array.sum(axis=1) - share.sum(axis=1)
