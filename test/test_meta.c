// SPDX-License-Identifier: Apache-2.0
//
// Files of deployments: what is written is read again, as a folder and packed; equal deployments have equal bytes; damaged, truncated and contradictory
// files are refused with the file and the field; signatures cover all files; nothing half-written stays.
#include "deployment_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "skip.h"

struct fixture {
    struct deployment d;
    struct arena a;
    struct err e;
    struct str dir;
};

static const char *in_dir(struct fixture *f, const char *name) { return str_fmt(&f->a, "%s/%s", f->dir.p, name).p; }

static int setup(void **state)
{
    static const char *const device[] = {"X64:0", "X64:1"}, *const quern_device[] = {"cpu", "interp"};
    struct fixture *f = mem_alloc(sizeof *f);
    *state = f;
    deployment_chain(&f->d, "Net", device, quern_device, "cpu");
    return os_temp_dir(&f->a, &f->dir, &f->e) ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    os_remove_tree(f->dir.p);
    deployment_release(&f->d);
    arena_release(&f->a);
    mem_free(f);
    return 0;
}

static void good(bool ok, const struct err *e)
{
    if (!ok) fail_msg("%s", e->msg);
}

static void refused(bool ok, struct err *e, const char *why)
{
    assert_false(ok);
    if (!strstr(e->msg, why)) fail_msg("expected '%s': %s", why, e->msg);
    *e = (struct err){0};
}

static struct str written(struct fixture *f, const char *path)
{
    struct str s;
    good(os_read(&f->a, path, 1 << 26, &s, &f->e), &f->e);
    return s;
}

/* The programs of a store are those that were written: same plan, same .dnx. */
static void compare_programs(struct fixture *f, struct meta_store *s)
{
    static const struct { u32 subgraph; enum meta_role role; } at[] = {{0, META_PROGRAM}, {1, META_PROGRAM}, {1, META_FALLBACK}};
    const struct meta_model *m = meta_model_of(s);
    for (u32 i = 0; i < 3; i++) {
        struct plan p;
        struct buf got = {0}, want = {0};
        struct meta_reader r = {.read = meta_store_read, .user = s};
        good(meta_program_read(&p, &f->a, m, &m->subgraph.v[at[i].subgraph], at[i].role, &r, &f->e), &f->e);
        good(dnx_write(&p, &got, &f->e) && dnx_write(&f->d.program[i]->plan, &want, &f->e), &f->e);
        assert_true(str_eq(buf_view(&got), buf_view(&want)));
        for (u32 k = 0; k < p.buf.n; k++)
            if (p.buf.v[k].kind == PB_CONST) assert_int_equal((uintptr_t)p.buf.v[k].data % 64, 0);
        buf_release(&got);
        buf_release(&want);
    }
}

static void test_round_trip(void **state)
{
    struct fixture *f = *state;
    const char *folder = in_dir(f, "net"), *packed = in_dir(f, "net.packed"), *again = in_dir(f, "again"), *packed_again = in_dir(f, "again.packed");
    good(meta_write_folder(folder, &f->d.m, &f->d.files, &f->e) && meta_write_packed(packed, &f->d.m, &f->d.files, &f->e), &f->e);
    for (int k = 0; k < 3; k++) {
        struct meta_store *s = meta_open(k == 0 ? folder : k == 1 ? packed : in_dir(f, "net/model.meta"), NULL, &f->e);
        good(s != NULL, &f->e);
        assert_true(meta_is_store(k == 1 ? packed : folder));
        compare_programs(f, s);
        struct buf b = {0};
        good(meta_write_model(&b, meta_model_of(s), &f->e), &f->e);
        assert_true(str_eq(buf_view(&b), meta_model_bytes(s)));
        buf_release(&b);
        if (k < 2) good(meta_pack(s, k ? again : packed_again, &f->e), &f->e);
        meta_close(s);
    }
    assert_true(str_eq(written(f, packed), written(f, packed_again)));
    for (u32 i = 0; i < f->d.files.n; i++) {
        const char *path = f->d.files.v[i].file.path.p;
        assert_true(str_eq(written(f, str_fmt(&f->a, "%s/%s", folder, path).p), written(f, str_fmt(&f->a, "%s/%s", again, path).p)));
    }
    struct str *names;
    i64 n;
    good(os_list(&f->a, f->dir.p, &names, &n, &f->e), &f->e);
    assert_int_equal(n, 4); /* no temporary files */
}

static void test_existing(void **state)
{
    struct fixture *f = *state;
    const char *folder = in_dir(f, "net");
    good(os_mkdirs(folder, &f->e), &f->e);
    refused(meta_write_folder(folder, &f->d.m, &f->d.files, &f->e), &f->e, "exists already");
    f->d.files.n--;
    refused(meta_write_folder(in_dir(f, "other"), &f->d.m, &f->d.files, &f->e), &f->e, "has no content");
    refused(meta_write_packed(in_dir(f, "other"), &f->d.m, &f->d.files, &f->e), &f->e, "has no content");
    f->d.files.n++;
    refused(meta_write_folder(in_dir(f, "missing/deep/net"), &f->d.m, &f->d.files, &f->e), &f->e, "cannot create");
    struct str *names;
    i64 n;
    good(os_list(&f->a, f->dir.p, &names, &n, &f->e), &f->e);
    assert_int_equal(n, 1);
}

/* Whether everything in the deployment at this path can be read. */
static bool read_all(const char *path, struct err *e)
{
    struct arena a = {0};
    struct meta_store *s = meta_open(path, NULL, e);
    bool ok = s != NULL;
    const struct meta_model *m = ok ? meta_model_of(s) : NULL;
    for (u32 k = 0; ok && k < m->subgraph.n; k++) {
        struct plan p;
        struct meta_reader r = {.read = meta_store_read, .user = s};
        ok = meta_program_read(&p, &a, m, &m->subgraph.v[k], META_PROGRAM, &r, e);
        if (ok && meta_file_of(&m->subgraph.v[k], META_FALLBACK)) ok = meta_program_read(&p, &a, m, &m->subgraph.v[k], META_FALLBACK, &r, e);
    }
    meta_close(s);
    arena_release(&a);
    return ok;
}

static void test_damage(void **state)
{
    struct fixture *f = *state;
    const char *folder = in_dir(f, "net");
    struct rng r = rng_seed(3);
    good(meta_write_folder(folder, &f->d.m, &f->d.files, &f->e) && read_all(folder, &f->e), &f->e);
    for (u32 i = 0; i <= f->d.files.n; i++) {
        const char *name = i < f->d.files.n ? f->d.files.v[i].file.path.p : "model.meta", *path = str_fmt(&f->a, "%s/%s", folder, name).p;
        struct str was = written(f, path);
        char *p = arena_alloc(&f->a, was.n);
        for (int k = 0; k < 8; k++) {
            bool cut = k % 2;
            i64 at = rng_range(&r, 0, was.n - 1);
            memcpy(p, was.p, (size_t)was.n);
            p[at] ^= 0x10;
            good(os_write(path, p, cut ? at : was.n, &f->e), &f->e);
            refused(read_all(folder, &f->e), &f->e, name);
        }
        unlink(path);
        refused(read_all(folder, &f->e), &f->e, name);
        good(os_write(path, was.p, was.n, &f->e), &f->e);
    }
    good(read_all(folder, &f->e), &f->e);
    unlink(in_dir(f, "net/model.meta"));
    assert_int_equal(symlink("/etc/passwd", in_dir(f, "net/model.meta")), 0);
    refused(read_all(folder, &f->e), &f->e, "symbolic link");
}

static void test_damage_packed(void **state)
{
    struct fixture *f = *state;
    const char *path = in_dir(f, "net.packed");
    struct rng r = rng_seed(4);
    good(meta_write_packed(path, &f->d.m, &f->d.files, &f->e), &f->e);
    struct str was = written(f, path);
    char *p = arena_alloc(&f->a, was.n);
    for (int k = 0; k < 100; k++) {
        good(os_write(path, was.p, rng_range(&r, 0, was.n - 65), &f->e), &f->e); /* the last file's padding may be missing */
        assert_false(read_all(path, &f->e));
        assert_true(strstr(f->e.msg, path) != NULL);
        f->e = (struct err){0};
        memcpy(p, was.p, (size_t)was.n);
        p[rng_range(&r, 0, was.n - 1)] ^= 1;
        good(os_write(path, p, was.n, &f->e), &f->e);
        read_all(path, &f->e); /* padding does not count */
        f->e = (struct err){0};
    }
}

/* Contradictions in the description. */

static void no_change(struct meta_model *m) { (void)m; }
static void tensor_twice(struct meta_model *m) { m->tensor.v[1].name = m->tensor.v[0].name; }
static void bad_dim(struct meta_model *m) { m->tensor.v[1].dim[0] = S("N+"); }
static void bad_rank(struct meta_model *m) { m->tensor.v[1].rank = MAX_RANK + 1; }
static void no_dtype(struct meta_model *m) { m->tensor.v[1].dtype = DT_NONE; }
static void two_producers(struct meta_model *m) { m->subgraph.v[1].out.v[0] = 1; }
static void is_input(struct meta_model *m) { m->subgraph.v[0].out.v[0] = 0; }
static void far_index(struct meta_model *m) { m->subgraph.v[1].out.v[0] = 100; }
static void far_input(struct meta_model *m) { m->subgraph.v[1].in.v[0] = 100; }
static void no_output(struct meta_model *m) { m->output.n = 0; }
static void far_output(struct meta_model *m) { m->output.v[0] = 3; }
static void cycle(struct meta_model *m) { m->subgraph.v[0].in.v[0] = 2; }
static void does_not_wait(struct meta_model *m) { m->subgraph.v[1].after.n = 0; }
static void waits_for_itself(struct meta_model *m) { m->subgraph.v[1].after.v[0] = 1; }
static void same_folder(struct meta_model *m) { m->subgraph.v[1].name = S("subgraph_0"); }
static void name_up(struct meta_model *m) { m->subgraph.v[1].name = S(".."); }
static void name_model(struct meta_model *m) { m->subgraph.v[1].name = S("model.meta"); }
static void path_up(struct meta_model *m) { m->subgraph.v[1].file.v[0].path = S("Subgraph_1/../../x"); }
static void path_root(struct meta_model *m) { m->subgraph.v[1].file.v[0].path = S("/etc/passwd"); }
static void path_other(struct meta_model *m) { m->subgraph.v[1].file.v[0].path = S("Subgraph_0/x"); }
static void path_twice(struct meta_model *m) { m->subgraph.v[1].file.v[0].path = m->subgraph.v[1].file.v[1].path; }
static void two_programs(struct meta_model *m) { m->subgraph.v[1].file.v[1].role = META_PROGRAM; }
static void no_time(struct meta_model *m) { m->subgraph.v[1].seconds = -1; }
static void no_device(struct meta_model *m) { m->subgraph.v[1].device.n = 0; }
static void line_feed(struct meta_model *m) { m->name = S("a\nb"); }
static void unused(struct meta_model *m) { m->input.n = 0; }

static void test_contradictions(void **state)
{
    static const struct { void (*change)(struct meta_model *m); const char *why; } row[] = {
        {no_change, NULL}, {tensor_twice, "tensor 'tensor_0': name occurs twice"}, {bad_dim, "tensor 'tensor_1': dim"}, {bad_rank, "dim has too many"},
        {no_dtype, "'tensor_1': dtype"}, {two_producers, "'tensor_1': has two producers"}, {is_input, "'tensor_0': has two producers"}, {far_index, "'Subgraph_1': index"},
        {far_input, "'Subgraph_1': index of an input"}, {no_output, "no output"}, {far_output, "index of an output"}, {cycle, "'Subgraph_0': input 'tensor_2' is produced by none"},
        {does_not_wait, "'Subgraph_1': does not wait"}, {waits_for_itself, "'Subgraph_1': waits for itself"}, {same_folder, "'subgraph_0': name occurs twice"},
        {name_up, "'..': name is not that of a folder"}, {name_model, "name is not that of a folder"}, {path_up, "'Subgraph_1/../../x': path"}, {path_root, "'/etc/passwd': path"},
        {path_other, "'Subgraph_0/x': path is invalid, or outside"}, {path_twice, "path occurs twice"}, {two_programs, "'Subgraph_1': has two programs"},
        {no_time, "seconds"}, {no_device, "'Subgraph_1': device"}, {line_feed, "name is empty, too long, or has control"}, {unused, "is produced by none"},
    };
    for (i64 i = 0; i < countof(row); i++) {
        void *fresh;
        struct buf b = {0};
        assert_int_equal(setup(&fresh), 0);
        struct fixture *f = fresh;
        row[i].change(&f->d.m);
        if (row[i].why) refused(meta_write_model(&b, &f->d.m, &f->e), &f->e, row[i].why);
        else good(meta_write_model(&b, &f->d.m, &f->e), &f->e);
        buf_release(&b);
        teardown(&fresh);
    }
}

/* Another program than the sub-graph says. */
static void test_interface(void **state)
{
    struct fixture *f = *state;
    f->d.m.tensor.v[1].dtype = DT_F16;
    good(meta_write_folder(in_dir(f, "net"), &f->d.m, &f->d.files, &f->e), &f->e);
    refused(read_all(in_dir(f, "net"), &f->e), &f->e, "Subgraph_0/net_0.meta': type or rank of output 'y' differs");
}

/* Signatures. */

static bool check_signed(void *user, struct str meta, struct str signatures, struct err *e)
{
    struct dnx_signatures s;
    u32 by;
    return dnx_check_beside(&s, meta, signatures, e) && dnx_trusted(&s, user, 1, &by, e);
}

static bool open_signed(const char *path, u8 key[SIGN_KEY_BYTES], struct err *e)
{
    struct meta_store *s = meta_open(path, &(struct meta_opts){.is_private = true, .check = check_signed, .user = key}, e);
    meta_close(s);
    return s != NULL;
}

static void test_signed(void **state)
{
    struct fixture *f = *state;
    const char *folder = in_dir(f, "net"), *packed = in_dir(f, "net.packed"), *out = in_dir(f, "signed.packed");
    u8 secret[2][SIGN_KEY_BYTES], key[2][SIGN_KEY_BYTES];
    for (int k = 0; k < 2; k++) good(sign_new_key(secret[k], &f->e) && sign_public_key(secret[k], key[k], &f->e), &f->e);
    good(meta_write_folder(folder, &f->d.m, &f->d.files, &f->e) && meta_write_packed(packed, &f->d.m, &f->d.files, &f->e), &f->e);
    refused(open_signed(folder, key[0], &f->e), &f->e, "not signed");
    refused(open_signed(packed, key[0], &f->e), &f->e, "not signed");
    good(meta_sign(folder, secret[0], false, NULL, &f->e) && meta_sign(packed, secret[0], false, out, &f->e), &f->e);
    refused(meta_sign(folder, secret[0], false, out, &f->e), &f->e, "in place");
    refused(open_signed(packed, key[0], &f->e), &f->e, "not signed");
    good(open_signed(folder, key[0], &f->e) && open_signed(out, key[0], &f->e) && read_all(out, &f->e), &f->e);
    refused(open_signed(folder, key[1], &f->e), &f->e, "none of the 1 trusted keys");
    good(meta_sign(folder, secret[1], false, NULL, &f->e) && open_signed(folder, key[0], &f->e) && open_signed(folder, key[1], &f->e), &f->e);
    struct meta_store *s = meta_open(folder, NULL, &f->e);
    good(s && meta_pack(s, in_dir(f, "both.packed"), &f->e) && open_signed(in_dir(f, "both.packed"), key[1], &f->e), &f->e); /* they stay valid */
    meta_close(s);
    good(meta_sign(folder, secret[1], true, NULL, &f->e), &f->e);
    refused(open_signed(folder, key[0], &f->e), &f->e, "none of the 1 trusted keys");
    /* another description with valid digests */
    struct buf b = {0};
    struct str was = written(f, in_dir(f, "net/model.meta"));
    f->d.m.subgraph.v[0].seconds = 2;
    good(meta_write_model(&b, &f->d.m, &f->e) && os_write(in_dir(f, "net/model.meta"), b.p, b.n, &f->e), &f->e);
    refused(open_signed(folder, key[1], &f->e), &f->e, "changed after it was signed");
    refused(meta_sign(folder, secret[0], false, NULL, &f->e), &f->e, "changed after it was signed");
    good(read_all(folder, &f->e), &f->e); /* without the requirement */
    good(os_write(in_dir(f, "net/model.meta"), was.p, was.n, &f->e), &f->e);
    good(os_write(in_dir(f, "net/Subgraph_0/net_0.weights"), "x", 1, &f->e), &f->e);
    refused(meta_sign(folder, secret[0], false, NULL, &f->e), &f->e, "net_0.weights");
    buf_release(&b);
}

/* Scripts can be run. */
static void test_script(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    struct meta_subgraph *s = &f->d.m.subgraph.v[0];
    good(meta_add_content(&f->d.files, S("Subgraph_0/convert.sh"), META_SCRIPT, S("#!/bin/sh\n"), &f->d.a, &f->e), &f->e);
    *arr_push(&f->d.a, &s->file) = f->d.files.v[f->d.files.n - 1].file;
    good(meta_write_folder(in_dir(f, "net"), &f->d.m, &f->d.files, &f->e) && read_all(in_dir(f, "net"), &f->e), &f->e);
    assert_int_equal(stat(in_dir(f, "net/Subgraph_0/convert.sh"), &st), 0);
    assert_true(st.st_mode & 0100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),    cmocka_unit_test_setup_teardown(test_existing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),        cmocka_unit_test_setup_teardown(test_damage_packed, setup, teardown),
        cmocka_unit_test(test_contradictions),                                cmocka_unit_test_setup_teardown(test_interface, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signed, setup, teardown),        cmocka_unit_test_setup_teardown(test_script, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
