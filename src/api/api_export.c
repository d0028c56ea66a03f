// SPDX-License-Identifier: Apache-2.0
//
// Export of networks and programs, and the list of formats. Declared and documented in
// include/quern.h.
#include "api/api_model.h"

#include "export/export.h"

struct exports { /* files opened by one call */
    struct arena arena;
    struct os_file *map;
    struct plan *plan;
    const struct plan **list;
    u32 n_plan;
    quern_model *model;
};

const char *quern_exporter(int k, const char **summary)
{
    const struct exporter *x = export_all(k);
    if (x && summary) *summary = x->summary;
    return x ? x->name : NULL;
}

static const struct exporter *find_exporter(const char *to, struct err *e)
{
    const struct exporter *x = export_find(str_of(to));
    struct buf b = {0};
    if (x) return x;
    for (i64 k = 0; export_all(k); k++) buf_printf(&b, "%s%s", k ? ", " : "", export_all(k)->name);
    err_set(e, ERR_USAGE, "no form '%s', there are: %.*s", to ? to : "", STR_ARG(buf_view(&b)));
    buf_release(&b);
    return NULL;
}

static bool open_file(quern *q, struct exports *x, const char *path)
{
    struct os_file *f = &x->map[x->n_plan];
    if (!api_artifact_load(q, f, path, NULL, &q->err)) return false;
    if (api_is_dnx(f)) {
        struct plan *p = &x->plan[x->n_plan];
        x->list[x->n_plan++] = p;
        return api_artifact_read(q, f, p, &x->arena, NULL, &q->err) || err_prefix(&q->err, "'%s'", path);
    }
    os_unmap(f);
    if (x->model) return err_set(&q->err, ERR_USAGE, "'%s': one network at a time", path);
    return quern_model_open(q, path, NULL, &x->model) == QUERN_OK;
}

static bool open_files(quern *q, struct exports *x, const char *const *file, int n)
{
    x->map = arena_array(&x->arena, struct os_file, n);
    x->plan = arena_array(&x->arena, struct plan, n);
    x->list = arena_array(&x->arena, const struct plan *, n);
    for (int k = 0; k < n; k++)
        if (!open_file(q, x, file[k])) return false;
    return true;
}

quern_status quern_export(quern *q, const char *const *file, int n_files, const char *path,
                          const struct quern_export_opts *o)
{
    if (!api_given(q, "file o", n_files > 0 ? (const void *)file : "", o)) return QUERN_USAGE;
    for (int k = 0; k < n_files; k++)
        if (!api_given(q, "file[k]", file[k])) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct exports x = {0};
    const struct exporter *to = find_exporter(o->to, e);
    bool ok = to && open_files(q, &x, file, n_files);
    struct export_job j = {.path = path,
                           .plan = x.list,
                           .n_plan = x.n_plan,
                           .log = &q->log,
                           .option = o->option,
                           .graph = x.model ? &x.model->model->graph : NULL};
    ok = ok && to->write(&j, e);
    quern_model_close(x.model);
    for (u32 k = 0; k < x.n_plan; k++) os_unmap(&x.map[k]);
    arena_release(&x.arena);
    return api_end(q, ok);
}
