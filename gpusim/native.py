"""Compiled versions of a few hot loops, where Numba is installed (``pip install 'gpusim[fast]'``).

They give the same results as the NumPy code that they stand in for, bit for bit, and are used once a process has
executed for a while (importing Numba and loading the loops takes a second or so).  The variable ``GPUSIM_NUMBA`` says
``0`` for never and ``1`` for at once.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
VARIABLE = "GPUSIM_NUMBA"
PATIENCE = 1.0  # seconds of execution after which the loops are loaded


class Loops:
    """The loops, each None where NumPy is to be used."""

    fused: Callable[[Array, Array, Array, Array], None] | None = None
    degrees: Callable[[Array, Array, int, Array], None] | None = None


_spent = 0.0
_tried = False


def spent(seconds: float) -> None:
    """Note that a launch took so long; load the loops when it is worth it."""
    global _spent
    _spent += seconds
    if not _tried and _spent >= PATIENCE:
        load()


def wanted_at_once() -> bool:
    """Whether the environment asks for the loops from the start."""
    return not _tried and os.environ.get(VARIABLE) == "1"


def load() -> bool:
    """Load the loops if Numba is there and they work; whether they are in use."""
    global _tried
    _tried = True
    if os.environ.get(VARIABLE) == "0" or importlib.util.find_spec("numba") is None:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from gpusim import native_loops
        if not native_loops.work():
            return False
    except Exception:  # a Numba that cannot compile here: NumPy does the same
        return False
    Loops.fused, Loops.degrees = native_loops.fused, native_loops.degrees
    return True


def unload() -> None:
    """Use NumPy again."""
    Loops.fused = Loops.degrees = None
