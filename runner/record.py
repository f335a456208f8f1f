"""Record what Nsight Compute counts for a plan of launches: ``python runner/record.py PLAN OUT.json.gz``.

Runs on a machine with a GPU, CuPy and Nsight Compute (``ncu``), with only the standard library and NumPy besides; see
:mod:`gpusim.runner.replay` for the plan.  Two passes are made: one plain, for digests of the results, one under
``ncu`` with the counters of ``METRICS`` for every launch and the per-instruction table of its SourceCounters section.
The recording holds the plan, the cubins (base64) and the answers, so that it can be checked without a GPU.
The clocks and caches of the GPU are left alone.
"""

from __future__ import annotations

import argparse
import base64
import csv
import datetime
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

_SASS = "smsp__sass_"
_WAVES = f"{_SASS}l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
_SECTORS = f"{_SASS}l1tex_t_sectors_pipe_lsu_mem_"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_"

METRICS = [
    f"{_SASS}inst_executed.sum",
    f"{_SASS}thread_inst_executed.sum",
    f"{_SASS}thread_inst_executed_pred_on.sum",
    *(
        f"{_SASS}inst_executed_op_{kind}.sum"
        for kind in (
            "shared_ld", "shared_st", "shared_atom", "global_ld", "global_st", "global_red", "global_atom", "local_ld",
            "local_st", "branch",
        )
    ),
    *(f"{_WAVES}{op}.sum" for op in ("ld", "st", "atom", "ldsm", "stsm", "ldgsts")),
    *(f"{_CONFLICTS}{op}.sum" for op in ("ld", "st", "atom", "ldgsts")),
    *(f"{_SECTORS}{op}.sum" for op in (
        "global_op_ld", "global_op_st", "global_op_red", "global_op_atom", "global_op_ldgsts", "local_op_ld",
        "local_op_st",
    )),
    f"{_SASS}l1tex_tags_mem_global.sum",
    *(f"{_REQUESTS}{op}.sum" for op in ("ld", "st", "red", "atom")),
    f"{_SASS}branch_targets.sum",
    f"{_SASS}branch_targets_threads_uniform.sum",
    f"{_SASS}branch_targets_threads_divergent.sum",
]  # fmt: skip

# what the memory hierarchy moved and what warps waited for: plain hardware counters, which vary between runs
_STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "no_instruction", "not_selected", "selected", "short_scoreboard",
    "sleeping", "tex_throttle", "wait",
)  # fmt: skip
HARDWARE = [
    "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_tex_lookup_hit.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum", "l1tex__data_pipe_lsu_wavefronts.sum",
]  # fmt: skip
STALLS = [
    "gpu__time_duration.sum", "sm__warps_active.sum", "sm__cycles_active.sum",
    *(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in _STALLS),
]  # fmt: skip

# per-instruction columns of the source page: header in the CSV -> short name in the recording
COLUMNS = {
    "Instructions Executed": "executed",
    "Thread Instructions Executed": "thread_executed",
    "Predicated-On Thread Instructions Executed": "predicated_on",
    "Divergent Branches": "divergent",
    "L1 Tag Requests Global": "tags",
    "L1 Wavefronts Shared": "wavefronts",
    "L1 Wavefronts Shared Ideal": "wavefronts_ideal",
    "L2 Theoretical Sectors Global": "sectors",
    "L2 Theoretical Sectors Global Ideal": "sectors_ideal",
    "L2 Theoretical Sectors Local": "sectors_local",
}
# asked for by name, since not every version's section shows them
SOURCE_METRICS = [
    "inst_executed", "thread_inst_executed", "thread_inst_executed_true", "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal", "memory_l2_theoretical_sectors_local",
    "smsp__branch_targets_threads_divergent",
]  # fmt: skip


def number(text: str) -> int:
    """An integer cell of ncu's CSV; empty and "-" cells are 0."""
    text = text.replace(",", "")
    return 0 if text in ("", "-", "n/a") else int(float(text))


def fraction(text: str) -> float:
    """A cell that may hold a fraction; empty and "-" cells are 0."""
    text = text.replace(",", "")
    return 0.0 if text in ("", "-", "n/a") else float(text)


def quoted(text: str) -> Iterable[str]:
    """The CSV lines among ncu's messages."""
    return (line for line in text.splitlines() if line.startswith('"'))


def parse_raw(text: str) -> list[dict[str, Any]]:
    """The raw page: one dict a launch, with the metrics asked for and all launch__ ones."""
    rows = list(csv.DictReader(io.StringIO("\n".join(quoted(text)))))
    launches = []
    for row in rows[1:]:  # the first row holds units
        metrics: dict[str, Any] = {}
        for name, value in row.items():
            if name in METRICS:
                metrics[name] = number(value)
            elif name in HARDWARE or name in STALLS:
                metrics[name] = fraction(value)
            elif name.startswith("launch__"):
                metrics[name] = value
        launches.append({"kernel": row["Kernel Name"], "metrics": metrics})
    return launches


def parse_source(text: str) -> list[dict[str, Any]]:
    """The source page: one table a launch (ncu prints each launch's table once or twice, back to back)."""
    tables: list[dict[str, Any]] = []
    header: list[str] = []
    for row in csv.reader(quoted(text)):
        if row[0] == "Kernel Name":
            tables.append({"kernel": row[1], "rows": []})
        elif row[0] == "Address":
            header = row
        elif tables and header:
            tables[-1]["rows"].append(dict(zip(header, row, strict=False)))
    return tables


def columns_of(table: dict[str, Any]) -> dict[str, list[int]]:
    """The table's known columns as lists by instruction; columns of zeros are left out."""
    found = {}
    for title, short in COLUMNS.items():
        values = [number(row.get(title, "")) for row in table["rows"]]
        if any(values):
            found[short] = values
    return found


def launch_key(launch: dict[str, Any]) -> tuple[Any, ...]:
    """What a launch and its table have in common: the kernel, and the totals of the first three columns."""
    names = ("inst_executed", "thread_inst_executed", "thread_inst_executed_pred_on")
    return (base_name(launch["kernel"]), *(launch["metrics"][f"{_SASS}{name}.sum"] for name in names))


def table_key(table: dict[str, Any]) -> tuple[Any, ...]:
    """The same of a table."""
    titles = list(COLUMNS)[:3]
    return (base_name(table["kernel"]), *(sum(number(row.get(title, "")) for row in table["rows"]) for title in titles))


def pair_tables(tables: list[dict[str, Any]], launches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The table of each launch.  Tables come in the launches' order, each launch's as often as the next one's.

    Launches in a row whose kernel and totals are equal share the tables of that kind evenly, so that the second copy of
    one launch's table is not taken for the next launch's.  Tables that are no launch's (of functions) are passed over.
    """
    keys = [launch_key(launch) for launch in launches]
    known = set(keys)
    ours = [(key, table) for key, table in ((table_key(table), table) for table in tables) if key in known]
    wanted = [(key, len(list(run))) for key, run in groupby(keys)]
    found = [(key, [table for _, table in run]) for key, run in groupby(ours, key=lambda pair: pair[0])]
    if [key for key, _ in wanted] != [key for key, _ in found]:
        missing = [key for key, _ in wanted if key not in {key for key, _ in found}]
        raise SystemExit(f"the instruction tables do not follow the launches; launches without a table: {missing[:20]}")
    paired = []
    for (key, count), (_, run) in zip(wanted, found, strict=True):
        copies, rest = divmod(len(run), count)
        if rest:
            raise SystemExit(f"{len(run)} instruction tables for {count} launches in a row of {key}")
        paired += run[::copies]
    return paired


def base_name(kernel: str) -> str:
    """The name without return type, template arguments and parameters."""
    return re.sub(r"[<(].*", "", kernel).split()[-1]


def run(command: list[str], **more: Any) -> str:
    """Run a command and return what it printed; its error output is shown when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        sys.stderr.write(done.stdout[-2000:] + done.stderr[-2000:])
        raise SystemExit(f"{command[0]} failed with exit code {done.returncode}")
    return done.stdout


def main(arguments: list[str] | None = None) -> int:
    """Record the plan."""
    parser = argparse.ArgumentParser(description="Record Nsight Compute's counters of a plan of launches.")
    parser.add_argument("plan", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--no-source", action="store_true", help="totals only")
    parser.add_argument("--hardware", action="store_true", help="bytes moved and L1 and L2 hits, caches flushed")
    parser.add_argument("--stalls", action="store_true", help="what warps waited for, caches flushed")
    parser.add_argument("--launch-only", action="store_true", help="launch__ metrics only")
    parser.add_argument("--results-only", action="store_true", help="digests of the results, no counters")
    parser.add_argument("--values", action="store_true", help="the results themselves (OUT.npz.xz), no counters")
    parser.add_argument("--keep-page", type=Path, help="also keep ncu's source page as it is (gzip)")
    options = parser.parse_args(arguments)
    replay = [sys.executable, str(Path(__file__).with_name("replay.py")), str(options.plan)]
    plan = json.loads(options.plan.read_text())
    plain = options.hardware or options.stalls
    if options.values:
        record_values(options, plan, replay)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results.json"
        if plain:
            results.write_text("{}")
        else:
            run([*replay, "--results", str(results)])
        if options.results_only:
            digests = json.loads(results.read_text())
            recorded = [{"id": launch["id"], "results": digests[launch["id"]]} for launch in plan["launches"]]
            write_recording(options, plan, recorded, "replay only")
            return 0
        report = str(Path(scratch) / "report")
        base = ["ncu", "--clock-control", "none", "--cache-control", "all" if plain else "none"]
        wanted = ["--section", "LaunchStats", "--section", "Occupancy"]
        if plain:
            wanted = ["--metrics", ",".join(HARDWARE * options.hardware + STALLS * options.stalls)]
        elif not options.launch_only:
            names = METRICS + ([] if options.no_source else SOURCE_METRICS)
            wanted += ["--metrics", ",".join(names)]
            if not options.no_source:
                wanted += ["--section", "SourceCounters"]
        run([*base, *wanted, "-f", "-o", report, *replay])
        printing = ["ncu", "--import", f"{report}.ncu-rep", "--csv", "--print-units", "base"]
        launches = parse_raw(run([*printing, "--page", "raw"]))
        tables: list[dict[str, Any]] = []
        if not (options.no_source or options.launch_only or plain):
            page = run([*printing, "--page", "source"])
            tables = parse_source(page)
            if options.keep_page is not None:
                options.keep_page.write_bytes(gzip.compress(page.encode()))
        digests = json.loads(results.read_text())
    if len(launches) != len(plan["launches"]):
        raise SystemExit(f"{len(launches)} launches recorded, {len(plan['launches'])} planned")
    recorded = []
    paired = pair_tables(tables, launches) if tables else [None] * len(launches)
    for launch, planned, table in zip(launches, plan["launches"], paired, strict=True):
        entry = {"id": planned["id"], "metrics": launch["metrics"], "results": digests.get(planned["id"], {})}
        if table is not None:
            entry["instructions"] = columns_of(table)
            entry["count"] = len(table["rows"])
        recorded.append(entry)
    command = " ".join(base) + " " + " ".join(wanted[:4]) + " --metrics ..."
    write_recording(options, plan, recorded, command)
    return 0


def record_values(options: argparse.Namespace, plan: dict[str, Any], replay: list[str]) -> None:
    """Keep the buffers' contents: an npz (compressed by xz) of ``<launch> <buffer>``, ``cubin <name>`` and ``header``.

    A part of the plan that fails or takes more than a minute is halved, down to single launches, which ``header`` then
    lists under ``failed`` with their error; the rest is not lost.
    """
    arrays: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def replay_part(first: int, count: int) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            values = Path(scratch) / "values.npz"
            command = [*replay, "--values", str(values), "--first", str(first), "--count", str(count)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                error = done.stderr.strip()[-500:] if done.returncode else ""
            except subprocess.TimeoutExpired:
                error = "more than a minute"
            if not error:
                with np.load(values) as found:
                    arrays.update(found.items())
                return
        if count == 1:
            failed[plan["launches"][first]["id"]] = error
            return
        replay_part(first, count // 2)
        replay_part(first + count // 2, count - count // 2)

    names = [launch["cubin"] for launch in plan["launches"]]
    start = 0
    for number in range(1, len(names) + 1):
        if number == len(names) or names[number] != names[start]:
            replay_part(start, number - start)
            start = number
    header = {**header_of("replay only"), "failed": failed, "plan": plan}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    for name, path in plan["cubins"].items():
        arrays[f"cubin {name}"] = np.frombuffer((options.plan.parent / path).read_bytes(), np.uint8)
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    temporary = f"{options.out}.part"
    Path(temporary).write_bytes(lzma.compress(packed.getvalue()))
    os.replace(temporary, options.out)


def header_of(command: str) -> dict[str, str]:
    """Where a recording comes from."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    device, driver = run(query).splitlines()[0].split(", ")
    return {
        "device": device,
        "driver": driver,
        "ncu": run(["ncu", "--version"]).strip().splitlines()[-1],
        "date": datetime.date.today().isoformat(),
        "command": command,
    }


def write_recording(
    options: argparse.Namespace, plan: dict[str, Any], recorded: list[dict[str, Any]], command: str
) -> None:
    """Write plan, cubins and answers, with where they come from, and rename into place."""
    header = header_of(command)
    for name, path in plan["cubins"].items():
        plan["cubins"][name] = base64.b64encode((options.plan.parent / path).read_bytes()).decode()
    temporary = f"{options.out}.part"
    with gzip.open(temporary, "wt") as stream:
        json.dump({"header": header, "plan": plan, "launches": recorded}, stream)
    os.replace(temporary, options.out)


if __name__ == "__main__":
    sys.exit(main())
