// Unusual but legal kernels: each stresses something that an ordinary kernel does not use.
// The references are in tests/test_strange_kernels.py, under the same names.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda_pipeline.h>
#define KERNEL extern "C" __global__ void

// -- shapes ----------------------------------------------------------------------------------------------------------
KERNEL odd_shape(int* out) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
        threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x + 10000 * blockIdx.y +
        100000 * blockIdx.z + (gridDim.z << 20);
}

KERNEL one_thread(float* out, const float* in, int n) {
    const int i = blockIdx.x;
    if (i < n) out[i] = in[n - 1 - i] * 2.f + 1.f;
}

KERNEL nothing_at_all() {}

KERNEL transpose_planes(float* out, const float* in, int w, int h) {
    __shared__ float tile[3][8][9];
    const int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, z = threadIdx.z + 3 * blockIdx.z;
    if (x < w && y < h) tile[threadIdx.z][threadIdx.y][threadIdx.x] = in[(z * h + y) * w + x];
    __syncthreads();
    const int u = blockIdx.y * 8 + threadIdx.x, v = blockIdx.x * 8 + threadIdx.y;
    if (u < h && v < w) out[(z * w + v) * h + u] = tile[threadIdx.z][threadIdx.x][threadIdx.y];
}

// -- memory spaces ---------------------------------------------------------------------------------------------------
KERNEL dynamic_and_static(int* out, const int* in, int n) {
    extern __shared__ int dynamic[];
    __shared__ int fixed[40];
    const int t = threadIdx.x;
    short* halves = (short*)(dynamic + n);
    dynamic[t] = in[t];
    halves[t] = (short)(in[t] ^ 0x55);
    if (t < 40) fixed[t] = in[t] * 3;
    __syncthreads();
    out[t] = dynamic[n - 1 - t] + fixed[t % 40] + halves[(t * 7) % n];
}

struct Parameters { int a; float b; double c; };
__constant__ int words[64] = {5, 4, 3, 2, 1, 100, 200, -7};
__constant__ unsigned char bytes[16] = {1, 2, 3, 250, 251, 252};
__constant__ short shorts[8] = {-1, -2, 3, -30000};
__constant__ Parameters sets[3] = {{1, 2.f, 3.0}, {4, 5.f, 6.0}, {7, 8.f, 9.0}};

KERNEL constants_by_lane(int* out, double* sums) {
    const int t = threadIdx.x;
    out[t] = words[t % 9] + bytes[t % 7] + shorts[t & 3];
    sums[t] = sets[t % 3].c + sets[(t + 1) % 3].b + sets[(t + 2) % 3].a;
}

__device__ int counter = 5;
__device__ float kept[32];
__device__ long long large = 1LL << 40;

KERNEL change_globals() {
    atomicAdd(&counter, 1);
    kept[threadIdx.x] += threadIdx.x * 0.5f;
    if (threadIdx.x == 0) large += 1;
}

KERNEL read_globals(float* out, long long* numbers) {
    out[threadIdx.x] = kept[threadIdx.x];
    if (threadIdx.x == 0) { numbers[0] = large; numbers[1] = counter; }
}

KERNEL local_arrays(int* out, const int* index, int n) {
    int a[24];
    unsigned char b[10];
    short c[6];
    long long d[5];
    const int t = threadIdx.x;
    for (int i = 0; i < 24; i++) a[i] = i * t;
    for (int i = 0; i < 10; i++) b[i] = i * 31 + t;
    for (int i = 0; i < 6; i++) c[i] = -i * 1000 - t;
    for (int i = 0; i < 5; i++) d[i] = (long long)i << 33 | t;
    int s = 0;
    for (int k = 0; k < n; k++) {
        const int j = index[t * n + k];
        a[j % 24] += k;
        s += a[(j * 5) % 24] + b[j % 10] + c[j % 6] + (int)(d[j % 5] >> 31);
        b[(j + 3) % 10] ^= j;
        c[j % 6] = s;
    }
    out[t] = s;
}

KERNEL generic_pointers(int* out, const int* in) {  // into shared, local and global memory within one warp
    __shared__ int shared[32];
    int local[4], *p;
    const int t = threadIdx.x;
    shared[t & 31] = 0;
    for (int i = 0; i < 4; i++) local[i] = t + i;
    __syncthreads();
    if (t % 3 == 0) p = &shared[t & 31];
    else if (t % 3 == 1) p = &local[in[t] & 3];
    else p = out + 64 + t;
    *p += in[t];
    __syncthreads();
    out[t] = *p + local[in[t] & 3];
}

KERNEL across_4_gib(float* out, const float* in, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = in[i] + in[(i + 1) % n];
    out[n + i] = *(const float*)((const char*)in + (size_t)4 * (n - 1 - i));
}

KERNEL volatile_words(volatile int* out, const volatile int* in) {
    __shared__ volatile int s[64];
    const int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    if (t < 32) {
        s[t] = s[t] + s[t + 32];
        __syncwarp();
        if (t < 16) { const int v = s[t] + s[t + 16]; __syncwarp(0xffff); s[t] = v; }
    }
    __syncthreads();
    out[t] = s[t];
    out[t] = out[t] + 1;
}

KERNEL pipeline(float* out, const float* in, int n) {  // two stages of cp.async
    __shared__ __align__(16) float stage[2][256];
    const int t = threadIdx.x;
    for (int k = 0; k < n + 1; k++) {
        if (k < n) { __pipeline_memcpy_async(&stage[k & 1][t * 4], in + k * 256 + t * 4, 16); __pipeline_commit(); }
        if (k == 0) continue;
        __pipeline_wait_prior(k < n ? 1 : 0);
        __syncthreads();
        float v = 0;
        for (int j = 0; j < 4; j++) v += stage[(k - 1) & 1][(t * 4 + j * 37) % 256];
        out[(k - 1) * 64 + t] = v;
        __syncthreads();
    }
}

// -- parameters ------------------------------------------------------------------------------------------------------
struct __align__(16) Quad { float4 v; };
struct Mixed { char c; int i; short s[3]; double d; Quad q; unsigned char u; };

KERNEL struct_by_value(Mixed m, float* out, int k) {
    if (threadIdx.x) return;
    out[0] = m.c; out[1] = m.i; out[2] = m.s[0]; out[3] = m.s[2]; out[4] = (float)m.d;
    out[5] = m.q.v.x; out[6] = m.q.v.w; out[7] = m.u; out[8] = m.s[k]; out[9] = k;
}

#pragma pack(push, 1)
struct Packed { char c; int i; double d; short s; };
#pragma pack(pop)

KERNEL unaligned_fields(Packed* array, Packed value, int n) {
    const int t = threadIdx.x;
    if (t >= n) return;
    array[t].i += value.i;
    array[t].d *= value.d;
    array[t].s -= t;
    array[t].c ^= value.c;
}

struct Large { int v[900]; };
KERNEL large_parameter(const __grid_constant__ Large large, int* out, int k) {
    const int* p = &large.v[threadIdx.x];
    out[threadIdx.x] = large.v[threadIdx.x * k % 900] + large.v[899];
    out[32 + threadIdx.x] = *p;
}

template <class T, int N> struct Vector {
    T v[N];
    __device__ T weighted() const { T s = 0; for (int i = 0; i < N; i++) s += v[i] * (i + 1); return s; }
};
template <class T, int N> __global__ void templated(T* out, const T* in) {
    Vector<T, N> x;
    const int t = threadIdx.x + blockIdx.x * blockDim.x;
    for (int i = 0; i < N; i++) x.v[i] = in[t * N + i];
    out[t] = x.weighted();
}

namespace inner {
struct Scale { int factor; short shift; __device__ int operator()(int x) const { return x * factor + shift; } };
template <class F> __global__ void apply(int* out, F f) { out[threadIdx.x] = f(threadIdx.x); }
}  // namespace inner

// -- warps, barriers, control flow -----------------------------------------------------------------------------------
KERNEL partial_warp_shuffles(int* out, const int* in, int n) {
    const int t = threadIdx.x, v = in[t];
    const unsigned here = __ballot_sync(__activemask(), 1);
    int r = 0;
    if (t % 32 < 20) {
        const unsigned some = __activemask();
        r = __shfl_down_sync(0xfffff & here, v, 3, 16) + 100 * __shfl_xor_sync(0xfffff & here, v, 1) +
            (__popc(some) << 16);
    }
    out[t] = r;
    out[n + t] = __shfl_sync(here, v, (t & 7) + 1, 8) + __shfl_up_sync(here, v, 2, 4);
}

KERNEL half_warps_apart(int* out, int n) {
    const int t = threadIdx.x;
    int v = t;
    for (int i = 0; i < n; i++) {
        if (t < 16) v = __shfl_sync(0xffff, v, (t + 1) & 15);
        else v = __shfl_sync(0xffff0000, v, 16 + ((t + 3) & 15));
    }
    out[t] = v;
}

KERNEL matches(int* out, const int* in) {
    const int t = threadIdx.x;
    int all;
    const unsigned same = __match_any_sync(0xffffffff, in[t]);
    const unsigned every = __match_all_sync(0xffffffff, in[t] > 100, &all);
    out[t] = same;
    out[32 + t] = __popc(same & ((1u << t) - 1));
    out[64 + t] = (every != 0) + 2 * all + 4 * __all_sync(0xffffffff, in[t] < 6) + 8 * __any_sync(0xffffffff, in[t] == 3);
    out[96 + t] = __ffs(same) + __clz(same) * 100;
}

KERNEL exit_before_barrier(int* out, const int* in, int n) {
    __shared__ int s[128];
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = 0;
    __syncthreads();
    if (i >= n) return;
    s[t] = in[i];
    __syncthreads();
    out[i] = s[t ^ 1];
    __syncthreads();
    if (t < 5) return;
    out[i] += s[t - 5];
}

KERNEL barrier_reductions(int* out, const int* in, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int count = __syncthreads_count(i < n && in[i] > 50);
    const int all = __syncthreads_and(threadIdx.x < 40 || blockIdx.x == 1);
    const int any = __syncthreads_or(i < n && in[i] == 77);
    out[i] = count * 4 + (all != 0) * 2 + (any != 0);
}

KERNEL last_block(int* sum, unsigned* ticket, int* list, const int* in) {  // the block that finishes last adds up
    __shared__ bool last;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (in[i] & 1) { const int place = atomicAdd(&list[0], 1); list[1 + place] = i; }
    __threadfence();
    if (threadIdx.x == 0) last = atomicInc(ticket, gridDim.x) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    int s = 0;
    for (int k = threadIdx.x; k < list[0]; k += blockDim.x) s += list[1 + k];
    atomicAdd(sum, s);
}

KERNEL tangled_loops(int* out, const int* in, int n) {
    const int t = threadIdx.x;
    int s = 0;
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        int v = in[(t + i) % n];
        if (v < 10) {
            if (v < 5) { s += 1; if (v < 2) goto end; } else s += 2;
        } else if (v < 20) {
            while (v > 10) { v -= t % 3 + 1; s += 3; if (s > 200) goto end; }
        } else {
            s ^= v;
            do { v /= 2; if (v == 3) break; s++; } while (v > 2);
        }
    }
end:
    out[t] = s;
}

__device__ __noinline__ int collatz(int x) {
    int n = 0;
    while (x != 1 && n < 200) { x = x & 1 ? 3 * x + 1 : x / 2; n++; }
    return n;
}
KERNEL divergent_calls(int* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    int c = collatz(i + 1);
    if (c > 10) c += collatz(i + 2);
    out[i] = c;
}

KERNEL switch_table(int* out, const int* in, int n) {
    const int t = threadIdx.x;
    int r;
    switch (in[t]) {
        case 0: r = t; break;
        case 1: r = t * 2; break;
        case 2: r = in[(t + 1) % n]; break;
        case 3: r = -t; break;
        case 4: r = t ^ 55; break;
        case 5: r = in[0];  // falls through
        case 6: r = 7 + t; break;
        case 7: r = t / 3; break;
        case 8: r = t % 5; break;
        case 9: r = t << 3; break;
        case 10: r = t * t * t; break;
        case 11: r = __popc(t); break;
        default: r = -1;
    }
    out[t] = r;
}

KERNEL many_predicates(int* out, const int* in, int n) {  // more than there are predicate registers (P2R, R2P)
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool p[9];
    for (int k = 0; k < 9; k++) p[k] = in[(i + k) % n] > k * 10;
    __syncthreads();
    int s = 0;
    for (int k = 0; k < 9; k++) if (p[k]) s += in[(i * 3 + k) % n];
    __syncthreads();
    for (int k = 0; k < 9; k++) if (p[8 - k]) s ^= k << s % 5;
    out[i] = s;
}

KERNEL tile_sums(int* out, const int* in) {
    namespace cg = cooperative_groups;
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<8>(block);
    int v = in[block.thread_rank()];
    for (int d = 4; d; d /= 2) v += tile.shfl_xor(v, d);
    block.sync();
    if (tile.thread_rank() == 0) atomicAdd(out + 1 + block.group_index().x, v);
    if (in[block.thread_rank()] & 1) {
        const auto odd = cg::coalesced_threads();
        if (odd.thread_rank() == 0) atomicAdd(out, odd.size());
    }
    out[10 + block.thread_rank()] = tile.meta_group_rank() * 100 + v;
}

// -- atomics ---------------------------------------------------------------------------------------------------------
KERNEL atomics_that_return(unsigned* out, unsigned* g) {
    const unsigned t = threadIdx.x;
    unsigned* w = out + t * 11;
    w[0] = atomicExch(&g[0], t + 1);
    w[1] = atomicMax(&g[1], t * 7 % 33);
    w[2] = atomicMin((int*)&g[2], -(int)t);
    w[3] = atomicAnd(&g[3], ~(1u << (t & 31)));
    w[4] = atomicOr(&g[4], 1u << (t & 31));
    w[5] = atomicXor(&g[5], t);
    w[6] = atomicInc(&g[6], 10);
    w[7] = atomicDec(&g[7], 5);
    w[8] = atomicCAS(&g[8], t, t + 1);
    w[9] = atomicSub(&g[9], 3);
    w[10] = (unsigned)(atomicAdd((unsigned long long*)&g[10], 0x100000001ull * t) >> 32);
}

KERNEL compare_and_swap_16(unsigned* out, const unsigned short* in) {
    __shared__ unsigned short bins[8];
    const int t = threadIdx.x;
    if (t < 8) bins[t] = 0;
    __syncthreads();
    unsigned short old = 0, seen;
    do { seen = old; old = atomicCAS(&bins[in[t] & 7], seen, (unsigned short)(seen + 1)); } while (old != seen);
    __syncthreads();
    if (t < 8) out[t] = bins[t];
}

KERNEL atomic_references(int* out, int* flags) {
    cuda::atomic_ref<int, cuda::thread_scope_device> sum(*out);
    sum.fetch_add(2, cuda::memory_order_relaxed);
    cuda::atomic_ref<int, cuda::thread_scope_block> flag(flags[0]);
    flag.store(threadIdx.x, cuda::memory_order_release);
    if (flag.load(cuda::memory_order_acquire) < 0) out[1] = 1;
    int expected = 0;
    cuda::atomic_ref<int>(flags[1]).compare_exchange_strong(expected, 77);
}

// -- numbers ---------------------------------------------------------------------------------------------------------
KERNEL hashes_64(unsigned long long* out, const unsigned char* in, long long stride, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long h = 1469598103934665603ull;
    for (long long k = i; k < n * stride; k += n) { h ^= in[k]; h *= 1099511628211ull; }
    out[i] = h;
    if (i % 3 == 0) out[i] = h / (unsigned long long)(i + 1) + h % 7;
    if (i % 5 == 0) out[i] = (unsigned long long)((long long)h / (i + 3));
}

KERNEL integers_128(unsigned long long* out, const unsigned long long* in, unsigned long long n) {
    const int t = threadIdx.x;
    const unsigned long long x = in[t], y = in[t + 1];
    unsigned __int128 q = (unsigned __int128)x << 64 | y;
    const unsigned __int128 p = (unsigned __int128)y << 64 | n;
    out[t * 8] = x - y; out[t * 8 + 1] = x + y + n; out[t * 8 + 2] = n - x;
    q += p; out[t * 8 + 3] = q; out[t * 8 + 4] = q >> 64;
    q = p - q * 3; out[t * 8 + 5] = q; out[t * 8 + 6] = q >> 64; out[t * 8 + 7] = q > p;
}

KERNEL divide(int* out, const int* in, int n) {
    const int i = threadIdx.x, x = in[i], y = in[i + 1];
    int* o = out + i * 7;
    o[0] = x / y; o[1] = x % y; o[2] = (unsigned)x / (unsigned)y; o[3] = (unsigned)x % (unsigned)y;
    o[4] = x / 7; o[5] = (unsigned)x % 1000003u; o[6] = x / n;
}

KERNEL divide_doubles(double* out, const double* in) {
    const int i = threadIdx.x;
    out[i] = in[i] / 3.7; out[32 + i] = 1.0 / (in[i] + 9); out[64 + i] = sqrt(fabs(in[i]));
}

KERNEL inline_ptx(unsigned* out, const unsigned* in) {
    const unsigned t = threadIdx.x, x = in[t];
    unsigned lane, low, high, *w = out + t * 10;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("{.reg .pred p; setp.lt.u32 p, %1, 1000; selp.u32 %0, %1, 7, p;}" : "=r"(w[0]) : "r"(x));
    asm("bfe.u32 %0, %1, 5, 9;" : "=r"(w[1]) : "r"(x));
    asm("bfi.b32 %0, %1, %2, 8, 12;" : "=r"(w[2]) : "r"(lane), "r"(x));
    asm("mad.lo.cc.u32 %0, %2, 3, %3; addc.u32 %1, %2, 0;" : "=r"(low), "=r"(high) : "r"(x), "r"(0xfffffff0u));
    w[3] = low; w[4] = high;
    asm("prmt.b32 %0, %1, %2, 0x2531;" : "=r"(w[5]) : "r"(x), "r"(low));
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(w[6]) : "r"(x), "r"(low), "r"(high));
    asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(w[7]) : "r"(x), "r"(low), "r"(lane + 40));
    asm("sad.u32 %0, %1, %2, 5;" : "=r"(w[8]) : "r"(x), "r"(low));
    asm("dp4a.u32.u32 %0, %1, %2, 9;" : "=r"(w[9]) : "r"(x), "r"(low));
}

KERNEL parameter_pointer(const __grid_constant__ Large large, int* out, int k) {
    const int* p = large.v;
    asm volatile("" : "+l"(p));  // what it points to is forgotten: loads are generic
    out[threadIdx.x] = p[threadIdx.x * k % 900];
}
