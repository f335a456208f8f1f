"""Files of measured times: written atomically, read again, continued.

The format is that of ``recorded/h200_times.json.gz`` (see :mod:`gpusim.runner.times`), with more in it: ``header`` says
what measured, ``problems`` has the check of each result, hashes and versions, ``times`` an entry for each launch,
named ``case/size/number``, and for several launches together, named ``case/size/whole``.  Times are in microseconds.
"""

from __future__ import annotations

import datetime
import gzip
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import gpusim
from gpusim.errors import InputError, UsageError
from gpusim.result import SCHEMA
from gpusim.runner.device import Device, DeviceFacts, version
from gpusim.runner.sampling import Criterion, flush_bytes
from gpusim.toolchain import nvrtc_version

KIND = "measurement"
FOLDER = Path("gpusim-results")
"""Where results go that are given no name, below the current directory."""
SAME = ("device", "driver", "arch")
"""What must be the same for a file to be continued."""


def header_of(device: Device, arch: str, criterion: Criterion, command: str) -> dict[str, Any]:
    """What measured, and how; measures the device's copy bandwidth."""
    with device.guarded("measuring the bandwidth of a copy"), device.watch:
        bandwidth = device.watch.copy_bandwidth()
    return describe(device.facts, arch, criterion, command) | {"copy_bytes_per_second": bandwidth}


def describe(facts: DeviceFacts, arch: str, criterion: Criterion, command: str) -> dict[str, Any]:
    """The header without what must be measured."""
    return {
        "device": facts.name,
        "driver": facts.driver,
        "driver_cuda": version(facts.driver_cuda),
        "cuda": facts.runtime_cuda,
        "cupy": facts.cupy,
        "nvrtc": nvrtc_version(),
        "gpusim": gpusim.__version__,
        "arch": arch,
        "device_arch": f"sm_{facts.arch}",
        "multiprocessors": facts.multiprocessors,
        "memory_bytes": facts.memory_bytes,
        "l2_bytes": facts.l2_bytes,
        "flush_bytes": flush_bytes(facts.l2_bytes),
        "date": datetime.date.today().isoformat(),
        "command": command,
        "seconds": criterion.seconds,
        "criterion": asdict(criterion),
    }


@dataclass
class Results:
    """What a file holds; ``problems``, ``times`` and ``counters`` (of ``validate --counters``) by their ids."""

    header: dict[str, Any]
    problems: dict[str, dict[str, Any]] = field(default_factory=dict)
    times: dict[str, dict[str, Any]] = field(default_factory=dict)
    counters: dict[str, dict[str, Any]] = field(default_factory=dict)

    def done(self, problem: str, cubin_sha256: str) -> bool:
        """Whether a problem was run with that machine code (a failure for want of memory does not count)."""
        known = self.problems.get(problem)
        return known is not None and known["cubin_sha256"] == cubin_sha256 and ("failed" not in known or known["final"])

    def add(self, problem: dict[str, Any], entries: Iterable[dict[str, Any]] = ()) -> None:
        """Put in a problem and its times, in place of what there was of it."""
        name = problem["id"]
        self.problems[name] = {"date": datetime.date.today().isoformat()} | problem
        for key in [key for key in self.times if key.startswith(f"{name}/")]:
            del self.times[key]
        self.times |= {entry["id"]: entry for entry in entries if entry["id"].startswith(f"{name}/")}

    def check_same(self, header: dict[str, Any], path: Path) -> None:
        """Raises UsageError unless what the header says may be added to this file."""
        for key in SAME:
            if self.header.get(key) != header[key]:
                raise UsageError(
                    f"{path} holds times of {key} {self.header.get(key)}, not {header[key]}: give another --out"
                )

    def document(self) -> dict[str, Any]:
        """The file's content."""
        failures = [f"{name}: {p['failed']}" for name, p in self.problems.items() if "failed" in p]
        return {
            "schema": SCHEMA,
            "kind": KIND,
            "header": self.header,
            "left_out": failures,
            "problems": list(self.problems.values()),
            "times": list(self.times.values()),
            **({"counters": list(self.counters.values())} if self.counters else {}),
        }


def read_document(path: Path) -> dict[str, Any]:
    """The JSON document of a file of times, compressed or not.  Raises InputError."""
    try:
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
        if not all(isinstance(entry["id"], str) for entry in document["times"]) or not document["header"]["device"]:
            raise InputError(f"{path} is not a file of measured times")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, EOFError) as error:
        raise InputError(f"{path} is not a file of measured times, such as 'gpusim run' writes") from error
    return dict(document)


def load(path: Path) -> Results:
    """A file of results that is to be continued.  Raises InputError."""
    document = read_document(path)
    if "problems" not in document:
        raise InputError(f"{path} was not written by 'gpusim validate' and cannot be continued: give another --out")
    return Results(
        document["header"],
        {problem["id"]: problem for problem in document["problems"]},
        {entry["id"]: entry for entry in document["times"]},
        {entry["id"]: entry for entry in document.get("counters", ())},
    )


def replace(path: Path, document: dict[str, Any]) -> None:
    """Write a file, or put it in the place of an older one, at once."""
    _written(path, document, lambda temporary: os.replace(temporary, path))


def write_new(path: Path, document: dict[str, Any]) -> None:
    """Write a file that does not exist yet.  Raises UsageError if it does."""

    def place(temporary: str) -> None:
        with path.open("x"):  # only one process gets the name
            os.replace(temporary, path)

    try:
        _written(path, document, place)
    except FileExistsError:
        raise UsageError(f"{path} exists and is not overwritten: give another --out") from None


def check_new(path: Path) -> None:
    """Raises UsageError if a file of that name cannot be written because there is one, or no directory for it."""
    if path.exists():
        raise UsageError(f"{path} exists and is not overwritten: give another --out")
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no directory {path.parent}")


def write_default(name: str, document: dict[str, Any]) -> Path:
    """Write a new file below ``gpusim-results``, named after what was measured and the time; the name is returned."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        path = FOLDER / f"{slug(name)}-{stamp}{'' if number == 1 else f'-{number}'}.json"
        if not path.exists():
            with suppress(UsageError):
                make_folder(path.parent)
                write_new(path, document)
                return path
    raise UsageError(f"no file can be written in {FOLDER}: give --out")


def make_folder(folder: Path) -> None:
    """Make a directory for results.  Raises InputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror or error}; give --out") from None


def slug(name: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")


def _written(path: Path, document: dict[str, Any], place: Callable[[str], None]) -> None:
    data = json.dumps(document, indent=None if path.suffix == ".gz" else 1).encode()
    temporary = None
    try:
        file: IO[bytes]
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
            temporary = file.name
            file.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        os.chmod(temporary, 0o666 & ~_umask())
        place(temporary)
    except FileExistsError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
