// SPDX-License-Identifier: Apache-2.0
//
// Attention by names and configurations. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include "lab/lab.h"

#include <string.h>

enum { MAX_CONFIG = 1 << 26 };

static bool read_shape(const struct quern_attention_shape *s, struct lab_config *c, enum dtype *type, struct err *e)
{
    struct quern_attention_shape x = {0};
    memcpy(&x, s, s->size < sizeof x ? s->size : sizeof x);
    *c = (struct lab_config){.kind = LAB_ATTENTION, .b = x.batch, .h = x.heads, .s = x.length, .d = x.head_size};
    *type = DT_F32;
    if (!api_float_type(x.type, type, e)) return false;
    if (x.kind && !lab_kind_find(&c->kind, str_of(x.kind), e)) return false;
    if (!lab_is_attention(c->kind)) return err_set(e, ERR_USAGE, "kind '%s' is no attention: quern gemm", x.kind);
    const i64 size[] = {c->b, c->h, c->s};
    for (i64 i = 0; i < countof(size); i++)
        if (size[i] < 1 || size[i] > LAB_MAX_SIZE)
            return err_set(e, ERR_USAGE, "batch, heads and length of attention are 1 to %d, found %lld", LAB_MAX_SIZE, (long long)size[i]);
    if (c->d < 1 || c->d > LAB_MOST)
        return err_set(e, ERR_USAGE, "the size of a head is 1 to %d, found %lld", LAB_MOST, (long long)c->d);
    u32 most = lab_kind(c->kind)->n_parts;
    if (x.part < 0 || x.part > (int)most)
        return err_set(e, ERR_USAGE, "kernel %d of kind '%s', which has %u", x.part, lab_kind(c->kind)->op, most);
    c->part = (u32)x.part;
    return *type != DT_TF32 || err_set(e, ERR_USAGE, "attention of f32 that may be rounded to tf32 is not supported");
}

static void put_shape(struct quern_attention_shape *to, const struct lab_config *c, const char *type)
{
    const struct quern_attention_shape x = {.size = to->size, .kind = lab_kind(c->kind)->op, .part = (int)c->part, .batch = c->b, .heads = c->h,
                                            .length = c->s, .head_size = c->d, .type = type};
    memcpy(to, &x, to->size < sizeof x ? to->size : sizeof x);
}

static bool read_name(struct lab_config *c, struct str name, struct err *e)
{
    if (!lab_name_parse(c, name, e)) return false;
    bool ok = lab_is_attention(c->kind) ? lab_config_check(c, e) : err_set(e, ERR_USAGE, "the kernel is a matmul: quern gemm");
    return ok || err_prefix(e, "kernel name '%.*s'", (int)i64_min(name.n, 300), name.p);
}

quern_status quern_attention_name(quern *q, const char *name, struct quern_attention_shape *out)
{
    if (!api_given(q, "name out", name, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct lab_config c;
    bool ok = read_name(&c, str_of(name), e);
    if (ok) put_shape(out, &c, NULL);
    return api_end(q, ok);
}

quern_status quern_model_attention(quern *q, const struct quern_attention_shape *shape, quern_model **out)
{
    if (!api_given(q, "shape out", shape, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct lab_config c;
    enum dtype type;
    if (!read_shape(shape, &c, &type, e)) return api_end(q, false);
    quern_model *m = api_model_start(q, S("attention"));
    lab_attention_graph(&m->model->graph, &c, type);
    return api_model_finish(m, true, out);
}

quern_status quern_attention_facts(quern *q, const struct quern_attention_shape *shape, struct quern_attention_facts *out)
{
    if (!api_given(q, "shape out", shape, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct quern_attention_facts x = {.size = out->size};
    struct lab_config c;
    enum dtype type;
    bool ok = read_shape(shape, &c, &type, e);
    if (ok) {
        x.flops = lab_flops(&c);
        x.what = lab_kind(c.part ? lab_kind(c.kind)->first + c.part - 1 : (u32)c.kind)->what;
        memcpy(out, &x, out->size < sizeof x ? out->size : sizeof x);
    }
    return api_end(q, ok);
}

/* Points of files. */

struct points {
    struct quern_attention_points_opts x;
    const char *type;
    struct quern_attention_count count;
    i64 left;           /* to be visited; < 0: all */
    struct err refused; /* the first */
};

static bool visit(void *user, const struct lab_config *c, i64 number)
{
    struct points *p = user;
    struct quern_attention_shape of = QUERN_OPTS(quern_attention_shape);
    struct buf b = {0};
    if (p->left == 0) return false;
    p->left -= p->left > 0;
    lab_name_print(&b, c);
    bool fits = lab_config_check(c, &p->refused), go_on = true;
    if (!fits && p->count.n_refused++ == 0) err_prefix(&p->refused, "'%.*s'", (int)i64_min(b.n, 300), b.p);
    put_shape(&of, c, p->type);
    if (fits && p->x.each) go_on = p->x.each(p->x.user, number, b.p, &of) != 0;
    buf_release(&b);
    return go_on;
}

static bool each_point(struct points *p, quern *q, struct lab_space *s, const struct caps *caps, struct err *e)
{
    struct lab_count c;
    enum lab_rules rules;
    lab_space_limit(s, caps);
    bool ok = lab_rules_find(&rules, p->x.rules, e) && lab_space_count(s, rules, &c, e);
    if (ok || e->code == ERR_NOTHING) lab_space_report(&q->log, s, rules, &c);
    if (!ok) return false;
    p->count.n_raw += (s->listed.n ? c.n : c.raw), p->count.n += (i64)c.n;
    lab_space_each(s, rules, p->x.start, visit, p);
    return true;
}

/* The spaces of a file: one, or one per computation of a list of names. */
static bool read_spaces(struct lab_registry *r, struct arena *a, const char *path, const struct lab_config *of, struct err *e)
{
    struct str text;
    if (!os_read(a, path, MAX_CONFIG, &text, e)) return false;
    bool ok = lab_is_registry(text) ? lab_registry_read(r, a, text, "attention", e) : lab_space_read(arr_push(a, r), a, text, of, e);
    return ok || err_prefix(e, "'%s'", path);
}

static bool points(struct points *p, quern *q, const char *path, const struct quern_attention_shape *shape, struct err *e)
{
    struct arena a = {0};
    struct lab_registry spaces = {0};
    struct lab_config of;
    struct api_target t = {0};
    enum dtype type;
    bool ok = (p->x.start >= 0 && p->x.max >= 0) || err_set(e, ERR_USAGE, "start and number of points cannot be negative");
    ok = ok && read_shape(shape, &of, &type, e) && read_spaces(&spaces, &a, path, &of, e) && api_target_open(&t, p->x.device, 0, p->x.target, e);
    p->type = ok ? dtype_name(type) : NULL;
    for (u32 i = 0; i < spaces.n && ok; i++) {
        spaces.v[i].dtype = type;
        ok = each_point(p, q, &spaces.v[i], &t.caps, e) || err_prefix(e, "'%s'", path);
    }
    if (ok && spaces.n_others) log_printf(&q->log, 1, "%u kernels other than attention are skipped", spaces.n_others);
    if (ok && p->count.n_refused)
        log_printf(&q->log, 1, "%lld names are refused, the first: %s", (long long)p->count.n_refused, p->refused.msg);
    api_target_close(&t);
    arena_release(&a);
    return ok;
}

quern_status quern_attention_points(quern *q, const char *path, const struct quern_attention_shape *shape,
                                    const struct quern_attention_points_opts *o, struct quern_attention_count *count)
{
    if (!api_given(q, "path shape count", path, shape, count)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct points p = {.left = -1};
    if (o) memcpy(&p.x, o, o->size < sizeof p.x ? o->size : sizeof p.x);
    if (p.x.max) p.left = p.x.max;
    p.count.size = count->size;
    bool ok = points(&p, q, path, shape, e);
    memcpy(count, &p.count, count->size < sizeof p.count ? count->size : sizeof p.count);
    return api_end(q, ok);
}

/* Configurations. */

/* The lists of deepgen's attention files for warps of 32 and of 64 threads. OTc is multiplied by the odd factor of a head's size. */
struct space_list {
    enum lab_attention_field field;
    i32 v[2][5]; /* ended by -1, or after five */
};
#define SAME(...) {{__VA_ARGS__, -1}, {__VA_ARGS__, -1}}
static const struct space_list space_lists[] = {
    {LA_BR, {{32, 64, 128, -1}, {32, 64, 128, 256, -1}}}, {LA_BC, {{32, 64, 128, -1}, {32, 64, 128, 256, -1}}},
    {LA_SA, {{8, 16, 32, 64, -1}, {8, 16, 32, -1}}}, {LA_SB, {{4, 8, 16, 32, -1}, {8, 16, 32, -1}}},
    {LA_PTR, {{4, 8, 16, -1}, {4, 8, -1}}}, {LA_PTC, {{4, 8, 16, -1}, {4, 8, -1}}}, {LA_OTR, SAME(4, 8, 16)}, {LA_OTC, SAME(4, 8, 16)},
    {LA_GLWQ, SAME(4)}, {LA_GLWK, SAME(4)}, {LA_GLWV, SAME(4)},
    {LA_BLPY, {{2, 4, 8, -1}, {1, 2, 4, -1}}}, {LA_BLPX, {{1, 2, -1}, {1, 2, 4, -1}}},
    {LA_WLPY, {{2, 4, 8, -1}, {2, 4, 8, 16, -1}}}, {LA_WLPX, {{2, 4, 8, -1}, {2, 4, 8, 16, -1}}},
    {LA_BSWQ, SAME(2, 4, 8)}, {LA_BSWK, SAME(2, 4, 8)}, {LA_WSWQ, {{4, 8, -1}, {1, 2, 4, -1}}}, {LA_WSWK, {{2, 4, 8, -1}, {1, 2, 4, -1}}},
    {LA_BLOY, {{2, 4, 8, -1}, {1, 2, 4, -1}}}, {LA_BLOX, {{1, 2, -1}, {1, 2, 4, -1}}},
    {LA_WLOY, {{2, 4, 8, -1}, {2, 4, 8, 16, -1}}}, {LA_WLOX, {{2, 4, 8, -1}, {2, 4, 8, 16, -1}}},
    {LA_BSWP, SAME(2, 4, 8)}, {LA_BSWV, SAME(2, 4, 8)}, {LA_WSWP, {{4, 8, 16, -1}, {1, 2, 4, -1}}}, {LA_WSWV, SAME(1, 2, 4)},
    {LA_UN, {{8, 16, 32, 64, -1}, {8, 16, 32, -1}}}, {LA_LCP, SAME(1)}, {LA_LCO, SAME(1)},
    {LA_SPP, SAME(0, 1)}, {LA_RPP, SAME(0, 1)}, {LA_RPO, SAME(0, 1)}, {LA_SHP, {{0, 1, -1}, {0, -1}}}, {LA_SKP, {{0, 1, -1}, {0, -1}}},
};
#undef SAME

static i64 odd_part(i64 n)
{
    while (n % 2 == 0) n /= 2;
    return n;
}

static void print_list(struct buf *b, const struct space_list *l, const struct lab_config *c, bool is_wide)
{
    const i32 *v = l->v[is_wide];
    i64 factor = l->field == LA_OTC ? odd_part(c->d) : 1;
    for (u32 i = 0; i < countof(l->v[0]) && v[i] >= 0; i++) buf_printf(b, "%s%lld", i ? ", " : "", (long long)(v[i] * factor));
}

static void print_values(struct buf *b, enum lab_attention_field f, const struct lab_config *c, int warp)
{
    enum { NARROW = 32 };
    if (f == LA_W) buf_printf(b, "%d", warp);
    if (f == LA_HD) buf_printf(b, "%lld", (long long)c->d);
    for (u32 i = 0; i < countof(space_lists); i++)
        if (space_lists[i].field == f) print_list(b, &space_lists[i], c, warp > NARROW);
}

static void print_space(struct buf *b, const struct lab_config *c, int warp)
{
    buf_z(b, "{\n");
    for (u32 f = 0; f < N_LAB_ATTENTION_FIELDS; f++) {
        buf_printf(b, "    \"%s\": [", lab_field(c->kind, f)->key);
        print_values(b, f, c, warp);
        buf_z(b, f + 1 < N_LAB_ATTENTION_FIELDS ? "],\n" : "]\n");
    }
    buf_z(b, "}\n");
}

/* Both rules leave points of the text. */
static bool space_has_points(struct str text, const struct lab_config *of, enum dtype type, struct err *e)
{
    static const enum lab_rules rules[] = {LAB_RULES_OWN, LAB_RULES_DEEPGEN};
    struct arena a = {0};
    struct lab_space s;
    struct lab_count n;
    bool ok = lab_space_read(&s, &a, text, of, e);
    s.dtype = type;
    for (u32 i = 0; i < countof(rules) && ok; i++)
        ok = lab_space_count(&s, rules[i], &n, e) || err_prefix(e, "rules '%s'", lab_rules_name(rules[i]));
    arena_release(&a);
    return ok;
}

quern_status quern_attention_space(quern *q, const struct quern_attention_shape *shape, int warp_size, char **text)
{
    if (!api_given(q, "shape text", shape, text)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct lab_config c;
    enum dtype type;
    *text = NULL;
    if (!read_shape(shape, &c, &type, e)) return api_end(q, false);
    if (warp_size < 1 || warp_size > LAB_MOST) return api_end(q, err_set(e, ERR_USAGE, "a warp of %d threads", warp_size));
    struct buf b = {0};
    print_space(&b, &c, warp_size);
    bool ok = space_has_points(buf_view(&b), &c, type, e);
    if (ok) *text = api_text(&b);
    else buf_release(&b);
    return api_end(q, ok);
}

/* Tiles. */

/* A space with one point: that of the name, of the type of the shape. */
static bool one_point(struct lab_registry *r, struct arena *a, const char *name, enum dtype type, struct err *e)
{
    struct lab_config c;
    if (!read_name(&c, str_of(name), e)) return false;
    struct lab_space *s = arr_push(a, r);
    *s = (struct lab_space){.base = c, .dtype = type};
    *arr_push(a, &s->listed) = c;
    return true;
}

quern_status quern_attention_tiles(quern_db *db, const char *what, const struct quern_attention_shape *shape, const struct quern_gemm_opts *o,
                                   struct quern_gemm_best *best)
{
    if (!db || !api_given(db->q, "what shape best", what, shape, best)) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    struct arena a = {0};
    struct lab_registry spaces = {0};
    struct lab_config of;
    enum dtype type = DT_F32;
    bool is_name = lab_is_name(str_of(what));
    struct quern_attention_shape given = {0};
    memcpy(&given, shape, shape->size < sizeof given ? shape->size : sizeof given);
    bool ok = is_name ? api_float_type(given.type, &type, e) && one_point(&spaces, &a, what, type, e)
                      : read_shape(shape, &of, &type, e) && read_spaces(&spaces, &a, what, &of, e);
    for (u32 i = 0; i < spaces.n && ok; i++) spaces.v[i].dtype = type;
    ok = ok && api_sweep(db, &spaces, o, best, e);
    arena_release(&a);
    return api_end(db->q, ok);
}
