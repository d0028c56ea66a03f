// SPDX-License-Identifier: Apache-2.0
//
// Out of memory. Checking every small allocation of a compiler is infeasible, and
// unwinding from anywhere would lose devices, files and locks. So there are two ways:
//
// - Large data (models, constants, tensors, plans) is asked for by arena_try, tensor_try and mem_aligned, whose failure is
//   reported.
// - Everything else draws on a reserve: address space that is held since the first call of the library and never touched, so that it
//   costs no memory. When the system refuses a request, the reserve is given back to it and the request is made again.
//   Between two steps of its work (a node, a pass, a task, a kernel) every stage asks mem_check, which from then on fails with
//   ERR_SYSTEM, and the call ends as it does for any other error. The next one takes the reserve again; if it cannot, it fails at its first check.
//
// Only a process that needs more than the reserve between two checks is aborted. Unwinding by longjmp would have to know everything that
// a call holds.
//
// Memory belongs to the process, not to a context, and so does the reserve: all threads share it, and when one draws on it the calls
// in the others end, too. States: never taken; held; drawn. Nothing waits for a lock.
#include "core/core.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RESERVE = 64 << 20 };

static _Atomic(char *) held;      /* NULL: never taken, or drawn */
static atomic_bool was_taken;
static atomic_llong machine_size; /* 0: not requested yet */
static atomic_llong refused_size; /* bytes of the request that drew it */
static atomic_llong fail_least, fail_in; /* for tests: see mem_fail */

void mem_prepare(void)
{
    if (atomic_load(&held)) return;
    char *p = mmap(NULL, RESERVE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *none = NULL;
    if (p == MAP_FAILED) atomic_store(&refused_size, RESERVE);
    else if (!atomic_compare_exchange_strong(&held, &none, p)) munmap(p, RESERVE); /* another thread was first */
    atomic_store(&was_taken, true);
}

static void draw(i64 size)
{
    char *p = atomic_exchange(&held, NULL);
    if (!p) return;
    atomic_store(&refused_size, size);
    munmap(p, RESERVE);
}

bool mem_check(struct err *e, const char *what, struct str name)
{
    if (e && stop_is_set(e->stop)) return err_set(e, ERR_STOPPED, "stopped");
    if (atomic_load(&held) || !atomic_load(&was_taken)) return true;
    return err_set(e, ERR_SYSTEM, "not enough memory: the system refused %lld bytes%s%s%.*s", (long long)atomic_load(&refused_size),
                   *what ? ", " : "", what, STR_ARG(name));
}

i64 mem_of_machine(void)
{
    i64 known = atomic_load(&machine_size); /* a candidate's process may not query any more */
    if (known) return known;
    i64 pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE), bytes;
    bool ok = pages > 0 && size > 0 && !__builtin_mul_overflow(pages, size, &bytes);
    atomic_store(&machine_size, ok ? bytes : INT64_MAX);
    return atomic_load(&machine_size);
}

i64 mem_fail(i64 nth, i64 least)
{
    i64 left = atomic_exchange(&fail_in, 0);
    atomic_store(&fail_least, least);
    atomic_store(&fail_in, nth);
    return i64_max(left, 0);
}

/* Whether a test wants this allocation to fail. */
static bool is_failed(i64 size)
{
    return atomic_load(&fail_in) > 0 && size >= atomic_load(&fail_least) && atomic_fetch_sub(&fail_in, 1) == 1;
}

bool mem_is_addressable(i64 size)
{
    static const i64 most = PTRDIFF_MAX;
    return size >= 0 && size <= most;
}

void *mem_request(void *old, i64 size)
{
    return is_failed(size) || !mem_is_addressable(size) ? NULL : old ? realloc(old, (size_t)size) : calloc(1, (size_t)size);
}

void *mem_request_small(void *old, i64 size)
{
    void *p = mem_request(old, size);
    if (p) return p;
    draw(size);
    return mem_request(old, size);
}
