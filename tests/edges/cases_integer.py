"""Integer arithmetic, logic, shifts, bit fields, packed numbers, comparisons, division."""

from __future__ import annotations

from collections.abc import Iterator

from tests.edges.case import Case, cpp, ptx

U, UU, UUU = ("u32",), ("u32", "u32"), ("u32", "u32", "u32")
L, LL = ("u64",), ("u64", "u64")
UC, LC = ("u32", "count"), ("u64", "count")


def _arithmetic() -> Iterator[Case]:
    family = "integer"
    yield cpp(family, "iadd3", "a + b + c", UUU)
    yield cpp(family, "iadd3_minus", "a - b - c ;; b - a + c ;; c + 7u - a", UUU, 3)
    yield cpp(family, "iadd_64", "a + b ;; a - b ;; -a", LL, 6)
    chain = (
        'u32 x, y, z; asm volatile("{op}.cc.u32 %0, %3, %4;\\n{op}c.cc.u32 %1, %4, %5;\\n{op}c.u32 %2, %5, %3;"'
        ' : "=r"(x), "=r"(y), "=r"(z) : "r"(a), "r"(b), "r"(c)); put(x); put(y); put(z);'
    )
    for op in ("add", "sub"):
        yield Case(f"carry_{op}", family, UUU, chain.replace("{op}", op), 3)
    for sign in ("u32", "s32"):
        mad = (
            f'u32 x, y, z; asm volatile("mad.lo.cc.{sign} %0, %3, %4, %5;\\nmadc.hi.cc.{sign} %1, %3, %4, %5;\\n'
            'addc.u32 %2, %3, 0;" : "=r"(x), "=r"(y), "=r"(z) : "r"(a), "r"(b), "r"(c)); '
            "put(x); put(y); put(z);"
        )
        yield Case(f"carry_mad_{sign}", family, UUU, mad, 3)
        yield ptx(family, f"mul_hi_{sign}", f"mul.hi.{sign} %0, %1, %2;", "u32", UU)
        yield ptx(family, f"mad_hi_{sign}", f"mad.hi.{sign} %0, %1, %2, %3;", "u32", UUU)
        yield ptx(family, f"mul_wide_{sign}", f"mul.wide.{sign} %0, %1, %2;", "u64", UU)
        yield ptx(family, f"mad_wide_{sign}", f"mad.wide.{sign} %0, %1, %2, %3;", "u64", ("u32", "u32", "u64"))
        yield ptx(family, f"mul24_lo_{sign}", f"mul24.lo.{sign} %0, %1, %2;", "u32", UU)
        yield ptx(family, f"mul24_hi_{sign}", f"mul24.hi.{sign} %0, %1, %2;", "u32", UU)
        yield ptx(family, f"sad_{sign}", f"sad.{sign} %0, %1, %2, %3;", "u32", UUU)
    yield ptx(family, "mad_hi_sat", "mad.hi.sat.s32 %0, %1, %2, %3;", "u32", UUU)
    yield ptx(family, "add_sat", "add.sat.s32 %0, %1, %2;", "u32", UU)
    yield ptx(family, "sub_sat", "sub.sat.s32 %0, %1, %2;", "u32", UU)
    yield cpp(family, "imad", "a * b + c ;; c - a * b ;; a * 12345u - c", UUU, 3)
    yield cpp(family, "mul_hi_64", "__umul64hi(a, b) ;; (u64)__mul64hi((long long)a, (long long)b) ;; a * b", LL, 6)
    yield cpp(
        family,
        "wide_minus",
        "c - (u64)a * b ;; (u64)a * b - c ;; (u64)((long long)(int)a * (int)b - (long long)c)",
        ("u32", "u32", "u64"),
        6,
    )
    for shift in (1, 5, 31):
        yield cpp(family, f"lea_{shift}", f"(a << {shift}) + b ;; b - (a << {shift})", UU, 2)
        yield cpp(
            family,
            f"lea_hi_{shift}",
            f"(a << {shift}) + b ;; ((u64)(long long)(int)a << {shift}) + b ;; "
            f"b - (a << {shift}) ;; b + ((u64)(u32)a << {shift})",
            LL,
            8,
        )
        yield cpp(family, f"lea_sx_{shift}", f"((u64)(long long)(int)a << {shift}) + b", ("u32", "u64"), 2)
    yield cpp(family, "abs_neg", "abs((int)a) ;; -(int)a ;; ~a", U, 3)
    yield cpp(family, "abs_64", "llabs((long long)a) ;; -(long long)a ;; ~a", L, 6)
    for sign in ("u", "s"):
        for op in ("min", "max"):
            yield ptx(family, f"{op}_{sign}32", f"{op}.{sign}32 %0, %1, %2;", "u32", UU)
            yield ptx(family, f"{op}_{sign}64", f"{op}.{sign}64 %0, %1, %2;", "u64", LL)
            yield ptx(family, f"{op}_{sign}16x2", f"{op}.{sign}16x2 %0, %1, %2;", "u32", UU)
    yield ptx(family, "min_relu_s16x2", "min.s16x2.relu %0, %1, %2;", "u32", UU)
    yield ptx(family, "max_relu_s32", "max.s32.relu %0, %1, %2;", "u32", UU)
    yield ptx(family, "min_relu_s32", "min.s32.relu %0, %1, %2;", "u32", UU)
    yield ptx(family, "add_u16x2", "add.u16x2 %0, %1, %2;", "u32", UU)


def _division() -> Iterator[Case]:
    family = "division"
    for sign in ("u", "s"):
        for bits, kinds in ((32, UU), (64, LL), (16, ("u16", "u16"))):
            for op in ("div", "rem"):
                yield ptx(family, f"{op}_{sign}{bits}", f"{op}.{sign}{bits} %0, %1, %2;", f"u{bits}", kinds)


def _logic() -> Iterator[Case]:
    family = "logic"
    every = " ".join(
        f'asm volatile("lop3.b32 %0, %1, %2, %3, {table:#x};" : "=r"(r) : "r"(a), "r"(b), "r"(c)); x ^= r; '
        f"x = (x << 1 | x >> 31) * 0x9E3779B1u;" + (" put(x);" if table % 16 == 15 else "")
        for table in range(256)
    )
    yield Case("lop3_all", family, UUU, f"u32 r, x = 0; {every}", 16)
    tests = " ".join(
        f'asm volatile("{{.reg .pred p; .reg .u32 t; lop3.b32 t, %1, %2, %3, {table:#x}; setp.ne.u32 p, t, 0; '
        'selp.u32 %0, 1, 0, p;}" : "=r"(r) : "r"(a), "r"(b), "r"(c)); put(r);'
        for table in (0x80, 0x96, 0xE8, 0x1)
    )
    yield Case("lop3_test", family, UUU, f"u32 r; {tests}", 4)
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield ptx(family, f"prmt{mode.replace('.', '_')}", f"prmt.b32{mode} %0, %1, %2, %3;", "u32", UUU)
    fixed = " ;; ".join(f"__byte_perm(a, b, {s:#x})" for s in (0x3210, 0x7654, 0x0123, 0x4040, 0x5140, 0x7362))
    yield cpp(family, "prmt_fixed", fixed, UU, 6)
    signs = " ".join(
        f'asm volatile("prmt.b32 %0, %1, %2, {s:#x};" : "=r"(r) : "r"(a), "r"(b)); put(r);'
        for s in (0xBA98, 0xFEDC, 0x8F7C, 0xB3C4)
    )
    yield Case("prmt_signs", family, UU, f"u32 r; {signs}", 4)
    yield cpp(family, "popc", "__popc(a) ;; __clz(a) ;; __ffs(a) ;; __brev(a)", U, 4)
    yield cpp(family, "popc_64", "__popcll(a) ;; __clzll(a) ;; __ffsll(a) ;; __brevll(a)", L, 5)
    for kind in ("u32", "s32", "u64", "s64"):
        wide = kind.endswith("64")
        for mode in ("", ".shiftamt"):
            yield ptx(
                family, f"bfind{mode.replace('.', '_')}_{kind}", f"bfind{mode}.{kind} %0, %1;", "u32", L if wide else U
            )
    yield cpp(family, "select", "a > c ? a : b ;; (int)a < (int)c ? b : a", UUU, 2)
    yield ptx(family, "slct", "slct.u32.s32 %0, %1, %2, %3;", "u32", UUU)
    yield ptx(family, "slct_64", "slct.u64.s32 %0, %1, %2, %3;", "u64", ("u64", "u64", "u32"))
    yield cpp(family, "logic_64", "a & b ;; a | ~b ;; a ^ b", LL, 6)


def _shifts() -> Iterator[Case]:
    family = "shift"
    for op, kinds in (("shl", ("b32", "b64", "b16")), ("shr", ("u32", "s32", "u64", "s64", "u16", "s16", "b32"))):
        for kind in kinds:
            bits = int(kind[1:])
            yield ptx(family, f"{op}_{kind}", f"{op}.{kind} %0, %1, %2;", f"u{bits}", (f"u{bits}", "count"))
    for direction in ("l", "r"):
        for mode in ("clamp", "wrap"):
            yield ptx(
                family,
                f"shf_{direction}_{mode}",
                f"shf.{direction}.{mode}.b32 %0, %1, %2, %3;",
                "u32",
                ("u32", "u32", "count"),
            )
    constant = " ;; ".join(f"__funnelshift_{d}(a, b, {k})" for d in ("l", "r", "lc", "rc") for k in (0, 1, 31, 32, 40))
    yield cpp(family, "shf_constant", constant, UU, 20)
    steps = " ;; ".join(f"(a << {k}) ;; (a >> {k}) ;; ((long long)a >> {k})" for k in (1, 31, 32, 33, 63))
    yield cpp(family, "shift_constant_64", steps, L, 30)
    for kind in ("u32", "s32", "u64", "s64"):
        table = "u64" if kind.endswith("64") else "u32"
        yield ptx(family, f"bfe_{kind}", f"bfe.{kind} %0, %1, %2, %3;", table, (table, "count", "count"))
    for bits in (32, 64):
        body = (
            f'u{bits} r; asm volatile("bfi.b{bits} %0, %1, %2, %3, %4;" : "={"rl"[bits // 64]}"(r) : '
            f'"{"rl"[bits // 64]}"(a), "{"rl"[bits // 64]}"(~a * 3), "r"(b), "r"(c)); put(r);'
        )
        yield Case(f"bfi_b{bits}", family, (f"u{bits}", "count", "count"), body, bits // 32)
    for mode in ("clamp", "wrap"):
        yield ptx(family, f"bmsk_{mode}", f"bmsk.{mode}.b32 %0, %1, %2;", "u32", ("count", "count"))
        for kind in ("u32", "s32"):
            yield ptx(family, f"szext_{mode}_{kind}", f"szext.{mode}.{kind} %0, %1, %2;", "u32", UC)


COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def compare(
    operator: str, names: tuple[str, ...], kind: str, constraint: str, join: str = "", single: bool = False
) -> str:
    """Statements that put one word: bit 2k the k-th comparison's predicate, bit 2k+1 the second (``single``: none)."""
    text = []
    for place, name in enumerate(names):
        other = (
            f"setp.ne.u32 s, %3, 0; {operator}.{name}.{join}.{kind} p|q, %1, %2, s;"
            if join
            else (f"{operator}.{name}.{kind} p|q, %1, %2;")
        )
        if single:
            other = f"{operator}.{name}.{kind} p, %1, %2; setp.ne.u32 q, 0, 0;"
        third = ', "r"(c)' if join else ""
        text.append(
            f'asm volatile("{{.reg .pred p, q, s; .reg .u32 t, w; {other} selp.u32 t, {1 << (2 * place)}, 0, p; '
            f'selp.u32 w, {1 << (2 * place + 1)}, 0, q; or.b32 %0, t, w;}}" : "=r"(r) : "{constraint}"(a), '
            f'"{constraint}"(b){third}); x |= r;'
        )
    return f"u32 r, x = 0; {' '.join(text)} put(x);"


def _compare() -> Iterator[Case]:
    family = "compare"
    for kind in ("u32", "s32", "u64", "s64", "u16", "s16"):
        table = f"u{kind[1:]}"
        constraint = {"16": "h", "32": "r", "64": "l"}[kind[1:]]
        names = COMPARISONS if kind[0] == "s" else (*COMPARISONS, "lo", "ls", "hi", "hs")
        yield Case(f"setp_{kind}", family, (table, table), compare("setp", names, kind, constraint), 1)
        if kind[1:] != "16":
            for join in ("and", "or", "xor"):
                body = compare("setp", COMPARISONS, kind, constraint, join)
                yield Case(f"setp_{join}_{kind}", family, (table, table, "bit"), body, 1, (table, table, "u32"))
    yield ptx(family, "set_u32", "set.gt.u32.u32 %0, %1, %2;", "u32", UU)
    yield ptx(family, "set_f32_s32", "set.le.f32.s32 %0, %1, %2;", "f32", UU)
    sets = " ".join(
        f'asm volatile("{{.reg .pred p, q, s, t; setp.gt.u32 p, %1, 5; setp.lt.s32 q, %1, %2; setp.ne.u32 s, %2, 0; '
        f'{op} selp.u32 %0, 1, 0, t;}}" : "=r"(r) : "r"(a), "r"(b)); put(r);'
        for op in (
            "and.pred t, p, q; xor.pred t, t, s;",
            "or.pred t, p, q; not.pred s, s; and.pred t, t, s;",
            "xor.pred t, p, q; or.pred t, t, s; not.pred t, t;",
        )
    )
    yield Case("predicates", family, UU, f"u32 r; {sets}", 3)


_TWO_OPERANDS = """
vadd2 vsub2 vaddss2 vaddus2 vsubss2 vsubus2 vabsdiffs2 vabsdiffu2 vavgs2 vavgu2 vmaxs2 vmaxu2 vmins2 vminu2
vsads2 vsadu2 vcmpeq2 vcmpgts2 vcmpleu2 vseteq2 vsetgtu2 vhaddu2 vadd4 vsub4 vaddss4 vaddus4 vsubss4 vsubus4
vabsdiffs4 vabsdiffu4 vavgs4 vavgu4 vmaxs4 vmaxu4 vmins4 vminu4 vsads4 vsadu4 vcmpeq4 vcmpgts4 vcmpgtu4
vhaddu4
"""


def _packed() -> Iterator[Case]:
    family = "packed"
    for name in _TWO_OPERANDS.split():
        yield cpp(family, name, f"__{name}(a, b)", UU)
    for name in ("vabs2", "vabsss2", "vneg2", "vnegss2", "vabs4", "vabsss4", "vneg4", "vnegss4"):
        yield cpp(family, name, f"__{name}(a)", U)
    for kind, c_type in (("s32", "int"), ("u32", "u32"), ("s16x2", "u32"), ("u16x2", "u32")):
        for op in ("max", "min"):
            a, b, c = (f"({c_type}){x}" for x in "abc")
            yield cpp(family, f"viadd{op}_{kind}", f"(u32)__viadd{op}_{kind}({a}, {b}, {c})", UUU)
            yield cpp(family, f"vi{op}3_{kind}", f"(u32)__vi{op}3_{kind}({a}, {b}, {c})", UUU)
            if kind[0] == "s":
                yield cpp(family, f"viadd{op}_{kind}_relu", f"(u32)__viadd{op}_{kind}_relu({a}, {b}, {c})", UUU)
                yield cpp(family, f"vi{op}3_{kind}_relu", f"(u32)__vi{op}3_{kind}_relu({a}, {b}, {c})", UUU)
                yield cpp(family, f"vi{op}_{kind}_relu", f"(u32)__vi{op}_{kind}_relu({a}, {b})", UU)
            if kind.endswith("x2"):
                body = f"bool h, l; u32 r = __vib{op}_{kind}(a, b, &h, &l); put(r); put(h); put(l);"
                yield Case(f"vib{op}_{kind}", family, UU, body, 3)
            else:
                body = f"bool p; u32 r = __vib{op}_{kind}({a}, {b}, &p); put(r); put(p);"
                yield Case(f"vib{op}_{kind}", family, UU, body, 2)
    for x in ("u32", "s32"):
        for y in ("u32", "s32"):
            yield ptx(family, f"dp4a_{x}_{y}", f"dp4a.{x}.{y} %0, %1, %2, %3;", "u32", UUU)
            for half in ("lo", "hi"):
                yield ptx(family, f"dp2a_{half}_{x}_{y}", f"dp2a.{half}.{x}.{y} %0, %1, %2, %3;", "u32", UUU)
    for op in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
        yield ptx(family, f"{op}_video", f"{op}.s32.u32.s32.sat %0, %1.b1, %2.h1;", "u32", UU)
        yield ptx(family, f"{op}_video_add", f"{op}.u32.s32.u32.add %0, %1.h0, %2.b3, %3;", "u32", UUU)
    yield ptx(family, "vshl_video", "vshl.u32.u32.u32.clamp %0, %1, %2;", "u32", UC)
    yield ptx(family, "vshr_video", "vshr.s32.s32.u32.wrap %0, %1, %2;", "u32", UC)
    yield ptx(family, "vmad_video", "vmad.s32.s32.u32.sat.shr7 %0, %1.h0, %2.h1, %3;", "u32", UUU)
    yield ptx(family, "vset_video", "vset.u32.s32.lt %0, %1, %2;", "u32", UU)
    for name in ("vabsdiff2", "vadd2", "vmax2", "vavrg2", "vabsdiff4", "vadd4", "vavrg4"):
        yield ptx(family, f"{name}_ptx", f"{name}.u32.s32.u32.sat %0, %1, %2, %3;", "u32", UUU)
        yield ptx(family, f"{name}_ptx_sum", f"{name}.s32.s32.s32.add %0, %1, %2, %3;", "u32", UUU)


def cases() -> Iterator[Case]:
    for group in (_arithmetic, _division, _logic, _shifts, _compare, _packed):
        yield from group()
