// SPDX-License-Identifier: Apache-2.0
//
// conformance.c: conformance tests of a device run in child processes, because drivers crash and
// hang. A child tests ranges of cases, one kernel per range, and reports its position. It halves a
// range that the language or the driver rejects, down to single cases; the parent does so with a
// range in which the child crashes or hangs. The findings are cached by device, driver, toolchain
// and build of this library.
//
// Consequences: operations with a second definition are replaced (kir_avoid), subgroups and DOT are
// removed from the target's features, and kernels that need any other failing operation are
// rejected with its name. A second run tests whether that helps: compilers recognise some second
// definitions and emit the same instruction for them, and functions that are expanded (sin) are
// right as soon as the operations of their expansion are.
#include "tune/conformance.h"

#include <stdio.h>
#include <string.h>

enum { REVISION = 2 /* of the cases */, MAX_TEXT = 160, MAX_CHILDREN = 64 };
static const double range_seconds = 30; /* building a kernel, and the first start of a driver */

struct range {
    u32 from, to;
};

struct ranges { /* a stack: the next range is the last one */
    struct range *v;
    u32 n, cap;
};

struct message { /* RANGE: a range begins; RESULT: of a case */
    u8 kind, status;
    struct range range;
    u32 at;
    char text[MAX_TEXT];
};

enum { MSG_RANGE, MSG_RESULT, MSG_END };

struct session {
    const struct device_target *t;
    const struct conform_case *v;
    struct ranges todo;
    struct dev *dev; /* in the child */
    int fd;
};

/* The child. */

static void send(const struct session *s, struct message m) { os_child_put(s->fd, &m, sizeof m); }

static void set_text(struct message *m, struct str text)
{
    if (text.n) memcpy(m->text, text.p, (size_t)i64_min(text.n, MAX_TEXT - 1));
}

static void send_result(const struct session *s, u32 at, enum conform_status st, struct str text)
{
    struct message m;
    memset(&m, 0, sizeof m);
    m.kind = MSG_RESULT, m.status = (u8)st, m.at = at;
    set_text(&m, text);
    send(s, m);
}

static i64 arg_bytes(const struct conform_kernel *k, u32 i)
{
    return k->arg[i].n * dtype_size(kir_dtype(&k->kir, k->kir.buf.v[i].id));
}

static bool upload_all(struct session *s, struct conform_kernel *k, struct dev_mem *mem, struct err *e)
{
    const struct dev_driver *d = s->t->driver;
    for (u32 i = 0; i < k->n_arg; i++)
        if (!d->alloc(s->dev, arg_bytes(k, i), &mem[i], e) || !d->upload(s->dev, mem[i], k->arg[i].p, arg_bytes(k, i), e)) return false;
    return true;
}

static bool download_all(struct session *s, struct conform_kernel *k, const struct dev_mem *mem, void **got, struct err *e)
{
    for (u32 i = 0; i < k->n_arg; i++) {
        got[i] = arena_alloc(&k->arena, arg_bytes(k, i) + 64);
        if (!s->t->driver->download(s->dev, mem[i], got[i], arg_bytes(k, i), e)) return false;
    }
    return true;
}

/* Downloads all arguments after the launch. */
static bool run(struct session *s, struct conform_kernel *k, struct str binary, void **got, struct err *e)
{
    const struct dev_driver *d = s->t->driver;
    struct dev_mem mem[countof(k->arg)] = {0};
    i64 grid[1][3] = {{k->n_grid, 1, 1}}, param[1] = {k->rounds};
    struct dev_kernel *kernel = d->load(s->dev, binary, k->kir.name, 1, e);
    if (!kernel) return false;
    struct dev_launch l = {.kernel = kernel,
                           .buf = mem,
                           .n_buf = k->n_arg,
                           .param = param,
                           .n_param = k->kir.param.n,
                           .grid = (const i64(*)[3])grid,
                           .n_grid = 1};
    bool ok = upload_all(s, k, mem, e) && d->launch(s->dev, &l, e) && d->fence(s->dev, e) && download_all(s, k, mem, got, e);
    for (u32 i = 0; i < k->n_arg; i++)
        if (mem[i].size) d->release(s->dev, &mem[i]);
    d->unload(s->dev, kernel);
    return ok;
}

static bool build(struct session *s, struct conform_kernel *k, struct buf *binary, struct err *e)
{
    struct buf text = {0};
    bool ok = kir_verify(&k->kir, e) && lang_render(&text, s->t->lang, &k->kir, s->t->caps, &k->arena, e) &&
              s->t->lang->build(binary, buf_view(&text), s->t->caps, range_seconds, e);
    buf_release(&text);
    return ok;
}

static bool interpret(struct conform_kernel *k, struct err *e)
{
    i64 param[1] = {k->rounds};
    return kir_eval(&k->kir, k->arg, param, &(struct kir_eval_opts){.seed = 1}, e);
}

static void compare(const struct session *s, const struct conform_kernel *k, u32 from, void *const *got)
{
    for (u32 i = 0; i < k->n; i++) {
        struct buf why = {0};
        u32 n = conform_compare(k, s->t->caps, i, got, &why);
        if (n > 1) buf_printf(&why, " (and %u more)", n - 1);
        send_result(s, from + i, n ? CONFORM_WRONG : CONFORM_OK, buf_view(&why));
        buf_release(&why);
    }
}

static void test_range(struct session *s, struct range r)
{
    struct conform_kernel k;
    struct message m;
    void *got[countof(k.arg)];
    struct buf binary = {0};
    struct err e = {0};
    memset(&m, 0, sizeof m);
    m.kind = MSG_RANGE, m.range = r;
    send(s, m);
    conform_build(&k, s->t->caps, s->v + r.from, r.to - r.from);
    bool ok = build(s, &k, &binary, &e) && run(s, &k, buf_view(&binary), got, &e) && interpret(&k, &e);
    if (ok) compare(s, &k, r.from, got);
    else if (r.to - r.from == 1) send_result(s, r.from, CONFORM_REFUSED, str_of(e.msg));
    buf_release(&binary);
    arena_release(&k.arena);
    if (ok || r.to - r.from == 1) return;
    u32 mid = r.from + (r.to - r.from) / 2;
    test_range(s, (struct range){r.from, mid});
    test_range(s, (struct range){mid, r.to});
}

static void child_main(void *user, int fd)
{
    struct session *s = user;
    struct err e = {0};
    struct message m;
    s->fd = fd;
    s->dev = s->t->driver->open(s->t->opts, &e);
    memset(&m, 0, sizeof m);
    m.kind = MSG_END, m.status = CONFORM_REFUSED;
    set_text(&m, str_of(e.msg));
    if (s->dev) {
        for (u32 i = s->todo.n; i-- > 0;) test_range(s, s->todo.v[i]);
        s->t->driver->close(s->dev);
        m.status = CONFORM_OK;
    }
    send(s, m);
}

/* The parent. */

static void note(struct conformance *x, const struct session *s, u32 at, enum conform_status st, struct str why, struct arena *a)
{
    struct buf name = {0};
    if (st == CONFORM_OK) return;
    conform_print(&name, &s->v[at]);
    *(arr_push(a, &x->found)) =
        (struct conform_finding){.what = s->v[at], .status = st, .name = str_dup(a, buf_view(&name)), .why = str_dup(a, why)};
    buf_release(&name);
}

static void push(struct ranges *r, struct arena *a, u32 from, u32 to)
{
    if (from < to) *(arr_push(a, r)) = (struct range){from, to};
}

/* Removes the cases finished before the child failed within range r, and halves r. */
static void skip_failed(struct conformance *x, struct session *s, struct range r, const char *how, struct arena *a)
{
    while (s->todo.n && s->todo.v[s->todo.n - 1].to <= r.from) s->todo.n--;
    if (s->todo.n) {
        u32 end = s->todo.v[--s->todo.n].to;
        push(&s->todo, a, r.to, end);
    }
    if (r.to - r.from == 1) {
        note(x, s, r.from, CONFORM_CRASH, str_of(how), a);
        return;
    }
    u32 mid = r.from + (r.to - r.from) / 2;
    push(&s->todo, a, mid, r.to);
    push(&s->todo, a, r.from, mid);
}

/* Runs one child. false: the device cannot be opened. */
static bool run_child(struct conformance *x, struct session *s, struct arena *a, struct err *e)
{
    struct os_child c;
    struct message m;
    struct range now = {0, 0};
    if (!os_child_start(&c, child_main, s, e)) return false;
    enum os_exit how = os_child_get(&c, &m, sizeof m, 2 * range_seconds);
    for (; how == OS_EXITED && m.kind != MSG_END; how = os_child_get(&c, &m, sizeof m, 2 * range_seconds)) {
        m.text[MAX_TEXT - 1] = 0;
        if (m.kind == MSG_RANGE) now = m.range;
        else if (m.at < x->n_cases) note(x, s, m.at, (enum conform_status)m.status, str_of(m.text), a);
    }
    os_child_end(&c);
    if (how == OS_EXITED) {
        s->todo.n = 0;
        return m.status == CONFORM_OK || err_set(e, ERR_FAILED, "%s", m.text);
    }
    if (now.to == now.from) return err_set(e, ERR_SYSTEM, "the driver %s when it was opened", how == OS_TIMEOUT ? "hung" : "crashed");
    skip_failed(x, s, now, how == OS_TIMEOUT ? "does not end" : "crashes", a);
    return true;
}

static bool run_cases(struct conformance *x, const struct device_target *t, const struct conform_case *v, u32 n, struct arena *a, struct err *e)
{
    struct session s = {.t = t, .v = v};
    x->n_cases = n;
    struct ranges in_order = {0};
    for (u32 from = 0; from < n;) {
        u32 to = from + 1;
        while (to < n && conform_together(s.v + from, to + 1 - from)) to++;
        push(&in_order, a, from, to);
        from = to;
    }
    for (u32 i = in_order.n; i-- > 0;) push(&s.todo, a, in_order.v[i].from, in_order.v[i].to);
    for (u32 i = 0; s.todo.n; i++) {
        if (i == MAX_CHILDREN) return err_set(e, ERR_FAILED, "the driver fails %d times", MAX_CHILDREN);
        if (!run_child(x, &s, a, e)) return false;
    }
    return true;
}

/* The second run. */

/* Whether a word of the list, with its mark, covers the operation: itself, or the operator with any
   second operand ("mul:f32" covers "mul:f32=0"). */
static bool says(struct str word, const char *mark, struct str name)
{
    struct str general, constant;
    if (!str_starts(word, str_of(mark))) return false;
    word = str_sub(word, (i64)strlen(mark), word.n);
    return str_eq(word, name) || (str_cut(name, '=', &general, &constant) && str_eq(word, general));
}

/* Adds a word with a mark before it. false: the list is full. */
static bool add_word(struct caps *c, const char *mark, struct str name)
{
    struct str list = str_of(c->avoid), word;
    while (list.n) {
        str_cut(list, ' ', &word, &list);
        if (says(word, mark, name)) return true;
    }
    i64 n = (i64)strlen(c->avoid), size = (i64)sizeof c->avoid;
    if (n + (i64)strlen(mark) + name.n + 2 > size) return false;
    snprintf(c->avoid + n, (size_t)(size - n), "%s%s%.*s", n ? " " : "", mark, STR_ARG(name));
    return true;
}

static bool has_definition(const struct conform_case *x)
{
    if (x->form == CONFORM_LOOP) return x->t == DT_I64 || x->t == DT_U64;
    bool is_zero = x->form == CONFORM_CONST && (x->op == KI_DIV || x->op == KI_MUL || x->op == KI_ADD) && dtype_is_float(x->t) &&
                   x->constant < 2; /* both zeros come first */
    return is_zero || kir_can_avoid(x->op, x->t, x->to);
}

static bool is_same_case(const struct conform_case *p, const struct conform_case *q)
{
    return p->op == q->op && p->t == q->t && p->to == q->to && p->form == q->form && p->constant == q->constant;
}

static bool is_found(const struct conformance *x, const struct conform_case *c)
{
    for (u32 i = 0; i < x->found.n; i++)
        if (is_same_case(&x->found.v[i].what, c)) return true;
    return false;
}

/* If this run fails as a whole, no finding has a replacement. */
static void find_ways(struct conformance *x, const struct device_target *t, struct arena *a)
{
    struct caps c = *t->caps;
    struct device_target other = *t;
    struct conformance again = {0};
    struct conform_case *v = arena_array(a, struct conform_case, x->found.n + 1);
    struct err e = {0};
    u32 n = 0;
    for (u32 i = 0; i < x->found.n; i++) {
        struct conform_finding *f = &x->found.v[i];
        if (f->what.form == CONFORM_SUBGROUP) continue;
        f->way = has_definition(&f->what) ? CONFORM_REPLACED : CONFORM_CURED;
        if (f->way == CONFORM_REPLACED) add_word(&c, "", f->name);
        v[n++] = f->what;
    }
    other.caps = &c;
    bool ok = run_cases(&again, &other, v, n, a, &e);
    for (u32 i = 0; i < x->found.n; i++)
        if (!ok || is_found(&again, &x->found.v[i].what)) x->found.v[i].way = CONFORM_LACKING;
}

static bool run_all(struct conformance *x, const struct device_target *t, struct arena *a, struct err *e)
{
    struct conform_case *v;
    double start = os_now();
    u32 n = conform_list(a, t->caps, &v);
    if (!run_cases(x, t, v, n, a, e)) return false;
    if (x->found.n) find_ways(x, t, a);
    x->seconds = os_now() - start;
    return true;
}

/* The cache: a line with the number of all cases, then a line per finding: status, consequence,
   case, reason. */

static struct hash key_of(const struct device_target *t)
{
    struct buf b = {0};
    struct hash own = {0};
    os_build_id(&own);
    buf_printf(&b, "conformance %d %llx\n%s\n%.*s\n%.*s\n", REVISION, (unsigned long long)own.lo, t->driver->name, STR_ARG(t->fingerprint),
               STR_ARG(t->toolchain));
    caps_print(&b, t->caps);
    struct hash h = hash_bytes(b.p, b.n);
    buf_release(&b);
    return h;
}

static void remember(const struct conformance *x, const struct device_target *t, const struct cache *c)
{
    struct buf b = {0};
    buf_printf(&b, "%u\n", x->n_cases);
    for (u32 i = 0; i < x->found.n; i++) {
        const struct conform_finding *f = &x->found.v[i];
        buf_printf(&b, "%d %d %d %d %d %d %u ", f->status, f->way, f->what.op, f->what.t, f->what.to, f->what.form, f->what.constant);
        for (i64 k = 0; k < f->why.n; k++) buf_char(&b, f->why.p[k] == '\n' ? ' ' : f->why.p[k]);
        buf_char(&b, '\n');
    }
    cache_put(c, key_of(t), buf_view(&b));
    buf_release(&b);
}

static bool take_number(struct str *line, i64 most, i64 *v)
{
    struct str word;
    return str_cut(*line, ' ', &word, line) && str_to_i64(word, v) && *v >= 0 && *v < most;
}

static bool recall_line(struct conformance *x, struct str line, struct arena *a)
{
    i64 v[7];
    const i64 most[7] = {CONFORM_CRASH + 1, N_CONFORM_WAYS, N_KIR_OPS, N_DTYPES, N_DTYPES, CONFORM_SUBGROUP + 1, 1000};
    for (i64 i = 0; i < countof(v); i++)
        if (!take_number(&line, most[i], &v[i])) return false;
    struct conform_finding f = {.status = (enum conform_status)v[0], .way = (enum conform_way)v[1], .why = line};
    f.what = (struct conform_case){(enum kir_op)v[2], (enum dtype)v[3], (enum dtype)v[4], (enum conform_form)v[5], (u32)v[6]};
    struct buf name = {0};
    conform_print(&name, &f.what);
    f.name = str_dup(a, buf_view(&name));
    buf_release(&name);
    *(arr_push(a, &x->found)) = f;
    return true;
}

static bool recall(struct conformance *x, const struct device_target *t, const struct cache *c, struct arena *a)
{
    struct str text, line;
    i64 n;
    if (!cache_get(c, key_of(t), a, &text) || !str_cut(text, '\n', &line, &text) || !str_to_i64(line, &n)) return false;
    x->n_cases = (u32)n;
    while (str_cut(text, '\n', &line, &text))
        if (!recall_line(x, line, a)) return *x = (struct conformance){0}, false;
    return x->is_known = true;
}

bool conform_device(struct conformance *x, const struct device_target *t, enum conform_when when, struct arena *a, struct err *e)
{
    struct cache c;
    *x = (struct conformance){0};
    if (dev_is_described(t->opts)) return err_set(e, ERR_USAGE, "device '%s' is only described and cannot run programs", t->driver->name);
    cache_open(&c, "devices", a, t->log);
    if (when != CONFORM_AGAIN && recall(x, t, &c, a)) return true;
    if (when == CONFORM_KNOWN) return err_set(e, ERR_NOTHING, "device '%s' was not tested yet", t->driver->name);
    if (!run_all(x, t, a, e)) return false;
    remember(x, t, &c);
    return true;
}

/* Consequences. */

void conform_apply(struct caps *c, const struct conformance *x)
{
    for (u32 i = 0; i < x->found.n; i++) {
        const struct conform_finding *f = &x->found.v[i];
        const char *mark = f->way == CONFORM_LACKING && has_definition(&f->what) ? "!" : "";
        if (f->what.form == CONFORM_SUBGROUP) c->has_subgroup = false;
        else if (f->way != CONFORM_CURED && !add_word(c, mark, f->name)) {
            /* The list is full: the type has too many errors to be used. */
            if (f->what.t == DT_F64) c->has_f64 = false;
            if (f->what.t == DT_I64 || f->what.t == DT_U64) c->has_i64 = false;
        }
    }
}

void conform_report(struct buf *b, const struct conformance *x)
{
    static const char *const what[] = {"right", "wrong", "refused", "crash"};
    static const char *const ways[] = {"kernels that need it are refused", "done by other operations", "right when others are replaced"};
    for (u32 i = 0; i < x->found.n; i++) {
        const struct conform_finding *f = &x->found.v[i];
        const char *then = f->what.form == CONFORM_SUBGROUP ? "no kernel uses subgroups" : ways[f->way];
        buf_printf(b, "  %-8s %-16.*s %.*s; %s\n", what[f->status], STR_ARG(f->name), STR_ARG(f->why), then);
    }
}
