/* Attention of one query over the columns of its row, whose keys and values are in float32 or in half precision. */

#include "vectors.h"

/* The sums of LANES vectors, one in each lane. */
static inline vfloat sum_each(vfloat *p) {
#define FOLD(low, high, a, b) VI(add_ps)(low(a, b), high(a, b))
#define LOW_PAIRS(a, b) VI(castpd_ps)(VI(unpacklo_pd)(VI(castps_pd)(a), VI(castps_pd)(b)))
#define HIGH_PAIRS(a, b) VI(castpd_ps)(VI(unpackhi_pd)(VI(castps_pd)(a), VI(castps_pd)(b)))
    UNROLL for (int i = 0; i < LANES / 2; i++) p[i] = FOLD(VI(unpacklo_ps), VI(unpackhi_ps), p[2 * i], p[2 * i + 1]);
    UNROLL for (int i = 0; i < LANES / 4; i++) p[i] = FOLD(LOW_PAIRS, HIGH_PAIRS, p[2 * i], p[2 * i + 1]);
#if LANES == 16
#define EVEN(a, b) _mm512_shuffle_f32x4(a, b, 0x88)
#define ODD(a, b) _mm512_shuffle_f32x4(a, b, 0xdd)
    const vfloat left = FOLD(EVEN, ODD, p[0], p[1]), right = FOLD(EVEN, ODD, p[2], p[3]);
    return FOLD(EVEN, ODD, left, right);
#else
#define EVEN(a, b) _mm256_permute2f128_ps(a, b, 0x20)
#define ODD(a, b) _mm256_permute2f128_ps(a, b, 0x31)
    return FOLD(EVEN, ODD, p[0], p[1]);
#endif
}

/* Half precision: a step reads more of keys and values than of anything else, and so only half as much. */
typedef uint16_t half;

#if LANES == 16
#define load_half(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define store_half(p, x) _mm256_storeu_si256((__m256i *)(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#else
#define load_half(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define store_half(p, x) _mm_storeu_si128((__m128i *)(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT))
#endif
#define MOST_HALF 65504.0f
#define as_floats(p) VI(loadu_ps)(p)

static float clipped(float x) { return x > MOST_HALF ? MOST_HALF : x < -MOST_HALF ? -MOST_HALF : x; }

/* Puts a key or a value where it is kept; what is too large for half precision becomes its largest number. */
static void keep(const float *x, int64_t width, int is_half, void *to) {
    if (!is_half) {
        memcpy(to, x, width * sizeof(float));
        return;
    }
    half *halves = to;
    const vfloat highest = VI(set1_ps)(MOST_HALF), lowest = VI(set1_ps)(-MOST_HALF);
    int64_t w = 0;
    for (; w + LANES <= width; w += LANES)
        store_half(halves + w, VI(max_ps)(VI(min_ps)(VI(loadu_ps)(x + w), highest), lowest));
    for (; w < width; w++) halves[w] = _cvtss_sh(clipped(x[w]), _MM_FROUND_TO_NEAREST_INT);
}

/* Attention as `attend`'s, of a head that is V vectors wide, over numbers of a type; there is room for whole vectors of weights. */
#define ATTEND(V, type, load)                                                                                           \
    ONE_COPY static void attend_##type##_##V(const float *query, const type *keys, const type *values, int64_t columns, \
                                    const int32_t *places, float *weights, float *out) {                                \
        const int64_t padded = (columns + LANES - 1) / LANES * LANES, last = columns - 1;                               \
        vfloat q[V], total = VI(setzero_ps)(), even[V], odd[V];                                                         \
        UNROLL for (int v = 0; v < V; v++) {                                                                            \
            q[v] = VI(loadu_ps)(query + v * LANES);                                                                     \
            even[v] = odd[v] = VI(setzero_ps)();                                                                        \
        }                                                                                                               \
        for (int64_t c = 0; c < padded; c += LANES) {                                                                   \
            vfloat products[LANES];                                                                                     \
            for (int lane = 0; lane < LANES; lane++) {                                                                  \
                const type *key = keys + places[c + lane < last ? c + lane : last];                                     \
                vfloat product = VI(mul_ps)(q[0], load(key));                                                           \
                UNROLL for (int v = 1; v < V; v++)                                                                      \
                    product = VI(fmadd_ps)(q[v], load(key + v * LANES), product);                                       \
                products[lane] = product;                                                                               \
            }                                                                                                           \
            VI(storeu_ps)(weights + c, sum_each(products));                                                             \
        }                                                                                                               \
        for (int64_t c = columns; c < padded; c++) weights[c] = -INFINITY;                                              \
        const float largest = largest_of(weights, padded);                                                              \
        for (int64_t c = 0; c < padded; c++) weights[c] = exp_of(weights[c] - largest);                                 \
        for (int64_t c = columns; c < padded; c++) weights[c] = 0;                                                      \
        for (int64_t c = 0; c < padded; c += LANES) total = VI(add_ps)(total, VI(loadu_ps)(weights + c));               \
        int64_t c = 0;                                                                                                  \
        for (; c + 1 < columns; c += 2) { /* two sums, so that an addition need not wait for the one before */          \
            const vfloat weight = VI(set1_ps)(weights[c]), next = VI(set1_ps)(weights[c + 1]);                          \
            const type *value = values + places[c];                                                                     \
            UNROLL for (int v = 0; v < V; v++) even[v] = VI(fmadd_ps)(weight, load(value + v * LANES), even[v]);        \
            value = values + places[c + 1];                                                                             \
            UNROLL for (int v = 0; v < V; v++) odd[v] = VI(fmadd_ps)(next, load(value + v * LANES), odd[v]);            \
        }                                                                                                               \
        if (c < columns) {                                                                                              \
            const vfloat weight = VI(set1_ps)(weights[c]);                                                              \
            const type *value = values + places[c];                                                                     \
            UNROLL for (int v = 0; v < V; v++) even[v] = VI(fmadd_ps)(weight, load(value + v * LANES), even[v]);        \
        }                                                                                                               \
        const vfloat factor = VI(set1_ps)(1.0f / sum_of(total));                                                        \
        UNROLL for (int v = 0; v < V; v++)                                                                              \
            VI(storeu_ps)(out + v * LANES, VI(mul_ps)(VI(add_ps)(even[v], odd[v]), factor));                            \
    }
ATTEND(1, float, as_floats) ATTEND(2, float, as_floats) ATTEND(4, float, as_floats) ATTEND(8, float, as_floats)
ATTEND(1, half, load_half) ATTEND(2, half, load_half) ATTEND(4, half, load_half) ATTEND(8, half, load_half)

static inline float float_of(const void *numbers, int64_t i, int is_half) {
    return is_half ? _cvtsh_ss(((const half *)numbers)[i]) : ((const float *)numbers)[i];
}

/* Attention of one query over so many columns, whose keys and values stand at places; 1 / sqrt(W) is in the queries' weights. */
ONE_COPY static void attend(const float *query, const void *keys, const void *values, int is_half, int64_t columns,
                            int64_t width, const int32_t *places, float *weights, float *out) {
#define ATTEND_IN(V)                                                                \
    case V * LANES:                                                                 \
        if (is_half)                                                                \
            attend_half_##V(query, keys, values, columns, places, weights, out);    \
        else                                                                        \
            attend_float_##V(query, keys, values, columns, places, weights, out);   \
        return;
    switch (width) { ATTEND_IN(1) ATTEND_IN(2) ATTEND_IN(4) ATTEND_IN(8) }
    float total = 0;
    for (int64_t c = 0; c < columns; c++) {
        float score = 0;
        for (int64_t w = 0; w < width; w++) score += query[w] * float_of(keys, places[c] + w, is_half);
        weights[c] = score;
    }
    const float largest = largest_of(weights, columns);
    for (int64_t c = 0; c < columns; c++) weights[c] = exp_of(weights[c] - largest);
    for (int64_t c = 0; c < columns; c++) total += weights[c];
    for (int64_t w = 0; w < width; w++) out[w] = 0;
    for (int64_t c = 0; c < columns; c++) {
        const float weight = weights[c] / total;
        for (int64_t w = 0; w < width; w++) out[w] = fmaf(weight, float_of(values, places[c] + w, is_half), out[w]);
    }
}
