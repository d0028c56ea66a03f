// SPDX-License-Identifier: Apache-2.0
//
// model.meta: a deployment's description as protobuf and back (doc/meta.proto).
#include "art/meta_file.h"

const char *meta_role_name(enum meta_role r)
{
    static const char *const name[N_META_ROLES] = {"program", "kernel", "weights", "blob", "network", "calibration", "script", "fallback"};
    return name[r];
}

bool meta_is_model(struct str bytes) { return meta_is_kind(bytes, meta_model_kind); }
bool meta_is_program(struct str bytes) { return meta_is_kind(bytes, meta_program_kind); }

/* Reading. */

static bool read_tensor(struct meta_tensor *t, struct arena *a, const Quern__Tensor *x, struct err *e)
{
    *t = (struct meta_tensor){.name = meta_text(a, x->name), .origin = meta_text(a, x->origin), .dtype = dtype_parse(str_of(x->dtype)), .rank = (u32)x->n_dim};
    if (t->dtype == DT_NONE) return err_set(e, ERR_INPUT, "tensor '%.100s': dtype is unknown: '%.20s'", x->name, x->dtype);
    if (x->n_dim > MAX_RANK) return err_set(e, ERR_INPUT, "tensor '%.100s': dim has %zu entries, at most %d are possible", x->name, x->n_dim, MAX_RANK);
    for (u32 d = 0; d < t->rank; d++) t->dim[d] = meta_text(a, x->dim[d]);
    return true;
}

#define COPY_LIST(a, to, from, count) \
    for (size_t i_ = 0; i_ < (count); i_++) *arr_push((a), (to)) = (from)[i_]

static bool read_subgraph(struct meta_subgraph *s, struct arena *a, const Quern__Subgraph *x, struct err *e)
{
    *s = (struct meta_subgraph){.name = meta_text(a, x->name), .device = meta_text(a, x->device), .framework = meta_text(a, x->framework),
                                .target = meta_text(a, x->target), .seconds = x->seconds, .missing = meta_text(a, x->missing)};
    for (size_t i = 0; i < x->n_op; i++) *arr_push(a, &s->op) = meta_text(a, x->op[i]);
    COPY_LIST(a, &s->in, x->input, x->n_input);
    COPY_LIST(a, &s->out, x->output, x->n_output);
    COPY_LIST(a, &s->after, x->after, x->n_after);
    for (size_t i = 0; i < x->n_file; i++)
        if (!meta_read_entry(arr_push(a, &s->file), a, x->file[i], e)) return err_prefix(e, "sub-graph '%.100s': file", x->name);
    return true;
}

bool meta_read_model(struct meta_model *m, struct arena *a, struct str bytes, struct err *e)
{
    struct arena tmp = {0};
    *m = (struct meta_model){.name = {0}};
    const Quern__Model *x = meta_unwrap(&quern__model__descriptor, meta_model_kind, &tmp, bytes, e);
    bool ok = x != NULL;
    if (ok) m->name = meta_text(a, x->name);
    for (size_t i = 0; ok && i < x->n_tensor; i++) ok = read_tensor(arr_push(a, &m->tensor), a, x->tensor[i], e) && mem_check(e, "reading ", S(META_MODEL_FILE));
    for (size_t i = 0; ok && i < x->n_subgraph; i++) ok = read_subgraph(arr_push(a, &m->subgraph), a, x->subgraph[i], e) && mem_check(e, "reading ", S(META_MODEL_FILE));
    if (ok) {
        COPY_LIST(a, &m->input, x->input, x->n_input);
        COPY_LIST(a, &m->output, x->output, x->n_output);
        ok = meta_verify_model(m, e);
    }
    arena_release(&tmp);
    return ok || err_prefix(e, META_MODEL_FILE);
}

/* Writing. */

static Quern__Tensor *write_tensor(struct arena *a, const struct meta_tensor *t)
{
    Quern__Tensor *x = arena_new(a, Quern__Tensor);
    quern__tensor__init(x);
    x->name = meta_z(a, t->name), x->origin = meta_z(a, t->origin), x->dtype = meta_z(a, str_of(dtype_name(t->dtype)));
    x->n_dim = t->rank, x->dim = arena_array(a, char *, t->rank + 1);
    for (u32 d = 0; d < t->rank; d++) x->dim[d] = meta_z(a, t->dim[d]);
    return x;
}

static Quern__Subgraph *write_subgraph(struct arena *a, const struct meta_subgraph *s)
{
    Quern__Subgraph *x = arena_new(a, Quern__Subgraph);
    quern__subgraph__init(x);
    x->name = meta_z(a, s->name), x->device = meta_z(a, s->device), x->framework = meta_z(a, s->framework), x->target = meta_z(a, s->target);
    x->seconds = s->seconds, x->missing = meta_z(a, s->missing);
    x->n_op = s->op.n, x->op = arena_array(a, char *, s->op.n + 1);
    for (u32 i = 0; i < s->op.n; i++) x->op[i] = meta_z(a, s->op.v[i]);
    x->n_input = s->in.n, x->input = s->in.v;
    x->n_output = s->out.n, x->output = s->out.v;
    x->n_after = s->after.n, x->after = s->after.v;
    x->n_file = s->file.n, x->file = arena_array(a, Quern__File *, s->file.n + 1);
    for (u32 i = 0; i < s->file.n; i++) x->file[i] = meta_write_entry(&s->file.v[i], a);
    return x;
}

bool meta_write_model(struct buf *out, const struct meta_model *m, struct err *e)
{
    struct arena a = {0};
    if (!meta_verify_model(m, e)) return err_prefix(e, META_MODEL_FILE);
    Quern__Model x = QUERN__MODEL__INIT;
    x.name = meta_z(&a, m->name);
    x.n_tensor = m->tensor.n, x.tensor = arena_array(&a, Quern__Tensor *, m->tensor.n + 1);
    for (u32 i = 0; i < m->tensor.n; i++) x.tensor[i] = write_tensor(&a, &m->tensor.v[i]);
    x.n_subgraph = m->subgraph.n, x.subgraph = arena_array(&a, Quern__Subgraph *, m->subgraph.n + 1);
    for (u32 i = 0; i < m->subgraph.n; i++) x.subgraph[i] = write_subgraph(&a, &m->subgraph.v[i]);
    x.n_input = m->input.n, x.input = m->input.v;
    x.n_output = m->output.n, x.output = m->output.v;
    bool ok = meta_wrap(out, meta_model_kind, &x.base, e) || err_prefix(e, META_MODEL_FILE);
    arena_release(&a);
    return ok;
}
