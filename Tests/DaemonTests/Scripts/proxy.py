"""Prints what a GDBusProxy has cached, at once and whenever it is told of a change. Subscribes to nothing.

Arguments: the object's path, the interface, the names of properties.
"""

import sys

from gi.repository import Gio, GLib

path, interface, *names = sys.argv[1:]


def show(proxy, *_):
    values = (proxy.get_cached_property(name) for name in names)
    print("cached", *("nothing" if value is None else value.print_(False) for value in values), sep=" | ", flush=True)


bus = Gio.bus_get_sync(Gio.BusType.SYSTEM, None)
proxy = Gio.DBusProxy.new_sync(bus, Gio.DBusProxyFlags.NONE, None, "org.appstate1", path, interface, None)
proxy.connect("g-properties-changed", show)
show(proxy)
GLib.MainLoop().run()
