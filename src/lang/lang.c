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

const char *lang_runs_as(const struct lang *l) { return l->runs_as ? l->runs_as : l->name; }

const struct lang *lang_for(struct str name, struct err *e)
{
    static const char variable[] = "QUERN_CUDA_LANGUAGE";
    const char *wanted = str_is(name, "cuda") ? os_env(variable) : NULL;
    const struct lang *l = lang_find(wanted ? str_of(wanted) : name);
    if (l && str_is(name, lang_runs_as(l))) return l;
    if (wanted) err_set(e, ERR_USAGE, "%s=%s: no language of cuda's binaries: cuda, ptx", variable, wanted);
    else err_set(e, ERR_FAILED, "language '%.*s' is not built in", STR_ARG(name));
    return NULL;
}

bool lang_render(struct buf *out, const struct lang *l, const struct kir *k, const struct caps *c,
                 struct arena *scratch, struct err *e)
{
    struct kir_limits limits = l->limits(c);
    struct kir *legal = arena_new(scratch, struct kir);
    if (c && c->is_gpu && kir_is_alone(k))
        return err_set(e, ERR_UNSUPPORTED, "kernel '%.*s' is for a processor: each thread has fragments of its own", STR_ARG(k->name));
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
