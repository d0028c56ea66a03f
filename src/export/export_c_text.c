// SPDX-License-Identifier: Apache-2.0
//
// export_c_text.c: the header and the source of a program in C: kernels as language c99 prints them, and one driver that calls them in order.
#include "export/export_c.h"

#include <math.h>

static void put_origin(struct buf *b, const struct c_net *n)
{
    buf_z(b, "/* Made by quern export --to c from the network '");
    for (i64 i = 0; i < n->p->model.n; i++) {
        char c = n->p->model.p[i];
        buf_char(b, c >= ' ' && c < 127 && c != '*' && c != '?' && c != '\\' ? c : '_');
    }
    buf_printf(b, "', --isa %s. */\n", n->isa->name);
}

static void put_open(struct buf *b) { buf_z(b, "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"); }
static void put_close(struct buf *b) { buf_z(b, "#ifdef __cplusplus\n}\n#endif\n\n"); }

/* The header. */

static void put_shape(struct buf *b, const struct c_net *n, const struct plan_io *x)
{
    buf_z(b, "(");
    for (u32 d = 0; d < x->rank; d++) buf_printf(b, "%s%lld", d ? ", " : "", (long long)c_size(n, x->dim[d]));
    buf_printf(b, ")%s%.*s", x->layout.n ? " " : "", STR_ARG(x->layout));
}

static void put_io(struct buf *b, const struct c_net *n, bool is_in)
{
    u32 count = is_in ? n->p->input.n : n->p->output.n;
    buf_printf(b, "struct %.*s_%s {\n", STR_ARG(n->prefix), is_in ? "in" : "out");
    for (u32 k = 0; k < count; k++) {
        const struct plan_io *x = is_in ? &n->p->input.v[k] : &n->p->output.v[k];
        struct str name = is_in ? n->in[k] : n->out[k];
        buf_printf(b, "    %s%s *%.*s; /* ", is_in ? "const " : "", c_type(x->dtype), STR_ARG(name));
        put_shape(b, n, x);
        if (x->dtype == DT_F16 || x->dtype == DT_BF16 || x->dtype == DT_BOOL) buf_printf(b, ", %s", dtype_name(x->dtype));
        buf_z(b, " */\n");
    }
    if (!count) buf_z(b, "    const void *none;\n");
    buf_z(b, "};\n");
}

static void put_counts(struct buf *b, const struct c_net *n)
{
    buf_z(b, "/* elements */\nenum {\n");
    for (u32 k = 0; k < n->p->input.n + n->p->output.n; k++) {
        bool is_in = k < n->p->input.n;
        const struct plan_io *x = is_in ? &n->p->input.v[k] : &n->p->output.v[k - n->p->input.n];
        struct str name = is_in ? n->in[k] : n->out[k - n->p->input.n];
        buf_printf(b, "    %.*s_N_%.*s = %lld,\n", STR_ARG(n->upper), STR_ARG(name), (long long)c_io_count(n, x));
    }
    buf_z(b, "};\n\n");
}

static void put_signature(struct buf *b, const struct c_net *n)
{
    buf_printf(b, "void %.*s_run(const struct %.*s_in *in, const struct %.*s_out *out, void *arena", STR_ARG(n->prefix), STR_ARG(n->prefix), STR_ARG(n->prefix));
    if (n->weights.n) buf_z(b, ", const void *weights");
    if (n->has_threads) buf_printf(b, ",\n    %.*s_parallel_fn *parallel, void *user", STR_ARG(n->prefix));
    buf_z(b, ")");
}

static void put_thread_types(struct buf *b, const struct c_net *n)
{
    buf_printf(b, "#define %.*s_MAX_THREADS %u\n\n", STR_ARG(n->upper), n->caps.n_threads);
    buf_printf(b, "/* A part of a kernel: iterations begin..end-1 by worker 0..%.*s_MAX_THREADS-1, of which no two have the same number at the same time. */\n",
               STR_ARG(n->upper));
    buf_printf(b, "typedef void %.*s_part_fn(void *job, int32_t begin, int32_t end, int32_t worker);\n", STR_ARG(n->prefix));
    buf_z(b, "/* The caller's: calls part(job, ...) for ranges that make up 0..n-1, on any threads, and returns when all of them have returned. */\n");
    buf_printf(b, "typedef void %.*s_parallel_fn(void *user, %.*s_part_fn *part, void *job, int32_t n);\n\n", STR_ARG(n->prefix), STR_ARG(n->prefix));
}

void c_print_header(struct buf *b, const struct c_net *n)
{
    put_origin(b, n);
    buf_printf(b, "#ifndef %.*s_H\n#define %.*s_H\n\n#include <stdint.h>\n\n", STR_ARG(n->upper), STR_ARG(n->upper));
    put_open(b);
    buf_printf(b, "/* Temporary memory of a run. %u buffers, of which %lld bytes are needed at the same time%s. */\n", n->n_arena, (long long)n->arena.bound,
               n->arena.is_minimal ? ": no placement takes fewer bytes" : "");
    buf_printf(b, "#define %.*s_ARENA_BYTES %lld\n", STR_ARG(n->upper), (long long)n->arena.bytes);
    buf_printf(b, "#define %.*s_ARENA_ALIGN %d\n\n", STR_ARG(n->upper), C_ALIGN);
    if (n->weights.n) buf_printf(b, "#define %.*s_WEIGHT_BYTES %lld /* of the file */\n\n", STR_ARG(n->upper), (long long)n->weight_bytes);
    if (n->has_threads) put_thread_types(b, n);
    put_counts(b, n);
    put_io(b, n, true);
    put_io(b, n, false);
    buf_printf(b, "\n/* Arrays are row-major. arena: %.*s_ARENA_BYTES, aligned to %.*s_ARENA_ALIGN; its content does not matter before and after.%s */\n",
               STR_ARG(n->upper), STR_ARG(n->upper), n->weights.n ? " weights: the file, aligned to 16." : "");
    put_signature(b, n);
    buf_z(b, ";\n\n");
    put_close(b);
    buf_z(b, "#endif\n");
}

/* The source. */

static void put_weights_extern(struct buf *b, const struct c_net *n)
{
    for (u32 k = 0; k < n->p->buf.n; k++) {
        const struct plan_buf *x = &n->p->buf.v[k];
        if (!n->buf[k].name.n) continue;
        buf_printf(b, "extern const %s %.*s[%lld];\n", c_type(x->dtype), STR_ARG(n->buf[k].name), (long long)i64_max(x->data_size / dtype_size(x->dtype), 1));
    }
}

/* A concatenation in memory: the kernel reads some elements of a buffer and writes others. */
static bool is_aliased(const struct plan_dispatch *d)
{
    for (u32 i = 0; i < d->n_buf; i++)
        for (u32 k = 0; k < i; k++)
            if (d->buf[i] == d->buf[k]) return true;
    return false;
}

/* Is it the line that begins such a kernel's function? */
static bool begins_aliased(const struct c_net *n, struct str line)
{
    struct str start = S("static void ");
    if (!str_starts(line, start)) return false;
    line = str_sub(line, start.n, line.n);
    for (u32 k = 0; k < n->p->dispatch.n; k++) {
        const struct plan_dispatch *d = &n->p->dispatch.v[k];
        if (is_aliased(d) && str_starts(line, d->entry) && line.n > d->entry.n && line.p[d->entry.n] == '_') return true;
    }
    return false;
}

static void put_without(struct buf *b, struct str line, struct str word)
{
    for (i64 i = 0; i < line.n;) {
        bool is_word = str_starts(str_sub(line, i, line.n), word);
        if (!is_word) buf_char(b, line.p[i]);
        i += is_word ? word.n : 1;
    }
}

static void put_kernels(struct buf *b, const struct c_net *n)
{
    const struct lang *l = lang_find(S("c99"));
    struct str *text = arena_array(n->a, struct str, n->p->bin.n + 1), rest, line;
    struct buf all = {0};
    for (u32 k = 0; k < n->p->bin.n; k++) text[k] = n->p->bin.v[k].code;
    l->join_program(&all, text, n->p->bin.n);
    for (rest = buf_view(&all); rest.n;) {
        str_cut(rest, '\n', &line, &rest);
        put_without(b, line, begins_aliased(n, line) ? S("restrict ") : S("\n"));
        buf_char(b, '\n');
    }
    b->failed |= all.failed;
    buf_release(&all);
}

static i64 grid_count(const struct c_net *n, const struct plan_grid *g)
{
    return c_size(n, g->extent[0]) * c_size(n, g->extent[1]) * c_size(n, g->extent[2]);
}

static void put_call(struct buf *b, const struct c_net *n, u32 at, u32 grid)
{
    const struct plan_dispatch *d = &n->p->dispatch.v[at];
    buf_printf(b, "    %.*s_%u(", STR_ARG(d->entry), grid);
    for (u32 k = 0; k < d->n_buf; k++) {
        const struct plan_buf *x = &n->p->buf.v[d->buf[k]];
        const char *cast = x->kind == PB_CONST ? "(const void *)" : x->kind == PB_TEMP ? "(void *)" : "";
        buf_printf(b, "%s%s%.*s", k ? ", " : "", cast, STR_ARG(n->buf[d->buf[k]].expr));
    }
    buf_z(b, d->n_buf ? ", " : "");
    if (n->work[at].size <= 0) buf_z(b, "NULL");
    else if (n->has_threads) buf_printf(b, "m + %lld + worker * %lld", (long long)n->work[at].at, (long long)round_up(n->work[at].size, C_ALIGN));
    else buf_printf(b, "m + %lld", (long long)n->work[at].at);
    for (u32 k = 0; k < d->n_param; k++) buf_printf(b, ", %lld", (long long)c_size(n, d->param[k]));
    buf_z(b, n->has_threads ? ", begin, end);\n" : ");\n");
}

static void put_note(struct buf *b, const struct plan_dispatch *d)
{
    enum { MOST = 90 };
    buf_z(b, "    /* ");
    for (i64 i = 0; i < d->label.n && i < MOST; i++) {
        char c = d->label.p[i];
        buf_char(b, c >= ' ' && c < 127 && c != '*' && c != '?' && c != '\\' ? c : '_');
    }
    buf_z(b, " */\n");
}

static void put_locals(struct buf *b, const struct c_net *n, const char *arena)
{
    buf_printf(b, "    uint8_t *const m = %s;\n", arena);
    if (n->weights.n) buf_printf(b, "    const uint8_t *const w = %s;\n    (void)w;\n", n->has_threads ? "s->weights" : "weights");
    buf_z(b, "    (void)m;\n    (void)in;\n    (void)out;\n");
}

static void put_part(struct buf *b, const struct c_net *n, u32 at, u32 grid)
{
    buf_printf(b, "static void part_%u_%u(void *job, int32_t begin, int32_t end, int32_t worker)\n{\n", at, grid);
    buf_printf(b, "    const struct step *const s = job;\n    const struct %.*s_in *const in = s->in;\n    const struct %.*s_out *const out = s->out;\n",
               STR_ARG(n->prefix), STR_ARG(n->prefix));
    put_locals(b, n, "s->m");
    buf_z(b, "    (void)worker;\n");
    put_call(b, n, at, grid);
    buf_z(b, "}\n\n");
}

static void put_parts(struct buf *b, const struct c_net *n)
{
    buf_printf(b, "struct step { const struct %.*s_in *in; const struct %.*s_out *out; uint8_t *m; const void *weights; };\n\n", STR_ARG(n->prefix),
               STR_ARG(n->prefix));
    for (u32 i = 0; i < n->p->dispatch.n; i++)
        for (u32 g = 0; g < n->p->dispatch.v[i].n_grid; g++) put_part(b, n, i, g);
}

static void put_driver(struct buf *b, const struct c_net *n)
{
    put_signature(b, n);
    buf_z(b, "\n{\n");
    if (n->has_threads) buf_printf(b, "    struct step s = {in, out, arena, %s};\n", n->weights.n ? "weights" : "NULL");
    else put_locals(b, n, "arena");
    for (u32 i = 0; i < n->p->dispatch.n; i++) {
        const struct plan_dispatch *d = &n->p->dispatch.v[i];
        put_note(b, d);
        for (u32 g = 0; g < d->n_grid; g++)
            if (!n->has_threads) put_call(b, n, i, g);
            else buf_printf(b, "    parallel(user, part_%u_%u, &s, %lld);\n", i, g, (long long)grid_count(n, &d->grid[g]));
    }
    buf_z(b, "}\n");
}

void c_print_source(struct buf *b, const struct c_net *n)
{
    put_origin(b, n);
    buf_printf(b, "#include \"%.*s.h\"\n\n#include <stddef.h>\n\n", STR_ARG(n->prefix));
    if (!n->weights.n) put_weights_extern(b, n);
    put_kernels(b, n);
    buf_char(b, '\n');
    if (n->has_threads) put_parts(b, n);
    put_driver(b, n);
}

/* Weights. */

static bool has_infinite_weights(const struct c_net *n)
{
    for (u32 k = 0; k < n->p->buf.n; k++) {
        const struct plan_buf *x = &n->p->buf.v[k];
        for (i64 i = 0; n->buf[k].name.n && (x->dtype == DT_F32 || x->dtype == DT_F64) && i < x->data_size / dtype_size(x->dtype); i++)
            if (!isfinite(elem_f64(x->dtype, x->data, i))) return true;
    }
    return false;
}

void c_print_weights(struct buf *b, const struct c_net *n)
{
    put_origin(b, n);
    buf_printf(b, "%s#include <stdint.h>\n\n", has_infinite_weights(n) ? "#include <math.h>\n" : "");
    put_weights_extern(b, n);
    for (u32 k = 0; k < n->p->buf.n; k++) {
        const struct plan_buf *x = &n->p->buf.v[k];
        if (!n->buf[k].name.n) continue;
        i64 count = x->data_size / dtype_size(x->dtype);
        buf_printf(b, "\nconst %s %.*s[%lld] = {\n", c_type(x->dtype), STR_ARG(n->buf[k].name), (long long)i64_max(count, 1));
        if (count) c_print_elements(b, x->dtype, x->data, count);
        else buf_z(b, "    0,\n");
        buf_z(b, "};\n");
    }
}

void c_put_weights(struct buf *b, const struct c_net *n)
{
    static const char zeros[64];
    for (u32 k = 0; k < n->p->buf.n; k++) {
        if (!n->buf[k].name.n) continue;
        assert(b->failed || b->n == n->buf[k].at);
        buf_put(b, n->p->buf.v[k].data, n->buf[k].size);
        i64 next = n->weight_bytes;
        for (u32 i = k + 1; i < n->p->buf.n; i++)
            if (n->buf[i].name.n) next = i64_min(next, n->buf[i].at);
        buf_put(b, zeros, next - n->buf[k].at - n->buf[k].size);
    }
}
