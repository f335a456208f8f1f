"""Small stand-ins for C and C++ headers that kernels include by habit.

NVRTC comes without a host's standard library, yet almost every ``.cu`` file starts with ``#include <cstdio>`` or
``<stdint.h>``.  Device code needs little of them: ``printf``, ``memcpy`` and the mathematical functions are built in,
so the integer types, limits and ``assert`` are what is missing.  Only headers whose whole use in device code is that
little are here; ``<vector>`` or ``<iostream>`` stay errors, which the compiler reports with the user's line.

CUDA's own library (cuda/std) defines the same types and limits; where it is installed its headers are used, so that
both can be included together.
"""

from __future__ import annotations

import hashlib

_STDDEF = "typedef decltype(sizeof(0)) size_t;\ntypedef decltype((char*)0 - (char*)0) ptrdiff_t;\n"
_LIMITS = """
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN (-128)
#define CHAR_MAX 127
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295U
#define LONG_MIN (-9223372036854775807L - 1)
#define LONG_MAX 9223372036854775807L
#define ULONG_MAX 18446744073709551615UL
#define LLONG_MIN (-9223372036854775807LL - 1)
#define LLONG_MAX 9223372036854775807LL
#define ULLONG_MAX 18446744073709551615ULL
"""
_FLOAT = """
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_EPSILON 1.19209290e-7f
#define FLT_MIN 1.17549435e-38f
#define FLT_MAX 3.402823466e+38f
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_MIN 2.2250738585072014e-308
#define DBL_MAX 1.7976931348623158e+308
"""
_MATH = """
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LN2 0.69314718055994530942
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_SQRT2 1.41421356237309504880
#endif
"""
_ASSERT = """
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
extern "C" __device__ void __assertfail(const char*, const char*, unsigned int, const char*, decltype(sizeof(0)));
#define assert(condition) ((condition) ? (void)0 : __assertfail(#condition, __FILE__, __LINE__, __func__, sizeof(char)))
#endif
"""


def _stdint() -> str:
    names = {8: "char", 16: "short", 32: "int", 64: "long"}
    lines = []
    for bits, name in names.items():
        for kind in ("", "_least", "_fast"):
            lines.append(f"typedef signed {name} int{kind}{bits}_t;\ntypedef unsigned {name} uint{kind}{bits}_t;")
        suffix = "L" if bits == 64 else ""
        largest = (1 << (bits - 1)) - 1
        lines.append(f"#define INT{bits}_MAX {largest}{suffix}\n#define INT{bits}_MIN (-{largest}{suffix} - 1)")
        lines.append(f"#define UINT{bits}_MAX {(1 << bits) - 1}{'UL' if bits == 64 else 'U' if bits == 32 else ''}")
    lines.append("typedef long intptr_t;\ntypedef unsigned long uintptr_t;")
    lines.append("typedef long intmax_t;\ntypedef unsigned long uintmax_t;")
    return "\n".join(lines) + "\n"


def _prefer_cuda(names: tuple[str, ...], text: str) -> str:
    """The text, or CUDA's own header of that purpose where there is one."""
    own = f"cuda/std/{names[1]}"
    if names[1] not in ("cstdint", "cstddef", "climits"):
        return text
    return f"#if __has_include(<{own}>)\n#include <{own}>\n#else\n{text}#endif\n"


def _in_std(*names: str) -> str:
    return f"namespace std {{ {' '.join(f'using ::{name};' for name in names)} }}\n"


def _all() -> dict[str, str]:
    contents = {
        ("stdint.h", "cstdint", "inttypes.h", "cinttypes"): _stdint(),
        ("stddef.h", "cstddef"): _STDDEF,
        ("stdio.h", "cstdio", "stdlib.h", "cstdlib", "string.h", "cstring"): "",
        ("limits.h", "climits"): _LIMITS,
        ("float.h", "cfloat"): _FLOAT,
        ("math.h", "cmath"): _MATH,
    }
    found = {name: f"#pragma once\n{_prefer_cuda(names, text)}" for names, text in contents.items() for name in names}
    found["cstdint"] += _in_std(*(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)), "uintptr_t")
    found["cstddef"] += _in_std("size_t", "ptrdiff_t")
    return found | dict.fromkeys(("assert.h", "cassert"), _ASSERT)  # may be included again after NDEBUG changed


#: Header name to content.
HEADERS = _all()
#: Changes with the content: part of the key of every cached compilation.
HEADERS_DIGEST = hashlib.sha256(repr(sorted(HEADERS.items())).encode()).hexdigest()[:16]
