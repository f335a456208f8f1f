// How many instructions of one kind an SM issues, and how long one waits for the one before.
//
// Every thread keeps CHAINS independent chains of an operation. With one chain and one warp the time is the
// operation's latency, with eight chains and many warps its throughput. The PTX is written out so that the compiler
// neither adds instructions nor finds a shorter way: each step takes the two values before it, or the last one.

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

enum Operation {
    FADD, FMUL, FFMA, IADD, IMAD, IMAD_WIDE, IMAD_HI, LOP3, SHF, ISETP_SEL, FSETP_SEL, IMNMX, FMNMX, PRMT, POPC, FLO,
    EX2, LG2, RCP, RSQ, SIN, I2F, F2I, F2F_UP, F2F_DOWN, DADD, DMUL, DFMA, HADD2, HFMA2, SHFL, VOTE, REDUX,
    LDS, FFMA_IADD, FFMA_IMAD, FFMA_LOP3, IADD_LOP3, FFMA_EX2, FFMA_LDS, SHFL_LDS, FFMA_SHFL, IMAD_LOP3,
    FFMA_I2F, FADD_FMUL, DP4A, MATCH
};

template <int OP> __device__ __forceinline__ void step(unsigned &x, unsigned y, unsigned c)
{
    if constexpr (OP == FADD)
        asm volatile("add.f32 %0, %0, %1;" : "+r"(x) : "r"(y));
    else if constexpr (OP == FMUL)
        asm volatile("mul.f32 %0, %0, %1;" : "+r"(x) : "r"(y));
    else if constexpr (OP == FFMA)
        asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == IADD)
        asm volatile("{.reg .u32 t; add.u32 t, %0, %1; add.u32 %0, t, %2;}" : "+r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == IMAD)
        asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == IMAD_HI)
        asm volatile("mul.hi.u32 %0, %0, %1;" : "+r"(x) : "r"(y));
    else if constexpr (OP == LOP3)
        asm volatile("lop3.b32 %0, %0, %1, %2, 0x6a;" : "+r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == SHF)
        asm volatile("shf.l.wrap.b32 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == ISETP_SEL)
        asm volatile("{.reg .pred p; setp.lt.s32 p, %0, %1; selp.b32 %0, %1, %2, p;}" : "+r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == FSETP_SEL)
        asm volatile("{.reg .pred p; setp.lt.f32 p, %0, %1; selp.b32 %0, %1, %2, p;}" : "+r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == IMNMX)
        asm volatile("min.s32 %0, %0, %1;" : "+r"(x) : "r"(y));
    else if constexpr (OP == FMNMX)
        asm volatile("min.f32 %0, %0, %1;" : "+r"(x) : "r"(y));
    else if constexpr (OP == PRMT)
        asm volatile("prmt.b32 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == POPC)
        asm volatile("popc.b32 %0, %1;" : "=r"(x) : "r"(y));
    else if constexpr (OP == FLO)
        asm volatile("bfind.u32 %0, %1;" : "=r"(x) : "r"(y));
    else if constexpr (OP == EX2)
        asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=r"(x) : "r"(y));
    else if constexpr (OP == LG2)
        asm volatile("lg2.approx.ftz.f32 %0, %1;" : "=r"(x) : "r"(y));
    else if constexpr (OP == RCP)
        // of its own it would be its own inverse, and dropped
        asm volatile("{.reg .f32 t; rcp.approx.ftz.f32 t, %1; add.f32 %0, t, %2;}" : "=r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == RSQ)
        asm volatile("rsqrt.approx.ftz.f32 %0, %1;" : "=r"(x) : "r"(y));
    else if constexpr (OP == SIN)
        asm volatile("sin.approx.ftz.f32 %0, %1;" : "=r"(x) : "r"(y));
    else if constexpr (OP == I2F)
        asm volatile("cvt.rn.f32.s32 %0, %1;" : "=r"(x) : "r"(y));
    else if constexpr (OP == F2I)
        asm volatile("cvt.rzi.s32.f32 %0, %1;" : "=r"(x) : "r"(y));
    else if constexpr (OP == HADD2)
        asm volatile("add.f16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    else if constexpr (OP == HFMA2)
        asm volatile("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == SHFL)
        asm volatile("shfl.sync.up.b32 %0, %1, 1, 0x0, 0xffffffff;" : "=r"(x) : "r"(y));
    else if constexpr (OP == VOTE)
        asm volatile("{.reg .pred p; setp.lt.s32 p, %0, %1; vote.sync.ballot.b32 %0, p, 0xffffffff;}"
                     : "+r"(x)
                     : "r"(y));
    else if constexpr (OP == DP4A)
        asm volatile("dp4a.u32.u32 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(c));
    else if constexpr (OP == LDS) // x is an address that holds its own address
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(y) : "memory");
#if __CUDA_ARCH__ >= 800
    else if constexpr (OP == REDUX)
        asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(x) : "r"(y));
#endif
    else if constexpr (OP == MATCH)
        asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(x) : "r"(y));
}

template <int OP> __device__ __forceinline__ void step(unsigned long long &x, unsigned long long y, unsigned long long c)
{
    if constexpr (OP == DADD)
        asm volatile("add.f64 %0, %0, %1;" : "+l"(x) : "l"(y));
    else if constexpr (OP == DMUL)
        asm volatile("mul.f64 %0, %0, %1;" : "+l"(x) : "l"(y));
    else if constexpr (OP == DFMA)
        asm volatile("fma.rn.f64 %0, %0, %1, %2;" : "+l"(x) : "l"(y), "l"(c));
    else if constexpr (OP == IMAD_WIDE)
        asm volatile("{.reg .u32 l, h; mov.b64 {l, h}, %0; mad.wide.u32 %0, l, %2, %1;}"
                     : "+l"(x)
                     : "l"(y), "r"((unsigned)c));
    else if constexpr (OP == F2F_UP)
        asm volatile("{.reg .b32 l, h; mov.b64 {l, h}, %1; cvt.f64.f32 %0, h;}" : "=l"(x) : "l"(y));
    else if constexpr (OP == F2F_DOWN)
        asm volatile("{.reg .b32 f, l, h; cvt.rn.f32.f64 f, %1; mov.b64 {l, h}, %1; mov.b64 %0, {l, f};}"
                     : "=l"(x)
                     : "l"(y));
}

// Two operations that take turns, or the same twice.
template <int OP> struct Parts { static constexpr int first = OP, second = OP; };
#define MIXTURE(NAME, A, B) \
    template <> struct Parts<NAME> { static constexpr int first = A, second = B; };
MIXTURE(FFMA_IADD, FFMA, IADD)
MIXTURE(FFMA_IMAD, FFMA, IMAD)
MIXTURE(FFMA_LOP3, FFMA, LOP3)
MIXTURE(IADD_LOP3, IADD, LOP3)
MIXTURE(FFMA_EX2, FFMA, EX2)
MIXTURE(FFMA_LDS, FFMA, LDS)
MIXTURE(SHFL_LDS, SHFL, LDS)
MIXTURE(FFMA_SHFL, FFMA, SHFL)
MIXTURE(IMAD_LOP3, IMAD, LOP3)
MIXTURE(FFMA_I2F, FFMA, I2F)
MIXTURE(FADD_FMUL, FADD, FMUL)

template <int OP> struct Value { typedef unsigned type; };
#define WIDE(NAME) \
    template <> struct Value<NAME> { typedef unsigned long long type; };
WIDE(DADD) WIDE(DMUL) WIDE(DFMA) WIDE(IMAD_WIDE) WIDE(F2F_UP) WIDE(F2F_DOWN)

// Steps of each chain a loop.
template <int CHAINS> constexpr int steps = CHAINS == 1 ? 128 : 16;

// out[thread] = all chains' last values, xored. a, b, c: operands that the compiler does not know.
template <int OP, int CHAINS>
__global__ void issue(unsigned *out, long long *stamps, unsigned a, unsigned b, unsigned c, int loops)
{
    typedef typename Value<OP>::type T;
    constexpr int A = Parts<OP>::first, B = Parts<OP>::second;
    __shared__ unsigned words[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x)
        words[i] = (unsigned)__cvta_generic_to_shared(words + i);
    // differ from lane to lane, or the uniform datapath would compute them
    a += threadIdx.x * c;
    b += threadIdx.x * a;
    const T high = sizeof(T) == 8 ? (T)0x3ff0000000000000 : (T)0;
    const T third = high + (c ^ (threadIdx.x * (b + 1)));
    const unsigned word = (unsigned)__cvta_generic_to_shared(words + threadIdx.x);
    T x[CHAINS], y[CHAINS], u[CHAINS], v[CHAINS];
    for (int k = 0; k < CHAINS; k++) {
        x[k] = A == LDS ? (T)word : high + (T)(a + k * c);
        y[k] = A == LDS ? (T)word : high + (T)(b + k * c);
        u[k] = B == LDS ? (T)word : high + (T)(a + k * b);
        v[k] = B == LDS ? (T)word : high + (T)(b + k * a);
    }
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < loops; i++) {
#pragma unroll
        for (int s = 0; s < steps<CHAINS>; s += 2) {
#pragma unroll
            for (int k = 0; k < CHAINS; k++) {
                step<A>(x[k], y[k], third);
                if (A != B) // each kind goes on with its own values
                    step<B>(u[k], v[k], third);
            }
#pragma unroll
            for (int k = 0; k < CHAINS; k++) {
                step<A>(y[k], x[k], third);
                if (A != B)
                    step<B>(v[k], u[k], third);
            }
        }
    }
    watch.end(stamps);
    T all = 0;
    for (int k = 0; k < CHAINS; k++)
        all ^= A == B ? x[k] ^ y[k] : x[k] ^ y[k] ^ u[k] ^ v[k];
    out[blockIdx.x * blockDim.x + threadIdx.x] = (unsigned)all ^ (unsigned)((unsigned long long)all >> 32);
}

// A loop of nothing but its counter: an add, a compare and a taken branch.
__global__ void branch_loop(unsigned *out, long long *stamps, int loops)
{
    Stopwatch watch;
    unsigned x = threadIdx.x;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < loops; i++)
        asm volatile("xor.b32 %0, %0, %1;" : "+r"(x) : "r"(i));
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// In each loop the lanes below `below` go one way, the others another, and meet again.
__global__ void branch_diverge(unsigned *out, long long *stamps, int below, int loops)
{
    Stopwatch watch;
    unsigned x = threadIdx.x;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < loops; i++) {
        if ((int)(threadIdx.x % 32) < below)
            asm volatile("{.reg .u32 t; popc.b32 t, %0; brev.b32 t, t; popc.b32 t, t; add.u32 %0, t, %1;}" : "+r"(x) : "r"(i));
        else
            asm volatile("{.reg .u32 t; brev.b32 t, %0; popc.b32 t, t; brev.b32 t, t; xor.b32 %0, t, %1;}" : "+r"(x) : "r"(i));
        __syncwarp();
    }
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// Block barriers one after the other.
__global__ void barrier_loop(unsigned *out, long long *stamps, int loops)
{
    Stopwatch watch;
    watch.begin();
#pragma unroll 1
    for (int i = 0; i < loops; i++) {
        __syncthreads();
        __syncthreads();
        __syncthreads();
        __syncthreads();
        __syncthreads();
        __syncthreads();
        __syncthreads();
        __syncthreads();
    }
    watch.end(stamps);
    out[blockIdx.x * blockDim.x + threadIdx.x] = loops;
}
