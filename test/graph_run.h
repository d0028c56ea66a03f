// SPDX-License-Identifier: Apache-2.0
//
// Random graphs on devices. Compiler, driver and kernels may end the process, so they run in
// children, a batch of graphs each, with results in shared memory. A child's death is a finding
// about its current graph, and the batch is repeated without that one.
#ifndef QUERN_GRAPH_RUN_H
#define QUERN_GRAPH_RUN_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "graph_shake.h"
#include "pass/pass.h"
#include "plan/plan.h"
#include "random_graph.h"
#include "rt/rt.h"
#include "tune/tune.h"

enum { MAX_BATCH = 32, MAX_FOUND = 64, MAX_OPS = 1024, CASE_SECONDS = 100, N_BINDINGS = 3 /* of sizes */ };

struct found { u64 seed; char what[400]; };

/* Reports of a child. */
struct board {
    u64 seed;                    /* it is at */
    const char *stage;           /* a string that the parent has, too */
    bool is_done, is_absent;
    char why[400];               /* absent */
    u64 graphs, refused, nodes, runs, shaken, skipped_sizes;
    u32 n_found;
    struct found found[MAX_FOUND];
    u32 ops[MAX_OPS];            /* nodes of each operator, by its place in the registry */
};

/* Where graphs come from: opens the i-th. false: there is none. */
struct source {
    bool (*open)(const struct source *from, u64 i, struct random_graph *s);
    const void *user;
};

struct target {
    struct str name;
    struct dev *dev;
    struct caps caps;
    const struct lang *lang;
};

/* building */

/* A top-level item of C text ends with a line that begins with '}' or, when no body is open, ends with ';' or has no body at all. Helpers
   and types that several kernels have are the same text: the first one is kept, and many kernels need one run of the compiler. */
static void join_c(struct buf *out, struct map *seen, struct str text)
{
    struct str line, rest = text;
    i64 from = 0, at = 0;
    bool open = false;
    while (str_cut(rest, '\n', &line, &rest)) {
        bool continued = line.n && line.p[line.n - 1] == '\\';
        at += line.n + 1;
        if (line.n && line.p[0] == '{') open = true;
        if (line.n && line.p[line.n - 1] == '{' && line.p[0] != ' ') open = true;
        if (line.n && line.p[0] == '}') open = false;
        if (open || continued || (line.n && (line.p[0] == ' ' || (line.p[line.n - 1] == ')' && line.p[0] != '#')))) continue;
        if (at > text.n) at = text.n;
        struct str item = str_sub(text, from, at);
        from = at;
        struct hash h = hash_bytes(item.p, item.n);
        if (map_get(seen, (struct str){(const char *)&h, sizeof h})) continue;
        map_put(seen, (struct str){(const char *)&h, sizeof h}, 1);
        buf_str(out, item);
    }
    buf_str(out, str_sub(text, i64_min(from, text.n), text.n));
}

static bool build_joined(const struct target *t, const struct str *text, u32 n, struct str *out, struct arena *a, struct err *e)
{
    struct buf all = {0}, code = {0};
    struct map seen;
    if (n == 0) return true;
    map_init(&seen, a);
    for (u32 i = 0; i < n; i++) join_c(&all, &seen, text[i]);
    struct err why = {0};
    bool ok = t->lang->build(&code, n > 1 ? buf_view(&all) : text[0], &t->caps, 300, &why);
    struct str made = ok ? str_dup(a, buf_view(&code)) : S("");
    for (u32 i = 0; i < n && ok; i++) out[i] = made;
    buf_release(&all);
    buf_release(&code);
    if (ok) return true;
    if (n == 1) return err_set(e, ERR_FAILED, "a kernel does not build: %.300s", why.msg);
    struct err rest = {0};
    bool first = build_joined(t, text, n / 2, out, a, e);
    return build_joined(t, text + n / 2, n - n / 2, out + n / 2, a, first ? e : &rest) && first;
}

/* Texts without a binary afterwards do not build. */
static void build_texts(const struct target *t, const struct str *text, u32 n, struct str *out, struct arena *a, struct err *e)
{
    struct buf code = {0};
    struct err why = {0};
    if (str_is(str_of(t->lang->name), "c")) {
        build_joined(t, text, n, out, a, e);
        return;
    }
    for (u32 i = 0; i < n; i++) {
        code.n = 0;
        if (t->lang->build(&code, text[i], &t->caps, 300, &why)) out[i] = str_dup(a, buf_view(&code));
        else err_set(e, ERR_FAILED, "a kernel does not build: %.300s", why.msg);
    }
    buf_release(&code);
}

/* one graph */

struct case_run {
    struct random_graph s;
    struct graph lowered;
    struct plan plan;
    bool is_planned;
    i64 *var;
};

static bool any_cost(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct { u64 seed; const struct caps *caps; } *u = user;
    struct rng r = rng_seed(u->seed ^ t->key.lo);
    struct candidate other;
    *c = (struct task_cost){0};
    if (!gen_default(t, u->caps, var, &c->best)) return false;
    if (rng_range(&r, 0, 3) && gen_random(t, u->caps, &r, &other) &&
        gen_predict(&other, t, u->caps, var) < 20 * gen_predict(&c->best, t, u->caps, var))
        c->best = other;
    c->ok = true;
    c->seconds = (double)rng_range(&r, 1, 1000) * 1e-6;
    return true;
}

static bool as_it_is(void *user, const struct str *text, u32 n, struct str *out, struct arena *a, struct err *e)
{
    for (u32 i = 0; i < n; i++) out[i] = text[i];
    return true;
}

/* Cycles through all cover options. */
static struct cover_opts cut_of(const struct random_graph *s, const struct caps *caps)
{
    static const enum layout blocks[] = {LAYOUT_ROWS, LAYOUT_C8, LAYOUT_C16};
    return (struct cover_opts){.no_fusion = s->seed % 11 == 3, .no_concat = s->seed % 13 == 4, .only_joins = s->seed % 7 == 2,
                               .blocks = caps->is_gpu ? LAYOUT_ROWS : blocks[s->seed % 3], .blocks_from = s->seed % 4 ? 1 : 8};
}

static bool make_plan(struct case_run *c, const struct target *t)
{
    struct random_graph *s = &c->s;
    struct cover cover;
    struct selection sel;
    struct { u64 seed; const struct caps *caps; } user = {s->seed, &t->caps};
    const struct cover_opts cut = cut_of(s, &t->caps);
    const struct pass_env pass = {.flags = s->seed % 2 ? PASS_INTEGER : 0};
    const struct plan_env env = {.lang = t->lang, .caps = &t->caps, .device = t->dev->driver->name, .model = S("random"), .build = as_it_is};
    graph_clone(&c->lowered, &s->g, &s->arena);
    return pass_run_all(&c->lowered, &pass, &s->e) && cover_build(&cover, &c->lowered, &s->arena, &cut, &s->e) &&
           plan_select(&sel, &cover, c->var, any_cost, &user, &s->arena, &s->e) &&
           plan_make(&c->plan, &cover, &sel, c->var, &env, &s->arena, &s->e);
}

static void found(struct board *b, const struct random_graph *s, const char *what)
{
    if (b->n_found >= MAX_FOUND) return;
    struct found *f = &b->found[b->n_found++];
    f->seed = s->seed;
    snprintf(f->what, sizeof f->what, "%.390s", what);
}

static bool is_refusal(const struct err *e) { return e->code == ERR_UNSUPPORTED || e->code == ERR_INPUT; }

static void refuse(struct board *b, const struct random_graph *s, const struct err *e)
{
    if (getenv("REFUSED")) fprintf(stderr, "SEED=%llu refused while %s: %s\n", (unsigned long long)s->seed, b->stage, e->msg);
    b->refused++;
}

static void plan_case(struct case_run *c, const struct target *t, struct board *b)
{
    struct random_graph *s = &c->s;
    struct tensor **in, **want = arena_array(&s->arena, struct tensor *, s->g.output.n + 1);
    struct err e = {0};
    b->stage = "reference";
    c->var = bind_sizes(s, 0);
    if (!make_inputs(s, c->var, &in) || !graph_eval(&s->g, in, want, &s->arena, NULL, &e)) {
        refuse(b, s, &e);
        return;
    }
    b->stage = "planning";
    c->is_planned = make_plan(c, t);
    if (c->is_planned) return;
    if (is_refusal(&s->e)) refuse(b, s, &s->e);
    else found(b, s, s->e.msg);
}

static bool run_round(struct case_run *c, struct rt_program *r, u32 round, struct board *b)
{
    struct random_graph *s = &c->s;
    struct tensor **in, **want = arena_array(&s->arena, struct tensor *, s->g.output.n + 1);
    struct tensor *got = arena_array(&s->arena, struct tensor, s->g.output.n + 1);
    struct err refused = {0};
    struct shake k;
    b->stage = "reference";
    const i64 *var = bind_sizes(s, round);
    const struct tensor *x = make_inputs(s, var, &in);
    if (!x) return true;
    bool has = graph_eval(&s->g, in, want, &s->arena, NULL, &refused);
    b->stage = "running";
    bool ok = rt_run(r, x, got, &s->arena, &s->e);
    if (!has) return b->skipped_sizes++, true;
    b->stage = "comparing";
    bool opened = shake_open(&k, &s->g, in, want, s->seed + round, &refused);
    if (opened && !ok) ok = shake_fails(&k);
    else if (opened) ok = shake_compare(&k, got, &s->e);
    b->shaken += k.n_done > 0, b->runs++;
    shake_close(&k);
    if (!ok && round) err_prefix(&s->e, "sizes of round %u", round);
    return ok;
}

static bool has_variables(const struct random_graph *s)
{
    for (u32 i = 0; i < s->sym.var.n; i++)
        if (s->sym.var.v[i].n && s->sym.var.v[i].p[0] == 'D') return true;
    return false;
}

static void run_case(struct case_run *c, const struct target *t, struct board *b)
{
    struct random_graph *s = &c->s;
    b->stage = "loading";
    struct rt_program *r = rt_load(&c->plan, t->dev, &s->e);
    bool ok = r != NULL;
    for (u32 round = 0; ok && round < (has_variables(s) ? N_BINDINGS : 1); round++) ok = run_round(c, r, round, b);
    b->stage = "unloading";
    rt_unload(r);
    if (!ok) found(b, s, s->e.msg);
    b->graphs++, b->nodes += s->g.node.n - 1;
    for (node_id n = 1; n < s->g.node.n; n++) {
        const struct node *x = graph_node(&s->g, n);
        if (!x->dead && x->op_at && x->op_at <= MAX_OPS) b->ops[x->op_at - 1]++;
    }
}

/* batches */

/* Binaries of a plan and of the plans that it runs, of all graphs; a text that several have is built once. */
struct bins {
    struct arena *arena;
    struct { struct plan_bin **v; u32 n, cap; } bin;
    struct { struct str *v; u32 n, cap; } text;
    struct map seen;
};

static void collect_bins(struct bins *b, struct plan *p)
{
    for (u32 i = 0; i < p->bin.n; i++) {
        *arr_push(b->arena, &b->bin) = &p->bin.v[i];
        if (map_get(&b->seen, p->bin.v[i].code)) continue;
        map_put(&b->seen, p->bin.v[i].code, b->text.n);
        *arr_push(b->arena, &b->text) = p->bin.v[i].code;
    }
    for (u32 i = 0; i < p->dispatch.n; i++)
        for (u32 k = 0; p->dispatch.v[i].call && k < p->dispatch.v[i].call->n_sub; k++) collect_bins(b, p->dispatch.v[i].call->sub[k]);
}

static void build_batch(struct case_run *c, u32 n, const struct target *t, struct board *b, struct arena *a)
{
    struct bins all = {.arena = a};
    u32 *end = arena_array(a, u32, n + 1), at = 0;
    map_init(&all.seen, a);
    for (u32 i = 0; i < n; i++) {
        if (c[i].is_planned) collect_bins(&all, &c[i].plan);
        end[i] = all.bin.n;
    }
    struct str *out = arena_array(a, struct str, all.text.n + 1);
    struct err e = {0};
    b->stage = "building";
    build_texts(t, all.text.v, all.text.n, out, a, &e);
    for (u32 i = 0; i < n; i++)
        for (; at < end[i]; at++) {
            struct plan_bin *bin = all.bin.v[at];
            bin->code = out[*map_get(&all.seen, bin->code)];
            bin->content = hash_bytes(bin->code.p, bin->code.n);
            if (bin->code.n || !c[i].is_planned) continue;
            found(b, &c[i].s, e.msg);
            c[i].is_planned = false;
        }
}

static bool target_open(struct target *t, const char *name, struct board *b)
{
    struct err e = {0};
    const struct dev_driver *d = dev_find(str_of(name));
    *t = (struct target){.name = str_of(name)};
    if (!d) err_set(&e, ERR_USAGE, "no driver '%s'", name);
    t->dev = d ? d->open(&(struct dev_opts){.n_threads = 1}, &e) : NULL;
    if (!t->dev) {
        b->is_absent = true;
        snprintf(b->why, sizeof b->why, "%.390s", e.msg);
        return false;
    }
    d->caps(t->dev, &t->caps);
    t->lang = lang_find(str_of(d->lang));
    return true;
}

static void child_main(const char *device, const struct source *from, u64 first, u32 n, const bool *skip, struct board *b)
{
    struct target t;
    struct arena a = {0};
    struct case_run *c = mem_alloc((i64)(n * sizeof *c));
    if (!target_open(&t, device, b)) return;
    if (first / MAX_BATCH % 4 && str_is(t.name, "cpu")) /* quick to build, mostly; with the vectoriser gcc 12 gets sums of neighbours wrong at -O1 */
        setenv("QUERN_CC", str_fmt(&a, "%s -O1 -fno-tree-vectorize", os_env("QUERN_CC") ? os_env("QUERN_CC") : "").p, 1);
    for (u32 i = 0; i < n; i++) {
        memset(&c[i], 0, sizeof c[i]);
        if (skip[i]) continue;
        b->seed = first + i, b->stage = "making the graph";
        alarm(CASE_SECONDS);
        if (from->open(from, first + i, &c[i].s)) plan_case(&c[i], &t, b);
        else refuse(b, &c[i].s, &c[i].s.e);
    }
    alarm(0);
    build_batch(c, n, &t, b, &a);
    for (u32 i = 0; i < n; i++) {
        b->seed = first + i;
        alarm(CASE_SECONDS);
        if (c[i].is_planned) run_case(&c[i], &t, b);
        random_graph_close(&c[i].s);
    }
    alarm(0);
    b->seed = first + n, b->stage = "closing the device";
    t.dev->driver->close(t.dev);
    arena_release(&a);
    mem_free(c);
}

static struct board *board_open(void)
{
    void *p = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void board_add(struct board *to, const struct board *b)
{
    to->is_absent |= b->is_absent;
    memcpy(to->why, b->why, sizeof to->why);
    to->graphs += b->graphs, to->refused += b->refused, to->nodes += b->nodes, to->runs += b->runs, to->shaken += b->shaken;
    to->skipped_sizes += b->skipped_sizes;
    for (u32 i = 0; i < MAX_OPS; i++) to->ops[i] += b->ops[i];
    for (u32 i = 0; i < b->n_found && to->n_found < MAX_FOUND; i++) to->found[to->n_found++] = b->found[i];
}

static void describe_end(char *out, i64 n, int status, const char *stage)
{
    const char *late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ", it took too long" : "";
    if (WIFSIGNALED(status)) snprintf(out, (size_t)n, "%s: ended by signal %d%s", stage, WTERMSIG(status), late);
    else snprintf(out, (size_t)n, "%s: ended with exit code %d", stage, WEXITSTATUS(status));
}

/* Runs graphs first .. first + n - 1 on a device; sum receives the findings. quiet: discards
   messages of dying children. */
static void run_batch(const char *device, const struct source *from, u64 first, u32 n, bool quiet, struct board *sum)
{
    bool skip[MAX_BATCH] = {0};
    struct board *b = board_open();
    for (;;) {
        memset(b, 0, sizeof *b);
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            if (quiet && !freopen("/dev/null", "w", stderr)) _exit(1);
            signal(SIGABRT, SIG_DFL), signal(SIGSEGV, SIG_DFL);
            child_main(device, from, first, n, skip, b);
            b->is_done = true;
            _exit(0);
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid) break;
        if (b->is_done) break;
        struct found f = {.seed = b->seed};
        describe_end(f.what, sizeof f.what, status, b->stage ? b->stage : "opening the device");
        if (sum->n_found < MAX_FOUND) sum->found[sum->n_found++] = f;
        if (b->seed < first || b->seed >= first + n || skip[b->seed - first]) break; /* of no graph */
        skip[b->seed - first] = true;
    }
    if (b->is_done) board_add(sum, b);
    munmap(b, sizeof *b);
}

#endif
