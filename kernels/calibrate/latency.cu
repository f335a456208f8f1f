// How long one waits: each access needs the one before.

// Of each warp: clock before and after, %globaltimer before and after in ns, the SM it ran on.
struct Stopwatch {
    long long start;
    unsigned long long start_ns;

    __device__ void begin()
    {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start_ns)::"memory");
        __syncthreads();
        asm volatile("mov.u64 %0, %clock64;" : "=l"(start)::"memory");
    }

    __device__ void end(long long *stamps) const
    {
        long long stop;
        unsigned long long stop_ns;
        unsigned sm;
        asm volatile("mov.u64 %0, %clock64;" : "=l"(stop)::"memory");
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(stop_ns)::"memory");
        asm volatile("mov.u32 %0, %smid;" : "=r"(sm)::"memory");
        if (threadIdx.x % 32 == 0) {
            long long *mine = stamps + 5 * (blockIdx.x * ((blockDim.x + 31) / 32) + threadIdx.x / 32);
            mine[0] = start;
            mine[1] = stop;
            mine[2] = start_ns;
            mine[3] = stop_ns;
            mine[4] = sm;
        }
    }
};

constexpr int UNROLL = 16;

// Place i of a ring of n places `stride` bytes apart, in the order of `order`: a 64-bit word with the next one's address.
__device__ __forceinline__ void link(char *buffer, const unsigned *order, unsigned i, unsigned n, unsigned long long stride)
{
    unsigned long long *place = (unsigned long long *)(buffer + order[i] * stride);
    place[0] = (unsigned long long)(buffer + order[i + 1 < n ? i + 1 : 0] * stride);
    place[1] = 0;
}

__global__ void make_ring(char *buffer, const unsigned *order, unsigned n, unsigned long long stride)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        link(buffer, order, i, n, stride);
}

enum Load { CA64, CG64, CA32, CA128, NC64 };

template <int KIND> __device__ __forceinline__ unsigned long long follow(unsigned long long p, unsigned long long base)
{
    unsigned long long next, zero;
    unsigned low;
    if constexpr (KIND == CA64) {
        asm volatile("ld.global.u64 %0, [%1];" : "=l"(next) : "l"(p) : "memory");
    } else if constexpr (KIND == CG64) {
        asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"(p) : "memory");
    } else if constexpr (KIND == NC64) {
        asm volatile("ld.global.nc.u64 %0, [%1];" : "=l"(next) : "l"(p) : "memory");
    } else if constexpr (KIND == CA32) { // only the low half: base is added again
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(low) : "l"(p) : "memory");
        next = base + (low - (unsigned)base);
    } else {
        asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(next), "=l"(zero) : "l"(p) : "memory");
        next ^= zero;
    }
    return next;
}

// steps: a multiple of UNROLL. The first `skip` steps are not timed. With n > 0 the block makes the ring first; else
// make_ring has made it.
template <int KIND>
__global__ void chase(unsigned long long *out, long long *stamps, char *buffer, const unsigned *order, unsigned n, int skip, int steps)
{
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        link(buffer, order, i, n, 128);
    __syncthreads();
    unsigned long long base = (unsigned long long)buffer, p = base;
#pragma unroll 1
    for (int i = 0; i < skip; i++)
        p = follow<KIND>(p, base);
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < steps; i += UNROLL) {
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            p = follow<KIND>(p, base);
    }
    watch.end(stamps);
    if (threadIdx.x == 0)
        out[blockIdx.x] = p - base;
}

// cycles[block * lines + line]: the shortest of `times` loads of that line (128 bytes) from L2.
__global__ void line_latency(int *cycles, long long *stamps, const char *buffer, int lines, int times) // of zeros
{
    __shared__ unsigned received[1024];
    const unsigned place = (unsigned)__cvta_generic_to_shared(received + threadIdx.x);
    Stopwatch watch;
    watch.begin();
    for (int line = 0; line < lines; line++) {
        const char *p = buffer + 128ull * line;
        int least = 1 << 30;
#pragma unroll 1
        for (int k = 0; k < times; k++) {
            long long before, after;
            unsigned value;
            asm volatile("mov.u64 %0, %clock64;" : "=l"(before)::"memory");
            asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
            p += value; // zero, which the compiler does not know: each load waits for the one before
            // the store waits for the value, and the clock is read after it
            asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(place), "r"(value) : "memory");
            asm volatile("mov.u64 %0, %clock64;" : "=l"(after)::"memory");
            least = min(least, (int)(after - before));
        }
        if (threadIdx.x == 0)
            cycles[blockIdx.x * lines + line] = least;
    }
    watch.end(stamps);
}

// A ring in shared memory, WIDTH bytes a load.
template <int WIDTH> __global__ void shared_chase(unsigned *out, long long *stamps, int steps)
{
    __shared__ __align__(16) unsigned ring[1024];
    unsigned p = (unsigned)__cvta_generic_to_shared(ring), base = p;
    for (int i = threadIdx.x; i < 1024; i += blockDim.x)
        ring[i] = i % 4 ? 0 : base + (i * 4 + 16 * 37) % 4096;
    __syncthreads();
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < steps; i += UNROLL) {
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            unsigned b = 0, c = 0, d = 0;
            if constexpr (WIDTH == 4)
                asm volatile("ld.volatile.shared.u32 %0, [%0];" : "+r"(p)::"memory");
            else if constexpr (WIDTH == 8)
                asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%0];" : "+r"(p), "=r"(b)::"memory");
            else
                asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%0];" : "+r"(p), "=r"(b), "=r"(c), "=r"(d)::"memory");
        }
    }
    watch.end(stamps);
    if (threadIdx.x == 0)
        out[blockIdx.x] = p - base;
}

enum Chain { SHARED_ADD, SHARED_CAS, SHARED_EXCH, GLOBAL_ADD, GLOBAL_CAS, GLOBAL_EXCH, SHARED_STORE_LOAD, GLOBAL_STORE_LOAD,
             FENCE_BLOCK, FENCE_DEVICE, FENCE_SYSTEM, STORE_FENCE_DEVICE, LOCAL_STORE_LOAD };

// A chain of other accesses; zero is 0, which the compiler does not know.
template <int KIND>
__global__ void access_chain(unsigned *out, long long *stamps, unsigned long long *cell, unsigned zero, int steps)
{
    __shared__ unsigned word[32];
    const unsigned lane = threadIdx.x % 32;
    unsigned p = (unsigned)__cvta_generic_to_shared(word + lane), first = p;
    unsigned long long q = (unsigned long long)(cell + blockIdx.x * blockDim.x + threadIdx.x);
    word[lane] = p;
    *(unsigned long long *)q = q;
    unsigned x = zero, array[32];
    for (int k = 0; k < 32; k++)
        array[k] = zero + k;
    __syncthreads();
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < steps; i += UNROLL) {
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            if constexpr (KIND == SHARED_ADD)
                asm volatile("atom.shared.add.u32 %0, [%0], %1;" : "+r"(p) : "r"(zero) : "memory");
            else if constexpr (KIND == SHARED_CAS)
                asm volatile("atom.shared.cas.b32 %0, [%0], %1, %1;" : "+r"(p) : "r"(zero) : "memory");
            else if constexpr (KIND == SHARED_EXCH)
                asm volatile("atom.shared.exch.b32 %0, [%0], %1;" : "+r"(p) : "r"(first) : "memory");
            else if constexpr (KIND == GLOBAL_ADD)
                asm volatile("atom.global.add.u64 %0, [%0], %1;" : "+l"(q) : "l"((unsigned long long)zero) : "memory");
            else if constexpr (KIND == GLOBAL_CAS)
                asm volatile("atom.global.cas.b64 %0, [%0], %1, %1;" : "+l"(q) : "l"((unsigned long long)zero) : "memory");
            else if constexpr (KIND == GLOBAL_EXCH)
                asm volatile("{.reg .u64 t; mov.u64 t, %0; atom.global.exch.b64 %0, [t], t;}" : "+l"(q)::"memory");
            else if constexpr (KIND == SHARED_STORE_LOAD)
                asm volatile("st.shared.u32 [%1], %0; ld.volatile.shared.u32 %0, [%1];" : "+r"(x) : "r"(p) : "memory");
            else if constexpr (KIND == GLOBAL_STORE_LOAD)
                asm volatile("st.global.u32 [%1], %0; ld.volatile.global.u32 %0, [%1];" : "+r"(x) : "l"(q) : "memory");
            else if constexpr (KIND == FENCE_BLOCK)
                asm volatile("membar.cta;" ::: "memory");
            else if constexpr (KIND == FENCE_DEVICE)
                asm volatile("membar.gl;" ::: "memory");
            else if constexpr (KIND == FENCE_SYSTEM)
                asm volatile("membar.sys;" ::: "memory");
            else if constexpr (KIND == STORE_FENCE_DEVICE)
                asm volatile("st.global.u32 [%1], %0; membar.gl;" : "+r"(x) : "l"(q) : "memory");
            else { // an array in local memory
                array[(x + k) % 32] = x;
                x = array[(x + k + zero) % 32];
            }
        }
    }
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = (p - first) + x + (unsigned)(q - (unsigned long long)cell);
}

// table[i]: where to read next, in bytes. Filled by the host: 32 rings of which lane k follows ring k % distinct.
__constant__ unsigned table[4096];

// Each lane follows its ring: with `distinct` rings, a load has that many different addresses.
__global__ void constant_chase(unsigned *out, long long *stamps, int distinct, int steps)
{
    unsigned p = (threadIdx.x % 32 % distinct) * 4;
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < steps; i += UNROLL) {
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            p = *(const unsigned *)((const char *)table + p);
    }
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = p;
}
