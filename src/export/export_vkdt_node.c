// SPDX-License-Identifier: Apache-2.0
//
// From dispatches to nodes. Each grid of a dispatch becomes a node whose connectors are the buffers
// that the grid uses. vkdt orders nodes by their connections only, so every dependency must be a
// connection:
//   - a buffer belongs to the node that writes it first ("write"); later readers are connected to its last writer;
//   - a node that writes into an existing buffer (the second half of a concatenation, a sum) has a "modify" connector to the
//     last writer; readers of the older content must come first, so it gets an additional unused connector to each of them;
//   - constants are in one buffer, the weights, each at an offset.
// Sources (the weights, the pictures of the inputs) must be visited before any buffer is freed, see
// visit_sources_first.
#include "export/export_vkdt.h"

#include <string.h>

struct buf_state {
    bool is_written;
    struct vkdt_end last; /* the writer, if is_written */
    struct {
        u32 *v;
        u32 n, cap;
    } reader; /* nodes, since then */
};

struct grapher {
    struct vkdt_model *m;
    const struct plan *p;
    struct buf_state *state; /* per buffer */
    struct arena *a;
    struct err *e;
};

static bool bad_dispatch(struct grapher *g, const struct plan_dispatch *d)
{
    return err_prefix(g->e, "dispatch '%.*s'", STR_ARG(d->label));
}

static struct vkdt_node *node_of(struct grapher *g, u32 k) { return &g->m->node.v[k]; }

/* Connectors. */

static struct vkdt_conn *add_conn(struct grapher *g, struct vkdt_node *n, u32 buf)
{
    if (n->n_conn == VKDT_CONNECTORS) {
        err_set(g->e, ERR_UNSUPPORTED, "a node of vkdt has at most %d connectors", VKDT_CONNECTORS);
        return NULL;
    }
    struct vkdt_conn *c = &n->conn[n->n_conn++];
    *c = (struct vkdt_conn){.buf = buf};
    return c;
}

static u32 input_of(const struct plan *p, u32 buf)
{
    for (u32 k = 0; k < p->input.n; k++)
        if (p->input.v[k].buf == buf) return k;
    unreachable(); /* checked by plan_verify */
}

static bool connect_read(struct grapher *g, struct vkdt_conn *c, u32 node)
{
    struct buf_state *s = &g->state[c->buf];
    const struct plan_buf *b = &g->p->buf.v[c->buf];
    c->type = VC_READ;
    if (b->kind == PB_CONST) return c->end.kind = END_WEIGHTS, true;
    if (!s->is_written && b->kind != PB_INPUT)
        return err_set(g->e, ERR_INPUT, "buffer '%.*s' is read before it is written",
                       STR_ARG(b->name));
    if (s->is_written) c->end = s->last;
    else c->end = (struct vkdt_end){.kind = END_INPUT, .node = input_of(g->p, c->buf)};
    *(arr_push(g->a, &s->reader)) = node;
    return true;
}

static bool connect_write(struct grapher *g, struct vkdt_conn *c)
{
    struct buf_state *s = &g->state[c->buf];
    const struct plan_buf *b = &g->p->buf.v[c->buf];
    if (b->kind == PB_CONST || b->kind == PB_INPUT)
        return err_set(g->e, ERR_UNSUPPORTED, "kernel writes into '%.*s', which is not its own",
                       STR_ARG(b->name));
    c->type = s->is_written ? VC_MODIFY : VC_WRITE;
    c->end = s->last;
    return true;
}

static bool connect_arg(struct grapher *g, u32 node, u32 buf, u8 use)
{
    struct vkdt_conn *c = add_conn(g, node_of(g, node), buf);
    return c && (use & USE_WRITE ? connect_write(g, c) : connect_read(g, c, node));
}

/* The kernel's arguments that this grid uses: inputs of the network first, so that they are visited last (see visit_sources_first). */
static bool connect_args(struct grapher *g, u32 node, const struct spirv_grid *k, u32 *binding)
{
    const struct plan_dispatch *d = &g->p->dispatch.v[node_of(g, node)->dispatch];
    for (u32 i = 0; i < k->n_use; i++)
        if (k->use[i] && i >= d->n_buf)
            return err_set(g->e, ERR_UNSUPPORTED,
                           "%u parameters are more than push constants of the target hold",
                           d->n_param);
    for (u32 pass = 0; pass < 2; pass++)
        for (u32 i = 0; i < k->n_use; i++) {
            if (!k->use[i] || (g->p->buf.v[d->buf[i]].kind == PB_INPUT) != (pass == 0)) continue;
            binding[i] = node_of(g, node)->n_conn;
            if (!connect_arg(g, node, d->buf[i], k->use[i])) return false;
        }
    return true;
}

/* Any buffer that the node writes, for a connection that orders nodes. */
static struct vkdt_end any_output(struct grapher *g, u32 node)
{
    const struct vkdt_node *n = node_of(g, node);
    struct vkdt_end end = {.node = node};
    while (end.conn < n->n_conn && n->conn[end.conn].type == VC_READ) end.conn++;
    return end;
}

static bool has_order(const struct vkdt_node *n, u32 on)
{
    for (u32 k = 0; k < n->n_conn; k++)
        if (n->conn[k].type != VC_WRITE && n->conn[k].end.kind == END_NODE &&
            n->conn[k].end.node == on)
            return true;
    return false;
}

static bool order_behind(struct grapher *g, u32 node, const struct buf_state *s)
{
    for (u32 k = 0; k < s->reader.n; k++) {
        u32 on = s->reader.v[k];
        if (on == node || has_order(node_of(g, node), on)) continue;
        struct vkdt_end end = any_output(g, on);
        struct vkdt_conn *c = add_conn(g, node_of(g, node), node_of(g, on)->conn[end.conn].buf);
        if (!c) return false;
        c->type = VC_READ;
        c->end = end;
        c->is_order = true;
    }
    return true;
}

/* Makes the node the last writer of its outputs. */
static bool note_writes(struct grapher *g, u32 node)
{
    u32 n = node_of(g, node)->n_conn, n_writes = 0;
    for (u32 i = 0; i < n; i++) {
        const struct vkdt_conn *c = &node_of(g, node)->conn[i];
        struct buf_state *s = &g->state[c->buf];
        if (c->type == VC_READ) continue;
        n_writes++;
        if (c->type == VC_MODIFY && !order_behind(g, node, s)) return false;
        if (s->is_written && s->last.node == node)
            return err_set(g->e, ERR_UNSUPPORTED, "kernel writes a buffer by two arguments");
        s->is_written = true;
        s->last = (struct vkdt_end){.kind = END_NODE, .node = node, .conn = i};
        s->reader.n = 0;
    }
    return n_writes > 0 || err_set(g->e, ERR_INPUT, "kernel writes nothing");
}

/* Kernels. */

/* Push constants: parameters, or parameters and the base of a part of a grid; a pipeline's layout
   must contain those that its module declares. */
static bool set_push(struct grapher *g, struct vkdt_node *n, const struct spirv_grid *k)
{
    enum { BASE = 3 };
    i64 n_param = g->p->dispatch.v[n->dispatch].n_param;
    n->has_push = k->push_bytes > 0;
    n->has_base = k->push_bytes == 4 * (n_param + BASE);
    if (k->push_bytes > VKDT_PUSH)
        return err_set(g->e, ERR_UNSUPPORTED, "%lld bytes of push constants, vkdt supports %d",
                       (long long)k->push_bytes, VKDT_PUSH);
    return !n->has_push || n->has_base || k->push_bytes == 4 * n_param ||
           err_set(g->e, ERR_INPUT, "kernel has %lld bytes of push constants for %lld parameters",
                   (long long)k->push_bytes, (long long)n_param);
}

static u32 add_kernel(struct grapher *g, const struct spirv_grid *k)
{
    for (u32 i = 0; i < g->m->kernel.n; i++)
        if (str_eq(g->m->kernel.v[i].code, k->code)) return i;
    *(arr_push(g->a, &g->m->kernel)) = *k;
    return g->m->kernel.n - 1;
}

static bool add_grid(struct grapher *g, u32 dispatch, u32 grid)
{
    const struct plan_dispatch *d = &g->p->dispatch.v[dispatch];
    const struct plan_bin *b = &g->p->bin.v[d->bin];
    struct str entry = str_fmt(g->a, "%.*s_%u", STR_ARG(d->entry), grid);
    struct spirv_grid k;
    if (!spirv_grid_take(&k, b->code, entry, g->a, g->e)) return false;
    /* Declared but unused arguments are bound to connector 0. */
    u32 node = g->m->node.n, *binding = arena_array(g->a, u32, k.n_use + 1);
    *(arr_push(g->a, &g->m->node)) = (struct vkdt_node){.dispatch = dispatch, .grid = grid};
    if (!connect_args(g, node, &k, binding) || !note_writes(g, node)) return false;
    spirv_grid_rebind(&k, binding);
    node_of(g, node)->kernel = add_kernel(g, &k);
    return set_push(g, node_of(g, node), &k);
}

static bool add_dispatch(struct grapher *g, u32 i)
{
    const struct plan_dispatch *d = &g->p->dispatch.v[i];
    const struct plan_bin *b = &g->p->bin.v[d->bin];
    if (!str_is(b->lang, "spirv"))
        return err_set(g->e, ERR_UNSUPPORTED,
                       "program is in language '%.*s', vkdt runs 'spirv': compile it for a Vulkan "
                       "device",
                       STR_ARG(b->lang));
    for (u32 grid = 0; grid < d->n_grid; grid++)
        if (!add_grid(g, i, grid)) return false;
    return true;
}

static bool find_results(struct grapher *g)
{
    g->m->result = arena_array(g->a, struct vkdt_end, g->p->output.n);
    for (u32 k = 0; k < g->p->output.n; k++) {
        const struct plan_io *io = &g->p->output.v[k];
        if (!g->state[io->buf].is_written)
            return err_set(g->e, ERR_INPUT, "no kernel writes output '%.*s'", STR_ARG(io->name));
        g->m->result[k] = g->state[io->buf].last;
    }
    return true;
}

/* Nodes visited by vkdt: those that lead to an output. Kernels with unused results are omitted, with their code. */

static bool *find_live(struct grapher *g)
{
    bool *live = arena_array(g->a, bool, g->m->node.n + 1);
    for (u32 k = 0; k < g->p->output.n; k++) live[g->m->result[k].node] = true;
    for (u32 i = g->m->node.n; i-- > 0;) /* ends of connections are earlier nodes */
        for (u32 k = 0; live[i] && k < node_of(g, i)->n_conn; k++) {
            const struct vkdt_conn *c = &node_of(g, i)->conn[k];
            if (c->type != VC_WRITE && c->end.kind == END_NODE) live[c->end.node] = true;
        }
    return live;
}

/* Kernels in the order of the remaining nodes. */
static void keep_used_kernels(struct grapher *g)
{
    struct vkdt_model *m = g->m;
    struct spirv_grid *all = m->kernel.v;
    u32 *at = arena_array(g->a, u32, m->kernel.n + 1), n_all = m->kernel.n; /* 1 + new number */
    m->kernel.v = arena_array(g->a, struct spirv_grid, n_all + 1);
    m->kernel.n = 0, m->kernel.cap = n_all + 1;
    for (u32 i = 0; i < m->node.n; i++) {
        u32 *k = &m->node.v[i].kernel;
        if (!at[*k]) m->kernel.v[m->kernel.n] = all[*k], at[*k] = ++m->kernel.n;
        *k = at[*k] - 1;
    }
}

static void drop_dead_nodes(struct grapher *g)
{
    struct vkdt_model *m = g->m;
    const bool *live = find_live(g);
    u32 n = 0, *at = arena_array(g->a, u32, m->node.n + 1);
    for (u32 i = 0; i < m->node.n; i++) {
        if (!live[i]) continue;
        m->node.v[n] = m->node.v[i];
        for (u32 k = 0; k < m->node.v[n].n_conn; k++) {
            struct vkdt_conn *c = &m->node.v[n].conn[k];
            if (c->type != VC_WRITE && c->end.kind == END_NODE) c->end.node = at[c->end.node];
        }
        at[i] = n++;
    }
    m->node.n = n;
    for (u32 k = 0; k < g->p->output.n; k++) m->result[k].node = at[m->result[k].node];
    keep_used_kernels(g);
}

/* Places constants in the order in which nodes read them. */

static bool place_const(struct grapher *g, u32 buf)
{
    i64 *at = &g->m->offset[buf];
    if (*at >= 0) return true;
    *at = round_up(g->m->weights, VKDT_ALIGN);
    if (g->p->buf.v[buf].data_size > INT32_MAX - *at - VKDT_PAD)
        return err_set(g->e, ERR_UNSUPPORTED, "constants of 2 GiB and more");
    g->m->weights = *at + round_up(i64_max(g->p->buf.v[buf].data_size, 1), VKDT_PAD);
    return true;
}

static bool place_consts(struct grapher *g, const struct vkdt_node *n)
{
    for (u32 k = 0; k < n->n_conn; k++)
        if (n->conn[k].type == VC_READ && n->conn[k].end.kind == END_WEIGHTS && !place_const(g, n->conn[k].buf)) return false;
    return true;
}

static bool check_kernel(struct grapher *g, const struct spirv_grid *k)
{
    struct vkdt_model *m = g->m;
    if (k->subgroup && m->subgroup && k->subgroup != m->subgroup)
        return err_set(g->e, ERR_UNSUPPORTED,
                       "kernels require subgroups of %u and of %u threads, vkdt uses a device's",
                       m->subgroup, k->subgroup);
    if (k->subgroup) m->subgroup = k->subgroup;
    m->needs_matrix |= k->needs_matrix;
    return true;
}

/* Requirements of the remaining nodes: weights, and device features. */
static bool sum_up(struct grapher *g)
{
    for (u32 i = 0; i < g->m->node.n; i++) {
        const struct vkdt_node *n = node_of(g, i);
        if (!place_consts(g, n) || !check_kernel(g, &g->m->kernel.v[n->kernel])) return bad_dispatch(g, &g->p->dispatch.v[n->dispatch]);
    }
    return true;
}

/* Order of sources. vkdt visits nodes depth-first from its sinks, the last connector of a node
   first, and allocates memory in that order. The CPU fills the staging memory of all sources before
   a frame begins. If staging and buffers share memory (devices whose memory is all host-visible),
   the staging of a source that is visited late may reuse the memory of an earlier node's buffer,
   and that node's output overwrites it. So each node through which the traversal can enter the
   network reads the weights, by its last connector: they are visited before all producers of the
   network's inputs. And the node that runs first reads all inputs, the last one last, so that their
   producers are visited before the network's first buffer is freed. On the path to it no input may
   be met, so nodes visit other nodes before inputs; otherwise the producer of that input would be
   freed before the other inputs are visited. */

/* The node that runs first if the traversal enters here. */
static u32 first_from(struct grapher *g, u32 node)
{
    for (u32 k = node_of(g, node)->n_conn; k-- > 0;) {
        const struct vkdt_conn *c = &node_of(g, node)->conn[k];
        if (c->type == VC_WRITE || c->end.kind != END_NODE) continue;
        node = c->end.node; /* an earlier node, so this terminates */
        k = node_of(g, node)->n_conn;
    }
    return node;
}

static bool add_read(struct grapher *g, u32 node, struct vkdt_end end, u32 buf)
{
    struct vkdt_conn *c = add_conn(g, node_of(g, node), buf);
    if (!c) return err_prefix(g->e, "connectors that order the inputs of a module");
    c->type = VC_READ;
    c->end = end;
    c->is_order = true;
    return true;
}

static bool read_weights_last(struct grapher *g, u32 node)
{
    const struct vkdt_node *n = node_of(g, node);
    u32 k = n->n_conn, buf = 0;
    while (k > 0 && n->conn[k - 1].type == VC_WRITE) k--;
    if (!g->m->weights || (k > 0 && n->conn[k - 1].end.kind == END_WEIGHTS)) return true;
    while (g->m->offset[buf] < 0) buf++;
    return add_read(g, node, (struct vkdt_end){.kind = END_WEIGHTS}, buf);
}

/* Whether the node's last connectors read all inputs, in their order. */
static bool reads_inputs_in_order(struct grapher *g, u32 node)
{
    const struct vkdt_node *n = node_of(g, node);
    u32 left = g->p->input.n;
    for (u32 k = n->n_conn; k-- > 0 && left > 0;) {
        if (n->conn[k].type == VC_WRITE || n->conn[k].end.kind != END_INPUT) continue;
        if (n->conn[k].end.node >= left) continue; /* visited already */
        if (n->conn[k].end.node != --left) return false;
    }
    return left == 0;
}

static bool read_inputs(struct grapher *g, u32 node)
{
    if (reads_inputs_in_order(g, node)) return true;
    for (u32 k = 0; k < g->p->input.n; k++)
        if (!add_read(g, node, (struct vkdt_end){.kind = END_INPUT, .node = k}, g->p->input.v[k].buf)) return false;
    return true;
}

static bool visit_sources_first(struct grapher *g)
{
    for (u32 k = 0; k < g->p->output.n; k++) {
        u32 entry = g->m->result[k].node;
        if (!read_inputs(g, first_from(g, entry)) || !read_weights_last(g, entry)) return false;
    }
    return true;
}

/* vkdt leaves the subgroup size to the driver: a required size must be the default one. */
static bool check_subgroup(const struct vkdt_model *m, struct err *e)
{
    struct caps c = {0};
    if (!m->subgroup || !caps_parse(&c, m->plan->caps, e) || c.subgroup == m->subgroup)
        return e->code == ERR_NONE;
    return err_set(e, ERR_UNSUPPORTED,
                   "kernels require subgroups of %u threads, vkdt cannot request them and the "
                   "target's usual size is %u",
                   m->subgroup, c.subgroup);
}

static bool find_images(struct vkdt_model *m, struct arena *a, struct err *e)
{
    const struct plan *p = m->plan;
    m->in = arena_array(a, struct vkdt_image, p->input.n);
    m->out = arena_array(a, struct vkdt_image, p->output.n);
    if (p->input.n == 0) return err_set(e, ERR_UNSUPPORTED, "network without inputs");
    if (p->input.n + p->output.n > VKDT_CONNECTORS)
        return err_set(e, ERR_UNSUPPORTED, "%u inputs and outputs, a module has at most %d",
                       p->input.n + p->output.n, VKDT_CONNECTORS);
    for (u32 k = 0; k < p->input.n; k++)
        if (!vkdt_image_of(&m->in[k], p, &p->input.v[k], e)) return false;
    for (u32 k = 0; k < p->output.n; k++)
        if (!vkdt_image_of(&m->out[k], p, &p->output.v[k], e)) return false;
    return vkdt_bind_vars(m, a, e);
}

bool vkdt_model_init(struct vkdt_model *m, const struct plan *p, struct arena *a, struct err *e)
{
    *m = (struct vkdt_model){.plan = p, .suffix = "", .offset = arena_array(a, i64, p->buf.n)};
    struct grapher g = {.m = m, .p = p, .a = a, .e = e};
    g.state = arena_array(a, struct buf_state, p->buf.n);
    for (u32 i = 0; i < p->buf.n; i++) m->offset[i] = -1;
    if (!find_images(m, a, e)) return false;
    if (p->state.n) return err_set(e, ERR_UNSUPPORTED, "the program has caches in place, which a module's nodes cannot keep: compile it without --state");
    if (plan_has_calls(p)) return err_set(e, ERR_UNSUPPORTED, "the program has loops or branches that are decided at run time, but a module's nodes are fixed");
    for (u32 i = 0; i < p->dispatch.n; i++)
        if (!add_dispatch(&g, i)) return bad_dispatch(&g, &p->dispatch.v[i]);
    if (!find_results(&g)) return false;
    drop_dead_nodes(&g);
    return sum_up(&g) && visit_sources_first(&g) && check_subgroup(m, e);
}

void vkdt_model_weights(const struct vkdt_model *m, struct buf *out)
{
    static const char zeros[VKDT_ALIGN];
    for (i64 at = 0; at < m->weights;) {
        u32 next = UINT32_MAX; /* offsets increase in order of use, not of buffer numbers */
        for (u32 i = 0; i < m->plan->buf.n; i++)
            if (m->offset[i] >= at && (next == UINT32_MAX || m->offset[i] < m->offset[next]))
                next = i;
        if (next == UINT32_MAX) break;
        const struct plan_buf *b = &m->plan->buf.v[next];
        buf_put(out, zeros, m->offset[next] - out->n);
        buf_put(out, b->data, b->data_size);
        at = m->offset[next] + 1;
    }
    for (i64 n; (n = m->weights - out->n) > 0;) buf_put(out, zeros, i64_min(n, countof(zeros)));
}
