// SPDX-License-Identifier: Apache-2.0
//
// Minimisation of a failing graph: outputs and nodes are removed, sizes become constants, values
// become inputs, as long as it fails. The graph is kept as text, as in test/corpus/graphs: a first
// line "# SEED CONTENTS", then the graph (doc/graph-ir.md).
#ifndef QUERN_GRAPH_REDUCE_H
#define QUERN_GRAPH_REDUCE_H

#include "graph_run.h"

struct kept_graph { u64 seed; enum contents contents; struct str text; };

static bool kept_open(const struct source *from, u64 i, struct random_graph *s)
{
    const struct kept_graph *k = from->user;
    random_graph_start(s, k[i].seed);
    s->contents = k[i].contents;
    return graph_parse(&s->g, &s->arena, &s->sym, k[i].text, &s->e) && op_infer_all(&s->g, &s->e);
}

static struct str graph_text(const struct graph *g, struct arena *a)
{
    struct buf b = {0};
    graph_print(&b, g, NULL);
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

static const char *const contents_name[] = {"plain", "ties", "hard"};

static bool kept_parse(struct kept_graph *k, struct str file)
{
    struct str line, seed, word;
    if (!str_cut(file, '\n', &line, &k->text) || !str_starts(line, S("# "))) return false;
    str_cut(str_sub(line, 2, line.n), ' ', &seed, &word);
    str_cut(word, ' ', &word, &line);
    i64 n = 0;
    bool ok = str_to_i64(seed, &n), known = false;
    for (u32 i = 0; i < countof(contents_name); i++)
        if (str_is(word, contents_name[i])) k->contents = i, known = true;
    k->seed = (u64)n;
    return ok && known;
}

struct reduction {
    const char *device;
    struct arena arena;
    struct kept_graph best;
    u32 n_tried;
    double until;
};

static bool still_fails(struct reduction *r, const struct kept_graph *k)
{
    struct board *sum = board_open();
    const struct source from = {kept_open, k};
    run_batch(r->device, &from, 0, 1, true, sum);
    bool fails = sum->n_found > 0;
    munmap(sum, sizeof *sum);
    r->n_tried++;
    return fails;
}

/* edits: the k-th of its kind; false: there is none, or it makes no graph */
typedef bool edit_fn(struct random_graph *s, u32 k);

static bool drop_output(struct random_graph *s, u32 k)
{
    if (s->g.output.n < 2 || k >= s->g.output.n) return false;
    for (u32 i = k; i + 1 < s->g.output.n; i++) s->g.output.v[i] = s->g.output.v[i + 1];
    s->g.output.n--;
    return true;
}

static bool only_output(struct random_graph *s, u32 k)
{
    if (s->g.output.n < 2 || k >= s->g.output.n) return false;
    s->g.output.v[0] = s->g.output.v[k];
    s->g.output.n = 1;
    return true;
}

static void take_away(struct graph *g, node_id n)
{
    struct node *x = graph_node(g, n);
    x->dead = true;
    for (u32 o = 0; o < x->out.n; o++)
        if (x->out.v[o]) graph_value(g, x->out.v[o])->producer = 0;
}

/* Replaces the node's result by an input. */
static bool cut_node(struct random_graph *s, u32 k)
{
    node_id n = k + 1;
    if (n >= s->g.node.n || graph_node(&s->g, n)->dead) return false;
    const struct node *x = graph_node(&s->g, n);
    for (u32 o = 0; o < x->out.n; o++) {
        if (!x->out.v[o]) continue;
        if (graph_is_output(&s->g, x->out.v[o])) return false;
        *arr_push(&s->arena, &s->g.input) = x->out.v[o];
    }
    take_away(&s->g, n);
    return true;
}

/* Replaces a node's first output by one of its inputs. */
static bool bypass_node(struct random_graph *s, u32 k)
{
    node_id n = k / 4 + 1;
    if (n >= s->g.node.n || graph_node(&s->g, n)->dead) return false;
    const struct node *x = graph_node(&s->g, n);
    u32 i = k % 4;
    value_id out = node_first_out(x);
    if (i >= x->in.n || !x->in.v[i] || !out || graph_value(&s->g, x->in.v[i])->dtype != graph_value(&s->g, out)->dtype) return false;
    if (!shape_equal(&graph_value(&s->g, x->in.v[i])->shape, &graph_value(&s->g, out)->shape)) return false;
    value_id with = x->in.v[i];
    take_away(&s->g, n);
    graph_replace(&s->g, out, with);
    return true;
}

/* The node's input becomes an output of the graph instead of its result. */
static bool end_before(struct random_graph *s, u32 k)
{
    for (u32 i = 0; i < s->g.output.n; i++) {
        value_id v = s->g.output.v[i];
        node_id n = graph_value(&s->g, v)->producer;
        if (!n) continue;
        const struct node *x = graph_node(&s->g, n);
        for (u32 j = 0; j < x->in.n; j++)
            if (x->in.v[j] && graph_value(&s->g, x->in.v[j])->producer && k-- == 0) {
                s->g.output.v[i] = x->in.v[j];
                return true;
            }
    }
    return false;
}

static void drop_unused_inputs(struct random_graph *s)
{
    const u32 *uses = graph_use_counts(&s->g, &s->arena);
    u32 n = 0;
    for (u32 i = 0; i < s->g.input.n; i++)
        if (uses[s->g.input.v[i]]) s->g.input.v[n++] = s->g.input.v[i];
    s->g.input.n = n;
}

static bool edited(struct reduction *r, edit_fn *fn, u32 k, struct kept_graph *to)
{
    struct random_graph s;
    const struct source from = {kept_open, &r->best};
    *to = r->best;
    bool ok = kept_open(&from, 0, &s) && fn(&s, k) && graph_sort(&s.g, &s.e);
    if (ok) {
        drop_unused_inputs(&s);
        ok = op_infer_all(&s.g, &s.e);
    }
    if (ok) to->text = graph_text(&s.g, &r->arena);
    random_graph_close(&s);
    return ok && !str_eq(to->text, r->best.text);
}

/* Variable D7 becomes the constant 7; facts about it are dropped. */
static bool fixed(struct reduction *r, u32 k, struct kept_graph *to)
{
    struct str name = str_fmt(&r->arena, "D%u", k), line, rest = r->best.text;
    struct buf b = {0};
    bool any = false;
    while (str_cut(rest, '\n', &line, &rest)) {
        bool is_fact = str_starts(str_trim(line), S("fact ")), here = false;
        i64 start = b.n;
        for (i64 i = 0; i < line.n; i++) {
            char after = i + name.n < line.n ? line.p[i + name.n] : ' ', before = i ? line.p[i - 1] : ' ';
            bool is_it = str_starts(str_sub(line, i, line.n), name) && !(after >= '0' && after <= '9') && !strchr("%_", before);
            if (is_it) buf_printf(&b, "%u", k), i += name.n - 1, here = true;
            else buf_char(&b, line.p[i]);
        }
        buf_char(&b, '\n');
        if (is_fact && here) b.n = start;
        any |= here;
    }
    *to = r->best;
    to->text = str_dup(&r->arena, buf_view(&b));
    buf_release(&b);
    return any;
}

static bool accept(struct reduction *r, const struct kept_graph *k)
{
    if (os_now() > r->until || !still_fails(r, k)) return false;
    r->best = *k;
    return true;
}

static bool reduce_by(struct reduction *r, edit_fn *fn, u32 most)
{
    bool any = false;
    for (u32 k = most; k-- > 0 && os_now() < r->until;) {
        struct kept_graph next;
        if (edited(r, fn, k, &next) && accept(r, &next)) any = true;
    }
    return any;
}

static void reduce(struct reduction *r)
{
    struct kept_graph next;
    reduce_by(r, only_output, 64);
    for (u32 k = 2; k <= 64; k++)
        if (fixed(r, k, &next)) accept(r, &next);
    next = r->best;
    next.contents = CONTENTS_PLAIN;
    if (r->best.contents != CONTENTS_PLAIN) accept(r, &next);
    for (bool more = true; more && os_now() < r->until;) {
        more = reduce_by(r, drop_output, 64);
        more |= reduce_by(r, end_before, 64);
        more |= reduce_by(r, cut_node, 128);
        more |= reduce_by(r, bypass_node, 256);
    }
}

#endif
