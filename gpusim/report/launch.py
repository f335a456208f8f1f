"""What was launched: the kernel, its shape, its resources, and what made the machine code."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.result import Result


@dataclass(frozen=True)
class Launch:
    """Facts of one launch; sizes in bytes."""

    kernel: str
    arch: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    blocks: int
    threads: int
    registers: int
    shared_static: int
    shared_dynamic: int
    local_bytes: int
    toolkit: str | None
    nvrtc_version: str | None
    path: str
    warp_instructions: int
    thread_instructions: int

    @property
    def made_by(self) -> str:
        """What made the machine code."""
        if self.nvrtc_version:
            return f"NVRTC {self.toolkit or self.nvrtc_version}"
        return f"CUDA toolkit {self.toolkit}" if self.toolkit else "an unknown toolkit"


def collect(result: Result) -> Launch:
    """The facts of a launch."""
    facts = result.launch
    return Launch(
        kernel=facts.kernel,
        arch=facts.arch,
        grid=facts.grid,
        block=facts.block,
        blocks=math.prod(facts.grid),
        threads=math.prod(facts.block),
        registers=facts.registers,
        shared_static=facts.shared_static,
        shared_dynamic=facts.shared_dynamic,
        local_bytes=facts.local_bytes,
        toolkit=facts.toolkit,
        nvrtc_version=facts.nvrtc_version,
        path=result.path,
        warp_instructions=result.metrics["smsp__sass_inst_executed.sum"],
        thread_instructions=result.metrics["smsp__sass_thread_inst_executed.sum"],
    )
