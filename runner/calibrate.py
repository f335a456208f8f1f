"""Measure what a device profile is made of: ``python runner/calibrate.py PLAN.json OUT.json.gz``.

``gpusim calibrate`` does the same and makes a profile of it.  As a plain file this needs CuPy and NumPy only, and the
kernels' cubins in a plan, which ``python -m gpusim.runner.plan calibrate FOLDER`` writes.  The result holds the raw
rows of all sweeps; :mod:`gpusim.runner.constants` derives the constants from them.  Clocks and settings are left alone.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __package__:
    from gpusim.runner import bandwidth, sweeps
else:  # a plain file, where gpusim is not installed
    import bandwidth  # type: ignore[import-not-found, no-redef]
    import sweeps  # type: ignore[import-not-found, no-redef]

SWEEPS: dict[str, Callable[[Any], Any]] = {
    sweep.__name__: sweep
    for sweep in (
        sweeps.clocks, sweeps.issue, sweeps.branches, sweeps.chases, sweeps.partitions, sweeps.chains, sweeps.shared,
        sweeps.patterns, sweeps.constants, bandwidth.dram, bandwidth.strides, bandwidth.l2, bandwidth.cold,
        bandwidth.hot, bandwidth.atomics, bandwidth.launches, bandwidth.slots, bandwidth.turnaround,
    )
}  # fmt: skip
"""What is measured, in this order."""

CLOCKS = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.draw",
          "temperature.gpu", "clocks_event_reasons.active")  # fmt: skip


def measure(
    cupy: Any,
    module: Callable[[str], Any],
    lowered: dict[str, str],
    save: Callable[[dict[str, Any]], None] = lambda content: None,
    tell: Callable[[str, int, float], None] = lambda name, rows, seconds: None,
    only: Sequence[str] = (),
) -> dict[str, Any]:
    """Run the sweeps on CuPy's current device.

    ``module`` gives the CuPy module of a source of ``sweeps.KERNELS``, ``lowered`` the name that a kernel has in it.
    After each sweep ``save`` gets what is known so far and ``tell`` the sweep's name, rows and seconds.  A sweep that
    fails leaves its error under "failed", and the others go on.
    """
    gpu = sweeps.Gpu(cupy, module, lowered)
    content: dict[str, Any] = {"source": _source(cupy), "hardware": _device(cupy), "sweeps": {}, "failed": {}}
    for name in only or SWEEPS:
        begun = time.perf_counter()
        rows: list[dict[str, Any]] = []
        content["sweeps"][name] = rows
        try:
            for row in SWEEPS[name](gpu):
                rows.append(row)
        except Exception as error:  # whatever it is, the other sweeps are still worth having
            content["failed"][name] = "".join(traceback.format_exception(error))
        tell(name, len(rows), time.perf_counter() - begun)
        cupy.get_default_memory_pool().free_all_blocks()
        save(content)
    after = clocks_now(cupy)
    after.pop("driver_version", None)
    content["source"]["after"] = after
    save(content)
    return content


def clocks_now(cupy: Any) -> dict[str, str]:
    """What nvidia-smi says of clocks, power and driver; empty without it."""
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    place = f"{properties.get('pciDomainID', 0):08x}:{properties.get('pciBusID', 0):02x}"
    place += f":{properties.get('pciDeviceID', 0):02x}.0"
    command = ["nvidia-smi", f"--query-gpu={','.join(CLOCKS)}", "--format=csv,noheader"]
    for which in (["-i", place], []):
        try:
            done = subprocess.run([*command, *which], capture_output=True, text=True, check=True, timeout=30)
        except (OSError, subprocess.SubprocessError):
            continue
        return dict(zip(CLOCKS, (part.strip() for part in done.stdout.splitlines()[0].split(",")), strict=False))
    return {}


def _source(cupy: Any) -> dict[str, Any]:
    now = clocks_now(cupy)
    return {
        "date": datetime.date.today().isoformat(),
        "command": "gpusim calibrate",
        "driver": now.pop("driver_version", "unknown"),
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
        "before": now,
    }


def _device(cupy: Any) -> dict[str, Any]:
    """The device's attributes, and its properties but for what identifies the single piece."""
    device = cupy.cuda.Device()
    properties = cupy.cuda.runtime.getDeviceProperties(device.id)
    kept = {k: v.decode(errors="replace") if isinstance(v, bytes) else v for k, v in properties.items()}
    own = ("uuid", "luid", "luidDeviceNodeMask", "pciBusID", "pciDeviceID", "pciDomainID")
    return {
        "name": kept.get("name", ""),
        "attributes": {k: v for k, v in device.attributes.items() if isinstance(v, int) and not k.startswith("Pci")},
        "properties": {k: v for k, v in kept.items() if isinstance(v, int | float | str) and k not in own},
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file under another name, then rename it; compressed if its name ends in .gz.  A sweep's rows take a line
    each."""
    mark = "rows of the sweeps"
    rows = ",\n".join(
        f"  {json.dumps(name)}: [\n" + ",\n".join(json.dumps(row, default=float) for row in found) + "\n  ]"
        for name, found in content["sweeps"].items()
    )
    frame = json.dumps({**content, "sweeps": mark}, default=float, indent=1)
    text = frame.replace(f'"{mark}"', f"{{\n{rows}\n }}", 1).encode()
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as file:
        file.write(gzip.compress(text) if path.suffix == ".gz" else text + b"\n")
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def main(arguments: list[str] | None = None) -> int:
    """Measure with a plan's cubins; what is done is written after every sweep."""
    parser = argparse.ArgumentParser(description="Measure what a device profile is made of.")
    parser.add_argument("plan", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="names of sweeps, with commas between")
    options = parser.parse_args(arguments)

    import cupy

    plan = json.loads(options.plan.read_text())
    modules: dict[str, Any] = {}

    def module(name: str) -> Any:
        if name not in modules:
            modules[name] = cupy.RawModule(path=str(options.plan.parent / plan["cubins"][name]))
        return modules[name]

    content = measure(
        cupy,
        module,
        plan["lowered"],
        lambda content: write_json(options.out, content),
        lambda name, rows, seconds: print(f"{name}: {rows} rows in {seconds:.1f} s", flush=True),
        [name for name in options.only.split(",") if name],
    )
    for name, error in content["failed"].items():
        print(f"{name}: {error}", file=sys.stderr)
    return 1 if content["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
