// SPDX-License-Identifier: Apache-2.0
//
// Samples of the inputs of a network. A folder has a file per sample, in the order of their names; if
// the network has several inputs, a folder for each, named as the input. An .npz file has an array per
// input, named as it, whose first axis counts samples.
#include "cli.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_PATH = 4096, MAX_SAMPLES = 1000000 };

static bool is_dir(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Folders. */

static int is_sample(const struct dirent *d)
{
    static const char *const suffix[] = {".npy", ".png", ".pfm", ".pb", ".raw"};
    for (size_t k = 0; d->d_name[0] != '.' && k < sizeof suffix / sizeof *suffix; k++)
        if (has_suffix(d->d_name, suffix[k])) return 1;
    return 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static int no_samples(const struct cli *c, const char *dir, const char *input)
{
    return usage_error(c, "'%s' has no samples of input '%s' (.npy .png .pfm .pb .raw)", dir, input);
}

/* The files of input k; *n: their number. */
static int list_files(struct samples *s, int k, const char *dir, int *n)
{
    struct dirent **all = NULL;
    *n = scandir(dir, &all, is_sample, by_bytes);
    if (*n > MAX_SAMPLES) return usage_error(s->c, "'%s' has more than %d files", dir, MAX_SAMPLES);
    s->file[k] = calloc((size_t)(*n > 0 ? *n : 0) + 1, sizeof **s->file);
    for (int i = 0; i < *n; i++) {
        size_t size = strlen(dir) + strlen(all[i]->d_name) + 2;
        char *path = s->file[k] ? malloc(size) : NULL;
        if (path) snprintf(path, size, "%s/%s", dir, all[i]->d_name), s->file[k][i] = path;
        free(all[i]);
    }
    free(all);
    return *n > 0 && s->file[k] && s->file[k][*n - 1] ? EXIT_DONE : no_samples(s->c, dir, s->w.v[k].name);
}

/* The folder of an input's samples: its own, or the whole one for a single input. */
static int input_dir(const struct samples *s, int k, const char *dir, char *out)
{
    int n = snprintf(out, MAX_PATH, "%s/%s", dir, s->w.v[k].name);
    if (n >= MAX_PATH) return usage_error(s->c, "the path of '%s' is too long", dir);
    if (is_dir(out)) return EXIT_DONE;
    if (s->w.n == 1) return snprintf(out, MAX_PATH, "%s", dir), EXIT_DONE;
    return usage_error(s->c, "no folder '%s': the network has %d inputs, and each has its samples in a folder of its name", out, s->w.n);
}

static int open_folder(struct samples *s, const char *dir)
{
    char own[MAX_PATH];
    for (int k = 0; k < s->w.n; k++) {
        int n = 0, code = input_dir(s, k, dir, own);
        if (!code) code = list_files(s, k, own, &n);
        if (code) return code;
        if (k > 0 && n != s->n)
            return usage_error(s->c, "inputs '%s' and '%s' have %d and %d samples", s->w.v[0].name, s->w.v[k].name, s->n, n);
        s->n = n;
    }
    return EXIT_DONE;
}

/* Archives. */

/* Rows of axis 0 that are a sample; 0: the axis is added. */
static int64_t rows_of(const struct want *w, const quern_tensor *t)
{
    if (quern_tensor_rank(t) == w->rank + 1) return 0;
    return w->dim[0] > 0 ? w->dim[0] : 1;
}

static int fit_array(struct samples *s, int k, const char *path)
{
    const struct want *w = &s->w.v[k];
    const quern_tensor *t = s->all[k];
    if (!t) return usage_error(s->c, "'%s' has no array '%s', the name of an input", path, w->name);
    int rank = quern_tensor_rank(t);
    if (rank < 1 || (rank != w->rank && rank != w->rank + 1))
        return usage_error(s->c, "array '%s' of rank %d: samples along axis 0 of inputs of rank %d are expected", w->name, rank, w->rank);
    int64_t rows = rows_of(w, t), have = quern_tensor_dims(t)[0], n = have / (rows ? rows : 1);
    if (n < 1 || n > MAX_SAMPLES || (rows && have % rows))
        return usage_error(s->c, "axis 0 of array '%s' has %lld rows, a sample %lld", w->name, (long long)have, (long long)(rows ? rows : 1));
    if (k > 0 && n != s->n)
        return usage_error(s->c, "arrays '%s' and '%s' have %d and %lld samples", s->w.v[0].name, w->name, s->n, (long long)n);
    s->n = (int)n;
    return tensor_convert(s->c, w->dtype, &s->all[k]);
}

static int open_npz(struct samples *s, const char *path)
{
    char name[MAX_IO][256];
    quern_tensor *t[MAX_IO] = {0};
    int n = 0, code = fail(s->c, quern_npz_read(s->c->q, path, t, name, MAX_IO, &n));
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < s->w.n && strcmp(name[i], s->w.v[k].name)) k++;
        if (n == 1 && s->w.n == 1) k = 0; /* numpy.savez(file, x) names it arr_0 */
        if (k < s->w.n && !s->all[k]) s->all[k] = t[i];
        else quern_tensor_free(t[i]);
    }
    for (int k = 0; k < s->w.n && !code; k++) code = fit_array(s, k, path);
    return code;
}

static quern_status row_of(struct samples *s, int i, int k, quern_tensor **out)
{
    const quern_tensor *t = s->all[i];
    int rank = quern_tensor_rank(t);
    int64_t dim[8], rows = rows_of(&s->w.v[i], t), count = 1;
    bool added = rows == 0;
    for (int d = added; d < rank; d++) dim[d - added] = quern_tensor_dims(t)[d];
    if (!added) dim[0] = rows;
    for (int d = 0; d < rank - added; d++) count *= dim[d];
    const char *data = (const char *)quern_tensor_data(t) + k * count * dtype_bytes(quern_tensor_dtype(t));
    return quern_tensor_new(s->c->q, quern_tensor_dtype(t), rank - added, dim, data, out);
}

/* Both. */

int samples_open(struct samples *s, struct cli *c, const quern_model *m, const char *path, int64_t most)
{
    *s = (struct samples){.c = c};
    int code = wants_of_model(c, m, &s->w);
    if (!code && s->w.n == 0) code = usage_error(c, "the network has no inputs");
    if (!code) code = is_dir(path) ? open_folder(s, path) : has_suffix(path, ".npz") ? open_npz(s, path)
                    : usage_error(c, "'%s' is neither a folder nor an .npz file", path);
    if (most > 0 && most < s->n) s->n = (int)most;
    return code;
}

void samples_close(struct samples *s)
{
    for (int k = 0; k < MAX_IO; k++) {
        for (char **f = s->file[k]; f && *f; f++) free(*f);
        free(s->file[k]);
        quern_tensor_free(s->all[k]);
    }
}

quern_status samples_read(void *user, int k, quern_tensor **in, int n_in)
{
    struct samples *s = user;
    if (k >= s->n) return QUERN_NOTHING;
    for (int i = 0; i < n_in; i++) {
        const struct want *w = &s->w.v[i];
        if (s->all[i]) s->code = fail(s->c, row_of(s, i, k, &in[i]));
        else s->code = tensor_read(s->c, s->file[i][k], w, &in[i]);
        if (!s->code && s->all[i]) s->code = tensor_check_shape(w->name, w, in[i]);
        if (s->code) return QUERN_INPUT;
    }
    return QUERN_OK;
}
