// SPDX-License-Identifier: Apache-2.0
//
// Rows of a damaged database, page by page (https://sqlite.org/fileformat2.html). No tree is
// followed and no header is needed: every leaf of a table or an index lists its rows, and their
// columns tell the table (db_repair.c). So a damaged page loses only its own rows.
//
// If pages have checksums, only pages with a valid one are used. A single wrong byte is corrected:
// of all pages that differ in one byte, the one with the stored checksum. Frames of the log replace
// pages, up to the last committed transaction.
//
// All input is untrusted: offsets and sizes are checked before use, and the work is bounded by the
// file's size.
#include "tune/db.h"

#include <string.h>

enum { HEAD = 100, MIN_PAGE = 512, MAX_PAGE = 65536, USUAL_PAGE = 4096, LEAF_TABLE = 13, LEAF_INDEX = 10 };
enum { MAX_CORRECTED = 32 /* pages searched for a wrong byte, 0.3 s each */, MAX_PAYLOAD = 1 << 26 };

struct pages {
    struct db_rows *r;
    struct arena arena;
    const u8 **page;     /* indexed by number from 1 on; NULL: damaged or missing */
    bool *is_free;
    i64 n, size, usable;
    bool has_sums;
    u32 n_searched;
    i64 budget;          /* bytes of texts that may still be assembled */
};

static u32 number(const u8 *p, u32 n)
{
    u32 v = 0;
    while (n--) v = v << 8 | *p++;
    return v;
}

static i64 size_of_file(struct str file)
{
    static const char magic[16] = "SQLite format 3";
    if (file.n < HEAD || memcmp(file.p, magic, sizeof magic) != 0) return 0;
    i64 n = number((const u8 *)file.p + 16, 2);
    if (n == 1) n = MAX_PAGE;
    return n >= MIN_PAGE && (n & (n - 1)) == 0 ? n : 0;
}

static i64 right_sums(struct str file, i64 size)
{
    i64 n = 0;
    for (i64 k = 0; k < file.n / size; k++) {
        const char *p = file.p + k * size;
        n += db_page_stored_sum(p, size) == db_page_sum(p, size, k + 1);
    }
    return n;
}

/* The page with one byte changed so that its checksum is valid; NULL: impossible. */
static const u8 *correct(struct pages *s, const u8 *page, i64 k)
{
    u64 want = db_page_stored_sum(page, s->size), off = want ^ db_page_sum(page, s->size, k);
    for (int i = 0; i < 64; i += 8)
        if ((off & ~((u64)0xff << i)) == 0) return page; /* the wrong byte belongs to the checksum */
    if (s->size > USUAL_PAGE || s->n_searched++ >= MAX_CORRECTED) return NULL;
    u8 *copy = (u8 *)arena_array(&s->arena, char, s->size);
    memcpy(copy, page, (size_t)s->size);
    for (i64 i = 0; i < s->usable; i++)
        for (u32 x = 1; x < 256; x++) {
            copy[i] = (u8)(page[i] ^ x);
            if (db_page_sum(copy, s->size, k) == want) return copy;
            if (x == 255) copy[i] = page[i];
        }
    return NULL;
}

static bool is_zero(const u8 *p, i64 n)
{
    for (i64 i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

static void take_page(struct pages *s, i64 k)
{
    const u8 *p = (const u8 *)s->r->file.p + (k - 1) * s->size;
    u64 stored = db_page_stored_sum(p, s->size);
    bool is_foreign = stored == 0 && !is_zero(p, s->size);
    s->page[k] = p;
    if (!s->has_sums || is_foreign || stored == db_page_sum(p, s->size, k)) return;
    s->r->n_damaged++;
    s->page[k] = correct(s, p, k);
    s->r->n_corrected += s->page[k] != NULL;
}

static void take_log(struct pages *s, const struct db_wal *w)
{
    i64 end = 0;
    for (i64 k = 0; k < w->n_frames; k++) {
        struct db_frame f = db_wal_frame(w, k);
        if (f.is_right && f.commit) end = k + 1;
    }
    for (i64 k = 0; k < end; k++) {
        struct db_frame f = db_wal_frame(w, k);
        if (f.is_right && f.number >= 1 && f.number <= (u64)s->n) s->page[f.number] = f.page;
        else s->r->n_lost_frames++;
    }
}

static void take_pages(struct pages *s)
{
    struct db_rows *r = s->r;
    struct db_wal w = {0};
    i64 n_file = r->file.n / s->size;
    bool has_head = db_wal_read(&w, r->log) && (w.page == s->size || w.n_frames == 0);
    if (!has_head) db_wal_read_headless(&w, r->log, s->size), r->n_lost_frames += w.n_frames > 0;
    s->n = n_file + w.n_frames;
    s->page = arena_array(&s->arena, const u8 *, s->n + 1);
    s->is_free = arena_array(&s->arena, bool, s->n + 1);
    for (i64 k = 1; k <= n_file; k++) take_page(s, k);
    take_log(s, &w);
    r->n_pages = n_file;
}

static const u8 *page_at(const struct pages *s, u64 k) { return k >= 1 && k <= (u64)s->n ? s->page[k] : NULL; }

/* Free pages contain rows that were deleted or moved. */
static void mark_free(struct pages *s)
{
    const u8 *p = page_at(s, 1);
    u32 k = p ? number(p + 32, 4) : 0;
    for (i64 left = s->n; (p = page_at(s, k)) && !s->is_free[k] && left > 0; left--) {
        s->is_free[k] = true;
        u32 n = number(p + 4, 4);
        for (u32 i = 0; i < n && 8 + 4 * ((i64)i + 1) <= s->usable; i++) {
            u32 leaf = number(p + 8 + 4 * i, 4);
            if (page_at(s, leaf)) s->is_free[leaf] = true;
        }
        k = number(p, 4);
    }
}

/* Cells and records. */

struct bytes { const u8 *p; i64 n; }; /* remaining input */

static bool take_varint(struct bytes *b, i64 *v)
{
    u64 x = 0;
    for (int i = 0; i < 9; i++) {
        if (i >= b->n) return false;
        u8 c = b->p[i];
        x = i == 8 ? x << 8 | c : x << 7 | (c & 0x7f);
        if (c & 0x80 && i < 8) continue;
        b->p += i + 1, b->n -= i + 1;
        *v = (i64)x;
        return true;
    }
    return false;
}

static i64 local_size(const struct pages *s, i64 total, bool is_index)
{
    i64 u = s->usable, most = is_index ? (u - 12) * 64 / 255 - 23 : u - 35, least = (u - 12) * 32 / 255 - 23;
    if (total <= most) return total;
    i64 k = least + (total - least) % (u - 4);
    return k <= most ? k : least;
}

/* Assembles a cell's content: the part on the page, and that on its overflow pages. */
static bool take_payload(struct pages *s, struct bytes b, i64 total, bool is_index, struct arena *a, struct bytes *out)
{
    if (total < 1 || total > MAX_PAYLOAD || total > s->budget) return false;
    i64 local = local_size(s, total, is_index);
    if (local < 0 || local > b.n) return false;
    *out = (struct bytes){b.p, total};
    if (local == total) return true;
    if (b.n < local + 4) return false;
    s->budget -= total;
    u8 *to = (u8 *)arena_array(a, char, total);
    memcpy(to, b.p, (size_t)local);
    u32 next = number(b.p + local, 4);
    for (i64 at = local; at < total;) {
        const u8 *p = page_at(s, next);
        i64 n = i64_min(total - at, s->usable - 4);
        if (!p) return false;
        memcpy(to + at, p + 4, (size_t)n);
        at += n;
        next = number(p, 4);
    }
    out->p = to;
    return true;
}

static i64 signed_bytes(const u8 *p, i64 n)
{
    u64 v = p[0] & 0x80 ? ~(u64)0 : 0;
    for (i64 i = 0; i < n; i++) v = v << 8 | p[i];
    return (i64)v;
}

static bool take_value(struct bytes *b, i64 type, struct db_value *v)
{
    static const u8 int_bytes[] = {0, 1, 2, 3, 4, 6, 8, 8};
    i64 n = type >= 13 && type % 2 ? (type - 13) / 2 : type >= 0 && type <= 7 ? int_bytes[type] : 0;
    if (type < 0 || (type > 9 && (type < 13 || type % 2 == 0)) || n > b->n) return false; /* no column is a blob */
    *v = (struct db_value){.kind = type == 0 ? DB_NULL : type == 7 ? DB_REAL : type < 13 ? DB_INT : DB_TEXT};
    if (type == 8 || type == 9) v->i = type - 8;
    else if (v->kind == DB_TEXT) v->t = (struct str){(const char *)b->p, n};
    else if (n) v->i = signed_bytes(b->p, n);
    if (v->kind == DB_REAL) memcpy(&v->f, &v->i, sizeof v->f);
    b->p += n, b->n -= n;
    return true;
}

static bool take_record(struct bytes b, struct db_row *r)
{
    struct bytes head = b;
    i64 size, type;
    if (!take_varint(&head, &size) || size > b.n || size < b.n - head.n) return false;
    head.n = size - (b.n - head.n);
    b.p += size, b.n -= size;
    for (r->n = 0; head.n > 0; r->n++)
        if (r->n == DB_MAX_COLUMNS || !take_varint(&head, &type) || !take_value(&b, type, &r->v[r->n])) return false;
    return b.n == 0;
}

static void take_cell(struct pages *s, struct bytes cell, bool is_index)
{
    struct arena a = {0};
    struct db_row r = {.is_index = is_index};
    struct bytes content;
    i64 total;
    bool ok = take_varint(&cell, &total) && (is_index || take_varint(&cell, &r.id)) && take_payload(s, cell, total, is_index, &a, &content) &&
              take_record(content, &r);
    if (ok) s->r->row(s->r->user, &r);
    arena_release(&a);
}

static void take_leaf(struct pages *s, i64 k)
{
    const u8 *p = s->page[k], *head = p + (k == 1 ? HEAD : 0);
    if (head[0] != LEAF_TABLE && head[0] != LEAF_INDEX) return;
    i64 n = number(head + 3, 2), first = head - p + 8;
    for (i64 i = 0; i < n && first + 2 * i + 2 <= s->usable; i++) {
        i64 at = number(p + first + 2 * i, 2);
        if (at >= first && at < s->usable) take_cell(s, (struct bytes){p + at, s->usable - at}, head[0] == LEAF_INDEX);
    }
}

bool db_rows_read(struct db_rows *r, struct err *e)
{
    struct pages s = {.r = r, .budget = 4 * (r->file.n + r->log.n)};
    r->n_pages = r->n_damaged = r->n_corrected = r->n_lost_frames = 0;
    if (r->file.n < MIN_PAGE) return err_set(e, ERR_INPUT, "too short to have any page of a database");
    /* Finds the page size with the most valid checksums; without checksums the header's, or the usual
       one. */
    struct str file = s.r->file;
    i64 said = size_of_file(file), best = said ? right_sums(file, said) : 0;
    s.size = said ? said : USUAL_PAGE;
    for (i64 n = MIN_PAGE; n <= MAX_PAGE && best == 0; n *= 2)
        if ((best = right_sums(file, n)) > 0) s.size = n;
    s.has_sums = best > 0;
    i64 reserved = s.has_sums ? DB_SUM_BYTES : said && (u8)file.p[20] <= 32 ? (u8)file.p[20] : 0;
    s.usable = s.size - reserved;
    take_pages(&s);
    mark_free(&s);
    for (i64 k = 1; k <= s.n; k++)
        if (s.page[k] && !s.is_free[k]) take_leaf(&s, k);
    arena_release(&s.arena);
    return true;
}
