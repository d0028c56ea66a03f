// SPDX-License-Identifier: Apache-2.0
//
// OpenSSL's libcrypto, for sign.c and seal.c. It is loaded when it is needed for the first time, not linked: starting stays quick, and the
// runtime library works where it is not installed, as long as nobody asks for signatures or caches.
#ifndef QUERN_CRYPTO_H
#define QUERN_CRYPTO_H

#include "core/core.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

/* The functions that are used, with the types of the headers. */
#define CRYPTO_ENTRY_POINTS \
    X(CRYPTO_memcmp) \
    X(EVP_DigestFinal_ex) \
    X(EVP_DigestInit_ex) \
    X(EVP_DigestSign) \
    X(EVP_DigestSignInit) \
    X(EVP_DigestUpdate) \
    X(EVP_DigestVerify) \
    X(EVP_DigestVerifyInit) \
    X(EVP_MAC_CTX_free) \
    X(EVP_MAC_CTX_new) \
    X(EVP_MAC_fetch) \
    X(EVP_MAC_final) \
    X(EVP_MAC_free) \
    X(EVP_MAC_init) \
    X(EVP_MAC_update) \
    X(EVP_MD_CTX_free) \
    X(EVP_MD_CTX_new) \
    X(EVP_PKEY_free) \
    X(EVP_PKEY_get_raw_public_key) \
    X(EVP_PKEY_new_raw_private_key) \
    X(EVP_PKEY_new_raw_public_key) \
    X(EVP_sha256) \
    X(EVP_sha512) \
    X(HMAC) \
    X(OPENSSL_cleanse) \
    X(OSSL_PARAM_construct_end) \
    X(OSSL_PARAM_construct_octet_string) \
    X(OSSL_PARAM_construct_utf8_string) \
    X(RAND_bytes) \
    X(RAND_priv_bytes)

struct crypto {
#define X(name) __typeof__(&name) name;
    CRYPTO_ENTRY_POINTS
#undef X
};

/* user: the function that needs it, "signatures", for the message that it is missing */
bool crypto_open(struct crypto *c, const char *user, struct err *e);

#endif
