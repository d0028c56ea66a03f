// SPDX-License-Identifier: Apache-2.0
//
// A tuning run with many candidates: random schedules of a small GEMM, of which a device with
// workgroups has 200,000, on the interpreter, so that nothing is compiled.
#ifndef QUERN_MANY_CANDIDATES_H
#define QUERN_MANY_CANDIDATES_H

#include "tune/tune.h"

struct many {
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct task task;
    struct caps caps;
    struct rng rng;
    i64 want, done, n_drawn; /* candidates */
    bool builds_only;
    void (*look)(struct many *m); /* called after each one, or each batch; NULL: not called */
    struct tune_result result;
};

static inline void many_caps(struct dev *d, struct caps *c)
{
    *c = (struct caps){.arch = "generic", .vector_bytes = 16, .n_vector_regs = 32, .l1_bytes = 32 << 10, .l2_bytes = 4 << 20, .has_fma = true,
                       .is_gpu = true, .max_group = 256, .subgroup = 32, .shared_bytes = 48 << 10, .n_threads = 1};
}

/* The interpreter, as such a device. */
static inline struct dev_driver many_driver(void)
{
    struct dev_driver d = *dev_find(S("interp"));
    d.caps = many_caps;
    return d;
}

static inline value_id many_input(struct many *m, const char *name, i64 rows, i64 cols)
{
    value_id v = graph_add_value(&m->g, str_of(name));
    struct value *x = graph_value(&m->g, v);
    x->dtype = DT_F32;
    x->shape = (struct shape){.known = true, .rank = 2, .dim = {sym_const(&m->sym, rows), sym_const(&m->sym, cols)}};
    *arr_push(&m->arena, &m->g.input) = v;
    return v;
}

static inline bool many_open(struct many *m, const struct dev_driver *driver, struct err *e)
{
    enum { ROWS = 12, TERMS = 5, COLS = 24 };
    *m = (struct many){.rng = rng_seed(1)};
    symtab_init(&m->sym, &m->arena);
    graph_init(&m->g, &m->arena, &m->sym);
    value_id in[2] = {many_input(m, "a", ROWS, TERMS), 0};
    in[1] = many_input(m, "b", TERMS, COLS);
    value_id y = graph_op(&m->g, "MatMul", S("y"), 2, in);
    *arr_push(&m->arena, &m->g.output) = y;
    struct dev_opts one = {.n_threads = 1};
    if (!op_infer_all(&m->g, e) || !dev_ask(driver, &one, &m->caps, NULL, e)) return false;
    enum layout *l = arena_array(&m->arena, enum layout, m->g.value.n);
    return task_make(&m->task, &m->g, &m->arena, (node_id[]){1}, 1, &y, 1, l, NULL, e);
}

static inline void many_close(struct many *m)
{
    struct arena a = m->arena;
    arena_release(&a);
}

/* The caller skips repeated ones. */
static inline bool many_next(void *user, struct candidate *c)
{
    struct many *m = user;
    if (m->done >= m->want || m->n_drawn++ > 100 * m->want) return false;
    return gen_random(&m->task, &m->caps, &m->rng, c);
}

static inline void many_progress(void *user, const struct tune_progress *p)
{
    struct many *m = user;
    m->done = p->done;
    if (m->look) m->look(m);
}

static inline bool many_run(struct many *m, struct db *d, const struct dev_driver *driver, i64 want, struct err *e)
{
    const struct tune_source source = {many_next, m};
    const struct tune_opts o = {.driver = driver, .dev = {.n_threads = 1}, .min_samples = 1, .source = &source, .add_candidates = true,
                                .measure = !m->builds_only, .progress = many_progress, .user = m};
    struct tune_task t = {.task = &m->task, .var = arena_array(&m->arena, i64, 1), .weight = 1};
    m->want = want, m->done = m->n_drawn = 0;
    return tune_run(d, &t, 1, &o, &m->result, e);
}

#endif
