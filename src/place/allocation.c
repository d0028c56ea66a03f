// SPDX-License-Identifier: Apache-2.0
//
// Allocations as text: a flat JSON object, a device for each operator, {"conv2d_2": "HEXAGON:0",
// "add_5": "X64:1"} (doc/allocation.md). The text is untrusted and written by hand: errors name
// the line, the operator, the device, and what it could have been. jansson checks the syntax; it
// keeps the order of the members but not their lines, which are found afterwards: in a flat
// object of strings, member k is the text's string 2k.
#include "place/place.h"

#include <jansson.h>
#include <string.h>

struct reader {
    struct place_allocation *y;
    const struct place_net *x;
    struct place_devices *d;
    struct arena *a;
    u32 *line; /* per member: of its name */
    struct err *e;
};

/* Lines of the strings at even places of a text that is an object of strings. */
static u32 *find_lines(struct arena *a, struct str text, size_t n)
{
    u32 *at = arena_array(a, u32, n + 1), line = 1, found = 0;
    for (i64 i = 0; i < text.n; i++) {
        if (text.p[i] == '\n') line++;
        if (text.p[i] != '"') continue;
        if (found % 2 == 0 && found / 2 < n) at[found / 2] = line;
        found++;
        for (i++; i < text.n && text.p[i] != '"'; i++) i += text.p[i] == '\\';
    }
    return at;
}

static bool unknown_op(const struct reader *r, u32 line, struct str name)
{
    const struct place_op *near = NULL;
    i64 least = 2 + name.n / 3;
    for (u32 k = 0; k < r->x->op.n; k++) {
        i64 d = str_distance(name, r->x->op.v[k].name);
        if (d < least) least = d, near = &r->x->op.v[k];
    }
    if (near)
        return err_set(r->e, ERR_INPUT, "line %u: no operator '%.*s', did you mean '%.*s'?", line,
                       STR_ARG(name), STR_ARG(near->name));
    if (!r->x->op.n)
        return err_set(r->e, ERR_INPUT, "line %u: no operator '%.*s': network '%.*s' has none",
                       line, STR_ARG(name), STR_ARG(r->x->name));
    const struct place_op *first = &r->x->op.v[0], *last = &r->x->op.v[r->x->op.n - 1];
    return err_set(
        r->e, ERR_INPUT,
        "line %u: no operator '%.*s'; network '%.*s' has %u, '%.*s' to '%.*s' (quern graph)", line,
        STR_ARG(name), STR_ARG(r->x->name), r->x->op.n, STR_ARG(first->name), STR_ARG(last->name));
}

/* The listed devices that can run operator k. */
static void print_able(struct buf *b, const struct reader *r, u32 k)
{
    u32 n = 0;
    for (u32 i = 0; i < r->d->n; i++) {
        struct err why = {0};
        if (place_can_run(&r->d->v[i], r->x, k, &why))
            buf_printf(b, "%s%.*s", n++ ? ", " : "", STR_ARG(r->d->v[i].name));
    }
    for (u32 i = 0; place_kind_at(i) && !n; i++)
        if (!place_kind_at(i)->can_run) buf_printf(b, "%s:0", place_kind_at(i)->name), n++;
}

static bool cannot_run(const struct reader *r, u32 line, u32 k, const struct place_device *dev,
                       const char *why)
{
    struct buf b = {0};
    print_able(&b, r, k);
    err_set(r->e, ERR_INPUT, "line %u: operator '%.*s' cannot run on '%.*s': %s; it can on %.*s",
            line, STR_ARG(r->x->op.v[k].name), STR_ARG(dev->name), why, STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

static bool read_device(struct reader *r, u32 line, u32 k, struct str name)
{
    u32 at = place_device_find(r->d, name);
    struct place_device x;
    struct err why = {0};
    if (at == UINT32_MAX) {
        if (!place_device_named(&x, name, r->a, r->e)) {
            r->e->code = ERR_INPUT;
            return err_prefix(r->e, "line %u: operator '%.*s'", line, STR_ARG(r->x->op.v[k].name));
        }
        at = r->d->n;
        *arr_push(r->a, r->d) = x;
    }
    r->y->device[k] = at;
    return place_can_run(&r->d->v[at], r->x, k, &why) ||
           cannot_run(r, line, k, &r->d->v[at], why.msg);
}

static bool read_member(struct reader *r, u32 line, struct str name, const json_t *value)
{
    const u64 *k = map_get(&r->x->op_by_name, name);
    if (!k) return unknown_op(r, line, name);
    return read_device(r, line, (u32)*k,
                       (struct str){json_string_value(value), (i64)json_string_length(value)});
}

/* Before the lines are looked for, which supposes that. */
static bool is_flat(const json_t *j, struct err *e)
{
    const char *name;
    const json_t *value;
    json_object_foreach(
        (json_t *)(uintptr_t)j, name,
        value) if (!json_is_string(value)) return err_set(e, ERR_INPUT,
                                                          "the device of operator '%.200s' is no "
                                                          "text like \"X64:0\"",
                                                          name);
    return true;
}

static bool all_placed(const struct reader *r)
{
    u32 n = 0, first = 0;
    for (u32 k = r->x->op.n; k-- > 0;)
        if (r->y->device[k] == UINT32_MAX) n++, first = k;
    if (!n) return true;
    const char *like = r->d->n ? r->d->v[0].name.p : "X64:0";
    const struct str name = r->x->op.v[first].name;
    if (n == 1)
        return err_set(r->e, ERR_INPUT, "operator '%.*s' has no device: add \"%.*s\": \"%s\"",
                       STR_ARG(name), STR_ARG(name), like);
    return err_set(r->e, ERR_INPUT,
                   "%u operators have no device, the first is '%.*s': add \"%.*s\": \"%s\"", n,
                   STR_ARG(name), STR_ARG(name), like);
}

static bool read_all(struct reader *r, json_t *j)
{
    const char *name;
    json_t *value;
    u32 at = 0;
    json_object_foreach(j, name, value)
    {
        if (!mem_check(r->e, "reading an allocation", S(""))) return false;
        if (!read_member(r, r->line[at++], str_of(name), value)) return false;
    }
    return all_placed(r);
}

static json_t *parse(struct str text, struct err *e)
{
    json_error_t why;
    json_t *j = json_loadb(text.p ? text.p : "", (size_t)text.n, JSON_REJECT_DUPLICATES, &why);
    if (!j) err_set(e, ERR_INPUT, "line %d, column %d: %s", why.line, why.column, why.text);
    else if (!json_is_object(j))
        err_set(e, ERR_INPUT, "not an object {\"operator\": \"device\", ..}");
    else if (is_flat(j, e)) return j;
    json_decref(j);
    return NULL;
}

bool place_allocation_parse(struct place_allocation *y, const struct place_net *x,
                            struct place_devices *d, struct str json, struct arena *a,
                            struct err *e)
{
    struct reader r = {.y = y, .x = x, .d = d, .a = a, .e = e};
    json_t *j = parse(json, e);
    if (!j) return false;
    y->device = arena_array(a, u32, x->op.n + 1);
    memset(y->device, 0xff, sizeof y->device[0] * (x->op.n + 1));
    r.line = find_lines(a, json, json_object_size(j));
    bool ok = read_all(&r, j);
    json_decref(j);
    return ok;
}

void place_allocation_print(struct buf *b, const struct place_allocation *y,
                            const struct place_net *x, const struct place_devices *d)
{
    buf_char(b, '{');
    for (u32 k = 0; k < x->op.n; k++) {
        buf_z(b, k ? ",\n  " : "\n  ");
        buf_json_str(b, x->op.v[k].name);
        buf_z(b, ": ");
        buf_json_str(b, d->v[y->device[k]].name);
    }
    buf_z(b, x->op.n ? "\n}\n" : "}\n");
}

bool place_allocation_read(struct place_allocation *y, const struct place_net *x, struct place_devices *d,
                           const char *json, const char *path, struct arena *a, struct err *e)
{
    enum { MAX_BYTES = 1 << 26 };
    struct str text = str_of(json);
    if (path && json) return err_set(e, ERR_USAGE, "an allocation as text, and one as a file");
    if (path && !os_read(a, path, MAX_BYTES, &text, e)) return false;
    return place_allocation_parse(y, x, d, text, a, e) || (path && err_prefix(e, "'%s'", path));
}
