// SPDX-License-Identifier: Apache-2.0
//
// Groups of operators, for pictures of large networks: by the modules that nodes' names tell, by
// the kernels that compute them together, or as successive blocks.
//
// Invariant: groups never depend on each other in a circle. An operator joins the group of its
// module only if no path from that group to it leads through other groups; else a second group of
// the same name begins. Successive operators of a topological order need no such check.
#include "view/view.h"

#include <string.h>

#include "op/op.h"

enum {
    MANY_OPS = 60,      /* from which on `auto` groups */
    MOST_GROUPS = 48,   /* that `auto` aims at */
    MAX_DEPTH = 12,     /* of modules */
    MAX_SEARCH = 20000, /* operators beyond which only blocks are made, whose time is linear */
};

static const char *const names[] = {"auto", "none", "module", "fusion", "blocks"};

const char *view_collapse_name(enum view_collapse c) { return names[c]; }

bool view_collapse_parse(enum view_collapse *c, struct str name, struct err *e)
{
    for (u32 k = 0; k < N_COLLAPSES; k++)
        if (str_is(name, names[k])) return *c = (enum view_collapse)k, true;
    return err_set(e, ERR_USAGE, "'%.*s' is none of auto, none, module, fusion, blocks",
                   STR_ARG(name));
}

struct grouper {
    struct view *v;
    struct arena *a;
    struct view_groups to;
    struct after {
        u32 *v;
        u32 n, cap;
    } * after; /* per group: those that it reads from, possibly repeated */
    struct {
        u32 *v;
        u32 n, cap;
    } stack;           /* of the search */
    u32 *op_of_tensor; /* per tensor: its operator; UINT32_MAX: none */
    u32 *seen;         /* per group: number of the search that met it last */
    u32 search;
    char separator; /* of modules in nodes' names */
};

static u32 part_of(const struct view *v, u32 op) { return v->part_of ? v->part_of[op] : 0; }

/* PyTorch and TensorFlow divide names by '/', others by '.', which may be part of a module's name
 * then: "/encoder/layer.0/attention/MatMul". */
static char separator(const struct view *v)
{
    for (u32 k = 0; k < v->x->op.n; k++) {
        const struct str s = graph_node(&v->x->g, v->x->op.v[k].node)->name;
        if (s.n && memchr(s.p, '/', (size_t)s.n)) return '/';
    }
    return '.';
}

static void begin(struct grouper *g, struct view *v, struct arena *a)
{
    const u32 n = v->x->op.n;
    *g = (struct grouper){.v = v, .a = a, .separator = separator(v)};
    g->to.of = arena_array(a, u32, n + 1);
    g->after = arena_array(a, struct after, n + 1);
    g->seen = arena_array(a, u32, n + 1);
    g->op_of_tensor = arena_array(a, u32, v->x->tensor.n + 1);
    memset(g->op_of_tensor, 0xff, v->x->tensor.n * sizeof *g->op_of_tensor);
    for (u32 k = 0; k < n; k++)
        for (u32 i = 0; i < v->x->op.v[k].out.n; i++) g->op_of_tensor[v->x->op.v[k].out.v[i]] = k;
}

static u32 add_group(struct grouper *g, struct str name, u32 part)
{
    *arr_push(g->a, &g->to.group) = (struct view_group){.name = name, .part = part};
    return g->to.group.n - 1;
}

static void visit(struct grouper *g, u32 group)
{
    if (g->seen[group] == g->search) return;
    g->seen[group] = g->search;
    *arr_push(g->a, &g->stack) = group;
}

/* Whether group `from` is among the visited ones and those that they depend on, over any number of
 * steps. */
static bool search_for(struct grouper *g, u32 from)
{
    while (g->stack.n) {
        const u32 at = g->stack.v[--g->stack.n];
        if (at == from) return true;
        for (u32 i = 0; i < g->after[at].n; i++) visit(g, g->after[at].v[i]);
    }
    return false;
}

/* Whether operator k can join: none of the other groups that it reads from depends on this one. */
static bool can_join(struct grouper *g, u32 k, u32 group)
{
    const struct place_op *op = &g->v->x->op.v[k];
    g->search++;
    g->stack.n = 0;
    for (u32 i = 0; i < op->in.n; i++) {
        const u32 maker = g->op_of_tensor[op->in.v[i]];
        if (maker != UINT32_MAX && g->to.of[maker] != group) visit(g, g->to.of[maker]);
    }
    return !search_for(g, group);
}

static void join(struct grouper *g, u32 k, u32 group)
{
    const struct place_op *op = &g->v->x->op.v[k];
    g->to.of[k] = group;
    *arr_push(g->a, &g->to.group.v[group].op) = k;
    for (u32 i = 0; i < op->in.n; i++) {
        const u32 maker = g->op_of_tensor[op->in.v[i]];
        if (maker == UINT32_MAX || g->to.of[maker] == group) continue;
        const u32 from = g->to.of[maker], n = g->after[group].n;
        if (!n || g->after[group].v[n - 1] != from) *arr_push(g->a, &g->after[group]) = from;
    }
}

/* Groups of one operator have its name. */
static void finish(struct grouper *g)
{
    for (u32 i = 0; i < g->to.group.n; i++)
        if (g->to.group.v[i].op.n == 1)
            g->to.group.v[i].name = g->v->x->op.v[g->to.group.v[i].op.v[0]].name;
}

/* By key: operators with equal keys, of the same sub-graph, are a group as far as that is possible.
 */
typedef struct str key_fn(const struct grouper *g, u32 op, u32 depth);

static void group_by(struct grouper *g, struct view *v, key_fn *key, u32 depth, struct arena *a)
{
    struct map last;
    begin(g, v, a);
    map_init(&last, a);
    for (u32 k = 0; k < v->x->op.n; k++) {
        const struct str name = key(g, k, depth);
        const u32 part = part_of(v, k);
        const struct str id = str_fmt(a, "%u %.*s", part, STR_ARG(name));
        u64 *at = name.n ? map_get(&last, id) : NULL;
        u32 group = at && can_join(g, k, (u32)*at) ? (u32)*at : add_group(g, name, part);
        if (name.n) *map_put(&last, id, 0) = group;
        join(g, k, group);
    }
    finish(g);
}

/* Modules. */

/* The first `depth` modules of its name; one that is less deep has all of its own, none is by
 * itself. */
static struct str module_key(const struct grouper *g, u32 op, u32 depth)
{
    struct str s = graph_node(&g->v->x->g, g->v->x->op.v[op].node)->name;
    i64 from = 0, end = 0;
    while (from < s.n && s.p[from] == g->separator) from++;
    for (i64 i = from; i < s.n && depth; i++)
        if (s.p[i] == g->separator) end = i, depth--;
    return end > from ? str_sub(s, from, end) : (struct str){0};
}

/* The deepest modules that are few enough; without any: those of the first depth. false: names tell
 * no modules. */
static bool group_by_module(struct grouper *g, struct view *v, u32 most, struct arena *a)
{
    struct grouper x;
    bool found = false;
    u32 before = 0;
    for (u32 depth = 1; depth <= MAX_DEPTH; depth++) {
        group_by(&x, v, module_key, depth, a);
        const u32 n = x.to.group.n;
        if (n == v->x->op.n && depth == 1) return false;
        if (found && (n > most || n == before)) break;
        *g = x, found = true, before = n;
    }
    return found;
}

/* Kernels. */

static struct str kernel_key(const struct grouper *g, u32 op, u32 depth)
{
    const u32 kernel = g->v->time ? g->v->time[op].kernel : UINT32_MAX;
    return kernel == UINT32_MAX ? (struct str){0} : str_fmt(g->a, "kernel %u", kernel);
}

/* Blocks. */

/* Per operator: how many tensors pass from it and those before it to those behind it; parameters do
 * not count. */
static i64 *count_passing(const struct grouper *g, struct arena *a)
{
    const struct place_net *x = g->v->x;
    i64 *n = arena_array(a, i64, x->op.n + 1);
    u32 *last = arena_array(a, u32, x->tensor.n + 1);
    for (u32 k = 0; k < x->op.n; k++)
        for (u32 i = 0; i < x->op.v[k].in.n; i++) last[x->op.v[k].in.v[i]] = k;
    for (u32 t = 0; t < x->tensor.n; t++) {
        const u32 from = g->op_of_tensor[t];
        if (from == UINT32_MAX || last[t] <= from) continue;
        n[from]++, n[last[t]]--; /* at first the differences */
    }
    for (u32 k = 1; k < x->op.n; k++) n[k] += n[k - 1];
    return n;
}

/* Each block ends, within half its usual length, where the fewest tensors pass. */
static void group_in_blocks(struct grouper *g, struct view *v, u32 most, struct arena *a)
{
    const u32 n = v->x->op.n;
    begin(g, v, a);
    const i64 *passing = count_passing(g, a);
    const u32 usual = (u32)ceil_div(i64_max(n, 1), most);
    for (u32 from = 0, number = 0; from < n; number++) {
        u32 end = from + usual < n ? from + usual : n;
        for (u32 k = from + usual / 2; k < from + usual + usual / 2 && k < n; k++)
            if (end < n && passing[k] < passing[end - 1]) end = k + 1;
        const struct str name = str_fmt(a, "block %u", number);
        u32 group = UINT32_MAX;
        for (u32 k = from; k < end; k++) {
            const u32 part = part_of(v, k);
            if (group == UINT32_MAX || g->to.group.v[group].part != part)
                group = add_group(g, name, part);
            join(g, k, group);
        }
        from = end;
    }
    finish(g);
}

void view_group(struct view *v, enum view_collapse c, struct arena *a)
{
    struct grouper g;
    const u32 n = v->x->op.n;
    v->groups = (struct view_groups){0};
    if (c == COLLAPSE_AUTO && n <= MANY_OPS) c = COLLAPSE_NONE;
    if (c != COLLAPSE_NONE && n > MAX_SEARCH) c = COLLAPSE_BLOCKS;
    switch (c) {
    case COLLAPSE_NONE: return;
    case COLLAPSE_MODULE:
        if (!group_by_module(&g, v, MOST_GROUPS, a)) return;
        break;
    case COLLAPSE_FUSION: group_by(&g, v, kernel_key, 0, a); break;
    case COLLAPSE_BLOCKS: group_in_blocks(&g, v, MOST_GROUPS, a); break;
    case COLLAPSE_AUTO:
        if (!group_by_module(&g, v, MOST_GROUPS, a) || g.to.group.n > 2 * MOST_GROUPS)
            group_in_blocks(&g, v, MOST_GROUPS, a);
        break;
    case N_COLLAPSES:
    default: unreachable();
    }
    v->groups = g.to;
}
