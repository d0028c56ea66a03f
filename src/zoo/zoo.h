// SPDX-License-Identifier: Apache-2.0
//
// zoo: networks that quern can make itself, as graphs with seeded weights. A plug-in file src/zoo/NAME.c exports one
// `const struct zoo zoo_NAME`. Weights are random unless the network is analytic; the same name gives the same bytes everywhere.
#ifndef QUERN_ZOO_H
#define QUERN_ZOO_H

#include "op/op.h"

struct zoo {
    u32 version;          /* of this struct: 1 */
    const char *name;     /* "oidn-small" */
    const char *summary;  /* one line */
    bool (*build)(struct graph *g, struct err *e); /* into an initialised, empty graph; inputs and outputs set */
};

/* zoo.c: the registry */
const struct zoo *zoo_find(struct str name);  /* NULL: unknown */
const struct zoo *zoo_at(i64 k);              /* k-th, NULL behind the last */

#endif
