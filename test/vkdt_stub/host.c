// SPDX-License-Identifier: Apache-2.0
//
// host MODULES NAME MODEL H W NET.dnx: plays vkdt for an exported module. Loads its shared object,
// lets it negotiate sizes and make its nodes for pictures of W x H, and checks what vkdt relies on:
// names, connections, formats, offsets, push constants, kernels' bindings. Then, where a Vulkan
// device is present, it runs the nodes in the order vkdt would and in random orders that keep to
// the connections, and compares the network's outputs, bit by bit, with those of NET.dnx.
// MODEL is the value of the module's parameter. Prints what it did; exits with 1 at the first
// fault.
#include "art/art.h"
#include "core/spirv.h"
#include "dev/dev.h"
#include "rt/rt.h"

#include "modules/api.h"

#include <stdlib.h>

enum { N_ORDERS = 4, MAX_IMAGES = 8 };

struct loaded { /* a kernel on the device */
    dt_token_t name;
    struct dev_kernel *kernel;
    u32 n_binding;
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
        struct dev_mem *v;
        u32 n, cap;
    } mem;
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
    for (int k = 0; k < t->module.num_connectors; k++)
        CHECK(dt_cid_unset(t->module.connector[k].bypass), "%s", t->graph.gui_msg);
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
    CHECK((i64)n->push_constant_size == info.push_bytes || n->push_constant_size == 0);
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

static void order_by_depth(struct host *t)
{
    for (u32 k = 0; k < t->n_out; k++) visit(t, (u32)t->module.connector[t->n_in + k].associated.i);
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
    if (k == 0) order_by_depth(t);
    else order_by_chance(t, &r);
}

/* Running. */

static struct dev_mem mem_of(const struct host *t, const dt_connector_t *c)
{
    const dt_connector_t *o = owner_of(t, c);
    struct dev_mem m = t->mem.v[o->mem - 1];
    m.offset += (i64)c->ssbo_offset;
    m.size -= (i64)c->ssbo_offset;
    if (m.host) m.host = (char *)m.host + c->ssbo_offset;
    return m;
}

static void put(struct host *t, struct dev_mem m, const void *p, i64 n)
{
    struct err e = {0};
    must(t->dev->driver->upload(t->dev, m, p, n, &e), &e);
}

/* Memory for every connector that owns some, full of NaN. */
static void allocate(struct host *t)
{
    struct err e = {0};
    for (u32 i = 0; i < t->graph.num_nodes; i++)
        for (int k = 0; k < t->graph.node[i].num_connectors; k++) {
            dt_connector_t *c = &t->graph.node[i].connector[k];
            if (!owns(c) || !is(c->chan, "ssbo")) continue;
            void *fill = arena_alloc(&t->a, bytes_of(c));
            must(t->dev->driver->alloc(t->dev, bytes_of(c), arr_push(&t->a, &t->mem), &e), &e);
            c->mem = t->mem.n;
            memset(fill, 0xff, (size_t)bytes_of(c));
            put(t, t->mem.v[c->mem - 1], fill, bytes_of(c));
        }
}

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

static void run_source(struct host *t, dt_node_t *n)
{
    typedef void source_fn(dt_module_t *, void *, dt_read_source_params_t *);
    source_fn *source = (source_fn *)(uintptr_t)callback(t, "read_source");
    dt_read_source_params_t p = {.node = n};
    void *mapped = arena_alloc(&t->a, bytes_of(n->connector));
    CHECK(source != NULL);
    source(&t->module, mapped, &p);
    CHECK(t->graph.gui_msg == NULL, "%s", t->graph.gui_msg);
    put(t, mem_of(t, n->connector), mapped, bytes_of(n->connector));
}

static void run_nodes(struct host *t, const struct tensor *in)
{
    for (u32 k = 0; k < t->n_in; k++)
        put(t, mem_of(t, &border_node(t, k)->connector[1]), in[k].data, tensor_bytes(&in[k]));
    for (u32 i = 0; i < t->order.n; i++) {
        dt_node_t *n = &t->graph.node[t->order.v[i]];
        if (is(n->kernel, "weights")) run_source(t, n);
        else if (!is_border(n)) run_kernel(t, n);
    }
}

static void compare(struct host *t, const struct tensor *want, u32 order)
{
    struct err e = {0};
    for (u32 k = 0; k < t->n_out; k++) {
        i64 n = tensor_bytes(&want[k]);
        void *got = arena_alloc(&t->a, n);
        struct dev_mem m = mem_of(t, &border_node(t, t->n_in + k)->connector[0]);
        must(t->dev->driver->download(t->dev, m, got, n, &e), &e);
        CHECK(!memcmp(got, want[k].data, (size_t)n), "output %u, order %u", k, order);
    }
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
    for (u32 k = 0; k < N_ORDERS; k++) {
        make_order(t, k);
        allocate(t);
        run_nodes(t, in);
        compare(t, out, k);
        for (u32 i = 0; i < t->mem.n; i++) t->dev->driver->release(t->dev, &t->mem.v[i]);
        t->mem.n = 0;
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
