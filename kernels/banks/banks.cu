// Shared memory has 32 banks of 4-byte words: word w lies in bank w % 32. An access of a warp takes as many wavefronts
// as the most different words in one bank. Reading the same word by several lanes costs nothing extra.
//
// A block copies 1024 floats to shared memory and reads them back in another order. `in` is read as zeros beyond n.

// A row, from the last row to the first: 32 neighbouring words, one in each bank.
extern "C" __global__ void bank_row(const float *in, float *out, int n)
{
    __shared__ float tile[32][32];
    int i = blockIdx.x * 1024 + threadIdx.y * 32 + threadIdx.x;
    tile[threadIdx.y][threadIdx.x] = i < n ? in[i] : 0.0f;
    __syncthreads();
    if (i < n)
        out[i] = tile[31 - threadIdx.y][threadIdx.x];
}

// A column: words PITCH apart. With 32 they are all in the same bank, with 33 each is in another.
template <int PITCH>
__global__ void bank_column(const float *in, float *out, int n)
{
    __shared__ float tile[32][PITCH];
    int i = blockIdx.x * 1024 + threadIdx.y * 32 + threadIdx.x;
    tile[threadIdx.y][threadIdx.x] = i < n ? in[i] : 0.0f;
    __syncthreads();
    if (i < n)
        out[i] = tile[threadIdx.x][threadIdx.y];
}

// One word for all lanes.
extern "C" __global__ void bank_broadcast(const float *in, float *out, int n)
{
    __shared__ float tile[32][32];
    int i = blockIdx.x * 1024 + threadIdx.y * 32 + threadIdx.x;
    tile[threadIdx.y][threadIdx.x] = i < n ? in[i] : 0.0f;
    __syncthreads();
    if (i < n)
        out[i] = tile[31 - threadIdx.y][0];
}

// Rows of 32 vectors of 8 or 16 bytes, as wide as 2 or 4 rows of words. `n` counts vectors.
template <typename Vector>
__device__ void reverse_rows(const Vector *in, Vector *out, int n)
{
    const int ROWS = 1024 * sizeof(float) / sizeof(Vector) / 32;
    __shared__ Vector tile[ROWS][32];
    int i = (blockIdx.x * ROWS + threadIdx.y) * 32 + threadIdx.x;
    tile[threadIdx.y][threadIdx.x] = i < n ? in[i] : Vector();
    __syncthreads();
    if (i < n)
        out[i] = tile[ROWS - 1 - threadIdx.y][threadIdx.x];
}

extern "C" __global__ void bank_pairs64(const float2 *in, float2 *out, int n) { reverse_rows(in, out, n); }
extern "C" __global__ void bank_quads128(const float4 *in, float4 *out, int n) { reverse_rows(in, out, n); }
