// SPDX-License-Identifier: Apache-2.0
//
// Relations between the fields of a configuration of any kind, with errors that name the fields.
#include "lab/config.h"

static const char *tag(const struct lab_config *c, u32 f) { return lab_field(c->kind, f)->tag; }

bool lab_is_product(const struct lab_config *c, const struct lab_product *p, struct err *e)
{
    i64 n = (i64)c->v[p->x] * c->v[p->y];
    return n * c->v[p->z] == c->v[p->whole] ||
           err_set(e, ERR_INPUT, "'%s%d' is not %s%d x %s%d x %s%d", tag(c, p->whole), c->v[p->whole], tag(c, p->x), c->v[p->x],
                   tag(c, p->y), c->v[p->y], tag(c, p->z), c->v[p->z]);
}

bool lab_divides(const struct lab_config *c, u32 f, u32 whole, struct err *e)
{
    return c->v[whole] % c->v[f] == 0 ||
           err_set(e, ERR_INPUT, "'%s%d' does not divide %s%d", tag(c, f), c->v[f], tag(c, whole), c->v[whole]);
}

bool lab_shares(const struct lab_config *c, u32 width, const struct lab_tile *t, struct err *e)
{
    return t->elements % (t->threads * c->v[width]) == 0 ||
           err_set(e, ERR_INPUT, "'%s%d': %lld threads x %d elements do not divide %s of %lld", tag(c, width), c->v[width],
                   (long long)t->threads, c->v[width], t->what, (long long)t->elements);
}

bool lab_group_fits(double threads, struct err *e)
{
    enum { MOST_THREADS = 1024 };
    return threads <= MOST_THREADS || err_set(e, ERR_INPUT, "%.0f threads of a group are more than %d", threads, MOST_THREADS);
}
