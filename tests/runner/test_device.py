"""What is said when there is no GPU, or it does not do what it should; the bytes and memory of a case."""

from __future__ import annotations

import builtins
import dataclasses
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gpusim import kernels
from gpusim.errors import GpuError, NoGpuError, UsageError
from gpusim.runner import cases, device
from gpusim.runner.device import check_arch, check_devices, guarded, own_arch, runs_on, translated


class CudaError(RuntimeError):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def fake_cupy(driver=13000, runtime=13020, count=1):
    def devices():
        if isinstance(count, Exception):
            raise count
        return count

    calls = SimpleNamespace(driverGetVersion=lambda: driver, runtimeGetVersion=lambda: runtime, getDeviceCount=devices)
    return SimpleNamespace(cuda=SimpleNamespace(runtime=calls))


def test_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(NoGpuError, match=r"needs CuPy, which is not installed: run pip install 'gpusim\[gpu\]'"):
        device.import_cupy()


def test_cupy_that_cannot_be_imported(monkeypatch):
    real = builtins.__import__

    def broken(name, *rest, **more):
        if name == "cupy":
            raise ImportError("\n======\nFailed to import CuPy.\nlibnvrtc.so.13 is missing\n")
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(NoGpuError, match="CuPy cannot be imported") as caught:
        device.import_cupy()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cupy", "number", "text"),
    [
        (fake_cupy(driver=0), 0, "there is no NVIDIA driver on this machine"),
        (
            fake_cupy(driver=12040, count=CudaError(35, "cudaErrorInsufficientDriver: ...")),
            0,
            "this CuPy is made for CUDA 13, and the driver knows CUDA 12.4: update the driver, or install "
            "cupy-cuda12x in place of it",
        ),
        (fake_cupy(count=CudaError(100, "cudaErrorNoDevice")), 0, "the driver shows no GPU: measuring needs one"),
        (fake_cupy(count=CudaError(802, "cudaErrorSystemNotReady: x")), 0, "CUDA cannot be started: cudaErrorSystem"),
        (fake_cupy(count=1), 1, "there is no device 1: there is only device 0"),
        (fake_cupy(count=4), 7, "there is no device 7: there are devices 0 to 3"),
        (fake_cupy(count=0), 0, "there is no GPU"),
    ],
)
def test_no_device(cupy, number, text):
    with pytest.raises(NoGpuError) as caught:
        check_devices(cupy, number)
    assert str(caught.value).startswith(text) and caught.value.exit_code == 3


def test_a_device_that_is_there():
    check_devices(fake_cupy(count=2), 1)


@pytest.mark.parametrize(
    ("error", "text", "lost"),
    [
        (MemoryError("Out of memory allocating 9 bytes"), "too little memory while trying (Out of memory", False),
        (CudaError(2, "cudaErrorMemoryAllocation: out of memory"), "too little memory while trying", False),
        (CudaError(700, "CUDA_ERROR_ILLEGAL_ADDRESS: ..."), "while trying: it accessed an illegal address", True),
        (CudaError(719, "cudaErrorLaunchFailure"), "it failed in an unspecified way (CUDA error 719)", True),
        (CudaError(209, "CUDA_ERROR_NO_BINARY_FOR_GPU: no"), "the driver does not take the code while trying", False),
        (CudaError(46, "cudaErrorDevicesUnavailable"), "in use by another process that has it for itself", False),
        (
            CudaError(1, "cudaErrorInvalidValue: x\ny"),
            "the GPU refused while trying: cudaErrorInvalidValue: x y",
            False,
        ),
        (RuntimeError("CuPy failed to load libcuda.so.1: no"), "CuPy cannot load a part of CUDA", False),
    ],
)
def test_errors_of_cuda_are_one_sentence(error, text, lost, monkeypatch):
    kept = []
    monkeypatch.setattr(device, "_keep", kept.append)
    with pytest.raises(GpuError) as caught, guarded("trying"):
        raise error
    assert text in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.exit_code == 3 and caught.value.lost == lost and kept == [caught.value] * lost


def test_other_errors_are_left_alone():
    assert translated(RuntimeError("a bug"), "trying") is None
    with pytest.raises(RuntimeError, match="a bug"), guarded("trying"):
        raise RuntimeError("a bug")
    with pytest.raises(ZeroDivisionError), guarded("trying"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("code", "gpu", "runs"),
    [(90, 90, True), (80, 86, True), (86, 80, False), (80, 90, False), (100, 90, False), (120, 121, True)],
)
def test_which_code_runs_where(code, gpu, runs):
    assert runs_on(code, gpu) == runs
    if runs:
        check_arch(code, gpu, "GPU")
    else:
        with pytest.raises(GpuError, match=f"code for sm_{code} does not run on the GPU.*give --arch sm_{gpu}"):
            check_arch(code, gpu, "GPU")


def test_the_architecture_to_compile_for():
    assert own_arch(90, "GPU") == "sm_90" and own_arch(86, "GPU") == "sm_86"
    with pytest.raises(GpuError, match=r"the GPU is an sm_70, and NVRTC 13\.\d+ makes no code for that"):
        own_arch(70, "GPU")


# ---- cases ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "bytes_a_launch"),
    [
        ("transpose_pad", 128, [2 * 4 * 128 * 128]),
        ("scale", 1000, [2 * 4000]),  # in place: read and written
        ("vector_add", 1000, [3 * 4000]),
        ("matmul_naive", 64, [4 * 4 * 64 * 64]),  # A and B are read, C is read and written
        ("reduce_sequential", 4096, [4 * 4096 + 4 * 16, 4 * 16 + 4]),  # what the second reads, the first wrote
        ("counter_atomic", 1000, [4]),
    ],
)
def test_bytes_that_must_be_moved(name, size, bytes_a_launch):
    assert cases.moved_bytes(kernels.find(name).build(size)) == bytes_a_launch


@pytest.mark.parametrize("name", ["transpose_copy", "matmul_naive", "hist_global", "softmax_naive", "reduce_shared"])
def test_memory_is_estimated_without_building_the_problem(name):
    case = kernels.find(name)
    for size in (128, case.sizes[0]):
        real = sum(array.nbytes for array in case.build(size).buffers.values())
        assert cases.estimated_bytes(case, size) == pytest.approx(real, rel=0.1)


def test_a_size_that_cannot_be_made():
    with pytest.raises(UsageError, match=r"scale cannot be made at size 3000000000 .*: choose a smaller --size"):
        cases.built(dataclasses.replace(kernels.find("scale"), build=np.int32), 3_000_000_000)


def test_problems_are_batched_by_memory():
    assert cases.batches([3, 3, 3, 9, 1, 1], 8) == [[0, 1], [2], [3], [4, 5]]
    assert cases.batches([], 8) == [] and cases.batches([100], 8) == [[0]]


def test_blank_buffers():
    assert cases._blank(np.zeros(5000)) and cases._blank(np.full(5000, np.nan))
    late = np.zeros(5000, np.int32)
    late[-1] = 1
    assert not cases._blank(late) and not cases._blank(np.arange(3))
