// Where a thread's variables live, and how many warps a multiprocessor can hold at a time.

// A matrix of 16 rows, rotated upwards by `shift` rows: out[r] = in[(r + shift) % 16]. Each thread has a column.
// Which element is read in a turn is known at run time only. Registers have no addresses, so the array is kept in
// local memory.
extern "C" __global__ void local_array(const float *in, float *out, int shift, int cols)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols)
        return;
    float values[16];
    for (int r = 0; r < 16; ++r)
        values[r] = in[r * cols + col];
    for (int r = 0; r < 16; ++r)
        out[r * cols + col] = values[(r + shift) % 16u];
}

// The same with the shift known at compile time: unrolled, every index is a constant, and the array is 16 registers.
template <int SHIFT>
__global__ void register_array(const float *in, float *out, int cols)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols)
        return;
    float values[16];
    for (int r = 0; r < 16; ++r)
        values[r] = in[r * cols + col];
    for (int r = 0; r < 16; ++r)
        out[r * cols + col] = values[(r + SHIFT) % 16];
}

// Chunks of 96 rows of 256 floats, each turned upside down. A thread reads all 96 elements of its column before it writes
// the first, because `in` and `out` could be the same for all the compiler knows: 96 registers are full at once.
extern "C" __global__ void occupancy_registers(const float *in, float *out)
{
    in += blockIdx.x * 96 * 256 + threadIdx.x;
    out += blockIdx.x * 96 * 256 + threadIdx.x;
    float values[96];
#pragma unroll
    for (int r = 0; r < 96; ++r)
        values[r] = in[r * 256];
#pragma unroll
    for (int r = 0; r < 96; ++r)
        out[r * 256] = values[95 - r];
}

// 12288 floats a block, turned round in 48 KiB of shared memory.
extern "C" __global__ void occupancy_shared(const float *in, float *out)
{
    __shared__ float tile[12288];
    in += blockIdx.x * 12288;
    out += blockIdx.x * 12288;
    for (int i = threadIdx.x; i < 12288; i += 256)
        tile[i] = in[i];
    __syncthreads();
    for (int i = threadIdx.x; i < 12288; i += 256)
        out[i] = tile[12287 - i];
}

// A plain stream, launched in blocks of a single warp.
extern "C" __global__ void occupancy_block(float *a, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] *= factor;
}
