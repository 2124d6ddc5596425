"""Two machines, each a network namespace with a bus, a daemon, a session agent and an SSH server, and a link between
them that is cut."""
import contextlib, json, os, re, shutil, signal, subprocess, sys, time
import stage
from stage import HERE, LIMIT, Missing, Wrong, at_end, eventually, need, program, scratch, start

SSHD = str(HERE / "Tests/Support/Scripts/sshd")
ID, TYPE = "org.example.Handoff", "org.example.Handoff.editing"
ENTRY = f"applications/{ID}.desktop"


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Machine:
    def __init__(self, number):
        self.name, self.address = f"appstated-{os.getpid()}-{number}", f"169.254.77.{number}"
        ip("netns", "add", self.name)
        at_end(lambda: ip("netns", "delete", self.name))
        ip("-n", self.name, "link", "set", "lo", "up")
        self.home = scratch()
        self.home.chmod(0o755)
        for name in ("bin", "ssh", "data/applications", "run"):
            (self.home / name).mkdir(parents=True)
        self.declare(TYPE)
        self.bin = self.home / "bin"
        (self.bin / "appstatectl").symlink_to(program("appstatectl"))
        # What each program of the user has, in sessions of ssh too.
        self.variables = {
            "HOME": str(self.home), "XDG_DATA_HOME": str(self.home / "data"), "XDG_DATA_DIRS": "/nonexistent",
            "XDG_STATE_HOME": str(self.home / "state"), "XDG_CONFIG_HOME": str(self.home / "config"),
            "PATH": f"{self.bin}:/usr/bin:/bin:/usr/sbin:/sbin"}
        (self.home / "appstated.conf").write_text("[LifeCycle]\nBackgroundGraceSec=1h\n[Pressure]\nSource=/none\n")
        # A group of its own: what private-bus has started ends with it.
        bus = self.start(*stage.private_bus("-d", program("appstated"), "-c", str(self.home / "appstated.conf")),
                         "sh", "-c", "echo $DBUS_SYSTEM_BUS_ADDRESS; exec sleep infinity", stdout=subprocess.PIPE,
                         text=True, begin=stage.group)
        self.variables["DBUS_SYSTEM_BUS_ADDRESS"] = bus.stdout.readline().strip()
        if not self.variables["DBUS_SYSTEM_BUS_ADDRESS"]:
            raise Wrong("there is no bus on " + self.name)
        self.start(program("appstate-session"), "--launch-only", stderr=open(self.home / "agent.log", "w"))

    def connect(self):
        """Once it has its address."""
        (self.home / "ssh/environment").write_text("".join(f"{name}={value}\n" for name, value in self.variables.items()))
        subprocess.run([SSHD, str(self.home / "ssh"), "--prepare"], check=True)
        self.start(SSHD, str(self.home / "ssh"), "-D", "-p", "22", "-o", f"ListenAddress={self.address}",
                   stderr=open(self.home / "sshd.log", "w"))
        eventually("the SSH server to listen", lambda: f"{self.address}:22" in subprocess.run(
            ["ip", "netns", "exec", self.name, "ss", "-ltn"], capture_output=True, text=True).stdout)

    def reaches(self, other, *options):
        """options: of ssh, before those of appstatectl."""
        file = self.bin / "ssh"
        file.write_text(f"#!/bin/sh\nexec /usr/bin/ssh {' '.join(options)} -F {other.home}/ssh/ssh_config \"$@\"\n")
        file.chmod(0o755)

    def declare(self, type):
        (self.home / "data" / ENTRY).write_text(
            f"[Desktop Entry]\nType=Application\nName=Note\nExec=sh -c \"exec /usr/bin/python3 "
            f"{HERE}/Examples/handoff.py >>{self.home}/record\"\nX-AppState-ActivityTypes={type};\n")

    def start(self, *command, begin=start, **more):
        environment = {name: value for name, value in os.environ.items()
                       if not re.match("DBUS_|DISPLAY|WAYLAND_DISPLAY|XDG_", name)} | self.variables
        if begin is start:
            more = {"stdin": subprocess.DEVNULL, **more}
        return begin(["ip", "netns", "exec", self.name, *command], env=environment, **more)

    def begin(self, *words):
        return self.start("setsid", "--wait", program("appstatectl"), *words, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)

    def run(self, *words):
        process = self.begin(*words)
        output, errors = process.communicate(timeout=LIMIT)
        return process.returncode, output, errors.strip()

    def record(self):
        """What the application has printed: the whole note, each time that it was continued."""
        with contextlib.suppress(FileNotFoundError):
            return (self.home / "record").read_text()
        return ""


class Writer:
    """A user who writes a note in the application in front."""

    def __init__(self, machine):
        self.machine, self.text = machine, ""
        self.process = machine.start("/usr/bin/python3", str(HERE / "Examples/handoff.py"), stdin=subprocess.PIPE,
                                     text=True)
        eventually("the note to be an application", lambda: ID in machine.run("list")[1])
        [row] = json.loads(machine.run("list", "--json")[1])
        code, _, errors = machine.run("focus", str(row["pid"]))
        if code:
            raise Wrong(f"focus: {errors}")

    def write(self, line):
        self.text += line + "\n"
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        eventually("the note to be announced", lambda: line in self.machine.run("activity", "--json")[1])


def ssh_of(process):
    """The ssh that a command has started; 0: none."""
    for child in stage.children(process.pid):
        with contextlib.suppress(OSError):
            if open(f"/proc/{child}/comm").read().strip() == "ssh":
                return child
        found = ssh_of(type("Process", (), {"pid": child}))
        if found:
            return found
    return 0


def play():
    need("ip", "ss", "ssh", "ssh-keygen", "setsid", "unshare")
    if subprocess.run([SSHD, "--find"], capture_output=True).returncode:
        raise Missing("sshd is missing; scripts/setup test fetches it")
    if subprocess.run(["/usr/bin/python3", "-c", "import gi"], capture_output=True).returncode:
        raise Missing("python3-gi is missing")
    here, there = Machine(1), Machine(2)
    ip("link", "add", "veth0", "netns", here.name, "type", "veth", "peer", "name", "veth0", "netns", there.name)
    for machine in (here, there):
        ip("-n", machine.name, "address", "add", machine.address + "/24", "dev", "veth0")
        ip("-n", machine.name, "link", "set", "veth0", "up")
        machine.connect()
    here.reaches(there)
    there.reaches(here)
    link = lambda state: ip("-n", there.name, "link", "set", "veth0", state)
    writer, expected, told = Writer(here), "", 0

    def arrives(what, process=None):
        """The note arrives as it is now, with this attempt or with the next one."""
        nonlocal expected, told
        if process:
            _, errors = process.communicate(timeout=LIMIT)
            if process.returncode != 0:
                told += 1
                if process.returncode > 0 and (process.returncode != 5 or "repeat the command" not in errors
                                               and "cannot be reached" not in errors):
                    raise Wrong(f"{what}: exit status {process.returncode}, {errors.strip()}")
                process = None
            link("up")
        end = time.monotonic() + LIMIT
        while not process:
            code, _, errors = here.run("handoff", there.address)
            if not code:
                break
            # The neighbour is not known again at once when the link is back.
            if code != 5 or time.monotonic() > end:
                raise Wrong(f"{what}, and again: {errors}")
        expected += writer.text
        eventually(lambda: f"{what}: {there.record()[-200:]!r} instead of {expected[-200:]!r}",
                   lambda: len(there.record()) >= len(expected))
        if there.record() != expected:
            raise Wrong(f"{what}: continued {there.record()[-200:]!r} instead of {expected[-200:]!r}")

    writer.write("first")
    arrives("started for it")
    writer.write("second")
    since = time.monotonic()
    arrives("while it runs")
    span = time.monotonic() - since
    cuts = 0
    for kind in ("killed", "cut", "cut briefly"):
        for moment in range(10):
            if kind == "cut briefly" and moment % 2:
                continue
            writer.write(f"{kind} {moment}")
            # ssh finds a cut sooner than the 15 s of appstatectl, whose options come later; one cut takes these.
            here.reaches(there, *(["-o", "ServerAliveInterval=1"] if kind == "cut" and moment != 5 else []))
            process = here.begin("handoff", there.address)
            # The moments are the point: from the start of the command to its end.
            time.sleep(span * (moment + 0.5) / 10)
            if kind == "killed":
                ssh = ssh_of(process)
                if ssh:
                    os.kill(ssh, signal.SIGKILL)
            else:
                link("down")
            if kind == "cut briefly":
                time.sleep(1)
                link("up")
            arrives(f"{kind} at {moment + 0.5:.1f} tenths of {span:.2f} s", process)
            cuts += 1
    failures(here, there)
    # The other way round: the note there is in front, and the one here gets it.
    [row] = json.loads(there.run("list", "--json")[1])
    there.run("focus", str(row["pid"]))
    code, _, errors = here.run("handoff", "--from", there.address)
    if code:
        raise Wrong(f"--from: {errors}")
    if there.record() != expected:
        raise Wrong(f"at the end it has continued {there.record()[-200:]!r}")
    return f"{cuts} cuts, {told} told to the sender: nothing lost, nothing twice"


def failures(here, there):
    def fails(status, words, host=there.address):
        code, _, errors = here.run("handoff", host)
        if code != status or words not in errors or "\n" in errors:
            raise Wrong(f"exit status {code} instead of {status}: {errors}")

    fails(5, "cannot be reached", "169.254.77.9")
    there.declare("org.example.other")
    fails(7, f"no application on {there.address} continues activities of the type {TYPE}")
    there.declare(TYPE)
    tool = there.bin / "appstatectl"
    tool.unlink()
    fails(8, "there is no appstatectl")
    tool.write_text("#!/bin/sh\necho 'appstatectl: there is no command \"continue\"' >&2\nexit 64\n")
    tool.chmod(0o755)
    fails(8, "is older")
    tool.unlink()
    tool.symlink_to(program("appstatectl"))
    keys = there.home / "ssh/authorized_keys"
    shutil.move(keys, there.home / "keys")
    fails(6, "refuses the login")
    shutil.move(there.home / "keys", keys)
