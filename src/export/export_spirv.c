// SPDX-License-Identifier: Apache-2.0
//
// One grid of a kernel, and as a SPIR-V module of its own. vkdt runs the entry point
// "main" of a file and binds the connectors of a node, in order, to descriptor set
// 1; quern's kernels have an entry point per grid and their arguments in set 0.
//
// Functions of other grids stay, unreachable: removing them would need a table of all
// instructions, and drivers remove them anyway. The buffers that a grid reads and writes
// are found by following pointers from the variables through the functions that its entry
// point calls, so grids are ordered by the buffers that they use, not by all arguments.
//
// Modules come from files: every length and id is checked before it is used.
#include "export/export_spirv.h"

#include <string.h>

enum { /* instructions that quern does not emit but may encounter */
       OP_FUNCTION_CALL = 57,
       OP_COPY_MEMORY = 63,
       OP_IN_BOUNDS_ACCESS_CHAIN = 66,
       OP_PTR_ACCESS_CHAIN = 67,
       OP_ARRAY_LENGTH = 68,
       OP_COPY_OBJECT = 83,
       OP_ATOMIC_LOAD = 227,
       OP_ATOMIC_STORE = 228,
       OP_ATOMIC_EXCHANGE = 229,
       OP_ATOMIC_XOR = 242,
       OP_EXECUTION_MODE_ID = 331,
};

enum { MAX_BOUND = 1 << 22, MAX_BINDING = 1 << 12 };

struct words {
    u32 *v;
    u32 n, bound;
    u32 entry; /* id of the grid's function */
};

struct tracer {
    struct words w;
    u32 *root;   /* per id: 1 + binding of the variable a pointer leads to, 0: other */
    u8 *is_live; /* per id of a function: the entry point reaches it */
    struct spirv_grid *k;
};

static bool malformed(struct err *e, const char *what)
{
    return err_set(e, ERR_INPUT, "malformed spir-v module: %s", what);
}

static u32 op_at(const struct words *w, u32 i) { return w->v[i] & 0xffff; }
static u32 len_at(const struct words *w, u32 i) { return w->v[i] >> 16; }

/* Operand k of the instruction at i, 0: none. */
static u32 operand(const struct words *w, u32 i, u32 k)
{
    return k < len_at(w, i) ? w->v[i + k] : 0;
}

/* Likewise as an id; 0 is invalid. */
static u32 id_at(const struct words *w, u32 i, u32 k)
{
    u32 id = operand(w, i, k);
    return id < w->bound ? id : 0;
}

static bool read_words(struct words *w, struct str module, struct arena *a, struct err *e)
{
    *w = (struct words){.v = arena_alloc(a, module.n), .n = (u32)(module.n / 4)};
    memcpy(w->v, module.p, (size_t)w->n * 4);
    w->bound = w->v[3];
    if (w->bound > MAX_BOUND) return malformed(e, "invalid number of ids");
    for (u32 i = SPIRV_HEADER; i < w->n; i += len_at(w, i))
        if (len_at(w, i) == 0 || len_at(w, i) > w->n - i)
            return malformed(e, "instruction of invalid length");
    return true;
}

/* Entry points. */

static struct str entry_name(const struct words *w, u32 i)
{
    const char *p = (const char *)(w->v + i + 3);
    i64 room = ((i64)len_at(w, i) - 3) * 4;
    const char *end = room > 0 ? memchr(p, 0, (size_t)room) : NULL;
    return (struct str){p, end ? end - p : 0};
}

static u32 find_entry(const struct words *w, struct str name)
{
    for (u32 i = SPIRV_HEADER; i < w->n; i += len_at(w, i))
        if (op_at(w, i) == SPV_ENTRY_POINT && str_eq(entry_name(w, i), name)) return id_at(w, i, 2);
    return 0;
}

static void put_entry(struct words *out, const struct words *in, u32 i)
{
    u32 name = (u32)(entry_name(in, i).n / 4 + 1), rest = 3 + name, n = len_at(in, i) - rest;
    u32 at = out->n;
    memcpy(out->v + at, in->v + i, 3 * 4);
    memcpy(out->v + at + 3, "main\0\0\0", 8);
    memcpy(out->v + at + 5, in->v + i + rest, (size_t)n * 4);
    out->n += 5 + n;
    out->v[at] = (5 + n) << 16 | SPV_ENTRY_POINT;
}

/* A copy with one entry point. */
static void keep_entry(struct words *out, const struct words *in, u32 entry, struct arena *a)
{
    *out = (struct words){.v = arena_array(a, u32, (i64)in->n + 2), .bound = in->bound};
    memcpy(out->v, in->v, SPIRV_HEADER * 4);
    out->n = SPIRV_HEADER;
    for (u32 i = SPIRV_HEADER; i < in->n; i += len_at(in, i)) {
        u32 op = op_at(in, i), n = len_at(in, i);
        bool is_mode = op == SPV_EXECUTION_MODE || op == OP_EXECUTION_MODE_ID;
        if (op == SPV_ENTRY_POINT && id_at(in, i, 2) == entry) put_entry(out, in, i);
        if (op == SPV_ENTRY_POINT || (is_mode && id_at(in, i, 1) != entry)) continue;
        memcpy(out->v + out->n, in->v + i, (size_t)n * 4);
        out->n += n;
    }
}

/* Uses. */

static bool read_roots(struct tracer *t, struct err *e)
{
    const struct words *w = &t->w;
    for (u32 i = SPIRV_HEADER; i < w->n; i += len_at(w, i)) {
        u32 id = id_at(w, i, 1), value = operand(w, i, 3);
        if (op_at(w, i) == SPV_DECORATE && operand(w, i, 2) == SPV_DEC_BINDING) {
            if (value >= MAX_BINDING) return malformed(e, "impossible binding");
            t->root[id] = value + 1;
            if (t->k->n_use <= value) t->k->n_use = value + 1;
        }
        if (op_at(w, i) == SPV_DECORATE && operand(w, i, 2) == SPV_DEC_SET && value != 0)
            return err_set(e, ERR_UNSUPPORTED, "kernel uses descriptor set %u", value);
    }
    t->root[0] = 0;
    return true;
}

static void note_use(struct tracer *t, u32 id, u8 use)
{
    u32 root = t->root[id];
    if (root) t->k->use[root - 1] |= use;
}

static void trace_call(struct tracer *t, u32 i)
{
    t->is_live[id_at(&t->w, i, 3)] = 1;
    for (u32 k = 4; k < len_at(&t->w, i); k++)
        note_use(t, id_at(&t->w, i, k), USE_READ | USE_WRITE);
}

static void trace_ins(struct tracer *t, u32 i)
{
    const struct words *w = &t->w;
    u32 op = op_at(w, i);
    switch (op) {
    case SPV_ACCESS_CHAIN:
    case OP_IN_BOUNDS_ACCESS_CHAIN:
    case OP_PTR_ACCESS_CHAIN:
    case OP_COPY_OBJECT: t->root[id_at(w, i, 2)] = t->root[id_at(w, i, 3)]; break;
    case SPV_LOAD:
    case OP_ARRAY_LENGTH:
    case OP_ATOMIC_LOAD:
    case SPV_MATRIX_LOAD: note_use(t, id_at(w, i, 3), USE_READ); break;
    case SPV_STORE:
    case OP_ATOMIC_STORE:
    case SPV_MATRIX_STORE: note_use(t, id_at(w, i, 1), USE_WRITE); break;
    case OP_COPY_MEMORY:
        note_use(t, id_at(w, i, 1), USE_WRITE);
        note_use(t, id_at(w, i, 2), USE_READ);
        break;
    case OP_FUNCTION_CALL: trace_call(t, i); break;
    default:
        if (op >= OP_ATOMIC_EXCHANGE && op <= OP_ATOMIC_XOR)
            note_use(t, id_at(w, i, 3), USE_READ | USE_WRITE);
    }
}

/* Functions call only functions, and each is examined again when another becomes reachable. */
static void trace(struct tracer *t)
{
    u32 n_live = 0;
    for (u32 last = UINT32_MAX; n_live != last;) {
        bool inside = false;
        last = n_live, n_live = 0;
        for (u32 i = SPIRV_HEADER; i < t->w.n; i += len_at(&t->w, i)) {
            if (op_at(&t->w, i) == SPV_FUNCTION) inside = t->is_live[id_at(&t->w, i, 2)];
            if (op_at(&t->w, i) == SPV_FUNCTION) n_live += inside;
            if (inside) trace_ins(t, i);
        }
    }
}

static bool find_uses(struct spirv_grid *k, const struct words *w, u32 entry, struct err *e)
{
    struct arena a = {0};
    struct tracer t = {.w = *w, .k = k};
    t.root = arena_array(&a, u32, w->bound);
    t.is_live = arena_array(&a, u8, w->bound);
    t.is_live[entry] = 1;
    bool ok = read_roots(&t, e);
    if (ok) trace(&t);
    arena_release(&a);
    return ok;
}

static void find_floats(struct spirv_grid *k, const struct words *w, u32 entry)
{
    for (u32 i = SPIRV_HEADER; i < w->n; i += len_at(w, i)) {
        u32 mode = operand(w, i, 2);
        bool is_control = mode >= SPV_MODE_DENORM_PRESERVE && mode <= SPV_MODE_ROUND_EVEN + 1; /* five in a row */
        if (op_at(w, i) != SPV_EXECUTION_MODE || id_at(w, i, 1) != entry || !is_control || k->n_floats == SPIRV_MAX_FLOATS) continue;
        k->floats[k->n_floats++] = (struct spirv_floats){mode, operand(w, i, 3)};
    }
}

static bool read_grid(struct spirv_grid *k, struct words *in, struct str module, struct str entry, struct arena *a, struct err *e)
{
    struct spirv_info info;
    *k = (struct spirv_grid){0};
    if (!spirv_read_info(&info, module, e) || !read_words(in, module, a, e)) return false;
    in->entry = find_entry(in, entry);
    if (!in->entry) return err_set(e, ERR_INPUT, "no entry point '%.*s'", STR_ARG(entry));
    k->use = arena_array(a, u8, MAX_BINDING);
    if (!find_uses(k, in, in->entry, e)) return false;
    for (u32 i = 0; i < info.n_entry; i++)
        if (str_eq(info.entry[i].name, entry))
            memcpy(k->local, info.entry[i].local, sizeof k->local);
    k->push_bytes = info.push_bytes;
    k->subgroup = info.subgroup;
    k->needs_matrix = spirv_has_capability(&info, SPV_CAP_MATRIX);
    find_floats(k, in, in->entry);
    return true;
}

bool spirv_grid_read(struct spirv_grid *k, struct str module, struct str entry, struct arena *a, struct err *e)
{
    struct words in;
    return read_grid(k, &in, module, entry, a, e);
}

bool spirv_grid_take(struct spirv_grid *k, struct str module, struct str entry, struct arena *a,
                     struct err *e)
{
    struct words in, out;
    if (!read_grid(k, &in, module, entry, a, e)) return false;
    keep_entry(&out, &in, in.entry, a);
    k->code = (struct str){(const char *)out.v, (i64)out.n * 4};
    return true;
}

void spirv_grid_rebind(struct spirv_grid *k, const u32 *binding)
{
    struct words w = {.v = (u32 *)(uintptr_t)k->code.p, .n = (u32)(k->code.n / 4)};
    for (u32 i = SPIRV_HEADER; i < w.n; i += len_at(&w, i)) {
        if (op_at(&w, i) != SPV_DECORATE || len_at(&w, i) < 4) continue;
        if (w.v[i + 2] == SPV_DEC_SET) w.v[i + 3] = 1;
        if (w.v[i + 2] == SPV_DEC_BINDING) w.v[i + 3] = binding[w.v[i + 3]];
    }
}
