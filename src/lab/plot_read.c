// SPDX-License-Identifier: Apache-2.0
//
// The files of a run, for its plots. Columns are found by their names, others are left alone; numbers must be such that they can be drawn.
// Rounds are counted from 0 for each layer and kernel, so that those of two kernels belong together.
#include "lab/csv.h"
#include "lab/plot.h"

#include <string.h>

enum { MAX_WANTED = 8 };

struct table {
    struct plot_run *run;
    struct arena *a;
    struct err *e;
    const char *const *wanted;   /* names of columns, NULL behind the last */
    u32 column[MAX_WANTED];      /* where they are */
    struct csv_line row;         /* in work */
    i64 line;
};

static struct str cell(const struct table *t, u32 k) { return t->row.cell[t->column[k]]; }

struct str plot_name(struct arena *a, struct str s)
{
    s = str_trim(s);
    char *p = arena_array(a, char, s.n + 1);
    for (i64 i = 0; i < s.n; i++) p[i] = (u8)s.p[i] < ' ' || s.p[i] == '"' || s.p[i] == '\'' || s.p[i] == '\\' || s.p[i] == '`' ? '_' : s.p[i];
    return (struct str){p, s.n};
}

static struct str name_at(const struct table *t, u32 k) { return plot_name(t->a, cell(t, k)); }

static bool wrong(const struct table *t, u32 k, const char *expected)
{
    struct str s = cell(t, k);
    return err_set(t->e, ERR_INPUT, "column %u (%s): expected %s, found '%.*s'", t->column[k] + 1, t->wanted[k], expected, (int)i64_min(s.n, 60), s.p);
}

static bool count(const struct table *t, u32 k, i64 *v)
{
    return (str_to_i64(cell(t, k), v) && *v >= 0 && *v < 1 << 30) || wrong(t, k, "a whole number");
}

/* Between least and 1e18. */
static bool number(const struct table *t, u32 k, double least, double *v)
{
    return (str_to_f64(cell(t, k), v) && *v >= least && *v <= 1e18) || wrong(t, k, least > 0 ? "a number above 0" : "a number, not below 0");
}

/* Is it among names that are joined by " or "? */
static bool is_among(struct str joined, struct str name)
{
    for (i64 i = 0; i + name.n <= joined.n; i++) {
        struct str from = str_sub(joined, i, joined.n);
        bool begins = i == 0 || str_ends(str_sub(joined, 0, i), S(" or ")), ends = from.n == name.n || str_starts(str_sub(from, name.n, from.n), S(" or "));
        if (begins && ends && str_starts(from, name)) return true;
    }
    return false;
}

/* The first name of all is the implementation, every other one a baseline: layers may have different ones, because a library may lack some. */
static bool find_who(const struct table *t, u32 k, struct plot_layer *x, u32 *who)
{
    struct plot_run *r = t->run;
    struct str name = name_at(t, k);
    if (!name.n) return wrong(t, k, "a name");
    if (!r->n_who) r->who[r->n_who++] = name;
    *who = !str_eq(r->who[0], name);
    if (!*who) return true;
    if (x->base.n && !str_eq(x->base, name)) return wrong(t, k, "the baseline that this layer has before");
    x->base = name;
    if (r->n_who < PLOT_WHO) r->who[r->n_who++] = name;
    else if (!is_among(r->who[1], name)) r->who[1] = str_fmt(t->a, "%.*s or %.*s", STR_ARG(r->who[1]), STR_ARG(name)), r->differ = true;
    return true;
}

/* By number and name, columns 0 and 1. */
static struct plot_layer *find_layer(const struct table *t)
{
    struct plot_run *r = t->run;
    struct str name = name_at(t, 1);
    i64 n;
    if (!count(t, 0, &n)) return NULL;
    for (u32 i = r->layer.n; i-- > 0;) {
        if (r->layer.v[i].number != n) continue;
        if (str_eq(r->layer.v[i].name, name)) return &r->layer.v[i];
        wrong(t, 1, "the name that this layer has before");
        return NULL;
    }
    if (r->layer.n == PLOT_MAX_LAYERS) {
        err_set(t->e, ERR_UNSUPPORTED, "more than %d layers cannot be drawn", PLOT_MAX_LAYERS);
        return NULL;
    }
    struct plot_layer *x = arr_push(t->a, &r->layer);
    *x = (struct plot_layer){.number = n, .name = name};
    return x;
}

typedef bool row_fn(const struct table *t);

static bool on_sample(const struct table *t)
{
    u32 who;
    i64 round;
    double ms;
    struct plot_layer *x = find_layer(t);
    if (!x || !find_who(t, 2, x, &who) || !count(t, 3, &round) || !number(t, 4, 1e-12, &ms)) return false;
    if (round != x->ms[who].n) return wrong(t, 3, "the next round of this layer");
    *arr_push(t->a, &x->ms[who]) = ms;
    return true;
}

static bool on_place(const struct table *t)
{
    u32 who;
    double seconds;
    struct plot_layer *x = find_layer(t);
    if (!x || !find_who(t, 2, x, &who) || !number(t, 3, 1, &x->flops) || !number(t, 4, 1, &x->bytes) || !number(t, 5, 1e-12, &seconds)) return false;
    x->seconds[who] = seconds;
    return true;
}

static bool on_ceiling(const struct table *t)
{
    struct plot_ceiling c = {.name = name_at(t, 0), .unit = name_at(t, 1)};
    c.is_memory = str_is(c.unit, "GB/s");
    if (!c.is_memory && !str_is(c.unit, "GFLOP/s")) return wrong(t, 1, "GFLOP/s or GB/s");
    if (!number(t, 2, 1e-6, &c.value)) return false;
    if (t->run->ceiling.n == PLOT_MAX_LAYERS) return err_set(t->e, ERR_UNSUPPORTED, "more than %d ceilings cannot be drawn", PLOT_MAX_LAYERS);
    *arr_push(t->a, &t->run->ceiling) = c;
    return true;
}

static bool on_part(const struct table *t)
{
    struct plot_part p = {name_at(t, 0), name_at(t, 1), name_at(t, 2), 0};
    if (!number(t, 3, 0, &p.ms)) return false;
    if (t->run->part.n == PLOT_MAX_PARTS) return err_set(t->e, ERR_UNSUPPORTED, "more than %d parts cannot be drawn", PLOT_MAX_PARTS);
    *arr_push(t->a, &t->run->part) = p;
    return true;
}

static bool read_header(struct table *t)
{
    for (u32 k = 0; t->wanted[k]; k++) {
        u32 i = 0;
        while (i < t->row.n && !str_is(t->row.cell[i], t->wanted[k])) i++;
        if (i == t->row.n) return err_set(t->e, ERR_INPUT, "column '%s' is missing", t->wanted[k]);
        t->column[k] = i;
    }
    return true;
}

static bool read_lines(struct table *t, struct str all, row_fn *fn)
{
    struct str line;
    u32 columns = 0;
    for (bool more = true; more;) {
        more = str_cut(all, '\n', &line, &all);
        t->line++;
        if (!(line = str_trim(line)).n) continue;
        if (!csv_read(&t->row, t->a, line, t->e)) return false;
        if (!columns) {
            columns = t->row.n;
            if (!read_header(t)) return false;
            continue;
        }
        if (t->row.n != columns) return err_set(t->e, ERR_INPUT, "%u columns instead of %u", t->row.n, columns);
        if (!fn(t)) return false;
    }
    return true;
}

/* "csv = cosmoflow" lines become "cosmoflow, batch 1, f32, ..". */
static void read_about(struct plot_run *r, struct arena *a, struct str all)
{
    static const struct { const char *key, *before; } item[] = {{"csv", ""},         {"batch", "batch "},     {"dtype", ""},
                                                                {"device", ""},      {"threads", "threads "}, {"warm-up iterations", "warm-up rounds "},
                                                                {"total iterations", "rounds "}};
    struct buf b = {0};
    struct str line, key, value;
    for (bool more = true; more;) {
        more = str_cut(all, '\n', &line, &all);
        if (!str_cut(line, '=', &key, &value)) continue;
        for (i64 i = 0; i < countof(item); i++)
            if (str_is(str_trim(key), item[i].key)) buf_printf(&b, "%s%s%.*s", b.n ? ", " : "", item[i].before, STR_ARG(str_trim(value)));
    }
    r->about = plot_name(a, buf_view(&b));
    buf_release(&b);
}

static const char *const sample[] = {"layer", "layer_name", "who", "iteration", "ms", NULL};
static const char *const place[] = {"layer", "layer_name", "who", "flops", "bytes", "seconds", NULL};
static const char *const ceiling[] = {"name", "unit", "value", NULL};
static const char *const part[] = {"network", "layer", "operator", "ms", NULL};
static const struct { const char *name; const char *const *wanted; row_fn *fn; } file[N_PLOT_FILES] = {
    [PLOT_SAMPLES] = {"samples.csv", sample, on_sample},
    [PLOT_ROOFLINE] = {"roofline.csv", place, on_place},
    [PLOT_CEILINGS] = {"ceilings.csv", ceiling, on_ceiling},
    [PLOT_BREAKDOWN] = {"breakdown.csv", part, on_part},
};

const char *plot_file_name(enum plot_file k) { return file[k].name; }

bool plot_read_text(struct plot_run *r, struct arena *a, enum plot_file k, struct str text, struct err *e)
{
    struct table *t = arena_new(a, struct table);
    t->run = r, t->a = a, t->e = e, t->wanted = file[k].wanted;
    return read_lines(t, text, file[k].fn) || err_prefix(e, "line %lld", (long long)t->line);
}

static bool read_file(struct plot_run *r, struct arena *a, enum plot_file k, const char *dir, struct err *e)
{
    const char *path = str_fmt(a, "%s/%s", dir, file[k].name).p;
    struct str all;
    if (!os_exists(path)) return true;
    return os_read(a, path, PLOT_MAX_FILE, &all, e) && (plot_read_text(r, a, k, all, e) || err_prefix(e, "'%s'", path));
}

bool plot_read(struct plot_run *r, struct arena *a, const char *dir, struct err *e)
{
    const char *params = str_fmt(a, "%s/params.txt", dir).p;
    struct str all;
    *r = (struct plot_run){0};
    for (enum plot_file k = 0; k < N_PLOT_FILES; k++)
        if (!read_file(r, a, k, dir, e)) return false;
    if (!os_exists(params)) return true;
    if (!os_read(a, params, PLOT_MAX_FILE, &all, e)) return false;
    read_about(r, a, all);
    return true;
}
