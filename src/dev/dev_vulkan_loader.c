// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_loader.c: Vulkan's loader, opened at run time, and an instance of it.
//
// QUERN_VULKAN_LOADER names another library than libvulkan.so.1. With
// QUERN_VULKAN_VALIDATE=1 the Khronos validation layer checks every call; its first
// message is kept, and becomes the error of the next operation that can report one.
#include "dev/dev_vulkan.h"

#include <string.h>

static const char usual_library[] = "libvulkan.so.1";
static const char validation[] = "VK_LAYER_KHRONOS_validation";

#define NEWEST VK_MAKE_API_VERSION(0, 1, 4, 0)

const char *vulkan_result_name(VkResult r)
{
    static const struct {
        VkResult result;
        const char *name;
    } names[] = {
        {VK_NOT_READY, "not ready"},
        {VK_TIMEOUT, "timed out"},
        {VK_INCOMPLETE, "incomplete"},
        {VK_ERROR_OUT_OF_HOST_MEMORY, "out of host memory"},
        {VK_ERROR_OUT_OF_DEVICE_MEMORY, "out of device memory"},
        {VK_ERROR_INITIALIZATION_FAILED, "initialisation failed"},
        {VK_ERROR_DEVICE_LOST, "the device was lost"},
        {VK_ERROR_MEMORY_MAP_FAILED, "memory cannot be mapped"},
        {VK_ERROR_LAYER_NOT_PRESENT, "a layer is not present"},
        {VK_ERROR_EXTENSION_NOT_PRESENT, "an extension is not present"},
        {VK_ERROR_FEATURE_NOT_PRESENT, "a feature is not present"},
        {VK_ERROR_INCOMPATIBLE_DRIVER, "no driver that fits"},
        {VK_ERROR_TOO_MANY_OBJECTS, "too many objects"},
        {VK_ERROR_FRAGMENTED_POOL, "a pool is fragmented"},
        {VK_ERROR_OUT_OF_POOL_MEMORY, "a pool is exhausted"},
        {VK_ERROR_INVALID_SHADER_NV, "the driver refuses the kernel"},
        {VK_ERROR_UNKNOWN, "failed for a reason unknown, perhaps a malformed kernel"},
    };
    for (i64 i = 0; i < countof(names); i++)
        if (names[i].result == r) return names[i].name;
    return r < 0 ? "failed" : "unexpected result";
}

/* Entry points. */

enum level { GLOBAL, INSTANCE, DEVICE };
enum need { MAY, MUST };

static const struct entry {
    enum level level;
    enum need need;
    const char *name;
    size_t at; /* in struct vulkan_calls */
} entries[] = {
#define X(level, need, name) {level, need, "vk" #name, offsetof(struct vulkan_calls, name)},
#include "dev/dev_vulkan.inc"
#undef X
};

static PFN_vkVoidFunction look_up(const struct vulkan_calls *vk, enum level level, void *handle,
                                  const char *name)
{
    if (level == DEVICE) return vk->GetDeviceProcAddr(handle, name);
    return vk->GetInstanceProcAddr(handle, name);
}

static bool load_level(struct vulkan_calls *vk, enum level level, void *handle, struct err *e)
{
    struct arena a = {0};
    bool ok = true;
    for (i64 i = 0; i < countof(entries) && ok; i++) {
        const struct entry *x = &entries[i];
        if (x->level != level) continue;
        PFN_vkVoidFunction f = look_up(vk, level, handle, x->name);
        if (!f) f = look_up(vk, level, handle, str_fmt(&a, "%sKHR", x->name).p);
        memcpy((char *)vk + x->at, &f, sizeof f);
        ok = f || x->need == MAY ||
             err_set(e, ERR_SYSTEM, "the Vulkan library has no '%s'", x->name);
    }
    arena_release(&a);
    return ok;
}

bool vulkan_load_calls(struct vulkan_calls *vk, VkDevice device, struct err *e)
{
    return load_level(vk, DEVICE, device, e);
}

static bool open_library(struct vulkan_loader *l, struct err *e)
{
    const char *path = os_env("QUERN_VULKAN_LOADER");
    l->lib = os_dlopen(path && *path ? path : usual_library, e);
    if (!l->lib) return err_prefix(e, "no Vulkan");
    void *f = os_dlsym(l->lib, "vkGetInstanceProcAddr");
    memcpy(&l->vk.GetInstanceProcAddr, &f, sizeof f);
    if (!f) return err_set(e, ERR_SYSTEM, "the Vulkan library has no 'vkGetInstanceProcAddr'");
    return load_level(&l->vk, GLOBAL, NULL, e);
}

/* The instance. */

static bool has_layer(const struct vulkan_loader *l, const char *name)
{
    struct arena a = {0};
    u32 n = 0;
    bool found = false;
    if (l->vk.EnumerateInstanceLayerProperties(&n, NULL) < 0) n = 0;
    VkLayerProperties *v = arena_array(&a, VkLayerProperties, n + 1);
    if (n && l->vk.EnumerateInstanceLayerProperties(&n, v) < 0) n = 0;
    for (u32 i = 0; i < n; i++) found |= strcmp(v[i].layerName, name) == 0;
    arena_release(&a);
    return found;
}

static bool has_extension(const struct vulkan_loader *l, const char *layer, const char *name)
{
    struct arena a = {0};
    u32 n = 0;
    bool found = false;
    if (l->vk.EnumerateInstanceExtensionProperties(layer, &n, NULL) < 0) n = 0;
    VkExtensionProperties *v = arena_array(&a, VkExtensionProperties, n + 1);
    if (n && l->vk.EnumerateInstanceExtensionProperties(layer, &n, v) < 0) n = 0;
    for (u32 i = 0; i < n; i++) found |= strcmp(v[i].extensionName, name) == 0;
    arena_release(&a);
    return found;
}

static VKAPI_ATTR VkBool32 VKAPI_CALL complain(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                               VkDebugUtilsMessageTypeFlagsEXT type,
                                               const VkDebugUtilsMessengerCallbackDataEXT *data,
                                               void *user)
{
    struct vulkan_loader *l = user;
    if (!l->complaint[0] && data->pMessage) {
        struct str text = str_sub(str_of(data->pMessage), 0, (i64)sizeof l->complaint - 1);
        memcpy(l->complaint, text.p, (size_t)text.n);
    }
    return VK_FALSE;
}

static VkDebugUtilsMessengerCreateInfoEXT messenger_info(struct vulkan_loader *l)
{
    return (VkDebugUtilsMessengerCreateInfoEXT){
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT |
                           VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        .pfnUserCallback = complain,
        .pUserData = l,
    };
}

static bool wants_validation(void)
{
    const char *z = os_env("QUERN_VULKAN_VALIDATE");
    return z && *z && strcmp(z, "0") != 0;
}

static bool make_instance(struct vulkan_loader *l, bool validate, struct err *e)
{
    const char *extension[2], *layer = validation;
    u32 n = 0;
    if (l->version < VK_API_VERSION_1_1 &&
        has_extension(l, NULL, VK_KHR_GET_PHYSICAL_DEVICE_PROPERTIES_2_EXTENSION_NAME))
        extension[n++] = VK_KHR_GET_PHYSICAL_DEVICE_PROPERTIES_2_EXTENSION_NAME;
    if (validate) extension[n++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info(l);
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "quern",
                             .pEngineName = "quern",
                             .apiVersion = l->version};
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pNext = validate ? &messenger : NULL,
        .pApplicationInfo = &app,
        .enabledLayerCount = validate,
        .ppEnabledLayerNames = &layer,
        .enabledExtensionCount = n,
        .ppEnabledExtensionNames = extension,
    };
    VkResult r = l->vk.CreateInstance(&info, NULL, &l->instance);
    return r == VK_SUCCESS || err_set(e, ERR_SYSTEM, "no Vulkan: vkCreateInstance: %s (%d)",
                                      vulkan_result_name(r), r);
}

static bool open_instance(struct vulkan_loader *l, struct err *e)
{
    bool validate = wants_validation();
    if (validate && !has_layer(l, validation))
        return err_set(e, ERR_USAGE, "QUERN_VULKAN_VALIDATE is set, but the layer '%s' is not installed",
                       validation);
    l->version = VK_API_VERSION_1_0;
    if (l->vk.EnumerateInstanceVersion) l->vk.EnumerateInstanceVersion(&l->version);
    if (l->version > NEWEST) l->version = NEWEST;
    if (!make_instance(l, validate, e) || !load_level(&l->vk, INSTANCE, l->instance, e)) return false;
    if (!validate || !l->vk.CreateDebugUtilsMessengerEXT) return true;
    VkDebugUtilsMessengerCreateInfoEXT info = messenger_info(l);
    VkResult r = l->vk.CreateDebugUtilsMessengerEXT(l->instance, &info, NULL, &l->messenger);
    return r == VK_SUCCESS || err_set(e, ERR_SYSTEM, "vkCreateDebugUtilsMessengerEXT: %s",
                                      vulkan_result_name(r));
}

bool vulkan_loader_attach(struct vulkan_loader *l, const struct dev_foreign *f, struct err *e)
{
    *l = (struct vulkan_loader){.instance = f->instance,
                                .version = f->version < NEWEST ? f->version : NEWEST};
    memcpy(&l->vk.GetInstanceProcAddr, &f->find, sizeof f->find);
    return load_level(&l->vk, INSTANCE, l->instance, e);
}

void vulkan_loader_close(struct vulkan_loader *l)
{
    if (!l->lib) { /* nothing is ours */
        *l = (struct vulkan_loader){0};
        return;
    }
    if (l->messenger) l->vk.DestroyDebugUtilsMessengerEXT(l->instance, l->messenger, NULL);
    if (l->instance && l->vk.DestroyInstance) l->vk.DestroyInstance(l->instance, NULL);
    os_dlclose(l->lib);
    *l = (struct vulkan_loader){0};
}

bool vulkan_loader_open(struct vulkan_loader *l, struct err *e)
{
    *l = (struct vulkan_loader){0};
    if (open_library(l, e) && open_instance(l, e)) return true;
    vulkan_loader_close(l);
    return false;
}

/* Devices. */

static int preference(const struct vulkan_loader *l, VkPhysicalDevice gpu)
{
    VkPhysicalDeviceProperties p;
    l->vk.GetPhysicalDeviceProperties(gpu, &p);
    switch ((int)p.deviceType) { /* an external enum, which may gain members */
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return 4;
    default: return 3;
    }
}

bool vulkan_list(const struct vulkan_loader *l, struct arena *a, VkPhysicalDevice **list, u32 *n,
                 struct err *e)
{
    *n = 0;
    VkResult r = l->vk.EnumeratePhysicalDevices(l->instance, n, NULL);
    VkPhysicalDevice *v = arena_array(a, VkPhysicalDevice, *n + 1);
    if (r == VK_SUCCESS && *n) r = l->vk.EnumeratePhysicalDevices(l->instance, n, v);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE)
        return err_set(e, ERR_SYSTEM, "vkEnumeratePhysicalDevices: %s", vulkan_result_name(r));
    for (u32 i = 1; i < *n; i++) /* insertion sort: stable, a handful */
        for (u32 j = i; j > 0 && preference(l, v[j - 1]) > preference(l, v[j]); j--) {
            VkPhysicalDevice t = v[j];
            v[j] = v[j - 1], v[j - 1] = t;
        }
    *list = v;
    return true;
}

bool vulkan_ok(struct vulkan *v, VkResult r, const char *call, struct err *e)
{
    if (r == VK_SUCCESS) return true;
    if (r == VK_ERROR_DEVICE_LOST) v->is_lost = true;
    return err_set(e, ERR_SYSTEM, "'%s': %s: %s (%d)", vulkan_name(&v->facts), call,
                   vulkan_result_name(r), r);
}
