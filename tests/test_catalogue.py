"""The catalogue by itself: complete, consistent, its references right and its sources accepted by the compiler.

Nothing here executes a kernel.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cuda.bindings import nvrtc

from gpusim import kernels
from gpusim.errors import UsageError
from gpusim.kernels import Case, Problem, Reference, Tolerance
from gpusim.kernels.transpose.case import problem as transpose_problem

EXPECTED = {
    "basic": ["scale", "vector_add"],
    "transpose": [
        "transpose_copy",
        "transpose_naive",
        "transpose_naive_colread",
        "transpose_smem",
        "transpose_pad",
        "transpose_pad2",
        "transpose_unroll",
        "transpose_vec2",
        "transpose_bank",
        "transpose_bank_pad",
        "transpose_tile4",
        "transpose_tile4_pad",
        "transpose_tile4_swizzle",
    ],
    "reduce": [
        "reduce_interleaved",
        "reduce_interleaved_256",
        "reduce_strided",
        "reduce_first_add",
        "reduce_sequential",
        "reduce_sequential_1024",
        "reduce_unroll_warp",
        "reduce_unroll_warp_1024",
        "reduce_unroll_warp_race",
        "reduce_shuffle",
        "reduce_vec4",
        "reduce_global",
        "reduce_shared",
        "reduce_dynamic",
    ],
    "softmax": [
        name + columns
        for name in (
            "softmax_naive",
            "softmax_smem",
            "softmax_shuffle",
            "softmax_block",
            "softmax_vec4",
            "softmax_online",
        )
        for columns in ("", "_1024")
    ],
    "matmul": [
        "matmul_naive",
        "matmul_naive_swapped",
        "matmul_smem",
        "matmul_thread_tile",
        "matmul_vec4",
        "matmul_double_buffer_naive",
        "matmul_double_buffer",
        "matmul_warp_tile",
    ],
    "histogram": [
        *(
            name + values
            for name in ("hist_global", "hist_shared", "hist_vec4")
            for values in ("", "_random", "_constant", "_skewed")
        ),
        "hist_signed_bug",
    ],
    "access": [
        *(f"access_stride_{stride}" for stride in (1, 2, 4, 8, 16, 32)),
        *(f"access_offset_{offset}" for offset in (0, 1, 4, 8, 17, 32)),
        "access_gather_sequential",
        "access_gather_permutation",
        "layout_aos",
        "layout_soa",
        "constant_uniform",
        "constant_lane",
    ],
    "banks": ["bank_row", "bank_column", "bank_column_pad", "bank_broadcast", "bank_pairs64", "bank_quads128"],
    "threads": [
        "shared_neighbor",
        *(f"diverge_{group}" for group in (1, 2, 8, 16, 32, 64, 256)),
        "shuffle_down",
        "shuffle_xor",
        "reduce_add_sync",
        "reduce_add_sync_mask",
        "counter_race",
        "counter_atomic",
        "barrier_in_branch",
    ],
    "resources": ["local_array", "register_array", "occupancy_registers", "occupancy_shared", "occupancy_block"],
    "tiles": ["async_copy", "ldmatrix_tile", "ldmatrix_tile_pad"],
    "transfers": ["transfer_pageable", "transfer_pinned", "stream_overlap"],
    "calibrate": [
        *(f"calibrate_{name}" for name in ("fadd", "iadd", "imad", "lop3", "shf", "popc", "shfl", "branch", "barrier")),
        "calibrate_chase",
        *(f"calibrate_shared_chase_{bits}" for bits in (32, 64, 128)),
        *(f"calibrate_shared_load_{kind}" for kind in ("32_1", "32_2", "32_32", "64_1", "64_4", "128_1", "128_8")),
        *(f"calibrate_shared_atomic_{stride}" for stride in (4, 128)),
        *(f"calibrate_lines_{lines}" for lines in (1, 4, 32)),
        *(f"calibrate_read_{kind}" for kind in ("32_1", "32_4", "128_4")),
        *(f"calibrate_write_{kind}" for kind in ("32_1", "128_2")),
        *(f"calibrate_copy_{kind}" for kind in ("32_1", "128_4")),
        "calibrate_random",
        *(f"calibrate_atomic_{name}" for name in ("one", "warp", "lanes", "random")),
    ],
}
ROWS_OF_VARIANTS = {
    "access_stride": "access_stride_1",
    "access_offset": "access_offset_0",
    "access_gather": "access_gather_sequential",
    "diverge": "diverge_1",
}
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")

ALL = [case for cases in kernels.families().values() for case in cases]
every_case = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


def of_family(family: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", kernels.families()[family], ids=lambda case: case.name)


# The mechanism


@pytest.mark.parametrize("family", EXPECTED)
def test_every_row_is_there(family: str) -> None:
    assert set(EXPECTED[family]) <= {case.name for case in kernels.families()[family]}


def test_names_are_those_of_all_families() -> None:
    assert kernels.names() == [case.name for case in ALL]
    assert len(set(kernels.names())) == len(ALL)


@every_case
def test_find_returns_the_case(case: Case) -> None:
    assert kernels.find(case.name) is case


def test_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no kernel named 'transpose_pda'.*transpose_pad\b"):
        kernels.find("transpose_pda")
    with pytest.raises(UsageError, match="gpusim list"):
        kernels.find("qqq")


def test_importing_the_catalogue_imports_no_family() -> None:
    script = (
        "import sys, gpusim.kernels\n"
        "print([name for name in sys.modules if name.startswith('gpusim.kernels.')], 'cuda' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"


@pytest.fixture
def extra_families(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts more family folders beside the real ones: call it with a family's name and the text of its case.py."""

    def add(family: str, text: str) -> None:
        folder = tmp_path / family
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "case.py").write_text(text)

    monkeypatch.setattr(kernels, "__path__", [*kernels.__path__, str(tmp_path)])
    kernels.families.cache_clear()
    yield add
    kernels.families.cache_clear()
    for name in [name for name in sys.modules if name.startswith("gpusim.kernels.made_up")]:
        del sys.modules[name]


MADE_UP = """
from pathlib import Path
from gpusim.kernels import Case
CASES = (Case({name!r}, {family!r}, Path(__file__), lambda n: None, (1,), (1,), "title", "lesson"),)
"""


def test_a_new_family_is_found_by_its_folder_alone(extra_families) -> None:
    extra_families("made_up_1", MADE_UP.format(name="made_up_kernel", family="made_up_1"))
    assert kernels.find("made_up_kernel").family == "made_up_1"
    assert {*EXPECTED, "made_up_1"} <= set(kernels.families())


def test_a_name_used_twice_is_refused(extra_families) -> None:
    extra_families("made_up_2", MADE_UP.format(name="scale", family="made_up_2"))
    with pytest.raises(ValueError, match="scale is used twice"):
        kernels.families()


def test_a_case_in_a_folder_of_another_family_is_refused(extra_families) -> None:
    extra_families("made_up_3", MADE_UP.format(name="made_up_kernel", family="other"))
    with pytest.raises(ValueError, match="says family 'other'"):
        kernels.families()


# What a case holds


@every_case
def test_a_case_is_complete(case: Case) -> None:
    assert case.source.is_file() and case.source.suffix == ".cu"
    assert case.title and "\n" not in case.title and len(case.title) <= 100
    assert len(case.lesson) > 100 and "\n" not in case.lesson
    assert case.wrong is None or len(case.wrong) > 20
    assert len(set(case.sizes)) == len(case.sizes) >= 1
    assert case.small_sizes and max(case.small_sizes) <= max(case.sizes)
    assert case.names


@pytest.mark.parametrize(("row", "first"), ROWS_OF_VARIANTS.items())
def test_a_row_of_variants_is_known_by_its_own_name(row: str, first: str) -> None:
    assert kernels.find(row) is kernels.find(first)
    assert row not in kernels.names()


@pytest.mark.parametrize("name", [name for family in ("basic", "transpose", "reduce") for name in EXPECTED[family]])
def test_small_sizes_go_down_to_one_element_and_leave_tiles_unfilled(name: str) -> None:
    assert {1, 1000} < set(kernels.find(name).small_sizes)


def test_what_is_wrong_on_purpose() -> None:
    assert [case.name for case in ALL if case.wrong] == [
        "hist_signed_bug",
        "reduce_unroll_warp_race",
        "reduce_add_sync_mask",
        "counter_race",
        "barrier_in_branch",
    ]


def test_what_only_a_gpu_can_show() -> None:
    assert [case.name for case in ALL if case.needs_gpu] == EXPECTED["transfers"]
    assert all("not simulated" in case.needs_gpu for case in ALL if case.needs_gpu)


def check_problem(problem: Problem) -> None:
    """Launches and references name buffers that are there, and no launch is beyond the hardware's limits."""
    written = set(problem.expected)
    assert written and written <= set(problem.buffers)
    for launch in problem.launches:
        assert len(launch.grid) == len(launch.block) == 3
        assert min(*launch.grid, *launch.block) >= 1
        assert int(np.prod(launch.block)) <= 1024 and max(launch.grid[1:]) <= 65535
        assert 0 <= launch.shared_bytes <= 48 * 1024
        for arg in launch.args:
            assert arg in problem.buffers if isinstance(arg, str) else isinstance(arg, np.generic)
    used = {arg for launch in problem.launches for arg in launch.args if isinstance(arg, str)}
    assert used == set(problem.buffers)
    for name, expected in problem.expected.items():
        buffer = problem.buffers[name]
        assert buffer.flags.c_contiguous and buffer.size > 0
        assert (buffer.shape, buffer.dtype) == (expected.shape, expected.dtype)
        assert np.isfinite(expected).all()


@every_case
def test_problems_are_consistent(case: Case) -> None:
    for size in case.small_sizes:
        check_problem(case.build(size))


@every_case
def test_problems_repeat_and_the_reference_does_not_look_at_the_buffers(case: Case) -> None:
    size = max(case.small_sizes)
    first, second = case.build(size), case.build(size)
    for name, buffer in first.buffers.items():
        np.testing.assert_array_equal(buffer, second.buffers[name])
        buffer.fill(7)
    for name, expected in first.expected.items():
        np.testing.assert_array_equal(expected, second.expected[name])


@every_case
def test_buffers_as_they_are_before_the_launch_are_not_right(case: Case) -> None:
    for size in case.small_sizes:
        problem = case.build(size)
        assert problem.differences(problem.expected) == []
        # Where no element is left to add, reduce_global has nothing to change in place.
        unchanged = {"in"} if size == 1 else set()
        for name in set(problem.expected) - unchanged:
            left = {**problem.expected, name: problem.buffers[name]}
            assert [text.split("[")[0] for text in problem.differences(left)] == [name]


# The references, against NumPy's own answer


@of_family("transpose")
def test_transposes_expect_the_transpose(case: Case) -> None:
    for size in case.small_sizes:
        problem = case.build(size)
        matrix = problem.buffers["in"]
        wanted = matrix if case.name == "transpose_copy" else np.transpose(matrix)
        np.testing.assert_array_equal(problem.expected["out"], wanted)
        assert problem.tolerance is None


@of_family("transpose")
def test_transposes_cover_the_matrix_without_a_block_too_many(case: Case) -> None:
    (launch,) = case.build(128).launches
    elements_a_thread = {"transpose_unroll": 2, "transpose_vec2": 2}.get(
        case.name, 4 if case.name.startswith("transpose_tile4") else 1
    )
    assert int(np.prod(launch.grid)) * int(np.prod(launch.block)) * elements_a_thread == 128 * 128


def test_a_rectangle_is_laid_out_by_its_own_sides() -> None:
    over_input = transpose_problem("transpose_naive", 70, 131, block=(16, 16), covers=(16, 16))
    assert over_input.launches[0].grid == (9, 5, 1)
    assert over_input.launches[0].args == ("in", "out", np.int32(70), np.int32(131))
    over_output = transpose_problem(
        "transpose_naive_colread", 70, 131, block=(32, 32), covers=(32, 32), over_output=True
    )
    assert over_output.launches[0].grid == (3, 5, 1)
    np.testing.assert_array_equal(over_output.expected["out"], over_output.buffers["in"].T)
    check_problem(over_output)


@of_family("reduce")
@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 1000, 4096, 100_000, 2**20])
def test_sums_are_near_the_exact_one(case: Case, size: int) -> None:
    problem = case.build(size)
    values = problem.buffers["in"]
    exact = np.sum(values, dtype=np.float64)
    last = problem.launches[-1].args[1]
    assert isinstance(last, str)
    (result,) = problem.expected[last]
    # A tree adds each value about log2(n) times with a rounding of half a unit in the last place.
    bound = 30 * np.finfo(values.dtype).eps * np.abs(values).sum(dtype=np.float64)
    assert abs(result - exact) <= bound


@of_family("reduce")
def test_launches_go_on_until_one_value_is_left(case: Case) -> None:
    problem = case.build(100_000)
    length = 100_000
    for launch in problem.launches:
        source, target, n = launch.args
        assert isinstance(source, str) and isinstance(target, str) and isinstance(n, np.int32)
        assert (len(problem.buffers[source]), int(n)) == (length, length)
        length = len(problem.buffers[target])
        if case.name != "reduce_vec4":
            assert launch.grid == (length, 1, 1)
    assert length == 1
    assert len(problem.launches) == (
        1 if case.name == "reduce_vec4" else len(problem.expected) - ("in" in problem.expected)
    )


def sum_in_order(values: np.ndarray, order: list[tuple[int, int]]) -> np.floating:
    values = values.copy()
    for to, other in order:
        values[to] += values[other]
    return values[0]


@pytest.mark.parametrize(
    ("name", "per_block", "order"),
    [
        # (to, other): what the threads of one block add, one pair after the other, as the CUDA source says.
        (
            "reduce_interleaved_256",
            256,
            [(t, t + s) for s in (1, 2, 4, 8, 16, 32, 64, 128) for t in range(0, 256, 2 * s)],
        ),
        (
            "reduce_strided",
            256,
            [(2 * s * t, 2 * s * t + s) for s in (1, 2, 4, 8, 16, 32, 64, 128) for t in range(128 // s)],
        ),
        ("reduce_sequential", 256, [(t, t + s) for s in (128, 64, 32, 16, 8, 4, 2, 1) for t in range(s)]),
        ("reduce_unroll_warp", 256, [(t, t + s) for s in (128, 64, 32, 16, 8, 4, 2, 1) for t in range(s)]),
        (
            "reduce_shuffle",
            512,
            [(t, t + 256) for t in range(256)]
            + [(w + t, w + t + s) for w in range(0, 256, 32) for s in (16, 8, 4, 2, 1) for t in range(s)]
            + [(w * 32, (w + s) * 32) for s in (4, 2, 1) for w in range(s)],
        ),
        (
            "reduce_first_add",
            2048,
            [(t, t + 1024) for t in range(1024)]
            + [(t, t + s) for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) for t in range(0, 1024, 2 * s)],
        ),
        ("reduce_shared", 128, [(t, t + s) for s in (64, 32, 16, 8, 4, 2, 1) for t in range(s)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_references_add_in_the_kernels_order(name: str, per_block: int, order: list[tuple[int, int]]) -> None:
    problem = kernels.find(name).build(4096)
    block = problem.buffers["in"][per_block : 2 * per_block]
    assert problem.expected["sums1"][1] == sum_in_order(block, order)


def test_reduce_global_leaves_its_tree_in_the_input() -> None:
    problem = kernels.find("reduce_global").build(200)
    data = list(problem.buffers["in"])
    for first, step in itertools.product((0, 128), (64, 32, 16, 8, 4, 2, 1)):
        for i in range(first, first + step):
            if i + step < 200:
                data[i] += data[i + step]
    np.testing.assert_array_equal(problem.expected["in"], data)
    np.testing.assert_array_equal(problem.buffers["sums1"].shape, (2,))


def test_only_float_atomics_and_exponentials_are_given_a_tolerance() -> None:
    loose = [case.name for case in ALL if any(case.build(size).tolerance for size in case.small_sizes)]
    assert loose == ["reduce_vec4", *(case.name for case in kernels.families()["softmax"])]
    tolerance = kernels.find("reduce_vec4").build(100_000).tolerance
    assert tolerance is not None and "order" in tolerance.reason
    # Far below the size of a single element, so that one that is left out is noticed.
    assert 0 < tolerance.absolute < 0.02
    assert kernels.find("reduce_vec4").build(1000).tolerance is None


def test_basic_references() -> None:
    problem = kernels.find("vector_add").build(1001)
    np.testing.assert_array_equal(problem.expected["c"], problem.buffers["a"] + problem.buffers["b"])
    assert not np.array_equal(problem.buffers["a"], problem.buffers["b"])
    problem = kernels.find("scale").build(1001)
    np.testing.assert_array_equal(problem.expected["a"], problem.buffers["a"] * 2)


def test_many_steps_in_one_are_what_the_steps_give() -> None:
    problem = kernels.find("stream_overlap").build(100)
    values = problem.buffers["in"].copy()
    *_, rounds, factor, summand = problem.launches[0].args
    assert isinstance(rounds, np.int32) and rounds > 100
    for _ in range(int(rounds)):
        values = values * factor + summand
    np.testing.assert_array_equal(problem.expected["out"], values)


# Comparing results


def compare(actual: list[float], expected: list[float], tolerance: Tolerance | None = None) -> list[str]:
    reference = Reference({"out": np.array(expected, np.float32)}, tolerance)
    return Problem({}, [], lambda: reference).differences({"out": np.array(actual, np.float32)})


def test_differences_name_the_first_and_count_all() -> None:
    assert compare([1, 2, 3], [1, 2, 3]) == []
    assert compare([1, 5, 6], [1, 2, 3]) == ["out[1] is 5.0, expected 2.0 (2 of 3 differ)"]
    assert compare([1, 2], [1, 2, 3]) == ["out is float32(2,), expected float32(3,)"]


def test_without_a_tolerance_the_bits_count() -> None:
    assert compare([0.0], [-0.0])
    assert compare([np.nan], [np.nan]) == []
    assert compare([np.nextafter(np.float32(1), np.float32(2))], [1])


def test_a_tolerance_has_its_limits() -> None:
    tolerance = Tolerance("for the test", relative=0.01, absolute=0.1)
    assert compare([10.19], [10], tolerance) == []
    assert compare([10.21], [10], tolerance)
    assert compare([np.nan], [10], tolerance)


# The sources


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("source", sorted({case.source for case in ALL}), ids=lambda source: source.name)
def test_sources_compile(source: Path, arch: str) -> None:
    cases = [case for case in ALL if case.source == source]
    names = [name for case in cases for name in case.names]
    if int(arch.removeprefix("sm_")) < min(case.min_arch for case in cases):
        pytest.skip("the architecture lacks the kernels' instructions")
    error, program = nvrtc.nvrtcCreateProgram(source.read_bytes(), source.name.encode(), 0, [], [])
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS
    try:
        for name in names:
            assert nvrtc.nvrtcAddNameExpression(program, name.encode())[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS
        options = [f"--gpu-architecture={arch}".encode(), b"-lineinfo"]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])  # not bytes: NVRTC writes into it
        nvrtc.nvrtcGetProgramLog(program, log)
        assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
        assert log.rstrip(b"\0 \n") == b"", log.decode()
        for name in names:
            assert nvrtc.nvrtcGetLoweredName(program, name.encode())[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS
    finally:
        nvrtc.nvrtcDestroyProgram(program)
