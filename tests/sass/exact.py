"""Exact references: rounding of rational numbers to a floating-point format, written without NumPy's arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
NAN, INF = math.nan, math.inf


def round_exact(value: Fraction, kind: str, mode: str = "RN") -> float:
    """The number of the format (as a float) to which the mode rounds ``value``, which is not 0."""
    precision, least, most = FORMATS[kind]
    sign, size = (-1.0, -value) if value < 0 else (1.0, value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    last = Fraction(2) ** (max(exponent, least) - precision + 1)
    whole, rest = divmod(size, last)
    up = {"RM": sign < 0, "RP": sign > 0, "RZ": False}.get(mode)
    if up is None:
        up = rest * 2 > last or (rest * 2 == last and whole % 2 == 1)
    result = (whole + (1 if up and rest else 0)) * last
    biggest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** most
    if result > biggest:
        result_up = {"RM": sign < 0, "RP": sign > 0, "RZ": False}.get(mode, True)
        return sign * INF if result_up else sign * float(biggest)
    return math.copysign(float(result), sign)


def fused(a: float, b: float, c: float, kind: str, mode: str = "RN") -> float:
    """a*b + c rounded once."""
    if any(map(math.isnan, (a, b, c))):
        return NAN
    if math.isinf(a) or math.isinf(b):
        product = NAN if 0 in (a, b) else math.copysign(1, a) * math.copysign(1, b) * INF
        return product + c
    if math.isinf(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact:
        return round_exact(exact, kind, mode)
    product_sign = math.copysign(1, a) * math.copysign(1, b)
    if a != 0 and b != 0 and c == 0:
        raise AssertionError("a product of numbers that are not 0 cannot be 0")
    if product_sign == math.copysign(1, c):
        return math.copysign(0.0, c)
    return -0.0 if mode == "RM" else 0.0


def product(a: float, b: float, kind: str, mode: str = "RN") -> float:
    """a*b rounded once."""
    if any(map(math.isnan, (a, b))) or any(map(math.isinf, (a, b))) or 0 in (a, b):
        return a * b
    return round_exact(Fraction(a) * Fraction(b), kind, mode)


def converted(value: float | int, kind: str, mode: str = "RN") -> float:
    """A number rounded to a format."""
    if (isinstance(value, float) and (math.isnan(value) or math.isinf(value))) or value == 0:
        return float(value)
    return round_exact(Fraction(value), kind, mode)


def to_integer(value: float, how: str, bits: int, signed: bool, nan: int) -> int:
    """A float rounded and clamped to an integer type."""
    if math.isnan(value):
        return nan
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if math.isinf(value):
        return high if value > 0 else low
    rounding = {"RN": round, "TRUNC": math.trunc, "FLOOR": math.floor, "CEIL": math.ceil}[how]
    return min(max(rounding(Fraction(value)), low), high)
