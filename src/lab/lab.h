// SPDX-License-Identifier: Apache-2.0
//
// lab: GEMMs for GPUs by configurations. A configuration is a point of the space spanned by a file of value lists; its kernel name
// encodes all of it, so that a kernel can be rebuilt from its name alone (doc/gemm.md).
//
//   field.inc  the fields of a configuration      name.c     printing and parsing of kernel names
//   config.c   threads, workgroups and memory of a configuration; its description
//   read.c     files of value lists               space.c    the space they span, and the rules that prune it
//   product.c  conversion of configurations to tasks and candidates, and back
//   sweep.c    points of a space built, verified and timed one after the other
//   results.c  files of the best results: names, times, speed-ups
//   registry.c lists of names; the known kernel of a GEMM, or of the nearest one
//   json.c     shared by readers of files
//   plot.c     plots of a run's files (plot.py)
//
// The other half, convolutions by data sets and named implementations, is conv.h.
#ifndef QUERN_LAB_H
#define QUERN_LAB_H

#include "tune/tune.h"

enum lab_field {
#define X(id, tag, key, old, param, least, most, what) LF_##id,
#include "lab/field.inc"
#undef X
    N_LAB_FIELDS
};

struct lab_field_info {
    const char *tag, *key, *old_key, *param, *what;
    i32 least, most; /* values */
};
const struct lab_field_info *lab_field(enum lab_field f);

enum { LAB_MAX_BATCH = 4, LAB_MOST = 1 << 16 /* of a field */, LAB_MAX_SIZE = 1 << 30 /* of m, n, k, a batch */ };

/* y (b.., m, n) = a (b.., m, k) x b (b.., k, n) and its schedule; f32 unless a type is stated. */
struct lab_config {
    u32 n_batch;
    i64 batch[LAB_MAX_BATCH];
    i64 m, n, k;
    i32 v[N_LAB_FIELDS];
};

/* name.c: "kcg_MM_b12_M1024N64K1024isAT1W64_BM64 ... RC0", the grammar in doc/gemm.md. A printed name parses to an equal
   configuration; a parsed one is printed identically, except for "isATTrue", which is "isAT1". */
void lab_name_print(struct buf *b, const struct lab_config *c);
void lab_name_product(struct buf *b, const struct lab_config *c); /* the part with the sizes: "b12_M1024N64K1024" */
bool lab_name_parse(struct lab_config *c, struct str name, struct err *e); /* ERR_INPUT with field, found text, column */
bool lab_is_name(struct str text); /* by its prefix */

/* config.c */
double lab_flops(const struct lab_config *c);
/* Operations of the GEMM of a result: of a configuration's name, or of `like` if the name is by family and schedule; 0: of another GEMM. */
double lab_name_flops(struct str name, const struct lab_config *like);
i64 lab_threads(const struct lab_config *c); /* of a workgroup */
i64 lab_shared(const struct lab_config *c, i64 size); /* bytes of shared arrays of elements of `size` bytes: the larger of both operands' tiles and sums of an intra-block split-K */
i64 lab_registers(const struct lab_config *c); /* of a thread: sums and operands of one K step */
/* Whether the fields are consistent; if not, ERR_INPUT names those that contradict each other. */
bool lab_config_check(const struct lab_config *c, struct err *e);
void lab_explain(struct buf *b, const struct lab_config *c); /* describes every field, a line each */

/* read.c: {"BLOCK_SIZE_M": [32, 64], ..., "M_SIZE": [2048], ..., "BATCH_SIZE": [1, 12]}: every key at least once, the last one
   counts; or {"template": that, "cfgs": [number, ...]}, whose decimal digits are indices into the lists. */
struct lab_list { i32 *v; u32 n; };
struct lab_space {
    struct lab_config base;   /* sizes, and the fields that have one value: W, isAT */
    enum dtype dtype;
    struct lab_list list[N_LAB_FIELDS];
    struct { struct lab_config *v; u32 n, cap; } listed; /* of "cfgs"; if there are any, they are the space */
    i64 max_threads, max_shared; /* threads of a workgroup, bytes; for LAB_RULES_OWN */
};
/* Errors name key and value. Limits are those of a large device. */
bool lab_space_read(struct lab_space *s, struct arena *a, struct str json, struct err *e);

/* space.c */
enum lab_rules {
    LAB_RULES_OWN,    /* kernels that can be built, with sensible amounts of registers and memory */
    LAB_RULES_DEEPGEN, /* those of the tool that the file format comes from, 2026-04 */
    LAB_RULES_2025_06, /* the version of its published results */
    N_LAB_RULES
};
const char *lab_rules_name(enum lab_rules r); /* "own" "deepgen" "deepgen-2025-06" */
enum { N_LAB_STAGES = 9 };
struct lab_stage { const char *what; double before, after; }; /* numbers of partial configurations, of the fields chosen so far */
struct lab_count {
    struct lab_stage stage[N_LAB_STAGES];
    double raw;      /* of the product of all lists */
    double n;        /* remaining points */
};
/* Counts without visiting every point. ERR_NOTHING, if none remains, names the rule that removed the last ones; ERR_UNSUPPORTED: too many
   combinations of tiles even to count. */
bool lab_space_count(const struct lab_space *s, enum lab_rules r, struct lab_count *c, struct err *e);
/* The remaining points from number `start` on, in the order of the tool that the file format comes from; fn false: stop. The space must be
   countable. */
typedef bool lab_visit(void *user, const struct lab_config *c, i64 number);
void lab_space_each(const struct lab_space *s, enum lab_rules r, i64 start, lab_visit *fn, void *user);

/* product.c. Types are of operands; DT_TF32: f32 that may be rounded to it. Inputs a and b, output y; a transposed left operand is the output
   of a Transpose. Not inferred. */
void lab_graph(struct graph *g, const struct lab_config *c, enum dtype type);
/* The task of a configuration's GEMM, of one type. */
bool lab_task(struct task *t, struct arena *a, struct symtab *st, const struct lab_config *c, enum dtype type, struct err *e);
/* The same kernel as a candidate of wg_gemm; parameters that names lack have the meaning of such names: no padding between rows of shared
   arrays, no split-K across workgroups. ERR_UNSUPPORTED: the family has no such parameter or value. The family decides whether it is legal
   for task and device. */
bool lab_candidate(struct candidate *x, const struct lab_config *c, enum dtype type, struct err *e);
/* Whether the device has the threads and the shared memory; ERR_UNSUPPORTED states the demand and the limit. */
bool lab_fits(const struct lab_config *c, enum dtype type, const struct caps *caps, struct err *e);
/* The inverse, for the GEMM of `like`; false: no name can express the candidate. */
bool lab_config_of(struct lab_config *c, const struct candidate *x, const struct lab_config *like, enum dtype type);

/* results.c: {"testResult": [{"name": ..., "speedup": x, "time": ms, "time_base": ms}, ...]}, the best first. */
enum { LAB_BEST = 10 };
struct lab_result { struct str name; double speedup, ms, base_ms; struct str baseline; }; /* 0, empty: not known */
struct lab_results { struct lab_result *v; u32 n, cap; };
/* Fields other than the name may be missing. ERR_INPUT names the error. */
bool lab_results_read(struct lab_results *r, struct arena *a, struct str json, struct err *e);
void lab_results_add(struct lab_results *r, struct arena *a, const struct lab_result *x); /* replaces one of the same name */
void lab_results_print(struct buf *b, struct lab_results *r, u32 max); /* sorts; the best max */

/* sweep.c */
struct lab_sweep {
    struct lab_space *space;  /* limited to the device's threads and shared memory */
    enum lab_rules rules;
    i64 start, max;           /* number of the first point; maximal number of points, 0: all */
    const char *baseline;     /* of speed-ups: "vendor", the device's library; "reference", the reference schedule; NULL: the
                                 library if it computes this GEMM, else the schedule */
    bool search;              /* instead of the points: candidates of every family, proposed by the tuner's search */
    bool stops_near_peak;     /* at 0.6 of the device's peak, if that is known */
    struct db *db;
    i64 env;                  /* of db, of the device of tune */
    const struct caps *caps;
    const struct tune_opts *tune;
};
struct lab_swept {
    i64 n_points, n_refused;  /* visited; of those, rejected by the family */
    struct buf why;           /* name of the first rejected point, and the reason */
    struct buf vendor;        /* the library that is the baseline; empty: the reference schedule */
    struct tune_result tuned;
};
/* Builds, verifies, times and stores the points, interleaved with the reference schedule; known ones are not measured again.
   ERR_NOTHING: no point could be built or measured. */
bool lab_sweep(const struct lab_sweep *s, struct lab_swept *r, struct err *e);
void lab_swept_release(struct lab_swept *r);
/* The GEMM as a request to the device's library. */
void lab_vendor_gemm(struct dev_gemm *p, const struct lab_config *c, enum dtype type);
/* Adds the verified candidates that the database has for this GEMM, of this or earlier runs, by their names; those of a search that
   have none by family and schedule. Speed-ups are over the vendor's library if its result was verified. */
bool lab_sweep_results(const struct lab_sweep *s, const struct lab_swept *swept, struct lab_results *r, struct arena *a, struct err *e);

/* registry.c: {"kernels": [{"type": "matmul", "kernelName": "kcg_MM_...", "pklpath": ""}, ...]}. One space of listed points for each
   GEMM; kernels of other types are counted. Only the names are required. */
struct lab_registry { struct lab_space *v; u32 n, cap; u32 n_others; };
bool lab_is_registry(struct str json); /* whether it has a list of kernels */
bool lab_registry_read(struct lab_registry *r, struct arena *a, struct str json, struct err *e);
/* The GEMM of a task that computes nothing else, fields 0 except isAT; false: it is another task. */
bool lab_product_of(struct lab_config *c, enum dtype *type, const struct task *t);
struct lab_found {
    struct candidate cand;
    struct lab_config product; /* GEMM of the measurement */
    double seconds;            /* measured */
    double distance;           /* sum of |log2| of the ratios of sizes; 0: the same GEMM */
};
/* The fastest known kernel of the GEMM, else the fastest legal one of the nearest GEMM of its type (tune/nearest.c). false without an error:
   none is known. */
bool lab_find(struct lab_found *f, struct db *d, i64 env, const struct caps *caps, const struct lab_config *product, enum dtype type,
              struct err *e);

/* plot.c */
/* Draws the CSV files of a folder (doc/conv.md, "Plots"). ERR_NOTHING: they have nothing to draw; ERR_UNSUPPORTED: no matplotlib. */
bool lab_plot(const char *dir, const struct log *log, struct err *e);

#endif
