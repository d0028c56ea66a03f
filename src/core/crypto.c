// SPDX-License-Identifier: Apache-2.0
//
// Loads libcrypto, of the version of the headers. It stays loaded, and cleans up at process exit by itself.
#include "core/crypto.h"

#include <openssl/opensslv.h>
#include <string.h>

#define TEXT_OF(x) #x
#define LIBRARY_OF(version) "libcrypto.so." TEXT_OF(version)

bool crypto_open(struct crypto *c, const char *user, struct err *e)
{
    const char *name = LIBRARY_OF(OPENSSL_SHLIB_VERSION);
    void *lib = os_dlopen(name, e), *f;
    if (!lib) return err_prefix(e, "%s need OpenSSL's libcrypto (Debian: libssl3)", user);
#define X(symbol) \
    f = os_dlsym(lib, #symbol); \
    if (!f) return err_set(e, ERR_SYSTEM, "'%s' has no function '%s'", name, #symbol); \
    memcpy(&c->symbol, &f, sizeof f);
    CRYPTO_ENTRY_POINTS
#undef X
    return true;
}
