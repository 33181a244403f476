/* The decoder's step and the encoder in 8-bit integers, each in one call.
 *
 * Weights are int8 with a scale for each output, activations are quantised row by row, sums of products are exact, and
 * attention runs over each row's own columns: what a row gets depends on nothing that stands beside it.
 *
 * Shapes: R rows, K inputs, N outputs of a map; D width, H heads, W head width, F feed-forward, V vocabulary; C columns
 * that a cache has room for.
 */

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

#if LANES == 16 && defined(__AVX512VNNI__)
#define INSTRUCTIONS "AVX-512 VNNI"
#define LEVELS 127
/* Written out, since some compilers move the sums from register to register around the intrinsic. */
#define dot(sum, a, b) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))
#elif LANES == 8 && defined(__AVXVNNI__)
#define INSTRUCTIONS "AVX-VNNI"
#define LEVELS 127
#define dot(sum, a, b) sum = _mm256_dpbusd_avx_epi32(sum, a, b)
#elif LANES == 16
#define INSTRUCTIONS "AVX-512"
/* Without such an instruction pairs are added in 16 bits: activations have 7 bits, so that 2 x 127 x 127 fits. */
#define LEVELS 63
#define dot(sum, a, b) \
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), _mm512_set1_epi16(1)))
#else
#define INSTRUCTIONS "AVX2"
#define LEVELS 63
#define dot(sum, a, b) \
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)))
#endif
#define ZERO (LEVELS + 1) /* what stands for 0 in an unsigned activation */

/* A linear map. K is a multiple of 4, N of 16; the caller pads with zeros. */
typedef struct {
    const int8_t *weight; /* (N / LANES, K / 4, LANES, 4) */
    const float *scales;  /* (N) */
    const float *bias;    /* (N) */
    const int32_t *sums;  /* (N), of each output's weights, times ZERO */
    int64_t inputs, outputs;
} Map;

typedef struct {
    const float *gain, *bias;
    float eps;
} Norm;

typedef struct {
    Norm norm;
    Map inner, outer;
} FeedForward;

typedef struct {
    Norm self_norm;
    Map self_in, self_out; /* queries, keys and values side by side */
    Norm cross_norm;
    Map cross_in, cross_out; /* queries */
    FeedForward feed_forward;
} Layer; /* an encoder layer has no cross-attention */

/* An encoder or a decoder, and what stands before and behind it: project is the map to the vocabulary, or of the memory to
 * the cross-attention keys and values of all decoder layers. */
typedef struct {
    const Layer *layers;
    const float *embedding, *positions;
    Norm last;
    Map project;
    int64_t num_layers, num_heads, width, inner;
    float embedding_scale;
} Stack;

/* Keys and values of one layer: (2, rows there is room for, H, C, W). */
typedef struct {
    float *self, *cross;
    int64_t self_rows, self_columns, cross_rows, cross_columns;
} Caches;

int64_t levels(void) { return LEVELS; }

const char *instructions(void) { return INSTRUCTIONS; }

/* Lays out (N, K) weights as Map wants them. */
void pack(const int8_t *weight, int64_t outputs, int64_t inputs, int8_t *packed, int32_t *sums) {
    for (int64_t n = 0; n < outputs; n++) {
        int32_t sum = 0;
        for (int64_t k = 0; k < inputs; k++) {
            int8_t value = weight[n * inputs + k];
            sum += value;
            packed[((n / LANES) * (inputs / 4) + k / 4) * LANES * 4 + (n % LANES) * 4 + k % 4] = value;
        }
        sums[n] = sum * ZERO;
    }
}

/* The largest of some numbers. In vectors by hand: compilers leave a loop of comparisons as it is, for the sake of NaN. */
static float largest_of(const float *x, int64_t count) {
    float largest = -INFINITY, lanes[LANES];
    vfloat most = VI(set1_ps)(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) most = VI(max_ps)(most, VI(loadu_ps)(x + i));
    VI(storeu_ps)(lanes, most);
    for (int lane = 0; lane < LANES; lane++) largest = lanes[lane] > largest ? lanes[lane] : largest;
    for (; i < count; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

static float sum_of(vfloat x) {
    float sum = 0, lanes[LANES];
    VI(storeu_ps)(lanes, x);
    for (int lane = 0; lane < LANES; lane++) sum += lanes[lane];
    return sum;
}

/* The largest absolute value of a row, whose length fills vectors. */
static float size_of(const float *x, int64_t count) {
    float largest = 0, lanes[LANES];
    vfloat most = VI(setzero_ps)(), least = most;
    for (int64_t i = 0; i < count; i += LANES) {
        const vfloat some = VI(loadu_ps)(x + i);
        most = VI(max_ps)(most, some);
        least = VI(min_ps)(least, some);
    }
    VI(storeu_ps)(lanes, VI(max_ps)(most, VI(sub_ps)(VI(setzero_ps)(), least)));
    for (int lane = 0; lane < LANES; lane++) largest = lanes[lane] > largest ? lanes[lane] : largest;
    return largest;
}

/* Quantises a row and returns its step. */
ONE_COPY static float quantize(const float *x, int64_t inputs, uint8_t *q) {
    const float largest = size_of(x, inputs);
    float step = largest * (1.0f / LEVELS) + 1e-30f;
    float inverse = 1.0f / step;
    for (int64_t k = 0; k < inputs; k++)
        q[k] = (uint8_t)(int32_t)(x[k] * inverse + (ZERO + 0.5f)); /* rounded: what is cut off is positive */
    return step;
}

/* Products of M rows with B blocks of LANES outputs, and what becomes of them. */
#define UNROLL _Pragma("GCC unroll 8") /* the sums must stay in registers */
#define TILE(M, B)                                                                                        \
    static inline void tile_##M##_##B(const Map *map, const uint8_t *q, const float *steps, int64_t block, \
                                      int relu, const float *add, const int64_t *places, float *out) {                            \
        const int64_t inputs = map->inputs, outputs = map->outputs;                                        \
        const int8_t *weight = map->weight + block * inputs * LANES;                                       \
        vint sum[M][B];                                                                                    \
        UNROLL for (int m = 0; m < M; m++)                                                                        \
            UNROLL for (int b = 0; b < B; b++) sum[m][b] = zero_int();                                            \
        for (int64_t k = 0; k < inputs; k += 4) {                                                          \
            vint w[B];                                                                                     \
            UNROLL for (int b = 0; b < B; b++) w[b] = load_bytes(weight + b * inputs * LANES + k * LANES);        \
            UNROLL for (int m = 0; m < M; m++) {                                                                  \
                int32_t four;                                                                              \
                memcpy(&four, q + m * inputs + k, 4);                                                      \
                vint a = spread(four);                                                                     \
                UNROLL for (int b = 0; b < B; b++) dot(sum[m][b], a, w[b]);                           \
            }                                                                                              \
        }                                                                                                  \
        UNROLL for (int m = 0; m < M; m++) {                                                                        \
            float *result = out + (places ? places[m] : m) * outputs;                                  \
            UNROLL for (int b = 0; b < B; b++) {                                                                  \
                const int64_t n = (block + b) * LANES;                                                     \
                vint centred = VI(sub_epi32)(sum[m][b], load_bytes(map->sums + n));                        \
                vfloat scale = VI(mul_ps)(VI(set1_ps)(steps[m]), VI(loadu_ps)(map->scales + n));           \
                vfloat y = VI(fmadd_ps)(to_float(centred), scale, VI(loadu_ps)(map->bias + n));  \
                if (relu) y = VI(max_ps)(y, VI(setzero_ps)());                                             \
                if (add) y = VI(add_ps)(y, VI(loadu_ps)(add + m * outputs + n));                           \
                VI(storeu_ps)(result + n, y);                                                   \
            }                                                                                              \
        }                                                                                              \
    }
#if LANES == 16
#define MANY 6
#define WIDE 4
TILE(6, 4) TILE(5, 4) TILE(4, 4) TILE(3, 4) TILE(2, 4) TILE(1, 4)
TILE(6, 1) TILE(5, 1) TILE(4, 1) TILE(3, 1) TILE(2, 1) TILE(1, 1)
#define CHOOSE(B)                                                                                   \
    switch (count) {                                                                                \
    case 6: tile_6_##B(map, rows, steps + r, block, relu, added, to, result); break;                    \
    case 5: tile_5_##B(map, rows, steps + r, block, relu, added, to, result); break;                    \
    case 4: tile_4_##B(map, rows, steps + r, block, relu, added, to, result); break;                    \
    case 3: tile_3_##B(map, rows, steps + r, block, relu, added, to, result); break;                    \
    case 2: tile_2_##B(map, rows, steps + r, block, relu, added, to, result); break;                    \
    default: tile_1_##B(map, rows, steps + r, block, relu, added, to, result);                          \
    }
#else
#define MANY 4
#define WIDE 2
TILE(4, 2) TILE(3, 2) TILE(2, 2) TILE(1, 2)
TILE(4, 1) TILE(3, 1) TILE(2, 1) TILE(1, 1)
#define CHOOSE(B)                                                                                   \
    switch (count) {                                                                                \
    case 4: tile_4_##B(map, rows, steps + r, block, relu, added, to, result); break;                    \
    case 3: tile_3_##B(map, rows, steps + r, block, relu, added, to, result); break;                    \
    case 2: tile_2_##B(map, rows, steps + r, block, relu, added, to, result); break;                    \
    default: tile_1_##B(map, rows, steps + r, block, relu, added, to, result);                          \
    }
#endif

/* out = relu?(map(x)) + add?, for R rows, each at its place, (R), if they have any; scratch holds R * K bytes and R floats, aligned. */
static void apply(const Map *map, const float *x, int64_t rows_count, int relu, const float *add, const int64_t *places,
                  float *out, void *scratch) {
    float *steps = scratch;
    uint8_t *q = (uint8_t *)(steps + rows_count);
    for (int64_t r = 0; r < rows_count; r++) steps[r] = quantize(x + r * map->inputs, map->inputs, q + r * map->inputs);
    const int64_t blocks = map->outputs / LANES;
    for (int64_t block = 0; block < blocks;) { /* a block's weights stay near while all rows pass */
        const int wide = blocks - block >= WIDE;
        for (int64_t r = 0; r < rows_count; r += MANY) {
            const int64_t count = rows_count - r < MANY ? rows_count - r : MANY;
            const uint8_t *rows = q + r * map->inputs;
            const float *added = add ? add + r * map->outputs : 0;
            const int64_t *to = places ? places + r : 0;
            float *result = places ? out : out + r * map->outputs;
            if (wide) {
#if LANES == 16
                CHOOSE(4)
#else
                CHOOSE(2)
#endif
            } else {
                CHOOSE(1)
            }
        }
        block += wide ? WIDE : 1;
    }
}

ONE_COPY static void normalize(const Norm *norm, const float *x, int64_t rows, int64_t width, float *out) {
    for (int64_t r = 0; r < rows; r++, x += width, out += width) {
        float mean = 0, variance = 0;
        for (int64_t d = 0; d < width; d++) mean += x[d];
        mean /= width;
        for (int64_t d = 0; d < width; d++) variance += (x[d] - mean) * (x[d] - mean);
        const float factor = 1.0f / sqrtf(variance / width + norm->eps);
        for (int64_t d = 0; d < width; d++) out[d] = (x[d] - mean) * factor * norm->gain[d] + norm->bias[d];
    }
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

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Sums are split by place, never by alignment, but vectors load faster from whole lines. */
static float *aligned(float *p) { return (float *)(((uintptr_t)p + 63) & ~(uintptr_t)63); }

/* Floats that a call needs beside what it is given. */
int64_t scratch_floats(int64_t rows, int64_t width, int64_t inner, int64_t columns) {
    return rows * (5 * width + inner + most(width, inner) / 4 + 2) + (rows + 2) * columns + LANES + 128;
}

/* What a row reads: its token's embedding, scaled, and its position. */
static void embed(const Stack *stack, int64_t token, int64_t position, float *x) {
    const float *embedding = stack->embedding + token * stack->width;
    const float *place = stack->positions + position * stack->width;
    for (int64_t d = 0; d < stack->width; d++) x[d] = embedding[d] * stack->embedding_scale + place[d];
}

/* Encodes sentences that stand one behind the other in token_ids, (P), and returns their cross-attention keys and values,
 * (P, L, 2, H, W). */
void encode(const Stack *stack, const int64_t *token_ids, const int64_t *lengths, int64_t num_sentences, float *out_keys_values,
            float *scratch) {
    const Layer *layers = stack->layers;
    const int64_t num_layers = stack->num_layers, num_heads = stack->num_heads, width = stack->width, inner = stack->inner;
    int64_t tokens = 0;
    for (int64_t s = 0; s < num_sentences; s++) tokens += lengths[s];
    float *x = aligned(scratch);
    scratch = x + tokens * width;
    for (int64_t s = 0, row = 0; s < num_sentences; s++)
        for (int64_t t = 0; t < lengths[s]; t++, row++) embed(stack, token_ids[row], t, x + row * width);
    float *h = scratch, *projected = h + tokens * width, *hidden = projected + 3 * tokens * width;
    float *weights = aligned(hidden + tokens * inner);
    int64_t longest = 0;
    for (int64_t s = 0; s < num_sentences; s++) longest = most(longest, lengths[s]);
    int32_t *places = (int32_t *)(weights + longest + LANES);
    for (int64_t c = 0; c < longest; c++) places[c] = c * 3 * width;
    void *rest = aligned((float *)(places + longest));
    const int64_t head = width / num_heads;
    for (const Layer *layer = layers; layer < layers + num_layers; layer++) {
        normalize(&layer->self_norm, x, tokens, width, h);
        apply(&layer->self_in, h, tokens, 0, 0, 0, projected, rest);
        const float *sentence = projected;
        float *out = h;
        for (int64_t s = 0; s < num_sentences; s++) {
            for (int64_t t = 0; t < lengths[s]; t++, out += width)
                for (int64_t i = 0; i < num_heads; i++)
                    attend(sentence + t * 3 * width + i * head, sentence + width + i * head,
                           sentence + 2 * width + i * head, lengths[s], head, places, weights, out + i * head);
            sentence += lengths[s] * 3 * width;
        }
        apply(&layer->self_out, h, tokens, 0, x, 0, x, rest);
        normalize(&layer->feed_forward.norm, x, tokens, width, h);
        apply(&layer->feed_forward.inner, h, tokens, 1, 0, 0, hidden, rest);
        apply(&layer->feed_forward.outer, hidden, tokens, 0, x, 0, x, rest);
    }
    normalize(&stack->last, x, tokens, width, h);
    apply(&stack->project, h, tokens, 0, 0, 0, out_keys_values, rest);
}

/* One map of rows. */
void map_rows(const Map *map, const float *x, int64_t rows, float *out, float *scratch) {
    apply(map, x, rows, 0, 0, 0, out, aligned(scratch));
}

/* One step of R rows, which read token_ids, (R), and get logits, (R, V).
 *
 * Row r has lengths[r] steps behind it, or below 0, and then nothing is computed of it. It writes its new keys and values behind
 * them, and belongs to sentence r / beams, with source_lengths of columns. caches holds each layer's; holders, (rows,
 * self_columns), says in which row of its sentence a row finds each of its columns.
 */
void step(const Stack *stack, int64_t all_rows, int64_t beams, const int64_t *token_ids, const int64_t *lengths,
          const int64_t *source_lengths, const Caches *caches, int32_t *holders, float *logits, float *scratch) {
    const Layer *layers = stack->layers;
    const int64_t num_layers = stack->num_layers, num_heads = stack->num_heads, width = stack->width, inner = stack->inner;
    int64_t active[all_rows + 1], rows = 0;
    for (int64_t r = 0; r < all_rows; r++)
        if (lengths[r] >= 0) active[rows++] = r;
    float *x = aligned(scratch);
    scratch = x + rows * width;
    for (int64_t a = 0; a < rows; a++) embed(stack, token_ids[active[a]], lengths[active[a]], x + a * width);
    float *h = scratch, *projected = h + rows * width, *hidden = projected + 3 * rows * width;
    float *weights = aligned(hidden + rows * inner);
    int64_t longest = 0;
    for (int64_t r = 0; r < all_rows; r++) longest = most(longest, lengths[r] + 1);
    for (int64_t s = 0; s < all_rows / beams; s++) longest = most(longest, source_lengths[s]);
    int32_t *source_places = (int32_t *)(weights + longest + LANES), *places = source_places + longest;
    void *rest = aligned((float *)(places + rows * longest));
    const int64_t head = width / num_heads, self_columns = caches->self_columns;
    for (int64_t c = 0; c < longest; c++) source_places[c] = c * head;
    for (int64_t a = 0; a < rows; a++) {
        const int64_t r = active[a];
        int32_t *held = holders + r * self_columns;
        held[lengths[r]] = r % beams;
        for (int64_t c = 0; c <= lengths[r]; c++) places[a * longest + c] = (held[c] * num_heads * self_columns + c) * head;
    }
    for (int64_t l = 0; l < num_layers; l++) {
        const Layer *layer = layers + l;
        const Caches *cache = caches + l;
        normalize(&layer->self_norm, x, rows, width, h);
        apply(&layer->self_in, h, rows, 0, 0, 0, projected, rest);
        for (int64_t first = 0, end; first < rows; first = end) { /* a sentence, one head after the other */
            const int64_t sentence = active[first] / beams;
            for (end = first + 1; end < rows && active[end] / beams == sentence;) end++;
            for (int64_t i = 0; i < num_heads; i++) {
                float *keys = cache->self + (sentence * beams * num_heads + i) * self_columns * head;
                float *values = keys + cache->self_rows * num_heads * self_columns * head;
                for (int64_t a = first; a < end; a++) {
                    const float *mine = projected + a * 3 * width + i * head;
                    const int32_t *place = places + a * longest;
                    const int64_t length = lengths[active[a]];
                    memcpy(keys + place[length], mine + width, head * sizeof(float));
                    memcpy(values + place[length], mine + 2 * width, head * sizeof(float));
                    attend(mine, keys, values, length + 1, head, place, weights, h + a * width + i * head);
                }
            }
        }
        apply(&layer->self_out, h, rows, 0, x, 0, x, rest);
        normalize(&layer->cross_norm, x, rows, width, h);
        apply(&layer->cross_in, h, rows, 0, 0, 0, projected, rest);
        for (int64_t first = 0, end; first < rows; first = end) {
            const int64_t sentence = active[first] / beams;
            for (end = first + 1; end < rows && active[end] / beams == sentence;) end++;
            for (int64_t i = 0; i < num_heads; i++) {
                const float *keys = cache->cross + (sentence * num_heads + i) * cache->cross_columns * head;
                const float *values = keys + cache->cross_rows * num_heads * cache->cross_columns * head;
                for (int64_t a = first; a < end; a++)
                    attend(projected + a * width + i * head, keys, values, source_lengths[sentence], head, source_places, weights,
                           h + a * width + i * head);
            }
        }
        apply(&layer->cross_out, h, rows, 0, x, 0, x, rest);
        normalize(&layer->feed_forward.norm, x, rows, width, h);
        apply(&layer->feed_forward.inner, h, rows, 1, 0, 0, hidden, rest);
        apply(&layer->feed_forward.outer, hidden, rows, 0, x, 0, x, rest);
    }
    normalize(&stack->last, x, rows, width, h);
    apply(&stack->project, h, rows, 0, 0, active, logits, rest);
}

/* Copies rows of a cache, (L, 2, rows, H, C, W), into others, each as far as it is used. */
void copy_rows(float *cache, int64_t num_layers, int64_t rows, int64_t num_heads, int64_t columns, int64_t head,
               const int64_t *sources, const int64_t *targets, const int64_t *lengths, int64_t count) {
    const int64_t row = num_heads * columns * head;
    for (int64_t part = 0; part < num_layers * 2; part++, cache += rows * row)
        for (int64_t i = 0; i < count; i++)
            for (int64_t h = 0; h < num_heads; h++)
                memcpy(cache + targets[i] * row + h * columns * head, cache + sources[i] * row + h * columns * head,
                       lengths[i] * head * sizeof(float));
}

/* Writes sentences' keys and values, (P, L, 2, H, W), into new rows of a cache, (L, 2, rows, H, C, W): those of sentence i, which
   begin at position starts[i], into row first + i. */
void fill(float *cache, int64_t num_layers, int64_t rows, int64_t num_heads, int64_t columns, int64_t head, int64_t first,
          const int64_t *starts, const int64_t *lengths, int64_t count, const float *keys_values) {
    const int64_t row = num_heads * columns * head, position = num_layers * 2 * num_heads * head;
    for (int64_t i = 0; i < count; i++)
        for (int64_t column = 0; column < lengths[i]; column++) {
            const float *from = keys_values + (starts[i] + column) * position;
            float *to = cache + (first + i) * row + column * head;
            for (int64_t part = 0; part < num_layers * 2; part++, to += rows * row)
                for (int64_t h = 0; h < num_heads; h++, from += head)
                    memcpy(to + h * columns * head, from, head * sizeof(float));
        }
}

/* What makes logits of one row log-probabilities: log p = (logit - largest) - log_total. */
typedef struct {
    float largest, log_total;
} Normalizer;

ONE_COPY static Normalizer normalizer(const float *logits, int64_t vocabulary) {
    const float largest = largest_of(logits, vocabulary);
    float total = 0;
    for (int64_t v = 0; v < vocabulary; v++) total += exp_of(logits[v] - largest);
    return (Normalizer){largest, logf(total)};
}

void log_softmax(const float *logits, int64_t rows, int64_t vocabulary, float *out) {
    for (int64_t r = 0; r < rows; r++, logits += vocabulary, out += vocabulary) {
        const Normalizer n = normalizer(logits, vocabulary);
        for (int64_t v = 0; v < vocabulary; v++) out[v] = (logits[v] - n.largest) - n.log_total;
    }
}

/* Log-probabilities of one token a row. */
void log_probabilities(const float *logits, int64_t rows, int64_t vocabulary, const int64_t *tokens, float *out) {
    for (int64_t r = 0; r < rows; r++, logits += vocabulary) {
        const Normalizer n = normalizer(logits, vocabulary);
        out[r] = (logits[tokens[r]] - n.largest) - n.log_total;
    }
}

/* The token of each row's largest logit, the first of equals, and its log-probability. */
void best(const float *logits, int64_t rows, int64_t vocabulary, int64_t *tokens, float *out) {
    for (int64_t r = 0; r < rows; r++, logits += vocabulary) {
        const Normalizer n = normalizer(logits, vocabulary);
        int64_t token = 0;
        while (token < vocabulary - 1 && logits[token] != n.largest) token++;
        tokens[r] = token;
        out[r] = (logits[token] - n.largest) - n.log_total;
    }
}

#define BLOCK 64

/* The best continuations of each sentence's hypotheses, whose sums, (N, W), are -infinity where there is none: parents
 * and tokens, (2, N, count), and log-probabilities, (N, count), best first. */
void expand(const float *logits, int64_t sentences, int64_t beams, int64_t vocabulary, const float *sums, int64_t count,
            int64_t *parents, double *ranks) {
    int64_t *tokens = parents + sentences * count;
    float totals[count];
    for (int64_t s = 0; s < sentences; s++, parents += count, tokens += count, ranks += count) {
        for (int64_t c = 0; c < count; c++) {
            totals[c] = ranks[c] = -INFINITY;
            parents[c] = tokens[c] = 0;
        }
        for (int64_t w = 0; w < beams; w++, logits += vocabulary) {
            const float sum = *sums++;
            if (sum == -INFINITY) continue;
            const Normalizer n = normalizer(logits, vocabulary);
            for (int64_t start = 0; start < vocabulary; start += BLOCK) {
                const int64_t end = start + BLOCK < vocabulary ? start + BLOCK : vocabulary;
                const float largest = largest_of(logits + start, end - start);
                if (!((largest - n.largest) - n.log_total + sum > totals[count - 1])) continue;
                for (int64_t v = start; v < end; v++) {
                    const float rank = (logits[v] - n.largest) - n.log_total, total = rank + sum;
                    if (!(total > totals[count - 1])) continue;
                    int64_t c = count - 1;
                    for (; c > 0 && total > totals[c - 1]; c--) {
                        totals[c] = totals[c - 1];
                        parents[c] = parents[c - 1];
                        tokens[c] = tokens[c - 1];
                        ranks[c] = ranks[c - 1];
                    }
                    totals[c] = total;
                    parents[c] = w;
                    tokens[c] = v;
                    ranks[c] = rank;
                }
            }
        }
    }
}
