"""Write random kernels as a plan for ``gpusim.runner.record``: ``python -m tests.differential.plan FOLDER``.

With ``memory`` after it, the kernels that move data.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from gpusim.toolchain import compile_source
from tests.differential import memory
from tests.differential.generator import ATOMICS, BLOCKS, SLOTS, THREADS, WORDS_IN, WORDS_OUT, source

KERNELS_A_FILE = 70
FILES = 8


def write(folder: Path) -> int:
    """Compile all kernels and list their launches; returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    cubins, launches = {}, []
    threads = THREADS * BLOCKS
    for number in range(FILES):
        text, names = source(number * KERNELS_A_FILE, KERNELS_A_FILE)
        made = compile_source(text, arch="sm_90", filename=f"/gpusim/random{number}.cu")
        cubin = f"random{number}"
        (folder / f"{cubin}.cubin").write_bytes(made.cubin)
        cubins[cubin] = f"{cubin}.cubin"
        for name in names:
            launches.append(
                {
                    "id": name,
                    "cubin": cubin,
                    "kernel": name,
                    "grid": [BLOCKS, 1, 1],
                    "block": [THREADS, 1, 1],
                    "shared": 0,
                    "args": [
                        {"buffer": "in", "dtype": "uint32", "count": WORDS_IN * threads, "fill": "random", "seed": 3},
                        {"buffer": "out", "dtype": "uint32", "count": WORDS_OUT * threads, "fill": "zeros"},
                        {
                            "buffer": "sums",
                            "dtype": "uint32",
                            "count": SLOTS * len(ATOMICS),
                            "fill": "random",
                            "seed": 4,
                        },
                    ],
                }
            )
    (folder / "plan.json").write_text(json.dumps({"arch": "sm_90", "cubins": cubins, "launches": launches}))
    return len(launches)


MOVES_A_FILE, MOVES_FILES = 20, 7
SHAPES = ((3, 64), (5, 96), (7, 100), (2, 256), (16, 128), (16, 256))


def write_memory(folder: Path) -> int:
    """The same of kernels that move data."""
    folder.mkdir(parents=True, exist_ok=True)
    cubins, launches = {}, []
    for number in range(MOVES_FILES):
        text, names = memory.source(number * MOVES_A_FILE, MOVES_A_FILE, memory.Ordered)
        cubin = f"moves{number}"
        (folder / f"{cubin}.cubin").write_bytes(
            compile_source(text, arch="sm_90", filename=f"/gpusim/{cubin}.cu").cubin
        )
        cubins[cubin] = f"{cubin}.cubin"
        for name in names:
            grid, block = random.Random(name).choice(SHAPES)
            buffers = [("in", "int32", 1024, "permutation"), ("both", "int32", 4096, "permutation")]
            buffers += [("out", "float32", 4 * 4096, "zeros"), ("last", "int32", 1024, "zeros")]
            args = [
                {"buffer": buffer, "dtype": dtype, "count": count, "fill": fill, "seed": seed}
                for seed, (buffer, dtype, count, fill) in enumerate(buffers)
            ]
            launch = {"id": f"{name}/0", "group": name, "cubin": cubin, "kernel": name, "shared": 0, "args": args}
            launches.append(launch | {"grid": [grid, 1, 1], "block": [block, 1, 1]})
    (folder / "plan.json").write_text(json.dumps({"arch": "sm_90", "cubins": cubins, "launches": launches}))
    return len(launches)


if __name__ == "__main__":
    writer = write_memory if "memory" in sys.argv[2:] else write
    print(f"{writer(Path(sys.argv[1]))} launches")
