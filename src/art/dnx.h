// SPDX-License-Identifier: Apache-2.0
//
// Private to art/: shared by writer and reader of .dnx files. The format is described in doc/dnx.md.
#ifndef QUERN_ART_DNX_H
#define QUERN_ART_DNX_H

#include "art/art.h"

enum { DNX_VERSION = 7, DNX_WITHOUT_STATES = 6, DNX_OLDEST = 1, DNX_ALIGN = 64 };

extern const char *const dnx_kind_name[N_PLAN_BUF_KINDS]; /* by enum plan_buf_kind */
extern const char *const dnx_take_name[3]; /* by enum plan_take */
void dnx_put_head(struct buf *b, struct str header); /* its length, its text, spaces up to the alignment */

#endif
