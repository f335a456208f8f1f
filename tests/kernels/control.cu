// Control flow in many shapes: each kernel reads in[i], works on it, and writes out[i].
// Used to compare executed counts per instruction with the hardware's.
#define KERNEL(name) extern "C" __global__ void name(const int* in, int* out, int n)
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x

KERNEL(one_side) { INDEX; if (i >= n) return; int v = in[i]; if (v & 1) { out[i + n] = v; v = v * 3 + out[i]; } out[i] = v; }

KERNEL(both_sides) {
    INDEX; if (i >= n) return;
    int v = in[i];
    if (v % 3 == 0) { for (int k = 0; k < 5; k++) v = v * 7 + out[(i + k) % n]; }
    else            { for (int k = 0; k < 9; k++) v = v * 5 - out[(i + 2 * k) % n]; }
    out[i + n] = v;
}

KERNEL(tie_lanes) {  // exactly half of the lanes on each side
    INDEX; if (i >= n) return;
    int v = in[i];
    if (threadIdx.x & 1) { for (int k = 0; k < 4; k++) v += out[(i + v + k) & 15]; }
    else                 { for (int k = 0; k < 6; k++) v -= out[(i - v + k) & 15]; }
    out[i + n] = v;
}

KERNEL(nested) {
    INDEX; if (i >= n) return;
    int v = in[i], s = 0;
    if (v & 1) {
        if (v & 2) { for (int k = 0; k < (v & 7); k++) s += out[(k + i) & 31]; }
        else if (v & 4) { s = out[v & 31] * 3; if (s > 10) s -= out[s & 31]; }
        else s = 7;
    } else {
        if (v & 8) s = out[(v >> 3) & 31]; else { s = v; if (v & 16) { s += out[v & 15]; } }
    }
    out[i + n] = s;
}

KERNEL(loop_count) { INDEX; if (i >= n) return; int v = in[i] & 15, s = 0; for (int k = 0; k < v; k++) s += out[(s + k) & 63]; out[i + n] = s; }

KERNEL(loop_while) {  // Collatz steps
    INDEX; if (i >= n) return;
    unsigned v = (in[i] & 1023) + 1; int steps = 0;
    while (v != 1) { v = v & 1 ? 3 * v + 1 : v / 2; steps++; if (out[steps & 63] == 12345) break; }
    out[i + n] = steps;
}

KERNEL(loop_break_continue) {
    INDEX; if (i >= n) return;
    int v = in[i], s = 0;
    for (int k = 0; k < 40; k++) {
        int w = out[(v + k) & 63];
        if ((w ^ k) % 5 == 0) continue;
        s += w;
        if (s % 11 == 3) break;
        if (s & 64) { s -= out[s & 63]; continue; }
        s ^= k;
    }
    out[i + n] = s;
}

KERNEL(nested_loops) {
    INDEX; if (i >= n) return;
    int v = in[i], s = 0;
    for (int a = 0; a < (v & 7); a++)
        for (int b = 0; b < ((v >> a) & 7); b++) s += out[(a * 8 + b + s) & 63];
    out[i + n] = s;
}

KERNEL(early_exit) {
    INDEX; if (i >= n) return;
    int v = in[i];
    if (v & 1) return;
    v += out[v & 63];
    if (v & 2) { out[i + n] = v; return; }
    v += out[v & 31];
    out[i + n] = v * 2;
}

KERNEL(short_circuit) {
    INDEX; if (i >= n) return;
    int v = in[i], s = 0;
    if ((v & 1) && out[v & 63] > 20 && (v & 4 || out[(v >> 2) & 63] < 40)) s = out[v & 7] + 1;
    if ((v & 8) || (out[(v >> 1) & 63] & 1 && v & 16)) s += out[v & 3];
    out[i + n] = s;
}

KERNEL(switch_dense) {
    INDEX; if (i >= n) return;
    int v = in[i], s = v;
    switch (v & 7) {
        case 0: s = out[v & 31] * 3; break;
        case 1: s = out[v & 15] + out[v & 7]; break;
        case 2: for (int k = 0; k < 3; k++) s += out[(s + k) & 63]; break;
        case 3: s ^= out[1]; s *= out[2]; break;
        case 4: s = s / (out[3] | 1); break;
        case 5: if (v & 16) s = out[5]; else s = out[6] - out[7]; break;
        case 6: s = s % (out[8] | 3); break;
        default: s = -s + out[9]; break;
    }
    out[i + n] = s;
}

__device__ __noinline__ int helper(int x, const int* t) { int s = 0; for (int k = 0; k < (x & 3); k++) s += t[(x + k) & 63]; return s; }
__device__ __noinline__ int helper2(int x, const int* t) { if (x & 1) return t[x & 31]; return helper(x >> 1, t) + 1; }
KERNEL(calls) { INDEX; if (i >= n) return; int v = in[i]; int s = v & 4 ? helper(v, out) : helper2(v, out); if (v & 8) s += helper(v >> 2, out); out[i + n] = s; }

__device__ __noinline__ int depth(int x, const int* t) { if (x <= 0) return t[0]; if (x & 1) return depth(x - 1, t) + t[x & 31]; return depth(x - 3, t) - t[x & 15]; }
KERNEL(recursion) { INDEX; if (i >= n) return; out[i + n] = depth(in[i] & 15, out); }

__device__ __noinline__ int fib(int x) { return x < 2 ? x : fib(x - 1) + fib(x - 2); }
KERNEL(recursion_twice) { INDEX; if (i >= n) return; out[i + n] = fib(in[i] & 7); }

KERNEL(warp_mask) {  // shuffles under a condition, by groups of lanes
    INDEX; if (i >= n) return;
    int v = in[i];
    unsigned m = __ballot_sync(__activemask(), v & 1);
    if (v & 1) { v += __shfl_sync(m, v, __ffs(m) - 1); v += __popc(m); }
    out[i + n] = v;
}

KERNEL(half_shuffle) { INDEX; int v = i < n ? in[i] : 0; if ((threadIdx.x & 31) < 16) { for (int d = 8; d; d >>= 1) v += __shfl_xor_sync(0xffff, v, d); } if (i < n) out[i + n] = v; }

// lanes that do not exist in a partial last warp must not be read: the exchange stays within 1 lane there
KERNEL(full_shuffle) { INDEX; int v = i < n ? in[i] : 0; int last = blockDim.x - 1 & 31; if (threadIdx.x / 32 != blockDim.x / 32) last = 31; for (int d = 16; d; d >>= 1) { int w = __shfl_sync(0xffffffff, v, (threadIdx.x ^ d) & last & 31); v += w; } if (i < n) out[i + n] = v; }

KERNEL(syncwarp_loop) {
    __shared__ int s[1024];
    INDEX; int t = threadIdx.x; s[t] = i < n ? in[i] : 0;
    for (int k = 0; k < 3; k++) { int v = s[t ^ 1 < blockDim.x ? t ^ 1 : t]; if (v & 1) v = v * 3 + out[v & 31]; __syncwarp(); s[t] = v + k; __syncwarp(); }
    if (i < n) out[i + n] = s[t];
}

KERNEL(barrier_loop) {
    __shared__ int s[1024];
    INDEX; int t = threadIdx.x; s[t] = i < n ? in[i] : 0; __syncthreads();
    for (int k = 1; k < blockDim.x; k *= 2) { int v = 0; if (t >= k) v = s[t - k]; __syncthreads(); s[t] += v; __syncthreads(); }
    if (i < n) out[i + n] = s[t];
}

KERNEL(barrier_count) { INDEX; int v = i < n ? in[i] : 0; int c = __syncthreads_count(v & 1); int a = __syncthreads_and(v != 3); int o = __syncthreads_or(v == 5); if (i < n) out[i + n] = c * 4 + a * 2 + (o != 0); }

KERNEL(divide) { INDEX; if (i >= n) return; int v = in[i]; out[i + n] = v / (out[i & 31] | 1) + v % (out[i & 15] | 1); }

KERNEL(float_divide) { INDEX; if (i >= n) return; float a = __int_as_float(in[i]), b = __int_as_float(in[(i + 1) % n]); float q = a / b; out[i + n] = __float_as_int(q == q ? q : 0.f); }

KERNEL(local_array) { INDEX; if (i >= n) return; int a[16]; for (int k = 0; k < 16; k++) a[k] = out[(i + k) & 63]; int v = in[i], s = 0; for (int k = 0; k < 8; k++) { s += a[(v + k * 3) & 15]; a[(s + k) & 15] = s; } out[i + n] = s + a[v & 15]; }

__constant__ int table[64] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
KERNEL(constant_index) { INDEX; if (i >= n) return; int v = in[i]; out[i + n] = table[v & 15] + table[(v >> 4) & 63]; }

__device__ int counter[4] = {10, 20, 30, 40};
KERNEL(atomics) { INDEX; if (i >= n) return; int v = in[i]; atomicAdd(&counter[v & 3], v & 7); atomicMax(&counter[2], v & 1023); if (v & 1) atomicXor(&out[n + (v & 31)], v); }

KERNEL(aggregated) { INDEX; if (i >= n) return; if (in[i] & 1) atomicAdd(&out[n], 1); }
