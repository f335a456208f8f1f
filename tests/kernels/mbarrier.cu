// Asynchronous barriers in shared memory (mbarrier) and what is built on them. Every kernel takes (in, out, n).
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>

typedef unsigned long long Word;

#define AT int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x, threads = blockDim.x
#define SHARED(p) (unsigned)__cvta_generic_to_shared(p)

static __device__ void init_barrier(Word *bar, unsigned count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SHARED(bar)), "r"(count) : "memory");
}
static __device__ Word arrive(Word *bar)
{
    Word state;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(SHARED(bar)) : "memory");
    return state;
}
static __device__ bool test_wait(Word *bar, Word state)
{
    int done;
    asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(SHARED(bar)), "l"(state) : "memory");
    return done;
}
static __device__ bool test_parity(Word *bar, unsigned parity)
{
    int done;
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(SHARED(bar)), "r"(parity) : "memory");
    return done;
}
#if __CUDA_ARCH__ >= 900
static __device__ bool try_wait(Word *bar, Word state)
{
    int done;
    asm volatile("{.reg .pred p; mbarrier.try_wait.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(SHARED(bar)), "l"(state) : "memory");
    return done;
}
static __device__ bool try_parity(Word *bar, unsigned parity)
{
    int done;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(SHARED(bar)), "r"(parity) : "memory");
    return done;
}
#else
static __device__ bool try_wait(Word *bar, Word state) { return test_wait(bar, state); }
static __device__ bool try_parity(Word *bar, unsigned parity) { return test_parity(bar, parity); }
#endif

// three turns: all arrive, all wait for the phase that their token names
extern "C" __global__ void tokens(const int *in, int *out, int n)
{
    AT;
    __shared__ Word bar;
    __shared__ int shared[1024];
    if (t == 0)
        init_barrier(&bar, threads);
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < 3; k++) {
        shared[t] = in[(i + k) % n];
        Word state = arrive(&bar);
        while (!test_wait(&bar, state)) {}
        sum += shared[(t + 1) % threads] * (k + 1);
        state = arrive(&bar);
        while (!try_wait(&bar, state)) {}
    }
    __syncthreads();
    if (t == 0)
        asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(SHARED(&bar)) : "memory");
    if (i < n)
        out[i] = sum;
}

// one half of the block makes, the other takes; full and empty are told by parity
extern "C" __global__ void parities(const int *in, int *out, int n)
{
    AT;
    __shared__ Word full, empty;
    __shared__ int shared[1024];
    int half = threads / 2, sum = 0;
    if (t == 0) {
        init_barrier(&full, half);
        init_barrier(&empty, threads - half);
    }
    __syncthreads();
    for (int k = 0; k < 4; k++) {
        if (t < half) {
            while (k > 0 && !try_parity(&empty, (k - 1) & 1)) {}
            shared[t] = in[(i + k) % n];
            arrive(&full);
        } else {
            while (!test_parity(&full, k & 1)) {}
            sum += shared[(t - half) % half] * (k + 1);
            arrive(&empty);
        }
    }
    if (i < n)
        out[i] = sum;
}

// some arrive twice without completing, some leave for good
extern "C" __global__ void drop_and_count(const int *in, int *out, int n)
{
    AT;
    __shared__ Word bar;
    __shared__ int shared[1024];
    Word state;
    unsigned pending;
    if (t == 0)
        init_barrier(&bar, 2 * threads);
    __syncthreads();
    asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 1;" : "=l"(state) : "r"(SHARED(&bar)) : "memory");
    shared[t] = in[t % n];
    __syncthreads();
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(state));
    asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(state) : "r"(SHARED(&bar)) : "memory");
    while (!test_wait(&bar, state)) {}
    // the next phase expects one arrival a thread
    state = arrive(&bar);
    while (!test_wait(&bar, state)) {}
    if (i < n)
        out[i] = shared[(t + 5) % threads] + (pending <= 2 * threads);
}

// asynchronous copies that arrive when they are complete
extern "C" __global__ void copies_arrive(const int *in, int *out, int n)
{
    AT;
    __shared__ Word bar;
    __shared__ int shared[1024];
    if (t == 0)
        init_barrier(&bar, threads);
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SHARED(&shared[t])), "l"(in + t % n) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(SHARED(&bar)) : "memory");
    while (!test_parity(&bar, 0)) {}
    int sum = shared[(t + 3) % threads];
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SHARED(&shared[t])), "l"(in + (t + 1) % n) : "memory");
    asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(SHARED(&bar)) : "memory");
    Word state = arrive(&bar);
    while (!test_wait(&bar, state)) {}
    if (i < n)
        out[i] = sum + 3 * shared[(t + 4) % threads];
}

extern "C" __global__ void library_barrier(const int *in, int *out, int n)
{
    AT;
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int shared[1024];
    if (t == 0)
        init(&bar, threads);
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < 3; k++) {
        shared[t] = in[(t + k) % n];
        bar.arrive_and_wait();
        sum += shared[(t + 1) % threads];
        auto token = bar.arrive();
        sum *= 3;
        bar.wait(std::move(token));
    }
    if (i < n)
        out[i] = sum;
}

extern "C" __global__ void library_pipeline(const int *in, int *out, int n)
{
    AT;
    auto block = cooperative_groups::this_thread_block();
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    __shared__ int shared[2][32];
    auto pipe = cuda::make_pipeline(block, &state);
    int sum = 0, count = n / 4 < 16 ? n / 4 : 16;
    for (int k = 0; k < 5; k++) {
        if (k < 4) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, shared[k % 2], in + k * count, sizeof(int) * count, pipe);
            pipe.producer_commit();
        }
        if (k > 0) {
            pipe.consumer_wait();
            sum += shared[(k - 1) % 2][(t + k) % count];
            pipe.consumer_release();
        }
    }
    if (i < n)
        out[i] = sum;
}

// the pipeline of a single thread needs no barrier
extern "C" __global__ void thread_pipeline(const int *in, int *out, int n)
{
    AT;
    __shared__ int shared[2][1024];
    int sum = 0;
    for (int k = 0; k < 5; k++) {
        if (k < 4)
            __pipeline_memcpy_async(&shared[k % 2][t], in + (i + k * threads) % n, 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        if (k > 0)
            sum += shared[(k - 1) % 2][(t + 1) % threads];
        __syncthreads();
    }
    if (i < n)
        out[i] = sum;
}

extern "C" __global__ void group_copy(const int *in, int *out, int n)
{
    AT;
    auto block = cooperative_groups::this_thread_block();
    __shared__ int shared[1024];
    int count = threads < n ? threads : n;
    cooperative_groups::memcpy_async(block, shared, in, sizeof(int) * count);
    cooperative_groups::wait(block);
    if (i < n)
        out[i] = shared[(t + 7) % count];
}
