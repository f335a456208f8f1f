"""Compiling: architectures, names, options, headers, and errors in the user's words."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpusim.errors import CompileError, InputError, UsageError
from gpusim.toolchain import (
    Compiled,
    compile_source,
    cuda_include_directories,
    normalize_arch,
    nvrtc,
    parse_cubin,
    supported_archs,
)
from gpusim.toolchain.options import sort_options

KERNEL = "__global__ void k(int* p) { p[0] = 1; }\n"
TEMPLATE = """\
template <int N, class T> __global__ void k(T* p) { p[N] = 1; }
namespace a { __global__ void q(int*) {} __global__ void over(int) {} __global__ void over(float) {} }
__device__ int variable;
"""
needs_headers = pytest.mark.skipif(not cuda_include_directories(), reason="CUDA's headers are not installed")


def test_every_architecture(zoo_compiled: dict[int, Compiled]) -> None:
    for arch, compiled in zoo_compiled.items():
        cubin = parse_cubin(compiled.cubin)
        assert (cubin.arch, compiled.arch) == (arch, f"sm_{arch}")
        assert cubin.toolkit is not None and cubin.toolkit.startswith(compiled.nvrtc_version)
        assert all(function.lines for function in cubin.functions.values())


@pytest.mark.parametrize("arch", ["sm_90", "90", 90, "compute_90", " SM_90 "])
def test_ways_to_write_an_architecture(arch: str | int) -> None:
    assert normalize_arch(arch) == "sm_90"


def test_architecture_variants() -> None:
    assert normalize_arch("sm_90a") == "sm_90a"
    assert parse_cubin(compile_source(KERNEL, arch="sm_90a").cubin).arch == 90
    assert supported_archs()[0] == 75


@pytest.mark.parametrize("arch", ["sm_70", "sm_91", "turing", "", 7])
def test_unknown_architecture(arch: str | int) -> None:
    with pytest.raises(UsageError, match=r"choose one of sm_75, .*sm_90, .*sm_120"):
        compile_source(KERNEL, arch=arch)


def test_name_expressions() -> None:
    names = ["k<3, float>", "a::q", "&variable", "a::q"]
    compiled = compile_source(TEMPLATE, names=names)
    assert compiled.lowered == {"k<3, float>": "_Z1kILi3EfEvPT0_", "a::q": "_ZN1a1qEPi", "&variable": "variable"}
    assert set(parse_cubin(compiled.cubin).kernels) >= {"_Z1kILi3EfEvPT0_", "_ZN1a1qEPi"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("k<3>", "cannot determine which instance of function template"),
        ("missing", "undefined"),
        ("a::over", "overloaded"),
        ("k<3, float", "expected"),
        ("k<3, Nothing>", "undefined"),
    ],
)
def test_wrong_name(name: str, why: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_source(TEMPLATE, names=[name], filename="some/file.cu")
    message = str(caught.value)
    assert message.startswith(f"the name {name!r} does not select one kernel of file.cu: ")
    assert why in message and "\n" not in message


def test_error_names_the_users_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.cu"
    source = "__global__ void k(int* p) {\n  p[0] = 1;\n  p[1] = nothing;\n  int x = ;\n}\n"
    path.write_text(source)
    with pytest.raises(CompileError) as caught:
        compile_source(source, filename=str(path))
    assert (
        str(caught.value)
        == 'broken.cu does not compile, 2 errors, the first at line 3: identifier "nothing" is undefined'
    )
    assert f"{path}(3): error" in caught.value.log and f"{path}(4): error" in caught.value.log
    assert "p[1] = nothing;" in caught.value.log


def test_error_in_a_header(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("\nint f( ;\n")
    path = tmp_path / "main.cu"
    path.write_text('#include "part.h"\n')
    with pytest.raises(CompileError, match=r"main\.cu does not compile, .* at .*part\.h, line 2: "):
        compile_source(path.read_text(), filename=str(path))


def test_host_code_gets_advice() -> None:
    with pytest.raises(CompileError, match=r"line 2: this is a host function, .*__CUDACC_RTC__"):
        compile_source(KERNEL + "int main() { k<<<1, 1>>>(0); }\n")
    with pytest.raises(CompileError, match=r'line 1: cannot open source file "vector" \(host headers'):
        compile_source("#include <vector>\n" + KERNEL)
    guarded = KERNEL + "#ifndef __CUDACC_RTC__\nint main() { k<<<1, 1>>>(0); }\n#endif\n"
    assert compile_source(guarded).cubin


def test_assembler_errors() -> None:
    with pytest.raises(CompileError, match="does not compile: Unresolved extern function '_Z1fv'"):
        compile_source("__device__ void f(); __global__ void k() { f(); }")
    with pytest.raises(CompileError, match=r"does not compile: .*too much shared data"):
        compile_source("__global__ void k(int* p) { __shared__ int q[100000]; q[p[0]] = 1; p[1] = q[3]; }")
    with pytest.raises(CompileError, match=r"requires \.target sm_90"):
        compile_source('__global__ void k() { asm volatile("barrier.cluster.arrive;"); }', arch=80)


def test_warnings_are_kept() -> None:
    log = compile_source("__global__ void k(int* p) { int unused; p[0] = 1; }").log
    assert "kernel.cu(1): warning" in log and "unused" in log


def test_options_of_nvcc() -> None:
    source = "__global__ void k(float* p) { p[0] = p[1] / p[2] + N; }"
    plain = compile_source(source, options=["-DN=1"])
    written = ["-O3", "-std=c++17", "-lineinfo", "-D", "N=1", "-Xcompiler", "-Wall", "-g", "--expt-relaxed-constexpr"]
    assert compile_source(source, options=[*written, "-arch=sm_90"]).cubin == plain.cubin
    fast = compile_source(source, options=["-DN=1", "--use_fast_math"])
    assert len(parse_cubin(fast.cubin).functions["_Z1kPf"].code) < len(
        parse_cubin(plain.cubin).functions["_Z1kPf"].code
    )
    assert compile_source(source, options=["-DN=1", "-arch=sm_80"]).arch == "sm_80"


def test_register_limit() -> None:
    source = "__global__ void k(float* p) { float a[64]; for (int i = 0; i < 64; i++) a[i] = p[i];\n"
    source += "__syncthreads(); float s = 0; for (int i = 0; i < 64; i++) s = s * a[i] + a[63 - i]; p[0] = s; }"
    registers = [
        parse_cubin(compile_source(source, options=options).cubin).functions["_Z1kPf"].registers
        for options in ([], ["-maxrregcount=32"], ["--maxrregcount", "32"])
    ]
    assert registers[0] > 32 and registers[1] == registers[2] == 32


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (["--bogus"], CompileError, "unrecognized option --bogus"),
        (["-std=c++99"], CompileError, "invalid value for --std"),
        (["-maxrregcount=many"], CompileError, "integer"),
        (["-rdc=true"], UsageError, "leave it out"),
        (["-dc"], UsageError, "leave it out"),
        (["-gencode", "arch=compute_80,code=sm_80"], UsageError, "several architectures"),
        (["-ptx"], UsageError, "leave it out"),
        (["-arch=sm_80", "-arch=sm_90"], UsageError, "two architectures"),
        (["-D"], UsageError, "needs a value"),
        ([""], UsageError, "non-empty"),
        ("-O3", UsageError, "list of strings"),
    ],
)
def test_wrong_options(options: list[str], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        compile_source(KERNEL, options=options)
    assert "\n" not in str(caught.value)


def test_architecture_given_twice() -> None:
    with pytest.raises(UsageError, match="two architectures"):
        compile_source(KERNEL, arch="sm_90", options=["-arch=sm_80"])
    assert sort_options(["-rdc=false"]).rest == ()


def test_include_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside.h").write_text("#define BESIDE 1\n")
    (tmp_path / "with space").mkdir()
    (tmp_path / "with space" / "there.h").write_text("#define THERE 2\n")
    path = tmp_path / "k.cu"
    source = '#include "beside.h"\n#include <there.h>\n__global__ void k(int* p) { p[0] = BESIDE + THERE; }\n'
    path.write_text(source)
    for options in (["-I", str(tmp_path / "with space")], [f"-I{tmp_path / 'with space'}"]):
        assert compile_source(source, filename=str(path), options=options).cubin
    monkeypatch.chdir(tmp_path)
    assert compile_source(source, filename="k.cu", options=["-Iwith space"]).cubin
    with pytest.raises(CompileError, match=r"line 2: .*there\.h"):
        compile_source(source, filename=str(path))


@needs_headers
def test_cuda_headers() -> None:
    source = """
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
__global__ void k(__half* p) { cooperative_groups::this_thread_block().sync(); p[0] = __hadd(p[1], p[2]); }
"""
    assert "_Z1kP6__half" in parse_cubin(compile_source(source).cubin).kernels


def test_common_c_headers() -> None:
    headers = ("cstdio", "stdio.h", "cstdint", "stdint.h", "cstddef", "climits", "cfloat", "cmath", "math.h", "cstring")
    source = "".join(f"#include <{name}>\n" for name in (*headers, "cassert", "stdlib.h"))
    source += """__global__ void k(uint32_t* p, std::uint8_t b, int64_t n, float* f) {
  assert(n < INT_MAX);
  f[0] = sinf(f[1]) + M_PI + INFINITY + FLT_MAX;
  memcpy(p, f, sizeof(size_t));
  printf("%d", p[1]);
  p[3] = b + UINT64_MAX + (uintptr_t)p;
}"""
    assert compile_source(source).cubin


def test_not_a_source() -> None:
    with pytest.raises(InputError, match="NUL character"):
        compile_source("int x;\0")
    with pytest.raises(UsageError, match="list of strings"):
        compile_source(KERNEL, names="k")


def test_line_table_has_the_absolute_path(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(KERNEL)
    cubin = parse_cubin(compile_source(KERNEL, filename=os.path.relpath(path)).cubin)
    assert {line.file for line in cubin.functions["_Z1kPi"].lines} == {str(path)}


def test_missing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc._nvrtc.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    try:
        with pytest.raises(UsageError, match="pip install cuda-bindings nvidia-cuda-nvrtc"):
            compile_source(KERNEL, arch=90)
    finally:
        nvrtc._nvrtc.cache_clear()
