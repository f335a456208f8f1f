// Single-warp probes, second set: matrices, asynchronous copies, generic addresses, more atomics.
//
// Each kernel makes one access under test: lane i accesses byte offsets[i] of shared memory or of `buffer` if active[i]
// is not zero. What was read goes to `out`, so that nothing is optimised away. The access is written in PTX where the
// compiler might choose another instruction.
extern __shared__ __align__(128) unsigned char arena[];
typedef unsigned long long wide;

#define SHARED(offset) "r"((unsigned)__cvta_generic_to_shared(arena) + (offset))
#define GLOBAL(offset) "l"(buffer + (offset))
#define PTX(...) asm volatile(__VA_ARGS__ : "memory")
#define IF_ON(...) if (on) { __VA_ARGS__; }
#define READ_BACK x = arena[lane]
#define COPIES_ARE_DONE PTX("cp.async.wait_all;" ::)

#define PROBE(name, ...)                                                                                               \
    extern "C" __global__ void name(                                                                                   \
        const unsigned* offsets, const unsigned* active, unsigned char* buffer, unsigned* out)                         \
    {                                                                                                                  \
        unsigned lane = threadIdx.x, at = offsets[lane], x = 0, y = 0, z = 0, w = 0;                                   \
        bool on = active[lane] != 0;                                                                                   \
        wide pair = 0;                                                                                                 \
        __VA_ARGS__;                                                                                                   \
        out[lane] = x + y + z + w + (unsigned)pair;                                                                    \
    }

#define LOAD_1(space, place) IF_ON(PTX("ld." space ".u32 %0, [%1];" : "=r"(x) : place))
#define LOAD_2(space, place) IF_ON(PTX("ld." space ".v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : place))
#define LOAD_4(space, place) \
    IF_ON(PTX("ld." space ".v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : place))
#define LOAD_BYTE(space, place) IF_ON(PTX("ld." space ".u8 %0, [%1];" : "=r"(x) : place))
#define LOAD_HALF(space, place) \
    unsigned short half = 0; IF_ON(PTX("ld." space ".u16 %0, [%1];" : "=h"(half) : place)) x = half

#define RETURNING(space, operation, place, value) \
    IF_ON(PTX("atom." space "." operation " %0, [%1], %2;" : "=r"(x) : place, "r"(value)))
#define RETURNING_WIDE(space, operation, place, value) \
    IF_ON(PTX("atom." space "." operation " %0, [%1], %2;" : "=l"(pair) : place, "l"(value)))
#define DROPPING(space, operation, place, kind, value) \
    IF_ON(PTX("red." space "." operation " [%0], %1;" ::place, kind(value)))

#define MATRIX_1(form) PTX("ldmatrix.sync.aligned.m8n8.x1" form ".shared.b16 {%0}, [%1];" : "=r"(x) : SHARED(at))
#define MATRIX_4(form)                                                                 \
    PTX("ldmatrix.sync.aligned.m8n8.x4" form ".shared.b16 {%0, %1, %2, %3}, [%4];"     \
        : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : SHARED(at))
#define COPY(through, bytes, to, from)                                                                  \
    IF_ON(PTX("cp.async." through ".shared.global [%0], [%1], " bytes ";" ::SHARED(to), GLOBAL(from)))  \
    COPIES_ARE_DONE; READ_BACK
// A pointer of which the compiler cannot tell that it always points to the first of the two.
#define MAYBE(first, second) unsigned* p = (unsigned*)(first + at); if (active[lane] == 77) p = (unsigned*)(second + at)

PROBE(ldsm1, MATRIX_1(""))
PROBE(ldsm2, PTX("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : SHARED(at)))
PROBE(ldsm4, MATRIX_4(""))
PROBE(ldsm4t, MATRIX_4(".trans"))
PROBE(stsm4,
    PTX("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1};" ::SHARED(at), "r"(lane));
    __syncthreads(); READ_BACK)

PROBE(cpa4, COPY("ca", "4", at, lane * 4))
PROBE(cpa8, COPY("ca", "8", at, lane * 8))
PROBE(cpa16, COPY("ca", "16", at, lane * 16))
PROBE(cpg16, COPY("cg", "16", at, lane * 16))
PROBE(cpg16g, COPY("cg", "16", lane * 16, at))

PROBE(gen_s32, MAYBE(arena, buffer); IF_ON(x = *(volatile unsigned*)p))
PROBE(gen_g32, MAYBE(buffer, arena); IF_ON(x = *(volatile unsigned*)p))

PROBE(atoms_exch, RETURNING("shared", "exch.b32", SHARED(at), lane + 3))
PROBE(atoms_max, RETURNING("shared", "max.u32", SHARED(at), lane + 3))
PROBE(atoms_add64, RETURNING_WIDE("shared", "add.u64", SHARED(at), (wide)lane + 3))
PROBE(atoms_cas64,
    IF_ON(PTX("atom.shared.cas.b64 %0, [%1], %2, %3;"
        : "=l"(pair) : SHARED(at), "l"((wide)lane + 3), "l"((wide)lane))))
PROBE(atomg_add64, RETURNING_WIDE("global", "add.u64", GLOBAL(at), (wide)lane + 3))
PROBE(redg_add64, DROPPING("global", "add.u64", GLOBAL(at), "l", (wide)lane + 3))
PROBE(atomg_cas,
    IF_ON(PTX("atom.global.cas.b32 %0, [%1], %2, %3;" : "=r"(x) : GLOBAL(at), "r"(lane + 3), "r"(lane))))

PROBE(lds32, LOAD_1("shared", SHARED(at)))
PROBE(lds64, LOAD_2("shared", SHARED(at)))
PROBE(lds128, LOAD_4("shared", SHARED(at)))
PROBE(ldg32, LOAD_1("global", GLOBAL(at)))
PROBE(ldg64, LOAD_2("global", GLOBAL(at)))
PROBE(ldg128, LOAD_4("global", GLOBAL(at)))
PROBE(stg64, IF_ON(PTX("st.global.v2.u32 [%1], {%0, %0};" ::"r"(lane), GLOBAL(at))))
