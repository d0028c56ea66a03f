// SPDX-License-Identifier: Apache-2.0
//
// Resize. TFLite derives positions from sizes, with two flags; ONNX has seven ways, and scales of
// its own. What a node reads is taken from its reference evaluation of a ramp along each axis and
// compared with what TFLite would read, in each of its ways. Nearest neighbours that are none of
// these become GATHERs.
#include "export/export_tflite.h"

#include <math.h>

enum { Y, X, N_AXES };
enum way { ASYMMETRIC, HALF_PIXEL, ALIGN_CORNERS, N_WAYS };

struct resize {
    bool is_linear;
    u32 rank;
    i64 in[N_AXES], out[N_AXES];
    float *at[N_AXES]; /* per output: the position that is read */
};

/* Values of the ramp along axis k, in the middle of nothing else: all other axes are constant. */
static float *positions(struct tfl *t, const struct node *n, u32 axis)
{
    struct graph one;
    struct tensor *out = NULL;
    struct arena work = {0};
    node_id id = tfl_node(t, n);
    i64 x[MAX_RANK], y[MAX_RANK], inner = 1, step = 1;
    value_id v = n->out.v[0], *back;
    u32 rank = graph_value(&t->g, v)->shape.rank;
    tfl_dims(t, n->in.v[0], TFL_ROWS, x);
    tfl_dims(t, v, TFL_ROWS, y);
    for (u32 k = axis + 1; k < rank; k++) inner *= x[k], step *= y[k];
    struct tensor *ramp = tensor_try(&work, DT_F32, rank, x, t->e, "ramp", S(""));
    float *at = arena_array(t->a, float, y[axis]);
    for (i64 i = 0; ramp && i < tensor_count(ramp); i++)
        ((float *)ramp->data)[i] = (float)(i / inner % x[axis]);
    graph_extract(&one, &t->g, &work, &id, 1, &v, 1, &back);
    graph_value(&one, one.input.v[0])->dtype = DT_F32;
    if (!ramp || !op_infer_all(&one, t->e) || !graph_eval(&one, &ramp, &out, &work, NULL, t->e))
        at = NULL;
    for (i64 i = 0; at && i < y[axis]; i++)
        at[i] = (float)elem_f64(out->dtype, out->data, i * step);
    arena_release(&work);
    return at;
}

static bool read_resize(struct tfl *t, const struct node *n, struct resize *r)
{
    i64 x[MAX_RANK], y[MAX_RANK];
    struct op_resize o = {0};
    *r = (struct resize){.is_linear = str_is(n->op, "quern::Resize"), .in = {1, 1}, .out = {1, 1}};
    r->rank = graph_value(&t->g, n->in.v[0])->shape.rank;
    tfl_dims(t, n->in.v[0], TFL_ROWS, x);
    tfl_dims(t, n->out.v[0], TFL_ROWS, y);
    if (r->rank != 3 && r->rank != 4) return tfl_refuse(t, n, "%u axes", r->rank);
    if (x[0] != y[0] || x[1] != y[1]) return tfl_refuse(t, n, "scales of batch or channels");
    if (r->is_linear && (!op_resize_get(&t->g, n, &o) || o.mode != RESIZE_LINEAR || o.antialias ||
                         o.coord == COORD_TF_CROP))
        return tfl_refuse(t, n, "a mode other than nearest and linear");
    for (u32 k = 2; k < r->rank; k++) {
        u32 to = k + N_AXES - r->rank;
        r->in[to] = x[k], r->out[to] = y[k];
        if (!(r->at[to] = positions(t, n, k))) return false;
    }
    if (r->rank == 3) r->at[Y] = arena_new(t->a, float);
    return true;
}

/* The position that TFLite reads, in its own arithmetic. */
static float position(const struct resize *r, u32 k, i64 i, enum way w)
{
    bool is_aligned = w == ALIGN_CORNERS && r->out[k] > 1;
    float scale = is_aligned ? (float)(r->in[k] - 1) / (float)(r->out[k] - 1)
                             : (float)r->in[k] / (float)r->out[k],
          last = (float)(r->in[k] - 1);
    float offset = w == HALF_PIXEL ? 0.5f : 0, at = ((float)i + offset) * scale;
    if (r->is_linear) return fminf(fmaxf(at - offset, 0), last);
    return fminf(w == ALIGN_CORNERS ? roundf(at) : floorf(at), last);
}

static bool is_way(const struct resize *r, enum way w)
{
    for (u32 k = 0; k < N_AXES; k++)
        for (i64 i = 0; i < r->out[k]; i++)
            if (fabsf(position(r, k, i, w) - r->at[k][i]) >
                (r->is_linear ? 1e-5f * (float)r->in[k] : 0))
                return false;
    return true;
}

static bool by_gathers(struct tfl *t, const struct node *n, const struct resize *r, tfl_id x)
{
    for (u32 k = 0; k < N_AXES; k++) {
        struct tfl_tensor to = *tfl_at(t, x);
        i64 *at = arena_array(t->a, i64, r->out[k]);
        if (r->in[k] == 1 && r->out[k] == 1) continue;
        u32 axis = k + r->rank - 3; /* of (n, h, w, c) or (n, w, c) */
        for (i64 i = 0; i < r->out[k]; i++) at[i] = (i64)r->at[k][i];
        to.dim[axis] = r->out[k];
        tfl_id list = tfl_ints(t, "rows", (u32)r->out[k], at),
               y = tfl_like(t, x, "rows", to.rank, to.dim);
        tfl_emit(t, TFL_GATHER, y, 2, (tfl_id[]){x, list});
        tfl_options(t, "Gather", "\"axis\":%u", axis);
        x = y;
    }
    return tfl_settle(t, n, 0, TFL_CLAST, x);
}

bool tfl_resize(struct tfl *t, const struct node *n)
{
    struct resize r;
    i64 d[MAX_RANK];
    enum way w = ASYMMETRIC;
    if (!read_resize(t, n, &r)) return false;
    tfl_id x = tfl_in(t, n, 0, TFL_CLAST);
    if (!x) return false;
    while (w < N_WAYS && !is_way(&r, w)) w++;
    if (w == N_WAYS)
        return r.is_linear
                   ? tfl_refuse(t, n,
                                "positions that TFLite does not read; export it with half_pixel, "
                                "align_corners or asymmetric, and sizes that are multiples")
                   : by_gathers(t, n, &r, x);
    tfl_dims(t, n->in.v[0], TFL_ROWS, d);
    if (r.rank == 3) x = tfl_reshape(t, x, 4, (i64[]){d[0], 1, d[2], d[1]}, 0);
    tfl_id y = tfl_like(t, x, "resized", 4, (i64[]){d[0], r.out[Y], r.out[X], d[1]}),
           size = tfl_ints(t, "size", N_AXES, r.out);
    tfl_emit(t, r.is_linear ? TFL_RESIZE_BILINEAR : TFL_RESIZE_NEAREST_NEIGHBOR, y, 2,
             (tfl_id[]){x, size});
    tfl_options(t, r.is_linear ? "Bilinear" : "Nearest", "\"align_corners\":%s,\"half_pixel\":%s",
                w == ALIGN_CORNERS ? "true" : "false", w == HALF_PIXEL ? "true" : "false");
    if (r.rank == 3) y = tfl_reshape(t, y, 3, (i64[]){d[0], r.out[X], d[1]}, 0);
    return tfl_settle(t, n, 0, TFL_CLAST, y);
}
