// SPDX-License-Identifier: Apache-2.0
//
// The attention of a configuration as a task, and the configuration as a candidate of wg_attention. Parameters have the names of fields, in small letters;
// tiles of the output follow from those of the scores, as lab_config_check demands of names.
#include "lab/lab.h"

#include "pass/pass.h"

#include <string.h>

static const char family[] = "wg_attention";

/* One kernel from the queries to the output. */
static bool is_whole(const struct lab_config *c)
{
    const struct lab_attention x = lab_attention_of(c->kind, c->part);
    return lab_kind(c->kind)->n_parts == 0 && x.has_o && !x.takes_stats && !x.has_sums;
}

static bool check_kernel(const struct lab_config *c, struct err *e)
{
    if (!is_whole(c))
        return err_set(e, ERR_UNSUPPORTED, "kind '%s' is not built by its tiles: generator '%s' has attn_v1, attn_v2, attention_origin and gemma2_origin",
                       lab_kind(c->kind)->op, family);
    if (!c->v[LA_SHP] && !c->v[LA_SKP]) return true;
    const char *tag = c->v[LA_SHP] ? "SHP" : "SKP";
    return err_set(e, ERR_UNSUPPORTED, "'%s1': generator '%s' passes probabilities through shared memory, expected %s0", tag, family, tag);
}

/* The task: of those that a cover of the graph has, that of both products with most of what is around them. */
bool lab_attention_task(struct task *t, struct arena *a, struct symtab *st, const struct lab_config *c, enum dtype type, struct err *e)
{
    struct graph *g = arena_new(a, struct graph);
    struct cover cover;
    const struct task *best = NULL;
    if (!check_kernel(c, e)) return false;
    graph_init(g, a, st);
    lab_attention_graph(g, c, type);
    if (!op_infer_all(g, e) || !pass_run_all(g, NULL, e) || !cover_build(&cover, g, a, NULL, e)) return false;
    for (u32 i = 0; i < cover.task.n; i++)
        if (cover.task.v[i]->n_heavy == 2 && (!best || cover.task.v[i]->g.node.n > best->g.node.n)) best = cover.task.v[i];
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
        u32 f = field_of(p);
        x->sched.v[i] = f < N_LAB_ATTENTION_FIELDS ? c->v[f] : unsaid(p, c, type, shuffles);
        if (!has_value(p, x->sched.v[i])) return say_values(p, f < N_LAB_ATTENTION_FIELDS ? lab_field(c->kind, f)->tag : p->name, x->sched.v[i], e);
    }
    return true;
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
    if (!str_is(str_of(x->gen->name), family)) return false;
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
