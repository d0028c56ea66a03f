// SPDX-License-Identifier: Apache-2.0
//
// The public interface with missing arguments: every function of include/quern.h that takes
// pointers gets NULL for each of them in turn. Functions with a status return QUERN_USAGE and name
// the argument; the others have no effect.
#include "core/core.h"
#include "quern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct arena a;
    struct str dir;
    quern *q;
    quern_model *m;
    quern_db *db;
    quern_program *p;
    quern_op *op;
    quern_tensor *t;
};

static void on_declared(void *user, const struct quern_declared *x) {}
static void on_attention(void *user, const struct quern_attention *x) {}
static void on_contraction(void *user, const struct quern_contraction *x) {}

static const char *in_dir(struct fixture *f, const char *name) { return str_fmt(&f->a, "%s/%s", f->dir.p, name).p; }

static int setup(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    struct err e = {0};
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    o.device = "interp";
    *state = f;
    if (!os_temp_dir(&f->a, &f->dir, &e)) return -1;
    setenv("XDG_CONFIG_HOME", f->dir.p, 1);
    f->q = quern_open(NULL);
    struct quern_gemm_shape shape = QUERN_OPTS(quern_gemm_shape);
    shape.m = shape.n = shape.k = 4;
    bool ok = quern_model_gemm(f->q, &shape, &f->m) == QUERN_OK && quern_compile(f->m, NULL, &o, &f->p) == QUERN_OK &&
              quern_db_open(f->q, ":memory:", &f->db) == QUERN_OK && quern_op_open(f->q, "Relu", NULL, NULL, &f->op) == QUERN_OK &&
              quern_tensor_new(f->q, QUERN_F32, 2, (int64_t[]){4, 4}, NULL, &f->t) == QUERN_OK;
    return ok ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    quern_tensor_free(f->t);
    quern_op_close(f->op);
    quern_db_close(f->db);
    quern_program_close(f->p);
    quern_model_close(f->m);
    quern_close(f->q);
    os_remove_tree(f->dir.p);
    arena_release(&f->a);
    mem_free(f);
    return 0;
}

/* The call returns QUERN_USAGE and names the argument; "": there is no context for the message. */
static void is_usage(struct fixture *f, quern_status s, const char *argument, const char *call)
{
    if (s != QUERN_USAGE) fail_msg("%s: %d instead of QUERN_USAGE, '%s'", call, (int)s, quern_error(f->q));
    if (*argument && !strstr(quern_error(f->q), str_fmt(&f->a, "'%s' is NULL", argument).p)) fail_msg("%s: '%s' is not about '%s'", call, quern_error(f->q), argument);
}

#define USAGE(argument, call) is_usage(f, call, argument, #call)

static void test_tensors(void **state)
{
    struct fixture *f = *state;
    quern_tensor *x;
    struct DLManagedTensor *dl;
    int64_t dim[2] = {2, 2};
    int n;
    USAGE("", quern_tensor_new(NULL, QUERN_F32, 2, dim, NULL, &x));
    USAGE("dim", quern_tensor_new(f->q, QUERN_F32, 2, NULL, NULL, &x));
    USAGE("out", quern_tensor_new(f->q, QUERN_F32, 2, dim, NULL, NULL));
    USAGE("", quern_tensor_view(NULL, QUERN_F32, 2, dim, dim, &x));
    USAGE("dim", quern_tensor_view(f->q, QUERN_F32, 2, NULL, dim, &x));
    USAGE("out", quern_tensor_view(f->q, QUERN_F32, 2, dim, dim, NULL));
    assert_int_equal(quern_tensor_view(f->q, QUERN_F32, 2, dim, NULL, &x), QUERN_USAGE);
    USAGE("", quern_tensor_cast(NULL, f->t, QUERN_F32, &x));
    USAGE("t", quern_tensor_cast(f->q, NULL, QUERN_F32, &x));
    USAGE("out", quern_tensor_cast(f->q, f->t, QUERN_F32, NULL));
    USAGE("", quern_tensor_from_dlpack(NULL, (void *)dim, &x));
    USAGE("m", quern_tensor_from_dlpack(f->q, NULL, &x));
    USAGE("out", quern_tensor_from_dlpack(f->q, (void *)dim, NULL));
    USAGE("", quern_tensor_to_dlpack(NULL, f->t, &dl));
    USAGE("t", quern_tensor_to_dlpack(f->q, NULL, &dl));
    USAGE("out", quern_tensor_to_dlpack(f->q, f->t, NULL));
    USAGE("", quern_tensor_read(NULL, "x.npy", &x));
    USAGE("path", quern_tensor_read(f->q, NULL, &x));
    USAGE("out", quern_tensor_read(f->q, "x.npy", NULL));
    USAGE("", quern_tensor_read_raw(NULL, "x.raw", QUERN_F32, 2, dim, &x));
    USAGE("path", quern_tensor_read_raw(f->q, NULL, QUERN_F32, 2, dim, &x));
    USAGE("dim", quern_tensor_read_raw(f->q, "x.raw", QUERN_F32, 2, NULL, &x));
    USAGE("out", quern_tensor_read_raw(f->q, "x.raw", QUERN_F32, 2, dim, NULL));
    USAGE("", quern_tensors_read(NULL, "x.pb", QUERN_SEQUENCE, &x, 1, &n));
    USAGE("path", quern_tensors_read(f->q, NULL, QUERN_SEQUENCE, &x, 1, &n));
    USAGE("out", quern_tensors_read(f->q, "x.pb", QUERN_SEQUENCE, NULL, 1, &n));
    USAGE("n", quern_tensors_read(f->q, "x.pb", QUERN_SEQUENCE, &x, 1, NULL));
    char name[1][256];
    USAGE("", quern_npz_read(NULL, "x.npz", &x, name, 1, &n));
    USAGE("path", quern_npz_read(f->q, NULL, &x, name, 1, &n));
    USAGE("out", quern_npz_read(f->q, "x.npz", NULL, name, 1, &n));
    USAGE("name", quern_npz_read(f->q, "x.npz", &x, NULL, 1, &n));
    USAGE("n", quern_npz_read(f->q, "x.npz", &x, name, 1, NULL));
    USAGE("", quern_tensor_write(NULL, "x.npy", f->t));
    USAGE("path", quern_tensor_write(f->q, NULL, f->t));
    USAGE("t", quern_tensor_write(f->q, in_dir(f, "x.npy"), NULL));
    struct quern_check c;
    USAGE("", quern_tensor_check(NULL, f->t, f->t, 0, 0, &c));
    USAGE("got", quern_tensor_check(f->q, NULL, f->t, 0, 0, &c));
    USAGE("want", quern_tensor_check(f->q, f->t, NULL, 0, 0, &c));
    USAGE("c", quern_tensor_check(f->q, f->t, f->t, 0, 0, NULL));
    assert_true(quern_tensor_rank(NULL) == 0 && !quern_tensor_dims(NULL) && !quern_tensor_data(NULL) && quern_tensor_count(NULL) == 0);
    assert_int_equal(quern_tensor_dtype(NULL), 0);
    quern_tensor_free(NULL);
}

static void test_programs(void **state)
{
    struct fixture *f = *state;
    quern_program *p;
    quern_tensor *in[2] = {f->t, f->t}, *out[1] = {0}, *gap[2] = {f->t, NULL};
    struct quern_array x[2] = {{.type = QUERN_F32, .rank = 2, .dim = {4, 4}, .stride = {4, 1}}}, y[1];
    struct quern_step step;
    int n;
    x[1] = x[0];
    USAGE("", quern_program_open(NULL, "x.dnx", NULL, &p));
    USAGE("path", quern_program_open(f->q, NULL, NULL, &p));
    USAGE("out", quern_program_open(f->q, "x.dnx", NULL, NULL));
    USAGE("", quern_run(NULL, in, 2, out, 1));
    USAGE("in", quern_run(f->p, NULL, 2, out, 1));
    USAGE("out", quern_run(f->p, in, 2, NULL, 1));
    assert_int_equal(quern_run(f->p, gap, 2, out, 1), QUERN_USAGE);
    assert_non_null(strstr(quern_error(f->q), "input 'b' is NULL"));
    USAGE("", quern_enqueue(NULL, x, 2, y, 1, NULL));
    USAGE("in", quern_enqueue(f->p, NULL, 2, y, 1, NULL));
    USAGE("out", quern_enqueue(f->p, x, 2, NULL, 1, NULL));
    assert_int_not_equal(quern_enqueue(f->p, x, 2, x, 1, NULL), QUERN_OK); /* arrays without data */
    USAGE("", quern_program_shape(NULL, x, 2, y, 1));
    USAGE("in", quern_program_shape(f->p, NULL, 2, y, 1));
    USAGE("out", quern_program_shape(f->p, x, 2, NULL, 1));
    USAGE("", quern_program_random_inputs(NULL, NULL, 0, in, 2, &n));
    USAGE("in", quern_program_random_inputs(f->p, NULL, 0, NULL, 2, &n));
    USAGE("n", quern_program_random_inputs(f->p, NULL, 0, in, 2, NULL));
    USAGE("", quern_program_save(NULL, "x.dnx"));
    USAGE("path", quern_program_save(f->p, NULL));
    USAGE("", quern_breakdown_write(NULL, &step, 1, "d"));
    USAGE("steps", quern_breakdown_write(f->p, NULL, 1, "d"));
    USAGE("dir", quern_breakdown_write(f->p, &step, 0, NULL));
    quern_state *s = NULL;
    USAGE("", quern_state_create(NULL, 4, NULL, &s));
    USAGE("out", quern_state_create(f->p, 4, NULL, NULL));
    USAGE("", quern_state_fork(NULL, &s));
    USAGE("", quern_state_copy(NULL, NULL));
    USAGE("", quern_state_truncate(NULL, 0));
    USAGE("", quern_state_run(NULL, in, 2, out, 1));
    USAGE("", quern_state_save(NULL, "x"));
    USAGE("", quern_state_load(NULL, "x"));
    assert_true(!quern_state_length(NULL) && !quern_state_max(NULL) && !quern_state_memory(NULL));
    assert_true(!quern_state_holds_input(NULL, 0) && !quern_state_holds_output(NULL, 0));
    quern_state_destroy(NULL);
    int64_t dim[8];
    const char *size[8];
    quern_program *const all[] = {NULL, f->p};
    for (int k = 0; k < 2; k++) /* of no program, and inputs that there are not */
        for (int i = k ? 2 : 0; i >= -1; i -= 3) {
            assert_true(!quern_program_input_name(all[k], i) && !quern_program_output_name(all[k], i) && !quern_program_input_dtype(all[k], i));
            assert_true(!*quern_program_input_layout(all[k], i) && !*quern_program_output_layout(all[k], i) && !quern_program_input_shape(all[k], i, dim, size));
        }
    assert_true(!quern_program_output_dtype(NULL, 0) && !quern_program_output_shape(NULL, 0, dim, size) && !quern_program_output_shape(f->p, 1, dim, size));
    assert_true(quern_program_output_dtype(f->p, 0) == QUERN_F32 && quern_program_output_shape(f->p, 0, dim, size) == 2 && dim[0] == 4 && !size[0]);
    struct quern_program_facts facts = QUERN_OPTS(quern_program_facts);
    USAGE("", quern_program_facts(NULL, &facts));
    USAGE("out", quern_program_facts(f->p, NULL));
    assert_int_equal(quern_program_facts(f->p, &facts), QUERN_OK);
    assert_string_equal(facts.device, "interp");
    assert_true(*facts.fingerprint && facts.dispatches == 1 && facts.constants == 0 && !*facts.sizes && !*facts.isa && facts.size == sizeof facts);
    char *text = NULL;
    USAGE("", quern_program_explain(NULL, &text));
    USAGE("text", quern_program_explain(f->p, NULL));
    assert_int_equal(quern_program_explain(f->p, &text), QUERN_OK);
    assert_non_null(text);
    quern_text_free(text);
    assert_true(quern_program_inputs(NULL) == 0 && quern_program_outputs(NULL) == 0 && quern_profile_steps(NULL, &step, 1) == 0);
    assert_true(quern_profile_steps(f->p, NULL, 1) == 0 && quern_profile_steps(f->p, NULL, 0) > 0);
    assert_true(quern_program_seconds(NULL) == 0 && quern_program_memory(NULL) == 0);
    quern_profile(NULL, 1);
    quern_program_close(NULL);
}

static quern_status no_sample(void *user, int k, quern_tensor **in, int n_in) { return QUERN_NOTHING; }

static void test_models(void **state)
{
    struct fixture *f = *state;
    quern_model *m;
    quern_program *p;
    quern_tensor *in[2] = {f->t, f->t}, *out[1] = {0}, *gap[2] = {f->t, NULL};
    struct quern_file_value v = QUERN_OPTS(quern_file_value);
    struct quern_report r = QUERN_OPTS(quern_report);
    struct quern_model_opts o = QUERN_OPTS(quern_model_opts);
    struct quern_check c;
    char *text;
    int n;
    USAGE("", quern_model_open(NULL, "x.onnx", NULL, &m));
    USAGE("path", quern_model_open(f->q, NULL, NULL, &m));
    USAGE("out", quern_model_open(f->q, "x.onnx", NULL, NULL));
    o.n_constants = 1;
    USAGE("constants", quern_model_open(f->q, "x.onnx", &o, &m));
    o.n_constants = 0, o.n_io = 1;
    USAGE("io", quern_model_open(f->q, "x.onnx", &o, &m));
    USAGE("io", quern_model_problems(f->q, "x.onnx", &o, NULL, NULL, &r));
    USAGE("", quern_model_read(NULL, "x", 1, "x", NULL, &m));
    USAGE("data", quern_model_read(f->q, NULL, 1, "x", NULL, &m));
    USAGE("name", quern_model_read(f->q, "x", 1, NULL, NULL, &m));
    USAGE("out", quern_model_read(f->q, "x", 1, "x", NULL, NULL));
    USAGE("", quern_file_value(NULL, "x.onnx", 0, 0, &v));
    USAGE("path", quern_file_value(f->q, NULL, 0, 0, &v));
    USAGE("v", quern_file_value(f->q, "x.onnx", 0, 0, NULL));
    USAGE("", quern_model_zoo(NULL, "resnet50", &m));
    USAGE("name", quern_model_zoo(f->q, NULL, &m));
    USAGE("out", quern_model_zoo(f->q, "resnet50", NULL));
    USAGE("", quern_model_zoo_sized(NULL, "resnet50", NULL, 1, &m));
    USAGE("name", quern_model_zoo_sized(f->q, NULL, NULL, 1, &m));
    USAGE("out", quern_model_zoo_sized(f->q, "resnet50", NULL, 1, NULL));
    USAGE("", quern_model_problems(NULL, "x.onnx", NULL, NULL, NULL, &r));
    USAGE("path", quern_model_problems(f->q, NULL, NULL, NULL, NULL, &r));
    USAGE("r", quern_model_problems(f->q, "x.onnx", NULL, NULL, NULL, NULL));
    USAGE("", quern_model_contractions(NULL, NULL, on_contraction, NULL));
    USAGE("each", quern_model_contractions(f->m, NULL, NULL, NULL));
    USAGE("", quern_declared_inputs(NULL, "x.onnx", on_declared, NULL));
    USAGE("path", quern_declared_inputs(f->q, NULL, on_declared, NULL));
    USAGE("each", quern_declared_inputs(f->q, "x.onnx", NULL, NULL));
    USAGE("", quern_model_attentions(NULL, NULL, on_attention, NULL));
    USAGE("each", quern_model_attentions(f->m, NULL, NULL, NULL));
    USAGE("", quern_model_save(NULL, "x.onnx"));
    USAGE("path", quern_model_save(f->m, NULL));
    USAGE("", quern_model_text(NULL, &text));
    USAGE("text", quern_model_text(f->m, NULL));
    USAGE("", quern_model_optimize_for(NULL, "H:1"));
    USAGE("sizes", quern_model_optimize_for(f->m, NULL));
    char *json = NULL;
    struct quern_allocate_opts place = QUERN_OPTS(quern_allocate_opts);
    USAGE("", quern_allocate(NULL, NULL, &place, &json));
    USAGE("options", quern_allocate(f->m, NULL, NULL, &json));
    USAGE("json", quern_allocate(f->m, NULL, &place, NULL));
    USAGE("", quern_quantize(NULL, no_sample, NULL, NULL, &m));
    USAGE("sample", quern_quantize(f->m, NULL, NULL, NULL, &m));
    USAGE("out", quern_quantize(f->m, no_sample, NULL, NULL, NULL));
    USAGE("", quern_model_eval(NULL, in, 2, out, 1));
    USAGE("in", quern_model_eval(f->m, NULL, 2, out, 1));
    USAGE("out", quern_model_eval(f->m, in, 2, NULL, 1));
    assert_int_equal(quern_model_eval(f->m, gap, 2, out, 1), QUERN_USAGE);
    USAGE("", quern_model_random_inputs(NULL, NULL, 0, in, 2, &n));
    USAGE("in", quern_model_random_inputs(f->m, NULL, 0, NULL, 2, &n));
    USAGE("n", quern_model_random_inputs(f->m, NULL, 0, in, 2, NULL));
    USAGE("", quern_compile(NULL, NULL, NULL, &p));
    USAGE("out", quern_compile(f->m, NULL, NULL, NULL));
    USAGE("", quern_verify(NULL, f->p, NULL, 0, &c, 1, &n));
    USAGE("p", quern_verify(f->m, NULL, NULL, 0, &c, 1, &n));
    USAGE("c", quern_verify(f->m, f->p, NULL, 0, NULL, 1, &n));
    USAGE("n", quern_verify(f->m, f->p, NULL, 0, &c, 1, NULL));
    USAGE("", quern_model_gemm(NULL, &(struct quern_gemm_shape){0}, &m));
    USAGE("shape", quern_model_gemm(f->q, NULL, &m));
    USAGE("out", quern_model_gemm(f->q, &(struct quern_gemm_shape){0}, NULL));
    struct quern_attention_shape shape = QUERN_OPTS(quern_attention_shape);
    struct quern_attention_facts facts = QUERN_OPTS(quern_attention_facts);
    struct quern_attention_count count = QUERN_OPTS(quern_attention_count);
    USAGE("", quern_attention_name(NULL, "kcg_", &shape));
    USAGE("name", quern_attention_name(f->q, NULL, &shape));
    USAGE("out", quern_attention_name(f->q, "kcg_", NULL));
    USAGE("", quern_model_attention(NULL, &shape, &m));
    USAGE("shape", quern_model_attention(f->q, NULL, &m));
    USAGE("out", quern_model_attention(f->q, &shape, NULL));
    USAGE("", quern_attention_space(NULL, &shape, 32, &text));
    USAGE("shape", quern_attention_space(f->q, NULL, 32, &text));
    USAGE("text", quern_attention_space(f->q, &shape, 32, NULL));
    USAGE("", quern_attention_facts(NULL, &shape, &facts));
    USAGE("shape", quern_attention_facts(f->q, NULL, &facts));
    USAGE("out", quern_attention_facts(f->q, &shape, NULL));
    USAGE("", quern_attention_points(NULL, "x.json", &shape, NULL, &count));
    USAGE("path", quern_attention_points(f->q, NULL, &shape, NULL, &count));
    USAGE("shape", quern_attention_points(f->q, "x.json", NULL, NULL, &count));
    USAGE("count", quern_attention_points(f->q, "x.json", &shape, NULL, NULL));
    struct quern_gemm_best best;
    USAGE("", quern_attention_tiles(NULL, "x.json", &shape, NULL, &best));
    USAGE("what", quern_attention_tiles(f->db, NULL, &shape, NULL, &best));
    USAGE("shape", quern_attention_tiles(f->db, "x.json", NULL, NULL, &best));
    USAGE("best", quern_attention_tiles(f->db, "x.json", &shape, NULL, NULL));
    int64_t dim[8];
    const char *size[8];
    quern_model *const all[] = {NULL, f->m};
    for (int k = 0; k < 2; k++)
        for (int i = k ? 2 : 0; i >= -1; i -= 3) {
            assert_true(!quern_model_input_name(all[k], i) && !quern_model_input_dtype(all[k], i) && !*quern_model_input_layout(all[k], i));
            assert_int_equal(quern_model_input_shape(all[k], i, dim, size), 0);
        }
    assert_true(quern_model_inputs(NULL) == 0 && quern_model_is_random(NULL) == 0 && quern_operator_at(0, NULL) == 0);
    assert_true(quern_zoo_size("gpt2", 0, NULL) == 0 && quern_zoo_size(NULL, 0, &(struct quern_zoo_size){sizeof(struct quern_zoo_size), NULL, NULL, 0, 0}) == 0);
    quern_model_close(NULL);
}

static void test_databases(void **state)
{
    struct fixture *f = *state;
    quern_db *db;
    char *text;
    int64_t n;
    struct quern_gemm_best best;
    struct quern_gemm_found found;
    struct quern_gemm_shape shape = QUERN_OPTS(quern_gemm_shape);
    USAGE("", quern_db_open(NULL, ":memory:", &db));
    USAGE("path", quern_db_open(f->q, NULL, &db));
    USAGE("out", quern_db_open(f->q, ":memory:", NULL));
    USAGE("", quern_populate(NULL, f->m, NULL));
    USAGE("m", quern_populate(f->db, NULL, NULL));
    USAGE("", quern_tune(NULL, f->m, NULL));
    USAGE("m", quern_tune(f->db, NULL, NULL));
    USAGE("", quern_bench(NULL, NULL));
    USAGE("", quern_db_stats(NULL, &text));
    USAGE("json", quern_db_stats(f->db, NULL));
    USAGE("", quern_db_export(NULL, "x.csv"));
    USAGE("csv", quern_db_export(f->db, NULL));
    USAGE("", quern_db_merge(NULL, "x.db", &n));
    USAGE("other", quern_db_merge(f->db, NULL, &n));
    USAGE("n_new", quern_db_merge(f->db, "x.db", NULL));
    USAGE("", quern_db_prune(NULL, "failed", &n));
    USAGE("what", quern_db_prune(f->db, NULL, &n));
    USAGE("n_gone", quern_db_prune(f->db, "failed", NULL));
    USAGE("", quern_gemm(NULL, "x.json", NULL, &best));
    USAGE("config", quern_gemm(f->db, NULL, NULL, &best));
    USAGE("best", quern_gemm(f->db, "x.json", NULL, NULL));
    USAGE("", quern_gemm_find(NULL, &shape, NULL, &found));
    USAGE("shape", quern_gemm_find(f->db, NULL, NULL, &found));
    USAGE("out", quern_gemm_find(f->db, &shape, NULL, NULL));
    USAGE("", quern_gemm_space(NULL, &shape, 32, &text));
    USAGE("shape", quern_gemm_space(f->q, NULL, 32, &text));
    USAGE("text", quern_gemm_space(f->q, &shape, 32, NULL));
    USAGE("", quern_conv(NULL, NULL, NULL, NULL));
    USAGE("", quern_plot(NULL, "d"));
    USAGE("dir", quern_plot(f->q, NULL));
    USAGE("", quern_graph_write(NULL, NULL, NULL, "x.json"));
    USAGE("path", quern_graph_write(f->m, NULL, NULL, NULL));
    USAGE("", quern_graph_text(NULL, NULL, NULL, &text));
    USAGE("text", quern_graph_text(f->m, NULL, NULL, NULL));
    quern_db_close(NULL);
}

static void test_operators(void **state)
{
    struct fixture *f = *state;
    quern_op *op;
    quern_model *m;
    struct quern_array x = {.type = QUERN_F32, .rank = 1, .dim = {4}, .stride = {1}}, y = x;
    USAGE("", quern_op_open(NULL, "Relu", NULL, NULL, &op));
    USAGE("op", quern_op_open(f->q, NULL, NULL, NULL, &op));
    USAGE("out", quern_op_open(f->q, "Relu", NULL, NULL, NULL));
    USAGE("", quern_op_model(NULL, &x, 1, &y, 1, &m));
    USAGE("in", quern_op_model(f->op, NULL, 1, &y, 1, &m));
    USAGE("model", quern_op_model(f->op, &x, 1, &y, 1, NULL));
    USAGE("", quern_op_shape(NULL, &x, 1, &y, 1));
    USAGE("in", quern_op_shape(f->op, NULL, 1, &y, 1));
    USAGE("out", quern_op_shape(f->op, &x, 1, NULL, 1));
    USAGE("", quern_op_run(NULL, &x, 1, &y, 1));
    USAGE("in", quern_op_run(f->op, NULL, 1, &y, 1));
    USAGE("out", quern_op_run(f->op, &x, 1, NULL, 1));
    assert_int_not_equal(quern_op_run(f->op, &x, 1, &y, 1), QUERN_OK); /* arrays without data */
    USAGE("", quern_op_enqueue(NULL, &x, 1, &y, 1, NULL));
    USAGE("in", quern_op_enqueue(f->op, NULL, 1, &y, 1, NULL));
    USAGE("out", quern_op_enqueue(f->op, &x, 1, NULL, 1, NULL));
    quern_op_close(NULL);
}

static void test_rest(void **state)
{
    struct fixture *f = *state;
    char *text, id[33];
    const char *file[] = {"x.onnx"}, *none[] = {NULL};
    struct quern_export_opts o = QUERN_OPTS(quern_export_opts);
    USAGE("", quern_export(NULL, file, 1, "x", &o));
    USAGE("file", quern_export(f->q, NULL, 1, "x", &o));
    USAGE("file[k]", quern_export(f->q, none, 1, "x", &o));
    USAGE("o", quern_export(f->q, file, 1, "x", NULL));
    assert_int_equal(quern_export(f->q, file, 1, "x", &o), QUERN_USAGE); /* to no form */
    USAGE("", quern_explain(NULL, "x.dnx", &text));
    USAGE("dnx", quern_explain(f->q, NULL, &text));
    USAGE("text", quern_explain(f->q, "x.dnx", NULL));
    USAGE("", quern_show(NULL, "x.dnx", &text));
    USAGE("path", quern_show(f->q, NULL, &text));
    USAGE("text", quern_show(f->q, "x.dnx", NULL));
    size_t size;
    USAGE("", quern_cache_get(NULL, "k", 1, &text, &size));
    USAGE("key", quern_cache_get(f->q, NULL, 1, &text, &size));
    USAGE("data", quern_cache_get(f->q, "k", 1, NULL, &size));
    USAGE("size", quern_cache_get(f->q, "k", 1, &text, NULL));
    USAGE("", quern_cache_put(NULL, "k", 1, "v", 1));
    USAGE("key", quern_cache_put(f->q, NULL, 1, "v", 1));
    USAGE("data", quern_cache_put(f->q, "k", 1, NULL, 1));
    USAGE("", quern_devices(NULL, &text));
    USAGE("json", quern_devices(f->q, NULL));
    USAGE("", quern_key_new(NULL, "x.key", "x.pub"));
    USAGE("private_path", quern_key_new(f->q, NULL, "x.pub"));
    USAGE("public_path", quern_key_new(f->q, "x.key", NULL));
    USAGE("", quern_key_id(NULL, "x.key", id));
    USAGE("path", quern_key_id(f->q, NULL, id));
    USAGE("id", quern_key_id(f->q, "x.key", NULL));
    USAGE("", quern_key_trust(NULL, "x.pub", "x"));
    USAGE("public_path", quern_key_trust(f->q, NULL, "x"));
    USAGE("name", quern_key_trust(f->q, "x.pub", NULL));
    USAGE("", quern_key_distrust(NULL, "x"));
    USAGE("name_or_id", quern_key_distrust(f->q, NULL));
    USAGE("", quern_key_list(NULL, &text));
    USAGE("json", quern_key_list(f->q, NULL));
    USAGE("", quern_sign(NULL, "x.dnx", "x.key", 0, NULL));
    USAGE("dnx", quern_sign(f->q, NULL, "x.key", 0, NULL));
    USAGE("private_path", quern_sign(f->q, "x.dnx", NULL, 0, NULL));
    assert_non_null(quern_error(NULL));
    quern_text_free(NULL);
    quern_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),   cmocka_unit_test(test_programs), cmocka_unit_test(test_models),
        cmocka_unit_test(test_databases), cmocka_unit_test(test_operators), cmocka_unit_test(test_rest),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
