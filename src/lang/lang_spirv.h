// SPDX-License-Identifier: Apache-2.0
//
// Private to language spirv: the module under construction and its shared parts. lang_spirv_mod.c assembles
// words, types and constants; _op.c emits scalar operators; _half.c small and packed types; _pair.c 64-bit
// integers on targets without them; _value.c the lanes of values; _array.c variables; _mem.c accesses;
// _frag.c fragments; _body.c traverses a kernel. Only these files and spirv.c include this header.
//
// Values are scalarised: a vector of kernel IR is one id per lane, created on demand. The
// type of a lane depends on the vector's type only (enum spv_reg): integers of up to 32 bits,
// halves (their bits) and index arithmetic are unsigned words. Vectors of types smaller than
// a word may instead exist as packed words; requests for lanes or words convert them.
#ifndef QUERN_LANG_SPIRV_H
#define QUERN_LANG_SPIRV_H

#include "core/spirv.h"
#include "lang/lang.h"

enum spv_reg { /* representation of a lane */
    SR_BOOL,
    SR_U32,
    SR_U64,
    SR_F32,
    SR_F64,
};

/* Variables of one array: bound buffers have one for every width they are accessed in. */
struct spv_array {
    enum spirv_storage storage;
    u32 size;         /* bytes of an element in memory; REG: of a lane */
    u32 unit;         /* SHARED: bytes of the variable's elements */
    u32 binding;      /* of a buffer */
    bool is_wide;     /* i64 kept in 64 bits */
    bool is_pair;     /* of 64-bit integers that are pairs of words */
    bool is_packed;   /* REG: elements are packed words */
    bool is_coherent; /* written and read by threads of one workgroup */
    u32 per;          /* REG: words or lanes of an element */
    i64 count;        /* REG: elements */
    u32 var[5];       /* by log2 of the unit's bytes; SHARED, REG: var[0] */
    u32 *lane_var;    /* REG of one element: a variable per word or lane */
    u32 frag;         /* REG of fragments: their type */
};

struct spv {
    const struct kir *k;
    const struct caps *caps;
    struct arena *arena;
    struct err *err;     /* sticky */
    u32 version;         /* 10, 13 ... for 1.0, 1.3 ... */
    bool is_vulkan;      /* memory model: Vulkan's, else GLSL450 */
    bool params_pushed;  /* parameters are push constants */
    bool has_base;       /* some grid may be launched in pieces, see spv_kernel */
    u32 n_param;         /* words of parameters: the kernel's, then the three of the base */
    u32 n_ids;           /* number of allocated ids */

    /* sections, in the order of a module */
    struct buf capabilities, extensions, entries, modes, strings, names;
    struct buf decorations, globals, functions;
    struct map known;    /* types and constants: their words -> id; names of extensions */
    struct { u32 *v; u32 n, cap; } needed; /* capabilities */
    u32 glsl;            /* the imported instruction set GLSL.std.450, 0: not yet */

    /* for debuggers, if requested */
    u32 file;            /* name of the kernel's text, 0: no names and lines */
    u32 *line;           /* of every instruction in that text, 0: none */
    u32 debug_set, debug_source, debug_unit; /* instruction set NonSemantic.Shader.DebugInfo.100 */

    /* of all instructions, by kval */
    u32 *lane_at;        /* its first lane in lane[] */
    u32 *word_at;        /* its first packed word in word[] */
    u32 *lane, *word;    /* ids, 0: not created yet */
    u32 *quot[5];        /* index / 2^n, n = 1 .. 4 */
    bool *wide;          /* i64 kept in 64 bits */
    struct spv_array **array;
    struct { u32 **v; u32 n, cap; } made; /* filled slots, cleared at the end of their block */
    u32 params;          /* variable of the parameters */
    u32 input[32];       /* builtin variables, by enum spirv_builtin below 32 */
    u32 input_lane[2];   /* SubgroupId, SubgroupLocalInvocationId */

    /* of the function being written */
    struct buf vars, prologue, code;
    struct { u32 *v; u32 n, cap; } used; /* global variables, for the entry point */
    u32 *param;          /* values, by number */
    u32 input_value[3][3]; /* WorkgroupId, LocalInvocationId, and both subgroup numbers */
    u32 label;           /* of the current block */
    i64 shared_bytes;
    struct { u32 *v; u32 n, cap; } function; /* the entry points */
};

/* lang_spirv_mod.c: words. */
void spv_put(struct buf *b, enum spirv_op op, const u32 *w, u32 n);
#define SPV_PUT(b, op, ...)                                                                        \
    spv_put((b), (op), (const u32[]){__VA_ARGS__}, (u32)countof(((const u32[]){__VA_ARGS__})))
void spv_put_text(struct buf *b, enum spirv_op op, const u32 *w, u32 n, struct str text,
                  const u32 *more, u32 n_more);
u32 spv_id(struct spv *s);
bool spv_fail(struct spv *s, const char *what); /* "kernel 'x' WHAT"; returns false */
void spv_need(struct spv *s, enum spirv_capability c);
void spv_extension(struct spv *s, const char *name);
u32 spv_glsl(struct spv *s);                    /* the instruction set's id */
/* A type or constant, unique in the module. */
u32 spv_type(struct spv *s, enum spirv_op op, const u32 *w, u32 n);
#define SPV_TYPE(s, op, ...)                                                                       \
    spv_type((s), (op), (const u32[]){__VA_ARGS__}, (u32)countof(((const u32[]){__VA_ARGS__})))
u32 spv_type_int(struct spv *s, u32 bits);
u32 spv_type_reg(struct spv *s, enum spv_reg r);
u32 spv_type_vec(struct spv *s, u32 type, u32 n); /* n = 1: type itself */
u32 spv_type_pointer(struct spv *s, enum spirv_storage storage, u32 type);
u32 spv_u32(struct spv *s, u32 v);
u32 spv_const_i(struct spv *s, enum spv_reg r, i64 v);
u32 spv_const_f(struct spv *s, enum spv_reg r, double v);
/* Instructions of the function, with a result; operands end at the first 0. Operands are passed as
   lists, because compilers evaluate arguments in different orders and operands may be instructions
   still to be emitted. arg: begins with the result's type, unless it is given as enum spv_reg. */
u32 spv_ins(struct spv *s, enum spirv_op op, const u32 arg[4]);
bool spv_is_pair(const struct spv *s, enum spv_reg r);
void spv_label(struct spv *s, u32 id);           /* starts a block */
void spv_branch(struct spv *s, u32 to);
u32 spv_ext(struct spv *s, u32 number, const u32 arg[4]);        /* of GLSL.std.450 */
/* of operands that are not pairs of words */
u32 spv_op2(struct spv *s, enum spirv_op op, enum spv_reg r, const u32 arg[2]);
u32 spv_select(struct spv *s, enum spv_reg r, const u32 arg[3]);
#define SPV_OP2(s, op, r, ...) spv_op2((s), (op), (r), (const u32[2]){__VA_ARGS__})
#define SPV_SELECT_OF(s, r, ...) spv_select((s), (r), (const u32[3]){__VA_ARGS__})
/* lang_spirv_arith.c: of any operands */
u32 spv_bin(struct spv *s, enum spirv_op op, enum spv_reg r, const u32 arg[2]);
u32 spv_choose(struct spv *s, enum spv_reg r, const u32 arg[3]); /* OpSelect */
#define SPV_INS(s, op, ...) spv_ins((s), (op), (const u32[4]){__VA_ARGS__})
#define SPV_BIN(s, op, r, ...) spv_bin((s), (op), (r), (const u32[2]){__VA_ARGS__})
#define SPV_CHOOSE(s, r, ...) spv_choose((s), (r), (const u32[3]){__VA_ARGS__})
#define SPV_EXT(s, number, ...) spv_ext((s), (number), (const u32[4]){__VA_ARGS__})
/* A comparison of operands of r. */
u32 spv_test(struct spv *s, enum spirv_op op, enum spv_reg r, const u32 arg[2]);
#define SPV_TEST(s, op, r, ...) spv_test((s), (op), (r), (const u32[2]){__VA_ARGS__})
/* A module-level variable that the function uses. */
void spv_use(struct spv *s, u32 var);
bool spv_assemble(struct spv *s, struct buf *out);

/* lang_spirv_type.c: representation of values. */
enum spv_reg spv_reg(const struct spv *s, kval v);
u32 spv_lanes(const struct spv *s, kval v);
u32 spv_words(const struct spv *s, kval v);
bool spv_has_words(const struct spv *s, kval v); /* could exist as packed words */
u32 spv_type_component(struct spv *s, enum dtype t);
u32 spv_type_frag(struct spv *s, kval v);

/* lang_spirv_op.c: pure operators on one lane. */
u32 spv_scalar(struct spv *s, enum kir_op op, enum dtype t, enum spv_reg r, const u32 *x);
u32 spv_wrap(struct spv *s, enum dtype t, u32 x); /* reduces a small integer to its type's range */
u32 spv_cast(struct spv *s, kval v, u32 x);       /* one lane of CAST v; x: its operand */
u32 spv_bits(struct spv *s, enum dtype from, enum dtype to, u32 x);

/* lang_spirv_pair.c: 64-bit integers as pairs of words, for targets without them. */
u32 spv_low(struct spv *s, u32 x);
u32 spv_pair_bin(struct spv *s, enum spirv_op op, const u32 arg[2]); /* results are pairs */
u32 spv_pair_test(struct spv *s, enum spirv_op op, u32 a, u32 b);
u32 spv_pair_choose(struct spv *s, u32 cond, u32 a, u32 b);
u32 spv_pair_abs(struct spv *s, u32 x);
u32 spv_pair_to_float(struct spv *s, bool is_signed, enum spv_reg to, u32 x); /* f32 or f64 */
u32 spv_pair_from_float(struct spv *s, enum spv_reg from, u32 x);

/* lang_spirv_half.c: halves as bits, and packed words. */
static inline bool spv_is_half(enum dtype t) { return t == DT_F16 || t == DT_BF16; }
u32 spv_from_half(struct spv *s, enum dtype t, u32 bits);  /* to f32 */
u32 spv_to_half(struct spv *s, enum dtype t, u32 x);       /* from f32, to bits in the low half */
u32 spv_to_half2(struct spv *s, enum dtype t, u32 x, u32 y); /* to a word */
void spv_from_half2(struct spv *s, enum dtype t, u32 word, u32 *x, u32 *y);
u32 spv_unpack(struct spv *s, enum dtype t, u32 word, u32 i); /* lane i of a word */
u32 spv_pack(struct spv *s, enum dtype t, const u32 *lane);   /* a word of lanes */

/* lang_spirv_value.c: lanes and words of values. */
void spv_find_wide(struct spv *s);               /* once: which i64 are 64 bits wide ... */
void spv_number_values(struct spv *s);           /* ... and the memory of lanes and words */
bool spv_is_packed(const struct spv *s, kval v); /* is packed, and some lane is not available */
u32 spv_lane(struct spv *s, kval v, u32 i);
u32 spv_lane_as(struct spv *s, kval v, u32 i, enum spv_reg r); /* i64: of the requested width */
u32 spv_resize(struct spv *s, u32 id, enum spv_reg from, enum spv_reg to); /* i64 to that width */
u32 spv_word(struct spv *s, kval v, u32 i);
void spv_set_lane(struct spv *s, kval v, u32 i, u32 id);
void spv_set_word(struct spv *s, kval v, u32 i, u32 id);
u32 spv_quot(struct spv *s, kval v, u32 log2);   /* an index divided by 2^log2, known to be whole */
u32 spv_scope(struct spv *s);                    /* values created from here on ... */
void spv_leave(struct spv *s, u32 mark);         /* ... are dropped */
u32 spv_thread(struct spv *s, u32 dim);          /* of the group */
u32 spv_group(struct spv *s, u32 dim);           /* WorkgroupId */
u32 spv_subgroup(struct spv *s, bool is_lane);   /* its number, or that of the thread in it */
u32 spv_parameter(struct spv *s, i64 i);

/* lang_spirv_body.c: the kernel. */
void spv_kernel(struct spv *s);

/* lang_spirv_array.c: variables. */
enum { SPV_UNIT_MAX = 16 };
void spv_plan_arrays(struct spv *s);
void spv_alloc(struct spv *s, kval v);
void spv_finish_arrays(struct spv *s);           /* declares unused buffers, too */
u32 spv_param(struct spv *s, i64 i);             /* loads it */
/* To unit `at` of a buffer or shared array, element of a REG array. */
u32 spv_pointer(struct spv *s, kval array, u32 unit, u32 at);
u32 spv_unit_of(const struct spv *s, const struct spv_array *a, kval index); /* of an access */
u32 spv_frag_unit(struct spv *s, kval array, kval index, kval pitch);        /* of a fragment's */
u32 spv_unit_type(struct spv *s, kval array, u32 unit);
enum spv_reg spv_part_reg(const struct spv *s, kval array); /* components of a unit: lanes, or */
u32 spv_part_size(const struct spv_array *a);               /* words of small lanes; its bytes */
u32 spv_reg_type(struct spv *s, kval array);     /* a lane, word or fragment of a REG array */
bool spv_can_store_small(const struct spv *s, u32 size);
u32 spv_log2(i64 v);

/* lang_spirv_mem.c */
void spv_load(struct spv *s, kval v);
void spv_store(struct spv *s, kval v);

/* lang_spirv_frag.c: fragments, as KHR cooperative matrices. */
void spv_frag(struct spv *s, kval v);            /* FILL, FLOAD, FSTORE, FMMA, CAST, ADD */

/* lang_spirv_debug.c: names and lines; no-ops unless the target's flags request them. */
bool spv_has_flag(const struct caps *c, const char *word);
void spv_debug_open(struct spv *s);
void spv_debug_name(struct spv *s, u32 id, struct str name);
void spv_debug_array(struct spv *s, kval array, u32 id, u32 unit);
void spv_debug_value(struct spv *s, kval v, u32 i, u32 id);
void spv_debug_line(struct spv *s, kval v);
void spv_debug_function(struct spv *s, u32 function, struct str name, kval grid);

/* lang_spirv_tools.c */
bool spv_optimize(struct buf *module, double timeout, struct err *e);
bool spv_disassemble(struct buf *out, struct str module, struct err *e); /* text, by spirv-dis */

#endif
