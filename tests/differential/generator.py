"""Random small kernels: integer, float and double arithmetic, memory, control flow, exchange between lanes.

Every kernel reads ``in`` (unsigned words, four a thread), computes with it and writes eight words a thread to ``out``;
atomics go to ``sums`` and are such that their order does not matter.  The text depends on the seed alone.  The same
machine code runs on the GPU and in the simulator, so C++'s undefined behaviour is no concern, only results that depend
on timing are: there are none.
"""

from __future__ import annotations

import random

THREADS = 64
BLOCKS = 2
WORDS_IN = 4
WORDS_OUT = 8
ATOMICS = ("Add", "Max", "Min", "And", "Or", "Xor")
SLOTS = 16  # words of ``sums`` for each of them

TYPES = {"i": "int", "u": "unsigned", "l": "long long", "m": "unsigned long long", "f": "float", "d": "double"}
HEAD = """
__device__ __forceinline__ unsigned bits(int x) { return x; }
__device__ __forceinline__ unsigned bits(unsigned x) { return x; }
__device__ __forceinline__ unsigned bits(long long x) { return (unsigned)x ^ (unsigned)(x >> 32) * 31u; }
__device__ __forceinline__ unsigned bits(unsigned long long x) { return (unsigned)x ^ (unsigned)(x >> 32) * 31u; }
__device__ __forceinline__ unsigned bits(float x) { return x != x ? 0x7fc00000u : __float_as_uint(x); }
__device__ __forceinline__ unsigned bits(double x) { return x != x ? 7u : bits(__double_as_longlong(x)); }
"""


class Writer:
    """Writes one kernel."""

    def __init__(self, seed: int, kinds: str) -> None:
        self.random = random.Random(seed)
        self.kinds = kinds
        self.lines: list[str] = []
        self.names: dict[str, list[str]] = {k: [] for k in kinds}
        self.count = 0
        self.depth = 1
        self.divergent = False

    # -- expressions ---------------------------------------------------------------------------------------------------
    def pick(self, kind: str) -> str:
        """A variable or literal of a type."""
        if self.names[kind] and self.random.random() < 0.85:
            return self.random.choice(self.names[kind])
        if kind == "f":
            return self.random.choice(["1.5f", "-0.25f", "3.0e38f", "1e-40f", "0.1f", "-7.0f", "16777217.0f", "0.0f"])
        if kind == "d":
            return self.random.choice(["1.5", "-0.25", "1e300", "4e-310", "0.1", "-7.0", "9007199254740993.0", "0.0"])
        literal = self.random.choice([0, 1, 2, 3, 7, 31, 32, 255, 4096, 65535, 0x7FFFFFFF, self.random.getrandbits(32)])
        suffix = {"i": "", "u": "u", "l": "ll", "m": "ull"}[kind]
        return f"({TYPES[kind]}){literal}u" if kind == "i" else f"{literal}{suffix}"

    def expression(self, kind: str, depth: int = 2) -> str:
        if depth == 0 or self.random.random() < 0.15:
            return self.pick(kind)
        if self.random.random() < 0.15:
            return self.conversion(kind, depth)
        a, b = self.expression(kind, depth - 1), self.expression(kind, depth - 1)
        if kind in "fd":
            return self.floating(kind, a, b, depth)
        return self.integer(kind, a, b, depth)

    def conversion(self, kind: str, depth: int) -> str:
        other = self.random.choice(self.kinds)
        inner = self.expression(other, depth - 1)
        if {kind, other} == {"u", "f"} and self.random.random() < 0.5:
            return f"__float_as_uint({inner})" if kind == "u" else f"__uint_as_float({inner})"
        return f"({TYPES[kind]})({inner})"

    def integer(self, kind: str, a: str, b: str, depth: int) -> str:
        wide = kind in "lm"
        mask = 63 if wide else 31
        operation = self.random.randrange(19)
        if operation < 4:
            return f"({a} {'+-*'[operation % 3]} {b})"
        if operation < 7:
            return f"({a} {'&|^'[operation - 4]} {b})"
        if operation == 7:
            return f"({a} << ({b} & {mask}))"
        if operation == 8:
            return f"({a} >> ({b} & {mask}))"
        if operation == 9:
            return f"({a} / ({b} | 1))"
        if operation == 10:
            return f"({a} % ({b} | 3))"
        if operation in (11, 12):
            return f"{self.random.choice(['min', 'max'])}({a}, {b})"
        if operation == 13:
            return f"({self.condition(depth - 1)} ? {a} : {b})"
        if operation == 14:
            return f"(~{a} + {b})"
        call = self.random.choice(["__popc", "__clz", "__ffs", "__brev"]) + ("ll" if wide else "")
        if operation == 15:
            return f"({TYPES[kind]}){call}({a})"
        if operation == 16 and not wide:
            return f"({TYPES[kind]})__byte_perm({a}, {b}, {self.random.getrandbits(16)}u)"
        if operation == 17 and not wide:
            return f"({TYPES[kind]})__funnelshift_{self.random.choice('lr')}({a}, {b}, {self.random.randrange(40)})"
        high = {"i": "__mulhi", "u": "__umulhi", "l": "__mul64hi", "m": "__umul64hi"}[kind]
        return f"{high}({a}, {b})"

    def floating(self, kind: str, a: str, b: str, depth: int) -> str:
        suffix = "f" if kind == "f" else ""
        operation = self.random.randrange(14)
        if operation < 6:
            return f"({a} {'+-*'[operation % 3]} {b})"
        if operation == 6:
            return f"fma{suffix}({a}, {b}, {self.pick(kind)})"
        if operation in (7, 8):
            return f"{self.random.choice(['fmin', 'fmax'])}{suffix}({a}, {b})"
        if operation == 9:
            return f"({self.condition(depth - 1)} ? {a} : {b})"
        if operation == 10:
            return f"fabs{suffix}({a})"
        if operation == 11 and self.random.random() < 0.4:
            return f"({a} / {b})"
        if operation == 12 and self.random.random() < 0.4:
            return f"sqrt{suffix}({a})"
        return f"{self.random.choice(['floor', 'ceil', 'trunc', 'rint'])}{suffix}({a})"

    def condition(self, depth: int) -> str:
        kind = self.random.choice(self.kinds)
        test = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        first = f"({self.expression(kind, max(depth, 0))} {test} {self.pick(kind)})"
        if self.random.random() < 0.25:
            return f"({first} {self.random.choice(['&&', '||'])} {self.condition(depth - 1)})"
        return first

    # -- statements ----------------------------------------------------------------------------------------------------
    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def declare(self, kind: str, value: str) -> None:
        name = f"{kind}{self.count}"
        self.count += 1
        self.put(f"{TYPES[kind]} {name} = {value};")
        self.names[kind].append(name)

    def assign(self) -> None:
        kind = self.random.choice(self.kinds)
        if self.names[kind] and (self.depth > 1 or self.random.random() < 0.6):
            target = self.random.choice(self.names[kind])
            self.put(f"{target} = {self.expression(kind)};")
        elif self.depth == 1:
            self.declare(kind, self.expression(kind))

    def nested(self, statements: int) -> None:
        self.depth += 1
        before, self.divergent = self.divergent, True
        for _ in range(statements):
            self.statement()
        self.divergent = before
        self.depth -= 1

    def statement(self) -> None:
        choice = self.random.random()
        if choice < 0.6 or self.depth > 3:
            self.assign()
        elif choice < 0.72:
            self.put(f"if ({self.condition(1)}) {{")
            self.nested(self.random.randint(1, 3))
            if self.random.random() < 0.5:
                self.put("} else {")
                self.nested(self.random.randint(1, 3))
            self.put("}")
        elif choice < 0.80:
            counter = f"k{self.count}"
            self.count += 1
            self.put(f"for (int {counter} = 0; {counter} < (int)({self.expression('u', 1)} & 7u); {counter}++) {{")
            self.nested(self.random.randint(1, 2))
            if self.random.random() < 0.3:
                self.put(f"    if ({self.condition(1)}) {self.random.choice(['break', 'continue'])};")
            self.put("}")
        elif choice < 0.84:
            self.put(f"switch ({self.expression('u', 1)} & 3u) {{")
            for case in range(self.random.randint(2, 4)):
                self.put(f"case {case}: {{")
                self.nested(1)
                self.put("} break;")
            self.put("}")
        elif choice < 0.88:
            # words of its own for each operation: mixed on one word their order would matter
            number = self.random.randrange(len(ATOMICS))
            slot = f"{SLOTS * number} + ({self.expression('u', 1)} & {SLOTS - 1}u)"
            self.put(f"atomic{ATOMICS[number]}(&sums[{slot}], {self.expression('u', 1)});")
        elif choice < 0.92:
            self.put(f"scratch[{self.expression('u', 1)} & 7u] = {self.expression('u', 1)};")
            self.put(f"{self.names['u'][0]} ^= scratch[{self.expression('u', 1)} & 7u];")
        elif not self.divergent:
            self.exchange()
        else:
            self.assign()

    def exchange(self) -> None:
        """Something that all lanes of a warp, or all threads of a block, do together."""
        source = self.expression("u", 1)
        choice = self.random.randrange(5)
        if choice == 0:
            mode = self.random.choice(["xor", "up", "down"])
            self.declare("u", f"__shfl_{mode}_sync(0xffffffffu, {source}, {self.random.randrange(1, 32)})")
        elif choice == 1:
            self.declare("u", f"__shfl_sync(0xffffffffu, {source}, (int)({self.expression('u', 1)} & 31u))")
        elif choice == 2:
            self.declare("u", f"__ballot_sync(0xffffffffu, {self.condition(1)})")
        elif choice == 3:
            self.put(f"shared[threadIdx.x] = {source};")
            self.put("__syncthreads();")
            self.declare("u", f"shared[(threadIdx.x * {self.random.choice([1, 3, 5, 7])} + 1) & {THREADS - 1}]")
            self.put("__syncthreads();")
        else:
            self.declare("u", f"__syncthreads_count({self.condition(1)})")

    def kernel(self, name: str) -> str:
        """The whole kernel."""
        self.lines = []
        self.put(f"__shared__ unsigned shared[{THREADS}];")
        self.put("unsigned scratch[8];")
        self.put("int thread = blockIdx.x * blockDim.x + threadIdx.x;")
        self.put("for (int k = 0; k < 8; k++) scratch[k] = in[(thread + k) & 63];")
        for word in range(2):
            self.declare("u", f"in[{WORDS_IN} * thread + {word}]")
        for kind in self.kinds:
            word = f"in[{WORDS_IN} * thread + {self.random.randrange(WORDS_IN)}]"
            if kind == "f":
                self.declare(kind, self.random.choice([f"__uint_as_float({word})", f"(float)(int){word}"]))
            elif kind == "d":
                self.declare(kind, f"__hiloint2double((int){word}, (int)u0)")
            else:
                self.declare(kind, f"({TYPES[kind]}){word}")
        for _ in range(self.random.randint(8, 16)):
            self.statement()
        written = [name for kind in self.kinds for name in self.names[kind]]
        for word in range(WORDS_OUT):
            chosen = self.random.sample(written, min(2, len(written)))
            joined = " ^ ".join(f"bits({n}) * {2 * k + 1}u" for k, n in enumerate(chosen))
            self.put(f"out[{WORDS_OUT} * thread + {word}] = {joined};")
        body = "\n".join(self.lines)
        return f'extern "C" __global__ void {name}(const unsigned* in, unsigned* out, unsigned* sums) {{\n{body}\n}}\n'


def source(first_seed: int, count: int) -> tuple[str, list[str]]:
    """Text and kernel names of ``count`` kernels, seeds from ``first_seed`` on."""
    texts, names = [HEAD], []
    for seed in range(first_seed, first_seed + count):
        kinds = ["u", "iu", "ulmi", "uf", "iuf", "ud", "iulmfd"][seed % 7]
        name = f"random_{seed}"
        texts.append(Writer(seed, kinds).kernel(name))
        names.append(name)
    return "\n".join(texts), names
