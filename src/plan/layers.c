// SPDX-License-Identifier: Apache-2.0
//
// Comparison of a running program with the reference evaluator, kernel by kernel. Each kernel gets the
// reference's values as inputs: after every dispatch its outputs are compared, and replaced by the
// reference's. So the error of a kernel does not propagate.
//
// Of the same inputs, the task's results in f64, none of whose values is rounded to its type, are the exact ones; the
// distance of a kernel's results from them is what this layer alone loses.
//
// Where a task rounds floats to integers and goes on computing, a value halfway between two of them may become either, and no bound
// of rounding errors covers the difference. The task's results for operands that are off by 2^-16 of themselves, which turns many
// more such values over than arithmetic in f32 does, show how much one of them matters.
#include "plan/plan.h"

#include <math.h>
#include <string.h>

struct layer_out { /* an output of a dispatch */
    u32 buf;                /* index among the dispatch's buffers */
    value_id v, task_value; /* in the graph, in the task */
    u32 want;               /* index among the reference's values */
};

struct layer { /* a dispatch */
    const struct task *task; /* NULL: a loop or branch */
    const value_id *map_back; /* the task's values in the graph */
    struct layer_out *out;
    u32 n_out;
};

struct plan_layers {
    struct arena a;
    const struct plan *p;
    struct graph g;          /* the graph after the passes, with all values that kernels write as outputs */
    struct layer *layer;     /* per dispatch */
    struct { value_id *v; u32 n, cap; } value;
    struct tensor **want;
    struct tensor **rows;    /* inputs of the graph */
    plan_layer_fn *fn;
    void *user;
};

/* Matching dispatches with regions. */

struct place_in_cover { const struct cover *c; const struct region *r; };

static struct str region_key(const struct cover *c, const struct region *r, struct arena *a)
{
    char hex[33];
    hash_hex(c->task.v[r->task]->key, hex);
    return str_fmt(a, "%s %.*s", hex, STR_ARG(plan_label(c, r, a)));
}

static void note_regions(struct map *to, const struct cover *c, struct arena *a)
{
    for (u32 i = 0; i < c->region.n; i++) {
        if (c->region.v[i].task == NO_TASK) continue;
        struct place_in_cover *x = arena_new(a, struct place_in_cover);
        *x = (struct place_in_cover){c, &c->region.v[i]};
        map_put(to, region_key(c, x->r, a), (u64)(uintptr_t)x);
    }
}

static u32 value_number(struct plan_layers *x, value_id v)
{
    u32 i = 0;
    while (i < x->value.n && x->value.v[i] != v) i++;
    if (i == x->value.n) *arr_push(&x->a, &x->value) = v;
    return i;
}

static bool find_layer(struct plan_layers *x, const struct graph *g, const struct map *regions, u32 i, const struct caps *caps, struct err *e)
{
    const struct plan_dispatch *d = &x->p->dispatch.v[i];
    struct layer *l = &x->layer[i];
    struct candidate c;
    struct kernel k;
    if (d->call) return true;
    u64 *at = map_get(regions, str_fmt(&x->a, "%.*s %.*s", STR_ARG(d->task), STR_ARG(d->label)));
    if (!at)
        return err_set(e, ERR_INPUT, "'%.*s' is not a kernel of this model: the program was compiled from another model, or with other interface options",
                       STR_ARG(d->label));
    const struct place_in_cover *w = (const struct place_in_cover *)(uintptr_t)*at;
    l->task = w->c->task.v[w->r->task], l->map_back = w->r->map_back;
    if (!candidate_parse(&c, d->candidate, e) || !gen_kernel(&k, &x->a, &c, l->task, caps, e)) return err_prefix(e, "%.*s", STR_ARG(d->label));
    if (k.n_arg + k.n_temp != d->n_buf)
        return err_set(e, ERR_INPUT, "kernel '%.*s' differs from this version's kernel for its schedule", STR_ARG(d->entry));
    l->out = arena_array(&x->a, struct layer_out, k.n_arg + 1);
    for (u32 j = 0; j < l->task->g.input.n; j++) { /* of which some are no kernel's: the buffer of parts that several write */
        value_id v = l->map_back[l->task->g.input.v[j]];
        if (!graph_value(g, v)->data) value_number(x, v);
    }
    for (u32 j = 0; j < k.n_arg; j++) {
        if (!k.arg[j].is_out) continue;
        value_id v = w->r->map_back[k.arg[j].v];
        l->out[l->n_out++] = (struct layer_out){.buf = j, .v = v, .task_value = k.arg[j].v, .want = value_number(x, v)};
    }
    return true;
}

static bool find_layers(struct plan_layers *x, const struct graph *g, const struct caps *caps, struct err *e)
{
    struct map regions;
    struct cover *c[PLAN_COVERS];
    bool ok = plan_covers(c, g, caps, &x->a, e);
    map_init(&regions, &x->a);
    for (u32 i = 0; i < PLAN_COVERS && ok; i++) note_regions(&regions, c[i], &x->a);
    u32 n = x->p->dispatch.n;
    x->layer = arena_array(&x->a, struct layer, n + 1);
    for (u32 i = 0; i < n && ok; i++) ok = find_layer(x, g, &regions, i, caps, e);
    if (ok) graph_clone(&x->g, g, &x->a);
    for (u32 k = 0; k < g->input.n && ok; k++) graph_value(&x->g, g->input.v[k])->part = (struct part){0}; /* caches in place: dense for callers */
    return ok;
}

/* The reference. */

/* Converts an input from the interface's layout to the graph's row-major one. */
static struct tensor *in_rows(struct plan_layers *x, u32 k, const struct tensor *given, const i64 *var, struct err *e)
{
    const struct value *v = graph_value(&x->g, x->g.input.v[k]);
    struct tensor t = {.dtype = v->dtype, .rank = v->shape.rank};
    struct place at;
    if (!shape_eval(x->g.sym, &v->shape, var, t.dim) || !place_of(&at, &x->g, x->g.input.v[k], var) || v->dtype != given->dtype) {
        err_set(e, ERR_FAILED, "input '%.*s' does not match the graph after the passes", STR_ARG(v->name));
        return NULL;
    }
    struct tensor *r = tensor_try(&x->a, t.dtype, t.rank, t.dim, e, "input ", v->name);
    i64 size = dtype_size(t.dtype);
    for (i64 i = 0, n = r ? tensor_count(r) : 0; i < n; i++)
        memcpy((char *)r->data + i * size, (const char *)given->data + place_flat(&at, r, i) * size, (size_t)size);
    return r;
}

/* Exact results. */

static bool is_real(enum dtype t) { return dtype_is_float(t) && !dtype_is_small(t); }

/* A value of the graph that is a constant, or an input or output of a kernel; NULL: it is none. */
static struct tensor *value_of(const struct plan_layers *x, value_id v)
{
    if (graph_value(&x->g, v)->data) return graph_value(&x->g, v)->data;
    for (u32 k = 0; k < x->g.input.n; k++)
        if (x->g.input.v[k] == v) return x->rows[k];
    for (u32 i = 0; i < x->value.n; i++)
        if (x->value.v[i] == v) return x->want[i];
    return NULL;
}

static struct tensor *in_f64(struct tensor *t, double factor, struct arena *a)
{
    struct tensor *to = is_real(t->dtype) ? tensor_try(a, DT_F64, t->rank, t->dim, NULL, "", S("")) : NULL;
    for (i64 i = 0, n = to ? tensor_count(t) : 0; i < n; i++) ((double *)to->data)[i] = factor * elem_f64(t->dtype, t->data, i);
    return is_real(t->dtype) ? to : t;
}

/* Outputs of the task, in its order, for its operands of float types times a factor; NULL: not known. */
static struct tensor **exact_outputs(const struct plan_layers *x, const struct layer *l, double factor, const i64 *var, struct arena *a)
{
    struct err unknown = {0};
    struct graph g;
    graph_clone(&g, &l->task->g, a);
    struct tensor **in = arena_array(a, struct tensor *, g.input.n + 1), **out = arena_array(a, struct tensor *, g.output.n + 1);
    for (value_id v = 1; v < g.value.n; v++) {
        struct value *y = graph_value(&g, v);
        struct tensor *known = y->data ? y->data : !y->producer ? value_of(x, l->map_back[v]) : NULL;
        struct tensor *t = known ? in_f64(known, factor, a) : NULL;
        if (!y->producer && !t) return NULL;
        if (is_real(y->dtype)) y->dtype = DT_F64;
        if (y->is_const) y->data = t;
        for (u32 k = 0; k < g.input.n; k++)
            if (g.input.v[k] == v) in[k] = t;
    }
    return graph_eval(&g, in, out, a, &(struct graph_eval_opts){.var = var}, &unknown) ? out : NULL;
}

/* Comparison. */

static bool rounds_to_integers(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead || !x->in.n || !x->in.v[0]) continue;
        if (is_real(graph_value(g, x->in.v[0])->dtype) && dtype_is_int(graph_value(g, node_first_out(x))->dtype)) return true;
    }
    return false;
}

/* Of values that may round to either of two integers: the largest difference, at least that of two integers. others: NULL: not known */
static double largest_turn(const struct tensor *want, const struct tensor *others)
{
    double most = dtype_is_int(want->dtype) ? 1 : 0;
    for (i64 i = 0, n = others ? tensor_count(want) : 0; i < n; i++) {
        double d = fabs(elem_f64(want->dtype, want->data, i) - elem_f64(others->dtype, others->data, i));
        if (isfinite(d) && d > most) most = d;
    }
    return dtype_is_int(want->dtype) ? most : 2 * most;
}

/* exact: NULL: not known; turn: see largest_turn */
static void compare_layer(struct plan_layer *l, const struct task *t, const struct layer_out *o, const struct tensor *want, const struct tensor *exact,
                          double turn, const void *got, const i64 *var)
{
    double lost = 0, all = 0;
    struct place at;
    const struct numerics n = graph_numerics(&t->g, want->dtype, var);
    double rtol, atol, scale = fmax(1e-6, tensor_largest(want)), last_place = check_last_place(n.type, scale), worst = -1;
    if (!place_of(&at, &t->g, o->task_value, var)) unreachable(); /* its buffer has a known size */
    check_tolerance(&n, &rtol, &atol);
    l->count = tensor_count(want), l->precision = n.type;
    for (i64 i = 0; i < l->count; i++) {
        double x = elem_f64(want->dtype, want->data, i), y = elem_f64(want->dtype, got, place_flat(&at, want, i));
        double err = x == y || (x != x && y != y) ? 0 : fabs(x - y), bound = rtol * fmax(fabs(x), check_least(n.type)) + atol * scale + turn;
        if (!(err <= bound)) l->n_bad++;
        double e = exact ? ((const double *)exact->data)[i] : 0, off = y == e || (y != y && e != e) ? 0 : y - e; /* equal infinities */
        if (exact && isfinite(e)) lost += off * off, all += e * e;
        double ratio = err == 0 ? 0 : isfinite(err) ? (bound > 0 ? err / bound : 1e300) : INFINITY;
        if (!(ratio > worst)) continue;
        worst = ratio;
        l->at = i, l->got = y, l->want = x;
        l->ulp = err / last_place, l->bound = bound / last_place;
    }
    l->loss = !exact ? NAN : lost == 0 ? 0 : sqrt(lost / all);
}

/* Number of a value among a task's outputs. */
static u32 output_number(const struct graph *g, value_id v)
{
    u32 k = 0;
    while (g->output.v[k] != v) k++;
    return k;
}

/* Matches variables by name. */
static i64 *sizes_by_name(struct plan_layers *x, const i64 *plan_var)
{
    const struct symtab *from = &x->p->sym, *to = x->g.sym;
    i64 *var = arena_array(&x->a, i64, to->var.n + 1);
    for (u32 v = 0; v < to->var.n; v++) {
        var[v] = INT64_MIN;
        for (u32 k = 0; k < from->var.n; k++)
            if (str_eq(from->var.v[k], to->var.v[v])) var[v] = plan_var[k];
    }
    return var;
}

bool plan_layers_compare(struct plan_layers *x, u32 i, struct dev *dev, const struct dev_mem *buf, const i64 *plan_var, struct err *e)
{
    const struct plan_dispatch *d = &x->p->dispatch.v[i];
    const struct layer *l = &x->layer[i];
    struct arena tmp = {0};
    const i64 *var = sizes_by_name(x, plan_var);
    struct tensor **exact = l->n_out ? exact_outputs(x, l, 1, var, &tmp) : NULL;
    bool turns = exact && rounds_to_integers(&l->task->g), ok = true;
    struct tensor **others = turns ? exact_outputs(x, l, 1 + 0x1p-16, var, &tmp) : NULL;
    for (u32 k = 0; k < l->n_out && ok; k++) {
        const struct layer_out *o = &l->out[k];
        u32 number = output_number(&l->task->g, o->task_value);
        const struct tensor *known = exact ? exact[number] : NULL;
        const struct dev_mem *m = &buf[o->buf];
        const struct value *v = graph_value(&x->g, o->v);
        void *bytes = arena_try(&tmp, m->size, e, "output of '%.*s'", STR_ARG(d->label));
        struct place at;
        ok = bytes && dev->driver->download(dev, *m, bytes, m->size, e);
        if (!ok) break;
        if (!place_of(&at, &l->task->g, o->task_value, var) || at.count * dtype_size(v->dtype) > m->size) {
            ok = err_set(e, ERR_INPUT, "the output of '%.*s' does not have the size of its buffer", STR_ARG(d->label));
            break;
        }
        struct plan_layer r = {.dispatch = d, .value = v->name};
        compare_layer(&r, l->task, o, x->want[o->want], known && known->dtype == DT_F64 ? known : NULL,
                      turns ? largest_turn(x->want[o->want], others ? others[number] : NULL) : 0, bytes, var);
        x->fn(x->user, &r);
        place_store(&at, x->want[o->want], bytes);
        ok = dev->driver->upload(dev, *m, bytes, m->size, e);
    }
    arena_release(&tmp);
    return ok;
}

struct plan_layers *plan_layers_open(const struct plan *p, const struct graph *g, const struct caps *caps, plan_layer_fn *fn, void *user,
                                     struct err *e)
{
    struct plan_layers *x = mem_alloc(sizeof *x);
    x->p = p, x->fn = fn, x->user = user;
    if (find_layers(x, g, caps, e)) return x;
    plan_layers_close(x);
    return NULL;
}

bool plan_layers_evaluate(struct plan_layers *x, const struct tensor *in, struct err *e)
{
    i64 *bound = arena_array(&x->a, i64, x->p->sym.var.n + 1);
    plan_bind(x->p, in, NULL, bound);
    const i64 *var = sizes_by_name(x, bound);
    x->rows = arena_array(&x->a, struct tensor *, x->g.input.n + 1);
    for (u32 k = 0; k < x->g.input.n; k++)
        if (!(x->rows[k] = in_rows(x, k, &in[k], var, e))) return false;
    x->g.output.n = 0;
    for (u32 i = 0; i < x->value.n; i++) *arr_push(&x->a, &x->g.output) = x->value.v[i];
    x->want = arena_array(&x->a, struct tensor *, x->value.n + 1);
    return graph_eval(&x->g, x->rows, x->want, &x->a, NULL, e);
}

void plan_layers_close(struct plan_layers *x)
{
    if (!x) return;
    arena_release(&x->a);
    mem_free(x);
}
