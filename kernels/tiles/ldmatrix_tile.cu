// Matrix fragments from shared memory (ldmatrix, sm_75 and later), as tensor cores want them.

// A block of four warps takes a tile of 64 x 64 two-byte elements, a warp 16 rows of it. One ldmatrix reads 16 x 16
// elements as four matrices of 8 x 8: each lane names one row of 16 bytes, 8 lanes a matrix. Lane l receives elements
// 2 * (l % 4) and the next of row l / 4 of each.
//
// The 8 rows of a matrix are PITCH elements apart: with 64 (128 bytes) they begin in the same bank, with 72 each begins
// four banks further, and 8 times 16 bytes fill all banks once.
template <int PITCH>
__global__ void ldmatrix_tile(const uint4 *in, uint4 *out)
{
    __shared__ __align__(16) unsigned short tile[64][PITCH];
    int tid = threadIdx.x;
    int warp = tid / 32, lane = tid % 32;
    in += blockIdx.x * 512;
    out += blockIdx.x * 512;

    for (int row = 0; row < 64; row += 16)  // 8 elements a thread
        *(uint4 *)&tile[row + tid / 8][tid % 8 * 8] = in[row * 8 + tid];
    __syncthreads();

    for (int k = 0; k < 4; ++k) {
        const unsigned short *row = &tile[warp * 16 + lane % 16][k * 16 + lane / 16 * 8];
        unsigned at = (unsigned)__cvta_generic_to_shared(row);
        uint4 f;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w)
                     : "r"(at)
                     : "memory");
        out[(warp * 4 + k) * 32 + lane] = f;
    }
}
