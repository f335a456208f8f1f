"""``gpusim counters``, with a program in the place of Nsight Compute that prints what the test gives it."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import gpusim
from gpusim import kernels
from gpusim.cli.catalogue import arguments
from gpusim.report.hardware import COLUMNS, value_of
from gpusim.runner import record

INST = "smsp__sass_inst_executed.sum"
FAKE = """\
#!/bin/sh
here=$(dirname "$0")
case "$*" in
*--version*) echo "Version 2025.3.1.0 (build 1) (public-release)" ;;
*"--page raw"*) cat "$here/raw.csv" ;;
*"--page source"*) cat "$here/source.csv" ;;
*) cat "$here/said" ;;
esac
"""
PERMISSION = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"


def quoted(cells: list[object]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def raw_page(results: list[gpusim.Result]) -> str:
    """What ncu would print of these totals."""
    names = list(results[0].metrics)
    lines = ["==PROF== a message", quoted(["ID", "Kernel Name", *names]), quoted(["", "", *("inst" for _ in names)])]
    for number, result in enumerate(results):
        lines.append(quoted([number, result.launch.kernel, *(f"{result.metrics[name]:,}" for name in names)]))
    return "\n".join(lines) + "\n"


def source_page(results: list[gpusim.Result]) -> str:
    """The instruction tables, each twice."""
    titles = {short: title for title, short in record.COLUMNS.items() if short in COLUMNS}
    lines = []
    for result in results:
        for _ in range(2):
            lines.append(quoted(["Kernel Name", result.launch.kernel]))
            lines.append(quoted(["Address", "Source", *titles.values()]))
            for i in result.instructions:
                lines.append(quoted([hex(i.address), i.sass, *(value_of(i, short) for short in titles)]))
    return "\n".join(lines) + "\n"


@pytest.fixture
def fake(tmp_path, monkeypatch) -> Callable[..., Path]:
    """A program that shows these results as ncu would, after changes to its two pages."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no nvidia-smi

    def make(results: list[gpusim.Result], raw=lambda text: text, source=lambda text: text, said: str = "") -> Path:
        folder = tmp_path / "nsight"
        folder.mkdir(exist_ok=True)
        path = folder / "ncu"
        path.write_text(FAKE)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (folder / "raw.csv").write_text(raw(raw_page(results)) if results else "")
        (folder / "source.csv").write_text(source(source_page(results)) if results else "")
        (folder / "said").write_text(said)
        return path

    return make


def results_of(name: str, size: int) -> list[gpusim.Result]:
    case = kernels.find(name)
    module = gpusim.compile(case.source, names=case.names)
    problem = case.build(size)
    return [
        module[launch.kernel].count(launch.grid, launch.block, arguments(problem, launch.args), launch.shared_bytes)
        for launch in problem.launches
    ]


def test_equal_counters(gpusim_run, fake):
    results = results_of("bank_column", 1000)
    outcome = gpusim_run("counters", "bank_column", "--size", 1000, "--ncu", fake(results), "--source")
    assert outcome.code == 0 and outcome.err == ""
    first = outcome.out.splitlines()[0]
    assert first.startswith("All ") and "equal the hardware's, and so do" in " ".join(outcome.out.split())
    assert "bank_column at size 1,000; hardware: Nsight Compute 2025.3.1.0" in outcome.flat
    executed = results[0].metrics[INST]
    assert f"{INST} {executed:,} {executed:,}" in outcome.flat
    load = next(i for i in results[0].instructions if i.sass.startswith("LDS"))
    assert load.sass in outcome.out
    assert "DIFFERS" not in outcome.out


def test_a_total_that_differs_is_exit_code_1_and_named(gpusim_run, fake):
    results = results_of("scale", 1000)
    executed = f"{results[0].metrics[INST]:,}"
    path = fake(results, raw=lambda text: text.replace(f'"{executed}"', '"77"', 1))
    outcome = gpusim_run("counters", "scale", "--size", 1000, "--ncu", path)
    assert outcome.code == 1
    assert f"1 exact count differs from the hardware: {INST}" in outcome.flat
    assert f"{INST} {executed} 77 DIFFERS" in outcome.flat
    document = json.loads(gpusim_run("counters", "scale", "--size", 1000, "--ncu", path, "--json").out)
    assert document["differences"] == [f"{INST}: {executed}, hardware 77"] and document["equal"] is False


def test_an_instruction_that_differs_is_exit_code_1_and_shows_both(gpusim_run, fake):
    results = results_of("scale", 1000)
    load = next(i for i in results[0].instructions if i.sass.startswith("LDG"))

    def changed(text: str) -> str:
        lines = text.splitlines()
        for k, line in enumerate(lines):
            if load.sass in line:
                lines[k] = line.replace(f'"{load.sectors}"', '"7777"', 1)
        return "\n".join(lines)

    path = fake(results, source=changed)
    outcome = gpusim_run("counters", "scale", "--size", 1000, "--ncu", path, "--source")
    assert outcome.code == 1
    assert f"1 exact count differs from the hardware: {load.address:#06x} {load.sass}" in outcome.flat
    assert "| 7,777" in outcome.out
    assert gpusim_run("counters", "scale", "--size", 1000, "--ncu", path).code == 0  # totals alone are equal


def test_the_document(gpusim_run, fake):
    results = results_of("reduce_shuffle", 1000)
    assert len(results) == 2
    outcome = gpusim_run("counters", "reduce_shuffle", "--size", 1000, "--ncu", fake(results), "--source", "--json")
    assert outcome.code == 0
    document = json.loads(outcome.out)
    assert (document["schema"], document["kind"], document["equal"]) == (1, "counters", True)
    assert document["target"] == {"kind": "catalogue", "name": "reduce_shuffle", "size": 1000}
    assert document["hardware"]["ncu"] == "2025.3.1.0" and "--clock-control none" in document["hardware"]["command"]
    for launch, result in zip(document["launches"], results, strict=True):
        by_name = {row["name"]: row for row in launch["metrics"]}
        assert {name: row["simulator"] for name, row in by_name.items()} == result.metrics
        assert {row["state"] for row in by_name.values()} == {"equal"}
        assert len(launch["instructions"]) == len(result.instructions)
        assert launch["instructions"][3]["simulator"] == launch["instructions"][3]["hardware"]


def test_several_launches_are_told_apart(gpusim_run, fake):
    results = results_of("reduce_shuffle", 1000)
    executed = f"{results[1].metrics[INST]:,}"
    path = fake(results, raw=lambda text: text.replace(f'"{executed}"', '"5"'))
    outcome = gpusim_run("counters", "reduce_shuffle", "--size", 1000, "--ncu", path)
    assert outcome.code == 1
    assert f"launch 2: {INST}" in outcome.flat and "launch 2 of 2: reduce_shuffle" in outcome.out


def test_a_metric_that_is_not_served_is_told(gpusim_run, fake):
    path = fake(results_of("scale", 1000), raw=lambda text: text.replace(INST, "something.else"))
    outcome = gpusim_run("counters", "scale", "--size", 1000, "--ncu", path)
    assert outcome.code == 0
    assert "- not served" in outcome.flat and "does not have the metric" in outcome.flat


def test_a_source_with_its_launch(gpusim_run, fake, source):
    launch = ("--kernel", "scale", "--grid", 4, "--block", 256)
    args = ("--arg", "f32[1000]=arange", "--arg", "f32=0.5", "--arg", "i32=1000")
    document = json.loads(gpusim_run("analyze", source, *launch, *args, "--json").out)
    path = fake([])
    names = list(document["metrics"])
    (path.parent / "raw.csv").write_text(
        "\n".join(
            [quoted(["ID", "Kernel Name", *names]), quoted([""] * (len(names) + 2)),
             quoted([0, "scale", *document["metrics"].values()])]
        )
    )  # fmt: skip
    outcome = gpusim_run("counters", source, *launch, *args, "--ncu", path)
    assert outcome.code == 0, outcome.err
    assert "some.cu; hardware" in outcome.flat


# Refusals


def sentence(outcome, code: int) -> str:
    assert (outcome.code, outcome.out) == (code, "")
    (line,) = outcome.err.splitlines()
    return line.removeprefix("gpusim: ")


def test_without_permission_the_sentence_says_how_to_get_it(gpusim_run, fake):
    outcome = gpusim_run("counters", "scale", "--size", 1000, "--ncu", fake([], said=PERMISSION))
    told = sentence(outcome, 3)
    for word in ("ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0", "administrator", "SYS_ADMIN"):
        assert word in told


def test_without_ncu(gpusim_run, tmp_path):
    assert "--ncu" in sentence(gpusim_run("counters", "scale", "--ncu", tmp_path / "none"), 3)


def test_without_a_gpu(gpusim_run, fake):
    said = "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device is detected"
    assert "CUDA finds no GPU 0" in sentence(gpusim_run("counters", "scale", "--ncu", fake([], said=said)), 3)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("barrier_in_branch",), "would not end"),
        (("transpose_pda",), "no kernel named"),
        (("scale", "--grid", 4), "--grid does not apply"),
        (("absent.cu",), "no such file"),
    ],
)
def test_wrong_use(gpusim_run, fake, words, text):
    assert text in sentence(gpusim_run("counters", *words, "--ncu", fake([])), 2)


def test_a_trace_has_no_machine_code(gpusim_run, fake, tmp_path):
    trace = tmp_path / "some.gpusim-trace"
    trace.write_bytes(b"PK\x03\x04")
    assert "no machine code" in sentence(gpusim_run("counters", trace, "--ncu", fake([])), 2)


@pytest.mark.gpu
@pytest.mark.parametrize("words", [("bank_column", "--size", 5000), ("reduce_shuffle", "--size", 1000)])
def test_the_hardware_agrees(gpusim_run, words):
    pytest.importorskip("cupy", reason="counting on a GPU needs CuPy")
    outcome = gpusim_run("counters", *words, "--source")
    if outcome.code == 3:
        pytest.skip(outcome.err.strip())
    assert outcome.code == 0, outcome.out
