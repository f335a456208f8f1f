"""Write a plan of launches with its cubins, for :mod:`gpusim.runner.record` to carry out on a GPU.

``python -m gpusim.runner.plan catalogue FOLDER``: every kernel of the catalogue at its small sizes and one larger one.
``python -m gpusim.runner.plan times FOLDER``: at the sizes that it is meant for, to be timed.
``python -m gpusim.runner.plan calibrate FOLDER``: the kernels of :mod:`gpusim.runner.calibrate`, without launches.
``python -m gpusim.runner.plan FILE.cu FOLDER``: every kernel of a file whose kernels take (const int* in, int* out,
int n), at a few launch shapes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpusim import kernels
from gpusim.runner import sweeps
from gpusim.toolchain import Cubin, compile_source, parse_cubin

ARCH = "sm_90"
LARGER = {
    "access": 1 << 18,
    "banks": 1 << 18,
    "basic": 1 << 20,
    "calibrate": 1 << 12,
    "histogram": 1 << 19,
    "matmul": 256,
    "reduce": 1 << 20,
    "resources": 1 << 18,
    "softmax": 512,
    "threads": 1 << 18,
    "tiles": 1 << 18,
    "transfers": 1 << 18,
    "transpose": 1024,
}
SHAPES = ((3, 96, 270), (1, 33, 33), (2, 256, 500), (1, 16, 16))  # grid, block, n of a plain file's launches


def buffer_spec(name: str, array: np.ndarray[Any, Any], seed: int) -> dict[str, Any]:
    """A buffer of a plan: the contents only matter in kind (poison, zeros, an index, equal values, any data)."""
    flat = array.reshape(-1)
    spec = {"buffer": name, "dtype": str(flat.dtype), "count": int(flat.size), "fill": "random", "seed": seed}
    if flat.dtype.kind == "f" and np.isnan(flat).all():
        spec["fill"] = "nan"
    elif not flat.any():
        spec["fill"] = "zeros"
    elif flat.dtype.kind in "iu":
        in_order = np.arange(flat.size).astype(flat.dtype)  # wraps in a narrow type
        if np.array_equal(flat, in_order):
            spec["fill"] = "arange"
        elif np.array_equal(np.sort(flat), in_order):
            spec["fill"] = "permutation"
        elif (flat == flat[0]).all():
            spec |= {"fill": "constant", "value": int(flat[0])}
    return spec


def catalogue_plan(folder: Path, large: bool = False, only: Sequence[str] = ()) -> dict[str, Any]:
    """Compile the catalogue's sources, one cubin a source file, and list the launches of its cases.

    ``large``: at the cases' own sizes, not the small ones.  ``only``: these families.
    """
    cubins: dict[str, str] = {}
    launches: list[dict[str, Any]] = []
    for family, cases in kernels.families().items():
        if only and family not in only:
            continue
        sources: dict[Path, list[str]] = {}
        for case in cases:
            sources.setdefault(case.source, []).extend(case.names)
        lowered: dict[Path, dict[str, str]] = {}
        for source, names in sources.items():
            made = compile_source(source.read_text(), arch=ARCH, names=names, filename=f"/gpusim/{source.name}")
            (folder / f"{source.stem}.cubin").write_bytes(made.cubin)
            cubins[source.stem] = f"{source.stem}.cubin"
            lowered[source] = dict(made.lowered)
        for case in cases:
            if case.hangs or (large and case.needs_gpu):  # those are timed by gpusim.runner.transfers
                continue
            larger = [LARGER[family]] if family in LARGER else []
            for size in case.sizes if large else dict.fromkeys((*case.small_sizes, *larger)):
                problem = case.build(size)
                for number, launch in enumerate(problem.launches):
                    args: list[dict[str, Any]] = []
                    for argument in launch.args:
                        if isinstance(argument, str):
                            args.append(buffer_spec(argument, problem.buffers[argument], 1))
                        else:
                            args.append({"scalar": str(argument.dtype), "value": argument.item()})
                    launches.append(
                        {
                            "id": f"{case.name}/{size}/{number}",
                            "group": f"{case.name}/{size}",
                            "family": family,
                            "size": size,
                            "cubin": case.source.stem,
                            "kernel": lowered[case.source].get(launch.kernel, launch.kernel),
                            "grid": list(launch.grid),
                            "block": list(launch.block),
                            "shared": launch.shared_bytes,
                            "args": args,
                        }
                    )
    return {"arch": ARCH, "cubins": cubins, "launches": launches}


def file_plan(source: Path, folder: Path) -> dict[str, Any]:
    """Launches of every kernel of a file of (in, out, n) kernels."""
    made = compile_source(source.read_text(), arch=ARCH, filename=f"/gpusim/{source.name}")
    cubin: Cubin = parse_cubin(made.cubin)
    (folder / f"{source.stem}.cubin").write_bytes(made.cubin)
    launches = []
    for name in cubin.kernels:
        for grid, block, count in SHAPES:
            launches.append(
                {
                    "id": f"{name}/{count}",
                    "cubin": source.stem,
                    "kernel": name,
                    "grid": [grid, 1, 1],
                    "block": [block, 1, 1],
                    "shared": 0,
                    "args": [
                        {"buffer": "in", "dtype": "int32", "count": count, "fill": "random", "seed": 5},
                        {"buffer": "out", "dtype": "int32", "count": 2 * count + 64, "fill": "random", "seed": 6},
                        {"scalar": "int32", "value": count},
                    ],
                }
            )
    return {"arch": ARCH, "cubins": {source.stem: f"{source.stem}.cubin"}, "launches": launches}


def calibrate_kernels(arch: str | int = ARCH) -> tuple[dict[str, bytes], dict[str, str]]:
    """The cubins of ``kernels/calibrate`` by source, and the names that their kernels have in them."""
    folder = Path(str(kernels.__file__)).parent / "calibrate"
    cubins: dict[str, bytes] = {}
    lowered: dict[str, str] = {}
    for source, names in sweeps.KERNELS.items():
        path = folder / f"{source}.cu"
        made = compile_source(path.read_text(), arch=arch, names=names, filename=f"/gpusim/{path.name}")
        cubins[source] = made.cubin
        lowered |= made.lowered
    return cubins, lowered


def calibrate_plan(folder: Path) -> dict[str, Any]:
    """Write the cubins for :mod:`gpusim.runner.calibrate`."""
    cubins, lowered = calibrate_kernels()
    for source, cubin in cubins.items():
        (folder / f"{source}.cubin").write_bytes(cubin)
    return {
        "arch": ARCH,
        "cubins": {source: f"{source}.cubin" for source in cubins},
        "lowered": lowered,
        "launches": [],
    }


def main(arguments: list[str] | None = None) -> int:
    """Write ``plan.json`` and the cubins into a folder."""
    parser = argparse.ArgumentParser(description="Write a plan of launches with its cubins.")
    parser.add_argument("what", help="'catalogue', 'times', 'calibrate', or a .cu file")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--family", action="append", default=[], help="only this family of the catalogue; may be repeated"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.family) - set(kernels.families()):
        parser.error(f"no family is called {', '.join(sorted(unknown))}")
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.what in ("catalogue", "times"):
        plan = catalogue_plan(options.folder, large=options.what == "times", only=options.family)
    elif options.what == "calibrate":
        plan = calibrate_plan(options.folder)
    else:
        plan = file_plan(Path(options.what), options.folder)
    (options.folder / "plan.json").write_text(json.dumps(plan))
    print(f"{len(plan['launches'])} launches in {options.folder / 'plan.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
