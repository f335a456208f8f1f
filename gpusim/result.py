"""What a launch gives back: counters by Nsight Compute's names and per instruction."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from gpusim.counters.collect import BYPASS_CAVEAT, Collector
from gpusim.counters.metrics import METRICS
from gpusim.explain.patterns import Pattern, PatternSampler
from gpusim.machine.engine import Tally
from gpusim.machine.limits import Occupancy, occupancy
from gpusim.sass.form import MemoryOp
from gpusim.sass.instruction import Instruction
from gpusim.sass.program import BRANCH_OPCODES, Program

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class InstructionCounts:
    """Counters of one instruction of the kernel, all exact.

    ``executed``: warps that issued it; ``thread_executed``: executing lanes of these; ``predicated_on``: those of them
    whose guard held.  ``requests``: warps with at least one accessing lane.  ``sectors``, ``tags``: 32-byte sectors and
    128-byte lines of global (or local) memory; ``wavefronts``: passes of shared memory; ``_ideal``: what the same lanes
    would need at best.  ``divergent``: warps that this branch split.
    """

    address: int
    sass: str
    file: str | None
    line: int | None
    executed: int
    thread_executed: int
    predicated_on: int
    requests: int
    wavefronts: int
    wavefronts_ideal: int
    conflicts: int
    sectors: int
    sectors_ideal: int
    tags: int
    divergent: int
    space: str | None = None
    operation: str | None = None
    width: int | None = None


@dataclass
class LaunchFacts:
    """What was launched, for reports."""

    kernel: str
    mangled: str
    arch: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_static: int
    shared_dynamic: int
    registers: int
    local_bytes: int
    toolkit: str | None
    cubin_sha256: str
    code_sha256: str
    nvrtc_version: str | None = None  # None: the machine code was made elsewhere


@dataclass
class Finished:
    """What a launch leaves behind once it has run, besides its counters: all that a Result needs of the program.

    ``barriers``: block barriers that the kernel uses.  ``caveats``: what of the execution makes counts uncertain.
    ``output``: what the kernel printed.  A listener with a method ``finished`` is given this.
    """

    launch: LaunchFacts
    program: Program
    tally: Tally
    barriers: int
    path: str = "full execution"
    source: dict[str, list[str]] = field(default_factory=dict, repr=False)
    caveats: frozenset[str] = frozenset()
    output: str = ""
    blocks_executed: int | None = None

    @property
    def occupancy(self) -> Occupancy:
        """Theoretical occupancy of the launch."""
        facts = self.launch
        threads = facts.block[0] * facts.block[1] * facts.block[2]
        shared = facts.shared_static + facts.shared_dynamic
        return occupancy(int(facts.arch.removeprefix("sm_")), threads, facts.registers, shared, max(1, self.barriers))


@dataclass
class Result:
    """Counters of one launch.

    ``metrics``: exact integers by Nsight Compute's names.  ``instructions``: one entry an instruction, in order of
    address.  ``path`` says how it was computed.  ``patterns``: the addresses of the first warp that accessed memory
    with an instruction, by the instruction's address.  ``caveats``: sentences on counts that are not certain, if any.
    ``exactness``: "exact", or "modelled" where the execution met something that makes counts uncertain.
    ``blocks_executed``: how many blocks were executed one by one (all of them in a full execution).
    ``output``: what the kernel printed, block by block, within a block in order of execution.
    """

    launch: LaunchFacts
    metrics: dict[str, int]
    instructions: list[InstructionCounts]
    occupancy: Occupancy
    path: str = "full execution"
    source: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)
    patterns: dict[int, Pattern] = field(default_factory=dict, repr=False)
    caveats: list[str] = field(default_factory=list)
    exactness: str = "exact"
    blocks_executed: int | None = field(default=None, compare=False)
    output: str = ""

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What the counters say is worth looking at, worst first."""
        from gpusim.explain.findings import find

        return [asdict(f) for f in find(self)]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON data."""
        return {
            "schema": SCHEMA,
            "kind": "launch",
            "exactness": self.exactness,
            "launch": asdict(self.launch),
            "path": self.path,
            "blocks_executed": self.blocks_executed,
            "metrics": self.metrics,
            "occupancy": asdict(self.occupancy)
            | {"blocks": self.occupancy.blocks, "percent": self.occupancy.percent, "limiter": self.occupancy.limiter},
            "instructions": [asdict(i) for i in self.instructions],
            "findings": self.findings,
            "caveats": self.caveats,
            "output": self.output,
        }


def _architecture_caveat(arch: str) -> set[str]:
    """The counting rules were recorded on sm_90; elsewhere they are assumed to be the same."""
    if arch == "sm_90":
        return set()
    return {
        "memory counters, and how many blocks shared memory allows, follow rules recorded on sm_90 (H200), not "
        f"confirmed on {arch} by a recording"
    }


def _guarded_copies(program: Program, tally: Tally) -> set[str]:
    """A caveat where copies around L1 were executed under a guard: also if it held for no lane, and none accessed."""
    found = any(
        isinstance(meaning, MemoryOp) and meaning.bypass and instruction.guard is not None and executed
        for instruction, meaning, executed in zip(program.instructions, program.meanings, tally.executed, strict=True)
    )
    return {BYPASS_CAVEAT} if found else set()


def build_result(done: Finished, collector: Collector, sampler: PatternSampler) -> Result:
    """The Result of a launch from what it left behind and what its listeners counted."""
    fits = done.occupancy
    uncertain = collector.caveats | done.caveats | _guarded_copies(done.program, done.tally)
    return Result(
        done.launch,
        metrics_of(done.program, done.tally, collector) | launch_metrics(done.launch, fits),
        instruction_counts(done.program, done.tally, collector),
        fits,
        path=done.path,
        source=done.source,
        patterns=sampler.patterns,
        caveats=sorted(uncertain | _architecture_caveat(done.launch.arch)),
        exactness="modelled" if uncertain else "exact",
        blocks_executed=done.blocks_executed,
        output=done.output,
    )


def _kinds(instruction: Instruction, meaning: object) -> set[str]:
    """The classes of instructions that metrics select by (generic accesses are split by space elsewhere)."""
    if instruction.opcode in BRANCH_OPCODES:
        return {"branch"}
    if not isinstance(meaning, MemoryOp):
        return set()
    operation, space = meaning.operation, meaning.space
    if operation == "mbarrier":
        return set()
    if operation == "async_copy":
        return {"wavefront_ldgsts", "conflict_ldgsts", "global_ldgsts"}
    if operation in ("matrix_load", "matrix_store"):
        short = "ld" if operation == "matrix_load" else "st"
        return {f"wavefront_{short}sm", f"conflict_{short}", f"conflict_{short}sm", f"shared_{short}m"}
    if operation in ("reduce", "atomic"):
        short = "red" if operation == "reduce" and space == "global" else "atom"
        kinds = {f"{space}_{short}"}
        if space == "shared":
            kinds |= {"wavefront_atom", "conflict_atom"}
        return kinds
    short = "ld" if operation == "load" else "st"
    kinds = {f"{space}_{short}"}
    if space == "shared":
        kinds |= {f"wavefront_{short}", f"conflict_{short}"}
    return kinds


def metrics_of(program: Program, tally: Tally, collector: Collector) -> dict[str, int]:
    """All exact metrics of the table, summed over instructions."""
    columns: dict[str, Any] = {
        "executed": tally.executed,
        "thread_executed": tally.thread_executed,
        "predicated_on": tally.predicated_on,
        **collector.fields,
    }
    selected = _selected(program)
    generic = [k for k, m in enumerate(program.meanings) if isinstance(m, MemoryOp) and m.space == "generic"]
    found: dict[str, int] = {}
    for metric in METRICS:
        column = columns[metric.field]
        if not metric.kinds:
            found[metric.name] = int(column.sum())
            continue
        total = int(column[selected[metric.kinds]].sum())
        if generic and metric.field != "executed":
            total += _generic_part(program, generic, collector, metric.field, metric.kinds)
        found[metric.name] = total
    return found


_SELECTED: WeakKeyDictionary[Program, dict[tuple[str, ...], np.ndarray[Any, Any]]] = WeakKeyDictionary()


def _selected(program: Program) -> dict[tuple[str, ...], np.ndarray[Any, Any]]:
    """Indices of the instructions that metrics of these kinds are summed over; worked out once a program."""
    known = _SELECTED.get(program)
    if known is None:
        classes = [_kinds(i, m) for i, m in zip(program.instructions, program.meanings, strict=True)]
        wanted = {metric.kinds for metric in METRICS if metric.kinds}
        known = _SELECTED[program] = {
            kinds: np.flatnonzero(np.array([not c.isdisjoint(kinds) for c in classes], bool)) for kinds in wanted
        }
    return known


def _generic_part(
    program: Program, generic: list[int], collector: Collector, field_name: str, kinds: tuple[str, ...]
) -> int:
    """What generic accesses add to the counters of the space they went to."""
    total = 0
    for index in generic:
        meaning = program.meanings[index]
        for space, columns in collector.by_space.items():
            as_space = replace(meaning, space=space)  # type: ignore[type-var]
            if not _kinds(program.instructions[index], as_space).isdisjoint(kinds):
                total += int(columns[field_name][index])
    return total


_COUNTED = ("requests", "wavefronts", "wavefronts_ideal", "conflicts", "sectors", "sectors_ideal", "tags", "divergent")


def instruction_counts(program: Program, tally: Tally, collector: Collector) -> list[InstructionCounts]:
    """The per-instruction table."""
    rows = []
    counted = {
        "executed": tally.executed,
        "thread_executed": tally.thread_executed,
        "predicated_on": tally.predicated_on,
        **{name: collector.fields[name] for name in _COUNTED},
    }
    numbers = zip(*(column.tolist() for column in counted.values()), strict=True)
    for instruction, meaning, values in zip(program.instructions, program.meanings, numbers, strict=True):
        memory = meaning if isinstance(meaning, MemoryOp) else None
        at = instruction.location
        rows.append(
            InstructionCounts(
                address=instruction.address,
                sass=instruction.text,
                file=at.file if at else None,
                line=at.line if at else None,
                **dict(zip(counted, values, strict=True)),
                space=memory.space if memory else None,
                operation=memory.operation if memory else None,
                width=memory.width if memory else None,
            )
        )
    return rows


def launch_metrics(facts: LaunchFacts, occupancy: Occupancy) -> dict[str, int]:
    """The launch__ metrics: shape, resources, and the resident blocks that each resource allows.

    The registers allocated are Nsight Compute's quotient of a block's registers and its threads; it is left out where
    a partly filled warp makes it a fraction.
    """
    threads = facts.block[0] * facts.block[1] * facts.block[2]
    allocated, fraction = divmod(occupancy.registers_allocated * 32 * -(-threads // 32), threads)
    found = {
        "launch__grid_size": facts.grid[0] * facts.grid[1] * facts.grid[2],
        "launch__block_size": threads,
        "launch__thread_count": int(np.prod(facts.grid, dtype=object)) * int(np.prod(facts.block)),
        "launch__registers_per_thread": occupancy.registers,
        "launch__registers_per_thread_allocated": allocated,
        "launch__shared_mem_per_block_static": facts.shared_static,
        "launch__shared_mem_per_block_dynamic": facts.shared_dynamic,
        "launch__occupancy_limit_blocks": occupancy.limit_blocks,
        "launch__occupancy_limit_registers": occupancy.limit_registers,
        "launch__occupancy_limit_shared_mem": occupancy.limit_shared,
        "launch__occupancy_limit_warps": occupancy.limit_warps,
        "launch__occupancy_limit_barriers": occupancy.limit_barriers,
    }
    if fraction:
        del found["launch__registers_per_thread_allocated"]
    return found
