// SPDX-License-Identifier: Apache-2.0
//
// ARA1: Kinara's ARA-1, whose tools are to be had under a non-disclosure agreement; their commands are not public. The sub-graph as ONNX, its recorded
// inputs as arrays, and the steps that follow.
#include "deploy/deploy.h"
#include "io/io.h"

#include <string.h>

enum { OPSET = 13 };

/* Input by input: the samples in one array, along a batch of 1 or along a new first axis. */
static bool stack(struct io_npz *z, const struct deploy_net *x, const struct deploy_job *j, u32 input, struct err *e)
{
    const struct tensor *first = j->samples->v[0][input];
    bool has_batch = first->rank > 0 && first->dim[0] == 1;
    i64 dim[MAX_RANK + 1] = {j->samples->n}, bytes = tensor_bytes(first);
    u32 rank = first->rank + !has_batch;
    if (rank > MAX_RANK) return err_set(e, ERR_UNSUPPORTED, "calibration data of %u axes", first->rank);
    for (u32 a = has_batch; a < first->rank; a++) dim[a + !has_batch] = first->dim[a];
    struct tensor *t = tensor_try(j->arena, first->dtype, rank, dim, e, "calibration data", S(""));
    for (u32 k = 0; t && k < j->samples->n && bytes; k++) memcpy((char *)t->data + k * bytes, j->samples->v[k][input]->data, (size_t)bytes);
    if (t) *arr_push(j->arena, z) = (struct io_npz_array){graph_value(&x->g, x->g.input.v[input])->name, *t};
    return t != NULL;
}

static bool add_samples(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    struct io_npz z = {0};
    struct buf b = {0};
    bool ok = true;
    for (u32 i = 0; ok && i < x->g.input.n; i++) ok = stack(&z, x, j, i, e);
    ok = ok && io_npz_write(&b, &z, e);
    struct str content = deploy_text(j, &b);
    return ok && deploy_add(files, s, j, "calibration.npz", META_CALIBRATION, content, e);
}

static struct str steps_of(const struct deploy_job *j)
{
    struct buf b = {0};
    buf_printf(&b,
               "The ARA SDK (Kinara, now NXP) is to be had under a non-disclosure agreement, and the commands of its tools are not public. With it:\n"
               "\n"
               "1. model converter: %.*s.onnx, sizes as they are; inputs and outputs keep their names\n"
               "2. quantizer: INT8, asymmetric; its samples are the arrays of calibration.npz, one per input, sample k at index k of the first axis\n"
               "3. scheduler and optimizer: they write the model's program (.dvm)\n"
               "4. put it beside this file as %.*s.dvm; DVAPI loads it\n",
               STR_ARG(j->name), STR_ARG(j->name));
    return deploy_text(j, &b);
}

static bool write_net(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    if (!deploy_check_batch(x, j, e) || !deploy_check_samples(x, j, e)) return false;
    s->target = S("ARA-1");
    s->missing = str_fmt(j->arena, "%sfollow %.*s/convert.txt with Kinara's tools (ARA SDK)", j->samples->n ? "" : "deploy with calibration data, then ",
                         STR_ARG(j->folder));
    return deploy_add_onnx(files, s, x, j, OPSET, e) && (!j->samples->n || add_samples(files, s, x, j, e)) &&
           deploy_add(files, s, j, "convert.txt", META_SCRIPT, steps_of(j), e);
}

static bool ara1_write(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, struct err *e)
{
    s->framework = S("dvapi");
    return deploy_with_net(s, files, j, false, write_net, e);
}

const struct deploy_backend deploy_ara1 = {.kinds = "ARA1", .framework = "dvapi", .needs_samples = true, .write = ara1_write};
