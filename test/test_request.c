// SPDX-License-Identifier: Apache-2.0
//
// Requests: random sub-graphs on simulated devices deliver what serial execution does; throughput in simulated time; failures, callbacks, cancellation,
// fallbacks; and programs on the devices that are here.
//
// Simulated devices take described times of a clock that stands still while anybody works: it moves on when every instance that has something to do sleeps.
// So times are exact, whatever the machine does.
#include "deployment_fixture.h"

#include "request/request.h"

#include <jansson.h>
#include <stdlib.h>

#include "skip.h"
#include "vulkan_fixture.h"

enum { LENGTH = 4, MAX_SLEEPERS = 16 };

/* The clock. */

static struct {
    struct os_monitor *monitor;
    double now;                 /* atomic */
    double wake[MAX_SLEEPERS];  /* of those that sleep */
    u32 n;
    bool is_held;
    struct req_model *model;
    u32 fail;                   /* sub-graph that fails; UINT32_MAX: none */
    i64 fail_after;             /* runs */
    enum err_code fail_code;
    bool is_absent;             /* devices are not found */
    u32 n_runs;
} sim;

static double sim_now(void *user)
{
    double t;
    (void)user;
    __atomic_load(&sim.now, &t, __ATOMIC_SEQ_CST);
    return t;
}

/* false: one is about to wake up, or to begin. */
static bool sim_advance(void)
{
    if (sim.is_held || !sim.model || req_model_active(sim.model) != sim.n) return false;
    double least = sim.wake[0];
    for (u32 i = 1; i < sim.n; i++) least = sim.wake[i] < least ? sim.wake[i] : least;
    if (least <= sim.now) return false;
    __atomic_store(&sim.now, &least, __ATOMIC_SEQ_CST);
    os_monitor_wake(sim.monitor);
    return true;
}

static void sim_sleep(double seconds)
{
    os_monitor_enter(sim.monitor);
    double until = sim.now + seconds;
    sim.wake[sim.n++] = until;
    while (sim.now < until)
        if (!sim_advance()) os_monitor_wait(sim.monitor, 0.0002);
    for (u32 i = 0; i < sim.n; i++)
        if (sim.wake[i] == until) {
            sim.wake[i] = sim.wake[--sim.n];
            break;
        }
    os_monitor_leave(sim.monitor);
}

static void sim_hold(bool on)
{
    os_monitor_enter(sim.monitor);
    sim.is_held = on;
    os_monitor_wake(sim.monitor);
    os_monitor_leave(sim.monitor);
}

/* The back end: out k = (k + 1) * (1 + sum of the inputs weighted by position) modulo a prime, exact in f32. */

struct sim_unit { u32 k, n_in, n_out; double seconds; i64 runs; };

static bool sim_runs(struct str framework) { return str_is(framework, "sim"); }
static bool sim_find(struct req_place *p, struct err *e) { return !sim.is_absent || err_set(e, ERR_SYSTEM, "no '%.*s' is here", STR_ARG(p->name)); }
static void *sim_open(const struct req_place *p, struct err *e) { return (void)e, (void *)(uintptr_t)p; }
static void sim_close(void *device) { (void)device; }
static void sim_unload(void *unit) { mem_free(unit); }

static void *sim_load(void *device, const struct req_source *s, struct err *e)
{
    struct sim_unit *u = mem_alloc(sizeof *u);
    (void)device, (void)e;
    *u = (struct sim_unit){(u32)(s->subgraph - s->model->subgraph.v), s->subgraph->in.n, s->subgraph->out.n, s->subgraph->seconds, 0};
    return u;
}

static bool sim_dims(void *unit, const struct tensor *in, struct tensor *out, struct err *e)
{
    (void)e;
    for (u32 k = 0; k < ((struct sim_unit *)unit)->n_out; k++) out[k] = (struct tensor){.dtype = DT_F32, .rank = in[0].rank, .dim = {in[0].dim[0], in[0].dim[1]}};
    return true;
}

static float sim_value(u32 subgraph, u32 out, u32 n_in, const float *x)
{
    i64 sum = 1 + subgraph;
    for (u32 i = 0; i < n_in; i++) sum = (sum * 31 + (i64)x[i] * (i + 2)) % 10007;
    return (float)((sum * (out + 1)) % 10007);
}

static bool sim_run(void *unit, const struct tensor *in, struct tensor *out, struct arena *a, struct req_report *report, struct err *e)
{
    struct sim_unit *u = unit;
    (void)a, (void)report;
    sim_sleep(u->seconds);
    __atomic_add_fetch(&sim.n_runs, 1, __ATOMIC_SEQ_CST);
    if (u->k == sim.fail && u->runs++ >= sim.fail_after) return err_set(e, sim.fail_code, "the simulated device failed");
    for (i64 i = 0; i < tensor_count(&in[0]); i++) {
        float x[8];
        for (u32 k = 0; k < u->n_in; k++) x[k] = ((const float *)in[k].data)[i];
        for (u32 k = 0; k < u->n_out; k++) ((float *)out[k].data)[i] = sim_value(u->k, k, u->n_in, x);
    }
    return true;
}

static const struct req_backend sim_backend = {"sim", sim_runs, sim_find, sim_open, sim_close, sim_load, sim_unload, sim_dims, sim_run};

/* The fixture. */

struct fixture {
    struct deployment d;
    struct arena a;
    struct err e;
    struct str dir;
    struct req_model *model;
    struct stop stop;
};

static int setup(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    *state = f;
    memset(&sim, 0, sizeof sim);
    sim.monitor = os_monitor_new();
    sim.fail = UINT32_MAX;
    deployment_init(&f->d, "Net");
    return os_temp_dir(&f->a, &f->dir, &f->e) ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    req_model_close(f->model);
    os_monitor_free(sim.monitor);
    os_remove_tree(f->dir.p);
    deployment_release(&f->d);
    arena_release(&f->a);
    mem_free(f);
    return 0;
}

static void good(bool ok, const struct err *e)
{
    if (!ok) fail_msg("%s", e->msg);
}

static void refused(bool ok, struct err *e, const char *why)
{
    assert_false(ok);
    if (!strstr(e->msg, why)) fail_msg("expected '%s': %s", why, e->msg);
    *e = (struct err){0};
}

static bool try_open(struct fixture *f, struct req_model_opts o)
{
    static const struct req_backend *const both[] = {&sim_backend, &req_backend_program};
    const char *path = str_fmt(&f->a, "%s/net", f->dir.p).p;
    o.backend = both, o.n_backends = 2, o.clock = sim_now, o.stop = &f->stop;
    if (!os_exists(path)) good(meta_write_packed(path, &f->d.m, &f->d.files, &f->e), &f->e);
    f->model = req_model_open(path, &o, &f->e);
    sim.model = f->model;
    return f->model != NULL;
}

static void open_model(struct fixture *f, struct req_model_opts o) { good(try_open(f, o), &f->e); }

static u32 sim_tensor(struct fixture *f, const char *dims)
{
    return deployment_tensor(&f->d, str_fmt(&f->d.a, "tensor_%u", f->d.m.tensor.n).p, dims);
}

/* A sub-graph of n_out outputs on a simulated device. */
static struct meta_subgraph *sim_subgraph(struct fixture *f, const char *device, double seconds, u32 n_out)
{
    struct meta_model *m = &f->d.m;
    struct meta_subgraph *s = arr_push(&f->d.a, &m->subgraph);
    *s = (struct meta_subgraph){.name = str_fmt(&f->d.a, "Subgraph_%u", m->subgraph.n - 1), .device = str_of(device), .framework = S("sim"), .seconds = seconds};
    for (u32 i = 0; i < n_out; i++) *arr_push(&f->d.a, &s->out) = sim_tensor(f, "4");
    return s;
}

static void read_tensor(struct fixture *f, struct meta_subgraph *s, u32 tensor)
{
    struct meta_model *m = &f->d.m;
    *arr_push(&f->d.a, &s->in) = tensor;
    u32 at = 0;
    for (u32 k = 0; k + 1 < m->subgraph.n; k++)
        for (u32 i = 0; i < m->subgraph.v[k].out.n; i++)
            if (m->subgraph.v[k].out.v[i] == tensor) {
                for (at = 0; at < s->after.n && s->after.v[at] < k; at++) {}
                if (at < s->after.n && s->after.v[at] == k) return;
                (void)arr_push(&f->d.a, &s->after);
                memmove(s->after.v + at + 1, s->after.v + at, (s->after.n - 1 - at) * sizeof *s->after.v);
                s->after.v[at] = k;
                return;
            }
}

/* A chain over the devices in turn. */
static void sim_chain(struct fixture *f, const char *const *device, u32 n, double seconds)
{
    u32 last = sim_tensor(f, "4");
    *arr_push(&f->d.a, &f->d.m.input) = last;
    for (u32 k = 0; k < n; k++) {
        struct meta_subgraph *s = sim_subgraph(f, device[k], seconds, 1);
        read_tensor(f, s, last);
        last = s->out.v[0];
    }
    *arr_push(&f->d.a, &f->d.m.output) = last;
}

static void give(struct request *r, u32 k, i64 from, struct err *e)
{
    struct tensor t;
    good(request_input(r, k, 0, NULL, &t, e), e);
    for (i64 i = 0; i < tensor_count(&t); i++) ((float *)t.data)[i] = (float)(from + 3 * i);
}

/* What serial execution gives: values of all tensors at element i. */
static void serial(const struct meta_model *m, float *value)
{
    for (u32 k = 0; k < m->subgraph.n; k++) {
        const struct meta_subgraph *s = &m->subgraph.v[k];
        float x[8];
        for (u32 i = 0; i < s->in.n; i++) x[i] = value[s->in.v[i]];
        for (u32 i = 0; i < s->out.n; i++) value[s->out.v[i]] = sim_value(k, i, s->in.n, x);
    }
}

static void check_outputs(const struct meta_model *m, struct request *r, i64 from, struct err *e)
{
    float value[256];
    struct tensor t;
    for (i64 i = 0; i < LENGTH; i++) {
        for (u32 k = 0; k < m->input.n; k++) value[m->input.v[k]] = (float)(from + k + 3 * i);
        serial(m, value);
        for (u32 k = 0; k < m->output.n; k++) {
            good(request_output(r, k, &t, e), e);
            assert_int_equal(tensor_count(&t), LENGTH);
            if (((float *)t.data)[i] != value[m->output.v[k]]) fail_msg("output %u [%d] is %f, expected %f", k, (int)i, ((float *)t.data)[i], value[m->output.v[k]]);
        }
    }
}

static void await(struct request *r, struct err *result)
{
    bool is_done;
    struct err e = {0};
    good(request_wait(r, -1, &is_done, result, &e), &e);
    assert_true(is_done);
}

/* Random sub-graphs, several requests at once, run repeatedly. */

static void random_net(struct fixture *f, struct rng *r)
{
    static const char *const device[] = {"SIM:0", "SIM:1", "SIM:2"};
    i64 n_in = rng_range(r, 1, 3), n = rng_range(r, 1, 12);
    for (i64 k = 0; k < n_in; k++) *arr_push(&f->d.a, &f->d.m.input) = sim_tensor(f, "4");
    for (i64 k = 0; k < n; k++) {
        u32 before = f->d.m.tensor.n;
        i64 n_reads = rng_range(r, 1, 4), n_out = rng_range(r, 1, 2), at = rng_range(r, 0, 2), time = rng_range(r, 0, 5);
        struct meta_subgraph *s = sim_subgraph(f, device[at], (double)time * 0.1, (u32)n_out);
        for (i64 i = 0; i < n_reads; i++) read_tensor(f, s, (u32)rng_range(r, 0, before - 1));
    }
    for (u32 k = 0; k < f->d.m.tensor.n; k++)
        if (k >= f->d.m.tensor.n - 2 || rng_range(r, 0, 3) == 0) *arr_push(&f->d.a, &f->d.m.output) = k;
}

static void test_random(void **state)
{
    (void)state;
    for (u64 seed = 0; seed < 25; seed++) {
        enum { N = 4, RUNS = 3 };
        void *own;
        struct rng rng = rng_seed(seed);
        struct request *r[N];
        struct err result;
        assert_int_equal(setup(&own), 0);
        struct fixture *f = own;
        random_net(f, &rng);
        open_model(f, (struct req_model_opts){.profile = REQ_STEPS});
        for (i64 i = 0; i < N; i++) r[i] = request_create(f->model, &f->e);
        for (i64 run = 0; run < RUNS; run++) {
            for (i64 i = 0; i < N; i++) {
                for (u32 k = 0; k < f->d.m.input.n; k++) give(r[i], k, 100 * i + 7 * run + k, &f->e);
                good(request_start(r[i], &f->e), &f->e);
            }
            for (i64 i = N - 1; i >= 0; i--) {
                await(r[i], &result);
                good(!result.code, &result);
                check_outputs(&f->d.m, r[i], 100 * i + 7 * run, &f->e);
            }
        }
        for (i64 i = 0; i < N; i++) request_destroy(r[i]);
        teardown(&own);
    }
}

/* Throughput: three requests that start again as soon as they are done, against one after the other. */

struct again { struct err e; i64 left; u32 n_failed; };

static void start_again(void *user, struct request *r, const struct err *e)
{
    struct again *x = user;
    if (e->code) x->n_failed++;
    if (!e->code && --x->left > 0) good(request_start(r, &x->e), &x->e);
}

static double time_of(struct fixture *f, u32 n_requests, i64 runs)
{
    struct request *r[3];
    struct again x[3] = {{.left = 0}};
    struct err result;
    double begin = sim_now(NULL);
    sim_hold(true);
    for (u32 i = 0; i < n_requests; i++) {
        r[i] = request_create(f->model, &f->e);
        x[i].left = runs / n_requests;
        give(r[i], 0, i, &f->e);
        request_on_done(r[i], start_again, &x[i]);
        good(request_start(r[i], &f->e), &f->e);
    }
    sim_hold(false);
    for (u32 i = 0; i < n_requests; i++) {
        await(r[i], &result);
        good(!result.code && !x[i].n_failed && x[i].left == 0, &result);
        check_outputs(&f->d.m, r[i], i, &f->e);
        request_destroy(r[i]);
    }
    return sim_now(NULL) - begin;
}

static void test_throughput(void **state)
{
    struct fixture *f = *state;
    static const char *const device[] = {"SIM:0", "SIM:1"};
    sim_chain(f, device, 2, 1);
    open_model(f, (struct req_model_opts){0});
    double serial_time = time_of(f, 1, 30), overlapped = time_of(f, 3, 30);
    assert_true(serial_time > 59.999 && serial_time < 60.001);
    if (serial_time < 1.7 * overlapped) fail_msg("%g s one by one, %g s overlapped", serial_time, overlapped);
    assert_true(overlapped > 30.999 && overlapped < 31.001); /* each device works all the time, but for the first and the last second */
}

/* Branches of one request run at the same time. */
static void test_branches(void **state)
{
    struct fixture *f = *state;
    struct err result;
    u32 x = sim_tensor(f, "4"), ends[2];
    *arr_push(&f->d.a, &f->d.m.input) = x;
    for (u32 k = 0; k < 2; k++) {
        struct meta_subgraph *s = sim_subgraph(f, k ? "SIM:1" : "SIM:0", 1, 1);
        read_tensor(f, s, x);
        ends[k] = s->out.v[0];
    }
    struct meta_subgraph *last = sim_subgraph(f, "SIM:0", 0.5, 1);
    for (u32 k = 0; k < 2; k++) read_tensor(f, last, ends[k]);
    *arr_push(&f->d.a, &f->d.m.output) = last->out.v[0];
    open_model(f, (struct req_model_opts){0});
    struct request *r = request_create(f->model, &f->e);
    give(r, 0, 5, &f->e);
    good(request_start(r, &f->e), &f->e);
    await(r, &result);
    good(!result.code, &result);
    assert_true(sim_now(NULL) > 1.4999 && sim_now(NULL) < 1.5001);
    check_outputs(&f->d.m, r, 5, &f->e);
    request_destroy(r);
}

/* Failures. */

static void test_failure(void **state)
{
    struct fixture *f = *state;
    static const char *const device[] = {"SIM:0", "SIM:1", "SIM:0"};
    enum { N = 3 };
    struct request *r[N];
    struct again x[N] = {{.left = 0}};
    struct err result;
    sim_chain(f, device, 3, 1);
    sim.fail = 1, sim.fail_after = 1, sim.fail_code = ERR_SYSTEM;
    open_model(f, (struct req_model_opts){.profile = REQ_STEPS});
    for (u32 i = 0; i < N; i++) {
        r[i] = request_create(f->model, &f->e);
        request_on_done(r[i], start_again, &x[i]);
        x[i].left = 1;
        give(r[i], 0, i, &f->e);
        good(request_start(r[i], &f->e), &f->e);
    }
    for (u32 i = 0; i < N; i++) {
        struct tensor t;
        await(r[i], &result);
        if (i == 0) {
            good(!result.code, &result);
            continue;
        }
        assert_int_equal(x[i].n_failed, 1);
        assert_int_equal(result.code, ERR_SYSTEM);
        refused(!result.code, &result, "sub-graph 'Subgraph_1' on device 'SIM:1': the simulated device failed");
        refused(request_output(r[i], 0, &t, &f->e), &f->e, "has no outputs");
    }
    sim.fail = UINT32_MAX; /* the device is well again */
    for (u32 i = 0; i < N; i++) {
        x[i].left = 1;
        good(request_start(r[i], &f->e), &f->e);
        await(r[i], &result);
        good(!result.code, &result);
        check_outputs(&f->d.m, r[i], i, &f->e);
        request_destroy(r[i]);
    }
}

static void test_absent(void **state)
{
    struct fixture *f = *state;
    static const char *const device[] = {"SIM:0", "SIM:1"};
    sim_chain(f, device, 2, 1);
    sim.is_absent = true;
    refused(try_open(f, (struct req_model_opts){0}), &f->e, "sub-graph 'Subgraph_0', device 'SIM:0': no 'SIM:0' is here");
    refused(try_open(f, (struct req_model_opts){.fallback = true}), &f->e, "the deployment has no program for the CPU in its place");
    struct req_override o = {S("NVIDIA:7"), S("*")};
    refused(try_open(f, (struct req_model_opts){.override = &o, .n_overrides = 1}), &f->e, "no sub-graph is for device 'NVIDIA:7'");
    open_model(f, (struct req_model_opts){.only_list = true});
    struct req_state_of s;
    req_model_state(f->model, 0, &s);
    assert_int_equal(s.state, REQ_LISTED);
    assert_null(request_create(f->model, &f->e));
}

/* Cancellation. */

static void count_done(void *user, struct request *r, const struct err *e)
{
    struct err none = {0}, result;
    bool is_done;
    *(u32 *)user += 1 + 100 * (e->code == ERR_STOPPED);
    assert_false(request_wait(r, 0, &is_done, &result, &none)); /* a callback may not wait */
}

static void test_cancel(void **state)
{
    struct fixture *f = *state;
    static const char *const device[] = {"SIM:0", "SIM:1"};
    struct err result;
    bool is_done;
    u32 n_done = 0;
    sim_chain(f, device, 2, 1);
    open_model(f, (struct req_model_opts){0});
    struct request *r = request_create(f->model, &f->e), *other = request_create(f->model, &f->e);
    request_on_done(r, count_done, &n_done);
    refused(request_wait(r, 0, &is_done, &result, &f->e), &f->e, "was not started");
    refused(request_start(r, &f->e), &f->e, "input 'tensor_0' was not given");
    give(r, 0, 1, &f->e), give(other, 0, 2, &f->e);
    sim_hold(true);
    good(request_start(r, &f->e) && request_start(other, &f->e), &f->e);
    refused(request_start(r, &f->e), &f->e, "is running");
    good(request_wait(r, 0, &is_done, &result, &f->e) && !is_done, &f->e);
    good(request_wait(r, 0.01, &is_done, &result, &f->e) && !is_done, &f->e);
    request_cancel(r);
    request_cancel(other);
    sim_hold(false);
    await(r, &result);
    assert_int_equal(result.code, ERR_STOPPED);
    await(other, &result);
    assert_int_equal(result.code, ERR_STOPPED);
    assert_int_equal(n_done, 101);
    assert_true(sim.n_runs <= 1); /* what ran already */
    good(request_start(r, &f->e), &f->e);
    await(r, &result);
    good(!result.code, &result);
    check_outputs(&f->d.m, r, 1, &f->e);
    f->stop.is_set = 1;
    good(request_start(other, &f->e), &f->e);
    await(other, &result);
    assert_int_equal(result.code, ERR_STOPPED);
    f->stop.is_set = 0;
    good(request_start(other, &f->e), &f->e); /* destroyed while it runs */
    request_destroy(other);
    good(request_start(r, &f->e), &f->e);
    await(r, &result);
    req_model_close(f->model); /* before its last request */
    f->model = NULL;
    refused(request_start(r, &f->e), &f->e, "is closed");
    check_outputs(&f->d.m, r, 1, &f->e);
    request_destroy(r);
}

static void destroy_itself(void *user, struct request *r, const struct err *e)
{
    (void)e;
    request_destroy(r);
    os_monitor_enter(sim.monitor);
    ++*(u32 *)user;
    os_monitor_wake(sim.monitor);
    os_monitor_leave(sim.monitor);
}

static void test_destroy_in_callback(void **state)
{
    struct fixture *f = *state;
    static const char *const device[] = {"SIM:0", "SIM:1"};
    enum { N = 20 };
    u32 n = 0;
    sim_chain(f, device, 2, 1);
    open_model(f, (struct req_model_opts){0});
    for (u32 i = 0; i < N; i++) {
        struct request *r = request_create(f->model, &f->e);
        request_on_done(r, destroy_itself, &n);
        give(r, 0, i, &f->e);
        good(request_start(r, &f->e), &f->e);
    }
    os_monitor_enter(sim.monitor);
    while (n < N) os_monitor_wait(sim.monitor, -1);
    os_monitor_leave(sim.monitor);
}

/* Programs. */

static void run_chain(struct fixture *f, i64 rows, struct request *r, float *z)
{
    struct tensor t;
    struct err result;
    i64 dim[] = {rows, 4};
    good(request_input(r, 0, 2, dim, &t, &f->e), &f->e);
    for (i64 i = 0; i < 4 * rows; i++) ((float *)t.data)[i] = (float)(i % 7 - 3);
    good(request_start(r, &f->e), &f->e);
    await(r, &result);
    good(!result.code, &result);
    good(request_output(r, 0, &t, &f->e), &f->e);
    assert_true(t.rank == 2 && t.dim[0] == rows && t.dim[1] == 8);
    memcpy(z, t.data, (size_t)tensor_bytes(&t));
}

static void check_chain(struct fixture *f, struct req_model *model)
{
    static const float w[4][8] = {{1, 2, 3, 4, 5, 6, 7, 8}, {-1, -2, -3, -4, -5, -6, -7, -8}, {1, 0, 1, 0, 1, 0, 1, 0}, {2, 2, 2, 2, 3, 3, 3, 3}};
    float z[8 * 33];
    struct request *r = request_create(model, &f->e);
    for (i64 rows = 1; rows <= 33; rows += 8) {
        run_chain(f, rows, r, z);
        for (i64 i = 0; i < rows; i++)
            for (i64 j = 0; j < 8; j++) {
                float sum = 0;
                for (i64 k = 0; k < 4; k++) sum += (float)((4 * i + k) % 7 - 3) * w[k][j];
                if (z[8 * i + j] != (sum > 0 ? sum : 0) + 1) fail_msg("z[%d, %d] is %g, expected %g", (int)i, (int)j, z[8 * i + j], (sum > 0 ? sum : 0) + 1);
            }
    }
    request_destroy(r);
}

static void test_programs(void **state)
{
    static const char *const other[] = {"cpu", "interp", "opencl", "vulkan"};
    (void)state;
    for (i64 k = 0; k < countof(other); k++) {
        const char *const names[] = {"X64:0", "X64:1"}, *const device[] = {"cpu", other[k]};
        void *own;
        assert_int_equal(setup(&own), 0);
        struct fixture *f = own;
        bool is_here = deployment_compile(&f->d, deployment_second, other[k]) != NULL;
        deployment_release(&f->d);
        if (is_here) {
            deployment_chain(&f->d, "Net", names, device, NULL);
            open_model(f, (struct req_model_opts){.profile = REQ_LAYERS, .threads = 2});
            check_chain(f, f->model);
            struct req_state_of s;
            req_model_state(f->model, 1, &s);
            assert_true(s.state == REQ_READY && s.runs == 5);
        } else {
            printf("skipped: no device '%s' here\n", other[k]);
            deployment_init(&f->d, "none");
        }
        teardown(&own);
    }
}

/* A network of convolutions, which OpenVINO runs between two of quern's sub-graphs. */
static void test_openvino(void **state)
{
    struct fixture *f = *state;
    static const char net[] = "graph { input %x: f32[1,3,16,16] const %w: f32[4,3,1,1] = [1,2,3,-1,0,1,2,-2,1,0.5,0.25,0.125] %a: f32[1,3,16,16] = Relu(%x) "
                              "%b: f32[1,4,16,16] = Conv(%a, %w, _) {kernel_shape=[1,1]} %c: f32[1,4,16,16] = Tanh(%b) output %c }";
    static const char alloc[] = "{\"relu_1\": \"X64:0\", \"conv2d_3\": \"OPENVINO_CPU:0\", \"tanh_6\": \"X64:0\"}";
    struct quern_deploy_opts o = QUERN_OPTS(quern_deploy_opts);
    struct quern_compile_opts c = QUERN_OPTS(quern_compile_opts);
    quern_model *m = NULL;
    quern_program *p = NULL;
    quern_tensor *in = NULL, *want = NULL, *given = NULL, *got = NULL;
    struct quern_check check;
    quern_deployment *d = NULL;
    quern_request *r = NULL;
    quern *q = f->d.q;
    o.allocation = alloc, o.name = "net";
    if (quern_model_read(q, net, strlen(net), "net", NULL, &m) || quern_compile(m, NULL, &c, &p) || quern_deploy(m, NULL, f->dir.p, &o)) fail_msg("%s", quern_error(q));
    quern_status s = quern_deployment_open(q, str_fmt(&f->a, "%s/net", f->dir.p).p, NULL, &d);
    if (s && strstr(quern_error(q), "not complete")) {
        quern_program_close(p), quern_model_close(m);
        skip_test("no OpenVINO: %s", quern_error(q));
    }
    int n;
    if (s || quern_program_random_inputs(p, NULL, 3, &in, 1, &n) || quern_run(p, &in, 1, &want, 1) || quern_request_create(d, &r)) fail_msg("%s", quern_error(q));
    if (quern_request_input(r, 0, 0, NULL, &given)) fail_msg("%s", quern_request_error(r));
    memcpy(quern_tensor_data(given), quern_tensor_data(in), (size_t)quern_tensor_count(in) * 4);
    for (int k = 0; k < 3; k++)
        if (quern_request_run(r) || quern_request_output(r, 0, &got)) fail_msg("%s", quern_request_error(r));
    assert_int_equal(quern_tensor_check(q, got, want, 1e-5, 1e-6, &check), QUERN_OK);
    if (check.n_bad) fail_msg("%lld elements differ, by up to %g", (long long)check.n_bad, check.max_abs);
    quern_request_destroy(r);
    quern_deployment_close(d);
    quern_tensor_free(in), quern_tensor_free(want);
    quern_program_close(p);
    quern_model_close(m);
}

/* Inputs of the wrong type, rank or size; sizes that contradict each other. */
static void test_shapes(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"X64:0", "X64:1"}, *const device[] = {"interp", "interp"};
    static const char add[] = "graph { input %a: f32[N,2*M] input %b: f32[M,N] %s: f32[N,2*M] = Relu(%a) %t: f32[M,N] = Relu(%b) output %s output %t }";
    struct tensor t, mine = {.dtype = DT_F32, .rank = 2, .dim = {3, 4}, .data = (float[12]){-1, 2}};
    struct err result;
    (void)names, (void)device;
    u32 a = deployment_tensor(&f->d, "a", "N,2*M"), b = deployment_tensor(&f->d, "b", "M,N"), s = deployment_tensor(&f->d, "s", "N,2*M"), u = deployment_tensor(&f->d, "t", "M,N");
    *arr_push(&f->d.a, &f->d.m.input) = a, *arr_push(&f->d.a, &f->d.m.input) = b, *arr_push(&f->d.a, &f->d.m.output) = s, *arr_push(&f->d.a, &f->d.m.output) = u;
    deployment_add(&f->d, &(struct deployment_part){add, "X64:0", "interp", NULL, {a, b}, 2, {s, u}, 2, {0}, 0});
    open_model(f, (struct req_model_opts){0});
    struct request *r = request_create(f->model, &f->e);
    refused(request_input(r, 2, 0, NULL, &t, &f->e), &f->e, "there is no input 2");
    refused(request_input(r, 0, 0, NULL, &t, &f->e), &f->e, "shape of input 'a' is not fixed");
    refused(request_input(r, 0, 1, (i64[]){4}, &t, &f->e), &f->e, "has rank 1, expected 2");
    refused(request_input(r, 0, 2, (i64[]){-4, 4}, &t, &f->e), &f->e, "is negative");
    refused(request_input(r, 0, 2, (i64[]){1LL << 40, 1LL << 40}, &t, &f->e), &f->e, "too large");
    good(request_set_input(r, 0, &mine, &f->e), &f->e);
    good(request_input(r, 1, 2, (i64[]){3, 3}, &t, &f->e), &f->e);
    refused(request_start(r, &f->e), &f->e, "input 'a': axis 1 is 4, expected 2*M = 6");
    good(request_input(r, 1, 2, (i64[]){2, 4}, &t, &f->e), &f->e);
    refused(request_start(r, &f->e), &f->e, "axis 1 is 4, expected N = 3");
    good(request_input(r, 1, 2, (i64[]){2, 3}, &t, &f->e) && request_start(r, &f->e), &f->e);
    await(r, &result);
    good(!result.code && request_output(r, 0, &t, &f->e), &result);
    assert_true(((float *)t.data)[0] == 0 && ((float *)t.data)[1] == 2);
    mine.dtype = DT_F16;
    refused(request_set_input(r, 0, &mine, &f->e), &f->e, "has type f16, expected f32");
    request_destroy(r);
}

/* The second device fails while it runs, or is absent; its sub-graph has a program for the CPU. */
static void make_fallback(struct fixture *f)
{
    static const char *const names[] = {"X64:0", "SIM:0"}, *const device[] = {"cpu", "interp"};
    deployment_release(&f->d);
    deployment_chain(&f->d, "Net", names, device, "cpu");
    f->d.m.subgraph.v[1].framework = S("sim");
}

static void keep_log(void *user, int level, struct str text)
{
    struct buf *b = user;
    (void)level;
    buf_str(b, text);
}

static void test_fallback(void **state)
{
    struct fixture *f = *state;
    struct buf log = {0};
    struct req_state_of s;
    float z[8];
    make_fallback(f);
    sim.is_absent = true;
    refused(try_open(f, (struct req_model_opts){0}), &f->e, "it can run on the CPU if fallback is on");
    open_model(f, (struct req_model_opts){.fallback = true, .log = {keep_log, &log, 1}});
    check_chain(f, f->model);
    req_model_state(f->model, 1, &s);
    assert_true(s.state == REQ_FALLBACK && str_is(s.device, "X64:0") && strstr(s.why, "no 'SIM:0' is here"));
    assert_non_null(strstr(log.p, "sub-graph 'Subgraph_1' runs on the CPU instead of device 'SIM:0': no 'SIM:0' is here"));
    req_model_close(f->model);
    buf_reset(&log);
    sim.is_absent = false, sim.fail = 1, sim.fail_after = 0, sim.fail_code = ERR_FAILED;
    open_model(f, (struct req_model_opts){.fallback = true, .log = {keep_log, &log, 1}});
    check_chain(f, f->model); /* its values are those of the program for the CPU, from the first run on */
    req_model_state(f->model, 1, &s);
    assert_true(s.state == REQ_FALLBACK && s.runs == 5);
    assert_non_null(strstr(log.p, "device 'SIM:0' failed: the simulated device failed"));
    req_model_close(f->model);
    open_model(f, (struct req_model_opts){0}); /* without it, the request fails */
    struct request *r = request_create(f->model, &f->e);
    struct tensor t;
    struct err result;
    good(request_input(r, 0, 2, (i64[]){1, 4}, &t, &f->e) && request_start(r, &f->e), &f->e);
    await(r, &result);
    refused(!result.code, &result, "the simulated device failed");
    request_destroy(r);
    (void)z;
    buf_release(&log);
}

/* Sizes that the data decides: the output is copied from the run's memory. */
static void test_made_sizes(void **state)
{
    struct fixture *f = *state;
    static const char graph[] = "graph { input %x: f32[N] %k: i64[1,K] = NonZero(%x) %y: f32[1,K] = Cast(%k) {to=1} output %y size(K) = %k[0] }";
    struct meta_model *m = &f->d.m;
    (void)graph;
    u32 x = deployment_tensor(&f->d, "x", "N"), y = deployment_tensor(&f->d, "y", "1,K");
    *arr_push(&f->d.a, &m->input) = x, *arr_push(&f->d.a, &m->output) = y;
    static const char net[] = "graph { input %x: f32[N] %k: i64[1,K] = NonZero(%x) %y: f32[1,K] = Cast(%k) {to=1} output %y }";
    quern_model *q = NULL;
    if (quern_model_read(f->d.q, net, strlen(net), "net", NULL, &q)) skip_test("%s", quern_error(f->d.q));
    quern_model_close(q);
    deployment_add(&f->d, &(struct deployment_part){net, "X64:0", "cpu", NULL, {x}, 1, {y}, 1, {0}, 0});
    open_model(f, (struct req_model_opts){.profile = REQ_STEPS});
    struct request *r = request_create(f->model, &f->e);
    for (i64 n = 0; n < 6; n++) {
        struct tensor t;
        struct err result;
        good(request_input(r, 0, 1, (i64[]){9}, &t, &f->e), &f->e);
        for (i64 i = 0; i < 9; i++) ((float *)t.data)[i] = i >= 9 - n;
        good(request_start(r, &f->e), &f->e);
        await(r, &result);
        good(!result.code && request_output(r, 0, &t, &f->e), &result);
        assert_true(t.rank == 2 && t.dim[1] == n);
        for (i64 i = 0; i < n; i++) assert_true(((float *)t.data)[i] == (float)(9 - n + i));
    }
    struct buf b = {0};
    req_trace(f->model, &b);
    assert_non_null(strstr(b.p, "BufferCopy"));
    buf_release(&b);
    request_destroy(r);
}

/* Profiles. */

static const json_t *find_event(const json_t *list, const char *name, i64 request)
{
    size_t i;
    json_t *x;
    json_array_foreach((json_t *)(uintptr_t)list, i, x) {
        const json_t *of = json_object_get(json_object_get(x, "args"), "request");
        if (!strcmp(json_string_value(json_object_get(x, "name")), name) && (request < 0 || json_integer_value(of) == request)) return x;
    }
    return NULL;
}

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

static void test_trace(void **state)
{
    struct fixture *f = *state;
    static const char *const device[] = {"SIM:0", "SIM:1"}, *const steps[] = {"ModelInit", "SubgraphInit", "RequestInit", "Wait", "SubgraphExecute", "ModelExecute"};
    struct buf b = {0};
    sim_chain(f, device, 2, 1);
    open_model(f, (struct req_model_opts){.profile = REQ_STEPS});
    time_of(f, 3, 3);
    req_trace(f->model, &b);
    json_t *trace = json_loadb(b.p, (size_t)b.n, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(trace);
    const json_t *list = json_object_get(trace, "traceEvents");
    for (i64 i = 0; i < countof(steps); i++)
        if (!find_event(list, steps[i], -1)) fail_msg("no %s in the trace", steps[i]);
    const json_t *x = find_event(list, "SubgraphExecute", 2);
    assert_true(number(x, "ts") > 1999999 && number(x, "ts") < 2000001 && number(x, "dur") > 999999); /* behind the two others */
    json_decref(trace);
    buf_release(&b);
}

/* Memory ends: each allocation fails once, from the opening to the outputs. Errors say so, and nothing is lost. */

static quern_status use(quern *q, const char *path, double *sum)
{
    quern_deployment *d = NULL;
    quern_request *r = NULL;
    quern_tensor *t = NULL;
    struct quern_deployment_opts o = QUERN_OPTS(quern_deployment_opts);
    o.threads = 2, o.profile = 1;
    quern_status s = quern_deployment_open(q, path, &o, &d);
    if (!s) s = quern_request_create(d, &r);
    if (!s) s = quern_request_random_inputs(r, "N=300", 1);
    if (!s) s = quern_request_run(r);
    if (!s) s = quern_request_output(r, 0, &t);
    for (i64 i = *sum = 0; !s && i < quern_tensor_count(t); i++) *sum += ((float *)quern_tensor_data(t))[i];
    const char *why = !s ? "" : r ? quern_request_error(r) : quern_error(q);
    if (s && (s != QUERN_SYSTEM || !strstr(why, "not enough memory"))) fail_msg("status %d: %s", s, why);
    quern_request_destroy(r);
    quern_deployment_close(d);
    return s;
}

static void test_memory(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"X64:0", "X64:1"}, *const device[] = {"interp", "interp"};
    static const i64 least[] = {0, 4096};
    const char *path = str_fmt(&f->a, "%s/net", f->dir.p).p;
    double right, sum;
    deployment_release(&f->d);
    deployment_chain(&f->d, "Net", names, device, NULL);
    good(meta_write_folder(path, &f->d.m, &f->d.files, &f->e), &f->e);
    assert_int_equal(use(f->d.q, path, &right), QUERN_OK);
    for (i64 k = 0; k < countof(least); k++) {
        i64 left = 0, n_failed = 0;
        for (i64 n = 1; !left; n += k ? 1 : 3) {
            mem_fail(n, least[k]);
            quern_status s = use(f->d.q, path, &sum);
            left = mem_fail(0, 0);
            n_failed += s != QUERN_OK;
            if (s == QUERN_OK && sum != right) fail_msg("wrong result after request %lld failed", (long long)n);
        }
        assert_true(n_failed > 0);
        assert_int_equal(use(f->d.q, path, &sum), QUERN_OK);
        assert_true(sum == right);
    }
}

/* The public interface: a folder packed and unpacked again runs alike; lists name what is there. */
static void test_forms(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"X64:0", "X64:1"}, *const device[] = {"interp", "interp"};
    const char *path[] = {str_fmt(&f->a, "%s/net", f->dir.p).p, str_fmt(&f->a, "%s/packed", f->dir.p).p, str_fmt(&f->a, "%s/again", f->dir.p).p};
    double sum, right;
    deployment_release(&f->d);
    deployment_chain(&f->d, "Net", names, device, "interp");
    quern *q = f->d.q;
    good(meta_write_folder(path[0], &f->d.m, &f->d.files, &f->e), &f->e);
    assert_int_equal(quern_deployment_pack(q, path[0], path[1]), QUERN_OK);
    assert_int_equal(quern_deployment_pack(q, path[1], path[2]), QUERN_OK);
    assert_int_not_equal(quern_deployment_pack(q, path[1], path[0]), QUERN_OK); /* exists */
    assert_int_equal(use(q, path[0], &right), QUERN_OK);
    for (int k = 0; k < 3; k++) {
        assert_true(quern_is_deployment(path[k]));
        assert_int_equal(use(q, path[k], &sum), QUERN_OK);
        assert_true(sum == right);
    }
    assert_false(quern_is_deployment("/etc/passwd") || quern_is_deployment(f->dir.p) || quern_is_deployment("/nonexistent"));
    struct quern_deployment_opts o = QUERN_OPTS(quern_deployment_opts);
    struct quern_subgraph s = QUERN_OPTS(quern_subgraph);
    struct quern_deployment_value v = QUERN_OPTS(quern_deployment_value);
    quern_deployment *d = NULL;
    quern_request *r = NULL;
    const char *role;
    int64_t size;
    int n = 0, n_fallbacks = 0;
    o.only_list = 1;
    assert_int_equal(quern_deployment_open(q, path[1], &o, &d), QUERN_OK);
    assert_int_equal(quern_request_create(d, &r), QUERN_USAGE);
    assert_true(quern_deployment_subgraph(d, 1, &s) && s.state == QUERN_SUBGRAPH_LISTED && s.operators == 1 && !strcmp(s.device, "X64:1") && s.expected > 0);
    assert_false(quern_deployment_subgraph(d, 2, &s) || quern_deployment_subgraph(d, -1, &s));
    for (const char *file; (file = quern_subgraph_file(d, 1, n, &role, &size)); n++) {
        assert_true(!strncmp(file, "Subgraph_1/", 11) && size > 0);
        n_fallbacks += !strcmp(role, "fallback");
    }
    assert_true(n == s.files && n_fallbacks == 1);
    assert_true(!strcmp(quern_deployment_device(d, 1), "X64:1") && !quern_deployment_device(d, 2) && !strcmp(quern_subgraph_operator(d, 1, 0), "op_1"));
    assert_int_equal(quern_deployment_value(d, 1, 0, &v), QUERN_OK);
    assert_true(!strcmp(v.name, "tensor_2") && v.rank == 2 && v.dim[0] == -1 && !strcmp(v.sym[0], "N") && v.dim[1] == 8 && !v.sym[1] && v.type == QUERN_F32);
    assert_int_equal(quern_deployment_value(d, 1, 1, &v), QUERN_USAGE);
    quern_deployment_close(d);
    o.devices = (const char *const[]){"X64:0", NULL};
    assert_int_equal(quern_deployment_open(q, path[1], &o, &d), QUERN_USAGE);
    o.devices = NULL, o.profile = 3;
    assert_int_equal(quern_deployment_open(q, path[1], &o, &d), QUERN_USAGE);
    assert_int_equal(quern_deployment_open(q, NULL, &o, &d), QUERN_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test_setup_teardown(test_throughput, setup, teardown),
        cmocka_unit_test_setup_teardown(test_branches, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_absent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_destroy_in_callback, setup, teardown),
        cmocka_unit_test(test_programs),
        cmocka_unit_test_setup_teardown(test_shapes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fallback, setup, teardown),
        cmocka_unit_test_setup_teardown(test_openvino, setup, teardown),
        cmocka_unit_test_setup_teardown(test_made_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forms, setup, teardown),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
