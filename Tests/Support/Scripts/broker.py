"""Runs dbus-broker as a message bus without its launcher, which needs systemd.

Usage: broker.py PROGRAM PATH: listens at PATH, prints "listening", and ends with the broker.
It allows every connection, name and message. The calls are those of dbus-broker's controller protocol.
"""

import socket
import subprocess
import sys
from gi.repository import Gio, GLib

program, path = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen(64)
# The broker accepts until there is nobody left.
listener.setblocking(False)
ours, its = socket.socketpair()
broker = subprocess.Popen(
    [program, "--controller", str(its.fileno()), "--machine-id", "0" * 31 + "1",
     "--max-matches", "1000000", "--max-objects", "1000000", "--max-bytes", "1000000000"],
    pass_fds=[its.fileno()])
its.close()
stream = Gio.Socket.new_from_fd(ours.detach()).connection_factory_create_connection()
controller = Gio.DBusConnection.new_sync(
    stream, None, Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT, None, None)
batch = "bta(btbs)a(btssssuutt)a(btssssuutt)"
any_message = (True, 1, "", "", "", "", 0, 0, 0, 2**64 - 1)
everybody = (2**32 - 1, (True, 1, [(True, 1, True, "")], [any_message], [any_message]))
kind = f"(a(u({batch}))a(buu({batch}))a(ss)bs)"
policy = GLib.Variant(kind, ([everybody], [], [], False, "session"))
files = Gio.UnixFDList.new()
handle = files.append(listener.fileno())
controller.call_with_unix_fd_list_sync(
    None, "/org/bus1/DBus/Broker", "org.bus1.DBus.Broker", "AddListener",
    GLib.Variant("(ohv)", ("/org/bus1/DBus/Listener/0", handle, policy)), None,
    Gio.DBusCallFlags.NONE, -1, files, None)
print("listening", flush=True)
sys.exit(broker.wait())
