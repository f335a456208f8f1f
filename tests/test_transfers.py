"""Transfers: what is made of events, how it is shown, and what is recorded; measuring needs a GPU."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gpusim import kernels
from gpusim.cli.transfers import run_transfers
from gpusim.errors import NoGpuError, UsageError
from gpusim.report import transfers as report
from gpusim.runner import transfers
from gpusim.runner.transfers import Operation

HEADER = {"device": "made up", "driver": "1", "date": "2026-01-01"}


def test_a_summary_holds_quartiles_and_the_medians_rate():
    found = transfers.summary([1e-6, 2e-6, 3e-6, 4e-6, 100e-6], 6000)
    assert found == {"median": 3.0, "quartiles": [2.0, 4.0], "least": 1.0, "samples": 5, "gb_per_s": 2.0}
    assert "gb_per_s" not in transfers.summary([1e-6])


def test_an_operation_starts_when_the_one_before_it_of_its_kind_has_ended():
    # two streams: both copies in are ready at 0, and the engine takes them one after the other
    found = transfers.timeline(
        [
            (0, 0, "copy in", 0, 10), (0, 0, "kernel", 10, 30), (0, 0, "copy out", 30, 40),
            (1, 1, "copy in", 1, 20), (1, 1, "kernel", 20, 50), (1, 1, "copy out", 50, 60),
        ]
    )  # fmt: skip
    assert Operation(1, 1, "copy in", 1, 10, 20) in found
    assert Operation(1, 1, "kernel", 20, 30, 50) in found  # waits for the multiprocessors
    assert Operation(1, 1, "copy out", 50, 50, 60) in found  # its engine was free
    assert [o.start for o in found] == sorted(o.start for o in found)
    for kind in transfers.KINDS:
        same = [o for o in found if o.kind == kind]
        assert all(a.end <= b.start for a, b in pairwise(same))


def test_times_begin_with_the_first_operation():
    assert transfers.timeline([(0, 0, "kernel", 16, 20)]) == [Operation(0, 0, "kernel", 0, 0, 4)]


def overlap(*timelines: dict[str, Any]) -> dict[str, Any]:
    part = {"median": 10.0, "quartiles": [9.0, 11.0], "least": 9.0, "samples": 10}
    runs = [
        {"memory": "page-locked", "streams": n, "time": part | {"median": 30.0 / n, "quartiles": [29.0 / n, 31.0 / n]}}
        for n in (1, 2)
    ]
    return {
        "header": HEADER,
        "name": "stream_overlap",
        "bytes": 1 << 26,
        "chunks": 2,
        "rounds": 3,
        "parts": dict.fromkeys(transfers.KINDS, part),
        "runs": runs,
        "timelines": list(timelines),
    }


TWO = {
    "memory": "page-locked",
    "streams": 2,
    "operations": [
        [0, 0, "copy in", 0, 0, 10], [0, 0, "kernel", 10, 10, 30], [0, 0, "copy out", 30, 30, 40],
        [1, 1, "copy in", 0, 10, 20], [1, 1, "kernel", 20, 30, 50], [1, 1, "copy out", 50, 50, 60],
    ],
}  # fmt: skip


def test_a_timeline_as_letters():
    rows, end = report.bars(TWO, 12)  # five microseconds a letter
    assert rows == ["IIKKKKOO    ", "..II..KKKKOO"]
    assert end == 60


def test_a_short_operation_is_still_seen():
    short = {
        "memory": "pageable",
        "streams": 1,
        "operations": [[0, 0, "copy in", 0, 0, 1], [0, 0, "kernel", 50, 50, 99]],
    }
    assert report.bars(short, 10)[0] == ["I    KKKKK"]


def test_what_is_shown(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(transfers, "recorded", lambda device, name: overlap(TWO))
    assert run_transfers(["stream_overlap"], recorded="h200") == 0
    out = capsys.readouterr().out
    flat = " ".join(out.split())
    assert "measured: made up, driver 1, 2026-01-01" in flat
    assert "page-locked 2 15 us 14 to 16 2.00 x" in flat
    assert "the parts' sum is 30 us, the longest of them 10 us" in flat
    assert "stream 1 .........." in flat and "I copy in K kernel O copy out . waits" in flat
    assert kernels.find("stream_overlap").lesson[:60] in flat


def test_a_drawing_is_svg_with_a_bar_for_every_operation(tmp_path, monkeypatch):
    monkeypatch.setattr(transfers, "recorded", lambda device, name: overlap(TWO, TWO | {"streams": 2}))
    path = tmp_path / "overlap.svg"
    run_transfers(["stream_overlap"], recorded="h200", svg=path, as_json=True)
    root = ElementTree.parse(path).getroot()
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 12
    assert "copy in of piece 1: 10.0 to 20.0 us, ready at 0.0 us" in titles
    assert [file.name for file in tmp_path.iterdir()] == ["overlap.svg"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"names": ["transfer_pinned"], "recorded": "a100"},
            "no recorded transfers of 'a100': there are those of h200",
        ),
        ({"names": ["scale"], "recorded": "h200"}, "scale is not one of the"),
        ({"names": ["scale"]}, "scale is not one of the transfers"),
        ({"names": ["transfer_pinned"], "recorded": "h200", "size": 5}, "leave --size out"),
        ({"names": ["transfer_pinned"], "svg": "x.svg"}, "--svg draws the streams of stream_overlap"),
    ],
)
def test_wrong_use(more, says):
    with pytest.raises(UsageError, match=says):
        run_transfers(**more)


def test_without_cupy_or_a_gpu_measuring_is_refused():
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount():
            pytest.skip("there is a GPU")
    except ImportError:
        pass
    with pytest.raises(NoGpuError):
        transfers.run("transfer_pinned", 1000)


# What is recorded


def test_the_recording_says_where_it_comes_from_and_holds_all():
    for name in transfers.NAMES:
        found = transfers.recorded("h200", name)
        header = found["header"]
        assert header["device"] == "NVIDIA H200" and header["date"] and header["command"] == transfers.COMMAND
        assert header["driver"][0].isdigit() and header["nvrtc"]
        assert found["name"] == name
    case = kernels.find("transfer_pinned")
    for name in transfers.NAMES[:2]:
        rows = transfers.recorded("h200", name)["copies"]
        assert [row["bytes"] for row in rows] == [4 * n for n in sorted(case.sizes)]
        for row in rows:
            for way in ("to_device", "to_host"):
                low, high = row[way]["quartiles"]
                assert row[way]["least"] <= low <= row[way]["median"] <= high and row[way]["samples"] >= 10
                assert row[way]["gb_per_s"] == pytest.approx(row["bytes"] / row[way]["median"] / 1e3, abs=2e-3)


def test_the_recording_can_be_shown_and_drawn(capsys, tmp_path):
    assert run_transfers(["transfers"], recorded="h200", svg=tmp_path / "overlap.svg") == 0
    out = capsys.readouterr().out
    assert all(f"\n{name}  (measured: NVIDIA H200, driver" in out for name in transfers.NAMES)
    assert max(map(len, out.splitlines())) <= 100
    ElementTree.parse(tmp_path / "overlap.svg")
    run_transfers(["transfer_pinned"], recorded="h200", as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "transfers" and document["results"][0]["copies"]


def test_the_recording_shows_what_the_lessons_say():
    pageable, pinned = (transfers.recorded("h200", name)["copies"] for name in transfers.NAMES[:2])
    for way in ("to_device", "to_host"):
        large = [row[way]["gb_per_s"] for row in pinned if row["bytes"] >= 1 << 24]
        assert max(large) < 1.1 * min(large)  # the speed of the bus
        assert pinned[0][way]["gb_per_s"] < 0.1 * max(large)
        assert all(a[way]["gb_per_s"] < b[way]["gb_per_s"] for a, b in zip(pageable[3:], pinned[3:], strict=True))
    found = transfers.recorded("h200", "stream_overlap")
    time = {(run["memory"], run["streams"]): run["time"]["median"] for run in found["runs"]}
    alone = [part["median"] for part in found["parts"].values()]
    assert time["page-locked", 1] == pytest.approx(sum(alone), rel=0.1)
    assert time["page-locked", 4] < 0.6 * time["page-locked", 1]
    assert time["page-locked", 4] > 0.95 * max(alone)
    (copies,) = (row for row in pageable if row["bytes"] == found["bytes"])
    in_turn = copies["to_device"]["median"] + copies["to_host"]["median"]
    assert time["pageable", 4] > 0.8 * in_turn  # nothing overlaps with a copy that the host has to make


def test_the_recorded_timelines_do_not_overlap_within_a_stream_or_an_engine():
    found = transfers.recorded("h200", "stream_overlap")
    for each in found["timelines"]:
        operations = [Operation(*values) for values in each["operations"]]
        assert len(operations) == 3 * found["chunks"]
        for key in (lambda o: o.stream, lambda o: o.kind):
            for value in {key(o) for o in operations}:
                same = sorted((o for o in operations if key(o) == value), key=lambda o: o.end)
                assert all(a.end <= b.start + 0.11 for a, b in pairwise(same))  # rounded to 0.1
    rows, _ = report.bars(found["timelines"][2], 80)
    assert any(len({row[k] for row in rows} & set("IKO")) == 3 for k in range(80))  # all three at the same time


@pytest.mark.gpu
@pytest.mark.parametrize("name", transfers.NAMES)
def test_measuring_on_a_gpu(name):
    pytest.importorskip("cupy", reason="measuring needs CuPy and a GPU")
    found = transfers.run(name, 1 << 18)
    assert found["header"]["device"]
    json.dumps(found)
    if name == "stream_overlap":
        assert [run["streams"] for run in found["runs"]] == [1, 2, 4, 1, 4]
    else:
        (row,) = found["copies"]
        assert row["bytes"] == 1 << 20 and 0 < row["to_device"]["gb_per_s"] < 1000


def test_the_rates_are_plain_numbers():
    assert isinstance(transfers.summary(np.array([1e-6, 2e-6]), 10)["median"], float)
