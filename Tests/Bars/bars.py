#!/usr/bin/env python3
"""Plays what users see of appstated, and says of each part whether it is right. scripts/bars describes it."""
import json, os, pathlib, random, re, signal, string, subprocess, sys, tempfile, threading, time, traceback
import figures, handoff as machines, stage
from stage import (APPLICATION, HERE, LIMIT, MANAGER, REPORTER, ROOT, Cgroup, Client, Daemon, MemoryLimit, Missing,
                   Refused, Subject, Wrong, eventually, need, program)

KILLS = 30
SCENES = 10
APPLICATIONS = ["mousepad", "gedit", "xfce4-terminal", "evince", "galculator"]


def require(condition, what):
    if not condition:
        raise Wrong(what)


def run(command, limit=300, **more):
    """Runs a program of the project. Returns its exit status and its output."""
    process = stage.group(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    try:
        output = process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        raise Wrong(f"{os.path.basename(command[0])} does not end within {limit} s")
    return process.returncode, output


def last(output):
    return " / ".join(output.strip().splitlines()[-2:])


# ---- what scripts and the benchmark play already

def edges():
    """the states, edge by edge, of processes and of windows (scripts/demo)"""
    code, output = run([str(HERE / "scripts/demo")])
    if code == 125:
        raise Missing(last(output))
    require(code == 0, last(output))
    return re.search(r"\d+ edges were announced", output).group() + ", each as expected"


def apps():
    """five real applications on X11 (scripts/test-apps)"""
    results = stage.scratch() / "results"
    # Without a table: docs/applications.md is not written.
    code, output = run([str(HERE / "scripts/test-apps"), "--desktop", "X11", "--seconds", "3", "--again", "--table",
                        "", "--results", str(results), *APPLICATIONS], 420)
    if code == 125:
        raise Missing(last(output))
    found = json.loads(results.read_text()) if results.exists() else []
    wrong = [f"{one['application']}: {', '.join(one['failures'])}" for one in found if one["failures"]]
    require(not wrong, "; ".join(wrong))
    if len(found) < len(APPLICATIONS):
        raise Missing(f"some of {', '.join(APPLICATIONS)} are missing; scripts/setup few-apps installs them")
    require(code == 0, last(output))
    return f"{len(found)} applications adopted, suspended, used, resumed"


def measured(part, *rows):
    """Runs a part of appstate-bench. Returns the median and the ratio in each of the rows that begin like these."""
    code, output = run([program("appstate-bench"), part])
    require(code == 0, f"appstate-bench {part}: {last(output)}")
    found = []
    for row in rows:
        line = next((line for line in output.splitlines() if line.startswith(f"| {row}")), None)
        require(line, f"appstate-bench {part} prints no row {row}")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found.append((cells[1], cells[3]))
    return found


# ---- stops by others

def foreign():
    """stops and freezes by other programs, seen and announced"""
    daemon = Daemon("[LifeCycle]\nBackgroundGraceSec=1h\n")
    client = Client().subscribe()
    cases = 0
    for home in [None, Cgroup()]:
        subject = Subject(home)
        path = client.register("org.example.Foreign", subject.pid, "{launch-mode=s:background}")
        client.expect(path, "background")
        for _ in range(20):
            means = [(lambda: os.kill(subject.pid, signal.SIGSTOP), lambda: os.kill(subject.pid, signal.SIGCONT))]
            if home:
                means.append((lambda: home.freeze(True), lambda: home.freeze(False)))
            for stop, go in means:
                client.forget()
                stop()
                client.expect(path, "suspended")
                require([one[0] for one in stage.holds(path)] == ["signal"], f"holds: {stage.holds(path)}")
                go()
                client.expect(path, "background")
                require(client.edges(path) == ["background", "suspended", "background"], f"edges {client.edges(path)}")
                require(stage.holds(path) == [], f"holds afterwards: {stage.holds(path)}")
                cases += 1
    daemon.stop()
    (_, ratio), (_, back) = measured("stopping", "kill -STOP to a subscriber's StateChanged(suspended), tracepoint",
                                     "kill -CONT to a subscriber's last StateChanged, tracepoint")
    return f"{cases} and 400 by appstate-bench; announced after {ratio} and {back} times a round trip"


# ---- our own freeze

def freeze():
    """freeze and thaw through a cgroup, and without one"""
    daemon = Daemon("[LifeCycle]\nBackgroundGraceSec=1h\n")
    client = Client().subscribe()
    home = Cgroup()
    for subject in [Subject(home), Subject()]:
        path = client.register("org.example.Frozen", subject.pid, "{launch-mode=s:background}")
        for turn in range(50):
            client.application(path, "Suspend")
            require(client.state(path) == "suspended", f"turn {turn}: {client.state(path)} after Suspend")
            require(subject.stands(), f"turn {turn}: {subject.stopped()} of {len(subject.pids)} stand after Suspend")
            if subject.home:
                require(home.wants_frozen(), "it was stopped, and not by its cgroup")
            client.application(path, "Resume")
            require(client.state(path) == "background", f"turn {turn}: {client.state(path)} after Resume")
            eventually("all run after Resume", subject.runs)
    # Whatever is suspended runs when the daemon ends for good.
    client.application(path, "Suspend")
    daemon.stop()
    eventually("it runs after the daemon's end", subject.runs)
    [(_, ratio)] = measured("freezing", "Suspend of the same")
    return f"100 times; of 200 processes, Suspend takes {ratio} times as long as a bare write to cgroup.freeze"


# ---- kills

class Known:
    """An application under churn: what was done to it, as far as the calls were answered. None: not known."""

    def __init__(self, subject, path):
        self.subject, self.path = subject, path
        self.requested = self.foreign = False
        # Whether a call that ends or unregisters it was made, and not answered.
        self.leaving = False


class Churn:
    def __init__(self):
        self.daemon = Daemon("[LifeCycle]\nBackgroundGraceSec=1h\nTerminateGraceSec=100ms\n")
        self.client = Client()
        self.ended, self.live, self.deeds, self.crashing = [], [], 0, False
        for number in range(20):
            self.add(Cgroup() if number % 2 else None)

    def add(self, home):
        subject = Subject(home)
        try:
            path = self.client.register(f"org.example.Churn{subject.pid}", subject.pid, "{launch-mode=s:background}")
        except Refused:
            # The daemon was killed. Whether it had registered the process does not matter: nobody has stopped it.
            self.ended.append(subject)
            return
        self.live.append(Known(subject, path))

    def leave(self, one):
        self.live.remove(one)
        self.ended.append(one.subject)

    def deed(self):
        one = random.choice(self.live)
        kind = random.choice(["suspend", "suspend", "resume", "resume", "stop", "continue", "end", "terminate", "add",
                              "unregister"])
        call = lambda member, *words: self.client.application(one.path, member, *words)
        if kind == "suspend" and one.foreign is False:
            one.requested = None
            call("Suspend")
            one.requested = True
        elif kind == "resume":
            # A stop that the daemon has not seen yet is not lifted.
            one.foreign = None if one.foreign is not False else False
            one.requested = None if one.requested is not False else False
            call("Resume")
            one.requested = False
        elif kind == "stop" and one.requested is False:
            os.kill(one.subject.pid, signal.SIGSTOP)
            one.foreign = True
        elif kind == "continue" and one.requested is False and one.foreign is not False:
            os.kill(one.subject.pid, signal.SIGCONT)
            one.foreign = False
        elif kind == "end" and len(self.live) > 12:
            self.leave(one)
            one.subject.end()
        elif kind == "terminate" and len(self.live) > 12:
            one.leaving = True
            call("Terminate", "b:true")
            self.leave(one)
        elif kind == "unregister" and len(self.live) > 12:
            if one.foreign is not False:
                return
            one.leaving = True
            call("Unregister")
            self.leave(one)
        elif kind == "add" and len(self.live) < 24:
            self.add(random.choice(self.live).subject.home and Cgroup())
        else:
            return
        self.deeds += 1

    def play(self):
        while not self.crashing:
            try:
                self.deed()
            except Refused as error:
                # One that was killed before the last crash may end only now.
                require(self.crashing or "NoSuchApplication" in str(error), f"refused with {error}")

    def crash(self):
        self.crashing = False
        # The random moment is the point.
        killer = threading.Timer(random.uniform(0.05, 0.3), self.kill)
        killer.start()
        self.play()
        killer.join()
        self.daemon.process.wait()
        self.daemon.start()

    def kill(self):
        # Set first, so that what is refused because of the kill is known to be.
        self.crashing = True
        self.daemon.process.kill()

    def wrongs(self):
        """What is not as it was announced, answered or done."""
        wrong, listed = [], self.client.list()
        for one in list(self.live):
            if one.path not in listed:
                if one.leaving:
                    self.leave(one)
                else:
                    wrong.append(f"{one.path} was lost")
                continue
            state, stopped = self.client.state(one.path), one.subject.stopped()
            held = {hold[0] for hold in stage.holds(one.path)}
            if (state == "suspended") != bool(held):
                wrong.append(f"{one.path} is {state} with the holds {held}")
            if stopped and not held:
                wrong.append(f"{one.path}: {stopped} processes left frozen")
            if one.requested and "request" not in held:
                wrong.append(f"{one.path}: the request was not taken over; holds {held}")
            if one.requested and not one.subject.stands():
                wrong.append(f"{one.path}: suspended, and {stopped} of {len(one.subject.pids)} stand")
            if one.requested is False and "request" in held:
                wrong.append(f"{one.path}: a request that was lifted came back")
            if one.foreign and "signal" not in held:
                wrong.append(f"{one.path}: the stop by another program is not known; holds {held}")
        for subject in self.ended:
            stopped = [pid for pid in subject.pids if stage.status(pid) in ("T", "t")]
            frozen = subject.home and subject.home.is_frozen() and subject.home.processes()
            if stopped or frozen:
                wrong.append(f"no application any more, and left frozen: {stopped or frozen} of {subject.pids}"
                             + (", by the cgroup" if frozen else ""))
        return wrong

    def settle(self, what):
        wrong = []

        def is_right():
            nonlocal wrong
            try:
                wrong = self.wrongs()
            except (Refused, subprocess.CalledProcessError) as error:
                # An application whose end was under way has just gone.
                wrong = [str(error)]
            return not wrong
        eventually(lambda: f"{what}: {'; '.join(wrong[:3])}", is_right, 15)

    def finish(self):
        for one in self.live:
            self.client.application(one.path, "Resume")
        for one in self.live:
            eventually(f"{one.path} runs after Resume", one.subject.runs)
        # Now everything is suspended, and no daemon starts any more.
        for one in self.live:
            self.client.application(one.path, "Suspend")
        self.daemon.kill()
        require(all(one.subject.stands() for one in self.live), "the kill has resumed something")
        self.daemon.release()
        for one in self.live:
            eventually(f"{one.path} runs after appstated --release", one.subject.runs)


def kills():
    """kill -9 of the daemon while applications are registered, suspended, resumed and ended"""
    need("busctl")
    seed = int(os.environ.get("APPSTATED_SEED") or random.randrange(1 << 32))
    random.seed(seed)
    churn = Churn()
    for number in range(KILLS):
        churn.crash()
        churn.settle(f"after kill {number + 1} (APPSTATED_SEED={seed})")
    churn.finish()
    return (f"{KILLS} kills, {churn.deeds} deeds: all taken over, nothing left frozen; "
            f"{len(churn.live)} released at the end")


# ---- saved state

def state():
    """saved state, read back whole after kill -9 at any moment"""
    daemon = Daemon("[LifeCycle]\nBackgroundGraceSec=1h\n")
    apps = []
    for number in range(10):
        client = Client()
        path = client.register(f"org.example.Saver{number}", client.pid, "{launch-mode=s:background}")
        client.application(path, "FinishLaunching")
        apps.append([client, path, ""])

    def text():
        return "".join(random.choices(string.ascii_letters, k=random.randrange(1, 4000)))

    saved = 0
    for kill in range(20):
        for app in apps:
            app[2] = text()
            app[0].application(app[1], "SaveState", "ay:" + app[2])
            saved += 1
        # The daemon dies while it saves the next ones.
        pending = []
        for app in apps:
            new = text()
            pending.append((app, new, app[0].begin("call", app[1], APPLICATION, "SaveState", "ay:" + new)))
        time.sleep(random.uniform(0, 0.03))
        daemon.kill()
        for app, new, number in pending:
            try:
                app[0].answer(number)
                app[2], allowed = new, {new}
            except Refused:
                allowed = {app[2], new}
            app.append(allowed)
        daemon.start()
        for app in apps:
            allowed = app.pop()
            found = app[0].application(app[1], "LoadState")
            require(found in allowed, f"kill {kill + 1}: {app[1]} reads {len(found)} other bytes")
    # The next launch reads it as well.
    client, path, _ = apps[0]
    text = client.application(path, "LoadState")
    client.process.kill()
    watcher = Client()
    eventually("the end of the application", lambda: path not in watcher.list())
    client = Client()
    path = client.register("org.example.Saver0", client.pid)
    require(client.application(path, "LoadState") == text, "the next launch reads another state")
    return f"{saved} saved, 20 kills: each read back whole"


# ---- memory

def reclaim():
    """memory runs short: suspended applications are ended, announced and recorded, and the front survives"""
    need("busctl")
    if not os.access("/proc/pressure/memory", os.W_OK):
        raise Missing("the kernel has no PSI")
    # MiB
    most, line, each = 400, 60, 30
    limit = MemoryLimit(most << 20)
    daemon = Daemon(f"""[LifeCycle]
BackgroundGraceSec=0
[Pressure]
Source={limit.own.directory}/memory.pressure
Warning=some 2ms 2s
Critical=full 2s 2s
CriticalAvailable={line}M
""")
    watcher = Client().subscribe()

    def inside():
        client = Client()
        limit.take(client.pid)
        return client

    front, reader = inside(), inside()
    front_path = front.register("org.example.Front", front.pid, "{delegate=b:false}")
    watcher.focus(front.pid)
    watcher.expect(front_path, "active")
    sleepers = {}
    for number in range(4):
        client = inside()
        client.ask("allocate", str(each))
        path = client.register(f"org.example.Sleeper{number}", client.pid,
                               "{launch-mode=s:background,delegate=b:false,suspension=s:manual}")
        client.application(path, "SaveState", f"ay:state{number}")
        watcher.application(path, "Suspend")
        watcher.expect(path, "suspended")
        sleepers[path] = (client, number)
    # More than fits, so that memory stalls. Not in /tmp, which may be a tmpfs: the writer would be charged for that.
    file = stage.scratch("/var/tmp") / "large"
    with open(file, "wb") as large:
        for _ in range(most):
            large.write(b"7" * (1 << 20))
        large.flush()
        os.fsync(large.fileno())
        os.posix_fadvise(large.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    reader.begin("read", str(file))
    watcher.happens("a warning",
                    lambda _, member, words: member == "MemoryPressureChanged" and words[0] == "warning")

    def reclaimed():
        with watcher.news:
            return [words[0] for _, member, words in watcher.signals if member == "ApplicationReclaimed"]
    grown = 0
    while not reclaimed() and grown < most:
        front.ask("allocate", "4")
        grown += 4
        time.sleep(0.02)
    require(reclaimed(), f"nothing was ended for {grown} MiB")
    path = reclaimed()[0]
    require(path in sleepers, f"{path} was ended")
    client, number = sleepers[path]
    watcher.happens("its removal as reclaimed", lambda _, member, words: member == "ApplicationRemoved"
                    and words[0] == path and words[-1] == "reclaimed")
    client.process.wait(LIMIT)
    os.kill(reader.pid, signal.SIGKILL)
    require(watcher.state(front_path) == "active" and stage.status(front.pid), "the front did not survive")
    [history] = stage.busctl(ROOT, MANAGER, "GetHistory", "s", f"org.example.Sleeper{number}")
    require(history and history[0][1:3] == ["reclaimed", "suspended"], f"history: {history}")
    # Started again, it finds its state and how it ended.
    again = Client()
    path = again.register(f"org.example.Sleeper{number}", again.pid)
    require(again.application(path, "LoadState") == f"state{number}", "its state is lost")
    options = subprocess.run(["busctl", "--system", "--json=short", "get-property", "org.appstate1", path, APPLICATION,
                              "LaunchOptions"], capture_output=True, text=True).stdout
    require('"reclaimed"' in options, f"launch options: {options}")
    daemon.stop()
    return f"{len(reclaimed())} of 4 ended while the front grew by {grown} of {most} MiB; state and history read back"


# ---- scenes

class Player:
    """LibraryActor with scenes, by its commands."""

    def __init__(self, limit):
        self.process = stage.start([program("LibraryActor"), "--scenes"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.pid, self.lines = self.process.pid, []
        limit.take(self.pid)

    def read(self, beginning):
        """Reads up to a line that begins like this."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(beginning):
                return self.lines[-1][len(beginning):]
        raise Wrong(f"the application has ended, after {self.lines[-3:]}")

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.read("answer ")

    def scenes(self):
        """The id and the text of each."""
        return [(scene.split(":")[0], scene.split(":")[2]) for scene in self.ask("scenes").split()]


def scenes():
    """an application of three scenes, reclaimed and started again, while the daemon is killed at any moment"""
    if not os.access("/proc/pressure/memory", os.W_OK):
        raise Missing("the kernel has no PSI")
    limit = MemoryLimit(200 << 20)
    daemon = Daemon(f"""[LifeCycle]
BackgroundGraceSec=5
[Pressure]
Source={limit.own.directory}/memory.pressure
Warning=some 2ms 2s
Critical=full 2s 2s
CriticalAvailable=200M
""")
    watcher, hog = Client(), Client()
    limit.take(hog.pid)
    hog.ask("allocate", "110")
    file = stage.scratch("/var/tmp") / "large"
    with open(file, "wb") as large:
        for _ in range(200):
            large.write(b"7" * (1 << 20))
        large.flush()
        os.fsync(large.fileno())
        os.posix_fadvise(large.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def steadily(what, action):
        """Tries until it succeeds, and starts the next daemon where one was killed."""
        def succeeds():
            if daemon.process.poll() is not None:
                daemon.start()
            try:
                return action()
            except Refused:
                return False
        eventually(what, succeeds)

    expected = []
    for number in range(SCENES):
        player = Player(limit)
        player.read("told didFinishLaunching")
        killer = threading.Timer(random.uniform(0, 1.5), daemon.process.kill)
        killer.start()
        if number == 0:
            for _ in range(2):
                player.ask("scene")
        found = player.scenes()
        require(len(found) == 3 and (number == 0 or found == expected),
                f"round {number + 1}: {found} instead of {expected}")
        for scene in range(3):
            player.ask(f"window {scene} visible")
            player.ask(f"write {scene} text{number}.{scene}")
        expected = player.scenes()

        def suspended():
            watcher.call(ROOT, REPORTER, "SetMinimized", f"u:{player.pid}", "b:true")
            path = watcher.call(ROOT, MANAGER, "GetApplicationByPID", f"u:{player.pid}")
            return watcher.state(path) == "suspended"

        def gone():
            return player.process.poll() is not None
        steadily(f"round {number + 1}: suspended", lambda: gone() or suspended())
        killer.join()
        steadily(f"round {number + 1}: suspended again", lambda: gone() or suspended())
        reader = Client()
        limit.take(reader.pid)
        reader.begin("read", str(file))
        steadily(f"round {number + 1}: reclaimed", gone)
        os.kill(reader.pid, signal.SIGKILL)
        eventually("the end in the list", lambda: not watcher.list())
        if number:
            story = [line for line in player.lines if line.startswith("told willFinishLaunching")]
            require("exit:reclaimed restorable:true" in story[0], f"round {number + 1}: {story}")
    daemon.stop()
    return f"{SCENES} times, with {SCENES} kills: three scenes in order, each with its text"


# ---- what an application asks for itself

class Actor:
    """LibraryActor: an application written with the library. It takes commands, and prints its callbacks."""

    def __init__(self, *options):
        self.process = stage.start([program("LibraryActor"), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
        self.pid, self.lines, self.news = self.process.pid, [], threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.news:
                self.lines.append(line.rstrip("\n"))
                self.news.notify_all()

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def expect(self, text):
        with self.news:
            require(self.news.wait_for(lambda: any(text in line for line in self.lines), LIMIT),
                    f"the application does not say {text}: {self.lines[-5:]}")


def ctl(*words):
    done = subprocess.run([program("appstatectl"), *words], capture_output=True, text=True)
    require(done.returncode == 0, f"appstatectl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def agent(record):
    """An X server without a screen, and the session agent, which knows LibraryActor's desktop entry."""
    need("Xvfb")
    data = stage.scratch()
    (data / "applications").mkdir()
    (data / "applications/org.example.LibraryActor.desktop").write_text(
        f"[Desktop Entry]\nType=Application\nName=Library actor\nExec={program('LibraryActor')} --record {record}\n")
    read, write = os.pipe()
    # Otherwise the server starts anew when its first client leaves, and refuses the next one meanwhile.
    stage.start(["Xvfb", "-displayfd", str(write), "-screen", "0", "800x600x24", "-nolisten", "tcp", "-noreset"],
                pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(write)
    with os.fdopen(read) as line:
        display = line.readline().strip()
    others = ("WAYLAND_DISPLAY", "SWAYSOCK", "I3SOCK")
    environment = {key: value for key, value in os.environ.items() if key not in others}
    environment.update(DISPLAY=f":{display}", XDG_DATA_HOME=str(data), XDG_DATA_DIRS="/nonexistent",
                       XDG_CONFIG_HOME=str(data))
    stage.start([program("appstate-session")], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def events():
    """an application that hangs is noticed, a scheduled launch survives kill -9, a task goes on while it progresses"""
    daemon = Daemon("[LifeCycle]\nBackgroundGraceSec=2\nUnresponsiveSec=2\nBackgroundTaskMaxSec=3\n"
                    "BackgroundTaskWarnSec=1\n")
    client = Client().subscribe()
    one = "org.example.LibraryActor"

    # Its main thread waits while it comes to the foreground.
    player = Actor("--hang")
    client.happens("the hang", lambda _, member, words: member == "DidBecomeUnresponsive" and words == ["main", "loop"])
    path, = [path for path in client.list()]
    player.tell("")
    eventually("its answer lifts that", lambda: client.get(path, "Unresponsive") == "")

    # A task in the background, four times as long as its limit, and then without progress.
    player.tell("export film")
    player.expect("task film begun")
    eventually("the task is listed", lambda: "Exporting" in ctl("tasks"))
    client.call(ROOT, stage.REPORTER, "SetMinimized", f"u:{player.pid}", "b:true")
    client.expect(path, "background")
    begun = time.monotonic()
    for step in range(1, 9):
        time.sleep(1.5)
        player.tell(f"progress film {step}")
        require(client.state(path) == "background", f"it is {client.state(path)} after {step} steps")
    span = time.monotonic() - begun
    require("task film cancelled" not in player.lines, "a task that progresses was cancelled")
    eventually("its progress is listed", lambda: "80 % (8 of 10)" in ctl("tasks"))
    player.expect("task film cancelled")
    client.expect(path, "suspended")

    # A launch wakes it, although the daemon was killed meanwhile.
    client.focus(player.pid)
    client.expect(path, "active")
    player.tell("schedule refresh 6")
    eventually("the launch is listed", lambda: "refresh" in ctl("schedule"))
    client.call(ROOT, stage.REPORTER, "SetMinimized", f"u:{player.pid}", "b:true")
    client.expect(path, "suspended")
    daemon.kill()
    daemon.start()
    client.subscribe()
    player.expect("told perform background refresh")
    eventually("it is forgotten then", lambda: "refresh" not in ctl("schedule", "--json"))

    # One more launches it, although it has ended as well.
    # Its answer says that the launch is on the disk.
    player.lines.clear()
    player.tell("schedule again 4")
    player.expect("answer ok")
    require("again" in ctl("schedule"), "the launch is not listed")
    player.process.kill()
    daemon.kill()
    daemon.start()
    record = stage.scratch() / "record"
    agent(record)
    eventually("it is launched", lambda: record.exists() and "told perform background again time" in record.read_text())
    eventually("its end of time", lambda: "again" not in ctl("schedule", "--json"))
    ctl("terminate", "--force", one)
    daemon.stop()
    return f"noticed; {span:.0f} s with progress, limit 3 s; woken and launched after kill -9"


# ---- two machines

def handoff():
    """what is written on one machine, continued on another over a link that is cut"""
    return machines.play()


# ---- figures

def beside():
    """calls beside the same service in C"""
    found = figures.calls()
    return ", ".join(f"{name}: {found[name]['cpu']:.2f} times the CPU, {found[name]['median']:.2f} times the latency"
                     for name in found)


def idle():
    """wake-ups of an idle daemon, with nothing suspended and with five applications suspended"""
    found = figures.idle(60)
    # Five applications may be due at two times, and a drain has a beginning and an end.
    for one, most in zip(found.values(), (0, 2, 4)):
        require(one["moments"] <= most, f"it wakes itself in more than {most} moments: {figures.told(found)}")
    return "wake-ups in 60 s by the daemon itself: " + figures.told(found)


# ---- background transfers

def transfers():
    """100 background transfers under faults, with the program, the daemon, the agent and the application killed"""
    need("curl", "mount")
    sys.path.insert(0, str(HERE / "Tests/Transfers"))
    try:
        import dbus, trial
    except ImportError as error:
        raise Missing(f"{error}: scripts/setup test installs python3-dbus")
    return trial.play()


# The longest first, so that none is left at the end to play by itself.
BARS = [apps, handoff, transfers, events, kills, state, edges, idle, foreign, freeze, reclaim, scenes, beside]
# Their programs have buses of their own.
OWN_BUS = [edges, handoff, apps, beside, idle]
# The others play two at a time: most of them wait. A shortage of memory meets everything on the machine, others would
# wake an idle daemon, and times cannot be compared while others play.
ALONE = [idle, foreign, freeze, reclaim, scenes, beside]


def play(name):
    """Plays one bar in this process. Prints its result as a line of JSON."""
    bar = next(bar for bar in BARS if bar.__name__ == name)
    try:
        result = "ok", bar()
    except Missing as missing:
        result = "not played", str(missing)
    except Exception as error:
        traceback.print_exc()
        result = "WRONG", str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
    finally:
        stage.clean_up()
    print(json.dumps(result), flush=True)


class Play:
    """One bar, in a process of its own."""

    def __init__(self, bar):
        self.bar, self.since = bar, time.monotonic()
        command = [sys.executable, str(pathlib.Path(__file__)), "--play", bar.__name__]
        bus = [] if bar in OWN_BUS else stage.private_bus()
        self.output, self.errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.process = stage.group([*bus, *command], stdout=self.output, stderr=self.errors)

    def has_ended(self):
        return self.process.poll() is not None

    def tell(self):
        """Prints its line. Returns its result."""
        for file in (self.output, self.errors):
            file.seek(0)
        output, errors = self.output.read(), self.errors.read()
        try:
            result, text = json.loads(output.splitlines()[-1])
        except (IndexError, ValueError):
            result = "not played" if self.process.returncode == 125 else "WRONG"
            text = last(errors) or f"exit status {self.process.returncode}"
        print(f"{self.bar.__name__:9} {result:5} {text} ({time.monotonic() - self.since:.0f} s)", flush=True)
        if result == "WRONG" and errors.strip():
            print("".join(f"    {line}\n" for line in errors.strip().splitlines()[-12:]), end="", file=sys.stderr)
        return result


def played(bars):
    """Plays bars, and yields the result of each."""
    waiting, playing = sorted(bars, key=ALONE.__contains__), []
    while waiting or playing:
        while waiting and len(playing) < (1 if waiting[0] in ALONE else 2):
            playing.append(Play(waiting.pop(0)))
        stage.eventually("a bar ends", lambda: any(one.has_ended() for one in playing), float("inf"))
        for one in [one for one in playing if one.has_ended()]:
            playing.remove(one)
            yield one.tell()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    words = sys.argv[1:]
    if words[:1] == ["--play"]:
        return play(words[1])
    if words[:1] == ["--list"]:
        for bar in BARS:
            print(f"{bar.__name__:9} {bar.__doc__}")
        return 0
    known = {bar.__name__: bar for bar in BARS}
    unknown = [word for word in words if word not in known]
    if unknown:
        print(f"bars: no bar is called {unknown[0]}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    begin = time.monotonic()
    results = list(played([known[word] for word in words] or BARS))
    print(f"bars: {results.count('ok')} of {len(results)} ok, {results.count('WRONG')} wrong, "
          f"{results.count('not played')} not played, after {time.monotonic() - begin:.0f} s")
    return 1 if "WRONG" in results else 125 if "not played" in results else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        stage.clean_up()
