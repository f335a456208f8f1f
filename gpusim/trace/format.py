"""The trace file: a zip archive of JSON and NumPy arrays.

``header.json`` has the format's version and the folders of the launches.  A launch's folder holds ``launch.json``
(facts, instructions, source text), ``tally.npy`` (executed, thread_executed, predicated_on for each instruction) and,
for each piece ``N`` of its events, in order:

- ``events-N.npy``: one row an event; see ACCESS_COLUMNS and BRANCH_COLUMNS;
- ``arrays-N.npy``: the arrays that events refer to by row number: form, rows, columns and two vectors;
- ``vectors-N.npy``: where each vector starts, and its length, in ``words-N`` or ``bits-N``;
- ``words-N.npy``: int64; a vector's first word, then differences;
- ``bits-N.npy``: packed bits, each vector from a byte boundary.

Addresses of a chunk of blocks are mostly the same row, shifted from block to block.  Such an array is stored as that
row and one number a block, and each row that comes again within a piece is stored once.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]

FORMAT = "gpusim-trace"
VERSION = 1

SPACES = ("global", "shared", "local")
BRANCH_KINDS = (
    "branch", "branch_divergent", "branch_convergent", "call", "indirect", "return", "branch_any",
)  # fmt: skip

ACCESS, BRANCH = 0, 1
ARRAYS = ("addresses", "mask", "active", "origin", "reading")
"""The arrays of an access event; -1 stands for None."""
ACCESS_COLUMNS = ("kind", "index", "space", "first_block", "blocks", "threads", *ARRAYS)
BRANCH_COLUMNS = ("kind", "index", "branch", "warps", "taken", "fallen", "divergent")
COLUMNS = len(ACCESS_COLUMNS)

WHOLE, SHIFTED, BITS, SAME_BITS = range(4)
"""Forms of an array: all words; one row and a number for each row; all bits; the bits of one row, the same in each."""

PIECE_EVENTS = 1 << 16
PIECE_WORDS = 1 << 21
LARGEST_MEMBER = 1 << 30
"""Bytes that a piece of a file may unpack to: more is not a trace of ours."""


class Damaged(Exception):
    """Something in a trace does not fit together."""


class Pool:
    """Arrays of one piece while it is written."""

    def __init__(self) -> None:
        self.arrays: list[tuple[int, ...]] = []
        self.vectors: list[tuple[int, int]] = []
        self.words: list[Array] = []
        self.bits: list[Array] = []
        self.word_count = self.bit_bytes = 0
        self._seen_vectors: dict[tuple[str, bytes], int] = {}
        self._seen_arrays: dict[tuple[int, ...], int] = {}

    def add(self, array: Array | None) -> int:
        """The number of an array, which is stored unless it is there already; -1 for None."""
        if array is None:
            return -1
        rows, columns = array.shape
        if array.dtype == np.bool_:
            if rows > 1 and bool((array == array[:1]).all()):
                return self._array(SAME_BITS, rows, columns, self._bits(array[0]))
            return self._array(BITS, rows, columns, self._bits(array.reshape(-1)))
        array = array.astype(np.int64, copy=False)
        if rows > 1:
            starts = array[:, 0]
            row = array[0] - starts[0]
            if bool((array - starts[:, None] == row).all()):
                return self._array(SHIFTED, rows, columns, self._words(row), self._words(starts))
        return self._array(WHOLE, rows, columns, self._words(array.reshape(-1)))

    def _array(self, *entry: int) -> int:
        entry = (*entry, -1) if len(entry) == 4 else entry
        number = self._seen_arrays.setdefault(entry, len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(entry)
        return number

    def _words(self, vector: Array) -> int:
        key = ("words", vector.tobytes())
        number = self._seen_vectors.setdefault(key, len(self.vectors))
        if number == len(self.vectors):
            self.vectors.append((self.word_count, vector.size))
            self.words.append(np.diff(vector, prepend=np.int64(0)))
            self.word_count += vector.size
        return number

    def _bits(self, vector: Array) -> int:
        packed = np.packbits(vector)
        key = (f"bits {vector.size}", packed.tobytes())
        number = self._seen_vectors.setdefault(key, len(self.vectors))
        if number == len(self.vectors):
            self.vectors.append((self.bit_bytes, vector.size))
            self.bits.append(packed)
            self.bit_bytes += packed.size
        return number

    def members(self) -> dict[str, Array]:
        """The pool's tables by name."""
        return {
            "arrays": np.array(self.arrays, np.int64).reshape(-1, 5),
            "vectors": np.array(self.vectors, np.int64).reshape(-1, 2),
            "words": np.concatenate([np.zeros(0, np.int64), *self.words]),
            "bits": np.concatenate([np.zeros(0, np.uint8), *self.bits]),
        }


class StoredPool:
    """Arrays of one piece when it is read."""

    def __init__(self, arrays: Array, vectors: Array, words: Array, bits: Array) -> None:
        for table, row, dtype in (
            (arrays, (5,), np.int64),
            (vectors, (2,), np.int64),
            (words, (), np.int64),
            (bits, (), np.uint8),
        ):
            if table.dtype != dtype or table.ndim != 1 + len(row) or table.shape[1:] != row:
                raise Damaged("a table has another shape")
        self.arrays, self.vectors, self.words, self.bits = arrays, vectors, words, bits
        self._recent: dict[int, Array] = {}

    def get(self, number: int, kind: Literal["i", "b"], blocks: int, threads: int) -> Array | None:
        """The array of that number, which must broadcast to (blocks, threads); None for -1."""
        if number == -1:
            return None
        found = self._recent.get(number)
        if found is None:
            found = self._decode(number, blocks, threads)
            found.setflags(write=False)
            if len(self._recent) >= 64:
                self._recent.clear()
            self._recent[number] = found
        if found.dtype.kind != kind or found.shape[0] not in (1, blocks) or found.shape[1] not in (1, threads):
            raise Damaged("an array does not fit its event")
        return found

    def _decode(self, number: int, blocks: int, threads: int) -> Array:
        if not 0 <= number < len(self.arrays):
            raise Damaged("an event refers to an array that does not exist")
        form, rows, columns, first, second = (int(value) for value in self.arrays[number])
        if rows not in (1, blocks) or columns not in (1, threads):
            raise Damaged("an array does not fit its event")
        if form == WHOLE:
            return self._words(first, rows * columns).reshape(rows, columns)
        if form == SHIFTED:
            return self._words(second, rows)[:, None] + self._words(first, columns)
        if form == BITS:
            return self._bits(first, rows * columns).reshape(rows, columns)
        if form == SAME_BITS:
            return np.repeat(self._bits(first, columns)[None], rows, axis=0)
        raise Damaged("an array has an unknown form")

    def _place(self, number: int, length: int) -> int:
        if not 0 <= number < len(self.vectors) or int(self.vectors[number, 1]) != length:
            raise Damaged("an array refers to a vector that does not fit")
        return int(self.vectors[number, 0])

    def _words(self, number: int, length: int) -> Array:
        start = self._place(number, length)
        if start < 0 or start + length > self.words.size:
            raise Damaged("a vector lies outside its table")
        return np.cumsum(self.words[start : start + length], dtype=np.int64)

    def _bits(self, number: int, length: int) -> Array:
        start = self._place(number, length)
        size = (length + 7) // 8
        if start < 0 or start + size > self.bits.size:
            raise Damaged("a vector lies outside its table")
        return np.unpackbits(self.bits[start : start + size], count=length).astype(np.bool_)
