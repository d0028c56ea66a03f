// SPDX-License-Identifier: Apache-2.0
//
// Signatures of programs: the vectors of RFC 8032 and RFC 8410; keys as files; a signed file is
// independent of the order of signing, and is refused if any byte changed; the checked bytes are
// the ones that run.
#include "art/art.h"
#include "quern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "skip.h"

struct fixture {
    struct arena a;
    struct str dir, unsigned_file;
    struct err e;
    quern *q;
};

static const char *in_dir(struct fixture *f, const char *name) { return str_fmt(&f->a, "%s/%s", f->dir.p, name).p; }

static void good(struct fixture *f, quern_status s)
{
    if (s) fail_msg("%s", quern_error(f->q));
}

static void refused(struct fixture *f, quern_status s, const char *why)
{
    assert_int_not_equal(s, QUERN_OK);
    if (!strstr(quern_error(f->q), why)) fail_msg("expected '%s': %s", why, quern_error(f->q));
}

/* A program for the device null, with a constant: input and output x of (H). */
static struct str make_artifact(struct arena *a)
{
    struct plan p = {.arena = a, .model = S("net"), .caps = S("arch=generic"), .explain = S("{}")};
    struct buf b = {0};
    struct err e = {0};
    symtab_init(&p.sym, a);
    sym h = sym_var(&p.sym, S("H")), bytes = sym_mul(&p.sym, h, sym_const(&p.sym, 4)), one = sym_const(&p.sym, 1);
    (arr_push(a, &p.var))->optimised_for = 64;
    *arr_push(a, &p.input) = (struct plan_io){.name = S("x"), .dtype = DT_F32, .rank = 1, .dim = {h}};
    *arr_push(a, &p.output) = (struct plan_io){.name = S("y"), .dtype = DT_F32, .rank = 1, .dim = {h}, .buf = 1};
    *arr_push(a, &p.buf) = (struct plan_buf){.kind = PB_INPUT, .name = S("x"), .size = bytes};
    *arr_push(a, &p.buf) = (struct plan_buf){.kind = PB_OUTPUT, .name = S("y"), .size = bytes};
    struct plan_buf c = {.kind = PB_CONST, .name = S("c"), .size = sym_const(&p.sym, 8), .data = "constant", .data_size = 8};
    c.content = hash_bytes(c.data, 8);
    *arr_push(a, &p.buf) = c;
    struct plan_bin bin = {.lang = S("c"), .code = S("\x7f" "ELF no code")};
    bin.content = hash_bytes(bin.code.p, bin.code.n);
    *arr_push(a, &p.bin) = bin;
    static u32 args[] = {0, 1, 2};
    struct plan_grid *grid = arena_new(a, struct plan_grid);
    *grid = (struct plan_grid){{h, one, one}};
    *arr_push(a, &p.dispatch) = (struct plan_dispatch){.entry = S("k"), .label = S("l"), .task = S("00"), .candidate = S("c"), .device = S("null"),
                                                       .buf = args, .n_buf = 3, .grid = grid, .n_grid = 1, .work = one};
    if (!plan_verify(&p, &e) || !dnx_write(&p, &b, &e)) fail_msg("%s", e.msg);
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

static int setup(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    u8 secret[SIGN_KEY_BYTES], key[SIGN_KEY_BYTES];
    *state = f;
    if (!os_temp_dir(&f->a, &f->dir, &f->e)) return -1;
    setenv("XDG_CONFIG_HOME", in_dir(f, "config"), 1);
    f->q = quern_open(NULL);
    f->unsigned_file = make_artifact(&f->a);
    assert_true(os_write(in_dir(f, "net.dnx"), f->unsigned_file.p, f->unsigned_file.n, &f->e));
    return sign_new_key(secret, &f->e) && sign_public_key(secret, key, &f->e) ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    quern_close(f->q);
    os_remove_tree(f->dir.p);
    arena_release(&f->a);
    mem_free(f);
    return 0;
}

static void make_key(struct fixture *f, const char *name)
{
    good(f, quern_key_new(f->q, in_dir(f, str_fmt(&f->a, "%s.key", name).p), in_dir(f, str_fmt(&f->a, "%s.pub", name).p)));
}

static quern_status sign_with(struct fixture *f, const char *file, const char *name, bool only, const char *to)
{
    return quern_sign(f->q, in_dir(f, file), in_dir(f, str_fmt(&f->a, "%s.key", name).p), only, in_dir(f, to));
}

static struct str content(struct fixture *f, const char *name)
{
    struct str s;
    if (!os_read(&f->a, in_dir(f, name), 1 << 20, &s, &f->e)) fail_msg("%s", f->e.msg);
    return s;
}

static quern_status open_required(struct fixture *f, const char *name, const char *trusted, quern_program **p)
{
    struct quern_run_opts o = QUERN_OPTS(quern_run_opts);
    o.device = "null", o.require_signature = 1, o.trusted = trusted ? in_dir(f, trusted) : NULL;
    return quern_program_open(f->q, in_dir(f, name), &o, p);
}

static void hex(u8 *out, const char *z)
{
    for (i64 k = 0; z[2 * k]; k++) out[k] = (u8)strtoul((char[]){z[2 * k], z[2 * k + 1], 0}, NULL, 16);
}

/* RFC 8032, 7.1, test 1; RFC 8410, 10.3 and 10.1. */
static void test_vectors(void **state)
{
    static const char secret_pem[] = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
    static const char public_pem[] = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    struct fixture *f = *state;
    u8 secret[SIGN_KEY_BYTES], key[SIGN_KEY_BYTES], want[SIGN_BYTES], got[SIGN_BYTES];
    bool is_right;
    hex(secret, "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
    hex(want, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    assert_true(sign_public_key(secret, key, &f->e));
    assert_memory_equal(key, want, SIGN_KEY_BYTES);
    hex(want, "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b");
    assert_true(sign_make(secret, S(""), got, &f->e));
    assert_memory_equal(got, want, SIGN_BYTES);
    assert_true(sign_check(key, S(""), want, &is_right, &f->e) && is_right);
    want[3] ^= 1;
    assert_true(sign_check(key, S(""), want, &is_right, &f->e) && !is_right);

    struct buf b = {0};
    assert_true(sign_parse_key(secret, true, S(secret_pem), &f->e) && sign_parse_key(key, false, S(public_pem), &f->e));
    assert_true(sign_public_key(secret, got, &f->e));
    assert_memory_equal(got, key, SIGN_KEY_BYTES);
    sign_print_key(&b, secret, true);
    assert_true(str_is(buf_view(&b), secret_pem));
    buf_reset(&b);
    sign_print_key(&b, key, false);
    assert_true(str_is(buf_view(&b), public_pem));
    buf_release(&b);
    for (i64 k = 28; k < (i64)sizeof public_pem - 28; k++) { /* every digit matters */
        char copy[sizeof public_pem];
        struct err e = {0};
        u8 other[SIGN_KEY_BYTES] = {0};
        memcpy(copy, public_pem, sizeof copy);
        copy[k] = copy[k] == 'B' ? 'C' : 'B';
        if (sign_parse_key(other, false, str_of(copy), &e)) assert_memory_not_equal(other, key, SIGN_KEY_BYTES);
    }
    struct err e = {0};
    assert_false(sign_parse_key(key, false, S(secret_pem), &e));
    assert_non_null(strstr(e.msg, "a private key"));
}

static void test_keys(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    char id[33], same[33], *list;
    make_key(f, "alice"), make_key(f, "bob");
    assert_true(stat(in_dir(f, "alice.key"), &st) == 0 && (st.st_mode & 0777) == 0600);
    struct str before = content(f, "alice.key");
    refused(f, quern_key_new(f->q, in_dir(f, "alice.key"), in_dir(f, "new.pub")), "cannot create");
    assert_false(os_exists(in_dir(f, "new.pub")));
    assert_true(str_eq(before, content(f, "alice.key")));
    good(f, quern_key_id(f->q, in_dir(f, "alice.key"), id));
    good(f, quern_key_id(f->q, in_dir(f, "alice.pub"), same));
    assert_true(strcmp(id, same) == 0 && strlen(id) == 32);
    good(f, quern_key_list(f->q, &list));
    assert_string_equal(list, "[]");
    quern_text_free(list);
    good(f, quern_key_trust(f->q, in_dir(f, "alice.pub"), "alice"));
    good(f, quern_key_trust(f->q, in_dir(f, "bob.pub"), "bob@work"));
    refused(f, quern_key_trust(f->q, in_dir(f, "bob.pub"), "again"), "trusted already, as 'bob@work'");
    refused(f, quern_key_trust(f->q, in_dir(f, "bob.pub"), "../bob"), "not a valid key name");
    refused(f, quern_key_trust(f->q, in_dir(f, "bob.key"), "secret"), "a private key");
    good(f, quern_key_list(f->q, &list));
    assert_true(strstr(list, "alice") && strstr(list, id) && strstr(list, "bob@work"));
    quern_text_free(list);
    good(f, quern_key_distrust(f->q, id));
    refused(f, quern_key_distrust(f->q, "alice"), "no trusted key");
    good(f, quern_key_distrust(f->q, "bob@work"));
    assert_int_equal(chmod(in_dir(f, "alice.key"), 0644), 0);
    refused(f, sign_with(f, "net.dnx", "alice", false, "out.dnx"), "other users may read the secret");
}

static void test_required(void **state)
{
    struct fixture *f = *state;
    quern_program *p = NULL;
    char *text;
    make_key(f, "alice"), make_key(f, "bob");
    refused(f, open_required(f, "net.dnx", NULL, &p), "it is not signed");
    good(f, sign_with(f, "net.dnx", "alice", false, "signed.dnx"));
    assert_true(str_eq(content(f, "net.dnx"), f->unsigned_file));
    refused(f, open_required(f, "signed.dnx", NULL, &p), "none of the 0 trusted keys");
    refused(f, open_required(f, "signed.dnx", "bob.pub", &p), "none of the 1 trusted keys");
    good(f, open_required(f, "signed.dnx", "alice.pub", &p));
    quern_program_close(p);
    good(f, quern_key_trust(f->q, in_dir(f, "alice.pub"), "alice"));
    good(f, open_required(f, "signed.dnx", NULL, &p));
    quern_program_close(p);
    good(f, quern_show(f->q, in_dir(f, "signed.dnx"), &text));
    assert_true(strstr(text, "trusted as 'alice'") && strstr(text, "code native: runs with the user's rights"));
    quern_text_free(text);
    good(f, quern_show(f->q, in_dir(f, "net.dnx"), &text));
    assert_non_null(strstr(text, "not signed"));
    quern_text_free(text);
    good(f, quern_program_open(f->q, in_dir(f, "signed.dnx"), &(struct quern_run_opts){.size = sizeof(struct quern_run_opts), .device = "null"}, &p));
    quern_program_close(p); /* signatures need not be examined */
    assert_int_equal(chmod(in_dir(f, "config/quern/trusted"), 0777), 0);
    refused(f, open_required(f, "signed.dnx", NULL, &p), "other users may write");
    assert_int_equal(chmod(in_dir(f, "config/quern/trusted"), 0700), 0);
    assert_int_equal(chmod(in_dir(f, "config/quern/trusted/alice.pem"), 0666), 0);
    refused(f, open_required(f, "signed.dnx", NULL, &p), "trusted keys");
}

/* The context's option counts wherever a program is opened. */
static void test_context(void **state)
{
    struct fixture *f = *state;
    struct quern_opts o = QUERN_OPTS(quern_opts);
    quern_program *p = NULL;
    char *text = NULL;
    o.require_signature = 1;
    make_key(f, "alice");
    good(f, sign_with(f, "net.dnx", "alice", false, "signed.dnx"));
    quern_close(f->q);
    f->q = quern_open(&o);
    const char *file[] = {in_dir(f, "net.dnx")}, *is_signed = in_dir(f, "signed.dnx");
    struct quern_export_opts to = QUERN_OPTS(quern_export_opts);
    to.to = "vkdt";
    refused(f, quern_program_open(f->q, file[0], NULL, &p), "not signed");
    refused(f, quern_show(f->q, file[0], &text), "not signed");
    refused(f, quern_explain(f->q, file[0], &text), "not signed");
    refused(f, quern_export(f->q, file, 1, in_dir(f, "out"), &to), "not signed");
    refused(f, quern_show(f->q, is_signed, &text), "trusted keys");
    good(f, quern_key_trust(f->q, in_dir(f, "alice.pub"), "alice"));
    good(f, quern_show(f->q, is_signed, &text));
    quern_text_free(text);
}

/* Signatures do not depend on their order, do not touch one another, and can be renewed. */
static void test_rotation(void **state)
{
    struct fixture *f = *state;
    quern_program *p;
    make_key(f, "old"), make_key(f, "new");
    good(f, sign_with(f, "net.dnx", "old", false, "old.dnx"));
    good(f, sign_with(f, "old.dnx", "new", false, "both.dnx"));
    good(f, sign_with(f, "net.dnx", "new", false, "new.dnx"));
    good(f, sign_with(f, "new.dnx", "old", false, "other.dnx"));
    assert_true(str_eq(content(f, "both.dnx"), content(f, "other.dnx")));
    good(f, sign_with(f, "both.dnx", "old", false, "again.dnx"));
    assert_true(str_eq(content(f, "both.dnx"), content(f, "again.dnx")));
    good(f, sign_with(f, "both.dnx", "new", true, "only.dnx"));
    assert_true(str_eq(content(f, "new.dnx"), content(f, "only.dnx")));
    good(f, open_required(f, "both.dnx", "old.pub", &p));
    quern_program_close(p);
    good(f, open_required(f, "both.dnx", "new.pub", &p));
    quern_program_close(p);
    refused(f, open_required(f, "only.dnx", "old.pub", &p), "trusted keys");
    for (int k = 0; k < DNX_MAX_SIGNATURES; k++) {
        const char *name = str_fmt(&f->a, "k%d", k).p;
        make_key(f, name);
        good(f, sign_with(f, k ? "many.dnx" : "net.dnx", name, false, "many.dnx"));
    }
    refused(f, sign_with(f, "many.dnx", "old", false, "many.dnx"), "the maximum");
    good(f, open_required(f, "many.dnx", "k3.pub", &p));
    quern_program_close(p);
}

static bool is_accepted(struct str bytes, const u8 key[SIGN_KEY_BYTES])
{
    struct dnx_signatures s;
    struct err e = {0};
    u32 by;
    return dnx_signatures(&s, bytes, &e) && dnx_check_signatures(&s, bytes, &e) && dnx_trusted(&s, (const u8(*)[SIGN_KEY_BYTES])(const void *)key, 1, &by, &e);
}

/* Any change, move, truncation or addition is rejected. The file stays a program for callers that
   do not require signatures. */
static void test_changed(void **state)
{
    struct fixture *f = *state;
    struct plan p;
    u8 key[SIGN_KEY_BYTES];
    quern_program *program;
    make_key(f, "alice"), make_key(f, "bob");
    good(f, sign_with(f, "net.dnx", "alice", false, "signed.dnx"));
    good(f, sign_with(f, "signed.dnx", "bob", false, "signed.dnx"));
    struct str s = content(f, "signed.dnx");
    assert_true(sign_parse_key(key, false, content(f, "alice.pub"), &f->e));
    assert_true(is_accepted(s, key) && dnx_read(&p, &f->a, s, &f->e) && s.n % 64 == 0);
    char *copy = arena_alloc(&f->a, s.n + 64);
    for (i64 k = 0; k < s.n; k++) {
        memcpy(copy, s.p, (size_t)s.n);
        copy[k] ^= (char)(1 << k % 8);
        if (is_accepted((struct str){copy, s.n}, key)) fail_msg("byte %d of %d was changed", (int)k, (int)s.n);
    }
    memset(copy, 0, (size_t)s.n + 64);
    memcpy(copy, s.p, (size_t)s.n);
    for (i64 n = 0; n < s.n; n += 13) assert_false(is_accepted((struct str){copy, n}, key));
    for (i64 n = 1; n <= 64; n++) assert_false(is_accepted((struct str){copy, s.n + n}, key));
    assert_true(os_write(in_dir(f, "cut.dnx"), s.p, s.n - 1024, &f->e));
    refused(f, open_required(f, "cut.dnx", "alice.pub", &program), "it is not signed");
    copy[s.n - 2000] ^= 1;
    assert_true(os_write(in_dir(f, "bad.dnx"), copy, s.n, &f->e));
    refused(f, open_required(f, "bad.dnx", "alice.pub", &program), "changed after it was signed");
    refused(f, sign_with(f, "bad.dnx", "alice", true, "bad.dnx"), "");
    /* a header that begins with a blank is a program, too, and not signed */
    memcpy(copy, f->unsigned_file.p, 8);
    copy[8] = ' ';
    memcpy(copy + 9, f->unsigned_file.p + 8, (size_t)f->unsigned_file.n - 8);
    copy[0]++;
    assert_true(os_write(in_dir(f, "blank.dnx"), copy, f->unsigned_file.n + 1, &f->e));
    refused(f, open_required(f, "blank.dnx", "alice.pub", &program), "it is not signed");
}

/* The bytes that were read are the ones that run: the file may be emptied. Saving reads code and
   constants again. */
static void run_emptied(struct fixture *f, const char *file, quern_program *p)
{
    quern_tensor *x, *y = NULL;
    assert_int_equal(truncate(in_dir(f, file), 0), 0);
    good(f, quern_tensor_new(f->q, QUERN_F32, 1, (int64_t[]){5}, NULL, &x));
    good(f, quern_run(p, &x, 1, &y, 1));
    good(f, quern_program_save(p, in_dir(f, "saved.dnx")));
    assert_true(str_eq(content(f, "saved.dnx"), f->unsigned_file));
    quern_tensor_free(x), quern_tensor_free(y);
    quern_program_close(p);
}

static void test_copy(void **state)
{
    struct fixture *f = *state;
    struct quern_run_opts o = QUERN_OPTS(quern_run_opts);
    quern_program *p;
    o.device = "null";
    make_key(f, "alice");
    good(f, sign_with(f, "net.dnx", "alice", false, "signed.dnx"));
    good(f, open_required(f, "signed.dnx", "alice.pub", &p));
    run_emptied(f, "signed.dnx", p);
    good(f, quern_program_open(f->q, in_dir(f, "net.dnx"), &o, &p));
    run_emptied(f, "net.dnx", p);
}

int main(void)
{
    struct err e = {0};
    u8 secret[SIGN_KEY_BYTES];
    if (!sign_new_key(secret, &e)) return printf("skipped: %s\n", e.msg), 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_vectors, setup, teardown),  cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_required, setup, teardown), cmocka_unit_test_setup_teardown(test_context, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rotation, setup, teardown), cmocka_unit_test_setup_teardown(test_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
