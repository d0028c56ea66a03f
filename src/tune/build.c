// SPDX-License-Identifier: Apache-2.0
//
// Building many texts: each in a child process, as many at a time as there are processors, results
// cached in the database by the hash of text, compiler and target. A compiler that crashes or hangs
// costs one candidate.
#include "tune/tune.h"

#include <string.h>

enum { MAX_PARALLEL = 64 };
static const double default_timeout = 60;

struct head {
    u8 ok, timed_out;
    i64 n;
};

struct job {
    const struct builder *b;
    struct str text;
    u32 at;
    struct os_child child;
};

static double timeout_of(const struct builder *b)
{
    return b->timeout > 0 ? b->timeout : default_timeout;
}

static void job_main(void *user, int fd)
{
    struct job *j = user;
    struct buf code = {0};
    struct err e = {0};
    double start = os_now();
    bool ok = j->b->lang->build(&code, j->text, j->b->caps, timeout_of(j->b), &e);
    struct head h = {.ok = ok, .timed_out = !ok && os_now() - start >= timeout_of(j->b)};
    h.n = ok ? code.n : (i64)strlen(e.msg);
    os_child_put(fd, &h, sizeof h);
    os_child_put(fd, ok ? code.p : e.msg, h.n);
}

static void job_collect(struct job *j, struct built *out, struct arena *a)
{
    struct head h = {0};
    double limit = timeout_of(j->b) + 10;
    enum os_exit how = os_child_get(&j->child, &h, sizeof h, limit);
    char *p = NULL;
    if (how == OS_EXITED) {
        p = arena_alloc(a, h.n + 1);
        how = os_child_get(&j->child, p, h.n, limit);
    }
    os_child_end(&j->child);
    *out = (struct built){.ok = how == OS_EXITED && h.ok,
                          .timed_out = how == OS_TIMEOUT || h.timed_out};
    if (out->ok) out->code = (struct str){p, h.n};
    else
        out->message =
            how == OS_EXITED ? (struct str){p, h.n} : S("the build process ended without a result");
}

struct hash build_key(const struct builder *b, struct str text)
{
    struct buf k = {0};
    buf_printf(&k, "%s\n", b->lang->name);
    buf_str(&k, b->toolchain);
    buf_char(&k, '\n');
    caps_print(&k, b->caps);
    buf_char(&k, '\n');
    buf_str(&k, text);
    struct hash h = hash_bytes(k.p, k.n);
    buf_release(&k);
    return h;
}

static bool store(const struct builder *b, struct str text, const struct built *r, struct err *e)
{
    return !b->db || !r->ok || db_put_binary(b->db, build_key(b, text), r->code, e);
}

bool build_all(const struct builder *b, const struct str *text, u32 n, struct built *out,
               struct arena *a, struct err *e)
{
    struct job job[MAX_PARALLEL];
    u32 limit = b->n_parallel ? b->n_parallel : (u32)os_n_cpus(), first = 0, running = 0;
    if (limit > MAX_PARALLEL) limit = MAX_PARALLEL;
    bool ok = true;
    for (u32 i = 0; i < n; i++) {
        out[i] = (struct built){0};
        if (b->db && db_get_binary(b->db, build_key(b, text[i]), a, &out[i].code)) {
            out[i].ok = true;
            continue;
        }
        if (running == limit) { /* the oldest is the next to be done, near enough */
            struct job *j = &job[first++ % MAX_PARALLEL];
            job_collect(j, &out[j->at], a);
            running--;
            ok = ok && store(b, text[j->at], &out[j->at], e);
        }
        struct job *j = &job[(first + running) % MAX_PARALLEL];
        *j = (struct job){.b = b, .text = text[i], .at = i};
        if (!os_child_start(&j->child, job_main, j, e)) {
            ok = false;
            break;
        }
        running++;
    }
    for (; running > 0; running--, first++) {
        struct job *j = &job[first % MAX_PARALLEL];
        job_collect(j, &out[j->at], a);
        ok = ok && store(b, text[j->at], &out[j->at], e);
    }
    return ok;
}
