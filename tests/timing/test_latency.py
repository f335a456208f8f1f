"""Copies by tiles, whose loads and blocks were timed by clocks on an H200: nothing was fitted on these."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim.timing.pipeline import slices_of

pytest.importorskip("numba")
DATA = Path(__file__).parents[1] / "data"
SIDE = 8192
WRITES = {"none": 0, "the same tile": 1, "the transposed tile": 2}
LAUNCHED = 2.0  # microseconds between two events around nothing


def read(name: str) -> dict:
    with gzip.open(DATA / name) as file:
        return json.load(file)


RECORDED = read("h200_latency.json.gz")
ROWS = [
    pytest.param(row, marks=[] if k % 5 == 1 else [pytest.mark.exhaustive], id=str(k))
    for k, row in enumerate(RECORDED["rows"])
]


@pytest.fixture(scope="module")
def module():
    names = [f"tcopy<{k}>" for k in WRITES.values()]
    return gpusim.compile(RECORDED["source"], arch="sm_90", names=names)


@pytest.mark.parametrize("row", ROWS)
def test_time_of_a_copy_by_tiles(module, row):
    """Within 20 %: one load a thread in flight, so that latency and the turnover of blocks decide."""
    columns, warps = row["columns"], row["warps"]
    source, target = np.zeros(SIDE * SIDE, np.float32), np.zeros(SIDE * SIDE, np.float32)
    stamps = np.zeros(SIDE * SIDE // 32 * 4, np.uint32)
    grid = (columns // 32, SIDE * SIDE // columns // warps)
    args = [source, target, np.int32(columns), np.int32(columns), stamps]
    kernel = module[f"tcopy<{WRITES[row['writes']]}>"]
    found = kernel.predict(grid, (32, warps), args, row["shared_bytes"], cache="hot")
    assert found.milliseconds * 1e3 == pytest.approx(row["us"] - LAUNCHED, rel=0.2)


def test_places_in_l2_are_the_recorded_ones():
    recorded = read("h200_slices.json.gz")
    assert slices_of(np.arange(256)).tolist() == recorded["slices"]
    # each piece of 256 bytes lies in one slice
    within = np.array(recorded["slices_of_32_bytes"]).reshape(-1, 8)
    assert (within == within[:, :1]).all()
