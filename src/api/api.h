// SPDX-License-Identifier: Apache-2.0
//
// Private to api/: what the public handles are. Files api_rt*.c are part of libquern_rt, too, and see only core, art, dev and rt.
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
    u32 n_dumps;
};

struct quern_tensor {
    struct tensor t;
    struct DLManagedTensor *managed; /* its memory belongs to this one; NULL: see owns */
    bool owns;                       /* data is ours to free */
};

/* A program that goes into the user's cache once it gave its first result, which does not wait for that (api_keep.c). */
struct api_keep {
    void (*start)(struct api_keep *k, const struct plan *p); /* writes it, in the background; the plan must stay */
    void (*end)(struct api_keep *k, const struct plan *p);   /* when this returns it is written, and k is gone */
};

struct quern_program {
    quern *q;
    struct api_keep *keep; /* NULL: it is not to be kept, or was found there */
    struct arena arena;    /* plan, when it was not mapped: code and constants too */
    struct os_file file;   /* mapped artifact */
    struct plan plan;        /* the variant that runs */
    const struct plan *all;  /* the first of several variants that were compiled; NULL: there is only that one */
    bool is_opened;          /* file is an artifact, of which only that variant was read */
    struct dev *dev;
    struct rt_program *rt;   /* NULL: it is for a device that is not here, and can only be saved */
    struct { struct quern_step *v; u32 n; } steps; /* texts of the profile */
};

/* Starts a call: clears the error. */
struct err *api_begin(quern *q);
/* Threads that are started where a caller asks for so many; 0: all processors. */
int api_threads(quern *q, int threads);
/* Ends it: QUERN_OK, or the status of the error that was set. */
quern_status api_end(quern *q, bool ok);
quern_tensor *api_tensor_take(const struct tensor *t); /* data is on the heap and becomes the tensor's */
/* Device and runtime for p->plan, which is filled. */
bool api_program_start(quern_program *p, const char *device, int threads, struct err *e);
bool api_is_started(const quern_program *p, struct err *e); /* it can run */
/* Type, rank and sizes of an array; its data where it lies. */
bool api_array(struct tensor *t, i64 *bytes, const struct quern_array *a, struct err *e);
/* Whether elements lie without gaps, the last axis of the order innermost. */
bool api_array_lies(const struct quern_array *a, const int *order);
void api_array_rows(struct quern_array *a, enum dtype t, u32 rank, const i64 *dim); /* a dense one, without memory */
/* So many inputs and outputs has the program. */
bool api_counts_check(const quern_program *p, int n_in, int n_out, struct err *e);
/* Whether an output that is given fits what the program makes. */
bool api_output_check(const quern_program *p, u32 k, const struct tensor *given, const struct tensor *want, struct err *e);
/* quern_enqueue of tensors that have memory. */
bool api_enqueue(quern_program *p, const struct tensor *in, const struct tensor *out, void *stream, struct err *e);
void api_fill_random(struct tensor *t, struct rng *r); /* signed floats, small integers */
i64 api_dim(const struct symtab *st, sym s, const char **text); /* -1 and its name, when it is a variable ("" if it is more) */
bool api_is_dnx(const struct os_file *f);              /* by its first bytes */
/* api_rt_artifact.c: where a signature is required, by the context or by o (may be NULL), the file is read into memory of its own and only
   what a trusted key has signed is parsed. */
bool api_artifact_open(const quern *q, struct os_file *f, struct plan *p, struct arena *a, const char *path, const struct quern_run_opts *o, struct err *e);
bool api_artifact_load(const quern *q, struct os_file *f, const char *path, const struct quern_run_opts *o, struct err *e); /* any file */
bool api_artifact_read(const quern *q, const struct os_file *f, struct plan *p, struct arena *a, const struct quern_run_opts *o, struct err *e);
struct api_key { u8 key[SIGN_KEY_BYTES]; struct str name; };
struct api_keys { struct api_key *v; u32 n, cap; };
/* trusted: a file or folder, NULL: the user's folder, where there may be none. Broken keys in a folder are left out, with a warning. */
bool api_trusted_keys(const quern *q, struct api_keys *k, struct arena *a, const char *trusted, struct err *e);
struct str api_trusted_folder(struct arena *a, struct err *e); /* the user's; empty: an error */
/* is_own: only this user can have written the file, and, of a private key, can read it. */
bool api_read_key(u8 key[SIGN_KEY_BYTES], const char *path, bool is_secret, bool is_own, struct err *e);
/* Clears the error and says by it which pointer is NULL: names are those of the pointers that follow, in order, with blanks between. false:
   one is. q NULL: false. */
bool api_given(quern *q, const char *names, ...);
char *api_text(struct buf *b);                         /* heap copy for the caller, releases b */

#endif
