// The sum of a warp's integers in one instruction (sm_80 and later). There is no such instruction for floats.

template <unsigned MEMBERS>
__global__ void reduce_add_sync(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = __reduce_add_sync(MEMBERS, i < n ? in[i] : 0);
    if (i < n)
        out[i] = sum;
}
