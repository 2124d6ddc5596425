#!/usr/bin/env python3
"""Measures what suspension saves and costs, with ten Firefox tabs of animations and with twenty applications at rest.

Usage: figures.py [--table FILE] [--rounds N]
Prints the measurements. --table also writes them below "Figures" of a page. Exit status: 0 success, 1 a goal is missed,
125 it cannot be measured here.

Run it through scripts/test-apps --figures, which prepares the users, the bus and the environment variables.
"""
import argparse, ctypes, http.server, os, pathlib, shutil, statistics, sys, threading, time
import desktop
from desktop import Desktop, descendants, put, stat, wait_for

TABS, RESTING, SECONDS = 10, 20, 60
# Each frame changes the red. The green and the blue identify the page on the screen. A request reports its start.
PAGE = """<title>{0}</title><body><script>
fetch("http://127.0.0.1:{1}/{0}", {{mode: "no-cors"}})
let red = 0
function frame() {{
    red = (red + 1) % 256
    document.body.style.background = `rgb(${{red}}, 200, 77)`
    requestAnimationFrame(frame)
}}
frame()
</script>"""
# Calls a service on the session bus, as fast as it answers.
CALLER = """
from gi.repository import Gio
bus = Gio.bus_get_sync(Gio.BusType.SESSION)
while True:
    bus.call_sync("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "ListNames", None, None, 0, -1)
"""
HEADING = "## Figures"


class Screen:
    """Reads pixels of an X server without starting a process for each."""

    def __init__(self, display):
        self.x = ctypes.CDLL("libX11.so.6")
        self.x.XOpenDisplay.restype = ctypes.c_void_p
        self.x.XDefaultRootWindow.restype = ctypes.c_ulong
        self.x.XGetImage.restype = ctypes.c_void_p
        self.x.XGetPixel.restype = ctypes.c_ulong
        self.display = ctypes.c_void_p(self.x.XOpenDisplay(display.encode()))
        self.root = ctypes.c_ulong(self.x.XDefaultRootWindow(self.display))

    def pixel(self, x, y):
        """Returns (red, green, blue) of a point on the screen."""
        image = ctypes.c_void_p(self.x.XGetImage(self.display, self.root, x, y, 1, 1, ctypes.c_ulong(0xffffff), 2))
        value = self.x.XGetPixel(image, 0, 0)
        self.x.XDestroyImage(image)
        return value >> 16 & 255, value >> 8 & 255, value & 255

    def shows_page(self):
        return self.pixel(640, 600)[1:] == (200, 77)


class Arrivals(http.server.ThreadingHTTPServer):
    """Records which pages have started."""

    def __init__(self):
        seen = self.seen = set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                seen.add(self.path)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def ticks(main):
    return sum(one[2] for pid in descendants(main) if (one := stat(pid)))


def switches(process):
    """Returns the number of context switches of each of a process's threads."""
    found = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        counts = [line.split()[1] for line in (task / "status").read_text().splitlines() if "ctxt_switches" in line]
        found[task.name] = sum(map(int, counts))
    return found


def own(desk, before):
    return [window for window in desk.windows() if window not in before]


def firefox(desk, rounds):
    """Returns the rows of the table, and whether the goals are met."""
    files = desk.directory / "files"
    pages, arrivals = [], Arrivals()
    for number in range(TABS):
        path = files / f"tab{number}.html"
        path.write_text(PAGE.format(number, arrivals.server_port))
        os.chown(path, desktop.UID, desktop.UID)
        pages.append(path.name)
    screen, before = Screen(desk.display), set(desk.windows())
    rule = desk.directory / "session.conf"
    rule.write_text("[Application *]\nSuspension=never\n")
    desk.spawn(["firefox-esr", *pages], "firefox", unit="firefox-esr")
    assert wait_for(lambda: len(arrivals.seen) == TABS and screen.shows_page(), 90, 0.2) is not None, \
        f"Firefox has begun {sorted(arrivals.seen)}"
    window = own(desk, before)[0]
    main = next(one["pid"] for one in desk.applications() if "firefox" in one["app_id"])
    state = lambda: (desk.state(main) or {}).get("state")

    def used(seconds=20):
        start = ticks(main)
        time.sleep(seconds)
        return (ticks(main) - start) / os.sysconf("SC_CLK_TCK") / seconds

    def restores(wanted):
        """Returns the seconds from the request until the page is on the screen again, for each round."""
        found = []
        for _ in range(rounds):
            desk.minimize(window)
            assert wait_for(lambda: state() == wanted and not screen.shows_page(), 30, 0.05) is not None, state()
            start = time.monotonic()
            desk.activate(window)
            assert wait_for(screen.shows_page, 20, 0.002) is not None, "the page does not come back"
            found.append(time.monotonic() - start)
            assert wait_for(lambda: state() == "active", 10) is not None, state()
        return found

    visible = used()
    free = restores("background")
    desk.minimize(window)
    assert wait_for(lambda: state() == "background", 10) is not None, state()
    minimized = used()
    desk.activate(window)
    rule.write_text("[Application *]\nSuspension=automatic\n")
    frozen = restores("suspended")
    desk.minimize(window)
    assert wait_for(lambda: state() == "suspended", 30) is not None
    suspended = used()
    later = statistics.median(frozen) - statistics.median(free)
    share = suspended / visible if visible else 0
    rows = [
        ("Firefox with ten tabs of animations: processors used while visible", f"{visible:.2f}"),
        ("the same, minimized and not suspended", f"{minimized:.3f}"),
        ("the same, suspended", f"{suspended:.3f} ({share:.1%} of visible; the goal is at most 1 %)"),
        (f"from the request to restore it until the page is seen, not suspended, median of {rounds}",
         f"{statistics.median(free) * 1000:.0f} ms"),
        ("the same, suspended before",
         f"{statistics.median(frozen) * 1000:.0f} ms ({later * 1000:+.0f} ms; the goal is at most +150 ms)"),
    ]
    return rows, share <= 0.01 and later <= 0.15


def rest(desk):
    before = set(desk.windows())
    for number in range(RESTING):
        desk.spawn(["galculator"], f"rest{number}", unit="galculator")
    assert wait_for(lambda: len(own(desk, before)) >= RESTING, 60, 0.2) is not None, "windows are missing"
    assert wait_for(lambda: len(desk.applications()) >= RESTING, 60, 0.5) is not None, "not all are registered"
    for window in own(desk, before):
        desk.minimize(window)
    suspended = lambda: sum(one["state"] == "suspended" for one in desk.applications())
    assert wait_for(lambda: suspended() >= RESTING, 60, 0.5) is not None, f"{suspended()} are suspended"

    def woken(seconds):
        start = [switches(one) for one in (desk.daemon, desk.agent)]
        time.sleep(seconds)
        # A thread that has ended is not counted any more.
        return tuple(sum(count - before.get(thread, 0) for thread, count in switches(one).items())
                     for one, before in zip((desk.daemon, desk.agent), start))

    def rests():
        # Longer than an idle worker thread lives.
        return wait_for(lambda: sum(woken(5)) == 0, 60) is not None

    # The work that follows the last suspension must be finished.
    assert rests(), "the daemon and the agent do not come to rest"
    quiet = woken(SECONDS)
    callers = [desk.spawn(["/usr/bin/python3", "-c", CALLER], "caller") for _ in range(2)]
    # Their logs are new files beside the configuration, and the agent looks at that directory.
    assert rests(), "the daemon and the agent do not come to rest beside the callers"
    busy = woken(SECONDS)
    assert all(one.poll() is None for one in callers), "a caller has ended"
    for one in callers:
        one.kill()
    rows = [
        (f"{RESTING} applications suspended: wake-ups of the daemon and of the agent in {SECONDS} s", "%d and %d" % quiet),
        ("the same while others use the session bus without a pause", "%d and %d" % busy),
    ]
    return rows, sum(quiet) + sum(busy) == 0


def section(rows):
    return "\n".join([
        HEADING, "",
        "On X11 (Xvfb, xfwm4), in one run. `make test-figures` writes this section.", "",
        "| | |", "| --- | --- |", *(f"| {what} | {value} |" for what, value in rows), "",
    ])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20, help="how often Firefox is restored")
    parser.add_argument("--table")
    arguments = parser.parse_args()
    if missing := [one for one in ("firefox-esr", "galculator", "xfwm4") if not shutil.which(one)]:
        print(f"cannot be tried: {', '.join(missing)} not installed")
        return 125
    rows, good = [], True
    for trial in (lambda desk: firefox(desk, arguments.rounds), rest):
        desk = Desktop("freezer")
        try:
            desk.start()
            found, is_good = trial(desk)
        finally:
            desk.close()
        for what, value in found:
            print(f"{what}: {value}", flush=True)
        rows += found
        good &= is_good
    if arguments.table:
        put(arguments.table, HEADING, section(rows))
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
