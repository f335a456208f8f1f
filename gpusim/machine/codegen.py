"""Turning a program's basic blocks into Python functions over whole chunks.

Each block becomes functions of (chunk s, exact mask m, write mask w): ``fast`` for when every living lane executes
(w is None), ``masked`` otherwise, and ``few`` or ``products``, if like instructions can be computed together
(:mod:`.batches`), in place of ``fast`` where the chunk has few threads.  The generated text only fetches, calls the
opcode's ``compute`` and writes back; what an instruction means stays in its opcode function.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any

import numpy as np

from gpusim.errors import UnsupportedError
from gpusim.machine.batches import LEAST, REGISTER, compute, kind_of, outer
from gpusim.machine.chunk import ALWAYS, NEVER, ZERO
from gpusim.machine.outer import pair
from gpusim.machine.together import Together
from gpusim.sass.form import Alu, ControlOp, Dest, MemoryOp, Semantics, Source, WarpOp
from gpusim.sass.numeric import SIGN32, high_word, low_word, select
from gpusim.sass.operands import Address, Constant, Immediate, Predicate, Register
from gpusim.sass.program import BRANCH_OPCODES, BasicBlock, Program
from gpusim.sass.slices import Slice, element

_VIEWS = {"u32": "", "i32": ".view(i32)", "f32": ".view(f32)", "u64": "", "i64": ".view(i64)", "f64": ".view(f64)"}
_WIDE = ("u64", "i64", "f64")
HALF = re.compile(r"(lo|hi)\(\w+\)")
NAMED = re.compile(r"\((qU?R\d+_\d+) := (pair\([^()]*\))\)")
NAME = re.compile(r"\bq(U?R\d+)_(\d+)\b")


def float32_bits(value: int | float) -> int:
    """Bits of an immediate in a float32 position: hexadecimal text holds bits, decimal text a number."""
    if isinstance(value, int):
        return value & 0xFFFFFFFF
    if value != value:
        return 0x7FFFFFFF
    return int(np.float32(value).view(np.uint32))


def settled(lines: list[str]) -> list[str]:
    """The lines of a function without halves that are overwritten before they are read, and names that are not read."""
    overwritten: set[str] = set()
    needed = []
    for line in reversed(lines):
        target, _, value = line.partition(" = ")
        if REGISTER.fullmatch(target):
            if target in overwritten and HALF.fullmatch(value):
                continue
            overwritten.add(target)
        else:
            value = line
        overwritten.difference_update(REGISTER.findall(value))
        needed.append(line)
    lines = needed[::-1]
    uses = Counter(match.group() for line in lines for match in NAME.finditer(line))
    kept = []
    for line in lines:
        name = line.partition(" = ")[0]
        if NAME.fullmatch(name) and uses[name] == 1:
            continue
        line = NAMED.sub(lambda match: match[0] if uses[match[1]] > 1 else match[2], line)
        kept.append(NAME.sub(r"q\1", line))
    return kept


class BlockWriter:
    """Writes the functions of one program; ``names`` collects what the text refers to besides launch constants.

    With a ``part``, instructions outside of that slice are not computed: their guards are counted and their accesses
    reported.  ``live`` says which registers lanes that do not execute an instruction may still read: only those are
    kept in such lanes.
    """

    batching = True  # like instructions may be computed together
    index = 0  # of the instruction that is written

    def __init__(self, program: Program, part: Slice | None = None, live: Slice | None = None) -> None:
        self.program, self.part, self.live = program, part, live
        self.names: dict[str, Any] = {
            "ZERO": ZERO,
            "ALWAYS": ALWAYS,
            "NEVER": NEVER,
            "SIGN": SIGN32,
            "SIGN64": np.uint64(1 << 63),
            "NOSIGN": np.uint32(0x7FFFFFFF),
            "pair": pair,
            "lo": low_word,
            "hi": high_word,
            "select": select,
            "u32": np.uint32,
            "i32": np.int32,
            "f32": np.float32,
            "u64": np.uint64,
            "i64": np.int64,
            "f64": np.float64,
            "batch": compute,
            "outer": outer,
        }
        self.constants: set[tuple[int, int]] = set()  # (bank, offset) of words bound at launch
        self.lines: list[str] = []
        self.wide: dict[tuple[str, str], str] = {}  # register pairs whose 64-bit value has a name at this point
        self.numbers = count()
        self.unconditional = True  # what is written now is executed whenever its function is

    # -- values ----------------------------------------------------------------------------------------------------
    def _literal(self, array: np.ndarray[Any, Any]) -> str:
        name = f"k{array.dtype.name}_{array.tobytes().hex()}"
        self.names[name] = array.reshape(1, 1)
        return name

    def _word(self, bits: int) -> str:
        return self._literal(np.array([bits & 0xFFFFFFFF], np.uint32))

    def _register(self, register: Register, word: int = 0) -> str:
        if register.is_zero:
            return "ZERO"
        return f"{'UR' if register.file == 'UR' else 'R'}[{register.index + word}]"

    def _constant(self, constant: Constant, word: int) -> str:
        offset = constant.offset + 4 * word
        if constant.base is not None:
            return f"s.constant_load({constant.bank}, {offset}, {self._register(constant.base)})"
        self.constants.add((constant.bank, offset))
        return f"c{constant.bank}_{offset:x}"

    # -- 64-bit values, put together once ----------------------------------------------------------------------------
    def _name(self, low: str, high: str) -> str:
        """A new name for the value of a register pair; :func:`settled` drops those that nothing reads."""
        name = f"q{low[:-1].replace('[', '')}_{next(self.numbers)}"
        self.wide[low, high] = name
        return name

    def _pair(self, low: str, high: str) -> str:
        """The text of a register pair's value: its name if it has one, which it gets if that is safe."""
        known = self.wide.get((low, high))
        if known is not None:
            return known
        text = f"pair({low}, {high})"
        if not self.unconditional or not REGISTER.fullmatch(low) or not REGISTER.fullmatch(high):
            return text
        return f"({self._name(low, high)} := {text})"

    def forget(self, target: str) -> None:
        """A register is written: the names of its pairs no longer stand for them."""
        for words in [words for words in self.wide if target in words]:
            del self.wide[words]

    @contextmanager
    def _conditional(self) -> Iterator[None]:
        """What is written meanwhile may not be executed, so that it must not give names."""
        before, self.unconditional = self.unconditional, False
        try:
            yield
        finally:
            self.unconditional = before

    def predicate(self, predicate: Predicate) -> str:
        """A predicate's text."""
        if predicate.is_constant:
            return "NEVER" if predicate.negated else "ALWAYS"
        name = f"{'UP' if predicate.file == 'UP' else 'P'}[{predicate.index}]"
        return f"~{name}" if predicate.negated else name

    def value(self, source: Source) -> str:
        """The text that fetches a source in its type, marks applied."""
        operand = source.operand
        if isinstance(operand, Predicate):
            return f"({self.predicate(operand)})"
        if isinstance(operand, Immediate):
            return self._immediate(operand, source)
        if not isinstance(operand, Register | Constant):
            raise TypeError(f"cannot fetch {operand}")
        words: list[str] = []
        for k in range(2 if source.type in _WIDE else 1):
            if isinstance(operand, Register):
                words.append(self._register(operand, source.word + k))
            else:
                words.append(self._constant(operand, source.word + k))
        if source.type in _WIDE:
            if words[0] == words[1] == "ZERO":
                text = self._literal(np.zeros(1, np.uint64))
            else:
                text = self._pair(words[0], words[1])
        else:
            text = words[0]
        if source.bare:
            return text + _VIEWS[source.type]
        return self._marked(text, operand, source.type)

    def _marked(self, text: str, operand: Register | Constant, kind: str) -> str:
        """Apply ~, || and - in the type of the source."""
        if operand.inverted:
            text = f"(~{text})"
        if kind == "f32":
            if operand.absolute:
                text = f"({text} & NOSIGN)"
            if operand.negated:
                text = f"({text} ^ SIGN)"
        elif kind == "f64":
            if operand.absolute:
                text = f"({text} & ~SIGN64)"
            if operand.negated:
                text = f"({text} ^ SIGN64)"
        else:
            if operand.absolute:
                text = (
                    f"abs({text}.view({'i64' if kind in _WIDE else 'i32'})).view({'u64' if kind in _WIDE else 'u32'})"
                )
            if operand.negated:
                text = f"({'u64' if kind in _WIDE else 'u32'}(0) - {text})"
        return text + _VIEWS[kind]

    def _immediate(self, operand: Immediate, source: Source) -> str:
        value = operand.value
        if source.type == "f64":
            if isinstance(value, int):
                # the encoding holds the high word of a double
                return self._literal(np.array([(value & 0xFFFFFFFF) << 32], np.uint64).view(np.float64))
            return self._literal(np.array([value], np.float64))
        if source.type == "f32":
            return self._literal(np.array([float32_bits(value)], np.uint32).view(np.float32))
        if not isinstance(value, int):
            raise ValueError(f"the literal {operand.text} in an integer position")
        if source.type in ("u64", "i64"):
            dtype = np.uint64 if source.type == "u64" else np.int64
            return self._literal(np.array([value & (2**64 - 1)], np.uint64).view(dtype))
        bits = np.array([value & 0xFFFFFFFF], np.uint32)
        return self._literal(bits.view(np.int32) if source.type == "i32" else bits)

    # -- addresses -------------------------------------------------------------------------------------------------
    def address(self, address: Address, wide: bool, space: str) -> str:
        """Text of an address: uint64 in global and generic space, uint32 elsewhere."""
        long = wide and space in ("global", "generic")
        if space in ("shared", "local"):
            long = False
        parts = []
        for base in address.bases:
            parts.append(self._address_base(base, long, len(address.bases) > 1))
        parts = [p for p in parts if p]
        if address.offset or not parts:
            if long:
                parts.append(self._literal(np.array([address.offset & (2**64 - 1)], np.uint64)))
            else:
                parts.append(self._word(address.offset))
        return " + ".join(parts)

    def _address_base(self, base: Register, long: bool, several: bool) -> str:
        scale = 0
        narrow = False
        for suffix in base.suffixes:
            if suffix in ("X4", "X8", "X16"):
                scale = {"X4": 2, "X8": 3, "X16": 4}[suffix]
            elif suffix == "U32":
                narrow = True
            elif suffix != "64":
                raise ValueError(f"address suffix .{suffix}")
        if base.is_zero:
            return ""
        text = self._register(base)
        if long:
            text = f"{text}.astype(u64)" if narrow else self._pair(text, self._register(base, 1))
        if scale:
            text = f"({text} << {'u64' if long else 'u32'}({scale}))"
        return text

    # -- writing back ----------------------------------------------------------------------------------------------
    def targets(self, dest: Dest) -> list[str]:
        operand = dest.operand
        if isinstance(operand, Predicate):
            return [f"{'UP' if operand.file == 'UP' else 'P'}[{operand.index}]"]
        return [self._register(operand, k) for k in range(dest.words)]

    def _assign(self, dest: Dest, value: str, guard: Predicate | None, masked: bool) -> list[str]:
        """Statements that write ``value`` (a name) to a destination under the mask in force."""
        if dest.is_sink:
            return []
        targets = self.targets(dest)
        values = [value] if dest.words == 1 else [f"lo({value})", f"hi({value})"]
        uniform = dest.operand.file in ("UR", "UP")
        lines = []
        for k, (target, text) in enumerate(zip(targets, values, strict=True)):
            self.forget(target)
            if guard is None and not masked:
                lines.append(f"{target} = {text}")
            elif uniform:
                if guard is None:
                    mask = "s.warp_write_mask()"
                elif guard.file == "UP":
                    mask = "gu" if not masked else "(gu & s.warp_write_mask())"
                else:
                    mask = "s.warp_any(g)"
                lines.append(f"{target} = select({mask}, {text}, {target})")
            else:
                lines.append(self._keeping(target, text, element(dest.operand, k), guard is not None, masked))
        if (
            dest.words == 2
            and guard is None
            and not masked
            and self.unconditional
            and all(map(REGISTER.fullmatch, targets))
        ):
            lines.append(f"{self._name(*targets)} = {value}")
        return lines

    def _keeping(self, target: str, text: str, number: int | None, guarded: bool, masked: bool) -> str:
        """A write under a mask: lanes that it leaves out keep what they had, if they may read it yet."""
        select = f"select({'g' if guarded else 'w'}, {text}, {target})"
        if self.live is None or number is None or number in self.live.across:
            kept = True
        else:
            kept = guarded and number in self.live.kept[self.index]
        if masked:
            return f"{target} = {select}" if kept else f"{target} = {select} if {number} in L else {text}"
        return f"{target} = {text} if n == s.lane_count else {select}" if kept else f"{target} = {text}"

    def _assign_results(self, dests: tuple[Dest, ...], guard: Predicate | None, masked: bool) -> list[str]:
        """Unpack ``r`` into the destinations."""
        if len(dests) == 1:
            return self._assign(dests[0], "r", guard, masked)
        lines = []
        for k, dest in enumerate(dests):
            if not dest.is_sink:
                lines.append(f"r{k} = r[{k}]")
                lines += self._assign(dest, f"r{k}", guard, masked)
        return lines

    # -- instructions ----------------------------------------------------------------------------------------------
    def _body(self, index: int, meaning: Semantics, guard: Predicate | None, masked: bool) -> list[str]:
        mask = "m" if guard is None else "g"
        if self.part is not None and index not in self.part.needed and not isinstance(meaning, ControlOp):
            return self._touch(index, meaning, mask) if isinstance(meaning, MemoryOp) else []
        if isinstance(meaning, Alu | WarpOp):
            arguments = [self.value(s) for s in meaning.sources]
            if isinstance(meaning, WarpOp):
                arguments.insert(0, f"s.lanes({mask})")
            self.names[f"fn{index}"] = meaning.compute
            call = f"r = fn{index}({', '.join(arguments)})"
            return [call, *self._assign_results(meaning.dests, guard, masked)]
        if isinstance(meaning, MemoryOp):
            return self._memory(index, meaning, guard, masked, mask)
        return self._control(meaning, guard, masked, mask)

    def _touch(self, index: int, op: MemoryOp, mask: str) -> list[str]:
        """An access whose data does not matter."""
        self.names[f"op{index}"] = op
        place = self.address(op.address, op.wide, op.space)
        if op.operation != "async_copy":
            return [f"M.touch({index}, op{index}, {place}, {mask})"]
        assert op.source_address is not None
        origin = self.address(op.source_address, True, "global")
        values = [self.value(s) for s in op.sources]
        return [f"M.touch_copy({index}, op{index}, {', '.join([place, origin, mask, *values])})"]

    def _memory(self, index: int, op: MemoryOp, guard: Predicate | None, masked: bool, mask: str) -> list[str]:
        self.names[f"op{index}"] = op
        place = self.address(op.address, op.wide, op.space)
        values = [self.value(s) for s in op.sources]
        method = {"reduce": "atomic"}.get(op.operation, op.operation)
        if op.operation == "async_copy":
            assert op.source_address is not None
            origin = self.address(op.source_address, True, "global")
            return [f"M.copy({index}, op{index}, {', '.join([place, origin, mask, *values])})"]
        call = f"M.{method}({index}, op{index}, {', '.join([place, mask, *values])})"
        words = 0 if op.dest is None or op.dest.is_sink else op.dest.words
        success = op.success if op.success is not None and not op.success.is_sink else None
        if not words and success is None:
            return [call]
        lines = [f"r = {call}"]
        for k in range(words):
            assert op.dest is not None and isinstance(op.dest.operand, Register)
            word = Dest(Register(op.dest.operand.file, op.dest.operand.index + k))
            lines += [f"r{k} = r[{k}]", *self._assign(word, f"r{k}", guard, masked)]
        if success is not None:
            lines += ["rp = r[-1]", *self._assign(success, "rp", guard, masked)]
        return lines

    def _control(self, op: ControlOp, guard: Predicate | None, masked: bool, mask: str) -> list[str]:
        """Control operations that do not end a block."""
        if op.kind == "nothing":
            return []
        if op.kind == "sync_push":
            return [f"F.push({op.barrier}, {mask})"]
        if op.kind == "barrier_to_register":
            return [f"r = F.barrier_word({op.barrier})", *self._assign(op.dests[0], "r", guard, masked)]
        if op.kind == "barrier_to_barrier":
            return [f"F.copy_barrier({op.barrier}, {op.detail['origin']}, {mask})"]
        if op.kind == "register_to_barrier":
            return [f"F.set_barrier({op.barrier}, {self.value(op.sources[0])}, {mask})"]
        raise ValueError(f"control operation {op.kind} inside a block")

    def _refusal(self, index: int, guard: Predicate | None, error: UnsupportedError) -> list[str]:
        """Raise the error when a lane is to execute the instruction; a branch counts even if its guard fails in all."""
        self.names[f"error{index}"] = error
        if guard is None or self.program.instructions[index].opcode in BRANCH_OPCODES:
            return [f"raise error{index}"]
        text = self.predicate(guard)
        return [f"if s.guarded({index}, ({text}) if m is None else ({text}) & m):", f" raise error{index}"]

    def instruction(self, index: int, masked: bool) -> list[str]:
        """Statements of one instruction; an unsupported one raises its error when reached."""
        self.index = index
        instruction = self.program.instructions[index]
        meaning = self.program.meanings[index]
        guard = instruction.guard
        if isinstance(meaning, UnsupportedError):
            return self._refusal(index, guard, meaning)
        try:
            with self._conditional() if guard is not None and not isinstance(meaning, MemoryOp) else nullcontext():
                body = self._body(index, meaning, guard, masked)
        except ValueError as error:
            self.wide.clear()  # names may have been given in what was not written
            return self._refusal(index, guard, instruction.unsupported(str(error)))
        if guard is None:
            return body
        lines = []
        text = self.predicate(guard)
        if guard.file == "UP":
            lines.append(f"gu = {text}")
            text = "gu"
        lines.append(f"g = ({text}) if m is None else ({text}) & m")
        lines.append(f"n = s.guarded({index}, g)")
        if isinstance(meaning, MemoryOp):
            # reported even when no lane is on: the instruction was still issued
            return lines + body
        if body:
            lines.append("if n:")
            lines += [f" {line}" for line in body]
        return lines

    def block(self, block: BasicBlock) -> list[str]:
        """The functions of a block, without its control operation."""
        last = block.last - 1 if block.control is not None else block.last
        indices = range(block.first, last + 1)
        lines = []
        for name, masked in (("fast", False), ("masked", True)):
            lines.append(f"def {name}{block.number}(s, m, w):")
            self.wide.clear()
            body = [line for index in indices for line in self.instruction(index, masked)]
            lines += self._function(body, masked)
        kinds = [kind_of(self.program, index) for index in indices] if self.batching else []
        if max(Counter(kind for kind in kinds if kind is not None).values(), default=0) >= LEAST:
            self.wide.clear()
            body = self._function(Together(self, dict(zip(indices, kinds, strict=True))).statements(), False)
            products = any(" = outer(s, " in line for line in body)
            lines += [f"def {'products' if products else 'few'}{block.number}(s, m, w):", *body]
        return lines

    def _function(self, body: list[str], masked: bool) -> list[str]:
        lines = [" R = s.R; UR = s.UR; P = s.P; UP = s.UP"]
        if masked and self.live is not None:
            lines.append(" L = s.elsewhere()")
        return lines + [f" {line}" for line in settled(body)]

    def text(self) -> str:
        """The text of all blocks."""
        lines: list[str] = []
        for block in self.program.blocks:
            lines += self.block(block)
        self.wide.clear()
        self.unconditional = False  # what is asked for from now on stands alone
        return "\n".join(lines) + "\n"
