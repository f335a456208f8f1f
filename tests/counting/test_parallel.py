"""Several processes execute a launch as one does: results, counters, errors, and conflicts between parts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim import kernels
from gpusim.machine import parallel

SOURCE = """
extern "C" __global__ void independent(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < (int)(blockIdx.x % 5); ++k)
        sum += in[(i * 7 + k) % n];
    if (i < n)
        out[i] = sum;
}

extern "C" __global__ void neighbour(const float *in, float *out, int n)  // reads what the block before wrote
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i + blockDim.x] = out[i] + in[i];
}

extern "C" __global__ void same_place(const float *in, float *out, int n)  // the last block wins
{
    out[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
}

extern "C" __global__ void in_place(float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    in[i] = in[i] * 2 + 1;
    out[i] = in[i];
}

extern "C" __global__ void outside(const float *in, float *out, int n)
{
    out[blockIdx.x * (blockIdx.x > 30 ? 1 << 20 : 64) + threadIdx.x] = in[threadIdx.x];
}

extern "C" __global__ void ordered(const float *in, float *out, int n)
{
    out[64 + atomicAdd((int *)out, 1)] = in[threadIdx.x];
}

extern "C" __global__ void sums(const float *in, float *out, int n)
{
    atomicAdd((int *)out + threadIdx.x % 7, (int)(in[blockIdx.x * blockDim.x + threadIdx.x] * 1000));
    atomicAdd((unsigned *)out + 8 + blockIdx.x, 3);
}

extern "C" __global__ void looks(const float *in, float *out, int n)  // at what it and others added
{
    atomicAdd((int *)out, 1);
    out[64 + blockIdx.x] = ((volatile float *)out)[0];
}

extern "C" __global__ void own_sum(const float *in, float *out, int n)  // what a block added is an index
{
    int *count = (int *)out + blockIdx.x;
    atomicAdd(count, 1);
    __syncthreads();
    int all = *(volatile int *)count;
    out[gridDim.x + blockIdx.x * (blockDim.x - 1) + all - 1 - threadIdx.x] = in[all - 1 - threadIdx.x];
}

extern "C" __global__ void own_wait(const float *in, float *out, int n)
{
    int *count = (int *)out + blockIdx.x;
    atomicAdd(count, 1);
    if (threadIdx.x == 0)
        while (*(volatile int *)count != blockDim.x)
            ;
}

extern "C" __global__ void chain(const float *in, float *out, int n)  // each block waits for the one before
{
    volatile int *count = (volatile int *)out;
    if (threadIdx.x == 0) {
        while (*count < blockIdx.x)
            ;
        atomicAdd((int *)out, 1);
    }
}

extern "C" __global__ void least(const float *in, float *out, int n)
{
    atomicMin((int *)out, -(int)(in[blockIdx.x * blockDim.x + threadIdx.x] * 1000));
}
"""


def both(monkeypatch: pytest.MonkeyPatch, kernel: gpusim.Kernel, grid: int, block: int) -> list[tuple[Any, list[Any]]]:
    outcomes = []
    for processes in ("1", "3"):
        monkeypatch.setenv(parallel.WORKERS_VARIABLE, processes)
        rng = np.random.default_rng(1)
        args = [rng.random(grid * block + block, np.float32), np.zeros(grid * block + block, np.float32)]
        try:
            result: Any = kernel.launch(grid, block, [*args, np.int32(grid * block)])
        except gpusim.GpusimError as error:
            result = str(error)
        outcomes.append((result, args))
    return outcomes


@pytest.mark.parametrize(
    ("name", "runs", "conflicts"),
    [
        ("independent", 1, 0),
        ("neighbour", 1, 1),
        ("same_place", 1, 1),
        ("in_place", 1, 0),
        ("outside", 1, 0),
        ("ordered", 0, 0),
        ("sums", 1, 0),
        ("looks", 1, 1),
        ("own_sum", 1, 1),
        ("own_wait", 1, 1),
        ("chain", 1, 1),
        ("least", 0, 0),
    ],
)
def test_as_one_process(name, runs, conflicts, apart, monkeypatch):
    kernel = gpusim.compile(SOURCE)[name]
    (one, one_args), (three, three_args) = both(monkeypatch, kernel, 41, 64)
    assert apart == {"run": runs, "conflict": conflicts}
    assert one == three
    if not isinstance(one, str):
        assert one.patterns == three.patterns
    else:
        assert name == "outside" and "of block (31, 0, 0)" in one
    for a, b in zip(one_args, three_args, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    "name", ["transpose_pad", "reduce_sequential", "softmax_shuffle", "matmul_smem", "hist_shared_random"]
)
def test_catalogue(name, apart, monkeypatch):
    case = kernels.find(name)
    module = gpusim.compile(case.source, options=case.options, names=case.names)
    found = []
    for processes in ("1", "2"):
        monkeypatch.setenv(parallel.WORKERS_VARIABLE, processes)
        problem = case.build(case.small_sizes[-1])
        launch = problem.launches[0]
        args = [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args]
        found.append((module[launch.kernel].launch(launch.grid, launch.block, args, launch.shared_bytes), problem))
        if len(problem.launches) == 1:
            assert not problem.differences()
    assert found[0][0] == found[1][0]
    for key, buffer in found[0][1].buffers.items():
        assert buffer.tobytes() == found[1][1].buffers[key].tobytes()


def test_blocks_executed_beside_counted_ones_stay_in_one_process(
    monkeypatch: pytest.MonkeyPatch, apart: dict[str, int]
) -> None:
    """An image that its tiles do not fill: the blocks at its edges are executed while others are counted."""
    source = Path(__file__).parents[1] / "data" / "timed_kernels_more.cu"
    kernel = gpusim.compile(source, arch="sm_90")["conv5x5"]
    monkeypatch.setenv(parallel.WORKERS_VARIABLE, "3")
    n = 300
    args = [np.ones((n, n), np.float32), np.zeros((n, n), np.float32), np.int32(n), np.int32(n)]
    counted = kernel.count((10, 19), (32, 8), args)
    assert counted.metrics == kernel.launch((10, 19), (32, 8), args).metrics


def test_what_a_process_did_not_expect_is_told(monkeypatch: pytest.MonkeyPatch, apart: dict[str, int]) -> None:
    kernel = gpusim.compile(SOURCE)["independent"]
    monkeypatch.setenv(parallel.WORKERS_VARIABLE, "3")
    monkeypatch.setattr(parallel.Watch, "settle", lambda self: 1 / 0)
    with pytest.raises(gpusim.ExecutionError, match=r"executed a part of the grid failed: ZeroDivisionError"):
        args = [np.zeros(64 * 40, np.float32), np.zeros(64 * 40, np.float32), np.int32(64 * 40)]
        kernel.launch(40, 64, args)


def test_launches_of_several_threads(monkeypatch: pytest.MonkeyPatch, apart: dict[str, int]) -> None:
    """A process that is started while another thread is in a launch would miss locks: then none is."""
    monkeypatch.setenv(parallel.WORKERS_VARIABLE, "3")
    kernel = gpusim.compile(SOURCE)["independent"]
    grid, block = 40, 64
    numbers = np.random.default_rng(1).random(grid * block, np.float32)
    alone = np.zeros(grid * block, np.float32)
    expected = kernel.launch(grid, block, [numbers, alone, np.int32(grid * block)])
    problems: list[str] = []

    def launches() -> None:
        try:
            for _ in range(5):
                out = np.zeros(grid * block, np.float32)
                if kernel.launch(grid, block, [numbers, out, np.int32(grid * block)]) != expected:
                    problems.append("counters")
                if out.tobytes() != alone.tobytes():
                    problems.append("results")
        except Exception as error:
            problems.append(repr(error))

    threads = [threading.Thread(target=launches) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not problems and not any(thread.is_alive() for thread in threads)
    assert not parallel.launching
