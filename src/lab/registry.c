// SPDX-License-Identifier: Apache-2.0
//
// Kernels by name: lists of them, as other tools keep them, and for GEMMs the database with the measurements of this machine, by
// architecture (its environments), type and sizes (its tasks). A GEMM that was never measured gets the best legal kernel of the nearest measured one.
#include "lab/json.h"
#include "lab/lab.h"

#include "op/op.h"

#include <math.h>
#include <string.h>

/* Lists of names. */

static bool same_product(const struct lab_config *a, const struct lab_config *b)
{
    bool same = a->kind == b->kind && a->part == b->part && a->n_batch == b->n_batch;
    if (lab_is_attention(a->kind)) return same && a->b == b->b && a->h == b->h && a->s == b->s && a->d == b->d;
    same = same && a->m == b->m && a->n == b->n && a->k == b->k && a->v[LF_TRANS] == b->v[LF_TRANS];
    for (u32 i = 0; same && i < a->n_batch; i++) same = a->batch[i] == b->batch[i];
    return same;
}

static struct lab_space *space_for(struct lab_registry *r, struct arena *a, const struct lab_config *c)
{
    for (u32 i = 0; i < r->n; i++)
        if (same_product(&r->v[i].base, c)) return &r->v[i];
    struct lab_space *s = arr_push(a, r);
    s->base = *c, s->dtype = DT_F32;
    return s;
}

struct listed { const json_t *kernel; const char *type; /* that is wanted */ };

static bool read_kernel(struct lab_registry *r, struct arena *a, const struct listed *x, struct err *e)
{
    const char *type = json_string_value(json_object_get(x->kernel, "type"));
    const char *name = json_string_value(json_object_get(x->kernel, "kernelName"));
    struct lab_config c;
    if (!type) return err_set(e, ERR_INPUT, "no 'type'");
    r->n_others += strcmp(type, x->type) != 0;
    if (strcmp(type, x->type)) return true;
    if (!name) return err_set(e, ERR_INPUT, "no 'kernelName'");
    if (!lab_name_parse(&c, str_of(name), e)) return false;
    if (lab_is_attention(c.kind) != !strcmp(type, "attention"))
        return err_set(e, ERR_INPUT, "'%.300s' is not of type '%s'", name, type);
    *arr_push(a, &space_for(r, a, &c)->listed) = c;
    return true;
}

bool lab_is_registry(struct str json)
{
    struct err none = {0};
    json_t *j = lab_json_read(json, &none);
    bool is = json_object_get(j, "kernels") != NULL;
    json_decref(j);
    return is;
}

bool lab_registry_read(struct lab_registry *r, struct arena *a, struct str json, const char *type, struct err *e)
{
    json_t *j = lab_json_read(json, e);
    const json_t *list = lab_json_list(j, "kernels", e);
    bool ok = list != NULL;
    *r = (struct lab_registry){0};
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const struct listed x = {json_array_get(list, i), type};
        ok = read_kernel(r, a, &x, e) || err_prefix(e, "kernel %zu", i);
    }
    json_decref(j);
    return ok && (r->n || err_set(e, ERR_NOTHING, "no kernel of type '%s' is listed", type));
}

/* The database. */

static bool swaps_last_axes(const struct node *x, u32 rank)
{
    const i64 *perm;
    i64 n = attr_ints(x, "perm", &perm);
    if (!str_is(x->op, "Transpose") || n != rank) return false;
    for (u32 i = 0; i + 2 < rank; i++)
        if (perm[i] != i) return false;
    return perm[rank - 2] == rank - 1 && perm[rank - 1] == rank - 2;
}

/* Whether the node's k-th operand is an input of the task, or with `swapped` a transposed one. */
static bool is_operand(const struct graph *g, const struct node *x, u32 k, bool swapped)
{
    node_id p = graph_value(g, x->in.v[k])->producer;
    value_id v = x->in.v[k];
    if (swapped != (p != 0)) return false;
    if (p && !swaps_last_axes(graph_node(g, p), graph_value(g, v)->shape.rank)) return false;
    if (p) v = graph_node(g, p)->in.v[0];
    return !graph_value(g, v)->producer && !graph_value(g, v)->is_const && !graph_value(g, v)->part.whole;
}

static bool is_product(const struct graph *g, bool *swapped)
{
    if (g->output.n != 1 || g->input.n != 2 || g->node.n < 2 || g->node.n > 3) return false;
    const struct value *y = graph_value(g, g->output.v[0]);
    if (!y->producer || y->part.whole) return false;
    const struct node *x = graph_node(g, y->producer);
    if (!str_is(x->op, "MatMul") || x->in.n != 2) return false;
    *swapped = g->node.n == 3;
    return is_operand(g, x, 0, *swapped) && is_operand(g, x, 1, false);
}

bool lab_product_of(struct lab_config *c, enum dtype *type, const struct task *t)
{
    i64 a[MAX_RANK], b[MAX_RANK], y[MAX_RANK];
    bool swapped = false;
    if (!is_product(&t->g, &swapped)) return false;
    const struct value *va = graph_value(&t->g, t->g.input.v[0]), *vb = graph_value(&t->g, t->g.input.v[1]),
                       *vy = graph_value(&t->g, t->g.output.v[0]);
    u32 rank = vy->shape.rank;
    if (rank < 2 || rank - 2 > LAB_MAX_BATCH || va->shape.rank != rank || vb->shape.rank != rank) return false;
    if (!shape_is_static(t->g.sym, &va->shape, a) || !shape_is_static(t->g.sym, &vb->shape, b) ||
        !shape_is_static(t->g.sym, &vy->shape, y))
        return false;
    *c = (struct lab_config){.n_batch = rank - 2, .m = y[rank - 2], .n = y[rank - 1], .k = b[rank - 2]};
    c->v[LF_TRANS] = swapped;
    bool tf32 = attr_int(graph_node(&t->g, vy->producer), "tf32", 0);
    *type = tf32 ? DT_TF32 : vy->dtype;
    for (u32 i = 0; i < c->n_batch; i++) {
        if (a[i] != y[i] || b[i] != y[i]) return false;
        c->batch[i] = y[i];
    }
    return va->dtype == vy->dtype && vb->dtype == vy->dtype;
}

static double batches(const struct lab_config *c)
{
    double n = 1;
    for (u32 i = 0; i < c->n_batch; i++) n *= (double)c->batch[i];
    return n;
}

static double ratio(double x, double y) { return fabs(log2(x / y)); }

static double distance(const struct lab_config *a, const struct lab_config *b)
{
    double d = ratio((double)a->m, (double)b->m) + ratio((double)a->n, (double)b->n) + ratio((double)a->k, (double)b->k);
    return d + ratio(batches(a), batches(b)) + (a->v[LF_TRANS] != b->v[LF_TRANS]);
}

struct wanted { const struct lab_config *product; enum dtype type; };

static double distance_of(void *user, const struct task *t)
{
    const struct wanted *w = user;
    struct lab_config c;
    enum dtype type;
    return lab_product_of(&c, &type, t) && type == w->type ? distance(&c, w->product) : INFINITY;
}

bool lab_find(struct lab_found *f, struct db *d, i64 env, const struct caps *caps, const struct lab_config *product, enum dtype type,
              struct err *e)
{
    struct arena a = {0};
    struct symtab st;
    struct task t;
    struct known known;
    struct known_found x;
    struct wanted w = {product, type};
    enum dtype same;
    i64 none = 0;
    const struct known_for want = {&t, &none, caps, distance_of, &w};
    symtab_init(&st, &a);
    bool ok = lab_task(&t, &a, &st, product, type, e) && known_load(&known, d, env, &a, e) && known_nearest(&known, &want, &x, e);
    if (ok) {
        *f = (struct lab_found){.cand = x.cand, .seconds = x.seconds, .distance = x.distance};
        if (!lab_product_of(&f->product, &same, x.task->task)) unreachable();
    }
    arena_release(&a);
    return ok;
}
