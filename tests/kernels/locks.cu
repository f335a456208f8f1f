// Lanes of a warp that wait for one of them in a loop: the hardware must let that one go on.  As flow.cu otherwise.
__device__ int lock[4];
#define KERNEL(name) extern "C" __global__ void name(const int *in, int *out, int n)
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x; int v = in[i], s = 0; const int *t = in + n

KERNEL(lock_inside) {  // what the holder does is within the loop
    INDEX; bool done = false;
    while (!done) {
        s++;
        if (atomicCAS(&lock[v & 3], 0, 1) == 0) { out[i] = atomicAdd(&out[2 * n + (v & 3)], 1); __threadfence(); atomicExch(&lock[v & 3], 0); done = true; }
    }
    out[i + n] = s;
}
KERNEL(lock_flag) {  // some lanes' store lets the others go
    INDEX; volatile int *flag = out;
    if (v & 1 || threadIdx.x == 31) {
#pragma unroll 1
        for (int k = 0; k < (v >> 1 & 7); k++) s += t[s + k & 15];
        *flag = 1;
    } else {
        while (*flag == 0) s++;
    }
    out[i + n] = s;
}
