// Vectors of VW floats in the compiler's generic form, so that one source serves AVX2, AVX-512 and NEON.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { VW = 16 };
#else
enum { VW = 8 };
#endif

typedef float vf __attribute__((vector_size(4 * VW)));
typedef int32_t vi __attribute__((vector_size(4 * VW)));
typedef uint32_t vu __attribute__((vector_size(4 * VW)));
typedef float vf_u __attribute__((vector_size(4 * VW), aligned(4)));

#define INLINE static inline __attribute__((always_inline))

INLINE vf load(const float *p) { return *(const vf_u *)p; }
INLINE void store(float *p, vf x) { *(vf_u *)p = x; }
INLINE vf all(float x) { return x - (vf){0}; }
INLINE vi all_i(int32_t x) { return x - (vi){0}; }
INLINE vf where(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }

// The larger one; b where they cannot be compared.
INLINE vf vmax(vf a, vf b) {
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return where(a > b, a, b);
#endif
}

// One rounding, always: what a row gives must not hang on which loop the compiler contracted.
INLINE vf fma_(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

INLINE float sum_lanes(vf x) {
    float s = 0;
    for (int i = 0; i < VW; i++) s += x[i];
    return s;
}

INLINE float max_lanes(vf x) {
    float m = x[0];
    for (int i = 1; i < VW; i++) m = x[i] > m ? x[i] : m;
    return m;
}

// The smaller one; b where they cannot be compared.
INLINE vf vmin(vf a, vf b) { return -vmax(-a, -b); }

// exp for -87.3 <= x <= ~88, to 2 units in the last place; below it is that of -87.3, 1.2e-38. (Cephes' reduction
// and polynomial.)
INLINE vf vexp_clamped(vf x) {
    x = vmax(all(-87.3f), x);  // in this order: what is no number stays so
    const vf n = fma_(x, all(1.44269504088896341f), all(12582912.0f)) - all(12582912.0f);
    vf r = fma_(n, all(-0.693359375f), x);
    r = fma_(n, all(2.12194440e-4f), r);
    vf p = all(1.9875691500e-4f);
    p = fma_(p, r, all(1.3981999507e-3f));
    p = fma_(p, r, all(8.3334519073e-3f));
    p = fma_(p, r, all(4.1665795894e-2f));
    p = fma_(p, r, all(1.6666665459e-1f));
    p = fma_(p, r, all(5.0000001201e-1f));
    p = fma_(p, r * r, r + all(1.0f));
    const vi e = __builtin_convertvector(n, vi) + 127;
    return p * (vf)(e << 23);
}

// exp, exactly 0 below -87.3.
INLINE vf vexp(vf x) { return where(x < all(-87.3f), all(0), vexp_clamped(x)); }

// log of a normal positive number, to 1 or 2 units in the last place. (Cephes.)
INLINE vf vlog(vf x) {
    vi bits = (vi)x;
    vi e = (bits >> 23) - 126;
    vf m = (vf)((bits & 0x007fffff) | 0x3f000000);
    const vi low = m < all(0.707106781186547524f);
    e += low;  // a true lane is -1
    m = where(low, m + m, m) - all(1.0f);
    const vf z = m * m;
    vf p = all(7.0376836292e-2f);
    p = fma_(p, m, all(-1.1514610310e-1f));
    p = fma_(p, m, all(1.1676998740e-1f));
    p = fma_(p, m, all(-1.2420140846e-1f));
    p = fma_(p, m, all(1.4249322787e-1f));
    p = fma_(p, m, all(-1.6668057665e-1f));
    p = fma_(p, m, all(2.0000714765e-1f));
    p = fma_(p, m, all(-2.4999993993e-1f));
    p = fma_(p, m, all(3.3333331174e-1f));
    p = p * m * z;
    const vf n = __builtin_convertvector(e, vf);
    p = fma_(n, all(-2.12194440e-4f), p);
    p = fma_(z, all(-0.5f), p);
    return fma_(n, all(0.693359375f), m + p);
}
