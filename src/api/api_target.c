// SPDX-License-Identifier: Apache-2.0
//
// The target of a program: a device of this machine, or one described by the output of
// quern_devices elsewhere, possibly restricted by the caller.
#include "api/api_model.h"

#include "tune/rates.h"

#include <jansson.h>
#include <string.h>

enum { MAX_DEVICES_FILE = 1 << 24 };

/* Limits. */

static bool spirv_of_env(struct str env, u32 *version, struct err *e)
{
    static const struct {
        const char *name, *brief; /* in other tools' spelling */
        u32 spirv;
    } known[] = {{"vulkan1.0", "vulkan10", 10},
                 {"vulkan1.1", "vulkan11", 13},
                 {"vulkan1.2", "vulkan12", 15},
                 {"vulkan1.3", "vulkan13", 16},
                 {"vulkan1.4", "vulkan14", 16}};
    for (i64 k = 0; k < countof(known); k++)
        if (str_is(env, known[k].name) || str_is(env, known[k].brief)) {
            *version = known[k].spirv;
            return true;
        }
    return err_set(e, ERR_USAGE, "no target environment '%.*s', expected vulkan1.0 to vulkan1.4",
                   STR_ARG(env));
}

static bool read_limits(struct api_target *t, const struct quern_target_opts *o, struct err *e)
{
    struct buf b = {0};
    u32 version = 0;
    if (o->env && !spirv_of_env(str_of(o->env), &version, e)) return false;
    if (version) buf_printf(&b, "spirv=%u ", version);
    if (o->no_matrix) buf_z(&b, "no-matrix ");
    if (o->no_winograd) buf_z(&b, "no-winograd ");
    if (o->deterministic) buf_z(&b, "deterministic ");
    if (o->debug_info) buf_z(&b, "debug ");
    if (o->source_info) buf_z(&b, "nonsemantic ");
    if (o->optimize) buf_z(&b, "optimize ");
    t->dev.limits = str_dup(&t->arena, str_trim(buf_view(&b)));
    buf_release(&b);
    return true;
}

/* Described devices. */

static struct str text_of(struct arena *a, const json_t *o, const char *key)
{
    const json_t *s = json_object_get(o, key);
    return json_is_string(s) ? str_dup(a, str_of(json_string_value(s))) : (struct str){0};
}

static bool matches(struct str glob, const struct dev_info *x)
{
    return str_glob(glob, x->name) || str_glob(glob, str_of(x->driver->name));
}

/* The first matching device of the list; false: malformed, or none. */
static bool find_described(struct api_target *t, const json_t *list, struct str glob, struct err *e)
{
    struct buf there = {0};
    struct dev_info *x = arena_new(&t->arena, struct dev_info);
    bool found = false, ok = true;
    for (size_t k = 0; k < json_array_size(list) && ok && !found; k++) {
        const json_t *o = json_array_get(list, k);
        struct str driver = text_of(&t->arena, o, "name");
        *x = (struct dev_info){.driver = dev_find(driver),
                               .name = text_of(&t->arena, o, "device"),
                               .fingerprint = text_of(&t->arena, o, "fingerprint")};
        if (!x->driver) continue; /* unknown to this version */
        ok = caps_parse(&x->caps, text_of(&t->arena, o, "caps"), e) && rates_parse(&x->caps.rates, text_of(&t->arena, o, "rates"), e);
        found = ok && matches(glob, x);
        if (found && x->driver->can_run && !x->caps.isa.family)
            ok = err_set(e, ERR_USAGE, "device '%.*s' does not say its instruction set ('isa'); have it described again by quern devices", STR_ARG(x->name));
        buf_printf(&there, "%s'%.*s'", there.n ? ", " : "", STR_ARG(x->name));
    }
    if (ok && !found)
        err_set(e, ERR_USAGE, "no device matches '%.*s'; there are: %.*s", STR_ARG(glob),
                STR_ARG(buf_view(&there)));
    buf_release(&there);
    t->driver = x->driver;
    t->dev.as = x;
    return ok && found;
}

static bool choose_described(struct api_target *t, const char *path, const char *device,
                             struct err *e)
{
    struct str text;
    json_error_t je;
    if (!os_read(&t->arena, path, MAX_DEVICES_FILE, &text, e)) return false;
    json_t *j = json_loadb(text.p, (size_t)text.n, 0, &je);
    bool ok = json_is_array(j) || err_set(e, ERR_INPUT, "no list of devices");
    ok = ok && find_described(t, j, str_of(device ? device : "cpu"), e);
    json_decref(j);
    return ok || err_prefix(e, "'%s'", path);
}

/* Instruction sets. */

struct quern_target_opts api_target_with(const struct quern_target_opts *o, const char *isa)
{
    struct quern_target_opts x = {0};
    if (o) memcpy(&x, o, o->size < sizeof x ? o->size : sizeof x);
    x.size = sizeof x;
    x.isa = isa;
    return x;
}

bool api_isas(struct api_isas *l, const struct quern_target_opts *o, struct arena *a, struct err *e)
{
    struct quern_target_opts x = {0};
    struct str word, rest;
    if (o) memcpy(&x, o, o->size < sizeof x ? o->size : sizeof x);
    *l = (struct api_isas){.v = arena_array(a, const char *, MAX_ISAS)};
    for (rest = str_of(x.isa); rest.n;) {
        str_cut(rest, ',', &word, &rest);
        word = str_trim(word);
        if (word.n == 0) continue;
        if (l->n == MAX_ISAS) return err_set(e, ERR_USAGE, "more than %d instruction sets", MAX_ISAS);
        l->v[l->n++] = str_z(a, word);
    }
    if (l->n == 0) l->v[l->n++] = NULL;
    return true;
}

/* A subset of this processor's set restricts it; any other describes a foreign processor. */
static bool apply_isa(struct api_target *t, const char *text, struct err *e)
{
    struct isa s;
    struct buf b = {0};
    if (!text || !strcmp(text, "native")) return true;
    if (strchr(text, ',')) return err_set(e, ERR_USAGE, "'%s': only one instruction set here", text);
    if (!t->driver->can_run) return err_set(e, ERR_USAGE, "instruction set '%s': device '%s' is not a CPU", text, t->driver->name);
    if (!isa_parse(&s, str_of(text), e)) return false;
    s = isa_for_code(s);
    isa_print(&b, s, '+');
    t->isa = str_dup(&t->arena, buf_view(&b));
    buf_release(&b);
    if (t->dev.target.n) return err_set(e, ERR_USAGE, "instruction sets '%.*s' and '%s': only one here", STR_ARG(t->dev.target), text);
    if (t->dev.as || isa_contains(isa_here(), s))
        t->dev.limits = str_fmt(&t->arena, "%.*s%sisa=%.*s", STR_ARG(t->dev.limits), t->dev.limits.n ? " " : "", STR_ARG(t->isa));
    else t->dev.target = t->isa;
    return true;
}

/* The target. */

bool api_target_choose(struct api_target *t, const char *device, int threads,
                       const struct quern_target_opts *o, struct err *e)
{
    struct quern_target_opts x = {0};
    *t = (struct api_target){.dev = {.n_threads = threads > 0 ? (u32)threads : 0}};
    if (o) memcpy(&x, o, o->size < sizeof x ? o->size : sizeof x);
    if (!read_limits(t, &x, e)) return false;
    bool ok = x.devices ? choose_described(t, x.devices, device, e) : dev_select(device, &t->driver, &t->dev, e);
    return ok && apply_isa(t, x.isa, e);
}

static struct device_target as_target(const struct api_target *t)
{
    return (struct device_target){.driver = t->driver,
                                  .opts = &t->dev,
                                  .lang = t->lang,
                                  .caps = &t->caps,
                                  .fingerprint = buf_view(&t->fingerprint),
                                  .toolchain = buf_view(&t->toolchain)};
}

bool api_target_test(struct conformance *x, struct api_target *t, bool again, struct arena *a, struct err *e)
{
    struct device_target target = as_target(t);
    return conform_device(x, &target,
                          t->dev.attached || dev_is_taken(t->driver) ? CONFORM_KNOWN
                          : again                                    ? CONFORM_AGAIN
                                                                     : CONFORM_NEW,
                          a, e);
}

bool api_target_measure(struct api_target *t, struct err *e)
{
    struct device_target target = as_target(t);
    if (dev_is_taken(t->driver)) return err_set(e, ERR_UNSUPPORTED, "device '%s' is in use by this process and cannot be measured", t->driver->name);
    return rates_measure(&t->caps.rates, &target, e);
}

/* Vendors' drivers are tested when they are first used. Failures are reported when the device is
   used. */
static void look_up(struct api_target *t)
{
    struct conformance x;
    struct err e = {0};
    struct rates measured;
    if (dev_is_described(&t->dev)) return;
    if (t->driver->is_foreign && api_target_test(&x, t, false, &t->arena, &e)) conform_apply(&t->caps, &x);
    if (rates_find(&measured, t->driver, buf_view(&t->fingerprint))) t->caps.rates = measured;
}

/* GPUs take longer and are measured on request. */
void api_target_rates(struct api_target *t, quern *q)
{
    struct device_target target = as_target(t);
    target.log = &q->log, target.stop = &q->stop;
    if (t->driver->can_run && !dev_is_described(&t->dev)) rates_at_first_use(&t->caps.rates, &target);
}

bool api_target_ask(struct api_target *t, struct err *e)
{
    if (!dev_ask(t->driver, &t->dev, &t->caps, &t->fingerprint, e)) return false;
    t->lang = lang_for(str_of(t->driver->lang), e);
    if (!t->lang) return err_prefix(e, "device '%s'", t->driver->name);
    return t->lang->toolchain(&t->toolchain, &t->caps, e) && (look_up(t), true);
}

bool api_target_open(struct api_target *t, const char *device, int threads,
                     const struct quern_target_opts *o, struct err *e)
{
    return api_target_choose(t, device, threads, o, e) && api_target_ask(t, e);
}

bool api_target_open_rated(struct api_target *t, quern *q, const char *device, int threads, const struct quern_target_opts *o, struct err *e)
{
    bool ok = api_target_choose(t, device, threads, o, e);
    if (ok) api_use_attached(q, t->driver, &t->dev);
    ok = ok && api_target_ask(t, e);
    if (ok) api_target_rates(t, q);
    return ok;
}

void api_target_close(struct api_target *t)
{
    buf_release(&t->fingerprint);
    buf_release(&t->toolchain);
    arena_release(&t->arena);
}

bool api_float_type(const char *name, enum dtype *t, struct err *e)
{
    static const struct { const char *name; enum dtype type; } known[] = {
        {"float32", DT_F32}, {"fp32", DT_F32},      {"f32", DT_F32},   {"float16", DT_F16}, {"fp16", DT_F16},
        {"f16", DT_F16},     {"bfloat16", DT_BF16}, {"bf16", DT_BF16}, {"float64", DT_F64}, {"f64", DT_F64}, {"tf32", DT_TF32},
    };
    for (i64 k = 0; name && k < countof(known); k++)
        if (!strcmp(name, known[k].name)) {
            *t = known[k].type;
            return true;
        }
    return !name || err_set(e, ERR_USAGE, "no element type '%s', expected float32, tf32, float16 or bfloat16", name);
}

bool api_baseline_check(const char *name, struct err *e)
{
    bool ok = !name || !strcmp(name, "vendor") || !strcmp(name, "reference");
    return ok || err_set(e, ERR_USAGE, "no baseline '%s', expected vendor or reference", name);
}
