// SPDX-License-Identifier: Apache-2.0
//
// share.c: kernels of a program whose code may be the same, and so is compiled once: those of one form (kir/share.c). What they differ in
// becomes parameters; arguments, grids and memory remain each kernel's own. Kernels that were measured are not among them: a program runs
// what was measured.
#include "gen/gen.h"

/* Parameters of a common kernel: with more of them the code would mostly load them. */
enum { MAX_SIZES = 64 };

struct group { u32 *member, n; }; /* kernels of one form */

static bool set_params(struct kernel *k, struct symtab *t, const struct str *size, struct arena *a, struct err *e)
{
    k->n_param = k->kir.param.n;
    k->param = arena_array(a, sym, k->n_param + 1);
    for (u32 i = 0; i < k->n_param; i++) {
        k->param[i] = sym_parse(t, size[i], e);
        if (!k->param[i]) return err_prefix(e, "kernel parameter %u", i);
    }
    return true;
}

/* Whether its kernels are different ones. */
static bool has_several(const struct gen_shared *x, const struct group *g)
{
    for (u32 i = 1; i < g->n; i++)
        if (!str_is(str_of(x[g->member[i]].kernel->name), x[g->member[0]].kernel->name)) return true;
    return false;
}

static bool share_group(struct gen_shared *x, const struct kir_form *form, const struct group *g, struct arena *a, struct err *e)
{
    struct arena scratch = {0};
    struct kir common;
    const struct kir_form **in = arena_array(&scratch, const struct kir_form *, g->n);
    const struct task **task = arena_array(&scratch, const struct task *, g->n);
    struct str **size = arena_array(&scratch, struct str *, g->n);
    for (u32 i = 0; i < g->n; i++) in[i] = &form[g->member[i]], task[i] = x[g->member[i]].task;
    kir_share(&common, a, in, g->n, size);
    bool ok = kir_verify(&common, e), is_small = common.param.n <= MAX_SIZES;
    char name[64];
    if (ok) gen_shared_name(name, x[g->member[0]].cand->gen, task, g->n, &common);
    common.name = str_dup(a, str_of(name));
    for (u32 i = 0; i < g->n && ok && is_small; i++) {
        struct kernel *k = x[g->member[i]].kernel;
        k->kir = common;
        for (u32 c = 0; c < countof(k->name); c++) k->name[c] = name[c];
        ok = set_params(k, task[i]->g.sym, size[i], a, e);
    }
    arena_release(&scratch);
    return ok;
}

bool gen_share(struct gen_shared *x, u32 n, struct arena *a, struct err *e)
{
    struct arena scratch = {0};
    struct kir_form *form = arena_array(&scratch, struct kir_form, n + 1);
    struct group *group = arena_array(&scratch, struct group, n + 1);
    struct map known;
    u32 n_groups = 0;
    bool ok = true;
    map_init(&known, &scratch);
    for (u32 i = 0; i < n; i++) {
        kir_form_of(&form[i], &scratch, &x[i].kernel->kir);
        struct str key = {(const char *)&form[i].hash, sizeof form[i].hash};
        u64 *at = map_get(&known, key);
        struct group *g = &group[at ? *at : n_groups];
        if (!at) map_put(&known, key, n_groups++), g->member = arena_array(&scratch, u32, n - i);
        g->member[g->n++] = i;
    }
    for (u32 k = 0; k < n_groups && ok; k++)
        if (has_several(x, &group[k])) ok = share_group(x, form, &group[k], a, e);
    arena_release(&scratch);
    return ok;
}
