// What shared memory and L1 serve: accesses by pattern, as many as fit.

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

constexpr int UNROLL = 8;

// Loads of WIDTH bytes, lanes `stride` bytes apart. Each step's addresses differ by 16 bytes, which keeps the banks'
// load the same.
template <int WIDTH> __global__ void shared_load(unsigned *out, long long *stamps, int stride, int moving, int loops)
{
    __shared__ __align__(16) unsigned tile[8192 + 64];
    for (int i = threadIdx.x; i < 8192 + 64; i += blockDim.x)
        tile[i] = i;
    unsigned p = (unsigned)__cvta_generic_to_shared(tile) + threadIdx.x % 32 * stride, x = 0;
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < loops; i++) {
        unsigned a[UNROLL], b[UNROLL], c[UNROLL], d[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            b[k] = c[k] = d[k] = 0;
            if constexpr (WIDTH == 4)
                asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(a[k]) : "r"(p + k * 16) : "memory");
            else if constexpr (WIDTH == 8)
                asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a[k]), "=r"(b[k]) : "r"(p + k * 16) : "memory");
            else
                asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(a[k]), "=r"(b[k]), "=r"(c[k]), "=r"(d[k])
                             : "r"(p + k * 16)
                             : "memory");
        }
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            x ^= a[k] ^ b[k] ^ c[k] ^ d[k];
        p += moving;
    }
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

template <int WIDTH> __global__ void shared_store(unsigned *out, long long *stamps, int stride, int moving, int loops)
{
    __shared__ __align__(16) unsigned tile[8192 + 64];
    for (int i = threadIdx.x; i < 8192 + 64; i += blockDim.x)
        tile[i] = 0;
    unsigned p = (unsigned)__cvta_generic_to_shared(tile) + threadIdx.x % 32 * stride, x = threadIdx.x % 32;
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < loops; i++) {
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            if constexpr (WIDTH == 4)
                asm volatile("st.volatile.shared.u32 [%1], %0;" ::"r"(x), "r"(p + k * 16) : "memory");
            else if constexpr (WIDTH == 8)
                asm volatile("st.volatile.shared.v2.u32 [%1], {%0, %0};" ::"r"(x), "r"(p + k * 16) : "memory");
            else
                asm volatile("st.volatile.shared.v4.u32 [%1], {%0, %0, %0, %0};" ::"r"(x), "r"(p + k * 16) : "memory");
        }
        p += moving;
    }
    watch.end(stamps);
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = tile[threadIdx.x % 32 * (stride / 4)];
}

enum Atomic { ADD, INCREMENT, ADD_RETURN, CAS_RETURN, EXCH_RETURN, MAX_RETURN, ADD_FLOAT, ADD_LONG };

template <int KIND> __global__ void shared_atomic(unsigned *out, long long *stamps, int stride, unsigned value, int loops)
{
    __shared__ __align__(16) unsigned tile[8192 + 64];
    for (int i = threadIdx.x; i < 8192 + 64; i += blockDim.x)
        tile[i] = 0;
    unsigned *p = tile + threadIdx.x % 32 * (stride / 4);
    unsigned q = (unsigned)__cvta_generic_to_shared(p), x = 0, got[UNROLL];
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < loops; i++) {
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            got[k] = 0;
            if constexpr (KIND == ADD)
                asm volatile("red.shared.add.u32 [%1], %0;" ::"r"(value), "r"(q) : "memory");
            else if constexpr (KIND == INCREMENT)
                atomicAdd(p, 1);
            else if constexpr (KIND == ADD_RETURN)
                asm volatile("atom.shared.add.u32 %0, [%2], %1;" : "=r"(got[k]) : "r"(value), "r"(q) : "memory");
            else if constexpr (KIND == CAS_RETURN)
                asm volatile("atom.shared.cas.b32 %0, [%2], %1, %1;" : "=r"(got[k]) : "r"(value), "r"(q) : "memory");
            else if constexpr (KIND == EXCH_RETURN)
                asm volatile("atom.shared.exch.b32 %0, [%2], %1;" : "=r"(got[k]) : "r"(value), "r"(q) : "memory");
            else if constexpr (KIND == MAX_RETURN)
                asm volatile("atom.shared.max.u32 %0, [%2], %1;" : "=r"(got[k]) : "r"(value), "r"(q) : "memory");
            else if constexpr (KIND == ADD_FLOAT)
                atomicAdd((float *)p, __uint_as_float(value));
            else
                asm volatile("red.shared.add.u64 [%1], %0;" ::"l"((unsigned long long)value), "r"(q & ~7u) : "memory");
        }
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            x ^= got[k];
    }
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

enum Load { CA, CG, NC };

constexpr int WINDOW = 32 * 1024;

// Where this lane begins, in bytes: the warp's lanes lie in `lines` 128-byte lines that are evenly spread over a window,
// and in `sectors` sectors of each.
__device__ __forceinline__ int lane_offset(int lines, int sectors, int width)
{
    const int lane = threadIdx.x % 32, each = 32 / lines, within = lane % each;
    return lane / each * (WINDOW / lines) + within % sectors * 32 + within / sectors * width % 32;
}

// Loads or stores of WIDTH bytes there and in the next seven lines.
template <int KIND, int WIDTH>
__global__ void pattern_load(unsigned *out, long long *stamps, const char *buffer, int lines, int sectors, long long apart, int moving, int loops)
{
    const char *p = buffer + lane_offset(lines, sectors, WIDTH) + blockIdx.x * apart;
    unsigned x = 0;
    Stopwatch watch;
    // the first time round brings the lines into the cache
#pragma unroll 1
    for (int i = -1; i < loops; i++) {
        if (i == 0)
            watch.begin();
        unsigned a[UNROLL], b[UNROLL], c[UNROLL], d[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            b[k] = c[k] = d[k] = 0;
#define LOAD(HOW) \
    if constexpr (WIDTH == 4) \
        asm volatile("ld.global" HOW ".u32 %0, [%1];" : "=r"(a[k]) : "l"(p + k * 128) : "memory"); \
    else if constexpr (WIDTH == 8) \
        asm volatile("ld.global" HOW ".v2.u32 {%0, %1}, [%2];" : "=r"(a[k]), "=r"(b[k]) : "l"(p + k * 128) : "memory"); \
    else \
        asm volatile("ld.global" HOW ".v4.u32 {%0, %1, %2, %3}, [%4];" \
                     : "=r"(a[k]), "=r"(b[k]), "=r"(c[k]), "=r"(d[k]) \
                     : "l"(p + k * 128) \
                     : "memory");
            if constexpr (KIND == CA) {
                LOAD("")
            } else if constexpr (KIND == CG) {
                LOAD(".cg")
            } else {
                LOAD(".nc")
            }
        }
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            x ^= a[k] ^ b[k] ^ c[k] ^ d[k];
        p += moving;
    }
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

template <int WIDTH>
__global__ void pattern_store(unsigned *out, long long *stamps, char *buffer, int lines, int sectors, long long apart, int moving, int loops)
{
    char *p = buffer + lane_offset(lines, sectors, WIDTH) + blockIdx.x * apart;
    unsigned x = threadIdx.x % 32;
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < loops; i++) {
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            if constexpr (WIDTH == 4)
                asm volatile("st.global.u32 [%1], %0;" ::"r"(x), "l"(p + k * 128) : "memory");
            else if constexpr (WIDTH == 8)
                asm volatile("st.global.v2.u32 [%1], {%0, %0};" ::"r"(x), "l"(p + k * 128) : "memory");
            else
                asm volatile("st.global.v4.u32 [%1], {%0, %0, %0, %0};" ::"r"(x), "l"(p + k * 128) : "memory");
        }
        p += moving;
    }
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// Loads from local memory: an array indexed at run time.
__global__ void local_access(unsigned *out, long long *stamps, unsigned zero, int loops)
{
    volatile unsigned array[16];
    for (int k = 0; k < 16; k++)
        array[(k + zero) % 16] = k;
    unsigned x = 0;
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < loops; i++) {
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            x ^= array[(zero + k) % 16];
    }
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

__constant__ unsigned table[4096];

// Loads from constant memory with `distinct` different words a warp, `apart` words from each other.
__global__ void constant_load(unsigned *out, long long *stamps, int distinct, int apart, int moving, int loops)
{
    int index = threadIdx.x % 32 % distinct * apart;
    unsigned x = 0;
    Stopwatch watch;
#pragma unroll 1
    for (int i = -1; i < loops; i++) {
        if (i == 0)
            watch.begin();
        unsigned got[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            got[k] = table[index + k];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            x ^= got[k];
        index += moving;
    }
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
