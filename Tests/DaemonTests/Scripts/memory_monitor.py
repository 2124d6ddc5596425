"""Listens as GLib applications do: GMemoryMonitor. Prints each level that comes."""

from gi.repository import Gio, GLib


def warned(_, level):
    print("level", int(level), flush=True)


monitor = Gio.MemoryMonitor.dup_default()
print("monitor", type(monitor).__name__, flush=True)
monitor.connect("low-memory-warning", warned)
GLib.MainLoop().run()
