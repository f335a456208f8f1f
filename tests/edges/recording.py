"""The recording of the edge cases (``tests/data/h200_edges.npz.xz``), and the simulator on the same launches."""

from __future__ import annotations

import io
import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import gpusim
from tests.edges.case import Case
from tests.edges.operands import Array, inputs
from tests.edges.plan import POISON, launch_of, rows

RECORDING = Path(__file__).parents[1] / "data" / "h200_edges.npz.xz"


@cache
def recording() -> Any:
    """The npz file's arrays."""
    return np.load(io.BytesIO(lzma.decompress(RECORDING.read_bytes())))


@cache
def header() -> dict[str, Any]:
    """Device, driver, date, command, plan."""
    found: dict[str, Any] = json.loads(recording()["header"].tobytes())
    return found


@cache
def module(family: str) -> gpusim.Module:
    """The recorded machine code."""
    return gpusim.load(recording()[f"cubin {family}"].tobytes())


def answer(case: Case) -> Array:
    """What the GPU computed: planes of words, one column a thread."""
    return np.asarray(recording()[f"{case.name} out"]).reshape(case.words, rows(case))


def simulated(case: Case) -> Array:
    """The same from the simulator."""
    launch = launch_of(case)
    out = np.full(rows(case) * case.words, POISON, np.uint32)
    arrays = [array.copy() for array in inputs(case.operands)[: len(case.c_types)]]
    module(case.family)[case.kernel].launch(launch["grid"][0], launch["block"][0], [*arrays, out, np.int32(rows(case))])
    return out.reshape(case.words, rows(case))


def differences(case: Case, most: int = 12) -> list[str]:
    """Rows where simulator and GPU differ, as text with the operands; the first line says how many."""
    ours, theirs = simulated(case), answer(case)
    wrong = (ours != theirs).any(axis=0)
    if not wrong.any():
        return []
    text = [f"{int(wrong.sum())} of {wrong.size} rows differ"]
    operands = inputs(case.operands)
    for row in np.flatnonzero(wrong)[:most].tolist():
        given = ", ".join(f"{int(x[row]):0{2 * x.dtype.itemsize}x}" for x in operands if row < len(x))
        got, wanted = (" ".join(f"{int(w):08x}" for w in words[:, row]) for words in (ours, theirs))
        text.append(f"({given}): {got}, hardware {wanted}")
    return text
