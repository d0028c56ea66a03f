// SPDX-License-Identifier: Apache-2.0
//
// io: tensors from and to files. A plug-in file src/io/NAME.c describes one file format and
// exports one `const struct io_format io_NAME`; formats are selected by the suffix of the path.
//
// Files are untrusted: sizes are checked before allocation, and allocations are proportional to the file's
// content. Images become f32 tensors (1, c, h, w) with values as stored; integer samples are scaled to 0..1.
#ifndef QUERN_IO_H
#define QUERN_IO_H

#include "core/core.h"

struct io_format {
    u32 version;         /* 1 */
    const char *suffix;  /* ".npy" */
    /* On entry out holds the requested dtype and shape for formats without a header
       (DT_NONE: unknown); other formats ignore it. The content is in the arena. */
    bool (*read)(struct tensor *out, struct arena *a, struct str bytes, struct err *e);
    bool (*write)(struct buf *out, const struct tensor *t, struct err *e);
};

/* io.c: the registry */
const struct io_format *io_find(const char *path);  /* by suffix, NULL: unknown */
const struct io_format *io_all(i64 k);              /* k-th, NULL after the last */
bool io_read(struct tensor *out, struct arena *a, const char *path, struct err *e);
bool io_write(const struct tensor *t, const char *path, struct err *e);

/* io_image.c: (1, c, h, w), (c, h, w), (h, w) and (1, h, w, c) tensors as images */
struct io_image {
    const struct tensor *t;
    i64 c, h, w;
    i64 step_c, step_h, step_w; /* strides in elements */
};
bool io_image_of(struct io_image *im, const struct tensor *t, struct err *e); /* 1 to 4 channels */
double io_image_get(const struct io_image *im, i64 c, i64 y, i64 x);
bool io_image_new(struct tensor *out, struct arena *a, i64 c, i64 h, i64 w, struct err *e); /* f32 (1, c, h, w) */

/* io_npz.c: the arrays of an .npz file, in the arena */
struct io_npz_array { struct str name; struct tensor t; };
struct io_npz { struct io_npz_array *v; u32 n, cap; };
bool io_npz_read(struct io_npz *out, struct arena *a, struct str bytes, struct err *e);
bool io_npz_write(struct buf *out, const struct io_npz *z, struct err *e); /* io_npz_write.c: appends the file */

/* io_onnx.c: ONNX protobufs, also for import and export */
struct ProtobufCMessageDescriptor;
struct Onnx__TensorProto;
/* Unpacks a message into the arena; NULL on invalid, too deep or too large input. Released with the arena only. */
void *io_onnx_unpack(const struct ProtobufCMessageDescriptor *d, struct arena *a, struct str bytes, struct err *e);
void *io_onnx_read(const struct ProtobufCMessageDescriptor *d, struct arena *a, const struct os_reader *file, struct err *e); /* likewise */
/* beside: folder of external data (NULL: none is permitted). p came from
   io_onnx_unpack with the same arena: raw content is used in place. */
bool io_onnx_tensor(struct tensor *out, struct arena *a, struct Onnx__TensorProto *p, const struct os_beside *beside, struct err *e);
/* ONNX's files of sequences (SequenceProto) and optional values (OptionalProto): tensors, all of them in the arena. */
enum io_list_kind { IO_TENSOR, IO_SEQUENCE, IO_OPTIONAL, IO_OPTIONAL_SEQUENCE };
struct io_list {
    struct tensor *v;
    u32 n, cap;
    bool is_none; /* an optional value without content */
};
bool io_onnx_list(struct io_list *out, struct arena *a, enum io_list_kind kind, struct str bytes, struct err *e);
bool io_read_list(struct io_list *out, struct arena *a, enum io_list_kind kind, const char *path, struct err *e);
/* Fills p (initialised here); dims and raw content are referred to, not copied, or packed into the arena. */
void io_onnx_fill(struct Onnx__TensorProto *p, const struct tensor *t, struct arena *a);

#endif
