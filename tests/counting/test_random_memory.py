"""Random kernels that move data: all ways to simulate them give the same results and counters."""

from __future__ import annotations

import random
from typing import Any

import pytest

import gpusim
from gpusim.machine import chunk, engine, parallel
from gpusim.machine.together import Together
from tests.differential.memory import arguments, source

SHAPES = [(3, 64), (5, 96), (7, 100), (2, 256), (40, 128), (64, 64)]
A_FILE = 20


def outcome(run: Any, name: str, counts_only: bool = False) -> Any:
    """Contents of the buffers, metrics and the table of instructions; or the text of the error."""
    args = arguments()
    try:
        result = run(*random.Random(name).choice(SHAPES), args)
    except gpusim.GpusimError as error:
        return str(error)
    return ([] if counts_only else [each.tobytes() for each in args]), result.metrics, result.instructions


def compare(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text, names = source(file * A_FILE, A_FILE)
    usual = gpusim.compile(text)
    found = {name: outcome(usual[name].launch, name) for name in names}
    assert sum(isinstance(each, str) for each in found.values()) < A_FILE // 2
    for name, each in found.items():
        counted = outcome(usual[name].count, name, counts_only=True)
        assert counted == each if isinstance(each, str) else counted[1:] == each[1:], name
    with monkeypatch.context() as plainly:  # addresses are sums, nothing is computed together
        plainly.setattr(Together, "_load_groups", lambda self: [])
        for module, number in ((chunk, "PLAIN"), (engine, "FEW"), (engine, "FEW_WITH_PRODUCTS")):
            plainly.setattr(module, number, 0)
        other = gpusim.compile(text)
        for name in names:
            assert outcome(other[name].launch, name) == found[name], name
    with monkeypatch.context() as shared:
        shared.setenv(parallel.WORKERS_VARIABLE, "3")
        shared.setattr(parallel, "START", -1.0)
        for number in ("LEAST_CHUNK", "MOST_CHUNK", "SHARED_CHUNK"):
            shared.setattr(engine, number, 256)
        alone = {}
        for processes in ("1", "3"):  # which threads win depends on the chunks, not on the processes
            shared.setenv(parallel.WORKERS_VARIABLE, processes)
            alone[processes] = {name: outcome(usual[name].launch, name) for name in names}
        for name in names:
            assert alone["1"][name] == alone["3"][name], name


@pytest.mark.parametrize("file", range(2))
def test_ways_to_simulate_agree(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(file, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("file", range(2, 22))
def test_many_more(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(file, monkeypatch)
