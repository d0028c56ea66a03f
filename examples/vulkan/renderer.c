// SPDX-License-Identifier: Apache-2.0
//
// A renderer that denoises its pictures by a network, on its own device, queue and buffers of
// Vulkan (quern_vulkan_attach). It has no window and no shaders: the CPU draws a sphere with few
// samples per pixel, as a path tracer would, into staging memory. A frame is three submissions to
// one queue: copy to the device, network, copy back. Two frames are in flight; a fence at the end
// of a frame tells when it is done, and nothing else waits.
//
//     quern zoo dct-denoise -o net.onnx
//     quern compile net.onnx --device vulkan --optimize-for=H:144,W:192 -o net.dnx
//     renderer net.dnx [FRAMES [noisy.pfm denoised.pfm]]
//
// The network has one input and one output, f32 (1, 3, H, W). Only the runtime is linked
// (libquern_rt); errors end the program.
#include <math.h>
#include <quern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vulkan/vulkan.h>

enum { WIDTH = 192, HEIGHT = 144, PIXELS = WIDTH * HEIGHT, BYTES = 3 * PIXELS * 4, IN_FLIGHT = 2 };

struct buffer {
    VkBuffer buffer;
    VkDeviceMemory memory;
    float *mapped; /* (3, H, W) */
};

struct frame {
    struct buffer noisy, denoised; /* visible to the host */
    struct buffer colour, result;  /* the device's */
    VkCommandBuffer before, after;
    VkFence done;
    struct quern_vulkan_buffer in, out;
};

static struct { /* the renderer */
    VkInstance instance;
    VkPhysicalDevice gpu;
    uint32_t family;
    VkDevice device;
    VkQueue queue;
    VkCommandPool pool;
    struct frame frame[IN_FLIGHT];
    quern *q;
    quern_program *net;
} r;

static void check(VkResult x, const char *what)
{
    if (x == VK_SUCCESS) return;
    fprintf(stderr, "%s: VkResult %d\n", what, (int)x);
    exit(1);
}

static void check_quern(quern_status s)
{
    if (!s) return;
    fprintf(stderr, "%s\n", quern_error(r.q));
    exit(s);
}

/* The device: the renderer's, with the features that kernels can use. */

static void open_device(void)
{
    float priority = 1;
    uint32_t n = 1;
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo instance = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                     .pApplicationInfo = &app};
    check(vkCreateInstance(&instance, NULL, &r.instance), "vkCreateInstance");
    VkResult x = vkEnumeratePhysicalDevices(r.instance, &n, &r.gpu);
    if (n == 0) check(VK_ERROR_INITIALIZATION_FAILED, "no device");
    if (x != VK_INCOMPLETE) check(x, "vkEnumeratePhysicalDevices");
    VkQueueFamilyProperties v[32];
    n = 32;
    vkGetPhysicalDeviceQueueFamilyProperties(r.gpu, &n, v);
    while (r.family + 1 < n && !(v[r.family].queueFlags & VK_QUEUE_COMPUTE_BIT)) r.family++;

    struct quern_vulkan mine = QUERN_OPTS(quern_vulkan);
    mine.instance = r.instance, mine.physical_device = r.gpu, mine.version = app.apiVersion;
    mine.get_instance_proc_addr = (PFN_vkVoidFunction)vkGetInstanceProcAddr;
    struct quern_vulkan_requirements need = QUERN_OPTS(quern_vulkan_requirements);
    check_quern(quern_vulkan_requirements(r.q, &mine, &need));
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = r.family,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext =
                                   need.chain, /* a renderer sets the features that it needs, too */
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = need.n_extensions,
                               .ppEnabledExtensionNames = need.extensions};
    check(vkCreateDevice(r.gpu, &info, NULL, &r.device), "vkCreateDevice");
    vkGetDeviceQueue(r.device, r.family, 0, &r.queue);
    mine.device = r.device, mine.queue = r.queue, mine.family = r.family;
    mine.create_info = &info;
    check_quern(quern_vulkan_attach(r.q, &mine));
}

static uint32_t find_memory(uint32_t allowed, VkMemoryPropertyFlags want)
{
    VkPhysicalDeviceMemoryProperties m;
    vkGetPhysicalDeviceMemoryProperties(r.gpu, &m);
    for (uint32_t i = 0; i < m.memoryTypeCount; i++)
        if (allowed >> i & 1 && (m.memoryTypes[i].propertyFlags & want) == want) return i;
    check(VK_ERROR_OUT_OF_DEVICE_MEMORY, "no memory of this kind");
    return 0;
}

static struct buffer make_buffer(int for_host)
{
    struct buffer b = {0};
    void *p = NULL;
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = BYTES,
                               .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryRequirements need;
    check(vkCreateBuffer(r.device, &info, NULL, &b.buffer), "vkCreateBuffer");
    vkGetBufferMemoryRequirements(r.device, b.buffer, &need);
    VkMemoryAllocateInfo memory = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .allocationSize = need.size,
        .memoryTypeIndex =
            find_memory(need.memoryTypeBits, for_host ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                                            VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                                                      : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)};
    check(vkAllocateMemory(r.device, &memory, NULL, &b.memory), "vkAllocateMemory");
    check(vkBindBufferMemory(r.device, b.buffer, b.memory, 0), "vkBindBufferMemory");
    if (for_host) check(vkMapMemory(r.device, b.memory, 0, VK_WHOLE_SIZE, 0, &p), "vkMapMemory");
    b.mapped = p;
    return b;
}

static void destroy_buffer(struct buffer *b)
{
    vkDestroyBuffer(r.device, b->buffer, NULL);
    vkFreeMemory(r.device, b->memory, NULL);
}

/* Frames. */

static VkCommandBuffer record_copy(struct buffer *from, struct buffer *to)
{
    VkCommandBuffer c;
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = r.pool,
                                        .commandBufferCount = 1};
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkBufferCopy all = {0, 0, BYTES};
    VkMemoryBarrier seen = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                            .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                            .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    check(vkAllocateCommandBuffers(r.device, &info, &c), "vkAllocateCommandBuffers");
    check(vkBeginCommandBuffer(c, &begin), "vkBeginCommandBuffer");
    vkCmdCopyBuffer(c, from->buffer, to->buffer, 1, &all);
    vkCmdPipelineBarrier(c, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &seen,
                         0, NULL, 0, NULL);
    check(vkEndCommandBuffer(c), "vkEndCommandBuffer");
    return c;
}

static void make_frame(struct frame *f)
{
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO,
                               .flags = VK_FENCE_CREATE_SIGNALED_BIT};
    f->noisy = make_buffer(1), f->denoised = make_buffer(1);
    f->colour = make_buffer(0), f->result = make_buffer(0);
    f->before = record_copy(&f->noisy, &f->colour);
    f->after = record_copy(&f->result, &f->denoised);
    check(vkCreateFence(r.device, &fence, NULL, &f->done), "vkCreateFence");
    f->in = (struct quern_vulkan_buffer){(uint64_t)f->colour.buffer, 0, BYTES};
    f->out = (struct quern_vulkan_buffer){(uint64_t)f->result.buffer, 0, BYTES};
}

static void submit(VkCommandBuffer c, VkFence fence)
{
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &c};
    check(vkQueueSubmit(r.queue, 1, &info, fence), "vkQueueSubmit");
}

static struct quern_array picture(struct quern_vulkan_buffer *at)
{
    return (struct quern_array){.type = QUERN_F32,
                                .rank = 4,
                                .dim = {1, 3, HEIGHT, WIDTH},
                                .stride = {3 * PIXELS, PIXELS, WIDTH, 1},
                                .data = at};
}

static void submit_frame(struct frame *f)
{
    struct quern_array in = picture(&f->in), out = picture(&f->out);
    check(vkResetFences(r.device, 1, &f->done), "vkResetFences");
    submit(f->before, VK_NULL_HANDLE);
    check_quern(quern_enqueue(r.net, &in, 1, &out, 1, NULL));
    submit(f->after, f->done);
}

static void wait_for(struct frame *f)
{
    check(vkWaitForFences(r.device, 1, &f->done, VK_TRUE, UINT64_MAX), "vkWaitForFences");
}

/* The picture: a lit sphere before a sky, and what few samples make of it. */

static float shade(int x, int y, int channel, double turn)
{
    static const double colour[3] = {0.9, 0.5, 0.2}, sky[3] = {0.3, 0.45, 0.7};
    double u = (x + 0.5 - WIDTH / 2.0) / 55, v = (y + 0.5 - HEIGHT / 2.0) / 55, d = u * u + v * v;
    if (d > 1) return (float)(sky[channel] * (1 - 0.5 * y / HEIGHT));
    double z = sqrt(1 - d), light = u * cos(turn) * 0.6 - v * 0.5 + z * 0.6;
    return (float)(colour[channel] * (0.1 + (light > 0 ? light : 0)));
}

/* An estimate of few samples. */
static float sample(float exact, uint32_t *state)
{
    float sum = 0;
    for (int k = 0; k < 4; k++) {
        *state = *state * 1664525u + 1013904223u;
        sum += (float)(*state >> 8) / (1 << 23); /* 0 to 2 */
    }
    return exact * sum / 4;
}

static void draw(float *to, int frame)
{
    uint32_t state = (uint32_t)frame * 2654435761u + 1;
    for (int i = 0; i < 3 * PIXELS; i++)
        to[i] = sample(shade(i % WIDTH, i / WIDTH % HEIGHT, i / PIXELS, frame * 0.2), &state);
}

static double psnr(const float *x, int frame)
{
    double sum = 0;
    for (int i = 0; i < 3 * PIXELS; i++) {
        double d = x[i] - shade(i % WIDTH, i / WIDTH % HEIGHT, i / PIXELS, frame * 0.2);
        sum += d * d;
    }
    return -10 * log10(sum / (3 * PIXELS));
}

static void write_picture(const char *path, const float *x)
{
    FILE *f = fopen(path, "wb");
    if (!f) check(VK_ERROR_INITIALIZATION_FAILED, path);
    fprintf(f, "PF\n%d %d\n-1\n", WIDTH, HEIGHT);
    for (int y = HEIGHT - 1; y >= 0; y--)
        for (int i = y * WIDTH; i < (y + 1) * WIDTH; i++)
            for (int c = 0; c < 3; c++) fwrite(&x[c * PIXELS + i], 4, 1, f);
    if (fclose(f)) check(VK_ERROR_INITIALIZATION_FAILED, path);
}

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void close_all(void)
{
    quern_program_close(r.net); /* before its device */
    for (int i = 0; i < IN_FLIGHT; i++) {
        struct frame *f = &r.frame[i];
        vkDestroyFence(r.device, f->done, NULL);
        destroy_buffer(&f->noisy), destroy_buffer(&f->denoised);
        destroy_buffer(&f->colour), destroy_buffer(&f->result);
    }
    vkDestroyCommandPool(r.device, r.pool, NULL);
    vkDestroyDevice(r.device, NULL);
    vkDestroyInstance(r.instance, NULL);
    quern_close(r.q);
}

int main(int argc, char **argv)
{
    int frames = argc > 2 ? atoi(argv[2]) : 10;
    if (argc < 2 || argc > 5 || frames < 1) {
        fprintf(stderr, "usage: renderer NET.dnx [FRAMES [noisy.pfm denoised.pfm]]\n");
        return 2;
    }
    r.q = quern_open(NULL);
    open_device();
    check_quern(quern_program_open(r.q, argv[1], NULL, &r.net));
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .queueFamilyIndex = r.family};
    check(vkCreateCommandPool(r.device, &pool, NULL, &r.pool), "vkCreateCommandPool");
    for (int i = 0; i < IN_FLIGHT; i++) make_frame(&r.frame[i]);

    double start = 0;
    for (int i = 0; i < frames; i++) {
        struct frame *f = &r.frame[i % IN_FLIGHT];
        wait_for(f); /* of two frames ago: from here on its picture could be shown */
        draw(f->noisy.mapped, i);
        submit_frame(f);
        if (i == 0) wait_for(f), start = now(); /* the first run takes memory */
    }
    struct frame *last = &r.frame[(frames - 1) % IN_FLIGHT];
    wait_for(last);
    if (frames > 1) printf("%.2f ms per frame\n", (now() - start) * 1e3 / (frames - 1));
    printf("noisy %.1f dB, denoised %.1f dB\n", psnr(last->noisy.mapped, frames - 1),
           psnr(last->denoised.mapped, frames - 1));
    if (argc > 3) write_picture(argv[3], last->noisy.mapped);
    if (argc > 4) write_picture(argv[4], last->denoised.mapped);
    for (int i = 0; i < IN_FLIGHT; i++) wait_for(&r.frame[i]);
    close_all();
    return 0;
}
