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
// Verification reduces the sizes of a task while its kernel keeps its structure. Kernels of one
// schedule whose tasks differ only in sizes and constants and which have the same structure are
// therefore verified once: the first one in the order of the program stands for all of them.
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
    u32 first;               /* the first one of the same form and structure, which is verified for all of them */
    bool has_structure;
    struct exact_structure structure; /* of its kernel */
    bool is_known, is_new;   /* the result is known; and not in the cache yet */
    bool is_replaced;        /* cand was wrong, and is now the default schedule */
    struct exact_result result;
    struct str json;
};

struct use { struct task_cost *cost; u32 proof; };

struct shared {
    _Atomic u32 next;   /* the next proof to be taken */
    _Atomic i64 n_steps; /* of all results so far */
};

struct prover {
    const struct prove_env *env;
    struct arena *a;
    bool has_build;
    struct hash build;
    struct map by_key;       /* hash -> index */
    struct map by_form;      /* hashes of forms, and of forms with structures -> first index */
    struct { struct proof *v; u32 n, cap; } proof; /* in program order */
    struct { struct use *v; u32 n, cap; } use;
    struct shared *shared;   /* with the children; NULL: no children */
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

static bool is_first(const struct prover *p, const struct proof *x) { return &p->proof.v[x->first] == x; }

/* The next proof that no process has taken; NULL: none, or the steps of all kernels are used up: proofs are taken in order, so that later ones
   are beyond the limit whatever the results that are still missing. */
static struct proof *next_proof(const struct prover *p)
{
    while (p->shared && atomic_load(&p->shared->n_steps) < prove_steps) {
        u32 i = atomic_fetch_add(&p->shared->next, 1);
        if (i >= p->proof.n) break;
        struct proof *x = &p->proof.v[i];
        if (is_first(p, x) && !x->is_known) return x;
        if (is_first(p, x)) atomic_fetch_add(&p->shared->n_steps, x->result.n_steps);
    }
    return NULL;
}

/* Runs in a child. A failed proof is left to the parent, which reports the error. */
static void prove_next(void *user, int fd)
{
    struct prover *p = user;
    struct proof *x;
    while ((x = next_proof(p))) {
        struct err e = {0};
        if (!prove(p, &x->result, x->task, &x->cand, &e)) continue;
        const struct head h = head_of(&x->result, (u32)(x - p->proof.v));
        atomic_fetch_add(&p->shared->n_steps, h.n_steps);
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
    for (struct proof *x; ok && (x = next_proof(p));) {
        ok = prove_one(p, x, e);
        atomic_fetch_add(&p->shared->n_steps, x->result.n_steps);
    }
    for (u32 i = 0; i < p->n_children && ok; i++) {
        enum os_exit how = OS_EXITED;
        while (how == OS_EXITED) how = read_verdict(p, &p->child[i]);
        if (how == OS_STOPPED) ok = err_set(e, ERR_STOPPED, "stopped");
    }
    return ok;
}

/* Collecting kernels. */

/* The index of the hash, which is i if it is new. */
static u32 first_of(struct prover *p, struct map *m, struct hash h, u32 i)
{
    u64 *known = map_get(m, bytes_of(&h));
    if (known) return (u32)*known;
    struct hash *key = arena_new(p->a, struct hash);
    *key = h;
    map_put(m, bytes_of(key), i);
    return i;
}

static struct hash form_of(const struct prover *p, const struct proof *x)
{
    struct buf b = {0};
    put_sizes(&b, x->task->g.sym);
    candidate_print(&b, &x->cand);
    buf_char(&b, '\n');
    exact_form(&b, x->task);
    struct hash h = hash_bytes(b.p, b.n);
    buf_release(&b);
    return h;
}

/* Kernels are generated only for the second proof of a form, then for both. */
static bool note_structure(struct prover *p, struct proof *x)
{
    struct arena a = {0};
    struct kernel k;
    struct err e = {0};
    if (x->has_structure) return true;
    x->has_structure = gen_kernel(&k, &a, &x->cand, x->task, p->env->caps, &e);
    if (x->has_structure) x->structure = exact_structure_of(&k.kir);
    arena_release(&a);
    return x->has_structure;
}

static u32 first_with_structure(struct prover *p, struct hash form, u32 i)
{
    struct proof *x = &p->proof.v[i];
    if (!note_structure(p, x)) return i;
    const u64 both[] = {form.lo, form.hi, x->structure.all};
    return first_of(p, &p->by_form, hash_bytes(both, sizeof both), i);
}

static u32 find_first(struct prover *p, u32 i)
{
    struct hash form = form_of(p, &p->proof.v[i]);
    u32 same_form = first_of(p, &p->by_form, form, i);
    if (same_form == i) return i;
    first_with_structure(p, form, same_form);
    return first_with_structure(p, form, i);
}

static u32 add_proof(struct prover *p, const struct task *t, const struct candidate *c)
{
    struct hash key = proof_key(p, t, c);
    u32 i = first_of(p, &p->by_key, key, p->proof.n);
    if (i < p->proof.n) return i;
    *arr_push(p->a, &p->proof) = (struct proof){.task = t, .cand = *c, .key = key};
    struct proof *x = &p->proof.v[i];
    x->first = find_first(p, i);
    if (x->first == i) x->is_known = find(p, x);
    return i;
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
    map_init(&p->by_form, a);
    add_choice(p, &x->s, &x->c);
    u32 n_unknown = 0;
    for (u32 i = 0; i < p->proof.n; i++) n_unknown += is_first(p, &p->proof.v[i]) && !p->proof.v[i].is_known;
    log_printf(env->log, 3, "%u kernels, %u of them to be verified exactly", p->proof.n, n_unknown);
    struct err e = {0};
    i64 n = i64_min(i64_min(os_n_cpus() - 1, n_unknown), MAX_PROVERS);
    p->shared = n > 0 ? os_share(sizeof *p->shared) : NULL;
    while (p->shared && p->n_children < n && os_child_start(&p->child[p->n_children], prove_next, p, &e)) p->child[p->n_children++].stop = p->env->stop;
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

/* In program order: the first one of a form before the others. If that was wrong, they are verified, too. */
static bool settle(struct prover *p, struct proof *x, i64 *left, bool *changed, struct err *e)
{
    if (!is_first(p, x) && !p->proof.v[x->first].is_replaced) {
        x->json = p->proof.v[x->first].json;
        return true;
    }
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
    os_unshare(p->shared, sizeof *p->shared);
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
