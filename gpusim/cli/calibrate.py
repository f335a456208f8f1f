"""``gpusim calibrate``: measure the constants of a GPU and write its device profile."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.table import Column

from gpusim.errors import NoGpuError, UsageError
from gpusim.report.terminal import Style, Terminal, make_console
from gpusim.runner import calibrate as runner
from gpusim.runner.constants import measured_on, profile_of
from gpusim.runner.plan import calibrate_kernels


@click.command()
@click.option("--device", default=0, metavar="N", help="Number of the GPU (default 0).")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The profile to write (default: the GPU's name and .json).",
)
def calibrate(device: int, out: Path | None) -> int:
    """Measure the constants of a GPU and write its device profile.

    Takes one to three minutes. Needs an NVIDIA GPU and CuPy; clocks and settings are left alone. The file holds the
    constants, each with its source, and all that was measured.
    """
    cupy = _cupy(device)
    properties = cupy.cuda.runtime.getDeviceProperties(device)
    name = re.sub(r"[^a-z0-9]+", "-", properties["name"].decode().lower().removeprefix("nvidia ")).strip("-") or "gpu"
    out = out or Path(f"{name}.json")
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent} is no directory: name a file of one that exists with --out")
    begun = time.perf_counter()

    def tell(sweep: str, rows: int, seconds: float) -> None:
        click.echo(f"{time.perf_counter() - begun:5.0f} s  {sweep}: {rows} measurements", err=True)

    with cupy.cuda.Device(device), tempfile.TemporaryDirectory() as folder:
        cubins, lowered = calibrate_kernels(int(cupy.cuda.Device().compute_capability))
        modules: dict[str, Any] = {}
        for source, cubin in cubins.items():
            path = Path(folder) / f"{source}.cubin"
            path.write_bytes(cubin)
            modules[source] = cupy.RawModule(path=str(path))
        content = runner.measure(cupy, modules.__getitem__, lowered, tell=tell)
    profile = profile_of(content, out.name.split(".")[0])
    runner.write_json(out, profile)
    terminal = Terminal(make_console(), Style(None))
    terminal.heading(profile["device"], f"measured {profile['source']['date']}")
    terminal.table(
        [Column("constant", no_wrap=True), Column("value", no_wrap=True, justify="right"), "unit", "how"],
        [
            (key, _number(c["value"]), c["unit"], c["source"].removeprefix(measured_on(profile["source"]["date"])))
            for key, c in profile["constants"].items()
        ],
    )
    terminal.text(f"written to {out}", indent=0)
    for sweep in content["failed"]:
        terminal.text(f"problem: the sweep {sweep} failed; the file says how", "bold red", 0)
    return 1 if content["failed"] else 0


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,.5g}"


def _cupy(device: int) -> Any:
    """CuPy, with a GPU of that number.  Raises NoGpuError or UsageError."""
    try:
        import cupy
    except ImportError as error:
        raise NoGpuError("calibrating needs CuPy: pip install 'gpusim[gpu]' on a machine with an NVIDIA GPU") from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise NoGpuError(f"calibrating needs an NVIDIA GPU with its driver, and CUDA finds none ({error})") from error
    if not count:
        raise NoGpuError("calibrating needs an NVIDIA GPU with its driver, and CUDA finds none")
    if not 0 <= device < count:
        raise UsageError(f"there is no GPU {device}: --device takes 0 to {count - 1}")
    return cupy
