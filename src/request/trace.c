// SPDX-License-Identifier: Apache-2.0
//
// Profiles: what happened when, on which device instance and for which request, as Chrome's trace format, which Perfetto reads, too. Times are
// microseconds since the model was opened. One row per instance, and one for the caller; layers and copies are within their sub-graph's bar.
#include "request/request_private.h"

enum { MAX_EVENTS = 1 << 20 };

static const char *const step_name[N_REQ_STEPS] = {"ModelInit", "SubgraphInit", "RequestInit", "TransferFromInput", "TransferToOutput",
                                                   "LayerExecute", "Wait", "BufferCopy", "SubgraphExecute", "ModelExecute"};

double trace_now(const struct req_model *m) { return m->o.clock ? m->o.clock(m->o.user) : os_now(); }

void trace_add(struct req_model *m, struct req_event x)
{
    struct req_events *s = &m->events;
    if (m->o.profile == REQ_NO_PROFILE) return;
    if (s->n == MAX_EVENTS) s->lost++;
    else *arr_push(&s->a, s) = x;
}

static void put_thread(struct buf *b, u32 id, struct str name)
{
    buf_printf(b, "{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":", id);
    buf_json_str(b, name);
    buf_z(b, "}},\n");
}

/* Requests overlap on the caller's row: each has a row of its own for its ModelExecute, as an asynchronous event. */
static void put_event(struct buf *b, const struct req_model *m, const struct req_event *x)
{
    double begin = (x->begin - m->begin) * 1e6, length = (x->end - x->begin) * 1e6;
    bool is_async = x->step == STEP_MODEL;
    for (int end = 0; end <= is_async; end++) {
        buf_printf(b, ",\n{\"name\":\"%s\",\"cat\":\"quern\",\"pid\":1,\"tid\":%u,\"ts\":%.3f", step_name[x->step], x->device == UINT32_MAX ? 0 : x->device + 1,
                   end ? begin + length : begin);
        if (is_async) buf_printf(b, ",\"ph\":\"%s\",\"id\":%lld", end ? "e" : "b", (long long)x->request);
        else buf_printf(b, ",\"ph\":\"X\",\"dur\":%.3f", length);
        buf_z(b, ",\"args\":{\"of\":");
        buf_json_str(b, x->what);
        if (x->request >= 0) buf_printf(b, ",\"request\":%lld", (long long)x->request);
        buf_z(b, "}}");
    }
}

void trace_print(struct buf *b, const struct req_model *m)
{
    buf_z(b, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"model\":");
    buf_json_str(b, m->meta->name);
    buf_printf(b, ",\"lost\":%lld},\n\"traceEvents\":[\n", (long long)m->events.lost);
    put_thread(b, 0, S("caller"));
    for (u32 i = 0; i < m->device.n; i++) put_thread(b, i + 1, m->device.v[i]->place.name);
    buf_z(b, "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"quern\"}}");
    for (u32 i = 0; i < m->events.n; i++) put_event(b, m, &m->events.v[i]);
    buf_z(b, "\n]}\n");
}
