// SPDX-License-Identifier: Apache-2.0
//
// Private to os_*.c: limits and sandboxes of child processes.
#ifndef QUERN_OS_CHILD_H
#define QUERN_OS_CHILD_H

#include "core/core.h"

#include <sys/resource.h>

/* os_limit.c */
enum { MAX_LIMITS = 6 };
struct limit { int what; rlim_t most; };
struct limits { struct limit v[MAX_LIMITS]; u32 n; };
void limits_of_program(struct limits *l, double timeout); /* timeout: seconds; 0: none */
void limits_take(const struct limits *l);                 /* of the calling process; makes system calls only */

/* os_child.c: the parent of this process, if it is an os_child. */
struct owner {
    int fd;    /* socket to it; -1: this process is no os_child */
    int pid;
    int pidfd; /* readable when it has ended; -1: not supported */
};
struct owner owner_of_this(void); /* pidfd is the caller's to close */
bool owner_is_gone(const struct owner *w);

#endif
