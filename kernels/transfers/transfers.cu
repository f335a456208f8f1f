// Work that takes a time of its own for each element: `rounds` steps of x = x * factor + summand, modulo 2^32.
// With few rounds it shows that what arrived on the device is what was sent.

extern "C" __global__ void stir(const unsigned *in, unsigned *out, int n, int rounds, unsigned factor,
                                unsigned summand)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned x = in[i];
    for (int round = 0; round < rounds; ++round)
        x = x * factor + summand;
    out[i] = x;
}
