// SPDX-License-Identifier: Apache-2.0
//
// host MODULES NAME MODEL H W NET.dnx: plays vkdt for an exported module. Loads its shared object,
// lets it negotiate sizes and make its nodes for pictures of W x H, and checks what vkdt relies on:
// names, connections, formats, offsets, push constants, kernels' bindings. Then, where a Vulkan
// device is present, it runs the nodes in the orders vkdt would and in random orders that keep to
// the connections, and compares the network's outputs, bit by bit, with those of NET.dnx.
// MODEL is the value of the module's parameter. Prints what it did; exits with 1 at the first
// fault, with 3 where the module passes its input on.
//
// Memory is as vkdt's on a device whose memory the host sees: nodes are visited depth first from the module's outputs (from each of
// them first), the last connector of a node first. In this order buffers get their places and lose them behind the last node that names
// them. Sources (the weights, and a picture in front of each input) have staging memory from the same pool, which the processor fills
// before the first node runs and which is copied when it is the source's turn. In front of the first picture stands a module with a
// buffer of its own. Random orders have a place for everything.
#include "art/art.h"
#include "core/spirv.h"
#include "dev/dev.h"
#include "rt/rt.h"

#include "modules/api.h"

#include <stdlib.h>

enum { N_ORDERS = 3, MAX_IMAGES = 8 };

struct loaded { /* a kernel on the device */
    dt_token_t name;
    struct dev_kernel *kernel;
    u32 n_binding;
};

struct place { /* in the pool */
    i64 at, size;
};

struct staging { /* of a source */
    u32 node;    /* the weights', or the one that reads the picture */
    struct place place;
    const void *data; /* what the processor writes there */
};

struct host {
    struct arena a;
    const char *dir, *name; /* of the modules; of this one */
    int h, w;
    struct plan plan;
    i64 *var;
    dt_graph_t graph;
    dt_module_t module;
    dt_module_so_t so;
    u32 n_in, n_out;
    void *lib;
    struct dev *dev; /* NULL: nothing is run */
    struct {
        struct place *v;
        u32 n, cap;
    } place, used; /* of every connector that owns memory; taken now, by address */
    struct {
        struct staging *v;
        u32 n, cap;
    } staging;
    struct place upstream; /* a buffer of the module in front of this one */
    i64 pool_size, persistent_size;
    struct dev_mem pool;
    void **got; /* per output: what its picture is made of */
    struct {
        u32 *v;
        u32 n, cap;
    } order;
    struct {
        struct loaded *v;
        u32 n, cap;
    } kernel;
    u8 *is_done; /* per node */
};

qvk_t qvk = {.subgroup_size = 8};
static const char *resource_dir;

#define CHECK(cond, ...) ((cond) ? (void)0 : fault(__LINE__, #cond, "" __VA_ARGS__))

static void fault(int line, const char *what, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "host.c:%d: not so: %s ", line, what);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    exit(1);
}

static void must(bool ok, const struct err *e)
{
    if (!ok) fault(0, e->msg, " ");
}

static bool is(dt_token_t t, const char *z) { return t == dt_token(z); }
static bool owns(const dt_connector_t *c) { return is(c->type, "write") || is(c->type, "source"); }
static bool reads(const dt_connector_t *c) { return is(c->type, "read") || is(c->type, "modify"); }

/* What vkdt's program provides. */

FILE *dt_graph_open_resource(const dt_graph_t *graph, uint32_t frame, const char *name,
                             const char *mode)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", resource_dir, name);
    return fopen(path, mode);
}

int dt_node_connect(dt_graph_t *graph, int n0, int c0, int n1, int c1)
{
    CHECK(n1 >= 0 && n1 < (int)graph->num_nodes && c1 >= 0);
    CHECK(c1 < graph->node[n1].num_connectors);
    dt_connector_t *in = &graph->node[n1].connector[c1];
    CHECK(reads(in) && dt_cid_unset(in->connected));
    in->associated = s_cid_unset;
    if (n0 < 0 || c0 < 0) return 0; /* disconnected */
    CHECK(n0 < (int)graph->num_nodes && c0 < graph->node[n0].num_connectors);
    dt_connector_t *out = &graph->node[n0].connector[c0];
    out->associated = s_cid_unset;
    if (!owns(out) && !is(out->type, "modify")) return 9;
    if (in->chan != out->chan) return 10;
    if (in->format != out->format) return 11;
    in->connected = dt_cid(n0, c0);
    in->roi = out->roi;
    if (owns(out)) out->connected.i++;
    in->ssbo_offset = out->ssbo_offset = 0;
    return 0;
}

/* Sizes. */

static i64 eval(const struct host *t, sym s)
{
    i64 v = -1;
    CHECK(sym_eval(&t->plan.sym, s, t->var, &v));
    return v;
}

static i64 element(dt_token_t format)
{
    if (is(format, "f16")) return 2;
    if (is(format, "f32")) return 4;
    CHECK(is(format, "u8"));
    return 1;
}

static i64 bytes_of(const dt_connector_t *c)
{
    return i64_max((i64)c->roi.wd * c->roi.ht * element(c->format), 16);
}

static const dt_connector_t *owner_of(const struct host *t, const dt_connector_t *c)
{
    while (!owns(c)) {
        CHECK(!dt_cid_unset(c->connected));
        c = &t->graph.node[c->connected.i].connector[c->connected.c];
    }
    return c;
}

/* The module. */

static void read_connectors(struct host *t)
{
    struct str text, line;
    struct err e = {0};
    struct str path = str_fmt(&t->a, "%s/%s/connectors", t->dir, t->name);
    must(os_read(&t->a, path.p, 10000, &text, &e), &e);
    while (str_cut(text, '\n', &line, &text) && line.n) {
        struct str name, type = {0};
        dt_connector_t *c = &t->module.connector[t->module.num_connectors++];
        CHECK(str_cut(line, ':', &name, &line) && str_cut(line, ':', &type, &line));
        CHECK(name.n <= 8 && str_is(line, "*:*"));
        c->name = dt_token(str_z(&t->a, name));
        c->type = dt_token(str_z(&t->a, type));
        c->format = is(c->type, "read") ? dt_token("f32") : dt_token("f16");
        c->bypass = c->associated = s_cid_unset;
        c->connected = is(c->type, "read") ? dt_cid(0, 0) : dt_cid(1, 0);
        if (is(c->type, "read")) t->n_in++;
        else t->n_out++;
    }
}

static void *callback(struct host *t, const char *name) { return os_dlsym(t->lib, name); }

static void negotiate_sizes(struct host *t)
{
    typedef void roi_fn(dt_graph_t *, dt_module_t *);
    roi_fn *out = (roi_fn *)(uintptr_t)callback(t, "modify_roi_out"),
           *in = (roi_fn *)(uintptr_t)callback(t, "modify_roi_in");
    CHECK(!out == !in);
    for (int k = 0; k < t->module.num_connectors; k++) {
        dt_roi_t *r = &t->module.connector[k].roi;
        *r = (dt_roi_t){.full_wd = (u32)t->w,
                        .full_ht = (u32)t->h,
                        .wd = (u32)t->w,
                        .ht = (u32)t->h,
                        .marker = 9};
        if (out && is(t->module.connector[k].type, "write")) *r = (dt_roi_t){0};
    }
    if (!out) return;
    out(&t->graph, &t->module);
    in(&t->graph, &t->module);
    for (u32 k = 0; k < t->n_out; k++) {
        dt_roi_t *r = &t->module.connector[t->n_in + k].roi;
        r->wd = r->full_wd, r->ht = r->full_ht;
        CHECK(r->marker == 9);
    }
}

static void make_nodes(struct host *t)
{
    typedef void create_fn(dt_graph_t *, dt_module_t *);
    create_fn *create = (create_fn *)(uintptr_t)callback(t, "create_nodes");
    CHECK(create != NULL);
    create(&t->graph, &t->module);
    if (!t->graph.gui_msg) return;
    fprintf(stderr, "%s passes its input on: %s\n", t->name, t->graph.gui_msg);
    CHECK(!dt_cid_unset(t->module.connector[t->n_in].bypass));
    exit(3);
}

/* Checks. */

static struct str kernel_of(struct host *t, const dt_node_t *n)
{
    struct str code;
    struct err e = {0};
    struct str path =
        str_fmt(&t->a, "%s/%s/%.8s.comp.spv", t->dir, t->name, (const char *)&n->kernel);
    must(os_read(&t->a, path.p, 1 << 26, &code, &e), &e);
    return code;
}

/* Bindings in descriptor set 1 are connectors, the entry point is main. */
static void check_kernel(struct host *t, const dt_node_t *n)
{
    struct spirv_info info;
    struct err e = {0};
    struct str code = kernel_of(t, n);
    must(spirv_read_info(&info, code, &e), &e);
    CHECK(info.n_entry == 1 && str_is(info.entry[0].name, "main"));
    CHECK(info.n_set == 2 && info.n_binding == 0);
    CHECK((i64)n->push_constant_size == info.push_bytes);
}

static void check_connector(struct host *t, const dt_node_t *n, const dt_connector_t *c)
{
    for (const dt_connector_t *o = n->connector; o < c; o++) CHECK(o->name != c->name);
    if (owns(c)) return;
    CHECK(reads(c));
    CHECK(!dt_cid_unset(c->connected), "connector %.8s of %.8s", (const char *)&c->name,
          (const char *)&n->kernel);
    if (is(c->chan, "ssbo")) {
        CHECK(c->ssbo_offset % 256 == 0);
        CHECK((i64)c->ssbo_offset < bytes_of(owner_of(t, c)));
    }
}

static bool is_border(const dt_node_t *n) /* between pictures and tensors: made from GLSL */
{
    return is(n->connector[0].chan, "rgba") ||
           (n->num_connectors == 2 && is(n->connector[1].chan, "rgba"));
}

static void check_nodes(struct host *t)
{
    for (u32 i = 0; i < t->graph.num_nodes; i++) {
        const dt_node_t *n = &t->graph.node[i];
        CHECK(is(n->name, t->name));
        for (int k = 0; k < n->num_connectors; k++) check_connector(t, n, &n->connector[k]);
        if (!is_border(n) && !is(n->kernel, "weights")) check_kernel(t, n);
    }
}

static const dt_node_t *border_node(struct host *t, u32 k)
{
    dt_cid_t at = t->module.connector[k].associated;
    CHECK(!dt_cid_unset(at));
    return &t->graph.node[at.i];
}

static i64 tensor_bytes_of(const struct host *t, const struct plan_io *io)
{
    return eval(t, t->plan.buf.v[io->buf].size);
}

static void check_borders(struct host *t)
{
    for (u32 k = 0; k < t->n_in; k++) {
        const dt_node_t *n = border_node(t, k);
        CHECK(is(n->connector[1].type, "write"));
        CHECK(bytes_of(&n->connector[1]) >= tensor_bytes_of(t, &t->plan.input.v[k]));
    }
    for (u32 k = 0; k < t->n_out; k++) {
        const dt_node_t *n = border_node(t, t->n_in + k);
        const dt_connector_t *c = &n->connector[1], *tensor = owner_of(t, &n->connector[0]);
        CHECK(c->roi.wd == n->wd && c->roi.ht == n->ht && n->wd == n->push_constant[0]);
        CHECK(bytes_of(tensor) >= tensor_bytes_of(t, &t->plan.output.v[k]));
    }
}

/* Orders of the nodes: each behind those it is connected to. */

static bool is_ready(const struct host *t, const dt_node_t *n)
{
    for (int k = 0; k < n->num_connectors; k++)
        if (reads(&n->connector[k]) && dt_cid_unset(n->connector[k].associated) &&
            !t->is_done[n->connector[k].connected.i])
            return false;
    return true;
}

static void visit(struct host *t, u32 i)
{
    const dt_node_t *n = &t->graph.node[i];
    if (t->is_done[i]) return;
    for (int k = n->num_connectors - 1; k >= 0; k--) /* vkdt's stack: the last input first */
        if (reads(&n->connector[k]) && dt_cid_unset(n->connector[k].associated))
            visit(t, (u32)n->connector[k].connected.i);
    t->is_done[i] = 1;
    *(arr_push(&t->a, &t->order)) = i;
}

static void order_by_depth(struct host *t, u32 first)
{
    for (u32 k = 0; k < t->n_out; k++) visit(t, (u32)t->module.connector[t->n_in + (first + k) % t->n_out].associated.i);
}

static void order_by_chance(struct host *t, struct rng *r)
{
    for (u32 left = t->graph.num_nodes; left > 0;) {
        u32 i = (u32)rng_range(r, 0, t->graph.num_nodes - 1);
        while (t->is_done[i] || !is_ready(t, &t->graph.node[i])) i = (i + 1) % t->graph.num_nodes;
        t->is_done[i] = 1, left--;
        *(arr_push(&t->a, &t->order)) = i;
    }
}

static void make_order(struct host *t, u32 k)
{
    struct rng r = rng_seed(k);
    t->order.n = 0;
    memset(t->is_done, 0, t->graph.num_nodes);
    if (k < t->n_out) order_by_depth(t, k);
    else order_by_chance(t, &r);
}

/* Memory. */

static i64 take(struct host *t, i64 size)
{
    u32 k = 0;
    i64 at = 0;
    size = round_up(size, DEV_ALIGN);
    while (k < t->used.n && t->used.v[k].at - at < size) at = t->used.v[k].at + t->used.v[k].size, k++;
    arr_push(&t->a, &t->used);
    memmove(t->used.v + k + 1, t->used.v + k, sizeof *t->used.v * (t->used.n - 1 - k));
    t->used.v[k] = (struct place){at, size};
    t->pool_size = i64_max(t->pool_size, at + size);
    return at;
}

static void give(struct host *t, i64 at)
{
    u32 k = 0;
    while (t->used.v[k].at != at) k++;
    memmove(t->used.v + k, t->used.v + k + 1, sizeof *t->used.v * (t->used.n - 1 - k));
    t->used.n--;
}

static bool is_source(const dt_connector_t *c) { return is(c->type, "source"); }

/* What sources deliver stays from frame to frame: memory apart. */
static void place_owned(struct host *t, dt_connector_t *c)
{
    i64 size = bytes_of(c), at = is_source(c) ? -1 : take(t, size);
    if (is_source(c)) t->persistent_size += round_up(size, DEV_ALIGN);
    *(arr_push(&t->a, &t->place)) = (struct place){at, size};
    c->mem = t->place.n;
}

static void stage(struct host *t, u32 node, i64 size, const void *data)
{
    *(arr_push(&t->a, &t->staging)) = (struct staging){node, {take(t, size), size}, data};
}

/* What read_source writes. */
static const void *read_weights(struct host *t, dt_node_t *n)
{
    typedef void source_fn(dt_module_t *, void *, dt_read_source_params_t *);
    source_fn *source = (source_fn *)(uintptr_t)callback(t, "read_source");
    dt_read_source_params_t p = {.node = n};
    void *mapped = arena_alloc(&t->a, bytes_of(n->connector));
    CHECK(source != NULL);
    source(&t->module, mapped, &p);
    CHECK(t->graph.gui_msg == NULL, "%s", t->graph.gui_msg);
    return mapped;
}

/* The number of the input whose picture the node reads, of the output whose picture it writes; n: neither. */
static u32 border_of(struct host *t, const dt_node_t *n, u32 from, u32 count)
{
    u32 k = 0;
    while (k < count && border_node(t, from + k) != n) k++;
    return k;
}

static void place_node(struct host *t, u32 i, const struct tensor *in, bool frees)
{
    dt_node_t *n = &t->graph.node[i];
    u32 k = border_of(t, n, 0, t->n_in);
    if (k < t->n_in) stage(t, i, tensor_bytes(&in[k]), in[k].data);
    if (k == 0) {
        t->upstream.size = 4 * tensor_bytes(&in[0]);
        t->upstream.at = take(t, t->upstream.size);
        if (frees) give(t, t->upstream.at);
    }
    for (int c = 0; c < n->num_connectors; c++)
        if (owns(&n->connector[c]) && is(n->connector[c].chan, "ssbo")) place_owned(t, &n->connector[c]);
    if (is(n->kernel, "weights")) stage(t, i, bytes_of(n->connector), read_weights(t, n));
}

static void free_behind(struct host *t, u32 at, const u32 *last)
{
    const dt_node_t *n = &t->graph.node[t->order.v[at]];
    for (int c = 0; c < n->num_connectors; c++) {
        if (!is(n->connector[c].chan, "ssbo")) continue;
        const dt_connector_t *o = owner_of(t, &n->connector[c]);
        if (is_source(o) || last[o->mem] != at) continue;
        bool again = false; /* one buffer by several connectors */
        for (int b = 0; b < c; b++) again |= is(n->connector[b].chan, "ssbo") && owner_of(t, &n->connector[b]) == o;
        if (!again) give(t, t->place.v[o->mem - 1].at);
    }
}

/* The last position in the order of a node that names the memory, by number. */
static u32 *find_last(struct host *t)
{
    u32 count = 0;
    for (u32 i = 0; i < t->order.n; i++) {
        dt_node_t *n = &t->graph.node[t->order.v[i]];
        for (int c = 0; c < n->num_connectors; c++)
            if (owns(&n->connector[c]) && is(n->connector[c].chan, "ssbo")) n->connector[c].mem = ++count;
    }
    u32 *last = arena_array(&t->a, u32, count + 1);
    for (u32 i = 0; i < t->order.n; i++) {
        const dt_node_t *n = &t->graph.node[t->order.v[i]];
        for (int c = 0; c < n->num_connectors; c++)
            if (is(n->connector[c].chan, "ssbo")) last[owner_of(t, &n->connector[c])->mem] = i;
    }
    return last;
}

static struct dev_mem piece(const struct host *t, struct place p)
{
    struct dev_mem m = t->pool;
    m.offset += p.at;
    m.size = p.size;
    if (m.host) m.host = (char *)m.host + p.at;
    return m;
}

static void put(struct host *t, struct dev_mem m, const void *p, i64 n)
{
    struct err e = {0};
    must(t->dev->driver->upload(t->dev, m, p, n, &e), &e);
}

static void get(struct host *t, struct dev_mem m, void *p, i64 n)
{
    struct err e = {0};
    must(t->dev->driver->download(t->dev, m, p, n, &e), &e);
}

static void spoil(struct host *t, struct place p) /* with NaN */
{
    void *fill = arena_alloc(&t->a, p.size);
    memset(fill, 0xff, (size_t)p.size);
    put(t, piece(t, p), fill, p.size);
}

/* Places for all nodes in their order, then memory, and staging filled. */
static void allocate(struct host *t, const struct tensor *in, bool frees)
{
    struct err e = {0};
    const u32 *last = find_last(t);
    t->place.n = t->used.n = t->staging.n = 0;
    t->pool_size = t->persistent_size = 0;
    for (u32 i = 0; i < t->order.n; i++) {
        place_node(t, t->order.v[i], in, frees);
        if (frees) free_behind(t, i, last);
    }
    i64 end = t->pool_size;
    for (u32 k = 0; k < t->place.n; k++)
        if (t->place.v[k].at < 0) t->place.v[k].at = end, end += round_up(t->place.v[k].size, DEV_ALIGN);
    must(t->dev->driver->alloc(t->dev, end, &t->pool, &e), &e);
    spoil(t, (struct place){0, end});
    for (u32 k = 0; k < t->staging.n; k++) put(t, piece(t, t->staging.v[k].place), t->staging.v[k].data, t->staging.v[k].place.size);
}

static struct dev_mem mem_of(const struct host *t, const dt_connector_t *c)
{
    struct place p = t->place.v[owner_of(t, c)->mem - 1];
    return piece(t, (struct place){p.at + (i64)c->ssbo_offset, p.size - (i64)c->ssbo_offset});
}

/* Running. */

/* The driver names entry points NAME_0 and binds set 0: the same words, changed back. */
static struct str for_driver(struct host *t, struct str code)
{
    u32 *w = arena_alloc(&t->a, code.n), n = (u32)(code.n / 4);
    memcpy(w, code.p, (size_t)code.n);
    for (u32 i = SPIRV_HEADER; i < n; i += w[i] >> 16) {
        if ((w[i] & 0xffff) == SPV_ENTRY_POINT) memcpy(w + i + 4, "_0\0", 4);
        if ((w[i] & 0xffff) == SPV_DECORATE && w[i + 2] == SPV_DEC_SET) w[i + 3] = 0;
    }
    return (struct str){(const char *)w, code.n};
}

static const struct loaded *load_kernel(struct host *t, const dt_node_t *n)
{
    struct err e = {0};
    struct spirv_info info;
    for (u32 i = 0; i < t->kernel.n; i++)
        if (t->kernel.v[i].name == n->kernel) return &t->kernel.v[i];
    struct loaded *l = arr_push(&t->a, &t->kernel);
    struct str code = for_driver(t, kernel_of(t, n));
    must(spirv_read_info(&info, code, &e), &e);
    *l = (struct loaded){.name = n->kernel, .n_binding = info.n_binding};
    l->kernel = t->dev->driver->load(t->dev, code, S("main"), 1, &e);
    must(l->kernel != NULL, &e);
    return l;
}

static void run_kernel(struct host *t, const dt_node_t *n)
{
    const struct loaded *k = load_kernel(t, n);
    i64 grid[1][3] = {{(n->wd + DT_LOCAL_SIZE_X - 1) / DT_LOCAL_SIZE_X,
                       (n->ht + DT_LOCAL_SIZE_Y - 1) / DT_LOCAL_SIZE_Y, n->dp}};
    i64 param[64];
    struct dev_mem buf[DT_MAX_CONNECTORS];
    struct err e = {0};
    u32 words = (u32)n->push_constant_size / 4;
    for (u32 i = 0; i < words; i++) param[i] = (i32)n->push_constant[i];
    for (int i = 0; i < n->num_connectors; i++) buf[i] = mem_of(t, &n->connector[i]);
    struct dev_launch l = {.kernel = k->kernel,
                           .buf = buf,
                           .n_buf = k->n_binding,
                           .param = param,
                           .n_param = words,
                           .grid = (const i64(*)[3])grid,
                           .n_grid = 1};
    must(t->dev->driver->launch(t->dev, &l, &e) && t->dev->driver->fence(t->dev, &e), &e);
}

static void copy_staging(struct host *t, u32 node, const dt_connector_t *to)
{
    for (u32 k = 0; k < t->staging.n; k++) {
        const struct staging *s = &t->staging.v[k];
        if (s->node != node) continue;
        void *data = arena_alloc(&t->a, s->place.size);
        get(t, piece(t, s->place), data, s->place.size);
        put(t, mem_of(t, to), data, s->place.size);
    }
}

static void run_border(struct host *t, u32 i, const struct tensor *want)
{
    const dt_node_t *n = &t->graph.node[i];
    u32 in = border_of(t, n, 0, t->n_in), out = border_of(t, n, t->n_in, t->n_out);
    if (in == 0) spoil(t, t->upstream);
    if (in < t->n_in) copy_staging(t, i, &n->connector[1]);
    if (out < t->n_out) get(t, mem_of(t, &n->connector[0]), t->got[out], tensor_bytes(&want[out]));
}

static void run_nodes(struct host *t, const struct tensor *want)
{
    for (u32 i = 0; i < t->order.n; i++) {
        dt_node_t *n = &t->graph.node[t->order.v[i]];
        if (is(n->kernel, "weights")) copy_staging(t, t->order.v[i], n->connector);
        else if (is_border(n)) run_border(t, t->order.v[i], want);
        else run_kernel(t, n);
    }
}

static void compare(struct host *t, const struct tensor *want, u32 order)
{
    for (u32 k = 0; k < t->n_out; k++)
        CHECK(!memcmp(t->got[k], want[k].data, (size_t)tensor_bytes(&want[k])), "output %u, order %u", k, order);
}

static void make_inputs(struct host *t, struct tensor *in)
{
    struct rng r = rng_seed(1);
    for (u32 k = 0; k < t->n_in; k++) {
        const struct plan_io *io = &t->plan.input.v[k];
        in[k] = (struct tensor){.dtype = io->dtype, .rank = io->rank};
        for (u32 d = 0; d < io->rank; d++) in[k].dim[d] = eval(t, io->dim[d]);
        in[k].data = arena_alloc(&t->a, tensor_bytes(&in[k]));
        for (i64 i = 0; i < tensor_count(&in[k]); i++)
            elem_set_f64(io->dtype, in[k].data, i,
                         io->dtype == DT_U8 ? (double)rng_range(&r, 0, 255) : rng_f64(&r));
    }
}

static void run(struct host *t)
{
    struct tensor in[MAX_IMAGES], out[MAX_IMAGES] = {0};
    struct err e = {0};
    struct rt_program *p = rt_load(&t->plan, t->dev, &e);
    must(p != NULL, &e);
    make_inputs(t, in);
    must(rt_run(p, in, out, &t->a, &e), &e);
    rt_unload(p);
    t->got = arena_array(&t->a, void *, t->n_out);
    for (u32 k = 0; k < t->n_out; k++) t->got[k] = arena_alloc(&t->a, tensor_bytes(&out[k]));
    for (u32 k = 0; k < t->n_out + N_ORDERS; k++) {
        make_order(t, k);
        allocate(t, in, k < t->n_out);
        run_nodes(t, out);
        compare(t, out, k);
        t->dev->driver->release(t->dev, &t->pool);
    }
    for (u32 i = 0; i < t->kernel.n; i++) t->dev->driver->unload(t->dev, t->kernel.v[i].kernel);
}

/* Setting up. */

static void open_plan(struct host *t, const char *path)
{
    struct os_file *f = arena_new(&t->a, struct os_file);
    struct err e = {0};
    must(os_map(f, path, &e) &&
             dnx_read(&t->plan, &t->a, (struct str){(const char *)f->p, f->n}, &e),
         &e);
    t->var = arena_array(&t->a, i64, t->plan.sym.var.n);
    for (u32 v = 0; v < t->plan.sym.var.n; v++)
        t->var[v] = str_is(t->plan.sym.var.v[v], "H")   ? t->h
                    : str_is(t->plan.sym.var.v[v], "W") ? t->w
                                                        : 1;
}

static void open_module(struct host *t, int model)
{
    struct err e = {0};
    t->graph.node = mem_alloc((i64)sizeof(dt_node_t) * STUB_MAX_NODES);
    t->graph.max_nodes = STUB_MAX_NODES;
    t->graph.module = &t->module;
    t->graph.num_modules = 1;
    t->module.graph = &t->graph;
    t->module.so = &t->so;
    t->module.param = model;
    t->so.num_params = os_exists(str_fmt(&t->a, "%s/%s/params", t->dir, t->name).p);
    t->is_done = arena_array(&t->a, u8, STUB_MAX_NODES);
    t->lib = os_dlopen(str_fmt(&t->a, "%s/%s/lib%s.so", t->dir, t->name, t->name).p, &e);
    must(t->lib != NULL, &e);
    read_connectors(t);
    CHECK(t->n_in == t->plan.input.n && t->n_out == t->plan.output.n);
}

static void open_device(struct host *t)
{
    struct err e = {0};
    const struct dev_driver *v = dev_find(S("vulkan"));
    struct caps c = {0};
    if (!v || v->count() == 0) return;
    t->dev = v->open(&(struct dev_opts){0}, &e);
    must(t->dev != NULL, &e);
    v->caps(t->dev, &c);
    qvk.subgroup_size = c.subgroup;
}

int main(int argc, char **argv)
{
    struct host t = {0};
    if (argc != 7) return 2;
    t.dir = argv[1], t.name = argv[2];
    t.h = atoi(argv[4]), t.w = atoi(argv[5]);
    resource_dir = t.dir;
    open_plan(&t, argv[6]);
    open_module(&t, atoi(argv[3]));
    open_device(&t);
    negotiate_sizes(&t);
    make_nodes(&t);
    check_nodes(&t);
    check_borders(&t);
    if (t.dev) run(&t);
    printf("%s %dx%d: %u nodes, %s\n", t.name, t.w, t.h, t.graph.num_nodes,
           t.dev ? "same output as the program's in every order" : "no Vulkan device: not run");
    if (t.dev) t.dev->driver->close(t.dev);
    os_dlclose(t.lib);
    mem_free(t.graph.node);
    arena_release(&t.a);
    return 0;
}
