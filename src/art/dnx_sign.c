// SPDX-License-Identifier: Apache-2.0
//
// Signatures of .dnx files (doc/signing.md is normative). They are the file's last 1024 bytes, an ordinary tensor for readers of
// safetensors: a title, then a slot for each of ten signatures, sorted by key, zero bytes where there is none. A signature covers
// all bytes before them, including the header with their offset. So the file need not be parsed before it is checked, signatures
// are independent of each other, and there is exactly one file with given signatures: any changed byte invalidates it.
#include "art/dnx.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 8 /* bytes of the header's length */, TITLE = 64, SLOT = SIGN_KEY_BYTES + SIGN_BYTES, BLOCK = TITLE + DNX_MAX_SIGNATURES * SLOT };

static const char title[TITLE] = "quern artifact signatures 1\n";

static struct str before_block(struct str bytes) { return str_sub(bytes, 0, bytes.n - BLOCK); }

static bool has_block(struct str bytes)
{
    return bytes.n >= LENGTH + BLOCK && memcmp(bytes.p + bytes.n - BLOCK, title, TITLE) == 0;
}

static bool is_empty(const char *slot)
{
    bool any = false;
    for (int k = 0; k < SLOT; k++) any |= slot[k] != 0;
    return !any;
}

static bool bad(struct err *e) { return err_set(e, ERR_INPUT, "invalid artifact: its signatures have an invalid form"); }

/* Sorted, each key once, nothing after the first empty slot. */
bool dnx_signatures(struct dnx_signatures *s, struct str bytes, struct err *e)
{
    *s = (struct dnx_signatures){0};
    if (!has_block(bytes)) return true;
    const char *slot = bytes.p + bytes.n - BLOCK + TITLE;
    for (u32 k = 0; k < DNX_MAX_SIGNATURES; k++, slot += SLOT) {
        if (is_empty(slot)) continue;
        if (s->n != k) return bad(e);
        memcpy(s->v[k].key, slot, SIGN_KEY_BYTES);
        memcpy(s->v[k].signature, slot + SIGN_KEY_BYTES, SIGN_BYTES);
        if (k && memcmp(s->v[k - 1].key, s->v[k].key, SIGN_KEY_BYTES) >= 0) return bad(e);
        s->n++;
    }
    return s->n > 0 || bad(e);
}

/* The signed message: the title and the digest of everything before the signatures. */
static bool make_message(char message[TITLE + SIGN_DIGEST_BYTES], struct str body, struct err *e)
{
    memcpy(message, title, TITLE);
    return sign_digest(body, (u8 *)message + TITLE, e);
}

bool dnx_check_signatures(struct dnx_signatures *s, struct str bytes, struct err *e)
{
    char message[TITLE + SIGN_DIGEST_BYTES];
    if (!s->n) return true;
    bool ok = make_message(message, before_block(bytes), e);
    for (u32 k = 0; k < s->n && ok; k++)
        ok = sign_check(s->v[k].key, (struct str){message, sizeof message}, s->v[k].signature, &s->v[k].is_right, e);
    return ok;
}

/* Signing. */

static json_t *parse_header(struct str bytes, i64 *data_at, struct err *e)
{
    json_error_t je;
    u64 n = 0;
    for (u32 i = 0; i < LENGTH; i++) n |= (u64)(u8)bytes.p[i] << (8 * i); /* validated by dnx_read */
    *data_at = LENGTH + (i64)n;
    json_t *h = json_loadb(bytes.p + LENGTH, (size_t)n, JSON_REJECT_DUPLICATES, &je);
    if (!h) err_set(e, ERR_INPUT, "invalid artifact: header is not JSON: %s", je.text);
    return h;
}

static i64 end_of_tensors(const json_t *header)
{
    const char *name;
    json_t *t;
    i64 end = 0;
    json_object_foreach((json_t *)(uintptr_t)header, name, t)
        end = i64_max(end, json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 1)));
    return end;
}

/* The file up to its signatures, with an entry for them in the header. */
static bool put_unsigned(struct buf *out, struct str bytes, struct err *e)
{
    i64 data_at;
    json_t *h = parse_header(bytes, &data_at, e);
    if (!h) return false;
    i64 n = end_of_tensors(h);
    bool ok = (n == bytes.n - data_at && n % DNX_ALIGN == 0) ||
              err_set(e, ERR_INPUT, "the artifact has bytes that belong to no tensor, it cannot be signed: compile it again");
    if (ok)
        json_object_set_new(h, "signatures", json_pack("{s:s, s:[I], s:[I,I]}", "dtype", "U8", "shape", (json_int_t)BLOCK, "data_offsets",
                                                       (json_int_t)n, (json_int_t)n + BLOCK));
    char *text = ok ? json_dumps(h, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (ok && !text) ok = err_set(e, ERR_FAILED, "cannot write the artifact's header");
    if (ok) dnx_put_head(out, str_of(text));
    if (ok) buf_put(out, bytes.p + data_at, n);
    free(text); /* made by jansson */
    json_decref(h);
    return ok;
}

/* Inserted in order, or replacing the one of this key. */
static bool add_signature(struct dnx_signatures *s, const struct dnx_signature *x, struct err *e)
{
    u32 at = 0;
    while (at < s->n && memcmp(s->v[at].key, x->key, SIGN_KEY_BYTES) < 0) at++;
    if (at < s->n && memcmp(s->v[at].key, x->key, SIGN_KEY_BYTES) == 0) s->v[at] = *x;
    else if (s->n == DNX_MAX_SIGNATURES) return err_set(e, ERR_UNSUPPORTED, "the artifact has %d signatures, the maximum", DNX_MAX_SIGNATURES);
    else {
        for (u32 k = s->n++; k > at; k--) s->v[k] = s->v[k - 1];
        s->v[at] = *x;
    }
    return true;
}

static bool are_right(const struct dnx_signatures *s, struct err *e)
{
    char id[SIGN_ID_BYTES];
    for (u32 k = 0; k < s->n; k++) {
        if (s->v[k].is_right) continue;
        sign_key_id(s->v[k].key, id);
        return err_set(e, ERR_INPUT, "changed after it was signed: the signature of key %s is invalid", id);
    }
    return true;
}

static void put_block(struct buf *out, const struct dnx_signatures *s)
{
    static const char zero[SLOT];
    buf_put(out, title, TITLE);
    for (u32 k = 0; k < DNX_MAX_SIGNATURES; k++) {
        if (k < s->n) buf_put(out, s->v[k].key, SIGN_KEY_BYTES), buf_put(out, s->v[k].signature, SIGN_BYTES);
        else buf_put(out, zero, SLOT);
    }
}

bool dnx_sign(struct buf *out, struct str bytes, const u8 secret[SIGN_KEY_BYTES], bool only, struct err *e)
{
    struct dnx_signatures s;
    struct dnx_signature own = {.is_right = true};
    char message[TITLE + SIGN_DIGEST_BYTES];
    if (!dnx_signatures(&s, bytes, e) || !dnx_check_signatures(&s, bytes, e) || !are_right(&s, e)) return false;
    if (s.n) buf_str(out, before_block(bytes));
    else if (!put_unsigned(out, bytes, e)) return false;
    if (out->failed) return err_set(e, ERR_FAILED, "cannot sign the artifact: it is larger than 2 GiB");
    if (only) s.n = 0;
    bool ok = sign_public_key(secret, own.key, e) && make_message(message, buf_view(out), e) &&
              sign_make(secret, (struct str){message, sizeof message}, own.signature, e) && add_signature(&s, &own, e);
    if (ok) put_block(out, &s);
    return ok && (!out->failed || err_set(e, ERR_FAILED, "cannot sign the artifact: it is larger than 2 GiB"));
}

bool dnx_check_beside(struct dnx_signatures *s, struct str bytes, struct str signatures, struct err *e)
{
    struct buf both = {0};
    *s = (struct dnx_signatures){0};
    if (!signatures.n) return true;
    if (signatures.n != BLOCK) return bad(e);
    buf_str(&both, bytes);
    buf_str(&both, signatures);
    bool ok = (!both.failed || err_set(e, ERR_FAILED, "signed bytes are larger than 2 GiB")) && dnx_signatures(s, buf_view(&both), e);
    ok = ok && (s->n || bad(e)) && dnx_check_signatures(s, buf_view(&both), e);
    buf_release(&both);
    return ok;
}

bool dnx_sign_beside(struct buf *out, struct str bytes, struct str old, const u8 secret[SIGN_KEY_BYTES], bool only, struct err *e)
{
    struct dnx_signatures s;
    struct dnx_signature own = {.is_right = true};
    char message[TITLE + SIGN_DIGEST_BYTES];
    if (!dnx_check_beside(&s, bytes, old, e) || !are_right(&s, e)) return false;
    if (only) s.n = 0;
    bool ok = sign_public_key(secret, own.key, e) && make_message(message, bytes, e) &&
              sign_make(secret, (struct str){message, sizeof message}, own.signature, e) && add_signature(&s, &own, e);
    if (ok) put_block(out, &s);
    return ok;
}

bool dnx_trusted(const struct dnx_signatures *s, const u8 (*key)[SIGN_KEY_BYTES], u32 n, u32 *by, struct err *e)
{
    if (!s->n) return err_set(e, ERR_INPUT, "it is not signed, and a signature is required (quern sign)");
    if (!are_right(s, e)) return false;
    for (u32 k = 0; k < s->n; k++)
        for (*by = 0; *by < n; (*by)++)
            if (memcmp(s->v[k].key, key[*by], SIGN_KEY_BYTES) == 0) return true;
    char id[SIGN_ID_BYTES];
    sign_key_id(s->v[0].key, id);
    return err_set(e, ERR_INPUT, "it is signed by key %s%s, which is none of the %u trusted keys: add a public key by quern key trust FILE", id,
                   s->n > 1 ? " and others" : "", n);
}
