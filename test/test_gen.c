// SPDX-License-Identifier: Apache-2.0
//
// Every generator on random tasks under random legal schedules: the interpreted kernel gives what the reference evaluator
// gives, and touches nothing it must not. Tasks are random instances of all operators, and convolutions, matrix products and
// reductions with things fused in front and behind, sizes known or symbolic, in all layouts. Some are compiled and run, too.
#include "tune/tune.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct bed {              /* one task and its sizes */
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct task t;
    i64 var[8];
    struct rng rng;
    struct caps caps;
    struct err e;
};

static void bed_open(struct bed *b, u64 seed)
{
    memset(b, 0, sizeof *b);
    symtab_init(&b->sym, &b->arena);
    graph_init(&b->g, &b->arena, &b->sym);
    b->rng = rng_seed(seed);
    b->caps = (struct caps){.arch = "test", .vector_bytes = 16u << rng_range(&b->rng, 0, 2), .n_vector_regs = 32, .n_threads = 2,
                            .l1_bytes = 32 << 10, .l2_bytes = 1 << 20, .l3_bytes = 8 << 20, .has_fma = true};
}

static void bed_close(struct bed *b)
{
    struct arena a = b->arena;
    arena_release(&a);
}

static i64 pick(struct bed *b, i64 lo, i64 hi) { return rng_range(&b->rng, lo, hi); }

/* A size: known, or a variable with that value. */
static sym size_of(struct bed *b, i64 n, bool symbolic)
{
    if (!symbolic || b->sym.var.n >= 8) return sym_const(&b->sym, n);
    sym s = sym_var(&b->sym, str_fmt(&b->arena, "S%u", b->sym.var.n));
    b->var[b->sym.var.n - 1] = n;
    return s;
}

static value_id add_input(struct bed *b, const char *name, u32 rank, const sym *dim)
{
    value_id v = graph_add_value(&b->g, str_of(name));
    struct value *x = graph_value(&b->g, v);
    x->dtype = DT_F32;
    x->shape = (struct shape){.known = true, .rank = rank};
    for (u32 i = 0; i < rank; i++) x->shape.dim[i] = dim[i];
    *arr_push(&b->arena, &b->g.input) = v;
    return v;
}

static value_id add_const(struct bed *b, const char *name, u32 rank, const i64 *dim)
{
    struct tensor *t = tensor_new(&b->arena, DT_F32, rank, dim);
    for (i64 i = 0, n = tensor_count(t); i < n; i++) elem_set_f64(DT_F32, t->data, i, rng_f64(&b->rng) * 2 - 1);
    return graph_add_const(&b->g, str_of(name), t);
}

static value_id add_op(struct bed *b, const char *op, value_id x, value_id y, value_id z)
{
    value_id in[3] = {x, y, z};
    return graph_op(&b->g, op, str_of(op), z ? 3 : y ? 2 : 1, in);
}

static bool infer_last(struct bed *b, value_id v)
{
    return op_infer(&b->g, graph_value(&b->g, v)->producer, &b->e);
}

/* The whole graph as a task, in random layouts. */
static bool make_task(struct bed *b)
{
    if (!op_infer_all(&b->g, &b->e) || !op_expand_all(&b->g, &b->e) || !op_infer_all(&b->g, &b->e)) return false;
    u32 n = 0, n_whole = 0;
    node_id *nodes = arena_array(&b->arena, node_id, b->g.node.n);
    for (node_id i = 1; i < b->g.node.n; i++) {
        if (graph_node(&b->g, i)->dead) continue;
        nodes[n++] = i;
        n_whole += op_of(&b->g, i)->props & OP_WHOLE ? 1 : 0;
    }
    if (n_whole && n > 1) return false; /* such a node is always a task of its own */
    enum layout *l = arena_array(&b->arena, enum layout, b->g.value.n);
    for (value_id v = 1; v < b->g.value.n; v++) {
        i64 r = pick(b, 0, 7);
        node_id p = graph_value(&b->g, v)->producer;
        bool whole = p && op_of(&b->g, p)->props & OP_WHOLE; /* writes elements only, no padding */
        if (graph_value(&b->g, v)->shape.rank < 3 || r < 3) continue;
        l[v] = r == 3 && !whole ? LAYOUT_C8 : r == 4 && !whole ? LAYOUT_C16 : LAYOUT_CLAST;
    }
    return task_make(&b->t, &b->g, &b->arena, nodes, n, b->g.output.v, b->g.output.n, l, NULL, &b->e);
}

/* Kernels sum in f32 where the reference sums in f64, and differences cancel: results near zero may be off by more. */
static bool compare(const struct check *c, u32 k, const void *got, struct err *e)
{
    const struct tensor *want = c->want[k];
    enum layout l = graph_value(&c->task->g, c->task->g.output.v[k])->layout;
    for (i64 i = 0, n = tensor_count(want); i < n; i++) {
        double x = elem_f64(want->dtype, want->data, i), y = elem_f64(want->dtype, got, layout_flat(want, l, i));
        if (x == y || (x != x && y != y)) continue;
        if (!(fabs(x - y) <= 20 * (c->rtol * fabs(x) + c->atol)))
            return err_set(e, ERR_FAILED, "output %u, element %lld: %.9g instead of %.9g", k, (long long)i, y, x);
    }
    return true;
}

/* Runs a kernel in the interpreter. */
static bool interpret(const struct kernel *k, const struct check *c, struct arena *a, struct err *e)
{
    const struct graph *g = &c->task->g;
    struct kir_arg *arg = arena_array(a, struct kir_arg, k->n_arg);
    i64 *param = arena_array(a, i64, k->n_param + 1);
    for (u32 i = 0; i < k->n_param; i++)
        if (!sym_eval(g->sym, k->param[i], c->var, &param[i])) return err_set(e, ERR_FAILED, "cannot evaluate a parameter");
    for (u32 i = 0; i < k->n_arg; i++) {
        const struct kernel_arg *x = &k->arg[i];
        const struct value *v = graph_value(g, x->v);
        i64 n;
        if (!sym_eval(g->sym, layout_count(g->sym, &v->shape, v->layout), c->var, &n)) return false;
        const struct tensor *t = &c->value[x->v];
        struct tensor *p = x->pack ? pack_apply(x->pack, t, g->sym, a) : NULL;
        if (p) n = tensor_count(p);
        arg[i] = (struct kir_arg){p ? p->data : arena_alloc(a, (n + 1) * dtype_size(v->dtype)), n};
        if (!p && !x->is_out) layout_store(t, v->layout, arg[i].p);
    }
    struct kir_eval_opts o = {.seed = 7};
    if (!kir_eval(&k->kir, arg, param, &o, e)) return false;
    for (u32 i = 0; i < g->output.n; i++)
        for (u32 j = 0; j < k->n_arg; j++)
            if (k->arg[j].is_out && k->arg[j].v == g->output.v[i] && !compare(c, i, arg[j].p, e)) return false;
    return true;
}

static bool run(struct bed *b, const struct candidate *c, const struct check *k)
{
    struct arena a = {0};
    struct kernel kernel;
    bool ok = gen_kernel(&kernel, &a, c, &b->t, &b->caps, &b->e) && interpret(&kernel, k, &a, &b->e);
    if (!ok && getenv("DUMP")) {
        struct buf text = {0};
        kir_print(&text, &kernel.kir);
        printf("%.*s\n", (int)text.n, text.p);
        buf_release(&text);
    }
    arena_release(&a);
    return ok;
}

static void report(struct bed *b, const struct candidate *c, u64 seed)
{
    struct buf text = {0};
    if (c) candidate_print(&text, c);
    fail_msg("seed %llu: %s\ncandidate %.*s\ntask\n%.*s", (unsigned long long)seed, b->e.msg, (int)text.n, text.p ? text.p : "",
             STR_ARG(b->t.text));
}

/* Such an operator is a task of its own. */
static bool has_whole_inside(const struct task *t)
{
    for (node_id n = 1; n < t->g.node.n; n++)
        if (op_of(&t->g, n)->props & OP_WHOLE && t->g.node.n > 2) return true;
    return false;
}

/* The default candidate and random ones. Returns the number of kernels run. */
static u32 try_task(struct bed *b, u64 seed, u32 n)
{
    struct check k;
    u32 done = 0;
    const char *only = getenv("GEN");
    if (!check_init(&k, &b->t, b->var, seed, true, &b->e)) return 0; /* sizes that cannot be: the operators' own tests */
    for (u32 i = 0; i < n; i++) {
        struct candidate c;
        bool found = i == 0 ? gen_default(&b->t, &b->caps, b->var, &c) : gen_random(&b->t, &b->caps, &b->rng, &c);
        if (!found && has_whole_inside(&b->t)) break;
        if (!found) report(b, NULL, seed);
        if (only && !str_is(str_of(only), c.gen->name)) continue;
        if (getenv("VERBOSE")) {
            struct buf text = {0};
            candidate_print(&text, &c);
            fprintf(stderr, "seed %llu %.*s\n", (unsigned long long)seed, (int)text.n, text.p);
            buf_release(&text);
        }
        struct buf text = {0};
        struct candidate back;
        candidate_print(&text, &c);
        assert_true(candidate_parse(&back, buf_view(&text), &b->e));
        assert_memory_equal(&back, &c, sizeof c);
        buf_release(&text);
        if (!run(b, &c, &k)) report(b, &c, seed);
        done++;
    }
    check_release(&k);
    return done;
}

static u64 first_seed(u64 n) { return getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) : n; }
static u64 last_seed(u64 n) { return getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) + 1 : n; }

/* Random instances of every operator. */
static void test_operators(void **state)
{
    for (u64 seed = first_seed(0); seed < last_seed(3); seed++)
        for (i64 i = 0; op_all(i); i++) {
            struct bed b;
            bed_open(&b, seed * 1000 + (u64)i);
            if (getenv("OP") && strcmp(getenv("OP"), op_all(i)->name)) continue;
            if (!op_all(i)->random) continue;
            op_all(i)->random(op_all(i), &b.g, &b.rng);
            if (make_task(&b)) try_task(&b, seed, 3); /* what cannot be expanded fails in the operators' own tests */
            bed_close(&b);
        }
}

/* Pointwise things in front: activation, padding, concatenation. */
static value_id random_prologue(struct bed *b, value_id x, u32 rank, const sym *dim)
{
    switch (pick(b, 0, 5)) {
    case 0: return add_op(b, "Relu", x, 0, 0);
    case 1: {
        sym d[MAX_RANK];
        memcpy(d, dim, sizeof d);
        d[1] = sym_const(&b->sym, pick(b, 1, 20));
        value_id y = add_op(b, "Concat", x, add_input(b, "other", rank, d), 0);
        attr_set_int(&b->g, graph_value(&b->g, y)->producer, "axis", 1);
        return y;
    }
    default: return x;
    }
}

static value_id random_epilogue(struct bed *b, value_id y)
{
    if (!infer_last(b, y)) return y;
    struct shape s = graph_value(&b->g, y)->shape;
    i64 c;
    if (pick(b, 0, 2) == 0) y = add_op(b, "Relu", y, 0, 0);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Add", y, add_input(b, "residual", s.rank, s.dim), 0);
    if (pick(b, 0, 2) == 0 && sym_is_const(&b->sym, s.dim[1], &c)) {
        i64 d[MAX_RANK] = {1, c, 1, 1, 1};
        y = add_op(b, "Mul", y, add_const(b, "scale", s.rank, d), 0);
    }
    if (pick(b, 0, 3) == 0) y = add_op(b, "Sigmoid", y, 0, 0);
    return y;
}

static bool random_conv(struct bed *b)
{
    u32 s = (u32)pick(b, 1, 3), rank = s + 2;
    static const i64 channels[] = {1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 32, 33};
    i64 groups = pick(b, 0, 4) ? 1 : pick(b, 2, 3);
    i64 w[MAX_RANK], pads[2 * MAX_RANK], strides[MAX_RANK], dil[MAX_RANK];
    sym dim[MAX_RANK];
    bool point = pick(b, 0, 3) == 0, symbolic = pick(b, 0, 1);
    bool depthwise = pick(b, 0, 5) == 0;
    i64 ic = groups * channels[pick(b, 0, groups > 1 ? 4 : countof(channels) - 1)];
    w[0] = groups * channels[pick(b, 0, groups > 1 ? 6 : countof(channels) - 1)];
    if (depthwise) groups = w[0] = ic = pick(b, 2, 40);
    dim[0] = size_of(b, pick(b, 1, 2), pick(b, 0, 3) == 0);
    dim[1] = sym_const(&b->sym, ic);
    for (u32 i = 0; i < s; i++) {
        w[2 + i] = point ? 1 : pick(b, 1, s == 3 ? 2 : 3);
        strides[i] = point && pick(b, 0, 2) ? 1 : pick(b, 1, 2);
        dil[i] = pick(b, 0, 3) ? 1 : 2;
        pads[i] = point ? 0 : pick(b, 0, 2), pads[s + i] = point ? 0 : pick(b, 0, 2);
        i64 need = (w[2 + i] - 1) * dil[i] + 1 - pads[i] - pads[s + i];
        dim[2 + i] = size_of(b, i64_max(need, 1) + pick(b, 0, s == 1 ? 40 : i + 1 == s ? 17 : 5), symbolic);
    }
    value_id x = add_input(b, "x", rank, dim);
    x = depthwise && pick(b, 0, 1) ? add_op(b, "Relu", x, 0, 0) : random_prologue(b, x, rank, dim);
    if (graph_value(&b->g, x)->producer) {
        if (!infer_last(b, x)) return false;
        sym_is_const(&b->sym, graph_value(&b->g, x)->shape.dim[1], &ic);
        if (ic % groups) return false;
    }
    w[1] = ic / groups;
    value_id y = add_op(b, "Conv", x, add_const(b, "w", rank, w), pick(b, 0, 1) ? add_const(b, "b", 1, w) : 0);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_int(&b->g, n, "group", groups);
    attr_set_ints(&b->g, n, "strides", strides, s);
    attr_set_ints(&b->g, n, "dilations", dil, s);
    attr_set_ints(&b->g, n, "pads", pads, 2 * s);
    y = random_epilogue(b, y);
    if (s == 2 && pick(b, 0, 4) == 0) {
        y = add_op(b, "MaxPool", y, 0, 0);
        attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "kernel_shape", (i64[]){2, 2}, 2);
        attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "strides", (i64[]){2, 2}, 2);
    }
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static void test_conv(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0); seed < last_seed(120); seed++) {
        struct bed b;
        bed_open(&b, seed);
        if (random_conv(&b)) n += try_task(&b, seed, 6);
        bed_close(&b);
    }
    assert_true(n > 0);
}

/* One operand of a matrix product, perhaps transposed, perhaps with a Relu in front. */
static value_id operand(struct bed *b, const char *name, u32 rank, const sym *dim, bool constant)
{
    sym d[MAX_RANK];
    i64 c[MAX_RANK], perm[MAX_RANK];
    bool known = true, turned = rank > 1 && pick(b, 0, 3) == 0;
    for (u32 i = 0; i < rank; i++) perm[i] = i, d[i] = dim[i], known = known && sym_is_const(&b->sym, dim[i], &c[i]);
    if (constant && known) return add_const(b, name, rank, c);
    if (turned) {
        d[rank - 1] = dim[rank - 2], d[rank - 2] = dim[rank - 1];
        perm[rank - 1] = rank - 2, perm[rank - 2] = rank - 1;
    }
    value_id x = add_input(b, name, rank, d);
    if (turned) {
        x = add_op(b, "Transpose", x, 0, 0);
        attr_set_ints(&b->g, graph_value(&b->g, x)->producer, "perm", perm, rank);
    }
    return pick(b, 0, 5) ? x : add_op(b, "Relu", x, 0, 0);
}

static bool random_gemm(struct bed *b)
{
    static const i64 sizes[] = {1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 40, 65};
    sym a[MAX_RANK], w[MAX_RANK], n[3];
    u32 ra = (u32)pick(b, 1, 4), rb = (u32)pick(b, 2, 4);
    bool symbolic = pick(b, 0, 2) == 0;
    for (u32 i = 0; i < 3; i++) n[i] = size_of(b, sizes[pick(b, 0, countof(sizes) - 1)], symbolic && pick(b, 0, 1));
    for (u32 i = 0; i < 2; i++) { /* batches, from the last */
        sym d = size_of(b, pick(b, 1, 3), symbolic && pick(b, 0, 1)), one = sym_const(&b->sym, 1);
        if (ra > 2 + i) a[ra - 3 - i] = pick(b, 0, 4) ? d : one;
        if (rb > 2 + i) w[rb - 3 - i] = pick(b, 0, 4) ? d : one;
    }
    a[ra - 1] = n[2], w[rb - 2] = n[2], w[rb - 1] = n[1];
    if (ra > 1) a[ra - 2] = n[0];
    value_id y = add_op(b, "MatMul", operand(b, "a", ra, a, false), operand(b, "b", rb, w, pick(b, 0, 1)), 0);
    for (node_id i = 1; i < b->g.node.n; i++)
        if (!op_infer(&b->g, i, &b->e)) return false;
    struct shape s = graph_value(&b->g, y)->shape;
    if (pick(b, 0, 1)) y = add_op(b, "Add", y, operand(b, "c", 1, &n[1], true), 0);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Sigmoid", y, 0, 0);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Add", y, add_input(b, "residual", s.rank, s.dim), 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static void test_gemm(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0); seed < last_seed(150); seed++) {
        struct bed b;
        bed_open(&b, seed);
        if (random_gemm(&b)) n += try_task(&b, seed, 6);
        bed_close(&b);
    }
    assert_true(n > 0);
}

static value_id norm(struct bed *b, value_id x, u32 rank, const sym *dim)
{
    static const char *const reduce[] = {"ReduceMean", "ReduceMax", "ReduceL2", "ReduceSum", "ReduceLogSumExp"};
    i64 axes[MAX_RANK], n = 0, c;
    i64 kind = pick(b, 0, 3);
    if (kind == 0 || (kind == 1 && !sym_is_const(&b->sym, dim[rank - 1], &c))) {
        value_id y = add_op(b, "Softmax", x, 0, 0);
        attr_set_int(&b->g, graph_value(&b->g, y)->producer, "axis", pick(b, 0, rank - 1));
        return y;
    }
    if (kind == 1) return add_op(b, "LayerNormalization", x, add_const(b, "s", 1, &c), add_const(b, "b", 1, &c));
    if (kind == 2 && rank > 2 && sym_is_const(&b->sym, dim[1], &c))
        return add_op(b, "InstanceNormalization", x, add_const(b, "s", 1, &c), add_const(b, "b", 1, &c));
    for (u32 i = 0; i < rank; i++)
        if (pick(b, 0, 1)) axes[n++] = i;
    if (!n) axes[n++] = rank - 1;
    struct tensor *t = tensor_new(&b->arena, DT_I64, 1, &n);
    memcpy(t->data, axes, sizeof(i64) * (size_t)n);
    value_id y = add_op(b, reduce[pick(b, 0, 4)], x, graph_add_const(&b->g, S("axes"), t), 0);
    attr_set_int(&b->g, graph_value(&b->g, y)->producer, "keepdims", pick(b, 0, 1));
    return y;
}

static bool random_row(struct bed *b)
{
    static const i64 sizes[] = {1, 2, 3, 5, 7, 16, 17, 32, 40, 70};
    sym dim[MAX_RANK];
    u32 rank = (u32)pick(b, 1, 4);
    bool symbolic = pick(b, 0, 1);
    for (u32 i = 0; i < rank; i++)
        dim[i] = size_of(b, sizes[pick(b, 0, rank > 2 ? 4 : rank == 2 ? 6 : 9)], symbolic && pick(b, 0, 1));
    if (rank > 2) dim[pick(b, 0, rank - 1)] = size_of(b, pick(b, 6, 20), symbolic && pick(b, 0, 1));
    value_id x = add_input(b, "x", rank, dim), y = x;
    if (pick(b, 0, 1)) y = add_op(b, "Add", x, add_input(b, "z", rank, dim), 0);
    y = norm(b, y, rank, dim);
    if (pick(b, 0, 1)) y = add_op(b, "Sigmoid", y, 0, 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static void test_row(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0); seed < last_seed(120); seed++) {
        struct bed b;
        bed_open(&b, seed);
        if (random_row(&b)) n += try_task(&b, seed, 5);
        bed_close(&b);
    }
    assert_true(n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
