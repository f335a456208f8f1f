"""Transfers and overlap for the command line: measured now, or as recorded; see :mod:`gpusim.runner.transfers`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gpusim import kernels
from gpusim.errors import UsageError
from gpusim.report import transfers as report
from gpusim.report.terminal import Style, Terminal, make_console
from gpusim.result import SCHEMA
from gpusim.runner import transfers


def run_transfers(
    names: Sequence[str],
    *,
    size: int | None = None,
    device: int = 0,
    recorded: str | None = None,
    svg: Path | None = None,
    as_json: bool = False,
) -> int:
    """Measure some of the transfers on a GPU, or take what is recorded of a device, and show them.

    ``names``: of ``transfers.NAMES``, or the family's.  ``svg``: where to draw the timelines.  Returns the exit code.
    """
    chosen = [each for name in names for each in (transfers.NAMES if name == transfers.FAMILY else (name,))]
    if recorded is not None and size is not None:
        raise UsageError("--recorded shows the sizes that were recorded: leave --size out")
    if svg is not None and "stream_overlap" not in chosen:
        raise UsageError("--svg draws the streams of stream_overlap: name it")
    results: list[dict[str, Any]] = [
        transfers.recorded(recorded, name) if recorded is not None else transfers.run(name, size, device)
        for name in dict.fromkeys(chosen)
    ]
    if svg is not None:
        draw(svg, next(result for result in results if result["name"] == "stream_overlap"))
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "kind": "transfers", "results": results}, indent=1))
        return 0
    terminal = Terminal(make_console(), Style(None))
    for result in results:
        report.show(terminal, result)
        terminal.heading("Lesson")
        terminal.text(kernels.find(result["name"]).lesson)
    return 0


def draw(path: Path, result: dict[str, Any]) -> None:
    """Write the drawing and rename it into place.  Raises UsageError if the file cannot be written."""
    temporary = path.with_name(f"{path.name}.part")
    try:
        temporary.write_text(report.svg(result))
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}): give another file with --svg") from None
