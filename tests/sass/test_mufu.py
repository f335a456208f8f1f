"""Special functions against an H200's answers (recordings ``data/h200_mufu_*``)."""

from __future__ import annotations

import io
import lzma
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim.sass import mufu
from gpusim.sass.numeric import canonical

SAMPLES = Path(__file__).parents[1] / "data" / "h200_mufu_samples.npz"
HELD_OUT = SAMPLES.with_name("h200_mufu_held_out.npz.xz")
NAMES = {name: name.lower() for name in mufu.EXACT}
PTX = {name: f"{name.lower()}.approx.ftz.f32" for name in mufu.EXACT}
PTX |= {"RSQ": "rsqrt.approx.ftz.f32", "TANH": "tanh.approx.f32"}


def run(ptx: str, bits: np.ndarray) -> np.ndarray:
    """The function's results through a compiled kernel."""
    source = f"""extern "C" __global__ void k(const float* x, float* y, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) asm("{ptx} %0, %1;" : "=f"(y[i]) : "f"(x[i])); }}"""
    out = np.zeros(bits.size, np.float32)
    gpusim.compile(source)["k"].launch(-(-bits.size // 256), 256, [bits.view(np.float32), out, np.int32(bits.size)])
    return out


@pytest.mark.parametrize("name", sorted(mufu.EXACT))
def test_recorded_functions_are_exact(name):
    with np.load(SAMPLES) as samples:
        bits, hardware = samples[f"in_{NAMES[name]}"], samples[NAMES[name]]
    assert np.array_equal(run(PTX[name], bits).view(np.uint32), hardware)


@pytest.mark.parametrize("name", ["SIN", "COS", "TANH"])
def test_functions_are_exact_at_arguments_that_they_were_not_made_from(name):
    """16,384 random numbers of every exponent and both signs, NaNs among them."""
    samples = np.load(io.BytesIO(lzma.decompress(HELD_OUT.read_bytes())))
    bits, hardware = samples[f"in_{name.lower()}"], samples[name.lower()]
    assert len(np.unique(bits >> 23)) == 512
    assert np.array_equal(_direct(name, bits), hardware)


def _direct(name: str, bits: np.ndarray) -> np.ndarray:
    """The function's results without a flush or a scaling around it."""
    return canonical(mufu.EXACT[name](bits.view(np.float32)[None]))[0]


def test_tanh_keeps_small_numbers_and_saturates():
    bits = np.array([0, 1, 0x007FFFFF, 0x3B7FFFFF, 0x41000000, 0x7F7FFFFF, 0x7F800000], np.uint32)
    wanted = np.array([*bits[:4], *[0x3F800000] * 3], np.uint32)
    for sign in (np.uint32(0), np.uint32(1 << 31)):
        assert np.array_equal(_direct("TANH", bits | sign), wanted | sign)


def test_tanh_is_near_in_every_segment():
    """An H200 is off by up to 1.113 parts in 100,000, measured over all mantissas of each exponent from -10 to 3."""
    bits = np.arange(0x3B000000, 0x41200000, 101, dtype=np.uint32)
    got = _direct("TANH", bits).view(np.float32).astype(np.float64)
    assert np.abs(got / np.tanh(bits.view(np.float32).astype(np.float64)) - 1).max() < 1.113e-5


@pytest.mark.parametrize("name", ["SIN", "COS"])
def test_the_others_are_near(name):
    """Within what CUDA's documentation allows for the approximate functions, where it states an absolute error."""
    with np.load(SAMPLES) as samples:
        bits, hardware = samples[f"in_{name.lower()}"], samples[name.lower()]
    x, wanted = bits.view(np.float32), hardware.view(np.float32)
    chosen = np.isfinite(wanted) & (np.abs(x) < 3.1)
    got = run(PTX[name], bits)
    assert np.all(np.abs(got[chosen] - wanted[chosen]) <= np.maximum(2.0**-20, np.abs(wanted[chosen]) * 2.0**-22))
