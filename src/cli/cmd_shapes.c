// SPDX-License-Identifier: Apache-2.0
//
// quern shapes: the contractions and attentions of a network, and configuration files to tune its matrix products by quern gemm, its attentions
// by quern attention.
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { WARP = 32 };

struct listing {
    struct cli *c;
    const char *dir; /* for configurations; NULL: none */
    double flops;    /* of all */
    int count, n_files, n_others, n_attentions;
    int code;        /* exit code of the first failure */
};

static void put_numbers(const char *key, const int64_t *v, int n)
{
    printf(",\"%s\":[", key);
    for (int i = 0; i < n; i++) printf("%s%lld", i ? "," : "", (long long)v[i]);
    putchar(']');
}

static void put_json(const struct quern_contraction *x)
{
    printf("{\"operator\":");
    json_text(x->op);
    printf(",\"node\":");
    json_text(x->node);
    printf(",\"role\":\"%s\",\"type\":\"%s\",\"count\":%d,\"flops\":%.0f,\"shape\":", x->role, quern_dtype_text(x->type), x->count, x->flops);
    json_text(x->shape);
    put_numbers("left", x->dim[0], x->rank[0]);
    put_numbers("right", x->dim[1], x->rank[1]);
    if (x->m) {
        put_numbers("batch", x->batch, x->n_batch);
        printf(",\"m\":%lld,\"n\":%lld,\"k\":%lld", (long long)x->m, (long long)x->n, (long long)x->k);
    }
    puts("}");
}

/* A type's name at the end of a file's, unless it is f32. */
static const char *type_suffix(quern_dtype t) { return t == QUERN_F32 ? "" : quern_dtype_text(t); }

/* "DIR/mm_12._1024_64_1024.json", with the type's name behind the sizes unless it is f32 */
static void file_name(const struct listing *l, const struct quern_contraction *x, char *out, size_t size)
{
    int n = snprintf(out, size, "%s/mm_", l->dir);
    for (int i = 0; i < x->n_batch; i++) n += snprintf(out + n, size - (size_t)n, "%lld.", (long long)x->batch[i]);
    n += snprintf(out + n, size - (size_t)n, "%s_%lld_%lld_%lld", x->n_batch ? "" : "1.", (long long)x->m, (long long)x->n, (long long)x->k);
    snprintf(out + n, size - (size_t)n, "%s%s.json", x->type == QUERN_F32 ? "" : "_", type_suffix(x->type));
}

/* Returns the exit code. */
static int write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fputs(text, f) >= 0;
    if (f) ok = fclose(f) == 0 && ok;
    if (!ok) fprintf(stderr, "quern: cannot write '%s': %s\n", path, strerror(errno));
    return ok ? EXIT_DONE : EXIT_FAILED;
}

static void write_file(struct listing *l, const char *path, const char *text)
{
    l->code = write_text(path, text);
    l->n_files++;
}

/* Products of types that configurations do not have are counted. */
static void write_space(struct listing *l, const struct quern_contraction *x)
{
    struct quern_gemm_shape s = QUERN_OPTS(quern_gemm_shape);
    char path[4096], *text = NULL;
    if (!x->m || l->code) return;
    s.n_batch = x->n_batch, s.m = x->m, s.n = x->n, s.k = x->k, s.type = x->type;
    memcpy(s.batch, x->batch, sizeof s.batch);
    quern_status status = quern_gemm_space(l->c->q, &s, (int)opts_count(l->c, "warp-size", WARP), &text);
    if (status == QUERN_UNSUPPORTED) {
        l->n_others++;
        return;
    }
    l->code = fail(l->c, status);
    if (!l->code) {
        file_name(l, x, path, sizeof path);
        write_file(l, path, text);
    }
    quern_text_free(text);
}

static void put(void *user, const struct quern_contraction *x)
{
    struct listing *l = user;
    l->flops += x->flops * x->count;
    l->count += x->count;
    if (opts_flag(l->c, "json", false)) put_json(x);
    else
        printf("%5d  %-14s %-6s %-5s %-44s %10.4g %10.4g  %s\n", x->count, x->op, x->role, quern_dtype_text(x->type), x->shape, x->flops / 1e9,
               x->flops * x->count / 1e9, x->node);
    if (l->dir) write_space(l, x);
}

/* Attentions. */

/* Why there is no file for it; NULL: there is, or the reason is an error. The text is valid until the next call of the library. */
static const char *write_attention(struct listing *l, const struct quern_attention *x)
{
    struct quern_attention_shape s = QUERN_OPTS(quern_attention_shape);
    char path[4096], *text = NULL;
    if (!x->kind) return x->why;
    s.kind = x->kind, s.type = quern_dtype_text(x->type);
    s.batch = x->batch, s.heads = x->heads, s.length = x->queries, s.head_size = x->head_size;
    quern_status status = quern_attention_space(l->c->q, &s, (int)opts_count(l->c, "warp-size", WARP), &text);
    if (status == QUERN_NOTHING) return quern_error(l->c->q);
    l->code = fail(l->c, status);
    if (l->code) return NULL;
    snprintf(path, sizeof path, "%s/attn_%s_%lld_%lld_%lld_%lld%s%s.json", l->dir, x->kind, (long long)x->batch, (long long)x->heads, (long long)x->queries,
             (long long)x->head_size, x->type == QUERN_F32 ? "" : "_", type_suffix(x->type));
    write_file(l, path, text);
    quern_text_free(text);
    return NULL;
}

static void put_attention_json(const struct quern_attention *x, const char *why)
{
    printf("{\"operator\":");
    json_text(x->op);
    printf(",\"node\":");
    json_text(x->node);
    printf(",\"role\":\"attention\",\"type\":\"%s\",\"count\":%d,\"batch\":%lld,\"heads\":%lld,\"key_heads\":%lld", quern_dtype_text(x->type), x->count,
           (long long)x->batch, (long long)x->heads, (long long)x->key_heads);
    printf(",\"queries\":%lld,\"keys\":%lld,\"head_size\":%lld,\"value_size\":%lld,\"scale\":%.6g,\"softcap\":%.6g,\"sums\":%s,\"mask\":\"%s\",\"kind\":",
           (long long)x->queries, (long long)x->keys, (long long)x->head_size, (long long)x->value_size, x->scale, x->softcap,
           x->has_sums ? "true" : "false", x->mask);
    if (x->kind) json_text(x->kind);
    else printf("null");
    if (why) printf(",\"why\":"), json_text(why);
    puts("}");
}

/* "16/4": heads, and those of keys if they are fewer; "64/32": size of a head, and of its values if it is another */
static const char *pair_text(char *out, size_t size, int64_t a, int64_t b)
{
    int n = snprintf(out, size, "%lld", (long long)a);
    if (a != b) snprintf(out + n, size - (size_t)n, "/%lld", (long long)b);
    return out;
}

static void put_attention_row(const struct quern_attention *x)
{
    char heads[48], size[48], cap[32] = "-";
    if (x->softcap > 0) snprintf(cap, sizeof cap, "%.6g", x->softcap);
    printf("%5d  %-14s %-5s %6lld %8s %8lld %8lld %8s  %-18s %7s  %-16s  %s\n", x->count, x->op, quern_dtype_text(x->type), (long long)x->batch,
           pair_text(heads, sizeof heads, x->heads, x->key_heads), (long long)x->queries, (long long)x->keys,
           pair_text(size, sizeof size, x->head_size, x->value_size), x->mask[0] ? x->mask : "-", cap, x->kind ? x->kind : "-", x->node);
}

static void put_attention(void *user, const struct quern_attention *x)
{
    struct listing *l = user;
    bool is_json = opts_flag(l->c, "json", false);
    const char *why = x->why;
    if (l->code) return;
    if (!is_json && l->n_attentions++ == 0)
        printf("\n%5s  %-14s %-5s %6s %8s %8s %8s %8s  %-18s %7s  %-16s  %s\n", "count", "attention", "type", "batch", "heads", "queries", "keys", "size", "mask",
               "softcap", "kind", "first node");
    if (!is_json) put_attention_row(x);
    if (l->dir) why = write_attention(l, x);
    if (is_json) put_attention_json(x, why);
    else if (l->dir && why) fprintf(stderr, "no configuration for attention '%s': %s\n", x->node, why);
}

static int open_folder(struct cli *c, const char *dir)
{
    enum { MAX_FOLDER = 3584 }; /* and a file in it */
    if (dir && strlen(dir) > MAX_FOLDER) return usage_error(c, "the name of the folder is too long");
    if (!dir || !mkdir(dir, 0777) || errno == EEXIST) return EXIT_DONE;
    fprintf(stderr, "quern: cannot make the folder '%s': %s\n", dir, strerror(errno));
    return EXIT_FAILED;
}

static void put_total(const struct listing *l)
{
    printf("%5d  %-72s %21s %10.4g\n", l->count, "all", "", l->flops / 1e9);
}

static void put_summary(const struct listing *l)
{
    if (opts_flag(l->c, "json", false)) printf("{\"event\":\"done\",\"count\":%d,\"flops\":%.0f}\n", l->count, l->flops);
    if (l->dir) fprintf(stderr, "%d configurations in %s\n", l->n_files, l->dir);
    if (l->n_others) fprintf(stderr, "%d matrix products of other types than f32, f16, bf16 and f64 have none\n", l->n_others);
}

static int run(struct cli *c)
{
    struct listing l = {.c = c, .dir = opts_text(c, "space")};
    quern_model *m = NULL;
    const char *sizes = opts_words(c, "set");
    int code = open_folder(c, l.dir);
    if (code) return code;
    code = fail(c, open_model(c, c->arg[0], &m));
    if (!code && !opts_flag(c, "json", false))
        printf("%5s  %-14s %-6s %-5s %-44s %10s %10s  %s\n", "count", "operator", "role", "type", "operands", "GFLOP", "all", "first node");
    if (!code) code = fail(c, quern_model_contractions(m, sizes, put, &l));
    if (!code) code = l.code;
    if (!code && !opts_flag(c, "json", false)) put_total(&l);
    if (!code) code = fail(c, quern_model_attentions(m, sizes, put_attention, &l));
    if (!code) code = l.code;
    if (!code) put_summary(&l);
    quern_model_close(m);
    return code;
}

static const struct opt options[] = {
    OPT_SET,
    {"space", 0, OPT_TEXT, "DIR", "write configurations: for quern gemm DIR/mm_BATCH._M_N_K.json, for quern attention DIR/attn_KIND_BATCH_HEADS_QUERIES_SIZE.json"},
    {"warp-size", 0, OPT_COUNT, "N", "--space: threads of a warp (default: 32)"},
    OPT_INTERFACE,
    OPT_END,
};

const struct cmd cmd_shapes = {
    .name = "shapes",
    .summary = "list the matrix products, convolutions and attentions of a network, and write their tuning configurations",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
