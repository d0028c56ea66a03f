// SPDX-License-Identifier: Apache-2.0
//
// The verification of contractions must fail. Planted kernels, compiled from C text: one wrong tap, swapped axes, a border that is not
// written, a constant image, a sum in parts that counts terms twice, and others, in all seven layers of CosmoFlow with fewer channels and
// pixels. The verdict of the criterion that decreases with the number of outputs is computed with the layers' true sizes.
// Gradients of weights have faults of their own. Generated kernels of random contractions must pass; of those with one number of their text changed, all that pass must be the same.
#include "lab/conv.h"
#include "tune/verify.h"
#include "gen_fixture.h"
#include "gen_tasks.h"

struct layer { i64 c, size, m, true_size, true_m; }; /* channels, pixels along each axis, output channels;
                                                        without pads, kernel 3x3x3 */
static const struct layer layers[] = {
    {1, 18, 16, 130, 16}, {16, 10, 32, 66, 32}, {32, 8, 32, 34, 64}, {64, 6, 32, 18, 128}, {128, 5, 16, 10, 256}, {256, 4, 16, 6, 256}, {256, 4, 32, 4, 256},
};
enum { TRUE_BATCH = 16, BATCH = 2 };

enum fault { RIGHT, WRONG_TAP, SWAPPED, BORDER, CONSTANT, SPLIT, ADDS, BEHIND, KEEPS, ONCE, CHANNELS, FLIPPED, N_FAULTS };

static const char source[] =
    "#include <stdint.h>\n"
    "enum { RIGHT, WRONG_TAP, SWAPPED, BORDER, CONSTANT, SPLIT, ADDS, BEHIND, KEEPS, ONCE, CHANNELS, FLIPPED };\n"
    "static float term(const float *x, const float *w, int f, int m, int d, int h, int v, int k) {\n"
    "    int c = k / 27, t = k % 27, a = t / 9, b = t / 3 % 3, e = t % 3;\n"
    "    if (f == FLIPPED) t = 26 - t;\n"
    "    if (f == WRONG_TAP && m == 1 && c == C - 1 && t == 5) t = 6;\n"
    "    int p = f == SWAPPED ? ((d + a) * S + v + e) * S + h + b : ((d + a) * S + h + b) * S + v + e;\n"
    "    int from = f == CHANNELS && C > 1 ? c ^ 1 : c;\n"
    "    return x[from * S * S * S + p] * w[(m * C + c) * 27 + t];\n}\n"
    "static float sum(const float *x, const float *w, int f, int m, int d, int h, int v) {\n"
    "    float s = 0;\n    int n = C == 1 ? 4 : C / 2, part = 27 * C / n;\n"
    "    if (f == CONSTANT) return 27.0f * C / 4;\n"
    "    if (f != SPLIT) for (int k = 0; k < 27 * C; k++) s += term(x, w, f, m, d, h, v, k);\n"
    "    else for (int i = 0; i < n; i++) for (int k = i * part; k < (i + 1) * part; k += 4)\n"
    "        for (int j = 0; j < 4 && k + j < 27 * C; j++) s += term(x, w, f, m, d, h, v, k + j);\n"
    "    return s;\n}\n"
    "static void conv(void *const *buf, int64_t begin, int f) {\n"
    "    enum { O = S - 2 };\n"
    "    const float *x = buf[X], *w = buf[W];\n    float *y = buf[Y];\n    static int n_runs;\n    static float kept[M * C * 27];\n"
    "    if (begin) return;\n    n_runs++;\n"
    "    for (int i = 0; f == KEEPS && n_runs == 1 && i < M * C * 27; i++) kept[i] = w[i];\n"
    "    if (f == KEEPS) w = kept;\n    if (f == ONCE && n_runs > 1) return;\n"
    "    for (int n = 0; n < N; n++) for (int m = 0; m < M; m++) for (int d = 0; d < O; d++) for (int h = 0; h < O; h++) for (int v = 0; v < O; v++) {\n"
    "        float *to = &y[(((n * M + m) * O + d) * O + h) * O + v];\n"
    "        if (f == BORDER && m == M - 1 && n == N - 1 && h == O - 1) continue;\n"
    "        *to = sum(x + n * C * S * S * S, w, f, m, d, h, v) + (f == ADDS ? *to : 0);\n    }\n"
    "    if (f == BEHIND) y[N * M * O * O * O] = 1;\n}\n";

/* Of gradients of weights; x and dy are the inputs. */
enum grad_fault { G_RIGHT, G_WRONG_TAP, G_SWAPPED, G_FLIPPED, G_UNWRITTEN, G_CONSTANT, G_ONE_IMAGE, G_CORNER, G_TWICE, G_OTHER_CHANNEL, N_GRAD_FAULTS };

static const char grad_source[] =
    "#include <stdint.h>\n"
    "enum { RIGHT, WRONG_TAP, SWAPPED, FLIPPED, UNWRITTEN, CONSTANT, ONE_IMAGE, CORNER, TWICE, OTHER_CHANNEL, O = S - 2 };\n"
    "static float sum(const float *x, const float *dy, int f, int m, int c, int a, int b, int e) {\n"
    "    float s = 0;\n"
    "    if (f == CONSTANT) return N * O * O * O / 4.0f;\n"
    "    if (f == FLIPPED) a = 2 - a, b = 2 - b, e = 2 - e;\n"
    "    if (f == WRONG_TAP && m == 1 && c == C - 1 && a == 2 && b == 0 && e == 1) e = 2;\n"
    "    if (f == OTHER_CHANNEL && m == M - 1) m = 0;\n"
    "    for (int n = 0; n < (f == ONE_IMAGE ? N - 1 : N); n++)\n"
    "        for (int d = 0; d < O; d++) for (int h = 0; h < O; h++) for (int v = 0; v < O; v++) {\n"
    "            int p = f == SWAPPED ? ((d + a) * S + v + e) * S + h + b : ((d + a) * S + h + b) * S + v + e;\n"
    "            float z = x[(n * C + c) * S * S * S + p] * dy[(n * M + m) * O * O * O + (d * O + h) * O + v];\n"
    "            if (f == CORNER && n == 0 && d == O - 1 && h == O - 1 && v == O - 1) z = 0;\n"
    "            s += f == TWICE && d == 0 ? 2 * z : z;\n        }\n"
    "    return s;\n}\n"
    "static void conv(void *const *buf, int64_t begin, int f) {\n"
    "    float *y = buf[Y];\n"
    "    if (begin) return;\n"
    "    for (int m = 0; m < M; m++) for (int c = 0; c < C; c++) for (int k = 0; k < 27; k++)\n"
    "        if (f != UNWRITTEN || m != M - 1 || k != 26) y[(m * C + c) * 27 + k] = sum(buf[X], buf[W], f, m, c, k / 9, k / 3 % 3, k % 3);\n}\n";

struct plant {
    struct arena arena;
    struct symtab sym;
    struct task task;
    struct kernel kernel;
    struct caps caps;
    struct verify_opts o;
    struct subject s;
    struct err e;
};

static void open_row(struct plant *p, const struct conv_row *r, enum dtype type)
{
    *p = (struct plant){.o = {.trial = {.driver = dev_find(S("cpu")), .dev = {.n_threads = 1}, .timeout = 30}, .seed = 3, .max_terms = 2000000}};
    symtab_init(&p->sym, &p->arena);
    if (!conv_row_task(&p->task, &p->arena, &p->sym, r, type, LAYOUT_ROWS, &p->e)) fail_msg("%s", p->e.msg);
    assert_true(dev_ask(p->o.trial.driver, &p->o.trial.dev, &p->caps, NULL, &p->e));
}

static void open_layer(struct plant *p, const struct layer *l, enum conv_pass pass)
{
    open_row(p, &(struct conv_row){.pass = pass, .axes = 3, .batch = BATCH, .channels = l->c, .out_channels = l->m, .groups = 1, .size = {l->size, l->size, l->size},
                                   .kernel = {3, 3, 3}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}}, DT_F32);
}

/* The arguments of kernels element by element, and code of all faults. */
static void plant_source(struct plant *p, const struct layer *l, const char *kernels, int n_faults)
{
    value_id x = graph_node(&p->task.g, p->task.anchor)->in.v[0];
    struct candidate c = gen_initial(gen_find(S("elementwise")), &p->task, &p->caps, NULL);
    struct buf text = {0}, code = {0};
    const struct lang *lang = lang_find(S("c"));
    if (!gen_kernel(&p->kernel, &p->arena, &c, &p->task, &p->caps, &p->e)) fail_msg("%s", p->e.msg);
    assert_true(p->kernel.n_arg == 3 && p->kernel.n_grid == 1);
    buf_printf(&text, "enum { N = %d, C = %lld, S = %lld, M = %lld", BATCH, (long long)l->c, (long long)l->size, (long long)l->m);
    for (u32 i = 0; i < 3; i++) {
        const struct kernel_arg *a = &p->kernel.arg[i];
        assert_true(!a->pack);
        buf_printf(&text, ", %s = %u", a->is_out ? "Y" : a->v == x ? "X" : "W", i);
    }
    buf_printf(&text, " };\n%s", kernels);
    for (int f = 0; f < n_faults; f++)
        buf_printf(&text, "void fault%d_0(void *const *buf, const int64_t *param, int64_t begin, int64_t end, void *work) { conv(buf, begin, %d); }\n", f, f);
    if (!lang->build(&code, buf_view(&text), &p->caps, 60, &p->e)) fail_msg("%s", p->e.msg);
    p->s = (struct subject){.kernel = p->kernel, .code = str_dup(&p->arena, buf_view(&code))};
    buf_release(&text);
    buf_release(&code);
}

static void plant_faults(struct plant *p, const struct layer *l) { plant_source(p, l, source, N_FAULTS); }

static void close_layer(struct plant *p)
{
    struct arena a = p->arena;
    arena_release(&a);
}

static void check_fault(struct plant *p, int f, struct verify_report *r)
{
    struct subject s = p->s;
    snprintf(s.kernel.name, sizeof s.kernel.name, "fault%d", f);
    if (!verify_contraction(r, &p->task, NULL, &s, &p->o, &p->e)) fail_msg("%s", p->e.msg);
    if (!getenv("VERBOSE")) return;
    struct buf b = {0};
    verify_print(&b, r);
    printf("fault %d: %s", f, b.p);
    buf_release(&b);
}

/* With the layer's own number of outputs, from the errors of one. */
static double true_figure(const struct verify_report *r, const struct layer *l)
{
    const struct verify_found *f = &r->result[VERIFY_UNIT].found;
    double side = (double)l->true_size - 2;
    return conv_seed_figure(sqrt(f->err2 / (double)f->n_seen), TRUE_BATCH * (double)l->true_m * side * side * side);
}

static bool is_wrong(const struct verify_report *r, enum verify_case k) { return r->result[k].n_rounds && r->result[k].status == TRIAL_WRONG; }

/* Which content shows which fault. */
static bool is_caught(const struct verify_report *r, enum fault f, const struct layer *l)
{
    bool all = is_wrong(r, VERIFY_RANDOM) && is_wrong(r, VERIFY_INTEGERS);
    bool kept = is_wrong(r, VERIFY_INTEGERS) && strstr(r->result[VERIFY_INTEGERS].reason, "after a run on other inputs");
    switch (f) {
    case RIGHT: return r->ok;
    case CHANNELS: return l->c == 1 ? r->ok : !r->ok && all && is_wrong(r, VERIFY_TAPS) && is_wrong(r, VERIFY_POINTS);
    case WRONG_TAP: return !r->ok && is_wrong(r, VERIFY_INTEGERS) && r->result[VERIFY_INTEGERS].found.worst >= 0;
    case SWAPPED: case FLIPPED: return !r->ok && all && is_wrong(r, VERIFY_TAPS) && is_wrong(r, VERIFY_POINTS);
    case BORDER: return !r->ok && all && is_wrong(r, VERIFY_TAPS) && r->result[VERIFY_RANDOM].found.n_nonfinite == (l->size - 2) * (l->size - 2);
    case CONSTANT: case SPLIT: return !r->ok && all;
    case ADDS: return !r->ok && all && r->result[VERIFY_RANDOM].found.n_nonfinite == r->n_outputs;
    case BEHIND: return !r->ok && r->result[VERIFY_RANDOM].status == TRIAL_BOUNDS && strstr(r->result[VERIFY_RANDOM].reason, "after buffer");
    case KEEPS: case ONCE: return !r->ok && kept;
    case N_FAULTS: break;
    }
    unreachable();
}

static void compile(struct plant *p, const struct candidate *c)
{
    struct buf text = {0}, code = {0};
    const struct lang *lang = lang_find(S("c"));
    bool ok = gen_kernel(&p->kernel, &p->arena, c, &p->task, &p->caps, &p->e) &&
              lang_render(&text, lang, &p->kernel.kir, &p->caps, &p->arena, &p->e) &&
              lang->build(&code, buf_view(&text), &p->caps, 60, &p->e);
    if (!ok) fail_msg("%s", p->e.msg);
    p->s = (struct subject){.kernel = p->kernel, .code = str_dup(&p->arena, buf_view(&code))};
    buf_release(&text);
    buf_release(&code);
}

/* Fewer products have larger errors, which are allowed as far as their transforms explain them; faults are found all the same. */
static void test_fewer_products(void **state)
{
    static const char *const schedules[] = {"m=2 mz=1", "m=2 mz=2", "m=4 mz=2", "m=6 mz=1"};
    const struct layer l = {32, 10, 16, 0, 0};
    struct plant p;
    struct verify_report r;
    open_layer(&p, &l, CONV_FORWARD);
    struct candidate c = gen_initial(gen_find(S("conv_winograd")), &p.task, &p.caps, NULL);
    if (!gen_matches(c.gen, &p.task, &p.caps)) skip_test("no convolution with fewer products for this processor");
    double least = 1;
    for (i64 k = 0; k < countof(schedules); k++) {
        i32 m = schedules[k][2] - '0', mz = schedules[k][7] - '0';
        set_value(&c, "m", m);
        set_value(&c, "mz", mz);
        if (!gen_repair(&c, &p.task, &p.caps)) continue;
        compile(&p, &c);
        p.o.growth = gen_growth(&c);
        assert_true(p.o.growth > least);
        if (!verify_contraction(&r, &p.task, NULL, &p.s, &p.o, &p.e)) fail_msg("%s", p.e.msg);
        struct buf b = {0};
        verify_print(&b, &r);
        if (getenv("VERBOSE")) printf("%s, growth %g: %s", schedules[k], p.o.growth, b.p);
        if (!r.ok) fail_msg("%s: %s", schedules[k], b.p);
        buf_release(&b);
    }
    plant_faults(&p, &l);
    for (int f = (int)first_seed(0, N_FAULTS); f < (int)last_seed(0, N_FAULTS); f++) {
        check_fault(&p, f, &r);
        if (r.ok != (f == RIGHT)) fail_msg("fault %d", f);
    }
    close_layer(&p);
}

static void test_planted(void **state)
{
    for (u64 k = first_seed(0, countof(layers)); k < last_seed(0, countof(layers)); k++) {
        struct plant p;
        open_layer(&p, &layers[k], CONV_FORWARD);
        plant_faults(&p, &layers[k]);
        for (int f = 0; f < N_FAULTS; f++) {
            struct verify_report r;
            check_fault(&p, f, &r);
            struct buf b = {0};
            verify_print(&b, &r);
            if (!is_caught(&r, (enum fault)f, &layers[k])) fail_msg("layer %u, fault %d: %s", (u32)k, f, b.p);
            buf_release(&b);
        }
        close_layer(&p);
    }
}

/* A kernel that cannot be loaded gives no outputs: it did not run, which is not the same as wrong. */
static void test_not_run(void **state)
{
    struct plant p;
    struct verify_report r;
    struct buf b = {0};
    open_layer(&p, &layers[0], CONV_FORWARD);
    plant_faults(&p, &layers[0]);
    check_fault(&p, N_FAULTS + 1, &r); /* no such function */
    assert_false(r.ok);
    struct str verdict = verify_verdict(&r, &p.arena);
    if (!str_starts(verdict, S("did not run: "))) fail_msg("%.*s", STR_ARG(verdict));
    verify_print(&b, &r);
    assert_true(str_starts(buf_view(&b), S("did not run")));
    check_fault(&p, RIGHT, &r);
    assert_true(str_is(verify_verdict(&r, &p.arena), "right"));
    buf_release(&b);
    close_layer(&p);
}

/* One position left out is one term of an output; it is the exact content that shows it, and all the others. */
static bool is_grad_caught(const struct verify_report *r, enum grad_fault f)
{
    bool all = is_wrong(r, VERIFY_RANDOM) && is_wrong(r, VERIFY_INTEGERS);
    switch (f) {
    case G_RIGHT: return r->ok;
    case G_SWAPPED: case G_FLIPPED: return !r->ok && all && is_wrong(r, VERIFY_TAPS) && is_wrong(r, VERIFY_POINTS);
    case G_UNWRITTEN: return !r->ok && all && is_wrong(r, VERIFY_TAPS) && r->result[VERIFY_RANDOM].found.n_nonfinite == r->n_outputs / r->dim[0] / 27;
    case G_OTHER_CHANNEL: return !r->ok && all && is_wrong(r, VERIFY_POINTS);
    case G_CONSTANT: case G_TWICE: return !r->ok && all;
    case G_WRONG_TAP: return !r->ok && (is_wrong(r, VERIFY_INTEGERS) || is_wrong(r, VERIFY_TAPS) || is_wrong(r, VERIFY_POINTS)); /* one output */
    case G_ONE_IMAGE: case G_CORNER: return !r->ok && is_wrong(r, VERIFY_INTEGERS);
    case N_GRAD_FAULTS: break;
    }
    unreachable();
}

static void test_planted_gradients(void **state)
{
    for (u64 k = first_seed(0, countof(layers)); k < last_seed(0, countof(layers)); k++) {
        struct plant p;
        open_layer(&p, &layers[k], CONV_WEIGHTS);
        plant_source(&p, &layers[k], grad_source, N_GRAD_FAULTS);
        for (int f = 0; f < N_GRAD_FAULTS; f++) {
            struct verify_report r;
            check_fault(&p, f, &r);
            struct buf b = {0};
            verify_print(&b, &r);
            if (!is_grad_caught(&r, (enum grad_fault)f)) fail_msg("layer %u, fault %d: %s", (u32)k, f, b.p);
            buf_release(&b);
        }
        close_layer(&p);
    }
}

/* Bias and activation: correct kernels pass, and a kernel with another activation fails. */
static void test_fused(void **state)
{
    struct conv_row r = {.axes = 2, .batch = 2, .channels = 6, .out_channels = 4, .groups = 2, .size = {7, 9}, .kernel = {3, 2}, .stride = {1, 2},
                         .dilation = {1, 1}, .pad_begin = {1, 0}};
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    for (u32 k = 0; k < 2 * countof(types); k++) {
        struct plant p[N_CONV_ACTS];
        struct verify_report found;
        r.has_bias = k % 2;
        for (u32 a = 0; a < N_CONV_ACTS; a++) {
            r.act = (enum conv_act)a;
            open_row(&p[a], &r, types[k / 2]);
            struct candidate c = gen_initial(gen_find(S("elementwise")), &p[a].task, &p[a].caps, NULL);
            compile(&p[a], &c);
            if (!verify_contraction(&found, &p[a].task, NULL, &p[a].s, &p[a].o, &p[a].e)) fail_msg("%s", p[a].e.msg);
            struct buf b = {0};
            verify_print(&b, &found);
            if (!found.ok) fail_msg("%s, %s: %s", dtype_name(types[k / 2]), conv_act_name(r.act), b.p);
            buf_release(&b);
        }
        struct plant *relu = &p[CONV_RELU], *leaky = &p[CONV_LEAKYRELU];
        assert_true(verify_contraction(&found, &relu->task, NULL, &leaky->s, &relu->o, &relu->e) && !found.ok);
        assert_true(is_wrong(&found, VERIFY_RANDOM) && is_wrong(&found, VERIFY_INTEGERS));
        assert_true(verify_contraction(&found, &leaky->task, NULL, &relu->s, &leaky->o, &leaky->e) && !found.ok);
        assert_true(is_wrong(&found, VERIFY_RANDOM) && is_wrong(&found, VERIFY_INTEGERS));
        for (u32 a = 0; a < N_CONV_ACTS; a++) close_layer(&p[a]);
    }
}

/* The figure that falls with the number of outputs: in the first layer a constant image passes its criterion, and so does a sum that has some
   terms twice and one not at all. Both are wrong here; in the last layers the figure is larger. */
static void test_old_criterion(void **state)
{
    struct plant p;
    struct verify_report constant, split, last;
    open_layer(&p, &layers[0], CONV_FORWARD);
    plant_faults(&p, &layers[0]);
    check_fault(&p, CONSTANT, &constant);
    check_fault(&p, SPLIT, &split);
    close_layer(&p);
    open_layer(&p, &layers[6], CONV_FORWARD);
    plant_faults(&p, &layers[6]);
    check_fault(&p, CONSTANT, &last);
    close_layer(&p);
    assert_true(!constant.ok && !split.ok && !last.ok);
    /* spread of a sum of products of two numbers in 0..1 */
    double rms = sqrt(27 * (1 / 9. - 1 / 16.)), figure = true_figure(&constant, &layers[0]);
    assert_true(figure > 4e-5 && figure < 6e-5 && fabs(figure - conv_seed_figure(rms, 536870912)) < 0.2 * figure);
    assert_true(true_figure(&split, &layers[0]) < 1e-4);
    assert_true(true_figure(&last, &layers[6]) > 1e-3);
}

/* A random contraction, in any type, layout and place; false: none that has outputs, or with values in its pads, or of broadcast matrices. */
static bool random_task(struct fixture *b, u64 seed)
{
    static const char *const names[] = {"quern::ConvGradWeight", "Conv", "MatMul", "ConvTranspose", "Conv", "MatMul"};
    const struct op *op = op_find(str_of(names[seed % countof(names)]));
    struct contraction s;
    struct err e = {0};
    fixture_open(b, seed);
    op->random(op, &b->g, &b->rng);
    if (!make_task(b)) return false;
    return contraction_of(&s, &b->t, b->var, &b->arena, &e) || (fixture_close(b), false);
}

static void check_types(struct fixture *b, u64 seed)
{
    struct contraction s;
    struct contraction_check x;
    i64 n_at;
    assert_true(contraction_of(&s, &b->t, b->var, &b->arena, &b->e));
    const i64 *at = contraction_sample(&s, 1 << pick(b, 4, 12), seed, &b->arena, &n_at);
    for (u32 k = 0; k < N_VERIFY_CASES; k++) {
        struct contraction_check_opts o = {.seed = seed, .at = at, .n_at = n_at};
        struct buf why = {0};
        struct place p;
        if (!contraction_check_init(&x, &s, &b->t, b->var, (enum verify_case)k, &o, &b->e)) fail_msg("%s", b->e.msg);
        struct tensor **in = arena_array(&b->arena, struct tensor *, 4), *out;
        for (u32 i = 0; i < b->t.g.input.n; i++) in[i] = &x.check.value[b->t.g.input.v[i]];
        if (!graph_eval(&b->t.g, in, &out, &b->arena, &(struct graph_eval_opts){.var = x.check.var}, &b->e)) fail_msg("%s", b->e.msg);
        assert_true(place_of(&p, &b->t.g, s.y, x.check.var));
        char *memory = arena_alloc(&b->arena, (p.count + 1) * dtype_size(s.out_type));
        place_store(&p, out, memory);
        if (!x.comparator.compare(&x.check, 0, memory, &why)) fail_msg("seed %llu, case %u: %s", (unsigned long long)seed, k, why.p);
        assert_true(x.found.n_seen >= (k == VERIFY_TAPS || k == VERIFY_POINTS ? s.count : 1));
        i64 one = place_flat(&p, out, at[pick(b, 0, n_at - 1)]);
        double was = elem_f64(s.out_type, memory, one);
        elem_set_f64(s.out_type, memory, one, was == 1 ? 3 : was + fabs(was) / 64 + (k == VERIFY_RANDOM || k == VERIFY_UNIT ? (double)s.n_terms : 1));
        assert_false(x.comparator.compare(&x.check, 0, memory, &why)); /* one output is another */
        buf_release(&why);
        contraction_check_release(&x);
    }
}

/* The operators' own evaluation and the definition here know nothing of each other; whatever the one gives is right for the other. */
static void test_definition(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(1, 401); seed < last_seed(1, 401); seed++) {
        struct fixture b;
        if (!random_task(&b, seed)) continue;
        check_types(&b, seed);
        fixture_close(&b);
        n++;
    }
    assert_true(is_enough(n, 200));
}

/* The outputs of the operators themselves on a check's content. */
static struct tensor **evaluate(struct fixture *b, const struct check *c)
{
    struct graph full;
    graph_clone(&full, &b->t.g, &b->arena);
    for (value_id v = 1; v < full.value.n; v++)
        if (graph_value(&full, v)->is_const) graph_value(&full, v)->data = &c->value[v];
    struct tensor **in = arena_array(&b->arena, struct tensor *, full.input.n + 1), **out = arena_array(&b->arena, struct tensor *, full.output.n);
    for (u32 i = 0; i < full.input.n; i++) in[i] = &c->value[full.input.v[i]];
    if (!graph_eval(&full, in, out, &b->arena, &(struct graph_eval_opts){.var = c->var}, &b->e)) fail_msg("%s", b->e.msg);
    return out;
}

/* Output 0 in its place, with 1 added to one element; elem < 0: to none. */
static bool accepts(struct fixture *b, const struct check *c, const struct tensor *out, i64 elem)
{
    struct place p;
    struct buf why = {0};
    assert_true(place_of(&p, &b->t.g, b->t.g.output.v[0], c->var));
    char *memory = arena_alloc(&b->arena, (p.count + 1) * dtype_size(out->dtype));
    place_store(&p, out, memory);
    if (elem >= 0) elem = place_flat(&p, out, elem), elem_set_f64(out->dtype, memory, elem, elem_f64(out->dtype, memory, elem) + 1);
    bool ok = check_output(c, 0, memory, &why);
    buf_release(&why);
    return ok;
}

/* With other nodes behind the contraction: the operators' evaluation is right, any output that is another number is not. */
static void test_numbered(void **state)
{
    static bool (*const make[])(struct fixture *) = {random_conv, random_gemm, random_transpose, random_depthwise, random_grad, random_point};
    u32 n = 0, n_fused = 0;
    for (u64 seed = first_seed(1, 601); seed < last_seed(1, 601); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        bool is_made = make[seed % countof(make)](&b);
        u32 n_nodes = 0;
        for (node_id i = 1; i < b.t.g.node.n; i++) n_nodes += !graph_node(&b.t.g, i)->dead;
        for (enum verify_case k = VERIFY_TAPS; is_made && k <= VERIFY_POINTS && check_positive(&b.t, b.var) && check_largest_integer(&b.t, b.var); k++) {
            struct check c;
            if (!check_init_numbered(&c, &b.t, b.var, k, seed, &b.e)) fail_msg("%s", b.e.msg);
            if (!c.task) continue;
            struct tensor *out = evaluate(&b, &c)[0];
            i64 elem = pick(&b, 0, tensor_count(out) - 1);
            if (!accepts(&b, &c, out, -1)) fail_msg("seed %llu, case %u", (unsigned long long)seed, k);
            assert_false(accepts(&b, &c, out, elem));
            n++, n_fused += n_nodes > 1;
            check_release(&c);
        }
        fixture_close(&b);
    }
    if (getenv("VERBOSE")) printf("%u checks on numbered contents, %u of fused tasks\n", n, n_fused);
    assert_true(is_enough(n, 200) && is_enough(n_fused, 50));
}

/* Two weights of each output channel, of 12288, change places. */
static void swap_weights(const struct contraction *s, struct tensor *w)
{
    for (i64 m = 0; m < s->m; m++) {
        i64 a = contraction_weight(s, m, 5, 0), b = contraction_weight(s, m, 5, 2);
        double was = elem_f64(w->dtype, w->data, a);
        elem_set_f64(w->dtype, w->data, a, elem_f64(w->dtype, w->data, b));
        elem_set_f64(w->dtype, w->data, b, was);
    }
}

static bool passes(struct plant *p, const struct contraction *s, enum verify_case k, bool is_swapped)
{
    struct contraction_check x;
    struct buf why = {0};
    struct tensor *in[2], *out;
    struct graph full;
    i64 n_at;
    const i64 *at = contraction_sample(s, s->count, 1, &p->arena, &n_at);
    assert_true(contraction_check_init(&x, s, &p->task, NULL, k, &(struct contraction_check_opts){.seed = 9, .at = at, .n_at = n_at}, &p->e));
    if (is_swapped) swap_weights(s, &x.check.value[s->w]);
    graph_clone(&full, &p->task.g, &p->arena);
    graph_value(&full, s->w)->data = &x.check.value[s->w];
    in[0] = &x.check.value[s->x];
    if (!graph_eval(&full, in, &out, &p->arena, NULL, &p->e)) fail_msg("%s", p->e.msg);
    bool ok = x.comparator.compare(&x.check, 0, out->data, &why);
    buf_release(&why);
    contraction_check_release(&x);
    return ok;
}

/* Among thousands of terms of few bits a wrong one is within the tolerance for random numbers; with
   exact integers it is detected. */
static void test_deep(void **state)
{
    static const enum dtype types[] = {DT_F64, DT_F32, DT_F16, DT_BF16};
    const struct conv_row r = {.axes = 1, .batch = 1, .channels = 4096, .out_channels = 24, .groups = 1, .size = {20}, .kernel = {3}, .stride = {1}, .dilation = {1}};
    for (i64 i = 0; i < countof(types); i++) {
        struct plant p;
        struct contraction s;
        open_row(&p, &r, types[i]);
        assert_true(contraction_of(&s, &p.task, NULL, &p.arena, &p.e));
        for (u32 k = 0; k < N_VERIFY_CASES; k++)
            if (!passes(&p, &s, (enum verify_case)k, false)) fail_msg("%s, case %u", dtype_name(types[i]), k);
        assert_false(passes(&p, &s, VERIFY_INTEGERS, true));
        assert_int_equal(passes(&p, &s, VERIFY_RANDOM, true), types[i] == DT_BF16);
        close_layer(&p);
    }
}

/* Kernels as texts, in the interpreter. */

static struct subject text_subject(struct fixture *b, const struct candidate *c)
{
    struct subject s = {0};
    struct buf text = {0};
    if (!gen_kernel(&s.kernel, &b->arena, c, &b->t, &b->caps, &b->e)) report(b, c, 0);
    kir_print(&text, &s.kernel.kir);
    s.code = str_dup(&b->arena, buf_view(&text));
    buf_release(&text);
    return s;
}

static bool check_text(struct fixture *b, const struct subject *s, const struct candidate *c, struct verify_report *r)
{
    struct verify_opts o = {.trial = {.driver = dev_find(S("interp")), .timeout = 60}, .seed = 5, .max_terms = 1000000, .growth = gen_growth(c)};
    bool ok = verify_contraction(r, &b->t, b->var, s, &o, &b->e);
    if (!ok && b->e.code != ERR_UNSUPPORTED) fail_msg("%s", b->e.msg);
    return ok;
}

/* Kernels that families emit for random contractions are right. */
static void test_generated(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(1000, 1150); seed < last_seed(1000, 1150); seed++) {
        struct fixture b;
        struct candidate c;
        struct verify_report r;
        if (!random_task(&b, seed)) continue;
        if (choose(&b, (u32)pick(&b, 0, 3), &c)) {
            struct subject s = text_subject(&b, &c);
            struct buf text = {0};
            bool was_checked = check_text(&b, &s, &c, &r);
            if (was_checked) verify_print(&text, &r);
            if (was_checked && !r.ok) snprintf(b.e.msg, sizeof b.e.msg, "%.*s", STR_ARG(buf_view(&text))), report(&b, &c, seed);
            n += was_checked;
            buf_release(&text);
        }
        fixture_close(&b);
    }
    assert_true(is_enough(n, 60));
}

/* The text with one of its whole numbers another: 1 more or less. */
static struct str change_number(struct fixture *b, struct str text)
{
    i64 from = 0, n = 0, at[4096];
    while (from < text.n && text.p[from] != '\n') from++; /* not in the line with its name and buffers */
    for (i64 i = from; i < text.n && n < countof(at); i++)
        if (text.p[i] >= '0' && text.p[i] <= '9' && (text.p[i - 1] == ' ' || text.p[i - 1] == '-')) at[n++] = i;
    if (n == 0) return text;
    i64 i = at[pick(b, 0, n - 1)], end = i, v = 0;
    while (end < text.n && text.p[end] >= '0' && text.p[end] <= '9') end++;
    if (!str_to_i64(str_sub(text, i, end), &v)) return text;
    return str_fmt(&b->arena, "%.*s%lld%.*s", (int)i, text.p, (long long)(v + (v > 0 && pick(b, 0, 1) ? -1 : 1)), (int)(text.n - end), text.p + end);
}

/* On contents that the verification has not seen. */
static bool is_right_elsewhere(struct fixture *b, const struct subject *s)
{
    struct arena a = {0};
    struct check k;
    struct kir kir = {0};
    struct kernel kernel = s->kernel;
    bool ok = kir_parse(&kir, &a, s->code, &b->e) && check_init(&k, &b->t, b->var, 77, true, &b->e);
    assert_true(ok);
    kernel.kir = kir;
    ok = interpret(&kernel, &k, &a, &b->e);
    check_release(&k);
    arena_release(&a);
    return ok;
}

/* Mutants: a changed kernel that passes is one that still computes the contraction. */
static void test_changed(void **state)
{
    u32 n = 0, n_caught = 0;
    for (u64 seed = first_seed(2000, 2150); seed < last_seed(2000, 2150); seed++) {
        struct fixture b;
        struct candidate c;
        struct verify_report r;
        if (!random_task(&b, seed)) continue;
        if (choose(&b, 1, &c)) {
            struct subject s = text_subject(&b, &c);
            struct str text = s.code;
            s.code = change_number(&b, text);
            if (!str_eq(s.code, text) && check_text(&b, &s, &c, &r)) {
                n++, n_caught += !r.ok;
                if (r.ok && !is_right_elsewhere(&b, &s)) report(&b, &c, seed);
            }
        }
        fixture_close(&b);
    }
    if (getenv("VERBOSE")) printf("%u of %u changed kernels caught\n", n_caught, n);
    assert_true(is_enough(n, 60) && n_caught >= n / 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_planted), cmocka_unit_test(test_not_run), cmocka_unit_test(test_planted_gradients), cmocka_unit_test(test_fused), cmocka_unit_test(test_fewer_products), cmocka_unit_test(test_old_criterion), cmocka_unit_test(test_definition),
    cmocka_unit_test(test_numbered),
    cmocka_unit_test(test_deep),    cmocka_unit_test(test_generated), cmocka_unit_test(test_changed),
};

int main(void) { return cmocka_run_group_tests(tests, NULL, NULL); }
