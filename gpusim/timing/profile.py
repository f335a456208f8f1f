"""Device profiles: what a device's parts can do, every number with where it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.errors import UsageError

FOLDER = Path(__file__).parent / "profiles"


@dataclass(frozen=True)
class Constant:
    """A number of a device.  ``source`` begins with documented, measured, fitted, published or assumed."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Profile:
    """Constants of a device by name; ``arch``: what code it runs, for instance 90."""

    name: str
    device: str
    arch: int
    constants: dict[str, Constant]

    def __getitem__(self, name: str) -> float:
        try:
            return self.constants[name].value
        except KeyError:
            raise UsageError(f"the profile {self.name} has no constant {name!r}: calibrate the device anew") from None

    @property
    def values(self) -> dict[str, float]:
        """All numbers by name."""
        return {name: constant.value for name, constant in self.constants.items()}

    def cycles(self, seconds: float) -> float:
        """Seconds in cycles of the SM's clock."""
        return seconds * self["sm_clock"] * 1e6


def names() -> list[str]:
    """Profiles that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def _read(path: Path) -> Profile:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        base: dict[str, Constant] = {}
        if "inherits" in content:
            for name, constant in load(content["inherits"]).constants.items():
                base[name] = Constant(constant.value, constant.unit, f"assumed as {content['inherits']}")
        own = {k: Constant(float(v["value"]), v["unit"], v["source"]) for k, v in content["constants"].items()}
        return Profile(content["name"], content["device"], int(content["arch"]), base | own)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no device profile ({error}): write one with gpusim calibrate") from None


@cache
def load(name: str) -> Profile:
    """A profile by name, or from a file that ``gpusim calibrate`` wrote.  Raises UsageError if there is none."""
    path = FOLDER / f"{name}.json"
    if path.is_file():
        return _read(path)
    if name.endswith(".json"):
        if not Path(name).is_file():
            raise UsageError(f"there is no file {name}: write a profile with gpusim calibrate")
        return _read(Path(name))
    raise UsageError(f"there is no device profile {name!r}: there are {', '.join(names())}, or give a .json file")


def missing(profile: Profile, wanted: Iterable[str]) -> list[str]:
    """Names that a profile lacks."""
    return [name for name in wanted if name not in profile.constants]
