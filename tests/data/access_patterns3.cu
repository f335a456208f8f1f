// Single-warp probes, third set: further atomics, copies with a global pattern, further generic accesses.
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

#define COPY(bytes, from) \
    IF_ON(PTX("cp.async.ca.shared.global [%0], [%1], " #bytes ";" ::SHARED(lane * bytes), GLOBAL(from))) COPIES_ARE_DONE
#define MAYBE(first, second) unsigned char* p = first + at; if (active[lane] == 77) p = second + at
#define ODD_LANES_SHARED unsigned char* p = (lane & 1) ? arena + at : buffer + at
#define GENERIC_1 IF_ON(PTX("ld.u32 %0, [%1];" : "=r"(x) : "l"(p)))
#define GENERIC_2 IF_ON(PTX("ld.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(p)))
#define GENERIC_4 \
    IF_ON(PTX("ld.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "l"(p)))
#define GENERIC_ADD IF_ON(PTX("atom.add.u32 %0, [%1], %2;" : "=r"(x) : "l"(p), "r"(lane + 3)))

PROBE(atoms_min, RETURNING("shared", "min.u32", SHARED(at), lane + 3))
PROBE(atoms_mins, RETURNING("shared", "min.s32", SHARED(at), lane + 3))
PROBE(atoms_and, RETURNING("shared", "and.b32", SHARED(at), lane + 3))
PROBE(atoms_or, RETURNING("shared", "or.b32", SHARED(at), lane + 3))
PROBE(atoms_xor, RETURNING("shared", "xor.b32", SHARED(at), lane + 3))
PROBE(atoms_inc, RETURNING("shared", "inc.u32", SHARED(at), lane + 3))
PROBE(atoms_dec, RETURNING("shared", "dec.u32", SHARED(at), lane + 3))
PROBE(reds_max, DROPPING("shared", "max.u32", SHARED(at), "r", lane + 3))
PROBE(reds_or, DROPPING("shared", "or.b32", SHARED(at), "r", lane + 3))
PROBE(reds_inc, DROPPING("shared", "inc.u32", SHARED(at), "r", lane + 3))
PROBE(atoms_exch64, RETURNING_WIDE("shared", "exch.b64", SHARED(at), (wide)lane + 3))
PROBE(atoms_min64, RETURNING_WIDE("shared", "min.u64", SHARED(at), (wide)lane + 3))
PROBE(atoms_or64, RETURNING_WIDE("shared", "or.b64", SHARED(at), (wide)lane + 3))
PROBE(atoms_add1r, IF_ON(x = atomicAdd((unsigned*)(arena + at), 1u)))
PROBE(atoms_addc, IF_ON(atomicAdd((unsigned*)(arena + at), 7u)))
PROBE(atoms_dadd, IF_ON(atomicAdd((double*)(arena + at), 1.5)))

PROBE(atomg_max, RETURNING("global", "max.u32", GLOBAL(at), lane + 3))
PROBE(atomg_or, RETURNING("global", "or.b32", GLOBAL(at), lane + 3))
PROBE(atomg_inc, RETURNING("global", "inc.u32", GLOBAL(at), lane + 3))
PROBE(atomg_exch, RETURNING("global", "exch.b32", GLOBAL(at), lane + 3))
PROBE(redg_max, DROPPING("global", "max.u32", GLOBAL(at), "r", lane + 3))
PROBE(redg_or, DROPPING("global", "or.b32", GLOBAL(at), "r", lane + 3))
PROBE(redg_xor, DROPPING("global", "xor.b32", GLOBAL(at), "r", lane + 3))
PROBE(redg_inc, DROPPING("global", "inc.u32", GLOBAL(at), "r", lane + 3))
PROBE(redg_dec, DROPPING("global", "dec.u32", GLOBAL(at), "r", lane + 3))
PROBE(atomg_exch64, RETURNING_WIDE("global", "exch.b64", GLOBAL(at), (wide)lane + 3))
PROBE(atomg_max64, RETURNING_WIDE("global", "max.u64", GLOBAL(at), (wide)lane + 3))
PROBE(redg_max64, DROPPING("global", "max.u64", GLOBAL(at), "l", (wide)lane + 3))
PROBE(redg_or64, DROPPING("global", "or.b64", GLOBAL(at), "l", (wide)lane + 3))
PROBE(atomg_add1, IF_ON(x = atomicAdd((unsigned*)(buffer + at), 1u)))
PROBE(redg_add1, IF_ON(atomicAdd((unsigned*)(buffer + at), 1u)))
PROBE(atomg_fadd,
    IF_ON(float old; PTX("atom.global.add.f32 %0, [%1], %2;" : "=f"(old) : GLOBAL(at), "f"(1.5f));
        x = __float_as_uint(old)))
PROBE(redg_dadd, DROPPING("global", "add.f64", GLOBAL(at), "d", 1.5))
PROBE(redg_h2, DROPPING("global", "add.noftz.f16x2", GLOBAL(at), "r", 0x3c003c00u))
PROBE(redg_v2f, IF_ON(PTX("red.global.add.v2.f32 [%0], {%1, %1};" ::GLOBAL(at), "f"(1.5f))))
PROBE(redg_v4f, IF_ON(PTX("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::GLOBAL(at), "f"(1.5f))))
PROBE(atomg_cas64,
    IF_ON(PTX("atom.global.cas.b64 %0, [%1], %2, %3;"
        : "=l"(pair) : GLOBAL(at), "l"((wide)lane + 3), "l"((wide)lane))))

PROBE(cpa4g, COPY(4, at))
PROBE(cpa8g, COPY(8, at))
PROBE(cpa16g, COPY(16, at))
PROBE(cpz16g,
    PTX("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::SHARED(lane * 16), GLOBAL(at), "r"(on ? 16u : 0u));
    COPIES_ARE_DONE)

PROBE(gst_s32, MAYBE(arena, buffer); IF_ON(*(volatile unsigned*)p = lane))
PROBE(gst_g32, MAYBE(buffer, arena); IF_ON(*(volatile unsigned*)p = lane))
PROBE(gen_s64, MAYBE(arena, buffer); GENERIC_2)
PROBE(gen_s128, MAYBE(arena, buffer); GENERIC_4)
PROBE(gen_mix32, ODD_LANES_SHARED; GENERIC_1)
PROBE(gen_mix128, ODD_LANES_SHARED; GENERIC_4)
PROBE(gat_s32, MAYBE(arena, buffer); GENERIC_ADD)
PROBE(gat_g32, MAYBE(buffer, arena); GENERIC_ADD)

PROBE(ldsm1t, PTX("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(x) : SHARED(at)))
PROBE(stsm1, PTX("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::SHARED(at), "r"(lane)))
PROBE(stsm2t, PTX("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %1};" ::SHARED(at), "r"(lane)))

PROBE(stg16, IF_ON(PTX("st.global.u16 [%1], %0;" ::"h"((unsigned short)lane), GLOBAL(at))))
PROBE(ldgcv128, LOAD_4("volatile.global", GLOBAL(at)))
PROBE(lds64d,
    double d = 0; IF_ON(PTX("ld.shared.f64 %0, [%1];" : "=d"(d) : SHARED(at))) x = (unsigned)d)
