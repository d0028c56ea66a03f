// SPDX-License-Identifier: Apache-2.0
//
// The selector's reasons as JSON: for each dispatch, the regions that could have produced the same
// value, their costs and the evidence. Includes concatenations in place, although nothing is
// dispatched for them. Read by `quern explain`; stored in the artifact.
#include "plan/plan.h"

/* "clast", "clast in cat_3" */
static void put_form(struct buf *b, const struct cover *c, struct form f)
{
    struct buf text = {0};
    buf_z(&text, layout_name(f.layout));
    if (f.join)
        buf_printf(&text, " in %.*s", STR_ARG(graph_value(c->g, c->join.v[f.join - 1].v)->name));
    buf_json_str(b, buf_view(&text));
    buf_release(&text);
}

static void put_cost(struct buf *b, const struct task_cost *t)
{
    if (!t->ok) {
        buf_z(b, "\"seconds\":null}");
        return;
    }
    buf_z(b, "\"seconds\":");
    buf_f64(b, t->seconds);
    buf_printf(b, ",\"measured\":%s,\"trials\":%u,\"kernel\":", t->is_measured ? "true" : "false",
               t->n_trials);
    struct buf text = {0};
    if (t->best.gen) candidate_print(&text, &t->best);
    else buf_z(&text, "call");
    buf_json_str(b, buf_view(&text));
    buf_release(&text);
    if (t->proof.n) buf_printf(b, ",\"proof\":%.*s", STR_ARG(t->proof));
    buf_char(b, '}');
}

static void put_region(struct buf *b, const struct cover *c, const struct selection *s,
                       const struct region *r)
{
    buf_z(b, "{\"nodes\":[");
    for (u32 i = 0; i < r->n_nodes; i++) {
        const struct node *x = graph_node(c->g, r->nodes[i]);
        if (i) buf_char(b, ',');
        buf_json_str(b, x->name.n ? x->name : graph_value(c->g, node_first_out(x))->name);
    }
    buf_z(b, "],\"ops\":[");
    for (u32 i = 0; i < r->n_nodes; i++) {
        if (i) buf_char(b, ',');
        buf_json_str(b, graph_node(c->g, r->nodes[i])->op);
    }
    buf_z(b, "],\"in\":[");
    for (u32 i = 0; i < r->n_in; i++) {
        if (i) buf_char(b, ',');
        put_form(b, c, r->in[i]);
    }
    buf_z(b, "],\"out\":");
    put_form(b, c, r->out[0]);
    buf_char(b, ',');
    if (r->task == NO_TASK) buf_z(b, "\"seconds\":0,\"joined\":true}");
    else put_cost(b, &s->cost[r->task]);
}

/* Per value: the regions that produce it in any form, each once. */
static struct value_list *regions_by_value(const struct cover *c, struct arena *a)
{
    struct value_list *by = arena_array(a, struct value_list, c->g->value.n);
    for (u32 r = 0; r < c->region.n; r++)
        for (u32 i = 0; i < c->region.v[r].n_out; i++) {
            struct value_list *l = &by[c->region.v[r].out[i].v];
            if (!l->n || l->v[l->n - 1] != r) *(arr_push(a, l)) = r;
        }
    return by;
}

static void put_unfused(struct buf *b, const struct cover *c, const struct selection *s)
{
    buf_z(b, ",\n\"unfused\":{\"seconds\":");
    buf_f64(b, s->unfused_seconds);
    buf_z(b, ",\"dispatches\":[");
    for (u32 i = 0; i < s->unfused.n; i++) {
        buf_z(b, i ? ",\n" : "\n");
        put_region(b, c, s, &c->region.v[s->unfused.v[i].region]);
    }
    buf_z(b, "\n]}");
}

void plan_explain(struct buf *b, const struct cover *c, const struct selection *s, const i64 *var)
{
    buf_printf(b, "{\"exact\":%s,\"states\":%llu,\"seconds\":", s->is_exact ? "true" : "false",
               (unsigned long long)s->n_states);
    buf_f64(b, s->seconds);
    buf_z(b, ",\"sizes\":{");
    for (u32 i = 0; i < c->g->sym->var.n; i++) {
        if (i) buf_char(b, ',');
        buf_json_str(b, c->g->sym->var.v[i]);
        buf_printf(b, ":%lld", (long long)var[i]);
    }
    struct arena a = {0};
    const struct value_list *by = regions_by_value(c, &a);
    buf_z(b, "},\"dispatches\":[");
    for (u32 i = 0; i < s->choice.n; i++) {
        const struct region *chosen = &c->region.v[s->choice.v[i].region];
        buf_z(b, i ? ",\n{\"chosen\":" : "\n{\"chosen\":");
        put_region(b, c, s, chosen);
        buf_z(b, ",\"alternatives\":[");
        bool first = true;
        for (u32 j = 0; j < by[chosen->out[0].v].n; j++) {
            u32 r = by[chosen->out[0].v].v[j];
            if (r == s->choice.v[i].region) continue;
            if (!first) buf_char(b, ',');
            first = false;
            put_region(b, c, s, &c->region.v[r]);
        }
        buf_z(b, "]}");
    }
    buf_z(b, "\n]");
    arena_release(&a);
    if (s->unfused.n) put_unfused(b, c, s);
    buf_char(b, '}');
}
