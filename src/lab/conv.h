// SPDX-License-Identifier: Apache-2.0
//
// Convolutions by data sets and named implementations (doc/conv.md). A data set is a file of rows, each one convolution of one to three
// axes; its task is that of a network's layer. An implementation is a name with a layout and a schedule for each kind of device.
//
//   conv_read.c   files of rows, in this project's schema and in those of other tools; built-in data sets (data/conv)
//   conv_row.c    sizes, operations, bytes, name, graph and task of a row
//   conv_names.c  implementations by name (conv_names.inc): their schedules
//   conv_build.c  the candidate of a name, and its kernel
//   conv_library.c  the device's library as a kernel; baselines
//   conv_profile.c  interleaved timing of two kernels
//   conv_layers.c  the layers of a data set, built, verified and timed one after the other
//   conv_table.c  the files of a run
#ifndef QUERN_LAB_CONV_H
#define QUERN_LAB_CONV_H

#include "tune/verify.h"

enum { CONV_AXES = 3, CONV_MAX_SIZE = 1 << 30 /* of any number of a row */ };

/* The pass of a convolution: y; or, from the gradient dy, the gradient of x (backward data) or of w (backward weights). */
enum conv_pass { CONV_FORWARD, CONV_INPUT, CONV_WEIGHTS, N_CONV_PASSES };
/* Activation. LeakyRelu of ONNX has slope 0.01 below 0. */
enum conv_act { CONV_PLAIN, CONV_RELU, CONV_LEAKYRELU, N_CONV_ACTS };

/* y (batch, out_channels, outputs ..) = x (batch, channels, size ..) convolved with
     w (out_channels, channels / groups, kernel ..), transposed: w (channels, out_channels / groups, kernel ..).
   Arrays have an entry per axis, outermost first: (depth, height, width), (height, width) or (width). */
struct conv_row {
    struct str name;               /* of the layer; may be empty */
    u32 axes;                      /* 1 to CONV_AXES */
    bool is_transposed;
    i64 batch, channels, out_channels, groups;
    i64 size[CONV_AXES], kernel[CONV_AXES], stride[CONV_AXES], dilation[CONV_AXES];
    i64 pad_begin[CONV_AXES], pad_end[CONV_AXES];
    i64 output_pad[CONV_AXES];     /* of transposed convolutions: additional outputs at the end */
    enum conv_pass pass;           /* of a gradient, sizes are those of the convolution */
    bool has_bias;                 /* one value per output channel; gradients have neither bias nor activation */
    enum conv_act act;
};

/* conv_read.c */

struct conv_data {
    struct { struct conv_row *v; u32 n, cap; } row;
    struct { struct str *v; u32 n, cap; } note; /* warnings: "line 3: the row says ..., the convolution gives ..." */
};
/* Text of a file: a line with the names of columns, then a row per line; fields may be quoted. The schema is in doc/conv.md; missing columns
   and empty fields have defaults. Headers of other tools are recognised by their columns. ERR_INPUT with line, column and found text; all
   rows are checked (conv_row_check). Texts are kept in the arena. */
bool conv_read(struct conv_data *d, struct arena *a, struct str text, struct err *e);
/* In this project's schema, all columns; read back as equal rows. */
void conv_print(struct buf *b, const struct conv_data *d);
/* Name and text of the k-th built-in data set; NULL after the last. Names are sorted. */
const char *conv_data_at(u32 k, struct str *text);
/* A built-in data set, else a file. ERR_USAGE lists the names if it is neither; errors begin with the path. */
bool conv_data_open(struct conv_data *d, struct arena *a, const char *name_or_path, struct err *e);

/* conv_row.c */

/* Sizes are in range, windows fit, groups divide channels, numbers of elements do not overflow. ERR_INPUT names the violation. */
bool conv_row_check(const struct conv_row *r, struct err *e);
/* Of checked rows: */
void conv_row_outputs(const struct conv_row *r, i64 out[CONV_AXES]);
double conv_row_flops(const struct conv_row *r);                /* 2 per multiply-add, padding included */
double conv_row_bytes(const struct conv_row *r, enum dtype t);  /* input, weights and output touched once */
double conv_row_terms(const struct conv_row *r);                /* multiply-adds of one output, at most */
/* "in_16X1X130X130X130_k_3X3X3_och_16", followed by what differs from the defaults: "_s_2X2X2_p_1X1X1_.." */
void conv_row_label(struct buf *b, const struct conv_row *r);
/* The same convolution with fewer images, channels and outputs, until it needs at most that many operations or cannot be
   reduced; kernel, stride, dilation and padding stay, groups as far as there are channels. */
void conv_row_shrink(struct conv_row *r, double flops);
const char *conv_pass_name(enum conv_pass p);                   /* "forward" "input" "weights" */
bool conv_pass_read(enum conv_pass *p, const char *name, struct err *e); /* NULL: forward. ERR_USAGE lists the names */
const char *conv_act_name(enum conv_act a);                     /* "none" "relu" "leakyrelu" */
bool conv_act_read(enum conv_act *a, const char *name, struct err *e); /* NULL: none. ERR_USAGE lists the names */
static inline bool conv_row_is_fused(const struct conv_row *r) { return r->has_bias || r->act != CONV_PLAIN; }
/* The row that is computed for a row: gradients of inputs are the adjoint convolution, forward; gradients of weights those of a convolution
   that is not transposed, with x and dy exchanged if the row was. ERR_UNSUPPORTED: there is none. */
bool conv_row_computed(struct conv_row *to, const struct conv_row *r, struct err *e);
/* Of rows that conv_row_computed does not change. Input "x", constants "w" and "b" (without content), output "y"; not inferred. Of CONV_WEIGHTS: inputs
   "x" and "dy", output "y" is the gradient. */
void conv_row_graph(struct graph *g, const struct conv_row *r, enum dtype t);
/* Likewise as a task, with x, y and dy in that layout (LAYOUT_ROWS: channels outermost; LAYOUT_CLAST), weights and their gradients in rows. */
bool conv_row_task(struct task *t, struct arena *a, struct symtab *st, const struct conv_row *r, enum dtype type, enum layout l,
                   struct err *e);

/* conv_names.c: the implementations. */

struct conv_impl {
    const char *name, *what;  /* what: one line */
    bool channels_last;       /* layout of input and output */
};
const struct conv_impl *conv_impl_at(u32 i);             /* NULL after the last */
const struct conv_impl *conv_impl_find(struct str name); /* NULL: unknown */
/* The implementation's own schedule for a task (a Conv in the implementation's layout). false with ERR_UNSUPPORTED and the reason if the
   device's family does not support it. Tiles are reduced to fit; properties that the label promises are kept. */
bool conv_impl_candidate(const struct conv_impl *x, const struct task *t, const struct caps *caps, const i64 *var, struct candidate *out,
                         struct err *e);
/* Whether a candidate has the properties of the label. */
bool conv_impl_keeps(const struct conv_impl *x, const struct candidate *c, const struct caps *caps);
/* The tuned form: schedules with the properties of the label, the implementation's own first, then by predicted time; all of them, or random
   ones if there are many. Returns their number, at most max; 0: an error, as above. */
u32 conv_impl_tuned(const struct conv_impl *x, const struct task *t, const struct caps *caps, const i64 *var, u64 seed,
                    struct candidate *out, u32 max, struct err *e);
bool conv_impl_check(const struct conv_impl *x, const struct caps *caps); /* whether the table's entry is well formed */

/* conv_build.c: candidates and built kernels. */

struct conv_place {              /* environment of builds and runs */
    struct db *db;
    i64 env;                     /* of db */
    const struct cache *cache;   /* of compiled kernels; NULL: none */
    const struct dev_driver *driver;
    struct dev_opts dev;
    const struct caps *caps;
    const struct lang *lang;
    struct str toolchain;
    const struct stop *stop;     /* see struct trial_opts; NULL: none */
};
/* The default schedule, independent of the database: the reference. ERR_UNSUPPORTED: no family implements the task. */
bool conv_default(struct candidate *c, const struct conv_place *p, const struct task *t, struct err *e);
/* The candidate of an implementation's name, or of "tuned", any schedule: the fastest with the label's properties that the database has
   measured and verified for the task; if there is none, the implementation's own schedule, or the default one. */
bool conv_choose(struct candidate *c, const struct conv_place *p, const struct task *t, struct str name, struct err *e);
/* The layout of the implementation of this name; of "tuned": channels last. ERR_USAGE lists the names. */
bool conv_layout(enum layout *l, struct str name, struct err *e);
/* Searches for it: measures candidates with the label's properties, interleaved with the default schedule; all measurements are stored. */
bool conv_tune(const struct conv_place *p, const struct task *t, struct str name, const struct tune_opts *o, struct err *e);
/* Its kernel. only_known: from the cache only; ERR_NOTHING: it is not there. */
bool conv_build(struct subject *s, const struct conv_place *p, const struct task *t, const struct candidate *c, bool only_known,
                struct arena *a, struct err *e);
/* conv_library.c: the convolution by the device's library, see dev_ask_conv; library: storage that must outlive the subject. */
void conv_library(struct dev_conv *library, const struct conv_row *r, enum dtype t, enum layout l);
void conv_library_subject(struct subject *s, const struct dev_conv *library, const struct task *t, struct arena *a);
/* The baseline of a task, whose row is as conv_row_computed leaves it. */
struct conv_base {
    struct subject subject;
    struct dev_conv library;     /* storage of the subject */
    bool by_library;             /* else the reference schedule */
    struct str name;
};
struct conv_base_opts {
    const char *want;            /* "vendor", "reference"; NULL: the library if it computes the row, else the reference */
    bool only_known;             /* as for conv_build */
    const struct log *log;
};
bool conv_find_base(struct conv_base *b, const struct conv_place *p, const struct task *t, const struct conv_row *r, enum dtype type,
                    enum layout l, const struct conv_base_opts *o, struct arena *a, struct err *e);

/* conv_profile.c */

enum { CONV_ROUNDS = 100 };

struct conv_pair {               /* two kernels of one task */
    const struct subject *subject, *base; /* base NULL: none */
    u32 warm_up, total;          /* uncounted and counted rounds; total 0: CONV_ROUNDS */
    u64 seed;                    /* of the inputs' content */
};
struct conv_times {
    double *seconds, *base;      /* per round */
    u32 n;
    struct stats of, of_base, ratio; /* medians with 95 % intervals; ratio: base / subject of each round */
};
/* Time-out of a run in seconds, by its operations. */
double conv_timeout(const struct task *t, const i64 *var);
/* In a child process, alternately one run of each per round, in the same memory throughout; runs too short for the clock are repeated.
   false with ERR_FAILED: a kernel's failure. */
bool conv_profile(struct conv_times *t, const struct conv_place *p, const struct task *task, const struct conv_pair *k, struct arena *a,
                  struct err *e);

/* conv_table.c: the files of a run (doc/conv.md). */

struct conv_result {             /* of one layer */
    u32 layer;
    const struct conv_row *row;
    struct str base;             /* baseline; empty: none */
    struct conv_times times;     /* n 0: not timed */
};
struct conv_run {
    struct str implementation;              /* its name */
    enum dtype type;
    struct rates limit;          /* measured, of the device; zeros: unknown, and nothing is said of it */
    struct { struct conv_result *v; u32 n, cap; } result;
};
/* Lower bound in seconds by the row's operations and bytes and the known peaks; 0: none is known. */
double conv_limit(const struct conv_run *r, const struct conv_row *row);
void conv_print_ceilings(struct buf *b, const struct conv_run *r);
void conv_print_summary(struct buf *b, const struct conv_run *r);
void conv_print_samples(struct buf *b, const struct conv_run *r);
void conv_print_roofline(struct buf *b, const struct conv_run *r);
bool conv_run_is_timed(const struct conv_run *r);
/* Writes all of these and params.txt into a folder, which is made. */
bool conv_write_files(const struct conv_run *r, const char *dir, struct str params, struct err *e);
/* The criterion of the tool that the data sets come from: the norm of all errors over their number. It decreases with the square root of the
   number, so large outputs hardly ever fail; its threshold was 1e-4, later 1e-5. rms: of an error. */
double conv_seed_figure(double rms, double n_outputs);
void conv_print_seed(struct buf *b, const struct verify_report *r); /* and the verdict of that criterion */

/* conv_layers.c */

struct conv_layer;
struct conv_job {
    struct conv_place place;
    const struct conv_row *row;  /* of a data set; layers first to last - 1 */
    u32 first, last;
    struct str name;             /* of the implementation */
    enum dtype type;
    enum layout layout;
    bool verify, compare;        /* compare: with a baseline, timed */
    bool only_known;             /* as for conv_build */
    const char *baseline;        /* see conv_base_opts */
    const struct tune_opts *search; /* before each layer; NULL: none */
    u32 warm_up, total;          /* see conv_pair */
    u64 seed;
    const struct log *log;
    void (*each)(void *user, const struct conv_layer *l); void *user; /* called after each layer; NULL: none */
};
struct conv_layer {              /* texts are valid during the call */
    u32 index;
    const struct conv_row *row;
    struct str label, candidate, base, report;
    bool ok, base_ok, has_base;
    const struct conv_times *times;
};
struct conv_layers {
    struct arena *arena;
    struct conv_run run;
    u32 n_bad;                   /* failed layers and baselines */
    struct str first_bad;        /* reason of the first one */
};
/* A failing layer is reported and does not stop the others. false: the database or the system failed, or it was stopped before any result. */
bool conv_layers_run(struct conv_layers *all, const struct conv_job *j, struct arena *a, struct err *e);

#endif
