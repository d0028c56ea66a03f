// SPDX-License-Identifier: Apache-2.0
//
// The device of a bench program: selected by name, with its properties for databases, families and
// builders. It is not kept open.
#ifndef QUERN_BENCH_TARGET_H
#define QUERN_BENCH_TARGET_H

#include "dev/dev.h"
#include "lang/lang.h"

struct bench_target {
    const struct dev_driver *driver;
    struct dev_opts dev;    /* threads and limits are set by the caller */
    struct caps caps;
    const struct lang *lang;
    struct buf fingerprint, toolchain;
};

/* Must be released even after a failure. */
static inline bool bench_target_open(struct bench_target *t, const char *device, struct err *e)
{
    if (!dev_select(device, &t->driver, &t->dev, e) || !dev_ask(t->driver, &t->dev, &t->caps, &t->fingerprint, e)) return false;
    t->lang = lang_for(str_of(t->driver->lang), e);
    return t->lang && t->lang->toolchain(&t->toolchain, &t->caps, e);
}

static inline void bench_target_release(struct bench_target *t) { buf_release(&t->fingerprint), buf_release(&t->toolchain); }

#endif
