// SPDX-License-Identifier: Apache-2.0
//
// Checksums of database pages. SQLite cannot detect a flipped byte inside a row, nor a page
// replaced by an older or another one. So every page of a database of version 5 ends with eight
// bytes that SQLite leaves free (its "reserved bytes"): the checksum of the page's content and
// number. A layer between SQLite and the file system writes them, and compares them whenever a page
// is read. A wrong page is an error of the statement that needs it, never a missing row. The cost
// is 0.2 us per page.
//
// In memory and in the write-ahead log, whose frames have checksums of their own, the eight bytes
// are zero. A page with zeros in the file was therefore written by a program without this layer
// (one that closed the database last and checkpointed the log): it cannot be verified and is
// refused; db_repair accepts it.
//
// SQLite's list of such layers belongs to the process. This one is registered once and is
// stateless.
#include "tune/db.h"

#include <string.h>

enum { HEAD_BYTES = 100, RESERVED_AT = 20, MAX_PAGE = 65536, SUBPAGE_READ = 0x8000 /* newer than the headers that are required */ };
static const char layer_name[] = "quern-pages";

/* The file as SQLite sees it, followed by that of the underlying layer. */
struct page_file {
    sqlite3_file base;        /* must be first */
    bool is_main;             /* the database, not its log */
    struct db_pages_state state;
};

static struct page_file *outer(sqlite3_file *f) { return (struct page_file *)f; }
static sqlite3_file *inner(sqlite3_file *f) { return (sqlite3_file *)(outer(f) + 1); }
static sqlite3_vfs *below(sqlite3_vfs *v) { return v->pAppData; }

u64 db_page_sum(const void *page, i64 size, i64 number)
{
    u64 h = hash_u64(page, size - DB_SUM_BYTES) + (u64)number * 0x9e3779b97f4a7c15;
    return h ? h : 1;
}

static void see_head(struct page_file *f, const void *p, i64 n, i64 at)
{
    static const char magic[16] = "SQLite format 3";
    if (at == 0 && n >= HEAD_BYTES && memcmp(p, magic, sizeof magic) == 0) f->state.has_sums = ((const u8 *)p)[RESERVED_AT] == DB_SUM_BYTES;
}

static bool is_page(const struct page_file *f, i64 n, i64 at)
{
    return f->state.has_sums && n >= 512 && n <= MAX_PAGE && (n & (n - 1)) == 0 && at % n == 0;
}

u64 db_page_stored_sum(const void *page, i64 size)
{
    u64 sum = 0;
    for (i64 i = size - 1; i >= size - DB_SUM_BYTES; i--) sum = sum << 8 | ((const u8 *)page)[i];
    return sum;
}

/* Verifies the checksum of a page that was read, and zeroes it. */
static int check_page(struct page_file *f, u8 *page, i64 n, i64 at)
{
    u64 sum = db_page_stored_sum(page, n);
    memset(page + n - DB_SUM_BYTES, 0, DB_SUM_BYTES);
    if (sum == db_page_sum(page, n, at / n + 1)) return SQLITE_OK;
    f->state.bad = at / n + 1;
    f->state.is_foreign = sum == 0;
    return SQLITE_IOERR_DATA;
}

static int file_read(sqlite3_file *file, void *p, int n, sqlite3_int64 at)
{
    struct page_file *f = outer(file);
    int rc = inner(file)->pMethods->xRead(inner(file), p, n, at);
    if (rc != SQLITE_OK || !f->is_main) return rc;
    see_head(f, p, n, at);
    return is_page(f, n, at) ? check_page(f, p, n, at) : rc;
}

static int file_write(sqlite3_file *file, const void *p, int n, sqlite3_int64 at)
{
    struct page_file *f = outer(file);
    u8 page[MAX_PAGE];
    if (f->is_main) see_head(f, p, n, at);
    if (!f->is_main || !is_page(f, n, at)) return inner(file)->pMethods->xWrite(inner(file), p, n, at);
    memcpy(page, p, (size_t)n - DB_SUM_BYTES);
    u64 sum = db_page_sum(page, n, at / n + 1);
    for (int i = 0; i < DB_SUM_BYTES; i++, sum >>= 8) page[n - DB_SUM_BYTES + i] = (u8)sum;
    return inner(file)->pMethods->xWrite(inner(file), page, n, at);
}

static int file_control(sqlite3_file *file, int op, void *arg)
{
    struct page_file *f = outer(file);
    if (op == DB_PAGES_STATE && f->is_main) {
        *(struct db_pages_state *)arg = f->state;
        return SQLITE_OK;
    }
    return inner(file)->pMethods->xFileControl(inner(file), op, arg);
}

static int file_traits(sqlite3_file *f) { return inner(f)->pMethods->xDeviceCharacteristics(inner(f)) & ~SUBPAGE_READ; }

/* Forwarded methods. */

static int file_close(sqlite3_file *f)
{
    sqlite3_file *x = inner(f);
    return x->pMethods ? x->pMethods->xClose(x) : SQLITE_OK;
}
static int file_truncate(sqlite3_file *f, sqlite3_int64 n) { return inner(f)->pMethods->xTruncate(inner(f), n); }
static int file_sync(sqlite3_file *f, int flags) { return inner(f)->pMethods->xSync(inner(f), flags); }
static int file_size(sqlite3_file *f, sqlite3_int64 *n) { return inner(f)->pMethods->xFileSize(inner(f), n); }
static int file_lock(sqlite3_file *f, int lock) { return inner(f)->pMethods->xLock(inner(f), lock); }
static int file_unlock(sqlite3_file *f, int lock) { return inner(f)->pMethods->xUnlock(inner(f), lock); }
static int file_is_reserved(sqlite3_file *f, int *is) { return inner(f)->pMethods->xCheckReservedLock(inner(f), is); }
static int file_sector(sqlite3_file *f) { return inner(f)->pMethods->xSectorSize(inner(f)); }
static int shm_map(sqlite3_file *f, int at, int n, int extend, void volatile **p) { return inner(f)->pMethods->xShmMap(inner(f), at, n, extend, p); }
static int shm_lock(sqlite3_file *f, int at, int n, int flags) { return inner(f)->pMethods->xShmLock(inner(f), at, n, flags); }
static void shm_barrier(sqlite3_file *f) { inner(f)->pMethods->xShmBarrier(inner(f)); }
static int shm_unmap(sqlite3_file *f, int is_deleted) { return inner(f)->pMethods->xShmUnmap(inner(f), is_deleted); }

/* Version 2: without memory-mapped pages, which could not be verified. */
static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_is_reserved,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_traits,
    .xShmMap = shm_map,
    .xShmLock = shm_lock,
    .xShmBarrier = shm_barrier,
    .xShmUnmap = shm_unmap,
};

static int layer_open(sqlite3_vfs *v, const char *name, sqlite3_file *file, int flags, int *out)
{
    *outer(file) = (struct page_file){.is_main = (flags & SQLITE_OPEN_MAIN_DB) != 0};
    inner(file)->pMethods = NULL;
    int rc = below(v)->xOpen(below(v), name, inner(file), flags, out);
    if (inner(file)->pMethods) file->pMethods = &methods;
    return rc;
}

static int layer_delete(sqlite3_vfs *v, const char *name, int is_lasting) { return below(v)->xDelete(below(v), name, is_lasting); }
static int layer_access(sqlite3_vfs *v, const char *name, int flags, int *is) { return below(v)->xAccess(below(v), name, flags, is); }
static int layer_path(sqlite3_vfs *v, const char *name, int n, char *out) { return below(v)->xFullPathname(below(v), name, n, out); }
static int layer_random(sqlite3_vfs *v, int n, char *out) { return below(v)->xRandomness(below(v), n, out); }
static int layer_sleep(sqlite3_vfs *v, int us) { return below(v)->xSleep(below(v), us); }
static int layer_time(sqlite3_vfs *v, double *t) { return below(v)->xCurrentTime(below(v), t); }
static int layer_error(sqlite3_vfs *v, int n, char *text) { return below(v)->xGetLastError(below(v), n, text); }
static int layer_time64(sqlite3_vfs *v, sqlite3_int64 *t) { return below(v)->xCurrentTimeInt64(below(v), t); }

static bool add_layer(void)
{
    sqlite3_vfs *under = sqlite3_vfs_find(NULL), *v = under ? sqlite3_malloc(sizeof *v) : NULL;
    if (!v) return false;
    *v = (sqlite3_vfs){
        .iVersion = 2,
        .szOsFile = (int)sizeof(struct page_file) + under->szOsFile,
        .mxPathname = under->mxPathname,
        .zName = layer_name,
        .pAppData = under,
        .xOpen = layer_open,
        .xDelete = layer_delete,
        .xAccess = layer_access,
        .xFullPathname = layer_path,
        .xRandomness = layer_random,
        .xSleep = layer_sleep,
        .xCurrentTime = layer_time,
        .xGetLastError = layer_error,
        .xCurrentTimeInt64 = layer_time64,
    };
    return sqlite3_vfs_register(v, 0) == SQLITE_OK;
}

const char *db_page_layer(void)
{
    if (sqlite3_initialize() != SQLITE_OK) return NULL;
    sqlite3_mutex *m = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_APP1); /* contexts may open databases concurrently */
    sqlite3_mutex_enter(m);
    bool ok = sqlite3_vfs_find(layer_name) || add_layer();
    sqlite3_mutex_leave(m);
    return ok ? layer_name : NULL;
}
