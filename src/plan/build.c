// SPDX-License-Identifier: Apache-2.0
//
// From a selection to a plan: kernels are generated and emitted (equal ones once), constants packed
// as their kernels require (equal ones once), and a buffer is made for every form passed between
// dispatches. The caller provides the binaries.
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct made_kernel { struct kernel k; const struct task *task; const struct task_cost *cost; u32 dispatch; };

struct maker {
    struct plan *p;
    const struct cover *c;
    const struct plan_env *env;
    struct arena *a;
    struct arena scratch;
    struct map texts; /* kernel name -> index of its text */
    struct { struct plan_text *v; u32 n, cap; } text;
    /* per kernel: its dispatch */
    struct { struct made_kernel *v; u32 n, cap; } kernel;
    bool *is_joined;   /* per join: a region computes the concatenation */
    struct map consts; /* "value id/pack" -> buf */
    struct map forms;  /* "value id.layout" -> buf; "join" -> its buf */
    const struct selection *s;
    u32 depth;         /* nesting depth of calls */
    struct err *e;
};

static sym to_plan(struct maker *m, sym s) { return sym_copy(&m->p->sym, m->c->g->sym, s); }

static struct str fmt_key(char *room, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(room, size, fmt, ap);
    va_end(ap);
    return (struct str){room, n};
}

/* Interface. */

/* Output k, a cache that shares the memory of an input. */
static void plan_add_state(struct maker *m, const struct value *x, u32 input, u32 k)
{
    struct plan *p = m->p;
    sym room = sym_sub(&p->sym, to_plan(m, x->part.whole), to_plan(m, x->shape.dim[x->part.axis]));
    bool grows = p->sym.node.v[room].op == SYM_VAR;
    struct plan_state s = {.input = input, .output = k, .axis = grows ? x->part.axis : PLAN_NO_AXIS, .room = grows ? p->sym.node.v[room].a : UINT32_MAX};
    *arr_push(m->a, &p->state) = s;
    if (!grows) return;
    for (u32 i = 0; i < p->given.n; i++)
        if (p->given.v[i] == s.room) return;
    *arr_push(m->a, &p->given) = s.room;
}

/* v is the graph's k-th input or output; callers may see its memory under another shape. */
static void plan_add_io(struct maker *m, value_id v, u32 k, enum plan_buf_kind kind)
{
    struct plan *p = m->p;
    bool is_in = kind == PB_INPUT;
    const struct graph *g = m->env->outer ? m->env->outer : m->c->g;
    const struct value *x = graph_value(m->c->g, v),
                       *seen = graph_value(g, is_in ? g->input.v[k] : g->output.v[k]);
    const struct str *layout = is_in ? m->env->in_layout : m->env->out_layout;
    struct plan_io io = {.name = str_dup(m->a, x->name),
                         .dtype = x->dtype,
                         .rank = seen->shape.rank,
                         .buf = p->buf.n};
    if (layout) io.layout = str_dup(m->a, layout[k]);
    struct shape given = value_given(g->sym, seen);
    for (u32 d = 0; d < io.rank; d++) io.dim[d] = to_plan(m, given.dim[d]);
    sym count = to_plan(m, value_storage(m->c->g->sym, x));
    char room[64];
    if (!is_in && x->shares) { /* in the memory of an input */
        u32 i = 0;
        while (m->c->g->input.v[i] != x->shares) i++;
        io.buf = p->input.v[i].buf;
        p->buf.v[io.buf].kind = PB_STATE;
        plan_add_state(m, x, i, k);
        *(arr_push(m->a, &p->output)) = io;
        map_put(&m->forms, fmt_key(room, sizeof room, "%u.%d", v, (int)x->layout), io.buf);
        return;
    }
    struct plan_buf *b = arr_push(m->a, &p->buf);
    *b = (struct plan_buf){.kind = kind, .name = io.name, .dtype = x->dtype, .first = UINT32_MAX};
    b->size = sym_mul(&p->sym, count, sym_const(&p->sym, dtype_size(x->dtype)));
    if (is_in) *(arr_push(m->a, &p->input)) = io;
    else *(arr_push(m->a, &p->output)) = io;
    map_put(&m->forms, fmt_key(room, sizeof room, "%u.%d", v, (int)x->layout), io.buf);
}

/* Buffers. */

static struct plan_buf new_temp(struct maker *m, value_id v, enum layout l)
{
    const struct value *x = graph_value(m->c->g, v);
    struct plan *p = m->p;
    const struct shape room = value_room(x);
    sym count = to_plan(m, layout_count(m->c->g->sym, &room, l));
    struct plan_buf b = {.kind = PB_TEMP, .name = str_dup(m->a, x->name), .dtype = x->dtype, .first = UINT32_MAX};
    b.size = sym_mul(&p->sym, count, sym_const(&p->sym, dtype_size(x->dtype)));
    return b;
}

static u32 form_buf(struct maker *m, value_id v, enum layout l)
{
    char room[64];
    struct str key = fmt_key(room, sizeof room, "%u.%d", v, (int)l);
    u64 *known = map_get(&m->forms, key);
    if (known) return (u32)*known;
    struct plan *p = m->p;
    struct plan_buf b = new_temp(m, v, l);
    *(arr_push(m->a, &p->buf)) = b;
    map_put(&m->forms, key, p->buf.n - 1);
    return p->buf.n - 1;
}

/* The buffer of a join's parts. It is the concatenation's buffer if a region computes that in the
   join; otherwise an additional one. */
static u32 join_buf(struct maker *m, u32 join)
{
    const struct join *x = &m->c->join.v[join];
    struct plan *p = m->p;
    char room[64];
    struct str key = fmt_key(room, sizeof room, "%u", join);
    u64 *known = map_get(&m->forms, key);
    if (known) return (u32)*known;
    u32 buf = p->buf.n;
    if (m->is_joined[join]) {
        buf = form_buf(m, x->v, x->layout);
    } else {
        struct plan_buf b = new_temp(m, x->v, x->layout);
        *(arr_push(m->a, &p->buf)) = b;
    }
    map_put(&m->forms, key, buf);
    return buf;
}

/* The buffer of a value of the region's task. */
static u32 arg_buf(struct maker *m, const struct region *r, const struct kernel_arg *a)
{
    const struct value *x = graph_value(&m->c->task.v[r->task]->g, a->v);
    value_id v = r->map_back[a->v];
    const struct form *f = a->is_out ? r->out : r->in;
    if (!x->part.whole) return form_buf(m, v, x->layout);
    while (f->v != v) f++;
    return f->join ? join_buf(m, f->join - 1) : form_buf(m, v, x->layout); /* a cache in place, or a part */
}

/* Copies the tensor, because the plan outlives the model. */
static struct tensor *copy_tensor(struct maker *m, const struct value *v)
{
    const struct tensor *x = v->data;
    struct tensor *t = tensor_try(m->a, x->dtype, x->rank, x->dim, m->e, "constant ", v->name);
    if (t) memcpy(t->data, x->data, (size_t)tensor_bytes(x));
    return t;
}

static bool const_buf(struct maker *m, value_id v, const struct pack *pk, u32 *out)
{
    struct plan *p = m->p;
    const struct value *x = graph_value(m->c->g, v);
    assert(x->is_const && x->data);
    struct buf key = {0};
    buf_printf(&key, "%u", v);
    if (pk) pack_print(&key, pk, m->c->g->sym, x->data);
    u64 *known = map_get(&m->consts, buf_view(&key));
    if (known) *out = (u32)*known;
    else map_put(&m->consts, buf_view(&key), p->buf.n);
    buf_release(&key);
    if (known) return true;
    struct tensor *t = pk ? pack_apply(pk, x->data, m->c->g->sym, m->a, m->e) : copy_tensor(m, x);
    if (!t && m->e->code) return err_prefix(m->e, "constant '%.*s'", STR_ARG(x->name));
    if (!t) return err_set(m->e, ERR_FAILED, "cannot rearrange constant '%.*s'", STR_ARG(x->name));
    struct plan_buf *b = arr_push(m->a, &p->buf);
    *b = (struct plan_buf){
        .kind = PB_CONST, .name = str_dup(m->a, x->name), .dtype = t->dtype, .data = t->data, .first = UINT32_MAX};
    b->data_size = tensor_bytes(t);
    b->size = sym_const(&p->sym, b->data_size);
    b->content = hash_bytes(b->data, b->data_size);
    *out = p->buf.n - 1;
    return true;
}

/* Dispatches. */

static void note_lives(struct maker *m, const struct plan_dispatch *d)
{
    u32 at = m->p->dispatch.n - 1;
    for (u32 i = 0; i < d->n_buf; i++) {
        assert(d->buf[i] < m->p->buf.n);
        struct plan_buf *b = &m->p->buf.v[d->buf[i]];
        if (b->first == UINT32_MAX) b->first = at;
        b->last = at;
    }
}

static bool dispatch_buffers(struct maker *m, struct plan_dispatch *d, const struct kernel *k,
                             const struct region *r)
{
    struct plan *p = m->p;
    const struct task *t = m->c->task.v[r->task];
    d->n_buf = k->n_arg + k->n_temp;
    d->buf = arena_array(m->a, u32, d->n_buf);
    for (u32 i = 0; i < k->n_arg; i++) {
        const struct value *x = graph_value(&t->g, k->arg[i].v);
        value_id v = r->map_back[k->arg[i].v];
        if (x->is_const) {
            if (!const_buf(m, v, k->arg[i].pack, &d->buf[i])) return false;
        } else {
            d->buf[i] = arg_buf(m, r, &k->arg[i]);
        }
    }
    for (u32 i = 0; i < k->n_temp; i++) {
        struct plan_buf *b = arr_push(m->a, &p->buf);
        *b = (struct plan_buf){.kind = PB_TEMP, .name = S("scratch"), .first = UINT32_MAX};
        b->size = to_plan(m, k->temp[i]);
        d->buf[k->n_arg + i] = p->buf.n - 1;
    }
    note_lives(m, d);
    return true;
}

/* "name:rows->clast", "name:clast->joined" */
static void put_copy(struct buf *b, const struct cover *c, const struct region *r)
{
    buf_printf(b, "%.*s:%s->%s", STR_ARG(graph_value(c->g, r->in[0].v)->name),
               layout_name(r->in[0].layout),
               r->out[0].join ? "joined" : layout_name(r->out[0].layout));
}

static struct str node_name(const struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    return x->name.n ? x->name : graph_value(g, node_first_out(x))->name;
}

struct str plan_label(const struct cover *c, const struct region *r, struct arena *a)
{
    struct buf b = {0};
    for (u32 i = 0; i < r->n_nodes; i++) {
        if (i) buf_char(&b, '+');
        buf_str(&b, node_name(c->g, r->nodes[i]));
    }
    if (r->n_nodes == 0)
        put_copy(&b, c, r);
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

/* "Conv+LeakyRelu": without domains, and without views unless there is nothing else, because they
   cost nothing. */
static struct str region_ops(const struct cover *c, const struct region *r, struct arena *a)
{
    struct buf b = {0};
    for (u32 views = 0; views < 2 && !b.n; views++)
        for (u32 i = 0; i < r->n_nodes; i++) {
            struct str op = graph_node(c->g, r->nodes[i])->op, domain, name;
            if (!views && op_of(c->g, r->nodes[i])->props & OP_VIEW) continue;
            buf_printf(&b, "%s%.*s", b.n ? "+" : "", STR_ARG(str_cut(op, ':', &domain, &name) ? str_sub(name, 1, name.n) : op));
        }
    if (r->n_nodes == 0) buf_z(&b, "layout");
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

/* Names of the nodes with at least a sixteenth of the operations of the largest one: a convolution
   without its activation, both of two fused convolutions. The whole label if no operations are
   counted. */
static struct str region_layer(const struct cover *c, const struct region *r, const i64 *var, struct arena *a)
{
    struct buf b = {0};
    double most = 0;
    for (u32 i = 0; i < r->n_nodes; i++) most = fmax(most, op_flops(c->g, r->nodes[i], var));
    if (!(most > 0)) return plan_label(c, r, a);
    for (u32 i = 0; i < r->n_nodes; i++)
        if (op_flops(c->g, r->nodes[i], var) >= most / 16) buf_printf(&b, "%s%.*s", b.n ? "+" : "", STR_ARG(node_name(c->g, r->nodes[i])));
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

static void dispatch_sizes(struct maker *m, struct plan_dispatch *d, const struct kernel *k)
{
    d->n_param = k->n_param;
    d->param = arena_array(m->a, sym, k->n_param);
    for (u32 i = 0; i < k->n_param; i++) d->param[i] = to_plan(m, k->param[i]);
    d->n_grid = k->n_grid;
    d->grid = arena_array(m->a, struct plan_grid, k->n_grid);
    for (u32 i = 0; i < k->n_grid; i++)
        for (u32 x = 0; x < 3; x++)
            d->grid[i].extent[x] =
                x < k->grid[i].n ? to_plan(m, k->grid[i].extent[x]) : sym_const(&m->p->sym, 1);
    d->work = k->work ? to_plan(m, k->work) : sym_const(&m->p->sym, 0);
}

static double count_at(const struct graph *g, sym count, const i64 *var)
{
    i64 n;
    return sym_eval(g->sym, count, var, &n) && n > 0 ? (double)n : 0;
}

/* Operations as an expression: a number per output element, if that is the same at two different
   sizes. */
static sym dispatch_flops(struct maker *m, const struct task *t, const i64 *var)
{
    const struct graph *g = &t->g;
    sym count = shape_count(g->sym, &graph_value(g, g->output.v[0])->shape);
    i64 *other = arena_array(&m->scratch, i64, g->sym->var.n + 1);
    for (u32 v = 0; v < g->sym->var.n; v++) other[v] = var[v] == INT64_MIN ? 64 : 2 * var[v] + 32;
    double n1 = count_at(g, count, var), n2 = count_at(g, count, other);
    if (n1 <= 0 || n2 <= 0) return 0;
    double per = task_flops(t, var) / n1;
    i64 whole = (i64)(per + 0.5);
    if (whole <= 0 || task_flops(t, other) / n2 < 0.99 * per ||
        task_flops(t, other) / n2 > 1.01 * per)
        return 0;
    return sym_mul(&m->p->sym, to_plan(m, count), sym_const(&m->p->sym, whole));
}

/* The text of a kernel; kernels of one name are equal. */
static bool emit_kernel(struct maker *m, const struct kernel *k, bool is_measured, u32 *at)
{
    u64 *known = map_get(&m->texts, str_of(k->name));
    if (known) return m->text.v[*at = (u32)*known].is_alone |= is_measured, true;
    struct buf text = {0};
    if (m->env->see_kernel) m->env->see_kernel(m->env->user, &k->kir);
    bool ok = lang_render(&text, m->env->lang, &k->kir, m->env->caps, &m->scratch, m->e);
    if (ok) {
        *at = m->text.n;
        *arr_push(m->a, &m->text) = (struct plan_text){str_dup(m->a, buf_view(&text)), is_measured || m->env->separate, k->kir.as_written};
        map_put(&m->texts, str_dup(m->a, str_of(k->name)), *at);
    }
    buf_release(&text);
    return ok;
}

static bool add_dispatch(struct maker *m, const struct region *r, const struct task_cost *cost,
                         const i64 *var)
{
    const struct task *t = m->c->task.v[r->task];
    struct made_kernel x = {.task = t, .cost = cost, .dispatch = m->p->dispatch.n};
    struct buf text = {0};
    char hex[33];
    arr_push(m->a, &m->p->dispatch);
    struct plan_dispatch *d = &m->p->dispatch.v[x.dispatch];
    d->label = plan_label(m->c, r, m->a);
    d->ops = region_ops(m->c, r, m->a);
    d->layer = region_layer(m->c, r, var, m->a);
    if (!gen_kernel(&x.k, &m->scratch, &cost->best, t, m->env->caps, m->e))
        return err_prefix(m->e, "%.*s", STR_ARG(d->label));
    candidate_print(&text, &cost->best);
    d->candidate = str_dup(m->a, buf_view(&text));
    buf_release(&text);
    hash_hex(t->key, hex);
    d->task = str_dup(m->a, str_of(hex));
    d->device = str_of(m->env->device);
    d->seconds = cost->seconds;
    d->is_measured = cost->is_measured;
    d->flops = dispatch_flops(m, t, var);
    *arr_push(&m->scratch, &m->kernel) = x;
    return dispatch_buffers(m, d, &x.k, r);
}

/* Of all dispatches but calls. Those whose kernel was not measured may share its text with others. */
static bool emit_kernels(struct maker *m)
{
    struct gen_shared *x = arena_array(&m->scratch, struct gen_shared, m->kernel.n + 1);
    u32 n = 0;
    for (u32 i = 0; i < m->kernel.n && m->env->lang->shares; i++) {
        struct made_kernel *k = &m->kernel.v[i];
        if (!k->cost->is_measured) x[n++] = (struct gen_shared){&k->k, k->task, &k->cost->best};
    }
    if (!gen_share(x, n, &m->scratch, m->e)) return false;
    for (u32 i = 0; i < m->kernel.n; i++) {
        struct made_kernel *k = &m->kernel.v[i];
        struct plan_dispatch *d = &m->p->dispatch.v[k->dispatch];
        if (!emit_kernel(m, &k->k, k->cost->is_measured, &d->bin)) return err_prefix(m->e, "%.*s", STR_ARG(d->label));
        d->entry = str_dup(m->a, str_of(k->k.name));
        dispatch_sizes(m, d, &k->k);
    }
    return true;
}

/* Calls. */

static bool make(struct plan *p, const struct cover *c, const struct selection *s, const i64 *var, const struct plan_env *env, u32 depth,
                 struct arena *a, struct err *e);

/* Marks the variables of an expression. */
static void mark_vars(const struct symtab *t, sym s, bool *var)
{
    const struct sym_node *x = &t->node.v[s];
    if (!s || x->op == SYM_CONST) return;
    if (x->op == SYM_VAR) {
        var[x->a] = true;
        return;
    }
    mark_vars(t, x->a, var);
    mark_vars(t, x->b, var);
}

/* The variables that the plan needs to run. */
static bool *needed_vars(const struct plan *p, struct arena *a)
{
    bool *var = arena_array(a, bool, p->sym.var.n + 1);
    const struct symtab *t = &p->sym;
    for (u32 k = 0; k < p->buf.n; k++) mark_vars(t, p->buf.v[k].size, var);
    for (u32 k = 0; k < p->input.n + p->output.n; k++) {
        const struct plan_io *io = k < p->input.n ? &p->input.v[k] : &p->output.v[k - p->input.n];
        for (u32 d = 0; d < io->rank; d++) mark_vars(t, io->dim[d], var);
    }
    for (u32 k = 0; k < p->made.n; k++) mark_vars(t, p->made.v[k].expr, var), mark_vars(t, p->made.v[k].most, var);
    for (u32 i = 0; i < p->dispatch.n; i++) {
        const struct plan_dispatch *d = &p->dispatch.v[i];
        mark_vars(t, d->work, var);
        for (u32 k = 0; k < d->n_param; k++) mark_vars(t, d->param[k], var);
        for (u32 k = 0; k < d->n_grid; k++)
            for (u32 x = 0; x < 3; x++) mark_vars(t, d->grid[k].extent[x], var);
        const struct plan_call *c = d->call;
        if (!c) continue;
        mark_vars(t, c->trip_count, var);
        for (u32 k = 0; k < c->n_in; k++)
            for (u32 x = 0; x < c->in[k].rank; x++) mark_vars(t, c->in[k].dim[x], var);
        for (u32 b = 0; b < c->n_sub; b++)
            for (u32 k = 0; k < c->n_give[b]; k++) mark_vars(t, c->give[b][k].value, var);
    }
    return var;
}

/* The program of a body. Sizes that neither its inputs nor the body itself determine are passed by
   the call. */
static bool make_sub(struct maker *m, const struct node *x, const struct op_call *oc, u32 b, const i64 *var, struct plan_call *c)
{
    u32 at;
    const struct cover *body = cover_body(m->c, oc->body[b], &at);
    struct plan_env env = *m->env;
    struct plan *sub = c->sub[b] = arena_new(m->a, struct plan);
    env.outer = NULL, env.in_layout = env.out_layout = NULL;
    if (m->depth + 1 == PLAN_MAX_DEPTH) return err_set(m->e, ERR_UNSUPPORTED, "loops and branches are nested more than %d deep", PLAN_MAX_DEPTH);
    if (!make(sub, body, &m->s->body[at], var, &env, m->depth + 1, m->a, m->e)) return false;
    const bool *needed = needed_vars(sub, &m->scratch);
    struct plan_give *give = c->give[b] = arena_array(m->a, struct plan_give, sub->sym.var.n + 1);
    for (u32 v = 0; v < sub->sym.var.n; v++) {
        bool is_made = false;
        for (u32 k = 0; k < sub->made.n; k++) is_made |= sub->made.v[k].var == v;
        if (!needed[v] || is_made || op_call_varies(x, sub->sym.var.v[v])) continue;
        *arr_push(m->a, &sub->given) = v;
        give[c->n_give[b]++] = (struct plan_give){v, sym_var(&m->p->sym, sub->sym.var.v[v])};
    }
    return plan_verify(sub, m->e);
}

/* A buffer of its own; held by the call if its size is only known afterwards, or if iterations
   double-buffer it. */
static u32 result_buf(struct maker *m, const struct op_call *oc, u32 k, value_id v)
{
    const struct value *x = graph_value(m->c->g, v);
    bool later = oc->is_loop && k < oc->n_carried;
    u32 buf = form_buf(m, v, x->layout);
    for (i64 i = 0; i < oc->n_size; i++) later |= oc->size[2 * i] == k;
    if (later && m->p->buf.v[buf].kind == PB_TEMP) m->p->buf.v[buf].kind = PB_HELD;
    return buf;
}

static bool call_in(struct maker *m, value_id v, struct plan_call_in *in)
{
    const struct value *x = graph_value(m->c->g, v);
    in->rank = x->shape.rank;
    for (u32 d = 0; d < in->rank; d++) in->dim[d] = to_plan(m, x->shape.dim[d]);
    if (x->is_const) return const_buf(m, v, NULL, &in->buf);
    in->buf = form_buf(m, v, LAYOUT_ROWS);
    return true;
}

static bool fill_call(struct maker *m, node_id n, const i64 *var, struct plan_call *c)
{
    const struct node *x = graph_node(m->c->g, n);
    struct op_call oc;
    struct plan_call_in cond = {.buf = UINT32_MAX};
    if (!op_call_get(m->c->g, x, &oc)) return err_set(m->e, ERR_FAILED, "the bodies do not match the call");
    *c = (struct plan_call){.is_loop = oc.is_loop, .is_conditional = oc.is_conditional, .n_carried = oc.n_carried, .n_sub = oc.n_body};
    if (x->in.v[0] && !call_in(m, x->in.v[0], &cond)) return false;
    c->cond = cond.buf;
    c->trip_count = oc.is_loop ? to_plan(m, oc.trip_count) : 0;
    c->n_in = x->in.n - 1;
    c->in = arena_array(m->a, struct plan_call_in, c->n_in + 1);
    for (u32 k = 0; k < c->n_in; k++)
        if (!call_in(m, x->in.v[k + 1], &c->in[k])) return false;
    c->n_out = oc.n_out;
    c->out = arena_array(m->a, u32, c->n_out + 1);
    for (u32 k = 0; k < c->n_out; k++) c->out[k] = k < x->out.n && x->out.v[k] ? result_buf(m, &oc, k, x->out.v[k]) : UINT32_MAX;
    bool sizes = x->out.n > oc.n_out && x->out.v[oc.n_out];
    c->sizes = sizes ? form_buf(m, x->out.v[oc.n_out], LAYOUT_ROWS) : UINT32_MAX;
    c->n_size = sizes ? (u32)oc.n_size : 0;
    c->size = arena_array(m->a, u32, 2 * oc.n_size + 1);
    for (u32 k = 0; k < 2 * c->n_size; k++) c->size[k] = (u32)oc.size[k];
    for (u32 b = 0; b < c->n_sub; b++)
        if (!make_sub(m, x, &oc, b, var, c)) return false;
    return true;
}

static bool add_call(struct maker *m, const struct region *r, const struct task_cost *cost, const i64 *var)
{
    struct plan_call *c = arena_new(m->a, struct plan_call);
    struct plan_dispatch d = {.call = c};
    d.label = plan_label(m->c, r, m->a);
    d.layer = d.label;
    d.ops = region_ops(m->c, r, m->a);
    d.entry = S("call"), d.candidate = S("call");
    d.device = str_of(m->env->device);
    d.seconds = cost->seconds;
    d.work = sym_const(&m->p->sym, 0);
    if (!fill_call(m, r->nodes[0], var, c)) return err_prefix(m->e, "%.*s", STR_ARG(d.label));
    plan_call_buffers(&d, m->a);
    *arr_push(m->a, &m->p->dispatch) = d;
    note_lives(m, &d);
    return true;
}

static bool build_binaries(struct maker *m)
{
    struct str *out = arena_array(m->a, struct str, m->text.n + 1), *text = arena_array(m->a, struct str, m->text.n + 1);
    u32 *unit = arena_array(m->a, u32, m->text.n + 1), n = plan_units(text, unit, m->text.v, m->text.n, m->env->lang, m->a);
    if (!m->env->build(m->env->build_user, text, n, out, m->a, m->e)) return false;
    for (u32 i = 0; i < m->kernel.n; i++) {
        struct plan_dispatch *d = &m->p->dispatch.v[m->kernel.v[i].dispatch];
        d->bin = unit[d->bin];
    }
    for (u32 i = 0; i < n; i++) {
        struct plan_bin *b = arr_push(m->a, &m->p->bin);
        *b = (struct plan_bin){.lang = str_of(lang_runs_as(m->env->lang)), .code = out[i]};
        b->content = hash_bytes(out[i].p, out[i].n);
    }
    return true;
}

/* Data-dependent sizes. */

/* The value is available after the last dispatch that writes it. Its buffer lives until it is read. */
static bool made_of_buffer(struct maker *m, const struct made_size *s, const u32 *phase, const u32 *first_of, struct plan_made *out)
{
    struct plan *p = m->p;
    const struct value *x = graph_value(m->c->g, s->v);
    if (x->data) {
        i64 c = made_size_take(s, elem_i64(x->data->dtype, x->data->data, s->at));
        out->expr = sym_const(&p->sym, c);
        return c >= 0 || err_set(m->e, ERR_INPUT, "element %lld of constant '%.*s' is %lld, but %.*s needs it to be at least 0", (long long)s->at,
                                 STR_ARG(x->name), (long long)elem_i64(x->data->dtype, x->data->data, s->at), STR_ARG(s->need.origin));
    }
    out->buf = form_buf(m, s->v, x->layout);
    out->dtype = x->dtype;
    out->elem = s->at;
    out->take = (enum plan_take)s->take;
    if (!x->producer) return true;
    out->at = first_of[phase[x->producer] + 1];
    struct plan_buf *b = &p->buf.v[out->buf];
    if (b->last + 1 < out->at) b->last = out->at - 1;
    return true;
}

/* Unneeded sizes may depend on unavailable ones. */
static bool is_made_known(const struct maker *m, const u32 *known, sym s) { return plan_sym_at(m->p, known, s) != UINT32_MAX; }

static void push_made(struct maker *m, struct plan_made x)
{
    struct plan *p = m->p;
    arr_push(m->a, &p->made);
    u32 i = p->made.n - 1;
    for (; i > 0 && p->made.v[i - 1].at > x.at; i--) p->made.v[i] = p->made.v[i - 1];
    p->made.v[i] = x;
}

static struct sym_fact plan_need(struct maker *m, const struct sym_fact *f)
{
    struct sym_fact to = {.kind = f->kind, .origin = str_dup(m->a, f->origin)};
    if (f->a) to.a = to_plan(m, f->a), to.b = to_plan(m, f->b);
    return to;
}

/* first_of: per phase, its first dispatch. */
static bool plan_made_sizes(struct maker *m, const u32 *phase, const u32 *first_of)
{
    const struct graph *g = m->c->g;
    struct plan *p = m->p;
    for (u32 k = 0; k < g->made.n; k++) { /* those read from values come first */
        const struct made_size *s = &g->made.v[k];
        sym var = sym_var(&p->sym, g->sym->var.v[s->var]);
        struct plan_made x = {.var = p->sym.node.v[var].a, .need = plan_need(m, &s->need)};
        u32 *known = plan_known_at(p, &m->scratch);
        if (s->v && !made_of_buffer(m, s, phase, first_of, &x)) return false;
        if (s->expr) {
            x.expr = to_plan(m, s->expr);
            if (!is_made_known(m, known, x.expr)) continue;
            x.at = plan_sym_at(p, known, x.expr);
        }
        push_made(m, x);
    }
    return true;
}

/* Upper bounds that are known before the size is. */
static void plan_bounds(struct maker *m)
{
    const struct graph *g = m->c->g;
    struct plan *p = m->p;
    u32 *known = plan_known_at(p, &m->scratch);
    for (u32 k = 0; k < p->made.n; k++) {
        struct plan_made *x = &p->made.v[k];
        for (u32 i = 0; i < g->made.n; i++) {
            const struct made_size *s = &g->made.v[i];
            if (!s->most || !str_eq(g->sym->var.v[s->var], p->sym.var.v[x->var])) continue;
            sym most = to_plan(m, s->most);
            u32 at = plan_sym_at(p, known, most);
            if (at < x->at || at == 0) x->most = most;
        }
    }
}

static bool is_in_fact(const struct symtab *t, u32 var)
{
    for (u32 k = 0; k < t->fact.n; k++)
        if (sym_has_var(t, t->fact.v[k].a, var) || sym_has_var(t, t->fact.v[k].b, var)) return true;
    return false;
}

/* Binds variables that are neither used nor bound: data-dependent sizes that no node needs, nor, without any other such size, any fact. */
static void drop_unknown(struct maker *m)
{
    struct plan *p = m->p;
    u32 *known = plan_known_at(p, &m->scratch);
    const bool *needed = needed_vars(p, &m->scratch);
    bool may_come_late = m->c->g->made.n || plan_has_calls(p);
    for (u32 v = 0; v < p->sym.var.n; v++) {
        if (known[v] != UINT32_MAX || (needed[v] && m->depth)) continue; /* given by a call */
        if (!may_come_late && !m->depth && (needed[v] || is_in_fact(&p->sym, v))) continue; /* plan_verify names it */
        push_made(m, (struct plan_made){.var = v, .at = needed[v] ? p->dispatch.n : 0, .expr = sym_const(&p->sym, 0)});
    }
}

/* Adds all variables of the model first, in its order. */
static void plan_vars(struct maker *m, const i64 *var)
{
    const struct symtab *s = m->c->g->sym;
    for (u32 i = 0; i < s->var.n; i++) {
        sym_var(&m->p->sym, s->var.v[i]);
        (arr_push(m->a, &m->p->var))->optimised_for = var[i];
    }
}

static void plan_facts(struct maker *m)
{
    const struct symtab *s = m->c->g->sym;
    for (u32 i = 0; i < s->fact.n; i++) {
        const struct sym_fact *f = &s->fact.v[i];
        sym a = to_plan(m, f->a), b = to_plan(m, f->b);
        sym_fact_note(&m->p->sym, f->kind, a, b, f->origin);
    }
}

static void note_joins(struct maker *m, const struct selection *s)
{
    m->is_joined = arena_array(&m->scratch, bool, m->c->join.n + 1);
    for (u32 i = 0; i < s->choice.n; i++) {
        const struct region *r = &m->c->region.v[s->choice.v[i].region];
        if (r->task == NO_TASK && !r->out[0].join) m->is_joined[r->in[0].join - 1] = true;
    }
}

static bool fill(struct maker *m, const struct selection *s, const i64 *var)
{
    struct plan *p = m->p;
    const struct graph *g = m->c->g;
    struct buf caps = {0}, isa = {0};
    plan_vars(m, var);
    plan_facts(m);
    p->model = str_dup(m->a, m->env->model);
    p->fingerprint = str_dup(m->a, m->env->fingerprint);
    struct caps limits = *m->env->caps;
    limits.isa = (struct isa){0}; /* stored separately */
    caps_print(&caps, &limits);
    p->caps = str_dup(m->a, buf_view(&caps));
    isa_print_all(&isa, m->env->caps->isa);
    p->isa = str_dup(m->a, buf_view(&isa));
    buf_release(&caps);
    buf_release(&isa);
    for (u32 k = 0; k < g->input.n; k++) plan_add_io(m, g->input.v[k], k, PB_INPUT);
    for (u32 k = 0; k < g->output.n; k++) plan_add_io(m, g->output.v[k], k, PB_OUTPUT);
    note_joins(m, s);
    u32 *phase = graph_phases(g, &m->scratch), *first_of = arena_array(&m->scratch, u32, g->node.n + 2), n_phases = 0;
    for (u32 i = 0; i < s->choice.n; i++) {
        const struct region *r = &m->c->region.v[s->choice.v[i].region];
        if (r->task == NO_TASK) continue;
        u32 now = phase[graph_value(g, r->out[0].v)->producer];
        while (n_phases < now) first_of[++n_phases] = p->dispatch.n;
        bool is_call = task_is_call(m->c->task.v[r->task]);
        if (!mem_check(m->e, "generating kernels", S("")) ||
            !(is_call ? add_call(m, r, &s->cost[r->task], var) : add_dispatch(m, r, &s->cost[r->task], var)))
            return false;
    }
    while (n_phases <= g->node.n) first_of[++n_phases] = p->dispatch.n;
    if (!emit_kernels(m)) return false;
    if (!plan_made_sizes(m, phase, first_of)) return false;
    if (!build_binaries(m)) return false;
    for (u32 i = 0; i < p->buf.n; i++)
        if (p->buf.v[i].first == UINT32_MAX) p->buf.v[i].first = 0;
    if (g->made.n) plan_bounds(m);
    drop_unknown(m);
    plan_find_values(p);
    return m->depth || plan_verify(p, m->e); /* a body is verified with its given sizes */
}

static bool make(struct plan *p, const struct cover *c, const struct selection *s, const i64 *var, const struct plan_env *env, u32 depth,
                 struct arena *a, struct err *e)
{
    *p = (struct plan){.arena = a};
    symtab_init(&p->sym, a);
    struct maker m = {.p = p, .c = c, .env = env, .a = a, .s = s, .depth = depth, .e = e};
    map_init(&m.texts, a);
    map_init(&m.consts, a);
    map_init(&m.forms, a);
    bool ok = fill(&m, s, var);
    arena_release(&m.scratch);
    return ok;
}

bool plan_make(struct plan *p, const struct cover *c, const struct selection *s, const i64 *var, const struct plan_env *env, struct arena *a,
               struct err *e)
{
    assert(env->lang && env->caps && env->build);
    return make(p, c, s, var, env, 0, a, e);
}

bool plan_link_variants(struct plan *p, const char *const *name, const bool *is_here, u32 n, u32 *best, struct err *e)
{
    struct isa s, most = {0};
    bool found = false;
    *best = 0;
    for (u32 i = 0; i < n; i++) {
        for (u32 k = 0; k < i; k++)
            if (str_eq(p[i].isa, p[k].isa)) return err_set(e, ERR_USAGE, "'%s' and '%s' are the same instruction set", name[k], name[i]);
        if (i) p[i - 1].also = &p[i];
        if (!is_here[i] || !isa_parse(&s, p[i].isa, e) || (found && isa_count(s) <= isa_count(most))) continue;
        found = true;
        *best = i;
        most = s;
    }
    return true;
}
