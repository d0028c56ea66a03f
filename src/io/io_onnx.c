// SPDX-License-Identifier: Apache-2.0
//
// ONNX protobufs: unpacking of untrusted bytes, and TensorProto in all its
// forms (raw content, typed fields, halves in int32_data, external data).
//
// protobuf-c recurses as deep as the bytes nest and allocates as they demand, so both are bounded here: the bytes are
// traversed once with the descriptors before protobuf-c sees them, and its allocator takes from the arena at most a
// fixed multiple of the input's size. It sees a copy without the large contents of tensors: those are read once, by
// several threads, to their final place. Files are read, never mapped, so concurrent truncation is harmless.
#include <stdatomic.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "io/io.h"

enum {
    MAX_DEPTH = 100,        /* nested messages; models need about ten */
    SMALL_SIZE = 16 << 20,  /* structure: the first bytes may grow by the one factor */
    SMALL_FACTOR = 64,      /* a field of two bytes costs 40 while it is scanned */
    BULK_FACTOR = 16,       /* content: a varint of one byte becomes eight */
    MEMORY_BASE = 1 << 20,  /* added to that */
};

/* Reads a varint; false: cut off or too long. */
static bool wire_varint(struct str s, i64 *at, u64 *out)
{
    *out = 0;
    for (int shift = 0; shift < 70 && *at < s.n; shift += 7) {
        u8 c = (u8)s.p[(*at)++];
        if (shift < 64) *out |= (u64)(c & 0x7f) << shift;
        if (!(c & 0x80)) return true;
    }
    return false;
}

/* Reads a field's key and the length of its content, which begins at *at then; false: broken. A varint's content counts as none. */
static bool wire_key(struct str s, i64 *at, u64 *key, u64 *size)
{
    u64 v = 0;
    if (!wire_varint(s, at, key) || *key >> 3 == 0 || *key >> 32) return false;
    switch (*key & 7) {
    case 0: return *size = 0, wire_varint(s, at, &v);
    case 1: return *size = 8, true;
    case 2: return wire_varint(s, at, size);
    case 5: return *size = 4, true;
    default: return false; /* groups */
    }
}

/* Reads a field's key and skips its content, which is *body where it has a length; false: broken. */
static bool wire_field(struct str s, i64 *at, u64 *key, struct str *body)
{
    u64 v;
    *body = (struct str){0};
    if (!wire_key(s, at, key, &v) || v > (u64)(s.n - *at)) return false;
    if ((*key & 7) == 2) *body = str_sub(s, *at, *at + (i64)v);
    *at += (i64)v;
    return true;
}

/* Large raw contents of tensors do not go through protobuf-c, which would copy them: the bytes are copied without these, with the number of
   each in a field that no tensor has. Then they are read, from a file or from memory, to where they stay. */

enum {
    LARGE = 4096,           /* bytes */
    RAW_DATA = 9,           /* of TensorProto */
    FIELD_NUMBER = (1 << 29) - 1, /* the last one */
    KEY_ROOM = 20,          /* a key and a length, or a key and a varint */
    LENGTH_BYTES = 5,       /* a varint of more bytes than it needs is one, too */
    WINDOW = 1 << 16,
    READ_AT_ONCE = 1 << 22,
    MAX_READERS = 4,
    WORTH_READERS = 16 << 20
};

struct large { i64 from, n, at; }; /* bytes of the source; in the block of all of them */

struct source {
    struct str bytes;             /* p NULL: of the file */
    const struct os_reader *file;
    i64 n;
    char *window;                 /* of the file */
    i64 window_at, window_n;
};

struct skeleton {
    struct source *s;
    struct arena *a;              /* scratch */
    struct buf out;
    struct { struct large *v; u32 n, cap; } large;
    i64 total;                    /* bytes of all */
};

/* n bytes from `at` on, or as many as there are; fewer than asked for at the end of the source only. p NULL: they cannot be read. */
static struct str source_see(struct source *s, i64 at, i64 n)
{
    n = i64_min(n, s->n - at);
    if (s->bytes.p) return str_sub(s->bytes, at, at + n);
    if (at < s->window_at || at + n > s->window_at + s->window_n) {
        s->window_at = at, s->window_n = i64_min(WINDOW, s->n - at);
        if (!os_reader_get(s->file, s->window, s->window_n, at)) return s->window_n = 0, (struct str){0};
    }
    return (struct str){s->window + (at - s->window_at), n};
}

static bool copy_some(struct skeleton *k, i64 at, i64 n)
{
    for (i64 step; n > 0; at += step, n -= step) {
        step = i64_min(n, WINDOW);
        struct str s = source_see(k->s, at, step);
        if (!s.p) return false;
        buf_str(&k->out, s);
    }
    return !k->out.failed;
}

static void put_varint(struct buf *b, u64 v)
{
    for (; v >= 0x80; v >>= 7) buf_char(b, (char)(v | 0x80));
    buf_char(b, (char)v);
}

static void note_large(struct skeleton *k, i64 at, i64 n)
{
    put_varint(&k->out, (u64)FIELD_NUMBER << 3);
    put_varint(&k->out, k->large.n);
    *arr_push(k->a, &k->large) = (struct large){at, n, k->total};
    k->total = round_up(k->total + n, 64);
}

static bool copy_message(struct skeleton *k, const ProtobufCMessageDescriptor *d, i64 at, i64 end, int depth);

/* A message with its length, which is known when it is copied. */
static bool copy_inner(struct skeleton *k, const ProtobufCMessageDescriptor *d, u64 key, i64 at, i64 n, int depth)
{
    put_varint(&k->out, key);
    i64 length_at = k->out.n;
    buf_put(&k->out, "\0\0\0\0", LENGTH_BYTES);
    if (depth >= MAX_DEPTH || !copy_message(k, d, at, at + n, depth + 1) || k->out.failed) return false;
    u64 v = (u64)(k->out.n - length_at - LENGTH_BYTES);
    for (int i = 0; i < LENGTH_BYTES; i++) k->out.p[length_at + i] = (char)((v >> (7 * i) & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
    return v >> (7 * LENGTH_BYTES) == 0;
}

/* The bytes are well-formed fields and do not nest too deeply where the descriptors say "message". */
static bool copy_message(struct skeleton *k, const ProtobufCMessageDescriptor *d, i64 at, i64 end, int depth)
{
    bool is_tensor = d == &onnx__tensor_proto__descriptor;
    while (at < end) {
        u64 key, size;
        i64 used = 0;
        struct str head = source_see(k->s, at, i64_min(KEY_ROOM, end - at));
        if (!head.p || !wire_key(head, &used, &key, &size) || size > (u64)(end - at - used)) return false;
        u64 field = key >> 3;
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(d, (unsigned)field);
        bool ok = true, is_inner = f && f->type == PROTOBUF_C_TYPE_MESSAGE && (key & 7) == 2;
        if (is_inner) ok = copy_inner(k, f->descriptor, key, at + used, (i64)size, depth);
        else if (is_tensor && field == RAW_DATA && (key & 7) == 2 && size >= LARGE) note_large(k, at + used, (i64)size);
        else if (!is_tensor || field != FIELD_NUMBER) ok = copy_some(k, at, used + (i64)size);
        if (!ok) return false;
        at += used + (i64)size;
    }
    return true;
}

/* Reading the large ones. */

struct piece { char *to; i64 from, n; };

struct reading {
    const struct source *s;
    struct piece *v;
    u32 n, cap;
    _Atomic u32 next;
    atomic_bool failed;
};

static void read_next(void *user)
{
    struct reading *r = user;
    for (u32 i = atomic_fetch_add(&r->next, 1); i < r->n; i = atomic_fetch_add(&r->next, 1)) {
        const struct piece *p = &r->v[i];
        if (r->s->bytes.p) memcpy(p->to, r->s->bytes.p + p->from, (size_t)p->n);
        else if (!os_reader_get(r->s->file, p->to, p->n, p->from)) atomic_store(&r->failed, true);
    }
}

static bool read_large(const struct skeleton *k, char *block)
{
    struct os_thread *helper[MAX_READERS] = {NULL};
    struct reading r = {.s = k->s};
    for (u32 i = 0; i < k->large.n; i++)
        for (i64 at = 0; at < k->large.v[i].n; at += READ_AT_ONCE) {
            const struct large *x = &k->large.v[i];
            *arr_push(k->a, &r) = (struct piece){block + x->at + at, x->from + at, i64_min(READ_AT_ONCE, x->n - at)};
        }
    for (i64 i = 1; i < i64_min(MAX_READERS, os_n_cpus()) && k->total >= WORTH_READERS; i++) helper[i] = os_thread_start(read_next, &r);
    read_next(&r);
    for (u32 i = 0; i < MAX_READERS; i++) os_thread_join(helper[i]);
    return !atomic_load(&r.failed);
}

/* The last mention counts, as where protobuf-c reads the content. */
static void place_content(const struct skeleton *k, Onnx__TensorProto *p, char *block)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < p->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *f = &p->base.unknown_fields[i];
        u64 at;
        i64 used = 0;
        if (f->tag != FIELD_NUMBER) {
            p->base.unknown_fields[kept++] = *f;
            continue;
        }
        bool ok = wire_varint((struct str){(const char *)f->data, (i64)f->len}, &used, &at) && at < k->large.n;
        assert(ok), (void)ok;
        p->has_raw_data = 1;
        p->raw_data = (ProtobufCBinaryData){(size_t)k->large.v[at].n, (u8 *)block + k->large.v[at].at};
    }
    p->base.n_unknown_fields = kept;
}

static void place_all(const struct skeleton *k, ProtobufCMessage *m, char *block)
{
    if (m->descriptor == &onnx__tensor_proto__descriptor) place_content(k, (Onnx__TensorProto *)m, block);
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        if (f->type != PROTOBUF_C_TYPE_MESSAGE || f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) continue; /* of types only */
        char *member = (char *)m + f->offset;
        bool is_list = f->label == PROTOBUF_C_LABEL_REPEATED;
        size_t n = is_list ? *(size_t *)((char *)m + f->quantifier_offset) : 1;
        ProtobufCMessage **v = is_list ? *(ProtobufCMessage ***)member : (ProtobufCMessage **)member;
        for (size_t j = 0; j < n; j++)
            if (v[j]) place_all(k, v[j], block);
    }
}

static ProtobufCMessage *unpack_skeleton(const ProtobufCMessageDescriptor *d, struct arena *a, struct str bytes, struct err *e)
{
    struct arena_budget budget = {.a = a, .e = e, .left = MEMORY_BASE + bytes.n * BULK_FACTOR, .what = "the content of a protobuf"};
    budget.left += i64_min(bytes.n, SMALL_SIZE) * SMALL_FACTOR;
    ProtobufCAllocator alloc = {.alloc = arena_budget_alloc, .free = arena_budget_free, .allocator_data = &budget};
    return protobuf_c_message_unpack(d, &alloc, (size_t)bytes.n, (const u8 *)bytes.p);
}

/* The block of all large contents; NULL: memory ends, or they cannot be read. */
static char *read_block(const struct skeleton *k, struct arena *a, struct err *e)
{
    char *block = arena_try(a, k->total + 64, e, "the constants of a model");
    if (!block) return NULL;
    block += (64 - (uintptr_t)block % 64) % 64;
    if (read_large(k, block)) return block;
    err_set(e, ERR_INPUT, "the file was truncated or became unreadable");
    return NULL;
}

static void *unpack_source(const ProtobufCMessageDescriptor *d, struct arena *a, struct source *s, struct err *e)
{
    struct arena scratch = {0};
    struct arena_mark mark = arena_mark(a);
    struct skeleton k = {.s = s, .a = &scratch};
    char *block = NULL;
    if (!s->bytes.p) s->window = arena_alloc(&scratch, WINDOW);
    ProtobufCMessage *m = copy_message(&k, d, 0, s->n, 0) ? unpack_skeleton(d, a, buf_view(&k.out), e) : NULL;
    if (m && k.large.n) block = read_block(&k, a, e);
    if (block) place_all(&k, m, block);
    bool ok = m && (block || !k.large.n);
    if (k.out.failed) err_set(e, ERR_SYSTEM, "not enough memory for a protobuf of %lld bytes", (long long)s->n);
    buf_release(&k.out);
    arena_release(&scratch);
    if (ok) return m;
    arena_rewind(a, mark);
    if (!e->code) err_set(e, ERR_INPUT, "invalid or truncated protobuf (%s)", d->short_name);
    return NULL;
}

void *io_onnx_unpack(const struct ProtobufCMessageDescriptor *d, struct arena *a, struct str bytes, struct err *e)
{
    if (!bytes.p) bytes = S("");
    return unpack_source(d, a, &(struct source){.bytes = bytes, .n = bytes.n}, e);
}

void *io_onnx_read(const struct ProtobufCMessageDescriptor *d, struct arena *a, const struct os_reader *file, struct err *e)
{
    return unpack_source(d, a, &(struct source){.file = file, .n = file->n}, e);
}

/* Tensors. */

static struct str tensor_name(const Onnx__TensorProto *p) { return str_of(p->name); }

static bool bad(const Onnx__TensorProto *p, struct err *e, const char *what)
{
    return err_set(e, ERR_INPUT, "%s: tensor '%.*s'", what, STR_ARG(tensor_name(p)));
}

/* Content in a typed field: its address, element type there, and count. */
struct typed {
    const void *p;
    enum dtype t;
    size_t n;
};

static struct typed typed_field(const Onnx__TensorProto *p, enum dtype t)
{
    switch (t) {
    case DT_F32: return (struct typed){p->float_data, DT_F32, p->n_float_data};
    case DT_F64: return (struct typed){p->double_data, DT_F64, p->n_double_data};
    case DT_I64: return (struct typed){p->int64_data, DT_I64, p->n_int64_data};
    case DT_U32:
    case DT_U64: return (struct typed){p->uint64_data, DT_U64, p->n_uint64_data};
    case DT_U8:
    case DT_I8:
    case DT_U16:
    case DT_I16:
    case DT_I32:
    case DT_BOOL:
    case DT_F16:
    case DT_BF16:
#define Y(id, ...) case DT_##id:
#include "core/dtype_small.inc"
#undef Y
        return (struct typed){p->int32_data, DT_I32, p->n_int32_data};
    case DT_NONE:
    case DT_TF32: /* no type of tensors */
    case N_DTYPES: break;
    }
    unreachable();
}

/* Elements of fewer than 8 bits from the file's bytes. */
static bool unpack(struct tensor *out, struct arena *a, const u8 *packed, struct err *e)
{
    i64 n = tensor_count(out);
    u8 *data = arena_try(a, n, e, "the elements of a tensor of %s", dtype_name(out->dtype));
    if (!data) return false;
    small_unpack(out->dtype, packed, n, data);
    out->data = data;
    return true;
}

/* Those of 2 and 4 bits are a byte of several in each integer, those of 6 one by one. */
static bool read_typed_small(struct tensor *out, struct arena *a, const Onnx__TensorProto *p, struct err *e)
{
    bool is_packed = 8 % dtype_bits(out->dtype) == 0;
    i64 n = tensor_count(out), n_bytes = is_packed ? small_packed_size(out->dtype, n) : n;
    if ((i64)p->n_int32_data != n_bytes) return bad(p, e, "content does not fit the dims");
    u8 *bytes = arena_try(a, n_bytes, e, "tensor '%.*s'", STR_ARG(tensor_name(p)));
    if (!bytes) return false;
    for (i64 k = 0; k < n_bytes; k++) bytes[k] = is_packed ? (u8)p->int32_data[k] : small_clean(out->dtype, (u8)p->int32_data[k]);
    if (is_packed) return unpack(out, a, bytes, e);
    out->data = bytes;
    return true;
}

static bool read_typed(struct tensor *out, struct arena *a, const Onnx__TensorProto *p, struct err *e)
{
    if (dtype_bits(out->dtype) < 8) return read_typed_small(out, a, p, e);
    struct typed f = typed_field(p, out->dtype);
    i64 n = tensor_count(out);
    if ((i64)f.n != n) return bad(p, e, "content does not fit the dims");
    out->data = arena_try(a, tensor_bytes(out), e, "tensor '%.*s'", STR_ARG(tensor_name(p)));
    if (!out->data) return false;
    /* halves and floats of 8 bits lie in the lower bits of the integers; the other integers wrap */
    enum dtype to = dtype_size(out->dtype) == 2 ? DT_U16 : dtype_stored(out->dtype);
    if (n && f.t == out->dtype) memcpy(out->data, f.p, (size_t)tensor_bytes(out));
    for (i64 k = 0; k < n && f.t != out->dtype; k++) elem_set_i64(to, out->data, k, elem_i64(f.t, f.p, k));
    return true;
}

/* Place of external data: "location", "offset", "length". */
struct external {
    struct str location;
    i64 offset, length; /* length -1: not given */
};

static bool read_external_keys(struct external *x, const Onnx__TensorProto *p, struct err *e)
{
    *x = (struct external){.length = -1};
    for (size_t k = 0; k < p->n_external_data; k++) {
        struct str key = str_of(p->external_data[k]->key), v = str_of(p->external_data[k]->value);
        bool ok = true;
        if (str_is(key, "location")) x->location = v;
        if (str_is(key, "offset")) ok = str_to_i64(v, &x->offset) && x->offset >= 0;
        if (str_is(key, "length")) ok = str_to_i64(v, &x->length) && x->length >= 0;
        if (!ok) return bad(p, e, "invalid external data entry");
    }
    return true;
}

/* A relative path that stays in the folder. */
static bool location_ok(struct str s)
{
    struct str head, rest = s;
    if (s.n == 0 || s.p[0] == '/') return false;
    for (i64 k = 0; k < s.n; k++)
        if (s.p[k] == '\\' || s.p[k] == ':') return false;
    for (bool more = true; more;) {
        more = str_cut(rest, '/', &head, &rest);
        if (str_is(head, "..")) return false;
    }
    return true;
}

static bool read_external(struct tensor *out, struct arena *a, const Onnx__TensorProto *p, const struct os_beside *beside,
                          struct err *e)
{
    struct external x;
    i64 size = small_packed_size(out->dtype, tensor_count(out));
    if (!beside) return bad(p, e, "external data without a folder");
    if (!read_external_keys(&x, p, e)) return false;
    if (!location_ok(x.location)) return bad(p, e, "external data outside of the model's folder");
    if (x.length >= 0 && x.length != size) return bad(p, e, "external data does not fit the dims");
    bool is_packed = dtype_bits(out->dtype) < 8;
    struct arena own = {0};
    u8 *bytes = arena_try(a, i64_max(size, tensor_bytes(out)), e, "external data of tensor '%.*s'", STR_ARG(tensor_name(p)));
    u8 *packed = bytes && is_packed ? arena_try(&own, size, e, "external data of tensor '%.*s'", STR_ARG(tensor_name(p))) : bytes;
    bool ok = packed && (os_read_beside(beside, x.location, x.offset, packed, size, e) || err_prefix(e, "tensor '%.*s'", STR_ARG(tensor_name(p))));
    if (ok && is_packed) small_unpack(out->dtype, packed, tensor_count(out), bytes);
    out->data = bytes;
    arena_release(&own);
    return ok;
}

static bool read_shape(struct tensor *out, const Onnx__TensorProto *p, struct err *e)
{
    *out = (struct tensor){.dtype = dtype_from_onnx(p->has_data_type ? p->data_type : 0)};
    if (out->dtype == DT_NONE)
        return err_set(e, ERR_UNSUPPORTED, "elements of type %s are not supported: tensor '%.*s'",
                       dtype_onnx_name(p->has_data_type ? p->data_type : 0), STR_ARG(tensor_name(p)));
    if (p->n_dims > MAX_RANK) return bad(p, e, "rank over 8");
    out->rank = (u32)p->n_dims;
    for (u32 k = 0; k < out->rank; k++) out->dim[k] = p->dims[k];
    if (!tensor_size_ok(out->dtype, out->rank, out->dim, NULL)) return bad(p, e, "invalid dims");
    return true;
}

/* Any byte but 0 is true, elsewhere only 1 is. */
static void normalise_bools(struct tensor *t)
{
    u8 *p = t->data;
    i64 n = t->dtype == DT_BOOL ? tensor_count(t) : 0;
    for (i64 k = 0; k < n; k++) p[k] = p[k] != 0;
}

bool io_onnx_tensor(struct tensor *out, struct arena *a, struct Onnx__TensorProto *p, const struct os_beside *beside, struct err *e)
{
    if (!read_shape(out, p, e)) return false;
    if (p->segment) return err_set(e, ERR_UNSUPPORTED, "segmented tensor '%.*s'", STR_ARG(tensor_name(p)));
    bool ok = true;
    if (p->has_data_location && p->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        ok = read_external(out, a, p, beside, e);
    } else if (p->has_raw_data && p->raw_data.len > 0) {
        ok = (i64)p->raw_data.len == small_packed_size(out->dtype, tensor_count(out)) ||
             bad(p, e, "content does not fit the dims");
        if (ok && dtype_bits(out->dtype) < 8) ok = unpack(out, a, p->raw_data.data, e);
        else out->data = p->raw_data.data;
    } else {
        ok = read_typed(out, a, p, e);
    }
    if (ok) normalise_bools(out);
    return ok;
}

void io_onnx_fill(struct Onnx__TensorProto *p, const struct tensor *t, struct arena *a)
{
    i64 n = tensor_count(t), size = small_packed_size(t->dtype, n);
    onnx__tensor_proto__init(p);
    p->n_dims = t->rank;
    p->dims = (int64_t *)(uintptr_t)t->dim;
    p->has_data_type = 1;
    p->data_type = dtype_onnx(t->dtype);
    p->has_raw_data = 1;
    p->raw_data.len = (size_t)size;
    p->raw_data.data = t->data;
    if (dtype_bits(t->dtype) >= 8) return;
    p->raw_data.data = arena_alloc(a, size);
    small_pack(t->dtype, t->data, n, p->raw_data.data);
}

/* Sequences and optional values. Their messages (onnx-data.proto) hold one another to any depth, of which one of each is a value that
   networks take: they are read here field by field. Fields have the same numbers in both. */

enum { FIELD_TENSOR = 3, FIELD_SEQUENCE = 5, FIELD_LAST = 7, MAX_LIST = 4096 };

static bool bad_list(struct err *e, bool is_optional)
{
    return err_set(e, ERR_INPUT, "invalid or truncated protobuf (%s)", is_optional ? "OptionalProto" : "SequenceProto");
}

static bool list_tensor(struct io_list *out, struct arena *a, struct str bytes, struct err *e)
{
    struct tensor t;
    if (out->n == MAX_LIST) return err_set(e, ERR_UNSUPPORTED, "sequence of more than %d elements", MAX_LIST);
    Onnx__TensorProto *p = io_onnx_unpack(&onnx__tensor_proto__descriptor, a, bytes, e);
    if (!p || !io_onnx_tensor(&t, a, p, NULL, e)) return err_prefix(e, "element %u", out->n);
    *arr_push(a, out) = t;
    return true;
}

bool io_onnx_list(struct io_list *out, struct arena *a, enum io_list_kind kind, struct str bytes, struct err *e)
{
    bool is_optional = kind == IO_OPTIONAL || kind == IO_OPTIONAL_SEQUENCE;
    u64 wanted = kind == IO_OPTIONAL_SEQUENCE ? FIELD_SEQUENCE : FIELD_TENSOR, key;
    struct str body;
    *out = (struct io_list){.is_none = is_optional};
    assert(kind != IO_TENSOR);
    for (i64 at = 0; at < bytes.n;) {
        if (!wire_field(bytes, &at, &key, &body)) return bad_list(e, is_optional);
        if (key >> 3 < FIELD_TENSOR || key >> 3 > FIELD_LAST) continue; /* name, type of the elements */
        if ((key & 7) != 2) return bad_list(e, is_optional);
        if (key >> 3 != wanted) return err_set(e, ERR_INPUT, "content has another type than the network declares");
        if (is_optional && !out->is_none) return err_set(e, ERR_INPUT, "optional value with more than one content");
        out->is_none = false;
        if (wanted == FIELD_SEQUENCE ? !io_onnx_list(out, a, IO_SEQUENCE, body, e) : !list_tensor(out, a, body, e)) return false;
    }
    return true;
}

bool io_read_list(struct io_list *out, struct arena *a, enum io_list_kind kind, const char *path, struct err *e)
{
    struct os_file file = {0};
    if (!os_map(&file, path, e)) return false;
    bool ok = io_onnx_list(out, a, kind, (struct str){(const char *)file.p, file.n}, e);
    os_unmap(&file);
    return ok || err_prefix(e, "'%s'", path);
}
