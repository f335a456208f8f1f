// Counts of byte values: bins[v] becomes the number of elements equal to v. `bins` has 256 entries, zero before.
//
// Any grid of blocks of 256 threads works: the threads go on, a whole grid further each time, until the data is used up.
//
// Value is the type that the data is read as. Bytes are unsigned char. Read as signed char, those over 127 are negative,
// fail the test and are lost without a word; the test looks careful and hides it. For unsigned char it is always true
// and the compiler drops it.

// One atomic in global memory for each element.
template <typename Value>
__global__ void hist_global(const Value *data, unsigned *bins, int n)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int threads = gridDim.x * blockDim.x;
    for (int i = thread; i < n; i += threads) {
        int value = data[i];
        if (value >= 0 && value < 256)
            atomicAdd(&bins[value], 1u);
    }
}

// Each block counts in shared memory and adds its 256 sums to the result at the end.
template <typename Value>
__global__ void hist_shared(const Value *data, unsigned *bins, int n)
{
    __shared__ unsigned counts[256];
    counts[threadIdx.x] = 0;
    __syncthreads();

    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int threads = gridDim.x * blockDim.x;
    for (int i = thread; i < n; i += threads) {
        int value = data[i];
        if (value >= 0 && value < 256)
            atomicAdd(&counts[value], 1u);
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], counts[threadIdx.x]);
}

// The same with four bytes a load.
extern "C" __global__ void hist_vec4(const unsigned char *data, unsigned *bins, int n)
{
    __shared__ unsigned counts[256];
    counts[threadIdx.x] = 0;
    __syncthreads();

    const uchar4 *quads = (const uchar4 *)data;
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int threads = gridDim.x * blockDim.x;
    for (int i = thread; i < n / 4; i += threads) {
        uchar4 quad = quads[i];
        atomicAdd(&counts[quad.x], 1u);
        atomicAdd(&counts[quad.y], 1u);
        atomicAdd(&counts[quad.z], 1u);
        atomicAdd(&counts[quad.w], 1u);
    }
    if (thread < n % 4)  // the last one to three elements
        atomicAdd(&counts[data[n / 4 * 4 + thread]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], counts[threadIdx.x]);
}
