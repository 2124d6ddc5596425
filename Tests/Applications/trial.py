"""The steps by which one real application is tested, on a desktop that runs appstated."""
import json, os, pathlib, signal, subprocess, time
import desktop, services
from desktop import wait_for, stat, switches, descendants, difference, colours


def session(pid):
    """Returns the id of its session, or None if it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


class Trial:
    """The test of one application: `run` does all steps, `result` has what they gave, `failures` which of them failed."""

    def __init__(self, desk, name, what, rounds, seconds):
        """what: the fields of the application, which applications.py describes. seconds: for what it uses at rest."""
        self.desk, self.name, self.what = desk, name, what
        self.main = 0
        self.failures = []
        self.result = {"application": name, "desktop": desk.name, "mode": desk.mode, "rounds": rounds,
                       "failures": self.failures}
        self.rounds, self.seconds = rounds, seconds
        self.starts = {"(1) served": [], "(0) served": []}
        self.closes = []

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

    def happens(self, key, seconds):
        self.tell(key, seconds if seconds is not None else "never", seconds is not None)

    # ---- its windows and processes

    def own(self):
        return {w: v for w, v in self.desk.windows().items() if w not in self.before}

    def launch(self, briefly=False):
        """Starts it, and waits until it is at rest. Returns the seconds until its first window, or None."""
        self.main = 0
        self.before = set(self.desk.windows())
        self.known = {one["pid"] for one in self.desk.applications()}
        self.process = self.desk.spawn(self.what["argv"], self.name, unit=self.what["unit"])
        seconds = wait_for(self.own, self.what.get("start", 30), 0.2)
        if seconds is None:
            return None
        wait_for(self.adopted, 5, 0.1)
        time.sleep((3 if self.what.get("start", 0) < 60 else 6) / (2 if briefly else 1))
        one = self.adopted()
        self.main = one["pid"] if one else 0
        return seconds

    def adopted(self):
        news = [one for one in self.desk.applications() if one["pid"] not in self.known]
        return news[0] if news else None

    def state(self):
        one = self.desk.state(self.main)
        return one["state"] if one else "none"

    def to_front(self):
        """Activates its windows. Returns the seconds until it is active, or None after 5 s."""
        for window in self.own():
            self.desk.activate(window)
        return wait_for(lambda: self.state() == "active", 5)

    def minimize(self):
        for window in self.own():
            self.desk.minimize(window)

    def freeze(self, limit=12):
        """Minimizes it. Returns the seconds until it is suspended, or None after the limit."""
        self.minimize()
        return self.rests_hidden(limit)

    def suspends(self, limit=12):
        """Returns the seconds until it is suspended, or None after the limit."""
        return wait_for(lambda: self.state() == "suspended", limit, 0.05)

    def rests_hidden(self, limit):
        """The same. Minimizes what it shows meanwhile: some raise a window a while after they were asked."""
        def rests():
            if self.state() == "suspended":
                return True
            if not all(map(self.desk.is_hidden, self.own())):
                self.minimize()
            return False
        return wait_for(rests, limit, 0.05)

    def tree(self):
        found = set(descendants(self.main)) if self.main else set()
        # The pid of a process that has ended may be another's by now.
        if self.process.poll() is None:
            found |= set(descendants(self.process.pid))
        return found

    def members(self):
        """Returns the processes in its unit."""
        return {int(pid) for one in self.desk.cgroup.glob(f"*-{self.process.pid}.scope/**/cgroup.procs")
                for pid in one.read_text().split() if stat(int(pid))}

    def servers(self):
        """Returns the processes in its unit that are not part of it: it has started them in sessions of their own."""
        own = {session(pid) for pid in self.tree()}
        return {pid for pid in self.members() - self.tree() if session(pid) not in own | {None}}

    def processes(self):
        return {pid for pid in self.tree() | self.members() - self.servers() if stat(pid)}

    def cost(self):
        """Returns the clock ticks and the wake-ups of its processes in a while, and who used ticks."""
        first = {pid: (stat(pid) or (0, 0, 0), switches(pid)) for pid in self.processes()}
        time.sleep(self.seconds)
        ticks, wakes = {}, 0
        for pid, (before, woken) in first.items():
            if now := stat(pid):
                wakes += sum(count - woken.get(thread, 0) for thread, count in switches(pid).items())
                if now[2] != before[2]:
                    comm = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                    ticks[f"{comm}[{pid}]"] = now[2] - before[2]
        return sum(ticks.values()), wakes, ticks

    def held_by(self):
        for one in self.desk.cgroup.glob(f"*-{self.process.pid}.scope/cgroup.freeze"):
            if one.read_text().strip() == "1":
                return "freezer"
        return "SIGSTOP" if (stat(self.main) or " ")[0] == "T" else "?"

    # ---- the cases

    def run(self):
        try:
            self.desk.rule("manual")
            if self.appears():
                self.unsuspended()
                if "kept" in self.what:
                    self.keep()
                else:
                    self.suspended()
        finally:
            self.desk.rule("automatic")
            self.stop()

    def appears(self):
        seconds = self.launch()
        self.happens("window", seconds)
        if seconds is None:
            return False
        one = self.adopted()
        self.tell("id", one and one["app_id"], bool(one))
        return bool(one)

    def unsuspended(self):
        """Measures what it uses while it is minimized and not suspended."""
        self.picture = {w: self.settled(w) for w in self.own()}
        self.minimize()
        time.sleep(2)
        ticks, wakes, _ = self.cost()
        self.tell("cost before", f"{ticks} / {wakes}")
        self.desk.rule("automatic")

    def suspended(self):
        # The rule applies to it at once.
        seconds = self.suspends()
        self.happens("rule applies", seconds)
        self.to_front()
        seconds = self.freeze()
        self.timed("suspended", seconds, 6)
        if seconds is None:
            return
        held = self.held_by()
        # A unit that holds servers is not frozen, and there is no service manager that could make another one.
        means = "SIGSTOP" if self.desk.mode == "signals" or self.servers() else self.what.get("held", "freezer")
        self.tell("held by", held, held == means)
        self.tell("processes", len(self.processes()))
        ticks, wakes, who = self.cost()
        self.tell("cost", f"{ticks} / {wakes} {who or ''}".strip(), ticks == 0 and wakes == 0)
        self.objects()
        self.call()
        if self.desk.name in self.what.get("tray", ""):
            self.tray()
        self.restore()
        self.key()
        self.killed()
        if self.what.get("browses"):
            self.download()
        if self.desk.name in self.what.get("edits", ""):
            self.copy()
        self.stop()
        self.baseline()
        for turn in range(self.rounds):
            if self.launch(briefly=True) is None or not self.main:
                self.tell("(1) launch", f"round {turn}: no window, or not adopted", False)
                break
            self.again(turn)
            self.shut()
            self.stop()
        if times := sorted(self.starts["(1) served"]):
            self.tell("(1) served, median", times[len(times) // 2])
        self.terminate()

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
            reply = self.session(name, "/", "org.freedesktop.DBus.Introspectable.Introspect")
            seconds = time.monotonic() - start
            good = "node" in reply
            if not good:
                print(reply.strip()[:300])
            self.timed("(2) call", seconds if good else None, 1)
            self.tell("(2) last-demand", self.demand())
            self.timed("(7) again suspended after call", self.suspends(), 6)

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
        if self.desk.name in self.what.get("edits", ""):
            self.save()
        if self.what.get("browses"):
            self.reload()
        if not self.what.get("quits"):
            self.desk.type("Escape")

    def save(self):
        """Saves the text that was typed after the restoration."""
        file = self.desk.directory / "files/one.txt"
        before = file.read_text()
        self.desk.type("ctrl+s")
        self.timed("(5) saved", wait_for(lambda: file.read_text() not in ("", before), 5), 3)

    def reload(self):
        """Loads its page again, after a key has changed the page's title."""
        titles = lambda: [title for _, title in self.own().values()]
        if not any("typed" in title for title in titles()):
            return self.tell("(5) page loaded", f"its titles are {titles()}", False)
        self.desk.type("F5")
        self.timed("(5) page loaded", wait_for(lambda: any("one" in title for title in titles()), 5), 3)

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
        self.happens("(8) put away", hidden)
        self.desk.activate(windows[-1])
        self.timed("(8) runs in front", wait_for(lambda: self.state() == "active", 5), 1)

    def tray(self):
        """Clicks its tray icon."""
        mine = {f":{pid}" for pid in self.processes()}
        found = None
        for line in (self.desk.directory / "watcher.log").read_text().splitlines():
            if " " in line:
                service, path = line.split()
                owner = self.session("org.freedesktop.DBus", "/", "org.freedesktop.DBus.GetConnectionUnixProcessID", service)
                if f":{owner.strip(chr(10) + '(), ').split()[-1]}" in mine:
                    found = service, path
        if not found:
            return self.tell("(6) tray", "no icon", False)
        start = time.monotonic()
        reply = self.session(*found, "org.kde.StatusNotifierItem.Activate", "0", "0")
        seconds = time.monotonic() - start
        self.timed("(6) tray", seconds if reply.strip() == "()" else None, 1)
        self.tell("(6) last-demand", self.demand())
        time.sleep(1)
        if not all(map(self.desk.is_hidden, self.own())):
            self.minimize()
        self.suspends()

    def session(self, service, path, member, *arguments):
        """Calls a method on the session bus. Returns what gdbus prints."""
        return self.desk.run("gdbus", "call", "--session", "--timeout", "10", "-d", service, "-o", path, "-m", member,
                             *arguments, limit=20)

    def killed(self):
        """Kills the daemon, then the agent, while it is suspended. Others take their place."""
        if self.freeze() is None:
            return self.tell("(9) suspended before", "no", False)
        pids = self.processes()
        self.desk.daemon.kill()
        self.desk.daemon.wait()
        self.desk.start_daemon()
        held = self.suspends(10)
        self.tell("(9) daemon killed", "suspended again" if held is not None else self.state(), held is not None)
        self.desk.agent.kill()
        self.desk.agent.wait()
        # Without a reporter nobody would see the user come back to it.
        runs = wait_for(lambda: self.state() != "suspended", 10, 0.1)
        self.tell("(9) agent killed", "runs" if runs is not None else "stays suspended", runs is not None)
        self.desk.start_agent()
        again = self.suspends(20)
        self.tell("(9) agent back", "suspended again" if again is not None else self.state(), again is not None)
        active = self.to_front()
        lost = [pid for pid in pids if not stat(pid)]
        good = held is not None and runs is not None and again is not None and active is not None and bool(stat(self.main))
        self.tell("(9) killed", "yes" if good else f"no: {len(lost)} processes are lost, it is {self.state()}", good)

    def download(self):
        """A download keeps it from being suspended, until it ends."""
        server = services.Server()
        try:
            self.desk.spawn([self.what["again"][0], server.address], f"{self.name}-download", unit=self.what["unit"])
            if wait_for(lambda: server.open > 0, 20, 0.1) is None:
                return self.tell("(10) download", "did not begin", False)
            time.sleep(2)
            suspended = self.freeze(10)
            # Firefox inhibits sleep where there is a portal.
            why = self.desk.control("explain", f"pid:{self.main}")
            reason = "network" in why or "reported inhibitor" in why
            good = suspended is None and reason and server.open > 0
            self.tell("(10) download", "runs on" if good else
                      f"suspended after {suspended}, reason {reason}, {server.open} connections", good)
        finally:
            server.end()
        after = self.suspends(20)
        self.happens("(10) suspended after", after)

    def copy(self):
        """Copies its text, minimizes it, and pastes into another application."""
        window = next(iter(self.own()))
        self.desk.activate(window)
        wait_for(lambda: self.desk.focused() == window, 3)
        time.sleep(0.5)
        self.desk.type("ctrl+a", "ctrl+c")
        time.sleep(0.5)
        self.minimize()
        reported = lambda: "reported clipboard" in self.desk.control("explain", f"pid:{self.main}")
        wait_for(lambda: reported() or self.state() == "suspended", 5, 0.1)
        time.sleep(self.desk.grace + 1)
        state = self.state()
        start = time.monotonic()
        try:
            text = self.desk.run(services.PYTHON, "-c", services.PASTE, limit=90)
        except subprocess.TimeoutExpired:
            text = ""
        good = "one" in text and state == "background" and reported()
        self.tell("(11) pasted", f"{time.monotonic() - start:.2f} ({state})" if good else f"no ({state}): {text.strip()[-80:]}",
                  good)

    def baseline(self):
        """Measures second starts while it is minimized and not suspended."""
        self.desk.rule("manual")
        for turn in range(max(1, self.rounds // 5)):
            if self.launch(briefly=True) is not None and self.main:
                self.minimize()
                time.sleep(3)
                self.second(turn, "(0)")
                self.shut("(0)")
            self.stop()
        self.desk.rule("automatic")

    def again(self, turn):
        if self.freeze() is None:
            return self.tell("(1) suspended before", "no", False)
        time.sleep(0.5)
        self.second(turn, "(1)")
        self.tell("(1) last-demand", self.demand())
        state = self.state()
        self.tell("(7) state after second start", state)
        # An application that computes all the time may run for half a minute after a demand.
        limit = 45 if self.what.get("moves") else 6
        self.timed("(7) again suspended after start", self.rests_hidden(max(limit, 12)), limit)

    def second(self, turn, step):
        """Starts it a second time, and waits until the first instance shows what the second was started with."""
        before, pids = self.own(), self.processes()
        start = time.monotonic()
        again = [word.format(n=turn) for word in self.what["again"]]
        process = self.desk.spawn(again, f"{self.name}-again", unit=self.what["unit"])
        thawed = ended = served = None
        while time.monotonic() - start < 15 * desktop.patience and (thawed is None or served is None or ended is None):
            now = time.monotonic() - start
            if thawed is None and (step == "(0)" or self.state() != "suspended"):
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
        self.starts[f"{step} served"].append(served or 15)
        if step == "(0)":
            self.tell("(0) served", served if served is not None else "never")
        else:
            self.timed("(1) thawed", thawed, 1)
            # What it needs without us is no failure.
            alone = max(self.starts["(0) served"], default=0)
            self.timed("(1) served", served, max(1, alone + 1))
        self.tell(f"{step} second process", f"ended with {process.returncode} after {ended:.2f}" if ended is not None
                  else "lives", ended is None or process.returncode == 0)
        lost = [pid for pid in pids if not stat(pid)]
        self.tell(f"{step} lost", f"{len(lost)} processes, {len(set(before) - set(self.own()))} windows",
                  bool(stat(self.main)) and not set(before) - set(self.own()))
        if ended is None:  # an independent instance, which must not affect the next steps
            for pid in descendants(process.pid):
                try:
                    os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass
            try:
                process.wait(5)
            except Exception:
                process.kill()

    def shut(self, step="(3)"):
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
        # It may run and end between two looks.
        thawed = gone if thawed is None else thawed
        if step == "(0)":
            self.closes.append(gone or 8)
            return self.tell("(0) closed or asks", gone if gone is not None else "never")
        self.happens("(3) thawed by close", thawed)
        self.timed("(3) closed or asks", gone, max(2, max(self.closes, default=0) + 1))
        self.tell("(3) windows then", [t for _, t in self.own().values()])
        if not asks and not self.what.get("stays"):
            self.timed("(3) process gone", wait_for(lambda: not stat(self.main), 5), 5)

    def stop(self):
        """Kills its processes, so that it cannot ask whether to save."""
        desktop.kill(self.processes())
        wait_for(lambda: not self.own(), 5)

    def terminate(self):
        if self.launch(briefly=True) is None or not self.main:
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

