// SPDX-License-Identifier: Apache-2.0
//
// many PREFIX H W H1 W1: two exported networks, "one" (whose example main.c is used for the set-up)
// and "two", in one process and one command buffer: two runs of "one" for different sizes and one
// of "two", all their ranges in one buffer, at the offsets that the device's alignment permits.
// Inputs and outputs are written as PREFIX0.in0.npy, PREFIX0.out0.npy ... Then whether invalid
// arguments are refused, and whether allocations that fail, one after the other, are reported and
// leave nothing behind. As C and as C++.
#define main example_main
#include "one/main.c"
#undef main

#include "two/two_vk.h"

enum { RUNS = 3, MOST = 1 << 24 };

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: not so: %s: %s %s\n", __FILE__, __LINE__, #x, a->e.text,       \
                    e2.text);                                                                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static struct two_vk_error e2;

/* Memory that is counted, and fails. */

struct counter {
    long live, left; /* allocations that succeed; negative: all */
};

static void *VKAPI_CALL counted_alloc(void *user, size_t n, size_t align,
                                      VkSystemAllocationScope scope)
{
    struct counter *c = (struct counter *)user;
    size_t head = align < 16 ? 16 : align;
    char *p = c->left == 0 ? NULL : (char *)aligned_alloc(head, (n + 2 * head - 1) / head * head);
    (void)scope;
    if (c->left > 0) c->left--;
    if (!p) return NULL;
    memcpy(p + head - 16, &n, sizeof n);
    memcpy(p + head - 8, &head, sizeof head);
    c->live++;
    return p + head;
}

static void VKAPI_CALL counted_free(void *user, void *p)
{
    size_t head;
    if (!p) return;
    memcpy(&head, (char *)p - 8, sizeof head);
    free((char *)p - head);
    ((struct counter *)user)->live--;
}

static void *VKAPI_CALL counted_realloc(void *user, void *old, size_t n, size_t align,
                                        VkSystemAllocationScope scope)
{
    size_t had = 0;
    void *p = n ? counted_alloc(user, n, align, scope) : NULL;
    if (old) memcpy(&had, (char *)old - 16, sizeof had);
    if (p && old) memcpy(p, old, had < n ? had : n);
    if (p || !n) counted_free(user, old);
    return p;
}

static struct one_vk_create_info info_of(struct app *a, const VkAllocationCallbacks *allocator)
{
    struct one_vk_create_info info;
    memset(&info, 0, sizeof info);
    info.device = &a->facts, info.handle = a->device, info.get = vkGetDeviceProcAddr,
    info.allocator = allocator;
    return info;
}

/* One after the other, every allocation fails. */
static void fail_allocations(struct app *a)
{
    struct counter c = {0, -1};
    VkAllocationCallbacks calls;
    int made = 0;
    long n;
    memset(&calls, 0, sizeof calls);
    calls.pUserData = &c;
    calls.pfnAllocation = counted_alloc, calls.pfnReallocation = counted_realloc,
    calls.pfnFree = counted_free;
    for (n = 0; !made; n++) {
        struct one_vk_create_info info = info_of(a, &calls);
        struct one_vk *net = NULL;
        struct one_vk_run *run = NULL;
        struct one_vk_buffer b;
        a->e.result = VK_SUCCESS;
        c.left = n;
        made = one_vk_create(&info, &net, &a->e) == VK_SUCCESS &&
               one_vk_bind(net, &a->o.sizes, &run, &a->e) == VK_SUCCESS &&
               one_vk_buffer_create(net, 1000, 1, &b, &a->e) == VK_SUCCESS;
        MUST(made || (a->e.result != VK_SUCCESS && a->e.text[0]));
        c.left = -1;
        if (made) one_vk_buffer_destroy(net, &b);
        one_vk_unbind(run);
        one_vk_destroy(net);
        MUST(c.live == 0);
    }
    MUST(n > 3);
    printf("%ld allocations\n", n - 1);
}

/* Ranges in one buffer. */

struct place {
    VkDeviceSize at, align;
};

static VkDeviceSize next(struct place *p, VkDeviceSize bytes)
{
    VkDeviceSize at = (p->at + p->align - 1) / p->align * p->align;
    p->at = at + bytes + p->align; /* not a multiple of more */
    return at;
}

struct many { /* the runs' interfaces, which are alike */
    struct two_vk_device facts2;
    struct one_vk *one;
    struct two_vk *two;
    struct one_vk_run *run[2];
    struct two_vk_run *run2;
    struct one_vk_tensor in[RUNS], out[RUNS];
    VkDeviceSize in_at[RUNS], out_at[RUNS], staging_at[RUNS + 1];
    struct one_vk_buffer all, host;
};

static void copy_tensor(struct one_vk_tensor *to, const struct two_vk_tensor *t)
{
    to->name = t->name, to->type = t->type, to->layout = t->layout, to->element = t->element,
    to->rank = t->rank, to->bytes = t->bytes;
    memcpy(to->dim, t->dim, sizeof to->dim);
}

/* A device with the features of both: "one" needs no structure of its own. */
static void make_both(struct app *a, struct many *m)
{
    MUST(two_vk_check(vkGetInstanceProcAddr, a->instance, VK_API_VERSION_1_3,
                      a->facts.physical_device, &m->facts2, &e2) == VK_SUCCESS);
    MUST(!a->facts.core.pNext);
    a->facts.core.pNext = m->facts2.core.pNext;
    MUST(make_device(a) && make_commands(a));
}

static void bind_runs(struct app *a, struct many *m, char **size)
{
    struct one_vk_create_info info = info_of(a, NULL);
    struct two_vk_create_info info2;
    struct two_vk_sizes sizes2;
    struct one_vk_sizes sizes;
    int k;
    MUST(one_vk_create(&info, &m->one, &a->e) == VK_SUCCESS);
    for (k = 0; k < 2; k++) {
        const struct one_vk_memory *x;
        sizes.H = atoi(size[2 * k]), sizes.W = atoi(size[2 * k + 1]);
        MUST(one_vk_bind(m->one, &sizes, &m->run[k], &a->e) == VK_SUCCESS);
        x = one_vk_run_memory(m->run[k]);
        m->in[k] = x->input[0], m->out[k] = x->output[0];
    }
    memset(&info2, 0, sizeof info2);
    info2.device = &m->facts2, info2.handle = a->device, info2.get = vkGetDeviceProcAddr;
    MUST(two_vk_create(&info2, &m->two, &e2) == VK_SUCCESS);
    sizes2.H = sizes.H, sizes2.W = sizes.W;
    MUST(two_vk_bind(m->two, &sizes2, &m->run2, &e2) == VK_SUCCESS);
    copy_tensor(&m->in[2], &two_vk_run_memory(m->run2)->input[0]);
    copy_tensor(&m->out[2], &two_vk_run_memory(m->run2)->output[0]);
}

static void use_buffers(struct app *a, struct many *m)
{
    struct one_vk_buffers b[2];
    struct two_vk_buffers b2;
    struct place p = {0, a->facts.properties.limits.minStorageBufferOffsetAlignment},
                 host = {0, 16};
    struct one_vk_buffers bad;
    int k;
    if (p.align < 16) p.align = 16;
    memset(b, 0, sizeof b), memset(&b2, 0, sizeof b2);
    for (k = 0; k < RUNS; k++)
        m->in_at[k] = next(&p, m->in[k].bytes), m->out_at[k] = next(&p, m->out[k].bytes);
    for (k = 0; k < RUNS; k++) m->staging_at[k] = next(&host, m->in[k].bytes + m->out[k].bytes);
    m->staging_at[RUNS] = next(&host, ONE_VK_WEIGHTS + TWO_VK_WEIGHTS);
    b[0].weights.offset = b[1].weights.offset = next(&p, ONE_VK_WEIGHTS);
    b2.weights.offset = next(&p, TWO_VK_WEIGHTS);
    for (k = 0; k < 2; k++)
        b[k].temporary.offset = next(&p, one_vk_run_memory(m->run[k])->temporary);
    b2.temporary.offset = next(&p, two_vk_run_memory(m->run2)->temporary);
    MUST(one_vk_buffer_create(m->one, p.at, 0, &m->all, &a->e) == VK_SUCCESS);
    MUST(one_vk_buffer_create(m->one, host.at, 1, &m->host, &a->e) == VK_SUCCESS);
    for (k = 0; k < 2; k++) {
        b[k].input[0].buffer = b[k].output[0].buffer = b[k].weights.buffer = b[k].temporary.buffer =
            m->all.buffer;
        b[k].input[0].offset = m->in_at[k], b[k].output[0].offset = m->out_at[k];
        MUST(one_vk_use(m->run[k], &b[k], &a->e) == VK_SUCCESS);
    }
    b2.input[0].buffer = b2.output[0].buffer = b2.weights.buffer = b2.temporary.buffer =
        m->all.buffer;
    b2.input[0].offset = m->in_at[2], b2.output[0].offset = m->out_at[2];
    MUST(two_vk_use(m->run2, &b2, &e2) == VK_SUCCESS);
    bad = b[0];
    bad.input[0].offset = 8;
    MUST(one_vk_use(m->run[0], &bad, &a->e) == VK_ERROR_VALIDATION_FAILED_EXT &&
         strstr(a->e.text, "offset of an input"));
    bad = b[0];
    bad.weights.buffer = VK_NULL_HANDLE;
    MUST(one_vk_use(m->run[0], &bad, &a->e) == VK_ERROR_VALIDATION_FAILED_EXT &&
         strstr(a->e.text, "the weights"));
    /* weights: the array of "one", the file of "two" */
    {
        struct one_vk_upload u;
        struct two_vk_upload u2;
        size_t n;
        void *file = read_file(a, "two/" TWO_VK_WEIGHTS_FILE, &n);
        char *mapped = (char *)m->host.mapped + m->staging_at[RUNS];
        MUST(file && begin(a));
        memset(&u, 0, sizeof u), memset(&u2, 0, sizeof u2);
        u.commands = u2.commands = a->commands;
        u.mapped = mapped, u2.mapped = mapped + ONE_VK_WEIGHTS;
        u.staging.buffer = u2.staging.buffer = m->host.buffer;
        u.staging.offset = m->staging_at[RUNS],
        u2.staging.offset = m->staging_at[RUNS] + ONE_VK_WEIGHTS;
        u.weights = b[0].weights;
        u2.weights.buffer = b2.weights.buffer, u2.weights.offset = b2.weights.offset;
        MUST(one_vk_upload_weights(m->one, &u, &a->e) == VK_SUCCESS);
        MUST(two_vk_upload_weights(m->two, &u2, &e2) == VK_ERROR_VALIDATION_FAILED_EXT &&
             strstr(e2.text, TWO_VK_WEIGHTS_FILE));
        u2.data = file, u2.bytes = n - 1;
        MUST(two_vk_upload_weights(m->two, &u2, &e2) == VK_ERROR_VALIDATION_FAILED_EXT &&
             strstr(e2.text, "not those of this export"));
        u2.bytes = n;
        ((char *)file)[n / 2] ^= 1;
        MUST(two_vk_upload_weights(m->two, &u2, &e2) == VK_ERROR_VALIDATION_FAILED_EXT);
        ((char *)file)[n / 2] ^= 1;
        MUST(two_vk_upload_weights(m->two, &u2, &e2) == VK_SUCCESS);
        free(file);
        MUST(!failed(a, vkEndCommandBuffer(a->commands), "vkEndCommandBuffer") && submit(a));
    }
}

/* All of them in a row: a barrier before the first and after the last one. */
static void record_runs(struct app *a, struct many *m)
{
    struct one_vk_record_info info;
    struct two_vk_record_info info2;
    VkBufferCopy part;
    VkMemoryBarrier barrier;
    int k;
    MUST(begin(a));
    for (k = 0; k < RUNS; k++) {
        part.srcOffset = m->staging_at[k], part.dstOffset = m->in_at[k], part.size = m->in[k].bytes;
        vkCmdCopyBuffer(a->commands, m->host.buffer, m->all.buffer, 1, &part);
    }
    memset(&info, 0, sizeof info), memset(&info2, 0, sizeof info2);
    info.commands = info2.commands = a->commands;
    info.no_barrier_after = VK_TRUE;
    one_vk_record(m->run[0], &info);
    info.no_barrier_before = VK_TRUE;
    one_vk_record(m->run[1], &info);
    two_vk_record(m->run2, &info2); /* with both */
    two_vk_record(m->run2, &info2);
    for (k = 0; k < RUNS; k++) {
        part.srcOffset = m->out_at[k], part.dstOffset = m->staging_at[k] + m->in[k].bytes,
        part.size = m->out[k].bytes;
        vkCmdCopyBuffer(a->commands, m->all.buffer, m->host.buffer, 1, &part);
    }
    memset(&barrier, 0, sizeof barrier);
    barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
    barrier.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
    barrier.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
    vkCmdPipelineBarrier(a->commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0,
                         1, &barrier, 0, NULL, 0, NULL);
    MUST(!failed(a, vkEndCommandBuffer(a->commands), "vkEndCommandBuffer"));
}

static void run_all(struct app *a, struct many *m, const char *prefix)
{
    char path[256];
    int k, round;
    record_runs(a, m);
    for (k = 0; k < RUNS; k++)
        fill_random(&m->in[k], (char *)m->host.mapped + m->staging_at[k], (uint32_t)k + 1);
    for (round = 0; round < 2; round++) MUST(submit(a)); /* the same commands again */
    for (k = 0; k < RUNS; k++) {
        const char *at = (const char *)m->host.mapped + m->staging_at[k];
        snprintf(path, sizeof path, "%s%d", prefix, k);
        a->o.output = path;
        MUST(write_npy(a, "in", 0, &m->in[k], at) &&
             write_npy(a, "out", 0, &m->out[k], at + m->in[k].bytes));
    }
}

static void refuse(struct app *a)
{
    struct one_vk_create_info info = info_of(a, NULL);
    struct one_vk *net = NULL;
    struct one_vk_run *run = NULL;
    struct one_vk_sizes sizes = a->o.sizes;
    MUST(one_vk_create(&info, &net, NULL) == VK_SUCCESS);
    sizes.H = INT64_C(1) << 40, sizes.W = INT64_C(1) << 40;
    MUST(one_vk_bind(net, &sizes, &run, &a->e) == VK_ERROR_VALIDATION_FAILED_EXT && !run);
    sizes.H = sizes.W = 1 << 20;
    MUST(one_vk_bind(net, &sizes, &run, &a->e) != VK_SUCCESS && !run);
    sizes.H = sizes.W = 1 << 14;
    MUST(one_vk_bind(net, &sizes, &run, &a->e) == VK_ERROR_FEATURE_NOT_PRESENT &&
         strstr(a->e.text, "the device binds at most"));
    sizes.H = 33, sizes.W = 20;
    MUST(one_vk_bind(net, &sizes, &run, &a->e) == VK_ERROR_VALIDATION_FAILED_EXT &&
         strstr(a->e.text, "needs H to be a multiple of 2"));
    sizes.H = -2;
    MUST(one_vk_bind(net, &sizes, &run, NULL) == VK_ERROR_VALIDATION_FAILED_EXT);
    one_vk_destroy(net);
}

int main(int argc, char **argv)
{
    static struct app app, *a = &app;
    static struct many many, *m = &many;
    if (argc != 6) return 2;
    a->o.validate = 1, a->o.sizes.H = atoi(argv[2]), a->o.sizes.W = atoi(argv[3]);
    MUST(make_instance(a) && choose_device(a));
    MUST(one_vk_check(vkGetInstanceProcAddr, a->instance, VK_API_VERSION_1_0,
                      a->facts.physical_device, &a->facts, &a->e) != VK_SUCCESS);
    MUST(strstr(a->e.text, "Vulkan 1.0"));
    MUST(choose_device(a));
    make_both(a, m);
    refuse(a);
    fail_allocations(a);
    bind_runs(a, m, argv + 2);
    use_buffers(a, m);
    run_all(a, m, argv[1]);
    one_vk_buffer_destroy(m->one, &m->all), one_vk_buffer_destroy(m->one, &m->host);
    one_vk_unbind(m->run[0]), one_vk_unbind(m->run[1]), two_vk_unbind(m->run2);
    one_vk_destroy(m->one), two_vk_destroy(m->two);
    end(a);
    return a->n_complaints != 0;
}
