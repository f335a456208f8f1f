"""The machine: grids, blocks, warps, registers and memory, executed a chunk of blocks at a time."""

from gpusim.machine.engine import Compiled, Engine, Tally, compile_program
from gpusim.machine.events import Access, Branch, Listener
from gpusim.machine.memory import DeviceMemory

__all__ = ["Access", "Branch", "Compiled", "DeviceMemory", "Engine", "Listener", "Tally", "compile_program"]
