// SPDX-License-Identifier: Apache-2.0
//
// quern verify --suite DIR: every case DIR/*/model.onnx is compiled and run on its test_data_set_*,
// and compared with the outputs stored there. Cases run in chunks in parallel child processes, so
// that a case that crashes or hangs is one failure and the rest continues; the parent prints the
// lines in order of the names. Kernels are built once per chunk, through a database in memory.
//
// Quern compiles for known operations: inputs that decide sizes (target shapes, axes, pads) become
// constants if the network cannot be compiled otherwise: first integers after the first input, then
// all after the first, then all. The number of elements of sequence inputs is passed to the import.
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 24, LINE = 600, MAX_JOBS = 16, MAX_SETS = 100 };
enum freeze { FREEZE_NONE, FREEZE_INTS, FREEZE_REST, FREEZE_ALL, N_FREEZE };
enum verdict { V_NONE, V_PASS, V_FAIL, V_UNSUPPORTED };

struct result {
    enum verdict verdict;
    char why[LINE];
};

/* one case, in the child */

struct one {
    struct cli *c;
    quern_db *db;
    const char *dir;
    struct tensors in, want; /* each element of a sequence separately */
    char elements[2048];     /* numbers of elements of the inputs, for the model */
    bool has_lists;          /* among the outputs */
    bool is_random; /* the model generates random numbers: only types and shapes can be compared */
    struct result *r;
};

static bool say(struct one *o, enum verdict v, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool say(struct one *o, enum verdict v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    o->r->verdict = v;
    vsnprintf(o->r->why, LINE, fmt, ap);
    va_end(ap);
    for (char *s = o->r->why; *s; s++)
        if (*s == '\n' || *s == '\r') *s = ' ';
    return false;
}

/* The case's name precedes the reason, which need not repeat its path. */
static const char *reason(const struct one *o)
{
    const char *msg = quern_error(o->c->q), *rest = strstr(msg, "': ");
    size_t n = strlen(o->dir);
    return msg[0] == '\'' && !strncmp(msg + 1, o->dir, n) && msg[1 + n] == '/' && rest ? rest + 3
                                                                                       : msg;
}

static bool say_status(struct one *o, quern_status s)
{
    return say(o, s == QUERN_UNSUPPORTED ? V_UNSUPPORTED : V_FAIL, "%s", reason(o));
}

/* Kind of the k-th file, as declared by the network. */
static struct quern_file_value value_of(struct one *o, bool is_output, int k)
{
    char path[4096];
    struct quern_file_value v = QUERN_OPTS(quern_file_value);
    snprintf(path, sizeof path, "%s/model.onnx", o->dir);
    if (quern_file_value(o->c->q, path, is_output, k, &v)) v.kind = QUERN_TENSOR;
    return v;
}

/* Appends the tensors of a file. */
static quern_status read_file(struct one *o, bool is_output, int k, const char *path, struct tensors *t)
{
    struct quern_file_value v = value_of(o, is_output, k);
    size_t len = strlen(o->elements);
    int n;
    if (v.kind == QUERN_TENSOR) {
        quern_status s = quern_tensor_read(o->c->q, path, &t->v[t->n]);
        t->n += !s;
        return s;
    }
    quern_status s = quern_tensors_read(o->c->q, path, v.kind, t->v + t->n, MAX_IO - t->n, &n);
    if (s) return s;
    if (n > 0) t->n += n;
    if (is_output) o->has_lists = true;
    else if (n < 0) snprintf(o->elements + len, sizeof o->elements - len, "%s:none,", v.name);
    else snprintf(o->elements + len, sizeof o->elements - len, "%s:%d,", v.name, n);
    return QUERN_OK;
}

static bool read_tensors(struct one *o, const char *set, bool is_output, struct tensors *t)
{
    char path[4096];
    struct stat st;
    const char *kind = is_output ? "output" : "input";
    for (int k = 0; k < MAX_IO && t->n < MAX_IO; k++) {
        snprintf(path, sizeof path, "%s/%s_%d.pb", set, kind, k);
        if (stat(path, &st)) return true;
        if (read_file(o, is_output, k, path, t)) /* strings: not usable by any network */
            return say(o, V_UNSUPPORTED, "%s_%d.pb: %s", kind, k, reason(o));
    }
    return say(o, V_UNSUPPORTED, "more than %d %ss", MAX_IO, kind);
}

static bool is_int(const quern_tensor *t)
{
    static const quern_dtype other[] = {QUERN_F32, QUERN_F16, QUERN_F64, QUERN_BF16, QUERN_BOOL, QUERN_F8E4M3FN, QUERN_F8E4M3FNUZ,
                                        QUERN_F8E5M2, QUERN_F8E5M2FNUZ, QUERN_F8E8M0, QUERN_F6E2M3, QUERN_F6E3M2, QUERN_F4E2M1};
    for (size_t k = 0; k < sizeof other / sizeof *other; k++)
        if (quern_tensor_dtype(t) == other[k]) return false;
    return true;
}

static bool is_frozen(enum freeze f, const quern_tensor *t, int k)
{
    switch (f) {
    case FREEZE_NONE: return false;
    case FREEZE_INTS: return k > 0 && is_int(t);
    case FREEZE_REST: return k > 0;
    case FREEZE_ALL: return true;
    case N_FREEZE:
    default: return false;
    }
}

/* Files of bfloat16 tensors declare uint16: the same
 * bits with the type that the network declares. */
static quern_status as_type(struct one *o, quern_tensor **t, quern_dtype d)
{
    quern_tensor *v = NULL;
    if (d != QUERN_BF16 || quern_tensor_dtype(*t) != QUERN_U16) return QUERN_OK;
    quern_status s = quern_tensor_new(o->c->q, d, quern_tensor_rank(*t), quern_tensor_dims(*t),
                                      quern_tensor_data(*t), &v);
    if (s) return s;
    quern_tensor_free(*t);
    *t = v;
    return QUERN_OK;
}

static void print_shape(char *out, size_t size, const quern_tensor *t)
{
    size_t n = (size_t)snprintf(out, size, "type %d (", (int)quern_tensor_dtype(t));
    for (int d = 0; d < quern_tensor_rank(t) && n < size; d++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", d ? "," : "",
                              (long long)quern_tensor_dims(t)[d]);
    if (n < size) snprintf(out + n, size - n, ")");
}

static bool compare(struct one *o, struct tensors *got)
{
    for (int k = 0; k < got->n && k < o->want.n; k++) {
        struct quern_check x = {0};
        quern_dtype d = quern_tensor_dtype(got->v[k]);
        bool half = d == QUERN_F16 || d == QUERN_BF16;
        double rtol = opts_number(o->c, "rtol", half ? 1e-2 : 1e-3),
               atol = opts_number(o->c, "atol", half ? 1e-3 : 1e-6);
        quern_status s = as_type(o, &o->want.v[k], d);
        if (!s) s = quern_tensor_check(o->c->q, got->v[k], o->want.v[k], rtol, atol, &x);
        if (s) {
            char g[120], w[120];
            print_shape(g, sizeof g, got->v[k]);
            print_shape(w, sizeof w, o->want.v[k]);
            return say(o, V_FAIL, "output %d: %s: %s instead of %s", k, quern_error(o->c->q), g, w);
        }
        if (x.n_bad && !o->is_random)
            return say(o, V_FAIL, "output %d: %lld of %lld wrong, by %g at most", k,
                       (long long)x.n_bad, (long long)x.count, x.max_abs);
    }
    return true;
}

/* Inputs that were not frozen keep their order. Sets *again if one does
   not have the shape that the network declares, which may not matter. */
static bool run_compiled(struct one *o, quern_program *p, enum freeze f, bool *again)
{
    quern_tensor *in[MAX_IO];
    struct tensors got = {.n = quern_program_outputs(p)};
    int n = 0;
    for (int k = 0; k < o->in.n; k++)
        if (!is_frozen(f, o->in.v[k], k)) {
            if (n < quern_program_inputs(p) &&
                as_type(o, &o->in.v[k], quern_program_input_dtype(p, n)))
                return say_status(o, QUERN_FAILED);
            in[n++] = o->in.v[k];
        }
    if (got.n > MAX_IO) return say(o, V_UNSUPPORTED, "more than %d outputs", MAX_IO);
    if (got.n < o->want.n || (o->has_lists && got.n > o->want.n))
        return say(o, V_FAIL, "%d outputs instead of %d", got.n, o->want.n);
    quern_status s = quern_run(p, in, n, got.v, got.n);
    *again = s == QUERN_INPUT;
    bool ok = s ? say_status(o, s) : compare(o, &got);
    tensors_release(&got);
    return ok;
}

/* Sets *again if other inputs should become constants. */
static bool run_frozen(struct one *o, enum freeze f, bool *again)
{
    char path[4096];
    quern_tensor *content[MAX_IO] = {0};
    struct quern_model_opts mo = QUERN_OPTS(quern_model_opts);
    struct quern_compile_opts co = QUERN_OPTS(quern_compile_opts);
    quern_model *m = NULL;
    quern_program *p = NULL;
    for (int k = 0; k < o->in.n; k++)
        if (is_frozen(f, o->in.v[k], k)) content[k] = o->in.v[k];
    mo.constants = content;
    mo.n_constants = f == FREEZE_NONE ? 0 : o->in.n;
    mo.elements = o->elements;
    co.threads = 1;
    co.untuned = 1;
    co.device = opts_text(o->c, "device");
    snprintf(path, sizeof path, "%s/model.onnx", o->dir);
    quern_status s = quern_model_open(o->c->q, path, &mo, &m);
    if (!s) o->is_random = quern_model_is_random(m);
    if (!s) s = quern_compile(m, o->db, &co, &p);
    *again = s == QUERN_UNSUPPORTED || s == QUERN_INPUT;
    bool ok = s ? say_status(o, s) : run_compiled(o, p, f, again);
    quern_program_close(p);
    quern_model_close(m);
    return ok;
}

static const char *freeze_text(enum freeze f)
{
    switch (f) {
    case FREEZE_INTS: return "(integer inputs as constants)";
    case FREEZE_REST: return "(all inputs but the first as constants)";
    case FREEZE_ALL: return "(all inputs as constants)";
    case FREEZE_NONE:
    case N_FREEZE:
    default: return "";
    }
}

static bool run_set(struct one *o, const char *set)
{
    bool again = true, ok = false;
    struct result first = {0};
    o->elements[0] = 0, o->has_lists = false;
    if (read_tensors(o, set, false, &o->in) && read_tensors(o, set, true, &o->want))
        for (enum freeze f = FREEZE_NONE; f < N_FREEZE && !ok && again; f++) {
            ok = run_frozen(o, f, &again);
            if (ok) say(o, V_PASS, "%s", o->is_random ? "(random: types and shapes)" : freeze_text(f));
            if (f == FREEZE_NONE) first = *o->r;
        }
    if (!ok && again && first.verdict)
        *o->r = first; /* constants did not help: report the first reason */
    tensors_release(&o->in);
    tensors_release(&o->want);
    return ok;
}

static void run_case(struct one *o)
{
    char set[4096];
    struct stat st;
    int n = 0;
    for (; n < MAX_SETS; n++) {
        snprintf(set, sizeof set, "%s/test_data_set_%d", o->dir, n);
        if (stat(set, &st)) break;
        if (!run_set(o, set)) return;
    }
    if (!n) say(o, V_UNSUPPORTED, "no test_data_set_0");
}

/* the suite, in the parent */

struct job {
    pid_t pid;   /* 0: idle */
    int fd;      /* results are read from there */
    int at, end; /* its current case, and the end of its chunk */
    double since;
    size_t n_bytes; /* bytes of a result received so far */
    struct result part;
};

struct suite {
    struct cli *c;
    const char *dir;
    char **name;
    struct result *result;
    int n, n_taken, n_printed;
    struct job job[MAX_JOBS];
    int n_jobs;
    int count[V_UNSUPPORTED + 1];
};

static void work(struct suite *s, int from, int to, int fd)
{
    char dir[4096];
    struct quern_opts qo = QUERN_OPTS(quern_opts);
    s->c->q = quern_open(&qo);
    quern_db *db = NULL;
    quern_db_open(s->c->q, ":memory:", &db);
    for (int i = from; i < to; i++) {
        struct result r = {0};
        struct one o = {.c = s->c, .db = db, .dir = dir, .r = &r};
        snprintf(dir, sizeof dir, "%s/%s", s->dir, s->name[i]);
        run_case(&o);
        if (write(fd, &r, sizeof r) != (ssize_t)sizeof r)
            _exit(1); /* less than PIPE_BUF: atomic */
    }
    _exit(0);
}

static bool start(struct suite *s, struct job *j)
{
    int fd[2];
    if (pipe(fd)) return false;
    fflush(stdout);
    j->pid = fork();
    if (j->pid == 0) {
        close(fd[0]);
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        stop_unwatch();
        work(s, j->at, j->end, fd[1]);
    }
    close(fd[1]);
    j->fd = fd[0];
    j->since = now();
    j->n_bytes = 0;
    if (j->pid > 0) return true;
    close(fd[0]);
    j->pid = 0;
    return false;
}

static void print_line(struct suite *s, int i)
{
    static const char *const word[] = {"FAIL", "pass", "FAIL", "unsupported"};
    const struct result *r = &s->result[i];
    s->count[r->verdict]++;
    if (opts_flag(s->c, "json", false)) {
        printf("{\"case\":");
        json_text(s->name[i]);
        printf(",\"result\":\"%s\",\"why\":", word[r->verdict]);
        json_text(r->why);
        puts("}");
    } else {
        printf("%s %s%s%s\n", word[r->verdict], s->name[i], *r->why ? " " : "", r->why);
    }
}

static void settle(struct job *j, struct suite *s, const struct result *r)
{
    s->result[j->at++] = *r;
    j->since = now();
    j->n_bytes = 0;
    while (s->n_printed < s->n && s->result[s->n_printed].verdict) print_line(s, s->n_printed++);
    fflush(stdout);
}

/* The child has ended: its current case failed, unless its chunk was complete. */
static void reap(struct suite *s, struct job *j, bool timed_out)
{
    int status = 0;
    struct result r = {.verdict = V_FAIL};
    kill(-j->pid, SIGKILL);
    waitpid(j->pid, &status, 0);
    close(j->fd);
    j->pid = 0;
    if (j->at >= j->end) return;
    if (timed_out) snprintf(r.why, LINE, "exceeded the time limit");
    else if (WIFSIGNALED(status)) snprintf(r.why, LINE, "crashed: %s", strsignal(WTERMSIG(status)));
    else snprintf(r.why, LINE, "ended without a result");
    settle(j, s, &r);
}

static void listen_to(struct suite *s, struct job *j)
{
    ssize_t n = read(j->fd, (char *)&j->part + j->n_bytes, sizeof j->part - j->n_bytes);
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) {
        reap(s, j, false);
        return;
    }
    j->n_bytes += (size_t)n;
    if (j->n_bytes == sizeof j->part) settle(j, s, &j->part);
}

static bool feed(struct suite *s)
{
    for (int k = 0; k < s->n_jobs; k++) {
        struct job *j = &s->job[k];
        if (j->pid) continue;
        if (j->at >= j->end) {
            int n = (s->n - s->n_taken) / s->n_jobs + 1; /* smaller chunks near the end */
            j->at = s->n_taken;
            j->end = s->n_taken +=
                n < CHUNK ? (n < s->n - s->n_taken ? n : s->n - s->n_taken) : CHUNK;
        }
        if (j->at < j->end && !start(s, j)) return false;
    }
    return true;
}

/* Asked to stop: unfinished cases have no result. */
static void give_up(struct suite *s)
{
    for (int k = 0; k < s->n_jobs; k++) {
        struct job *j = &s->job[k];
        if (!j->pid) continue;
        kill(-j->pid, SIGKILL);
        waitpid(j->pid, NULL, 0);
        close(j->fd);
        j->pid = 0;
    }
}

static bool run_all(struct suite *s)
{
    double limit = opts_number(s->c, "limit", 60);
    for (;;) {
        struct pollfd p[MAX_JOBS];
        struct job *of[MAX_JOBS];
        nfds_t n = 0;
        if (stop_signal()) return give_up(s), true;
        if (!feed(s)) return false;
        for (int k = 0; k < s->n_jobs; k++)
            if (s->job[k].pid)
                of[n] = &s->job[k], p[n++] = (struct pollfd){.fd = s->job[k].fd, .events = POLLIN};
        if (n == 0) return true;
        poll(p, n, 500);
        for (nfds_t k = 0; k < n; k++) {
            if (p[k].revents) listen_to(s, of[k]);
            else if (now() - of[k]->since > limit) reap(s, of[k], true);
        }
    }
}

/* the names */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_case(const struct suite *s, const char *name)
{
    char path[4096];
    struct stat st;
    const char *filter = opts_text(s->c, "filter");
    snprintf(path, sizeof path, "%s/%s/model.onnx", s->dir, name);
    return name[0] != '.' && (!filter || !fnmatch(filter, name, 0)) && !stat(path, &st);
}

static bool list_cases(struct suite *s)
{
    DIR *d = opendir(s->dir);
    int cap = 0;
    if (!d) return false;
    for (struct dirent *e; (e = readdir(d));) {
        if (!is_case(s, e->d_name)) continue;
        if (s->n == cap) {
            cap = cap ? 2 * cap : 256;
            char **more = realloc(s->name, (size_t)cap * sizeof *more);
            if (!more) break;
            s->name = more;
        }
        s->name[s->n++] = strdup(e->d_name);
    }
    closedir(d);
    if (s->n) qsort(s->name, (size_t)s->n, sizeof *s->name, by_name);
    s->result = calloc((size_t)s->n + 1, sizeof *s->result);
    return s->result != NULL;
}

int suite_run(struct cli *c, const char *dir)
{
    int64_t jobs = opts_count(c, "jobs", 2);
    struct suite s = {.c = c,
                      .dir = dir,
                      .n_jobs = jobs < 1          ? 1
                                : jobs > MAX_JOBS ? MAX_JOBS
                                                  : (int)jobs};
    int code = EXIT_FAILED;
    if (!list_cases(&s))
        fprintf(stderr, "quern: cannot read folder '%s': %s\n", dir, strerror(errno));
    else if (s.n == 0)
        fprintf(stderr, "quern: no case */model.onnx in '%s'\n", dir), code = EXIT_NOTHING;
    else if (!run_all(&s)) fprintf(stderr, "quern: cannot start a process: %s\n", strerror(errno));
    else {
        code = s.count[V_FAIL] ? EXIT_FAILED : EXIT_DONE;
        printf("%d passed, %d failed, %d unsupported\n", s.count[V_PASS], s.count[V_FAIL],
               s.count[V_UNSUPPORTED]);
    }
    for (int i = 0; i < s.n; i++) free(s.name[i]);
    free(s.name);
    free(s.result);
    return code;
}
