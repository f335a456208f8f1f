"""Integers: 64 bits, division, bit fields, permutes, video instructions, dot products, packs."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.errors import UnsupportedError

ARCHS = ["sm_75", "sm_100", "sm_120"]
LISTING = """
s32_div: int -> int: a / b
s32_mod: int -> int: a % b
u32_div: unsigned -> unsigned: a / b
u32_mod: unsigned -> unsigned: a % b
s64_div: long long -> long long: a / b
s64_mod: long long -> long long: a % b
u64_div: unsigned long long -> unsigned long long: a / b
u64_mod: unsigned long long -> unsigned long long: a % b
s32_div7: int -> int: a / 7 + a % -13
u64_div7: unsigned long long -> unsigned long long: a / 7 + a % 13
s64_div7: long long -> long long: a / -7 + a % 13
s64_mul: long long -> long long: a * b + c
u64_mulhi: unsigned long long -> unsigned long long: __umul64hi(a, b)
s64_mulhi: long long -> long long: __mul64hi(a, b)
s32_mulhi: int -> int: __mulhi(a, b)
s64_shl: long long -> long long: a << (b & 63)
s64_shr: long long -> long long: a >> (b & 63)
u64_shr: unsigned long long -> unsigned long long: a >> (b & 63)
s64_compare: long long -> int: (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a > c)
u64_compare: unsigned long long -> int: (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a > c)
s64_min: long long -> long long: min(a, b)
u64_max: unsigned long long -> unsigned long long: max(a, b)
s64_abs: long long -> long long: llabs(a)
s64_neg: long long -> long long: -a - b
s64_select: long long -> long long: a > b ? b : c
popc64: unsigned long long -> int: __popcll(a)
clz64: unsigned long long -> int: __clzll(a)
ffs64: unsigned long long -> int: __ffsll(a)
brev64: unsigned long long -> unsigned long long: __brevll(a)
clz: unsigned -> int: __clz(a)
ffs: unsigned -> int: __ffs(a)
brev: unsigned -> unsigned: __brev(a)
funnel_l: unsigned -> unsigned: __funnelshift_l(a, b, c)
funnel_r: unsigned -> unsigned: __funnelshift_r(a, b, c)
funnel_lc: unsigned -> unsigned: __funnelshift_lc(a, b, c)
funnel_rc: unsigned -> unsigned: __funnelshift_rc(a, b, c)
perm: unsigned -> unsigned: __byte_perm(a, b, c)
sad: int -> unsigned: __sad(a, b, c)
usad: unsigned -> unsigned: __usad(a, b, c)
dp4a: int -> int: __dp4a(a, b, c)
dp4a_u: unsigned -> unsigned: __dp4a(a, b, c)
dp2a_lo: int -> int: __dp2a_lo(a, b, c)
dp2a_hi: int -> int: __dp2a_hi(a, b, c)
dp2a_u: unsigned -> unsigned: __dp2a_lo(a, b, c)
absdiff4: unsigned -> unsigned: __vabsdiffu4(a, b)
absdiff4_s: unsigned -> unsigned: __vabsdiffs4(a, b)
sad4: unsigned -> unsigned: __vsadu4(a, b)
add2: unsigned -> unsigned: __vadd2(a, b)
sub2: unsigned -> unsigned: __vsub2(a, b)
add_us2: unsigned -> unsigned: __vaddus2(a, b)
add_ss4: unsigned -> unsigned: __vaddss4(a, b)
min_s2: unsigned -> unsigned: __vmins2(a, b)
max_u4: unsigned -> unsigned: __vmaxu4(a, b)
addmax: int -> int: __viaddmax_s32(a >> 1, b >> 1, c)
addmax_relu: int -> int: __viaddmax_s32_relu(a >> 1, b >> 1, c)
addmin_u: unsigned -> unsigned: __viaddmin_u32(a >> 1, b >> 1, c)
addmax2: unsigned -> unsigned: __viaddmax_s16x2(a & 0x3fff3fff, b & 0x3fff3fff, c)
addmin2_relu: unsigned -> unsigned: __viaddmin_s16x2_relu(a & 0x3fff3fff, b & 0x3fff3fff, c)
max3: int -> int: __vimax3_s32(a, b, c)
max3_relu: int -> int: __vimax3_s32_relu(a, b, c)
min3_u: unsigned -> unsigned: __vimin3_u32(a, b, c)
max3_2: unsigned -> unsigned: __vimax3_s16x2(a, b, c)
min3_u2: unsigned -> unsigned: __vimin3_u16x2(a, b, c)
max_relu2: unsigned -> unsigned: __vimax_s16x2_relu(a, b)
max_which: unsigned -> unsigned: which(a, b)
saturating: int -> int: saturate(a, b, c)
clamp_narrow: int -> unsigned: clamp(a)
pack_u16: int -> unsigned: pack(a, b)
"""
HEAD = """
__device__ unsigned which(unsigned a, unsigned b) {
    bool high, low;
    unsigned m = __vibmax_s16x2(a, b, &high, &low);
    return m ^ (high ? 1 : 0) ^ (low ? 2 : 0);
}
__device__ int saturate(int a, int b, int c) {
    int r;
    asm("add.sat.s32 %0, %1, %2; sub.sat.s32 %0, %0, %3;" : "=&r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
__device__ unsigned clamp(int a) {
    int r, s, t;
    asm("cvt.sat.s8.s32 %0, %1;" : "=r"(r) : "r"(a));
    asm("cvt.sat.u8.s32 %0, %1;" : "=r"(s) : "r"(a));
    asm("cvt.sat.u16.u32 %0, %1;" : "=r"(t) : "r"(a));
    return (r & 255) | s << 8 | t << 16;
}
__device__ unsigned pack(int a, int b) {
    unsigned r;
    asm("cvt.pack.sat.u16.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
"""


@pytest.fixture(scope="module", params=ARCHS)
def run(request, elementwise):
    return elementwise(LISTING, request.param, HEAD)


def operands(bits, count=1500):
    random = np.random.default_rng(bits)
    kind = np.uint64 if bits == 64 else np.uint32
    edges = [
        0,
        1,
        2,
        3,
        7,
        31,
        32,
        33,
        63,
        64,
        2**31 - 1,
        2**31,
        2**32 - 1,
        2**32,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64 - 7,
    ]
    edges = np.array([e & (2**bits - 1) for e in edges], kind)
    found = []
    for _ in range(3):
        wide = random.integers(0, 2**64, count, dtype=np.uint64).astype(kind) >> random.integers(0, bits, count).astype(
            kind
        )
        found.append(np.concatenate([random.choice(edges, 600), wide, ~wide[:300]]))
    return found


def whole(values, signed, bits):
    """Python integers."""
    values = values.tolist()
    return [v - (1 << bits) if signed and v >> (bits - 1) else v for v in values]


def check(run, name, bits, function, out_bits=None, signed=False, skip_zero=False):
    a, b, c = operands(bits)
    if skip_zero:
        b = np.where(b == 0, b.dtype.type(5), b)
    types = {64: (np.uint64, np.int64), 32: (np.uint32, np.int32)}
    out_bits = out_bits or bits
    result = run(name, types[out_bits][0], *(v.view(types[bits][int(signed)]) for v in (a, b, c)))
    numbers = zip(*(whole(v, signed, bits) for v in (a, b, c)), strict=True)
    mask = (1 << out_bits) - 1
    expected = [function(*n) & mask for n in numbers]
    wrong = [
        (hex(int(x)), hex(e), n) for x, e, n in zip(result, expected, zip(a, b, c, strict=True), strict=True) if x != e
    ]
    assert not wrong, (name, wrong[:4])


def quotient(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def test_division(run):
    for bits in (32, 64):
        for signed in (False, True):
            prefix = f"{'s' if signed else 'u'}{bits}"
            check(run, f"{prefix}_div", bits, lambda a, b, c: quotient(a, b), signed=signed, skip_zero=True)
            check(run, f"{prefix}_mod", bits, lambda a, b, c: a - quotient(a, b) * b, signed=signed, skip_zero=True)
    check(run, "s32_div7", 32, lambda a, b, c: quotient(a, 7) + a - quotient(a, -13) * -13, signed=True)
    check(run, "u64_div7", 64, lambda a, b, c: a // 7 + a % 13)
    check(run, "s64_div7", 64, lambda a, b, c: quotient(a, -7) + a - quotient(a, 13) * 13, signed=True)


def test_division_by_zero_does_not_stop(run):
    """What the machine code gives: all ones for quotients of 32 bits."""
    a, zero = np.array([0, 1, 7, 2**31], np.uint32), np.zeros(4, np.uint32)
    assert (run("u32_div", np.uint32, a, zero) == 0xFFFFFFFF).all()


def test_products_and_shifts_of_64_bits(run):
    check(run, "s64_mul", 64, lambda a, b, c: a * b + c, signed=True)
    check(run, "u64_mulhi", 64, lambda a, b, c: a * b >> 64)
    check(run, "s64_mulhi", 64, lambda a, b, c: a * b >> 64, signed=True)
    check(run, "s32_mulhi", 32, lambda a, b, c: a * b >> 32, signed=True)
    check(run, "s64_shl", 64, lambda a, b, c: a << (b & 63), signed=True)
    check(run, "s64_shr", 64, lambda a, b, c: a >> (b & 63), signed=True)
    check(run, "u64_shr", 64, lambda a, b, c: a >> (b & 63))


def test_choices_of_64_bits(run):
    def tests(a, b, c):
        return (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a > c)

    check(run, "s64_compare", 64, tests, 32, signed=True)
    check(run, "u64_compare", 64, tests, 32)
    check(run, "s64_min", 64, lambda a, b, c: min(a, b), signed=True)
    check(run, "u64_max", 64, lambda a, b, c: max(a, b))
    check(run, "s64_abs", 64, lambda a, b, c: abs(a), signed=True)
    check(run, "s64_neg", 64, lambda a, b, c: -a - b, signed=True)
    check(run, "s64_select", 64, lambda a, b, c: b if a > b else c, signed=True)


def test_bits(run):
    check(run, "popc64", 64, lambda a, b, c: a.bit_count(), 32)
    check(run, "clz64", 64, lambda a, b, c: 64 - a.bit_length(), 32)
    check(run, "ffs64", 64, lambda a, b, c: (a & -a).bit_length(), 32)
    check(run, "brev64", 64, lambda a, b, c: int(f"{a:064b}"[::-1], 2))
    check(run, "clz", 32, lambda a, b, c: 32 - a.bit_length())
    check(run, "ffs", 32, lambda a, b, c: (a & -a).bit_length())
    check(run, "brev", 32, lambda a, b, c: int(f"{a:032b}"[::-1], 2))
    check(run, "funnel_l", 32, lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32)
    check(run, "funnel_r", 32, lambda a, b, c: (b << 32 | a) >> (c & 31))
    check(run, "funnel_lc", 32, lambda a, b, c: ((b << 32 | a) << min(c, 32)) >> 32)
    check(run, "funnel_rc", 32, lambda a, b, c: (b << 32 | a) >> min(c, 32))

    def permuted(a, b, c):
        bytes_ = (b << 32 | a).to_bytes(8, "little")
        return sum(bytes_[c >> (4 * k) & 7] << (8 * k) for k in range(4))

    check(run, "perm", 32, permuted)


def parts(value, bits, signed):
    found = [value >> shift & ((1 << bits) - 1) for shift in range(0, 32, bits)]
    return [p - (1 << bits) if signed and p >> (bits - 1) else p for p in found]


def joined(values, bits):
    return sum((v & ((1 << bits) - 1)) << (bits * k) for k, v in enumerate(values))


def lanewise(bits, signed, function):
    def compute(*words):
        return joined([function(*v) for v in zip(*(parts(w, bits, signed) for w in words), strict=True)], bits)

    return compute


def test_differences_and_dot_products(run):
    check(run, "sad", 32, lambda a, b, c: abs(a - b) + c, signed=True)
    check(run, "usad", 32, lambda a, b, c: abs(a - b) + c)

    def dot(bits_a, signed, which):
        def compute(a, b, c):
            first, second = parts(a & 0xFFFFFFFF, bits_a, signed), parts(b & 0xFFFFFFFF, 8, signed)[which]
            return c + sum(x * y for x, y in zip(first, second, strict=True))

        return compute

    check(run, "dp4a", 32, dot(8, True, slice(0, 4)), signed=True)
    check(run, "dp4a_u", 32, dot(8, False, slice(0, 4)))
    check(run, "dp2a_lo", 32, dot(16, True, slice(0, 2)), signed=True)
    check(run, "dp2a_hi", 32, dot(16, True, slice(2, 4)), signed=True)
    check(run, "dp2a_u", 32, dot(16, False, slice(0, 2)))
    check(run, "absdiff4", 32, lanewise(8, False, lambda a, b, c: abs(a - b)))
    check(run, "absdiff4_s", 32, lanewise(8, True, lambda a, b, c: abs(a - b)))
    check(
        run,
        "sad4",
        32,
        lambda a, b, c: sum(abs(x - y) for x, y in zip(parts(a, 8, False), parts(b, 8, False), strict=True)),
    )


def test_packed_sums_and_choices(run):
    check(run, "add2", 32, lanewise(16, False, lambda a, b, c: a + b))
    check(run, "sub2", 32, lanewise(16, False, lambda a, b, c: a - b))
    check(run, "add_us2", 32, lanewise(16, False, lambda a, b, c: min(a + b, 0xFFFF)))
    check(run, "add_ss4", 32, lanewise(8, True, lambda a, b, c: min(max(a + b, -128), 127)))
    check(run, "min_s2", 32, lanewise(16, True, lambda a, b, c: min(a, b)))
    check(run, "max_u4", 32, lanewise(8, False, lambda a, b, c: max(a, b)))
    check(run, "addmax", 32, lambda a, b, c: max((a >> 1) + (b >> 1), c), signed=True)
    check(run, "addmax_relu", 32, lambda a, b, c: max((a >> 1) + (b >> 1), c, 0), signed=True)
    check(run, "addmin_u", 32, lambda a, b, c: min((a >> 1) + (b >> 1), c))
    check(run, "addmax2", 32, lanewise(16, True, lambda a, b, c: max((a & 0x3FFF) + (b & 0x3FFF), c)))
    check(run, "addmin2_relu", 32, lanewise(16, True, lambda a, b, c: max(0, min((a & 0x3FFF) + (b & 0x3FFF), c))))
    check(run, "max3", 32, max, signed=True)
    check(run, "max3_relu", 32, lambda a, b, c: max(a, b, c, 0), signed=True)
    check(run, "min3_u", 32, min)
    check(run, "max3_2", 32, lanewise(16, True, max))
    check(run, "min3_u2", 32, lanewise(16, False, min))
    check(run, "max_relu2", 32, lanewise(16, True, lambda a, b, c: max(a, b, 0)))

    def which(a, b, c):
        (a_low, a_high), (b_low, b_high) = parts(a, 16, True), parts(b, 16, True)
        return joined([max(a_low, b_low), max(a_high, b_high)], 16) ^ (a_high >= b_high) ^ 2 * (a_low >= b_low)

    check(run, "max_which", 32, which)


def test_clamping(run):
    def limited(value, low, high):
        return min(max(value, low), high)

    def twice(a, b, c):
        return limited(limited(a + b, -(2**31), 2**31 - 1) - c, -(2**31), 2**31 - 1)

    check(run, "saturating", 32, twice, signed=True)
    check(
        run,
        "clamp_narrow",
        32,
        signed=True,
        function=lambda a, b, c: (
            limited(a, -128, 127) & 255 | limited(a, 0, 255) << 8 | min(a & 0xFFFFFFFF, 0xFFFF) << 16
        ),
    )
    check(run, "pack_u16", 32, lambda a, b, c: limited(a, 0, 0xFFFF) << 16 | limited(b, 0, 0xFFFF), signed=True)


MODES = {
    "F4E": ["3210", "4321", "5432", "6543"],
    "B4E": ["5670", "6701", "7012", "0123"],
    "RC8": ["0000", "1111", "2222", "3333"],
    "ECL": ["3210", "3211", "3222", "3333"],
    "ECR": ["0000", "1110", "2210", "3210"],
    "RC16": ["1010", "3232", "1010", "3232"],
}


@pytest.mark.parametrize("mode", MODES)
def test_permute_modes(evaluate, mode):
    """The byte tables as the PTX ISA prints them, highest byte first."""
    data = b"\x10\x21\x32\x43\x54\x65\x76\x87"
    a, c = np.frombuffer(data, np.uint32)
    for selector in range(8):
        word = evaluate(f"PRMT.{mode} R0, R1, R2, R3", a, np.uint32(selector), c)[0, 0]
        wanted = bytes(data[int(d)] for d in reversed(MODES[mode][selector % 4]))
        assert int(word).to_bytes(4, "little") == wanted


def test_permute_replicates_signs(evaluate):
    a, c = np.uint32(0x8001FF7F), np.uint32(0x00800000)
    for text in ("PRMT R0, R1, R2, R3", "PRMT R0, R1, 0xe9b8, R3"):
        given = (a, np.uint32(0xE9B8), c)
        assert evaluate(text, *given)[0, 0] == 0xFFFFFF00


def test_packs_of_bytes_keep_what_was_there(evaluate):
    word = evaluate("I2IP.S8.S32.SAT R0, R1, R2, R3", np.int32(-1000), np.int32(5), np.uint32(0xAABBCCDD))
    assert word[0, 0] == 0xCCDD8005


def test_signs_as_truth_values(evaluate, meaning):
    p, q = evaluate(
        "PLOP3.LUT P0, P1, R0.SIGN, P2, PT, 0xc0, 0xf0",
        np.array([-5, 5], np.int32),
        np.array([True, True]),
        np.array([True]),
    )
    assert p.tolist() == [[True, False]] and q.tolist() == [[True, False]]
    with pytest.raises(UnsupportedError):
        meaning("PLOP3.LUT P0, P1, R0, P2, PT, 0xc0, 0xf0")


@pytest.mark.parametrize(
    "text",
    [
        "VIMNMX.U8x4 R0, P0, P1, R1, R2, PT",
        "VIADD.ISAT R0, R1, R2",
        "VABSDIFF4.U8 R0, R1, R2, R3",
        "IDP.4A.S8 R0, R1, R2, R3",
        "IDP.2A.LO.S8.S8 R0, R1, R2, R3",
        "PRMT.XYZ R0, R1, R2, R3",
        "I2I.S8.S32 R0, R1",
        "I2F.S8 R0, -R1",
        "IMNMX.S64 P0, PT, R0, R2, R4, PT, !PT",
        "IMNMX.S64 PT, PT, R0, R2, R4, PT, P0",
        "FSWZADD R0, R1, R2, PPPP",
        "LOP3.LUT P0, R0, R1, R2, R3, 0xc0, P1",
    ],
)
def test_unknown_forms_are_refused(meaning, text):
    with pytest.raises(UnsupportedError):
        meaning(text)
