"""Sends a TCP socket whose last close(2) waits for ten minutes: SO_LINGER, and a peer that reads nothing. Without an
argument, RegisterProcess gets it; otherwise the process of that number gets it, in a signal. The receiver must not run
meanwhile. Prints "sent" once only the message holds the socket, and keeps the peer until it is killed."""

import os
import socket
import struct
import sys
import threading

import dbus
import dbus.lowlevel

listener = socket.create_server(("127.0.0.1", 0))
sender = socket.create_connection(listener.getsockname())
peer, _ = listener.accept()
sender.setblocking(False)
try:
    while True:
        sender.send(bytes(65536))
except BlockingIOError:
    pass
sender.setblocking(True)
sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
link = f"socket:[{os.fstat(sender.fileno()).st_ino}]"

bus = dbus.bus.BusConnection(os.environ["DBUS_SYSTEM_BUS_ADDRESS"])


def process(name):
    return bus.call_blocking(
        "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "GetConnectionUnixProcessID", "s",
        (name,))


broker = process("org.freedesktop.DBus")
if len(sys.argv) > 1:
    message = dbus.lowlevel.SignalMessage("/org/example", "org.example.Linger", "Changed")
    owners = (name for name in bus.list_names() if name.startswith(":"))
    message.set_destination(next(name for name in owners if process(name) == int(sys.argv[1])))
    message.append(dbus.types.UnixFd(sender), signature="h")
else:
    message = dbus.lowlevel.MethodCallMessage(
        "org.appstate1", "/org/appstate1", "org.appstate1.Manager", "RegisterProcess")
    message.append("org.example.Linger", dbus.types.UnixFd(sender), {}, signature="sha{sv}")
    message.set_no_reply(True)
bus.send_message(message)
bus.flush()


def open_files(process):
    for number in os.listdir(f"/proc/{process}/fd"):
        try:
            yield os.readlink(f"/proc/{process}/fd/{number}")
        except FileNotFoundError:
            pass


while link in open_files(broker):
    bus.get_name_owner("org.appstate1")
del message
sender.close()
print("sent", flush=True)
threading.Event().wait()
