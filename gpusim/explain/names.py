"""Which array of the source a memory access is about, where the line leaves no doubt.

Machine code knows addresses only.  The name is for the reader; no finding depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SHARED = re.compile(r"__shared__[\w\s:<>,()]*?[\s>*](\w+)\s*(?:\[|;|=)")
# a declared pointer: a type's name, a star, and after the name an end; a product looks like that only with a type
_TYPE = r"(?:float|double|int|char|short|long|unsigned|signed|bool|__?\w+|\w+_t|[a-z]+[1-4]|[A-Z]\w*)"
_QUALIFIERS = r"(?:(?:const|volatile|__restrict__|__restrict)\s+)*"
_POINTER = re.compile(rf"\b{_TYPE}\s*(?:const\s*)?\*\s*{_QUALIFIERS}(\w+)\s*[,)=;]")
_INDEXED = re.compile(r"\b(\w+)\s*\[")
_ASSIGNMENT = re.compile(r"(?<![=<>!])=(?!=)")
_COMMENT = re.compile(r"//.*$")


def accessed_array(lines: Sequence[str], line: int | None, space: str, operation: str) -> str | None:
    """The one array of that space that source line ``line`` (from 1) can access with ``operation``, else None."""
    if line is None or not 1 <= line <= len(lines):
        return None
    text = _COMMENT.sub("", lines[line - 1])
    declared = "\n".join(_COMMENT.sub("", each) for each in lines)
    shared = set(_SHARED.findall(declared))
    if space == "shared":
        wanted = shared
    elif space == "global":
        wanted = set(_POINTER.findall(declared)) - shared
    else:
        return None
    for part in (_side(text, operation), text):
        named = wanted.intersection(_INDEXED.findall(part))
        if len(named) == 1:
            return named.pop()
    return None


def _side(text: str, operation: str) -> str:
    """What stands left of the assignment for a store, right of it for a load; compound assignments load on both."""
    match = _ASSIGNMENT.search(text)
    if match is None or operation not in ("load", "store"):
        return text
    if operation == "store":
        return text[: match.start()]
    compound = text[: match.start()].rstrip().endswith(("+", "-", "*", "/", "%", "&", "|", "^"))
    return text if compound else text[match.end() :]
