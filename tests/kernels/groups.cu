// Groups of lanes that vote, exchange and synchronise with masks of their own.
#define KERNEL(name) extern "C" __global__ void name(const int* in, int* out, int n)
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x

KERNEL(votes_of_eight) {
    INDEX; int v = i < n ? in[i] : 0;
    unsigned mask = 0xffu << (threadIdx.x & 24);
    int any = __any_sync(mask, v & 64), count = __popc(__ballot_sync(mask, v & 1));
    if (i < n) out[i + n] = any * 100 + count;
}

KERNEL(swap_halves) {  // both sides of a branch take part in one exchange
    INDEX; int v = i < n ? in[i] : 0, r;
    if ((threadIdx.x & 31) < 16) { v += 100; r = __shfl_xor_sync(0xffffffffu, v, 16); }
    else { v += 200; r = __shfl_xor_sync(0xffffffffu, v, 16); }
    if (i < n) out[i + n] = r;
}

KERNEL(match_groups) { INDEX; int v = i < n ? in[i] & 3 : 0; unsigned same = __match_any_sync(0xffffffffu, v); if (i < n) out[i + n] = __popc(same) + __ffs(same); }

KERNEL(reduce_of_groups) {
    INDEX; int v = i < n ? in[i] : 0;
    unsigned mask = 0xffffu << (threadIdx.x & 16);
    int sum = __reduce_add_sync(mask, v & 255);
    if (i < n) out[i + n] = sum;
}
