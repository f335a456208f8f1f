"""Device profiles: the constants of a GPU that a prediction of time needs, each with its unit and its source.

A profile is a JSON file ``NAME.json``, here or anywhere::

    {"name": "h200", "device": "NVIDIA H200", "arch": 90, "source": {"date": ..., "driver": ..., "command": ...},
     "constants": {"latency_shared_32": {"value": 23.0, "unit": "cycles", "source": "measured 2026-11-30 by ..."}, ...}}

A profile with a "base" has of its own only what is published of its device.  Everything else is the base's, and its
source then says so ("assumed as h200").  docs/profiles.md explains every constant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.errors import InputError, UsageError

FOLDER = Path(__file__).parent

__all__ = ["Constant", "Profile", "load", "names"]


@dataclass(frozen=True)
class Constant:
    """One property of a device.  ``source`` begins with documented, measured, published or assumed."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Profile(Mapping[str, float]):
    """The constants of a device: ``profile["sms"]`` is a value, ``profile.constants["sms"]`` has unit and source."""

    name: str
    device: str
    arch: int
    source: Mapping[str, Any]
    constants: Mapping[str, Constant]

    def __getitem__(self, name: str) -> float:
        """The value of a constant.  Raises UsageError if the profile lacks it."""
        try:
            return self.constants[name].value
        except KeyError:
            raise UsageError(
                f"the device profile {self.name!r} has no constant {name!r}: measure it anew with 'gpusim calibrate'"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self.constants

    def __iter__(self) -> Iterator[str]:
        return iter(self.constants)

    def __len__(self) -> int:
        return len(self.constants)


def names() -> list[str]:
    """The profiles that gpusim brings along."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(device: str | Path) -> Profile:
    """The profile of a name, or of a file that ``gpusim calibrate`` wrote.

    Raises UsageError if there is none, and InputError if the file is not a profile.
    """
    path = Path(device)
    if path.suffix == ".json":
        if not path.is_file():
            raise UsageError(f"there is no file {path}: 'gpusim calibrate --out {path}' writes one")
        return _read(path)
    return _known(str(device))


@cache
def _known(name: str) -> Profile:
    if name not in names():
        raise UsageError(f"there is no device profile {name!r}: there are {', '.join(names())}, or name a .json file")
    return _read(FOLDER / f"{name}.json")


def _read(path: Path) -> Profile:
    try:
        content = json.loads(path.read_text())
        constants = {
            name: Constant(c["value"], str(c["unit"]), str(c["source"])) for name, c in content["constants"].items()
        }
        profile = Profile(
            str(content["name"]), str(content["device"]), int(content["arch"]), content.get("source", {}), constants
        )
        wrong = [name for name, c in constants.items() if not isinstance(c.value, int | float)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a device profile ({error!r}): 'gpusim calibrate' writes one") from error
    if wrong:
        raise InputError(f"{path}: the value of {wrong[0]} is not a number")
    if "base" not in content:
        return profile
    base = _known(str(content["base"]))
    inherited = {name: Constant(c.value, c.unit, f"assumed as {base.name}") for name, c in base.constants.items()}
    return Profile(profile.name, profile.device, profile.arch, profile.source, inherited | constants)
