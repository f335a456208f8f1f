"""The cache: what its keys depend on, two writers at once, damage, places that cannot be written."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from gpusim.toolchain import Cache, Compiled, compile_source, default_cache, disassemble

SOURCE = "template <int N> __global__ void k(int* p) { p[N] = VALUE; }\n"


def build(cache: Cache, source: str = SOURCE, **changes: object) -> Compiled:
    arguments: dict = {"names": ["k<1>"], "options": ["-DVALUE=3"], "arch": "sm_90"} | changes
    return compile_source(source, cache=cache, **arguments)


def entries(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_second_compilation_is_the_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first, second = build(cache), build(Cache(tmp_path))
    assert not first.cached and second.cached
    assert (first.cubin, first.lowered, first.log) == (second.cubin, second.lowered, second.log)
    assert len(entries(tmp_path)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"options": ["-DVALUE=4"]},
        {"names": ["k<2>"]},
        {"arch": "sm_80"},
        {"filename": "other.cu"},
        {"source": SOURCE + " "},
    ],
)
def test_every_input_is_in_the_key(tmp_path: Path, changes: dict[str, object]) -> None:
    cache = Cache(tmp_path)
    build(cache)
    assert not build(cache, **changes).cached  # type: ignore[arg-type]
    assert build(cache).cached


def test_headers_are_in_the_key(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    (tmp_path / "inner").mkdir()
    outer, inner, later = tmp_path / "outer.h", tmp_path / "inner" / "inner.h", tmp_path / "later.h"
    outer.write_text('#include "inner/inner.h"\n')
    inner.write_text("#define VALUE 1\n#if __has_include(<later.h>)\n#include <later.h>\n#endif\n")
    main = tmp_path / "main.cu"
    main.write_text('  #  include "outer.h"\n' + SOURCE)

    def run() -> Compiled:
        return build(cache, main.read_text(), options=[], filename=str(main))

    before = run()
    assert not before.cached and run().cached
    inner.write_text(inner.read_text().replace("VALUE 1", "VALUE 2"))
    changed = run()
    assert not changed.cached and changed.cubin != before.cubin and run().cached
    later.write_text("#undef VALUE\n#define VALUE 5\n")  # a file that was missing before
    appeared = run()
    assert not appeared.cached and appeared.cubin != changed.cubin and run().cached


def test_included_file_that_only_the_preprocessor_knows(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    (tmp_path / "h.h").write_text("#define VALUE 1\n")
    main = tmp_path / "main.cu"
    main.write_text('#define HEADER "h.h"\n#include HEADER\n' + SOURCE)
    for _ in range(2):
        assert not build(cache, main.read_text(), options=[], filename=str(main)).cached
    assert not entries(tmp_path / "cache")


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "replace"])
def test_damaged_entries_are_made_anew(tmp_path: Path, damage: str) -> None:
    cache = Cache(tmp_path)
    good = build(cache)
    (path,) = entries(tmp_path)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes({"flip": content, "truncate": content[:-1], "empty": b"", "replace": b"x" * 500}[damage])
    again = build(cache)
    assert not again.cached and again.cubin == good.cubin
    assert build(cache).cached


def test_damaged_listing_is_made_anew(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    data = build(Cache(None)).cubin
    good = disassemble(data, cache=cache)
    (path,) = entries(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    assert disassemble(data, cache=cache) == good == disassemble(data, cache=cache)


def test_place_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    for cache in (Cache(blocked), Cache(blocked / "below"), Cache(Path("/proc/nowhere")), Cache(None)):
        assert not build(cache).cached and not build(cache).cached
        cache.prune()


def test_place_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSIM_CACHE_DIR", str(tmp_path / "chosen"))
    assert default_cache().directory == tmp_path / "chosen"
    monkeypatch.delenv("GPUSIM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache().directory == tmp_path / "gpusim"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache().directory == tmp_path / ".cache" / "gpusim"


def test_pruning_removes_the_oldest(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for value in range(3):
        build(cache, options=[f"-DVALUE={value}"])
    paths = entries(tmp_path)
    for path in paths:
        os.utime(path, (1, 1))
    build(cache, options=["-DVALUE=9"])
    (newest,) = set(entries(tmp_path)) - set(paths)
    cache.prune(newest.stat().st_size)
    assert entries(tmp_path) == [newest]


def _write_many(directory: str, start: object, results: object) -> None:
    cache = Cache(Path(directory))
    start.wait()  # type: ignore[attr-defined]
    made = []
    for value in range(6):
        compiled = build(cache, options=[f"-DVALUE={value}"])
        made.append(compiled.cubin)
    for _ in range(200):  # the same entry again and again, while the other process reads and writes it
        cache.store_compiled("0" * 64, made[0], {"k": "k"}, "log")
        entry = cache.load_compiled("0" * 64)
        assert entry is not None and entry.cubin == made[0] and entry.log == "log"
    results.put([hash(cubin) for cubin in made])  # type: ignore[attr-defined]


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    start, results = context.Event(), context.Queue()
    workers = [context.Process(target=_write_many, args=(str(tmp_path), start, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join(50)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert results.get(timeout=5) is not None and results.get(timeout=5) is not None
    found = entries(tmp_path)
    assert len(found) == 7 and not [path for path in found if path.name.startswith(".new-")]
    assert all(build(Cache(tmp_path), options=[f"-DVALUE={value}"]).cached for value in range(6))
