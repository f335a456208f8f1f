"""The table of counters: Nsight Compute's names, what each is, and whether it is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One Nsight Compute metric; ``field`` is the per-instruction quantity whose sum it is, over ``kinds``."""

    name: str
    kind: Literal["exact", "modelled", "measured"]
    field: str
    kinds: tuple[str, ...] = ()
    what: str = ""


_SASS = "smsp__sass_"
_WAVES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
_SECTORS = "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_"
_PASSES = "l1tex__t_sectors_pipe_lsu_mem_global_op_"


def _metric(name: str, field: str, *kinds: str, what: str) -> Metric:
    return Metric(f"{name}.sum", "exact", field, kinds, what)


# ``kinds`` name classes of instructions (see collect.classify); no kinds: all instructions.
METRICS: tuple[Metric, ...] = (
    _metric(f"{_SASS}inst_executed", "executed", what="warp instructions issued"),
    _metric(f"{_SASS}thread_inst_executed", "thread_executed", what="thread instructions of executing lanes"),
    _metric(
        f"{_SASS}thread_inst_executed_pred_on", "predicated_on", what="thread instructions whose guard held"
    ),
    *(
        # recorded: a warp whose lanes are all predicated off is not counted here
        _metric(f"{_SASS}inst_executed_op_{kind}", "requests", kind, what=f"warp accesses of kind {kind}")
        for kind in (
            "shared_ld", "shared_st", "shared_atom", "global_ld", "global_st", "global_red", "global_atom", "local_ld",
            "local_st",
        )
    ),
    _metric(f"{_SASS}inst_executed_op_branch", "branches", what="branches executed by warps"),
    *(
        _metric(f"{_WAVES}{op}", "wavefronts", f"wavefront_{op}", what="passes through the shared-memory banks")
        for op in ("ld", "st", "atom", "ldsm", "stsm", "ldgsts")
    ),
    *(
        _metric(f"{_CONFLICTS}{op}", "conflicts", f"conflict_{op}", what="extra passes caused by bank conflicts")
        for op in ("ld", "st", "atom", "ldsm", "stsm")
    ),
    # an upper bound where the lanes of a copy read from many lines: depends on how the data arrives
    Metric(f"{_CONFLICTS}ldgsts.sum", "modelled", "conflicts", ("conflict_ldgsts",), "extra passes of bank conflicts"),
    *(
        _metric(f"{_SECTORS}{space}_op_{op}", "sectors", f"{space}_{op}", what="32-byte sectors touched")
        for space in ("global", "local")
        for op in ("ld", "st")
    ),
    *(
        _metric(f"{_SECTORS}global_op_{op}", "sectors", f"global_{op}", what="32-byte sectors touched by atomics")
        for op in ("red", "atom")
    ),
    # a lower bound where a warp's lanes add to more than four lines: some of those are then sent on in two parts, in a
    # way that was not understood (recording h200_atomic_lines: up to 3 of 23 sectors more)
    *(
        Metric(
            f"{_PASSES}{op}.sum", "modelled", "atomic_passes", (f"global_{op}",), "sectors sent on by L1 for atomics"
        )
        for op in ("red", "atom")
    ),
    _metric(
        f"{_SECTORS}global_op_ldgsts", "copy_sectors", "global_ldgsts", what="32-byte sectors of asynchronous copies"
    ),
    _metric(f"{_SASS}l1tex_tags_mem_global", "tags", what="128-byte lines looked up in L1"),
    # recorded: an asynchronous copy is a load request as well
    _metric(f"{_REQUESTS}ld", "requests", "global_ld", "global_ldgsts", what="warp requests to global memory"),
    *(
        _metric(f"{_REQUESTS}{op}", "requests", f"global_{op}", what="warp requests to global memory")
        for op in ("st", "red", "atom", "ldgsts")
    ),
    _metric(f"{_SASS}branch_targets", "branch_targets", what="branch targets taken by warps"),
    _metric(f"{_SASS}branch_targets_threads_uniform", "uniform", what="branches with one target for all lanes"),
    _metric(f"{_SASS}branch_targets_threads_divergent", "divergent", what="branches that split a warp"),
)  # fmt: skip
