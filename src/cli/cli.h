// SPDX-License-Identifier: Apache-2.0
//
// cli: the command `quern`, written against include/quern.h alone. A plug-in file src/cli/cmd_NAME.c
// exports one `const struct cmd cmd_NAME`; help texts and errors about options are generated from its
// table. Results go to standard output, messages and progress to standard error. Exit codes: 0 done,
// 1 failed, 2 wrong usage, 3 nothing measured or chosen, 130 and 143 ended by Ctrl-C and SIGTERM.
#ifndef QUERN_CLI_H
#define QUERN_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quern.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NOTHING = 3, EXIT_SIGNAL = 128 /* and its number */ };
enum { MAX_IO = 64 }; /* maximal inputs or outputs of a network that the command handles */

enum opt_kind {
    OPT_FLAG,   /* --x, --no-x */
    OPT_COUNT,  /* a whole number, 0 or more */
    OPT_NUMBER, /* a number, 0 or more */
    OPT_TIME,   /* 90, 60s, 15min, 2h */
    OPT_TEXT,   /* any word; repeatable, the last one counts unless the command reads all */
    OPT_WORDS,  /* one or more words NAME=VALUE */
    OPT_COUNTS, /* one or more whole numbers */
};

struct opt {
    const char *name; /* without dashes; NULL ends a table */
    char letter;      /* -x, 0: none */
    enum opt_kind kind;
    const char *arg; /* name of the value in the help: "FILE" */
    const char *help;
};

struct cli;

struct cmd {
    const char *name, *summary;
    const char *notes; /* additional text below the summary in its help; NULL: none */
    const char *args; /* positional arguments, as shown in the help: "MODEL" */
    int min_args, max_args;
    const struct opt *options; /* in addition to the common options */
    int (*run)(struct cli *c); /* the exit code */
};

struct opt_hit { /* one value of one option, in order of the command line */
    const struct opt *opt;
    const char *value; /* NULL: a flag */
    bool is_off;       /* --no-x */
};

struct progress;

struct cli {
    quern *q;
    const struct cmd *cmd;
    struct opt_hit *hit;
    int n_hits;
    const char **arg; /* positional */
    int n_args;
    struct progress *progress;
    struct cli_text *text; /* of cli_text */
};

/* Options shared by several commands. */
/* clang-format off */
#define OPT_DEVICE {"device", 0, OPT_TEXT, "GLOB", "device, see quern devices (default: cpu; for a program: the first that supports it)"}
#define OPT_THREADS {"threads", 0, OPT_COUNT, "N", "CPU threads (default: all)"}
#define OPT_SIZES \
    {"optimize-for", 0, OPT_WORDS, "H:1080,W:1920", "sizes that kernels are selected for (default: 256 each)"}
#define OPT_SET {"set", 0, OPT_WORDS, "NAME=SIZE", "sizes of the random inputs; one or more"}
#define OPT_SEED {"seed", 0, OPT_COUNT, "N", "random seed (default: 0)"}
#define OPT_DB {"db", 0, OPT_TEXT, "DB", "database of measurements"}
#define OPT_UNTUNED \
    {"untuned", 0, OPT_FLAG, NULL, "use default schedules and ignore the database"}
#define OPT_FUSION \
    {"fusion", 0, OPT_FLAG, NULL, "fuse operators (default; --no-fusion: one kernel per operator)"}
#define OPT_PROVE \
    {"prove", 0, OPT_FLAG, NULL, "verify each kernel in exact arithmetic (default; --no-prove: do not), see quern explain"}
/* Interface of the program and its sizes. */
#define OPT_INTERFACE \
    {"input-shape", 0, OPT_TEXT, "H:W:C", "sizes of all inputs, each NAME, NAME=N, N or ?"}, \
    {"input-type", 0, OPT_TEXT, "TYPE", "element type of all inputs: f16, f32, f64, u8 or i8 (default: the model's)"}, \
    {"input-layout", 0, OPT_TEXT, "LAYOUT", "layout of all inputs: HWC, CHW, CHWC8, NWC, NHWC or NDHWC (default: the model's)"}, \
    {"input-storage", 0, OPT_TEXT, "SSBO", "kind of memory: a storage buffer, the only one"}, \
    {"output-shape", 0, OPT_TEXT, "H:W:C", "sizes of all outputs"}, \
    {"output-type", 0, OPT_TEXT, "TYPE", "element type of all outputs"}, \
    {"output-layout", 0, OPT_TEXT, "LAYOUT", "layout of all outputs"}, \
    {"output-storage", 0, OPT_TEXT, "SSBO", "kind of memory, as for inputs"}, \
    {"shape", 0, OPT_WORDS, "NAME=H:W:C", "sizes of one input or output; one or more"}, \
    {"type", 0, OPT_WORDS, "NAME=TYPE", "element type of one input or output; one or more"}, \
    {"format", 0, OPT_WORDS, "NAME=LAYOUT", "layout of one input or output; one or more"}, \
    {"storage", 0, OPT_WORDS, "NAME=SSBO", "kind of memory of one input or output; one or more"}, \
    {"f16-storage", 0, OPT_FLAG, NULL, \
     "store all values in f16 behind an f16 interface (default; --no-f16-storage: in f32)"}, \
    OPT_SIZES, \
    {"assume", 0, OPT_WORDS, "B=1", "sizes fixed before shape inference; one or more"}, \
    {"assume-multiple", 0, OPT_WORDS, "H=16", "sizes that are multiples of a number: no remainder loops"}, \
    {"assume-range", 0, OPT_WORDS, "S=1..4096", "sizes within a range"}, \
    {"state", 0, OPT_TEXT, "auto|IN=OUT,..", "caches in place: pairs of inputs and outputs, or all told by their names (past.., present..)"}, \
    {"external-data-links", 0, OPT_FLAG, NULL, "follow symbolic links to the model's external data"}, \
    {"elements", 0, OPT_WORDS, "X=3", "number of elements of sequence inputs (which become X[0], X[1] ...); 1 or none for optional inputs"}
/* The device and its limits. */
#define OPT_TARGET \
    OPT_DEVICE, \
    {"devices", 0, OPT_TEXT, "FILE", \
     "description of another machine's devices, printed there by quern devices, to compile for them"}, \
    {"isa", 0, OPT_TEXT, "LIST", \
     "CPU instruction sets: native (default), x86-64-v2, x86-64-v3, x86-64-v4, aarch64 .., see quern devices; several, joined by ',', " \
     "become variants of one program"}, \
    {"target-env", 0, OPT_TEXT, "vulkan1.N", "newest Vulkan version to target, N 0 to 4"}, \
    {"coopmat", 0, OPT_FLAG, NULL, "use matrix units if present (default; --no-coopmat: do not)"}, \
    {"winograd", 0, OPT_FLAG, NULL, \
     "allow Winograd convolutions, with larger rounding errors than direct sums (default; --no-winograd: do not)"}, \
    {"deterministic", 0, OPT_FLAG, NULL, \
     "same bits for any number of threads, batch, and other sizes that are not summed over"}, \
    {"memory-concat", 0, OPT_FLAG, NULL, \
     "allow concatenations in place (default; --no-memory-concat: only in the loads of their consumers)"}, \
    {"spirv-optimize", 0, OPT_FLAG, NULL, "optimise SPIR-V by spirv-opt"}, \
    {"spirv-debug-info", 0, OPT_FLAG, NULL, "names and line numbers in SPIR-V"}, \
    {"spirv-non-semantic-debug-info", 0, OPT_FLAG, NULL, "source text in SPIR-V"}
/* For commands that open programs. */
#define OPT_SIGNATURE \
    {"require-signature", 0, OPT_FLAG, NULL, "accept only programs signed by a trusted key (quern key, quern sign)"}, \
    {"trusted", 0, OPT_TEXT, "PATH", "trusted keys: a public key, or a folder of *.pem (default: $XDG_CONFIG_HOME/quern/trusted)"}
#define OPT_OUTPUT(arg, help) {"output", 'o', OPT_TEXT, arg, help}
#define OPT_TIMEOUT \
    {"timeout", 0, OPT_TIME, "TIME", "time limit: 90, 60s, 15min, 2h (default: until the search has converged)"}
#define OPT_SAMPLES \
    {"min-samples", 0, OPT_COUNT, "N", "samples of each surviving candidate (default: 10)"}
/* For command lines of other tools. */
#define OPT_EFFORT \
    {"opt", 'O', OPT_COUNT, "N", "effort of populate, 0 to 5 (default: 2): number of candidates per task"}
#define OPT_SETS \
    {"use-descriptor-sets", 0, OPT_COUNTS, "N N N N N", "accepted and ignored: descriptor sets of inputs, outputs, weights, reads, writes"}
#define OPT_END {NULL, 0, OPT_FLAG, NULL, NULL}
/* clang-format on */

/* cli_opts.c */
bool opts_parse(struct cli *c, int argc, const char **argv); /* false: a message was printed */
void opts_release(struct cli *c);
const char *opts_text(const struct cli *c, const char *name); /* last value, NULL: not given */
bool opts_given(const struct cli *c, const char *name);
bool opts_flag(const struct cli *c, const char *name, bool def);
int64_t opts_count(const struct cli *c, const char *name, int64_t def);
double opts_number(const struct cli *c, const char *name, double def); /* of numbers and times */
/* Values of a repeated option: *at starts at 0; NULL after the last. */
const char *opts_next(const struct cli *c, const char *name, int *at);
/* A text of any length that lives as long as the command line does; "" if memory is short, after a message. */
const char *cli_text(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* All words of an option joined by commas, NULL if none was given. */
const char *opts_words(struct cli *c, const char *name);
int usage_error(const struct cli *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* prints; EXIT_USAGE */
/* Nearest of the names by edit distance, NULL if none is near. */
const char *nearest(const char *word, const char *(*name)(const void *list, int k),
                    const void *list);

/* cli_placement.c */
enum { MAX_PLACES = 64 }; /* devices of a network */
/* "X64:0,NVIDIA:0" of one or more options, as a list that is ended by NULL, of MAX_PLACES + 1 places; changes text. Returns an exit code. */
int split_devices(const struct cli *c, char *text, const char **list);

/* cli_names.c: rewrites the command line of another tool, if the
 * command is called by its name. Allocated; NULL: out of memory. */
const char **names_rewrite(int *argc, char **argv);

/* cli_help.c */
const struct cmd *cmd_at(int k); /* NULL after the last */
const struct cmd *cmd_find(const char *name);
const struct opt *opts_common(void); /* options of every command */
void help_print(void);
void help_command(const struct cmd *c);
int help_stages(void); /* quern -d list */

/* cli_progress.c */
struct progress *progress_open(const struct cli *c);
void progress_event(void *user, const struct quern_event *e);
void progress_close(struct progress *p);        /* ends the live line */
double progress_best(const struct progress *p); /* last reported speed-up, 0: none */

/* cli_stop.c */
void stop_watch(quern *q);  /* signals stop q */
void stop_unwatch(void);
int stop_signal(void);      /* the received signal; 0: none */

/* cli_util.c */
int exit_code(quern_status s);
int fail(struct cli *c, quern_status s); /* prints the context's error; returns the exit code */
double now(void);                        /* seconds, monotonic */
bool has_suffix(const char *path, const char *suffix);
/* The default database, beside the file. If another user owns it, it
 * is not trusted: prints, and returns another code than EXIT_DONE. */
int default_db(const struct cli *c, const char *file, const char *suffix, char *path, size_t size);
/* Opens the database of --db, else the one beside the file; returns the exit code. */
int open_db(struct cli *c, const char *file, const char *suffix, quern_db **db);
void print_best(const struct cli *c, const struct quern_gemm_best *b); /* of measured points */
bool is_dnx(const char *path); /* by suffix, or by the first bytes */
int refuse_unsigned(struct cli *c, const char *model); /* exit code: a signature is required, but models have none */
void json_text(const char *s); /* prints it quoted and escaped */
/* The model of the positional argument `path`, compiled
 * with the options. db may be NULL. *m NULL on failure. */
quern_status open_model(struct cli *c, const char *path, quern_model **m);
/* Caches in place, by --state or all. assume: more assumptions, "B:1,S:1"; NULL: none. */
quern_status open_model_with_caches(struct cli *c, const char *path, const char *assume, quern_model **m);
/* Prints its problems. */
quern_status check_model(struct cli *c, const char *path, void (*each)(void *user, const struct quern_problem *p), void *user,
                         struct quern_report *r);
bool has_model_options(struct cli *c); /* the command line has options about the model */
/* keep: see quern_compile_opts. */
/* Purpose of a compilation: to be verified; to run, with the program cached for the next process; to be written as an artifact. */
enum made_for { TO_CHECK, TO_RUN, TO_SHIP };
quern_status compile_model(struct cli *c, quern_model *m, quern_db *db, enum made_for use, quern_program **p);
void compile_options(const struct cli *c, struct quern_compile_opts *o, struct quern_target_opts *t);
/* o refers to t. */
void tune_options(const struct cli *c, struct quern_tune_opts *o, struct quern_target_opts *t);
void target_options(const struct cli *c, struct quern_target_opts *o);

/* cli_tensor.c: files as inputs of a network, and outputs to files */
struct tensors {
    quern_tensor *v[MAX_IO];
    int n;
};
struct want { /* of one input */
    const char *name;
    quern_dtype dtype;
    const char *layout; /* "HWC" and the like, "": the network's axes */
    int rank;
    int64_t dim[8]; /* -1: sym[d], "" if that is more than a name */
    const char *sym[8];
};
struct wants {
    struct want v[MAX_IO];
    int n;
};
void tensors_release(struct tensors *t);
int tensor_check_shape(const char *path, const struct want *w, const quern_tensor *t); /* prints the given and the needed shape */
int tensor_convert(struct cli *c, quern_dtype to, quern_tensor **t); /* its elements; exit code */
int wants_of_program(const struct cli *c, const quern_program *p, struct wants *w); /* exit code */
int wants_of_model(const struct cli *c, const quern_model *m, struct wants *w);
int64_t dtype_bytes(quern_dtype t); /* of an element in memory */
int tensor_read(struct cli *c, const char *path, const struct want *w, quern_tensor **t); /* a file, as an input needs it */
/* Reads every -i in the order of the inputs. */
int tensors_read(struct cli *c, const struct wants *w, struct tensors *in);
int tensors_write(struct cli *c, quern_program *p, struct tensors *out);
int wants_of_deployment(const struct cli *c, quern_deployment *d, struct wants *w);
int tensors_write_deployment(struct cli *c, quern_deployment *d, struct tensors *out);
/* The sizes of the tensors, as "H=3,W=4"; "": none has a name. */
const char *tensors_sizes(struct cli *c, const struct wants *w, const struct tensors *in);

/* cli_picture.c: exit codes */
bool is_picture(const char *path); /* by its suffix */
/* Converts a picture's tensor to that of an input, as far as possible. */
int picture_to_input(struct cli *c, const struct want *want, quern_tensor **t);
/* Converts an output to a picture's tensor. */
int picture_of_output(struct cli *c, const char *layout, quern_tensor **t);

/* cli_samples.c: samples of the inputs of a network, from a folder or an .npz file (doc/quantize.md). */
struct samples {
    struct cli *c;
    struct wants w;
    int n;                      /* samples */
    int code;                   /* exit code of the last failure, which was printed */
    char **file[MAX_IO];        /* of a folder: n files per input */
    quern_tensor *all[MAX_IO];  /* of an .npz file: the samples of an input along axis 0 */
};
int samples_open(struct samples *s, struct cli *c, const quern_model *m, const char *path, int64_t most); /* most 0: all; exit code */
void samples_close(struct samples *s);
quern_status samples_read(void *user, int k, quern_tensor **in, int n_in); /* a quern_sample_fn; user: the samples */

/* cli_profile.c */
double median_of(double *v, int n); /* sorts them; n > 0 */
/* Runs it several times: its n steps with the medians of their times, to be freed also after an error. */
quern_status profile_steps(quern_program *p, struct tensors *in, struct tensors *out, struct quern_step **steps, int *n);
/* Likewise, and prints them; also writes --breakdown. */
quern_status profile_net(struct cli *c, quern_program *p, struct tensors *in, struct tensors *out);

/* cli_deployment.c: opens one, with the options place, fallback, threads, trace; quern run of one; exit codes */
int deployment_open(struct cli *c, const char *path, quern_deployment **d);
int deployment_run(struct cli *c, const char *path);

/* cli_suite.c */
int suite_run(struct cli *c, const char *dir);
/* cli_exact.c: quern verify --exact; db NULL: none */
int exact_run(struct cli *c, quern_model *m, quern_db *db);
int layers_run(struct cli *c, quern_model *m, quern_program *p); /* --per-layer */

#endif
