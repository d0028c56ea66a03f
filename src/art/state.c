// SPDX-License-Identifier: Apache-2.0
//
// The caches of a program: pairs of an input and the output that the next run has there. Exporters do not declare them, but agree on their
// names: transformers and onnxruntime-genai write past_key_values.N.key and present.N.key, others past_key and present_key, or present_key_values.
#include "art/art.h"

/* The name with the first of the words replaced by a mark that no name contains; empty: it has none of them. */
static struct str marked(char *room, i64 size, struct str name, const char *const *word, u32 n_words)
{
    for (u32 w = 0; w < n_words; w++) {
        struct str x = str_of(word[w]);
        for (i64 at = 0; at + x.n <= name.n; at++) {
            if (!str_eq(str_sub(name, at, at + x.n), x)) continue;
            i64 n = 0;
            for (i64 i = 0; i < name.n && n < size; i++) {
                room[n++] = i == at ? '\n' : name.p[i];
                if (i == at) i += x.n - 1;
            }
            return (struct str){room, n};
        }
    }
    return (struct str){0};
}

bool plan_is_past(struct str input, struct str output)
{
    static const char *const past[] = {"past_key_values", "past"}, *const present[] = {"present_key_values", "present"};
    char a[256], b[256];
    if (input.n > countof(a) || output.n > countof(b)) return false;
    struct str x = marked(a, countof(a), input, past, countof(past)), y = marked(b, countof(b), output, present, countof(present));
    return x.n && str_eq(x, y);
}

/* Sizes that the plan's facts equate are the same: an input keeps the name of a size that is assumed. */
static bool is_same(const struct plan *p, sym a, sym b)
{
    bool is_equal = a == b;
    for (u32 k = 0; k < p->sym.fact.n && !is_equal; k++) {
        const struct sym_fact *f = &p->sym.fact.v[k];
        is_equal = f->kind == FACT_EQUAL && ((f->a == a && f->b == b) || (f->a == b && f->b == a));
    }
    return is_equal;
}

/* false: types or shapes do not fit; *axis: the one on which they differ. */
static bool continues(const struct plan *p, const struct plan_io *in, const struct plan_io *out, u32 *axis)
{
    *axis = PLAN_NO_AXIS;
    if (in->dtype != out->dtype || in->rank != out->rank) return false;
    for (u32 d = 0; d < in->rank; d++) {
        if (is_same(p, in->dim[d], out->dim[d])) continue;
        if (*axis != PLAN_NO_AXIS) return false;
        *axis = d;
    }
    return true;
}

bool plan_is_in_place(const struct plan *p, const struct plan_state *s) { return p->input.v[s->input].buf == p->output.v[s->output].buf; }

/* By inputs: programs of one network count their caches alike, in place or not. */
static void sort_states(struct plan_state *v, u32 n)
{
    for (u32 k = 1; k < n; k++)
        for (u32 i = k; i > 0 && v[i].input < v[i - 1].input; i--) {
            struct plan_state x = v[i];
            v[i] = v[i - 1], v[i - 1] = x;
        }
}

u32 plan_find_states(const struct plan *p, struct plan_state *v)
{
    u32 n = 0;
    for (u32 k = 0; k < p->state.n; k++) v[n++] = p->state.v[k];
    for (u32 i = 0; i < p->input.n; i++) {
        bool is_known = p->buf.v[p->input.v[i].buf].kind == PB_STATE;
        for (u32 o = 0; o < p->output.n && !is_known; o++) {
            struct plan_state x = {.input = i, .output = o, .room = UINT32_MAX};
            if (p->buf.v[p->output.v[o].buf].kind == PB_STATE || !plan_is_past(p->input.v[i].name, p->output.v[o].name)) continue;
            is_known = continues(p, &p->input.v[i], &p->output.v[o], &x.axis);
            if (is_known) v[n++] = x;
        }
    }
    sort_states(v, n);
    return n;
}
