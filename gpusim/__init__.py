"""gpusim: what a CUDA kernel's memory accesses cost, counted exactly and without a GPU."""

from gpusim.api import Kernel, Module, compile, load
from gpusim.errors import (
    CompileError,
    ExecutionError,
    GpuError,
    GpusimError,
    InputError,
    NoGpuError,
    UnsupportedError,
    UsageError,
)
from gpusim.result import InstructionCounts, Result

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "ExecutionError",
    "GpuError",
    "GpusimError",
    "InputError",
    "InstructionCounts",
    "Kernel",
    "Module",
    "NoGpuError",
    "Result",
    "UnsupportedError",
    "UsageError",
    "compile",
    "load",
]
