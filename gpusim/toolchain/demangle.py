"""Readable names of C++ kernels and variables.

A demangler for what CUDA compilers put into cubins: functions, variables, namespaces, templates with type, integer,
enumeration, pointer and pack arguments, pointers to functions and members, lambdas and unnamed types.  Grammar: Itanium
C++ ABI, section 5.1.  Types are written as people write them in kernels ("const float*"), numbers without suffix and
template kernels without their return type, so that the result reads like a name expression.  What is outside of that
(expressions in signatures, for example) is returned as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
_BUILTIN_D = {"n": "decltype(nullptr)", "h": "half", "i": "char32_t", "s": "char16_t", "u": "char8_t", "a": "auto"}
_STANDARD = {
    "t": "std", "a": "std::allocator", "b": "std::basic_string", "s": "std::string", "i": "std::istream",
    "o": "std::ostream", "d": "std::iostream",
}  # fmt: skip
_OPERATORS = {
    "nw": "new", "na": "new[]", "dl": "delete", "da": "delete[]", "ps": "+", "ng": "-", "ad": "&", "de": "*",
    "co": "~", "pl": "+", "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=",
    "pL": "+=", "mI": "-=", "mL": "*=", "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=", "ls": "<<",
    "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
    "nt": "!", "aa": "&&", "oo": "||", "pp": "++", "mm": "--", "cm": ",", "pm": "->*", "pt": "->", "cl": "()",
    "ix": "[]", "qu": "?",
}  # fmt: skip
_QUALIFIERS = {"r": "restrict", "V": "volatile", "K": "const"}


class _NotReadable(Exception):
    """The name uses something that this demangler does not know."""


@dataclass(frozen=True)
class _Type:
    """A type as the text before and after a declared name: "int (*" and ")(float)"."""

    left: str
    right: str = ""

    def __str__(self) -> str:
        return self.left + self.right


@dataclass(frozen=True)
class _Pack:
    """A template argument pack."""

    items: tuple[_Type | _Pack, ...]

    def __str__(self) -> str:
        return ", ".join(text for text in map(str, self.items) if text)


_Argument = _Type | _Pack


def demangle(name: str) -> str:
    """The readable name without parameters: "transpose<32>" for "_Z9transposeILi32EEvPKfPfi"."""
    return _demangle(name)[0]


def signature(name: str) -> str:
    """The readable name with parameter types: "transpose<32>(const float*, float*, int)"."""
    return "".join(_demangle(name))


def _demangle(name: str) -> tuple[str, str]:
    if not name.startswith("_Z"):
        return name, ""
    parser = _Parser(name)
    try:
        return parser.encoding()
    except (_NotReadable, IndexError, ValueError, RecursionError):
        return name, ""


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.position = text, 2
        self.substitutions: list[_Argument] = []
        self.arguments: list[_Argument] = []  # template arguments of the function: what T_, T0_ ... stand for
        self.pack_index: int | None = None
        self.pack_length: int | None = None

    # characters

    def peek(self, count: int = 1) -> str:
        return self.text[self.position : self.position + count]

    def accept(self, expected: str) -> bool:
        if self.text.startswith(expected, self.position):
            self.position += len(expected)
            return True
        return False

    def expect(self, expected: str) -> None:
        if not self.accept(expected):
            raise _NotReadable

    def next(self) -> str:
        self.position += 1
        return self.text[self.position - 1]

    def number(self) -> int:
        start = self.position
        while self.peek().isdecimal():
            self.position += 1
        return int(self.text[start : self.position])

    def sequence(self) -> int:
        """An index as substitutions count: "_" is 0, "0_" is 1, in base 36."""
        start = self.position
        while self.next() != "_":
            pass
        digits = self.text[start : self.position - 1]
        return int(digits, 36) + 1 if digits else 0

    # names

    def encoding(self) -> tuple[str, str]:
        if self.peek() in ("T", "G"):  # virtual tables and guards
            raise _NotReadable
        name, arguments, is_template = self.name()
        if arguments is not None:
            self.arguments = arguments
        if self.position == len(self.text) or self.peek() in ("E", "."):
            return name, ""
        if is_template:
            self.type()  # the return type
        return name, f"({self.parameters()})"

    def name(self) -> tuple[str, list[_Argument] | None, bool]:
        """(name, its last template arguments, whether it ends in template arguments)."""
        if self.accept("N"):
            return self.nested()
        if self.accept("Z"):
            function = "".join(self.encoding())
            self.expect("E")
            if self.accept("s"):
                return function, None, False
            if self.accept("d"):
                self.sequence()
            name, arguments, is_template = self.name()
            if self.accept("_"):
                self.number()
            return f"{function}::{name}", arguments, is_template
        if self.peek() == "S" and self.peek(2) != "St":
            name = str(self.substitution())
        else:
            name = ("std::" if self.accept("St") else "") + self.unqualified()
            if self.peek() == "I":
                self.substitutions.append(_Type(name))
        if self.peek() == "I":
            arguments = self.template_arguments()
            return name + _angle(arguments), arguments, True
        return name, None, False

    def nested(self, is_type: bool = False) -> tuple[str, list[_Argument] | None, bool]:
        while self.peek() in _QUALIFIERS:
            self.next()
        self.accept("R") or self.accept("O")
        name, arguments, is_template = "", None, False
        while not self.accept("E"):
            is_substitution = False
            if self.peek() == "I":
                arguments, is_template = self.template_arguments(), True
                if not is_type:
                    self.arguments = arguments  # a constructor's or member's own T_ may refer to the class
                name += _angle(arguments)
            else:
                is_template = False
                if self.peek() == "S":
                    part, is_substitution = str(self.substitution()), True
                elif self.peek() == "T":
                    part = str(self.template_parameter())
                elif self.peek() in "CD" and self.peek(2)[1:] in tuple("0123456"):
                    part = ("~" if self.next() == "D" else "") + name.split("<")[0].rsplit("::", 1)[-1]
                    self.next()
                else:
                    part = self.unqualified()
                name = f"{name}::{part}" if name and part else name or part
            if not is_substitution and (is_type or self.peek() != "E"):
                self.substitutions.append(_Type(name))
        return name, arguments, is_template

    def unqualified(self) -> str:
        self.accept("L")  # internal linkage
        if self.peek().isdecimal():
            length = self.number()
            name = self.text[self.position : self.position + length]
            if len(name) < length:
                raise _NotReadable
            self.position += length
            if name.startswith("_GLOBAL__N"):
                name = "(anonymous namespace)"
            elif name.startswith("_INTERNAL_"):
                name = ""  # the compiler's namespace for one translation unit's own variables
        elif self.accept("Ut"):
            name = f"{{unnamed type#{self.discriminator()}}}"
        elif self.accept("Ul"):
            parameters = self.parameters()
            self.expect("E")
            name = f"{{lambda({parameters})#{self.discriminator()}}}"
        elif self.peek(2) in _OPERATORS:
            name = f"operator{_OPERATORS[self.peek(2)]}"
            self.position += 2
        else:
            raise _NotReadable
        while self.accept("B"):
            length = self.number()
            self.position += length
        return name

    def discriminator(self) -> int:
        """The number of an unnamed thing, from 1."""
        return self.sequence() + 1

    # substitutions and template arguments

    def substitution(self) -> _Argument:
        self.expect("S")
        if self.peek() in _STANDARD:
            return _Type(_STANDARD[self.next()])
        return self.substitutions[self.sequence()]

    def template_parameter(self) -> _Argument:
        self.expect("T")
        argument = self.arguments[self.sequence()]
        if isinstance(argument, _Pack) and self.pack_index is not None:
            self.pack_length = len(argument.items)
            return argument.items[self.pack_index] if self.pack_index < len(argument.items) else _Type("")
        return argument

    def template_arguments(self) -> list[_Argument]:
        self.expect("I")
        found: list[_Argument] = []
        while not self.accept("E"):
            found.append(self.template_argument())
        return found

    def template_argument(self) -> _Argument:
        if self.accept("L"):
            return self.literal()
        if self.accept("J"):
            items: list[_Argument] = []
            while not self.accept("E"):
                items.append(self.template_argument())
            return _Pack(tuple(items))
        if self.accept("X"):
            self.expect("ad")
            self.expect("L")
            value = self.literal()
            self.expect("E")
            return _Type(f"&{value}")
        return self.type()

    def literal(self) -> _Type:
        if self.accept("_Z"):
            inner = _Parser(self.text)
            inner.position, inner.substitutions = self.position, self.substitutions
            name = "".join(inner.encoding())
            self.position = inner.position
            self.expect("E")
            return _Type(name)
        code = self.peek()
        kind = str(self.type())
        end = self.text.index("E", self.position)
        digits = self.text[self.position : end]
        self.position = end + 1
        value = f"-{digits[1:]}" if digits.startswith("n") else digits
        if code == "b":
            return _Type("true" if value == "1" else "false")
        if code in "sijlmxyt":
            return _Type(value)
        if code == "c" and value.isdecimal() and 32 < int(value) < 127:
            return _Type(repr(chr(int(value))))
        return _Type(f"({kind}){value}")

    # types

    def parameters(self) -> str:
        found = []
        while self.position < len(self.text) and self.peek() not in ("E", "."):
            found.append(str(self.type()))
        return ", ".join(text for text in found if text and text != "void")

    def type(self) -> _Argument:
        code = self.peek()
        if code in _BUILTIN:
            return _Type(_BUILTIN[self.next()])
        if code == "D":
            return self.special_type()
        if code == "S" and self.peek(2) != "St":
            found = self.substitution()
            if self.peek() != "I":
                return found
            found = _Type(str(found) + _angle(self.template_arguments()))
        elif code in _QUALIFIERS:
            words = []
            while self.peek() in _QUALIFIERS:
                words.append(_QUALIFIERS[self.next()])
            if self.peek() == "F":
                return self.add(self.function(" ".join(words)))
            found = _qualified(self.type(), words)
        elif code in ("P", "R", "O"):
            self.next()
            found = _pointer(self.type(), {"P": "*", "R": "&", "O": "&&"}[code])
        elif code == "A":
            self.next()
            size = str(self.number()) if self.peek().isdecimal() else ""
            self.expect("_")
            item = _plain(self.type())
            found = _Type(item.left + ("" if item.left.endswith("(") else " "), f"[{size}]{item.right}")
        elif code == "F":
            found = self.function("")
        elif code == "M":
            self.next()
            owner, member = self.type(), _plain(self.type())
            if member.right.startswith("("):
                found = _Type(f"{member.left}({owner}::*", f"){member.right}")
            else:
                found = _Type(f"{member.left} {owner}::*", member.right)
        elif code == "T":
            found = self.template_parameter()
            self.add(found)
            if self.peek() != "I":
                return found
            found = _Type(str(found) + _angle(self.template_arguments()))
        elif code == "u":
            self.next()
            found = _Type(self.unqualified())
        elif self.accept("N"):
            return _Type(self.nested(is_type=True)[0])
        else:
            found = _Type(self.name()[0])
        return self.add(found)

    def add(self, found: _Argument) -> _Argument:
        self.substitutions.append(found)
        return found

    def special_type(self) -> _Argument:
        if self.accept("Dp"):
            return self.expansion()
        if self.accept("DF"):
            bits = self.number()
            self.next()
            return _Type(f"_Float{bits}")
        code = self.peek(2)[1:]
        if code not in _BUILTIN_D:
            raise _NotReadable
        self.position += 2
        return _Type(_BUILTIN_D[code])

    def expansion(self) -> _Argument:
        """A pack expansion: the pattern once for every element of the pack that occurs in it."""
        start = self.position
        with self.expanding(0):
            self.pack_length = None
            items = [self.type()]
            length = self.pack_length
        after, substitutions = self.position, list(self.substitutions)
        if length is None:
            return self.add(_Type(f"{items[0]}..."))
        for index in range(1, length):
            self.position = start
            with self.expanding(index):
                items.append(self.type())
        self.position, self.substitutions = after, substitutions
        return self.add(_Pack(tuple(items[:length])))

    @contextmanager
    def expanding(self, index: int) -> Iterator[None]:
        previous, self.pack_index = self.pack_index, index
        try:
            yield
        finally:
            self.pack_index = previous

    def function(self, qualifier: str) -> _Type:
        self.expect("F")
        self.accept("Y")
        result = self.type()
        parameters = self.parameters()
        self.expect("E")
        return _Type(f"{result} ", f"({parameters}){' ' + qualifier if qualifier else ''}")


def _angle(arguments: list[_Argument]) -> str:
    return f"<{', '.join(text for text in map(str, arguments) if text)}>"


def _plain(found: _Argument) -> _Type:
    return found if isinstance(found, _Type) else _Type(str(found))


def _pointer(target: _Argument, mark: str) -> _Type:
    item = _plain(target)
    if item.right and not item.left.endswith(("(", "*", "&")):
        return _Type(f"{item.left}({mark}", f"){item.right}")
    return _Type(item.left + mark, item.right)


def _qualified(target: _Argument, words: list[str]) -> _Type:
    item = _plain(target)
    if item.left.endswith(("*", "&")):
        return _Type(f"{item.left} {' '.join(words)}", item.right)
    return _Type(f"{' '.join(words)} {item.left}", item.right)
