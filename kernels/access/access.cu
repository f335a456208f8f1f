// Which addresses the lanes of a warp read together: strides, offsets, gathers, layouts, and constant memory.

// Column blockIdx.y of a matrix with STRIDE columns: lanes are STRIDE floats apart. All columns together are read once.
template <int STRIDE>
__global__ void access_stride(const float *in, float *out, int rows)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int col = blockIdx.y;
    if (row < rows)
        out[col * rows + row] = in[row * STRIDE + col];
}

// Neighbours, but the first of a warp need not lie at the beginning of a sector. `in` has n + OFFSET elements.
template <int OFFSET>
__global__ void access_offset(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i + OFFSET];
}

// Where to read is data: the index says it.
extern "C" __global__ void access_gather(const float *in, const int *index, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[index[i]];
}

struct Particle {
    float x, y, z, mass;
};

// An array of structures: the x of two particles are 16 bytes apart.
extern "C" __global__ void layout_aos(Particle *particles, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        particles[i].x *= factor;
}

// A structure of arrays: x has an array of its own, and y, z and mass stay where they are.
extern "C" __global__ void layout_soa(float *x, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= factor;
}

// 32 primes. Constant memory hands one word to all lanes of a warp at a time.
__constant__ unsigned primes[32] = {2,  3,  5,  7,  11, 13, 17, 19, 23, 29, 31,  37,  41,  43,  47,  53,
                                    59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131};

// All lanes read the same word in each turn.
extern "C" __global__ void constant_uniform(unsigned *out, int first, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned hash = i;
    for (int k = 0; k < 32; ++k)
        hash = hash * 31 + primes[(first + k) % 32u];
    if (i < n)
        out[i] = hash;
}

// Each lane begins elsewhere: 32 different words in each turn, one after the other.
extern "C" __global__ void constant_lane(unsigned *out, int first, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned hash = i;
    for (int k = 0; k < 32; ++k)
        hash = hash * 31 + primes[(first + k + threadIdx.x) % 32u];
    if (i < n)
        out[i] = hash;
}
