// Block barriers other than number 0, and barriers for some of a block's warps. Every kernel takes (in, out, n).
#define AT int i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32
#define SYNC(id, count) asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory")
#define ARRIVE(id, count) asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory")

// each pair of warps has a barrier of its own, chosen at run time
extern "C" __global__ void pairs_of_warps(const int *in, int *out, int n)
{
    AT;
    __shared__ int shared[1024];
    int sum = 0, partner = threadIdx.x ^ 32;
    int threads = warp == warps - 1 && warps % 2 ? 32 : 64;
    for (int k = 0; k < 3; k++) {
        shared[threadIdx.x] = in[(i + k) % n];
        SYNC(1 + warp / 2, threads);
        sum += partner < blockDim.x ? shared[partner] * (k + 1) : 1;
        SYNC(1 + warp / 2, threads);
    }
    if (i < n)
        out[i] = sum;
}

// the first warp makes what the others use: two barriers, full and empty, arrived at without waiting
extern "C" __global__ void producer_and_consumers(const int *in, int *out, int n)
{
    AT;
    __shared__ int shared[32];
    int all = warps * 32, sum = 0;
    if (warp == 0) {
        for (int k = 0; k < 4; k++) {
            if (k > 0)
                SYNC(2, all);
            shared[threadIdx.x] = in[(k * 32 + threadIdx.x) % n] + k;
            __threadfence_block();
            ARRIVE(1, all);
        }
    } else {
        for (int k = 0; k < 4; k++) {
            SYNC(1, all);
            sum += shared[(threadIdx.x + k) % 32];
            if (k < 3)
                ARRIVE(2, all);
        }
    }
    if (i < n)
        out[i] = sum;
}

// constant numbers and a constant count
extern "C" __global__ void fixed_numbers(const int *in, int *out, int n)
{
    AT;
    __shared__ int shared[1024];
    shared[threadIdx.x] = i < n ? in[i] : 0;
    int sum = 0;
    if (warp < 1) {
        asm volatile("bar.sync 3, 32;" ::: "memory");
        sum = shared[(threadIdx.x + 1) % 32];
    } else {
        asm volatile("bar.sync 4;" ::: "memory");
    }
    if (warp < 1)
        asm volatile("bar.sync 4;" ::: "memory");
    sum += shared[(threadIdx.x + 5) % blockDim.x];
    if (i < n)
        out[i] = sum;
}

// reductions over a barrier with a number
extern "C" __global__ void numbered_reductions(const int *in, int *out, int n)
{
    AT;
    int x = i < n ? in[i] : 0, count, any, all, threads = warps * 32;
    asm volatile("{.reg .pred p; setp.ne.s32 p, %1, 0; bar.red.popc.u32 %0, 5, %2, p;}" : "=r"(count) : "r"(x & 1), "r"(threads));
    asm volatile("{.reg .pred p, q; setp.ne.s32 p, %1, 0; bar.red.or.pred q, 6, %2, p; selp.s32 %0, 1, 0, q;}" : "=r"(any) : "r"(x & 4), "r"(threads));
    asm volatile("{.reg .pred p, q; setp.ne.s32 p, %1, 0; bar.red.and.pred q, 6, %2, p; selp.s32 %0, 1, 0, q;}" : "=r"(all) : "r"(x | 1), "r"(threads));
    if (i < n)
        out[i] = count * 4 + any * 2 + all;
}

// barrier.sync, which lanes may reach one by one
extern "C" __global__ void not_aligned(const int *in, int *out, int n)
{
    AT;
    __shared__ int shared[1024];
    shared[threadIdx.x] = i < n ? in[i] : 3;
    if (in[threadIdx.x % n] & 1)
        asm volatile("barrier.cta.sync 7, %0;" ::"r"(warps * 32) : "memory");
    else
        asm volatile("barrier.cta.sync 7, %0;" ::"r"(warps * 32) : "memory");
    int sum = shared[(threadIdx.x * 7 + 1) % blockDim.x];
    if (i < n)
        out[i] = sum;
}

// each half of the block goes round its own loop
extern "C" __global__ void halves_at_their_own_pace(const int *in, int *out, int n)
{
    AT;
    __shared__ int shared[1024];
    int half = warp >= warps / 2, sum = 0;
    int threads = half ? (warps - warps / 2) * 32 : warps / 2 * 32;
    shared[threadIdx.x] = i < n ? in[i] : 1;
    __syncthreads();
    for (int k = 0; k < 2 + 3 * half; k++) {
        sum += shared[(threadIdx.x + k) % blockDim.x];
        SYNC(8 + half, threads);
    }
    __syncthreads();
    if (i < n)
        out[i] = sum;
}
