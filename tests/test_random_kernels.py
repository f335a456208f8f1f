"""Random kernels against an H200: every output bit (recording ``data/h200_random.json.gz``, kernels by seed)."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.machine import chunk
from gpusim.runner.replay import make_buffer

RECORDING = Path(__file__).parent / "data" / "h200_random.json.gz"


@cache
def recording() -> dict[str, Any]:
    with gzip.open(RECORDING, "rt") as stream:
        return json.load(stream)


@cache
def module(cubin: str) -> gpusim.Module:
    return gpusim.load(base64.b64decode(recording()["plan"]["cubins"][cubin]))


def differences(cubin: str) -> list[str]:
    """Kernels of a cubin whose results differ from the hardware's."""
    record = recording()
    wrong = []
    for launch, answer in zip(record["plan"]["launches"], record["launches"], strict=True):
        if launch["cubin"] != cubin:
            continue
        buffers = {spec["buffer"]: make_buffer(spec) for spec in launch["args"]}
        args = [buffers[spec["buffer"]] for spec in launch["args"]]
        try:
            module(cubin)[launch["kernel"]].launch(launch["grid"], launch["block"], args)
        except gpusim.UnsupportedError as error:
            wrong.append(f"{launch['id']}: {error}")
            continue
        digests = {name: hashlib.sha256(values.tobytes()).hexdigest()[:32] for name, values in buffers.items()}
        differing = [name for name, digest in answer["results"].items() if digests[name] != digest]
        if differing:
            wrong.append(f"{launch['id']}: {', '.join(differing)} differ")
    return wrong


@pytest.mark.parametrize("cubin", [f"random{number}" for number in range(8)])
@pytest.mark.parametrize("plain", [0, chunk.PLAIN], ids=["sums", "arrays"])
def test_results_equal_the_hardware_bit_for_bit(cubin, plain, monkeypatch):
    """With addresses kept as sums of a part by block and one by thread, as large launches do, and as arrays."""
    monkeypatch.setattr(chunk, "PLAIN", plain)
    wrong = differences(cubin)
    assert not wrong, "\n".join(wrong)


def test_the_recording_is_complete():
    assert len(recording()["launches"]) == 560
    assert np.unique([launch["id"] for launch in recording()["launches"]]).size == 560
    assert recording()["header"]["device"] == "NVIDIA H200"
