// SPDX-License-Identifier: Apache-2.0
//
// Secrets of this user: files of random bytes that only this user can read, created at first use.
//
// A new one is complete under another name before it gets its own, and never replaces an existing one: concurrent processes
// end with the same bytes. One that others can read, or could have written, is rejected, not replaced: its owner should know.
#define _GNU_SOURCE
#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static bool fail(struct err *e, const char *what, const char *path)
{
    return err_set(e, ERR_SYSTEM, "cannot %s '%s': %s", what, path, strerror(errno));
}

static bool read_secret(const char *path, u8 *out, i64 n, struct err *e)
{
    struct arena a = {0};
    struct str s;
    bool ok = os_read_own(&a, path, true, n, &s, e);
    if (ok && s.n != n) ok = err_set(e, ERR_SYSTEM, "'%s' does not have %lld bytes", path, (long long)n);
    if (ok) memcpy(out, s.p, (size_t)n), explicit_bzero((char *)(uintptr_t)s.p, (size_t)n);
    arena_release(&a);
    return ok || err_prefix(e, "a secret that is made anew where there is none");
}

static bool make_secret(const char *path, i64 n, struct err *e)
{
    char tmp[PATH_MAX];
    u8 bytes[256];
    assert(n <= (i64)sizeof bytes);
    if (snprintf(tmp, sizeof tmp, "%s.%ld.tmp", path, (long)gettid()) >= (int)sizeof tmp) return err_set(e, ERR_SYSTEM, "path too long: '%.200s'", path);
    if (getrandom(bytes, (size_t)n, 0) != n) return fail(e, "get random bytes for", path);
    unlink(tmp);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, bytes, (size_t)n) == n && fsync(fd) == 0;
    ok = (ok && (link(tmp, path) == 0 || errno == EEXIST)) || fail(e, "create", path);
    if (fd >= 0) close(fd), unlink(tmp);
    explicit_bzero(bytes, sizeof bytes);
    return ok;
}

bool os_secret(const char *path, u8 *out, i64 n, struct err *e)
{
    return (os_exists(path) || make_secret(path, n, e)) && read_secret(path, out, n, e);
}
