"""Serves a FUSE file system with one file, and sends the daemon calls that carry the file. Every close(2) of it asks this
server, which answers all processes but the daemon. Prints "sent" once the daemon's close waits. Ends when it is killed.

Usage: fuse_file.py PID [COUNT]    (with COUNT, it also sends so many calls that carry the file 16 times each)"""

import ctypes
import os
import signal
import struct
import sys
import tempfile
import threading

import dbus
import dbus.lowlevel

DAEMON = int(sys.argv[1])
LOOKUP, GETATTR, OPEN, RELEASE, FLUSH, INIT = 1, 3, 14, 18, 25, 26
libc = ctypes.CDLL(None, use_errno=True)


def attributes(node):
    mode, links = (0o40755, 2) if node == 1 else (0o100644, 1)
    return struct.pack("<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 512, 0)


def serve(device, told):
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:
            return
        _, opcode, unique, node, _, _, pid, _ = struct.unpack_from("<IIQQIIII", request)
        error, body = 0, b""
        if opcode == INIT:
            body = struct.pack("<IIIIHHII32x", 7, 31, 0, 0, 1, 1, 1 << 16, 1)[:64]
        elif opcode == LOOKUP:
            body = struct.pack("<QQQQII", 2, 0, 0, 0, 0, 0) + attributes(2)
        elif opcode == GETATTR:
            body = struct.pack("<QII", 0, 0, 0) + attributes(node)
        elif opcode == OPEN:
            body = struct.pack("<QII", 0, 0, 0)
        elif opcode == FLUSH:
            if os.path.exists(f"/proc/{DAEMON}/task/{pid}"):
                os.write(told, b"x")
                continue
        elif opcode != RELEASE:
            error = -38
        os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


CLONE_NEWNS, MS_REC_PRIVATE, PR_SET_PDEATHSIG = 0x20000, 0x44000, 1
if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC_PRIVATE), None) != 0:
    raise OSError(ctypes.get_errno(), "unshare")
device = os.open("/dev/fuse", os.O_RDWR)
place = tempfile.mkdtemp()
options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
if libc.mount(b"files", place.encode(), b"fuse", ctypes.c_ulong(0), options.encode()) != 0:
    raise OSError(ctypes.get_errno(), "mount")
reader, told = os.pipe()
# A process of its own: libdbus closes descriptors while it holds Python's lock. It ends with this one.
if os.fork() == 0:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    serve(device, told)
    os._exit(0)
os.close(device)

bus = dbus.bus.BusConnection(os.environ["DBUS_SYSTEM_BUS_ADDRESS"])
for member in "RegisterProcess", "Reload":
    file = os.open(place + "/file", os.O_RDONLY)
    call = dbus.lowlevel.MethodCallMessage(
        "org.appstate1", "/org/appstate1", "org.appstate1.Manager", member)
    call.append("org.example.Slow", dbus.types.UnixFd(file), {}, signature="sha{sv}")
    bus.send_message(call)
    bus.flush()
    del call
    os.close(file)
os.read(reader, 1)
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 0):
    file = os.open(place + "/file", os.O_RDONLY)
    call = dbus.lowlevel.MethodCallMessage(
        "org.appstate1", "/org/appstate1", "org.appstate1.Manager", "RegisterProcess")
    call.append([dbus.types.UnixFd(file)] * 16, signature="ah")
    call.set_no_reply(True)
    bus.send_message(call)
    bus.flush()
    del call
    os.close(file)
print("sent", flush=True)
threading.Event().wait()
