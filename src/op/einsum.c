// SPDX-License-Identifier: Apache-2.0
//
// Einsum: products of any number of operands summed over the labels that the result lacks; repeated
// labels (diagonals) and ellipses (broadcast axes) included. The textbook case of two operands that
// is one batched matrix product becomes Transpose, Reshape and MatMul; everything else is
// quern::Einsum, a primitive with one loop per summed label.
//
// Labels are numbered: the ellipsis' axes first, counted from the front, then letters in order of
// appearance.
#include "op/op.h"

enum { MAX_OPERANDS = 8, MAX_LABELS = 32 };

struct einsum {
    u32 n;                            /* operands */
    u8 label[MAX_OPERANDS][MAX_RANK]; /* of each axis of each operand */
    u32 rank[MAX_OPERANDS];
    u8 out[MAX_RANK];
    u32 out_rank;
    u32 n_labels;
    sym dim[MAX_LABELS];
};

/* Parsing. */

struct parser {
    struct graph *g;
    node_id n;
    struct err *e;
    struct einsum *s;
    char letter[MAX_LABELS]; /* of each label, 0: of the ellipsis */
    u32 n_dots;              /* axes of the ellipsis */
};

static bool bad(struct parser *p, const char *what)
{
    struct str eq = attr_str(graph_node(p->g, p->n), "equation", "");
    return op_invalid(p->e, p->g, p->n, "%s in equation '%.*s'", what, STR_ARG(eq));
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static bool next_is_dots(struct str t) { return str_starts(t, S("...")); }

static u32 count_letters(struct str t)
{
    u32 n = 0;
    for (i64 i = 0; i < t.n; i++) n += is_letter(t.p[i]);
    return n;
}

static struct str without_spaces(struct arena *a, struct str t)
{
    char *p = arena_alloc(a, t.n + 1);
    i64 n = 0;
    for (i64 i = 0; i < t.n; i++)
        if (t.p[i] != ' ') p[n++] = t.p[i];
    return (struct str){p, n};
}

static bool find_label(struct parser *p, char c, u32 *out)
{
    for (*out = p->n_dots; *out < p->s->n_labels; ++*out)
        if (p->letter[*out] == c) return true;
    if (p->s->n_labels == MAX_LABELS) return bad(p, "too many labels");
    p->letter[p->s->n_labels++] = c;
    return true;
}

/* Labels of one term into out[rank]; the ellipsis has `dots` axes, the last ones of all. */
static bool parse_term(struct parser *p, struct str t, u32 dots, u8 *out, u32 *rank)
{
    bool seen = false;
    *rank = 0;
    while (t.n > 0) {
        u32 label = p->n_dots - dots, count = 1;
        if (next_is_dots(t)) {
            if (seen) return bad(p, "two ellipses");
            seen = true;
            count = dots;
        } else if (!is_letter(t.p[0])) {
            return bad(p, "bad character");
        } else if (!find_label(p, t.p[0], &label)) {
            return false;
        }
        t = str_sub(t, next_is_dots(t) ? 3 : 1, t.n);
        for (u32 i = 0; i < count; i++) {
            if (*rank == MAX_RANK) return bad(p, "too many axes");
            out[(*rank)++] = (u8)(label + i);
        }
    }
    return true;
}

static bool join_dim(struct parser *p, u32 label, sym d)
{
    sym *have = &p->s->dim[label];
    sym one = sym_const(p->g->sym, 1);
    if (!*have || *have == one) *have = d;
    return *have == d || d == one || bad(p, "sizes of a label differ");
}

static bool parse_operand(struct parser *p, u32 k, struct str term)
{
    struct einsum *s = p->s;
    const struct shape *x = &graph_value(p->g, graph_node(p->g, p->n)->in.v[k])->shape;
    u32 letters = count_letters(term), dots = x->rank - letters;
    if (letters > x->rank || (dots && letters == (u32)term.n))
        return bad(p, "wrong number of labels");
    if (!parse_term(p, term, dots, s->label[k], &s->rank[k])) return false;
    for (u32 a = 0; a < s->rank[k]; a++)
        if (!join_dim(p, s->label[k][a], x->dim[a])) return false;
    return true;
}

static u32 count_label(const struct einsum *s, u32 label)
{
    u32 n = 0;
    for (u32 k = 0; k < s->n; k++)
        for (u32 a = 0; a < s->rank[k]; a++) n += s->label[k][a] == label;
    return n;
}

/* Without "->": the ellipsis, then the letters that occur once, in alphabetical order. */
static bool implicit_result(struct parser *p)
{
    struct einsum *s = p->s;
    for (u32 i = 0; i < p->n_dots; i++) s->out[s->out_rank++] = (u8)i;
    for (int c = 'A'; c <= 'z'; c++)
        for (u32 l = p->n_dots; l < s->n_labels; l++) {
            if (p->letter[l] != c || count_label(s, l) != 1) continue;
            if (s->out_rank == MAX_RANK) return bad(p, "too many axes");
            s->out[s->out_rank++] = (u8)l;
        }
    return true;
}

static bool explicit_result(struct parser *p, struct str term)
{
    struct einsum *s = p->s;
    u32 known = s->n_labels;
    if (!parse_term(p, term, p->n_dots, s->out, &s->out_rank)) return false;
    for (u32 a = 0; a < s->out_rank; a++)
        for (u32 b = 0; b < a; b++)
            if (s->out[a] == s->out[b]) return bad(p, "label twice in the result");
    return s->n_labels == known || bad(p, "unknown label in the result");
}

static bool parse(struct graph *g, node_id n, struct einsum *s, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct parser p = {.g = g, .n = n, .e = e, .s = s};
    struct str text = without_spaces(g->arena, attr_str(nd, "equation", "")), rest, left = text,
               right, term;
    *s = (struct einsum){.n = nd->in.n};
    if (nd->in.n > MAX_OPERANDS) return op_unsupported(e, g, n, "%u operands", nd->in.n);
    for (u32 k = 0; k < nd->in.n; k++)
        if (!nd->in.v[k]) return op_invalid(e, g, n, "operand %u is missing", k);
    bool arrow = str_cut(text, '-', &left, &right);
    if (arrow && (right.n == 0 || right.p[0] != '>')) return bad(&p, "bad character");
    left = arrow ? left : text;
    rest = left;
    for (u32 k = 0; k < s->n; k++) { /* maximal number of axes of the ellipsis */
        bool more = str_cut(rest, ',', &term, &rest);
        if (more != (k + 1 < s->n)) return bad(&p, "wrong number of operands");
        u32 rank = graph_value(g, nd->in.v[k])->shape.rank, letters = count_letters(term);
        if (letters < rank && rank - letters > p.n_dots) p.n_dots = rank - letters;
    }
    s->n_labels = p.n_dots;
    for (u32 k = 0; k < s->n; k++) {
        term = left;
        str_cut(left, ',', &term, &left);
        if (!parse_operand(&p, k, term)) return false;
    }
    return arrow ? explicit_result(&p, str_sub(right, 1, right.n)) : implicit_result(&p);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape to = {.known = true};
    struct einsum s;
    if (!parse(g, n, &s, e)) return false;
    enum dtype t = graph_value(g, nd->in.v[0])->dtype;
    for (u32 k = 1; k < s.n; k++)
        if (graph_value(g, nd->in.v[k])->dtype != t)
            return op_invalid(e, g, n, "operands of different types");
    if (t == DT_BOOL) return op_invalid(e, g, n, "type bool");
    to.rank = s.out_rank;
    for (u32 a = 0; a < s.out_rank; a++) to.dim[a] = s.dim[s.out[a]];
    op_set_out(g, n, 0, t, &to);
    return true;
}

/* One matrix product. Labels fall into batch (both operands and result), m and n (one operand and
   result) and k (both operands, not the result). */

struct roles {
    u32 n_batch, n_m, n_n, n_k;
    u8 batch[MAX_LABELS], m[MAX_LABELS], n[MAX_LABELS], k[MAX_LABELS];
};

static bool has_label(const u8 *v, u32 n, u32 label, u32 *times)
{
    *times = 0;
    for (u32 i = 0; i < n; i++) *times += v[i] == label;
    return *times > 0;
}

/* false: not one matrix product of operands without broadcasting. */
static bool find_roles(const struct graph *g, const struct node *n, const struct einsum *s,
                       struct roles *r)
{
    *r = (struct roles){0};
    if (s->n != 2) return false;
    for (u32 k = 0; k < 2; k++)
        for (u32 a = 0; a < s->rank[k]; a++)
            if (graph_value(g, n->in.v[k])->shape.dim[a] != s->dim[s->label[k][a]]) return false;
    for (u32 l = 0; l < s->n_labels; l++) {
        u32 ta, tb, to;
        bool a = has_label(s->label[0], s->rank[0], l, &ta),
             b = has_label(s->label[1], s->rank[1], l, &tb);
        bool o = has_label(s->out, s->out_rank, l, &to);
        if (ta > 1 || tb > 1 || (!o && !(a && b))) return false;
        if (!o) r->k[r->n_k++] = (u8)l;
        else if (a && b) r->batch[r->n_batch++] = (u8)l;
        else if (a) r->m[r->n_m++] = (u8)l;
        else r->n[r->n_n++] = (u8)l;
    }
    return r->n_k > 0 && dtype_is_float(graph_value(g, n->in.v[0])->dtype);
}

static sym product(struct graph *g, const struct einsum *s, const u8 *v, u32 n)
{
    sym d = sym_const(g->sym, 1);
    for (u32 i = 0; i < n; i++) d = sym_mul(g->sym, d, s->dim[v[i]]);
    return d;
}

static value_id reshaped(struct graph *g, node_id n, value_id v, const sym *dim, i64 rank,
                         value_id out)
{
    out = op_node(g, n, "quern::Reshape", 1, &v, out);
    op_set_syms(g, graph_value(g, out)->producer, "shape", dim, rank);
    return out;
}

/* v, whose axes have the labels from[], with its axes in the order of to[]. */
static value_id transposed(struct graph *g, node_id n, value_id v, const u8 *from, const u8 *to,
                           u32 rank, value_id out)
{
    i64 perm[MAX_RANK] = {0};
    for (u32 a = 0; a < rank; a++)
        for (u32 b = 0; b < rank; b++)
            if (from[b] == to[a]) perm[a] = b;
    out = op_node(g, n, "Transpose", 1, &v, out);
    attr_set_ints(g, graph_value(g, out)->producer, "perm", perm, rank);
    return out;
}

static u32 append(u8 *to, u32 at, const u8 *from, u32 n)
{
    for (u32 i = 0; i < n; i++) to[at++] = from[i];
    return at;
}

static void expand_matmul(struct graph *g, node_id n, const struct einsum *s, const struct roles *r)
{
    value_id in[2] = {graph_node(g, n)->in.v[0], graph_node(g, n)->in.v[1]},
             out = graph_node(g, n)->out.v[0];
    u8 order[MAX_LABELS];
    sym b = product(g, s, r->batch, r->n_batch), m = product(g, s, r->m, r->n_m),
        k = product(g, s, r->k, r->n_k);
    sym c = product(g, s, r->n, r->n_n), dim[MAX_RANK];
    append(order, append(order, append(order, 0, r->batch, r->n_batch), r->m, r->n_m), r->k,
           r->n_k);
    in[0] = transposed(g, n, in[0], s->label[0], order, s->rank[0], 0);
    in[0] = reshaped(g, n, in[0], (sym[]){b, m, k}, 3, 0);
    append(order, append(order, append(order, 0, r->batch, r->n_batch), r->k, r->n_k), r->n,
           r->n_n);
    in[1] = transposed(g, n, in[1], s->label[1], order, s->rank[1], 0);
    in[1] = reshaped(g, n, in[1], (sym[]){b, k, c}, 3, 0);
    value_id v = op_node(g, n, "MatMul", 2, in, 0);
    append(order, append(order, append(order, 0, r->batch, r->n_batch), r->m, r->n_m), r->n,
           r->n_n);
    for (u32 a = 0; a < s->out_rank; a++) dim[a] = s->dim[order[a]];
    v = reshaped(g, n, v, dim, s->out_rank, 0);
    transposed(g, n, v, order, s->out, s->out_rank, out);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    struct einsum s;
    struct roles r;
    if (!parse(g, n, &s, e)) return false;
    if (find_roles(g, graph_node(g, n), &s, &r)) {
        expand_matmul(g, n, &s, &r);
        return true;
    }
    struct str eq = attr_str(graph_node(g, n), "equation", "");
    attr_set_str(g, op_replace(g, n, "quern::Einsum", s.n), "equation", eq);
    return true;
}

/* quern::Einsum. */

/* Parsing a clone does not write to shared data: it only creates sizes in the shared table. */
static void parse_again(const struct graph *g, const struct node *n, struct einsum *s)
{
    struct graph view = *g;
    struct err e = {0};
    bool ok = parse(&view, graph_value(g, n->out.v[0])->producer, s, &e);
    assert(ok), (void)ok;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct tensor *out = v->out[0];
    struct einsum s;
    parse_again(v->g, v->n, &s);
    i64 dim[MAX_LABELS], idx[MAX_LABELS] = {0}, at[MAX_RANK], total = 1;
    for (u32 l = 0; l < s.n_labels; l++) dim[l] = 1;
    for (u32 k = 0; k < s.n; k++)
        for (u32 a = 0; a < s.rank[k]; a++)
            if (v->in[k]->dim[a] != 1) dim[s.label[k][a]] = v->in[k]->dim[a];
    for (u32 l = 0; l < s.n_labels; l++) total *= dim[l];
    double *sum = op_eval_array(v, tensor_count(out), sizeof *sum, e);
    if (!sum) return false;
    for (i64 i = 0; i < total; i++, op_next(s.n_labels, dim, idx)) {
        double x = 1;
        for (u32 k = 0; k < s.n; k++) {
            const struct tensor *t = v->in[k];
            for (u32 a = 0; a < s.rank[k]; a++) at[a] = t->dim[a] == 1 ? 0 : idx[s.label[k][a]];
            x *= elem_f64(t->dtype, t->data, op_flat(t->rank, t->dim, at));
        }
        for (u32 a = 0; a < s.out_rank; a++) at[a] = idx[s.out[a]];
        sum[op_flat(out->rank, out->dim, at)] += x;
    }
    for (i64 i = 0; i < tensor_count(out); i++) elem_set_f64(out->dtype, out->data, i, sum[i]);
    return true;
}

static kval operands_product(struct emit *m, const struct node *n, const struct einsum *s,
                             const kval *label)
{
    kval x = 0;
    for (u32 k = 0; k < s->n; k++) {
        const struct shape *shape = &graph_value(m->g, n->in.v[k])->shape;
        kval at[MAX_RANK];
        i64 c;
        for (u32 a = 0; a < s->rank[k]; a++) {
            bool one = sym_is_const(m->g->sym, shape->dim[a], &c) && c == 1;
            at[a] = one ? kir_int(m->k, 0) : label[s->label[k][a]];
        }
        kval v = emit_value(m, n->in.v[k], at);
        x = x ? kir_bin(m->k, KI_MUL, x, v) : v;
    }
    return x;
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct einsum s;
    kval label[MAX_LABELS] = {0}, zero = kir_int(k, 0);
    u32 lanes = 1, depth = 0;
    enum dtype dt = graph_value(m->g, n->out.v[0])->dtype;
    enum dtype t = m->acc_f64 && dtype_is_float(dt) ? DT_F64 : emit_type(dt);
    parse_again(m->g, n, &s);
    for (u32 a = 0; a < s.out_rank; a++) {
        label[s.out[a]] = idx[a];
        lanes = kir_lanes(k, idx[a]) > lanes ? kir_lanes(k, idx[a]) : lanes;
    }
    kval sum = kir_alloc(k, KS_REG, t, lanes, kir_int(k, 1));
    kir_store(k, sum, zero, kir_splat(k, kir_cast(k, t, emit_zero(m, dt)), lanes));
    for (u32 l = 0; l < s.n_labels; l++)
        if (!label[l]) {
            label[l] = kir_loop(k, KL_SERIAL, zero, emit_size(m, s.dim[l]), 1);
            depth++;
        }
    kval x = kir_splat(k, kir_cast(k, t, operands_product(m, n, &s, label)), lanes);
    kir_store(k, sum, zero, kir_bin(k, KI_ADD, kir_load(k, sum, zero), x));
    while (depth--) kir_end(k);
    return kir_cast(k, emit_type(dt), kir_load(k, sum, zero));
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    struct einsum s;
    double count = (double)n->in.n;
    i64 d;
    parse_again(g, n, &s);
    for (u32 l = 0; l < s.n_labels; l++)
        count *= sym_eval(g->sym, s.dim[l], var, &d) ? (double)d : 0;
    return count;
}

static void random_einsum(const struct op *self, struct graph *g, struct rng *r)
{
    static const char *const eq[] = {"ij,jk->ik",   "bhid,bhjd->bhij", "ii->i",
                                     "...ii->...i", "ij->ji",          "ij->",
                                     "i,j->ij",     "ijk,jil->kl",     "...ij,...jk->...ik",
                                     "ij,ij->i",    "bij,jk",          "ij,jk,kl->il",
                                     "i,i",         "ab,b->a",         "bqhd,bkhd->bhqk"};
    const char *text = eq[rng_range(r, 0, countof(eq) - 1)];
    i64 size[128], dim[MAX_RANK];
    value_id in[3];
    u32 n = 0;
    struct str left, rest, term;
    for (i64 i = 0; i < countof(size); i++) size[i] = rng_range(r, 1, 4);
    if (!str_cut(str_of(text), '-', &left, &rest)) left = str_of(text);
    for (bool more = true; more; n++) {
        term = left;
        more = str_cut(left, ',', &term, &left);
        u32 rank = 0;
        for (i64 i = 0; i < term.n; i++) {
            if (is_letter(term.p[i])) dim[rank++] = size[(int)term.p[i]];
            else if (i == 0) dim[rank++] = rng_range(r, 0, 2) ? size[0] : 1;
        }
        random_input(g, "x", DT_F32, rank, dim, &in[n]);
    }
    attr_set_str(g, random_node(g, self, n, in, 1), "equation", str_of(text));
}

static const struct op ops[] = {
    {.name = "Einsum",
     .props = OP_HEAVY,
     .min_in = 1,
     .max_in = MAX_OPERANDS,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_einsum},
    {.name = "quern::Einsum",
     .attributes = "equation:string",
     .props = OP_HEAVY,
     .min_in = 1,
     .max_in = MAX_OPERANDS,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .flops = flops,
     .random = random_einsum},
};

const struct op_family op_einsum = {ops, countof(ops)};
