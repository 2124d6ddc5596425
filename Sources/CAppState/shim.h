#pragma once

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

// libdispatch's main queue for a loop other than its own. dispatchMain() would give up the main thread and
// serve the queue on another thread, where no toolkit expects its calls. Foundation's run loop on Linux uses
// these two functions. libdispatch exports them, but declares them in none of its public headers.

// An eventfd: readable when the main queue has something to run.
extern int _dispatch_get_main_queue_handle_4CF(void);
// Runs the work that is queued in the main queue.
extern void _dispatch_main_queue_callback_4CF(void *ignored);

static inline int cappstate_main_queue_descriptor(void) { return _dispatch_get_main_queue_handle_4CF(); }
static inline void cappstate_main_queue_drain(void) { _dispatch_main_queue_callback_4CF((void *) 0); }

// Glibc's module declares neither memfd_create(2) nor the seals. 1: MFD_CLOEXEC, 2: MFD_ALLOW_SEALING.
static inline int cappstate_memory_file(void) { return (int) syscall(SYS_memfd_create, "appstate", 1u | 2u); }
// F_ADD_SEALS with SEAL, SHRINK, GROW and WRITE.
static inline int cappstate_seal(int file) { return fcntl(file, 1033, 1 | 2 | 4 | 8); }

// Glibc's module lacks eventfd(2), too.
static inline int cappstate_bell(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

// This process, whatever pid it has for other processes. 434: pidfd_open(2).
static inline int cappstate_own_descriptor(void) { return (int) syscall(434, getpid(), 0); }

// The handler of signals that end the program. It is in C because it may run between any two instructions, also of
// Swift's runtime. Each object file has its own copy of these variables, so only Connection.swift may call the functions
// below. Swift's compiler omits a variable without an initial value.
static int cappstate_signal_bell = -1;
static pid_t cappstate_signal_owner = 0;

// Each signal counts in bits of its own of the bell's counter. The lowest 32 are for other rings. Only SIGHUP may come
// many times.
static inline int cappstate_signal_shift(int number) {
    return number == SIGHUP ? 48 : number == SIGINT ? 40 : 32;
}

// Whether a counter that was read from the bell contains the signal.
static inline int cappstate_has_signal(uint64_t counter, int number) {
    return (counter >> cappstate_signal_shift(number) & (number == SIGHUP ? 0xFFFF : 0xFF)) != 0;
}

static inline void cappstate_on_signal(int number) {
    int error = errno;
    if (getpid() == cappstate_signal_owner) {
        uint64_t count = UINT64_C(1) << cappstate_signal_shift(number);
        ssize_t written = write(cappstate_signal_bell, &count, sizeof count);
        (void) written;
    } else {
        // A child between fork(2) and execve(2): the signal is not for us.
        signal(number, SIG_DFL);
        raise(number);
    }
    errno = error;
}

// Makes SIGHUP, SIGINT or SIGTERM ring a bell (an eventfd). A signal that is ignored stays ignored, as nohup(1) wants,
// and the program's own handler stays. Nothing is blocked, so programs that this one starts inherit nothing.
//
// once: the second time, the signal ends the process.
static inline void cappstate_watch_signal(int number, int bell, int once) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) < 0 || action.sa_handler != SIG_DFL)
        return;
    cappstate_signal_bell = bell;
    cappstate_signal_owner = getpid();
    action.sa_handler = cappstate_on_signal;
    action.sa_flags = SA_RESTART | (once ? (int) SA_RESETHAND : 0);
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

// From now on, the signal ends the process, unless it is ignored or the program has its own handler.
static inline void cappstate_unwatch_signal(int number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler == cappstate_on_signal)
        signal(number, SIG_DFL);
}

// Ends the process by a signal, as if it had no handler. Returns if that is not possible, as in a container's first
// process.
static inline void cappstate_end_by_signal(int number) {
    sigset_t set;
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
}
