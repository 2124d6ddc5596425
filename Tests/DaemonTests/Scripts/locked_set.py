"""Has an epoll(7) set whose lock the kernel does not release: it writes an event to memory that userfaultfd(2) keeps
missing. A FUSE server can do the same without privileges. Passes the set to RegisterProcess, prints the name of the
error, and keeps the set until it is killed."""

import ctypes
import fcntl
import os
import platform
import select
import struct
import threading

import dbus

UFFDIO_API, UFFDIO_REGISTER = 0xC018AA3F, 0xC020AA00
number = {"x86_64": 323, "aarch64": 282}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
faults = libc.syscall(number, os.O_CLOEXEC)
if faults < 0:
    raise OSError(ctypes.get_errno(), "userfaultfd")
size = os.sysconf("SC_PAGESIZE")
page = libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0))
fcntl.ioctl(faults, UFFDIO_API, struct.pack("QQQ", 0xAA, 0, 0))
fcntl.ioctl(faults, UFFDIO_REGISTER, struct.pack("QQQQ", page, size, 1, 0))

events = select.epoll()
reader, writer = os.pipe()
os.write(writer, b"x")
events.register(reader, select.EPOLLIN)
threading.Thread(
    target=libc.epoll_wait, args=(events.fileno(), ctypes.c_void_p(page), 1, -1), daemon=True).start()
# Readable: the kernel waits for the page.
select.select([faults], [], [])

bus = dbus.bus.BusConnection(os.environ["DBUS_SYSTEM_BUS_ADDRESS"])
manager = bus.get_object("org.appstate1", "/org/appstate1", introspect=False)
try:
    options = dbus.Dictionary({}, signature="sv")
    manager.get_dbus_method("RegisterProcess", "org.appstate1.Manager")(
        "org.example.Set", dbus.types.UnixFd(events.fileno()), options)
    print("accepted", flush=True)
except dbus.DBusException as error:
    print("refused", error.get_dbus_name(), flush=True)
threading.Event().wait()
