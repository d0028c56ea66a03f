// SPDX-License-Identifier: Apache-2.0
//
// quern graph: a network as a graph for other programs, or as a picture.
#include "cli.h"

#include <string.h>

/* Measured times are optional: without --db there are none. */
static int open_times(struct cli *c, quern_db **db)
{
    const char *path = opts_text(c, "db");
    return path ? fail(c, quern_db_open(c->q, path, db)) : EXIT_DONE;
}

static int params_of(const struct cli *c)
{
    if (opts_flag(c, "params", false)) return 1;
    return opts_flag(c, "params", true) ? 0 : -1;
}

static int run(struct cli *c)
{
    struct quern_graph_opts o = QUERN_OPTS(quern_graph_opts);
    struct quern_target_opts target = QUERN_OPTS(quern_target_opts);
    const char *path = opts_text(c, "output");
    quern_model *m = NULL;
    quern_db *db = NULL;
    if (!path) path = "-";
    o.form = opts_text(c, "to");
    if (!o.form && !strcmp(path, "-")) o.form = "json";
    o.allocation_file = opts_text(c, "alloc");
    o.sizes = opts_words(c, "set");
    o.collapse = opts_text(c, "collapse");
    o.inches = opts_number(c, "size", 0);
    o.params = params_of(c);
    o.device = opts_text(c, "device");
    o.threads = (int)opts_count(c, "threads", 0);
    target_options(c, &target);
    o.target = &target;
    int code = open_times(c, &db);
    if (!code) code = fail(c, open_model(c, c->arg[0], &m));
    if (!code) code = fail(c, quern_graph_write(m, db, &o, path));
    quern_model_close(m);
    quern_db_close(db);
    return code;
}

static const struct opt options[] = {
    OPT_OUTPUT("FILE", "file to write: .json, .graphml, .dot, .svg, .png, .onnx (default: JSON to "
                       "standard output)"),
    {"to", 0, OPT_TEXT, "FORM",
     "form instead of that of the file's suffix: json, graphml, dot, svg, png, onnx"},
    {"alloc", 0, OPT_TEXT, "FILE",
     "allocation, {\"conv2d_2\": \"X64:0\", ..}: colours by device, frames around sub-graphs"},
    OPT_DB,
    {"size", 0, OPT_NUMBER, "INCHES",
     "most width and height of a picture, usually 5 to 40 (default: what it takes)"},
    {"collapse", 0, OPT_TEXT, "HOW",
     "operators that pictures show as one: auto (default), none, module, fusion, blocks"},
    {"params", 0, OPT_FLAG, NULL,
     "show parameters in pictures (default: of small networks; --no-params: of none)"},
    OPT_SET,
    OPT_THREADS,
    OPT_TARGET,
    OPT_INTERFACE,
    OPT_END,
};

const struct cmd cmd_graph = {
    .name = "graph",
    .summary =
        "write a network as a graph (JSON, GraphML, DOT, ONNX) or as a picture (doc/graph.md)",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
