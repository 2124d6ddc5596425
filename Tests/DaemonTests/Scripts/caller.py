"""Calls SetMinimized of its own process, a hundred calls at a time, and says whether the answers came in order."""

import os
import sys

from gi.repository import Gio, GLib

count = int(sys.argv[1])
bus = Gio.DBusConnection.new_for_address_sync(
    os.environ["DBUS_SYSTEM_BUS_ADDRESS"],
    Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION,
    None,
    None,
)
loop = GLib.MainLoop()
answers = []
errors = []
begun = 0


def call(interface, member, arguments, answered):
    bus.call(
        "org.appstate1", "/org/appstate1", interface, member, arguments, None,
        Gio.DBusCallFlags.NONE, 120_000, None, answered)


def begin():
    global begun
    number = begun
    begun += 1
    arguments = GLib.Variant("(ub)", (os.getpid(), number % 2 == 0))

    def answered(source, result):
        try:
            source.call_finish(result)
        except GLib.Error as error:
            errors.append(error.message)
        answers.append(number)
        if begun < count:
            begin()
        elif len(answers) == count:
            loop.quit()

    call("org.appstate1.Reporter", "SetMinimized", arguments, answered)


bus.call_sync(
    "org.appstate1", "/org/appstate1", "org.appstate1.Manager", "Register",
    GLib.Variant("(sua{sv})", ("org.example.Caller", 0, {})), None, Gio.DBusCallFlags.NONE, 120_000, None)
print("begun", flush=True)
for _ in range(100):
    begin()
loop.run()
print("done", "in order" if answers == sorted(answers) else "out of order", len(errors), *errors[:1], flush=True)
# It stays an application: who asks about it is not to be too late.
loop.run()
