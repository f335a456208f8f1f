// Loops of which every lane leaves after a number of turns of its own.

extern "C" __global__ void escape(const float *start, int *turns, int n, int most)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float a = start[2 * i], b = start[2 * i + 1], x = a, y = b;
    int k = 0;
    for (; k < most && x * x + y * y < 4.0f; ++k) {
        float z = x * x - y * y + a;
        y = 2.0f * x * y + b;
        x = z;
    }
    turns[i] = k;
}

extern "C" __global__ void collatz(const unsigned *start, int *turns, int n, int most)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned x = start[i];
    int k = 0;
    while (x > 1u && k < most) {
        if (x & 1u)
            x = 3u * x + 1u;
        else
            x >>= 1;
        ++k;
    }
    turns[i] = k;
}
