// SPDX-License-Identifier: Apache-2.0
//
// Division of networks into sub-graphs: properties on random graphs of dependencies, minimality
// against exhaustive search, and that the sub-graphs of random networks compute together what
// the network does.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "place/part.h"
#include "random_graph.h"
#include "random_net.h"
#include "seeds.h"

/* --- runs --- */

struct dag_case {
    struct arena a;
    struct place_dag d;
    u32 device[512];
    u32 n_devices;
};

static void dag_open(struct dag_case *c, struct rng *r, u32 n, u32 n_devices)
{
    *c = (struct dag_case){.d = {.n = n}, .n_devices = n_devices};
    c->d.before = arena_alloc(&c->a, (i64)sizeof *c->d.before * (n + 1));
    c->d.behind = arena_alloc(&c->a, (i64)sizeof *c->d.behind * (n + 1));
    i64 density = rng_range(r, 1, 6);
    for (u32 k = 0; k < n; k++) {
        c->device[k] =
            k && rng_range(r, 0, 2) ? c->device[k - 1] : (u32)rng_range(r, 0, n_devices - 1);
        if (rng_range(r, 0, 3) == 0) c->device[k] = (u32)rng_range(r, 0, n_devices - 1);
        for (u32 i = 0; i < k; i++)
            if (i + 4 > k ? rng_range(r, 0, density) == 0 : rng_range(r, 0, 4 * density) == 0) {
                *arr_push(&c->a, &c->d.before[k]) = i;
                *arr_push(&c->a, &c->d.behind[i]) = k;
            }
    }
}

/* Each part of one device; numbers ascend along dependencies, so that parts are convex and wait in
 * no circle. */
static void check_runs(const struct dag_case *c, const struct place_runs *r)
{
    u32 device[512], seen = 0;
    bool used[512] = {false};
    for (u32 k = 0; k < c->d.n; k++) {
        assert_true(r->of[k] < r->n);
        if (!used[r->of[k]]) used[r->of[k]] = true, device[r->of[k]] = c->device[k], seen++;
        assert_int_equal(device[r->of[k]], c->device[k]);
        for (u32 i = 0; i < c->d.before[k].n; i++)
            assert_true(r->of[c->d.before[k].v[i]] <= r->of[k]);
    }
    assert_int_equal(seen, r->n);
    assert_true(r->least <= r->n);
}

/* Whether the parts wait for each other in no circle. */
static bool is_acyclic(const struct dag_case *c, const u32 *part, u32 n_parts)
{
    bool edge[16][16] = {{false}};
    for (u32 k = 0; k < c->d.n; k++)
        for (u32 i = 0; i < c->d.before[k].n; i++)
            if (part[c->d.before[k].v[i]] != part[k])
                edge[part[c->d.before[k].v[i]]][part[k]] = true;
    for (u32 v = 0; v < n_parts; v++)
        for (u32 i = 0; i < n_parts; i++)
            for (u32 j = 0; j < n_parts; j++) edge[i][j] |= edge[i][v] && edge[v][j];
    for (u32 v = 0; v < n_parts; v++)
        if (edge[v][v]) return false;
    return true;
}

/* All divisions of the operators into sets, whatever the order. */
static void try_all(const struct dag_case *c, u32 *part, u32 k, u32 n_parts, u32 *best)
{
    if (n_parts >= *best) return;
    if (k == c->d.n) {
        if (is_acyclic(c, part, n_parts)) *best = n_parts;
        return;
    }
    for (u32 p = 0; p <= n_parts; p++) {
        bool fits = true;
        for (u32 i = 0; i < k; i++) fits &= part[i] != p || c->device[i] == c->device[k];
        part[k] = p;
        if (fits) try_all(c, part, k + 1, n_parts + (p == n_parts), best);
    }
}

static void as_few_as_exhaustive_search_finds(void **state)
{
    for (u64 seed = first_seed(1, 1501); seed < last_seed(1, 1501); seed++) {
        struct rng r = rng_seed(seed);
        struct dag_case c;
        struct place_runs runs, fast;
        u32 part[16], best = 16;
        dag_open(&c, &r, (u32)rng_range(&r, 1, 9), (u32)rng_range(&r, 1, 4));
        place_runs(&runs, &c.d, c.device, c.n_devices, 20000, &c.a);
        place_runs(&fast, &c.d, c.device, c.n_devices, 0, &c.a);
        check_runs(&c, &runs);
        check_runs(&c, &fast);
        try_all(&c, part, 0, 0, &best);
        if (runs.n != best) fail_msg("seed %d: %u parts, %u suffice", (int)seed, runs.n, best);
        assert_true(runs.is_minimal && fast.n >= best && (!fast.is_minimal || fast.n == best));
        arena_release(&c.a);
    }
}

static void large_graphs_are_divided(void **state)
{
    for (u64 seed = first_seed(1, 41); seed < last_seed(1, 41); seed++) {
        struct rng r = rng_seed(seed);
        struct dag_case c;
        struct place_runs runs, again, fast;
        dag_open(&c, &r, (u32)rng_range(&r, 50, 500), (u32)rng_range(&r, 2, 6));
        place_runs(&runs, &c.d, c.device, c.n_devices, 2000, &c.a);
        place_runs(&again, &c.d, c.device, c.n_devices, 2000, &c.a);
        place_runs(&fast, &c.d, c.device, c.n_devices, 0, &c.a);
        check_runs(&c, &runs);
        check_runs(&c, &fast);
        assert_memory_equal(runs.of, again.of, sizeof runs.of[0] * c.d.n);
        if (runs.is_minimal && fast.n < runs.n)
            fail_msg("seed %d: %u parts, %u suffice", (int)seed, runs.n, fast.n);
        arena_release(&c.a);
    }
}

static void no_operators_need_no_part(void **state)
{
    struct rng r = rng_seed(1);
    struct dag_case c;
    struct place_runs runs;
    dag_open(&c, &r, 0, 1);
    place_runs(&runs, &c.d, c.device, 1, 100, &c.a);
    assert_int_equal(runs.n, 0);
    arena_release(&c.a);
}

/* --- networks --- */

struct split_case {
    struct arena a;
    struct model *m;
    struct place_net x;
    struct place_devices d;
    struct place_allocation y;
    struct place_parts p;
    struct err e;
};

static bool split_open(struct split_case *c, struct str text)
{
    static const char *const devices[] = {"CPU:0", "X64:0", "X64:1"};
    struct model_source s = {.path = "net", .bytes = text};
    struct model_opts o = {0};
    *c = (struct split_case){0};
    c->m = model_open(&s, &o, &c->e);
    if (!c->m) return false;
    if (!place_net_open(&c->x, c->m, &c->a, &c->e) ||
        !place_devices_parse(&c->d, devices, 3, &c->a, &c->e))
        fail_msg("%s", c->e.msg);
    c->y.device = arena_array(&c->a, u32, c->x.op.n + 1);
    return true;
}

static void split_close(struct split_case *c)
{
    arena_release(&c->a);
    model_close(c->m);
}

static void random_devices(struct split_case *c, struct rng *r)
{
    i64 n = rng_range(r, 1, 3), keep = rng_range(r, 0, 4);
    for (u32 k = 0; k < c->x.op.n; k++)
        c->y.device[k] =
            k && rng_range(r, 0, keep) ? c->y.device[k - 1] : (u32)rng_range(r, 0, n - 1);
}

static void check_parts(const struct split_case *c)
{
    u32 n = 0;
    for (u32 i = 0; i < c->p.n; i++) {
        const struct place_part *p = &c->p.v[i];
        n += p->op.n;
        assert_true(p->op.n && p->out.n);
        for (u32 k = 0; k < p->op.n; k++) {
            assert_int_equal(c->y.device[p->op.v[k]], p->device);
            assert_true(!k || p->op.v[k] > p->op.v[k - 1]);
        }
        for (u32 k = 0; k < p->after.n; k++)
            assert_true(p->after.v[k] < i && (!k || p->after.v[k] > p->after.v[k - 1]));
    }
    assert_int_equal(n, c->x.op.n);
}

/* Runs the parts one after the other. */
static void run_parts(struct split_case *c, struct tensor *const *in, struct tensor **value,
                      u64 seed)
{
    const struct graph *g = &c->x.g;
    for (value_id v = 1; v < g->value.n; v++) value[v] = graph_value(g, v)->data;
    for (u32 k = 0; k < g->input.n; k++) value[g->input.v[k]] = in[k];
    for (u32 i = 0; i < c->p.n; i++) {
        const struct place_part *p = &c->p.v[i];
        struct graph part;
        struct err e = {0};
        struct tensor **from = arena_array(&c->a, struct tensor *, p->in.n + 1),
                      **to = arena_array(&c->a, struct tensor *, p->out.n + 1);
        place_part_graph(&part, &c->x, p, &c->a);
        if (!graph_verify(&part, &e)) fail_msg("seed %d, part %u: %s", (int)seed, i, e.msg);
        assert_int_equal(part.input.n, p->in.n);
        assert_int_equal(part.output.n, p->out.n);
        for (u32 k = 0; k < p->in.n; k++) {
            from[k] = value[p->in.v[k]];
            if (!from[k])
                fail_msg("seed %d: part %u reads a value that no part before it made", (int)seed,
                         i);
        }
        if (!graph_eval(&part, from, to, &c->a, NULL, &e))
            fail_msg("seed %d, part %u: %s", (int)seed, i, e.msg);
        for (u32 k = 0; k < p->out.n; k++) value[p->out.v[k]] = to[k];
    }
}

static void check_equal(struct split_case *c, struct tensor *const *in, u64 seed)
{
    const struct graph *g = &c->x.g;
    struct err e = {0};
    struct tensor **want = arena_array(&c->a, struct tensor *, g->output.n + 1),
                  **value = arena_array(&c->a, struct tensor *, g->value.n);
    if (!graph_eval(g, in, want, &c->a, NULL, &e)) return; /* the inputs do not fit */
    run_parts(c, in, value, seed);
    for (u32 k = 0; k < g->output.n; k++) {
        const struct tensor *is = value[g->output.v[k]];
        assert_non_null(is);
        assert_true(is->rank == want[k]->rank &&
                    !memcmp(is->dim, want[k]->dim, sizeof is->dim[0] * is->rank));
        if (memcmp(is->data, want[k]->data, (size_t)tensor_bytes(is)))
            fail_msg("seed %d: output %u differs", (int)seed, k);
    }
}

static void split_or_fail(struct split_case *c, u64 seed)
{
    c->e = (struct err){0};
    if (!place_split(&c->p, &c->x, &c->y, &c->a, &c->e))
        fail_msg("seed %d: %s", (int)seed, c->e.msg);
    check_parts(c);
}

static void parts_of_networks_equal_the_whole(void **state)
{
    u32 n_parts = 0;
    for (u64 seed = first_seed(1, 401); seed < last_seed(1, 401); seed++) {
        struct net t;
        struct buf text = {0};
        struct split_case c;
        i64 var[64];
        if (seed % 3) net_open(&t, seed);
        else net_open_as(&t, seed, NET_JOINS);
        graph_print(&text, &t.g, NULL);
        if (!split_open(&c, buf_view(&text))) fail_msg("seed %d: %s", (int)seed, c.e.msg);
        for (u32 k = 0; k < t.sym.var.n; k++) var[k] = rng_range(&t.rng, 8, 16);
        struct tensor *in = net_inputs(&t, &c.a, var), *p[32];
        for (u32 k = 0; k < t.g.input.n; k++) p[k] = &in[k];
        for (int i = 0; i < 3; i++) {
            random_devices(&c, &t.rng);
            split_or_fail(&c, seed);
            check_equal(&c, p, seed);
            n_parts += c.p.n;
        }
        split_close(&c);
        buf_release(&text);
        net_close(&t);
    }
    assert_true(n_parts > 100 || seeds_are_given());
}

/* The text of a graph does not tell where sizes of a Loop's results are found. */
static bool is_computable(struct split_case *c, struct tensor *const *in)
{
    struct tensor **out = arena_array(&c->a, struct tensor *, c->x.g.output.n + 1);
    struct err e = {0};
    return graph_eval(&c->x.g, in, out, &c->a, NULL, &e);
}

static void parts_of_any_operators_equal_the_whole(void **state)
{
    u32 n_split = 0, n_refused = 0;
    for (u64 seed = first_seed(1, 801); seed < last_seed(1, 801); seed++) {
        struct random_graph s;
        struct split_case c;
        struct buf text = {0};
        struct tensor **p;
        if (!random_graph_open(&s, seed)) {
            random_graph_close(&s);
            continue;
        }
        graph_print(&text, &s.g, NULL);
        if (split_open(&c, buf_view(&text)) && !model_is_random(c.m)) {
            i64 *var = bind_sizes(&s, 0);
            struct tensor *in = make_inputs(&s, var, &p);
            for (int i = 0; i < 2 && in; i++) {
                random_devices(&c, &s.rng);
                if (!place_split(&c.p, &c.x, &c.y, &c.a, &c.e)) {
                    if (is_computable(&c, p)) fail_msg("seed %d: %s", (int)seed, c.e.msg);
                    n_refused++, c.e = (struct err){0};
                    continue;
                }
                check_parts(&c);
                check_equal(&c, p, seed);
                n_split += c.p.n > 1;
            }
        }
        split_close(&c);
        buf_release(&text);
        random_graph_close(&s);
    }
    assert_true(n_split > 50 || seeds_are_given());
    assert_true(n_refused * 10 < n_split || seeds_are_given());
}

static void split_by(struct split_case *c, const char *text, const u32 *device)
{
    if (!split_open(c, str_of(text))) fail_msg("%s", c->e.msg);
    for (u32 k = 0; k < c->x.op.n; k++) c->y.device[k] = device[k];
    split_or_fail(c, 0);
}

/* The second part sees H//2 only, but pads to H. */
static void sizes_come_from_the_networks_inputs(void **state)
{
    struct split_case c;
    struct tensor *in[2];
    const i64 dim[2] = {1, 7};
    split_by(&c,
             "graph { input %x: f32[1,H] const %from: i64[1] = [0] const %to: i64[1] = [1000] "
             "const %ax: i64[1] = [1] const %st: i64[1] = [2] "
             "%h: f32[?] = Slice(%x, %from, %to, %ax, %st) %m: f32[?] = ReduceMax(%h, %ax) "
             "{keepdims=1} %s: i64[2] = Shape(%x) %e: f32[?] = Expand(%m, %s) "
             "output %e }",
             (u32[]){0, 1, 1});
    assert_int_equal(c.p.n, 2);
    assert_int_equal(c.p.v[1].in.n, 2);
    in[0] = tensor_new(&c.a, DT_F32, 2, dim);
    for (i64 i = 0; i < 7; i++) elem_set_f64(DT_F32, in[0]->data, i, (double)(i * 5 % 7));
    check_equal(&c, in, 0);
    split_close(&c);
}

/* A number of elements that is found in data crosses parts. */
static void sizes_found_in_data_cross_parts(void **state)
{
    static const char text[] =
        "graph { input %x: f32[8] %p: i64[?] = NonZero(%x) %q: i64[?] = Add(%p, %one) const %one: "
        "i64[] = [1] %s: i64[2] = Shape(%q) "
        "%o: f32[?] = Expand(%c, %s) const %c: f32[] = [1] output %q output %o }";
    for (u64 seed = 1; seed < 60; seed++) {
        struct split_case c;
        struct rng r = rng_seed(seed);
        const i64 eight = 8;
        if (!split_open(&c, S(text))) fail_msg("%s", c.e.msg);
        random_devices(&c, &r);
        split_or_fail(&c, seed);
        struct tensor *in = tensor_new(&c.a, DT_F32, 1, &eight);
        for (i64 i = 0; i < 8; i++) elem_set_f64(DT_F32, in->data, i, (double)rng_range(&r, 0, 1));
        check_equal(&c, &in, seed);
        split_close(&c);
    }
}

/* The seed's two operators. */
static void parts_follow_the_allocation(void **state)
{
    struct split_case c;
    split_by(&c,
             "graph { input %x: f32[1,3,8,8] input %y: f32[1,1,8,8] const %w: f32[1,3,1,1] = [0.5, "
             "0.25, 0.25] "
             "%c: f32[1,1,8,8] = Conv(%x, %w) %z: f32[1,1,8,8] = Add(%c, %y) output %z }",
             (u32[]){1, 2});
    assert_int_equal(c.p.n, 2);
    assert_true(c.p.is_minimal && c.p.least == 2);
    assert_int_equal(c.p.v[0].in.n, 1);
    assert_int_equal(c.p.v[1].in.n, 2);
    assert_true(c.p.v[1].after.n == 1 && c.p.v[1].after.v[0] == 0);
    split_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_few_as_exhaustive_search_finds),
        cmocka_unit_test(large_graphs_are_divided),
        cmocka_unit_test(no_operators_need_no_part),
        cmocka_unit_test(parts_follow_the_allocation),
        cmocka_unit_test(sizes_come_from_the_networks_inputs),
        cmocka_unit_test(sizes_found_in_data_cross_parts),
        cmocka_unit_test(parts_of_networks_equal_the_whole),
        cmocka_unit_test(parts_of_any_operators_equal_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
