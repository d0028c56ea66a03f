// SPDX-License-Identifier: Apache-2.0
//
// Opening of untrusted files: files that an untrusted file names, which must be beneath a folder, and files that
// are trusted because only this user can have written them. They are checked after opening (fstat), so that nothing
// can be exchanged between check and use, and opened without waiting, so that a pipe of that name does not block.
#define _GNU_SOURCE
#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { READING = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, FOLDER = O_PATH | O_DIRECTORY | O_CLOEXEC };

static bool fail(struct err *e, const char *what, const char *path)
{
    return err_set(e, ERR_SYSTEM, "cannot %s '%s': %s", what, path, strerror(errno));
}

static int open_at(int dir, const char *name, int flags)
{
    int fd;
    do fd = openat(dir, name, flags);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Beneath a folder. */

/* The part of a path up to the next slash; *rest: the remainder. */
static i64 next_part(const char *path, const char **rest)
{
    i64 n = (i64)strcspn(path, "/");
    *rest = path + n;
    while (**rest == '/') (*rest)++;
    return n;
}

/* ELOOP: a link. The kernel says ENOTDIR of some. */
static int open_part(int dir, const char *part, bool is_last)
{
    struct stat st;
    int fd = open_at(dir, part, O_NOFOLLOW | (is_last ? READING : FOLDER)), why = errno;
    if (fd < 0 && fstatat(dir, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)) why = ELOOP;
    errno = why;
    return fd;
}

/* Part by part, for kernels (before 5.6) and sandboxes that have no openat2. */
static int open_by_parts(int dir, const char *path)
{
    char part[NAME_MAX + 1];
    int at = dir;
    for (const char *rest; at >= 0; path = rest) {
        i64 n = next_part(path, &rest);
        if (n > NAME_MAX) errno = ENAMETOOLONG;
        if (n == 2 && memcmp(path, "..", 2) == 0) errno = EXDEV, n = NAME_MAX + 1;
        memcpy(part, path, (size_t)i64_min(n, NAME_MAX));
        part[i64_min(n, NAME_MAX)] = 0;
        int next = n > NAME_MAX ? -1 : open_part(at, n ? part : ".", !*rest), why = errno;
        if (at != dir) close(at);
        errno = why;
        at = next;
        if (!*rest) break;
    }
    return at;
}

static int open_beneath(int dir, const char *path)
{
    struct open_how how = {.flags = READING, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    long fd;
    do fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    return fd < 0 && (errno == ENOSYS || errno == EPERM) ? open_by_parts(dir, path) : (int)fd;
}

/* The model's path is a link, as is the file's: it may lie beneath the folder of the model's own file. */
static int open_by_model(const struct os_beside *at, const char *path)
{
    char model[PATH_MAX], file[PATH_MAX];
    struct stat st;
    if (!at->model || lstat(at->model, &st) != 0 || !S_ISLNK(st.st_mode)) return -1;
    if (!realpath(at->model, model) || !realpath(path, file)) return -1;
    size_t n = (size_t)(strrchr(model, '/') - model) + 1;
    if (strncmp(model, file, n) != 0) return -1;
    model[n] = 0;
    int dir = open_at(AT_FDCWD, model, FOLDER), fd = dir < 0 ? -1 : open_beneath(dir, file + n);
    if (dir >= 0) close(dir);
    return fd;
}

static int open_beside(const struct os_beside *at, const char *name, const char *path)
{
    int dir = open_at(AT_FDCWD, at->dir, FOLDER);
    if (dir < 0) return -1;
    int fd = at->follow_links ? open_at(dir, name, READING) : open_beneath(dir, name), why = errno;
    close(dir);
    if (fd < 0 && why == ELOOP && !at->follow_links) fd = open_by_model(at, path);
    if (fd < 0) errno = why;
    return fd;
}

static bool is_regular(int fd, const char *path, struct stat *st, struct err *e)
{
    if (fstat(fd, st) != 0) return fail(e, "read", path);
    return S_ISREG(st->st_mode) || err_set(e, ERR_INPUT, "not a regular file: '%s'", path);
}

static bool read_part(int fd, char *to, i64 at, i64 size, const char *path, struct err *e)
{
    while (size > 0) {
        ssize_t n = pread(fd, to, (size_t)i64_min(size, 1 << 30), at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(e, "read", path);
        if (n == 0) return err_set(e, ERR_INPUT, "'%s' was truncated while it was read", path);
        to += n, at += n, size -= n;
    }
    return true;
}

/* An open regular file, and its path for messages; false: not opened. */
struct opened { int fd; struct str path; struct stat st; };
static bool open_named(struct opened *f, const struct os_beside *at, struct str name, struct arena *a, struct err *e)
{
    bool has_slash = str_ends(str_of(at->dir), S("/"));
    const char *z = str_z(a, name);
    *f = (struct opened){.fd = -1, .path = str_fmt(a, "%s%s%.*s", at->dir, has_slash ? "" : "/", STR_ARG(name))};
    if ((i64)strlen(z) != name.n) return err_set(e, ERR_INPUT, "the name of a file has a zero byte in it");
    f->fd = open_beside(at, z, f->path.p);
    if (f->fd >= 0) return is_regular(f->fd, f->path.p, &f->st, e);
    return errno == EXDEV ? err_set(e, ERR_INPUT, "'%s' leaves its folder", f->path.p) : errno != ELOOP && fail(e, "open", f->path.p);
}

bool os_read_beside(const struct os_beside *at, struct str name, i64 offset, void *to, i64 size, struct err *e)
{
    struct arena a = {0};
    struct opened f;
    bool ok = open_named(&f, at, name, &a, e);
    if (!ok && !e->code)
        err_set(e, ERR_INPUT, "'%s' is a symbolic link, or leads through one: links are followed with --external-data-links "
                "(external_data_links of struct quern_model_opts)", f.path.p);
    if (ok && (offset > f.st.st_size || size > f.st.st_size - offset))
        ok = err_set(e, ERR_INPUT, "'%s' is too short: %lld bytes at offset %lld are needed, it has %lld", f.path.p, (long long)size,
                     (long long)offset, (long long)f.st.st_size);
    ok = ok && read_part(f.fd, to, offset, size, f.path.p, e);
    if (f.fd >= 0) close(f.fd);
    arena_release(&a);
    return ok;
}

/* Whether only this user can change it. */

static bool is_own(const struct stat *st, const char *path, struct err *e)
{
    if (st->st_uid != geteuid() && st->st_uid != 0) return err_set(e, ERR_SYSTEM, "'%s' belongs to another user", path);
    return !(st->st_mode & 022) || err_set(e, ERR_SYSTEM, "other users may write to '%s': chmod go-w it", path);
}

bool os_read_own(struct arena *a, const char *path, bool is_secret, i64 max, struct str *out, struct err *e)
{
    struct stat st;
    int fd = open_at(AT_FDCWD, path, READING);
    if (fd < 0) return fail(e, "open", path);
    bool ok = is_regular(fd, path, &st, e) && is_own(&st, path, e);
    if (ok && is_secret && (st.st_mode & 077)) ok = err_set(e, ERR_SYSTEM, "other users may read the secret '%s': chmod 600 it", path);
    if (ok && st.st_size > max) ok = err_set(e, ERR_INPUT, "cannot read '%s': larger than %lld bytes", path, (long long)max);
    char *p = ok ? arena_try(a, st.st_size + 1, e, "the content of '%s'", path) : NULL;
    ok = p && read_part(fd, p, 0, st.st_size, path, e);
    if (ok) *out = (struct str){p, st.st_size};
    close(fd);
    return ok;
}

bool os_own_folder(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) != 0) return errno != ENOENT && errno != ENOTDIR && fail(e, "read folder", path);
    if (!S_ISDIR(st.st_mode)) return err_set(e, ERR_SYSTEM, "'%s' is not a folder", path);
    return is_own(&st, path, e);
}

/* Copies. */

/* Copies small files, maps others. */
static bool load_open(struct os_file *f, int fd, const char *path, i64 most, struct err *e)
{
    struct stat st;
    *f = (struct os_file){.p = (const u8 *)""};
    bool ok = is_regular(fd, path, &st, e);
    if (ok && st.st_size > most) return os_map_open(f, fd, path, e);
    if (ok && st.st_size) {
        f->priv = mem_aligned(st.st_size);
        ok = f->priv ? read_part(fd, f->priv, 0, st.st_size, path, e)
                     : err_set(e, ERR_SYSTEM, "not enough memory to read '%s': %lld bytes", path, (long long)st.st_size);
        *f = (struct os_file){.p = f->priv, .n = st.st_size, .priv = f->priv, .is_copy = true};
    }
    if (!ok) os_unmap(f);
    return ok;
}

bool os_load(struct os_file *f, const char *path, i64 most, struct err *e)
{
    *f = (struct os_file){.p = (const u8 *)""};
    int fd = open_at(AT_FDCWD, path, READING);
    if (fd < 0) return fail(e, "open", path);
    bool ok = load_open(f, fd, path, most, e);
    close(fd);
    return ok;
}

bool os_load_beside(struct os_file *f, const struct os_beside *at, struct str name, i64 most, struct err *e)
{
    struct arena a = {0};
    struct opened x;
    *f = (struct os_file){.p = (const u8 *)""};
    bool ok = open_named(&x, at, name, &a, e) || (!e->code && err_set(e, ERR_INPUT, "'%s' is a symbolic link, or leads through one", x.path.p));
    ok = ok && load_open(f, x.fd, x.path.p, most, e);
    if (x.fd >= 0) close(x.fd);
    arena_release(&a);
    return ok;
}

bool os_write_new(const char *path, u32 mode, const void *p, i64 n, struct err *e)
{
    int fd;
    do fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)mode);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return fail(e, "create", path);
    bool ok = write(fd, p, (size_t)n) == (ssize_t)n && fsync(fd) == 0;
    if (!ok) fail(e, "write", path);
    if (close(fd) != 0 && ok) ok = fail(e, "write", path);
    if (!ok) unlink(path);
    return ok;
}
