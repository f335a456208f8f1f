"""Calls through pointers (kernels/calls.cu), printf and assert, on several architectures, against plain Python."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim.machine import printf, runtime

SOURCE = Path(__file__).parent / "kernels" / "calls.cu"
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
SHAPES = ((3, 96, 270), (1, 33, 33), (2, 256, 500), (1, 16, 16))
i32 = np.int32


@cache
def module(arch: str) -> gpusim.Module:
    return gpusim.compile(SOURCE, arch=arch)


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def triple(x: int) -> int:
    return wrap(3 * x + 1)


def flip(x: int) -> int:
    return x ^ 0x55


def square(x: int) -> int:
    return wrap(sum(x * k for k in range(x & 7)) - 7)


def sum_down(x: int) -> int:
    return 1 if x <= 0 else x + sum_down(x - 1)


def pointer_in_loop(i: int, x: int, n: int) -> int:
    f = triple if n & 1 else flip
    k = 0
    while k < x & 3:  # the bound changes with x
        x = f(wrap(x + k))
        k += 1
        f = square if x & 1 else triple
    return x


def pointer_as_argument(i: int, x: int, n: int) -> int:
    f = square if x & 2 else flip
    return f(wrap(f(x) + 1))


def table_in_constant(i: int, x: int, n: int, block: int) -> int:
    table = (square, flip, triple)
    return table[n % 3](x) + table[block % 3](i)


def virtual_by_lane(i: int, x: int, n: int) -> int:
    width = n & 15
    return (n * n + x) if x & 1 else (3 * width - x) * (2 + width)


def virtual_by_block(i: int, x: int, n: int, block: int) -> int:
    return n * n + x + 1 if block & 1 else 10 - x + 4


REFERENCES = {
    "table_in_global": lambda i, x, n, b: (triple, flip, square, flip)[x & 3](x),
    "table_in_constant": table_in_constant,
    "pointer_in_loop": lambda i, x, n, b: pointer_in_loop(i, x, n),
    "pointer_as_argument": lambda i, x, n, b: pointer_as_argument(i, x, n),
    "recursion_by_pointer": lambda i, x, n, b: sum_down(x & 7),
    "even_recursion_by_pointer": lambda i, x, n, b: sum_down(n & 7) + x,
    "virtual_by_lane": lambda i, x, n, b: virtual_by_lane(i, x, n),
    "virtual_by_block": virtual_by_block,
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", REFERENCES)
def test_calls_through_pointers_do_what_the_functions_do(name, arch):
    for grid, block, n in SHAPES:
        given = np.random.default_rng(n).integers(-(2**31), 2**31, n, i32)
        out = np.full(2 * n + 64, 77, i32)
        result = module(arch)[name].launch(grid, block, [given, out, i32(n)])
        used = min(n, grid * block)
        expected = [wrap(REFERENCES[name](i, int(given[i]), n, i // block)) for i in range(used)]
        assert out[:used].tolist() == expected
        assert (out[used:] == 77).all()
        calls = [i for i in result.instructions if "CALL.REL.NOINC R" in i.sass]
        assert sum(i.executed for i in calls) >= grid


def test_every_kernel_of_the_file_has_a_reference():
    assert set(module("sm_90")) == set(REFERENCES)


def test_a_pointer_to_nothing_is_named_with_its_thread():
    source = """
    typedef int (*Function)(int);
    __device__ __noinline__ int one(int x) { return x + 1; }
    __device__ Function table[2] = {one, one};
    extern "C" __global__ void wild(int *out)
    {
        if (threadIdx.x == 35)
            ((long long *)table)[1] = 1 << 20;
        __syncthreads();
        out[threadIdx.x] = table[threadIdx.x / 40](threadIdx.x);
    }"""
    for arch in ("sm_75", "sm_90"):
        kernel = gpusim.compile(source, arch=arch)["wild"]
        with pytest.raises(
            gpusim.ExecutionError, match=r"no function of this kernel.*thread \(40, 0, 0\) of block \(0"
        ):
            kernel.launch(1, 64, [np.zeros(64, i32)])


# -- printf -----------------------------------------------------------------------------------------------------------
CONVERSIONS = (
    ("%d|%i|%5d|%-5d|%05d|%+d|% d|%.3d|%8.3d|%-8.3d|%+.0d|%ld|%lld|%hd|%hhd", "idlq"),
    ("%u|%x|%X|%o|%#x|%#X|%#o|%08x|%-8x|%.5x|%#10.4x|%#.0o|%lu|%llx|%hu|%hhu", "idlq"),
    ("%f|%F|%e|%E|%g|%G|%.0f|%#.0f|%10.3f|%-12.4e|%+g|% f|%015.2f|%.10g|%#g|%lf", "f"),
    ("%a|%A|%.0a|%.1a|%.5a|%20.3a|%-20.2a|%+a|%020a|%.15a|%#.0a", "f"),
)


def c_text(form: str, value: int | float) -> str:
    """What the C library writes."""
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(4096)
    argument = ctypes.c_double(value) if isinstance(value, float) else ctypes.c_longlong(value)
    libc.snprintf(buffer, 4096, form.encode(), argument)
    return buffer.value.decode()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with the C library")
@pytest.mark.parametrize(("forms", "kind"), CONVERSIONS)
def test_conversions_equal_those_of_c(forms, kind):
    rng = np.random.default_rng(3)
    if kind == "f":
        exponents = rng.integers(-320, 308, 40)
        values = [0.0, -0.0, 1.0, 0.5, 1 / 3, 2.5, 3.5, 1e16, 5e-324, float("inf"), float("-inf"), float("nan")]
        values += [float(m * 10.0**e) for m, e in zip(rng.normal(size=40), exponents, strict=True)]
        values += [float(x) for x in rng.normal(size=40)]
    else:
        values = [0, 1, 7, 8, 255, -1, -128, 2**31 - 1, -(2**31), 65536, 2**40 + 5, -(2**63), 2**63 - 1, 12345]
    for form in forms.split("|"):
        pieces = printf.parse(form.encode())
        size = printf.argument_bytes(pieces)
        assert size == (8 if kind == "f" or "l" in form else 4)
        for value in values:
            raw = np.array([value]).tobytes()[:size]
            assert printf.render(pieces, raw, lambda at: b"") == c_text(form, value), (form, value)


def test_arguments_are_aligned_and_counted():
    pieces = printf.parse(b"%c%% %lld %s %*.*f %hhd%")
    assert printf.argument_count(pieces) == 7
    packed = np.zeros(48, np.uint8)
    packed[0] = ord("x")
    packed[8:16] = np.array([-5]).view(np.uint8)
    packed[16:24] = np.array([99]).view(np.uint8)
    packed[24:32] = np.array([9, 2], i32).view(np.uint8)
    packed[32:40] = np.array([2.345678]).view(np.uint8)
    packed[40:44] = np.array([-257], i32).view(np.uint8)
    assert printf.argument_bytes(pieces) == 44
    assert (
        printf.render(pieces, packed.tobytes(), lambda at: b"text" if at == 99 else b"?") == "x% -5 text      2.35 -1%"
    )


SPEAKING = """
#include <cstdio>
extern "C" __global__ void speak(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    char own[4] = {'a' + i % 26, 'b', 0, 0};
    __shared__ char ours[8];
    if (threadIdx.x == 0)
        ours[0] = 's', ours[1] = '0' + blockIdx.x, ours[2] = 0;
    __syncthreads();
    int r = 0;
    if (i < n && in[i] & 1)
        r = printf("odd %d %s %s %.3f %lld\\n", i, own, ours, in[i] * 0.25, (long long)in[i] << 33);
    if (i < n)
        r += 100 * printf("done %c%%\\n", 'A' + i % 26);
    out[i] = r;
}
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_printf_prints_block_by_block_in_order_of_execution(arch):
    n = 70
    given = np.random.default_rng(1).integers(-1000, 1000, n, i32)
    out = np.zeros(96, i32)
    result = gpusim.compile(SPEAKING, arch=arch)["speak"].launch(3, 32, [given, out, i32(n)])
    expected = ""
    for block in range(3):
        lanes = [i for i in range(32 * block, 32 * block + 32) if i < n]
        for i in lanes:
            if given[i] & 1:
                text = f"{chr(97 + i % 26)}b s{block}"
                expected += f"odd {i} {text} {given[i] * 0.25:.3f} {int(given[i]) << 33}\n"
        expected += "".join(f"done {chr(65 + i % 26)}%\n" for i in lanes)
    assert result.output == expected
    assert out[:n].tolist() == [100 + (5 if x & 1 else 0) for x in given] and not out[n:].any()
    assert result.exactness == "modelled" and any("printf" in caveat for caveat in result.caveats)
    assert result.to_json()["output"] == expected


def test_a_kernel_without_output_has_none():
    result = gpusim.compile('extern "C" __global__ void quiet(int *a) { a[0] = 1; }')["quiet"].launch(
        1, 1, [np.zeros(1, i32)]
    )
    assert result.output == "" and result.exactness == "exact"


def test_output_is_bounded(monkeypatch):
    monkeypatch.setattr(runtime, "OUTPUT_LIMIT", 1000)
    source = '#include <cstdio>\nextern "C" __global__ void chat() { printf("%09d\\n", threadIdx.x); }'
    text = gpusim.compile(source)["chat"].launch(4, 256, []).output
    assert text.startswith("000000000\n000000001\n") and text.count("\n000000") < 100
    assert "924 more calls of printf" in text


def test_the_device_runtimes_other_functions_are_named():
    source = 'extern "C" __global__ void allocate(int **out) { out[threadIdx.x] = (int *)malloc(4); }'
    with pytest.raises(gpusim.UnsupportedError, match=r"calls malloc.*CALL\.ABS"):
        gpusim.compile(source)["allocate"].launch(1, 1, [np.zeros(1, np.uint64)])


# -- assert -----------------------------------------------------------------------------------------------------------
FAILING = """
#include <cassert>
extern "C" __global__ void check(const int *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(in[i] < n && "too large");
}
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_a_failed_assertion_names_itself_and_the_first_thread(arch):
    kernel = gpusim.compile(FAILING, arch=arch, filename="checks.cu")["check"]
    given = np.zeros(128, i32)
    assert kernel.launch((1, 2), 64, [given, i32(5)]).exactness == "exact"
    given[37] = given[50] = 9
    with pytest.raises(gpusim.ExecutionError) as caught:
        kernel.launch(2, 64, [given, i32(5)])
    message = str(caught.value)
    assert 'in[i] < n && "too large"' in message and "checks.cu:6, in check" in message
    assert "first by thread (37, 0, 0) of block (0, 0, 0)" in message and "\n" not in message
    assert caught.value.exit_code == 2


# What an H200 printed for these lanes (driver 580): number i and the word in[i].
SPOKEN = {
    (40, 1971816842): (
        "40 -40 1971816842 7587898a 7587898A 16541704612 o|odd|   40|40   |00040|+40| 40|0x28|050|%",
        "14.800000 4.000000e+11 4e-06 0x1.4p+4 13.333       5.71 4.00e+06  | 4E-09 1.000000E+02 0X1P+2 40.000000",
    ),
    (88, 2774570482): (
        "88 -88 2774570482 a56095f2 A56095F2 24530112762 k|odd|   88|88   |00088|+88| 88|0x58|0130|%",
        "32.560000 8.800000e+11 8.8e-06 0x1.6p+5 29.333      12.57 8.80e+06  | "
        "8.8E-09 2.200000E+02 0X1.199999999999AP+3 88.000000",
    ),
    (0, 733537704): (
        "0 0 733537704 2bb8e5a8 2BB8E5A8 5356162650 a|even|    0|0    |00000|+0| 0|0|0|%",
        "0.000000 0.000000e+00 0 0x0p+0 0.000       0.00 0.00e+00  | 0 0.000000E+00 0X0P+0 0.000000",
    ),
}


def test_the_text_is_that_of_the_hardware():
    source = r"""
    extern "C" __global__ void say(int i, unsigned x)
    {
        printf("%d %i %u %x %X %o %c|%s|%5d|%-5d|%05d|%+d|% d|%#x|%#o|%%\n", i, -i, x, x, x, x, 'a' + i % 26,
               i & 8 ? "odd" : "even", i, i, i, i, i, i, i);
        printf("%f %e %g %a %.3f %10.2f %-10.2e| %G %E %A %F\n", i * 0.37, i * 1e10, i * 1e-7, i * 0.5, i / 3.0,
               i / 7.0, i * 1e5, 1e-10 * i, i * 2.5, i * 0.1, i * 1.0);
    }"""
    kernel = gpusim.compile(source)["say"]
    for (number, word), lines in SPOKEN.items():
        assert kernel.launch(1, 1, [i32(number), np.uint32(word)]).output == "".join(f"{line}\n" for line in lines)


# Formats, what an H200 printed, and what printf returned: kernels of one call each (n is 5).
RECORDED = (
    (r'printf("")', "", 0),
    (r'printf("[%d]\n", 5, 6, 7)', "[5]\n", 1),
    (r'printf("[%q] [%d]\n", 1, 2)', "[%] [1]\n", 1),
    (r'printf("%f %f %f %e %g %a\n", 1. / (n - 5), -1. / (n - 5), (double)(n - 5) / (n - 5), 1e300 * 1e10, 0.0, -0.0)',
     "inf -inf -nan inf 0 -0x0p+0\n", 6),
    (r'printf("null [%s]\n", (const char*)0)', "null [(null)]\n", 1),
    (r'printf("%5c|%-5c|\n", 120, 121)', "    x|y    |\n", 2),
    (r'printf("%+.3d|%.0d|%8.3d|%-8.3x|%#8.3x|%08.3d\n", 7, 0, 7, 255, 255, 7)',
     "+007||     007|0ff     |   0x0ff|     007\n", 6),
    (r'printf("tail %")', "tail %", 0),
    (r'printf("%p %p %10p|%-10p|\n", (void*)1, (void*)0, (void*)16, (void*)17)',
     "0x1 (nil)       0x10|0x11      |\n", 4),
    (r'printf("%20.5a|%g|%#g|%.10g\n", 3.14, 1000000.0, 1.0, 0.1)', "        0x1.91eb8p+1|1e+06|1.00000|0.1\n", 4),
    (r'printf("%d %s %f %c %lld\n", 1, "two", 3.0, 52, 5LL)', "1 two 3.000000 4 5\n", 5),
    (r'printf("%5s|%-5s|%.2s|%d\n", "ab", "cd", "wxyz", 9)', "   ab|cd   |wx|9\n", 4),
    (r'printf("%ld %lu %lx %llx %d\n", 1L<<40, 1ul<<41, 1ul<<42, 1ull<<43, 8)',
     "1099511627776 2199023255552 40000000000 80000000000 8\n", 5),
    (r'printf("%%|%c%c\n", 65, 66)', "%|AB\n", 2),
    (r'printf("%-+5d|% 05d|%+ d|%#o\n", 1, 3, 5, 0)', "+1   | 0003|+5|0\n", 4),
)  # fmt: skip
# For these the same GPU printed "0|1949825288", "5|140182981966088|0", "...|26661 32" and
# "1     |2     |0.000|-1598555896".
OTHER_WORDS = (
    (r'printf("%zu|%d\n", (size_t)(1ull<<40), 3)', "%zu"),
    (r'printf("%jd|%td|%d\n", 5LL, 6LL, 7)', "%jd"),
    (r'printf("%hu %hhu %ho %hx|%hd %hhd\n", 0x12345, 0x12345, 0x12345, 0x12345, 0x1ffff, 0x1ff)', "%hhu"),
    (r'printf("%*d|%-*d|%.*f|%d\n", -6, 1, 6, 2, 3, 8.5, 4)', r"%\.\*f"),
)


def say(call: str) -> tuple[gpusim.Result, int]:
    source = f'#include <cstdio>\nextern "C" __global__ void say(int *out, int n) {{ out[0] = {call}; }}'
    out = np.zeros(1, i32)
    return gpusim.compile(source)["say"].launch(1, 1, [out, i32(5)]), int(out[0])


@pytest.mark.parametrize(("call", "text", "returned"), RECORDED)
def test_printf_prints_and_returns_what_an_h200_does(call, text, returned):
    result, value = say(call)
    assert (result.output, value) == (text, returned)


@pytest.mark.parametrize(("call", "conversion"), OTHER_WORDS)
def test_conversions_that_an_h200_does_not_know_are_refused(call, conversion):
    with pytest.raises(gpusim.UnsupportedError, match=f"printf with {conversion}: CUDA documents no such"):
        say(call)


def test_a_format_without_its_arguments_is_an_error_as_on_an_h200():
    with pytest.raises(gpusim.ExecutionError, match="cannot read 4 bytes of arguments at 0x0"):
        say(r'printf("a %d\n")')


def test_a_call_into_another_section_is_refused_by_name():
    source = """typedef int (*Function)(int);
    extern "C" __global__ void other(int *out) { out[1] = 7; }
    extern "C" __global__ void caller(int *out, unsigned long long where) { out[0] = ((Function)where)(5); }"""
    module = gpusim.compile(source)
    where = np.uint64(module.linked.addresses["other"])
    with pytest.raises(gpusim.UnsupportedError, match=r"a call of other, .*separately compiled functions.*CALL"):
        module["caller"].launch(1, 1, [np.zeros(2, i32), where])
