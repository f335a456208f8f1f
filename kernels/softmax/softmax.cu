// Softmax of each row: out[r][c] = exp(in[r][c] - max) / sum, with the row's maximum and the sum of the exponentials.
//
// `rows` rows of `cols` floats without gaps. Any number of rows works, and any number of columns but for softmax_vec4.

const float LOWEST = -3.402823466e+38f;  // not -infinity: LOWEST - LOWEST is a number

struct Max {
    static __device__ float of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
    static __device__ float of(float a, float b) { return a + b; }
};

// One thread a row, three passes over it. The lanes of a warp are a whole row apart in every access.
extern "C" __global__ void softmax_naive(const float *in, float *out, int rows, int cols)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    in += (size_t)row * cols;
    out += (size_t)row * cols;

    float max = LOWEST;
    for (int c = 0; c < cols; ++c)
        max = fmaxf(max, in[c]);
    float sum = 0.0f;
    for (int c = 0; c < cols; ++c)
        sum += expf(in[c] - max);
    float scale = 1.0f / sum;
    for (int c = 0; c < cols; ++c)
        out[c] = expf(in[c] - max) * scale;
}

// `value` of all threads of the block put together, by a tree in shared memory. The last barrier lets the array be used
// again.
template <int BLOCK, typename Operation>
__device__ float tree(float *values, float value)
{
    values[threadIdx.x] = value;
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            values[threadIdx.x] = Operation::of(values[threadIdx.x], values[threadIdx.x + s]);
        __syncthreads();
    }
    float result = values[0];
    __syncthreads();
    return result;
}

// One row a block. The exponentials are written to `out` and read back to be scaled.
template <int BLOCK>
__global__ void softmax_smem(const float *in, float *out, int rows, int cols)
{
    __shared__ float values[BLOCK];
    in += (size_t)blockIdx.x * cols;
    out += (size_t)blockIdx.x * cols;

    float max = LOWEST;
    for (int c = threadIdx.x; c < cols; c += BLOCK)
        max = fmaxf(max, in[c]);
    max = tree<BLOCK, Max>(values, max);

    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += BLOCK) {
        float e = expf(in[c] - max);
        out[c] = e;
        sum += e;
    }
    sum = tree<BLOCK, Sum>(values, sum);

    float scale = 1.0f / sum;
    for (int c = threadIdx.x; c < cols; c += BLOCK)
        out[c] *= scale;
}

// The same by shuffles inside each warp; thread 0 puts the warps' results together and hands the answer to all.
template <int BLOCK, typename Operation>
__device__ float shuffle_then_one_thread(float *values, float value)
{
    for (int s = 16; s > 0; s /= 2)
        value = Operation::of(value, __shfl_down_sync(0xffffffff, value, s));
    if (threadIdx.x % 32 == 0)
        values[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < BLOCK / 32; ++warp)
            value = Operation::of(value, values[warp]);
        values[0] = value;
    }
    __syncthreads();
    float result = values[0];
    __syncthreads();
    return result;
}

template <int BLOCK>
__global__ void softmax_shuffle(const float *in, float *out, int rows, int cols)
{
    __shared__ float values[BLOCK / 32];
    in += (size_t)blockIdx.x * cols;
    out += (size_t)blockIdx.x * cols;

    float max = LOWEST;
    for (int c = threadIdx.x; c < cols; c += BLOCK)
        max = fmaxf(max, in[c]);
    max = shuffle_then_one_thread<BLOCK, Max>(values, max);

    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += BLOCK) {
        float e = expf(in[c] - max);
        out[c] = e;
        sum += e;
    }
    sum = shuffle_then_one_thread<BLOCK, Sum>(values, sum);

    float scale = 1.0f / sum;
    for (int c = threadIdx.x; c < cols; c += BLOCK)
        out[c] *= scale;
}

// Right in all lanes of the warp.
template <typename Operation>
__device__ float over_warp(float value)
{
    for (int s = 16; s > 0; s /= 2)
        value = Operation::of(value, __shfl_xor_sync(0xffffffff, value, s));
    return value;
}

// Every thread puts the few results of the warps together itself: one barrier, and all read the same words.
template <int BLOCK, typename Operation>
__device__ float over_block(float *values, float value)
{
    value = over_warp<Operation>(value);
    if (threadIdx.x % 32 == 0)
        values[threadIdx.x / 32] = value;
    __syncthreads();
    value = values[0];
    for (int warp = 1; warp < BLOCK / 32; ++warp)
        value = Operation::of(value, values[warp]);
    return value;
}

// One row a block; the exponentials are computed a second time instead of being kept in memory.
template <int BLOCK>
__global__ void softmax_block(const float *in, float *out, int rows, int cols)
{
    __shared__ float maxima[BLOCK / 32];
    __shared__ float sums[BLOCK / 32];
    in += (size_t)blockIdx.x * cols;
    out += (size_t)blockIdx.x * cols;

    float max = LOWEST;
    for (int c = threadIdx.x; c < cols; c += BLOCK)
        max = fmaxf(max, in[c]);
    max = over_block<BLOCK, Max>(maxima, max);

    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += BLOCK)
        sum += expf(in[c] - max);
    sum = over_block<BLOCK, Sum>(sums, sum);

    float scale = 1.0f / sum;
    for (int c = threadIdx.x; c < cols; c += BLOCK)
        out[c] = expf(in[c] - max) * scale;
}

// A warp a row of COLS columns, a multiple of 128. The row is loaded once, stays in registers, and is stored once.
template <int COLS>
__global__ void softmax_vec4(const float *in, float *out, int rows)
{
    const int QUADS = COLS / 128;  // of four floats a lane
    int lane = threadIdx.x % 32;
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows)
        return;
    const float4 *from = (const float4 *)(in + (size_t)row * COLS);
    float4 *to = (float4 *)(out + (size_t)row * COLS);

    float4 quads[QUADS];
    float max = LOWEST;
    for (int i = 0; i < QUADS; ++i) {
        float4 q = quads[i] = from[i * 32 + lane];
        max = fmaxf(max, fmaxf(fmaxf(q.x, q.y), fmaxf(q.z, q.w)));
    }
    max = over_warp<Max>(max);

    float sum = 0.0f;
    for (int i = 0; i < QUADS; ++i) {
        float4 q = quads[i];
        q = make_float4(expf(q.x - max), expf(q.y - max), expf(q.z - max), expf(q.w - max));
        sum += q.x + q.y + q.z + q.w;
        quads[i] = q;
    }
    sum = over_warp<Sum>(sum);

    float scale = 1.0f / sum;
    for (int i = 0; i < QUADS; ++i) {
        float4 q = quads[i];
        to[i * 32 + lane] = make_float4(q.x * scale, q.y * scale, q.z * scale, q.w * scale);
    }
}

// A warp a row, maximum and sum in the same pass: whenever a larger maximum turns up, the sum so far is scaled down to
// it. Lanes are put together by the same rule.
extern "C" __global__ void softmax_online(const float *in, float *out, int rows, int cols)
{
    int lane = threadIdx.x % 32;
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows)
        return;
    in += (size_t)row * cols;
    out += (size_t)row * cols;

    float max = LOWEST, sum = 0.0f;
    for (int c = lane; c < cols; c += 32) {
        float value = in[c];
        float larger = fmaxf(max, value);
        sum = sum * expf(max - larger) + expf(value - larger);
        max = larger;
    }
    for (int s = 16; s > 0; s /= 2) {
        float other_max = __shfl_xor_sync(0xffffffff, max, s);
        float other_sum = __shfl_xor_sync(0xffffffff, sum, s);
        float larger = fmaxf(max, other_max);
        sum = sum * expf(max - larger) + other_sum * expf(other_max - larger);
        max = larger;
    }

    float scale = 1.0f / sum;
    for (int c = lane; c < cols; c += 32)
        out[c] = expf(in[c] - max) * scale;
}
