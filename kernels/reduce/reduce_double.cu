// Sums of n doubles, any n of at least one: the same tree in global, in static and in dynamic shared memory.
//
// Each launch leaves one partial sum a block in `out` and is repeated on those until one value is left.

// In place: `data` is overwritten. A pair whose far element lies beyond the end is left alone.
extern "C" __global__ void reduce_global(double *data, double *out, int n)
{
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;

    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s && i + s < n)
            data[i] += data[i + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = data[i];
}

extern "C" __global__ void reduce_shared(const double *in, double *out, int n)
{
    __shared__ double sums[128];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    sums[tid] = i < n ? in[i] : 0.0;
    __syncthreads();

    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s)
            sums[tid] += sums[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = sums[0];
}

// The size of the array is an argument of the launch: one double a thread.
extern "C" __global__ void reduce_dynamic(const double *in, double *out, int n)
{
    extern __shared__ double sums[];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    sums[tid] = i < n ? in[i] : 0.0;
    __syncthreads();

    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s)
            sums[tid] += sums[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = sums[0];
}
