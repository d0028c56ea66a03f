// SPDX-License-Identifier: Apache-2.0
//
// rt: runs plans. A program is a plan loaded on a device (binaries loaded, constants uploaded once); a session is a program with
// sizes bound and memory laid out. Sees only core, art and dev: the shipped runtime cannot reach the compiler.
#ifndef QUERN_RT_H
#define QUERN_RT_H

#include "art/art.h"
#include "dev/dev.h"

struct rt_program;

/* plan and dev must outlive the program. */
struct rt_program *rt_load(const struct plan *p, struct dev *d, struct err *e);
void rt_unload(struct rt_program *p);

/* Where each TEMP buffer lies for given sizes: greedy by size over lifetimes, at multiples of DEV_ALIGN, one block. */
struct rt_memory { i64 *offset; i64 total; i64 unshared; }; /* unshared: sum of all sizes, for reports */
bool rt_plan_memory(const struct plan *p, const i64 *var, struct arena *a, struct rt_memory *m, struct err *e);

/* Runs once. in: one per input with matching dtype and rank; sizes bind the variables, contradictions are errors naming input and axis.
   out: dims are filled in; data is written where out[k].data is given, else allocated in `a`. Where a size depends on data, memory that is
   given is room for at most its dims as they came. Memory of
   the last sizes is kept for the next run. Not reentrant: one run at a time per program. */
bool rt_run(struct rt_program *p, const struct tensor *in, struct tensor *out, struct arena *a, struct err *e);
bool rt_output_dims(struct rt_program *p, const struct tensor *in, struct tensor *out, struct err *e); /* dtype, rank, dim only; -1: made by the run */

/* Likewise on inputs and outputs in memory of the device that belongs to others in this process (data is what kernels see; outputs are all given, with
   the shapes of rt_output_dims), in the order of their stream, see dev's borrow, follow and lead. Does not wait for the end. */
bool rt_enqueue(struct rt_program *p, const struct tensor *in, const struct tensor *out, void *stream, struct err *e);

/* Per dispatch, summed over the runs since the last reset; flops 0: unknown. bytes: of all its buffers, what it moves at least. */
struct rt_times { double *seconds, *flops, *bytes; u32 n; };
void rt_profile(struct rt_program *p, bool on);
struct rt_times rt_profile_times(const struct rt_program *p);
/* Behind each kernel of a run, which is waited for: its number, the memory of its buffers, the values of the plan's variables. false: the run
   fails. Not of what calls run. fn NULL: nobody watches. */
typedef bool rt_watch_fn(void *user, u32 dispatch, const struct dev_mem *buf, const i64 *var, struct err *e);
void rt_watch(struct rt_program *p, rt_watch_fn *fn, void *user);
/* Of the last run's dispatches, by the device's clock: without moving inputs and outputs. Negative: of one that was not waited for. */
double rt_seconds(const struct rt_program *p);
i64 rt_memory_used(const struct rt_program *p);  /* bytes of the temporary block */

#endif
