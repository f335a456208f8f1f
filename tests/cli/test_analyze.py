"""What ``gpusim analyze`` says: about the catalogue, about files, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim import kernels
from gpusim.cli import catalogue
from gpusim.cli.catalogue import Check
from gpusim.report import metrics

FOREIGN = Path(__file__).parents[1] / "data" / "foreign"
SCALE = (
    "--kernel",
    "scale",
    "--grid",
    4,
    "--block",
    64,
    "--arg",
    "f32[256]=ones",
    "--arg",
    "f32=2",
    "--arg",
    "i32=250",
)


# ---- the catalogue --------------------------------------------------------------------------------------------------


def test_report_of_a_catalogue_kernel(gpusim_run):
    outcome = gpusim_run("analyze", "transpose_smem", "--size", 128)
    assert outcome.code == 0 and outcome.err == ""
    lines = outcome.out.splitlines()
    assert " ".join(lines[:2]) == (
        "Shared loads of tile take 16 wavefronts where 1 would do (16-way bank conflict) [transpose.cu:60]. (exact)"
    )
    assert lines[2] == "result: equal to the NumPy reference"
    for part in (
        "grid 4 x 8 = 32 blocks",
        "block 32 x 16 = 512 threads",
        "60 shared load, 4 B 512 8,192 16.00 1.00 93.8 % LDS R",
        "rows of 34 words would take 1 wavefront (33: 2).",
        "out[out_y * rows + out_x] = tile[col][row];",
        "limited by warps",
        "32.00 of 32 lanes execute an instruction on average (100.0 %)",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum 7,680",
        "NVRTC 13.",
        "counted 32 blocks together in one pass; only the 35 of 56 instructions that decide the counters",
    ):
        assert part in outcome.flat
    assert "\x1b" not in outcome.out
    assert max(map(len, lines)) <= 100
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_numbers_stay_whole_at_any_width(gpusim_run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = gpusim_run("analyze", "transpose_naive", "--size", 256).out
    assert "…" not in out
    for number in ("32,768", "16.00", "75.0 %", "8,192"):
        assert number in out
    if width >= 80:
        assert max(map(len, out.splitlines())) <= width
    merged = out.replace("\n", "").replace(" ", "")
    assert "STG.Edesc[UR4][R2.64],R5" in merged or "STG.E" in merged


def test_two_launches_are_reported_one_by_one(gpusim_run):
    outcome = gpusim_run("analyze", "reduce_sequential", "--size", 1000)
    assert outcome.code == 0
    assert outcome.out.count("\nLaunch\n") == 2
    assert "4 blocks together in one pass" in outcome.flat or "blocks together in 2 passes" in outcome.flat
    assert "launch 1 of 2 --" in outcome.out and "launch 2 of 2 --" in outcome.out


def test_wrong_on_purpose_says_so(gpusim_run):
    outcome = gpusim_run("analyze", "reduce_unroll_warp_race", "--size", 1000)
    assert outcome.code == 0
    assert "note: wrong on purpose: lanes of the last warp read words" in outcome.out
    assert "although the kernel is wrong" in outcome.out


def test_a_wrong_result_is_exit_code_1(gpusim_run, monkeypatch):
    failed = Check(False, False, "differs from the NumPy reference", ("a[3] is 1.0, expected 2.0 (1 of 64 differ)",))
    monkeypatch.setattr("gpusim.cli.analyze.check", lambda *_: failed)
    outcome = gpusim_run("analyze", "scale", "--size", 64)
    assert outcome.code == 1
    assert "result: differs from the NumPy reference\n  a[3] is 1.0, expected 2.0 (1 of 64 differ)" in outcome.out
    assert gpusim_run("analyze", "scale", "--size", 64, "--json").code == 1


def test_check_compares_with_the_reference():
    case = kernels.find("scale")
    problem = case.build(64)
    assert catalogue.check(case, problem).failed  # nothing was launched
    problem.buffers["a"] *= np.float32(2)
    assert not catalogue.check(case, problem).failed


def test_default_size_is_one_that_takes_seconds(monkeypatch):
    case = kernels.find("transpose_copy")
    assert catalogue.choose_size(case, catalogue.compile_case(case, None)) == (8192, "")  # all blocks at once
    case = kernels.find("softmax_online")  # what it does depends on data, so that blocks are executed
    module = catalogue.compile_case(case, None)
    size, note = catalogue.choose_size(case, module)
    assert size == 4096
    assert note.startswith("size 4096 is counted; 65536, the kernel's own default, takes about 1")
    monkeypatch.setattr(catalogue, "WORK_BY_DEFAULT", 1e15)
    assert catalogue.choose_size(case, module) == (65536, "")
    monkeypatch.setattr(catalogue, "WORK_BY_DEFAULT", 1)
    assert catalogue.choose_size(case, module)[0] == min(*case.sizes, max(case.small_sizes))


def test_large_problems_are_counted_and_checked_at_a_small_size(gpusim_run):
    outcome = gpusim_run("analyze", "transpose_copy", "--size", 4096, "--json")
    document = json.loads(outcome.out)
    assert outcome.code == 0 and document["catalogue"]["size"] == 4096
    assert document["launch"]["grid"] == [128, 128, 1] and document["blocks_executed"] == 0
    assert document["metrics"]["smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 4096 * 4096 // 8
    assert document["check"]["text"] == "equal to the NumPy reference, executed at size 1000"


def test_execute_runs_every_block(gpusim_run):
    words = ("analyze", "transpose_pad", "--size", 200, "--json")
    counted, executed = (json.loads(gpusim_run(*words, *more).out) for more in ((), ("--execute",)))
    assert counted["metrics"] == executed["metrics"] and counted["instructions"] == executed["instructions"]
    assert executed["path"] == "full execution" and executed["blocks_executed"] == 7 * 13
    assert counted["blocks_executed"] == 0


def test_a_later_launch_that_reads_what_an_earlier_one_wrote_is_executed():
    source = """
__global__ void fill(int *a) { a[threadIdx.x] = threadIdx.x % 4; }
__global__ void loop(int *a, int *out)
{
    int n = 0;
    for (int k = 0; k < a[threadIdx.x]; ++k)
        n += out[k];
    out[threadIdx.x] = n;
}
"""
    module = gpusim.compile(source)
    assert not module["fill"].counts_depend_on_memory and module["loop"].counts_depend_on_memory
    problem = kernels.Problem(
        buffers={"a": np.zeros(32, np.int32), "out": np.ones(32, np.int32)},
        launches=[
            kernels.Launch("fill", (1, 1, 1), (32, 1, 1), ("a",)),
            kernels.Launch("loop", (1, 1, 1), (32, 1, 1), ("a", "out")),
        ],
        reference=lambda: {},
    )
    results = catalogue.count(module, problem)
    assert [r.path for r in results] == ["full execution"] * 2
    loads = [i for i in results[1].instructions if i.operation == "load" and i.executed]
    assert max(i.thread_executed for i in loads) > 32  # the lanes went round as often as the first launch told them to


def test_architecture(gpusim_run):
    document = json.loads(gpusim_run("analyze", "scale", "--size", 64, "--arch", "sm_80", "--json").out)
    assert document["launch"]["arch"] == "sm_80"


def test_a_kernel_that_needs_a_later_architecture(gpusim_run, monkeypatch):
    case = dataclasses.replace(kernels.find("scale"), min_arch=80)
    monkeypatch.setattr("gpusim.kernels.find", lambda name: case)
    said = gpusim_run("analyze", "scale", "--size", 64, "--arch", "sm_75").sentence
    assert said == "scale needs sm_80 or later, not sm_75"


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_template_of_the_users(gpusim_run, template):
    outcome = gpusim_run(
        "analyze", template, "--kernel", "turn<float,32>", "--grid", 1, "--block", "32,32",
        "--arg", "f32[32x32]=zeros", "--arg", "f32[32x32]=random", "--arg", "i32=32",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("Shared loads of tile take 32 wavefronts where 1 would do (32-way bank conflict)")
    assert "rows of 33 words would take 1 wavefront. Keeping column c of row r at column c ^ r does" in outcome.flat


def test_the_only_kernel_needs_no_name(gpusim_run, tmp_path):
    path = tmp_path / "one.cu"
    path.write_text(
        "template <int M> __global__ void other(int *a) {}\n__global__ void one(int *a) { a[threadIdx.x] = N; }"
    )
    outcome = gpusim_run(
        "analyze", path, "--grid", 1, "--block", 32, "--arg", "i32[32]=zeros", "-D", "N=3", "--option=--use_fast_math"
    )
    assert outcome.code == 0, outcome.err
    assert outcome.flat.startswith("No access pattern to mend: global memory moves no more sectors than its requests")


def test_a_cubin_made_by_nvcc(gpusim_run):
    outcome = gpusim_run(
        "analyze", FOREIGN / "saxpy.fatbin", "--arch", "sm_90", "--grid", 2, "--block", 64, "--json",
        "--arg", "f32[128]=random", "--arg", "f32[128]=random", "--arg", "i32=100",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert document["target"] == {"kind": "binary", "name": str(FOREIGN / "saxpy.fatbin")}
    assert document["launch"]["toolkit"].startswith("13.0") and document["launch"]["nvrtc_version"] is None


def test_a_structure_by_value(gpusim_run, source):
    outcome = gpusim_run(
        "analyze", source, "--kernel", "pair", "--grid", 1, "--block", 32,
        "--arg", "i32[32]=zeros", "--arg", "bytes[8]=0x0100000002000000",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err


def test_dynamic_shared_memory(gpusim_run, source):
    words = ("--kernel", "dynamic", "--grid", 1, "--block", 32, "--arg", "f32[32]=ones", "--json")
    document = json.loads(gpusim_run("analyze", source, *words, "--shared", 128).out)
    assert document["launch"]["shared_dynamic"] == 128


def test_compiler_warnings_are_passed_on(gpusim_run, tmp_path):
    path = tmp_path / "warned.cu"
    path.write_text("__global__ void k(int *a) { int unused; a[threadIdx.x] = 1; }")
    outcome = gpusim_run("analyze", path, "--grid", 1, "--block", 32, "--arg", "i32[32]=zeros")
    assert outcome.code == 0
    assert "note: compiler warning: " in outcome.words and "unused" in outcome.words


# ---- JSON -----------------------------------------------------------------------------------------------------------


def test_json_of_one_launch(gpusim_run):
    outcome = gpusim_run("analyze", "transpose_pad", "--size", 128, "--json")
    document = json.loads(outcome.out)
    assert outcome.err == ""
    assert set(document) >= {
        "schema", "kind", "exactness", "launch", "path", "blocks_executed",
        "metrics", "occupancy", "instructions", "findings", "report",
        "target", "verdict", "notes", "catalogue", "check",
    }  # fmt: skip
    assert (document["schema"], document["kind"], document["exactness"]) == (1, "launch", "exact")
    assert all(isinstance(value, int) for value in document["metrics"].values())
    assert document["metrics"]["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 512
    assert {"address", "sass", "line", "executed", "thread_executed", "predicated_on", "requests", "sectors"} <= set(
        document["instructions"][0]
    )
    (finding,) = document["findings"]
    assert finding["id"] == "bank_conflict" and finding["cost"]["ways"] == 2
    assert finding["severity"] == pytest.approx(0.2)
    assert set(document["report"]) == {"launch", "memory", "lines", "occupancy", "divergence"}
    row = document["report"]["memory"]["rows"][0]
    assert (row["unit"], row["per_request"], row["waste"]) == ("wavefronts", 2.0, 0.5)
    assert len(row["first_warp"]["offsets"]) == 32
    assert document["catalogue"]["name"] == "transpose_pad" and document["catalogue"]["size"] == 128
    assert document["check"]["equal"] is True


RECURSION = """
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void k(int* out) { out[threadIdx.x] = fib(threadIdx.x % 8); }
"""


def test_uncertain_counts_are_not_called_exact(gpusim_run, tmp_path):
    source = tmp_path / "fib.cu"
    source.write_text(RECURSION)
    words = ("analyze", source, "--grid", 1, "--block", 32, "--arg", "i32[32]=zeros")
    shown = gpusim_run(*words).out
    assert "(modelled, see the caveats)" in " ".join(shown.split())
    assert "smsp__sass_inst_executed.sum" in shown and "~" in shown
    document = json.loads(gpusim_run(*words, "--json").out)
    assert document["exactness"] == "modelled" and document["caveats"]
    trace = tmp_path / "fib.gpusim-trace"
    assert gpusim_run(*words, "--trace", trace).out
    again = json.loads(gpusim_run("analyze", trace, "--json").out)
    assert (again["exactness"], again["caveats"]) == ("modelled", document["caveats"])
    result = gpusim.compile(RECURSION)["k"].count(1, 32, [np.zeros(32, np.int32)])
    rows = metrics.collect(result).rows
    assert {r.exactness for r in rows if r.name.startswith("smsp__")} == {"modelled"}
    assert {r.exactness for r in rows if r.name.startswith("launch__")} == {"exact"}


def test_json_of_several_launches_sums_the_counters(gpusim_run):
    document = json.loads(gpusim_run("analyze", "reduce_sequential", "--size", 1000, "--json").out)
    assert document["kind"] == "launches" and len(document["launches"]) == 2
    name = "smsp__sass_inst_executed.sum"
    assert document["metrics"][name] == sum(launch["metrics"][name] for launch in document["launches"])
    assert all(launch["kind"] == "launch" for launch in document["launches"])
    assert not any(name.startswith("launch__") for name in document["metrics"])


def test_json_is_what_the_library_gives(gpusim_run, source):
    document = json.loads(gpusim_run("analyze", source, *SCALE, "--json").out)
    args = [np.ones(256, np.float32), np.float32(2), np.int32(250)]
    result = gpusim.compile(source)["scale"].count(4, 64, args)
    plain = json.loads(json.dumps(result.to_json()))
    assert {name: document[name] for name in plain} == plain


def test_runs_repeat(gpusim_run):
    first, second = (gpusim_run("analyze", "reduce_vec4", "--size", 3000, "--json").out for _ in range(2))
    assert first == second


# ---- tables ---------------------------------------------------------------------------------------------------------


def test_long_tables_are_merged_and_cut(gpusim_run, tmp_path):
    path = tmp_path / "long.cu"
    lines = "\n".join(f"    s[threadIdx.x * {k + 1} % 64] = a[threadIdx.x + {k}];" for k in range(20))
    path.write_text(f"__global__ void k(volatile float *a)\n{{\n    volatile __shared__ float s[64];\n{lines}\n}}\n")
    words = ("analyze", path, "--grid", 1, "--block", 32, "--arg", "f32[64]=ones")
    short, full = gpusim_run(*words, "--max-rows", 5), gpusim_run(*words, "--all")
    assert short.code == full.code == 0, short.err
    assert "more rows (--all shows them)" in short.out and "--all shows them" not in full.out
    assert len(full.out.splitlines()) > len(short.out.splitlines()) + 40
    assert "smsp__sass_inst_executed_op_local_ld.sum" in full.out


# ---- the program ----------------------------------------------------------------------------------------------------


def test_version(gpusim_run):
    assert gpusim_run("--version").out == f"gpusim {gpusim.__version__}\n"


def test_without_a_command_it_shows_help(gpusim_run):
    outcome = gpusim_run()
    assert outcome.code == 0
    for command in ("analyze", "list", "doctor"):
        assert f"\n  {command} " in outcome.out


def test_help_explains_arguments(gpusim_run):
    out = gpusim_run("analyze", "--help").out
    assert "i32=1024" in out and "permutation" in out


def test_list(gpusim_run):
    outcome = gpusim_run("list")
    assert outcome.code == 0
    for family, cases in kernels.families().items():
        assert family in outcome.out.splitlines()
        for case in cases:
            assert f"  {case.name}{' *' if case.wrong else ' +' if case.needs_gpu else ' '}" in outcome.out
    assert "reduce_unroll_warp_race *" in outcome.out
    assert "* wrong on purpose" in outcome.out and "+ needs a GPU" in outcome.out
    assert "8192, 1024, 1000" in outcome.out and "2^20, 2^26" in outcome.out


def test_doctor(gpusim_run, monkeypatch, tmp_path):
    monkeypatch.setenv("GPUSIM_CACHE_DIR", str(tmp_path / "kept"))
    outcome = gpusim_run("doctor")
    assert outcome.code == 0 and outcome.err == ""
    said = {line[:14].strip(): line[16:] for line in outcome.out.splitlines() if line[:14].strip()}
    assert said["gpusim"] == gpusim.__version__ and said["NumPy"] == np.__version__
    assert said["NVRTC"].startswith("13.") and said["nvdisasm"].startswith("13.")
    assert "sm_75" in said["architectures"] and "sm_90" in said["architectures"]
    assert "(writable" in outcome.out
    assert {"GPU", "CuPy", "Nsight Compute"} <= set(said)


def test_doctor_without_a_compiler(gpusim_run, monkeypatch):
    def missing() -> str:
        raise gpusim.UsageError("NVRTC cannot be loaded: install it")

    monkeypatch.setattr("gpusim.toolchain.nvrtc_version", missing)
    outcome = gpusim_run("doctor")
    assert outcome.code == 1
    assert "problem: NVRTC cannot be loaded: install it" in outcome.out


def test_coverage(gpusim_run, source):
    outcome = gpusim_run("doctor", "--coverage", source)
    assert outcome.code == 0
    assert "instructions are supported" in outcome.words and "  scale " in outcome.out


def test_cupy_is_not_imported():
    script = (
        "import sys\nfrom gpusim.cli import main\n"
        "try:\n    main(['doctor'])\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "assert 'cupy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_reader_that_goes_away():
    command = [sys.executable, "-c", "from gpusim.cli import main; main(['list'])"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 141
    assert said == b""


# ---- what kernels print ---------------------------------------------------------------------------------------------
SPEAKING = '#include <cstdio>\nextern "C" __global__ void speak(int n) { printf("%d of %d\\n", (int)threadIdx.x, n); }'
ASSERTING = '#include <cassert>\nextern "C" __global__ void small(int n) { assert(n < 5); }'


def test_output_of_a_kernel_is_a_section_and_in_the_document(gpusim_run, tmp_path):
    path = tmp_path / "speak.cu"
    path.write_text(SPEAKING)
    launch = ("--grid", 1, "--block", 20, "--arg", "i32=42")
    shown = gpusim_run("analyze", path, *launch)
    assert "Output (of the kernel's printf) 0 of 42 1 of 42" in shown.flat and "8 more lines" in shown.flat
    assert "caveat: the kernel calls printf" in shown.flat
    document = json.loads(gpusim_run("analyze", path, *launch, "--json").out)
    assert document["output"] == "".join(f"{k} of 42\n" for k in range(20))
    assert document["exactness"] == "modelled"


def test_output_is_kept_in_a_trace(gpusim_run, tmp_path):
    path, trace = tmp_path / "speak.cu", tmp_path / "speak.trace"
    path.write_text(SPEAKING)
    gpusim_run("analyze", path, "--grid", 1, "--block", 2, "--arg", "i32=3", "--trace", trace)
    assert json.loads(gpusim_run("analyze", trace, "--json").out)["output"] == "0 of 3\n1 of 3\n"


def test_a_failed_assertion_is_one_sentence(gpusim_run, tmp_path):
    path = tmp_path / "small.cu"
    path.write_text(ASSERTING)
    refusal = gpusim_run("analyze", path, "--grid", 1, "--block", 2, "--arg", "i32=7").sentence
    assert refusal.startswith(f"assertion failed: n < 5 ({path}:2, in small)")


def test_coverage_names_functions_of_the_device_runtime(gpusim_run, tmp_path):
    path = tmp_path / "some.cu"
    path.write_text(SPEAKING)
    assert "all" in gpusim_run("doctor", "--coverage", path).flat
    path.write_text('extern "C" __global__ void allocate(int **out) { *out = (int *)malloc(4); }')
    refused = gpusim_run("doctor", "--coverage", path)
    assert refused.code == 1 and "malloc: a function of the device runtime" in refused.flat
