// SPDX-License-Identifier: Apache-2.0
//
// What the predictions of the families attention, attention_grad and wg_attention have in common: keys of a band, and terms of tiles.
#include "gen/attention.h"
#include "gen/nest.h"

#include <math.h>

struct attention_reach attention_keys_of_rows(const struct attention *x, sym queries, double n, double from, double to, const i64 *var)
{
    const struct graph *g = x->scores.g;
    const struct op_band *b = &x->band;
    const bool has_band = x->has_band || x->has_reach;
    double each = (double)i64_max(1, gen_eval(g, queries, var)), offset = has_band ? (double)gen_eval(g, b->offset, var) : n - each;
    double left = has_band ? (double)b->left : -1, right = has_band ? (double)b->right : 0;
    bool same = floor(from / each) == floor((to - 1) / each);
    double first = same ? fmod(from, each) : 0, last = same ? fmod(to - 1, each) : each - 1;
    double begin = left >= 0 ? fmin(fmax(first + offset - left, 0), n - 1) : 0;
    double end = right >= 0 ? fmin(fmax(last + offset + right + 1, begin + 1), n) : n;
    return (struct attention_reach){begin, end};
}

double attention_step(const struct nest_rates *r, i64 rows, i64 rest, i64 mr, i64 vectors, i64 nr)
{
    i64 rest_n = vectors % nr;
    double t = (double)(rows / mr) * (double)(vectors / nr) * nest_step(r, mr, nr);
    if (rest_n) t += (double)(rows / mr) * nest_step(r, mr, rest_n);
    if (rest) t += (double)(vectors / nr) * nest_step(r, rest, nr);
    return rest && rest_n ? t + nest_step(r, rest, rest_n) : t;
}
