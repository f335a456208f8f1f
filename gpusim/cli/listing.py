"""``gpusim list``: the kernels of the catalogue."""

from __future__ import annotations

import click

from gpusim import kernels
from gpusim.report.terminal import Style, Terminal, make_console


@click.command("list")
def list_cases() -> None:
    """List the kernels of the catalogue by family."""
    terminal = Terminal(make_console(), Style(None))
    wrong = gpu = False
    for number, (family, cases) in enumerate(kernels.families().items()):
        terminal.heading(family) if number else terminal.text(family, "bold", 0)
        terminal.catalogue(cases)
        wrong |= any(case.wrong for case in cases)
        gpu |= any(case.needs_gpu for case in cases)
    terminal.console.print()
    if wrong:
        terminal.text("* wrong on purpose: 'gpusim analyze' says what is wrong with it", indent=0)
    if gpu:
        text = "+ needs a GPU to be measured: 'gpusim analyze' counts its kernel, not the copies around it"
        terminal.text(text, indent=0)
    terminal.text("gpusim analyze NAME [--size N] executes one and counts its memory accesses", indent=0)
