"""The simulator's counters beside those of Nsight Compute: which are equal, and which of the others matter.

Pure functions of a Result and of numbers; who read them from the hardware, and how, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpusim.counters.metrics import METRICS
from gpusim.result import InstructionCounts, Result

State = Literal["equal", "differs", "arbitration", "modelled", "absent"]
"""What a comparison came to.

``equal``; ``differs``: an exact counter that is not equal, a failure; ``arbitration``: the plain hardware counter of
bank conflicts, which also sees a few collisions between warps; ``modelled``: not equal, and never said to be exact;
``absent``: the hardware's number is not there.
"""

ARBITRATED = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
"""Plain hardware counters: they also see arbitration between warps, and change from run to run (recorded)."""
WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
MOST_ARBITRATION = 0.1
"""Of the wavefronts of the same operation: recorded are up to 0.08 in launches of more than one wave of blocks."""
FEW = 8
"""Collisions that the smallest launch may have: recorded are up to 6."""

SPACES = {
    "tags": ("global", "generic"),
    "sectors": ("global", "generic"),
    "sectors_ideal": ("global", "generic"),
    "wavefronts": ("shared", "generic"),
    "wavefronts_ideal": ("shared", "generic"),
}
"""Where each memory column of Nsight Compute's source page looks; the other columns are of all instructions."""
COLUMNS = {
    "executed": "executed",
    "thread_executed": "thread executed",
    "predicated_on": "predicated on",
    "divergent": "divergent",
    "sectors": "sectors",
    "sectors_ideal": "sectors ideal",
    "sectors_local": "sectors local",
    "tags": "tags",
    "wavefronts": "wavefronts",
    "wavefronts_ideal": "wavefronts ideal",
}
"""Columns of instructions that are compared, with their titles."""


@dataclass(frozen=True, slots=True)
class Row:
    """One counter of a launch.  ``exactness``: "exact" or "modelled", of the simulator's number."""

    name: str
    exactness: str
    simulator: int
    hardware: int | None
    state: State


@dataclass(frozen=True, slots=True)
class InstructionRow:
    """One instruction.  ``counts``: (simulator, hardware) by column; ``differs``: columns that are not equal."""

    address: int
    sass: str
    file: str | None
    line: int | None
    counts: dict[str, tuple[int, int]]
    differs: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One launch beside the hardware.  ``instructions`` is None where they were not asked for."""

    kernel: str
    exactness: str
    rows: tuple[Row, ...]
    instructions: tuple[InstructionRow, ...] | None
    caveats: tuple[str, ...]
    problem: str | None = None

    @property
    def differences(self) -> list[str]:
        """What fails: exact counters that are not equal, in words."""
        found = [
            f"{row.name}: {row.simulator:,}, hardware {row.hardware:,}" for row in self.rows if row.state == "differs"
        ]
        if self.problem is not None:
            found.append(self.problem)
        if self.exactness == "exact":
            for each in self.instructions or ():
                for column in each.differs:
                    ours, theirs = each.counts[column]
                    place = f"{each.address:#06x} {each.sass}"
                    found.append(f"{place}: {COLUMNS[column]} {ours:,}, hardware {theirs:,}")
        return found


def compare(
    result: Result,
    metrics: Mapping[str, int],
    columns: Mapping[str, Sequence[int]] | None = None,
    count: int = 0,
) -> Comparison:
    """The result beside the hardware's totals and, where ``columns`` is given, its numbers of ``count`` instructions.

    A column of the hardware that is absent holds zeros.
    """
    instructions: tuple[InstructionRow, ...] | None = None
    problem = None
    if columns is not None:
        if count != len(result.instructions):
            problem = f"the kernel has {len(result.instructions)} instructions, on the hardware {count}"
            instructions = ()
        else:
            instructions = tuple(_instruction(each, k, columns) for k, each in enumerate(result.instructions))
    return Comparison(
        result.launch.kernel, result.exactness, totals(result, metrics), instructions, tuple(result.caveats), problem
    )


def totals(result: Result, metrics: Mapping[str, int]) -> tuple[Row, ...]:
    """Every metric of the result beside the hardware's."""
    kinds: dict[str, str] = {metric.name: metric.kind for metric in METRICS}
    rows = []
    for name, ours in result.metrics.items():
        kind = kinds.get(name, "exact")
        if kind == "exact" and not name.startswith("launch__"):
            kind = result.exactness
        theirs = metrics.get(name)
        rows.append(Row(name, kind, ours, theirs, _state(name, kind, ours, theirs, result.metrics)))
    return tuple(rows)


def _state(name: str, kind: str, ours: int, theirs: int | None, metrics: Mapping[str, int]) -> State:
    if theirs is None:
        return "absent"
    if ours == theirs:
        return "equal"
    if kind != "exact":
        return "modelled"
    if name.startswith(ARBITRATED):
        waves = metrics.get(WAVEFRONTS + name.removeprefix(ARBITRATED), 0)
        if ours < theirs <= ours + max(FEW, MOST_ARBITRATION * waves):
            return "arbitration"
    return "differs"


def value_of(instruction: InstructionCounts, column: str) -> int:
    """The simulator's number for a column of Nsight Compute's source page."""
    if column == "sectors_local":
        return instruction.sectors if instruction.space == "local" else 0
    copies = instruction.operation == "async_copy"  # from global to shared memory
    if column in SPACES and instruction.space not in SPACES[column] and not copies:
        return 0
    return int(getattr(instruction, column))


def _instruction(instruction: InstructionCounts, number: int, columns: Mapping[str, Sequence[int]]) -> InstructionRow:
    local = columns["sectors_local"][number] if "sectors_local" in columns else 0
    split = instruction.space == "generic" and local > 0  # one number here for what went to local and global memory
    counts = {}
    for column in COLUMNS:
        if split and column in ("sectors_local", "sectors_ideal"):
            continue
        theirs = columns[column][number] if column in columns else 0
        counts[column] = (value_of(instruction, column), theirs + (local if split and column == "sectors" else 0))
    return InstructionRow(
        instruction.address,
        instruction.sass,
        instruction.file,
        instruction.line,
        counts,
        tuple(column for column, (ours, theirs) in counts.items() if ours != theirs),
    )
