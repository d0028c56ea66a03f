// SPDX-License-Identifier: Apache-2.0
//
// The write-ahead log as a file (https://sqlite.org/fileformat2.html#walformat). After a crash
// SQLite uses the frames up to the first wrong checksum. This is right for frames being written
// when a process was killed. But if a byte in the middle is damaged, committed transactions after
// it vanish silently. So the log is checked before SQLite recovers from it: does a frame of this
// log after that place commit a transaction? The remains of a killed or rolled-back transaction
// never do.
//
// Each frame's checksum continues the previous one and is stored beside it. So valid frames after a
// damaged one are recognisable, which db_repair uses.
#include "tune/db.h"

#include <string.h>

enum { HEAD = 32, FRAME_HEAD = 24, MAGIC = 0x377f0682 /* or that plus 1: checksums of big-endian words */ };

static u32 big_endian(const u8 *p) { return (u32)p[0] << 24 | (u32)p[1] << 16 | (u32)p[2] << 8 | p[3]; }
static u32 little_endian(const u8 *p) { return (u32)p[3] << 24 | (u32)p[2] << 16 | (u32)p[1] << 8 | p[0]; }

static void add_sum(u32 s[2], bool is_big, const u8 *p, i64 n)
{
    for (i64 i = 0; i + 8 <= n; i += 8) {
        s[0] += (is_big ? big_endian(p + i) : little_endian(p + i)) + s[1];
        s[1] += (is_big ? big_endian(p + i + 4) : little_endian(p + i + 4)) + s[0];
    }
}

static bool is_sum(const u32 s[2], const u8 *p) { return s[0] == big_endian(p) && s[1] == big_endian(p + 4); }

bool db_wal_read(struct db_wal *w, struct str file)
{
    const u8 *p = (const u8 *)file.p;
    u32 s[2] = {0, 0};
    *w = (struct db_wal){.p = p};
    if (file.n < HEAD) return file.n == 0;
    w->is_big = big_endian(p) & 1;
    add_sum(s, w->is_big, p, 24);
    w->page = big_endian(p + 8);
    if ((big_endian(p) & ~1u) != MAGIC || !is_sum(s, p + 24) || w->page < 512 || w->page > 65536 || (w->page & (w->page - 1))) return false;
    w->salt[0] = big_endian(p + 16), w->salt[1] = big_endian(p + 20);
    w->sum[0] = s[0], w->sum[1] = s[1];
    w->n_frames = (file.n - HEAD) / (FRAME_HEAD + w->page);
    w->is_whole = (file.n - HEAD) % (FRAME_HEAD + w->page) == 0;
    return true;
}

void db_wal_read_headless(struct db_wal *w, struct str file, i64 page)
{
    const u8 *p = (const u8 *)file.p;
    *w = (struct db_wal){.p = p, .page = page};
    w->n_frames = file.n > HEAD ? (file.n - HEAD) / (FRAME_HEAD + page) : 0;
    if (!w->n_frames) return;
    w->salt[0] = big_endian(p + HEAD + 8), w->salt[1] = big_endian(p + HEAD + 12);
}

static const u8 *frame_at(const struct db_wal *w, i64 k) { return w->p + HEAD + k * (FRAME_HEAD + w->page); }

struct db_frame db_wal_frame(const struct db_wal *w, i64 k)
{
    const u8 *p = frame_at(w, k), *before = k ? frame_at(w, k - 1) : NULL;
    u32 s[2] = {before ? big_endian(before + 16) : w->sum[0], before ? big_endian(before + 20) : w->sum[1]};
    add_sum(s, w->is_big, p, 8);
    add_sum(s, w->is_big, p + FRAME_HEAD, w->page);
    bool is_current = big_endian(p + 8) == w->salt[0] && big_endian(p + 12) == w->salt[1];
    return (struct db_frame){.number = big_endian(p),
                             .commit = big_endian(p + 4),
                             .page = p + FRAME_HEAD,
                             .is_current = is_current,
                             .is_next = is_sum(s, p + 16),
                             .is_right = is_current && is_sum(s, p + 16)};
}

/* A complete last frame with a wrong checksum was valid once, because a killed process leaves a
   truncated one. So was a frame that is valid except for its log's salt: a frame of an earlier log
   would not continue the checksum before it. */
bool db_wal_is_damaged(struct str file)
{
    struct db_wal w;
    if (!db_wal_read(&w, file)) return file.n > HEAD + FRAME_HEAD;
    i64 k = 0;
    while (k < w.n_frames && db_wal_frame(&w, k).is_right) k++;
    if (k == w.n_frames) return false;
    struct db_frame first = db_wal_frame(&w, k);
    if (first.is_next || (first.is_current && k == w.n_frames - 1 && w.is_whole)) return true;
    for (; k < w.n_frames; k++) {
        struct db_frame f = db_wal_frame(&w, k);
        if (f.is_right && f.commit) return true;
    }
    return false;
}
