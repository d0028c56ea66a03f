// SPDX-License-Identifier: Apache-2.0
//
// share.c: kernels that differ only in sizes, as one kernel that has these as parameters. A network's layers
// of one kind differ in channels and pixels, and compilers take longer for each kernel than the kernel for the layer.
//
// The form of a kernel is everything but its free sizes: constants and parameters that code may take from
// a register without becoming slower. Not free, and therefore part of the form, are sizes
//   - that must be constant: steps, unrolled loops, places in registers;
//   - of an innermost loop that unrolling repeats with other values, like the distances of a tile's rows: as
//     constants they are parts of addresses, as parameters each would occupy a register;
//   - by which a loop divides;
//   - below zero: parameters are sizes.
// Kernels of one form are equal instruction by instruction, in an order that sizes do not influence (kir_order_form). Sizes that
// occur in equal kernels at the same places are one parameter.
#include "kir/kir.h"

enum { MAX_OPEN = 64 };

struct finder {
    const struct kir *k;
    kval *serial;    /* per instruction: the innermost enclosing loop that is not unrolled, or grid */
    bool *has_loop;  /* per loop and grid: contains a loop that is not unrolled */
    kval *unrolled;  /* per value: the last unrolled loop on whose index it depends */
    bool *is_place;  /* per value: determines an index of an array of registers */
};

static bool is_unrolled(const struct kir_ins *x) { return x->op == KI_LOOP && x->aux == KL_UNROLL; }

static void find_loops(struct finder *f)
{
    kval open[MAX_OPEN] = {0};
    u32 n = 0;
    for (kval v = 1; v < f->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(f->k, v);
        if (x->op == KI_END) n--;
        f->serial[v] = open[n];
        if (x->op == KI_LOOP && !is_unrolled(x)) f->has_loop[open[n]] = true;
        if (!kir_opens(x->op)) continue;
        open[n + 1] = x->op == KI_IF || is_unrolled(x) ? open[n] : v;
        assert(n + 2 < MAX_OPEN);
        n++;
    }
}

static void find_unrolled(struct finder *f)
{
    for (kval v = 1; v < f->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(f->k, v);
        if (is_unrolled(x)) f->unrolled[v] = v;
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++)
            if (f->unrolled[kir_operand(x, i)] > f->unrolled[v]) f->unrolled[v] = f->unrolled[kir_operand(x, i)];
    }
}

static bool is_in_registers(const struct kir *k, const struct kir_ins *x)
{
    bool is_memory = x->op == KI_LOAD || x->op == KI_STORE;
    return is_memory && kir_at(k, x->a)->op == KI_ALLOC && kir_at(k, x->a)->aux == KS_REG;
}

static void find_places(struct finder *f)
{
    for (kval v = f->k->ins.n - 1; v; v--) {
        const struct kir_ins *x = kir_at(f->k, v);
        if (is_in_registers(f->k, x)) f->is_place[x->b] = true;
        if (!f->is_place[v] || kir_op_info(x->op)->cls != 'P') continue;
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) f->is_place[kir_operand(x, i)] = true;
    }
}

/* Whether sizes among the operands may be parameters at all. */
static bool may_vary(const struct finder *f, kval v)
{
    const struct kir_ins *x = kir_at(f->k, v);
    if (x->op == KI_LOOP) return !is_unrolled(x);
    if (x->op == KI_ALLOC) return x->aux == KS_WORK || x->aux == KS_TEMP;
    if (x->op == KI_LOAD || x->op == KI_STORE) return !is_in_registers(f->k, x);
    if (x->op == KI_GRID || x->op == KI_PREFETCH) return true;
    if (x->op == KI_DIV || x->op == KI_MOD) return !f->is_place[v] && kir_at(f->k, f->serial[v])->op == KI_GRID;
    return kir_op_info(x->op)->cls == 'P' && !f->is_place[v];
}

/* Whether unrolling repeats the instruction within an innermost loop with other operands. */
static bool is_repeated(const struct finder *f, kval v)
{
    kval loop = f->serial[v];
    return loop && !f->has_loop[loop] && f->unrolled[v] > loop;
}

static void find_free(struct kir_form *x, struct arena *a)
{
    struct arena scratch = {0};
    u32 n = x->k.ins.n;
    struct finder f = {.k = &x->k,
                       .serial = arena_array(&scratch, kval, n),
                       .has_loop = arena_array(&scratch, bool, n),
                       .unrolled = arena_array(&scratch, kval, n),
                       .is_place = arena_array(&scratch, bool, n)};
    find_loops(&f);
    find_unrolled(&f);
    find_places(&f);
    x->is_free = arena_array(a, bool, n);
    for (kval v = 1; v < n; v++) x->is_free[v] = may_vary(&f, v) && !is_repeated(&f, v);
    arena_release(&scratch);
}

/* Whether operand i of v is a free size. */
static bool is_free_size(const struct kir_form *x, kval v, u32 i)
{
    const struct kir_ins *user = kir_at(&x->k, v), *s = kir_at(&x->k, kir_operand(user, i));
    bool is_step = user->op == KI_LOOP && i == 2;
    return x->is_free[v] && !is_step && kir_is_size(s) && (s->op == KI_PARAM || s->imm.i >= 0);
}

/* The hash of the form. */

static void put_word(struct buf *b, u64 w) { buf_put(b, &w, sizeof w); }

static void put_str(struct buf *b, struct str s)
{
    put_word(b, (u64)s.n);
    buf_str(b, s);
}

static void put_header(struct buf *b, const struct kir *k)
{
    for (u32 i = 0; i < countof(k->group); i++) put_word(b, k->group[i]);
    put_word(b, k->subgroup | (u64)k->warpgroup << 32);
    put_word(b, k->as_written);
    for (u32 i = 0; i < k->map.n; i++) {
        const struct kir_map *m = &k->map.v[i];
        const i64 w[] = {m->buf, m->rows, m->cols, m->pitch, m->box_rows, m->box_cols};
        buf_put(b, w, sizeof w);
    }
    for (u32 i = 0; i < k->buf.n; i++) put_str(b, k->buf.v[i].name);
}

static void put_size(struct buf *b, const struct kir *k, const struct kir_ins *s)
{
    if (s->op == KI_PARAM) put_str(b, k->param.v[s->imm.i]);
    else put_word(b, (u64)s->imm.i);
}

enum { FREE, FIXED, VALUE }; /* kinds of operands */

static void put_ins(struct buf *b, const struct kir_form *f, kval v, const u32 *number)
{
    const struct kir_ins *x = kir_at(&f->k, v);
    put_word(b, x->op | (u64)x->dtype << 8 | (u64)x->lanes << 16 | (u64)x->aux << 24 | (u64)x->role << 32 | (u64)x->rows << 40 | (u64)x->cols << 52);
    buf_put(b, &x->imm, sizeof x->imm);
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
        kval y = kir_operand(x, i);
        bool is_size = y && kir_is_size(kir_at(&f->k, y));
        put_word(b, is_free_size(f, v, i) ? FREE : is_size ? FIXED : VALUE);
        if (!is_size) put_word(b, number[y]);
        else if (!is_free_size(f, v, i)) put_size(b, &f->k, kir_at(&f->k, y));
    }
}

void kir_form_of(struct kir_form *out, struct arena *a, const struct kir *in)
{
    struct arena scratch = {0};
    struct buf b = {0};
    *out = (struct kir_form){0};
    kir_order_form(&out->k, a, in);
    find_free(out, a);
    u32 *number = arena_array(&scratch, u32, out->k.ins.n), n = 0;
    put_header(&b, &out->k);
    for (kval v = 1; v < out->k.ins.n; v++) {
        if (kir_is_size(kir_at(&out->k, v))) continue;
        number[v] = ++n;
        put_ins(&b, out, v, number);
    }
    out->hash = hash_bytes(b.p, b.n);
    buf_release(&b);
    arena_release(&scratch);
}

/* The common kernel. */

struct sharer {
    struct kir *out;
    struct arena *a;
    const struct kir_form *const *in;
    u32 n;
    struct str **size;   /* per kernel: the parameters */
    struct map known;    /* texts of a size in all kernels -> its parameter's number */
    kval *at;            /* per kernel: the current instruction */
};

static struct str size_text(struct sharer *s, u32 i, u32 operand)
{
    const struct kir *k = &s->in[i]->k;
    const struct kir_ins *x = kir_at(k, kir_operand(kir_at(k, s->at[i]), operand));
    return x->op == KI_PARAM ? k->param.v[x->imm.i] : str_fmt(s->a, "%lld", (long long)x->imm.i);
}

/* A parameter that is the size in each kernel. */
static kval vary(struct sharer *s, u32 operand)
{
    struct buf all = {0};
    for (u32 i = 0; i < s->n; i++) put_str(&all, size_text(s, i, operand));
    u64 *known = map_get(&s->known, buf_view(&all));
    u32 p = known ? (u32)*known : s->out->param.n;
    if (!known) map_put(&s->known, str_dup(s->a, buf_view(&all)), p);
    buf_release(&all);
    kval v = kir_param(s->out, known ? s->out->param.v[p] : str_fmt(s->a, "size %u", p));
    for (u32 i = 0; i < s->n && !known; i++) s->size[i][p] = size_text(s, i, operand);
    return v;
}

/* A parameter that all kernels have. */
static kval keep(struct sharer *s, struct str text)
{
    u32 p = s->out->param.n;
    kval v = kir_param(s->out, text);
    for (u32 i = 0; i < s->n && s->out->param.n > p; i++) s->size[i][p] = text;
    return v;
}

/* Of the first kernel's instruction: a constant where all have the same, a parameter where they differ. */
static kval common_size(struct sharer *s, u32 operand)
{
    const struct kir_form *first = s->in[0];
    const struct kir_ins *x = kir_at(&first->k, kir_operand(kir_at(&first->k, s->at[0]), operand));
    bool is_free = is_free_size(first, s->at[0], operand), is_same = x->op == KI_CONST || !is_free;
    for (u32 i = 1; i < s->n && is_free; i++) is_same = is_same && str_eq(size_text(s, i, operand), size_text(s, 0, operand));
    if (!is_same) return vary(s, operand);
    return x->op == KI_CONST ? kir_int(s->out, x->imm.i) : keep(s, first->k.param.v[x->imm.i]);
}

static void next_ins(struct sharer *s)
{
    for (u32 i = 0; i < s->n; i++) {
        const struct kir *k = &s->in[i]->k;
        do s->at[i]++;
        while (s->at[i] < k->ins.n && kir_is_size(kir_at(k, s->at[i])));
    }
}

/* The first kernel's operands that are sizes, in the common kernel: 4 per instruction. All stand before the first instruction. */
static kval *common_sizes(struct sharer *s)
{
    const struct kir *k = &s->in[0]->k;
    kval *size = arena_array(s->a, kval, 4 * (i64)k->ins.n);
    for (next_ins(s); s->at[0] < k->ins.n; next_ins(s)) {
        const struct kir_ins *x = kir_at(k, s->at[0]);
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
            kval y = kir_operand(x, i);
            if (y && kir_is_size(kir_at(k, y))) size[4 * s->at[0] + i] = common_size(s, i);
        }
    }
    return size;
}

void kir_share(struct kir *out, struct arena *a, const struct kir_form *const *in, u32 n, struct str **size)
{
    const struct kir *k = &in[0]->k;
    struct sharer s = {.out = out, .a = a, .in = in, .n = n, .size = size, .at = arena_array(a, kval, n)};
    kval *now = arena_array(a, kval, k->ins.n);
    kir_init(out, a, k->name);
    kir_copy_header(out, k);
    map_init(&s.known, a);
    for (u32 i = 0; i < n; i++) size[i] = arena_array(a, struct str, 4 * (i64)k->ins.n);
    const kval *common = common_sizes(&s);
    for (kval v = 1; v < k->ins.n; v++) {
        struct kir_ins x = *kir_at(k, v);
        if (kir_is_size(&x)) continue;
        const kval *own = &common[4 * v];
        x.a = own[0] ? own[0] : now[x.a], x.b = own[1] ? own[1] : now[x.b];
        x.c = own[2] ? own[2] : now[x.c], x.d = own[3] ? own[3] : now[x.d];
        now[v] = x.op == KI_BUF ? kir_buf(out, k->buf.v[x.imm.i].name, x.dtype, x.aux) : kir_push(out, x);
    }
}
