// y = y + scale * x, with one variable in each memory space that has an initial value.
__constant__ float scale = 2.5f;
__device__ int calls = 7;
__device__ int* calls_address = &calls;

extern "C" __global__ void saxpy(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += scale * x[i];
  if (i == 0) atomicAdd(calls_address, 1);
}
