"""A desktop without systemd, to test appstated with real applications.

It runs as root below scripts/private-bus, which sets DBUS_SYSTEM_BUS_ADDRESS. The daemon runs as root, everything else
as an unprivileged user. It ends each process that it has started, by its id.
"""
import json, os, pathlib, re, shutil, signal, subprocess, tempfile, time

BIN = pathlib.Path(os.environ["APPSTATED_PROGRAMS"])
UID = int(os.environ["APPSTATED_USER"])
CGROUPS = pathlib.Path("/sys/fs/cgroup/unified")
if not (CGROUPS / "cgroup.procs").exists():
    CGROUPS = pathlib.Path("/sys/fs/cgroup")


# The factor of every time limit. On a machine that does other work as well, only the order of events counts.
patience = 1


def wait_for(what, limit, pause=0.02):
    """Polls what(). Returns the seconds until it was true, or None after the limit (in seconds, times patience)."""
    limit *= patience
    start = time.monotonic()
    while True:
        if what():
            return time.monotonic() - start
        if time.monotonic() - start > limit:
            return None
        time.sleep(pause)


def stat(pid):
    """Returns (state, parent, clock ticks) of a process, or None if it is gone or a zombie."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2:].split()
    if fields[0] in "ZX":
        return None
    return fields[0], int(fields[1]), int(fields[11]) + int(fields[12])


def switches(pid):
    """Returns how often each thread of a process was switched away from, which follows a wake-up each time."""
    counts = {}
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            counts[status.parent.name] = sum(
                int(line.split()[1]) for line in status.read_text().splitlines() if "ctxt_switches" in line)
        except OSError:
            pass
    return counts


def descendants(pid):
    """Returns the ids of a process and of its descendants; none if the process is gone."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := stat(name)):
            children.setdefault(found[1], []).append(int(name))
    line, index = [pid] if stat(pid) else [], 0
    while index < len(line):
        line += children.get(line[index], [])
        index += 1
    return line


def kill(pids):
    """Kills processes, stopped or not. Some may be gone already."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Desktop:
    def __init__(self, mode, grace=2):
        self.mode = mode  # "freezer": each application has its own cgroup; "signals": none has one
        self.grace = grace
        self.display = ""
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="appstate-applications.", dir="/tmp"))
        os.chmod(self.directory, 0o755)
        self.running = []
        self.daemon = self.agent = None
        self.cgroup = CGROUPS / f"appstate-applications-{os.getpid()}"
        for name in ("home", "runtime", "files"):
            (self.directory / name).mkdir(mode=0o700)
            os.chown(self.directory / name, UID, UID)
        (self.directory / "run").mkdir()
        (self.directory / "state").mkdir()
        (self.directory / "appstated.conf").write_text(f"[LifeCycle]\nBackgroundGraceSec={grace}\n")
        self.rule("automatic")
        home = str(self.directory / "home")
        self.environment = {
            "HOME": home, "USER": f"tester{UID}", "LOGNAME": f"tester{UID}", "SHELL": "/bin/bash", "LANG": "C.UTF-8",
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin:/usr/games", "XDG_RUNTIME_DIR": str(self.directory / "runtime"),
            "XDG_CURRENT_DESKTOP": "XFCE",
            "DBUS_SYSTEM_BUS_ADDRESS": os.environ["DBUS_SYSTEM_BUS_ADDRESS"],
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={self.bus}",
            # After several kills in a row, Firefox and Thunderbird ask whether to start in a safe mode.
            "MOZ_DISABLE_AUTO_SAFE_MODE": "1",
        }

    def rule(self, suspension):
        """Sets one rule for all applications, at once: the same as appstatectl rule '*' Suspension=…"""
        new = self.directory / "session.conf.new"
        new.write_text(f"[Application *]\nSuspension={suspension}\n")
        new.rename(self.directory / "session.conf")

    # ---- processes

    def spawn(self, argv, log, unit=None, user=True, keeps=(), **more):
        """Starts a process, and returns it.

        log: the name of the file for its output. unit: in freezer mode, the id that names its own cgroup. user: whether it
        runs as the unprivileged user. keeps: the file descriptors that it inherits. more: environment variables.
        """
        scope = unit if unit and self.mode == "freezer" else None

        def prepare():
            os.setsid()
            if scope:
                name = scope.replace("-", "\\x2d")
                path = self.cgroup / f"app-{name}-{os.getpid()}.scope"
                path.mkdir(parents=True)
                for part in (path, path / "cgroup.procs"):
                    os.chown(part, UID, UID)
                (path / "cgroup.procs").write_text("0")
            if user:
                os.setgroups([])
                os.setresgid(UID, UID, UID)
                os.setresuid(UID, UID, UID)

        environment = dict(self.environment) if user else dict(os.environ)
        environment.update(more)
        output = open(self.directory / f"{log}.log", "ab")
        process = subprocess.Popen(
            [str(part) for part in argv], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=environment, cwd=str(self.directory / "files"), preexec_fn=prepare, pass_fds=keeps)
        output.close()
        self.running.append(process)
        return process

    def run(self, *argv, limit=30):
        """Runs a command as the user. Returns its output. Raises TimeoutExpired after the limit (in seconds, times patience)."""
        return self.attempt(*argv, limit=limit).stdout

    def attempt(self, *argv, limit=30):
        """The same, and returns the exit status too, as subprocess.run does."""
        return subprocess.run(
            [str(part) for part in argv], env=self.environment, stdin=subprocess.DEVNULL, text=True,
            errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit * patience,
            user=UID, group=UID, extra_groups=[])

    def start(self):
        self.start_screen()
        self.start_bus()
        self.start_window_manager()
        self.start_daemon()
        self.start_agent()

    @property
    def bus(self):
        return self.directory / "runtime/bus"

    def start_bus(self):
        self.spawn(["dbus-daemon", "--session", "--nofork", "--nopidfile", f"--address=unix:path={self.bus}"], "session-bus")
        assert wait_for(self.bus.exists, 20), "no session bus"

    def start_screen(self):
        # Xvfb chooses a free display, and writes its number once it is ready. Without -noreset it would start over whenever
        # its last client leaves, and refuse whoever connects meanwhile.
        ours, its = os.pipe()
        self.spawn(
            ["Xvfb", "-displayfd", its, "-screen", "0", "1280x900x24", "-nolisten", "tcp", "-noreset"], "xvfb", keeps=(its,))
        os.close(its)
        with open(ours) as answer:
            number = answer.readline().strip()
        assert number, (self.directory / "xvfb.log").read_text()
        self.display = f":{number}"
        self.environment["DISPLAY"] = self.display
        self.await_display()

    def await_display(self):
        assert wait_for(lambda: "dimensions" in self.run("xdpyinfo"), 30, 0.2), f"no X server at {self.environment['DISPLAY']}"

    def start_window_manager(self):
        manager = self.spawn(["xfwm4", "--compositor=off", "--sm-client-disable"], "xfwm4")
        seen = wait_for(lambda: manager.poll() is not None or "xfwm4" in self.run("wmctrl", "-m").lower(), 20)
        assert seen is not None and manager.poll() is None, \
            f"no window manager: {(self.directory / 'xfwm4.log').read_text()}"

    def start_daemon(self):
        self.daemon = self.spawn(
            [BIN / "appstated", "--config", self.directory / "appstated.conf"], "appstated", user=False,
            RUNTIME_DIRECTORY=str(self.directory / "run"), STATE_DIRECTORY=str(self.directory / "state"))
        subprocess.run(["gdbus", "wait", "--system", "--timeout", str(15 * patience), "org.appstate1"], check=True)

    def start_agent(self):
        self.agent = self.spawn(
            [BIN / "appstate-session", "--config", self.directory / "session.conf", "--verbose"], "agent")

    def close(self):
        """Ends all processes, then prints the logs. Printing may fail, because the reader may be gone."""
        logs = {name: path.read_text(errors="replace")[-6000:] for name in ("agent", "appstated")
                if (path := self.directory / f"{name}.log").exists()}
        self.end()
        left = self.own_processes()
        shutil.rmtree(self.directory, ignore_errors=True)
        for name, log in logs.items():
            print(f"---- {name}\n{log}")
        print("processes left:", left or "none")

    def end(self):
        if self.daemon and self.daemon.poll() is None:  # SIGTERM makes it resume what it has suspended
            self.daemon.terminate()
            self.daemon.wait(20 * patience)
        for process in reversed(self.running):
            # The pid of a process that has ended may be another's by now.
            if process.poll() is None:
                kill(reversed(descendants(process.pid)))
                process.wait(20 * patience)
        # Orphans are no descendants any more, but have our session bus in their environment.
        kill(self.own_processes())
        for name in (f"/tmp/.X{self.display[1:]}-lock", f"/tmp/.X11-unix/X{self.display[1:]}"):
            if self.display and os.path.exists(name):
                os.unlink(name)
        time.sleep(0.5)
        for path in sorted(self.cgroup.glob("**/"), reverse=True) if self.cgroup.exists() else []:
            try:
                (path / "cgroup.freeze").write_text("0")
                wait_for(lambda: not (path / "cgroup.procs").read_text(), 2)
                path.rmdir()
            except OSError as error:
                print(f"left: {path}: {error}")

    def own_processes(self):
        mark = f"DBUS_SESSION_BUS_ADDRESS={self.environment['DBUS_SESSION_BUS_ADDRESS']}".encode()
        found = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and int(name) != os.getpid() and mark in pathlib.Path(
                        f"/proc/{name}/environ").read_bytes() and stat(name):
                    found.append(int(name))
            except OSError:
                pass
        return found

    # ---- the daemon

    def control(self, *argv):
        return subprocess.run(
            [str(BIN / "appstatectl"), *map(str, argv)], text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout

    def applications(self):
        text = self.control("list", "--json")
        try:
            return json.loads(text)
        except ValueError:
            return []

    def state(self, pid):
        for one in self.applications():
            if int(one.get("pid", one.get("Pid", 0))) == pid:
                return one
        return None

    # ---- windows, as a taskbar and a user handle them

    name = "X11"

    def windows(self):
        """Returns {id: (pid, title)} of the windows that the window manager lists."""
        # It fails, and lists only some windows, if one of them disappears meanwhile.
        for _ in range(3):
            listing = self.attempt("wmctrl", "-lp")
            if listing.returncode == 0:
                break
        found = {}
        for line in listing.stdout.splitlines():
            parts = line.split(None, 4)
            if len(parts) >= 4 and parts[0].startswith("0x"):
                found[int(parts[0], 16)] = (int(parts[2]), parts[4] if len(parts) > 4 else "")
        return found

    def focused(self):
        found = re.search(r"0x[0-9a-f]+", self.run("xprop", "-root", "_NET_ACTIVE_WINDOW"))
        return int(found.group(), 16) if found else 0

    def is_hidden(self, window):
        return "_NET_WM_STATE_HIDDEN" in self.run("xprop", "-id", window, "_NET_WM_STATE")

    def minimize(self, window):
        self.run("xdotool", "windowminimize", window)

    def activate(self, window):
        self.run("xdotool", "windowactivate", window)

    def shut(self, window):
        self.run("wmctrl", "-i", "-c", hex(window))

    def type(self, *keys):
        """Types keys, which are named like "a", "Next" or "alt+f"."""
        self.run("xdotool", "key", "--delay", "30", *keys)

    def picture(self, window):
        """Returns the pixels of a window on the screen as bytes; b'' if there are none."""
        return self.pixels("import", "-silent", "-window", hex(window), "-depth", "8", "rgb:-")

    def pixels(self, *command):
        return subprocess.run(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=20 * patience).stdout


class OnSway:
    """A mix-in for sway without a screen. Windows float, so each keeps its size when others open or close."""

    name = "sway"

    def start_screen(self):
        runtime = self.directory / "runtime"
        configuration = self.directory / "sway.conf"
        display = runtime / "display"
        configuration.write_text(
            "output * resolution 1280x900\n"
            'for_window [app_id=".*"] floating enable\nfor_window [class=".*"] floating enable\n'
            f"exec echo $DISPLAY > {display}\n")
        self.environment.update(SWAYSOCK=str(runtime / "sway"), XDG_CURRENT_DESKTOP="sway")
        self.spawn(["sway", "--config", configuration], "sway", WLR_BACKENDS="headless", WLR_RENDERER="pixman",
                   WLR_LIBINPUT_NO_DEVICES="1")
        assert wait_for(lambda: display.exists() and display.read_text().strip(), 30, 0.2), \
            (self.directory / "sway.log").read_text()
        # The display of sway's Xwayland.
        self.environment["DISPLAY"] = display.read_text().strip()
        self.await_display()
        self.environment["WAYLAND_DISPLAY"] = next(runtime.glob("wayland-?")).name
        # Many clients take no keys if there was no keyboard at their start. This keyboard types nothing for a day.
        self.spawn(["wtype", "-s", "86400000", "-k", "Shift_L"], "keyboard")

    def start_window_manager(self):
        pass

    def tree(self):
        def nodes(node):
            yield node
            for child in node.get("nodes", []) + node.get("floating_nodes", []):
                yield from nodes(child)
        try:
            return [one for one in nodes(json.loads(self.run("swaymsg", "-t", "get_tree", "-r"))) if one.get("pid")]
        except ValueError:
            return []

    def node(self, window):
        return next((one for one in self.tree() if one["id"] == window), {})

    def windows(self):
        return {one["id"]: (one["pid"], one.get("name") or "") for one in self.tree()}

    def focused(self):
        return next((one["id"] for one in self.tree() if one.get("focused")), 0)

    def is_hidden(self, window):
        return not self.node(window).get("visible", False)

    def minimize(self, window):
        self.run("swaymsg", f"[con_id={window}] move scratchpad")

    def activate(self, window):
        self.run("swaymsg", f"[con_id={window}] focus")

    def shut(self, window):
        self.run("swaymsg", f"[con_id={window}] kill")

    def type(self, *keys):
        # wtype's keyboard exists only while it runs, and clients need a moment to bind it.
        words = ["-s", "500"]
        for key in keys:
            *held, last = key.split("+")
            words += [word for one in held for word in ("-M", one)] + ["-k", last]
            words += [word for one in held for word in ("-m", one)] + ["-s", "30"]
        self.run("wtype", *words, "-s", "200")

    def picture(self, window):
        node = self.node(window)
        if not node.get("visible"):
            return b""
        area = node["rect"]
        image = self.pixels("grim", "-g", f"{area['x']},{area['y']} {area['width']}x{area['height']}", "-t", "ppm", "-")
        # The PPM header has three lines.
        return image.split(b"\n", 3)[3] if image.startswith(b"P6") else b""


class SwayDesktop(OnSway, Desktop):
    pass


def put(path, heading, text):
    """Replaces the section with this heading in a page, or appends it."""
    page = pathlib.Path(path)
    parts = re.split(r"(?m)^(?=## )", page.read_text()) if page.exists() else []
    parts = [text if part.startswith(heading + "\n") else part for part in parts]
    if text not in parts:
        parts.append(text)
    page.write_text("\n".join(part.rstrip() + "\n" for part in parts))


def difference(one, other):
    """Returns the number of pixels that differ; all of them if the sizes differ."""
    if len(one) != len(other):
        return max(len(one), len(other)) // 3
    if one == other:
        return 0
    return sum(one[i:i + 3] != other[i:i + 3] for i in range(0, len(one), 3))


def colours(picture):
    return len({picture[i:i + 3] for i in range(0, len(picture), 3 * 7)})
