"""The fast model of time: bounds from exact counters, what L1 keeps, a block's latency, and recorded times."""

from __future__ import annotations

import numpy as np
import pytest

import gpusim
from gpusim import kernels
from gpusim.cli.catalogue import compile_case
from gpusim.cli.targets import case_jobs
from gpusim.errors import UsageError
from gpusim.runner import times
from gpusim.timing import bounds
from gpusim.timing.model import model_of

COPY = """
extern "C" __global__ void copy(const float *in, float *out, int stride)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i * stride];
}

extern "C" __global__ void again(const float *in, float *out, int words, int times)
{
    float sum = 0;
#pragma unroll 16
    for (int k = 0; k < times; k++)
        sum += ((volatile const float *)in)[blockIdx.x * words + (k * 32) % words + threadIdx.x];
    out[blockIdx.x * 32 + threadIdx.x] = sum;
}

extern "C" __global__ void chain(float *out, int steps)
{
    float x = out[threadIdx.x];
    for (int k = 0; k < steps; k++)
        x = x * 1.5f + 1.0f;
    out[threadIdx.x] = x;
}
"""


@pytest.fixture(scope="module")
def module():
    return gpusim.compile(COPY)


def predicted(kernel, grid, block, args, **options):
    return kernel.predict(grid, block, args, model="bounds", **options)


def test_a_long_copy_is_limited_by_dram_and_moves_each_byte_once(module):
    n = 1 << 24
    p = predicted(module["copy"], n // 1024, 1024, [np.zeros(n, np.float32), np.zeros(n, np.float32), np.int32(1)])
    assert p.limiter in ("DRAM", "latency of L2 and DRAM") and p.model == "bounds" and p.device == "h200"
    assert p.dram_bytes_read == pytest.approx(4 * n, rel=0.02)
    assert p.dram_bytes_written == pytest.approx(4 * n, rel=0.02)
    assert p.l2_bytes == pytest.approx(8 * n, rel=0.02)
    c = model_of("h200")
    least = 4e3 * n / c["dram_read_bandwidth"] + 4e3 * n / c["dram_write_bandwidth"]
    assert p.breakdown["DRAM"] >= least
    # recorded: a tile copy by blocks of 32 warps takes 2.2 times as long (h200_latency)
    assert least < p.milliseconds < 2.5 * least
    assert sum(p.stalls.values()) == pytest.approx(1) and max(p.stalls, key=p.stalls.get) == "long scoreboard"


def test_dram_moves_64_bytes_for_a_sector_that_stands_alone(module):
    n = 1 << 20
    args = [np.zeros(16 * n, np.float32), np.zeros(n, np.float32), np.int32(16)]
    p = predicted(module["copy"], n // 256, 256, args)
    assert p.dram_bytes_read == pytest.approx(64 * n, rel=0.02)


def test_hot_launches_find_what_fits_in_l2(module):
    n = 1 << 20
    args = [np.zeros(n, np.float32), np.zeros(n, np.float32), np.int32(1)]
    cold, hot = (predicted(module["copy"], n // 256, 256, args, cache=cache) for cache in ("cold", "hot"))
    assert hot.dram_bytes_read == 0 < cold.dram_bytes_read
    assert hot.milliseconds < cold.milliseconds


@pytest.mark.parametrize(("kilobytes", "low", "high"), [(16, 0.9, 1.0), (320, 0.0, 0.1)])
def test_l1_keeps_what_fits(module, kilobytes, low, high):
    words = 256 * kilobytes
    count = words // 32 * (16 if kilobytes < 100 else 2)
    args = [np.zeros(words, np.float32), np.zeros(32, np.float32), np.int32(words), np.int32(count)]
    p = predicted(module["again"], 1, 32, args)
    assert low <= p.l1_hit_rate <= high


def test_a_chain_of_arithmetic_takes_its_latency(module):
    short, long = (
        predicted(module["chain"], 1, 32, [np.zeros(32, np.float32), np.int32(steps)]) for steps in (1000, 21000)
    )
    a_step = (long.cycles - short.cycles) / 20000
    assert 4 <= a_step <= 6  # a dependent FFMA every four cycles, and the loop
    assert long.limiter == "latency of arithmetic"


def test_reuse_becomes_stack_distance():
    line = np.tile(np.arange(50), 40)  # over and over: each reuse is 50 accesses away, and 50 lines are distinct
    reuse = bounds._reuse(line)
    assert set(reuse[:50]) == {-1} and set(reuse[50:]) == {50}
    assert bounds._stack_distances(reuse)[50] == pytest.approx(50)


def test_without_numba_auto_says_so_and_pipeline_is_refused(module, monkeypatch):
    monkeypatch.setattr(bounds, "have_numba", lambda: False)
    args = [np.zeros(256, np.float32), np.zeros(256, np.float32), np.int32(1)]
    p = module["copy"].predict(1, 256, args)
    assert p.model == "bounds" and any("pip install 'gpusim[timing]'" in note for note in p.notes)
    with pytest.raises(UsageError, match=r"needs numba: pip install 'gpusim\[timing\]'"):
        module["copy"].predict(1, 256, args, model="pipeline")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("access_stride_1", 33554432),
        ("matmul_naive", 1024),
        ("reduce_shuffle", 1048576),
        ("transpose_naive", 1024),
        ("softmax_smem", 4096),
        ("occupancy_shared", 33554432),
    ],
)
def test_recorded_times_within_a_third(name, size):
    case = kernels.find(name)
    jobs = case_jobs(compile_case(case, None), case.build(size))
    milliseconds = sum(predicted(j.kernel, j.grid, j.block, j.args).milliseconds for j in jobs)
    measured = times.recorded("h200").of(name, size, "cold")
    assert measured is not None
    assert 0.67 < 1e3 * milliseconds / measured.median < 1.5
