"""Products times a power of two (FMUL.D2 to FMUL.M8) against an H200, bit for bit."""

from __future__ import annotations

import io
import json
import lzma
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gpusim

RECORDING = Path(__file__).parents[1] / "data" / "h200_scaled_products.npz.xz"
FACTORS = {"d2": "0.5f", "d4": "0.25f", "d8": "0.125f", "m4": "4.0f", "m8": "8.0f"}
SOURCE = """extern "C" __global__ void scaled(const float *a, const float *b, float *o, int n)
{ int x = blockIdx.x * blockDim.x + threadIdx.x; if (x < n) o[x] = RESULT(a[x] * b[x] * FACTOR); }"""


@cache
def recording() -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(lzma.decompress(RECORDING.read_bytes()))) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("way", ["", "_ftz", "_sat"])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_results_equal_the_hardware(name: str, way: str, arch: str) -> None:
    options = [f"-DFACTOR={FACTORS[name]}", "-DRESULT=" + ("__saturatef" if way == "_sat" else "")]
    module = gpusim.compile(SOURCE, arch=arch, options=(*options, *(["-ftz=true"] if way == "_ftz" else [])))
    kernel = module["scaled"]
    assert any(f".{name.upper()}" in each.text for each in kernel.program.instructions if each.opcode == "FMUL")
    a, b = (recording()[key].view(np.float32) for key in "ab")
    found = np.zeros(len(a), np.float32)
    kernel.launch(-(-len(a) // 128), 128, [a, b, found, np.int32(len(a))])
    assert found.view(np.uint32).tolist() == recording()[f"{name}{way} out"].tolist()


def test_the_recording_tells_rounding_once_from_twice() -> None:
    a, b = (recording()[key].view(np.float32) for key in "ab")
    with np.errstate(all="ignore"):
        twice = (a * b * np.float32(0.25)).view(np.uint32)
    numbers = ~np.isnan(a * b.astype(float))
    assert (twice != recording()["d4 out"])[numbers].sum() > 100
    header = json.loads(str(recording()["header"]))
    assert header["device"] == "NVIDIA H200" and header["driver"] and header["date"] and header["command"]
