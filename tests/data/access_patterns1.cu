// Single-warp probes, first set: loads and stores of every width, some atomics.
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

#define STORE_BYTE(space, place) IF_ON(PTX("st." space ".u8 [%1], %0;" ::"r"(lane), place))
#define STORE_HALF(space, place) IF_ON(PTX("st." space ".u16 [%1], %0;" ::"h"((unsigned short)lane), place))
#define STORE_1(space, place) IF_ON(PTX("st." space ".u32 [%1], %0;" ::"r"(lane), place))
#define THEN_READ_BACK __syncthreads(); READ_BACK

#define RETURNING(space, operation, place, value) \
    IF_ON(PTX("atom." space "." operation " %0, [%1], %2;" : "=r"(x) : place, "r"(value)))
#define RETURNING_WIDE(space, operation, place, value) \
    IF_ON(PTX("atom." space "." operation " %0, [%1], %2;" : "=l"(pair) : place, "l"(value)))
#define DROPPING(space, operation, place, kind, value) \
    IF_ON(PTX("red." space "." operation " [%0], %1;" ::place, kind(value)))

PROBE(lds8, LOAD_BYTE("shared", SHARED(at)))
PROBE(lds16, LOAD_HALF("shared", SHARED(at)))
PROBE(lds32, LOAD_1("shared", SHARED(at)))
PROBE(lds64, LOAD_2("shared", SHARED(at)))
PROBE(lds128, LOAD_4("shared", SHARED(at)))
PROBE(ldg8, LOAD_BYTE("global", GLOBAL(at)))
PROBE(ldg16, LOAD_HALF("global", GLOBAL(at)))
PROBE(ldg32, LOAD_1("global", GLOBAL(at)))
PROBE(ldg64, LOAD_2("global", GLOBAL(at)))
PROBE(ldg128, LOAD_4("global", GLOBAL(at)))
PROBE(ldgnc32, LOAD_1("global.nc", GLOBAL(at)))
PROBE(ldgcg32, LOAD_1("global.cg", GLOBAL(at)))

PROBE(sts8, STORE_BYTE("shared", SHARED(at)) THEN_READ_BACK)
PROBE(sts16, STORE_HALF("shared", SHARED(at)) THEN_READ_BACK)
PROBE(sts32, STORE_1("shared", SHARED(at)) THEN_READ_BACK)
PROBE(sts64, IF_ON(PTX("st.shared.v2.u32 [%2], {%0, %1};" ::"r"(lane), "r"(lane + 1), SHARED(at))) THEN_READ_BACK)
PROBE(sts128,
    IF_ON(PTX("st.shared.v4.u32 [%2], {%0, %1, %0, %1};" ::"r"(lane), "r"(lane + 1), SHARED(at))) THEN_READ_BACK)
PROBE(stg8, STORE_BYTE("global", GLOBAL(at)))
PROBE(stg32, STORE_1("global", GLOBAL(at)))
PROBE(stg64, IF_ON(PTX("st.global.v2.u32 [%1], {%0, %0};" ::"r"(lane), GLOBAL(at))))
PROBE(stg128, IF_ON(PTX("st.global.v4.u32 [%1], {%0, %0, %0, %0};" ::"r"(lane), GLOBAL(at))))

PROBE(atoms_add, RETURNING("shared", "add.u32", SHARED(at), lane + 3))
PROBE(reds_add, DROPPING("shared", "add.u32", SHARED(at), "r", lane + 3) THEN_READ_BACK)
PROBE(atoms_inc1, IF_ON(atomicAdd((unsigned*)(arena + at), 1u)) THEN_READ_BACK)
PROBE(atoms_fadd, IF_ON(atomicAdd((float*)(arena + at), 1.5f)) THEN_READ_BACK)
PROBE(atoms_cas,
    IF_ON(PTX("atom.shared.cas.b32 %0, [%1], %2, %3;" : "=r"(x) : SHARED(at), "r"(lane + 3), "r"(lane))))
PROBE(redg_add, DROPPING("global", "add.u32", GLOBAL(at), "r", lane + 3))
PROBE(redg_fadd, DROPPING("global", "add.f32", GLOBAL(at), "f", 1.5f))
PROBE(atomg_add, RETURNING("global", "add.u32", GLOBAL(at), lane + 3))
