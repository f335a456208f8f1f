"""``gpusim run``, ``compare --gpu`` and ``validate`` on a stand-in for CuPy, whose times mean nothing."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest
from fake_cupy import CudaError, FakeCupy

import gpusim
from gpusim import kernels
from gpusim.cli import compare as comparing
from gpusim.cli.run import bar, microseconds
from gpusim.kernels import Reference
from gpusim.runner import device, ncu, times

QUICK = ("--seconds", 0.002)


@pytest.fixture
def cupy(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(device.Nvml, "open", lambda pci_bus_id: None)
    monkeypatch.setattr(device, "_keep", lambda error: None)  # nothing is lost here
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def replaced(monkeypatch, family, **changes):
    """The catalogue with other values in the cases of a family."""
    whole = dict(kernels.families())
    whole[family] = tuple(dataclasses.replace(case, **changes) for case in whole[family])
    monkeypatch.setattr(kernels, "families", lambda: whole)
    return whole[family]


def wrong_reference(monkeypatch, name):
    """The catalogue with a case whose reference is something else."""
    case = kernels.find(name)

    def build(n):
        problem = case.build(n)
        return dataclasses.replace(
            problem, reference=lambda: Reference({k: np.zeros_like(v) for k, v in problem.buffers.items()})
        )

    changed = dataclasses.replace(case, build=build)
    whole = {
        family: tuple(changed if c.name == name else c for c in cases) for family, cases in kernels.families().items()
    }
    monkeypatch.setattr(kernels, "families", lambda: whole)


# ---- run ------------------------------------------------------------------------------------------------------------


def test_a_kernel_is_checked_timed_and_kept(gpusim_run, cupy, tmp_path):
    outcome = gpusim_run("run", "transpose_pad", "--size", 97, *QUICK)
    assert outcome.code == 0, outcome.err
    for part in ("results: 1 equal to the NumPy reference", "Fake GPU (sm_90)", "CuPy 0.fake", "SM clock unknown"):
        assert part in outcome.flat
    (path,) = (tmp_path / "gpusim-results").iterdir()
    assert f"written to gpusim-results/{path.name}" in outcome.out
    document = json.loads(path.read_text())
    (problem,) = document["problems"]
    assert problem["check"]["equal"] and len(problem["cubin_sha256"]) == 64 and problem["size"] == 97
    assert problem["buffer_bytes"] == 2 * 4 * 97 * 97
    assert {"device", "driver", "cuda", "cupy", "nvrtc", "gpusim", "date", "criterion", "l2_bytes"} <= set(
        document["header"]
    )


def test_a_family_is_shown_slowest_first(gpusim_run, cupy):
    outcome = gpusim_run("run", "transpose", "--size", 128, "--json", *QUICK)
    document = json.loads(outcome.out)
    assert len(document["times"]) == 13 and all(p["check"]["equal"] for p in document["problems"])
    shown = gpusim_run("run", "transpose", "--size", 128, *QUICK)
    assert "results: all 13 equal" in shown.flat
    lines = [line.split()[0] for line in shown.out.splitlines() if line.startswith("  transpose_")][:13]
    assert lines.index("transpose_naive") < lines.index("transpose_unroll") < lines.index("transpose_tile4")


def test_several_launches_are_timed_one_by_one_and_together(gpusim_run, cupy):
    document = json.loads(gpusim_run("run", "reduce_sequential", "--size", 1000, "--json", *QUICK).out)
    assert [entry["id"].rsplit("/", 1)[1] for entry in document["times"]] == ["0", "1", "whole"]
    assert len(document["problems"][0]["launches"]) == 2
    shown = gpusim_run("run", "reduce_sequential", "--size", 1000, *QUICK).out
    assert "launch 1" in shown and "launch 2" in shown


def test_a_wrong_result_is_said_and_not_timed(gpusim_run, cupy, monkeypatch):
    wrong_reference(monkeypatch, "vector_add")
    outcome = gpusim_run("run", "basic", "--size", 1000, *QUICK)
    assert outcome.code == 1
    assert "results: 1 of 2 equal to the NumPy reference" in outcome.flat
    assert "vector_add: WRONG, and therefore not timed: a[0] is" in outcome.flat
    document = json.loads(gpusim_run("run", "basic", "--size", 1000, "--json", *QUICK).out)
    assert [entry["id"] for entry in document["times"]] == ["scale/1000/0"]


def test_wrong_on_purpose_is_no_failure(gpusim_run, cupy):
    outcome = gpusim_run("run", "counter_race", "--size", 1000, *QUICK)
    assert outcome.code == 0
    assert "counter_race is wrong on purpose; its result: differs from the NumPy reference, as it must" in outcome.flat


def test_a_size_that_only_some_variants_take(gpusim_run, cupy):
    outcome = gpusim_run("run", "matmul", "--size", 100, *QUICK)
    assert outcome.code == 0 and "matmul_smem: not run: matmul_smem<32> has no guards" in outcome.flat
    assert gpusim_run("run", "matmul_smem", "--size", 100).sentence.startswith("matmul_smem<32> has no guards")


def test_out_is_not_overwritten(gpusim_run, cupy, tmp_path):
    words = ("run", "scale", "--size", 100, "--out", tmp_path / "x.json", *QUICK)
    assert gpusim_run(*words).code == 0
    assert gpusim_run(*words).sentence.endswith("x.json exists and is not overwritten: give another --out")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("run", "transpose_pda"), 2, "no kernel named 'transpose_pda' in the catalogue; did you mean transpose_pad"),
        (("run", "barrier_in_branch"), 2, "barrier_in_branch is not run on a GPU, which might wait for ever: only"),
        (
            ("run", "transpose_copy", "--size", 400000),
            3,
            "transpose_copy at size 400000 needs 1,192.1 GiB of the GPU's memory, and of the 16.0 GiB of the Fake GPU "
            "8.0 GiB are free: choose a smaller --size",
        ),
        (("run", "scale", "--arch", "sm_80"), 3, "code for sm_80 does not run on the Fake GPU, which is an sm_90: "),
        (("run", "scale", "--arch", "sm_10"), 2, "architecture 'sm_10' is not supported by NVRTC"),
        (("run", "scale", "--device", 4), 3, "there is no device 4: there is only device 0"),
        (("validate", "--family", "nothing"), 2, "there is no family 'nothing': there are access, banks"),
        (("compare", "basic", "--device", 1), 2, "--device and --seconds belong to --gpu, which measures now"),
        (("compare", "basic", "--gpu", "--recorded", "h200"), 2, "--recorded and --gpu exclude each other"),
    ],
)
def test_refusals_are_one_sentence(gpusim_run, cupy, words, code, text):
    outcome = gpusim_run(*words)
    assert outcome.code == code and outcome.err.startswith(f"gpusim: {text}") and outcome.err.count("\n") == 1
    assert not outcome.out


def test_the_device_is_given_back(gpusim_run, cupy):
    assert gpusim_run("run", "scale", "--size", 100, *QUICK).code == 0
    cupy.failure = CudaError(700, "CUDA_ERROR_ILLEGAL_ADDRESS")
    outcome = gpusim_run("run", "scale", "--size", 100)
    assert outcome.code == 3 and "the GPU stopped while running scale at size 100: it accessed an ill" in outcome.err
    assert cupy.current == []


def test_too_little_memory_in_the_end(gpusim_run, cupy, monkeypatch):
    monkeypatch.setattr("gpusim.runner.cases.estimated_bytes", lambda case, size: 0)  # as if the estimate were wrong
    cupy.free = 400 << 20
    outcome = gpusim_run("run", "scale", "--size", 150_000_000)
    assert outcome.code == 3 and "scale at size 150000000 needs 572.2 MiB of the GPU's memory" in outcome.err


# ---- compare --gpu --------------------------------------------------------------------------------------------------


def test_times_measured_now_stand_beside_the_counters(gpusim_run, cupy):
    document = json.loads(gpusim_run("compare", "basic", "--gpu", "--size", 4096, "--json", *QUICK).out)
    assert [v["name"] for v in document["variants"]] == ["scale", "vector_add"]
    assert all(v["microseconds"] > 0 and v["counters"]["instructions"] > 0 for v in document["variants"])
    assert document["measurement"]["problems"][0]["check"]["equal"] and document["times"]["cache"] == "cold"
    shown = gpusim_run("compare", "basic", "--gpu", "--size", 4096, *QUICK)
    assert shown.code == 0 and "measured: Fake GPU, driver" in shown.flat


def test_a_file_of_results_is_a_recording(gpusim_run, cupy, tmp_path):
    path = tmp_path / "basic.json"
    assert gpusim_run("run", "basic", "--size", 4096, "--out", path, *QUICK).code == 0
    outcome = gpusim_run("compare", "basic", "--recorded", path, "--size", 4096)
    assert outcome.code == 0 and "measured: Fake GPU" in outcome.flat
    assert "other machine code" not in outcome.flat
    document = json.loads(path.read_text())
    document["problems"][0]["launches"][0]["code_sha256"] = "0" * 64
    path.write_text(json.dumps(document))
    outcome = gpusim_run("compare", "basic", "--recorded", path, "--size", 4096)
    assert "scale was measured with other machine code than is counted here" in outcome.flat
    assert "vector_add was measured with other" not in outcome.flat
    assert "nothing of banks was timed at size" in gpusim_run("compare", "banks", "--recorded", path).sentence


def test_the_order_of_pairs_is_shown_with_predictions(capsys):
    def variant(name, median):
        return comparing.Variant(name, name, dict.fromkeys(comparing.COLUMNS, 1), 100, "exact", median, (median,) * 2)

    variants = [variant("a", 10.0), variant("b", 20.0), variant("c", 40.0)]
    recording = times.recorded("h200")
    comparison = comparing.Comparison("f", 1, variants, recording, predicted={"a": 3.0, "b": 1.0, "c": 9.0})
    comparing.show(comparison)
    shown = " ".join(capsys.readouterr().out.split())
    assert "a, b second faster first faster" in shown and "a, c" not in shown
    assert "2 of 3 decided pairs in the right order, 0 ties" in shown and "Kendall's tau-b 0.333" in shown
    found = comparing.document(comparison)["order"]
    assert (found["agree"], found["disagree"]) == (2, 1) and found["pairs"][0]["verdict"] == "disagree"
    assert "order" not in comparing.document(dataclasses.replace(comparison, predicted=None))


# ---- validate -------------------------------------------------------------------------------------------------------


def validate(run, path, *more):
    return run("validate", "--family", "basic", "--out", path, *more, *QUICK)


def test_the_catalogue_is_validated_and_not_measured_twice(gpusim_run, cupy, monkeypatch, tmp_path):
    replaced(monkeypatch, "basic", sizes=(1000, 97))
    path = tmp_path / "x.json.gz"
    first = validate(gpusim_run, path)
    assert first.code == 0 and "basic 4 4 0 0 0" in first.flat
    recording = times.recorded(str(path))
    assert recording.sizes("scale") == [97, 1000] and recording.of("vector_add", 97, "hot")
    launched = len(cupy.launched)
    assert validate(gpusim_run, path).code == 0
    assert len(cupy.launched) == launched  # nothing was run again


def test_changed_machine_code_is_measured_anew(gpusim_run, cupy, monkeypatch, tmp_path):
    replaced(monkeypatch, "basic", sizes=(1000,))
    path = tmp_path / "x.json"
    validate(gpusim_run, path)
    before = {p["id"]: p["cubin_sha256"] for p in json.loads(path.read_text())["problems"]}
    replaced(monkeypatch, "basic", sizes=(1000,), options=("-DOTHER", "--fmad=false", "-G"))
    validate(gpusim_run, path)
    after = {p["id"]: p["cubin_sha256"] for p in json.loads(path.read_text())["problems"]}
    assert before.keys() == after.keys() and all(before[name] != after[name] for name in before)


def test_what_an_interruption_leaves_is_continued(gpusim_run, cupy, monkeypatch, tmp_path):
    replaced(monkeypatch, "basic", sizes=(1000, 97))
    path = tmp_path / "x.json"
    real = device.Device.run

    def interrupted(self, launches, doing):
        if "size 97" in doing:
            raise KeyboardInterrupt
        real(self, launches, doing)

    with monkeypatch.context() as patched:
        patched.setattr(device.Device, "run", interrupted)
        outcome = validate(gpusim_run, path)
    assert outcome.code == 130
    assert len(json.loads(path.read_text())["problems"]) == 2
    assert validate(gpusim_run, path).code == 0
    assert len(json.loads(path.read_text())["problems"]) == 4


def test_a_lost_gpu_leaves_a_file_that_goes_on_behind_it(gpusim_run, cupy, monkeypatch, tmp_path):
    replaced(monkeypatch, "basic", sizes=(1000, 97))
    path = tmp_path / "x.json"
    real = device.Device.run

    def lost(self, launches, doing):
        cupy.failure = CudaError(700, "illegal") if "vector_add at size 1000" in doing else None
        real(self, launches, doing)

    monkeypatch.setattr(device.Device, "run", lost)
    outcome = validate(gpusim_run, path)
    assert outcome.code == 3 and outcome.err.count("\n") == 1
    cupy.failure = None
    again = validate(gpusim_run, path)
    document = json.loads(path.read_text())
    assert again.code == 0 and len(document["problems"]) == 4 and len(document["left_out"]) == 1
    assert "vector_add: not run: the GPU stopped while running vector_add at size 1000" in again.flat


def test_a_wrong_result_fails_the_validation(gpusim_run, cupy, monkeypatch, tmp_path):
    replaced(monkeypatch, "basic", sizes=(1000,))
    wrong_reference(monkeypatch, "scale")
    outcome = validate(gpusim_run, tmp_path / "x.json")
    assert outcome.code == 1 and "scale: WRONG, and therefore not timed" in outcome.flat


def test_a_file_of_another_gpu_is_refused(gpusim_run, cupy, monkeypatch, tmp_path):
    replaced(monkeypatch, "basic", sizes=(1000,))
    path = tmp_path / "x.json"
    validate(gpusim_run, path)
    document = json.loads(path.read_text())
    document["header"]["driver"] = "1.2.3"
    path.write_text(json.dumps(document))
    assert "holds times of driver 1.2.3, not unknown: give another --out" in validate(gpusim_run, path).sentence


# ---- small things ---------------------------------------------------------------------------------------------------


def test_without_cupy_it_is_exit_code_3(gpusim_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    for words in (("run", "scale"), ("validate",), ("compare", "basic", "--gpu")):
        outcome = gpusim_run(*words)
        assert outcome.code == 3 and "pip install 'gpusim[gpu]'" in outcome.err and outcome.err.count("\n") == 1


def test_bars():
    assert bar(10, 10) == "█" * 24 and bar(5, 10) == "█" * 12 and bar(1e-9, 10) == "▏" and bar(1, 0) == ""
    assert bar(10.2, 24) == "█" * 10 + "▎"
    assert microseconds(3.14159) == "3.14" and microseconds(271.84) == "271.8" and microseconds(123456.7) == "123,457"


# ---- with Nsight Compute's counters ---------------------------------------------------------------------------------


def hardware_that_counts(monkeypatch, wrong=()):
    """ncu's answers are the simulator's own numbers, except for the kernels ``wrong``."""
    asked = []

    def count(tool, cubin, launches, names, *, source=False, device=0):
        asked.append(launches)
        module = gpusim.load(cubin)
        found = []
        for launch in launches:
            result = module[launch.kernel].launch(launch.grid, launch.block, list(launch.args), launch.shared)
            off = module[launch.kernel].name in wrong
            metrics = {k: v + (off and k == "smsp__sass_inst_executed.sum") for k, v in result.metrics.items()}
            found.append(ncu.Counted(launch.kernel, metrics))
        return ncu.Session(found, "ncu", ())

    monkeypatch.setattr(ncu, "find", lambda program: ncu.Tool("ncu", "2025.3"))
    monkeypatch.setattr(ncu, "count", count)
    return asked


def test_counters_are_validated_and_not_counted_twice(gpusim_run, cupy, monkeypatch, tmp_path):
    replaced(monkeypatch, "basic", sizes=(97,))
    asked = hardware_that_counts(monkeypatch)
    path = tmp_path / "x.json"
    outcome = validate(gpusim_run, path, "--counters")
    assert outcome.code == 0 and "exact ones of 2 kernels equal the hardware's" in outcome.flat, outcome.err
    assert [e["equal"] for e in json.loads(path.read_text())["counters"]] == [True, True] and len(asked) == 2
    assert validate(gpusim_run, path, "--counters").code == 0 and len(asked) == 2


def test_a_counter_that_differs_fails_the_validation(gpusim_run, cupy, monkeypatch, tmp_path):
    replaced(monkeypatch, "basic", sizes=(97,))
    hardware_that_counts(monkeypatch, wrong={"scale"})
    outcome = validate(gpusim_run, tmp_path / "x.json", "--counters")
    assert outcome.code == 1 and "counters: 1 of 2 kernels differ from the hardware: scale/" in outcome.flat
    assert "smsp__sass_inst_executed.sum" in outcome.out


def test_transfers_are_run_in_their_own_way(gpusim_run):
    shown = gpusim_run("run", "transfers", "--recorded", "h200")
    assert shown.code == 0 and "NVIDIA H200" in shown.flat
    assert "--recorded and --svg belong to transfers" in gpusim_run("run", "scale", "--recorded", "h200").sentence
    assert "do not apply to transfers" in gpusim_run("run", "transfers", "--out", "x.json").sentence
    assert "--ncu belongs to --counters" in gpusim_run("validate", "--ncu", "x").sentence
