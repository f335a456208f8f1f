"""Asynchronous copies around L1 (LDGSTS.BYPASS, PTX cp.async.cg): 16 bytes a lane, from global to shared memory.

Rows and arguments are as in :mod:`gpusim.counters.rules_shared`.  Source: 259 single-warp copies on an NVIDIA H200,
``tests/data/h200_copies.json.gz``; 44 of 44 copies without a guard and all sectors agree.

Lanes that copy out of one sector (32 bytes) into one 32-byte segment of shared memory form a *unit*.  If every sector
goes into one segment and every segment comes out of one sector, each unit costs one sector, and units of the same line
of global memory, the same line of shared memory and the same halves of a sector go in one wavefront.  Otherwise every
lane costs a sector and a wavefront.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.counters.rules_shared import BoolArray, IntArray, UIntArray, _checked, _fill_inactive

SECTOR_SHIFT, HALF_SHIFT, LINE_SHIFT = np.uint64(5), np.uint64(4), np.uint64(7)
SEGMENT_BITS = np.uint64(24)  # room for a 32-byte segment of shared memory beside a sector
ONE = np.uint64(1)


def _distinct(values: UIntArray) -> IntArray:
    ordered = np.sort(values, axis=1)
    return 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1, dtype=np.int64)


def _units(
    shared_addresses: npt.ArrayLike, global_addresses: npt.ArrayLike, active: npt.ArrayLike
) -> tuple[UIntArray, UIntArray, UIntArray, BoolArray, BoolArray]:
    """(unit of each lane, global and shared address, inactive lanes as the first active one; active; one to one)."""
    target, lanes = _checked(shared_addresses, active)
    origin, _ = _checked(global_addresses, active)
    target, origin = _fill_inactive(target, lanes), _fill_inactive(origin, lanes)
    sectors, segments = origin >> SECTOR_SHIFT, target >> SECTOR_SHIFT
    unit = sectors << SEGMENT_BITS | segments
    count = _distinct(unit)
    return unit, origin, target, lanes, (count == _distinct(sectors)) & (count == _distinct(segments))


def bypass_sectors(shared_addresses: npt.ArrayLike, global_addresses: npt.ArrayLike, active: npt.ArrayLike) -> IntArray:
    """Sectors counted for the lanes that read."""
    unit, _, _, lanes, paired = _units(shared_addresses, global_addresses, active)
    number = lanes.sum(axis=1)
    return np.where(number == 0, 0, np.where(paired, _distinct(unit), number))


def bypass_wavefronts(
    shared_addresses: npt.ArrayLike, global_addresses: npt.ArrayLike, active: npt.ArrayLike
) -> IntArray:
    """Wavefronts of a copy without a guard; the form that fills with zeros (.ZFILL) adds those of a copy through L1."""
    unit, origin, target, lanes, paired = _units(shared_addresses, global_addresses, active)
    number = lanes.sum(axis=1)
    # the halves of its sector and of its segment that each unit has lanes in, as four bits, in every lane of the unit
    bits = ONE << (origin >> HALF_SHIFT & ONE) | ONE << (np.uint64(2) + (target >> HALF_SHIFT & ONE))
    order = np.argsort(unit, axis=1, kind="stable")
    ordered = np.take_along_axis(unit, order, axis=1)
    fresh = np.ones(unit.shape, bool)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=fresh[:, 1:])
    starts = np.flatnonzero(fresh)
    halves = np.bitwise_or.reduceat(np.take_along_axis(bits, order, axis=1).ravel(), starts) if len(starts) else bits
    lengths = np.diff(np.append(starts, unit.size))
    pattern = np.repeat(halves, lengths).reshape(unit.shape)
    lines = np.take_along_axis(origin >> LINE_SHIFT, order, axis=1)
    places = np.take_along_axis(target >> LINE_SHIFT, order, axis=1)
    together = _distinct((lines << SEGMENT_BITS | places) << np.uint64(4) | pattern)
    return np.where(number == 0, 0, np.where(paired, together, number))
