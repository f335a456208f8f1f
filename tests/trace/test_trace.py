"""Traces: recounting gives what executing gave, and a file that is no trace is refused in one sentence."""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import gpusim
from gpusim import kernels
from gpusim.counters.collect import Collector
from gpusim.errors import ExecutionError, InputError
from gpusim.trace import TraceRecorder, load_trace
from gpusim.trace.format import Pool, StoredPool

MIXED = """\
#include <cuda_pipeline.h>
__device__ __noinline__ float through(float *p, int i) { return p[i]; }
__device__ int counter;
extern "C" __global__ void mixed(float *out, const float *in, int *bins, int n)
{
    __shared__ float tile[256];
    __shared__ int local_bins[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    if (t < 32) local_bins[t] = 0;
    __pipeline_memcpy_async(&tile[t], &in[i], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    float indexed[8];
    for (int k = 0; k < 8; k++) indexed[k] = tile[(t * (k + 1)) & 255];
    float v = indexed[bins[i & 31] & 7];
    float *generic = t & 1 ? tile : (float *)in;
    v += through(generic, t);
    if (in[i] > 0.0f) { for (int k = 0; k < (t & 3); k++) v += in[(i * 7 + k) & 255]; }
    else v -= in[i & 15];
    atomicAdd(&local_bins[t & 7], 1);
    atomicAdd(&bins[32 + (i & 3)], 1);
    if (i < n) out[i] = v;
    __syncthreads();
    if (t < 32) atomicAdd(&bins[t], local_bins[t]);
    if (t == 0) counter++;
}
"""


def mixed_launch(*listeners: Any) -> gpusim.Result:
    rng = np.random.default_rng(5)
    args = [
        np.zeros(500, np.float32),
        rng.standard_normal(512).astype(np.float32),
        np.zeros(64, np.int32),
        np.int32(500),
    ]
    return gpusim.compile(MIXED, filename="mixed.cu")["mixed"].launch(2, 256, args, listeners=listeners)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, gpusim.Result]:
    path = tmp_path_factory.mktemp("trace") / "mixed.gpusim-trace"
    with TraceRecorder(path) as recorder:
        result = mixed_launch(recorder)
    return path, result


def test_recording_changes_nothing(recorded):
    assert mixed_launch() == recorded[1]


def test_recount_is_equal(recorded):
    path, result = recorded
    trace = load_trace(path)
    assert trace.made_by == gpusim.__version__
    (again,) = trace.count()
    assert again == result  # metrics, instructions, occupancy, patterns, facts
    assert {Path(file).name for file in again.source} == {"mixed.cu"}  # CUDA's own headers stay out
    assert again.to_json() == result.to_json()
    spaces = {counts.space for counts in again.instructions if counts.requests}
    assert {"global", "shared", "local"} <= spaces
    assert sum(counts.divergent for counts in again.instructions) > 0


@pytest.mark.parametrize(
    "name", ["transpose_pad", "transpose_vec2", "reduce_interleaved", "reduce_vec4", "reduce_global"]
)
def test_catalogue_kernels(name, tmp_path):
    case = kernels.find(name)
    problem = case.build(1000 if case.family == "reduce" else 97)
    module = gpusim.compile(case.source, names=case.names, options=case.options)
    path = tmp_path / "case.gpusim-trace"
    results = []
    with TraceRecorder(path) as recorder:
        for launch in problem.launches:
            args = [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args]
            kernel = module[launch.kernel]
            results.append(kernel.launch(launch.grid, launch.block, args, launch.shared_bytes, listeners=(recorder,)))
    assert load_trace(path).count() == results
    assert problem.differences() == []


def test_events_are_those_of_the_launch(recorded):
    """Another listener sees the same from a trace as from a launch."""

    class Tape:
        def __init__(self) -> None:
            self.events: list[Any] = []

        def access(self, event: Any) -> None:
            rows, mask, repeat = event.rows()
            active = None if event.active is None else event.active.tolist()
            self.events.append(
                (event.index, event.op, event.space, rows.tolist(), mask.tolist(), repeat, active, event.first_block)
            )

        def branch(self, event: Any) -> None:
            self.events.append(event)

    live, replayed = Tape(), Tape()
    mixed_launch(live)
    (launch,) = load_trace(recorded[0]).launches
    launch.replay(replayed)
    assert replayed.events == live.events


def test_counting_needs_no_disassembler(recorded, monkeypatch):
    def none(*_: object, **__: object) -> None:
        raise AssertionError("a tool was run")

    monkeypatch.setattr("gpusim.toolchain.tools.run_tool", none)
    monkeypatch.setattr("gpusim.api.disassemble", none)
    assert load_trace(recorded[0]).count()[0].metrics == recorded[1].metrics


def test_equal_launches_make_equal_files(recorded, tmp_path):
    path = tmp_path / "again.gpusim-trace"
    with TraceRecorder(path) as recorder:
        mixed_launch(recorder)
    assert path.read_bytes() == recorded[0].read_bytes()


def test_several_pieces(recorded, tmp_path, monkeypatch):
    monkeypatch.setattr("gpusim.trace.format.PIECE_EVENTS", 7)
    path = tmp_path / "pieces.gpusim-trace"
    with TraceRecorder(path) as recorder:
        mixed_launch(recorder)
    (launch,) = load_trace(path).launches
    assert launch.pieces > 5
    assert launch.count() == recorded[1]


def test_regular_traces_are_small(tmp_path):
    case = kernels.find("transpose_pad")
    problem = case.build(1024)
    (launch,) = problem.launches
    module = gpusim.compile(case.source, names=case.names)
    path = tmp_path / "big.gpusim-trace"
    args = [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args]
    with TraceRecorder(path) as recorder:
        module[launch.kernel].launch(launch.grid, launch.block, args, listeners=(recorder,))
    assert path.stat().st_size < 100_000  # of 4 million lane accesses


def test_a_failed_launch_is_left_out(recorded, tmp_path):
    path = tmp_path / "part.gpusim-trace"
    short = [np.zeros(8, np.float32), np.zeros(512, np.float32), np.zeros(64, np.int32), np.int32(500)]
    with TraceRecorder(path) as recorder:
        with pytest.raises(ExecutionError):
            gpusim.compile(MIXED, filename="mixed.cu")["mixed"].launch(2, 256, short, listeners=(recorder,))
        mixed_launch(recorder)
    assert load_trace(path).count() == [recorded[1]]


def test_an_exception_leaves_no_file(tmp_path):
    with pytest.raises(KeyError), TraceRecorder(tmp_path / "none.gpusim-trace"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_no_launch(tmp_path):
    path = tmp_path / "empty.gpusim-trace"
    with TraceRecorder(path):
        pass
    with pytest.raises(InputError, match="holds no launch"):
        load_trace(path)


def test_an_existing_file_stays_until_the_new_one_is_complete(recorded, tmp_path):
    path = tmp_path / "x.gpusim-trace"
    path.write_text("old")
    with TraceRecorder(path) as recorder:
        mixed_launch(recorder)
        assert path.read_text() == "old"
    assert load_trace(path).count() == [recorded[1]]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.gpusim-trace"]


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="it is a directory"):
        TraceRecorder(tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        TraceRecorder(tmp_path / "none" / "x")


# ---- files that are no traces ---------------------------------------------------------------------------------------


def refused(path: Path) -> str:
    """The sentence with which reading and counting a file is refused."""
    with pytest.raises(InputError) as raised:
        load_trace(path).count()
    message = str(raised.value)
    assert "\n" not in message and str(path) in message
    return message


def rewritten(recorded: Path, path: Path, **changed: bytes | None) -> Path:
    """A copy with members replaced, or left out where None; underscores stand for what comes before the name."""
    with zipfile.ZipFile(recorded) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            short = name.split("/")[-1].split(".")[0].replace("-", "_")
            data = changed.get(short, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return path


def test_not_a_trace(tmp_path):
    path = tmp_path / "x.gpusim-trace"
    path.write_text("something else")
    assert "is not a gpusim trace, or is cut off" in refused(path)
    np.savez(tmp_path / "arrays.npz", np.zeros(3))
    assert "is a zip file, but not a gpusim trace" in refused(tmp_path / "arrays.npz")
    assert "cannot be read: No such file" in refused(tmp_path / "missing")


def test_newer_version(recorded, tmp_path):
    header = {"format": "gpusim-trace", "version": 2, "made_by": "9.0", "launches": ["launch-1"]}
    path = rewritten(recorded[0], tmp_path / "new", header=json.dumps(header).encode())
    assert "was made by a newer gpusim (9.0, trace format 2; this one reads 1): update gpusim" in refused(path)


def test_truncated(recorded, tmp_path):
    data = recorded[0].read_bytes()
    path = tmp_path / "cut"
    for length in [0, 1, 4, 30, len(data) // 2, len(data) - 30, len(data) - 1]:
        path.write_bytes(data[:length])
        refused(path)


def array(values: Any, dtype: Any = np.int64) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(values, dtype))
    return buffer.getvalue()


ACCESS_ROW = [0, 0, 0, 0, 2, 256, 0, -1, -1, -1, -1]


@pytest.mark.parametrize(
    "changed",
    [
        {"launch": None},
        {"tally": None},
        {"events_0": None},
        {"launch": b"{}"},
        {"launch": b"[]"},
        {"launch": b"\xff"},
        {"header": b"{}"},
        {"header": b'{"format": "gpusim-trace", "version": "x", "launches": []}'},
        {"tally": array(np.zeros((3, 2)))},
        {"tally": array(np.zeros((3, 2)), np.float32)},
        {"tally": b"\x93NUMPY"},
        {"events_0": array(np.zeros((4, 3)))},
        {"events_0": array([[9] * 11])},
        {"events_0": array([[0, 10**6, *ACCESS_ROW[2:]]])},
        {"events_0": array([[1, 0, 0, 1, 1, 0, 0, 2, 0, 0, 0]])},
        {"arrays_0": array([[0, 7, 7, 0, -1]])},
        {"arrays_0": array([[17, 1, 1, 0, -1]])},
        {"arrays_0": array(np.zeros((0, 5)))},
        {"vectors_0": array(np.zeros((0, 2)))},
        {"vectors_0": array([[10**12, 1]] * 2000)},
        {"words_0": array([])},
        {"bits_0": array([], np.uint8)},
        {"bits_0": array([1.5], np.float64)},
    ],
    ids=lambda changed: "-".join(changed),
)
def test_parts_that_do_not_fit(recorded, tmp_path, changed):
    sentence = refused(rewritten(recorded[0], tmp_path / "damaged", **changed))
    assert "damaged trace: record it anew" in sentence or "not a gpusim trace" in sentence


def test_flipped_bits_are_noticed_or_harmless(recorded, tmp_path):
    original, result = recorded
    data = original.read_bytes()
    rng = random.Random(3)
    path = tmp_path / "flipped"
    for _ in range(150):
        damaged = bytearray(data)
        place = rng.randrange(len(data))
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            (again,) = load_trace(path).count()
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert again == result, place


# ---- the tables -----------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_arrays_come_back_as_they_were(data):
    blocks, threads = data.draw(st.integers(1, 5)), data.draw(st.sampled_from([32, 64]))
    pool = Pool()
    kept = []
    for _ in range(data.draw(st.integers(1, 6))):
        shape = (data.draw(st.sampled_from([1, blocks])), data.draw(st.sampled_from([1, threads])))
        if data.draw(st.booleans()):
            array = data.draw(arrays.arrays(np.bool_, shape))
        else:
            array = data.draw(arrays.arrays(np.int64, shape, elements=st.integers(-(2**63), 2**63 - 1)))
            if data.draw(st.booleans()):  # one row, shifted from block to block
                array = array[:1] + np.arange(shape[0], dtype=np.int64)[:, None] * 4096
        kept.append((pool.add(array), array))
    assert pool.add(None) == -1
    members = pool.members()
    stored = StoredPool(members["arrays"], members["vectors"], members["words"], members["bits"])
    for number, array in kept:
        again = stored.get(number, "b" if array.dtype == np.bool_ else "i", blocks, threads)
        assert again is not None and again.dtype == array.dtype and np.array_equal(again, array)
    assert stored.get(-1, "i", blocks, threads) is None


def test_equal_arrays_are_stored_once():
    pool = Pool()
    row = np.arange(32, dtype=np.int64)[None] * 4
    assert pool.add(row) == pool.add(row.copy())
    first, second = (row + np.array([[base], [base + 512]]) for base in (0, 8192))
    pool.add(first)
    words = pool.word_count
    pool.add(second)
    assert pool.word_count == words + 2  # two block bases; the row is there already


def test_the_collector_is_the_one_that_counts_launches(recorded, monkeypatch):
    seen = []
    plain = Collector.access

    def watched(self: Collector, event: Any) -> None:
        seen.append(event.index)
        plain(self, event)

    monkeypatch.setattr(Collector, "access", watched)
    load_trace(recorded[0]).count()
    assert len(seen) > 20
