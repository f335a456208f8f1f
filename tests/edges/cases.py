"""All forms, by family."""

from __future__ import annotations

from functools import cache

from tests.edges import cases_float, cases_integer, cases_warp
from tests.edges.case import PROLOGUE, Case


@cache
def all_cases() -> dict[str, tuple[Case, ...]]:
    """The cases of each family."""
    families: dict[str, list[Case]] = {}
    names: set[str] = set()
    for module in (cases_integer, cases_float, cases_warp):
        for case in module.cases():
            if case.name in names:
                raise ValueError(f"two cases are called {case.name}")
            names.add(case.name)
            families.setdefault(case.family, []).append(case)
    return {family: tuple(cases) for family, cases in families.items()}


def family_source(family: str) -> str:
    """One CUDA source for all kernels of a family."""
    return PROLOGUE + "\n".join(case.source() for case in all_cases()[family])
