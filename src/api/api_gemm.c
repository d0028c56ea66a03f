// SPDX-License-Identifier: Apache-2.0
//
// GEMMs by configurations. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include "lab/lab.h"

#include <string.h>

enum { MAX_CONFIG = 1 << 26, MAX_RESULT = 1 << 26 };

struct gemm_call {
    struct quern_gemm_opts x;
    struct api_job job;
    struct lab_registry products;
    struct lab_space space;     /* of the current GEMM */
    struct lab_sweep sweep;
    struct lab_results results; /* existing rows of the file, merged with those of the database */
    struct arena arena;
};

/* A space, or one per GEMM of a registry. */
static bool read_config(struct gemm_call *g, const char *path, struct err *e)
{
    struct str text;
    if (!os_read(&g->arena, path, MAX_CONFIG, &text, e)) return false;
    bool is_registry = lab_is_registry(text);
    bool ok = is_registry ? lab_registry_read(&g->products, &g->arena, text, lab_kind(LAB_MM)->op, e)
                          : lab_space_read(arr_push(&g->arena, &g->products), &g->arena, text, &(struct lab_config){.kind = LAB_MM}, e);
    if (ok && is_registry && (g->x.start || g->x.max)) ok = err_set(e, ERR_USAGE, "a registry has no points to start from");
    return ok || err_prefix(e, "'%s'", path);
}

/* Reads the file before anything is measured, so that a file that cannot be merged is found early. */
static bool read_results(struct gemm_call *g, const char *path, struct err *e)
{
    struct str text;
    if (!path || !os_exists(path)) return true;
    if (!os_read(&g->arena, path, MAX_RESULT, &text, e)) return false;
    return lab_results_read(&g->results, &g->arena, text, e) || err_prefix(e, "'%s'", path);
}

static bool write_results(struct gemm_call *g, const char *path, struct err *e)
{
    struct buf b = {0};
    lab_results_print(&b, &g->results, LAB_BEST);
    bool ok = !path || os_write(path, b.p, b.n, e);
    buf_release(&b);
    return ok;
}

/* Opens the device and its limits, for the rules and the kernel family. */
static bool open_target(struct gemm_call *g, quern_db *db, struct err *e)
{
    struct api_job *j = &g->job;
    if (!api_job_ask(j, db->q, e)) return false;
    g->sweep.caps = &j->target.caps;
    g->sweep.env = db_env(&db->db, buf_view(&j->target.fingerprint), buf_view(&j->target.toolchain), e);
    return g->sweep.env != 0;
}

static void put_best(const struct gemm_call *g, const struct lab_swept *r, struct quern_gemm_best *best)
{
    *best = (struct quern_gemm_best){.n_points = r->n_points, .n_refused = r->n_refused};
    if (!g->results.n) return;
    const struct lab_result *x = &g->results.v[0]; /* sorted when written */
    i64 n = i64_min(x->name.n, (i64)sizeof best->name - 1);
    memcpy(best->name, x->name.p, (size_t)n);
    best->seconds = x->ms / 1e3, best->base_seconds = x->base_ms / 1e3, best->speedup = x->speedup;
    n = i64_min(x->baseline.n, (i64)sizeof best->baseline - 1);
    memcpy(best->baseline, x->baseline.p, (size_t)n);
    if (x->ms > 0) best->tflops = lab_name_flops(x->name, &g->space.base) / best->seconds / 1e12;
}

static bool run_one(struct gemm_call *g, struct quern_gemm_best *best, struct err *e)
{
    struct lab_swept r;
    bool ok = lab_sweep(&g->sweep, &r, e) && lab_sweep_results(&g->sweep, &r, &g->results, &g->arena, e) && write_results(g, g->x.result, e);
    if (ok) put_best(g, &r, best);
    lab_swept_release(&r);
    return ok;
}

static bool run(struct gemm_call *g, quern_db *db, struct quern_gemm_best *best, struct err *e)
{
    bool ok = open_target(g, db, e);
    g->sweep.space = &g->space, g->sweep.db = &db->db, g->sweep.tune = &g->job.t, g->sweep.baseline = g->x.baseline;
    g->sweep.start = g->x.start, g->sweep.max = g->x.max;
    g->sweep.search = g->x.search != 0, g->sweep.stops_near_peak = g->x.stop_at_tflops != 0;
    for (u32 i = 0; i < g->products.n && ok; i++) {
        g->space = g->products.v[i];
        ok = api_float_type(g->x.type, &g->space.dtype, e) && run_one(g, best, e);
    }
    if (ok && g->products.n_others)
        log_printf(&db->q->log, 1, "%u kernels other than matmuls are skipped", g->products.n_others);
    return ok;
}

bool api_sweep(quern_db *db, const struct lab_registry *spaces, const struct quern_gemm_opts *o, struct quern_gemm_best *best, struct err *e)
{
    struct gemm_call g = {.products = *spaces};
    if (o) memcpy(&g.x, o, o->size < sizeof g.x ? o->size : sizeof g.x);
    *best = (struct quern_gemm_best){0};
    bool ok = (g.x.start >= 0 && g.x.max >= 0) || err_set(e, ERR_USAGE, "start and number of points cannot be negative");
    ok = ok && api_baseline_check(g.x.baseline, e) && lab_rules_find(&g.sweep.rules, g.x.rules, e) && read_results(&g, g.x.result, e) &&
         api_job_read(&g.job, db->q, g.x.tune, e) && run(&g, db, best, e);
    api_target_close(&g.job.target);
    arena_release(&g.arena);
    return ok;
}

quern_status quern_gemm(quern_db *db, const char *config, const struct quern_gemm_opts *o, struct quern_gemm_best *best)
{
    if (!db || !api_given(db->q, "config best", config, best)) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    struct gemm_call g = {0};
    if (o) memcpy(&g.x, o, o->size < sizeof g.x ? o->size : sizeof g.x);
    *best = (struct quern_gemm_best){0};
    bool ok = g.x.start >= 0 && g.x.max >= 0;
    if (!ok) err_set(e, ERR_USAGE, "start and number of points cannot be negative");
    ok = ok && api_baseline_check(g.x.baseline, e) && lab_rules_find(&g.sweep.rules, g.x.rules, e) &&
         api_float_type(g.x.type, &g.space.dtype, e) && read_config(&g, config, e) && read_results(&g, g.x.result, e) &&
         api_job_read(&g.job, db->q, g.x.tune, e);
    ok = ok && run(&g, db, best, e);
    api_target_close(&g.job.target);
    arena_release(&g.arena);
    return api_end(db->q, ok);
}

/* One GEMM. */

static bool read_shape(const struct quern_gemm_shape *s, struct lab_config *c, enum dtype *type, struct err *e)
{
    struct quern_gemm_shape x = {0};
    memcpy(&x, s, s->size < sizeof x ? s->size : sizeof x);
    if (x.n_batch < 0 || x.n_batch > LAB_MAX_BATCH)
        return err_set(e, ERR_USAGE, "%d batch sizes, expected 0 to %d", x.n_batch, LAB_MAX_BATCH);
    *c = (struct lab_config){.n_batch = (u32)x.n_batch, .m = x.m, .n = x.n, .k = x.k};
    c->v[LF_TRANS] = x.is_transposed != 0;
    bool ok = x.m > 0 && x.n > 0 && x.k > 0 && x.m <= LAB_MAX_SIZE && x.n <= LAB_MAX_SIZE && x.k <= LAB_MAX_SIZE;
    for (int i = 0; i < x.n_batch; i++) ok &= x.batch[i] > 0 && x.batch[i] <= LAB_MAX_SIZE, c->batch[i] = x.batch[i];
    *type = x.type ? dtype_from_onnx((int)x.type) : DT_F32;
    if (!ok) return err_set(e, ERR_USAGE, "sizes of a matmul are 1 to %d", LAB_MAX_SIZE);
    return dtype_is_float(*type) || err_set(e, ERR_USAGE, "matmuls are of floats");
}

quern_status quern_model_gemm(quern *q, const struct quern_gemm_shape *shape, quern_model **out)
{
    if (!api_given(q, "shape out", shape, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct lab_config c;
    enum dtype type;
    if (!read_shape(shape, &c, &type, e)) return api_end(q, false);
    quern_model *m = api_model_start(q, S("gemm"));
    lab_graph(&m->model->graph, &c, type);
    return api_model_finish(m, true, out);
}

static void put_text(char *to, i64 size, const struct buf *b)
{
    i64 n = b->n < size ? b->n : 0; /* too long: empty rather than truncated */
    memcpy(to, b->p ? b->p : "", (size_t)n);
    to[n] = 0;
}

static void put_found(struct quern_gemm_found *to, const struct lab_found *f, const struct lab_config *like, enum dtype type)
{
    struct lab_config c;
    struct buf name = {0}, text = {0};
    *to = (struct quern_gemm_found){.seconds = f->seconds, .distance = f->distance, .m = f->product.m, .n = f->product.n,
                                    .k = f->product.k, .is_transposed = f->product.v[LF_TRANS]};
    if (lab_config_of(&c, &f->cand, like, type)) lab_name_print(&name, &c);
    candidate_print(&text, &f->cand);
    put_text(to->name, sizeof to->name, &name);
    put_text(to->candidate, sizeof to->candidate, &text);
    buf_release(&name);
    buf_release(&text);
}

quern_status quern_gemm_find(quern_db *db, const struct quern_gemm_shape *shape, const char *device, struct quern_gemm_found *out)
{
    if (!db || !api_given(db->q, "shape out", shape, out)) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    struct api_target t = {0};
    struct lab_config c;
    struct lab_found f;
    enum dtype type;
    bool ok = read_shape(shape, &c, &type, e) && api_target_open(&t, device, 0, NULL, e);
    i64 env = ok ? db_env(&db->db, buf_view(&t.fingerprint), buf_view(&t.toolchain), e) : 0;
    ok = ok && env;
    if (ok && !lab_find(&f, &db->db, env, &t.caps, &c, type, e))
        ok = err_set(e, ERR_NOTHING, "the database has no kernel for such a matmul on this device");
    if (ok) put_found(out, &f, &c, type);
    api_target_close(&t);
    return api_end(db->q, ok);
}

/* Configurations. */

/* The lists of deepgen's mm-*.json; warps of 32 also in 2 x 16. Fields that are not listed have one value. */
static const struct list {
    enum lab_field field;
    i32 v[5]; /* ended by 0, or after five */
} lists[] = {
    {LF_BM, {32, 64, 128}}, {LF_BN, {32, 64, 128}}, {LF_BK, {8, 16}}, {LF_TM, {4, 8}}, {LF_TN, {4, 8}},
    {LF_BLY, {1, 2, 4, 8}}, {LF_BLX, {1, 2, 4, 8}}, {LF_WLY, {2, 4, 8, 16, 32}}, {LF_WLX, {2, 4, 8, 16, 32}},
    {LF_BSWM, {2, 4, 8}}, {LF_BSWN, {2, 4, 8}}, {LF_WSWM, {1, 2, 4}}, {LF_WSWN, {1, 2, 4}}, {LF_LSU, {1, 2}},
    {LF_MAP, {4, 8}}, {LF_GSW, {2, 4}}, {LF_UN, {8, 16}}, {LF_LC, {1}}, {LF_RC, {1}},
};

static const struct list *list_of(enum lab_field f)
{
    for (u32 i = 0; i < countof(lists); i++)
        if (lists[i].field == f) return &lists[i];
    return NULL;
}

/* Elements of a load that divide a row of so many. */
static int load_width(i64 row) { return row % 4 == 0 ? 4 : row % 2 == 0 ? 2 : 1; }

static void print_values(struct buf *b, enum lab_field f, const struct lab_config *c, int warp)
{
    const struct list *l = list_of(f);
    if (l) for (u32 i = 0; i < countof(l->v) && l->v[i]; i++) buf_printf(b, "%s%d", i ? ", " : "", (int)l->v[i]);
    else if (f == LF_W) buf_printf(b, "%d", warp);
    else if (f == LF_TRANS) buf_printf(b, "%d", (int)c->v[LF_TRANS]);
    else if (f == LF_GLWA) buf_printf(b, "%d", load_width(c->v[LF_TRANS] ? c->m : c->k));
    else if (f == LF_GLWB) buf_printf(b, "%d", load_width(c->n));
    else buf_z(b, "0, 1"); /* RP, SP */
}

/* The number of a type in such files; 0: none. */
static int type_number(enum dtype t) { return t == DT_F32 ? 4 : t == DT_F16 ? 2 : t == DT_BF16 ? 62 : t == DT_F64 ? 8 : 0; }

static void print_space(struct buf *b, const struct lab_config *c, int type, int warp)
{
    buf_z(b, "{\n");
    for (u32 f = 0; f < N_LAB_FIELDS; f++) {
        buf_printf(b, "    \"%s\": [", lab_field(LAB_MM, f)->key);
        print_values(b, f, c, warp);
        buf_z(b, "],\n");
    }
    for (const char *k = "ABC"; *k; k++) buf_printf(b, "    \"DATATYPE_%c\": [%d],\n", *k, type);
    buf_printf(b, "    \"M_SIZE\": [%lld],\n    \"N_SIZE\": [%lld],\n    \"K_SIZE\": [%lld],\n    \"BATCH_SIZE\": [", (long long)c->m,
               (long long)c->n, (long long)c->k);
    for (u32 i = 0; i < c->n_batch; i++) buf_printf(b, "%s%lld", i ? ", " : "", (long long)c->batch[i]);
    buf_printf(b, "%s]\n}\n", c->n_batch ? "" : "1");
}

quern_status quern_gemm_space(quern *q, const struct quern_gemm_shape *shape, int warp_size, char **text)
{
    if (!api_given(q, "shape text", shape, text)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct lab_config c;
    enum dtype type;
    if (!read_shape(shape, &c, &type, e)) return api_end(q, false);
    if (warp_size < 1 || warp_size > LAB_MOST) return api_end(q, err_set(e, ERR_USAGE, "a warp of %d threads", warp_size));
    if (!type_number(type)) return api_end(q, err_set(e, ERR_UNSUPPORTED, "configurations have no element type %s", dtype_name(type)));
    struct buf b = {0};
    print_space(&b, &c, type_number(type), warp_size);
    *text = api_text(&b);
    return api_end(q, true);
}
