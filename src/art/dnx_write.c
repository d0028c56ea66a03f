// SPDX-License-Identifier: Apache-2.0
//
// Writing .dnx: a safetensors file (8 bytes little-endian header length, JSON header, tensors'
// bytes). Constants and binaries are tensors of type U8 named "const.K" and "code.K", 64-byte
// aligned in the file; the plan is JSON text under "quern" in
// __metadata__. Keys are sorted and nothing depends on time or addresses: same plan, same bytes.
// Equal content is stored once.
#include "art/dnx.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *json_text(struct str s) { return json_stringn(s.n ? s.p : "", (size_t)s.n); }

static json_t *json_sym(const struct plan *p, sym s)
{
    i64 c;
    if (sym_is_const(&p->sym, s, &c)) return json_integer(c);
    struct buf b = {0};
    sym_print(&b, &p->sym, s);
    json_t *j = json_text(buf_view(&b));
    buf_release(&b);
    return j;
}

static json_t *json_syms(const struct plan *p, const sym *s, u32 n)
{
    json_t *a = json_array();
    for (u32 i = 0; i < n; i++) json_array_append_new(a, json_sym(p, s[i]));
    return a;
}

static json_t *json_ios(const struct plan *p, const struct plan_io *io, u32 n)
{
    json_t *a = json_array();
    for (u32 i = 0; i < n; i++) {
        json_t *o = json_pack("{s:o, s:s, s:o, s:I}", "name", json_text(io[i].name), "dtype",
                              dtype_name(io[i].dtype), "shape",
                              json_syms(p, io[i].dim, io[i].rank), "buffer",
                              (json_int_t)io[i].buf);
        if (io[i].layout.n) json_object_set_new(o, "layout", json_text(io[i].layout));
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *json_bufs(const struct plan *p, const u32 *tensor)
{
    json_t *a = json_array();
    for (u32 i = 0; i < p->buf.n; i++) {
        const struct plan_buf *b = &p->buf.v[i];
        json_t *o = json_pack("{s:s, s:o, s:o, s:[I,I]}", "kind", dnx_kind_name[b->kind], "name",
                              json_text(b->name), "size", json_sym(p, b->size), "life",
                              (json_int_t)b->first, (json_int_t)b->last);
        if (b->kind == PB_CONST) {
            char hex[33];
            hash_hex(b->content, hex);
            json_object_set_new(o, "content", json_sprintf("const.%u", tensor[i]));
            json_object_set_new(o, "hash", json_string(hex));
        }
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *json_bins(const struct plan *p, u32 first)
{
    json_t *a = json_array();
    for (u32 i = 0; i < p->bin.n; i++) {
        char hex[33];
        hash_hex(p->bin.v[i].content, hex);
        json_array_append_new(a,
                              json_pack("{s:o, s:s, s:o, s:I}", "lang", json_text(p->bin.v[i].lang),
                                        "hash", hex, "content", json_sprintf("code.%u", first + i), "size",
                                        (json_int_t)p->bin.v[i].code.n));
    }
    return a;
}

/* Numbers of a plan's tensors in the file: of its own, and of those of plans that it runs. */
struct placed {
    const struct plan *p;
    u32 *tensor;    /* per buffer that is a constant */
    u32 first_code; /* of its binaries */
};
struct placing {
    struct arena *a;
    struct map seen; /* constants, by content */
    u32 n_const, n_code;
    struct { struct placed *v; u32 n, cap; } plan;
};

static json_t *json_parts(const struct placing *g, const struct plan *p);

static json_t *json_maybe(u32 buf) { return buf == UINT32_MAX ? json_null() : json_integer(buf); }

static json_t *json_call(const struct placing *g, const struct plan *p, const struct plan_call *c)
{
    json_t *ins = json_array(), *outs = json_array(), *axes = json_array(), *plans = json_array();
    for (u32 k = 0; k < c->n_in; k++)
        json_array_append_new(ins, json_pack("{s:I, s:o}", "buffer", (json_int_t)c->in[k].buf, "shape", json_syms(p, c->in[k].dim, c->in[k].rank)));
    for (u32 k = 0; k < c->n_out; k++) json_array_append_new(outs, json_maybe(c->out[k]));
    for (u32 k = 0; k < 2 * c->n_size; k++) json_array_append_new(axes, json_integer(c->size[k]));
    for (u32 b = 0; b < c->n_sub; b++) {
        json_t *given = json_array();
        for (u32 k = 0; k < c->n_give[b]; k++)
            json_array_append_new(given, json_pack("{s:o, s:o}", "name", json_text(c->sub[b]->sym.var.v[c->give[b][k].var]), "value",
                                                   json_sym(p, c->give[b][k].value)));
        json_array_append_new(plans, json_pack("{s:o, s:o}", "given", given, "plan", json_parts(g, c->sub[b])));
    }
    json_t *o = json_pack("{s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o}", "kind", c->is_loop ? "loop" : "branch", "condition", json_maybe(c->cond), "sizes",
                          json_maybe(c->sizes), "carried", (json_int_t)c->n_carried, "inputs", ins, "results", outs, "axes", axes, "plans", plans);
    if (c->is_loop) json_object_set_new(o, "trip_count", json_sym(p, c->trip_count));
    if (c->is_conditional) json_object_set_new(o, "conditional", json_true());
    return o;
}

static json_t *json_values(const struct plan_dispatch *d)
{
    json_t *a = json_array();
    for (u32 i = 0; i < d->n_param; i++)
        if (d->is_value[i]) json_array_append_new(a, json_integer(i));
    return a;
}

static json_t *json_dispatch(const struct placing *g, const struct plan *p, const struct plan_dispatch *d)
{
    if (d->call) {
        json_t *o = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "entry", json_text(d->entry), "label", json_text(d->label), "task", json_text(d->task),
                              "candidate", json_text(d->candidate), "device", json_text(d->device), "call", json_call(g, p, d->call));
        if (d->ops.n) json_object_set_new(o, "operators", json_text(d->ops));
        if (d->layer.n) json_object_set_new(o, "layer", json_text(d->layer));
        if (d->seconds > 0) json_object_set_new(o, "seconds", json_real(d->seconds));
        return o;
    }
    json_t *bufs = json_array(), *grids = json_array();
    for (u32 i = 0; i < d->n_buf; i++) json_array_append_new(bufs, json_integer(d->buf[i]));
    for (u32 i = 0; i < d->n_grid; i++)
        json_array_append_new(grids, json_syms(p, d->grid[i].extent, 3));
    json_t *o = json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "binary", (json_int_t)d->bin, "entry",
        json_text(d->entry), "label", json_text(d->label), "task", json_text(d->task), "candidate",
        json_text(d->candidate), "device", json_text(d->device), "buffers", bufs, "params",
        json_syms(p, d->param, d->n_param), "grids", grids, "scratch", json_sym(p, d->work));
    if (d->is_value) json_object_set_new(o, "values", json_values(d));
    if (d->ops.n) json_object_set_new(o, "operators", json_text(d->ops));
    if (d->layer.n) json_object_set_new(o, "layer", json_text(d->layer));
    if (d->flops) json_object_set_new(o, "flops", json_sym(p, d->flops));
    if (d->seconds > 0) {
        json_object_set_new(o, "seconds", json_real(d->seconds));
        json_object_set_new(o, "measured", json_boolean(d->is_measured));
    }
    return o;
}

const char *const dnx_take_name[] = {"take", "plus", "minus"};

static json_t *json_fact(const struct plan *p, const struct sym_fact *f)
{
    return json_pack("{s:s, s:o, s:o, s:o}", "kind", sym_fact_name(f->kind), "a", json_sym(p, f->a), "b", json_sym(p, f->b), "node",
                     json_text(f->origin));
}

static json_t *json_made(const struct plan *p)
{
    json_t *list = json_array();
    for (u32 k = 0; k < p->made.n; k++) {
        const struct plan_made *m = &p->made.v[k];
        json_t *o = json_pack("{s:o, s:I}", "name", json_text(p->sym.var.v[m->var]), "at", (json_int_t)m->at);
        if (m->expr) {
            json_object_set_new(o, "expression", json_sym(p, m->expr));
        } else {
            json_object_set_new(o, "buffer", json_integer(m->buf));
            json_object_set_new(o, "dtype", json_string(dtype_name(m->dtype)));
            json_object_set_new(o, "element", json_integer(m->elem));
            json_object_set_new(o, "take", json_string(dnx_take_name[m->take]));
        }
        if (m->most) json_object_set_new(o, "most", json_sym(p, m->most));
        if (m->need.a) json_object_set_new(o, "needs", json_fact(p, &m->need));
        else if (m->need.origin.n) json_object_set_new(o, "node", json_text(m->need.origin));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *json_facts(const struct plan *p)
{
    json_t *a = json_array();
    for (u32 i = 0; i < p->sym.fact.n; i++) json_array_append_new(a, json_fact(p, &p->sym.fact.v[i]));
    return a;
}

static json_t *json_states(const struct plan *p)
{
    json_t *a = json_array();
    for (u32 i = 0; i < p->state.n; i++) {
        const struct plan_state *s = &p->state.v[i];
        json_t *o = json_pack("{s:I, s:I}", "input", (json_int_t)s->input, "output", (json_int_t)s->output);
        if (s->axis != PLAN_NO_AXIS) json_object_set_new(o, "axis", json_integer(s->axis)), json_object_set_new(o, "room", json_text(p->sym.var.v[s->room]));
        json_array_append_new(a, o);
    }
    return a;
}

/* The common part of plans and inner plans. */
static json_t *json_parts(const struct placing *g, const struct plan *p)
{
    u32 k = 0;
    while (g->plan.v[k].p != p) k++;
    const struct placed *at = &g->plan.v[k];
    json_t *vars = json_array(), *dispatches = json_array();
    for (u32 i = 0; i < p->sym.var.n; i++) {
        json_t *v = json_pack("{s:o}", "name", json_text(p->sym.var.v[i]));
        if (p->var.v[i].optimised_for != INT64_MIN)
            json_object_set_new(v, "optimised_for", json_integer(p->var.v[i].optimised_for));
        json_array_append_new(vars, v);
    }
    for (u32 i = 0; i < p->dispatch.n; i++)
        json_array_append_new(dispatches, json_dispatch(g, p, &p->dispatch.v[i]));
    json_t *plan = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o}", "variables", vars, "inputs", json_ios(p, p->input.v, p->input.n), "outputs",
        json_ios(p, p->output.v, p->output.n), "buffers", json_bufs(p, at->tensor), "binaries", json_bins(p, at->first_code), "dispatches", dispatches);
    if (plan && p->made.n) json_object_set_new(plan, "made", json_made(p));
    if (plan && p->sym.fact.n) json_object_set_new(plan, "facts", json_facts(p));
    if (plan && p->state.n) json_object_set_new(plan, "states", json_states(p));
    return plan;
}

static json_t *json_variant(const struct placing *g, const struct plan *p)
{
    json_t *plan = json_parts(g, p);
    if (!plan) return NULL;
    json_object_set_new(plan, "caps", json_text(p->caps));
    if (p->isa.n) json_object_set_new(plan, "isa", json_text(p->isa));
    json_object_set_new(plan, "fingerprint", json_text(p->fingerprint));
    json_object_set_new(plan, "explain", json_text(p->explain));
    return plan;
}

static bool has_states(const struct plan *p)
{
    for (; p; p = p->also)
        if (p->state.n) return true;
    return false;
}

static json_t *json_plan(const struct placing *g, const struct plan *p)
{
    json_t *plan = p->also ? json_object() : json_variant(g, p), *list = p->also ? json_array() : NULL;
    if (!plan) return NULL;
    json_object_set_new(plan, "version", json_integer(has_states(p) ? DNX_VERSION : DNX_WITHOUT_STATES));
    json_object_set_new(plan, "model", json_text(p->model));
    for (const struct plan *q = p; list && q; q = q->also) json_array_append_new(list, json_variant(g, q));
    if (list) json_object_set_new(plan, "variants", list);
    return plan;
}

/* tensors: name, bytes */

struct part {
    char name[32];
    struct str bytes;
    i64 at;
};

struct layout_plan {
    struct part *v; u32 n, cap;
    i64 end;
};

static void add_part(struct layout_plan *l, struct arena *a, const char *kind, u32 k, struct str bytes)
{
    struct part *x = arr_push(a, l);
    *x = (struct part){.bytes = bytes, .at = l->end};
    struct buf b = {0};
    buf_printf(&b, "%s.%u", kind, k);
    for (i64 i = 0; i <= b.n && i < (i64)sizeof x->name; i++) x->name[i] = b.p[i];
    buf_release(&b);
    l->end += round_up(bytes.n, DNX_ALIGN);
}

/* Constants with equal content share a tensor: tensor[buf] = its number. */
static void place_parts(struct placing *g, const struct plan *p, struct layout_plan *l)
{
    struct arena *a = g->a;
    u32 *tensor = arena_array(a, u32, p->buf.n + 1);
    *arr_push(a, &g->plan) = (struct placed){p, tensor, g->n_code};
    for (u32 i = 0; i < p->buf.n; i++) {
        const struct plan_buf *b = &p->buf.v[i];
        if (b->kind != PB_CONST) continue;
        char hex[33];
        hash_hex(b->content, hex);
        struct str key = str_fmt(a, "%s.%lld", hex, (long long)b->data_size);
        u64 *known = map_get(&g->seen, key);
        tensor[i] = known ? (u32)*known : g->n_const++;
        if (known) continue;
        map_put(&g->seen, key, tensor[i]);
        add_part(l, a, "const", tensor[i], (struct str){b->data, b->data_size});
    }
    for (u32 i = 0; i < p->bin.n; i++) add_part(l, a, "code", g->n_code++, p->bin.v[i].code);
    for (u32 i = 0; i < p->dispatch.n; i++)
        for (u32 b = 0; p->dispatch.v[i].call && b < p->dispatch.v[i].call->n_sub; b++) place_parts(g, p->dispatch.v[i].call->sub[b], l);
}

/* safetensors wants the tensors to fill the data part without holes: each is padded to the
 * alignment by its own zero bytes. */
static json_t *header(const struct layout_plan *l, json_t *plan_json)
{
    char *text = json_dumps(plan_json, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    char hex[33];
    hash_hex(hash_bytes(text, text ? (i64)strlen(text) : 0), hex);
    json_t *h = json_pack("{s:{s:s, s:s, s:s}}", "__metadata__", "format", "quern", "hash", hex, "quern", text);
    free(text); /* made by jansson */
    for (u32 i = 0; i < l->n; i++) {
        i64 end = l->v[i].at + round_up(l->v[i].bytes.n, DNX_ALIGN);
        json_object_set_new(h, l->v[i].name,
                            json_pack("{s:s, s:[I], s:[I,I]}", "dtype", "U8", "shape",
                                      (json_int_t)(end - l->v[i].at), "data_offsets",
                                      (json_int_t)l->v[i].at, (json_int_t)end));
    }
    return h;
}

enum { LENGTH = 8 /* bytes of the header's length */ };

/* The header's length, little-endian, and the header, with spaces up to the alignment. */
void dnx_put_head(struct buf *b, struct str header)
{
    i64 n = round_up(LENGTH + header.n, DNX_ALIGN) - LENGTH;
    for (i64 i = 0; i < LENGTH; i++) buf_char(b, (char)((u64)n >> (8 * i)));
    buf_str(b, header);
    for (i64 i = header.n; i < n; i++) buf_char(b, ' ');
}

static struct str head_bytes(struct arena *a, const char *text)
{
    struct buf b = {0};
    dnx_put_head(&b, str_of(text));
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

/* The first dispatch that uses a binary, of the plan or of one that it runs. */
static struct str entry_of(const struct plan *p, u32 bin)
{
    for (u32 i = 0; i < p->dispatch.n; i++)
        if (!p->dispatch.v[i].call && p->dispatch.v[i].bin == bin) return p->dispatch.v[i].entry;
    return (struct str){0};
}

bool dnx_write_text(struct dnx_text *t, const struct plan *p, struct arena *a, struct err *e)
{
    struct placing g = {.a = a};
    struct layout_plan l = {.n = 0};
    *t = (struct dnx_text){.plan = {0}};
    map_init(&g.seen, a);
    for (const struct plan *q = p; q; q = q->also) place_parts(&g, q, &l);
    for (u32 i = 0; i < l.n; i++)
        if (str_starts(str_of(l.v[i].name), S("const."))) *arr_push(a, &t->constant) = l.v[i].bytes;
    for (u32 i = 0; i < g.plan.n; i++)
        for (u32 k = 0; k < g.plan.v[i].p->bin.n; k++) {
            const struct plan_bin *b = &g.plan.v[i].p->bin.v[k];
            *arr_push(a, &t->code) = (struct dnx_code){b->code, b->lang, entry_of(g.plan.v[i].p, k)};
        }
    json_t *plan_json = json_plan(&g, p);
    char *text = plan_json ? json_dumps(plan_json, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)) : NULL;
    bool ok = text || (mem_check(e, "writing the program", S("")) && err_set(e, ERR_FAILED, "cannot write the program: a name is not valid UTF-8"));
    if (text) t->plan = str_dup(a, str_of(text));
    free(text); /* made by jansson */
    json_decref(plan_json);
    return ok;
}

bool dnx_pieces(const struct plan *p, struct arena *a, struct str **piece, i64 *n, struct err *e)
{
    static const char zero[DNX_ALIGN];
    struct placing g = {.a = a};
    struct layout_plan l = {.n = 0};
    map_init(&g.seen, a);
    for (const struct plan *q = p; q; q = q->also) place_parts(&g, q, &l);
    json_t *plan_json = json_plan(&g, p);
    json_t *h = plan_json ? header(&l, plan_json) : NULL;
    char *text = h ? json_dumps(h, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    *piece = arena_array(a, struct str, 2 * l.n + 1);
    *n = 0;
    if (text) (*piece)[(*n)++] = head_bytes(a, text);
    for (u32 i = 0; i < l.n && text; i++) {
        i64 size = l.v[i].bytes.n;
        if (size) (*piece)[(*n)++] = l.v[i].bytes;
        if (size % DNX_ALIGN) (*piece)[(*n)++] = (struct str){zero, round_up(size, DNX_ALIGN) - size};
    }
    bool ok = text || (mem_check(e, "writing the artifact", S("")) && err_set(e, ERR_FAILED, "cannot write the artifact: a name is not valid UTF-8"));
    free(text); /* made by jansson */
    json_decref(h);
    json_decref(plan_json);
    return ok;
}

bool dnx_write(const struct plan *p, struct buf *out, struct err *e)
{
    struct arena a = {0};
    struct str *piece;
    i64 n;
    bool ok = dnx_pieces(p, &a, &piece, &n, e);
    for (i64 i = 0; i < n && ok; i++) buf_str(out, piece[i]);
    if (ok && out->failed) ok = mem_check(e, "writing the artifact", S("")) && err_set(e, ERR_FAILED, "cannot write the artifact: it is larger than 2 GiB");
    arena_release(&a);
    return ok;
}
