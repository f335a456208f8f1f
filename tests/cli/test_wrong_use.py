"""Wrong use and unsupported input: one sentence, exit code 2, no traceback."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import gpusim

FOREIGN = Path(__file__).parents[1] / "data" / "foreign"
LAUNCH = ("--grid", 1, "--block", 32)
SCALE = ("--kernel", "scale", "--arg", "f32[32]=ones", "--arg", "f32=2", "--arg", "i32=32")


def test_unknown_catalogue_kernel_names_the_nearest(gpusim_run):
    assert gpusim_run("analyze", "transpose_pda").sentence == (
        "no kernel named 'transpose_pda' in the catalogue; "
        "did you mean transpose_pad or transpose_pad2 or transpose_copy?"
    )


def test_unknown_kernel_of_a_file_names_the_nearest(gpusim_run, source):
    said = gpusim_run("analyze", source, "--kernel", "scael", *LAUNCH).sentence
    assert said == "there is no kernel 'scael' in this module: nearest: scale"


def test_several_kernels_are_listed(gpusim_run, source):
    said = gpusim_run("analyze", source, *LAUNCH).sentence
    assert said.startswith(f"{source} has 4 kernels, choose one with --kernel: ")
    assert {"scale", "wide", "dynamic", "pair"} == set(said.split(": ")[1].split(", "))


def test_a_template_must_be_named(gpusim_run, template):
    assert "a template kernel must be named, for example 'k<float>'" in gpusim_run("analyze", template).sentence


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ((), "missing arguments: 0 --arg given, 3 needed by scale(float *a, float factor, int n); give one --arg"),
        (("f32[32]=ones",), "missing arguments: 1 --arg given, 3 needed"),
        (("i32=1",) * 4, "surplus arguments: 4 --arg given, 3 needed by scale(float *a, float factor, int n)"),
    ],
)
def test_wrong_number_of_arguments(gpusim_run, source, given, what):
    words = [word for spec in given for word in ("--arg", spec)]
    assert gpusim_run("analyze", source, "--kernel", "scale", *LAUNCH, *words).sentence.startswith(what)


def test_argument_of_another_size(gpusim_run, source):
    args = ("--arg", "f32[32]=ones", "--arg", "f64=2", "--arg", "i32=32")
    said = gpusim_run("analyze", source, "--kernel", "scale", *LAUNCH, *args).sentence
    assert said.startswith("argument 2 is a float64 of 8 bytes, but the parameter has 4")


@pytest.mark.parametrize("missing", ["grid", "block"])
def test_missing_launch(gpusim_run, source, missing):
    given = {"grid": ("--grid", 1), "block": ("--block", 32)}
    del given[missing]
    words = [word for option in given.values() for word in option]
    example = {"grid": "256,256", "block": "32,16"}[missing]
    assert gpusim_run("analyze", source, *SCALE, *words).sentence == (
        f"--{missing} is missing: scale needs a launch, for example --{missing} {example}"
    )


@pytest.mark.parametrize(
    ("grid", "block", "what"),
    [
        ("1", "1025", "the block (1025, 1, 1) has 1025 in x: at most 1024 are allowed"),
        ("1", "64,32", "the block (64, 32, 1) has 2048 threads: a block may have at most 1024; use a smaller block"),
        ("0", "32", "the grid (0, 1, 1) has 0 in x: every dimension must be at least 1"),
        ("1,65536", "32", "the grid (1, 65536, 1) has 65536 in y: at most 65535 are allowed"),
        ("1", "0,32", "the block (0, 32, 1) has 0 in x: every dimension must be at least 1"),
        ("one", "32", "--grid one is not one to three whole numbers: write for example --grid 256,256"),
        ("1,1,1,1", "32", "--grid 1,1,1,1 is not one to three whole numbers: write for example --grid 256,256"),
        ("1", "", "--block  is not one to three whole numbers: write for example --block 256,256"),
    ],
)
def test_launch_shapes(gpusim_run, source, grid, block, what):
    assert gpusim_run("analyze", source, *SCALE, "--grid", grid, "--block", block).sentence == what


def test_too_much_shared_memory(gpusim_run, source):
    said = gpusim_run(
        "analyze", source, "--kernel", "dynamic", *LAUNCH, "--arg", "f32[32]=ones", "--shared", 240000
    ).sentence
    assert said == (
        "240000 bytes of shared memory a block (0 static, 240000 dynamic) are too much: sm_90 allows 232448"
    )


def test_misaligned_vector_access(gpusim_run, source):
    said = gpusim_run("analyze", source, "--kernel", "wide", *LAUNCH, "--arg", "f32[256]=zeros", "--arg", "i32=4")
    for part in (
        "misaligned 16-byte access at global address 0x",
        "by thread (0, 0, 0) of block (0, 0, 0)",
        "STG.E.128",
        "some.cu:11)",
        "nearest buffer: ",
    ):
        assert part in said.sentence


def test_access_outside_every_buffer(gpusim_run, source):
    said = gpusim_run(
        "analyze", source, "--kernel", "scale", "--grid", 2, "--block", 32,
        "--arg", "f32[40]=ones", "--arg", "f32=2", "--arg", "i32=64",
    ).sentence  # fmt: skip
    for part in (
        "4-byte access outside every buffer at global address 0x",
        "by thread (8, 0, 0) of block (1, 0, 0)",
        "LDG.E",
        "some.cu:5)",
        "nearest buffer: 0 bytes past the end of argument 1 (160 bytes at 0x",
    ):
        assert part in said


def test_unsupported_instruction(gpusim_run, tmp_path):
    path = tmp_path / "textured.cu"
    path.write_text(
        'extern "C" __global__ void textured(float *out, cudaTextureObject_t t)\n'
        "{\n    out[threadIdx.x] = tex1Dfetch<float>(t, threadIdx.x);\n}\n"
    )
    said = gpusim_run("analyze", path, *LAUNCH, "--arg", "f32[32]=zeros", "--arg", "u64=1").sentence
    assert said.startswith("instruction at 0x0") and "is not supported: TLD" in said and "textured.cu:3" in said
    covered = gpusim_run("doctor", "--coverage", path)
    assert covered.code == 1
    assert "instructions are not supported" in covered.out and "TLD" in covered.out and "textured.cu:3" in covered.out


def test_not_a_cubin(gpusim_run, tmp_path):
    path = tmp_path / "x.cubin"
    path.write_text("no cubin")
    assert gpusim_run("analyze", path).sentence.startswith(f"{path} is not a cubin")


def test_cubin_of_an_unknown_architecture(gpusim_run, tmp_path):
    data = bytearray((FOREIGN / "saxpy.sm_90.cubin").read_bytes())
    flags = struct.unpack_from("<I", data, 48)[0]
    struct.pack_into("<I", data, 48, (flags & ~0xFFFF) | 0x3535 if data[8] < 8 else (flags & ~0xFF00) | 0x3500)
    path = tmp_path / "old.cubin"
    path.write_bytes(data)
    assert gpusim_run("analyze", path).sentence.startswith("this cubin is for sm_53, which gpusim does not know")


def test_unknown_architecture_to_compile_for(gpusim_run, source):
    said = gpusim_run("analyze", source, *SCALE, *LAUNCH, "--arch", "sm_55").sentence
    assert said.startswith("architecture 'sm_55' is not supported by NVRTC") and "sm_90" in said


def test_source_that_does_not_compile(gpusim_run, tmp_path):
    path = tmp_path / "broken.cu"
    path.write_text("__global__ void k(float *a)\n{\n    a[0] = b;\n}\n")
    outcome = gpusim_run("analyze", path, *LAUNCH)
    assert outcome.code == 2 and outcome.out == ""
    first, *log = outcome.err.splitlines()
    assert first == 'gpusim: broken.cu does not compile, 1 error, the first at line 3: identifier "b" is undefined'
    assert log[0] == f'{path}(3): error: identifier "b" is undefined'  # as the compiler wrote it
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("missing.cu",), "missing.cu cannot be read: there is no such file"),
        (("no/such/thing",), "no/such/thing cannot be read: there is no such file"),
        ((".",), ". is a directory: give a .cu, a .cubin or a trace"),
        (("transpose_pad", "--grid", 1), "transpose_pad is a catalogue kernel and brings its own launch: --grid does"),
        (("transpose_pad", "--arg", "i32=1"), "transpose_pad is a catalogue kernel and brings its own launch: --arg"),
        (("transpose_pad", "--size", 0), "Invalid value for '--size'"),
        ((), "Missing argument 'TARGET'; see 'main analyze --help'"),
        (("transpose_pad", "--nonsense"), "No such option '--nonsense'"),
    ],
)
def test_wrong_targets_and_options(gpusim_run, words, what):
    assert gpusim_run("analyze", *words).sentence.startswith(what)


def test_options_that_do_not_fit_a_file(gpusim_run, source):
    assert "--size does not apply" in gpusim_run("analyze", source, "--size", 5).sentence
    compiled = gpusim_run("analyze", FOREIGN / "saxpy.sm_90.cubin", "-D", "N=1").sentence
    assert compiled.endswith("is compiled already: -D, -I and --option apply to sources only")


def test_a_file_with_several_architectures(gpusim_run):
    assert gpusim_run("analyze", FOREIGN / "saxpy.fatbin").sentence.endswith("holds sm_80, sm_90: choose with --arch")


def test_empty_source(gpusim_run, tmp_path):
    path = tmp_path / "empty.cu"
    path.write_text("\n")
    assert gpusim_run("analyze", path).sentence == f"{path} is empty: give a .cu, a .cubin or a trace"


def test_coverage_options_need_coverage(gpusim_run):
    assert "belong to 'gpusim doctor --coverage FILE'" in gpusim_run("doctor", "--kernel", "k").sentence


def test_unwritable_trace(gpusim_run, tmp_path):
    said = gpusim_run("analyze", "scale", "--size", 64, "--trace", tmp_path / "none" / "x.gpusim-trace").sentence
    assert "cannot be written" in said


def test_unexpected_errors_keep_their_traceback(gpusim_run, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("gpusim.cli.analyze.run", broken)
    with pytest.raises(ZeroDivisionError):
        gpusim_run("analyze", "scale")


def test_no_gpu_is_exit_code_3(gpusim_run, monkeypatch):
    def refuse(*_: object) -> None:
        raise gpusim.NoGpuError("there is no GPU")

    monkeypatch.setattr("gpusim.cli.analyze.run", refuse)
    outcome = gpusim_run("analyze", "scale")
    assert (outcome.code, outcome.err) == (3, "gpusim: there is no GPU\n")


def test_interrupt_is_quiet(gpusim_run, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpusim.cli.analyze.run", interrupted)
    outcome = gpusim_run("analyze", "scale")
    assert (outcome.code, outcome.out.strip(), outcome.err.strip()) == (130, "", "")
