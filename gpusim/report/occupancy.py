"""How many warps can be resident on a multiprocessor, what limits them, and the arithmetic of each limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.machine.limits import limits_of
from gpusim.result import Result


@dataclass(frozen=True)
class Resource:
    """One resource: what a block takes, what a multiprocessor has, and how many blocks (and warps) that allows."""

    name: str
    block_takes: str
    available: str
    blocks: int
    warps: int
    limits: bool


@dataclass(frozen=True)
class OccupancySection:
    """Theoretical occupancy; ``percent`` of ``warps_possible``."""

    percent: float
    warps: int
    warps_possible: int
    blocks: int
    warps_a_block: int
    limiter: str
    resources: tuple[Resource, ...]


def collect(result: Result) -> OccupancySection:
    """The limits of the launch, resource by resource."""
    facts, fits = result.launch, result.occupancy
    limits = limits_of(int(facts.arch.removeprefix("sm_").rstrip("af")))
    threads = math.prod(facts.block)
    warps = -(-threads // 32)
    a_warp = fits.registers_allocated * 32
    shared = facts.shared_static + facts.shared_dynamic
    unit, reserved = limits.shared_unit, limits.shared_reserved
    taken = -(-(shared + reserved) // unit) * unit
    parts = f"{shared:,} B + {reserved:,} reserved" if reserved else f"{shared:,} B"
    lines = [
        ("warps", f"{threads:,} threads = {warps} warps", f"{limits.warps} warps", fits.limit_warps),
        (
            "registers",
            f"{warps} warps x 32 x {fits.registers_allocated} = {warps * a_warp:,}",
            f"{limits.registers:,}",
            fits.limit_registers,
        ),
        ("shared memory", f"{parts} -> {taken:,} B", f"{fits.carveout:,} B", fits.limit_shared),
        ("blocks", "1", f"{limits.blocks}", fits.limit_blocks),
        ("barriers", "at least 1", f"{limits.barriers}", fits.limit_barriers),
    ]
    if fits.limit_barriers >= limits.blocks:
        lines.pop()  # says no more than the limit of blocks
    limiting = set(fits.limiter.split(" and "))
    return OccupancySection(
        percent=fits.percent,
        warps=fits.warps,
        warps_possible=fits.warps_possible,
        blocks=fits.blocks,
        warps_a_block=warps,
        limiter=fits.limiter,
        resources=tuple(
            Resource(name, takes, has, blocks, blocks * warps, name in limiting) for name, takes, has, blocks in lines
        ),
    )
