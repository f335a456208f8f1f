// Copies from global to shared memory that no register takes part in (cp.async, sm_80 and later).

// 16 bytes; the thread goes on at once.
__device__ void copy_async(float4 *shared, const float4 *global)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(global) : "memory");
}

// What was started since the last call is one group. Every turn makes one, empty or not, so that counting is simple.
__device__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until no more than the last LEFT groups of this thread are under way.
template <int LEFT>
__device__ void wait_for_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// Tiles of 256 float4, each turned round. While a block works on one the next is on its way to the other buffer.
extern "C" __global__ void async_copy(const float4 *in, float4 *out, int tiles)
{
    __shared__ float4 buffer[2][256];
    int tid = threadIdx.x;
    int now = 0;

    copy_async(&buffer[now][tid], &in[blockIdx.x * 256 + tid]);
    end_group();
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int next = tile + gridDim.x;
        if (next < tiles)
            copy_async(&buffer[now ^ 1][tid], &in[next * 256 + tid]);
        end_group();
        wait_for_groups<1>();  // this thread's part of the tile is here,
        __syncthreads();       // and so are the others'
        out[tile * 256 + tid] = buffer[now][255 - tid];
        __syncthreads();  // all have read before the next copy overwrites the buffer
        now ^= 1;
    }
}
