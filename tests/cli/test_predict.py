"""``gpusim predict``, and the time that ``gpusim analyze`` adds."""

from __future__ import annotations

import importlib.util
import json
import math

import pytest

from gpusim.cli.targets import macros_of, sizes_of
from gpusim.errors import UsageError
from gpusim.timing import bounds

LAUNCH = ("--kernel", "scale", "--grid", 40, "--block", 256, "--arg", "f32[10240]=ones", "--arg", "f32=2")
FILE = (*LAUNCH, "--arg", "i32=10240", "--model", "bounds")


def test_one_launch_of_the_catalogue_beside_its_recorded_time(gpusim_run):
    shown = gpusim_run("predict", "transpose_naive", "--size", 1024, "--model", "bounds")
    assert shown.code == 0
    assert "modelled" in shown.out and "measured:" in shown.out and "NVIDIA H200, driver" in shown.flat
    assert "stalled_long_scoreboard" in shown.out and "confidence" in shown.out
    document = json.loads(gpusim_run("predict", "transpose_naive", "--size", 1024, "--model", "bounds", "--json").out)
    assert document["kind"] == "prediction" and document["exactness"] == "modelled" and document["size"] == 1024
    (launch,) = document["launches"]
    assert launch["model"] == "bounds" and launch["milliseconds"] == document["milliseconds"] > 0
    assert sum(launch["stalls"].values()) == pytest.approx(1, abs=0.01)
    assert document["measured"]["milliseconds"] > 0 and document["measured_on"]["device"] == "NVIDIA H200"


def test_launches_are_summed_with_a_row_each(gpusim_run):
    words = ("predict", "reduce_shuffle", "--size", 100000, "--model", "bounds")
    document = json.loads(gpusim_run(*words, "--json").out)
    assert len(document["launches"]) > 1
    assert document["milliseconds"] == pytest.approx(sum(one["milliseconds"] for one in document["launches"]))
    shown = gpusim_run(*words)
    assert f"launch 1 of {len(document['launches'])}" in shown.out and "Launches" in shown.out


def test_a_sweep_of_sizes(gpusim_run):
    words = ("predict", "transpose_naive", "--size", "512:2048:x2", "--model", "bounds")
    points = json.loads(gpusim_run(*words, "--json").out)["points"]
    assert [point["size"] for point in points] == [512, 1024, 2048]
    spent = [point["milliseconds"] for point in points]
    assert spent == sorted(spent) and spent[2] > 1.5 * spent[1]
    assert [point["measured"] is not None for point in points] == [False, True, False]
    for width in (80, 120):
        shown = gpusim_run(*words)
        assert all(f"{size:,}" in shown.out for size in (512, 1024, 2048)), width
        assert max(map(len, shown.out.splitlines())) <= 100


def test_a_sweep_of_macros_compiles_each(gpusim_run, tmp_path):
    path = tmp_path / "work.cu"
    path.write_text(
        'extern "C" __global__ void work(float *a) { float x = a[threadIdx.x];\n'
        "#pragma unroll\n"
        "for (int k = 0; k < STEPS; k++) x = x * x + 1.0f;\n"
        "a[threadIdx.x] = x; }\n"
    )
    words = ("predict", path, "--grid", 1, "--block", 32, "--arg", "f32[32]=ones", "-D", "STEPS=10,510")
    points = json.loads(gpusim_run(*words, "--model", "bounds", "--json").out)["points"]
    assert [point["macros"] for point in points] == [{"STEPS": "10"}, {"STEPS": "510"}]
    few, many = (point["launches"][0]["cycles"] for point in points)
    assert many - few > 4 * 400
    shown = gpusim_run(*words, "--model", "bounds")
    assert "fastest: STEPS=10" in shown.out and "measured" not in shown.out


def test_a_file_and_hot_caches(gpusim_run, source):
    cold, hot = (
        json.loads(gpusim_run("predict", source, *FILE, "--cache", how, "--json").out) for how in ("cold", "hot")
    )
    assert cold["measured"] is None and cold["size"] is None
    assert hot["milliseconds"] < cold["milliseconds"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("transpose_naive", "--size", "10:x"), "--size 10:x: write a number, a list"),
        (("transpose_naive", "--size", "0"), "--size 0: write a number"),
        (("transpose_naive", "--grid", "4"), "brings its own launch: --grid does not apply"),
        (("transpose_naive", "--device", "nosuch"), "there is no device profile 'nosuch'"),
        (("transpose_naive", "--plot", "a.txt"), "must end in .png, .svg or .pdf"),
        (("nothing.cu",), "there is no such file"),
    ],
)
def test_wrong_use(gpusim_run, words, text):
    outcome = gpusim_run("predict", *words)
    assert outcome.code == 2 and outcome.out == ""
    assert text in outcome.err and outcome.err.count("\n") == 1


def test_a_file_has_no_sizes(gpusim_run, source):
    assert "--size does not apply; sweep a macro with -D" in gpusim_run("predict", source, *FILE, "--size", 4).err


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
@pytest.mark.parametrize(("sizes", "name"), [("512,1024", "sweep.svg"), ("1024", "one.png")])
def test_a_plot(gpusim_run, tmp_path, sizes, name):
    path = tmp_path / name
    outcome = gpusim_run("predict", "transpose_naive", "--size", sizes, "--model", "bounds", "--plot", path)
    assert outcome.code == 0 and [p.name for p in tmp_path.iterdir()] == [name]
    start = path.read_bytes()[:200]
    assert (b"<?xml" if name.endswith("svg") else b"\x89PNG") in start


def test_a_plot_without_matplotlib_is_refused(gpusim_run, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    outcome = gpusim_run("predict", "transpose_naive", "--plot", tmp_path / "a.png")
    assert outcome.sentence == "--plot needs matplotlib: pip install 'gpusim[plot]'"


def test_sizes_and_macros():
    assert sizes_of(None) == [] and sizes_of("7") == [7] and sizes_of("3,1,3") == [3, 1]
    assert sizes_of("256:4096:x4") == [256, 1024, 4096] and sizes_of("10:40:+15") == [10, 25, 40]
    for wrong in ("1:10:x1", "1:10:+0", "5:1:x2", "1:2", "a", "1:1000000:+1"):
        with pytest.raises(UsageError):
            sizes_of(wrong)
    assert macros_of(()) == [{}] and macros_of(["A"]) == [{"A": None}]
    assert macros_of(["A=1,2", "B=x"]) == [{"A": "1", "B": "x"}, {"A": "2", "B": "x"}]


# -- analyze -------------------------------------------------------------------------------------------------------


def test_analyze_has_the_time_unless_told_not_to(gpusim_run, monkeypatch):
    monkeypatch.setattr(bounds, "have_numba", lambda: False)
    words = ("analyze", "transpose_pad", "--size", 512)
    shown = gpusim_run(*words)
    (line,) = [line for line in shown.out.splitlines() if line.startswith("time: ")]
    assert "NVIDIA H200" in line and "limited by" in line and "modelled" in shown.flat
    assert "pip install 'gpusim[timing]'" in shown.out
    found = json.loads(gpusim_run(*words, "--json").out)["prediction"]
    assert found["model"] == "bounds" and math.isfinite(found["milliseconds"]) and found["breakdown_ms"]
    without = gpusim_run(*words, "--no-predict")
    assert "time:" not in without.out
    assert "prediction" not in json.loads(gpusim_run(*words, "--no-predict", "--json").out)


def test_analyze_says_why_there_is_no_time(gpusim_run, monkeypatch):
    from gpusim.timing import profiles

    monkeypatch.setattr(profiles, "names", lambda: ["h200"])
    words = ("analyze", "transpose_pad", "--size", 100, "--arch", "sm_80")
    shown = gpusim_run(*words)
    assert "no time is predicted: there is no profile of a device that runs sm_80 code" in shown.flat
    assert "time:" not in shown.out
    assert "error" in json.loads(gpusim_run(*words, "--json").out)["prediction"]
    named = gpusim_run(*words, "--device", "h200")
    assert "time:" in named.out and "code for sm_80 is timed as if" in named.flat


def test_analyze_takes_the_bounds_where_much_would_have_to_be_followed(gpusim_run, monkeypatch):
    from gpusim.cli import timing

    monkeypatch.setattr(timing, "PIPELINE_WORK", 0)
    found = json.loads(gpusim_run("analyze", "transpose_pad", "--size", 512, "--json").out)["prediction"]
    assert found["model"] == "bounds"
