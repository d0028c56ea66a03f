// SPDX-License-Identifier: Apache-2.0
//
// Kernels are unchanged: kernels of the tasks and devices of hash_tasks.h under scattered schedules are hashed, without their names, and
// compared with test/golden/hashes/kernels.txt. A row of that file is a family, a column a task; a cell is the hash of all kernels that the family makes of
// the task, for all devices, with their schedules. The row "default" is of the schedules that the families begin with.
//
// Without arguments it is a test: of some tasks, with ALL=1 of all; with UPDATE=1 it writes the file anew, with UPDATE=some the cells of the tasks that it
// compares by default. Otherwise, for tool/kernel-hashes:
//
//   test_hashes show [TASK [DEVICE [FAMILY]]]   single kernels, a line each, in any order: task, device, candidate, hash (patterns with '*')
//   test_hashes text TASK [DEVICE [FAMILY]]     their text, too
//   test_hashes check LISTING [MAP]             kernels of such lines have the hashes that are said, those that MAP has ("old schedule -> new
//                                               schedule", a line each) by the new schedule
#include "hash_tasks.h"

#include "gen/tree.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DRAWS = 2,          /* random schedules of a family for a device, beside the least and the greatest */
    MAX_SCHEDULES = DRAWS + 3,
    STEP = SHARE ? 480 : 96, FIRST = SHARE ? 48 : 0, /* a run takes one task in so many, with sanitizers other
                                                        ones, */
    LEAST = SHARE ? 1 : 3, /* and at least so many of each family */
    KEY = 6, CELL = 5,  /* letters of a task's key, of a cell */
    WIDTH = 16,         /* tasks in a line of the file */
    MAX_FAMILIES = 64,  /* the default schedules are the last */
    MAX_WORKERS = 64,
    LISTED = 3,           /* tasks named for each family that has changed */
};
static const char path[] = "test/golden/hashes/kernels.txt", rows_path[] = "bench/graphs.txt";

/* A cell is 0 if the family matches the task on no device. */
struct cells { u64 v[MAX_FAMILIES]; u32 n; /* kernels */ };

enum { ROW_EQUAL, ROW_DIFFERS, ROW_REFUSED, ROW_UNKNOWN, N_ROWS }; /* comparison of a row of a listing */

struct shared { /* between workers */
    u32 next;
    u32 at[MAX_WORKERS]; /* 1 + the job of each; 0: none */
    u32 count[N_ROWS];
    struct cells cell[];
};

struct session {
    struct hash_tasks tasks;
    struct hash_devices devices;
    struct str *key;     /* "source/key" of each task */
    bool *is_taken;      /* of each task */
    u32 n_gen;
    struct shared *shared;
};

/* Hashes as text: letters of 6 bits. */
static void put_letters(struct buf *b, u64 h, u32 n)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    for (u32 i = 0; i < n; i++, h >>= 6) buf_char(b, letters[h & 63]);
}

static struct str key_of(struct arena *a, const struct hash_task *t)
{
    struct buf b = {0};
    buf_printf(&b, "%s/", t->source);
    put_letters(&b, hash_u64(t->text.p, t->text.n), KEY);
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

/* One kernel. */

static void print_pack(struct buf *b, const struct task *t, const struct kernel_arg *x)
{
    struct tensor like = {0}; /* its sizes */
    const struct shape *s = &graph_value(&t->g, x->v)->shape;
    like.rank = s->rank;
    for (u32 i = 0; i < s->rank; i++) like.dim[i] = gen_static(&t->g, s->dim[i], 1);
    pack_print(b, x->pack, t->g.sym, &like);
}

/* Its text under a neutral name, and its arguments' layouts. A rejected kernel has the reason as
   its text. */
static void print_kernel(struct buf *b, const struct task *t, const struct caps *caps, const struct candidate *c)
{
    struct arena a = {0};
    struct kernel k;
    struct err e = {0};
    if (gen_kernel(&k, &a, c, t, caps, &e)) {
        k.kir.name = S("kernel");
        kir_print(b, &k.kir);
        for (u32 i = 0; i < k.n_arg; i++) {
            buf_printf(b, "argument %u: value %u%s ", i, k.arg[i].v, k.arg[i].is_out ? " out" : "");
            if (k.arg[i].pack) print_pack(b, t, &k.arg[i]);
            buf_char(b, '\n');
        }
    } else buf_printf(b, "refused\n");
    arena_release(&a);
}

static u64 kernel_hash(const struct task *t, const struct caps *caps, const struct candidate *c)
{
    struct buf b = {0};
    print_kernel(&b, t, caps, c);
    u64 h = hash_u64(b.p, b.n);
    buf_release(&b);
    return h;
}

/* Schedules: the one that a family begins with, then the nearest to the least and to the greatest of all values, then random ones. */

struct schedules { struct candidate v[MAX_SCHEDULES]; u32 n; };

static void add_schedule(struct schedules *s, const struct candidate *c)
{
    for (u32 i = 1; i < s->n; i++) /* the default may be one of the others, whose kernels are hashed whatever it is */
        if (!memcmp(&s->v[i], c, sizeof *c)) return;
    s->v[s->n++] = *c;
}

static void choose_schedules(struct schedules *s, const struct gen *g, const struct task *t, const struct hash_device *d)
{
    struct buf name = {0};
    struct candidate c = gen_initial(g, t, &d->caps, NULL);
    buf_printf(&name, "%s %s %.*s", g->name, d->name, STR_ARG(t->text));
    struct rng r = rng_seed(hash_u64(name.p, name.n));
    buf_release(&name);
    *s = (struct schedules){0};
    add_schedule(s, &c);
    for (u32 k = 0; k < 2; k++) {
        c = (struct candidate){.gen = g};
        for (u32 i = 0; i < g->n_param; i++) c.sched.v[i] = g->param[i].values[k ? g->param[i].n - 1 : 0];
        if (gen_repair(&c, t, &d->caps)) add_schedule(s, &c);
    }
    struct gen_problem p;
    assert_true(gen_problem_open(&p, g, t, &d->caps, NULL));
    for (u32 k = 0; k < DRAWS; k++)
        if (gen_draw(&p, &r, &c.sched)) add_schedule(s, &c);
    gen_problem_close(&p);
}

/* A task is parsed again for each family and device, so that its symbol table is as new as for a
   tuned candidate. */
struct opened { struct arena a; struct symtab st; struct task t; };

static void open_task(struct opened *o, const struct hash_task *t)
{
    struct err e = {0};
    *o = (struct opened){0};
    symtab_init(&o->st, &o->a);
    if (!task_restore(&o->t, &o->a, &o->st, t->text, &e)) fail_msg("%s: %s\n%.*s", t->source, e.msg, STR_ARG(t->text));
}

static void close_task(struct opened *o) { arena_release(&o->a); }

/* The printed schedule: parameters only, because a family's revision is incremented for changes of
   other kernels, too. */
static void print_params(struct buf *b, const struct candidate *c)
{
    for (u32 i = 0; i < c->gen->n_param; i++) buf_printf(b, " %s=%d", c->gen->param[i].name, c->sched.v[i]);
}

static bool is_random(const struct hash_task *t) { return strncmp(t->source, "random/", 7) == 0; }

/* Of tasks that are random a quarter of the devices will do: which, the task decides. */
static bool is_device_taken(const struct hash_task *t, const struct hash_device *d)
{
    if (!is_random(t)) return true;
    u64 h = hash_u64(t->text.p, t->text.n) ^ hash_u64(d->name, (i64)strlen(d->name));
    return hash_u64(&h, sizeof h) % 4 == 0;
}

typedef void kernel_fn(void *user, const struct task *t, const struct hash_device *d, const struct candidate *c, bool is_default);

/* All kernels of a task, family by family for each device. */
static void each_kernel(const struct session *s, u32 task, kernel_fn *fn, void *user)
{
    const struct hash_task *from = &s->tasks.all.v[task];
    for (u32 d = 0; d < s->devices.all.n; d++) {
        const struct hash_device *dev = &s->devices.all.v[d];
        struct opened all;
        if (!is_device_taken(from, dev)) continue;
        open_task(&all, from);
        for (u32 g = 0; g < s->n_gen; g++) {
            struct opened o;
            struct schedules list;
            if (!gen_matches(gen_at(g), &all.t, &dev->caps)) continue;
            open_task(&o, from);
            choose_schedules(&list, gen_at(g), &o.t, dev);
            for (u32 i = 0; i < list.n; i++) fn(user, &o.t, dev, &list.v[i], i == 0);
            close_task(&o);
        }
        close_task(&all);
    }
}

static u32 family_at(const struct gen *g)
{
    u32 i = 0;
    while (gen_at(i) != g) i++;
    return i;
}

struct lines { struct buf row[MAX_FAMILIES]; u32 n, n_gen; };

static void add_line(void *user, const struct task *t, const struct hash_device *d, const struct candidate *c, bool is_default)
{
    struct lines *x = user;
    struct buf *b = &x->row[is_default ? x->n_gen : family_at(c->gen)];
    buf_printf(b, "%s %s", d->name, c->gen->name);
    print_params(b, c);
    buf_printf(b, ": %016llx\n", (unsigned long long)kernel_hash(t, &d->caps, c));
    x->n++;
}

static void hash_task(const struct session *s, u32 task, struct cells *to)
{
    struct lines x = {.n_gen = s->n_gen};
    each_kernel(s, task, add_line, &x);
    to->n = x.n;
    for (u32 i = 0; i <= s->n_gen; i++) {
        if (x.row[i].n) to->v[i] = hash_u64(x.row[i].p, x.row[i].n) | 1ull << 63;
        buf_release(&x.row[i]);
    }
}

/* All of them, by as many processes as there are processors, each of which takes the next when it is done. */

typedef void item_fn(struct session *s, u32 i, void *user);

struct workers { struct session *s; u32 n; item_fn *fn; void *user; };

static void work(const struct workers *w, u32 me)
{
    for (u32 i; (i = __atomic_fetch_add(&w->s->shared->next, 1, __ATOMIC_RELAXED)) < w->n;) {
        w->s->shared->at[me] = i + 1;
        w->fn(w->s, i, w->user);
    }
    w->s->shared->at[me] = 0;
}

/* -1, or the item at which a worker ended early. */
static i64 run_workers(const struct workers *w)
{
    u32 n = (u32)seeds_env("JOBS", (u64)os_n_cpus());
    pid_t pid[MAX_WORKERS];
    i64 broken = -1;
    n = n < 1 ? 1 : n > MAX_WORKERS ? MAX_WORKERS : n;
    w->s->shared->next = 0;
    fflush(stdout);
    for (u32 i = 0; i < n; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            work(w, i);
            fflush(stdout);
            _exit(0);
        }
    }
    for (u32 i = 0; i < n; i++) {
        int how = 0;
        if (pid[i] < 0 || waitpid(pid[i], &how, 0) != pid[i] || how != 0) broken = (i64)w->s->shared->at[i] - 1;
    }
    return broken;
}

static void hash_one(struct session *s, u32 i, void *user)
{
    if (s->is_taken[i]) hash_task(s, i, &s->shared->cell[i]);
}

static void session_open(struct session *s)
{
    *s = (struct session){0};
    map_init(&s->tasks.seen, &s->tasks.arena);
    while (gen_at(s->n_gen)) s->n_gen++;
    assert_true(s->n_gen < MAX_FAMILIES);
    hash_find_devices(&s->devices);
    hash_zoo(&s->tasks);
    hash_model(&s->tasks, "models/denoise.onnx");
    hash_rows(&s->tasks, rows_path);
    hash_data(&s->tasks);
    hash_fixtures(&s->tasks);
    hash_operators(&s->tasks);
    hash_attention(&s->tasks);
    hash_attention_grad(&s->tasks);
    s->key = arena_array(&s->tasks.arena, struct str, s->tasks.all.n);
    for (u32 i = 0; i < s->tasks.all.n; i++) s->key[i] = key_of(&s->tasks.arena, &s->tasks.all.v[i]);
    s->is_taken = arena_array(&s->tasks.arena, bool, s->tasks.all.n);
    size_t size = sizeof *s->shared + s->tasks.all.n * sizeof *s->shared->cell;
    s->shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s->shared != MAP_FAILED);
}

static void session_close(struct session *s)
{
    munmap(s->shared, sizeof *s->shared + s->tasks.all.n * sizeof *s->shared->cell);
    struct arena a = s->tasks.arena, d = s->devices.arena;
    arena_release(&a), arena_release(&d);
}

static const char *column_name(const struct session *s, u32 k) { return k < s->n_gen ? gen_at(k)->name : "default"; }

/* The file. */

static bool same_source(const struct session *s, u32 i, u32 k) { return !strcmp(s->tasks.all.v[i].source, s->tasks.all.v[k].source); }

/* "source/key" -> 1 when it came by; "source/key family" -> the cell's letters. */
struct golden {
    struct arena arena;
    struct map task, cell;
};

static void read_golden(struct golden *g)
{
    struct str text, line, word, source = {0}, key[WIDTH] = {{0}};
    struct err e = {0};
    *g = (struct golden){0};
    map_init(&g->task, &g->arena), map_init(&g->cell, &g->arena);
    if (!os_read(&g->arena, path, 1 << 26, &text, &e)) fail_msg("%s: UPDATE=1 makes it", e.msg);
    while (str_cut(text, '\n', &line, &text)) {
        if (line.n && line.p[0] != ' ') {
            source = line;
            continue;
        }
        struct str row, rest = str_sub(line, 1, line.n);
        bool more = str_cut(rest, ' ', &row, &rest);
        for (u32 i = 0; i < WIDTH && more; i++) {
            struct str left = rest;
            more = str_cut(left, ' ', &word, &rest);
            if (!more) word = left;
            if (str_is(row, "tasks")) key[i] = str_fmt(&g->arena, "%.*s/%.*s", STR_ARG(source), STR_ARG(word)), map_put(&g->task, key[i], 0);
            else if (!str_is(word, ".")) map_put(&g->cell, str_fmt(&g->arena, "%.*s %.*s", STR_ARG(key[i]), STR_ARG(row)), (u64)(uintptr_t)word.p);
        }
    }
}

/* A task's cell, of those that were not hashed the file's. true: it has letters. */
static bool put_cell(struct buf *b, const struct session *s, const struct golden *g, u32 i, u32 k)
{
    struct buf name = {0};
    u64 h = s->shared->cell[i].v[k];
    buf_printf(&name, "%.*s %s", STR_ARG(s->key[i]), column_name(s, k));
    const u64 *was = s->is_taken[i] ? NULL : map_get(&g->cell, buf_view(&name));
    buf_release(&name);
    if (was) buf_put(b, (const char *)(uintptr_t)*was, CELL);
    else if (h) put_letters(b, h, CELL);
    else buf_char(b, '.');
    return was || h;
}

static void print_row(struct buf *b, const struct session *s, const struct golden *g, u32 from, u32 to, u32 k)
{
    bool any = false;
    i64 begin = b->n;
    buf_printf(b, " %s", column_name(s, k));
    for (u32 i = from; i < to; i++) {
        buf_char(b, ' ');
        any |= put_cell(b, s, g, i, k);
    }
    buf_char(b, '\n');
    if (!any) b->n = begin;
}

static void write_file(const struct session *s, const struct golden *g)
{
    struct buf b = {0};
    struct err e = {0};
    for (u32 i = 0, to; i < s->tasks.all.n; i = to) {
        for (to = i + 1; to < s->tasks.all.n && to < i + WIDTH && same_source(s, i, to);) to++;
        buf_printf(&b, "%s\n tasks", s->tasks.all.v[i].source);
        for (u32 k = i; k < to; k++) {
            buf_char(&b, ' ');
            put_letters(&b, hash_u64(s->tasks.all.v[k].text.p, s->tasks.all.v[k].text.n), KEY);
        }
        buf_char(&b, '\n');
        for (u32 k = 0; k <= s->n_gen; k++) print_row(&b, s, g, i, to, k);
    }
    if (!os_write(path, b.p, b.n, &e)) fail_msg("%s", e.msg);
    print_message("%lld bytes of %s\n", (long long)b.n, path);
    buf_release(&b);
}

/* Further tasks, so many for each family: random ones, which are for fewer devices, spread evenly
   over those in the file. */
static void take_of_each(struct session *s, const struct golden *g)
{
    for (u32 k = 0; k < s->n_gen; k++) {
        struct arena a = {0};
        u32 *of = arena_array(&a, u32, s->tasks.all.n), n = 0;
        for (u32 i = 0; i < s->tasks.all.n; i++) {
            struct str cell = str_fmt(&a, "%.*s %s", STR_ARG(s->key[i]), gen_at(k)->name);
            if (str_starts(s->key[i], S("random/")) && map_get(&g->cell, cell)) of[n++] = i;
        }
        for (u32 i = 0; i < LEAST && n; i++) s->is_taken[of[(2 * i + 1) * n / (2 * LEAST)]] = true;
        arena_release(&a);
    }
}

struct difference { u32 n, n_new, n_gone, task[LISTED]; };

static void compare_cell(const struct session *s, const struct golden *g, u32 i, u32 k, struct difference *d)
{
    struct buf b = {0};
    u64 h = s->shared->cell[i].v[k];
    buf_printf(&b, "%.*s %s", STR_ARG(s->key[i]), column_name(s, k));
    const u64 *was = map_get(&g->cell, buf_view(&b));
    b.n = 0;
    put_letters(&b, h, CELL);
    bool same = h ? was && !memcmp((const char *)(uintptr_t)*was, b.p, CELL) : !was;
    buf_release(&b);
    if (same) return;
    if (d->n < LISTED) d->task[d->n] = i;
    d->n++, d->n_new += !was, d->n_gone += !h;
}

static void tell_difference(const struct session *s, u32 k, const struct difference *d)
{
    printf("%s: the kernels of %u tasks differ", column_name(s, k), d->n);
    if (d->n_new) printf(", %u of which it did not take", d->n_new);
    if (d->n_gone) printf(", %u of which it takes no longer", d->n_gone);
    for (u32 i = 0; i < d->n && i < LISTED; i++) printf("%s%.*s", i ? ", " : ": ", STR_ARG(s->key[d->task[i]]));
    printf("%s\n", d->n > LISTED ? " .." : "");
}

struct verdict { u32 n_tasks, n_kernels, n_unknown, n_lost, n_changed; };

static struct verdict compare_all(const struct session *s, struct golden *g)
{
    struct difference d[MAX_FAMILIES] = {{0}};
    struct verdict v = {0};
    for (u32 i = 0; i < s->tasks.all.n; i++) {
        bool is_known = map_get(&g->task, s->key[i]) != NULL;
        if (is_known) map_put(&g->task, s->key[i], 1);
        if (!s->is_taken[i]) continue;
        v.n_tasks++, v.n_kernels += s->shared->cell[i].n, v.n_unknown += !is_known;
        for (u32 k = 0; k <= s->n_gen && is_known; k++) compare_cell(s, g, i, k, &d[k]);
    }
    for (u32 i = 0; i < g->task.n; i++) v.n_lost += !g->task.v[i].val;
    for (u32 k = 0; k <= s->n_gen; k++) {
        if (d[k].n) tell_difference(s, k, &d[k]);
        v.n_changed += d[k].n;
    }
    return v;
}

/* Families without tested kernels. */
static void check_coverage(const struct session *s)
{
    for (u32 k = 0; k < s->n_gen; k++) {
        u32 n = 0;
        for (u32 i = 0; i < s->tasks.all.n; i++) n += s->shared->cell[i].v[k] != 0;
        if (n == 0) fail_msg("no task is for family '%s': add some to test/hash_tasks.h", gen_at(k)->name);
    }
}

static void test_kernels(void **state)
{
    struct session s;
    struct golden g = {0};
    const char *update = getenv("UPDATE");
    bool some = update && !strcmp(update, "some"), all = takes_all() || (update && !some);
    session_open(&s);
    if (some || !update) read_golden(&g);
    for (u32 i = 0; i < s.tasks.all.n; i++) s.is_taken[i] = all || i % STEP == FIRST;
    if (!all) take_of_each(&s, &g);
    i64 broken = run_workers(&(struct workers){&s, s.tasks.all.n, hash_one, NULL});
    if (broken >= 0) fail_msg("no kernel for a task of %.*s\n%.*s", STR_ARG(s.key[broken]), STR_ARG(s.tasks.all.v[broken].text));
    if (all) check_coverage(&s);
    if (update) {
        write_file(&s, &g);
        arena_release(&g.arena);
        read_golden(&g);
    }
    struct verdict v = compare_all(&s, &g);
    print_message("%u kernels of %u of %u tasks for %u devices\n", v.n_kernels, v.n_tasks, s.tasks.all.n, s.devices.all.n);
    if (v.n_unknown) print_message("%u of these tasks are not in %s yet\n", v.n_unknown, path);
    if (v.n_lost) print_message("%u tasks of %s are no longer there\n", v.n_lost, path);
    if (v.n_changed) fail_msg("kernels have changed: CONTRIBUTING.md, \"Kernel hashes\"");
    if (v.n_unknown * 10 > v.n_tasks) fail_msg("%s is old: CONTRIBUTING.md, \"Kernel hashes\"", path);
    arena_release(&g.arena);
    session_close(&s);
}

/* Single kernels. */

struct query { struct str task, device, family; bool text; struct str key; };

static void show_kernel(void *user, const struct task *t, const struct hash_device *d, const struct candidate *c, bool is_default)
{
    const struct query *w = user;
    struct buf b = {0};
    if (!str_glob(w->device, str_of(d->name)) || !str_glob(w->family, str_of(c->gen->name))) return;
    buf_printf(&b, "%.*s\t%s\t", STR_ARG(w->key), d->name);
    candidate_print(&b, c);
    buf_printf(&b, "\t%016llx\n", (unsigned long long)kernel_hash(t, &d->caps, c));
    if (w->text) print_kernel(&b, t, &d->caps, c);
    printf("%.*s", (int)b.n, b.p);
    buf_release(&b);
}

static void show_one(struct session *s, u32 i, void *user)
{
    struct query w = *(struct query *)user;
    w.key = s->key[i];
    if (str_glob(w.task, w.key)) each_kernel(s, i, show_kernel, &w);
}

/* Lines in any order, whole ones; texts by one process. */
static int show(struct session *s, struct query w)
{
    if (!w.text) setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    if (!w.text) return run_workers(&(struct workers){s, s->tasks.all.n, show_one, &w}) >= 0;
    for (u32 i = 0; i < s->tasks.all.n; i++) show_one(s, i, &w);
    return 0;
}

/* Comparison of a listing with the current kernels. */

struct listing {
    struct str text;
    struct map map;     /* schedule -> position of its new one in `to` */
    struct map task, device;
    struct { struct str *v; u32 n, cap; } line, to;
    struct arena arena;
    u32 *count;         /* shared: rows by comparison */
};

/* Schedules as of any revision: a listing may be of another one. */
static struct str without_revision(struct arena *a, struct str schedule)
{
    struct str family, rest, revision;
    if (!str_cut(str_trim(schedule), '.', &family, &rest)) return str_trim(schedule);
    if (!str_cut(rest, ' ', &revision, &rest)) return family;
    return str_fmt(a, "%.*s %.*s", STR_ARG(family), STR_ARG(rest));
}

static bool read_candidate(struct candidate *c, struct arena *a, struct str schedule, struct err *e)
{
    struct str family, rest = {0};
    if (!str_cut(schedule, ' ', &family, &rest)) family = schedule;
    const struct gen *g = gen_find(family);
    if (!g) return err_set(e, ERR_INPUT, "no family '%.*s'", STR_ARG(family));
    return candidate_parse(c, str_fmt(a, "%s.%u %.*s", g->name, g->revision, STR_ARG(rest)), e);
}

static u32 check_row(struct session *s, struct listing *x, struct str line, struct arena *a)
{
    struct str task, device, schedule, hash;
    struct opened o;
    struct candidate c;
    struct err e = {0};
    if (!str_cut(line, '\t', &task, &line) || !str_cut(line, '\t', &device, &line) || !str_cut(line, '\t', &schedule, &hash)) return ROW_UNKNOWN;
    const u64 *t = map_get(&x->task, task), *d = map_get(&x->device, device);
    if (!t || !d) return ROW_UNKNOWN;
    schedule = without_revision(a, schedule);
    const u64 *to = map_get(&x->map, schedule);
    const struct caps *caps = &s->devices.all.v[*d].caps;
    open_task(&o, &s->tasks.all.v[*t]);
    bool ok = read_candidate(&c, a, to ? x->to.v[*to] : schedule, &e) &&
              ((gen_matches(c.gen, &o.t, caps) && gen_legal(&c, &o.t, caps)) || err_set(&e, ERR_INPUT, "not legal"));
    u64 h = ok ? kernel_hash(&o.t, caps, &c) : 0;
    close_task(&o);
    u32 how = !ok ? ROW_REFUSED : str_is(str_trim(hash), str_fmt(a, "%016llx", (unsigned long long)h).p) ? ROW_EQUAL : ROW_DIFFERS;
    if (how != ROW_EQUAL)
        printf("%s: %.*s\t%.*s\t%.*s%s%.*s\n", ok ? "differs" : e.msg, STR_ARG(task), STR_ARG(device), STR_ARG(schedule), to ? " -> " : "",
               STR_ARG(to ? x->to.v[*to] : (struct str){0}));
    return how;
}

static void check_line(struct session *s, u32 i, void *user)
{
    struct listing *x = user;
    struct arena a = {0};
    __atomic_fetch_add(&x->count[check_row(s, x, x->line.v[i], &a)], 1, __ATOMIC_RELAXED);
    arena_release(&a);
}

static void read_map(struct listing *x, const char *file)
{
    struct str text, line;
    struct err e = {0};
    if (!file) return;
    if (!os_read(&x->arena, file, 1 << 30, &text, &e)) fail_msg("%s", e.msg);
    while (str_cut(text, '\n', &line, &text)) {
        i64 at = 0;
        while (at < line.n && !str_starts(str_sub(line, at, line.n), S(" -> "))) at++;
        if (at == line.n) continue;
        map_put(&x->map, without_revision(&x->arena, str_sub(line, 0, at)), x->to.n);
        *arr_push(&x->arena, &x->to) = without_revision(&x->arena, str_sub(line, at + 4, line.n));
    }
}

static int check(struct session *s, const char *file, const char *map)
{
    struct listing x = {0};
    struct err e = {0};
    struct str line;
    map_init(&x.map, &x.arena), map_init(&x.task, &x.arena), map_init(&x.device, &x.arena);
    if (!os_read(&x.arena, file, 1ll << 32, &x.text, &e)) fail_msg("%s", e.msg);
    read_map(&x, map);
    for (u32 i = 0; i < s->tasks.all.n; i++) map_put(&x.task, s->key[i], i);
    for (u32 i = 0; i < s->devices.all.n; i++) map_put(&x.device, str_of(s->devices.all.v[i].name), i);
    while (str_cut(x.text, '\n', &line, &x.text)) *arr_push(&x.arena, &x.line) = line;
    x.count = s->shared->count;
    i64 broken = run_workers(&(struct workers){s, x.line.n, check_line, &x});
    if (broken >= 0) printf("no kernel: %.*s\n", STR_ARG(x.line.v[broken]));
    printf("%u kernels: %u equal, %u differ, %u schedules are refused, %u of tasks or devices that are not there\n", x.line.n, x.count[ROW_EQUAL],
           x.count[ROW_DIFFERS], x.count[ROW_REFUSED], x.count[ROW_UNKNOWN]);
    int failed = broken >= 0 || x.count[ROW_EQUAL] < x.line.n;
    arena_release(&x.arena);
    return failed;
}

static int tool(int argc, char **argv)
{
    struct session s;
    const char *a[4] = {argv[1], argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL, argc > 4 ? argv[4] : NULL};
    bool shows = !strcmp(a[0], "show"), text = !strcmp(a[0], "text");
    if (!shows && (strcmp(a[0], "check") && !text)) a[1] = NULL;
    if (!a[1] && !shows) {
        fprintf(stderr, "usage: test_hashes [show [TASK [DEVICE [FAMILY]]] | text TASK [DEVICE [FAMILY]] | check LISTING [MAP]]\n");
        return 2;
    }
    session_open(&s);
    struct query w = {str_of(a[1] ? a[1] : "*"), str_of(a[2] ? a[2] : "*"), str_of(a[3] ? a[3] : "*"), text, {0}};
    int rc = shows || text ? show(&s, w) : check(&s, a[1], a[2]);
    session_close(&s);
    return rc;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels)};
    if (argc > 1) return tool(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
