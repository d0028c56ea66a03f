// SPDX-License-Identifier: Apache-2.0
//
// quern operators: the operators that quern knows, as a list or as the table of doc/onnx.md.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPERATORS = 4096, N_TYPES = 64 };

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct quern_operator *)a)->name, ((const struct quern_operator *)b)->name);
}

/* All of them, sorted. */
static struct quern_operator *all_operators(int *n)
{
    struct quern_operator *v = calloc(MAX_OPERATORS, sizeof *v);
    for (*n = 0; v && *n < MAX_OPERATORS; ++*n) {
        v[*n] = (struct quern_operator)QUERN_OPTS(quern_operator);
        if (!quern_operator_at(*n, &v[*n])) break;
    }
    if (v) qsort(v, (size_t)*n, sizeof *v, by_name);
    return v;
}

/* "f32 f16 i8 ..." in order of ONNX's numbers */
static void put_types(uint64_t types, const char *sep)
{
    int n = 0;
    for (int t = 0; t < N_TYPES; t++) {
        const char *name = types >> t & 1 ? quern_dtype_text((quern_dtype)t) : NULL;
        if (name) printf("%s%s", n++ ? sep : "", name);
    }
}

static void put_json(const struct quern_operator *o)
{
    printf("{\"operator\":");
    json_text(o->name);
    printf(",\"opset\":%d,\"changed\":%d,\"removed\":%d,\"form\":\"%s\",\"needs\":\"%s\",\"types\":[", o->opset, o->changed, o->removed, o->form, o->needs);
    if (o->types) putchar('"');
    put_types(o->types, "\",\"");
    puts(o->types ? "\"]}" : "]}");
}

/* Part of the name in front of "::"; "" is ONNX's own domain. */
static size_t domain_length(const char *name)
{
    const char *end = strstr(name, "::");
    return end ? (size_t)(end - name) : 0;
}

static bool same_domain(const struct quern_operator *a, const char *domain)
{
    size_t n = domain_length(a->name);
    return n == strlen(domain) && !strncmp(a->name, domain, n);
}

/* "1 to 28", what this library reads; a later change is a change of types where nothing else is said. */
static void put_opsets(const struct quern_operator *o)
{
    if (o->removed) printf("%d to %d", o->opset, o->removed - 1);
    else printf("%d", o->opset);
    if (o->changed > o->opset) printf(", %d", o->changed);
}

static void put_table(const struct quern_operator *v, int n, const char *domain)
{
    bool onnx = !*domain;
    printf("\n## Domain %s\n\n", onnx ? "ai.onnx" : domain);
    puts(onnx ? "| operator | since opset, last changed | computed | device needs | element types |\n|---|---|---|---|---|"
              : "| operator | computed | device needs | element types |\n|---|---|---|---|");
    for (int k = 0; k < n; k++) {
        if (!same_domain(&v[k], domain)) continue;
        printf("| %s |", v[k].name + (onnx ? 0 : strlen(domain) + 2));
        if (onnx) putchar(' '), put_opsets(&v[k]), fputs(" |", stdout);
        printf(" %s | %s | ", *v[k].form ? v[k].form : "**not supported**", v[k].needs);
        put_types(v[k].types, " ");
        puts(" |");
    }
}

static void put_head(void)
{
    puts("# Operators\n\n"
         "Written by `quern operators --markdown`; a test compares this file with what that prints.\n\n"
         "Opsets 1 to 28 of ai.onnx are read. Operators keep the meaning that the model's opset gives them: older forms (attributes that\n"
         "became inputs) are brought to the one of opset 18, newer ones are kept. Element types are those of the first input; `quern check`\n"
         "says what a model needs beyond them.\n\n"
         "Every operator runs on every device that has its element types, because kernels of all languages come from one description of it: a *composite* is\n"
         "replaced by other operators, an *element* operator says how one element of its output is computed, so that it can be fused\n"
         "with its neighbours, a *whole* one is a kernel of its own; *import*: replaced while a\n"
         "model is read. If, Loop and Scan become the nodes of their bodies, or, where only running can decide, If and Loop of ai.quern,\n"
         "whose bodies are programs (*program*) with any operators and types; sizes of carried values may change from round to round.\n\n"
         "Processors (languages c and kir), CUDA and HIP have all types. f16 and bf16 are stored as such and computed in f32 everywhere, types of\n"
         "8 and 16 bits are packed where a device cannot address them. OpenCL and Vulkan devices may lack f64 (`quern devices`:\n"
         "`has_f64`); there operators are refused on f64, and those of which *device needs* says so on other types, too, with some of their\n"
         "attributes. Vulkan devices without 64-bit integers (`has_i64`) compute with pairs of words where a value may need more than one.");
}

/* Each domain once, ONNX's first, our own last. */
static void put_markdown(const struct quern_operator *v, int n)
{
    char domain[64];
    put_head();
    put_table(v, n, "");
    for (int k = 0; k < n; k++) {
        size_t length = domain_length(v[k].name);
        if (!length || length >= sizeof domain || (k && domain_length(v[k - 1].name) == length && !strncmp(v[k - 1].name, v[k].name, length)))
            continue;
        memcpy(domain, v[k].name, length);
        domain[length] = 0;
        put_table(v, n, domain);
    }
}

static int run(struct cli *c)
{
    int n = 0;
    struct quern_operator *v = all_operators(&n);
    if (opts_flag(c, "markdown", false)) put_markdown(v, n);
    for (int k = 0; k < n && !opts_flag(c, "markdown", false); k++) {
        if (c->n_args && strcmp(c->arg[0], v[k].name)) continue;
        if (opts_flag(c, "json", false)) {
            put_json(&v[k]);
            continue;
        }
        printf("%-34s %4d  %-10s ", v[k].name, v[k].opset, *v[k].form ? v[k].form : "no");
        put_types(v[k].types, " ");
        putchar('\n');
    }
    free(v);
    return EXIT_DONE;
}

static const struct opt options[] = {
    {"markdown", 0, OPT_FLAG, NULL, "as the document doc/onnx.md"},
    OPT_END,
};

const struct cmd cmd_operators = {
    .name = "operators",
    .summary = "list the operators of ONNX and other domains that quern knows, and their element types",
    .args = "[OPERATOR]",
    .min_args = 0,
    .max_args = 1,
    .options = options,
    .run = run,
};
