// SPDX-License-Identifier: Apache-2.0
//
// The cover: all regions worth considering. First the default regions, demand-driven from the graph's
// outputs, then for each of them the alternatives: pooling fused with the preceding convolution,
// views not fused with it, or only concatenations, the preceding convolutions in the same kernel, attention in one kernel, every node by itself, other
// layouts at the graph's interface, blocked channels between convolutions. Alternatives need values
// that the default may not produce; demand is followed until everything needed is produced.
// Concatenations in place come last (join.c). The selection among regions is not made here.
#include "task/grow.h"

struct need {
    struct form *v;
    u32 n, cap;
    u32 done;
};

struct builder {
    struct cutter cut;
    struct cover *c;
    struct need need;   /* forms demanded so far, each once */
    u8 *needed;         /* per value: bits of the layouts demanded */
    struct map tasks;   /* key bytes -> index of cover.task */
    struct map regions; /* nodes, forms -> 1: visited */
    bool no_fusion, no_concat;
    enum layout blocks; /* as in cover_opts */
    struct err *e;
};

/* layouts: channels last near convolutions, transposed ones and windows */

enum { IS_CONV = OP_CONV | OP_TRANSPOSED };

static bool has_channels(const struct graph *g, value_id v)
{
    const struct value *x = graph_value(g, v);
    return !x->is_const && x->shape.rank >= 3;
}

/* A Transpose whose channels are another axis behind it: what is channels last on one side is row-major on the other one, if it is the last axis. */
static bool moves_channels(const struct graph *g, node_id n)
{
    const i64 *perm;
    const struct node *x = graph_node(g, n);
    return str_is(x->op, "Transpose") && attr_ints(x, "perm", &perm) > 2 && perm[1] != 1;
}

static bool spreads(const struct graph *g, node_id n)
{
    return !moves_channels(g, n) && node_is(g, n, OP_POINTWISE | OP_VIEW | OP_SAMPLE | OP_WINDOW | IS_CONV | OP_REDUCE);
}

/* One node: if one of its activations of the output's rank is channels last, all are. Returns
 * whether anything changed. Weights that are computed keep their layout: kernels pack them. */
static bool spread_layout(struct cutter *c, node_id n)
{
    const struct graph *g = c->g;
    const struct node *x = graph_node(g, n);
    u32 rank = graph_value(g, node_out(g, n))->shape.rank;
    bool any = node_is(g, n, IS_CONV | OP_WINDOW), changed = false;
    for (int pass = 0; pass < 2; pass++) {
        for (u32 k = 0; k < x->in.n + x->out.n; k++) {
            value_id v = k < x->in.n ? x->in.v[k] : x->out.v[k - x->in.n];
            bool is_weights = k == 1 && k < x->in.n && node_is(g, n, IS_CONV);
            if (!v || is_weights || !has_channels(g, v) || graph_value(g, v)->shape.rank != rank) continue;
            if (pass == 0) any |= c->layout[v] == LAYOUT_CLAST;
            else if (any && c->layout[v] != LAYOUT_CLAST)
                c->layout[v] = LAYOUT_CLAST, changed = true;
        }
    }
    return changed;
}

/* The layout of an interface value for callers. */
static enum layout border_layout(const struct graph *g, value_id v)
{
    return graph_value(g, v)->layout;
}

/* Blocked channels are left to conversions and variants: few kernels support them. */
static void choose_border(struct cutter *c, value_id v)
{
    enum layout l = border_layout(c->g, v);
    if (l == LAYOUT_ROWS || l == LAYOUT_CLAST) c->layout[v] = l;
}

/* Inputs and outputs of bodies are row-major. */
static void choose_rows(struct cutter *c, node_id n)
{
    const struct node *x = graph_node(c->g, n);
    for (u32 k = 0; k < x->in.n; k++)
        if (x->in.v[k]) c->layout[x->in.v[k]] = LAYOUT_ROWS;
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k]) c->layout[x->out.v[k]] = LAYOUT_ROWS;
}

enum { FEW_CHANNELS = 4 }; /* that fill a group of a DOT at most */

static bool only_convolved(const struct cutter *c, value_id v)
{
    const struct graph *g = c->g;
    for (u32 i = 0; i < c->users[v].n; i++)
        if (!node_is(g, c->users[v].v[i], IS_CONV) || graph_node(g, c->users[v].v[i])->in.v[0] != v) return false;
    return c->users[v].n > 0 && !c->is_output[v];
}

/* Pictures that are quantised at the interface stay in the caller's planes: convolutions interleave planes of so few channels as they copy them, whereas
   pixels of three channels would be stored, and copied, element by element. */
static void choose_planes(struct cutter *c, value_id v)
{
    const struct graph *g = c->g;
    const struct value *x = graph_value(g, v);
    i64 channels;
    if (!dtype_is_int(x->dtype) || dtype_size(x->dtype) > 2 || !has_channels(g, v) || !sym_is_const(g->sym, x->shape.dim[1], &channels)) return;
    if (channels > FEW_CHANNELS || !x->producer || !only_convolved(c, v)) return;
    value_id from = v;
    while (graph_value(g, from)->producer && node_is(g, graph_value(g, from)->producer, OP_POINTWISE))
        from = graph_node(g, graph_value(g, from)->producer)->in.v[0];
    if (graph_value(g, from)->producer || graph_value(g, from)->is_const || border_layout(g, from) != LAYOUT_ROWS) return;
    for (; v != from; v = graph_node(g, graph_value(g, v)->producer)->in.v[0]) c->layout[v] = LAYOUT_ROWS;
}

static void choose_layouts(struct cutter *c)
{
    const struct graph *g = c->g;
    for (value_id v = 1; v < g->value.n; v++)
        if (border_layout(g, v) == LAYOUT_CLAST) c->layout[v] = LAYOUT_CLAST;
    /* in both directions: a long chain takes two sweeps, whichever end it spreads from */
    for (bool changed = true, back = false; changed; back = !back) {
        changed = false;
        for (node_id i = 1; i < g->node.n; i++) {
            node_id n = back ? g->node.n - i : i;
            if (spreads(g, n)) changed |= spread_layout(c, n);
        }
    }
    for (u32 k = 0; k < g->input.n; k++) choose_border(c, g->input.v[k]);
    for (value_id v = 1; v < g->value.n; v++) choose_planes(c, v);
    for (u32 k = 0; k < g->output.n; k++)
        if (c->users[g->output.v[k]].n == 0) choose_border(c, g->output.v[k]);
    for (node_id n = 1; n < g->node.n; n++)
        if (node_is(g, n, OP_CALL)) choose_rows(c, n);
    for (u32 k = 0; k < g->output.n; k++)
        if (graph_value(g, g->output.v[k])->shares) c->layout[g->output.v[k]] = LAYOUT_ROWS; /* a cache, with other nodes reading it, too */
}

/* Blocked channels are for values that only convolutions produce and consume, each
 * of which may read one layout and write the other: so no conversion is ever needed. */

static bool is_in_conv(const struct cutter *c, node_id n)
{
    return n && c->owner[n] && node_is(c->g, c->anchored[c->owner[n] - 1].v[0], OP_CONV);
}

/* Whether some convolution reads it with a window: 1x1 convolutions are matmuls, which pack. */
static bool has_window(const struct cutter *c, value_id v)
{
    const u32 axes = graph_value(c->g, v)->shape.rank - 2;
    for (u32 i = 0; i < c->users[v].n; i++) {
        node_id n = c->users[v].v[i];
        struct op_window w;
        if (!node_is(c->g, n, OP_CONV)) continue;
        op_window_get(c->g, graph_node(c->g, n), &w);
        for (u32 a = 0; a < axes; a++)
            if (w.kernel[a] > 1) return true;
    }
    return false;
}

static bool may_have_blocks(const struct cutter *c, value_id v, i64 block, i64 least)
{
    const struct value *x = graph_value(c->g, v);
    i64 channels;
    value_id live[2];
    if (c->is_output[v] || !has_channels(c->g, v) || !is_in_conv(c, x->producer)) return false;
    if (!dtype_is_float(x->dtype)) return false; /* bytes are read by pixels, several channels at a time */
    if (!sym_is_const(c->g->sym, x->shape.dim[1], &channels) || channels % block || channels < least)
        return false;
    if (set_live_outs(c, &c->anchored[c->owner[x->producer] - 1], live, 2) != 1 || live[0] != v) return false;
    for (u32 i = 0; i < c->users[v].n; i++)
        if (!is_in_conv(c, c->users[v].v[i])) return false;
    return has_window(c, v);
}

static void choose_blocks(struct builder *b, const struct cover_opts *o)
{
    struct cutter *c = &b->cut;
    b->blocks = o && !o->no_fusion ? o->blocks : LAYOUT_ROWS;
    for (value_id v = 1; v < c->g->value.n && layout_block(b->blocks) > 1; v++)
        c->in_blocks[v] = may_have_blocks(c, v, layout_block(b->blocks), o->blocks_from);
}

/* demand */

static void need_form(struct builder *b, struct form f)
{
    const struct value *x = graph_value(b->cut.g, f.v);
    if (x->is_const || (x->producer == 0 && f.layout == x->layout)) return;
    if (b->needed[f.v] >> f.layout & 1) return;
    b->needed[f.v] |= (u8)(1u << f.layout);
    *(arr_push(b->cut.a, &b->need)) = f;
}

static bool seen_region(struct builder *b, const struct region *r)
{
    struct buf k = {0};
    buf_put(&k, r->nodes, (i64)sizeof(node_id) * r->n_nodes);
    buf_z(&k, "|");
    for (u32 i = 0; i < r->n_in; i++) buf_printf(&k, "%u.%d,", r->in[i].v, (int)r->in[i].layout);
    buf_z(&k, "|");
    for (u32 i = 0; i < r->n_out; i++) buf_printf(&k, "%u.%d,", r->out[i].v, (int)r->out[i].layout);
    bool seen = map_get(&b->regions, buf_view(&k)) != NULL;
    map_put(&b->regions, buf_view(&k), 1);
    buf_release(&k);
    return seen;
}

/* Outer activations of the set, each once. */
static u32 outer_inputs(const struct cutter *c, const struct node_set *s, value_id **in)
{
    struct value_list list = {0};
    u32 search = cutter_search(c);
    for (u32 i = 0; i < s->n; i++) {
        const struct node *x = graph_node(c->g, s->v[i]);
        for (u32 k = 0; k < x->in.n; k++) {
            value_id v = x->in.v[k];
            if (!v || graph_value(c->g, v)->is_const) continue;
            node_id p = graph_value(c->g, v)->producer;
            if ((p && set_has(s, p)) || c->seen[v] == search) continue;
            c->seen[v] = search;
            *(arr_push(c->a, &list)) = v;
        }
    }
    *in = list.v;
    return list.n;
}

/* Adds the region of the set, with output `out`, with the layouts of `layout`. */
static bool add_region(struct builder *b, const struct node_set *s, const value_id *out, u32 n_out,
                       const enum layout *layout)
{
    struct arena *a = b->cut.a;
    value_id *in;
    struct region r = {.n_nodes = s->n, .n_out = n_out};
    r.nodes = arena_array(a, node_id, s->n);
    for (u32 i = 0; i < s->n; i++) r.nodes[i] = s->v[i];
    r.n_in = outer_inputs(&b->cut, s, &in);
    r.in = arena_array(a, struct form, r.n_in);
    for (u32 i = 0; i < r.n_in; i++) r.in[i] = (struct form){in[i], layout[in[i]], 0, 0};
    r.out = arena_array(a, struct form, n_out);
    for (u32 i = 0; i < n_out; i++) r.out[i] = (struct form){out[i], layout[out[i]], 0, 0};
    if (seen_region(b, &r)) return true;
    struct task *t = arena_new(a, struct task);
    if (!task_make(t, b->cut.g, a, r.nodes, r.n_nodes, out, n_out, layout, &r.map_back, b->e))
        return false;
    r.task = cover_add_task(b->c, &b->tasks, t);
    *(arr_push(a, &b->c->region)) = r;
    for (u32 i = 0; i < r.n_in; i++) need_form(b, r.in[i]);
    return true;
}

/* A value from one layout to another: a region without nodes, its task a single Identity. */
static bool add_conversion(struct builder *b, value_id v, enum layout from, enum layout to)
{
    struct arena *a = b->cut.a;
    struct region r = {.n_in = 1, .n_out = 1};
    r.in = arena_new(a, struct form), r.out = arena_new(a, struct form);
    *r.in = (struct form){v, from, 0, 0}, *r.out = (struct form){v, to, 0, 0};
    if (seen_region(b, &r)) return true;
    if (!cover_conversion(b->c, &b->tasks, &r, b->e)) return false;
    *(arr_push(a, &b->c->region)) = r;
    need_form(b, *r.in);
    return true;
}

/* alternatives */

static bool only_border_differs(const struct builder *b, value_id v)
{
    return has_channels(b->cut.g, v) &&
           (b->cut.is_output[v] || graph_value(b->cut.g, v)->producer == 0);
}

/* The same nodes with inputs or outputs at the graph's interface in another
 * layout: the caller's if the nodes prefer their own, else channels last. */
static bool add_layout_variants(struct builder *b, const struct node_set *s, value_id out)
{
    const struct cutter *c = &b->cut;
    value_id *in;
    u32 n = outer_inputs(c, s, &in);
    enum layout *l = c->layout; /* changed for a region, then restored */
    bool touches_conv = false;
    for (u32 i = 0; i < s->n; i++) touches_conv |= node_is(c->g, s->v[i], IS_CONV | OP_WINDOW);
    if (!touches_conv) return true;
    for (u32 k = 0; k <= n; k++) {
        value_id v = k < n ? in[k] : out;
        if (!only_border_differs(b, v)) continue;
        enum layout border = border_layout(c->g, v), own = l[v];
        enum layout other = own == border ? LAYOUT_CLAST : border;
        if (other == own) continue;
        l[v] = other;
        bool ok = add_region(b, s, &out, 1, l);
        l[v] = own;
        if (!ok || (k == n && other != border && !add_conversion(b, v, other, border))) return false;
    }
    return true;
}

/* The same nodes with all inputs, or the output, or both in blocked channels where permitted. */
static bool add_blocked(struct builder *b, const struct node_set *s, value_id out)
{
    const struct cutter *c = &b->cut;
    value_id *in;
    u32 n = outer_inputs(c, s, &in), n_in = 0;
    enum layout *l = c->layout, *own = arena_array(c->a, enum layout, n + 1);
    for (u32 k = 0; k < n; k++) n_in += c->in_blocks[in[k]];
    for (u32 way = 1; way < 4; way++) {
        bool reads = way & 1, writes = way & 2;
        if ((reads && !n_in) || (writes && !c->in_blocks[out])) continue;
        for (u32 k = 0; k <= n; k++) own[k] = l[k < n ? in[k] : out];
        for (u32 k = 0; k < n && reads; k++)
            if (c->in_blocks[in[k]]) l[in[k]] = b->blocks;
        if (writes) l[out] = b->blocks;
        bool ok = add_region(b, s, &out, 1, l);
        for (u32 k = 0; k <= n; k++) l[k < n ? in[k] : out] = own[k];
        if (!ok) return false;
    }
    return true;
}

/* anchor + epilogue + a window over the result, which is also an
   output if other nodes need it: a skip connection beside its pooling. */
static bool add_with_window(struct builder *b, const struct node_set *core, value_id out, node_id w)
{
    const struct cutter *c = &b->cut;
    if (!node_is(c->g, w, OP_WINDOW) || core->n >= MAX_REGION / 2) return true;
    struct node_set s = set_copy(c, core, core->n);
    set_add(&s, w);
    value_id outs[2];
    u32 n = set_live_outs(c, &s, outs, 2);
    if (n > 2 || (n == 2 && outs[0] != out)) return true;
    grow_prologue(c, &s);
    return add_region(b, &s, outs, n, c->layout);
}

static bool add_windows(struct builder *b, const struct node_set *core, value_id out)
{
    const struct value_list *users = &b->cut.users[out];
    for (u32 i = 0; i < users->n; i++)
        if (!add_with_window(b, core, out, users->v[i])) return false;
    return true;
}

static bool add_node(struct builder *b, node_id n, const value_id *out, u32 n_out)
{
    struct node_set one = set_new(&b->cut);
    set_add(&one, n);
    return add_region(b, &one, out, n_out, b->cut.layout);
}

/* The anchor by itself, with its epilogue as another kernel, or each node of it. */
static bool add_parts(struct builder *b, const struct node_set *core, value_id out)
{
    const struct cutter *c = &b->cut;
    if (core->n < 2) return true;
    struct node_set rest = set_new(c);
    for (u32 i = 1; i < core->n; i++) set_add(&rest, core->v[i]);
    set_sort(&rest);
    if (!add_region(b, &rest, &out, 1, c->layout)) return false;
    for (u32 i = 0; i < core->n; i++) {
        value_id v = node_out(c->g, core->v[i]);
        if (!add_node(b, core->v[i], &v, 1)) return false;
    }
    return true;
}

/* Whether the set reads a view of several values. */
static bool reads_joined(const struct cutter *c, const struct node_set *s)
{
    value_id *in;
    u32 n = outer_inputs(c, s, &in);
    for (u32 i = 0; i < n; i++) {
        node_id p = graph_value(c->g, in[i])->producer;
        u32 parts = 0;
        if (!p || !node_is(c->g, p, OP_VIEW)) continue;
        const struct node *x = graph_node(c->g, p);
        for (u32 k = 0; k < x->in.n; k++)
            parts += x->in.v[k] && !graph_value(c->g, x->in.v[k])->is_const;
        if (parts > 1) return true;
    }
    return false;
}

/* Consecutive convolutions in one kernel: pairs, and three. */
static bool add_chains(struct builder *b, const struct node_set *core, value_id out)
{
    const struct cutter *c = &b->cut;
    struct node_set s = set_copy(c, core, core->n);
    node_id head = core->v[0];
    for (u32 i = 0; i < 2 && grow_chain(c, &s, &head); i++) {
        struct node_set whole = set_copy(c, &s, s.n);
        grow_prologue(c, &whole);
        if (!add_region(b, &whole, &out, 1, c->layout)) return false;
    }
    return true;
}

/* Two matmuls with a softmax between them in one kernel; the statistics of its rows may be results of it or be computed from these. */
static bool add_attention(struct builder *b, const struct node_set *core)
{
    const struct cutter *c = &b->cut;
    for (u32 way = 0; way < 2; way++) {
        struct node_set s = set_copy(c, core, core->n);
        value_id out[MAX_ATTENTION_RESULTS];
        u32 n = grow_attention(c, &s, way == 0, out);
        if (!n) continue;
        grow_prologue(c, &s);
        if (!set_feeds_itself(c, &s, out, n) && !add_region(b, &s, out, n, c->layout)) return false;
    }
    return true;
}

/* A matmul with what makes one kernel of it, as `grow` knows: statistics of the result's rows, or sums of its columns; gradients of attention by queries, keys and values. */
static bool add_grown(struct builder *b, const struct node_set *core, u32 (*grow)(const struct cutter *c, struct node_set *s, value_id *out))
{
    const struct cutter *c = &b->cut;
    struct node_set s = set_copy(c, core, core->n);
    value_id out[MAX_ATTENTION_RESULTS];
    u32 n = grow(c, &s, out);
    if (!n) return true;
    grow_prologue(c, &s);
    return set_feeds_itself(c, &s, out, n) || add_region(b, &s, out, n, c->layout);
}

/* The anchor with its prologue, but for concatenations, which may be in place: the normalised concatenations of a dense block. */
static bool add_behind_joins(struct builder *b, const struct node_set *core, value_id out)
{
    struct node_set s = set_copy(&b->cut, core, core->n);
    if (b->no_concat) return true;
    grow_prologue_behind_joins(&b->cut, &s);
    return add_region(b, &s, &out, 1, b->cut.layout);
}

static bool add_anchor_alternatives(struct builder *b, const struct node_set *core, value_id out)
{
    const struct cutter *c = &b->cut;
    struct node_set fused = set_copy(c, core, core->n);
    grow_prologue(c, &fused);
    if (!add_layout_variants(b, &fused, out)) return false;
    if (!add_blocked(b, &fused, out)) return false;
    bool out_kept = !b->no_concat || !reads_joined(c, core); /* views kept out */
    if (out_kept && !add_region(b, core, &out, 1, c->layout)) return false;
    return add_behind_joins(b, core, out) && add_windows(b, core, out) && add_chains(b, core, out) && add_attention(b, core) &&
           add_grown(b, core, grow_scores) && add_grown(b, core, grow_attention_grad) && add_parts(b, core, out);
}

/* the default region that produces a value */

static bool add_default(struct builder *b, value_id v)
{
    struct cutter *c = &b->cut;
    node_id p = graph_value(c->g, v)->producer;
    struct node_set s;
    bool has_anchor = c->owner[p] != 0;
    if (has_anchor) {
        const struct node_set *core = &c->anchored[c->owner[p] - 1];
        value_id live[1];
        /* an inner value of an anchor's region that an alternative needs: its node by itself */
        bool is_inner = set_live_outs(c, core, live, 1) == 1 && live[0] != v;
        s = set_copy(c, core, is_inner ? 0 : core->n);
        if (is_inner) set_add(&s, p), has_anchor = false;
    } else {
        s = set_new(c);
        set_add(&s, p);
    }
    u32 n_core = s.n;
    if (!b->no_fusion && !node_is(c->g, p, OP_CALL)) grow_prologue(c, &s);
    const struct node *x = graph_node(c->g, p);
    u32 max_out = node_is(c->g, p, OP_CALL) ? x->out.n : MAX_REGION;
    value_id *outs = arena_array(c->a, value_id, max_out + 1);
    u32 n_out = 0;
    if (!has_anchor && x->out.n > 1 && !node_is(c->g, p, OP_VIEW)) { /* several outputs at once */
        for (u32 k = 0; k < x->out.n && n_out < max_out; k++)
            if (x->out.v[k]) outs[n_out++] = x->out.v[k];
    } else outs[n_out++] = v;
    if (!add_region(b, &s, outs, n_out, c->layout)) return false;
    if (!has_anchor || n_out != 1 || b->no_fusion) {
        return n_core == s.n || add_node(b, p, outs, n_out);
    }
    return add_anchor_alternatives(b, &c->anchored[c->owner[p] - 1], v);
}

static bool deliver(struct builder *b, struct form f)
{
    const struct cutter *c = &b->cut;
    bool is_input = graph_value(c->g, f.v)->producer == 0;
    enum layout from = is_input ? border_layout(c->g, f.v) : c->layout[f.v];
    bool converted = f.layout != from && !(c->in_blocks[f.v] && f.layout == b->blocks);
    if (converted && !add_conversion(b, f.v, from, f.layout)) return false;
    return is_input || add_default(b, f.v);
}

static void find_anchors(struct builder *b)
{
    struct cutter *c = &b->cut;
    static const u32 rank[] = {OP_CONV | OP_MATMUL | OP_HEAVY, OP_REDUCE, OP_WINDOW | OP_SAMPLE};
    for (u32 r = 0; r < 3; r++) {
        for (node_id n = 1; n < c->g->node.n; n++) {
            if (c->owner[n] || !node_is(c->g, n, rank[r]) || node_is(c->g, n, OP_WHOLE)) continue;
            struct node_set s = set_new(c);
            set_add(&s, n);
            value_id out[2];
            if (set_live_outs(c, &s, out, 2) != 1) continue;
            if (!b->no_fusion) grow_epilogue(c, &s, n);
            c->anchored[c->n_anchored++] = s;
            for (u32 i = 0; i < s.n; i++) c->owner[s.v[i]] = c->n_anchored;
        }
    }
}

static bool build_bodies(struct cover *c, const struct cover_opts *o, struct err *e)
{
    for (node_id n = 1; n < c->g->node.n; n++)
        for (u32 k = 0; node_is(c->g, n, OP_CALL) && k < graph_node(c->g, n)->attr.n; k++) {
            const struct attr *t = &graph_node(c->g, n)->attr.v[k];
            if (t->kind != ATTR_GRAPH) continue;
            struct cover *body = arena_new(c->arena, struct cover);
            if (!cover_build(body, t->graph, c->arena, o, e)) return false;
            *arr_push(c->arena, &c->body) = body;
        }
    return true;
}

const struct cover *cover_body(const struct cover *c, const struct graph *body, u32 *at)
{
    for (*at = 0; *at < c->body.n; ++*at)
        if (c->body.v[*at]->g == body) return c->body.v[*at];
    return NULL;
}

bool cover_build(struct cover *c, const struct graph *g, struct arena *a,
                 const struct cover_opts *o, struct err *e)
{
    *c = (struct cover){.g = g, .arena = a};
    struct builder b = {
        .c = c, .e = e, .no_fusion = o && o->no_fusion, .no_concat = o && o->no_concat};
    cutter_init(&b.cut, g, a);
    b.needed = arena_array(a, u8, g->value.n);
    map_init(&b.tasks, a);
    map_init(&b.regions, a);
    choose_layouts(&b.cut);
    find_anchors(&b);
    choose_blocks(&b, o);
    if (!build_bodies(c, o, e)) return false;
    for (u32 k = 0; k < g->output.n; k++)
        need_form(&b, (struct form){g->output.v[k], border_layout(g, g->output.v[k]), 0, 0});
    for (u32 k = 0; k < g->made.n; k++)
        if (g->made.v[k].v && graph_value(g, g->made.v[k].v)->producer)
            need_form(&b, (struct form){g->made.v[k].v, border_layout(g, g->made.v[k].v), 0, 0});
    for (; b.need.done < b.need.n; b.need.done++)
        if (!deliver(&b, b.need.v[b.need.done]) || !mem_check(e, "cutting the graph into tasks", S(""))) return false;
    return b.no_concat || cover_add_joins(c, &b.cut, &b.tasks, o && o->only_joins, e);
}
