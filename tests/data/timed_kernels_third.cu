// A third set of kernels that are not in the catalogue: only ever predicted, to say how good predictions are.
extern "C" __global__ void sobel(const unsigned char* in, unsigned char* out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
  const unsigned char* p = in + (size_t)y * w + x;
  int a = p[-w - 1], b = p[-w], c = p[-w + 1], d = p[-1], e = p[1], f = p[w - 1], g = p[w], i = p[w + 1];
  int u = c + 2 * e + i - a - 2 * d - f, v = f + 2 * g + i - a - 2 * b - c;
  out[(size_t)y * w + x] = min(255, (abs(u) + abs(v)) / 4);
}
extern "C" __global__ void row_max(const float4* in, float* out, int quads) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  float m = -1e30f;
  for (int i = lane; i < quads; i += 32) {
    float4 v = in[(size_t)row * quads + i];
    m = fmaxf(m, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
  }
  for (int d = 16; d; d /= 2) m = fmaxf(m, __shfl_down_sync(~0u, m, d));
  if (!lane) out[row] = m;
}
extern "C" __global__ void bins_by_warp(const float* in, unsigned* bins, int n) {
  __shared__ unsigned mine[8][64];
  for (int i = threadIdx.x; i < 512; i += 256) mine[i / 64][i % 64] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
    atomicAdd(&mine[threadIdx.x / 32][(int)(in[i] * 64)], 1u);
  __syncthreads();
  if (threadIdx.x < 64) {
    unsigned s = 0;
    for (int w = 0; w < 8; ++w) s += mine[w][threadIdx.x];
    atomicAdd(bins + threadIdx.x, s);
  }
}
extern "C" __global__ void small_matrices(const float4* a, const float4* b, float4* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 y[4];
  for (int k = 0; k < 4; ++k) y[k] = b[4 * i + k];
  for (int r = 0; r < 4; ++r) {
    float4 x = a[4 * i + r], z;
    z.x = x.x * y[0].x + x.y * y[1].x + x.z * y[2].x + x.w * y[3].x;
    z.y = x.x * y[0].y + x.y * y[1].y + x.z * y[2].y + x.w * y[3].y;
    z.z = x.x * y[0].z + x.y * y[1].z + x.z * y[2].z + x.w * y[3].z;
    z.w = x.x * y[0].w + x.y * y[1].w + x.z * y[2].w + x.w * y[3].w;
    c[4 * i + r] = z;
  }
}
extern "C" __global__ void jump(const unsigned* next, unsigned* last, int n, int hops) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, at = i;
  for (int k = 0; k < hops; ++k) at = next[at & (n - 1)];
  last[i] = at;
}
extern "C" __global__ void wave2d(const double* now, const double* before, double* after, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
  size_t k = (size_t)y * n + x;
  after[k] = 2 * now[k] - before[k] + 0.1 * (now[k - 1] + now[k + 1] + now[k - n] + now[k + n] - 4 * now[k]);
}
extern "C" __global__ void search(const int* sorted, const unsigned* keys, int* where, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, key = keys[i] & (n - 1), low = 0, high = n;
  while (low < high) {
    int middle = (low + high) / 2;
    if (sorted[middle] < key) low = middle + 1;
    else high = middle;
  }
  where[i] = low;
}
extern "C" __global__ void hash_rows(const uint4* in, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned h = 2166136261u;
  for (int k = 0; k < 4; ++k) {
    uint4 v = in[4 * i + k];
    h = (h ^ v.x) * 16777619u;
    h = (h ^ v.y) * 16777619u;
    h = (h ^ v.z) * 16777619u;
    h = (h ^ v.w) * 16777619u;
  }
  out[i] = h;
}
extern "C" __global__ void darts(unsigned* hits, int rounds) {
  unsigned s = blockIdx.x * blockDim.x + threadIdx.x + 1, n = 0;
  for (int k = 0; k < rounds; ++k) {
    s ^= s << 13, s ^= s >> 17, s ^= s << 5;
    float x = (s & 0xffff) * (1.0f / 65536), y = (s >> 16) * (1.0f / 65536);
    n += x * x + y * y < 1;
  }
  for (int d = 16; d; d /= 2) n += __shfl_xor_sync(~0u, n, d);
  if (threadIdx.x % 32 == 0) atomicAdd(hits, n);
}
extern "C" __global__ void dot4(const float4* a, const float4* b, float* sum, int quads) {
  __shared__ float part[8];
  float s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += gridDim.x * blockDim.x) {
    float4 x = a[i], y = b[i];
    s += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
  }
  for (int d = 16; d; d /= 2) s += __shfl_down_sync(~0u, s, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < 8; ++w) s += part[w];
    atomicAdd(sum, s);
  }
}
extern "C" __global__ void scan_rows(const float* in, float* out, int columns) {
  int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
  float carry = 0;
  for (int i = lane; i < columns; i += 32) {
    float v = in[(size_t)row * columns + i];
    for (int d = 1; d < 32; d *= 2) {
      float u = __shfl_up_sync(~0u, v, d);
      if (lane >= d) v += u;
    }
    out[(size_t)row * columns + i] = v + carry;
    carry += __shfl_sync(~0u, v, 31);
  }
}
