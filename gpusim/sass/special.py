"""Special functions and the division check."""

from __future__ import annotations

import numpy as np

from gpusim.sass.form import Form, Semantics
from gpusim.sass.numeric import Array, canonical, f32, f64, u32
from gpusim.sass.registry import opcode


@opcode("MUFU")
def special_function(form: Form) -> Semantics:
    """d = a hardware approximation of a special function.

    Computed to the nearest float32 here; the hardware's table may differ in the last bit.
    """
    name = form.choice("RCP", "RSQ", "SQRT", "EX2", "LG2", "SIN", "COS")
    form.dest()
    form.source("f32")
    functions = {
        "RCP": lambda x: 1.0 / x,
        "RSQ": lambda x: 1.0 / np.sqrt(x),
        "SQRT": np.sqrt,
        "EX2": np.exp2,
        "LG2": np.log2,
        "SIN": np.sin,
        "COS": np.cos,
    }
    function = functions[name]

    def compute(a: Array) -> Array:
        return canonical(function(a.astype(f64)).astype(f32))

    return form.alu(compute)


@opcode("FCHK")
def division_check(form: Form) -> Semantics:
    """p = dividing a by b needs the slow path: an exponent, or the difference of both, near the ends of the range.

    Measured on an H200: a division timed for all 65,536 pairs of exponents, with four pairs of mantissas, which make no
    difference.
    """
    form.choice("DIVIDE", default="DIVIDE")
    form.dest_predicate()
    form.source("u32")
    form.source("u32")

    def compute(a: Array, b: Array) -> Array:
        exponent_a = (a >> u32(23) & u32(255)).astype(np.int32)
        exponent_b = (b >> u32(23) & u32(255)).astype(np.int32)
        difference = exponent_a - exponent_b
        return (
            (exponent_b <= 1)
            | (exponent_b >= 252)
            | (exponent_a <= 24)
            | (exponent_a == 255)
            | (difference >= 127)
            | (difference <= -125)
        )

    return form.alu(compute)
