"""Speaks over a connection that another process has opened, which has ended since: the bus knows a connection by
the process that opened it. Prints the error, or the signature, of each answer."""

import os
import socket
import struct
import sys

from gi.repository import Gio

SERVICE = "org.appstate1"
path = os.environ["DBUS_SYSTEM_BUS_ADDRESS"].split("path=")[1].split(",")[0]
here, there = socket.socketpair()
opener = os.fork()
if opener == 0:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
    assert connection.recv(4096).startswith(b"OK")
    connection.sendall(b"BEGIN\r\n")
    socket.send_fds(there, [b"x"], [connection.fileno()])
    os._exit(0)
_, descriptors, _, _ = socket.recv_fds(here, 1, 1)
os.waitpid(opener, 0)
connection = socket.socket(fileno=descriptors[0])
serial = 0


def read(count):
    data = b""
    while len(data) < count:
        data += connection.recv(count - len(data))
    return data


def call(destination, path, interface, member):
    global serial
    serial += 1
    message = Gio.DBusMessage.new_method_call(destination, path, interface, member)
    message.set_serial(serial)
    connection.sendall(bytes(message.to_blob(Gio.DBusCapabilityFlags.NONE)))
    while True:
        head = read(16)
        body, fields = struct.unpack("<I4xI", head[4:16])
        rest = read((fields + 7) // 8 * 8 + body)
        answer = Gio.DBusMessage.new_from_blob(head + rest, Gio.DBusCapabilityFlags.NONE)
        if answer.get_reply_serial() == serial:
            return answer


call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello")
listed = call(SERVICE, "/org/appstate1", SERVICE + ".Manager", "ListApplications")
print("listed", listed.get_body().print_(False), flush=True)
for member in ["Suspend", "Resume", "Unregister"]:
    answer = call(SERVICE, sys.argv[1], SERVICE + ".Application", member)
    print(member, answer.get_error_name(), flush=True)
