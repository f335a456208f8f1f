"""Loads, stores, atomics, matrix accesses and asynchronous copies."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gpusim.sass.form import ControlOp, Dest, Form, MemoryOp, Semantics, Source, ValueType
from gpusim.sass.operands import Address, Predicate, Register
from gpusim.sass.registry import opcode
from gpusim.sass.syncs import arrive_first

Space = Literal["global", "shared", "local", "generic"]

_SPACES: dict[str, Space] = {
    "LDG": "global", "STG": "global", "LDS": "shared", "STS": "shared", "LDL": "local", "STL": "local",
    "LD": "generic", "ST": "generic", "RED": "global", "REDG": "global", "ATOMG": "global", "ATOM": "generic",
    "ATOMS": "shared",
}  # fmt: skip

# Cache and ordering hints: the order of accesses here is stricter than any of them asks for, and L1/L2 policy
# does not change an exact counter (recorded: .CONSTANT, .STRONG.GPU and plain loads count alike).
_HINTS = (
    "CONSTANT", "STRONG", "WEAK", "GPU", "SYS", "CTA", "SM", "EF", "EL", "LU", "EU", "NA", "VC", "LTC64B", "LTC128B",
    "LTC256B", "PRIVATE", "MMIO", "ENL2", "DEFAULT_BYPASS",
)  # fmt: skip

_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "128": 16}


def _width(form: Form) -> tuple[int, bool]:
    """(bytes a lane, sign-extended)."""
    name = form.choice(*_WIDTHS, default="32")
    return _WIDTHS[name], name[0] == "S"


def _space(form: Form) -> tuple[Space, bool]:
    """(memory space, address registers are 64-bit pairs)."""
    space = _SPACES[form.instruction.opcode]
    wide = form.flag("E")
    if space in ("global", "generic") and not wide:
        raise form.refuse("a 32-bit address outside shared and local memory")
    return space, wide


@opcode("LDG", "LDS", "LDL", "LD")
def load(form: Form) -> Semantics:
    """d = memory[address]."""
    space, wide = _space(form)
    form.without_effect(*_HINTS)
    width, signed = _width(form)
    form.flag("U") if space == "shared" else None
    dest = form.dest(max(1, width // 4))
    address = form.address()
    form.finish()
    return MemoryOp(space, "load", width, address, wide, dest=dest, signed=signed)


@opcode("STG", "STS", "STL", "ST")
def store(form: Form) -> Semantics:
    """memory[address] = a."""
    space, wide = _space(form)
    form.without_effect(*_HINTS)
    width, _ = _width(form)
    address = form.address()
    values = form.register_run(max(1, width // 4))
    form.finish()
    return MemoryOp(space, "store", width, address, wide, sources=values)


_OPERATIONS = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAST", "CAS")


_VECTORS = {"F32x2": 2, "F32x4": 4}


def _atomic_kind(form: Form) -> tuple[str, int, ValueType, int]:
    """(operation, bytes a lane, element type, elements a lane)."""
    if form.flag("POPC"):
        form.choice("INC")
        form.without_effect("32")  # the width that it has
        return "popc_inc", 4, "u32", 1
    name = form.choice(*_OPERATIONS).lower()
    if name == "cast":
        form.choice("SPIN")
    element: ValueType = "u32"
    width, vector = 4, 1
    if form.flag("64"):
        element, width = "u64", 8
        if form.flag("S64") or form.flag("S32"):
            element = "i64"
    elif form.flag("S32"):
        element = "i32"
    elif form.flag("S64"):
        element, width = "i64", 8
    elif form.flag("F16x2"):
        form.without_effect("RN")  # the rounding there is
        element, vector = "f16", 2
    elif form.flag("BF16x2"):
        form.without_effect("RN")  # the rounding there is
        element, vector = "bf16", 2
    elif packed := form.choice(*_VECTORS, "F32", default=""):
        element, vector = "f32", _VECTORS.get(packed, 1)
        width = 4 * vector
        form.without_effect("RN")  # the rounding there is
        if not form.flag("FTZ") and name == "add":
            raise form.refuse("a float atomic without .FTZ")
    elif form.flag("F64"):
        form.without_effect("RN")  # the rounding there is
        element, width = "f64", 8
    form.without_effect("U32")  # the type that it is without another one
    if vector > 1 and name != "add":
        raise form.refuse("a vector atomic other than an addition")
    return name, width, element, vector


@opcode("RED", "REDG")
def reduction(form: Form) -> Semantics:
    """memory[address] = operation(memory[address], a), nothing returned."""
    _, wide = _space(form)
    form.without_effect(*_HINTS)
    name, width, element, vector = _atomic_kind(form)
    address = form.address()
    values = form.register_run(width // 4)
    form.finish()
    return MemoryOp(
        "global", "reduce", width, address, wide, sources=values, atomic=name, element=element, vector=vector
    )


@opcode("ATOMG", "ATOM", "ATOMS")
def atomic(form: Form) -> Semantics:
    """d = memory[address], then memory[address] = operation(d, a); compare-and-swap takes two values.

    ATOMS.CAST.SPIN stores when the compared value is still there and returns 1 for the lane that stored.
    """
    space = _SPACES[form.instruction.opcode]
    wide = space != "shared"
    if wide:
        _space(form)
    form.without_effect(*_HINTS)
    if space == "shared" and form.flag("ARRIVE"):
        return arrive_first(form)
    name, width, element, vector = _atomic_kind(form)
    packed = element in ("f16", "bf16")
    if vector > 1 and not packed:
        raise form.refuse("a vector atomic that returns the old contents")
    success: Dest | None = None
    if isinstance(form.peek(), Predicate):
        success = form.dest_predicate()
        if success.is_sink:
            success = None
        elif name != "cast" and not (packed and space == "generic"):
            raise form.refuse("the predicate result of an atomic")
    words = width // 4
    dest = None if isinstance(form.peek(), Address) else form.dest(words)
    if (dest is None) != (success is not None and name == "cast"):
        raise form.refuse("a compare-and-swap with these results")
    address = form.address()
    values: tuple[Source, ...] = ()
    if name != "popc_inc":
        values = form.register_run(words)
    if name in ("cas", "cast"):
        values += form.register_run(words)
    form.finish()
    return MemoryOp(
        space, "atomic", width, address, wide, sources=values, dest=dest, atomic=name, element=element,
        success=success, vector=vector,
    )  # fmt: skip


@opcode("QSPC")
def query_space(form: Form) -> Semantics:
    """p = the generic address lies in shared (.S) or local (.L) memory."""
    if not form.flag("E"):
        raise form.refuse("a 32-bit address")
    window = form.choice("S", "L")
    form.dest_predicate()
    if not form.dest().is_sink:
        raise form.refuse("a register result")
    form.dests.pop()
    address = form.address()
    for base in address.bases:
        if base.suffixes not in ((), ("64",)):
            raise form.refuse("this address")
        form.sources.append(Source(Register(base.file, base.index), "u64"))
    offset = np.uint64(address.offset & (2**64 - 1))
    return form.warp(lambda lanes, *parts: lanes.in_window(sum(parts, offset), window))


def _matrices(form: Form) -> tuple[int, bool]:
    form.choice("16")
    transposed = form.choice("M88", "MT88") == "MT88"
    return int(form.choice("4", "2", default="1")), transposed


@opcode("LDSM")
def matrix_load(form: Form) -> Semantics:
    """ldmatrix: 8x8 matrices of 16-bit elements, rows given by the addresses of eight lanes each."""
    count, transposed = _matrices(form)
    dest = form.dest(count)
    address = form.address()
    form.finish()
    return MemoryOp("shared", "matrix_load", 16, address, False, dest=dest, matrices=count, transposed=transposed)


@opcode("STSM")
def matrix_store(form: Form) -> Semantics:
    """stmatrix: the reverse of LDSM."""
    count, transposed = _matrices(form)
    address = form.address()
    values = form.register_run(count)
    form.finish()
    return MemoryOp("shared", "matrix_store", 16, address, False, sources=values, matrices=count, transposed=transposed)


@opcode("LDGSTS")
def asynchronous_copy(form: Form) -> Semantics:
    """cp.async: copy from global to shared memory (done at once here; waiting for it changes nothing).

    With a predicate at the end, lanes for which it fails read nothing and write zeros: the form of a source size that
    is either 0 or everything, and of ``ignore-src``. With .ZFILL the global address also says how much to read: the
    bytes by which it exceeds a multiple of the width are left out at the end (read off the compiler's code for source
    sizes 1 to 15; results recorded in h200_copies).
    """
    if not form.flag("E"):
        raise form.refuse("a 32-bit global address")
    bypass, partial = form.flag("BYPASS"), form.flag("ZFILL")
    form.without_effect(*_HINTS)
    width, _ = _width(form)
    if width < 4:
        raise form.refuse("a copy of less than four bytes")
    target = form.address()
    origin = form.address()
    reads: tuple[Source, ...] = ()
    if form.remaining():
        form.source_predicate()
        reads = tuple(form.sources)
    form.finish()
    return MemoryOp(
        "shared", "async_copy", width, target, False, reads, source_address=origin, bypass=bypass, partial=partial
    )


@opcode("LDGDEPBAR", "DEPBAR", "CCTL", "CCTLL", "MEMBAR", "ERRBAR", "CGAERRBAR", "FENCE", "UCGABAR_WAIT", "UCGABAR_ARV")
def ordering(form: Form) -> Semantics:
    """Fences and waits: accesses are complete when the next instruction starts, so nothing is left to do."""
    if form.instruction.opcode.startswith("UCGABAR"):
        raise form.refuse("cluster barriers")
    # which accesses are ordered against which, and what to wait for
    form.without_effect(
        "LE", "E", "SC", "ALL", "ASYNC", "VIEW", "S", "IVALL", "IVALLP", "PF1", "PF2", "WB", "IV", *_HINTS
    )
    while form.remaining():
        form.take()
    form.finish()
    return ControlOp("nothing")
