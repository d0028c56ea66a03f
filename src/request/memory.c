// SPDX-License-Identifier: Apache-2.0
//
// Memory of a request's tensors: one block per tensor, which grows with its sizes and is kept from run to run. Sub-graphs on the CPU read and write it in
// place, so a tensor passes from one to the next without a copy.
#include "request/request_private.h"

enum { LEAST = 64 };

bool memory_make(struct request *r, u32 tensor, struct tensor *t, struct err *e)
{
    struct req_memory *own = &r->memory[tensor];
    const struct meta_tensor *x = &r->model->meta->tensor.v[tensor];
    i64 bytes;
    if (!tensor_size_ok(t->dtype, t->rank, t->dim, &bytes) || !mem_is_addressable(bytes))
        return err_set(e, ERR_USAGE, "a size of '%.*s' is negative, or the tensor too large", STR_ARG(x->name));
    bytes = i64_max(bytes, LEAST);
    if (own->size < bytes) {
        mem_free(own->p);
        *own = (struct req_memory){.p = mem_aligned(bytes), .size = bytes};
        if (!own->p) {
            *own = (struct req_memory){0};
            return err_set(e, ERR_SYSTEM, "not enough memory for '%.*s': %lld bytes", STR_ARG(x->name), (long long)bytes);
        }
    }
    t->data = own->p;
    return true;
}

void memory_release(struct request *r)
{
    for (u32 k = 0; k < r->model->meta->tensor.n; k++) mem_free(r->memory[k].p);
}
