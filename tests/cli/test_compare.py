"""``gpusim compare``: variants side by side, recorded times, wrong use."""

from __future__ import annotations

import json

import pytest

from gpusim import kernels
from gpusim.runner import times


def test_counters_of_all_variants(gpusim_run):
    outcome = gpusim_run("compare", "banks", "--size", 5000)
    assert outcome.code == 0
    for case in kernels.families()["banks"]:
        assert case.name in outcome.out
    document = json.loads(gpusim_run("compare", "banks", "--size", 5000, "--json").out)
    variants = {v["name"]: v for v in document["variants"]}
    assert [v["name"] for v in document["variants"]] == [c.name for c in kernels.families()["banks"]]
    assert variants["bank_column"]["counters"]["bank conflicts"] > 0
    assert variants["bank_column_pad"]["counters"]["bank conflicts"] == 0
    assert "bank conflicts" in variants["bank_column"]["beside_first"]
    assert all(v["microseconds"] is None for v in document["variants"])


def test_recorded_times_put_the_variants_in_order(gpusim_run):
    document = json.loads(gpusim_run("compare", "transpose", "--recorded", "h200", "--json").out)
    measured = [v["microseconds"] for v in document["variants"]]
    assert measured == sorted(measured) and len(measured) == 13
    assert document["size"] == 1024 and document["times"]["device"]["device"] == "NVIDIA H200"
    order = [v["name"] for v in document["variants"]]
    assert order.index("transpose_pad2") < order.index("transpose_smem") < order.index("transpose_bank")
    ties = {tuple(sorted(pair)) for pair in document["times"]["ties"]}
    assert ("transpose_tile4_pad", "transpose_tile4_swizzle") in ties
    assert not any(v["other_code"] for v in document["variants"])  # the compiler makes what was timed
    shown = gpusim_run("compare", "transpose", "--recorded", "h200", "--hot")
    assert "NVIDIA H200, driver" in shown.flat and "warm caches" in shown.flat and "a tie:" in shown.flat


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("nothing",), "there is no family 'nothing': there are access, banks"),
        (("transfers",), "are not simulated: 'gpusim run transfers' compares them on a GPU"),
        (("transpose", "--recorded", "a100"), "there are no recorded times of 'a100': there are those of h200"),
        (
            ("transpose", "--recorded", "h200", "--size", 77),
            "nothing of transpose was timed at size 77: --size 1000 or 1024",
        ),
        (("calibrate", "--recorded", "h200"), "nothing of calibrate was timed: leave --recorded out"),
        (("transpose", "--recorded", "h200", "--arch", "sm_80"), "the recorded times are of sm_90"),
    ],
)
def test_wrong_use(gpusim_run, words, text):
    outcome = gpusim_run("compare", *words)
    assert outcome.code == 2 and text in outcome.err and outcome.err.count("\n") == 1


def test_the_recording_holds_the_whole_catalogue_at_its_sizes():
    recording = times.recorded("h200")
    header = recording.header
    assert header["device"] == "NVIDIA H200" and header["driver"] and header["date"] and header["command"]
    without = {"barrier_in_branch", "reduce_add_sync_mask"}  # these would hang on a GPU
    for family, cases in kernels.families().items():
        for case in cases if family != "calibrate" else ():  # `gpusim calibrate` times these, in many more ways
            expected = [] if case.name in without or case.needs_gpu else sorted(set(case.sizes))
            assert recording.sizes(case.name) == expected, case.name
    for launch in recording.launches.values():
        assert launch["dropped"] == 0 and set(launch["clock_mhz"]) == {1980}
        for how in ("cold", "hot"):
            low, high = launch[how]["quartiles"]
            assert 0 < launch[how]["least"] <= low <= launch[how]["median"] <= high and launch[how]["samples"] >= 10


def test_ties():
    def time(median, low, high):
        return times.Time(median, low, high, 10)

    assert times.tied(time(100, 99, 101), time(101.5, 101.2, 103))  # within 2 %
    assert times.tied(time(100, 90, 120), time(115, 110, 130))  # ranges overlap
    assert not times.tied(time(100, 99, 101), time(110, 109, 111))
