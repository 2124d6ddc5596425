#!/usr/bin/env python3
"""Tests real applications under appstated: whether it adopts and suspends them, and resumes them on demand.

Usage: applications.py [--mode freezer|signals] [--desktop X11|sway] [--rounds N] [--again] [--patience N]
                       [--table FILE] [APPLICATION...]
Prints each finding at once. --table also writes the findings to a page. Applications that are not installed are skipped
by name. Exit status: 0 success, 1 a case failed or nothing could be tested.

Run it through scripts/test-apps, which prepares the users, the bus and the environment variables.
"""
import argparse, json, os, pathlib, platform, shutil, signal, subprocess, sys, time
import desktop
from desktop import Desktop, SwayDesktop, wait_for, stat, descendants, difference, colours

PDF = "/usr/share/doc/shared-mime-info/shared-mime-info-spec.pdf"
PAGE = "<title>{0}</title><body style='background:linear-gradient(red,blue)'><h1>{0}</h1>" \
       "<script>onkeydown=e=>document.title='typed '+e.key</script>"

# The fields of an application:
# unit: the id of its desktop entry. argv: the command. again: the command of the second start, with {n} for the round.
# served: what shows that the second start was served: a window title; "": the second process exits; "new": one more
# window. keys: typed to test whether it takes input. start: the time limit for its first window, in seconds. held: the
# expected means of suspension, if it cannot be the freezer. kept: the objection that prevents its suspension as long as
# it runs. moves: its picture changes by itself. quits: Escape ends it. deaf: the desktop on which it takes no keys,
# whether it was suspended or not. stays: it runs on for a while after its last window is closed.
TYPED = ["a", "b", "c", "d", "e", "f"]
APPLICATIONS = {
    "mousepad": dict(unit="org.xfce.mousepad", argv=["mousepad", "one.txt"], again=["mousepad", "two{n}.txt"],
                     served="two{n}", keys=TYPED),
    "gedit": dict(unit="org.gnome.gedit", argv=["gedit", "one.txt"], again=["gedit", "two{n}.txt"],
                  served="two{n}", keys=TYPED),
    "gnome-text-editor": dict(unit="org.gnome.TextEditor", argv=["gnome-text-editor", "one.txt"],
                              again=["gnome-text-editor", "two{n}.txt"], served="two{n}", keys=TYPED),
    "kate": dict(unit="org.kde.kate", argv=["kate", "one.txt"], again=["kate", "two{n}.txt"], served="two{n}",
                 keys=TYPED),
    "libreoffice": dict(unit="libreoffice-writer",
                        argv=["libreoffice", "--norestore", "--nofirststartwizard", "--writer", "one.txt"],
                        again=["libreoffice", "--norestore", "--nofirststartwizard", "--writer", "two{n}.txt"],
                        served="two{n}", keys=TYPED, start=90),
    "xfce4-terminal": dict(unit="xfce4-terminal", argv=["xfce4-terminal"],
                           again=["xfce4-terminal", "--title=second{n}"], served="second{n}", keys=TYPED),
    "gnome-terminal": dict(unit="org.gnome.Terminal", argv=["gnome-terminal"],
                           again=["gnome-terminal", "--title=second{n}"], served="second{n}", keys=TYPED,
                           # The session bus starts its server in the bus's own cgroup.
                           held="SIGSTOP"),
    "konsole": dict(unit="org.kde.konsole", argv=["konsole"], again=["konsole"], served="new", keys=TYPED),
    "xterm with a job": dict(unit="debian-xterm", argv=["xterm", "-e", "bash", "-c", "sleep 1000; true"],
                             kept="terminal-job"),
    "evince": dict(unit="org.gnome.Evince", argv=["evince", "one.pdf"], again=["evince", "one.pdf"], served="",
                   keys=["Next"], deaf="sway"),
    "okular": dict(unit="org.kde.okular", argv=["okular", "one.pdf"], again=["okular", "two{n}.pdf"], served="new",
                   keys=["Next"]),
    "eog": dict(unit="org.gnome.eog", argv=["eog", "one.png"], again=["eog", "two{n}.png"], served="two{n}",
                keys=["plus"], quits=True),
    "gimp": dict(unit="gimp", argv=["gimp", "--no-splash", "one.png"], again=["gimp", "two{n}.png"], served="two{n}",
                 keys=["alt+f"], start=90),
    "inkscape": dict(unit="org.inkscape.Inkscape", argv=["inkscape", "one.svg"], again=["inkscape", "two{n}.svg"],
                     served="two{n}", keys=["s", "r", "e"], start=60),
    "galculator": dict(unit="galculator", argv=["galculator"], again=["galculator"], served="new",
                       keys=["7", "8", "9", "5"]),
    "gnome-mines": dict(unit="org.gnome.Mines", argv=["gnome-mines"], again=["gnome-mines"], served="",
                        keys=["Tab", "Return"]),
    "neverball": dict(unit="neverball", argv=["neverball"], again=["neverball"], served="new", keys=["Down"],
                      start=60, moves=True, quits=True),
    "thunar": dict(unit="thunar", argv=["thunar", "."], again=["thunar", "two{n}"], served="two{n}",
                   keys=["t"]),
    "nautilus": dict(unit="org.gnome.Nautilus", argv=["nautilus", "--new-window", "."],
                     again=["nautilus", "--new-window", "two{n}"], served="two{n}", keys=["ctrl+f"],
                     stays=True),
    "dolphin": dict(unit="org.kde.dolphin", argv=["dolphin", "--new-window", "."],
                    again=["dolphin", "--new-window", "two{n}"], served="two{n}", keys=["ctrl+f"]),
    "firefox": dict(unit="firefox-esr", argv=["firefox-esr", "one.html"],
                    again=["firefox-esr", "two{n}.html"], served="two{n}", keys=["a"], start=60),
    "chromium": dict(unit="chromium", argv=["chromium", "--no-first-run", "--password-store=basic",
                                            "--ozone-platform-hint=auto", "one.html"],
                     again=["chromium", "two{n}.html"], served="two{n}", keys=["a"], start=60),
    "thunderbird": dict(unit="thunderbird", argv=["thunderbird", "one.eml"], again=["thunderbird", "two{n}.eml"],
                        served="two{n}", keys=["alt+f"], start=60),
    "telegram": dict(unit="org.telegram.desktop", argv=["telegram-desktop"],
                     again=["telegram-desktop", "--", "tg://resolve?domain=example"], served="", keys=["Return"]),
    "qbittorrent": dict(unit="org.qbittorrent.qBittorrent", argv=["qbittorrent"],
                        again=["qbittorrent", "two{n}.torrent"], served="two{n}", keys=["ctrl+o"]),
    "vlc": dict(unit="vlc", argv=["vlc", "--no-qt-privacy-ask"], again=["vlc", "--no-qt-privacy-ask"], served="new",
                keys=["alt+m"]),
}


class Trial:
    def __init__(self, desk, name, rounds):
        self.desk, self.name, self.what = desk, name, APPLICATIONS[name]
        self.main = 0
        self.result = {"application": name, "mode": desk.mode}
        self.failures = []
        self.rounds = rounds

    # ---- reporting

    def tell(self, key, value, good=True):
        if isinstance(value, float):
            value = round(value, 2)
        # Keep the worst of several rounds: a failure, or else the longest time.
        before = self.result.get(key)
        if key not in self.failures and not (
                good and isinstance(before, float) and isinstance(value, float) and before > value):
            self.result[key] = value
        print(f"{self.desk.name:5} {self.name:17} {'ok  ' if good else 'FAIL'} {key}: {value}", flush=True)
        if not good:
            self.failures.append(key)
            print(self.desk.control("explain", f"pid:{self.main}") if self.main else "", flush=True)

    def timed(self, key, seconds, limit):
        good = seconds is not None and seconds < limit * desktop.patience
        self.tell(key, seconds if seconds is not None else "never", good)

    # ---- its windows and processes

    def own(self):
        return {w: v for w, v in self.desk.windows().items() if w not in self.before}

    def launch(self):
        self.main = 0
        self.before = set(self.desk.windows())
        self.known = {one["pid"] for one in self.desk.applications()}
        self.process = self.desk.spawn(self.what["argv"], self.name, unit=self.what["unit"])
        seconds = wait_for(self.own, self.what.get("start", 30), 0.2)
        if seconds is None:
            return None
        wait_for(self.adopted, 5, 0.1)
        time.sleep(3 if self.what.get("start", 0) < 60 else 6)
        one = self.adopted()
        self.main = one["pid"] if one else 0
        return seconds

    def adopted(self):
        news = [one for one in self.desk.applications() if one["pid"] not in self.known]
        return news[0] if news else None

    def state(self):
        one = self.desk.state(self.main)
        return one["state"] if one else "none"

    def minimize(self):
        for window in self.own():
            self.desk.minimize(window)

    def freeze(self, limit=12):
        """Minimizes it. Returns the seconds until it is suspended, or None after the limit."""
        self.minimize()
        return wait_for(lambda: self.state() == "suspended", limit, 0.05)

    def processes(self):
        found = set(descendants(self.main)) | set(descendants(self.process.pid))
        for one in self.desk.cgroup.glob(f"*-{self.process.pid}.scope/**/cgroup.procs"):
            found |= {int(pid) for pid in one.read_text().split()}
        return {pid for pid in found if stat(pid)}

    def ticks(self, seconds=3):
        """Returns the clock ticks that its idle processes use in total, and those of each process that used any."""
        first = {pid: stat(pid)[2] for pid in self.processes()}
        time.sleep(seconds)
        rest = {}
        for pid, before in first.items():
            now = stat(pid)
            if now and now[2] != before:
                comm = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                rest[f"{comm}[{pid}]"] = now[2] - before
        return sum(rest.values()), rest

    def held_by(self):
        for one in self.desk.cgroup.glob(f"*-{self.process.pid}.scope/cgroup.freeze"):
            if one.read_text().strip() == "1":
                return "freezer"
        return "SIGSTOP" if (stat(self.main) or " ")[0] == "T" else "?"

    # ---- the cases

    def run(self):
        seconds = self.launch()
        self.tell("window", seconds if seconds is not None else "never", seconds is not None)
        if seconds is None:
            return self.end()
        one = self.adopted()
        self.tell("id", one and one["app_id"], bool(one))
        if not one:
            return self.end()
        self.picture = {w: self.settled(w) for w in self.own()}
        if "kept" in self.what:
            self.keep()
            return self.end()
        seconds = self.freeze()
        self.timed("suspended", seconds, 6)
        if seconds is None:
            return self.end()
        held = self.held_by()
        means = "SIGSTOP" if self.desk.mode == "signals" else self.what.get("held", "freezer")
        self.tell("held by", held, held == means)
        self.tell("processes", len(self.processes()))
        total, who = self.ticks()
        self.tell("ticks", f"{total} {who if who else ''}".strip(), total == 0)
        self.objects()
        self.call()
        self.restore()
        self.key()
        for turn in range(self.rounds):
            self.again(turn)
        self.shut()
        self.terminate()
        self.end()

    def settled(self, window):
        """Activates a window. Returns its picture once it hardly changes any more."""
        self.desk.activate(window)
        wait_for(lambda: self.desk.focused() == window, 3)
        pictures = [self.desk.picture(window)]
        def rests():
            pictures.append(self.desk.picture(window))
            return difference(*pictures[-2:]) <= len(pictures[-1]) / 3 * 0.02
        wait_for(rests, 1 if self.what.get("moves") else 10, 1)
        return pictures[-1]

    def keep(self):
        """Checks that its work in progress keeps it from being suspended while it is minimized."""
        suspended = self.freeze(8)
        if suspended is not None:
            return self.tell("suspended", suspended, False)
        good = self.what["kept"] in self.desk.control("explain", f"pid:{self.main}")
        self.tell("suspended", f"no: {self.what['kept']}" if good else "without a reason", good)

    def objects(self):
        """Checks that each of its processes is stopped or in a frozen cgroup."""
        loose = []
        for pid in self.processes():
            state = stat(pid)
            cgroup = pathlib.Path(f"/proc/{pid}/cgroup").read_text().strip().split("0::")[-1]
            frozen = desktop.CGROUPS.joinpath(cgroup.lstrip("/"), "cgroup.events")
            is_frozen = frozen.exists() and "frozen 1" in frozen.read_text()
            if state and state[0] != "T" and not is_frozen:
                loose.append(f"{pathlib.Path(f'/proc/{pid}/comm').read_text().strip()}[{pid}]")
        self.tell("not held", ", ".join(loose) or "none", not loose)

    def names(self):
        """Returns the well-known names that its processes own on the session bus."""
        mine, found = self.processes(), []
        listing = self.desk.run("busctl", f"--address={self.desk.environment['DBUS_SESSION_BUS_ADDRESS']}",
                                "list", "--acquired", "--json=short")
        try:
            for one in json.loads(listing):
                if one.get("pid") in mine:
                    found.append(one["name"])
        except ValueError:
            print(listing)
        return found

    def call(self):
        names = self.names()
        self.tell("names", ", ".join(names) or "none")
        for name in names[:1]:
            start = time.monotonic()
            reply = self.desk.run("gdbus", "call", "--session", "--timeout", "10", "-d", name, "-o", "/", "-m",
                                  "org.freedesktop.DBus.Introspectable.Introspect", limit=20)
            seconds = time.monotonic() - start
            good = "node" in reply
            if not good:
                print(reply.strip()[:300])
            self.timed("(2) call", seconds if good else None, 1)
            self.tell("(2) last-demand", self.demand())
            self.timed("(7) again suspended after call",
                       wait_for(lambda: self.state() == "suspended", 12, 0.05), 6)

    def demand(self):
        for line in self.desk.control("explain", f"pid:{self.main}").splitlines():
            if "last-demand" in line:
                return line.split(":", 1)[1].strip()
        return "–"

    def restore(self):
        for window in list(self.picture):
            if window not in self.own():
                del self.picture[window]
        if not self.picture:
            return self.tell("(5) restore", "no window is left", False)
        window = next(iter(self.picture))
        start = time.monotonic()
        self.desk.activate(window)
        thawed = wait_for(lambda: self.state() != "suspended", 10)
        self.timed("(5) thawed", thawed, 1)
        before, now = self.picture[window], b""
        def painted():
            nonlocal now
            now = self.desk.picture(window)
            return colours(now) > colours(before) / 3 and (
                self.what.get("moves") or difference(before, now) < len(before) / 3 * 0.3)
        seconds = wait_for(painted, 10, 0.1)
        self.tell("(5) repainted", round(time.monotonic() - start, 2) if seconds is not None else
                  f"no: {colours(before)} colours, now {colours(now)}, {difference(before, now)} pixels differ",
                  seconds is not None)
        wait_for(lambda: self.state() == "active", 3)
        if self.what.get("deaf") == self.desk.name:
            return
        titles = self.own()
        before = self.desk.picture(window)
        self.desk.type(*self.what["keys"])
        def taken():
            return self.own() != titles or difference(before, self.desk.picture(window)) > 60
        seconds = wait_for(taken, 5, 0.1)
        self.timed("(5) takes input", seconds, 3)
        if not self.what.get("quits"):
            self.desk.type("Escape")

    def key(self):
        """Tests a desktop's key that suspends and minimizes the application in front. Activating its window resumes it."""
        windows = list(self.own())
        if not windows:
            return self.tell("(8) key", "no window is left", False)
        self.desk.activate(windows[-1])
        if wait_for(lambda: self.state() == "active", 5) is None:
            return self.tell("(8) key", f"it is {self.state()}, not in front", False)
        start = time.monotonic()
        said = self.desk.run("appstatectl", "toggle", "--focused", "--minimize").strip()
        self.tell("(8) key", (time.monotonic() - start) * 1000 if "is suspended" in said else said,
                  "is suspended" in said and self.state() == "suspended")
        hidden = wait_for(lambda: all(map(self.desk.is_hidden, windows)), 3)
        self.tell("(8) put away", hidden if hidden is not None else "never", hidden is not None)
        self.desk.activate(windows[-1])
        self.timed("(8) runs in front", wait_for(lambda: self.state() == "active", 5), 1)

    def again(self, turn):
        if self.freeze() is None:
            return self.tell("(1) suspended before", "no", False)
        time.sleep(0.5)
        before, pids = self.own(), self.processes()
        start = time.monotonic()
        again = [word.format(n=turn) for word in self.what["again"]]
        process = self.desk.spawn(again, f"{self.name}-again", unit=self.what["unit"])
        thawed = ended = served = None
        while time.monotonic() - start < 15 * desktop.patience and (thawed is None or served is None or ended is None):
            now = time.monotonic() - start
            if thawed is None and self.state() != "suspended":
                thawed = now
            if ended is None and process.poll() is not None:
                ended = now
            if served is None:
                windows = self.own()
                word = self.what["served"].format(n=turn)
                if word == "new":
                    good = len(windows) > len(before)
                elif word == "":
                    good = ended is not None and process.returncode == 0
                else:
                    good = any(word in title for _, title in windows.values())
                if good:
                    served = now
            if served is not None and (ended is not None or now > served + 3):
                break
            time.sleep(0.02)
        self.timed("(1) thawed", thawed, 1)
        # A new instance may take long to start, and appstated has no part in that.
        self.timed("(1) served", served, 15 if self.what["served"] == "new" else 3)
        self.tell("(1) second process", f"ended with {process.returncode} after {ended:.2f}" if ended is not None
                  else "lives", ended is None or process.returncode == 0)
        self.tell("(1) last-demand", self.demand())
        lost = [pid for pid in pids if not stat(pid)]
        self.tell("(1) lost", f"{len(lost)} processes, {len(set(before) - set(self.own()))} windows",
                  bool(stat(self.main)) and not set(before) - set(self.own()))
        if ended is None:  # an independent instance, which must not affect the next steps
            for pid in descendants(process.pid):
                os.kill(pid, signal.SIGTERM)
            try:
                process.wait(5)
            except Exception:
                process.kill()
        state = self.state()
        self.tell("(7) state after second start", state)
        if not all(map(self.desk.is_hidden, self.own())):
            self.minimize()
        # An application that computes all the time may run for half a minute after a demand.
        limit = 45 if self.what.get("moves") else 6
        self.timed("(7) again suspended after start",
                   wait_for(lambda: self.state() == "suspended", max(limit, 12), 0.05), limit)

    def shut(self):
        """Closes all its windows as a taskbar does."""
        windows = list(self.own())
        start = time.monotonic()
        for window in windows:
            self.desk.shut(window)
        thawed = gone = None
        asks = False
        while time.monotonic() - start < 8 * desktop.patience and gone is None:
            now = time.monotonic() - start
            if thawed is None and self.state() != "suspended":
                thawed = now
            left = self.own()
            # It may ask whether to save the typed text. That is an answer, too.
            asks = bool(set(left) - set(windows))
            if asks or not set(windows) & set(left):
                gone = now
            time.sleep(0.05)
        self.tell("(3) thawed by close", thawed if thawed is not None else "never", thawed is not None)
        self.timed("(3) closed or asks", gone, 2)
        self.tell("(3) windows then", [t for _, t in self.own().values()])
        if not asks and not self.what.get("stays"):
            self.timed("(3) process gone", wait_for(lambda: not stat(self.main), 5), 5)

    def stop(self):
        """Kills its processes, so that it cannot ask whether to save."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_for(lambda: not self.own(), 5)

    def terminate(self):
        if stat(self.main):
            self.stop()
        time.sleep(1)
        if self.launch() is None or not self.main:
            return self.tell("(4) second launch", "no window, or not adopted", False)
        if self.freeze() is None:
            return self.tell("(4) suspended before", "no", False)
        time.sleep(0.5)
        os.kill(self.main, signal.SIGTERM)
        start = time.monotonic()
        gone = wait_for(lambda: not stat(self.main), 15, 0.01)
        self.timed("(4) gone by SIGTERM", gone, 1.5)
        if gone is None:
            self.tell("(4) last-demand", self.demand())

    def end(self):
        self.stop()
        self.result["failures"] = self.failures
        return self.result


COLUMNS = [
    ("Id", "id"), ("Held by", "held by"), ("Suspended after", "suspended"), ("Ticks in 3 s", "ticks"),
    ("Call answered", "(2) call"), ("Second start served", "(1) served"), ("Runs after restore", "(5) thawed"),
    ("Repainted", "(5) repainted"), ("One key, in ms", "(8) key"), ("Closed, or asks", "(3) closed or asks"),
    ("Ended by SIGTERM", "(4) gone by SIGTERM"), ("Suspended again", "(7) again suspended after start"),
]
WAYLAND = "## On Wayland"


def table(trials):
    lines = [
        "| Application | " + " | ".join(title for title, _ in COLUMNS) + " |",
        "| --- " * (len(COLUMNS) + 1) + "|",
    ]
    return lines + [row(trial) for trial in trials]


def row(trial):
    cells = []
    for _, key in COLUMNS:
        value = trial.result.get(key, "–")
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        cells.append(f"**{text}**" if key in trial.failures else text)
    return f"| {trial.name} | " + " | ".join(cells) + " |"


def conditions(mode, rounds):
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return (f"{release['PRETTY_NAME'].strip(chr(34))}, Linux {platform.release()}, {os.cpu_count()} processors, "
            f"means: {mode}. Second starts: {rounds}, of which the slowest counts.")


def page(trials, mode, rounds):
    """Returns the results on X11 as the beginning of the page."""
    return "\n".join([
        "# Applications",
        "",
        "Unmodified applications run under one rule, `appstatectl rule '*' Suspension=automatic`, with",
        "`BackgroundGraceSec=2`. `make test-apps` writes this page. Times are in seconds, in steps of 0.05 s. Each was",
        "measured once, except for the second start.",
        "",
        f"On X11 (Xvfb, xfwm4). {conditions(mode, rounds)}",
        "",
        *table(trials),
        "",
        "- Bold: a failure. A dash: the application has no name on the session bus, or the step was not reached.",
        "- \"Second start served\" is the time until the running instance shows what the second one was started with.",
        "- \"Closed, or asks\" follows a request from a taskbar (`wmctrl -c`, `swaymsg kill`) while the application is",
        "  suspended. \"Ended by SIGTERM\" follows a signal.",
        "- \"One key\" is the time that `appstatectl toggle --focused --minimize` takes. The application is suspended then, and",
        "  its windows were seen to be minimized. It runs again when one of its windows gets the focus.",
        "- \"Repainted\" is the time from the request to restore the window until it shows its old picture.",
        "- `xterm with a job` is kept from being suspended by its job, so nothing else is measured.",
        "",
    ])


def section(trials, mode, rounds):
    """Returns the results on Wayland as a section of the page."""
    return "\n".join([
        WAYLAND,
        "",
        "The same on sway without a screen. Its windows float, and are minimized by moving them to the scratchpad.",
        f"{conditions(mode, rounds)}",
        "",
        *table(trials),
        "",
    ])


def write(path, trials, desk, rounds):
    if desk.name == "sway":
        return desktop.put(path, WAYLAND, section(trials, desk.mode, rounds))
    path = pathlib.Path(path)
    _, mark, rest = path.read_text().partition("\n## ") if path.exists() else ("", "", "")
    path.write_text(page(trials, desk.mode, rounds) + mark + rest)


def rewrite(path, trials, desk):
    """Replaces the rows of these trials in the table of a desktop."""
    path = pathlib.Path(path)
    before, mark, rest = path.read_text().partition(f"\n{WAYLAND}\n")
    part = rest if desk.name == "sway" else before
    part, end, others = part.partition("\n## ")
    lines = part.split("\n")
    for trial in trials:
        lines = [row(trial) if line.startswith(f"| {trial.name} |") else line for line in lines]
    part = "\n".join(lines) + end + others
    path.write_text(before + mark + part if desk.name == "sway" else part + mark + rest)


def torrent(name):
    """Returns a torrent of a one-byte file with a dummy hash, in the encoding of BEP 3."""
    text = f"d8:announce18:http://127.0.0.1:14:infod6:lengthi1e4:name{len(name)}:{name}12:piece lengthi16384e6:pieces20:"
    return text.encode() + bytes(20) + b"ee"


def make_files(desk, rounds):
    files = desk.directory / "files"
    for name in ["one"] + [f"two{turn}" for turn in range(rounds)]:
        (files / f"{name}.txt").write_text(f"{name}\n")
        (files / f"{name}.html").write_text(PAGE.format(name))
        (files / f"{name}.eml").write_text(f"From: a@example.org\nTo: b@example.org\nSubject: {name}\n\n{name}\n")
        (files / f"{name}.torrent").write_bytes(torrent(name))
        (files / f"{name}.svg").write_text(
            '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="200"><rect width="150" height="90"/></svg>')
        (files / f"{name}.pdf").write_bytes(pathlib.Path(PDF).read_bytes())
        subprocess.run(["convert", "-size", "200x200", "gradient:red-blue", f"{files}/{name}.png"], check=True)
        (files / name).mkdir()
    # Otherwise qBittorrent asks for consent at its first start.
    settings = desk.directory / "home/.config/qBittorrent/qBittorrent.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text("[LegalNotice]\nAccepted=true\n")
    for path in (*files.iterdir(), *settings.parents[:2][::-1], settings):
        os.chown(path, desktop.UID, desktop.UID)


def attempt(desk, name, rounds):
    trial = Trial(desk, name, rounds)
    try:
        trial.run()
    except Exception as error:
        trial.tell("harness", repr(error), False)
        trial.end()
    return trial


def round_on(desk, arguments):
    """Tests the selected applications on a desktop. Returns their trials."""
    trials = []
    try:
        desk.start()
        make_files(desk, arguments.rounds)
        for name in arguments.applications or APPLICATIONS:
            if not shutil.which(APPLICATIONS[name]["argv"][0], path=desk.environment["PATH"]):
                print(f"{desk.name:5} {name:17} skipped: not installed", flush=True)
                continue
            trial = attempt(desk, name, arguments.rounds)
            if trial.failures and arguments.again:
                print(f"{desk.name:5} {name:17} is tried again", flush=True)
                trial = attempt(desk, name, arguments.rounds)
            trials.append(trial)
            if arguments.table and not arguments.applications:
                write(arguments.table, trials, desk, arguments.rounds)
    finally:
        desk.close()
    if arguments.table and arguments.applications and pathlib.Path(arguments.table).exists():
        rewrite(arguments.table, trials, desk)
    return trials


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("freezer", "signals"), default="freezer")
    parser.add_argument("--desktop", choices=("X11", "sway"), help="default: both")
    parser.add_argument("--rounds", type=int, default=1, help="the number of second starts of each application")
    parser.add_argument("--again", action="store_true", help="test a failing application once more")
    parser.add_argument("--patience", type=int, default=1, help="the factor of every time limit")
    parser.add_argument("--table", help="the page to write: the tables, or only the rows of the named applications")
    parser.add_argument("applications", nargs="*", metavar="APPLICATION")
    arguments = parser.parse_args()
    if unknown := set(arguments.applications) - set(APPLICATIONS):
        parser.error(f"unknown applications: {', '.join(sorted(unknown))}; known are {', '.join(APPLICATIONS)}")
    desktop.patience = arguments.patience
    trials = []
    for kind, program in ((Desktop, "xfwm4"), (SwayDesktop, "sway")):
        if arguments.desktop not in (None, kind.name):
            continue
        if not shutil.which(program):
            print(f"{kind.name:5} skipped: {program} is not installed", flush=True)
            continue
        trials += round_on(kind(arguments.mode), arguments)
    return int(not trials or any(trial.failures for trial in trials))


if __name__ == "__main__":
    sys.exit(main())
