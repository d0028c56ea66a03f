// SPDX-License-Identifier: Apache-2.0
//
// The reference evaluator against folders of ONNX test cases: onnx_eval [-v] CASE_DIR...
// A case is a folder with model.onnx and test_data_set_*/{input,output}_K.pb. One line per case,
// last the counts. Not run by default: it measures what is covered. Inputs that decide sizes are
// made constants when the model cannot be imported otherwise: integers behind the first input, then
// all behind the first, then all.
#include <stdio.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "import/import.h"
#include "io/io.h"
#include "op/op.h"

enum { MAX_TENSORS = 64 };
enum freeze { FREEZE_NONE, FREEZE_INTS, FREEZE_REST, FREEZE_ALL, N_FREEZE };
enum verdict { PASSED, FAILED, UNSUPPORTED, N_VERDICTS };

struct tensors {
    struct tensor *v[MAX_TENSORS];
    i64 n;
};

struct data_case {
    struct arena a;
    struct symtab st;
    struct graph g;
    struct str model;
    struct tensors in, want;
    struct err e;
};

static bool read_set(struct data_case *c, const char *dir, const char *kind, struct tensors *out)
{
    for (out->n = 0; out->n < MAX_TENSORS; out->n++) {
        struct str path = str_fmt(&c->a, "%s/%s_%d.pb", dir, kind, (int)out->n);
        if (!os_exists(path.p)) return true;
        struct tensor *t = out->v[out->n] = arena_new(&c->a, struct tensor);
        if (!io_read(t, &c->a, path.p, &c->e)) return false;
    }
    return true;
}

/* Files of bfloat16 tensors claim to be of uint16. */
static void fix_types(struct tensors *t, Onnx__ValueInfoProto *const *claim, size_t n)
{
    for (size_t i = 0; i < n && (i64)i < t->n; i++) {
        const Onnx__TypeProto *type = claim[i]->type;
        if (type && type->tensor_type && dtype_from_onnx(type->tensor_type->elem_type) == DT_BF16 &&
            t->v[i]->dtype == DT_U16)
            t->v[i]->dtype = DT_BF16;
    }
}

static bool read_case(struct data_case *c, const char *dir, const char *set)
{
    if (!os_read(&c->a, str_fmt(&c->a, "%s/model.onnx", dir).p, 1 << 30, &c->model, &c->e))
        return false;
    if (!read_set(c, set, "input", &c->in) || !read_set(c, set, "output", &c->want)) return false;
    const Onnx__ModelProto *p =
        io_onnx_unpack(&onnx__model_proto__descriptor, &c->a, c->model, &c->e);
    if (!p || !p->graph) return err_set(&c->e, ERR_INPUT, "broken model");
    fix_types(&c->in, p->graph->input, p->graph->n_input);
    fix_types(&c->want, p->graph->output, p->graph->n_output);
    return true;
}

static bool frozen(enum freeze f, const struct tensor *t, i64 i)
{
    switch (f) {
    case FREEZE_NONE: return false;
    case FREEZE_INTS: return i > 0 && dtype_is_int(t->dtype);
    case FREEZE_REST: return i > 0;
    case FREEZE_ALL: return true;
    case N_FREEZE: break;
    }
    unreachable();
}

static bool import_frozen(struct data_case *c, enum freeze f)
{
    struct tensor *content[MAX_TENSORS] = {0};
    struct str model = c->model;
    for (i64 i = 0; i < c->in.n; i++)
        if (frozen(f, c->in.v[i], i)) content[i] = c->in.v[i];
    c->e = (struct err){0};
    if (f != FREEZE_NONE && !import_freeze(&model, &c->a, c->model, content, c->in.n, &c->e))
        return false;
    symtab_init(&c->st, &c->a);
    return import_bytes(&c->g, &c->a, &c->st, model, &c->e);
}

/* Names of the model's inputs, in order. */
static bool feed(struct data_case *c, struct tensor **in)
{
    Onnx__ModelProto *p = io_onnx_unpack(&onnx__model_proto__descriptor, &c->a, c->model, &c->e);
    for (u32 k = 0; k < c->g.input.n; k++) {
        struct str name = graph_value(&c->g, c->g.input.v[k])->name;
        for (size_t i = 0; p && i < p->graph->n_input && (i64)i < c->in.n; i++)
            if (str_is(name, p->graph->input[i]->name)) in[k] = c->in.v[i];
        if (!in[k]) return err_set(&c->e, ERR_INPUT, "no content for input '%.*s'", STR_ARG(name));
    }
    return true;
}

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]);
}

static bool compare(struct data_case *c, struct tensor **got)
{
    for (u32 k = 0; k < c->g.output.n && k < c->want.n; k++) {
        const struct tensor *w = c->want.v[k];
        bool half = w->dtype == DT_F16 || w->dtype == DT_BF16;
        if (!same_shape(got[k], w)) {
            struct buf b = {0};
            for (u32 a = 0; a < got[k]->rank; a++)
                buf_printf(&b, " %lld", (long long)got[k]->dim[a]);
            buf_z(&b, " instead of");
            for (u32 a = 0; a < w->rank; a++) buf_printf(&b, " %lld", (long long)w->dim[a]);
            err_set(&c->e, ERR_FAILED, "output %u: type %s (%s) or shape%.*s", k,
                    dtype_name(got[k]->dtype), dtype_name(w->dtype), STR_ARG(buf_view(&b)));
            buf_release(&b);
            return false;
        }
        struct tensor_diff d = tensor_compare(got[k], w, half ? 1e-2 : 1e-3, half ? 1e-3 : 1e-6);
        if (d.n_bad)
            return err_set(&c->e, ERR_FAILED,
                           "output %u: %lld of %lld wrong, first %lld: %g instead of %g", k,
                           (long long)d.n_bad, (long long)tensor_count(w), (long long)d.first_bad,
                           d.got, d.want);
    }
    return true;
}

static bool evaluate(struct data_case *c, enum freeze f)
{
    struct tensor *in[MAX_TENSORS] = {0}, *out[MAX_TENSORS] = {0};
    if (!import_frozen(c, f)) return false;
    if (c->g.input.n > MAX_TENSORS || c->g.output.n > MAX_TENSORS)
        return err_set(&c->e, ERR_UNSUPPORTED, "too many tensors");
    return feed(c, in) && graph_eval(&c->g, in, out, &c->a, NULL, &c->e) && compare(c, out);
}

/* One test_data_set of a case. Inputs whose content does not have the shape that the model claims
   (it matters to nobody when only the type is used) are constants, too. */
static enum verdict run_set(const char *dir, const char *set, char *why, size_t size)
{
    struct data_case c = {0};
    enum freeze f = FREEZE_NONE;
    bool ok = read_case(&c, dir, set);
    enum verdict v = ok ? FAILED : UNSUPPORTED;
    if (ok)
        while (!(ok = evaluate(&c, f)) && c.e.code != ERR_FAILED && f + 1 < N_FREEZE) f++;
    if (ok) v = PASSED;
    else if (c.e.code == ERR_UNSUPPORTED) v = UNSUPPORTED;
    snprintf(why, size, "%s", ok && f ? "with inputs made constants" : c.e.msg);
    arena_release(&c.a);
    return v;
}

static enum verdict run_case(const char *dir, char *why, size_t size)
{
    struct arena a = {0};
    enum verdict v = PASSED;
    for (i64 k = 0; v == PASSED; k++) {
        const char *set = str_fmt(&a, "%s/test_data_set_%d", dir, (int)k).p;
        if (!os_is_dir(set)) break;
        v = run_set(dir, set, why, size);
    }
    arena_release(&a);
    return v;
}

int main(int argc, char **argv)
{
    static const char *const text[N_VERDICTS] = {"passed", "FAILED", "unsupported"};
    int n[N_VERDICTS] = {0};
    bool verbose = argc > 1 && !strcmp(argv[1], "-v");
    for (int i = 1 + verbose; i < argc; i++) {
        char why[1000] = "";
        enum verdict v = run_case(argv[i], why, sizeof why);
        n[v]++;
        if (v != PASSED || verbose) printf("%s: %s%s%s\n", argv[i], text[v], *why ? ": " : "", why);
        fflush(stdout);
    }
    printf("%d passed, %d failed, %d unsupported\n", n[PASSED], n[FAILED], n[UNSUPPORTED]);
    return n[FAILED] ? 1 : 0;
}
