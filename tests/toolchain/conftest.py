"""Sources and compilations that several tests of the toolchain share."""

from __future__ import annotations

import pytest

from gpusim.toolchain import Compiled, Cubin, compile_source, parse_cubin

ARCHS = (75, 80, 86, 89, 90, 100, 103, 120)

#: Every construct that the ELF reader has to understand, in one source.
ZOO = """\
__constant__ float weights[4] = {1.0f, 2.0f, 3.0f, 4.0f};
__constant__ int zeroed;
__device__ int counter = 7;
__device__ float buffer[100];
__device__ int* counter_address = &counter;
__device__ const float* weights_address = weights + 1;
typedef float (*Function)(float);
__device__ __noinline__ float twice(float x) { return x * 2.0f + weights[1]; }
__device__ __noinline__ float wave(float x) { return sinf(x); }
__device__ Function table[2] = {twice, wave};
extern __shared__ float dynamic[];
__device__ float square(float x) {
  return x * x + 1.0f;
}
__device__ float inlined(float x) {
  float y = square(x) * 3.0f;
  return y + square(y);
}
template <int N, class T>
__global__ void __launch_bounds__(128) mixed(T* out, int n, const float* in, short s) {
  __shared__ float tile[N + 1];
  int i = threadIdx.x;
  tile[i & (N - 1)] = in[i];
  dynamic[i] = in[i + 1];
  __syncthreads();
  out[i] = tile[(i + 1) & (N - 1)] / dynamic[i ^ 1] + weights[n & 3] + zeroed + buffer[i] + table[n & 1](in[i]);
  if (i == 0) { atomicAdd(&counter, 1); *counter_address = s; out[1] = *weights_address; }
}
template __global__ void mixed<32, float>(float*, int, const float*, short);
extern "C" __global__ void branches(int* out, int n) {
  int local[50];
  for (int i = 0; i < 50; i++) local[i] = out[i];
  int x = local[out[n]];
  switch (n) {
    case 0: x += out[1]; break;
    case 1: x *= 3; break;
    case 2: x = out[x]; break;
    case 3: x ^= 5; break;
    case 4: out[5] = 1; break;
    case 5: x = __float_as_int(twice(x)); break;
    case 6: x = -x; break;
    case 7: x = out[x] / n; break;
  }
  out[threadIdx.x] = x / n;
}
__global__ void doubles(double* a, double b) { a[threadIdx.x] = b / a[threadIdx.x] + sqrt(b); }
__global__ void lines(float* out) {
  out[threadIdx.x] = inlined(out[threadIdx.x]);
  if (out[threadIdx.x] > 3.0f) out[1] = square(out[3]);
}
__device__ int recursive(int* p, int n) { return n < 2 ? p[n] : recursive(p, n - 1) + recursive(p, n - 2) * p[n]; }
__global__ void deep(int* p) { p[threadIdx.x] = recursive(p, p[threadIdx.x]); }
__global__ void __launch_bounds__(64, 2) shared_only(int* p) {
  __shared__ int all[1000];
  all[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = all[threadIdx.x ^ 1];
}
"""


@pytest.fixture(scope="session")
def zoo_compiled() -> dict[int, Compiled]:
    return {arch: compile_source(ZOO, arch=arch, filename="zoo.cu") for arch in ARCHS}


@pytest.fixture(scope="session")
def zoo(zoo_compiled: dict[int, Compiled]) -> dict[int, Cubin]:
    return {arch: parse_cubin(compiled.cubin) for arch, compiled in zoo_compiled.items()}
