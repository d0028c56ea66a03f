// SPDX-License-Identifier: Apache-2.0
//
// Exporter vkdt: programs for Vulkan as a module of vkdt, a folder that its Makefile
// builds and its graph loads (doc/export-vkdt.md). Several programs in one module are
// distinguished by suffixes and selected by a parameter. Instead of a whole module, only
// header, kernels and weights can be written to given folders, for a hand-written module.
#include "export/export_vkdt.h"

#include <string.h>

enum { MAX_MODELS = 16, MAX_SHADER = 1 << 20 };

struct writer {
    const struct export_job *j;
    struct vkdt_module module;
    struct arena *a;
    const char *src, *shader, *weight; /* folders */
    bool is_whole;                     /* a whole module, not only a network's files */
    struct err *e;
};

/* Files. */

static bool write_file(struct writer *w, const char *dir, struct str name, struct str text)
{
    struct str path = str_fmt(w->a, "%s/%.*s", dir, STR_ARG(name));
    return os_write(path.p, text.p, text.n, w->e);
}

typedef void print_fn(struct buf *b, const struct vkdt_module *m);

static bool write_printed(struct writer *w, const char *name, print_fn *print)
{
    struct buf b = {0};
    print(&b, &w->module);
    bool ok = b.n == 0 || write_file(w, w->src, str_of(name), buf_view(&b));
    buf_release(&b);
    return ok;
}

static bool write_header(struct writer *w, const struct vkdt_model *m)
{
    struct buf b = {0};
    vkdt_print_model(&b, m, &w->module.name);
    struct str name = m->suffix[0] ? str_fmt(w->a, "denox_%s.h", m->suffix) : S("denox_model.h");
    bool ok = write_file(w, w->src, name, buf_view(&b));
    buf_release(&b);
    return ok;
}

static bool write_kernels(struct writer *w, const struct vkdt_model *m)
{
    for (u32 k = 0; k < m->kernel.n; k++) {
        struct str kernel = vkdt_kernel_name(w->a, m->prefix.p, k, m->kernel.n);
        struct str name = str_fmt(w->a, "%.*s.comp.spv", STR_ARG(kernel));
        if (!write_file(w, w->shader, name, m->kernel.v[k].code)) return false;
    }
    return true;
}

static bool write_weights(struct writer *w, const struct vkdt_model *m)
{
    struct buf b = {0};
    if (m->weights == 0) return true;
    vkdt_model_weights(m, &b);
    bool ok = b.failed ? err_set(w->e, ERR_FAILED, "weights too large")
                       : write_file(w, w->weight, m->file, buf_view(&b));
    buf_release(&b);
    return ok;
}

/* Shaders before and after the network. */

static bool copy_shader(struct writer *w, const char *option, const char *to)
{
    const char *from = export_option(w->j, option);
    struct str text;
    if (!os_read(w->a, from, MAX_SHADER, &text, w->e))
        return err_prefix(w->e, "--%s (one is made without it)", option);
    return write_file(w, w->src, str_of(to), text);
}

static bool make_shader(struct writer *w, const char *what, u32 k, const struct vkdt_image *m)
{
    struct buf b = {0};
    enum { RGBA = 4 };
    bool is_in = !strcmp(what, "input");
    if (m->c > RGBA)
        return err_set(w->e, ERR_USAGE,
                       "%s %u has %lld channels, a picture %d: give a shader with "
                       "%s",
                       what, k, (long long)m->c, RGBA,
                       is_in ? "--preprocessing" : "--post-processing");
    if (is_in) vkdt_input_shader(&b, m);
    else vkdt_output_shader(&b, m);
    struct str name = k ? str_fmt(w->a, "%s%u.comp", what, k) : str_fmt(w->a, "%s.comp", what);
    bool ok = write_file(w, w->src, name, buf_view(&b));
    buf_release(&b);
    return ok;
}

static bool make_shaders(struct writer *w, const char *what, const struct vkdt_image *v, u32 n)
{
    for (u32 k = 0; k < n; k++)
        if (vkdt_shader_of(v, k) == k && !make_shader(w, what, k, &v[k])) return false;
    return true;
}

static bool write_shaders(struct writer *w)
{
    const struct vkdt_model *m = &w->module.model[0];
    bool ok = w->module.has_pre ? copy_shader(w, "preprocessing", "input.comp")
                                : make_shaders(w, "input", m->in, m->plan->input.n);
    return ok && (w->module.has_post ? copy_shader(w, "post-processing", "output.comp")
                                     : make_shaders(w, "output", m->out, m->plan->output.n));
}

static bool write_all(struct writer *w)
{
    if (w->is_whole && !write_shaders(w)) return false;
    for (u32 k = 0; k < w->module.n_model; k++) {
        const struct vkdt_model *m = &w->module.model[k];
        if (!write_header(w, m) || !write_kernels(w, m) || !write_weights(w, m)) return false;
    }
    if (!w->is_whole) return true;
    return write_printed(w, "main.c", vkdt_print_main) &&
           write_printed(w, "connectors", vkdt_print_connectors) &&
           write_printed(w, "params", vkdt_print_params) &&
           write_printed(w, "params.ui", vkdt_print_params_ui) &&
           write_printed(w, "flat.mk", vkdt_print_make) &&
           write_printed(w, "readme.md", vkdt_print_readme) &&
           write_printed(w, ".gitignore", vkdt_print_ignore);
}

/* Names and folders. */

static bool need_folder(struct writer *w, const char *dir)
{
    if (os_is_dir(dir)) return true;
    if (w->is_whole || export_option(w->j, "mkdir")) return os_mkdirs(dir, w->e);
    return err_set(w->e, ERR_USAGE, "no folder '%s' (-p makes it)", dir);
}

/* Without leading "./" and trailing '/'. */
static struct str clean_path(const char *path)
{
    struct str s = str_of(path);
    while (s.n > 1 && s.p[s.n - 1] == '/') s.n--;
    while (str_starts(s, S("./"))) s = str_sub(s, 2, s.n);
    return s;
}

/* Where vkdt finds the weights, seen from the folder of its programs. */
static bool find_resource(struct writer *w, struct vkdt_model *m)
{
    const char *bin = export_option(w->j, "bin-dir");
    m->file = m->suffix[0] ? str_fmt(w->a, "%s-%s.dat", w->module.name.module, m->suffix)
                           : str_fmt(w->a, "%s-weights.dat", w->module.name.module);
    m->resource = str_fmt(w->a, "data/%.*s", STR_ARG(m->file));
    if (!bin) return true;
    struct str base = str_fmt(w->a, "%.*s/", STR_ARG(clean_path(bin))),
               dir = str_fmt(w->a, "%.*s/", STR_ARG(clean_path(w->weight)));
    if (!str_starts(dir, base))
        return err_set(w->e, ERR_USAGE, "'%s' is not in '%s': vkdt would not find the weights",
                       w->weight, bin);
    m->resource = str_fmt(w->a, "%.*s%.*s", STR_ARG(str_sub(dir, base.n, dir.n)), STR_ARG(m->file));
    if (strpbrk(m->resource.p, "\"\\\n%"))
        return err_set(w->e, ERR_USAGE, "'%s' cannot be expressed in C", w->weight);
    return true;
}

static bool find_folders(struct writer *w)
{
    const char *src = export_option(w->j, "src-dir"), *shader = export_option(w->j, "shader-dir"),
               *weight = export_option(w->j, "weight-dir");
    w->is_whole = w->j->path != NULL;
    if (w->is_whole)
        w->src = str_fmt(w->a, "%.*s/%s", STR_ARG(clean_path(w->j->path)), w->module.name.module).p;
    if (src) w->src = src;
    w->shader = shader ? shader : w->src;
    w->weight = weight ? weight : w->src;
    w->module.has_weights = !weight;
    if (!w->is_whole && !(src && shader && weight))
        return err_set(w->e, ERR_USAGE, "give -o, or --src-dir, --shader-dir and --weight-dir");
    return need_folder(w, w->src) && need_folder(w, w->shader) && need_folder(w, w->weight);
}

static bool find_names(struct writer *w)
{
    const char *title = export_option(w->j, "module-name");
    struct vkdt_names *n = &w->module.name;
    if (!title) return err_set(w->e, ERR_USAGE, "--module-name is missing");
    n->title = str_of(title);
    if (!vkdt_module_name(n->module, n->title, w->e)) return false;
    if (!str_is(n->title, n->module))
        log_printf(w->j->log, 1,
                   "module '%s' is written as '%s': names in vkdt have at most %d characters",
                   title, n->module, VKDT_TOKEN);
    return true;
}

/* Models. */

static const char *nth_option(const struct export_job *j, const char *name, u32 k)
{
    size_t n = strlen(name);
    for (u32 i = 0; j->option && j->option[i]; i++)
        if (!strncmp(j->option[i], name, n) && j->option[i][n] == '=' && k-- == 0)
            return j->option[i] + n + 1;
    return NULL;
}

static bool name_model(struct writer *w, u32 k)
{
    struct vkdt_model *m = &w->module.model[k];
    const char *suffix = nth_option(w->j, "suffix", k);
    if (suffix || w->module.n_model > 1) {
        char *room = arena_alloc(w->a, VKDT_TOKEN + 1);
        struct str given = suffix ? str_of(suffix) : m->plan->model;
        if (!vkdt_suffix(room, given, w->e)) return false;
        m->suffix = room;
    }
    m->prefix = str_of(m->suffix[0] ? m->suffix : w->module.name.module);
    for (u32 i = 0; i < k; i++)
        if (!strcmp(w->module.model[i].suffix, m->suffix))
            return err_set(w->e, ERR_USAGE, "two networks with suffix '%s'", m->suffix);
    return true;
}

static bool same_images(const struct vkdt_image *a, const struct vkdt_image *b, u32 n)
{
    for (u32 k = 0; k < n; k++)
        if (a[k].dtype != b[k].dtype || a[k].c != b[k].c || a[k].layout != b[k].layout)
            return false;
    return true;
}

static bool check_interface(struct writer *w, const struct vkdt_model *m)
{
    const struct vkdt_model *f = &w->module.model[0];
    const struct plan *p = m->plan, *q = f->plan;
    if (p->input.n == q->input.n && p->output.n == q->output.n &&
        same_images(m->in, f->in, p->input.n) && same_images(m->out, f->out, p->output.n))
        return true;
    return err_set(w->e, ERR_USAGE,
                   "'%.*s' and '%.*s' cannot share a module: their inputs and outputs "
                   "differ",
                   STR_ARG(q->model), STR_ARG(p->model));
}

static bool make_models(struct writer *w)
{
    const struct export_job *j = w->j;
    w->module.n_model = j->n_plan;
    w->module.model = arena_array(w->a, struct vkdt_model, j->n_plan);
    w->module.has_pre = export_option(j, "preprocessing") != NULL;
    w->module.has_post = export_option(j, "post-processing") != NULL;
    for (u32 k = 0; k < j->n_plan; k++) {
        struct vkdt_model *m = &w->module.model[k];
        if (!vkdt_model_init(m, j->plan[k], w->a, w->e))
            return err_prefix(w->e, "'%.*s'", STR_ARG(j->plan[k]->model));
        if (!name_model(w, k) || !check_interface(w, m)) return false;
    }
    return true;
}

static bool make_module(struct writer *w)
{
    if (w->j->n_plan == 0)
        return err_set(w->e, ERR_USAGE, "export to vkdt needs a compiled program, a .dnx file");
    if (w->j->n_plan > MAX_MODELS)
        return err_set(w->e, ERR_USAGE, "more than %d networks in one module", MAX_MODELS);
    if (!find_names(w) || !make_models(w) || !find_folders(w)) return false;
    for (u32 k = 0; k < w->module.n_model; k++)
        if (!find_resource(w, &w->module.model[k])) return false;
    return write_all(w);
}

static bool vkdt_write(const struct export_job *j, struct err *e)
{
    struct arena a = {0};
    struct writer w = {.j = j, .a = &a, .e = e};
    bool ok = make_module(&w);
    arena_release(&a);
    return ok;
}

const struct exporter export_vkdt = {
    .name = "vkdt",
    .summary = "module for vkdt: kernels, weights and the code that makes its nodes",
    .write = vkdt_write,
};
