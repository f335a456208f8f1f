"""Writing a basic block's statements such that like instructions are computed together, for launches of few threads.

Float instructions wait for each other (:mod:`.batches`), and loads from shared memory that nothing comes between are
carried out where the first of them stands (:mod:`.places`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.errors import UnsupportedError
from gpusim.machine.batches import LEAST, MOST, Kind, Postponed, Waiting, outer_products
from gpusim.machine.places import LoadGroup
from gpusim.sass.form import Alu, ControlOp, MemoryOp, WarpOp
from gpusim.sass.numeric import fused_bits
from gpusim.sass.operands import Register
from gpusim.sass.slices import PREDICATE, UNIFORM, facts_of

if TYPE_CHECKING:
    from gpusim.machine.codegen import BlockWriter

NUMBERS = ".view(f32)"  # how the text of a source says that a register's bits are a float32


def text_of(number: int) -> str:
    """The text of a register word by the number of its element; of a predicate, no register's."""
    if number >= PREDICATE:
        return ""
    return f"UR[{number - UNIFORM}]" if number >= UNIFORM else f"R[{number}]"


class Together:
    """Writes one block with its ``writer``; ``kinds``: of each instruction, what tells which ones are alike."""

    def __init__(self, writer: BlockWriter, kinds: dict[int, Kind | None]) -> None:
        self.writer, self.kinds = writer, kinds
        self.program, self.part = writer.program, writer.part
        self.later = Postponed()
        self.places: dict[str, int] = {}  # of results of outer products

    def _needed(self, index: int) -> bool:
        return self.part is None or index in self.part.needed

    def statements(self) -> list[str]:
        """The block's statements."""
        lines: list[str] = []
        groups = {group.indices[0]: group for group in self._load_groups()}
        loaded = {index: group for group in groups.values() for index in group.indices}
        for index, kind in self.kinds.items():
            meaning = self.program.meanings[index]
            if kind is not None and isinstance(meaning, Alu) and self._needed(index):
                (target,) = self.writer.targets(meaning.dests[0])
                sources = [self.writer.value(source) for source in meaning.sources]
                self.writer.forget(target)
                lines += self.later.add(index, kind, sources, target)
                continue
            if index in groups:
                group = groups[index]
                if self.later.needed(text for each in group.indices for text in self._read_by(each)):
                    lines += self._waiting()
                lines.append(self._group_load(group))
            if index in loaded:
                lines += self.later.written([text_of(number) for number in facts_of(self.program, index).writes])
                lines += self._taken(loaded[index], index)
                continue
            if isinstance(meaning, UnsupportedError | ControlOp):
                lines += self._waiting()
            else:
                facts = facts_of(self.program, index)
                written = [text_of(number) for number in facts.writes]
                read = self._read_by(index)
                if self.later.needed(read if facts.guard is None else [*read, *written]):
                    lines += self._waiting()
                lines += self.later.written(written)
            lines += self.writer.instruction(index, False)
        return lines + self._waiting()

    def _read_by(self, index: int) -> list[str]:
        """Texts of the registers that an instruction reads."""
        facts = facts_of(self.program, index)
        return [text_of(number) for number in facts.reads | facts.roots | facts.always]

    # -- loads together ----------------------------------------------------------------------------------------------
    def _load_groups(self) -> list[LoadGroup]:
        """Loads from shared memory that can be carried out where the first of them stands.

        Up to each one nothing may write what its address is made of, touch memory otherwise or raise an error that
        would then come too late.
        """
        groups: list[LoadGroup] = []
        members: list[int] = []
        written: set[int] = set()

        def close() -> None:
            if len(members) > 1:
                groups.append(self._group(members))
            members.clear()
            written.clear()

        for index in self.kinds:
            meaning, facts = self.program.meanings[index], facts_of(self.program, index)
            if isinstance(meaning, MemoryOp):
                if not self._groupable(index, meaning):
                    close()
                    continue
                if not (facts.reads | facts.roots).isdisjoint(written):
                    close()
                members.append(index)
            elif not isinstance(meaning, Alu | WarpOp):
                close()
                continue
            written |= facts.writes
        close()
        return groups

    def _groupable(self, index: int, op: MemoryOp) -> bool:
        if self.program.instructions[index].guard is not None or (op.space, op.operation) != ("shared", "load"):
            return False
        if not self._needed(index):
            return False
        return op.width >= 4 and op.success is None and op.dest is not None and bool(op.address.bases)

    def _group(self, members: list[int]) -> LoadGroup:
        ops: list[Any] = [self.program.meanings[index] for index in members]
        bases: list[tuple[Register, ...]] = []
        for op in ops:
            if op.address.bases not in bases:
                bases.append(op.address.bases)
        offsets = tuple(np.uint32(op.address.offset & 0xFFFFFFFF) for op in ops)
        return LoadGroup(tuple(members), tuple(ops), tuple(bases.index(op.address.bases) for op in ops), offsets)

    def _group_load(self, group: LoadGroup) -> str:
        first = group.indices[0]
        self.writer.names[f"group{first}"] = group
        bases: dict[int, str] = {}
        for number, op in zip(group.bases, group.ops, strict=True):
            bases[number] = self.writer.address(replace(op.address, offset=0), op.wide, op.space)
        return f"l{first} = M.load_group(group{first}, ({', '.join(bases[k] for k in range(len(bases)))},), m)"

    def _taken(self, group: LoadGroup, index: int) -> list[str]:
        """Statements that take one load's words from those of its group."""
        op = self.program.meanings[index]
        assert isinstance(op, MemoryOp) and op.dest is not None
        if op.dest.is_sink:
            return []
        lines = []
        for k, target in enumerate(self.writer.targets(replace(op.dest, words=op.width // 4))):
            self.writer.forget(target)
            lines.append(f"{target} = l{group.indices[0]}[{group.first[index] + k}]")
        return lines

    def _waiting(self) -> list[str]:
        """Statements that compute what waits."""
        lines: list[str] = []
        self.places.update({n: self.places[target] for n, target in self.later.kept.items() if target in self.places})
        for group in self.later.flush():
            products, rest = outer_products(group, self.places) if self._fused(group[0].index) else ([], group)
            for rows in products:
                first = self._column([each.sources[0] for each in rows[0]])
                second = self._column([row[0].sources[1] for row in rows])
                addends = self._column([each.sources[2] for row in rows for each in row])
                lines.append(f"r = outer(s, {first}, {second}, {addends})")
                lines += self._results([each for row in rows for each in row])
            for start in range(0, len(rest), MOST):
                lines += self._together(rest[start : start + MOST])
        return lines

    def _fused(self, index: int) -> bool:
        meaning = self.program.meanings[index]
        return isinstance(meaning, Alu) and meaning.compute is fused_bits

    def _together(self, batch: list[Waiting]) -> list[str]:
        for each in batch:
            meaning = self.program.meanings[each.index]
            assert isinstance(meaning, Alu)
            self.writer.names[f"fn{each.index}"] = meaning.compute
        if len(batch) < LEAST:
            lines = []
            for each in batch:
                call = f"fn{each.index}({', '.join(each.sources)})"
                lines += [each.stored(call) or call]
            return lines
        columns = [self._column([each.sources[k] for each in batch]) for k in range(len(batch[0].sources))]
        return [f"r = batch(fn{batch[0].index}, s.shape, {', '.join(columns)})", *self._results(batch)]

    def _column(self, values: list[str]) -> str:
        if all(text.endswith(NUMBERS) for text in values):  # read as numbers when they are side by side
            values = [text.removesuffix(NUMBERS) for text in values]
        return f"({', '.join(values)},)"

    @staticmethod
    def _results(batch: list[Waiting]) -> list[str]:
        return [line for number, each in enumerate(batch) if (line := each.stored(f"r[{number}]"))]
