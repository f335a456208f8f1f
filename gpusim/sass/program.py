"""A kernel's instructions as basic blocks, and its control-flow graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from gpusim.errors import UnsupportedError
from gpusim.sass.form import ControlOp, MemoryOp, Semantics
from gpusim.sass.instruction import Instruction
from gpusim.sass.operands import Immediate
from gpusim.sass.registry import semantics

INSTRUCTION_BYTES = 16
BRANCH_OPCODES = ("BRA", "BRX", "BRXU", "JMP", "JMX", "CALL", "RET")  # counted as branches, guarded off or not

# Control operations that end a basic block; the others (BSSY, fences, NOP ...) let execution fall through.
_ENDS_BLOCK = {
    "branch", "branch_any", "branch_divergent", "branch_convergent", "indirect", "call", "call_register", "return",
    "exit", "sync", "sync_break", "yield", "warp_sync", "collective_end", "barrier", "trap",
}  # fmt: skip


@dataclass(frozen=True)
class BasicBlock:
    """Instructions ``first`` .. ``last`` (indices, inclusive); ``control``: the last one's operation, if it ends it."""

    number: int
    first: int
    last: int
    control: ControlOp | None

    def __len__(self) -> int:
        return self.last - self.first + 1


class Program:
    """The decoded instructions of one code section.

    ``branch_targets`` lists the targets of indirect branches by the address of the branch, where known; ``entries``
    are the addresses that calls through registers may go to.
    """

    def __init__(
        self,
        instructions: Iterable[Instruction],
        branch_targets: dict[int, tuple[int, ...]] | None = None,
        entries: Iterable[int] = (),
    ) -> None:
        self.instructions = tuple(instructions)
        self.entries = tuple(entries)
        self.branch_targets = branch_targets or {}
        self.index_of = {i.address: n for n, i in enumerate(self.instructions)}
        self.meanings: list[Semantics | UnsupportedError] = [self._meaning(i) for i in self.instructions]

    @staticmethod
    def _meaning(instruction: Instruction) -> Semantics | UnsupportedError:
        """What it does, or the error to raise when it is reached."""
        try:
            return semantics(instruction)
        except UnsupportedError as error:
            return error

    def ends_block(self, index: int) -> bool:
        meaning = self.meanings[index]
        return isinstance(meaning, ControlOp) and meaning.kind in _ENDS_BLOCK

    @cached_property
    def leaders(self) -> set[int]:
        """Indices at which a basic block starts."""
        found = {0}
        calls = any(i.opcode in ("CALL", "RET") for i in self.instructions)
        for index, instruction in enumerate(self.instructions):
            meaning = self.meanings[index]
            if self.ends_block(index):
                found.add(index + 1)
            if isinstance(meaning, ControlOp) and meaning.kind == "warp_sync":
                found.add(index)  # lanes that wait their turn start here
            if isinstance(meaning, MemoryOp) and meaning.is_wait:
                found.add(index)
            if isinstance(meaning, ControlOp):
                if meaning.kind == "call_register":
                    found.update(self.index_of[a] for a in self.entries if a in self.index_of)
                elif meaning.target is not None and meaning.kind not in ("indirect", "return"):
                    found.add(self.index_of.get(meaning.target, 0))
                if meaning.kind == "indirect":
                    targets = self.branch_targets.get(instruction.address)
                    addresses = targets if targets else tuple(self.index_of)
                    found.update(self.index_of[a] for a in addresses if a in self.index_of)
            elif calls:
                # a return address is an ordinary literal move
                for operand in instruction.operands:
                    if isinstance(operand, Immediate) and operand.value in self.index_of:
                        found.add(self.index_of[int(operand.value)])
        found.discard(len(self.instructions))
        return found

    @cached_property
    def blocks(self) -> tuple[BasicBlock, ...]:
        starts = sorted(self.leaders)
        ends = [s - 1 for s in starts[1:]] + [len(self.instructions) - 1]
        result = []
        for number, (first, last) in enumerate(zip(starts, ends, strict=True)):
            meaning = self.meanings[last]
            control = meaning if isinstance(meaning, ControlOp) and self.ends_block(last) else None
            result.append(BasicBlock(number, first, last, control))
        return tuple(result)

    @cached_property
    def graph(self) -> nx.DiGraph:
        """Control-flow graph: nodes are block numbers; a call's return edge leads to the block after the call."""
        graph = nx.DiGraph()
        by_start = {b.first: b.number for b in self.blocks}
        after_calls = []
        for block in self.blocks:
            graph.add_node(block.number, block=block)
            if block.control is not None and block.control.kind.startswith("call") and block.last + 1 in by_start:
                after_calls.append(by_start[block.last + 1])
        for block in self.blocks:
            for successor in self._successors(block, by_start, after_calls):
                graph.add_edge(block.number, successor)
        return graph

    def _successors(self, block: BasicBlock, by_start: dict[int, int], after_calls: list[int]) -> list[int]:
        control = block.control
        following = [by_start[block.last + 1]] if block.last + 1 in by_start else []
        if control is None:
            return following
        instruction = self.instructions[block.last]
        conditional = instruction.guard is not None or bool(control.condition)
        if control.kind in ("branch", "branch_any", "branch_divergent", "branch_convergent", "call"):
            assert control.target is not None
            target = [by_start[self.index_of[control.target]]] if control.target in self.index_of else []
            return target + (following if conditional or control.kind.startswith("branch_") else [])
        if control.kind == "indirect":
            targets = self.branch_targets.get(instruction.address) or tuple(self.index_of)
            numbers = [by_start[self.index_of[a]] for a in targets if a in self.index_of]
            return numbers + (following if conditional else [])
        if control.kind == "collective_end":
            ends = {m.target for m in self.meanings if isinstance(m, ControlOp) and m.kind == "warp_sync"}
            return [by_start[self.index_of[t]] for t in sorted(t for t in ends if t in self.index_of)]
        if control.kind == "call_register":
            # a function of the kernel, or one of the runtime, which comes back at once
            numbers = [by_start[self.index_of[a]] for a in self.entries if a in self.index_of]
            return numbers + following
        if control.kind == "return":
            return after_calls + (following if conditional else [])
        if control.kind in ("exit", "trap"):
            return following if conditional else []
        return following

    def unsupported(self) -> list[UnsupportedError]:
        """Errors of all instructions that the simulator cannot execute."""
        return [m for m in self.meanings if isinstance(m, UnsupportedError)]
