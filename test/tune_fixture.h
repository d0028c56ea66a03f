// SPDX-License-Identifier: Apache-2.0
//
// Fixture for tests of trials: one small task, its default kernel on some device, inputs and
// results for verification. Tests replace the kernel by code of their own. Include after cmocka.h.
#ifndef QUERN_TUNE_FIXTURE_H
#define QUERN_TUNE_FIXTURE_H

#include "tune/tune.h"

enum { ROWS = 6, COLS = 50, N = ROWS * COLS };

/* One task: y = max(x, 0), of known size, timed on one thread. */
struct fixture {
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct task task;
    struct kernel kernel;
    struct caps caps;
    struct check check;
    struct trial_opts o;
    const struct lang *lang;
    struct err e;
    u32 n_samples;
};

static inline void make_task(struct fixture *b)
{
    value_id x = graph_add_value(&b->g, S("x")), y;
    struct value *v = graph_value(&b->g, x);
    v->dtype = DT_F32;
    v->shape = (struct shape){.known = true, .rank = 2, .dim = {sym_const(&b->sym, ROWS), sym_const(&b->sym, COLS)}};
    *arr_push(&b->arena, &b->g.input) = x;
    y = graph_op(&b->g, "Relu", S("y"), 1, &x);
    *arr_push(&b->arena, &b->g.output) = y;
    assert_true(op_infer_all(&b->g, &b->e));
    enum layout *l = arena_array(&b->arena, enum layout, b->g.value.n);
    assert_true(task_make(&b->task, &b->g, &b->arena, (node_id[]){1}, 1, &y, 1, l, NULL, &b->e));
}

/* For this driver's first device, which is not kept open. */
static inline void fixture_open(struct fixture *b, const char *driver)
{
    *b = (struct fixture){.o = {.driver = dev_find(str_of(driver)), .dev = {.n_threads = 1}, .timeout = 0.5, .max_samples = 5}};
    symtab_init(&b->sym, &b->arena);
    graph_init(&b->g, &b->arena, &b->sym);
    make_task(b);
    assert_true(dev_ask(b->o.driver, &b->o.dev, &b->caps, NULL, &b->e));
    b->lang = lang_find(str_of(b->o.driver->lang));
    struct candidate c;
    assert_true(gen_default(&b->task, &b->caps, NULL, &c));
    assert_true(gen_kernel(&b->kernel, &b->arena, &c, &b->task, &b->caps, &b->e));
    assert_int_equal(b->kernel.n_arg, 2);
    assert_int_equal(b->kernel.n_grid, 1);
    assert_true(check_init(&b->check, &b->task, NULL, 1, true, &b->e));
}

static inline void fixture_close(struct fixture *b)
{
    check_release(&b->check);
    struct arena a = b->arena;
    arena_release(&a);
}

static inline bool count_sample(void *user, const struct sample *s, u32 n)
{
    struct fixture *b = user;
    assert_true(s->seconds > 0);
    b->n_samples = n;
    return true;
}

#endif
