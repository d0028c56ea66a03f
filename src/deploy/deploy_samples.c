// SPDX-License-Identifier: Apache-2.0
//
// Recorded inputs of a sub-graph as files for vendors' quantisers.
#include "deploy/deploy.h"

#include <string.h>

/* The sub-graph's inputs are those of the job's network, in its order. */
bool deploy_check_samples(const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    i64 dim[MAX_RANK];
    for (u32 k = 0; k < j->samples->n; k++)
        for (u32 i = 0; i < x->g.input.n; i++) {
            const struct value *v = graph_value(&x->g, x->g.input.v[i]);
            const struct tensor *t = j->samples->v[k][i];
            bool same = shape_is_static(x->g.sym, &v->shape, dim) && t->rank == v->shape.rank;
            for (u32 a = 0; same && a < t->rank; a++) same = t->dim[a] == dim[a];
            if (same) continue;
            struct buf b = {0};
            for (u32 a = 0; a < t->rank; a++) buf_printf(&b, "%s%lld", a ? "," : "", (long long)t->dim[a]);
            buf_z(&b, "] instead of [");
            for (u32 a = 0; a < v->shape.rank; a++) buf_printf(&b, "%s%lld", a ? "," : "", (long long)dim[a]);
            err_set(e, ERR_INPUT, "calibration data: sample %u has [%.*s] at input '%.*s' of this sub-graph; %s takes one size", k, STR_ARG(buf_view(&b)),
                    STR_ARG(v->name), j->device->kind->name);
            buf_release(&b);
            return false;
        }
    return true;
}

struct str deploy_raw_path(const struct deploy_net *x, const struct deploy_job *j, const struct deploy_raw *r, u32 input, u32 k)
{
    return str_fmt(j->arena, "%s/%.*s/%u%s", r->folder, STR_ARG(graph_value(&x->g, x->g.input.v[input])->name), k, r->suffix);
}

/* Element i of the file, as an element of the tensor: batch, channels, then the other axes in the tensor; channels last in the file. */
static i64 element_of(const struct tensor *t, enum deploy_layout l, i64 i)
{
    if (l == DEPLOY_ROWS || t->rank < 3) return i;
    i64 channels = t->dim[1], inner = i64_product(t->rank - 2, t->dim + 2);
    i64 c = i % channels, at = i / channels % inner, batch = i / channels / inner;
    return (batch * channels + c) * inner + at;
}

static bool raw_of(struct str *out, const struct tensor *t, enum deploy_layout l, const struct deploy_job *j, struct err *e)
{
    enum dtype to = dtype_is_float(t->dtype) ? DT_F32 : DT_I32;
    i64 n = tensor_count(t);
    char *p = arena_try(j->arena, n * 4, e, "calibration data");
    if (!p) return false;
    for (i64 i = 0; i < n; i++) {
        i64 at = element_of(t, l, i);
        if (to == DT_F32) elem_set_f64(to, p, i, elem_f64(t->dtype, t->data, at));
        else elem_set_i64(to, p, i, elem_i64(t->dtype, t->data, at));
    }
    *out = (struct str){p, n * 4};
    return true;
}

bool deploy_add_raw(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_net *x, const struct deploy_job *j, const struct deploy_raw *r,
                    struct err *e)
{
    struct str content;
    for (u32 k = 0; k < j->samples->n; k++)
        for (u32 i = 0; i < x->g.input.n; i++) {
            if (!raw_of(&content, j->samples->v[k][i], r->layout, j, e)) return false;
            if (!deploy_add(files, s, j, deploy_raw_path(x, j, r, i, k).p, META_CALIBRATION, content, e)) return false;
        }
    return true;
}
