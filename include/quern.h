/* SPDX-License-Identifier: Apache-2.0
 *
 * quern: a neural network becomes the fastest native code that was measured on its device.
 *
 * The whole public interface. A `quern` context holds settings, messages and the last error; models, databases, programs and
 * tensors are opaque handles made from it. Functions return QUERN_OK or the kind of failure; quern_error() says what, where and
 * what to do. Every handle belongs to one thread at a time; different contexts are independent. Option structs start with their
 * size, so that older callers keep working: initialise with QUERN_OPTS(type), e.g.
 *
 *     struct quern_tune_opts o = QUERN_OPTS(quern_tune_opts);
 *     o.timeout = 60;
 *
 * Functions marked [rt] are in libquern_rt, too, which has no compiler in it.
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
    QUERN_FAILED = 1,      /* the work could not be done */
    QUERN_USAGE = 2,       /* wrong arguments */
    QUERN_NOTHING = 3,     /* nothing was measured, or nothing could be chosen */
    QUERN_UNSUPPORTED = 4, /* valid, but not handled */
    QUERN_INPUT = 5,       /* broken or inconsistent input */
    QUERN_SYSTEM = 6,      /* the operating system refused: memory too, which never ends the caller's process but where 64 MiB that the
                              library holds in reserve (address space, no memory) do not suffice to end a call in order */
    QUERN_STOPPED = 7,     /* quern_stop came before there was a result */
} quern_status;

typedef struct quern quern;                 /* context */
typedef struct quern_model quern_model;     /* an imported network */
typedef struct quern_db quern_db;           /* tuning results */
typedef struct quern_program quern_program; /* compiled, ready to run or to save */
typedef struct quern_tensor quern_tensor;   /* dense row-major host tensor */
typedef struct quern_op quern_op;           /* one operator for arrays of any shape */

/* --- context [rt] --- */

typedef enum quern_event_kind {
    QUERN_LOG,      /* text, level 0 error, 1 warning, 2 note, 3 detail */
    QUERN_PROGRESS, /* done of total, failures, best speed-up, seconds_left (negative: unknown); text: current activity */
    QUERN_RESULT,   /* text: one JSON object describing a finished trial, check or case */
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
    int log_level;            /* messages above it are not sent */
    const char *dump;         /* comma-separated stages to dump, see quern_stages */
    const char *dump_dir;     /* folder for dumps, NULL: as QUERN_LOG events */
    int require_signature;    /* every .dnx file that this context opens must be signed by a trusted key (doc/signing.md) */
    const char *trusted;      /* public keys that are trusted, a file or a folder of *.pem; NULL: $XDG_CONFIG_HOME/quern/trusted */
};

QUERN_API quern *quern_open(const struct quern_opts *o); /* o may be NULL; NULL only when out of memory */
QUERN_API void quern_close(quern *q);
QUERN_API const char *quern_error(const quern *q);       /* message of the last failure, "" if none */
/* Ends the call that the context is in, and those that follow, as soon as they can: what tunes and measures (quern_tune, quern_bench, quern_populate,
 * quern_gemm, quern_conv) keeps what was measured and returns as if its time were over, QUERN_STOPPED if that is nothing; other calls return
 * QUERN_STOPPED. May be called by a signal handler and by any thread; the library installs no handlers of its own. quern_resume takes it back. */
QUERN_API void quern_stop(quern *q);
QUERN_API void quern_resume(quern *q);
QUERN_API const char *quern_version(void);

/* --- tensors [rt] --- */

/* Values of ONNX TensorProto.DataType. In memory every element has a byte at least: one of 4 or 2 bits has its value in it (signed
 * ones with their sign), one of a float of 8, 6 or 4 bits its code; only ONNX files pack them. There are no strings and no
 * complex numbers: networks that need them are refused. */
typedef enum quern_dtype {
    QUERN_F32 = 1, QUERN_U8 = 2, QUERN_I8 = 3, QUERN_U16 = 4, QUERN_I16 = 5, QUERN_I32 = 6, QUERN_I64 = 7, QUERN_BOOL = 9,
    QUERN_F16 = 10, QUERN_F64 = 11, QUERN_U32 = 12, QUERN_U64 = 13, QUERN_BF16 = 16,
    QUERN_F8E4M3FN = 17, QUERN_F8E4M3FNUZ = 18, QUERN_F8E5M2 = 19, QUERN_F8E5M2FNUZ = 20, QUERN_U4 = 21, QUERN_I4 = 22,
    QUERN_F4E2M1 = 23, QUERN_F8E8M0 = 24, QUERN_U2 = 25, QUERN_I2 = 26, QUERN_F6E2M3 = 27, QUERN_F6E3M2 = 28,
} quern_dtype;

/* data NULL: zeroed; else copied. */
QUERN_API quern_status quern_tensor_new(quern *q, quern_dtype t, int rank, const int64_t *dim, const void *data,
                                        quern_tensor **out);
/* Uses the caller's memory without copying; it must outlive the tensor. */
QUERN_API quern_status quern_tensor_view(quern *q, quern_dtype t, int rank, const int64_t *dim, void *data, quern_tensor **out);
QUERN_API void quern_tensor_free(quern_tensor *t);
QUERN_API quern_dtype quern_tensor_dtype(const quern_tensor *t);
QUERN_API int quern_tensor_rank(const quern_tensor *t);
QUERN_API const int64_t *quern_tensor_dims(const quern_tensor *t);
QUERN_API void *quern_tensor_data(const quern_tensor *t);
QUERN_API int64_t quern_tensor_count(const quern_tensor *t); /* elements */
/* A copy with elements of another type: floats round to nearest even, to integers towards zero. */
QUERN_API quern_status quern_tensor_cast(quern *q, const quern_tensor *t, quern_dtype to, quern_tensor **out);

/* DLPack 0.8 (struct DLManagedTensor, declared by the caller's dlpack.h). Import takes row-major CPU tensors without copying
 * and calls the deleter in quern_tensor_free; export hands the tensor over: the
 * deleter frees it. */
struct DLManagedTensor;
QUERN_API quern_status quern_tensor_from_dlpack(quern *q, struct DLManagedTensor *m, quern_tensor **out);
QUERN_API quern_status quern_tensor_to_dlpack(quern *q, quern_tensor *t, struct DLManagedTensor **out);

/* --- programs [rt] --- */

struct quern_run_opts {
    size_t size;
    int threads;          /* 0: all processors; more than they are is allowed up to 8 for each, and 64, beyond that so many, with a message */
    const char *device;   /* as for compiling; NULL: the first that runs the program's language */
    int require_signature; /* the file must be signed by a trusted key, else it is not even parsed; what is checked is what is run */
    const char *trusted;  /* as of the context; NULL: those */
    const char *isa;      /* of a program with variants: that for this instruction set, named as when it was compiled; NULL: the one with the most
                             extensions that this processor has */
};

/* Opens a .dnx file. A PROGRAM IS CODE: one for the processor holds native code, which runs with all rights of this process, as a shared
 * library does: open only what you made, or trust, or require a signature. One for CUDA, HIP or OpenCL holds code of the device, which
 * sees what of this process's memory the device sees. One for Vulkan holds SPIR-V only, no native code: the driver compiles it, and it
 * runs on the GPU on the program's own buffers; it is untrusted input to that driver nevertheless (doc/signing.md). quern_show says what a
 * file holds. Files up to 64 MiB are read, larger ones mapped: whoever shortens one of those while it is used ends the process (SIGBUS).
 * Where a signature is required every file is read, and later changes of it do not matter. What native code may use of an instruction set
 * is compared with the processor before it is loaded: QUERN_UNSUPPORTED, and what is missing, where it could not run. */
QUERN_API quern_status quern_program_open(quern *q, const char *path, const struct quern_run_opts *o, quern_program **out);
QUERN_API void quern_program_close(quern_program *p);
QUERN_API int quern_program_inputs(const quern_program *p);
QUERN_API int quern_program_outputs(const quern_program *p);
QUERN_API const char *quern_program_input_name(const quern_program *p, int k);
QUERN_API const char *quern_program_output_name(const quern_program *p, int k);
QUERN_API quern_dtype quern_program_input_dtype(const quern_program *p, int k);
/* Rank; dim[d] is the size or -1 where it is symbolic, sym[d] then its text ("H"), valid as long as the program. Both hold 8. */
QUERN_API int quern_program_input_shape(const quern_program *p, int k, int64_t dim[8], const char *sym[8]);
/* "HWC", "CHW", "CHWC8", "NWC", "NHWC", "NDHWC" where the program was compiled for such a layout, else "". */
QUERN_API const char *quern_program_input_layout(const quern_program *p, int k);
QUERN_API const char *quern_program_output_layout(const quern_program *p, int k);
/* Runs once: n_in tensors in order of the inputs; out receives quern_program_outputs() new tensors (or, where out[k] is not
 * NULL on entry, writes into that tensor, whose shape must fit). Where a size depends on data (NonZero), a tensor that is given is room for at
 * most its elements, and its shape is the result's afterwards. */
QUERN_API quern_status quern_run(quern_program *p, quern_tensor *const *in, int n_in, quern_tensor **out, int n_out);
/* Elements anywhere in memory: that at (i, j ...) lies stride[0] * i + stride[1] * j + ... elements behind data. Strides have any sign;
 * 0 is the same element again, which only inputs may have along axes longer than 1. */
struct quern_array {
    quern_dtype type;        /* 0: an optional input that is left out */
    int rank;                /* 0 to 8 */
    int64_t dim[8], stride[8];
    void *data;
};
/* Likewise on arrays in memory of the program's device that belongs to others in this process, whose addresses kernels see (device pointers in the
 * primary context, which CUDA's runtime and PyTorch use), in the order of their stream on that device (NULL: the default stream): begins when what is
 * in the stream has ended, and what comes into it later begins when this has. Does not wait, so that a failure of the device may be told by a later
 * call. Arrays are dense, row by row, have the program's shapes, begin at multiples of 16 bytes and stay until the end; all outputs are given.
 * QUERN_UNSUPPORTED on devices other than CUDA's and HIP's. */
QUERN_API quern_status quern_enqueue(quern_program *p, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out,
                                     void *stream);
/* What out must be for inputs of these types and sizes (data and strides are not looked at): type, rank, sizes, the strides of a dense array.
 * A size that depends on data is -1; such programs run by quern_run only. */
QUERN_API quern_status quern_program_shape(quern_program *p, const struct quern_array *in, int n_in, struct quern_array *out, int n_out);
QUERN_API void quern_profile(quern_program *p, int on);
/* label: the network's nodes in this dispatch; operators: theirs ("Conv+LeakyRelu"), "layout" for a copy; layer: those of the nodes that take most of
 * the operations. Where a program does not say them operators is "" and layer the label. seconds: of all runs since quern_profile. */
struct quern_step { const char *label, *layer, *operators, *kernel, *task; double seconds, flops, bytes; };
QUERN_API int quern_profile_steps(const quern_program *p, struct quern_step *steps, int max); /* number of dispatches */
QUERN_API double quern_program_seconds(const quern_program *p); /* of the last run by the device's clock, data moved before and after; < 0: it was only enqueued */
QUERN_API int64_t quern_program_memory(const quern_program *p); /* bytes of temporary memory for the last sizes */

/* --- signatures (doc/signing.md) --- */

/* A new Ed25519 key: two new files, the private key, which only this user can read, and the public one. Both are PEM. */
QUERN_API quern_status quern_key_new(quern *q, const char *private_path, const char *public_path);
/* How people tell a key apart: 32 hexadecimal digits. The file may hold either half. */
QUERN_API quern_status quern_key_id(quern *q, const char *path, char id[33]);
/* Adds a public key to the user's trusted ones under a name; takes one away, by its name or id. */
QUERN_API quern_status quern_key_trust(quern *q, const char *public_path, const char *name);
QUERN_API quern_status quern_key_distrust(quern *q, const char *name_or_id);
/* The trusted keys of this context: JSON, an array of {name, id}; free with quern_text_free. */
QUERN_API quern_status quern_key_list(quern *q, char **json);
/* Signs a .dnx file with one more key (only not 0: with this one instead of those that it has) into out, NULL: in place. */
QUERN_API quern_status quern_sign(quern *q, const char *dnx, const char *private_path, int only, const char *out);

/* --- files --- */

/* .npy .png .pfm .pb by suffix; PNG and PFM become f32 (1, channels, height, width) in 0..1 */
QUERN_API quern_status quern_tensor_read(quern *q, const char *path, quern_tensor **out);
QUERN_API quern_status quern_tensor_read_raw(quern *q, const char *path, quern_dtype t, int rank, const int64_t *dim,
                                             quern_tensor **out); /* headerless row-major, little endian */
/* ONNX's files of a sequence or an optional value (.pb), of the kind that quern_file_value says: at most max tensors into out, *n of them; -1: an
 * optional value without content. */
typedef enum quern_kind { QUERN_TENSOR, QUERN_SEQUENCE, QUERN_OPTIONAL, QUERN_OPTIONAL_SEQUENCE } quern_kind;
QUERN_API quern_status quern_tensors_read(quern *q, const char *path, quern_kind kind, quern_tensor **out, int max, int *n);
QUERN_API quern_status quern_tensor_write(quern *q, const char *path, const quern_tensor *t);

/* --- models --- */

/* How callers of the program see an input or output; NULL: as the network has it. */
struct quern_io_opts {
    const char *name;    /* of an input or output; NULL: all inputs, or all outputs */
    int is_output;       /* when name is NULL */
    /* Extents joined by ':', each NAME, NAME=NUMBER, NUMBER or ?. Three are height, width and channels of a picture; else one for
     * each axis. A name given twice makes sizes equal, a number fixes one. */
    const char *shape;
    const char *type;    /* "f16" "f32" "f64" "u8" "i8"; floats that become integers are rounded and clamped. Without a name it is
                          * for inputs and outputs of floats */
    const char *layout;  /* "HWC" "CHW" "CHWC8": a picture without its batch axis, channels by eights filled up with zeros;
                            "NWC" "NHWC" "NDHWC": all axes, channels last */
    const char *storage; /* "SSBO": a buffer; there is no other */
};

struct quern_model_opts {
    size_t size;
    const char *optimize_for; /* "H:1080,W:1920": sizes that times refer to, NULL: 256 each */
    quern_tensor *const *constants; /* content of the k-th input of the file, which becomes a constant; NULL entries stay inputs */
    int n_constants;
    const struct quern_io_opts *io; /* in order, later ones win */
    int n_io;
    int f32_storage;     /* keep f32 behind inputs and outputs that are asked to be f16; else values are stored in f16 throughout where
                          * that is safe, and computed in f32 */
    const char *assume;  /* "B:1,H%16,S:1..4096": sizes that are fixed, multiples of a number, in a range, before anything is concluded
                          * from sizes; the program refuses others */
    const char *elements; /* "x:3,o:none": how many elements inputs have that are sequences: x becomes inputs "x[0]" "x[1]" "x[2]", and
                           * constants[] counts each of them; of optional values 1, or none for one without content. Constants in
                           * files beside the model are refused then, as they are with constants[] */
    const char *run_at;   /* "H:480,B:1": sizes at which it is going to run. Where the model in general does not fit them (it takes
                           * B for another size, which a batch of 1 is not), they are assumed */
    int external_data_links; /* constants in files beside the model may lie behind symbolic links that lead anywhere. 0: no link is followed,
                           * unless the model's path is one itself and the file lies where it leads to (as in Hugging Face's cache) */
};

QUERN_API quern_status quern_model_open(quern *q, const char *path, const struct quern_model_opts *o, quern_model **out);
/* The same from memory, which is not needed afterwards; constants in files beside it are refused. name: for messages and dumps. */
QUERN_API quern_status quern_model_read(quern *q, const void *data, size_t size, const char *name, const struct quern_model_opts *o,
                                        quern_model **out);
/* The k-th input or output that an ONNX file lists; *v is filled up to v->size. QUERN_USAGE: there is none. */
struct quern_file_value { size_t size; quern_kind kind; char name[256]; };
QUERN_API quern_status quern_file_value(quern *q, const char *path, int is_output, int k, struct quern_file_value *v);
/* The k-th operator that the library knows, then those of ONNX's own domain that it does not; 0: there are no more. Names of ONNX's own domain stand alone, others behind "domain::". */
struct quern_operator {
    size_t size;
    const char *name;
    int opset, changed, removed; /* of ONNX's own domain: opsets that introduced it, changed it last, took it away (0: none) */
    const char *form;      /* "composite": of other operators; "element": computed element by element; "whole": a kernel of its own;
                              "program": bodies that a program runs; "import": replaced while a model is read; "": not known here */
    uint64_t types;        /* of its first input, or of what it makes where there is none: a bit for each quern_dtype */
    const char *needs;     /* what a device must have to run it on types of 32 bits and fewer: "", "f64", "i64", "f64 i64" */
};
QUERN_API int quern_operator_at(int k, struct quern_operator *o);
QUERN_API const char *quern_dtype_text(quern_dtype t); /* "f32"; NULL: no such type */
QUERN_API quern_status quern_model_zoo(quern *q, const char *name, quern_model **out); /* seeded weights */
/* One reason why a model is refused; texts last as long as the call that tells it. */
struct quern_problem {
    const char *node, *op; /* "": it is about the whole model */
    const char *why;
    const char *help;      /* what would help; "": nothing is known */
};
struct quern_report {
    size_t size;
    int n_nodes;           /* of the model */
    int n_problems;
    int n_unchecked;       /* nodes whose inputs are unknown, because what makes them is refused */
};
/* All that stands in the way of opening a model file with these options (NULL: none) at once. QUERN_OK: it could be read and was looked
 * at, whatever was found. */
QUERN_API quern_status quern_model_problems(quern *q, const char *path, const struct quern_model_opts *o,
                                            void (*each)(void *user, const struct quern_problem *p), void *user,
                                            struct quern_report *r);
/* The network draws random numbers: its results are its own, not another implementation's. */
QUERN_API int quern_model_is_random(const quern_model *m);
QUERN_API void quern_model_close(quern_model *m);
QUERN_API quern_status quern_model_save(quern_model *m, const char *path); /* as ONNX */
QUERN_API quern_status quern_model_text(quern_model *m, char **text);      /* doc/graph-ir.md; free with quern_text_free */
/* As of programs. */
QUERN_API int quern_model_inputs(const quern_model *m);
QUERN_API const char *quern_model_input_name(const quern_model *m, int k);
QUERN_API quern_dtype quern_model_input_dtype(const quern_model *m, int k);
QUERN_API int quern_model_input_shape(const quern_model *m, int k, int64_t dim[8], const char *sym[8]);
QUERN_API const char *quern_model_input_layout(const quern_model *m, int k);
/* Changes some of the sizes that times refer to: "H:1080,W:1920". */
QUERN_API quern_status quern_model_optimize_for(quern_model *m, const char *sizes);
QUERN_API const char *quern_zoo_name(int k, const char **summary);         /* NULL behind the last */
/* Reference evaluation, float64 accumulation; same conventions as quern_run. */
QUERN_API quern_status quern_model_eval(quern_model *m, quern_tensor *const *in, int n_in, quern_tensor **out, int n_out);
/* Seeded random inputs for these sizes ("H=17,W=31", NULL: optimize_for). in receives one new tensor per input; returns their number. */
QUERN_API quern_status quern_model_random_inputs(quern_model *m, const char *sizes, uint64_t seed, quern_tensor **in, int max, int *n);
QUERN_API quern_status quern_program_random_inputs(quern_program *p, const char *sizes, uint64_t seed, quern_tensor **in, int max,
                                                   int *n); /* [rt] */

/* --- tuning and compiling --- */

/* Less than the device could do. */
struct quern_target_opts {
    size_t size;
    const char *devices; /* a file with what quern_devices gave elsewhere: the device is one of those and need not be here. NULL:
                          * those that are here */
    const char *env;     /* "vulkan1.0" to "vulkan1.4": no newer; NULL: what the device has */
    int no_matrix;       /* no matrix units */
    int optimize, debug_info, source_info; /* SPIR-V: through spirv-opt; with names and lines; with the kernel's text, too */
    int no_winograd;     /* no minimal filtering, which rounds more than a plain sum does */
    /* For processors: the instruction set that code is for, "x86-64" "x86-64-v2" "x86-64-v3" "x86-64-v4" "aarch64" "riscv64", with extensions behind
     * '+' ("aarch64+dotprod"), or "native" (also NULL): all that this one has. Joined by commas it is several, which become variants of one
     * program, by quern_compile, quern_tune and quern_populate; one that this processor lacks is compiled with schedules that are not measured */
    const char *isa;
    int deterministic;   /* all sums in an order that neither the number of threads nor sizes that are not summed over change, every operation rounded
                          * by itself: the same bits for a sample whatever the batch it is in (doc/deterministic.md) */
};

struct quern_tune_opts {
    size_t size;
    const char *device;    /* a driver's name, or a glob over names of devices; NULL: "cpu" */
    int threads;           /* 0: all processors */
    double timeout;        /* seconds, 0: until confidence is reached; one kernel is measured however short it is */
    int min_samples;       /* per surviving candidate, 0: 10 */
    int max_candidates;    /* per task, 0: as many as time allows */
    double stop_at_speedup; /* over the default program, 0: never */
    uint64_t seed;
    int populate_only;
    const struct quern_target_opts *target; /* NULL: all that the device can do */
    int no_fusion;         /* as for compiling */
    int no_memory_concat;
    double relative_error; /* three samples or more that differ by no more are enough; 0: min_samples are taken */
};

/* Created when missing; ":memory:". A file that cannot be written is read. A damaged one is refused: quern_db_repair. */
QUERN_API quern_status quern_db_open(quern *q, const char *path, quern_db **out);
QUERN_API void quern_db_close(quern_db *db);
/* Adds every task of the model with its candidates, built. Options are remembered with the model's tasks. */
QUERN_API quern_status quern_populate(quern_db *db, quern_model *m, const struct quern_tune_opts *o);
/* Measures what is in the database until time or confidence is reached; resumes after any interruption. */
QUERN_API quern_status quern_bench(quern_db *db, const struct quern_tune_opts *o);
/* populate, then measure guided by what this model needs. */
QUERN_API quern_status quern_tune(quern_db *db, quern_model *m, const struct quern_tune_opts *o);

struct quern_compile_opts {
    size_t size;
    const char *device;   /* NULL: "cpu" */
    int threads;
    int no_fusion;        /* one kernel per operator */
    int untuned;          /* ignore the database: default schedules */
    const struct quern_target_opts *target;
    int no_memory_concat; /* concatenations are never stored, neither by their parts nor by themselves */
    int keep;             /* where no database has a part in it the program is kept in the user's cache (~/.cache/quern/programs) and
                           * found there by the next process that compiles the same: starting takes a tenth of the time. It is
                           * written behind its first result, or when it is closed; see quern_cache_limit */
    int prove;            /* each kernel is held against its task in exact arithmetic (quern_verify_exact), within a bounded number of steps;
                           * quern_explain tells the results */
};

/* db may be NULL: default schedules. What the database never measured gets the fastest schedule of the nearest task that it knows, where
 * that is hoped to be faster than the default. The program can run and can be saved. */
QUERN_API quern_status quern_compile(quern_model *m, quern_db *db, const struct quern_compile_opts *o, quern_program **out);
/* With all variants that were compiled, or that the file has that was opened; without its signatures. */
QUERN_API quern_status quern_program_save(quern_program *p, const char *path);

/* --- one operator on a caller's arrays (doc/operators.md) --- */

struct quern_op_opts {
    size_t size;
    const char *device;      /* as for compiling */
    int threads;
    quern_db *db;            /* schedules that were measured; NULL: the default ones */
    const char *sizes;       /* of each input, as "N:?:H:W,N:?:H:W+2": a named size may differ from call to call, and one name is one size;
                              * '?' is part of what a kernel is built for. NULL: all are '?' */
};
/* op: a name of ONNX, or of this library as "quern::ConvGradInput". attributes: as in the text of graphs (doc/graph-ir.md),
 * "kernel_shape=[3,3], auto_pad=\"VALID\""; NULL: none. Strings are copied, db must outlive the operator. What is wrong with them is
 * known when they meet the first arrays. */
QUERN_API quern_status quern_op_open(quern *q, const char *op, const char *attributes, const struct quern_op_opts *o, quern_op **out);
QUERN_API void quern_op_close(quern_op *op);
/* The operator for such arrays (data is not looked at) as a model with inputs "i0", "i1" ... and outputs "o0" ..., to be tuned, compiled and
 * saved like any other. n_out may be fewer than the operator has. */
QUERN_API quern_status quern_op_model(quern_op *op, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out,
                                      quern_model **model);
/* What out must be: type, rank, sizes and the strides of a dense array, row by row. */
QUERN_API quern_status quern_op_shape(quern_op *op, const struct quern_array *in, int n_in, struct quern_array *out, int n_out);
/* Computes the outputs, which must have those sizes and not overlap with anything. Dense arrays are read and written where they are, row by
 * row or with channels last (rank 3 to 5); others are copied first, or afterwards. Programs for the last 64 kinds of arrays are kept. */
QUERN_API quern_status quern_op_run(quern_op *op, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out);
/* Likewise on arrays in the device's memory, in the order of a stream, see quern_enqueue. They must be dense, row by row or with channels last. */
QUERN_API quern_status quern_op_enqueue(quern_op *op, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out,
                                        void *stream);

/* --- matrix products for GPUs by configurations (doc/gemm.md) --- */

struct quern_gemm_opts {
    size_t size;
    const char *result;      /* JSON file of the best; what is there is kept beside; NULL: none */
    int64_t start, max;      /* points of the space from this number on, so many; 0: all */
    int stop_at_tflops;      /* not 0: enough at 60 % of the device's rough peak */
    const char *rules;       /* "own" "deepgen" "deepgen-2025-06"; NULL: own */
    const char *type;        /* "f32" "tf32" "f16" "bf16" and other spellings; NULL: as the file says */
    const struct quern_tune_opts *tune; /* device, time, samples, speed-up at which to stop; NULL: defaults */
    int search;              /* not 0: only the product counts, and the tuner's search chooses among all families */
    const char *baseline;    /* what speed-ups are over: "vendor", the product of the device's own library, "reference", the default
                              * schedule; NULL: the library's where it is there and right */
};
struct quern_gemm_best {     /* of what the database knows of this product */
    char name[768];          /* "" when nothing was verified; product, family and schedule where no name says it */
    double seconds, base_seconds, speedup, tflops;
    int64_t n_points, n_refused; /* of this run: looked at; not taken by the generator */
    char baseline[64];       /* "reference", or library and version; "" where a file of results did not say */
};
/* Measures the points of a configuration file's space, or the kernels that a registry lists by their names (start, max 0), beside the
 * reference schedule, and the device's library where it is the baseline. Space and rules are told as notes. */
QUERN_API quern_status quern_gemm(quern_db *db, const char *config, const struct quern_gemm_opts *o, struct quern_gemm_best *best);

/* One product: y (b.., m, n) = a (b.., m, k) x b (b.., k, n). */
struct quern_gemm_shape {
    size_t size;
    int n_batch;             /* 0 to 4 */
    int64_t batch[4], m, n, k;
    int is_transposed;       /* a is stored as (b.., k, m) */
    quern_dtype type;        /* 0: f32 */
};
/* The product as a model with inputs "a" and "b" and output "y": to be tuned, compiled (with what the database knows) and run on
 * tensors like any other. */
QUERN_API quern_status quern_model_gemm(quern *q, const struct quern_gemm_shape *shape, quern_model **out);
struct quern_gemm_found {
    char name[512];          /* of the kernel for this product; "" when it has something that names do not say */
    char candidate[512];     /* as in the database */
    double seconds;          /* measured, for the product below */
    double distance;         /* 0: of this very product; else how far the nearest one that was measured is: the sum of the logarithms to
                              * base 2 of the ratios of its sizes to these, and 1 where only one of them has its left operand transposed */
    int64_t m, n, k;
    int is_transposed;       /* of that product */
};
/* The best kernel that the database knows for the product on that device, or of the nearest product where it is legal here, too.
 * QUERN_NOTHING: none. */
QUERN_API quern_status quern_gemm_find(quern_db *db, const struct quern_gemm_shape *shape, const char *device,
                                       struct quern_gemm_found *out);

/* --- convolutions by data sets and named implementations (doc/conv.md) --- */

struct quern_conv_opts {
    size_t size;
    const char *data;        /* a data set that is built in, or a file; NULL: "cosmoflow" */
    int first, last;         /* rows from first on, before last; last 0: all. More than there are are not asked for */
    int64_t batch;           /* 0: as the rows say */
    const char *type;        /* "f32" "f16" "bf16" and other spellings; NULL: f32 */
    const char *implementation; /* a name, see quern_conv_implementation; NULL: "tuned" */
    int verify, compare;     /* not 0: to be verified; to be timed beside the baseline */
    int no_build;            /* only kernels that were built before and are in the database */
    int launch_wait;         /* times without the latency of launches: those of devices with a clock of their own never have it, of others
                              * it is told that they do */
    int warm_up, total;      /* rounds that are not counted, 0: none; that are, 0: 100 */
    double seconds;          /* before that each row is searched for so long, 0: not at all */
    const char *baseline;    /* "vendor", the device's own library; "reference", the default schedule; NULL: the library where it is there */
    const char *out;         /* folder for the files of a run with compare; NULL: "outputplots/out_IMPLEMENTATION_BATCH" */
    const struct quern_tune_opts *tune; /* device, threads, target, seed; samples and candidates of a search; NULL: defaults */
    int plots;               /* with compare: the folder's plots are drawn, see quern_plot */
    const char *pass;        /* what is computed of each row: "forward", the convolution; "input", "weights", their gradients, given that of the
                              * output; NULL: forward */
    int bias;                /* not 0: a number for each output channel is added; */
    const char *activation;  /* and "relu" or "leakyrelu" (0.01 below 0) follows; NULL: "none". Both forward only. */
};
struct quern_conv_times { double median, low, high, min, mean, deviation, max; }; /* milliseconds; low, high: 95 % interval of the median */
struct quern_conv_layer {    /* valid during the call */
    int layer;
    const char *name;        /* "in_16X1X130X130X130_k_3X3X3_och_16" */
    const char *implementation, *candidate, *baseline; /* "" where there is none */
    int ok, base_ok;         /* nothing was found to be wrong with either */
    const char *report;      /* of verify, lines; and what went wrong */
    int n;                   /* rounds; 0: not timed */
    struct quern_conv_times times, base_times;
    double ratio, ratio_low, ratio_high; /* baseline / implementation, round by round */
    double gflop, gbytes;
};
typedef void quern_conv_fn(void *user, const struct quern_conv_layer *l);
/* Each row in turn: searched for, built, verified, timed, as the options say, and told to fn (NULL: nobody). QUERN_FAILED at the end when
 * a kernel was wrong or could not be had. */
QUERN_API quern_status quern_conv(quern_db *db, const struct quern_conv_opts *o, quern_conv_fn *fn, void *user);
QUERN_API const char *quern_conv_implementation(int k, const char **summary); /* NULL behind the last */
QUERN_API const char *quern_conv_data(int k);                                 /* names of data sets; NULL behind the last */
/* Plots of the files of a run, into its folder: for each a gnuplot script and its data, an SVG and a PNG. QUERN_NOTHING: the folder has nothing
 * to draw; QUERN_UNSUPPORTED: gnuplot is not installed, scripts and data are written. */
QUERN_API quern_status quern_plot(quern *q, const char *dir);
/* breakdown.csv of a folder, which is made: a line network,layer,operator,ms for each of n steps of a program (quern_profile_steps); network is the
 * program's name, device and number of threads. Lines of other networks that are there already stay. */
QUERN_API quern_status quern_breakdown_write(quern_program *p, const struct quern_step *steps, int n, const char *dir);

/* --- other forms --- */

struct quern_export_opts {
    size_t size;
    const char *to;            /* the form, see quern_exporter */
    const char *const *option; /* "name=value", ended by NULL (which may be NULL itself): see `quern export --help` */
};
/* Writes networks (.onnx ...) or programs (.dnx) to a file or folder, as the form says: "onnx" takes one network, "vkdt" one or more
 * programs for Vulkan devices. */
QUERN_API quern_status quern_export(quern *q, const char *const *file, int n_files, const char *path,
                                    const struct quern_export_opts *o);
QUERN_API const char *quern_exporter(int k, const char **summary); /* NULL behind the last */

/* --- looking inside: JSON or text, free with quern_text_free --- */

QUERN_API quern_status quern_explain(quern *q, const char *dnx, char **text);       /* what was chosen and why */
QUERN_API quern_status quern_show(quern *q, const char *path, char **text);         /* any file quern knows, or a kernel's name, kcg_MM_...; of a program: what kinds of code it holds, who signed it */
/* Every scalar operation on a table of hard values against the interpreter: a line for what is wrong, and what follows. Drivers of GPUs are
   examined when they are first compiled for, and that is remembered; this does it anew. device: see quern_compile_opts. */
QUERN_API quern_status quern_examine(quern *q, const char *device, char **text);
QUERN_API quern_status quern_devices(quern *q, char **json);                        /* array of {name, language, device, fingerprint, caps}; "described" where no device is here */
QUERN_API quern_status quern_db_stats(quern_db *db, char **json);
QUERN_API quern_status quern_db_export(quern_db *db, const char *csv);              /* one row per sample */
QUERN_API quern_status quern_db_merge(quern_db *db, const char *other, int64_t *n_new);
QUERN_API quern_status quern_db_prune(quern_db *db, const char *what, int64_t *n_gone); /* "failed", "foreign", "losers" */
struct quern_db_saved {
    size_t size;
    int64_t pages, damaged, corrected; /* of the damaged file; put right by their checksums */
    int64_t lost_frames;               /* of its write-ahead log */
    int64_t tasks, trials, samples;    /* that were saved */
    int64_t orphans;                   /* samples that were found, but not what they are of */
};
/* What can be saved of a damaged database, which nothing else may have open, into a new file. */
QUERN_API quern_status quern_db_repair(quern *q, const char *damaged, const char *path, struct quern_db_saved *saved);
QUERN_API const char *quern_stages(int k, const char **summary); /* names for quern_opts.dump; NULL behind the last */
QUERN_API void quern_text_free(char *text);

/* --- the user's cache of compiled kernels and programs: $XDG_CACHE_HOME/quern, else ~/.cache/quern --- */

struct quern_cache {
    size_t size;
    char folder[1024];     /* "": the environment names none */
    int64_t entries, bytes;
    int64_t limit;         /* bytes; beyond it what was used longest ago goes */
};
QUERN_API quern_status quern_cache_info(quern *q, struct quern_cache *info);
QUERN_API quern_status quern_cache_limit(quern *q, int64_t bytes); /* from now on, for all processes of this user; 0: nothing is kept */
QUERN_API quern_status quern_cache_clear(quern *q);

/* --- checking --- */

struct quern_check {
    int64_t n_bad, count;  /* elements outside the tolerance, of how many */
    double max_abs, max_rel, tolerance;
    const char *output;    /* name */
    double ulp, bound;     /* max_abs, and what is allowed of it, in units in the last place of the output's largest value: where terms cancel,
                            * an element's own last place says nothing of how well it was computed */
};
/* Compiled program against the reference evaluator on seeded random inputs; one entry per output. */
QUERN_API quern_status quern_verify(quern_model *m, quern_program *p, const char *sizes, uint64_t seed, struct quern_check *c,
                                    int max, int *n);
/* A kernel of a program, as exact verification found it; valid during the call. */
enum { QUERN_EXACT, QUERN_BY_TOLERANCE, QUERN_DIFFERS };
struct quern_exact {
    int verdict;
    const char *layer;     /* nodes that it stands for */
    const char *kernel;    /* its family and schedule */
    const char *sizes;     /* of its first output, per set of sizes that was tried */
    const char *why;       /* it is not exact; else "" */
    int dispatches;        /* that use it */
    double seconds;        /* of processor time */
};
typedef void quern_exact_fn(void *user, const struct quern_exact *x);
/* Each kernel of a program that was made of the model, and the plain definition of what it is to compute, run by an interpreter over a finite
 * field, where nothing is rounded: equal, or not (doc/verify.md). program: a .dnx file; NULL: the kernels that compiling with these options
 * (NULL: the defaults) and this database (NULL: none) would choose. */
QUERN_API quern_status quern_verify_exact(quern_model *m, const char *program, quern_db *db, const struct quern_compile_opts *o, uint64_t seed,
                                          quern_exact_fn *fn, void *user);
/* An output of a kernel against the reference evaluator, for the kernel's inputs as the reference has them; valid during the call. */
struct quern_layer {
    const char *layer, *ops; /* nodes that the kernel stands for, and their operators */
    const char *value;       /* the output */
    const char *kernel;      /* family and schedule */
    int64_t n_bad, count;    /* elements beyond the bound, of how many */
    double ulp, bound;       /* of the worst element: its error, and what is allowed, in units in the last place of the largest value */
    int64_t at;              /* which that is, row-major */
    double got, want;
};
typedef void quern_layer_fn(void *user, const struct quern_layer *l);
/* A program of the model, kernel by kernel, in the order of execution: the first with n_bad > 0 is where it goes wrong. What loops and branches
 * run is not looked into. sizes: as for quern_model_random_inputs. */
QUERN_API quern_status quern_verify_layers(quern_model *m, quern_program *p, const char *sizes, uint64_t seed, quern_layer_fn *fn, void *user);
/* Largest difference of two tensors under the tolerance that quern_verify would use for a reduction of length `depth`. */
QUERN_API quern_status quern_tensor_check(quern *q, const quern_tensor *got, const quern_tensor *want, double rtol, double atol,
                                          struct quern_check *c);

#ifdef __cplusplus
}
#endif
#endif
