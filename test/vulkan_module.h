// SPDX-License-Identifier: Apache-2.0
//
// SPIR-V modules with declarations only, for tests with simulated devices (fake_vulkan.c).
#ifndef QUERN_VULKAN_MODULE_H
#define QUERN_VULKAN_MODULE_H

#include "core/spirv.h"
#include "vulkan_fixture.h"

#include <string.h>

struct module {
    struct buf code;
    u32 n_id;
};

static inline void put(struct module *m, u32 op, const u32 *operand, u32 n)
{
    u32 head = (n + 1) << 16 | op;
    buf_put(&m->code, &head, 4);
    buf_put(&m->code, operand, 4 * n);
}
#define PUT(m, op, ...)                                                                            \
    put((m), (op), (const u32[]){__VA_ARGS__},                                                     \
        (u32)(sizeof((const u32[]){__VA_ARGS__}) / sizeof(u32)))

static inline u32 word_of(const char *four)
{
    u32 w;
    memcpy(&w, four, 4);
    return w;
}

enum { ID_MAIN = 1, ID_INT, ID_ARRAY, ID_BLOCK, ID_POINTER, ID_PARAMS, ID_PARAM_POINTER, ID_PARAM, ID_BUF };

/* Kernel "k" with one grid, this many buffers and words of push constants. */
static inline struct module module(u32 n_buf, u32 n_push, u32 capability, u32 threads)
{
    struct module m = {0};
    u32 head[SPIRV_HEADER] = {SPIRV_MAGIC, 0x10000, 0, ID_BUF + n_buf, 0};
    buf_put(&m.code, head, sizeof head);
    PUT(&m, SPV_CAPABILITY, SPV_CAP_SHADER);
    PUT(&m, SPV_CAPABILITY, capability);
    PUT(&m, SPV_ENTRY_POINT, 5, ID_MAIN, word_of("k_0\0"));
    PUT(&m, SPV_EXECUTION_MODE, ID_MAIN, SPV_MODE_LOCAL_SIZE, threads, 1, 1);
    for (u32 i = 0; i < n_buf; i++) {
        PUT(&m, SPV_DECORATE, ID_BUF + i, SPV_DEC_SET, 0);
        PUT(&m, SPV_DECORATE, ID_BUF + i, SPV_DEC_BINDING, i);
    }
    PUT(&m, SPV_TYPE_INT, ID_INT, 32, 0);
    PUT(&m, SPV_TYPE_RUNTIME_ARRAY, ID_ARRAY, ID_INT);
    PUT(&m, SPV_TYPE_STRUCT, ID_BLOCK, ID_ARRAY);
    PUT(&m, SPV_TYPE_POINTER, ID_POINTER, SPV_IN_BUFFER, ID_BLOCK);
    u32 members[64] = {ID_PARAMS};
    for (u32 i = 0; i < n_push; i++) members[1 + i] = ID_INT;
    put(&m, SPV_TYPE_STRUCT, members, n_push + 1);
    PUT(&m, SPV_TYPE_POINTER, ID_PARAM_POINTER, SPV_IN_PUSH, ID_PARAMS);
    if (n_push) PUT(&m, SPV_VARIABLE, ID_PARAM_POINTER, ID_PARAM, SPV_IN_PUSH);
    for (u32 i = 0; i < n_buf; i++) PUT(&m, SPV_VARIABLE, ID_POINTER, ID_BUF + i, SPV_IN_BUFFER);
    return m;
}

#endif
