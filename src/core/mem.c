// SPDX-License-Identifier: Apache-2.0
//
// The general heap, for large blocks without the
// lifetime of an arena: tensors, caches, file contents.
//
// Blocks are 64-byte aligned (a cache line, an AVX-512 register), large ones page-aligned: a load whose
// address has its last 12 bits in common with an earlier store waits for that store (4 KiB aliasing),
// long for non-temporal stores. A kernel that streams through two arrays at the same rate is affected
// if the written one is slightly higher within its pages than the read one; arrays of other libraries
// begin 16 or 64 bytes into a page, so these must not be higher. They come from calloc with space for
// the alignment, because calloc of a large size gets pages that the system zeroes when they are first
// touched; the address from calloc is stored just below the block, so that one mem_free serves all.
#include "core/core.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { MEM_ALIGN = 64, LARGE = 64 << 10, PAGE = 4096, HUGE_PAGE = 2 << 20 };

/* Large blocks use huge pages: first touch costs one fault per 2 MiB, and streaming through weights or feature
   maps does not miss the TLB every 4 KiB. The pages were not touched yet, so the advice applies to all of them. A hint: errors are ignored. */
void mem_prefer_huge(void *p, i64 size)
{
    if (size < 2 * HUGE_PAGE) return;
    uintptr_t from = ((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    uintptr_t to = ((uintptr_t)p + (uintptr_t)size) & ~(uintptr_t)(HUGE_PAGE - 1);
    if (to > from) (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
}

static void *block(i64 size, bool is_small)
{
    if (size < 0 || size > INT64_MAX / 2) return NULL;
    uintptr_t align = size >= LARGE ? PAGE : MEM_ALIGN;
    i64 total = size + MEM_ALIGN + (i64)align;
    char *raw = is_small ? mem_request_small(NULL, total) : mem_request(NULL, total);
    if (!raw) return NULL;
    char *p = raw + MEM_ALIGN;
    p += -(uintptr_t)p & (align - 1);
    ((void **)(void *)p)[-1] = raw;
    mem_prefer_huge(p, size);
    return p;
}

void *mem_aligned(i64 size) { return block(size, size < LARGE); }

void *mem_alloc(i64 size)
{
    void *p = block(size, true);
    if (!p) abort();
    return p;
}

void mem_free(void *p)
{
    if (p) free(((void **)p)[-1]);
}
