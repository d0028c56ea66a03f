// SPDX-License-Identifier: Apache-2.0
//
// Pad: constant, reflect, edge and wrap; negative pads crop. Becomes quern::Pad, which holds
// symbolic pads ("before", "after") for every axis. Along a padded axis the source index is folded
// back into the input by the mode, or clamped and the element replaced by the constant; axes
// without pads are left alone, so ramps along them survive.
//
// Reflection and wrapping repeat when a pad is longer than the axis, as in NumPy.
#include "op/op.h"

enum mode { CONSTANT, REFLECT, EDGE, WRAP, N_MODES };

static const char *const mode_names[N_MODES] = {
    [CONSTANT] = "constant",
    [REFLECT] = "reflect",
    [EDGE] = "edge",
    [WRAP] = "wrap",
};

struct pad {
    enum mode mode;
    u32 rank;
    sym before[MAX_RANK], after[MAX_RANK];
};

static bool read_mode(const struct node *n, enum mode *mode)
{
    struct str s = attr_str(n, "mode", "constant");
    for (u32 k = 0; k < N_MODES; k++)
        if (str_is(s, mode_names[k])) {
            *mode = (enum mode)k;
            return true;
        }
    return false;
}

/* Pads from input 1, or from the attribute of opset < 11. */
static bool read_pads(struct graph *g, node_id id, sym *out, i64 *count, struct err *e)
{
    const struct node *n = graph_node(g, id);
    const i64 *v;
    if (n->in.n > 1 && n->in.v[1]) {
        if (op_data_ints(g, n->in.v[1], out, 2 * MAX_RANK, count)) return true;
        return op_unsupported(e, g, id, "the number of pads is only known at run time");
    }
    *count = attr_ints(n, "pads", &v);
    if (*count > 2 * MAX_RANK) return op_invalid(e, g, id, "%lld pads", (long long)*count);
    for (i64 i = 0; i < *count; i++) out[i] = sym_const(g->sym, v[i]);
    return true;
}

static bool read_pad(struct graph *g, node_id id, struct pad *p, struct err *e)
{
    const struct node *n = graph_node(g, id);
    const struct shape *in = &graph_value(g, n->in.v[0])->shape;
    sym pads[2 * MAX_RANK];
    i64 axes[MAX_RANK], count, n_axes = -1;
    bool seen[MAX_RANK] = {0};
    *p = (struct pad){.rank = in->rank};
    for (u32 a = 0; a < p->rank; a++) p->before[a] = p->after[a] = sym_const(g->sym, 0);
    if (!read_mode(n, &p->mode))
        return op_unsupported(e, g, id, "mode '%.*s'", STR_ARG(attr_str(n, "mode", "")));
    if (!read_pads(g, id, pads, &count, e)) return false;
    if (n->in.n > 3 && n->in.v[3] && (n_axes = op_const_ints(g, n->in.v[3], axes, MAX_RANK)) < 0)
        return op_unsupported(e, g, id, "axes are only known at run time");
    if (count != 2 * (n_axes < 0 ? p->rank : n_axes))
        return op_invalid(e, g, id, "%lld pads with rank %u", (long long)count, p->rank);
    for (i64 i = 0; i < count / 2; i++) {
        u32 a;
        if (!op_axis(n_axes < 0 ? i : axes[i], p->rank, &a) || seen[a])
            return op_invalid(e, g, id, "axis %lld is out of range or named twice",
                              (long long)axes[i]);
        seen[a] = true;
        p->before[a] = pads[i];
        p->after[a] = pads[count / 2 + i];
    }
    return true;
}

/* The map with numbers. */
struct numbers {
    enum mode mode;
    u32 rank;
    bool has_value; /* input 1 is the constant; otherwise 0 */
    i64 before[MAX_RANK], dim[MAX_RANK];
};

static i64 map_axis(enum mode mode, i64 i, i64 dim)
{
    i64 period;
    switch (mode) {
    case CONSTANT: return i;
    case EDGE: return i64_max(0, i64_min(dim - 1, i));
    case WRAP: return ((i % dim) + dim) % dim;
    case REFLECT:
        period = i64_max(1, 2 * (dim - 1));
        i = (i < 0 ? -i : i) % period;
        return i64_min(i, period - i);
    case N_MODES: break;
    }
    unreachable();
}

static i64 map(const void *par, const i64 *out, i64 *in)
{
    const struct numbers *p = par;
    for (u32 a = 0; a < p->rank; a++) {
        in[a] = p->dim[a] == 0 ? -1 : map_axis(p->mode, out[a] - p->before[a], p->dim[a]);
        if (in[a] >= 0 && in[a] < p->dim[a]) continue;
        in[0] = 0;
        return p->has_value ? 1 : -1;
    }
    return 0;
}

/* Sizes of the result; rejects modes that read elements of an empty axis. */
static bool pad_shape(struct graph *g, node_id n, const struct pad *p, struct err *e)
{
    const struct value *in = graph_value(g, graph_node(g, n)->in.v[0]);
    struct shape to = in->shape;
    for (u32 a = 0; a < p->rank; a++) {
        i64 c = 1, d;
        to.dim[a] = op_let(g, n, sym_add(g->sym, sym_add(g->sym, p->before[a], in->shape.dim[a]), p->after[a]), 0);
        if (sym_is_const(g->sym, to.dim[a], &c) && c < 0)
            return op_invalid(e, g, n, "pads leave size %lld on axis %u", (long long)c, a);
        if (!op_require_at_least(g, n, to.dim[a], sym_const(g->sym, 0), e, "axis %u, from which pads are cut,", a)) return false;
        bool grows = p->mode != CONSTANT && ((sym_is_const(g->sym, p->before[a], &d) && d > 0) || (sym_is_const(g->sym, p->after[a], &d) && d > 0));
        if (grows && !op_require_at_least(g, n, in->shape.dim[a], sym_const(g->sym, 1), e, "axis %u, whose elements pad it,", a)) return false;
        if (p->mode != CONSTANT && sym_is_const(g->sym, in->shape.dim[a], &d) && d == 0 && c != 0)
            return op_invalid(e, g, n, "axis %u has no element to pad with", a);
    }
    op_set_out(g, n, 0, in->dtype, &to);
    return true;
}

static bool is_zero(const struct graph *g, sym s)
{
    i64 c;
    return sym_is_const(g->sym, s, &c) && c == 0;
}

/* No effect unless everything is known. value: the node's input with the constant. */
static void pad_fold(struct graph *g, node_id n, const struct pad *p, bool has_value)
{
    struct numbers num = {.mode = p->mode, .rank = p->rank, .has_value = has_value};
    if (!shape_is_static(g->sym, &graph_value(g, graph_node(g, n)->in.v[0])->shape, num.dim))
        return;
    for (u32 a = 0; a < p->rank; a++)
        if (!sym_is_const(g->sym, p->before[a], &num.before[a])) return;
    op_map_sdata(g, n, 0, map, &num);
}

static bool pad_infer(struct graph *g, node_id n, struct err *e)
{
    struct pad p;
    if (!read_pad(g, n, &p, e) || !pad_shape(g, n, &p, e)) return false;
    const struct node *nd = graph_node(g, n);
    bool has_value = p.mode == CONSTANT && nd->in.n > 2 && nd->in.v[2];
    if (!has_value) pad_fold(g, n, &p, false);
    return true;
}

static bool pad_expand(struct graph *g, node_id id, struct err *e)
{
    struct pad p;
    if (!read_pad(g, id, &p, e)) return false;
    const struct node *n = graph_node(g, id);
    value_id value = n->in.n > 2 ? n->in.v[2] : 0;
    double old = attr_float(n, "value", 0);
    if (!value && old != 0) value = op_const_f(g, graph_value(g, n->in.v[0])->dtype, old);
    node_id to = op_replace(g, id, "quern::Pad", 1);
    if (value && p.mode == CONSTANT) node_add_in(g, to, value);
    op_set_syms(g, to, "before", p.before, p.rank);
    op_set_syms(g, to, "after", p.after, p.rank);
    attr_set_str(g, to, "mode", str_of(mode_names[p.mode]));
    return true;
}

/* quern::Pad. */

static bool get_pad(const struct graph *g, const struct node *n, struct pad *p)
{
    p->rank = graph_value(g, n->in.v[0])->shape.rank;
    return read_mode(n, &p->mode) && op_get_syms(g, n, "before", p->before, MAX_RANK) == p->rank &&
           op_get_syms(g, n, "after", p->after, MAX_RANK) == p->rank;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct pad p;
    if (!get_pad(g, nd, &p)) return op_invalid(e, g, n, "bad attributes");
    if (!pad_shape(g, n, &p, e)) return false;
    if (nd->in.n > 1) {
        const struct value *v = graph_value(g, nd->in.v[1]);
        i64 dim[MAX_RANK];
        if (v->dtype != graph_value(g, nd->in.v[0])->dtype ||
            !shape_is_static(g->sym, &v->shape, dim) || v->shape.rank > 1 ||
            (v->shape.rank == 1 && dim[0] != 1))
            return op_invalid(e, g, n, "the constant is no scalar of the input's type");
    }
    pad_fold(g, n, &p, nd->in.n > 1);
    return true;
}

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    struct numbers p = {.rank = v->in[0]->rank, .has_value = v->n->in.n > 1};
    if (!read_mode(v->n, &p.mode)) return err_set(e, ERR_INPUT, "bad attribute 'mode'");
    for (u32 a = 0; a < p.rank; a++) p.dim[a] = v->in[0]->dim[a];
    return op_eval_syms(v, "before", p.before, MAX_RANK, e) && op_map_eval(v, map, &p);
}

static kval is_inside(struct emit *m, kval i, sym dim)
{
    kval low = kir_bin(m->k, KI_LE, kir_int(m->k, 0), i);
    return kir_bin(m->k, KI_AND, low, kir_bin(m->k, KI_LT, i, emit_size(m, dim)));
}

/* The source index along one padded axis, inside the input for every i. */
static kval lower_axis(struct emit *m, enum mode mode, kval i, sym dim)
{
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    sym one = sym_const(t, 1), two = sym_const(t, 2);
    kval d = emit_size(m, sym_max(t, dim, one)), period;
    switch (mode) {
    case CONSTANT:
    case EDGE: return emit_clamp(m, i, dim);
    case WRAP: return kir_bin(k, KI_MOD, kir_bin(k, KI_ADD, kir_bin(k, KI_MOD, i, d), d), d);
    case REFLECT:
        period = emit_size(m, sym_max(t, one, sym_mul(t, two, sym_sub(t, dim, one))));
        i = kir_bin(k, KI_MOD, kir_un(k, KI_ABS, i), period);
        return kir_bin(k, KI_MIN, i, kir_bin(k, KI_SUB, period, i));
    case N_MODES: break;
    }
    unreachable();
}

static kval lower_value(struct emit *m, const struct node *n)
{
    kval zero[MAX_RANK];
    for (u32 a = 0; a < MAX_RANK; a++) zero[a] = kir_int(m->k, 0);
    return n->in.n > 1 ? emit_value(m, n->in.v[1], zero)
                       : emit_zero(m, graph_value(m->g, n->in.v[0])->dtype);
}

bool op_pad_inner(const struct graph *g, value_id v, u32 axis, sym *from, sym *to)
{
    node_id id = graph_value(g, v)->producer;
    struct symtab *t = g->sym;
    struct pad p;
    if (!id || !str_is(S("quern::Pad"), op_of(g, id)->name) || !get_pad(g, graph_node(g, id), &p)) return false;
    sym zero = sym_const(t, 0), end = sym_add(t, p.before[axis], op_in_shape(g, graph_node(g, id), 0)->dim[axis]);
    *from = sym_max(t, p.before[axis], zero);
    *to = sym_sub(t, end, sym_max(t, sym_sub(t, zero, p.after[axis]), zero));
    return true;
}

static kval prim_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const struct shape *in = &graph_value(m->g, n->in.v[0])->shape;
    struct pad p = {0};
    kval src[MAX_RANK], inside = 0;
    u32 padded = 0;
    bool ok = get_pad(m->g, n, &p);
    assert(ok), (void)ok;
    for (u32 a = 0; a < p.rank; a++) {
        src[a] = kir_bin(m->k, KI_SUB, idx[a], emit_size(m, p.before[a]));
        if (is_zero(m->g, p.before[a]) && is_zero(m->g, p.after[a])) continue;
        if (m->inside == n->out.v[0] && m->inside_axes >> a & 1) continue;
        padded |= 1u << a;
        kval here = p.mode == CONSTANT ? is_inside(m, src[a], in->dim[a]) : 0;
        inside = inside && here ? kir_bin(m->k, KI_AND, inside, here) : here;
        src[a] = lower_axis(m, p.mode, src[a], in->dim[a]);
    }
    kval v = emit_clamped(m, n->in.v[0], src, padded);
    return inside ? kir_select(m->k, inside, v, lower_value(m, n)) : v;
}

/* Random instances. */

static void random_pad(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 4);
    value_id in[4] = {0};
    i64 dim[4], pads[8], axes[4] = {0, 1, 2, 3}, n_axes = rank;
    sym before[4], after[4];
    enum mode mode = (enum mode)rng_range(r, 0, N_MODES - 1);
    bool prim = str_is(S("quern::Pad"), self->name);
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 7);
    for (u32 a = 0; a < rank; a++) {
        pads[a] = rng_range(r, 0, 2) ? rng_range(r, -i64_min(2, dim[a] - 1), 4) : 0;
        pads[rank + a] =
            rng_range(r, 0, 2) ? rng_range(r, -i64_min(2, dim[a] - 1 + i64_min(0, pads[a])), 4) : 0;
        before[a] = sym_const(g->sym, pads[a]);
        after[a] = sym_const(g->sym, pads[rank + a]);
    }
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    if (!prim) in[1] = op_const_i(g, DT_I64, pads, 2 * n_axes);
    if (mode == CONSTANT && rng_range(r, 0, 1))
        in[prim ? 1 : 2] = op_const_f(g, DT_F32, rng_range(r, -2, 2));
    if (!prim && in[2] && rng_range(r, 0, 1)) in[3] = op_const_i(g, DT_I64, axes, n_axes);
    node_id n = random_node(g, self, in[3] ? 4 : in[2] ? 3 : in[1] ? 2 : 1, in, 1);
    attr_set_str(g, n, "mode", str_of(mode_names[mode]));
    if (prim) {
        op_set_syms(g, n, "before", before, rank);
        op_set_syms(g, n, "after", after, rank);
    }
}

static const struct op ops[] = {
    {.name = "Pad",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = pad_infer,
     .expand = pad_expand,
     .random = random_pad},
    {.name = "quern::Pad",
     .attributes = "after:strings before:strings mode:string",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .lower = prim_lower,
     .random = random_pad},
};

const struct op_family op_pad = {ops, countof(ops)};
