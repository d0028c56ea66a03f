/* SPDX-License-Identifier: Apache-2.0
 *
 * quern compiles neural networks to the fastest native kernels that were measured on the device.
 *
 * The whole public interface. A `quern` context holds settings, messages and the last error; models, databases, programs and tensors are
 * opaque handles created from it. Functions return QUERN_OK or the kind of failure; quern_error() returns the problem, its place and a way
 * out. A handle belongs to one thread at a time; different contexts are independent. Option structs start with their size for compatibility
 * with older callers: initialise them with QUERN_OPTS(type), e.g.
 *
 *     struct quern_tune_opts o = QUERN_OPTS(quern_tune_opts);
 *     o.timeout = 60;
 *
 * Functions marked [rt] are also in libquern_rt, which contains no compiler.
 */
#ifndef QUERN_H
#define QUERN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUERN_API __attribute__((visibility("default")))
#define QUERN_VERSION "0.1.0"
#define QUERN_OPTS(type) ((struct type){.size = sizeof(struct type)})

typedef enum quern_status {
    QUERN_OK = 0,
    QUERN_FAILED = 1,      /* other failure */
    QUERN_USAGE = 2,       /* wrong arguments */
    QUERN_NOTHING = 3,     /* nothing was measured or selected */
    QUERN_UNSUPPORTED = 4, /* valid, but unsupported */
    QUERN_INPUT = 5,       /* invalid or inconsistent input */
    QUERN_SYSTEM = 6,      /* failure of the operating system, or out of memory. The caller's process continues, unless the 64 MiB of
                              address space that the library holds in reserve do not suffice to end the call */
    QUERN_STOPPED = 7,     /* stopped by quern_stop without a result */
} quern_status;

typedef struct quern quern;                 /* context */
typedef struct quern_model quern_model;     /* an imported network */
typedef struct quern_db quern_db;           /* tuning results */
typedef struct quern_program quern_program; /* compiled network, to be run or saved */
typedef struct quern_tensor quern_tensor;   /* dense row-major host tensor */
typedef struct quern_op quern_op;           /* one operator for arrays of any shape */
typedef struct quern_state quern_state;     /* the caches of a program between runs */
typedef struct quern_deployment quern_deployment; /* a network divided over devices, loaded */
typedef struct quern_request quern_request; /* a run of it */

/* --- context [rt] --- */

typedef enum quern_event_kind {
    QUERN_LOG,      /* text; level: 0 error, 1 warning, 2 note, 3 detail */
    QUERN_PROGRESS, /* done, total, failures, best speed-up, seconds_left (negative: unknown); text: current activity */
    QUERN_RESULT,   /* text: one JSON object that describes a finished trial, check or case */
} quern_event_kind;

struct quern_event {
    quern_event_kind kind;
    int level;
    const char *text;
    int64_t done, total, failures;
    double best, seconds_left;
};
typedef void quern_event_fn(void *user, const struct quern_event *e);

struct quern_opts {
    size_t size;
    quern_event_fn *on_event; /* NULL: silent */
    void *user;
    int log_level;            /* highest level of messages to send */
    const char *dump;         /* comma-separated stages to dump, see quern_stages */
    const char *dump_dir;     /* folder for dumps; NULL: QUERN_LOG events */
    int require_signature;    /* every .dnx file that this context opens must be signed by a trusted key (doc/signing.md) */
    const char *trusted;      /* trusted public keys, a file or a folder of *.pem; NULL: $XDG_CONFIG_HOME/quern/trusted */
};

QUERN_API quern *quern_open(const struct quern_opts *o); /* o may be NULL; NULL only when out of memory */
QUERN_API void quern_close(quern *q);
QUERN_API const char *quern_error(const quern *q);       /* message of the last failure, "" if none */
/* Ends the current call of the context, and later ones, as soon as possible. Calls that measure (quern_tune, quern_bench, quern_populate,
 * quern_gemm, quern_conv) keep their measurements and return as at their time limit, or QUERN_STOPPED if there are none; other calls return
 * QUERN_STOPPED. May be called from signal handlers and from any thread; the library installs no signal handlers. quern_resume undoes it. */
QUERN_API void quern_stop(quern *q);
QUERN_API void quern_resume(quern *q);
QUERN_API const char *quern_version(void);

/* --- tensors [rt] --- */

/* Values of ONNX TensorProto.DataType. In memory every element has at least one byte: integers of 4 or 2 bits are stored by value
 * (sign-extended), floats of 8, 6 or 4 bits by code; only ONNX files pack them. Strings and complex numbers are not supported. */
typedef enum quern_dtype {
    QUERN_F32 = 1, QUERN_U8 = 2, QUERN_I8 = 3, QUERN_U16 = 4, QUERN_I16 = 5, QUERN_I32 = 6, QUERN_I64 = 7, QUERN_BOOL = 9,
    QUERN_F16 = 10, QUERN_F64 = 11, QUERN_U32 = 12, QUERN_U64 = 13, QUERN_BF16 = 16,
    QUERN_F8E4M3FN = 17, QUERN_F8E4M3FNUZ = 18, QUERN_F8E5M2 = 19, QUERN_F8E5M2FNUZ = 20, QUERN_U4 = 21, QUERN_I4 = 22,
    QUERN_F4E2M1 = 23, QUERN_F8E8M0 = 24, QUERN_U2 = 25, QUERN_I2 = 26, QUERN_F6E2M3 = 27, QUERN_F6E3M2 = 28,
} quern_dtype;

/* data is copied; NULL: zeroed. */
QUERN_API quern_status quern_tensor_new(quern *q, quern_dtype t, int rank, const int64_t *dim, const void *data,
                                        quern_tensor **out);
/* Uses the caller's memory without a copy; the memory must outlive the tensor. */
QUERN_API quern_status quern_tensor_view(quern *q, quern_dtype t, int rank, const int64_t *dim, void *data, quern_tensor **out);
QUERN_API void quern_tensor_free(quern_tensor *t);
QUERN_API quern_dtype quern_tensor_dtype(const quern_tensor *t);
QUERN_API int quern_tensor_rank(const quern_tensor *t);
QUERN_API const int64_t *quern_tensor_dims(const quern_tensor *t);
QUERN_API void *quern_tensor_data(const quern_tensor *t);
QUERN_API int64_t quern_tensor_count(const quern_tensor *t); /* elements */
/* A copy with another element type: floats round to nearest even, to integers towards zero. */
QUERN_API quern_status quern_tensor_cast(quern *q, const quern_tensor *t, quern_dtype to, quern_tensor **out);

/* DLPack 0.8 (struct DLManagedTensor, declared by the caller's dlpack.h). Import takes row-major CPU tensors without a copy and calls the
 * deleter in quern_tensor_free; export transfers ownership: the deleter frees the tensor. */
struct DLManagedTensor;
QUERN_API quern_status quern_tensor_from_dlpack(quern *q, struct DLManagedTensor *m, quern_tensor **out);
QUERN_API quern_status quern_tensor_to_dlpack(quern *q, quern_tensor *t, struct DLManagedTensor **out);

/* --- programs [rt] --- */

struct quern_run_opts {
    size_t size;
    int threads;          /* 0: one per processor; larger numbers are reduced to 8 per processor, or 64 if that is more, with a message */
    const char *device;   /* as in quern_compile_opts; NULL: the first device of the program's language */
    int require_signature; /* the file must be signed by a trusted key, otherwise it is not parsed; the checked bytes are those that run */
    const char *trusted;  /* as in quern_opts; NULL: those of the context */
    const char *isa;      /* for programs with variants: the variant of this instruction set, named as when it was compiled; NULL: the one
                             with the most extensions that this processor supports */
};

/* Opens a .dnx file. A PROGRAM IS CODE: a program for the CPU holds native code, which runs with all rights of this process, like a shared
 * library: open only programs that you made or trust, or require a signature. A program for CUDA, HIP or OpenCL holds device code, which
 * can access all memory of this process that the device can. A program for Vulkan holds only SPIR-V, which the driver compiles and which
 * runs on the GPU on the program's own buffers; to the driver it is untrusted input (doc/signing.md). quern_show lists the kinds of code in
 * a file. Files up to 64 MiB are read, larger ones mapped: truncating a mapped file ends the process (SIGBUS). If a signature is required,
 * every file is read, and later changes have no effect. The instruction set of native code is compared with the processor before it is
 * loaded: QUERN_UNSUPPORTED, with the missing extensions, if it cannot run. */
QUERN_API quern_status quern_program_open(quern *q, const char *path, const struct quern_run_opts *o, quern_program **out);
QUERN_API void quern_program_close(quern_program *p);
QUERN_API int quern_program_inputs(const quern_program *p);
QUERN_API int quern_program_outputs(const quern_program *p);
QUERN_API const char *quern_program_input_name(const quern_program *p, int k);
QUERN_API const char *quern_program_output_name(const quern_program *p, int k);
QUERN_API quern_dtype quern_program_input_dtype(const quern_program *p, int k);
/* Returns the rank; dim[d] is the size, or -1 if it is symbolic; sym[d] is then its text ("H"), valid as long as the program. Both have 8
 * elements. */
QUERN_API int quern_program_input_shape(const quern_program *p, int k, int64_t dim[8], const char *sym[8]);
QUERN_API quern_dtype quern_program_output_dtype(const quern_program *p, int k);
/* Likewise; sym[d] is "H" or an expression, "2*floor(H/2)". */
QUERN_API int quern_program_output_shape(quern_program *p, int k, int64_t dim[8], const char *sym[8]);
/* "HWC", "CHW", "CHWC8", "NWC", "NHWC", "NDHWC" if the program was compiled for such a layout, else "". */
QUERN_API const char *quern_program_input_layout(const quern_program *p, int k);
QUERN_API const char *quern_program_output_layout(const quern_program *p, int k);
/* Runs once on n_in tensors in the order of the inputs. out receives quern_program_outputs() new tensors; an out[k] that is not NULL on
 * entry is written instead, and its shape must match. With data-dependent sizes (NonZero), such a tensor is a buffer of at least the
 * result's size, and gets the result's shape. */
QUERN_API quern_status quern_run(quern_program *p, quern_tensor *const *in, int n_in, quern_tensor **out, int n_out);
/* A strided array: element (i, j ...) is at data + stride[0] * i + stride[1] * j + ... elements. Strides have any sign; stride 0 repeats an
 * element, in inputs only for axes longer than 1. */
struct quern_array {
    quern_dtype type;        /* 0: omitted optional input */
    int rank;                /* 0 to 8 */
    int64_t dim[8], stride[8];
    void *data;
};
/* Runs on device memory that other code of this process allocated on the program's device (device pointers of the primary context, which
 * CUDA's runtime and PyTorch use), in the order of its stream (NULL: the default stream): it starts after earlier work of the stream, and
 * later work starts after it. Does not wait: failures of the device may be reported by a later call. Arrays are dense and row-major, have
 * the program's shapes, are aligned to 16 bytes, and stay valid until the end; all outputs must be given. On the CPU the device's memory is the
 * host's, and there are no streams: arrays in host memory, which need no alignment, are used in place, and the outputs are complete at the end of the
 * call. On the caller's own device of Vulkan (quern_vulkan_attach) data points to a struct quern_vulkan_buffer, and stream is NULL: the queue orders the
 * work, and a fence of a later submission tells when the outputs are complete. QUERN_UNSUPPORTED on devices other than these, and if sizes of outputs
 * depend on data. */
QUERN_API quern_status quern_enqueue(quern_program *p, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out,
                                     void *stream);
/* Types, ranks, sizes and dense strides of the outputs for inputs of these types and sizes (data and strides are ignored). Data-dependent
 * sizes are -1; such programs need quern_run. */
QUERN_API quern_status quern_program_shape(quern_program *p, const struct quern_array *in, int n_in, struct quern_array *out, int n_out);
QUERN_API void quern_profile(quern_program *p, int on);
/* label: the network's nodes in this dispatch; operators: their operators ("Conv+LeakyRelu"), "layout" for a copy; layer: the nodes with
 * most of the operations. In programs without them, operators is "" and layer the label. seconds, flops and bytes: totals of all runs since
 * quern_profile. */
struct quern_step { const char *label, *layer, *operators, *kernel, *task; double seconds, flops, bytes; };
QUERN_API int quern_profile_steps(const quern_program *p, struct quern_step *steps, int max); /* returns the number of dispatches */
QUERN_API double quern_program_seconds(const quern_program *p); /* of the last run by the device's clock, data moved before and after; < 0: it was only enqueued */
QUERN_API int64_t quern_program_memory(const quern_program *p); /* bytes of temporary memory at the last sizes */
/* Texts are valid as long as the program. */
struct quern_program_facts {
    size_t size;
    const char *model;       /* name of the network */
    const char *device;      /* driver that runs the program, "cpu"; "": it is for a device that is not here */
    const char *isa;         /* instruction set of native code, "x86-64-v3"; "": none */
    const char *sizes;       /* sizes that its kernels were selected for, "H:1080,W:1920"; "": all are fixed */
    int dispatches;          /* kernels, loops and branches of a run */
    int64_t constants;       /* bytes of weights */
    double seconds;          /* expected for a run at `sizes`: sum of the kernels' times when they were selected; 0: unknown */
    int is_measured;         /* all of these times were measured; 0: at least one was predicted */
    const char *fingerprint; /* of the device that runs it, by which measurements are kept: model, driver version, features; "": it is not here */
};
QUERN_API quern_status quern_program_facts(quern_program *p, struct quern_program_facts *out);

/* --- the caller's own device of Vulkan (doc/device-vulkan.md) [rt] --- */

/* Handles are those of Vulkan, in types of C. */
struct quern_vulkan {
    size_t size;
    void *instance, *physical_device, *device, *queue; /* VkInstance, VkPhysicalDevice, VkDevice, VkQueue */
    uint32_t family;      /* of the queue; it computes */
    uint32_t version;     /* VkApplicationInfo.apiVersion of the instance */
    void (*get_instance_proc_addr)(void); /* vkGetInstanceProcAddr, as PFN_vkVoidFunction */
    const void *create_info; /* the VkDeviceCreateInfo that the device was made with, or one with the same extensions and features: they decide what kernels
                                may use, and Vulkan does not tell them. Read during the call only. Structures of versions (VkPhysicalDeviceVulkan12Features)
                                and of extensions are understood */
    void (*lock)(void *user), (*unlock)(void *user); /* called around each vkQueueSubmit, for queues that several threads use; NULL: not needed */
    void *user;
};
/* Programs that this context opens or compiles from now on, on device "vulkan" (or a pattern that matches its name), run on this device and queue;
 * compiled ones use the features that it was made with. NULL: detaches. Programs that are open keep their device: close them before the device is
 * destroyed, and after their work is done. Nothing of the caller's is destroyed by the library: it has a command pool, memory, descriptors and
 * pipelines of its own, which are destroyed with the program. Programs are verified and candidates measured in other processes, which cannot use the
 * device: quern_tune and others that measure are QUERN_UNSUPPORTED, so tune without it. A lost device ends its programs. A program belongs to one
 * thread at a time, as always; the queue to who holds the lock. */
QUERN_API quern_status quern_vulkan_attach(quern *q, const struct quern_vulkan *v);
/* What kernels can use of a physical device: what to enable when the device is made. Anything less works as well, with fewer kernels to choose from.
 * device, queue, family, create_info and the lock are not read. Valid until the next call, or until the context is closed. */
struct quern_vulkan_requirements {
    size_t size;
    const char *const *extensions;  /* of the device, for ppEnabledExtensionNames */
    uint32_t n_extensions;
    const char *const *features;    /* "VkPhysicalDevice16BitStorageFeatures::storageBuffer16BitAccess" ... */
    uint32_t n_features;
    const void *chain;              /* the same features as a chain of structures, for VkDeviceCreateInfo.pNext; it begins with VkPhysicalDeviceFeatures2 */
};
QUERN_API quern_status quern_vulkan_requirements(quern *q, const struct quern_vulkan *v, struct quern_vulkan_requirements *out);
/* An array of quern_enqueue in a buffer of the attached device: quern_array.data points to it. The range is used by storage buffers
 * (VK_BUFFER_USAGE_STORAGE_BUFFER_BIT), begins at a multiple of 16 and of minStorageBufferOffsetAlignment, and has the array's bytes, rounded up to 16.
 * The struct is read during the call; the buffer stays valid until the work is done. */
struct quern_vulkan_buffer {
    uint64_t buffer; /* VkBuffer */
    uint64_t offset, size; /* bytes */
};

/* --- states: decoding token by token (doc/decoding.md) [rt] --- */

/* The caches of a program (past_key_values.0.key and present.0.key ...) in memory of the device, for at most `max` positions. A pair of an input and
 * an output is a cache if their names differ in 'past' and 'present' only and their types and shapes are the same but for one axis, along which the
 * output has more rows. If the model was opened with `state`, a run writes only the new rows; otherwise it writes the caches anew. A state is
 * empty at first, belongs to its program, and must be destroyed before it. */
struct quern_state_opts {
    size_t size;
    const char *sizes;    /* "batch:2": other sizes in the caches' shapes; 1 if not named */
};
QUERN_API quern_status quern_state_create(quern_program *p, int64_t max, const struct quern_state_opts *o, quern_state **out);
QUERN_API void quern_state_destroy(quern_state *s);
/* A second state with the same content and maximum: two continuations of one prompt. */
QUERN_API quern_status quern_state_fork(quern_state *s, quern_state **out);
/* The content of a state of another program of the same network, with the same sizes: one program for prompts, one for single tokens. */
QUERN_API quern_status quern_state_copy(quern_state *to, quern_state *from);
/* Keeps the first `length` positions; 0 empties the state. QUERN_UNSUPPORTED: a cache has no positions (recurrent layers). */
QUERN_API quern_status quern_state_truncate(quern_state *s, int64_t length);
QUERN_API int64_t quern_state_length(const quern_state *s); /* positions: the new rows of all runs */
QUERN_API int64_t quern_state_max(const quern_state *s);
QUERN_API int64_t quern_state_memory(const quern_state *s); /* bytes */
/* Whether the k-th input, or output, of the program is in the state. */
QUERN_API int quern_state_holds_input(const quern_state *s, int k);
QUERN_API int quern_state_holds_output(const quern_state *s, int k);
/* quern_run with the caches in the state: their in[k] and out[k] are NULL and stay so. QUERN_INPUT: there are more positions than the maximum. After
 * any failure the state has the positions that it had. With all other outputs given, and inputs no larger than before, a run allocates no memory. */
QUERN_API quern_status quern_state_run(quern_state *s, quern_tensor *const *in, int n_in, quern_tensor **out, int n_out);
/* The content as a file, for states of programs of the same network with the same sizes, on any device and for any sufficient maximum. A file that is
 * damaged or of another network is QUERN_INPUT, and leaves the state unchanged. */
QUERN_API quern_status quern_state_save(quern_state *s, const char *path);
QUERN_API quern_status quern_state_load(quern_state *s, const char *path);

/* --- deployments: networks divided over several devices (doc/deployment.md) [rt] --- */

/* A DEPLOYMENT IS CODE, as a program is (quern_program_open): its sub-graphs for processors are native code, which runs with all rights of this process. */
struct quern_deployment_opts {
    size_t size;
    int threads;            /* of all processor instances (X64:0, X64:1 ..) together, which share them; 0: one per processor */
    int fallback;           /* sub-graphs whose device is absent, or fails, run on the CPU if the deployment has programs for it; a warning says so */
    const char *const *devices; /* "INTELGPU:0=*llvmpipe*": which device (quern_run_opts) an instance is; ended by NULL; NULL: the usual ones */
    int require_signature;  /* as in quern_run_opts: model.meta must be signed; it has the digests of all other files, which are always compared */
    const char *trusted;
    int profile;            /* 1: record what runs when, see quern_deployment_trace; 2: kernel by kernel, which takes longer */
    int only_list;          /* load nothing: for the lists below, also of deployments for devices that are not here */
};
/* path: its folder, or a packed file. All sub-graphs are loaded, each on its device instance by the instance's own thread; weights are shared by all
 * requests. The context must outlive it. Its events come from the calling thread, but the warning about a device that fails during a run. o may be NULL. */
QUERN_API quern_status quern_deployment_open(quern *q, const char *path, const struct quern_deployment_opts *o, quern_deployment **out);
QUERN_API void quern_deployment_close(quern_deployment *d); /* waits for running requests; its requests can then only be destroyed. Not in callbacks */
QUERN_API int quern_is_deployment(const char *path);        /* by its files' first bytes */
/* Writes a deployment again in the other form: a folder as one packed file, a packed file as a folder. Signatures stay valid. */
QUERN_API quern_status quern_deployment_pack(quern *q, const char *path, const char *out);
QUERN_API const char *quern_deployment_name(const quern_deployment *d);
QUERN_API int quern_deployment_inputs(const quern_deployment *d);
QUERN_API int quern_deployment_outputs(const quern_deployment *d);
/* The k-th input or output; texts are valid as long as the deployment. */
struct quern_deployment_value {
    size_t size;
    const char *name;       /* "tensor_4" */
    const char *origin;     /* its name in the network */
    quern_dtype type;
    int rank;
    int64_t dim[8];         /* -1: symbolic */
    const char *sym[8];     /* its text, "H", "2*floor(H/2)"; NULL: a number */
};
QUERN_API quern_status quern_deployment_value(quern_deployment *d, int is_output, int k, struct quern_deployment_value *v);
/* The k-th device instance, "X64:0"; NULL after the last. */
QUERN_API const char *quern_deployment_device(const quern_deployment *d, int k);
enum { QUERN_SUBGRAPH_LISTED, QUERN_SUBGRAPH_READY, QUERN_SUBGRAPH_FALLBACK };
struct quern_subgraph {
    size_t size;
    const char *name;       /* "Subgraph_0" */
    const char *device;     /* that it is for, "X64:0" */
    const char *framework;  /* "native" "vulkan" "openvino" .. */
    const char *target;     /* what it was made for */
    const char *missing;    /* what has to be done before it can run; "": nothing */
    int state;              /* only listed; loaded on its device; on the CPU instead */
    const char *why;        /* the last one's reason */
    int operators, files;
    double expected;        /* seconds of a run, as measured or predicted when it was made; 0: unknown */
    int64_t runs;           /* so far, of all requests, with the mean of their times */
    double seconds;
};
/* The k-th sub-graph, in an order in which they can run; returns 0 after the last. Safe while requests run. */
QUERN_API int quern_deployment_subgraph(quern_deployment *d, int k, struct quern_subgraph *s);
QUERN_API const char *quern_subgraph_operator(const quern_deployment *d, int k, int i); /* name of the i-th; NULL after the last */
/* Path of the i-th file beneath the deployment, its role ("program" "kernel" "weights" ..) and size; NULL after the last. */
QUERN_API const char *quern_subgraph_file(const quern_deployment *d, int k, int i, const char **role, int64_t *size);
/* Name of the i-th tensor that it reads, or writes, "tensor_4"; NULL after the last. */
QUERN_API const char *quern_subgraph_tensor(const quern_deployment *d, int k, int is_output, int i);
/* With `profile`: everything recorded so far as Chrome's trace format, which Perfetto reads: ModelInit, SubgraphInit, RequestInit, TransferFromInput,
 * TransferToOutput, LayerExecute, Wait, BufferCopy, SubgraphExecute, ModelExecute. To a path that ends in .svg: sub-graphs by device and time, as a chart. */
QUERN_API quern_status quern_deployment_trace(quern_deployment *d, const char *path);

/* A request is one run of the network at a time, with tensors of its own; requests of a deployment overlap. It belongs to one thread at a time, and to
 * its callback while that runs. Errors of these calls: quern_request_error, not the context. */
QUERN_API quern_status quern_request_create(quern_deployment *d, quern_request **out); /* error: the context's */
/* A running one is cancelled first, and its callback not called. Allowed in its own callback, after which it is destroyed. */
QUERN_API void quern_request_destroy(quern_request *r);
QUERN_API const char *quern_request_error(const quern_request *r);
/* The memory of input k for these sizes (dim NULL: they are fixed by the network), to be filled before the start without a copy. The tensor is the
 * request's: it is not freed, and valid until the next call for this input. */
QUERN_API quern_status quern_request_input(quern_request *r, int k, int rank, const int64_t *dim, quern_tensor **t);
/* Uses the caller's tensor for input k instead, without a copy: its memory is read until the request is done, and in later runs. */
QUERN_API quern_status quern_request_set_input(quern_request *r, int k, const quern_tensor *t);
/* Seeded random inputs for these sizes ("H=17,W=31"; NULL: none), others 256. */
QUERN_API quern_status quern_request_random_inputs(quern_request *r, const char *sizes, uint64_t seed);
/* Output k after a success: the request's tensor, valid until its next start. */
QUERN_API quern_status quern_request_output(quern_request *r, int k, quern_tensor **t);
/* Likewise a copy of any tensor by its name, also of one that passes between sub-graphs; to be freed. */
QUERN_API quern_status quern_request_tensor(quern_request *r, const char *name, quern_tensor **t);
/* Called once for each start, when the request is done: by the thread of a device instance, or by one that cancels it. status and error say how it ended.
 * Allowed in it: all functions of requests but quern_request_wait and quern_request_run; so it may start this request or others again. It should be
 * short: the device waits for it. fn NULL: none. */
typedef void quern_done_fn(void *user, quern_request *r, quern_status status, const char *error);
QUERN_API void quern_request_on_done(quern_request *r, quern_done_fn *fn, void *user);
/* Checks types and sizes of the inputs and returns at once. Sub-graphs run as soon as their inputs are ready. QUERN_USAGE: an input is missing or has
 * another type or shape, or the request is running. */
QUERN_API quern_status quern_request_start(quern_request *r);
/* Waits until the request is done, and its callback has returned without starting it again, for at most so many seconds (negative: without limit; 0: only
 * asks). *done is 1 if it is and 0 if the time was up; OptimaV2's wait returned true for the latter. The status is the request's if it is done, else
 * QUERN_OK. done may be NULL. */
QUERN_API quern_status quern_request_wait(quern_request *r, double seconds, int *done);
QUERN_API quern_status quern_request_run(quern_request *r); /* starts and waits */
/* Ends it with QUERN_STOPPED after the sub-graphs that run now; quern_stop does so for all requests. Returns at once. */
QUERN_API void quern_request_cancel(quern_request *r);

/* --- signatures (doc/signing.md) --- */

/* Creates an Ed25519 key pair in two new PEM files: the private key, readable by this user only, and the public one. */
QUERN_API quern_status quern_key_new(quern *q, const char *private_path, const char *public_path);
/* The id of a key, 32 hexadecimal digits. The file may hold the private or the public key. */
QUERN_API quern_status quern_key_id(quern *q, const char *path, char id[33]);
/* Adds a public key to the user's trusted keys under a name; removes one by its name or id. */
QUERN_API quern_status quern_key_trust(quern *q, const char *public_path, const char *name);
QUERN_API quern_status quern_key_distrust(quern *q, const char *name_or_id);
/* The trusted keys of this context: JSON, an array of {name, id}; free with quern_text_free. */
QUERN_API quern_status quern_key_list(quern *q, char **json);
/* Adds a signature to a .dnx file or a deployment (only not 0: and removes those of other keys) and writes it to out; NULL: in place, as folders always
 * are. */
QUERN_API quern_status quern_sign(quern *q, const char *dnx, const char *private_path, int only, const char *out);

/* --- files --- */

/* .npy .png .pfm .pb by suffix; PNG and PFM become f32 (1, channels, height, width) in 0..1 */
QUERN_API quern_status quern_tensor_read(quern *q, const char *path, quern_tensor **out);
QUERN_API quern_status quern_tensor_read_raw(quern *q, const char *path, quern_dtype t, int rank, const int64_t *dim,
                                             quern_tensor **out); /* headerless row-major, little endian */
/* Reads ONNX's files of a sequence or an optional value (.pb), of the kind that quern_file_value returns: at most max tensors into out; *n
 * is their number, -1 for an optional value without content. */
typedef enum quern_kind { QUERN_TENSOR, QUERN_SEQUENCE, QUERN_OPTIONAL, QUERN_OPTIONAL_SEQUENCE } quern_kind;
QUERN_API quern_status quern_tensors_read(quern *q, const char *path, quern_kind kind, quern_tensor **out, int max, int *n);
/* Reads the arrays of an .npz file (numpy.savez): at most max tensors into out, with their names; *n is their number. */
QUERN_API quern_status quern_npz_read(quern *q, const char *path, quern_tensor **out, char (*name)[256], int max, int *n);
QUERN_API quern_status quern_tensor_write(quern *q, const char *path, const quern_tensor *t);

/* --- models --- */

/* The interface of an input or output of the program; NULL members: as in the network. */
struct quern_io_opts {
    const char *name;    /* name of an input or output; NULL: all inputs, or all outputs */
    int is_output;       /* used if name is NULL */
    /* Extents joined by ':', each NAME, NAME=NUMBER, NUMBER or ?. Three extents are height, width and channels of a picture; otherwise
     * there is one per axis. Repeating a name makes sizes equal, a number fixes a size. */
    const char *shape;
    const char *type;    /* "f16" "f32" "f64" "u8" "i8"; floats are rounded and clamped to integers. Without a name it applies to
                          * floating-point inputs and outputs */
    const char *layout;  /* "HWC" "CHW" "CHWC8": a picture without batch axis; CHWC8: channels in zero-padded blocks of 8;
                            "NWC" "NHWC" "NDHWC": all axes, channels last */
    const char *storage; /* "SSBO": a buffer, the only kind */
};

struct quern_model_opts {
    size_t size;
    const char *optimize_for; /* "H:1080,W:1920": sizes that kernels are selected for; NULL: 256 each */
    quern_tensor *const *constants; /* [k]: content of the file's k-th input, which becomes a constant; NULL: stays an input */
    int n_constants;
    const struct quern_io_opts *io; /* in order, later ones override */
    int n_io;
    int f32_storage;     /* store values in f32 behind an f16 interface; 0: store them in f16 where that is safe, and compute in f32 */
    const char *assume;  /* "B:1,H%16,S:1..4096": sizes that are fixed, multiples of a number, or in a range, before shape inference; the
                          * program rejects others */
    const char *elements; /* "x:3,o:none": numbers of elements of sequence inputs: x becomes inputs "x[0]" "x[1]" "x[2]", each with an entry
                           * in constants[]; for optional inputs 1, or none for one without content. External data is rejected then, as with
                           * constants[] */
    const char *run_at;   /* "H:480,B:1": sizes of a run. If the symbolic model does not support them (it treats B as another size, which a
                           * batch of 1 is not), they are assumed */
    int external_data_links; /* follow symbolic links to external data. 0: follow none, unless the model's path is itself a link and the
                              * file is beside its target (as in Hugging Face's cache) */
    const char *state;   /* caches in place (doc/decoding.md): "auto": all pairs told by their names; or pairs, "past_k=present_k,past_v=present_v".
                          * NULL: none */
    int constants_in_place; /* constants[] are used in their memory, which must exist, unchanged, until the model is closed. 0: they are copied.
                             * Programs have copies in the layouts of their kernels */
};

QUERN_API quern_status quern_model_open(quern *q, const char *path, const struct quern_model_opts *o, quern_model **out);
/* Likewise from memory, which may be freed afterwards; external data is rejected. name: for messages and dumps. */
QUERN_API quern_status quern_model_read(quern *q, const void *data, size_t size, const char *name, const struct quern_model_opts *o,
                                        quern_model **out);
/* The k-th input or output of an ONNX file; *v is filled up to v->size. QUERN_USAGE: there is none. */
struct quern_file_value { size_t size; quern_kind kind; char name[256]; };
QUERN_API quern_status quern_file_value(quern *q, const char *path, int is_output, int k, struct quern_file_value *v);
/* The k-th supported operator, followed by the unsupported ones of ONNX's own domain; returns 0 at the end. Names of other domains begin
 * with "domain::". */
struct quern_operator {
    size_t size;
    const char *name;
    int opset, changed, removed; /* for ONNX's own domain: opsets that introduced, last changed and removed it (0: none) */
    const char *form;      /* "composite": consists of other operators; "element": computed element by element; "whole": a kernel of its
                              own; "program": bodies run by a program; "import": replaced by the importer; "": unsupported */
    uint64_t types;        /* types of its first input, or else output: a bit for each quern_dtype */
    const char *needs;     /* device features for types of 32 bits and fewer: "", "f64", "i64", "f64 i64" */
    const char *attributes; /* "axis:int pads:ints", each with its kind: int float string ints floats strings tensor graph, of several as "ints|strings" */
};
QUERN_API int quern_operator_at(int k, struct quern_operator *o);
QUERN_API const char *quern_dtype_text(quern_dtype t); /* "f32"; NULL: invalid type */
QUERN_API quern_status quern_model_zoo(quern *q, const char *name, quern_model **out); /* seeded weights */
/* Likewise in other sizes, "layers=2,width=64" (NULL: none); is_small: all others are those of tests instead of the published network's.
 * QUERN_USAGE names sizes that the network does not have, or that contradict each other. */
QUERN_API quern_status quern_model_zoo_sized(quern *q, const char *name, const char *sizes, int is_small, quern_model **out);
/* One reason why a model is rejected; texts are valid during the callback. */
struct quern_problem {
    const char *node, *op; /* "": concerns the whole model */
    const char *why;
    const char *help;      /* a way out; "": unknown */
};
struct quern_report {
    size_t size;
    int n_nodes;           /* of the model */
    int n_problems;
    int n_unchecked;       /* nodes whose inputs are unknown, because their producers are rejected */
};
/* All reasons why a model file cannot be opened with these options (NULL: defaults). QUERN_OK: the file was read and checked, whatever the
 * result. */
QUERN_API quern_status quern_model_problems(quern *q, const char *path, const struct quern_model_opts *o,
                                            void (*each)(void *user, const struct quern_problem *p), void *user,
                                            struct quern_report *r);
/* Whether the network generates random numbers, so that its results differ from other implementations'. */
QUERN_API int quern_model_is_random(const quern_model *m);
QUERN_API void quern_model_close(quern_model *m);
QUERN_API quern_status quern_model_save(quern_model *m, const char *path); /* as ONNX */
QUERN_API quern_status quern_model_text(quern_model *m, char **text);      /* doc/graph-ir.md; free with quern_text_free */
/* Like the functions for programs. */
/* An input as a network's file declares it. */
struct quern_declared {
    size_t size;
    const char *name;
    quern_dtype type;
    int rank;
    int64_t dim[8];          /* -1: symbolic, sym[d] is its name, "" of an expression */
    const char *sym[8];
};
/* In order; of formats that allow it, without reading the network itself. The struct and its texts are valid during the callback. */
QUERN_API quern_status quern_declared_inputs(quern *q, const char *path, void (*each)(void *user, const struct quern_declared *x), void *user);
QUERN_API int quern_model_inputs(const quern_model *m);
QUERN_API const char *quern_model_input_name(const quern_model *m, int k);
QUERN_API quern_dtype quern_model_input_dtype(const quern_model *m, int k);
QUERN_API int quern_model_input_shape(const quern_model *m, int k, int64_t dim[8], const char *sym[8]);
QUERN_API const char *quern_model_input_layout(const quern_model *m, int k);
/* Changes sizes that kernels are selected for: "H:1080,W:1920". */
QUERN_API quern_status quern_model_optimize_for(quern_model *m, const char *sizes);
QUERN_API const char *quern_zoo_name(int k, const char **summary);         /* NULL after the last */
/* The k-th size that can be chosen for a network of the zoo; returns 0 after the last, and for unknown names. */
struct quern_zoo_size {
    size_t size;
    const char *name, *what; /* "layers", one line */
    int64_t value, small;    /* of the published network and of tests; 0: any, a symbolic size */
};
QUERN_API int quern_zoo_size(const char *name, int k, struct quern_zoo_size *s);
/* Reference evaluation, float64 accumulation; same conventions as quern_run. */
QUERN_API quern_status quern_model_eval(quern_model *m, quern_tensor *const *in, int n_in, quern_tensor **out, int n_out);
/* Seeded random inputs for these sizes ("H=17,W=31", NULL: optimize_for). in receives one new tensor per input; returns their number. */
QUERN_API quern_status quern_model_random_inputs(quern_model *m, const char *sizes, uint64_t seed, quern_tensor **in, int max, int *n);
QUERN_API quern_status quern_program_random_inputs(quern_program *p, const char *sizes, uint64_t seed, quern_tensor **in, int max,
                                                   int *n); /* [rt] */

/* --- tuning and compiling --- */

/* Limits of the device. */
struct quern_target_opts {
    size_t size;
    const char *devices; /* a file with the output of quern_devices of another machine, whose devices may be absent here. NULL: the present
                          * devices */
    const char *env;     /* "vulkan1.0" to "vulkan1.4": newest version to target; NULL: the device's */
    int no_matrix;       /* disable matrix units */
    int optimize, debug_info, source_info; /* SPIR-V: optimise by spirv-opt; names and line numbers; source text, too */
    int no_winograd;     /* disable Winograd convolutions, which have larger rounding errors than direct sums */
    /* CPU instruction set: "x86-64" "x86-64-v2" "x86-64-v3" "x86-64-v4" "sapphirerapids" "aarch64" "armv7" "riscv64" "i686", optionally with
     * extensions ("aarch64+dotprod"), or "native" (also NULL), that of this processor. Several, joined by commas, become variants of one program in
     * quern_compile, quern_tune and quern_populate; schedules for instruction sets that this processor lacks are predicted, not measured */
    const char *isa;
    int deterministic;   /* a fixed order of all sums, independent of the number of threads and of sizes that are not summed over, with
                          * every operation rounded separately: the same bits for a sample in any batch (doc/deterministic.md) */
};

struct quern_tune_opts {
    size_t size;
    const char *device;    /* a driver's name, or a pattern over device names; NULL: "cpu" */
    int threads;           /* 0: all processors */
    double timeout;        /* seconds, 0: until the search has converged; at least one kernel is measured */
    int min_samples;       /* per surviving candidate, 0: 10 */
    int max_candidates;    /* per task, 0: as many as time permits */
    double stop_at_speedup; /* over the default program, 0: never */
    uint64_t seed;
    int populate_only;
    const struct quern_target_opts *target; /* NULL: no limits */
    int no_fusion;         /* as for compiling */
    int no_memory_concat;
    double relative_error; /* stop at three or more samples that differ by at most this fraction; 0: take min_samples */
};

/* Creates a missing file; ":memory:" is allowed. A read-only file is opened for reading. A damaged one is rejected: see quern_db_repair. */
QUERN_API quern_status quern_db_open(quern *q, const char *path, quern_db **out);
QUERN_API void quern_db_close(quern_db *db);
/* Adds every task of the model with its built candidates. Options are stored with the model's tasks. */
QUERN_API quern_status quern_populate(quern_db *db, quern_model *m, const struct quern_tune_opts *o);
/* Measures the candidates of the database, within limits of time and confidence; continues after any interruption. */
QUERN_API quern_status quern_bench(quern_db *db, const struct quern_tune_opts *o);
/* quern_populate, then measurements guided by the needs of this model. */
QUERN_API quern_status quern_tune(quern_db *db, quern_model *m, const struct quern_tune_opts *o);

struct quern_compile_opts {
    size_t size;
    const char *device;   /* NULL: "cpu" */
    int threads;
    int no_fusion;        /* one kernel per operator */
    int untuned;          /* ignore the database and use default schedules */
    const struct quern_target_opts *target;
    int no_memory_concat; /* concatenations only in the loads of their consumers */
    int keep;             /* if no database is involved, keep the program in the user's cache (~/.cache/quern/programs), where later
                           * processes that compile the same find it: starting takes a tenth of the time. It is written after its first
                           * result, or when it is closed; see quern_cache_limit */
    int prove;            /* verify each kernel in exact arithmetic (quern_verify_exact), within a bounded number of steps; quern_explain
                           * prints the verdicts */
};

/* db may be NULL: default schedules. A task without measurements gets the fastest schedule of the nearest measured task if that is expected
 * to be faster than the default. The program can be run and saved. */
QUERN_API quern_status quern_compile(quern_model *m, quern_db *db, const struct quern_compile_opts *o, quern_program **out);
/* With all variants that were compiled, or that the opened file has; without signatures. */
QUERN_API quern_status quern_program_save(quern_program *p, const char *path);

/* --- quantisation (doc/quantize.md) --- */

/* The k-th sample of calibration data: a new tensor per input of the model, of its type and shape, into in[0 .. n_in-1]; the library frees
 * them. QUERN_NOTHING: there are k samples. Samples are asked for several times, always from 0 on. */
typedef quern_status quern_sample_fn(void *user, int k, quern_tensor **in, int n_in);
/* A layer (Conv, ConvTranspose, Gemm, MatMul with constant weights) or an output of the network; valid during the call. Errors are relative,
 * over all samples: root mean square of the difference to the network in f32, divided by that of the values; infinite if all of these are
 * 0. */
struct quern_quantized {
    const char *name, *op;   /* node and operator; of an output its name and "" */
    int is_output;
    int is_quantized;        /* 0: the layer stays in f32 */
    double own;              /* error of the layer's results if it alone is quantised; of weights alone: of them; negative: unknown */
    double total;            /* in the quantised network; NaN: nothing was run */
    double max_abs;          /* largest absolute difference there */
};
typedef void quern_quantized_fn(void *user, const struct quern_quantized *x);
struct quern_quantize_opts {
    size_t size;
    const char *method;      /* how ranges of values follow from the samples: "min-max" all values; "entropy" least divergence of the
                              * distributions (Migacz 2017); "percentile" all but a fraction at either end; NULL: min-max */
    double percentile;       /* of the values that a range holds at either end, in percent, 50 to 100; 0: 99.99 */
    double max_error;        /* layers with a larger `own` error stay in f32; 0: none */
    const char *const *keep; /* patterns of names of layers that stay in f32, ended by NULL; NULL: none */
    const char *activations; /* "u8" or "i8"; NULL: u8 */
    int no_bias_correction;  /* 0: biases compensate for the mean error of rounded weights (Nagel et al. 2019) */
    const char *device;      /* that runs the samples; NULL: "cpu" */
    int threads;
    quern_quantized_fn *report; /* called for each layer in the order of execution, then for each output; NULL: errors are only measured
                                 * for max_error */
    void *report_user;
    int reduce_range;        /* 1: weights of 7 bits, -64 to 64, and sums of four of them within i16 times 255, for processors that sum products
                              * of bytes in i16 (AVX2 without VNNI) */
    const char *weights;     /* "int4" or "int8": only the weights of MatMul and Gemm are quantised, with a scale per column and block of terms,
                              * and activations stay in f32; options of activations do not apply, and `sample` may be NULL: then `own` is the
                              * error of a layer's weights, and other errors are NaN. NULL: activations are quantised, too */
    int block;               /* with weights: terms with one scale, 16, 32, 64, 128 or 256; 0: 32 */
    int gptq;                /* with weights: 1: later weights of a column make up for the rounding of earlier ones on the samples (Frantar et al. 2022),
                              * which takes time with the cube, and memory with the square, of a layer's terms */
    int full;                /* 1: from the inputs to the outputs, too, as devices demand that compute in 8 bits alone. 0: between layers only */
};
/* Static quantisation to 8 bits (Jacob et al. 2018): the network with QuantizeLinear and DequantizeLinear around its layers, activations of
 * 8 bits with one scale and zero point per value, weights i8 with a scale per output channel, biases i32. Inputs and outputs keep their
 * types. o may be NULL. QUERN_UNSUPPORTED: no layer can be quantised; QUERN_INPUT: no sample, or one that leads to values that are not
 * finite; QUERN_NOTHING: every layer is left in f32. */
QUERN_API quern_status quern_quantize(quern_model *m, quern_sample_fn *sample, void *user, const struct quern_quantize_opts *o, quern_model **out);

/* --- placement: which device runs which operator (doc/allocation.md) --- */

/* A sub-graph of an allocation: what one device runs at a time. */
struct quern_subgraph_time {
    const char *device;      /* "X64:0" */
    const char *first, *last; /* names of its first and last operator in topological order */
    int n_ops, n_inputs, n_outputs;
    double start, seconds;   /* expected: when in a request that runs alone, and how long */
};
struct quern_device_load {
    const char *device;
    int n_ops, n_subgraphs;
    double busy;             /* expected seconds per request */
};
/* What is expected of an allocation. Times are those of the model in doc/allocation.md: infinite if a device has no kernel for an operator. */
struct quern_placement {
    const char *aim;         /* "latency" "throughput" "energy": what `value` is, in seconds, seconds and joules */
    double value;
    double latency;          /* seconds of a request that runs alone */
    double period;           /* seconds between requests of a stream */
    double joules;           /* of a request; 0: the watts of devices are not known */
    double bound;            /* no allocation can have less, by the costs of plan selection; 0: unknown, or nothing was searched */
    const char *single;      /* the device that is best for everything; NULL: none can run everything, or nothing was searched */
    double single_value;
    int n_subgraphs, is_minimal; /* is_minimal: the allocation cannot be divided into fewer */
    const struct quern_subgraph_time *subgraph; /* in an order in which they can run */
    int n_devices;
    const struct quern_device_load *device;
    int64_t n_tried, n_compiled; /* allocations that were compared, sub-graphs that were compiled to find their time */
    int is_cut_short;        /* the time limit ended the search */
};
typedef void quern_placement_fn(void *user, const struct quern_placement *x);
struct quern_allocate_opts {
    size_t size;
    const char *const *devices; /* ended by NULL: "X64:0" "NVIDIA:0" "INTELGPU:0=device:*llvmpipe*;slowdown:3" */
    const char *on;          /* one of them, for all operators: a template to be edited. NULL: not wanted */
    const char *check;       /* JSON of an allocation to be checked, which may name more devices. NULL: not wanted. Without both the best
                              * allocation is searched */
    const char *minimise;    /* of the search: "latency", "throughput", "energy"; NULL: latency */
    double seconds;          /* that the search may take; 0: until it has converged. The result is reproducible without a limit, and with one that is
                              * not reached */
    quern_placement_fn *report; /* called once, with what is expected; the struct is valid during the call. NULL: not wanted, and nothing is
                              * predicted for a template or a check */
    void *report_user;
    const char *check_file;  /* the allocation to be checked in a file, which errors name. NULL: not wanted */
};
/* The allocation as JSON, {"conv2d_2": "X64:0", "add_5": "NVIDIA:0"}, in topological order; to be freed by quern_text_free. Processors and
 * GPUs that are here, or whose architecture `device` names, are predicted by plan selection, from the measurements of db (may be NULL)
 * where it has some; copies to a GPU that is here are timed once and kept. Others have to be described for a search or a report (gflops,
 * gbs). Errors name line, operator and device, and what they could have been. QUERN_NOTHING: no device can run some operator. Sends progress. */
QUERN_API quern_status quern_allocate(quern_model *m, quern_db *db, const struct quern_allocate_opts *o, char **json);

/* --- deployments: one network over several devices (doc/deployment.md) --- */

struct quern_deploy_opts {
    size_t size;
    const char *name;        /* of the deployment; NULL: the model's */
    const char *const *devices; /* ended by NULL: "X64:0" "NVIDIA:0" "INTELGPU:0=device:*llvmpipe*;slowdown:3" (doc/allocation.md); NULL: those of the
                              * allocation, with their defaults */
    const char *allocation;  /* JSON, {"conv2d_2": "X64:0", "add_5": "NVIDIA:0"}: a device for each operator; NULL: all on the first device */
    quern_sample_fn *sample; /* calibration data, for devices whose tools quantise; NULL: none */
    void *user;              /* of sample */
    int f16;                 /* floats are f16 in inputs, outputs and between kernels */
    int fallback;            /* sub-graphs for other devices get a program for the processor, too, which runs where the device is missing */
    int packed;              /* one file instead of a folder */
    int no_tools;            /* do not run vendors' converters, even if they are on PATH */
    const char *key;         /* the file of a private key to sign with; NULL: not signed (doc/signing.md) */
    const struct quern_tune_opts *tune; /* tune each sub-graph that quern compiles for this long, into the database; NULL: do not tune */
    const struct quern_compile_opts *compile; /* of these sub-graphs: target, untuned ..; device and threads are those of the allocation. NULL: defaults */
    const char *allocation_file; /* the allocation in a file, which errors name; NULL: none */
};
/* Divides the network by device, compiles or converts each sub-graph, and writes them to a new folder `path`/NAME, or to one file `path` if packed.
 * Sub-graphs are verified neither here nor by their devices' tools; quern_verify_deployment runs them. Progress events name the steps. What a vendor's
 * tool has to do first is in the log, and in the deployment. db may be NULL. After a failure nothing is left behind. */
QUERN_API quern_status quern_deploy(quern_model *m, quern_db *db, const char *path, const struct quern_deploy_opts *o);

/* --- one operator on a caller's arrays (doc/operators.md) --- */

struct quern_op_opts {
    size_t size;
    const char *device;      /* as for compiling */
    int threads;
    quern_db *db;            /* measured schedules; NULL: default schedules */
    const char *sizes;       /* sizes of each input, as "N:?:H:W,N:?:H:W+2": a named size may change from call to call, the same name is the
                              * same size; '?' is a constant of the kernel. NULL: all are '?' */
};
/* op: an operator of ONNX, or of this library, as "quern::ConvGradInput". attributes: as in the text form of graphs (doc/graph-ir.md),
 * "kernel_shape=[3,3], auto_pad=\"VALID\""; NULL: none. An attribute that the operator does not have, or of another
 * kind than quern_operator_at states, is an error; integers are accepted for floats. Strings are copied, db must outlive the operator. What the operator does not
 * support is reported by the first call with arrays. */
QUERN_API quern_status quern_op_open(quern *q, const char *op, const char *attributes, const struct quern_op_opts *o, quern_op **out);
QUERN_API void quern_op_close(quern_op *op);
/* The operator for such arrays (data is ignored) as a model with inputs "i0", "i1" ... and outputs "o0" ..., to be tuned, compiled and
 * saved like any other. n_out may be less than the operator's number of outputs. */
QUERN_API quern_status quern_op_model(quern_op *op, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out,
                                      quern_model **model);
/* Types, ranks, sizes and row-major strides of the outputs. An output whose rank is given as -1 is omitted, and remains so. */
QUERN_API quern_status quern_op_shape(quern_op *op, const struct quern_array *in, int n_in, struct quern_array *out, int n_out);
/* Computes the outputs, which must have those sizes and not overlap with any array. Dense arrays, row-major or channels last (rank 3 to 5),
 * are used in place; others are copied before or afterwards. Outputs of type 0 are omitted. Programs for the last 64 layouts of arrays are
 * kept. */
QUERN_API quern_status quern_op_run(quern_op *op, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out);
/* Likewise on arrays in the device's memory, in the order of a stream, see quern_enqueue. They must be dense, row-major or channels last. */
QUERN_API quern_status quern_op_enqueue(quern_op *op, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out,
                                        void *stream);

/* --- contractions of a model --- */

/* Equal matrix products, convolutions, transposed ones or gradients, alone or as part of larger operators (Gemm, Attention, LSTM ...). */
struct quern_contraction {
    size_t size;
    const char *op, *node;   /* operator of the model, its name (of the first) */
    const char *role;        /* "scores", "values": both products of an attention, also of one by several operators; "": neither */
    const char *shape;       /* "12x1024x64 * 12x64x1024"; of convolutions with strides and groups: "1x64x56x56 * 64x1x3x3 /2 g64" */
    quern_dtype type;        /* of the first operand */
    int count;
    double flops;            /* of one; a multiply-add is two */
    int rank[2];
    int64_t dim[2][8];       /* of both operands */
    /* Of a matrix product, sizes of 1 omitted, as of struct quern_gemm_shape: (b.., m, k) x (k, n) has no b but b times as many rows. m 0: of
     * a convolution. */
    int n_batch;
    int64_t batch[4], m, n, k;
};
/* In the order of the model, at these sizes ("H=17,W=31", NULL: optimize_for); the struct and its texts are valid during the callback. Bodies of
 * loops and branches are not included. */
QUERN_API quern_status quern_model_contractions(quern_model *m, const char *sizes,
                                                void (*each)(void *user, const struct quern_contraction *x), void *user);

/* Equal attentions, softmax(softcap(scale q k^T) + mask) v, by one operator or several. */
struct quern_attention {
    size_t size;
    const char *op, *node;   /* operator of the model that computes the scores, its name (of the first) */
    quern_dtype type;        /* of the queries */
    int count;
    int64_t batch, heads, key_heads; /* key_heads: of keys and values, each for heads / key_heads heads of queries */
    int64_t queries, keys, head_size, value_size;
    double scale, softcap;   /* of the scores; softcap 0: none */
    const char *mask;        /* "causal", "window 128" (keys from the query's own on), "mask" (any other, of data, too), "bias" (added to the scores), joined
                              * by '+'; "": none. The last query belongs to the last key */
    int has_sums;            /* not 0: sums of the probabilities over the queries are needed, too */
    const char *kind;        /* of struct quern_attention_shape that computes the same; NULL: none does */
    const char *why;         /* kind NULL: the reason */
};
/* As quern_model_contractions. */
QUERN_API quern_status quern_model_attentions(quern_model *m, const char *sizes, void (*each)(void *user, const struct quern_attention *x), void *user);

/* --- GEMM configurations (doc/gemm.md) --- */

struct quern_gemm_opts {
    size_t size;
    const char *result;      /* JSON file of the best results, in addition to existing ones; NULL: none */
    int64_t start, max;      /* first point and number of points of the space; max 0: all */
    int stop_at_tflops;      /* not 0: stop at 60 % of the device's estimated peak */
    const char *rules;       /* "own" "deepgen" "deepgen-2025-06"; NULL: own */
    const char *type;        /* "f32" "tf32" "f16" "bf16" and other spellings; NULL: that of the file */
    const struct quern_tune_opts *tune; /* device, time, samples, speed-up to stop at; NULL: defaults */
    int search;              /* not 0: search among all kernel families for the file's matmul, instead of measuring points */
    const char *baseline;    /* baseline of speed-ups: "vendor", the GEMM of the device's library, or "reference", the default schedule;
                              * NULL: the library if installed and correct */
};
struct quern_gemm_best {     /* the best result in the database for this matmul */
    char name[768];          /* "" if nothing was verified; matmul, family and schedule if no name can express it */
    double seconds, base_seconds, speedup, tflops;
    int64_t n_points, n_refused; /* of this run: visited; refused by the kernel family */
    char baseline[64];       /* "reference", or library and version; "" if unknown, from a file of results */
};
/* Measures the points of a configuration file's space, or the kernels of a list of names (start, max 0), beside the reference schedule, and
 * the device's library if it is the baseline. Space and rules are reported as notes. */
QUERN_API quern_status quern_gemm(quern_db *db, const char *config, const struct quern_gemm_opts *o, struct quern_gemm_best *best);

/* One matmul: y (b.., m, n) = a (b.., m, k) x b (b.., k, n). */
struct quern_gemm_shape {
    size_t size;
    int n_batch;             /* 0 to 4 */
    int64_t batch[4], m, n, k;
    int is_transposed;       /* a is stored as (b.., k, m) */
    quern_dtype type;        /* 0: f32 */
};
/* The matmul as a model with inputs "a" and "b" and output "y", to be tuned, compiled and run like any other. */
QUERN_API quern_status quern_model_gemm(quern *q, const struct quern_gemm_shape *shape, quern_model **out);
/* A configuration file for the matmul, for quern_gemm: the value lists of deepgen's own files for threads of warps of this size (32, 64).
 * QUERN_UNSUPPORTED: the format has no number for the type. Free with quern_text_free. */
QUERN_API quern_status quern_gemm_space(quern *q, const struct quern_gemm_shape *shape, int warp_size, char **text);
struct quern_gemm_found {
    char name[512];          /* of the kernel for this matmul; "" if no name can express it */
    char candidate[512];     /* as in the database */
    double seconds;          /* measured, for the matmul below */
    double distance;         /* 0: measured for this matmul; else the distance of the nearest measured one: the sum of the logarithms to
                              * base 2 of the ratios of sizes, plus 1 if only one of them has a transposed left operand */
    int64_t m, n, k;
    int is_transposed;       /* of that matmul */
};
/* The best kernel in the database for the matmul on that device, or for the nearest matmul for which it is legal. QUERN_NOTHING: none. */
QUERN_API quern_status quern_gemm_find(quern_db *db, const struct quern_gemm_shape *shape, const char *device,
                                       struct quern_gemm_found *out);

/* --- attention by names and configurations (doc/attention.md) --- */

/* Attention with queries q and keys k (batch, heads, head_size, length), values v and output o (batch, heads, length, head_size), or one
 * kernel of a split attention. */
struct quern_attention_shape {
    size_t size;
    const char *kind;        /* "attn_v1" "attn_v2" "attention_origin" "attn_split" "attn_k1" "attn_k2" "gemma2_origin" "gemma2_split"
                              * "gemma2_k1" "gemma2_k2" "h2o_origin" "h2o_split" "h2o_k1" "h2o_k2" "h2o_k3"; NULL: attn_v1 */
    int part;                /* of a split kind, its kernel, from 1 on; 0: all of it */
    int64_t batch, heads, length, head_size;
    const char *type;        /* "f32" "f16" "bf16" "f64" and other spellings; NULL: f32 */
};
/* The computation of a kernel named "kcg_Attention_1_32_2048_64_Br64...", of type f32. QUERN_INPUT names the field and its column, or the
 * fields that contradict each other. */
QUERN_API quern_status quern_attention_name(quern *q, const char *name, struct quern_attention_shape *out);
/* The computation as a model, to be tuned, compiled and run like any other. Inputs: "q", "k", "v" (for "o"), "max" and "denom" (of kernels
 * that take a row's statistics, (batch, heads, length, 1), f32 at least). Outputs: "o", "row_sum" (batch, heads, length), "max" and
 * "denom". */
QUERN_API quern_status quern_model_attention(quern *q, const struct quern_attention_shape *shape, quern_model **out);
struct quern_attention_facts {
    size_t size;
    double flops;            /* of the products at positions that are attended to */
    const char *what;        /* description of the kind */
};
QUERN_API quern_status quern_attention_facts(quern *q, const struct quern_attention_shape *shape, struct quern_attention_facts *out);
/* A point of a space: its kernel's name and computation; both are valid during the call. Returns 0 to go on with the next space of a list
 * of names. */
typedef int quern_attention_point_fn(void *user, int64_t number, const char *name, const struct quern_attention_shape *of);
struct quern_attention_points_opts {
    size_t size;
    const char *rules;       /* "own" "deepgen"; NULL: own */
    const char *device;      /* whose threads and shared memory limit the points; NULL: "cpu", which has no limits */
    const struct quern_target_opts *target;
    int64_t start, max;      /* first point of a space and number of points; max 0: all */
    quern_attention_point_fn *each; /* NULL: points are only counted */
    void *user;
};
struct quern_attention_count {
    size_t size;
    double n_raw;            /* points of the product of all lists */
    int64_t n;               /* points that the rules leave */
    int64_t n_refused;       /* visited names whose fields contradict each other; the first one is reported as a warning */
};
/* The points of a file of value lists for this computation, or of a list of kernel names ({"kernels": [{"type": "attention", "kernelName":
 * ...}]}), whose computations they state themselves. Lists and rules are reported as notes. QUERN_NOTHING names the rule that leaves none. */
QUERN_API quern_status quern_attention_points(quern *q, const char *path, const struct quern_attention_shape *shape,
                                              const struct quern_attention_points_opts *o, struct quern_attention_count *count);
/* Measures the kernel that a name states, or the points of a file one by one, as they are tiled, beside the reference schedule: of kinds that are one kernel
 * (attn_v1, attn_v2, attention_origin, gemma2_origin), on devices with workgroups. what: a name, whose sizes it states, or a file; shape: of a file of lists.
 * Options are those of quern_gemm, without "vendor"; results are named by kernels. */
QUERN_API quern_status quern_attention_tiles(quern_db *db, const char *what, const struct quern_attention_shape *shape, const struct quern_gemm_opts *o,
                                             struct quern_gemm_best *best);

/* A configuration file for the computation, for quern_attention_points: the value lists of deepgen's own files for threads of warps of this size (32,
 * 64), with tiles of columns that divide the size of a head. QUERN_NOTHING: its rules, or this library's own, leave no point. Free with
 * quern_text_free. */
QUERN_API quern_status quern_attention_space(quern *q, const struct quern_attention_shape *shape, int warp_size, char **text);

/* --- convolution data sets and named implementations (doc/conv.md) --- */

struct quern_conv_opts {
    size_t size;
    const char *data;        /* a built-in data set, or a file; NULL: "cosmoflow" */
    int first, last;         /* rows first to last, exclusive; last 0: all; limited to the number of rows */
    int64_t batch;           /* 0: that of the row */
    const char *type;        /* "f32" "f16" "bf16" and other spellings; NULL: f32 */
    const char *implementation; /* a name, see quern_conv_implementation; NULL: "tuned" */
    int verify, compare;     /* not 0: verify; time beside the baseline */
    int no_build;            /* use only kernels that were built before */
    int launch_wait;         /* exclude launch latency: devices with a clock of their own always do, others print a note */
    int warm_up, total;      /* warm-up rounds, 0: none; measured rounds, 0: 100 */
    double seconds;          /* tune each row for this time first, 0: not at all */
    const char *baseline;    /* "vendor", the device's library; "reference", the default schedule; NULL: the library if installed */
    const char *out;         /* folder for the files of a run with compare; NULL: "outputplots/out_IMPLEMENTATION_BATCH" */
    const struct quern_tune_opts *tune; /* device, threads, target, seed; samples and candidates of tuning; NULL: defaults */
    int plots;               /* with compare: plot the folder, see quern_plot */
    const char *pass;        /* "forward", the convolution; "input", "weights", the gradient with respect to it; NULL: forward */
    int bias;                /* not 0: add a bias per output channel; */
    const char *activation;  /* "relu" or "leakyrelu" (slope 0.01) afterwards; NULL: "none". Both forward only. */
};
struct quern_conv_times { double median, low, high, min, mean, deviation, max; }; /* milliseconds; low, high: 95 % interval of the median */
struct quern_conv_layer {    /* valid during the call */
    int layer;
    const char *name;        /* "in_16X1X130X130X130_k_3X3X3_och_16" */
    const char *implementation, *candidate, *baseline; /* "": none */
    int ok, base_ok;         /* no error was found in either */
    const char *report;      /* lines of the verification, and of errors */
    int n;                   /* rounds; 0: not timed */
    struct quern_conv_times times, base_times;
    double ratio, ratio_low, ratio_high; /* baseline / implementation, round by round */
    double gflop, gbytes;
};
typedef void quern_conv_fn(void *user, const struct quern_conv_layer *l);
/* Tunes, builds, verifies and times each row in turn, as the options say, and reports it to fn (may be NULL). QUERN_FAILED at the end if
 * any kernel was wrong or unavailable. */
QUERN_API quern_status quern_conv(quern_db *db, const struct quern_conv_opts *o, quern_conv_fn *fn, void *user);
QUERN_API const char *quern_conv_implementation(int k, const char **summary); /* NULL after the last */
QUERN_API const char *quern_conv_data(int k);                                 /* names of data sets; NULL after the last */
/* Plots the CSV files of a run into its folder, as SVG and PNG. QUERN_NOTHING: the folder has no data; QUERN_UNSUPPORTED: Python or
 * matplotlib is not installed. */
QUERN_API quern_status quern_plot(quern *q, const char *dir);
/* Writes breakdown.csv into a folder, which is created: a line network,layer,operator,ms for each of n steps of a program
 * (quern_profile_steps); network is the program's name, device and number of threads. Existing lines of other networks are kept. */
QUERN_API quern_status quern_breakdown_write(quern_program *p, const struct quern_step *steps, int n, const char *dir);

/* --- other formats --- */

struct quern_export_opts {
    size_t size;
    const char *to;            /* the format, see quern_exporter */
    const char *const *option; /* "name=value", ended by NULL (which may be NULL itself): see `quern export --help` */
};
/* Converts networks (.onnx ...) or programs (.dnx) to a file or folder: "onnx" takes one network, "vkdt" one or more programs for Vulkan
 * devices, "vulkan-c" one of them, "c" one network whose sizes are fixed. */
QUERN_API quern_status quern_export(quern *q, const char *const *file, int n_files, const char *path,
                                    const struct quern_export_opts *o);
/* Likewise of a network as it was opened, with the sizes, types and layouts of its options. */
QUERN_API quern_status quern_model_export(quern_model *m, const char *path, const struct quern_export_opts *o);
QUERN_API const char *quern_exporter(int k, const char **summary); /* NULL after the last */

/* --- graphs and pictures (doc/graph.md) --- */

struct quern_graph_opts {
    size_t size;
    const char *form;       /* "json" (networkx's node-link form), "graphml", "dot", "svg", "png" (these two drawn by Graphviz, which must be installed) or
                               "onnx" (the network with notes, for viewers); NULL: the suffix of the path */
    const char *allocation; /* a device per operator as JSON, {"conv2d_2": "X64:0", "add_5": "X64:1"}: colours, frames of sub-graphs. NULL: none */
    const char *allocation_file; /* likewise, the path of a file */
    const char *sizes;      /* "H:480,W:640": for operations and bytes; NULL: those that the model is optimised for */
    const char *collapse;   /* operators drawn as one: "auto" (also NULL), "none", "module" (by the paths in nodes' names), "fusion" (by kernel), "blocks" */
    double inches;          /* most width and height of a picture; 0: what it takes */
    int params;             /* parameters in pictures: 1 shown, -1 hidden, 0: shown for small networks */
    const char *device;     /* of the times and kernels, as in quern_compile_opts */
    int threads;
    const struct quern_target_opts *target;
};
/* Operators and tensors as nodes of a graph, by the names that allocations use: "conv2d_2", "tensor_4", "paramtensor_3". db: measured times (those of the
 * kernels that would be selected); NULL: none. */
QUERN_API quern_status quern_graph_write(quern_model *m, quern_db *db, const struct quern_graph_opts *o, const char *path);
/* Likewise as text, to be freed by quern_text_free; for all forms but png and onnx. */
QUERN_API quern_status quern_graph_text(quern_model *m, quern_db *db, const struct quern_graph_opts *o, char **text);

/* --- inspection: JSON or text, to be freed by quern_text_free --- */

QUERN_API quern_status quern_explain(quern *q, const char *dnx, char **text);       /* selected kernels and their alternatives */
QUERN_API quern_status quern_program_explain(quern_program *p, char **text);        /* likewise, of a program that was compiled or opened */
QUERN_API quern_status quern_show(quern *q, const char *path, char **text);         /* any file type of quern, or a kernel name, kcg_...;
                                                                                     * for programs with kinds of code and signers */
/* Tests every scalar operation on a table of difficult values against the interpreter: a line for each error and its consequence. GPU
   drivers are tested when they are first compiled for, and the result is cached; this function repeats the tests. device: see
   quern_compile_opts. */
QUERN_API quern_status quern_test_conformance(quern *q, const char *device, char **text);
/* Measures how fast a device is (multiply-adds by instruction, memory by level, launches, barriers), in less than a second, and caches the
   rates: later calls read them. Without them rates are assumed. The text is a table. */
struct quern_measure_opts {
    size_t size;
    const char *device;    /* NULL: "cpu" */
    int threads;           /* 0: all processors */
    const struct quern_target_opts *target; /* NULL: no limits */
};
QUERN_API quern_status quern_measure(quern *q, const struct quern_measure_opts *o, char **text);
QUERN_API quern_status quern_devices(quern *q, char **json);                        /* array of {name, language, device, fingerprint, caps, rates};
                                                                                     * "rates" if measured or of a described core, "described" if the device is
                                                                                     * absent */
QUERN_API quern_status quern_db_stats(quern_db *db, char **json);
QUERN_API quern_status quern_db_export(quern_db *db, const char *csv);              /* one row per sample */
QUERN_API quern_status quern_db_merge(quern_db *db, const char *other, int64_t *n_new);
QUERN_API quern_status quern_db_prune(quern_db *db, const char *what, int64_t *n_gone); /* "failed", "foreign", "losers" */
struct quern_db_saved {
    size_t size;
    int64_t pages, damaged, corrected; /* of the damaged file; corrected by their checksums */
    int64_t lost_frames;               /* of its write-ahead log */
    int64_t tasks, trials, samples;    /* recovered */
    int64_t orphans;                   /* samples without their trials */
};
/* Recovers a damaged database, which no other process may have open, into a new file. */
QUERN_API quern_status quern_db_repair(quern *q, const char *damaged, const char *path, struct quern_db_saved *saved);
QUERN_API const char *quern_stages(int k, const char **summary); /* names for quern_opts.dump; NULL after the last */
QUERN_API void quern_text_free(char *text);

/* --- the user's cache of compiled kernels and programs: $XDG_CACHE_HOME/quern, else ~/.cache/quern --- */

struct quern_cache {
    size_t size;
    char folder[1024];     /* "": none */
    int64_t entries, bytes;
    int64_t limit;         /* bytes; beyond it least recently used files are evicted */
};
QUERN_API quern_status quern_cache_info(quern *q, struct quern_cache *info);
QUERN_API quern_status quern_cache_limit(quern *q, int64_t bytes); /* for all processes of this user; 0: keep nothing */
QUERN_API quern_status quern_cache_clear(quern *q);
/* What a front end derived from its own graphs (an exported model, its choices), kept between processes, sealed and evicted as compiled kernels are; key:
 * any bytes, which should include the versions of everything that was involved. QUERN_NOTHING: there is none. Free data with quern_text_free. */
QUERN_API quern_status quern_cache_get(quern *q, const void *key, size_t key_size, char **data, size_t *size);
QUERN_API quern_status quern_cache_put(quern *q, const void *key, size_t key_size, const void *data, size_t size); /* a full disk is no error */

/* --- verification --- */

struct quern_check {
    int64_t n_bad, count;  /* elements outside the tolerance, of count */
    double max_abs, max_rel, tolerance;
    const char *output;    /* name */
    double ulp, bound;     /* max_abs and its bound, in units in the last place of the output's largest value as a number of the coarsest
                            * float type in the network: under cancellation, an element's own last place says nothing about its accuracy */
};
/* Compares a program with the reference evaluator on seeded random inputs; one entry per output. */
QUERN_API quern_status quern_verify(quern_model *m, quern_program *p, const char *sizes, uint64_t seed, struct quern_check *c,
                                    int max, int *n);
/* The verdict of exact verification about one kernel; valid during the call. */
enum { QUERN_EXACT, QUERN_BY_TOLERANCE, QUERN_DIFFERS };
struct quern_exact {
    int verdict;
    const char *layer;     /* nodes that it computes */
    const char *kernel;    /* family and schedule */
    const char *sizes;     /* sizes of its first output, per set of sizes */
    const char *why;       /* reason if it is not exact; else "" */
    int dispatches;        /* that use it */
    double seconds;        /* CPU time */
};
typedef void quern_exact_fn(void *user, const struct quern_exact *x);
/* Compares each kernel of a program of the model with the definition of its task, in an interpreter over a finite field, where nothing is
 * rounded (doc/verify.md). program: a .dnx file; NULL: the kernels that these options (NULL: defaults) and this database (NULL: none)
 * select. */
QUERN_API quern_status quern_verify_exact(quern_model *m, const char *program, quern_db *db, const struct quern_compile_opts *o, uint64_t seed,
                                          quern_exact_fn *fn, void *user);
/* An output of a kernel compared with the reference evaluator, on the reference's inputs; valid during the call. */
struct quern_layer {
    const char *layer, *ops; /* nodes that the kernel computes, and their operators */
    const char *value;       /* the output */
    const char *kernel;      /* family and schedule */
    int64_t n_bad, count;    /* elements beyond the bound, of count */
    double ulp, bound;       /* error and bound of the worst element, in units in the last place of the largest value as a number of `type` */
    int64_t at;              /* its row-major index */
    double got, want;
    const char *type;        /* the coarsest float type between the kernel's inputs and outputs: f16 if it may round a value to f16 */
    double loss;             /* difference to the exact results for the same inputs, relative to these, in the Euclidean norm; NAN: not known,
                              * as for integers */
};
typedef void quern_layer_fn(void *user, const struct quern_layer *l);
/* Verifies a program of the model kernel by kernel, in the order of execution: the first with n_bad > 0 causes the error. Bodies of loops
 * and branches are not examined. sizes: as for quern_model_random_inputs. */
QUERN_API quern_status quern_verify_layers(quern_model *m, quern_program *p, const char *sizes, uint64_t seed, quern_layer_fn *fn, void *user);
/* A tensor that a sub-graph of a deployment writes, compared with the reference evaluation of that sub-graph on what it read; or, subgraph NULL, an
 * output of the whole compared with that of the network. Valid during the call. */
typedef void quern_deployment_check_fn(void *user, const char *subgraph, const struct quern_check *c);
/* Runs a deployment of the model on seeded random inputs, and verifies each sub-graph alone and all of them together. sizes: as for
 * quern_model_random_inputs. n_bad of any check > 0: it is wrong. */
QUERN_API quern_status quern_verify_deployment(quern_model *m, quern_deployment *d, const char *sizes, uint64_t seed, quern_deployment_check_fn *fn, void *user);
/* Largest difference of two tensors under the tolerance that quern_verify would use for a reduction of length `depth`. */
QUERN_API quern_status quern_tensor_check(quern *q, const quern_tensor *got, const quern_tensor *want, double rtol, double atol,
                                          struct quern_check *c);

#ifdef __cplusplus
}
#endif
#endif
