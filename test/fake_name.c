// SPDX-License-Identifier: Apache-2.0
//
// A Vulkan library for tests of the command line, named by QUERN_VULKAN_LOADER: the system's
// library, with every device named by QUERN_DEVICE_NAME. So command lines for another vendor's
// device can be run as printed. Functions that return a device's name are replaced; all others are
// the library's own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

static PFN_vkGetInstanceProcAddr real_get;
static PFN_vkGetPhysicalDeviceProperties real_properties;
static PFN_vkGetPhysicalDeviceProperties2 real_properties2;

static void rename_device(VkPhysicalDeviceProperties *p)
{
    const char *name = getenv("QUERN_DEVICE_NAME");
    if (name) snprintf(p->deviceName, sizeof p->deviceName, "%s", name);
}

static VKAPI_ATTR void properties(VkPhysicalDevice d, VkPhysicalDeviceProperties *p)
{
    real_properties(d, p);
    rename_device(p);
}

static VKAPI_ATTR void properties2(VkPhysicalDevice d, VkPhysicalDeviceProperties2 *p)
{
    real_properties2(d, p);
    rename_device(&p->properties);
}

__attribute__((visibility("default"))) VKAPI_ATTR PFN_vkVoidFunction
vkGetInstanceProcAddr(VkInstance instance, const char *name);

VKAPI_ATTR PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name)
{
    if (!real_get) {
        void *lib = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
        real_get = lib ? (PFN_vkGetInstanceProcAddr)dlsym(lib, "vkGetInstanceProcAddr") : NULL;
        if (!real_get) return NULL;
    }
    PFN_vkVoidFunction f = real_get(instance, name);
    if (f && !strcmp(name, "vkGetPhysicalDeviceProperties")) {
        real_properties = (PFN_vkGetPhysicalDeviceProperties)f;
        return (PFN_vkVoidFunction)properties;
    }
    if (f && !strcmp(name, "vkGetPhysicalDeviceProperties2")) {
        real_properties2 = (PFN_vkGetPhysicalDeviceProperties2)f;
        return (PFN_vkVoidFunction)properties2;
    }
    return f;
}
