// SPDX-License-Identifier: Apache-2.0
//
// Fixture for tests of kernel families: one random task with its sizes; try_task runs the default
// candidate and random ones in the interpreter and compares with the reference evaluator. A fixture
// is opened for a CPU with vectors; fixture_use_workgroups changes it to a random device with
// workgroups. SEED, GEN, DUMP, VERBOSE in the environment narrow down a failure.
#ifndef QUERN_TEST_GEN_FIXTURE_H
#define QUERN_TEST_GEN_FIXTURE_H

#include "seeds.h"
#include "tune/tune.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skip.h"

struct fixture {              /* one task and its sizes */
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct task t;
    i64 var[8];
    struct rng rng;
    struct caps caps;
    enum dtype type;      /* of inputs and constants */
    bool tf32;            /* operands of f32 matmuls may be rounded */
    const struct gen *only; /* the family under test, NULL: all that match */
    bool has_words;       /* tasks of bytes have operands of i16 */
    i64 acc16;            /* not 0: they have this attribute, and operands that reach its bounds */
    bool is_depthwise;    /* convolutions of bytes are */
    bool is_large;        /* matmuls of bytes and convolutions are of the sizes that matrix units are for */
    bool in_blocks;       /* most inputs and outputs have blocked channels */
    bool others_in_rows;  /* outputs but the first are row-major */
    bool gives_weights;   /* weights of convolutions are inputs */
    struct err e;
};

static inline void fixture_open(struct fixture *b, u64 seed)
{
    memset(b, 0, sizeof *b);
    symtab_init(&b->sym, &b->arena);
    graph_init(&b->g, &b->arena, &b->sym);
    b->rng = rng_seed(seed);
    b->type = DT_F32;
    b->caps = (struct caps){.arch = "test", .vector_bytes = 16u << rng_range(&b->rng, 0, 2), .n_vector_regs = 32, .n_threads = 2,
                            .l1_bytes = 32 << 10, .l2_bytes = 1 << 20, .l3_bytes = 8 << 20, .has_fma = true};
    if (seed % 2) b->caps.l3_bytes = 1 << 8; /* so that non-temporal stores are legal */
}

/* From the smallest device with workgroups to a large one: subgroups of 4 to 64 threads, 16 to 64
   KiB of shared memory, workgroups of 64 to 1024 threads, 1 to 13 processors, with and without
   matrix units. */
static inline void fixture_use_workgroups(struct fixture *b)
{
    static const struct { u32 subgroup, subgroup_min, subgroup_max, max_group; i64 shared_bytes; bool has_subgroup; const char *matrix; }
    device[] = {
        {4, 4, 4, 64, 16 << 10, false, ""},
        {4, 4, 4, 128, 16 << 10, true, "4x4x4:f16,f16,f32,f32"},
        {8, 8, 8, 1024, 32 << 10, true, ""},
        {16, 8, 32, 512, 64 << 10, true, "8x8x16:f16,f16,f32,f32 8x16x16:f16,f16,f16,f16"},
        {32, 32, 32, 1024, 48 << 10, true, "16x16x16:f16,f16,f32,f32 16x8x16:f16,f16,f32,f32 16x8x8:f16,f16,f16,f16 16x8x16:bf16,bf16,f32,f32 16x8x8:tf32,tf32,f32,f32"},
        {64, 32, 64, 1024, 64 << 10, true, "16x16x16:f16,f16,f32,f32 32x32x8:bf16,bf16,f32,f32 "
         "16x16x4:f32,f32,f32,f32 32x32x2:f32,f32,f32,f32 16x16x16:f32,f32,f32,f32 16x16x8:bf16,bf16,f32,f32 32x32x4:tf32,tf32,f32,f32"},
        {64, 64, 64, 256, 32 << 10, true, ""},
    };
    i64 i = rng_range(&b->rng, 0, countof(device) - 1);
    b->caps = (struct caps){.arch = "test", .vector_bytes = 16, .n_vector_regs = 255, .n_threads = 1 + 2 * (u32)i, .l1_bytes = 64 << 10,
                            .l2_bytes = 4 << 20, .has_fma = true, .is_gpu = true, .max_group = device[i].max_group,
                            .subgroup = device[i].subgroup, .subgroup_min = device[i].subgroup_min,
                            .subgroup_max = device[i].subgroup_max, .shared_bytes = device[i].shared_bytes, .max_push = 128,
                            .buffer_align = 64, .has_subgroup = device[i].has_subgroup, .has_f16 = true, .has_f64 = true,
                            .has_i8 = true, .has_i16 = true, .has_i64 = true, .gflops = 10000, .gbps = 500};
    snprintf(b->caps.matrix, sizeof b->caps.matrix, "%s", device[i].matrix);
}

/* Warpgroups of an existing size. */
static inline void fixture_use_warpgroups(struct fixture *b)
{
    b->caps.subgroup = b->caps.subgroup_min = b->caps.subgroup_max = 32;
    b->caps.max_group = 1024;
    b->caps.shared_bytes = rng_range(&b->rng, 64, 227) << 10; /* small: not all warpgroups store at once */
    b->caps.has_subgroup = b->caps.has_copy = true;
    b->caps.has_tile = rng_range(&b->rng, 0, 3) > 0;
    b->caps.warpgroup = 4;
    snprintf(b->caps.warpgroup_matrix, sizeof b->caps.warpgroup_matrix, "64x64x16:f16,f16,f32,f32 64x64x16:f16,f16,f16,f16 "
             "64x64x16:bf16,bf16,f32,f32 64x128x16:f16,f16,f32,f32 64x128x16:bf16,bf16,f32,f32 64x256x16:f16,f16,f16,f16");
}

static inline void fixture_close(struct fixture *b)
{
    struct arena a = b->arena;
    arena_release(&a);
}

static inline i64 pick(struct fixture *b, i64 lo, i64 hi) { return rng_range(&b->rng, lo, hi); }

/* Matmuls of warpgroups of the described device that has them. */
static inline void fixture_open_wgmma(struct fixture *b, u64 seed)
{
    fixture_open(b, seed);
    assert_true(dev_target(&b->caps, "cuda", S("sm_90a")));
    b->only = gen_find(S("wgmma_gemm"));
    b->type = pick(b, 0, 1) ? DT_F16 : DT_BF16;
}

/* A size: a constant, or a variable with that value. */
static inline sym size_of(struct fixture *b, i64 n, bool symbolic)
{
    if (!symbolic || b->sym.var.n >= 8) return sym_const(&b->sym, n);
    sym s = sym_var(&b->sym, str_fmt(&b->arena, "S%u", b->sym.var.n));
    b->var[b->sym.var.n - 1] = n;
    return s;
}

/* lo to hi, a variable in one of n cases. Random draws have statements of their own if their order
   matters: the evaluation order of arguments is the compiler's, and the same seed must yield the
   same task with all of them. */
static inline sym draw_size(struct fixture *b, i64 lo, i64 hi, i64 n)
{
    bool symbolic = pick(b, 0, n - 1) == 0;
    return size_of(b, pick(b, lo, hi), symbolic);
}

static inline value_id add_input(struct fixture *b, const char *name, u32 rank, const sym *dim)
{
    value_id v = graph_add_value(&b->g, str_of(name));
    struct value *x = graph_value(&b->g, v);
    x->dtype = b->type;
    x->shape = (struct shape){.known = true, .rank = rank};
    for (u32 i = 0; i < rank; i++) x->shape.dim[i] = dim[i];
    *arr_push(&b->arena, &b->g.input) = v;
    return v;
}

static inline value_id add_const(struct fixture *b, const char *name, u32 rank, const i64 *dim)
{
    struct tensor *t = tensor_new(&b->arena, b->type, rank, dim);
    for (i64 i = 0, n = tensor_count(t); i < n; i++) elem_set_f64(b->type, t->data, i, rng_f64(&b->rng) * 2 - 1);
    return graph_add_const(&b->g, str_of(name), t);
}

static inline value_id add_op(struct fixture *b, const char *op, value_id x, value_id y, value_id z)
{
    value_id in[3] = {x, y, z};
    return graph_op(&b->g, op, str_of(op), z ? 3 : y ? 2 : 1, in);
}

/* Weights: a constant, or with gives_weights an input, with a prologue now and then. */
static inline value_id add_weights(struct fixture *b, u32 rank, const i64 *dim)
{
    sym size[MAX_RANK];
    if (!b->gives_weights) return add_const(b, "w", rank, dim);
    for (u32 i = 0; i < rank; i++) size[i] = sym_const(&b->sym, dim[i]);
    value_id w = add_input(b, "w", rank, size);
    for (u32 i = 0; i < rank; i++)
        if (i != 1) size[i] = sym_const(&b->sym, 1);
    if (pick(b, 0, 2) == 0) w = add_op(b, "Mul", w, add_input(b, "style", rank, size), 0);
    if (pick(b, 0, 3) == 0) w = add_op(b, "Tanh", w, 0, 0);
    return w;
}

/* Adds a node with new weights, and a bias with that many channels; NULL: without bias. */
static inline value_id add_weighted(struct fixture *b, const char *op, value_id x, u32 rank, const i64 *w, const i64 *channels)
{
    value_id bias = channels ? add_const(b, "b", 1, channels) : 0, weights = add_weights(b, rank, w);
    return add_op(b, op, x, weights, bias);
}

static inline bool infer_last(struct fixture *b, value_id v)
{
    return op_infer(&b->g, graph_value(&b->g, v)->producer, &b->e);
}

/* Places an input or an output inside a larger value now and then. */
static inline struct part random_part(struct fixture *b, value_id v)
{
    const struct value *x = graph_value(&b->t.g, v);
    struct symtab *t = &b->sym;
    struct part p = {0};
    i64 before = pick(b, 0, 2) * pick(b, 0, 9), behind = pick(b, 0, 2) * pick(b, 0, 9);
    if (pick(b, 0, 4) || x->is_const || x->sdata || x->shape.rank == 0 || x->layout > LAYOUT_CLAST) return p;
    p.axis = x->shape.rank > 1 && pick(b, 0, 3) ? 1 : (u32)pick(b, 0, x->shape.rank - 1);
    /* as in a concatenation of equal parts */
    sym own = x->shape.dim[p.axis], twice = pick(b, 0, 3) ? sym_const(t, 0) : own;
    p.from = pick(b, 0, 1) ? sym_add(t, sym_const(t, before), twice) : sym_const(t, before);
    p.whole = sym_add(t, sym_add(t, sym_const(t, before + behind), twice), own);
    return p;
}

static inline bool place_task(struct fixture *b)
{
    struct part *part = arena_array(&b->arena, struct part, b->t.g.value.n);
    for (u32 i = 0; i < b->t.g.input.n; i++) part[b->t.g.input.v[i]] = random_part(b, b->t.g.input.v[i]);
    for (u32 i = 0; i < b->t.g.output.n; i++) {
        value_id v = b->t.g.output.v[i];
        if (!part[v].whole) part[v] = random_part(b, v);
    }
    struct task own = b->t;
    enum layout *layout = arena_array(&b->arena, enum layout, own.g.value.n);
    for (value_id v = 1; v < own.g.value.n; v++) layout[v] = graph_value(&own.g, v)->layout;
    return task_with_parts(&b->t, &own, &b->arena, part, layout, &b->e);
}

static inline bool is_other_output(const struct fixture *b, value_id v)
{
    for (u32 i = 1; i < b->g.output.n; i++)
        if (b->g.output.v[i] == v) return true;
    return false;
}

/* The whole graph as a task, in random layouts. */
static inline bool make_task(struct fixture *b)
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
        i64 r = b->in_blocks && pick(b, 0, 4) ? pick(b, 3, 4) : pick(b, 0, 7);
        node_id p = graph_value(&b->g, v)->producer;
        bool whole = p && op_of(&b->g, p)->props & OP_WHOLE; /* writes elements only, no padding */
        if (graph_value(&b->g, v)->shape.rank < 3 || r < 3 || (b->others_in_rows && is_other_output(b, v))) continue;
        l[v] = r == 3 && !whole ? LAYOUT_C8 : r == 4 && !whole ? LAYOUT_C16 : LAYOUT_CLAST;
    }
    return task_make(&b->t, &b->g, &b->arena, nodes, n, b->g.output.v, b->g.output.n, l, NULL, &b->e) && place_task(b);
}

/* Of an operator: also false if it becomes several heavy nodes, i.e. several tasks. Failures of
   expansion are found by the operators' own tests. */
static inline bool make_single(struct fixture *b) { return make_task(b) && b->t.n_heavy < 2; }

enum { OTHERS_BYTE = 0xff }; /* content around parts: NaN, which must be neither read nor written */

/* Kernels sum in f32, the reference in f64, and differences cancel: results near zero have a larger
   tolerance. */
static inline bool compare(const struct check *c, u32 k, const void *got, struct err *e)
{
    const struct tensor *want = c->want[k];
    struct place p;
    if (!place_of(&p, &c->task->g, c->task->g.output.v[k], c->var)) return err_set(e, ERR_FAILED, "output %u has no place", k);
    i64 other = place_touched(&p, want, got, OTHERS_BYTE);
    if (other >= 0) return err_set(e, ERR_FAILED, "output %u: wrote element %lld, of another part", k, (long long)other);
    for (i64 i = 0, n = tensor_count(want); i < n; i++) {
        double x = elem_f64(want->dtype, want->data, i), y = elem_f64(want->dtype, got, place_flat(&p, want, i));
        if (x == y || (x != x && y != y)) continue;
        double off = c->are_integers ? c->off + (fabs(x) > c->exact_up_to ? c->rtol * fabs(x) : 0) : 20 * (c->rtol * fabs(x) + c->atol);
        if (!(fabs(x - y) <= off))
            return err_set(e, ERR_FAILED, "output %u, element %lld: %.9g instead of %.9g", k, (long long)i, y, x);
    }
    return true;
}

/* A kernel's arguments in host memory, and its parameters. */
struct bound {
    struct kir_arg *arg;
    i64 *param;
};

static inline bool bind_arguments(struct bound *to, const struct kernel *k, const struct check *c, struct arena *a, struct err *e)
{
    const struct graph *g = &c->task->g;
    struct kir_arg *arg = to->arg = arena_array(a, struct kir_arg, k->n_arg);
    i64 *param = to->param = arena_array(a, i64, k->n_param + 1);
    for (u32 i = 0; i < k->n_param; i++)
        if (!sym_eval(g->sym, k->param[i], c->var, &param[i])) return err_set(e, ERR_FAILED, "cannot evaluate a parameter");
    for (u32 i = 0; i < k->n_arg; i++) {
        const struct kernel_arg *x = &k->arg[i];
        const struct value *v = graph_value(g, x->v);
        struct place at;
        if (!place_of(&at, g, x->v, c->var)) return err_set(e, ERR_FAILED, "argument %u has no place", i);
        i64 n = at.count;
        const struct tensor *t = &c->value[x->v];
        struct tensor *p = x->pack ? pack_apply(x->pack, t, g->sym, a, NULL) : NULL;
        if (p) n = tensor_count(p);
        arg[i] = (struct kir_arg){p ? p->data : arena_alloc(a, (n + 1) * dtype_size(v->dtype)), n};
        if (at.whole) memset(arg[i].p, OTHERS_BYTE, (size_t)(n * dtype_size(v->dtype)));
        if (!p && !x->is_out) place_store(&at, t, arg[i].p);
    }
    return true;
}

static inline bool compare_outputs(const struct kernel *k, const struct check *c, const struct bound *b, struct err *e)
{
    const struct graph *g = &c->task->g;
    for (u32 i = 0; i < g->output.n; i++)
        for (u32 j = 0; j < k->n_arg; j++)
            if (k->arg[j].is_out && k->arg[j].v == g->output.v[i] && !compare(c, i, b->arg[j].p, e)) return false;
    return true;
}

/* Runs a kernel in the interpreter. */
static inline bool interpret(const struct kernel *k, const struct check *c, struct arena *a, struct err *e)
{
    struct bound b;
    struct kir_eval_opts o = {.seed = 7};
    return bind_arguments(&b, k, c, a, e) && kir_eval(&k->kir, b.arg, b.param, &o, e) && compare_outputs(k, c, &b, e);
}

static inline bool run(struct fixture *b, const struct candidate *c, const struct check *k)
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

static inline void report(struct fixture *b, const struct candidate *c, u64 seed)
{
    struct buf text = {0};
    if (c) candidate_print(&text, c);
    fail_msg("seed %llu: %s\ncandidate %.*s\ntask\n%.*s", (unsigned long long)seed, b->e.msg, (int)text.n, text.p ? text.p : "",
             STR_ARG(b->t.text));
}

/* Such an operator has a task of its own. */
static inline bool has_whole_inside(const struct task *t)
{
    for (node_id n = 1; n < t->g.node.n; n++)
        if (op_of(&t->g, n)->props & OP_WHOLE && t->g.node.n > 2) return true;
    return false;
}

/* The i-th candidate to try: the default one first. */
static inline bool choose(struct fixture *b, u32 i, struct candidate *c)
{
    if (i == 0 && b->only) *c = gen_initial(b->only, &b->t, &b->caps, b->var);
    else if (i == 0) return gen_default(&b->t, &b->caps, b->var, c);
    else
        for (u32 try = 0; try < 30; try++)
            if (!gen_random(&b->t, &b->caps, &b->rng, c)) return false;
            else if (!b->only || c->gen == b->only) break;
    return true;
}

/* The default candidate and random ones. Returns the number of kernels run. */
static inline u32 try_task(struct fixture *b, u64 seed, u32 n)
{
    struct check k;
    u32 done = 0;
    const char *only = getenv("GEN");
    if (b->only && !gen_matches(b->only, &b->t, &b->caps)) return 0;
    /* invalid sizes are tested by the operators' own tests */
    if (!check_init(&k, &b->t, b->var, seed, true, &b->e)) return 0;
    struct check integers = {0}; /* every second task with exact sums is also verified on integers */
    i64 most = seed % 2 ? check_largest_integer(&b->t, b->var) : 0;
    if (most) assert_true(check_init_integers(&integers, &b->t, b->var, seed, most, &b->e));
    for (u32 i = 0; i < n; i++) {
        struct candidate c;
        bool found = choose(b, i, &c);
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
        if (!run(b, &c, &k) || (most && !run(b, &c, &integers))) report(b, &c, seed);
        done++;
    }
    check_release(&k);
    if (most) check_release(&integers);
    return done;
}

static inline bool no_sample(void *user, const struct sample *s, u32 n) { return false; }

/* Queried in a child process, because vendors' libraries leak memory. */
static inline bool has_device(const char *driver)
{
    struct caps caps;
    struct dev_opts o = {.n_threads = 1};
    struct err e = {0};
    return dev_ask(dev_find(str_of(driver)), &o, &caps, NULL, &e);
}

/* A candidate built for a device, verified there in a child process, with guard bands. */
static inline bool verify_on(struct fixture *b, const char *driver, const struct candidate *c, const struct check *k)
{
    u32 threads = b->caps.is_gpu ? 2 : b->caps.n_threads;
    struct trial_opts o = {.driver = dev_find(str_of(driver)), .dev = {.n_threads = threads}, .timeout = 240, .max_samples = 1};
    const struct lang *l = lang_find(str_of(o.driver->lang));
    struct subject s = {0};
    struct buf text = {0}, bin = {0}, why = {0};
    if (getenv("VERBOSE")) {
        candidate_print(&text, c);
        fprintf(stderr, "%s: %.*s\n", driver, (int)text.n, text.p);
        text.n = 0;
    }
    bool ok = gen_kernel(&s.kernel, &b->arena, c, &b->t, &b->caps, &b->e) &&
              lang_render(&text, l, &s.kernel.kir, &b->caps, &b->arena, &b->e) &&
              l->build(&bin, buf_view(&text), &b->caps, 60, &b->e);
    s.code = buf_view(&bin);
    if (ok && trial_run(&s, &k, 1, k, &o, no_sample, NULL, &why) != TRIAL_OK)
        ok = err_set(&b->e, ERR_FAILED, "%.*s", (int)why.n, why.p);
    if (!ok && getenv("DUMP")) printf("%.*s\n", STR_ARG(buf_view(&text)));
    buf_release(&text), buf_release(&bin), buf_release(&why);
    return ok;
}

/* Kernels sum in f32 where the reference sums in f64. */
static inline void open_device_check(struct fixture *b, struct check *k, u64 seed)
{
    if (!check_init(k, &b->t, b->var, seed, true, &b->e)) report(b, NULL, seed);
    k->rtol *= 20, k->atol *= 20;
}

/* A random candidate on a device; the fixture is opened for it, restricted by `limits`. */
static inline void try_limited(struct fixture *b, const char *driver, struct str limits, u64 seed)
{
    struct dev_opts o = {.n_threads = 2};
    struct check k;
    struct candidate c;
    assert_true(dev_ask(dev_find(str_of(driver)), &o, &b->caps, NULL, &b->e) && caps_limit(&b->caps, limits, NULL, &b->e));
    open_device_check(b, &k, seed);
    if (!choose(b, 1, &c)) report(b, NULL, seed);
    if (!verify_on(b, driver, &c, &k)) report(b, &c, seed);
    check_release(&k);
}

static inline void try_device(struct fixture *b, const char *driver, u64 seed) { try_limited(b, driver, (struct str){0}, seed); }

/* Available drivers of GPUs, or simulated ones, whose kernels can be built. Skips the test if there
   are none. */
struct gpus {
    const char *v[4];
    u32 n;
};

static inline struct gpus find_gpus(void)
{
    static const char *const all[] = {"vulkan", "opencl", "cuda", "hip"};
    struct gpus g = {0};
    struct buf said = {0};
    for (i64 i = 0; i < countof(all); i++) {
        struct err e = {0};
        if (!has_device(all[i])) continue;
        if (lang_find(str_of(dev_find(str_of(all[i]))->lang))->toolchain(&said, NULL, &e)) g.v[g.n++] = all[i];
        else print_message("device %s is here, but nothing builds kernels for it: %s\n", all[i], e.msg);
    }
    buf_release(&said);
    if (g.n == 0) skip_test("no device with workgroups");
    return g;
}

/* Runs on one of them, selected by the seed, if the family matches the task; returns the number of
   runs. */
static inline u32 try_gpu(struct fixture *b, const struct gpus *g, u64 seed)
{
    const char *driver = g->v[seed / 2 % g->n];
    struct dev_opts o = {.n_threads = 2};
    assert_true(dev_ask(dev_find(str_of(driver)), &o, &b->caps, NULL, &b->e));
    if (!gen_takes(b->only, &b->t, &b->caps)) return 0;
    try_device(b, driver, seed);
    return 1;
}

/* A type that the device's matrix units have. */
static inline enum dtype fixture_matrix_type(struct fixture *b)
{
    static const struct { enum dtype type; const char *word; } of[] = {{DT_F16, "f16,f16,f32"}, {DT_BF16, ":bf16"}, {DT_F32, ":f32"}};
    u32 first = (u32)pick(b, 0, 2);
    for (u32 i = 0; i < countof(of); i++)
        if (strstr(b->caps.matrix, of[(first + i) % 3].word)) return of[(first + i) % 3].type;
    return DT_F16;
}

/* A random legal schedule of one family, not only among the first few of small tasks. */
static inline struct candidate fixture_schedule(struct fixture *b, const struct gen *g)
{
    struct gen_problem p;
    struct candidate c = {.gen = g};
    bool found = false;
    assert_true(gen_problem_open(&p, g, &b->t, &b->caps, NULL));
    for (u32 try = 0; try < 2000 && !found; try++) {
        for (u32 i = 0; i < g->n_param; i++) c.sched.v[i] = g->param[i].values[pick(b, 0, (i64)g->param[i].n - 1)];
        found = gen_problem_allows(&p, &c.sched);
    }
    gen_problem_close(&p);
    return found ? c : gen_initial(g, &b->t, &b->caps, b->var);
}

struct fixture_found { u32 n; bool has_initial; struct candidate initial; };

static inline bool fixture_find(void *user, const struct candidate *c)
{
    struct fixture_found *f = user;
    f->n++;
    f->has_initial |= !memcmp(c, &f->initial, sizeof *c);
    return true;
}

/* The number of schedules of one family to try, including the initial one. */
static inline u32 fixture_count(struct fixture *b, const struct gen *g)
{
    struct fixture_found f = {.initial = gen_initial(g, &b->t, &b->caps, b->var)};
    gen_each(g, &b->t, &b->caps, fixture_find, &f);
    if (getenv("VERBOSE")) {
        struct buf text = {0};
        candidate_print(&text, &f.initial);
        fprintf(stderr, "%u schedules, %.*s\n", f.n, (int)text.n, text.p);
        buf_release(&text);
    }
    assert_true(f.has_initial);
    return f.n;
}

static inline i32 value_of(const struct candidate *c, const char *param)
{
    for (u32 i = 0; i < c->gen->n_param; i++)
        if (!strcmp(c->gen->param[i].name, param)) return c->sched.v[i];
    fail_msg("no parameter %s", param);
    return 0;
}

static inline void set_value(struct candidate *c, const char *param, i64 v)
{
    for (u32 i = 0; i < c->gen->n_param; i++)
        if (!strcmp(c->gen->param[i].name, param)) {
            c->sched.v[i] = (i32)v;
            return;
        }
    fail_msg("no parameter %s", param);
}

#endif
