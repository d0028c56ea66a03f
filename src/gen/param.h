// SPDX-License-Identifier: Apache-2.0
//
// gen_param: the parameters of a family, each written once, as a row of a list: name, meaning with unit, values worth trying (ascending).
//
//     #define PARAMS(P) P(mr, "rows of the register tile", 1, 2, 4, 6) P(nt, "results: 1 stored past the caches", 0, 1)
//     GEN_PARAMS(PARAMS)
//
// makes of it
//     enum { P_mr, P_nt, N_PARAM };             parameters' numbers: their places in a schedule
//     struct params { i64 mr, nt; };            a schedule's values by name
//     static const struct gen_param param[];    the table that struct gen refers to
//
// GEN_PARAM_READER(struct params, params_of, PARAMS) defines a function that reads a schedule; any struct will do that has fields of the
// parameters' names, so that families may share one and have fields besides. A list that families share is a macro in their header, and is
// extended by naming it: #define PARAMS(P) FILTER_PARAMS(P) P(split, ...).
#ifndef QUERN_GEN_PARAM_H
#define QUERN_GEN_PARAM_H

#include "core/core.h"

enum { MAX_SCHED = 32 };

struct sched { i32 v[MAX_SCHED]; }; /* one integer per parameter, in the order of gen.param; the rest 0 */

struct gen_param {
    const char *name;    /* "mr" */
    const char *what;    /* one line: meaning and unit */
    const i32 *values;   /* candidates, ascending */
    u32 n;
};
static inline bool gen_param_has(const struct gen_param *p, i64 value)
{
    for (u32 i = 0; i < p->n; i++)
        if (p->values[i] == value) return true;
    return false;
}

/* What a list makes of a row. */
#define GEN_PARAM_NUMBER(name, what, ...) P_##name,
#define GEN_PARAM_FIELD(name, what, ...) i64 name;
#define GEN_PARAM_ROW(name, what, ...) [P_##name] = {#name, what, (const i32[]){__VA_ARGS__}, countof(((const i32[]){__VA_ARGS__}))},
#define GEN_PARAM_READ(name, what, ...) .name = s->v[P_##name],

#define GEN_PARAMS(list)               \
    enum { list(GEN_PARAM_NUMBER) N_PARAM }; \
    struct params { list(GEN_PARAM_FIELD) }; \
    static const struct gen_param param[N_PARAM] = {list(GEN_PARAM_ROW)};

/* What every descriptor of a family begins with. */
#define GEN_FAMILY(name_, revision_) .version = 1, .name = name_, .revision = revision_, .param = param, .n_param = N_PARAM

#define GEN_PARAM_READER(type, name, list) \
    static type name(const struct sched *s) { return (type){list(GEN_PARAM_READ)}; }

#endif
