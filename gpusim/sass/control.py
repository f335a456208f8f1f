"""Branches, calls, exits, convergence barriers, block barriers."""

from __future__ import annotations

from gpusim.sass.form import ControlOp, Form, Semantics, Source
from gpusim.sass.operands import Immediate, Named, Predicate, Register
from gpusim.sass.registry import opcode


def _conditions(form: Form) -> tuple[Predicate, ...]:
    """Predicates that stand before a branch target: all must hold, besides the guard."""
    conditions: list[Predicate] = []
    while isinstance(form.peek(), Predicate):
        operand = form.take()
        assert isinstance(operand, Predicate)
        if not (operand.is_constant and not operand.negated):
            conditions.append(operand)
    return tuple(conditions)


def _barrier_index(form: Form) -> int:
    operand = form.take()
    if not (isinstance(operand, Named) and operand.name.startswith("B") and operand.name[1:].isdigit()):
        raise form.refuse("expected a convergence barrier")
    return int(operand.name[1:])


@opcode("BRA")
def branch(form: Form) -> Semantics:
    """Go to the target; .U promises a uniform condition.

    .U.ANY: all executing lanes of a warp go if the condition holds in one of them (recording h200_mbarrier).
    """
    form.without_effect("U")  # a promise: a condition that breaks it splits the warp all the same
    anyone = form.flag("ANY")
    conditions = _conditions(form)
    if anyone:
        target = form.integer()
        form.finish()
        return ControlOp("branch_any", target, conditions)
    if form.flag("DIV") or form.flag("CONV"):
        return _branch_on_convergence(form)
    target = form.integer()
    form.finish()
    return ControlOp("branch", target, conditions)


def _branch_on_convergence(form: Form) -> Semantics:
    """BRA.DIV: taken when lanes of the mask operand are missing from the active ones (a slow path of warp code).

    BRA.CONV is the opposite: taken when they are all there.
    """
    kind = "branch_divergent" if "DIV" in form.instruction.modifiers else "branch_convergent"
    if form.remaining() > 1:
        form.source("u32")
    target = form.integer()
    form.finish()
    return ControlOp(kind, target, sources=tuple(form.sources))


@opcode("JMP")
def jump(form: Form) -> Semantics:
    """Go to an absolute target."""
    raise form.refuse("absolute jumps")


@opcode("BRX")
def indirect_branch(form: Form) -> Semantics:
    """Go to (next address + register pair + offset): a switch table."""
    form.without_effect("U")  # a promise that all lanes go to one target
    register = form.take()
    if not isinstance(register, Register):
        raise form.refuse("expected a register pair")
    offset = form.integer()
    form.finish()
    plain = Register(register.file, register.index)
    return ControlOp("indirect", offset, sources=(Source(plain, "u64"),))


@opcode("EXIT")
def exit_thread(form: Form) -> Semantics:
    """The thread ends."""
    conditions = _conditions(form)
    form.finish()
    return ControlOp("exit", None, conditions)


@opcode("BSSY")
def push_convergence(form: Form) -> Semantics:
    """The active lanes become the members of a convergence barrier."""
    form.without_effect("RECONVERGENT", "RELIABLE")  # what the compiler relies on: members wait in any case
    barrier = _barrier_index(form)
    target = form.integer()
    form.finish()
    return ControlOp("sync_push", target, barrier=barrier)


@opcode("BSYNC")
def wait_convergence(form: Form) -> Semantics:
    """Wait until every living member of the barrier is here."""
    form.without_effect("RECONVERGENT", "RELIABLE")  # what the compiler relies on: members wait in any case
    conditions = _conditions(form)
    barrier = _barrier_index(form)
    form.finish()
    return ControlOp("sync", None, conditions, barrier=barrier)


@opcode("BREAK")
def leave_convergence(form: Form) -> Semantics:
    """The active lanes stop being members of the barrier."""
    form.without_effect("RELIABLE")  # as at BSSY
    conditions = _conditions(form)
    barrier = _barrier_index(form)
    conditions += _conditions(form)  # nvdisasm's JSON puts the predicate last
    form.finish()
    return ControlOp("sync_break", None, conditions, barrier=barrier)


@opcode("BMOV")
def move_convergence(form: Form) -> Semantics:
    """Save or restore the members of a convergence barrier (around calls)."""
    # .CLEAR empties the barrier that was saved; it is set or restored before it is waited at again
    form.without_effect("32", "CLEAR")
    first = form.peek()
    if isinstance(first, Named):
        barrier = _barrier_index(form)
        if isinstance(form.peek(), Named):
            origin = _barrier_index(form)
            form.finish()
            return ControlOp("barrier_to_barrier", barrier=barrier, detail={"origin": origin})
        form.source("u32")
        form.finish()
        return ControlOp("register_to_barrier", sources=tuple(form.sources), barrier=barrier)
    form.dest()
    barrier = _barrier_index(form)
    form.finish()
    return ControlOp("barrier_to_register", dests=tuple(form.dests), barrier=barrier)


@opcode("WARPSYNC")
def warp_sync(form: Form) -> Semantics:
    """Wait until the lanes of the mask are here.

    .EXCLUSIVE: groups of lanes with different masks go on one after the other.  .COLLECTIVE: lanes may come to
    different places; once all of the mask have, they execute the section up to ENDCOLLECTIVE together, at the
    place of the last, and then each goes to the target its own WARPSYNC names (recording h200_groups).
    """
    exclusive, collective = form.flag("EXCLUSIVE"), form.flag("COLLECTIVE")
    everyone = form.flag("ALL")
    if not everyone:
        form.source("u32")
    target = form.integer() if isinstance(form.peek(), Immediate) else None
    form.finish()
    if collective and target is None:
        raise form.refuse("a collective section without a target")
    kind = "exclusive" if exclusive else "collective" if collective else ""
    return ControlOp("warp_sync", target, sources=tuple(form.sources), detail={"kind": kind})


@opcode("ENDCOLLECTIVE")
def end_collective(form: Form) -> Semantics:
    """Each lane goes to the target of the WARPSYNC.COLLECTIVE that brought it here."""
    form.finish()
    return ControlOp("collective_end")


@opcode("CALL")
def call(form: Form) -> Semantics:
    """Go to a function; the return address was put in a register by an ordinary move.

    From a register pair, .REL takes an address within the section (function pointers are places in the table of
    constant bank 2 that holds these), .ABS one in the module's code: how the runtime's printf and assert are called.
    """
    kind = form.choice("REL", "ABS")
    form.without_effect("NOINC")  # keeps a counter of the debugger's as it is
    conditions = _conditions(form)
    operand = form.take()
    if isinstance(operand, Register) and not operand.suffixes and not operand.negated:
        offset = form.integer() if kind == "REL" else 0
        form.finish()
        pair = Source(Register(operand.file, operand.index), "u64")
        return ControlOp("call_register", offset, conditions, (pair,), detail={"absolute": kind == "ABS"})
    if isinstance(operand, Immediate) and isinstance(operand.value, int) and kind == "REL":
        form.finish()
        return ControlOp("call", operand.value, conditions)
    raise form.refuse("a call to an absolute address, of a separately compiled function (nvcc -rdc=true)")


@opcode("RET")
def return_from_call(form: Form) -> Semantics:
    """Go to the address in a register pair."""
    form.choice("REL")
    form.without_effect("NODEC")  # as .NOINC at CALL
    register = form.take()
    if not isinstance(register, Register):
        raise form.refuse("expected a register pair")
    offset = form.integer()
    form.finish()
    return ControlOp("return", offset, sources=(Source(Register(register.file, register.index), "u32"),))


@opcode("BAR")
def block_barrier(form: Form) -> Semantics:
    """Wait for threads of the block (.SYNC), arrive without waiting (.ARV), reduce a predicate over them (.RED).

    Operands: the barrier's number; how many threads it is for (left out: all); the predicate.  Number and count come
    from one register when the same one stands for both: number in its low four bits, count from bit 16 on (read off the
    code that the compiler puts before it).
    """
    form.without_effect("DEFER_BLOCKING")  # how a warp waits, not for what
    kind = form.choice("SYNC", "RED", "ARV")
    reduction = form.choice("POPC", "AND", "OR") if kind == "RED" else ""
    most = form.remaining() - (1 if reduction else 0)
    if not 1 <= most <= 2 or (kind == "ARV" and most != 2):
        raise form.refuse("a barrier with these operands")
    packed = most == 2 and isinstance(form.peek(), Register) and len(set(form.instruction.operands[:2])) == 1
    literal: list[int | None] = []
    for _ in range(most):
        if isinstance(form.peek(), Immediate):
            literal.append(form.integer())
        elif packed and literal:
            form.take()
        else:
            form.source("u32")
            literal.append(None)
    if reduction:
        form.source_predicate()
    form.finish()
    detail = {
        "kind": kind,
        "reduction": reduction,
        "packed": packed,
        "number_read": literal[0] is None,
        "count_read": not packed and most == 2 and literal[1] is None,
        "count": literal[1] if most == 2 and not packed else None,
    }
    return ControlOp("barrier", sources=tuple(form.sources), barrier=literal[0] or 0, detail=detail)


@opcode("B2R")
def barrier_result(form: Form) -> Semantics:
    """d = result of the last barrier reduction."""
    form.choice("RESULT")
    form.dest()
    if form.dest_predicates(1):
        pass
    return form.warp(lambda lanes: lanes.barrier_result(len(form.dests)))


@opcode("YIELD")
def give_way(form: Form) -> Semantics:
    """Let other lanes of the warp go on, if any can."""
    form.finish()
    return ControlOp("yield")


@opcode("NOP", "NANOSLEEP")
def nothing(form: Form) -> Semantics:
    """No change of state."""
    if form.instruction.opcode == "NANOSLEEP":
        form.without_effect("WARP")  # whether the warp sleeps or the thread
        form.take()  # how long: time does not pass here
    form.finish()
    return ControlOp("nothing")


@opcode("BPT")
def trap(form: Form) -> Semantics:
    """Stops the kernel: __trap(), and __brkpt() without a debugger (recorded: a failed launch)."""
    form.choice("TRAP")
    form.integer()
    form.finish()
    return ControlOp("trap")
