"""Recorded times of the catalogue: those that the package ships, or those in a file of results."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.errors import UsageError
from gpusim.runner.cases import WHOLE
from gpusim.runner.results import read_document

FOLDER = Path(__file__).parent / "recorded"
TIE = 0.02  # medians closer than this are a tie, and so are overlapping interquartile ranges


@dataclass(frozen=True)
class Time:
    """Microseconds of a problem; where its launches were timed one by one only, the sums over them.

    ``low`` and ``high`` are the quartiles, ``samples`` the number of samples (the fewest, of sums).
    """

    median: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True)
class Recording:
    """Times of one device.  ``header``: device, driver, date, how it was measured; ``problems``: what was checked."""

    header: dict[str, Any]
    launches: dict[str, dict[str, Any]]
    problems: dict[str, dict[str, Any]] = field(default_factory=dict)

    def code(self, case: str, size: int) -> list[str] | None:
        """Digests of the machine code of a problem's launches, None if the recording does not have them."""
        launches = self.problems.get(f"{case}/{size}", {}).get("launches")
        return None if launches is None else [launch["code_sha256"] for launch in launches]

    def of(self, case: str, size: int, how: str) -> Time | None:
        """The time of a case at a size, ``how`` "cold" or "hot"; None if it was not measured."""
        found: list[dict[str, Any]] = []
        whole = self.launches.get(f"{case}/{size}/{WHOLE}")
        if whole is not None and how in whole:
            return time_of(whole[how])
        while (launch := self.launches.get(f"{case}/{size}/{len(found)}")) is not None and how in launch:
            found.append(launch[how])
        if not found:
            return None
        return Time(
            sum(t["median"] for t in found),
            sum(t["quartiles"][0] for t in found),
            sum(t["quartiles"][1] for t in found),
            min(t["samples"] for t in found),
        )

    def sizes(self, case: str) -> list[int]:
        """Sizes at which a case was measured."""
        return sorted({int(key.split("/")[1]) for key in self.launches if key.startswith(f"{case}/")})

    @property
    def source(self) -> str:
        """Where the times come from, in words."""
        h = self.header
        return f"{h['device']}, driver {h['driver']}, {h['date']}"


def time_of(entry: dict[str, Any]) -> Time:
    """The time in an entry of a file of results."""
    low, high = entry["quartiles"]
    return Time(entry["median"], low, high, entry["samples"])


def recording_of(document: dict[str, Any]) -> Recording:
    """Times from the document of a file of results."""
    return Recording(
        document["header"],
        {entry["id"]: entry for entry in document["times"]},
        {problem["id"]: problem for problem in document.get("problems", ())},
    )


def names() -> list[str]:
    """Devices with recorded times."""
    return sorted(path.name.removesuffix("_times.json.gz") for path in FOLDER.glob("*_times.json.gz"))


@cache
def _packaged(path: Path) -> Recording:
    return recording_of(read_document(path))


def recorded(name: str) -> Recording:
    """The recording of a device, or in a file of results.  Raises UsageError if there is none, or InputError."""
    path = FOLDER / f"{name}_times.json.gz"
    if path.is_file():
        return _packaged(path)
    if not Path(name).is_file():
        raise UsageError(
            f"there are no recorded times of {name!r}: there are those of {', '.join(names()) or 'nothing'}; "
            "or give a file that 'gpusim run' or 'gpusim validate' wrote"
        )
    return recording_of(read_document(Path(name)))


def tied(a: Time, b: Time) -> bool:
    """Whether two times cannot be told apart."""
    overlap = a.low <= b.high and b.low <= a.high
    return overlap or abs(a.median - b.median) <= TIE * min(a.median, b.median)
