"""The memory system's counting rules, one warp instruction a row: see `rules_shared` and `rules_global`."""

from gpusim.counters.rules_copy import bypass_sectors, bypass_wavefronts
from gpusim.counters.rules_global import (
    SECTOR_BYTES,
    async_copy_sectors,
    global_atomic_passes,
    global_atomic_sectors,
    global_counts,
    global_sectors,
    global_sectors_ideal,
    global_tags,
    requests,
)
from gpusim.counters.rules_shared import (
    ATOMIC_OPS,
    async_copy_conflicts,
    async_copy_decided,
    async_copy_wavefronts,
    matrix_conflicts,
    matrix_wavefronts,
    parts_of,
    shared_atomic_conflicts,
    shared_atomic_counts,
    shared_atomic_wavefronts,
    shared_conflicts,
    shared_wavefronts,
    shared_wavefronts_ideal,
)
from gpusim.machine.atomics import cast_spin_winners

__all__ = [
    "ATOMIC_OPS",
    "SECTOR_BYTES",
    "async_copy_conflicts",
    "async_copy_decided",
    "async_copy_sectors",
    "async_copy_wavefronts",
    "bypass_sectors",
    "bypass_wavefronts",
    "cast_spin_winners",
    "global_atomic_passes",
    "global_atomic_sectors",
    "global_counts",
    "global_sectors",
    "global_sectors_ideal",
    "global_tags",
    "matrix_conflicts",
    "matrix_wavefronts",
    "parts_of",
    "requests",
    "shared_atomic_conflicts",
    "shared_atomic_counts",
    "shared_atomic_wavefronts",
    "shared_conflicts",
    "shared_wavefronts",
    "shared_wavefronts_ideal",
]
