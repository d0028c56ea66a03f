// SPDX-License-Identifier: Apache-2.0
//
// Private to art/: shared by the files meta_*.c.
#ifndef QUERN_ART_META_FILE_H
#define QUERN_ART_META_FILE_H

#include "art/meta.h"

#include <meta.pb-c.h>

/* meta_file.c: a MetaFile around a message of either kind. */
bool meta_wrap(struct buf *out, const char *kind, const ProtobufCMessage *m, struct err *e);
void *meta_unwrap(const ProtobufCMessageDescriptor *d, const char *kind, struct arena *a, struct str bytes, struct err *e);
bool meta_is_kind(struct str bytes, const char *kind);
extern const char meta_model_kind[], meta_program_kind[];
struct str meta_text(struct arena *a, const char *z);     /* copy of a protobuf's string */
char *meta_z(struct arena *a, struct str s);
/* A file's entry and its message. */
bool meta_read_entry(struct meta_file *f, struct arena *a, const Quern__File *x, struct err *e);
Quern__File *meta_write_entry(const struct meta_file *f, struct arena *a);

/* meta_pack.c: the packed file: names and ranges of the files in it. */
struct meta_packed { struct str name; struct str bytes; };
struct meta_packed_list { struct meta_packed *v; u32 n, cap; };
bool meta_packed_read(struct meta_packed_list *l, struct arena *a, struct str bytes, struct err *e);
struct meta_piece { struct str name; const struct str *piece; i64 n_piece; };
bool meta_packed_write(const char *path, const struct meta_piece *file, u32 n, struct err *e);

#define META_MODEL_FILE "model.meta"
#define META_SIGNATURE_FILE "model.sig"

#endif
