#!/usr/bin/python3
"""An application with background transfers. It writes down what it is told, a line each, to the file that it is given:
start, told ID STATE, found ID STATE (at its start, a transfer that has ended and of which it was not told in this run).

    application.py ID FILE [URL=TARGET...]    begins these transfers itself
"""
import os, sys
import dbus, dbus.mainloop.glib
from gi.repository import GLib

dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
ID, FILE = sys.argv[1:3]
system, session = dbus.SystemBus(), dbus.SessionBus()
MANAGER, APPLICATION = "org.appstate1.Manager", "org.appstate1.Application"
TRANSFERS, TRANSFER = "org.appstate1.Transfers", "org.appstate1.Transfer"
path = None


def note(*words):
    with open(FILE, "a") as file:
        file.write(" ".join(str(word) for word in words) + "\n")


def call(member, *arguments):
    proxy = system.get_object("org.appstate1", path, introspect=False)
    return proxy.get_dbus_method(member, APPLICATION)(*arguments)


def finished(id, result, sender=None):
    # Any process can send a signal of this name.
    if sender != system.get_name_owner("org.appstate1"):
        return
    note("told", id, result["state"], result.get("error", ""))
    try:
        call("FinishTransfer", id)
    except dbus.DBusException as error:
        # The daemon may have been killed just then.
        note("unfinished", id, error.get_dbus_name())


def acknowledge(serial, deadline, sender=None):
    if serial:
        try:
            call("Acknowledge", serial)
        except dbus.DBusException:
            pass


def register():
    global path
    manager = dbus.Interface(system.get_object("org.appstate1", "/org/appstate1", introspect=False), MANAGER)
    try:
        path = manager.Register(ID, dbus.UInt32(0), dbus.Dictionary({"launch-mode": "background"}, signature="sv"))
    except dbus.DBusException as error:
        if "AlreadyRegistered" not in error.get_dbus_name():
            raise
        path = manager.GetApplicationByPID(dbus.UInt32(os.getpid()))
        call("BecomeDelegate")
        return
    call("FinishLaunching")


def again(owner):
    """Another daemon, which has taken us over, or knows nothing of us."""
    if owner and path:
        try:
            register()
        except dbus.DBusException as error:
            note("unregistered", error.get_dbus_name())
            GLib.timeout_add(200, lambda: again(owner))
    return False


system.add_signal_receiver(finished, "BackgroundTransferFinished", APPLICATION, sender_keyword="sender")
for member in ("DidEnterBackground", "WillTerminate", "ProtectedDataWillBecomeUnavailable"):
    system.add_signal_receiver(acknowledge, member, APPLICATION, sender_keyword="sender")
note("start", os.getpid())
for attempt in range(100):
    try:
        register()
        break
    except dbus.DBusException as error:
        if attempt == 99:
            raise
        GLib.usleep(100000)
system.watch_name_owner("org.appstate1", again)
root = session.get_object("org.appstate1.Transfer", "/org/appstate1/Transfer", introspect=False)
for word in sys.argv[3:]:
    url, target = word.rsplit("=", 1)
    dbus.Interface(root, TRANSFERS).Begin(url, dbus.Dictionary({"target": target, "application": ID}, signature="sv"))
for properties in root.get_dbus_method("GetManagedObjects", "org.freedesktop.DBus.ObjectManager")().values():
    one = properties[TRANSFER]
    if one["Application"] == ID and one["State"] in ("finished", "failed"):
        note("found", one["ID"], one["State"])
note("ready")
GLib.MainLoop().run()
