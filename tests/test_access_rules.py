"""The counting rules against plain-Python restatements and for their symmetries; test_access_recordings has data."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.counters import rules, rules_shared

EVERYONE = np.ones((1, 32), dtype=bool)
WIDTHS = st.sampled_from([1, 2, 4, 8, 16])
DIRECTIONS = st.sampled_from(["ld", "st"])
ATOMICS = st.sampled_from(
    [(op, 4) for op in sorted(rules.ATOMIC_OPS)] + [("cas", 8), ("cast_spin", 8), ("exch", 8)],
)
QUICK = settings(max_examples=150, deadline=None)


# ---- plain restatements of the rules -------------------------------------------------------------------------------


@st.composite
def warps(draw):
    """One warp: unit numbers (to be scaled by an access width) and a mask, with a taste for pairs and sparse masks."""
    limit = draw(st.sampled_from([2, 8, 32, 128, 1024]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    unit = random.integers(0, limit, 32)
    for distance in draw(st.lists(st.sampled_from([1, 2, 4, 8, 16]), max_size=2)):
        unit = unit[np.arange(32) & ~distance]
    density = draw(st.sampled_from([0.05, 0.2, 0.5, 0.9, 1.0]))
    return unit[None, :], (random.random(32) < density)[None, :]


def wanted_words(unit, active, width, lanes):
    each = max(width, 4) // 4
    lane_units = [int(unit[0, lane]) * width // max(width, 4) for lane in lanes if active[0, lane]]
    return {each * u + i for u in lane_units for i in range(each)}


def degree(words):
    return max(Counter(word % 32 for word in words).values(), default=0)


def pairs_up(unit, active, lanes, strict=False):
    """Whether lanes agree with their partner at distance 1, or all with that at distance 2."""

    def agree(a, b):
        if active[0, a] and active[0, b]:
            return unit[0, a] == unit[0, b]
        return not strict or active[0, a] == active[0, b]

    return any(all(agree(lane, lane ^ distance) for lane in lanes) for distance in (1, 2))


def may_merge(unit, active, width, lanes):
    """Whether these two parts of a load may share a wavefront if no bank objects."""
    if width == 16 and lanes[0] == 0:
        return not active[0, 31] or pairs_up(unit, active, lanes, strict=True)
    return pairs_up(unit, active, lanes)


def plain_shared(unit, active, width, op, generic=False):
    """(wavefronts, conflicts)"""
    size = 32 // max(1, width // 4)
    degrees = [degree(wanted_words(unit, active, width, range(i, i + size))) for i in range(0, 32, size)]
    wavefronts, conflicts = sum(degrees), sum(max(0, d - 1) for d in degrees)
    if not (op == "ld" and width >= 8):
        return wavefronts, conflicts
    groups = [range(i, i + 2 * size) for i in range(0, 32, 2 * size)]
    joint = [degree(wanted_words(unit, active, width, lanes)) for lanes in groups]
    for lanes, both, one, other in zip(groups, joint, degrees[::2], degrees[1::2], strict=True):
        if both == one == other == 1 and may_merge(unit, active, width, lanes):
            wavefronts -= 1
    if width == 16 and len(set(unit[0][active[0]].tolist())) == 1 and not active.all():
        wavefronts = 1
    if pairs_up(unit, active, range(32)) and not generic:
        conflicts = sum(max(0, d - 1) for d in joint)
    return wavefronts, conflicts


@given(warps(), WIDTHS, DIRECTIONS, st.booleans())
@QUICK
def test_shared_accesses_match_the_plain_rule(warp, width, op, generic):
    unit, active = warp
    wavefronts, conflicts = plain_shared(unit, active, width, op, generic)
    assert rules.shared_wavefronts(unit * width, active, width, op).tolist() == [wavefronts]
    assert rules.shared_conflicts(unit * width, active, width, op, generic).tolist() == [conflicts]


@given(warps(), warps(), st.sampled_from([4, 8, 16]), st.booleans(), st.booleans())
@QUICK
def test_asynchronous_copies_match_the_plain_rule(target, origin, width, bypass, zero_fill):
    (into, writing), (out_of, reading) = target, origin
    if not zero_fill:
        reading = writing
    reading = reading & writing
    size = 128 // width

    def fullest(unit, active, part):
        return max(Counter(int(unit[0, i]) % size for i in part if active[0, i]).values(), default=0)

    parts = [range(i, i + size) for i in range(0, 32, size)]
    passes = [fullest(into, writing, part) for part in parts]
    if not bypass:
        passes = [max(p, fullest(out_of, reading, part)) for p, part in zip(passes, parts, strict=True)]
    where = (into * width, writing, out_of * width, reading, width, bypass)
    wavefronts = sum(passes) if zero_fill or not bypass else 0
    assert rules.async_copy_wavefronts(*where, zero_fill).tolist() == [wavefronts]
    assert rules.async_copy_conflicts(*where).tolist() == [0 if bypass else sum(max(0, p - 1) for p in passes)]


@given(warps(), st.sampled_from([4, 8, 16]), st.booleans(), st.booleans())
@QUICK
def test_sectors_of_asynchronous_copies_match_the_plain_rule(warp, width, bypass, zero_fill):
    unit, active = warp
    sectors = rules.async_copy_sectors(unit * width, active, width, bypass, zero_fill).tolist()
    place = {lane: int(unit[0, lane]) * width for lane in range(32) if active[0, lane]}
    if not bypass:
        assert sectors == [len({a // 32 for a in place.values()})]
    elif not zero_fill:
        assert sectors == [0]
    else:
        pairs = [(place[i], place[i + 1]) for i in range(0, 32, 2) if i in place and i + 1 in place]
        assert sectors == [len(place) - sum(a != b and a // 32 == b // 32 for a, b in pairs)]


@given(warps(), ATOMICS)
@QUICK
def test_shared_atomics_match_the_plain_rule(warp, atomic):
    (unit, active), (op, width) = warp, atomic
    banks = 128 // width
    halves = [range(32)] if width == 4 else [range(16), range(16, 32)]
    lanes = [Counter(int(unit[0, i]) % banks for i in half if active[0, i]) for half in halves]
    busiest = [max(count.values(), default=0) for count in lanes]
    wavefronts, conflicts = sum(busiest), sum(max(0, b - 1) for b in busiest)
    if op == "cas":
        wavefronts *= 2
    elif op == "cast_spin":
        wavefronts, conflicts = 2 * sum(b > 0 for b in busiest), 0
    elif op == "popc_inc":
        wavefronts = degree(wanted_words(unit, active, 4, range(32)))
        conflicts = max(0, wavefronts - 1)
    assert rules.shared_atomic_wavefronts(unit * width, active, width, op).tolist() == [wavefronts]
    assert rules.shared_atomic_conflicts(unit * width, active, width, op).tolist() == [conflicts]


@given(st.data(), st.sampled_from([8, 16, 32]), st.sampled_from([20, 300, 3000, 1 << 40]))
@QUICK
def test_different_units_of_many_warps_are_counted_as_those_of_each(data, banks, span):
    rows = data.draw(st.sampled_from([64, 65, 100, 128]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    first = data.draw(st.integers(0, 5000))
    units = (first + rng.integers(0, span, (rows, 32))).astype(np.uint64)
    active = rng.random((rows, 32)) < data.draw(st.sampled_from([0, 0.02, 0.5, 1]))
    expected = []
    for row, lanes in zip(units, active, strict=True):
        different = set(row[lanes].tolist())
        expected.append(max(Counter(unit % banks for unit in different).values(), default=0))
    assert rules_shared._degrees(units, active, banks).tolist() == expected


@given(warps(), st.sampled_from([4, 8]))
@QUICK
def test_spin_lets_the_lowest_lane_of_each_bank_through(warp, width):
    unit, active = warp
    expected = []
    for half in [range(32)] if width == 4 else [range(16), range(16, 32)]:
        taken = set()
        for lane in half:
            if active[0, lane] and (bank := int(unit[0, lane]) % (128 // width)) not in taken:
                taken.add(bank)
                expected.append(lane)
    assert np.flatnonzero(rules.cast_spin_winners(unit * width, active, width)[0]).tolist() == expected


@given(warps(), st.sampled_from([1, 2, 4]))
@QUICK
def test_matrices_go_row_block_by_row_block(warp, matrices):
    unit, active = warp
    degrees = [degree(wanted_words(unit, active, 16, range(8 * m, 8 * m + 8))) for m in range(matrices)]
    assert rules.matrix_wavefronts(unit * 16, active, matrices).tolist() == [sum(degrees)]
    assert rules.matrix_conflicts(unit * 16, active, matrices).tolist() == [sum(max(0, d - 1) for d in degrees)]


@given(warps(), WIDTHS)
@QUICK
def test_global_counts_match_the_plain_rule(warp, width):
    unit, active = warp
    touched = [int(unit[0, lane]) * width for lane in range(32) if active[0, lane]]
    assert rules.global_sectors(unit * width, active, width).tolist() == [len({a // 32 for a in touched})]
    assert rules.global_tags(unit * width, active).tolist() == [len({a // 128 for a in touched})]
    assert rules.global_sectors_ideal(unit * width, active, width).tolist() == [
        min(-(-len(touched) * width // 32), int(rules.global_sectors(unit * width, active, width)[0]))
    ]
    assert rules.requests(active).tolist() == [int(bool(touched))]


@given(warps(), st.sampled_from([("add", 4), ("fadd", 4), ("cas", 4), ("add", 8)]))
@QUICK
def test_global_atomics_match_the_plain_rule(warp, atomic):
    (unit, active), (op, width) = warp, atomic
    sectors: dict[int, int] = {}
    words = Counter(int(u) * width for u in unit[0][active[0]])
    for address, lanes in words.items():
        cost = lanes if op in ("add", "fadd") and width == 4 else 1
        sectors[address // 32] = max(sectors.get(address // 32, 0), cost)
    assert rules.global_atomic_passes(unit * width, active, width, op).tolist() == [sum(sectors.values())]


# ---- symmetries and bounds -----------------------------------------------------------------------------------------


@given(warps(), WIDTHS, DIRECTIONS, st.integers(0, 2**40))
@QUICK
def test_moving_everything_by_whole_rows_of_banks_changes_nothing(warp, width, op, rows):
    unit, active = warp
    here, there = unit * width, unit * width + 128 * rows
    assert rules.shared_wavefronts(here, active, width, op) == rules.shared_wavefronts(there, active, width, op)
    assert rules.shared_conflicts(here, active, width, op) == rules.shared_conflicts(there, active, width, op)
    assert rules.global_sectors(here, active, width) == rules.global_sectors(there, active, width)
    assert rules.global_tags(here, active) == rules.global_tags(there, active)
    assert rules.global_atomic_passes(here, active, 4, "add") == rules.global_atomic_passes(there, active, 4, "add")


@given(warps(), st.sampled_from([1, 2, 4]), DIRECTIONS, st.permutations(range(32)))
@QUICK
def test_lanes_are_interchangeable_up_to_four_bytes(warp, width, op, order):
    unit, active = warp
    assert rules.shared_wavefronts(unit * width, active, width, op) == rules.shared_wavefronts(
        unit[:, order] * width, active[:, order], width, op
    )


@given(warps(), WIDTHS, st.permutations(range(32)))
@QUICK
def test_lanes_are_interchangeable_in_global_memory(warp, width, order):
    unit, active = warp
    mixed, mixed_active = unit[:, order], active[:, order]
    assert rules.global_sectors(unit * width, active, width) == rules.global_sectors(mixed * width, mixed_active, width)
    for op in ("add", "cas"):
        assert rules.global_atomic_passes(unit * 4, active, 4, op) == rules.global_atomic_passes(
            mixed * 4, mixed_active, 4, op
        )


@given(warps(), st.sampled_from([8, 16]), st.data())
@QUICK
def test_lanes_are_interchangeable_within_a_part_of_a_store(warp, width, data):
    unit, active = warp
    size = 128 // width
    order = np.concatenate([start + np.array(data.draw(st.permutations(range(size)))) for start in range(0, 32, size)])
    assert rules.shared_wavefronts(unit * width, active, width, "st") == rules.shared_wavefronts(
        unit[:, order] * width, active[:, order], width, "st"
    )
    assert rules.shared_wavefronts(unit * width, active, width, "ld") <= rules.shared_wavefronts(
        unit * width, active, width, "st"
    )


@given(warps(), WIDTHS, DIRECTIONS)
@QUICK
def test_wavefronts_stay_within_bounds(warp, width, op):
    unit, active = warp
    wavefronts = rules.shared_wavefronts(unit * width, active, width, op)
    ideal = rules.shared_wavefronts_ideal(active, width)
    assert wavefronts <= active.sum() <= 32
    assert rules.shared_conflicts(unit * width, active, width, op) <= np.maximum(wavefronts - 1, 0)
    if op == "st":
        assert wavefronts - ideal == rules.shared_conflicts(unit * width, active, width, op)
        assert ideal <= wavefronts


@given(warps(), WIDTHS, DIRECTIONS, st.integers(0, 2**32 - 1))
@QUICK
def test_inactive_lanes_do_not_matter(warp, width, op, seed):
    unit, active = warp
    other = np.where(active, unit, np.random.default_rng(seed).integers(0, 4096, unit.shape))
    assert rules.shared_wavefronts(unit * width, active, width, op) == rules.shared_wavefronts(
        other * width, active, width, op
    )
    assert rules.shared_conflicts(unit * width, active, width, op) == rules.shared_conflicts(
        other * width, active, width, op
    )
    assert rules.global_atomic_passes(unit * 4, active, 4, "add") == rules.global_atomic_passes(
        other * 4, active, 4, "add"
    )
    assert (rules.cast_spin_winners(unit * 8, active, 8) == rules.cast_spin_winners(other * 8, active, 8)).all()


@pytest.mark.parametrize(("width", "op", "expected"), [(4, "ld", 1), (8, "ld", 1), (16, "ld", 2), (16, "st", 4)])
def test_broadcast(width, op, expected):
    assert rules.shared_wavefronts(np.full((1, 32), 4096), EVERYONE, width, op).tolist() == [expected]


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_contiguous_lanes_are_conflict_free(width):
    addresses = width * np.arange(32)[None, :]
    for op in ("ld", "st"):
        assert rules.shared_conflicts(addresses, EVERYONE, width, op).tolist() == [0]
        assert rules.shared_wavefronts(addresses, EVERYONE, width, op) == rules.shared_wavefronts_ideal(EVERYONE, width)
    assert rules.global_sectors(addresses, EVERYONE, width) == rules.global_sectors_ideal(addresses, EVERYONE, width)


def test_nobody_active_costs_nothing():
    addresses, nobody = np.full((3, 32), 128), np.zeros((3, 32), dtype=bool)
    zero = [0, 0, 0]
    for width in (1, 2, 4, 8, 16):
        for op in ("ld", "st"):
            assert rules.shared_wavefronts(addresses, nobody, width, op).tolist() == zero
            assert rules.shared_conflicts(addresses, nobody, width, op).tolist() == zero
        assert rules.shared_wavefronts_ideal(nobody, width).tolist() == zero
        assert rules.global_sectors(addresses, nobody, width).tolist() == zero
        assert rules.global_sectors_ideal(addresses, nobody, width).tolist() == zero
    for op in rules.ATOMIC_OPS:
        assert rules.shared_atomic_wavefronts(addresses, nobody, 4, op).tolist() == zero
        assert rules.shared_atomic_conflicts(addresses, nobody, 4, op).tolist() == zero
    assert rules.global_tags(addresses, nobody).tolist() == zero
    assert rules.requests(nobody).tolist() == zero
    assert rules.global_atomic_passes(addresses, nobody, 4, "add").tolist() == zero
    assert rules.matrix_wavefronts(addresses, nobody, 4).tolist() == zero
    assert not rules.cast_spin_winners(addresses, nobody, 8).any()


@pytest.mark.parametrize("dtype", [np.uint64, np.int64, np.uint32, np.int32])
def test_rows_are_independent_and_any_integer_type_will_do(dtype):
    random = np.random.default_rng(7)
    addresses = (16 * random.integers(0, 64, (200, 32))).astype(dtype)
    active = random.random((200, 32)) < random.random((200, 1))
    active[50] = False
    for count in (
        lambda a, m: rules.shared_wavefronts(a, m, 16, "ld"),
        lambda a, m: rules.shared_conflicts(a, m, 8, "ld"),
        lambda a, m: rules.shared_atomic_wavefronts(a, m, 4, "cas"),
        lambda a, m: rules.global_tags(a, m),
        lambda a, m: rules.global_atomic_passes(a, m, 4, "fadd"),
    ):
        alone = [count(addresses[i : i + 1], active[i : i + 1])[0] for i in range(200)]
        assert count(addresses, active).tolist() == alone
        assert count(addresses[:0], active[:0]).shape == (0,)


def test_wrong_arguments_are_refused():
    addresses = np.zeros((1, 32), dtype=np.int64)
    with pytest.raises(ValueError, match="width"):
        rules.shared_wavefronts(addresses, EVERYONE, 3, "ld")
    with pytest.raises(ValueError, match="op must be"):
        rules.shared_wavefronts(addresses, EVERYONE, 4, "atom")
    with pytest.raises(ValueError, match="must both be"):
        rules.global_tags(addresses[0], EVERYONE)
    with pytest.raises(ValueError, match="8-byte shared atomic 'add'"):
        rules.shared_atomic_wavefronts(addresses, EVERYONE, 8, "add")
    with pytest.raises(ValueError, match="atomic operation"):
        rules.shared_atomic_wavefronts(addresses, EVERYONE, 4, "fadd")
    with pytest.raises(ValueError, match="matrices"):
        rules.matrix_wavefronts(addresses, EVERYONE, 3)


def test_sectors_that_l1_sends_on_for_adds_as_recorded():
    """Equal to the hardware's up to four lines a warp, and never above it."""
    with gzip.open(Path(__file__).parent / "data" / "h200_atomic_lines.json.gz") as file:
        recorded = json.load(file)["launches"]
    words = np.array([row[0] for row in recorded], np.uint64)
    hardware = np.array([row[1] for row in recorded])
    found = rules.global_atomic_passes(words * np.uint64(4), np.ones(words.shape, bool), 4, "add")
    lines = np.array([len(np.unique(row // 32)) for row in words])
    assert (lines <= 4).sum() > 200
    assert (found[lines <= 4] == hardware[lines <= 4]).all()
    assert (found <= hardware).all()
    assert (hardware - found).max() <= 3
