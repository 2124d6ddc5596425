#!/usr/bin/env python3
"""Tests that applications with unsaved work are ended last when memory really runs short.

Usage: unsaved.py [--table FILE] [--unmarked]
Suspends ten applications. Three of them have unsaved work. One reports it itself. In mousepad (GTK) and featherpad
(Qt), text is typed, and the session agent reads the mark in the title. These three have been suspended longest and are
no smaller than the others, so without the unsaved work they would be ended first. --unmarked shows that: the first one
reports nothing, and a rule makes the session agent ignore the mark. Prints each finding at once. --table also writes
them below "Unsaved work" of a page. Exit status: 0 success, 1 the order is wrong or not all were ended, 125 it cannot
be tested here.

Run it through scripts/test-apps --unsaved, which prepares the users, the bus and the environment variables.
"""
import argparse, json, os, pathlib, re, shutil, subprocess, sys, time
from desktop import UID, Desktop, put, wait_for

LIMIT, FILE, PLAIN, OWN, STEP = 400, 500, 12, 40, 4  # MiB
PYTHON = "/usr/bin/python3"
HEADING = "## Unsaved work"
EDITORS = {"org.xfce.mousepad": "mousepad", "featherpad": "featherpad"}

# Holds memory, registers itself, and reports unsaved work if the second argument is "unsaved".
SPEAKER = """
import sys
from gi.repository import Gio, GLib
held = bytearray(b"\\1") * (int(sys.argv[1]) << 20)
bus = Gio.bus_get_sync(Gio.BusType.SYSTEM)
def call(path, interface, member, arguments=None):
    return bus.call_sync("org.appstate1", path, "org.appstate1." + interface, member, arguments, None, 0, -1, None)
options = {"launch-mode": GLib.Variant("s", "background"), "suspension": GLib.Variant("s", "automatic")}
path, = call("/org/appstate1", "Manager", "Register", GLib.Variant("(sua{sv})", ("org.example.Speaker", 0, options))).unpack()
call(path, "Application", "FinishLaunching")
if sys.argv[2] == "unsaved":
    call(path, "Application", "SetUnsavedChanges", GLib.Variant("(b)", (True,)))
GLib.MainLoop().run()
"""
HOLDER = "import sys, signal; held = bytearray(b'\\1') * (int(sys.argv[1]) << 20); print('held', flush=True); signal.pause()"
# For each line of input, allocates that many MiB and prints a line.
FRONT = """
import sys
held = []
for line in sys.stdin:
    held.append(bytearray(b"\\1") * (int(line) << 20))
    print(len(held), flush=True)
"""
# Reads a file that does not fit into memory beside the other processes, so that they stall.
READER = """
import sys
while True:
    with open(sys.argv[1], "rb", buffering=0) as file:
        while file.read(1 << 20): pass
"""


class Limited(Desktop):
    """A desktop whose applications share a memory cgroup with a limit."""

    def __init__(self, more):
        super().__init__("freezer", grace=1)
        self.cgroup.mkdir()
        self.memory = self.cgroup
        if (self.cgroup / "memory.max").exists():
            (self.cgroup / "memory.max").write_text(str(LIMIT << 20))
        else:
            self.memory = pathlib.Path("/sys/fs/cgroup/memory") / self.cgroup.name
            self.memory.mkdir()
            (self.memory / "memory.limit_in_bytes").write_text(str(LIMIT << 20))
            os.chown(self.memory / "cgroup.procs", UID, UID)
        # Windows of 2 s need no privilege. The reader makes progress, so no window consists of full stall alone.
        (self.directory / "appstated.conf").write_text(
            f"[LifeCycle]\nBackgroundGraceSec=1\n[Pressure]\nSource={self.cgroup}/memory.pressure\n"
            "Warning=some 2ms 2s\nCritical=full 2s 2s\nCriticalAvailable=60M\n")
        (self.directory / "session.conf").write_text(
            f"[Application *]\nSuspension=automatic\nReclaimable=yes\n{more}")

    def limited(self, argv, log, unit):
        """Starts a process in the memory cgroup with the limit, and returns it."""
        # On cgroup v2, its scope is below the limit already.
        enter = "" if self.memory == self.cgroup else f"echo $$ >{self.memory}/cgroup.procs; "
        return self.spawn(["sh", "-c", enter + 'exec "$@"', "sh", *argv], log, unit=unit, QT_QPA_PLATFORM="xcb")

    def end(self):
        super().end()
        if self.memory != self.cgroup:
            wait_for(lambda: not (self.memory / "cgroup.procs").read_text(), 5)
            self.memory.rmdir()

    def kernel_kills(self):
        """Returns the number of processes that the kernel's OOM killer has killed here."""
        name = "memory.events" if self.memory == self.cgroup else "memory.oom_control"
        return int(re.search(r"^oom_kill (\d+)", (self.memory / name).read_text(), re.M)[1])

    def told(self, signal_name):
        """Returns the signals of this name that a subscriber has received, in order."""
        found = []
        for line in (self.directory / "monitor.log").read_text().splitlines():
            if line.startswith("{") and (one := json.loads(line))["signal"] == signal_name:
                found.append(one)
        return found


class Trial:
    def __init__(self, desk, marked):
        self.desk, self.marked = desk, marked
        self.failures = []
        self.names = {}  # pid: id

    def tell(self, what, value, good=True):
        print(f"{'ok  ' if good else 'FAIL'} {what}: {value}", flush=True)
        if not good:
            self.failures.append(what)

    def one(self, pid):
        return self.desk.state(pid) or {}

    def suspended(self, name, pid):
        seconds = wait_for(lambda: self.one(pid).get("state") == "suspended", 30, 0.1)
        self.tell(f"{name} is suspended", round(seconds, 1) if seconds is not None else self.one(pid), seconds is not None)
        self.names[pid] = name

    def editor(self, name, program):
        """Opens a document, types text without saving it, and minimizes the window."""
        document = self.desk.directory / "files" / f"{program}.txt"
        document.write_text("one\n")
        os.chown(document, UID, UID)
        before = set(self.desk.windows())
        process = self.desk.limited([program, document], program, name)
        own = lambda: {w: v for w, v in self.desk.windows().items() if w not in before}
        if wait_for(lambda: any(document.name in title for _, title in own().values()), 30, 0.1) is None:
            return self.tell(f"{name} has a window", own(), False)
        window = next(w for w, (_, title) in own().items() if document.name in title)
        marked = lambda: own()[window][1].startswith("*")
        # A new window may lose the first keys.
        def typed():
            self.desk.run("xdotool", "windowactivate", "--sync", window, "type", "--delay", "30", "unsaved ")
            return marked()
        wait_for(typed, 30, 0.5)
        self.tell(f"{name}: the mark is in the title", own()[window][1], marked())
        self.desk.run("xdotool", "windowminimize", window)
        self.suspended(name, process.pid)

    def plain(self, name):
        process = self.desk.limited([PYTHON, "-c", HOLDER, str(PLAIN)], name, name)
        log = self.desk.directory / f"{name}.log"
        wait_for(lambda: "held" in log.read_text(), 20)
        self.desk.run("busctl", "--system", "call", "org.appstate1", "/org/appstate1", "org.appstate1.Manager", "Register",
                      "sua{sv}", name, process.pid, 2, "launch-mode", "s", "background", "suspension", "s", "automatic")
        self.suspended(name, process.pid)

    def reasons(self, pid):
        line = next((line for line in self.desk.control("explain", f"pid:{pid}").splitlines() if "unsaved-changes" in line), "")
        return line.split(":", 1)[-1].strip().strip("–")

    def run(self):
        desk = self.desk
        speaker = desk.limited([PYTHON, "-c", SPEAKER, str(OWN), "unsaved" if self.marked else "saved"], "speaker",
                               "org.example.Speaker")
        self.suspended("org.example.Speaker", speaker.pid)
        for name, program in EDITORS.items():
            self.editor(name, program)
        self.unsaved = list(self.names.values())
        self.why = {name: self.reasons(pid) for pid, name in self.names.items()}
        for name, why in self.why.items():
            self.tell(f"{name}: unsaved changes", why or "none", bool(why) == self.marked)
        for number in range(1, 8):
            self.plain(f"org.example.Plain{number}")
        for pid in self.names:
            one = self.one(pid)
            self.tell(f"{self.names[pid]} before the pressure", one.get("state"), one.get("state") == "suspended")
        self.pressure()

    def pressure(self):
        desk = self.desk
        file = desk.directory / "files/large"
        with open(file, "wb") as large:
            for _ in range(FILE):
                large.write(b"\7" * (1 << 20))
            os.fsync(large.fileno())
            os.posix_fadvise(large.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.chown(file, UID, UID)
        desk.limited([PYTHON, "-c", READER, file], "reader", "org.example.Reader")
        seconds = wait_for(lambda: any(one["level"] == "warning" for one in desk.told("MemoryPressureChanged")), 60, 0.1)
        self.tell("a warning, after seconds", round(seconds, 1) if seconds is not None else "never", seconds is not None)
        front = self.front()
        for taken in range(0, LIMIT * 2, STEP):
            if len(desk.told("ApplicationReclaimed")) >= 10 or front.poll() is not None:
                break
            front.stdin.write(f"{STEP}\n")
            front.stdin.flush()
            front.stdout.readline()
            time.sleep(0.05)
        self.order = desk.told("ApplicationReclaimed")
        self.tell("allocated by the process in front, in MiB", taken, front.poll() is None)
        front.kill()

    def front(self):
        """Starts the process in front, also below the limit.

        On cgroup v2 it gets a cgroup of its own, because a cgroup with children may not contain processes.
        """
        place = self.desk.memory if self.desk.memory != self.desk.cgroup else self.desk.cgroup / "front"
        place.mkdir(exist_ok=True)
        process = subprocess.Popen(["sh", "-c", f'echo $$ >{place}/cgroup.procs; exec "$@"', "sh", PYTHON, "-c", FRONT],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.desk.running.append(process)
        return process

    def judge(self):
        names = [self.names.get(one["pid"], one.get("app_id")) for one in self.order]
        print("the applications were ended in this order:", flush=True)
        for one, name in zip(self.order, names):
            print(f"  {json.dumps({k: v for k, v in one.items() if k not in ('path', 'application')})}  {name}", flush=True)
        journal = [line for line in (self.desk.directory / "appstated.log").read_text(errors="replace").splitlines()
                   if "nothing else is left to end" in line]
        for line in journal:
            print("  journal:", line)
        self.tell("ended", len(names), len(names) == 10)
        if self.marked:
            self.tell("the first seven have no unsaved work", set(names[:7]) & set(self.unsaved) or "none",
                      len(set(names[:7]) - set(self.unsaved)) == 7)
            self.tell("the journal has a line about each of the others", len(journal), len(journal) == len(names) - 7)
        else:
            self.tell("without the marks, these three are ended first", names[:3], set(names[:3]) == set(self.unsaved))
        self.tell("processes that the kernel killed", self.desk.kernel_kills(), self.desk.kernel_kills() == 0)

    def section(self):
        """Returns the results as a section of the documentation's page."""
        lines = [
            HEADING, "",
            f"Ten suspended applications share {LIMIT} MiB with a process that takes more and more memory. Three of",
            "them have unsaved work, and have been suspended longest. Without their marks they are ended first",
            "(`scripts/test-apps --unsaved --unmarked`). `make test-unsaved` writes this section. They are ended in this",
            "order:", "",
        ]
        began = self.order[0]["time"]
        for number, one in enumerate(self.order, 1):
            name = self.names.get(one["pid"], one.get("app_id"))
            size = int(one["bytes"]) >> 20
            why = f"; unsaved: {self.why[name]}" if self.why.get(name) else ""
            lines.append(f"{number}. after {(one['time'] - began) / 1e6:.2f} s {name}, {size} MiB{why}")
        left = [name for name in self.names.values() if name not in {self.names.get(one["pid"]) for one in self.order}]
        return "\n".join(lines + ["", f"Alive at the end: {', '.join(left) or 'none of the ten'}. Processes that "
                                      f"the kernel's killer ended: {self.desk.kernel_kills()}.", ""])


def missing():
    for program in ("mousepad", "featherpad", "xdotool", "wmctrl", "xfwm4", "Xvfb", PYTHON):
        if not shutil.which(program):
            return f"{program} is not installed"
    if subprocess.run([PYTHON, "-c", "from gi.repository import Gio"], stderr=subprocess.DEVNULL).returncode:
        return "python3-gi is not installed"
    if not os.access("/proc/pressure/memory", os.W_OK):
        return "the kernel has no PSI"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table")
    parser.add_argument("--unmarked", action="store_true")
    arguments = parser.parse_args()
    if why := missing():
        print(f"skipped: {why}")
        return 125
    desk = Limited("UnsavedMark=no\n" if arguments.unmarked else "")
    trial = Trial(desk, not arguments.unmarked)
    try:
        desk.start()
        desk.spawn(["appstatectl", "monitor", "--json"], "monitor")
        assert wait_for(lambda: "listening" in (desk.directory / "monitor.log").read_text(), 15), "no subscriber"
        trial.run()
        trial.judge()
        if arguments.table and not arguments.unmarked and not trial.failures:
            put(arguments.table, HEADING, trial.section())
    finally:
        desk.close()
    return int(bool(trial.failures))


if __name__ == "__main__":
    sys.exit(main())
