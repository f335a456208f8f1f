"""Kernels after problems that people reported, against what Nsight Compute counted on an H200.

``data/h200_cases.json.gz`` holds the sources, the launches and the counters.  The kernels are compiled here, so this
also tells when the compiler no longer makes the code that was recorded.
"""

from __future__ import annotations

import gzip
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim

RECORDING: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parent / "data" / "h200_cases.json.gz").read_bytes())
)
CASES = {case["id"]: case for case in RECORDING["cases"]}

# The plain hardware counter of conflicts also sees arbitration between warps, which changes from run to run.
NOISY = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
NOISE = 0.1  # of the accesses' wavefronts, at most; seen: 0.08


@cache
def module(case: str) -> gpusim.Module:
    return gpusim.compile(CASES[case]["kernel"], arch="sm_90")


def argument(spec: dict[str, Any]) -> Any:
    """A buffer or a scalar."""
    kind = np.dtype(spec["dtype"])
    if "value" in spec:
        return kind.type(spec["value"])
    if spec["init"] == "iota":
        return np.arange(spec["count"]).astype(kind)
    assert spec["init"] == "zero"
    return np.zeros(spec["count"], kind)


def simulate(case: dict[str, Any], entry: str) -> tuple[dict[str, int], int]:
    """The counters and how many times they make the launch's: some launches of equal blocks are executed in part."""
    grid = case.get("simulated_grid", case["grid"])
    arguments = [argument(spec) for spec in case["args"]]
    result = module(case["id"])[entry].count(grid, case["block"], arguments, case["dynamic_shared"])
    assert not result.caveats
    return result.metrics, math.prod(case["grid"]) // math.prod(grid)


@pytest.mark.parametrize(
    ("name", "entry"), [pytest.param(c, e, id=f"{c}-{e}") for c, case in CASES.items() for e in case["entries"]]
)
def test_counters_equal_the_hardware(name, entry):
    case = CASES[name]
    simulated, times = simulate(case, entry)
    wrong = []
    for metric, hardware in case["entries"][entry].items():
        value = simulated[metric] * (1 if metric.startswith("launch__") else times)
        if metric.startswith(NOISY):
            operation = metric.removeprefix(NOISY)
            waves = case["entries"][entry][f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{operation}"]
            if value <= hardware <= value + NOISE * waves:
                continue
        if value != hardware:
            wrong.append(f"{metric}: {value}, hardware {hardware}")
    assert not wrong, "\n".join(wrong)


def test_every_case_is_compared_in_full():
    """A metric that is renamed here would drop out of the comparison unnoticed."""
    assert sum(len(case["entries"]) for case in CASES.values()) >= 30
    for case in CASES.values():
        for counters in case["entries"].values():
            assert len(counters) >= 30 and "smsp__sass_inst_executed.sum" in counters


def test_the_recording_says_where_it_comes_from():
    header = RECORDING["header"]
    assert header["device"] == "NVIDIA H200" and header["driver"] and header["nvrtc"] and header["tool"]
