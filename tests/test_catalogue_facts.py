"""What the catalogue's kernels are there to show, from their counters; and their results, on every architecture.

The machine code is made here by the compiler, so a fact that fails says that the compiler, the source or the counting
has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim import kernels
from gpusim.cli.catalogue import compile_case
from gpusim.errors import UsageError
from gpusim.kernels import Case, Problem
from gpusim.kernels.matmul.case import coarse_values, product
from gpusim.kernels.softmax.case import problem as softmax_problem

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_100", "sm_103", "sm_120")
ALL = [case for cases in kernels.families().values() for case in cases]
every_case = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)

# Wrong on purpose, and the simulator's order of events does not show it in the results.
WRONG_BUT_RIGHT_HERE = {"reduce_unroll_warp_race", "reduce_add_sync_mask"}


@cache
def module(source: str, names: tuple[str, ...], arch: str) -> gpusim.Module:
    return gpusim.compile(source, arch=arch, names=names)


def module_of(case: Case, arch: str = "sm_90") -> gpusim.Module:
    """All cases of a source share one module."""
    names = tuple(dict.fromkeys(name for other in ALL if other.source == case.source for name in other.names))
    return module(str(case.source), names, arch)


def execute(case: Case, problem: Problem, arch: str = "sm_90") -> list[gpusim.Result]:
    results = []
    for launch in problem.launches:
        args = [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args]
        kernel = module_of(case, arch)[launch.kernel]
        results.append(kernel.launch(launch.grid, launch.block, args, launch.shared_bytes))
    return results


@cache
def ran(name: str, size: int) -> tuple[Problem, gpusim.Result]:
    """The problem after its launches, and the counters of the first one."""
    case = kernels.find(name)
    problem = case.build(size)
    return problem, execute(case, problem)[0]


def metric(name: str, size: int, key: str) -> int:
    return ran(name, size)[1].metrics[key]


def a_request(name: str, size: int, space: str, operation: str, column: str) -> list[float]:
    """Wavefronts, sectors or tags a request, of each instruction of a kind that accessed memory, in program order."""
    return [
        getattr(i, column) / i.requests
        for i in ran(name, size)[1].instructions
        if i.space == space and i.operation == operation and i.requests
    ]


def opcodes(name: str, arch: str = "sm_90") -> list[str]:
    """Opcodes with modifiers of the case's first kernel, in program order."""
    case = kernels.find(name)
    instructions = module_of(case, arch)[case.names[0]].program.instructions
    return [next(word for word in i.text.split() if not word.startswith("@")) for i in instructions]


def executed(name: str, size: int, opcode: str) -> int:
    """Warps that executed instructions of an opcode, all modifiers together."""
    total = 0
    for instruction in ran(name, size)[1].instructions:
        words = instruction.sass.split()
        if words[words[0].startswith("@")].split(".")[0] == opcode:
            total += instruction.executed
    return total


# Results


@every_case
def test_results_are_those_of_the_reference(case: Case) -> None:
    differs = False
    for size in case.small_sizes:
        problem = case.build(size)
        execute(case, problem)
        differs |= problem.differences() != []
    assert differs == (case.wrong is not None and case.name not in WRONG_BUT_RIGHT_HERE)


def on_architectures() -> Iterator[Any]:
    for arch in ARCHITECTURES:
        for case in ALL:
            if case.min_arch <= int(arch.removeprefix("sm_")):
                yield pytest.param(case, arch, id=f"{case.name}-{arch}")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("case", "arch"), list(on_architectures()))
def test_results_on_other_architectures(case: Case, arch: str) -> None:
    differs = False
    for size in case.small_sizes:
        problem = case.build(size)
        execute(case, problem, arch)
        differs |= problem.differences() != []
    assert differs == (case.wrong is not None and case.name not in WRONG_BUT_RIGHT_HERE)


@pytest.mark.parametrize("name", ["async_copy", "reduce_add_sync", "reduce_add_sync_mask"])
def test_an_architecture_that_lacks_an_instruction_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} needs sm_80 or later, not sm_75"):
        compile_case(kernels.find(name), "sm_75")


# Transposes


@pytest.mark.parametrize(
    ("name", "wavefronts"),
    [
        ("transpose_smem", 16),
        ("transpose_pad", 2),
        ("transpose_pad2", 1),
        ("transpose_bank", 32),
        ("transpose_bank_pad", 1),
        ("transpose_tile4", 32),
        ("transpose_tile4_pad", 1),
        ("transpose_tile4_swizzle", 1),
    ],
)
def test_reads_of_a_transposed_tile(name: str, wavefronts: int) -> None:
    assert set(a_request(name, 128, "shared", "load", "wavefronts")) == {wavefronts}
    assert set(a_request(name, 128, "shared", "store", "wavefronts")) == {1}
    conflicts = metric(name, 128, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum")
    assert conflicts == 128 * 128 // 32 * (wavefronts - 1)


@pytest.mark.parametrize(
    ("name", "load", "store"),
    [
        ("transpose_copy", 4, 4),
        ("transpose_naive", 4, 16),
        ("transpose_naive_colread", 32, 4),
        ("transpose_smem", 4, 4),
        ("transpose_vec2", 8, 8),
    ],
)
def test_sectors_of_a_transpose(name: str, load: int, store: int) -> None:
    assert a_request(name, 128, "global", "load", "sectors") == [load]
    assert a_request(name, 128, "global", "store", "sectors") == [store]


# Reductions


@pytest.mark.parametrize("name", ["reduce_interleaved", "reduce_interleaved_256", "reduce_sequential"])
def test_trees_without_bank_conflicts(name: str) -> None:
    for kind in ("ld", "st"):
        assert metric(name, 4096, f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{kind}.sum") == 0


def test_the_strided_tree_trades_divergence_for_conflicts() -> None:
    assert metric("reduce_strided", 4096, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum") > 0
    instructions = [
        metric(name, 4096, "smsp__sass_inst_executed.sum") for name in ("reduce_interleaved_256", "reduce_strided")
    ]
    assert instructions[1] < instructions[0]


def test_static_and_dynamic_shared_memory_count_the_same() -> None:
    static, dynamic = (
        {key: value for key, value in ran(name, 4096)[1].metrics.items() if not key.startswith("launch__")}
        for name in ("reduce_shared", "reduce_dynamic")
    )
    assert static == dynamic


# Matrix products


def test_only_the_naive_double_buffer_uses_local_memory() -> None:
    local = {}
    for case in kernels.families()["matmul"]:
        assert (module_of(case)[case.names[0]].function.local_bytes or 0) == (128 if "buffer_naive" in case.name else 0)
        loads = metric(case.name, 128, "smsp__sass_inst_executed_op_local_ld.sum")
        local[case.name] = loads > 0
    assert [name for name, used in local.items() if used] == ["matmul_double_buffer_naive"]
    assert {"STL.128", "LDL.128"} <= set(opcodes("matmul_double_buffer_naive"))


def test_loads_of_tiles() -> None:
    for name, scalar, vector in (
        ("matmul_smem", 32, 8),
        ("matmul_thread_tile", 0, 16),
        ("matmul_vec4", 0, 32),
        ("matmul_double_buffer", 0, 32),
    ):
        assert (opcodes(name).count("LDS"), opcodes(name).count("LDS.128")) == (scalar, vector), name
    assert "LDS.128" in opcodes("matmul_warp_tile") and "LDS" not in opcodes("matmul_warp_tile")


def test_which_index_runs_along_the_warp() -> None:
    naive = a_request("matmul_naive", 256, "global", "load", "sectors")
    assert set(naive) == {1, 4}  # one element of A for all lanes; 32 neighbours of B, and of C
    swapped = a_request("matmul_naive_swapped", 256, "global", "load", "sectors")
    assert set(swapped) == {1, 32}
    assert a_request("matmul_naive_swapped", 256, "global", "store", "sectors") == [32]


def test_the_transposed_stores_are_in_conflict() -> None:
    stores = a_request("matmul_vec4", 128, "shared", "store", "wavefronts")
    assert stores == [2, 2, 2, 2, 4]  # four floats of A down a column, then 128 bits of B


def test_reuse_cuts_global_loads() -> None:
    loads = [
        metric(name, 256, "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ld.sum")
        for name in ("matmul_naive_swapped", "matmul_naive", "matmul_smem", "matmul_thread_tile", "matmul_vec4")
    ]
    assert sorted(loads, reverse=True) == loads
    assert loads[1] > 15 * loads[2]


def test_one_barrier_a_tile_is_enough_with_two_buffers() -> None:
    assert executed("matmul_vec4", 256, "BAR") == 4 * 8 * 2 * 32  # blocks, warps, two a tile
    assert executed("matmul_double_buffer", 256, "BAR") == 4 * 8 * 32


@pytest.mark.parametrize(
    ("name", "edge"), [("matmul_smem", 32), ("matmul_thread_tile", 64), ("matmul_vec4", 128), ("matmul_warp_tile", 128)]
)
def test_sizes_that_a_tile_does_not_divide_are_refused(name: str, edge: int) -> None:
    with pytest.raises(UsageError, match=f"must be a multiple of {edge}, and {edge + 1} is not; try {edge}$"):
        kernels.find(name).build(edge + 1)


def test_the_matrix_reference_is_exact() -> None:
    a, b, c = (coarse_values(97, stream) for stream in range(3))
    exact = 0.5 * (a.astype(np.float64) @ b.astype(np.float64)) - 2 * c.astype(np.float64)
    np.testing.assert_array_equal(product(a, b, c).astype(np.float64), exact)


# Softmax


def test_a_thread_a_row_touches_a_sector_a_lane() -> None:
    assert set(a_request("softmax_naive", 128, "global", "load", "sectors")) == {32}
    assert set(a_request("softmax_naive", 128, "global", "store", "sectors")) == {32}
    for name in ("softmax_smem", "softmax_shuffle", "softmax_block"):
        assert set(a_request(name, 128, "global", "load", "sectors")) == {4}


@pytest.mark.parametrize(("name", "quads"), [("softmax_vec4", 1), ("softmax_vec4_1024", 8)])
def test_the_vectorised_softmax_moves_every_element_once(name: str, quads: int) -> None:
    for operation, short in (("load", "ld"), ("store", "st")):
        assert a_request(name, 128, "global", operation, "sectors") == [16] * quads
        moved = metric(name, 128, f"smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_{short}.sum")
        assert moved * 32 == 128 * 128 * quads * 4
    assert metric(name, 128, "smsp__sass_inst_executed_op_shared_ld.sum") == 0
    assert executed(name, 128, "BAR") == 0


def test_barriers_of_a_row() -> None:
    counts = {
        name: executed(name, 13, "BAR") / 13 / 4
        for name in ("softmax_smem", "softmax_shuffle", "softmax_block", "softmax_online")
    }
    assert counts == {"softmax_smem": 18, "softmax_shuffle": 6, "softmax_block": 2, "softmax_online": 0}


@pytest.mark.parametrize(
    ("kernel", "rows_a_block"),
    [
        ("softmax_naive", 128),
        ("softmax_smem<128>", 1),
        ("softmax_shuffle<128>", 1),
        ("softmax_block<128>", 1),
        ("softmax_online", 4),
    ],
)
@pytest.mark.parametrize("cols", [1, 31, 77, 300])
def test_softmax_of_any_number_of_columns(kernel: str, rows_a_block: int, cols: int) -> None:
    problem = softmax_problem(kernel, 6, cols, rows_a_block=rows_a_block)
    execute(kernels.find("softmax_naive"), problem)
    assert problem.differences() == []


# Histograms


def test_global_atomics_of_histograms() -> None:
    red = "smsp__sass_inst_executed_op_global_red.sum"
    assert metric("hist_global", 4096, red) == 4096 // 32
    for name in ("hist_shared", "hist_vec4"):
        for size in (4096, 100_001):
            assert metric(name, size, red) == 256 * 256 // 32  # a bin a thread of each block, however long the input


def test_increments_in_shared_memory_count_different_words() -> None:
    for name in ("hist_shared", "hist_vec4"):
        assert any(opcode.startswith("ATOMS.POPC.INC") for opcode in opcodes(name))
    (constant,) = a_request("hist_shared_constant", 4096, "shared", "atomic", "wavefronts")
    (cyclic,) = a_request("hist_shared", 4096, "shared", "atomic", "wavefronts")
    (random,) = a_request("hist_shared_random", 4096, "shared", "atomic", "wavefronts")
    assert constant == cyclic == 1 < random


def test_four_bytes_a_load() -> None:
    assert a_request("hist_shared", 4096, "global", "load", "sectors") == [1]
    assert a_request("hist_vec4", 4096, "global", "load", "sectors") == [4]


def test_the_signed_histograms_agree_and_are_wrong() -> None:
    problem, _ = ran("hist_signed_bug", 4096)
    case = kernels.find("hist_signed_bug")
    execute(case, problem := case.build(4096))
    first, second = problem.buffers["bins_global"], problem.buffers["bins_shared"]
    np.testing.assert_array_equal(first, second)
    assert first.sum() == 4096 // 2 and not first[128:].any()
    assert len(problem.differences()) == 2


# Global and constant memory


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (4, 16), (8, 32), (16, 32), (32, 32)])
def test_sectors_of_a_stride(stride: int, sectors: int) -> None:
    name = f"access_stride_{stride}"
    assert a_request(name, 4096, "global", "load", "sectors") == [sectors]
    assert a_request(name, 4096, "global", "load", "tags") == [stride]
    assert a_request(name, 4096, "global", "store", "sectors") == [4]


@pytest.mark.parametrize(
    ("offset", "sectors", "lines"), [(0, 4, 1), (1, 5, 2), (4, 5, 2), (8, 4, 2), (17, 5, 2), (32, 4, 1)]
)
def test_sectors_of_an_offset(offset: int, sectors: int, lines: int) -> None:
    assert a_request(f"access_offset_{offset}", 4096, "global", "load", "sectors") == [sectors]
    assert a_request(f"access_offset_{offset}", 4096, "global", "load", "tags") == [lines]


def test_gathers() -> None:
    assert a_request("access_gather_sequential", 100_001, "global", "load", "sectors") == pytest.approx(
        [4, 4], abs=0.01
    )
    index, gathered = a_request("access_gather_permutation", 100_001, "global", "load", "sectors")
    assert index == pytest.approx(4, abs=0.01) and 31.5 < gathered <= 32


def test_structures_and_arrays() -> None:
    for operation in ("load", "store"):
        assert a_request("layout_aos", 4096, "global", operation, "sectors") == [16]
        assert a_request("layout_soa", 4096, "global", operation, "sectors") == [4]


def test_constants() -> None:
    def indexed(name: str) -> int:
        return sum(
            "c[0x3][R" in instruction.text and opcode.startswith("LDC")
            for opcode, instruction in zip(
                opcodes(name), module_of(kernels.find(name))[name].program.instructions, strict=True
            )
        )

    assert indexed("constant_lane") == 32  # an address a lane: an index in an ordinary register
    assert indexed("constant_uniform") == 0  # an address a warp: uniform registers or operands


# Banks


@pytest.mark.parametrize(
    ("name", "wavefronts"),
    [
        ("bank_row", 1),
        ("bank_column", 32),
        ("bank_column_pad", 1),
        ("bank_broadcast", 1),
        ("bank_pairs64", 2),
        ("bank_quads128", 4),
    ],
)
def test_banks(name: str, wavefronts: int) -> None:
    assert a_request(name, 4096, "shared", "load", "wavefronts") == [wavefronts]
    conflicts = metric(name, 4096, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum")
    assert conflicts == (31 * 4096 // 32 if name == "bank_column" else 0)


# Threads among themselves


def test_both_sides_of_a_branch_run_inside_a_warp() -> None:
    counts = {
        group: metric(f"diverge_{group}", 4096, "smsp__sass_inst_executed.sum") for group in (1, 2, 8, 16, 32, 64, 256)
    }
    for group in (1, 2, 8, 16):
        assert counts[group] > 1.8 * counts[32]
        assert metric(f"diverge_{group}", 4096, "smsp__sass_branch_targets_threads_divergent.sum") > 0
    for group in (32, 64, 256):
        assert counts[group] == counts[32]
        assert metric(f"diverge_{group}", 4096, "smsp__sass_branch_targets_threads_divergent.sum") == 0


def test_exchange_in_registers() -> None:
    for name, shuffles, sums in (("shuffle_down", 5, 0), ("shuffle_xor", 5, 0), ("reduce_add_sync", 0, 1)):
        assert sum(opcode.startswith("SHFL") for opcode in opcodes(name)) == shuffles
        assert sum(opcode.startswith("REDUX") for opcode in opcodes(name)) == sums
        assert metric(name, 4096, "smsp__sass_inst_executed_op_shared_ld.sum") == 0


def test_a_block_reads_its_elements_once() -> None:
    loads = metric("shared_neighbor", 4096, "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")
    assert loads == 4096 // 32 + 4096 // 256 - 1  # and the element before the block, but for the first block
    assert executed("shared_neighbor", 4096, "BAR") == 4096 // 32


def test_counters() -> None:
    problem, _ = ran("counter_race", 4096)
    assert 1 <= problem.buffers["counter"][0] < 4096
    problem, result = ran("counter_atomic", 4096)
    assert problem.buffers["counter"][0] == 4096
    (atomic,) = [i for i in result.instructions if i.operation == "reduce"]
    assert atomic.requests == atomic.predicated_on == 4096 // 32  # one lane for its whole warp


def test_a_barrier_in_a_branch_lets_warps_read_too_early() -> None:
    problem, _ = ran("barrier_in_branch", 4096)
    wrong = (problem.buffers["out"] != problem.expected["out"]).reshape(-1, 256)
    assert wrong.any() and not wrong[:, :32].any()  # the first warp takes part in every step


# Registers, local memory and occupancy


def test_where_an_array_lives() -> None:
    local = {"local_array": (64, 16 * 8, 4 * 8), "register_array": (0, 0, 0)}
    for name, (size, loads, stores) in local.items():
        case = kernels.find(name)
        assert (module_of(case)[case.names[0]].function.local_bytes or 0) == size
        assert metric(name, 4096, "smsp__sass_inst_executed_op_local_ld.sum") == loads
        assert metric(name, 4096, "smsp__sass_inst_executed_op_local_st.sum") == stores


@pytest.mark.parametrize(
    ("name", "limiter", "warps"),
    [
        ("occupancy_registers", "registers", 16),
        ("occupancy_shared", "shared memory", 32),
        ("occupancy_block", "blocks", 32),
    ],
)
def test_what_limits_the_resident_warps(name: str, limiter: str, warps: int) -> None:
    occupancy = ran(name, 4096)[1].occupancy
    assert limiter in occupancy.limiter and (occupancy.warps, occupancy.warps_possible) == (warps, 64)
    assert (limiter == "registers") == ("registers" in occupancy.limiter)
    assert "warps" not in occupancy.limiter


# Tiles by special means


def test_asynchronous_copies_use_no_register() -> None:
    copies = [i for i in ran("async_copy", 400_000)[1].instructions if i.operation == "async_copy"]
    assert sum(i.predicated_on for i in copies) == 391 * 256  # tiles, threads
    # under a condition (@P) the hardware's counters disagree with each other, and the report says so
    assert all(i.sectors == 16 * i.requests for i in copies if not i.sass.startswith("@"))
    assert "LDG" not in {opcode.split(".")[0] for opcode in opcodes("async_copy")}
    assert "STS" not in {opcode.split(".")[0] for opcode in opcodes("async_copy")}


@pytest.mark.parametrize(("name", "wavefronts"), [("ldmatrix_tile", 32), ("ldmatrix_tile_pad", 4)])
def test_rows_of_matrices(name: str, wavefronts: int) -> None:
    assert a_request(name, 5000, "shared", "matrix_load", "wavefronts") == [wavefronts] * 4
