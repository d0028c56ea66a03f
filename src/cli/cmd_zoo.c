// SPDX-License-Identifier: Apache-2.0
//
// quern zoo: quern's built-in networks, as ONNX files.
#include "cli.h"

#include <stdio.h>
#include <string.h>

static int list(void)
{
    const char *name, *summary = "";
    for (int k = 0; (name = quern_zoo_name(k, &summary)); k++) printf("%-18s %s\n", name, summary);
    return EXIT_DONE;
}

static const struct opt options[];

/* What --NAME may be for the network; returns the exit code. */
static int list_sizes(const struct cli *c, const char *name)
{
    const char *known;
    int k = 0;
    while ((known = quern_zoo_name(k, NULL)) && strcmp(known, name)) k++;
    if (!known) return usage_error(c, "no network named '%s'; `quern zoo` lists them", name);
    struct quern_zoo_size s = QUERN_OPTS(quern_zoo_size);
    for (k = 0; quern_zoo_size(name, k, &s); k++)
        printf("--%-14s %8lld  (--small: %lld)  %s\n", s.name, (long long)s.value, (long long)s.small, s.what);
    if (!k) printf("%s has fixed sizes\n", name);
    return EXIT_DONE;
}

/* The options about sizes as "layers=2,width=64"; false: they do not fit. */
static bool read_sizes(const struct cli *c, char *out, size_t size)
{
    size_t n = 0;
    out[0] = 0;
    for (const struct opt *o = options; o->name; o++) {
        const char *v = o->kind == OPT_COUNT ? opts_text(c, o->name) : NULL;
        if (!v) continue;
        int k = snprintf(out + n, size - n, "%s%s=%s", n ? "," : "", o->name, v);
        if (k < 0 || (size_t)k >= size - n) return false;
        n += (size_t)k;
    }
    return true;
}

static int run(struct cli *c)
{
    const char *out = opts_text(c, "output");
    char sizes[1024];
    quern_model *m = NULL;
    if (c->n_args < 1) return list();
    if (!out) return list_sizes(c, c->arg[0]);
    if (!read_sizes(c, sizes, sizeof sizes)) return usage_error(c, "the sizes are too long");
    quern_status s = quern_model_zoo_sized(c->q, c->arg[0], sizes, opts_flag(c, "small", false), &m);
    if (!s) s = quern_model_save(m, out);
    int code = fail(c, s);
    quern_model_close(m);
    return code;
}

/* Counts are sizes of networks, by their names there. */
static const struct opt options[] = {
    OPT_OUTPUT("MODEL.onnx", "the model; without it, the sizes of the network are listed"),
    {"small", 0, OPT_FLAG, NULL, "the sizes that tests use, where no other is given (default: those of the published network)"},
    {"layers", 0, OPT_COUNT, "N", "blocks of a transformer"},
    {"width", 0, OPT_COUNT, "N", "elements of a token"},
    {"heads", 0, OPT_COUNT, "N", "attention heads"},
    {"kv-heads", 0, OPT_COUNT, "N", "attention heads of keys and values"},
    {"hidden", 0, OPT_COUNT, "N", "width of feed-forward layers"},
    {"vocabulary", 0, OPT_COUNT, "N", "different tokens"},
    {"positions", 0, OPT_COUNT, "N", "rows of the table of positions"},
    {"tokens", 0, OPT_COUNT, "N", "tokens of a sequence; 0: any, if the network allows it"},
    {"batch", 0, OPT_COUNT, "N", "sequences or pictures; 0: any, if the network allows it"},
    {"image", 0, OPT_COUNT, "N", "rows and columns of a picture"},
    {"patch", 0, OPT_COUNT, "N", "rows and columns of a patch"},
    {"window", 0, OPT_COUNT, "N", "rows and columns of a window"},
    {"experts", 0, OPT_COUNT, "N", "experts of a mixture"},
    {"classes", 0, OPT_COUNT, "N", "columns of the head"},
    OPT_END,
};

const struct cmd cmd_zoo = {
    .name = "zoo",
    .summary = "list or write the built-in networks, in any size",
    .args = "[NAME]",
    .max_args = 1,
    .options = options,
    .run = run,
};
