// Matrix products: C = alpha * A * B + beta * C, all of n x n floats in rows without gaps.
//
// matmul_naive and matmul_naive_swapped take any n of at least one. The others have no guards: n is a multiple of the
// edge of a block's tile (32, 64 or 128).
//
// Every result adds its products in the order of k, whatever the tiles.

// One result a thread, x along a row of C. The lanes of a warp read the same element of A and neighbours of B.
extern "C" __global__ void matmul_naive(const float *A, const float *B, float *C, int n, float alpha, float beta)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && col < n) {
        float sum = 0.0f;
        for (int k = 0; k < n; ++k)
            sum += A[row * n + k] * B[k * n + col];
        C[row * n + col] = alpha * sum + beta * C[row * n + col];
    }
}

// The same with x down a column of C: the lanes of a warp read A, and read and write C, a whole row apart.
extern "C" __global__ void matmul_naive_swapped(const float *A, const float *B, float *C, int n, float alpha, float beta)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && col < n) {
        float sum = 0.0f;
        for (int k = 0; k < n; ++k)
            sum += A[row * n + k] * B[k * n + col];
        C[row * n + col] = alpha * sum + beta * C[row * n + col];
    }
}

// One result a thread, from tiles in shared memory: each element that a block loads serves TILE threads.
template <int TILE>
__global__ void matmul_smem(const float *A, const float *B, float *C, int n, float alpha, float beta)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    int x = threadIdx.x % TILE;
    int y = threadIdx.x / TILE;
    int col = blockIdx.x * TILE + x;
    int row = blockIdx.y * TILE + y;

    float sum = 0.0f;
    for (int k = 0; k < n; k += TILE) {
        As[y][x] = A[row * n + k + x];
        Bs[y][x] = B[(k + y) * n + col];
        __syncthreads();
        for (int i = 0; i < TILE; ++i)
            sum += As[y][i] * Bs[i][x];
        __syncthreads();
    }
    C[row * n + col] = alpha * sum + beta * C[row * n + col];
}

// A block makes BM x BN results, a thread TM x TN of them: TM + TN loads from shared memory serve TM * TN products.
// Threads that the tile has no work for leave at once. They miss the barriers then, which hardware since sm_70 lets
// pass for threads that have ended; the programming model does not promise it. With 256 threads there are none.
template <int BM, int BN, int BK, int TM, int TN>
__global__ void matmul_thread_tile(const float *A, const float *B, float *C, int n, float alpha, float beta)
{
    const int THREADS = BM * BN / (TM * TN);
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    int thread = threadIdx.x;
    if (thread >= THREADS)
        return;

    int col = thread % (BN / TN) * TN;  // of the first result, within the block's tile
    int row = thread / (BN / TN) * TM;
    int a_row = thread / BK, a_k = thread % BK;  // the first element that this thread loads
    int b_k = thread / BN, b_col = thread % BN;
    A += blockIdx.y * BM * n;
    B += blockIdx.x * BN;
    C += (blockIdx.y * BM + row) * n + blockIdx.x * BN + col;

    float sums[TM][TN] = {};
    for (int k = 0; k < n; k += BK) {
        for (int y = 0; y < BM; y += THREADS / BK)
            As[a_row + y][a_k] = A[(a_row + y) * n + k + a_k];
        for (int y = 0; y < BK; y += THREADS / BN)
            Bs[b_k + y][b_col] = B[(k + b_k + y) * n + b_col];
        __syncthreads();
        for (int i = 0; i < BK; ++i)
            for (int y = 0; y < TM; ++y)
                for (int x = 0; x < TN; ++x)
                    sums[y][x] += As[row + y][i] * Bs[i][col + x];
        __syncthreads();
    }
    for (int y = 0; y < TM; ++y)
        for (int x = 0; x < TN; ++x)
            C[y * n + x] = alpha * sums[y][x] + beta * C[y * n + x];
}

// From here on all accesses are of four floats where they can be.

// N neighbours, N a multiple of four.
template <int N>
__device__ void load(float *to, const float *from)
{
    for (int i = 0; i < N; i += 4)
        *(float4 *)(to + i) = *(const float4 *)(from + i);
}

// N results of one row of C.
template <int N>
__device__ void update(float *c, const float *sums, float alpha, float beta)
{
    for (int i = 0; i < N; i += 4) {
        float4 old = *(const float4 *)(c + i);
        old.x = alpha * sums[i] + beta * old.x;
        old.y = alpha * sums[i + 1] + beta * old.y;
        old.z = alpha * sums[i + 2] + beta * old.z;
        old.w = alpha * sums[i + 3] + beta * old.w;
        *(float4 *)(c + i) = old;
    }
}

// Four neighbours along k go down a column: As[k][row]. Then a thread finds the elements of its rows side by side.
template <int BM>
__device__ void store_transposed(float (*As)[BM], int row, int k, float4 four)
{
    As[k][row] = four.x;
    As[k + 1][row] = four.y;
    As[k + 2][row] = four.z;
    As[k + 3][row] = four.w;
}

template <int TM, int TN>
__device__ void multiply(float (*sums)[TN], const float *a, const float *b)
{
    for (int y = 0; y < TM; ++y)
        for (int x = 0; x < TN; ++x)
            sums[y][x] += a[y] * b[x];
}

// BM * BK and BK * BN are four elements a thread: one 128-bit load of A and one of B a tile.
template <int BM, int BN, int BK, int TM, int TN>
__global__ void matmul_vec4(const float *A, const float *B, float *C, int n, float alpha, float beta)
{
    __shared__ __align__(16) float As[BK][BM];
    __shared__ __align__(16) float Bs[BK][BN];

    int thread = threadIdx.x;
    int col = thread % (BN / TN) * TN;
    int row = thread / (BN / TN) * TM;
    int a_row = thread / (BK / 4), a_k = thread % (BK / 4) * 4;  // the first element that this thread loads
    int b_k = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    A += (blockIdx.y * BM + a_row) * n + a_k;
    B += b_k * n + blockIdx.x * BN + b_col;
    C += (blockIdx.y * BM + row) * n + blockIdx.x * BN + col;

    float sums[TM][TN] = {};
    for (int k = 0; k < n; k += BK) {
        store_transposed<BM>(As, a_row, a_k, *(const float4 *)(A + k));
        *(float4 *)&Bs[b_k][b_col] = *(const float4 *)(B + k * n);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < BK; ++i) {
            float a[TM], b[TN];
            load<TM>(a, &As[i][row]);
            load<TN>(b, &Bs[i][col]);
            multiply<TM, TN>(sums, a, b);
        }
        __syncthreads();
    }
    for (int y = 0; y < TM; ++y)
        update<TN>(C + y * n, sums[y], alpha, beta);
}

// Two buffers of everything, and nothing gained. The next tile goes straight from global to shared memory, so that the
// store waits for the load before any arithmetic starts. And which of the two register buffers is meant is known only
// at run time: registers have no addresses, so a and b go to local memory.
template <int BM, int BN, int BK, int TM, int TN>
__global__ void matmul_double_buffer_naive(const float *A, const float *B, float *C, int n, float alpha, float beta)
{
    __shared__ __align__(16) float As[2][BK][BM];
    __shared__ __align__(16) float Bs[2][BK][BN];

    int thread = threadIdx.x;
    int col = thread % (BN / TN) * TN;
    int row = thread / (BN / TN) * TM;
    int a_row = thread / (BK / 4), a_k = thread % (BK / 4) * 4;
    int b_k = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    A += (blockIdx.y * BM + a_row) * n + a_k;
    B += b_k * n + blockIdx.x * BN + b_col;
    C += (blockIdx.y * BM + row) * n + blockIdx.x * BN + col;

    store_transposed<BM>(As[0], a_row, a_k, *(const float4 *)A);
    *(float4 *)&Bs[0][b_k][b_col] = *(const float4 *)B;
    __syncthreads();

    float sums[TM][TN] = {};
    float a[2][TM], b[2][TN];
    int tile = 0;  // the shared buffer to compute from
    int now = 0;   // the register buffer to compute from
    for (int k = 0; k < n; k += BK) {
        if (k + BK < n) {
            store_transposed<BM>(As[tile ^ 1], a_row, a_k, *(const float4 *)(A + k + BK));
            *(float4 *)&Bs[tile ^ 1][b_k][b_col] = *(const float4 *)(B + (k + BK) * n);
        }
        load<TM>(a[now], &As[tile][0][row]);
        load<TN>(b[now], &Bs[tile][0][col]);
#pragma unroll 1
        for (int i = 0; i < BK; ++i) {
            if (i + 1 < BK) {
                load<TM>(a[now ^ 1], &As[tile][i + 1][row]);
                load<TN>(b[now ^ 1], &Bs[tile][i + 1][col]);
            }
            multiply<TM, TN>(sums, a[now], b[now]);
            now ^= 1;
        }
        __syncthreads();
        tile ^= 1;
    }
    for (int y = 0; y < TM; ++y)
        update<TN>(C + y * n, sums[y], alpha, beta);
}

// The next tile is loaded into registers, the arithmetic on this one hides the wait, and then it is stored to the other
// shared buffer. All loops over registers are unrolled: each index is a constant, and registers stay registers. One
// barrier a tile is enough, since nobody reads what is being written.
template <int BM, int BN, int BK, int TM, int TN>
__global__ void matmul_double_buffer(const float *A, const float *B, float *C, int n, float alpha, float beta)
{
    __shared__ __align__(16) float As[2][BK][BM];
    __shared__ __align__(16) float Bs[2][BK][BN];

    int thread = threadIdx.x;
    int col = thread % (BN / TN) * TN;
    int row = thread / (BN / TN) * TM;
    int a_row = thread / (BK / 4), a_k = thread % (BK / 4) * 4;
    int b_k = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    A += (blockIdx.y * BM + a_row) * n + a_k;
    B += b_k * n + blockIdx.x * BN + b_col;
    C += (blockIdx.y * BM + row) * n + blockIdx.x * BN + col;

    float4 next_a = *(const float4 *)A;
    float4 next_b = *(const float4 *)B;
    store_transposed<BM>(As[0], a_row, a_k, next_a);
    *(float4 *)&Bs[0][b_k][b_col] = next_b;
    __syncthreads();

    float sums[TM][TN] = {};
    int tile = 0;
    for (int k = BK; k <= n; k += BK) {
        if (k < n) {
            next_a = *(const float4 *)(A + k);
            next_b = *(const float4 *)(B + k * n);
        }
#pragma unroll
        for (int i = 0; i < BK; ++i) {
            float a[TM], b[TN];
            load<TM>(a, &As[tile][i][row]);
            load<TN>(b, &Bs[tile][i][col]);
            multiply<TM, TN>(sums, a, b);
        }
        if (k < n) {
            store_transposed<BM>(As[tile ^ 1], a_row, a_k, next_a);
            *(float4 *)&Bs[tile ^ 1][b_k][b_col] = next_b;
            __syncthreads();
            tile ^= 1;
        }
    }
    for (int y = 0; y < TM; ++y)
        update<TN>(C + y * n, sums[y], alpha, beta);
}

// One more level: a block's tile is split among its warps, WM x WN each, and a warp makes its part in WNITER steps from
// left to right. In each its lanes lie WSUBN / TN side by side, so that they read few different places of both tiles.
// A thread has TM * TN results a step, TM * TN * WNITER in all.
template <int BM, int BN, int BK, int WM, int WN, int WNITER, int TM, int TN>
__global__ void matmul_warp_tile(const float *A, const float *B, float *C, int n, float alpha, float beta)
{
    const int THREADS = BM / WM * (BN / WN) * 32;
    const int WSUBN = WN / WNITER;
    static_assert(WM * WSUBN == 32 * TM * TN, "a step's results are TM x TN for each lane");
    __shared__ __align__(16) float As[BK][BM];
    __shared__ __align__(16) float Bs[BK][BN];

    int thread = threadIdx.x;
    int warp = thread / 32, lane = thread % 32;
    int row = warp / (BN / WN) * WM + lane / (WSUBN / TN) * TM;
    int col = warp % (BN / WN) * WN + lane % (WSUBN / TN) * TN;  // in the first step
    int a_row = thread / (BK / 4), a_k = thread % (BK / 4) * 4;
    int b_k = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    A += blockIdx.y * BM * n;
    B += blockIdx.x * BN;
    C += (blockIdx.y * BM + row) * n + blockIdx.x * BN + col;

    float sums[WNITER][TM][TN] = {};
    for (int k = 0; k < n; k += BK) {
        for (int y = 0; y < BM; y += THREADS * 4 / BK)
            store_transposed<BM>(As, a_row + y, a_k, *(const float4 *)(A + (a_row + y) * n + k + a_k));
        for (int y = 0; y < BK; y += THREADS * 4 / BN)
            *(float4 *)&Bs[b_k + y][b_col] = *(const float4 *)(B + (k + b_k + y) * n + b_col);
        __syncthreads();
        for (int i = 0; i < BK; ++i) {
            float a[TM], b[TN];
            load<TM>(a, &As[i][row]);
            for (int step = 0; step < WNITER; ++step) {
                load<TN>(b, &Bs[i][col + step * WSUBN]);
                multiply<TM, TN>(sums[step], a, b);
            }
        }
        __syncthreads();
    }
    for (int step = 0; step < WNITER; ++step)
        for (int y = 0; y < TM; ++y)
            update<TN>(C + y * n + step * WSUBN, sums[step][y], alpha, beta);
}
