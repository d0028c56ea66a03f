// SPDX-License-Identifier: Apache-2.0
//
// rt: the runtime, which runs plans. A program is a plan loaded on a device (binaries loaded, constants uploaded once); a session
// is a program with sizes bound and memory laid out. Depends on core, art and dev only: the shipped runtime contains no compiler.
#ifndef QUERN_RT_H
#define QUERN_RT_H

#include "art/art.h"
#include "dev/dev.h"

struct rt_program;

/* plan and dev must outlive the program. */
struct rt_program *rt_load(const struct plan *p, struct dev *d, struct err *e);
void rt_unload(struct rt_program *p);

/* The device works in the host's memory: inputs and outputs of a run are used in place. */
bool rt_shares_host(const struct rt_program *p);

/* Placement of the TEMP buffers for given sizes: greedy by size over lifetimes, at multiples of DEV_ALIGN, in one block. */
struct rt_memory { i64 *offset; i64 total; i64 unshared; }; /* unshared: sum of all sizes, for reports */
bool rt_plan_memory(const struct plan *p, const i64 *var, struct arena *a, struct rt_memory *m, struct err *e);

/* Runs once. in: one per input with matching dtype and rank; sizes bind the variables, contradictions
   are errors naming input and axis. out: dims are filled in; data is written to out[k].data if given,
   else allocated in `a`. For data-dependent sizes, given memory is a buffer of at most its initial dims.
   Memory of the last sizes is kept for the next run. Not reentrant: one run at a time per program. */
bool rt_run(struct rt_program *p, const struct tensor *in, struct tensor *out, struct arena *a, struct err *e);
bool rt_output_dims(struct rt_program *p, const struct tensor *in, struct tensor *out, struct err *e); /* dtype, rank, dim only; -1: determined by
                                                                                                          the run */

/* Likewise on inputs and outputs in foreign device memory (data is the address in kernels; all outputs are given, with the
   shapes of rt_output_dims), in the order of the foreign stream, see dev's borrow, follow and lead. Does not wait for the end. */
bool rt_enqueue(struct rt_program *p, const struct tensor *in, const struct tensor *out, void *stream, struct err *e);

/* state.c: the caches of a program in device memory, for at most `max` positions, so that a run reads and writes only what is new. Sizes of the caches'
   other axes are those of the text ("batch:2"), 1 if it does not name them. It is empty at first. The program must outlive it. */
struct rt_state;
struct rt_state *rt_state_new(struct rt_program *p, i64 max, const char *sizes, struct err *e);
void rt_state_free(struct rt_state *s); /* NULL: nothing */
struct rt_state *rt_state_clone(struct rt_state *s, struct err *e); /* its content, in memory of its own */
/* The content of a state of another program of the same network, with the same sizes. false: to is unchanged, or its device failed. */
bool rt_state_copy(struct rt_state *to, struct rt_state *from, struct err *e);
bool rt_state_truncate(struct rt_state *s, i64 length, struct err *e); /* to the first positions */
i64 rt_state_length(const struct rt_state *s);
i64 rt_state_max(const struct rt_state *s);
i64 rt_state_bytes(const struct rt_state *s); /* of device memory */
/* The pair that input k, or output k, belongs to: the index of its other half; UINT32_MAX: none. */
u32 rt_state_output(const struct rt_state *s, u32 input);
u32 rt_state_input(const struct rt_state *s, u32 output);
/* As rt_output_dims and rt_run, with the caches' inputs and outputs left out: their entries are filled in, without data. After a success the state holds
   the outputs; after a failure it is what it was. Allocates nothing if sizes are no larger than in earlier runs, but for the state. */
bool rt_state_output_dims(struct rt_state *s, struct tensor *in, struct tensor *out, struct err *e);
bool rt_state_run(struct rt_state *s, struct tensor *in, struct tensor *out, struct arena *a, struct err *e);
/* The content as bytes (doc/decoding.md), to be read by a state of the same network for the same sizes, whatever its maximum and device. */
bool rt_state_write(struct rt_state *s, struct buf *b, struct err *e);
bool rt_state_read(struct rt_state *s, struct str bytes, struct err *e); /* false: s is unchanged */

/* Per dispatch, summed over the runs since the last reset; flops 0: unknown. bytes: of all its buffers, the minimal traffic. */
struct rt_times { double *seconds, *flops, *bytes; u32 n; };
void rt_profile(struct rt_program *p, bool on);
struct rt_times rt_profile_times(const struct rt_program *p);
/* Called after each kernel of a run, after synchronisation: its number, the memory of its buffers, the
   values of the plan's variables. false: the run fails. Not for the bodies of calls. fn NULL: none. */
typedef bool rt_watch_fn(void *user, u32 dispatch, const struct dev_mem *buf, const i64 *var, struct err *e);
void rt_watch(struct rt_program *p, rt_watch_fn *fn, void *user);
/* Of the last run's dispatches, by the device's clock, without transfers of inputs and outputs. Negative: the run was only enqueued. */
double rt_seconds(const struct rt_program *p);
/* Of the last run, by the host's clock: seconds of copies of inputs to the device, and of outputs back; 0 where they are used in place. */
struct rt_moves { double in, out; };
struct rt_moves rt_moves(const struct rt_program *p);
i64 rt_memory_used(const struct rt_program *p);  /* bytes of the temporary block */

#endif
