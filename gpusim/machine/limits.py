"""What an architecture allows: launch limits and the resources of one multiprocessor.

Source: CUDA C++ Programming Guide, "Compute Capabilities" (technical specifications per compute capability); register
allocation granularity from the same tables in the CUDA occupancy calculator.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.errors import InputError, UsageError

KIB = 1024


@dataclass(frozen=True)
class Limits:
    """Resources of one multiprocessor (SM); sizes in bytes."""

    warps: int
    blocks: int
    registers: int
    shared_per_sm: int
    shared_per_block: int  # with the opt-in for large dynamic shared memory
    carveouts: tuple[int, ...]  # shared memory configurations that the driver can choose
    shared_reserved: int  # taken from every block by the system
    barriers: int = 16
    register_unit: int = 256  # registers are given to warps in this many
    registers_least: int = 16  # a thread; what kernels that need fewer are launched with (recorded: sm_90)
    warp_unit: int = 4  # warps are spread over four schedulers
    shared_unit: int = 128


def _kib(*sizes: int) -> tuple[int, ...]:
    return tuple(s * KIB for s in sizes)


_AMPERE_LARGE = _kib(0, 8, 16, 32, 64, 100, 132, 164)
_AMPERE_SMALL = _kib(0, 8, 16, 32, 64, 100)
_HOPPER = _kib(0, 8, 16, 32, 64, 100, 132, 164, 196, 228)

_LIMITS: dict[int, Limits] = {
    75: Limits(32, 16, 65536, 64 * KIB, 64 * KIB, _kib(32, 64), 0, shared_unit=256),
    80: Limits(64, 32, 65536, 164 * KIB, 163 * KIB, _AMPERE_LARGE, 1 * KIB),
    86: Limits(48, 16, 65536, 100 * KIB, 99 * KIB, _AMPERE_SMALL, 1 * KIB),
    87: Limits(48, 16, 65536, 164 * KIB, 163 * KIB, _AMPERE_LARGE, 1 * KIB),
    88: Limits(48, 16, 65536, 100 * KIB, 99 * KIB, _AMPERE_SMALL, 1 * KIB),
    89: Limits(48, 24, 65536, 100 * KIB, 99 * KIB, _AMPERE_SMALL, 1 * KIB),
    90: Limits(64, 32, 65536, 228 * KIB, 227 * KIB, _HOPPER, 1 * KIB, barriers=32),
    100: Limits(64, 32, 65536, 228 * KIB, 227 * KIB, _HOPPER, 1 * KIB, barriers=32),
    103: Limits(64, 32, 65536, 228 * KIB, 227 * KIB, _HOPPER, 1 * KIB, barriers=32),
    110: Limits(48, 24, 65536, 228 * KIB, 227 * KIB, _HOPPER, 1 * KIB),
    120: Limits(48, 24, 65536, 100 * KIB, 99 * KIB, _AMPERE_SMALL, 1 * KIB),
    121: Limits(48, 24, 65536, 100 * KIB, 99 * KIB, _AMPERE_SMALL, 1 * KIB),
}

MOST_THREADS = 1024  # a block
MOST_BLOCK = (1024, 1024, 64)
MOST_GRID = (2**31 - 1, 65535, 65535)


def limits_of(arch: int) -> Limits:
    """Limits of an architecture number such as 90.  Raises InputError for one that is not known."""
    found = _LIMITS.get(arch)
    if found is None:
        known = ", ".join(f"sm_{a}" for a in sorted(_LIMITS))
        raise InputError(f"architecture sm_{arch} is not known to the simulator: use a cubin for one of {known}")
    return found


def triple(value: object, what: str) -> tuple[int, int, int]:
    """A grid or block shape from an int or 1 to 3 ints.  Raises UsageError."""
    parts = (value,) if isinstance(value, int) or not hasattr(value, "__iter__") else tuple(value)
    try:
        numbers = [int(p) for p in parts]
        exact = all(n == p for n, p in zip(numbers, parts, strict=True))
    except (TypeError, ValueError):
        exact = False
        numbers = []
    if not exact or not 1 <= len(numbers) <= 3:
        raise UsageError(f"the {what} must be one to three whole numbers, not {value!r}")
    x, y, z = [*numbers, 1, 1][:3]
    return x, y, z


def check_shape(grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    """Raises UsageError for a launch shape that no GPU accepts."""
    for shape, most, what in ((grid, MOST_GRID, "grid"), (block, MOST_BLOCK, "block")):
        for size, limit, axis in zip(shape, most, "xyz", strict=True):
            if size < 1:
                raise UsageError(f"the {what} {shape} has {size} in {axis}: every dimension must be at least 1")
            if size > limit:
                raise UsageError(f"the {what} {shape} has {size} in {axis}: at most {limit} are allowed")
    threads = block[0] * block[1] * block[2]
    if threads > MOST_THREADS:
        raise UsageError(
            f"the block {block} has {threads} threads: a block may have at most {MOST_THREADS}; use a smaller block"
        )


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks that each resource of an SM allows, and the warps that result."""

    limit_warps: int
    limit_blocks: int
    limit_registers: int
    limit_shared: int
    limit_barriers: int
    carveout: int
    warps: int  # resident warps an SM at most
    warps_possible: int
    registers: int  # a thread, as the driver launches the kernel
    registers_allocated: int  # a thread, rounded as the hardware gives them out

    @property
    def blocks(self) -> int:
        return min(self.limit_warps, self.limit_blocks, self.limit_registers, self.limit_shared, self.limit_barriers)

    @property
    def percent(self) -> float:
        """Theoretical occupancy in percent."""
        return 100.0 * self.warps / self.warps_possible

    @property
    def limiter(self) -> str:
        """What keeps more blocks from being resident."""
        named = {
            "registers": self.limit_registers,
            "shared memory": self.limit_shared,
            "warps": self.limit_warps,
            "blocks": self.limit_blocks,
            "barriers": self.limit_barriers,
        }
        least = min(named.values())
        return " and ".join(name for name, value in named.items() if value == least)


def _carveout(limits: Limits, warps: int, others: int, used: int, shared: int, by_barriers: int) -> int:
    """Bytes of shared memory that the driver configures an SM with, for blocks of ``warps``.

    ``others``: resident blocks that everything but shared memory allows.  Room for twice as many blocks is made as long
    as that leaves about half of the L1 data cache, but not for more than the barriers allow (``by_barriers``; from
    recording ``h200_barriers``).  Read off launches on an H200 (driver 580.159.04, recording
    ``h200_carveout``); on other architectures an extrapolation.  That blocks of four warps with the least shared memory
    get 32 KiB, where twice as many blocks would need 36 KiB, is recorded and not understood.
    """

    def least(wanted: int) -> int:
        return next((c for c in limits.carveouts if c >= wanted), limits.carveouts[-1])

    if not shared and limits.shared_reserved:
        small = 8 * KIB if others == 1 or warps >= 24 else 16 * KIB if warps >= 16 else 32 * KIB
        return least(min(small, by_barriers * used))
    fitting = min(others, limits.carveouts[-1] // used) if used else others
    hoped = others if others == 1 or warps == 32 else min(2 * others, limits.blocks, by_barriers)
    generous = min(least(hoped * used), least(limits.shared_per_sm * 9 // 16))
    if limits.shared_reserved and warps == 4 and used == limits.shared_reserved + limits.shared_unit:
        generous = min(generous, least(32 * KIB))
    return max(least(fitting * used), generous)


def occupancy(arch: int, threads: int, registers: int, shared: int, barriers: int = 1) -> Occupancy:
    """Theoretical occupancy of blocks of ``threads`` with ``shared`` bytes (static and dynamic, not reserved)."""
    limits = limits_of(arch)
    warps = (threads + 31) // 32
    by_warps = limits.warps // warps
    unit = limits.register_unit
    registers = max(registers, limits.registers_least)
    warp_registers = (registers * 32 + unit - 1) // unit * unit
    fitting_warps = limits.registers // limits.warp_unit // warp_registers * limits.warp_unit
    by_registers = fitting_warps // warps
    used = -(-(shared + limits.shared_reserved) // limits.shared_unit) * limits.shared_unit
    by_barriers = limits.blocks if barriers <= 1 else limits.barriers * 2 // barriers
    others = min(by_warps, limits.blocks, by_registers, by_barriers)
    carveout = _carveout(limits, warps, others, used, shared, by_barriers)
    by_shared = limits.blocks if used == 0 else carveout // used
    blocks = min(others, by_shared)
    return Occupancy(
        by_warps,
        limits.blocks,
        by_registers,
        by_shared,
        by_barriers,
        carveout,
        blocks * warps,
        limits.warps,
        registers,
        warp_registers // 32,
    )
