// SPDX-License-Identifier: Apache-2.0
//
// dev_library.c: a vendor's library, opened at run time, and the functions that a driver needs of it.
#include "dev/dev.h"

#include <string.h>

/* The first of the usual names that is there. The error is about the first. */
static void *open_usual(const char *names, struct err *e)
{
    struct arena a = {0};
    struct str rest = str_of(names), name;
    void *lib = NULL;
    while (!lib && rest.n) {
        struct err none = {0};
        str_cut(rest, ' ', &name, &rest);
        lib = os_dlopen(str_z(&a, name), &none);
        if (!lib) err_set(e, none.code, "%s", none.msg);
    }
    if (lib) *e = (struct err){0};
    arena_release(&a);
    return lib;
}

static bool find_calls(const struct dev_library *l, void *lib, void *calls, struct err *e)
{
    for (i64 i = 0; i < l->n_call; i++) {
        if (!l->call[i].name) continue;
        void *f = os_dlsym(lib, l->call[i].name);
        if (!f && !l->call[i].may_lack)
            return err_set(e, ERR_SYSTEM, "the %s library has no '%s'", l->what, l->call[i].name);
        memcpy((char *)calls + l->call[i].at, &f, sizeof f);
    }
    return true;
}

void *dev_library_open(const struct dev_library *l, void *calls, struct err *e)
{
    struct err why = {0};
    const char *path = os_env(l->variable);
    void *lib = path && *path ? os_dlopen(path, &why) : open_usual(l->usual, &why);
    if (!lib) {
        err_set(e, why.code, "no %s: %s", l->what, why.msg);
        return NULL;
    }
    if (find_calls(l, lib, calls, e)) return lib;
    os_dlclose(lib);
    return NULL;
}
