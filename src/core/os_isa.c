// SPDX-License-Identifier: Apache-2.0
//
// The processor's feature words, and those of the system about saved registers, which isa.c
// interprets. From the processor itself (cpuid, xgetbv) if a program may query it, else from
// the auxiliary vector. Not from /proc/cpuinfo, which process emulators leave as on the host.
#include "core/core.h"

#if defined __x86_64__ || defined __i386__

#if defined __i386__ && !defined __SSE2_MATH__
#error "x87 rounds to other precisions than kernels: -msse2 -mfpmath=sse"
#endif

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static u64 saved_registers(void) /* XCR0 */
{
    u32 low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (u64)high << 32 | low;
}

/* Linux saves the contents of tiles only for processes that ask for it; threads and children of one that did may use them, too. It refuses where an
   alternate signal stack is too small (Documentation/arch/x86/xstate.rst). Asking again is harmless. */
static bool may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

void os_isa(struct os_isa *o)
{
    u32 a, b, c, d, most_7 = 0;
    enum { SSE2 = 26, OSXSAVE = 27, AMX_TILE = 24 };
    const u64 state_tile = 3 << 17;
    *o = (struct os_isa){.family = sizeof(void *) == 8 ? ISA_X86_64 : ISA_NONE};
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    if (sizeof(void *) == 4 && d >> SSE2 & 1) o->family = ISA_X86; /* without it the processor is of no kind that there is code for */
    o->word[OS_ISA_1_ECX] = c;
    if (c >> OSXSAVE & 1) o->state = saved_registers();
    if (__get_cpuid_count(7, 0, &most_7, &b, &c, &d)) {
        o->word[OS_ISA_7_EBX] = b;
        o->word[OS_ISA_7_ECX] = c;
        o->word[OS_ISA_7_EDX] = d;
        if (d >> AMX_TILE & 1 && (o->state & state_tile) && !may_use_tiles()) o->state &= ~state_tile;
    }
    if (most_7 >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        o->word[OS_ISA_7_1_EAX] = a;
        o->word[OS_ISA_7_1_EDX] = d;
    }
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) o->word[OS_ISA_EXT_ECX] = c;
}

#else

#include <sys/auxv.h>
#include <sys/prctl.h>

/* Bit n: SVE's registers have n times 16 bytes; 0: the processor has none, or the system does not say. */
static u64 sve_length(void)
{
#ifdef PR_SVE_GET_VL
    int n = prctl(PR_SVE_GET_VL);
    return n > 0 ? 1ull << ((n & PR_SVE_VL_LEN_MASK) / 16 & 63) : 0;
#else
    return 0;
#endif
}

void os_isa(struct os_isa *o)
{
    *o = (struct os_isa){0};
#if defined __aarch64__
    o->family = ISA_AARCH64;
#elif defined __ARM_ARCH_7A__ || (defined __arm__ && __ARM_ARCH >= 8)
    o->family = ISA_ARMV7; /* or a later one in its mode of 32 bits, which has the same words */
#elif defined __riscv && __riscv_xlen == 64
    o->family = ISA_RISCV64;
#endif
    o->word[OS_ISA_HWCAP] = getauxval(AT_HWCAP);
    o->word[OS_ISA_HWCAP2] = getauxval(AT_HWCAP2);
    if (o->family == ISA_AARCH64) o->state = sve_length();
}

#endif
