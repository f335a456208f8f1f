"""C's ``printf`` as a kernel calls it: what a format string reads, and the text it makes.

A kernel packs the arguments after the format into a buffer, each at a multiple of its size (the ABI of ``vprintf`` in
the CUDA C++ programming guide): 4 bytes for integers up to ``int``, 8 for longer ones, ``double`` and pointers.  The
text is what the C library makes of them, since on a GPU the driver formats on the host.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

_CONVERSION = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|-?\d*))?(?P<length>hh|h|ll|l|j|z|t|L)?"
    rb"(?P<kind>[diouxXcsCSpfFeEgGaAn%])"
)
_UNKNOWN = re.compile(rb"%[A-Za-z]")  # an H200 prints "%" for "%q" and passes over no argument
_LONG = ("l", "ll", "j", "z", "t")
_DIGITS = 13  # hexadecimal digits of a double's fraction


@dataclass(frozen=True, slots=True)
class Conversion:
    """One conversion of a format; ``width`` and ``precision`` are -1 where an argument gives them (``*``)."""

    text: str  # as it is written
    flags: str
    width: int | None
    precision: int | None
    length: str
    kind: str

    @property
    def size(self) -> int:
        """Bytes of the argument, 0 for ``%%``."""
        if self.kind == "%":
            return 0
        if self.kind in "fFeEgGaAspSn" or (self.length in _LONG and self.kind not in "cC"):
            return 8
        return 4

    @property
    def stars(self) -> int:
        """Arguments read before the converted one."""
        return (self.width == -1) + (self.precision == -1)


Piece = str | Conversion


@lru_cache(maxsize=256)
def parse(form: bytes) -> tuple[Piece, ...]:
    """A format as plain text and conversions; what is no conversion is text."""
    pieces: list[Piece] = []
    at = 0
    for match in _CONVERSION.finditer(form):
        if match.start() > at:
            pieces.append(_text(form[at : match.start()]))
        at = match.end()
        part = {name: None if value is None else value.decode() for name, value in match.groupdict().items()}
        pieces.append(
            Conversion(
                text=match[0].decode(),
                flags=part["flags"] or "",
                width=_number(part["width"]),
                precision=None if part["precision"] is None else _number(part["precision"] or "0"),
                length=part["length"] or "",
                kind=part["kind"] or "",
            )
        )
    if at < len(form):
        pieces.append(_text(form[at:]))
    return tuple(pieces)


def _text(raw: bytes) -> str:
    return _UNKNOWN.sub(b"%", raw).decode("utf-8", "replace")


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    return -1 if text == "*" else int(text)


def refused(pieces: tuple[Piece, ...]) -> str | None:
    """The first conversion that the CUDA C++ programming guide does not list, None if it lists all.

    Lengths hh, j, z, t and L, and a precision given by an argument: for formats with these an H200 was seen to print
    other words for their arguments or those that follow, and to return fewer than it was given.
    """
    for piece in pieces:
        if isinstance(piece, Conversion) and (piece.length in ("hh", "j", "z", "t", "L") or piece.precision == -1):
            return piece.text
    return None


def argument_bytes(pieces: tuple[Piece, ...]) -> int:
    """Bytes of the packed arguments that a format reads."""
    at = 0
    for piece in pieces:
        if isinstance(piece, Conversion):
            for size in (*[4] * piece.stars, piece.size):
                at = _aligned(at, size) + size
    return at


def argument_count(pieces: tuple[Piece, ...]) -> int:
    """Arguments that a format reads, those for ``*`` included."""
    return sum(piece.stars + (piece.size > 0) for piece in pieces if isinstance(piece, Conversion))


def _aligned(at: int, size: int) -> int:
    return -(-at // size) * size if size else at


def render(pieces: tuple[Piece, ...], packed: bytes, string_at: Callable[[int], bytes]) -> str:
    """The text of a call; ``string_at(pointer)`` reads the bytes of a ``%s`` up to the terminating zero."""
    found: list[str] = []
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        start = _aligned(at, size)
        at = start + size
        return packed[start:at]

    for piece in pieces:
        if isinstance(piece, str):
            found.append(piece)
            continue
        width, precision, flags = piece.width, piece.precision, piece.flags
        if width == -1:
            width = struct.unpack("<i", take(4))[0]
            if width < 0:
                flags, width = flags + "-", -width
        if precision == -1:
            precision = struct.unpack("<i", take(4))[0]
        if precision is not None and precision < 0:
            precision = None
        found.append(_convert(piece, take(piece.size), flags, width or 0, precision, string_at))
    return "".join(found)


def _convert(
    piece: Conversion,
    raw: bytes,
    flags: str,
    width: int,
    precision: int | None,
    string_at: Callable[[int], bytes],
) -> str:
    kind = piece.kind
    if kind == "%":
        return "%"
    if kind in "diouxX":
        return _integer(piece, raw, flags, width, precision)
    if kind in "fFeEgGaA":
        return _real(kind, struct.unpack("<d", raw)[0], flags, width, precision)
    if kind in "cC":
        return _padded("", bytes(raw[:1]).decode("latin-1"), flags.replace("0", ""), width)
    pointer = int.from_bytes(raw, "little")
    if kind in "sS":
        text = string_at(pointer).decode("utf-8", "replace") if pointer else "(null)"
        return _padded("", text if precision is None else text[:precision], flags.replace("0", ""), width)
    if kind == "p":
        return _padded("", f"{pointer:#x}" if pointer else "(nil)", flags.replace("0", ""), width)
    return ""  # %n stores nothing


_NARROW = {"hh": 1, "h": 2}


def _integer(piece: Conversion, raw: bytes, flags: str, width: int, precision: int | None) -> str:
    raw = raw[: _NARROW.get(piece.length, len(raw))]
    signed = piece.kind in "di"
    value = int.from_bytes(raw, "little", signed=signed)
    digits = {"o": f"{abs(value):o}", "x": f"{value:x}", "X": f"{value:X}"}.get(piece.kind, str(abs(value)))
    if precision is not None:
        digits = "" if precision == 0 and value == 0 else digits.zfill(precision)
        flags = flags.replace("0", "")
    sign = _sign(value < 0, flags) if signed else ""
    if "#" in flags:
        if piece.kind in "xX" and value:
            sign = f"0{piece.kind}"
        elif piece.kind == "o" and not digits.startswith("0"):
            digits = f"0{digits}"
    return _padded(sign, digits, flags, width)


def _sign(negative: bool, flags: str) -> str:
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""


def _real(kind: str, value: float, flags: str, width: int, precision: int | None) -> str:
    negative = struct.pack("<d", value)[7] >= 0x80
    sign, size = _sign(negative, flags), abs(value)
    if size != size or size == float("inf"):
        name = "nan" if size != size else "inf"
        return _padded(sign, name.upper() if kind.isupper() else name, flags.replace("0", ""), width)
    if kind in "aA":
        mark, case = ("0x", str) if kind == "a" else ("0X", str.upper)
        return _padded(sign + mark, case(_hexadecimal(size, precision, "#" in flags)), flags, width)
    mark = "#" if "#" in flags else ""
    digits = 6 if precision is None else precision
    return _padded(sign, f"%{mark}.{digits}{kind}" % size, flags, width)


def _hexadecimal(value: float, precision: int | None, point: bool) -> str:
    """%a of a number that is not negative, without its 0x ("1.8p+1"), rounded to nearest even at the last digit."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    exponent, fraction = bits >> 52, bits & (1 << 52) - 1
    whole = 1 if exponent else 0
    power = (exponent or 1) - 1023 if value else 0
    if precision is not None and precision < _DIGITS:
        drop = 4 * (_DIGITS - precision)
        number = (whole << 52 | fraction) >> drop
        rest = fraction & (1 << drop) - 1
        number += rest > 1 << drop - 1 or (rest == 1 << drop - 1 and bool(number & 1))
        whole, fraction = number >> 4 * precision, (number & (1 << 4 * precision) - 1) << drop
    digits = f"{fraction:013x}"
    digits = digits.rstrip("0") if precision is None else digits[:precision].ljust(precision, "0")
    dot = "." if digits or point else ""
    return f"{whole}{dot}{digits}p{power:+d}"


def _padded(sign: str, body: str, flags: str, width: int) -> str:
    """Sign and digits, filled up to a width: with blanks on one side, or zeros between them."""
    missing = width - len(sign) - len(body)
    if missing <= 0:
        return sign + body
    if "-" in flags:
        return sign + body + " " * missing
    if "0" in flags:
        return sign + "0" * missing + body
    return " " * missing + sign + body
