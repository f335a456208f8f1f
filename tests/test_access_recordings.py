"""Every recorded single-warp access, run through the public interface and compared with what the hardware counted.

Recordings of an NVIDIA H200: lane addresses in, Nsight Compute's totals of the whole launch out. The kernels are in
``data/access_patterns*.cu``; the recordings call these files by their older names.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim

DATA = Path(__file__).parent / "data"
SOURCES = {f"patterns{n}.cu": f"access_patterns{n or 1}.cu" for n in ("", 2, 3, 4)}

_WAVES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
_SECTORS = "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_"
NAMES = {
    **{f"shared_{op}_wavefronts": f"{_WAVES}{op}.sum" for op in ("ld", "st", "atom", "ldsm", "stsm", "ldgsts")},
    **{f"shared_{op}_conflicts": f"{_CONFLICTS}{op}.sum" for op in ("ld", "st", "atom")},
    **{f"{op}_conflicts": f"{_CONFLICTS}{op}.sum" for op in ("ldsm", "stsm", "ldgsts")},
    **{f"global_{op}_sectors": f"{_SECTORS}{op}.sum" for op in ("ld", "st", "red", "atom")},
    "ldgsts_sectors": f"{_SECTORS}ldgsts.sum",
    **{f"global_{op}_passes": f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("red", "atom")},
    "global_tags": "smsp__sass_l1tex_tags_mem_global.sum",
    **{f"global_{op}_requests": f"{_REQUESTS}{op}.sum" for op in ("ld", "st", "red", "atom")},
    "ldgsts_requests": f"{_REQUESTS}ldgsts.sum",
    "instructions": "smsp__sass_inst_executed.sum",
}


def read(name: str) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The header and the records by kernel."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        header, *records = map(json.loads, lines)
    grouped = defaultdict(list)
    for record in records:
        grouped[record["kernel"]].append(record)
    return header, grouped


RECORDINGS = {name: read(name) for name in ("h200_access", "h200_access_more", "h200_access_third")}


@cache
def module(source: str) -> gpusim.Module:
    return gpusim.compile(DATA / SOURCES[source])


def expected(record: dict[str, Any], header: dict[str, Any]) -> dict[str, int]:
    """Short name to recorded total; the later recording leaves zeros out."""
    totals = record["totals"]
    return {name: totals.get(name, 0) for name in header["metrics"]} if "omitted_totals" in header else totals


def counted(record: dict[str, Any]) -> gpusim.Result:
    """The simulator's answer to a record."""
    arguments = [
        np.array(record["offsets"], np.uint32),
        np.array(record["active"], np.uint32),
        np.zeros(4 << 20, np.uint8),
        np.zeros(32, np.uint32),
    ]
    return module(record["source"])[record["kernel"]].count(1, 32, arguments, 49152)


def touched(record: dict[str, Any], size: int) -> list[int]:
    """The aligned units of ``size`` bytes that the active lanes name, one a lane."""
    return [at // size for at, on in zip(record["offsets"], record["active"], strict=True) if on]


def agrees(record: dict[str, Any], name: str, result: gpusim.Result) -> bool:
    """Equal, but for asynchronous copies where the result itself says that its count is not certain."""
    simulated = result.metrics[metric_of(record, name)]
    hardware = record["expected"][name]
    kernel = record["kernel"]
    if name == "ldgsts_conflicts" and (result.caveats or len(set(touched(record, 128))) > 8 or kernel[2] == "z"):
        return True  # this one is called modelled in the table of metrics
    if name == "shared_ldgsts_wavefronts" and result.caveats:
        return hardware >= simulated
    if name == "ldgsts_sectors" and kernel == "cpzb16":
        return hardware <= simulated  # a copy around L1 under a condition, at scattered places
    return simulated == hardware


def metric_of(record: dict[str, Any], name: str) -> str:
    """Nsight Compute's name of a recorded total.

    The first recording's sectors of atomics are those of the plain hardware counter: the third one holds both counters
    of the same launches (patterns ``again_...``), and only that one agrees with the first.
    """
    if record["recording"] == "h200_access" and name in ("global_red_sectors", "global_atom_sectors"):
        name = name.replace("sectors", "passes")
    return NAMES[name]


# whether an or changes anything depends on what the hardware's shared memory held before; zeros here
UNKNOWN_CONTENTS = pytest.mark.xfail(reason="how often this loop retries depends on uninitialised shared memory")

KERNELS = [
    pytest.param(
        name,
        kernel,
        marks=[UNKNOWN_CONTENTS] if kernel == "atoms_or64" else [],
        id=f"{name}-{kernel}",
    )
    for name, (_, grouped) in RECORDINGS.items()
    for kernel in grouped
]


@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_every_recorded_counter(name, kernel):
    header, grouped = RECORDINGS[name]
    wrong = []
    for record in grouped[kernel]:
        record["recording"], record["expected"] = name, expected(record, header)
        result = counted(record)
        for short, hardware in record["expected"].items():
            if not agrees(record, short, result):
                simulated = result.metrics[metric_of(record, short)]
                wrong.append(f"{record['pattern']} {short}: {simulated}, hardware {hardware}")
    assert not wrong, "\n".join(wrong)


def test_the_recordings_are_complete():
    sizes = {name: sum(map(len, grouped.values())) for name, (_, grouped) in RECORDINGS.items()}
    assert sizes == {"h200_access": 1610, "h200_access_more": 1673, "h200_access_third": 175}
    assert all(header["device"] == "NVIDIA H200" for header, _ in RECORDINGS.values())
    assert set(RECORDINGS["h200_access_more"][0]["metrics"]) <= set(NAMES)
    for _, grouped in RECORDINGS.values():
        assert {r["source"] for records in grouped.values() for r in records} <= set(SOURCES)
