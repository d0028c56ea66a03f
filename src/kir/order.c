// SPDX-License-Identifier: Apache-2.0
//
// order.c: a canonical order of the instructions of a kernel. C leaves the
// evaluation order of nested builder calls to the compiler, and with it the
// order of independent instructions, the order of commuting operands, and
// the order of parameters. Here these follow from the kernel's computation,
// so the same kernel has the same text, whatever compiler built quern.
//
// Instructions with effects stay in their relative order: structure, arrays, stores, barriers.
// All others stay in their structure and move down to their first use: a pure value to its
// first use, or to the loop or branch that contains it, a load likewise, but never across an
// instruction that stays (fetching early may be the point of a schedule). Instructions that
// move to the same place are in the order of a traversal of the operands, from the first
// instruction that stays to the last; of commuting operands the deeper comes first, as in
// Sethi and Ullman (The Generation of Optimal Code for Arithmetic Expressions, 1970), and of
// equally deep ones a hash of their computation decides. Unused values are removed.
//
// Kernels that differ only in numbers are in the same order if that hash regards all sizes, constants or
// parameters, as equal; their values decide only between computations that differ in nothing else.
#include "kir/kir.h"

struct node {       /* facts about an instruction of the old kernel */
    kval structure; /* innermost enclosing one: GRID, LOOP, IF, ELSE; of an END: the structure it closes */
    kval place;     /* the staying instruction that it precedes; 0: unused; itself: it stays */
    kval next;      /* the next instruction with the same destination */
    kval now;       /* in the new kernel */
    u32 depth;      /* of its expression */
    bool is_met;    /* visited by the traversal */
    u64 form;       /* hash of its computation with all sizes alike, if the order is that of the form; else the hash */
    u64 hash;       /* of its computation */
};

struct orderer {
    const struct kir *in;
    struct kir *out;
    struct node *at;    /* per instruction */
    kval *first;        /* per staying instruction: list of those that move before it */
    kval *met;          /* the others in the order of the traversal */
    u32 n_met;
    struct { kval v; u32 operand; } *stack; /* of the traversal */
    bool by_form;       /* sizes do not determine the order */
};

static bool is_load(const struct kir_ins *x) { return x->op == KI_LOAD || x->op == KI_FLOAD; }

static bool stays(const struct kir_ins *x)
{
    return kir_op_info(x->op)->cls != 'P' && !is_load(x);
}

/* Places. */

static void find_structures(struct orderer *o)
{
    kval open[65] = {0};
    u32 n = 0;
    for (kval v = 1; v < o->in->ins.n; v++) {
        enum kir_op op = kir_at(o->in, v)->op;
        o->at[v].structure = open[n];
        if (op == KI_END) n--;
        if (kir_opens(op)) n++;
        if (kir_opens(op) || op == KI_ELSE) open[n] = v;
    }
}

/* The head of a structure: of an ELSE its IF, in whose structure the ELSE is. */
static kval head_of(const struct orderer *o, kval s)
{
    return kir_at(o->in, s)->op == KI_ELSE ? o->at[s].structure : s;
}

/* The user at place `user` needs v. */
static void need(struct orderer *o, kval v, kval user, kval structure)
{
    struct node *x = &o->at[v];
    if (!v || stays(kir_at(o->in, v))) return;
    while (structure != x->structure) {
        user = head_of(o, structure);
        structure = o->at[user].structure;
    }
    if (!x->place || user < x->place) x->place = user;
}

/* Backwards: users are visited before their operands. */
static void find_places(struct orderer *o, struct arena *scratch)
{
    kval *next = arena_array(scratch, kval, o->in->ins.n); /* per structure: the next that stays */
    for (kval v = o->in->ins.n - 1; v; v--) {
        const struct kir_ins *x = kir_at(o->in, v);
        struct node *s = &o->at[v];
        if (stays(x)) s->place = next[s->structure] = v;
        else if (is_load(x) && s->place) s->place = next[s->structure];
        for (u32 i = 0; i < kir_op_info(x->op)->n_args && s->place; i++)
            need(o, kir_operand(x, i), s->place, s->structure);
    }
}

/* Computations. */

static bool swaps(const struct kir_ins *x)
{
    return x->op == KI_FMA || (!x->role && kir_commutes(x->op, dtype_is_float(x->dtype)));
}

/* A load of memory that may be written yields another value after a staying instruction. */
static u64 moment(const struct orderer *o, const struct kir_ins *x, kval next)
{
    const struct kir_ins *array = kir_at(o->in, x->a);
    return is_load(x) && (array->op != KI_BUF || array->aux != KA_IN) ? next : 0;
}

/* Of what the words say of x, and of operands that commute in any order. */
static u64 hash_words(const struct kir_ins *x, const u64 w[8])
{
    u64 in_order[8];
    bool is_swapped = swaps(x) && w[3] > w[4];
    for (u32 i = 0; i < 8; i++) in_order[i] = w[is_swapped && i == 3 ? 4 : is_swapped && i == 4 ? 3 : i];
    return hash_u64(in_order, sizeof in_order);
}

/* n_stay: number of preceding instructions that stay. */
static void describe(struct orderer *o, kval v, u32 n_stay)
{
    const struct kir_ins *x = kir_at(o->in, v);
    struct node *s = &o->at[v];
    u64 w[8] = {x->op | x->aux << 8 | (u64)x->dtype << 16 | (u64)x->lanes << 24 | (u64)x->role << 32 |
                (u64)x->rows << 40 | (u64)x->cols << 52}, form[8];
    w[1] = stays(x) ? n_stay : (u64)x->imm.i;
    w[2] = is_load(x) ? moment(o, x, n_stay) : 0;
    if (x->op == KI_PARAM) w[1] = hash_u64(o->in->param.v[x->imm.i].p, o->in->param.v[x->imm.i].n);
    for (u32 i = 0; i < 8; i++) form[i] = w[i];
    for (u32 i = 0; i < kir_op_info(x->op)->n_args && !stays(x); i++) {
        const struct node *y = &o->at[kir_operand(x, i)];
        w[3 + i] = y->hash, form[3 + i] = y->form;
        if (y->depth >= s->depth) s->depth = y->depth + 1;
    }
    s->hash = hash_words(x, w);
    s->form = !o->by_form ? s->hash : kir_is_size(x) ? KI_PARAM : hash_words(x, form);
}

/* The traversal. */

static bool is_before(const struct node *x, const struct node *y)
{
    if (x->depth != y->depth) return x->depth > y->depth;
    return x->form != y->form ? x->form < y->form : x->hash < y->hash;
}

/* Operand i in the order of the traversal. */
static kval nth_operand(const struct orderer *o, const struct kir_ins *x, u32 i)
{
    bool is_swapped = swaps(x) && is_before(&o->at[x->b], &o->at[x->a]);
    return kir_operand(x, is_swapped && i < 2 ? 1 - i : i);
}

static void visit(struct orderer *o, kval from)
{
    u32 n = 0;
    o->stack[n].v = from, o->stack[n++].operand = 0;
    while (n) {
        kval v = o->stack[n - 1].v;
        const struct kir_ins *x = kir_at(o->in, v);
        if (o->stack[n - 1].operand < kir_op_info(x->op)->n_args) {
            kval y = nth_operand(o, x, o->stack[n - 1].operand++);
            if (!y || o->at[y].is_met || stays(kir_at(o->in, y))) continue;
            o->at[y].is_met = true;
            o->stack[n].v = y, o->stack[n++].operand = 0;
            continue;
        }
        if (!stays(x)) o->met[o->n_met++] = v;
        n--;
    }
}

/* The new kernel. */

/* Constants come last, parameters before them: they have no number in the text. */
static u64 rank_of(const struct orderer *o, kval v)
{
    enum kir_op op = kir_at(o->in, v)->op;
    return (u64)(op == KI_CONST ? 2 : op == KI_PARAM) << 32 |
           (op == KI_PARAM ? (u64)kir_at(o->out, o->at[v].now)->imm.i : o->at[v].now);
}

static i64 param_number(struct kir *k, struct str text)
{
    u32 i = 0;
    while (i < k->param.n && !str_eq(k->param.v[i], text)) i++;
    if (i == k->param.n) *arr_push(k->arena, &k->param) = str_dup(k->arena, text);
    return i;
}

static void copy(struct orderer *o, kval v)
{
    struct kir_ins x = *kir_at(o->in, v);
    struct node *s = &o->at[v];
    if (x.op == KI_BUF) {
        s->now = kir_buf(o->out, o->in->buf.v[x.imm.i].name, x.dtype, x.aux);
        return;
    }
    if (swaps(&x) && rank_of(o, x.b) < rank_of(o, x.a)) {
        kval t = x.a;
        x.a = x.b, x.b = t;
    }
    if (x.op == KI_PARAM) x.imm.i = param_number(o->out, o->in->param.v[x.imm.i]);
    x.a = o->at[x.a].now, x.b = o->at[x.b].now;
    x.c = o->at[x.c].now, x.d = o->at[x.d].now;
    s->now = kir_push(o->out, x);
}

static void put_in_order(struct kir *out, struct arena *a, const struct kir *in, bool keep_params, bool by_form)
{
    struct arena scratch = {0};
    u32 n = in->ins.n, n_stay = 0;
    struct orderer o = {.in = in, .out = out, .by_form = by_form};
    o.at = arena_array(&scratch, struct node, n);
    o.first = arena_array(&scratch, kval, n);
    o.met = arena_array(&scratch, kval, n);
    o.stack = arena_alloc(&scratch, (i64)sizeof *o.stack * (n + 1));
    kir_init(out, a, in->name);
    kir_copy_header(out, in);
    for (u32 i = 0; i < in->param.n && keep_params; i++) *arr_push(a, &out->param) = str_dup(a, in->param.v[i]);
    find_structures(&o);
    find_places(&o, &scratch);
    for (kval v = 1; v < n; v++) {
        describe(&o, v, n_stay);
        n_stay += stays(kir_at(in, v));
    }
    for (kval v = 1; v < n; v++)
        if (stays(kir_at(in, v))) visit(&o, v);
    while (o.n_met) {
        kval v = o.met[--o.n_met], place = o.at[v].place;
        o.at[v].next = o.first[place];
        o.first[place] = v;
    }
    for (kval v = 1; v < n; v++) {
        if (!stays(kir_at(in, v))) continue;
        for (kval x = o.first[v]; x; x = o.at[x].next) copy(&o, x);
        copy(&o, v);
    }
    arena_release(&scratch);
}

void kir_order(struct kir *out, struct arena *a, const struct kir *in, bool keep_params) { put_in_order(out, a, in, keep_params, false); }

void kir_order_form(struct kir *out, struct arena *a, const struct kir *in) { put_in_order(out, a, in, false, true); }
