// SPDX-License-Identifier: Apache-2.0
//
// Out of memory: single requests, large or small, fail in turn. The call ends with QUERN_SYSTEM and
// a message, or does without and yields the right result; the same context works afterwards. In a
// child process with little address space nothing crashes or hangs either, nor does a small model
// whose operators need much. External data larger than the machine's memory is refused.
#include <malloc.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <onnx.pb-c.h>

#include "api/api_model.h"
#include "seeds.h"
#include "skip.h"

enum { ROWS = 600, COLS = 900, LARGE = 1 << 20 };

struct fixture {
    struct arena a;
    struct str dir;
    const char *path; /* the network: constants of 2 MiB that are folded, rearranged and written as they are */
    quern *q;
    double sum;       /* of its results */
};

static void fixture_open(struct fixture *b)
{
    struct err e = {0};
    struct buf t = {0};
    memset(b, 0, sizeof *b);
    assert_true(os_temp_dir(&b->a, &b->dir, &e));
    setenv("XDG_CACHE_HOME", b->dir.p, 1);
    b->path = str_fmt(&b->a, "%.*s/net.onnx", STR_ARG(b->dir)).p;
    b->q = quern_open(NULL);
    buf_printf(&t, "graph {\n  input %%x: f32[1,%d]\n  const %%w: f32[%d,%d] = [", COLS, ROWS, COLS);
    for (int i = 0; i < ROWS * COLS; i++) buf_printf(&t, "%s%d", i ? ", " : "", i % 7 - 3);
    buf_printf(&t, "]\n  %%t: f32[%d,%d] = Transpose \"t\"(%%w) {perm=[1,0]}\n  %%y: f32[1,%d] = MatMul \"product\"(%%x, %%t)\n"
                   "  %%z: f32[1,%d] = Relu(%%y)\n  %%v: f32[1,%d] = MatMul \"back\"(%%z, %%w)\n  output %%v\n}\n", COLS, ROWS, ROWS, ROWS, COLS);
    quern_model *m = NULL;
    if (quern_model_read(b->q, t.p, (size_t)t.n, "net", NULL, &m)) fail_msg("%s", quern_error(b->q));
    assert_int_equal(quern_model_save(m, b->path), QUERN_OK);
    quern_model_close(m);
    buf_release(&t);
}

static void fixture_close(struct fixture *b)
{
    quern_close(b->q);
    os_remove_tree(b->dir.p);
    arena_release(&b->a);
}

/* All of it, from the file to the result: the status of the first call that fails. */
static quern_status use(struct fixture *b, double *sum)
{
    struct quern_compile_opts o = {.size = sizeof o, .device = "interp", .threads = 1};
    quern_model *m = NULL;
    quern_program *p = NULL;
    quern_tensor *in[2] = {0}, *out[2] = {0}, *want[2] = {0};
    int n = 0;
    quern_status s = quern_model_open(b->q, b->path, NULL, &m);
    if (!s) s = quern_compile(m, NULL, &o, &p);
    if (!s) s = quern_program_random_inputs(p, "", 1, in, 2, &n);
    if (!s) s = quern_run(p, in, n, out, 1);
    if (!s) s = quern_model_eval(m, in, n, want, 1);
    *sum = 0;
    for (i64 i = 0; !s && i < quern_tensor_count(out[0]); i++) {
        double x = elem_f64(DT_F32, quern_tensor_data(out[0]), i), y = elem_f64(DT_F32, quern_tensor_data(want[0]), i);
        *sum += x;
        if (x - y > 1e-3 * (1 + y) || y - x > 1e-3 * (1 + y)) *sum = 1e30;
    }
    for (int i = 0; i < 2; i++) quern_tensor_free(in[i]), quern_tensor_free(out[i]), quern_tensor_free(want[i]);
    quern_program_close(p);
    quern_model_close(m);
    return s;
}

/* Each request of at least so many bytes fails once, those from the first on that are step apart. */
static void fail_each(i64 least, i64 first, i64 step)
{
    struct fixture b;
    double right, sum;
    i64 left = 0, n_failed = 0, n_done = 0;
    fixture_open(&b);
    assert_int_equal(use(&b, &right), QUERN_OK);
    for (i64 n = first; !left; n += step) {
        mem_fail(n, least);
        quern_status s = use(&b, &sum);
        left = mem_fail(0, 0);
        if (s != QUERN_OK && s != QUERN_SYSTEM) fail_msg("request %lld of %lld bytes: status %d, %s", (long long)n, (long long)least, s, quern_error(b.q));
        if (s == QUERN_OK && sum != right) fail_msg("request %lld of %lld bytes: wrong result", (long long)n, (long long)least);
        if (s && !strstr(quern_error(b.q), "not enough memory")) fail_msg("request %lld: %s", (long long)n, quern_error(b.q));
        if (s && left) fail_msg("request %lld did not fail, but %s", (long long)n, quern_error(b.q));
        n_failed += s != QUERN_OK, n_done += s == QUERN_OK;
        if (getenv("SHOW")) printf("%lld: %s\n", (long long)n, s ? quern_error(b.q) : "-");
    }
    assert_true(n_failed > 0 && n_done > 0);
    assert_int_equal(use(&b, &sum), QUERN_OK);
    assert_true(sum == right);
    fixture_close(&b);
}

static void large_requests_are_checked(void **state) { fail_each(LARGE, 1, 1); }

static void small_requests_draw_on_the_reserve(void **state)
{
    i64 step = takes_all() ? 1 : 23;
    fail_each(0, first_seed(1, 1 + step), step);
}

static i64 address_space(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%ld", &pages) != 1) pages = 0;
    fclose(f);
    return (i64)pages * sysconf(_SC_PAGESIZE);
}

static void child(struct fixture *b, i64 room)
{
    i64 have = address_space();
    struct rlimit l = {.rlim_cur = (rlim_t)(have + room), .rlim_max = (rlim_t)(have + room)};
    double sum;
    if (!have || setrlimit(RLIMIT_AS, &l)) _exit(9);
    alarm(60);
    quern_status s = use(b, &sum);
    if (s) fprintf(stderr, "%lld KiB: %s\n", (long long)(room >> 10), quern_error(b->q));
    _exit(s == QUERN_OK ? 0 : s == QUERN_SYSTEM ? 1 : 2);
}

static void little_address_space_is_an_error(void **state)
{
    struct fixture b;
    i64 n[3] = {0};
    if (SHARE) skip_test("sanitizers need more address space than there is");
    fixture_open(&b);
    malloc_trim(0); /* what the C library keeps of freed memory would be room, too */
    for (i64 room = 0; room < (i64)48 << 20; room += (i64)(takes_all() ? 1 : 3) << 19) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) child(&b, room);
        int status = 0;
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
        if (!WIFEXITED(status)) fail_msg("%lld KiB: signal %d", (long long)(room >> 10), WTERMSIG(status));
        if (WEXITSTATUS(status) > 1) fail_msg("%lld KiB: exit code %d", (long long)(room >> 10), WEXITSTATUS(status));
        n[WEXITSTATUS(status)]++;
    }
    assert_true(n[0] > 0 && n[1] > 0);
    fixture_close(&b);
}

/* A model of few bytes that names sparse files of 1 TiB each. */
static void external_data_has_a_budget(void **state)
{
    enum { N = 100 };
    struct fixture b;
    quern_model *m = NULL;
    fixture_open(&b);
    Onnx__ModelProto p = ONNX__MODEL_PROTO__INIT;
    Onnx__GraphProto g = ONNX__GRAPH_PROTO__INIT;
    Onnx__TensorProto t[N], *list[N];
    Onnx__StringStringEntryProto where[N], *at[N];
    int64_t dim = (int64_t)1 << 38;
    for (int i = 0; i < N; i++) {
        onnx__tensor_proto__init(list[i] = &t[i]);
        onnx__string_string_entry_proto__init(at[i] = &where[i]);
        where[i].key = (char *)(uintptr_t) "location", where[i].value = (char *)(uintptr_t) "w.bin";
        t[i].name = (char *)(uintptr_t)str_fmt(&b.a, "w%d", i).p;
        t[i].n_dims = 1, t[i].dims = &dim, t[i].has_data_type = 1, t[i].data_type = 1;
        t[i].has_data_location = 1, t[i].data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
        t[i].n_external_data = 1, t[i].external_data = &at[i];
    }
    g.n_initializer = N, g.initializer = list;
    Onnx__OperatorSetIdProto set = ONNX__OPERATOR_SET_ID_PROTO__INIT, *sets = &set;
    set.has_version = 1, set.version = 17;
    p.n_opset_import = 1, p.opset_import = &sets, p.graph = &g, p.has_ir_version = 1, p.ir_version = 8;
    size_t size = onnx__model_proto__get_packed_size(&p);
    u8 *bytes = arena_alloc(&b.a, (i64)size);
    onnx__model_proto__pack(&p, bytes);
    struct err e = {0};
    const char *model = str_fmt(&b.a, "%.*s/far.onnx", STR_ARG(b.dir)).p, *data = str_fmt(&b.a, "%.*s/w.bin", STR_ARG(b.dir)).p;
    assert_true(os_write(model, bytes, (i64)size, &e) && os_write(data, "", 0, &e));
    if (truncate(data, (off_t)1 << 40)) skip_test("no sparse file of 1 TiB in %.*s", STR_ARG(b.dir));
    if (quern_model_open(b.q, model, NULL, &m) != QUERN_SYSTEM) fail_msg("%s", quern_error(b.q));
    assert_non_null(strstr(quern_error(b.q), "external data of tensor 'w0': 1099511627776 bytes"));
    fixture_close(&b);
}

/* Small models whose operators need much memory, more than the reserve: while they are expanded, or for a reference evaluation. */
static const struct { const char *graph; bool evaluated; } hungry[] = {
    {"  const %r: f32[] = [0.5]\n  const %t: bool[] = [1]\n  input %x: f32[16384,8192]\n"
     "  %y: f32[16384,8192] = Dropout(%x, %r, %t)\n  output %y\n", false},
    {"  const %b: i64[] = [4096]\n  const %l: i64[] = [65536]\n  const %r: i64[] = [16000]\n  const %f: f32[] = [0]\n  const %h: f32[] = [8000]\n"
     "  input %x: f32[32769,4096]\n  %w: f32[32769,4096] = MelWeightMatrix(%b, %l, %r, %f, %h)\n  %y: f32[32769,4096] = Add(%x, %w)\n  output %y\n", false},
    {"  const %a: i64[1] = [1]\n  input %x: u8[40000000,1]\n  %y: u8[40000000,1] = ReduceMax(%x, %a)\n  output %y\n", true},
    {"  const %w: u8[1,1] = [1]\n  input %x: u8[1,1]\n  const %s: i64[2] = [1,40000000]\n  %z: u8[1,40000000] = Expand(%x, %s)\n"
     "  %y: i32[1,40000000] = MatMulInteger(%w, %z)\n  output %y\n", true},
};

/* Exit code 0: QUERN_SYSTEM; in a child with little address space. */
static void feed(struct fixture *b, u32 k)
{
    i64 have = address_space(), room = (i64)260 << 20;
    struct rlimit l = {.rlim_cur = (rlim_t)(have + room), .rlim_max = (rlim_t)(have + room)};
    struct quern_compile_opts o = {.size = sizeof o, .device = "interp", .threads = 1};
    struct str text = str_fmt(&b->a, "graph {\n%s}\n", hungry[k].graph);
    quern_model *m = NULL;
    quern_program *p = NULL;
    quern_tensor *in[1] = {0}, *out[1] = {0};
    int n = 0;
    if (!have || setrlimit(RLIMIT_AS, &l)) _exit(9);
    alarm(60);
    quern_status s = quern_model_read(b->q, text.p, (size_t)text.n, "net", NULL, &m);
    if (!s && !hungry[k].evaluated) s = quern_compile(m, NULL, &o, &p);
    if (!s && hungry[k].evaluated) s = quern_model_random_inputs(m, "", 1, in, 1, &n);
    if (!s && hungry[k].evaluated) s = quern_model_eval(m, in, n, out, 1);
    if (getenv("SHOW") || s != QUERN_SYSTEM) fprintf(stderr, "%u: status %d, %s\n", k, s, quern_error(b->q));
    _exit(s == QUERN_SYSTEM && strstr(quern_error(b->q), "not enough memory") ? 0 : 1);
}

static void hungry_operators_are_errors(void **state)
{
    struct fixture b;
    if (SHARE) skip_test("sanitizers need more address space than there is");
    fixture_open(&b);
    for (u32 k = 0; k < countof(hungry); k++) {
        int status = 0;
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) feed(&b, k);
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
        if (!WIFEXITED(status)) fail_msg("model %u: signal %d", k, WTERMSIG(status));
        if (WEXITSTATUS(status)) fail_msg("model %u: exit code %d", k, WEXITSTATUS(status));
    }
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_requests_are_checked),
        cmocka_unit_test(small_requests_draw_on_the_reserve),
        cmocka_unit_test(little_address_space_is_an_error),
        cmocka_unit_test(external_data_has_a_budget),
        cmocka_unit_test(hungry_operators_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
