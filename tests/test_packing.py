"""A block executed for the few lanes that execute it gives what it gives over the whole chunk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.machine import packing
from gpusim.machine.engine import Engine

KERNELS = Path(__file__).parent / "kernels"
i32 = np.int32
SOURCE = """
extern "C" __global__ void escape(const float* start, int* steps, float* last, int n, int most) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = start[i], c = x;
    int k = 0;
    while (k < most && x * x < 4.0f) {
        x = x * x + c;
        if (k % 3 == 1) x += (float)(i & 3) * 0.001f;
        k++;
    }
    steps[i] = k;
    last[i] = x;
}
"""


def names(path: Path) -> list[str]:
    return re.findall(r"^KERNEL\((\w+)\)", path.read_text(), re.MULTILINE)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack whatever can be packed."""
    for name in ("SHARE", "LEAST_LANES", "LEAST_LENGTH"):
        monkeypatch.setattr(packing, name, 1)


def outcome(kernel: Any) -> tuple[list[int], dict[str, int]]:
    source = np.random.default_rng(7).integers(0, 40, 4096).astype(i32)
    out = np.zeros(4096, i32)
    result = kernel.launch(5, 96, [source, out, i32(470)])
    return out.tolist(), result.metrics


@pytest.mark.parametrize("name", names(KERNELS / "flow.cu") + names(KERNELS / "control.cu"))
def test_results_and_counters_stay(name: str, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    path = next(p for p in (KERNELS / "flow.cu", KERNELS / "control.cu") if name in names(p))
    kernel = gpusim.compile(path, arch="sm_90")[name]
    try:
        packed = outcome(kernel)
    except gpusim.GpusimError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(Engine, "packing", False)
    assert packed == outcome(kernel)


def test_a_loop_that_lanes_leave_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several chunks and with threads that do not fill a warp, as NumPy computes it."""
    runs = 0
    run = packing.Packed.run

    def counted(self: Any, *args: Any) -> None:
        nonlocal runs
        runs += 1
        run(self, *args)

    monkeypatch.setattr(packing.Packed, "run", counted)
    monkeypatch.setenv("GPUSIM_WORKERS", "1")
    n, most = 30_000, 60
    start = np.random.default_rng(2).uniform(-1.5, 1.2, n).astype(np.float32)
    steps, last = np.zeros(n, i32), np.zeros(n, np.float32)
    gpusim.compile(SOURCE, arch="sm_90", options=("-fmad=false",))["escape"].launch(
        -(-n // 250), 250, [start, steps, last, i32(n), i32(most)]
    )
    assert runs > 10
    x, k = start.copy(), np.zeros(n, i32)
    with np.errstate(all="ignore"):
        for step in range(most):
            on = (k == step) & (x * x < np.float32(4))
            moved = x * x + start
            if step % 3 == 1:
                moved = moved + (np.arange(n) & 3).astype(np.float32) * np.float32(0.001)
            x, k = np.where(on, moved, x), k + on
    assert (steps == k).all() and (last == x).all()
