// SPDX-License-Identifier: Apache-2.0
//
// The general heap, for large blocks whose lifetime is not an arena's: tensors, caches, file
// contents.
//
// Blocks are 64-byte aligned (a cache line, an AVX-512 register). They come from calloc with room
// for the alignment, because calloc of a large size gets pages that the system zeroes when they are
// first touched; the address calloc gave is kept just below the block, so that one mem_free serves
// all.
#include "core/core.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { MEM_ALIGN = 64, HUGE_PAGE = 2 << 20 };

/* Large blocks in large pages: first touch costs one fault per 2 MiB, and streaming through weights or feature maps does not miss
   the TLB every 4 KiB. The pages were not touched yet, so the advice holds for all of them. */
static void advise(char *p, i64 size)
{
    uintptr_t from = ((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    uintptr_t to = ((uintptr_t)p + (uintptr_t)size) & ~(uintptr_t)(HUGE_PAGE - 1);
    if (to > from) madvise((void *)from, to - from, MADV_HUGEPAGE);
}

void *mem_aligned(i64 size)
{
    if (size < 0 || size > INT64_MAX / 2) return NULL;
    char *raw = calloc(1, (size_t)size + 2 * MEM_ALIGN);
    if (!raw) return NULL;
    char *p = raw + MEM_ALIGN;
    p += -(uintptr_t)p & (MEM_ALIGN - 1);
    ((void **)(void *)p)[-1] = raw;
    if (size >= 2 * HUGE_PAGE) advise(p, size);
    return p;
}

void *mem_alloc(i64 size)
{
    void *p = mem_aligned(size);
    if (!p) abort();
    return p;
}

void mem_free(void *p)
{
    if (p) free(((void **)p)[-1]);
}
