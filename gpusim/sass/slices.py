"""What of a program its counters depend on: liveness and the backward slice of addresses, predicates and branches.

Counters follow from where warps go, which lanes are predicated on and which addresses they access.  Everything else is
data.  :func:`slice_of` finds the instructions whose results can reach one of these; the others need not be computed to
count.  It is aware of guards: a register that is read under ``@P0`` is live only where P0 holds, so that a write under
``@P0`` ends its life and one under ``@!P0`` does not feed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpusim.sass.form import Alu, ControlOp, Dest, MemoryOp, Source, WarpOp
from gpusim.sass.operands import Address, Constant, Operand, Predicate, Register
from gpusim.sass.program import Program

# an element: a word of a register file or a predicate, as a number
UNIFORM, PREDICATE, UNIFORM_PREDICATE = 256, 512, 520
Guard = tuple[int, bool]  # element of the predicate, negated
Live = frozenset[tuple[int, Guard | None]]

_WIDE = ("u64", "i64", "f64")
# control operations whose successors the control-flow graph knows
_KNOWN_CONTROL = {
    "branch", "branch_divergent", "branch_convergent", "indirect", "call", "return", "exit", "sync_push", "sync",
    "sync_break", "warp_sync", "barrier", "barrier_to_register", "register_to_barrier", "barrier_to_barrier", "trap",
    "collective_end", "yield", "nothing",
}  # fmt: skip


def element(operand: Register | Predicate, word: int = 0) -> int | None:
    """The number of a register word or predicate; None for RZ, URZ, PT and UPT."""
    if isinstance(operand, Predicate):
        if operand.is_constant:
            return None
        return operand.index + (UNIFORM_PREDICATE if operand.file == "UP" else PREDICATE)
    if operand.is_zero:
        return None
    return operand.index + word + (UNIFORM if operand.file == "UR" else 0)


def _elements(operand: Operand, first: int, words: int) -> Iterable[int]:
    if isinstance(operand, Register | Predicate):
        for k in range(first, first + words):
            found = element(operand, k)
            if found is not None:
                yield found
    elif isinstance(operand, Constant) and operand.base is not None:
        yield from _elements(operand.base, 0, 1)


def _read(sources: Iterable[Source]) -> set[int]:
    found: set[int] = set()
    for source in sources:
        words = 2 if source.type in _WIDE else 1
        found.update(_elements(source.operand, source.word, 1 if isinstance(source.operand, Predicate) else words))
    return found


def _bases(address: Address, wide: bool) -> set[int]:
    """Registers of an address: pairs where it is ``wide``."""
    found: set[int] = set()
    for base in address.bases:
        found.update(_elements(base, 0, 2 if wide and "U32" not in base.suffixes else 1))
    return found


def _written(dests: Iterable[Dest]) -> set[int]:
    found: set[int] = set()
    for dest in dests:
        found.update(_elements(dest.operand, 0, 1 if isinstance(dest.operand, Predicate) else dest.words))
    return found


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one instruction: what it writes; reads for its result; reads whatever becomes of the result."""

    guard: Guard | None
    writes: frozenset[int]
    reads: frozenset[int]
    roots: frozenset[int]  # under the guard
    always: frozenset[int]  # whether the guard holds or not
    stores: str  # memory space it changes, "" for none
    loads: str
    across: bool  # sees other lanes' values


def facts_of(program: Program, index: int) -> Facts:
    """What an instruction reads and writes."""
    instruction, meaning = program.instructions[index], program.meanings[index]
    guard: Guard | None = None
    always: set[int] = set()
    if instruction.guard is not None:
        number = element(instruction.guard)
        if number is not None:
            guard = (number, instruction.guard.negated)
            always.add(number)
    writes: set[int] = set()
    reads: set[int] = set()
    roots: set[int] = set()
    stores = loads = ""
    if isinstance(meaning, Alu | WarpOp):
        writes, reads = _written(meaning.dests), _read(meaning.sources)
    elif isinstance(meaning, MemoryOp):
        roots = _bases(meaning.address, meaning.wide and meaning.space in ("global", "generic"))
        if meaning.source_address is not None:
            roots |= _bases(meaning.source_address, True) | _read(meaning.sources)
        reads = _read(meaning.sources)
        writes = _written([d for d in (meaning.dest, meaning.success) if d is not None])
        if meaning.operation not in ("load", "matrix_load"):
            stores = "shared" if meaning.operation == "async_copy" else meaning.space
        if meaning.operation not in ("store", "matrix_store"):
            loads = "global" if meaning.operation == "async_copy" else meaning.space
    elif isinstance(meaning, ControlOp):
        roots = _read(meaning.sources)
        always |= {e for p in meaning.condition for e in _elements(p, 0, 1)}
        writes = _written(meaning.dests)
    across = isinstance(meaning, WarpOp)
    return Facts(guard, frozenset(writes), frozenset(reads), frozenset(roots), frozenset(always), stores, loads, across)


@dataclass(frozen=True)
class Slice:
    """``needed``: indices of instructions to compute; ``before[i]``: elements live before instruction i;
    ``kept[i]``: elements that guarded instruction i writes and that are live after it where its guard fails;
    ``across``: elements that lanes see of each other, whether they are live in those or not."""

    needed: frozenset[int]
    before: tuple[frozenset[int], ...]
    kept: tuple[frozenset[int], ...]
    reads_global: bool  # whether contents of global memory are among what is needed
    across: frozenset[int] = frozenset()


def slice_of(program: Program) -> Slice | None:
    """The slice that counters depend on; None where control flow is not known well enough to tell."""
    return _Slicer(program).run() if _control_known(program) else None


def aside_of(program: Program, whole: Slice | None) -> Slice | None:
    """The slice that counters depend on if no global memory that a needed instruction reads is stored to meanwhile.

    None where that needs as many instructions as the ``whole`` one, :func:`slice_of`'s.
    """
    if whole is None or not whole.reads_global:
        return None
    found = _Aside(program).run()
    return found if found.needed < whole.needed else None


def liveness_of(program: Program) -> Slice | None:
    """The same for full execution, which needs all that reaches memory."""
    return _Everything(program).run() if _control_known(program) else None


def _control_known(program: Program) -> bool:
    for meaning in program.meanings:
        if isinstance(meaning, ControlOp) and meaning.kind not in _KNOWN_CONTROL:
            return False
        if isinstance(meaning, MemoryOp) and meaning.operation == "mbarrier":
            return False  # who goes on depends on the barrier's contents
    return True


class _Slicer:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.facts = [facts_of(program, index) for index in range(len(program.instructions))]
        graph = program.graph
        self.successors = {block.number: tuple(graph.successors(block.number)) for block in program.blocks}
        self.predecessors = {block.number: tuple(graph.predecessors(block.number)) for block in program.blocks}
        self.spaces: set[str] = set()  # memory whose contents matter

    def run(self) -> Slice:
        while True:
            needed, entry = self._solve()
            spaces = {self.facts[index].loads for index in needed} - {""}
            if any(self.facts[index].stores == "shared" and self.facts[index].loads == "global" for index in needed):
                spaces.add("global")
            if "generic" in spaces:
                spaces |= {"shared", "global", "local"}
            if spaces <= self.spaces:
                return self._result(needed, entry)
            self.spaces |= spaces

    def _stores_matter(self, facts: Facts) -> bool:
        if not facts.stores:
            return False
        if facts.stores == "generic":
            return bool(self.spaces)
        return facts.stores in self.spaces

    def _solve(self) -> tuple[set[int], dict[int, Live]]:
        blocks = self.program.blocks
        entry: dict[int, Live] = {block.number: frozenset() for block in blocks}
        needed: set[int] = set()
        waiting = [block.number for block in blocks]
        queued = set(waiting)
        while waiting:
            number = waiting.pop()
            queued.discard(number)
            block = blocks[number]
            live = self._exit(number, entry)
            for index in range(block.last, block.first - 1, -1):
                live = self._step(index, live, needed)
            if not live <= entry[number]:
                entry[number] = entry[number] | live
                for before in self.predecessors[number]:
                    if before not in queued:
                        queued.add(before)
                        waiting.append(before)
        return needed, entry

    def _exit(self, number: int, entry: dict[int, Live]) -> Live:
        live: Live = frozenset()
        for after in self.successors[number]:
            live = live | entry[after]
        return live

    def _step(self, index: int, live: Live, needed: set[int]) -> Live:
        """What is live before an instruction, given what is live after it."""
        facts = self.facts[index]
        guard = facts.guard
        is_needed = self._stores_matter(facts)
        if facts.writes and not is_needed:
            opposite = None if guard is None else (guard[0], not guard[1])
            is_needed = any(e in facts.writes and (opposite is None or g != opposite) for e, g in live)
        fresh = set(live)
        if facts.writes:
            if is_needed:
                fresh = {(e, g) for e, g in fresh if not (e in facts.writes and (guard is None or g == guard))}
            if any(e >= PREDICATE for e in facts.writes):
                # what was live under a predicate's new value may be live under any old one
                fresh = {(e, None if g is not None and g[0] in facts.writes else g) for e, g in fresh}
        if is_needed:
            needed.add(index)
            under = None if facts.across else guard
            fresh.update((e, under) for e in facts.reads)
        fresh.update((e, guard) for e in facts.roots)
        fresh.update((e, None) for e in facts.always)
        return frozenset(fresh)

    def _result(self, needed: set[int], entry: dict[int, Live]) -> Slice:
        count = len(self.program.instructions)
        before: list[frozenset[int]] = [frozenset()] * count
        kept: list[frozenset[int]] = [frozenset()] * count
        for block in self.program.blocks:
            live = self._exit(block.number, entry)
            for index in range(block.last, block.first - 1, -1):
                facts = self.facts[index]
                if facts.guard is not None and facts.writes:
                    kept[index] = frozenset(e for e, g in live if e in facts.writes and g != facts.guard)
                live = self._step(index, live, set())
                before[index] = frozenset(e for e, _ in live)
        across = frozenset(e for index in needed if self.facts[index].across for e in self.facts[index].reads)
        return Slice(frozenset(needed), tuple(before), tuple(kept), "global" in self.spaces, across)


class _Everything(_Slicer):
    """All stores matter."""

    def _stores_matter(self, facts: Facts) -> bool:
        return bool(facts.stores)


class _Aside(_Slicer):
    """What is stored to global memory is not read."""

    def _stores_matter(self, facts: Facts) -> bool:
        if facts.stores == "global":
            return False
        if facts.stores == "generic":
            return bool(self.spaces - {"global"})
        return super()._stores_matter(facts)
