// SPDX-License-Identifier: Apache-2.0
//
// Exact verification of the kernels of an artifact (tune/exact.h). No kernel enters an artifact
// before its verdict is known, but nothing waits for it earlier: child processes compute verdicts
// while kernels are generated, constants packed and compilers run, and the caller takes the
// remaining ones when it is idle.
//
// A verdict is a function of task, schedule, device and this build of the library, whose hash is
// its key: kernels shared by regions, loop bodies, networks or variants are verified once. Verdicts
// are kept in the user's cache (tune/cache.c) beside compiled kernels, but not in databases, which
// may come from others. DIFFERS is not kept.
//
// The limit counts steps, not seconds, in the order of the program, independently of which process
// computed a verdict and when: the same input yields the same bytes.
#include "plan/plan.h"
#include "tune/exact.h"

#include <stdatomic.h>
#include <string.h>

enum { PROVE_WORK = 500000, MAX_PROVERS = 15, MAX_TEXT = 1 << 12 };
static const i64 prove_steps = 1500000000; /* of all kernels together */
static const char suffix[] = ".proof";

struct proof { /* one kernel */
    const struct task *task;
    struct candidate cand;
    struct hash key;
    bool is_known, is_new;   /* the result is known; and not in the cache yet */
    bool is_replaced;        /* cand was wrong, and is now the default schedule */
    struct exact_result result;
    struct str json;
};

struct use { struct task_cost *cost; u32 proof; };

struct prover {
    const struct prove_env *env;
    struct arena *a;
    bool has_build;
    struct hash build;
    struct map by_key;       /* hash -> index */
    struct { struct proof *v; u32 n, cap; } proof; /* in program order */
    struct { struct use *v; u32 n, cap; } use;
    _Atomic u32 *next;       /* shared with the children, which increment it to take a proof; NULL: no children */
    struct os_child child[MAX_PROVERS];
    u32 n_children;
};

/* Keys. */

/* What a task's text omits: names, order and facts of sizes. */
static void put_sizes(struct buf *b, const struct symtab *t)
{
    for (u32 v = 0; v < t->var.n; v++) buf_printf(b, "%.*s ", STR_ARG(t->var.v[v]));
    for (u32 i = 0; i < t->fact.n; i++) {
        sym_fact_print(b, t, &t->fact.v[i]);
        buf_char(b, '\n');
    }
}

static struct hash proof_key(const struct prover *p, const struct task *t, const struct candidate *c)
{
    struct buf b = {0};
    buf_printf(&b, "proof %llx %llx %d\n", (unsigned long long)p->build.lo, (unsigned long long)p->build.hi, PROVE_WORK);
    caps_print(&b, p->env->caps);
    buf_char(&b, '\n');
    if (t->g.sym->var.n) put_sizes(&b, t->g.sym);
    candidate_print(&b, c);
    buf_printf(&b, "\n%.*s", STR_ARG(t->text));
    struct hash h = hash_bytes(b.p, b.n);
    buf_release(&b);
    return h;
}

static struct str bytes_of(const struct hash *h) { return (struct str){(const char *)h, sizeof *h}; }

/* Verdicts as bytes: for the parent and the cache. */

struct head { u32 at /* index of the proof; in the cache 0 */, verdict; i64 n_steps, n_sizes, n_why; };

static struct head head_of(const struct exact_result *r, u32 at)
{
    return (struct head){.at = at, .verdict = r->verdict, .n_steps = r->n_steps, .n_sizes = r->sizes.n, .n_why = r->why.n};
}

static bool is_sane(const struct head *h, u32 n)
{
    return h->at < n && h->verdict < N_EXACT_VERDICTS && h->n_steps >= 0 && h->n_sizes >= 0 && h->n_sizes < MAX_TEXT && h->n_why >= 0 && h->n_why < MAX_TEXT;
}

static void take(struct exact_result *r, const struct head *h, const char *text)
{
    *r = (struct exact_result){.verdict = (enum exact_verdict)h->verdict, .n_steps = h->n_steps};
    buf_put(&r->sizes, text, h->n_sizes);
    buf_put(&r->why, text + h->n_sizes, h->n_why);
}

static bool find(const struct prover *p, struct proof *x)
{
    struct os_file f;
    struct str s;
    struct head h;
    if (!p->has_build || !cache_map(p->env->cache, x->key, suffix, &f, &s)) return false;
    bool ok = s.n >= (i64)sizeof h;
    if (ok) memcpy(&h, s.p, sizeof h);
    ok = ok && is_sane(&h, 1) && s.n == (i64)sizeof h + h.n_sizes + h.n_why;
    if (ok) take(&x->result, &h, s.p + sizeof h);
    os_unmap(&f);
    return ok;
}

/* Computing verdicts. */

static bool prove(const struct prover *p, struct exact_result *r, const struct task *t, const struct candidate *c, struct err *e)
{
    return exact_check(r, t, c, p->env->caps, &(struct exact_opts){.max_work = PROVE_WORK, .once = true}, e);
}

/* The next proof that no process has taken; NULL: none. */
static struct proof *next_proof(const struct prover *p)
{
    while (p->next) {
        u32 i = atomic_fetch_add(p->next, 1);
        if (i >= p->proof.n) break;
        if (!p->proof.v[i].is_known) return &p->proof.v[i];
    }
    return NULL;
}

/* Runs in a child. Once the steps of all kernels are used up, no more are taken. A failed one is
   left to the parent, which reports the error. */
static void prove_next(void *user, int fd)
{
    struct prover *p = user;
    struct proof *x;
    for (i64 left = prove_steps; left > 0 && (x = next_proof(p));) {
        struct err e = {0};
        if (!prove(p, &x->result, x->task, &x->cand, &e)) continue;
        const struct head h = head_of(&x->result, (u32)(x - p->proof.v));
        left -= h.n_steps;
        if (!is_sane(&h, p->proof.n) || !os_child_put(fd, &h, sizeof h) || !os_child_put(fd, x->result.sizes.p, h.n_sizes) ||
            !os_child_put(fd, x->result.why.p, h.n_why))
            return;
        exact_result_release(&x->result);
    }
}

/* Reads a child's verdict. OS_SIGNALLED: it has no more. */
static enum os_exit read_verdict(struct prover *p, const struct os_child *c)
{
    struct head h;
    char text[2 * MAX_TEXT];
    enum os_exit how = os_child_get(c, &h, sizeof h, 0);
    if (how != OS_EXITED) return how;
    if (!is_sane(&h, p->proof.n)) return OS_SIGNALLED;
    how = os_child_get(c, text, h.n_sizes + h.n_why, 0);
    struct proof *x = &p->proof.v[h.at];
    if (how == OS_EXITED && !x->is_known) take(&x->result, &h, text), x->is_known = x->is_new = true;
    return how;
}

static bool prove_one(struct prover *p, struct proof *x, struct err *e)
{
    if (!mem_check(e, "verifying kernels", S(""))) return false;
    x->is_new = true;
    return x->is_known = prove(p, &x->result, x->task, &x->cand, e);
}

/* Takes part until all proofs are taken, then waits for the children. */
static bool finish(struct prover *p, struct err *e)
{
    bool ok = true;
    i64 left = prove_steps;
    for (struct proof *x; left > 0 && ok && (x = next_proof(p));) ok = prove_one(p, x, e), left -= x->result.n_steps;
    for (u32 i = 0; i < p->n_children && ok; i++) {
        enum os_exit how = OS_EXITED;
        while (how == OS_EXITED) how = read_verdict(p, &p->child[i]);
        if (how == OS_STOPPED) ok = err_set(e, ERR_STOPPED, "stopped");
    }
    return ok;
}

/* Collecting kernels. */

static u32 add_proof(struct prover *p, const struct task *t, const struct candidate *c)
{
    struct proof x = {.task = t, .cand = *c, .key = proof_key(p, t, c)};
    u64 *known = map_get(&p->by_key, bytes_of(&x.key));
    if (known) return (u32)*known;
    x.is_known = find(p, &x);
    *arr_push(p->a, &p->proof) = x;
    struct hash *key = arena_new(p->a, struct hash);
    *key = x.key;
    map_put(&p->by_key, bytes_of(key), p->proof.n - 1);
    return p->proof.n - 1;
}

/* Each selected kernel, including those of bodies. */
static void add_choice(struct prover *p, struct selection *s, const struct cover *c)
{
    for (u32 i = 0; i < s->choice.n; i++) {
        u32 task = c->region.v[s->choice.v[i].region].task;
        if (task == NO_TASK || task_is_call(c->task.v[task])) continue;
        *arr_push(p->a, &p->use) = (struct use){&s->cost[task], add_proof(p, c->task.v[task], &s->cost[task].best)};
    }
    for (u32 b = 0; b < c->body.n; b++) add_choice(p, &s->body[b], c->body.v[b]);
}

struct prover *prove_start(const struct prove_env *env, struct plan_choice *x, struct arena *a)
{
    struct prover *p = arena_new(a, struct prover);
    *p = (struct prover){.env = env, .a = a, .has_build = os_build_id(&p->build)};
    map_init(&p->by_key, a);
    add_choice(p, &x->s, &x->c);
    u32 n_unknown = 0;
    for (u32 i = 0; i < p->proof.n; i++) n_unknown += !p->proof.v[i].is_known;
    log_printf(env->log, 3, "%u kernels, %u of them to be verified exactly", p->proof.n, n_unknown);
    struct err e = {0};
    i64 n = i64_min(i64_min(os_n_cpus() - 1, n_unknown), MAX_PROVERS);
    p->next = n > 0 ? os_share(sizeof *p->next) : NULL;
    while (p->next && p->n_children < n && os_child_start(&p->child[p->n_children], prove_next, p, &e)) p->child[p->n_children++].stop = p->env->stop;
    return p;
}

/* Settling. */

static struct str proof_json(const struct exact_result *r, struct arena *a)
{
    struct buf b = {0};
    buf_z(&b, "{\"verdict\":");
    buf_json_str(&b, str_of(exact_verdict_name(r->verdict)));
    buf_z(&b, ",\"sizes\":");
    buf_json_str(&b, buf_view(&r->sizes));
    if (r->verdict != EXACT_YES) {
        buf_z(&b, ",\"why\":");
        buf_json_str(&b, buf_view(&r->why));
    }
    buf_char(&b, '}');
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

/* Replaces a wrong schedule by the default; false: it is the default, or that is wrong, too. */
static bool replace(struct prover *p, struct proof *x, struct err *e)
{
    struct buf text = {0};
    struct candidate other;
    candidate_print(&text, &x->cand);
    buf_printf(&text, " at %.*s: %.*s", STR_ARG(buf_view(&x->result.sizes)), STR_ARG(buf_view(&x->result.why)));
    bool ok = gen_default(x->task, p->env->caps, p->env->var, &other) &&
              (other.gen != x->cand.gen || memcmp(&other.sched, &x->cand.sched, sizeof other.sched));
    if (ok) {
        log_printf(p->env->log, 1, "a kernel does not compute its task and is replaced: %.*s", STR_ARG(buf_view(&text)));
        exact_result_release(&x->result);
        x->cand = other, x->is_replaced = true;
        ok = prove(p, &x->result, x->task, &other, e) && x->result.verdict != EXACT_DIFFERS;
    }
    if (!ok && !e->code) err_set(e, ERR_FAILED, "a kernel does not do its task, please report it (--no-prove compiles it all the same): %.*s", STR_ARG(buf_view(&text)));
    buf_release(&text);
    return ok;
}

/* In program order. */
static bool settle(struct prover *p, struct proof *x, i64 *left, bool *changed, struct err *e)
{
    if (*left <= 0) {
        struct exact_result none = {.verdict = EXACT_TOLERANCE};
        buf_z(&none.why, "not run: `quern verify --exact` does");
        x->json = proof_json(&none, p->a);
        exact_result_release(&none);
        return true;
    }
    if (!x->is_known && !prove_one(p, x, e)) return false;
    const struct head h = head_of(&x->result, 0);
    const struct str piece[] = {{(const char *)&h, sizeof h}, buf_view(&x->result.sizes), buf_view(&x->result.why)};
    if (p->has_build && x->is_new && x->result.verdict != EXACT_DIFFERS) cache_write(p->env->cache, x->key, suffix, piece, countof(piece));
    *left -= x->result.n_steps;
    if (x->result.verdict == EXACT_DIFFERS) {
        if (!replace(p, x, e)) return false;
        *left -= x->result.n_steps;
        *changed = true;
    }
    x->json = proof_json(&x->result, p->a);
    return true;
}

bool prove_finish(struct prover *p, bool *changed, struct err *e)
{
    i64 left = prove_steps;
    *changed = false;
    bool ok = finish(p, e);
    for (u32 i = 0; i < p->proof.n && ok; i++) ok = settle(p, &p->proof.v[i], &left, changed, e);
    for (u32 i = 0; i < p->use.n && ok; i++) {
        struct task_cost *c = p->use.v[i].cost;
        assert(p->use.v[i].proof < p->proof.n);
        const struct proof *x = &p->proof.v[p->use.v[i].proof];
        assert(x->json.n > 0); /* settled */
        c->proof = x->json;
        if (x->is_replaced) c->best = x->cand, c->is_measured = false;
    }
    return ok;
}

void prove_end(struct prover *p)
{
    if (!p) return;
    for (u32 i = 0; i < p->n_children; i++) os_child_end(&p->child[i]);
    for (u32 i = 0; i < p->proof.n; i++) exact_result_release(&p->proof.v[i].result);
    os_unshare(p->next, sizeof *p->next);
}

/* Adds the reasons, including the verdicts, at the end. */
static void explain(struct plan *p, const struct plan_choice *x, const i64 *var)
{
    struct buf why = {0};
    plan_explain(&why, &x->c, &x->s, var);
    p->explain = str_dup(p->arena, buf_view(&why));
    buf_release(&why);
}

bool plan_make_verified(struct plan *p, struct plan_choice *x, const struct plan_env *env, const struct prove_env *how, const i64 *var,
                        struct arena *a, struct err *e)
{
    struct arena work = {0};
    struct prover *prover = how ? prove_start(how, x, &work) : NULL;
    bool changed = false, ok = plan_make(p, &x->c, &x->s, var, env, a, e);
    if (ok && prover) ok = prove_finish(prover, &changed, e);
    prove_end(prover);
    ok = ok && (!changed || plan_make(p, &x->c, &x->s, var, env, a, e));
    if (ok) explain(p, x, var);
    arena_release(&work);
    return ok;
}
