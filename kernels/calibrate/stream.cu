// Bandwidth: L2 and DRAM, read, written and copied in many ways.

template <int WORDS> struct Vector;
template <> struct Vector<1> { typedef unsigned type; };
template <> struct Vector<2> { typedef uint2 type; };
template <> struct Vector<4> { typedef uint4 type; };

__device__ __forceinline__ unsigned fold(unsigned v) { return v; }
__device__ __forceinline__ unsigned fold(uint2 v) { return v.x ^ v.y; }
__device__ __forceinline__ unsigned fold(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }
__device__ __forceinline__ void fill(unsigned &v, unsigned x) { v = x; }
__device__ __forceinline__ void fill(uint2 &v, unsigned x) { v = make_uint2(x, x); }
__device__ __forceinline__ void fill(uint4 &v, unsigned x) { v = make_uint4(x, x, x, x); }

// How an access is made and where it lies: past L1 (.cg), through L1, or past L1 in groups of 2^group neighbouring
// vectors that are `apart` vectors from each other.
enum How { PLAIN, CACHED, GROUPED };

template <int HOW> __device__ __forceinline__ long long place(long long i, int group, int apart)
{
    return HOW == GROUPED ? (i >> group) * apart + (i & ((1 << group) - 1)) : i;
}

// `rounds` times over n accesses; a thread has FLIGHT loads in flight at a time. n is a multiple of threads * FLIGHT.
template <int WORDS, int FLIGHT, int HOW = PLAIN>
__global__ void stream_read(const typename Vector<WORDS>::type *in, unsigned *out, long long n, int group, int apart, int rounds)
{
    typedef typename Vector<WORDS>::type T;
    const long long threads = (long long)gridDim.x * blockDim.x;
    unsigned x = 0;
    for (int r = 0; r < rounds; r++) {
#pragma unroll 1
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads * FLIGHT) {
            T v[FLIGHT];
#pragma unroll
            for (int k = 0; k < FLIGHT; k++) {
                const T *p = in + place<HOW>(i + k * threads, group, apart);
                v[k] = HOW == CACHED ? *p : __ldcg(p);
            }
#pragma unroll
            for (int k = 0; k < FLIGHT; k++)
                x ^= fold(v[k]);
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

template <int WORDS, int FLIGHT, int HOW = PLAIN>
__global__ void stream_write(typename Vector<WORDS>::type *to, unsigned *out, long long n, int group, int apart, int rounds)
{
    typedef typename Vector<WORDS>::type T;
    const long long threads = (long long)gridDim.x * blockDim.x;
    for (int r = 0; r < rounds; r++) {
        T v;
        fill(v, (unsigned)r);
#pragma unroll 1
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads * FLIGHT) {
#pragma unroll
            for (int k = 0; k < FLIGHT; k++)
                to[place<HOW>(i + k * threads, group, apart)] = v;
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = rounds;
}

// to = in + 1, word by word; to may be in.
template <int WORDS, int FLIGHT, int HOW = PLAIN>
__global__ void stream_copy(const typename Vector<WORDS>::type *in, typename Vector<WORDS>::type *to, long long n, int group, int apart, int rounds)
{
    typedef typename Vector<WORDS>::type T;
    const long long threads = (long long)gridDim.x * blockDim.x;
    for (int r = 0; r < rounds; r++) {
#pragma unroll 1
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads * FLIGHT) {
            T v[FLIGHT];
#pragma unroll
            for (int k = 0; k < FLIGHT; k++)
                v[k] = __ldcg(in + place<HOW>(i + k * threads, group, apart));
#pragma unroll
            for (int k = 0; k < FLIGHT; k++) {
                T w;
                fill(w, fold(v[k]) + 1);
                to[place<HOW>(i + k * threads, group, apart)] = w;
            }
        }
    }
}

__device__ __forceinline__ unsigned mix(unsigned x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

// Sectors of 32 bytes in random order: each lane reads (or writes) a word of its own sector, of mask + 1 sectors.
template <int STORE, int FLIGHT> __global__ void stream_random(unsigned *data, unsigned *out, unsigned n, unsigned mask)
{
    const unsigned threads = gridDim.x * blockDim.x;
    unsigned x = 0;
#pragma unroll 1
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads * FLIGHT) {
        unsigned v[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            unsigned *p = data + (unsigned long long)(mix(i + k * threads) & mask) * 8;
            if constexpr (STORE)
                *p = i;
            else
                v[k] = __ldcg(p);
        }
        if constexpr (!STORE) {
#pragma unroll
            for (int k = 0; k < FLIGHT; k++)
                x ^= v[k];
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

enum Atomic { RED_INT, RED_FLOAT, RED_LONG, ATOM_INT, ATOM_FLOAT, RED_DOUBLE };

// Atomic adds to words `apart` words from each other, mask + 1 of them; all lanes of a warp to the same word, or
// (spread) to neighbouring ones, or (scattered) to random ones.
template <int KIND> __global__ void stream_atomic(unsigned *data, unsigned *out, unsigned mask, int apart, int how, unsigned value, int loops)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = 0;
#pragma unroll 4
    for (int i = 0; i < loops; i++) {
        unsigned at = how == 0 ? thread / 32 + i : how == 1 ? thread + 32 * i : mix(thread * 64 + i);
        unsigned *p = data + (unsigned long long)(at & mask) * apart;
        if constexpr (KIND == RED_INT)
            asm volatile("red.global.add.u32 [%1], %0;" ::"r"(value), "l"(p) : "memory");
        else if constexpr (KIND == RED_FLOAT)
            asm volatile("red.global.add.f32 [%1], %0;" ::"r"(value), "l"(p) : "memory");
        else if constexpr (KIND == RED_LONG)
            asm volatile("red.global.add.u64 [%1], %0;" ::"l"((unsigned long long)value), "l"(p) : "memory");
        else if constexpr (KIND == RED_DOUBLE)
            asm volatile("red.global.add.f64 [%1], %0;" ::"l"((unsigned long long)value), "l"(p) : "memory");
        else if constexpr (KIND == ATOM_INT) {
            unsigned got;
            asm volatile("atom.global.add.u32 %0, [%2], %1;" : "=r"(got) : "r"(value), "l"(p) : "memory");
            x ^= got;
        } else {
            unsigned got;
            asm volatile("atom.global.add.f32 %0, [%2], %1;" : "=r"(got) : "r"(value), "l"(p) : "memory");
            x ^= got;
        }
    }
    out[thread] = x;
}
