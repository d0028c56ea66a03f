// SPDX-License-Identifier: Apache-2.0
//
// Packed files: a safetensors file with a tensor per file of the deployment, of type U8, at multiples of 64 bytes and padded to them with zeros, as in
// .dnx. __metadata__ comes first and has the format's name and each file's size, as text. Untrusted: every range is checked here.
#include "art/dnx.h"
#include "art/meta_file.h"

#include <jansson.h>

#include <string.h>

enum { LENGTH = 8 /* bytes of the header's length */, MAX_HEADER = 1 << 28 };

static const char begin[] = "{\"__metadata__\":{\"format\":\"quern-deployment\"";

bool meta_is_packed(struct str bytes)
{
    return bytes.n > LENGTH && str_starts(str_sub(bytes, LENGTH, bytes.n), str_of(begin));
}

/* Reading. */

static bool bad(struct err *e, const char *name, const char *what)
{
    return err_set(e, ERR_INPUT, "invalid packed deployment: '%.100s': %s", name, what);
}

static bool read_one(struct meta_packed *f, struct arena *a, const char *name, const json_t *tensor, const json_t *size, struct str data, struct err *e)
{
    const json_t *range = json_object_get(tensor, "data_offsets");
    i64 n;
    if (!meta_path_is_valid(str_of(name))) return bad(e, name, "path is invalid");
    if (json_array_size(range) != 2) return bad(e, name, "data_offsets are missing");
    json_int_t from = json_integer_value(json_array_get(range, 0)), to = json_integer_value(json_array_get(range, 1));
    if (from < 0 || to < from || to > data.n || from % DNX_ALIGN) return bad(e, name, "data_offsets are outside of the file: it was truncated or changed");
    if (!json_is_string(size) || !str_to_i64(str_of(json_string_value(size)), &n)) return bad(e, name, "size is missing in __metadata__");
    if (n < 0 || n > to - from) return bad(e, name, "size is beyond its data_offsets");
    *f = (struct meta_packed){str_dup(a, str_of(name)), {data.p + from, n}};
    return true;
}

bool meta_packed_read(struct meta_packed_list *l, struct arena *a, struct str bytes, struct err *e)
{
    json_error_t je;
    u64 n = 0;
    const char *name;
    const json_t *tensor;
    *l = (struct meta_packed_list){.n = 0};
    if (!meta_is_packed(bytes)) return err_set(e, ERR_INPUT, "not a packed deployment");
    for (u32 i = 0; i < LENGTH; i++) n |= (u64)(u8)bytes.p[i] << (8 * i);
    if (n > (u64)bytes.n - LENGTH || n > MAX_HEADER) return bad(e, "header", "longer than the file: it was truncated or changed");
    json_t *h = json_loadb(bytes.p + LENGTH, (size_t)n, JSON_REJECT_DUPLICATES, &je);
    if (!h) return err_set(e, ERR_INPUT, "invalid packed deployment: header is not JSON: %s", je.text);
    const json_t *meta = json_object_get(h, "__metadata__");
    struct str data = str_sub(bytes, LENGTH + (i64)n, bytes.n);
    bool ok = true;
    json_object_foreach(h, name, tensor)
        if (ok && strcmp(name, "__metadata__") != 0) ok = read_one(arr_push(a, l), a, name, tensor, json_object_get(meta, name), data, e);
    json_decref(h);
    return ok;
}

/* Writing. */

static i64 size_of(const struct meta_piece *f)
{
    i64 n = 0;
    for (i64 i = 0; i < f->n_piece; i++) n += f->piece[i].n;
    return n;
}

static void put_header(struct buf *b, const struct meta_piece *file, u32 n)
{
    i64 at = 0;
    buf_z(b, begin);
    for (u32 i = 0; i < n; i++) {
        buf_char(b, ',');
        buf_json_str(b, file[i].name);
        buf_printf(b, ":\"%lld\"", (long long)size_of(&file[i]));
    }
    buf_char(b, '}');
    for (u32 i = 0; i < n; i++) {
        i64 padded = round_up(size_of(&file[i]), DNX_ALIGN);
        buf_char(b, ',');
        buf_json_str(b, file[i].name);
        buf_printf(b, ":{\"dtype\":\"U8\",\"shape\":[%lld],\"data_offsets\":[%lld,%lld]}", (long long)padded, (long long)at, (long long)(at + padded));
        at += padded;
    }
    buf_char(b, '}');
}

bool meta_packed_write(const char *path, const struct meta_piece *file, u32 n, struct err *e)
{
    static const char zero[DNX_ALIGN];
    struct arena a = {0};
    struct buf text = {0}, head = {0};
    struct { struct str *v; u32 n, cap; } piece = {0};
    put_header(&text, file, n);
    dnx_put_head(&head, buf_view(&text));
    *arr_push(&a, &piece) = buf_view(&head);
    for (u32 i = 0; i < n; i++) {
        i64 size = size_of(&file[i]);
        for (i64 k = 0; k < file[i].n_piece; k++) *arr_push(&a, &piece) = file[i].piece[k];
        if (size % DNX_ALIGN) *arr_push(&a, &piece) = (struct str){zero, round_up(size, DNX_ALIGN) - size};
    }
    bool ok = !head.failed || err_set(e, ERR_SYSTEM, "not enough memory for '%s'", path);
    ok = ok && os_write_pieces(path, piece.v, piece.n, e);
    buf_release(&text);
    buf_release(&head);
    arena_release(&a);
    return ok;
}
