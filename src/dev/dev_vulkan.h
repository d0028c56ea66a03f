// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan: shared by the files of the Vulkan driver. From the bottom: the loader and its
// instance; facts about one physical device; its memory; its queue; kernels. vulkan.c combines
// them. Private to dev/.
#ifndef QUERN_DEV_VULKAN_H
#define QUERN_DEV_VULKAN_H

#define VK_NO_PROTOTYPES
#include "core/spirv.h"
#include "dev/dev.h"

#include <vulkan/vulkan_core.h>

/* dev_vulkan_loader.c: the library, its entry points, the instance. */

struct vulkan_calls {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define X(level, need, name) PFN_vk##name name;
#include "dev/dev_vulkan.inc"
#undef X
};

enum { VULKAN_FEATURES = 32 };

struct dev_attached { /* dev_vulkan_attach.c */
    struct dev_foreign f;
    bool feature[VULKAN_FEATURES]; /* by their numbers, vulkan_feature: enabled */
    bool controls_floats; /* VK_KHR_shader_float_controls, or the version with it, is enabled */
    char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
};

struct vulkan_loader {
    const struct dev_attached *attached; /* the instance is another's; NULL: our own */
    void *lib;
    struct vulkan_calls vk;
    VkInstance instance;
    VkDebugUtilsMessengerEXT messenger;
    u32 version;         /* of the instance, VK_MAKE_API_VERSION */
    char complaint[800]; /* first message of the validation layer; empty: none */
};

bool vulkan_loader_open(struct vulkan_loader *l, struct err *e);
/* Of an instance that other code made. */
bool vulkan_loader_attach(struct vulkan_loader *l, const struct dev_foreign *f, struct err *e);
void vulkan_loader_close(struct vulkan_loader *l);
/* All physical devices: discrete ones first, processors last. */
bool vulkan_list(const struct vulkan_loader *l, struct arena *a, VkPhysicalDevice **v, u32 *n,
                 struct err *e);
/* Entry points of a device. */
bool vulkan_load_calls(struct vulkan_calls *vk, VkDevice device, struct err *e);
const char *vulkan_result_name(VkResult r);

/* dev_vulkan_facts.c: properties of a physical device, and those that quern uses. */

/* Newer than the oldest supported headers, so declared here after the specification of
   VK_KHR_cooperative_matrix; sType 1000506000, ...1 and ...2. */
struct vulkan_matrix_features {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
};

struct vulkan_features { /* every member is a structure of Vulkan, chained */
    VkPhysicalDeviceFeatures2 core;
#define STRUCTURE(member, type, stype, minor, extension) VkPhysicalDevice##type member;
#include "core/spirv_features.inc"
    struct vulkan_matrix_features matrix;
};

struct vulkan_properties {
    VkPhysicalDeviceProperties2 core;
    VkPhysicalDeviceSubgroupProperties subgroup;
    VkPhysicalDeviceSubgroupSizeControlProperties subgroup_size;
    VkPhysicalDeviceDriverProperties driver;
    VkPhysicalDeviceMaintenance3Properties maintenance3;
    VkPhysicalDeviceMaintenance4Properties maintenance4;
    VkPhysicalDeviceFloatControlsProperties floats;
};

enum { VULKAN_MAX_EXTENSIONS = 16 };

struct vulkan_facts {
    VkPhysicalDevice gpu;
    u32 version; /* usable version of Vulkan: the minimum of device and instance */
    struct vulkan_features on; /* supported and enabled features; the chain for VkDeviceCreateInfo */
    struct vulkan_properties prop;
    VkPhysicalDeviceMemoryProperties memory;
    const char *extension[VULKAN_MAX_EXTENSIONS]; /* to enable */
    u32 n_extension;
    u32 family;         /* index of a queue family that supports compute */
    u32 timestamp_bits; /* of that family; 0: no timestamps */
    bool is_host;       /* the device is this machine's processor, or shares its memory */
    i64 max_range;      /* maximal range of a buffer in a kernel, bytes */
    char matrix[1024];  /* for caps */
};

bool vulkan_facts_init(struct vulkan_facts *f, const struct vulkan_loader *l, VkPhysicalDevice gpu,
                       struct err *e);
static inline const char *vulkan_name(const struct vulkan_facts *f)
{
    return f->prop.core.properties.deviceName;
}
/* A feature that quern may use. */
struct vulkan_feature {
    const char *structure,
        *name;       /* "VkPhysicalDevice16BitStorageFeatures", "storageBuffer16BitAccess" */
    int type;        /* sType of its structure ... */
    size_t at, base; /* ... and where both are in struct vulkan_features */
    u32 version;     /* that has the structure; 0: only the extension */
    const char *extension;
};
bool vulkan_feature(u32 k, struct vulkan_feature *x); /* false: no more */
void vulkan_caps(const struct vulkan_facts *f, struct caps *c);
void vulkan_fingerprint(const struct vulkan_facts *f, struct buf *out);
/* Whether the device can run this module; the error names a missing feature. */
bool vulkan_can_run(const struct vulkan_facts *f, const struct spirv_info *m, struct err *e);

/* The device and its resources. */

struct vulkan_block { /* one allocation under one buffer, suballocated */
    struct vulkan_block *next;
    bool is_borrowed; /* another's buffer */
    VkBuffer buffer;
    VkDeviceMemory memory;
    i64 size;
    char *map; /* NULL: not host-visible */
    struct vulkan_gap {
        i64 at, size;
    } * gap; /* free ranges, sorted, not adjacent */
    u32 n_gap, cap_gap;
};

/* The commands of a batch, in words; see dev_vulkan_commands.c. */
struct vulkan_commands {
    u64 *v;
    u32 n, cap;
    u32 n_set, n_descriptor; /* required by them */
    u32 bound;               /* offset of the last bound set */
    u32 written;             /* enum vulkan_use bits: since the last barrier */
    bool is_timed;           /* its launches are enclosed by two timestamps */
    bool is_borrowed; /* uses buffers of others, which may be destroyed after it: never submitted
                         again */
};

enum { VULKAN_BATCHES = 8, VULKAN_SETS = 256, VULKAN_DESCRIPTORS = 4096, VULKAN_WORDS = 1 << 16 };

struct vulkan_batch { /* one command buffer and the resources of its commands */
    VkCommandBuffer cmd;
    VkFence fence;
    VkDescriptorPool pool;
    struct vulkan_commands commands; /* recorded commands; none: not submittable */
    bool is_running;                 /* submitted, not waited for */
    u64 turn;                        /* number of its last submission */
};

struct vulkan {
    struct dev *dev;
    struct vulkan_loader loader;
    struct vulkan_calls vk;
    struct vulkan_facts facts;
    VkDevice device;
    VkQueue queue;
    bool is_lost;    /* recreated at the next use */
    struct err late; /* error of a call that cannot report one; reported by the next fence */

    struct dev_attached attached;  /* the caller's device; device NULL: our own */
    struct vulkan_block *borrowed; /* buffers of others, until the next lead */
    struct vulkan_block *blocks;
    i64 used;                  /* allocated bytes */
    struct vulkan_block stage; /* staging data and parameters; size 0: not created yet */
    i64 stage_used;            /* by commands that have not been waited for */

    VkCommandPool commands;
    VkQueryPool stamps; /* two per batch */
    struct vulkan_batch batch[VULKAN_BATCHES];
    u64 turn;                    /* submissions so far */
    struct vulkan_commands open; /* the next batch */
    double seconds;     /* of launches since the last fence */
    double last;        /* between the last two fences; negative: unknown */
    double submitted;   /* host's clock at the first submission since the last fence, 0: none */

    struct dev_kernel *kernels; /* all loaded ones */
    VkPipelineCache cache;
    bool has_compiled; /* the user's cache may lack a pipeline */
};

/* Whether a call succeeded; otherwise the error names the call, and a lost device is recorded. */
bool vulkan_ok(struct vulkan *v, VkResult r, const char *call, struct err *e);

/* dev_vulkan_memory.c */
enum { VULKAN_ALIGN = 256 /* the largest alignment that Vulkan permits a device to require */ };
static inline struct vulkan_block *vulkan_block_of(const struct dev_mem *m)
{
    return (struct vulkan_block *)(uintptr_t)m->handle;
}
bool vulkan_alloc(struct vulkan *v, i64 size, struct dev_mem *m, struct err *e);
void vulkan_release(struct vulkan *v, struct dev_mem *m);
bool vulkan_block_make(struct vulkan *v, struct vulkan_block *b, i64 size, bool for_host,
                       struct err *e);
void vulkan_block_destroy(struct vulkan *v, struct vulkan_block *b);
bool vulkan_memory_remake(struct vulkan *v, struct err *e); /* after a loss: the same allocations, zeroed */
void vulkan_memory_destroy(struct vulkan *v); /* destroys the device's objects; allocations stay known */
void vulkan_memory_forget(struct vulkan *v);  /* the rest */

/* dev_vulkan_commands.c */
enum vulkan_use {
    VULKAN_COPY = 1,    /* copies and fills */
    VULKAN_COMPUTE = 2, /* launches */
    VULKAN_ANY = 3,
    VULKAN_OTHERS = 4, /* commands and the host of those who share the queue */
};
static inline u64 vulkan_word(VkBuffer b) { return (u64)b; }
static inline VkBuffer vulkan_buffer(u64 w) { return (VkBuffer)w; }
/* Makes earlier writes visible to such uses, which also write; 0: to the host. */
void vulkan_put_barrier(struct vulkan_commands *c, u32 next);
void vulkan_put_fill(struct vulkan_commands *c, VkBuffer b, i64 at, i64 size);
void vulkan_put_copy(struct vulkan_commands *c, VkBuffer from, VkBuffer to, VkBufferCopy part);
void vulkan_put_stamp(struct vulkan_commands *c); /* the first timestamp before, then after the launches */
/* info: one per binding of the kernel. */
void vulkan_put_bind(struct vulkan_commands *c, const struct dev_kernel *k,
                     const VkDescriptorBufferInfo *info);
/* push: k->push_bytes. */
void vulkan_put_dispatch(struct vulkan_commands *c, const struct dev_kernel *k, u32 grid,
                         const u32 n[3], const u32 *push);
void vulkan_commands_reset(struct vulkan_commands *c); /* no commands; keeps its memory */
void vulkan_commands_copy(struct vulkan_commands *to, const struct vulkan_commands *from);
bool vulkan_commands_equal(const struct vulkan_commands *a, const struct vulkan_commands *b);
/* Records the commands of a batch that is not running into its command buffer. */
bool vulkan_commands_record(struct vulkan *v, struct vulkan_batch *b, struct err *e);

/* dev_vulkan_queue.c */
bool vulkan_queue_init(struct vulkan *v, struct err *e);
void vulkan_queue_destroy(struct vulkan *v);
void vulkan_queue_forget(struct vulkan *v); /* releases the memory of its words */
/* The commands being collected, with room for a set of that many descriptors. NULL: error. */
struct vulkan_commands *vulkan_open_batch(struct vulkan *v, u32 n_descriptor, struct err *e);
/* Called before an object named by commands is destroyed, after waiting: no recording is submitted
   again. */
void vulkan_forget(struct vulkan *v);
bool vulkan_wait(struct vulkan *v, struct err *e); /* submits, and waits for everything */
bool vulkan_fence(struct vulkan *v, struct err *e);
bool vulkan_submit(struct vulkan *v, struct err *e); /* what has been collected, without waiting */
/* n bytes of host memory for the commands being collected, and their offset in v->stage. NULL:
   error. */
void *vulkan_stage(struct vulkan *v, i64 n, i64 *at, struct err *e);
bool vulkan_copy(struct vulkan *v, struct dev_mem to, struct dev_mem from, i64 n, struct err *e);
bool vulkan_upload(struct vulkan *v, struct dev_mem m, const void *p, i64 n, struct err *e);
bool vulkan_download(struct vulkan *v, struct dev_mem m, void *p, i64 n, struct err *e);

/* dev_vulkan_kernel.c */
struct dev_kernel {
    struct dev_kernel *next;
    struct arena arena;
    struct str code, entry; /* copies */
    u32 n_grid;
    u32 n_binding, push_bytes;
    u32 subgroup;      /* required size, 0: any */
    u32 (*local)[3];   /* workgroup size per grid */
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout layout;
    VkPipeline *pipeline; /* per grid */
};
struct dev_kernel *vulkan_kernel_load(struct vulkan *v, struct str code, struct str entry, u32 n_grid,
                                      struct err *e);
void vulkan_kernel_unload(struct vulkan *v, struct dev_kernel *k);
bool vulkan_kernels_remake(struct vulkan *v, struct err *e);
void vulkan_kernels_destroy(struct vulkan *v); /* destroys the device's objects; kernels stay known */
void vulkan_cache_open(struct vulkan *v);
void vulkan_cache_close(struct vulkan *v);

/* dev_vulkan_attach.c */
static inline bool vulkan_is_attached(const struct vulkan *v)
{
    return v->attached.f.device != NULL;
}
bool vulkan_borrow(struct dev *d, const void *at, i64 size, struct dev_mem *m, struct err *e);
bool vulkan_follow(struct dev *d, void *stream, struct err *e);
bool vulkan_lead(struct dev *d, void *stream, struct err *e);
void vulkan_return(struct vulkan *v); /* what is borrowed */

/* dev_vulkan_launch.c */
bool vulkan_launch(struct vulkan *v, const struct dev_launch *l, struct err *e);

#endif
