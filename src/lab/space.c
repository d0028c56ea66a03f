// SPDX-License-Identifier: Apache-2.0
//
// The space spanned by value lists, pruned by rules. Fields are chosen in a fixed order and each rule is applied as soon as its fields are
// known, so the product of all lists (up to 10^12) is never enumerated. The order and the rules are those of the computation (space.h).
#include "lab/space.h"

#include <string.h>

enum { MAX_STEPS = 1 << 28, MAX_CHOICES = 1 << 18 /* of a part */ };

static const char *const rules_name[N_LAB_RULES] = {
    [LAB_RULES_OWN] = "own", [LAB_RULES_DEEPGEN] = "deepgen", [LAB_RULES_2025_06] = "deepgen-2025-06"};

const char *lab_rules_name(enum lab_rules r) { return rules_name[r]; }

bool lab_rules_find(enum lab_rules *r, const char *name, struct err *e)
{
    u32 k = LAB_RULES_OWN;
    while (name && k < N_LAB_RULES && strcmp(name, rules_name[k])) k++;
    *r = (enum lab_rules)k;
    return k < N_LAB_RULES || err_set(e, ERR_USAGE, "no rules '%s', expected own, deepgen or deepgen-2025-06", name);
}

static const struct space_rules *rules_of(const struct lab_space *s)
{
    return lab_is_attention(s->base.kind) ? &space_attention : &space_gemm;
}

bool space_has(const struct lab_list *l, i64 v)
{
    for (u32 i = 0; i < l->n; i++)
        if (l->v[i] == v) return true;
    return false;
}

static double list_sizes(const struct lab_space *s, u32 n, const u8 *field)
{
    double all = 1;
    for (u32 i = 0; i < n; i++) all *= s->list[field[i]].n;
    return all;
}

struct walk {
    struct space_choice x;
    const struct space_rules *r;
    struct arena *a; /* for one head */
    struct lab_count *count;
    i64 skip, number; /* of points: to be skipped; of the next one */
    i64 steps;
    lab_visit *fn; /* NULL: counting only */
    void *user;
};

static void add_stage(struct walk *w, u32 s, double before, double after)
{
    w->count->stage[s].before += before;
    w->count->stage[s].after += after;
}

/* Tails. */

struct choice { i32 v[SPACE_MAX_PART]; };
struct choices { struct choice *v; u32 n, cap; }; /* of a part */

static void set_choice(struct lab_config *c, const struct space_part *p, const struct choice *x)
{
    for (u32 i = 0; i < p->n; i++) c->v[p->field[i]] = x->v[i];
}

/* The k-th combination of the lists of a part, the last field fastest. */
static void nth_choice(struct choice *x, const struct lab_space *s, const struct space_part *p, i64 k)
{
    for (u32 i = p->n; i-- > 0; k /= s->list[p->field[i]].n) x->v[i] = s->list[p->field[i]].v[k % s->list[p->field[i]].n];
}

static bool is_used(const struct walk *w, u32 part) { return !w->r->part_is_used || w->r->part_is_used(&w->x.c, part); }

static void fill_part(struct walk *w, u32 part, struct choices *out)
{
    const struct space_part *p = &w->r->part[part];
    struct lab_config c = w->x.c;
    struct choice x = {{0}};
    if (!is_used(w, part)) {
        *arr_push(w->a, out) = x;
        return;
    }
    i64 n = (i64)list_sizes(w->x.s, p->n, p->field);
    w->steps += n <= MAX_CHOICES ? n : MAX_STEPS;
    for (i64 k = 0; k < n && w->steps < MAX_STEPS; k++) {
        nth_choice(&x, w->x.s, p, k);
        set_choice(&c, p, &x);
        if (w->r->part_fits(&w->x, part, &c)) *arr_push(w->a, out) = x;
    }
}

static double product(const struct choices *p, u32 n)
{
    double all = 1;
    for (u32 i = 0; i < n; i++) all *= p[i].n;
    return all;
}

static void cut_parts(const struct walk *w, struct choices *p)
{
    struct lab_config c = w->x.c;
    for (u32 i = 0; i < w->r->n_parts; i++) {
        u32 n = 0;
        for (u32 k = 0; k < p[i].n; k++) {
            set_choice(&c, &w->r->part[i], &p[i].v[k]);
            if (w->r->cut_part(&w->x, i, &c)) p[i].v[n++] = p[i].v[k];
        }
        p[i].n = n;
    }
}

/* Points of this head from number w->number on. */
static bool visit_tail(struct walk *w, const struct choices *p, i64 n)
{
    for (i64 k = w->skip; k < n; k++) {
        struct lab_config c = w->x.c;
        i64 left = k;
        for (u32 i = w->r->n_parts; i-- > 0; left /= p[i].n) set_choice(&c, &w->r->part[i], &p[i].v[left % p[i].n]);
        if (!w->fn(w->user, &c, w->number++)) return false;
    }
    w->skip = 0;
    return true;
}

/* Choices of all parts, by stages. The result: how many combinations. */
static double fill_parts(struct walk *w, struct choices *p)
{
    double n = 1;
    for (u32 i = 0, to; i < w->r->n_parts; i = to) {
        double lists = 1, fits = 1;
        for (to = i; to < w->r->n_parts && w->r->part[to].stage == w->r->part[i].stage; to++) {
            fill_part(w, to, &p[to]);
            if (is_used(w, to)) lists *= list_sizes(w->x.s, w->r->part[to].n, w->r->part[to].field);
            fits *= p[to].n;
        }
        add_stage(w, w->r->part[i].stage, n * lists, n * fits);
        n *= fits;
    }
    return n;
}

/* The rules after those of parts. The result: how many combinations they leave of n. */
static double cut(struct walk *w, struct choices *p, double n)
{
    double left = 0;
    if (!w->r->cut) return n;
    if (w->r->cut(&w->x)) {
        cut_parts(w, p);
        left = product(p, w->r->n_parts);
    }
    add_stage(w, w->r->cut_stage, n, left);
    n = w->r->last(&w->x) ? left : 0;
    add_stage(w, w->r->last_stage, left, n);
    return n;
}

static bool end_head(struct walk *w)
{
    struct arena_mark mark = arena_mark(w->a);
    struct choices p[SPACE_MAX_PARTS] = {{0}};
    double all = fill_parts(w, p), n = cut(w, p, all);
    bool go_on = w->steps < MAX_STEPS;
    if (w->fn && n <= (double)w->skip) w->skip -= (i64)n;
    else if (w->fn && go_on) go_on = visit_tail(w, p, (i64)n);
    arena_rewind(w->a, mark);
    return go_on;
}

/* Heads below the choices made so far. */
static bool walk_head(struct walk *w, u32 depth)
{
    if (depth == w->r->n_head) return end_head(w);
    const struct space_head *h = &w->r->head[depth];
    const struct lab_list *l = &w->x.s->list[h->field];
    for (u32 i = 0; i < l->n; i++) {
        if (++w->steps >= MAX_STEPS) return false;
        w->x.c.v[h->field] = l->v[i];
        bool fits = w->r->head_fits(&w->x, h->field);
        if (h->ends) add_stage(w, h->stage, 0, fits);
        if (fits && !walk_head(w, depth + 1)) return false;
    }
    return true;
}

/* Points that a file lists. */
static void walk_listed(struct walk *w)
{
    w->number = w->skip;
    for (i64 i = w->skip; w->fn && i < w->x.s->listed.n; i++)
        if (!w->fn(w->user, &w->x.s->listed.v[i], w->number++)) return;
}

void lab_space_each(const struct lab_space *s, enum lab_rules r, i64 start, lab_visit *fn, void *user)
{
    struct arena a = {0};
    struct lab_count unused = {0};
    struct walk w = {.x = {s, r, s->base}, .r = rules_of(s), .a = &a, .count = &unused, .skip = start, .fn = fn, .user = user, .number = start};
    if (s->listed.n) walk_listed(&w);
    else walk_head(&w, 0);
    arena_release(&a);
}

/* Counting. */

/* What a stage of the head chooses from: the survivors of the stage before, times its own lists. */
static void count_heads(const struct walk *w)
{
    for (u32 i = 0, to; i < w->r->n_head; i = to) {
        struct lab_stage *st = &w->count->stage[w->r->head[i].stage];
        st->before = w->r->head[i].stage ? st[-1].after : 1;
        for (to = i; to < w->r->n_head && w->r->head[to].stage == w->r->head[i].stage; to++) st->before *= w->x.s->list[w->r->head[to].field].n;
    }
}

static bool say_nothing_left(const struct space_rules *r, const struct lab_count *c, struct err *e)
{
    u32 s = 0;
    while (s + 1 < r->n_stages && c->stage[s].after > 0) s++;
    return err_set(e, ERR_NOTHING, "nothing is left of the space: the rule for %s removed the last %.0f of %.0f, it wants %s",
                   c->stage[s].what, c->stage[s].before, c->raw, r->stage[s].wants);
}

bool lab_space_count(const struct lab_space *s, enum lab_rules r, struct lab_count *c, struct err *e)
{
    struct arena a = {0};
    struct walk w = {.x = {s, r, s->base}, .r = rules_of(s), .a = &a, .count = c};
    *c = (struct lab_count){.raw = 1, .n_stages = w.r->n_stages};
    for (u32 k = 0; k < c->n_stages; k++) c->stage[k].what = w.r->stage[k].what;
    for (u32 f = 0; f < LAB_MAX_FIELDS; f++) c->raw *= s->list[f].n ? s->list[f].n : 1;
    c->n = s->listed.n;
    if (s->listed.n) return true;
    if (lab_is_attention(s->base.kind) && r == LAB_RULES_2025_06)
        return err_set(e, ERR_UNSUPPORTED, "rules '%s' are of matmuls, for attention there are own and deepgen", rules_name[r]);
    bool all = walk_head(&w, 0);
    arena_release(&a);
    count_heads(&w);
    if (w.r->count_more) w.r->count_more(&w.x, c);
    c->n = c->stage[c->n_stages - 1].after;
    if (!all) return err_set(e, ERR_UNSUPPORTED, "the lists allow too many combinations of tiles to be counted");
    return c->n > 0 || say_nothing_left(w.r, c, e);
}

void lab_space_limit(struct lab_space *s, const struct caps *caps)
{
    if (caps->max_group) s->max_threads = caps->max_group;
    if (caps->shared_bytes) s->max_shared = caps->shared_bytes;
}

void lab_space_report(const struct log *log, const struct lab_space *s, enum lab_rules r, const struct lab_count *c)
{
    log_printf(log, 2, "space: %.0f points", s->listed.n ? c->n : c->raw);
    for (u32 k = 0; k < c->n_stages && !s->listed.n; k++)
        log_printf(log, 2, "  %-34s %12.0f -> %.0f", c->stage[k].what, c->stage[k].before, c->stage[k].after);
    if (c->n > 0) log_printf(log, 2, "space by rules '%s': %.0f points", rules_name[r], c->n);
}
