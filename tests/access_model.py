"""What the recorded single-warp kernels add up to, by the counting rules alone.

A stand-in for executing the kernels: it knows by hand which memory instructions each kernel of the recording contains
(read off its SASS) and with which lanes, and sums the rules over them. Everything is vectorised over recordings.

Every kernel reads an offset and a flag a lane from two tables and stores a result, 128 bytes each. The kernels with an
accessing condition read the offset in lanes that take part only; the matrix kernels have no condition and read no flag.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.counters import rules

FIELDS = (
    "shared_ld_wavefronts",
    "shared_st_wavefronts",
    "shared_atom_wavefronts",
    "shared_ld_conflicts",
    "shared_st_conflicts",
    "shared_atom_conflicts",
    "global_ld_sectors",
    "global_st_sectors",
    "global_tags",
    "global_red_sectors",
    "global_atom_sectors",
)
LANES = np.arange(32)

# Kernels that end with a barrier or a wait and one byte a lane read back from shared memory.
READS_BACK = re.compile(r"sts\d+|stsm4|reds_add|atoms_inc1|atoms_fadd|cp[ag]\d+g?")
SHARED_ATOMICS = {
    "atoms_add": ("add", 4),
    "reds_add": ("add", 4),
    "atoms_inc1": ("popc_inc", 4),
    "atoms_cas": ("cas", 4),
    "atoms_exch": ("exch", 4),
    "atoms_max": ("max", 4),
    "atoms_cas64": ("cas", 8),
}
SPIN_LOOPS = {"atoms_fadd": 4, "atoms_add64": 8}
GLOBAL_ATOMICS = {
    "redg_add": ("add", 4),
    "redg_fadd": ("fadd", 4),
    "atomg_add": ("add", 4),
    "atomg_cas": ("cas", 4),
    "atomg_add64": ("add", 8),
    "redg_add64": ("add", 8),
}
MATRICES = {"ldsm1": 1, "ldsm2": 2, "ldsm4": 4, "ldsm4t": 4, "stsm4": 4}

Totals = dict[str, np.ndarray]


def read_recording(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header and the records of a recording."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        header, *records = map(json.loads, lines)
    return header, records


def observed(records: Iterable[dict[str, Any]]) -> np.ndarray:
    """Recorded totals, (n, fields) in the order of FIELDS."""
    return np.array([[record["totals"][field] for field in FIELDS] for record in records])


def predicted(kernel: str, records: list[dict[str, Any]]) -> np.ndarray:
    """Totals of recordings of one kernel by the rules, (n, fields) in the order of FIELDS."""
    offsets = np.array([record["offsets"] for record in records], dtype=np.int64)
    active = np.array([record["active"] for record in records], dtype=bool)
    totals = {field: np.zeros(len(records), dtype=np.int64) for field in FIELDS}
    everyone = np.ones_like(active)
    words = np.broadcast_to(4 * LANES, offsets.shape)

    if kernel in MATRICES:
        _global(totals, "ld", words, everyone, 4)
    else:
        _global(totals, "ld", words, everyone, 4)
        _global(totals, "ld", words, active, 4)
    _global(totals, "st", words, everyone, 4)
    if READS_BACK.fullmatch(kernel):
        _shared(totals, "ld", np.broadcast_to(LANES, offsets.shape), everyone, 1)
    _access(totals, kernel, offsets, active)
    return np.stack([totals[field] for field in FIELDS], axis=1)


def _access(totals: Totals, kernel: str, offsets: np.ndarray, active: np.ndarray) -> None:
    """The kernel's one access under test."""
    if kernel in MATRICES:
        direction = "st" if kernel.startswith("st") else "ld"
        everyone = np.ones_like(active)
        totals[f"shared_{direction}_conflicts"] += rules.matrix_conflicts(offsets, everyone, MATRICES[kernel])
    elif kernel in SPIN_LOOPS:
        _spin_loop(totals, offsets, active, SPIN_LOOPS[kernel])
    elif kernel in SHARED_ATOMICS:
        op, width = SHARED_ATOMICS[kernel]
        totals["shared_atom_wavefronts"] += rules.shared_atomic_wavefronts(offsets, active, width, op)
        totals["shared_atom_conflicts"] += rules.shared_atomic_conflicts(offsets, active, width, op)
    elif kernel in GLOBAL_ATOMICS:
        op, width = GLOBAL_ATOMICS[kernel]
        field = "global_red_sectors" if kernel.startswith("red") else "global_atom_sectors"
        totals[field] += rules.global_atomic_sectors(offsets, active, width, op)
        totals["global_tags"] += rules.global_tags(offsets, active)
    elif match := re.fullmatch(r"cp[ag](\d+)(g?)", kernel):
        source = offsets if match[2] else np.broadcast_to(int(match[1]) * LANES, offsets.shape)
        totals["global_tags"] += rules.global_tags(source, active)
    elif match := re.fullmatch(r"(lds|sts|gen_s)(\d+)", kernel):
        _shared(totals, "st" if match[1] == "sts" else "ld", offsets, active, int(match[2]) // 8)
    elif match := re.fullmatch(r"(ldg|ldgnc|ldgcg|stg|gen_g)(\d+)", kernel):
        _global(totals, "st" if match[1] == "stg" else "ld", offsets, active, int(match[2]) // 8)
    else:
        raise ValueError(f"no model of kernel {kernel!r}")


def _shared(totals: Totals, op: str, addresses: np.ndarray, active: np.ndarray, width: int) -> None:
    totals[f"shared_{op}_wavefronts"] += rules.shared_wavefronts(addresses, active, width, op)
    totals[f"shared_{op}_conflicts"] += rules.shared_conflicts(addresses, active, width, op)


def _global(totals: Totals, op: str, addresses: np.ndarray, active: np.ndarray, width: int) -> None:
    totals[f"global_{op}_sectors"] += rules.global_sectors(addresses, active, width)
    totals["global_tags"] += rules.global_tags(addresses, active)


def _spin_loop(totals: Totals, addresses: np.ndarray, active: np.ndarray, width: int) -> None:
    """Load, compute, ATOMS.CAST.SPIN, and again for the lanes that failed; every success changes the word."""
    pending = active.copy()
    while pending.any():
        _shared(totals, "ld", addresses, pending, width)
        totals["shared_atom_wavefronts"] += rules.shared_atomic_wavefronts(addresses, pending, width, "cast_spin")
        winners = rules.cast_spin_winners(addresses, pending, width)
        if width == 8:
            # The upper half warp comes second and compares with values that the lower half may just have changed.
            stale = (addresses[:, 16:, None] == addresses[:, None, :16]) & winners[:, None, :16]
            winners[:, 16:] &= ~stale.any(axis=2)
        pending &= ~winners
