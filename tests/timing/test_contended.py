"""Atomics and stores of all SMs that want the same few places: predicted times beside those of recorded sweeps."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim import kernels

pytest.importorskip("numba")
DATA = Path(__file__).parents[1] / "data"
SOURCE = Path(str(kernels.__file__)).parent / "calibrate" / "stream.cu"
HOW = {"same": 0, "neighbours": 1, "random": 2}
LOOPS = 64


@cache
def sweep() -> list[dict]:
    with gzip.open(DATA / "sweeps_h200.json.gz") as file:
        return json.load(file)["sweeps"]["atomics"]


@cache
def kernel(kind: int) -> gpusim.Kernel:
    return gpusim.compile(SOURCE, arch="sm_90", names=[f"stream_atomic<{kind}>"])[f"stream_atomic<{kind}>"]


@pytest.mark.parametrize("lanes", HOW)
@pytest.mark.parametrize(("distinct", "apart"), [(1, 4), (32, 4), (32, 32), (256, 4), (256, 32), (1024, 4), (65536, 4)])
def test_integer_adds_on_few_places(distinct, apart, lanes):
    """Few places or many, lanes spread over them one way or another: recorded are 1 to 480 adds a ns."""
    wanted = ("RED_INT", distinct, apart, lanes)
    rows = [r for r in sweep() if (r["kind"], r["distinct"], r["apart"], r["lanes"]) == wanted]
    if not rows:
        pytest.skip("not in the sweep")
    threads = rows[0]["operations"] // LOOPS
    words = np.zeros(distinct * apart // 4 + 64, np.uint32)
    args = [words, np.zeros(threads, np.uint32), np.uint32(distinct - 1), np.int32(apart // 4), np.int32(HOW[lanes]),
            np.uint32(1), np.int32(LOOPS)]  # fmt: skip
    found = kernel(0).predict(threads // 256, 256, args, cache="hot")
    print(wanted, found.milliseconds / rows[0]["ms"])
    assert found.milliseconds == pytest.approx(rows[0]["ms"], rel=0.35)
