"""Launches on which counting boxes of blocks once went wrong, or never ended."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.machine import counting

SOURCE = r"""
#define KERNEL extern "C" __global__ void
#define ARGUMENTS const float *in, int *out, int *flag, int *more

KERNEL byte_in_float(ARGUMENTS)
{
    __shared__ float s[32];
    s[threadIdx.x] = in[threadIdx.x + blockIdx.x * 32];
    ((volatile unsigned char *)s)[4 * threadIdx.x + 3] = 0x7e;
    __syncthreads();
    if (s[threadIdx.x] > 100)
        out[threadIdx.x] = 1;
}

KERNEL half_of_float(ARGUMENTS)
{
    __shared__ float s[32];
    s[threadIdx.x] = in[threadIdx.x + blockIdx.x * 32];
    ((volatile unsigned short *)s)[2 * threadIdx.x + 1] = 0x7e00;
    __syncthreads();
    if (s[threadIdx.x] > 100)
        out[threadIdx.x] = 1;
}

KERNEL match_wrapped(ARGUMENTS)
{
    unsigned value = (blockIdx.x + threadIdx.x) * (1u << 30);
    if (__popc(__match_any_sync(~0u, value)) > 3)
        out[threadIdx.x] = 1;
}

KERNEL divide(ARGUMENTS)
{
    int i = threadIdx.x + blockIdx.x * 32;
    ((float *)out)[i] = in[i] / 0.75f;
}

KERNEL first_block_writes(ARGUMENTS)
{
    if (blockIdx.x == 0) {
        if (atomicAdd(out + threadIdx.x, 1) > 3)
            out[threadIdx.x + 64] = 5;
        flag[5] = 7;
    } else if (((volatile int *)flag)[5] == 7)
        more[threadIdx.x] = 2;
}

KERNEL last_blocks_read(ARGUMENTS)
{
    if (blockIdx.x < 4090) {
        flag[5] = 7;
        return;
    }
    if (atomicAdd(out + threadIdx.x, 1) > 3)
        out[threadIdx.x + 64] = 5;
    if (((volatile int *)flag)[5] == 7)
        more[threadIdx.x] = 2;
}

KERNEL apart(ARGUMENTS)
{
    if (blockIdx.x < 4090) {
        flag[5] = 7;
        return;
    }
    if (atomicAdd(out + threadIdx.x, 1) > 3)
        out[threadIdx.x + 64] = 5;
    more[threadIdx.x] = 2;
}

KERNEL wait_for_first(ARGUMENTS)
{
    if (blockIdx.x == 0) {
        if (atomicAdd(out + threadIdx.x, 1) > 3)
            out[threadIdx.x + 64] = 5;
        flag[5] = 7;
    } else {
        while (((volatile int *)flag)[5] != 7)
            ;
        more[threadIdx.x] = 2;
    }
}

KERNEL wait_for_later(ARGUMENTS)
{
    if (blockIdx.x == 3)
        flag[5] = 7;
    else {
        while (((volatile int *)flag)[5] != 7)
            ;
        more[threadIdx.x] = 2;
    }
}

KERNEL long_loop(ARGUMENTS)
{
    volatile int *counter = flag + blockIdx.x * 32 + threadIdx.x;
    int sum = 0;
    for (int k = 0; k < 20000; ++k)
        sum += in[k] > 2 ? *counter : 1;
    more[threadIdx.x] = sum;
}

KERNEL little(ARGUMENTS)
{
    out[threadIdx.x] = 1;
}

KERNEL long_grid(ARGUMENTS)
{
    long long i = (long long)(blockIdx.x + gridDim.x * blockIdx.y) * blockDim.x + threadIdx.x;
    if (i < 1000)
        out[i * 3] = 1;
}
"""


@cache
def module() -> gpusim.Module:
    return gpusim.compile(SOURCE)


def arguments(wide: bool = False) -> list[Any]:
    numbers = np.random.default_rng(1).random(1 << 18, np.float32)
    if wide:  # the ends of the range need a division's slow path, what lies between does not
        numbers[:] = 1
        numbers[:2] = 1e-35, 3.3e38
    return [numbers, *(np.zeros(1 << 18, np.int32) for _ in range(3))]


def both_equal(name: str, grid: Any, wide: bool = False) -> gpusim.Result:
    counted = module()[name].count(grid, 32, arguments(wide))
    executed = module()[name].launch(grid, 32, arguments(wide))
    assert counted.metrics == executed.metrics
    assert counted.instructions == executed.instructions
    assert counted.patterns == executed.patterns
    assert set(counted.caveats) == set(executed.caveats)
    return counted


@pytest.mark.parametrize("name", ["byte_in_float", "half_of_float"])
def test_a_byte_stored_into_a_float_ends_its_bounds(name):
    result = both_equal(name, 8)
    assert result.metrics["smsp__sass_inst_executed_op_global_st.sum"] == 8


def test_lanes_match_modulo_the_size_of_a_word():
    assert both_equal("match_wrapped", 8).blocks_executed == 0


def test_a_division_may_take_the_fast_path_between_numbers_that_need_the_slow_one():
    assert both_equal("divide", 8, wide=True).blocks_executed == 8
    assert both_equal("divide", 8).blocks_executed == 0


@pytest.mark.parametrize("name", ["first_block_writes", "last_blocks_read"])
def test_blocks_that_are_executed_and_blocks_that_are_counted_share_memory(name):
    assert both_equal(name, 5000).blocks_executed == 5000


def test_blocks_that_share_no_memory_are_counted_and_executed_side_by_side():
    assert both_equal("apart", 5000).blocks_executed == 910


@pytest.mark.parametrize("name", ["wait_for_first", "wait_for_later"])
def test_a_loop_that_waits_for_another_block_ends(name):
    assert both_equal(name, 8).blocks_executed == 8


def test_a_long_loop_is_no_waiting():
    assert both_equal("long_loop", 4).blocks_executed == 0


@pytest.mark.parametrize("grid", [(100, 1), (100, 3), (7, 40)])
def test_a_long_axis_is_counted_piece_by_piece(monkeypatch, grid):
    monkeypatch.setattr(counting, "LONGEST_AXIS", 16)
    assert both_equal("long_grid", grid).blocks_executed == 0


def test_counts_that_no_counter_holds_are_refused():
    with pytest.raises(gpusim.UsageError, match="64 bits"):
        module()["little"].count((2**31 - 1, 65535, 65535), 32, arguments())
