"""Machine code to text, instruction by instruction, with NVIDIA's nvdisasm."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from .cache import Cache
from .elf import INSTRUCTION_BYTES, Cubin, FunctionInfo, parse_cubin
from .link import LinkedImage
from .tools import run_tool, tool_version

#: A symbol as the last operand of a call, return or branch.
_TARGET = re.compile(r"(?:^|,)(?P<symbol>[A-Za-z_$.][\w$.]*)$")
_RELOCATED = re.compile(r"32@(?:lo|hi)\((?:[^()]|\([^()]*\))*\)")
_STRANGE = "nvdisasm {} gave output that gpusim does not understand: install the pinned version"
_JUMPS = ("CALL", "RET", "BRA", "JMP", "BSSY", "LEPC")


@dataclass(frozen=True)
class RawInstruction:
    """One instruction.

    ``address`` is in bytes from the start of the function's section; ``predicate`` is "" or like "@!P0"; ``operands``
    is the operand list without blanks after commas; branch and call targets in it are hexadecimal addresses within
    the section, also where the file names a symbol.  ``encoding`` is the 128-bit instruction word.
    """

    address: int
    predicate: str
    opcode: str
    operands: str
    encoding: int

    @property
    def text(self) -> str:
        """The instruction in one readable line, for example "@!P0 BRA 0x120"."""
        return " ".join(part for part in (self.predicate, self.opcode, self.operands.replace(",", ", ")) if part)


def disassembler_version() -> str:
    """Version of nvdisasm, for example "13.5.37"."""
    return tool_version("nvdisasm")


def disassemble(
    cubin: Cubin | bytes, linked: LinkedImage | None = None, *, cache: Cache | None = None
) -> dict[str, list[RawInstruction]]:
    """Every function's instructions, by mangled function name.

    Operands that depend on addresses are printed as nvdisasm does ("32@lo(table)"); with ``linked``, the same cubin
    after :func:`~gpusim.toolchain.link.link`, as the numbers that were put there.  With ``cache`` nvdisasm, which takes
    over half a second for any cubin, runs once for each cubin ever seen.

    Raises InputError if the cubin is damaged, UsageError if nvdisasm is missing.
    """
    parsed = cubin if isinstance(cubin, Cubin) else parse_cubin(cubin)
    if not parsed.functions:
        return {}
    listing = cache.load_listing(parsed.sha256, disassembler_version()) if cache is not None else None
    if listing is not None:
        with suppress(InputError):
            found = _functions(parsed, listing)
            return relocate(found, linked) if linked is not None else found
    listing = _run(parsed.data)
    found = _functions(parsed, listing)
    if cache is not None:
        cache.store_listing(parsed.sha256, disassembler_version(), listing)
    return relocate(found, linked) if linked is not None else found


def _run(data: bytes) -> Any:
    """nvdisasm's JSON about each function."""
    with tempfile.TemporaryDirectory(prefix="gpusim-") as directory:
        path = Path(directory, "module.cubin")
        path.write_bytes(data)
        # -ndf: no data-flow analysis, which only adds comments to the text listing and can refuse odd control flow
        output = run_tool("nvdisasm", ["-json", "-ndf", str(path)])
    try:
        return json.loads(output)[1]
    except (ValueError, LookupError, TypeError):
        raise InputError(_STRANGE.format(disassembler_version())) from None


def _functions(cubin: Cubin, listing: Any) -> dict[str, list[RawInstruction]]:
    try:
        found = {
            function["function-name"]: _instructions(cubin.functions[function["function-name"]], function)
            for function in listing
        }
    except (LookupError, TypeError, AttributeError):
        raise InputError(_STRANGE.format(disassembler_version())) from None
    missing = cubin.functions.keys() - found.keys()
    if missing:
        raise InputError(f"nvdisasm gave no code for {min(missing)}: the cubin is damaged")
    return found


def relocate(listing: Mapping[str, list[RawInstruction]], linked: LinkedImage) -> dict[str, list[RawInstruction]]:
    """The listing of an unlinked cubin with the numbers that linking put into its instructions."""
    found = {}
    for name, instructions in listing.items():
        patched = linked.patched.get(name, {})
        found[name] = [
            _patch(raw, patched[raw.address], linked.code[name]) if raw.address in patched else raw
            for raw in instructions
        ]
    return found


def _patch(raw: RawInstruction, value: int, code: bytes) -> RawInstruction:
    operands, count = _RELOCATED.subn(f"{value:#x}", raw.operands)
    if not count:
        operands = _TARGET.sub(lambda match: match[0].replace(match["symbol"], f"{value:#x}"), raw.operands)
    encoding = int.from_bytes(code[raw.address : raw.address + INSTRUCTION_BYTES], "little")
    return replace(raw, operands=operands, encoding=encoding)


def _instructions(function: FunctionInfo, listing: Mapping[str, Any]) -> list[RawInstruction]:
    found = listing["sass-instructions"]
    if listing["start"] != 0 or len(found) * INSTRUCTION_BYTES != len(function.code):
        raise InputError(f"nvdisasm gave {len(found)} instructions for {len(function.code)} bytes of {function.name}")
    symbols = {function.name: 0} | {sub.name: sub.address for sub in function.subroutines}
    instructions = []
    for index, raw in enumerate(found):
        predicate, operands = _predicate_set(raw["opcode"], raw.get("predicate", ""), raw.get("operands", ""))
        first = index * INSTRUCTION_BYTES
        instructions.append(
            RawInstruction(
                address=first,
                predicate=predicate,
                opcode=raw["opcode"],
                operands=_resolve(raw["opcode"], operands, symbols),
                encoding=int.from_bytes(function.code[first : first + INSTRUCTION_BYTES], "little"),
            )
        )
    return instructions


def _predicate_set(opcode: str, predicate: str, operands: str) -> tuple[str, str]:
    """(guard, operands) with the operand PR where it belongs.

    nvdisasm's JSON gives PR as the guard of P2R, and the guard in PR's place; from an R2P after it PR is missing.
    """
    if predicate == "PR":
        register, _, rest = operands.partition(",")
        guard, comma, after = rest.partition(",")
        if comma and guard.startswith("@"):
            return guard, f"{register},PR,{after}"
        return "", f"{register},PR,{rest}"
    if opcode.split(".")[0] == "R2P" and not operands.startswith("PR,"):
        return predicate, f"PR,{operands}"
    return predicate, operands


def _resolve(opcode: str, operands: str, symbols: Mapping[str, int]) -> str:
    """Operands with a symbol of the same section replaced by its address."""
    if not opcode.startswith(_JUMPS):
        return operands
    match = _TARGET.search(operands)
    if match is None or match["symbol"] not in symbols:
        return operands
    return f"{operands[: match.start('symbol')]}{symbols[match['symbol']]:#x}"
