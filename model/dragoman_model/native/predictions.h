/* What the map to the vocabulary says of rows' next tokens.
 *
 * Logits are computed of some rows at a time and looked through while they are near: those of a whole batch are more than the
 * caches hold beside weights, keys and values, and then each look is one into main memory.
 */

#include "map.h"

#define BLOCK 64 /* logits that are passed over together where none of them is large enough */

/* What makes logits of one row log-probabilities: log p = (logit - largest) - log_total. */
typedef struct {
    float largest, log_total;
} Normalizer;

/* Returns a row's, and the largest logit of each of its blocks in maxima. */
ONE_COPY static Normalizer normalizer(const float *logits, int64_t vocabulary, float *maxima) {
    const int64_t blocks = (vocabulary + BLOCK - 1) / BLOCK;
    for (int64_t b = 0, start = 0; b < blocks; b++, start += BLOCK)
        maxima[b] = largest_of(logits + start, least(BLOCK, vocabulary - start));
    const float largest = largest_of(maxima, blocks);
    float total = 0;
    for (int64_t v = 0; v < vocabulary; v++) total += exp_of(logits[v] - largest);
    return (Normalizer){largest, logf(total)};
}

/* Logits of some rows, and room for what is found out about one. */
typedef struct {
    const Map *map;
    const float *states; /* of all rows, (R, K) */
    int64_t rows, at_once;
    float *maxima, *logits, *rest;
} Logits;

/* Rows at a time: float32's weights are several times as large as these logits, and read anew each time. */
static int64_t rows_at_once(const Map *map) { return map->scales ? 24 : 128; }

/* Floats that are needed for it. */
int64_t logits_floats(const Map *map) {
    return map->outputs / BLOCK + rows_at_once(map) * (map->outputs + map->inputs / 4 + 1) + 128;
}

static Logits logits_for(const Map *map, const float *states, int64_t rows, float *scratch) {
    float *maxima = aligned(scratch), *logits = aligned(maxima + map->outputs / BLOCK + 1);
    const int64_t at_once = rows_at_once(map);
    return (Logits){map, states, rows, at_once, maxima, logits, logits + at_once * map->outputs};
}

/* Those of a row; rows are asked for in their order. */
static const float *logits_of(const Logits *all, int64_t row) {
    const int64_t at = row % all->at_once;
    if (at == 0)
        apply(all->map, all->states + row * all->map->inputs, least(all->at_once, all->rows - row), 0, 0, all->logits,
              all->rest);
    return all->logits + at * all->map->outputs;
}

/* The token of each row's largest logit, the first of equals, and its log-probability. */
static void best(Logits logits, int64_t *tokens, float *log_probabilities) {
    const int64_t vocabulary = logits.map->outputs;
    for (int64_t r = 0; r < logits.rows; r++) {
        const float *mine = logits_of(&logits, r);
        const Normalizer n = normalizer(mine, vocabulary, logits.maxima);
        int64_t block = 0;
        while (block < (vocabulary - 1) / BLOCK && logits.maxima[block] != n.largest) block++;
        int64_t token = block * BLOCK;
        while (token < vocabulary - 1 && mine[token] != n.largest) token++;
        tokens[r] = token;
        log_probabilities[r] = (mine[token] - n.largest) - n.log_total;
    }
}

/* The best continuations of each sentence's hypotheses, best first: parents and tokens, (N, count) each, and log-probabilities.
 * Row active[a] is the a-th of the logits' and has come to sums[active[a]]; it belongs to sentence active[a] / beams. */
static void expand(Logits logits, const int64_t *active, int64_t sentences, int64_t beams, const float *sums, int64_t count,
                   int64_t *parents, int64_t *tokens, double *ranks) {
    const int64_t vocabulary = logits.map->outputs;
    float totals[count];
    for (int64_t s = 0, a = 0; s < sentences; s++, parents += count, tokens += count, ranks += count) {
        for (int64_t c = 0; c < count; c++) {
            totals[c] = ranks[c] = -INFINITY;
            parents[c] = tokens[c] = 0;
        }
        for (; a < logits.rows && active[a] / beams == s; a++) {
            const float *mine = logits_of(&logits, a), sum = sums[active[a]];
            const Normalizer n = normalizer(mine, vocabulary, logits.maxima);
            for (int64_t start = 0; start < vocabulary; start += BLOCK) {
                if (!((logits.maxima[start / BLOCK] - n.largest) - n.log_total + sum > totals[count - 1])) continue;
                const int64_t end = least(start + BLOCK, vocabulary);
                for (int64_t v = start; v < end; v++) {
                    const float rank = (mine[v] - n.largest) - n.log_total, total = rank + sum;
                    if (!(total > totals[count - 1])) continue;
                    int64_t c = count - 1;
                    for (; c > 0 && total > totals[c - 1]; c--) {
                        totals[c] = totals[c - 1];
                        parents[c] = parents[c - 1];
                        tokens[c] = tokens[c - 1];
                        ranks[c] = ranks[c - 1];
                    }
                    totals[c] = total;
                    parents[c] = active[a] % beams;
                    tokens[c] = v;
                    ranks[c] = rank;
                }
            }
        }
    }
}

void log_softmax(const float *logits, int64_t rows, int64_t vocabulary, float *out, float *maxima) {
    for (int64_t r = 0; r < rows; r++, logits += vocabulary, out += vocabulary) {
        const Normalizer n = normalizer(logits, vocabulary, maxima);
        for (int64_t v = 0; v < vocabulary; v++) out[v] = (logits[v] - n.largest) - n.log_total;
    }
}

/* Log-probabilities of one token a row. */
void log_probabilities(const float *logits, int64_t rows, int64_t vocabulary, const int64_t *tokens, float *out, float *maxima) {
    for (int64_t r = 0; r < rows; r++, logits += vocabulary) {
        const Normalizer n = normalizer(logits, vocabulary, maxima);
        out[r] = (logits[tokens[r]] - n.largest) - n.log_total;
    }
}
