// SPDX-License-Identifier: Apache-2.0
//
// The caller's own device of Vulkan (quern_vulkan_attach): this program makes instance, device,
// queue, buffers and commands itself, under the validation layer with synchronisation where it is
// installed. Programs on its buffers yield what they yield elsewhere, in the order of its
// submissions; buffers come and go; kernels use the enabled features only; wrong arguments are
// errors; nothing is left when the device is destroyed.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>

#include <cmocka.h>

#include "skip.h"

#define VK_NO_PROTOTYPES
#include "core/core.h"
#include "quern.h"

#include <vulkan/vulkan_core.h>

enum { C = 3, MAX_ELEMENTS = C * 64 * 64, ALIGN = 256 };

#define CALLS(X)                                                                                   \
    X(DestroyInstance)                                                                             \
    X(EnumeratePhysicalDevices)                                                                    \
    X(GetPhysicalDeviceProperties) X(GetPhysicalDeviceQueueFamilyProperties) X(CreateDevice)       \
        X(GetPhysicalDeviceMemoryProperties) X(DestroyDevice) X(GetDeviceQueue) X(CreateBuffer)    \
            X(DestroyBuffer) X(GetBufferMemoryRequirements) X(AllocateMemory) X(FreeMemory)        \
                X(BindBufferMemory) X(MapMemory) X(CreateCommandPool) X(DestroyCommandPool)        \
                    X(AllocateCommandBuffers) X(BeginCommandBuffer) X(EndCommandBuffer)            \
                        X(CmdCopyBuffer) X(CmdPipelineBarrier) X(QueueSubmit) X(CreateFence)       \
                            X(DestroyFence) X(WaitForFences) X(ResetFences)                        \
                                X(CreateDebugUtilsMessengerEXT) X(DestroyDebugUtilsMessengerEXT)

struct app {
    void *lib;
    PFN_vkGetInstanceProcAddr find;
#define X(name) PFN_vk##name name;
    CALLS(X)
#undef X
    VkInstance instance;
    VkDebugUtilsMessengerEXT messenger;
    long n_complaints;
    VkPhysicalDevice gpu;
    VkPhysicalDeviceMemoryProperties memory;
    uint32_t family;
    VkDevice device;
    VkQueue queue;
    VkCommandPool pool;
    VkCommandBuffer commands[2];
    VkFence fence;
    pthread_mutex_t mutex;
    long n_locks;
};

struct range { /* a buffer of the app's, visible to the host */
    VkBuffer buffer;
    VkDeviceMemory memory;
    char *mapped;
};

#define MUST(call)                                                                                 \
    do {                                                                                           \
        VkResult r_ = (call);                                                                      \
        if (r_ != VK_SUCCESS) fail_msg("%s: %d", #call, (int)r_);                                  \
    } while (0)
#define OK(q, call)                                                                                \
    do {                                                                                           \
        quern_status s_ = (call);                                                                  \
        if (s_) fail_msg("%s: %d: %s", #call, (int)s_, quern_error(q));                            \
    } while (0)

static char folder[] = "/tmp/quern-attach-XXXXXX", graph_path[64], dnx_path[64];

/* The app's Vulkan. */

static VKAPI_ATTR VkBool32 VKAPI_CALL complain(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                               VkDebugUtilsMessageTypeFlagsEXT type,
                                               const VkDebugUtilsMessengerCallbackDataEXT *data,
                                               void *user)
{
    ((struct app *)user)->n_complaints++;
    fprintf(stderr, "validation: %s\n", data->pMessage);
    return VK_FALSE;
}

static bool has_layer(struct app *a, const char *name)
{
    PFN_vkEnumerateInstanceLayerProperties list =
        (PFN_vkEnumerateInstanceLayerProperties)a->find(NULL, "vkEnumerateInstanceLayerProperties");
    VkLayerProperties v[64];
    uint32_t n = countof(v);
    bool found = false;
    list(&n, v);
    for (uint32_t i = 0; i < n; i++) found |= strcmp(v[i].layerName, name) == 0;
    return found;
}

static void make_instance(struct app *a)
{
    static const char *const layer = "VK_LAYER_KHRONOS_validation",
                             *const extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    static const VkValidationFeatureEnableEXT sync =
        VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
    bool validates = has_layer(a, layer);
    VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT |
                           VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        .pfnUserCallback = complain,
        .pUserData = a};
    VkValidationFeaturesEXT features = {.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                        .pNext = &messenger,
                                        .enabledValidationFeatureCount = 1,
                                        .pEnabledValidationFeatures = &sync};
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pNext = validates ? &features : NULL,
                                 .pApplicationInfo = &app,
                                 .enabledLayerCount = validates,
                                 .ppEnabledLayerNames = &layer,
                                 .enabledExtensionCount = validates,
                                 .ppEnabledExtensionNames = &extension};
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)a->find(NULL, "vkCreateInstance");
    if (create(&info, NULL, &a->instance) != VK_SUCCESS)
        skip_test("no driver of Vulkan (Debian: mesa-vulkan-drivers)");
#define X(name) a->name = (PFN_vk##name)a->find(a->instance, "vk" #name);
    CALLS(X)
#undef X
    if (validates)
        MUST(a->CreateDebugUtilsMessengerEXT(a->instance, &messenger, NULL, &a->messenger));
}

static void choose_gpu(struct app *a)
{
    VkPhysicalDevice v[8];
    VkQueueFamilyProperties family[32];
    uint32_t n = countof(v);
    if (a->EnumeratePhysicalDevices(a->instance, &n, v) < 0 || !n)
        skip_test("no device of Vulkan (Debian: mesa-vulkan-drivers)");
    a->gpu = v[0];
    a->GetPhysicalDeviceMemoryProperties(a->gpu, &a->memory);
    n = countof(family);
    a->GetPhysicalDeviceQueueFamilyProperties(a->gpu, &n, family);
    while (a->family + 1 < n && !(family[a->family].queueFlags & VK_QUEUE_COMPUTE_BIT)) a->family++;
}

/* Keeps the driver and the layer loaded until the process ends: what they keep is told from ours by
   their names. */
static struct app *keeper;

static struct app *make_app(void)
{
    struct err e = {0};
    struct app *a = mem_alloc(sizeof *a);
    a->lib = os_dlopen("libvulkan.so.1", &e);
    if (!a->lib) skip_test("no loader of Vulkan (Debian: libvulkan1)");
    void *f = os_dlsym(a->lib, "vkGetInstanceProcAddr");
    memcpy(&a->find, &f, sizeof f);
    pthread_mutex_init(&a->mutex, NULL);
    make_instance(a);
    choose_gpu(a);
    return a;
}

static struct app *app_open(void)
{
    if (!keeper) keeper = make_app();
    return make_app();
}

static void lock(void *user)
{
    struct app *a = user;
    pthread_mutex_lock(&a->mutex);
    a->n_locks++;
}

static void unlock(void *user) { pthread_mutex_unlock(&((struct app *)user)->mutex); }

static struct quern_vulkan handles(struct app *a, const VkDeviceCreateInfo *made)
{
    struct quern_vulkan v = QUERN_OPTS(quern_vulkan);
    v.instance = a->instance, v.physical_device = a->gpu, v.device = a->device, v.queue = a->queue;
    v.family = a->family, v.version = VK_API_VERSION_1_3;
    v.get_instance_proc_addr = (void (*)(void))a->find;
    v.create_info = made;
    v.lock = lock, v.unlock = unlock, v.user = a;
    return v;
}

/* A device with these extensions and features, attached to the context. */
static void make_device(struct app *a, quern *q, VkDeviceCreateInfo *info)
{
    static const float priority = 1;
    static VkDeviceQueueCreateInfo queue;
    queue = (VkDeviceQueueCreateInfo){.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                      .queueFamilyIndex = a->family,
                                      .queueCount = 1,
                                      .pQueuePriorities = &priority};
    info->sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info->queueCreateInfoCount = 1, info->pQueueCreateInfos = &queue;
    MUST(a->CreateDevice(a->gpu, info, NULL, &a->device));
    a->GetDeviceQueue(a->device, a->family, 0, &a->queue);
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = a->family};
    MUST(a->CreateCommandPool(a->device, &pool, NULL, &a->pool));
    VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = a->pool,
                                            .commandBufferCount = countof(a->commands)};
    MUST(a->AllocateCommandBuffers(a->device, &commands, a->commands));
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    MUST(a->CreateFence(a->device, &fence, NULL, &a->fence));
    struct quern_vulkan v = handles(a, info);
    OK(q, quern_vulkan_attach(q, &v));
}

/* With all that the library can use. */
static void make_full_device(struct app *a, quern *q)
{
    struct quern_vulkan v = handles(a, NULL);
    struct quern_vulkan_requirements need = QUERN_OPTS(quern_vulkan_requirements);
    OK(q, quern_vulkan_requirements(q, &v, &need));
    VkDeviceCreateInfo info = {.pNext = need.chain,
                               .enabledExtensionCount = need.n_extensions,
                               .ppEnabledExtensionNames = need.extensions};
    make_device(a, q, &info);
}

static void drop_device(struct app *a)
{
    a->DestroyFence(a->device, a->fence, NULL);
    a->DestroyCommandPool(a->device, a->pool, NULL);
    a->DestroyDevice(a->device, NULL);
    a->device = NULL;
}

static void app_close(struct app *a)
{
    if (a->device) drop_device(a); /* the layer reports what was left */
    long n = a->n_complaints;
    if (a->messenger) a->DestroyDebugUtilsMessengerEXT(a->instance, a->messenger, NULL);
    a->DestroyInstance(a->instance, NULL);
    os_dlclose(a->lib);
    mem_free(a);
    assert_int_equal(n, 0);
}

static struct range make_range(struct app *a, i64 bytes)
{
    struct range r;
    void *p;
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = (VkDeviceSize)bytes,
                               .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryRequirements need;
    const VkMemoryPropertyFlags want =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    MUST(a->CreateBuffer(a->device, &info, NULL, &r.buffer));
    a->GetBufferMemoryRequirements(a->device, r.buffer, &need);
    VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .allocationSize = need.size};
    while (!(need.memoryTypeBits >> memory.memoryTypeIndex & 1) ||
           (a->memory.memoryTypes[memory.memoryTypeIndex].propertyFlags & want) != want)
        memory.memoryTypeIndex++;
    MUST(a->AllocateMemory(a->device, &memory, NULL, &r.memory));
    MUST(a->BindBufferMemory(a->device, r.buffer, r.memory, 0));
    MUST(a->MapMemory(a->device, r.memory, 0, VK_WHOLE_SIZE, 0, &p));
    r.mapped = p;
    return r;
}

static void drop_range(struct app *a, struct range *r)
{
    a->DestroyBuffer(a->device, r->buffer, NULL);
    a->FreeMemory(a->device, r->memory, NULL);
}

/* Copies in the queue, between two barriers or none; the last one signals the fence. */
static void put_copy(struct app *a, int k, VkBuffer from, VkBuffer to, VkBufferCopy part,
                     bool is_last)
{
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkMemoryBarrier m = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                         .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                         .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .commandBufferCount = 1,
                           .pCommandBuffers = &a->commands[k]};
    MUST(a->BeginCommandBuffer(a->commands[k], &begin));
    a->CmdCopyBuffer(a->commands[k], from, to, 1, &part);
    if (is_last)
        a->CmdPipelineBarrier(a->commands[k], VK_PIPELINE_STAGE_TRANSFER_BIT,
                              VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &m, 0, NULL, 0, NULL);
    MUST(a->EndCommandBuffer(a->commands[k]));
    pthread_mutex_lock(&a->mutex);
    MUST(a->QueueSubmit(a->queue, 1, &submit, is_last ? a->fence : VK_NULL_HANDLE));
    pthread_mutex_unlock(&a->mutex);
}

static void wait(struct app *a)
{
    MUST(a->WaitForFences(a->device, 1, &a->fence, VK_TRUE, UINT64_MAX));
    MUST(a->ResetFences(a->device, 1, &a->fence));
}

/* Programs. */

static void compile(quern *q, const char *type, quern_program **out)
{
    struct quern_model_opts m = QUERN_OPTS(quern_model_opts);
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    struct quern_io_opts io[2] = {{.type = type}, {.is_output = 1, .type = type}};
    quern_model *model;
    m.io = io, m.n_io = type ? 2 : 0;
    o.device = "vulkan";
    OK(q, quern_model_open(q, graph_path, &m, &model));
    OK(q, quern_compile(model, NULL, &o, out));
    quern_model_close(model);
}

static struct quern_array array(const struct quern_vulkan_buffer *at, i64 h, i64 w)
{
    return (struct quern_array){.type = QUERN_F32,
                                .rank = 4,
                                .dim = {1, C, h, w},
                                .stride = {C * h * w, h * w, w, 1},
                                .data = (void *)(uintptr_t)at};
}

static void fill(float *x, i64 n, u64 seed)
{
    struct rng r = rng_seed(seed);
    for (i64 i = 0; i < n; i++) x[i] = (float)(rng_u64(&r) % 1024) / 512 - 1;
}

/* What the program yields on arrays in host memory. */
static void run_host(quern *q, quern_program *p, const float *x, float *y, i64 h, i64 w)
{
    quern_tensor *in, *out;
    i64 dim[4] = {1, C, h, w};
    OK(q, quern_tensor_view(q, QUERN_F32, 4, dim, (void *)(uintptr_t)x, &in));
    OK(q, quern_tensor_view(q, QUERN_F32, 4, dim, y, &out));
    OK(q, quern_run(p, &in, 1, &out, 1));
    quern_tensor_free(in);
    quern_tensor_free(out);
}

/* Copy to the input, program, copy from the output, without waiting in between. */
static void run_queue(struct app *a, quern *q, quern_program *p, i64 h, i64 w, u64 seed, float *y)
{
    i64 bytes = C * h * w * 4, room = round_up(bytes, ALIGN);
    struct range host = make_range(a, 2 * room), own = make_range(a, 3 * room + ALIGN);
    struct quern_vulkan_buffer from = {(u64)own.buffer, ALIGN, (u64)room},
                               to = {(u64)own.buffer, (u64)(ALIGN + 2 * room), (u64)room};
    struct quern_array x = array(&from, h, w), z = array(&to, h, w);
    fill((float *)(void *)host.mapped, C * h * w, seed);
    memset(own.mapped, 0xff, (size_t)(3 * room + ALIGN));
    put_copy(a, 0, host.buffer, own.buffer, (VkBufferCopy){0, ALIGN, (VkDeviceSize)bytes}, false);
    OK(q, quern_enqueue(p, &x, 1, &z, 1, NULL));
    put_copy(a, 1, own.buffer, host.buffer,
             (VkBufferCopy){to.offset, (VkDeviceSize)room, (VkDeviceSize)bytes}, true);
    wait(a);
    memcpy(y, host.mapped + room, (size_t)bytes);
    drop_range(a, &own);
    drop_range(a, &host);
}

static float x_[MAX_ELEMENTS], want_[MAX_ELEMENTS], got_[MAX_ELEMENTS];

static void check(struct app *a, quern *q, quern_program *p, quern *q2, quern_program *p2)
{
    static const i64 sizes[][2] = {{8, 12}, {8, 12}, {33, 17}, {8, 12}, {1, 1}, {64, 64}};
    for (i64 i = 0; i < countof(sizes); i++) {
        i64 h = sizes[i][0], w = sizes[i][1];
        fill(x_, C * h * w, (u64)i);
        run_host(q2, p2, x_, want_, h, w);
        run_queue(a, q, p, h, w, (u64)i, got_);
        assert_memory_equal(want_, got_, (size_t)(C * h * w * 4));
        if (i % 2) continue;
        memset(got_, 0, sizeof got_);
        run_host(q, p, x_, got_, h, w); /* in between */
        assert_memory_equal(want_, got_, (size_t)(C * h * w * 4));
    }
}

/* The same program on the caller's device and on the library's. */
static void test_own_buffers(void **state)
{
    struct app *a = app_open();
    quern *q = quern_open(NULL), *q2 = quern_open(NULL);
    quern_program *p, *p2, *again;
    make_full_device(a, q);
    compile(q, NULL, &p);
    OK(q, quern_program_save(p, dnx_path));
    OK(q2, quern_program_open(q2, dnx_path, NULL, &p2));
    OK(q, quern_program_open(q, dnx_path, NULL, &again));
    check(a, q, p, q2, p2);
    check(a, q, again, q2, p2);
    assert_true(a->n_locks > 0);
    quern_program_close(again);
    /* detached: open programs keep the device, new ones are on another */
    OK(q, quern_vulkan_attach(q, NULL));
    OK(q, quern_program_open(q, dnx_path, NULL, &again));
    long n = a->n_locks;
    run_host(q, again, x_, got_, 8, 8);
    assert_int_equal(a->n_locks, n);
    run_host(q, p, x_, got_, 8, 8);
    assert_true(a->n_locks > n);
    struct quern_vulkan_buffer at = {1, 0, 1 << 20};
    struct quern_array y = array(&at, 8, 8);
    assert_int_equal(quern_enqueue(again, &y, 1, &y, 1, NULL), QUERN_UNSUPPORTED);
    assert_non_null(strstr(quern_error(q), "quern_vulkan_attach"));
    quern_program_close(again);
    quern_program_close(p);
    quern_program_close(p2);
    quern_close(q);
    quern_close(q2);
    app_close(a);
}

/* Contexts in threads that share the queue. */

struct worker {
    struct app *a;
    quern *q;
    u64 seed;
    struct range r;
    pthread_t thread;
};

static void *work(void *user)
{
    struct worker *x = user;
    struct quern_run_opts o = QUERN_OPTS(quern_run_opts);
    quern_program *p;
    struct quern_vulkan_buffer from = {(u64)x->r.buffer, 0, 1 << 14},
                               to = {(u64)x->r.buffer, 1 << 14, 1 << 14};
    struct quern_array in = array(&from, 16, 16), out = array(&to, 16, 16);
    o.device = "vulkan";
    if (quern_program_open(x->q, dnx_path, &o, &p)) return "open";
    for (int i = 0; i < 20; i++)
        if (quern_enqueue(p, &in, 1, &out, 1, NULL)) return "enqueue";
    quern_program_close(p); /* waits */
    return NULL;
}

static void test_threads(void **state)
{
    enum { N = 3 };
    struct app *a = app_open();
    struct worker v[N];
    quern *q = quern_open(NULL);
    quern_program *p;
    make_full_device(a, q);
    compile(q, NULL, &p);
    OK(q, quern_program_save(p, dnx_path));
    VkDeviceCreateInfo same = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
    struct quern_vulkan h = handles(a, &same);
    struct quern_vulkan_requirements need = QUERN_OPTS(quern_vulkan_requirements);
    OK(q, quern_vulkan_requirements(q, &h, &need));
    same.pNext = need.chain;
    for (int i = 0; i < N; i++) {
        v[i] = (struct worker){
            .a = a, .q = quern_open(NULL), .seed = (u64)i, .r = make_range(a, 1 << 15)};
        OK(v[i].q, quern_vulkan_attach(v[i].q, &h));
        fill((float *)(void *)v[i].r.mapped, C * 256, (u64)i);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&v[i].thread, NULL, work, &v[i]), 0);
    for (int i = 0; i < N; i++) {
        void *why;
        pthread_join(v[i].thread, &why);
        if (why) fail_msg("%s: %s", (char *)why, quern_error(v[i].q));
        fill(x_, C * 256, (u64)i);
        run_host(q, p, x_, want_, 16, 16);
        assert_memory_equal(want_, v[i].r.mapped + (1 << 14), C * 256 * 4);
        drop_range(a, &v[i].r);
        quern_close(v[i].q);
    }
    quern_program_close(p);
    quern_close(q);
    app_close(a);
}

/* Kernels use what was enabled, said by structures of extensions or of versions. */
static void test_features(void **state)
{
    struct app *a = app_open();
    quern *q = quern_open(NULL);
    quern_program *half, *p = NULL;
    make_full_device(a, q);
    struct quern_vulkan v = handles(a, NULL);
    struct quern_vulkan_requirements need = QUERN_OPTS(quern_vulkan_requirements);
    OK(q, quern_vulkan_requirements(q, &v, &need));
    bool has_half = false;
    for (uint32_t k = 0; k < need.n_features; k++)
        has_half |=
            !strcmp(need.features[k], "VkPhysicalDeviceShaderFloat16Int8Features::shaderFloat16");
    if (!has_half) {
        quern_close(q);
        app_close(a);
        skip_test("the device has no f16");
    }
    compile(q, "f16", &half);
    OK(q, quern_program_save(half, dnx_path));
    quern_program_close(half);
    OK(q, quern_vulkan_attach(q, NULL));
    drop_device(a);
    /* none: the program cannot run, the network can */
    make_device(a, q, &(VkDeviceCreateInfo){0});
    assert_int_equal(quern_program_open(q, dnx_path, NULL, &p), QUERN_UNSUPPORTED);
    assert_non_null(strstr(quern_error(q), "needs the feature"));
    compile(q, "f16", &half);
    quern_tensor *in, *out = NULL;
    OK(q, quern_tensor_new(q, QUERN_F16, 4, (i64[]){1, C, 6, 6}, NULL, &in));
    OK(q, quern_run(half, &in, 1, &out, 1));
    quern_tensor_free(in);
    quern_tensor_free(out);
    quern_program_close(half);
    OK(q, quern_vulkan_attach(q, NULL));
    drop_device(a);
    /* those of versions */
    VkPhysicalDeviceVulkan12Features v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .shaderFloat16 = VK_TRUE};
    VkPhysicalDeviceVulkan11Features v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &v12,
        .storageBuffer16BitAccess = VK_TRUE};
    VkPhysicalDeviceFeatures core = {.shaderInt16 = VK_TRUE};
    make_device(a, q, &(VkDeviceCreateInfo){.pNext = &v11, .pEnabledFeatures = &core});
    OK(q, quern_program_open(q, dnx_path, NULL, &p));
    quern_program_close(p);
    quern_close(q);
    app_close(a);
}

static void refuse(quern *q, quern_status got, const char *what)
{
    if (got != QUERN_USAGE || !strstr(quern_error(q), what))
        fail_msg("%d, '%s' instead of '%s'", (int)got, quern_error(q), what);
}

static void test_wrong_arguments(void **state)
{
    struct app *a = app_open();
    quern *q = quern_open(NULL);
    quern_program *p;
    quern_model *m;
    make_full_device(a, q);
    VkDeviceCreateInfo made = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO},
                       other = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO};
    struct quern_vulkan good = handles(a, &made), v = good;
    assert_int_equal(quern_vulkan_attach(NULL, &v), QUERN_USAGE);
    v.device = NULL, refuse(q, quern_vulkan_attach(q, &v), "VkDevice is NULL"), v = good;
    v.get_instance_proc_addr = NULL,
    refuse(q, quern_vulkan_attach(q, &v), "vkGetInstanceProcAddr is NULL"), v = good;
    v.create_info = &other, refuse(q, quern_vulkan_attach(q, &v), "another sType"), v = good;
    v.unlock = NULL, refuse(q, quern_vulkan_attach(q, &v), "belong together"), v = good;
    v.version = 12, refuse(q, quern_vulkan_attach(q, &v), "apiVersion"), v = good;
    v.family = 77;
    assert_int_equal(quern_vulkan_attach(q, &v), QUERN_UNSUPPORTED);
    /* failures leave what was attached */
    compile(q, NULL, &p);
    struct range r = make_range(a, 1 << 15);
    struct quern_vulkan_buffer from = {(u64)r.buffer, 0, 1 << 14},
                               to = {(u64)r.buffer, 1 << 14, 1 << 14}, bad = from;
    struct quern_array x = array(&from, 8, 8), y = array(&to, 8, 8), z = array(&bad, 8, 8);
    bad.offset = 8, refuse(q, quern_enqueue(p, &z, 1, &y, 1, NULL), "input 'x': offset 8"),
    bad = from;
    bad.size = C * 64 * 4 - 16,
    refuse(q, quern_enqueue(p, &x, 1, &z, 1, NULL),
           "output 'y': 752 bytes of a buffer are given, 768 are needed"),
    bad = from;
    bad.buffer = 0, refuse(q, quern_enqueue(p, &z, 1, &y, 1, NULL), "no buffer"), bad = from;
    z.data = NULL, refuse(q, quern_enqueue(p, &z, 1, &y, 1, NULL), "no buffer");
    refuse(q, quern_enqueue(p, &x, 1, &y, 1, a->queue), "NULL is expected as stream");
    OK(q, quern_enqueue(p, &x, 1, &y, 1, NULL));
    quern_db *db = NULL;
    struct quern_tune_opts t = QUERN_OPTS(quern_tune_opts);
    char path[80];
    snprintf(path, sizeof path, "%s/tune.db", folder);
    t.device = "vulkan";
    OK(q, quern_model_open(q, graph_path, NULL, &m));
    OK(q, quern_db_open(q, path, &db));
    assert_int_equal(quern_tune(db, m, &t), QUERN_UNSUPPORTED);
    assert_non_null(strstr(quern_error(q), "tune in a context without it"));
    quern_db_close(db);
    quern_model_close(m);
    quern_program_close(p);
    drop_range(a, &r);
    quern_close(q);
    app_close(a);
}

int main(void)
{
    static const char graph[] = "graph {\n  input %x: f32[1,3,H,W]\n  const %w: f32[3,3,3,3] = [\n";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_buffers), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_features), cmocka_unit_test(test_wrong_arguments)};
    struct buf b = {0};
    struct err e = {0};
    if (!mkdtemp(folder)) return 1;
    setenv("XDG_CACHE_HOME", folder, 1);
    snprintf(graph_path, sizeof graph_path, "%s/net.graph", folder);
    snprintf(dnx_path, sizeof dnx_path, "%s/net.dnx", folder);
    buf_z(&b, graph);
    for (int i = 0; i < 81; i++) buf_printf(&b, "%s%.3f", i ? ", " : "", (i * 37 % 17 - 8) / 40.0);
    buf_z(&b, "]\n  %p: f32[1,3,H,W] = MaxPool \"pool\"(%x) {kernel_shape=[3,3], pads=[1,1,1,1]}\n"
              "  %c: f32[1,3,H,W] = Conv \"conv\"(%p, %w, _) {kernel_shape=[3,3], "
              "pads=[1,1,1,1]}\n  %y: f32[1,3,H,W] = Mul \"gate\"(%c, %p)\n  output %y\n}\n");
    bool ok = os_write(graph_path, b.p, b.n, &e);
    buf_release(&b);
    int bad = ok ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    os_remove_tree(folder);
    return bad;
}
