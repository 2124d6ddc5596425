"""Prints what a GDBusObjectManagerClient knows: each object that comes and goes, and the properties of
org.appstate1.Application that it has cached, whenever it is told of a change. Subscribes to nothing.

Arguments: the names of properties.
"""

import sys

from gi.repository import Gio, GLib

APPLICATION = "org.appstate1.Application"
names = sys.argv[1:]


def show(proxy):
    values = (proxy.get_cached_property(name) for name in names)
    print(
        "cached", proxy.get_object_path(), *("nothing" if value is None else value.print_(False) for value in values),
        sep=" | ", flush=True)


def added(_, thing):
    print("added", thing.get_object_path(), flush=True)
    if application := thing.get_interface(APPLICATION):
        show(application)


def removed(_, thing):
    print("removed", thing.get_object_path(), flush=True)


bus = Gio.bus_get_sync(Gio.BusType.SYSTEM, None)
manager = Gio.DBusObjectManagerClient.new_sync(
    bus, Gio.DBusObjectManagerClientFlags.NONE, "org.appstate1", "/org/appstate1", None, None, None)
manager.connect("object-added", added)
manager.connect("object-removed", removed)
manager.connect("interface-proxy-properties-changed", lambda _, thing, proxy, *rest: show(proxy))
for thing in manager.get_objects():
    added(manager, thing)
print("ready", flush=True)
GLib.MainLoop().run()
