// SPDX-License-Identifier: Apache-2.0
//
// Comparison of a running program with the reference evaluator, kernel by kernel. Each kernel gets the
// reference's values as inputs: after every dispatch its outputs are compared, and replaced by the
// reference's. So the error of a kernel does not propagate.
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

static bool find_layer(struct plan_layers *x, const struct map *regions, u32 i, const struct caps *caps, struct err *e)
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
    l->task = w->c->task.v[w->r->task];
    if (!candidate_parse(&c, d->candidate, e) || !gen_kernel(&k, &x->a, &c, l->task, caps, e)) return err_prefix(e, "%.*s", STR_ARG(d->label));
    if (k.n_arg + k.n_temp != d->n_buf)
        return err_set(e, ERR_INPUT, "kernel '%.*s' differs from this version's kernel for its schedule", STR_ARG(d->entry));
    l->out = arena_array(&x->a, struct layer_out, k.n_arg + 1);
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
    for (u32 i = 0; i < n && ok; i++) ok = find_layer(x, &regions, i, caps, e);
    if (ok) graph_clone(&x->g, g, &x->a);
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

/* Comparison. */

static double largest(const struct tensor *t)
{
    double m = 1e-6;
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        double x = fabs(elem_f64(t->dtype, t->data, i));
        if (isfinite(x) && x > m) m = x;
    }
    return m;
}

static void compare_layer(struct plan_layer *l, const struct task *t, const struct layer_out *o, const struct tensor *want, const void *got,
                          const i64 *var)
{
    struct place at;
    double rtol, atol, scale = largest(want), last_place = check_last_place(want->dtype, scale), worst = -1;
    if (!place_of(&at, &t->g, o->task_value, var)) unreachable(); /* its buffer has a known size */
    check_tolerance(graph_precision(&t->g, want->dtype), graph_depth(&t->g, var), &rtol, &atol);
    l->count = tensor_count(want);
    for (i64 i = 0; i < l->count; i++) {
        double x = elem_f64(want->dtype, want->data, i), y = elem_f64(want->dtype, got, place_flat(&at, want, i));
        double err = x == y || (x != x && y != y) ? 0 : fabs(x - y), bound = rtol * fabs(x) + atol * scale;
        if (!(err <= bound)) l->n_bad++;
        double ratio = err == 0 ? 0 : isfinite(err) ? (bound > 0 ? err / bound : 1e300) : INFINITY;
        if (!(ratio > worst)) continue;
        worst = ratio;
        l->at = i, l->got = y, l->want = x;
        l->ulp = err / last_place, l->bound = bound / last_place;
    }
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
    bool ok = true;
    for (u32 k = 0; k < l->n_out && ok; k++) {
        const struct layer_out *o = &l->out[k];
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
        compare_layer(&r, l->task, o, x->want[o->want], bytes, var);
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
    struct tensor **rows = arena_array(&x->a, struct tensor *, x->g.input.n + 1);
    for (u32 k = 0; k < x->g.input.n; k++)
        if (!(rows[k] = in_rows(x, k, &in[k], var, e))) return false;
    x->g.output.n = 0;
    for (u32 i = 0; i < x->value.n; i++) *arr_push(&x->a, &x->g.output) = x->value.v[i];
    x->want = arena_array(&x->a, struct tensor *, x->value.n + 1);
    return graph_eval(&x->g, rows, x->want, &x->a, NULL, e);
}

void plan_layers_close(struct plan_layers *x)
{
    if (!x) return;
    arena_release(&x->a);
    mem_free(x);
}
