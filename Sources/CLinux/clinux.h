// System calls and constants that the C library's module map lacks. Every call returns what the kernel
// returns: zero or more, or the negated errno, so that no caller depends on reading errno in time.

#ifndef CLINUX_H
#define CLINUX_H

// Only the kernel's own headers are included: declarations from a header of the C library would belong to
// this module as well as to Glibc, and whether a Swift file that imports only one of them sees them would
// depend on the build.
#include <asm/unistd.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/ioctl.h>
#include <linux/netlink.h>
#include <linux/inet_diag.h>
#include <linux/perf_event.h>
#include <linux/sock_diag.h>
#include <linux/types.h>
#include <linux/unix_diag.h>

// The numbers are the same on all architectures; headers older than the call lack them.
#ifndef __NR_pidfd_send_signal
#define __NR_pidfd_send_signal 424
#endif
#ifndef __NR_fsopen
#define __NR_fsopen 430
#endif
#ifndef __NR_fsconfig
#define __NR_fsconfig 431
#endif
#ifndef __NR_fsmount
#define __NR_fsmount 432
#endif
#ifndef __NR_pidfd_open
#define __NR_pidfd_open 434
#endif
#ifndef __NR_pidfd_getfd
#define __NR_pidfd_getfd 438
#endif
#ifndef __NR_process_madvise
#define __NR_process_madvise 440
#endif
#ifndef __NR_close_range
#define __NR_close_range 436
#endif
#ifndef __NR_process_mrelease
#define __NR_process_mrelease 448
#endif

// syscall(2) and errno(3) of the C library under our own names, for the reason above.
extern long clinux_syscall(long number, ...) __asm__("syscall");
extern int *clinux_errno(void) __asm__("__errno_location");

static inline int clinux_result(long result) {
    return result < 0 ? -*clinux_errno() : (int)result;
}

// Since Linux 5.3; glibc has a wrapper only since 2.36, in a header outside its module map.
static inline int clinux_pidfd_open(int pid, unsigned int flags) {
    return clinux_result(clinux_syscall(__NR_pidfd_open, pid, flags));
}

// Since Linux 5.9; the C library declares it only for _GNU_SOURCE.
static inline int clinux_close_range(unsigned int first) {
    return clinux_result(clinux_syscall(__NR_close_range, first, ~0U, 0U));
}

// pipe2(2), which the C library declares only for _GNU_SOURCE.
static inline int clinux_pipe(int ends[2], int flags) {
    return clinux_result(clinux_syscall(__NR_pipe2, ends, flags));
}

// struct statx, defined here because <linux/stat.h> also defines the mode bits, which belong to Glibc.
struct clinux_statx {
    __u32 mask, blksize;
    __u64 attributes;
    __u32 nlink, uid, gid;
    __u16 mode, spare0;
    __u64 ino, size, blocks, attributes_mask;
    __u64 times[8];
    __u32 rdev_major, rdev_minor, dev_major, dev_minor;
    __u64 spare[14];
};

_Static_assert(sizeof(struct clinux_statx) == 256, "struct statx");

// statx(2) with AT_STATX_DONT_SYNC from AT_FDCWD, for STATX_INO: a file system over the network, or FUSE, is not asked
// for what is known of the file.
static inline int clinux_stat_unsynced(const char *path, struct clinux_statx *status) {
    return clinux_result(clinux_syscall(__NR_statx, -100, path, 0x4000, 0x100, status));
}

// xattr(7), of a file that is not a symbolic link. The C library's module map lacks its header.
static inline int clinux_set_attribute(const char *path, const char *name, const void *value, unsigned long size) {
    return clinux_result(clinux_syscall(__NR_lsetxattr, path, name, value, size, 0));
}

// Returns the size of its value, -ENODATA if it is not set, and -ERANGE if there is no room for it.
static inline int clinux_get_attribute(const char *path, const char *name, void *value, unsigned long size) {
    return clinux_result(clinux_syscall(__NR_lgetxattr, path, name, value, size));
}

static inline int clinux_remove_attribute(const char *path, const char *name) {
    return clinux_result(clinux_syscall(__NR_lremovexattr, path, name));
}

// fcntl(2), "File Sealing". A hugetlbfs file can be sealed as well, and is read like any other file.
#define CLINUX_F_GET_SEALS (1024 + 10)
static inline int clinux_get_seals(int file) {
    return clinux_result(clinux_syscall(__NR_fcntl, file, CLINUX_F_GET_SEALS));
}

// F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE.
static inline int clinux_all_seals(void) {
    return 0x0001 | 0x0002 | 0x0004 | 0x0008;
}

// Since Linux 5.6: a copy of a process's descriptor, close-on-exec.
static inline int clinux_pidfd_getfd(int pidfd, int number) {
    return clinux_result(clinux_syscall(__NR_pidfd_getfd, pidfd, number, 0));
}

// Uses CLOCK_REALTIME; `flags` are those of open(2).
static inline int clinux_timerfd_create(int flags) {
    return clinux_result(clinux_syscall(__NR_timerfd_create, 0, flags));
}

// TFD_TIMER_ABSTIME and TFD_TIMER_CANCEL_ON_SET: <linux/timerfd.h> brings the flags of open(2), which are Glibc's.
#define CLINUX_TIMERFD_FLAGS 3

// Arms the timer for a moment, in seconds since 1970, and for each time that the clock is set.
static inline int clinux_timerfd_arm(int timer, long seconds) {
    long value[4] = {0, 0, seconds, 0};
    return clinux_result(clinux_syscall(
        __NR_timerfd_settime, timer, CLINUX_TIMERFD_FLAGS, value, 0));
}

// Since Linux 5.1; without a siginfo the kernel fills one in, as kill(2) does.
static inline int clinux_pidfd_send_signal(int pidfd, int signal) {
    return clinux_result(clinux_syscall(__NR_pidfd_send_signal, pidfd, signal, (void *)0, 0));
}

// struct pidfd_info of Linux 6.13 in its first size, defined here because Debian 12's headers (6.1) lack it: the kernel
// accepts every size from this one on. exit_code was spare until 6.15, and has a meaning only if CLINUX_PIDFD_INFO_EXIT
// is set in the mask that comes back.
struct clinux_pidfd_info {
    __u64 mask;
    __u64 cgroupid;
    __u32 pid, tgid, ppid;
    __u32 ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
    __s32 exit_code;
};

_Static_assert(sizeof(struct clinux_pidfd_info) == 64, "PIDFD_INFO_SIZE_VER0");

#define CLINUX_PIDFD_INFO_CREDS ((__u64)1 << 1)
#define CLINUX_PIDFD_INFO_EXIT ((__u64)1 << 3)
#define CLINUX_PIDFD_GET_INFO _IOWR(0xFF, 11, struct clinux_pidfd_info)

// Functions, because Swift does not import macros that compute.
static inline __u64 clinux_pidfd_info_credentials(void) {
    return CLINUX_PIDFD_INFO_CREDS;
}

static inline __u64 clinux_pidfd_info_exit(void) {
    return CLINUX_PIDFD_INFO_EXIT;
}

// ioctl(2) takes variable arguments, which Swift does not import for a pointer to one of our structures.
static inline int clinux_pidfd_get_info(int pidfd, struct clinux_pidfd_info *info) {
    return clinux_result(clinux_syscall(__NR_ioctl, pidfd, CLINUX_PIDFD_GET_INFO, info));
}

// perf_event_attr consists of bit fields and unions, so it is filled in here. One tracepoint on one CPU, every process;
// each record carries the sender (PERF_SAMPLE_TID) and the tracepoint's raw fields, and wakes us.
static inline int clinux_open_tracepoint(__u64 id, int cpu) {
    struct perf_event_attr attr;
    __builtin_memset(&attr, 0, sizeof(attr));
    attr.size = sizeof(attr);
    attr.type = PERF_TYPE_TRACEPOINT;
    attr.config = id;
    attr.sample_period = 1;
    attr.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_RAW;
    attr.wakeup_events = 1;
    attr.disabled = 1;
    return clinux_result(clinux_syscall(__NR_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC));
}

// Makes a permitted capability of this thread effective or not. Returns whether it was effective, or a negative errno.
static inline int clinux_set_effective(__u32 number, int wanted) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    int result = clinux_result(clinux_syscall(__NR_capget, &header, data));
    if (result < 0)
        return result;
    __u32 mask = 1u << (number % 32);
    int was = (data[number / 32].effective & mask) != 0;
    if (wanted)
        data[number / 32].effective |= mask & data[number / 32].permitted;
    else
        data[number / 32].effective &= ~mask;
    result = clinux_result(clinux_syscall(__NR_capset, &header, data));
    return result < 0 ? result : was;
}

// Page faults of all processes on one CPU, with a record for every `period` of them; disabled.
static inline int clinux_open_page_faults(__u64 period, int cpu) {
    struct perf_event_attr attr;
    __builtin_memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_PAGE_FAULTS;
    attr.sample_period = period;
    attr.wakeup_events = 1;
    attr.disabled = 1;
    return clinux_result(clinux_syscall(__NR_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC));
}

// The request numbers are computed macros, which Swift does not import.
static inline int clinux_perf_set_period(int event, __u64 period) {
    return clinux_result(clinux_syscall(__NR_ioctl, event, PERF_EVENT_IOC_PERIOD, &period));
}

static inline int clinux_perf_set_filter(int event, const char *filter) {
    return clinux_result(clinux_syscall(__NR_ioctl, event, PERF_EVENT_IOC_SET_FILTER, filter));
}

static inline int clinux_perf_enable(int event) {
    return clinux_result(clinux_syscall(__NR_ioctl, event, PERF_EVENT_IOC_ENABLE, 0));
}

static inline int clinux_perf_disable(int event) {
    return clinux_result(clinux_syscall(__NR_ioctl, event, PERF_EVENT_IOC_DISABLE, 0));
}

// Swift has no barriers for memory that the kernel writes: the data before data_head is complete once
// data_head is read with acquire …
static inline __u64 clinux_perf_head(const void *page) {
    return __atomic_load_n(&((const struct perf_event_mmap_page *)page)->data_head, __ATOMIC_ACQUIRE);
}

static inline __u64 clinux_perf_tail(const void *page) {
    return __atomic_load_n(&((const struct perf_event_mmap_page *)page)->data_tail, __ATOMIC_RELAXED);
}

// … and the kernel may overwrite it only once data_tail is stored with release.
static inline void clinux_perf_set_tail(void *page, __u64 tail) {
    __atomic_store_n(&((struct perf_event_mmap_page *)page)->data_tail, tail, __ATOMIC_RELEASE);
}

// The mount calls of Linux 5.2 are in <sys/mount.h> and <linux/mount.h>, which cannot be included together
// with every C library; the few numbers are part of the kernel's interface.
static inline int clinux_fsopen(const char *filesystem) {
    return clinux_result(clinux_syscall(__NR_fsopen, filesystem, 1 /* FSOPEN_CLOEXEC */));
}

static inline int clinux_fsconfig_create(int context) {
    return clinux_result(
        clinux_syscall(__NR_fsconfig, context, 6 /* FSCONFIG_CMD_CREATE */, (void *)0, (void *)0, 0));
}

// A mount that is not attached anywhere, read-only, without suid, devices and programs: it ends with its
// descriptor.
static inline int clinux_fsmount(int context) {
    return clinux_result(clinux_syscall(
        __NR_fsmount, context, 1 /* FSMOUNT_CLOEXEC */,
        0x1 | 0x2 | 0x4 | 0x8 /* MOUNT_ATTR_RDONLY, NOSUID, NODEV, NOEXEC */));
}

// A request of sock_diag(7) for sockets of the family AF_UNIX, as it is sent.
struct clinux_unix_diag_request {
    struct nlmsghdr header;
    struct unix_diag_req body;
};

_Static_assert(sizeof(struct clinux_unix_diag_request) == 40, "no padding between the parts");

// The same for sockets of the families AF_INET and AF_INET6.
struct clinux_inet_diag_request {
    struct nlmsghdr header;
    struct inet_diag_req_v2 body;
};

_Static_assert(sizeof(struct clinux_inet_diag_request) == 72, "no padding between the parts");

// Makes a socket of NETLINK_KOBJECT_UEVENT receive the kernel's messages that a CPU is online, and nothing else. A
// message begins with `online@/devices/system/cpu/`: seven words, loaded in network byte order. The numbers of the
// options are parameters, because their header is the C library's too.
static inline int clinux_hear_of_cpus(int socket, int level, int attach_filter, __u16 family) {
    struct sock_filter code[] = {
        {0x20, 0, 0, 0},  {0x15, 0, 13, 0x6f6e6c69}, // onli
        {0x20, 0, 0, 4},  {0x15, 0, 11, 0x6e65402f}, // ne@/
        {0x20, 0, 0, 8},  {0x15, 0, 9, 0x64657669},  // devi
        {0x20, 0, 0, 12}, {0x15, 0, 7, 0x6365732f},  // ces/
        {0x20, 0, 0, 16}, {0x15, 0, 5, 0x73797374},  // syst
        {0x20, 0, 0, 20}, {0x15, 0, 3, 0x656d2f63},  // em/c
        {0x20, 0, 0, 24}, {0x15, 0, 1, 0x70752f63},  // pu/c
        {0x06, 0, 0, 0x7fffffff}, {0x06, 0, 0, 0},
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    struct sockaddr_nl address = {.nl_family = family, .nl_groups = 1};
    int result = clinux_result(
        clinux_syscall(__NR_setsockopt, socket, level, attach_filter, &program, sizeof(program)));
    if (result < 0)
        return result;
    return clinux_result(clinux_syscall(__NR_bind, socket, &address, sizeof(address)));
}

// epoll(7) is outside of Glibc's module map, and the kernel's header for it brings the O_ constants along, which are
// Glibc's. The structure is packed only on x86-64.
struct clinux_epoll_event {
    __u32 events;
    __u64 data;
}
#ifdef __x86_64__
__attribute__((packed))
#endif
;

#define CLINUX_EPOLLIN 1
#define CLINUX_EPOLL_CTL_ADD 1
#define CLINUX_EPOLL_CTL_DEL 2
// O_CLOEXEC, the same on every architecture that Debian releases.
#define CLINUX_EPOLL_CLOEXEC 02000000

static inline int clinux_epoll_create(void) {
    return clinux_result(clinux_syscall(__NR_epoll_create1, CLINUX_EPOLL_CLOEXEC));
}

static inline int clinux_epoll_add(int epoll, int descriptor, __u64 number) {
    struct clinux_epoll_event event = {.events = CLINUX_EPOLLIN, .data = number};
    return clinux_result(clinux_syscall(__NR_epoll_ctl, epoll, CLINUX_EPOLL_CTL_ADD, descriptor, &event));
}

static inline int clinux_epoll_remove(int epoll, int descriptor) {
    struct clinux_epoll_event event = {.events = 0};
    return clinux_result(clinux_syscall(__NR_epoll_ctl, epoll, CLINUX_EPOLL_CTL_DEL, descriptor, &event));
}

// One event, without waiting; 1 and its number, or 0. epoll_pwait, because newer architectures lack epoll_wait.
static inline int clinux_epoll_next(int epoll, __u64 *number) {
    struct clinux_epoll_event event;
    int count = clinux_result(clinux_syscall(__NR_epoll_pwait, epoll, &event, 1, 0, (void *)0, 0));
    if (count == 1) *number = event.data;
    return count;
}

// Since Linux 5.10; ranges are struct iovec of the C library, and the result is in bytes: at most 2 GiB less a page.
// More needs further calls.
static inline int clinux_process_madvise(int pidfd, const void *ranges, unsigned long count, int advice) {
    return clinux_result(clinux_syscall(__NR_process_madvise, pidfd, ranges, count, advice, 0));
}

// Since Linux 5.15.
static inline int clinux_process_mrelease(int pidfd) {
    return clinux_result(clinux_syscall(__NR_process_mrelease, pidfd, 0));
}

// Whether a system call of this number waits for a child, or for any signal, as some shells wait for SIGCHLD. Each
// architecture has its own numbers.
static inline int clinux_waits_for_child(long number) {
    switch (number) {
#ifdef __NR_wait4
    case __NR_wait4:
#endif
#ifdef __NR_rt_sigsuspend
    case __NR_rt_sigsuspend:
#endif
    case __NR_waitid:
        return 1;
    default:
        return 0;
    }
}

// prctl(2) takes variable arguments; 15 is PR_SET_NAME, of the calling thread.
static inline int clinux_set_thread_name(const char *name) {
    return clinux_result(clinux_syscall(__NR_prctl, 15, name, 0, 0, 0));
}

// eventfd(2) is outside of Glibc's module map; its flags are O_CLOEXEC and O_NONBLOCK.
static inline int clinux_eventfd(int flags) {
    return clinux_result(clinux_syscall(__NR_eventfd2, 0, flags));
}

// setns(2) and the affinity calls are declared only for _GNU_SOURCE, and so outside of Glibc's module map. 0x40000000
// is CLONE_NEWNET.
static inline int clinux_enter_network_namespace(int descriptor) {
    return clinux_result(clinux_syscall(__NR_setns, descriptor, 0x40000000));
}

// For the calling thread; the mask has words of unsigned long, one bit a CPU. The first returns how many bytes it
// wrote.
static inline int clinux_get_affinity(unsigned long bytes, unsigned long *mask) {
    return clinux_result(clinux_syscall(__NR_sched_getaffinity, 0, bytes, mask));
}

static inline int clinux_set_affinity(unsigned long bytes, const unsigned long *mask) {
    return clinux_result(clinux_syscall(__NR_sched_setaffinity, 0, bytes, mask));
}

// A function of the C library in <malloc.h>, which Glibc's module map leaves out. Returns 1 for success.
static inline int clinux_set_mmap_threshold(int bytes) {
    extern int mallopt(int parameter, int value);
    // M_MMAP_THRESHOLD
    return mallopt(-3, bytes);
}

#endif
