#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <sys/syscall.h>

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
