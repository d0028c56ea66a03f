// SPDX-License-Identifier: Apache-2.0
//
// Private to request/: what its files share.
//
// Invariants, under the model's monitor:
//  1. A task (request, sub-graph) is in at most one queue, and only if everything that the sub-graph waits for is done.
//  2. request.n_running tasks are executed now; the request is over when there are none of them and either none are left or it failed.
//  3. request.is_over is set after its callback returned, unless that has started it again.
//  4. A slot's unit is made and used by the thread of its device alone.
#ifndef QUERN_REQUEST_PRIVATE_H
#define QUERN_REQUEST_PRIVATE_H

#include "request/request.h"

struct req_device;

struct req_slot {              /* a way to run a sub-graph */
    struct req_device *device; /* NULL: none */
    enum meta_role role;
    void *unit;                /* NULL: not loaded */
    struct err err;            /* why it cannot be used */
};

struct req_unit {              /* a sub-graph */
    struct req_slot slot[2];   /* on its device; the fallback */
    u32 active;                /* index */
    bool is_available;
    i64 runs;
    double seconds;
};

struct req_task { struct request *r; u32 subgraph, slot; }; /* r NULL: the slot is only loaded */

struct req_device {
    struct req_model *model;
    struct req_place place;
    const struct req_backend *backend;
    struct os_thread *thread;
    i64 thread_id;
    void *handle;              /* of the back end; NULL: not open */
    struct err err;            /* why it is not */
    struct { struct req_task *v; u32 n, cap; } queue; /* in the arena below */
    struct arena a;            /* of the queue; under the monitor */
    bool is_busy;              /* has taken a task, and its consequences are not complete */
};

enum req_step {                /* kinds of events in profiles */
    STEP_MODEL_INIT, STEP_SUBGRAPH_INIT, STEP_REQUEST_INIT, STEP_FROM_INPUT, STEP_TO_OUTPUT, STEP_LAYER, STEP_WAIT, STEP_COPY, STEP_SUBGRAPH, STEP_MODEL,
    N_REQ_STEPS
};
struct req_event {
    enum req_step step;
    struct str what;           /* sub-graph, tensor or layer */
    u32 device;                /* index; UINT32_MAX: of the caller */
    i64 request;               /* its number; -1: none */
    double begin, end;
};
struct req_events { struct req_event *v; u32 n, cap; i64 lost; struct arena a; };

struct req_model {
    struct arena a;            /* everything but events and queues; not changed after the opening */
    struct meta_store *store;
    const struct meta_model *meta;
    struct req_model_opts o;
    struct symtab sym;         /* sizes of tensors */
    sym (*dim)[MAX_RANK];      /* per tensor */
    struct { struct req_device **v; u32 n, cap; } device;
    struct os_monitor *reading; /* of the store */
    double begin;              /* clock at the opening */
    struct os_monitor *monitor; /* of everything below, and what the invariants name */
    struct req_unit *unit;     /* per sub-graph */
    u32 n_loading;             /* tasks without a request */
    u32 n_requests;            /* that exist */
    i64 n_started, n_created;
    bool is_refusing;          /* no request starts any more */
    bool is_quitting;          /* threads end once their queues are empty */
    bool is_closing;           /* they have ended; the last request frees the model */
    struct req_events events;
};

struct req_memory { void *p; i64 size; }; /* of a tensor, kept from run to run */

struct request {
    struct req_model *model;
    struct arena a;
    i64 number;
    struct tensor *tensor;     /* per tensor of the model; data NULL: not set */
    struct req_memory *memory;
    i64 *var;                  /* sizes of this run */
    request_done_fn *done;
    void *user;
    /* under the monitor */
    i64 sequence;              /* of its last start */
    u32 *pending;              /* per sub-graph: those that it still waits for */
    u32 n_left, n_running;
    bool is_started, is_over, is_running, is_ending, destroy_later;
    i64 callback_thread;       /* that runs its callback; 0: none */
    struct err err;            /* the first failure */
    double begin;
};

/* shape.c */
bool shape_parse(struct req_model *m, struct err *e);
bool shape_check(const struct req_model *m, u32 tensor, const i64 *var, const struct tensor *t, const char *what, struct err *e); /* unknown sizes fit */
bool shape_bind(struct request *r, struct err *e);  /* sizes from the inputs, which are checked */
bool shape_fixed(const struct req_model *m, u32 tensor, struct tensor *t); /* false: a size is symbolic */

/* memory.c: a tensor's own memory, with room for its sizes. */
bool memory_make(struct request *r, u32 tensor, struct tensor *t, struct err *e);
void memory_release(struct request *r);

/* trace.c */
double trace_now(const struct req_model *m);
void trace_add(struct req_model *m, struct req_event x); /* in the monitor */
void trace_print(struct buf *b, const struct req_model *m);
void chart_print(struct buf *b, const struct req_model *m); /* chart.c */

/* queue.c: all in the monitor. */
void queue_load(struct req_model *m, u32 subgraph, u32 slot);
void queue_begin(struct request *r);                       /* puts its first tasks into queues */
bool queue_take(struct req_device *d, struct req_task *t); /* of the oldest request; the device is busy then */
void queue_again(struct req_model *m, struct req_task t);  /* on the sub-graph's other slot */
void queue_finish(struct req_model *m, struct req_task t, const struct err *e); /* may call the request's callback, outside of the monitor */
void queue_cancel(struct request *r);                      /* drops its tasks that have not begun; ends it if none runs */
bool queue_free(struct request *r);                        /* true: the model is closed and has no others: to be freed, outside of the monitor */
void queue_free_model(struct req_model *m);

/* worker.c */
void worker_main(void *device);

#endif
