// What a launch, a block and a slot for a block cost.

extern "C" __global__ void empty()
{
}

// Empty but for arguments and what needs them, which is never done.
extern "C" __global__ void empty_arguments(unsigned *a, unsigned *b, unsigned *c, int n)
{
    if (n == 12345)
        a[threadIdx.x] = b[threadIdx.x] + c[threadIdx.x];
}

// Empty but for more than COUNT registers a thread.
template <int COUNT> __global__ void __launch_bounds__(256) empty_registers(unsigned *a, int n)
{
    if (n == 12345) {
        unsigned kept[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            kept[k] = a[threadIdx.x + 256 * k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            a[threadIdx.x + 256 * (COUNT - 1 - k)] = kept[k];
    }
}

// records[block] = {SM, clock at the start, clock at the end, ns at the start, ns at the end}, or nothing without
// records; in between the block waits `work` cycles, and reads (how = 1) or writes (how = 2) one word a thread.
extern "C" __global__ void slots(long long *records, unsigned *data, int work, int how, int n)
{
    long long start, now;
    unsigned long long start_ns, now_ns;
    unsigned sm, x = 0;
    asm volatile("mov.u64 %0, %clock64;" : "=l"(start)::"memory");
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start_ns)::"memory");
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    unsigned i = (blockIdx.x * blockDim.x + threadIdx.x) % (unsigned)n;
    if (how == 1)
        x = data[i];
    else if (how == 2)
        data[i] = i;
    do
        asm volatile("mov.u64 %0, %clock64;" : "=l"(now)::"memory");
    while (now - start < work);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now_ns)::"memory");
    if (x == 0xffffffff) // never: but the block waits for what it reads
        data[i] = 0;
    if (records && threadIdx.x == 0) {
        long long *mine = records + 5ull * blockIdx.x;
        mine[0] = sm;
        mine[1] = start;
        mine[2] = now;
        mine[3] = start_ns;
        mine[4] = now_ns;
    }
}
