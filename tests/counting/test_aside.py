"""Launches whose data decides are counted without what they store to global memory, unless that is read again."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.machine import counting, parallel
from gpusim.machine.memory import MOST_SPARE, DeviceMemory, Spare

SOURCE = """
#define KERNEL extern "C" __global__ void

// the buffers differ
KERNEL gather(const int *index, int *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[index[i] & 1023] = (int)(in[index[i]] * 100.0f);
}

KERNEL bins(const int *index, int *out, const float *in, int n)
{
    __shared__ int counts[64];
    if (threadIdx.x < 64) counts[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&counts[index[i] & 63], 1);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&out[threadIdx.x], counts[threadIdx.x]);
}

// what is stored is read, by the same thread, by another one of its block, by a later block
KERNEL jump(int *index, int *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 3; k++)
        if (i < n) index[i] = index[index[i]] / 2;
    if (i < n) out[index[i]] = i;
}

KERNEL exchanged(int *index, int *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = index[i] & 255;
    __syncthreads();
    index[out[i ^ 1]] = 1;
}

KERNEL passed_on(int *index, int *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[index[i] & 511] = i;
    if (threadIdx.x == 0) index[i + blockDim.x] = i % 7;
}

// the length of a loop is what an atomic returned
KERNEL queue(int *index, int *out, const float *in, int n)
{
    int mine = atomicAdd(&index[0], 1);
    for (int k = 0; k < mine % 5; k++) out[k * 32 + threadIdx.x] = mine;
}

// a pointer that may lead to either memory
KERNEL generic(int *index, int *out, const float *in, int n)
{
    __shared__ int own[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    own[threadIdx.x] = index[i] & 127;
    __syncthreads();
    int *place = index[i] & 1 ? own : out;
    place[threadIdx.x] = 5;
    __syncthreads();
    out[own[threadIdx.x ^ 3]] = 1;
}

// later blocks wait for what earlier ones store
KERNEL waits(const int *index, volatile int *out, const float *in, int n)
{
    int x = index[threadIdx.x];
    if (blockIdx.x < 6) {
        for (int k = 0; k < 400; k++) x = index[(x + k) & 1023];
        out[1000 + blockIdx.x * blockDim.x + threadIdx.x] = x;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) out[blockIdx.x] = 1;
    } else if (threadIdx.x == 0) {
        while (out[blockIdx.x - 6] == 0) ;
    }
}

KERNEL outside(const int *index, int *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[index[i] + (blockIdx.x == 7 ? 1 << 24 : 0)] = 1;
}
"""
BLOCKS, THREADS, WORDS = 12, 96, 4096
READ_BACK = {"jump", "exchanged", "passed_on", "waits"}
NAMES = ["gather", "bins", "jump", "exchanged", "passed_on", "queue", "generic", "waits", "outside"]


@pytest.fixture(scope="module")
def module() -> gpusim.Module:
    return gpusim.compile(SOURCE)


def arguments() -> list[Any]:
    rng = np.random.default_rng(4)
    index = rng.integers(0, 1024, WORDS).astype(np.int32)
    return [index, np.zeros(WORDS, np.int32), rng.random(WORDS, np.float32), np.int32(BLOCKS * THREADS)]


def outcome(run: Any) -> Any:
    try:
        return run(BLOCKS, THREADS, arguments())
    except gpusim.GpusimError as error:
        return str(error)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("processes", [1, 3])
def test_counting_is_executing(
    module: gpusim.Module, name: str, processes: int, apart: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(parallel.WORKERS_VARIABLE, str(processes))
    fell_back = []
    again = counting.GridCounter._begin_anew
    monkeypatch.setattr(counting.GridCounter, "_begin_anew", lambda self, *a: (fell_back.append(name), again(self, *a)))
    counted, executed = outcome(module[name].count), outcome(module[name].launch)
    if isinstance(executed, str):
        assert counted == executed and "of block (7, 0, 0)" in executed
        return
    assert bool(apart["run"]) == (processes > 1 and name != "queue")  # whose atomics have an order
    assert counted.metrics == executed.metrics
    assert counted.instructions == executed.instructions
    assert bool(fell_back) == (name in READ_BACK)


def test_what_only_reaches_global_memory_is_not_computed(module: gpusim.Module) -> None:
    needed = []
    for name in ("bins", "exchanged"):
        found = re.search(r"only the (\d+) of", module[name].count(BLOCKS, THREADS, arguments()).path)
        assert found is not None
        part = module[name]._counting.part
        assert part is not None
        needed.append((int(found[1]), len(part.needed)))
    assert needed[0][0] < needed[0][1]  # the increments of shared memory are left out
    assert needed[1][0] == needed[1][1]


def test_memory_is_used_again_unless_somebody_looks_at_it() -> None:
    spare = Spare()

    def launch(fill: int, size: int = 5000) -> DeviceMemory:
        memory = DeviceMemory(spare=spare)
        memory.add("numbers", np.full(size, fill, np.uint8))
        memory.build()
        return memory

    first = launch(1)
    place = first.bytes.ctypes.data
    assert first.words32.nbytes == first.total
    first.end()
    second = launch(2, 4000)
    assert second.bytes.ctypes.data == place
    assert (second.read(second.buffers[0]) == 2).all()
    outside = np.ones(second.total, bool)
    start = second.buffers[0].start - second.base
    outside[start : start + 4000] = False
    assert (second.bytes[outside] == 0xCB).all()  # what the first one held there is gone
    seen = second.bytes[:10]
    second.end()
    third = launch(3)
    assert third.bytes.ctypes.data != place
    assert seen.nbytes == 10


def test_memory_that_is_much_too_large_is_given_back() -> None:
    spare = Spare()
    spare.keep(np.zeros(64 << 20, np.uint8))
    assert spare.take(1000).nbytes == 1000
    assert spare.take(1 << 20).nbytes == 1 << 20  # and is not kept
    spare.keep(np.broadcast_to(np.zeros(1, np.uint8), MOST_SPARE + 1))
    assert spare.take(MOST_SPARE // 2).nbytes == MOST_SPARE // 2


def test_no_process_is_left(module: gpusim.Module, apart: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(parallel.WORKERS_VARIABLE, "3")
    for _ in range(3):
        module["bins"].launch(BLOCKS, THREADS, arguments())
    assert apart["run"] == 3
    for process in list(parallel._ending):
        os.waitpid(process, 0)
    parallel.reap()  # which finds that they have been taken note of
    assert not parallel._ending


@pytest.mark.parametrize("processes", [1, 3])
def test_what_was_only_read_is_not_written_back(
    processes: int, apart: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an array may be given twice, to be read and to be written."""
    monkeypatch.setenv(parallel.WORKERS_VARIABLE, str(processes))
    source = """extern "C" __global__ void next(float *out, const float *in, int *sums, char *bytes, const char *old) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        out[i] = in[i] + 1; atomicAdd(&sums[i & 7], 1); if (i & 1) bytes[i] = old[i] + 2; }"""
    n = 40 * 96
    numbers, sums, bytes_ = np.arange(n, dtype=np.float32), np.zeros(8, np.int32), np.zeros(n, np.int8)
    gpusim.compile(source)["next"].launch(40, 96, [numbers, numbers[:], sums, bytes_, bytes_[:]])
    assert numbers.tolist() == list(range(1, n + 1))
    assert sums.tolist() == [n // 8] * 8
    assert bytes_.tolist() == [0, 2] * (n // 2)
