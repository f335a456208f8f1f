"""Write the edge cases as a plan with cubins and operands: ``python -m tests.edges.plan FOLDER``.

``python -m gpusim.runner.record --values FOLDER/plan.json h200_edges.npz.xz`` carries it out on a machine with a GPU.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.toolchain import compile_source
from tests.edges.case import THREADS, Case
from tests.edges.cases import all_cases, family_source
from tests.edges.operands import inputs

POISON = 0xA5A5A5A5


def rows(case: Case) -> int:
    """How many threads do something."""
    return case.grid[0] * case.grid[1] if case.grid else len(inputs(case.operands)[0])


def table_name(case: Case) -> str:
    return "_".join(case.operands)


def launch_of(case: Case) -> dict[str, Any]:
    """The launch in the form of a plan."""
    count = rows(case)
    grid, block = case.grid or ((count + THREADS - 1) // THREADS, THREADS)
    args: list[dict[str, Any]] = [
        {"buffer": f"in{k}", "file": "inputs.npz", "array": f"{table_name(case)} {k}", "keep": False}
        for k in range(len(case.c_types))
    ]
    out = {"buffer": "out", "dtype": "uint32", "count": count * case.words, "fill": "constant", "value": POISON}
    return {
        "id": case.name,
        "cubin": case.family,
        "kernel": case.kernel,
        "grid": [grid, 1, 1],
        "block": [block, 1, 1],
        "shared": 0,
        "args": [*args, out, {"scalar": "int32", "value": count}],
    }


def digest() -> dict[str, str]:
    """Digests of sources and operands, by family: whether a recording is of these cases."""
    found = {}
    for family, cases in all_cases().items():
        state = hashlib.sha256(family_source(family).encode())
        for case in cases:
            for array in inputs(case.operands):
                state.update(array.tobytes())
        found[family] = state.hexdigest()[:32]
    return found


def write(folder: Path) -> int:
    """Compile everything and list the launches; returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    plan: dict[str, Any] = {"arch": "sm_90", "cubins": {}, "launches": [], "digest": digest()}
    plan["nvrtc"] = importlib.metadata.version("nvidia-cuda-nvrtc")
    for family, cases in all_cases().items():
        made = compile_source(family_source(family), arch="sm_90", filename=f"/gpusim/edges_{family}.cu")
        (folder / f"{family}.cubin").write_bytes(made.cubin)
        plan["cubins"][family] = f"{family}.cubin"
        for case in cases:
            arrays |= {f"{table_name(case)} {k}": values for k, values in enumerate(inputs(case.operands))}
            plan["launches"].append(launch_of(case))
    np.savez_compressed(folder / "inputs.npz", **arrays)  # type: ignore[arg-type]
    (folder / "plan.json").write_text(json.dumps(plan))
    return len(plan["launches"])


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]))} launches in {Path(sys.argv[1]) / 'plan.json'}")
