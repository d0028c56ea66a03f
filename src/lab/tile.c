// SPDX-License-Identifier: Apache-2.0
//
// The attention of a configuration as a task, and the configuration as a candidate of wg_attention, or on processors of attention. Parameters of the former have
// the names of fields, in small letters; tiles of the output follow from those of the scores, as lab_config_check demands of names. Kernels without an output have
// no use for its fields, so that several names have one schedule; of sums of columns, names have the scores transposed. Of the latter, register
// tiles are those of a thread, and blocks of queries and keys those of a workgroup, as far as the family has them.
#include "lab/lab.h"

#include "pass/pass.h"

#include <string.h>

static const char family[] = "wg_attention", cpu_family[] = "attention";

static bool has_output(const struct lab_config *c) { return lab_attention_of(c->kind, c->part).has_o; }

/* Sums of columns alone: rows of the name's tiles are keys, columns queries. */
static bool has_keys_as_rows(const struct lab_config *c) { return lab_attention_of(c->kind, c->part).has_sums && !has_output(c); }

static bool check_kernel(const struct lab_config *c, struct err *e)
{
    if (!has_output(c)) return true;
    if (!c->v[LA_SHP] && !c->v[LA_SKP]) return true;
    const char *tag = c->v[LA_SHP] ? "SHP" : "SKP";
    return err_set(e, ERR_UNSUPPORTED, "'%s1': generator '%s' passes probabilities through shared memory, expected %s0", tag, family, tag);
}

/* The task: of those that a cover of the graph has, that of all results, of both products if there is an output, with most of what is around them. */
bool lab_attention_task(struct task *t, struct arena *a, struct symtab *st, const struct lab_config *c, enum dtype type, struct err *e)
{
    struct graph *g = arena_new(a, struct graph);
    struct cover cover;
    const struct task *best = NULL;
    const u32 n_products = lab_attention_of(c->kind, c->part).has_o ? 2 : 1;
    graph_init(g, a, st);
    lab_attention_graph(g, c, type);
    const u32 n_results = g->output.n;
    if (!op_infer_all(g, e) || !pass_run_all(g, NULL, e) || !cover_build(&cover, g, a, NULL, e)) return false;
    for (u32 i = 0; i < cover.task.n; i++) {
        const struct task *x = cover.task.v[i];
        if (x->n_heavy == n_products && x->g.output.n == n_results && (!best || x->g.node.n > best->g.node.n)) best = x;
    }
    if (!best) return err_set(e, ERR_UNSUPPORTED, "this attention is no single kernel");
    *t = *best;
    return true;
}

/* The candidate. */

/* The field of a parameter; N_LAB_ATTENTION_FIELDS: none. */
static u32 field_of(const struct gen_param *p)
{
    static const struct { const char *param; u32 field; } others[] = {{"sp", LA_SPP}};
    for (u32 i = 0; i < countof(others); i++)
        if (!strcmp(p->name, others[i].param)) return others[i].field;
    for (u32 f = 0; f < N_LAB_ATTENTION_FIELDS; f++) {
        const char *tag = lab_field(LAB_ATTENTION, f)->tag, *name = p->name;
        while (*tag && (*tag | 32) == *name) tag++, name++; /* letters */
        if (!*tag && !*name) return f;
    }
    return N_LAB_ATTENTION_FIELDS;
}

/* Of the scores' tiles along queries, those along keys, and the other way round. */
static u32 transposed(u32 f)
{
    static const u8 pair[][2] = {{LA_PTR, LA_PTC}, {LA_BLPY, LA_BLPX}, {LA_WLPY, LA_WLPX}, {LA_BSWQ, LA_BSWK}, {LA_WSWQ, LA_WSWK}, {LA_GLWQ, LA_GLWK}};
    for (u32 i = 0; i < countof(pair); i++)
        for (u32 j = 0; j < 2; j++)
            if (f == pair[i][j]) return pair[i][1 - j];
    return f;
}

/* Fields of the output, which mean nothing where there is none. */
static bool is_of_output(u32 f)
{
    static const u8 own[] = {LA_SB, LA_OTR, LA_OTC, LA_GLWV, LA_BLOY, LA_BLOX, LA_WLOY, LA_WLOX, LA_BSWP, LA_BSWV, LA_WSWP, LA_WSWV, LA_LCO, LA_RPO};
    for (u32 i = 0; i < countof(own); i++)
        if (f == own[i]) return true;
    return false;
}

/* What the parameter is where there is no output. */
static i32 neutral(const struct gen_param *p) { return strcmp(p->name, "lco") ? p->values[0] : 1; }

/* Values of parameters that names lack. Shared arrays have the operands' type and no padding; a row is reduced by shuffles, or, where the device has none for
   so many threads, through shared memory. */
static i32 unsaid(const struct gen_param *p, const struct lab_config *c, enum dtype type, bool shuffles)
{
    if (!strcmp(p->name, "half")) return dtype_size(type) == 2;
    if (!strcmp(p->name, "sub")) return shuffles && c->v[LA_WLPX] > 1;
    return 0;
}

static bool has_value(const struct gen_param *p, i32 v)
{
    for (u32 i = 0; i < p->n; i++)
        if (p->values[i] == v) return true;
    return false;
}

static bool say_values(const struct gen_param *p, const char *tag, i32 v, struct err *e)
{
    struct buf b = {0};
    for (u32 i = 0; i < p->n; i++) buf_printf(&b, "%s%d", i ? ", " : "", p->values[i]);
    err_set(e, ERR_UNSUPPORTED, "'%s%d': generator '%s' has %.*s for it", tag, v, family, STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

bool lab_attention_candidate(struct candidate *x, const struct lab_config *c, enum dtype type, bool shuffles, struct err *e)
{
    *x = (struct candidate){.gen = gen_find(S(family))};
    if (!x->gen) return err_set(e, ERR_UNSUPPORTED, "no generator '%s'", family);
    if (!lab_config_check(c, e) || !check_kernel(c, e)) return false;
    for (u32 i = 0; i < x->gen->n_param; i++) {
        const struct gen_param *p = &x->gen->param[i];
        u32 f = has_keys_as_rows(c) ? transposed(field_of(p)) : field_of(p);
        if (!has_output(c) && is_of_output(f)) {
            x->sched.v[i] = neutral(p);
            continue;
        }
        x->sched.v[i] = f < N_LAB_ATTENTION_FIELDS ? c->v[f] : unsaid(p, c, type, shuffles);
        if (!has_value(p, x->sched.v[i])) return say_values(p, f < N_LAB_ATTENTION_FIELDS ? lab_field(c->kind, f)->tag : p->name, x->sched.v[i], e);
    }
    return true;
}

/* On processors. A vector is what a subgroup's lanes are. */

enum { MOST_VECTORS = 4 }; /* of columns of scores */

static void set(struct candidate *x, const char *name, i64 want, bool at_least_one)
{
    for (u32 i = 0; i < x->gen->n_param; i++) {
        const struct gen_param *p = &x->gen->param[i];
        if (strcmp(p->name, name)) continue;
        x->sched.v[i] = gen_nearest(p, want);
        if (at_least_one && !x->sched.v[i]) x->sched.v[i] = p->values[1];
    }
}

/* Rows and columns of scores: of a block; of a thread, and of a subgroup along columns. Of sums of columns names have them the other way round. */
struct sides { i64 rows, columns, tile_rows, vector; };

static struct sides sides_of(const struct lab_config *c)
{
    const i32 *v = c->v;
    if (has_keys_as_rows(c)) return (struct sides){v[LA_BC], v[LA_BR], v[LA_PTC], (i64)v[LA_PTR] * v[LA_WLPY]};
    return (struct sides){v[LA_BR], v[LA_BC], v[LA_PTR], (i64)v[LA_PTC] * v[LA_WLPX]};
}

/* Vectors of so many elements in a register tile of mr rows, as far as there are registers. */
static i64 vectors_of(i64 elements, i64 mr, const struct caps *caps)
{
    enum { LEAST_REGISTERS = 16 };
    const i64 most = (i64_max(caps->n_vector_regs, LEAST_REGISTERS) - 1) / (mr + 1);
    return i64_max(1, i64_min(elements / gen_lanes(caps, DT_F32), most));
}

bool lab_attention_schedule(struct candidate *x, const struct lab_config *c, const struct task *t, const struct caps *caps, struct err *e)
{
    const struct sides s = sides_of(c);
    const i64 mr = i64_min(s.tile_rows, s.rows), nr = i64_min(vectors_of(s.vector, mr, caps), MOST_VECTORS);
    const bool has_o = has_output(c);
    *x = (struct candidate){.gen = gen_find(str_of(cpu_family))};
    if (!x->gen) return err_set(e, ERR_UNSUPPORTED, "no generator '%s'", cpu_family);
    if (!lab_config_check(c, e)) return false;
    set(x, "mr", mr, true), set(x, "nr", nr, true), set(x, "ku", c->v[LA_UN], true);
    set(x, "nv", has_o ? vectors_of((i64)c->v[LA_OTC] * c->v[LA_WLOX], mr, caps) : 1, true);
    set(x, "nb", s.columns / (nr * gen_lanes(caps, DT_F32)), s.columns < c->s);
    i64 mb = s.rows / mr;
    for (set(x, "mb", mb, true); mb > 1 && !gen_legal(x, t, caps); set(x, "mb", mb, true)) mb /= 2;
    if (gen_legal(x, t, caps)) return true;
    set(x, "nb", 0, false); /* keys are no more than a block */
    if (gen_legal(x, t, caps)) return true;
    struct buf b = {0};
    candidate_print(&b, x);
    err_set(e, ERR_UNSUPPORTED, "generator '%s' refuses its schedule, %.*s", cpu_family, STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

/* The tiles of the output, from those of the scores and its own layout along columns. */
static bool set_output(struct lab_config *c)
{
    i32 *v = c->v;
    const i32 subgroups = v[LA_BLPY] * v[LA_BLPX];
    v[LA_BR] = v[LA_PTR] * v[LA_WLPY] * v[LA_BLPY], v[LA_BC] = v[LA_PTC] * v[LA_WLPX] * v[LA_BLPX], v[LA_HD] = (i32)c->d;
    v[LA_W] = v[LA_WLPY] * v[LA_WLPX];
    if (v[LA_W] % v[LA_WLOX] || subgroups % v[LA_BLOX]) return false;
    v[LA_WLOY] = v[LA_W] / v[LA_WLOX], v[LA_BLOY] = subgroups / v[LA_BLOX];
    v[LA_OTR] = v[LA_BR] / (v[LA_WLOY] * v[LA_BLOY]), v[LA_OTC] = v[LA_HD] / (v[LA_WLOX] * v[LA_BLOX]);
    return true;
}

bool lab_attention_config_of(struct lab_config *c, const struct candidate *x, const struct lab_config *like, enum dtype type)
{
    bool shuffles = false;
    if (!str_is(str_of(x->gen->name), family) || !has_output(like)) return false;
    *c = *like;
    memset(c->v, 0, sizeof c->v);
    for (u32 i = 0; i < x->gen->n_param; i++) {
        u32 f = field_of(&x->gen->param[i]);
        if (f < N_LAB_ATTENTION_FIELDS) c->v[f] = x->sched.v[i];
        shuffles |= !strcmp(x->gen->param[i].name, "sub") && x->sched.v[i];
    }
    for (u32 i = 0; i < x->gen->n_param; i++)
        if (field_of(&x->gen->param[i]) == N_LAB_ATTENTION_FIELDS && x->sched.v[i] != unsaid(&x->gen->param[i], c, type, shuffles)) return false;
    return set_output(c) && lab_config_check(c, &(struct err){0});
}
