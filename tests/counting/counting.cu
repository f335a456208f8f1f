// Kernels whose blocks differ in ways that counting many blocks at once has to get right.  Buffers: `in` and `out` of
// 1 << 16 words each, `index` of 1 << 12 numbers below 4096.

#define KERNEL extern "C" __global__ void

KERNEL edges(const float *in, float *out, const int *index, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n - 3)
        out[y * n + x] = in[x * n + y];
}

KERNEL linear_blocks(const float *in, float *out, const int *index, int n)
{
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int i = block * blockDim.x + threadIdx.x;
    if (i < n * n)
        out[i] = in[n * n - 1 - i];
}

KERNEL block_modulo(const float *in, float *out, const int *index, int n)
{
    int row = blockIdx.x % 7, column = blockIdx.x / 7 + blockIdx.y * blockIdx.y;
    out[(row * 97 + column * 5 + threadIdx.x) & 65535] = in[(row ^ column) * 33 + threadIdx.x];
}

KERNEL divide_by_n(const float *in, float *out, const int *index, int n)
{
    int a = blockIdx.x / n, b = blockIdx.x % n;
    if ((a + b) % 2 == 0)
        out[a * 64 + b * 32 + threadIdx.x] = in[a + b + threadIdx.x * 3];
}

KERNEL even_blocks(const float *in, float *out, const int *index, int n)
{
    if (blockIdx.x & 1) {
        for (int k = 0; k < (blockIdx.x & 6); ++k)
            out[threadIdx.x + 32 * k] += in[threadIdx.x * 2 + k];
        return;
    }
    if (blockIdx.y == 2)
        out[threadIdx.x * 17] = 1;
    else
        out[threadIdx.x] = 2;
}

KERNEL wrap_around(const float *in, float *out, const int *index, int n)
{
    unsigned left = blockIdx.x * blockDim.x + threadIdx.x - 5u;  // wraps in the first block
    if (left < 1000u)
        out[left] = in[left];
    int back = (int)threadIdx.x - (int)(blockIdx.x * 40);
    if (back >= 0)
        out[back] = 1;
}

KERNEL triangle(const float *in, float *out, const int *index, int n)
{
    if (blockIdx.x > blockIdx.y)
        return;
    int trips = blockIdx.y - blockIdx.x;
    float sum = 0;
    for (int k = 0; k <= trips; ++k)
        sum += in[k * 32 + threadIdx.x];
    out[blockIdx.y * 64 + threadIdx.x] = sum;
}

KERNEL grid_stride(const float *in, float *out, const int *index, int n)
{
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n * n; i += gridDim.x * blockDim.x)
        sum += in[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

KERNEL row_lengths(const float *in, float *out, const int *index, int n)
{
    int first = index[blockIdx.x] & 63, last = first + (index[blockIdx.x + 1] & 15);
    for (int i = first + threadIdx.x; i < last; i += blockDim.x)
        out[blockIdx.x * 64 + i] = in[i * 2];
}

KERNEL gather(const float *in, float *out, const int *index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[index[i & 4095]];
}

KERNEL lookup(const float *in, float *out, const int *index, int n)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = in[index[threadIdx.x] + index[blockIdx.x]];
}

KERNEL in_place(const float *in, float *out, const int *index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = out[i] * 0.5f + 1;
    if (out[i] > 1e30f)
        out[i + 1] = 0;
}

KERNEL compare_data(const float *in, float *out, const int *index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (in[i] < 2.0f)
        out[i] = 1;
    if (in[i] > 0.5f)
        out[i + 7] = in[i] / 3.0f;
}

KERNEL divide_data(const float *in, float *out, const int *index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = expf(in[i]) / (in[i] * in[i] + 1.0f);
}

KERNEL tile(const float *in, float *out, const int *index, int n)
{
    __shared__ float buffer[33 * 32];
    int x = blockIdx.x * 32 + threadIdx.x % 32, y = blockIdx.y * 8 + threadIdx.x / 32;
    buffer[threadIdx.x / 32 * 33 + threadIdx.x % 32] = x < n && y < n ? in[y * n + x] : 0;
    __syncthreads();
    int turned = threadIdx.x % 8 * 33 + threadIdx.x / 8;
    if (y < n)
        out[(blockIdx.x + blockIdx.y * gridDim.x) * 8 + threadIdx.x % 8] = buffer[turned];
}

KERNEL shared_table(const float *in, float *out, const int *index, int n)
{
    __shared__ int table[64];
    if (threadIdx.x < 64)
        table[threadIdx.x] = threadIdx.x * 3 % 64;
    __syncthreads();
    int i = table[threadIdx.x & 63];
    out[i + blockIdx.x * 64] = table[i];
}

KERNEL shared_blocks(const float *in, float *out, const int *index, int n)
{
    __shared__ int first;
    if (threadIdx.x == 0)
        first = blockIdx.x * 8;
    __syncthreads();
    out[first + threadIdx.x] = 1;
}

KERNEL tree(const float *in, float *out, const int *index, int n)
{
    extern __shared__ float sums[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[threadIdx.x] = i < n * n ? in[i] : 0;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = sums[0];
}

KERNEL shuffled_block(const float *in, float *out, const int *index, int n)
{
    int mine = blockIdx.x * 4 + threadIdx.x;
    int other = __shfl_xor_sync(0xffffffff, mine, 1 + (threadIdx.x & 2));
    int first = __shfl_sync(0xffffffff, mine, blockIdx.x & 31);
    out[other] = 1;
    out[first] = 2;
}

KERNEL ballots(const float *in, float *out, const int *index, int n)
{
    unsigned below = __ballot_sync(0xffffffff, threadIdx.x < 3 + blockIdx.x);
    if (__popc(below) > 9)
        out[__popc(below) * 32 + threadIdx.x] = 1;
}

KERNEL spilled(const float *in, float *out, const int *index, int n)
{
    int local[24];
    for (int k = 0; k < 24; ++k)
        local[k] = blockIdx.x * k + threadIdx.x;
    int at = index[threadIdx.x] % 24;
    out[(local[at] + local[(at + n) % 24]) & 65535] = 1;
}

KERNEL returned(const float *in, float *out, const int *index, int n)
{
    int ticket = atomicAdd((int *)out, 1);
    if (ticket >= 0)
        atomicMax((int *)out + 1 + (blockIdx.x & 3), ticket);
    atomicAdd((int *)out + 64 + threadIdx.x * (blockIdx.x & 7), 1);
}

KERNEL by_switch(const float *in, float *out, const int *index, int n)
{
    float value = in[threadIdx.x];
    switch (blockIdx.x % 6) {
    case 0: value = value * 2; out[threadIdx.x * 2] = value; break;
    case 1: value += 3; break;
    case 2: out[threadIdx.x + 1] = value; value = sqrtf(value); break;
    case 3: value = -value; break;
    case 4: return;
    default: out[threadIdx.x * 3] = value; value = 0;
    }
    out[blockIdx.x * 32 + threadIdx.x] = value;
}

KERNEL wide_index(const float *in, float *out, const int *index, int n)
{
    long long i = (long long)blockIdx.y * n * gridDim.x + (long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long j = i * 3 % 1001;
    if (i < 1 << 16 && j < 1000)
        out[i] = in[j];
}

KERNEL vectors(const float *in, float *out, const int *index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 four = ((const float4 *)in)[i];
    ((float2 *)out)[i * 2 + (blockIdx.x & 1)] = make_float2(four.x + four.z, four.y + four.w);
    ((unsigned char *)out)[i + (1 << 15)] = ((const unsigned char *)in)[i * 5];
}

KERNEL swizzle(const float *in, float *out, const int *index, int n)
{
    unsigned tile = blockIdx.x >> 2, within = blockIdx.x & 3;
    unsigned x = threadIdx.x ^ (within << 3), y = tile * 4 + (within ^ 1);
    out[y * 64 + x] = in[(y | 1) * 64 + (x & ~3u)];
}

KERNEL outside(const float *in, float *out, const int *index, int n)
{
    out[blockIdx.x * 20000 + threadIdx.x] = 1;  // leaves the buffer in a later block
}

KERNEL generic_pointer(const float *in, float *out, const int *index, int n)
{
    __shared__ float staged[256];
    const float *from = n & 1 ? staged : in + blockIdx.x * 8;
    staged[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[blockIdx.x * 8 + threadIdx.x] = from[threadIdx.x ^ 1];
}

KERNEL early_out(const float *in, float *out, const int *index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 40; ++k) {
        if (i + k * 13 > n * 9)
            break;
        if ((k + threadIdx.x) % 5 == 0)
            continue;
        out[k * 64 + threadIdx.x] = in[i + k];
    }
}
