"""Special functions against an H200's answers (recording ``data/h200_mufu_samples.npz``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim.sass import mufu

SAMPLES = Path(__file__).parents[1] / "data" / "h200_mufu_samples.npz"
NAMES = {"RCP": "rcp", "RSQ": "rsq", "SQRT": "sqrt", "EX2": "ex2", "LG2": "lg2", "SIN": "sin", "COS": "cos"}
PTX = {"RCP": "rcp", "RSQ": "rsqrt", "SQRT": "sqrt", "EX2": "ex2", "LG2": "lg2", "SIN": "sin", "COS": "cos"}


def run(ptx: str, bits: np.ndarray) -> np.ndarray:
    """The function's results through a compiled kernel."""
    source = f"""extern "C" __global__ void k(const float* x, float* y, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) asm("{ptx}.approx.ftz.f32 %0, %1;" : "=f"(y[i]) : "f"(x[i])); }}"""
    out = np.zeros(bits.size, np.float32)
    gpusim.compile(source)["k"].launch(-(-bits.size // 256), 256, [bits.view(np.float32), out, np.int32(bits.size)])
    return out


@pytest.mark.parametrize("name", sorted(mufu.EXACT))
def test_recorded_functions_are_exact(name):
    with np.load(SAMPLES) as samples:
        bits, hardware = samples[f"in_{NAMES[name]}"], samples[NAMES[name]]
    assert np.array_equal(run(PTX[name], bits).view(np.uint32), hardware)


@pytest.mark.parametrize("name", ["SIN", "COS"])
def test_the_others_are_near(name):
    """Within what CUDA's documentation allows for the approximate functions, where it states an absolute error."""
    with np.load(SAMPLES) as samples:
        bits, hardware = samples[f"in_{name.lower()}"], samples[name.lower()]
    x, wanted = bits.view(np.float32), hardware.view(np.float32)
    chosen = np.isfinite(wanted) & (np.abs(x) < 3.1)
    got = run(PTX[name], bits)
    assert np.all(np.abs(got[chosen] - wanted[chosen]) <= np.maximum(2.0**-20, np.abs(wanted[chosen]) * 2.0**-22))
