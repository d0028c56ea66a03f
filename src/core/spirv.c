// SPDX-License-Identifier: Apache-2.0
//
// spirv.c: the declarations of a SPIR-V module, for drivers that need them before loading. One
// traversal of the instructions, which examines declarations only and stops at the first function.
//
// Modules are untrusted: every length is checked before a word is read, every id
// before it is used, sums of sizes saturate. Types and constants are recorded by
// id, as far as sizes of push constants and shared arrays depend on them.
#include "core/spirv.h"

#include <string.h>

enum { MAX_BOUND = 1 << 22 /* ids of a module, the specification's own limit */ };

struct id { /* facts about a result */
    u16 op;
    u16 storage;      /* of a pointer type */
    u32 stride;       /* of an array type, 0: none given */
    u32 binding, set; /* 1 + the number, 0: none */
    i64 value;        /* size of a type or Workgroup variable in bytes, value of a constant */
    u32 target;       /* type that a pointer points to */
    u32 entry;        /* 1 + the number of the entry point, 0: is none */
};

struct reader {
    struct str bytes;
    struct spirv_info *info;
    struct err *e;
    struct id *id;
    u32 bound;
    struct {
        const u32 *id;
        u32 n;
    } interface[SPIRV_MAX_ENTRIES]; /* variables of entry points */
    const u32 *word;                /* of the module: a copy, for alignment */
    const u32 *w;                   /* the current instruction */
    u32 n;                          /* its words */
};

static bool bad(struct reader *r, const char *what)
{
    return err_set(r->e, ERR_INPUT, "malformed spir-v module: %s", what);
}

/* Operand i, 0 if absent. */
static u32 operand(const struct reader *r, u32 i) { return i < r->n ? r->w[i] : 0; }

static struct id *id_of(const struct reader *r, u32 i)
{
    u32 v = operand(r, i);
    return &r->id[v < r->bound ? v : 0]; /* id 0 is unused */
}

static i64 add_sizes(i64 a, i64 b)
{
    i64 s;
    return __builtin_add_overflow(a, b, &s) ? INT64_MAX : s;
}

static i64 mul_sizes(i64 a, i64 b)
{
    i64 s;
    return __builtin_mul_overflow(a, b, &s) ? INT64_MAX : s;
}

static i64 size_at(const struct reader *r, u32 i)
{
    const struct id *id = id_of(r, i);
    return id->op == SPV_CONSTANT || id->op == SPV_VARIABLE ? 0 : id->value;
}

/* The string that starts at operand i, within the module's bytes. */
static struct str string_at(const struct reader *r, u32 i)
{
    if (i >= r->n) return (struct str){0};
    const char *p = r->bytes.p + (r->w + i - r->word) * 4;
    const char *end = memchr(p, 0, (size_t)(r->n - i) * 4);
    return (struct str){p, end ? end - p : 0};
}

/* Declarations. */

static void read_capability(struct reader *r)
{
    struct spirv_info *f = r->info;
    if (f->n_capability < SPIRV_MAX_LIST) f->capability[f->n_capability++] = operand(r, 1);
}

static void read_extension(struct reader *r, struct str name)
{
    struct spirv_info *f = r->info;
    if (f->n_extension < SPIRV_MAX_LIST) f->extension[f->n_extension++] = name;
}

static bool read_entry(struct reader *r, struct str name)
{
    enum { COMPUTE = 5 };
    struct spirv_info *f = r->info;
    if (operand(r, 1) != COMPUTE) return true;
    if (f->n_entry == SPIRV_MAX_ENTRIES) return bad(r, "too many entry points");
    if (!name.n) return bad(r, "entry point without a name");
    u32 from = 3 + (u32)(name.n / 4 + 1); /* after the name and its NUL */
    if (from < r->n)
        r->interface[f->n_entry].id = r->w + from, r->interface[f->n_entry].n = r->n - from;
    f->entry[f->n_entry++] = (struct spirv_entry){.name = name, .local = {1, 1, 1}};
    if (operand(r, 2) && !id_of(r, 2)->entry) id_of(r, 2)->entry = f->n_entry;
    return true;
}

static void read_mode(struct reader *r)
{
    u32 entry = id_of(r, 1)->entry;
    if (operand(r, 2) != SPV_MODE_LOCAL_SIZE || !entry) return;
    for (u32 i = 0; i < 3; i++) r->info->entry[entry - 1].local[i] = operand(r, 3 + i);
}

static void read_string(struct reader *r, struct str text)
{
    struct str rest = {0}, prefix = S("quern subgroup=");
    i64 n;
    if (!str_starts(text, prefix)) return;
    rest = str_sub(text, prefix.n, text.n);
    if (str_to_i64(rest, &n) && n > 0 && n <= 1024) r->info->subgroup = (u32)n;
}

static void read_decoration(struct reader *r)
{
    struct id *id = id_of(r, 1);
    u32 what = operand(r, 2), value = operand(r, 3);
    if (what == SPV_DEC_ARRAY_STRIDE) id->stride = value;
    if (what == SPV_DEC_BINDING && value < UINT32_MAX) id->binding = value + 1;
    if (what == SPV_DEC_SET && value < UINT32_MAX) id->set = value + 1;
}

/* Types and constants. Members' offsets precede the type itself: the largest is kept
   as value until then; it belongs to the last member, in the order of all compilers. */
static void read_offset(struct reader *r)
{
    struct id *id = id_of(r, 1);
    if (operand(r, 3) == SPV_DEC_OFFSET) id->value = i64_max(id->value, operand(r, 4));
}

static i64 struct_size(const struct reader *r, i64 last_offset)
{
    i64 packed = 0;
    for (u32 i = 2; i < r->n; i++) packed = add_sizes(packed, size_at(r, i));
    i64 explicit = r->n > 2 ? add_sizes(last_offset, size_at(r, r->n - 1)) : 0;
    return last_offset ? explicit : packed;
}

static i64 array_size(const struct reader *r, u32 stride)
{
    i64 n = id_of(r, 3)->value, size = stride ? stride : size_at(r, 2);
    return n < 0 ? 0 : mul_sizes(n, size);
}

static void read_type(struct reader *r, u32 op)
{
    struct id *id = id_of(r, 1);
    u32 stride = id->stride;
    i64 size = 0;
    switch (op) {
    case SPV_TYPE_BOOL: size = 1; break;
    case SPV_TYPE_INT:
    case SPV_TYPE_FLOAT: size = operand(r, 2) / 8; break;
    case SPV_TYPE_VECTOR: size = mul_sizes(operand(r, 3), size_at(r, 2)); break;
    case SPV_TYPE_ARRAY: size = array_size(r, stride); break;
    case SPV_TYPE_STRUCT: size = struct_size(r, size_at(r, 1)); break;
    case SPV_TYPE_POINTER:
        id->storage = (u16)operand(r, 2);
        id->target = operand(r, 3) < r->bound ? operand(r, 3) : 0;
        break;
    default: break;
    }
    id->op = (u16)op;
    id->value = size;
}

static void read_constant(struct reader *r)
{
    struct id *id = id_of(r, 2);
    id->op = SPV_CONSTANT;
    id->value = operand(r, 3);
    if (r->n > 4) id->value = (i64)((u64)operand(r, 4) << 32 | operand(r, 3));
}

static void read_variable(struct reader *r)
{
    const struct id *type = id_of(r, 1);
    struct id *id = id_of(r, 2);
    struct spirv_info *f = r->info;
    u32 storage = operand(r, 3);
    i64 size = type->op == SPV_TYPE_POINTER ? r->id[type->target].value : 0;
    if (storage == SPV_IN_PUSH) f->push_bytes = i64_max(f->push_bytes, size);
    if (storage == SPV_IN_WORKGROUP) {
        f->shared_bytes = add_sizes(f->shared_bytes, size);
        id->op = SPV_VARIABLE;
        id->value = size;
    }
    if (id->set > f->n_set) f->n_set = id->set;
    if (id->set <= 1 && id->binding > f->n_binding) f->n_binding = id->binding;
}

static bool read_ins(struct reader *r)
{
    u32 op = r->w[0] & 0xffff; /* of enum spirv_op, or an instruction of no concern here */
    switch (op) {
    case SPV_CAPABILITY: read_capability(r); break;
    case SPV_EXTENSION: read_extension(r, string_at(r, 1)); break;
    case SPV_ENTRY_POINT: return read_entry(r, string_at(r, 3));
    case SPV_EXECUTION_MODE: read_mode(r); break;
    case SPV_STRING: read_string(r, string_at(r, 2)); break;
    case SPV_DECORATE: read_decoration(r); break;
    case SPV_MEMBER_DECORATE: read_offset(r); break;
    case SPV_TYPE_BOOL:
    case SPV_TYPE_INT:
    case SPV_TYPE_FLOAT:
    case SPV_TYPE_VECTOR:
    case SPV_TYPE_ARRAY:
    case SPV_TYPE_RUNTIME_ARRAY:
    case SPV_TYPE_STRUCT:
    case SPV_TYPE_POINTER: read_type(r, op); break;
    case SPV_CONSTANT: read_constant(r); break;
    case SPV_VARIABLE: read_variable(r); break;
    default: break;
    }
    return true;
}

/* From version 1.4 on entry points name all their variables: of shared arrays, the largest sum. */
static void share(struct reader *r)
{
    i64 most = 0;
    if (r->info->version < 14) return;
    for (u32 i = 0; i < r->info->n_entry; i++) {
        i64 sum = 0;
        for (u32 j = 0; j < r->interface[i].n; j++) {
            u32 v = r->interface[i].id[j];
            if (v < r->bound && r->id[v].op == SPV_VARIABLE) sum = add_sizes(sum, r->id[v].value);
        }
        most = i64_max(most, sum);
    }
    r->info->shared_bytes = most;
}

/* The instructions before the first function. */
static bool read_all(struct reader *r)
{
    i64 n_words = r->bytes.n / 4;
    for (i64 i = SPIRV_HEADER; i < n_words; i += r->n) {
        r->w = r->word + i;
        r->n = r->w[0] >> 16;
        if (!r->n || r->n > n_words - i) return bad(r, "instruction of invalid length");
        if ((r->w[0] & 0xffff) == SPV_FUNCTION) return true;
        if (!read_ins(r)) return false;
    }
    return true;
}

bool spirv_is_module(struct str bytes)
{
    u32 word = 0;
    if (bytes.n >= 4) memcpy(&word, bytes.p, 4);
    return word == SPIRV_MAGIC;
}

static bool read_header(struct reader *r)
{
    u32 h[SPIRV_HEADER];
    if (r->bytes.n < (i64)sizeof h || r->bytes.n % 4) return bad(r, "not a number of words");
    memcpy(h, r->bytes.p, sizeof h);
    if (h[0] != SPIRV_MAGIC) return bad(r, "wrong magic number");
    r->info->version = (h[1] >> 16 & 0xff) * 10 + (h[1] >> 8 & 0xff);
    r->bound = h[3];
    if (!r->bound || r->bound > MAX_BOUND) return bad(r, "invalid number of ids");
    return true;
}

bool spirv_read_info(struct spirv_info *info, struct str module, struct err *e)
{
    *info = (struct spirv_info){0};
    struct reader r = {.bytes = module, .info = info, .e = e};
    if (!read_header(&r)) return false;
    u32 *copy = mem_alloc(module.n);
    memcpy(copy, module.p, (size_t)module.n);
    r.word = copy;
    r.id = mem_alloc((i64)sizeof *r.id * r.bound);
    bool ok = read_all(&r);
    if (ok) share(&r);
    mem_free(r.id);
    mem_free(copy);
    return ok;
}

bool spirv_has_capability(const struct spirv_info *info, enum spirv_capability c)
{
    for (u32 i = 0; i < info->n_capability; i++)
        if (info->capability[i] == (u32)c) return true;
    return false;
}
