// SPDX-License-Identifier: Apache-2.0
//
// lang_gpu: shared by the languages cuda, hip and opencl: kernel functions with workgroups, a scalar per lane
// of a vector, wide loads and stores if the index is provably a multiple (lang_gpu_mem.c). A language supplies
// its keywords. doc/lang-gpu.md has the calling convention. Only files of this folder include this header.
#ifndef QUERN_LANG_GPU_H
#define QUERN_LANG_GPU_H

#include "lang/lang_text.h"

/* Position in a fragment of element i of the n elements held by thread `lane`: expressions of i and
   lane. Elements 2i and 2i + 1 are neighbours: in a column if is_down, else in a row. */
struct gpu_place {
    u32 n;
    const char *row, *col;
    bool is_down;
    bool is_own; /* in the order in which kernel IR accesses a thread's own elements: four are two columns of two rows */
};

/* The left operand of a warpgroup's product. */
enum gpu_left {
    GPU_LEFT_ROWS,      /* in memory, lines are rows */
    GPU_LEFT_COLUMNS,   /* lines are columns */
    GPU_LEFT_REGISTERS, /* words of two elements */
};

struct gpu_words {
    struct text_style text;  /* must be first: t->style of the emitter, with lang_gpu.c's functions */
    const char *entry;       /* before a kernel's "void NAME(" */
    const char *far, *close; /* address space of pointers to buffers and to shared arrays, followed by a space */
    const char *restricted;  /* "restrict": arguments of one launch do not overlap */
    const char *shared;      /* before a shared array */
    const char *group[3], *thread[3]; /* numbers of a workgroup and of a thread in it, dimension 0 innermost */
    const char *barrier;     /* statement: barrier of the workgroup, which orders memory accesses */
    const char *subgroup[2]; /* expressions: number of a thread's subgroup, and of the thread in it; may use
                                'thread' */
    i64 max_static;          /* total bytes of shared arrays beyond which they are one dynamic block; 0: never */
    u32 lanes;               /* largest size of a subgroup; 0: given by the target's caps */
    bool has_info;           /* the binary has the launch parameters: NAME_info */
    void (*preamble)(struct buf *out, const struct kir *k, u32 subgroup); /* types, macros */
    /* Qualifiers of grid functions that depend on the kernel: its workgroup size. */
    void (*qualify)(struct buf *out, const struct kir *k);
    /* The type of n elements moved at once, members s0, s1 ...; n = 1: an alias-everything type of
       d. */
    void (*define_wide)(struct buf *out, enum dtype d, u32 n);
    /* Asynchronous copies to shared arrays, if the target has them: a call "COPY(to, from, bytes,
       valid)" of 4, 8 or 16 bytes, defined by the preamble; the first `valid` bytes come from
       memory, the others are 0. "AWAIT(n)" as in kernel IR. */
    bool has_copies;
    /* Tile copies, if the target has them: the preamble defines q_map, a tensor map, and
       "TILES_OPEN(objects, n)", "TILE(object, to, map, row, col, bytes)" for the first thread,
       "TILES_AWAIT(objects, n, made, ended, newest)" for any. */
    bool has_tiles;
    /* Fragments, optional; false: unsupported type or shape. The statements of c = a * b + c, for
       structs with elements x, or words w of two 16-bit elements. */
    bool (*place)(struct gpu_place *p, const struct kir_frag *f, u32 warpgroup);
    bool (*multiply)(struct buf *out, const struct caps_matrix *m);
    /* Optional: statements that load f.w[0 .. n - 1] from a shared array at once. Word w has
       elements 2w and 2w + 1 of place, from an 8x8 block, whose addresses eight threads provide:
       thread 8w + r has in `from` the address of its line r, 16 bytes. The elements of a word are
       adjacent in a line; is_across: on two lines. */
    void (*fetch)(struct buf *out, u32 n, bool is_across);
    /* Matrix multiplication by warpgroups of that many subgroups, 0: none. Issues c += a * b for
       descriptors a and b, or registers a; b_across: b's lines are rows. The preamble
       defines "WARPGROUP_BEGIN" before and "WARPGROUP_END" after a run of them, "WARPGROUP_FENCE"
       before a barrier after which they read, "OPERAND(pointer, bytes between panels)" for a
       descriptor, "PIN(x)" to make x opaque to the compiler. */
    u32 warpgroup;
    bool (*warpgroup_multiply)(struct buf *out, const struct caps_matrix *m, enum gpu_left a, bool b_across);
};

static inline const struct gpu_words *gpu_words(const struct text *t)
{
    return (const struct gpu_words *)t->style;
}

/* lang_gpu.c: a legalised kernel as text. An error names a feature that the language or the target
   lacks. */
bool gpu_print(struct buf *out, const struct kir *k, const struct caps *c, const struct gpu_words *w, struct err *e);
struct kir_limits gpu_limits(const struct caps *c);
/* Whether the target and a language with these words support a kernel; of the words only `lanes`, `place` (any), `has_tiles`
   and `warpgroup` are read. */
bool gpu_check(const struct kir *k, const struct caps *c, const struct gpu_words *w, struct err *e);
/* All transcendental functions and DOT become arithmetic: those of targets are inaccurate or missing. */
bool gpu_wants_all(const void *user, const struct kir *k, kval v);
/* Joins texts of C++: each in a namespace of its own, with its macros undefined at its end. */
void gpu_join(struct buf *out, const struct str *text, u32 n);
/* The subgroup size a kernel is emitted for: the required one, else one that divides the workgroup.
   max: the target's. */
u32 gpu_subgroup(const struct kir *k, u32 max);
bool gpu_has_type(const struct kir *k, enum dtype d);
bool gpu_has_subgroups(const struct kir *k);
/* of the shared arrays among these instructions, aligned */
i64 gpu_shared_bytes(const struct kir *k, kval from, kval to);
void gpu_barrier(struct text *t);
struct str gpu_thread(struct text *t, kval v);
/* typedefs of u8 .. f64, of 64-bit floats only if k uses them; of 64-bit integers by this name. */
void gpu_typedefs(struct buf *out, const struct kir *k, const char *i64_name);

/* lang_gpu_type.c: names and types of arrays and fragments. */
struct str gpu_element_type(struct text *t, const struct kir_ins *array);
struct str gpu_array_name(struct text *t, kval v);
/* The index of element i of an array, in parentheses: permuted in swizzled arrays. */
bool gpu_is_swizzled(const struct kir *k, kval array);
struct str gpu_swizzled(struct text *t, kval array, struct str i);
struct str gpu_frag_type(struct text *t, const struct kir_ins *x);
/* a function that makes a fragment opaque to the compiler */
struct str gpu_frag_pin(struct text *t, const struct kir_ins *x);
struct str gpu_frag_tag(struct text *t, const struct kir_frag *f);        /* "a16x16_f16" */
/* an error if the language lacks such fragments */
struct gpu_place gpu_frag_place(struct text *t, const struct kir_frag *f);
/* an operand of a warpgroup's matmul: a descriptor, no registers */
bool gpu_is_described(const struct text *t, const struct kir_ins *x);
/* of a type or function, which must then be defined */
bool gpu_first_use(struct text *t, struct str name);

/* lang_gpu_mem.c: arrays and access to them; hooks of struct text_style. */
struct str gpu_load(struct text *t, kval v);
bool gpu_load_lanes(struct text *t, kval v);
void gpu_store(struct text *t, kval v);
void gpu_prefetch(struct text *t, kval v);
void gpu_alloc(struct text *t, kval v);
void gpu_await(struct text *t, kval v);

/* lang_gpu_frag.c */
struct str gpu_frag(struct text *t, kval v);
void gpu_frag_store(struct text *t, kval v);

/* lang_gpu_warpgroup.c: matrix multiplication of warpgroup fragments. */
bool gpu_check_warpgroup(const struct kir *k, const struct caps *c, const struct gpu_words *w, struct err *e);
void gpu_warpgroup_open(struct text *t);
bool gpu_warpgroup_statement(struct text *t, kval v);
/* Whether a run begins at matmul v; whether the open run ends before instruction v. Each is asked once, in order. */
bool gpu_run_begins(struct text *t, kval v);
bool gpu_run_ends(struct text *t, kval v);
struct str gpu_warpgroup_operand(struct text *t, kval v);

/* lang_gpu_tile.c: tile copies. Of the grid with instructions from .. to - 1: */
bool gpu_check_tile(const struct kir *k, kval v, const struct caps *c, const struct gpu_words *w, struct err *e);
i64 gpu_tile_slots(const struct kir *k, kval from, kval to); /* maximal pending groups of copies, 0: unsupported */
i64 gpu_tile_bytes(const struct kir *k, kval from, kval to); /* bytes of shared memory for them */
void gpu_tile_parameters(struct buf *out, const struct kir *k, kval from, kval to);
/* The numbers of NAME_maps, for each map in order (doc/lang-gpu.md); returns the number of maps. fact may be NULL. */
enum { GPU_TILE_FACTS = 8 };
u32 gpu_tile_facts(const struct kir *k, kval from, kval to, i64 (*fact)[GPU_TILE_FACTS], struct err *e);
/* NAME_maps as text; returns their number */
u32 gpu_tile_maps(struct text *t, struct buf *out, struct str name, kval from, kval to);
/* objects: an expression for their memory */
void gpu_tile_open(struct text *t, struct str objects, kval from, kval to);
void gpu_tile_close(struct text *t, kval from, kval to);
void gpu_tile(struct text *t, kval v);
void gpu_tile_await(struct text *t, kval v);

/* The text style of such a language. */
#define GPU_HOOKS                                                                                                     \
    .index = DT_I32, .load = gpu_load, .load_lanes = gpu_load_lanes, .store = gpu_store, .prefetch = gpu_prefetch,    \
    .alloc = gpu_alloc, .thread = gpu_thread, .barrier = gpu_barrier, .frag = gpu_frag, .frag_type = gpu_frag_type,   \
    .frag_store = gpu_frag_store, .await = gpu_await, .tile = gpu_tile, .statement = gpu_warpgroup_statement

/* Reductions and exchange within a subgroup by FROM_LANE(x, i), defined by the preamble: x of
   thread i of the subgroup; 'thread' is the thread's number in its workgroup. Rows of a language's
   table of helpers. */
#define GPU_SUBGROUP_HELPERS(all, floats, ints)                                                                       \
    {.name = "sgadd", .types = floats, .n_args = 1, .scalar = "$E $F($E x, i32 thread)\n{\n"                           \
     "    for (i32 i = SUBGROUP / 2; i > 0; i /= 2) x = x + FROM_LANE(x, (thread % SUBGROUP) ^ i);\n    return x;\n}\n"}, \
    {.name = "sgadd", .types = ints, .n_args = 1, .scalar = "$E $F($E x, i32 thread)\n{\n"                             \
     "    for (i32 i = SUBGROUP / 2; i > 0; i /= 2)\n"                                                                \
     "        x = ($E)(($W)x + ($W)FROM_LANE(x, (thread % SUBGROUP) ^ i));\n    return x;\n}\n"},                      \
    {.name = "sgmin", .types = all, .n_args = 1, .scalar = GPU_EXTREME("<")},                                         \
    {.name = "sgmax", .types = all, .n_args = 1, .scalar = GPU_EXTREME(">")},                                         \
    {.name = "shuffle", .types = ~0u, .n_args = 2,                                                                    \
     .scalar = "$E $F($E x, i32 lane, i32 thread)\n{\n    return ($E)FROM_LANE(x, lane);\n}\n"}
#define GPU_EXTREME(less)                                                                                             \
    "$E $F($E x, i32 thread)\n{\n    for (i32 i = SUBGROUP / 2; i > 0; i /= 2) {\n"                                    \
    "        const $E y = ($E)FROM_LANE(x, (thread % SUBGROUP) ^ i);\n        x = x " less " y ? x : y;\n    }\n"      \
    "    return x;\n}\n"

#endif
