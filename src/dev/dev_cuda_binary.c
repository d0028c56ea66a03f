// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_binary.c: checks that an image is complete within its bytes, because vendors' loaders get only an
// address. Two forms: a 64-bit ELF file (a cubin, a code object), and clang's bundle of such files ("Clang
// Offload Bundler", binary form: magic, number of entries, for each its offset, size and the name of its target).
#include "dev/dev_cuda.h"

#include <string.h>

static const char bundle_magic[] = "__CLANG_OFFLOAD_BUNDLE__";

static u64 number(struct str b, u64 at, u32 n) /* little endian; the caller has checked */
{
    u64 v = 0;
    for (u32 i = 0; i < n; i++) v |= (u64)(u8)b.p[at + i] << (8 * i);
    return v;
}

static bool fits(struct str b, u64 at, u64 n) { return n <= (u64)b.n && at <= (u64)b.n - n; }

enum { PROGRAM_HEADER = 56, SECTION_HEADER = 64, ELF_HEADER = 64, NO_BITS = 8 };

static bool elf_is_whole(struct str b)
{
    if (!fits(b, 0, ELF_HEADER) || memcmp(b.p, "\177ELF\2\1", 6)) return false;
    u64 programs = number(b, 32, 8), sections = number(b, 40, 8);
    u64 n_program = number(b, 56, 2), n_section = number(b, 60, 2);
    bool sizes = (!n_program || number(b, 54, 2) == PROGRAM_HEADER) &&
                 (!n_section || number(b, 58, 2) == SECTION_HEADER);
    if (!sizes || !fits(b, programs, n_program * PROGRAM_HEADER) ||
        !fits(b, sections, n_section * SECTION_HEADER))
        return false;
    for (u64 i = 0; i < n_program; i++) {
        u64 at = programs + i * PROGRAM_HEADER;
        if (!fits(b, number(b, at + 8, 8), number(b, at + 32, 8))) return false;
    }
    for (u64 i = 0; i < n_section; i++) {
        u64 at = sections + i * SECTION_HEADER;
        bool has_bits = number(b, at + 4, 4) != NO_BITS && number(b, at + 4, 4) != 0;
        if (has_bits && !fits(b, number(b, at + 24, 8), number(b, at + 32, 8))) return false;
    }
    return true;
}

static bool bundle_is_whole(struct str b)
{
    u64 at = sizeof bundle_magic - 1;
    if (!fits(b, at, 8)) return false;
    u64 n = number(b, at, 8);
    at += 8;
    for (u64 i = 0; i < n; i++) {
        if (!fits(b, at, 24)) return false;
        u64 from = number(b, at, 8), size = number(b, at + 8, 8), name = number(b, at + 16, 8);
        at += 24;
        if (!fits(b, at, name) || !fits(b, from, size)) return false;
        at += name;
        struct str part = {b.p + from, (i64)size};
        if (size && !elf_is_whole(part)) return false;
    }
    return n > 0;
}

bool cuda_binary_check(struct str b, struct err *e)
{
    bool is_bundle = str_starts(b, str_of(bundle_magic));
    return (is_bundle ? bundle_is_whole(b) : elf_is_whole(b)) ||
           err_set(e, ERR_INPUT, "the binary is not a complete code image");
}
