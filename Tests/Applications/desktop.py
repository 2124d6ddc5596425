"""A desktop without systemd, to try appstated with real applications.

Runs below scripts/private-bus, which sets DBUS_SYSTEM_BUS_ADDRESS, as root. The daemon runs as root, everything else as
an unprivileged user. Each process that is started here is ended here, by its id.
"""
import json, os, pathlib, re, shutil, signal, subprocess, tempfile, time

BIN = pathlib.Path(os.environ["APPSTATED_PROGRAMS"])
UID = int(os.environ["APPSTATED_USER"])
CGROUPS = pathlib.Path("/sys/fs/cgroup/unified")
if not (CGROUPS / "cgroup.procs").exists():
    CGROUPS = pathlib.Path("/sys/fs/cgroup")


# What every limit is multiplied by: on a machine that does other work as well, only the order of events counts.
patience = 1


def wait_for(what, limit, pause=0.02):
    """Seconds until what() is true, else None."""
    limit *= patience
    start = time.monotonic()
    while True:
        if what():
            return time.monotonic() - start
        if time.monotonic() - start > limit:
            return None
        time.sleep(pause)


def stat(pid):
    """(state, parent, ticks) of a process; None when it is gone or a zombie."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2:].split()
    if fields[0] in "ZX":
        return None
    return fields[0], int(fields[1]), int(fields[11]) + int(fields[12])


def descendants(pid):
    """A process and what descends from it."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := stat(name)):
            children.setdefault(found[1], []).append(int(name))
    line, index = [pid] if stat(pid) else [], 0
    while index < len(line):
        line += children.get(line[index], [])
        index += 1
    return line


class Desktop:
    def __init__(self, mode, grace=2):
        self.mode = mode  # "freezer": each application in a cgroup of its own; "signals": none has one
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
        # What a person would write by: appstatectl rule '*' Suspension=automatic
        (self.directory / "session.conf").write_text("[Application *]\nSuspension=automatic\n")
        home = str(self.directory / "home")
        self.environment = {
            "HOME": home, "USER": "tester", "LOGNAME": "tester", "SHELL": "/bin/bash", "LANG": "C.UTF-8",
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin:/usr/games", "XDG_RUNTIME_DIR": str(self.directory / "runtime"),
            "XDG_CURRENT_DESKTOP": "XFCE",
            "DBUS_SYSTEM_BUS_ADDRESS": os.environ["DBUS_SYSTEM_BUS_ADDRESS"],
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={self.bus}",
        }

    # ---- processes

    def spawn(self, argv, log, unit=None, user=True, keeps=(), **more):
        """Starts a process. unit: the id that its scope is named after, for a cgroup of its own. keeps: descriptors."""
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
        """What a command of the user prints."""
        return subprocess.run(
            [str(part) for part in argv], env=self.environment, stdin=subprocess.DEVNULL, text=True,
            errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit,
            user=UID, group=UID, extra_groups=[]).stdout

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
        # It takes a display that nobody has, and says which, once it is ready.
        ours, its = os.pipe()
        self.spawn(["Xvfb", "-displayfd", its, "-screen", "0", "1280x900x24", "-nolisten", "tcp"], "xvfb", keeps=(its,))
        os.close(its)
        with open(ours) as answer:
            self.display = f":{answer.readline().strip()}"
        self.environment["DISPLAY"] = self.display
        assert wait_for(lambda: "dimensions" in self.run("xdpyinfo"), 30, 0.2), "no Xvfb"

    def start_window_manager(self):
        self.spawn(["xfwm4", "--compositor=off", "--sm-client-disable"], "xfwm4")
        assert wait_for(lambda: "xfwm4" in self.run("wmctrl", "-m").lower(), 20), \
            f"no window manager: {(self.directory / 'xfwm4.log').read_text()}"

    def start_daemon(self):
        self.daemon = self.spawn(
            [BIN / "appstated", "--config", self.directory / "appstated.conf"], "appstated", user=False,
            RUNTIME_DIRECTORY=str(self.directory / "run"), STATE_DIRECTORY=str(self.directory / "state"))
        subprocess.run(["gdbus", "wait", "--system", "--timeout", "15", "org.appstate1"], check=True)

    def start_agent(self):
        self.agent = self.spawn(
            [BIN / "appstate-session", "--config", self.directory / "session.conf", "--verbose"], "agent")

    def close(self):
        """Ends all, then prints the logs: whoever reads may have gone."""
        logs = {name: path.read_text(errors="replace")[-6000:] for name in ("agent", "appstated")
                if (path := self.directory / f"{name}.log").exists()}
        self.end()
        left = self.own_processes()
        shutil.rmtree(self.directory, ignore_errors=True)
        for name, log in logs.items():
            print(f"---- {name}\n{log}")
        print("left:", left or "nobody")

    def end(self):
        if self.daemon and self.daemon.poll() is None:  # SIGTERM: whatever it holds runs on
            self.daemon.terminate()
            self.daemon.wait(20)
        for process in reversed(self.running):
            for pid in reversed(descendants(process.pid)):
                try:
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.wait(20)
        # What has become an orphan is still in a scope of ours, or the user's, with our display.
        for pid in self.own_processes():
            try:
                os.kill(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
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
        """{id: (pid, title)} of what the window manager lists."""
        found = {}
        for line in self.run("wmctrl", "-lp").splitlines():
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
        """Keys by their names, as "a", "Next" or "alt+f"."""
        self.run("xdotool", "key", "--delay", "30", *keys)

    def picture(self, window):
        """The pixels of a window on the screen, as bytes; b'' where there is none."""
        return self.pixels("import", "-silent", "-window", hex(window), "-depth", "8", "rgb:-")

    def pixels(self, *command):
        return subprocess.run(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=20).stdout


class OnSway:
    """Where a desktop has sway, without a screen. Windows float: each keeps its size while others come and go."""

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
        # Of its Xwayland.
        self.environment["DISPLAY"] = display.read_text().strip()
        self.environment["WAYLAND_DISPLAY"] = next(runtime.glob("wayland-?")).name
        # Without a keyboard at their start, many clients take no keys later. This one types nothing for a day.
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
        # Its keyboard is there for as long as it runs: clients need a moment to take it.
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
        # A header of three lines comes first.
        return image.split(b"\n", 3)[3] if image.startswith(b"P6") else b""


class SwayDesktop(OnSway, Desktop):
    pass


def put(path, heading, text):
    """Replaces a section of a page, or adds it at the end."""
    page = pathlib.Path(path)
    parts = re.split(r"(?m)^(?=## )", page.read_text()) if page.exists() else []
    parts = [text if part.startswith(heading + "\n") else part for part in parts]
    if text not in parts:
        parts.append(text)
    page.write_text("\n".join(part.rstrip() + "\n" for part in parts))


def difference(one, other):
    """How many pixels are another."""
    if len(one) != len(other):
        return max(len(one), len(other)) // 3
    if one == other:
        return 0
    return sum(one[i:i + 3] != other[i:i + 3] for i in range(0, len(one), 3))


def colours(picture):
    return len({picture[i:i + 3] for i in range(0, len(picture), 3 * 7)})
