#!/usr/bin/env python3
"""Real applications under appstated: adopted, suspended, and needed while suspended.

Usage: applications.py [--mode freezer|signals] [--display N] [--table FILE] [APPLICATION...]
Prints each finding as it comes; with --table, writes them to a page as well. Applications that are not installed are
named and left out. Exit status: 0, 1 a case failed.

scripts/test-apps runs it where there is what it needs.
"""
import argparse, json, os, pathlib, platform, shutil, signal, subprocess, sys, time
import desktop
from desktop import Desktop, wait_for, stat, descendants, difference, colours

PDF = "/usr/share/doc/shared-mime-info/shared-mime-info-spec.pdf"
PAGE = "<title>{0}</title><body style='background:linear-gradient(red,blue)'><h1>{0}</h1>" \
       "<script>onkeydown=e=>document.title='typed '+e.key</script>"

# unit: the desktop entry's id. again: what a second start is given, {n}: of which round. served: what the title of a window says then; None:
# the second process ends by itself, or has a window of its own. keys: what is typed to see whether it takes input.
APPLICATIONS = {
    "mousepad": dict(unit="org.xfce.mousepad", argv=["mousepad", "one.txt"], again=["mousepad", "two{n}.txt"],
                     served="two{n}", keys=["a", "b", "c", "d", "e", "f"]),
    "gedit": dict(unit="org.gnome.gedit", argv=["gedit", "one.txt"], again=["gedit", "two{n}.txt"],
                  served="two{n}", keys=["a", "b", "c", "d", "e", "f"]),
    "xfce4-terminal": dict(unit="xfce4-terminal", argv=["xfce4-terminal"],
                           again=["xfce4-terminal", "--title=second{n}"], served="second{n}",
                           keys=["a", "b", "c", "d", "e", "f"]),
    "evince": dict(unit="org.gnome.Evince", argv=["evince", "one.pdf"], again=["evince", "one.pdf"], served="",
                   keys=["Next"]),
    "galculator": dict(unit="galculator", argv=["galculator"], again=["galculator"], served="new",
                       keys=["7", "8", "9", "5"]),
    "thunar": dict(unit="thunar", argv=["thunar", "."], again=["thunar", "two{n}"], served="two{n}",
                   keys=["alt+f"]),
    "kate": dict(unit="org.kde.kate", argv=["kate", "one.txt"], again=["kate", "two{n}.txt"], served="two{n}",
                 keys=["a", "b", "c", "d", "e", "f"]),
    "firefox": dict(unit="firefox-esr", argv=["firefox-esr", "one.html"],
                    again=["firefox-esr", "two{n}.html"], served="two{n}", keys=["a"], start=60),
    "chromium": dict(unit="chromium", argv=["chromium", "--no-first-run", "--password-store=basic", "one.html"],
                     again=["chromium", "two{n}.html"], served="two{n}", keys=["a"], start=60),
    "gimp": dict(unit="gimp", argv=["gimp", "--no-splash", "one.png"], again=["gimp", "two{n}.png"], served="two{n}",
                 keys=["alt+f"], start=90),
}


class Trial:
    def __init__(self, desk, name, rounds):
        self.desk, self.name, self.what = desk, name, APPLICATIONS[name]
        self.result = {"application": name, "mode": desk.mode}
        self.failures = []
        self.rounds = rounds

    # ---- telling

    def tell(self, key, value, good=True):
        if isinstance(value, float):
            value = round(value, 2)
        # Of several rounds the worst is kept.
        before = self.result.get(key)
        if key not in self.failures and not (
                good and isinstance(before, float) and isinstance(value, float) and before > value):
            self.result[key] = value
        print(f"{self.name:15} {'ok  ' if good else 'FAIL'} {key}: {value}", flush=True)
        if not good:
            self.failures.append(key)
            print(self.desk.control("explain", f"pid:{self.main}") if self.main else "", flush=True)

    def timed(self, key, seconds, limit):
        self.tell(key, seconds if seconds is not None else "never", seconds is not None and seconds < limit)

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
            self.desk.run("xdotool", "windowminimize", window)

    def freeze(self, limit=12):
        """Seconds from minimizing to suspended."""
        self.minimize()
        return wait_for(lambda: self.state() == "suspended", limit, 0.05)

    def processes(self):
        found = set(descendants(self.main)) | set(descendants(self.process.pid))
        for one in self.desk.cgroup.glob(f"*-{self.process.pid}.scope/**/cgroup.procs"):
            found |= {int(pid) for pid in one.read_text().split()}
        return {pid for pid in found if stat(pid)}

    def ticks(self, seconds=3):
        """Ticks of its processes while nothing is done, and those that ticked."""
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
        self.picture = {w: self.desk.picture(w) for w in self.own()}
        seconds = self.freeze()
        self.timed("suspended", seconds, 6)
        if seconds is None:
            return self.end()
        held = self.held_by()
        self.tell("held by", held, held != "?" and (self.desk.mode == "signals" or held == "freezer"))
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

    def objects(self):
        """Whether anything else of it has a process that is not held."""
        loose = []
        for pid in self.processes():
            state = stat(pid)
            cgroup = pathlib.Path(f"/proc/{pid}/cgroup").read_text().strip().split("0::")[-1]
            frozen = desktop.CGROUPS.joinpath(cgroup.lstrip("/"), "cgroup.events")
            is_frozen = frozen.exists() and "frozen 1" in frozen.read_text()
            if state and state[0] != "T" and not is_frozen:
                loose.append(f"{pathlib.Path(f'/proc/{pid}/comm').read_text().strip()}[{pid}]")
        self.tell("not held", ", ".join(loose) or "nobody", not loose)

    def names(self):
        """Well-known names on the session bus of its processes."""
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
        self.desk.run("xdotool", "windowactivate", window)
        thawed = wait_for(lambda: self.state() != "suspended", 10)
        self.timed("(5) thawed", thawed, 1)
        before, now = self.picture[window], b""
        def painted():
            nonlocal now
            now = self.desk.picture(window)
            return colours(now) > colours(before) / 3 and difference(before, now) < len(before) / 3 * 0.3
        seconds = wait_for(painted, 10, 0.1)
        self.tell("(5) repainted", round(time.monotonic() - start, 2) if seconds is not None else
                  f"no: {colours(before)} colours, now {colours(now)}, {difference(before, now)} pixels differ",
                  seconds is not None)
        wait_for(lambda: self.state() == "active", 3)
        start = time.monotonic()
        titles = self.own()
        before = self.desk.picture(window)
        self.desk.run("xdotool", "key", "--delay", "30", *self.what["keys"])
        def taken():
            return self.own() != titles or difference(before, self.desk.picture(window)) > 60
        seconds = wait_for(taken, 5, 0.1)
        self.timed("(5) takes input", seconds, 3)
        self.desk.run("xdotool", "key", "Escape")

    def is_hidden(self, window):
        return "_NET_WM_STATE_HIDDEN" in self.desk.run("xprop", "-id", window, "_NET_WM_STATE")

    def key(self):
        """What a desktop does at one key: what is in front is suspended and put away; it runs once it is in front again."""
        windows = list(self.own())
        if not windows:
            return self.tell("(8) key", "no window is left", False)
        self.desk.run("xdotool", "windowactivate", "--sync", windows[-1])
        if wait_for(lambda: self.state() == "active", 5) is None:
            return self.tell("(8) key", f"it is {self.state()}, not in front", False)
        start = time.monotonic()
        said = self.desk.run("appstatectl", "toggle", "--focused", "--minimize").strip()
        self.tell("(8) key", (time.monotonic() - start) * 1000 if "is suspended" in said else said,
                  "is suspended" in said and self.state() == "suspended")
        hidden = wait_for(lambda: all(map(self.is_hidden, windows)), 3)
        self.tell("(8) put away", hidden if hidden is not None else "never", hidden is not None)
        self.desk.run("xdotool", "windowactivate", windows[-1])
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
        while time.monotonic() - start < 15 and (thawed is None or served is None or ended is None):
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
        self.tell("(1) thawed", thawed if thawed is not None else "never", thawed is not None and thawed < 1)
        self.tell("(1) served", served if served is not None else "never", served is not None and served < 3)
        self.tell("(1) second process", f"ended with {process.returncode} after {ended:.2f}" if ended is not None
                  else "lives", ended is None or process.returncode == 0)
        self.tell("(1) last-demand", self.demand())
        lost = [pid for pid in pids if not stat(pid)]
        self.tell("(1) lost", f"{len(lost)} processes, {len(set(before) - set(self.own()))} windows",
                  bool(stat(self.main)) and not set(before) - set(self.own()))
        if ended is None:  # independent of the first; or it has made itself one: it is ended
            for pid in descendants(process.pid):
                os.kill(pid, signal.SIGTERM)
            try:
                process.wait(5)
            except Exception:
                process.kill()
        state = self.state()
        self.tell("(7) state after second start", state)
        if not all(map(self.is_hidden, self.own())):
            self.minimize()
        self.timed("(7) again suspended after start", wait_for(lambda: self.state() == "suspended", 12, 0.05), 6)

    def shut(self):
        """All its windows are closed from outside."""
        windows = list(self.own())
        start = time.monotonic()
        for window in windows:
            self.desk.run("wmctrl", "-i", "-c", hex(window))
        thawed = gone = None
        asks = False
        while time.monotonic() - start < 8 and gone is None:
            now = time.monotonic() - start
            if thawed is None and self.state() != "suspended":
                thawed = now
            left = self.own()
            # What was typed is not saved: it asks, which is an answer, too.
            asks = bool(set(left) - set(windows))
            if asks or not set(windows) & set(left):
                gone = now
            time.sleep(0.05)
        self.tell("(3) thawed by close", thawed if thawed is not None else "never", thawed is not None)
        self.timed("(3) closed or asks", gone, 2)
        self.tell("(3) windows then", [t for _, t in self.own().values()])
        if not asks:
            self.timed("(3) process gone", wait_for(lambda: not stat(self.main), 5), 5)

    def stop(self):
        """Without a question whether to save."""
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
    ("Repainted", "(5) repainted"), ("One key, in ms", "(8) key"), ("Closed, or asks", "(3) closed or asks"), ("Ended by SIGTERM", "(4) gone by SIGTERM"),
    ("Suspended again", "(7) again suspended after start"),
]


def page(results, mode, rounds):
    """What was seen, as a page of the documentation."""
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    lines = [
        "# Applications",
        "",
        "Unmodified applications under one rule, `appstatectl rule '*' Suspension=automatic`, with "
        "`BackgroundGraceSec=2`.",
        f"`make test-apps` writes this page. {release['PRETTY_NAME'].strip(chr(34))}, Linux {platform.release()}, "
        f"{os.cpu_count()} processors, Xvfb, xfwm4; means: {mode}. Times are in seconds, "
        f"with steps of 0.05 s; the second start is the worst of {rounds}, all else was measured once.",
        "",
        "| Application | " + " | ".join(title for title, _ in COLUMNS) + " |",
        "| --- " * (len(COLUMNS) + 1) + "|",
    ]
    for trial in results:
        cells = []
        for _, key in COLUMNS:
            value = trial.result.get(key, "–")
            text = f"{value:.2f}" if isinstance(value, float) else str(value)
            cells.append(f"**{text}**" if key in trial.failures else text)
        lines.append(f"| {trial.name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "- Bold: not as it should be. A dash: it has no name on the session bus, or it did not come to that.",
        "- \"Closed, or asks\" is a request from a taskbar (`wmctrl -c`) while the application was suspended, \"Ended by SIGTERM\" a",
        "  signal; \"Second start served\" is until the running instance shows what the second one was started with.",
        "- \"One key\" is the time that `appstatectl toggle --focused --minimize` takes; then the application stands, and its",
        "  windows were seen to be minimized. It runs once one of them is in front again.",
        "- \"Repainted\" is from the request to restore the window until its picture is what it was.",
        "",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("freezer", "signals"), default="freezer")
    parser.add_argument("--display", type=int, default=77, help="the first that is tried")
    parser.add_argument("--rounds", type=int, default=1, help="of a second start")
    parser.add_argument("--table")
    parser.add_argument("applications", nargs="*")
    arguments = parser.parse_args()
    number = arguments.display
    while os.path.exists(f"/tmp/.X11-unix/X{number}") or os.path.exists(f"/tmp/.X{number}-lock"):
        number += 1
    desk = Desktop(arguments.mode, number)
    bad, results = 0, []
    try:
        desk.start()
        files = desk.directory / "files"
        for name in ["one"] + [f"two{turn}" for turn in range(arguments.rounds)]:
            (files / f"{name}.txt").write_text(f"{name}\n")
            (files / f"{name}.html").write_text(PAGE.format(name))
            (files / f"{name}.pdf").write_bytes(pathlib.Path(PDF).read_bytes())
            subprocess.run(["convert", "-size", "200x200", "gradient:red-blue", f"{files}/{name}.png"], check=True)
            (files / name).mkdir()
        for path in files.iterdir():
            os.chown(path, desktop.UID, desktop.UID)
        for name in arguments.applications or APPLICATIONS:
            if not shutil.which(APPLICATIONS[name]["argv"][0]):
                print(f"{name:15} skipped: not installed", flush=True)
                continue
            trial = Trial(desk, name, arguments.rounds)
            trial.main = 0
            try:
                trial.run()
            except Exception as error:
                trial.tell("harness", repr(error), False)
                trial.end()
            bad |= bool(trial.failures)
            results.append(trial)
            if arguments.table:
                table = pathlib.Path(arguments.table)
                # launches.py and unsaved.py write the rest.
                rest = table.read_text().partition("\n## ") if table.exists() else ("", "", "")
                table.write_text(page(results, arguments.mode, arguments.rounds) + "".join(
                    rest[1:] if rest[1] else ()))
    finally:
        desk.close()
    return bad


if __name__ == "__main__":
    sys.exit(main())
