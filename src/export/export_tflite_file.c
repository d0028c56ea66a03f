// SPDX-License-Identifier: Apache-2.0
//
// A model of TFLite as a file. TFLite's format is a FlatBuffer. Debian has a library of FlatBuffers
// for C++ and Python, and flatc, its compiler, which converts JSON to the binary form by a schema;
// so the model is printed as JSON and laid out by flatc with our schema (tflite.fbs). In JSON
// weights would take four times their size, and a hundred times of it in flatc's memory. Therefore
// flatc gets the number of each constant where the format has the offset of its bytes, and the
// bytes are appended here as vectors, aligned to 16 bytes as TFLite's own schema demands.
#include "export/export_tflite.h"

#include <string.h>

enum { ALIGN = 16, MAX_MESSAGE = 600, BUFFERS = 4 /* field of Model */, TIMEOUT = 600 };

static const char schema[] =
#include "tflite_schema.inc"
    ;

struct codes { /* distinct operators: code and version */
    struct {
        enum tfl_code code;
        i32 version;
    } * v;
    u32 n, cap;
};

/* JSON. */

static const char *type_name(enum tfl_type type)
{
    switch (type) {
    case TFL_F32: return "FLOAT32";
    case TFL_F16: return "FLOAT16";
    case TFL_I32: return "INT32";
    case TFL_U8: return "UINT8";
    case TFL_I64: return "INT64";
    case TFL_BOOL: return "BOOL";
    case TFL_I16: return "INT16";
    case TFL_I8: return "INT8";
    }
    unreachable();
}

static void print_ints(struct buf *b, const char *name, u32 n, const i64 *v)
{
    buf_printf(b, ",\"%s\":[", name);
    for (u32 k = 0; k < n; k++) buf_printf(b, "%s%lld", k ? "," : "", (long long)v[k]);
    buf_char(b, ']');
}

/* Ids count from 1 here, from 0 in files; an omitted tensor is -1. */
static void print_ids(struct buf *b, const char *name, u32 n, const tfl_id *v)
{
    buf_printf(b, ",\"%s\":[", name);
    for (u32 k = 0; k < n; k++) buf_printf(b, "%s%d", k ? "," : "", (int)v[k] - 1);
    buf_char(b, ']');
}

static void print_quant(struct buf *b, const struct tfl_quant *q)
{
    buf_z(b, ",\"quantization\":{\"scale\":[");
    for (u32 k = 0; k < q->n; k++) {
        if (k) buf_char(b, ',');
        buf_f64(b, (double)q->scale[k]);
    }
    buf_char(b, ']');
    print_ints(b, "zero_point", q->n, q->zero);
    if (q->n > 1) buf_printf(b, ",\"axis\":%u", q->axis);
    buf_char(b, '}');
}

static void print_tensor(struct buf *b, const struct tfl_tensor *x, u32 buffer)
{
    buf_printf(b, "{\"type\":\"%s\",\"buffer\":%u,\"name\":", type_name(x->type), buffer);
    buf_json_str(b, x->name);
    print_ints(b, "shape", x->rank, x->dim);
    if (x->q.n) print_quant(b, &x->q);
    buf_char(b, '}');
}

static u32 code_index(const struct codes *c, enum tfl_code code, i32 version)
{
    for (u32 k = 0; k < c->n; k++)
        if (c->v[k].code == code && c->v[k].version == version) return k;
    return c->n;
}

static void print_operator(struct buf *b, const struct tfl_operator *o, u32 opcode)
{
    buf_printf(b, "{\"opcode\":%u", opcode);
    print_ids(b, "inputs", o->in.n, o->in.v);
    print_ids(b, "outputs", o->out.n, o->out.v);
    if (o->options)
        buf_printf(b, ",\"options_type\":\"%s\",\"options\":{%.*s}", o->options,
                   STR_ARG(o->fields));
    buf_char(b, '}');
}

static void print_codes(struct buf *b, const struct codes *c)
{
    enum {
        OLD_MOST = 127
    }; /* larger ones are in the newer field alone, and the older one holds this */
    buf_z(b, "\"operator_codes\":[");
    for (u32 k = 0; k < c->n; k++)
        buf_printf(b, "%s{\"old_code\":%d,\"version\":%d,\"code\":%d}", k ? "," : "",
                   (int)i64_min(c->v[k].code, OLD_MOST), (int)c->v[k].version, (int)c->v[k].code);
    buf_char(b, ']');
}

static void print_named(struct buf *b, const char *what, u32 n, const struct str *name,
                        const tfl_id *v)
{
    buf_printf(b, "\"%s\":[", what);
    for (u32 k = 0; k < n; k++) {
        buf_z(b, k ? ",{\"name\":" : "{\"name\":");
        buf_json_str(b, name[k]);
        buf_printf(b, ",\"tensor\":%u}", v[k] - 1);
    }
    buf_z(b, "],");
}

static void print_graph(struct buf *b, const struct tfl *t, const struct codes *c)
{
    const struct tfl_model *m = &t->m;
    u32 n_consts = 0;
    buf_z(b, ",\"subgraphs\":[{\"name\":\"main\",\"tensors\":[");
    for (tfl_id k = 1; k < m->tensor.n; k++) {
        if (k > 1) buf_z(b, ",\n");
        print_tensor(b, &m->tensor.v[k], m->tensor.v[k].data ? ++n_consts : 0);
    }
    buf_char(b, ']');
    print_ids(b, "inputs", m->input.n, m->input.v);
    print_ids(b, "outputs", m->output.n, m->output.v);
    buf_z(b, ",\"operators\":[");
    for (u32 k = 0; k < m->op.n; k++) {
        const struct tfl_operator *o = &m->op.v[k];
        if (k) buf_z(b, ",\n");
        print_operator(b, o, code_index(c, o->code, o->version));
    }
    buf_z(b, "]}],\"buffers\":[{}");
    for (u32 k = 1; k <= n_consts; k++) buf_printf(b, ",{\"data\":%u}", k);
    buf_char(b, ']');
}

static void print_model(struct buf *b, const struct tfl *t)
{
    const struct tfl_model *m = &t->m;
    struct codes c = {0};
    for (u32 k = 0; k < m->op.n; k++) {
        const struct tfl_operator *o = &m->op.v[k];
        if (code_index(&c, o->code, o->version) < c.n) continue;
        arr_push(t->a, &c)->code = o->code;
        c.v[c.n - 1].version = o->version;
    }
    buf_z(b, "{\"version\":3,\"description\":\"quern\",");
    print_codes(b, &c);
    print_graph(b, t, &c);
    buf_z(b, ",\"signatures\":[{\"key\":\"serving_default\",");
    print_named(b, "inputs", m->input.n, m->in_name.v, m->input.v);
    print_named(b, "outputs", m->output.n, m->out_name.v, m->output.v);
    buf_z(b, "\"subgraph\":0}]}\n");
}

/* flatc. */

static bool run_flatc(const char *const *argv, struct err *e)
{
    struct buf said = {0};
    struct os_status s =
        os_run(&(struct os_proc_opts){.argv = argv, .timeout = TIMEOUT, .out = &said});
    bool ok = s.how == OS_EXITED && s.code == 0;
    if (s.how == OS_NOT_STARTED || (s.how == OS_EXITED && s.code == 127))
        err_set(e, ERR_SYSTEM,
                "cannot run 'flatc', which writes FlatBuffers: install flatbuffers-compiler "
                "(tool/deps tflite)");
    else if (s.how == OS_STOPPED) err_set(e, ERR_STOPPED, "stopped");
    else if (!ok)
        err_set(e, ERR_FAILED, "'flatc' failed: %.*s", (int)i64_min(said.n, MAX_MESSAGE),
                said.p ? said.p : "");
    buf_release(&said);
    return ok;
}

static bool lay_out_in(const struct tfl *t, struct str dir, struct str json, struct str *out)
{
    const char *fbs = str_fmt(t->a, "%.*s/tflite.fbs", STR_ARG(dir)).p,
               *in = str_fmt(t->a, "%.*s/model.json", STR_ARG(dir)).p;
    const char *argv[] = {"flatc", "--binary", "--allow-non-utf8", "-o", str_z(t->a, dir), fbs,
                          in,      NULL};
    return os_write(fbs, schema, (i64)sizeof schema - 1, t->e) &&
           os_write(in, json.p, json.n, t->e) && run_flatc(argv, t->e) &&
           os_read(t->a, str_fmt(t->a, "%.*s/model.tflite", STR_ARG(dir)).p, INT32_MAX, out, t->e);
}

static bool lay_out(const struct tfl *t, struct str *out)
{
    struct buf json = {0};
    struct str dir;
    print_model(&json, t);
    bool ok = !json.failed || err_set(t->e, ERR_SYSTEM, "out of memory");
    if (ok && (ok = os_temp_dir(t->a, &dir, t->e))) {
        ok = lay_out_in(t, dir, buf_view(&json), out);
        os_remove_tree(str_z(t->a, dir));
    }
    buf_release(&json);
    return ok;
}

/* Content of constants. A FlatBuffer is read as far as its buffers: a table begins with the
   distance back to its vtable, which has the places of its fields from byte 4 on; an offset counts
   from where it is stored. */

static u32 get32(const u8 *p)
{
    return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}

static void put32(u8 *p, u32 v)
{
    for (u32 k = 0; k < 4; k++) p[k] = (u8)(v >> 8 * k);
}

/* The place of a field of the table at `table`; 0: it is not stored. */
static i64 field_at(const u8 *p, i64 table, u32 field)
{
    i64 vtable = table - (i32)get32(p + table), at = 4 + 2 * (i64)field;
    if (at + 2 > (p[vtable] | p[vtable + 1] << 8)) return 0;
    i64 place = p[vtable + at] | p[vtable + at + 1] << 8;
    return place ? table + place : 0;
}

/* Appends the constants that the buffers name by their numbers, and points the buffers at them. */
static bool append_constants(const struct tfl *t, u8 *p, i64 n, struct tfl_pieces *out)
{
    static const char zeros[ALIGN];
    i64 buffers = field_at(p, get32(p), BUFFERS), at = n;
    buffers += get32(p + buffers);
    u32 count = get32(p + buffers), k = 1;
    for (tfl_id x = 1; x < t->m.tensor.n; x++) {
        const struct tfl_tensor *c = &t->m.tensor.v[x];
        if (!c->data) continue;
        i64 place = buffers + 4 + 4 * (i64)k;
        place = field_at(p, place + get32(p + place), 0);
        assert(k < count && place && get32(p + place) == k);
        k++;
        i64 gap = round_up(at + 4, ALIGN) - 4 - at;
        u8 *size = arena_alloc(t->a, 4);
        if (at + gap + 4 + c->size > INT32_MAX)
            return err_set(t->e, ERR_UNSUPPORTED,
                           "the model is larger than 2 GiB, the most that TFLite's format allows");
        put32(size, (u32)c->size);
        put32(p + place, (u32)(at + gap - place));
        *arr_push(t->a, out) = (struct str){zeros, gap};
        *arr_push(t->a, out) = (struct str){(const char *)size, 4};
        *arr_push(t->a, out) = (struct str){c->data, c->size};
        at += gap + 4 + c->size;
    }
    return true;
}

bool tfl_lay_out(const struct tfl *t, struct tfl_pieces *out)
{
    struct str head;
    if (!lay_out(t, &head)) return false;
    u8 *p = arena_try(t->a, head.n, t->e, "model");
    if (!p) return false;
    memcpy(p, head.p, (size_t)head.n);
    *arr_push(t->a, out) = (struct str){(const char *)p, head.n};
    return append_constants(t, p, head.n, out);
}
