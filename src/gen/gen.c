// SPDX-License-Identifier: Apache-2.0
//
// gen: the registry of generators, candidates as text, and the way from a candidate to a kernel
// that the host can launch.
//
// A schedule is a point of the product of its generator's value lists; enumerating walks that
// product like an odometer and asks `legal`, or a tree where the family says what is worth trying
// (tree.c). Families analyze a task once. Nothing is remembered between calls. What the host
// must know (extents, sizes of scratch and temporary arrays, the expressions behind kernel
// parameters) is read back from the finished kernel, so that a generator cannot state it wrongly.
#include "gen/tree.h"

#include <stdlib.h>
#include <string.h>

#define X(n) extern const struct gen gen_##n;
#include "family.inc"
#undef X

static const struct gen *const gens[] = {
#define X(n) &gen_##n,
#include "family.inc"
#undef X
};

const struct gen *gen_at(i64 k) { return k >= 0 && k < countof(gens) ? gens[k] : NULL; }

const struct gen *gen_find(struct str name)
{
    for (i64 i = 0; i < countof(gens); i++)
        if (str_is(name, gens[i]->name)) return gens[i];
    return NULL;
}

/* Candidates as text. */

void candidate_print(struct buf *b, const struct candidate *c)
{
    buf_printf(b, "%s.%u", c->gen->name, c->gen->revision);
    for (u32 i = 0; i < c->gen->n_param; i++)
        buf_printf(b, " %s=%d", c->gen->param[i].name, c->sched.v[i]);
}

static bool parse_head(struct candidate *c, struct str head, struct err *e)
{
    struct str name, rev;
    i64 r;
    if (!str_cut(head, '.', &name, &rev) || !str_to_i64(rev, &r))
        return err_set(e, ERR_INPUT, "malformed candidate '%.*s': expected 'generator.revision'",
                       STR_ARG(head));
    c->gen = gen_find(name);
    if (!c->gen) return err_set(e, ERR_INPUT, "unknown generator '%.*s'", STR_ARG(name));
    if (r != c->gen->revision)
        return err_set(e, ERR_INPUT, "generator '%s' has revision %u, candidate is of %lld",
                       c->gen->name, c->gen->revision, (long long)r);
    return true;
}

static bool parse_param(struct candidate *c, u32 *seen, struct str word, struct err *e)
{
    struct str name, text;
    i64 x;
    if (!str_cut(word, '=', &name, &text) || !str_to_i64(text, &x))
        return err_set(e, ERR_INPUT, "malformed parameter '%.*s'", STR_ARG(word));
    for (u32 i = 0; i < c->gen->n_param; i++) {
        const struct gen_param *p = &c->gen->param[i];
        if (!str_is(name, p->name)) continue;
        if (gen_param_has(p, x)) {
            c->sched.v[i] = (i32)x;
            *seen |= 1u << i;
            return true;
        }
        return err_set(e, ERR_INPUT, "parameter '%s' of generator '%s' cannot be %lld", p->name,
                       c->gen->name, (long long)x);
    }
    return err_set(e, ERR_INPUT, "generator '%s' has no parameter '%.*s'", c->gen->name,
                   STR_ARG(name));
}

static bool parse_current(struct candidate *c, struct str text, struct err *e)
{
    struct str word, rest;
    u32 seen = 0;
    *c = (struct candidate){0};
    bool more = str_cut(str_trim(text), ' ', &word, &rest);
    if (!parse_head(c, more ? word : str_trim(text), e)) return false;
    while (more) {
        struct str left = rest;
        more = str_cut(left, ' ', &word, &rest);
        if (!more) word = left;
        if (word.n && !parse_param(c, &seen, word, e)) return false;
    }
    for (u32 i = 0; i < c->gen->n_param; i++)
        if (!(seen >> i & 1))
            return err_set(e, ERR_INPUT, "parameter '%s' of generator '%s' is missing",
                           c->gen->param[i].name, c->gen->name);
    return true;
}

bool candidate_parse(struct candidate *c, struct str text, struct err *e)
{
    struct buf b = {0};
    struct err why = {0};
    bool ok = parse_current(c, text, &why);
    if (!ok && candidate_rename(&b, text)) why = (struct err){0}, ok = parse_current(c, buf_view(&b), &why);
    if (!ok) err_set(e, why.code, "%s", why.msg);
    buf_release(&b);
    return ok;
}

/* Enumeration. */

/* Buffers of a kernel besides its arguments: a temporary array, parameters in memory. */
enum { SPARE_BUFFERS = 2 };

static bool has_room(const struct task *t, const struct caps *c)
{
    u32 n = t->g.input.n + t->g.output.n + SPARE_BUFFERS;
    for (value_id v = 1; v < t->g.value.n; v++) n += graph_value(&t->g, v)->is_const;
    return !c->max_bind || n <= c->max_bind;
}

static bool open_taken(struct gen_problem *p, const struct gen *g, const struct task *t, const struct caps *c, const i64 *var)
{
    struct sched s;
    if (!gen_problem_open(p, g, t, c, var)) return false;
    if ((!g->match || g->match(p)) && (!g->least || gen_problem_least(p, &s))) return true;
    gen_problem_close(p);
    return false;
}

/* Are results of the only heavy node, a matmul, reduced? Then what families of matmuls alone would compute behind it asks for every element again and again:
   they take few. */
static bool is_reduced(const struct task *t)
{
    enum { FEW = 16 };
    if (t->n_heavy != 1 || !(op_of(&t->g, t->anchor)->props & OP_MATMUL)) return false;
    for (node_id n = t->anchor + 1; n < t->g.node.n; n++) {
        const struct node *x = graph_node(&t->g, n);
        if (x->dead || !(op_of(&t->g, n)->props & OP_REDUCE) || !gen_depends(&t->g, x->in.v[0], graph_node(&t->g, t->anchor)->out.v[0])) continue;
        const struct shape *s = op_in_shape(&t->g, x, 0);
        i64 all = 1;
        for (u32 i = 0; i < s->rank; i++)
            if (__builtin_mul_overflow(all, gen_static(&t->g, s->dim[i], FEW + 1), &all)) return true;
        if (all > FEW) return true;
    }
    return false;
}

static bool takes_heavy(const struct gen *g, const struct task *t)
{
    if (t->n_heavy > 1 || is_reduced(t)) return g->chains && (t->n_heavy > 1 || g->singles);
    return !g->chains;
}

/* Opens the family's problem if it can do the task. */
static bool open_match(struct gen_problem *p, const struct gen *g, const struct task *t, const struct caps *c, const i64 *var)
{
    bool may = !task_is_call(t) && takes_heavy(g, t) && has_room(t, c) && gen_order_allows(g, t, c);
    return may && open_taken(p, g, t, c, var);
}

/* Closes it; was it open? */
static bool was_open(struct gen_problem *p, bool open)
{
    if (open) gen_problem_close(p);
    return open;
}

bool gen_takes(const struct gen *g, const struct task *t, const struct caps *c)
{
    struct gen_problem p;
    return was_open(&p, open_taken(&p, g, t, c, NULL));
}

bool gen_matches(const struct gen *g, const struct task *t, const struct caps *c)
{
    struct gen_problem p;
    return was_open(&p, open_match(&p, g, t, c, NULL));
}

bool gen_legal(const struct candidate *c, const struct task *t, const struct caps *caps)
{
    struct gen_problem p;
    if (!gen_problem_open(&p, c->gen, t, caps, NULL)) return false;
    bool ok = gen_problem_allows(&p, &c->sched);
    gen_problem_close(&p);
    return ok;
}

static struct candidate initial_of(const struct gen_problem *p)
{
    struct candidate c = {.gen = p->gen};
    gen_problem_initial(p, &c.sched);
    assert(gen_problem_allows(p, &c.sched));
    return c;
}

struct candidate gen_initial(const struct gen *g, const struct task *t, const struct caps *caps, const i64 *var)
{
    struct gen_problem p;
    bool ok = gen_problem_open(&p, g, t, caps, var);
    assert(ok);
    (void)ok;
    struct candidate c = initial_of(&p);
    gen_problem_close(&p);
    return c;
}

struct others { /* all but the initial one */
    struct candidate first;
    gen_visit *fn;
    void *user;
};

static bool visit_other(void *user, const struct candidate *c)
{
    const struct others *x = user;
    return !memcmp(&c->sched, &x->first.sched, sizeof c->sched) || x->fn(x->user, c);
}

struct way { /* over a family's schedules */
    bool scattered;
    i64 max;     /* to be looked at */
    u64 seed;
};

/* Without a tree: all points. */
static bool each_point(const struct gen_problem *p, const struct way *way, struct others *x)
{
    struct gen_walk w = gen_walk_start(p->gen, way->scattered, way->seed);
    struct candidate c = {.gen = p->gen};
    i64 n = i64_min(way->max, w.total);
    for (i64 i = 0; i < n; i++) {
        c.sched = gen_walk_next(&w);
        if (gen_problem_allows(p, &c.sched) && !visit_other(x, &c)) return false;
    }
    return true;
}

static bool each_other(const struct gen_problem *p, const struct way *way, gen_visit *fn, void *user)
{
    struct others x = {initial_of(p), fn, user};
    struct gen_tree tree = {.p = p, .may = p->gen->worth};
    return p->gen->worth ? gen_tree_scatter(&tree, way->max, way->seed, visit_other, &x) : each_point(p, way, &x);
}

static bool visit_initial(const struct gen_problem *p, const struct way *way, gen_visit *fn, void *user)
{
    struct candidate c = initial_of(p);
    return fn(user, &c);
}

static void each(const struct gen *only, const struct task *t, const struct caps *caps, const struct way *way, gen_visit *fn, void *user)
{
    struct gen_problem p;
    bool go_on = true;
    for (u32 pass = 0; pass < 2; pass++) /* initial ones first */
        for (i64 i = 0; i < countof(gens) && go_on; i++) {
            if ((only && only != gens[i]) || !open_match(&p, gens[i], t, caps, NULL)) continue;
            go_on = (pass ? each_other : visit_initial)(&p, way, fn, user);
            gen_problem_close(&p);
        }
}

void gen_each(const struct gen *only, const struct task *t, const struct caps *caps, gen_visit *fn, void *user)
{
    each(only, t, caps, &(struct way){false, INT64_MAX, 0}, fn, user);
}

void gen_scatter(const struct task *t, const struct caps *caps, i64 max, u64 seed, gen_visit *fn,
                 void *user)
{
    each(NULL, t, caps, &(struct way){true, max, seed}, fn, user);
}

bool gen_draw(const struct gen_problem *p, struct rng *r, struct sched *out)
{
    const struct gen *g = p->gen;
    struct gen_tree tree = {.p = p, .may = p->gen->worth};
    if (g->worth) return gen_tree_draw(&tree, r, out);
    for (u32 try = 0; try < 400; try++) {
        *out = (struct sched){0};
        for (u32 i = 0; i < g->n_param; i++)
            out->v[i] = g->param[i].values[rng_range(r, 0, (i64)g->param[i].n - 1)];
        if (gen_problem_allows(p, out)) return true;
    }
    return false;
}

bool gen_random(const struct task *t, const struct caps *caps, struct rng *r, struct candidate *out)
{
    const struct gen *m[countof(gens)];
    struct gen_problem p;
    i64 n = 0;
    for (i64 i = 0; i < countof(gens); i++)
        if (gen_matches(gens[i], t, caps)) m[n++] = gens[i];
    if (!n) return false;
    *out = (struct candidate){.gen = m[rng_range(r, 0, n - 1)]};
    bool ok = gen_problem_open(&p, out->gen, t, caps, NULL);
    assert(ok);
    (void)ok;
    if (!gen_draw(&p, r, &out->sched)) *out = initial_of(&p);
    gen_problem_close(&p);
    return true;
}

bool gen_repair(struct candidate *c, const struct task *t, const struct caps *caps)
{
    struct gen_problem p;
    struct gen_tree tree = {.p = &p, .may = c->gen->worth};
    if (!gen_problem_open(&p, c->gen, t, caps, NULL)) return false;
    bool ok = c->gen->worth ? gen_tree_near(&tree, &c->sched, &c->sched) : gen_problem_allows(&p, &c->sched);
    gen_problem_close(&p);
    return ok;
}

double gen_growth(const struct candidate *c) { return c->gen->growth ? c->gen->growth(&c->sched) : 1; }

double gen_predict(const struct candidate *c, const struct task *t, const struct caps *caps, const i64 *given)
{
    struct gen_problem p;
    if (!gen_problem_open(&p, c->gen, t, caps, given)) return 1e9;
    double seconds = gen_problem_seconds(&p, &c->sched);
    gen_problem_close(&p);
    return seconds;
}

bool gen_order(const struct task *t, const struct caps *caps, struct candidate *out)
{
    if (!gen_order_is_winograd(t, caps)) return false;
    struct caps c = *caps;
    c.deterministic = true;
    *out = gen_initial(gen_find(S("conv_winograd")), t, &c, NULL);
    return true;
}

/* A family's search, rough at first. */
struct rival { struct gen_problem p; struct gen_search *search; double seconds; };

static void rival_look(struct rival *r) { r->seconds = gen_problem_seconds(&r->p, gen_search_best(r->search)); }

/* Families that are slower by more than this factor after the first part of the search are searched no further. */
static const double hopeless = 1.25;

bool gen_default(const struct task *t, const struct caps *caps, const i64 *var,
                 struct candidate *out)
{
    struct rival r[countof(gens)];
    u32 n = 0, best = 0;
    for (i64 i = 0; i < countof(gens); i++) {
        if (!open_match(&r[n].p, gens[i], t, caps, var)) continue;
        r[n].search = gen_search_open(&r[n].p);
        rival_look(&r[n++]);
    }
    for (u32 k = 1; k < n; k++)
        if (r[k].seconds < r[best].seconds) best = k;
    for (u32 k = 0; k < n; k++) {
        if (r[k].seconds > hopeless * r[best].seconds) continue;
        gen_search_pairs(r[k].search);
        rival_look(&r[k]);
        if (r[k].seconds < r[best].seconds || (r[k].seconds == r[best].seconds && k < best)) best = k;
    }
    if (n) *out = (struct candidate){r[best].p.gen, *gen_search_best(r[best].search)};
    for (u32 k = 0; k < n; k++) gen_problem_close(&r[k].p);
    return n > 0;
}

/* Kernels. */

/* The number that all tasks' first outputs have on the axis. */
static bool is_common(const struct task *const *t, u32 n, u32 axis, i64 *out)
{
    for (u32 k = 0; k < n; k++) {
        i64 x;
        const struct shape *s = &graph_value(&t[k]->g, t[k]->g.output.v[0])->shape;
        if (axis >= s->rank || !sym_is_const(t[k]->g.sym, s->dim[axis], &x) || (k && x != *out)) return false;
        *out = x;
    }
    return true;
}

/* FAMILY_DTYPE_SHAPE_DIGEST of the first output, the digest of id; see doc/kernel-names.md. */
static void put_name(char name[64], const struct gen *g, const struct task *const *t, u32 n_tasks, struct str id)
{
    struct buf b = {0};
    char hex[33];
    hash_hex(hash_bytes(id.p, id.n), hex);
    const struct value *v = graph_value(&t[0]->g, t[0]->g.output.v[0]);
    buf_printf(&b, "%s_%s_", g->name, dtype_name(v->dtype));
    i64 x = 0;
    for (u32 i = 0; i < v->shape.rank && b.n < 40; i++) {
        if (i) buf_char(&b, 'x');
        if (is_common(t, n_tasks, i, &x)) buf_printf(&b, "%lld", (long long)x);
        else buf_char(&b, 'n');
    }
    if (!v->shape.rank) buf_char(&b, '1');
    i64 n = i64_min(b.n, 50);
    for (i64 i = 0; i < n; i++) name[i] = b.p[i];
    name[n++] = '_';
    for (i64 i = 0; i < 10; i++) name[n + i] = hex[i];
    name[n + 10] = 0;
    buf_release(&b);
}

static void kernel_name(char name[64], const struct candidate *c, const struct task *t)
{
    struct buf id = {0};
    char key[33];
    hash_hex(t->key, key);
    buf_printf(&id, "%s ", key);
    candidate_print(&id, c);
    put_name(name, c->gen, &t, 1, buf_view(&id));
    buf_release(&id);
}

void gen_shared_name(char name[64], const struct gen *g, const struct task *const *t, u32 n, const struct kir *common)
{
    struct kir nameless = *common;
    struct buf id = {0};
    nameless.name = S("");
    kir_print(&id, &nameless);
    put_name(name, g, t, n, buf_view(&id));
    buf_release(&id);
}

/* A CONST or PARAM as an expression. */
static sym operand_sym(const struct kernel *k, struct symtab *t, kval v)
{
    i64 c;
    if (kir_is_const(&k->kir, v, &c)) return sym_const(t, c);
    assert(kir_at(&k->kir, v)->op == KI_PARAM);
    return k->param[kir_at(&k->kir, v)->imm.i];
}

static bool read_params(struct kernel *k, struct arena *a, struct symtab *t, struct err *e)
{
    k->n_param = k->kir.param.n;
    k->param = arena_array(a, sym, k->n_param);
    for (u32 i = 0; i < k->n_param; i++) {
        k->param[i] = sym_parse(t, k->kir.param.v[i], e);
        if (!k->param[i]) return err_prefix(e, "kernel parameter %u", i);
    }
    return true;
}

/* The innermost GRID comes last in the kernel and is x. */
static void read_grid(struct kernel *k, struct symtab *t, kval *at)
{
    sym one = sym_const(t, 1), *extent = k->grid[k->n_grid++].extent;
    extent[0] = extent[1] = extent[2] = one;
    u32 n = 0;
    while (kir_at(&k->kir, *at)->op == KI_GRID || kir_at(&k->kir, *at)->op == KI_CONST ||
           kir_at(&k->kir, *at)->op == KI_PARAM) {
        const struct kir_ins *x = kir_at(&k->kir, *at);
        if (x->op == KI_GRID) {
            for (u32 d = n; d > 0; d--) extent[d] = extent[d - 1];
            extent[0] = operand_sym(k, t, x->a);
            k->grid[k->n_grid - 1].n = ++n;
        }
        if (++*at >= k->kir.ins.n) break;
    }
}

static sym alloc_bytes(const struct kernel *k, struct symtab *t, const struct kir_ins *x)
{
    return sym_mul(t, operand_sym(k, t, x->a), sym_const(t, dtype_size(x->dtype) * x->lanes));
}

/* Lies in a worker's scratch memory: on processors also what threads of a workgroup share (lang.h). */
static bool is_scratch(const struct kernel *k, const struct kir_ins *x, bool is_gpu)
{
    return x->op == KI_ALLOC && (x->aux == KS_WORK || (x->aux == KS_SHARED && !is_gpu && kir_threads(&k->kir) > 1));
}

static void read_sizes(struct kernel *k, struct arena *a, struct symtab *t, bool is_gpu)
{
    u32 n = k->kir.ins.n, n_grid = 0, n_temp = 0;
    sym line = sym_const(t, 64);
    for (u32 i = 1; i < n; i++) {
        n_grid += kir_at(&k->kir, i)->op == KI_GRID;
        n_temp += kir_at(&k->kir, i)->op == KI_ALLOC && kir_at(&k->kir, i)->aux == KS_TEMP;
    }
    k->grid = arena_alloc(a, (i64)sizeof k->grid[0] * n_grid);
    k->temp = arena_array(a, sym, n_temp);
    k->work = sym_const(t, 0);
    i64 depth = 0;
    for (kval i = 1; i < n; i++) {
        const struct kir_ins *x = kir_at(&k->kir, i);
        if (x->op == KI_ALLOC && x->aux == KS_TEMP) k->temp[k->n_temp++] = alloc_bytes(k, t, x);
        if (is_scratch(k, x, is_gpu))
            k->work =
                sym_add(t, k->work, sym_mul(t, sym_cdiv(t, alloc_bytes(k, t, x), line), line));
        if (x->op == KI_GRID && depth == 0) {
            kval j = i;
            read_grid(k, t, &j);
        }
        depth += x->op == KI_GRID || x->op == KI_LOOP || x->op == KI_IF;
        depth -= x->op == KI_END;
    }
}

enum { SPREAD_THREADS = 64 };

/* Of a group, for kernels that know nothing of groups. */
static u32 spread_threads(const struct candidate *c)
{
    for (u32 i = 0; i < c->gen->n_param; i++)
        if (str_is(str_of(c->gen->param[i].name), "threads")) return (u32)c->sched.v[i];
    return SPREAD_THREADS;
}

/* Grid iterations become threads where groups of them exist. */
static bool spread(struct kernel *k, struct arena *a, const struct candidate *c, struct err *e)
{
    struct kir plain = k->kir;
    return kir_spread(&k->kir, a, &plain, spread_threads(c), e);
}

bool gen_kernel(struct kernel *k, struct arena *a, const struct candidate *c, const struct task *t,
                const struct caps *caps, struct err *e)
{
    struct emit m;
    struct err why = {0};
    *k = (struct kernel){0};
    kernel_name(k->name, c, t);
    kir_init(&k->kir, a, str_of(k->name));
    k->kir.as_written = caps->deterministic;
    emit_init(&m, &k->kir, &t->g, op_lower, a);
    m.vector_bytes = caps->vector_bytes;
    c->gen->emit(&m, t, caps, &c->sched);
    k->arg = m.arg.v;
    k->n_arg = m.arg.n;
    bool ok = kir_verify(&k->kir, &why);
    if (ok && caps->is_gpu && kir_threads(&k->kir) == 1) ok = spread(k, a, c, &why);
    if (ok) {
        /* The text is a key: it must not depend on what quern was built with. */
        struct kir any = k->kir;
        kir_order(&k->kir, a, &any, false);
    }
    if (!ok || !read_params(k, a, t->g.sym, &why))
        return err_set(e, ERR_FAILED, "kernel '%s': %s", k->name, why.msg);
    read_sizes(k, a, t->g.sym, caps->is_gpu);
    return true;
}
