"""Errors that a user can act on.

Every one of them prints as one sentence (``str(error)``) and names what to do.  ``exit_code`` is what the command
line returns: 2 for wrong use or unsupported input, 3 for no GPU or no counters.
"""

from __future__ import annotations


class GpusimError(Exception):
    """Base of everything gpusim raises on purpose."""

    exit_code = 2


class UsageError(GpusimError):
    """Wrong use: an unknown kernel, a missing argument, a launch the hardware would refuse."""


class InputError(GpusimError):
    """A file that cannot be read as what it should be: not a cubin, unknown architecture, a damaged trace."""


class CompileError(GpusimError):
    """The source does not compile; ``log`` is the compiler's own text."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class UnsupportedError(GpusimError):
    """An instruction, modifier or operand form that the simulator does not implement."""


class ExecutionError(GpusimError):
    """The kernel did something that stops it on a GPU too: a bad address, a deadlock, a trap."""


class GpuError(GpusimError):
    """What a real GPU did not do: too little memory, code for another architecture, a launch that killed its context.

    ``lost`` says that the process can do nothing more with that GPU.
    """

    exit_code = 3

    def __init__(self, message: str, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost


class NoGpuError(GpuError):
    """No GPU, no CuPy, or no hardware counters where they are needed."""
