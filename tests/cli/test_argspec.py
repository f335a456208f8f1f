"""The text form of kernel arguments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.cli import argspec
from gpusim.cli.argspec import TYPES, parse, parse_all
from gpusim.errors import UsageError

QUICK = settings(max_examples=120, deadline=None)
INTEGERS = [name for name, kind in TYPES.items() if np.dtype(kind).kind in "iu"]
FLOATS = [name for name, kind in TYPES.items() if np.dtype(kind).kind == "f"]
SHAPES = st.lists(st.integers(1, 12), min_size=1, max_size=3)


@QUICK
@given(st.sampled_from(INTEGERS), st.data())
def test_whole_numbers(kind, data):
    info = np.iinfo(TYPES[kind])
    value = data.draw(st.integers(info.min, info.max))
    for text in (str(value), hex(value)):
        got = parse(f"{kind}={text}")
        assert type(got) is TYPES[kind] and int(got) == value
    for outside in (info.min - 1, info.max + 1):
        with pytest.raises(UsageError, match=f"does not fit {kind}"):
            parse(f"{kind}={outside}")


@QUICK
@given(st.sampled_from(FLOATS), st.floats(width=16, allow_nan=False))
def test_floats(kind, value):
    got = parse(f"{kind}={value!r}")
    assert type(got) is TYPES[kind] and float(got) == value


def test_special_floats():
    assert math.isnan(float(parse("f32=nan"))) and float(parse("f64=-inf")) == -math.inf
    with pytest.raises(UsageError, match="1e39 is too large for f32"):
        parse("f32=1e39")


@QUICK
@given(st.sampled_from(sorted(TYPES)), SHAPES, st.sampled_from(["random", "arange", "zeros", "ones"]))
def test_arrays(kind, shape, fill):
    spec = f"{kind}[{'x'.join(map(str, shape))}]={fill}"
    array = parse(spec, 2)
    assert isinstance(array, np.ndarray)
    assert array.shape == tuple(shape) and array.dtype == TYPES[kind]
    assert array.flags.writeable and array.flags.c_contiguous
    assert array.tobytes() == np.asarray(parse(spec, 2)).tobytes()  # repeatable
    flat = array.reshape(-1)
    if fill == "zeros":
        assert not flat.any()
    elif fill == "ones":
        assert (flat == 1).all()
    elif fill == "random" and array.dtype.kind == "f":
        assert (flat >= -1).all() and (flat <= 1).all()
    elif fill == "arange" and array.dtype.kind != "b":
        expected = np.arange(flat.size)
        if array.dtype.kind in "iu":
            assert (flat == expected.astype(array.dtype)).all()
        elif flat.size <= 2048:
            assert (flat == expected).all()


def test_arange_wraps_around():
    assert parse("u8[600]=arange").tolist() == [k % 256 for k in range(600)]  # type: ignore[union-attr]
    halves = np.asarray(parse("f16[5000]=arange"))
    assert halves.max() == 2047 and halves[2048] == 0


@QUICK
@given(st.sampled_from(["i16", "i32", "i64", "u16", "u32"]), SHAPES)
def test_permutation(kind, shape):
    array = np.asarray(parse(f"{kind}[{'x'.join(map(str, shape))}]=permutation"))
    assert sorted(array.reshape(-1).tolist()) == list(range(array.size))


@pytest.mark.parametrize("spec", ["f32[4]=permutation", "u8[257]=permutation", "i8[129]=permutation"])
def test_permutation_needs_whole_numbers_that_hold_it(spec):
    with pytest.raises(UsageError, match=r"cannot hold the indices 0 to \d+; write for example i32\[\d+\]=permutation"):
        parse(spec)


def test_constant():
    assert np.asarray(parse("f32[2x2]=const:1.5")).tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert np.asarray(parse("i32[2]=const:-0x10")).tolist() == [-16, -16]
    with pytest.raises(UsageError, match="300 does not fit u8"):
        parse("u8[4]=const:300")


def test_random_arrays_differ_by_their_place():
    first, second = parse_all(["f32[64]=random", "f32[64]=random"])
    assert np.asarray(first).tobytes() != np.asarray(second).tobytes()


def test_files(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    path = tmp_path / "values.npy"
    np.save(path, values)
    assert np.array_equal(np.asarray(parse(f"f32[3x4]=@{path}")), values)
    assert np.asarray(parse(f"f32[12]=@{path}")).shape == (12,)
    for spec, what in (
        (f"f64[12]=@{path}", "holds float32, not float64"),
        (f"f32[13]=@{path}", r"holds 12 elements \(3, 4\), not 13"),
        (f"f32[12]=@{path}.none", "cannot be read"),
    ):
        with pytest.raises(UsageError, match=what):
            parse(spec)
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(UsageError, match=r"is not a \.npy file of numbers"):
        parse(f"f32[12]=@{tmp_path / 'text.npy'}")
    np.savez(tmp_path / "several.npz", values)
    with pytest.raises(UsageError, match="holds several arrays"):
        parse(f"f32[12]=@{tmp_path / 'several.npz'}")


def test_structures():
    assert parse("bytes[4]=0x01020304").tobytes() == b"\1\2\3\4"
    assert parse("bytes[3]=zeros").tobytes() == bytes(3)
    with pytest.raises(UsageError, match="4 bytes are 0x and 8 hexadecimal digits"):
        parse("bytes[4]=0x0102")
    with pytest.raises(UsageError, match="needs its size in bytes"):
        parse("bytes=0x01")


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("1024", "an argument is TYPE=VALUE or TYPE[SHAPE]=CONTENTS"),
        ("i32", "an argument is TYPE=VALUE"),
        ("", "an argument is TYPE=VALUE"),
        ("int=3", "there is no type 'int', only i8, u8"),
        ("i32=1.5", "'1.5' is not a whole number; write for example i32=1"),
        ("f32=one", "'one' is not a number; write for example f32=0.5"),
        ("bool=2", "'2' is neither true nor false"),
        ("f32[]=zeros", "the shape [] must be whole numbers with x between"),
        ("f32[-3]=zeros", "the shape [-3] must be whole numbers"),
        ("f32[0]=zeros", "an array needs at least one element"),
        ("f32[99999999999]=zeros", "399,999,999,996 bytes are too much for one array"),
        ("f32[8]=fancy", "'fancy' is no contents, which are random, arange"),
        ("f32[2x8]=", "'' is no contents"),
    ],
)
def test_mistakes_are_named(spec, what):
    with pytest.raises(UsageError) as raised:
        parse(spec, 3)
    message = str(raised.value)
    assert message.startswith(f"--arg 3 ({spec}): {what}") and "; write for example " in message
    assert "\n" not in message


@QUICK
@given(st.text(max_size=30))
def test_any_text_is_an_argument_or_a_mistake(text):
    try:
        got = parse(text)
    except UsageError as error:
        assert str(error).startswith("--arg 1 (")
    else:
        assert isinstance(got, np.ndarray | np.generic)


def test_every_type_is_in_the_help():
    assert all(name in argspec.GRAMMAR for name in TYPES)
