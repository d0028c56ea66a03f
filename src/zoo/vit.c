// SPDX-License-Identifier: Apache-2.0
//
// Vision transformer, base size with patches of 16 x 16 (Dosovitskiy and others, "An Image is Worth 16x16 Words", 2021), as torchvision's:
// a token for the class in front of those of the patches.
#include "zoo/zoo.h"

#include <math.h>

enum { LAYERS, WIDTH, HEADS, IMAGE, PATCH, CLASSES, BATCH };

static const struct zoo_size size[] = {
    {"layers", 12, 2, "blocks"},
    {"width", 768, 48, "elements of a token"},
    {"heads", 12, 3, "attention heads"},
    {"image", 224, 32, "rows and columns of a picture"},
    {"patch", 16, 8, "rows and columns of a patch"},
    {"classes", 1000, 10, "columns of the head"},
    {"batch", 0, 2, "pictures; 0: any"},
    {0},
};

/* (batch, 1, width) */
static value_id class_token(struct net *n, value_id x, i64 width)
{
    value_id token = net_normal(n, "class_token", 3, (i64[]){1, 1, width}, 0, sqrt(0.5));
    value_id shape = net_join(n, net_count(n, x, "batch", 0), net_ints(n, "class_token.size", (i64[]){1, width}, 2), "class_token.shape", 0);
    return net_op(n, "Expand", "class_token.all", token, shape);
}

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 12);
    n.e = e;
    i64 width = sizes[WIDTH], image = sizes[IMAGE], patch = sizes[PATCH], tokens = image / patch * (image / patch);
    struct net_transformer t = {.layers = sizes[LAYERS], .width = width, .heads = sizes[HEADS], .norm = NORM_LAYER, .epsilon = 1e-6,
                                .act = ACT_GELU};
    if (!net_transformer_check(&t, e)) return false;
    if (image % patch) return err_set(e, ERR_USAGE, "an image of %lld is not a multiple of patches of %lld", (long long)image, (long long)patch);
    const char *batch = sizes[BATCH] ? str_fmt(g->arena, "%lld", (long long)sizes[BATCH]).p : "batch";
    long long edge = (long long)image;
    value_id x = net_input(&n, "input", str_fmt(g->arena, "%s 3 %lld %lld", batch, edge, edge).p);
    x = net_conv(&n, x, &(struct net_conv){.name = "patches", .in = 3, .out = width, .size = patch, .stride = patch});
    x = net_transpose(&n, net_reshape(&n, x, "flat", 3, (i64[]){0, width, tokens}), "tokens", 3, (i64[]){0, 2, 1});
    x = net_join(&n, class_token(&n, x, width), x, "embeddings", 1);
    x = net_op(&n, "Add", "positions.sum", x, net_normal(&n, "positions", 3, (i64[]){1, tokens + 1, width}, 0, sqrt(0.5)));
    x = net_norm(&n, net_blocks(&n, x, &t), "norm", &t, 1);
    x = net_reshape(&n, net_slice(&n, x, "class", 1, 0, 1), "class.row", 2, (i64[]){0, width});
    net_output(&n, net_dense(&n, x, "head", width, sizes[CLASSES], 1, true), "output");
    return true;
}

const struct zoo zoo_vit = {
    .version = 2,
    .name = "vit",
    .summary = "ViT-B/16, (batch,3,224,224), random weights",
    .size = size,
    .build = build,
};
