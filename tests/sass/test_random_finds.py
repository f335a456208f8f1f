"""Differences that random kernels brought to light, each pinned down."""

from __future__ import annotations

import numpy as np

import gpusim


def test_a_negated_shifted_zero_carries():
    """LEA d, P, -a, b, 1: the low half of min(x, 0) - (x + x); for x = 0 the borrow must not reach the high half."""
    source = """extern "C" __global__ void k(const long long* x, long long* out) {
        int i = threadIdx.x; long long v = x[i]; out[i] = min(v, 0ll) - (v + v); }"""
    x = np.array([0, 1, -1, 1 << 32, -(1 << 32), 5 << 40, -(1 << 63), (1 << 63) - 1] * 4, np.int64)
    out = np.full_like(x, 7)
    gpusim.compile(source)["k"].launch(1, 32, [x, out])
    assert np.array_equal(out, np.minimum(x, 0) - (x + x))
