// SPDX-License-Identifier: Apache-2.0
//
// The operating system, Linux: files, time, the CPU, shared objects (processes: os_run.c).
//
// Only this file and the other os_*.c depend on the system;
// another system gets files of its own, not branches in these.
// Every failure is reported with the path and the system's reason.
#define _GNU_SOURCE
#include "core/core.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEMP_ROOM = 256 << 10 /* approximate bytes that a compiler needs for a kernel */ };

static bool fail(struct err *e, const char *what, const char *path)
{
    return err_set(e, ERR_SYSTEM, "cannot %s '%s': %s", what, path, strerror(errno));
}

static int open_retry(const char *path, int flags, mode_t mode)
{
    int fd;
    do fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Reading. */

bool os_map_open(struct os_file *f, int fd, const char *path, struct err *e)
{
    struct stat st;
    *f = (struct os_file){0};
    bool ok = fstat(fd, &st) == 0;
    if (!ok) {
        fail(e, "read", path);
    } else if (!S_ISREG(st.st_mode)) {
        ok = err_set(e, ERR_INPUT, "not a regular file: '%s'", path);
    } else if (!mem_is_addressable(st.st_size)) {
        ok = err_set(e, ERR_SYSTEM, "too large for a process of %d bits: %lld bytes in '%s'", (int)sizeof(void *) * 8, (long long)st.st_size, path);
    } else if (st.st_size > 0) {
        f->priv = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        ok = f->priv != MAP_FAILED || fail(e, "map", path);
        if (ok) f->n = st.st_size;
        else f->priv = NULL;
    }
    f->p = f->priv ? f->priv : (const u8 *)"";
    return ok;
}

bool os_map(struct os_file *f, const char *path, struct err *e)
{
    *f = (struct os_file){0};
    int fd = open_retry(path, O_RDONLY | O_NONBLOCK, 0); /* a pipe is refused, not waited for */
    if (fd < 0) return fail(e, "open", path);
    bool ok = os_map_open(f, fd, path, e);
    close(fd);
    return ok;
}

void os_unmap(struct os_file *f)
{
    if (f->is_copy) mem_free(f->priv);
    else if (f->priv) munmap(f->priv, (size_t)f->n);
    *f = (struct os_file){0};
}

bool os_reader_open(struct os_reader *r, const char *path, struct err *e)
{
    struct stat st;
    *r = (struct os_reader){.fd = open_retry(path, O_RDONLY, 0)};
    if (r->fd < 0) return fail(e, "open", path);
    bool ok = fstat(r->fd, &st) == 0 || fail(e, "read", path);
    if (ok) ok = S_ISREG(st.st_mode) || err_set(e, ERR_INPUT, "not a regular file: '%s'", path);
    if (ok) r->n = st.st_size;
    else os_reader_close(r);
    return ok;
}

bool os_reader_get(const struct os_reader *r, void *to, i64 n, i64 at)
{
    while (n > 0) {
        ssize_t got = pread(r->fd, to, (size_t)i64_min(n, 1 << 30), at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to = (char *)to + got, at += got, n -= got;
    }
    return true;
}

void os_reader_close(struct os_reader *r)
{
    if (r->fd >= 0) close(r->fd);
    *r = (struct os_reader){.fd = -1};
}

static bool read_all(int fd, struct buf *b, i64 max, const char *path, struct err *e)
{
    char piece[16384];
    for (;;) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(e, "read", path);
        if (n == 0) return true;
        buf_put(b, piece, n);
        if (b->failed && b->n < max)
            return err_set(e, ERR_SYSTEM, "not enough memory to read '%s': more than %lld bytes", path, (long long)b->n);
        if (b->failed || b->n > max)
            return err_set(e, ERR_INPUT, "cannot read '%s': larger than %lld bytes", path,
                           (long long)max);
    }
}

bool os_read(struct arena *a, const char *path, i64 max, struct str *out, struct err *e)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open_retry(path, O_RDONLY, 0);
    if (fd < 0) return fail(e, "open", path);
    struct buf b = {0};
    bool ok = read_all(fd, &b, max, path, e);
    char *p = ok ? arena_try(a, b.n + 1, e, "the content of '%s'", path) : NULL;
    if (p && b.n) memcpy(p, b.p, (size_t)b.n);
    if (p) *out = (struct str){p, b.n};
    ok = p != NULL;
    buf_release(&b);
    if (!is_stdin) close(fd);
    return ok;
}

/* Writing. */

static bool write_all(int fd, const char *p, i64 n)
{
    while (n > 0) {
        ssize_t w = write(fd, p, (size_t)i64_min(n, 1 << 30));
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return false;
        p += w;
        n -= w;
    }
    return true;
}

/* Terminals, pipes and devices are written in place. */
static bool write_in_place(const char *path, const struct str *piece, i64 n, struct err *e)
{
    bool is_stdout = strcmp(path, "-") == 0;
    int fd = is_stdout ? STDOUT_FILENO : open_retry(path, O_WRONLY, 0);
    bool ok = fd >= 0;
    for (i64 k = 0; k < n && ok; k++) ok = write_all(fd, piece[k].p, piece[k].n);
    if (!ok) fail(e, "write", is_stdout ? "standard output" : path);
    if (fd >= 0 && !is_stdout) ok = (close(fd) == 0 || fail(e, "write", path)) && ok;
    return ok;
}

/* A new file beside path; its name in tmp. The number only has to be free, not unguessable. */
static int open_beside(const char *path, mode_t mode, char *tmp, size_t size)
{
    for (int i = 0; i < 1000; i++) {
        snprintf(tmp, size, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        int fd = open_retry(tmp, O_WRONLY | O_CREAT | O_EXCL, mode);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

/* is_lasting: on the disk when it returns, even if the machine fails right then. */
static bool write_beside(const char *path, mode_t mode, bool is_lasting, const struct str *piece, i64 n, struct err *e)
{
    char tmp[PATH_MAX + 64];
    int fd = open_beside(path, mode, tmp, sizeof tmp);
    if (fd < 0) return fail(e, "write", path);
    bool ok = true;
    for (i64 k = 0; k < n && ok; k++) ok = write_all(fd, piece[k].p, piece[k].n);
    ok = ok && (!is_lasting || fsync(fd) == 0);
    int why = errno;
    if (close(fd) != 0 && ok) ok = false, why = errno;
    if (ok && rename(tmp, path) != 0) ok = false, why = errno;
    if (ok) return true;
    unlink(tmp);
    errno = why;
    return fail(e, "write", path);
}

bool os_write_pieces(const char *path, const struct str *piece, i64 n, struct err *e)
{
    if (strcmp(path, "-") == 0) return write_in_place(path, piece, n, e);
    struct stat st;
    char real[PATH_MAX]; /* a link stays a link: its target is replaced */
    bool there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode)) return write_in_place(path, piece, n, e);
    if (there && !realpath(path, real)) return fail(e, "write", path);
    return write_beside(there ? real : path, there ? st.st_mode & 0777 : 0666, true, piece, n, e);
}

bool os_write(const char *path, const void *p, i64 n, struct err *e) { return os_write_pieces(path, &(struct str){p, n}, 1, e); }

bool os_write_private(const char *path, const struct str *piece, i64 n, struct err *e)
{
    return write_beside(path, 0600, false, piece, n, e);
}

void os_note_use(const char *path)
{
    utimensat(AT_FDCWD, path, (struct timespec[2]){{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}}, 0);
}

/* Folders. */

bool os_mkdirs(const char *path, struct err *e)
{
    char z[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof z) return err_set(e, ERR_SYSTEM, "path too long: '%.200s'", path);
    memcpy(z, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (z[i] != '/' && z[i] != 0) continue;
        char c = z[i];
        z[i] = 0;
        if (mkdir(z, 0777) != 0 && !os_is_dir(z)) return fail(e, "create folder", z);
        z[i] = c;
    }
    return n > 0 || err_set(e, ERR_SYSTEM, "cannot create folder '': empty name");
}

bool os_private_folder(const char *path, struct err *e)
{
    char z[PATH_MAX];
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (slash && slash > path) {
        snprintf(z, sizeof z, "%.*s", (int)(slash - path), path);
        if (!os_mkdirs(z, e)) return false;
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return fail(e, "create folder", path);
    if (lstat(path, &st) != 0) return fail(e, "read folder", path);
    if (!S_ISDIR(st.st_mode)) return err_set(e, ERR_SYSTEM, S_ISLNK(st.st_mode) ? "'%s' is a link" : "'%s' is not a folder", path);
    if (st.st_uid != geteuid())
        return err_set(e, ERR_SYSTEM, "folder '%s' belongs to another user", path);
    return !(st.st_mode & 022) ||
           err_set(e, ERR_SYSTEM, "other users may write into folder '%s': chmod go-w it", path);
}

/* A folder of this user's, as the XDG base directory specification has it. */
static struct str user_folder(struct arena *a, const char *variable, const char *beneath_home)
{
    const char *base = os_env(variable), *home = os_env("HOME");
    if (base && *base) return str_fmt(a, "%s/quern", base);
    return home && *home ? str_fmt(a, "%s/%s/quern", home, beneath_home) : (struct str){0};
}

struct str os_cache_folder(struct arena *a) { return user_folder(a, "XDG_CACHE_HOME", ".cache"); }
struct str os_config_folder(struct arena *a) { return user_folder(a, "XDG_CONFIG_HOME", ".config"); }

static double epoch_seconds(struct timespec t) { return (double)t.tv_sec + (double)t.tv_nsec * 1e-9; }

static int older(const void *a, const void *b)
{
    const struct os_entry *x = a, *y = b;
    if (x->used != y->used) return x->used < y->used ? -1 : 1;
    return str_cmp(x->name, y->name);
}

bool os_mkdir_beside(struct arena *a, const char *path, struct str *folder, struct err *e)
{
    struct str base = str_of(path);
    while (base.n > 1 && base.p[base.n - 1] == '/') base.n--;
    for (int i = 0; i < 1000; i++) {
        *folder = str_fmt(a, "%.*s.%ld-%d.tmp", STR_ARG(base), (long)getpid(), i);
        if (mkdir(folder->p, 0777) == 0) return true;
        if (errno != EEXIST) break;
    }
    return fail(e, "create a folder beside", path);
}

bool os_rename_folder(const char *from, const char *to, struct err *e)
{
    if (rename(from, to) == 0) return true;
    if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) return err_set(e, ERR_USAGE, "'%s' exists already", to);
    return fail(e, "create", to);
}

bool os_list_by_use(struct arena *a, const char *dir, struct os_entry **entries, i64 *n, struct err *e)
{
    struct str *names;
    if (!os_list(a, dir, &names, n, e)) return false;
    struct os_entry *v = arena_array(a, struct os_entry, *n + 1);
    i64 found = 0;
    for (i64 i = 0; i < *n; i++) {
        struct stat st;
        if (lstat(str_fmt(a, "%s/%.*s", dir, STR_ARG(names[i])).p, &st) != 0 || !S_ISREG(st.st_mode)) continue;
        double used = epoch_seconds(st.st_atim), changed = epoch_seconds(st.st_mtim);
        v[found++] = (struct os_entry){names[i], st.st_size, changed, used > changed ? used : changed};
    }
    if (found) qsort(v, (size_t)found, sizeof *v, older);
    *entries = v, *n = found;
    return true;
}

bool os_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool os_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int name_cmp(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

bool os_list(struct arena *a, const char *dir, struct str **names, i64 *n, struct err *e)
{
    DIR *d = opendir(dir);
    if (!d) return fail(e, "open folder", dir);
    struct {
        struct str *v;
        u32 n, cap;
    } list = {0};
    for (struct dirent *x; (x = readdir(d));)
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0)
            *arr_push(a, &list) = str_dup(a, str_of(x->d_name));
    closedir(d);
    if (list.n) qsort(list.v, list.n, sizeof *list.v, name_cmp);
    *names = list.v;
    *n = list.n;
    return true;
}

static const char *temp_base(void)
{
    const char *base = os_env("TMPDIR");
    return base && *base ? base : "/tmp";
}

/* "'/tmp'", "'/var/x' (TMPDIR)" */
static const char *temp_name(struct arena *a)
{
    const char *base = os_env("TMPDIR");
    return str_fmt(a, "'%s'%s", temp_base(), base && *base ? " (TMPDIR)" : "").p;
}

/* Temporary folders are named after their creator, "quern-NAMESPACE-PID-XXXXXX", to distinguish the
   remains of a killed process from folders in use; process ids are unique only within their namespace. */
static struct str temp_prefix(struct arena *a)
{
    struct stat st;
    return str_fmt(a, "quern-%llu-", stat("/proc/self/ns/pid", &st) == 0 ? (unsigned long long)st.st_ino : 0);
}

/* Zombies are gone, too: they have no program any more. */
static bool is_gone(i64 pid)
{
    char path[64], to[8];
    snprintf(path, sizeof path, "/proc/%lld/exe", (long long)pid);
    return readlink(path, to, sizeof to) < 0 && errno == ENOENT;
}

void os_temp_sweep(void)
{
    struct arena a = {0};
    struct err e = {0};
    struct str *names, prefix = temp_prefix(&a), pid, rest;
    i64 n, id;
    if (!os_list(&a, temp_base(), &names, &n, &e)) n = 0;
    for (i64 i = 0; i < n; i++) {
        if (!str_starts(names[i], prefix)) continue;
        bool ours = str_cut(str_sub(names[i], prefix.n, names[i].n), '-', &pid, &rest) && str_to_i64(pid, &id) && id > 0;
        if (ours && is_gone(id)) os_remove_tree(str_fmt(&a, "%s/%.*s", temp_base(), STR_ARG(names[i])).p);
    }
    arena_release(&a);
}

bool os_temp_dir(struct arena *a, struct str *path, struct err *e)
{
    struct str prefix = temp_prefix(a);
    struct str s = str_fmt(a, "%s/%.*s%lld-XXXXXX", temp_base(), STR_ARG(prefix), (long long)getpid());
    char *z = (char *)(uintptr_t)s.p; /* our own copy */
    if (!mkdtemp(z))
        return err_set(e, ERR_SYSTEM, "cannot create a folder for temporary files in %s: %s; set TMPDIR to a writable folder", temp_name(a), strerror(errno));
    *path = s;
    return true;
}

/* By writing: file systems reserve blocks, and quotas are not free space. */
bool os_temp_has_room(struct err *e)
{
    struct arena a = {0};
    struct str dir;
    bool ok = os_temp_dir(&a, &dir, e);
    if (ok) {
        char *piece = arena_alloc(&a, TEMP_ROOM);
        const char *path = str_fmt(&a, "%.*s/room", STR_ARG(dir)).p;
        memset(piece, 'x', TEMP_ROOM); /* zeros may be a hole */
        struct err why = {0};
        if (!os_write_private(path, &(struct str){piece, TEMP_ROOM}, 1, &why)) {
            int reason = errno;
            ok = err_set(e, ERR_SYSTEM, "cannot write temporary files in %s: %s; free some space there, or set TMPDIR to another folder", temp_name(&a), strerror(reason));
        }
        os_remove_tree(str_z(&a, dir));
    }
    arena_release(&a);
    return ok;
}

/* Removes below an open folder, without following links. fd is closed. */
static void remove_below(int fd)
{
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return;
    }
    for (struct dirent *x; (x = readdir(d));) {
        if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0) continue;
        if (unlinkat(dirfd(d), x->d_name, 0) == 0) continue;
        int sub = openat(dirfd(d), x->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0) remove_below(sub);
        unlinkat(dirfd(d), x->d_name, AT_REMOVEDIR);
    }
    closedir(d);
}

void os_remove_tree(const char *path)
{
    if (unlink(path) == 0) return;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) remove_below(fd);
    rmdir(path);
}

const char *os_env(const char *name) { return getenv(name); }

/* Time and processor. */

double os_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double os_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return epoch_seconds(t);
}

static double clock_seconds(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) return os_now();
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double os_thread_seconds(void) { return clock_seconds(CLOCK_THREAD_CPUTIME_ID); }
double os_process_seconds(void) { return clock_seconds(CLOCK_PROCESS_CPUTIME_ID); }

void os_sleep(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

int os_lock(const char *path, double seconds, const struct stop *stop)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    double end = os_now() + seconds;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK || os_now() >= end || stop_is_set(stop)) {
            close(fd);
            return -1;
        }
        os_sleep(0.02);
    }
    return fd;
}

void os_unlock(int lock)
{
    if (lock < 0) return;
    flock(lock, LOCK_UN); /* children have copies of it */
    close(lock);
}

/* Processors that a container's quota amounts to, rounded up; INT_MAX: no quota. */
static int quota_cpus(void)
{
    struct arena a = {0};
    struct str text, quota, period;
    i64 q, p;
    bool ok = os_read(&a, "/sys/fs/cgroup/cpu.max", 100, &text, NULL) &&
              str_cut(str_trim(text), ' ', &quota, &period) && str_to_i64(quota, &q) &&
              str_to_i64(period, &p) && q > 0 && p > 0;
    arena_release(&a);
    return ok ? (int)i64_min(ceil_div(q, p), INT_MAX) : INT_MAX;
}

int os_n_cpus(void)
{
    cpu_set_t set;
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* for more processors than a cpu_set_t has bits */
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
    return (int)i64_max(1, i64_min(n, quota_cpus()));
}

int os_cpu(void) { return sched_getcpu(); }
i64 os_thread_id(void) { return (i64)gettid(); }
void os_yield(void) { sched_yield(); }

void os_keep_off(const i64 *thread, u32 n, int cpu)
{
    cpu_set_t set;
    if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof set, &set)) return;
    CPU_CLR(cpu, &set);
    if (CPU_COUNT(&set) < (int)n) return;
    for (u32 i = 0; i < n; i++) sched_setaffinity((pid_t)thread[i], sizeof set, &set);
}

i64 os_peak_rss(void)
{
    struct rusage r;
    return getrusage(RUSAGE_SELF, &r) == 0 ? (i64)r.ru_maxrss * 1024 : 0;
}

static double seconds_of(const struct rusage *r)
{
    return (double)(r->ru_utime.tv_sec + r->ru_stime.tv_sec) +
           1e-6 * (double)(r->ru_utime.tv_usec + r->ru_stime.tv_usec);
}

bool os_cpu_seconds(double *all, double *own)
{
    struct rusage self, children;
    unsigned long long user, nice, sys;
    FILE *f = fopen("/proc/stat", "re");
    if (!f) return false;
    int n = fscanf(f, "cpu %llu %llu %llu", &user, &nice, &sys);
    fclose(f);
    if (n != 3 || getrusage(RUSAGE_SELF, &self) != 0) return false;
    if (getrusage(RUSAGE_CHILDREN, &children) != 0) return false;
    *all = (double)(user + nice + sys) / (double)sysconf(_SC_CLK_TCK);
    *own = seconds_of(&self) + seconds_of(&children);
    return true;
}

/* The value of the first line of /proc/cpuinfo whose key is one of two. */
static struct str cpuinfo(struct arena *a, const char *key, const char *other)
{
    struct str text, line, name, value;
    if (!os_read(a, "/proc/cpuinfo", 1 << 24, &text, NULL)) return (struct str){0};
    while (text.n) {
        str_cut(text, '\n', &line, &text);
        if (!str_cut(line, ':', &name, &value)) continue;
        name = str_trim(name);
        if (str_is(name, key) || str_is(name, other)) return str_trim(value);
    }
    return (struct str){0};
}

void os_cpu_model(char *out, i64 n)
{
    struct arena a = {0};
    struct str s = cpuinfo(&a, "model name", "Model");
    if (s.n == 0) s = S("unknown processor");
    snprintf(out, (size_t)n, "%.*s", STR_ARG(s));
    arena_release(&a);
}

struct hash os_cpu_features(void)
{
    struct arena a = {0};
    struct str s = cpuinfo(&a, "flags", "Features");
    struct hash h = hash_bytes(s.p, s.n);
    arena_release(&a);
    return h;
}

/* Shared objects. */

struct build_id {
    ElfW(Addr) at; /* an address within the object */
    struct hash id;
    bool found;
};

static bool contains(const struct dl_phdr_info *o, ElfW(Addr) at)
{
    for (int k = 0; k < o->dlpi_phnum; k++) {
        ElfW(Addr) from = o->dlpi_addr + o->dlpi_phdr[k].p_vaddr;
        if (o->dlpi_phdr[k].p_type == PT_LOAD && at >= from && at - from < o->dlpi_phdr[k].p_memsz) return true;
    }
    return false;
}

static int find_build_id(struct dl_phdr_info *o, size_t size, void *user)
{
    struct build_id *b = user;
    if (!contains(o, b->at)) return 0;
    for (int k = 0; k < o->dlpi_phnum && !b->found; k++) {
        if (o->dlpi_phdr[k].p_type != PT_NOTE) continue;
        const char *p = (const char *)o->dlpi_addr + o->dlpi_phdr[k].p_vaddr, *end = p + o->dlpi_phdr[k].p_memsz;
        while (!b->found && end - p >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
            ElfW(Nhdr) n;
            memcpy(&n, p, sizeof n);
            const char *desc = p + sizeof n + round_up(n.n_namesz, 4);
            b->found = n.n_type == NT_GNU_BUILD_ID && end - desc >= (ptrdiff_t)n.n_descsz;
            if (b->found) b->id = hash_bytes(desc, n.n_descsz);
            p = desc + round_up(n.n_descsz, 4);
        }
    }
    return 1;
}

bool os_build_id(struct hash *id)
{
    struct build_id b = {.at = (ElfW(Addr))(uintptr_t)&os_build_id};
    dl_iterate_phdr(find_build_id, &b);
    *id = b.id;
    return b.found;
}

void *os_dlopen(const char *path, struct err *e)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) err_set(e, ERR_SYSTEM, "cannot load '%s': %s", path, dlerror());
    return lib;
}

bool os_dlloaded(const char *path)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (lib) dlclose(lib);
    return lib != NULL;
}

/* The loader treats a known path as the same library, and numbers
   of closed files are reused. So the path encodes the file's
   inode, unique while it is loaded, in redundant slashes and dots. */
static void memfd_path(int fd, u64 inode, char out[160])
{
    int n = snprintf(out, 160, "/proc/self/fd");
    for (int bit = 0; bit < 64; bit++)
        n += snprintf(out + n, (size_t)(160 - n), inode >> bit & 1 ? "/." : "/");
    snprintf(out + n, (size_t)(160 - n), "/%d", fd);
}

/* The loader's message without the path that it may begin with. */
static const char *reason_after(const char *msg, const char *path)
{
    size_t n = strlen(path);
    return strncmp(msg, path, n) == 0 && msg[n] == ':' ? msg + n + 2 : msg;
}

void *os_dlopen_bytes(const void *p, i64 n, struct err *e)
{
    void *lib = NULL;
    struct stat st;
    char path[160];
    int fd = memfd_create("quern", MFD_CLOEXEC);
    if (fd < 0 || !write_all(fd, p, n) || fstat(fd, &st) != 0) {
        fail(e, "load", "code in memory");
    } else {
        memfd_path(fd, (u64)st.st_ino, path);
        lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!lib)
            err_set(e, ERR_SYSTEM, "cannot load code in memory: %s", reason_after(dlerror(), path));
    }
    if (fd >= 0) close(fd);
    return lib;
}

void *os_dlsym(void *lib, const char *name) { return dlsym(lib, name); }

void os_dlclose(void *lib)
{
    if (lib) dlclose(lib);
}
