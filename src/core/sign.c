// SPDX-License-Identifier: Apache-2.0
//
// Signatures: Ed25519 (RFC 8032) and SHA-512 of OpenSSL's libcrypto, and keys as text in OpenSSL's formats.
//
// A missing libcrypto is an error that says so, never a valid signature.
//
// An Ed25519 key is 32 bytes after a fixed prefix (RFC 8410), so no foreign ASN.1 is parsed.
#include "core/crypto.h"

#include <string.h>

static bool refused(const char *what, struct err *e) { return err_set(e, ERR_SYSTEM, "libcrypto cannot %s", what); }

bool sign_new_key(u8 secret[SIGN_KEY_BYTES], struct err *e)
{
    struct crypto c; /* any 32 bytes are a private key */
    return crypto_open(&c, "signatures", e) && (c.RAND_priv_bytes(secret, SIGN_KEY_BYTES) == 1 || refused("make random numbers", e));
}

void sign_forget(u8 secret[SIGN_KEY_BYTES])
{
    volatile u8 *p = secret;
    for (int k = 0; k < SIGN_KEY_BYTES; k++) p[k] = 0;
}

bool sign_public_key(const u8 secret[SIGN_KEY_BYTES], u8 public_key[SIGN_KEY_BYTES], struct err *e)
{
    struct crypto c;
    size_t n = SIGN_KEY_BYTES;
    if (!crypto_open(&c, "signatures", e)) return false;
    EVP_PKEY *key = c.EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, secret, SIGN_KEY_BYTES);
    bool ok = key && c.EVP_PKEY_get_raw_public_key(key, public_key, &n) == 1 && n == SIGN_KEY_BYTES;
    c.EVP_PKEY_free(key);
    return ok || refused("use this Ed25519 key", e);
}

bool sign_make(const u8 secret[SIGN_KEY_BYTES], struct str message, u8 signature[SIGN_BYTES], struct err *e)
{
    struct crypto c;
    size_t n = SIGN_BYTES;
    if (!crypto_open(&c, "signatures", e)) return false;
    EVP_PKEY *key = c.EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, secret, SIGN_KEY_BYTES);
    EVP_MD_CTX *x = c.EVP_MD_CTX_new();
    bool ok = key && x && c.EVP_DigestSignInit(x, NULL, NULL, NULL, key) == 1 &&
              c.EVP_DigestSign(x, signature, &n, (const u8 *)message.p, (size_t)message.n) == 1 && n == SIGN_BYTES;
    c.EVP_MD_CTX_free(x);
    c.EVP_PKEY_free(key);
    return ok || refused("sign", e);
}

bool sign_check(const u8 public_key[SIGN_KEY_BYTES], struct str message, const u8 signature[SIGN_BYTES], bool *is_right, struct err *e)
{
    struct crypto c;
    *is_right = false;
    if (!crypto_open(&c, "signatures", e)) return false;
    EVP_PKEY *key = c.EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, public_key, SIGN_KEY_BYTES);
    EVP_MD_CTX *x = c.EVP_MD_CTX_new();
    bool ok = key && x && c.EVP_DigestVerifyInit(x, NULL, NULL, NULL, key) == 1;
    if (ok) *is_right = c.EVP_DigestVerify(x, signature, SIGN_BYTES, (const u8 *)message.p, (size_t)message.n) == 1;
    c.EVP_MD_CTX_free(x);
    c.EVP_PKEY_free(key);
    return ok || refused("check Ed25519 signatures", e);
}

bool sign_digest_pieces(const struct str *piece, i64 n_piece, u8 digest[SIGN_DIGEST_BYTES], struct err *e)
{
    struct crypto c;
    unsigned n = 0;
    if (!crypto_open(&c, "signatures", e)) return false;
    EVP_MD_CTX *x = c.EVP_MD_CTX_new();
    bool ok = x && c.EVP_DigestInit_ex(x, c.EVP_sha512(), NULL) == 1;
    for (i64 k = 0; k < n_piece && ok; k++) ok = c.EVP_DigestUpdate(x, piece[k].n ? piece[k].p : "", (size_t)piece[k].n) == 1;
    ok = ok && c.EVP_DigestFinal_ex(x, digest, &n) == 1 && n == SIGN_DIGEST_BYTES;
    c.EVP_MD_CTX_free(x);
    return ok || refused("compute SHA-512", e);
}

bool sign_digest(struct str bytes, u8 digest[SIGN_DIGEST_BYTES], struct err *e) { return sign_digest_pieces(&bytes, 1, digest, e); }

/* Keys as text. */

static const u8 secret_head[] = {0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20}; /* PKCS #8 */
static const u8 public_head[] = {0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0};              /* SubjectPublicKeyInfo */
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

enum { MAX_DER = sizeof secret_head + SIGN_KEY_BYTES };

struct key_form { /* of one of the two kinds */
    const char *begin, *end;
    const u8 *head;
    i64 n_head;
};

static struct key_form form_of(bool is_secret)
{
    static const struct key_form form[] = {
        {"-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----", public_head, sizeof public_head},
        {"-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", secret_head, sizeof secret_head},
    };
    return form[is_secret];
}

static void put_base64(struct buf *b, const u8 *p, i64 n)
{
    for (i64 k = 0; k < n; k += 3) {
        u32 v = (u32)p[k] << 16 | (k + 1 < n ? (u32)p[k + 1] << 8 : 0) | (k + 2 < n ? p[k + 2] : 0);
        for (int d = 0; d < 4; d++) buf_char(b, k + d <= n ? digits[v >> (18 - 6 * d) & 63] : '=');
    }
}

void sign_print_key(struct buf *b, const u8 key[SIGN_KEY_BYTES], bool is_secret)
{
    struct key_form f = form_of(is_secret);
    u8 der[MAX_DER];
    memcpy(der, f.head, (size_t)f.n_head);
    memcpy(der + f.n_head, key, SIGN_KEY_BYTES);
    buf_printf(b, "%s\n", f.begin);
    put_base64(b, der, f.n_head + SIGN_KEY_BYTES);
    buf_printf(b, "\n%s\n", f.end);
}

/* Where z begins in s; -1: nowhere. */
static i64 find_text(struct str s, const char *z)
{
    struct str want = str_of(z);
    for (i64 k = 0; k + want.n <= s.n; k++)
        if (str_starts(str_sub(s, k, s.n), want)) return k;
    return -1;
}

static i64 digit_of(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? at - digits : -1;
}

/* Exactly n bytes, in the one way in which they are written; white space does not matter. */
static bool read_base64(struct str s, u8 *out, i64 n)
{
    struct buf b = {0}, again = {0};
    u32 v = 0;
    int bits = 0;
    i64 done = 0;
    for (i64 k = 0; k < s.n; k++) {
        char c = s.p[k];
        if (c == '\n' || c == '\r' || c == ' ' || c == '\t') continue;
        buf_char(&b, c);
        if (c == '=' || digit_of(c) < 0 || done > n) continue;
        v = v << 6 | (u32)digit_of(c), bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        if (done < n) out[done] = (u8)(v >> bits);
        done++;
    }
    put_base64(&again, out, n);
    bool ok = done == n && str_eq(buf_view(&b), buf_view(&again));
    buf_release(&b);
    buf_release(&again);
    return ok;
}

bool sign_parse_key(u8 key[SIGN_KEY_BYTES], bool is_secret, struct str text, struct err *e)
{
    struct key_form f = form_of(is_secret);
    u8 der[MAX_DER] = {0};
    i64 from = find_text(text, f.begin), to = find_text(text, f.end);
    if (from < 0 && find_text(text, form_of(!is_secret).begin) >= 0)
        return err_set(e, ERR_INPUT, is_secret ? "a public key, and the private one is needed" : "a private key, and the public one is needed");
    if (from < 0 && find_text(text, "ENCRYPTED PRIVATE KEY") >= 0)
        return err_set(e, ERR_UNSUPPORTED, "the private key is encrypted: openssl pkey -in FILE -out KEY decrypts it");
    from += str_of(f.begin).n;
    bool ok = from >= str_of(f.begin).n && to >= from && read_base64(str_sub(text, from, to), der, f.n_head + SIGN_KEY_BYTES) &&
              memcmp(der, f.head, (size_t)f.n_head) == 0;
    if (ok) memcpy(key, der + f.n_head, SIGN_KEY_BYTES);
    for (i64 k = 0; k < MAX_DER; k++) ((volatile u8 *)der)[k] = 0;
    return ok || err_set(e, ERR_INPUT, "no %s Ed25519 key in PEM form, as quern key new and openssl write it", is_secret ? "private" : "public");
}

void sign_key_id(const u8 public_key[SIGN_KEY_BYTES], char id[SIGN_ID_BYTES])
{
    for (int k = 0; k < SIGN_ID_BYTES - 1; k++) id[k] = "0123456789abcdef"[public_key[k / 2] >> (k % 2 ? 0 : 4) & 15];
    id[SIGN_ID_BYTES - 1] = 0;
}
