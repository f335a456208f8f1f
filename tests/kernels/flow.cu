// Divergence, one question a kernel: which lanes go where is data, in[i], so that one kernel serves for many patterns.
// Each reads v = in[i] and a table t behind the n values of in, and writes out[i + n].  MARK(k) is nothing here; with
// TRACE defined each lane notes there k + 1, the lanes that execute with it, and a clock, behind the results.
#ifdef TRACE
#define STEPS 96
__shared__ int *trace_base;
__shared__ int trace_count[128];
#define MARK(k)                                                                                              \
    {                                                                                                        \
        int *entry = trace_base + (threadIdx.x * STEPS + min(trace_count[threadIdx.x]++, STEPS - 1)) * 3;    \
        unsigned mask, now;                                                                                  \
        asm volatile("activemask.b32 %0;\n\tmov.u32 %1, %%clock;" : "=r"(mask), "=r"(now) : : "memory");     \
        entry[0] = k + 1; entry[1] = mask; entry[2] = now;                                                   \
    }
#define START                                                                                                \
    trace_count[threadIdx.x] = 0;                                                                            \
    if (threadIdx.x == 0) trace_base = out + 2 * n + blockIdx.x * blockDim.x * STEPS * 3;                    \
    __syncthreads();
#else
#define MARK(k)
#define START
#endif
#define KERNEL(name) extern "C" __global__ void name(const int *in, int *out, int n)
#define INDEX START int i = blockIdx.x * blockDim.x + threadIdx.x; int v = in[i], s = 0; const int *t = in + n
#define DONE MARK(99) out[i + n] = s
#define SLOW __device__ __noinline__ int

// -- recursion: depth, from one place, from two, twice in a row, from a loop, mutual ---------------------------------
SLOW sink(int x, const int *t) { MARK(0) if (x <= 0) { MARK(1) return t[0]; } int r = sink(x - 1, t) + t[x & 15]; MARK(2) return r; }
KERNEL(recurse_one) { INDEX; s = sink(v & 15, t); DONE; }

SLOW fork(int x, const int *t)
{
    MARK(0)
    if (x <= 0) { MARK(1) return t[0]; }
    if (x & 1) { int r = fork(x - 1, t) + t[x & 31]; MARK(2) return r; }
    int r = fork(x - 3, t) - t[x & 15];
    MARK(3)
    return r;
}
KERNEL(recurse_two) { INDEX; s = fork(v & 15, t); DONE; }

SLOW tree(int x, const int *t) { MARK(0) if (x < 2) return x; int a = tree(x - 1, t); MARK(1) int b = tree(x - 2, t); MARK(2) return a + b + t[x & 7]; }
KERNEL(recurse_tree) { INDEX; s = tree(v & 3, t); DONE; }

SLOW bits(int x, const int *t) { MARK(0) int r = t[x & 7]; if (x & 1) { r += bits(x >> 1, t); MARK(1) } if (x & 2) { r ^= bits(x >> 2, t); MARK(2) } return r; }
KERNEL(recurse_bits) { INDEX; s = bits(v & 63, t); DONE; }

SLOW odd(int x, const int *t);
SLOW even(int x, const int *t) { MARK(0) if (x <= 0) return t[1]; int r = odd(x - 1, t) + t[x & 15]; MARK(1) return r; }
SLOW odd(int x, const int *t) { MARK(2) if (x <= 0) return t[2]; int r = x & 4 ? even(x - 1, t) : even(x - 2, t) * t[x & 3]; MARK(3) return r; }
KERNEL(recurse_mutual) { INDEX; s = v & 16 ? even(v & 7, t) : odd(v & 7, t); DONE; }

SLOW looped(int x, const int *t) { int r = t[x & 7]; MARK(0) for (int k = 0; k < (x & 3); k++) { r += looped(x >> 2, t); MARK(1) } return r; }
KERNEL(recurse_loop) { INDEX; s = looped(v & 63, t); DONE; }

// -- switches: their bodies differ, so that the compiler cannot make a table of values -------------------------------
#define CASE(k, body) case k: MARK(k) body; break;
#define FOUR(a) CASE(a, s = t[v & 15] * 3) CASE(a + 1, s = t[v & 7] ^ t[3]; out[i + n] = 4)                 \
    CASE(a + 2, for (int k = 0; k < (v >> 4 & 3); k++) s += t[s + k & 15]) CASE(a + 3, s = t[v >> 5 & 7] - t[a])
KERNEL(switch_4) { INDEX; switch (v & 7) { FOUR(0) } DONE; }
KERNEL(switch_8) { INDEX; switch (v & 15) { FOUR(0) FOUR(4) } DONE; }
KERNEL(switch_16) { INDEX; switch (v & 15) { FOUR(0) FOUR(4) FOUR(8) FOUR(12) } DONE; }
KERNEL(switch_16_default) { INDEX; switch (v & 31) { FOUR(0) FOUR(4) FOUR(8) FOUR(12) default: s = t[5]; MARK(17) } DONE; }
KERNEL(switch_through) {
    INDEX;
    switch (v & 15) {
        case 0: MARK(0) s += t[1];
        case 1: MARK(1) s ^= t[s & 7];
        case 2: MARK(2) s += t[s & 3]; break;
        case 3: MARK(3) s -= t[4];
        case 4: MARK(4) s *= t[s & 7];
        case 5: MARK(5) out[i + n] = 3; break;
        case 6: MARK(6) s = t[6];
        case 7: MARK(7) s ^= t[s & 15]; break;
        case 8: MARK(8) s = t[v >> 4 & 7] - 3;
        default: MARK(9) s += t[2];
    }
    DONE;
}
KERNEL(switch_loop) {
    INDEX;
    for (int k = 0; k < 6; k++) {
        switch (v >> k & 7) {
            case 0: MARK(0) s += t[k]; break;
            case 1: MARK(1) s ^= t[s & 7]; continue;
            case 2: MARK(2) out[i + n] = s; break;
            case 3: MARK(3) s -= t[s & 15]; if (v & 256) goto end; break;
            case 4: MARK(4) s *= t[k + 3]; break;
            case 5: MARK(5) for (int j = 0; j < (s & 3); j++) s += t[j]; continue;
            case 6: MARK(6) if (v & 512) { out[i + n] = 7; return; } s = t[s & 3]; break;
        }
        MARK(7)
        s += t[s & 7];
    }
end:
    DONE;
}

// Indirect branches (BRX), which this compiler makes of no switch: the arms differ in length.
#ifdef TRACE
#define NOTE " activemask.b32 %1; mov.u32 %2, %%clock;"
#define NOTED(k)                                                                                             \
    {                                                                                                        \
        int *entry = trace_base + (threadIdx.x * STEPS + min(trace_count[threadIdx.x]++, STEPS - 1)) * 3;    \
        entry[0] = k + 1; entry[1] = mask; entry[2] = now;                                                   \
    }
#else
#define NOTE ""
#define NOTED(k)
#endif
#define ARM(k, more) "L" #k ":" NOTE " ld.global.b32 %0, [%4 + " #k "*4]; " more " bra.uni END;\n\t"
#define ADD "add.s32 %0, %0, %3;"
#define MUL "mul.lo.s32 %0, %0, %0; add.s32 %0, %0, 5;"
#define PUT "st.global.b32 [%5], %0; xor.b32 %0, %0, 3;"
#define INDIRECT(index, targets, arms)                                                                       \
    {                                                                                                        \
        int r; unsigned mask = 0, now = 0; int chosen = index;                                               \
        asm volatile("{\n\tlist: .branchtargets " targets ";\n\tbrx.idx %3, list;\n\t" arms "END:\n\t}"       \
            : "=&r"(r), "+r"(mask), "+r"(now) : "r"(chosen), "l"(t), "l"(out + i + n) : "memory");           \
        NOTED(20 + chosen) s += r;                                                                           \
    }
KERNEL(indirect_4) { INDEX; INDIRECT(v & 3, "L0, L1, L2, L3", ARM(0, "") ARM(1, ADD) ARM(2, MUL) ARM(3, PUT)) DONE; }
KERNEL(indirect_turned) { INDEX; INDIRECT(v & 3, "L2, L0, L3, L1", ARM(0, "") ARM(1, ADD) ARM(2, MUL) ARM(3, PUT)) DONE; }
KERNEL(indirect_shared) {  // several indices lead to one arm
    INDEX; INDIRECT(v & 7, "L0, L2, L1, L2, L3, L0, L3, L2", ARM(0, "") ARM(1, ADD) ARM(2, MUL) ARM(3, PUT)) DONE;
}
#define ARMS_16                                                                                              \
    ARM(0, "") ARM(1, ADD) ARM(2, MUL) ARM(3, PUT) ARM(4, ADD MUL) ARM(5, MUL ADD) ARM(6, PUT MUL)           \
    ARM(7, PUT ADD) ARM(8, MUL PUT) ARM(9, ADD PUT) ARM(10, MUL MUL) ARM(11, PUT PUT) ARM(12, MUL MUL ADD)   \
    ARM(13, ADD MUL PUT) ARM(14, MUL PUT ADD) ARM(15, MUL ADD MUL)
#define ALL_16 "L0, L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11, L12, L13, L14, L15"
KERNEL(indirect_16) { INDEX; INDIRECT(v & 15, ALL_16, ARMS_16) DONE; }
KERNEL(indirect_nested) { INDEX; if (v & 16) INDIRECT(v & 15, ALL_16, ARMS_16) else { MARK(0) s = t[v & 7]; } s += t[s & 3]; DONE; }
KERNEL(indirect_loop) { INDEX; for (int k = 0; k < (v >> 6 & 7); k++) INDIRECT(v >> k & 3, "L0, L1, L2, L3", ARM(0, "") ARM(1, ADD) ARM(2, MUL) ARM(3, PUT)) DONE; }

// -- chains of conditions ------------------------------------------------------------------------------------------------
#define BIT(k) ((v >> k & 1) == (t[k] & 1))
KERNEL(and_3) { INDEX; if (BIT(0) && BIT(1) && BIT(2)) { MARK(0) s = t[v & 7] + 1; } DONE; }
KERNEL(and_6) { INDEX; if (BIT(0) && BIT(1) && BIT(2) && BIT(3) && BIT(4) && BIT(5)) { MARK(0) s = t[v & 7] + 1; } DONE; }
KERNEL(or_3) { INDEX; if (BIT(0) || BIT(1) || BIT(2)) { MARK(0) s = t[v & 7] + 1; } DONE; }
KERNEL(or_6) { INDEX; if (BIT(0) || BIT(1) || BIT(2) || BIT(3) || BIT(4) || BIT(5)) { MARK(0) s = t[v & 7] + 1; } DONE; }
KERNEL(and_or) { INDEX; if (BIT(0) && (BIT(1) || BIT(2))) { MARK(0) s = t[v & 7] + 1; } DONE; }
KERNEL(or_and) { INDEX; if (BIT(0) && BIT(1) || BIT(2) && BIT(3)) { MARK(0) s = t[v & 7] + 1; } else { MARK(1) s = t[v & 15] * 2; } DONE; }
KERNEL(and_or_nested) {
    INDEX;
    if (BIT(0) && (BIT(1) || BIT(2) && (BIT(3) || BIT(4)))) { MARK(0) s = t[v & 7] + 1; } else { MARK(1) if (BIT(5) || BIT(6)) s = t[v & 3]; }
    DONE;
}
KERNEL(or_and_loop) { INDEX; for (int k = 0; k < 4 && (BIT(k) || BIT(k + 1) && BIT(k + 2)); k++) { MARK(0) s += t[s + k & 15]; } DONE; }

// -- loops that are left in many ways -----------------------------------------------------------------------------------
KERNEL(loop_break) { INDEX; for (int k = 0; k < (v & 7); k++) { MARK(0) s += t[s + k & 15]; if (v >> 3 == k) break; MARK(1) s ^= t[k]; } DONE; }
KERNEL(loop_return) { INDEX; for (int k = 0; k < (v & 7); k++) { MARK(0) s += t[s + k & 15]; if ((v >> 3 & 7) == k) { out[i + n] = 5; return; } MARK(1) } DONE; }
KERNEL(loop_goto) {
    INDEX;
    for (int a = 0; a < (v & 3); a++)
        for (int b = 0; b < (v >> 2 & 3); b++) {
            MARK(0)
            s += t[s + b & 15];
            if ((v >> 4 & 15) == a * 4 + b) goto out_of_both;
            if (v & 256) { MARK(1) s ^= t[b]; break; }
            if (v & 512) { MARK(2) continue; }
            s += t[a];
        }
    s += t[7];
    MARK(3)
out_of_both:
    DONE;
}
KERNEL(loop_nested) {
    INDEX;
    for (int a = 0; a < (v & 3); a++) {
        MARK(0)
        if (v >> 6 & 1) { for (int b = 0; b < (v >> 2 & 3); b++) { MARK(1) s += t[s + b & 15]; if (s & 1) break; } }
        else for (int b = 0; b < (v >> 4 & 3); b++) { MARK(2) s ^= t[s + b & 15]; if (s & 2) continue; s += t[b]; }
        MARK(3)
    }
    DONE;
}
KERNEL(loop_states) {  // a small machine of states with jumps into the middle
    INDEX; int k = 0;
    if (v & 1) goto b;
a:  MARK(0) s += t[k & 15]; if (k++ > 5) goto end;
    if (v >> k & 1) goto c;
b:  MARK(1) s ^= t[s & 7]; if (k++ > 5) goto end;
    if (v >> k & 1) goto a;
c:  MARK(2) s -= t[s & 3]; if (k++ > 5) goto end;
    if (v >> k & 1) goto b;
    goto a;
end: DONE;
}

// -- calls under conditions ---------------------------------------------------------------------------------------------
SLOW part(int x, const int *t) { MARK(10) int r = 0; for (int k = 0; k < (x & 3); k++) { MARK(11) r += t[r + k & 15]; } return r; }
SLOW early(int x, const int *t) { MARK(12) if (x & 1) return t[x & 7]; int r = part(x >> 1, t); MARK(13) return x & 8 ? r : r ^ t[r & 7]; }
KERNEL(call_sides) { INDEX; if (v & 1) { MARK(0) s = part(v >> 1, t); MARK(1) } else { MARK(2) s = part(v >> 3, t) * 3; MARK(3) } s += t[s & 3]; DONE; }
KERNEL(call_early) { INDEX; if (v & 1) { s = early(v >> 1, t); MARK(0) if (v & 32) s += part(v >> 2, t); MARK(1) } s ^= early(v >> 3, t); DONE; }
KERNEL(call_switch) {
    INDEX;
    switch (v & 7) {
        case 0: s = part(v >> 3, t); MARK(0) break;
        case 1: s = early(v >> 3, t) + 1; MARK(1) break;
        case 2: s = part(v >> 4, t) ^ t[3]; MARK(2) break;
        case 3: s = early(v >> 2, t); MARK(3) s += part(s, t); break;
        case 4: out[i + n] = t[2]; MARK(4) break;
        case 5: s = part(v >> 2, t); if (s & 1) return; MARK(5) break;
    }
    DONE;
}
KERNEL(call_loop) { INDEX; for (int k = 0; k < (v & 3); k++) { if (v >> (2 + k) & 1) s += early(v >> k, t); else s ^= part(s + k, t); MARK(0) if (s & 64) break; } DONE; }

// -- votes and warp barriers --------------------------------------------------------------------------------------------
KERNEL(vote_sides) {
    INDEX;
    if (v & 1) { if (v & 2) s = t[v & 7]; s += __popc(__activemask()); MARK(0) } else { for (int k = 0; k < (v >> 1 & 3); k++) s += t[k]; s ^= __activemask(); MARK(1) }
    DONE;
}
KERNEL(vote_loop) { INDEX; for (int k = 0; k < (v & 7); k++) { s += __popc(__ballot_sync(__activemask(), v >> k & 1)); MARK(0) if (v & 64 && s > 20) break; s += t[k]; } DONE; }
KERNEL(warp_sides) {  // both sides meet in different warp barriers
    INDEX; unsigned m = __ballot_sync(~0u, v & 1);
    if (v & 1) { if (v & 2) { MARK(0) s = t[v & 7]; } __syncwarp(m); MARK(1) s += t[s & 3]; }
    else { if (v & 4) { MARK(2) s = t[v >> 1 & 7]; } __syncwarp(~m); MARK(3) s ^= t[s & 7]; }
    __syncwarp(); MARK(4)
    s += t[s & 1];
    DONE;
}
KERNEL(warp_all) {  // all lanes meet, from inside of both sides
    INDEX;
    if (v & 1) { if (v & 2) { MARK(0) s = t[v & 7]; } __syncwarp(); MARK(1) s += t[s & 3]; } else { if (v & 4) { MARK(2) s = t[v >> 1 & 7]; } __syncwarp(); MARK(3) s ^= t[s & 7]; }
    DONE;
}
KERNEL(warp_loop) {
    INDEX; unsigned m = __ballot_sync(~0u, v & 1);
    if (v & 1) for (int k = 0; k < 3; k++) { if (v >> k & 2) { MARK(0) s += t[s + k & 7]; } __syncwarp(m); MARK(1) s ^= t[k]; }
    else for (int k = 0; k < (v >> 5 & 3); k++) { MARK(2) s += t[k]; }
    DONE;
}

// -- block barriers inside of conditions --------------------------------------------------------------------------------
KERNEL(block_sides) {
    INDEX;
    if (v & 1) { if (v & 2) { MARK(0) s = t[v & 7]; } __syncthreads(); MARK(1) s += t[s & 3]; }
    else { for (int k = 0; k < (v >> 1 & 3); k++) { MARK(2) s += t[k]; } __syncthreads(); MARK(3) s ^= t[s & 7]; }
    DONE;
}
KERNEL(block_region) {  // the lanes of an outer region wait while an inner one is at a block barrier
    INDEX;
    if (v & 1) {
        MARK(0)
        if (v & 2) { MARK(1) s = t[v & 7]; __syncthreads(); MARK(2) s += t[1]; }
        else { MARK(3) if (v & 4) s = t[v >> 3 & 3]; __syncthreads(); MARK(4) s ^= t[s & 3]; }
        MARK(5) s += t[s & 1];
    } else { MARK(6) __syncthreads(); s = t[9]; MARK(7) }
    DONE;
}
KERNEL(block_exit) { INDEX; if (v & 1) { if (v & 2) { out[i + n] = 1; return; } MARK(0) s = t[v & 7]; } MARK(1) __syncthreads(); if (v & 4) { MARK(2) s += t[v & 3]; } __syncthreads(); DONE; }
