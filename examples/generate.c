// SPDX-License-Identifier: Apache-2.0
//
// generate NET.onnx N ID...: continues the tokens ID... by N likeliest ones, with the caches in a state: a run computes the new
// tokens only, and with its output given allocates nothing. NET has inputs input_ids (1, s), and if any attention_mask (1, p + s) and
// position_ids (1, s), all i64, caches (past.. and present..), and an output of scores, f32 (1, s, vocabulary).
//     cc -o generate generate.c $(pkg-config --cflags --libs quern)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "quern.h"

enum { MAX = 256 };

struct net {
    quern *q;
    quern_program *p;
    quern_state *s;
    int n_in, n_out, scores;
    int64_t *token, n; /* so far */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static quern_status open_net(struct net *x, const char *path, int64_t max)
{
    struct quern_model_opts o = QUERN_OPTS(quern_model_opts);
    quern_model *m = NULL;
    o.state = "auto"; /* caches in place */
    quern_status s = quern_model_open(x->q, path, &o, &m);
    if (!s) s = quern_compile(m, NULL, NULL, &x->p);
    if (!s) s = quern_state_create(x->p, max, NULL, &x->s);
    quern_model_close(m);
    x->n_in = quern_program_inputs(x->p), x->n_out = quern_program_outputs(x->p);
    for (int k = x->n_out - 1; k >= 0; k--)
        if (!quern_state_holds_output(x->s, k)) x->scores = k;
    return s;
}

/* Input k for the tokens that the state does not have yet. */
static quern_status make_input(const struct net *x, int k, quern_tensor **t)
{
    const char *name = quern_program_input_name(x->p, k);
    int64_t past = quern_state_length(x->s), dim[2] = {1, x->n - past};
    int is_mask = strstr(name, "mask") != NULL, is_position = strstr(name, "position") != NULL;
    if (is_mask) dim[1] = x->n;
    quern_status s = quern_tensor_new(x->q, QUERN_I64, 2, dim, NULL, t);
    int64_t *v = s ? NULL : quern_tensor_data(*t);
    for (int64_t i = 0; v && i < dim[1]; i++) v[i] = is_mask ? 1 : is_position ? past + i : x->token[past + i];
    return s;
}

/* The likeliest token after those so far. */
static quern_status next(struct net *x)
{
    quern_tensor *in[MAX] = {0}, *out[MAX] = {0};
    quern_status s = x->n_in > MAX || x->n_out > MAX ? QUERN_UNSUPPORTED : QUERN_OK;
    for (int k = 0; k < x->n_in && !s; k++)
        if (!quern_state_holds_input(x->s, k)) s = make_input(x, k, &in[k]);
    if (!s) s = quern_state_run(x->s, in, x->n_in, out, x->n_out);
    if (!s) {
        int64_t vocabulary = quern_tensor_dims(out[x->scores])[2], best = 0;
        const float *v = (const float *)quern_tensor_data(out[x->scores]) + quern_tensor_count(out[x->scores]) - vocabulary;
        for (int64_t i = 1; i < vocabulary; i++)
            if (v[i] > v[best]) best = i;
        x->token[x->n++] = best;
    }
    for (int k = 0; k < MAX; k++) quern_tensor_free(in[k]), quern_tensor_free(out[k]);
    return s;
}

int main(int argc, char **argv)
{
    int more = argc > 3 ? atoi(argv[2]) : 0, n_prompt = argc - 3;
    if (more < 1) return fprintf(stderr, "usage: generate NET.onnx N ID...\n"), 2;
    struct net x = {.q = quern_open(NULL), .token = calloc((size_t)(n_prompt + more), sizeof *x.token)};
    for (int k = 0; k < n_prompt; k++) x.token[x.n++] = atoll(argv[3 + k]);
    quern_status s = open_net(&x, argv[1], n_prompt + more);
    double start = seconds(), prompt = 0;
    for (int k = 0; k < more && !s; k++) {
        s = next(&x);
        if (k == 0) prompt = seconds() - start;
        if (!s) printf("%lld\n", (long long)x.token[x.n - 1]);
    }
    if (s) fprintf(stderr, "generate: %s\n", quern_error(x.q));
    else fprintf(stderr, "%.1f tokens/s of the prompt, %.1f generated\n", n_prompt / prompt, (more - 1) / (seconds() - start - prompt));
    quern_state_destroy(x.s);
    quern_program_close(x.p);
    quern_close(x.q);
    free(x.token);
    return s != QUERN_OK;
}
