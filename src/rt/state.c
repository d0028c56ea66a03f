// SPDX-License-Identifier: Apache-2.0
//
// States: the caches of a program in device memory, from one run to the next. A cache (outer axes, positions, inner axes) has either one
// buffer for `max` positions, into whose next rows the program writes (in place), or two dense ones, of which a run reads the one and writes
// the other. Positions are counted once for all caches; those without such an axis (recurrent states) only change their content.
#include "rt/rt_private.h"

#include <string.h>

struct cache {
    struct plan_state pair;
    i64 dim[MAX_RANK];     /* of one position; its axis is 1 */
    i64 outer, row;        /* product of the axes before the positions; bytes of a position's axes behind */
    struct dev_mem mem[2]; /* the second only if not in place */
    bool in_place;         /* the program has one buffer for both */
    u32 now;               /* which has the content */
};

struct rt_state {
    struct arena arena;
    struct rt_program *r;
    i64 max, length;
    struct cache *cache;
    u32 n;
};

static bool has_positions(const struct cache *c) { return c->pair.axis != PLAN_NO_AXIS; }
static bool is_in_place(const struct cache *c) { return c->in_place; }
static const struct plan_io *past(const struct rt_state *s, const struct cache *c) { return &program_plan(s->r)->input.v[c->pair.input]; }
static const struct plan_io *present(const struct rt_state *s, const struct cache *c) { return &program_plan(s->r)->output.v[c->pair.output]; }

/* Of the content: outer runs of so many bytes, so far apart. */
static i64 run_bytes(const struct cache *c, i64 length) { return has_positions(c) ? length * c->row : c->row; }
static i64 run_step(const struct rt_state *s, const struct cache *c, i64 length) { return is_in_place(c) && has_positions(c) ? s->max * c->row : run_bytes(c, length); }
static i64 mem_bytes(const struct rt_state *s, const struct cache *c) { return c->outer * run_bytes(c, s->max); }

static struct dev_mem slice(struct dev_mem m, i64 at, i64 n)
{
    if (m.host) m.host = (char *)m.host + at;
    m.offset += at;
    m.size = n;
    return m;
}

/* creation */

/* The values of variables that the caller names, and of those that the network's facts fix; all others are unknown. */
static bool read_sizes(const struct plan *p, const char *sizes, i64 *var, struct err *e)
{
    for (u32 v = 0; v < p->sym.var.n; v++) var[v] = INT64_MIN;
    for (u32 k = 0; k < p->sym.fact.n; k++) {
        const struct sym_fact *f = &p->sym.fact.v[k];
        const struct sym_node *a = &p->sym.node.v[f->a], *b = &p->sym.node.v[f->b];
        if (f->kind != FACT_EQUAL) continue;
        if (a->op == SYM_VAR) (void)sym_is_const(&p->sym, f->b, &var[a->a]);
        if (b->op == SYM_VAR) (void)sym_is_const(&p->sym, f->a, &var[b->a]);
    }
    return !sizes || sym_parse_sizes(&p->sym, sizes, var, e);
}

static bool size_cache(const struct rt_state *s, struct cache *c, const i64 *var, struct err *e)
{
    const struct plan *p = program_plan(s->r);
    const struct plan_io *io = past(s, c);
    i64 bytes;
    for (u32 d = 0; d < io->rank; d++) {
        c->dim[d] = 1;
        if (d == c->pair.axis) continue;
        if (!sym_is_const(&p->sym, io->dim[d], NULL) && !sym_eval(&p->sym, io->dim[d], var, &c->dim[d])) c->dim[d] = 1;
        if (sym_is_const(&p->sym, io->dim[d], NULL)) sym_is_const(&p->sym, io->dim[d], &c->dim[d]);
        if (c->dim[d] < 1) return err_set(e, ERR_USAGE, "size %lld on axis %u of cache '%.*s': it must be at least 1", (long long)c->dim[d], d, STR_ARG(io->name));
    }
    i64 all[MAX_RANK];
    memcpy(all, c->dim, sizeof all);
    if (has_positions(c)) all[c->pair.axis] = s->max;
    if (!tensor_size_ok(io->dtype, io->rank, all, &bytes) || bytes > INT64_MAX / 4)
        return err_set(e, ERR_USAGE, "%lld positions are too many for cache '%.*s'", (long long)s->max, STR_ARG(io->name));
    c->outer = has_positions(c) ? i64_product(c->pair.axis, c->dim) : 1;
    c->row = i64_product(io->rank, c->dim) / c->outer * dtype_size(io->dtype);
    return true;
}

static bool allocate(struct rt_state *s, struct err *e)
{
    struct dev *d = program_dev(s->r);
    for (u32 k = 0; k < s->n; k++)
        for (u32 i = 0; i < (is_in_place(&s->cache[k]) ? 1u : 2u); i++)
            if (!d->driver->alloc(d, i64_max(mem_bytes(s, &s->cache[k]), 1), &s->cache[k].mem[i], e))
                return err_prefix(e, "cache '%.*s' for %lld positions", STR_ARG(past(s, &s->cache[k])->name), (long long)s->max);
    return true;
}

static struct rt_state *state_alloc(struct rt_program *r, i64 max, u32 n)
{
    struct arena a = {0};
    struct rt_state *s = arena_new(&a, struct rt_state);
    *s = (struct rt_state){.r = r, .max = max, .cache = arena_array(&a, struct cache, n + 1), .n = n};
    s->arena = a;
    return s;
}

static bool find_caches(struct rt_state *s, const char *sizes, struct err *e)
{
    const struct plan *p = program_plan(s->r);
    struct arena *tmp = program_scratch(s->r);
    struct plan_state *v = arena_array(tmp, struct plan_state, p->input.n + 1);
    i64 *var = arena_array(tmp, i64, p->sym.var.n + 1);
    s->n = plan_find_states(p, v);
    s->cache = arena_array(&s->arena, struct cache, s->n + 1);
    if (!s->n)
        return err_set(e, ERR_UNSUPPORTED, "program '%.*s' has no caches: no output has the name of an input with 'present' instead of 'past', its type, and its shape "
                       "but for one axis", STR_ARG(p->model));
    if (!read_sizes(p, sizes, var, e)) return false;
    for (u32 k = 0; k < s->n; k++) {
        s->cache[k] = (struct cache){.pair = v[k], .in_place = plan_is_in_place(p, &v[k])};
        if (!size_cache(s, &s->cache[k], var, e)) return false;
    }
    return true;
}

struct rt_state *rt_state_new(struct rt_program *p, i64 max, const char *sizes, struct err *e)
{
    if (max < 1) {
        err_set(e, ERR_USAGE, "a state for %lld positions: it needs at least 1", (long long)max);
        return NULL;
    }
    struct rt_state *s = state_alloc(p, max, 0);
    if (find_caches(s, sizes, e) && allocate(s, e)) return s;
    rt_state_free(s);
    return NULL;
}

void rt_state_free(struct rt_state *s)
{
    if (!s) return;
    struct dev *d = program_dev(s->r);
    for (u32 k = 0; k < s->n; k++)
        for (u32 i = 0; i < 2; i++)
            if (s->cache[k].mem[i].size) d->driver->release(d, &s->cache[k].mem[i]);
    struct arena a = s->arena;
    arena_release(&a);
}

i64 rt_state_length(const struct rt_state *s) { return s->length; }
i64 rt_state_max(const struct rt_state *s) { return s->max; }

i64 rt_state_bytes(const struct rt_state *s)
{
    i64 sum = 0;
    for (u32 k = 0; k < s->n; k++) sum += s->cache[k].mem[0].size + s->cache[k].mem[1].size;
    return sum;
}

u32 rt_state_output(const struct rt_state *s, u32 input)
{
    for (u32 k = 0; k < s->n; k++)
        if (s->cache[k].pair.input == input) return s->cache[k].pair.output;
    return UINT32_MAX;
}

u32 rt_state_input(const struct rt_state *s, u32 output)
{
    for (u32 k = 0; k < s->n; k++)
        if (s->cache[k].pair.output == output) return s->cache[k].pair.input;
    return UINT32_MAX;
}

/* running */

/* The shape of a cache's input at this length. */
static void describe(const struct rt_state *s, const struct cache *c, i64 length, struct tensor *t)
{
    const struct plan_io *io = past(s, c);
    *t = (struct tensor){.dtype = io->dtype, .rank = io->rank};
    memcpy(t->dim, c->dim, sizeof t->dim);
    if (has_positions(c)) t->dim[c->pair.axis] = length;
}

/* The length after a run with these inputs; all caches grow alike. */
static bool next_length(const struct rt_state *s, const i64 *var, i64 *length, struct err *e)
{
    const struct plan *p = program_plan(s->r);
    bool known = false;
    *length = s->length;
    for (u32 k = 0; k < s->n; k++) {
        const struct cache *c = &s->cache[k];
        i64 n;
        if (!has_positions(c)) continue;
        if (!sym_eval(&p->sym, present(s, c)->dim[c->pair.axis], var, &n))
            return err_set(e, ERR_UNSUPPORTED, "the length of '%.*s' does not follow from the inputs' shapes", STR_ARG(present(s, c)->name));
        if (n < s->length || (known && n != *length))
            return err_set(e, ERR_UNSUPPORTED, "'%.*s' has %lld positions after this run, other caches %lld: a state needs caches that grow alike", STR_ARG(present(s, c)->name),
                           (long long)n, (long long)*length);
        known = true;
        *length = n;
    }
    return true;
}

/* Binds the caches to the program's next run. Nothing has been run or written. */
static bool bind(struct rt_state *s, struct tensor *in, i64 *length, struct err *e)
{
    const struct plan *p = program_plan(s->r);
    struct arena *tmp = program_scratch(s->r);
    arena_reset(tmp);
    i64 *var = arena_array(tmp, i64, p->sym.var.n + 1);
    for (u32 k = 0; k < s->n; k++) describe(s, &s->cache[k], s->length, &in[s->cache[k].pair.input]);
    plan_bind(p, in, NULL, var);
    if (!next_length(s, var, length, e)) return false;
    if (*length > s->max)
        return err_set(e, ERR_INPUT, "%lld positions and %lld new ones are more than the state's maximum, %lld: create it for more, or truncate it", (long long)s->length,
                       (long long)(*length - s->length), (long long)s->max);
    for (u32 k = 0; k < s->n; k++) {
        struct cache *c = &s->cache[k];
        if (c->pair.room != UINT32_MAX) program_give(s->r, c->pair.room, s->max - *length);
        program_pin(s->r, past(s, c)->buf, c->mem[c->now]);
        if (!is_in_place(c)) program_pin(s->r, present(s, c)->buf, c->mem[!c->now]);
    }
    return true;
}

static void unbind(struct rt_state *s)
{
    for (u32 k = 0; k < s->n; k++) {
        struct cache *c = &s->cache[k];
        if (c->pair.room != UINT32_MAX) program_give(s->r, c->pair.room, 0);
        program_pin(s->r, past(s, c)->buf, (struct dev_mem){0});
        program_pin(s->r, present(s, c)->buf, (struct dev_mem){0});
    }
}

bool rt_state_output_dims(struct rt_state *s, struct tensor *in, struct tensor *out, struct err *e)
{
    i64 length;
    bool ok = bind(s, in, &length, e) && rt_output_dims(s->r, in, out, e);
    unbind(s);
    return ok;
}

bool rt_state_run(struct rt_state *s, struct tensor *in, struct tensor *out, struct arena *a, struct err *e)
{
    i64 length;
    for (u32 k = 0; k < s->n; k++) out[s->cache[k].pair.output].data = NULL;
    bool ok = bind(s, in, &length, e) && rt_run(s->r, in, out, a, e);
    unbind(s);
    if (!ok) return false;
    s->length = length;
    for (u32 k = 0; k < s->n; k++)
        if (!is_in_place(&s->cache[k])) s->cache[k].now = !s->cache[k].now;
    return true;
}

/* content */

static bool copy_runs(struct rt_state *s, const struct cache *c, struct dev_mem to, i64 to_step, struct dev_mem from, i64 from_step, i64 n, struct err *e)
{
    struct dev *d = program_dev(s->r);
    for (i64 i = 0; i < c->outer && n; i++)
        if (!dev_copy(d, slice(to, i * to_step, n), slice(from, i * from_step, n), n, e)) return false;
    return true;
}

struct rt_state *rt_state_clone(struct rt_state *s, struct err *e)
{
    struct dev *d = program_dev(s->r);
    struct rt_state *to = state_alloc(s->r, s->max, s->n);
    to->length = s->length;
    for (u32 k = 0; k < s->n; k++) {
        to->cache[k] = s->cache[k];
        to->cache[k].now = 0;
        memset(to->cache[k].mem, 0, sizeof to->cache[k].mem);
    }
    bool ok = allocate(to, e);
    for (u32 k = 0; k < s->n && ok; k++) {
        struct cache *c = &s->cache[k];
        i64 step = run_step(s, c, s->length);
        ok = copy_runs(s, c, to->cache[k].mem[0], step, c->mem[c->now], step, run_bytes(c, s->length), e);
    }
    if (ok && d->driver->fence(d, e)) return to;
    rt_state_free(to);
    return NULL;
}

/* Recurrent states cannot be wound back, but emptied. */
static bool check_length(const struct rt_state *s, i64 length, struct err *e)
{
    if (length < 0 || length > s->length)
        return err_set(e, ERR_USAGE, "a state of %lld positions cannot be truncated to %lld", (long long)s->length, (long long)length);
    for (u32 k = 0; k < s->n; k++)
        if (!has_positions(&s->cache[k]) && length && length < s->length)
            return err_set(e, ERR_UNSUPPORTED, "cache '%.*s' has no positions that could be removed: fork or save the state where it shall be continued",
                           STR_ARG(past(s, &s->cache[k])->name));
    return true;
}

static bool clear(struct rt_state *s, const struct cache *c, struct err *e)
{
    struct dev *d = program_dev(s->r);
    i64 n = mem_bytes(s, c);
    void *zero = mem_aligned(i64_max(n, 1));
    bool ok = zero ? d->driver->fence(d, e) && d->driver->upload(d, c->mem[c->now], zero, n, e) : err_set(e, ERR_SYSTEM, "not enough memory to empty a state");
    mem_free(zero);
    return ok;
}

bool rt_state_truncate(struct rt_state *s, i64 length, struct err *e)
{
    struct dev *d = program_dev(s->r);
    if (!check_length(s, length, e)) return false;
    for (u32 k = 0; k < s->n; k++) {
        struct cache *c = &s->cache[k];
        if (!has_positions(c) && !length && !clear(s, c, e)) return false;
        if (!has_positions(c) || is_in_place(c) || length == s->length) continue;
        i64 n = run_bytes(c, length); /* dense runs become shorter */
        if (!copy_runs(s, c, c->mem[!c->now], n, c->mem[c->now], run_bytes(c, s->length), n, e) || !d->driver->fence(d, e)) return false;
    }
    for (u32 k = 0; k < s->n; k++)
        if (has_positions(&s->cache[k]) && !is_in_place(&s->cache[k]) && length != s->length) s->cache[k].now = !s->cache[k].now;
    s->length = length;
    return true;
}

/* as bytes: a head that follows from program, sizes and length, the caches' dense contents, and a hash of all before */

static void put_u64(struct buf *b, u64 x)
{
    for (u32 i = 0; i < 8; i++) buf_char(b, (char)(x >> (8 * i)));
}

static u64 get_u64(const char *p)
{
    u64 x = 0;
    for (u32 i = 0; i < 8; i++) x |= (u64)(u8)p[i] << (8 * i);
    return x;
}

static void put_text(struct buf *b, struct str s)
{
    put_u64(b, (u64)s.n);
    buf_str(b, s);
}

static const struct str magic = {"quern state 1\n\n\n", 16};
enum { HASH_BYTES = 16, LENGTH_AT = 16, MODEL_AT = 24 };

static void put_hash(struct buf *b, const void *p, i64 n)
{
    struct hash h = hash_bytes(p, n);
    put_u64(b, h.lo), put_u64(b, h.hi);
}

static void put_head(struct buf *b, const struct rt_state *s, i64 length)
{
    buf_str(b, magic);
    put_u64(b, (u64)length);
    put_text(b, program_plan(s->r)->model);
    put_u64(b, s->n);
    for (u32 k = 0; k < s->n; k++) {
        struct tensor t;
        describe(s, &s->cache[k], length, &t);
        put_text(b, past(s, &s->cache[k])->name);
        put_text(b, str_of(dtype_name(t.dtype)));
        put_u64(b, t.rank);
        for (u32 d = 0; d < t.rank; d++) put_u64(b, (u64)t.dim[d]);
    }
}

static bool put_content(struct rt_state *s, const struct cache *c, struct buf *b, struct err *e)
{
    struct dev *d = program_dev(s->r);
    i64 n = run_bytes(c, s->length), step = run_step(s, c, s->length);
    void *copy = mem_aligned(i64_max(n, 1));
    bool ok = copy || err_set(e, ERR_SYSTEM, "not enough memory to save a state");
    for (i64 i = 0; i < c->outer && n && ok; i++) {
        ok = d->driver->download(d, slice(c->mem[c->now], i * step, n), copy, n, e);
        if (ok) buf_put(b, copy, n);
    }
    mem_free(copy);
    return ok;
}

bool rt_state_write(struct rt_state *s, struct buf *b, struct err *e)
{
    struct dev *d = program_dev(s->r);
    i64 from = b->n;
    bool ok = d->driver->fence(d, e);
    put_head(b, s, s->length);
    for (u32 k = 0; k < s->n && ok; k++) ok = put_content(s, &s->cache[k], b, e);
    if (ok && !b->failed) put_hash(b, b->p + from, b->n - from);
    return ok && (!b->failed || (mem_check(e, "saving a state", S("")) && err_set(e, ERR_UNSUPPORTED, "the state is larger than 2 GiB")));
}

/* Through the host: the programs may have different devices. */
static bool carry(struct rt_state *to, const struct cache *x, struct rt_state *from, const struct cache *y, struct err *e)
{
    struct dev *d = program_dev(from->r), *t = program_dev(to->r);
    i64 n = run_bytes(y, from->length);
    void *copy = mem_aligned(i64_max(n, 1));
    bool ok = copy || err_set(e, ERR_SYSTEM, "not enough memory to copy a state");
    for (i64 i = 0; i < y->outer && n && ok; i++)
        ok = d->driver->download(d, slice(y->mem[y->now], i * run_step(from, y, from->length), n), copy, n, e) &&
             t->driver->upload(t, slice(x->mem[x->now], i * run_step(to, x, from->length), n), copy, n, e);
    mem_free(copy);
    return ok;
}

bool rt_state_copy(struct rt_state *to, struct rt_state *from, struct err *e)
{
    struct dev *d = program_dev(from->r), *t = program_dev(to->r);
    struct buf a = {0}, b = {0};
    if (from->length > to->max)
        return err_set(e, ERR_USAGE, "the state has %lld positions, more than the other one's maximum, %lld: create it for more", (long long)from->length, (long long)to->max);
    put_head(&a, to, from->length), put_head(&b, from, from->length);
    bool same = str_eq(buf_view(&a), buf_view(&b)), ok = same && d->driver->fence(d, e) && t->driver->fence(t, e);
    buf_release(&a), buf_release(&b);
    if (!same) return err_set(e, ERR_USAGE, "the states are of different networks, or of caches of different sizes");
    for (u32 k = 0; k < to->n && ok; k++) ok = carry(to, &to->cache[k], from, &from->cache[k], e);
    if (ok) to->length = from->length;
    return ok;
}

static i64 content_bytes(const struct rt_state *s, i64 length)
{
    i64 sum = 0;
    for (u32 k = 0; k < s->n; k++) sum += s->cache[k].outer * run_bytes(&s->cache[k], length);
    return sum;
}

/* The head is the one that this state would have at that length. */
static bool check_head(const struct rt_state *s, struct str bytes, i64 length, i64 *head, struct err *e)
{
    struct buf want = {0};
    put_head(&want, s, length);
    *head = want.n;
    bool same = bytes.n >= want.n && str_eq(str_sub(bytes, 0, want.n), buf_view(&want));
    buf_release(&want);
    return same || err_set(e, ERR_INPUT, "the state was saved by another network than '%.*s', or for caches of other sizes", STR_ARG(program_plan(s->r)->model));
}

static bool check_bytes(const struct rt_state *s, struct str bytes, i64 *length, i64 *head, struct err *e)
{
    if (bytes.n < MODEL_AT + HASH_BYTES || !str_eq(str_sub(bytes, 0, magic.n), magic)) return err_set(e, ERR_INPUT, "not a saved state");
    struct buf hash = {0};
    put_hash(&hash, bytes.p, bytes.n - HASH_BYTES);
    bool same = str_eq(buf_view(&hash), str_sub(bytes, bytes.n - HASH_BYTES, bytes.n));
    buf_release(&hash);
    if (!same) return err_set(e, ERR_INPUT, "the saved state is damaged: its content does not match its hash");
    u64 n = get_u64(bytes.p + LENGTH_AT);
    if (n > (u64)s->max)
        return err_set(e, ERR_INPUT, "the saved state has %llu positions, more than this one's maximum, %lld: create it for more", (unsigned long long)n, (long long)s->max);
    *length = (i64)n;
    return check_head(s, bytes, *length, head, e) &&
           (bytes.n - *head - HASH_BYTES == content_bytes(s, *length) || err_set(e, ERR_INPUT, "the saved state does not have its size"));
}

bool rt_state_read(struct rt_state *s, struct str bytes, struct err *e)
{
    struct dev *d = program_dev(s->r);
    i64 length = 0, at = 0;
    if (!check_bytes(s, bytes, &length, &at, e) || !d->driver->fence(d, e)) return false;
    for (u32 k = 0; k < s->n; k++) {
        struct cache *c = &s->cache[k];
        i64 n = run_bytes(c, length), step = run_step(s, c, length);
        for (i64 i = 0; i < c->outer && n; i++, at += n)
            if (!d->driver->upload(d, slice(c->mem[c->now], i * step, n), bytes.p + at, n, e)) return false;
    }
    s->length = length;
    return true;
}
