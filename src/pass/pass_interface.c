// SPDX-License-Identifier: Apache-2.0
//
// The caller's interface: names or values of sizes, element types, layouts of pictures.
//
// Sizes come first, because they decide what can be proven: interface_sizes reads a
// network that was imported once, determines which of its size variables the caller's
// names and numbers denote, and defines them in a fresh table, with which the network
// is imported again. Repeating a name makes sizes equal, a number fixes one.
//
// Types and layouts are added around the network. A picture (n, c, h, w) of one image has no batch axis
// for callers, except if the layout's name has one. For the reference these are nodes (interface_show),
// which the evaluator runs; for compiling only the element types are nodes, and a layout is a layout of
// the value in memory (interface_layouts). Verification checks each against the other.
#include "pass/pass.h"

#include <string.h>

enum { MAX_TERMS = 64, BLOCK = 8 };

/* parsing */

enum io_layout io_layout_parse(struct str s, bool *ok)
{
    static const char *const name[] = {"hwc", "chw", "chwc8", "nwc", "nhwc", "ndhwc"};
    for (u32 k = 0; k < countof(name); k++)
        if (str_glob(str_of(name[k]), s)) {
            *ok = true;
            return (enum io_layout)(IO_HWC + k);
        }
    *ok = false;
    return IO_AS_IS;
}

struct str io_layout_name(enum io_layout l)
{
    switch (l) {
    case IO_AS_IS: return (struct str){0};
    case IO_HWC: return S("HWC");
    case IO_CHW: return S("CHW");
    case IO_CHWC8: return S("CHWC8");
    case IO_NWC: return S("NWC");
    case IO_NHWC: return S("NHWC");
    case IO_NDHWC: return S("NDHWC");
    }
    unreachable();
}

/* Number of axes of a channels-last layout with all axes; 0: another layout. */
static u32 last_rank(enum io_layout l) { return l >= IO_NWC ? 3 + (u32)(l - IO_NWC) : 0; }

/* A picture without its batch axis. */
static bool is_picture(enum io_layout l) { return l != IO_AS_IS && !last_rank(l); }

/* One extent: NAME, NAME=INT, INT or ?. */
static bool parse_extent(struct io_extent *x, struct str s, struct err *e)
{
    struct str name, value;
    *x = (struct io_extent){.value = -1};
    s = str_trim(s);
    if (str_is(s, "?")) return true;
    if (str_to_i64(s, &x->value) && x->value >= 0) return true;
    x->value = -1;
    bool has_value = str_cut(s, '=', &name, &value);
    x->name = has_value ? str_trim(name) : s;
    bool starts = x->name.n > 0 && !(x->name.p[0] >= '0' && x->name.p[0] <= '9') &&
                  x->name.p[0] != '-' && x->name.p[0] != '+';
    if (!starts || (has_value && (!str_to_i64(str_trim(value), &x->value) || x->value < 0)))
        return err_set(e, ERR_USAGE, "extent '%.*s' is not NAME, NAME=NUMBER, NUMBER or ?",
                       STR_ARG(s));
    return true;
}

bool io_shape_parse(struct io_shape *s, struct arena *a, struct str text, struct err *e)
{
    struct str rest = str_dup(a, text), item;
    *s = (struct io_shape){0};
    for (bool more = true; more;) {
        more = str_cut(rest, ':', &item, &rest);
        if (s->n == MAX_RANK)
            return err_set(e, ERR_USAGE, "shape '%.*s' has more than %d extents", STR_ARG(text),
                           MAX_RANK);
        if (!parse_extent(&s->extent[s->n++], item, e)) return false;
    }
    return true;
}

/* sizes */

/* A size variable of the network, or a name of the caller. Terms that must
 * be equal form a class, represented by the first of its caller's names. */
struct term {
    struct str name;
    bool is_model;
    u32 up;    /* towards the representative; itself: the representative */
    i64 value; /* of the class, at its representative; -1: none */
    sym size;  /* of the class, at its representative; of a name, after the second import */
};

struct terms {
    struct term v[MAX_TERMS];
    u32 n;
};

/* The subject of an extent, for messages. */
struct place {
    const struct graph *g;
    const char *what; /* "input", "output" */
    value_id v;
    const char *axis;
    const struct io_extent *x;
};

static u32 leader(const struct terms *t, u32 k)
{
    while (t->v[k].up != k) k = t->v[k].up;
    return k;
}

static bool find_term(struct terms *t, struct str name, bool is_model, u32 *out, struct err *e)
{
    for (u32 k = 0; k < t->n; k++)
        if (t->v[k].is_model == is_model && str_eq(t->v[k].name, name)) {
            *out = k;
            return true;
        }
    if (t->n == MAX_TERMS) return err_set(e, ERR_USAGE, "more than %d names of sizes", MAX_TERMS);
    *out = t->n;
    t->v[t->n] = (struct term){.name = name, .is_model = is_model, .up = t->n, .value = -1};
    t->n++;
    return true;
}

static bool conflict(const struct place *p, i64 given, i64 has, struct err *e)
{
    struct str name = graph_value(p->g, p->v)->name;
    const struct io_extent *x = p->x;
    if (x->name.n)
        return err_set(e, ERR_USAGE, "%s '%.*s', axis %s: '%.*s' is %lld, the network has %lld",
                       p->what, STR_ARG(name), p->axis, STR_ARG(x->name), (long long)given,
                       (long long)has);
    return err_set(e, ERR_USAGE, "%s '%.*s', axis %s: %lld was given, the network has %lld",
                   p->what, STR_ARG(name), p->axis, (long long)given, (long long)has);
}

static bool set_value(struct terms *t, u32 k, i64 value, bool value_is_given, const struct place *p,
                      struct err *e)
{
    struct term *l = &t->v[leader(t, k)];
    if (l->value >= 0 && l->value != value)
        return value_is_given ? conflict(p, value, l->value, e) : conflict(p, l->value, value, e);
    l->value = value;
    return true;
}

static bool join(struct terms *t, u32 a, u32 b, const struct place *p, struct err *e)
{
    u32 x = leader(t, a), y = leader(t, b);
    if (x == y) return true;
    i64 value = t->v[y].value;
    if (value >= 0 && !set_value(t, x, value, true, p, e)) return false;
    bool keep = t->v[x].is_model == t->v[y].is_model ? x < y : !t->v[x].is_model;
    if (!keep) t->v[y].value = t->v[x].value;
    t->v[keep ? y : x].up = keep ? x : y;
    return true;
}

/* Unifies one extent with the network's size there. */
static bool tie(struct terms *t, const struct place *p, sym dim, struct err *e)
{
    const struct symtab *st = p->g->sym;
    const struct sym_node *s = &st->node.v[dim];
    const struct io_extent *x = p->x;
    bool is_var = s->op == SYM_VAR, is_const = s->op == SYM_CONST;
    u32 name = 0, var = 0;
    if (x->name.n && !find_term(t, x->name, false, &name, e)) return false;
    if (is_var && !find_term(t, st->var.v[s->a], true, &var, e)) return false;
    if (x->name.n && x->value >= 0 && !set_value(t, name, x->value, true, p, e)) return false;
    if (x->name.n && is_const && !set_value(t, name, s->value, false, p, e)) return false;
    if (x->name.n && is_var) return join(t, name, var, p, e);
    if (x->value < 0) return true;
    if (is_var) return set_value(t, var, x->value, true, p, e);
    return !is_const || s->value == x->value || conflict(p, x->value, s->value, e);
}

/* The axes of the extents: (h, w, c) of a picture, or the axes in order. */
struct axes {
    u32 n;
    u32 axis[MAX_RANK];
    char name[MAX_RANK][4];
};

static bool find_axes(struct axes *a, const struct place *p, const struct io_shape *s,
                      struct err *e)
{
    const struct value *x = graph_value(p->g, p->v);
    u32 rank = x->shape.rank;
    if (s->n == 3 && (rank == 3 || rank == 4)) {
        static const char letter[] = "HWC";
        for (u32 k = 0; k < 3; k++) {
            a->axis[k] = rank - 3 + (k == 2 ? 0 : k + 1);
            a->name[k][0] = letter[k], a->name[k][1] = 0;
        }
        a->n = 3;
        return true;
    }
    if (s->n != rank)
        return err_set(e, ERR_USAGE, "%s '%.*s' has %u axes, %u extents were given", p->what,
                       STR_ARG(x->name), rank, s->n);
    a->n = rank;
    for (u32 k = 0; k < rank; k++) {
        a->axis[k] = k;
        a->name[k][0] = (char)('0' + k), a->name[k][1] = 0;
    }
    return true;
}

static bool drops_batch(const struct io_view *f, const struct value *x)
{
    return x->shape.rank == 4 && (is_picture(f->layout) || f->shape.n == 3);
}

/* One image: a symbolic batch axis becomes 1. */
static bool tie_batch(struct terms *t, struct place p, const struct io_view *f, struct err *e)
{
    const struct value *x = graph_value(p.g, p.v);
    static const struct io_extent one = {.value = 1};
    if (!drops_batch(f, x)) return true;
    p.axis = "N", p.x = &one;
    return tie(t, &p, x->shape.dim[0], e);
}

typedef bool extent_fn(struct terms *t, const struct place *p, sym dim, struct err *e);

static bool each_extent(struct terms *t, struct place p, const struct io_view *f, extent_fn *fn,
                        struct err *e)
{
    struct axes a;
    if (f->shape.n == 0) return true;
    if (!find_axes(&a, &p, &f->shape, e)) return false;
    for (u32 k = 0; k < a.n; k++) {
        p.axis = a.name[k], p.x = &f->shape.extent[k];
        struct shape s = value_given(p.g->sym, graph_value(p.g, p.v));
        if (!fn(t, &p, s.dim[a.axis[k]], e)) return false;
    }
    return true;
}

static struct place place_of(const struct graph *g, u32 k)
{
    bool is_in = k < g->input.n;
    return (struct place){.g = g,
                          .what = is_in ? "input" : "output",
                          .v = is_in ? g->input.v[k] : g->output.v[k - g->input.n]};
}

static bool tie_all(struct terms *t, const struct interface *f, const struct graph *g,
                    struct err *e)
{
    for (u32 k = 0; k < g->input.n + g->output.n; k++) {
        struct place p = place_of(g, k);
        if (!tie_batch(t, p, &f->v[k], e) || !each_extent(t, p, &f->v[k], tie, e)) return false;
    }
    return true;
}

bool interface_sizes(const struct interface *f, const struct graph *g, struct symtab *st,
                     struct err *e)
{
    struct terms t = {0};
    if (!tie_all(&t, f, g, e)) return false;
    for (u32 k = 0; k < t.n; k++) { /* all variables first: names may be exchanged */
        struct term *l = &t.v[leader(&t, k)];
        if (t.v[k].is_model && l->value < 0 && !l->size) l->size = sym_var(st, l->name);
    }
    for (u32 k = 0; k < t.n; k++) {
        const struct term *l = &t.v[leader(&t, k)];
        if (!t.v[k].is_model) continue;
        sym_define(st, t.v[k].name, l->value >= 0 ? sym_const(st, l->value) : l->size);
    }
    return true;
}

/* Compares an extent of the network after the second import with the requested one. */
static bool check_extent(struct terms *t, const struct place *p, sym dim, struct err *e)
{
    const struct io_extent *x = p->x;
    struct symtab *st = p->g->sym;
    struct buf has = {0}, want = {0};
    u32 k = 0;
    sym given = x->value >= 0 ? sym_const(st, x->value) : 0;
    if (!given && x->name.n) {
        if (!find_term(t, x->name, false, &k, e)) return false;
        if (!t->v[k].size) t->v[k].size = dim;
        given = t->v[k].size;
    }
    if (!given || given == dim) return true;
    sym_print(&has, st, dim);
    sym_print(&want, st, given);
    err_set(e, ERR_USAGE, "%s '%.*s', axis %s: %.*s%s%.*s was given, the network has %.*s", p->what,
            STR_ARG(graph_value(p->g, p->v)->name), p->axis, STR_ARG(x->name),
            x->name.n ? " = " : "", STR_ARG(buf_view(&want)), STR_ARG(buf_view(&has)));
    buf_release(&has);
    buf_release(&want);
    return false;
}

static bool check_layout(const struct place *p, enum io_layout l, struct err *e)
{
    const struct value *x = graph_value(p->g, p->v);
    const struct symtab *st = p->g->sym;
    struct str name = io_layout_name(l);
    u32 rank = x->shape.rank;
    i64 batch;
    if (last_rank(l) && rank != last_rank(l))
        return err_set(e, ERR_USAGE, "%s '%.*s' has %u axes, layout %.*s has %u", p->what, STR_ARG(x->name), rank,
                       STR_ARG(name), last_rank(l));
    if (!is_picture(l)) return true;
    if (rank != 3 && rank != 4)
        return err_set(e, ERR_USAGE, "%s '%.*s' has %u axes, layout %.*s is of pictures", p->what,
                       STR_ARG(x->name), rank, STR_ARG(name));
    if (rank == 4 && (!sym_is_const(st, x->shape.dim[0], &batch) || batch != 1))
        return err_set(e, ERR_USAGE, "%s '%.*s' has more than one picture, layout %.*s is of one",
                       p->what, STR_ARG(x->name), STR_ARG(name));
    if (l == IO_CHWC8 && !sym_is_const(st, x->shape.dim[rank - 3], NULL))
        return err_set(e, ERR_USAGE,
                       "the number of channels of %s '%.*s' is not known, layout %.*s needs it",
                       p->what, STR_ARG(x->name), STR_ARG(name));
    return true;
}

bool interface_check(const struct interface *f, const struct graph *g, struct err *e)
{
    struct terms t = {0};
    for (u32 k = 0; k < f->n; k++) {
        struct place p = place_of(g, k);
        if (!each_extent(&t, p, &f->v[k], check_extent, e)) return false;
        if (!check_layout(&p, f->v[k].layout, e)) return false;
    }
    return true;
}

/* nodes at the interface */

/* A chain of nodes from one value to the next, named after
 * the value that the caller sees; no effect after a failure. */
struct chain {
    struct graph *g;
    value_id at;
    struct str name;
    bool failed;
    struct err *e;
};

static void advance(struct chain *c, value_id to)
{
    struct node *x = graph_node(c->g, op_made(c->g, to));
    x->name = str_fmt(c->g->arena, "%.*s/%.*s", STR_ARG(c->name), STR_ARG(x->op));
    c->failed = !op_infer(c->g, op_made(c->g, to), c->e);
    c->at = to;
}

static void add_axes(struct chain *c, const char *op, i64 axis)
{
    if (!c->failed) advance(c, op_node_axes(c->g, 0, op, c->at, &axis, 1, 0));
}

static void add_cast(struct chain *c, enum dtype t)
{
    if (!c->failed) advance(c, op_node_cast(c->g, 0, c->at, t, 0));
}

/* Moves axis `from` to the place of `to`, with the others in order. */
static void add_move(struct chain *c, u32 from, u32 to)
{
    i64 perm[MAX_RANK];
    if (c->failed) return;
    u32 rank = graph_value(c->g, c->at)->shape.rank, other = 0;
    for (u32 k = 0; k < rank; k++) {
        other += k != to && other == from;
        perm[k] = k == to ? from : other++;
    }
    value_id v = op_node1(c->g, 0, "Transpose", c->at, 0);
    attr_set_ints(c->g, op_made(c->g, v), "perm", perm, rank);
    advance(c, v);
}

/* Sizes of 0 are kept. */
static void add_reshape(struct chain *c, const i64 dim[4])
{
    if (c->failed) return;
    value_id to = op_const_i(c->g, DT_I64, dim, 4);
    advance(c, op_node2(c->g, 0, "Reshape", c->at, to, 0));
}

/* The first n channels. */
static void add_slice(struct chain *c, i64 n)
{
    static const i64 zero = 0, one = 1;
    if (c->failed) return;
    value_id in[4] = {c->at, op_const_i(c->g, DT_I64, &zero, 1), op_const_i(c->g, DT_I64, &n, 1),
                      op_const_i(c->g, DT_I64, &one, 1)};
    advance(c, op_node(c->g, 0, "Slice", 4, in, 0));
}

/* n more channels of zeros. */
static void add_pad(struct chain *c, i64 n)
{
    const i64 pads[8] = {0, 0, 0, 0, 0, n, 0, 0};
    if (c->failed) return;
    value_id amount = op_const_i(c->g, DT_I64, pads, 8);
    advance(c, op_node2(c->g, 0, "Pad", c->at, amount, 0));
}

/* To whole numbers within the range of t. */
static void add_clip(struct chain *c, enum dtype t)
{
    if (c->failed) return;
    enum dtype from = graph_value(c->g, c->at)->dtype;
    advance(c, op_node1(c->g, 0, "Round", c->at, 0));
    value_id in[3] = {c->at, op_const_f(c->g, from, (double)dtype_int_extreme(t, false)),
                      op_const_f(c->g, from, (double)dtype_int_extreme(t, true))};
    if (!c->failed) advance(c, op_node(c->g, 0, "Clip", 3, in, 0));
}

/* Of an input: as named by its callers, with the same change. */
static void set_given(struct graph *g, u32 k, const struct value *inner, const struct shape *s)
{
    if (inner->given) value_set_given(g, g->input.v[k], s);
}

/* A new value replaces input k; the chain that starts at
 * it must lead to the value that the network read before. */
static struct chain open_input(struct graph *g, u32 k, enum dtype t, const struct shape *s,
                               struct err *e)
{
    value_id inner = g->input.v[k], outer = graph_add_value(g, graph_value(g, inner)->name);
    graph_value(g, outer)->dtype = t;
    graph_value(g, outer)->shape = *s;
    g->input.v[k] = outer;
    graph_swap_names(g, inner, outer);
    return (struct chain){.g = g, .at = outer, .name = graph_value(g, outer)->name, .e = e};
}

static bool close_input(const struct chain *c, value_id inner)
{
    if (!c->failed) graph_replace(c->g, inner, c->at);
    return !c->failed;
}

static struct chain open_output(struct graph *g, u32 k, struct err *e)
{
    value_id at = g->output.v[k];
    return (struct chain){.g = g, .at = at, .name = graph_value(g, at)->name, .e = e};
}

static bool close_output(const struct chain *c, u32 k)
{
    value_id inner = c->g->output.v[k];
    if (c->failed || c->at == inner) return !c->failed;
    c->g->output.v[k] = c->at;
    graph_swap_names(c->g, inner, c->at);
    return true;
}

static bool needs_batch(const struct io_view *f, const struct value *x)
{
    return x->shape.rank == 3 && (f->layout == IO_HWC || f->layout == IO_CHWC8);
}

static struct shape with_batch(struct symtab *st, const struct shape *s)
{
    struct shape r = {.known = true, .rank = s->rank + 1};
    r.dim[0] = sym_const(st, 1);
    for (u32 k = 0; k < s->rank; k++) r.dim[k + 1] = s->dim[k];
    return r;
}

static enum dtype type_of(const struct io_view *f, const struct value *x)
{
    return f->dtype == DT_NONE ? x->dtype : f->dtype;
}

static bool input_type(struct graph *g, u32 k, const struct io_view *f, struct err *e)
{
    value_id inner = g->input.v[k];
    const struct value x = *graph_value(g, inner);
    enum dtype t = type_of(f, &x);
    bool batch = needs_batch(f, &x);
    if (t == x.dtype && !batch) return true;
    struct shape s = batch ? with_batch(g->sym, &x.shape) : x.shape, seen = value_given(g->sym, &x);
    struct chain c = open_input(g, k, t, &s, e);
    if (batch) seen = with_batch(g->sym, &seen);
    set_given(g, k, &x, &seen);
    if (batch) add_axes(&c, "Squeeze", 0);
    if (t != x.dtype) add_cast(&c, x.dtype);
    return close_input(&c, inner);
}

static bool output_type(struct graph *g, u32 k, const struct io_view *f, struct err *e)
{
    struct chain c = open_output(g, k, e);
    const struct value x = *graph_value(g, c.at);
    enum dtype t = type_of(f, &x);
    if (dtype_is_float(x.dtype) && !dtype_is_float(t)) add_clip(&c, t);
    if (t != x.dtype) add_cast(&c, t);
    if (needs_batch(f, &x)) add_axes(&c, "Unsqueeze", 0);
    return close_output(&c, k);
}

bool interface_types(struct graph *g, const struct interface *f, struct err *e)
{
    for (u32 k = 0; k < g->input.n; k++)
        if (!input_type(g, k, &f->v[k], e)) return false;
    for (u32 k = 0; k < g->output.n; k++)
        if (!output_type(g, k, &f->v[g->input.n + k], e)) return false;
    return true;
}

/* layouts: a value (n, c, spatial axes), a picture (1, c, h, w), as seen by its caller */

static i64 channels(const struct graph *g, const struct value *x)
{
    i64 c = 0;
    sym_is_const(g->sym, x->shape.dim[1], &c);
    return c;
}

static struct shape seen_shape(struct graph *g, enum io_layout l, const struct value *x)
{
    const sym *d = x->shape.dim;
    struct shape s = {.known = true, .rank = l == IO_CHWC8 ? 4 : 3};
    switch (l) {
    case IO_NWC:
    case IO_NHWC:
    case IO_NDHWC:
        s = x->shape;
        for (u32 k = 2; k < s.rank; k++) s.dim[k - 1] = d[k];
        s.dim[s.rank - 1] = d[1];
        break;
    case IO_HWC: s.dim[0] = d[2], s.dim[1] = d[3], s.dim[2] = d[1]; break;
    case IO_CHW: s.dim[0] = d[1], s.dim[1] = d[2], s.dim[2] = d[3]; break;
    case IO_CHWC8:
        s.dim[0] = sym_const(g->sym, ceil_div(channels(g, x), BLOCK));
        s.dim[1] = d[2], s.dim[2] = d[3], s.dim[3] = sym_const(g->sym, BLOCK);
        break;
    case IO_AS_IS: unreachable();
    }
    return s;
}

static bool show_input(struct graph *g, u32 k, enum io_layout l, struct err *e)
{
    value_id inner = g->input.v[k];
    const struct value x = *graph_value(g, inner);
    if (l == IO_AS_IS || (is_picture(l) && x.shape.rank != 4)) return true;
    i64 c = channels(g, &x), whole = round_up(c, BLOCK);
    struct shape s = seen_shape(g, l, &x);
    struct value named = x;
    named.shape = value_given(g->sym, &x);
    struct shape seen = seen_shape(g, l, &named);
    struct chain chain = open_input(g, k, x.dtype, &s, e);
    set_given(g, k, &x, &seen);
    if (is_picture(l) && l != IO_CHWC8) add_axes(&chain, "Unsqueeze", 0);
    if (l != IO_CHW) add_move(&chain, x.shape.rank - 1, 1);
    if (l == IO_CHWC8) add_reshape(&chain, (i64[]){1, whole, 0, 0});
    if (l == IO_CHWC8 && whole != c) add_slice(&chain, c);
    return close_input(&chain, inner);
}

static bool show_output(struct graph *g, u32 k, enum io_layout l, struct err *e)
{
    struct chain chain = open_output(g, k, e);
    const struct value x = *graph_value(g, chain.at);
    if (l == IO_AS_IS || (is_picture(l) && x.shape.rank != 4)) return true;
    i64 c = channels(g, &x), whole = round_up(c, BLOCK);
    if (l == IO_CHWC8 && whole != c) add_pad(&chain, whole - c);
    if (l == IO_CHWC8) add_reshape(&chain, (i64[]){whole / BLOCK, BLOCK, 0, 0});
    if (l != IO_CHW) add_move(&chain, 1, x.shape.rank - 1);
    if (is_picture(l) && l != IO_CHWC8) add_axes(&chain, "Squeeze", 0);
    return close_output(&chain, k);
}

bool interface_show(struct graph *g, const struct interface *f, struct err *e)
{
    for (u32 k = 0; k < g->input.n; k++)
        if (!show_input(g, k, f->v[k].layout, e)) return false;
    for (u32 k = 0; k < g->output.n; k++)
        if (!show_output(g, k, f->v[g->input.n + k].layout, e)) return false;
    return graph_sort(g, e) && graph_verify(g, e);
}

void interface_layouts(struct graph *g, const struct interface *f)
{
    for (u32 k = 0; k < f->n; k++) {
        value_id v = k < g->input.n ? g->input.v[k] : g->output.v[k - g->input.n];
        struct value *x = graph_value(g, v);
        if (f->v[k].layout == IO_HWC || last_rank(f->v[k].layout)) x->layout = LAYOUT_CLAST;
        if (f->v[k].layout == IO_CHWC8) x->layout = LAYOUT_C8;
    }
}
