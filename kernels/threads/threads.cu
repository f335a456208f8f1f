// What threads of a warp and of a block have to do with each other: branches, exchange, barriers, and one counter.

// The difference to the left neighbour: a block reads each element once and shares it.
extern "C" __global__ void shared_neighbor(const float *in, float *out, int n)
{
    __shared__ float tile[257];
    int tid = threadIdx.x;
    int i = blockIdx.x * 256 + tid;
    if (i < n)
        tile[tid + 1] = in[i];
    if (tid == 0)
        tile[0] = i > 0 ? in[i - 1] : 0.0f;
    __syncthreads();  // the neighbour belongs to another thread
    if (i < n)
        out[i] = tile[tid + 1] - tile[tid];
}

// Groups of GROUP neighbours take turns in which side of the branch they go. The loops stay loops, so that the sides
// stay branches.
template <int GROUP>
__global__ void diverge(unsigned *out, int n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned hash = i;
    if (i / GROUP % 2 == 0) {
#pragma unroll 1
        for (int k = 0; k < 32; ++k)
            hash = hash * 1664525u + 1013904223u;
    } else {
#pragma unroll 1
        for (int k = 0; k < 32; ++k)
            hash = hash * 22695477u + 1u;
    }
    if (i < n)
        out[i] = hash;
}

// The sum of each warp's elements, right in lane 0.
extern "C" __global__ void shuffle_down(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = i < n ? in[i] : 0.0f;
    for (int s = 16; s > 0; s /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, s);
    if (i % 32 == 0 && i < n)
        out[i / 32] = sum;
}

// The sum of each warp's elements, right in all lanes.
extern "C" __global__ void shuffle_xor(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = i < n ? in[i] : 0.0f;
    for (int s = 16; s > 0; s /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, s);
    if (i < n)
        out[i] = sum;
}

extern "C" __global__ void counter_race(unsigned *counter, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        *counter = *counter + 1;  // WRONG on purpose: another thread may write between this read and this write
}

extern "C" __global__ void counter_atomic(unsigned *counter, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(counter, 1u);
}

// The eight rows of 32 elements of each block added, and the sums handed to all eight warps.
// WRONG on purpose: threads with nothing to add do not meet the barriers of the loop. They arrive at the one after it
// instead, the hardware takes the two for one, and they read sums that are not finished.
extern "C" __global__ void barrier_in_branch(const float *in, float *out, int n)
{
    __shared__ float sums[256];
    int tid = threadIdx.x;
    int i = blockIdx.x * 256 + tid;
    sums[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int s = 128; s >= 32; s /= 2) {
        if (tid < s) {
            sums[tid] += sums[tid + s];
            __syncthreads();
        }
    }
    __syncthreads();
    if (i < n)
        out[i] = sums[tid % 32];
}
