/* The decoder's step and the encoder, each in one call.
 *
 * Maps are in 8-bit integers or in float32, all else is in float32 but keys and values that may be kept in half precision, and
 * attention runs over each row's own columns: what a row gets depends on nothing that stands beside it.
 *
 * Shapes: R rows, K inputs, N outputs of a map; D width, H heads, W head width, F feed-forward, V vocabulary; C columns
 * that a cache has room for.
 */

#include "vectors.h"
#include "map.h"
#include "attention.h"
#include "predictions.h"

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

/* Keys and values of one layer: (2, rows there is room for, H, C, W), in half precision or in float32. */
typedef struct {
    char *self, *cross;
    int64_t self_rows, self_columns, cross_rows, cross_columns, is_half;
} Caches;

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

/* Floats that a call needs beside what it is given. */
int64_t scratch_floats(int64_t rows, int64_t width, int64_t inner, int64_t columns) {
    return rows * (2 * width + most(3 * width, inner) + most(width, inner) / 4 + 2) + (rows + 3) * columns + 2 * LANES + 128;
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
    float *h = scratch, *projected = h + tokens * width, *hidden = projected; /* never both: the less memory, the nearer it is */
    float *weights = aligned(projected + tokens * most(3 * width, inner));
    int64_t longest = 0;
    for (int64_t s = 0; s < num_sentences; s++) longest = most(longest, lengths[s]);
    int32_t *places = (int32_t *)(weights + 2 * (longest + LANES));
    for (int64_t c = 0; c < longest; c++) places[c] = c * 3 * width;
    void *rest = aligned((float *)(places + longest));
    const int64_t head = width / num_heads;
    for (const Layer *layer = layers; layer < layers + num_layers; layer++) {
        normalize(&layer->self_norm, x, tokens, width, h);
        apply(&layer->self_in, h, tokens, 0, 0, projected, rest);
        const float *sentence = projected;
        float *out = h;
        for (int64_t s = 0; s < num_sentences; s++) {
            for (int64_t i = 0; i < num_heads; i++) {
                const float *queries = sentence + i * head, *keys = queries + width, *values = keys + width;
                attend((Attention){queries, keys, values, places, weights, out + i * head,
                                   3 * width, 0, width, lengths[s], lengths[s], head},
                       0, lengths[s], head);
            }
            sentence += lengths[s] * 3 * width;
            out += lengths[s] * width;
        }
        apply(&layer->self_out, h, tokens, 0, x, x, rest);
        normalize(&layer->feed_forward.norm, x, tokens, width, h);
        apply(&layer->feed_forward.inner, h, tokens, 1, 0, hidden, rest);
        apply(&layer->feed_forward.outer, hidden, tokens, 0, x, x, rest);
    }
    normalize(&stack->last, x, tokens, width, h);
    apply(&stack->project, h, tokens, 0, 0, out_keys_values, rest);
}

/* One map of rows. */
void map_rows(const Map *map, const float *x, int64_t rows, float *out, float *scratch) {
    apply(map, x, rows, 0, 0, out, aligned(scratch));
}

/* What is asked of the rows' next tokens, and where the answers go. */
typedef struct {
    const float *sums; /* what each row's hypothesis has come to, (R); none: each row's best token is wanted */
    int64_t count;     /* of each sentence's continuations */
    int64_t *parents, *tokens;
    double *ranks;            /* of continuations */
    float *log_probabilities; /* of best tokens */
} Wanted;

/* How many numbers two rows of them start with that are the same. */
static int64_t same_start(const int32_t *one, const int32_t *other, int64_t count) {
    int64_t same = 0;
    while (same < count && one[same] == other[same]) same++;
    return same;
}

/* One step of R rows, which read token_ids, (R), and get the states, (R, D), that the map to the vocabulary reads, or zeros: with what
 * memory held before, which may be no number, -infinity for the row would no longer keep it out.
 *
 * Row r has lengths[r] steps behind it, as many as the others of its sentence, r / beams, writes its new keys and values behind them,
 * and attends to source_lengths of columns; of one whose hypothesis has come to -infinity nothing is computed. caches holds each
 * layer's; holders, (rows, self_columns), says in which row of its sentence a row finds each of its columns.
 */
void step(const Stack *stack, int64_t all_rows, int64_t beams, const int64_t *token_ids, const int64_t *lengths,
          const int64_t *source_lengths, const Caches *caches, int32_t *holders, float *states, const Wanted *wanted,
          float *scratch) {
    const Layer *layers = stack->layers;
    const int64_t num_layers = stack->num_layers, num_heads = stack->num_heads, width = stack->width, inner = stack->inner;
    int64_t active[all_rows + 1], rows = 0;
    for (int64_t r = 0; r < all_rows; r++)
        if (!wanted->sums || wanted->sums[r] != -INFINITY)
            active[rows++] = r;
        else
            memset(states + r * width, 0, width * sizeof(float));
    float *x = aligned(scratch);
    scratch = x + rows * width;
    for (int64_t a = 0; a < rows; a++) embed(stack, token_ids[active[a]], lengths[active[a]], x + a * width);
    float *h = scratch, *projected = h + rows * width, *hidden = projected; /* never both: the less memory, the nearer it is */
    float *weights = aligned(projected + rows * most(3 * width, inner));
    int64_t longest = 0;
    for (int64_t r = 0; r < all_rows; r++) longest = most(longest, lengths[r] + 1);
    for (int64_t s = 0; s < all_rows / beams; s++) longest = most(longest, source_lengths[s]);
    int32_t *source_places = (int32_t *)(weights + 2 * (longest + LANES)), *places = source_places + longest;
    void *rest = aligned((float *)(places + rows * longest));
    const int64_t head = width / num_heads, self_columns = caches->self_columns, next_head = self_columns * head;
    const int64_t size = caches->is_half ? sizeof(half) : sizeof(float);
    for (int64_t c = 0; c < longest; c++) source_places[c] = c * head;
    for (int64_t a = 0; a < rows; a++) {
        const int64_t r = active[a];
        int32_t *held = holders + r * self_columns;
        held[lengths[r]] = r % beams;
        for (int64_t c = 0; c <= lengths[r]; c++) places[a * longest + c] = (held[c] * num_heads * self_columns + c) * head;
    }
    int64_t ends[rows + 1], shared[rows + 1]; /* of a sentence, at its first row: where its rows end, and the columns they have in common */
    for (int64_t first = 0; first < rows; first = ends[first]) {
        int64_t end = first + 1, common = lengths[active[first]];
        for (; end < rows && active[end] / beams == active[first] / beams; end++)
            common = same_start(places + first * longest, places + end * longest, common);
        ends[first] = end;
        shared[first] = common;
    }
    for (int64_t l = 0; l < num_layers; l++) {
        const Layer *layer = layers + l;
        const Caches *cache = caches + l;
        normalize(&layer->self_norm, x, rows, width, h);
        apply(&layer->self_in, h, rows, 0, 0, projected, rest);
        for (int64_t first = 0; first < rows; first = ends[first]) { /* a sentence, one head after the other */
            const int64_t sentence = active[first] / beams, length = lengths[active[first]];
            for (int64_t i = 0; i < num_heads; i++) {
                char *keys = cache->self + (sentence * beams * num_heads + i) * self_columns * head * size;
                char *values = keys + cache->self_rows * num_heads * self_columns * head * size;
                const float *queries = projected + first * 3 * width + i * head;
                for (int64_t a = first; a < ends[first]; a++) {
                    const float *mine = projected + a * 3 * width + i * head;
                    char *key = keys + places[a * longest + length] * size, *value = values + places[a * longest + length] * size;
                    keep(mine + width, head, cache->is_half, key);
                    keep(mine + 2 * width, head, cache->is_half, value);
                    fetch(key + next_head * size, head * size);
                    fetch(value + next_head * size, head * size);
                }
                attend((Attention){queries, keys, values, places + first * longest, weights, h + first * width + i * head,
                                   3 * width, longest, width, length + 1, shared[first], next_head},
                       cache->is_half, ends[first] - first, head);
            }
        }
        apply(&layer->self_out, h, rows, 0, x, x, rest);
        normalize(&layer->cross_norm, x, rows, width, h);
        apply(&layer->cross_in, h, rows, 0, 0, projected, rest);
        for (int64_t first = 0; first < rows; first = ends[first]) {
            const int64_t sentence = active[first] / beams, length = source_lengths[sentence];
            for (int64_t i = 0; i < num_heads; i++) {
                const char *keys = cache->cross + (sentence * num_heads + i) * cache->cross_columns * head * size;
                const char *values = keys + cache->cross_rows * num_heads * cache->cross_columns * head * size;
                attend((Attention){projected + first * width + i * head, keys, values, source_places, weights,
                                   h + first * width + i * head, width, 0, width, length, length, cache->cross_columns * head},
                       cache->is_half, ends[first] - first, head);
            }
        }
        apply(&layer->cross_out, h, rows, 0, x, x, rest);
        normalize(&layer->feed_forward.norm, x, rows, width, h);
        apply(&layer->feed_forward.inner, h, rows, 1, 0, hidden, rest);
        apply(&layer->feed_forward.outer, hidden, rows, 0, x, x, rest);
    }
    normalize(&stack->last, x, rows, width, h);
    for (int64_t a = 0; a < rows; a++) memcpy(states + active[a] * width, h + a * width, width * sizeof(float));
    const Logits logits = logits_for(&stack->project, h, rows, rest);
    if (wanted->sums)
        expand(logits, active, all_rows / beams, beams, wanted->sums, wanted->count, wanted->parents, wanted->tokens,
               wanted->ranks);
    else
        best(logits, wanted->tokens, wanted->log_probabilities);
}

/* Copies rows of a cache, (L, 2, rows, H, C, W), into others of it or of another, each as far as it is used; a column of a head has
 * so many bytes. */
void copy_rows(const char *from, int64_t from_rows, int64_t from_columns, char *to, int64_t to_rows, int64_t to_columns,
               int64_t num_layers, int64_t num_heads, int64_t bytes, const int64_t *sources, const int64_t *targets,
               const int64_t *lengths, int64_t count) {
    from_columns *= bytes;
    to_columns *= bytes;
    for (int64_t part = 0; part < num_layers * 2; part++)
        for (int64_t i = 0; i < count; i++)
            for (int64_t h = 0; h < num_heads; h++)
                memcpy(to + ((part * to_rows + targets[i]) * num_heads + h) * to_columns,
                       from + ((part * from_rows + sources[i]) * num_heads + h) * from_columns, lengths[i] * bytes);
}

/* Has rows go on from what others hold, which are none of them, in so many columns at most: see step. */
void branch(int32_t *holders, int64_t columns, const int64_t *sources, const int64_t *targets, int64_t used, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        memcpy(holders + targets[i] * columns, holders + sources[i] * columns, used * sizeof(int32_t));
}

/* Writes sentences' keys and values, (P, L, 2, H, W), into new rows of a cache, (L, 2, rows, H, C, W): those of sentence i, which
   begin at position starts[i], into row first + i. */
void fill(char *cache, int64_t num_layers, int64_t rows, int64_t num_heads, int64_t columns, int64_t head, int64_t is_half,
          int64_t first, const int64_t *starts, const int64_t *lengths, int64_t count, const float *keys_values) {
    const int64_t position = num_layers * 2 * num_heads * head, size = is_half ? sizeof(half) : sizeof(float);
    for (int64_t i = 0; i < count; i++)
        for (int64_t column = 0; column < lengths[i]; column++) {
            const float *from = keys_values + (starts[i] + column) * position;
            for (int64_t part = 0; part < num_layers * 2; part++)
                for (int64_t h = 0; h < num_heads; h++, from += head)
                    keep(from, head, is_half, cache + (((part * rows + first + i) * num_heads + h) * columns + column) * head * size);
        }
}
