// SPDX-License-Identifier: Apache-2.0
//
// Slice and Split. Both become quern::Slice, which holds for every axis of its input the first
// element ("start"), the number of elements ("size"), both symbolic, and the step. NumPy's clamping
// of starts and ends to the axis is done here once, in symbolic sizes: an index beyond any axis
// (INT64_MAX) means "to the end".
//
// A symbolic start or end whose sign is not proven is not negative, as H//2 or W - 3 are meant,
// which is a fact; its value is clamped to the axis like any other, so no size makes a kernel read
// outside its input.
#include "op/op.h"

enum { MAX_PARTS = 256 };

static const i64 FAR = INT32_MAX; /* as an index: beyond every axis */

struct slice {
    u32 rank;
    sym start[MAX_RANK], size[MAX_RANK];
    i64 step[MAX_RANK]; /* not 0 */
};

static void slice_all(struct graph *g, const struct shape *in, struct slice *s)
{
    *s = (struct slice){.rank = in->rank};
    for (u32 a = 0; a < in->rank; a++) {
        s->start[a] = sym_const(g->sym, 0);
        s->size[a] = in->dim[a];
        s->step[a] = 1;
    }
}

/* 1 if i is negative, else 0 */
static sym is_negative(struct symtab *t, sym i)
{
    sym zero = sym_const(t, 0);
    return sym_min(t, sym_const(t, 1), sym_max(t, sym_sub(t, zero, i), zero));
}

/* An index counted from the front; *far: -1 or 1 if before or after every axis. */
static sym from_front(struct graph *g, node_id n, sym i, sym dim, int *far)
{
    struct symtab *t = g->sym;
    i64 c;
    if (op_is_made(g, i)) return *far = 0, sym_add(t, i, sym_mul(t, is_negative(t, i), dim));
    sym zero = sym_const(t, 0);
    bool known = sym_is_const(t, i, &c);
    *far = known && c >= FAR ? 1 : known && c <= -FAR ? -1 : 0;
    bool negative = known ? c < 0 : sym_max(t, i, zero) == zero;
    struct err none = {0};
    /* from the end, then */
    if (!known && !negative && !op_require_at_least(g, n, i, zero, &none, "an index")) negative = true;
    return negative ? sym_add(t, i, dim) : i;
}

/* Whether i has the form dim - c with c >= 0, so is never above dim. */
static bool not_above(struct symtab *t, sym i, sym dim)
{
    i64 c;
    return sym_is_const(t, sym_sub(t, dim, i), &c) && c >= 0;
}

static void slice_axis(struct graph *g, node_id n, struct slice *s, u32 a, const sym ends[2])
{
    struct symtab *t = g->sym;
    sym dim = s->size[a], zero = sym_const(t, 0), one = sym_const(t, 1);
    int far[2];
    sym b = from_front(g, n, ends[0], dim, &far[0]), e = from_front(g, n, ends[1], dim, &far[1]);
    if (s->step[a] > 0) {
        bool bounded = far[1] || not_above(t, e, dim);
        b = far[0] ? (far[0] > 0 ? dim : zero) : sym_max(t, b, zero);
        e = far[1] ? (far[1] > 0 ? dim : zero) : sym_max(t, e, zero);
        e = bounded ? e : sym_min(t, e, dim);
        b = op_let(g, n, b, 0);
        s->start[a] = b; /* may be after the end: then the size is 0 */
        s->size[a] = op_let(g, n, sym_cdiv(t, sym_max(t, sym_sub(t, e, b), zero), sym_const(t, s->step[a])), dim);
        return;
    }
    sym last = sym_sub(t, dim, one), before = sym_const(t, -1);
    b = far[0] ? (far[0] > 0 ? last : before) : not_above(t, b, last) ? b : sym_min(t, b, last);
    e = far[1] ? (far[1] > 0 ? last : before) : sym_max(t, e, before);
    s->start[a] = b;
    s->size[a] = op_let(g, n, sym_cdiv(t, sym_max(t, sym_sub(t, b, e), zero), sym_const(t, -s->step[a])), dim);
}

/* Integers of an input, or of an attribute of the older form; count, -1: omitted, -2: unknown. */
static i64 read_ints(const struct graph *g, const struct node *n, u32 input, const char *attr,
                     i64 *out)
{
    const i64 *v;
    if (n->in.n > input && n->in.v[input]) {
        i64 count = op_const_ints(g, n->in.v[input], out, MAX_RANK);
        return count < 0 ? -2 : count;
    }
    if (!node_attr(n, attr)) return -1;
    i64 count = attr_ints(n, attr, &v);
    for (i64 i = 0; i < count && i < MAX_RANK; i++) out[i] = v[i];
    return count > MAX_RANK ? -2 : count;
}

static bool read_bounds(struct graph *g, const struct node *n, u32 input, sym *out,
                        i64 *count)
{
    i64 v[MAX_RANK];
    *count = read_ints(g, n, input, input == 1 ? "starts" : "ends", v);
    for (i64 i = 0; i < *count; i++)
        out[i] = sym_const(g->sym, i64_max(-FAR, v[i])); /* INT64_MIN is no size */
    return *count >= 0 || (*count == -2 && n->in.n > input &&
                           op_data_ints(g, n->in.v[input], out, MAX_RANK, count));
}

static bool read_slice(struct graph *g, node_id id, struct slice *s, struct err *e)
{
    const struct node *n = graph_node(g, id);
    const struct shape *in = &graph_value(g, n->in.v[0])->shape;
    sym bound[2][MAX_RANK];
    i64 axes[MAX_RANK], steps[MAX_RANK], count, n_ends;
    bool seen[MAX_RANK] = {0};
    slice_all(g, in, s);
    if (!read_bounds(g, n, 1, bound[0], &count) || !read_bounds(g, n, 2, bound[1], &n_ends))
        return op_unsupported(e, g, id, "the number of starts or ends is only known at run time");
    i64 n_axes = read_ints(g, n, 3, "axes", axes), n_steps = read_ints(g, n, 4, "steps", steps);
    if (n_axes == -2 || n_steps == -2)
        return op_unsupported(e, g, id, "axes or steps are only known at run time");
    if (count != n_ends || (n_axes >= 0 && n_axes != count) || (n_steps >= 0 && n_steps != count) ||
        count > in->rank)
        return op_invalid(e, g, id, "starts, ends, axes and steps do not fit each other");
    for (i64 i = 0; i < count; i++) {
        u32 a;
        if (!op_axis(n_axes >= 0 ? axes[i] : i, in->rank, &a) || seen[a])
            return op_invalid(e, g, id, "axis %lld is out of range or named twice",
                              (long long)axes[i]);
        seen[a] = true;
        s->step[a] = n_steps >= 0 ? steps[i] : 1;
        if (s->step[a] == 0 || s->step[a] == INT64_MIN)
            return op_invalid(e, g, id, "bad step %lld", (long long)s->step[a]);
        slice_axis(g, id, s, a, (sym[]){bound[0][i], bound[1][i]});
    }
    return true;
}

/* The map with numbers. */
struct numbers {
    u32 rank;
    i64 start[MAX_RANK], step[MAX_RANK];
};

static i64 map(const void *par, const i64 *out, i64 *in)
{
    const struct numbers *s = par;
    for (u32 a = 0; a < s->rank; a++) in[a] = s->start[a] + out[a] * s->step[a];
    return 0;
}

/* Output k of node n is slice s of its input. */
static void slice_result(struct graph *g, node_id n, u32 k, const struct slice *s)
{
    struct shape to = {.known = true, .rank = s->rank};
    struct numbers num = {.rank = s->rank};
    bool known = true;
    for (u32 a = 0; a < s->rank; a++) {
        to.dim[a] = s->size[a];
        num.step[a] = s->step[a];
        known &= sym_is_const(g->sym, s->start[a], &num.start[a]);
    }
    op_set_out(g, n, k, graph_value(g, graph_node(g, n)->in.v[0])->dtype, &to);
    if (known) op_map_sdata(g, n, k, map, &num);
}

static void set_slice(struct graph *g, node_id n, const struct slice *s)
{
    op_set_syms(g, n, "start", s->start, s->rank);
    op_set_syms(g, n, "size", s->size, s->rank);
    attr_set_ints(g, n, "step", s->step, s->rank);
}

static bool slice_infer(struct graph *g, node_id n, struct err *e)
{
    struct slice s;
    if (!read_slice(g, n, &s, e)) return false;
    slice_result(g, n, 0, &s);
    return true;
}

static bool slice_expand(struct graph *g, node_id n, struct err *e)
{
    struct slice s;
    if (!read_slice(g, n, &s, e)) return false;
    node_id new = op_replace(g, n, "quern::Slice", 1);
    set_slice(g, new, &s);
    return true;
}

/* Split. */

struct split {
    u32 axis;
    i64 n;
    sym size[MAX_PARTS];
};

static bool split_equal(struct graph *g, node_id id, sym dim, struct split *s, struct err *e)
{
    const struct node *n = graph_node(g, id);
    i64 c, parts = attr_int(n, "num_outputs", n->out.n);
    if (parts < 1 || parts > MAX_PARTS || n->out.n > parts)
        return op_invalid(e, g, id, "num_outputs is %lld", (long long)parts);
    s->n = parts;
    bool even = sym_divides(g->sym, parts, dim), known = sym_is_const(g->sym, dim, &c);
    if (!even && known && !node_attr(n, "num_outputs"))
        return op_invalid(e, g, id, "size %lld does not split into %lld equal parts", (long long)c,
                          (long long)parts);
    if (!even && !known && !node_attr(n, "num_outputs")) {
        if (!op_require_multiple(g, id, dim, parts, e, "axis %u, split into equal parts,", s->axis)) return false;
        even = true;
    }
    struct symtab *t = g->sym;
    sym zero = sym_const(t, 0), one = even ? sym_div(t, dim, sym_const(t, parts)) : sym_cdiv(t, dim, sym_const(t, parts));
    for (i64 i = 0; i < parts; i++) { /* the last ones may be smaller */
        sym rest = sym_sub(t, dim, sym_mul(t, one, sym_const(t, i)));
        s->size[i] = even ? one : sym_max(t, zero, sym_min(t, one, rest));
    }
    return true;
}

static bool split_given(struct graph *g, node_id id, sym dim, struct split *s, struct err *e)
{
    const struct node *n = graph_node(g, id);
    const i64 *v;
    sym sum = sym_const(g->sym, 0), zero = sum;
    i64 c, d;
    if (n->in.n > 1 && n->in.v[1]) {
        if (!op_data_sizes(g, id, n->in.v[1], s->size, MAX_PARTS, &s->n))
            return op_unsupported(e, g, id, "the number of parts is only known at run time");
    } else {
        s->n = attr_ints(n, "split", &v);
        if (s->n > MAX_PARTS) return op_unsupported(e, g, id, "%lld parts", (long long)s->n);
        for (i64 i = 0; i < s->n; i++) s->size[i] = sym_const(g->sym, v[i]);
    }
    for (i64 i = 0; i < s->n; i++) {
        if (sym_is_const(g->sym, s->size[i], &c) && c < 0)
            return op_invalid(e, g, id, "part of size %lld", (long long)c);
        s->size[i] = sym_max(g->sym, s->size[i], zero);
        sum = sym_add(g->sym, sum, s->size[i]);
    }
    bool numbers = sym_is_const(g->sym, sum, &c) && sym_is_const(g->sym, dim, &d);
    if (s->n < n->out.n || (numbers && c != d))
        return op_invalid(e, g, id, "the parts do not make up the axis");
    return op_require_equal(g, id, sum, dim, e, "the parts' sum and axis %u", s->axis);
}

static bool read_split(struct graph *g, node_id id, struct split *s, struct err *e)
{
    const struct node *n = graph_node(g, id);
    const struct shape *in = &graph_value(g, n->in.v[0])->shape;
    *s = (struct split){0};
    if (!op_axis(attr_int(n, "axis", 0), in->rank, &s->axis))
        return op_invalid(e, g, id, "axis %lld with rank %u", (long long)attr_int(n, "axis", 0),
                          in->rank);
    bool given = (n->in.n > 1 && n->in.v[1]) || node_attr(n, "split");
    return given ? split_given(g, id, in->dim[s->axis], s, e)
                 : split_equal(g, id, in->dim[s->axis], s, e);
}

/* Part k as a slice. */
static void split_part(struct graph *g, node_id n, const struct split *s, u32 k, struct slice *part)
{
    slice_all(g, &graph_value(g, graph_node(g, n)->in.v[0])->shape, part);
    for (u32 i = 0; i < k; i++)
        part->start[s->axis] = sym_add(g->sym, part->start[s->axis], s->size[i]);
    part->size[s->axis] = s->size[k];
}

static bool split_infer(struct graph *g, node_id n, struct err *e)
{
    struct split s;
    struct slice part;
    if (!read_split(g, n, &s, e)) return false;
    for (u32 k = 0; k < graph_node(g, n)->out.n; k++) {
        split_part(g, n, &s, k, &part);
        slice_result(g, n, k, &part);
    }
    return true;
}

static bool split_expand(struct graph *g, node_id n, struct err *e)
{
    struct split s;
    struct slice part;
    if (!read_split(g, n, &s, e)) return false;
    for (u32 k = 0; k < graph_node(g, n)->out.n; k++) {
        value_id out = graph_node(g, n)->out.v[k];
        if (!out) continue;
        split_part(g, n, &s, k, &part);
        node_id new = graph_add_node(g, S("quern::Slice"), graph_node(g, n)->name);
        node_add_in(g, new, graph_node(g, n)->in.v[0]);
        node_set_out(g, new, 0, out);
        set_slice(g, new, &part);
    }
    return true;
}

/* quern::Slice. */

static bool get_slice(const struct graph *g, const struct node *n, struct slice *s)
{
    const i64 *step;
    s->rank = graph_value(g, n->in.v[0])->shape.rank;
    i64 n_steps = attr_ints(n, "step", &step);
    if (op_get_syms(g, n, "start", s->start, MAX_RANK) != s->rank ||
        op_get_syms(g, n, "size", s->size, MAX_RANK) != s->rank || n_steps != s->rank)
        return false;
    for (u32 a = 0; a < s->rank; a++) s->step[a] = step[a];
    return true;
}

/* Numbers that lead outside the input are refused; symbolic ones come from read_slice. */
static bool in_bounds(const struct symtab *t, const struct slice *s, const struct shape *in)
{
    i64 b, n, d, last;
    for (u32 a = 0; a < s->rank; a++) {
        bool known = sym_is_const(t, s->start[a], &b) && sym_is_const(t, s->size[a], &n) &&
                     sym_is_const(t, in->dim[a], &d);
        if (!known || n == 0) continue;
        if (n < 0 || b < 0 || b >= d || __builtin_mul_overflow(n - 1, s->step[a], &last) ||
            __builtin_add_overflow(last, b, &last) || last < 0 || last >= d)
            return false;
    }
    return true;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    struct slice s;
    if (!get_slice(g, graph_node(g, n), &s)) return op_invalid(e, g, n, "bad attributes");
    if (!in_bounds(g->sym, &s, &graph_value(g, graph_node(g, n)->in.v[0])->shape))
        return op_invalid(e, g, n, "slice outside the input");
    slice_result(g, n, 0, &s);
    return true;
}

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    struct numbers s = {.rank = v->in[0]->rank};
    const i64 *step;
    attr_ints(v->n, "step", &step);
    for (u32 a = 0; a < s.rank; a++) s.step[a] = step[a];
    return op_eval_syms(v, "start", s.start, MAX_RANK, e) && op_map_eval(v, map, &s);
}

static kval prim_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct slice s;
    kval src[MAX_RANK];
    bool ok = get_slice(m->g, n, &s);
    assert(ok), (void)ok;
    for (u32 a = 0; a < s.rank; a++) {
        kval at = kir_bin(m->k, KI_MUL, idx[a], kir_int(m->k, s.step[a]));
        src[a] = kir_bin(m->k, KI_ADD, at, emit_size(m, s.start[a]));
    }
    return emit_value(m, n->in.v[0], src);
}

/* Random instances. */

static u32 random_x(struct graph *g, struct rng *r, i64 *dim, value_id *in)
{
    u32 rank = (u32)rng_range(r, 1, 4);
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 9);
    random_input(g, "x", rng_range(r, 0, 3) ? DT_F32 : DT_I32, rank, dim, in);
    return rank;
}

static void random_slice(const struct op *self, struct graph *g, struct rng *r)
{
    value_id in[5];
    i64 dim[4], v[4][4];
    u32 rank = random_x(g, r, dim, &in[0]), count = 0;
    for (u32 a = 0; a < rank; a++) {
        if (!rng_range(r, 0, 2)) continue;
        v[0][count] = rng_range(r, 0, 4) ? rng_range(r, -dim[a] - 1, dim[a] + 1) : INT64_MAX;
        v[1][count] = rng_range(r, 0, 4) ? rng_range(r, -dim[a] - 1, dim[a] + 1) : INT64_MIN;
        v[2][count] = rng_range(r, 0, 1) ? a : (i64)a - rank;
        v[3][count++] = rng_range(r, 0, 1) ? rng_range(r, 1, 3) : -rng_range(r, 1, 3);
    }
    for (u32 k = 0; k < 4; k++) in[k + 1] = op_const_i(g, DT_I64, v[k], count);
    random_node(g, self, 5, in, 1);
}

static void random_split(const struct op *self, struct graph *g, struct rng *r)
{
    value_id in[2];
    i64 dim[4], size[3];
    u32 rank = random_x(g, r, dim, &in[0]), axis = (u32)rng_range(r, 0, rank - 1);
    size[0] = rng_range(r, 0, dim[axis]);
    size[1] = rng_range(r, 0, dim[axis] - size[0]);
    size[2] = dim[axis] - size[0] - size[1];
    bool given = rng_range(r, 0, 1);
    if (given) in[1] = op_const_i(g, DT_I64, size, 3);
    node_id n = random_node(g, self, given ? 2 : 1, in, 3);
    attr_set_int(g, n, "axis", (i64)axis - (rng_range(r, 0, 1) ? rank : 0));
    if (!given) attr_set_int(g, n, "num_outputs", 3);
}

static void random_prim(const struct op *self, struct graph *g, struct rng *r)
{
    value_id in[1];
    i64 dim[4];
    u32 rank = random_x(g, r, dim, &in[0]);
    struct slice s = {.rank = rank};
    for (u32 a = 0; a < rank; a++) {
        i64 b = rng_range(r, 0, dim[a] - 1);
        s.step[a] = rng_range(r, 0, 1) ? rng_range(r, 1, 2) : -rng_range(r, 1, 2);
        i64 most = s.step[a] > 0 ? (dim[a] - 1 - b) / s.step[a] + 1 : b / -s.step[a] + 1;
        s.start[a] = sym_const(g->sym, b);
        s.size[a] = sym_const(g->sym, rng_range(r, 0, 9) ? rng_range(r, 1, most) : 0);
    }
    set_slice(g, random_node(g, self, 1, in, 1), &s);
}

static const struct op ops[] = {
    {.name = "Slice",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 5,
     .min_out = 1,
     .max_out = 1,
     .infer = slice_infer,
     .expand = slice_expand,
     .random = random_slice},
    {.name = "Split",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 2,
     .min_out = 1,
     .max_out = 255,
     .infer = split_infer,
     .expand = split_expand,
     .random = random_split},
    {.name = "quern::Slice",
     .attributes = "size:strings start:strings step:ints",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .lower = prim_lower,
     .random = random_prim},
};

const struct op_family op_slice = {ops, countof(ops)};
