// SPDX-License-Identifier: Apache-2.0
//
// Exporter vulkan-c: a program for Vulkan as C sources that record it into a command buffer of the
// caller, on the caller's device and buffers (doc/export-vulkan-c.md). The code is the same for
// every network, in the files vulkan_c*.in: valid C, in which "net_vk" is replaced by the prefix
// and lines "//@name" by what depends on the network.
#include "export/export_vulkan_c.h"

#include <string.h>

static const struct template { const char *name, *text; }
templates[] = {
#define X(name, text) {#name, text},
#include "vulkan_c.inc"
#undef X
};

struct writer {
    const struct export_job *j;
    struct vkc_model model;
    struct arena *a;
    const char *dir;
    struct err *e;
};

/* Templates. */

/* The text with "net_vk" and "NET_VK" replaced by the prefix. */
static void put_renamed(struct buf *b, const struct vkc_model *m, struct str s)
{
    static const char lower[] = "net_vk", upper[] = "NET_VK";
    for (i64 i = 0; i < s.n;) {
        struct str rest = str_sub(s, i, s.n);
        bool is_lower = str_starts(rest, S(lower)), is_upper = str_starts(rest, S(upper));
        if (is_lower || is_upper) buf_str(b, is_lower ? m->prefix : m->upper), i += 3;
        else buf_char(b, s.p[i++]);
    }
}

static void expand(struct buf *b, const struct vkc_model *m, const struct template *t)
{
    struct str rest = str_of(t->text), line;
    while (rest.n) {
        str_cut(rest, '\n', &line, &rest);
        struct str name = str_trim(line);
        if (str_starts(name, S("//@"))) {
            bool known = vkc_print_block(b, m, str_of(t->name), str_sub(name, 3, name.n));
            assert(known), (void)known;
            continue;
        }
        put_renamed(b, m, line);
        buf_char(b, '\n');
    }
}

/* Files. */

static bool write_text(struct writer *w, const char *name, struct buf *b)
{
    struct str path = str_fmt(w->a, "%s/%s", w->dir, name);
    bool ok = b->failed ? err_set(w->e, ERR_FAILED, "'%s': out of memory", path.p)
                        : os_write(path.p, b->p, b->n, w->e);
    buf_release(b);
    return ok;
}

static bool write_template(struct writer *w, const char *name, const char *to)
{
    struct buf b = {0};
    for (i64 k = 0; k < countof(templates); k++)
        if (!strcmp(templates[k].name, name)) expand(&b, &w->model, &templates[k]);
    return write_text(w, to, &b);
}

static bool write_kernels(struct writer *w)
{
    const struct vkc_model *m = &w->model;
    for (u32 k = 0; k < m->module.n && m->has_kernel_files; k++) {
        struct str code = m->plan->bin.v[m->module.v[k]].code,
                   path = str_fmt(w->a, "%s/%s_vk%u.spv", w->dir, m->prefix.p, k);
        if (!os_write(path.p, code.p, code.n, w->e)) return false;
    }
    return true;
}

static bool write_data(struct writer *w)
{
    struct buf weights = {0}, data = {0};
    struct vkc_model *m = &w->model;
    vkc_model_weights(m, &weights);
    if (!weights.failed) m->weights_digest = vkc_digest(buf_view(&weights));
    bool has_file = m->weights && !m->has_weights_array;
    if (has_file || weights.failed) {
        if (!write_text(w, str_fmt(w->a, "%s_vk.weights", m->prefix.p).p, &weights)) return false;
    } else buf_release(&weights);
    vkc_print_data(&data, m);
    return write_text(w, str_fmt(w->a, "%s_vk_data.c", m->prefix.p).p, &data) && write_kernels(w);
}

static bool write_all(struct writer *w)
{
    const char *prefix = w->model.prefix.p;
    return os_mkdirs(w->dir, w->e) && write_data(w) &&
           write_template(w, "h", str_fmt(w->a, "%s_vk.h", prefix).p) &&
           write_template(w, "c", str_fmt(w->a, "%s_vk.c", prefix).p) &&
           write_template(w, "main", "main.c") && write_template(w, "cmake", "CMakeLists.txt");
}

/* Options. */

static bool is_identifier(struct str s)
{
    bool ok = s.n > 0 && s.n <= VKC_PREFIX && !(s.p[0] >= '0' && s.p[0] <= '9') && s.p[0] != '_';
    for (i64 i = 0; i < s.n && ok; i++)
        ok = (s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= 'A' && s.p[i] <= 'Z') ||
             (s.p[i] >= '0' && s.p[i] <= '9') || s.p[i] == '_';
    return ok;
}

/* The name of a network as an identifier: "oidn-small" is oidn_small. */
static struct str prefix_of(struct str model, struct arena *a)
{
    struct str s = str_fmt(a, "%.*s", (int)i64_min(model.n, VKC_PREFIX), model.p);
    char *z = arena_alloc(a, s.n + 1);
    for (i64 i = 0; i < s.n; i++) z[i] = s.p[i];
    for (i64 i = 0; i < s.n; i++)
        if (!is_identifier(str_fmt(a, "x%c", z[i] ? z[i] : ' '))) z[i] = '_';
    s.p = z;
    return is_identifier(s) ? s : S("net");
}

static bool choose(struct writer *w, const char *name, const char *yes, const char *no,
                   bool *is_yes)
{
    const char *z = export_option(w->j, name);
    if (z && strcmp(z, yes) && strcmp(z, no))
        return err_set(w->e, ERR_USAGE, "--%s '%s': '%s' or '%s' is expected", name, z, yes, no);
    *is_yes = z && !strcmp(z, yes);
    return true;
}

static bool read_options(struct writer *w)
{
    struct vkc_model *m = &w->model;
    const char *prefix = export_option(w->j, "prefix");
    if (!w->dir) return err_set(w->e, ERR_USAGE, "-o FOLDER is missing");
    m->prefix = prefix ? str_dup(w->a, str_of(prefix))
                       : str_dup(w->a, prefix_of(w->j->plan[0]->model, w->a));
    if (!is_identifier(m->prefix))
        return err_set(
            w->e, ERR_USAGE,
            "--prefix '%s': a letter and at most %d letters, digits and underscores are expected",
            prefix, VKC_PREFIX - 1);
    char *z = arena_alloc(w->a, m->prefix.n + 1);
    for (i64 i = 0; i < m->prefix.n; i++)
        z[i] = m->prefix.p[i] >= 'a' && m->prefix.p[i] <= 'z' ? (char)(m->prefix.p[i] - 'a' + 'A')
                                                              : m->prefix.p[i];
    m->upper = (struct str){z, m->prefix.n};
    return choose(w, "weights", "array", "file", &m->has_weights_array) &&
           choose(w, "kernels", "file", "array", &m->has_kernel_files);
}

static bool write_sources(struct writer *w)
{
    const struct export_job *j = w->j;
    if (j->n_plan == 0)
        return err_set(w->e, ERR_USAGE, "export to vulkan-c needs a compiled program, a .dnx file");
    if (j->n_plan > 1)
        return err_set(w->e, ERR_USAGE,
                       "one program at a time: with different --prefix they work side by side");
    if (!read_options(w)) return false;
    const struct plan *p = j->plan[0];
    if (!vkc_model_init(&w->model, p, w->a, w->e) || !vkc_check_features(&w->model, w->e))
        return err_prefix(w->e, "'%.*s'", STR_ARG(p->model));
    return write_all(w);
}

static bool vulkan_c_write(const struct export_job *j, struct err *e)
{
    struct arena a = {0};
    struct writer w = {.j = j, .a = &a, .dir = j->path, .e = e};
    bool ok = write_sources(&w);
    arena_release(&a);
    return ok;
}

const struct exporter export_vulkan_c = {
    .name = "vulkan-c",
    .summary = "C sources that record a program into a command buffer of Vulkan",
    .write = vulkan_c_write,
};
