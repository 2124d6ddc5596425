"""Sends calls that want no answer over one connection, as fast as the bus takes them: a bus does not limit those.
In between strangers make their first call, so that the daemon has to find out who they are."""
import os
import socket
import struct
import sys

CALLS, SIZE = int(sys.argv[1]), int(sys.argv[2])
CALLS_PER_STRANGER = 500
NO_REPLY_EXPECTED = 1


def padded(data, boundary):
    return data + b"\0" * (-len(data) % boundary)


def string(text):
    return struct.pack("<I", len(text)) + text.encode() + b"\0"


def call(destination, path, interface, member, signature="", body=b"", flags=NO_REPLY_EXPECTED):
    fields = b""
    for code, kind, value in (
        (1, "o", path), (2, "s", interface), (3, "s", member), (6, "s", destination), (8, "g", signature)
    ):
        if value:
            fields = padded(fields, 8) + bytes([code, 1]) + kind.encode() + b"\0"
            short = bytes([len(value)]) + value.encode() + b"\0"
            fields = fields + short if kind == "g" else padded(fields, 4) + string(value)
    serial = 7
    header = b"l" + bytes([1, flags, 1]) + struct.pack("<III", len(body), serial, len(fields)) + fields
    return padded(header, 8) + body


def connect():
    address = os.environ["DBUS_SYSTEM_BUS_ADDRESS"].split(",")[0].split("path=")[1]
    end = socket.socket(socket.AF_UNIX)
    end.connect(address)
    end.sendall(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n")
    assert end.recv(100).startswith(b"OK")
    bus = "org.freedesktop.DBus"
    end.sendall(b"BEGIN\r\n" + call(bus, "/org/freedesktop/DBus", bus, "Hello", flags=0))
    assert end.recv(4096)
    return end


SERVICE, ROOT = "org.appstate1", "/org/appstate1"
# The process is none: each call is read whole, and refused.
body = padded(struct.pack("<I", 0) + string("x" * SIZE), 4) + struct.pack("<I", 0)
report = call(SERVICE, ROOT, SERVICE + ".Reporter", "ReportDemand", "usu", body)
ping = call(SERVICE, ROOT, "org.freedesktop.DBus.Peer", "Ping")
flood = connect()
print("begun", flush=True)
for number in range(CALLS):
    flood.sendall(report)
    if number % CALLS_PER_STRANGER == 0:
        with connect() as stranger:
            stranger.sendall(ping)
print("done", flush=True)
