// SPDX-License-Identifier: Apache-2.0
//
// lang: languages, from kernel IR to source text and binaries. One file per language,
// each exporting one `const struct lang lang_NAME`. A language sees kernel IR and
// limits (struct caps of core), never the graph, and runs nothing on a device.
#ifndef QUERN_LANG_H
#define QUERN_LANG_H

#include "kir/kir.h"

struct lang {
    u32 version;        /* of this struct: 1 */
    const char *name;   /* "c", "kir", "spirv" */
    const char *suffix; /* suffix of source files: ".c" */
    /* Kernel to source text. The kernel is legalised for caps by the caller (lang_render). */
    bool (*print)(struct buf *out, const struct kir *k, const struct caps *c, struct err *e);
    /* Source text to binary. timeout in seconds. On failure err holds the compiler's first
     * messages. */
    bool (*build)(struct buf *binary, struct str text, const struct caps *c, double timeout,
                  struct err *e);
    /* One line with compiler, version and everything else that affects the code:
       part of the key of every result. c: caps of the target; NULL: of any */
    bool (*toolchain)(struct buf *out, const struct caps *c, struct err *e);
    bool builds_itself; /* compiled by this library: another build of it may yield another binary of the same text */
    struct kir_limits (*limits)(const struct caps *c);
    /* Kernels that differ only in sizes share a text in programs: the compiler takes long, and sizes outside of innermost loops are
       no faster as constants. */
    bool shares;
    /* Optional: joins n texts into one whose binary has all their functions, to start the compiler once for many
       small kernels. The semantics of each are those of the separate text. Functions of the same name fail to build. */
    void (*join)(struct buf *out, const struct str *text, u32 n);
    /* Optional, the same for kernels of programs, whose code is that of the separate texts. All n texts round as written, or none does. */
    void (*join_program)(struct buf *out, const struct str *text, u32 n);
    /* Optional: the language whose driver loads its binaries, which are of the same kind. */
    const char *runs_as;
    /* Optional: a binary as readable text; may need an external tool. */
    bool (*disassemble)(struct buf *out, struct str binary, struct err *e);
};

const struct lang *lang_find(struct str name); /* NULL: unknown */
const struct lang *const *lang_all(i64 *n);

/* The language that kernels are built in for a driver of language `name`: itself, or another one that runs as it does, which a
   variable of the environment names: QUERN_CUDA_LANGUAGE=ptx. NULL: not known, an error. */
const struct lang *lang_for(struct str name, struct err *e);
/* Of its binaries: the language of their driver. */
const char *lang_runs_as(const struct lang *l);

/* Legalises and prints. scratch holds the legalised kernel. */
bool lang_render(struct buf *out, const struct lang *l, const struct kir *k, const struct caps *c,
                 struct arena *scratch, struct err *e);

/* Calling convention of language c, one function per grid s = 0, 1, ... of kernel NAME, exported as
   NAME_s:

     void NAME_s(void *const *buf, const int64_t *param, int64_t begin, int64_t end, void *work);

   runs the iterations begin..end-1 of the grid's dimensions flattened in row-major order (first
   GRID outermost). buf: the BUF arguments, then the TEMP arrays, in order. work: 64-byte aligned
   scratch memory of one worker for all WORK arrays, laid out in order of their ALLOCs, each rounded
   up to 64 bytes.

   A kernel of workgroups of n > 1 threads exports, for each function, `const uint32_t NAME_s_threads` = n, too. Then n threads
   call the function at the same time: begin is the number of the thread, 0..n-1, end the number of all iterations, work the
   address of the workgroup's state: arrived (u32 at byte 0, 0 before the first call), round (u32 at 64, any), sleepers (u32 at 68, how many wait
   in `wait` for a call of `wake`), yield (at 128, a function that lets other threads run, for older kernels), scratch (at 136, 64-byte
   aligned memory for SHARED arrays), wait (at 144, what a thread calls that saw the same round for `spins` times, for the turn-th time:
   it may return whenever it likes), wake (at 152, after the round changed while there were sleepers), spins (u32 at 160, at least 1). */
/* Calling convention of language spirv: doc/lang-spirv.md. */

struct kir_memory { /* memory supplied by the host besides arguments; sizes are operands of ALLOC */
    struct {
        kval v[16];
        u32 n;
    } work, temp; /* the ALLOC instructions */
};
bool kir_memory(const struct kir *k, struct kir_memory *m, struct err *e);

#endif
