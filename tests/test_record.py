"""The recorder's reading of Nsight Compute's pages, on a small piece of recorded text."""

from __future__ import annotations

import pytest

from gpusim.runner import record

# The source page of a few launches, cut down to three instructions and the columns that are read; the
# first two have equal totals, and every table comes twice (as recorded with ncu 2025.3).
HEADER = (
    '"Address","Source","Instructions Executed","Thread Instructions Executed",'
    '"Predicated-On Thread Instructions Executed","Divergent Branches","L1 Tag Requests Global"'
)


def page(*launches: tuple[str, tuple[int, int, int]], copies: int = 2) -> str:
    lines = ["==PROF== Disconnected from process 42"]
    for kernel, lanes in launches:
        for _ in range(copies):
            lines += [f'"Kernel Name","{kernel}",', HEADER]
            for k, count in enumerate(lanes):
                lines.append(f'"0x7fe9977a00{k}0","      MOV R{k}, R9","1","{count}","{count}","0","0"')
    return "\n".join(lines)


def launch(kernel: str, lanes: tuple[int, int, int]) -> dict:
    totals = {"inst_executed": 3, "thread_inst_executed": sum(lanes), "thread_inst_executed_pred_on": sum(lanes)}
    return {"kernel": kernel, "metrics": {f"smsp__sass_{name}.sum": value for name, value in totals.items()}}


LAUNCHES = [
    ("turned", (32, 4, 12)), ("turned", (32, 8, 8)), ("turned", (32, 1, 1)), ("other", (32, 8, 8)),
    ("turned", (32, 12, 4)),
]  # fmt: skip


@pytest.mark.parametrize("copies", [1, 2])
def test_launches_with_equal_totals_get_their_own_tables(copies):
    tables = record.parse_source(page(*LAUNCHES, copies=copies))
    assert len(tables) == copies * len(LAUNCHES)
    paired = record.pair_tables(tables, [launch(*each) for each in LAUNCHES])
    lanes = [tuple(record.columns_of(table)["thread_executed"]) for table in paired]
    assert lanes == [each for _, each in LAUNCHES]


def test_some_kernels_tables_may_come_once_and_functions_are_passed_over():
    text = page(*LAUNCHES[:2]) + "\n" + page(("a_function", (1, 1, 1)), *LAUNCHES[3:4], copies=1)
    chosen = [LAUNCHES[k] for k in (0, 1, 3)]
    paired = record.pair_tables(record.parse_source(text), [launch(*each) for each in chosen])
    assert [tuple(record.columns_of(table)["thread_executed"]) for table in paired] == [each for _, each in chosen]


def test_tables_that_do_not_fit_stop_the_recording():
    tables = record.parse_source(page(*LAUNCHES[:2]))
    with pytest.raises(SystemExit, match="3 instruction tables for 2 launches"):
        record.pair_tables(tables[:3], [launch(*each) for each in LAUNCHES[:2]])
    with pytest.raises(SystemExit, match=r"without a table: \[\('turned', 3, 34"):
        record.pair_tables(tables, [launch(*each) for each in LAUNCHES[:3]])
