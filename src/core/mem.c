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

enum { MEM_ALIGN = 64 };

void *mem_aligned(i64 size)
{
    if (size < 0 || size > INT64_MAX / 2) return NULL;
    char *raw = calloc(1, (size_t)size + 2 * MEM_ALIGN);
    if (!raw) return NULL;
    char *p = raw + MEM_ALIGN;
    p += -(uintptr_t)p & (MEM_ALIGN - 1);
    ((void **)(void *)p)[-1] = raw;
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
