// SPDX-License-Identifier: Apache-2.0
//
// Files of results. Files of other tools may lack everything but the name; several runs over parts of a space write one file.
#include "lab/json.h"
#include "lab/lab.h"

#include <stdlib.h>

static bool read_one(struct lab_results *r, struct arena *a, const json_t *j, struct err *e)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    if (!name) return err_set(e, ERR_INPUT, "result %u has no 'name'", r->n);
    struct lab_result x = {.name = str_dup(a, str_of(name)),
                           .speedup = json_number_value(json_object_get(j, "speedup")),
                           .ms = json_number_value(json_object_get(j, "time")),
                           .base_ms = json_number_value(json_object_get(j, "time_base"))};
    const char *baseline = json_string_value(json_object_get(j, "baseline"));
    if (baseline) x.baseline = str_dup(a, str_of(baseline));
    lab_results_add(r, a, &x);
    return true;
}

bool lab_results_read(struct lab_results *r, struct arena *a, struct str json, struct err *e)
{
    json_t *j = lab_json_read(json, e);
    const json_t *list = lab_json_list(j, "testResult", e);
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < json_array_size(list); i++) ok = read_one(r, a, json_array_get(list, i), e);
    json_decref(j);
    return ok;
}

void lab_results_add(struct lab_results *r, struct arena *a, const struct lab_result *x)
{
    for (u32 i = 0; i < r->n; i++)
        if (str_eq(r->v[i].name, x->name)) {
            r->v[i] = *x;
            return;
        }
    *arr_push(a, r) = *x;
}

/* Known speed-ups first, then known times, then names: always the same order. */
static int by_speedup(const void *p, const void *q)
{
    const struct lab_result *a = p, *b = q;
    if (a->speedup != b->speedup) return a->speedup > b->speedup ? -1 : 1;
    if (a->ms != b->ms) return a->ms < b->ms ? -1 : 1;
    return str_cmp(a->name, b->name);
}

static void put_number(struct buf *b, const char *key, double v)
{
    if (v <= 0) return;
    buf_printf(b, ", \"%s\": ", key);
    buf_f64(b, v);
}

static void put_text(struct buf *b, const char *key, struct str v)
{
    if (!v.n) return;
    buf_printf(b, ", \"%s\": ", key);
    buf_json_str(b, v);
}

void lab_results_print(struct buf *b, struct lab_results *r, u32 max)
{
    if (r->n) qsort(r->v, r->n, sizeof *r->v, by_speedup);
    buf_z(b, "{\"testResult\": [");
    for (u32 i = 0; i < r->n && i < max; i++) {
        buf_z(b, i ? ",\n  {\"name\": " : "\n  {\"name\": ");
        buf_json_str(b, r->v[i].name);
        put_number(b, "speedup", r->v[i].speedup);
        put_number(b, "time", r->v[i].ms);
        put_number(b, "time_base", r->v[i].base_ms);
        put_text(b, "baseline", r->v[i].baseline);
        buf_char(b, '}');
    }
    buf_z(b, r->n ? "\n]}\n" : "]}\n");
}
