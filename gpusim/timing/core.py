"""The inner loop of the pipeline model: one SM, warp instruction by warp instruction.  Compiled by numba.

Four schedulers issue one instruction a cycle each; a warp's next instruction is ready when its stall count has passed
and the scoreboards of its wait mask are clear.  Everything that the schedulers share is a server with a rate: the
load/store unit, the way to L2, L2's and DRAM's share of one SM.  A server's queue of limited depth holds warps back.
Times are in cycles of the SM's clock.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from numba import njit
except ImportError:  # the extra ``timing`` is not installed; only tiny kernels are worth running like this

    def njit(*_: Any, **__: Any) -> Any:
        """Leave the function as it is."""
        return lambda function: function


Array = np.ndarray[Any, Any]

# parameters of the core, by place; the model's numbers of the same names (see pipeline.parameters)
PARAMETERS = (
    "schedulers", "latency_l2", "latency_dram", "lsu_queue", "l2_queue", "dram_queue", "cost_tag", "cost_l2_sector",
    "cost_l2_line", "cost_l2_write_sector", "cost_l2_write_line", "cost_dram_read", "cost_dram_write",
    "cost_dram_isolated", "cost_barrier", "cost_branch", "block_interval", "block_gap", "block_start",
    "cost_atomic_sector", "cost_constant_word", "warp_start", "lsu_delay", "cost_predicated_off", "write_back",
    "store_drain", "cost_lsu_issue", "l2_window", "cost_store_extra", "cost_red_lane", "dram_load", "dram_load_time",
    "dram_load_most", "out_queue", "dram_jitter", "l2_jitter", "atomic_queue", "cost_special", "local_back",
    "store_few_lines", "dram_load_mixed", "read_alone", "write_alone",
    "dram_lone_line", "atomic_whole_line", "cost_crowd", "dram_spread", "dram_some_load",
    "l2_fill", "issue_address", "store_partial",
)  # fmt: skip
(P_SCHEDULERS, P_LAT_L2, P_LAT_DRAM, P_LSU_QUEUE, P_L2_QUEUE, P_DRAM_QUEUE, P_TAG, P_L2_SECTOR, P_L2_LINE,
 P_L2_WSECTOR, P_L2_WLINE, P_DRAM_READ, P_DRAM_WRITE, P_DRAM_ISOLATED, P_BARRIER, P_BRANCH, P_INTERVAL, P_GAP,
 P_START, P_ATOMIC, P_CONSTANT, P_WARP_START, P_LSU_DELAY, P_OFF, P_WRITE_BACK, P_DRAIN, P_LSU_ISSUE,
 P_L2_WINDOW, P_STORE_EXTRA, P_RED, P_LOAD, P_LOAD_TIME, P_LOAD_MOST, P_OUT_QUEUE, P_JITTER, P_L2_JITTER,
 P_ATOMIC_QUEUE, P_SPECIAL, P_LOCAL_BACK, P_WLINE_FEW, P_LOAD_MIXED, P_READ_ALONE,
 P_WRITE_ALONE, P_LONE, P_WHOLE, P_CROWD, P_SPREAD, P_SOME_LOAD,
 P_FILL, P_ADDRESS, P_PARTIAL) = range(len(PARAMETERS))  # fmt: skip

UNITS = ("issue", "lsu", "l2_read", "dram", "fma", "alu", "xu", "fp64", "tensor", "barrier", "constant", "uniform",
         "l2_write", "atomic")  # fmt: skip
(U_ISSUE, U_LSU, U_L2, U_DRAM, U_FMA, U_ALU, U_XU, U_FP64, U_TENSOR, U_BARRIER, U_CONSTANT, U_UNIFORM,
 U_L2_WRITE, U_ATOMIC) = range(14)  # fmt: skip
COUNTS = ("l1_hits", "l2_reads", "dram_read", "l2_writes", "dram_write", "cycles")
WAITS = ("long_scoreboard", "short_scoreboard", "barrier", "math_pipe", "lsu_queue", "fixed", "not_selected",
         "selected", "branch")  # fmt: skip
NEVER = 1e30
HOT_BITS = 10
BARRIERS = 16  # of a block


@njit(cache=True)
def _victim(used, bank, ways):
    """The way of an L1 set that was used least recently."""
    way = 0
    for x in range(1, ways):
        if used[bank, x] < used[bank, way]:
            way = x
    return way


@njit(cache=True)
def _sectors(bits):
    """How many of a line's four sectors ``bits`` names."""
    return (bits & 1) + (bits >> 1 & 1) + (bits >> 2 & 1) + (bits >> 3 & 1)


@njit(cache=True)
def _halves(bits):
    """Whether sectors of a line's low and of its high 64 bytes are among ``bits``, as 0 or 1."""
    return (1 if bits & 3 else 0), (1 if bits & 12 else 0)


@njit(cache=True)
def _slot(line, mask):
    """A line's place in the tables that stand for L2."""
    return (line ^ (line >> 11) ^ (line >> 23)) & mask


@njit(cache=True)
def _loaded(load, writing, at, now, more, time, writes):
    """DRAM's utilisation of late, the part of it that writes, and when, after an access; older ones fade."""
    if now > at:
        fading = np.exp((at - now) / time)
        load *= fading
        writing *= fading
        at = now
    return load + more, writing + more * writes, at


@njit(cache=True)
def simulate(  # one loop, so that numba keeps everything in registers
    stall, write, read, wait, kind, pipe, cost, latency, data, extra, slots_used,
    start, ops, accesses, warps, traced,
    r_waves, r_space, r_first, r_count, r_serial, lines, sectors, passes,
    dram_share, lone, crowd, blocks, resident, most, p, l1_sets, l1_ways, seen_bits,
    begin, end, busy, counts, waits,
):  # fmt: skip
    """Run ``blocks`` blocks (the ``traced`` ones over and over), ``resident`` at a time.

    ``begin``, ``end``: filled with every block's times.  ``busy``, ``counts``, ``waits``: see UNITS, COUNTS and WAITS.
    Returns the number of instructions issued, ``most`` at most, or -1 where warps wait for one another for ever.
    """
    schedulers = int(p[P_SCHEDULERS])
    slots = resident * warps
    position = np.zeros(slots, np.int64)
    next_kind = np.zeros(slots, np.int8)  # of the instruction at a warp's position
    next_pipe = np.zeros(slots, np.int8)
    last = np.zeros(slots, np.int64)
    ready = np.full(slots, NEVER)
    reason = np.zeros(slots, np.int64)  # why it is not ready earlier, as WAITS
    since = np.zeros(slots)
    board = np.zeros((slots, 6))
    long_board = np.zeros((slots, 6), np.int8)
    group = np.zeros((slots, 8))  # when the latest groups of asynchronous copies are there
    groups = np.zeros(slots, np.int64)
    copying = np.zeros(slots)
    stores = np.zeros(resident)
    living = np.zeros(resident, np.int64)
    arrived = np.zeros((resident, BARRIERS), np.int64)  # warps at each of a block's barriers
    arrival = np.zeros((resident, BARRIERS))
    expected = np.zeros((resident, BARRIERS), np.int64)  # warps that it is for, 0 for all
    waiting = np.full(slots, -1, np.int64)  # the barrier that a warp waits at
    held = np.zeros(resident, np.int64)  # a block's barriers that warps have arrived at
    which = np.full(resident, -1, np.int64)  # the block in a slot
    shift = np.zeros(resident, np.int64)
    free = np.zeros(schedulers)
    pipes = np.zeros((schedulers, 9))
    half = np.zeros((schedulers, 2))
    candidate = np.full(schedulers, NEVER)
    chosen = np.full(schedulers, -1, np.int64)
    stale = np.ones(schedulers, np.int8)
    issuer = np.full(schedulers, -1, np.int64)  # the warp that issued last
    tags = np.full((l1_sets, l1_ways), -1, np.int64)
    valid = np.zeros((l1_sets, l1_ways), np.int8)
    used = np.zeros((l1_sets, l1_ways))
    filled = np.zeros((l1_sets, l1_ways))
    seen = np.full(1 << seen_bits, -1, np.int64)
    seen_at = np.zeros(1 << seen_bits)
    seen_there = np.zeros(1 << seen_bits)
    seen_parts = np.zeros(1 << seen_bits, np.int8)
    dirty = np.full(1 << seen_bits, -1, np.int64)
    dirty_at = np.zeros(1 << seen_bits)
    dirty_parts = np.zeros(1 << seen_bits, np.int8)
    seen_mask = (1 << seen_bits) - 1
    owed = np.zeros(len(kind))
    hot = np.full(1 << HOT_BITS, -1, np.int64)  # lines that many SMs store to, when the last store begins and ends
    hot_from = np.zeros(1 << HOT_BITS)
    hot_until = np.zeros(1 << HOT_BITS)
    lsu = 0.0
    l2 = 0.0  # when the way to and from L2 is free again: reads
    out = 0.0  # and writes
    filling = 0.0  # when L2 has taken what is written to it, by SMs and by DRAM
    atom = 0.0  # when L2 has done the atomics
    dram = 0.0
    load = 0.0  # DRAM's recent utilisation, and when it was that
    writing = 0.0  # the part of it that writes
    load_at = 0.0
    seed = 20240229  # of what varies in DRAM's latency
    bar = 0.0
    constant = 0.0
    special = 0.0
    launcher = 0.0
    moved = 0.0  # bytes of this SM through L2 so far
    launched = 0
    finished = 0
    issued = 0
    span = np.int64(1) << 50
    for b in range(min(resident, blocks)):
        t = launcher + p[P_START]
        launcher += p[P_INTERVAL]
        which[b] = launched
        living[b] = warps
        shift[b] = 0
        begin[launched] = t
        for w in range(warps):
            s = b * warps + w
            k = (launched % traced) * warps + w
            position[s], last[s] = start[k], start[k + 1]
            next_kind[s], next_pipe[s] = kind[ops[start[k]]], pipe[ops[start[k]]]
            ready[s] = t + w * p[P_WARP_START]
            since[s] = t
        launched += 1
    now = 0.0
    while finished < blocks and issued < most:
        # -- the scheduler that issues next: of warps that can first, the one that issued last, else the oldest -------
        best = -1
        soonest = NEVER
        for q in range(schedulers):
            if stale[q]:
                c_time = NEVER
                c_warp = -1
                c_age = np.int64(0)
                for s in range(q, slots, schedulers):
                    t = ready[s]
                    if t >= NEVER:
                        continue
                    if t < free[q]:
                        t = free[q]
                    age = which[s // warps] * warps + s % warps if s != issuer[q] else np.int64(-1)
                    if t > c_time or (t == c_time and age > c_age):
                        continue
                    g = next_kind[s]
                    if g == 1:
                        f = next_pipe[s]
                        if f == 1:
                            x = min(half[q, 0], half[q, 1])
                        elif f == 2:
                            x = half[q, 0]
                        else:
                            x = pipes[q, f]
                        if x > t:
                            t = x
                    elif g == 2 or g == 3 or g == 4 or g == 5 or g == 6 or g == 10 or g == 12:
                        x = lsu - p[P_LSU_QUEUE]
                        if x > t:
                            t = x
                        if pipes[q, 0] > t:
                            t = pipes[q, 0]
                        if (g == 3 or g == 4 or g == 5) and half[q, 0] > t:
                            t = half[q, 0]
                    if t < c_time or (t == c_time and age < c_age):
                        c_time = t
                        c_warp = s
                        c_age = age
                candidate[q], chosen[q] = c_time, c_warp
                stale[q] = 0
            if candidate[q] < soonest:
                soonest = candidate[q]
                best = q
        if best < 0:
            return -1
        q = best
        s = chosen[q]
        issuer[q] = s
        now = candidate[q]
        i = ops[position[s]]
        g = kind[i]
        if g == 2 or g == 3 or g == 4 or g == 5 or g == 6 or g == 10 or g == 12:
            x = lsu - p[P_LSU_QUEUE]
            if x > now + 1e-9:  # the queue has grown since
                stale[q] = 1
                continue
        stale[q] = 1
        free[q] = now + slots_used[i]
        issued += 1
        busy[U_ISSUE] += 1.0
        waits[7] += 1.0
        t_ready = max(since[s], ready[s])
        waits[reason[s]] += max(0.0, t_ready - since[s])
        gap = now - t_ready
        if gap > 0:
            if g == 1 and pipe[i] > 0 and gap >= 1.0:
                waits[3] += gap
            elif g >= 2 and g <= 12 and g != 7 and g != 8 and g != 9 and lsu - p[P_LSU_QUEUE] >= now - 1e-9:
                waits[4] += gap
            else:
                waits[6] += gap
        done = now + stall[i]
        b = s // warps
        r = accesses[position[s]]
        finish = now
        freed = now
        slow = 0
        position[s] += 1
        ended = position[s] >= last[s]
        extra_delay = 0.0
        if g == 1:
            f = pipe[i]
            if f == 1:
                h = 0 if half[q, 0] < half[q, 1] else 1
                half[q, h] = max(now, half[q, h]) + 2.0 * cost[i]
                busy[U_FMA] += cost[i]
            elif f == 2:
                half[q, 0] = max(now, half[q, 0]) + cost[i]
                busy[U_FMA] += cost[i] / 2.0
            elif f > 0:
                pipes[q, f] = now + cost[i]
                if f == 3:
                    busy[U_ALU] += cost[i]
                elif f == 4:
                    busy[U_XU] += cost[i]
                elif f == 5:
                    busy[U_FP64] += cost[i]
                elif f == 6:
                    busy[U_UNIFORM] += cost[i]
                elif f == 7:
                    busy[U_TENSOR] += cost[i]
            finish = now + latency[i]
            freed = now + 2.0
        elif g == 2 or g == 10:
            begun = max(now + p[P_LSU_DELAY], lsu)
            c = p[P_OFF]
            if g == 10:
                c = cost[i]
            elif r >= 0:
                c = max(float(r_waves[r]), data[i])
            lsu = begun + c
            busy[U_LSU] += c
            pipes[q, 0] = now + p[P_LSU_ISSUE]
            finish = begun + c - 1.0 + latency[i] - p[P_LSU_DELAY]
            freed = begun + c
        elif g == 11:
            c = cost[i]
            if c == 0.0:  # for all of a warp at once, on the uniform datapath
                finish = now + latency[i]
            elif r >= 0:
                constant = max(constant, now) + p[P_CONSTANT] * r_waves[r]
                busy[U_CONSTANT] += p[P_CONSTANT] * r_waves[r]
                finish = constant + latency[i]
            else:
                constant = max(constant, now) + c
                busy[U_CONSTANT] += c
                finish = constant + latency[i]
        elif g == 3 or g == 4 or g == 5 or g == 6 or g == 12:
            begun = max(now + p[P_LSU_DELAY], lsu)
            pipes[q, 0] = now + p[P_LSU_ISSUE]
            if g <= 5:  # 64-bit addresses pass where wide multiplications do
                half[q, 0] = max(now, half[q, 0]) + p[P_ADDRESS]
            finish = begun
            if r < 0 or r_space[r] == 0:
                c = p[P_OFF] if r < 0 else float(r_waves[r])
                lsu = begun + c
                busy[U_LSU] += c
                finish = begun + c + 23.0
                freed = lsu
            else:
                n = r_count[r]
                c = max(n * p[P_TAG], data[i])
                if g == 4 or (g == 6 and extra[i] == 1):
                    c = max(n * p[P_TAG], data[i] + p[P_STORE_EXTRA])
                elif g == 5:
                    c = max(n * p[P_TAG], p[P_RED] * r_serial[r])
                lsu = begun + c
                busy[U_LSU] += c
                freed = lsu
                step = c / n
                # a store to few lines costs less for each of them
                spread = p[P_WLINE_FEW] + (1.0 - p[P_WLINE_FEW]) * max(0.0, min(1.0, np.log2(n / 4.0) / 3.0))
                finish = begun + c
                for k in range(n):
                    line = lines[r_first[r] + k] + shift[b]
                    bits = sectors[r_first[r] + k]
                    at = begun + step * k
                    bank = ((line * 0x9E3779B1) & 0x7FFFFFFF) // 32768 % l1_sets
                    way = -1
                    for x in range(l1_ways):
                        if tags[bank, x] == line:
                            way = x
                            break
                    count = _sectors(bits)
                    if g == 3 or g == 12 or (g == 6 and extra[i] == 0):
                        missing = bits
                        if way >= 0:
                            missing = bits & ~valid[bank, way]
                        if missing == 0:
                            if g != 6:
                                counts[0] += count
                            used[bank, way] = at
                            there = max(at + latency[i] - p[P_LSU_DELAY], filled[bank, way])
                            if filled[bank, way] > at + latency[i]:
                                slow = 1
                            if there > finish:
                                finish = there
                            continue
                        need = _sectors(missing)
                        if g != 6:
                            counts[0] += count - need
                        if way < 0:
                            way = _victim(used, bank, l1_ways)
                            tags[bank, way] = line
                            valid[bank, way] = 0
                            filled[bank, way] = 0.0
                        counts[1] += need
                        u = max(need * p[P_L2_SECTOR], p[P_L2_LINE])
                        sent = max(at, l2)
                        l2 = sent + u
                        busy[U_L2] += u
                        moved += need * 32.0
                        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
                        there = l2 + p[P_LAT_L2] + p[P_L2_JITTER] * (seed / 1073741824.0 - 1.0)
                        slot = _slot(line, seen_mask)
                        if g != 6:
                            if seen[slot] != line or moved - seen_at[slot] > p[P_L2_WINDOW]:
                                seen[slot] = line
                                seen_parts[slot] = 0
                                seen_there[slot] = 0.0
                            elif seen_there[slot] > there:
                                there = seen_there[slot]  # fetched by another warp, on its way
                            seen_at[slot] = moved
                            unseen = missing & ~seen_parts[slot]
                            if unseen:
                                low, high = _halves(unseen)
                                seen_parts[slot] |= 3 * low + 12 * high  # DRAM is read in 64 bytes
                                owed[i] += dram_share[i]
                                if owed[i] >= 1.0:
                                    owed[i] -= 1.0
                                    u = 2.0 * p[P_DRAM_READ] * (1.0 + p[P_LONE] * lone[i])
                                    if low + high < 2:
                                        u = p[P_READ_ALONE] * lone[i] + p[P_DRAM_ISOLATED] * (1.0 - lone[i])
                                        u *= p[P_DRAM_READ]
                                    dram = max(dram, sent) + u
                                    busy[U_DRAM] += u
                                    filling = max(filling, sent) + 2.0 * (low + high) * p[P_L2_WSECTOR] * p[P_FILL]
                                    counts[2] += 2.0 * (low + high)
                                    load, writing, load_at = _loaded(
                                        load, writing, load_at, sent, u / p[P_LOAD_TIME], p[P_LOAD_TIME], 0.0
                                    )
                                    rho = min(load, p[P_LOAD_MOST])
                                    mixed = 1.0 + p[P_LOAD_MIXED] * writing / load
                                    mean = p[P_JITTER] + p[P_SPREAD] * rho / (rho + p[P_SOME_LOAD])
                                    mean += p[P_LOAD] * mixed * rho
                                    seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
                                    late = np.log((seed + 1.0) / 2147483649.0)
                                    seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
                                    late += np.log((seed + 1.0) / 2147483649.0)  # two exponentials in a row
                                    there = max(there, dram + p[P_LAT_DRAM] - late * mean / 2.0)
                                    seen_there[slot] = there
                        valid[bank, way] |= missing
                        used[bank, way] = at
                        if there > filled[bank, way]:
                            filled[bank, way] = there
                        if there > finish:
                            finish = there
                        slow = 1
                    elif g == 6:
                        if way < 0:
                            way = _victim(used, bank, l1_ways)
                            tags[bank, way] = line
                            valid[bank, way] = 0
                            filled[bank, way] = at
                        valid[bank, way] |= bits
                        used[bank, way] = at
                        u = max(count * p[P_L2_WSECTOR], p[P_L2_WLINE] * spread)
                        sent = max(at, out)
                        out = sent + u
                        busy[U_L2_WRITE] += u
                        counts[3] += count
                        moved += count * 32.0
                        slot = _slot(line, seen_mask)
                        if dirty[slot] != line:  # a thread's memory is used again by the next one in its place
                            low, high = _halves(bits)
                            u = (low + high) * p[P_DRAM_WRITE] * p[P_LOCAL_BACK]
                            dram = max(dram, sent) + u
                            busy[U_DRAM] += u
                            counts[4] += 2.0 * (low + high) * p[P_LOCAL_BACK]
                        dirty[slot] = line
                        dirty_at[slot] = moved
                        if out > stores[b]:
                            stores[b] = out
                    else:
                        if g == 4 and crowd[i] > 1.0:  # L2 takes one after the other; those that wait become one
                            same = line - shift[b]  # blocks that are followed again store to the same lines
                            slot = _slot(same, (1 << HOT_BITS) - 1)
                            if hot[slot] == same and at < hot_from[slot]:
                                if hot_until[slot] > stores[b]:
                                    stores[b] = hot_until[slot]
                                continue
                            hot_from[slot] = max(at, hot_until[slot]) if hot[slot] == same else at
                            hot_until[slot] = hot_from[slot] + p[P_CROWD] * crowd[i]
                            hot[slot] = same
                            if hot_until[slot] > stores[b]:
                                stores[b] = hot_until[slot]
                        u = p[P_L2_WLINE] * spread
                        if g == 4 and passes[r_first[r] + k] > 1:
                            u *= 1.0 + p[P_PARTIAL] * (passes[r_first[r] + k] - 1.0)
                        u = max(count * p[P_L2_WSECTOR], u)
                        if g == 5:
                            u = count * p[P_L2_WSECTOR]
                        sent = max(at, out)
                        out = sent + u
                        filling = max(filling, sent) + count * p[P_L2_WSECTOR]
                        busy[U_L2_WRITE] += u
                        if g == 5:
                            u = passes[r_first[r] + k] - (p[P_WHOLE] if bits == 15 else 0.0)
                            u *= p[P_ATOMIC]
                            atom = max(atom, sent) + u
                            busy[U_ATOMIC] += u
                            slot = _slot(line, seen_mask)
                            if seen[slot] != line or moved - seen_at[slot] > p[P_L2_WINDOW]:
                                seen[slot] = line
                                seen_parts[slot] = 0
                            seen_at[slot] = moved
                            unseen = bits & ~seen_parts[slot]
                            if unseen:
                                low, high = _halves(unseen)
                                seen_parts[slot] |= 3 * low + 12 * high
                                owed[i] += dram_share[i]
                                if owed[i] >= 1.0:  # read to be changed, and written back one day
                                    owed[i] -= 1.0
                                    u = (low + high) * (p[P_DRAM_READ] + p[P_DRAM_WRITE] * p[P_WRITE_BACK])
                                    if count == 1:
                                        u = p[P_DRAM_READ] * p[P_READ_ALONE]
                                        u += p[P_DRAM_WRITE] * p[P_WRITE_BACK] * p[P_WRITE_ALONE]
                                    dram = max(dram, sent) + u
                                    busy[U_DRAM] += u
                                    counts[2] += 2.0 * (low + high)
                                    counts[4] += 2.0 * (low + high) * p[P_WRITE_BACK]
                        counts[3] += count
                        moved += count * 32.0
                        if g == 4:
                            slot = _slot(line, seen_mask)
                            if dirty[slot] != line or moved - dirty_at[slot] > p[P_L2_WINDOW]:
                                dirty_parts[slot] = 0
                            fresh = bits & ~dirty_parts[slot]
                            if fresh:
                                dirty_parts[slot] |= bits
                                new = _sectors(fresh)
                                u = new / 2.0 * p[P_DRAM_WRITE] * p[P_WRITE_BACK]
                                u *= 1.0 + p[P_LONE] * lone[i]
                                dram = max(dram, sent) + u
                                busy[U_DRAM] += u
                                load, writing, load_at = _loaded(
                                    load, writing, load_at, sent, u / p[P_LOAD_TIME], p[P_LOAD_TIME], 1.0
                                )
                                counts[4] += new * p[P_WRITE_BACK]
                            dirty[slot] = line
                            dirty_at[slot] = moved
                            if seen[slot] != line:
                                seen[slot] = line
                                seen_parts[slot] = 0
                                seen_there[slot] = 0.0
                            seen_at[slot] = moved
                            seen_parts[slot] |= bits
                            if way < 0:
                                way = _victim(used, bank, l1_ways)
                                tags[bank, way] = line
                                valid[bank, way] = 0
                                filled[bank, way] = at
                                used[bank, way] = -1.0  # what is stored is the first to go
                            valid[bank, way] |= bits
                        else:
                            slow = 1
                            there = max(out, atom) + latency[i] - p[P_LSU_DELAY]
                            if there > finish:
                                finish = there
                            if atom > stores[b]:
                                stores[b] = atom
                        if out > stores[b]:
                            stores[b] = out
                # what has been sent on waits in queues of limited depth
                if dram - p[P_DRAM_QUEUE] > l2:
                    l2 = dram - p[P_DRAM_QUEUE]
                if dram - p[P_DRAM_QUEUE] > out:
                    out = dram - p[P_DRAM_QUEUE]
                if filling - p[P_L2_QUEUE] > out:
                    out = filling - p[P_L2_QUEUE]
                if filling - p[P_L2_QUEUE] > l2:
                    l2 = filling - p[P_L2_QUEUE]
                if l2 - p[P_L2_QUEUE] > lsu:
                    lsu = l2 - p[P_L2_QUEUE]
                if out - p[P_OUT_QUEUE] > lsu:
                    lsu = out - p[P_OUT_QUEUE]
                if atom - p[P_ATOMIC_QUEUE] > lsu:
                    lsu = atom - p[P_ATOMIC_QUEUE]
            if g == 12:
                copying[s] = max(copying[s], finish)
        elif g == 7:
            bar = max(bar, now) + p[P_BARRIER]
            busy[U_BARRIER] += p[P_BARRIER]
            k = int(cost[i])
            if arrived[b, k] == 0:
                held[b] += 1
            arrived[b, k] += 1
            arrival[b, k] = max(arrival[b, k], bar)
            expected[b, k] = (extra[i] + 31) // 32
            if data[i] == 0.0:
                waiting[s] = k
        elif g == 8:
            extra_delay = p[P_BRANCH]
        elif g == 13:
            extra_delay = latency[i]
        elif g == 14:
            groups[s] += 1
            group[s, groups[s] & 7] = copying[s]
            finish = copying[s]
            slow = 1
        elif g == 15:
            k = groups[s] - extra[i]
            if k > 0:
                done = max(done, group[s, k & 7])
        elif g == 16:
            finish = now + latency[i]
        elif g == 17:
            special = max(special, now) + p[P_SPECIAL]
            finish = special + latency[i]
        k = write[i]
        if k >= 0:
            board[s, k] = max(board[s, k], finish)
            long_board[s, k] = slow
        k = read[i]
        if k >= 0:
            board[s, k] = max(board[s, k], freed)
            long_board[s, k] = 0
        if ended:
            ready[s] = NEVER
            waiting[s] = -1
            living[b] -= 1
            if living[b] == 0:
                number = which[b]
                over = max(now, stores[b] + p[P_DRAIN]) if stores[b] > 0 else now
                end[number] = over
                finished += 1
                stores[b] = 0.0
                held[b] = 0
                for x in range(BARRIERS):
                    arrived[b, x] = 0
                    arrival[b, x] = 0.0
                which[b] = -1
                if launched < blocks:
                    launcher = max(launcher, over + p[P_GAP])
                    t = launcher + p[P_START]
                    launcher += p[P_INTERVAL]
                    which[b] = launched
                    living[b] = warps
                    shift[b] = (launched // traced) * span
                    begin[launched] = t
                    for w in range(warps):
                        z = b * warps + w
                        k = (launched % traced) * warps + w
                        position[z], last[z] = start[k], start[k + 1]
                        next_kind[z], next_pipe[z] = kind[ops[start[k]]], pipe[ops[start[k]]]
                        ready[z] = t + w * p[P_WARP_START]
                        since[z] = ready[z]
                        reason[z] = 5
                        for x in range(6):
                            board[z, x] = 0.0
                        copying[z] = 0.0
                        groups[z] = 0
                        for x in range(8):
                            group[z, x] = 0.0
                    launched += 1
                    for x in range(schedulers):
                        stale[x] = 1
        elif waiting[s] >= 0:
            ready[s] = NEVER
            since[s] = now + 1.0
            next_kind[s], next_pipe[s] = kind[ops[position[s]]], pipe[ops[position[s]]]
        else:
            next_kind[s], next_pipe[s] = kind[ops[position[s]]], pipe[ops[position[s]]]
            nxt = wait[ops[position[s]]]
            t = done + extra_delay
            why = 5 if extra_delay == 0.0 else 8
            if nxt:
                for k in range(6):
                    if nxt >> k & 1 and board[s, k] > t:
                        t = board[s, k]
                        why = 0 if long_board[s, k] else 1
            ready[s] = t
            since[s] = now + 1.0
            reason[s] = why
        # -- a barrier that all have reached ---------------------------------------------------------------------------
        if (g == 7 or ended) and which[b] >= 0 and held[b] > 0:
            for k in range(BARRIERS):
                if arrived[b, k] == 0:
                    continue
                needed = living[b]
                if expected[b, k] > 0:
                    needed = min(needed, expected[b, k])
                if arrived[b, k] < needed:
                    continue
                free_at = arrival[b, k] + latency[i] if g == 7 else arrival[b, k]
                held[b] -= 1
                arrived[b, k] = 0
                arrival[b, k] = 0.0
                for w in range(warps):
                    z = b * warps + w
                    if waiting[z] == k:
                        waiting[z] = -1
                        nxt = wait[ops[position[z]]]
                        t = free_at
                        for x in range(6):
                            if nxt >> x & 1 and board[z, x] > t:
                                t = board[z, x]
                        ready[z] = t
                        reason[z] = 2
                for x in range(schedulers):
                    stale[x] = 1
    counts[5] = now
    return issued
