"""The pipeline's inner loop on kernels whose time is known from a microbenchmark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.timing import pipeline
from gpusim.timing.model import model_of

pytest.importorskip("numba")
MODEL = model_of("h200")


def cycles(source: str, grid: int, block: int, args: list[Any], **other: float) -> float:
    module = gpusim.compile(source, arch="sm_90")
    ready = module["k"].prepare(grid, block, args)
    model = model_of("h200", **other) if other else MODEL
    return pipeline.simulate(pipeline.follow_launch(ready, int(model["sms"])), model, "hot").cycles


def chain(body: str, count: int) -> str:
    return (
        'extern "C" __global__ void k(float* x, float a) { float v = x[threadIdx.x];\n'
        + f"#pragma unroll\n for (int i = 0; i < {count}; ++i) {{ {body} }}\n x[threadIdx.x] = v; }}"
    )


def slope(body: str, block: int = 32, step: int = 256) -> float:
    """Cycles that one more repetition takes."""
    x = np.ones(block, np.float32)
    few, many = (cycles(chain(body, n), 1, block, [x, np.float32(1.5)]) for n in (step, 2 * step))
    return (many - few) / step


def test_dependent_arithmetic() -> None:
    assert slope("v = v * a + 1.0f;") == pytest.approx(4, abs=0.3)
    assert slope('asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(v));') == pytest.approx(17, abs=3)


def test_independent_warps_share_the_pipes() -> None:
    """16 warps a scheduler issue one FFMA a cycle, four times as many as one SM has schedulers."""
    assert slope("v = v * a + 1.0f;", 1024) == pytest.approx(8, rel=0.1)  # 32 warps on four schedulers


SHARED = """
extern "C" __global__ void k(int* out, int stride, int n) {
  __shared__ int t[32 * 33];
  for (int i = threadIdx.x; i < 32 * 33; i += blockDim.x) t[i] = i * 0;
  __syncthreads();
  int at = threadIdx.x % 32 * stride, s = 0;
  for (int i = 0; i < n; ++i) { s += ((volatile int*)t)[at]; }
  out[threadIdx.x] = s;
}
"""


def test_bank_conflicts_cost_wavefronts() -> None:
    out = np.zeros(1024, np.int32)

    def each(stride: int) -> float:
        few, many = (cycles(SHARED, 1, 1024, [out, np.int32(stride), np.int32(n)]) for n in (64, 128))
        return (many - few) / 64 / 32

    assert each(32) == pytest.approx(32, rel=0.05)  # all 32 lanes in one bank
    assert each(2) == pytest.approx(2, rel=0.15)


def test_streams_reach_the_bandwidth_of_dram() -> None:
    source = """
    extern "C" __global__ void k(const float4* a, float4* b) {
      int i = blockIdx.x * blockDim.x + threadIdx.x; b[i] = a[i]; }"""
    n = 1 << 22
    a, b = np.zeros(4 * n, np.float32), np.zeros(4 * n, np.float32)
    found = cycles(source, n // 256, 256, [a, b])
    rate = 2 * a.nbytes / (found / MODEL["sm_clock"] * 1e-6)
    assert rate == pytest.approx(4.1e12, rel=0.12)


def test_without_wait_masks_it_would_be_another_model() -> None:
    """The scoreboards matter: a load's latency is seen only through them."""
    source = """
    extern "C" __global__ void k(const int* next, int* out) { int i = threadIdx.x;
      #pragma unroll 1
      for (int k = 0; k < 64; ++k) i = next[i]; out[threadIdx.x] = i; }"""
    one = cycles(source, 1, 32, [np.arange(32, dtype=np.int32), np.zeros(32, np.int32)])
    slow = cycles(source, 1, 32, [np.arange(32, dtype=np.int32), np.zeros(32, np.int32)], latency_l1=134)
    assert slow - one == pytest.approx(100 * 63, rel=0.1)


def test_barriers_wait_for_all() -> None:
    source = """
    extern "C" __global__ void k(int* out, int n) {
      for (int i = 0; i < n; ++i) __syncthreads();
      out[threadIdx.x] = 1; }"""

    def each(block: int) -> float:
        few, many = (cycles(source, 1, block, [np.zeros(1024, np.int32), np.int32(n)]) for n in (64, 128))
        return (many - few) / 64

    assert each(1024) - each(128) == pytest.approx(28 * MODEL["cost_barrier"], rel=0.25)


def test_registers_that_are_read_again_are_free() -> None:
    from gpusim.timing.codes import codes_of

    module = gpusim.compile(chain("v = v * a + 1.0f;", 8), arch="sm_90")
    codes = codes_of(module["k"].program, MODEL.values)
    assert ((codes.slots == 1) | (codes.slots > 1)).all() and (codes.stall >= 1).all()
    assert set(codes.kind.tolist()) >= {3, 4, 9}  # a load, a store, an exit


TWO_BARRIERS = """
extern "C" __global__ void k(float* x, float a, int both) {
  float v = x[threadIdx.x];
  if (threadIdx.x < 128) {
    for (int i = 0; i < 32; ++i) {
      #pragma unroll
      for (int j = 0; j < 64; ++j) v = v * a + 1.0f;
      asm volatile("bar.sync 1, 128;" ::: "memory");
    }
  } else if (both) {
    for (int i = 0; i < 32; ++i) asm volatile("bar.sync 2, 128;" ::: "memory");
  }
  x[threadIdx.x] = v;
}
"""


def test_barriers_with_numbers_are_apart() -> None:
    """Warps that hurry from one barrier to the next do not open that of the others."""
    x = np.ones(256, np.float32)
    alone, beside = (cycles(TWO_BARRIERS, 1, 256, [x, np.float32(1.5), np.int32(both)]) for both in (0, 1))
    assert alone > 32 * 64 * 4
    assert beside == pytest.approx(alone, rel=0.1)


ONE_WORKS = """
extern "C" __global__ void k(float* x, float a) {
  float v = x[threadIdx.x];
  if (threadIdx.x < 32)
    for (int i = 0; i < 64; ++i) {
      #pragma unroll
      for (int j = 0; j < 64; ++j) v = v * a + 1.0f;
    }
  __syncthreads();
  x[threadIdx.x] = v;
}
"""


def test_warps_that_wait_at_a_barrier_are_shown_as_such() -> None:
    module = gpusim.compile(ONE_WORKS, arch="sm_90")
    found = module["k"].predict(1, 256, [np.ones(256, np.float32), np.float32(1.5)], cache="hot")
    assert found.stalls["barrier"] > 0.6  # seven of eight warps for nearly all of the time
