// Asynchronous copies, 4 to 16 bytes a lane: `where` has each lane's place in shared memory (low half) and in global
// memory, `sizes` how many bytes it copies. Recorded on an H200 (h200_copies.json.gz), see test_copies.py.
extern __shared__ __align__(128) unsigned char arena[];
#define PLACES unsigned lane = threadIdx.x, packed = where[lane]; \
    unsigned to = (unsigned)__cvta_generic_to_shared(arena) + (packed & 0xffffu); \
    const unsigned char* from = buffer + (packed >> 16); unsigned size = sizes[lane]; bool taking = size != 0;
#define DONE asm volatile("cp.async.wait_all;" ::: "memory"); __syncwarp(); for (unsigned w = 0; w < 8; w++) result[lane + 32 * w] = ((unsigned*)arena)[lane + 32 * w];
#define KERNEL(name, body) extern "C" __global__ void name(const unsigned* where, const unsigned* sizes, const unsigned char* buffer, unsigned* result) { PLACES \
   for (unsigned w = 0; w < 16; w++) ((unsigned*)arena)[lane + 32 * w] = 0xAAAAAAAAu; __syncwarp(); body }
#define CP(how, bytes) asm volatile("cp.async." how ".shared.global [%0], [%1], " #bytes ";" ::"r"(to), "l"(from) : "memory");
#define CPZ(how, bytes) asm volatile("cp.async." how ".shared.global [%0], [%1], " #bytes ", %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
KERNEL(plain_cg16, CP("cg", 16) DONE)
KERNEL(plain_ca16, CP("ca", 16) DONE)
KERNEL(plain_ca4, CP("ca", 4) DONE)
KERNEL(plain_ca8, CP("ca", 8) DONE)
KERNEL(exit_cg16, if (!taking) return; CP("cg", 16) DONE)
KERNEL(exit_ca16, if (!taking) return; CP("ca", 16) DONE)
KERNEL(guard_cg16, if (taking) CP("cg", 16) DONE)
KERNEL(guard_ca16, if (taking) CP("ca", 16) DONE)
KERNEL(size_cg16, CPZ("cg", 16) DONE)
KERNEL(size_ca16, CPZ("ca", 16) DONE)
KERNEL(size_ca8, CPZ("ca", 8) DONE)
KERNEL(size_ca4, CPZ("ca", 4) DONE)
KERNEL(gsize_cg16, if (packed != 0xffffffffu) CPZ("cg", 16) DONE)
KERNEL(gsize_ca4, if (packed != 0xffffffffu) CPZ("ca", 4) DONE)
KERNEL(two_cg16, CP("cg", 16) to ^= 512; from += 512; if (taking) CP("cg", 16) DONE)
KERNEL(fix_cg16, asm volatile("cp.async.cg.shared.global [%0], [%1], 16, 8;" ::"r"(to), "l"(from) : "memory"); DONE)
