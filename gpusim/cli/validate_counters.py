"""``gpusim validate --counters``: the catalogue's exact counters beside Nsight Compute's, into the file of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpusim.cli import counters
from gpusim.cli.analyze import Options
from gpusim.cli.catalogue import compile_case
from gpusim.errors import UsageError
from gpusim.kernels import Case
from gpusim.report import hardware
from gpusim.runner import ncu
from gpusim.runner import results as files
from gpusim.runner.results import Results


def size_of(case: Case) -> int:
    """The size that is counted: the largest small one, since a profiler launches a kernel many times."""
    return max(case.small_sizes)


def count_all(
    families: Mapping[str, tuple[Case, ...]],
    arch: str,
    device: int,
    tool: ncu.Tool,
    results: Results,
    path: Path,
    progress: Callable[[str, int, int], None],
) -> None:
    """Count every case twice, unless that was done with the same machine code; the file is written after each."""
    cases = [case for family in families.values() for case in family if not case.hangs]
    for number, case in enumerate(cases):
        progress(f"counting {case.name}", number, len(cases))
        name = f"{case.name}/{size_of(case)}"
        try:
            sha256 = compile_case(case, arch).cubin.sha256
        except UsageError:  # it needs a later architecture
            continue
        if results.counters.get(name, {}).get("cubin_sha256") == sha256:
            continue
        results.counters[name] = {"id": name, "cubin_sha256": sha256, **count_one(case, arch, device, tool)}
        files.replace(path, results.document())


def count_one(case: Case, arch: str, device: int, tool: ncu.Tool) -> dict[str, Any]:
    """How the counters of a case compare: how many exact ones are equal, and which differ."""
    options = Options(case.name, None, None, None, None, (), size_of(case), arch, ())
    work = counters.prepare(options)
    names = list(dict.fromkeys(name for result in work.results for name in result.metrics))
    session = ncu.count(tool, work.module.cubin.data, work.launches, names, device=device)
    compared = [
        hardware.compare(result, found.metrics, None, found.count)
        for result, found in zip(work.results, session.launches, strict=True)
    ]
    rows = [row for each in compared for row in each.rows]
    differences = counters.differences(compared)
    return {
        "ncu": tool.version,
        "exact": sum(row.exactness == "exact" and row.state == "equal" for row in rows),
        "modelled": sum(row.exactness != "exact" for row in rows),
        "arbitration": sum(row.state == "arbitration" for row in rows),
        "absent": sum(row.state == "absent" for row in rows),
        "equal": not differences,
        "differences": differences,
    }


def verdict(results: Results) -> str:
    """How the comparison came out, in a sentence."""
    found = list(results.counters.values())
    wrong = [each["id"] for each in found if not each["equal"]]
    if wrong:
        return f"counters: {len(wrong)} of {len(found)} kernels differ from the hardware: {', '.join(wrong)}"
    exact = sum(each["exact"] for each in found)
    return f"counters: all {exact:,} exact ones of {len(found)} kernels equal the hardware's"
