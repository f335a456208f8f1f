"""Predicted times beside recorded ones: loose limits here, the figures in docs/prediction.md."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim import kernels
from gpusim.errors import UsageError
from gpusim.runner import times
from gpusim.runner.replay import make_buffer
from gpusim.timing.model import fitted, model_of
from gpusim.timing.predict import problem_milliseconds

pytest.importorskip("numba")
DATA = Path(__file__).parents[1] / "data"
SMALL = {"transpose": 1024, "reduce": 1 << 20, "softmax": 4096, "matmul": 256, "basic": 1 << 20, "tiles": 1 << 20}
LONG = {"reduce", "softmax", "matmul"}


def marked(*families: str) -> list[Any]:
    return [pytest.param(f, marks=[pytest.mark.exhaustive] if f in LONG else []) for f in families]


@cache
def predicted(family: str, size: int) -> dict[str, dict[str, float]]:
    """Microseconds of every case of a family, cold and hot."""
    cases = [c for c in kernels.families()[family] if not c.hangs]
    names = {c.source: [n for d in cases if d.source == c.source for n in d.names] for c in cases}
    model = model_of("h200")
    found = {}
    for case in cases:
        module = gpusim.compile(str(case.source), arch="sm_90", names=names[case.source])
        problem = case.build(size)
        launches = []
        for launch in problem.launches:
            args = [problem.buffers[a] if isinstance(a, str) else a for a in launch.args]
            one = [
                module[launch.kernel].predict(launch.grid, launch.block, args, launch.shared_bytes, cache=c)
                for c in ("cold", "hot")
            ]
            launches.append({"cold": one[0].milliseconds, "hot": one[1].milliseconds})
        found[case.name] = {c: 1e3 * problem_milliseconds(launches, c, model) for c in ("cold", "hot")}
    return found


@pytest.mark.parametrize("how", ["cold", "hot"])
@pytest.mark.parametrize("family", marked(*SMALL))
def test_small_launches(family: str, how: str) -> None:
    recording = times.recorded("h200")
    measured = {name: recording.of(name, SMALL[family], how) for name in predicted(family, SMALL[family])}
    errors = {
        name: predicted(family, SMALL[family])[name][how] / time.median - 1
        for name, time in measured.items()
        if time is not None
    }
    assert len(errors) > 1
    assert np.mean([abs(e) for e in errors.values()]) < 0.15, errors
    assert max(abs(e) for e in errors.values()) < 0.45, errors


@pytest.mark.parametrize("how", ["cold", "hot"])
@pytest.mark.parametrize("family", marked("transpose", "matmul", "reduce"))
def test_the_order_of_variants(family: str, how: str) -> None:
    """At least 95 % of the pairs that differ by more than 5 % are in the recorded order."""
    recording, found = times.recorded("h200"), predicted(family, SMALL[family])
    wrong, decided = [], 0
    for a, b in combinations(found, 2):
        x, y = recording.of(a, SMALL[family], how), recording.of(b, SMALL[family], how)
        if x is None or y is None or abs(x.median - y.median) <= 0.05 * min(x.median, y.median):
            continue
        decided += 1
        if (found[a][how] < found[b][how]) != (x.median < y.median):
            wrong.append((a, b))
    assert decided > 20 and len(wrong) <= 0.05 * decided, wrong


def others(
    name: str, wanted: Callable[[dict[str, Any]], bool]
) -> Iterator[tuple[dict[str, Any], gpusim.Kernel, list[Any], dict[str, Any]]]:
    """(launch, kernel, arguments, times) of those recorded launches outside the catalogue that are wanted."""
    with gzip.open(DATA / f"h200_{name}.json.gz", "rt") as stream:
        content = json.load(stream)
    measured = {entry["id"]: entry for entry in content["times"]}
    module = gpusim.compile(str(DATA / f"{name}.cu"), arch="sm_90")
    for launch in filter(wanted, content["plan"]["launches"]):
        args = [np.dtype(a["scalar"]).type(a["value"]) if "scalar" in a else make_buffer(a) for a in launch["args"]]
        yield launch, module[launch["kernel"]], args, measured[launch["id"]]


def small(launch: dict[str, Any]) -> bool:
    return launch["size"] <= 1 << 20 and launch["kernel"] != "nbody"  # which takes long


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("timed_kernels", marks=pytest.mark.exhaustive),
        pytest.param("timed_kernels_more", marks=pytest.mark.exhaustive),
        pytest.param("timed_kernels_third", marks=pytest.mark.exhaustive),
        "timed_kernels_fourth",
    ],
)
def test_kernels_that_nothing_was_fitted_on(name: str) -> None:
    errors = {}
    for launch, kernel, args, measured in others(name, small):
        one = kernel.predict(tuple(launch["grid"]), tuple(launch["block"]), args, launch["shared"])
        errors[launch["id"]] = one.milliseconds * 1e3 / measured["cold"]["median"] - 1
    assert len(errors) >= 16
    assert np.mean([abs(e) for e in errors.values()]) < 0.1, errors
    assert max(abs(e) for e in errors.values()) < 0.35, errors


@pytest.mark.parametrize(
    "name,which,within",
    [
        ("timed_kernels_more", "vote_count/33554432/0", 0.1),  # warps of a block go on together or one after the other
        ("timed_kernels_more", "layernorm/65536/0", 0.1),
        ("timed_kernels_more", "gather_random/33554432/0", 0.1),  # L2 keeps 64 bytes for each word
        ("timed_kernels_third", "jump/4194304/0", 0.1),  # single sectors of L2
        ("timed_kernels_third", "bins_by_warp/4194304/0", 0.15),  # atomics at the end of a long kernel
        ("timed_kernels", "mandel/512/0", 0.15),  # blocks differ, all of them resident
    ],
)
def test_what_single_kernels_show(name: str, which: str, within: float) -> None:
    for launch, kernel, args, measured in others(name, lambda launch: launch["id"] == which):
        for how in ("cold", "hot"):
            one = kernel.predict(tuple(launch["grid"]), tuple(launch["block"]), args, launch["shared"], cache=how)
            assert one.milliseconds * 1e3 == pytest.approx(measured[how]["median"], rel=within), how


@pytest.mark.parametrize("every", [2, 3, 5])
def test_a_launch_takes_as_long_as_the_sm_with_most_to_do(every: int) -> None:
    module = gpusim.compile(
        'extern "C" __global__ void k(float* x, int most, int least, int every) { float s = threadIdx.x;'
        " int n = blockIdx.x % 132 % every == 0 ? most : least; for (int i = 0; i < n; i++) s = s * 1.5f + 1.0f;"
        " x[blockIdx.x * blockDim.x + threadIdx.x] = s; }"
    )
    x = np.zeros(264 * 256, np.float32)

    def cycles(most: int, least: int) -> float:
        return module["k"].predict(264, 256, [x, np.int32(most), np.int32(least), np.int32(every)]).cycles

    assert cycles(4000, 500) == pytest.approx(cycles(4000, 4000), rel=0.05)
    assert cycles(500, 500) < 0.5 * cycles(4000, 4000)


def scale() -> Any:
    module = gpusim.compile(
        'extern "C" __global__ void k(float* x, float a, int n) { int i = blockIdx.x * 256 + threadIdx.x;'
        " if (i < n) x[i] *= a; }"
    )
    return module["k"]


def test_a_prediction_says_what_it_is() -> None:
    n = 1 << 22
    x = np.zeros(n, np.float32)
    args = [x, np.float32(2), np.int32(n)]
    cold = scale().predict(n // 256, 256, args)
    hot = scale().predict(n // 256, 256, args, cache="hot")
    assert hot.milliseconds < cold.milliseconds < 0.1
    assert cold.limiter in ("DRAM", "latency of L2 and DRAM")
    assert cold.dram_bytes_read == pytest.approx(x.nbytes, rel=0.05)
    assert hot.dram_bytes_read < 0.05 * x.nbytes  # 16 MB stay in L2
    assert sum(cold.stalls.values()) == pytest.approx(1)
    assert all(0 < value <= cold.milliseconds for value in cold.breakdown.values())
    assert 0.5 < cold.achieved_occupancy <= 1
    assert not x.any()
    text = json.dumps(cold.to_json())
    assert json.loads(text)["milliseconds"] == cold.milliseconds


def test_work_and_devices_matter() -> None:
    n = 1 << 22
    args = [np.zeros(n, np.float32), np.float32(2), np.int32(n)]
    half = [args[0][: n // 2].copy(), args[1], np.int32(n // 2)]
    whole = scale().predict(n // 256, 256, args)
    assert 1.5 < whole.milliseconds / scale().predict(n // 512, 256, half).milliseconds < 2.1
    small = scale().predict(n // 256, 256, args, device="t4")
    assert small.milliseconds > 5 * whole.milliseconds and small.confidence.startswith("low")


def test_wrong_use() -> None:
    args = [np.zeros(256, np.float32), np.float32(2), np.int32(256)]
    for words, text in (
        ({"device": "h300"}, "there is no device profile 'h300'"),
        ({"cache": "warm"}, "cache must be cold or hot"),
        ({"model": "magic"}, "model must be one of"),
    ):
        with pytest.raises(UsageError, match=text):
            scale().predict(1, 256, args, **words)


def test_every_number_of_the_model_has_a_source() -> None:
    content = json.loads((Path(gpusim.__file__).parent / "timing" / "fitted.json").read_text())
    assert set(fitted()) == set(content["constants"])
    for name, entry in content["constants"].items():
        assert entry["source"].split(":")[0].split()[0] in ("measured", "fitted", "assumed"), name
        assert entry["what"]


def test_a_long_kernel_is_followed_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusim.timing import pipeline

    module = gpusim.compile(
        'extern "C" __global__ void k(float* x, int n) { float v = x[threadIdx.x];\n'
        "#pragma unroll 1\n for (int i = 0; i < n; ++i) v = v * 1.5f + 1.0f; x[threadIdx.x] = v; }"
    )
    args = [np.zeros(256, np.float32), np.int32(4000)]
    whole = module["k"].predict(132, 256, args)
    monkeypatch.setattr(pipeline, "MOST_FOLLOWED", 50_000)
    part = module["k"].predict(132, 256, args)
    assert part.milliseconds == pytest.approx(whole.milliseconds, rel=0.1)
    assert whole.milliseconds > 0.02
