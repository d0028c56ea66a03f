// SPDX-License-Identifier: Apache-2.0
//
// How fast a device's driver copies between its memory and the host's: what a value costs that
// one device makes and another one reads. Small and large transfers in both directions are timed
// in a child process, for drivers crash and hang; the slower direction counts. Kept in the
// user's cache beside the device's rates, because placements are to be the same ones tomorrow.
#include "tune/rates.h"

#include <math.h>

enum {
    REVISION = 1, /* of the measurement */
    REPEATS = 7,
    CHILD_SECONDS = 60
};
static const i64 small_bytes = 256, large_bytes = 8 << 20;

struct answer {
    struct link_rates r;
    struct err e;
};

static double transfer_seconds(struct dev *d, struct dev_mem m, void *host, i64 n, bool is_up,
                               struct err *e)
{
    double least = INFINITY;
    for (int i = 0; i < REPEATS && !e->code; i++) {
        double start = os_now();
        bool ok =
            is_up ? d->driver->upload(d, m, host, n, e) : d->driver->download(d, m, host, n, e);
        if (!ok || !d->driver->fence(d, e)) return INFINITY;
        least = fmin(least, os_now() - start);
    }
    return least;
}

static void measure(struct dev *d, struct link_rates *r, struct err *e)
{
    struct dev_mem m = {0};
    void *host = mem_aligned(large_bytes);
    if (!host) err_set(e, ERR_SYSTEM, "not enough memory to time copies");
    else if (d->driver->alloc(d, large_bytes, &m, e)) {
        transfer_seconds(d, m, host, large_bytes, true, e); /* pages are touched */
        for (int up = 0; up < 2 && !e->code; up++) {
            double few = transfer_seconds(d, m, host, small_bytes, up, e),
                   many = transfer_seconds(d, m, host, large_bytes, up, e);
            double rate = (double)(large_bytes - small_bytes) / fmax(many - few, 1e-9);
            r->bandwidth = up ? fmin(r->bandwidth, rate) : rate;
            r->latency = fmax(r->latency, few);
        }
        d->driver->release(d, &m);
    }
    mem_free(host);
}

static void child_main(void *user, int fd)
{
    const struct device_target *t = user;
    struct answer x = {.e = {0}};
    struct dev *d = t->driver->open(t->opts, &x.e);
    if (d) {
        measure(d, &x.r, &x.e);
        t->driver->close(d);
    }
    os_child_put(fd, &x, sizeof x);
}

static bool link_measure(struct link_rates *r, const struct device_target *t, struct err *e)
{
    struct answer x = {.e = {0}};
    struct os_child c;
    if (dev_is_described(t->opts) || dev_is_taken(t->driver))
        return err_set(e, ERR_UNSUPPORTED, "device '%s' cannot be measured", t->driver->name);
    if (!os_child_start(&c, child_main, (void *)(uintptr_t)t, e)) return false;
    c.stop = t->stop;
    enum os_exit how = os_child_get(&c, &x, sizeof x, CHILD_SECONDS);
    os_child_end(&c);
    if (how == OS_STOPPED) return err_set(e, ERR_STOPPED, "stopped");
    if (how != OS_EXITED)
        return err_set(e, ERR_FAILED, "device '%s' %s when copies were timed", t->driver->name,
                       how == OS_TIMEOUT ? "hung" : "crashed");
    if (x.e.code) return err_set(e, x.e.code, "%s", x.e.msg);
    *r = (struct link_rates){rates_round(x.r.bandwidth), rates_round(x.r.latency)};
    return (r->bandwidth > 0 && isfinite(r->bandwidth)) ||
           err_set(e, ERR_FAILED, "device '%s' copies nothing", t->driver->name);
}

static struct hash key_of(const struct device_target *t)
{
    struct buf b = {0};
    buf_printf(&b, "link %d\n%s\n%.*s\n", REVISION, t->driver->name, STR_ARG(t->fingerprint));
    struct hash h = hash_bytes(b.p, b.n);
    buf_release(&b);
    return h;
}

static bool link_parse(struct link_rates *r, struct str text)
{
    struct str a, b;
    return str_cut(text, ' ', &a, &b) && str_to_f64(a, &r->bandwidth) &&
           str_to_f64(b, &r->latency) && isfinite(r->bandwidth) && r->bandwidth > 0 &&
           isfinite(r->latency) && r->latency >= 0;
}

static bool find(struct link_rates *r, const struct cache *c, const struct device_target *t)
{
    struct arena a = {0};
    struct str text;
    bool ok = cache_get(c, key_of(t), &a, &text) && link_parse(r, text);
    arena_release(&a);
    return ok;
}

static void keep(const struct link_rates *r, const struct cache *c, const struct device_target *t)
{
    struct buf b = {0};
    buf_f64(&b, r->bandwidth), buf_char(&b, ' '), buf_f64(&b, r->latency);
    cache_put(c, key_of(t), buf_view(&b));
    buf_release(&b);
}

/* One process measures, others wait for it and use what it has found. */
bool link_at_first_use(struct link_rates *r, const struct device_target *t)
{
    struct arena a = {0};
    struct cache c;
    struct err e = {0};
    char hex[33];
    *r = (struct link_rates){0};
    cache_open(&c, "devices", &a, &(struct log){0});
    bool ok = find(r, &c, t);
    if (!ok) {
        hash_hex(key_of(t), hex);
        const char *path = str_fmt(&a, "%.*s/%s.lock", STR_ARG(c.folder), hex).p;
        int lock = c.folder.n ? os_lock(path, CHILD_SECONDS, t->stop) : -1;
        ok = find(r, &c, t) || link_measure(r, t, &e);
        if (ok) keep(r, &c, t);
        os_unlock(lock);
    }
    if (e.code && e.code != ERR_STOPPED && t->log) log_printf(t->log, 2, "%s", e.msg);
    arena_release(&a);
    return ok;
}
