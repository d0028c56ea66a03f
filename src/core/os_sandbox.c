// SPDX-License-Identifier: Apache-2.0
//
// The sandbox of processes that run candidates: freshly generated and compiled native code, which may do
// anything if a kernel family or compiler has a bug, or be hostile if the kernel cache was tampered with.
//
// A CPU candidate needs only memory, threads and time. When everything is loaded its process gets a filter
// of system calls (seccomp): listed calls are permitted, calls that would change anything outside of the
// process end it (SIGSYS, a crash like any other), and the rest fails, because libraries make harmless calls
// that they can do without. Open files would stay readable and writable by their number, so they are closed,
// except for the socket. Mappings that other processes see (the database's index of its log) are unmapped.
//
// A vendor's driver does too much for such a list. It is kept from writing to anything but
// devices and the folders that it needs (Landlock), from the network and from other processes.
//
// Neither needs privileges. Both last until the process ends.
#define _GNU_SOURCE
#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Which architecture the numbers of system calls are of. One of 32 bits maps by pages; it runs programs, and no candidates. */
#if defined(__x86_64__)
enum { ARCH = AUDIT_ARCH_X86_64, OTHER_ABI = 0x40000000 /* x32's numbers begin here */ };
#elif defined(__aarch64__)
enum { ARCH = AUDIT_ARCH_AARCH64, OTHER_ABI = 0 };
#else
enum { ARCH = 0, OTHER_ABI = 0 };
#endif
#ifdef SYS_mmap
enum { CALL_MMAP = SYS_mmap };
#else
enum { CALL_MMAP = SYS_mmap2 };
#endif

/* The filter of system calls. */

enum { MAX_FILTER = 512 };
struct filter { struct sock_filter v[MAX_FILTER]; u16 n; };

static void put(struct filter *f, u16 code, u32 k, u8 yes, u8 no)
{
    assert(f->n < MAX_FILTER);
    f->v[f->n++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct filter *f, u32 offset) { put(f, BPF_LD | BPF_W | BPF_ABS, offset, 0, 0); }
static void load_nr(struct filter *f) { load(f, offsetof(struct seccomp_data, nr)); }
/* The low half: flags and descriptors have no more. */
static void load_arg(struct filter *f, u32 i) { load(f, (u32)offsetof(struct seccomp_data, args) + 8 * i); }
static void end_with(struct filter *f, u32 verdict) { put(f, BPF_RET | BPF_K, verdict, 0, 0); }

static const u32 allow = SECCOMP_RET_ALLOW, end = SECCOMP_RET_KILL_PROCESS;
static u32 refuse(u32 why) { return SECCOMP_RET_ERRNO | why; }

/* The number is in the accumulator. */
static void on_call(struct filter *f, u32 nr, u32 verdict)
{
    put(f, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1);
    end_with(f, verdict);
}

static void on_calls(struct filter *f, const int *nr, i64 n, u32 verdict)
{
    for (i64 i = 0; i < n; i++) on_call(f, (u32)nr[i], verdict);
}

/* Of call nr: where argument i is v yes, else no. */
static void on_equal(struct filter *f, u32 nr, u32 i, u32 v, u32 yes, u32 no)
{
    put(f, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 4);
    load_arg(f, i);
    put(f, BPF_JMP | BPF_JEQ | BPF_K, v, 0, 1);
    end_with(f, yes);
    end_with(f, no);
}

/* Of call nr: where argument i has one of the bits yes, else no. */
static void on_bits(struct filter *f, u32 nr, u32 i, u32 bits, u32 yes, u32 no)
{
    put(f, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 4);
    load_arg(f, i);
    put(f, BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    end_with(f, yes);
    end_with(f, no);
}

/* New memory is no file's and never code. */
static void on_mmap(struct filter *f)
{
    put(f, BPF_JMP | BPF_JEQ | BPF_K, CALL_MMAP, 0, 7);
    load_arg(f, 2);
    put(f, BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1);
    end_with(f, refuse(EPERM));
    load_arg(f, 3);
    put(f, BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 0, 1);
    end_with(f, allow);
    end_with(f, refuse(EPERM));
}

/* Memory, threads, time, signals within the process, its end. */
static const int harmless[] = {
    SYS_futex, SYS_sched_yield, SYS_clock_gettime, SYS_nanosleep, SYS_clock_nanosleep, SYS_gettimeofday, SYS_getcpu, SYS_munmap,
    SYS_mremap, SYS_madvise, SYS_brk, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_sigaltstack,
    SYS_restart_syscall, SYS_getpid, SYS_gettid, SYS_getppid, SYS_getrusage, SYS_set_robust_list, SYS_rseq, SYS_membarrier, SYS_getrandom,
    SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sysinfo,
#ifdef SYS_time
    SYS_time, SYS_arch_prctl,
#endif
};

/* Calls that change anything outside, or inspect other processes. */
static const int harmful[] = {
    SYS_execve, SYS_execveat, SYS_kill, SYS_tkill, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_send_signal, SYS_socket,
    SYS_socketpair, SYS_connect, SYS_bind, SYS_openat2, SYS_unlinkat, SYS_renameat2, SYS_mkdirat, SYS_mknodat, SYS_linkat, SYS_symlinkat,
    SYS_fchmodat, SYS_fchownat, SYS_truncate, SYS_ftruncate, SYS_mount, SYS_umount2, SYS_chroot, SYS_unshare, SYS_setns, SYS_bpf,
    SYS_perf_event_open, SYS_io_uring_setup, SYS_shmget, SYS_shmat, SYS_msgget, SYS_semget, SYS_mq_open, SYS_keyctl, SYS_init_module,
    SYS_finit_module, SYS_reboot, SYS_setuid, SYS_setgid, SYS_memfd_create,
#ifdef SYS_fork
    SYS_open, SYS_creat, SYS_fork, SYS_vfork, SYS_unlink, SYS_rename, SYS_renameat, SYS_mkdir, SYS_rmdir, SYS_link, SYS_symlink, SYS_chmod,
    SYS_chown,
#endif
};

static void make_filter(struct filter *f, int fd)
{
    load(f, offsetof(struct seccomp_data, arch));
    put(f, BPF_JMP | BPF_JEQ | BPF_K, (u32)ARCH, 1, 0);
    end_with(f, end);
    load_nr(f);
    if (OTHER_ABI) {
        put(f, BPF_JMP | BPF_JGE | BPF_K, OTHER_ABI, 0, 1);
        end_with(f, end);
    }
    on_calls(f, harmless, countof(harmless), allow);
    on_equal(f, SYS_read, 0, (u32)fd, allow, refuse(EBADF));
    on_equal(f, SYS_write, 0, (u32)fd, allow, refuse(EBADF));
    on_equal(f, SYS_tgkill, 0, (u32)getpid(), allow, end); /* abort */
    on_mmap(f);
    on_bits(f, SYS_mprotect, 2, PROT_EXEC, refuse(EPERM), allow);
    on_bits(f, SYS_clone, 0, CLONE_THREAD, allow, end);
    on_call(f, SYS_clone3, refuse(ENOSYS)); /* its flags are out of sight: the C library falls back to clone */
    on_bits(f, SYS_openat, 2, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, end, refuse(EACCES)); /* the C library looks for hints in files */
    on_calls(f, harmful, countof(harmful), end);
    end_with(f, refuse(EPERM));
}

static bool can_filter(void)
{
    u32 action = SECCOMP_RET_KILL_PROCESS;
    return ARCH != 0 && syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

/* All current and future threads. */
static bool take_filter(int fd)
{
    struct filter f = {.n = 0};
    make_filter(&f, fd);
    const struct sock_fprog prog = {.len = f.n, .filter = f.v};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog) == 0;
}

static void close_others(int fd)
{
    if (fd > 3) close_range(3, (u32)fd - 1, 0);
    close_range((u32)i64_max(fd + 1, 3), ~0u, 0);
}

/* "7f21c8000000-7f21c8008000 rw-s 00000000 fe:01 1234  /home/a/net.db-shm" */
static void unmap_shared(void)
{
    struct arena a = {0};
    struct str text, line;
    if (!os_read(&a, "/proc/self/maps", 64 << 20, &text, NULL)) text = (struct str){0};
    while (text.n) {
        unsigned long long from, to;
        char mode[8];
        str_cut(text, '\n', &line, &text);
        if (sscanf(str_z(&a, line), "%llx-%llx %7s", &from, &to, mode) != 3 || mode[3] != 's') continue;
        munmap((void *)(uintptr_t)from, (size_t)(to - from));
    }
    arena_release(&a);
}

static bool enter_memory(int fd, bool keeps_shared)
{
    mem_of_machine(); /* can be requested now */
    close_others(fd);
    if (!keeps_shared) unmap_shared();
    return take_filter(fd);
}

/* Landlock: rights by numbers, which are newer than many systems' headers. Later versions know more of them. */

enum {
    MAY_WRITE = 1 << 1, MAY_REMOVE_DIR = 1 << 4, MAY_REMOVE_FILE = 1 << 5, MAY_MAKE_CHAR = 1 << 6, MAY_MAKE_DIR = 1 << 7, MAY_MAKE_REG = 1 << 8,
    MAY_MAKE_SOCK = 1 << 9, MAY_MAKE_FIFO = 1 << 10, MAY_MAKE_BLOCK = 1 << 11, MAY_MAKE_SYM = 1 << 12,
    MAY_REFER = 1 << 13,    /* version 2 */
    MAY_TRUNCATE = 1 << 14, /* version 3 */
    NET_BIND = 1, NET_CONNECT = 2, /* version 4 */
    SCOPE_SIGNAL = 2,       /* version 6 */
    ON_FILE = MAY_WRITE | MAY_TRUNCATE, /* rights that apply to files as well as folders */
    MAKE_RULESET_VERSION = 1, RULE_BENEATH = 1,
};
struct ruleset { u64 files, net, scoped; };
struct __attribute__((packed)) beneath { u64 allowed; i32 parent; };

static i64 landlock_version(void) { return syscall(SYS_landlock_create_ruleset, NULL, 0, MAKE_RULESET_VERSION); }

static u64 writing(i64 version)
{
    u64 all = MAY_WRITE | MAY_REMOVE_DIR | MAY_REMOVE_FILE | MAY_MAKE_CHAR | MAY_MAKE_DIR | MAY_MAKE_REG | MAY_MAKE_SOCK | MAY_MAKE_FIFO |
              MAY_MAKE_BLOCK | MAY_MAKE_SYM;
    return all | (version >= 2 ? MAY_REFER : 0) | (version >= 3 ? MAY_TRUNCATE : 0);
}

static void may_write_below(int rules, const char *path, u64 rights)
{
    int fd = path && *path ? open(path, O_PATH | O_CLOEXEC) : -1;
    if (fd < 0) return;
    struct beneath b = {rights, fd};
    if (syscall(SYS_landlock_add_rule, rules, RULE_BENEATH, &b, 0) != 0) { /* it may be no folder */
        b.allowed &= ON_FILE;
        syscall(SYS_landlock_add_rule, rules, RULE_BENEATH, &b, 0);
    }
    close(fd);
}

/* Devices, driver interfaces of the kernel, temporary files, and the code caches of known drivers. */
static void add_folders(int rules, u64 rights)
{
    static const char *const path[] = {"/dev", "/proc", "/sys", "/tmp", "/var/tmp", "/run/nvidia-persistenced"};
    static const char *const variable[] = {"TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "CUDA_CACHE_PATH", "POCL_CACHE_DIR",
                                           "MESA_SHADER_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH", "MIOPEN_USER_DB_PATH",
                                           "MIOPEN_CUSTOM_CACHE_DIR"};
    static const char *const in_home[] = {".cache", ".nv", ".AMD", ".config/miopen"};
    struct arena a = {0};
    const char *home = os_env("HOME");
    for (i64 i = 0; i < countof(path); i++) may_write_below(rules, path[i], rights);
    for (i64 i = 0; i < countof(variable); i++) may_write_below(rules, os_env(variable[i]), rights);
    for (i64 i = 0; i < countof(in_home) && home && *home; i++) may_write_below(rules, str_fmt(&a, "%s/%s", home, in_home[i]).p, rights);
    arena_release(&a);
}

static bool enter_device(void)
{
    i64 version = landlock_version();
    if (version < 1) return false;
    struct ruleset r = {writing(version), version >= 4 ? NET_BIND | NET_CONNECT : 0, version >= 6 ? SCOPE_SIGNAL : 0};
    size_t size = version >= 6 ? sizeof r : version >= 4 ? offsetof(struct ruleset, scoped) : offsetof(struct ruleset, net);
    int rules = (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
    if (rules < 0) return false;
    add_folders(rules, r.files);
    bool ok = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    close(rules);
    return ok;
}

const char *os_sandbox_lacks(enum os_sandbox_kind k)
{
    if (k != OS_SANDBOX_DEVICE) return can_filter() ? NULL : "filters of system calls (seccomp)";
    return landlock_version() >= 1 ? NULL : "rules for files (Landlock)";
}

bool os_sandbox_enter(enum os_sandbox_kind k, int fd)
{
    if (os_sandbox_lacks(k)) return false;
    return k == OS_SANDBOX_DEVICE ? enter_device() : enter_memory(fd, k == OS_SANDBOX_SHARED);
}
