// SPDX-License-Identifier: Apache-2.0
//
// Private to api/: the structures behind the public handles. Files api_rt*.c are also part of
// libquern_rt and see only core, art, dev and rt.
#ifndef QUERN_API_H
#define QUERN_API_H

#include "art/art.h"
#include "dev/dev.h"
#include "quern.h"
#include "rt/rt.h"

struct quern {
    struct quern_opts o;
    struct log log;
    struct err err;        /* of the last call */
    struct stop stop;
    char *dump;            /* copies of the options' strings, NULL: none */
    char *dump_dir;
    char *trusted;
    struct dev_attached *attached; /* the caller's device of Vulkan; NULL: none */
    struct arena needs;            /* of the last quern_vulkan_requirements */
    u32 n_dumps;
};

struct quern_tensor {
    struct tensor t;
    struct DLManagedTensor *managed; /* owned by this tensor; NULL: see owns */
    bool owns;                       /* data is freed with the tensor */
};

/* A program that is written to the user's cache after its first result, in the background
   (api_keep.c). */
struct api_keep {
    /* starts writing in the background; the plan must stay valid */
    void (*start)(struct api_keep *k, const struct plan *p);
    void (*end)(struct api_keep *k, const struct plan *p);   /* waits until it is written, and frees k */
};

struct quern_program {
    quern *q;
    struct api_keep *keep; /* NULL: not to be cached, or read from the cache */
    struct arena arena;    /* of the plan; if it was not mapped, of code and constants, too */
    struct os_file file;   /* mapped artifact */
    struct plan plan;        /* the selected variant */
    const struct plan *all;  /* the first of several compiled variants; NULL: there is only one */
    bool is_opened;          /* file is an artifact of which only that variant was read */
    struct dev *dev;
    struct rt_program *rt;   /* NULL: its device is absent, so it can only be saved */
    struct { struct quern_step *v; u32 n; } steps; /* texts of the profile */
    struct quern_program_facts facts; /* with texts in the arena, once they were asked for */
    bool has_facts;
    const char **output_sizes; /* per output and axis its expression, see quern_program_output_shape; NULL: not asked for */
};

/* Starts a call: clears the error. */
struct err *api_begin(quern *q);
/* Limits a requested number of threads; 0: all processors. */
int api_threads(quern *q, int threads);
quern_status api_status(enum err_code code); /* of a failure */
/* Ends a call: QUERN_OK, or the status of the error. */
quern_status api_end(quern *q, bool ok);
quern_tensor *api_tensor_take(const struct tensor *t); /* data is on the heap and passes to the tensor */
/* Opens device and runtime for p->plan, which is complete. */
bool api_program_start(quern_program *p, const char *device, int threads, struct err *e);
/* If the context has a device attached, and the driver and the name mean it, it is the device to
 * use. */
void api_use_attached(const quern *q, const struct dev_driver *v, struct dev_opts *o);
bool api_is_started(const quern_program *p, struct err *e); /* whether it can run */
/* Type, rank and sizes of an array; its data in place. */
bool api_array(struct tensor *t, i64 *bytes, const struct quern_array *a, struct err *e);
/* Whether the array is dense, with the last axis of the order innermost. */
bool api_array_lies(const struct quern_array *a, const int *order);
/* a dense array without memory */
void api_array_rows(struct quern_array *a, enum dtype t, u32 rank, const i64 *dim);
/* Checks the numbers of inputs and outputs. */
bool api_counts_check(const quern_program *p, int n_in, int n_out, struct err *e);
/* Checks a given output against the program's. */
bool api_output_check(const quern_program *p, u32 k, const struct tensor *given, const struct tensor *want, struct err *e);
/* An output of a run: with a data-dependent size; its memory, the caller's or new; afterwards the caller's tensor, ok: the run succeeded. Returns ok, or
   false for lack of memory. */
bool api_depends_on_data(const struct tensor *t);
bool api_output_place(const quern_program *p, u32 k, struct tensor *res, const quern_tensor *given, struct err *e);
bool api_output_deliver(struct tensor *res, bool is_made, bool ok, quern_tensor **out, struct err *e);
/* quern_enqueue with tensors that have memory. */
bool api_enqueue(quern_program *p, const struct tensor *in, const struct tensor *out, void *stream, struct err *e);
void api_fill_random(struct tensor *t, struct rng *r); /* signed floats, small integers */
/* a constant, or -1 with the variable's name ("" for an expression) */
i64 api_dim(const struct symtab *st, sym s, const char **text);
bool api_is_dnx(const struct os_file *f);              /* by its first bytes */
/* api_rt_artifact.c: if a signature is required, by the context or by o (may be NULL), the file is
   read into private memory and only bytes signed by a trusted key are parsed. */
bool api_artifact_open(const quern *q, struct os_file *f, struct plan *p, struct arena *a, const char *path, const struct quern_run_opts *o, struct err *e);
/* any file */
bool api_artifact_load(const quern *q, struct os_file *f, const char *path, const struct quern_run_opts *o, struct err *e);
bool api_artifact_read(const quern *q, const struct os_file *f, struct plan *p, struct arena *a, const struct quern_run_opts *o, struct err *e);
struct api_key { u8 key[SIGN_KEY_BYTES]; struct str name; };
struct api_keys { struct api_key *v; u32 n, cap; };
/* trusted: a file or folder, NULL: the user's folder, which may be missing. Broken keys in a folder
   are skipped with a warning. */
/* Signatures that were checked: one of them is by a trusted key. trusted: as in quern_run_opts; NULL: the user's folder. */
bool api_is_trusted(const quern *q, const struct dnx_signatures *s, const char *trusted, struct err *e);
/* For struct meta_opts; user: struct api_trust. Whether model.meta is signed by a trusted key. */
struct api_trust { const quern *q; const char *trusted; };
bool api_check_trust(void *user, struct str meta, struct str signatures, struct err *e);
bool api_trusted_keys(const quern *q, struct api_keys *k, struct arena *a, const char *trusted, struct err *e);
struct str api_trusted_folder(struct arena *a, struct err *e); /* the user's; empty: error */
/* is_own: only this user can have written the file, and can read it if the key is private. */
bool api_read_key(u8 key[SIGN_KEY_BYTES], const char *path, bool is_secret, bool is_own, struct err *e);
/* Clears the error, then reports the first NULL pointer: names lists the pointers that follow,
   separated by spaces. false: one is NULL, or q is. */
bool api_given(quern *q, const char *names, ...);
char *api_text(struct buf *b);                         /* copy on the heap for the caller; releases b */

#endif
