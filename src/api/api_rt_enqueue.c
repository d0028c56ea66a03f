// SPDX-License-Identifier: Apache-2.0
//
// Programs on arrays in the device's memory, in the order of a caller's stream; on a device that works in the host's memory, at once. Declared and
// documented in include/quern.h.
#include "api/api.h"

#include <string.h>

bool api_array_lies(const struct quern_array *a, const int *order)
{
    i64 want = 1;
    for (int i = a->rank - 1; i >= 0; i--) {
        int d = order[i];
        if (a->dim[d] != 1 && a->stride[d] != want) return false;
        want *= a->dim[d];
    }
    return true;
}

void api_array_rows(struct quern_array *a, enum dtype t, u32 rank, const i64 *dim)
{
    i64 step = 1;
    *a = (struct quern_array){.type = (quern_dtype)dtype_onnx(t), .rank = (int)rank};
    for (u32 d = rank; d-- > 0;) {
        a->dim[d] = dim[d], a->stride[d] = step;
        step *= dim[d];
    }
}

static bool take(struct tensor *t, const struct quern_array *a, struct err *e)
{
    static const int rows[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    i64 bytes;
    return api_array(t, &bytes, a, e) &&
           (bytes == 0 || api_array_lies(a, rows) || err_set(e, ERR_UNSUPPORTED, "the array is not dense, row by row"));
}

static bool take_all(struct tensor *t, const struct quern_array *a, u32 n, const char *what, struct err *e)
{
    for (u32 k = 0; k < n; k++)
        if (!take(&t[k], &a[k], e)) return err_prefix(e, "%s %u", what, k);
    return true;
}

/* Checks the outputs' types and shapes. is_made, if not NULL, receives whether one of them has a data-dependent size. */
static bool check_outputs(quern_program *p, const struct tensor *in, const struct tensor *out, bool *is_made, struct err *e)
{
    struct arena a = {0};
    u32 n = p->plan.output.n;
    struct tensor *want = arena_array(&a, struct tensor, n + 1);
    bool ok = api_is_started(p, e) && rt_output_dims(p->rt, in, want, e);
    for (u32 k = 0; k < n && ok; k++) {
        ok = api_output_check(p, k, &out[k], &want[k], e);
        if (is_made) *is_made |= api_depends_on_data(&want[k]);
    }
    arena_release(&a);
    return ok;
}

bool api_enqueue(quern_program *p, const struct tensor *in, const struct tensor *out, void *stream, struct err *e)
{
    return check_outputs(p, in, out, NULL, e) && rt_enqueue(p->rt, in, out, stream, e);
}

static bool check_data(const struct tensor *t, u32 n, const char *what, struct err *e)
{
    for (u32 k = 0; k < n; k++)
        if (!t[k].data && tensor_bytes(&t[k])) return err_set(e, ERR_USAGE, "%s %u has no memory", what, k);
    return true;
}

/* On a device that works in the host's memory, which has no streams: the outputs are complete afterwards. */
static bool run_host(quern_program *p, const struct tensor *in, struct tensor *out, void *stream, struct err *e)
{
    struct arena a = {0};
    bool is_made = false;
    if (stream) return err_set(e, ERR_USAGE, "device '%s' has no streams", p->dev->driver->name);
    bool ok = check_data(in, p->plan.input.n, "input", e) && check_data(out, p->plan.output.n, "output", e) && check_outputs(p, in, out, &is_made, e) &&
              (!is_made || err_set(e, ERR_UNSUPPORTED, "sizes of outputs are computed while the program runs: use quern_run")) && rt_run(p->rt, in, out, &a, e);
    arena_release(&a);
    if (ok && p->keep) p->keep->start(p->keep, &p->plan);
    return ok;
}

quern_status quern_enqueue(quern_program *p, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out, void *stream)
{
    if (!p || !api_given(p->q, "in out", n_in > 0 ? (const void *)in : "", n_out > 0 ? (const void *)out : "")) return QUERN_USAGE;
    struct err *e = api_begin(p->q);
    u32 n_i = p->plan.input.n, n_o = p->plan.output.n;
    struct arena a = {0};
    struct tensor *x = arena_array(&a, struct tensor, n_i + 1), *y = arena_array(&a, struct tensor, n_o + 1);
    bool ok = api_is_started(p, e) && api_counts_check(p, n_in, n_out, e) && take_all(x, in, n_i, "input", e) && take_all(y, out, n_o, "output", e) &&
              (rt_shares_host(p->rt) ? run_host(p, x, y, stream, e) : api_enqueue(p, x, y, stream, e));
    arena_release(&a);
    return api_end(p->q, ok);
}

quern_status quern_program_shape(quern_program *p, const struct quern_array *in, int n_in, struct quern_array *out, int n_out)
{
    if (!p || !api_given(p->q, "in out", n_in > 0 ? (const void *)in : "", n_out > 0 ? (const void *)out : "")) return QUERN_USAGE;
    struct err *e = api_begin(p->q);
    struct arena a = {0};
    struct tensor *x = arena_array(&a, struct tensor, p->plan.input.n + 1), *y = arena_array(&a, struct tensor, p->plan.output.n + 1);
    bool ok = api_is_started(p, e) && api_counts_check(p, n_in, n_out, e);
    i64 bytes;
    for (int k = 0; k < n_in && ok; k++) ok = api_array(&x[k], &bytes, &in[k], e) || err_prefix(e, "input %d", k);
    ok = ok && rt_output_dims(p->rt, x, y, e);
    for (int k = 0; k < n_out && ok; k++) api_array_rows(&out[k], y[k].dtype, y[k].rank, y[k].dim);
    arena_release(&a);
    return api_end(p->q, ok);
}
