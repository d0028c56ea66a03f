// SPDX-License-Identifier: Apache-2.0
//
// How a network was populated, as one line of JSON in the database. Populating the same network for
// the same device with other options is refused, and compiling warns; `bench` reads the devices
// from it.
#include "tune/tune.h"

#include <jansson.h>
#include <stdlib.h>

static void set_text(json_t *o, const char *key, struct str s)
{
    if (s.n) json_object_set_new(o, key, json_stringn(s.p, (size_t)s.n));
}

struct str populated_print(const struct populated *p, struct arena *a)
{
    json_t *o = json_object();
    set_text(o, "device", p->device);
    set_text(o, "limits", p->limits);
    if (p->n_threads) json_object_set_new(o, "threads", json_integer(p->n_threads));
    if (p->no_fusion) json_object_set_new(o, "fusion", json_false());
    if (p->no_concat) json_object_set_new(o, "memory-concat", json_false());
    set_text(o, "interface", p->interface);
    if (p->interface.n) json_object_set_new(o, "f16-storage", json_boolean(p->is_narrow));
    set_text(o, "optimize-for", p->sizes);
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    struct str s = str_dup(a, str_of(text));
    free(text); /* allocated by jansson */
    json_decref(o);
    return s;
}

static struct str get_text(const json_t *o, const char *key, struct arena *a)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? str_dup(a, str_of(s)) : (struct str){0};
}

/* false: no device in it */
static bool read_device(struct populated *p, struct str options, struct arena *a)
{
    json_error_t je;
    json_t *o = options.n ? json_loadb(options.p, (size_t)options.n, 0, &je) : NULL;
    json_int_t threads = json_integer_value(json_object_get(o, "threads"));
    *p = (struct populated){.device = get_text(o, "device", a),
                            .limits = get_text(o, "limits", a),
                            .n_threads = threads > 0 && threads < INT32_MAX ? (u32)threads : 0};
    json_decref(o);
    return p->device.n > 0;
}

static bool same_device(const struct populated *a, const struct populated *b)
{
    return str_eq(a->device, b->device) && str_eq(a->limits, b->limits) && a->n_threads == b->n_threads;
}

bool db_devices(struct db *d, struct arena *a, struct populated **list, u32 *n, struct err *e)
{
    struct str *options;
    u32 n_options;
    *n = 0;
    if (!db_all_options(d, a, &options, &n_options, e)) return false;
    struct populated *v = *list = arena_array(a, struct populated, n_options + 1);
    for (u32 i = 0; i < n_options; i++) {
        u32 k = 0;
        if (!read_device(&v[*n], options[i], a)) continue;
        while (!same_device(&v[k], &v[*n])) k++;
        *n += k == *n;
    }
    return true;
}
