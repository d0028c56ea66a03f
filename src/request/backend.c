// SPDX-License-Identifier: Apache-2.0
//
// The back end for quern's own programs: a device of dev/, and programs loaded on it by rt/. A program's weights exist once; its temporary memory, too, because
// an instance runs one sub-graph at a time. On processors inputs and outputs are used in place.
#include "request/request.h"

#include "dev/dev.h"
#include "rt/rt.h"

struct choice { const struct dev_driver *driver; struct dev_opts opts; };

struct device { const struct dev_driver *driver; struct dev *dev; };

struct unit {
    struct arena a;
    struct plan plan;
    struct device *device;
    struct rt_program *rt;
    struct req_layer *layer; /* NULL: not profiled */
};

/* Devices of kinds, by parts of their names. Other kinds are the first device of their framework. */
static const struct { const char *kind, *device; } usual[] = {
    {"NVIDIA", "*nvidia*"}, {"AMDGPU", "*amd*"}, {"AMDGPU", "*radeon*"}, {"INTELGPU", "*intel*"}, {"MALI", "*mali*"}, {"ADRENO", "*adreno*"},
};

static const char *driver_of(struct str framework)
{
    static const char *const driver[][2] = {{"native", "cpu"}, {"vulkan", "vulkan"}, {"opencl", "opencl"}, {"cuda", "cuda"}, {"hip", "hip"}, {"interp", "interp"}};
    for (i64 i = 0; i < countof(driver); i++)
        if (str_is(framework, driver[i][0])) return driver[i][1];
    return NULL;
}

static bool runs(struct str framework) { return driver_of(framework) != NULL; }

static bool is_processor(struct str kind)
{
    static const char *const processor[] = {"X86", "X64", "ARM", "ARM64", "CPU"};
    for (i64 i = 0; i < countof(processor); i++)
        if (str_is(kind, processor[i])) return true;
    return false;
}

/* "NVIDIA:1" is the second device of its kind; "X64:1" is not another device, but another set of threads. */
static u32 number_of(struct str kind, struct str number)
{
    i64 n = 0;
    return !is_processor(kind) && str_to_i64(number, &n) && n > 0 && n <= UINT16_MAX ? (u32)n : 0;
}

static bool has_name(struct str kind, struct str name)
{
    bool is_known = false;
    for (i64 i = 0; i < countof(usual); i++) {
        if (!str_is(kind, usual[i].kind)) continue;
        if (str_glob(str_of(usual[i].device), name)) return true;
        is_known = true;
    }
    return !is_known;
}

/* Of the driver's devices: the one whose measurements it was made with (its name is in the target), else number n of its kind. UINT32_MAX: none. */
static u32 choose(const struct req_place *p, const struct dev_driver *v, struct str kind, u32 n)
{
    struct buf names = {0};
    u32 found = UINT32_MAX, made_for = UINT32_MAX, k = 0;
    const bool number = n != 0, shares = str_is(p->framework, "vulkan") || str_is(p->framework, "opencl"); /* with other vendors' devices */
    v->names(&names);
    struct str rest = buf_view(&names), name;
    for (; str_cut(rest, '\n', &name, &rest); k++) {
        struct str head = str_fmt(p->a, "%s %.*s", v->name, STR_ARG(name));
        if (made_for == UINT32_MAX && str_starts(p->target, head)) made_for = k;
        if (found == UINT32_MAX && (!shares || has_name(kind, name)) && n-- == 0) found = k;
    }
    buf_release(&names);
    return made_for != UINT32_MAX && !number ? made_for : found != UINT32_MAX ? found : made_for;
}

static bool find_named(struct req_place *p, struct choice *c, const char *driver, struct err *e)
{
    if (!dev_select(str_dup(p->a, p->device).p, &c->driver, &c->opts, e)) return false;
    return str_is(str_of(driver), c->driver->name) ||
           err_set(e, ERR_USAGE, "'%.*s' is a device of %s, the sub-graph's code is for %s", STR_ARG(p->device), c->driver->name, driver);
}

static bool find(struct req_place *p, struct err *e)
{
    struct choice *c = arena_new(p->a, struct choice);
    const char *driver = driver_of(p->framework);
    struct str kind = p->name, number = S("0");
    str_cut(p->name, ':', &kind, &number);
    p->choice = c;
    c->opts.n_threads = (u32)p->threads;
    if (p->device.n) return find_named(p, c, driver, e);
    c->driver = dev_find(str_of(driver));
    if (!c->driver) return err_set(e, ERR_UNSUPPORTED, "this library has no driver '%s'", driver);
    if (!c->driver->count()) return err_set(e, ERR_SYSTEM, "no device of %s is here", driver);
    if (c->driver->names) c->opts.index = choose(p, c->driver, kind, number_of(kind, number));
    return c->opts.index != UINT32_MAX || err_set(e, ERR_SYSTEM, "no device of %s here is one; another can be named for it: '%.*s=DEVICE'", driver, STR_ARG(p->name));
}

static void *open_place(const struct req_place *p, struct err *e)
{
    struct choice *c = p->choice;
    struct dev *dev = c->driver->open(&c->opts, e);
    if (!dev) return NULL;
    struct device *d = mem_alloc(sizeof *d);
    *d = (struct device){c->driver, dev};
    return d;
}

static void close_device(void *device)
{
    struct device *d = device;
    d->driver->close(d->dev);
    mem_free(d);
}

static void unload(void *unit)
{
    struct unit *u = unit;
    if (u->rt) rt_unload(u->rt);
    arena_release(&u->a);
    mem_free(u);
}

static void *load(void *device, const struct req_source *s, struct err *e)
{
    struct unit *u = mem_alloc(sizeof *u);
    *u = (struct unit){.device = device};
    struct dnx_wanted w = {.runs_any = !u->device->driver->can_run};
    struct meta_reader r = {s->read, s->user, dnx_choose_variant, &w};
    if (meta_program_read(&u->plan, &u->a, s->model, s->subgraph, s->role, &r, e)) u->rt = rt_load(&u->plan, u->device->dev, e);
    if (!u->rt) {
        unload(u);
        return NULL;
    }
    if (s->layers) {
        rt_profile(u->rt, true);
        u->layer = arena_array(&u->a, struct req_layer, u->plan.dispatch.n + 1);
    }
    return u;
}

static bool dims(void *unit, const struct tensor *in, struct tensor *out, struct err *e) { return rt_output_dims(((struct unit *)unit)->rt, in, out, e); }

static bool run(void *unit, const struct tensor *in, struct tensor *out, struct arena *a, struct req_report *report, struct err *e)
{
    struct unit *u = unit;
    if (u->layer) rt_profile(u->rt, true); /* times of this run alone */
    if (!rt_run(u->rt, in, out, a, e)) return false;
    struct rt_moves moves = rt_moves(u->rt);
    *report = (struct req_report){.in = moves.in, .out = moves.out, .layer = u->layer};
    if (!u->layer) return true;
    struct rt_times t = rt_profile_times(u->rt);
    for (u32 k = 0; k < t.n; k++) u->layer[k] = (struct req_layer){u->plan.dispatch.v[k].label.p, t.seconds[k]};
    report->n_layers = t.n;
    return true;
}

const struct req_backend req_backend_program = {
    .name = "program",
    .runs = runs,
    .find = find,
    .open = open_place,
    .close = close_device,
    .load = load,
    .unload = unload,
    .dims = dims,
    .run = run,
};
