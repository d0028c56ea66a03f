// SPDX-License-Identifier: Apache-2.0
//
// lab: GEMMs and attention for GPUs by configurations. A configuration is a point of the space spanned by a file of value lists; its
// kernel name encodes all of it, so that a kernel can be rebuilt from its name alone (doc/gemm.md, doc/attention.md).
//
//   kind.c     the computations that names encode, and their fields (field.inc, field_attention.inc)
//   name.c     printing and parsing of kernel names
//   config.c   threads, workgroups and memory of a configuration; its description (config_gemm.c, config_attention.c)
//   read.c     files of value lists
//   space.c    the space they span, pruned by rules (space_gemm.c, space_attention.c)
//   product.c  conversion of GEMM configurations to tasks and candidates, and back
//   attention.c attention, and the kernels of a split one, as graphs
//   tile.c     configurations of attention to tasks and candidates, and back
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

enum lab_attention_field {
#define X(id, tag, key, least, most, what) LA_##id,
#include "lab/field_attention.inc"
#undef X
    N_LAB_ATTENTION_FIELDS
};

enum {
    LAB_MAX_FIELDS = N_LAB_ATTENTION_FIELDS,
    LAB_MAX_BATCH = 4,
    LAB_MOST = 1 << 16,     /* of a field */
    LAB_MAX_SIZE = 1 << 30, /* of m, n, k, a batch; b, h, s, d */
};

/* The computations. Kernels of a split attention are computations of their own: the first yields the statistics of the scores' rows, later
   ones take them. */
enum lab_kind {
    LAB_MM,
    LAB_ATTENTION,        /* softmax(q k / sqrt(d)) v */
    LAB_ATTENTION_ORIGIN, /* with a causal mask */
    LAB_ATTENTION_SPLIT,  /* likewise; the pair of K1 and K2 */
    LAB_ATTENTION_K1, LAB_ATTENTION_K2,
    LAB_GEMMA2_ORIGIN,    /* scores capped softly to -50..50 */
    LAB_GEMMA2_SPLIT,
    LAB_GEMMA2_K1, LAB_GEMMA2_K2,
    LAB_H2O_ORIGIN,       /* and the sums of the probabilities' columns */
    LAB_H2O_SPLIT,
    LAB_H2O_K1, LAB_H2O_K2, LAB_H2O_K3,
    N_LAB_KINDS
};

/* y (b.., m, n) = a (b.., m, k) x b (b.., k, n) and its schedule; f32 unless a type is stated. Or attention: q, k (b, h, d, s), v, o
   (b, h, s, d). */
struct lab_config {
    enum lab_kind kind;
    u32 part;               /* of a split attention, the kernel "_k1" "_k2" "_k3" that its name ends with; 0: all */
    u32 n_batch;
    i64 batch[LAB_MAX_BATCH];
    i64 m, n, k;
    i64 b, h, s, d;         /* batch, heads, queries and keys, size of a head */
    i32 v[LAB_MAX_FIELDS];  /* of LAB_MM by enum lab_field, of others by enum lab_attention_field */
};

/* kind.c */
struct lab_field_info {
    const char *tag, *key, *old_key, *param, *what;
    i32 least, most; /* values */
};
struct lab_fields {
    const struct lab_field_info *v;
    u32 n, n_required;      /* older names end before field n_required; the others are then 0 */
    u64 breaks;             /* fields behind a '_' */
};
const struct lab_fields *lab_fields(enum lab_kind k);
const struct lab_field_info *lab_field(enum lab_kind k, u32 f);
/* What a kernel of attention computes. */
struct lab_attention {
    bool is_causal;
    double softcap;         /* 0: none */
    bool takes_stats;       /* of the scores' rows, as inputs max and denom (b, h, s, 1) */
    bool has_stats, has_o, has_sums; /* outputs: max and denom; o; row_sum (b, h, s) */
};
struct lab_kind_info {
    const char *prefix;     /* of names, behind "kcg_" */
    const char *op, *alias; /* in commands of the tool that the names come from; alias NULL: none */
    const char *what;
    const char *lists;      /* key of its lists in a file for several kernels; NULL: none */
    u32 n_parts;            /* kernels "_k1" .. of a split attention */
    enum lab_kind first;    /* the kind of "_k1"; the others follow */
    bool is_origin;         /* without prefetching and shuffles */
    struct lab_attention computes;
};
const struct lab_kind_info *lab_kind(u32 k);
bool lab_kind_find(enum lab_kind *k, struct str op, struct err *e); /* by op or alias; ERR_USAGE lists them */
bool lab_is_attention(enum lab_kind k);
struct lab_attention lab_attention_of(enum lab_kind k, u32 part);

/* name.c: "kcg_MM_b12_M1024N64K1024isAT1W64_BM64 ... RC0", the grammar in doc/gemm.md, and "kcg_AttentionK1_1_32_2048_64_Br64 ... SKP0",
   that in doc/attention.md. A printed name parses to an equal configuration, except that LAB_ATTENTION and its split forms have one prefix;
   a parsed one is printed identically, except for "isATTrue", which is "isAT1", and for older names of attention without SHP and SKP. */
void lab_name_print(struct buf *b, const struct lab_config *c);
void lab_name_product(struct buf *b, const struct lab_config *c); /* the part with the sizes: "b12_M1024N64K1024", "AttentionK1_1_32_2048_64" */
bool lab_name_parse(struct lab_config *c, struct str name, struct err *e); /* ERR_INPUT with field, found text, column */
bool lab_is_name(struct str text); /* by its prefix */

/* config.c */
double lab_flops(const struct lab_config *c); /* of attention: of the products, at the positions that are attended to */
/* Operations of the GEMM of a result: of a configuration's name, or of `like` if the name is by family and schedule; 0: of another GEMM. */
double lab_name_flops(struct str name, const struct lab_config *like);
i64 lab_threads(const struct lab_config *c); /* of a workgroup */
i64 lab_shared(const struct lab_config *c, i64 size); /* bytes of shared arrays of elements of `size` bytes; of a GEMM the larger of both operands' tiles and sums of an intra-block split-K */
i64 lab_registers(const struct lab_config *c); /* of a thread: sums and operands of one K step */
/* Whether the fields are consistent; if not, ERR_INPUT names those that contradict each other. */
bool lab_config_check(const struct lab_config *c, struct err *e);
void lab_explain(struct buf *b, const struct lab_config *c); /* describes every field, a line each */

/* read.c: {"BLOCK_SIZE_M": [32, 64], ..., "M_SIZE": [2048], ..., "BATCH_SIZE": [1, 12]}: every key at least once, the last one
   counts; or {"template": that, "cfgs": [number, ...]}, whose decimal digits are indices into the lists. Of attention {"Br": [32, 64], ...}
   without sizes and types, or {"k1": that, "k2": that, ...} for the kernels of a split one. */
struct lab_list { i32 *v; u32 n; };
struct lab_space {
    struct lab_config base;   /* kind, sizes, and the fields that have one value: W, isAT, Hd, LCP, LCO */
    enum dtype dtype;
    struct lab_list list[LAB_MAX_FIELDS];
    struct { struct lab_config *v; u32 n, cap; } listed; /* of "cfgs"; if there are any, they are the space */
    i64 max_threads, max_shared; /* threads of a workgroup, bytes; for LAB_RULES_OWN */
};
/* of: the kind; of attention its sizes, too. Errors name key and value. Limits are those of a large device, the type f32 unless the file
   states one. */
bool lab_space_read(struct lab_space *s, struct arena *a, struct str json, const struct lab_config *of, struct err *e);

/* space.c */
enum lab_rules {
    LAB_RULES_OWN,    /* kernels that can be built, with sensible amounts of registers and memory */
    LAB_RULES_DEEPGEN, /* those of the tool that the file format comes from, 2026-04 */
    LAB_RULES_2025_06, /* the version of its published results */
    N_LAB_RULES
};
const char *lab_rules_name(enum lab_rules r); /* "own" "deepgen" "deepgen-2025-06" */
bool lab_rules_find(enum lab_rules *r, const char *name, struct err *e); /* NULL: own */
enum { LAB_MAX_STAGES = 9 };
struct lab_stage { const char *what; double before, after; }; /* numbers of partial configurations, of the fields chosen so far */
struct lab_count {
    struct lab_stage stage[LAB_MAX_STAGES];
    u32 n_stages;
    double raw;      /* of the product of all lists */
    double n;        /* remaining points */
};
/* Counts without visiting every point. ERR_NOTHING, if none remains, names the rule that removed the last ones; ERR_UNSUPPORTED: too many
   combinations of tiles even to count, or no such rules for this kind. */
bool lab_space_count(const struct lab_space *s, enum lab_rules r, struct lab_count *c, struct err *e);
/* The remaining points from number `start` on, in the order of the tool that the file format comes from; fn false: stop. The space must be
   countable. */
typedef bool lab_visit(void *user, const struct lab_config *c, i64 number);
void lab_space_each(const struct lab_space *s, enum lab_rules r, i64 start, lab_visit *fn, void *user);
/* Limits of a device for LAB_RULES_OWN; the stages of a count, or the listed points. */
void lab_space_limit(struct lab_space *s, const struct caps *caps);
void lab_space_report(const struct log *log, const struct lab_space *s, enum lab_rules r, const struct lab_count *c);

/* attention.c. The graph of a configuration's computation: inputs q, k, v, or with takes_stats max and denom behind them; v only for o.
   Not inferred. max is the largest score of a row, denom the sum of exp(score - max), f32 at least. */
void lab_attention_graph(struct graph *g, const struct lab_config *c, enum dtype type);

/* tile.c. The task of a configuration's attention, of one type: its products with all that is around them. */
bool lab_attention_task(struct task *t, struct arena *a, struct symtab *st, const struct lab_config *c, enum dtype type, struct err *e);
/* The same kernel as a candidate of wg_attention; parameters that names lack have the meaning of such names: no padding, no keys divided among workgroups. A
   row's threads shuffle, or meet in shared memory. ERR_UNSUPPORTED: the family has no such parameter or value, or no such kernel. */
bool lab_attention_candidate(struct candidate *x, const struct lab_config *c, enum dtype type, bool shuffles, struct err *e);
/* On processors: a candidate of attention for the task, whose register tiles and blocks are the nearest to those of the name; several names have the same one.
   ERR_UNSUPPORTED: the family refuses it. */
bool lab_attention_schedule(struct candidate *x, const struct lab_config *c, const struct task *t, const struct caps *caps, struct err *e);
/* The inverse of lab_attention_candidate, for the attention of `like`; false: no name can express the candidate. */
bool lab_attention_config_of(struct lab_config *c, const struct candidate *x, const struct lab_config *like, enum dtype type);

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
    struct { struct lab_taken { struct candidate cand; struct lab_config first; } *v; u32 n, cap; } taken; /* where several names have one schedule: schedules, with the first point of each */
    struct arena arena;
    struct tune_result tuned;
};
/* Builds, verifies, times and stores the points, interleaved with the reference schedule; known ones are not measured again.
   ERR_NOTHING: no point could be built or measured. */
bool lab_sweep(const struct lab_sweep *s, struct lab_swept *r, struct err *e);
void lab_swept_release(struct lab_swept *r);
/* The GEMM as a request to the device's library. */
void lab_vendor_gemm(struct dev_gemm *p, const struct lab_config *c, enum dtype type);
/* Adds the verified candidates that the database has for this computation, of this or earlier runs, by their names; those of a search that
   have none by family and schedule; schedules of processors by the first point of this run that has it. Speed-ups are over the vendor's library if its result was verified. */
bool lab_sweep_results(const struct lab_sweep *s, const struct lab_swept *swept, struct lab_results *r, struct arena *a, struct err *e);

/* registry.c: {"kernels": [{"type": "matmul", "kernelName": "kcg_MM_...", "pklpath": ""}, ...]}, or of type "attention". One space of listed
   points for each computation; kernels of other types are counted. Only the names are required. */
struct lab_registry { struct lab_space *v; u32 n, cap; u32 n_others; };
bool lab_is_registry(struct str json); /* whether it has a list of kernels */
bool lab_registry_read(struct lab_registry *r, struct arena *a, struct str json, const char *type, struct err *e);
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
