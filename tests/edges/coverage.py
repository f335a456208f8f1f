"""Which instructions the edge cases contain: ``python -m tests.edges.coverage`` lists them by opcode.

An opcode or a form that gpusim implements and no case reaches is one that no recorded edge speaks for.
"""

from __future__ import annotations

from gpusim.sass import registry
from tests.edges.cases import all_cases
from tests.edges.recording import module

# Their functions move data or decide what runs next; recordings of counts and of random kernels are about these.
NOT_ARITHMETIC = {"gpusim.sass.control", "gpusim.sass.memory", "gpusim.sass.syncs"}


def forms() -> dict[str, set[str]]:
    """The modifiers with which each opcode occurs in the recorded machine code."""
    found: dict[str, set[str]] = {}
    for family, cases in all_cases().items():
        for case in cases:
            for instruction in module(family)[case.kernel].program.instructions:
                found.setdefault(instruction.opcode, set()).add(".".join(instruction.modifiers))
    return found


def arithmetic() -> dict[str, registry.OpcodeFunction]:
    """The opcodes that compute, with their functions."""
    table = registry._table
    return {name: function for name, function in table.items() if function.__module__ not in NOT_ARITHMETIC}


def never_reached() -> set[str]:
    """Opcodes that compute and that no case contains."""
    return set(arithmetic()) - set(forms())


def functions_never_reached() -> set[str]:
    """Those of them whose function no reached opcode shares (as FLO shares UFLO's, and IADD3 sm_120's IADD's)."""
    table = arithmetic()
    reached = {table[name] for name in forms() if name in table}
    return {name for name in never_reached() if table[name] not in reached}


if __name__ == "__main__":
    for opcode, modifiers in sorted(forms().items()):
        print(opcode, *sorted(m or "-" for m in modifiers))
    print("never reached:", *sorted(never_reached()))
    print("nor any other of their function:", *sorted(functions_never_reached()))
