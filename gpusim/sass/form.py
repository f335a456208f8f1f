"""How an opcode function states what an instruction does.

An opcode function receives a :class:`Form`, takes the instruction's modifiers and operands from it one by one, and
returns what the machine needs: an :class:`Alu`, a :class:`WarpOp`, a :class:`MemoryOp` or a :class:`ControlOp`.
Whatever it does not take is refused, so that no modifier or operand is ever silently ignored.

Sources and destinations are data, not code: the machine fetches and writes them, the control-flow graph and the
backward slices read them, and the meaning itself (``compute``) is a pure function of arrays that knows nothing of
registers, masks or threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from gpusim.sass.instruction import Instruction
from gpusim.sass.operands import Address, Constant, Immediate, Named, Operand, Predicate, Register

ValueType = Literal["u32", "i32", "f32", "u64", "i64", "f64", "f16", "bf16", "pred"]


@dataclass(frozen=True, slots=True)
class Source:
    """A value to fetch.  ``type`` is the NumPy view that ``compute`` receives; 64-bit types read a register pair.

    A sign, complement or magnitude mark of the operand is applied in that type when fetched, unless ``bare``.
    """

    operand: Operand
    type: ValueType
    bare: bool = False
    word: int = 0  # which 32-bit word from the operand on (for runs of registers)


@dataclass(frozen=True, slots=True)
class Dest:
    """A register (one word, or two for 64 bits) or predicate to write."""

    operand: Register | Predicate
    words: int = 1

    @property
    def is_sink(self) -> bool:
        """True for RZ, URZ, PT and UPT: the value is dropped."""
        operand = self.operand
        return operand.is_zero if isinstance(operand, Register) else operand.is_constant


@dataclass(frozen=True, slots=True)
class Alu:
    """``dests = compute(*sources)``, lane by lane; several dests take a tuple.

    ``monotone``: finite float32 operands anywhere between two numbers each give results between those at the ends, in
    all combinations.  It is "always", or holds "signed" where no operand's range includes 0, or "nearly" up to 2**-20
    of the result, or "roughly" up to 2**-20; several may stand together.  "false": of a predicate, this is so where it
    is false at all ends; where it is true at all of them, it may be false between.
    """

    sources: tuple[Source, ...]
    dests: tuple[Dest, ...]
    compute: Callable[..., Any]
    monotone: str = ""


@dataclass(frozen=True, slots=True)
class WarpOp:
    """Like Alu, but lanes see each other: ``dests = compute(lanes, *sources)``, ``lanes`` a machine.lanes.Lanes."""

    sources: tuple[Source, ...]
    dests: tuple[Dest, ...]
    compute: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class MemoryOp:
    """One access a lane.  ``width`` is in bytes a lane; ``dest`` the first destination register, if any.

    ``operation``: load, store, reduce (atomic without a result), atomic, matrix_load, matrix_store, async_copy,
    mbarrier (exch, arrive, drop, check, arrive_mask, drop_mask in ``atomic``; element u64 for the layout of sm_90).
    ``atomic``: what an atomic does (add, min, max, and, or, xor, exch, cas, inc, dec, popc_inc, cast), its element
    type in ``element``; ``vector`` elements side by side a lane.
    """

    space: Literal["global", "shared", "local", "generic"]
    operation: Literal["load", "store", "reduce", "atomic", "matrix_load", "matrix_store", "async_copy", "mbarrier"]
    width: int
    address: Address
    wide: bool  # the address registers are 64-bit pairs
    sources: tuple[Source, ...] = ()
    dest: Dest | None = None
    signed: bool = False
    atomic: str | None = None
    element: ValueType = "u32"
    matrices: int = 0
    transposed: bool = False
    success: Dest | None = None  # predicate: where a cast stored, or where a packed addition was carried out
    source_address: Address | None = None  # async_copy: where it reads; its one source, if any, is a predicate: lanes
    # for which it fails do not read and write zeros
    bypass: bool = False  # async_copy around L1 (cp.async.cg)
    partial: bool = False  # async_copy that may read less than it writes (.ZFILL): as many bytes of the global address
    # as are beyond a multiple of the width are left out at the end, and zeros written instead
    vector: int = 1

    @property
    def is_wait(self) -> bool:
        """Whether threads may wait here for a phase of an asynchronous barrier."""
        return self.operation == "mbarrier" and self.atomic == "check"

    @property
    def zero_fill(self) -> bool:
        """An asynchronous copy with a condition for reading."""
        return self.operation == "async_copy" and bool(self.sources)


@dataclass(frozen=True, slots=True)
class ControlOp:
    """Something that decides which instruction comes next.

    ``kind``: branch, branch_any, branch_divergent, branch_convergent, indirect, call, call_register (through a register
    pair), return, exit, sync_push (BSSY), sync (BSYNC), sync_break (BREAK), warp_sync, barrier, barrier_to_register,
    register_to_barrier, barrier_to_barrier, collective_end, trap, nothing.
    """

    kind: str
    target: int | None = None
    condition: tuple[Predicate, ...] = ()
    sources: tuple[Source, ...] = ()
    dests: tuple[Dest, ...] = ()
    barrier: int = 0
    detail: dict[str, Any] = field(default_factory=dict)


Semantics = Alu | WarpOp | MemoryOp | ControlOp


class Form:
    """The instruction's modifiers and operands, to be taken from left to right."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self._modifiers = list(instruction.modifiers)
        self._operands = list(instruction.operands)
        self.sources: list[Source] = []
        self.dests: list[Dest] = []

    def refuse(self, reason: str) -> Exception:
        """The error to raise for a form that has no meaning here."""
        return self.instruction.unsupported(reason)

    # -- modifiers -------------------------------------------------------------------------------------------------
    def flag(self, name: str) -> bool:
        """Take modifier ``name`` if present."""
        if name in self._modifiers:
            self._modifiers.remove(name)
            return True
        return False

    def choice(self, *names: str, default: str | None = None) -> str:
        """Take exactly one of ``names``; ``default`` if none is there; refuse when there is no default."""
        for name in names:
            if self.flag(name):
                return name
        if default is None:
            raise self.refuse(f"needs one of the modifiers {', '.join(names)}")
        return default

    def without_effect(self, *names: str) -> None:
        """Take modifiers that do not change the result or the counts here (cache hints, scheduling hints)."""
        for name in names:
            self.flag(name)

    # -- operands --------------------------------------------------------------------------------------------------
    def peek(self) -> Operand | None:
        return self._operands[0] if self._operands else None

    def remaining(self) -> int:
        return len(self._operands)

    def take(self) -> Operand:
        if not self._operands:
            raise self.refuse("an operand is missing")
        return self._operands.pop(0)

    def dest(self, words: int = 1) -> Dest:
        """Take a destination register of ``words`` 32-bit words."""
        operand = self.take()
        if not isinstance(operand, Register) or operand.suffixes or operand.negated:
            raise self.refuse("expected a destination register")
        dest = Dest(operand, words)
        self.dests.append(dest)
        return dest

    def dest_predicate(self) -> Dest:
        operand = self.take()
        if not isinstance(operand, Predicate) or operand.negated:
            raise self.refuse("expected a destination predicate")
        dest = Dest(operand)
        self.dests.append(dest)
        return dest

    def dest_predicates(self, most: int) -> int:
        """Take up to ``most`` destination predicates standing here; returns how many there were."""
        count = 0
        while count < most and isinstance(self.peek(), Predicate):
            self.dest_predicate()
            count += 1
        return count

    def source(self, kind: ValueType = "u32", *, bare: bool = False, suffixes: tuple[str, ...] = ()) -> Operand:
        """Take a source value; the marks on it (-, ~, ||) are applied at the fetch unless ``bare``."""
        operand = self.take()
        if isinstance(operand, Register | Constant):
            if any(s not in suffixes for s in operand.suffixes):
                raise self.refuse(f"operand suffix {'.'.join(operand.suffixes)}")
        elif not isinstance(operand, Immediate):
            raise self.refuse("expected a value operand")
        self.sources.append(Source(operand, kind, bare))
        return operand

    def source_predicate(self) -> Predicate:
        operand = self.take()
        if not isinstance(operand, Predicate):
            raise self.refuse("expected a predicate")
        self.sources.append(Source(operand, "pred"))
        return operand

    def source_predicates(self, most: int = 9) -> int:
        count = 0
        while count < most and isinstance(self.peek(), Predicate):
            self.source_predicate()
            count += 1
        return count

    def integer(self) -> int:
        """Take a literal integer."""
        operand = self.take()
        if not isinstance(operand, Immediate) or not isinstance(operand.value, int):
            raise self.refuse("expected a literal integer")
        return operand.value

    def address(self) -> Address:
        operand = self.take()
        if not isinstance(operand, Address):
            raise self.refuse("expected an address")
        return operand

    def named(self) -> str:
        operand = self.take()
        if not isinstance(operand, Named):
            raise self.refuse("expected a name")
        return operand.name

    def register_run(self, words: int) -> tuple[Source, ...]:
        """Take one register operand that stands for ``words`` consecutive registers, as word sources."""
        operand = self.take()
        if not isinstance(operand, Register) or operand.suffixes or operand.negated:
            raise self.refuse("expected a register")
        return tuple(Source(operand, "u32", word=word) for word in range(words))

    # -- closing ---------------------------------------------------------------------------------------------------
    def finish(self) -> None:
        """Refuse whatever was not taken."""
        if self._modifiers:
            raise self.refuse(f"modifier .{'.'.join(self._modifiers)}")
        if self._operands:
            raise self.refuse("more operands than this form has")

    def alu(self, compute: Callable[..., Any], monotone: str = "") -> Alu:
        self.finish()
        return Alu(tuple(self.sources), tuple(self.dests), compute, monotone)

    def warp(self, compute: Callable[..., Any]) -> WarpOp:
        self.finish()
        return WarpOp(tuple(self.sources), tuple(self.dests), compute)
