// SPDX-License-Identifier: Apache-2.0
//
// kir: kernel IR. One kernel is a flat list of instructions in execution order, with nested
// structure marked by GRID/LOOP/IF ... END, each instruction naming its operands by number. Small
// enough to know by heart (doc/kernel-ir.md):
//
//   kernel   = arguments (BUF), then one or more grids in sequence. A grid is 1 to 3 nested GRID
//              instructions closed by as many ENDs; its iterations may run in any order and at the
//              same time. All writes of a grid are visible to the next one.
//   values   = scalars or vectors (lanes a power of two, 2..64) of a dtype. Index arithmetic is i64
//              and is assumed not to overflow; what is computed from data (loads, casts of floats) wraps, as all
//              other integers do. There are no mutable values; state lives in arrays
//              (ALLOC) and buffers (BUF), read by LOAD and written by STORE.
//   indices  = count elements of the array; an element of a REG array of lanes > 1 is a whole
//              vector and its index a scalar. Else a vector index addresses every lane by itself;
//              a ramp of stride 1 is a contiguous access.
//   sizes    = kernel parameters: i64 values computed by the host before the launch from symbolic
//              sizes (struct kir.param holds their text). Grid extents and ALLOC counts are CONST
//              or PARAM only.
//   groups   = a grid iteration is run by group[0] * group[1] * group[2] threads, in subgroups of
//              neighbours (first dimension innermost) of a size the target has, or the kernel
//              requires. Fragments are matrices that a subgroup, or a warpgroup, holds together: values of a role
//              and a shape beside their element type, with lanes 1. They are filled, loaded,
//              stored, multiplied, added (ACC), cast (ACC), and kept in REG arrays; nothing else.
//   lifetime = an ALLOC executed again is a new, undefined array. TEMP stands outside grids, WORK
//              and SHARED directly in a grid's body (not in LOOP or IF), REG anywhere in a grid
//              with a CONST count. Only REG has lanes > 1.
//
// Invariants (kir_verify): operands precede their use and are in scope; types match by the rules of
// kir.inc; every structure is closed; GRID only at top level, nothing but CONST and PARAM between
// nested GRIDs and nothing after an inner END; nothing outside grids but BUF, CONST, PARAM and TEMP
// arrays; no STORE to an IN buffer; f16 and bf16 scalars are only moved and converted; BARRIER not
// inside IF; group[0] is a multiple of a required subgroup. This folder knows nothing of tensors,
// operators, languages or devices.
#ifndef QUERN_KIR_H
#define QUERN_KIR_H

#include "core/core.h"

enum kir_op {
    KI_NONE,
#define X(id, name, n, cls, rule) KI_##id,
#include "kir/kir.inc"
#undef X
    N_KIR_OPS
};

/* Sets of operators as labels: `case KIR_ROUNDING:`. A switch over sets and members is complete, so
   the compiler reports each switch that does not handle a new operator, unless it is added to a set.
   Operators of KIR_LANEWISE compute each lane of the result from that lane of the operands. */
#define KIR_NO_OP          KI_NONE: case N_KIR_OPS
#define KIR_LEAVES         KI_CONST: case KI_PARAM: case KI_THREAD: case KI_SUBGROUP
#define KIR_HORIZONTAL     KI_HADD: case KI_HMIN: case KI_HMAX
#define KIR_LANES          KI_RAMP: case KI_SPLAT: case KI_LANE: case KI_HALVES: case KI_ZIP: case KIR_HORIZONTAL
#define KIR_DOTS           KI_DOT: case KI_MMLA
#define KIR_CONVERSIONS    KI_CAST: case KI_BITS
#define KIR_TRIGONOMETRIC  KI_SIN: case KI_COS: case KI_TAN
#define KIR_ARCS           KI_ASIN: case KI_ACOS: case KI_ATAN
#define KIR_HYPERBOLIC     KI_SINH: case KI_COSH: case KI_TANH: case KI_ASINH: case KI_ACOSH: case KI_ATANH
#define KIR_EXPONENTIALS   KI_EXP: case KI_LOG: case KIR_HYPERBOLIC: case KI_ERF
#define KIR_TRANSCENDENTAL KIR_TRIGONOMETRIC: case KIR_ARCS: case KIR_EXPONENTIALS
#define KIR_FUNCTIONS      KI_SQRT: case KIR_TRANSCENDENTAL
#define KIR_ROUNDING       KI_FLOOR: case KI_CEIL: case KI_TRUNC: case KI_RINT
#define KIR_CLASSIFYING    KI_ISNAN: case KI_ISINF
#define KIR_UNARY          KI_NEG: case KI_ABS: case KI_NOT: case KIR_FUNCTIONS: case KIR_ROUNDING: case KIR_CLASSIFYING
#define KIR_ARITHMETIC     KI_ADD: case KI_SUB: case KI_MUL: case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX: case KI_POW
#define KIR_LOGIC          KI_AND: case KI_OR: case KI_XOR
#define KIR_SHIFTS         KI_SHL: case KI_SHR
#define KIR_COMPARISONS    KI_EQ: case KI_NE: case KI_LT: case KI_LE
#define KIR_BINARY         KIR_ARITHMETIC: case KIR_LOGIC: case KIR_SHIFTS: case KIR_COMPARISONS
#define KIR_LANEWISE       KIR_CONVERSIONS: case KIR_UNARY: case KIR_BINARY: case KI_FMA: case KI_SELECT
#define KIR_ARRAYS         KI_BUF: case KI_ALLOC
#define KIR_MEMORY         KI_LOAD: case KI_STORE: case KI_TILE: case KI_PREFETCH
#define KIR_CONTROL        KI_GRID: case KI_LOOP: case KI_IF: case KI_ELSE: case KI_END
#define KIR_SYNC           KI_BARRIER: case KI_AWAIT
#define KIR_SG_REDUCTIONS  KI_SGADD: case KI_SGMIN: case KI_SGMAX
#define KIR_FRAGMENTS      KI_FILL: case KI_FLOAD: case KI_FSTORE: case KI_FMMA
#define KIR_COLLECTIVES    KIR_SG_REDUCTIONS: case KI_SHUFFLE: case KIR_FRAGMENTS
#define KIR_STRUCTURE      KIR_ARRAYS: case KIR_MEMORY: case KIR_CONTROL: case KIR_SYNC
#define KIR_NOT_LANEWISE   KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KIR_DOTS: case KIR_STRUCTURE: case KIR_COLLECTIVES

enum kir_space {
    KS_REG,    /* per thread, small constant size; registers when indexed by constants */
    KS_WORK,   /* per worker scratch memory; undefined at the start of every grid iteration */
    KS_SHARED, /* per workgroup */
    KS_TEMP,   /* of the whole kernel: persists from grid to grid */
};

enum kir_loop {
    KL_SERIAL, /* as written */
    KL_UNROLL, /* constant number of iterations; replaced by copies of its body when legalised */
    KL_VECTOR, /* iterations are independent; the target's compiler may vectorise */
};

enum kir_access { KA_IN, KA_OUT, KA_INOUT }; /* OUT: every element is written before it is read */

/* Of a STORE. */
enum kir_way {
    KW_PLAIN,
    KW_COPY,   /* asynchronous: see AWAIT */
    KW_STREAM, /* non-temporal: not read soon, need not be cached */
};

/* Of a PREFETCH: where the element is wanted. */
enum kir_cache {
    KC_FIRST,
    KC_SECOND, /* read so much later that other data leave the first cache, or more lines are under way than it can wait for */
};

/* Of a fragment: (m, k), (k, n), (m, n) of a matmul. At most KIR_MAX_SIDE rows and columns. */
enum { KIR_MAX_SIDE = 256 };
/* Of a fragment's elements in memory: element (r, c) is array[at + ...]. GROUPS: of an operand B whose terms lie as those of a DOT, g = kir_frag_group
   neighbours column by column. */
enum kir_frag_order {
    KF_ROWS,    /* r*pitch + c */
    KF_COLUMNS, /* r + c*pitch */
    KF_GROUPS,  /* r/g*pitch + c*g + r%g */
};
enum kir_role { KR_NONE, KR_A, KR_B, KR_ACC };

typedef u32 kval; /* number of an instruction, 0 = none */

struct kir_ins {
    enum kir_op op : 8;
    u8 dtype;   /* enum dtype of the result (element type for BUF and ALLOC); DT_NONE: no result */
    u8 lanes;   /* 1 = scalar */
    u8 aux;     /* LOOP: enum kir_loop, ALLOC: enum kir_space, BUF: enum kir_access, STORE: enum kir_way;
                   PREFETCH: enum kir_cache;
                   FLOAD, FSTORE: enum kir_frag_order */
    kval a, b, c, d;
    u32 role : 8, rows : 12, cols : 12; /* fragment, or array of them: enum kir_role and shape; else 0 */
    union { i64 i; double f; } imm;
};

/* Only fragments of roles A and B may have type tf32: they are loaded from arrays of f32 and rounded as by tf32_from_f32. */
struct kir_frag { /* the type of a fragment */
    enum kir_role role;
    enum dtype dtype;
    u16 rows, cols;
};

struct kir_buf {
    struct str name; /* identifier, unique in the kernel */
    kval id;         /* its BUF instruction */
};

/* A matrix in an IN buffer from which TILE copies boxes; sizes in elements. Rows, row
   pitch, and rows of a box are multiples of 16 bytes, the number of columns need not be. */
struct kir_map {
    u32 buf; /* number of the argument */
    i64 rows, cols, pitch;
    u32 box_rows, box_cols; /* at most KIR_MAX_SIDE */
};

union kir_cell { /* one lane of a value: integers and bool extended to 64 bits, floats as double */
    i64 i;
    double f;
};

struct kir_scope; /* stack of the builder */
struct kir_side;  /* facts of the builder about each instruction */

struct kir {
    struct arena *arena;
    struct str name;                                  /* identifier: the kernel's entry point */
    struct { struct kir_ins *v; u32 n, cap; } ins;    /* v[0] unused */
    struct { struct kir_buf *v; u32 n, cap; } buf;    /* arguments in order */
    struct { struct str *v; u32 n, cap; } param;      /* size expression of each parameter */
    struct { struct kir_map *v; u32 n, cap; } map;    /* matrices that TILE copies from */
    u32 group[3];                                     /* threads of a workgroup per dimension, 0 = 1 */
    u32 subgroup;                                     /* required subgroup size; 0: any */
    u32 warpgroup;                                    /* neighbouring subgroups that hold a fragment together; 0: 1 */
    bool as_written;                                  /* no contraction: a multiplication and an addition round
                                                         separately, an FMA rounds once wherever the target has it
                                                         (Vulkan: once or twice by the device's choice, uniformly) */
    struct { struct kir_side *v; u32 n, cap; } side;  /* builder: parallel to ins */
    struct { kval *v; u32 n; } head;                  /* builder: hash table of shared values */
    struct { struct kir_scope *v; u32 n, cap; } scope; /* builder: open structures */
};

/* kir.c: the table of operators, and queries about values. */

struct kir_op_info { const char *name; u8 n_args; char cls, rule; };
const struct kir_op_info *kir_op_info(enum kir_op op);
static inline const struct kir_ins *kir_at(const struct kir *k, kval v) { return &k->ins.v[v]; }
u32 kir_lanes(const struct kir *k, kval v);
enum dtype kir_dtype(const struct kir *k, kval v);
bool kir_is_const(const struct kir *k, kval v, i64 *out);    /* integer or bool, equal lanes */
bool kir_is_float(const struct kir *k, kval v, double *out); /* float; out may be NULL for both */
bool kir_is_size(const struct kir_ins *x);                   /* a parameter, or an i64 constant, a scalar */
bool kir_is_named(const struct kir_ins *x);                  /* printed as %n */
bool kir_is_copy(const struct kir *k, kval store);           /* an asynchronous store: kir_store_async */
bool kir_is_contiguous(const struct kir *k, kval idx);       /* one element, or contiguous ones */
bool kir_is_far(const struct kir_ins *x);                    /* an argument or a TEMP array */
u32 kir_text_id(const struct kir *k, kval v);                /* its n; 0: none */
bool kir_has_imm(enum kir_op op);                            /* imm.i is printed as an operand */
bool kir_is_frag(const struct kir *k, kval v);               /* or an array of fragments */
/* element type of the arrays that a fragment of that type is loaded from */
enum dtype kir_frag_stored(enum dtype t);
struct kir_frag kir_frag_of(const struct kir_ins *x);        /* its type; KR_NONE: not a fragment */
bool kir_is_collective(const struct kir *k, kval v);         /* executed by all threads of a subgroup jointly */
u32 kir_threads(const struct kir *k);                        /* of a group */
/* Elements of a group of KF_GROUPS: those of four bytes; 0: there is no such order of the type. */
u32 kir_frag_group(enum dtype t);
/* A thread has fragments of its own, as on processors: it is its workgroup and its subgroup. */
bool kir_is_alone(const struct kir *k);
u32 kir_warpgroup(const struct kir *k);                      /* subgroups that hold a fragment, at least 1 */
bool kir_has_op(const struct kir *k, enum kir_op op);
kval kir_operand(const struct kir_ins *x, u32 i);            /* operand a, b, c, d by number */
/* Length of a dot product: products that DOT adds to a lane of type sum: 4 of 8-bit, 2 of
   16-bit integers (signs may differ) to i32, 2 of bf16 or of f16 to f32, 2 of u8 by i8 to i16;
   0: unsupported. The sum of the latter two saturates (vpmaddubsw) before it is added. */
u32 kir_dot_terms(enum dtype a, enum dtype b, enum dtype sum);
/* Of a lane of DOT or MMLA, by a target's terms per lane: the first lanes of both operands whose products it adds, and how many. */
u32 kir_dot_places(enum kir_op op, u32 terms, u32 lane, u32 *a, u32 *b);
bool kir_opens(enum kir_op op);                              /* GRID, LOOP, IF: closed by an END */
const char *kir_space_name(enum kir_space s);
const char *kir_loop_name(enum kir_loop l);
const char *kir_access_name(enum kir_access a);
const char *kir_way_name(enum kir_way w); /* the keyword of a STORE */
const char *kir_role_name(enum kir_role r);

/* fold.c: semantics of the pure scalar operators, shared by builder and
   interpreter. t is the type of operand a (of b for SELECT), to that of
   the result. False: the result is undefined (integer division by zero). */
bool kir_scalar(enum kir_op op, enum dtype t, enum dtype to, const union kir_cell x[3],
                union kir_cell *out);
/* One lane of DOT: sum of type t. */
union kir_cell kir_dot_cell(enum dtype t, const union kir_cell *a, const union kir_cell *b, u32 n_terms,
                            union kir_cell sum);
i64 kir_wrap(enum dtype t, i64 v);        /* to the integer or bool type t */
double kir_round(enum dtype t, double v); /* to the float type t */

/* build.c: the builder. Folds constants, applies identities, shares equal pure instructions that
   are in scope (loads of KA_IN buffers count as pure), and splats scalars where the other operand
   is a vector. The result may be any earlier instruction. Types must match (assert). Helpers with
   lanes accept 1 and then give scalars, so a kernel family is written once for any vector width. */

void kir_init(struct kir *k, struct arena *a, struct str name);
/* Copies the properties of a whole kernel except name and parameters (workgroup, rounding, maps) to a kernel initialised by kir_init. */
void kir_copy_header(struct kir *out, const struct kir *in);
kval kir_buf(struct kir *k, struct str name, enum dtype t, enum kir_access access);
kval kir_param(struct kir *k, struct str text);             /* equal texts share one parameter */
kval kir_int(struct kir *k, i64 v);                         /* i64 constant */
kval kir_const_i(struct kir *k, enum dtype t, u32 lanes, i64 v);
kval kir_const_f(struct kir *k, enum dtype t, u32 lanes, double v);
kval kir_ramp(struct kir *k, kval base, i64 stride, u32 lanes);
kval kir_splat(struct kir *k, kval a, u32 lanes);           /* lanes 1 or those of a: a itself */
kval kir_repeat(struct kir *k, kval a, u32 lanes);          /* the lanes of a, repeated */
kval kir_lane(struct kir *k, kval a, i64 lane);
kval kir_every(struct kir *k, kval a, i64 from, u32 lanes); /* that many lanes, evenly spaced: LANE */
kval kir_un(struct kir *k, enum kir_op op, kval a);
kval kir_bin(struct kir *k, enum kir_op op, kval a, kval b);
kval kir_fma(struct kir *k, kval a, kval b, kval c);
/* lanes as c; a and b have kir_dot_terms times as many */
kval kir_dot(struct kir *k, kval a, kval b, kval c);
kval kir_mmla(struct kir *k, kval a, kval b, kval c);
kval kir_halves(struct kir *k, kval a, kval b, i64 half); /* of a, then of b */
/* Lanes from, from + 1 ... of a[0], b[0], a[1], b[1] ...: `lanes` of them, a divisor of from and of the sequence's length. */
kval kir_zip(struct kir *k, kval a, kval b, i64 from, u32 lanes);
/* The lanes of n vectors, 2 or 4 of equally many lanes, in turn (v[0][0], v[1][0] ... v[0][1] ...): this piece of them, of n*lanes. */
kval kir_interleave(struct kir *k, const kval *v, i64 n, i64 piece, u32 lanes);
kval kir_select(struct kir *k, kval cond, kval a, kval b);
kval kir_cast(struct kir *k, enum dtype t, kval a);
kval kir_bits(struct kir *k, enum dtype t, kval a);
kval kir_alloc(struct kir *k, enum kir_space s, enum dtype t, u32 lanes, kval count);
/* A SHARED array whose bytes a target may swizzle, so that equal columns of adjacent rows of 128 bytes are in different
   banks: byte b is stored at b ^ (b >> 7 & 7) << 4. Pieces of 16 bytes stay contiguous; the order is invisible to the kernel. */
kval kir_alloc_swizzled(struct kir *k, enum dtype t, kval count);
kval kir_load(struct kir *k, kval buf, kval idx);           /* lanes of idx times the array's */
kval kir_load_n(struct kir *k, kval buf, kval idx, kval n); /* idx is a ramp or scalar; the other lanes are 0 */
void kir_store(struct kir *k, kval buf, kval idx, kval val);
void kir_store_n(struct kir *k, kval buf, kval idx, kval val, kval n);
/* A store to a SHARED array that may complete as late as an await: no thread may access the elements
   before. Stores of anything but a contiguous load of an argument or a TEMP array are immediate. */
void kir_store_async(struct kir *k, kval buf, kval idx, kval val);
/* A non-temporal store to an argument or a TEMP array: not read before much else has been stored. n 0: all lanes. */
void kir_stream(struct kir *k, kval buf, kval idx, kval val, kval n);
/* The number of a map; equal maps share it. */
u32 kir_map(struct kir *k, const struct kir_map *m);
/* Copies a box of the matrix, issued by the workgroup's first thread alone: row by row, without
   gaps, to the SHARED array of the same type from a multiple of 128 bytes on (swizzled: of
   1024); elements outside of the matrix are zero. Asynchronous like kir_store_async. */
struct kir_tile { kval array, at; u32 map; kval row, col; };
void kir_tile(struct kir *k, const struct kir_tile *x);
/* Waits until at most that many groups of the thread's asynchronous copies are pending: see
   AWAIT. */
void kir_await(struct kir *k, i64 newest);
void kir_prefetch(struct kir *k, kval buf, kval idx);       /* a hint: idx may be out of bounds */
void kir_prefetch_to(struct kir *k, enum kir_cache to, kval buf, kval idx);
kval kir_grid(struct kir *k, kval extent);                  /* opens one dimension */
kval kir_loop(struct kir *k, enum kir_loop kind, kval from, kval to, i64 step);
void kir_if(struct kir *k, kval cond);
void kir_else(struct kir *k);
void kir_end(struct kir *k);                                /* closes the innermost open structure */
void kir_barrier(struct kir *k);
kval kir_thread(struct kir *k, u32 dim);

/* Subgroups and fragments; k->group and k->subgroup are set before these. */
kval kir_subgroup(struct kir *k, u32 which);                 /* its number; 1: the thread's number in it */
kval kir_sg(struct kir *k, enum kir_op op, kval a);          /* SGADD, SGMIN, SGMAX */
kval kir_shuffle(struct kir *k, kval a, kval b);             /* a of thread b of the subgroup */
/* REG; indices must be constant after unrolling. */
kval kir_alloc_frag(struct kir *k, const struct kir_frag *f, kval count);
kval kir_frag_fill(struct kir *k, const struct kir_frag *f, kval a);
kval kir_frag_load(struct kir *k, const struct kir_frag *f, kval buf, kval idx, kval pitch,
                   bool by_columns);
/* Of an array stored in panels: lines are `pitch` elements long, and longer lines of a fragment continue `panels`
   elements after their beginning: element (r, c) is array[at + r*pitch + c % pitch + c / pitch * panels]. */
struct kir_frag_place { kval array, at, pitch, panels; enum kir_frag_order order; };
kval kir_frag_load_at(struct kir *k, const struct kir_frag *f, const struct kir_frag_place *p);
void kir_frag_store(struct kir *k, kval buf, kval idx, kval frag, kval pitch, bool by_columns);
/* FLOAD and FSTORE of a REG array of numbers: each thread's own elements of a fragment, of which it holds rows and columns in the order below. Element (r, c)
   of these is array[at + r*pitch + c], by columns array[at + r + c*pitch]; at and pitch count elements of the array, which by rows may be pairs of columns. */
bool kir_is_own(const struct kir *k, const struct kir_ins *x);
/* Who holds an element of a fragment of 16 rows per subgroup of 32 threads, and where among its own. */
struct kir_own { u32 thread; i64 row, col; };
enum { KIR_OWN_SUBGROUP = 32, KIR_OWN_ROWS = 16, KIR_OWN_COLS = 8 }; /* threads; rows of a subgroup; columns after which the order repeats */
struct kir_own kir_own_of(i64 row, i64 col);
kval kir_frag_mma(struct kir *k, kval a, kval b, kval c);

static inline kval kir_add(struct kir *k, kval a, kval b) { return kir_bin(k, KI_ADD, a, b); }
static inline kval kir_sub(struct kir *k, kval a, kval b) { return kir_bin(k, KI_SUB, a, b); }
static inline kval kir_mul(struct kir *k, kval a, kval b) { return kir_bin(k, KI_MUL, a, b); }
static inline kval kir_div(struct kir *k, kval a, kval b) { return kir_bin(k, KI_DIV, a, b); }
static inline kval kir_mod(struct kir *k, kval a, kval b) { return kir_bin(k, KI_MOD, a, b); }
static inline kval kir_min(struct kir *k, kval a, kval b) { return kir_bin(k, KI_MIN, a, b); }
static inline kval kir_max(struct kir *k, kval a, kval b) { return kir_bin(k, KI_MAX, a, b); }
/* KI_LT or KI_LE of indices, as kir_bin: of a ramp and the same number in all lanes by numbers of 32 bits, which take half the vectors, or fewer. */
kval kir_compare_index(struct kir *k, enum kir_op op, kval a, kval b);
static inline kval kir_lt(struct kir *k, kval a, kval b) { return kir_bin(k, KI_LT, a, b); }
static inline kval kir_add_i(struct kir *k, kval a, i64 b) { return kir_add(k, a, kir_int(k, b)); }
static inline kval kir_mul_i(struct kir *k, kval a, i64 b) { return kir_mul(k, a, kir_int(k, b)); }
static inline kval kir_div_i(struct kir *k, kval a, i64 b) { return kir_div(k, a, kir_int(k, b)); }
static inline kval kir_mod_i(struct kir *k, kval a, i64 b) { return kir_mod(k, a, kir_int(k, b)); }
kval kir_and(struct kir *k, kval a, kval b); /* build.c: both conditions, each 0 if it always holds; 0: so do both */

kval kir_push(struct kir *k, struct kir_ins x); /* appends x unchanged and unchecked */

/* simplify.c */
bool kir_commutes(enum kir_op op, bool is_float);
kval kir_scalar_of(struct kir *k, kval v); /* build.c: whose splat v is; 0: unknown */

/* range.c: bounds of i64 values, of all lanes: from constants, loop bounds, min, max, mod ... */
struct kir_range { i64 lo, hi; }; /* both included */
struct kir_range kir_range(const struct kir *k, kval v);
struct kir_range kir_diff_range(const struct kir *k, kval a, kval b); /* of a - b, scalars */
struct kir_range kir_range_of(const struct kir *k, const struct kir_ins *x);

/* whole.c: bounds of data of f32 or an integer type that is an integer, whatever was loaded; false: not known. */
enum { KIR_WHOLE = 1 << 22 }; /* largest magnitude: sums of two are exact in f32 */
bool kir_whole(const struct kir *k, kval v, struct kir_range *r);
bool kir_whole_in(const struct kir *k, kval v, enum dtype t); /* it is one, and a number of that type */

bool kir_wraps(const struct kir *k, kval v); /* an i64 computed from data without bounds: it may have wrapped */
u32 kir_data(const struct kir *k, kval v);   /* facts about that; private to range.c */
u32 kir_data_of(const struct kir *k, const struct kir_ins *x, struct kir_range r);

/* multiple.c: the largest power of two known to divide an i64 value, all lanes of it. */
i64 kir_multiple(const struct kir *k, kval v);
u32 kir_twos_of(const struct kir *k, const struct kir_ins *x); /* as exponent */

/* text.c (print), parse.c: the textual form, doc/kernel-ir.md. Round-trips. */
void kir_print(struct buf *b, const struct kir *k);
bool kir_parse(struct kir *k, struct arena *a, struct str text, struct err *e);

/* verify.c: checks the invariants above; kir_parse calls it last. */
bool kir_verify(const struct kir *k, struct err *e);

/* legal.c: a new kernel in `out` with UNROLL loops unrolled, REG arrays
   that are only indexed by constants split into single elements, dead
   code removed, and vectors wider than the limit split (i64 and bool
   vectors, addresses and masks, only along with others of as many lanes). */
struct kir_limits {
    u32 max_lanes_bytes; /* widest vector in bytes; wider ones are split; 0 = any */
    u32 max_unroll;      /* maximal number of instructions; 0 = a million */
};
bool kir_legalise(struct kir *out, struct arena *a, const struct kir *in,
                  const struct kir_limits *l, struct err *e);

/* expand.c: a new kernel in `out` with transcendental operators (EXP to ERF of
   f32 and f64, POW) replaced by arithmetic where the language requests it;
   accurate to about two ulp in f32, to 1e-14 in f64. The result relies on
   arithmetic that is not reordered. DOT becomes multiply-adds of its sum's type. */
typedef bool kir_wants(const void *user, const struct kir *k, kval v);
bool kir_can_expand(enum kir_op op, enum dtype t);
void kir_expand_math(struct kir *out, struct arena *a, const struct kir *in, kir_wants *wants,
                     const void *user);

/* avoid.c: a new kernel in `out` without the operators of a list, words "rint:f64" (of an operand of that type), "cast:f32:f16",
   "div:f32=0" (by a constant), "loop:i64" (register arrays of that type), replaced by simpler operators. It relies on arithmetic
   that is not reordered. An error if an operator has no replacement, or if the word says that none works, "!abs:i32". */
bool kir_avoid(struct kir *out, struct arena *a, const struct kir *in, struct str list, struct err *e);
bool kir_can_avoid(enum kir_op op, enum dtype t, enum dtype to); /* there is a replacement */
/* The kernel that a language emits: without the operators of the list, whether its own or of
   expanded transcendental operators. */
bool kir_lower(struct kir *out, struct arena *a, const struct kir *in, kir_wants *wants, const void *user, struct str avoid, struct err *e);

/* spread.c: a new kernel in `out` for workgroups of `threads`, from one without workgroups:
   one old iteration per thread. Scratch arrays become REG or, if large, slices of TEMP arrays. */
bool kir_spread(struct kir *out, struct arena *a, const struct kir *in, u32 threads, struct err *e);

/* order.c: an equivalent kernel in `out` with instructions, and operands
   that commute, in a canonical order that follows from the computation;
   unused values are removed. Parameters follow the same order, without
   unused ones, unless they are kept because the host knows them already. */
void kir_order(struct kir *out, struct arena *a, const struct kir *in, bool keep_params);
/* Likewise, in an order that does not depend on sizes (kir_is_size): kernels that differ only in them have the same one. */
void kir_order_form(struct kir *out, struct arena *a, const struct kir *in);

/* share.c: kernels that differ only in sizes as one kernel that has these as parameters. */
/* A kernel in the order of its form, and the hash of all but its free sizes: those that may be parameters without making
   the code slower. Kernels with equal hashes share code. */
struct kir_form { struct kir k; struct hash hash; bool *is_free; /* per instruction: sizes that are its operands */ };
void kir_form_of(struct kir_form *out, struct arena *a, const struct kir *in);
/* Of n kernels of one form. size[i][j]: text of the new kernel's parameter j in kernel i, a number or the text of one of its own parameters. */
void kir_share(struct kir *out, struct arena *a, const struct kir_form *const *in, u32 n, struct str **size);

/* ahead.c: an equivalent kernel in `out` whose loads stand so far ahead of their users as a processor that executes in order needs, with at most
   n_regs registers of vectors; neighbouring scalars that multiply vectors are loaded together. */
void kir_ahead(struct kir *out, struct arena *a, const struct kir *in, u32 n_regs);

/* cost.c: static counts for one launch, parameters given. */
struct kir_cost {
    double flops;        /* multiply-adds count two */
    double bytes_loaded, bytes_stored; /* from and to BUF and TEMP arrays */
    double instructions; /* executed, scalar or vector alike */
    u32 n_regs;          /* estimated maximum of live vector values in an innermost loop */
};
void kir_count(const struct kir *k, const i64 *param, struct kir_cost *c);

/* eval.c: the interpreter. Runs a kernel on host memory and checks errors that
   hardware does not report: access out of bounds, reads of undefined elements (OUT,
   REG, WORK, SHARED, TEMP), conflicting accesses of two iterations of one grid if
   one of them writes, or of threads of a workgroup between barriers, barriers in
   divergent flow, division by zero, grids that did not write all of an OUT buffer;
   for subgroups divergent flow, differing operands, nonexistent threads. */
struct kir_arg { void *p; i64 n; }; /* n elements of the BUF's dtype */
enum kir_arithmetic { KIR_FLOATS, KIR_FIELD /* field.h: exact arithmetic */, KIR_TERMS /* term.h: equal only with the same roundings */ };
typedef bool kir_scalar_fn(enum kir_op op, enum dtype t, enum dtype to, const union kir_cell x[3], union kir_cell *out);
kir_scalar_fn *kir_scalar_in(enum kir_arithmetic a); /* kir_scalar in it */
union kir_cell kir_number(enum kir_arithmetic a, double v);
struct kir_eval_opts {
    u64 seed;            /* shuffles iterations, chooses the subgroup size; 0 = in order, 32 */
    i64 max_steps;       /* stop after this many instructions; 0 = 1e10 */
    i64 max_bytes;       /* limit of memory for values and arrays; 0 = 8 GiB */
    bool allow_unwritten; /* permit unwritten OUT elements */
    enum kir_arithmetic arithmetic; /* arithmetic of floats; except for KIR_FLOATS, arguments are arrays of
                                       kir_cell, with integers in .i */
    i64 *n_steps;        /* the number of executed instructions is added to it; may be NULL */
};
bool kir_eval(const struct kir *k, const struct kir_arg *arg, const i64 *param,
              const struct kir_eval_opts *o, struct err *e); /* o may be NULL */

#endif
