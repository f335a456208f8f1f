"""Files of results: written at once and never over another, read again, continued."""

from __future__ import annotations

import gzip
import json

import pytest

from gpusim.errors import InputError, UsageError
from gpusim.runner import results as files
from gpusim.runner import times
from gpusim.runner.results import Results

HEADER = {"device": "Fake", "driver": "1", "arch": "sm_90", "date": "2020-01-01"}


def way(median):
    return {"median": median, "quartiles": [median - 1, median + 1], "least": median - 2, "samples": 10}


def problem(name, sha="a", **more):
    return {"id": name, "case": name.split("/")[0], "family": "f", "size": 1, "cubin_sha256": sha} | more


def entries(name, *medians):
    keys = [*range(len(medians) - 1), "whole"] if len(medians) > 1 else [0]
    return [{"id": f"{name}/{key}", "cold": way(m), "hot": way(m / 2)} for key, m in zip(keys, medians, strict=True)]


def test_a_file_is_never_written_over(tmp_path):
    path = tmp_path / "x.json"
    files.write_new(path, {"a": 1})
    with pytest.raises(UsageError, match="exists and is not overwritten: give another --out"):
        files.write_new(path, {"a": 2})
    with pytest.raises(UsageError, match="exists and is not overwritten"):
        files.check_new(path)
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]  # no temporary file is left
    with pytest.raises(UsageError, match="there is no directory"):
        files.check_new(tmp_path / "none" / "x.json")


def test_default_names_do_not_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = {files.write_default("Some Kernel!", {"n": n}) for n in range(3)}
    assert len(made) == 3 and all(path.name.startswith("some-kernel-2") for path in made)
    assert sorted(json.loads(path.read_text())["n"] for path in made) == [0, 1, 2]


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpusim-results").write_text("a file")
    with pytest.raises(InputError, match="gpusim-results cannot be made"):
        files.write_default("x", {})


def test_compressed_by_name(tmp_path):
    results = Results(HEADER)
    results.add(problem("k/1"), entries("k/1", 5))
    for name in ("x.json", "x.json.gz"):
        files.replace(tmp_path / name, results.document())
        again = files.load(tmp_path / name)
        assert (again.header, again.times) == (results.header, results.times)
        assert again.problems["k/1"]["cubin_sha256"] == "a"
    assert gzip.decompress((tmp_path / "x.json.gz").read_bytes())


def test_what_is_done_is_told_by_the_machine_code():
    results = Results(HEADER)
    results.add(problem("k/1"), entries("k/1", 5))
    results.add(problem("k/2", failed="too little memory", final=False))
    results.add(problem("k/3", failed="it killed the GPU's context", final=True))
    assert results.done("k/1", "a") and not results.done("k/1", "b") and not results.done("k/9", "a")
    assert not results.done("k/2", "a") and results.done("k/3", "a")
    assert results.document()["left_out"] == ["k/2: too little memory", "k/3: it killed the GPU's context"]


def test_a_problem_measured_anew_replaces_the_old_one():
    results = Results(HEADER)
    results.add(problem("k/1"), entries("k/1", 5, 6, 11))
    results.add(problem("k/10"), entries("k/10", 7))
    results.add(problem("k/1", "b"), entries("k/1", 4))
    assert sorted(results.times) == ["k/1/0", "k/10/0"] and results.times["k/1/0"]["cold"]["median"] == 4
    assert results.done("k/1", "b")


def test_a_file_of_another_gpu_is_not_continued(tmp_path):
    results = Results(HEADER)
    results.check_same(HEADER | {"date": "2030-01-01"}, tmp_path)
    with pytest.raises(UsageError, match="holds times of device Fake, not Other: give another --out"):
        results.check_same(HEADER | {"device": "Other"}, tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"header": {}, "times": []}', "no json", "\x1f\x8b"])
def test_files_that_are_something_else(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match="is not a file of measured times"):
        files.read_document(path)
    with pytest.raises(InputError, match="cannot be read"):
        files.read_document(tmp_path / "none.json")


def test_a_file_of_measure_py_is_not_continued(tmp_path):
    path = tmp_path / "x.json"
    files.replace(path, {"header": HEADER, "left_out": [], "times": entries("k/1", 5)})
    with pytest.raises(InputError, match="was not written by 'gpusim validate'"):
        files.load(path)


def test_times_of_a_file(tmp_path):
    results = Results(HEADER)
    results.add(problem("k/1"), entries("k/1", 5, 6, 10))
    results.add(problem("j/1"), entries("j/1", 3))
    path = tmp_path / "x.json"
    files.replace(path, results.document())
    recording = times.recorded(str(path))
    assert recording.of("k", 1, "cold") == times.Time(10, 9, 11, 10)  # all launches together, not the sum
    assert recording.of("j", 1, "hot").median == 1.5 and recording.of("j", 2, "hot") is None
    assert recording.sizes("k") == [1] and recording.source == "Fake, driver 1, 2020-01-01"
    del results.times["k/1/whole"]  # as in the recording that the package ships
    assert times.recording_of(results.document()).of("k", 1, "cold") == times.Time(11, 9, 13, 10)
