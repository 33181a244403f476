/* Vectors of the processor, and what is computed of one number or a row of them. */

#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One copy in the machine's code, so that sums run in one order whoever asks. */
#define ONE_COPY __attribute__((noinline))

/* Vectors of 32-bit lanes, and what multiplies four unsigned by four signed bytes into each lane. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define LANES 16
typedef __m512i vint;
typedef __m512 vfloat;
#define VI(name) _mm512_##name
#define load_bytes(p) _mm512_loadu_si512((const void *)(p))
#define zero_int() _mm512_setzero_si512()
#define spread(x) _mm512_set1_epi32(x)
#define to_float(x) _mm512_cvtepi32_ps(x)
#else
#define LANES 8
typedef __m256i vint;
typedef __m256 vfloat;
#define VI(name) _mm256_##name
#define load_bytes(p) _mm256_loadu_si256((const __m256i *)(p))
#define zero_int() _mm256_setzero_si256()
#define spread(x) _mm256_set1_epi32(x)
#define to_float(x) _mm256_cvtepi32_ps(x)
#endif

#define UNROLL _Pragma("GCC unroll 8") /* the sums must stay in registers */

/* The largest lane. */
static inline float max_of(vfloat x) {
#if LANES == 16
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
#else
    const __m256 eight = x;
#endif
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
}

/* The largest of some numbers. In vectors by hand: compilers leave a loop of comparisons as it is, for the sake of NaN. */
static inline float largest_of(const float *x, int64_t count) {
    vfloat most = VI(set1_ps)(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) most = VI(max_ps)(most, VI(loadu_ps)(x + i));
    float largest = max_of(most);
    for (; i < count; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

static float sum_of(vfloat x) {
    float sum = 0, lanes[LANES];
    VI(storeu_ps)(lanes, x);
    for (int lane = 0; lane < LANES; lane++) sum += lanes[lane];
    return sum;
}

/* e^x for x <= 0 to float32's last digits but one: 2^n times a polynomial (its Taylor series to the 7th power). */
static inline float exp_of(float x) {
    x = x < -87.0f ? -87.0f : x;
    const float n = rintf(x * 1.44269504f);
    const float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    float p = 1.0f / 5040;
    p = fmaf(p, r, 1.0f / 720);
    p = fmaf(p, r, 1.0f / 120);
    p = fmaf(p, r, 1.0f / 24);
    p = fmaf(p, r, 1.0f / 6);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    union {
        int32_t i;
        float f;
    } power = {((int32_t)n + 127) << 23};
    return p * power.f;
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Sums are split by place, never by alignment, but vectors load faster from whole lines. */
static float *aligned(float *p) { return (float *)(((uintptr_t)p + 63) & ~(uintptr_t)63); }
