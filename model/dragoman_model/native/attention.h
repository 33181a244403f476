/* Attention of one query over the columns of its row. */

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

/* Attention as `attend`'s, of a head that is V vectors wide; there is room for whole vectors of weights. */
#define ATTEND(V)                                                                                                       \
    ONE_COPY static void attend_##V(const float *query, const float *keys, const float *values, int64_t columns,        \
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
                const float *key = keys + places[c + lane < last ? c + lane : last];                                    \
                vfloat product = VI(mul_ps)(q[0], VI(loadu_ps)(key));                                                   \
                UNROLL for (int v = 1; v < V; v++)                                                                      \
                    product = VI(fmadd_ps)(q[v], VI(loadu_ps)(key + v * LANES), product);                               \
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
            const float *value = values + places[c];                                                                    \
            UNROLL for (int v = 0; v < V; v++) even[v] = VI(fmadd_ps)(weight, VI(loadu_ps)(value + v * LANES), even[v]);  \
            value = values + places[c + 1];                                                                             \
            UNROLL for (int v = 0; v < V; v++) odd[v] = VI(fmadd_ps)(next, VI(loadu_ps)(value + v * LANES), odd[v]);      \
        }                                                                                                               \
        if (c < columns) {                                                                                              \
            const vfloat weight = VI(set1_ps)(weights[c]);                                                              \
            const float *value = values + places[c];                                                                    \
            UNROLL for (int v = 0; v < V; v++) even[v] = VI(fmadd_ps)(weight, VI(loadu_ps)(value + v * LANES), even[v]);  \
        }                                                                                                               \
        const vfloat factor = VI(set1_ps)(1.0f / sum_of(total));                                                        \
        UNROLL for (int v = 0; v < V; v++)                                                                              \
            VI(storeu_ps)(out + v * LANES, VI(mul_ps)(VI(add_ps)(even[v], odd[v]), factor));                            \
    }
ATTEND(1) ATTEND(2) ATTEND(4) ATTEND(8)

/* Attention of one query over so many columns, whose keys and values stand at places; 1 / sqrt(W) is in the queries' weights. */
ONE_COPY static void attend(const float *query, const float *keys, const float *values, int64_t columns, int64_t width,
                            const int32_t *places, float *weights, float *out) {
    switch (width) {
    case LANES: attend_1(query, keys, values, columns, places, weights, out); return;
    case 2 * LANES: attend_2(query, keys, values, columns, places, weights, out); return;
    case 4 * LANES: attend_4(query, keys, values, columns, places, weights, out); return;
    case 8 * LANES: attend_8(query, keys, values, columns, places, weights, out); return;
    }
    float total = 0;
    for (int64_t c = 0; c < columns; c++) {
        const float *key = keys + places[c];
        float score = 0;
        for (int64_t w = 0; w < width; w++) score += query[w] * key[w];
        weights[c] = score;
    }
    const float largest = largest_of(weights, columns);
    for (int64_t c = 0; c < columns; c++) weights[c] = exp_of(weights[c] - largest);
    for (int64_t c = 0; c < columns; c++) total += weights[c];
    for (int64_t w = 0; w < width; w++) out[w] = 0;
    for (int64_t c = 0; c < columns; c++) {
        const float *value = values + places[c], weight = weights[c] / total;
        for (int64_t w = 0; w < width; w++) out[w] = fmaf(weight, value[w], out[w]);
    }
}
