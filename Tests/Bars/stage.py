"""What the bars and the figures share: the daemon, its clients, cgroups, and what /proc tells about processes."""
import json, os, pathlib, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

HERE = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 60  # seconds to wait for an event
ROOT, MANAGER = "/org/appstate1", "org.appstate1.Manager"
APPLICATION, REPORTER = "org.appstate1.Application", "org.appstate1.Reporter"


class Missing(Exception):
    """Something that the machine lacks, as a sentence."""


class Wrong(Exception):
    """What differs from what was expected."""


class Refused(Exception):
    """The name of the error that a call returned."""


def programs():
    return pathlib.Path(os.environ.get("APPSTATED_PROGRAMS") or HERE / ".build/release").resolve()


def program(name):
    path = programs() / name
    if not os.access(path, os.X_OK):
        raise Missing(f"{path} is not built; make bars builds it")
    return str(path)


def need(*commands):
    for command in commands:
        if not shutil.which(command):
            raise Missing(f"{command} is missing")


def eventually(what, condition, limit=LIMIT):
    """Waits until the condition holds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise Wrong(f"not within {limit} s: {what() if callable(what) else what}")
        time.sleep(0.005)


# ---- everything that is started ends with the bar

_ends = []


def at_end(action):
    _ends.append(action)


def clean_up():
    while _ends:
        try:
            _ends.pop()()
        except (OSError, subprocess.SubprocessError):
            pass


def die_with_parent():
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def start(command, **more):
    child = subprocess.Popen(command, preexec_fn=die_with_parent, **more)
    at_end(lambda: (child.kill(), child.wait()))
    return child


def group(command, **more):
    """Starts a script in a group of its own, which gets SIGTERM as a whole: a shell waits for its child first."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **more)

    def end():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
    at_end(end)
    return process


def scratch(below=None):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="appstate-bars.", dir=below))
    at_end(lambda: shutil.rmtree(directory, ignore_errors=True))
    return directory


# ---- processes

def status(pid):
    """The letter of the process's state; None if it has ended."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    letter = text[text.rindex(")") + 2]
    return None if letter in "ZX" else letter


def children(pid):
    try:
        return [int(one) for one in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def cpu(pid):
    """The processor time of all threads of a process, in nanoseconds (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns((~pid << 3) | 2)


class Wakings:
    """Each time that a thread of the daemon is woken, with the kernel's stack, which tells by what."""

    CAUSES = {"perf_event_wakeup": "others", "timerfd_": "timer", "hrtimer_wakeup": "timer", "eventfd_": "worker",
              "futex_": "worker", "unix_": "bus", "blk_": "disk"}

    def __init__(self, pid):
        root = tempfile.mkdtemp(prefix="appstate-bars.")
        at_end(lambda: os.rmdir(root))
        done = subprocess.run(["mount", "-t", "tracefs", "none", root], capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"wake-ups are not traced: {done.stderr.strip()}")
        at_end(lambda: subprocess.run(["umount", root], check=True))
        self.directory = pathlib.Path(root) / "instances" / f"appstate-{pid}"
        self.directory.mkdir()
        at_end(self.directory.rmdir)
        self.write("trace_clock", "mono")
        # Threads that it starts later belong to it, too.
        self.write("options/event-fork", "1")
        self.write("set_event_pid", " ".join(os.listdir(f"/proc/{pid}/task")))
        self.write("options/stacktrace", "1")
        self.write("events/sched/sched_waking/enable", "1")

    def write(self, name, text):
        (self.directory / name).write_text(text)

    def read(self, begin, end):
        """The time and the cause of each, in a part of CLOCK_MONOTONIC."""
        threads = (self.directory / "set_event_pid").read_text().split()
        found = []
        for text in re.split(r"\n(?! =>|.*<stack trace>)", (self.directory / "trace").read_text()):
            head = re.search(r" (\d+\.\d+): sched_waking: .* pid=(\d+) ", text)
            if head and head[2] in threads and begin <= float(head[1]) < end:
                # The first that fits, because the waker may have interrupted something else.
                frames = re.search(" => (" + "|".join(self.CAUSES) + ")", text)
                found.append((float(head[1]), self.CAUSES[frames[1]] if frames else "kernel"))
        return sorted(found)


def kib(pid, key="Pss"):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return 0


class Subject:
    """An ordinary process with a child, which knows nothing of appstated."""

    def __init__(self, home=None):
        self.home = home
        self.process = start(["sh", "-c", "sleep 100000 & echo; wait"], stdout=subprocess.PIPE,
                             start_new_session=True)
        self.pid = self.process.pid
        at_end(self.end)
        self.process.stdout.readline()
        self.pids = [self.pid] + children(self.pid)
        if home:
            for pid in self.pids:
                home.take(pid)

    def stopped(self):
        """How many of its processes do not run."""
        if self.home and self.home.is_frozen():
            return len(self.pids)
        return sum(status(pid) in ("T", "t") for pid in self.pids)

    def stands(self):
        return self.stopped() == len(self.pids)

    def runs(self):
        return self.stopped() == 0

    def end(self):
        for pid in self.pids:
            # Its child belongs to the same session, so a number that was used again is not hit.
            try:
                if os.getsid(pid) == self.pid:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


# ---- cgroups

class Cgroup:
    """A cgroup of version 2 of the bar's own, below the bar's."""

    number = 0

    @staticmethod
    def base():
        own = [line.split("::", 1)[1] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
               if line.startswith("0::")]
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            if " - cgroup2 " in line and own:
                words = line.split()
                # The mount may show a part of the tree only, as in a container.
                relative = own[0].removeprefix(words[3].rstrip("/"))
                directory = pathlib.Path(words[4] + relative)
                if os.access(directory / "cgroup.procs", os.W_OK):
                    return directory
        raise Missing("no cgroup can be made: this needs root and a writable mount of cgroup2")

    def __init__(self, name="app-bars", below=None):
        Cgroup.number += 1
        self.directory = (below or self.base()) / f"{name}-{os.getpid()}-{Cgroup.number}"
        try:
            self.directory.mkdir()
        except OSError as error:
            raise Missing(f"no cgroup can be made: {error}")
        at_end(self.remove)

    def take(self, pid):
        (self.directory / "cgroup.procs").write_text(str(pid))

    def processes(self):
        return (self.directory / "cgroup.procs").read_text().split()

    def freeze(self, on):
        (self.directory / "cgroup.freeze").write_text("1" if on else "0")

    def is_frozen(self):
        return "frozen 1" in (self.directory / "cgroup.events").read_text()

    def wants_frozen(self):
        return (self.directory / "cgroup.freeze").read_text().strip() == "1"

    def remove(self):
        try:
            (self.directory / "cgroup.kill").write_text("1")
        except FileNotFoundError:
            pass
        self.freeze(False)
        remove(self.directory)


def remove(directory):
    """Removes a cgroup, which its last process may be about to leave."""
    for _ in range(400):
        try:
            return directory.rmdir()
        except OSError:
            time.sleep(0.005)


class MemoryLimit:
    """A cgroup whose memory is limited, with the controller of version 2 or 1."""

    def __init__(self, bytes):
        self.own, self.old = Cgroup("bars-memory"), None
        if os.access(self.own.directory / "memory.max", os.W_OK):
            (self.own.directory / "memory.max").write_text(str(bytes))
            self.write(self.own.directory / "memory.swap.max", 0)
            return
        self.old = pathlib.Path("/sys/fs/cgroup/memory") / self.own.directory.name
        try:
            self.old.mkdir()
        except OSError:
            raise Missing("no limit of memory can be set: this needs root and a memory controller")
        at_end(lambda: remove(self.old))
        (self.old / "memory.limit_in_bytes").write_text(str(bytes))
        self.write(self.old / "memory.memsw.limit_in_bytes", bytes)

    @staticmethod
    def write(path, value):
        # The kernel has these files only if it counts swap.
        if path.exists():
            path.write_text(str(value))

    def take(self, pid):
        self.own.take(pid)
        if self.old:
            (self.old / "cgroup.procs").write_text(str(pid))


# ---- the bus, the daemon and its clients

class Client:
    """AppActor: a process with a connection of its own. It is an application, or any other client."""

    def __init__(self, home=None):
        self.process = start([program("AppActor")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.answers, self.signals, self.number = {}, [], 0
        self.news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.news:
                word, _, rest = line.rstrip("\n").partition(" ")
                if word.startswith("#"):
                    self.answers[word[1:]] = rest
                elif word == "signal":
                    path, interface, member, *words = rest.split(" ")
                    self.signals.append((path, member, words))
                self.news.notify_all()
        with self.news:
            self.answers["end"] = ""
            self.news.notify_all()

    def begin(self, command, *words):
        """Gives a command, and returns the number of its answer."""
        self.number += 1
        self.process.stdin.write(" ".join([str(self.number), command, *words]) + "\n")
        self.process.stdin.flush()
        return str(self.number)

    def answer(self, number, limit=LIMIT):
        with self.news:
            if not self.news.wait_for(lambda: number in self.answers or "end" in self.answers, limit):
                raise Wrong(f"no answer within {limit} s")
            result, _, text = self.answers.pop(number, "error ended").partition(" ")
        if result == "error":
            raise Refused(text)
        return text

    def ask(self, command, *words, limit=LIMIT):
        return self.answer(self.begin(command, *words), limit)

    def call(self, path, interface, member, *words, limit=LIMIT):
        return self.ask("call", path, interface, member, *words, limit=limit)

    # ---- the daemon's interfaces

    def subscribe(self):
        self.call(ROOT, MANAGER, "Subscribe")
        return self

    def register(self, id, pid, options="{}"):
        return self.call(ROOT, MANAGER, "Register", f"s:{id}", f"u:{pid}", options)

    def application(self, path, member, *words, limit=LIMIT):
        return self.call(path, APPLICATION, member, *words, limit=limit)

    def get(self, path, property, interface=APPLICATION):
        """A property that is a string."""
        text = self.call(path, "org.freedesktop.DBus.Properties", "Get", f"s:{interface}", f"s:{property}")
        return text.split('"')[1] if '"' in text else text

    def state(self, path):
        return self.get(path, "State")

    def list(self):
        return self.call(ROOT, MANAGER, "ListApplications").split()

    def focus(self, pid):
        self.call(ROOT, REPORTER, "SetFocus", f"u:{pid}")

    # ---- signals

    def edges(self, path):
        """The states of an application, as its edges announced them, the first one included."""
        states = []
        with self.news:
            for one, member, words in self.signals:
                if one == path and member == "StateChanged":
                    # app_id, pid, from, to, reason; the path is that of the object.
                    states += words[-3:-1] if not states else words[-2:-1]
        return states

    def happens(self, what, condition, limit=LIMIT):
        """Waits for a signal that fits."""
        with self.news:
            if not self.news.wait_for(lambda: any(condition(*one) for one in self.signals), limit):
                raise Wrong(f"not announced within {limit} s: {what}")
            return next(one for one in self.signals if condition(*one))

    def expect(self, path, state, limit=LIMIT):
        """Waits until the last edge of an application leads to a state."""
        with self.news:
            def is_there():
                last = [words for one, member, words in self.signals if one == path and member == "StateChanged"]
                return bool(last) and last[-1][-2] == state
            if not self.news.wait_for(is_there, limit):
                raise Wrong(f"{path} is not announced as {state} within {limit} s")

    def forget(self):
        with self.news:
            self.signals.clear()


def busctl(path, interface, member, *words):
    """A call whose reply AppActor cannot print. Returns its parsed data."""
    command = ["busctl", "--system", "--json=short", "call", "org.appstate1", path, interface, member, *words]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["data"]


def holds(path):
    command = ["busctl", "--system", "--json=short", "get-property", "org.appstate1", path, APPLICATION,
               "SuspendHolds"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["data"]


class Daemon:
    """appstated, which may be killed and started again on the same directories."""

    def __init__(self, configuration="", fresh=False, wrapper=()):
        """fresh: a copy of the program, whose text no other process shares."""
        self.directory = scratch()
        # In memory, as /run is: a daemon that waits for a disk is not what is measured.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.runtime, self.kept = scratch(memory), scratch()
        (self.directory / "appstated.conf").write_text(configuration)
        self.log = self.directory / "log"
        self.program = program("appstated")
        if fresh:
            self.program = shutil.copy(self.program, self.directory / "appstated")
        self.wrapper = list(wrapper)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(self.directory / "notify"))
        at_end(self.notify.close)
        self.ready = threading.Event()
        threading.Thread(target=self._read_notify, daemon=True).start()
        self.process = None
        at_end(self.kill)
        self.start()

    def environment(self):
        return {**os.environ, "RUNTIME_DIRECTORY": str(self.runtime), "STATE_DIRECTORY": str(self.kept),
                "NOTIFY_SOCKET": str(self.directory / "notify")}

    def _read_notify(self):
        """Reads as a service manager does: the daemon waits where nobody takes what it sends."""
        while True:
            try:
                message = self.notify.recv(4096)
            except OSError:
                return
            if "READY=1" in message.decode(errors="replace").splitlines():
                self.ready.set()

    def start(self):
        self.ready.clear()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.wrapper, self.program, "--config", str(self.directory / "appstated.conf")], stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, env=self.environment(), preexec_fn=die_with_parent)
        self.pid = self.process.pid
        end = time.monotonic() + LIMIT
        while not self.ready.wait(0.1):
            if self.process.poll() is not None or time.monotonic() > end:
                raise Wrong(f"the daemon does not start: {self.last_lines()}")

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def stop(self):
        """SIGTERM, as the service manager ends it."""
        self.process.terminate()
        if self.process.wait(LIMIT) != 0:
            raise Wrong(f"the daemon ended with {self.process.returncode}: {self.last_lines()}")

    def release(self):
        """What the unit runs if no daemon can start."""
        done = subprocess.run([self.program, "--release"], env=self.environment(), capture_output=True, text=True)
        if done.returncode != 0:
            raise Wrong(f"appstated --release: {done.stderr.strip()}")

    def last_lines(self):
        return " / ".join(self.log.read_text(errors="replace").splitlines()[-3:])


def private_bus(*options):
    """What a command begins with to run on a private bus of its own."""
    return [str(HERE / "scripts/private-bus"), *options, "--"]
