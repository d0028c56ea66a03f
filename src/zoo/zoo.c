// SPDX-License-Identifier: Apache-2.0
//
// The registry of networks, in the order of their file names, and the sizes that users choose for one.
#include "zoo/zoo.h"

#define X(name) extern const struct zoo zoo_##name;
#include "zoo.inc"
#undef X

static const struct zoo *const all[] = {
#define X(name) &zoo_##name,
#include "zoo.inc"
#undef X
    NULL,
};

const struct zoo *zoo_at(i64 k) { return k < countof(all) ? all[k] : NULL; }

const struct zoo *zoo_find(struct str name)
{
    for (i64 k = 0; all[k]; k++)
        if (str_is(name, all[k]->name)) return all[k];
    return NULL;
}

static u32 count_sizes(const struct zoo *z)
{
    u32 n = 0;
    while (z->size && z->size[n].name) n++;
    assert(n <= ZOO_MAX_SIZES);
    return n;
}

static bool unknown_size(const struct zoo *z, struct str name, struct err *e)
{
    struct buf b = {0};
    for (u32 k = 0; k < count_sizes(z); k++) buf_printf(&b, "%s%s", k ? ", " : "; it has ", z->size[k].name);
    err_set(e, ERR_USAGE, "network '%s' has no size '%.*s'%s", z->name, STR_ARG(name), b.n ? b.p : ", its sizes are fixed");
    buf_release(&b);
    return false;
}

/* "layers=2" */
static bool read_size(const struct zoo *z, struct str item, i64 *sizes, struct err *e)
{
    struct str name, value;
    i64 v;
    if (!str_cut(item, '=', &name, &value) || !str_to_i64(str_trim(value), &v))
        return err_set(e, ERR_USAGE, "size '%.*s' is not of the form NAME=NUMBER", STR_ARG(item));
    name = str_trim(name);
    u32 k = 0, n = count_sizes(z);
    while (k < n && !str_is(name, z->size[k].name)) k++;
    if (k == n) return unknown_size(z, name, e);
    i64 least = z->size[k].real ? 1 : 0;
    if (v < least || v > ZOO_LARGEST)
        return err_set(e, ERR_USAGE, "size '%.*s' is not within %lld to %d", STR_ARG(item), (long long)least, ZOO_LARGEST);
    sizes[k] = v;
    return true;
}

bool zoo_build(const struct zoo *z, const char *text, bool is_small, struct graph *g, struct err *e)
{
    i64 sizes[ZOO_MAX_SIZES] = {0};
    struct str rest = str_of(text ? text : ""), item;
    for (u32 k = 0; k < count_sizes(z); k++) sizes[k] = is_small ? z->size[k].small : z->size[k].real;
    while (rest.n) {
        str_cut(rest, ',', &item, &rest);
        if (!read_size(z, str_trim(item), sizes, e)) return false;
    }
    if (!z->build(g, sizes, e) || e->code) return err_prefix(e, "network '%s'", z->name);
    return true;
}
