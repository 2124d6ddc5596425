#!/usr/bin/env python3
"""Tests `appstatectl launch` on real desktop entries, with the real daemon, session agent and service manager.

Usage: launches.py [--table FILE] [--desktop X11|sway] [CASE...]
Tests each case on X11 (Xvfb, xfwm4) and on Wayland (sway), as far as they are installed. Prints each finding at once.
--table writes the findings below "Launched" of a page, unless cases or a desktop are selected. Cases whose entry is not
installed are skipped by name. Exit status: 0 success, 1 a case failed or nothing could be tested.

Run it through scripts/test-apps --launches, which prepares the users, the bus and the environment variables.
"""
import argparse, json, os, pathlib, re, shutil, signal, subprocess, sys, textwrap, time
import desktop
from desktop import BIN, UID, Desktop, OnSway, wait_for, stat, descendants, put

ENTRIES = pathlib.Path("/usr/share/applications")
MANAGER = "/usr/lib/systemd/systemd"

# The fields of a case:
# entry: the id of the desktop entry. base: the installed entry that it is copied from, with `lines` changed. opens: the
# files to open. title: what the window's title must contain. refusal: what the error must contain. wayland: the program
# needs Wayland. told: the entry requests startup notification, which X11 desktops receive. bus: the session bus starts
# it. unit: the prefix of the unit that it creates for itself. runs: the program in its terminal. argument: that
# program's argument. wait: the time limit for its window, in seconds. absent: there is no such entry.
CASES = {
    "xterm": dict(entry="debian-xterm", kind="terminal emulator"),
    "foot": dict(entry="foot", kind="terminal emulator of Wayland", wayland=True),
    "mousepad": dict(entry="org.xfce.mousepad", kind="GTK, StartupNotify, %U", opens=["a b.txt"], title="a b.txt", told=True),
    "calculator": dict(entry="org.gnome.Calculator", kind="GTK 4, StartupNotify", told=True),
    "featherpad": dict(entry="featherpad", kind="Qt, %U", opens=["one.txt"], title="one.txt"),
    "chromium": dict(entry="chromium", kind="as Electron's, StartupNotify, %U", opens=["one.html"], title="one", told=True, wait=90,
                     # Chromium asks the service manager to move it to a scope.
                     unit="app-org.chromium.Chromium-"),
    "dconf-editor": dict(entry="ca.desrt.dconf-editor", kind="DBusActivatable, StartupNotify", bus=True, told=True),
    "baobab": dict(entry="org.gnome.baobab", kind="DBusActivatable, StartupNotify", bus=True, told=True),
    "htop": dict(entry="htop", kind="Terminal=true", runs="htop"),
    "vim": dict(entry="vim", kind="Terminal=true, TryExec, %F", opens=["a b.txt"], argument="a b.txt",
                runs="vim"),
    "quoted": dict(entry="org.example.quoted", base="debian-xterm", kind="quoting: spaces, \\\", \\$, %%",
                   lines={"Exec": 'xterm -title "a \\\\"b\\\\" \\\\$HOME 5%%" -e "sleep 1000"'}, title='a "b" $HOME 5%'),
    "hidden": dict(entry="org.xfce.mousepad-hidden", base="org.xfce.mousepad", kind="Hidden=true", lines={"Hidden": "true"},
                   refusal="is hidden by"),
    "tryexec": dict(entry="org.example.tryexec", base="vim", kind="TryExec missing", lines={"TryExec": "no-such-vim"},
                    refusal="names the program no-such-vim, which is not installed"),
    "program": dict(entry="org.example.program", base="htop", kind="Exec missing", lines={"Exec": "no-such-htop", "Terminal": "false"},
                    refusal="names the program no-such-htop, which is not installed"),
    "none": dict(entry="org.example.none", kind="no such entry", refusal="there is no desktop entry", absent=True),
}


class Session(Desktop):
    """A desktop with a user service manager."""

    def start(self):
        super().start()
        says = lambda: self.launch("org.example.none").stdout
        assert wait_for(lambda: "no desktop entry" in says(), 20, 0.2), says()

    def start_bus(self):
        """Starts the user's service manager and the session bus.

        The manager runs only on a machine that was booted with systemd. In its mount namespace, /run/systemd/system
        makes it take this machine for one.
        """
        group = self.cgroup / "manager"
        group.mkdir(parents=True)
        for part in (group, group / "cgroup.procs", group / "cgroup.subtree_control", group / "cgroup.threads"):
            os.chown(part, UID, UID)
        script = f"""
            mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/system
            echo $$ > {group}/cgroup.procs
            exec setpriv --reuid={UID} --regid={UID} --clear-groups {MANAGER} --user --unit=basic.target
            """
        mine = dict(self.environment)
        self.spawn(["unshare", "--mount", "--propagation", "private", "--", "sh", "-ec", script], "manager", user=False, **mine)
        # The manager starts the bus itself if dbus-user-session is installed.
        if wait_for(self.bus.exists, 10 if os.path.exists("/usr/lib/systemd/user/dbus.socket") else 0) is None:
            super().start_bus()
        assert wait_for(self.has_manager, 30, 0.2), (self.directory / "manager.log").read_text()
        # Records the calls to org.freedesktop.Application.
        self.spawn(["stdbuf", "-oL", "dbus-monitor", "--session", "interface='org.freedesktop.Application'"], "calls")
        assert wait_for(lambda: "NameLost" in (self.directory / "calls.log").read_text(), 20), "no monitor"

    def has_manager(self):
        return "org.freedesktop.systemd1" in self.run(
            "dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus", "/", "org.freedesktop.DBus.ListNames")

    def tokens(self):
        """Returns the number of calls to applications that carried an activation token."""
        return (self.directory / "calls.log").read_text(errors="replace").count('"activation-token"')

    def launch(self, *arguments):
        return subprocess.run(
            [str(BIN / "appstatectl"), "launch", *map(str, arguments)], env=self.environment, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, user=UID, group=UID, extra_groups=[])

    def entries(self):
        path = self.directory / "home/.local/share/applications"
        path.mkdir(parents=True, exist_ok=True)
        return path


class X11(Session):
    def start_window_manager(self):
        super().start_window_manager()
        # Records the messages to the root window, among them those of startup notification.
        self.spawn(["xev", "-root", "-event", "property"], "xev")

    def told(self):
        """Returns the number of startup notification messages so far."""
        return (self.directory / "xev.log").read_text(errors="replace").count("(_NET_STARTUP_INFO_BEGIN)")


class Sway(OnSway, Session):
    pass


class Trial:
    def __init__(self, desk, name):
        self.desk, self.name, self.what = desk, name, CASES[name]
        self.result = {"case": name, "desktop": desk.name}
        self.failures = []
        self.main = 0
        self.before = set(desk.windows())

    def tell(self, key, value, good=True):
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        home = str(self.desk.directory / "home")
        self.result[key] = text.replace(home, "~").replace(f"{self.desk.directory}/files/", "")
        print(f"{self.desk.name:5} {self.name:13} {'ok  ' if good else 'FAIL'} {key}: {self.result[key]}", flush=True)
        if not good:
            self.failures.append(key)

    @property
    def source(self):
        return ENTRIES / f"{self.what.get('base', self.what['entry'])}.desktop"

    def missing(self):
        """Returns why the case must be skipped; an empty string if it need not."""
        if self.what.get("absent"):
            return ""
        if not self.source.exists():
            return f"{self.source} is not installed"
        if self.what.get("wayland") and self.desk.name == "X11":
            return "its program needs Wayland"
        return ""

    def write(self):
        """Writes the changed copy of the base entry, if there is one, to the user's own directory."""
        if "lines" not in self.what:
            return
        values = dict(self.what["lines"])
        lines, group = [], ""
        for line in self.source.read_text().splitlines():
            if line.startswith("["):
                if group:
                    break
                group = line
                lines += [line] + [f"{key}={value}" for key, value in values.items()]
            elif line.split("=")[0] not in values:
                lines.append(line)
        (self.desk.entries() / f"{self.what['entry']}.desktop").write_text("\n".join(lines) + "\n")

    def own(self):
        return {w: v for w, v in self.desk.windows().items() if w not in self.before}

    def one(self):
        return next((a for a in self.desk.applications() if a.get("path", a.get("Path")) == self.path
                     or str(a.get("number")) == self.path.rsplit("/", 1)[-1]), None)

    def run(self):
        self.write()
        told = self.desk.told() if self.desk.name == "X11" else self.desk.tokens()
        files = [self.desk.directory / "files" / name for name in self.what.get("opens", [])]
        began = time.monotonic()
        answer = self.desk.launch(self.what["entry"], *files)
        answered = time.monotonic() - began
        text = answer.stdout.strip()
        if "refusal" in self.what:
            right = answer.returncode != 0 and self.what["refusal"] in text
            self.tell("refused", text.removeprefix("appstatectl: "), right)
            return
        self.tell("answered", answered, answer.returncode == 0)
        if answer.returncode:
            return self.tell("answer", text, False)
        self.path = text.splitlines()[0]
        waited = wait_for(self.own, self.what.get("wait", 40), 0.05)
        self.tell("window", time.monotonic() - began if waited is not None else "never", waited is not None)
        if waited is None:
            return
        wanted = self.what.get("title", "")
        wait_for(lambda: any(wanted in title for _, title in self.own().values()), 15, 0.1)
        titles = [title for _, title in self.own().values()]
        self.tell("title", titles[0] if titles else "", any(wanted in title for title in titles))
        wait_for(lambda: (self.one() or {}).get("state") == "active", 15, 0.1)
        one = self.one() or {}
        self.main = int(one.get("pid", 0))
        self.tell("state", one.get("state", "none"), one.get("state") == "active")
        self.tell("focused", self.desk.focused() in self.own(), self.desk.focused() in self.own())
        self.process()
        self.feedback(told)

    def process(self):
        unit = pathlib.Path(f"/proc/{self.main}/cgroup").read_text().strip().rsplit("/", 1)[-1]
        name = self.what["entry"].replace("-", "\\x2d")
        if self.what.get("bus"):
            program = os.path.basename(os.readlink(f"/proc/{self.main}/exe"))
            return self.tell("unit", "the session bus's", program == "dconf-editor" or "baobab" in program)
        own = self.what.get("unit")
        self.tell("unit", unit, unit.startswith(own) if own else
                  unit.startswith(f"app-appstate-{name}@") and unit.endswith(".service"))
        runs = self.what.get("runs")
        if runs:
            names = [os.path.basename(os.readlink(f"/proc/{pid}/exe")) for pid in descendants(self.main)]
            self.tell("runs", " ".join(names), any(name.startswith(runs) for name in names))
        wanted = self.what.get("argument")
        if wanted:
            lines = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                     for pid in descendants(self.main)]
            seen = [word for line in lines for word in line if word.endswith("/" + wanted)]
            self.tell("argument", seen[-1].rsplit("/", 1)[-1] if seen else lines, bool(seen))

    def feedback(self, before):
        if self.desk.name == "X11":
            if not self.what.get("told"):
                return self.tell("feedback", "none: the entry does not ask for it", self.desk.told() == before)
            ended = wait_for(lambda: self.desk.told() >= before + 2, 15, 0.1) is not None
            return self.tell("feedback", "new, remove" if ended else "not ended", ended)
        environment = pathlib.Path(f"/proc/{self.main}/environ").read_bytes()
        if self.what.get("bus"):
            # The bus starts the program, so the token is in the call and not in the environment.
            seen = wait_for(lambda: self.desk.tokens() > before, 10, 0.1) is not None
            return self.tell("feedback", "token in the call" if seen else "no token in the call", seen)
        if b"PATH=" not in environment:
            return self.tell("feedback", "not seen: the program writes over its environment")
        token = b"XDG_ACTIVATION_TOKEN=" in environment
        self.tell("feedback", "token" if token else "no token", token)

    def end(self):
        pids = set(descendants(self.main)) if self.main else set()
        for pid in pids | {pid for pid, _ in self.own().values() if pid}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_for(lambda: not self.own(), 10, 0.1)


HEADING = "## Launched"


def slowest(trials, key):
    """Returns the longest of these times, and whose it is."""
    times = [(float(trial.result[key]), trial) for trial in trials if re.fullmatch(r"[\d.]+", trial.result.get(key, ""))]
    if not times:
        return "no time"
    time, trial = max(times, key=lambda one: one[0])
    return f"{time:.2f} s ({trial.what['entry']} on {trial.desk.name})"


def listed(trials):
    return ", ".join(dict.fromkeys(f"{trial.what['entry']} ({trial.what['kind']})" for trial in trials)) or "none"


def section(trials):
    """Returns the results as a section of the documentation's page."""
    refused = [trial for trial in trials if "refusal" in trial.what]
    begun = [trial for trial in trials if trial not in refused]
    failed = [f"{trial.what['entry']} on {trial.desk.name}: {', '.join(trial.failures)}" for trial in trials if trial.failures]
    sentences = [
        "`appstatectl launch ID [FILE]` starts Debian's desktop entries on X11 (xfwm4) and on sway, each in a unit of its own, "
        f"with the file in its title: {listed(begun)}. `make test-launches` writes this section.",
        f"The slowest, measured once: the command has answered after {slowest(begun, 'answered')}, the first window is there "
        f"after {slowest(begun, 'window')}. Refused by name: {listed(refused)}. Failed: {'; '.join(failed) or 'none'}.",
    ]
    return "\n".join([HEADING] + [line for one in sentences for line in ["", *textwrap.wrap(one, 116)]] + [""])


def round_on(desk, names, trials):
    try:
        desk.start()
        files = desk.directory / "files"
        for name in ("one.txt", "a b.txt", "one.html"):
            (files / name).write_text("<title>one</title>one\n" if name.endswith("html") else "one\n")
            os.chown(files / name, UID, UID)
        for name in names:
            trial = Trial(desk, name)
            if why := trial.missing():
                print(f"{desk.name:5} {name:13} skipped: {why}", flush=True)
                continue
            try:
                trial.run()
            except Exception as error:
                trial.tell("harness", repr(error), False)
            trial.end()
            trials.append(trial)
    finally:
        desk.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table")
    parser.add_argument("--desktop", choices=("X11", "sway"))
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    trials = []
    for kind, program in ((X11, "xfwm4"), (Sway, "sway")):
        if arguments.desktop not in (None, kind.name):
            continue
        if not shutil.which(program) or not os.path.exists(MANAGER):
            print(f"{kind.name:5} skipped: {program} or systemd is not installed", flush=True)
            continue
        round_on(kind("launches"), arguments.cases or CASES, trials)
    trials.sort(key=lambda trial: list(CASES).index(trial.name))
    if arguments.table and not arguments.cases and not arguments.desktop:
        put(arguments.table, HEADING, section(trials))
    return int(not trials or any(trial.failures for trial in trials))


if __name__ == "__main__":
    sys.exit(main())
