// SPDX-License-Identifier: Apache-2.0
//
// quern generate: tokens in, tokens out, with the caches in a state. A token's number is all that is known of it: without a tokenizer,
// texts are bytes, one token each.
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STOPS = 16, DEFAULT_TOKENS = 64 };

/* What an input of the network receives. */
enum role { TOKENS, MASK, POSITIONS, ONE_BOOL, CACHE, N_ROLES };

struct generation {
    struct cli *c;
    quern_db *db;
    quern_program *p;
    quern_state *s;
    int n_in, n_out, logits;
    enum role role[2 * MAX_IO];
    int64_t *token, n, cap;   /* prompt, then generated */
    int64_t n_prompt, max;
    int64_t stop[MAX_STOPS];
    int n_stops;
    int64_t first_byte;
    bool is_text;
    uint64_t rng;
    double temperature, top_p;
    int64_t top_k;
    struct choice *choice;    /* per token of the vocabulary */
    const char *step_sizes;   /* assumptions of the program for single tokens; "": none */
};
struct choice { float score; int32_t token; };

/* the prompt */

static bool push_token(struct generation *g, int64_t t)
{
    if (g->n == g->cap) {
        int64_t *more = realloc(g->token, sizeof *more * (size_t)(g->cap ? 2 * g->cap : 256));
        if (!more) return false;
        g->token = more, g->cap = g->cap ? 2 * g->cap : 256;
    }
    g->token[g->n++] = t;
    return true;
}

/* "1,2 3" */
static int read_ids(struct generation *g, const char *text, int64_t *out, int max, int64_t *n)
{
    for (const char *p = text; *p;) {
        char *end;
        long long t = strtoll(p, &end, 10);
        if (end == p || t < 0 || t > INT32_MAX) return usage_error(g->c, "'%s' is not a list of token numbers", text);
        if (out ? *n == max : !push_token(g, t)) return usage_error(g->c, "too many tokens");
        if (out) out[(*n)++] = t;
        for (p = end; *p == ',' || *p == ' ' || *p == '\n'; p++) {}
    }
    return EXIT_DONE;
}

static int read_prompt(struct generation *g)
{
    const char *text = opts_text(g->c, "prompt"), *ids = opts_text(g->c, "prompt-ids"), *stop;
    int64_t n_stops = 0;
    if (!text == !ids) return usage_error(g->c, "give either --prompt TEXT or --prompt-ids LIST");
    g->is_text = text != NULL;
    g->first_byte = opts_count(g->c, "first-byte", 0);
    for (; text && *text; text++)
        if (!push_token(g, g->first_byte + (unsigned char)*text)) return usage_error(g->c, "the prompt is too long");
    int code = ids ? read_ids(g, ids, NULL, 0, NULL) : EXIT_DONE;
    for (int at = 0; !code && (stop = opts_next(g->c, "stop", &at));) code = read_ids(g, stop, g->stop, MAX_STOPS, &n_stops);
    g->n_stops = (int)n_stops;
    g->n_prompt = g->n;
    if (!code && !g->n) return usage_error(g->c, "the prompt is empty");
    if (!code && g->max < 1) return usage_error(g->c, "--max-tokens must be at least 1");
    return code;
}

/* inputs and outputs */

static bool is_integer(quern_dtype t) { return t == QUERN_I64 || t == QUERN_I32; }

static int find_role(struct generation *g, int k)
{
    const char *name = quern_program_input_name(g->p, k);
    quern_dtype t = quern_program_input_dtype(g->p, k);
    int64_t dim[8];
    const char *sym[8];
    int rank = quern_program_input_shape(g->p, k, dim, sym);
    if (quern_state_holds_input(g->s, k)) g->role[k] = CACHE;
    else if (strstr(name, "input_ids") && is_integer(t) && rank == 2) g->role[k] = TOKENS;
    else if (strstr(name, "attention_mask") && rank == 2 && (is_integer(t) || t == QUERN_BOOL)) g->role[k] = MASK;
    else if ((strstr(name, "position_ids") && is_integer(t) && rank == 2) || (strstr(name, "cache_position") && is_integer(t) && rank == 1)) g->role[k] = POSITIONS;
    else if (strstr(name, "use_cache_branch") && t == QUERN_BOOL && rank <= 1) g->role[k] = ONE_BOOL;
    else
        return usage_error(g->c, "input '%s' (%s of rank %d) is unknown to generate: it supplies input_ids, attention_mask, position_ids, cache_position, use_cache_branch, and caches "
                           "(past.., present..; others by --state IN=OUT)", name, quern_dtype_text(t), rank);
    return EXIT_DONE;
}

static int find_roles(struct generation *g)
{
    g->n_in = quern_program_inputs(g->p), g->n_out = quern_program_outputs(g->p);
    if (g->n_in > 2 * MAX_IO || g->n_out > 2 * MAX_IO) return usage_error(g->c, "the network has more than %d inputs or outputs", 2 * MAX_IO);
    int n[N_ROLES] = {0};
    for (int k = 0; k < g->n_in; k++) {
        int code = find_role(g, k);
        if (code) return code;
        n[g->role[k]]++;
    }
    if (n[TOKENS] != 1) return usage_error(g->c, "the network has no input 'input_ids' of integers (batch, tokens)");
    g->logits = -1;
    for (int k = 0; k < g->n_out; k++)
        if (!quern_state_holds_output(g->s, k) && (g->logits < 0 || !strcmp(quern_program_output_name(g->p, k), "logits"))) g->logits = k;
    return g->logits < 0 ? usage_error(g->c, "the network has no output but its caches") : EXIT_DONE;
}

static void put_integer(void *to, quern_dtype t, int64_t at, int64_t x)
{
    if (t == QUERN_I64) ((int64_t *)to)[at] = x;
    else if (t == QUERN_I32) ((int32_t *)to)[at] = (int32_t)x;
    else ((unsigned char *)to)[at] = x != 0;
}

/* For n tokens behind the first `past` ones. */
static quern_status make_input(struct generation *g, int k, int64_t past, int64_t n, quern_tensor **t)
{
    enum role r = g->role[k];
    quern_dtype type = quern_program_input_dtype(g->p, k);
    int64_t dim[8] = {1, r == MASK ? past + n : n}, shape[8];
    const char *sym[8];
    int rank = quern_program_input_shape(g->p, k, shape, sym);
    if (rank == 1) dim[0] = r == ONE_BOOL ? 1 : n;
    quern_status s = quern_tensor_new(g->c->q, type, rank, dim, NULL, t);
    for (int64_t i = 0; !s && i < quern_tensor_count(*t); i++)
        put_integer(quern_tensor_data(*t), type, i, r == TOKENS ? g->token[past + i] : r == POSITIONS ? past + i : 1);
    return s;
}

/* choice */

static double random_number(struct generation *g) /* SplitMix64, 0 to 1 */
{
    uint64_t z = g->rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* Higher scores first, then lower numbers. */
static int by_score(const void *x, const void *y)
{
    const struct choice *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

/* Draws from softmax(v / temperature), of the top_k likeliest and then the fewest that have top_p of the probability. */
static int64_t sample(struct generation *g, const float *v, int64_t n)
{
    float most = -INFINITY;
    int64_t kept = 0, at = 0;
    double sum = 0, all = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, v[i]);
    for (int64_t i = 0; i < n; i++) /* others have no weight in sums of doubles */
        if ((v[i] - most) / g->temperature > -40) g->choice[kept++] = (struct choice){v[i], (int32_t)i};
    qsort(g->choice, (size_t)kept, sizeof *g->choice, by_score);
    if (g->top_k && g->top_k < kept) kept = g->top_k;
    for (int64_t i = 0; i < kept; i++) all += exp((g->choice[i].score - most) / g->temperature);
    for (at = 0; at < kept && sum < g->top_p * all; at++) sum += exp((g->choice[at].score - most) / g->temperature);
    double x = random_number(g) * sum;
    for (int64_t i = 0; i < at; i++)
        if ((x -= exp((g->choice[i].score - most) / g->temperature)) < 0) return g->choice[i].token;
    return g->choice[at ? at - 1 : 0].token;
}

static int64_t choose(struct generation *g, const float *v, int64_t n)
{
    if (g->temperature > 0) return sample(g, v, n);
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (v[i] > v[best]) best = i;
    return best;
}

/* runs */

/* The last row of logits (1, n, vocabulary). */
static quern_status next_token(struct generation *g, quern_tensor *logits, int64_t *token)
{
    quern_tensor *f = NULL;
    int rank = quern_tensor_rank(logits);
    int64_t vocabulary = rank ? quern_tensor_dims(logits)[rank - 1] : 0, count = quern_tensor_count(logits);
    if (vocabulary < 1 || vocabulary > INT32_MAX || count < vocabulary) return (void)usage_error(g->c, "output '%s' has no scores of tokens", quern_program_output_name(g->p, g->logits)), QUERN_USAGE;
    quern_status s = quern_tensor_dtype(logits) == QUERN_F32 ? QUERN_OK : quern_tensor_cast(g->c->q, logits, QUERN_F32, &f);
    if (!s && !g->choice && !(g->choice = malloc(sizeof *g->choice * (size_t)vocabulary))) return (void)usage_error(g->c, "not enough memory"), QUERN_SYSTEM;
    if (!s) *token = choose(g, (const float *)quern_tensor_data(f ? f : logits) + count - vocabulary, vocabulary);
    quern_tensor_free(f);
    return s;
}

/* Runs the tokens that the state does not have yet, and appends the next one. */
static quern_status step(struct generation *g)
{
    quern_tensor *in[2 * MAX_IO] = {0}, *out[2 * MAX_IO] = {0};
    int64_t past = quern_state_length(g->s), token = 0;
    quern_status s = QUERN_OK;
    for (int k = 0; k < g->n_in && !s; k++)
        if (g->role[k] != CACHE) s = make_input(g, k, past, g->n - past, &in[k]);
    if (!s) s = quern_state_run(g->s, in, g->n_in, out, g->n_out);
    if (!s) s = next_token(g, out[g->logits], &token);
    if (!s && !push_token(g, token)) s = QUERN_SYSTEM;
    for (int k = 0; k < g->n_in; k++) quern_tensor_free(in[k]);
    for (int k = 0; k < g->n_out; k++) quern_tensor_free(out[k]);
    return s;
}

static void print_token(const struct generation *g, int64_t token, bool is_first)
{
    int64_t byte = token - g->first_byte;
    if (!g->is_text) printf("%s%lld", is_first ? "" : " ", (long long)token);
    else if (byte >= 0 && byte < 256) putchar((int)byte);
    fflush(stdout);
}

static bool stops(const struct generation *g, int64_t token)
{
    for (int k = 0; k < g->n_stops; k++)
        if (g->stop[k] == token) return true;
    return false;
}

static void print_speed(const struct generation *g, double prompt, double rest)
{
    int64_t n = g->n - g->n_prompt - 1; /* the prompt's run made the first one */
    double rate = n > 0 && rest > 0 ? (double)n / rest : 0;
    if (opts_flag(g->c, "json", false)) {
        printf("{\"ids\":[");
        for (int64_t k = g->n_prompt; k < g->n; k++) printf("%s%lld", k > g->n_prompt ? "," : "", (long long)g->token[k]);
        printf("],\"prompt_tokens\":%lld,\"prompt_seconds\":%.6f,\"tokens\":%lld,\"seconds\":%.6f,\"state_bytes\":%lld}\n", (long long)g->n_prompt, prompt, (long long)n,
               rest, (long long)quern_state_memory(g->s));
    } else {
        fprintf(stderr, "prompt: %lld tokens in %.1f ms, %.1f tokens/s; generation: %lld tokens in %.1f ms, %.1f tokens/s\n", (long long)g->n_prompt, prompt * 1e3,
                (double)g->n_prompt / prompt, (long long)n, rest * 1e3, rate);
    }
}

/* programs */

static quern_status make_state(struct generation *g, quern_program *p, quern_state **s)
{
    struct quern_state_opts o = QUERN_OPTS(quern_state_opts);
    return quern_state_create(p, opts_count(g->c, "max-positions", g->n_prompt + g->max), &o, s);
}

/* Names of the sizes of the tokens (batch, tokens), "" if they are numbers. */
struct token_names { struct cli *c; const char *name[2]; };

static void note_tokens(struct token_names *t, const char *input, int rank, const int64_t *dim, const char *const *sym)
{
    if (!strstr(input, "input_ids") || rank != 2) return;
    for (int d = 0; d < 2; d++) t->name[d] = dim[d] < 0 ? cli_text(t->c, "%s", sym[d]) : "";
}

static void on_declared(void *user, const struct quern_declared *x) { note_tokens(user, x->name, x->rank, x->dim, x->sym); }

/* As the file declares them; if options say more about inputs, as the model has them. */
static quern_status names_of_tokens(struct cli *c, struct token_names *t)
{
    quern_model *m;
    *t = (struct token_names){c, {"", ""}};
    if (!has_model_options(c)) return quern_declared_inputs(c->q, c->arg[0], on_declared, t);
    quern_status s = open_model_with_caches(c, c->arg[0], NULL, &m);
    for (int k = 0; !s && k < quern_model_inputs(m); k++) {
        int64_t dim[8];
        const char *sym[8];
        int rank = quern_model_input_shape(m, k, dim, sym);
        note_tokens(t, quern_model_input_name(m, k), rank, dim, sym);
    }
    quern_model_close(m);
    return s;
}

/* The prompt's program, for kernels that are best at its length. */
static quern_status compile_prompt(struct generation *g)
{
    struct cli *c = g->c;
    quern_model *m;
    struct token_names t;
    quern_status s = names_of_tokens(c, &t);
    if (s) return s;
    const char *const *name = t.name;
    g->step_sizes = cli_text(c, "%s%s%s%s%s", name[0], *name[0] ? ":1" : "", *name[0] && *name[1] ? "," : "", name[1], *name[1] ? ":1" : "");
    /* of one sequence: all of its caches count, and kernels need no mask */
    s = open_model_with_caches(c, c->arg[0], *name[0] ? cli_text(c, "%s:1", name[0]) : "", &m);
    if (s) return s;
    if (*name[1] && !opts_text(c, "optimize-for")) s = quern_model_optimize_for(m, cli_text(c, "%s:%lld", name[1], (long long)g->n_prompt));
    if (!s) s = compile_model(c, m, g->db, TO_RUN, &g->p);
    quern_model_close(m);
    return s;
}

/* Replaces the program by one for single tokens, which takes the state over. */
static quern_status compile_step(struct generation *g)
{
    quern_model *m;
    quern_program *p = NULL;
    quern_state *to = NULL;
    quern_status s = open_model_with_caches(g->c, g->c->arg[0], g->step_sizes, &m);
    if (!s) s = compile_model(g->c, m, g->db, TO_RUN, &p);
    quern_model_close(m);
    if (!s) s = make_state(g, p, &to);
    if (!s) s = quern_state_copy(to, g->s);
    quern_state_destroy(s ? to : g->s);
    quern_program_close(s ? p : g->p);
    if (!s) g->s = to, g->p = p;
    return s;
}

static quern_status open_net(struct generation *g)
{
    struct cli *c = g->c;
    const char *path = c->arg[0], *db_path = opts_text(c, "db");
    struct quern_run_opts o = QUERN_OPTS(quern_run_opts);
    o.threads = (int)opts_count(c, "threads", 0), o.device = opts_text(c, "device"), o.isa = opts_text(c, "isa");
    quern_status s = db_path ? quern_db_open(c->q, db_path, &g->db) : QUERN_OK;
    if (!s) s = is_dnx(path) ? quern_program_open(c->q, path, &o, &g->p) : compile_prompt(g);
    return s ? s : make_state(g, g->p, &g->s);
}

/* the whole */

static int generate(struct generation *g)
{
    double start = now(), prompt = 0;
    bool is_json = opts_flag(g->c, "json", false), is_other = g->step_sizes && *g->step_sizes && g->n_prompt > 1 && !opts_flag(g->c, "one-program", false);
    quern_status s = QUERN_OK;
    for (int64_t k = 0; k < g->max && !s && !stop_signal(); k++) {
        s = step(g);
        if (s) break;
        if (k == 0) prompt = now() - start;
        if (stops(g, g->token[g->n - 1])) break;
        if (!is_json) print_token(g, g->token[g->n - 1], k == 0);
        if (k == 0 && is_other && g->max > 1) s = compile_step(g);
        if (k == 0) start = now();
    }
    if (!is_json) putchar('\n');
    if (!s) print_speed(g, prompt, now() - start);
    return s == QUERN_USAGE && !*quern_error(g->c->q) ? EXIT_USAGE : fail(g->c, s);
}

static int run(struct cli *c)
{
    struct generation g = {.c = c, .max = opts_count(c, "max-tokens", DEFAULT_TOKENS), .temperature = opts_number(c, "temperature", 0),
                           .top_p = opts_number(c, "top-p", 1), .top_k = opts_count(c, "top-k", 0), .rng = (uint64_t)opts_count(c, "seed", 0)};
    int code = !is_dnx(c->arg[0]) && refuse_unsigned(c, c->arg[0]) ? EXIT_USAGE : read_prompt(&g);
    if (!code) code = fail(c, open_net(&g));
    if (!code) code = find_roles(&g);
    if (!code) code = generate(&g);
    free(g.token);
    free(g.choice);
    quern_state_destroy(g.s);
    quern_program_close(g.p);
    quern_db_close(g.db);
    return code;
}

static const struct opt options[] = {
    {"prompt", 0, OPT_TEXT, "TEXT", "the prompt, one token per byte"},
    {"prompt-ids", 0, OPT_TEXT, "1,2,3", "the prompt's token numbers"},
    {"max-tokens", 0, OPT_COUNT, "N", "tokens to generate (default: 64)"},
    {"max-positions", 0, OPT_COUNT, "N", "positions of the caches (default: prompt and --max-tokens)"},
    {"temperature", 0, OPT_NUMBER, "T", "sample with this temperature (default: 0, the likeliest token)"},
    {"top-k", 0, OPT_COUNT, "K", "sample from the K likeliest tokens (default: 0, all)"},
    {"top-p", 0, OPT_NUMBER, "P", "sample from the fewest tokens that have this probability (default: 1)"},
    {"stop", 0, OPT_TEXT, "LIST", "end at these tokens"},
    {"one-program", 0, OPT_FLAG, NULL, "one program for prompt and tokens (default: of a model, another one for single tokens)"},
    {"first-byte", 0, OPT_COUNT, "N", "--prompt: number of the token of byte 0 (default: 0)"},
    OPT_SEED,
    OPT_THREADS,
    OPT_TARGET,
    OPT_INTERFACE,
    OPT_DB,
    OPT_UNTUNED,
    OPT_FUSION,
    OPT_SIGNATURE,
    OPT_END,
};

const struct cmd cmd_generate = {
    .name = "generate",
    .summary = "generate tokens with a language model that has caches",
    .notes = "Tokens are numbers, or bytes of a text: there is no tokenizer. The speed is printed on standard error (doc/decoding.md).",
    .args = "MODEL.onnx|NET.dnx",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
