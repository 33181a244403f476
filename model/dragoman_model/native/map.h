/* Linear maps of rows, with what follows them: in 8-bit integers or in float32. */

#pragma once

#include "vectors.h"

/* A linear map. K is a multiple of 4, N of 16; the caller pads with zeros. */
typedef struct {
    const void *weight;  /* as int8_map.h or float_map.h lays it out */
    const float *scales; /* (N), of int8; none in float32 */
    const float *bias;   /* (N) */
    const int32_t *sums; /* (N), of each output's weights, times -ZERO: what its products start from; of int8 */
    int64_t inputs, outputs;
} Map;

#include "float_map.h"
#include "int8_map.h"

/* out = relu?(map(x)) + add?, for R rows; scratch holds R * K bytes and R floats, aligned. */
static void apply(const Map *map, const float *x, int64_t rows, int relu, const float *add, float *out, void *scratch) {
    if (map->scales)
        apply_int8(map, x, rows, relu, add, out, scratch);
    else
        apply_floats(map, x, rows, relu, add, out);
}
