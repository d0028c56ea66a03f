// SPDX-License-Identifier: Apache-2.0
//
// The registry of back ends, and what they share: files of a sub-graph, and vendors' converters, which are run on these files in a
// temporary folder, as a user runs them where the tools are.
#include "deploy/deploy.h"

#include <string.h>

#define X(name) extern const struct deploy_backend deploy_##name;
#include "deploy.inc"
#undef X

static const struct deploy_backend *const backends[] = {
#define X(name) &deploy_##name,
#include "deploy.inc"
#undef X
};

enum { CONVERTER_HOURS = 4, END_LINES = 12, MAX_PRODUCT = 1 << 30 };

const struct deploy_backend *deploy_all(i64 k) { return k >= 0 && k < countof(backends) ? backends[k] : NULL; }

static bool has_word(const char *words, struct str word)
{
    struct str rest = str_of(words), one;
    while (rest.n) {
        str_cut(rest, ' ', &one, &rest);
        if (str_eq(one, word)) return true;
    }
    return false;
}

const struct deploy_backend *deploy_find(struct str kind)
{
    for (i64 k = 0; k < countof(backends); k++)
        if (has_word(backends[k]->kinds, kind)) return backends[k];
    return NULL;
}

/* Files. */

bool deploy_add(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_job *j, const char *name, enum meta_role role, struct str content,
                struct err *e)
{
    struct str path = str_fmt(j->arena, "%.*s/%s", STR_ARG(j->folder), name);
    if (!meta_add_content(files, path, role, content, j->arena, e)) return false;
    *arr_push(j->arena, &s->file) = files->v[files->n - 1].file;
    return true;
}

struct str deploy_file(const struct deploy_job *j, const char *suffix) { return str_fmt(j->arena, "%.*s%s", STR_ARG(j->name), suffix); }

struct str deploy_text(const struct deploy_job *j, struct buf *b)
{
    struct str s = str_dup(j->arena, buf_view(b));
    buf_release(b);
    return s;
}

/* Scripts. */

/* A name in a comment: it must not end the line. */
static struct str in_comment(const struct deploy_job *j, struct str name)
{
    char *p = arena_array(j->arena, char, name.n + 1);
    for (i64 i = 0; i < name.n; i++) p[i] = (u8)name.p[i] < ' ' || name.p[i] == 127 ? '_' : name.p[i];
    return (struct str){p, name.n};
}

void deploy_put_head(struct buf *b, const struct deploy_job *j, const char *what)
{
    const struct str module = in_comment(j, j->module);
    buf_printf(b,
               "#!/bin/sh\n"
               "# %.*s of '%.*s' for %.*s: %s\n"
               "# Run it in any folder; it works in its own. Tools are looked up in PATH.\n"
               "set -eu\n"
               "cd \"$(dirname \"$0\")\"\n"
               "have() { command -v \"$1\" > /dev/null 2>&1; }\n"
               "run() { echo \"+ $*\"; \"$@\"; }\n"
               "fail() { echo \"convert.sh: $*\" >&2; exit 1; }\n",
               STR_ARG(j->folder), STR_ARG(module), STR_ARG(j->device->name), what);
}

static bool has_one_of(const struct deploy_job *j, struct str tools)
{
    struct str one;
    while (tools.n) {
        str_cut(tools, '|', &one, &tools);
        if (os_in_path(j->arena, str_z(j->arena, one))) return true;
    }
    return false;
}

bool deploy_has_tools(const struct deploy_job *j, const char *tools)
{
    struct str rest = str_of(tools), one;
    if (j->no_tools) return false;
    while (rest.n) {
        str_cut(rest, ' ', &one, &rest);
        if (!has_one_of(j, one)) return false;
    }
    return true;
}

struct str deploy_to_run(const struct deploy_job *j, const struct deploy_script *x)
{
    struct buf b = {0};
    buf_printf(&b, "run %.*s/%s where these are on PATH:", STR_ARG(j->folder), x->script);
    for (const char *p = x->tools; *p; p++) {
        if (p == x->tools || *p == ' ') buf_z(&b, p == x->tools ? " " : ", ");
        if (*p == '|') buf_z(&b, " or ");
        else if (*p != ' ') buf_char(&b, *p);
    }
    buf_printf(&b, "; it makes %s", x->product);
    return deploy_text(j, &b);
}

/* The last lines of what a script said. */
static struct str end_of(struct str said)
{
    i64 at = said.n, lines = 0;
    while (at > 0 && lines <= END_LINES) lines += said.p[--at] == '\n';
    return str_trim(str_sub(said, at, said.n));
}

/* The files of the sub-graph, below the folder. */
static bool write_files(const struct meta_contents *files, const struct deploy_job *j, struct str folder, struct err *e)
{
    struct str prefix = str_fmt(j->arena, "%.*s/", STR_ARG(j->folder));
    for (u32 k = 0; k < files->n; k++) {
        const struct meta_content *c = &files->v[k];
        if (!str_starts(c->file.path, prefix)) continue;
        struct str path = str_fmt(j->arena, "%.*s/%.*s", STR_ARG(folder), STR_ARG(str_sub(c->file.path, prefix.n, c->file.path.n)));
        const char *slash = strrchr(path.p, '/');
        if (!os_mkdirs(str_fmt(j->arena, "%.*s", (int)(slash - path.p), path.p).p, e) || !os_write_pieces(path.p, c->piece, c->n_piece, e)) return false;
    }
    return true;
}

static bool run_script(const struct deploy_job *j, const char *path, const char *script, struct err *e)
{
    struct buf said = {0};
    const char *argv[] = {"sh", path, NULL};
    log_printf(j->log, 1, "%.*s: running %s", STR_ARG(j->folder), script);
    struct os_status st = os_run(&(struct os_proc_opts){.argv = argv, .timeout = CONVERTER_HOURS * 3600.0, .out = &said});
    bool ok = st.how == OS_EXITED && st.code == 0;
    struct str end = end_of(buf_view(&said));
    if (st.how == OS_STOPPED) err_set(e, ERR_STOPPED, "stopped");
    else if (st.how == OS_TIMEOUT) err_set(e, ERR_FAILED, "%s took longer than %d hours", script, CONVERTER_HOURS);
    else if (!ok) err_set(e, ERR_FAILED, "%s failed (%s %d): %.*s", script, st.how == OS_SIGNALLED ? "signal" : "exit code", st.code, STR_ARG(end));
    buf_release(&said);
    return ok;
}

static bool add_product(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_job *j, const struct deploy_script *x, struct str folder,
                        struct err *e)
{
    struct str content;
    const char *path = str_fmt(j->arena, "%.*s/%s", STR_ARG(folder), x->product).p;
    if (!os_exists(path)) return err_set(e, ERR_FAILED, "%s ended without an error, but did not make %s", x->script, x->product);
    if (!os_read(j->arena, path, MAX_PRODUCT, &content, e)) return false;
    if (!content.n) return err_set(e, ERR_FAILED, "%s made an empty %s", x->script, x->product);
    return deploy_add(files, s, j, x->product, x->role, content, e);
}

bool deploy_convert(bool *made, struct meta_contents *files, struct meta_subgraph *s, const struct deploy_job *j, const struct deploy_script *x, struct err *e)
{
    struct str folder;
    *made = false;
    if (!deploy_has_tools(j, x->tools)) return true;
    if (!os_temp_dir(j->arena, &folder, e)) return false;
    const char *script = str_fmt(j->arena, "%.*s/%s", STR_ARG(folder), x->script).p;
    bool ok = write_files(files, j, folder, e) && run_script(j, script, x->script, e) && add_product(files, s, j, x, folder, e);
    os_remove_tree(folder.p);
    *made = ok;
    return ok;
}
