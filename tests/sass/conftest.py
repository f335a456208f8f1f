"""Driving one opcode with arrays, from its text, and running small kernels on arrays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpusim.sass.instruction import decode
from gpusim.sass.registry import semantics


def meaning(text: str, encoding: int = 0) -> Any:
    """What an instruction given as text does."""
    name, _, operands = text.partition(" ")
    return semantics(decode(0, "", name, operands, text, encoding, None))


def evaluate(text: str, *values: Any) -> Any:
    """The result of an instruction's ``compute``; values are its sources in order, marks already applied."""
    arrays = [np.atleast_1d(np.asarray(v)).reshape(1, -1) for v in values]
    with np.errstate(all="ignore"):
        return meaning(text).compute(*arrays)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Signaling NaNs and overflows are part of the operands here."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(name="meaning")
def meaning_fixture() -> Any:
    return meaning


@pytest.fixture(name="evaluate")
def evaluate_fixture() -> Any:
    return evaluate


KERNEL = """extern "C" __global__ void k_{name}(const {t}* A, const {t}* B, const {t}* C, {r}* O, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    {t} a = A[i], b = B[i], c = C[i];
    O[i] = ({r})({e});
}}
"""


class Elementwise:
    """A module of kernels ``out[i] = expression(a[i], b[i], c[i])``, from lines ``name: type -> type: expression``."""

    def __init__(self, listing: str, arch: str, head: str = "") -> None:
        import gpusim

        source = head + "#pragma nv_diag_suppress 177, 550\n"
        for line in filter(None, listing.splitlines()):
            match = re.match(r"\s*(\w+): (.+?) -> (.+?): (.*)$", line)
            assert match, line
            name, given, result, expression = match.groups()
            source += KERNEL.format(name=name, t=given, r=result, e=expression)
        self.module = gpusim.compile(source, arch)

    def __call__(self, name: str, out: Any, *inputs: Any) -> Any:
        """Run a kernel; missing inputs are the first one again."""
        arrays = [np.ascontiguousarray(x) for x in inputs]
        count = len(arrays[0])
        arrays += [arrays[0]] * (3 - len(arrays))
        result = np.zeros(count, out)
        self.module["k_" + name].launch(-(-count // 128), 128, [*(a.copy() for a in arrays), result, np.int32(count)])
        return result


@pytest.fixture(scope="session")
def elementwise() -> Any:
    """Makes (and keeps) Elementwise modules."""
    made: dict[tuple[str, str], Elementwise] = {}

    def make(listing: str, arch: str, head: str = "") -> Elementwise:
        key = (listing, arch)
        if key not in made:
            made[key] = Elementwise(listing, arch, head)
        return made[key]

    return make
