// A fourth set of kernels that are not in the catalogue: never looked at while the model was worked on.
#include <cuda_fp16.h>
extern "C" __global__ void half_axpy(const __half2* x, __half2* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(x[i], __float2half2_rn(0.5f), y[i]);
}
extern "C" __global__ void pool2x2(const float* in, float* out, int w) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, n = w / 2;
  if (x >= n || y >= n) return;
  const float* p = in + (size_t)2 * y * w + 2 * x;
  out[(size_t)y * n + x] = fmaxf(fmaxf(p[0], p[1]), fmaxf(p[w], p[w + 1]));
}
extern "C" __global__ void embed(const float4* table, const unsigned* word, float4* out, int n, int rows) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / 32, lane = i % 32;
  if (row < n) out[(size_t)row * 32 + lane] = table[(size_t)(word[row] % rows) * 32 + lane];
}
extern "C" __global__ void rms_norm(const float4* in, float4* out, int quads) {
  __shared__ float part[16];
  size_t base = (size_t)blockIdx.x * quads;
  float4 v = in[base + threadIdx.x];
  float s = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  s = 0;
  for (int k = 0; k < blockDim.x / 32; ++k) s += part[k];
  float r = rsqrtf(s / (4 * quads) + 1e-6f);
  out[base + threadIdx.x] = make_float4(v.x * r, v.y * r, v.z * r, v.w * r);
}
extern "C" __global__ void digits(const unsigned* in, unsigned* count, int n, int shift) {
  __shared__ unsigned bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  int i = blockIdx.x * 1024 + threadIdx.x;
  for (int k = 0; k < 4; ++k, i += 256)
    if (i < n) atomicAdd(bins + (in[i] >> shift & 15), 1u);
  __syncthreads();
  if (threadIdx.x < 16) count[threadIdx.x * gridDim.x + blockIdx.x] = bins[threadIdx.x];
}
__constant__ float taps[31] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
extern "C" __global__ void fir31(const float* in, float* out, int n) {
  __shared__ float tile[256 + 30];
  int first = blockIdx.x * 256 - 15;
  for (int k = threadIdx.x; k < 286; k += 256) tile[k] = first + k >= 0 && first + k < n ? in[first + k] : 0;
  __syncthreads();
  float s = 0;
#pragma unroll
  for (int k = 0; k < 31; ++k) s += taps[k] * tile[threadIdx.x + k];
  out[blockIdx.x * 256 + threadIdx.x] = s;
}
extern "C" __global__ void dense16(const float* a, const float* b, float* c, int n) {
  __shared__ float as[16][16], bs[16][16];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  float s = 0;
  for (int k = 0; k < n; k += 16) {
    as[y][x] = a[(size_t)row * n + k + x];
    bs[y][x] = b[(size_t)(k + y) * n + column];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; ++i) s += as[y][i] * bs[i][x];
    __syncthreads();
  }
  c[(size_t)row * n + column] = s;
}
extern "C" __global__ void planes(const float2* in, float* re, float* im, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) re[i] = in[i].x, im[i] = in[i].y;
}
extern "C" __global__ void logistic(float* x, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  for (int k = 0; k < rounds; ++k) v = 1.0f / (1.0f + __expf(-3.0f * v));
  x[i] = v;
}
extern "C" __global__ void tridiagonal(const float* d, const float* r, float* x, int n, int systems) {
  int s = blockIdx.x * blockDim.x + threadIdx.x;
  if (s >= systems) return;
  float c = 0, y = 0;
  for (int k = 0; k < n; ++k) {
    float m = 1.0f / (4.0f + d[(size_t)k * systems + s] - c);
    y = (r[(size_t)k * systems + s] - y) * m;
    c = m;
    x[(size_t)k * systems + s] = y;
  }
}
