// SPDX-License-Identifier: Apache-2.0
//
// Canonical instruction order. C leaves the evaluation order of nested builder calls to the
// compiler; here random kernels are built several times with a random order for every call, and
// must end up with one text, unchanged semantics, and be stable when ordered again.
#include "kir/kir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_NODES = 600, MAX_STEPS = 60, MAX_LETS = 24, MAX_OPEN = 4, N = 64, N_REG = 4 };

enum kind { INT, PARAM, OUTER, LET, INDEX_OP, NUMBER, LOAD_IN, LOAD_REG, LOAD_SHARED, VALUE_OP, PICK, FMA, CONVERT };

struct node { /* an expression */
    enum kind kind;
    enum kir_op op;
    i64 imm;
    u32 a, b, c;
};

enum action { STORE_OUT, STORE_REG, STORE_SHARED, BIND, BIND_INDEX, OPEN_LOOP, OPEN_IF, TURN, CLOSE, WAIT };

struct step { /* a statement; a, b: expressions */
    enum action action;
    u32 a, b, let;
};

struct program {
    struct rng rng;
    struct node node[MAX_NODES];
    struct step step[MAX_STEPS];
    u32 n_node, n_step, n_let, n_open;
    u32 lets_at[MAX_OPEN + 1]; /* let bindings that are in scope per depth */
    bool is_if[MAX_OPEN + 1], is_index[MAX_LETS];
    u32 loops_at[MAX_OPEN + 1]; /* open loops, grids included, below each depth */
};

/* Random programs, as data. */

static i64 pick(struct program *p, i64 lo, i64 hi) { return rng_range(&p->rng, lo, hi); }

static u32 add(struct program *p, struct node x)
{
    assert_true(p->n_node < MAX_NODES);
    p->node[p->n_node] = x;
    return p->n_node++;
}

static u32 find_let(struct program *p, bool is_index)
{
    for (u32 try = 0; try < 8 && p->n_let; try++) {
        u32 k = (u32)pick(p, 0, p->n_let - 1);
        if (p->is_index[k] == is_index) return k;
    }
    return UINT32_MAX;
}

static u32 random_index(struct program *p, u32 depth)
{
    static const enum kir_op ops[] = {KI_ADD, KI_ADD, KI_ADD, KI_MUL, KI_SUB, KI_MIN, KI_MAX};
    u32 let = find_let(p, true);
    if (depth == 0 || pick(p, 0, 4) == 0)
        switch (pick(p, 0, 5)) {
        case 0: return add(p, (struct node){.kind = INT, .imm = pick(p, -3, 9)});
        case 1: return add(p, (struct node){.kind = PARAM, .imm = pick(p, 0, 2)});
        case 2: if (let != UINT32_MAX) return add(p, (struct node){.kind = LET, .imm = let}); /* fallthrough */
        default: return add(p, (struct node){.kind = OUTER, .imm = pick(p, 0, p->loops_at[p->n_open] - 1)});
        }
    struct node x = {.kind = INDEX_OP, .op = ops[pick(p, 0, countof(ops) - 1)]};
    if (pick(p, 0, 4) == 0) x.op = pick(p, 0, 1) ? KI_DIV : KI_MOD;
    x.a = random_index(p, depth - 1);
    x.b = x.op == KI_DIV || x.op == KI_MOD ? add(p, (struct node){.kind = INT, .imm = pick(p, 1, 8)}) : random_index(p, depth - 1);
    return add(p, x);
}

static u32 random_value(struct program *p, u32 depth)
{
    static const enum kir_op ops[] = {KI_ADD, KI_MUL, KI_SUB, KI_DIV, KI_MIN, KI_MAX};
    u32 let = find_let(p, false);
    struct node x = {.kind = VALUE_OP, .op = ops[pick(p, 0, countof(ops) - 1)]};
    i64 what = depth == 0 ? pick(p, 0, 3) : pick(p, 0, 9);
    switch (what) {
    case 0: return add(p, (struct node){.kind = NUMBER, .imm = pick(p, -2, 2)});
    case 1: if (let != UINT32_MAX) return add(p, (struct node){.kind = LET, .imm = let}); /* fallthrough */
    case 2: x.kind = LOAD_IN, x.imm = pick(p, 0, 1), x.a = random_index(p, 2); break;
    case 3:
        x.kind = pick(p, 0, 1) ? LOAD_REG : LOAD_SHARED, x.imm = pick(p, 0, N_REG - 1), x.a = random_index(p, 1);
        break;
    case 4: x.kind = CONVERT, x.a = random_index(p, depth - 1); break;
    case 5: x.kind = FMA, x.a = random_value(p, depth - 1), x.b = random_value(p, depth - 1), x.c = random_value(p, depth - 1); break;
    case 6:
        x.kind = PICK, x.imm = pick(p, -2, 5), x.a = random_index(p, depth - 1);
        x.b = random_value(p, depth - 1), x.c = random_value(p, depth - 1);
        break;
    default: x.a = random_value(p, depth - 1), x.b = random_value(p, depth - 1); break;
    }
    return add(p, x);
}

static void open_scope(struct program *p, bool is_if)
{
    p->n_open++;
    p->is_if[p->n_open] = is_if;
    p->lets_at[p->n_open] = p->n_let;
    p->loops_at[p->n_open] = p->loops_at[p->n_open - 1] + !is_if;
}

static struct step random_step(struct program *p)
{
    struct step s = {.action = (enum action)pick(p, STORE_OUT, WAIT)};
    if (s.action == CLOSE && p->n_open < 1) s.action = STORE_REG;
    if (s.action == TURN && (!p->n_open || !p->is_if[p->n_open])) s.action = STORE_OUT;
    if (s.action >= BIND && s.action <= BIND_INDEX && p->n_let == MAX_LETS) s.action = STORE_REG;
    if ((s.action == OPEN_LOOP || s.action == OPEN_IF) && p->n_open == MAX_OPEN) s.action = CLOSE;
    if (s.action == WAIT && p->n_open) s.action = STORE_SHARED;
    s.a = s.action == BIND_INDEX || s.action == OPEN_IF ? random_index(p, 2) : random_value(p, 3);
    s.b = random_index(p, 2);
    s.let = p->n_let;
    if (s.action == BIND || s.action == BIND_INDEX) p->is_index[p->n_let++] = s.action == BIND_INDEX;
    if (s.action == OPEN_LOOP || s.action == OPEN_IF) open_scope(p, s.action == OPEN_IF);
    if (s.action == TURN) p->n_let = p->lets_at[p->n_open], p->is_if[p->n_open] = false;
    if (s.action == CLOSE) p->n_let = p->lets_at[p->n_open--];
    return s;
}

static void make_program(struct program *p, u64 seed)
{
    *p = (struct program){.rng = rng_seed(seed), .loops_at = {1}};
    u32 want = (u32)pick(p, 3, 20);
    while (p->n_step < want && p->n_node < MAX_NODES / 2) p->step[p->n_step++] = random_step(p);
    while (p->n_open) {
        p->step[p->n_step++] = (struct step){.action = CLOSE};
        p->n_let = p->lets_at[p->n_open--];
    }
}

/* Kernels of them. */

struct building {
    const struct program *p;
    struct kir *k;
    struct rng turn; /* which operand is evaluated first */
    kval in[2], out, reg, shared, let[MAX_LETS], outer[MAX_OPEN + 1];
    u32 n_outer, n_open, outer_at[MAX_OPEN]; /* loops that were open when each structure was opened */
};

static kval build(struct building *b, u32 n);

static void operands(struct building *b, const struct node *x, u32 n, kval v[3])
{
    u32 from[3] = {x->a, x->b, x->c}, at[3] = {0, 1, 2};
    for (u32 i = n; i > 1; i--) {
        u32 j = (u32)rng_range(&b->turn, 0, i - 1), t = at[j];
        at[j] = at[i - 1], at[i - 1] = t;
    }
    for (u32 i = 0; i < n; i++) v[at[i]] = build(b, from[at[i]]);
}

/* Inside an array of that many. */
static kval inside(struct building *b, kval at, i64 n)
{
    kval r = kir_mod(b->k, at, kir_int(b->k, n));
    return kir_max(b->k, r, kir_int(b->k, 0));
}

static kval build(struct building *b, u32 n)
{
    const struct node *x = &b->p->node[n];
    struct kir *k = b->k;
    static const char *const params[] = {"A", "B", "A + 3*B"};
    kval v[3] = {0};
    switch (x->kind) {
    case INT: return kir_int(k, x->imm);
    case PARAM: return kir_param(k, str_of(params[x->imm]));
    case OUTER: return b->outer[x->imm];
    case LET: return b->let[x->imm];
    case NUMBER: return kir_const_f(k, DT_F32, 1, (double)x->imm);
    case LOAD_REG: return kir_load(k, b->reg, kir_int(k, x->imm));
    case LOAD_IN: return kir_load(k, b->in[x->imm], inside(b, build(b, x->a), N));
    case LOAD_SHARED: return kir_load(k, b->shared, inside(b, build(b, x->a), N));
    case CONVERT: return kir_cast(k, DT_F32, build(b, x->a));
    case INDEX_OP:
    case VALUE_OP: operands(b, x, 2, v); return kir_bin(k, x->op, v[0], v[1]);
    case FMA: operands(b, x, 3, v); return kir_fma(k, v[0], v[1], v[2]);
    case PICK:
        operands(b, x, 3, v);
        return kir_select(k, kir_lt(k, v[0], kir_int(k, x->imm)), v[1], v[2]);
    default: unreachable();
    }
}

/* Index and value, one of them first. */
static void both(struct building *b, const struct step *s, i64 n, kval *at, kval *v)
{
    bool first = rng_range(&b->turn, 0, 1);
    if (first) *v = build(b, s->a);
    *at = inside(b, build(b, s->b), n);
    if (!first) *v = build(b, s->a);
}

static void carry_out(struct building *b, const struct step *s)
{
    struct kir *k = b->k;
    kval at = 0, v = 0;
    switch (s->action) {
    case STORE_OUT: both(b, s, N, &at, &v); kir_store(k, b->out, at, v); break;
    case STORE_SHARED: both(b, s, N, &at, &v); kir_store(k, b->shared, at, v); break;
    case STORE_REG:
        v = build(b, s->a);
        kir_store(k, b->reg, kir_int(k, b->p->node[s->a].imm & (N_REG - 1)), v);
        break;
    case BIND: b->let[s->let] = build(b, s->a); break;
    case BIND_INDEX: b->let[s->let] = inside(b, build(b, s->a), 97); break;
    case OPEN_LOOP:
        b->outer_at[b->n_open++] = b->n_outer;
        b->outer[b->n_outer++] = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, 3), 1);
        break;
    case OPEN_IF:
        b->outer_at[b->n_open++] = b->n_outer;
        kir_if(k, kir_lt(k, build(b, s->a), kir_param(k, S("A"))));
        break;
    case TURN: kir_else(k); break;
    case CLOSE:
        b->n_outer = b->outer_at[--b->n_open];
        kir_end(k);
        break;
    case WAIT: kir_barrier(k); break;
    default: unreachable();
    }
}

static void make_kernel(struct kir *k, struct arena *a, const struct program *p, u64 turn)
{
    struct building b = {.p = p, .k = k, .turn = rng_seed(turn), .n_outer = 1};
    kir_init(k, a, S("k"));
    b.in[0] = kir_buf(k, S("x"), DT_F32, KA_IN);
    b.in[1] = kir_buf(k, S("y"), DT_F32, KA_IN);
    b.out = kir_buf(k, S("z"), DT_F32, KA_INOUT);
    b.outer[0] = kir_grid(k, kir_int(k, 1));
    b.reg = kir_alloc(k, KS_REG, DT_F32, 1, kir_int(k, N_REG));
    b.shared = kir_alloc(k, KS_SHARED, DT_F32, 1, kir_int(k, N));
    for (i64 i = 0; i < N_REG; i++) kir_store(k, b.reg, kir_int(k, i), kir_const_f(k, DT_F32, 1, 1 + (double)i));
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, N), 1);
    kir_store(k, b.shared, i, kir_cast(k, DT_F32, i));
    kir_end(k);
    for (u32 s = 0; s < p->n_step; s++) carry_out(&b, &p->step[s]);
    kir_end(k);
}

static struct str text_of(struct arena *a, const struct kir *k)
{
    struct buf b = {0};
    kir_print(&b, k);
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

/* The kernel that is ordered is one, and its text. */
static struct str ordered(struct kir *out, struct arena *a, const struct kir *in, u64 seed)
{
    struct err e = {0};
    kir_order(out, a, in, false);
    if (!kir_verify(out, &e)) fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, e.msg, text_of(a, out).p);
    return text_of(a, out);
}

/* The parameters' values: their texts say which. */
static void run(const struct kir *k, u64 seed, float out[N])
{
    float in[2][N];
    i64 param[3];
    struct err e = {0};
    struct rng r = rng_seed(seed);
    for (u32 i = 0; i < 2 * N; i++) in[i / N][i % N] = (float)rng_range(&r, -8, 8) / 4;
    for (u32 i = 0; i < N; i++) out[i] = (float)i;
    for (u32 i = 0; i < k->param.n; i++)
        param[i] = str_is(k->param.v[i], "A") ? 5 : str_is(k->param.v[i], "B") ? 3 : 14;
    const struct kir_arg arg[] = {{in[0], N}, {in[1], N}, {out, N}};
    if (!kir_eval(k, arg, param, NULL, &e)) fail_msg("seed %llu: %s", (unsigned long long)seed, e.msg);
}

static void check_same_results(const struct kir *a, const struct kir *b, u64 seed)
{
    float x[N], y[N];
    run(a, seed, x);
    run(b, seed, y);
    for (u32 i = 0; i < N; i++)
        if (memcmp(&x[i], &y[i], sizeof x[i]) && (x[i] == x[i] || y[i] == y[i]))
            fail_msg("seed %llu: element %u is %g, not %g", (unsigned long long)seed, i, (double)y[i], (double)x[i]);
}

static void check_program(u64 seed)
{
    struct arena a = {0};
    struct program *p = arena_new(&a, struct program);
    struct kir first, one, other, again;
    make_program(p, seed);
    make_kernel(&first, &a, p, 0);
    struct str want = ordered(&one, &a, &first, seed);
    check_same_results(&first, &one, seed);
    for (u64 turn = 1; turn < 5; turn++) {
        make_kernel(&other, &a, p, turn);
        struct str got = ordered(&again, &a, &other, seed);
        if (!str_eq(got, want)) fail_msg("seed %llu, turn %llu:\n%s\n%s", (unsigned long long)seed, (unsigned long long)turn, want.p, got.p);
    }
    if (!str_eq(ordered(&again, &a, &one, seed), want))
        fail_msg("seed %llu: ordered again:\n%s\n%s", (unsigned long long)seed, want.p, text_of(&a, &again).p);
    struct arena all = a;
    arena_release(&all);
}

static void test_programs(void **state)
{
    const char *only = getenv("SEED");
    u64 from = only ? strtoull(only, NULL, 10) : 0, to = only ? from + 1 : 600;
    for (u64 seed = from; seed < to; seed++) check_program(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
