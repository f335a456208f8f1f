"""The command line: ``gpusim analyze``, ``gpusim list``, ``gpusim doctor``."""

from __future__ import annotations

from gpusim.cli.program import main

__all__ = ["main"]
