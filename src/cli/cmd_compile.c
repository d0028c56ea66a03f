// SPDX-License-Identifier: Apache-2.0
//
// quern compile: selects a program by a database (default schedules
// without one) and writes it, by default beside the model.
#include "cli.h"

#include <stdio.h>
#include <string.h>

/* NET.onnx -> NET.dnx */
static const char *default_output(const char *model, char *path, size_t size)
{
    const char *dot = strrchr(model, '.'), *slash = strrchr(model, '/');
    size_t n =
        dot && dot != model && (!slash || dot > slash + 1) ? (size_t)(dot - model) : strlen(model);
    bool is_pipe = !strcmp(model, "-");
    int k =
        is_pipe ? snprintf(path, size, "a.dnx") : snprintf(path, size, "%.*s.dnx", (int)n, model);
    return k > 0 && (size_t)k < size ? path : NULL;
}

static quern_status print_summary(struct cli *c, const char *dnx)
{
    char *text = NULL;
    quern_status s = opts_flag(c, "summarize", false) ? quern_show(c->q, dnx, &text) : QUERN_OK;
    if (text) fputs(text, stdout);
    quern_text_free(text);
    return s;
}

/* Kernels bind their buffers in descriptor set 0; users that disassemble a program may need others. */
static void note_sets(struct cli *c)
{
    const char *v;
    for (int at = 0; (v = opts_next(c, "use-descriptor-sets", &at));)
        if (strcmp(v, "0")) {
            progress_event(c->progress,
                           &(struct quern_event){
                               .kind = QUERN_LOG,
                               .level = 1,
                               .text = "kernels use descriptor set 0; quern export moves them"});
            return;
        }
}

static int run(struct cli *c)
{
    char path[4096];
    const char *out = opts_text(c, "output"), *db_path = opts_text(c, "db");
    quern_db *db = NULL;
    quern_model *m;
    quern_program *p = NULL;
    if (!out) out = default_output(c->arg[0], path, sizeof path);
    if (!out) return usage_error(c, "the name of the model is too long");
    note_sets(c);
    quern_status s = open_model(c, c->arg[0], &m);
    if (!s && db_path) s = quern_db_open(c->q, db_path, &db);
    if (!s) s = compile_model(c, m, db, TO_SHIP, &p);
    if (!s) s = quern_program_save(p, out);
    if (!s) s = print_summary(c, out);
    int code = fail(c, s);
    quern_program_close(p);
    quern_db_close(db);
    quern_model_close(m);
    return code;
}

static const struct opt options[] = {
    OPT_OUTPUT("NET.dnx", "the program (default: MODEL.dnx)"),
    {"summarize", 0, OPT_FLAG, NULL, "print the parts of the program"},
    OPT_EFFORT,
    OPT_SETS,
    OPT_DB,
    OPT_TARGET,
    OPT_INTERFACE,
    OPT_THREADS,
    OPT_UNTUNED,
    OPT_FUSION,
    OPT_PROVE,
    OPT_END,
};

const struct cmd cmd_compile = {
    .name = "compile",
    .summary = "compile a network to a program, by the measurements of a database",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
