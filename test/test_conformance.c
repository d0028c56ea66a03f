// SPDX-License-Identifier: Apache-2.0
//
// Conformance tests of devices: a correct device passes. Each operation that a simulated device
// computes incorrectly is found, named, and replaced or rejected, as decided by a second run.
// Second definitions produce the results of the operators. On the Vulkan device, if there is one.
#include "lang_fixture.h"
#include "tune/conformance.h"

#include <sys/mman.h>
#include <unistd.h>

static bool conform(struct conformance *x, const struct dev_driver *d, const struct caps *c, enum conform_when when, struct arena *a)
{
    struct err e = {0};
    struct buf tools = {0}, fp = {0};
    struct dev_opts o = {0};
    struct caps own;
    if (!dev_ask(d, &o, &own, &fp, &e)) fail_msg("%s", e.msg);
    const struct lang *l = lang_find(str_of(d->lang));
    assert_true(l->toolchain(&tools, c ? c : &own, &e));
    struct device_target t = {.driver = d,
                              .opts = &o,
                              .lang = l,
                              .caps = c ? c : &own,
                              .fingerprint = str_dup(a, buf_view(&fp)),
                              .toolchain = str_dup(a, buf_view(&tools))};
    bool ok = conform_device(x, &t, when, a, &e);
    if (!ok && when != CONFORM_KNOWN) fail_msg("%s", e.msg);
    buf_release(&tools), buf_release(&fp);
    return ok;
}

/* The interpreter conforms to itself; the cached result is that of the test. */
static void correct_device_passes(void **state)
{
    struct arena a = {0};
    struct conformance x, again;
    assert_true(conform(&x, dev_find(S("interp")), NULL, CONFORM_AGAIN, &a));
    assert_true(x.n_cases > 300 && x.found.n == 0 && !x.is_known);
    assert_true(conform(&again, dev_find(S("interp")), NULL, CONFORM_KNOWN, &a));
    assert_true(again.is_known && again.n_cases == x.n_cases && again.found.n == 0);
    arena_release(&a);
}

/* The interpreter with faults: in the text of a kernel one operator is replaced by another. */

enum { MAX_FAULTS = 2 };

struct fault { const char *from, *to; /* NULL: the kernel cannot be loaded */ };

static struct {
    struct dev_driver driver;
    struct fault fault[MAX_FAULTS];
    bool crashes;   /* instead of failing to load */
    u32 *n_opened;  /* by any process; NULL: not counted */
    u32 n_faulty;   /* the number of openings with faults; 0: always */
} faulty;

static bool has_faults(void) { return !faulty.n_faulty || *faulty.n_opened <= faulty.n_faulty; }

static const struct fault *fault_at(struct str text)
{
    for (u32 i = 0; i < MAX_FAULTS && has_faults(); i++)
        if (faulty.fault[i].from && str_starts(text, str_of(faulty.fault[i].from))) return &faulty.fault[i];
    return NULL;
}

/* false: the kernel cannot be loaded. */
static bool spoil(struct buf *b, struct str text)
{
    for (i64 i = 0; i < text.n;) {
        const struct fault *f = fault_at(str_sub(text, i, text.n));
        if (f && !f->to) return false;
        if (f) buf_z(b, f->to), i += (i64)strlen(f->from);
        else buf_char(b, text.p[i++]);
    }
    return true;
}

static struct dev_kernel *load(struct dev *d, struct str binary, struct str entry, u32 n_grid, struct err *e)
{
    struct buf b = {0};
    struct dev_kernel *k = NULL;
    bool ok = spoil(&b, binary);
    if (!ok && faulty.crashes) abort();
    if (ok) k = dev_find(S("interp"))->load(d, buf_view(&b), entry, n_grid, e);
    else err_set(e, ERR_FAILED, "no such operation here");
    buf_release(&b);
    return k;
}

static struct dev *open_faulty(const struct dev_opts *o, struct err *e)
{
    struct dev *d = dev_find(S("interp"))->open(o, e);
    if (faulty.n_opened) (*faulty.n_opened)++;
    return d;
}

static void make_faulty(const char *from, const char *to)
{
    memset(&faulty, 0, sizeof faulty);
    faulty.driver = *dev_find(S("interp"));
    faulty.driver.load = load;
    faulty.driver.open = open_faulty;
    faulty.fault[0] = (struct fault){from, to};
}

static bool has_finding(const struct conformance *x, const char *name, enum conform_status st)
{
    for (u32 i = 0; i < x->found.n; i++)
        if (str_is(x->found.v[i].name, name) && x->found.v[i].status == st) return true;
    return false;
}

static void faults_are_found(void **state)
{
    static const struct { const char *from, *to, *name; u32 most; } list[] = {
        {": f64 = rint ", ": f64 = trunc ", "rint:f64", 1},
        {": f32 = max ", ": f32 = min ", "max:f32", 60},
        {": u32 = div ", ": u32 = mul ", "div:u32", 60},
        {": i32 = shr ", ": i32 = shl ", "shr:i32", 60},
        {": bool = isnan ", ": bool = isinf ", "isnan:f32", 2},
    };
    for (i64 i = 0; i < countof(list); i++) {
        struct arena a = {0};
        struct conformance x;
        make_faulty(list[i].from, list[i].to);
        conform(&x, &faulty.driver, NULL, CONFORM_AGAIN, &a);
        if (!has_finding(&x, list[i].name, CONFORM_WRONG) || x.found.n > list[i].most) {
            struct buf b = {0};
            conform_report(&b, &x);
            fail_msg("%s: %.*s", list[i].name, STR_ARG(buf_view(&b)));
        }
        arena_release(&a);
    }
}

/* A driver that crashes on an operation loses that operation only. */
static void crash_loses_one_operation(void **state)
{
    struct arena a = {0};
    struct conformance x;
    make_faulty(": f64 = sqrt ", NULL);
    faulty.crashes = true;
    conform(&x, &faulty.driver, NULL, CONFORM_AGAIN, &a);
    assert_true(has_finding(&x, "sqrt:f64", CONFORM_CRASH));
    assert_int_equal(x.found.n, 1);
    arena_release(&a);
}

static void findings_become_limits(void **state)
{
    struct arena a = {0};
    struct conformance x;
    struct caps c = {.has_subgroup = true}, back;
    struct err e = {0};
    struct buf b = {0};
    make_faulty(": f64 = rint ", ": f64 = trunc ");
    conform(&x, &faulty.driver, NULL, CONFORM_AGAIN, &a);
    conform_apply(&c, &x);
    conform_apply(&c, &x);
    assert_string_equal(c.avoid, "rint:f64");
    caps_print(&b, &c);
    assert_true(caps_parse(&back, buf_view(&b), &e));
    assert_string_equal(back.avoid, c.avoid);
    buf_release(&b);
    arena_release(&a);
}

/* The second run. */

static enum conform_way way_of(const struct conformance *x, const char *name)
{
    for (u32 i = 0; i < x->found.n; i++)
        if (str_is(x->found.v[i].name, name)) return x->found.v[i].way;
    fail_msg("%s was not found", name);
    return N_CONFORM_WAYS;
}

static void expect_report(const struct conformance *x, const char *words)
{
    struct buf b = {0};
    conform_report(&b, x);
    buf_char(&b, 0);
    if (!strstr(b.p, words)) fail_msg("no '%s' in\n%s", words, b.p);
    buf_release(&b);
}

static void expect_one(const struct conformance *x, const char *name, enum conform_status st)
{
    struct buf b = {0};
    conform_report(&b, x);
    if (x->found.n != 1 || !has_finding(x, name, st)) fail_msg("not %s alone:\n%.*s", name, STR_ARG(buf_view(&b)));
    buf_release(&b);
}

static bool avoid(struct arena *a, const char *text, const char *list, struct kir *safe, struct err *e)
{
    struct kir k;
    *e = (struct err){0};
    if (!kir_parse(&k, a, str_of(text), e)) fail_msg("%s", e->msg);
    return kir_avoid(safe, a, &k, str_of(list), e);
}

static const char not_text[] = "kernel k(x: in i32, y: out i32)\ngrid %1 = 4\n  %2: i32 = load x[%1]\n  %3: i32 = not %2\n  store y[%1] = %3\nend\n";

/* An operation that the driver lacks is available when it is expanded into others. */
static void missing_operation_is_replaced(void **state)
{
    struct arena a = {0};
    struct conformance x;
    struct caps c = {0};
    make_faulty(": i32 = abs ", NULL);
    conform(&x, &faulty.driver, NULL, CONFORM_AGAIN, &a);
    expect_one(&x, "abs:i32", CONFORM_REFUSED);
    assert_int_equal(way_of(&x, "abs:i32"), CONFORM_REPLACED);
    expect_report(&x, "no such operation here; done by other operations");
    conform_apply(&c, &x);
    assert_string_equal(c.avoid, "abs:i32");
    arena_release(&a);
}

/* A compiler that emits the same wrong instruction for the second definition: kernels are rejected,
   and no result is wrong. */
static void wrong_replacement_is_rejected(void **state)
{
    struct arena a = {0};
    struct conformance x, again;
    struct caps c = {0};
    struct err e;
    struct kir safe;
    make_faulty(": i32 = not ", ": i32 = abs ");
    faulty.fault[1] = (struct fault){": i32 = sub i32(-1), ", ": i32 = add i32(-1), "};
    conform(&x, &faulty.driver, NULL, CONFORM_AGAIN, &a);
    expect_one(&x, "not:i32", CONFORM_WRONG);
    assert_int_equal(way_of(&x, "not:i32"), CONFORM_LACKING);
    expect_report(&x, "kernels that need it are refused");
    conform_apply(&c, &x);
    assert_string_equal(c.avoid, "!not:i32");
    assert_false(avoid(&a, not_text, c.avoid, &safe, &e));
    assert_true(conform(&again, &faulty.driver, NULL, CONFORM_KNOWN, &a)); /* from the cache */
    assert_int_equal(way_of(&again, "not:i32"), CONFORM_LACKING);
    arena_release(&a);
}

/* The definition contains the faulty operation itself and cannot be replaced. */
static void definition_with_fault_is_rejected(void **state)
{
    struct arena a = {0};
    struct conformance x;
    struct caps c = {0};
    make_faulty(": i32 = abs ", NULL);
    faulty.fault[1] = (struct fault){": i32 = shl ", ": i32 = shr "};
    conform(&x, &faulty.driver, NULL, CONFORM_AGAIN, &a);
    assert_int_equal(way_of(&x, "shl:i32"), CONFORM_LACKING);
    assert_int_equal(way_of(&x, "abs:i32"), CONFORM_LACKING);
    conform_apply(&c, &x);
    assert_true(strstr(c.avoid, "!abs:i32") && strstr(c.avoid, "shl:i32") && !strstr(c.avoid, "!shl:i32"));
    assert_null(strstr(c.avoid, "shl:i32=")); /* covered by shl:i32 */
    arena_release(&a);
}

/* A case without a second definition that is right in the second run: the device has the fault the
   first two times it is opened. */
static void indirect_fault_is_unchanged(void **state)
{
    struct arena a = {0};
    struct conformance x;
    struct caps c = {0};
    make_faulty(": f32 = sin ", ": f32 = sqrt ");
    faulty.n_opened = mmap(NULL, sizeof *faulty.n_opened, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(faulty.n_opened != MAP_FAILED);
    faulty.n_faulty = 2; /* first query and test */
    conform(&x, &faulty.driver, &(struct caps){.arch = "generic"}, CONFORM_AGAIN, &a);
    expect_one(&x, "sin:f32", CONFORM_WRONG);
    assert_int_equal(way_of(&x, "sin:f32"), CONFORM_CURED);
    expect_report(&x, "right when others are replaced");
    conform_apply(&c, &x);
    assert_string_equal(c.avoid, "");
    munmap(faulty.n_opened, sizeof *faulty.n_opened);
    arena_release(&a);
}

/* Words with '!', and words for operations without a definition. */
static void rejections_have_names(void **state)
{
    static const char by_zero[] = "kernel k(x: in f32, y: out f32)\ngrid %1 = 4\n  %2: f32 = load x[%1]\n  %3: f32 = div %2, f32(0)\n  store y[%1] = %3\nend\n",
                      to_half[] = "kernel k(x: in f32, y: out f16)\ngrid %1 = 4\n  %2: f32 = load x[%1]\n  %3: f16 = cast %2\n  store y[%1] = %3\nend\n",
                      array[] = "kernel k(x: in f32, y: out f32)\ngrid %1 = 4\n  reg %2: f32[1]\n  %3: f32 = load x[%1]\n  store %2[0] = %3\n"
                                "  %4: f32 = load %2[0]\n  store y[%1] = %4\nend\n";
    static const struct { const char *text, *list, *words; } cases[] = {
        {not_text, "not:i32", NULL},
        {not_text, "!not:u32 !abs:i32", NULL},
        {not_text, "!not:i32", "'not' of i32"},
        {not_text, "not:i32 rint:f32 !not:i32", "'not' of i32"}, /* a rejection counts, */
        {not_text, "!not:i32 not:i32", "'not' of i32"},          /* at any position */
        {by_zero, "div:f32=0", NULL},
        {by_zero, "!div:f32=-0", NULL},
        {by_zero, "!div:f32=0", "'div' of f32"},
        {to_half, "cast:f32:f16", NULL},
        {to_half, "!cast:f32:bf16 !cast:f16:f32", NULL},
        {to_half, "!cast:f32:f16", "'cast' of f32"},
        {array, "loop:i64", NULL},
        {array, "loop:f32", "'register arrays in loops' of f32"},
        {array, "!loop:f32", "'register arrays in loops' of f32"},
    };
    for (i64 i = 0; i < countof(cases); i++) {
        struct arena a = {0};
        struct kir safe;
        struct err e;
        bool ok = avoid(&a, cases[i].text, cases[i].list, &safe, &e);
        if (ok != !cases[i].words) fail_msg("'%s': %s", cases[i].list, ok ? "not refused" : e.msg);
        if (!ok && (!strstr(e.msg, cases[i].words) || !strstr(e.msg, "--conformance") || e.code != ERR_UNSUPPORTED)) fail_msg("'%s': %s", cases[i].list, e.msg);
        if (ok && !kir_verify(&safe, &e)) fail_msg("'%s': %s", cases[i].list, e.msg);
        arena_release(&a);
    }
}

static struct hash hash_of_name(struct str name)
{
    unsigned long long hi, lo;
    char hex[33];
    assert_int_equal(sscanf(name.p, "%16llx%16llx", &hi, &lo), 2);
    struct hash h = {.hi = hi, .lo = lo};
    hash_hex(h, hex);
    assert_true(str_is(name, hex));
    return h;
}

/* Lines of an older version of the library, or invalid ones, are ignored. */
static void invalid_lines_are_ignored(void **state)
{
    static const char *const texts[] = {"690\n1 20 10 0 0 0 -0, 0 gives 0\n", "690\n1 7 20 10 0 0 0 no such way\n", "690\n1 1 20 10\n",
                                        "690\n1 1 20 10 0 -1 0 no such form\n", "690\n99999999999999999999 1 20 10 0 0 0 too much\n", "many\n", "690", ""};
    struct arena a = {0};
    struct conformance x;
    struct cache c;
    struct str dir, *name;
    struct hash key;
    struct err e = {0};
    i64 n;
    const char *own = getenv("XDG_CACHE_HOME");
    struct str kept = str_dup(&a, str_of(own ? own : ""));
    assert_true(os_temp_dir(&a, &dir, &e));
    setenv("XDG_CACHE_HOME", dir.p, 1);
    make_faulty(": i32 = abs ", NULL);
    conform(&x, &faulty.driver, NULL, CONFORM_NEW, &a);
    assert_true(!x.is_known && conform(&x, &faulty.driver, NULL, CONFORM_KNOWN, &a) && x.is_known && x.found.n == 1);
    cache_open(&c, "devices", &a, NULL);
    if (!os_list(&a, c.folder.p, &name, &n, &e)) fail_msg("%s", e.msg);
    assert_int_equal(n, 1);
    key = hash_of_name(name[0]);
    for (i64 i = 0; i < countof(texts); i++) {
        cache_put(&c, key, str_of(texts[i]));
        if (conform(&x, &faulty.driver, NULL, CONFORM_KNOWN, &a)) fail_msg("'%s' was accepted", texts[i]);
        assert_true(x.found.n == 0 && x.n_cases == 0);
    }
    conform(&x, &faulty.driver, NULL, CONFORM_NEW, &a);
    assert_true(!x.is_known && x.found.n == 1 && way_of(&x, "abs:i32") == CONFORM_REPLACED);
    os_remove_tree(dir.p);
    if (own) setenv("XDG_CACHE_HOME", kept.p, 1);
    else unsetenv("XDG_CACHE_HOME");
    arena_release(&a);
}

/* Every second definition on the test's own values, in the interpreter: a device that computes no
   operator correctly. */
static void second_definitions_are_right(void **state)
{
    struct arena a = {0};
    struct caps c = {.arch = "generic"};
    struct conform_case *v;
    u32 n = conform_list(&a, &c, &v), n_done = 0;
    for (u32 i = 0; i < n; i++) {
        struct conform_kernel k, want;
        struct kir safe;
        struct err e = {0};
        struct buf name = {0};
        bool is_loop = v[i].form == CONFORM_LOOP && (v[i].t == DT_I64 || v[i].t == DT_U64);
        if (!is_loop && (v[i].form != CONFORM_PLAIN || !kir_can_avoid(v[i].op, v[i].t, v[i].to))) continue;
        conform_print(&name, &v[i]);
        conform_build(&want, &c, &v[i], 1);
        conform_build(&k, &c, &v[i], 1);
        if (!kir_avoid(&safe, &a, &k.kir, buf_view(&name), &e)) fail_msg("%.*s: %s", STR_ARG(buf_view(&name)), e.msg);
        for (kval at = 1; at < safe.ins.n; at++)
            if (!is_loop && kir_at(&safe, at)->op == v[i].op && kir_dtype(&safe, kir_at(&safe, at)->a) == v[i].t && v[i].op != KI_CAST)
                fail_msg("%.*s is still there", STR_ARG(buf_view(&name)));
        void *got[16];
        struct buf why = {0};
        for (u32 j = 0; j < k.n_arg; j++) got[j] = k.arg[j].p;
        i64 rounds = k.rounds;
        if (!kir_eval(&safe, k.arg, &rounds, NULL, &e) || !kir_eval(&want.kir, want.arg, &rounds, NULL, &e)) fail_msg("%.*s: %s", STR_ARG(buf_view(&name)), e.msg);
        if (conform_compare(&want, &c, 0, got, &why)) fail_msg("%.*s: %.*s", STR_ARG(buf_view(&name)), STR_ARG(buf_view(&why)));
        n_done++;
        buf_release(&name), buf_release(&why);
        arena_release(&k.arena), arena_release(&want.arena);
    }
    assert_true(n_done > 60);
    arena_release(&a);
}

/* An operation without a second definition is rejected by name. */
static void operation_without_definition_is_rejected(void **state)
{
    struct arena a = {0};
    struct kir k, safe;
    struct err e = {0};
    assert_true(kir_parse(&k, &a, S("kernel k(x: in f32, y: out f32)\ngrid %1 = 4\n  %2: f32 = load x[%1]\n  %3: f32 = sqrt %2\n  store y[%1] = %3\nend\n"), &e));
    assert_true(kir_avoid(&safe, &a, &k, S("rint:f64 div:f32"), &e));
    assert_false(kir_avoid(&safe, &a, &k, S("rint:f64 sqrt:f32"), &e));
    if (!strstr(e.msg, "'sqrt' of f32") || !strstr(e.msg, "--conformance") || e.code != ERR_UNSUPPORTED) fail_msg("%s", e.msg);
    arena_release(&a);
}

/* Casts of f64 to halves. */

struct numbers { double *v; u32 n, cap; };

static void put(struct numbers *s, struct arena *a, double v) { *(arr_push(a, s)) = v, *(arr_push(a, s)) = -v; }

/* A number of the type, the midpoint between it and the next one, and the adjacent numbers of f64
   and of f32. */
static void put_around(struct numbers *s, struct arena *a, double low, double next)
{
    double mid = low + (next - low) / 2;
    put(s, a, low);
    put(s, a, mid);
    for (int up = 0; up < 2; up++) {
        put(s, a, nextafter(mid, up ? INFINITY : 0));
        put(s, a, (double)nextafterf((float)mid, up ? INFINITY : 0));
        put(s, a, mid * (1 + (up ? 0x1p-30 : -0x1p-30)));
    }
}

static void make_numbers(struct numbers *s, struct arena *a, enum dtype t)
{
    struct rng r = rng_seed(t);
    double most = t == DT_F16 ? 65504 : 0x1.fep127;
    u8 bits[2 * 2];
    for (u32 i = 0; i < 0x7fff; i += i < 64 || i > 0x7f00 ? 1 : 37) { /* a sample of the type's numbers, and all very small ones */
        u16 w[2] = {(u16)i, (u16)(i + 1)};
        memcpy(bits, w, sizeof bits);
        double low = elem_f64(t, bits, 0), next = elem_f64(t, bits, 1);
        if (isfinite(low) && isfinite(next)) put_around(s, a, low, next);
    }
    put_around(s, a, most, t == DT_F16 ? 65536 : 0x1p128); /* the midpoint is the first that becomes infinite */
    static const double more[] = {INFINITY, NAN, 0x1.fffffep127, 0x1.ffffffp127, 0x1p128, 0x1.fffffffffffffp1023, 0x1p-1074, 0x1p-149, 0x1p-150, 1e-300};
    for (i64 i = 0; i < countof(more); i++) put(s, a, more[i]);
    for (u32 i = 0; i < 2000; i++) put(s, a, ldexp(1 + rng_f64(&r), (int)rng_range(&r, -160, 140)));
    while (s->n % 2) put(s, a, 1);
}

/* Rounded once, whichever intermediate conversions the list permits. */
static void check_narrowing(enum dtype t, const char *list)
{
    struct arena a = {0};
    struct kir k, safe;
    struct err e = {0};
    struct numbers s = {0};
    make_numbers(&s, &a, t);
    kir_init(&k, &a, S("k"));
    kval x = kir_buf(&k, S("x"), DT_F64, KA_IN), y = kir_buf(&k, S("y"), t, KA_OUT), g = kir_grid(&k, kir_int(&k, s.n / 2)), at = kir_ramp(&k, kir_mul_i(&k, g, 2), 1, 2);
    kir_store(&k, y, at, kir_cast(&k, t, kir_load(&k, x, at)));
    kir_end(&k);
    if (!kir_avoid(&safe, &a, &k, str_of(list), &e) || !kir_verify(&safe, &e)) fail_msg("%s: %s", list, e.msg);
    u16 *got = arena_alloc(&a, s.n * 2);
    struct kir_arg arg[] = {{s.v, s.n}, {got, s.n}};
    if (!kir_eval(&safe, arg, NULL, NULL, &e)) fail_msg("%s: %s", list, e.msg);
    for (u32 i = 0; i < s.n; i++) {
        double want = kir_round(t, s.v[i]), is = elem_f64(t, got, i);
        if (isnan(want) ? !isnan(is) : want != is || signbit(want) != signbit(is)) fail_msg("%s: %a gives %a, not %a", list, s.v[i], is, want);
    }
    arena_release(&a);
}

static void halves_are_rounded_once(void **state)
{
    assert_true(kir_round(DT_F16, 1 + 0x1p-11 + 0x1p-40) == 1 + 0x1p-10 && kir_round(DT_F16, (float)(1 + 0x1p-11 + 0x1p-40)) == 1); /* lost by rounding to f32 */
    check_narrowing(DT_F16, "cast:f64:f16");
    check_narrowing(DT_F16, "cast:f64:f16 cast:f32:f16");
    check_narrowing(DT_BF16, "cast:f64:bf16");
    check_narrowing(DT_BF16, "cast:f64:bf16 cast:f32:bf16 abs:f64");
}

/* The smallest integer has no negative; and compilers must not recognise an abs here. */
static void check_abs(enum dtype t)
{
    struct arena a = {0};
    struct kir k, safe;
    struct err e = {0};
    struct buf list = {0};
    u8 from[8 * 8] = {0}, to[8 * 8] = {0};
    u64 top = 1ull << (dtype_size(t) * 8 - 1);
    const i64 v[8] = {(i64)top, (i64)(top + 1), (i64)(top - 1), -1, 0, 1, -77, 100};
    for (i64 i = 0; i < 8; i++) elem_set_i64(t, from, i, kir_wrap(t, v[i]));
    kir_init(&k, &a, S("k"));
    kval x = kir_buf(&k, S("x"), t, KA_IN), y = kir_buf(&k, S("y"), t, KA_OUT), g = kir_grid(&k, kir_int(&k, 8));
    kir_store(&k, y, g, kir_un(&k, KI_ABS, kir_load(&k, x, g)));
    kir_end(&k);
    buf_printf(&list, "abs:%s", dtype_name(t));
    if (!kir_avoid(&safe, &a, &k, buf_view(&list), &e) || !kir_verify(&safe, &e)) fail_msg("%s: %s", dtype_name(t), e.msg);
    for (kval at = 1; at < safe.ins.n; at++)
        if (kir_at(&safe, at)->op == KI_ABS || kir_at(&safe, at)->op == KI_SELECT) fail_msg("%s: '%s' is there", dtype_name(t), kir_op_info(kir_at(&safe, at)->op)->name);
    if (!kir_eval(&safe, (struct kir_arg[]){{from, 8}, {to, 8}}, NULL, NULL, &e)) fail_msg("%s: %s", dtype_name(t), e.msg);
    for (i64 i = 0; i < 8; i++) {
        i64 x_i = kir_wrap(t, v[i]), want = dtype_kind(t) == DK_UINT || x_i >= 0 ? x_i : kir_wrap(t, (i64)(0 - (u64)x_i)), is = elem_i64(t, to, i);
        if (want != is) fail_msg("abs of %s: %lld gives %lld, not %lld", dtype_name(t), (long long)x_i, (long long)is, (long long)want);
    }
    buf_release(&list);
    arena_release(&a);
}

static void integers_have_an_abs(void **state)
{
    static const enum dtype types[] = {DT_I8, DT_I16, DT_I32, DT_I64, DT_U8, DT_U16, DT_U32, DT_U64};
    for (i64 i = 0; i < countof(types); i++) check_abs(types[i]);
}

/* A present device, also without 64-bit integers: once its driver's faulty operations are avoided,
   it conforms. */
static void conform_vulkan(bool has_i64)
{
    const struct dev_driver *d = dev_find(S("vulkan"));
    struct arena a = {0};
    struct conformance x;
    struct caps c;
    struct err e = {0};
    if (!d || !dev_ask(d, &(struct dev_opts){0}, &c, NULL, &e)) skip_test("no Vulkan device (mesa-vulkan-drivers)");
    c.has_i64 &= has_i64;
    conform(&x, d, &c, CONFORM_AGAIN, &a);
    struct buf b = {0};
    conform_report(&b, &x);
    printf("%u operations in %.1f s\n%.*s", x.n_cases, x.seconds, STR_ARG(buf_view(&b)));
    buf_release(&b);
    conform_apply(&c, &x);
    conform(&x, d, &c, CONFORM_AGAIN, &a);
    for (u32 i = 0; i < x.found.n; i++)
        if (x.found.v[i].status != CONFORM_REFUSED) fail_msg("%.*s: %.*s", STR_ARG(x.found.v[i].name), STR_ARG(x.found.v[i].why));
    arena_release(&a);
}

static void a_vulkan_device(void **state) { conform_vulkan(true); }
static void a_vulkan_device_without_i64(void **state) { conform_vulkan(false); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(correct_device_passes),         cmocka_unit_test(faults_are_found),
        cmocka_unit_test(crash_loses_one_operation),   cmocka_unit_test(findings_become_limits),
        cmocka_unit_test(second_definitions_are_right), cmocka_unit_test(operation_without_definition_is_rejected),
        cmocka_unit_test(missing_operation_is_replaced),  cmocka_unit_test(wrong_replacement_is_rejected),
        cmocka_unit_test(indirect_fault_is_unchanged),          cmocka_unit_test(definition_with_fault_is_rejected),
        cmocka_unit_test(rejections_have_names),          cmocka_unit_test(invalid_lines_are_ignored),
        cmocka_unit_test(halves_are_rounded_once),      cmocka_unit_test(integers_have_an_abs),
        cmocka_unit_test(a_vulkan_device),              cmocka_unit_test(a_vulkan_device_without_i64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
