// SPDX-License-Identifier: Apache-2.0
//
// Files of the command line as inputs of a network, and outputs to files.
// [name=]file: without a name the next free input. Pictures are converted
// as the network needs (cli_picture.c); element types are converted.
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void tensors_release(struct tensors *t)
{
    for (int k = 0; k < MAX_IO; k++) quern_tensor_free(t->v[k]);
    *t = (struct tensors){0};
}

/* assignment of files */

struct names {
    const char *what; /* "input" */
    int n;
    const char *name[MAX_IO];
};

static int find_name(const struct names *l, const char *s, size_t n)
{
    for (int k = 0; k < l->n; k++)
        if (!strncmp(l->name[k], s, n) && !l->name[k][n]) return k;
    return -1;
}

/* Assigns each value of option `name` to file[k]. */
static int assign_files(struct cli *c, const char *option, const struct names *l, const char **file)
{
    int at = 0;
    const char *v;
    while ((v = opts_next(c, option, &at))) {
        const char *eq = strchr(v, '=');
        struct stat st;
        int k = eq ? find_name(l, v, (size_t)(eq - v)) : -1;
        if (k < 0 && eq && stat(v, &st) && !strchr(v, '/')) {
            usage_error(c, "no %s named '%.*s'", l->what, (int)(eq - v), v);
            fprintf(stderr, "%ss:", l->what);
            for (int i = 0; i < l->n; i++) fprintf(stderr, " %s", l->name[i]);
            fprintf(stderr, "\n");
            return EXIT_USAGE;
        }
        const char *path = k < 0 ? v : eq + 1;
        for (int i = 0; k < 0 && i < l->n; i++)
            if (!file[i]) k = i;
        while (k > 0 && path == v && !file[k - 1]) k--; /* the first free one */
        if (k < 0 || file[k])
            return usage_error(c, "unexpected %s '%s': the network has %d", l->what, v, l->n);
        file[k] = path;
    }
    return EXIT_DONE;
}

/* fitting */

static int too_many(const struct cli *c, const char *what)
{
    return usage_error(c, "the network has more than %d %s", MAX_IO, what);
}

int wants_of_program(const struct cli *c, const quern_program *p, struct wants *w)
{
    w->n = quern_program_inputs(p);
    if (w->n > MAX_IO) return too_many(c, "inputs");
    for (int k = 0; k < w->n; k++) {
        struct want *x = &w->v[k];
        *x = (struct want){.name = quern_program_input_name(p, k),
                           .dtype = quern_program_input_dtype(p, k),
                           .layout = quern_program_input_layout(p, k)};
        x->rank = quern_program_input_shape(p, k, x->dim, x->sym);
    }
    return EXIT_DONE;
}

int wants_of_model(const struct cli *c, const quern_model *m, struct wants *w)
{
    w->n = quern_model_inputs(m);
    if (w->n > MAX_IO) return too_many(c, "inputs");
    for (int k = 0; k < w->n; k++) {
        struct want *x = &w->v[k];
        *x = (struct want){.name = quern_model_input_name(m, k),
                           .dtype = quern_model_input_dtype(m, k),
                           .layout = quern_model_input_layout(m, k)};
        x->rank = quern_model_input_shape(m, k, x->dim, x->sym);
    }
    return EXIT_DONE;
}

static bool shape_fits(const struct want *w, const quern_tensor *t)
{
    if (quern_tensor_rank(t) != w->rank) return false;
    for (int d = 0; d < w->rank; d++)
        if (w->dim[d] >= 0 && w->dim[d] != quern_tensor_dims(t)[d]) return false;
    return true;
}

static void print_dims(int rank, const int64_t *dim, const char *const *sym)
{
    fprintf(stderr, "(");
    for (int d = 0; d < rank; d++) {
        if (d) fprintf(stderr, ", ");
        if (dim[d] >= 0) fprintf(stderr, "%lld", (long long)dim[d]);
        else fprintf(stderr, "%s", sym[d] && *sym[d] ? sym[d] : "?");
    }
    fprintf(stderr, ")");
}

int tensor_check_shape(const char *path, const struct want *w, const quern_tensor *t)
{
    if (shape_fits(w, t)) return EXIT_DONE;
    fprintf(stderr, "quern: '%s' has shape ", path);
    print_dims(quern_tensor_rank(t), quern_tensor_dims(t), NULL);
    fprintf(stderr, ", input '%s' needs ", w->name);
    print_dims(w->rank, w->dim, w->sym);
    fprintf(stderr, "\n");
    return EXIT_FAILED;
}

int tensor_convert(struct cli *c, quern_dtype to, quern_tensor **t)
{
    if (quern_tensor_dtype(*t) == to) return EXIT_DONE;
    quern_tensor *cast = NULL;
    quern_status s = quern_tensor_cast(c->q, *t, to, &cast);
    if (s) return fail(c, s);
    quern_tensor_free(*t);
    *t = cast;
    return EXIT_DONE;
}

static int fit(struct cli *c, const char *path, const struct want *w, quern_tensor **t)
{
    int code = is_picture(path) ? picture_to_input(c, w, t) : EXIT_DONE;
    if (!code) code = tensor_check_shape(path, w, *t);
    return code ? code : tensor_convert(c, w->dtype, t);
}

/* raw files: sizes from --set, and one from the size of the file */

int64_t dtype_bytes(quern_dtype t)
{
    switch (t) {
    case QUERN_U8:
    case QUERN_I8:
    case QUERN_F8E4M3FN:
    case QUERN_F8E4M3FNUZ:
    case QUERN_F8E5M2:
    case QUERN_F8E5M2FNUZ:
    case QUERN_F8E8M0:
    case QUERN_F6E2M3:
    case QUERN_F6E3M2:
    case QUERN_F4E2M1:
    case QUERN_U4:
    case QUERN_I4:
    case QUERN_U2:
    case QUERN_I2:
    case QUERN_BOOL: return 1;
    case QUERN_U16:
    case QUERN_I16:
    case QUERN_F16:
    case QUERN_BF16: return 2;
    case QUERN_F32:
    case QUERN_I32:
    case QUERN_U32: return 4;
    case QUERN_I64:
    case QUERN_F64:
    case QUERN_U64: return 8;
    default: return 0;
    }
}

static int64_t size_set(const struct cli *c, const char *name)
{
    int at = 0;
    const char *v;
    size_t n = strlen(name);
    long long x;
    while ((v = opts_next(c, "set", &at)))
        if (!strncmp(v, name, n) && (v[n] == '=' || v[n] == ':') &&
            sscanf(v + n + 1, "%lld", &x) == 1 && x >= 0)
            return x;
    return -1;
}

static quern_status read_raw(struct cli *c, const char *path, const struct want *w,
                             quern_tensor **t)
{
    int64_t dim[8] = {0}, known = dtype_bytes(w->dtype);
    int open = -1;
    struct stat st;
    for (int d = 0; d < w->rank; d++) {
        dim[d] = w->dim[d] >= 0 ? w->dim[d] : size_set(c, w->sym[d]);
        if (dim[d] < 0) open = d;
        else if (dim[d] > 0 && known < INT64_MAX / dim[d]) known *= dim[d];
    }
    if (open >= 0 && !stat(path, &st)) dim[open] = st.st_size / known;
    return quern_tensor_read_raw(c->q, path, w->dtype, w->rank, dim, t);
}

int tensor_read(struct cli *c, const char *path, const struct want *w, quern_tensor **t)
{
    quern_status s = has_suffix(path, ".raw") ? read_raw(c, path, w, t) : quern_tensor_read(c->q, path, t);
    return s ? fail(c, s) : fit(c, path, w, t);
}

int tensors_read(struct cli *c, const struct wants *w, struct tensors *in)
{
    const char *file[MAX_IO] = {0};
    struct names l = {.what = "input", .n = w->n};
    for (int k = 0; k < l.n; k++) l.name[k] = w->v[k].name;
    int code = assign_files(c, "input", &l, file);
    for (int k = 0; k < l.n && !code; k++) {
        if (!file[k])
            return usage_error(c, "no file for input '%s', give -i %s=FILE", l.name[k], l.name[k]);
        code = tensor_read(c, file[k], &w->v[k], &in->v[k]);
        in->n = k + 1;
    }
    return code;
}

const char *tensors_sizes(struct cli *c, const struct wants *w, const struct tensors *in)
{
    const char *all = "";
    for (int k = 0; k < in->n; k++)
        for (int d = 0; d < w->v[k].rank; d++) {
            const char *sym = w->v[k].dim[d] < 0 ? w->v[k].sym[d] : "";
            if (*sym) all = cli_text(c, "%s%s%s=%lld", all, *all ? "," : "", sym, (long long)quern_tensor_dims(in->v[k])[d]);
        }
    return all;
}

/* l: names of the outputs, with their layouts. */
static int write_all(struct cli *c, const struct names *l, const char *const *layout, struct tensors *out)
{
    const char *file[MAX_IO] = {0};
    int code = assign_files(c, "output", l, file);
    for (int k = 0; k < l->n && !code; k++) {
        if (file[k] && is_picture(file[k])) code = picture_of_output(c, layout[k], &out->v[k]);
        if (file[k] && !code) code = fail(c, quern_tensor_write(c->q, file[k], out->v[k]));
    }
    return code;
}

int tensors_write(struct cli *c, quern_program *p, struct tensors *out)
{
    const char *layout[MAX_IO] = {0};
    struct names l = {.what = "output", .n = quern_program_outputs(p)};
    for (int k = 0; k < l.n; k++) l.name[k] = quern_program_output_name(p, k), layout[k] = quern_program_output_layout(p, k);
    return write_all(c, &l, layout, out);
}

/* Names are those of the network, where they are known. */
static const char *value_name(const struct quern_deployment_value *v) { return *v->origin ? v->origin : v->name; }

int wants_of_deployment(const struct cli *c, quern_deployment *d, struct wants *w)
{
    struct quern_deployment_value v = QUERN_OPTS(quern_deployment_value);
    w->n = quern_deployment_inputs(d);
    if (w->n > MAX_IO) return too_many(c, "inputs");
    for (int k = 0; k < w->n && !quern_deployment_value(d, 0, k, &v); k++) {
        struct want *x = &w->v[k];
        *x = (struct want){.name = value_name(&v), .dtype = v.type, .layout = "", .rank = v.rank};
        for (int i = 0; i < v.rank; i++) x->dim[i] = v.dim[i], x->sym[i] = v.sym[i];
    }
    return EXIT_DONE;
}

int tensors_write_deployment(struct cli *c, quern_deployment *d, struct tensors *out)
{
    const char *layout[MAX_IO] = {0};
    struct quern_deployment_value v = QUERN_OPTS(quern_deployment_value);
    struct names l = {.what = "output", .n = quern_deployment_outputs(d)};
    if (l.n > MAX_IO) return too_many(c, "outputs");
    for (int k = 0; k < l.n && !quern_deployment_value(d, 1, k, &v); k++) l.name[k] = value_name(&v), layout[k] = "";
    return write_all(c, &l, layout, out);
}
