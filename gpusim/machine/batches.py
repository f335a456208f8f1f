"""Computing several like instructions in one NumPy call, where a launch has few threads.

With some hundred threads a NumPy call costs more in overhead than in arithmetic.  A matrix product's inner loop has
dozens of FFMA that do not feed each other, between loads and address arithmetic.  Within a basic block such
instructions are put off until something needs their results, and then computed level by level: first those that no
other waiting one feeds, then those that these feed.  A level of a matrix product is an outer product, of some values
with some others, which NumPy computes without bringing the factors side by side.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count, product
from operator import is_
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from gpusim.native import Loops
from gpusim.sass.form import Alu
from gpusim.sass.numeric import f32, f64, fused_bits, fused_sum, scratch, u32
from gpusim.sass.program import Program

if TYPE_CHECKING:
    from gpusim.machine.chunk import Chunk

Array = np.ndarray[Any, Any]
Kind = tuple[Any, ...]
OPCODES = ("FFMA", "FMUL", "FADD")
REGISTER = re.compile(r"\bU?R\[\d+\]")
LEAST, MOST = 4, 64  # instructions computed together
WORDS = 1 << 16  # computed at once, as measured: more leaves the cache, less takes more calls
PRODUCTS = 1 << 16  # the same for outer products, which use three arrays again and again
# threads of a chunk up to which it pays: beyond, the arithmetic itself takes the time
FEW, FEW_WITH_PRODUCTS = 4096, 16384
REMEMBERED = 16  # results whose rows are known to lie side by side


def kind_of(program: Program, index: int) -> Kind | None:
    """What instructions must have in common to be computed by the same function; None for one that is not batched."""
    instruction, meaning = program.instructions[index], program.meanings[index]
    if instruction.opcode not in OPCODES or instruction.guard is not None or not isinstance(meaning, Alu):
        return None
    if len(meaning.dests) != 1 or meaning.dests[0].is_sink or any(s.type != "f32" for s in meaning.sources):
        return None
    return (instruction.opcode, instruction.modifiers, len(meaning.sources))


@dataclass(eq=False)
class Waiting:
    """An instruction that was put off.

    ``sources``: their texts, in which what another waiting instruction computes has that one's ``name``; ``target``:
    the register that it writes, if that is not written anew before (``current``); ``read``: whether others that wait
    read the result.
    """

    index: int
    kind: Kind
    level: int
    sources: list[str]
    target: str
    name: str
    current: bool = True
    read: bool = False

    def stored(self, value: str) -> str:
        """The statement that stores the result, "" if nothing needs it."""
        names = [self.target] * self.current + [self.name] * self.read
        return " = ".join([*names, value]) if names else ""


class Postponed:
    """The instructions of a basic block that wait to be computed.

    Their results have names of their own, so that it does not matter where registers are written anew meanwhile; what
    they read in registers is kept under a name when these are written.
    """

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.writers: dict[str, Waiting] = {}  # by register that will get its value from a waiting instruction
        self.kept: dict[str, str] = {}  # registers by the names that their values were kept under
        self.numbers = count()

    def add(self, index: int, kind: Kind, sources: list[str], target: str) -> list[str]:
        """Put an instruction off; returns statements to be executed now."""
        level = 0
        for position, text in enumerate(sources):
            for register in REGISTER.findall(text):
                writer = self.writers.get(register)
                if writer is not None:
                    writer.read = True
                    level = max(level, writer.level + 1)
                    sources[position] = _renamed(sources[position], register, writer.name)
        own = Waiting(index, kind, level, sources, target, f"t{next(self.numbers)}")
        self.waiting.append(own)
        lines = self.written([target], own)
        self.writers[target] = own
        return lines

    def written(self, targets: Iterable[str], own: Waiting | None = None) -> list[str]:
        """Registers are about to be written: statements that keep what waiting instructions read there.

        ``own``: the waiting instruction that will write, which alone may read its own register.
        """
        lines = []
        for target in targets:
            writer = self.writers.pop(target, None)
            if writer is not None:
                writer.current = False
            users = [
                (each, position)
                for each in self.waiting
                for position, text in enumerate(each.sources)
                if target in REGISTER.findall(text)
            ]
            if all(each is own for each, _ in users):
                continue
            name = f"h{next(self.numbers)}"
            self.kept[name] = target
            for each, position in users:
                each.sources[position] = _renamed(each.sources[position], target, name)
            lines.append(f"{name} = {target}")
        return lines

    def needed(self, names: Iterable[str]) -> bool:
        """Whether any of these registers is to get its value from a waiting instruction."""
        return not self.writers.keys().isdisjoint(names)

    def flush(self) -> list[list[Waiting]]:
        """All that waits, in groups of one level and kind, in order."""
        groups: dict[tuple[int, Kind], list[Waiting]] = {}
        for each in self.waiting:
            groups.setdefault((each.level, each.kind), []).append(each)
        self.waiting, self.writers = [], {}
        return [groups[key] for key in sorted(groups, key=lambda key: key[0])]


def _renamed(text: str, register: str, name: str) -> str:
    return re.sub(rf"\b{re.escape(register)}", name, text)


def outer_products(group: Sequence[Waiting], places: dict[str, int]) -> tuple[list[list[list[Waiting]]], list[Waiting]]:
    """Split fused multiply-adds in outer products and the rest.

    An outer product is a list of rows: in a row the first sources differ and the second is the same, in a column the
    other way around; factors are exchanged for that.  Their order is that of the addends, which a loop comes back to:
    that of ``places`` for those that were results of an outer product before; results are added there.
    """
    graph = nx.Graph()
    multiple = False
    for each in group:
        a, b = each.sources[:2]
        multiple = multiple or graph.has_edge(a, b)
        graph.add_edge(a, b, of=each)
    if multiple or any(a == b for a, b in graph.edges):
        return [], list(group)
    products, rest = [], []
    for nodes in nx.connected_components(graph):
        part = graph.subgraph(nodes)
        members = [each for _, _, each in part.edges(data="of")]
        found = None
        if nx.is_bipartite(part) and len(members) >= LEAST:
            columns, rows = nx.bipartite.sets(part)
            found = _arranged(part, columns, rows, places)
        if found is None:
            rest += members
        else:
            products.append(found)
    order = {id(each): position for position, each in enumerate(group)}
    return products, sorted(rest, key=lambda each: order[id(each)])


def _arranged(part: Any, columns: set[str], rows: set[str], places: dict[str, int]) -> list[list[Waiting]] | None:
    """The rows of an outer product; None if one of all pairs is missing or there is but one row or column."""
    if len(part.edges) != len(columns) * len(rows) or min(len(columns), len(rows)) < 2:
        return None

    def place(each: Waiting) -> tuple[int, str]:
        addend = each.sources[2].removesuffix(".view(f32)")
        return places.get(addend, -1), addend

    def first(node: str) -> tuple[int, str]:
        return min(place(of) for _, _, of in part.edges(node, data="of"))

    sides = sorted([sorted(columns, key=first), sorted(rows, key=first)], key=len)
    if len(sides[0]) == len(sides[1]):
        tables = [[place(part.edges[a, b]["of"]) for b in two for a in one] for one, two in (sides, sides[::-1])]
        if tables[1] < tables[0]:
            sides.reverse()
    found = []
    for b in sides[1]:
        row = []
        for a in sides[0]:
            each = part.edges[a, b]["of"]
            each.sources[:2] = [a, b]
            row.append(each)
        found.append(row)
    for number, each in enumerate(each for row in found for each in row):
        places[each.name] = places[each.target] = number
    return found


def outer(chunk: Chunk, first: Sequence[Array], second: Sequence[Array], addends: Sequence[Array]) -> Sequence[Array]:
    """Bits of ``first[i] * second[j] + addends[...]``, fused, for all i and then all j.

    The operands are float32 numbers or their bits; the factors may be exchanged, since every NaN becomes the one.
    """
    a, b = _side_by_side(first), _side_by_side(second)
    c = _known_rows(chunk, addends)
    if c is None:
        c = _side_by_side(addends)
    if a is None or b is None or c is None:
        pairs = zip(product(second, first), addends, strict=True)
        return [fused_bits(x.view(f32), y.view(f32), z.view(f32)) for (y, x), z in pairs]
    c = c.reshape(len(second), len(first), *c.shape[1:])
    if Loops.fused is not None:
        bits = fused_bits(a[None], b[:, None], c)
    else:
        bits = _product(a.astype(f64)[None], b.astype(f64)[:, None], c)
    rows: list[Array] = list(bits.reshape(-1, *bits.shape[2:]))
    known = chunk.rows
    if len(known) >= REMEMBERED:
        known.clear()
    known[id(rows[0])] = (rows, bits)
    return rows


def _side_by_side(values: Sequence[Array]) -> Array | None:
    """Values of one shape (b, t) as float32 (number, b, t); None if their shapes differ."""
    shape = values[0].shape
    if any(value.shape != shape for value in values):
        return None
    joined: Array = np.concatenate(values)
    return joined.view(f32).reshape(len(values), *shape)


def _known_rows(chunk: Chunk, values: Sequence[Array]) -> Array | None:
    """The array that values are the rows of, in order, if they are those of an earlier result."""
    known = chunk.rows.get(id(values[0]))
    if known is None or len(known[0]) != len(values) or not all(map(is_, known[0], values)):
        return None
    return known[1].view(f32).reshape(-1, *values[0].shape)


def _product(a: Array, b: Array, c: Array) -> Array:
    """Bits of the outer product of a (1, i, ...) and b (j, 1, ...), both float64, plus c, in pieces along j."""
    shape = (len(b), a.shape[1], *(max(sizes) for sizes in zip(a.shape[2:], b.shape[2:], c.shape[2:], strict=True)))
    row = math.prod(shape[1:])
    step = max(1, min(shape[0], PRODUCTS // row))
    bits = np.empty(shape, u32)
    for low in range(0, shape[0], step):
        high = min(low + step, shape[0])
        product, total, word = scratch.take((high - low, *shape[1:]))
        np.multiply(b[low:high], a, out=product)
        fused_sum(product, c[low:high], (total, word, bits[low:high]))
    return bits


def compute(function: Callable[..., Array], shape: tuple[int, int], *operands: Sequence[Array]) -> Any:
    """``function`` of each instruction's operands; ``operands`` holds all first ones, all second ones and so on.

    They are float32 numbers or their bits.
    """
    count = len(operands[0])
    step = max(1, WORDS // (shape[0] * shape[1]))
    found: list[Array] = []
    for first in range(0, count, step):
        values = operands if step >= count else [each[first : first + step] for each in operands]
        found.extend(_together(function, shape, values))
    return found


def _together(function: Callable[..., Array], shape: tuple[int, int], operands: Sequence[Sequence[Array]]) -> Any:
    count = len(operands[0])
    try:
        joined = [np.concatenate(values) for values in operands]
    except ValueError:  # of different widths
        joined = []
    if not joined or any(j.shape != (count * shape[0], shape[1]) for j in joined):
        return [function(*(value.view(np.float32) for value in each)) for each in zip(*operands, strict=True)]
    return function(*(j.view(np.float32) for j in joined)).reshape(count, *shape)
