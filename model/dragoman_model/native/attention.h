/* Attention of queries over the columns of their rows, whose keys and values are in float32 or in half precision. */

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

/* Attention of some queries, rows of one sentence, over the columns of each.
 *
 * Column c of query m has its key and its value at places[m * place_stride + c]; those of the first `shared` columns stand at the same
 * places for all, and are read once for two. What is read next, values and `next_head` numbers further the next head's keys, is asked
 * for ahead, since a step's keys and values are more than the near caches hold. Weights have room for two rows of whole vectors.
 * 1 / sqrt(W) is in the queries' weights.
 */
typedef struct {
    const float *queries;
    const void *keys, *values;
    const int32_t *places;
    float *weights, *out;
    int64_t query_stride, place_stride, out_stride, columns, shared, next_head;
} Attention;

/* Makes weights of the scores of one query, in whole vectors, and returns what they are to be multiplied by. */
ONE_COPY static float weigh(float *weights, int64_t columns, int64_t padded) {
    vfloat total = VI(setzero_ps)();
    for (int64_t c = columns; c < padded; c++) weights[c] = -INFINITY;
    const float largest = largest_of(weights, padded);
    for (int64_t c = 0; c < padded; c++) weights[c] = exp_of(weights[c] - largest);
    for (int64_t c = columns; c < padded; c++) weights[c] = 0;
    for (int64_t c = 0; c < padded; c += LANES) total = VI(add_ps)(total, VI(loadu_ps)(weights + c));
    return 1.0f / sum_of(total);
}

/* Has what stands there come near. */
static inline void fetch(const void *p, int64_t bytes) {
    for (int64_t b = 0; b < bytes; b += 64) _mm_prefetch((const char *)p + b, _MM_HINT_T0);
}

/* M queries of a head that is V vectors wide, over numbers of a type. What each gets is the same however many there are. */
#define ATTEND(M, V, type, load)                                                                                       \
    static void attend_##type##_##M##_##V(const Attention *a) {                                                        \
        const int64_t columns = a->columns, shared = M == 1 ? columns : a->shared, stride = a->place_stride;           \
        const int64_t padded = (columns + LANES - 1) / LANES * LANES, last = columns - 1;                              \
        const type *const keys = a->keys, *const all_values = a->values;                                               \
        const int32_t *places = a->places;                                                                             \
        float *const weights = a->weights, factors[M];                                                                 \
        vfloat q[M][V];                                                                                                \
        UNROLL for (int m = 0; m < M; m++)                                                                             \
            UNROLL for (int v = 0; v < V; v++) q[m][v] = VI(loadu_ps)(a->queries + m * a->query_stride + v * LANES);   \
        for (int64_t c = 0; c < padded; c += LANES) {                                                                  \
            vfloat products[M][LANES];                                                                                 \
            for (int lane = 0; lane < LANES; lane++) {                                                                 \
                const int64_t column = c + lane < last ? c + lane : last;                                              \
                if (column < shared) {                                                                                 \
                    const type *key = keys + places[column];                                                           \
                    fetch(all_values + places[column], V * LANES * sizeof(type));                                      \
                    fetch(key + a->next_head, V * LANES * sizeof(type));                                               \
                    vfloat product[M];                                                                                 \
                    UNROLL for (int v = 0; v < V; v++) {                                                               \
                        const vfloat k = load(key + v * LANES);                                                        \
                        UNROLL for (int m = 0; m < M; m++)                                                             \
                            product[m] = v ? VI(fmadd_ps)(q[m][v], k, product[m]) : VI(mul_ps)(q[m][v], k);            \
                    }                                                                                                  \
                    UNROLL for (int m = 0; m < M; m++) products[m][lane] = product[m];                                 \
                    continue;                                                                                          \
                }                                                                                                      \
                UNROLL for (int m = 0; m < M; m++) {                                                                   \
                    const type *key = keys + places[m * stride + column];                                              \
                    fetch(all_values + places[m * stride + column], V * LANES * sizeof(type));                         \
                    fetch(key + a->next_head, V * LANES * sizeof(type));                                               \
                    vfloat product = VI(mul_ps)(q[m][0], load(key));                                                   \
                    UNROLL for (int v = 1; v < V; v++)                                                                 \
                        product = VI(fmadd_ps)(q[m][v], load(key + v * LANES), product);                               \
                    products[m][lane] = product;                                                                       \
                }                                                                                                      \
            }                                                                                                          \
            UNROLL for (int m = 0; m < M; m++) VI(storeu_ps)(weights + m * padded + c, sum_each(products[m]));         \
        }                                                                                                              \
        for (int m = 0; m < M; m++) factors[m] = weigh(weights + m * padded, columns, padded);                         \
        enum { P = V < LANES / 2 / M ? V : LANES / 2 / M }; /* as many vectors at a time as there are registers for */ \
        for (int first = 0; first < V; first += P) {                                                                   \
            const type *const values = all_values + first * LANES;                                                     \
            vfloat even[M][P], odd[M][P]; /* two sums, so that an addition need not wait for the one before */         \
            UNROLL for (int m = 0; m < M; m++)                                                                         \
                UNROLL for (int p = 0; p < P; p++) even[m][p] = odd[m][p] = VI(setzero_ps)();                          \
            int64_t c = 0;                                                                                             \
            for (; c + 1 < shared; c += 2) {                                                                           \
                const type *value = values + places[c], *next = values + places[c + 1];                                \
                UNROLL for (int p = 0; p < P; p++) {                                                                   \
                    const vfloat one = load(value + p * LANES), two = load(next + p * LANES);                          \
                    UNROLL for (int m = 0; m < M; m++) {                                                               \
                        const float *weight = weights + m * padded + c;                                                \
                        even[m][p] = VI(fmadd_ps)(VI(set1_ps)(weight[0]), one, even[m][p]);                            \
                        odd[m][p] = VI(fmadd_ps)(VI(set1_ps)(weight[1]), two, odd[m][p]);                              \
                    }                                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
            for (; c + 1 < columns; c += 2)                                                                            \
                UNROLL for (int m = 0; m < M; m++) {                                                                   \
                    const vfloat weight = VI(set1_ps)(weights[m * padded + c]);                                        \
                    const vfloat following = VI(set1_ps)(weights[m * padded + c + 1]);                                 \
                    const type *value = values + places[m * stride + c];                                               \
                    UNROLL for (int p = 0; p < P; p++)                                                                 \
                        even[m][p] = VI(fmadd_ps)(weight, load(value + p * LANES), even[m][p]);                        \
                    value = values + places[m * stride + c + 1];                                                       \
                    UNROLL for (int p = 0; p < P; p++)                                                                 \
                        odd[m][p] = VI(fmadd_ps)(following, load(value + p * LANES), odd[m][p]);                       \
                }                                                                                                      \
            if (c < columns)                                                                                           \
                UNROLL for (int m = 0; m < M; m++) {                                                                   \
                    const vfloat weight = VI(set1_ps)(weights[m * padded + c]);                                        \
                    const type *value = values + places[m * stride + c];                                               \
                    UNROLL for (int p = 0; p < P; p++)                                                                 \
                        even[m][p] = VI(fmadd_ps)(weight, load(value + p * LANES), even[m][p]);                        \
                }                                                                                                      \
            UNROLL for (int m = 0; m < M; m++)                                                                         \
                UNROLL for (int p = 0; p < P; p++)                                                                     \
                    VI(storeu_ps)(a->out + m * a->out_stride + (first + p) * LANES,                                    \
                                  VI(mul_ps)(VI(add_ps)(even[m][p], odd[m][p]), VI(set1_ps)(factors[m])));             \
        }                                                                                                              \
    }
#define ATTEND_WIDE(V)                                                      \
    ATTEND(1, V, float, as_floats) ATTEND(2, V, float, as_floats)           \
    ATTEND(1, V, half, load_half) ATTEND(2, V, half, load_half)             \
    static void attend_##V(const Attention *a, int is_half, int64_t rows) { \
        if (rows == 2)                                                      \
            is_half ? attend_half_2_##V(a) : attend_float_2_##V(a);         \
        else                                                                \
            is_half ? attend_half_1_##V(a) : attend_float_1_##V(a);         \
    }
ATTEND_WIDE(1) ATTEND_WIDE(2) ATTEND_WIDE(4) ATTEND_WIDE(8)

static inline float float_of(const void *numbers, int64_t i, int is_half) {
    return is_half ? _cvtsh_ss(((const half *)numbers)[i]) : ((const float *)numbers)[i];
}

/* One query of a head of any width. */
ONE_COPY static void attend_any(const Attention *a, int is_half, int64_t width) {
    float total = 0, *weights = a->weights, *out = a->out;
    for (int64_t c = 0; c < a->columns; c++) {
        float score = 0;
        for (int64_t w = 0; w < width; w++) score += a->queries[w] * float_of(a->keys, a->places[c] + w, is_half);
        weights[c] = score;
    }
    const float largest = largest_of(weights, a->columns);
    for (int64_t c = 0; c < a->columns; c++) weights[c] = exp_of(weights[c] - largest);
    for (int64_t c = 0; c < a->columns; c++) total += weights[c];
    for (int64_t w = 0; w < width; w++) out[w] = 0;
    for (int64_t c = 0; c < a->columns; c++) {
        const float weight = weights[c] / total;
        for (int64_t w = 0; w < width; w++) out[w] = fmaf(weight, float_of(a->values, a->places[c] + w, is_half), out[w]);
    }
}

/* Attention of so many queries, by twos: by fours it is no faster. */
static void attend(Attention a, int is_half, int64_t rows, int64_t width) {
    for (int64_t r = 0, count; r < rows; r += count) {
        count = least(rows - r, 2);
        switch (width) {
        case LANES: attend_1(&a, is_half, count); break;
        case 2 * LANES: attend_2(&a, is_half, count); break;
        case 4 * LANES: attend_4(&a, is_half, count); break;
        case 8 * LANES: attend_8(&a, is_half, count); break;
        default: attend_any(&a, is_half, width); count = 1;
        }
        a.queries += count * a.query_stride;
        a.places += count * a.place_stride;
        a.out += count * a.out_stride;
    }
}
