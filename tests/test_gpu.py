"""On a real GPU: results, times, what is left behind, and errors.  Run with ``pytest -m gpu``."""

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
from gpusim.cli.catalogue import compile_case
from gpusim.errors import GpuError, NoGpuError
from gpusim.kernels import Launch, Problem, Reference
from gpusim.runner import device as devices
from gpusim.runner import times
from gpusim.runner.cases import measure, measure_all, prepare
from gpusim.runner.sampling import Criterion

pytestmark = pytest.mark.gpu
FAR = """
extern "C" __global__ void far(float *a)
{
    extern __shared__ float tile[];
    tile[threadIdx.x + 16000] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = tile[16000 + (threadIdx.x ^ 1)];
}
"""
LOST = """
extern "C" __global__ void lost(int *a) { a[threadIdx.x + (1LL << 40)] = 1; }
"""
QUICK = Criterion(seconds=0.02, spread=0.05, most_seconds=1)


@pytest.fixture(scope="module")
def device():
    try:
        with devices.opened() as found:
            yield found
    except NoGpuError as error:
        pytest.skip(str(error))


def jobs(device, name, *sizes):
    case = kernels.find(name)
    module = compile_case(case, device.arch)
    return [(case, size, module) for size in sizes]


@pytest.mark.parametrize(
    "name",
    ["scale", "transpose_pad", "transpose_vec2", "reduce_shuffle", "reduce_vec4", "reduce_global", "hist_shared",
     "softmax_online", "matmul_smem", "async_copy", "layout_aos"],
)  # fmt: skip
def test_results_are_those_of_the_reference(device, name):
    for case, size, module in jobs(device, name, *kernels.find(name).small_sizes):
        ready = prepare(device, case, size, module)
        assert ready.check.equal, (size, ready.check)


def test_every_launch_and_all_together_are_timed(device):
    ((facts, entries),) = measure_all(device, jobs(device, "reduce_sequential", 2**20), QUICK)
    assert facts["check"]["equal"] and [e["id"].rsplit("/", 1)[1] for e in entries] == ["0", "1", "2", "whole"]
    *single, whole = entries
    for how in ("cold", "hot"):
        for entry in entries:
            assert 0 < entry[how]["least"] <= entry[how]["quartiles"][0] <= entry[how]["median"]
            assert entry[how]["samples"] >= QUICK.least
        # launches after one another need less than each alone with its own start and end, and more than the longest
        assert max(e[how]["median"] for e in single) < whole[how]["median"]
        assert whole[how]["median"] < 1.2 * sum(e[how]["median"] for e in single)
    assert whole["clock_mhz"] is None or whole["clock_mhz"][0] > 100


def test_the_cache_is_cold_when_it_should_be(device):
    ((_, (entry,)),) = measure_all(device, jobs(device, "transpose_tile4_pad", 1024), QUICK)
    assert entry["cold"]["median"] > 1.3 * entry["hot"]["median"]  # 8 MiB fit any L2 cache of a data center


def test_variants_take_turns(device):
    ready = [
        prepare(device, *job) for name in ("transpose_bank", "transpose_bank_pad") for job in jobs(device, name, 1024)
    ]
    slow, fast = measure(device, ready, QUICK)
    assert slow["cold"]["median"] > fast["cold"]["median"]


def test_a_wrong_result_is_not_timed(device):
    case = kernels.find("scale")
    wrong = dataclasses.replace(
        case,
        build=lambda n: dataclasses.replace(case.build(n), reference=lambda: Reference({"a": np.zeros(n, np.float32)})),
    )
    ((facts, entries),) = measure_all(device, [(wrong, 1000, compile_case(case, device.arch))], QUICK)
    assert not facts["check"]["equal"] and not entries and facts["check"]["differences"]


def test_what_is_wrong_on_purpose_is_timed_and_said(device):
    ((facts, entries),) = measure_all(device, jobs(device, "counter_race", 2**20), QUICK)
    assert not facts["check"]["equal"] and facts["check"]["expected_to_differ"] and entries


def test_large_dynamic_shared_memory(device):
    module = gpusim.compile(FAR, arch=device.arch)
    case = dataclasses.replace(
        kernels.find("scale"),
        build=lambda n: Problem(
            {"a": np.arange(32, dtype=np.float32)},
            [Launch("far", (1, 1, 1), (32, 1, 1), ("a",), 4 * 16032)],
            lambda: Reference({"a": (np.arange(32) ^ 1).astype(np.float32)}),
        ),
    )
    assert prepare(device, case, 32, module).check.equal


def test_code_for_another_architecture(device):
    other = "sm_80" if device.facts.arch // 10 != 8 else "sm_90"
    case = kernels.find("scale")
    with pytest.raises(GpuError, match=f"code for {other} does not run on the .*leave --arch out, or give --arch sm_"):
        prepare(device, case, 1000, compile_case(case, other))


def test_too_little_memory(device):
    huge = 2 * int((device.facts.memory_bytes / 8) ** 0.5)
    case, size, module = jobs(device, "transpose_copy", huge)[0]
    with pytest.raises(GpuError, match=r"transpose_copy at size .* needs .* GiB .* are free: choose a smaller --size"):
        prepare(device, case, size, module)
    with pytest.raises(GpuError, match=r"too little memory while trying .*smaller --size"), device.guarded("trying"):
        device.cupy.empty(1 << 45, np.uint8)
    assert prepare(device, *jobs(device, "scale", 1000)[0]).check.equal  # and it goes on


def test_nothing_is_changed_for_others():
    try:
        cupy = devices.import_cupy()
        devices.check_devices(cupy, 0)
    except NoGpuError as error:
        pytest.skip(str(error))
    before = cupy.arange(1000)
    stream, current = cupy.cuda.get_current_stream(), cupy.cuda.Device().id
    allocator = cupy.cuda.get_allocator()
    last = cupy.cuda.runtime.getDeviceCount() - 1
    with devices.opened(last) as device:
        assert prepare(device, *jobs(device, "scale", 100_000)[0]).check.equal
        used = cupy.cuda.runtime.memGetInfo()[0]
    assert cupy.cuda.Device().id == current and cupy.cuda.get_current_stream() == stream
    assert cupy.cuda.get_allocator() == allocator
    assert int(before.sum()) == 499_500
    with cupy.cuda.Device(last):
        assert cupy.cuda.runtime.memGetInfo()[0] >= used


LOSING = """
import sys
import gpusim, numpy as np
from gpusim.runner import device as devices
with devices.opened() as device:
    module = gpusim.compile(sys.argv[1], arch=device.arch)
    kernel = device.kernel(module.cubin, "lost", 0)
    with device.watch:
        a = device.upload(np.zeros(32, np.int32), "a")
        try:
            device.run([lambda: kernel((1,), (32,), (a,))], "running lost")
        except gpusim.GpuError as error:
            print(error.lost, error)
            raise SystemExit(error.exit_code)
"""


def test_a_lost_device_is_one_sentence(device):
    done = subprocess.run([sys.executable, "-c", LOSING, LOST], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("True the GPU stopped while running lost: it accessed an illegal address (CUDA error")
    assert "Traceback" not in done.stderr, done.stderr


def test_the_command(device, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "x.json"
    words = ["run", "transpose", "--size", "256", "--seconds", "0.02", "--out", str(out), "--json"]
    script = "import sys; from gpusim.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads(out.read_text())
    recording = times.recorded(str(out))
    for case in kernels.families()["transpose"]:
        assert recording.of(case.name, 256, "cold").median > 0
    assert all(p["check"]["equal"] for p in document["problems"])
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2 and "exists and is not overwritten" in again.stderr


def test_the_command_that_loses_the_device(device, tmp_path: Path):
    script = f"""
import dataclasses, sys
import numpy as np
import gpusim
from gpusim import kernels
from gpusim.cli import main, measuring
from gpusim.kernels import Launch, Problem, Reference
case = dataclasses.replace(kernels.find("scale"), build=lambda n: Problem(
    dict(a=np.ones(32, np.int32)), [Launch("lost", (1, 1, 1), (32, 1, 1), ("a",))], lambda: Reference(dict(a=None))))
measuring.compile_case = lambda case, arch: gpusim.compile({LOST!r}, arch=arch)
measuring.chosen_cases = lambda target: (case,)
main(["run", "scale", "--size", "32", "--seconds", "0.01"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("gpusim: the GPU stopped while running scale at size 32: it accessed an illegal")
    assert done.stderr.count("\n") == 1 and not done.stdout
