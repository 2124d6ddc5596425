"""A client with libdbus, as most Flatpaks have one: xdg-dbus-proxy 0.1.4 does not understand how sd-bus begins.

Commands, one a line on standard input: `zero`, `number PID`, `process`, `reconnect`,
`call PATH INTERFACE MEMBER ARGUMENT...`.
Answers: `#N ok ...` or `#N error NAME MESSAGE`.
"""
import os
import sys

import dbus

SERVICE = "org.appstate1"
ROOT = "/org/appstate1"
bus = dbus.bus.BusConnection(os.environ["DBUS_SYSTEM_BUS_ADDRESS"])


def value(word):
    if word == "{}":
        return dbus.Dictionary({}, signature="sv")
    kind, text = word.split(":", 1)
    return {"s": str, "t": lambda t: dbus.UInt64(int(t)), "b": lambda t: t == "true"}[kind](text)


def call(path, interface, member, *arguments):
    target = bus.get_object(SERVICE, path, introspect=False)
    return target.get_dbus_method(member, interface)(*arguments)


def obey(words):
    global bus, former
    if words[0] == "reconnect":
        # The former connection stays.
        former, bus = bus, dbus.bus.BusConnection(os.environ["DBUS_SYSTEM_BUS_ADDRESS"])
        return ""
    options = dbus.Dictionary({}, signature="sv")
    if words[0] == "zero":
        words = ["number", "0"]
    if words[0] == "number":
        return call(ROOT, SERVICE + ".Manager", "Register", "org.example.App", dbus.UInt32(int(words[1])), options)
    if words[0] == "process":
        process = dbus.types.UnixFd(os.pidfd_open(os.getpid()))
        return call(ROOT, SERVICE + ".Manager", "RegisterProcess", "org.example.App", process, options)
    if words[3] == "ListApplications":
        return " ".join(str(row[0]) for row in call(*words[1:4]))
    return call(*words[1:4], *map(value, words[4:]))


print("#0 ok", flush=True)
for number, line in enumerate(sys.stdin, 1):
    try:
        print(f"#{number} ok", obey(line.split()), flush=True)
    except dbus.DBusException as error:
        print(f"#{number} error", error.get_dbus_name(), error.get_dbus_message(), flush=True)
