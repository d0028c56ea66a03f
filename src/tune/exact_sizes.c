// SPDX-License-Identifier: Apache-2.0
//
// exact_sizes.c: reduces the sizes of a task while its kernel keeps its structure: loops with one
// or more iterations, branches, accesses, float arithmetic at the same depths. Fixed sizes are
// numbers in the task's text: each is replaced by smaller ones and the kernel is generated anew,
// until its structure is the same.
#include "tune/exact.h"

#include "tune/tune.h"

#include <stdlib.h>
#include <string.h>

double exact_work(const struct task *t, const i64 *var)
{
    double work = task_flops(t, var) / 2;
    i64 dim[MAX_RANK];
    for (u32 i = 0; i < t->g.input.n + t->g.output.n; i++) {
        value_id v = i < t->g.input.n ? t->g.input.v[i] : t->g.output.v[i - t->g.input.n];
        if (!shape_eval(t->g.sym, &graph_value(&t->g, v)->shape, var, dim)) continue;
        work += 4 * (double)i64_product(graph_value(&t->g, v)->shape.rank, dim);
    }
    return work;
}

/* Cost of an evaluation: constants must be generated and packed, too. */
static double cost_of(const struct exact_variant *x)
{
    const struct task *t = &x->task;
    double cost = exact_work(t, x->var);
    for (value_id v = 1; v < t->g.value.n; v++) {
        const struct value *k = graph_value(&t->g, v);
        i64 dim[MAX_RANK];
        if (k->is_const && shape_eval(t->g.sym, &k->shape, x->var, dim)) cost += 4 * (double)i64_product(k->shape.rank, dim);
    }
    return cost;
}

static bool is_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '%'; }

/* End of the number or word at p. */
static i64 token_end(struct str s, i64 i)
{
    while (i < s.n && is_word(s.p[i])) i++;
    return i;
}

static i64 quoted_end(struct str s, i64 i)
{
    for (i++; i < s.n && s.p[i] != '"'; i++) i += s.p[i] == '\\';
    return i64_min(i + 1, s.n);
}

/* Whether a number is not part of an expression. */
static bool is_alone(struct str s, i64 from, i64 to)
{
    return from > 0 && strchr("[,= ", s.p[from - 1]) && (to == s.n || strchr(",] )}\n", s.p[to]));
}

/* Whether the token is a number, possibly in quotes, as shapes of Reshape are. */
static bool is_number(struct str s, i64 from, i64 to, i64 *v)
{
    bool quoted = s.p[from] == '"';
    if (quoted) return to - from > 2 && s.p[to - 1] == '"' && is_word(s.p[from + 1]) && str_to_i64(str_sub(s, from + 1, to - 1), v);
    return is_word(s.p[from]) && is_alone(s, from, to) && str_to_i64(str_sub(s, from, to), v);
}

/* Visits each integer of the text with its position in the enclosing bracketed list (-1: none); the
   callback may replace it. */
typedef i64 number_fn(void *user, i64 v, i64 place);

static void rewrite(struct buf *out, struct str s, number_fn *see, void *user)
{
    i64 place = -1;
    for (i64 i = 0, end; i < s.n; i = end) {
        i64 v;
        bool quoted = s.p[i] == '"';
        end = quoted ? quoted_end(s, i) : i64_max(i + 1, token_end(s, i));
        if (s.p[i] == '[') place = 0;
        else if (s.p[i] == ']') place = -1;
        else if (s.p[i] == ',' && place >= 0) place++;
        if (is_number(s, i, end, &v)) buf_printf(out, quoted ? "\"%lld\"" : "%lld", (long long)see(user, v, place));
        else buf_str(out, str_sub(s, i, end));
    }
}

enum { LEAST = 6 /* to be reduced */ };

/* End of a float that is no small whole number, from its first digit on; otherwise i. */
static i64 float_end(struct str s, i64 i)
{
    i64 end = token_end(s, i);
    struct str number = str_sub(s, i, end), whole, digits;
    if (!str_cut(number, '.', &whole, &digits) || !str_to_i64(whole, &(i64){0})) return i;
    bool has_exponent = digits.n && digits.p[digits.n - 1] == 'e' && end < s.n;
    if (has_exponent) end = token_end(s, end + 1);
    for (i64 k = 0; k < digits.n; k++)
        if (digits.p[k] != '0') return end;
    return atoll(whole.p) < LEAST ? i : end;
}

static i64 blank_number(void *user, i64 v, i64 place) { return v < LEAST ? v : LEAST; }

void exact_form(struct buf *out, const struct task *t)
{
    struct buf sizes = {0};
    rewrite(&sizes, t->text, blank_number, NULL);
    struct str s = buf_view(&sizes), known = S("sym(");
    for (i64 i = 0, end; i < s.n; i = end) {
        i64 v;
        end = i64_max(i + 1, token_end(s, i));
        struct str token = str_sub(s, i, end);
        if (float_end(s, i) > i) end = float_end(s, i), buf_char(out, '.');
        else if (str_ends(str_sub(s, 0, i), known) && str_to_i64(token, &v) && v >= LEAST) buf_printf(out, "%d", LEAST);
        else buf_str(out, token);
    }
    buf_release(&sizes);
}

enum { MAX_NUMBERS = 24, MAX_ALL_TRIES = 400 /* kernels generated */ };
enum { MAX_TRIES = 16 /* per number and position */, NEXT_TRIES = 4 /* per number before sizes are skipped in growing steps */, MAX_TRIES_THOROUGH = 60 };
enum { MAX_MISFITS = 8 /* invalid texts before the first valid one: then the rest is given up */ };

struct numbers { i64 v[MAX_NUMBERS]; u32 n; };

static i64 collect(void *user, i64 v, i64 place)
{
    struct numbers *x = user;
    u32 i = 0;
    while (i < x->n && x->v[i] < v) i++;
    if (v < LEAST || x->n == MAX_NUMBERS || (i < x->n && x->v[i] == v)) return v;
    memmove(&x->v[i + 1], &x->v[i], (x->n - i) * sizeof *x->v);
    x->v[i] = v, x->n++;
    return v;
}

struct swap {
    i64 from, to;
    i64 place;   /* -1: anywhere */
    i64 product; /* product of the number and another one, as heads times their length, adjusted with it; 0: none */
};

static i64 swap_number(void *user, i64 v, i64 place)
{
    const struct swap *s = user;
    if (s->product && v == s->product) return v / s->from * s->to;
    return v == s->from && (s->place < 0 || s->place == place) ? s->to : v;
}

static bool has_number(const struct numbers *x, i64 v)
{
    u32 i = 0;
    while (i < x->n && x->v[i] != v) i++;
    return i < x->n;
}

/* Iterations of a loop or grid: none, one, or more. */
static u64 trips_of(const struct kir *k, const struct kir_ins *x)
{
    i64 from = 0, to;
    if (x->op != KI_LOOP && x->op != KI_GRID) return 0;
    if (x->op == KI_GRID) return kir_is_const(k, x->a, &to) ? 1 + (u64)(to > 1) : 3;
    i64 step = kir_at(k, x->c)->imm.i;
    return kir_is_const(k, x->a, &from) && kir_is_const(k, x->b, &to) ? 1 + (u64)(to > from + step) : 3;
}

/* Counts of loops, branches, accesses and float arithmetic by depth, which do not depend on sizes
   while all parts of the schedule are present. all: their numbers; kinds: which ones occur. */
static int by_number(const void *a, const void *b)
{
    u64 x = *(const u64 *)a, y = *(const u64 *)b;
    return (x > y) - (x < y);
}

struct exact_structure exact_structure_of(const struct kir *k)
{
    struct exact_structure s = {0};
    struct arena a = {0};
    u64 *all = arena_array(&a, u64, k->ins.n);
    u32 depth = 0, n = 0;
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        char cls = kir_op_info(x->op)->cls;
        if (x->op == KI_END) depth--;
        if (cls != 'P' || (dtype_is_float(x->dtype) && x->op != KI_CONST)) {
            u64 w[3] = {x->op | x->dtype << 8 | x->lanes << 16 | (u64)x->aux << 24, depth, trips_of(k, x)};
            all[n++] = hash_u64(w, sizeof w);
        }
        if (kir_opens(x->op)) depth++;
    }
    qsort(all, n, sizeof *all, by_number);
    for (u32 i = 0; i < n; i++) {
        s.all += all[i];
        if (!i || all[i] != all[i - 1]) s.kinds += all[i];
    }
    arena_release(&a);
    return s;
}

struct reducer {
    const struct exact_reduce_opts *o;
    struct exact_variant *now;
    bool only_kinds;         /* counts may differ */
    bool is_thorough;        /* skips no size */
    u32 n_tasks;             /* valid tasks for the current number */
    bool is_size;            /* smaller values of the current number make the task cheaper */
    u32 n_tries, n_all_tries; /* kernels generated for the current number; for all */
    /* texts whose kernels have another structure */
    struct { struct tried { u64 text; bool has_kinds; } v[MAX_ALL_TRIES + 1]; u32 n; } tried;
    i64 n_steps;             /* cost of generating them, in steps of the interpreter */
};

static bool parts_fit(const struct graph *g)
{
    i64 from, whole, own;
    for (value_id v = 1; v < g->value.n; v++) {
        const struct value *x = graph_value(g, v);
        if (x->part.whole && sym_is_const(g->sym, x->part.from, &from) && sym_is_const(g->sym, x->part.whole, &whole) &&
            sym_is_const(g->sym, x->shape.dim[x->part.axis], &own) && from + own > whole)
            return false;
    }
    return true;
}

bool exact_sizes_fit(const struct task *t, const i64 *var) { return check_positive(t, var) && !sym_fact_broken(t->g.sym, var); }

void exact_variant_close(struct exact_variant *v)
{
    if (v) arena_release(&v->arena);
    mem_free(v);
}

i64 *exact_sizes(struct symtab *t, const i64 guess[2], struct arena *a)
{
    bool *fixed = arena_array(a, bool, t->var.n + 1);
    i64 *var = arena_array(a, i64, t->var.n + 1);
    for (u32 v = 0; v < t->var.n; v++) var[v] = guess[v % 2];
    sym_fact_adjust(t, var, fixed);
    return var;
}

/* Accepts a task that is cheaper than the current one and legal for the schedule. */
static bool variant_open(struct exact_variant *new, struct reducer *x, struct str text)
{
    const struct exact_reduce_opts *o = x->o;
    struct err e = {0};
    symtab_init(&new->sym, &new->arena);
    if (!task_parse(&new->task, &new->arena, &new->sym, text, &e) || !parts_fit(&new->task.g)) return false;
    x->n_tasks++;
    new->var = exact_sizes(&new->sym, o->guess, &new->arena);
    if (!exact_sizes_fit(&new->task, new->var)) return false;
    x->is_size = !x->now || cost_of(new) < cost_of(x->now);
    return x->is_size && gen_matches(o->cand->gen, &new->task, o->caps) && gen_legal(o->cand, &new->task, o->caps);
}

/* A number that occurs at one position only yields the same text with and without the position. */
static bool was_tried(const struct reducer *x, u64 hash)
{
    for (u32 i = 0; i < x->tried.n; i++)
        if (x->tried.v[i].text == hash) return !x->only_kinds || !x->tried.v[i].has_kinds;
    return false;
}

/* Whether the candidate's kernel for this text has the same structure. */
static bool reducer_take(struct reducer *x, struct str text)
{
    const struct exact_reduce_opts *o = x->o;
    u64 hash = hash_u64(text.p, text.n);
    if (was_tried(x, hash)) return false;
    struct exact_variant *new = mem_alloc((i64)sizeof *new);
    struct err e = {0};
    bool ok = variant_open(new, x, text);
    x->n_tries += ok, x->n_all_tries += ok;
    ok = ok && gen_kernel(&new->kernel, &new->arena, o->cand, &new->task, o->caps, &e);
    if (ok) {
        struct exact_structure s = exact_structure_of(&new->kernel.kir);
        x->n_steps += 64 * (i64)new->kernel.kir.ins.n;
        bool has_kinds = s.kinds == o->structure.kinds;
        ok = has_kinds && (x->only_kinds || s.all == o->structure.all);
        if (!ok && x->tried.n < countof(x->tried.v)) x->tried.v[x->tried.n++] = (struct tried){hash, has_kinds};
    }
    exact_variant_close(ok ? x->now : new);
    if (ok) x->now = new;
    return ok;
}

/* Sizes below `from`, ascending, congruent modulo possible tile sizes: small powers of two, and
   products of up to three parameters of the schedule, with and without the vector width. */
struct sizes { i64 v[1 << 14]; u32 n; };

static int by_size(const void *a, const void *b)
{
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x > y) - (x < y);
}

static void sizes_modulo(struct sizes *s, i64 from, i64 block)
{
    for (i64 n = 0; n <= 5; n++) {
        i64 to = from % block + n * block;
        if (to >= 2 && to < from && s->n < countof(s->v)) s->v[s->n++] = to;
    }
}

static void sizes_below(struct sizes *s, i64 from, const struct candidate *c)
{
    static const i64 lanes[] = {1, 2, 8, 16};
    i64 p[MAX_SCHED + 1] = {1}, n = 1;
    s->n = 0;
    for (u32 i = 0; i < c->gen->n_param; i++) {
        bool known = c->sched.v[i] < 2;
        for (i64 j = 0; j < n && !known; j++) known = p[j] == c->sched.v[i];
        if (!known) p[n++] = c->sched.v[i];
    }
    for (i64 block = 8; block <= 256; block *= 2) sizes_modulo(s, from, block);
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j <= i; j++)
            for (i64 k = 0; k <= j; k++)
                for (u32 l = 0; l < countof(lanes); l++) {
                    i64 block = p[i] * p[j] * p[k] * lanes[l];
                    if (block > 1 && block < from) sizes_modulo(s, from, block);
                }
    qsort(s->v, s->n, sizeof *s->v, by_size);
    u32 kept = 0;
    for (u32 i = 0; i < s->n; i++)
        if (!kept || s->v[kept - 1] != s->v[i]) s->v[kept++] = s->v[i];
    s->n = kept;
}

/* Returns the number's new value: about the least valid one. how: except `to`. */
static i64 reduce_number(struct reducer *x, struct sizes *s, struct swap how)
{
    sizes_below(s, how.from, x->o->cand);
    x->n_tries = x->n_tasks = 0;
    x->is_size = true;
    u32 most = x->is_thorough ? MAX_TRIES_THOROUGH : MAX_TRIES;
    for (u32 i = 0; i < s->n && x->n_tries < most && x->n_all_tries < MAX_ALL_TRIES; i += x->is_thorough ? 1 : 1u << x->n_tries / NEXT_TRIES) {
        struct buf text = {0};
        how.to = s->v[i];
        rewrite(&text, x->now->task.text, swap_number, &how);
        bool same = str_eq(buf_view(&text), x->now->task.text), ok = !same && reducer_take(x, buf_view(&text));
        buf_release(&text);
        if (ok) return how.to;
        if (same || !x->is_size || (!x->n_tasks && i >= MAX_MISFITS)) break; /* larger values do not make it cheaper, either */
    }
    return how.from;
}

static void numbers_of(struct numbers *all, const struct task *t)
{
    struct buf none = {0};
    *all = (struct numbers){0};
    rewrite(&none, t->text, collect, all);
    buf_release(&none);
}

/* Reduces it together with a product of it and another number. */
static i64 reduce_with_product(struct reducer *x, struct sizes *s, i64 from)
{
    struct numbers all;
    numbers_of(&all, &x->now->task);
    i64 to = from;
    for (u32 i = 0; i < all.n && to == from; i++)
        if (all.v[i] % from == 0 && all.v[i] > from && has_number(&all, all.v[i] / from))
            to = reduce_number(x, s, (struct swap){.from = from, .place = -1, .product = all.v[i]});
    return to;
}

/* Reduces a number at all its positions, then at each position alone. */
static void reduce(struct reducer *x, double most)
{
    struct numbers all;
    struct arena a = {0};
    struct sizes *s = arena_new(&a, struct sizes);
    numbers_of(&all, &x->now->task);
    while (all.n && cost_of(x->now) > most) {
        i64 from = all.v[--all.n], to = reduce_number(x, s, (struct swap){.from = from, .place = -1});
        if (to == from) to = reduce_with_product(x, s, from);
        for (i64 place = 0; place < 5 && cost_of(x->now) > most; place++) reduce_number(x, s, (struct swap){.from = to, .place = place});
    }
    arena_release(&a);
}

struct exact_variant *exact_reduce(const struct exact_reduce_opts *o, const struct task *t, i64 *n_steps)
{
    struct reducer d = {.o = o};
    if (!reducer_take(&d, t->text)) return NULL;
    reduce(&d, o->most);
    d.only_kinds = exact_work(&d.now->task, d.now->var) > o->may;
    if (d.only_kinds) reduce(&d, o->most);
    d.is_thorough = exact_work(&d.now->task, d.now->var) > o->limit;
    if (d.is_thorough) reduce(&d, o->limit);
    *n_steps += d.n_steps;
    return d.now;
}
