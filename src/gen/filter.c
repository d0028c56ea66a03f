// SPDX-License-Identifier: Apache-2.0
//
// filter: tasks of filters with weights per pixel taken apart, and the strips of an image with their bands (filter.h).
#include "gen/filter.h"

bool filtering_of(struct filtering *q, const struct task *t, u32 props)
{
    const struct graph *g = &t->g;
    if (!t->anchor || t->n_heavy != 1 || !(op_of(g, t->anchor)->props & props) || !g->output.n) return false;
    const struct node *n = graph_node(g, t->anchor);
    bool grad = op_of(g, t->anchor)->props & OP_FILTER_GRAD;
    *q = (struct filtering){.g = g, .met = n->in.v[grad], .side = n->in.v[!grad], .out = n->out.v[0], .simple = true};
    op_filter_get(n, &q->f);
    const struct shape *out = &graph_value(g, q->out)->shape, *met = &graph_value(g, q->met)->shape;
    q->channels = gen_static(g, met->dim[1], 0), q->taps = q->f.kernel[0] * q->f.kernel[1];
    q->batch = out->dim[0], q->size[0] = out->dim[2], q->size[1] = out->dim[3];
    q->type = emit_type(graph_value(g, n->in.v[0])->dtype);
    for (u32 i = 0; i < g->output.n; i++) {
        value_id v = g->output.v[i];
        bool tail = gen_depends(g, v, q->out) && gen_pointwise_tail(g, v, q->out);
        if (!tail || layout_block(graph_value(g, v)->layout) > 1 || !shape_equal(&graph_value(g, v)->shape, out)) q->simple = false;
    }
    return q->channels > 0;
}

i64 filtering_size(const struct filtering *q, u32 axis, const i64 *var) { return i64_max(1, gen_eval(q->g, q->size[axis], var)); }

u32 filtering_lanes(const struct filtering *q, const struct caps *caps)
{
    return gen_static(q->g, q->size[1], 2) == 1 ? 1 : gen_lanes(caps, q->type);
}

void filtering_reads(struct filtering *q, const struct caps *caps)
{
    struct probe p;
    u32 lanes = filtering_lanes(q, caps);
    q->by_taps = false;
    if (lanes < 2 || q->taps < 2) return;
    space_probe_channels(&p, q->g, q->side, 0, lanes);
    q->by_taps = p.n_dense && !p.n_gather;
}

bool filtering_may_stream(const struct filtering *q, const struct caps *caps, i64 nr)
{
    const struct value *out = graph_value(q->g, q->g->output.v[0]);
    return q->simple && out->layout == LAYOUT_ROWS && gen_may_nt(q->g, caps, nr * filtering_lanes(q, caps) * dtype_size(out->dtype));
}

static i64 reach(const struct filtering *q, u32 i) { return (q->f.kernel[i] - 1) * q->f.dilation[i]; }

/* From an output to the first input position of a tap. */
static i64 first(const struct filtering *q, u32 i) { return q->f.splat ? q->f.begin[i] - reach(q, i) : -q->f.begin[i]; }

static sym parts(const struct strip *s, u32 i)
{
    struct symtab *t = s->m->g->sym;
    i64 size = i ? s->tw : s->th;
    return size ? sym_cdiv(t, s->q->size[i], sym_const(t, size)) : sym_const(t, 1);
}

static void open_part(struct strip *s, u32 i, kval part, kval *from, kval *to)
{
    struct kir *k = s->m->k;
    i64 size = i ? s->tw : s->th;
    kval all = emit_size(s->m, s->q->size[i]);
    *from = size ? kir_mul_i(k, part, size) : kir_int(k, 0);
    *to = size ? kir_min(k, kir_add_i(k, *from, size), all) : all;
}

static kval element(const struct strip *s, kval row, kval plane, kval col)
{
    struct kir *k = s->m->k;
    kval line = kir_add(k, kir_mul_i(k, row, s->planes), plane);
    return kir_add(k, kir_mul(k, line, emit_size(s->m, s->width)), col);
}

kval strip_at(const struct strip *s, kval plane, kval y, kval x, kval i, kval j)
{
    struct kir *k = s->m->k;
    const struct op_filter *f = &s->q->f;
    if (f->splat) i = kir_sub(k, kir_int(k, f->kernel[0] - 1), i), j = kir_sub(k, kir_int(k, f->kernel[1] - 1), j);
    kval row = kir_add(k, kir_sub(k, y, s->y0), kir_mul_i(k, i, f->dilation[0]));
    return element(s, row, plane, kir_add(k, kir_sub(k, x, s->x0), kir_mul_i(k, j, f->dilation[1])));
}

/* What is copied: row y of a plane of the image, or ones, to a row of the band. */
struct line {
    kval row, plane, y, begin; /* begin: the image's column that the band's first holds */
    bool ones;
};

/* A vector of the row from x on, or the first n of it. */
static void copy_vector(const struct strip *s, const struct line *l, kval x, kval to, kval n)
{
    struct emit *m = s->m;
    struct kir *k = m->k;
    kval v = kir_const_f(k, s->q->type, s->lanes, 1);
    emit_limit(m, n);
    if (!l->ones) v = emit_value(m, s->q->met, (kval[]){s->n, l->plane, l->y, kir_ramp(k, x, 1, s->lanes)});
    emit_limit(m, 0);
    kir_store_n(k, s->band, kir_ramp(k, to, 1, s->lanes), kir_splat(k, kir_cast(k, s->q->type, v), s->lanes), n);
}

static kval copy_to(const struct strip *s, const struct line *l, kval x)
{
    return element(s, l->row, l->plane, kir_sub(s->m->k, x, l->begin));
}

static void copy_vectors(const struct strip *s, const struct line *l, kval from, kval to)
{
    struct kir *k = s->m->k;
    kval n = kir_max(k, kir_sub(k, to, from), kir_int(k, 0)), whole = kir_mul_i(k, kir_div_i(k, n, s->lanes), s->lanes), at = copy_to(s, l, from);
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), whole, s->lanes);
    copy_vector(s, l, kir_add(k, from, i), kir_add(k, at, i), 0);
    kir_end(k);
    kir_if(k, kir_lt(k, whole, n));
    copy_vector(s, l, kir_add(k, from, whole), kir_add(k, at, whole), kir_sub(k, n, whole));
    kir_end(k);
}

/* One by one: columns of a pad, which are few. */
static void copy_pixels(const struct strip *s, const struct line *l, kval from, kval to)
{
    struct kir *k = s->m->k;
    kval x = kir_loop(k, KL_SERIAL, from, to, 1);
    kval v = emit_value(s->m, s->q->met, (kval[]){s->n, l->plane, l->y, x});
    kir_store(k, s->band, copy_to(s, l, x), kir_cast(k, s->q->type, v));
    kir_end(k);
}

static void copy_line(const struct strip *s, kval row, kval plane, kval y, bool ones)
{
    struct emit *m = s->m;
    struct kir *k = m->k;
    sym pad_begin, pad_end;
    struct line l = {.row = row, .plane = plane, .y = y, .begin = kir_add_i(k, s->x0, first(s->q, 1)), .ones = ones};
    kval from = kir_max(k, l.begin, kir_int(k, 0)), to = kir_min(k, emit_dim(m, s->q->met, 3), kir_add(k, l.begin, emit_size(m, s->width)));
    if (ones || !op_pad_inner(s->q->g, s->q->met, 3, &pad_begin, &pad_end)) {
        copy_vectors(s, &l, from, to);
        return;
    }
    kval a = kir_min(k, kir_max(k, emit_size(m, pad_begin), from), to), b = kir_max(k, kir_min(k, emit_size(m, pad_end), to), a);
    copy_pixels(s, &l, from, a);
    emit_inside(m, s->q->met, 1 << 3);
    copy_vectors(s, &l, a, b);
    emit_inside(m, 0, 0);
    copy_pixels(s, &l, b, to);
}

static void fill(const struct strip *s)
{
    struct emit *m = s->m;
    struct kir *k = m->k;
    kval zero = kir_int(k, 0), row = kir_loop(k, KL_SERIAL, zero, emit_size(m, s->rows), 1);
    kval line = kir_mul_i(k, emit_size(m, s->width), s->planes), y = kir_add_i(k, kir_add(k, s->y0, row), first(s->q, 0));
    kval i = kir_loop(k, KL_SERIAL, zero, line, s->lanes);
    kval to = kir_add(k, kir_mul(k, row, line), i);
    kir_store(k, s->band, kir_ramp(k, to, 1, s->lanes), kir_const_f(k, s->q->type, s->lanes, 0));
    kir_end(k);
    kir_if(k, gen_is_inside(k, y, emit_dim(m, s->q->met, 2)));
    kval c = kir_loop(k, KL_SERIAL, zero, kir_int(k, s->q->channels), 1);
    copy_line(s, row, c, y, false);
    kir_end(k);
    if (s->planes > s->q->channels) copy_line(s, row, kir_int(k, s->q->channels), y, true);
    kir_end(k);
    kir_end(k);
}

void strip_open(struct strip *s)
{
    struct kir *k = s->m->k;
    struct symtab *t = s->m->g->sym;
    sym lanes = sym_const(t, s->lanes), width = s->tw ? sym_const(t, s->tw) : s->q->size[1];
    s->rows = sym_const(t, s->th + reach(s->q, 0));
    width = sym_add(t, sym_mul(t, sym_cdiv(t, width, lanes), lanes), sym_const(t, reach(s->q, 1)));
    s->width = sym_mul(t, sym_cdiv(t, width, lanes), lanes);
    s->n = kir_grid(k, emit_size(s->m, s->q->batch));
    kval down = kir_grid(k, emit_size(s->m, parts(s, 0))), across = kir_grid(k, emit_size(s->m, parts(s, 1)));
    open_part(s, 0, down, &s->y0, &s->y1);
    open_part(s, 1, across, &s->x0, &s->x1);
    s->band = kir_alloc(k, KS_WORK, s->q->type, 1, emit_size(s->m, sym_mul(t, sym_mul(t, s->rows, s->width), sym_const(t, s->planes))));
    fill(s);
}

void strip_close(struct strip *s)
{
    for (u32 i = 0; i < 3; i++) kir_end(s->m->k);
}

double strip_band_bytes(const struct filtering *q, i64 planes, i64 th, i64 tw, const i64 *var)
{
    double width = (double)(tw ? tw : filtering_size(q, 1, var)) + (double)reach(q, 1);
    return (double)((th + reach(q, 0)) * planes * dtype_size(q->type)) * width;
}
