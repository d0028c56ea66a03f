// SPDX-License-Identifier: Apache-2.0
//
// Opening artifacts, and trusted keys. The checked bytes are the used bytes: if a signature is
// required the file is read into memory first, and neither the check nor the program reads the file
// again.
//
// Trusted keys are the files *.pem in the user's configuration folder, which only the user can have
// written, or those the caller names.
#include "api/api.h"

#include <string.h>

/* Smaller files are always read instead of mapped, so that truncating one while it is in use does
   no harm. */
enum { COPIED = 64 << 20 };

/* Trusted keys. */

bool api_read_key(u8 key[SIGN_KEY_BYTES], const char *path, bool is_secret, bool is_own, struct err *e)
{
    enum { MAX_KEY = 1 << 16 };
    struct arena a = {0};
    struct str text;
    bool ok = is_own ? os_read_own(&a, path, false, MAX_KEY, &text, e) : os_read(&a, path, MAX_KEY, &text, e);
    ok = ok && (sign_parse_key(key, is_secret, text, e) || err_prefix(e, "'%s'", path));
    /* and readable only by the user */
    if (ok && is_secret) ok = os_read_own(&a, path, true, MAX_KEY, &text, e) && sign_parse_key(key, true, text, e);
    arena_release(&a);
    return ok;
}

/* An unreadable key is skipped: this can only cause more rejections. */
static void add_key(const quern *q, struct api_keys *k, struct arena *a, const char *path, struct str name, bool is_own)
{
    struct err e = {0};
    struct api_key x = {.name = str_dup(a, name)};
    if (api_read_key(x.key, path, false, is_own, &e)) *arr_push(a, k) = x;
    else log_printf(&q->log, 1, "key ignored: %s", e.msg);
}

struct str api_trusted_folder(struct arena *a, struct err *e)
{
    struct str config = os_config_folder(a);
    if (config.n) return str_fmt(a, "%.*s/trusted", STR_ARG(config));
    err_set(e, ERR_SYSTEM, "no folder for trusted keys: neither XDG_CONFIG_HOME nor HOME is set");
    return (struct str){0};
}

bool api_trusted_keys(const quern *q, struct api_keys *k, struct arena *a, const char *trusted, struct err *e)
{
    struct str folder = trusted ? str_of(trusted) : api_trusted_folder(a, e), *names;
    i64 n;
    *k = (struct api_keys){0};
    if (!folder.n) return false;
    if (trusted && !os_is_dir(trusted)) {
        struct api_key *x = arr_push(a, k);
        x->name = folder;
        return api_read_key(x->key, trusted, false, false, e);
    }
    if (!trusted && !os_own_folder(folder.p, e)) return e->code == ERR_NONE;
    if (!os_list(a, folder.p, &names, &n, e)) return false;
    for (i64 i = 0; i < n; i++)
        if (str_ends(names[i], S(".pem")))
            add_key(q, k, a, str_fmt(a, "%.*s/%.*s", STR_ARG(folder), STR_ARG(names[i])).p, str_sub(names[i], 0, names[i].n - 4), !trusted);
    return true;
}

/* Artifacts. */

bool api_is_trusted(const quern *q, const struct dnx_signatures *s, const char *trusted, struct err *e)
{
    struct arena a = {0};
    struct api_keys keys;
    u32 by;
    bool ok = api_trusted_keys(q, &keys, &a, trusted, e);
    u8(*key)[SIGN_KEY_BYTES] = ok ? arena_alloc(&a, SIGN_KEY_BYTES * (i64)(keys.n + 1)) : NULL;
    for (u32 k = 0; ok && k < keys.n; k++) memcpy(key[k], keys.v[k].key, SIGN_KEY_BYTES);
    ok = ok && dnx_trusted(s, (const u8(*)[SIGN_KEY_BYTES])key, keys.n, &by, e);
    if (ok) log_printf(&q->log, 3, "signed by trusted key '%.*s'", STR_ARG(keys.v[by].name));
    arena_release(&a);
    return ok;
}

bool api_check_trust(void *user, struct str meta, struct str signatures, struct err *e)
{
    const struct api_trust *t = user;
    struct dnx_signatures s;
    return dnx_check_beside(&s, meta, signatures, e) && api_is_trusted(t->q, &s, t->trusted, e);
}

static bool check_signature(const quern *q, struct str bytes, const char *trusted, struct err *e)
{
    struct dnx_signatures s;
    return dnx_signatures(&s, bytes, e) && dnx_check_signatures(&s, bytes, e) && api_is_trusted(q, &s, trusted, e);
}

static bool is_required(const quern *q, const struct quern_run_opts *o) { return q->o.require_signature || (o && o->require_signature); }

bool api_artifact_load(const quern *q, struct os_file *f, const char *path, const struct quern_run_opts *o, struct err *e)
{
    return os_load(f, path, is_required(q, o) ? INT64_MAX : COPIED, e);
}

bool api_artifact_read(const quern *q, const struct os_file *f, struct plan *p, struct arena *a, const struct quern_run_opts *o, struct err *e)
{
    struct str bytes = {(const char *)f->p, f->n};
    if (is_required(q, o) && !check_signature(q, bytes, o && o->trusted ? o->trusted : q->trusted, e)) return false;
    if (!o) return dnx_read(p, a, bytes, e);
    const struct dev_driver *v = o->device ? dev_find(str_of(o->device)) : NULL;
    struct dnx_wanted w = {.isa = o->isa, .runs_any = v && !v->can_run};
    return dnx_read_variant(p, a, bytes, dnx_choose_variant, &w, e);
}

bool api_artifact_open(const quern *q, struct os_file *f, struct plan *p, struct arena *a, const char *path, const struct quern_run_opts *o,
                       struct err *e)
{
    return api_artifact_load(q, f, path, o, e) && (api_artifact_read(q, f, p, a, o, e) || err_prefix(e, "'%s'", path));
}

bool api_is_dnx(const struct os_file *f)
{
    return f->n > 9 && f->p[8] == '{' && f->p[6] == 0 && f->p[7] == 0;
}
