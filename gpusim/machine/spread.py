"""Moving elements of memory at addresses that are sums of a part by block and one by thread: in runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.machine.symbolic import Part

Array = np.ndarray[Any, Any]
MOST_RUN = 64  # elements of a run: what is copied in one piece


class Spread:
    """Elements at ``first + rows[block] + columns[thread]`` of a table: how to copy them in pieces.

    ``run`` neighbouring threads have neighbouring elements, or, if ``same``, one element.  ``index``: number of each
    run's first element, in elements (in runs unless ``same``) from ``least``.
    """

    __slots__ = ("index", "least", "run", "same", "shape")

    def __init__(self, rows: Part, columns: Part | None, threads: int, shift: int) -> None:
        blocks = len(rows.values)
        self.shape = (blocks, 1 if columns is None else threads)
        self.run, self.same = 1, False
        starts = np.zeros(1, np.int64)
        if columns is not None:
            starts = columns.values >> shift
            steps = np.diff(starts)
            for step in (1, 0):
                run = _run(steps != step, threads)
                if run > self.run:
                    self.run, self.same = run, step == 0
            starts = starts[:: self.run]
        places = (rows.values >> shift)[:, None] + starts
        self.least = int(places.min())
        places -= self.least
        if self.run > 1 and not self.same:
            every = int(np.bitwise_or.reduce(places, axis=None)) | MOST_RUN
            whole = min(self.run, every & -every)
            if whole < self.run:
                places = (places[:, :, None] + np.arange(0, self.run, whole)).reshape(blocks, -1)
            self.run = whole
            if whole > 1:
                places //= whole
        self.index = places

    def _table(self, table: Array, first: int) -> Array:
        table = table[first + self.least :]
        if self.run == 1 or self.same:
            return table
        return table[: len(table) // self.run * self.run].view(f"V{self.run * table.itemsize}")

    def take(self, table: Array, first: int) -> Array:
        """The elements, (blocks, threads); (blocks, 1) where all threads have the same."""
        found = np.take(self._table(table, first), self.index)
        if self.same:
            return np.repeat(found, self.run, axis=1)
        return found.view(table.dtype) if self.run > 1 else found

    def put(self, table: Array, first: int, values: Array) -> None:
        """Write elements; of threads with the same one the last wins."""
        if self.shape[1] == 1:
            values = values[:, -1:]
        wide = np.broadcast_to(values, self.shape)
        if self.run == 1:
            self._table(table, first)[self.index] = wide
        elif self.same:
            self._table(table, first)[self.index] = wide[:, self.run - 1 :: self.run]
        else:
            target = self._table(table, first)
            target[self.index] = np.ascontiguousarray(wide).view(target.dtype)


def _run(breaks: Array, threads: int) -> int:
    """The largest power of two into runs of which the threads can be cut, given which differ from the one before."""
    whole = int(np.bitwise_or.reduce(np.flatnonzero(breaks) + 1)) | threads if breaks.any() else threads
    return whole & -whole
