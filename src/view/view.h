// SPDX-License-Identifier: Apache-2.0
//
// view: a network as graphs and pictures for people and other programs. Operators and tensors with
// what is known of them, in the forms of other tools. Nothing here decides, measures or opens
// networks.
//
//   facts.c    what is known of operators and tensors
//   times.c    measured times of operators
//   group.c    groups of operators, so that pictures of large networks stay readable
//   json.c     JSON, as networkx has it
//   graphml.c  GraphML
//   picture.c  what a picture shows, and where
//   dot.c      Graphviz
//   draw.c     pictures, by Graphviz
//   onnx.c     ONNX with devices as metadata, for viewers of networks
#ifndef QUERN_VIEW_H
#define QUERN_VIEW_H

#include "place/place.h"

/* Groups of operators, of which none depends on another one in a circle. */
struct view_group {
    struct str name; /* "encoder/layer.0", "block 3"; of a single operator: its name */
    struct {
        u32 *v;
        u32 n, cap;
    } op;     /* in topological order */
    u32 part; /* sub-graph that it is in; 0 without any */
};
struct view_groups {
    struct {
        struct view_group *v;
        u32 n, cap;
    } group;
    u32 *of; /* per operator; NULL: not grouped */
};

struct view_time {
    double seconds; /* measured, of the kernels of which it is the largest operator; NAN: unknown */
    u32 fused_into; /* operator whose kernel computes this one, too; UINT32_MAX: none */
    u32 kernel;     /* number of the first kernel that computes it; UINT32_MAX: unknown */
};

struct view {
    const struct place_net *x;
    const i64 *var; /* sizes, for operations and bytes */
    u32 n_var;
    const struct place_devices *devices; /* these three: NULL without an allocation */
    const struct place_allocation *allocation;
    const struct place_parts *parts;
    const struct view_time *time; /* per operator; NULL: unknown */
    const char *time_device;      /* of the times: "cpu" */
    struct view_groups groups;
    u32 *part_of;      /* per operator; NULL without an allocation */
    bool shows_params; /* in pictures: parameters */
    double size;       /* of a picture: most inches of width and height; 0: what it takes */
};
/* Fills in part_of. */
void view_init(struct view *v, struct arena *a);

/* facts.c */
enum view_kind { FIELD_TEXT, FIELD_INT, FIELD_FLOAT, FIELD_JSON };
struct view_field {
    const char *key;
    enum view_kind kind;
    struct str text; /* FIELD_JSON: a JSON value */
    i64 i;
    double f;
};
struct view_fields {
    struct view_field *v;
    u32 n, cap;
};
/* In the arena. Keys are the same for all operators, and for all tensors; unknown ones are omitted.
 */
void view_op_fields(struct view_fields *f, const struct view *v, u32 op, struct arena *a);
void view_tensor_fields(struct view_fields *f, const struct view *v, u32 tensor, struct arena *a);
void view_net_fields(struct view_fields *f, const struct view *v, struct arena *a);
/* Per node of the graph in topological order: calls `op` with false for a tensor's index, true for
 * an operator's. */
void view_each(const struct view *v, void (*each)(void *user, bool is_op, u32 k), void *user);
/* Each edge once, in the order of operators: into the operator, or, is_out, from it. */
void view_each_edge(const struct view *v, void (*each)(void *user, u32 op, u32 tensor, bool is_out),
                    void *user);
double view_flops(const struct view *v, u32 op);  /* a multiply-add is two; 0: unknown */
i64 view_bytes(const struct view *v, u32 tensor); /* -1: unknown */

/* times.c */
/* A copy of the network's graph whose nodes are named after their operators, to be lowered:
 * model_lower. */
void view_named(struct graph *g, const struct view *v, struct arena *a);
/* The kernels that were chosen for that graph, and those of their times that were measured. */
struct view_time *view_times(const struct view *v, const struct plan_choice *x, struct arena *a);

/* group.c */
enum view_collapse {
    COLLAPSE_AUTO, /* by module if that leaves few enough groups, else in blocks; small networks not
                      at all */
    COLLAPSE_NONE,
    COLLAPSE_MODULE, /* by the path in nodes' names: "/encoder/layer.0/attention/MatMul" */
    COLLAPSE_FUSION, /* by kernel; needs view.time */
    COLLAPSE_BLOCKS, /* successive operators, divided where few tensors pass */
    N_COLLAPSES
};
const char *view_collapse_name(enum view_collapse c);
bool view_collapse_parse(enum view_collapse *c, struct str name, struct err *e);
void view_group(struct view *v, enum view_collapse c, struct arena *a);

/* json.c, graphml.c, dot.c */
void view_json(struct buf *b, const struct view *v);
void view_graphml(struct buf *b, const struct view *v);
void view_dot(struct buf *b, const struct view *v);
void view_put_xml(struct buf *b, struct str s); /* text for XML, invalid characters replaced */

/* draw.c. form: "svg" or "png", or another one of Graphviz. */
bool view_draw(struct buf *b, const struct view *v, const char *form, struct err *e);

/* onnx.c */
bool view_onnx(const struct view *v, const char *path, struct err *e);

#endif
