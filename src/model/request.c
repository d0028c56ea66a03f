// SPDX-License-Identifier: Apache-2.0
//
// Requests of callers for a network's inputs and outputs, as texts. Later requests override earlier
// ones, field by field.
#include "model/model.h"

/* Kinds of memory of other tools; here every input and output is a buffer. */
static bool check_storage(struct str s, struct err *e)
{
    static const char *const buffers[] = {"ssbo", "storagebuffer", "storage-buffer", "buffer"};
    static const char *const others[] = {"storageimage",        "storage-image", "image",
                                         "sampledstorageimage", "ssi",           "sampler"};
    for (i64 k = 0; k < countof(buffers); k++)
        if (str_glob(str_of(buffers[k]), s)) return true;
    for (i64 k = 0; k < countof(others); k++)
        if (str_glob(str_of(others[k]), s))
            return err_set(e, ERR_UNSUPPORTED, "storage '%.*s' is not supported, only SSBO", STR_ARG(s));
    return err_set(e, ERR_USAGE, "no storage '%.*s', expected SSBO", STR_ARG(s));
}

static bool read_type(struct str s, enum dtype *t, struct err *e)
{
    static const enum dtype types[] = {DT_F16, DT_F32, DT_F64, DT_U8, DT_I8};
    enum dtype x = dtype_parse(s);
    for (i64 k = 0; k < countof(types); k++)
        if (x == types[k]) {
            *t = x;
            return true;
        }
    return err_set(e, ERR_USAGE, "no type '%.*s', expected f16, f32, f64, u8 or i8", STR_ARG(s));
}

static bool read_layout(struct str s, enum io_layout *l, struct err *e)
{
    static const char *const images[] = {"rgba", "rgb", "rg", "r"};
    bool ok;
    *l = io_layout_parse(s, &ok);
    for (i64 k = 0; k < countof(images); k++)
        if (str_glob(str_of(images[k]), s))
            return err_set(e, ERR_UNSUPPORTED, "layout '%.*s' is of images, not of buffers",
                           STR_ARG(s));
    return ok || err_set(e, ERR_USAGE, "no layout '%.*s', expected HWC, CHW, CHWC8, NWC, NHWC or NDHWC", STR_ARG(s));
}

static bool apply(struct io_view *f, const struct value *x, const struct io_request *o,
                  struct arena *a, struct err *e)
{
    if (o->storage && !check_storage(str_of(o->storage), e)) return false;
    if (o->shape && !io_shape_parse(&f->shape, a, str_of(o->shape), e)) return false;
    if (o->layout && !read_layout(str_of(o->layout), &f->layout, e)) return false;
    enum dtype t = DT_NONE;
    if (!o->type) return true;
    if (!read_type(str_of(o->type), &t, e)) return false;
    if (o->name || dtype_is_float(x->dtype)) f->dtype = t;
    return true;
}

static const struct value *value_at(const struct graph *g, u32 k)
{
    return graph_value(g, k < g->input.n ? g->input.v[k] : g->output.v[k - g->input.n]);
}

static bool no_such_name(const struct graph *g, const char *name, struct err *e)
{
    struct buf list = {0};
    for (u32 k = 0; k < g->input.n + g->output.n; k++)
        buf_printf(&list, "%s%.*s", k ? ", " : "", STR_ARG(value_at(g, k)->name));
    err_set(e, ERR_USAGE, "no input or output named '%s', there are %s", name, list.p);
    buf_release(&list);
    return false;
}

bool model_interface(struct interface *f, const struct graph *g, const struct io_request *r, i64 n, struct arena *a, struct err *e)
{
    f->n = g->input.n + g->output.n;
    f->v = arena_array(a, struct io_view, f->n + 1);
    for (i64 i = 0; i < n; i++) {
        const struct io_request *x = &r[i];
        bool found = !x->name;
        for (u32 k = 0; k < f->n; k++) {
            const struct value *v = value_at(g, k);
            bool matches = x->name ? str_is(v->name, x->name) : (k >= g->input.n) == x->is_output;
            if (!matches) continue;
            found = true;
            if (!apply(&f->v[k], v, x, a, e))
                return err_prefix(e, "%s '%.*s'", k < g->input.n ? "input" : "output", STR_ARG(v->name));
        }
        if (!found) return no_such_name(g, x->name, e);
    }
    return true;
}
