// SPDX-License-Identifier: Apache-2.0
//
// board.c: what a program on an emulated board needs without a C library: start, output, end, and a count of the instructions that net_run takes (linked with
// --wrap=net_run). Boards: QEMU's mps2-an386, mps2-an500 and mps3-an547 (Arm, semihosting) and virt (RISC-V of 32 bits). QEMU's virtual clock advances a
// nanosecond per instruction (-icount shift=0): SysTick counts its processor clock of 25 or 32 MHz (TICK instructions each), instret instructions.
#include <stddef.h>
#include <stdint.h>

int main(void);
extern uint32_t data_begin[], data_end[], data_load[], bss_begin[], bss_end[], stack_top[];
void start(void);

/* A compiler may call these. */
void *memcpy(void *to, const void *from, size_t n)
{
    uint8_t *t = to;
    const uint8_t *f = from;
    while (n--) *t++ = *f++;
    return to;
}

void *memset(void *to, int x, size_t n)
{
    uint8_t *t = to;
    while (n--) *t++ = (uint8_t)x;
    return to;
}

#ifdef __riscv

static void put(const char *text)
{
    for (; *text; text++) *(volatile uint8_t *)0x10000000 = (uint8_t)*text;
}

static void end(int code)
{
    *(volatile uint32_t *)0x100000 = code ? (uint32_t)code << 16 | 0x3333 : 0x5555;
    for (;;) {}
}

static uint64_t now(void)
{
    uint32_t high, low, again;
    do __asm__ volatile("rdinstreth %0\n\trdinstret %1\n\trdinstreth %2" : "=r"(high), "=r"(low), "=r"(again));
    while (high != again);
    return (uint64_t)high << 32 | low;
}

static void set_up(void) {}
static uint64_t between(uint64_t from, uint64_t to) { return to - from; }

__attribute__((naked, section(".vectors"))) void entry(void)
{
    __asm__("la sp, stack_top\n\tj start");
}

#else

#ifndef TICK
#define TICK 40 /* of 25 MHz */
#endif

static uint32_t semihosting(uint32_t number, const void *argument)
{
    register uint32_t r0 __asm__("r0") = number;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void put(const char *text) { semihosting(4, text); }

static void end(int code)
{
    const uint32_t why[2] = {0x20026, (uint32_t)code};
    semihosting(0x20, why);
    for (;;) {}
}

static volatile uint32_t *const systick = (volatile uint32_t *)0xe000e010; /* control, reload, value */

static void set_up(void)
{
    *(volatile uint32_t *)0xe000ed88 |= 0xf << 20; /* the FPU is on */
    __asm__ volatile("dsb\n\tisb");
    systick[1] = systick[2] = 0xffffff;
    systick[0] = 5;
}

static uint64_t now(void) { return systick[2]; }
static uint64_t between(uint64_t from, uint64_t to) { return (from - to & 0xffffff) * TICK; }

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {stack_top, (const void *)start, (const void *)start, (const void *)start};

#endif

static void put_number(const char *name, uint64_t x)
{
    char text[24];
    char *p = text + sizeof text;
    *--p = 0;
    do *--p = (char)('0' + x % 10), x /= 10;
    while (x);
    put(name);
    put(p);
    put("\n");
}

static uint64_t total;

#ifdef WRAP
void __real_net_run(const void *in, const void *out, void *arena);
void __wrap_net_run(const void *in, const void *out, void *arena)
{
    const uint64_t from = now();
    __real_net_run(in, out, arena);
    total += between(from, now());
}
#endif

void start(void)
{
    for (uint32_t *to = data_begin, *from = data_load; to < data_end;) *to++ = *from++;
    for (uint32_t *to = bss_begin; to < bss_end;) *to++ = 0;
    set_up();
    const int code = main();
    put_number("instructions ", total);
    put_number("exit ", (uint64_t)code);
    end(code);
}
