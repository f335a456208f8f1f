"""Write the random kernels as a plan for ``gpusim.runner.record``: ``python -m tests.differential.plan FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gpusim.toolchain import compile_source
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


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]))} launches")
