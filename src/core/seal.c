// SPDX-License-Identifier: Apache-2.0
//
// Seals: authenticity and integrity of files. Creating and checking a seal needs a secret key, which is kept for each
// user in the configuration folder, separate from the sealed files: a copied or planted cache has no valid seals.
//
// A cached program has hundreds of megabytes and starts within tenths of a second, so the content is authenticated by GMAC
// (AES-256): of 435 MB it takes 0.07 s on one core of a Zen 5, where SHA-256 with its instructions takes 0.38 s and BLAKE2b
// 0.56 s, and it is computed by several threads. GMAC must never use a key and a number (nonce) twice. So each seal has a
// key of its own, by HMAC-SHA-256 of the user's key from 32 random bytes, the file's name and size, and the nonce is the
// number of the piece of 1 MiB. The seal is the random bytes and the HMAC-SHA-256, with that key, of the pieces' tags.
#include "core/crypto.h"

#include <stdatomic.h>
#include <string.h>

enum { SALT = 32, TAG = 16, DIGEST = 32, PIECE = 1 << 20, MAX_THREADS = 4, WORTH_THREADS = 8 /* pieces */ };

bool seal_key_open(struct seal_key *k, struct err *e)
{
    struct arena a = {0};
    struct crypto c;
    struct str folder = os_config_folder(&a);
    bool ok = folder.n || err_set(e, ERR_SYSTEM, "no folder for the key: neither XDG_CONFIG_HOME nor HOME is set");
    ok = ok && crypto_open(&c, "sealed files", e) && os_private_folder(folder.p, e) &&
         os_secret(str_fmt(&a, "%.*s/cache-key", STR_ARG(folder)).p, k->v, sizeof k->v, e);
    arena_release(&a);
    return ok;
}

/* One seal being made or checked: its key, and the tags of the content's pieces. */
struct sealing {
    struct crypto c;
    u8 key[DIGEST];
    i64 n;                      /* pieces */
    u8 (*tag)[TAG];
    const char *content;        /* of the checked content */
    i64 size;
    _Atomic i64 next;
    _Atomic bool failed;
};

static bool hmac(const struct crypto *c, const u8 *key, struct str text, u8 out[DIGEST])
{
    unsigned n = DIGEST;
    return c->HMAC(c->EVP_sha256(), key, DIGEST, (const u8 *)text.p, (size_t)text.n, out, &n) && n == DIGEST;
}

static bool sealing_init(struct sealing *s, const struct seal_key *k, struct str name, i64 size, const u8 salt[SALT], struct arena *a)
{
    struct buf b = {0};
    s->size = size;
    s->n = (size + PIECE - 1) / PIECE;
    s->tag = (u8 (*)[TAG])arena_array(a, char, s->n * TAG + 1);
    buf_printf(&b, "quern seal 1\n%lld %.*s\n", (long long)size, STR_ARG(name));
    buf_put(&b, (const char *)salt, SALT);
    bool ok = !b.failed && hmac(&s->c, k->v, buf_view(&b), s->key);
    buf_release(&b);
    return ok;
}

/* The tag of all of them together. */
static bool sealing_end(struct sealing *s, u8 out[DIGEST])
{
    bool ok = !s->failed && hmac(&s->c, s->key, (struct str){(const char *)s->tag, s->n * TAG}, out);
    s->c.OPENSSL_cleanse(s->key, sizeof s->key);
    return ok;
}

static bool begin_piece(const struct sealing *s, EVP_MAC_CTX *m, i64 k)
{
    char cipher[] = "AES-256-GCM";
    u8 number[12] = {0};
    for (int i = 0; i < 8; i++) number[i] = (u8)(k >> 8 * i);
    const OSSL_PARAM of[] = {s->c.OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher, 0),
                             s->c.OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, number, sizeof number), s->c.OSSL_PARAM_construct_end()};
    return s->c.EVP_MAC_init(m, s->key, sizeof s->key, of);
}

static bool end_piece(const struct sealing *s, EVP_MAC_CTX *m, i64 k)
{
    size_t n = 0;
    return s->c.EVP_MAC_final(m, s->tag[k], &n, TAG) && n == TAG;
}

static EVP_MAC_CTX *mac_open(const struct crypto *c)
{
    EVP_MAC *mac = c->EVP_MAC_fetch(NULL, "GMAC", NULL);
    EVP_MAC_CTX *m = mac ? c->EVP_MAC_CTX_new(mac) : NULL;
    c->EVP_MAC_free(mac);
    return m;
}

/* In each thread: the next piece that no thread has started. */
static void seal_next(void *user)
{
    struct sealing *s = user;
    EVP_MAC_CTX *m = mac_open(&s->c);
    if (!m) s->failed = true;
    for (i64 k = atomic_fetch_add(&s->next, 1); k < s->n && m; k = atomic_fetch_add(&s->next, 1)) {
        i64 n = i64_min(PIECE, s->size - k * PIECE);
        bool ok = begin_piece(s, m, k) && s->c.EVP_MAC_update(m, (const u8 *)s->content + k * PIECE, (size_t)n) && end_piece(s, m, k);
        if (!ok) s->failed = true;
    }
    s->c.EVP_MAC_CTX_free(m);
}

bool seal_check(const struct seal_key *k, struct str name, struct str content, const u8 seal[SEAL_BYTES])
{
    struct arena a = {0};
    struct err e = {0};
    struct sealing s = {.content = content.p};
    struct os_thread *helper[MAX_THREADS] = {NULL};
    u8 is[DIGEST];
    bool ok = crypto_open(&s.c, "sealed files", &e) && sealing_init(&s, k, name, content.n, seal, &a);
    for (i64 i = 1; ok && i < i64_min(MAX_THREADS, os_n_cpus()) && s.n >= WORTH_THREADS; i++) helper[i] = os_thread_start(seal_next, &s);
    if (ok) seal_next(&s);
    for (u32 i = 0; i < MAX_THREADS; i++) os_thread_join(helper[i]);
    ok = ok && sealing_end(&s, is) && s.c.CRYPTO_memcmp(is, seal + SALT, DIGEST) == 0;
    arena_release(&a);
    return ok;
}

/* The pieces of the content have other ends than those of the seal. */
static bool seal_stream(struct sealing *s, EVP_MAC_CTX *m, const struct str *piece, i64 n)
{
    i64 at = 0;
    bool ok = true;
    for (i64 i = 0; i < n; i++)
        for (i64 from = 0, step; ok && from < piece[i].n; from += step, at += step) {
            step = i64_min(piece[i].n - from, PIECE - at % PIECE);
            if (at % PIECE == 0) ok = begin_piece(s, m, at / PIECE);
            ok = ok && s->c.EVP_MAC_update(m, (const u8 *)piece[i].p + from, (size_t)step);
            if (ok && ((at + step) % PIECE == 0 || at + step == s->size)) ok = end_piece(s, m, at / PIECE);
        }
    return ok;
}

bool seal_make(const struct seal_key *k, struct str name, const struct str *piece, i64 n, u8 seal[SEAL_BYTES], struct err *e)
{
    struct arena a = {0};
    struct sealing s = {.content = NULL};
    EVP_MAC_CTX *m = NULL;
    i64 size = 0;
    for (i64 i = 0; i < n; i++) size += piece[i].n;
    if (!crypto_open(&s.c, "sealed files", e)) return false;
    bool ok = s.c.RAND_bytes(seal, SALT) == 1 && sealing_init(&s, k, name, size, seal, &a) && (m = mac_open(&s.c)) && seal_stream(&s, m, piece, n) &&
              sealing_end(&s, seal + SALT);
    s.c.EVP_MAC_CTX_free(m);
    arena_release(&a);
    return ok || err_set(e, ERR_SYSTEM, "libcrypto cannot make a seal");
}
