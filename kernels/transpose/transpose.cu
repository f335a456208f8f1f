// Matrix transposes: out[x][y] = in[y][x].
//
// `in` has `rows` rows of `cols` floats, `out` has `cols` rows of `rows` floats, both without gaps.
// x counts along a row and y down a column; any size of at least one works.
//
// Shared memory has 32 banks; the 4-byte word at index w of a tile lies in bank w % 32. A warp's access takes as many
// wavefronts as the most different words that fall into one bank.

// No transpose at all: what moving the data costs. Both accesses run along a row.
extern "C" __global__ void transpose_copy(const float *in, float *out, int rows, int cols)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < cols && y < rows)
        out[y * cols + x] = in[y * cols + x];
}

// Neighbouring threads read neighbours in a row and write a whole row apart.
extern "C" __global__ void transpose_naive(const float *in, float *out, int rows, int cols)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;  // column of in
    int y = blockIdx.y * blockDim.y + threadIdx.y;  // row of in
    if (x < cols && y < rows)
        out[x * rows + y] = in[y * cols + x];
}

// The other way round: neighbouring threads read a whole row apart and write neighbours.
extern "C" __global__ void transpose_naive_colread(const float *in, float *out, int rows, int cols)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;  // column of out
    int y = blockIdx.y * blockDim.y + threadIdx.y;  // row of out
    if (x < rows && y < cols)
        out[y * rows + x] = in[x * cols + y];
}

// Through a tile of 16 rows and 32 columns, by a block of 32 x 16 threads. On the way out the block's threads are
// numbered through and split again, 16 wide, because the transposed tile is 16 wide: then stores run along a row too.
//
// A warp reads tile[0..15][row] and tile[0..15][row + 1], two columns of 16 words:
//   PITCH 32  all words of a column in one bank        16 wavefronts
//   PITCH 33  columns in banks b..b+15 and b+1..b+16    2 wavefronts, 15 banks are hit twice
//   PITCH 34  one column in even banks, one in odd      1 wavefront
template <int PITCH>
__global__ void transpose_smem(const float *in, float *out, int rows, int cols)
{
    __shared__ float tile[16][PITCH];

    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 16 + threadIdx.y;
    if (x < cols && y < rows)
        tile[threadIdx.y][threadIdx.x] = in[y * cols + x];
    __syncthreads();

    int thread = threadIdx.y * 32 + threadIdx.x;
    int row = thread / 16;  // of the transposed tile, 0 to 31
    int col = thread % 16;
    int out_x = blockIdx.y * 16 + col;
    int out_y = blockIdx.x * 32 + row;
    if (out_x < rows && out_y < cols)
        out[out_y * rows + out_x] = tile[col][row];
}

// The same with two elements a thread, 32 columns apart. A block of 32 x 16 threads covers 16 rows and 64 columns, so
// the grid is ceil(cols / 64) x ceil(rows / 16): computed from blockDim.x it would be twice too wide.
extern "C" __global__ void transpose_unroll(const float *in, float *out, int rows, int cols)
{
    __shared__ float tile[16][65];

    int x = blockIdx.x * 64 + threadIdx.x;
    int y = blockIdx.y * 16 + threadIdx.y;
    if (y < rows) {
        if (x < cols)
            tile[threadIdx.y][threadIdx.x] = in[y * cols + x];
        if (x + 32 < cols)
            tile[threadIdx.y][threadIdx.x + 32] = in[y * cols + x + 32];
    }
    __syncthreads();

    int thread = threadIdx.y * 32 + threadIdx.x;
    int row = thread / 16;  // of the transposed tile, 0 to 31, and 32 further down
    int col = thread % 16;
    int out_x = blockIdx.y * 16 + col;
    int out_y = blockIdx.x * 64 + row;
    if (out_x < rows) {
        if (out_y < cols)
            out[out_y * rows + out_x] = tile[col][row];
        if (out_y + 32 < cols)
            out[(out_y + 32) * rows + out_x] = tile[col][row + 32];
    }
}

// A tile of 16 rows and 32 columns by 16 x 16 threads: each loads and stores two neighbours as one float2.
// A float2 has to lie on a multiple of 8 bytes. When rows have an odd length every second row does not, and single
// floats are used instead.
extern "C" __global__ void transpose_vec2(const float *in, float *out, int rows, int cols)
{
    const int PITCH = 32 + 1;
    __shared__ float tile[16 * PITCH];

    int x = blockIdx.x * 32 + threadIdx.x * 2;
    int y = blockIdx.y * 16 + threadIdx.y;
    int place = threadIdx.y * PITCH + threadIdx.x * 2;
    if (y < rows) {
        const float *from = in + y * cols + x;
        if (cols % 2 == 0) {
            if (x < cols) {  // and x + 1 < cols, as both are even
                float2 pair = *(const float2 *)from;
                tile[place] = pair.x;  // the odd pitch leaves the tile no float2 to store
                tile[place + 1] = pair.y;
            }
        } else {
            if (x < cols)
                tile[place] = from[0];
            if (x + 1 < cols)
                tile[place + 1] = from[1];
        }
    }
    __syncthreads();

    int thread = threadIdx.y * 16 + threadIdx.x;
    int row = thread / 8;  // of the transposed tile, 0 to 31
    int col = thread % 8 * 2;
    int out_x = blockIdx.y * 16 + col;
    int out_y = blockIdx.x * 32 + row;
    if (out_y < cols) {
        float *to = out + out_y * rows + out_x;
        float first = tile[col * PITCH + row];
        float second = tile[(col + 1) * PITCH + row];
        if (rows % 2 == 0) {
            if (out_x < rows)
                *(float2 *)to = make_float2(first, second);
        } else {
            if (out_x < rows)
                to[0] = first;
            if (out_x + 1 < rows)
                to[1] = second;
        }
    }
}

// The textbook tile, 32 x 32 threads. A warp reads one column of it: with PITCH 32 all words are in one bank, with
// PITCH 33 each is in its own.
template <int PITCH>
__global__ void transpose_bank(const float *in, float *out, int rows, int cols)
{
    __shared__ float tile[32][PITCH];

    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    if (x < cols && y < rows)
        tile[threadIdx.y][threadIdx.x] = in[y * cols + x];
    __syncthreads();

    int out_x = blockIdx.y * 32 + threadIdx.x;
    int out_y = blockIdx.x * 32 + threadIdx.y;
    if (out_x < rows && out_y < cols)
        out[out_y * rows + out_x] = tile[threadIdx.x][threadIdx.y];
}

// The same tile by 32 x 8 threads, four rows a thread: four loads are under way before the first store waits.
template <int PITCH>
__global__ void transpose_tile4(const float *in, float *out, int rows, int cols)
{
    __shared__ float tile[32][PITCH];

    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (x < cols && y + k < rows)
            tile[threadIdx.y + k][threadIdx.x] = in[(y + k) * cols + x];
    __syncthreads();

    int out_x = blockIdx.y * 32 + threadIdx.x;
    int out_y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (out_x < rows && out_y + k < cols)
            out[(out_y + k) * rows + out_x] = tile[threadIdx.x][threadIdx.y + k];
}

// No padding: the element of row r and column c is kept in column c ^ r. In a row that only changes the order of the
// 32 banks, and down a column it puts every element into another bank.
extern "C" __global__ void transpose_tile4_swizzle(const float *in, float *out, int rows, int cols)
{
    __shared__ float tile[32][32];

    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        int r = threadIdx.y + k;
        int c = threadIdx.x;
        if (x < cols && y + k < rows)
            tile[r][c ^ r] = in[(y + k) * cols + x];
    }
    __syncthreads();

    int out_x = blockIdx.y * 32 + threadIdx.x;
    int out_y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        int r = threadIdx.x;
        int c = threadIdx.y + k;
        if (out_x < rows && out_y + k < cols)
            out[(out_y + k) * rows + out_x] = tile[r][c ^ r];
    }
}
