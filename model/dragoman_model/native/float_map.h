/* Linear maps in float32.
 *
 * Each output is its bias and one product after the other, in the order of the inputs and each added without rounding in between
 * (FMA), whatever rows come along: what a row gets depends on nothing that stands beside it.
 */

/* Outputs lie in panels of so many vectors, (K, PANEL) each, that a step reads from the first number to the last; those that fill no
 * panel in narrow ones of one vector. */
#if LANES == 16
#define VECTORS 4 /* six rows by four vectors: as many sums as there are registers for */
#else
#define VECTORS 2
#endif
#define PANEL (VECTORS * LANES)
#define AHEAD 32 /* inputs whose weights are asked for ahead in narrow vectors, which use up each line too soon by themselves */

const char *float_instructions(void) { return LANES == 16 ? "AVX-512" : "AVX2"; }

/* Lays out (N, K) weights so. */
void pack_floats(const float *weight, int64_t outputs, int64_t inputs, float *packed) {
    const int64_t whole = outputs / PANEL * PANEL;
    for (int64_t n = 0; n < outputs; n++) {
        const int64_t wide = n < whole ? PANEL : LANES;
        float *panel = packed + n / wide * wide * inputs + n % wide;
        for (int64_t k = 0; k < inputs; k++) panel[k * wide] = weight[n * inputs + k];
    }
}

/* M rows by B vectors of outputs from n on, which lie in panels of P vectors. */
#define FLOAT_TILE(name, M, B, P)                                                                                            \
    static inline void name##_##M(const Map *map, const float *x, const float *panel, int64_t n, int relu, const float *add, \
                                  float *out) {                                                                              \
        const int64_t inputs = map->inputs, outputs = map->outputs;                                                          \
        vfloat sum[M][B];                                                                                                    \
        UNROLL for (int m = 0; m < M; m++)                                                                                   \
            UNROLL for (int b = 0; b < B; b++) sum[m][b] = VI(loadu_ps)(map->bias + n + b * LANES);                          \
        for (int64_t k = 0; k < inputs; k++, panel += P * LANES) {                                                           \
            if (LANES == 8 && M > 2) _mm_prefetch((const char *)(panel + AHEAD * P * LANES), _MM_HINT_T0);                   \
            vfloat w[B];                                                                                                     \
            UNROLL for (int b = 0; b < B; b++)                                                                               \
                w[b] = VI(loadu_ps)(panel + (b / P * P * inputs + b % P) * LANES);                                           \
            UNROLL for (int m = 0; m < M; m++) {                                                                             \
                const vfloat a = VI(set1_ps)(x[m * inputs + k]);                                                             \
                UNROLL for (int b = 0; b < B; b++) sum[m][b] = VI(fmadd_ps)(a, w[b], sum[m][b]);                             \
            }                                                                                                                \
        }                                                                                                                    \
        UNROLL for (int m = 0; m < M; m++) {                                                                                 \
            float *result = out + m * outputs + n;                                                                           \
            UNROLL for (int b = 0; b < B; b++) {                                                                             \
                vfloat y = sum[m][b];                                                                                        \
                if (relu) y = VI(max_ps)(y, VI(setzero_ps)());                                                               \
                if (add) y = VI(add_ps)(y, VI(loadu_ps)(add + m * outputs + n + b * LANES));                                 \
                VI(storeu_ps)(result + b * LANES, y);                                                                        \
            }                                                                                                                \
        }                                                                                                                    \
    }

/* All rows by one panel, whose weights stay near meanwhile. */
#define FLOAT_PANEL(name, B)                                                                                                  \
    FLOAT_TILE(name, 6, B, B) FLOAT_TILE(name, 5, B, B) FLOAT_TILE(name, 4, B, B)                                             \
    FLOAT_TILE(name, 3, B, B) FLOAT_TILE(name, 2, B, B) FLOAT_TILE(name, 1, B, B)                                             \
    static void name(const Map *map, const float *x, int64_t rows, const float *panel, int64_t n, int relu, const float *add, \
                     float *out) {                                                                                            \
        for (int64_t r = 0, count, tiles = (rows + 5) / 6; r < rows; r += count, tiles--) {                                   \
            count = (rows - r + tiles - 1) / tiles; /* as even as can be: tiles of one or two rows wait for their sums */     \
            const float *some = x + r * map->inputs, *added = add ? add + r * map->outputs : 0;                               \
            float *result = out + r * map->outputs;                                                                           \
            switch (count) {                                                                                                  \
            case 1: name##_1(map, some, panel, n, relu, added, result); break;                                                \
            case 2: name##_2(map, some, panel, n, relu, added, result); break;                                                \
            case 3: name##_3(map, some, panel, n, relu, added, result); break;                                                \
            case 4: name##_4(map, some, panel, n, relu, added, result); break;                                                \
            case 5: name##_5(map, some, panel, n, relu, added, result); break;                                                \
            default: name##_6(map, some, panel, n, relu, added, result);                                                      \
            }                                                                                                                 \
        }                                                                                                                     \
    }
FLOAT_PANEL(floats_wide, VECTORS)
FLOAT_PANEL(floats_narrow, 1)
FLOAT_TILE(floats_pair, 1, 4, 2)

/* out = relu?(map(x)) + add?, as `apply`. */
static void apply_floats(const Map *map, const float *x, int64_t rows, int relu, const float *add, float *out) {
    const int64_t inputs = map->inputs, outputs = map->outputs;
    const float *weight = map->weight;
    int64_t n = 0;
    if (VECTORS == 2 && rows == 1) /* two panels at once, so that an addition need not wait for the one before */
        for (; n + 2 * PANEL <= outputs; n += 2 * PANEL)
            floats_pair_1(map, x, weight + n * inputs, n, relu, add, out);
    for (; n + PANEL <= outputs; n += PANEL)
        floats_wide(map, x, rows, weight + n * inputs, n, relu, add, out);
    for (; n < outputs; n += LANES)
        floats_narrow(map, x, rows, weight + n * inputs, n, relu, add, out);
}
