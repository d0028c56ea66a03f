// SPDX-License-Identifier: Apache-2.0
//
// Devices by name: the fourteen kinds of OptimaV2's allocations, quern's own drivers for what is
// none of them (an OpenCL or Vulkan device of any vendor), and the devices of OpenVINO. An
// instance of a kind, "X64:1", is a queue of its own: two instances of a processor share its
// threads, further GPUs are chosen by number. What the user writes after '=' replaces the kind's
// defaults, and describes devices that are not here.
#include "place/place.h"

#include <math.h>
#include <string.h>

#include "place/accepts.h"

#define CONVERTER(name, by)                                                                        \
    static bool name(const struct graph *g, node_id n, struct err *e)                              \
    {                                                                                              \
        return place_accepts(by, g, n, e);                                                         \
    }
CONVERTER(by_hexagon, ACCEPTS_HEXAGON)
CONVERTER(by_myriad, ACCEPTS_MYRIAD)
CONVERTER(by_ara1, ACCEPTS_ARA1)
CONVERTER(by_tpu, ACCEPTS_TPU)
CONVERTER(by_cv22, ACCEPTS_CV22)
CONVERTER(by_openvino, ACCEPTS_OPENVINO)
CONVERTER(by_npu, ACCEPTS_NPU)

static const struct place_kind kinds[] = {
    {"X86", "x86 processor, 32 bits", PLACE_NATIVE, "cpu:i686", NULL},
    {"X64", "x86 processor, 64 bits", PLACE_NATIVE, "cpu:x86-64-v3", NULL},
    {"ARM", "Arm processor, 32 bits", PLACE_NATIVE, "cpu:armv7", NULL},
    {"ARM64", "Arm processor, 64 bits", PLACE_NATIVE, "cpu:aarch64", NULL},
    {"NVIDIA", "NVIDIA GPU", PLACE_GPU, "cuda", NULL},
    {"AMDGPU", "AMD GPU", PLACE_GPU, "hip", NULL},
    {"INTELGPU", "Intel GPU, by Vulkan or OpenCL", PLACE_GPU, "*intel*", NULL},
    {"MALI", "Arm Mali GPU, by Vulkan or OpenCL", PLACE_GPU, "*mali*", NULL},
    {"ADRENO", "Qualcomm Adreno GPU, by Vulkan or OpenCL", PLACE_GPU, "*adreno*", NULL},
    {"HEXAGON", "Qualcomm Hexagon DSP, by SNPE", PLACE_VENDOR, NULL, by_hexagon},
    {"MYRIAD", "Intel Myriad X, by OpenVINO 2022.3", PLACE_VENDOR, NULL, by_myriad},
    {"ARA1", "Kinara ARA-1", PLACE_VENDOR, NULL, by_ara1},
    {"TPU", "Coral Edge TPU", PLACE_VENDOR, NULL, by_tpu},
    {"CV22", "Ambarella CV22", PLACE_VENDOR, NULL, by_cv22},
    {"CPU", "this processor", PLACE_NATIVE, "cpu", NULL},
    {"OPENCL", "any OpenCL device", PLACE_GPU, "opencl", NULL},
    {"VULKAN", "any Vulkan device", PLACE_GPU, "vulkan", NULL},
    {"OPENVINO_CPU", "processor, by OpenVINO", PLACE_OPENVINO, NULL, by_openvino},
    {"OPENVINO_GPU", "Intel GPU, by OpenVINO", PLACE_OPENVINO, NULL, by_openvino},
    {"OPENVINO_NPU", "Intel NPU, by OpenVINO", PLACE_OPENVINO, NULL, by_npu},
};

const struct place_kind *place_kind_at(u32 k) { return k < countof(kinds) ? &kinds[k] : NULL; }

const struct place_kind *place_kind_find(struct str name)
{
    for (i64 k = 0; k < countof(kinds); k++)
        if (str_is(name, kinds[k].name)) return &kinds[k];
    return NULL;
}

/* Whether this process runs on such a processor. */
static bool is_here(const struct place_kind *k)
{
    switch (isa_here().family) {
    case ISA_X86_64: return str_is(str_of(k->name), "X64");
    case ISA_X86: return str_is(str_of(k->name), "X86");
    case ISA_AARCH64: return str_is(str_of(k->name), "ARM64");
    case ISA_ARMV7: return str_is(str_of(k->name), "ARM");
    case ISA_NONE:
    case ISA_RISCV64:
    case N_ISA_FAMILIES: return false;
    }
    return false;
}

/* The device of instance i. Processors are one device of several instances. */
static struct str usual_device(const struct place_kind *k, u32 i, struct arena *a)
{
    if (!k->device) return S("");
    if (k->route == PLACE_NATIVE) return is_here(k) ? S("cpu") : str_of(k->device);
    return i && k->device[0] != '*' ? str_fmt(a, "%s:%u", k->device, i) : str_of(k->device);
}

static bool unknown_kind(struct str text, struct str name, struct err *e)
{
    struct buf all = {0};
    const char *near = NULL;
    i64 least = 1 + name.n / 2;
    for (i64 k = 0; k < countof(kinds); k++) {
        i64 d = str_distance(name, str_of(kinds[k].name));
        if (d < least) least = d, near = kinds[k].name;
        buf_printf(&all, " %s", kinds[k].name);
    }
    if (near)
        err_set(e, ERR_USAGE, "device '%.*s': unknown kind '%.*s', did you mean '%s'? There are:%s",
                STR_ARG(text), STR_ARG(name), near, all.p);
    else
        err_set(e, ERR_USAGE, "device '%.*s': unknown kind '%.*s'; there are:%s", STR_ARG(text),
                STR_ARG(name), all.p);
    buf_release(&all);
    return false;
}

bool place_device_named(struct place_device *x, struct str name, struct arena *a, struct err *e)
{
    enum { MAX_INSTANCE = 999 };
    struct str kind, number;
    i64 i;
    bool has_number = str_cut(name, ':', &kind, &number);
    const struct place_kind *k = place_kind_find(kind);
    if (!k) return unknown_kind(name, kind, e);
    if (!has_number)
        return err_set(e, ERR_USAGE, "device '%.*s': the number of the instance is missing: '%s:0'",
                       STR_ARG(name), k->name);
    if (!str_to_i64(number, &i) || i < 0 || i > MAX_INSTANCE || number.p[0] == '+' ||
        number.p[0] == '-' || (number.n > 1 && number.p[0] == '0'))
        return err_set(e, ERR_USAGE, "device '%.*s': '%.*s' is no number of an instance: 0 to %d",
                       STR_ARG(name), STR_ARG(number), MAX_INSTANCE);
    *x = (struct place_device){
        .name = str_dup(a, name), .kind = k, .instance = (u32)i, .slowdown = 1};
    x->device = usual_device(k, x->instance, a);
    return true;
}

/* --- settings --- */

static const struct setting {
    const char *key, *unit;
    size_t at; /* of a double in struct place_device */
    double scale;
    bool may_be_zero;
} settings[] = {
    {"slowdown", "a factor", offsetof(struct place_device, slowdown), 1, false},
    {"watts", "watts", offsetof(struct place_device, watts), 1, true},
    {"gflops", "1e9 operations per second", offsetof(struct place_device, flops), 1e9, false},
    {"gbs", "1e9 bytes per second", offsetof(struct place_device, bandwidth), 1e9, false},
    {"start", "seconds", offsetof(struct place_device, start), 1, true},
    {"link_gbs", "1e9 bytes per second", offsetof(struct place_device, link_bandwidth), 1e9, false},
    {"link_latency", "seconds", offsetof(struct place_device, link_latency), 1, true},
};

static bool set_number(struct place_device *x, const struct setting *s, struct str value,
                       struct err *e)
{
    double v;
    if (!str_to_f64(value, &v) || !isfinite(v) || v < 0 || (v == 0 && !s->may_be_zero))
        return err_set(e, ERR_USAGE, "device '%.*s': %s is '%.*s', not a %snumber (%s)",
                       STR_ARG(x->name), s->key, STR_ARG(value), s->may_be_zero ? "" : "positive ",
                       s->unit);
    double scaled = v * s->scale;
    memcpy((char *)x + s->at, &scaled, sizeof scaled);
    return true;
}

static bool set_device(struct place_device *x, struct str value, struct arena *a, struct err *e)
{
    if (x->kind->route == PLACE_OPENVINO || x->kind->route == PLACE_VENDOR)
        return err_set(e, ERR_USAGE,
                       "device '%.*s' is none of quern's drivers, so it takes no setting 'device'",
                       STR_ARG(x->name));
    if (!value.n)
        return err_set(e, ERR_USAGE, "device '%.*s': the setting 'device' is empty",
                       STR_ARG(x->name));
    x->device = str_dup(a, value);
    return true;
}

static bool set(struct place_device *x, struct str key, struct str value, struct arena *a,
                struct err *e)
{
    enum { MAX_THREADS = 4096 };
    struct buf all = {0};
    if (str_is(key, "device")) return set_device(x, value, a, e);
    if (str_is(key, "threads")) {
        if (x->kind->route != PLACE_NATIVE)
            return err_set(e, ERR_USAGE,
                           "device '%.*s' is no processor, so it takes no setting 'threads'",
                           STR_ARG(x->name));
        return (str_to_i64(value, &x->threads) && x->threads > 0 && x->threads <= MAX_THREADS) ||
               err_set(e, ERR_USAGE, "device '%.*s': threads is '%.*s', not a number from 1 to %d",
                       STR_ARG(x->name), STR_ARG(value), MAX_THREADS);
    }
    for (i64 k = 0; k < countof(settings); k++)
        if (str_is(key, settings[k].key)) return set_number(x, &settings[k], value, e);
    for (i64 k = 0; k < countof(settings); k++) buf_printf(&all, " %s", settings[k].key);
    err_set(e, ERR_USAGE, "device '%.*s': unknown setting '%.*s'; there are: device threads%s",
            STR_ARG(x->name), STR_ARG(key), all.p);
    buf_release(&all);
    return false;
}

static bool parse_settings(struct place_device *x, struct str rest, struct arena *a, struct err *e)
{
    struct str item, key, value;
    while (rest.n) {
        str_cut(rest, ';', &item, &rest);
        if (!str_cut(item, ':', &key, &value))
            return err_set(e, ERR_USAGE, "device '%.*s': '%.*s' is no setting KEY:VALUE",
                           STR_ARG(x->name), STR_ARG(item));
        if (!set(x, str_trim(key), str_trim(value), a, e)) return false;
    }
    if ((x->flops > 0) != (x->bandwidth > 0))
        return err_set(e, ERR_USAGE,
                       "device '%.*s': gflops and gbs describe it together; %s is missing",
                       STR_ARG(x->name), x->flops > 0 ? "gbs" : "gflops");
    x->is_described = x->flops > 0;
    return true;
}

static bool parse_one(struct place_devices *d, struct str text, struct arena *a, struct err *e)
{
    struct place_device x;
    struct str name, rest;
    bool has_settings = str_cut(str_trim(text), '=', &name, &rest);
    if (!place_device_named(&x, str_trim(name), a, e) ||
        (has_settings && !parse_settings(&x, rest, a, e)))
        return false;
    if (place_device_find(d, x.name) != UINT32_MAX)
        return err_set(e, ERR_USAGE, "device '%.*s' is named twice", STR_ARG(x.name));
    *arr_push(a, d) = x;
    return true;
}

bool place_devices_parse(struct place_devices *d, const char *const *text, u32 n, struct arena *a,
                         struct err *e)
{
    for (u32 k = 0; k < n; k++)
        if (!parse_one(d, str_of(text[k]), a, e)) return false;
    return true;
}

u32 place_device_find(const struct place_devices *d, struct str name)
{
    for (u32 k = 0; k < d->n; k++)
        if (str_eq(d->v[k].name, name)) return k;
    return UINT32_MAX;
}

i64 place_device_threads(const struct place_devices *d, u32 k)
{
    i64 rest = os_n_cpus(), n = 0;
    if (d->v[k].threads) return d->v[k].threads;
    for (u32 i = 0; i < d->n; i++) {
        if (d->v[i].kind != d->v[k].kind || !str_eq(d->v[i].device, d->v[k].device)) continue;
        if (d->v[i].threads) rest -= d->v[i].threads;
        else n++;
    }
    return i64_max(rest / n, 1);
}

bool place_can_run(const struct place_device *d, const struct place_net *x, u32 k, struct err *e)
{
    return !d->kind->can_run || d->kind->can_run(&x->g, x->op.v[k].node, e);
}
