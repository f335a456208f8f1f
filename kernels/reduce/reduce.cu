// Sums of n floats, any n of at least one.
//
// All but reduce_vec4 leave one partial sum a block in `out`; the launch is repeated on those until one value is left.
// Threads beyond the end add zero.
//
// BLOCK is the block size, for the size of the shared array. The loops of the trees run to blockDim.x all the same: it
// is known only at run time, so that they stay the loops that are written here.

// Neighbours first: s = 1, 2, 4... In each step every (2s)-th thread adds; all warps stay busy with ever fewer lanes.
template <int BLOCK>
__global__ void reduce_interleaved(const float *in, float *out, int n)
{
    __shared__ float sums[BLOCK];
    unsigned tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    sums[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();

    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0)
            sums[tid] += sums[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = sums[0];
}

// The same additions by the first threads of the block: no warp is half busy, but the words that a warp touches are
// 2s apart and share banks.
template <int BLOCK>
__global__ void reduce_strided(const float *in, float *out, int n)
{
    __shared__ float sums[BLOCK];
    unsigned tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    sums[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();

    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        unsigned at = 2 * s * tid;
        if (at < blockDim.x)
            sums[at] += sums[at + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = sums[0];
}

// reduce_interleaved with half the blocks: each thread adds two elements, a block apart, while loading.
template <int BLOCK>
__global__ void reduce_first_add(const float *in, float *out, int n)
{
    __shared__ float sums[BLOCK];
    unsigned tid = threadIdx.x;
    int i = blockIdx.x * (blockDim.x * 2) + tid;
    int j = i + blockDim.x;
    float first = i < n ? in[i] : 0.0f;
    float second = j < n ? in[j] : 0.0f;
    sums[tid] = first + second;
    __syncthreads();

    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0)
            sums[tid] += sums[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = sums[0];
}

// The far half onto the near half: whole warps add or rest, and neighbouring lanes touch neighbouring words.
template <int BLOCK>
__global__ void reduce_sequential(const float *in, float *out, int n)
{
    __shared__ float sums[BLOCK];
    unsigned tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    sums[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();

    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s)
            sums[tid] += sums[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = sums[0];
}

// The last 64 values belong to one warp, which needs no block barrier but does need its own: its lanes need not run
// in step. One __syncwarp() comes between all reads and the writes over them, one between those and the next reads.
// The sum is right in lane 0.
__device__ float finish_in_one_warp(float *sums, unsigned lane)
{
    float sum = sums[lane] + sums[lane + 32];
    for (unsigned s = 16; s > 0; s /= 2) {
        __syncwarp();
        sums[lane] = sum;
        __syncwarp();
        sum += sums[lane + s];
    }
    return sum;
}

template <int BLOCK>
__global__ void reduce_unroll_warp(const float *in, float *out, int n)
{
    __shared__ float sums[BLOCK];
    unsigned tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    sums[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();

    for (unsigned s = blockDim.x / 2; s > 32; s /= 2) {
        if (tid < s)
            sums[tid] += sums[tid + s];
        __syncthreads();
    }
    if (tid < 32) {
        float sum = finish_in_one_warp(sums, tid);
        if (tid == 0)
            out[blockIdx.x] = sum;
    }
}

// WRONG on purpose. `volatile` makes the compiler keep every load and store in this order for one thread. It says
// nothing about the other lanes of the warp, which may be ahead or behind: a lane can read a word before its owner
// has written it, or after its owner has written the next one.
template <int BLOCK>
__global__ void reduce_unroll_warp_race(const float *in, float *out, int n)
{
    __shared__ float sums[BLOCK];
    unsigned tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    sums[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();

    for (unsigned s = blockDim.x / 2; s > 32; s /= 2) {
        if (tid < s)
            sums[tid] += sums[tid + s];
        __syncthreads();
    }
    if (tid < 32) {
        volatile float *words = sums;
        words[tid] += words[tid + 32];
        words[tid] += words[tid + 16];
        words[tid] += words[tid + 8];
        words[tid] += words[tid + 4];
        words[tid] += words[tid + 2];
        words[tid] += words[tid + 1];
    }
    if (tid == 0)
        out[blockIdx.x] = sums[0];
}

// The sum of `value` over the first `lanes` lanes of the warp, right in lane 0. All lanes take part.
__device__ float warp_sum(float value, int lanes)
{
    for (int s = lanes / 2; s > 0; s /= 2)
        value += __shfl_down_sync(0xffffffff, value, s);
    return value;
}

// The sum of `value` over the block, right in thread 0: shuffles inside each warp, one word a warp in shared memory,
// and shuffles again by the first warp.
template <int BLOCK>
__device__ float block_sum(float value)
{
    const int WARPS = BLOCK / 32;
    __shared__ float sums[WARPS];
    int lane = threadIdx.x % 32;
    int warp = threadIdx.x / 32;

    value = warp_sum(value, 32);
    if (lane == 0)
        sums[warp] = value;
    __syncthreads();
    if (warp == 0)
        value = warp_sum(lane < WARPS ? sums[lane] : 0.0f, WARPS);
    return value;
}

// Two elements a thread, and hardly any shared memory: the values move from register to register.
template <int BLOCK>
__global__ void reduce_shuffle(const float *in, float *out, int n)
{
    int i = blockIdx.x * (BLOCK * 2) + threadIdx.x;
    float first = i < n ? in[i] : 0.0f;
    float second = i + BLOCK < n ? in[i + BLOCK] : 0.0f;
    float sum = block_sum<BLOCK>(first + second);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

// Four elements a load, as many loads as it takes, and one launch: every block adds its sum to *out, which must hold
// zero before. In which order the blocks do so is up to the hardware, and so is the rounding of the result.
template <int BLOCK>
__global__ void reduce_vec4(const float *in, float *out, int n)
{
    const float4 *quads = (const float4 *)in;
    int thread = blockIdx.x * BLOCK + threadIdx.x;
    int threads = gridDim.x * BLOCK;

    float sum = 0.0f;
    for (int i = thread; i < n / 4; i += threads) {
        float4 quad = quads[i];
        sum += quad.x + quad.y + quad.z + quad.w;
    }
    if (thread < n % 4)  // the last one to three elements
        sum += in[n / 4 * 4 + thread];

    sum = block_sum<BLOCK>(sum);
    if (threadIdx.x == 0)
        atomicAdd(out, sum);
}
