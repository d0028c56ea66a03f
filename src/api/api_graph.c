// SPDX-License-Identifier: Apache-2.0
//
// Networks as graphs and pictures. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include "view/view.h"

#include <string.h>

enum { USUAL_SIZE = 256, MANY_OPS = 24 };

struct job {
    struct quern_graph_opts x;
    quern_model *m;
    struct db *db; /* NULL: none */
    struct arena a;
    struct place_net net;
    struct view v;
    struct place_devices devices;
    struct place_allocation allocation;
    struct place_parts parts;
    enum view_collapse collapse;
    struct str form;
};

/* Options. */

/* "svg" of "out/net.svg"; empty: none */
static struct str suffix_of(struct str path)
{
    for (i64 i = path.n - 1; i >= 0 && path.p[i] != '/'; i--)
        if (path.p[i] == '.') return str_sub(path, i + 1, path.n);
    return (struct str){0};
}

static bool read_form(struct job *j, const char *path, struct err *e)
{
    static const char *const forms[] = {"json", "graphml", "dot", "svg", "png", "onnx"};
    const struct str s = j->x.form || !path ? str_of(j->x.form) : suffix_of(str_of(path));
    for (i64 k = 0; k < countof(forms); k++)
        if (str_is(s, forms[k])) return j->form = str_of(forms[k]), true;
    if (!s.n)
        return err_set(
            e, ERR_USAGE,
            "'%s' has no suffix that tells the form: json, graphml, dot, svg, png or onnx",
            path ? path : "");
    return err_set(e, ERR_USAGE, "'%.*s' is none of the forms json, graphml, dot, svg, png, onnx",
                   STR_ARG(s));
}

static bool read_options(struct job *j, const struct quern_graph_opts *o, const char *path,
                         struct err *e)
{
    if (o) memcpy(&j->x, o, o->size < sizeof j->x ? o->size : sizeof j->x);
    if (j->x.inches < 0 || j->x.inches > 1000)
        return err_set(e, ERR_USAGE, "a picture of %g inches", j->x.inches);
    return read_form(j, path, e) &&
           view_collapse_parse(&j->collapse, str_of(j->x.collapse ? j->x.collapse : "auto"), e);
}

/* Allocation. */

/* Sub-graphs that cannot be networks of their own have no frames; their devices are shown all the same. */
static bool add_allocation(struct job *j, struct err *e)
{
    if (!j->x.allocation && !j->x.allocation_file) return true;
    if (!place_allocation_read(&j->allocation, &j->net, &j->devices, j->x.allocation, j->x.allocation_file, &j->a, e)) return false;
    j->v.devices = &j->devices, j->v.allocation = &j->allocation;
    if (place_split(&j->parts, &j->net, &j->allocation, &j->a, e)) j->v.parts = &j->parts;
    else if (e->code == ERR_UNSUPPORTED) {
        log_printf(&j->m->q->log, 1, "sub-graphs are not shown: %s", e->msg);
        *e = (struct err){.stop = e->stop};
    }
    return !e->code;
}

/* Times. */

static bool add_times(struct job *j, struct err *e)
{
    quern_model *m = j->m;
    struct api_target t;
    struct graph *g = arena_new(&j->a, struct graph);
    struct plan_choice *x = arena_new(&j->a, struct plan_choice);
    bool ok = api_target_open_rated(&t, m->q, j->x.device, j->x.threads, j->x.target, e);
    const struct plan_target on = api_plan_target(&t, j->db);
    if (ok) view_named(g, &j->v, &j->a);
    ok = ok && model_lower(g, m->model, &t.caps, e) &&
         plan_cover(&x->c, g, (struct cover_opts){0}, &on, &j->a, e) &&
         plan_choose(&x->s, &x->c, m->model->var, &on, &j->a, e);
    j->v.var = m->model->var, j->v.n_var = m->model->n_var; /* lowering may have added some */
    if (ok)
        j->v.time = view_times(&j->v, x, &j->a), j->v.time_device = t.driver ? t.driver->name : "";
    if (ok && j->db && !x->s.n_known)
        log_printf(&m->q->log, 1, "the database has no measurements of '%.*s' for this device",
                   STR_ARG(m->model->name));
    api_target_close(&t);
    return ok;
}

/* Sizes, after lowering, which may add some. */
static bool add_sizes(struct job *j, struct err *e)
{
    const struct model *m = j->m->model;
    i64 *usual = arena_array(&j->a, i64, m->sym.var.n + 1),
        *var = arena_array(&j->a, i64, m->sym.var.n + 1);
    for (u32 k = 0; k < m->sym.var.n; k++) usual[k] = k < m->n_var ? m->var[k] : USUAL_SIZE;
    if (!model_sizes(m, j->x.sizes, usual, var, e)) return false;
    j->v.var = var, j->v.n_var = m->sym.var.n;
    return true;
}

static bool open_view(struct job *j, struct err *e)
{
    j->v = (struct view){.x = &j->net, .size = j->x.inches};
    if (!place_net_open(&j->net, j->m->model, &j->a, e)) return false;
    j->v.var = j->m->model->var, j->v.n_var = j->m->model->n_var;
    if ((j->db || j->collapse == COLLAPSE_FUSION) && !add_times(j, e)) return false;
    if (!add_sizes(j, e)) return false;
    if (!add_allocation(j, e)) return false;
    view_init(&j->v, &j->a);
    const bool is_whole =
        str_is(j->form, "json") || str_is(j->form, "graphml") || str_is(j->form, "onnx");
    if (!is_whole || j->collapse != COLLAPSE_AUTO) view_group(&j->v, j->collapse, &j->a);
    j->v.shows_params = j->x.params ? j->x.params > 0 : j->net.op.n <= MANY_OPS;
    return mem_check(e, "describing ", S("the network"));
}

/* Forms. */

static bool print_form(struct job *j, struct buf *b, struct err *e)
{
    if (str_is(j->form, "json")) view_json(b, &j->v);
    else if (str_is(j->form, "graphml")) view_graphml(b, &j->v);
    else if (str_is(j->form, "dot")) view_dot(b, &j->v);
    else return view_draw(b, &j->v, j->form.p, e);
    return true;
}

static bool write_form(struct job *j, const char *path, struct err *e)
{
    if (str_is(j->form, "onnx")) return view_onnx(&j->v, path, e);
    struct buf b = {0};
    bool ok = print_form(j, &b, e);
    if (ok && b.failed) ok = err_set(e, ERR_SYSTEM, "not enough memory for the graph's text");
    ok = ok && os_write(path, b.p, b.n, e);
    buf_release(&b);
    return ok;
}

quern_status quern_graph_write(quern_model *m, quern_db *db, const struct quern_graph_opts *o,
                               const char *path)
{
    if (!m || !api_given(m->q, "path", path)) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    struct job j = {.m = m, .db = db ? &db->db : NULL};
    const bool ok = read_options(&j, o, path, e) && open_view(&j, e) && write_form(&j, path, e);
    arena_release(&j.a);
    return api_end(m->q, ok);
}

quern_status quern_graph_text(quern_model *m, quern_db *db, const struct quern_graph_opts *o,
                              char **text)
{
    if (!m || !api_given(m->q, "text", text)) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    struct job j = {.m = m, .db = db ? &db->db : NULL};
    struct buf b = {0};
    *text = NULL;
    bool ok = read_options(&j, o, NULL, e);
    if (ok && (str_is(j.form, "png") || str_is(j.form, "onnx")))
        ok = err_set(e, ERR_USAGE, "'%s' is no text", j.form.p);
    ok = ok && open_view(&j, e) && print_form(&j, &b, e);
    if (ok && b.failed) ok = err_set(e, ERR_SYSTEM, "not enough memory for the graph's text");
    if (ok) *text = api_text(&b);
    else buf_release(&b);
    arena_release(&j.a);
    return api_end(m->q, ok);
}
