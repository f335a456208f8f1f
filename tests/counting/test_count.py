"""Counting a launch gives what executing it gives: kernels whose blocks differ, at many grids and sizes."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpusim
from gpusim import kernels

SOURCE = Path(__file__).with_name("counting.cu")
NAMES = re.findall(r"^KERNEL (\w+)\(", SOURCE.read_text(), re.M)
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_120")
WORDS = 1 << 16
# kernels that nothing but execution can count, at least in some blocks
DATA_DECIDES = {"gather", "lookup", "compare_data", "row_lengths", "spilled", "by_switch", "shared_blocks", "returned"}


@cache
def module(arch: str) -> gpusim.Module:
    return gpusim.compile(SOURCE, arch=arch)


def arguments(n: int) -> list[Any]:
    numbers = np.random.default_rng(n)
    return [
        numbers.random(WORDS, np.float32),
        numbers.random(WORDS, np.float32),
        numbers.integers(0, 4096, 4096, np.int32),
        np.int32(n),
    ]


def both(kernel: gpusim.Kernel, grid: Any, block: Any, n: int, shared: int) -> tuple[Any, Any]:
    """What counting and executing give: a Result or the text of the error."""
    outcomes = []
    for run in (kernel.count, kernel.launch):
        try:
            outcomes.append(run(grid, block, arguments(n), shared))
        except gpusim.GpusimError as error:
            outcomes.append(str(error))
    return outcomes[0], outcomes[1]


def compare(counted: Any, executed: Any) -> None:
    if isinstance(counted, str) or isinstance(executed, str):
        assert counted == executed
        return
    assert counted.metrics == executed.metrics
    assert counted.instructions == executed.instructions
    assert counted.patterns == executed.patterns
    assert set(counted.caveats) == set(executed.caveats)
    assert counted.occupancy == executed.occupancy


def shapes(seed: int) -> list[tuple[Any, Any, int]]:
    """Launches (grid, block, n): whole and partial warps, one block and many, up to three dimensions."""
    choice = random.Random(seed)
    fixed = [((1, 1, 1), 32, 40), ((8, 1, 1), 256, 60), ((5, 4, 1), 64, 33), ((9, 3, 2), 64, 41), ((37, 1, 1), 96, 21)]
    drawn = [
        (
            (choice.randint(1, 40), choice.randint(1, 5), choice.randint(1, 3)),
            32 * choice.randint(1, 8),
            choice.randint(1, 90),
        )
        for _ in range(3)
    ]
    return [*fixed, *drawn, ((3, 3, 1), 50, 17)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "arch", ["sm_90", *(pytest.param(a, marks=pytest.mark.exhaustive) for a in ARCHITECTURES if a != "sm_90")]
)
def test_count_equals_launch(name, arch):
    kernel = module(arch)[name]
    together = 0
    for grid, block, n in shapes(len(name)):
        counted, executed = both(kernel, grid, block, n, 4 * 256)
        compare(counted, executed)
        if not isinstance(counted, str):
            together += counted.blocks_executed == 0
    assert together or name in DATA_DECIDES or name == "outside", "no launch was counted without executing blocks"


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from([(32, 8), (16, 16), (33, 3), (8, 1), (64, 2)]),
    st.integers(1, 250),
)
def test_any_grid_of_a_kernel_with_edges(x, y, block, n):
    compare(*both(module("sm_90")["edges"], (x, y), block, n, 0))


SIZES = {
    "transpose_pad": st.integers(1, 300),
    "transpose_naive": st.integers(1, 300),
    "reduce_sequential": st.integers(1, 30000),
    "reduce_shuffle": st.integers(1, 30000),
    "matmul_naive": st.integers(1, 70),
    "softmax_shuffle": st.integers(1, 90),
    "hist_shared_random": st.integers(1, 20000),
    "bank_column": st.integers(1, 5000),
}


@pytest.mark.parametrize("name", SIZES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_catalogue_kernels_at_odd_sizes(name, data):
    case = kernels.find(name)
    compiled = gpusim.compile(case.source, options=case.options, names=case.names)
    problem = case.build(data.draw(SIZES[name]))
    for launch in problem.launches:
        args = [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args]
        kernel = compiled[launch.kernel]
        counted = kernel.count(launch.grid, launch.block, args, launch.shared_bytes)
        compare(counted, kernel.launch(launch.grid, launch.block, args, launch.shared_bytes))


@pytest.mark.parametrize("family", sorted(kernels.families()))
def test_the_catalogue(family):
    for case in kernels.families()[family]:
        compiled = gpusim.compile(case.source, options=case.options, names=case.names)
        problem = case.build(case.small_sizes[-1])
        for launch in problem.launches:
            args = [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args]
            outcomes: list[Any] = []
            for run in (compiled[launch.kernel].count, compiled[launch.kernel].launch):
                try:
                    outcomes.append(run(launch.grid, launch.block, args, launch.shared_bytes))
                except gpusim.ExecutionError as error:
                    outcomes.append(str(error))
            compare(*outcomes)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("transpose_bank", 8192), ("transpose_naive", 8192), ("transpose_pad", 4099), ("reduce_sequential", 1 << 24),
        ("matmul_vec4", 2048), ("softmax_smem_1024", 65536),
    ],
)  # fmt: skip
def test_full_sizes_are_counted_without_executing_a_block(name, size):
    case = kernels.find(name)
    compiled = gpusim.compile(case.source, options=case.options, names=case.names)
    launch = (problem := case.build(size)).launches[0]
    args = [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args]
    result = compiled[launch.kernel].count(launch.grid, launch.block, args, launch.shared_bytes)
    assert result.blocks_executed == 0


def test_counters_grow_with_the_grid_as_they_must():
    """A square that the tiles fill: every counter of a transpose is proportional to the blocks."""
    kernel = gpusim.compile(kernels.find("transpose_pad").source, names=["transpose_smem<33>"])["transpose_smem<33>"]
    small, large = (
        kernel.count((n // 32, n // 16), (32, 16), [np.zeros((n, n), np.float32)] * 2 + [np.int32(n)] * 2)
        for n in (256, 4096)
    )
    for name, value in small.metrics.items():
        if name.endswith(".sum"):
            assert large.metrics[name] == value * 256, name


def test_buffers_are_left_alone():
    kernel = module("sm_90")["in_place"]
    args = arguments(3)
    before = [a.copy() for a in args]
    kernel.count(8, 64, args)
    assert all((a == b).all() for a, b in zip(args, before, strict=True))


def test_read_only_and_huge_buffers_need_not_exist_in_memory():
    """Memory that is reserved but never touched: what is not read is not copied either."""
    large = np.zeros(1 << 34, np.uint8)  # 16 GiB of address space
    source = "__global__ void fill(float *a) { a[(size_t)blockIdx.x * 1024 + threadIdx.x] = 1; }"
    result = gpusim.compile(source)["fill"].count(1 << 22, 1024, [large.view(np.float32)])
    assert result.metrics["smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_st.sum"] == (1 << 32) // 8


def test_listeners_hear_every_block():
    class Counter:
        blocks = 0

        def access(self, event):
            self.blocks += event.blocks

        def branch(self, event):
            pass

    listener = Counter()
    result = module("sm_90")["edges"].count((4, 4), 32, arguments(60), listeners=(listener,))
    assert result.path == "full execution" and listener.blocks == 32
