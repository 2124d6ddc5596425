#!/usr/bin/env python3
"""Ten suspended applications, three with unsaved work, and memory that runs short for real: who is ended first.

Usage: unsaved.py [--table FILE] [--unmarked]
One of the three says so itself, of mousepad (GTK) and featherpad (Qt) the session agent reads the mark in the title, which
is there because text was typed. They are the longest suspended and no smaller than the others: but for the unsaved work they would be the
first. --unmarked shows that: nobody says it, and a rule has the mark not count. Prints what it finds; with --table, writes it
below "Unsaved work" of a page. Exit status: 0, 1 the order is another, or not all came to that, 125 it cannot be tried here.

scripts/test-apps --unsaved runs it where there is what it needs.
"""
import argparse, json, os, pathlib, re, shutil, subprocess, sys, time
from desktop import UID, Desktop, put, wait_for

LIMIT, FILE, PLAIN, OWN, STEP = 400, 500, 12, 40, 4  # MiB
PYTHON = "/usr/bin/python3"
HEADING = "## Unsaved work"
EDITORS = {"org.xfce.mousepad": "mousepad", "featherpad": "featherpad"}

# Registers itself, says that it has unsaved work where it is told to, and holds memory.
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
# Takes a little more for each line, and says so.
FRONT = """
import sys
held = []
for line in sys.stdin:
    held.append(bytearray(b"\\1") * (int(line) << 20))
    print(len(held), flush=True)
"""
# What it reads does not fit beside the others: they wait for memory.
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
        # The kernel takes windows of two seconds of anybody. All of one is never lost: the reader reads.
        (self.directory / "appstated.conf").write_text(
            f"[LifeCycle]\nBackgroundGraceSec=1\n[Pressure]\nSource={self.cgroup}/memory.pressure\n"
            "Warning=some 2ms 2s\nCritical=full 2s 2s\nCriticalAvailable=60M\n")
        (self.directory / "session.conf").write_text(
            f"[Application *]\nSuspension=automatic\nReclaimable=yes\n{more}")

    def limited(self, argv, log, unit):
        """Starts a process below the limit."""
        # Of version 2 its scope is below the limit already.
        enter = "" if self.memory == self.cgroup else f"echo $$ >{self.memory}/cgroup.procs; "
        return self.spawn(["sh", "-c", enter + 'exec "$@"', "sh", *argv], log, unit=unit, QT_QPA_PLATFORM="xcb")

    def end(self):
        super().end()
        if self.memory != self.cgroup:
            wait_for(lambda: not (self.memory / "cgroup.procs").read_text(), 5)
            self.memory.rmdir()

    def kernel_kills(self):
        """How often the kernel's killer came."""
        name = "memory.events" if self.memory == self.cgroup else "memory.oom_control"
        return int(re.search(r"^oom_kill (\d+)", (self.memory / name).read_text(), re.M)[1])

    def told(self, signal_name):
        """What a subscriber was told, in order."""
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
        """A document with text that was typed and not saved; minimized."""
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
        # Until it takes keys.
        def typed():
            self.desk.run("xdotool", "windowactivate", "--sync", window, "type", "--delay", "30", "unsaved ")
            return marked()
        wait_for(typed, 30, 0.5)
        self.tell(f"{name}: the title shows it", own()[window][1], marked())
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
            self.tell(f"{self.names[pid]} before it", one.get("state"), one.get("state") == "suspended")
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
        self.tell("a warning", round(seconds, 1) if seconds is not None else "never", seconds is not None)
        front = self.front()
        for taken in range(0, LIMIT * 2, STEP):
            if len(desk.told("ApplicationReclaimed")) >= 10 or front.poll() is not None:
                break
            front.stdin.write(f"{STEP}\n")
            front.stdin.flush()
            front.stdout.readline()
            time.sleep(0.05)
        self.order = desk.told("ApplicationReclaimed")
        self.tell("taken in front, MiB", taken, front.poll() is None)
        front.kill()

    def front(self):
        """Below the limit as well: of version 2 in a scope, since a cgroup with others below it takes no process."""
        place = self.desk.memory if self.desk.memory != self.desk.cgroup else self.desk.cgroup / "front"
        place.mkdir(exist_ok=True)
        process = subprocess.Popen(["sh", "-c", f'echo $$ >{place}/cgroup.procs; exec "$@"', "sh", PYTHON, "-c", FRONT],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.desk.running.append(process)
        return process

    def judge(self):
        names = [self.names.get(one["pid"], one.get("app_id")) for one in self.order]
        print("the order of the ends:", flush=True)
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
            self.tell("the journal says it of the others", len(journal), len(journal) == len(names) - 7)
        else:
            self.tell("without the marks the three are the first", names[:3], set(names[:3]) == set(self.unsaved))
        self.tell("the kernel killed", self.desk.kernel_kills(), self.desk.kernel_kills() == 0)

    def section(self):
        """What was seen, as a section of a page of the documentation."""
        lines = [
            HEADING, "",
            f"Ten suspended applications share {LIMIT} MiB with a process that takes more and more memory. Three of",
            "them have unsaved work. One reports it itself. In mousepad and featherpad, text was typed, and the",
            "session agent reads the mark in the title. These three have been suspended longest and are no smaller",
            "than the others. Without their marks they are ended first, as `scripts/test-apps --unsaved --unmarked`",
            "shows. `make test-unsaved` writes this section.",
            "", "| Ended | Application | Unsaved work | Its memory, in MiB |", "| --- | --- | --- | --- |",
        ]
        began = self.order[0]["time"]
        for number, one in enumerate(self.order, 1):
            name = self.names.get(one["pid"], one.get("app_id"))
            size = int(one["bytes"]) >> 20
            lines.append(f"| {number}, after {(one['time'] - began) / 1e6:.2f} s | {name} | {self.why.get(name) or 'no'} | {size} |")
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
