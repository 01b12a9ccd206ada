// Host+device markers and the architecture namespace.
//
// CPU kernel sources are compiled once per instruction set. Every inline function that such a source sees must
// either be inlined for certain (MT_HD forces it on the host) or live in the architecture namespace; otherwise the
// linker could keep the AVX-512 copy of a shared inline function and hand it to the baseline build.
#pragma once

#if defined(__CUDACC__)
#define MT_HOST_DEVICE __host__ __device__
#else
#define MT_HOST_DEVICE
#endif

#define MT_INLINE inline __attribute__((always_inline))
#define MT_HD MT_HOST_DEVICE MT_INLINE

// The build defines MINITORCH_ARCH as the name of the instruction set (baseline, avx2, avx512, cuda).
#ifndef MINITORCH_ARCH
#define MINITORCH_ARCH generic
#endif

#define MT_RESTRICT __restrict__
#define MT_LIKELY(x) __builtin_expect(!!(x), 1)
#define MT_UNLIKELY(x) __builtin_expect(!!(x), 0)
