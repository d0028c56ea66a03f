// SPDX-License-Identifier: Apache-2.0
//
// ahead.c: an order of instructions for processors that execute them in order, and therefore wait for a load whose result the next instruction
// needs. Within each run of instructions without control flow, loads move up, as far as registers last: a load is due when the instruction that
// needs it is DISTANCE vector instructions away; others follow one by one, every GAP vector instructions, so that they share the cycles of
// arithmetic. All else keeps its order (list scheduling with a fixed priority; Gibbons & Muchnick, Efficient instruction scheduling for a pipelined
// architecture, 1986). A load passes no store to its own array; distinct arrays do not overlap.
//
// First, scalars that are only spread to the lanes of multiply-adds and whose neighbours are loaded in the same run become lanes of one vector: one
// load for them all. Where the instruction takes its factor from a lane of a register, spreading is free.
#include "kir/kir.h"

#include <stdlib.h>

enum { DISTANCE = 6, GAP = 3, SPARE = 1 };
enum { VECTOR = 16 }; /* bytes of the vectors that lanes are taken from */

/* Facts about instructions. */

static bool ends_run(const struct kir_ins *x) { return kir_op_info(x->op)->cls == 'C'; }

static bool is_register_array(const struct kir_ins *x) { return x->op == KI_ALLOC && x->aux == KS_REG; }

static bool is_memory(const struct kir *k, const struct kir_ins *x)
{
    return x->op == KI_LOAD && !is_register_array(kir_at(k, x->a));
}

/* Spread values and lanes are operands of the instructions that use them. */
static bool is_virtual(const struct kir_ins *x) { return x->op == KI_SPLAT || x->op == KI_LANE || x->op == KI_RAMP || x->op == KI_CONST || x->op == KI_PARAM; }

static bool is_vector_register(const struct kir_ins *x) { return x->lanes > 1 || dtype_is_float(x->dtype); }

static bool is_arithmetic(const struct kir_ins *x) { return kir_op_info(x->op)->cls == 'P' && !is_virtual(x) && is_vector_register(x); }

static bool may_move(const struct kir *k, const struct kir_ins *x)
{
    return is_memory(k, x) && !x->c && is_vector_register(x) && (x->lanes == 1 || kir_is_contiguous(k, x->b));
}

static bool stores_to(const struct kir_ins *x, kval array) { return (x->op == KI_STORE || x->op == KI_FSTORE || x->op == KI_TILE) && x->a == array; }

static kval end_of_run(const struct kir *k, kval from)
{
    kval v = from;
    while (v < k->ins.n && !ends_run(kir_at(k, v))) v++;
    return v;
}

static u32 less(u32 x, u32 y) { return x < y ? x : y; }

/* Vector instructions of a run before each instruction, and before its first user; returns how many there are. */
static u32 find_slots(const struct kir *k, kval from, kval to, u32 *slot, u32 *need)
{
    u32 n = 0;
    for (kval v = from; v < to; v++) {
        slot[v] = n, need[v] = UINT32_MAX;
        n += is_arithmetic(kir_at(k, v));
    }
    for (kval v = to - 1; v >= from; v--) {
        const struct kir_ins *x = kir_at(k, v);
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
            kval y = kir_operand(x, i);
            if (y >= from) need[y] = less(need[y], is_virtual(x) ? need[v] : slot[v]);
        }
    }
    return n;
}

/* The kernel without its instructions. */
static void begin(struct kir *out, struct arena *a, const struct kir *in)
{
    kir_init(out, a, in->name);
    kir_copy_header(out, in);
    for (u32 i = 0; i < in->param.n; i++) *arr_push(a, &out->param) = str_dup(a, in->param.v[i]);
}

/* Appends v; now: the new numbers of old instructions. */
static void append(struct kir *out, const struct kir *in, kval *now, kval v)
{
    struct kir_ins x = *kir_at(in, v);
    if (x.op == KI_BUF) {
        now[v] = kir_buf(out, in->buf.v[x.imm.i].name, x.dtype, x.aux);
        return;
    }
    x.a = now[x.a], x.b = now[x.b], x.c = now[x.c], x.d = now[x.d];
    now[v] = kir_push(out, x);
}

static struct kir_ins int_of(i64 v) { return (struct kir_ins){.op = KI_CONST, .dtype = DT_I64, .lanes = 1, .imm.i = v}; }

/* Neighbours become vectors. */

struct element { kval load, array, base; i64 at; }; /* array[base + at] */

struct joiner {
    const struct kir *in;
    struct kir *out;
    kval *now;
    bool *other;           /* per instruction: it has users of another kind */
    struct element *e;     /* of a run */
    kval *first, *vector;  /* per load that becomes a lane: the first one of its vector, and per such one the vector */
    u8 *lane;
};

/* Loads with users other than spreads to vectors, spreads with users other than multiply-adds. */
static void find_users(struct joiner *j)
{
    for (u32 pass = 0; pass < 2; pass++)
        for (kval v = 1; v < j->in->ins.n; v++) {
            const struct kir_ins *x = kir_at(j->in, v);
            bool is_spread = x->op == KI_SPLAT && x->lanes * dtype_size(x->dtype) == VECTOR && !j->other[v];
            for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
                kval y = kir_operand(x, i);
                if (!pass && x->op != KI_FMA) j->other[y] |= kir_at(j->in, y)->op == KI_SPLAT;
                if (pass && !is_spread) j->other[y] |= kir_at(j->in, y)->op == KI_LOAD;
            }
        }
}

static bool element_of(const struct kir *k, kval v, struct element *e)
{
    const struct kir_ins *x = kir_at(k, v), *index = kir_at(k, x->b);
    if (!is_memory(k, x) || x->lanes > 1 || x->c || kir_lanes(k, x->a) > 1 || !dtype_is_float(x->dtype) || dtype_size(x->dtype) < 4) return false;
    *e = (struct element){.load = v, .array = x->a, .base = x->b};
    if (index->op != KI_ADD) return true;
    if (kir_is_const(k, index->b, &e->at)) e->base = index->a;
    else if (kir_is_const(k, index->a, &e->at)) e->base = index->b;
    return true;
}

static int compare(const void *p, const void *q)
{
    const struct element *x = p, *y = q;
    if (x->array != y->array) return x->array < y->array ? -1 : 1;
    if (x->base != y->base) return x->base < y->base ? -1 : 1;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->load < y->load ? -1 : x->load > y->load;
}

static bool is_stored(const struct kir *k, kval from, kval to, kval array)
{
    for (kval v = from; v < to; v++)
        if (stores_to(kir_at(k, v), array)) return true;
    return false;
}

/* e[0..n-1] are the lanes of a vector. */
static void join(struct joiner *j, const struct element *e, u32 n)
{
    kval first = e[0].load;
    for (u32 i = 1; i < n; i++)
        if (e[i].load < first) first = e[i].load;
    for (u32 i = 0; i < n; i++) j->first[e[i].load] = first, j->lane[e[i].load] = (u8)i;
}

static void join_run(struct joiner *j, kval from, kval to)
{
    u32 n = 0;
    for (kval v = from; v < to; v++)
        if (!j->other[v] && element_of(j->in, v, &j->e[n])) n++;
    qsort(j->e, n, sizeof *j->e, compare);
    for (u32 i = 0, lanes; i < n; i += lanes) {
        const struct element *e = &j->e[i];
        u32 whole = VECTOR / (u32)dtype_size(kir_dtype(j->in, e->load));
        lanes = 1;
        while (i + lanes < n && lanes < whole && e[lanes].array == e->array && e[lanes].base == e->base && e[lanes].at == e->at + lanes) lanes++;
        if (lanes < whole || is_stored(j->in, from, to, e->array)) lanes = 1;
        else join(j, e, whole);
    }
}

/* The vector of a load, where its first element is loaded. */
static void append_vector(struct joiner *j, kval first, kval v)
{
    const struct kir_ins *x = kir_at(j->in, v);
    struct element e;
    element_of(j->in, v, &e);
    kval at = kir_push(j->out, int_of(e.at - j->lane[v]));
    at = kir_push(j->out, (struct kir_ins){.op = KI_ADD, .dtype = DT_I64, .lanes = 1, .a = j->now[e.base], .b = at});
    u8 lanes = (u8)(VECTOR / dtype_size(x->dtype));
    at = kir_push(j->out, (struct kir_ins){.op = KI_RAMP, .dtype = DT_I64, .lanes = lanes, .a = at, .imm.i = 1});
    j->vector[first] = kir_push(j->out, (struct kir_ins){.op = KI_LOAD, .dtype = x->dtype, .lanes = lanes, .a = j->now[x->a], .b = at});
}

static void join_loads(struct kir *out, struct arena *a, const struct kir *in)
{
    struct arena scratch = {0};
    u32 n = in->ins.n;
    struct joiner j = {.in = in, .out = out, .now = arena_array(&scratch, kval, n), .other = arena_array(&scratch, bool, n)};
    j.e = arena_array(&scratch, struct element, n);
    j.first = arena_array(&scratch, kval, n), j.vector = arena_array(&scratch, kval, n), j.lane = arena_array(&scratch, u8, n);
    begin(out, a, in);
    find_users(&j);
    for (kval v = 1; v < n; v = end_of_run(in, v) + 1) join_run(&j, v, end_of_run(in, v));
    for (kval v = 1; v < n; v++) {
        kval first = j.first[v];
        if (first && !j.vector[first]) append_vector(&j, first, v);
        if (first) j.now[v] = kir_push(out, (struct kir_ins){.op = KI_LANE, .dtype = kir_at(in, v)->dtype, .lanes = 1, .a = j.vector[first], .imm.i = j.lane[v]});
        else append(out, in, j.now, v);
    }
    arena_release(&scratch);
}

/* Loops hand on what the next iteration begins with. */

struct rotator {
    const struct kir *in;
    struct kir *out;
    kval *now;
    kval *clone;    /* of values that indices need: in terms of another iteration */
    bool *is_head;  /* loads that the body's first instructions need */
    kval *reg;      /* of such a load */
};

/* Is a value of the loop's body computed from its index alone, and what is outside? */
static bool follows_from_index(const struct kir *k, kval loop, kval v, u32 depth)
{
    const struct kir_ins *x = kir_at(k, v);
    if (v <= loop) return true;
    if (kir_op_info(x->op)->cls != 'P' || depth == 0) return false;
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++)
        if (!follows_from_index(k, loop, kir_operand(x, i), depth - 1)) return false;
    return true;
}

static kval clone(struct rotator *r, kval loop, kval v, kval index)
{
    struct kir_ins x = *kir_at(r->in, v);
    if (v == loop) return index;
    if (v < loop) return r->now[v];
    if (r->clone[v]) return r->clone[v];
    x.a = clone(r, loop, x.a, index), x.b = clone(r, loop, x.b, index), x.c = clone(r, loop, x.c, index), x.d = clone(r, loop, x.d, index);
    return r->clone[v] = kir_push(r->out, x);
}

/* Loads what the iteration of that index begins with. */
static void load_head(struct rotator *r, kval loop, kval end, kval index)
{
    for (kval v = loop; v < end; v++) r->clone[v] = 0;
    for (kval v = loop + 1; v < end; v++) {
        struct kir_ins x = *kir_at(r->in, v);
        if (!r->is_head[v]) continue;
        x.a = r->now[x.a], x.b = clone(r, loop, x.b, index);
        kval value = kir_push(r->out, x);
        kir_push(r->out, (struct kir_ins){.op = KI_STORE, .a = r->reg[v], .b = kir_push(r->out, int_of(0)), .c = value});
    }
}

/* The body for r->now[loop], whose first loads have been done. */
static void append_body(struct rotator *r, kval loop, kval end)
{
    kval zero = kir_push(r->out, int_of(0));
    for (kval v = loop + 1; v < end; v++) {
        const struct kir_ins *y = kir_at(r->in, v);
        if (r->is_head[v]) r->now[v] = kir_push(r->out, (struct kir_ins){.op = KI_LOAD, .dtype = y->dtype, .lanes = y->lanes, .a = r->reg[v], .b = zero});
    }
    for (kval v = loop + 1; v < end; v++)
        if (!r->is_head[v]) append(r->out, r->in, r->now, v);
}

/* Loads that the first instructions of a loop's body need; false: there are none, or the loop hands nothing on. */
static bool find_head(struct rotator *r, kval loop, kval end, u32 *slot, u32 *need)
{
    enum { DEPTH = 12 };
    const struct kir *k = r->in;
    bool any = false;
    if (kir_at(k, loop)->op != KI_LOOP || kir_at(k, loop)->aux != KL_SERIAL || end == loop + 1 || kir_at(k, end)->op != KI_END) return false;
    if (find_slots(k, loop + 1, end, slot, need) < 4 * DISTANCE) return false;
    for (kval v = loop + 1; v < end; v++) {
        const struct kir_ins *x = kir_at(k, v);
        r->is_head[v] = may_move(k, x) && need[v] < DISTANCE && !is_stored(k, loop + 1, end, x->a) && follows_from_index(k, loop, x->b, DEPTH);
        any |= r->is_head[v];
    }
    return any;
}

static kval integer(struct kir *k, enum kir_op op, kval a, kval b)
{
    return kir_push(k, (struct kir_ins){.op = op, .dtype = op == KI_LT ? DT_BOOL : DT_I64, .lanes = 1, .a = a, .b = b});
}

/* The last iteration stands behind the loop, so that nothing is loaded in vain. */
static void rotate(struct rotator *r, kval loop, kval end)
{
    struct kir *k = r->out;
    struct kir_ins x = *kir_at(r->in, loop);
    kval one = kir_push(k, int_of(1)), from = r->now[x.a], to = r->now[x.b], step = r->now[x.c];
    for (kval v = loop + 1; v < end; v++) {
        const struct kir_ins *y = kir_at(r->in, v);
        if (r->is_head[v]) r->reg[v] = kir_push(k, (struct kir_ins){.op = KI_ALLOC, .dtype = y->dtype, .lanes = y->lanes, .aux = KS_REG, .a = one});
    }
    kir_push(k, (struct kir_ins){.op = KI_IF, .a = integer(k, KI_LT, from, to)});
    kval last = integer(k, KI_DIV, integer(k, KI_SUB, integer(k, KI_SUB, to, from), one), step);
    last = integer(k, KI_ADD, from, integer(k, KI_MUL, last, step));
    load_head(r, loop, end, from);
    x.a = from, x.b = last, x.c = step;
    r->now[loop] = kir_push(k, x);
    append_body(r, loop, end);
    load_head(r, loop, end, integer(k, KI_ADD, r->now[loop], step));
    append(k, r->in, r->now, end);
    r->now[loop] = last;
    append_body(r, loop, end);
    kir_push(k, (struct kir_ins){.op = KI_END});
}

static void rotate_loops(struct kir *out, struct arena *a, const struct kir *in)
{
    struct arena scratch = {0};
    u32 n = in->ins.n;
    struct rotator r = {.in = in, .out = out, .now = arena_array(&scratch, kval, n), .clone = arena_array(&scratch, kval, n)};
    r.is_head = arena_array(&scratch, bool, n), r.reg = arena_array(&scratch, kval, n);
    u32 *slot = arena_array(&scratch, u32, n), *need = arena_array(&scratch, u32, n);
    begin(out, a, in);
    for (kval v = 1; v < n; v++) {
        kval end = end_of_run(in, v + 1);
        if (end < n && find_head(&r, v, end, slot, need)) rotate(&r, v, end), v = end;
        else append(out, in, r.now, v);
    }
    arena_release(&scratch);
}

/* The order. */

struct scheduler {
    const struct kir *in;
    struct kir *out;
    kval *now;    /* in the new kernel; 0: not placed yet */
    kval *last;   /* its last user; 0: none */
    u32 *slot;    /* vector instructions of the run before it */
    u32 *need;    /* and before its first user */
    kval *after;  /* of a load: the instruction that it may not pass, 0: none */
    kval *queue;  /* loads of the run that may move, in the order of their users */
    u32 n_queue, next;
    kval *user;    /* of a REG array that carries: the last one of what was loaded from it */
    bool *carries; /* a REG array that is loaded at the beginning of the run, and stored a load: not occupied meanwhile */
    kval hint;    /* a PREFETCH whose address is computed meanwhile, 0: none */
    i64 free;     /* registers */
    u32 since;    /* vector instructions since the last load that moved */
};

/* Users of spread values are users of what is spread. */
static void find_last(struct scheduler *s)
{
    for (kval v = s->in->ins.n - 1; v; v--) {
        const struct kir_ins *x = kir_at(s->in, v);
        kval user = is_virtual(x) ? s->last[v] : v;
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
            kval y = kir_operand(x, i);
            if (s->last[y] < user) s->last[y] = user;
        }
    }
}

static kval store_before(const struct kir *k, kval from, kval load)
{
    kval array = kir_at(k, load)->a, v = load;
    while (v > from && !stores_to(kir_at(k, v - 1), array)) v--;
    return v > from ? v - 1 : 0;
}

/* Insertion: loads are nearly in the order of their users. */
static void find_queue(struct scheduler *s, kval from, kval to)
{
    s->n_queue = s->next = 0;
    for (kval v = from; v < to; v++) {
        u32 i = s->n_queue;
        if (!may_move(s->in, kir_at(s->in, v)) || s->need[v] == UINT32_MAX) continue;
        s->after[v] = store_before(s->in, from, v);
        for (; i && s->need[s->queue[i - 1]] > s->need[v]; i--) s->queue[i] = s->queue[i - 1];
        s->queue[i] = v;
        s->n_queue++;
    }
}

/* Is it in a register, between the run's instructions? Accumulators count as arrays, and so do sums on their way to them. */
static bool has_register(const struct scheduler *s, kval v)
{
    const struct kir_ins *x = kir_at(s->in, v);
    if (is_virtual(x) || !x->dtype || !is_vector_register(x)) return false;
    return x->op == KI_LOAD ? is_memory(s->in, x) || s->carries[x->a] : kir_op_info(x->op)->cls == 'P' && s->last[v] > v + 1;
}

static void find_carriers(struct scheduler *s, kval from, kval to)
{
    for (kval v = from; v < to; v++) {
        const struct kir_ins *x = kir_at(s->in, v);
        if (x->op == KI_LOAD || x->op == KI_STORE) s->carries[x->a] = false;
    }
    for (kval v = from; v < to; v++) {
        const struct kir_ins *x = kir_at(s->in, v);
        if (x->op == KI_LOAD && is_register_array(kir_at(s->in, x->a)) && s->slot[v] == 0) s->carries[x->a] = true, s->user[x->a] = s->last[v];
        if (x->op != KI_STORE) continue;
        s->carries[x->a] &= is_memory(s->in, kir_at(s->in, x->c));
        if (s->carries[x->a] && s->user[x->a] < v) s->after[x->c] = s->user[x->a]; /* into the register that it leaves */
    }
}

/* Registers that values from outside the run, and arrays, occupy. */
static i64 occupied(const struct scheduler *s, kval from, kval to, bool *counted)
{
    i64 n = 0, count;
    for (kval v = from; v < to; v++) {
        const struct kir_ins *x = kir_at(s->in, v);
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
            kval y = kir_operand(x, i);
            const struct kir_ins *array = kir_at(s->in, y);
            if (y >= from || counted[y]) continue;
            if (is_register_array(array) && is_vector_register(array)) n += !s->carries[y] && kir_is_const(s->in, array->a, &count) ? count : 0;
            else n += has_register(s, y);
            counted[y] = true;
        }
    }
    for (kval v = from; v < to; v++)
        for (u32 i = 0; i < 4; i++) counted[kir_operand(kir_at(s->in, v), i)] = false;
    return n;
}

/* Appends v behind operands that wait for it. */
static void place(struct scheduler *s, kval v)
{
    const struct kir_ins *x = kir_at(s->in, v);
    if (!v || s->now[v]) return;
    for (u32 i = 0; i < 4; i++) place(s, kir_operand(x, i));
    append(s->out, s->in, s->now, v);
    s->free -= has_register(s, v);
}

/* Appends one instruction of those that v waits for, or v. */
static void place_one(struct scheduler *s, kval v)
{
    const struct kir_ins *x = kir_at(s->in, v);
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
        kval y = kir_operand(x, i);
        if (!s->now[y] && is_virtual(kir_at(s->in, y))) place(s, y);
        if (y && !s->now[y]) {
            place_one(s, y);
            return;
        }
    }
    place(s, v);
}

/* Registers whose last user v is. */
static void release(struct scheduler *s, kval v, kval user)
{
    const struct kir_ins *x = kir_at(s->in, v);
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
        kval y = kir_operand(x, i);
        if (y && is_virtual(kir_at(s->in, y))) release(s, y, user);
        else if (y && s->last[y] == user && has_register(s, y)) s->last[y] = 0, s->free++;
    }
}

/* The first load of the queue that may be next; 0: none. */
static kval next_load(struct scheduler *s)
{
    while (s->next < s->n_queue && s->now[s->queue[s->next]]) s->next++;
    for (u32 i = s->next; i < s->n_queue; i++) {
        kval v = s->queue[i];
        if (!s->now[v] && (!s->after[v] || s->now[s->after[v]])) return v;
    }
    return 0;
}

/* Loads before vector instruction number `slot`. */
static void load_ahead(struct scheduler *s, u32 slot)
{
    for (kval v; s->free > SPARE && (v = next_load(s)) != 0; s->since = 0) {
        if (s->need[v] > slot + DISTANCE && s->since < GAP) break;
        place(s, v);
    }
    s->since++;
}

static void advance_hint(struct scheduler *s)
{
    place_one(s, s->hint);
    if (s->now[s->hint]) s->hint = 0;
}

static void schedule(struct scheduler *s, kval from, kval to, i64 n_regs, bool *counted)
{
    find_slots(s->in, from, to, s->slot, s->need);
    find_queue(s, from, to);
    find_carriers(s, from, to);
    s->free = n_regs - occupied(s, from, to, counted);
    for (kval v = from; v < to; v++) {
        const struct kir_ins *x = kir_at(s->in, v);
        if (is_arithmetic(x)) load_ahead(s, s->slot[v]);
        if (is_arithmetic(x) && s->hint) advance_hint(s);
        if (s->last[v] && s->last[v] < to && kir_at(s->in, s->last[v])->op == KI_PREFETCH) continue; /* part of its address */
        if (x->op == KI_PREFETCH) place(s, s->hint), s->hint = v;
        else place(s, v);
        if (!is_virtual(x)) release(s, v, v);
    }
    place(s, s->hint);
    s->hint = 0;
}

void kir_ahead(struct kir *out, struct arena *a, const struct kir *in, u32 n_regs)
{
    struct arena scratch = {0};
    struct kir joined, rotated;
    join_loads(&joined, &scratch, in);
    rotate_loops(&rotated, &scratch, &joined);
    u32 n = rotated.ins.n;
    struct scheduler s = {.in = &rotated, .out = out, .now = arena_array(&scratch, kval, n), .last = arena_array(&scratch, kval, n)};
    s.slot = arena_array(&scratch, u32, n), s.need = arena_array(&scratch, u32, n);
    s.after = arena_array(&scratch, kval, n), s.queue = arena_array(&scratch, kval, n);
    bool *counted = arena_array(&scratch, bool, n);
    s.carries = arena_array(&scratch, bool, n), s.user = arena_array(&scratch, kval, n);
    begin(out, a, &rotated);
    find_last(&s);
    for (kval v = 1; v < n; v++) {
        kval end = end_of_run(&rotated, v);
        if (end > v) schedule(&s, v, end, n_regs, counted);
        v = end;
        if (v < n) place(&s, v);
    }
    arena_release(&scratch);
}
