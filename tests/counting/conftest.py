"""Sharing small launches among processes, as large ones are."""

from __future__ import annotations

import pytest

from gpusim.machine import engine, parallel


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Share every launch of more than two chunks; tells how often parts were run and in conflict.

    GPUSIM_WORKERS says among how many processes.
    """
    told = {"run": 0, "conflict": 0}
    share, finish = parallel.Sharing._share, parallel.Sharing.finish

    def counted_share(self: parallel.Sharing, count: int) -> None:
        told["run"] += 1
        share(self, count)

    def counted_finish(self: parallel.Sharing) -> None:
        try:
            finish(self)
        except parallel.Conflict:
            told["conflict"] += 1
            raise

    monkeypatch.setattr(parallel, "START", -1.0)
    monkeypatch.setattr(parallel.Sharing, "_share", counted_share)
    monkeypatch.setattr(parallel.Sharing, "finish", counted_finish)
    monkeypatch.setattr(engine, "LEAST_CHUNK", 256)
    monkeypatch.setattr(engine, "MOST_CHUNK", 256)
    return told
