"""The search for a row pitch that keeps an access to shared memory free of bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpusim.counters import rules
from gpusim.explain.patterns import Pattern

WORD = 4
BANKS = 32
LEAST_PITCH = 8  # words; a shorter distance between lanes is a stride, not the row of a tile
MOST_PADDING = 8  # accesses' widths of padding that are tried


@dataclass(frozen=True)
class Padding:
    """Rows ``pitch`` words apart take ``wavefronts``; with ``better`` words they would take ``better_wavefronts``.

    ``tried`` holds the wavefronts of the pitches between the two; ``swizzled`` is what column ^ row would take, None
    where rows are not made for it.
    """

    pitch: int
    wavefronts: int
    better: int
    better_wavefronts: int
    tried: dict[int, int]
    swizzled: int | None


def best_padding(pattern: Pattern, operation: str) -> Padding | None:
    """The least padding that makes the sampled warp's access as fast as can be; None if no pitch can be told.

    The pitch is the distance that most lanes keep from the next; each lane's row and column follow from it.
    """
    step = pattern.common_step
    if pattern.space != "shared" or operation not in ("load", "store") or step is None or step % pattern.width:
        return None
    pitch = abs(step) // WORD
    if pitch < LEAST_PITCH or pattern.width % WORD:
        return None
    kind = "ld" if operation == "load" else "st"
    _, mask = pattern.row()
    places = np.array([[offset or 0 for offset in pattern.offsets]], np.int64)
    ideal = int(rules.shared_wavefronts_ideal(mask, pattern.width)[0])

    rows, columns = np.divmod(places, pitch * WORD)

    def cost(moved: np.ndarray) -> int:
        return int(rules.shared_wavefronts(moved, mask, pattern.width, kind)[0])

    def wavefronts(new_pitch: int) -> int:
        return cost(rows * (new_pitch * WORD) + columns)

    now = wavefronts(pitch)
    swizzled = None
    if pattern.width == WORD and pitch % BANKS == 0:
        swizzled = cost(rows * (pitch * WORD) + (columns ^ rows % BANKS * WORD))
    tried: dict[int, int] = {}
    for step_count in range(1, MOST_PADDING + 1):
        candidate = pitch + step_count * pattern.width // WORD
        tried[candidate] = wavefronts(candidate)
        if tried[candidate] <= ideal:
            break
    better = min(tried, key=lambda candidate: (tried[candidate], candidate))
    if tried[better] >= now:
        return None
    return Padding(pitch, now, better, tried[better], {p: w for p, w in tried.items() if p < better}, swizzled)
