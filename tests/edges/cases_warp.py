"""What lanes do together and with memory: exchange, votes, reductions, matrix products, atomics; uniform registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.edges.case import Case
from tests.edges.operands import COUNTS, SPECIAL, WORDS, Array

WARPS = 96  # of a matrix case


def _asm(text: str, result: str, sources: str) -> str:
    return f'asm volatile("{text}" : {result} : {sources}); '


# -- exchange ----------------------------------------------------------------------------------------------------------
BOUNDS = [0x1F, 0x0, 0x1F1F, 0x181F, 0x1C00, 0x1C03, 0x101F, 0x0F0F, 0x0A15, 0x1E1E, 0xFFFF, 0x81F, 0x7]


def _shuffle_inputs() -> tuple[Array, ...]:
    """Data, source lane, bounds: alike in a warp or different in each lane."""
    generator = np.random.default_rng(11)
    bounds = np.repeat(np.array(BOUNDS, np.uint32), 32 * 6)
    rows = len(bounds)
    steps = generator.integers(0, 32, rows).astype(np.uint32)
    steps[::3] = np.repeat(generator.choice(np.array(COUNTS, np.uint32), rows // 32), 32)[::3]
    uniform = np.repeat(np.arange(rows // 32) % 2 == 0, 32)
    steps = np.where(uniform, np.repeat(steps[::32], 32), steps)
    mixed = generator.choice(np.array(BOUNDS, np.uint32), rows)
    bounds = np.where(np.repeat(np.arange(rows // 32) % 6 == 5, 32), mixed, bounds)
    return generator.integers(0, 2**32, rows, np.uint32), steps, bounds


def _vote_inputs() -> tuple[Array, ...]:
    """A word a lane (edges, and warps that agree), and which lanes take part."""
    generator = np.random.default_rng(12)
    rows = 32 * 48
    words = generator.choice(np.array(WORDS, np.uint32), rows)
    words = np.where(np.repeat(np.arange(48) % 4 == 1, 32), np.repeat(words[::32], 32), words)
    words = np.where(np.repeat(np.arange(48) % 4 == 2, 32), words & np.uint32(1), words)
    part = generator.integers(0, 2, rows).astype(np.uint32)
    part[: 32 * 16] = 1
    part[32 * 32 :: 32] = 1
    part[32 * 40 :: 7] = 1
    part[::32] = 1
    return words, part


SPECIAL["shuffle"] = _shuffle_inputs
SPECIAL["vote"] = _vote_inputs


def _exchange() -> Iterator[Case]:
    for mode in ("idx", "up", "down", "bfly"):
        body = (
            "u32 d, p; "
            + _asm(
                f"{{.reg .pred q; shfl.sync.{mode}.b32 %0|q, %2, %3, %4, -1; selp.u32 %1, 1, 0, q;}}",
                '"=r"(d), "=r"(p)',
                '"r"(a), "r"(b), "r"(c)',
            )
            + "put(d); put(p);"
        )
        yield Case(f"shfl_{mode}", "warp", ("shuffle",), body, 2, ("u32", "u32", "u32"))
    masked = "u32 m = __ballot_sync(~0u, b); put(m); if (b) {{ {} }}"
    vote = " ".join(
        (
            "put(__any_sync(m, a & 1)); put(__all_sync(m, a & 1)); put(__uni_sync(m, a & 1));",
            "put(__ballot_sync(m, a & 1)); put(__activemask());",
        )
    )
    yield Case("vote", "warp", ("vote",), masked.format(vote), 6, ("u32", "u32"))
    match = (
        "int p, q; put(__match_any_sync(m, a)); put(__match_all_sync(m, a, &p)); put(p); "
        "put(__match_any_sync(m, (u64)a << 31 | a)); put(__match_all_sync(m, (u64)a << 32, &q)); put(q);"
    )
    yield Case("match", "warp", ("vote",), masked.format(match), 7, ("u32", "u32"))
    for kind, ops in (("u32", ("add", "min", "max")), ("s32", ("add", "min", "max")), ("b32", ("and", "or", "xor"))):
        for op in ops:
            body = "u32 r; " + _asm(f"redux.sync.{op}.{kind} %0, %1, %2;", '"=r"(r)', '"r"(a), "r"(m)') + "put(r);"
            yield Case(f"redux_{op}_{kind}", "warp", ("vote",), masked.format(body), 2, ("u32", "u32"))
    body = "u32 d, p; " + _asm(
        "{.reg .pred q; elect.sync %0|q, %2; selp.u32 %1, 1, 0, q;}", '"=r"(d), "=r"(p)', '"r"(m)'
    )
    yield Case("elect", "warp", ("vote",), masked.format(body + "put(d); put(p);"), 3, ("u32", "u32"))


# -- matrix products ---------------------------------------------------------------------------------------------------
def _float_bits(values: Array, kind: str) -> Array:
    """Values as raw bits of the type (bfloat16 and TF32 by cutting off)."""
    with np.errstate(all="ignore"):
        if kind == "f64":
            return values.view(np.uint64)
        if kind == "f16":
            return values.astype(np.float16).view(np.uint16)
        bits = values.astype(np.float32).view(np.uint32)
    return (bits >> np.uint32(16)).astype(np.uint16) if kind == "bf16" else bits


def _nan_bits(generator: Any, kind: str, count: int) -> Array:
    """NaNs of either sign with any payload."""
    bits, mantissa = {"f16": (16, 10), "bf16": (16, 7), "tf32": (32, 23), "f32": (32, 23), "f64": (64, 52)}[kind]
    payload = generator.integers(1, 1 << mantissa, count, np.uint64)
    payload[::2] &= np.uint64(7 << (mantissa - 3))  # the bits that every width has
    payload[payload == 0] = np.uint64(1 << (mantissa - 1))
    exponent = np.uint64((1 << (bits - 1 - mantissa)) - 1 << mantissa)
    sign = generator.integers(0, 2, count, np.uint64) << np.uint64(bits - 1)
    whole = payload | exponent | sign
    return np.asarray(whole.astype({16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]))


def matrix_values(kind: str, count: int, seed: int, role: str) -> Array:
    """Raw bits, WARPS rows of ``count``: each warp's numbers are of one of twelve sorts.

    Ordinary numbers, wide exponents, powers of two, one large among tiny, subnormals, infinities and NaNs,
    cancellations, large and small addends, zeros of both signs, near overflow, near underflow, NaNs with payloads.
    """
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(WARPS, count))
    spread = {"f16": 14, "bf16": 30, "tf32": 30, "f32": 30, "f64": 60}[kind]
    least = {"f16": -24, "bf16": -130, "tf32": -135, "f32": -145, "f64": -1070}[kind]
    most = {"f16": 15, "bf16": 127, "tf32": 127, "f32": 127, "f64": 1023}[kind]
    for warp in range(WARPS):
        row, sort = values[warp], warp % 12
        if sort == 1:
            row *= 2.0 ** generator.integers(-spread, spread // 2 + 1, count)
        elif sort == 2:
            row[:] = 2.0 ** generator.integers(-spread // 2, spread // 2 + 1, count)
            row *= generator.choice([-1, 1], count)
        elif sort == 3:  # mostly small, few large
            row *= np.where(
                generator.random(count) < 0.06, 2.0 ** (spread - 3), 2.0 ** generator.integers(-9, -3, count)
            )
        elif sort == 4:
            row *= 2.0 ** (least + 5.0) if role != "b" else 1.0
        elif sort == 5:
            row *= np.where(generator.random(count) < 0.03, np.inf, 1.0)
            row[generator.random(count) < 0.01] = np.nan
        elif sort == 6:  # every product and addend of a similar size, signs cancel
            row[:] = generator.choice([1.0, -1.0], count) * (1 + generator.integers(0, 8, count) / 8)
            if role == "c":
                row *= 2.0 ** generator.integers(-28, 28, count)
        elif sort == 7 and role == "c":
            row *= 2.0 ** generator.integers(-30, 12, count)
        elif sort == 8:
            some = 0.01 if role != "c" else 0.3
            row *= np.where(generator.random(count) < some, 1.0, 0.0)
        elif sort == 9:  # sums close to the largest number
            row[:] = np.clip(row, -1.9, 1.9) * 2.0 ** (
                most if role == "c" else most // 2 - generator.integers(0, 2, count)
            )
        elif sort == 10:
            row *= (
                2.0 ** (least + 8.0) if role == "c" else 2.0 ** (generator.integers(least - 12, least + 4, count) / 2)
            )
        elif sort == 11:
            row[generator.random(count) < 0.04] = np.nan
    bits = _float_bits(values, kind)
    invalid = np.isnan(values)
    bits[invalid] = _nan_bits(generator, kind, int(invalid.sum()))
    return bits


def _words(bits: Array) -> Array:
    return np.ascontiguousarray(bits).reshape(-1).view(np.uint32)


def _float_matrix(kind: str, sizes: tuple[int, int, int], kind_c: str, name: str) -> Case:
    """``sizes``: words a lane of a, b and c."""
    each = {"f16": 2, "bf16": 2, "tf32": 1, "f64": 1}[kind]

    def made() -> tuple[Array, ...]:
        seed = 1000 + sum(map(ord, name))
        parts = []
        for place, (role, words) in enumerate(zip("abc", sizes, strict=True)):
            which = kind if role != "c" else kind_c
            count = 32 * words * (each if role != "c" else 2 if kind_c == "f16" else 1)
            bits = matrix_values(which, count, seed + place, role)
            parts.append(bits.reshape(-1) if kind == "f64" else _words(bits))
        return tuple(parts)

    SPECIAL[name] = made
    return _matrix_case(name, sizes, "u64" if kind == "f64" else "u32", _mma_text(name))


def _integer_matrix(name: str, sizes: tuple[int, int, int]) -> Case:
    def made() -> tuple[Array, ...]:
        generator = np.random.default_rng(sum(map(ord, name)))
        parts = []
        for role, words in zip("abc", sizes, strict=True):
            bits = generator.integers(0, 2**32, (WARPS, 32 * words), np.uint32)
            if role == "c":
                bits[::2] = generator.choice(
                    np.array([0x7FFFFFFF, 0x80000000, 0x7FFFFF00, 0], np.uint32), bits[::2].shape
                )
            else:
                bits[::3] = generator.choice(np.array([0x80808080, 0x7F7F7F7F, 0xFFFFFFFF], np.uint32), bits[::3].shape)
            parts.append(bits.reshape(-1))
        return tuple(parts)

    SPECIAL[name] = made
    return _matrix_case(name, sizes, "u32", _mma_text(name))


MATRICES = {
    "mma_f16_k16": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "f16", "f32", (4, 2, 4)),
    "mma_f16_k8": ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "f16", "f32", (2, 1, 4)),
    "mma_f16_k16_f16": ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "f16", "f16", (4, 2, 2)),
    "mma_f16_k8_f16": ("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", "f16", "f16", (2, 1, 2)),
    "mma_bf16_k16": ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "bf16", "f32", (4, 2, 4)),
    "mma_bf16_k8": ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "bf16", "f32", (2, 1, 4)),
    "mma_tf32_k8": ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "tf32", "f32", (4, 2, 4)),
    "mma_tf32_k4": ("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", "tf32", "f32", (2, 1, 4)),
    "mma_f64": ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "f64", "f64", (1, 1, 2)),
    "mma_f64_k16": ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", "f64", "f64", (8, 4, 4)),
    "mma_f64_k8": ("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", "f64", "f64", (4, 2, 4)),
}
INTEGER_MATRICES = {
    "mma_s8_k32": ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", (4, 2, 4)),
    "mma_s8_k32_sat": ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", (4, 2, 4)),
    "mma_u8s8_k16_sat": ("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.s8.s32", (2, 1, 4)),
    "mma_u8_k16": ("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32", (1, 1, 2)),
    "mma_s4_k32": ("mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32", (2, 1, 4)),
    "mma_u4s4_k64_sat": ("mma.sync.aligned.m16n8k64.row.col.satfinite.s32.u4.s4.s32", (4, 2, 4)),
    "mma_b1_and": ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", (4, 2, 4)),
    "mma_b1_xor": ("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc", (2, 1, 4)),
}


def _mma_text(name: str) -> str:
    return str((MATRICES.get(name) or INTEGER_MATRICES[name])[0])


def _matrix_case(name: str, sizes: tuple[int, int, int], word: str, text: str) -> Case:
    words_c = sizes[2]
    letter = "d" if word == "u64" else "r"
    kind = "double" if word == "u64" else "u32"
    place = words_c
    groups = []
    for words in sizes:
        groups.append("{" + ", ".join(f"%{place + k}" for k in range(words)) + "}")
        place += words
    result = "{" + ", ".join(f"%{k}" for k in range(words_c)) + "}"
    outs = ", ".join(f'"={letter}"(r{k})' for k in range(words_c))
    ins = ", ".join(
        f'"{letter}"(p{role}[i * {words} + {k}])'
        for role, words in zip("abc", sizes, strict=True)
        for k in range(words)
    )
    body = f"{kind} {', '.join(f'r{k}' for k in range(words_c))}; " + _asm(
        f"{text} {result}, {', '.join(groups)};", outs, ins
    )
    body += " ".join(f"put(r{k});" for k in range(words_c))
    return Case(
        name, "matrix", (name,), body, words_c * (2 if word == "u64" else 1), (kind,) * 3, grid=(WARPS // 4, 128)
    )


def _matrices() -> Iterator[Case]:
    for name, (_, kind, kind_c, sizes) in MATRICES.items():
        yield _float_matrix(kind, sizes, kind_c, name)
    for name, (_, sizes) in INTEGER_MATRICES.items():
        yield _integer_matrix(name, sizes)
    body = "u32 r; " + _asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;", '"=r"(r)', '"r"(pa[i])') + "put(r);"
    SPECIAL["movmatrix"] = lambda: (np.random.default_rng(5).integers(0, 2**32, 256, np.uint32),)
    yield Case("movmatrix", "matrix", ("movmatrix",), body, 1, ("u32",), grid=(2, 128))


# -- atomics -----------------------------------------------------------------------------------------------------------
def _atomics() -> Iterator[Case]:
    """Each thread its own element: it starts as a, and b is applied to it."""
    floats = (
        ("add.f32", "f32"),
        ("add.f64", "f64"),
        ("add.noftz.f16", "f16"),
        ("add.noftz.bf16", "bf16"),
        ("add.noftz.f16x2", "f16x2"),
        ("add.noftz.bf16x2", "bf16x2"),
    )
    integers = (
        *((f"{op}.{kind}", kind) for op in ("add", "min", "max") for kind in ("u32", "u64")),
        *((f"{op}.s{bits}", f"u{bits}") for op in ("min", "max") for bits in (32, 64)),
        *((f"{op}.b{bits}", f"u{bits}") for op in ("and", "or", "xor", "exch") for bits in (32, 64)),
        ("inc.u32", "u32"),
        ("dec.u32", "u32"),
    )
    letters = {"f32": "f", "f64": "d", "f16": "h", "bf16": "h", "u64": "l"}
    c_types = {"f32": "float", "f64": "double", "f16": "u16", "bf16": "u16", "u64": "u64"}
    for op, kind in (*floats, *integers):
        letter, c_type = letters.get(kind, "r"), c_types.get(kind, "u32")
        words = 2 if kind.endswith("64") else 1
        name = op.replace(".", "_")
        # elements of 16 bits lie in the low half of a word
        place = f"{c_type} *at = ({c_type} *)(out + {2 if words == 2 else 1} * i); *at = a; __syncwarp();"
        if c_type == "u16":
            place = "out[i] = 0; " + place
        text = f"atom.global.{op} %0, [%1], %2;"
        returned = f'{c_type} r; asm volatile("{text}" : "={letter}"(r) : "l"(at), "{letter}"(b) : "memory"); '
        body = f"{place} {returned} put.i += {words} * n; put(r);"
        yield Case(f"atom_{name}", "atomic", (kind, kind), body, 2 * words, (c_type,) * 2)
        if not op.startswith("exch"):
            body = f'{place} asm volatile("red.global.{op} [%0], %1;" :: "l"(at), "{letter}"(b) : "memory");'
            yield Case(f"red_{name}", "atomic", (kind, kind), body, words, (c_type,) * 2)
        if kind not in ("f16", "bf16", "f16x2", "bf16x2"):
            body = (
                f"__shared__ {c_type} s[128]; s[threadIdx.x] = a; __syncwarp(); "
                f'{c_type} r; u32 at = (u32)__cvta_generic_to_shared(s + threadIdx.x); asm volatile("atom.shared.{op} '
                f'%0, [%1], %2;" : "={letter}"(r) : "r"(at), "{letter}"(b) : "memory"); __syncwarp(); '
                "put(s[threadIdx.x]); put(r);"
            )
            yield Case(f"atoms_{name}", "atomic", (kind, kind), body, 2 * words, (c_type,) * 2)
    for bits in (32, 64):
        c_type, letter = f"u{bits}", "rl"[bits // 64]
        body = (
            f"{c_type} *at = ({c_type} *)out + i; *at = a; __syncwarp(); {c_type} r; asm volatile("
            f'"atom.global.cas.b{bits} %0, [%1], %2, %3;" : "={letter}"(r) : "l"(at), "{letter}"(b), "{letter}"(a + 1) '
            f': "memory"); put.i += {bits // 32} * n; put(r);'
        )
        yield Case(f"atom_cas_b{bits}", "atomic", (c_type, c_type), body, bits // 16, (c_type,) * 2)
    body = (
        "float *at = (float *)(out + 4 * i); at[0] = a; at[1] = b; at[2] = -a; at[3] = a; __syncwarp(); asm volatile("
        '"red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(at), "f"(b), "f"(a), "f"(b), "f"(a) : "memory");'
    )
    yield Case("red_v4_f32", "atomic", ("f32", "f32"), body, 4, ("float", "float"))


# -- the uniform data path ---------------------------------------------------------------------------------------------
def _uniform() -> Iterator[Case]:
    """Operands from constant memory at the block's number, so that the compiler computes in uniform registers."""
    both = {
        "u_add": "a + b ;; a - b ;; -a",
        "u_mul": "a * b + 7u ;; __umulhi(a, b) ;; a * 12345u - b",
        "u_shift": "a << (b & 31) ;; a >> (b & 31) ;; (int)a >> (b & 31) ;; __funnelshift_l(a, b, 7)",
        "u_shift_clamp": "b > 31u ? 0u : a << b ;; b > 31u ? 0u : a >> b ;; (int)a >> min(b, 31u)",
        "u_logic": "(a & b) | ~a ;; a ^ b ;; __byte_perm(a, b, 0x5140)",
        "u_lea": "(a << 5) + b ;; b - (a << 3)",
        "u_long": "((u64)a << 32 | b) + ((u64)b << 7) ;; (u64)((long long)(int)a * (int)b) ;; ((u64)a << 32 | b) - a",
        "u_bits": "__popc(a) ;; __clz(b) ;; __ffs(a) ;; __brev(b)",
        "u_choose": "a < b ? a : b ;; (int)a > (int)b ? a + 1 : b ;; ((a < 100u) != (b == 7u)) ? 3u : a",
        "u_field": "(a >> 3) & 0x1ff ;; ((int)a << 7) >> 20 ;; (a & 0xffff0000u) | (b & 0xffff)",
    }
    prologue = "__constant__ u32 edge_words[42] = {" + ", ".join(f"{w:#x}u" for w in WORDS) + "};\n"
    for place, (name, expression) in enumerate(both.items()):
        words = {"u_long": 6, "u_shift": 4, "u_bits": 4, "u_lea": 2}.get(name, 3)
        puts = " ".join(f"put({part.strip()});" for part in expression.split(";;"))
        body = f"u32 a = edge_words[blockIdx.x / 42], b = edge_words[blockIdx.x % 42]; {puts}"
        yield Case(name, "uniform", ("none",), body, words, ("u32",), "" if place else prologue, (42 * 42, 1))


SPECIAL["none"] = lambda: (np.zeros(42 * 42, np.uint32),)


def cases() -> Iterator[Case]:
    for group in (_exchange, _matrices, _atomics, _uniform):
        yield from group()
