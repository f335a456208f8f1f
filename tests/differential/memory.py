"""Random kernels that move data: shared and global memory, addresses from data, loops, atomics, products of floats.

A kernel gets ``in`` (read), ``both`` (read and stored), ``out`` (stored) and ``last`` (stored and added to); what
threads of a launch store to one place, and when others read it, depends on the order of execution, so that such kernels
tell ways of simulating apart, but are not compared with hardware.
"""

from __future__ import annotations

import random
import re

import numpy as np

RACES = re.compile(r"(s|q)\[|atomicAdd\(&(q|both)|both\[(?!i\] )")
WORDS = 1024
MOST_THREADS = 5120
HEAD = """extern "C" __global__ void {name}(const int *in, int *both, float *out, int *last)
{{
__shared__ __align__(16) float s[256];
__shared__ int q[128];
int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
for (int j = t; j < 256; j += blockDim.x) s[j] = (float)in[j] * 0.01f;
for (int j = t; j < 128; j += blockDim.x) q[j] = in[j];
__syncthreads();
"""


class Writer:
    """Writes one kernel; the text depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.integers = ["t", "i", "(int)blockIdx.x"]
        self.floats = ["1.5f"]
        self.count = 0

    def place(self, mask: int) -> str:
        """An index up to ``mask``."""
        a, b = (self.random.choice(self.integers) for _ in range(2))
        more, factor = self.random.randint(0, 64), self.random.choice([1, 2, 3, 4, 33])
        forms = [a, f"{a} + {more}", f"{a} * {factor} + {b}", "t", f"t + {more}", "(int)blockIdx.x"]
        return f"(({self.random.choice(forms)}) & {mask})"

    def integer(self, value: str) -> None:
        self.count += 1
        self.lines.append(f"int v{self.count} = {value};")
        self.integers.append(f"v{self.count}")

    def number(self, value: str) -> None:
        self.count += 1
        self.lines.append(f"float v{self.count} = {value};")
        self.floats.append(f"v{self.count}")

    def statement(self, depth: int) -> None:
        """One statement; barriers only where all threads of a block come by."""
        kind = self.random.choices(range(14), [8, 8, 8, 8, 14, 6, 6, 4, 4, 4, 4, 4, 11, 7])[0]
        integer, number = self.random.choice(self.integers), self.random.choice(self.floats)
        if kind == 0:
            self.integer(f"in[{self.place(1023)}]")
        elif kind == 1:
            self.integer(f"both[{self.place(1023)}]")
        elif kind == 2:
            self.lines.append(f"both[{self.place(1023)}] = {integer} & 1023;")
        elif kind == 3:
            self.lines.append(f"out[i * 4 + {self.random.randrange(4)}] = {number} + (float){integer};")
        elif kind == 4:
            for _ in range(self.random.randint(1, 4)):
                self.number(f"s[{self.place(255)}]")
        elif kind == 5:
            self.count += 1
            self.lines.append(f"float4 v{self.count} = ((float4 *)s)[{self.place(63)}];")
            self.floats += [f"v{self.count}.{axis}" for axis in "xyzw"]
        elif kind == 6:
            self.lines.append(f"s[{self.place(255)}] = {number};")
        elif kind == 7 and depth == 0:
            self.lines.append("__syncthreads();")
        elif kind in (7, 8):
            self.integer(f"q[{self.place(127)}]")
        elif kind == 9:
            self.lines.append(f"q[{self.place(127)}] = {integer};")
        elif kind == 10:
            self.lines.append(f"atomicAdd(&q[{self.place(127)}], {self.random.choice(['1', integer])});")
        elif kind == 11:
            array = self.random.choice(["both", "last"])
            self.lines.append(f"atomicAdd(&{array}[{self.place(1023)}], {self.random.choice(['1', integer])});")
        elif kind == 12:
            for _ in range(self.random.randint(2, 8)):
                a, b, c = (self.random.choice(self.floats) for _ in range(3))
                self.number(f"{a} * {b} + {c}")
        elif depth < 2:
            self.nested(depth)

    def nested(self, depth: int) -> None:
        """A branch or a loop, whose names end with it."""
        known = list(self.integers), list(self.floats)
        self.count += 1
        k, integer = f"k{self.count}", self.random.choice(self.integers)
        if self.random.random() < 0.4:
            self.lines.append(f"if ({integer} & {self.random.choice([1, 2, 4, 64])}) {{")
        else:
            most = self.random.choice(["3", f"({integer} & 3)"])
            self.lines.append(f"for (int {k} = 0; {k} < {most}; {k}++) {{")
            self.integers.append(k)
        for _ in range(self.random.randint(2, 6)):
            self.statement(depth + 1)
        self.lines.append("}")
        self.integers, self.floats = known

    def kernel(self, name: str) -> str:
        """The whole kernel."""
        for _ in range(self.random.randint(6, 22)):
            self.statement(0)
        for k in range(4):
            self.lines.append(f"out[i * 4 + {k}] += {self.random.choice(self.floats)};")
        self.lines.append(
            f"last[{self.random.choice(['i & 1023', 'blockIdx.x'])}] = {self.random.choice(self.integers)};"
        )
        return HEAD.format(name=name) + "\n".join(self.lines) + "\n}\n"


class Ordered(Writer):
    """Writes one whose results and counters do not depend on the order of execution: to be compared with hardware.

    A thread stores to places of its own, shared memory changes between barriers, and what is added to is not read
    before the end.
    """

    def statement(self, depth: int) -> None:
        """One statement without a race."""
        before = len(self.lines), list(self.integers), list(self.floats), self.count
        while True:
            super().statement(depth)
            fresh = self.lines[before[0] :]
            if not any(RACES.match(line) for line in fresh):
                break
            del self.lines[before[0] :]
            self.integers, self.floats, self.count = list(before[1]), list(before[2]), before[3]
            if self.random.random() < 0.5:
                self.stored(depth)
                break
        # what this thread alone stores to is what it alone reads
        self.lines[before[0] :] = [re.sub(r"both\[.*\]", "both[i]", line) for line in self.lines[before[0] :]]

    def stored(self, depth: int) -> None:
        """Stores and additions whose order does not matter."""
        integer, number = self.random.choice(self.integers), self.random.choice(self.floats)
        kind = self.random.randrange(5 if depth == 0 else 2)
        if kind == 0:
            self.lines.append(f"both[i] = {integer} & 1023;")
        elif kind == 1:
            self.lines.append(f"atomicAdd(&bins[{self.place(127)}], {self.random.choice(['1', integer])});")
        elif kind == 2:
            self.lines.append(f"__syncthreads(); s[t ^ {self.random.choice([0, 1, 5])}] = {number}; __syncthreads();")
        elif kind == 3:
            fields = ", ".join(self.random.choice(self.floats) for _ in range(4))
            self.lines.append(
                f"__syncthreads(); if (t < 64) ((float4 *)s)[t] = make_float4({fields}); __syncthreads();"
            )
        else:
            self.lines.append(f"__syncthreads(); if (t < 128) q[t] = {integer}; __syncthreads();")

    def kernel(self, name: str) -> str:
        """The whole kernel."""
        for _ in range(self.random.randint(6, 22)):
            self.statement(0)
        for k in range(4):
            self.lines.append(f"out[i * 4 + {k}] += {self.random.choice(self.floats)};")
        self.lines.append(f"both[i] += {self.random.choice(self.integers)};")
        self.lines.append("__syncthreads(); if (t < 128 && bins[t]) atomicAdd(&last[t * 2], bins[t]);")
        start = "__shared__ int bins[128];\nfor (int j = t; j < 128; j += blockDim.x) bins[j] = 0;\n__syncthreads();"
        head = HEAD.format(name=name).replace("__syncthreads();", start)
        return head + "\n".join(self.lines) + "\n}\n"


def source(first_seed: int, count: int, writer: type[Writer] = Writer) -> tuple[str, list[str]]:
    """Text and kernel names of ``count`` kernels, seeds from ``first_seed`` on."""
    names = [f"moves_{seed}" for seed in range(first_seed, first_seed + count)]
    return "\n".join(writer(first_seed + k).kernel(name) for k, name in enumerate(names)), names


def arguments() -> list[np.ndarray]:
    """Arguments for any of them, of up to MOST_THREADS threads in all."""
    rng = np.random.default_rng(1)
    numbers = [rng.integers(0, WORDS, WORDS).astype(np.int32) for _ in range(2)]
    return [*numbers, np.zeros(4 * MOST_THREADS, np.float32), np.zeros(WORDS, np.int32)]
