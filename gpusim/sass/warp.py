"""Exchange between the lanes of a warp: shuffles, votes, matches, reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.sass.form import Form, Semantics
from gpusim.sass.numeric import Array, i32, i64, u32
from gpusim.sass.operands import Predicate
from gpusim.sass.registry import opcode


@opcode("SHFL")
def shuffle(form: Form) -> Semantics:
    """d = a of another lane (.IDX, .UP, .DOWN, .BFLY); p says whether that lane was in the segment.

    The last operand holds the clamp in bits 0-4 and the segment mask in bits 8-12 (PTX shfl.sync).
    """
    mode = form.choice("IDX", "UP", "DOWN", "BFLY")
    form.dest_predicate()
    form.dest()
    form.source("u32")
    form.source("u32")
    form.source("u32")

    def compute(lanes: Any, a: Array, b: Array, c: Array) -> Any:
        lane = lanes.lane_ids()
        step = (b & u32(31)).astype(i32)
        bounds = c.astype(i32)
        clamp, segment = bounds & 31, bounds >> 8 & 31
        most = (lane & segment) | (clamp & ~segment)
        if mode == "IDX":
            source = (lane & segment) | (step & ~segment)
            inside = source <= most
        elif mode == "UP":
            source = lane - step
            inside = source >= most
        elif mode == "DOWN":
            source = lane + step
            inside = source <= most
        else:
            source = lane ^ step
            inside = source <= most
        return inside, lanes.gather(a, np.where(inside, source, lane))

    return form.warp(compute)


@opcode("VOTE", "VOTEU")
def vote(form: Form) -> Semantics:
    """.ANY/.ALL/.EQ of a predicate over the active lanes, and the ballot of it."""
    mode = form.choice("ANY", "ALL", "EQ")
    order: list[str] = []
    while form.remaining() > 1:
        if isinstance(form.peek(), Predicate):
            form.dest_predicate()
            order.append("p")
        else:
            form.dest()
            order.append("r")
    form.source_predicate()

    def compute(lanes: Any, p: Array) -> Any:
        ballot, anyone, everyone, nobody = lanes.ballot(p)
        answer = {"ANY": anyone, "ALL": everyone, "EQ": everyone | nobody}[mode]
        outs = tuple(answer if kind == "p" else ballot for kind in order)
        return outs if len(outs) != 1 else outs[0]

    return form.warp(compute)


@opcode("MATCH")
def match(form: Form) -> Semantics:
    """d = mask of the active lanes that hold the same value (.ALL: of all lanes when every value is equal)."""
    mode = form.choice("ANY", "ALL")
    wide = form.flag("U64")
    form.without_effect("U32")  # the type that it is without .U64
    with_predicate = form.dest_predicates(1)
    form.dest()
    form.source("u64" if wide else "u32")

    def compute(lanes: Any, a: Array) -> Any:
        same, everyone = lanes.match(a)
        if mode == "ALL":
            same = np.where(everyone, same, u32(0))
        return (everyone, same) if with_predicate else same

    return form.warp(compute)


_REDUCTIONS = ("SUM", "MIN", "MAX", "AND", "OR", "XOR")


@opcode("REDUX", "CREDUX")
def reduce_lanes(form: Form) -> Semantics:
    """Uniform d = reduction of a over the active lanes."""
    name = form.choice(*_REDUCTIONS, default="AND")
    signed = form.flag("S32")
    form.dest()
    form.source("u32")

    def compute(lanes: Any, a: Array) -> Array:
        values = (a.view(i32) if signed else a).astype(i64)
        return lanes.reduce(values, name).astype(u32)

    return form.warp(compute)


@opcode("ELECT")
def elect(form: Form) -> Semantics:
    """p = this is the lowest active lane; the register is the number of that lane."""
    form.dest_predicate()
    form.dest()
    everyone = form.source_predicate()
    if not everyone.is_constant or everyone.negated:
        raise form.refuse("an election among some lanes")

    def compute(lanes: Any, _: Array) -> Any:
        lane = lanes.lane_ids().astype(u32)
        leader = lanes.first_active(lane)
        return lane == leader, leader

    return form.warp(compute)
