// SPDX-License-Identifier: Apache-2.0
//
// Private to the exporter c (export/c.c): a program as sources in C.
#ifndef QUERN_EXPORT_C_H
#define QUERN_EXPORT_C_H

#include "export/export.h"

#include "art/art.h"
#include "lang/lang.h"

/* export_c_target.c: targets of --isa. */
struct c_isa {
    const char *name;
    const char *summary;
    const char *march;      /* options of gcc for the Makefile; "": none */
};
const struct c_isa *c_isa_at(i64 k); /* NULL after the last */
const struct c_isa *c_isa_find(struct str name, struct err *e);
void c_isa_caps(const struct c_isa *x, u32 n_threads, struct caps *c);

/* export_c_arena.c: offsets of buffers in one memory. */
struct c_piece {
    i64 size;               /* bytes, a multiple of the alignment */
    u32 first, last;        /* first and last dispatch that use it, inclusive */
    i64 at;                 /* result: offset */
};
struct c_arena {
    i64 bytes;              /* of all */
    i64 bound;              /* that no placement is below: bytes alive at the same time */
    bool is_minimal;        /* no placement has fewer bytes: it is the bound, or the search was exhaustive */
};
enum { C_EXACT_PIECES = 30 }; /* up to so many the search is exhaustive, within a limit of steps */
/* false: sizes overflow. tmp: scratch memory */
bool c_arena_place(struct c_piece *v, u32 n, struct c_arena *out, struct arena *tmp, struct err *e);

/* A program that is being written. */
enum { C_ALIGN = 8 };       /* bytes: of the arena and of buffers in it */
struct c_buf {
    struct str expr;        /* of a pointer to it in the driver */
    struct str name;        /* PB_CONST: of its array */
    i64 size;               /* bytes */
    i64 at;                 /* in the arena, or in the file of weights */
    bool is_used;
};
struct c_work { i64 size, at; }; /* scratch memory of a dispatch */
struct c_net {
    const struct plan *p;
    struct caps caps;
    const struct c_isa *isa;
    struct arena *a;
    struct str prefix, upper; /* "net", "NET" */
    bool has_threads;       /* the driver calls kernels through the caller's function */
    struct str weights;     /* path of a file of weights; empty: arrays in a source */
    i64 weight_bytes;       /* of the file */
    i64 *var;               /* sizes, INT64_MIN: not fixed, so none that is used */
    struct c_buf *buf;      /* per buffer of the plan */
    struct c_work *work;    /* per dispatch */
    struct str *in, *out;   /* identifiers, per input and output */
    u32 n_arena;            /* buffers in the arena */
    struct c_arena arena;
};
/* export_c_net.c: checks that the plan can be a program in C, and fills n, whose options are set. */
bool c_net_init(struct c_net *n, struct err *e);
i64 c_size(const struct c_net *n, sym s); /* a size of the plan, all of which are known */
i64 c_io_count(const struct c_net *n, const struct plan_io *x); /* elements */
const char *c_type(enum dtype d); /* "float": of an element in memory */
bool c_identifier_ok(struct str s);

/* export_c_text.c: the files. */
void c_print_header(struct buf *b, const struct c_net *n);
void c_print_source(struct buf *b, const struct c_net *n);
void c_print_weights(struct buf *b, const struct c_net *n);  /* as C */
void c_put_weights(struct buf *b, const struct c_net *n);    /* as a file */
void c_print_test(struct buf *b, const struct c_net *n, const struct export_job *j);
void c_print_make(struct buf *b, const struct c_net *n);
void c_print_cmake(struct buf *b, const struct c_net *n);
/* export_c_data.c: elements as an initialiser's lines. */
void c_print_elements(struct buf *b, enum dtype d, const void *p, i64 n);

#endif
