// SPDX-License-Identifier: Apache-2.0
//
// Element by element by groups of threads: random instances of every operator, and views that
// transpose, in all layouts and element types, under random legal schedules through the
// interpreter, which sees races, divergent barriers and accesses outside.
#include "gen_bed.h"

static void test_operators(void **state)
{
    for (u64 seed = first_seed(50); seed < last_seed(52); seed++)
        for (i64 i = 0; op_all(i); i++) {
            struct bed b;
            if (getenv("OP") && strcmp(getenv("OP"), op_all(i)->name)) continue;
            if (!op_all(i)->random) continue;
            bed_open(&b, seed * 1000 + (u64)i);
            bed_use_groups(&b);
            op_all(i)->random(op_all(i), &b.g, &b.rng);
            if (make_task(&b)) try_task(&b, seed, 3);
            bed_close(&b);
        }
}

/* A permutation of the axes with something pointwise around it. */
static bool random_transpose(struct bed *b)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_F16, DT_U8, DT_I64, DT_BOOL};
    u32 rank = (u32)pick(b, 1, 4);
    bool symbolic = pick(b, 0, 1);
    sym dim[MAX_RANK];
    i64 perm[MAX_RANK];
    b->type = types[pick(b, 0, countof(types) - 1)];
    for (u32 i = 0; i < rank; i++) {
        i64 n = pick(b, 0, 9) ? pick(b, 1, i + 2 < rank ? 3 : 70) : pick(b, 0, 1);
        dim[i] = size_of(b, n, symbolic && pick(b, 0, 1));
        perm[i] = i;
    }
    for (u32 i = rank; i-- > 1;) {
        i64 j = pick(b, 0, i), t = perm[i];
        perm[i] = perm[j], perm[j] = t;
    }
    value_id x = add_input(b, "x", rank, dim);
    if (dtype_is_float(b->type) && pick(b, 0, 1)) x = add_op(b, "Relu", x, 0, 0);
    value_id y = add_op(b, "Transpose", x, 0, 0);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "perm", perm, rank);
    if (dtype_is_float(b->type) && pick(b, 0, 1)) {
        sym turned[MAX_RANK];
        for (u32 i = 0; i < rank; i++) turned[i] = dim[perm[i]];
        y = add_op(b, "Mul", y, add_input(b, "z", rank, turned), 0);
    }
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static void test_transposes(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0); seed < last_seed(150); seed++) {
        struct bed b;
        bed_open(&b, seed);
        bed_use_groups(&b);
        if (random_transpose(&b)) n += try_task(&b, seed, 5);
        bed_close(&b);
    }
    assert_true(n > 300 || getenv("SEED"));
}

/* What the family chooses itself for a few usual tasks: the walk that memory wants. */
static void default_of(struct bed *b, struct candidate *c)
{
    assert_true(make_task(b));
    assert_true(gen_default(&b->t, &b->caps, b->var, c));
    assert_string_equal(c->gen->name, "group_map");
}

static i32 param_of(const struct candidate *c, const char *name)
{
    for (u32 i = 0; i < c->gen->n_param; i++)
        if (!strcmp(c->gen->param[i].name, name)) return c->sched.v[i];
    fail_msg("no parameter '%s'", name);
    return 0;
}

static void test_choice(void **state)
{
    struct bed b;
    struct candidate c;
    bed_open(&b, 1);
    bed_use_groups(&b);
    b.type = DT_F16;
    sym dim[4] = {sym_const(&b.sym, 64), sym_const(&b.sym, 512)};
    *arr_push(&b.arena, &b.g.output) = add_op(&b, "Relu", add_input(&b, "x", 2, dim), 0, 0);
    default_of(&b, &c);
    assert_int_equal(param_of(&c, "vec"), 8); /* 16 bytes */
    assert_int_equal(param_of(&c, "stage"), 0);
    bed_close(&b);

    bed_open(&b, 1);
    bed_use_groups(&b);
    sym square[2] = {sym_const(&b.sym, 512), sym_const(&b.sym, 512)};
    *arr_push(&b.arena, &b.g.output) = add_op(&b, "Transpose", add_input(&b, "x", 2, square), 0, 0);
    default_of(&b, &c);
    assert_int_equal(param_of(&c, "stage"), 1);
    assert_int_equal(param_of(&c, "axis"), 1);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_transposes),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
