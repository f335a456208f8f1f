// Streams: one thread an element, neighbouring threads on neighbouring elements.

// a[i] = factor * a[i], in place.
extern "C" __global__ void scale(float *a, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] *= factor;
}

// c[i] = a[i] + b[i]: 12 bytes move for one addition.
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}
