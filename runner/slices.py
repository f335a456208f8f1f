"""Find which addresses share a slice of L2: ``python runner/slices.py OUT.json`` (needs a GPU and CuPy).

Half of the warps of a grid add to one word, half to another.  Where the two lie in one slice the adds wait for each
other as if there were one word; else they take half as long.  Every 256 bytes of the first 64 KiB of a buffer are
compared with one place of each slice that was met so far.  The file holds what `gpusim/timing/slices.json` is made of.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

SOURCE = """
extern "C" __global__ void add_to_two(unsigned *data, unsigned long long a, unsigned long long b, int loops)
{
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    unsigned *p = data + ((warp & 1) ? a : b) / 4;
#pragma unroll 4
    for (int i = 0; i < loops; i++)
        asm volatile("red.global.add.u32 [%1], %0;" ::"r"(1u), "l"(p) : "memory");
}
"""
SHARED = 0.75  # of the time for one word, from which on two are in one slice: else it is half of it
REGION, PIECE = 64 * 1024, 256


def classes(offsets: Iterable[int], together: Callable[[int, int], bool]) -> list[int]:
    """Numbers of the classes of offsets, in order of appearance; ``together``: two of them are in the same one."""
    first: list[int] = []
    found: list[int] = []
    for offset in offsets:
        number = next((k for k, other in enumerate(first) if together(other, offset)), len(first))
        if number == len(first):
            first.append(offset)
        found.append(number)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(description="Find which addresses share a slice of L2.")
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    import cupy

    kernel = cupy.RawModule(code=SOURCE).get_function("add_to_two")
    data = cupy.zeros(1 << 20, dtype=cupy.uint8)
    multiprocessors = cupy.cuda.Device().attributes["MultiProcessorCount"]

    def milliseconds(a: int, b: int) -> float:
        times = []
        for _ in range(3):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            kernel((multiprocessors,), (256,), (data, np.uint64(a), np.uint64(b), np.int32(16)))
            end.record()
            end.synchronize()
            times.append(float(cupy.cuda.get_elapsed_time(begin, end)))
        return min(times)

    for _ in range(50):
        milliseconds(0, 4096)
    one = milliseconds(0, 0)
    slices = classes(range(0, REGION, PIECE), lambda a, b: milliseconds(a, b) > SHARED * one)
    within = classes(range(0, 4096, 32), lambda a, b: milliseconds(a, b) > SHARED * one)
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    content = {
        "device": properties["name"].decode(),
        "date": datetime.date.today().isoformat(),
        "command": "python runner/slices.py OUT.json",
        "one_word_ms": one,
        "slices": slices,
        "slices_of_32_bytes": within,
    }
    scratch = options.out.with_suffix(".part")
    scratch.write_text(json.dumps(content))
    scratch.replace(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
