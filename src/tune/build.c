// SPDX-License-Identifier: Apache-2.0
//
// Building many kernel texts: they are distributed among child processes that run concurrently with
// the caller. Results are cached (cache.c) by the hash of text, compiler and target. A compiler
// that crashes or hangs costs one candidate. If the language joins texts and the caller accepts it,
// a process builds its texts as programs of many kernels, because compilers of GPU languages take
// as long to start as for a small kernel. A program that fails to build is bisected until the
// failing texts are found.
#include "tune/tune.h"

#include <string.h>

static const double default_timeout = 60;

/* Header of a result. The code that the parts of a program share is sent with the first one; n is 0
   for the others. is_system: the failure is the system's, not the text's. */
struct head {
    u8 ok, timed_out, is_part, is_system, why;
    i64 n;
};

enum { MAX_JOINED = 16, MAX_JOINED_BYTES = 256 << 10 /* of text: larger programs build no faster */ };

static double timeout_of(const struct builder *b)
{
    return b->timeout > 0 ? b->timeout : default_timeout;
}

static bool may_join(const struct builder *b) { return b->may_join && b->lang->join; }

/* Recognises the compiler's message for lack of space or memory. */
static bool is_of_system(struct err *e)
{
    struct err full = {0};
    if (!os_temp_has_room(&full)) *e = full;
    return e->code == ERR_SYSTEM;
}

/* false, here and below: the parent no longer waits for results. */
static bool build_one(const struct builder *b, struct str text, int fd)
{
    struct buf code = {0};
    struct err e = {0};
    double start = os_now();
    bool ok = b->lang->build(&code, text, b->caps, timeout_of(b), &e);
    struct head h = {.ok = ok, .timed_out = !ok && os_now() - start >= timeout_of(b), .why = (u8)e.code};
    if (!ok && !h.timed_out) h.is_system = is_of_system(&e);
    h.n = ok ? code.n : (i64)strlen(e.msg);
    bool goes_on = os_child_put(fd, &h, sizeof h) && os_child_put(fd, ok ? code.p : e.msg, h.n);
    buf_release(&code);
    return goes_on;
}

static bool build_joined(const struct builder *b, const struct str *text, u32 n, int fd)
{
    struct buf code = {0}, all = {0};
    struct err e = {0};
    if (n == 1) return build_one(b, text[0], fd);
    b->lang->join(&all, text, n);
    bool ok = !all.failed && b->lang->build(&code, buf_view(&all), b->caps, timeout_of(b), &e);
    buf_release(&all);
    ok = ok && code.n > 0;
    bool goes_on = true;
    for (u32 i = 0; i < n && ok && goes_on; i++) {
        struct head h = {.ok = true, .is_part = true, .n = i ? 0 : code.n};
        goes_on = os_child_put(fd, &h, sizeof h) && os_child_put(fd, code.p, h.n);
    }
    buf_release(&code);
    if (ok) return goes_on;
    return build_joined(b, text, n / 2, fd) && build_joined(b, text + n / 2, n - n / 2, fd);
}

/* Builds its texts in order; each result waits in the socket until it is read. */
static void job_main(void *user, int fd)
{
    const struct build_job *j = user;
    const struct building *g = j->of;
    u32 most = may_join(g->b) && !j->is_wary ? MAX_JOINED : 1;
    bool goes_on = true;
    for (u32 i = j->next; i < g->n && goes_on;) {
        struct str text[MAX_JOINED];
        i64 bytes = 0;
        u32 n = 0;
        for (; i < g->n && n < most && (n == 0 || bytes + g->text[i].n <= MAX_JOINED_BYTES); i = j->then[i])
            bytes += g->text[i].n, text[n++] = g->text[i];
        goes_on = build_joined(g->b, text, n, fd);
    }
}

static enum os_exit collect_one(struct build_job *j, struct built *out, struct arena *a)
{
    struct head h = {0};
    double limit = timeout_of(j->of->b) + 10;
    enum os_exit how = os_child_get(&j->child, &h, sizeof h, limit);
    char *p = NULL;
    if (how == OS_EXITED) {
        p = arena_alloc(a, h.n + 1);
        how = os_child_get(&j->child, p, h.n, limit);
    }
    *out = (struct built){.ok = how == OS_EXITED && h.ok,
                          .timed_out = how == OS_TIMEOUT || h.timed_out,
                          .is_part = h.is_part,
                          .is_system = how == OS_EXITED && h.is_system,
                          .why = how == OS_EXITED ? (enum err_code)h.why : ERR_FAILED};
    if (out->ok && h.is_part && h.n) j->program = (struct str){p, h.n};
    if (out->ok) out->code = h.is_part ? j->program : (struct str){p, h.n};
    else if (how == OS_EXITED) out->message = (struct str){p, h.n};
    else if (how != OS_TIMEOUT) out->message = S("the build process ended without a result");
    else out->message = str_fmt(a, "the compiler takes more than %.0f seconds", timeout_of(j->of->b));
    return how;
}

struct hash build_key(const struct builder *b, struct str text)
{
    struct buf k = {0};
    struct hash own = {0};
    if (b->lang->builds_itself) os_build_id(&own);
    buf_printf(&k, "%s %llx\n", b->lang->name, (unsigned long long)own.lo);
    buf_str(&k, b->toolchain);
    buf_char(&k, '\n');
    caps_print(&k, b->caps);
    buf_char(&k, '\n');
    buf_str(&k, text);
    struct hash h = hash_bytes(k.p, k.n);
    buf_release(&k);
    return h;
}

/* Looks up a cached result. */
static bool find(const struct builder *b, struct str text, struct built *out, struct arena *a)
{
    struct hash key = build_key(b, text);
    if (b->anew) return false;
    out->ok = cache_get(b->cache, key, a, &out->code);
    if (out->ok || !b->may_join) return out->ok;
    return out->ok = out->is_part = cache_get_part(b->cache, key, a, &out->code);
}

static bool start_job(struct build_job *j, struct err *e)
{
    if (!os_child_start(&j->child, job_main, j, e)) return false;
    j->child.runs_programs = true;
    j->child.stop = j->of->b->stop;
    return j->is_running = true;
}

static bool start_jobs(struct building *g, u32 n, struct err *e)
{
    bool ok = true;
    for (u32 k = 0; k < n && ok; k++) {
        struct build_job *j = &g->job[k];
        if (j->is_running || j->next == g->n) continue;
        ok = start_job(j, e);
    }
    return ok;
}

enum { SHARES_NOW = 3 }; /* of the texts, per one for a process that starts later */

/* The process that builds the k-th text. */
static u32 deal(u32 k, u32 n_now, u32 n_later)
{
    u32 at = k % (SHARES_NOW * n_now + n_later);
    return at < SHARES_NOW * n_now ? at % n_now : n_now + at - SHARES_NOW * n_now;
}

bool build_start(struct building *g, const struct builder *b, const struct str *text, u32 n,
                 u32 n_now, struct arena *a, struct err *e)
{
    u32 *then = arena_array(a, u32, n + 1), last[MAX_BUILD_JOBS], n_new = 0;
    u32 n_all = b->n_parallel ? b->n_parallel : (u32)os_n_cpus();
    if (n_all > MAX_BUILD_JOBS) n_all = MAX_BUILD_JOBS;
    if (n_now == 0 || n_now > n_all) n_now = n_all;
    *g = (struct building){
        .b = b, .text = text, .n = n, .n_jobs = n_all, .out = arena_array(a, struct built, n + 1)};
    for (u32 k = 0; k < n_all; k++) g->job[k] = (struct build_job){.of = g, .next = n, .then = then};
    for (u32 i = 0; i < n; i++) {
        then[i] = n;
        if (find(b, text[i], &g->out[i], a)) continue;
        u32 k = deal(n_new++, n_now, n_all - n_now);
        if (g->job[k].next == n) g->job[k].next = i;
        else then[last[k]] = i;
        last[k] = i;
    }
    return start_jobs(g, n_now, e);
}

/* Reads the result of the next text. If the process ended early and may have been building a
   program, this text is not to blame and is built alone. */
static bool collect_next(struct build_job *j, struct built *out, struct arena *a, struct err *e)
{
    bool was_wary;
    do {
        if (!j->is_running && !start_job(j, e)) return false;
        was_wary = j->is_wary || !may_join(j->of->b);
        enum os_exit how = collect_one(j, out, a);
        if (how == OS_STOPPED) return err_set(e, ERR_STOPPED, "stopped");
        if (out->is_system) return err_set(e, ERR_SYSTEM, "%.*s", STR_ARG(out->message));
        if (how == OS_EXITED) return true;
        j->is_running = false;
        os_child_end(&j->child);
        j->is_wary = true;
    } while (!was_wary);
    return true;
}

/* A process that ends early loses one candidate; another process continues after it. */
static bool collect(struct build_job *j, struct arena *a, struct err *e)
{
    bool ok = true;
    for (; j->next < j->of->n && ok; j->next = j->then[j->next]) {
        struct built *out = &j->of->out[j->next];
        ok = collect_next(j, out, a, e);
        if (ok && out->ok) (out->is_part ? cache_put_part : cache_put)(j->of->b->cache, build_key(j->of->b, j->of->text[j->next]), out->code);
    }
    return ok;
}

bool build_finish(struct building *g, struct arena *a, struct err *e)
{
    bool ok = !e->code && start_jobs(g, g->n_jobs, e);
    for (u32 k = 0; k < g->n_jobs && ok; k++) ok = collect(&g->job[k], a, e);
    build_abandon(g);
    return ok;
}

void build_abandon(struct building *g)
{
    bool killed = false;
    for (u32 k = 0; k < g->n_jobs; k++)
        if (g->job[k].is_running)
            killed = os_child_end(&g->job[k].child).how == OS_TIMEOUT || killed;
    if (killed) os_temp_sweep(); /* the killed processes left their temporary files */
    g->n_jobs = 0;
}

bool build_all(const struct builder *b, const struct str *text, u32 n, struct built *out,
               struct arena *a, struct err *e)
{
    struct building g;
    bool ok = build_start(&g, b, text, n, 0, a, e) && build_finish(&g, a, e);
    build_abandon(&g);
    for (u32 i = 0; i < n; i++) out[i] = g.out[i];
    return ok;
}

bool build_halve(const struct builder *b, const struct str *text, struct built *out, u32 n, u32 i, struct arena *a, struct err *e)
{
    struct builder anew = *b;
    struct str *part = arena_array(a, struct str, n);
    u32 *at = arena_array(a, u32, n), n_parts = 0;
    if (!out[i].ok || !out[i].is_part) return false;
    for (u32 k = 0; k < n; k++)
        if (out[k].ok && out[k].is_part && out[k].code.p == out[i].code.p) at[n_parts] = k, part[n_parts++] = text[k];
    anew.anew = true, anew.n_parallel = 1;
    for (u32 half = 0, from = 0; half < 2; half++) {
        u32 to = half ? n_parts : (n_parts + 1) / 2;
        struct built *built = arena_array(a, struct built, n);
        if (from < to && !build_all(&anew, part + from, to - from, built, a, e)) return false;
        for (u32 k = from; k < to; k++) out[at[k]] = built[k - from];
        from = to;
    }
    return true;
}
