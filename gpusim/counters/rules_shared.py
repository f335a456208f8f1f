"""Shared memory: what one warp instruction costs, from its addresses alone.

Every function is pure and takes many warp instructions at once. A row is one executed warp instruction:

* ``addresses``: integer array (n, 32), byte addresses, column = lane. Values of inactive lanes are ignored. Any integer
  type; only addresses relative to a 128-byte boundary matter. Each is a multiple of the access width, as the hardware
  demands.
* ``active``: boolean array (n, 32), lanes that take part: active in the warp and not predicated off.
* ``width``: bytes a lane moves, 1, 2, 4, 8 or 16.

Results are int64 arrays (n,). A row without active lanes gives 0 everywhere.

Words used here. The 32 *banks* are 4 bytes wide and repeat every 128 bytes. A *wavefront* is one pass of the data
stage. A *part* is the group of lanes that the data stage takes together: the whole warp for widths up to 4, a half warp
for 8, a quarter warp for 16, so that a part moves at most 128 bytes. The *degree* of a part is the largest number of
different words that its lanes want from any one bank; lanes that want the same word share it.

Source of every rule, unless the function says otherwise: single-warp recordings on an NVIDIA H200, driver 580, cubin
built for sm_90 by NVRTC 13.5, kept in ``tests/data/h200_access*.jsonl.gz``. "Wavefronts" reproduce
``smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_*``, "conflicts" reproduce
``l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_*``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gpusim.native import Loops

WARP_LANES = 32
BANKS = 32
BANK_BYTES = 4
LINE_BYTES = BANKS * BANK_BYTES
MATRIX_ROWS = 8
MATRIX_ROW_BYTES = 16

IntArray = npt.NDArray[np.int64]
UIntArray = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

WIDTHS = (1, 2, 4, 8, 16)
# rows from which units are noted, and different units a bank up to which, as measured
MANY_ROWS, MOST_FILLS = 64, 16
CACHE_LINE = 64  # bytes, of the processor that runs this

# Operations of ATOMS that read, modify and write a word in one pass, lane after lane within a bank.
_ONE_PASS_ATOMICS = frozenset({"add", "min", "max", "and", "or", "xor", "inc", "dec", "exch"})
# The 64-bit forms that exist as instructions; the compiler makes a compare-and-swap loop of every other one.
_WIDE_ATOMICS = frozenset({"exch", "cas", "cast_spin"})
ATOMIC_OPS = _ONE_PASS_ATOMICS | {"popc_inc", "cas", "cast_spin"}


def parts_of(width: int) -> int:
    """Parts a warp is split into by the data stage: 1 for widths up to 4 bytes, 2 for 8, 4 for 16."""
    if width not in WIDTHS:
        raise ValueError(f"width must be one of {WIDTHS} bytes, not {width!r}")
    return max(1, width // BANK_BYTES)


def _checked(addresses: npt.ArrayLike, active: npt.ArrayLike) -> tuple[UIntArray, BoolArray]:
    address_array, active_array = np.asarray(addresses), np.asarray(active, dtype=np.bool_)
    if address_array.ndim != 2 or address_array.shape[1] != WARP_LANES or active_array.shape != address_array.shape:
        raise ValueError(
            f"addresses and active must both be (n, {WARP_LANES}), not {address_array.shape} and {active_array.shape}"
        )
    same = address_array.dtype.kind in "iu" and address_array.itemsize == 8
    return address_array.view(np.uint64) if same else address_array.astype(np.uint64), active_array


def _units(addresses: UIntArray, unit_bytes: int) -> UIntArray:
    return addresses >> np.uint64(unit_bytes.bit_length() - 1)


def _fill_inactive(units: UIntArray, active: BoolArray) -> UIntArray:
    """Inactive lanes repeat the first active lane's unit, so that they add nothing to a count of different units."""
    first = np.argmax(active, axis=1)
    return np.where(active, units, np.take_along_axis(units, first[:, None], axis=1))


def _bank_maximum(banks: npt.NDArray[np.integer], counted: BoolArray, bank_count: int) -> IntArray:
    """The fullest bank of each row. banks, counted: (m, k); result (m,)."""
    rows = len(banks)
    index = np.arange(rows, dtype=np.int64)[:, None] * bank_count + banks.astype(np.int64)
    filled = np.bincount(index[counted], minlength=rows * bank_count)
    return filled.reshape(rows, bank_count).max(axis=1, initial=0).astype(np.int64)


@lru_cache(maxsize=4)
def _row_numbers(rows: int, columns: int, less: int) -> IntArray:
    """The number of each place's row, less so many; (rows, columns), in full, since loops come back to it."""
    numbers: IntArray = np.repeat(np.arange(-less, rows - less), columns).reshape(rows, columns)
    numbers.setflags(write=False)
    return numbers


def _degrees_of_near(units: UIntArray, active: BoolArray, bank_count: int) -> IntArray | None:
    """The same by noting which units each row has; None for units that lie far apart."""
    everyone = bool(active.all())
    wanted = units if everyone else units[active]
    if not wanted.size:
        return np.zeros(len(units), np.int64)
    first = int(wanted.min()) // bank_count * bank_count
    fills = (int(wanted.max()) - first) // bank_count + 1  # of all banks
    if fills > MOST_FILLS:
        return None
    rows = len(units)
    # an odd number of lines apart, so that a row's units do not all fall into a few sets of the cache
    pitch = ((rows + CACHE_LINE - 1) // CACHE_LINE | 1) * CACHE_LINE
    size = fills * bank_count * pitch
    place = units.view(np.int64) * pitch
    place += _row_numbers(rows, units.shape[1], first * pitch)
    if not everyone:
        place[~active] = size
    noted = np.zeros(size + 1, np.bool_)
    noted[place] = True
    degrees = noted[:size].view(np.uint8).reshape(fills, bank_count, pitch).sum(axis=0, dtype=np.uint8).max(axis=0)
    return degrees[:rows].astype(np.int64)


def _degrees(units: UIntArray, active: BoolArray, bank_count: int) -> IntArray:
    """Most different units in any one bank. units: (m, k), a unit is one lane's aligned access; result (m,)."""
    if Loops.degrees is not None:
        found = np.empty(len(units), np.int64)
        Loops.degrees(np.ascontiguousarray(units), np.ascontiguousarray(active), bank_count, found)
        return found
    if len(units) >= MANY_ROWS:
        noted = _degrees_of_near(units, active, bank_count)
        if noted is not None:
            return noted
    ordered = np.sort(_fill_inactive(units, active), axis=1)
    fresh = np.ones(ordered.shape, dtype=np.bool_)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=fresh[:, 1:])
    degrees = _bank_maximum(ordered & np.uint64(bank_count - 1), fresh, bank_count)
    return np.where(active.any(axis=1), degrees, 0)


def _lane_counts(units: UIntArray, active: BoolArray, bank_count: int) -> IntArray:
    """Most lanes in any one bank, equal addresses counted each. units: (m, k); result (m,)."""
    return _bank_maximum(units & np.uint64(bank_count - 1), active, bank_count)


def _split(array: npt.NDArray, pieces: int) -> npt.NDArray:
    """(n, 32) to (n * pieces, 32 / pieces), lanes in order."""
    return array.reshape(len(array) * pieces, WARP_LANES // pieces)


def _part_degrees(units: UIntArray, active: BoolArray, parts: int) -> IntArray:
    """Degree of each part, (n, parts)."""
    return _degrees(_split(units, parts), _split(active, parts), BANKS // parts).reshape(len(units), parts)


def _part_degrees_joined(units: UIntArray, active: BoolArray, parts: int) -> IntArray:
    """Degree of every two adjacent parts taken together, (n, parts / 2)."""
    groups = parts // 2
    return _degrees(_split(units, groups), _split(active, groups), BANKS // parts).reshape(len(units), groups)


def _partners(array: npt.NDArray, distance: int) -> tuple[npt.NDArray, npt.NDArray]:
    """Columns `i` and `i xor distance` of every pair (distance a power of two), each (n, columns / 2)."""
    columns = np.arange(array.shape[1])
    lower = columns[columns & distance == 0]
    return array[:, lower], array[:, lower + distance]


def _pairs_agree(units: UIntArray, active: BoolArray, distance: int, strict: bool = False) -> BoolArray:
    """Whether no two lanes `i` and `i xor distance` differ in address; result (n,).

    An inactive lane agrees with every partner, or, if ``strict``, only with another inactive one.
    """
    (one, other), (one_on, other_on) = _partners(units, distance), _partners(active, distance)
    differ = (one != other) & one_on & other_on
    if strict:
        differ |= one_on != other_on
    return ~differ.any(axis=1)


def _paired(units: UIntArray, active: BoolArray, strict: bool = False) -> BoolArray:
    """Whether the lanes of each row agree pairwise, all at distance 1 or all at distance 2; result (n,)."""
    return _pairs_agree(units, active, 1, strict) | _pairs_agree(units, active, 2, strict)


def _check_direction(op: str) -> None:
    if op not in ("ld", "st"):
        raise ValueError(f"op must be 'ld' or 'st', not {op!r}")


def _halves_merge(units: UIntArray, active: BoolArray) -> BoolArray:
    """Whether the two quarters of each half warp of a 16-byte load may share a wavefront, (n, 2).

    The upper half may if its lanes pair up, inactive lanes aside. The lower half may if lane 31 is inactive, whatever
    its addresses; otherwise if its lanes pair up strictly. No circuit would do that: the counter is instrumented, and
    this is how its instrumentation treats lanes that do not take part. 670 of 670 recorded loads agree.
    """
    low, high = slice(0, WARP_LANES // 2), slice(WARP_LANES // 2, WARP_LANES)
    lower = ~active[:, -1] | _paired(units[:, low], active[:, low], strict=True)
    return np.stack([lower, _paired(units[:, high], active[:, high])], axis=1)


def shared_wavefronts(addresses: npt.ArrayLike, active: npt.ArrayLike, width: int, op: str) -> IntArray:
    """Wavefronts of LDS (op 'ld') or STS ('st'), and of generic LD or ST whose addresses fall into shared memory.

    The parts are served one after the other, each in as many wavefronts as its degree. Loads of 8 and 16 bytes have a
    short cut: two adjacent parts (of a 16-byte load the two quarters of a half warp) take one wavefront together if
    their lanes want at most one word from each bank and the lanes pair up. They pair up if every two active lanes `i`
    and `i ^ 1` of the two parts agree in their address, or every two active `i` and `i ^ 2`. Of 16-byte loads
    `_halves_merge` tells what that means where lanes are inactive; moreover, where all active lanes name the same
    address, every 16 of them take one wavefront, wherever they are.
    """
    _check_direction(op)
    parts = parts_of(width)
    address_array, active_array = _checked(addresses, active)
    units = _units(address_array, max(width, BANK_BYTES))
    degrees = _part_degrees(units, active_array, parts)
    if op == "st" or parts == 1:
        return degrees.sum(axis=1)
    separate = degrees.reshape(len(units), parts // 2, 2).sum(axis=2)
    merges = _halves_merge(units, active_array) if width == 16 else _paired(units, active_array)[:, None]
    rows = np.flatnonzero((merges & (separate == 2)).any(axis=1))
    joint = _part_degrees_joined(units[rows], active_array[rows], parts)
    separate[rows] = np.where(merges[rows] & (joint == 1), 1, separate[rows])
    wavefronts = separate.sum(axis=1)
    if width == 16:
        filled = _fill_inactive(units, active_array)
        same = (filled == filled[:, :1]).all(axis=1)
        wavefronts = np.where(same, -(-active_array.sum(axis=1) // (WARP_LANES // 2)), wavefronts)
    return wavefronts


def shared_conflicts(
    addresses: npt.ArrayLike, active: npt.ArrayLike, width: int, op: str, generic: bool = False
) -> IntArray:
    """Bank conflicts of LDS (op 'ld') or STS ('st'), as the hardware's own conflict counter reports them.

    Every part with an active lane adds its degree less one. In an LDS of 8 or 16 bytes whose active lanes pair up over
    the whole warp (`i` with `i ^ 1`, or `i` with `i ^ 2`) two adjacent parts count as one, whether or not they end up
    in one wavefront: the counter looks at the request before it is served. That is why wavefronts less conflicts is
    not a constant for such loads. A ``generic`` load (LD) has no such short cut here, though its wavefronts merge.
    """
    _check_direction(op)
    parts = parts_of(width)
    address_array, active_array = _checked(addresses, active)
    units = _units(address_array, max(width, BANK_BYTES))
    conflicts = np.maximum(_part_degrees(units, active_array, parts) - 1, 0).sum(axis=1)
    if op == "ld" and parts > 1 and not generic:
        rows = np.flatnonzero(_paired(units, active_array))
        joint = _part_degrees_joined(units[rows], active_array[rows], parts)
        conflicts[rows] = np.maximum(joint - 1, 0).sum(axis=1)
    return conflicts


def shared_wavefronts_ideal(active: npt.ArrayLike, width: int) -> IntArray:
    """Wavefronts that the same lanes need when no two of them meet in a bank: one a part that has an active lane."""
    active_array = np.asarray(active, dtype=np.bool_)
    parts = parts_of(width)
    return active_array.reshape(len(active_array), parts, WARP_LANES // parts).any(axis=2).sum(axis=1)


def _check_atomic(op: str, width: int) -> None:
    if op not in ATOMIC_OPS:
        raise ValueError(f"shared atomic operation must be one of {sorted(ATOMIC_OPS)}, not {op!r}")
    if width != 4 and not (width == 8 and op in _WIDE_ATOMICS):
        raise ValueError(f"there is no {width}-byte shared atomic {op!r}")


def _atomic_part_lanes(addresses: npt.ArrayLike, active: npt.ArrayLike, width: int) -> IntArray:
    parts = parts_of(width)
    address_array, active_array = _checked(addresses, active)
    units = _split(_units(address_array, width), parts)
    return _lane_counts(units, _split(active_array, parts), BANKS // parts).reshape(len(address_array), parts)


def shared_atomic_wavefronts(addresses: npt.ArrayLike, active: npt.ArrayLike, width: int, op: str) -> IntArray:
    """Wavefronts of ATOMS. Forms that return the old value and forms that drop it (destination RZ) cost the same.

    * 'add', 'min', 'max', 'and', 'or', 'xor', 'inc', 'dec', 'exch' (4 bytes): the most lanes in any one bank; lanes
      on one address wait for each other like lanes on different words.
    * 'popc_inc' (ATOMS.POPC.INC, a count of the lanes on each word): the most different words in any one bank.
    * 'cas' (ATOMS.CAS): two for every lane of the fullest bank, the 8-byte form half warp by half warp.
    * 'cast_spin' (ATOMS.CAST.SPIN, the step of the loop that the compiler writes for floating-point and 64-bit
      arithmetic): two a part with an active lane, because only one lane of a bank gets through; see
      `cast_spin_winners`.
    """
    return shared_atomic_counts(addresses, active, width, op)[0]


def shared_atomic_conflicts(addresses: npt.ArrayLike, active: npt.ArrayLike, width: int, op: str) -> IntArray:
    """Bank conflicts of ATOMS: passes over the lanes less one in every part; 'cast_spin' never waits, hence none."""
    return shared_atomic_counts(addresses, active, width, op)[1]


def shared_atomic_counts(
    addresses: npt.ArrayLike, active: npt.ArrayLike, width: int, op: str
) -> tuple[IntArray, IntArray]:
    """(wavefronts, conflicts) of ATOMS in one go: `shared_atomic_wavefronts` and `shared_atomic_conflicts`."""
    _check_atomic(op, width)
    if op == "popc_inc":
        address_array, active_array = _checked(addresses, active)
        degrees = _degrees(_units(address_array, BANK_BYTES), active_array, BANKS)
        return degrees, np.maximum(degrees - 1, 0)
    lanes = _atomic_part_lanes(addresses, active, width)
    if op == "cast_spin":
        return 2 * (lanes > 0).sum(axis=1), np.zeros(len(lanes), dtype=np.int64)
    return lanes.sum(axis=1) * (2 if op == "cas" else 1), np.maximum(lanes - 1, 0).sum(axis=1)


def _row_degrees(addresses: npt.ArrayLike, active: npt.ArrayLike, matrices: int) -> IntArray:
    if matrices not in (1, 2, 4):
        raise ValueError(f"matrices must be 1, 2 or 4, not {matrices!r}")
    address_array, active_array = _checked(addresses, active)
    units = _units(address_array, MATRIX_ROW_BYTES)
    return _part_degrees(units, active_array, WARP_LANES // MATRIX_ROWS)[:, :matrices]


def matrix_wavefronts(addresses: npt.ArrayLike, active: npt.ArrayLike, matrices: int) -> IntArray:
    """Wavefronts of LDSM and STSM moving 1, 2 or 4 matrices, transposed or not: matrix by matrix, each its degree.

    Lane 8 m + r holds the address of row r (16 bytes) of matrix m; addresses in further lanes do not count. Loads and
    stores cost the same and nothing merges. Their wavefronts have counters of their own (..._op_ldsm, ..._op_stsm).
    """
    return _row_degrees(addresses, active, matrices).sum(axis=1)


def matrix_conflicts(addresses: npt.ArrayLike, active: npt.ArrayLike, matrices: int) -> IntArray:
    """Bank conflicts of LDSM (reported with the loads) and STSM (with the stores): degree less one of every matrix."""
    return np.maximum(_row_degrees(addresses, active, matrices) - 1, 0).sum(axis=1)


def _copy_part_lanes(
    shared_addresses: npt.ArrayLike,
    writing: npt.ArrayLike,
    global_addresses: npt.ArrayLike,
    reading: npt.ArrayLike,
    width: int,
) -> IntArray:
    """Passes of each part of an asynchronous copy through L1: the fullest bank it writes, or reads, if that is more."""
    into = _atomic_part_lanes(shared_addresses, writing, width)
    return np.maximum(into, _atomic_part_lanes(global_addresses, reading, width))


def async_copy_wavefronts(
    shared_addresses: npt.ArrayLike,
    writing: npt.ArrayLike,
    global_addresses: npt.ArrayLike,
    reading: npt.ArrayLike,
    width: int,
    bypass: bool = False,
    zero_fill: bool = False,
) -> IntArray:
    """Wavefronts of LDGSTS (cp.async) moving `width` bytes a lane: the most *lanes* in any one bank, part by part.

    The line in L1 that the data comes from has banks like shared memory, and the fuller side decides. Lanes on the same
    word do not share a wavefront, as with atomics. The form that goes around L1 (``bypass``, cp.async.cg) counts no
    wavefront; with a condition for reading (``zero_fill``) it counts those of its writes, zeros included.
    """
    if bypass:
        lanes = _atomic_part_lanes(shared_addresses, writing, width)
        return lanes.sum(axis=1) if zero_fill else np.zeros(len(lanes), dtype=np.int64)
    return _copy_part_lanes(shared_addresses, writing, global_addresses, reading, width).sum(axis=1)


def async_copy_decided(
    shared_addresses: npt.ArrayLike,
    writing: npt.ArrayLike,
    global_addresses: npt.ArrayLike,
    reading: npt.ArrayLike,
    width: int,
) -> BoolArray:
    """Whether the wavefronts of LDGSTS through L1 are certain, (n,) bool: no part has conflicts on both sides.

    With conflicts on both the hardware was seen to take up to half as many wavefronts again as `async_copy_wavefronts`
    says, in an order that is not known.
    """
    sides = ((shared_addresses, writing), (global_addresses, reading))
    lanes = [_atomic_part_lanes(addresses, active, width) for addresses, active in sides]
    both: BoolArray = (lanes[0] > 1) & (lanes[1] > 1)
    return np.asarray(~both.any(axis=1))


def async_copy_conflicts(
    shared_addresses: npt.ArrayLike,
    writing: npt.ArrayLike,
    global_addresses: npt.ArrayLike,
    reading: npt.ArrayLike,
    width: int,
    bypass: bool = False,
) -> IntArray:
    """Bank conflicts of LDGSTS: passes less one of every part; none around L1.

    Exact if the data is there together. Lanes that read from many lines get it in instalments, and the hardware then
    counts fewer conflicts: this is the most it can count (recorded: always equal up to eight lines).
    """
    lanes = _copy_part_lanes(shared_addresses, writing, global_addresses, reading, width)
    return np.zeros(len(lanes), dtype=np.int64) if bypass else np.maximum(lanes - 1, 0).sum(axis=1)
