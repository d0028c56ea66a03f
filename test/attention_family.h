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

/* Parts of attentions: a thousand seeds are of one part, */
static inline bool attention_part_of(struct fixture *b, u64 seed) { return random_attention_part(b, seed, (enum attention_part)(seed / 1000 % N_PARTS)); }
/* or neighbouring ones are of all, for each type of operands. */
static inline bool any_attention_part(struct fixture *b, u64 seed) { return random_attention_part(b, seed, (enum attention_part)(seed / 5 % N_PARTS)); }

static inline void try_parts(open_fixture *open)
{
    for (u64 part = 0; part < N_PARTS; part++) {
        const u64 from = 10000 + 1000 * part;
        print_message("%s: ", attention_part_name((enum attention_part)part));
        try_instances(&(struct instances){open, attention_part_of, from, from + 300, .least = 14, .tries = 3});
    }
}

static inline bool open_check(struct fixture *b, struct check *k, open_fixture *open, u64 seed)
{
    open(b, seed);
    return random_instance(b, seed) && gen_matches(b->only, &b->t, &b->caps) && check_init(k, &b->t, b->var, seed, true, &b->e);
}

typedef bool choose_split_fn(struct fixture *b, struct candidate *c); /* a schedule that divides the keys; false: none */

/* Any legal schedules, far from those that are worth trying, and one that divides the keys. */
static inline void try_legal(const struct instances *x, choose_split_fn *split)
{
    u32 n = 0, n_split = 0;
    for (u64 seed = first_seed(x->from, x->to); seed < last_seed(x->from, x->to); seed++) {
        struct fixture b;
        struct check k;
        x->open(&b, seed);
        if (x->build(&b, seed) && gen_matches(b.only, &b.t, &b.caps) && check_init(&k, &b.t, b.var, seed, true, &b.e)) {
            struct candidate c = gen_initial(b.only, &b.t, &b.caps, b.var);
            for (u32 i = 0; i < 3; i++, n++) {
                strew(&b, &c);
                if (!run(&b, &c, &k)) report(&b, &c, seed);
            }
            if (split(&b, &c)) {
                if (!run(&b, &c, &k)) report(&b, &c, seed);
                n_split++;
            }
            check_release(&k);
        }
        fixture_close(&b);
    }
    print_message("%u kernels, %u more that divide the keys\n", n, n_split);
    assert_true(is_enough(n, x->least) && is_enough(n_split, x->least / 14));
}

/* A schedule that divides the keys into parts of 128 or 256, as families with matrix units do; false: none that is legal was found. */
static inline bool choose_wide_split(struct fixture *b, struct candidate *c)
{
    for (u32 try = 0; try < 10; try++) {
        *c = fixture_schedule(b, b->only);
        set_value(c, "split", 128 << try % 2);
        if (gen_legal(c, &b->t, &b->caps)) return true;
    }
    return false;
}

/* Kernels that divide the keys: every part has its own maximum, and some have no key of a row. */
static inline void try_splits(open_fixture *open, choose_split_fn *split, u64 end)
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

/* Rows of several sizes, heads of usual widths and others; scores are multiplied by a factor. */
#define ONE_INPUTS "graph {\n  input %%q: %s[1,2,%d,%d]\n  input %%k: %s[1,2,%d,%d]\n  input %%v: %s[1,2,%d,%d]\n  const %%c: %s[1] = [%g]\n  %%a: none[?] = Mul(%%q, %%c)\n"
#define ONE_SCORES "  %%t: none[?] = Transpose(%%k) {perm=[0,1,3,2]}\n  %%s: none[?] = MatMul(%%a, %%t) {tf32=%d}\n  %%m: none[?] = quern::ReduceMax(%%s) {axes=[3], keepdims=1}\n"
#define ONE_SUMS "  %%d: none[?] = Sub(%%s, %%m)\n  %%e: none[?] = Exp(%%d)\n  %%l: none[?] = quern::ReduceSum(%%e) {axes=[3], keepdims=1}\n  %%p: none[?] = Div(%%e, %%l)\n"
#define ONE_OUTPUT "  %%y: none[?] = MatMul(%%p, %%v) {tf32=%d}\n  output %%y\n}\n"

static inline void make_head(struct fixture *b, double factor)
{
    static const int width[] = {64, 128, 96, 80, 72, 64, 256, 128};
    int d = width[pick(b, 0, countof(width) - 1)], e = width[pick(b, 0, countof(width) - 1)], rows = (int)pick(b, 1, 70), keys = (int)pick(b, 1, 200);
    const char *t = dtype_name(b->type);
    struct str text = str_fmt(&b->arena, ONE_INPUTS ONE_SCORES ONE_SUMS ONE_OUTPUT, t, rows, d, t, keys, d, t, keys, e, t, factor, b->tf32, b->tf32);
    if (!task_parse(&b->t, &b->arena, &b->sym, text, &b->e)) fail_msg("%s\n%.*s", b->e.msg, STR_ARG(text));
}

static inline void try_heads(open_fixture *open)
{
    u32 n = 0;
    for (u64 seed = first_seed(6000, 6060); seed < last_seed(6000, 6060); seed++) {
        struct fixture b;
        struct check k;
        open(&b, seed);
        if (!gen_matches(b.only, &b.t, &b.caps)) report(&b, NULL, seed);
        assert_true(check_init(&k, &b.t, b.var, seed, true, &b.e));
        for (u32 i = 0; i < 2; i++, n++) {
            struct candidate c = i ? fixture_schedule(&b, b.only) : gen_initial(b.only, &b.t, &b.caps, b.var);
            if (!run(&b, &c, &k)) report(&b, &c, seed);
        }
        check_release(&k);
        fixture_close(&b);
    }
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, 60));
}

/* The default schedule, or one that is worth trying. */
static inline bool choose_usual(struct fixture *b, u64 seed, struct candidate *c)
{
    *c = seed / 3 % 2 ? fixture_schedule(b, b->only) : gen_initial(b->only, &b->t, &b->caps, b->var);
    return true;
}

/* No keys, or no queries. */
static inline void try_empty(open_fixture *open, u32 least) { try_instances(&(struct instances){open, random_empty_attention, 20000, 21200, .least = least, .tries = 4}); }

static inline bool build_whole(struct fixture *b, u64 seed) { return random_attention(b); }

/* Kernels compute the definition, not only something near it. */
static inline void try_exact(open_fixture *open, u64 end) { try_exactly(&(struct instances){open, build_whole, 7000, end, .least = 16, .choose = choose_usual}); }

/* A device here that the family has kernels for; false: none. */
static inline bool open_here(struct fixture *b, const struct gpus *g, const char **driver)
{
    for (u32 i = 0; i < g->n; i++) {
        struct dev_opts o = {.n_threads = 2};
        assert_true(dev_ask(dev_find(str_of(g->v[i])), &o, &b->caps, NULL, &b->e));
        *driver = g->v[i];
        if (gen_matches(b->only, &b->t, &b->caps)) return true;
    }
    return false;
}

/* open: without a device. */
static inline void try_on_devices(open_fixture *open)
{
    struct gpus g = find_gpus();
    u32 n = 0;
    for (u64 seed = first_seed(3000, 3100); seed < last_seed(3000, 3100); seed++) {
        struct fixture b;
        struct check k;
        const char *driver;
        open(&b, seed);
        if (random_attention(&b) && (seed % 3 || place_in_room(&b)) && open_here(&b, &g, &driver)) {
            open_device_check(&b, &k, seed);
            for (u32 i = 0; i < 2; i++, n++) {
                struct candidate c = i ? fixture_schedule(&b, b.only) : gen_initial(b.only, &b.t, &b.caps, b.var);
                if (!verify_on(&b, driver, &c, &k)) report(&b, &c, seed);
            }
            check_release(&k);
        }
        fixture_close(&b);
    }
    if (!n) skip_test("no device with such units");
    print_message("%u kernels\n", n);
}

struct builds_for {
    open_fixture *open;
    bool (*build)(struct fixture *b, u64 seed); /* makes the task; false: this seed has none */
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
        if (x->build(&b, seed) && gen_matches(b.only, &b.t, &b.caps) && x->choose(&b, seed, &c)) {
            struct kernel k;
            struct buf text = {0}, binary = {0};
            bool ok = gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e) && lang_render(&text, l, &k.kir, &b.caps, &b.arena, &b.e);
            if (ok && os_env("QUERN_TEST_KEEP")) ok = os_write(str_fmt(&b.arena, "%s.%s.%llu", os_env("QUERN_TEST_KEEP"), x->lang, (unsigned long long)seed).p, text.p, text.n, &b.e);
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
    assert_true(is_enough(n, 3));
}

#endif
