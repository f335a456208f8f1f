"""A form under test: a kernel that applies it to operands, one thread a row, and stores the results' raw bits."""

from __future__ import annotations

from dataclasses import dataclass

THREADS = 128

PROLOGUE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef unsigned u32; typedef unsigned long long u64; typedef unsigned short u16;
struct Put {  // stores words one after the other, a plane of n words each
    u32 *out; int n; int i;
    __device__ void operator()(u32 v) { out[i] = v; i += n; }
    __device__ void operator()(int v) { (*this)((u32)v); }
    __device__ void operator()(bool v) { (*this)((u32)v); }
    __device__ void operator()(u16 v) { (*this)((u32)v); }
    __device__ void operator()(float v) { (*this)(__float_as_uint(v)); }
    __device__ void operator()(u64 v) { (*this)((u32)v); (*this)((u32)(v >> 32)); }
    __device__ void operator()(long long v) { (*this)((u64)v); }
    __device__ void operator()(double v) { (*this)((u64)__double_as_longlong(v)); }
};
"""

C_TYPES = {
    "u32": "u32", "count": "u32", "u64": "u64", "f32": "float", "f64": "double", "f16x2": "u32", "bf16x2": "u32",
    "f16": "u16", "bf16": "u16", "u16": "u16", "i32": "int", "i64": "long long",
}  # fmt: skip
CONSTRAINTS = {"u32": "r", "int": "r", "u64": "l", "long long": "l", "float": "f", "double": "d", "u16": "h"}


@dataclass(frozen=True)
class Case:
    """``operands`` are types of operands.inputs; ``body`` uses a, b, c and calls put(...) for ``words`` words in all.

    ``undefined`` says why a result cannot be compared, if so. ``grid``, where given, replaces one thread a row.
    """

    name: str
    family: str
    operands: tuple[str, ...]
    body: str
    words: int
    types: tuple[str, ...] = ()
    prologue: str = ""
    grid: tuple[int, int] | None = None

    @property
    def c_types(self) -> tuple[str, ...]:
        return self.types or tuple(C_TYPES[kind] for kind in self.operands)

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        return f"edge_{self.name}"

    def source(self) -> str:
        """The kernel: pa, pb, pc are the arrays, a, b, c this thread's elements."""
        types = self.c_types
        parameters = "".join(f"const {kind} *p{name}, " for kind, name in zip(types, "abcd", strict=False))
        loads = "".join(f"    {kind} {name} = p{name}[i];\n" for kind, name in zip(types, "abcd", strict=False))
        if self.grid is not None:
            loads = ""
        return (
            f'{self.prologue}extern "C" __global__ void {self.kernel}({parameters}u32 *out, int n)\n{{\n'
            "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i >= n) return;\n    Put put{out, n, i};\n"
            f"{loads}    {self.body}\n}}\n"
        )


WORDS_OF = {"u64": 2, "i64": 2, "f64": 2}


def ptx(
    family: str, name: str, text: str, result: str, operands: tuple[str, ...], inputs: tuple[str, ...] = ()
) -> Case:
    """A case of one PTX statement with result %0 and operands %1, ...; ``inputs``: other operand tables."""
    names = "abc"[: len(operands)]
    sources = ", ".join(f'"{CONSTRAINTS[C_TYPES[kind]]}"({x})' for kind, x in zip(operands, names, strict=True))
    c_type = C_TYPES[result]
    body = f'{c_type} r; asm volatile("{text}" : "={CONSTRAINTS[c_type]}"(r) : {sources}); put(r);'
    tables = inputs or tuple({"i32": "u32", "i64": "u64"}.get(kind, kind) for kind in operands)
    types = tuple(C_TYPES[kind] for kind in operands)
    return Case(name, family, tables, body, WORDS_OF.get(result, 1), types)


def cpp(family: str, name: str, expression: str, operands: tuple[str, ...], words: int = 1) -> Case:
    """A case of a C++ expression, or several separated by ';;'."""
    body = " ".join(f"put({part.strip()});" for part in expression.split(";;"))
    tables = tuple({"i32": "u32", "i64": "u64"}.get(kind, kind) for kind in operands)
    return Case(name, family, tables, body, words, tuple(C_TYPES[kind] for kind in operands))
