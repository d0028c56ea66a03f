// SPDX-License-Identifier: Apache-2.0
//
// core: the base of all folders. Arenas, slices, growable buffers, maps, hashes, errors, random
// numbers, half floats, symbolic sizes, processes and files. It knows nothing of networks.
//
// Only this folder includes operating system headers and calls malloc. All-zero is a valid empty
// value of every struct. Nothing here prints to a terminal or ends the process.
#ifndef QUERN_CORE_H
#define QUERN_CORE_H

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

#define countof(a) ((i64)(sizeof(a) / sizeof((a)[0])))
#define unreachable() (assert(!"unreachable"), __builtin_unreachable())
#define QUERN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

static inline i64 i64_min(i64 a, i64 b) { return a < b ? a : b; }
static inline i64 i64_max(i64 a, i64 b) { return a > b ? a : b; }
static inline i64 i64_product(u32 n, const i64 *v) /* 1 for none */
{
    i64 p = 1;
    for (u32 i = 0; i < n; i++) p *= v[i];
    return p;
}
static inline i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; } /* a >= 0, b > 0 */
static inline i64 round_up(i64 a, i64 b) { return ceil_div(a, b) * b; }

/* str.c: slices. Not NUL-terminated, not owned; S("x") makes one of a literal. */

struct str {
    const char *p; /* bytes, may be NULL when n == 0 */
    i64 n;         /* length in bytes */
};

#define S(lit) ((struct str){(lit), (i64)sizeof(lit) - 1})
#define STR_ARG(s) (int)(s).n, (s).p /* for "%.*s" */

struct arena;

struct str str_of(const char *z); /* slice of a C string; NULL yields the empty slice */
bool str_eq(struct str a, struct str b);
bool str_is(struct str a, const char *z); /* equal to a C string */
int str_cmp(struct str a, struct str b);  /* bytewise order, <0 0 >0 */
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
struct str str_sub(struct str s, i64 from, i64 to);        /* clamped to the slice */
/* at the first sep; false: not found */
bool str_cut(struct str s, char sep, struct str *head, struct str *tail);
struct str str_trim(struct str s);                         /* without white space at either end */
/* whole slice, decimal, overflow is an error */
bool str_to_i64(struct str s, i64 *out);
/* whole slice, "inf" "-inf" "nan" and hex floats too; no locale */
bool str_to_f64(struct str s, double *out);
i64 str_utf8(struct str s, i64 at);                        /* bytes of the UTF-8 character there; 0: it is none */
bool str_glob(struct str pattern, struct str s);           /* case-insensitive, '*' and '?' */
/* Edit distance of two names, a change of case counts nothing; names of more than 64 bytes are far from each other. */
i64 str_distance(struct str a, struct str b);
struct str str_dup(struct arena *a, struct str s);         /* copy, NUL-terminated after n bytes */
struct str str_fmt(struct arena *a, const char *fmt, ...) QUERN_PRINTF(2, 3);
const char *str_z(struct arena *a, struct str s);          /* NUL-terminated copy for OS calls */
/* vsnprintf in the C locale, independent of the locale of the embedding program. */
int fmt_va(char *out, size_t size, const char *fmt, va_list ap) QUERN_PRINTF(3, 0);

/* err.c: diagnostics about the user's input: fill struct err, return false
   or NULL. Wording: lower case, no full stop, the problem first, subject
   in quotes: "cannot infer shape of 'conv_12': kernel larger than input". */

enum err_code {
    ERR_NONE,        /* no error */
    ERR_FAILED,      /* other failure (exit 1) */
    ERR_USAGE,       /* the caller's arguments are wrong (exit 2) */
    ERR_NOTHING,     /* nothing was measured or selected (exit 3) */
    ERR_UNSUPPORTED, /* valid input that quern does not support (exit 1) */
    ERR_INPUT,       /* invalid or inconsistent input (exit 1) */
    ERR_SYSTEM,      /* failure of the operating system (exit 1) */
    ERR_STOPPED,     /* stopped by the caller (exit 130, 143) */
};

/* A request to stop early. Set by a signal handler or another thread, polled between two steps. */
struct stop { int is_set; };
/* NULL: never */
static inline bool stop_is_set(const struct stop *s) { return s && __atomic_load_n(&s->is_set, __ATOMIC_RELAXED); }

struct err {
    enum err_code code;
    char msg[1000]; /* NUL-terminated, usually one line */
    const struct stop *stop; /* of the call: mem_check fails once it is set; NULL: cannot be stopped */
};

/* Sets the error unless one is set already (the first cause wins). Always returns false. */
bool err_set(struct err *e, enum err_code code, const char *fmt, ...) QUERN_PRINTF(3, 4);
/* Prepends "prefix: " to the message. Always returns false. */
bool err_prefix(struct err *e, const char *fmt, ...) QUERN_PRINTF(2, 3);

/* arena.c: memory by lifetime. Allocations are zeroed and 16-byte aligned, and are not freed one by
   one. Small ones draw on a reserve when memory is exhausted (reserve.c), large ones use arena_try. */

struct arena_chunk;

struct arena {
    struct arena_chunk *top; /* newest chunk */
    i64 used;                /* bytes allocated since init, for reports */
    i64 held;                /* bytes of its chunks */
};

struct arena_mark {
    struct arena_chunk *chunk;
    i64 at;
};

void *arena_alloc(struct arena *a, i64 size); /* never NULL */
/* For large data. NULL: out of memory, or the arena would exceed the machine's memory; the
   error, which may be NULL, reports the size and, by the format, the purpose: "tensor 'w'". */
void *arena_try(struct arena *a, i64 size, struct err *e, const char *fmt, ...) QUERN_PRINTF(4, 5);
/* For libraries that take allocators (protobuf-c) and untrusted input: at most `left` bytes more, as arena_try; what: their purpose. Nothing is
   freed before the arena. user: struct arena_budget. */
struct arena_budget { struct arena *a; i64 left; struct err *e; const char *what; };
void *arena_budget_alloc(void *user, size_t size);
void arena_budget_free(void *user, void *p);
/* copies into a larger allocation */
void *arena_grow(struct arena *a, void *old, i64 old_size, i64 new_size);
struct arena_mark arena_mark(struct arena *a);
void arena_rewind(struct arena *a, struct arena_mark m); /* frees everything after the mark */
/* frees everything; the arena is empty and usable again */
void arena_release(struct arena *a);
/* Empties it and keeps the memory, as one chunk: filling it again with as much requests nothing from the system. */
void arena_reset(struct arena *a);

#define arena_new(a, T) ((T *)arena_alloc((a), (i64)sizeof(T)))
#define arena_array(a, T, n) ((T *)arena_alloc((a), (i64)sizeof(T) * (i64)(n)))

/* Growable array in an arena: struct { T *v; u32 n, cap; }. Returns a pointer to the new zeroed
   element. */
#define arr_push(arena, arr) \
    ((arr)->n == (arr)->cap                                                             \
         ? (arr)->v = arr_more((arena), (arr)->v, &(arr)->cap, sizeof(*(arr)->v))       \
         : (void *)0,                                                                   \
     &(arr)->v[(arr)->n++])
void *arr_more(struct arena *a, void *v, u32 *cap, size_t elem_size);

/* mem.c: the general heap, for large blocks without the lifetime of an arena. */

void *mem_alloc(i64 size);             /* zeroed, small; never NULL: see reserve.c */
/* 64-byte aligned, page-aligned from 64 KiB on, zeroed lazily by the system; NULL when out of memory */
void *mem_aligned(i64 size);
void mem_free(void *p);                /* frees either; NULL is allowed */
void mem_prefer_huge(void *p, i64 size); /* of memory that was not touched yet and is about to be written entirely: few page faults */

/* reserve.c: the reserve of small allocations when memory is exhausted, which need not be checked therefore.
   Afterwards mem_check fails, which every stage calls between two steps; until then the reserve is used. */

/* creates the reserve, or recreates a used one; at the beginning of every public call */
void mem_prepare(void);
/* false: out of memory, or the call is to stop (e->stop). The message names the current step: "in pass ", "fold". */
bool mem_check(struct err *e, const char *what, struct str name);
i64 mem_of_machine(void);              /* bytes */
/* For tests: of the system allocations of at least this size, the nth from now on
   fails; 0: none. Returns the remaining distance of the previous request; 0: it failed. */
i64 mem_fail(i64 nth, i64 least);
/* Whether a block, or a mapping, may have so many bytes: its length and the differences of addresses in it are pointers' (32 bits: 2 GiB). */
bool mem_is_addressable(i64 size);
/* For core: realloc, or zeroed memory if old is NULL. NULL: out of memory; the second function draws on the reserve first. */
void *mem_request(void *old, i64 size);
void *mem_request_small(void *old, i64 size);

/* buf.c: growable text or bytes. Sticky: after a failed allocation or a size over 2 GiB it stays
   failed. */

struct buf {
    char *p;      /* heap; always NUL-terminated after n bytes if p is not NULL */
    i64 n, cap;
    bool failed;
};

void buf_put(struct buf *b, const void *p, i64 n);
void buf_str(struct buf *b, struct str s);
void buf_z(struct buf *b, const char *z);
void buf_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) QUERN_PRINTF(2, 3);
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) QUERN_PRINTF(2, 0);
void buf_f64(struct buf *b, double v); /* shortest text that parses back to v; "inf" "-inf" "nan" */
void buf_json_str(struct buf *b, struct str s); /* quoted and escaped */
void buf_reset(struct buf *b);                  /* empties it and keeps the memory */
void buf_release(struct buf *b);
struct str buf_view(const struct buf *b);       /* valid until the next write */

/* map.c: open addressing, insertion-ordered iteration, keys copied into the arena. */

struct map_entry {
    struct str key;
    u64 hash;
    u64 val; /* an integer, or a pointer through (uintptr_t) */
};

struct map {
    struct arena *arena;
    struct map_entry *v; /* entries in insertion order */
    u32 n, cap;
    u32 *slot;           /* 1 + index into v, 0 = free */
    u32 n_slots;
};

void map_init(struct map *m, struct arena *a);
u64 *map_get(const struct map *m, struct str key);       /* inserts or overwrites; returns the value's place */
/* inserts or overwrites; pointer to the value */
u64 *map_put(struct map *m, struct str key, u64 val);

/* hash.c: content hashes (XXH3, 128 bit). Not cryptographic. Identical on every platform. */

struct hash { u64 lo, hi; };

struct hash hash_bytes(const void *p, i64 n);
u64 hash_u64(const void *p, i64 n);
void hash_hex(struct hash h, char out[33]); /* 32 lower case digits and NUL */

/* rng.c: counter-based random numbers (SplitMix64), identical on every platform. */

struct rng { u64 state; };

struct rng rng_seed(u64 seed);
u64 rng_u64(struct rng *r);
i64 rng_range(struct rng *r, i64 lo, i64 hi); /* uniform in lo..hi, both included */
double rng_f64(struct rng *r);                /* uniform in [0, 1) */
double rng_normal(struct rng *r);             /* mean 0, variance 1 */

/* dtype.c: element types of tensors and kernels. */

enum dtype {
    DT_NONE, /* unknown */
#define X(id, name, size, kind, onnx) DT_##id,
#include "core/dtype.inc"
#undef X
    N_DTYPES,
    /* Not a type of tensors: operands of matrix units, with 10 bits of mantissa, held as f32. */
    DT_TF32
};

enum dtype_kind { DK_NONE, DK_FLOAT, DK_INT, DK_UINT, DK_BOOL };

const char *dtype_name(enum dtype t);            /* "f32", "i64", "bool" ... */
enum dtype dtype_parse(struct str s);            /* of tensors; DT_NONE: unknown name */
enum dtype dtype_parse_operand(struct str s);    /* of values in kernels: with tf32, without storage-only types */
i64 dtype_size(enum dtype t);                    /* bytes */
enum dtype_kind dtype_kind(enum dtype t);
int dtype_onnx(enum dtype t);                    /* TensorProto.DataType */
enum dtype dtype_from_onnx(int onnx);            /* DT_NONE: unsupported */
const char *dtype_onnx_name(int onnx);           /* with the unsupported ones, for messages */
bool dtype_is_float(enum dtype t);
bool dtype_is_int(enum dtype t);                 /* signed or unsigned, not bool */
i64 dtype_int_extreme(enum dtype t, bool largest); /* of an integer type or bool; u64 as its bits; 0 for floats */

/* Element i of an array of dtype, as double or as i64. f16, bf16 and small floats round to nearest even (f8e8m0: to the
   nearest, saturating), tf32 as tf32_from_f32, integers wrap. */
double elem_f64(enum dtype t, const void *p, i64 i);
i64 elem_i64(enum dtype t, const void *p, i64 i);
void elem_set_f64(enum dtype t, void *p, i64 i, double v);
/* Likewise of elements first .. first + n - 1, for long arrays. */
void elems_f64(enum dtype t, const void *p, i64 first, i64 n, double *out);
void elems_set_f64(enum dtype t, void *p, i64 first, i64 n, const double *v);
void elem_set_i64(enum dtype t, void *p, i64 i, i64 v);

/* small.c: storage-only types of at most 8 bits, one byte per element: f8, f6, f4, u4, i4, u2,
   i2. Kernels hold them in u8 or i8 arrays and compute in f32 or in these; files pack them. */
struct small_float {      /* a float with a sign; mantissa 0: f8e8m0, a power of two */
    u8 bits, mantissa, bias;
    u8 max, over, nan;    /* codes: of the largest number, of a non-saturating overflow, of NaN */
};
/* of f8e8m0: halves round up; others: to nearest even */
enum small_round { SMALL_NEAREST, SMALL_UP, SMALL_DOWN };
/* saturate: overflow and infinities become the largest number */
struct small_rule { bool saturate; enum small_round round; };
bool dtype_is_small(enum dtype t);
enum dtype dtype_stored(enum dtype t);          /* type of kernels' arrays that hold it: u8, i8, or t itself */
i64 dtype_bits(enum dtype t);                   /* of an element in a file */
const struct small_float *small_float_of(enum dtype t);
float small_to_f32(enum dtype t, u8 code);
u8 small_from_f32(enum dtype t, float f, struct small_rule r);
i64 small_wrap(enum dtype t, i64 v);            /* to an integer of 2 or 4 bits */
u8 small_clean(enum dtype t, u8 v);             /* any byte as an element */
i64 small_packed_size(enum dtype t, i64 n);     /* bytes of n elements of any type in a file */
void small_pack(enum dtype t, const u8 *from, i64 n, u8 *to); /* small types only */
void small_unpack(enum dtype t, const u8 *from, i64 n, u8 *to);

/* Rounds to f32 "to odd": a later rounding to fewer bits then yields the result of a single rounding. */
float f32_to_odd(double v);

/* half.c */
u32 f32_bits(float f);
float f32_of_bits(u32 bits);
u16 f16_from_f32(float f);
float f16_to_f32(u16 h);
u16 bf16_from_f32(float f);
float bf16_to_f32(u16 h);
void halves_to_f32(enum dtype t, const u16 *from, i64 n, float *to); /* t: f16 or bf16; a NaN becomes a quiet one */
float tf32_from_f32(float f); /* 10 bits of mantissa, to nearest, ties away from zero */

/* tensor.c: a dense row-major host tensor. */

enum { MAX_RANK = 8 };

struct tensor {
    enum dtype dtype;
    u32 rank;
    i64 dim[MAX_RANK];
    void *data;        /* row-major; owned by its creator (arena, heap or a mapped file) */
    struct tensor *narrow; /* of f32: a tensor of f16 or bf16 from which these numbers were converted, which lives as long; NULL: not known */
};

i64 tensor_count(const struct tensor *t);  /* number of elements; 1 for a scalar */
double tensor_largest(const struct tensor *t);  /* magnitude of the largest finite element; 0: there is none */
i64 tensor_bytes(const struct tensor *t);
/* zeroed, data in the arena */
struct tensor *tensor_new(struct arena *a, enum dtype t, u32 rank, const i64 *dim);
/* for large tensors; NULL: see arena_try */
struct tensor *tensor_try(struct arena *a, enum dtype t, u32 rank, const i64 *dim, struct err *e, const char *what, struct str name);
/* Copies between the tensor, whose memory is allocated, and an array with these strides, in elements. */
void tensor_from_strided(const struct tensor *t, const void *array, const i64 *stride);
void tensor_to_strided(const struct tensor *t, void *array, const i64 *stride);
/* checks overflow and negative sizes */
bool tensor_size_ok(enum dtype t, u32 rank, const i64 *dim, i64 *bytes);

/* How two tensors differ, NaN and infinities compared as such. */
struct tensor_diff {
    i64 n_bad;      /* elements outside |a - b| <= atol + rtol |b|, b the reference */
    i64 first_bad;  /* flat index, -1: none */
    double max_abs, max_rel; /* over finite pairs; relative to |b| where |b| > atol */
    double got, want;        /* at first_bad */
};
struct tensor_diff tensor_compare(const struct tensor *a, const struct tensor *b, double rtol,
                                  double atol);

/* sym.c: symbolic sizes. An expression over named non-negative variables (H, W), hash-consed and
   kept in a polynomial normal form, so equal ids mean equal values and most equal values have equal
   ids. x mod c is rewritten to x - c*floor(x/c), which proves facts such as
   2*((H + (-H mod 64))/2) == H + (-H mod 64).
   Expressions are immutable and live as long as their table.
   - Operations on 0 (none) give 0.
   - What has no value (division by zero, a coefficient that overflows, a sum of more than
     SYM_MAX_SIZE nodes) is the one undefined expression 1//0; operations on it give it again.
   - INT64_MIN is never a value: it counts as overflow.
   - Rewriting keeps the value wherever the original has one: x//x is 1. */

typedef u32 sym; /* 0 = none */
enum { SYM_MAX_SIZE = 1000 };

enum sym_op {
    SYM_CONST, /* value */
    SYM_VAR,   /* name */
    SYM_ADD,   /* a + b */
    SYM_MUL,   /* a * b */
    SYM_DIV,   /* floor(a / b) */
    SYM_MIN,   /* min(a, b) */
    SYM_MAX,   /* max(a, b) */
};

struct sym_node {
    enum sym_op op : 8;
    u16 size;       /* nodes of the whole expression; bounds every recursion over it */
    sym a, b;       /* operands; for SYM_VAR a is the index of the variable */
    i64 value;      /* SYM_CONST */
};

/* Constraints of a network on its sizes that their form does not imply (sym_fact.c). */
enum sym_fact_kind {
    FACT_EQUAL,    /* a == b */
    FACT_MULTIPLE, /* b, a constant, divides a */
    FACT_AT_LEAST, /* a >= b */
    FACT_AT_MOST,  /* a <= b */
    N_FACT_KINDS
};

struct sym_fact {
    enum sym_fact_kind kind : 8;
    bool is_weak;   /* the most general form: dropped if others imply it */
    sym a, b;       /* over the variables as named, with no fact applied */
    struct str origin; /* the node that requires it: "Concat '/Concat'" */
    sym rest;       /* a - b with the other facts applied */
};

struct sym_bounds { i64 least, most; };

struct symtab {
    struct arena *arena;
    struct { struct sym_node *v; u32 n, cap; } node; /* v[0] unused */
    struct { struct str *v; u32 n, cap; } var;       /* names, in order of first use */
    struct map cons;                                 /* node bytes -> id */
    struct map names;                                /* variable name -> id */
    struct { struct sym_fact *v; u32 n, cap; } fact;
    struct { sym *v; u32 n, cap; } def;              /* per variable: its value by facts; 0: itself */
    struct { struct sym_pair { sym from, to; } *v; u32 n, cap; } alias; /* floors, min, max likewise */
    struct { struct sym_bounds *v; u32 n, cap; } bound; /* per variable, from facts; none after n */
    u32 n_noted;                                     /* number of all facts, including those now implied by
                                                        others */
    bool raw;                                        /* facts are temporarily not applied */
    bool closed;                                     /* requirements are noted elsewhere: none becomes a fact */
};

void symtab_init(struct symtab *t, struct arena *a);
sym sym_const(struct symtab *t, i64 v);
sym sym_var(struct symtab *t, struct str name);
/* From now on the name denotes this expression of the table: sym_var and sym_parse return it. */
void sym_define(struct symtab *t, struct str name, sym value);
/* Names of variables denote the variables again. */
void sym_undefine(struct symtab *t);
sym sym_add(struct symtab *t, sym a, sym b);
sym sym_sub(struct symtab *t, sym a, sym b);
sym sym_mul(struct symtab *t, sym a, sym b);
sym sym_div(struct symtab *t, sym a, sym b);      /* floor */
sym sym_mod(struct symtab *t, sym a, sym b);      /* a - b*floor(a/b) */
sym sym_cdiv(struct symtab *t, sym a, sym b);     /* ceiling */
sym sym_min(struct symtab *t, sym a, sym b);
sym sym_max(struct symtab *t, sym a, sym b);
bool sym_is_const(const struct symtab *t, sym s, i64 *v); /* v may be NULL */
bool sym_is_defined(const struct symtab *t, sym s); /* false: none, or undefined */
bool sym_divides(struct symtab *t, i64 c, sym s);  /* proven: c divides s for all values */
/* proven: s >= *lo for all values. false: unknown */
bool sym_lower_bound(struct symtab *t, sym s, i64 *lo);
/* var[i] is the value of variable i (n_vars of them). False: division by zero, overflow or
   unbound variable (INT64_MIN). */
bool sym_eval(const struct symtab *t, sym s, const i64 *var, i64 *out);
/* Bounds of the value if var[i] has the bounds of variable i (INT64_MIN:
   unbound), by interval arithmetic and thus not always tight. False as above. */
bool sym_eval_bounds(const struct symtab *t, sym s, const struct sym_bounds *var, struct sym_bounds *out);
/* "(H+63)//64*2": + - * // min(a,b) max(a,b), names that are no identifiers 'in quotes' */
void sym_print(struct buf *b, const struct symtab *t, sym s);
sym sym_parse(struct symtab *t, struct str text, struct err *e); /* also % ; 0 on error */
/* Sizes of variables, "H=17,W=31" or "H:17,W:31"; unknown names are errors. Variables that are not named are unchanged. */
bool sym_parse_sizes(const struct symtab *t, const char *text, i64 *var, struct err *e);
sym sym_copy(struct symtab *to, const struct symtab *from, sym s); /* same variables by name */

/* sym_fact.c: facts. Once H is known to be even, the name H denotes H//2*2: a
   form that is valid for every H, equals the results of halving and doubling,
   and is printed as H by sym_plain. Facts that equate sizes replace a variable.
   sym_current updates expressions made before a fact was known. Conclusions from
   a fact are valid only for sizes that satisfy it: sym_fact_holds.
   sym_require_*: true: implied, or a fact from now on; false: known not to hold. */
bool sym_require_equal(struct symtab *t, sym a, sym b, struct str origin);
bool sym_require_multiple(struct symtab *t, sym a, i64 b, struct str origin);
bool sym_require_at_least(struct symtab *t, sym a, sym b, struct str origin); /* a >= b */
bool sym_require(struct symtab *t, enum sym_fact_kind k, sym a, sym b, struct str origin); /* any */
/* Only notes it without conclusions; for checks of facts. */
void sym_fact_note(struct symtab *t, enum sym_fact_kind k, sym a, sym b, struct str origin);
sym sym_current(struct symtab *t, sym s); /* with the current facts applied */
sym sym_plain(struct symtab *t, sym s);   /* in readable form, given the facts */
sym sym_parse_raw(struct symtab *t, struct str text, struct err *e); /* no fact used */
/* Likewise, with facts not applied in `to`, either. */
sym sym_copy_raw(struct symtab *to, const struct symtab *from, sym s);
bool sym_has_var(const struct symtab *t, sym s, u32 var);
const char *sym_fact_name(enum sym_fact_kind k); /* "equal" "multiple" "at_least" "at_most" */
bool sym_fact_parse_name(struct str s, enum sym_fact_kind *k);
/* "H to be a multiple of 2" */
void sym_fact_print(struct buf *b, const struct symtab *t, const struct sym_fact *f);
/* false: undecided, or *holds */
bool sym_fact_eval(const struct symtab *t, const struct sym_fact *f, const i64 *var, bool *holds);
/* The first fact that does not hold for these sizes (facts about unknown sizes hold); NULL: none. */
const struct sym_fact *sym_fact_broken(const struct symtab *t, const i64 *var);
/* Adjusts sizes that are not fixed so that facts hold, in simple cases. */
void sym_fact_adjust(const struct symtab *t, i64 *var, const bool *fixed);
/* likewise */
void sym_fact_adjust_one(const struct symtab *t, const struct sym_fact *f, i64 *var, const bool *fixed);
/* "H = 255, but Concat '/Concat' needs H to be a multiple of 2" */
void sym_fact_explain(struct buf *b, const struct symtab *t, const struct sym_fact *f,
                      const i64 *var);
/* The sum s has the value v: binds its only unbound variable (INT64_MIN), which occurs once, times
   a constant. false: there is no such variable. If no size satisfies it, the nearest one is bound. */
bool sym_solve(const struct symtab *t, sym s, i64 v, i64 *var);
/* "H = 255, W = 3": the variables of both (b may be 0). */
void sym_print_vars(struct buf *to, const struct symtab *t, sym a, sym b, const i64 *var);

/* sym_made.c: data-dependent sizes, computed from elements of values or other sizes while a network runs, and reasons why one is invalid. */
struct sym_made {
    u32 var;
    sym expr, most;       /* 0: an element; no bound */
    struct str value;     /* whose element `at` it is, possibly negated */
    i64 at;
    bool is_negated;
    struct sym_fact need; /* origin: the node that requires it; a, b: the condition for it to be a size, 0: none */
};
/* The size at v[at] has the value var[its variable], INT64_MIN: none. "N = 4, k_v = 9, but TopK 'y' needs k_v to be at most N; k_v is
   element 0 of 'k'" */
void sym_made_explain(struct buf *b, const struct symtab *t, const struct sym_made *v, u32 n, u32 at, const i64 *var);

/* sign.c: Ed25519 signatures, by libcrypto. */

enum { SIGN_KEY_BYTES = 32, SIGN_BYTES = 64, SIGN_DIGEST_BYTES = 64, SIGN_ID_BYTES = 33 };
bool sign_new_key(u8 secret[SIGN_KEY_BYTES], struct err *e);
void sign_forget(u8 secret[SIGN_KEY_BYTES]); /* overwrites it */
bool sign_public_key(const u8 secret[SIGN_KEY_BYTES], u8 public_key[SIGN_KEY_BYTES], struct err *e);
bool sign_make(const u8 secret[SIGN_KEY_BYTES], struct str message, u8 signature[SIGN_BYTES], struct err *e);
/* false: could not be checked. */
bool sign_check(const u8 public_key[SIGN_KEY_BYTES], struct str message, const u8 signature[SIGN_BYTES], bool *is_right, struct err *e);
bool sign_digest(struct str bytes, u8 digest[SIGN_DIGEST_BYTES], struct err *e); /* SHA-512 */
bool sign_digest_pieces(const struct str *piece, i64 n_piece, u8 digest[SIGN_DIGEST_BYTES], struct err *e); /* of all, one after the other */
/* Keys as text: PEM of PKCS #8 and of SubjectPublicKeyInfo. */
void sign_print_key(struct buf *b, const u8 key[SIGN_KEY_BYTES], bool is_secret);
bool sign_parse_key(u8 key[SIGN_KEY_BYTES], bool is_secret, struct str text, struct err *e);
/* The id of a key: the first half of the public key in hexadecimal digits. */
void sign_key_id(const u8 public_key[SIGN_KEY_BYTES], char id[SIGN_ID_BYTES]);

/* os.c: files, time, processes, shared objects. */

struct os_file { /* a read-only file in memory */
    const u8 *p;
    i64 n;
    void *priv;
    bool is_copy; /* not mapped: later changes of the file have no effect */
};

/* truncating the mapped file ends the process (SIGBUS) */
bool os_map(struct os_file *f, const char *path, struct err *e);
bool os_map_open(struct os_file *f, int fd, const char *path, struct err *e); /* of an open file; path: for messages */
/* Likewise, but files of at most `most` bytes are read into private memory, 64-byte aligned. */
bool os_load(struct os_file *f, const char *path, i64 most, struct err *e);
void os_unmap(struct os_file *f);
/* A file that is read in pieces, possibly by several threads; concurrent changes or truncation are harmless. */
struct os_reader {
    int fd;
    i64 n;  /* bytes when it was opened */
};
bool os_reader_open(struct os_reader *r, const char *path, struct err *e); /* regular files only */
bool os_reader_get(const struct os_reader *r, void *to, i64 n, i64 at);    /* false: missing or unreadable */
void os_reader_close(struct os_reader *r);
/* Reads a whole file of at most max bytes into the
   arena (followed by NUL). path "-" = standard input. */
bool os_read(struct arena *a, const char *path, i64 max, struct str *out, struct err *e);
/* Writes through a temporary file in the same folder and rename, so that readers never see half
   a file. "-" = standard output. */
bool os_write(const char *path, const void *p, i64 n, struct err *e);
bool os_write_pieces(const char *path, const struct str *piece, i64 n, struct err *e); /* likewise, one piece after the other */
/* Likewise, from n pieces, a new or existing file readable by this user only, whose content may be lost in a crash of the machine. */
bool os_write_private(const char *path, const struct str *piece, i64 n, struct err *e);
void os_note_use(const char *path); /* of a file, for os_list_by_use, whether the system records reads or not */
/* A new file with these permissions; an error if the name exists. */
bool os_write_new(const char *path, u32 mode, const void *p, i64 n, struct err *e);
bool os_mkdirs(const char *path, struct err *e);
/* A new, empty folder beside path, to be renamed to it when its content is complete; removed with os_remove_tree otherwise. */
bool os_mkdir_beside(struct arena *a, const char *path, struct str *folder, struct err *e);
bool os_rename_folder(const char *from, const char *to, struct err *e); /* an error if there is a file or a folder with content */
/* Creates the folder for this user alone. An error if it belongs to another user, is a link, or is writable by others. */
bool os_private_folder(const char *path, struct err *e);
/* This user's cache folder: $XDG_CACHE_HOME/quern, else ~/.cache/quern; empty: neither variable is set. */
struct str os_cache_folder(struct arena *a);
/* Likewise the configuration folder: $XDG_CONFIG_HOME/quern, else ~/.config/quern. */
struct str os_config_folder(struct arena *a);
bool os_exists(const char *path);
bool os_is_dir(const char *path);
/* Waits at most so many seconds, or until stop is set (NULL: never), until no other process has the lock of this file, which is created if missing and stays empty. Returns the lock; -1:
   not had. It ends with os_unlock, or with this process and its children. */
int os_lock(const char *path, double seconds, const struct stop *stop);
void os_unlock(int lock); /* -1 is fine */
/* Names in a folder, sorted bytewise, without "." and "..". */
bool os_list(struct arena *a, const char *dir, struct str **names, i64 *n, struct err *e);
/* Regular files in a folder, least recently used first. */
struct os_entry { struct str name; i64 size; double changed, used; /* seconds since the epoch; writing is a use */ };
bool os_list_by_use(struct arena *a, const char *dir, struct os_entry **entries, i64 *n, struct err *e);
/* A fresh private temporary folder below $TMPDIR, else /tmp; remove with os_remove_tree. */
bool os_temp_dir(struct arena *a, struct str *path, struct err *e);
/* Whether there is space for files below the temporary folder; otherwise an error that names it. */
bool os_temp_has_room(struct err *e);
/* Removes temporary folders of dead processes. */
void os_temp_sweep(void);
void os_remove_tree(const char *path);
const char *os_env(const char *name); /* NULL: not set */

double os_now(void); /* monotonic seconds */
double os_time(void); /* seconds since the epoch */
double os_thread_seconds(void); /* CPU time of this thread */
/* CPU time of all threads of this process; that of running threads as of the system's last tick, at most 10 ms ago. */
double os_process_seconds(void);
void os_sleep(double seconds);
int os_n_cpus(void); /* processors available to this process */
int os_cpu(void);    /* of the calling thread; < 0: unknown */
i64 os_thread_id(void); /* of the calling thread */
void os_yield(void); /* others first */
/* Sleeps while *p == value, at most for this time; spurious wake-ups are possible. */
void os_wait_while(u32 *p, u32 value, double seconds);
void os_wake_all(u32 *p); /* wakes all threads that sleep on p */
/* Lets these n threads run on all processors of the caller except that one. No effect if fewer than n would remain. */
void os_keep_off(const i64 *thread, u32 n, int cpu);
i64 os_peak_rss(void); /* bytes */
i64 os_rss(void);      /* resident memory of this process in bytes; 0: unknown */
/* CPU seconds since a fixed moment: of all processors together, and of
   this process with the children that it has waited for. false: unknown. */
bool os_cpu_seconds(double *all, double *own);
/* Of the object file that this function is in; false: it was linked without a build id. */
bool os_build_id(struct hash *id);
void os_cpu_model(char *out, i64 n); /* one line, "AMD EPYC 9654" */
struct hash os_cpu_features(void);   /* of the feature flags reported by the system */

struct os_proc_opts {
    const char *const *argv; /* NULL-terminated, argv[0] looked up in PATH */
    double timeout;          /* seconds, 0 = none; the whole process group is killed on time-out */
    struct buf *out;         /* standard output and standard error together; NULL = discarded */
};
enum os_exit { OS_EXITED, OS_SIGNALLED, OS_TIMEOUT, OS_NOT_STARTED, OS_STOPPED };
struct os_status { enum os_exit how; int code; /* exit code or signal */ };
/* Keeps at most the first 64 MiB of output. The program runs under limits (os_limit.c). If the caller is an os_child,
   the program and all its children end with the caller, however the parent of the os_child ends, kill -9 included. */
struct os_status os_run(const struct os_proc_opts *o);
bool os_in_path(struct arena *a, const char *program);

/* os_open.c: files named by others, or with trusted content. */

/* The folder of a model, for its external data. */
struct os_beside {
    const char *dir;      /* folder of the model */
    const char *model;    /* path of the model itself; NULL: unknown */
    bool follow_links;    /* follow symbolic links anywhere */
};
/* Reads size bytes at an offset of a regular file beneath the folder. `name` is untrusted: it may not leave the
   folder, nor lead through symbolic links, unless they are permitted, or the model's path is itself a link and
   the file is in (or beneath) the folder of the model's target, as in caches that store content under its hash. */
bool os_read_beside(const struct os_beside *at, struct str name, i64 offset, void *to, i64 size, struct err *e);
/* Loads a regular file beneath the folder as os_load does; links are not followed. */
bool os_load_beside(struct os_file *f, const struct os_beside *at, struct str name, i64 most, struct err *e);
/* Reads a regular file that only this user (or root) can change; is_secret: and only they can read. */
bool os_read_own(struct arena *a, const char *path, bool is_secret, i64 max, struct str *out, struct err *e);
/* Checks for a folder that only this user (or root) can change. false without an error: missing. */
bool os_own_folder(const char *path, struct err *e);

/* os_secret.c: n random bytes (at most 256) in a file that only this user can read, created if missing. */
bool os_secret(const char *path, u8 *out, i64 n, struct err *e);

/* seal.c: authenticity and integrity of files. */
enum { SEAL_KEY_BYTES = 32, SEAL_BYTES = 64 };
struct seal_key { u8 v[SEAL_KEY_BYTES]; };
bool seal_key_open(struct seal_key *k, struct err *e); /* this user's, created if missing */
/* Of a file of this name with n pieces of content. */
bool seal_make(const struct seal_key *k, struct str name, const struct str *piece, i64 n, u8 seal[SEAL_BYTES], struct err *e);
bool seal_check(const struct seal_key *k, struct str name, struct str content, const u8 seal[SEAL_BYTES]);

/* os_child.c: a copy of this process that works by itself and communicates through a socket. The parent must not
   hold threads that the work needs. The child exits without running exit handlers, and ends when its parent does. */
struct os_child {
    int pid, fd;
    bool runs_programs;      /* set by the parent if the child calls os_run: the child gets some time to end its
                                programs before it is killed */
    const struct stop *stop; /* likewise: os_child_get returns when it is set; NULL: it waits */
};
typedef void os_child_fn(void *user, int fd);
bool os_child_start(struct os_child *c, os_child_fn *fn, void *user, struct err *e);
/* in the child: false: the parent has ended */
bool os_child_put(int fd, const void *p, i64 n);
bool os_child_take(int fd, void *p, i64 n);
/* in the parent: to the child; false: it has ended */
bool os_child_send(const struct os_child *c, const void *p, i64 n);
/* Reads exactly n bytes. OS_EXITED: done; OS_TIMEOUT; OS_STOPPED; OS_SIGNALLED: the child closed the pipe
   before. seconds <= 0: no limit. */
enum os_exit os_child_get(const struct os_child *c, void *p, i64 n, double seconds);
/* Kills it if it is still running (with all its children) and reports how it ended. */
struct os_status os_child_end(struct os_child *c);
/* n zeroed bytes shared by this process and its future children. NULL: out of memory. */
void *os_share(i64 n);
void os_unshare(void *p, i64 n); /* NULL is fine */

/* os_limit.c: limits of a child that runs untrusted code: no core dumps, bounded address space, CPU time, processes
   and file sizes. has_driver: a vendor's driver will be loaded, which maps more address space than there is memory. */
void os_limit_child(bool has_driver);

/* os_sandbox.c: system calls available to such a child. */
enum os_sandbox_kind {
    OS_SANDBOX_MEMORY, /* only its own memory, its threads and the socket fd; all files that it needs are loaded
                          already */
    OS_SANDBOX_SHARED, /* likewise, but memory shared with other processes stays mapped */
    OS_SANDBOX_DEVICE, /* reads files and uses devices, but writes only to devices, temporary folders and caches;
                          no network, no signals to other processes. To be entered before the driver is loaded */
};
const char *os_sandbox_lacks(enum os_sandbox_kind k); /* NULL: supported; else the missing feature */
/* Permanent, for all threads. Other files than fd and the standard
   ones are closed, and shared memory is unmapped. false: unsupported. */
bool os_sandbox_enter(enum os_sandbox_kind k, int fd);

/* os_thread.c */
bool os_threads_can_start(u32 n); /* current number of additional ones */
/* Only for ThreadSanitizer, for synchronisation by a library that it does not see: actions
   of a thread before the first call for p happen before those of another after the second. */
void os_order_before(void *p);
void os_order_after(void *p);
struct os_thread;
typedef void os_thread_fn(void *user);
struct os_thread *os_thread_start(os_thread_fn *fn, void *user); /* NULL: cannot be started */
void os_thread_join(struct os_thread *t);                        /* NULL is fine */
/* A lock, and a condition to wait for: data between enter and leave belongs to one thread at a time. */
struct os_monitor;
struct os_monitor *os_monitor_new(void);
void os_monitor_free(struct os_monitor *m); /* NULL: nothing. No thread is in it */
void os_monitor_enter(struct os_monitor *m);
void os_monitor_leave(struct os_monitor *m);
/* Within it: leaves it until os_monitor_wake, or at most for this time; negative: no limit. Spurious wake-ups are possible. */
void os_monitor_wait(struct os_monitor *m, double seconds);
void os_monitor_wake(struct os_monitor *m); /* all that wait */

void *os_dlopen(const char *path, struct err *e);
bool os_dlloaded(const char *path);                         /* in this process, by any code */
void *os_dlopen_bytes(const void *p, i64 n, struct err *e); /* from memory, without leaving a file */
void *os_dlsym(void *lib, const char *name);                /* NULL: absent */
void os_dlclose(void *lib);

/* log.c: messages for people, to a callback of the owner; nothing is printed by default. */

struct log {
    void (*line)(void *user, int level, struct str text); /* NULL = silent */
    void *user;
    int level; /* messages above this level are dropped: 0 errors, 1 warnings, 2 notes, 3 details */
};
void log_printf(const struct log *l, int level, const char *fmt, ...) QUERN_PRINTF(3, 4);

/* isa.c: CPU instruction sets: a family, and extensions of its base. Code
   is built exactly for such a set (language c), which a program records. */

enum isa_family { ISA_NONE, ISA_X86_64, ISA_AARCH64, ISA_ARMV7, ISA_RISCV64, ISA_X86, N_ISA_FAMILIES };
struct isa {
    enum isa_family family;
    u64 has; /* extensions, bits of the family's table in isa.c, closed under implication */
};
/* A level, optionally with extensions separated by '+' or spaces: "x86-64-v3", "x86-64-v4+avx512vnni", "aarch64+dotprod". */
bool isa_parse(struct isa *s, struct str text, struct err *e);
void isa_print(struct buf *b, struct isa s, char sep);  /* likewise, by the highest level; ISA_NONE: empty */
void isa_print_all(struct buf *b, struct isa s);        /* every extension by name: "x86-64 sse3 ssse3 .." */
const char *isa_level(i64 k);                           /* names of levels; NULL: end of the list */
bool isa_contains(struct isa s, struct isa part);
bool isa_equal(struct isa s, struct isa t);
bool isa_is_x86(struct isa s);                          /* of 32 or 64 bits */
u32 isa_count(struct isa s);                            /* extensions */
struct isa isa_for_code(struct isa s);                  /* without extensions that kernels are never built with */
void isa_options(struct buf *b, struct isa s);          /* of gcc and clang */
bool isa_is_option(struct str option);                  /* compiler options that select the instructions */
struct caps;
void isa_limits(struct caps *c, struct isa s);          /* the dependent fields of c */
/* The set of a processor with these words, as far as the system saves its registers; and that of the present processor. */
struct os_isa;
struct isa isa_of(const struct os_isa *o);
struct isa isa_here(void);
/* Whether `here` has all words of isa_print_all, which may be of a later version of this program. The error names the missing ones. */
bool isa_check(struct str words, struct isa here, struct err *e);

/* os_isa.c: the feature words of processor and system: on x86 registers after cpuid, elsewhere
   AT_HWCAP of the auxiliary vector. */
enum { OS_ISA_1_ECX, OS_ISA_7_EBX, OS_ISA_7_ECX, OS_ISA_7_EDX, OS_ISA_7_1_EAX, OS_ISA_7_1_EDX, OS_ISA_EXT_ECX, N_OS_ISA_WORDS,
       OS_ISA_HWCAP = 0, OS_ISA_HWCAP2 };
struct os_isa {
    enum isa_family family;
    u64 word[N_OS_ISA_WORDS];
    u64 state; /* x86: XCR0, registers saved by the system; aarch64: bit n: SVE's registers have n times 16 bytes */
};
void os_isa(struct os_isa *o);

/* caps.c: a target as plain data. Filled by devices
   (or parsed from text, to compile for an absent one). */

/* rates.c: how fast a target is. */

/* Instructions that multiply and add, by their operands. */
enum rate_op {
    RATE_FMA_F32, RATE_FMA_F64,             /* vectors */
    RATE_DOT_I8, RATE_DOT_BF16,             /* dot products of bytes, of pairs */
    RATE_MMA_F16, RATE_MMA_BF16, RATE_MMA_TF32, RATE_MMA_F32, RATE_MMA_I8, /* matrix units */
    N_RATE_OPS
};
enum rate_level { RATE_L1, RATE_L2, RATE_L3, RATE_DRAM, N_RATE_LEVELS };
enum rate_op rate_op_mma(enum dtype operand);
struct rate { double one, all; }; /* per second: of one thread (of a GPU: one workgroup), of all together; 0: unknown, or no such instruction */
struct rates {
    struct rate ops[N_RATE_OPS];  /* operations, two per multiply-add */
    struct rate_memory {
        struct rate read, write, copy; /* bytes; of copies, those read and those written */
        double latency;                /* seconds of a load that the next one depends on */
    } memory[N_RATE_LEVELS];
    struct rate nt_write;         /* bytes, by non-temporal stores to DRAM */
    double launch, barrier;       /* seconds: a launch among others; a barrier of all threads, on a GPU of a workgroup */
    double cycle, fma_latency;    /* seconds of a clock cycle, of multiply-adds of vectors that wait for each other; of described cores, never measured: 0 unknown */
};
/* The nearest of 48 steps per decade, to three digits. */
double rates_round(double x);
void rates_round_all(struct rates *r);
void rates_better(struct rates *r, const struct rates *x); /* each of both that is faster: other work only slows kernels */
/* "key=value" words, on one line; of rounded rates exact */
void rates_print(struct buf *b, const struct rates *r);
bool rates_parse(struct rates *r, struct str text, struct err *e);
double rates_peak(const struct rates *r, enum dtype t); /* operations per second of all threads for operands of this type */
double rates_bandwidth(const struct rates *r);          /* bytes per second from and to DRAM of all threads */

/* Limits and features of a target as plain data; kernel
   families, passes and languages read only this. */
struct caps {
    /* "x86_64-avx512", "aarch64-neon", "generic" ...: name of the architecture */
    char arch[64];
    u32 vector_bytes;    /* widest useful vector: 64 AVX-512, 32 AVX2, 16 SSE/NEON */
    u32 n_vector_regs;   /* 32, 16, 8 */
    u32 n_threads;       /* processors */
    i64 l1_bytes, l2_bytes, l3_bytes; /* data caches; l3 shared */
    bool has_fma;        /* fused multiply-add in hardware */
    bool in_order;       /* instructions are executed as they are written: texts load ahead (kir_ahead) */
    bool fixed_point;    /* floating point is slow: quantised values are scaled in integers */
    bool no_winograd;    /* by request of the user: direct sums, no Winograd algorithm */
    bool deterministic;  /* by request of the user: bits of a result depend on its own terms only: one order of
                            sums (gen/order.c) */
    bool is_gpu;         /* it has workgroups; the fields up to gbps describe them */
    bool is_emulated;    /* by a processor, which accesses memory lane by lane: what caps_rates assumes of its rates */
    u32 max_group;       /* threads of a workgroup */
    u32 subgroup, subgroup_min, subgroup_max; /* threads: usual size, and sizes that can be required */
    i64 shared_bytes;    /* shared memory of a workgroup */
    u32 thread_regs;     /* 32-bit registers per thread; 0: unknown, as for the next ones */
    u32 unit_regs, unit_threads; /* of all workgroups resident on a multiprocessor: registers, threads */
    i64 unit_shared;     /* and bytes of shared memory */
    u32 max_push;        /* bytes of parameters passed with a launch; more are passed in memory */
    i64 max_buffer;      /* bytes of one buffer, 0: any */
    u32 max_bind;        /* buffers of one kernel, 0: any */
    u32 buffer_align;    /* of a buffer's offset in memory, bytes */
    bool has_subgroup;   /* reductions and shuffles within a subgroup */
    bool has_f16, has_f64, has_i8, has_i16, has_i64; /* arithmetic and storage */
    bool has_rte_f16;    /* conversion to f16 supports round to nearest even */
    bool has_nan;        /* f32 and f64 support preserving NaN, infinities and signed zeros */
    /* Matrix units: "MxNxK:a,b,c,d" words, element types of
       A, B, C and the result, held by a subgroup, on processors by a thread; empty: none */
    char matrix[1024];
    /* Likewise for fragments held by a warpgroup, that many neighbouring subgroups; both operands in swizzled shared arrays */
    char warpgroup_matrix[1024];
    u32 warpgroup;
    bool has_copy;       /* asynchronous copies into shared arrays */
    bool has_tile;       /* and tile copies (TMA), by one thread */
    /* Dot products (DOT of kernel IR) that are one instruction: "a,b,c"
       words, element types of the operands and of the sum; "mmla:a,b,c": likewise MMLA, of 2x2 sums; empty: none */
    char dot[192];
    /* Operations that the device's driver lacks or computes incorrectly (kir_avoid): words "rint:f64"; empty: none */
    char avoid[512];
    u32 spirv;           /* newest supported version of SPIR-V: 10, 13, 15, 16 for 1.0 ... 1.6 */
    /* For language spirv, words: "debug" names and line numbers,
       "nonsemantic" source text, "optimize" by spirv-opt */
    char spirv_flags[64];
    u32 gflops, gbps;    /* peaks of GPUs by their specification: f32 multiply-adds, memory; 0: unknown */
    struct isa isa;      /* for language c: the instruction set; options follow from it (isa_options) */
    struct rates rates;  /* measured, or those of a described core, never assumed; all 0: neither. No part of the text: code does not depend on
                            them */
};
/* The rates of c, and assumptions where it has none. */
struct rates caps_rates(const struct caps *c);
/* "key=value" words, on one line */
void caps_print(struct buf *b, const struct caps *c);
bool caps_parse(struct caps *c, struct str text, struct err *e);
/* Restricts a target. Words: "no-winograd" (of CPUs), "deterministic", "isa=x86-64-v3" a subset of the
   target's instruction set, "spirv=13" no newer version, "no-matrix" no matrix units, others are appended
   to spirv_flags; all but the first three have no effect on targets without SPIR-V. changed may be NULL. */
bool caps_limit(struct caps *c, struct str words, bool *changed, struct err *e);
/* One operation of matrix units: D = A*B + C, A of m x k elements. */
struct caps_matrix { i64 m, n, k; enum dtype a, b, c, d; };
bool caps_has_dot(const struct caps *c, enum dtype a, enum dtype b, enum dtype sum); /* in this order */
bool caps_has_mmla(const struct caps *c, enum dtype a, enum dtype b, enum dtype sum);
/* removes it from the list of caps.matrix; false: end */
bool caps_matrix_next(struct str *list, struct caps_matrix *out);

#endif
