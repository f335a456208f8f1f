"""Nsight Compute as a child process: found, refused, understood; with small programs in its place."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import numpy as np
import pytest

from gpusim.errors import NoGpuError, UsageError
from gpusim.runner import ncu
from gpusim.runner.replay import make_buffer

VERSION = "Version 2025.3.1.0 (build 36398880) (public-release)"
PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)


def program(path: Path, text: str) -> Path:
    """A shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def saying(version: str) -> str:
    return f'echo "NVIDIA (R) Nsight Compute Command Line Profiler"; echo "{version}"\n'


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No ncu on the PATH or in the usual places."""
    monkeypatch.setenv("PATH", f"{tmp_path}/empty:/usr/bin:/bin")
    monkeypatch.setattr(ncu, "FOLDERS", (f"{tmp_path}/opt/nsight-compute/*",))
    return tmp_path


# Finding it


def test_without_ncu_the_sentence_says_what_to_do(nowhere):
    with pytest.raises(NoGpuError, match=r"no ncu on the PATH .* --ncu"):
        ncu.find()


def test_ncu_on_the_path_and_ncu_that_is_given(nowhere, monkeypatch):
    on_path = program(nowhere / "bin" / "ncu", saying(VERSION))
    given = program(nowhere / "other" / "my-ncu", saying("Version 2024.1.0.0 (build 1) (public-release)"))
    monkeypatch.setenv("PATH", f"{nowhere}/bin:{os.environ['PATH']}")
    assert ncu.find() == ncu.Tool(str(on_path), "2025.3.1.0")
    assert ncu.find(str(given)) == ncu.Tool(str(given), "2024.1.0.0")


def test_the_newest_of_the_usual_places_is_taken(nowhere):
    for version in ("2024.10.0", "2025.3.1", "2023.3.0"):
        program(nowhere / "opt" / "nsight-compute" / version / "ncu", saying(f"Version {version}.0 (build 1)"))
    assert ncu.find().version == "2025.3.1.0"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (saying("Version 2022.2.1.0 (build 3)"), r"2022\.2, which is too old: install 2022\.3"),
        (saying("Version 2019.5.0 (build 3)"), "too old"),
        ("exit 0\n", "does not say which version"),
        ("exit 1\n", "does not say which version"),
    ],
)
def test_a_program_that_is_too_old_or_something_else(tmp_path, text, says):
    with pytest.raises(NoGpuError, match=says):
        ncu.find(str(program(tmp_path / "ncu", text)))


def test_a_path_that_is_no_program(tmp_path):
    plain = tmp_path / "ncu"
    plain.write_text("no program")
    for path in (plain, tmp_path, tmp_path / "absent"):
        with pytest.raises(NoGpuError, match="not a program that can be run"):
            ncu.find(str(path))


# What it says when it cannot count


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (PERMISSION, "NVreg_RestrictProfilingToAdminUsers=0.*administrator.*SYS_ADMIN"),
        ("ModuleNotFoundError: No module named 'cupy'", r"CuPy is needed .*pip install 'gpusim\[gpu\]'"),
        ("CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device is detected", "CUDA finds no GPU"),
        ("CUDARuntimeError: cudaErrorInvalidDevice: invalid device ordinal", "CUDA finds no GPU"),
        ("CUDARuntimeError: cudaErrorInsufficientDriver: CUDA driver version is insufficient", "driver"),
        ("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1 bytes", "too little free memory"),
        (
            "CUDADriverError: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
            "the launch failed on the GPU: CUDA_ERROR_ILLEGAL_ADDRESS",
        ),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "cannot start the profiler"),
        ("==WARNING== No kernels were profiled.", "saw no kernel"),
        (
            'Traceback (most recent call last):\n  File "f"\nTypeError: no such type\n',
            "could not be made: no such type",
        ),
    ],
)
def test_known_messages_are_explained(text, says):
    error = ncu.explain(f"==PROF== Connected to process 7\n{text}\n")
    assert isinstance(error, NoGpuError) and error.exit_code == 3
    assert re.search(says, str(error))
    assert "\n" not in str(error)


def test_code_for_another_gpu_is_wrong_use():
    error = ncu.explain("CUDADriverError: CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available for execution")
    assert isinstance(error, UsageError) and "--arch" in str(error)


def test_ordinary_output_is_no_error():
    assert ncu.explain('==PROF== Connected to process 7\n==PROF== Profiling "k": 0%....100% - 9 passes') is None


def test_a_failure_that_is_not_known_is_told_in_its_own_words(tmp_path):
    tool = ncu.Tool(str(program(tmp_path / "ncu", 'echo "==ERROR== The moon is full."; exit 9\n')), "2025.1")
    with pytest.raises(NoGpuError, match="exit code 9: The moon is full"):
        ncu.count(tool, b"", [], ["a.sum"])


# Running it: the program in its place notes its arguments and prints pages from beside it

PAGES = """\
here=$(dirname "$0")
echo "$@" >>"$here/calls"
case "$*" in
*"--import"*"--page raw"*) cat "$here/raw.csv" ;;
*"--import"*) cat "$here/source.csv" ;;
*no_such.sum*) echo "==ERROR== Failed to find metric no_such.sum"; exit 1 ;;
*) echo "==PROF== Disconnected" ;;
esac
"""
RAW = """\
==PROF== a message
"ID","Kernel Name","a.sum","b.sum","c.sum","launch__grid_size"
"","","inst","sector","",""
"0","k","1,234","n/a","","4"
"1","k","7","0","3","4"
"""


@pytest.fixture
def tool(tmp_path):
    path = program(tmp_path / "tool" / "ncu", PAGES)
    (path.parent / "raw.csv").write_text(RAW)
    return ncu.Tool(str(path), "2025.3")


LAUNCH = ncu.Planned("k", (4, 1, 1), (32, 1, 1), 0, ())


def test_what_is_not_served_is_left_out_and_zero_is_kept(tool):
    session = ncu.count(tool, b"", [LAUNCH, LAUNCH], ["a.sum", "b.sum", "c.sum", "launch__grid_size"])
    assert [each.metrics for each in session.launches] == [
        {"a.sum": 1234, "launch__grid_size": 4},
        {"a.sum": 7, "b.sum": 0, "c.sum": 3, "launch__grid_size": 4},
    ]
    assert session.left_out == ()
    assert "--metrics a.sum,b.sum,c.sum -f" in (Path(tool.path).parent / "calls").read_text()


def test_a_metric_that_ncu_does_not_know_is_left_out_and_the_rest_is_counted(tool):
    session = ncu.count(tool, b"", [LAUNCH, LAUNCH], ["no_such.sum", "a.sum"])
    assert session.left_out == ("no_such.sum",)
    assert session.launches[0].metrics == {"a.sum": 1234}


def test_a_launch_that_is_missing_is_an_error(tool):
    with pytest.raises(NoGpuError, match="counted 2 launches of 1"):
        ncu.count(tool, b"", [LAUNCH], ["a.sum"])


def test_a_source_page_without_the_table_is_an_error(tool):
    (Path(tool.path).parent / "source.csv").write_text('"Kernel Name","k",\n"Address","Source"\n"0x0","NOP"\n')
    with pytest.raises(NoGpuError, match="leave out --source"):
        ncu.count(tool, b"", [LAUNCH, LAUNCH], ["a.sum"], source=True)


def test_the_device_is_the_one_of_those_that_are_visible(tool, monkeypatch):
    script = Path(tool.path)
    script.write_text(script.read_text().replace('echo "$@"', 'echo "$CUDA_VISIBLE_DEVICES"'))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    ncu.count(tool, b"", [LAUNCH, LAUNCH], ["a.sum"], device=1)
    assert (script.parent / "calls").read_text().split()[0] == "5"
    with pytest.raises(NoGpuError, match="no GPU 2: CUDA_VISIBLE_DEVICES shows 2"):
        ncu.count(tool, b"", [LAUNCH, LAUNCH], ["a.sum"], device=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoGpuError, match="shows none"):
        ncu.count(tool, b"", [LAUNCH, LAUNCH], ["a.sum"])


# The plan


def test_a_plan_holds_the_arguments_as_they_are(tmp_path):
    matrix = np.arange(6, dtype=np.float16).reshape(2, 3)
    args = (matrix, np.int32(-5), np.float32(0.1), np.float16(1.5), np.bool_(True), np.void(b"\1\2\3"), None, matrix)
    path = ncu.write_plan(tmp_path, b"cubin", [ncu.Planned("k", (1, 2, 3), (32, 1, 1), 100, args)])
    plan = json.loads(path.read_text())
    (launch,) = plan["launches"]
    assert (launch["kernel"], launch["grid"], launch["block"], launch["shared"]) == ("k", [1, 2, 3], [32, 1, 1], 100)
    assert (tmp_path / plan["cubins"]["kernel"]).read_bytes() == b"cubin"
    buffer, integer, single, half, flag, structure, null, again = launch["args"]
    assert np.array_equal(make_buffer(buffer, tmp_path), matrix) and make_buffer(buffer, tmp_path).dtype == np.float16
    assert buffer == again
    assert integer == {"scalar": "int32", "value": -5}
    assert np.float32(single["value"]) == np.float32(0.1)
    assert half == {"bytes": np.float16(1.5).tobytes().hex()}
    assert flag == {"bytes": "01"}
    assert structure == {"bytes": "010203"}
    assert null == {"scalar": "uint64", "value": 0}
