/* Linear maps in float32.
 *
 * Each output is its bias and one product after the other, in the order of the inputs and each added without rounding in between
 * (FMA), whatever rows come along: what a row gets depends on nothing that stands beside it.
 */

/* Outputs lie in panels, (K, PANEL) each, that a step reads from its first to its last number; those that fill no panel in
 * narrow ones of LANES outputs. As many are computed at once as there are registers for. */
#if LANES == 16
#define PANEL (4 * LANES)
#else
#define PANEL (2 * LANES)
#endif

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

/* M rows by B vectors of outputs from n on, of a panel that is so wide. */
#define FLOAT_TILE(M, B)                                                                                                \
    static inline void floats_##M##_##B(const Map *map, const float *x, const float *panel, int64_t wide, int64_t n,    \
                                        int relu, const float *add, const int64_t *places, float *out) {                \
        const int64_t inputs = map->inputs, outputs = map->outputs;                                                     \
        vfloat sum[M][B];                                                                                               \
        UNROLL for (int m = 0; m < M; m++)                                                                              \
            UNROLL for (int b = 0; b < B; b++) sum[m][b] = VI(loadu_ps)(map->bias + n + b * LANES);                     \
        for (int64_t k = 0; k < inputs; k++, panel += wide) {                                                           \
            vfloat w[B];                                                                                                \
            UNROLL for (int b = 0; b < B; b++)                                                               \
                w[b] = VI(loadu_ps)(panel + b * LANES / wide * wide * inputs + b * LANES % wide);                       \
            UNROLL for (int m = 0; m < M; m++) {                                                                        \
                const vfloat a = VI(set1_ps)(x[m * inputs + k]);                                                        \
                UNROLL for (int b = 0; b < B; b++) sum[m][b] = VI(fmadd_ps)(a, w[b], sum[m][b]);                        \
            }                                                                                                           \
        }                                                                                                               \
        UNROLL for (int m = 0; m < M; m++) {                                                                            \
            float *result = out + (places ? places[m] : m) * outputs + n;                                               \
            UNROLL for (int b = 0; b < B; b++) {                                                                        \
                vfloat y = sum[m][b];                                                                                   \
                if (relu) y = VI(max_ps)(y, VI(setzero_ps)());                                                          \
                if (add) y = VI(add_ps)(y, VI(loadu_ps)(add + m * outputs + n + b * LANES));                            \
                VI(storeu_ps)(result + b * LANES, y);                                                                   \
            }                                                                                                           \
        }                                                                                                               \
    }
#define FLOAT_TILES(B) \
    FLOAT_TILE(6, B) FLOAT_TILE(5, B) FLOAT_TILE(4, B) FLOAT_TILE(3, B) FLOAT_TILE(2, B) FLOAT_TILE(1, B)
FLOAT_TILES(1)
#if LANES == 16 /* as many sums as there are registers for */
FLOAT_TILES(4)
#else
FLOAT_TILES(2)
FLOAT_TILE(1, 4)
#endif
#define FLOAT_ROWS 6

/* All rows by one panel, or the half of one, whose weights stay near meanwhile. */
#define FLOAT_PANEL(B)                                                                                                  \
    static void floats_by_##B(const Map *map, const float *x, int64_t rows, const float *panel, int64_t wide,           \
                              int64_t n, int relu, const float *add, const int64_t *places, float *out) {               \
        for (int64_t r = 0; r < rows; r += FLOAT_ROWS) {                                                                \
            const float *some = x + r * map->inputs, *added = add ? add + r * map->outputs : 0;                         \
            const int64_t *to = places ? places + r : 0;                                                                \
            float *result = places ? out : out + r * map->outputs;                                                      \
            switch (rows - r) {                                                                                         \
            case 1: floats_1_##B(map, some, panel, wide, n, relu, added, to, result); break;                            \
            case 2: floats_2_##B(map, some, panel, wide, n, relu, added, to, result); break;                            \
            case 3: floats_3_##B(map, some, panel, wide, n, relu, added, to, result); break;                            \
            case 4: floats_4_##B(map, some, panel, wide, n, relu, added, to, result); break;                            \
            case 5: floats_5_##B(map, some, panel, wide, n, relu, added, to, result); break;                            \
            default: floats_6_##B(map, some, panel, wide, n, relu, added, to, result);                                  \
            }                                                                                                           \
        }                                                                                                               \
    }
FLOAT_PANEL(1)
#if LANES == 16
FLOAT_PANEL(4)
#else
FLOAT_PANEL(2)
#endif

/* out = relu?(map(x)) + add?, as `apply`. */
static void apply_floats(const Map *map, const float *x, int64_t rows, int relu, const float *add, const int64_t *places,
                         float *out) {
    const int64_t outputs = map->outputs;
    int64_t n = 0;
#if LANES == 8
    if (rows == 1) /* two panels at once, so that an addition need not wait for the one before */
        for (; n + 2 * PANEL <= outputs; n += 2 * PANEL)
            floats_1_4(map, x, (const float *)map->weight + n * map->inputs, PANEL, n, relu, add, places, out);
#endif
    for (; n + PANEL <= outputs; n += PANEL) {
        const float *panel = (const float *)map->weight + n * map->inputs;
#if LANES == 16
        floats_by_4(map, x, rows, panel, PANEL, n, relu, add, places, out);
#else
        floats_by_2(map, x, rows, panel, PANEL, n, relu, add, places, out);
#endif
    }
    for (; n < outputs; n += LANES)
        floats_by_1(map, x, rows, (const float *)map->weight + n * map->inputs, LANES, n, relu, add, places, out);
}
