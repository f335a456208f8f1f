"""Readable names."""

from __future__ import annotations

import pytest

from gpusim.toolchain import demangle, signature

#: Names that compilers made, with the readable form; "c++filt" gives the same up to spelling of types and numbers.
NAMES = {
    "_Z9transposeILi32EEvPKfPfi": "transpose<32>(const float*, float*, int)",
    "_Z5saxpyPfPKfi": "saxpy(float*, const float*, int)",
    "plain": "plain",
    "_Z1kv": "k()",
    "_ZL6hiddenPi": "hidden(int*)",
    "_ZN41_GLOBAL__N__00000000_9_kernel_cu_8473c8e34anonEPi": "(anonymous namespace)::anon(int*)",
    "_ZN34_INTERNAL_cf3a1e8b_4_k_cu_1a2b3c4d1n6hiddenE": "n::hidden",
    "_ZN1a1b1kIfLi3ELb1EEEvPT_PKS2_NS0_1VIS2_EENS0_1SE": (
        "a::b::k<float, 3, true>(float*, const float*, a::b::V<float>, a::b::S)"
    ),
    "_ZN1a4packIJiPfNS_1b1SEEEEvDpT_": "a::pack<int, float*, a::b::S>(int, float*, a::b::S)",
    "_ZN1a4packIJEEEvDpT_": "a::pack<>()",
    "_ZN1a4packIJPKiPA3_iEEEvDpT_": "a::pack<const int*, int (*)[3]>(const int*, int (*)[3])",
    "_Z3ullIN1a1b1VINS2_INS1_1SEEEEELy1EEvPT_Pi": (
        "ull<a::b::V<a::b::V<a::b::S>>, 1>(a::b::V<a::b::V<a::b::S>>*, int*)"
    ),
    "_Z2ttIN1a1b1VEfEvT_IT0_EPS4_": "tt<a::b::V, float>(a::b::V<float>, float*)",
    "_Z3ptrIXadL_Z2glEEEvPi": "ptr<&gl>(int*)",
    "_Z6nestedIfEvPN2KnIT_E2InE": "nested<float>(Kn<float>::In*)",
    "_Z3lamIPFiiEEvT_Pi": "lam<int (*)(int)>(int (*)(int), int*)",
    "_Z2enILN1a1b1EE0ELNS1_1FE1EEvPi": "en<(a::b::E)0, (a::b::F)1>(int*)",
    "_Z3negIiLin3ELc97EEvPT_": "neg<int, -3, 'a'>(int*)",
    "_Z3arrRA4_iPKPfhyl6__half7double2": (
        "arr(int (&)[4], float* const*, unsigned char, unsigned long long, long, __half, double2)"
    ),
    "_Z3memMN1a1b1SEiMS1_KFiiEPi": "mem(int a::b::S::*, int (a::b::S::*)(int) const, int*)",
    "_Z2fpPFiifEPi": "fp(int (*)(int, float), int*)",
    "_ZN3FooclEi": "Foo::operator()(int)",
}


@pytest.mark.parametrize(("mangled", "readable"), NAMES.items())
def test_names(mangled: str, readable: str) -> None:
    assert signature(mangled) == readable


def test_short_names() -> None:
    assert demangle("_Z9transposeILi32EEvPKfPfi") == "transpose<32>"
    assert demangle("_Z6matmulILi128ELi8EEvPKfS1_Pf") == "matmul<128, 8>"
    assert demangle("saxpy") == "saxpy"


def test_what_is_not_understood_stays() -> None:
    for mangled in NAMES:
        if mangled.startswith("_Z"):
            for end in range(2, len(mangled)):
                assert isinstance(signature(mangled[:end]), str)
    assert signature("_Z") == "_Z"
    assert signature("_Z1kIXplLi1ELi2EEEvv") == "_Z1kIXplLi1ELi2EEEvv"
    assert signature("_Z" + "P" * 5000) == "_Z" + "P" * 5000
