// SPDX-License-Identifier: Apache-2.0
//
// Keys and signatures. Declared and documented in include/quern.h; doc/signing.md has the formats.
// Trusted keys are files in the user's configuration folder, one each; a key is revoked by removing
// its file.
#include "api/api.h"
#include "art/meta.h"

#include <string.h>

static bool write_key(const char *path, const u8 key[SIGN_KEY_BYTES], bool is_secret, struct err *e)
{
    struct buf b = {0};
    sign_print_key(&b, key, is_secret);
    bool ok = !b.failed || err_set(e, ERR_SYSTEM, "not enough memory for a key");
    ok = ok && os_write_new(path, is_secret ? 0600 : 0644, b.p, b.n, e);
    if (is_secret && b.p) memset(b.p, 0, (size_t)b.n);
    buf_release(&b);
    return ok;
}

quern_status quern_key_new(quern *q, const char *private_path, const char *public_path)
{
    u8 secret[SIGN_KEY_BYTES] = {0}, key[SIGN_KEY_BYTES];
    if (!api_given(q, "private_path public_path", private_path, public_path)) return QUERN_USAGE;
    struct err *e = &q->err;
    bool ok = sign_new_key(secret, e) && sign_public_key(secret, key, e) && write_key(public_path, key, false, e);
    if (ok && !write_key(private_path, secret, true, e)) {
        os_remove_tree(public_path);
        ok = false;
    }
    sign_forget(secret);
    return api_end(q, ok);
}

/* Either half of a key. */
static bool read_public(u8 key[SIGN_KEY_BYTES], const char *path, struct err *e)
{
    struct err is_secret = {0};
    u8 secret[SIGN_KEY_BYTES] = {0};
    if (api_read_key(key, path, false, false, e)) return true;
    bool ok = api_read_key(secret, path, true, true, &is_secret) && sign_public_key(secret, key, &is_secret);
    sign_forget(secret);
    if (ok) *e = (struct err){0};
    return ok;
}

quern_status quern_key_id(quern *q, const char *path, char id[33])
{
    u8 key[SIGN_KEY_BYTES];
    if (!api_given(q, "path id", path, id)) return QUERN_USAGE;
    bool ok = read_public(key, path, &q->err);
    if (ok) sign_key_id(key, id);
    return api_end(q, ok);
}

/* Trusted keys. */

static bool is_name(struct str s)
{
    bool ok = s.n > 0 && s.n <= 100 && s.p[0] != '.';
    for (i64 k = 0; k < s.n; k++) {
        char c = s.p[k];
        ok &= (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '@' || c == '+';
    }
    return ok;
}

/* Creates it if missing; others cannot write to it. */
static bool have_folder(const char *path, struct err *e) { return os_own_folder(path, e) || (!e->code && os_private_folder(path, e)); }

quern_status quern_key_trust(quern *q, const char *public_path, const char *name)
{
    struct arena a = {0};
    u8 key[SIGN_KEY_BYTES];
    struct api_keys known;
    if (!api_given(q, "public_path name", public_path, name)) return QUERN_USAGE;
    struct err *e = &q->err;
    struct str config = os_config_folder(&a), folder = api_trusted_folder(&a, e);
    bool ok = folder.n && (is_name(str_of(name)) || err_set(e, ERR_USAGE, "'%s' is not a valid key name: letters, digits and -_.@+", name));
    ok = ok && api_read_key(key, public_path, false, false, e);
    ok = ok && have_folder(config.p, e) && have_folder(folder.p, e) && api_trusted_keys(q, &known, &a, NULL, e);
    for (u32 k = 0; ok && k < known.n; k++)
        if (memcmp(known.v[k].key, key, SIGN_KEY_BYTES) == 0)
            ok = err_set(e, ERR_USAGE, "the key is trusted already, as '%.*s'", STR_ARG(known.v[k].name));
    ok = ok && write_key(str_fmt(&a, "%.*s/%s.pem", STR_ARG(folder), name).p, key, false, e);
    arena_release(&a);
    return api_end(q, ok);
}

static bool is_called(const struct api_key *k, const char *name_or_id)
{
    char id[SIGN_ID_BYTES];
    sign_key_id(k->key, id);
    return str_is(k->name, name_or_id) || strcmp(id, name_or_id) == 0;
}

quern_status quern_key_distrust(quern *q, const char *name_or_id)
{
    struct arena a = {0};
    struct api_keys known;
    u32 n_gone = 0;
    if (!api_given(q, "name_or_id", name_or_id)) return QUERN_USAGE;
    struct err *e = &q->err;
    struct str folder = api_trusted_folder(&a, e);
    bool ok = folder.n && api_trusted_keys(q, &known, &a, NULL, e);
    for (u32 k = 0; ok && k < known.n; k++) {
        if (!is_called(&known.v[k], name_or_id)) continue;
        const char *path = str_fmt(&a, "%.*s/%.*s.pem", STR_ARG(folder), STR_ARG(known.v[k].name)).p;
        os_remove_tree(path);
        n_gone++;
        if (os_exists(path)) ok = err_set(e, ERR_SYSTEM, "cannot remove '%s'", path);
    }
    if (ok && !n_gone) ok = err_set(e, ERR_NOTHING, "no trusted key '%s': quern key list lists them", name_or_id);
    arena_release(&a);
    return api_end(q, ok);
}

quern_status quern_key_list(quern *q, char **json)
{
    struct arena a = {0};
    struct buf b = {0};
    struct api_keys keys;
    if (!api_given(q, "json", json)) return QUERN_USAGE;
    bool ok = api_trusted_keys(q, &keys, &a, q->trusted, &q->err);
    for (u32 k = 0; ok && k < keys.n; k++) {
        char id[SIGN_ID_BYTES];
        sign_key_id(keys.v[k].key, id);
        buf_printf(&b, "%s{\"name\":", k ? ",\n " : "[");
        buf_json_str(&b, keys.v[k].name);
        buf_printf(&b, ",\"id\":\"%s\"}", id);
    }
    buf_z(&b, ok && keys.n ? "]" : "[]");
    if (ok) *json = api_text(&b);
    else buf_release(&b);
    arena_release(&a);
    return api_end(q, ok);
}

/* Signing. Only valid artifacts are signed. */
quern_status quern_sign(quern *q, const char *dnx, const char *private_path, int only, const char *out)
{
    struct arena a = {0};
    struct os_file f = {0};
    struct plan p;
    struct buf b = {0};
    u8 secret[SIGN_KEY_BYTES] = {0};
    if (!api_given(q, "dnx private_path", dnx, private_path)) return QUERN_USAGE;
    struct err *e = &q->err;
    const bool is_deployment = meta_is_store(dnx);
    bool ok = api_read_key(secret, private_path, true, true, e) && (is_deployment || os_load(&f, dnx, INT64_MAX, e));
    if (is_deployment) {
        ok = ok && meta_sign(dnx, secret, only != 0, out, e);
        sign_forget(secret);
        return api_end(q, ok);
    }
    struct str bytes = {(const char *)f.p, f.n};
    if (ok) ok = (dnx_read(&p, &a, bytes, e) && dnx_sign(&b, bytes, secret, only != 0, e)) || err_prefix(e, "'%s'", dnx);
    sign_forget(secret);
    ok = ok && os_write(out ? out : dnx, b.p, b.n, e);
    buf_release(&b);
    os_unmap(&f);
    arena_release(&a);
    return api_end(q, ok);
}
