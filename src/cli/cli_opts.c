// SPDX-License-Identifier: Apache-2.0
//
// Options from tables: --name=value, --name value, --no-name,
// --name=false, -x value, -xvalue; -- ends them. Values are validated
// while parsing, so that commands can trust them; the error about an
// unknown option suggests the nearest one. Values point into argv.
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int usage_error(const struct cli *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "quern %s: ", c->cmd->name);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, " (see quern %s --help)\n", c->cmd->name);
    va_end(ap);
    return EXIT_USAGE;
}

/* names */

static int edit_distance(const char *a, const char *b)
{
    enum { MAX = 40 };
    int row[MAX + 1], n = (int)strlen(b);
    if (n > MAX || strlen(a) > MAX) return MAX;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            int skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < skip ? change : skip;
        }
    }
    return row[n];
}

const char *nearest(const char *word, const char *(*name)(const void *list, int k),
                    const void *list)
{
    const char *best = NULL, *s;
    int least = 1 + (int)strlen(word) / 3;
    for (int k = 0; (s = name(list, k)); k++) {
        int d = strncmp(s, word, strlen(word)) ? edit_distance(word, s) : 0;
        if (d <= least && (!best || d < least)) best = s, least = d;
    }
    return best;
}

static const struct opt *option_at(const struct cmd *cmd, int k)
{
    for (const struct opt *o = cmd->options; o && o->name; o++)
        if (k-- == 0) return o;
    for (const struct opt *o = opts_common(); o->name; o++)
        if (k-- == 0) return o;
    return NULL;
}

static const char *option_name(const void *cmd, int k)
{
    const struct opt *o = option_at(cmd, k);
    return o ? o->name : NULL;
}

static const struct opt *find_long(const struct cmd *cmd, const char *name, size_t n)
{
    const struct opt *o;
    for (int k = 0; (o = option_at(cmd, k)); k++)
        if (!strncmp(o->name, name, n) && !o->name[n]) return o;
    return NULL;
}

/* Spellings of options in other tools. */
static const struct alias {
    const char *spelling, *name;
    bool is_off;
} aliases[] = {
    {"database", "db", false},
    {"quite", "quiet", false},
    {"samples", "min-samples", false},
    {"spec", "set", false},
    {"specialize", "set", false},
    {"input-size", "set", false},
    {"optimization-level", "opt", false},
    {"optimizationLevel", "opt", false},
    {"ffusion", "fusion", false},
    {"feature-fusion", "fusion", false},
    {"fno-fusion", "fusion", true},
    {"fcoopmat", "coopmat", false},
    {"fcoopamt", "coopmat", false},
    {"feature-coopmat", "coopmat", false},
    {"fno-coopmat", "coopmat", true},
    {"fno-coopamt", "coopmat", true},
    {"fmemory-concat", "memory-concat", false},
    {"fmemcat", "memory-concat", false},
    {"feature-memory-concat", "memory-concat", false},
    {"fno-memory-concat", "memory-concat", true},
    {"spirv-opt", "spirv-optimize", false},
    {"spirv-no-optimize", "spirv-optimize", true},
    {"spirv-no-debug-info", "spirv-debug-info", true},
    {"spirv-no-non-semantic-debug-info", "spirv-non-semantic-debug-info", true},
};

static const struct opt *find_alias(const struct cmd *cmd, const char *name, size_t n, bool *is_off)
{
    for (size_t k = 0; k < sizeof aliases / sizeof *aliases; k++) {
        const struct alias *a = &aliases[k];
        if (strncmp(a->spelling, name, n) || a->spelling[n]) continue;
        const struct opt *o = find_long(cmd, a->name, strlen(a->name));
        *is_off ^= o && a->is_off;
        return o;
    }
    return NULL;
}

/* The option of that name or spelling; after "no-" a flag that is turned off. */
static const struct opt *find_option(const struct cmd *cmd, const char *name, size_t n,
                                     bool *is_off)
{
    const struct opt *o = find_long(cmd, name, n);
    *is_off = false;
    if (!o) o = find_alias(cmd, name, n, is_off);
    if (o || n <= 3 || strncmp(name, "no-", 3)) return o;
    *is_off = true;
    o = find_long(cmd, name + 3, n - 3);
    if (!o) o = find_alias(cmd, name + 3, n - 3, is_off);
    return o && o->kind == OPT_FLAG ? o : NULL;
}

static const struct opt *find_letter(const struct cmd *cmd, char letter)
{
    const struct opt *o;
    for (int k = 0; (o = option_at(cmd, k)); k++)
        if (o->letter == letter) return o;
    return NULL;
}

/* values */

static bool parse_number(const char *s, double *v, const char **rest)
{
    char *end;
    errno = 0;
    *v = strtod(s, &end);
    *rest = end;
    return end != s && !errno && isfinite(*v) && *v >= 0;
}

static bool parse_time(const char *s, double *seconds)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"sec", 1}, {"ms", 1e-3}, {"m", 60}, {"min", 60}, {"h", 3600}};
    const char *unit;
    if (!parse_number(s, seconds, &unit)) return false;
    for (size_t k = 0; k < sizeof units / sizeof *units; k++)
        if (!strcmp(unit, units[k].unit)) {
            *seconds *= units[k].seconds;
            return true;
        }
    return false;
}

static bool parse_count(const char *s, int64_t *v)
{
    char *end;
    errno = 0;
    long long x = strtoll(s, &end, 10);
    *v = x;
    return end != s && !*end && !errno && x >= 0 && x <= INT32_MAX;
}

static bool parse_truth(const char *s, bool *v)
{
    static const char *const words[] = {"false", "true", "no", "yes", "0", "1", "off", "on"};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (!strcmp(s, words[k])) {
            *v = k % 2;
            return true;
        }
    return false;
}

/* Such a word after a flag is its value; numbers might be a file's name. */
static bool is_truth_word(const char *s)
{
    bool v;
    return s[0] >= 'a' && parse_truth(s, &v);
}

static bool check_value(const struct cli *c, const struct opt *o, const char *value)
{
    double x;
    int64_t n;
    const char *rest;
    switch (o->kind) {
    case OPT_COUNT:
    case OPT_COUNTS:
        if (parse_count(value, &n)) return true;
        usage_error(c, "'%s' is not a number for --%s", value, o->name);
        return false;
    case OPT_NUMBER:
        if (parse_number(value, &x, &rest) && !*rest) return true;
        usage_error(c, "'%s' is not a number for --%s", value, o->name);
        return false;
    case OPT_TIME:
        if (parse_time(value, &x)) return true;
        usage_error(c, "'%s' is not a time for --%s, expected e.g. 60s, 15min or 2h", value,
                    o->name);
        return false;
    case OPT_WORDS:
        if (strchr(value, '=') || strchr(value, ':')) return true;
        usage_error(c, "'%s' is not of the form NAME=VALUE for --%s", value, o->name);
        return false;
    case OPT_FLAG:
    case OPT_TEXT:
    default: return true;
    }
}

/* parsing */

struct words {
    int n;
    const char **v;
};

static const char *take(struct words *w)
{
    if (w->n == 0) return NULL;
    w->n--;
    return *w->v++;
}

static bool add(struct cli *c, const struct opt *o, const char *value, bool is_off)
{
    if (value && !check_value(c, o, value)) return false;
    c->hit[c->n_hits++] = (struct opt_hit){o, value, is_off};
    return true;
}

/* Whether the next word is another value of the option. */
static bool belongs(const struct opt *o, const char *word)
{
    int64_t n;
    if (o->kind == OPT_COUNTS) return parse_count(word, &n);
    return o->kind == OPT_WORDS && word[0] != '-' && strchr(word, '=');
}

static bool add_value(struct cli *c, const struct opt *o, const char *value, struct words *w)
{
    if (!value) value = take(w);
    if (!value) {
        usage_error(c, "--%s needs %s", o->name, o->arg);
        return false;
    }
    if (!add(c, o, value, false)) return false;
    while (w->n && belongs(o, w->v[0]))
        if (!add(c, o, take(w), false)) return false;
    return true;
}

static bool unknown_option(const struct cli *c, const char *word, const char *name)
{
    const char *near = nearest(name, option_name, c->cmd);
    if (near) usage_error(c, "no option '%s', did you mean '--%s'?", word, near);
    else usage_error(c, "no option '%s'", word);
    return false;
}

static bool parse_long(struct cli *c, const char *word, struct words *w)
{
    const char *name = word + 2, *eq = strchr(name, '=');
    size_t n = eq ? (size_t)(eq - name) : strlen(name);
    bool is_off, value = true;
    const struct opt *o = find_option(c->cmd, name, n, &is_off);
    if (!o) return unknown_option(c, word, name);
    if (o->kind != OPT_FLAG) return add_value(c, o, eq ? eq + 1 : NULL, w);
    if (!eq && w->n && is_truth_word(w->v[0])) parse_truth(take(w), &value);
    if (!eq || parse_truth(eq + 1, &value)) return add(c, o, NULL, is_off == value);
    usage_error(c, "'%s' is neither true nor false for --%s", eq + 1, o->name);
    return false;
}

static bool parse_short(struct cli *c, const char *word, struct words *w)
{
    const struct opt *o;
    for (word++; *word; word++) {
        char name[2] = {*word, 0};
        if (!(o = find_letter(c->cmd, *word))) return unknown_option(c, word - 1, name);
        if (o->kind != OPT_FLAG) return add_value(c, o, word[1] ? word + 1 : NULL, w);
        if (!add(c, o, NULL, false)) return false;
    }
    return true;
}

bool opts_parse(struct cli *c, int argc, const char **argv)
{
    struct words w = {argc, argv};
    const char *word;
    bool only_args = false, ok = true;
    size_t letters = 0; /* each of -abc is an option */
    for (int i = 0; i < argc; i++) letters += strlen(argv[i]);
    c->hit = calloc(letters + (size_t)argc + 1, sizeof *c->hit);
    c->arg = calloc((size_t)argc + 1, sizeof *c->arg);
    if (!c->hit || !c->arg) return false;
    while (ok && (word = take(&w))) {
        if (only_args || word[0] != '-' || !word[1]) c->arg[c->n_args++] = word;
        else if (!strcmp(word, "--")) only_args = true;
        else ok = word[1] == '-' ? parse_long(c, word, &w) : parse_short(c, word, &w);
    }
    return ok;
}

struct cli_text { struct cli_text *next; char s[]; };

const char *cli_text(struct cli *c, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    struct cli_text *t = n < 0 ? NULL : malloc(sizeof *t + (size_t)n + 1);
    if (t) {
        vsnprintf(t->s, (size_t)n + 1, fmt, again);
        t->next = c->text, c->text = t;
    } else {
        usage_error(c, "not enough memory");
    }
    va_end(ap);
    va_end(again);
    return t ? t->s : "";
}

void opts_release(struct cli *c)
{
    while (c->text) {
        struct cli_text *next = c->text->next;
        free(c->text);
        c->text = next;
    }
    free(c->hit);
    free(c->arg);
}

/* looking up */

static const struct opt_hit *last_hit(const struct cli *c, const char *name)
{
    for (int i = c->n_hits - 1; i >= 0; i--)
        if (!strcmp(c->hit[i].opt->name, name)) return &c->hit[i];
    return NULL;
}

const char *opts_text(const struct cli *c, const char *name)
{
    const struct opt_hit *h = last_hit(c, name);
    return h ? h->value : NULL;
}

bool opts_given(const struct cli *c, const char *name) { return last_hit(c, name) != NULL; }

bool opts_flag(const struct cli *c, const char *name, bool def)
{
    const struct opt_hit *h = last_hit(c, name);
    return h ? !h->is_off : def;
}

int64_t opts_count(const struct cli *c, const char *name, int64_t def)
{
    const struct opt_hit *h = last_hit(c, name);
    int64_t v = def;
    if (h) parse_count(h->value, &v);
    return v;
}

double opts_number(const struct cli *c, const char *name, double def)
{
    const struct opt_hit *h = last_hit(c, name);
    double v = def;
    if (h) parse_time(h->value, &v);
    return v;
}

const char *opts_next(const struct cli *c, const char *name, int *at)
{
    for (int i = *at; i < c->n_hits; i++)
        if (!strcmp(c->hit[i].opt->name, name)) {
            *at = i + 1;
            return c->hit[i].value;
        }
    *at = c->n_hits;
    return NULL;
}

const char *opts_words(struct cli *c, const char *name)
{
    int at = 0;
    const char *v, *all = NULL;
    while ((v = opts_next(c, name, &at))) all = all ? cli_text(c, "%s,%s", all, v) : v;
    return all;
}
