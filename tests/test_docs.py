"""The documentation's examples work, its excerpts are real, and the README has the two commands that CI extracts.

In README.md and docs/ a comment before a fenced block says what the block is:

    <!-- example: file NAME -->          the block is a file in the page's directory
    <!-- example: copy FROM NAME -->     (no block) a file of the repository, copied there
    <!-- example: run -->                Python, or shell commands one a line, run there in order; must succeed
    <!-- example: run NAME -->           the same, where the package NAME is installed
    <!-- example: excerpt gpusim ... --> lines that this command prints ("..." stands for some left out)
    <!-- example: excerpt PATH -->       text of this file of the repository
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import lzma
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from gpusim.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARK = re.compile(
    r"^<!-- example: (?P<what>\w+) ?(?P<about>.*?) ?-->(?:\n```(?P<language>\w+)\n(?P<body>.*?)^```$)?", re.M | re.S
)
COMMANDS = {
    "try": "python3 -m venv .venv && .venv/bin/pip install --quiet . && .venv/bin/gpusim analyze transpose_pad",
    "test": "python3 -m venv .venv && .venv/bin/pip install --quiet -e '.[test]' "
    "&& .venv/bin/python -m pytest -q -n auto",
}


def gpusim(words: Sequence[str]) -> str:
    """What ``gpusim`` prints; it must succeed."""
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, f"gpusim {shlex.join(words)} gave {done.exit_code}:\n{done.output[-3000:]}"
    return done.stdout


def shell(line: str) -> None:
    """Run a command of a shell block, those of gpusim in this process to save starting one."""
    name, *words = shlex.split(line)
    if name == "gpusim":
        gpusim(words)
        return
    assert name == "python", f"only gpusim and python can be run, not: {line}"
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{line} gave {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    for match in MARK.finditer(page.read_text()):
        what, about, language, body = match["what"], match["about"], match["language"], match["body"] or ""
        if what == "run" and about and importlib.util.find_spec(about) is None:
            continue
        if what == "file":
            target = tmp_path / about
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(body)
        elif what == "copy":
            origin, name = about.split()
            shutil.copy(ROOT / origin, tmp_path / name)
        elif what == "excerpt":
            command, *words = shlex.split(about)
            whole = flat(gpusim(words) if command == "gpusim" else (ROOT / about).read_text())
            for part in re.split(r"^\.\.\.$", body, flags=re.M):
                assert flat(part) in whole, f"not in {about}:\n{part}"
        elif language == "python":
            exec(compile(body, f"{page.name}: {body[:40]!r}", "exec"), {"__name__": "__main__"})
        else:
            assert (what, language) == ("run", "sh"), match[0][:80]
            for line in body.splitlines():
                shell(line)


def test_every_mark_was_understood():
    for page in PAGES:
        text = page.read_text()
        assert text.count("<!-- example:") == len(MARK.findall(text)), page.name
        for match in MARK.finditer(text):
            assert (match["language"] is None) == (match["what"] == "copy"), match[0][:80]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_readme_has_its_marked_commands(name):
    found = re.findall(rf"^<!-- command: {name} -->\n```sh\n(.*)\n```$", (ROOT / "README.md").read_text(), re.M)
    assert found == [COMMANDS[name]]


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_table_of_recordings_is_right():
    """Every recording is named as evidence, with the number of its records."""
    page = (ROOT / "docs" / "what-is-modelled.md").read_text()
    rows = re.findall(r"^\| `(h200_\S+)` \| ([\d,]+) ", page, re.M)
    claimed = {name: int(count.replace(",", "")) for name, count in rows}
    assert claimed == {path.name: records(path) for path in (ROOT / "tests" / "data").glob("h200_*.[gx]z")}


def records(path: Path) -> int:
    """How many answers of the hardware a recording holds."""
    if path.suffix == ".xz":
        with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
            inputs = [name for name in arrays if name.startswith("in_")]  # of special functions
            return sum(arrays[name].size for name in inputs) or sum(name.endswith(" out") for name in arrays)
    with gzip.open(path, "rt") as stream:
        if path.name.endswith(".jsonl.gz"):
            return sum(1 for _ in stream) - 1  # the first line is the header
        recording = json.load(stream)
    return next(
        len(recording[name]) for name in ("launches", "cases", "rows", "memory", "times", "slices") if name in recording
    )
