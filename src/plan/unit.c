// SPDX-License-Identifier: Apache-2.0
//
// unit.c: compilation units of a program. Kernels that were not measured are compiled several in a text where the language joins texts of
// programs, because a compiler takes longer to start than for a small kernel. Units follow from the texts alone, in the order of the program, not
// from what a cache holds or how many processors there are, so that the same program has the same bytes. Kernels that were measured are compiled
// as they were then, alone.
#include "plan/plan.h"

/* Of text: as much as a large kernel has, so that no unit takes longer than such a kernel. */
enum { UNIT_BYTES = 64000 };

struct unit { u32 first, n; i64 bytes; };

/* The first unit of its kind with room. */
static u32 find_unit(const struct unit *u, u32 n, const struct plan_text *text, const struct plan_text *t)
{
    for (u32 i = 0; i < n && !t->is_alone; i++) {
        const struct plan_text *first = &text[u[i].first];
        if (!first->is_alone && first->as_written == t->as_written && u[i].bytes + t->text.n <= UNIT_BYTES) return i;
    }
    return n;
}

static struct str join(const struct lang *l, const struct plan_text *text, const struct unit *u, const u32 *unit, u32 n, struct arena *a)
{
    struct str *member = arena_array(a, struct str, u->n), s;
    struct buf b = {0};
    u32 k = 0;
    if (u->n == 1) return text[u->first].text;
    for (u32 i = u->first; i < n && k < u->n; i++)
        if (unit[i] == unit[u->first]) member[k++] = text[i].text;
    l->join_program(&b, member, k);
    s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

u32 plan_units(struct str *out, u32 *unit, const struct plan_text *text, u32 n, const struct lang *l, struct arena *a)
{
    struct unit *u = arena_array(a, struct unit, n + 1);
    u32 n_units = 0;
    for (u32 i = 0; i < n; i++) {
        u32 k = unit[i] = l->join_program ? find_unit(u, n_units, text, &text[i]) : n_units;
        if (k == n_units) u[n_units++] = (struct unit){.first = i};
        u[k].n++, u[k].bytes += text[i].text.n;
    }
    for (u32 k = 0; k < n_units; k++) out[k] = join(l, text, &u[k], unit, n, a);
    return n_units;
}
