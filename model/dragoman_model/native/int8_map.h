/* Linear maps in 8-bit integers.
 *
 * Weights are int8 with a scale for each output, activations are quantised row by row, sums of products are exact.
 */

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

int64_t levels(void) { return LEVELS; }

const char *int8_instructions(void) { return INSTRUCTIONS; }

/* Lays out (N, K) weights as (N / LANES, K / 4, LANES, 4). */
void pack(const int8_t *weight, int64_t outputs, int64_t inputs, int8_t *packed, int32_t *sums) {
    for (int64_t n = 0; n < outputs; n++) {
        int32_t sum = 0;
        for (int64_t k = 0; k < inputs; k++) {
            int8_t value = weight[n * inputs + k];
            sum += value;
            packed[((n / LANES) * (inputs / 4) + k / 4) * LANES * 4 + (n % LANES) * 4 + k % 4] = value;
        }
        sums[n] = -sum * ZERO;
    }
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
#define TILE(M, B)                                                                                         \
    static inline void tile_##M##_##B(const Map *map, const uint8_t *q, const float *steps, int64_t block, \
                                      int relu, const float *add, float *out) {                            \
        const int64_t inputs = map->inputs, outputs = map->outputs;                                        \
        const int8_t *weight = (const int8_t *)map->weight + block * inputs * LANES;                       \
        vint sum[M][B];                                                                                    \
        UNROLL for (int b = 0; b < B; b++) {                                                               \
            const vint start = load_bytes(map->sums + (block + b) * LANES);                                \
            UNROLL for (int m = 0; m < M; m++) sum[m][b] = start;                                          \
        }                                                                                                  \
        for (int64_t k = 0; k < inputs; k += 4) {                                                          \
            vint w[B];                                                                                     \
            UNROLL for (int b = 0; b < B; b++) w[b] = load_bytes(weight + b * inputs * LANES + k * LANES); \
            UNROLL for (int m = 0; m < M; m++) {                                                           \
                int32_t four;                                                                              \
                memcpy(&four, q + m * inputs + k, 4);                                                      \
                vint a = spread(four);                                                                     \
                UNROLL for (int b = 0; b < B; b++) dot(sum[m][b], a, w[b]);                                \
            }                                                                                              \
        }                                                                                                  \
        UNROLL for (int b = 0; b < B; b++) {                                                               \
            const int64_t n = (block + b) * LANES;                                                         \
            const vfloat scale = VI(loadu_ps)(map->scales + n), bias = VI(loadu_ps)(map->bias + n);        \
            UNROLL for (int m = 0; m < M; m++) {                                                           \
                vfloat y = VI(mul_ps)(VI(set1_ps)(steps[m]), scale);                                       \
                y = VI(fmadd_ps)(to_float(sum[m][b]), y, bias);                                            \
                if (relu) y = VI(max_ps)(y, VI(setzero_ps)());                                             \
                if (add) y = VI(add_ps)(y, VI(loadu_ps)(add + m * outputs + n));                           \
                VI(storeu_ps)(out + m * outputs + n, y);                                                   \
            }                                                                                              \
        }                                                                                                  \
    }
#if LANES == 16
#define MANY 6
#define WIDE 4
TILE(6, 4) TILE(5, 4) TILE(4, 4) TILE(3, 4) TILE(2, 4) TILE(1, 4)
TILE(6, 1) TILE(5, 1) TILE(4, 1) TILE(3, 1) TILE(2, 1) TILE(1, 1)
#define CHOOSE(B)                                                                \
    switch (count) {                                                             \
    case 6: tile_6_##B(map, rows, steps + r, block, relu, added, result); break; \
    case 5: tile_5_##B(map, rows, steps + r, block, relu, added, result); break; \
    case 4: tile_4_##B(map, rows, steps + r, block, relu, added, result); break; \
    case 3: tile_3_##B(map, rows, steps + r, block, relu, added, result); break; \
    case 2: tile_2_##B(map, rows, steps + r, block, relu, added, result); break; \
    default: tile_1_##B(map, rows, steps + r, block, relu, added, result);       \
    }
#else
#define MANY 4
#define WIDE 2
TILE(4, 2) TILE(3, 2) TILE(2, 2) TILE(1, 2)
TILE(4, 1) TILE(3, 1) TILE(2, 1) TILE(1, 1)
#define CHOOSE(B)                                                                \
    switch (count) {                                                             \
    case 4: tile_4_##B(map, rows, steps + r, block, relu, added, result); break; \
    case 3: tile_3_##B(map, rows, steps + r, block, relu, added, result); break; \
    case 2: tile_2_##B(map, rows, steps + r, block, relu, added, result); break; \
    default: tile_1_##B(map, rows, steps + r, block, relu, added, result);       \
    }
#endif

/* out = relu?(map(x)) + add?, as `apply`. */
static void apply_int8(const Map *map, const float *x, int64_t rows_count, int relu, const float *add, float *out,
                       void *scratch) {
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
            float *result = out + r * map->outputs;
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
