// SPDX-License-Identifier: Apache-2.0
//
// Rows. Sizes follow ONNX's Conv and ConvTranspose (opset 18): a convolution has floor((size + pads - span) / stride) + 1
// outputs along an axis, span = (kernel - 1) * dilation + 1; a transposed one (size - 1) * stride + span - pads + output_pad.
#include "lab/conv.h"

#include "op/op.h"

#include <string.h>

static const char *const axis_name[CONV_AXES] = {"depth", "height", "width"};
static const char *name_of(const struct conv_row *r, u32 i) { return axis_name[CONV_AXES - r->axes + i]; }

static i64 span(const struct conv_row *r, u32 i) { return (r->kernel[i] - 1) * r->dilation[i] + 1; }

static i64 outputs(const struct conv_row *r, u32 i)
{
    i64 pads = r->pad_begin[i] + r->pad_end[i];
    if (r->is_transposed) return (r->size[i] - 1) * r->stride[i] + span(r, i) - pads + r->output_pad[i];
    i64 room = r->size[i] + pads - span(r, i);
    return room < 0 ? 0 : room / r->stride[i] + 1;
}

void conv_row_outputs(const struct conv_row *r, i64 out[CONV_AXES])
{
    for (u32 i = 0; i < r->axes; i++) out[i] = outputs(r, i);
}

/* Checks. */

static bool check_number(const char *what, const char *axis, i64 v, i64 least, struct err *e)
{
    if (v >= least && v <= CONV_MAX_SIZE) return true;
    return err_set(e, ERR_INPUT, "%s%s%s is %lld, expected %lld to %d", what, *axis ? " of the " : "", axis, (long long)v, (long long)least,
                   CONV_MAX_SIZE);
}

static bool check_axis(const struct conv_row *r, u32 i, struct err *e)
{
    const char *a = name_of(r, i);
    if (!check_number("size", a, r->size[i], 1, e) || !check_number("kernel", a, r->kernel[i], 1, e) ||
        !check_number("stride", a, r->stride[i], 1, e) || !check_number("dilation", a, r->dilation[i], 1, e) ||
        !check_number("pad at the beginning", a, r->pad_begin[i], 0, e) || !check_number("pad at the end", a, r->pad_end[i], 0, e) ||
        !check_number("output pad", a, r->output_pad[i], 0, e))
        return false;
    if (r->output_pad[i] && (!r->is_transposed || r->output_pad[i] >= i64_max(r->stride[i], r->dilation[i])))
        return err_set(e, ERR_INPUT, "output pad of the %s is %lld, it is for transposed convolutions and less than stride or dilation", a,
                       (long long)r->output_pad[i]);
    if (outputs(r, i) < 1)
        return err_set(e, ERR_INPUT, "kernel larger than the input: along the %s it covers %lld of %lld with pads %lld and %lld", a,
                       (long long)span(r, i), (long long)r->size[i], (long long)r->pad_begin[i], (long long)r->pad_end[i]);
    return outputs(r, i) <= CONV_MAX_SIZE || err_set(e, ERR_INPUT, "too many outputs along the %s", a);
}

/* (n, c, axes..) */
static void shape_of(i64 dim[MAX_RANK], i64 n, i64 c, const i64 *axes, u32 count)
{
    dim[0] = n, dim[1] = c;
    for (u32 i = 0; i < count; i++) dim[2 + i] = axes[i];
}

static void weight_shape(const struct conv_row *r, i64 dim[MAX_RANK])
{
    i64 to = r->out_channels, from = r->channels;
    shape_of(dim, r->is_transposed ? from : to, (r->is_transposed ? to : from) / r->groups, r->kernel, r->axes);
}

bool conv_row_check(const struct conv_row *r, struct err *e)
{
    if (!check_number("batch", "", r->batch, 1, e) || !check_number("number of channels", "", r->channels, 1, e) ||
        !check_number("number of output channels", "", r->out_channels, 1, e) || !check_number("number of groups", "", r->groups, 1, e))
        return false;
    for (u32 i = 0; i < r->axes; i++)
        if (!check_axis(r, i, e)) return false;
    if (r->channels % r->groups || r->out_channels % r->groups)
        return err_set(e, ERR_INPUT, "%lld groups do not divide %lld channels and %lld output channels", (long long)r->groups,
                       (long long)r->channels, (long long)r->out_channels);
    i64 out[CONV_AXES], dim[3][MAX_RANK], bytes;
    conv_row_outputs(r, out);
    shape_of(dim[0], r->batch, r->channels, r->size, r->axes);
    weight_shape(r, dim[1]);
    shape_of(dim[2], r->batch, r->out_channels, out, r->axes);
    for (u32 k = 0; k < 3; k++)
        if (!tensor_size_ok(DT_F64, r->axes + 2, dim[k], &bytes)) return err_set(e, ERR_INPUT, "a tensor with too many elements");
    return true;
}

/* Operations and bytes. */

static double product(const struct conv_row *r, const i64 *v)
{
    double p = 1;
    for (u32 i = 0; i < r->axes; i++) p *= (double)v[i];
    return p;
}

double conv_row_terms(const struct conv_row *r)
{
    return (double)(r->channels / r->groups) * product(r, r->kernel);
}

double conv_row_flops(const struct conv_row *r)
{
    i64 out[CONV_AXES];
    conv_row_outputs(r, out);
    double per_pixel = 2 * (double)r->batch * (double)(r->channels / r->groups) * (double)r->out_channels * product(r, r->kernel);
    return per_pixel * product(r, r->is_transposed ? r->size : out);
}

double conv_row_bytes(const struct conv_row *r, enum dtype t)
{
    i64 out[CONV_AXES];
    conv_row_outputs(r, out);
    double x = (double)r->batch * (double)r->channels * product(r, r->size);
    double w = (double)(r->channels / r->groups) * (double)r->out_channels * product(r, r->kernel);
    double y = (double)r->batch * (double)r->out_channels * product(r, out);
    return (x + w + y) * (double)dtype_size(t);
}

/* Name. */

static void put_list(struct buf *b, const char *before, const i64 *v, u32 n)
{
    buf_z(b, before);
    for (u32 i = 0; i < n; i++) buf_printf(b, "%s%lld", i ? "X" : "", (long long)v[i]);
}

static void put_unusual(struct buf *b, const char *before, const i64 *v, u32 n, i64 usual)
{
    bool is_usual = true;
    for (u32 i = 0; i < n; i++) is_usual &= v[i] == usual;
    if (!is_usual) put_list(b, before, v, n);
}

void conv_row_label(struct buf *b, const struct conv_row *r)
{
    bool same = true;
    buf_printf(b, "in_%lldX%lldX", (long long)r->batch, (long long)r->channels);
    put_list(b, "", r->size, r->axes);
    put_list(b, "_k_", r->kernel, r->axes);
    buf_printf(b, "_och_%lld", (long long)r->out_channels);
    put_unusual(b, "_s_", r->stride, r->axes, 1);
    put_unusual(b, "_d_", r->dilation, r->axes, 1);
    put_unusual(b, "_p_", r->pad_begin, r->axes, 0);
    for (u32 i = 0; i < r->axes; i++) same &= r->pad_begin[i] == r->pad_end[i];
    if (!same) put_list(b, "_e_", r->pad_end, r->axes);
    if (r->groups > 1) buf_printf(b, "_g_%lld", (long long)r->groups);
    if (r->is_transposed) put_list(b, "_t_", r->output_pad, r->axes);
    if (r->pass) buf_printf(b, "_d%s", conv_pass_name(r->pass));
    if (r->has_bias) buf_z(b, "_bias");
    if (r->act) buf_printf(b, "_%s", conv_act_name(r->act));
}

/* Reduction. */

/* Halves a size if the window still fits; false: unchanged. */
static bool halve_axis(struct conv_row *r, u32 i)
{
    i64 old = r->size[i];
    r->size[i] = (old + 1) / 2;
    if (r->size[i] < old && outputs(r, i) > 0) return true;
    r->size[i] = old;
    return false;
}

static bool halve_channels(struct conv_row *r)
{
    i64 in = r->channels / r->groups, out = r->out_channels / r->groups;
    if (in == 1 && out == 1) {
        if (r->groups == 1) return false;
        r->groups = (r->groups + 1) / 2;
    }
    if (in >= out) in = (in + 1) / 2;
    else out = (out + 1) / 2;
    r->channels = in * r->groups, r->out_channels = out * r->groups;
    return true;
}

static bool halve_sizes(struct conv_row *r)
{
    bool any = false;
    for (u32 i = 0; i < r->axes; i++) any |= halve_axis(r, i);
    return any;
}

void conv_row_shrink(struct conv_row *r, double flops)
{
    bool by_size = true;
    while (conv_row_flops(r) > flops && r->batch > 2) r->batch = 2;
    while (conv_row_flops(r) > flops) {
        bool done = by_size ? halve_sizes(r) || halve_channels(r) : halve_channels(r) || halve_sizes(r);
        by_size = !by_size;
        if (done) continue;
        if (r->batch == 1) return;
        r->batch = 1;
    }
}

/* Passes. */

const char *conv_pass_name(enum conv_pass p)
{
    static const char *const names[N_CONV_PASSES] = {"forward", "input", "weights"};
    return names[p];
}

bool conv_pass_read(enum conv_pass *p, const char *name, struct err *e)
{
    for (*p = CONV_FORWARD; name && *p < N_CONV_PASSES; ++*p)
        if (strcmp(name, conv_pass_name(*p)) == 0) return true;
    return !name || err_set(e, ERR_USAGE, "no pass '%s'; there are: forward, input, weights", name);
}

const char *conv_act_name(enum conv_act a)
{
    static const char *const names[N_CONV_ACTS] = {"none", "relu", "leakyrelu"};
    return names[a];
}

bool conv_act_read(enum conv_act *a, const char *name, struct err *e)
{
    for (*a = CONV_PLAIN; name && *a < N_CONV_ACTS; ++*a)
        if (strcmp(name, conv_act_name(*a)) == 0) return true;
    return !name || err_set(e, ERR_USAGE, "no activation '%s'; there are: none, relu, leakyrelu", name);
}

/* Exchanges y and x. Rows that no window reads become additional outputs, and additional outputs rows that no window reads. */
static bool adjoint(struct conv_row *to, const struct conv_row *r, struct err *e)
{
    i64 room[CONV_AXES];
    *to = *r;
    to->is_transposed = !r->is_transposed;
    to->channels = r->out_channels, to->out_channels = r->channels;
    conv_row_outputs(r, to->size);
    for (u32 i = 0; i < r->axes; i++) to->output_pad[i] = 0;
    conv_row_outputs(to, room);
    for (u32 i = 0; i < r->axes; i++) {
        to->output_pad[i] = to->is_transposed ? r->size[i] - room[i] : 0;
        if (!to->is_transposed && room[i] != r->size[i])
            return err_set(e, ERR_UNSUPPORTED, "output pad of the %s is a stride or more: the adjoint has other sizes", name_of(r, i));
    }
    return conv_row_check(to, e);
}

bool conv_row_computed(struct conv_row *to, const struct conv_row *r, struct err *e)
{
    *to = *r;
    if (r->pass && conv_row_is_fused(r))
        return err_set(e, ERR_UNSUPPORTED, "bias and activation are of convolutions, not of their gradients");
    if (r->pass == CONV_INPUT || (r->pass == CONV_WEIGHTS && r->is_transposed)) {
        if (!adjoint(to, r, e)) return false;
        if (r->pass == CONV_INPUT) to->pass = CONV_FORWARD;
    }
    return true;
}

/* Graph and task. */

static void set_shape(struct graph *g, value_id v, enum dtype t, const i64 *dim, u32 rank)
{
    struct value *x = graph_value(g, v);
    x->dtype = t;
    x->shape = (struct shape){.known = true, .rank = rank};
    for (u32 i = 0; i < rank; i++) x->shape.dim[i] = sym_const(g->sym, dim[i]);
}

void conv_row_graph(struct graph *g, const struct conv_row *r, enum dtype t)
{
    i64 dim[MAX_RANK], out[CONV_AXES], pads[2 * CONV_AXES];
    u32 rank = r->axes + 2;
    bool of_weights = r->pass == CONV_WEIGHTS;
    value_id in[3] = {graph_add_value(g, S("x")), graph_add_value(g, of_weights ? S("dy") : S("w"))};
    conv_row_outputs(r, out);
    shape_of(dim, r->batch, r->channels, r->size, r->axes);
    set_shape(g, in[0], t, dim, rank);
    *arr_push(g->arena, &g->input) = in[0];
    if (of_weights) shape_of(dim, r->batch, r->out_channels, out, r->axes);
    else weight_shape(r, dim);
    set_shape(g, in[1], t, dim, rank);
    if (of_weights) *arr_push(g->arena, &g->input) = in[1];
    else graph_value(g, in[1])->is_const = true;
    if (r->has_bias) {
        in[2] = graph_add_value(g, S("b"));
        set_shape(g, in[2], t, &r->out_channels, 1);
        graph_value(g, in[2])->is_const = true;
    }
    value_id y = graph_op(g, of_weights ? "quern::ConvGradWeight" : r->is_transposed ? "ConvTranspose" : "Conv", r->act ? S("sum") : S("y"),
                          r->has_bias ? 3 : 2, in);
    node_id n = graph_value(g, y)->producer;
    for (u32 i = 0; i < r->axes; i++) pads[i] = r->pad_begin[i], pads[r->axes + i] = r->pad_end[i];
    attr_set_ints(g, n, "kernel_shape", r->kernel, r->axes);
    attr_set_ints(g, n, "strides", r->stride, r->axes);
    attr_set_ints(g, n, "dilations", r->dilation, r->axes);
    attr_set_ints(g, n, "pads", pads, 2 * r->axes);
    if (r->is_transposed) attr_set_ints(g, n, "output_padding", r->output_pad, r->axes);
    attr_set_int(g, n, "group", r->groups);
    if (r->act) y = graph_op(g, r->act == CONV_RELU ? "Relu" : "LeakyRelu", S("y"), 1, &y);
    *arr_push(g->arena, &g->output) = y;
}

bool conv_row_task(struct task *t, struct arena *a, struct symtab *st, const struct conv_row *r, enum dtype type, enum layout l,
                   struct err *e)
{
    struct graph g = {0};
    graph_init(&g, a, st);
    conv_row_graph(&g, r, type);
    if (!op_infer_all(&g, e)) return false;
    enum layout *layout = arena_array(a, enum layout, g.value.n);
    node_id nodes[] = {1, 2};
    for (u32 i = 0; i < g.input.n; i++) layout[g.input.v[i]] = l;
    if (r->pass != CONV_WEIGHTS) layout[g.output.v[0]] = l;
    return task_make(t, &g, a, nodes, r->act ? 2 : 1, g.output.v, 1, layout, NULL, e);
}
