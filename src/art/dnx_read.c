// SPDX-License-Identifier: Apache-2.0
//
// Reading .dnx. The bytes are untrusted: lengths, offsets, indices and
// expressions are checked here or by plan_verify before anything is used, content
// is compared with its hash. Constants and code point into the caller's bytes.
#include "art/dnx.h"

#include <jansson.h>

const char *const dnx_kind_name[N_PLAN_BUF_KINDS] = {"input", "output", "const", "temp", "held", "state"};

enum { MAX_ITEMS = 1 << 20 /* of any list in the plan */, MAX_VARIANTS = 64 };

struct reader {
    struct plan *p;
    struct arena *a;
    struct str bytes; /* the whole file */
    i64 data_at;      /* start of the tensors' bytes */
    const json_t *header;
    const struct dnx_text *text; /* whose contents are used instead of those of a file; NULL: none */
    struct err *e;
    json_int_t version;
    u32 depth;        /* in calls */
};

static bool bad(struct reader *r, const char *what)
{
    return err_set(r->e, ERR_INPUT, "invalid artifact: %s", what);
}

static struct str get_str(struct reader *r, const json_t *o, const char *key)
{
    const json_t *s = json_object_get(o, key);
    if (!json_is_string(s)) {
        bad(r, key);
        return (struct str){0};
    }
    return str_dup(r->a, (struct str){json_string_value(s), (i64)json_string_length(s)});
}

/* Key of the node that requires a size or a fact. */
static const char *node_key(const struct reader *r) { return r->version < 5 ? "who" : "node"; }

static bool get_u32(struct reader *r, const json_t *j, const char *what, u32 *out)
{
    json_int_t v = json_is_integer(j) ? json_integer_value(j) : -1;
    *out = (u32)v;
    return (v >= 0 && v <= UINT32_MAX) || bad(r, what);
}

static bool get_list(struct reader *r, const json_t *o, const char *key, const json_t **list,
                     u32 *n)
{
    *list = json_object_get(o, key);
    size_t size = json_array_size(*list);
    *n = (u32)size;
    return (json_is_array(*list) && size <= MAX_ITEMS) || bad(r, key);
}

static bool get_sym(struct reader *r, const json_t *j, const char *what, sym *out)
{
    if (json_is_integer(j)) {
        *out = sym_const(&r->p->sym, json_integer_value(j));
        return true;
    }
    if (!json_is_string(j)) return bad(r, what);
    u32 n_vars = r->p->sym.var.n;
    struct str text = {json_string_value(j), (i64)json_string_length(j)};
    *out = sym_parse(&r->p->sym, text, r->e);
    if (!*out) return err_prefix(r->e, "invalid artifact: %s", what);
    return r->p->sym.var.n == n_vars || bad(r, "an expression names an unknown size");
}

static bool get_syms(struct reader *r, const json_t *o, const char *key, sym **out, u32 *n)
{
    const json_t *list;
    if (!get_list(r, o, key, &list, n)) return false;
    *out = arena_array(r->a, sym, *n);
    for (u32 i = 0; i < *n; i++)
        if (!get_sym(r, json_array_get(list, i), key, &(*out)[i])) return false;
    return true;
}

/* "const.12" -> 12; false: of another form, or no less than n. */
static bool number_of(struct str name, struct str kind, u32 n, u32 *k)
{
    i64 v;
    if (!str_starts(name, kind) || !str_to_i64(str_sub(name, kind.n, name.n), &v) || v < 0 || v >= n) return false;
    *k = (u32)v;
    return true;
}

static bool find_in_text(struct reader *r, struct str name, struct str *out)
{
    u32 k;
    if (number_of(name, S("const."), r->text->constant.n, &k)) *out = r->text->constant.v[k];
    else if (number_of(name, S("code."), r->text->code.n, &k)) *out = r->text->code.v[k].bytes;
    else return bad(r, "content is missing");
    return true;
}

static bool find_in_file(struct reader *r, struct str name, struct str *out)
{
    const json_t *t = json_object_get(r->header, name.n ? name.p : "");
    const json_t *range = json_object_get(t, "data_offsets");
    if (json_array_size(range) != 2) return bad(r, "content is missing");
    json_int_t from = json_integer_value(json_array_get(range, 0)),
               to = json_integer_value(json_array_get(range, 1));
    if (from < 0 || to < from || to > r->bytes.n - r->data_at)
        return bad(r, "content is outside of the file");
    *out = (struct str){r->bytes.p + r->data_at + from, to - from};
    return true;
}

/* At least `size` bytes; all of them if it is negative. */
static bool get_content(struct reader *r, const json_t *o, i64 size, struct str *out)
{
    struct str name = get_str(r, o, "content");
    if (!(r->text ? find_in_text(r, name, out) : find_in_file(r, name, out))) return false;
    if (size > out->n) return bad(r, "content is too short");
    if (size >= 0) out->n = size;
    return true;
}

static bool check_hash(struct reader *r, const json_t *o, struct str content, struct hash *h)
{
    char hex[33];
    *h = hash_bytes(content.p, content.n);
    hash_hex(*h, hex);
    return str_is(get_str(r, o, "hash"), hex) || bad(r, "content does not match its hash");
}

static bool read_vars(struct reader *r, const json_t *plan)
{
    const json_t *list;
    u32 n;
    if (!get_list(r, plan, "variables", &list, &n)) return false;
    for (u32 i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i), *at = json_object_get(v, "optimised_for");
        struct str name = get_str(r, v, "name");
        sym_var(&r->p->sym, name);
        if (r->e->code || name.n == 0 || r->p->sym.var.n != i + 1) return bad(r, "variables");
        (arr_push(r->a, &r->p->var))->optimised_for =
            json_is_integer(at) ? json_integer_value(at) : INT64_MIN;
    }
    return true;
}

static bool read_fact(struct reader *r, const json_t *o, struct sym_fact *f)
{
    enum sym_fact_kind kind;
    if (!sym_fact_parse_name(get_str(r, o, "kind"), &kind)) return bad(r, "kind of a fact");
    *f = (struct sym_fact){.kind = (enum sym_fact_kind)kind, .origin = get_str(r, o, node_key(r))};
    return get_sym(r, json_object_get(o, "a"), "a fact", &f->a) && get_sym(r, json_object_get(o, "b"), "a fact", &f->b);
}

/* Omitted if empty. */
static bool read_facts(struct reader *r, const json_t *plan)
{
    const json_t *list;
    u32 n;
    if (!json_object_get(plan, "facts")) return true;
    if (!get_list(r, plan, "facts", &list, &n)) return false;
    for (u32 i = 0; i < n; i++) {
        struct sym_fact f;
        if (!read_fact(r, json_array_get(list, i), &f)) return false;
        sym_fact_note(&r->p->sym, f.kind, f.a, f.b, f.origin);
    }
    return true;
}

static bool read_io(struct reader *r, const json_t *o, struct plan_io *io)
{
    sym *dim;
    io->name = get_str(r, o, "name");
    io->dtype = dtype_parse(get_str(r, o, "dtype"));
    if (json_object_get(o, "layout")) io->layout = get_str(r, o, "layout");
    if (!get_syms(r, o, "shape", &dim, &io->rank)) return false;
    if (io->rank > MAX_RANK) return bad(r, "interface rank");
    for (u32 d = 0; d < io->rank; d++) io->dim[d] = dim[d];
    return get_u32(r, json_object_get(o, "buffer"), "interface buffer", &io->buf);
}

static bool read_ios(struct reader *r, const json_t *plan, bool is_input)
{
    const json_t *list;
    u32 n;
    if (!get_list(r, plan, is_input ? "inputs" : "outputs", &list, &n)) return false;
    for (u32 i = 0; i < n; i++) {
        struct plan_io io = {0};
        if (!read_io(r, json_array_get(list, i), &io)) return false;
        if (is_input) *(arr_push(r->a, &r->p->input)) = io;
        else *(arr_push(r->a, &r->p->output)) = io;
    }
    return true;
}

static bool read_buf(struct reader *r, const json_t *o, struct plan_buf *b)
{
    const json_t *life = json_object_get(o, "life");
    struct str kind = get_str(r, o, "kind");
    u32 k = 0;
    while (k < N_PLAN_BUF_KINDS && !str_is(kind, dnx_kind_name[k])) k++;
    if (k == N_PLAN_BUF_KINDS) return bad(r, "buffer kind");
    b->kind = (enum plan_buf_kind)k;
    b->name = get_str(r, o, "name");
    if (!get_sym(r, json_object_get(o, "size"), "buffer size", &b->size)) return false;
    if (!get_u32(r, json_array_get(life, 0), "buffer life", &b->first)) return false;
    if (!get_u32(r, json_array_get(life, 1), "buffer life", &b->last)) return false;
    if (b->kind != PB_CONST) return true;
    struct str content;
    if (!sym_is_const(&r->p->sym, b->size, &b->data_size) || b->data_size < 0)
        return bad(r, "constant size");
    if (!get_content(r, o, b->data_size, &content) || !check_hash(r, o, content, &b->content))
        return false;
    b->data = content.p;
    return true;
}

static bool read_bufs(struct reader *r, const json_t *plan)
{
    const json_t *list;
    u32 n;
    if (!get_list(r, plan, "buffers", &list, &n)) return false;
    for (u32 i = 0; i < n; i++) {
        struct plan_buf b = {0};
        if (!read_buf(r, json_array_get(list, i), &b)) return false;
        *(arr_push(r->a, &r->p->buf)) = b;
    }
    return true;
}

static bool read_bins(struct reader *r, const json_t *plan)
{
    const json_t *list;
    u32 n;
    if (!get_list(r, plan, "binaries", &list, &n)) return false;
    for (u32 i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);
        struct plan_bin b = {.lang = get_str(r, o, "lang")};
        struct str padded;
        i64 size = json_integer_value(json_object_get(o, "size"));
        if (size < 0 || !get_content(r, o, size, &padded)) return bad(r, "binary");
        b.code = padded;
        if (!check_hash(r, o, b.code, &b.content)) return false;
        *(arr_push(r->a, &r->p->bin)) = b;
    }
    return true;
}

static bool read_grids(struct reader *r, const json_t *o, struct plan_dispatch *d)
{
    const json_t *list;
    if (!get_list(r, o, "grids", &list, &d->n_grid)) return false;
    d->grid = arena_array(r->a, struct plan_grid, d->n_grid);
    for (u32 i = 0; i < d->n_grid; i++) {
        const json_t *g = json_array_get(list, i);
        if (json_array_size(g) != 3) return bad(r, "grid");
        for (u32 x = 0; x < 3; x++)
            if (!get_sym(r, json_array_get(g, x), "grid", &d->grid[i].extent[x])) return false;
    }
    return true;
}

static bool read_body(struct reader *r, const json_t *plan, struct plan **out);

/* A list: a buffer, or null for none. */
static bool get_maybe(struct reader *r, const json_t *j, const char *what, u32 *out)
{
    *out = UINT32_MAX;
    return json_is_null(j) || get_u32(r, j, what, out);
}

static bool read_call_in(struct reader *r, const json_t *o, struct plan_call_in *in)
{
    sym *dim;
    if (!get_u32(r, json_object_get(o, "buffer"), "input of a call", &in->buf) || !get_syms(r, o, "shape", &dim, &in->rank)) return false;
    if (in->rank > MAX_RANK) return bad(r, "rank of an input of a call");
    for (u32 d = 0; d < in->rank; d++) in->dim[d] = dim[d];
    return true;
}

static u32 find_var(const struct plan *p, struct str name)
{
    u32 v = 0;
    while (v < p->sym.var.n && !str_eq(p->sym.var.v[v], name)) v++;
    return v;
}

static bool read_gives(struct reader *r, const json_t *o, struct plan_call *c, u32 b)
{
    const json_t *list;
    if (!get_list(r, o, "given", &list, &c->n_give[b])) return false;
    c->give[b] = arena_array(r->a, struct plan_give, c->n_give[b] + 1);
    for (u32 k = 0; k < c->n_give[b]; k++) {
        const json_t *g = json_array_get(list, k);
        struct plan_give *x = &c->give[b][k];
        x->var = find_var(c->sub[b], get_str(r, g, "name"));
        if (x->var >= c->sub[b]->sym.var.n) return bad(r, "a size that is given");
        if (!get_sym(r, json_object_get(g, "value"), "a size that is given", &x->value)) return false;
        *arr_push(r->a, &c->sub[b]->given) = x->var;
    }
    return true;
}

static bool read_subs(struct reader *r, const json_t *o, struct plan_call *c)
{
    const json_t *list;
    if (!get_list(r, o, "plans", &list, &c->n_sub)) return false;
    if (c->n_sub == 0 || c->n_sub > 2) return bad(r, "plans of a call");
    for (u32 b = 0; b < c->n_sub; b++) {
        const json_t *x = json_array_get(list, b);
        if (!read_body(r, json_object_get(x, "plan"), &c->sub[b]) || !read_gives(r, x, c, b)) return false;
        if (!plan_verify(c->sub[b], r->e)) return false;
    }
    return true;
}

static bool read_call(struct reader *r, const json_t *o, struct plan_dispatch *d)
{
    struct plan_call *c = d->call = arena_new(r->a, struct plan_call);
    const json_t *ins, *outs, *sizes;
    struct str kind = get_str(r, o, "kind");
    c->is_loop = str_is(kind, "loop");
    if (!c->is_loop && !str_is(kind, "branch")) return bad(r, "kind of a call");
    c->is_conditional = json_is_true(json_object_get(o, "conditional"));
    if (!get_maybe(r, json_object_get(o, "condition"), "condition", &c->cond)) return false;
    if (!get_maybe(r, json_object_get(o, "sizes"), "sizes of a call", &c->sizes)) return false;
    const char *trip_count = r->version < 6 ? "rounds" : "trip_count";
    if (c->is_loop && !get_sym(r, json_object_get(o, trip_count), trip_count, &c->trip_count)) return false;
    if (!get_u32(r, json_object_get(o, "carried"), "carried", &c->n_carried)) return false;
    if (!get_list(r, o, "inputs", &ins, &c->n_in) || !get_list(r, o, "results", &outs, &c->n_out)) return false;
    if (!get_list(r, o, r->version < 5 ? "told" : "axes", &sizes, &c->n_size)) return false;
    c->in = arena_array(r->a, struct plan_call_in, c->n_in + 1);
    for (u32 k = 0; k < c->n_in; k++)
        if (!read_call_in(r, json_array_get(ins, k), &c->in[k])) return false;
    c->out = arena_array(r->a, u32, c->n_out + 1);
    for (u32 k = 0; k < c->n_out; k++)
        if (!get_maybe(r, json_array_get(outs, k), "result of a call", &c->out[k])) return false;
    if (c->n_size % 2) return bad(r, "sizes of a call");
    c->size = arena_array(r->a, u32, c->n_size + 1);
    for (u32 k = 0; k < c->n_size; k++)
        if (!get_u32(r, json_array_get(sizes, k), "size of a call", &c->size[k])) return false;
    c->n_size /= 2;
    if (!read_subs(r, o, c)) return false;
    plan_call_buffers(d, r->a);
    d->work = sym_const(&r->p->sym, 0);
    return true;
}

/* Omitted by older writers, which did not distinguish them. */
static bool read_values(struct reader *r, const json_t *o, struct plan_dispatch *d)
{
    const json_t *list;
    u32 n, k;
    if (!json_object_get(o, "values")) return true;
    if (!get_list(r, o, "values", &list, &n)) return false;
    d->is_value = arena_array(r->a, bool, d->n_param + 1);
    for (u32 i = 0; i < n; i++) {
        if (!get_u32(r, json_array_get(list, i), "value", &k) || k >= d->n_param) return bad(r, "a value is not a parameter");
        d->is_value[k] = true;
    }
    return true;
}

static bool read_dispatch(struct reader *r, const json_t *o, struct plan_dispatch *d)
{
    const json_t *bufs, *flops = json_object_get(o, "flops");
    d->entry = get_str(r, o, "entry"), d->label = get_str(r, o, "label");
    d->task = get_str(r, o, "task"), d->candidate = get_str(r, o, "candidate");
    d->device = get_str(r, o, "device");
    if (json_object_get(o, "operators")) d->ops = get_str(r, o, "operators");
    if (json_object_get(o, "layer")) d->layer = get_str(r, o, "layer");
    d->seconds = json_real_value(json_object_get(o, "seconds"));
    d->is_measured = json_is_true(json_object_get(o, "measured"));
    if (json_object_get(o, "call")) return read_call(r, json_object_get(o, "call"), d);
    if (!get_u32(r, json_object_get(o, "binary"), "binary", &d->bin)) return false;
    if (!get_list(r, o, "buffers", &bufs, &d->n_buf)) return false;
    d->buf = arena_array(r->a, u32, d->n_buf);
    for (u32 i = 0; i < d->n_buf; i++)
        if (!get_u32(r, json_array_get(bufs, i), "buffer", &d->buf[i])) return false;
    if (!get_syms(r, o, "params", &d->param, &d->n_param) || !read_values(r, o, d) || !read_grids(r, o, d)) return false;
    if (flops && !get_sym(r, flops, "flops", &d->flops)) return false;
    return get_sym(r, json_object_get(o, "scratch"), "scratch", &d->work);
}

static bool read_dispatches(struct reader *r, const json_t *plan)
{
    const json_t *list;
    u32 n;
    if (!get_list(r, plan, "dispatches", &list, &n)) return false;
    for (u32 i = 0; i < n; i++) {
        struct plan_dispatch d = {0};
        if (!read_dispatch(r, json_array_get(list, i), &d))
            return err_prefix(r->e, "dispatch %u", i);
        *(arr_push(r->a, &r->p->dispatch)) = d;
    }
    return true;
}

static bool read_made_one(struct reader *r, const json_t *o, struct plan_made *m)
{
    struct str name = get_str(r, o, "name");
    const json_t *most = json_object_get(o, "most"), *expr = json_object_get(o, "expression"), *needs = json_object_get(o, "needs");
    m->var = find_var(r->p, name);
    if (!get_u32(r, json_object_get(o, "at"), "at", &m->at)) return false;
    if (most && !get_sym(r, most, "most", &m->most)) return false;
    if (needs ? !read_fact(r, needs, &m->need) : json_object_get(o, node_key(r)) && !(m->need.origin = get_str(r, o, node_key(r))).p) return false;
    if (expr) return get_sym(r, expr, "expression", &m->expr);
    struct str take = get_str(r, o, "take");
    u32 k = 0;
    while (k < N_PLAN_TAKES && !str_is(take, dnx_take_name[k])) k++;
    if (k == N_PLAN_TAKES) return bad(r, "take");
    m->take = (enum plan_take)k;
    m->dtype = dtype_parse(get_str(r, o, "dtype"));
    m->elem = json_is_integer(json_object_get(o, "element")) ? json_integer_value(json_object_get(o, "element")) : -1;
    return get_u32(r, json_object_get(o, "buffer"), "buffer", &m->buf);
}

static bool read_made(struct reader *r, const json_t *plan)
{
    const json_t *list;
    u32 n;
    if (!json_object_get(plan, "made")) return true;
    if (!get_list(r, plan, "made", &list, &n)) return false;
    for (u32 i = 0; i < n; i++) {
        struct plan_made m = {0};
        if (!read_made_one(r, json_array_get(list, i), &m)) return false;
        *(arr_push(r->a, &r->p->made)) = m;
    }
    return true;
}

/* Omitted if there are none. The unused rows of a state are a size that the runtime sets. */
static bool read_states(struct reader *r, const json_t *plan)
{
    const json_t *list;
    u32 n, g;
    if (!json_object_get(plan, "states")) return true;
    if (r->depth) return bad(r, "a plan in a call has states");
    if (!get_list(r, plan, "states", &list, &n)) return false;
    for (u32 i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);
        struct plan_state *s = arr_push(r->a, &r->p->state);
        s->axis = PLAN_NO_AXIS, s->room = UINT32_MAX;
        if (!get_u32(r, json_object_get(o, "input"), "input of a state", &s->input) || !get_u32(r, json_object_get(o, "output"), "output of a state", &s->output)) return false;
        if (!json_object_get(o, "axis")) continue;
        s->room = find_var(r->p, get_str(r, o, "room"));
        if (s->room >= r->p->sym.var.n) return bad(r, "room of a state");
        if (!get_u32(r, json_object_get(o, "axis"), "axis of a state", &s->axis)) return false;
        for (g = 0; g < r->p->given.n && r->p->given.v[g] != s->room; g++) {}
        if (g == r->p->given.n) *arr_push(r->a, &r->p->given) = s->room;
    }
    return true;
}

static bool read_parts(struct reader *r, const json_t *plan)
{
    return read_vars(r, plan) && read_facts(r, plan) && read_ios(r, plan, true) && read_ios(r, plan, false) && read_bufs(r, plan) &&
           read_bins(r, plan) && read_dispatches(r, plan) && read_made(r, plan) && read_states(r, plan) && r->e->code == ERR_NONE;
}

/* A plan that a call runs: it is verified when the sizes that it is given are read. */
static bool read_body(struct reader *r, const json_t *plan, struct plan **out)
{
    struct reader in = *r;
    struct plan *p = *out = arena_new(r->a, struct plan);
    *p = (struct plan){.arena = r->a, .model = r->p->model, .caps = r->p->caps, .isa = r->p->isa, .fingerprint = r->p->fingerprint};
    symtab_init(&p->sym, r->a);
    in.p = p;
    if (++in.depth == PLAN_MAX_DEPTH) return bad(r, "calls are nested too deeply");
    return read_parts(&in, plan);
}

static bool read_variant(struct reader *r, const json_t *v, struct plan *p)
{
    struct str model = r->p->model;
    *p = (struct plan){.arena = r->a, .model = model};
    symtab_init(&p->sym, r->a);
    r->p = p;
    p->caps = get_str(r, v, "caps");
    if (json_object_get(v, "isa")) p->isa = get_str(r, v, "isa");
    p->fingerprint = get_str(r, v, "fingerprint");
    p->explain = get_str(r, v, "explain");
    return read_parts(r, v) && plan_verify(p, r->e);
}

/* A plan that says nothing of variants is the only one. */
struct variants { const json_t **v; u32 n; };

static bool find_variants(struct reader *r, const json_t *plan, struct variants *x)
{
    const json_t *list = json_object_get(plan, "variants");
    *x = (struct variants){.n = 1};
    if (list && (!get_list(r, plan, "variants", &list, &x->n) || x->n == 0 || x->n > MAX_VARIANTS)) return bad(r, "variants");
    x->v = arena_array(r->a, const json_t *, x->n);
    for (u32 i = 0; i < x->n; i++) x->v[i] = list ? json_array_get(list, i) : plan;
    return true;
}

static bool read_all(struct reader *r, const struct variants *x)
{
    struct plan *first = r->p, *last = first;
    for (u32 i = 0; i < x->n; i++) {
        struct plan *p = i ? arena_new(r->a, struct plan) : first;
        if (!read_variant(r, x->v[i], p)) return false;
        if (i && !plan_same_interface(first, p)) return bad(r, "variants have different inputs and outputs");
        if (i) last->also = p;
        last = p;
    }
    return true;
}

static bool read_one(struct reader *r, const struct variants *x, dnx_choose_fn *choose, void *user)
{
    struct str *isa = arena_array(r->a, struct str, x->n);
    for (u32 i = 0; i < x->n; i++)
        if (json_object_get(x->v[i], "isa")) isa[i] = get_str(r, x->v[i], "isa");
    if (r->e->code) return false;
    u32 k = choose(user, isa, x->n, r->e);
    return k < x->n && read_variant(r, x->v[k], r->p);
}

static bool read_plan(struct reader *r, const json_t *plan, dnx_choose_fn *choose, void *user)
{
    struct variants x;
    r->version = json_integer_value(json_object_get(plan, "version"));
    if (r->version < DNX_OLDEST || r->version > DNX_VERSION)
        return err_set(r->e, ERR_UNSUPPORTED, "artifact has version %lld, this program reads %d to %d",
                       (long long)r->version, DNX_OLDEST, DNX_VERSION);
    r->p->model = get_str(r, plan, "model");
    if (!find_variants(r, plan, &x)) return false;
    return choose ? read_one(r, &x, choose, user) : read_all(r, &x);
}

static json_t *read_json(struct reader *r, struct str text, const char *what)
{
    json_error_t je;
    json_t *j = json_loadb(text.p, (size_t)text.n, JSON_REJECT_DUPLICATES, &je);
    if (!j) err_set(r->e, ERR_INPUT, "invalid artifact: %s is not JSON: %s", what, je.text);
    return j;
}

/* Its hash is omitted by older writers. */
static json_t *read_plan_text(struct reader *r, const json_t *metadata)
{
    const json_t *text = json_object_get(metadata, "quern");
    struct hash h;
    if (!json_is_string(text)) {
        err_set(r->e, ERR_INPUT, "not a quern artifact: its metadata has no plan");
        return NULL;
    }
    struct str plan = {json_string_value(text), (i64)json_string_length(text)};
    if (json_object_get(metadata, "hash") && !check_hash(r, metadata, plan, &h)) return NULL;
    return read_json(r, plan, "plan");
}

static bool read_bytes(struct plan *p, struct arena *a, struct str bytes, dnx_choose_fn *choose, void *user, struct err *e)
{
    *p = (struct plan){.arena = a};
    symtab_init(&p->sym, a);
    struct reader r = {.p = p, .a = a, .bytes = bytes, .e = e};
    u64 n = 0;
    if (bytes.n < 8) return bad(&r, "shorter than its header");
    for (u32 i = 0; i < 8; i++) n |= (u64)(u8)bytes.p[i] << (8 * i);
    if (n > (u64)bytes.n - 8) return bad(&r, "header is longer than the file");
    r.data_at = 8 + (i64)n;
    json_t *header = read_json(&r, (struct str){bytes.p + 8, (i64)n}, "header");
    if (!header) return false;
    r.header = header;
    json_t *plan = read_plan_text(&r, json_object_get(header, "__metadata__"));
    bool ok = plan && read_plan(&r, plan, choose, user);
    json_decref(plan);
    json_decref(header);
    return ok;
}

bool dnx_read_text(struct plan *p, struct arena *a, const struct dnx_text *t, dnx_choose_fn *choose, void *user, struct err *e)
{
    *p = (struct plan){.arena = a};
    symtab_init(&p->sym, a);
    struct reader r = {.p = p, .a = a, .text = t, .e = e};
    json_t *plan = read_json(&r, t->plan, "plan");
    bool ok = plan && read_plan(&r, plan, choose, user);
    json_decref(plan);
    return ok;
}

bool dnx_read_variant(struct plan *p, struct arena *a, struct str bytes, dnx_choose_fn *choose, void *user, struct err *e)
{
    return read_bytes(p, a, bytes, choose, user, e);
}

bool dnx_read(struct plan *p, struct arena *a, struct str bytes, struct err *e) { return read_bytes(p, a, bytes, NULL, NULL, e); }
