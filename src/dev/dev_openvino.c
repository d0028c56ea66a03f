// SPDX-License-Identifier: Apache-2.0
//
// dev_openvino.c: see dev_openvino.h.
#include "dev/dev_openvino.h"

#include <stdio.h>
#include <string.h>

#define CALL(member, function) {offsetof(struct openvino, member), "ov_" function}
static const struct { size_t at; const char *name; } calls[] = {
    CALL(version, "get_openvino_version"),
    CALL(version_free, "version_free"),
    CALL(core_create, "core_create"),
    CALL(core_free, "core_free"),
    CALL(devices, "core_get_available_devices"),
    CALL(devices_free, "available_devices_free"),
    CALL(set_property, "core_set_property"),
    CALL(read_model, "core_read_model"),
    CALL(model_free, "model_free"),
    CALL(compile_model, "core_compile_model"),
    CALL(import_model, "core_import_model"),
    CALL(export_model, "compiled_model_export_model"),
    CALL(compiled_free, "compiled_model_free"),
    CALL(n_inputs, "compiled_model_inputs_size"),
    CALL(n_outputs, "compiled_model_outputs_size"),
    CALL(input, "compiled_model_input_by_index"),
    CALL(output, "compiled_model_output_by_index"),
    CALL(port_shape, "const_port_get_shape"),
    CALL(port_type, "port_get_element_type"),
    CALL(port_free, "output_const_port_free"),
    CALL(shape_free, "shape_free"),
    CALL(request_create, "compiled_model_create_infer_request"),
    CALL(request_infer, "infer_request_infer"),
    CALL(set_input, "infer_request_set_input_tensor_by_index"),
    CALL(set_output, "infer_request_set_output_tensor_by_index"),
    CALL(request_free, "infer_request_free"),
    CALL(tensor_create, "tensor_create_from_host_ptr"),
    CALL(tensor_bytes, "tensor_get_byte_size"),
    CALL(tensor_free, "tensor_free"),
};

static bool find_calls(struct openvino *o, struct err *e)
{
    void *f = os_dlsym(o->lib, "ov_get_last_err_msg");
    memcpy(&o->last_error, &f, sizeof f);
    for (i64 k = 0; k < countof(calls); k++) {
        f = os_dlsym(o->lib, calls[k].name);
        if (!f) return err_set(e, ERR_UNSUPPORTED, "OpenVINO's library has no '%s': a release from 2023.1 on is needed", calls[k].name);
        memcpy((char *)o + calls[k].at, &f, sizeof f);
    }
    return true;
}

/* The library in a folder of the package openvino; its name ends with a version. */
static void *open_in(struct arena *a, struct str folder, struct err *e)
{
    struct str *name;
    i64 n;
    const char *libs = str_fmt(a, "%.*s/libs", STR_ARG(folder)).p;
    struct err none = {0};
    if (!folder.n || !os_is_dir(libs) || !os_list(a, libs, &name, &n, &none)) return NULL;
    for (i64 k = 0; k < n; k++)
        if (str_starts(name[k], S("libopenvino_c.so"))) return os_dlopen(str_fmt(a, "%s/%.*s", libs, STR_ARG(name[k])).p, e);
    return NULL;
}

static void *open_of_python(struct arena *a, struct err *e)
{
    static const char *const argv[] = {
        "python3", "-c", "import importlib.util as u; s = u.find_spec('openvino'); print(*(s.submodule_search_locations if s else []), sep='\\n')", NULL};
    enum { SECONDS = 20 };
    struct buf said = {0};
    struct os_status st = {OS_NOT_STARTED, 0};
    struct str folder, rest;
    void *lib = NULL;
    if (os_in_path(a, argv[0])) st = os_run(&(struct os_proc_opts){.argv = argv, .timeout = SECONDS, .out = &said});
    if (st.how == OS_EXITED && st.code == 0) {
        str_cut(buf_view(&said), '\n', &folder, &rest);
        lib = open_in(a, str_trim(folder), e);
    }
    buf_release(&said);
    return lib;
}

static void *open_library(struct err *e)
{
    struct arena a = {0};
    struct err why = {0};
    const char *path = os_env("QUERN_OPENVINO");
    void *lib = os_dlopen(path && *path ? path : "libopenvino_c.so", &why);
    if (!lib && !(path && *path)) lib = open_of_python(&a, &why);
    if (!lib)
        err_set(e, ERR_SYSTEM, "no OpenVINO: %s; install it (pip install openvino), or name its libopenvino_c.so in QUERN_OPENVINO",
                path && *path ? why.msg : "neither the system nor python3 on PATH has it");
    arena_release(&a);
    return lib;
}

bool openvino_open(struct openvino *o, struct err *e)
{
    *o = (struct openvino){.lib = open_library(e)};
    if (!o->lib) return false;
    if (find_calls(o, e)) return true;
    openvino_close(o);
    return false;
}

void openvino_close(struct openvino *o)
{
    if (o->lib) os_dlclose(o->lib);
    o->lib = NULL;
}

bool openvino_fails(const struct openvino *o, int status, const char *what, struct err *e)
{
    const char *why = o->last_error ? o->last_error() : NULL;
    if (status == 0) return false;
    err_set(e, ERR_FAILED, "OpenVINO: %s: %s", what, why && *why ? why : "failed");
    return true;
}

void openvino_version_text(const struct openvino *o, char *out, i64 n)
{
    openvino_version v = {0};
    bool ok = o->version(&v) == 0 && v.number;
    snprintf(out, (size_t)n, "%s", ok ? v.number : "of unknown version");
    if (ok) o->version_free(&v);
}

bool openvino_device(struct str instance, char *out, i64 n)
{
    static const char *const names[] = {"CPU", "GPU", "NPU"};
    struct str kind, number;
    str_cut(instance, ':', &kind, &number);
    for (i64 k = 0; k < countof(names); k++) {
        if (!str_starts(kind, S("OPENVINO_")) || !str_is(str_sub(kind, 9, kind.n), names[k])) continue;
        /* two instances of the processor are two queues; GPU.1 is another GPU */
        bool is_other = k && number.n && !str_is(number, "0");
        snprintf(out, (size_t)n, "%s%s%.*s", names[k], is_other ? "." : "", is_other ? (int)number.n : 0, number.p ? number.p : "");
        return true;
    }
    return false;
}

bool openvino_has_device(const struct openvino *o, const void *core, const char *device)
{
    openvino_devices d = {0};
    bool found = false;
    if (o->devices(core, &d)) return false;
    for (size_t k = 0; k < d.n; k++) {
        size_t n = strlen(device);
        found |= !strncmp(d.name[k], device, n) && (!d.name[k][n] || d.name[k][n] == '.'); /* the first of GPU.0 and GPU.1 is GPU, too */
    }
    o->devices_free(&d);
    return found;
}
