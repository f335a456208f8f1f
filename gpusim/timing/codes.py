"""What the pipeline model needs to know of every instruction: its control bits, the pipe it goes to, what it waits for.

The control bits are read from the encoding (bits 105 to 125 of the 128-bit word): stall cycles (4), yield (1), write
scoreboard (3, 7: none), read scoreboard (3), wait mask (6), reuse (4).  They are what ptxas schedules with, and leaving
the wait masks out makes any prediction meaningless.  Which pipe executes an opcode: CUDA C++ Programming Guide,
"Arithmetic Instructions", for rates, and ``gpusim calibrate`` for which instructions share one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.sass.form import ControlOp, MemoryOp
from gpusim.sass.instruction import Instruction
from gpusim.sass.operands import Constant, Immediate, Register
from gpusim.sass.program import Program

Array = np.ndarray[Any, Any]

# what the pipeline does with an instruction
(FIXED, VARIABLE, SHARED, LOAD, STORE, ATOMIC, LOCAL, BARRIER, BRANCH, EXIT, SHUFFLE, CONSTANT, COPY, FENCE, GROUP,
 GROUP_WAIT, CONTROL, SPECIAL) = range(18)  # fmt: skip
# pipes of a scheduler
PIPES = ("none", "fma", "fma_heavy", "alu", "xu", "fp64", "uniform", "tensor", "half")
NONE, FMA, HEAVY, ALU, XU, FP64, UNIFORM, TENSOR, HALF = range(len(PIPES))

# VIADD: recorded loops of it and ISETP issue an instruction a cycle, which the ALU pipe alone could not
_FMA = {"FFMA", "FMUL", "FADD", "FSWZADD", "VIADD"}
_HEAVY = {"IMAD", "IDP"}
_XU = {"MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV", "I2I"}
_FP64 = {"DADD", "DMUL", "DFMA", "DSETP", "DMNMX"}
_TENSOR = {"HMMA", "IMMA", "BMMA", "DMMA"}
_HALF = {"HADD2", "HMUL2", "HFMA2", "HMNMX2", "HSETP2", "HSET2"}
_SPECIAL = {"S2R", "S2UR", "R2UR", "B2R", "VOTEU", "REDUX", "CREDUX", "MATCH", "MOVM"}
_NO_PIPE = {"NOP", "BSSY", "CS2R", "BMOV", "DEPBAR", "YIELD", "WARPSYNC", "ELECT"}


@dataclass(frozen=True)
class Control:
    """Control bits of one instruction; scoreboards are -1 where there is none."""

    stall: int
    yields: bool
    write_scoreboard: int
    read_scoreboard: int
    wait: int
    reuse: int

    @classmethod
    def of(cls, encoding: int) -> Control:
        """Read them from a 128-bit encoding."""
        bits = encoding >> 105 & 0x1FFFFF
        write, read = bits >> 5 & 7, bits >> 8 & 7
        return cls(
            bits & 15, bool(bits >> 4 & 1), -1 if write == 7 else write, -1 if read == 7 else read, bits >> 11 & 63,
            bits >> 17 & 15,
        )  # fmt: skip


@dataclass(frozen=True)
class Codes:
    """Columns by instruction, as the pipeline's inner loop reads them.

    ``cost``: cycles that the pipe of a scheduler is busy, of a barrier its number; ``latency``: cycles to the result of
    instructions whose result is waited for by scoreboard; ``data``: 128-byte wavefronts that a global access moves at
    least; ``slots``: cycles until the scheduler can issue again; ``extra``: threads that a barrier waits for (0: the
    block), groups that a wait leaves open, or 1 for a store to local memory and for an atomic whose result is used.
    """

    stall: Array
    write: Array
    read: Array
    wait: Array
    kind: Array
    pipe: Array
    cost: Array
    latency: Array
    data: Array
    extra: Array
    slots: Array


def pipe_of(instruction: Instruction) -> int:
    """The pipe of a scheduler that executes an instruction which is no access and no control."""
    opcode = instruction.opcode
    if opcode in _FMA:
        return FMA
    if opcode in _HEAVY:
        return HEAVY
    if opcode in _XU:
        return XU
    if opcode in _FP64:
        return FP64
    if opcode in _TENSOR:
        return TENSOR
    if opcode in _HALF:
        return HALF
    if opcode in _NO_PIPE or opcode in _SPECIAL:
        return NONE
    if opcode.startswith("U"):
        return UNIFORM
    return ALU


def is_wide_multiply(instruction: Instruction) -> bool:
    """IMAD.WIDE and IMAD.HI take the multiplier for twice as long."""
    return instruction.opcode == "IMAD" and bool({"WIDE", "HI"} & set(instruction.modifiers))


def codes_of(program: Program, constants: dict[str, float]) -> Codes:
    """The columns of a program; ``constants``: of a device profile, in cycles."""
    count = len(program.instructions)
    columns: dict[str, Array] = {
        name: np.zeros(count, np.int32) for name in ("stall", "write", "read", "wait", "kind", "pipe", "extra")
    }
    columns |= {name: np.zeros(count, np.float64) for name in ("cost", "latency", "data", "slots")}
    kept: list[Any] = [None, None, None]  # what the operand places keep for the next instruction (.reuse)
    for k, instruction in enumerate(program.instructions):
        control = Control.of(instruction.encoding)
        columns["stall"][k], columns["wait"][k] = max(1, control.stall), control.wait
        columns["write"][k], columns["read"][k] = control.write_scoreboard, control.read_scoreboard
        kind, pipe, cost, latency, data, extra = _row(program.meanings[k], instruction, constants)
        columns["kind"][k], columns["pipe"][k], columns["extra"][k] = kind, pipe, extra
        columns["cost"][k], columns["latency"][k], columns["data"][k] = cost, latency, data
        reads, kept = _register_reads(instruction, control.reuse, kept)
        columns["slots"][k] = 1.0
        if kind == VARIABLE and pipe != NONE:
            columns["slots"][k] += constants["issue_third_operand"] * (reads >= 3)
            columns["slots"][k] += constants["issue_alu_extra"] * (pipe == ALU)
    return Codes(**columns)


def _register_reads(instruction: Instruction, reuse: int, kept: list[Any]) -> tuple[int, list[Any]]:
    """(registers that an instruction reads from the register file, what is kept): a register in the place where the
    instruction before marked it for reuse is not read again."""
    sources = [o for o in instruction.operands if isinstance(o, Register | Immediate | Constant)][1:]
    reads = 0
    left: list[Any] = [None, None, None]
    for place, operand in enumerate(sources[:3]):
        if not isinstance(operand, Register) or operand.file != "R" or operand.is_zero:
            continue
        if kept[place] != operand.index:
            reads += 1
        if reuse >> place & 1:
            left[place] = operand.index
    return reads, left


def _row(meaning: Any, instruction: Instruction, c: dict[str, float]) -> tuple[int, int, float, float, float, int]:
    """(kind, pipe, cost, latency, data, extra) of an instruction."""
    if isinstance(meaning, MemoryOp):
        return _memory_row(meaning, c)
    opcode = instruction.opcode
    if isinstance(meaning, ControlOp):
        if meaning.kind == "barrier":
            count = meaning.detail.get("count") or 0
            arrives = meaning.detail.get("kind") == "ARV"
            number = meaning.barrier or 0
            return BARRIER, NONE, float(number), c["latency_barrier"], 1.0 if arrives else 0.0, int(count)
        if meaning.kind == "exit":
            return EXIT, NONE, 0.0, 0.0, 0.0, 0
        if meaning.kind.startswith(("branch", "call", "indirect", "return", "sync")):
            return BRANCH, NONE, 0.0, 0.0, 0.0, 0
        if opcode in ("MEMBAR", "ERRBAR", "FENCE"):
            return FENCE, NONE, 0.0, c["latency_fence"], 0.0, 0
        if opcode == "LDGDEPBAR":
            return GROUP, NONE, 0.0, 0.0, 0.0, 0
        if opcode == "DEPBAR":
            numbers = [int(o.value) for o in instruction.operands if isinstance(o, Immediate)]
            return GROUP_WAIT, NONE, 0.0, 0.0, 0.0, numbers[0] if numbers else 0
        return CONTROL, NONE, 0.0, c["latency_special"], 0.0, 0
    if opcode == "SHFL":
        return SHUFFLE, NONE, c["issue_shuffle"], c["latency_shuffle"], 0.0, 0
    if opcode in ("LDC", "ULDC", "LDCU"):
        indexed = opcode == "LDC" and any(isinstance(o, Constant) and o.base is not None for o in instruction.operands)
        return CONSTANT, NONE, c["cost_constant_word"] if indexed else 0.0, c["latency_constant"], 0.0, 0
    pipe = pipe_of(instruction)
    if pipe == NONE:
        if opcode in ("S2R", "S2UR"):
            return SPECIAL, NONE, 0.0, c["latency_special"], 0.0, 0
        latency = c["latency_special"] if opcode in _SPECIAL else 0.0
        return VARIABLE, NONE, 0.0, latency, 0.0, 0
    cost = c[f"issue_{PIPES[pipe]}"]
    if is_wide_multiply(instruction):
        cost = c["issue_wide_multiply"]
    latency = {XU: c["latency_xu"], FP64: c["latency_fp64"], TENSOR: c["latency_tensor"]}.get(pipe, c["latency_alu"])
    return VARIABLE, pipe, cost, latency, 0.0, 0


def _memory_row(op: MemoryOp, c: dict[str, float]) -> tuple[int, int, float, float, float, int]:
    data = max(1.0, op.width * max(1, op.vector if op.operation == "load" else 1) / 4)
    if op.operation == "async_copy":
        return COPY, NONE, 0.0, c["latency_shared"], data, 0
    if op.space == "shared" or op.operation in ("matrix_load", "matrix_store", "mbarrier"):
        latency = c["latency_shared_atomic"] if op.operation in ("atomic", "mbarrier") else c["latency_shared"]
        least = 2.0 if op.operation == "load" and op.width == 16 else 1.0  # recorded: LDS.128 of one address
        return SHARED, NONE, 1.0, latency, least, 0
    if op.space == "local":
        return LOCAL, NONE, 0.0, c["latency_l1"], data, int(op.operation == "store")
    if op.operation in ("atomic", "reduce"):
        return ATOMIC, NONE, 0.0, c["latency_global_atomic"], data, int(op.operation == "atomic")
    if op.operation == "store":
        return STORE, NONE, 0.0, 0.0, data, 0
    return LOAD, NONE, 0.0, c["latency_l1"], data, 0
