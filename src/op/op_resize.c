// SPDX-License-Identifier: Apache-2.0
//
// The attributes of Resize and of the primitives it becomes: names of modes, and struct op_resize
// read from a node and written to one. The primitives hold what Resize has in inputs as attributes:
// "out" sizes, "num" and "den" of the scales, all symbolic expressions per axis, and "roi".
#include "op/op.h"

enum { N_ASPECTS = 3 };

static const char *const mode_names[N_RESIZE_MODES] = {"nearest", "linear", "cubic"};
static const char *const rounding_names[N_ROUNDS] = {"floor", "ceil", "round_prefer_floor",
                                                     "round_prefer_ceil", "quern_simple"};
static const char *const coord_names[N_COORDS] = {
    "half_pixel",           "pytorch_half_pixel", "align_corners",        "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize", "half_pixel_symmetric",
};
static const char *const aspect_names[N_ASPECTS] = {"stretch", "not_larger", "not_smaller"};

static bool read_name(struct graph *g, node_id n, const char *attr, const char *const *names,
                      u32 count, u32 *out, struct err *e)
{
    struct str s = attr_str(graph_node(g, n), attr, names[*out]);
    for (u32 i = 0; i < count; i++)
        if (str_is(s, names[i])) return *out = i, true;
    return op_unsupported(e, g, n, "%s '%.*s'", attr, STR_ARG(s));
}

bool op_resize_read(struct graph *g, node_id n, struct op_resize *r, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    *r = (struct op_resize){
        .mode = RESIZE_NEAREST, .rounding = ROUND_PREFER_FLOOR, .coord = COORD_HALF_PIXEL};
    if (!read_name(g, n, "mode", mode_names, N_RESIZE_MODES, &r->mode, e)) return false;
    if (!read_name(g, n, "nearest_mode", rounding_names, N_ROUNDS, &r->rounding, e)) return false;
    if (!read_name(g, n, "coordinate_transformation_mode", coord_names, N_COORDS, &r->coord, e))
        return false;
    if (!read_name(g, n, "keep_aspect_ratio_policy", aspect_names, N_ASPECTS, &r->aspect, e))
        return false;
    r->cubic_a = attr_float(nd, "cubic_coeff_a", -0.75);
    r->extrapolation = attr_float(nd, "extrapolation_value", 0);
    r->exclude_outside = attr_int(nd, "exclude_outside", 0);
    r->antialias = attr_int(nd, "antialias", 0) && r->mode != RESIZE_NEAREST;
    r->rank = op_in_shape(g, nd, 0)->rank;
    sym one = sym_const(g->sym, 1);
    for (u32 i = 0; i < r->rank; i++) {
        r->in[i] = r->out[i] = op_in_shape(g, nd, 0)->dim[i];
        r->num[i] = r->den[i] = one;
        r->end[i] = 1;
    }
    if (r->antialias && r->coord == COORD_TF_CROP)
        return op_unsupported(e, g, n, "antialias with tf_crop_and_resize");
    bool is_split = op_of(g, n)->expand && dtype_is_int(op_in_dtype(g, nd, 0)); /* computed in f32 */
    if (r->mode != RESIZE_NEAREST && !dtype_is_float(op_in_dtype(g, nd, 0)) && !is_split)
        return op_unsupported(e, g, n, "mode %s for type %s", mode_names[r->mode],
                              dtype_name(op_in_dtype(g, nd, 0)));
    return true;
}

/* The size does not change and no element moves. */
bool op_resize_same(const struct op_resize *r, u32 i)
{
    return r->in[i] == r->out[i] && r->num[i] == r->den[i] && r->start[i] == 0 && r->end[i] == 1;
}

bool op_resize_get(const struct graph *g, const struct node *nd, struct op_resize *r)
{
    struct err e = {0};
    const struct attr *roi = node_attr(nd, "roi");
    struct graph *any = (struct graph *)(uintptr_t)g; /* read_modes only reads */
    if (!op_resize_read(any, (node_id)(nd - g->node.v), r, &e)) return false;
    i64 rank = r->rank;
    if (op_get_syms(g, nd, "out", r->out, MAX_RANK) != rank ||
        op_get_syms(g, nd, "num", r->num, MAX_RANK) != rank ||
        op_get_syms(g, nd, "den", r->den, MAX_RANK) != rank)
        return false;
    for (i64 i = 0; roi && roi->kind == ATTR_FLOATS && roi->n == 2 * rank && i < rank; i++)
        r->start[i] = roi->floats[i], r->end[i] = roi->floats[i + rank];
    return true;
}

void op_resize_modes(struct graph *g, node_id n, const struct op_resize *r)
{
    attr_set_str(g, n, "mode", str_of(mode_names[r->mode]));
    attr_set_str(g, n, "coordinate_transformation_mode", str_of(coord_names[r->coord]));
    if (r->mode == RESIZE_NEAREST)
        attr_set_str(g, n, "nearest_mode", str_of(rounding_names[r->rounding]));
    if (r->mode == RESIZE_CUBIC) attr_set_float(g, n, "cubic_coeff_a", r->cubic_a);
    if (r->coord == COORD_TF_CROP) attr_set_float(g, n, "extrapolation_value", r->extrapolation);
    if (r->exclude_outside) attr_set_int(g, n, "exclude_outside", 1);
    if (r->antialias) attr_set_int(g, n, "antialias", 1);
}

static void set_roi(struct graph *g, node_id n, const struct op_resize *r)
{
    struct attr a = {.name = S("roi"), .kind = ATTR_FLOATS, .n = 2 * (i64)r->rank};
    a.floats = arena_array(g->arena, double, a.n + 1);
    for (u32 i = 0; i < r->rank; i++) a.floats[i] = r->start[i], a.floats[i + r->rank] = r->end[i];
    attr_copy(g, n, &a);
}

void op_resize_put(struct graph *g, node_id n, const struct op_resize *r)
{
    op_resize_modes(g, n, r);
    op_set_syms(g, n, "out", r->out, r->rank);
    op_set_syms(g, n, "num", r->num, r->rank);
    op_set_syms(g, n, "den", r->den, r->rank);
    if (r->coord == COORD_TF_CROP) set_roi(g, n, r);
}
