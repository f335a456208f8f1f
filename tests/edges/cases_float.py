"""Single, double and half precision and bfloat16: arithmetic, extremes, comparisons, conversions, special functions."""

from __future__ import annotations

from collections.abc import Iterator

from tests.edges.case import Case, cpp, ptx
from tests.edges.cases_integer import compare

F, FF, FFF = ("f32",), ("f32",) * 2, ("f32",) * 3
D, DD, DDD = ("f64",), ("f64",) * 2, ("f64",) * 3
FLOAT_COMPARISONS = (
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
)  # fmt: skip


def _arithmetic() -> Iterator[Case]:
    for op, kinds, text in (
        ("add", FF, "%1, %2"),
        ("sub", FF, "%1, %2"),
        ("mul", FF, "%1, %2"),
        ("fma", FFF, "%1, %2, %3"),
    ):
        for mode in ("rn", "rz", "rm", "rp"):
            for ftz in ("", ".ftz"):
                for sat in ("", ".sat"):
                    if op == "sub" and (mode != "rn" or sat):
                        continue
                    name = f"{op}_{mode}{ftz}{sat}".replace(".", "_")
                    yield ptx("single", name, f"{op}.{mode}{ftz}{sat}.f32 %0, {text};", "f32", kinds)
            if op != "sub":
                doubles = tuple("f64" for _ in kinds)
                yield ptx("double", f"{op}_{mode}_f64", f"{op}.{mode}.f64 %0, {text};", "f64", doubles)
    for mode in ("rn", "rz", "rm", "rp"):
        text = f"fma.{mode}.ftz.f32 %0, %1, %2, %3;"
        yield ptx("single", f"fma_{mode}_ftz_least", text, "f32", FFF, ("least_f32",))
    for more in ("", ".sat", ".relu"):
        name, text = f"fma_ftz{more.replace('.', '_')}_least", f"fma.rn.ftz{more}.f16x2 %0, %1, %2, %3;"
        yield ptx("half", name, text, "f16x2", ("f16x2",) * 3, ("least_f16",))
    yield ptx("single", "mul_ftz_least", "mul.ftz.f32 %0, %1, %2;", "f32", FF, ("least_f32",))
    yield ptx("half", "mul_ftz_least_f16", "mul.rn.ftz.f16x2 %0, %1, %2;", "f16x2", ("f16x2",) * 2, ("least_f16",))
    yield cpp("single", "marks", "fabsf(a) + -fabsf(b) ;; -a * fabsf(b) ;; fmaf(-a, b, -a) ;; -fabsf(a) - b", FF, 4)
    yield cpp("double", "marks_f64", "fabs(a) + -fabs(b) ;; -a * fabs(b) ;; fma(-a, b, -a) ;; -fabs(a) - b", DD, 8)
    constants = " ;; ".join(f"a + {x} ;; a * {x} ;; {x} - a" for x in ("1.5f", "1e-40f", "3.4e38f", "0.0f", "-0.0f"))
    yield cpp("single", "constants", constants, F, 15)
    for ftz in ("", ".ftz"):
        suffix = ftz.replace(".", "_")
        yield ptx("single", f"abs{suffix}_f32", f"abs{ftz}.f32 %0, %1;", "f32", F)
        yield ptx("single", f"neg{suffix}_f32", f"neg{ftz}.f32 %0, %1;", "f32", F)
        yield ptx("single", f"slct{suffix}_f32", f"slct{ftz}.f32.f32 %0, %1, %2, %3;", "f32", FFF)
        for op in ("min", "max"):
            for nan in ("", ".NaN"):
                for sign in ("", ".xorsign.abs"):
                    name = f"{op}{ftz}{nan}{sign}_f32".replace(".", "_").lower()
                    yield ptx("single", name, f"{op}{ftz}{nan}{sign}.f32 %0, %1, %2;", "f32", FF)
        body = compare("setp", FLOAT_COMPARISONS, f"{ftz[1:]}.f32".removeprefix("."), "f").replace("..", ".")
        yield Case(f"setp_f32{suffix}", "single", FF, body, 1)
        for kind in ("u32", "f32"):
            body = " ".join(
                f'asm volatile("set.{name}{ftz}.{kind}.f32 %0, %1, %2;" : "={"f" if kind == "f32" else "r"}"(r) : '
                f'"f"(a), "f"(b)); x |= (r != 0) << {place}; if (r != 0) y = r;'
                for place, name in enumerate(FLOAT_COMPARISONS)
            )
            yield Case(
                f"set_{kind}_f32{suffix}",
                "single",
                FF,
                f"{'float' if kind == 'f32' else 'u32'} r, y = 0; u32 x = 0; {body} put(x); put(y);",
                2,
            )
        for join in ("and", "or", "xor"):
            body = compare("setp", ("lt", "geu", "nan"), "f32", "f", join)
            yield Case(f"setp_{join}_f32{suffix}", "single", ("f32", "f32", "bit"), body, 1, ("float", "float", "u32"))
    yield ptx("single", "copysign_f32", "copysign.f32 %0, %1, %2;", "f32", FF)
    yield ptx("double", "copysign_f64", "copysign.f64 %0, %1, %2;", "f64", DD)
    yield cpp("single", "select_f32", "a > b ? a : b ;; a < b ? b : 2.5f", FF, 2)
    yield ptx("double", "min_f64", "min.f64 %0, %1, %2;", "f64", DD)
    yield ptx("double", "max_f64", "max.f64 %0, %1, %2;", "f64", DD)
    yield ptx("double", "abs_f64", "abs.f64 %0, %1;", "f64", D)
    yield ptx("double", "neg_f64", "neg.f64 %0, %1;", "f64", D)
    yield Case("setp_f64", "double", DD, compare("setp", FLOAT_COMPARISONS, "f64", "d"), 1)
    for join in ("and", "or", "xor"):
        yield Case(
            f"setp_{join}_f64",
            "double",
            ("f64", "f64", "bit"),
            compare("setp", ("lt", "geu", "nan"), "f64", "d", join),
            1,
            ("double", "double", "u32"),
        )
    for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        for kind, constraint, table in (("f32", "f", F), ("f64", "d", D)):
            body = (
                f'u32 r; asm volatile("{{.reg .pred p; testp.{test}.{kind} p, %1; selp.u32 %0, 1, 0, p;}}" : '
                f'"=r"(r) : "{constraint}"(a)); put(r);'
            )
            yield Case(f"testp_{test}_{kind}", "single" if kind == "f32" else "double", table, body, 1)


def _halves() -> Iterator[Case]:
    for kind in ("f16", "bf16"):
        one, two = kind, f"{kind}x2"
        brain = kind == "bf16"
        flushes = ("",) if brain else ("", ".ftz")
        for width in (one, two):
            suffix = f"_{width}"
            for ftz in flushes:
                f = ftz.replace(".", "_")
                for op in ("add", "sub", "mul"):
                    for sat in ("",) if brain else ("", ".sat"):
                        name = f"{op}_rn{f}{sat.replace('.', '_')}{suffix}"
                        yield ptx("half", name, f"{op}.rn{ftz}{sat}.{width} %0, %1, %2;", width, (width,) * 2)
                for more in ("", ".relu") if brain else ("", ".sat", ".relu"):
                    name = f"fma_rn{f}{more.replace('.', '_')}{suffix}"
                    yield ptx("half", name, f"fma.rn{ftz}{more}.{width} %0, %1, %2, %3;", width, (width,) * 3)
                for op in ("min", "max"):
                    for nan in ("", ".NaN"):
                        for sign in ("", ".xorsign.abs"):
                            name = f"{op}{ftz}{nan}{sign}{suffix}".replace(".", "_").lower()
                            yield ptx("half", name, f"{op}{ftz}{nan}{sign}.{width} %0, %1, %2;", width, (width,) * 2)
                yield ptx("half", f"abs{f}{suffix}", f"abs{ftz}.{width} %0, %1;", width, (width,))
                yield ptx("half", f"neg{f}{suffix}", f"neg{ftz}.{width} %0, %1;", width, (width,))
            constraint = "h" if width == one else "r"
            for ftz in flushes:
                f = ftz.replace(".", "_")
                names = FLOAT_COMPARISONS
                body = compare("setp", names, f"{ftz[1:]}.{width}".removeprefix("."), constraint, single=width == one)
                yield Case(f"setp{f}{suffix}", "half", (width, width), body, 1)
                for result in ("u32",) if width == one else ("u32", width):
                    each = " ".join(
                        f'asm volatile("set.{n}{ftz}.{result}.{width} %0, %1, %2;" : "=r"(r) : "{constraint}"(a), '
                        f'"{constraint}"(b)); put(r);'
                        for n in names
                    )
                    yield Case(f"set_{result}{f}{suffix}", "half", (width, width), f"u32 r; {each}", len(names))
        for join in ("and", "or", "xor"):
            body = compare("setp", ("lt", "geu", "nan"), two, "r", join)
            yield Case(f"setp_{join}_{two}", "half", (two, two, "bit"), body, 1, ("u32", "u32", "u32"))
        yield ptx("half", f"tanh_{one}", f"tanh.approx.{one} %0, %1;", one, (one,), (f"{one}all",))
        yield ptx("half", f"tanh_{two}", f"tanh.approx.{two} %0, %1;", two, (two,))
        ftz = ".ftz" if brain else ""
        yield ptx("half", f"ex2_{one}", f"ex2.approx{ftz}.{one} %0, %1;", one, (one,), (f"{one}all",))
        yield ptx("half", f"ex2_{two}", f"ex2.approx{ftz}.{two} %0, %1;", two, (two,))
    for name in (
        "hrcp",
        "hsqrt",
        "hrsqrt",
        "hlog2",
        "hexp2",
        "hsin",
        "hcos",
        "hexp",
        "hlog",
        "hrint",
        "hfloor",
        "htrunc",
        "hceil",
    ):
        yield cpp("half", name, f"__half_as_ushort({name}(__ushort_as_half(a)))", ("f16",))
        yield cpp("half", f"{name}_bf16", f"__bfloat16_as_ushort({name}(__ushort_as_bfloat16(a)))", ("bf16",))
    yield cpp("half", "hdiv", "__half_as_ushort(__hdiv(__ushort_as_half(a), __ushort_as_half(b)))", ("f16",) * 2)
    yield cpp(
        "half",
        "hdiv_bf16",
        "__bfloat16_as_ushort(__hdiv(__ushort_as_bfloat16(a), __ushort_as_bfloat16(b)))",
        ("bf16",) * 2,
    )


INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
MODES = ("rn", "rz", "rm", "rp")


def _register(kind: str) -> str:
    """The C operand type of a PTX type."""
    if kind in ("f32", "f64", "f16", "bf16"):
        return kind
    return "u64" if kind[1:] == "64" else "u16" if kind[1:] == "16" else "u32"


def _from_integers() -> Iterator[Case]:
    for kind in INTEGERS:
        for target in ("f32", "f64", "f16", "bf16")[: 3 if kind.endswith("8") else 4]:
            for mode in MODES:
                yield ptx(
                    "convert",
                    f"cvt_{mode}_{target}_{kind}",
                    f"cvt.{mode}.{target}.{kind} %0, %1;",
                    target,
                    (_register(kind),),
                )


def _to_integers() -> Iterator[Case]:
    for source in ("f32", "f64", "f16", "bf16"):
        for kind in INTEGERS[2 if source == "bf16" else 0 :]:
            for mode in ("rni", "rzi", "rmi", "rpi"):
                for ftz in ("", ".ftz") if source == "f32" and kind in ("s32", "u64") else ("",):
                    name = f"cvt_{mode}{ftz.replace('.', '_')}_{kind}_{source}"
                    yield ptx("convert", name, f"cvt.{mode}{ftz}.{kind}.{source} %0, %1;", _register(kind), (source,))
    for mode in ("rni", "rzi", "rmi", "rpi"):
        for kind in ("f32", "f64", "f16", "bf16"):
            if kind == "bf16":
                yield ptx("convert", f"round_{mode}_{kind}", f"cvt.{mode}.{kind}.{kind} %0, %1;", kind, (kind,))
                continue
            for ftz in ("", ".ftz") if kind == "f32" else ("",):
                for sat in ("", ".sat"):
                    name = f"round_{mode}{ftz}{sat}_{kind}".replace(".", "_")
                    yield ptx("convert", name, f"cvt.{mode}{ftz}{sat}.{kind}.{kind} %0, %1;", kind, (kind,))


def _between_floats() -> Iterator[Case]:
    family = "convert"
    for mode in MODES:
        for sat in ("", ".sat"):
            for ftz in ("", ".ftz"):
                name = f"cvt_{mode}{ftz}{sat}_f32_f64".replace(".", "_")
                yield ptx(family, name, f"cvt.{mode}{ftz}{sat}.f32.f64 %0, %1;", "f32", D)
                name = f"cvt_{mode}{ftz}{sat}_f16_f32".replace(".", "_")
                yield ptx(family, name, f"cvt.{mode}{ftz}{sat}.f16.f32 %0, %1;", "f16", F)
            yield ptx(
                family, f"cvt_{mode}{sat.replace('.', '_')}_f16_f64", f"cvt.{mode}{sat}.f16.f64 %0, %1;", "f16", D
            )
        yield ptx(family, f"cvt_{mode}_bf16_f64", f"cvt.{mode}.bf16.f64 %0, %1;", "bf16", D)
        yield ptx(family, f"cvt_{mode}_bf16_f16", f"cvt.{mode}.bf16.f16 %0, %1;", "bf16", ("f16",))
        yield ptx(family, f"cvt_{mode}_f16_bf16", f"cvt.{mode}.f16.bf16 %0, %1;", "f16", ("bf16",))
    for sat in ("", ".sat"):
        for ftz in ("", ".ftz"):
            for target, source in (("f64", "f32"), ("f32", "f16"), ("f32", "f32")):
                name = f"widen{ftz}{sat}_{target}_{source}".replace(".", "_")
                yield ptx(family, name, f"cvt{ftz}{sat}.{target}.{source} %0, %1;", target, (source,))
        yield ptx(family, f"widen{sat.replace('.', '_')}_f64_f16", f"cvt{sat}.f64.f16 %0, %1;", "f64", ("f16",))
    yield ptx(family, "widen_f64_bf16", "cvt.f64.bf16 %0, %1;", "f64", ("bf16",))
    yield ptx(family, "widen_f32_bf16", "cvt.f32.bf16 %0, %1;", "f32", ("bf16",))
    for mode in ("rn", "rz"):
        for relu in ("", ".relu"):
            for kind in ("f16x2", "bf16x2"):
                name = f"pack_{mode}{relu.replace('.', '_')}_{kind}"
                yield ptx(family, name, f"cvt.{mode}{relu}.{kind}.f32 %0, %1, %2;", "u32", FF)
            for kind in ("f16", "bf16"):
                name = f"narrow_{mode}{relu.replace('.', '_')}_{kind}"
                yield ptx(family, name, f"cvt.{mode}{relu}.{kind}.f32 %0, %1;", kind, F)
            yield ptx(family, f"tf32_{mode}{relu.replace('.', '_')}", f"cvt.{mode}{relu}.tf32.f32 %0, %1;", "u32", F)
    yield ptx(family, "tf32_rna", "cvt.rna.tf32.f32 %0, %1;", "u32", F)
    for target in ("u8", "s8", "u16", "s16"):
        for source in ("u32", "s32", "u64", "s64"):
            yield ptx(
                family,
                f"clamp_{target}_{source}",
                f"cvt.sat.{target}.{source} %0, %1;",
                _register(target),
                (_register(source),),
            )
    for target in ("u32", "s32"):
        for source in ("u64", "s64"):
            yield ptx(family, f"clamp_{target}_{source}", f"cvt.sat.{target}.{source} %0, %1;", "u32", ("u64",))
    yield ptx(family, "clamp_u32_s32", "cvt.sat.u32.s32 %0, %1;", "u32", ("u32",))
    yield ptx(family, "clamp_s32_u32", "cvt.sat.s32.u32 %0, %1;", "u32", ("u32",))
    for kind in ("u8", "s8"):
        yield ptx(family, f"pack_{kind}", f"cvt.pack.sat.{kind}.s32.b32 %0, %1, %2, %3;", "u32", ("u32",) * 3)
    for kind in ("u16", "s16"):
        yield ptx(family, f"pack_{kind}", f"cvt.pack.sat.{kind}.s32 %0, %1, %2;", "u32", ("u32",) * 2)
    yield ptx(family, "extend_s16", "cvt.s32.s16 %0, %1;", "u32", ("u16",))
    yield ptx(family, "extend_s8", "cvt.s32.s8 %0, %1;", "u32", ("u32",))


def _special() -> Iterator[Case]:
    family = "special"
    for op in ("rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2"):
        for ftz in ("", ".ftz"):
            yield ptx(family, f"{op}_approx{ftz.replace('.', '_')}", f"{op}.approx{ftz}.f32 %0, %1;", "f32", F)
    yield ptx(family, "tanh_approx", "tanh.approx.f32 %0, %1;", "f32", F)
    yield ptx(family, "rcp_approx_f64", "rcp.approx.ftz.f64 %0, %1;", "f64", D)
    yield ptx(family, "rsqrt_approx_f64", "rsqrt.approx.ftz.f64 %0, %1;", "f64", D)
    for ftz in ("", ".ftz"):
        f = ftz.replace(".", "_")
        for op in ("rcp", "sqrt"):
            for mode in MODES:
                yield ptx(family, f"{op}_{mode}{f}", f"{op}.{mode}{ftz}.f32 %0, %1;", "f32", F)
        for how in (*MODES, "approx", "full"):
            yield ptx(family, f"div_{how}{f}", f"div.{how}{ftz}.f32 %0, %1, %2;", "f32", FF)
    for mode in MODES:
        yield ptx(family, f"rcp_{mode}_f64", f"rcp.{mode}.f64 %0, %1;", "f64", D)
        yield ptx(family, f"sqrt_{mode}_f64", f"sqrt.{mode}.f64 %0, %1;", "f64", D)
        yield ptx(family, f"div_{mode}_f64", f"div.{mode}.f64 %0, %1, %2;", "f64", DD)
    yield cpp(
        family,
        "library",
        "expf(a) ;; logf(a) ;; cbrtf(a) ;; erff(a) ;; exp2f(a) ;; log2f(a) ;; rsqrtf(a) ;; expm1f(a)",
        F,
        8,
    )
    yield cpp(family, "library_sine", "sinf(a) ;; cosf(a) ;; tanhf(a) ;; atanf(a)", F, 4)
    yield cpp(family, "library_two", "fmodf(a, b) ;; powf(a, b) ;; atan2f(a, b) ;; nextafterf(a, b)", FF, 4)
    yield cpp(family, "library_f64", "exp(a) ;; log(a) ;; sin(a) ;; rsqrt(a) ;; cbrt(a)", D, 10)
    yield cpp(
        family, "rounds", "rintf(a) ;; roundf(a) ;; (int)lrintf(a) ;; llroundf(a) ;; ldexpf(a, 3) ;; ilogbf(a)", F, 7
    )


def cases() -> Iterator[Case]:
    for group in (_arithmetic, _halves, _from_integers, _to_integers, _between_floats, _special):
        yield from group()
