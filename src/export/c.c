// SPDX-License-Identifier: Apache-2.0
//
// Exporter c: a network as sources in C99 that need no runtime (doc/export-c.md): a header, kernels with one function that calls them in order,
// weights, a test with results of the reference evaluator, and files for make and CMake. The caller makes the program for the target of the options
// (language c99): schedules and selection are those of any device.
#include "export/export_c.h"

#include <string.h>

enum { MAX_THREADS = 256 };

struct writer {
    struct c_net net;
    const struct export_job *j;
    const char *dir;
    struct err *e;
};

static const struct c_isa *isa_asked(const struct export_job *j, struct err *e)
{
    const char *name = export_option(j, "isa");
    return c_isa_find(str_of(name ? name : "generic"), e);
}

static bool read_threads(const struct export_job *j, u32 *n, struct err *e)
{
    const char *text = export_option(j, "threads");
    i64 v = 1;
    if (text && (!str_to_i64(str_of(text), &v) || v < 1 || v > MAX_THREADS))
        return err_set(e, ERR_USAGE, "--threads %s: a number from 1 to %d", text, MAX_THREADS);
    *n = (u32)v;
    return true;
}

static bool target(const struct export_job *j, struct export_target *t, struct err *e)
{
    const struct c_isa *isa = isa_asked(j, e);
    u32 threads;
    if (!isa || !read_threads(j, &threads, e)) return false;
    c_isa_caps(isa, threads, &t->caps);
    t->lang = lang_find(S("c99"));
    return true;
}

typedef void print_fn(struct buf *b, const struct c_net *n);

static bool write_text(struct writer *w, struct str name, const struct buf *b)
{
    struct str path = str_fmt(w->net.a, "%s/%.*s", w->dir, STR_ARG(name));
    if (b->failed) return err_set(w->e, ERR_SYSTEM, "out of memory");
    return os_write(path.p, b->p ? b->p : "", b->n, w->e);
}

static bool write_printed(struct writer *w, struct str name, print_fn *print)
{
    struct buf b = {0};
    print(&b, &w->net);
    bool ok = write_text(w, name, &b);
    buf_release(&b);
    return ok;
}

static bool write_test(struct writer *w)
{
    struct buf b = {0};
    c_print_test(&b, &w->net, w->j);
    bool ok = write_text(w, str_fmt(w->net.a, "%.*s_test.c", STR_ARG(w->net.prefix)), &b);
    buf_release(&b);
    return ok;
}

static bool write_all(struct writer *w)
{
    struct c_net *n = &w->net;
    struct str p = n->prefix;
    bool ok = n->weights.n ? write_printed(w, n->weights, c_put_weights)
                           : write_printed(w, str_fmt(n->a, "%.*s_weights.c", STR_ARG(p)), c_print_weights);
    return ok && write_printed(w, str_fmt(n->a, "%.*s.h", STR_ARG(p)), c_print_header) && write_printed(w, str_fmt(n->a, "%.*s.c", STR_ARG(p)), c_print_source) &&
           write_test(w) && write_printed(w, S("Makefile"), c_print_make) && write_printed(w, S("CMakeLists.txt"), c_print_cmake);
}

static bool read_options(struct writer *w)
{
    const char *prefix = export_option(w->j, "prefix"), *weights = export_option(w->j, "weights");
    struct c_net *n = &w->net;
    n->isa = isa_asked(w->j, w->e);
    n->prefix = str_of(prefix ? prefix : "net");
    if (!n->isa || !read_threads(w->j, &n->caps.n_threads, w->e)) return false;
    if (!c_identifier_ok(n->prefix)) return err_set(w->e, ERR_USAGE, "--prefix %s: not an identifier of C of at most 40 characters", prefix);
    if (weights && (!*weights || strpbrk(weights, "/\"\\\n $;"))) return err_set(w->e, ERR_USAGE, "--weights %s: the name of a file in the folder", weights);
    n->weights = str_of(weights ? weights : "");
    c_isa_caps(n->isa, n->caps.n_threads, &n->caps);
    n->has_threads = n->caps.n_threads > 1;
    return true;
}

static bool c_write(const struct export_job *j, struct err *e)
{
    struct arena a = {0};
    struct writer w = {.net = {.a = &a}, .j = j, .dir = j->path, .e = e};
    if (!j->path) return err_set(e, ERR_USAGE, "no folder to write to (-o)");
    if (j->n_plan != 1 || !j->graph) return err_set(e, ERR_USAGE, "export to c needs a network, not a program (.dnx)");
    w.net.p = j->plan[0];
    bool ok = read_options(&w) && c_net_init(&w.net, e) && os_mkdirs(j->path, e) && write_all(&w);
    if (ok)
        log_printf(j->log, 2, "'%s': %u kernels called, arena of %lld bytes (bound %lld)", j->path, w.net.p->dispatch.n, (long long)w.net.arena.bytes,
                   (long long)w.net.arena.bound);
    arena_release(&a);
    return ok;
}

const struct exporter export_c = {
    .name = "c",
    .summary = "sources in C99 that need no runtime",
    .target = target,
    .write = c_write,
};
