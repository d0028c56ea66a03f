// SPDX-License-Identifier: Apache-2.0
//
// For tests of families of attention by workgroups: instances, schedules far from those that are worth trying, builds for devices that are described.
#ifndef QUERN_TEST_ATTENTION_FAMILY_H
#define QUERN_TEST_ATTENTION_FAMILY_H

#include "gen_instances.h"
#include "ptx_check.h"

/* Other values of some parameters, as long as the schedule is legal: also those that no search would try. */
static inline void strew(struct fixture *b, struct candidate *c)
{
    for (u32 i = 0; i < 60; i++) {
        struct candidate other = *c;
        u32 p = (u32)pick(b, 0, (i64)c->gen->n_param - 1);
        other.sched.v[p] = c->gen->param[p].values[pick(b, 0, (i64)c->gen->param[p].n - 1)];
        if (gen_legal(&other, &b->t, &b->caps)) *c = other;
    }
}

/* Every other time with statistics of rows as results, every third one with inputs in caches. */
static inline bool random_instance(struct fixture *b, u64 seed)
{
    return random_attention(b) && (seed % 2 == 0 || add_statistics(b)) && (seed % 3 || place_in_room(b));
}

static inline bool open_check(struct fixture *b, struct check *k, open_fixture *open, u64 seed)
{
    open(b, seed);
    return random_instance(b, seed) && gen_matches(b->only, &b->t, &b->caps) && check_init(k, &b->t, b->var, seed, true, &b->e);
}

/* Kernels that divide the keys: every part has its own maximum, and some have no key of a row. */
static inline void try_splits(open_fixture *open, bool (*split)(struct fixture *b, struct candidate *c), u64 end)
{
    u32 n = 0;
    for (u64 seed = first_seed(2000, end); seed < last_seed(2000, end); seed++) {
        struct fixture b;
        struct check k;
        struct candidate c;
        if (open_check(&b, &k, open, seed)) {
            if (split(&b, &c)) {
                if (!run(&b, &c, &k)) report(&b, &c, seed);
                n++;
            }
            check_release(&k);
        }
        fixture_close(&b);
    }
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, 25));
}

struct builds_for {
    open_fixture *open;
    bool (*choose)(struct fixture *b, u64 seed, struct candidate *c);
    const char *driver, *arch, *lang;
    u64 every; /* so many kernels are emitted for one that is compiled, where there is a compiler */
};

static inline void build_for(const struct builds_for *x)
{
    const struct lang *l = lang_find(str_of(x->lang));
    struct buf tool = {0};
    struct err none = {0};
    bool builds = l->toolchain(&tool, NULL, &none);
    u32 n = 0, n_built = 0;
    for (u64 seed = first_seed(4000, 4080); seed < last_seed(4000, 4080); seed++) {
        struct fixture b;
        struct candidate c;
        x->open(&b, seed);
        assert_true(dev_target(&b.caps, x->driver, str_of(x->arch)));
        if (random_instance(&b, seed) && gen_matches(b.only, &b.t, &b.caps) && x->choose(&b, seed, &c)) {
            struct kernel k;
            struct buf text = {0}, binary = {0};
            bool ok = gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e) && lang_render(&text, l, &k.kir, &b.caps, &b.arena, &b.e);
            const char *wrong = ok && !strcmp(x->lang, "ptx") ? ptx_check(buf_view(&text), &b.arena) : NULL;
            if (wrong) ok = err_set(&b.e, ERR_FAILED, "reads a register that is not written: %s", wrong);
            if (ok && builds && n % x->every == 0) ok = l->build(&binary, buf_view(&text), &b.caps, 120, &b.e), n_built++;
            if (!ok) report(&b, &c, seed);
            buf_release(&text), buf_release(&binary);
            n++;
        }
        fixture_close(&b);
    }
    buf_release(&tool);
    print_message("%s, %s: %u kernels, %u built\n", x->arch, x->lang, n, n_built);
    assert_true(is_enough(n, 6));
}

#endif
