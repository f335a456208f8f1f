"""Write the plan of launches of ``tests/kernels/flow.cu``: many patterns of lanes for each kernel.

``python -m gpusim.runner.flow FILE.cu FOLDER``: each kernel of the file takes (const int *in, int *out, int n); in
holds n values that decide where a lane goes, and n of a table.  With ``--trace`` the kernels also note each lane's
steps in out (see MARK there), and each is launched once with many blocks of one warp.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.runner.plan import ARCH
from gpusim.toolchain import compile_source, parse_cubin

Array = np.ndarray[Any, Any]
BITS = 10  # the kernels look at this many bits of a lane's value
TRACE_STEPS = 96 * 3  # words a thread that a traced kernel writes


def lane_values(rng: np.random.Generator, kind: int) -> Array:
    """The values of one warp's lanes: one of several ways in which lanes of a warp differ."""
    top = 1 << BITS
    match kind:
        case 0:  # all different, in order
            return np.arange(32) * int(rng.integers(1, 32)) % top
        case 1:
            return rng.integers(0, top, 32)
        case 2:  # two or three groups, their lanes interleaved
            return rng.choice(rng.integers(0, top, int(rng.integers(2, 4))), 32)
        case 3:  # groups of neighbouring lanes of all sizes
            sizes = rng.multinomial(32, rng.dirichlet(np.ones(int(rng.integers(2, 7)))))
            return np.repeat(rng.integers(0, top, len(sizes)), sizes)
        case 4:  # one or two lanes differ
            values = np.full(32, rng.integers(0, top))
            values[rng.integers(0, 32, 2)] = rng.integers(0, top, 2)
            return values
        case _:  # groups of equal size
            size = int(rng.choice([1, 2, 4, 8, 16]))
            return rng.permutation(np.repeat(rng.integers(0, top, 32 // size), size))


def launch_of(
    kernel: str, name: str, cubin: str, grid: int, block: int, values: Array, table: Array, words: int
) -> dict[str, Any]:
    """One launch of a plan."""
    return {
        "id": name,
        "cubin": cubin,
        "kernel": kernel,
        "grid": [grid, 1, 1],
        "block": [block, 1, 1],
        "shared": 0,
        "args": [
            {"buffer": "in", "dtype": "int32", "values": [int(x) for x in (*values, *table)]},
            {"buffer": "out", "dtype": "int32", "count": words, "fill": "zeros"},
            {"scalar": "int32", "value": grid * block},
        ],
    }


def flow_plan(
    source: Path, folder: Path, seed: int, singles: int, blocks: int, trace: bool, only: str
) -> dict[str, Any]:
    """``singles`` launches of one warp and one of ``blocks`` blocks of two for every kernel; or its traced launch."""
    cubin = f"{source.stem}{'_trace' if trace else ''}"
    made = compile_source(
        source.read_text(), arch=ARCH, filename=f"/gpusim/{source.name}", options=("-DTRACE",) if trace else ()
    )
    (folder / f"{cubin}.cubin").write_bytes(made.cubin)
    launches = []
    for number, kernel in enumerate(parse_cubin(made.cubin).kernels):
        rng = np.random.default_rng([seed, number])
        if not re.fullmatch(only, kernel):
            continue
        shapes = [(1, 32)] * singles + ([(blocks, 64)] if blocks else [])
        if trace:
            shapes = [(blocks, 32)]
        for which, (grid, block) in enumerate(shapes):
            count = grid * block
            kinds = [which] if count == 32 else range(count // 32)
            values = np.concatenate([lane_values(rng, kind % 6) for kind in kinds])
            table = rng.integers(-(1 << 20), 1 << 20, count)
            words = 2 * count + 32 + (count * TRACE_STEPS if trace else 0)
            launches.append(launch_of(kernel, f"{kernel}/{cubin}/{which}", cubin, grid, block, values, table, words))
    return {"arch": ARCH, "cubins": {cubin: f"{cubin}.cubin"}, "launches": launches}


def main(arguments: list[str] | None = None) -> int:
    """Write ``plan.json`` and the cubin into a folder."""
    parser = argparse.ArgumentParser(description="Write a plan of launches of kernels that diverge.")
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--singles", type=int, default=4, help="launches of one warp for each kernel")
    parser.add_argument("--blocks", type=int, default=8, help="blocks of one larger launch for each kernel")
    parser.add_argument("--only", default=".*", help="kernels to launch, a regular expression")
    parser.add_argument("--trace", action="store_true", help="the kernels note their lanes' steps")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    plan = flow_plan(
        options.source, options.folder, options.seed, options.singles, options.blocks, options.trace, options.only
    )
    (options.folder / "plan.json").write_text(json.dumps(plan))
    print(f"{len(plan['launches'])} launches in {options.folder / 'plan.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
