"""Theoretical occupancy against an H200, and its arithmetic."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gpusim.errors import InputError, UsageError
from gpusim.machine.limits import check_shape, occupancy, triple

RECORDING = json.loads(gzip.decompress((Path(__file__).parent / "data" / "h200_carveout.json.gz").read_bytes()))


def test_every_recorded_launch():
    wrong = []
    for row in RECORDING["rows"]:
        recorded = dict(zip(RECORDING["columns"], row, strict=True))
        got = occupancy(90, recorded["threads"], recorded["registers"], recorded["shared_bytes"], recorded["barriers"])
        for name in ("registers_allocated", "carveout", "limit_warps", "limit_blocks", "limit_registers",
                     "limit_shared", "limit_barriers"):  # fmt: skip
            if getattr(got, name) != recorded[name]:
                wrong.append(f"{recorded}: {name} {getattr(got, name)}")
    assert not wrong, "\n".join(wrong)


def test_barriers_limit_the_room_that_the_driver_makes():
    """Kernels with several block barriers: as many blocks as the barriers allow, and no more, are made room for."""
    name = "launch__occupancy_limit_shared_mem"
    path = Path(__file__).parent / "data" / "h200_barriers.json.gz"
    wrong, several = [], 0
    for launch in json.loads(gzip.decompress(path.read_bytes()))["launches"]:
        values = {key: value.replace(",", "") for key, value in launch["metrics"].items() if key.startswith("launch__")}
        number = {key.removeprefix("launch__"): int(value) for key, value in values.items() if value.isdigit()}
        shared = number["shared_mem_per_block_static"] + number["shared_mem_per_block_dynamic"]
        barriers = max(1, number["barrier_count"])
        got = occupancy(90, number["block_size"], number["registers_per_thread"], shared, barriers)
        several += barriers > 1
        if got.limit_shared != int(values[name]):
            wrong.append(f"{launch['id']}: {got.limit_shared}, hardware {values[name]}")
    assert several > 20 and not wrong, "\n".join(wrong)


@pytest.mark.parametrize("needed", [1, 8, 15, 16])
def test_no_kernel_is_launched_with_fewer_than_16_registers(needed):
    """Recorded: kernels that need 8 to 15 registers."""
    fits = occupancy(90, 256, needed, 0)
    assert (fits.registers, fits.registers_allocated, fits.limit_registers) == (16, 16, 16)


def test_the_limiter_is_named():
    assert occupancy(90, 256, 128, 0).limiter == "registers"
    assert occupancy(90, 256, 32, 100_000).limiter == "shared memory"
    assert occupancy(90, 32, 16, 0).limiter.startswith("blocks") or "blocks" in occupancy(90, 32, 16, 0).limiter
    assert occupancy(90, 1024, 32, 0).percent == 100.0


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((0, 1, 1), (32, 1, 1), "0 in x"),
        ((1, 1, 1), (1025, 1, 1), "at most 1024"),
        ((1, 1, 1), (32, 32, 2), "2048 threads"),
        ((1, 70000, 1), (32, 1, 1), "at most 65535"),
        ((1, 1, 1), (1, 1, 65), "at most 64"),
    ],
)
def test_impossible_shapes(grid, block, message):
    with pytest.raises(UsageError, match=message):
        check_shape(grid, block)


def test_shapes_are_one_to_three_whole_numbers():
    assert triple(5, "grid") == (5, 1, 1)
    assert triple((5, 6), "grid") == (5, 6, 1)
    for bad in ("x", (1, 2, 3, 4), (), 1.5, (1, 2.5)):
        with pytest.raises(UsageError, match="whole numbers"):
            triple(bad, "grid")


def test_unknown_architecture():
    with pytest.raises(InputError, match="sm_61"):
        occupancy(61, 256, 32, 0)
