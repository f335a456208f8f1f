// Asynchronous copies whose place in shared memory (low 16 bits of where[lane]) and in global memory (high 16 bits)
// both vary; on[lane] says which lanes copy. Recorded on an H200; see test_access_recordings.py.
extern __shared__ __align__(128) unsigned char arena[];

#define PLACES                                                                        \
    unsigned lane = threadIdx.x, packed = where[lane];                                \
    unsigned to = (unsigned)__cvta_generic_to_shared(arena) + (packed & 0xffffu);     \
    const unsigned char* from = buffer + (packed >> 16);                              \
    bool taking = on[lane] != 0;

#define COPY(name, how, bytes)                                                                                  \
    extern "C" __global__ void name(const unsigned* where, const unsigned* on, unsigned char* buffer,           \
                                    unsigned* result) {                                                         \
        PLACES                                                                                                  \
        if (taking) asm volatile("cp.async." how ".shared.global [%0], [%1], " bytes ";" ::"r"(to), "l"(from) : "memory"); \
        asm volatile("cp.async.wait_all;" ::: "memory");                                                        \
        result[lane] = arena[lane];                                                                             \
    }

// lanes that are off copy nothing and write zeros
#define COPY_OR_ZERO(name, how, bytes)                                                                          \
    extern "C" __global__ void name(const unsigned* where, const unsigned* on, unsigned char* buffer,           \
                                    unsigned* result) {                                                         \
        PLACES                                                                                                  \
        asm volatile("cp.async." how ".shared.global [%0], [%1], " #bytes ", %2;" ::"r"(to), "l"(from), "r"(taking ? bytes##u : 0u) : "memory"); \
        asm volatile("cp.async.wait_all;" ::: "memory");                                                        \
        result[lane] = arena[lane];                                                                             \
    }

COPY(cpb4, "ca", "4")
COPY(cpb8, "ca", "8")
COPY(cpb16, "ca", "16")
COPY_OR_ZERO(cpzb16, "cg", 16)
COPY_OR_ZERO(cpza4, "ca", 4)
COPY_OR_ZERO(cpza16, "ca", 16)
