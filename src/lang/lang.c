// SPDX-License-Identifier: Apache-2.0
//
// lang.c: the registry of languages, rendering, and the memory that a kernel
// needs from its host. The list of languages is generated from file names.
#include "lang/lang.h"

#define X(name) extern const struct lang lang_##name;
#include "lang.inc"
#undef X

static const struct lang *const languages[] = {
#define X(name) &lang_##name,
#include "lang.inc"
#undef X
};

const struct lang *const *lang_all(i64 *n)
{
    *n = countof(languages);
    return languages;
}

const struct lang *lang_find(struct str name)
{
    for (i64 i = 0; i < countof(languages); i++)
        if (str_is(name, languages[i]->name)) return languages[i];
    return NULL;
}

bool lang_render(struct buf *out, const struct lang *l, const struct kir *k, const struct caps *c,
                 struct arena *scratch, struct err *e)
{
    struct kir_limits limits = l->limits(c);
    struct kir *legal = arena_new(scratch, struct kir);
    if (!kir_legalise(legal, scratch, k, &limits, e)) return false;
    return l->print(out, legal, c, e) && (!out->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

bool kir_memory(const struct kir *k, struct kir_memory *m, struct err *e)
{
    *m = (struct kir_memory){0};
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (x->op != KI_ALLOC) continue;
        bool is_work = x->aux == KS_WORK;
        if (!is_work && x->aux != KS_TEMP) continue;
        u32 *n = is_work ? &m->work.n : &m->temp.n;
        if (*n == countof(m->work.v))
            return err_set(e, ERR_UNSUPPORTED, "too many arrays in kernel '%.*s'",
                           STR_ARG(k->name));
        (is_work ? m->work.v : m->temp.v)[(*n)++] = v;
    }
    return true;
}
