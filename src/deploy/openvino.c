// SPDX-License-Identifier: Apache-2.0
//
// OPENVINO_CPU, OPENVINO_GPU, OPENVINO_NPU: Intel's devices by today's OpenVINO. The sub-graph as ONNX, and the blob that OpenVINO compiled from it, where
// its library and the device are; otherwise a script that makes it there. A blob is valid for its version of OpenVINO and its device.
//
// The library is opened and used in a child process, which foreign code may end.
#include "deploy/deploy.h"
#include "dev/dev_openvino.h"

#include <stdio.h>
#include <string.h>

enum { OPSET = 17, COMPILE_SECONDS = 3600, MAX_BLOB = 1 << 30 };

struct reply {
    bool made;         /* the blob is in the file */
    bool is_missing;   /* the library, or the device, is not here: text says what */
    char text[1000], version[100];
};

struct work { const char *device, *network, *blob; bool is_f16; };

/* f32 is not to become f16 or bf16, which devices prefer; nor f16 bf16, as on processors. */
static bool in_f32(const char *device, bool is_f16) { return !is_f16 || !strcmp(device, "CPU"); }

/* In the child. */
static bool compile_with(const struct openvino *o, const void *core, const struct work *w, struct err *e)
{
    void *model = NULL, *compiled = NULL;
    bool ok = !openvino_fails(o, o->read_model(core, w->network, NULL, &model), "reading the network", e);
    if (ok && !in_f32(w->device, w->is_f16)) ok = !openvino_fails(o, o->compile_model(core, model, w->device, 0, &compiled), "compiling", e);
    else if (ok) ok = !openvino_fails(o, o->compile_model(core, model, w->device, 2, &compiled, "INFERENCE_PRECISION_HINT", "f32"), "compiling", e);
    ok = ok && !openvino_fails(o, o->export_model(compiled, w->blob), "exporting the blob", e);
    if (compiled) o->compiled_free(compiled);
    if (model) o->model_free(model);
    return ok;
}

static void answer(struct reply *r, const struct work *w)
{
    struct openvino o;
    struct err e = {0};
    void *core = NULL;
    if (!openvino_open(&o, &e)) {
        r->is_missing = true;
    } else if (!openvino_fails(&o, o.core_create(&core), "starting", &e)) {
        openvino_version_text(&o, r->version, sizeof r->version);
        r->is_missing = !openvino_has_device(&o, core, w->device);
        if (r->is_missing) err_set(&e, ERR_SYSTEM, "OpenVINO %s finds no device %s here", r->version, w->device);
        else r->made = compile_with(&o, core, w, &e);
    }
    snprintf(r->text, sizeof r->text, "%s", e.msg);
}

static void child(void *user, int fd)
{
    struct reply r = {0};
    answer(&r, user);
    os_child_put(fd, &r, sizeof r);
}

/* Asks a child. false: an error, which is not that something is missing. */
static bool ask(struct reply *r, const struct deploy_job *j, const struct work *w, struct err *e)
{
    struct os_child c = {0};
    if (!os_child_start(&c, child, (void *)(uintptr_t)w, e)) return false;
    c.runs_programs = true, c.stop = j->stop;
    enum os_exit how = os_child_get(&c, r, sizeof *r, COMPILE_SECONDS);
    struct os_status st = os_child_end(&c);
    if (how == OS_STOPPED) return err_set(e, ERR_STOPPED, "stopped");
    if (how == OS_TIMEOUT) return err_set(e, ERR_FAILED, "OpenVINO took longer than %d s", COMPILE_SECONDS);
    if (how != OS_EXITED) return err_set(e, ERR_FAILED, "OpenVINO's library ended its process (signal %d)", st.code);
    r->text[sizeof r->text - 1] = r->version[sizeof r->version - 1] = 0;
    return r->made || r->is_missing || err_set(e, ERR_FAILED, "%s", r->text);
}

/* The blob, if it can be made here. */
static bool make_blob(struct str *blob, struct reply *r, const struct deploy_job *j, const char *device, struct str onnx, struct err *e)
{
    struct str folder;
    if (!os_temp_dir(j->arena, &folder, e)) return false;
    struct work w = {.device = device, .is_f16 = j->is_f16};
    w.network = str_fmt(j->arena, "%.*s/net.onnx", STR_ARG(folder)).p;
    w.blob = str_fmt(j->arena, "%.*s/net.blob", STR_ARG(folder)).p;
    bool ok = os_write(w.network, onnx.p, onnx.n, e) && ask(r, j, &w, e);
    if (ok && r->made) ok = os_read(j->arena, w.blob, MAX_BLOB, blob, e);
    os_remove_tree(folder.p);
    return ok;
}

static struct str script_of(const struct deploy_job *j, const char *device)
{
    struct buf b = {0};
    deploy_put_head(&b, j, "ONNX to a blob of the OpenVINO that is installed");
    buf_printf(&b,
               "\n"
               "have python3 || fail 'python3 is not on PATH'\n"
               "python3 -c 'import openvino' 2> /dev/null || fail 'python3 has no package openvino: pip install openvino'\n"
               "run python3 -c '\n"
               "import openvino\n"
               "core = openvino.Core()\n"
               "model = core.compile_model(\"%.*s.onnx\", \"%s\"%s)\n"
               "blob = model.export_model()\n"
               "blob = blob.getvalue() if hasattr(blob, \"getvalue\") else blob\n"
               "with open(\"%.*s.blob\", \"wb\") as f:\n"
               "    f.write(blob)\n"
               "'\n",
               STR_ARG(j->name), device, !in_f32(device, j->is_f16) ? "" : ", {\"INFERENCE_PRECISION_HINT\": \"f32\"}", STR_ARG(j->name));
    return deploy_text(j, &b);
}

static bool write_net(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    char device[32];
    struct reply r = {0};
    struct str onnx, blob = {0};
    if (!openvino_device(j->device->name, device, sizeof device)) return err_set(e, ERR_USAGE, "no device of OpenVINO: '%.*s'", STR_ARG(j->device->name));
    if (!deploy_onnx(&onnx, x, j, OPSET, e)) return false;
    if (!j->no_tools && !make_blob(&blob, &r, j, device, onnx, e)) return false;
    if (r.made) s->target = str_fmt(j->arena, "%s, OpenVINO %s", device, r.version);
    else s->target = str_fmt(j->arena, "%s, OpenVINO", device);
    if (!r.made)
        s->missing = str_fmt(j->arena, "%s%srun %.*s/convert.sh where python3 has the package openvino and the device %s is", r.text, *r.text ? "; " : "",
                             STR_ARG(j->folder), device);
    if (!deploy_add(files, s, j, deploy_file(j, ".onnx").p, META_NETWORK, onnx, e)) return false;
    if (r.made) return deploy_add(files, s, j, deploy_file(j, ".blob").p, META_BLOB, blob, e);
    return deploy_add(files, s, j, "convert.sh", META_SCRIPT, script_of(j, device), e);
}

static bool openvino_write(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, struct err *e)
{
    s->framework = S("openvino");
    return deploy_with_net(s, files, j, j->is_f16, write_net, e);
}

const struct deploy_backend deploy_openvino = {.kinds = "OPENVINO_CPU OPENVINO_GPU OPENVINO_NPU", .framework = "openvino", .write = openvino_write};
