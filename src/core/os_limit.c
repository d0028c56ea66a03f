// SPDX-License-Identifier: Apache-2.0
//
// Limits of child processes. They are a second line of defence: time-outs end what takes too long and the sandbox restricts
// candidates, but a compiler that exhausts memory, or a candidate without a sandbox, must not take the machine down.
//
// The system can bound address space per process, not memory. For compilers it is an absolute bound, for
// candidates the address space of their parent (sanitizers map terabytes) plus the machine's memory.
// Processes are counted per user, so their bound is the current number on the machine plus a margin.
#include "core/os_child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPARE_PROCESSES = 1024, CANDIDATE_HOURS = 8 };
static const i64 most_memory = (i64)8 << 30, least_memory = (i64)2 << 30; /* address space of a compiler */
static const i64 file_most = (i64)1 << 30;

static void add(struct limits *l, int what, i64 most)
{
    assert(l->n < MAX_LIMITS);
    l->v[l->n++] = (struct limit){what, (rlim_t)most};
}

static bool read_small(const char *path, char *out, i64 size)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(out, 1, (size_t)size - 1, f) : 0;
    if (f) fclose(f);
    out[n] = 0;
    return n > 0;
}

/* Processes and threads of the machine, or of the container; 0: not known. "0.20 0.18 0.12 1/80 11206" */
static i64 n_tasks(void)
{
    char text[128];
    const char *slash = read_small("/proc/loadavg", text, sizeof text) ? strchr(text, '/') : NULL;
    return slash ? strtoll(slash + 1, NULL, 10) : 0;
}

static void add_processes(struct limits *l)
{
    i64 n = n_tasks();
    if (n > 0) add(l, RLIMIT_NPROC, n + SPARE_PROCESSES);
}

static i64 pages(int field) /* of /proc/self/statm, in bytes */
{
    char text[128], *at = text;
    i64 n = 0;
    if (!read_small("/proc/self/statm", text, sizeof text)) return 0;
    for (int i = 0; i <= field; i++) n = strtoll(at, &at, 10);
    return n * 4096;
}

i64 os_rss(void) { return pages(1); }

void limits_of_program(struct limits *l, double timeout)
{
    *l = (struct limits){0};
    add(l, RLIMIT_CORE, 0);
    add(l, RLIMIT_FSIZE, file_most);
    add(l, RLIMIT_AS, i64_max(least_memory, i64_min(most_memory, mem_of_machine())));
    if (timeout > 0) add(l, RLIMIT_CPU, (i64)(timeout * os_n_cpus()) + 2);
    add_processes(l);
}

/* Lower existing limits are kept. The hard limit is set, too, so that the child cannot raise it. */
void limits_take(const struct limits *l)
{
    for (u32 i = 0; i < l->n; i++) {
        struct rlimit now;
        if (getrlimit((__rlimit_resource_t)l->v[i].what, &now) != 0) continue;
        if (now.rlim_cur < l->v[i].most && now.rlim_max <= l->v[i].most) continue;
        if (now.rlim_cur > l->v[i].most) now.rlim_cur = l->v[i].most;
        if (now.rlim_max > l->v[i].most) now.rlim_max = l->v[i].most;
        setrlimit((__rlimit_resource_t)l->v[i].what, &now);
    }
}

void os_limit_child(bool has_driver)
{
    struct limits l = {0};
    i64 mapped = pages(0), machine = mem_of_machine();
    add(&l, RLIMIT_CORE, 0);
    add(&l, RLIMIT_FSIZE, file_most);
    add(&l, RLIMIT_CPU, (i64)CANDIDATE_HOURS * 3600 * os_n_cpus());
    if (!has_driver && mapped > 0 && machine < INT64_MAX - mapped) add(&l, RLIMIT_AS, mapped + machine);
    add_processes(&l);
    limits_take(&l);
}
