// SPDX-License-Identifier: Apache-2.0
//
// op_cell: the cells of recurrent layers. Their attributes (activations with parameters, direction, clip), one step of one
// unit in kernel IR and in f64. Used by RNN, GRU and LSTM (rnn.c), by the primitive that they become (recurrence.c), and by
// the kernel families for it.
//
// Parameters of activations are assigned in the order of the activations that have the parameter. `clip` bounds the inputs of
// the gates' activations, but not the cell state, the input of LSTM's h, as in ONNX Runtime.
#include "op/op.h"

#include <math.h>

enum activation {
    ACT_AFFINE, ACT_ELU, ACT_HARD_SIGMOID, ACT_LEAKY_RELU, ACT_RELU, ACT_SCALED_TANH, ACT_SIGMOID, ACT_SOFTPLUS,
    ACT_SOFTSIGN, ACT_TANH, ACT_THRESHOLDED_RELU, N_ACTIVATIONS
};

static const struct activation_info {
    const char *name;
    bool has_alpha, has_beta;
    double alpha, beta; /* defaults */
} activations[N_ACTIVATIONS] = {
    [ACT_AFFINE] = {"Affine", true, true, 1, 0},
    [ACT_ELU] = {"Elu", true, false, 1, 0},
    [ACT_HARD_SIGMOID] = {"HardSigmoid", true, true, 0.2, 0.5},
    [ACT_LEAKY_RELU] = {"LeakyRelu", true, false, 0.01, 0},
    [ACT_RELU] = {"Relu", false, false, 0, 0},
    [ACT_SCALED_TANH] = {"ScaledTanh", true, true, 1, 1},
    [ACT_SIGMOID] = {"Sigmoid", false, false, 0, 0},
    [ACT_SOFTPLUS] = {"Softplus", false, false, 0, 0},
    [ACT_SOFTSIGN] = {"Softsign", false, false, 0, 0},
    [ACT_TANH] = {"Tanh", false, false, 0, 0},
    [ACT_THRESHOLDED_RELU] = {"ThresholdedRelu", true, false, 1, 0},
};

static const struct {
    const char *name;
    u32 n_gates, n_act;
    u32 act[3];
} cells[] = {
    [CELL_RNN] = {"RNN", 1, 1, {ACT_TANH}},
    [CELL_GRU] = {"GRU", 3, 2, {ACT_SIGMOID, ACT_TANH}},
    [CELL_LSTM] = {"LSTM", 4, 3, {ACT_SIGMOID, ACT_TANH, ACT_TANH}},
};

/* Attributes. */

static char lower_case(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool same_word(struct str a, const char *b)
{
    i64 i = 0;
    while (i < a.n && b[i] && lower_case(a.p[i]) == lower_case(b[i])) i++;
    return i == a.n && !b[i];
}

static bool find_activation(struct str name, u32 *fn)
{
    for (u32 i = 0; i < N_ACTIVATIONS; i++)
        if (same_word(name, activations[i].name)) return *fn = i, true;
    return false;
}

struct numbers { const double *v; i64 n, at; };

static struct numbers read_floats(const struct node *nd, const char *name)
{
    const struct attr *a = node_attr(nd, name);
    return a && a->kind == ATTR_FLOATS ? (struct numbers){a->floats, a->n, 0} : (struct numbers){0};
}

static double next_number(struct numbers *x, bool wanted, double otherwise)
{
    return wanted && x->at < x->n ? x->v[x->at++] : otherwise;
}

static bool read_activations(const struct graph *g, node_id n, struct op_cell *c, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct attr *names = node_attr(nd, "activations");
    struct numbers alpha = read_floats(nd, "activation_alpha"), beta = read_floats(nd, "activation_beta");
    u32 per_dir = cells[c->kind].n_act, all = per_dir * c->n_dirs;
    i64 given = names && names->kind == ATTR_STRS ? names->n : 0;
    if (given && given != per_dir && given != all)
        return op_invalid(e, g, n, "%lld activations, expected %u", (long long)given, all);
    for (u32 i = 0; i < all; i++) {
        u32 fn = cells[c->kind].act[i % per_dir];
        if (given) {
            struct str name = names->strs[(i64)i % given];
            if (!find_activation(name, &fn)) return op_unsupported(e, g, n, "activation '%.*s'", STR_ARG(name));
        }
        if (given == per_dir && i == per_dir) alpha.at = beta.at = 0; /* one list for both directions */
        const struct activation_info *info = &activations[fn];
        c->act[i / per_dir][i % per_dir] = (struct op_activation){
            fn, next_number(&alpha, info->has_alpha, info->alpha), next_number(&beta, info->has_beta, info->beta)};
    }
    return true;
}

static bool read_direction(const struct graph *g, node_id n, struct op_cell *c, struct err *e)
{
    struct str s = attr_str(graph_node(g, n), "direction", "forward");
    c->n_dirs = str_is(s, "bidirectional") ? 2 : 1;
    c->reverse[0] = str_is(s, "reverse");
    c->reverse[1] = c->n_dirs == 2;
    if (c->n_dirs == 2 || c->reverse[0] || str_is(s, "forward")) return true;
    return op_invalid(e, g, n, "direction '%.*s'", STR_ARG(s));
}

/* The primitive has the operator's name in an attribute. */
static bool read_kind(const struct graph *g, node_id n, struct op_cell *c, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct str s = attr_str(nd, "cell", "");
    if (!s.n) s = nd->op;
    for (u32 i = 0; i < countof(cells); i++)
        if (str_is(s, cells[i].name)) return c->kind = (enum op_cell_kind)i, true;
    return op_invalid(e, g, n, "cell '%.*s'", STR_ARG(s));
}

bool op_cell_read(const struct graph *g, node_id n, u32 r, struct op_cell *c, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *s = op_in_shape(g, nd, r);
    *c = (struct op_cell){.clip = INFINITY};
    if (!read_kind(g, n, c, e) || !read_direction(g, n, c, e) || !read_activations(g, n, c, e)) return false;
    c->n_gates = cells[c->kind].n_gates;
    c->input_forget = c->kind == CELL_LSTM && attr_int(nd, "input_forget", 0);
    c->linear_before_reset = c->kind == CELL_GRU && attr_int(nd, "linear_before_reset", 0);
    double clip = attr_float(nd, "clip", 0);
    if (clip > 0) c->clip = clip;
    if (s->rank != 3) return op_invalid(e, g, n, "recurrent weights of rank %u, expected 3", s->rank);
    if (!sym_is_const(g->sym, s->dim[2], &c->hidden)) return op_unsupported(e, g, n, "the number of hidden units is not known");
    i64 size = attr_int(nd, "hidden_size", c->hidden);
    if (size != c->hidden || c->hidden < 1 || c->hidden > 1 << 20)
        return op_invalid(e, g, n, "hidden_size is %lld, the recurrent weights are for %lld units", (long long)size, (long long)c->hidden);
    return true;
}

struct op_cell op_cell_get(const struct graph *g, const struct node *nd)
{
    struct op_cell c;
    struct err e = {0};
    bool ok = op_cell_read(g, (node_id)(nd - g->node.v), 1, &c, &e);
    assert(ok), (void)ok;
    return c;
}

bool op_cell_has_two_stages(const struct op_cell *c) { return c->kind == CELL_GRU && !c->linear_before_reset; }

/* Kernel IR. */

static kval number(struct kir *k, kval like, double v) { return kir_const_f(k, kir_dtype(k, like), kir_lanes(k, like), v); }

static kval sigmoid(struct kir *k, kval x)
{
    kval one = number(k, x, 1);
    return kir_bin(k, KI_DIV, one, kir_add(k, one, kir_un(k, KI_EXP, kir_un(k, KI_NEG, x))));
}

static kval softplus(struct kir *k, kval x)
{
    kval tail = kir_un(k, KI_EXP, kir_un(k, KI_NEG, kir_un(k, KI_ABS, x)));
    return kir_add(k, kir_max(k, number(k, x, 0), x), kir_un(k, KI_LOG, kir_add(k, number(k, x, 1), tail)));
}

static kval affine(struct kir *k, kval x, const struct op_activation *a)
{
    return kir_add(k, kir_mul(k, x, number(k, x, a->alpha)), number(k, x, a->beta));
}

static kval activation(struct kir *k, const struct op_activation *a, kval x)
{
    kval zero = number(k, x, 0), one = number(k, x, 1), alpha = number(k, x, a->alpha);
    switch ((enum activation)a->fn) {
    case ACT_AFFINE: return affine(k, x, a);
    case ACT_ELU:
        return kir_select(k, kir_lt(k, x, zero), kir_mul(k, alpha, kir_sub(k, kir_un(k, KI_EXP, x), one)), x);
    case ACT_HARD_SIGMOID: return kir_max(k, zero, kir_min(k, one, affine(k, x, a)));
    case ACT_LEAKY_RELU: return kir_select(k, kir_lt(k, x, zero), kir_mul(k, alpha, x), x);
    case ACT_RELU: return kir_max(k, zero, x);
    case ACT_SCALED_TANH: return kir_mul(k, alpha, kir_un(k, KI_TANH, kir_mul(k, x, number(k, x, a->beta))));
    case ACT_SIGMOID: return sigmoid(k, x);
    case ACT_SOFTPLUS: return softplus(k, x);
    case ACT_SOFTSIGN: return kir_div(k, x, kir_add(k, one, kir_un(k, KI_ABS, x)));
    case ACT_TANH: return kir_un(k, KI_TANH, x);
    case ACT_THRESHOLDED_RELU: return kir_select(k, kir_bin(k, KI_LE, x, alpha), zero, x);
    case N_ACTIVATIONS: break;
    }
    unreachable();
}

static bool same_activation(const struct op_activation *a, const struct op_activation *b)
{
    return a->fn == b->fn && a->alpha == b->alpha && a->beta == b->beta;
}

static bool is_clipped(const struct op_cell *c, u32 f) { return c->clip < INFINITY && f < 2; }

kval op_cell_activate(struct kir *k, const struct op_cell *c, u32 f, kval dir, kval x)
{
    if (is_clipped(c, f)) x = kir_max(k, number(k, x, -c->clip), kir_min(k, number(k, x, c->clip), x));
    kval first = activation(k, &c->act[0][f], x);
    if (c->n_dirs == 1 || same_activation(&c->act[0][f], &c->act[1][f])) return first;
    kval is_first = kir_splat(k, kir_bin(k, KI_EQ, dir, kir_int(k, 0)), kir_lanes(k, x));
    return kir_select(k, is_first, first, activation(k, &c->act[1][f], x));
}

/* x + p*c with a peephole */
static kval peep(struct kir *k, kval x, kval p, kval c) { return p ? kir_fma(k, p, c, x) : x; }

static void emit_lstm(struct kir *k, const struct op_cell *c, struct op_cell_step *s)
{
    kval i = op_cell_activate(k, c, 0, s->dir, peep(k, s->gate[0], s->peep[0], s->c));
    kval f = c->input_forget ? kir_sub(k, number(k, i, 1), i)
                             : op_cell_activate(k, c, 0, s->dir, peep(k, s->gate[2], s->peep[2], s->c));
    kval fresh = op_cell_activate(k, c, 1, s->dir, s->gate[3]);
    s->c = kir_fma(k, f, s->c, kir_mul(k, i, fresh));
    kval o = op_cell_activate(k, c, 0, s->dir, peep(k, s->gate[1], s->peep[1], s->c));
    s->h = kir_mul(k, o, op_cell_activate(k, c, 2, s->dir, s->c));
}

static void emit_gru(struct kir *k, const struct op_cell *c, struct op_cell_step *s)
{
    kval z = op_cell_activate(k, c, 0, s->dir, s->gate[0]), x = s->gate[2];
    if (c->linear_before_reset) x = kir_fma(k, op_cell_activate(k, c, 0, s->dir, s->gate[1]), s->gate[3], x);
    else if (s->gate[3]) x = kir_add(k, x, s->gate[3]);
    kval fresh = op_cell_activate(k, c, 1, s->dir, x);
    s->h = kir_fma(k, z, s->h, kir_mul(k, kir_sub(k, number(k, z, 1), z), fresh));
}

void op_cell_emit(struct kir *k, const struct op_cell *c, struct op_cell_step *s)
{
    switch (c->kind) {
    case CELL_RNN: s->h = op_cell_activate(k, c, 0, s->dir, s->gate[0]); return;
    case CELL_GRU: emit_gru(k, c, s); return;
    case CELL_LSTM: emit_lstm(k, c, s); return;
    }
    unreachable();
}

/* Reference. */

double op_cell_activate_f(const struct op_cell *c, u32 f, u32 dir, double x)
{
    const struct op_activation *a = &c->act[dir][f];
    if (is_clipped(c, f)) x = x > c->clip ? c->clip : x < -c->clip ? -c->clip : x;
    switch ((enum activation)a->fn) {
    case ACT_AFFINE: return a->alpha * x + a->beta;
    case ACT_ELU: return x < 0 ? a->alpha * expm1(x) : x;
    case ACT_HARD_SIGMOID: return fmax(0, fmin(1, a->alpha * x + a->beta));
    case ACT_LEAKY_RELU: return x < 0 ? a->alpha * x : x;
    case ACT_RELU: return x < 0 ? 0 : x;
    case ACT_SCALED_TANH: return a->alpha * tanh(a->beta * x);
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ACT_SOFTPLUS: return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
    case ACT_SOFTSIGN: return x / (1 + fabs(x));
    case ACT_TANH: return tanh(x);
    case ACT_THRESHOLDED_RELU: return x <= a->alpha ? 0 : x;
    case N_ACTIVATIONS: break;
    }
    unreachable();
}

static void eval_lstm(const struct op_cell *c, struct op_cell_numbers *s)
{
    double i = op_cell_activate_f(c, 0, s->dir, s->gate[0] + s->peep[0] * s->c);
    double f = c->input_forget ? 1 - i : op_cell_activate_f(c, 0, s->dir, s->gate[2] + s->peep[2] * s->c);
    s->c = f * s->c + i * op_cell_activate_f(c, 1, s->dir, s->gate[3]);
    s->h = op_cell_activate_f(c, 0, s->dir, s->gate[1] + s->peep[1] * s->c) * op_cell_activate_f(c, 2, s->dir, s->c);
}

static void eval_gru(const struct op_cell *c, struct op_cell_numbers *s)
{
    double z = op_cell_activate_f(c, 0, s->dir, s->gate[0]);
    double r = c->linear_before_reset ? op_cell_activate_f(c, 0, s->dir, s->gate[1]) : 1;
    s->h = (1 - z) * op_cell_activate_f(c, 1, s->dir, s->gate[2] + r * s->gate[3]) + z * s->h;
}

void op_cell_eval(const struct op_cell *c, struct op_cell_numbers *s)
{
    switch (c->kind) {
    case CELL_RNN: s->h = op_cell_activate_f(c, 0, s->dir, s->gate[0]); return;
    case CELL_GRU: eval_gru(c, s); return;
    case CELL_LSTM: eval_lstm(c, s); return;
    }
    unreachable();
}

/* Random instances. */

static void set_floats(struct graph *g, node_id n, const char *name, struct rng *r)
{
    double v[6];
    i64 count = rng_range(r, 0, 6);
    for (i64 i = 0; i < count; i++) v[i] = 0.5 + rng_f64(r) / 4;
    if (count) attr_copy(g, n, &(struct attr){.name = str_of(name), .kind = ATTR_FLOATS, .n = count, .floats = v});
}

static void random_activations(struct graph *g, node_id n, enum op_cell_kind kind, u32 n_dirs, struct rng *r)
{
    struct str names[6];
    u32 count = cells[kind].n_act * (rng_range(r, 0, 1) ? n_dirs : 1);
    for (u32 i = 0; i < count; i++) names[i] = str_of(activations[rng_range(r, 0, N_ACTIVATIONS - 1)].name);
    attr_copy(g, n, &(struct attr){.name = str_of("activations"), .kind = ATTR_STRS, .n = count, .strs = names});
    set_floats(g, n, "activation_alpha", r);
    set_floats(g, n, "activation_beta", r);
}

/* Optional inputs of f: dims of which 0 is the number of directions. */
struct sizes { i64 steps, batch, input, hidden, dirs, gates; bool batch_first; };

static value_id random_state(struct graph *g, const char *name, enum dtype t, const struct sizes *z, struct rng *r)
{
    value_id v = 0;
    i64 dim[3] = {z->dirs, z->batch, z->hidden};
    if (z->batch_first) dim[0] = z->batch, dim[1] = z->dirs;
    if (rng_range(r, 0, 1)) random_input(g, name, t, 3, dim, &v);
    return v;
}

static value_id random_vector(struct graph *g, const char *name, enum dtype t, i64 dirs, i64 n, struct rng *r)
{
    value_id v = 0;
    if (rng_range(r, 0, 1)) random_input(g, name, t, 2, (i64[]){dirs, n}, &v);
    return v;
}

static value_id random_lengths(struct graph *g, const struct sizes *z, struct rng *r)
{
    struct tensor *t = tensor_new(g->arena, DT_I32, 1, &z->batch);
    for (i64 i = 0; i < z->batch; i++) elem_set_i64(DT_I32, t->data, i, rng_range(r, rng_range(r, 0, 3) > 0, z->steps));
    return rng_range(r, 0, 1) ? graph_add_const(g, S("lens"), t) : 0;
}

/* Recurrent weights: graph inputs, or constants, which families rearrange. They are small, so that states stay small, too. */
static value_id random_weights(struct graph *g, enum dtype t, const struct sizes *z, struct rng *r)
{
    value_id v;
    i64 dim[3] = {z->dirs, z->gates * z->hidden, z->hidden};
    if (rng_range(r, 0, 1)) return random_input(g, "r", t, 3, dim, &v), v;
    struct tensor *x = tensor_new(g->arena, t, 3, dim);
    for (i64 i = 0, n = tensor_count(x); i < n; i++) elem_set_f64(t, x->data, i, rng_f64(r) - 0.5);
    return graph_add_const(g, S("r"), x);
}

static void random_attributes(struct graph *g, node_id n, enum op_cell_kind kind, u32 n_dirs, struct rng *r)
{
    static const char *const one[] = {"forward", "reverse"};
    attr_set_str(g, n, "direction", str_of(n_dirs == 2 ? "bidirectional" : one[rng_range(r, 0, 1)]));
    if (rng_range(r, 0, 1)) random_activations(g, n, kind, n_dirs, r);
    if (rng_range(r, 0, 2) == 0) attr_set_float(g, n, "clip", 0.5 + rng_f64(r));
    if (kind == CELL_LSTM) attr_set_int(g, n, "input_forget", rng_range(r, 0, 2) == 0);
    if (kind == CELL_GRU) attr_set_int(g, n, "linear_before_reset", rng_range(r, 0, 1));
}

static enum op_cell_kind random_kind(const struct op *self, struct rng *r)
{
    for (u32 i = 0; i < countof(cells); i++)
        if (str_is(str_of(self->name), cells[i].name)) return (enum op_cell_kind)i;
    return (enum op_cell_kind)rng_range(r, 0, countof(cells) - 1);
}

static struct sizes random_sizes(enum op_cell_kind kind, struct rng *r)
{
    struct sizes z = {.steps = rng_range(r, 1, 4), .batch = rng_range(r, 1, 4), .input = rng_range(r, 1, 4)};
    z.hidden = rng_range(r, 0, 3) ? rng_range(r, 1, 7) : rng_range(r, 8, 33);
    z.dirs = rng_range(r, 1, 2), z.gates = cells[kind].n_gates;
    return z;
}

void op_cell_random(const struct op *self, struct graph *g, struct rng *r, bool is_primitive)
{
    enum op_cell_kind kind = random_kind(self, r);
    struct sizes z = random_sizes(kind, r);
    enum dtype t = random_float_type(r);
    i64 rows = z.gates * z.hidden;
    value_id in[8] = {0};
    u32 n_in = 0;
    z.batch_first = !is_primitive && rng_range(r, 0, 1);
    if (is_primitive) random_input(g, "x", t, 3, (i64[]){z.steps, z.batch, z.dirs * rows}, &in[n_in++]);
    else {
        random_input(g, "x", t, 3, z.batch_first ? (i64[]){z.batch, z.steps, z.input} : (i64[]){z.steps, z.batch, z.input}, &in[n_in++]);
        random_input(g, "w", t, 3, (i64[]){z.dirs, rows, z.input}, &in[n_in++]);
    }
    in[n_in++] = random_weights(g, t, &z, r);
    if (!is_primitive) in[n_in++] = random_vector(g, "b", t, z.dirs, 2 * rows, r);
    in[n_in++] = random_lengths(g, &z, r);
    in[n_in++] = random_state(g, "h0", t, &z, r);
    if (kind == CELL_LSTM) {
        in[n_in++] = random_state(g, "c0", t, &z, r);
        in[n_in++] = random_vector(g, "p", t, z.dirs, 3 * z.hidden, r);
    } else if (is_primitive && kind == CELL_GRU) in[n_in + 2] = random_vector(g, "rb", t, z.dirs, z.hidden, r);
    bool apart = is_primitive && kind == CELL_GRU && in[n_in + 2]; /* GRU's bias that has an input of its own */
    n_in += apart ? 3 : 0;
    u32 n_out = (u32)rng_range(r, 1, kind == CELL_LSTM ? 3 : 2);
    node_id n = random_node(g, self, n_in, in, n_out);
    if (n_out > 1 && rng_range(r, 0, 1)) {
        graph_node(g, n)->out.v[0] = 0;
        for (u32 i = 1; i < g->output.n; i++) g->output.v[i - 1] = g->output.v[i];
        g->output.n--;
    }
    random_attributes(g, n, kind, (u32)z.dirs, r);
    if (apart) attr_set_int(g, n, "linear_before_reset", 1);
    attr_set_int(g, n, "hidden_size", z.hidden);
    if (z.batch_first) attr_set_int(g, n, "layout", 1);
    if (is_primitive) attr_set_str(g, n, "cell", str_of(cells[kind].name));
}
