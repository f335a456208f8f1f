// Kernels that are not in the catalogue, to try predictions of time on.
extern "C" __global__ void saxpy_stride(const float* x, float* y, float a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void stencil5(const float* in, float* out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
  const float* p = in + (size_t)y * w + x;
  out[(size_t)y * w + x] = 0.2f * (p[0] + p[-1] + p[1] + p[-w] + p[w]);
}
extern "C" __global__ void stencil5_tile(const float* in, float* out, int w, int h) {
  __shared__ float t[18][34];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  for (int j = threadIdx.y; j < 18; j += 16)
    for (int i = threadIdx.x; i < 34; i += 32) {
      int gx = blockIdx.x * 32 + i - 1, gy = blockIdx.y * 16 + j - 1;
      t[j][i] = (gx >= 0 && gy >= 0 && gx < w && gy < h) ? in[(size_t)gy * w + gx] : 0.0f;
    }
  __syncthreads();
  if (x < w && y < h) {
    int i = threadIdx.x + 1, j = threadIdx.y + 1;
    out[(size_t)y * w + x] = 0.2f * (t[j][i] + t[j][i - 1] + t[j][i + 1] + t[j - 1][i] + t[j + 1][i]);
  }
}
__constant__ float weights[9] = {1, 2, 3, 4, 5, 4, 3, 2, 1};
extern "C" __global__ void convolve9(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 4 || i >= n - 4) return;
  float s = 0;
#pragma unroll
  for (int k = 0; k < 9; ++k) s += weights[k] * in[i + k - 4];
  out[i] = s;
}
extern "C" __global__ void mandel(float* out, int w, int h, int most) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  float cr = -2.0f + 3.0f * x / w, ci = -1.0f + 2.0f * y / h, zr = 0, zi = 0;
  int k = 0;
  while (k < most && zr * zr + zi * zi < 4.0f) { float t = zr * zr - zi * zi + cr; zi = 2 * zr * zi + ci; zr = t; ++k; }
  if (x < w && y < h) out[(size_t)y * w + x] = k;
}
extern "C" __global__ void nbody(const float4* p, float4* f, int n) {
  __shared__ float4 t[256];
  int i = blockIdx.x * 256 + threadIdx.x;
  float4 me = p[i]; float ax = 0, ay = 0, az = 0;
  for (int b = 0; b < n; b += 256) {
    t[threadIdx.x] = p[b + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < 256; ++k) {
      float dx = t[k].x - me.x, dy = t[k].y - me.y, dz = t[k].z - me.z;
      float r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), s = t[k].w * r * r * r;
      ax += dx * s; ay += dy * s; az += dz * s;
    }
    __syncthreads();
  }
  f[i] = make_float4(ax, ay, az, 0);
}
extern "C" __global__ void matvec_row(const float* a, const float* x, float* y, int n) {
  int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  float s = 0;
  for (int k = lane; k < n; k += 32) s += a[(size_t)row * n + k] * x[k];
  for (int d = 16; d; d >>= 1) s += __shfl_down_sync(~0u, s, d);
  if (lane == 0) y[row] = s;
}
extern "C" __global__ void matvec_thread(const float* a, const float* x, float* y, int n) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0;
  for (int k = 0; k < n; ++k) s += a[(size_t)row * n + k] * x[k];
  y[row] = s;
}
extern "C" __global__ void scan_block(const int* in, int* out, int n) {
  __shared__ int t[512];
  int i = blockIdx.x * 512 + threadIdx.x;
  t[threadIdx.x] = i < n ? in[i] : 0;
  __syncthreads();
  for (int d = 1; d < 512; d *= 2) {
    int v = threadIdx.x >= d ? t[threadIdx.x - d] : 0;
    __syncthreads();
    t[threadIdx.x] += v;
    __syncthreads();
  }
  if (i < n) out[i] = t[threadIdx.x];
}
extern "C" __global__ void bitonic_block(unsigned* v, int n) {
  __shared__ unsigned t[1024];
  int i = blockIdx.x * 1024 + threadIdx.x;
  t[threadIdx.x] = v[i];
  __syncthreads();
  for (int k = 2; k <= 1024; k *= 2)
    for (int j = k / 2; j; j /= 2) {
      int o = threadIdx.x ^ j;
      if (o > threadIdx.x) {
        unsigned a = t[threadIdx.x], b = t[o];
        if ((a > b) == ((threadIdx.x & k) == 0)) { t[threadIdx.x] = b; t[o] = a; }
      }
      __syncthreads();
    }
  v[i] = t[threadIdx.x];
}
extern "C" __global__ void bins1024(const unsigned* in, unsigned* bins, int n) {
  __shared__ unsigned b[1024];
  for (int k = threadIdx.x; k < 1024; k += blockDim.x) b[k] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&b[in[i] & 1023], 1u);
  __syncthreads();
  for (int k = threadIdx.x; k < 1024; k += blockDim.x) atomicAdd(&bins[k], b[k]);
}
extern "C" __global__ void aos12(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[3 * i] + in[3 * i + 1] + in[3 * i + 2];
}
extern "C" __global__ void scatter_add(const int* where, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&out[where[i]], 1.0f);
}
extern "C" __global__ void double_poly(const double* in, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double x = in[i], s = 1;
#pragma unroll
  for (int k = 0; k < 32; ++k) s = s * x + k;
  out[i] = s;
}
extern "C" __global__ void transpose64(const double* in, double* out, int n) {
  __shared__ double t[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) t[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * n + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[(size_t)(y + j) * n + x] = t[threadIdx.x][threadIdx.y + j];
}
