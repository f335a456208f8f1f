"""Asynchronous barriers in shared memory (PTX mbarrier): SYNCS on sm_90 and later, ATOMS.ARRIVE on sm_80 to sm_89.

What each does is PTX's definition of the instruction it is compiled from; which words it takes and returns is read off
the compiler's code around it and off recordings of the returned words on an H200.
"""

from __future__ import annotations

from typing import Any

from gpusim.sass.form import ControlOp, Dest, Form, MemoryOp, Semantics, Source, ValueType
from gpusim.sass.numeric import Array
from gpusim.sass.operands import Address, Named, Register
from gpusim.sass.registry import opcode

NO_TRANSACTIONS = (
    "bulk copies and the transaction counts of asynchronous barriers (mbarrier expect_tx) are not simulated"
)


def barrier_op(
    action: str, address: Address, recent: bool, sources: tuple[Source, ...] = (), **results: Any
) -> MemoryOp:
    """A MemoryOp on a 64-bit barrier word; ``recent``: with the layout of sm_90."""
    element: ValueType = "u64" if recent else "u32"
    return MemoryOp("shared", "mbarrier", 8, address, False, sources=sources, atomic=action, element=element, **results)


@opcode("SYNCS")
def asynchronous_barrier(form: Form) -> Semantics:
    """mbarrier.init (.EXCH.64), .arrive (.ARRIVE.TRANS64), .test_wait and .try_wait (.PHASECHK), .inval (.CCTL.IV).

    Arriving: .A1T0 once, .ART0 as often as the last operand says; .OPTOUT leaves the barrier (arrive_drop). What comes
    back is the upper word from before any lane of the warp arrived; the lower register stays as it is, except that
    .TMASK puts there which lanes arrived with this one (recorded: raw_lanes, see tests/test_mbarrier.py).
    .RED.A0T1 announces an arrival to come when copies are complete (cp.async.mbarrier.arrive): here they are at once.
    """
    if form.flag("EXCH"):
        form.choice("64")
        dest = form.dest(2)
        address, values = form.address(), form.register_run(2)
        form.finish()
        return barrier_op("exch", address, True, values, dest=dest)
    if form.flag("CCTL"):
        form.choice("IV")
        form.address()
        form.finish()
        return ControlOp("nothing")
    if form.flag("PHASECHK"):
        form.choice("TRANS64")
        form.without_effect("TRYWAIT")  # may wait for a while before it says no
        success = form.dest_predicate()
        form.dests.pop()
        address = form.address()
        phase = form.register_run(1)
        form.finish()
        return barrier_op("check", address, True, phase, success=success)
    form.choice("ARRIVE")
    form.choice("TRANS64")
    if form.flag("RED"):
        if not form.flag("A0T1"):
            raise form.refuse(NO_TRANSACTIONS)
        form.take(), form.address(), form.take()
        form.finish()
        return ControlOp("nothing")
    action = "drop" if form.flag("OPTOUT") else "arrive"
    masked = form.flag("TMASK")
    action += "_mask" if masked else ""
    how = form.choice("A1T0", "ART0", default="")
    if not how:
        raise form.refuse(NO_TRANSACTIONS)
    dest = form.dest(2)
    form.dests.pop()
    address = form.address()
    count = form.register_run(1)
    if how == "A1T0":
        operand = count[0].operand
        if not (isinstance(operand, Register) and operand.is_zero):
            raise form.refuse("a count for a single arrival")
        count = ()
    form.finish()
    return barrier_op(action, address, True, count, dest=dest if masked else _upper(dest))


def _upper(dest: Dest) -> Dest:
    """The upper word of a register pair, where that alone is written."""
    operand = dest.operand
    assert isinstance(operand, Register)
    return Dest(operand if operand.is_zero else Register(operand.file, operand.index + 1))


@opcode("ARRIVES")
def arrive_after_copies(form: Form) -> Semantics:
    """Arrive when the lane's asynchronous copies are complete: at once here.

    .TRANSCNT only takes back what SYNCS.ARRIVE.RED.A0T1 announced; .ARVCNT (.noinc) and sm_80's form count an arrival.
    """
    form.choice("LDGSTSBAR")
    form.choice("64")
    how = form.choice("TRANSCNT", "ARVCNT", default="")
    address = form.address()
    form.finish()
    if how == "TRANSCNT":
        return ControlOp("nothing")
    return barrier_op("arrive", address, how == "ARVCNT")


def arrive_first(form: Form) -> Semantics:
    """ATOMS.ARRIVE.64, taken up to its modifier: mbarrier.arrive on sm_80 to sm_89."""
    form.choice("64")
    dest = form.dest(2)
    form.dests.pop()
    address = form.address()
    form.finish()
    return barrier_op("arrive", address, False, dest=dest)


@opcode("RPCMOV")
def move_program_counter(form: Form) -> Semantics:
    """Move to or from Rpc, a register pair of each thread that the compiler keeps words in for a moment."""
    form.choice("32")
    first = form.peek()
    if isinstance(first, Named):
        half = _half(form)
        form.source("u32")
        return form.warp(lambda lanes, a: lanes.keep(half, a))
    form.dest()
    half = _half(form)

    def compute(lanes: Any) -> Array:
        return lanes.kept(half)

    return form.warp(compute)


def _half(form: Form) -> int:
    name = form.named()
    if name not in ("Rpc.LO", "Rpc.HI"):
        raise form.refuse("expected a half of Rpc")
    return int(name == "Rpc.HI")


@opcode("UTMALDG", "UTMASTG", "UBLKCP")
def bulk_copy(form: Form) -> Semantics:
    """Bulk copies by the tensor memory accelerator."""
    raise form.refuse(NO_TRANSACTIONS)
