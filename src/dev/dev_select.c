// SPDX-License-Identifier: Apache-2.0
//
// dev_select.c: selection of a device by name, and queries about a device without keeping it open.
//
// A vendor's library starts threads, opens device files and installs handlers; a process that has
// loaded one cannot fork children that use it. Tuning depends on such children. Drivers of that kind
// (is_foreign) are therefore queried in a child process, which also turns a hanging or crashing driver
// into an error, unless the library is loaded in this process already: then they are queried here.
//
// The answer is sent through a pipe between two copies of this program: structs are sent as they are.
#include "dev/dev.h"

#include <string.h>

static const double ask_seconds = 60; /* the first start of a driver compiles and loads much */
enum { MAX_ANSWER = 1 << 20 };

struct question {
    const struct dev_driver *driver;
    const struct dev_opts *opts; /* NULL: only names are requested */
    const struct dev_gemm *gemm; /* support is queried; both NULL: properties */
    const struct dev_conv *conv;       /* likewise */
};

struct head { /* of an answer; text follows: names, or a fingerprint */
    struct err e;
    struct caps caps;
    i64 n_text;
};

static void names_of(const struct dev_driver *v, struct buf *out)
{
    if (v->names) v->names(out);
    else if (v->count() > 0) buf_printf(out, "%s\n", v->name);
}

static void try_library(const struct question *q, struct dev *d, struct head *h, struct buf *text)
{
    struct dev_kernel *k = q->gemm ? q->driver->gemm(d, q->gemm, text, &h->e) : q->driver->conv(d, q->conv, text, &h->e);
    if (k) q->driver->unload(d, k);
}

static void describe(const struct question *q, struct head *h, struct buf *text)
{
    struct dev *d = q->driver->open(q->opts, &h->e);
    if (!d) return;
    if (q->gemm || q->conv) try_library(q, d, h, text);
    else {
        q->driver->caps(d, &h->caps);
        q->driver->fingerprint(d, text);
    }
    q->driver->close(d);
}

static void answer(const struct question *q, struct head *h, struct buf *text)
{
    if (q->opts) describe(q, h, text);
    else names_of(q->driver, text);
    h->n_text = text->n;
}

static void child_main(void *user, int fd)
{
    struct head h;
    struct buf text = {0};
    memset(&h, 0, sizeof h); /* including padding: it is sent through the pipe */
    answer(user, &h, &text);
    if (os_child_put(fd, &h, sizeof h)) os_child_put(fd, text.p, text.n);
}

static bool ask_child(const struct question *q, struct head *h, struct buf *text, struct err *e)
{
    struct os_child c;
    if (!os_child_start(&c, child_main, (void *)(uintptr_t)q, e)) return false;
    enum os_exit how = os_child_get(&c, h, sizeof *h, ask_seconds);
    for (i64 left = how == OS_EXITED ? i64_min(h->n_text, MAX_ANSWER) : 0; left > 0;) {
        char piece[4096];
        i64 n = i64_min(left, (i64)sizeof piece);
        how = os_child_get(&c, piece, n, ask_seconds);
        if (how != OS_EXITED) break;
        buf_put(text, piece, n);
        left -= n;
    }
    os_child_end(&c);
    if (how == OS_EXITED) return true;
    return err_set(e, ERR_SYSTEM, "the driver '%s' %s when it was opened", q->driver->name,
                   how == OS_TIMEOUT ? "hung" : "crashed");
}

bool dev_is_taken(const struct dev_driver *v) { return (v->in_use && v->in_use()) || (v->is_loaded && v->is_loaded()); }

static bool ask(const struct question *q, struct head *h, struct buf *text, struct err *e)
{
    *h = (struct head){0};
    bool is_attached = q->opts && q->opts->attached;
    if (!q->driver->is_foreign || is_attached || dev_is_taken(q->driver)) answer(q, h, text);
    else if (!ask_child(q, h, text, e)) return false;
    return h->e.code == ERR_NONE || err_set(e, h->e.code, "%s", h->e.msg);
}

static bool look_up(const struct dev_driver *v, const struct dev_opts *o, struct head *h, struct buf *text,
                    struct err *e)
{
    struct str arch = o->target;
    *h = (struct head){0};
    if (!dev_target(&h->caps, v->name, arch))
        return err_set(e, ERR_USAGE, "device '%s' knows no architecture '%.*s'", v->name, STR_ARG(arch));
    if (o->n_threads && !h->caps.is_gpu) h->caps.n_threads = o->n_threads;
    buf_printf(text, "%s %.*s as it is described, not measured", v->name, STR_ARG(arch));
    return true;
}

static bool ask_or_look(const struct dev_driver *v, const struct dev_opts *o, struct head *h,
                        struct buf *text, struct err *e)
{
    if (o->target.n) return look_up(v, o, h, text, e);
    if (!o->as) return ask(&(struct question){.driver = v, .opts = o}, h, text, e);
    *h = (struct head){.caps = o->as->caps};
    buf_str(text, o->as->fingerprint);
    return true;
}

bool dev_ask(const struct dev_driver *v, const struct dev_opts *o, struct caps *caps,
             struct buf *fingerprint, struct err *e)
{
    struct head h;
    struct buf text = {0};
    bool changed = false;
    bool ok = ask_or_look(v, o, &h, &text, e) && caps_limit(&h.caps, o->limits, &changed, e);
    if (ok && caps) *caps = h.caps;
    if (ok && fingerprint) buf_str(fingerprint, buf_view(&text));
    if (ok && fingerprint && changed) buf_printf(fingerprint, "; %.*s", STR_ARG(o->limits));
    buf_release(&text);
    return ok;
}

static bool ask_library(const struct question *q, bool has, const char *what, struct buf *name, struct err *e)
{
    struct head h;
    const char *device = q->driver->name;
    if (!has) return err_set(e, ERR_UNSUPPORTED, "device '%s' knows no library with %s", device, what);
    if (dev_is_described(q->opts)) return err_set(e, ERR_USAGE, "device '%s' is only described and cannot run programs", device);
    return ask(q, &h, name, e);
}

bool dev_ask_gemm(const struct dev_driver *v, const struct dev_opts *o, const struct dev_gemm *p, struct buf *name,
                     struct err *e)
{
    return ask_library(&(struct question){.driver = v, .opts = o, .gemm = p}, v->gemm != NULL, "GEMM", name, e);
}

bool dev_ask_conv(const struct dev_driver *v, const struct dev_opts *o, const struct dev_conv *c, struct buf *name, struct err *e)
{
    return ask_library(&(struct question){.driver = v, .opts = o, .conv = c}, v->conv != NULL, "convolutions", name, e);
}

/* Names of a driver's devices, one per line; none if the query fails. */
static struct str device_names(const struct dev_driver *v, struct arena *a)
{
    struct head h;
    struct buf text = {0};
    struct err e = {0};
    ask(&(struct question){.driver = v}, &h, &text, &e);
    struct str names = str_dup(a, buf_view(&text));
    buf_release(&text);
    return names;
}

static void fill_info(struct dev_info *x, struct arena *a)
{
    struct buf fp = {0};
    struct err e = {0};
    if (!dev_ask(x->driver, &x->opts, &x->caps, &fp, &e)) x->trouble = str_dup(a, str_of(e.msg));
    x->fingerprint = str_dup(a, buf_view(&fp));
    buf_release(&fp);
}

struct list {
    struct dev_info *v;
    u32 n, cap;
};

static void add_targets(struct list *list, const struct dev_driver *v, struct arena *a)
{
    struct buf b = {0};
    dev_target_names(v->name, &b);
    dev_core_names(v->name, &b);
    struct str rest = str_dup(a, buf_view(&b)), name, driver, arch;
    buf_release(&b);
    while (str_cut(rest, '\n', &name, &rest) && str_cut(name, ':', &driver, &arch)) {
        struct dev_info *x = arr_push(a, list);
        *x = (struct dev_info){.driver = v, .opts = {.target = arch}, .name = name};
        fill_info(x, a);
    }
}

u32 dev_list(struct arena *a, struct dev_info **v)
{
    struct list list = {0};
    i64 n_drivers;
    const struct dev_driver *const *all = dev_all(&n_drivers);
    for (i64 i = 0; i < n_drivers; i++) {
        struct str rest = device_names(all[i], a), name;
        for (u32 k = 0; str_cut(rest, '\n', &name, &rest); k++) {
            struct dev_info *x = arr_push(a, &list);
            *x = (struct dev_info){.driver = all[i], .opts = {.index = k}, .name = name};
            fill_info(x, a);
        }
        add_targets(&list, all[i], a);
    }
    *v = list.v;
    return list.n;
}

/* The first device of any driver whose name, or whose driver's name, matches. Collects the present
   devices for the message. */
static const struct dev_driver *match_device(struct str glob, struct dev_opts *opts,
                                             struct arena *a, struct buf *there)
{
    i64 n;
    const struct dev_driver *const *all = dev_all(&n);
    for (i64 i = 0; i < n; i++) {
        struct str rest = device_names(all[i], a), name;
        bool by_driver = rest.n && str_glob(glob, str_of(all[i]->name));
        if (by_driver) return all[i];
        while (str_cut(rest, '\n', &name, &rest)) {
            if (str_glob(glob, name)) {
                opts->name = glob;
                return all[i];
            }
            buf_printf(there, "%s'%.*s'", there->n ? ", " : "", STR_ARG(name));
        }
    }
    return NULL;
}

/* The driver of processors, if the name is one of their architectures; NULL: it is not. */
static const struct dev_driver *driver_of_processors(struct str name)
{
    struct caps c;
    const struct dev_driver *cpu = dev_find(S("cpu"));
    return cpu && dev_target(&c, cpu->name, name) ? cpu : NULL;
}

/* "cuda:sm_90": driver and architecture, if the driver has such. The CPU's need no driver, "cortex-a76", or the family
   instead, "aarch64:cortex-a76". */
static bool is_target(struct str want, const struct dev_driver **driver, struct str *arch, struct buf *known)
{
    struct str name;
    if (str_cut(want, ':', &name, arch)) {
        *driver = dev_find(name);
        if (!*driver) *driver = driver_of_processors(name);
    } else {
        *driver = driver_of_processors(want);
        *arch = want;
    }
    if (!*driver) return false;
    dev_target_names((*driver)->name, known);
    dev_core_names((*driver)->name, known);
    return known->n > 0;
}

/* "cuda:1": a driver, and the number of one of its devices. */
static bool is_number(struct str want, const struct dev_driver **driver, u32 *index)
{
    struct str name, number;
    i64 n;
    if (!str_cut(want, ':', &name, &number) || !str_to_i64(number, &n) || n < 0 || n > UINT16_MAX) return false;
    *driver = dev_find(name);
    if (!*driver || !(*driver)->names) return false;
    *index = (u32)n;
    return true;
}

static bool select_target(const struct dev_driver *v, struct str arch, struct buf *known,
                          struct dev_opts *opts, struct err *e)
{
    struct caps c;
    opts->target = arch;
    if (dev_target(&c, v->name, arch)) return true;
    for (i64 i = 0; i < known->n; i++)
        if (known->p[i] == '\n') known->p[i] = i + 1 < known->n ? ' ' : 0;
    return err_set(e, ERR_USAGE, "device '%s' knows no architecture '%.*s'; there are: %s", v->name, STR_ARG(arch), known->p);
}

bool dev_select(const char *glob, const struct dev_driver **driver, struct dev_opts *opts,
                struct err *e)
{
    struct str want = str_of(glob ? glob : "cpu");
    opts->name = (struct str){0};
    opts->index = 0;
    opts->target = (struct str){0};
    *driver = dev_find(want);
    /* opening a missing device reports the error */
    if (*driver || is_number(want, driver, &opts->index)) return true;
    struct arena a = {0};
    struct buf there = {0};
    struct str arch;
    if (is_target(want, driver, &arch, &there)) {
        bool ok = select_target(*driver, arch, &there, opts, e);
        buf_release(&there);
        return ok;
    }
    *driver = match_device(want, opts, &a, &there);
    if (!*driver) {
        buf_z(&there, "; described:");
        for (i64 k = 0; dev_core_name(k); k++) buf_printf(&there, " %s", dev_core_name(k));
        err_set(e, ERR_USAGE, "no device matches '%.*s'; there are: %.*s (all: quern devices)", STR_ARG(want),
                STR_ARG(buf_view(&there)));
    }
    buf_release(&there);
    arena_release(&a);
    return *driver != NULL;
}
