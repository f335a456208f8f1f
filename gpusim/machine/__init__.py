"""The machine: grids, blocks, warps, registers and memory, executed a chunk of blocks at a time."""

from gpusim.machine.compiled import Compiled, compile_program
from gpusim.machine.engine import Engine, Tally
from gpusim.machine.events import Access, Branch, Listener
from gpusim.machine.memory import DeviceMemory

__all__ = ["Access", "Branch", "Compiled", "DeviceMemory", "Engine", "Listener", "Tally", "compile_program"]
