#!/usr/bin/env python3
"""Tests real applications under appstated: whether it adopts and suspends them, and resumes them on demand.

Usage: applications.py [--mode freezer|signals] [--desktop X11|sway] [--rounds N] [--seconds N] [--again]
                       [--patience N] [--table FILE] [--results FILE] [APPLICATION...]
       applications.py --table FILE --merge RESULTS...
Prints each finding at once. --table also writes the findings to a page, --results to a file; --merge makes the page from
such files of several runs. Applications that are not installed are skipped by name. Exit status: 0 success, 1 a case
failed or nothing could be tested.

Run it through scripts/test-apps, which prepares the users, the bus and the environment variables.
"""
import argparse, json, os, pathlib, platform, re, shutil, subprocess, sys, textwrap
import desktop, services
from desktop import Desktop, SwayDesktop, wait_for
from trial import Trial

PDF = "/usr/share/doc/shared-mime-info/shared-mime-info-spec.pdf"
PAGE = "<title>{0}</title><body style='background:linear-gradient(red,blue)'><h1>{0}</h1>" \
       "<script>onkeydown=e=>document.title='typed '+e.key</script>"

# The fields of an application:
# unit: the id of its desktop entry. argv: the command. again: the command of the second start, with {n} for the round.
# served: what shows that the second start was served: a window title; "": the second process exits; "new": one more
# window. keys: typed to test whether it takes input. start: the time limit for its first window, in seconds. held: the
# expected means of suspension, if it cannot be the freezer. kept: the objection that prevents its suspension as long as
# it runs. moves: its picture changes by itself. quits: Escape ends it. deaf: the desktop on which it takes no keys,
# whether it was suspended or not. stays: it runs on for a while after its last window is closed. edits: the desktops
# on which Ctrl+S saves one.txt and Ctrl+C copies; GTK 3 knows no such key of a virtual keyboard on Wayland. browses: F5
# loads its page again, and it downloads files. tray: the desktops on which a click on its tray icon shows its window; on
# sway it hides a window in the scratchpad instead.
TYPED = ["a", "b", "c", "d", "e", "f"]
APPLICATIONS = {
    "mousepad": dict(unit="org.xfce.mousepad", argv=["mousepad", "one.txt"], again=["mousepad", "two{n}.txt"],
                     served="two{n}", keys=TYPED, edits="X11"),
    "gedit": dict(unit="org.gnome.gedit", argv=["gedit", "one.txt"], again=["gedit", "two{n}.txt"],
                  served="two{n}", keys=TYPED, edits="X11"),
    "gnome-text-editor": dict(unit="org.gnome.TextEditor", argv=["gnome-text-editor", "one.txt"],
                              again=["gnome-text-editor", "two{n}.txt"], served="two{n}", keys=TYPED, edits="X11 sway",
                              stays=True),
    "kate": dict(unit="org.kde.kate", argv=["kate", "one.txt"], again=["kate", "two{n}.txt"], served="two{n}",
                 keys=TYPED, edits="X11 sway"),
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
                    again=["firefox-esr", "two{n}.html"], served="two{n}", keys=["a"], start=60,
                    # It shows a bar about the data that it sends, a while after its first start.
                    moves=True, browses=True),
    "chromium": dict(unit="chromium", argv=["chromium", "--no-first-run", "--password-store=basic",
                                            "--ozone-platform-hint=auto", "one.html"],
                     again=["chromium", "two{n}.html"], served="two{n}", keys=["a"], start=60,
                     browses=True),
    "thunderbird": dict(unit="thunderbird", argv=["thunderbird", "one.eml"], again=["thunderbird", "two{n}.eml"],
                        served="two{n}", keys=["alt+f"], start=60),
    "telegram": dict(unit="org.telegram.desktop", argv=["telegram-desktop"],
                     again=["telegram-desktop", "--", "tg://resolve?domain=example"], served="", keys=["Return"],
                     tray="X11", stays=True),
    "qbittorrent": dict(unit="org.qbittorrent.qBittorrent", argv=["qbittorrent"],
                        again=["qbittorrent", "two{n}.torrent"], served="two{n}", keys=["ctrl+o"], tray="X11"),
    "vlc": dict(unit="vlc", argv=["vlc", "--no-qt-privacy-ask"], again=["vlc", "--no-qt-privacy-ask"], served="new",
                keys=["alt+m"], tray="X11", stays=True),
}


# The columns of the page. All that is measured is printed, and written by --results.
COLUMNS = [
    ("Ticks/wake-ups in 20 s", "cost before"), ("Second start", "(0) served"), ("when suspended", "(1) served"),
    ("Repainted", "(5) repainted"),
]
# Of these steps the page has the slowest.
STEPS = [
    ("it is suspended after it was minimized", "suspended", "s"),
    ("a call is answered", "(2) call", "s"), ("a click on the tray icon is handled", "(6) tray", "s"),
    ("it runs after the request to restore its window", "(5) thawed", "s"),
    ("it takes keys after it was repainted", "(5) takes input", "s"), ("it saves", "(5) saved", "s"),
    ("it loads a page again", "(5) page loaded", "s"), ("one key suspends it", "(8) key", "ms"),
    ("it is suspended again after a second start", "(7) again suspended after start", "s"),
    ("it closes its windows, or asks", "(3) closed or asks", "s"), ("SIGTERM ends it", "(4) gone by SIGTERM", "s"),
]
WAYLAND = "## On Wayland"


def table(results):
    lines = [
        "| Application | " + " | ".join(title for title, _ in COLUMNS) + " |",
        "| --- " * (len(COLUMNS) + 1) + "|",
    ]
    return lines + [row(result) for result in results] + ["", *slowest(results)]


def row(result):
    cells, shown = [], [key for _, key in COLUMNS]
    for key in shown:
        value = result.get(key, "–")
        text = f"{value:.2f}" if isinstance(value, float) else str(value).replace(" / ", "/")
        cells.append(f"**{text}**" if key in result["failures"] else text)
    others = [re.sub(r"^\(\d+\) ", "", f"{key}: {result.get(key)}") for key in result["failures"] if key not in shown]
    name = result["application"] + (f" **{', '.join(others)}**" if others else "")
    return f"| {name} | " + " | ".join(cells) + " |"


def slowest(results):
    """Returns sentences about what has no column."""
    found = []
    busy = [one["application"] for one in results if one.get("cost", "0 / 0") not in ("0 / 0", "–")]
    for what, key, unit in STEPS:
        values = {one["application"]: one[key] for one in results if isinstance(one.get(key), float)}
        if values:
            name = max(values, key=values.get)
            found.append(f"{what}: {values[name]:.2f} {unit} ({name})")
    rounds = max((one.get("rounds", 1) for one in results), default=1)
    return textwrap.wrap(f"{rounds} rounds of each. Suspended, {', '.join(busy) or 'none'} used the processor or woke up in 20 s. "
                         f"The slowest of the other steps: {'; '.join(found)}.", 116)


def conditions(mode):
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return (f"{release['PRETTY_NAME'].strip(chr(34))}, Linux {platform.release()}, {os.cpu_count()} processors, "
            f"means: {mode}.")


def page(results, mode):
    """Returns the results on X11 as the beginning of the page."""
    return "\n".join([
        "# Applications",
        "",
        "For users who want to know how their applications bear being suspended. Unmodified applications run under one rule,",
        "`appstatectl rule '*' Suspension=automatic`, with `BackgroundGraceSec=2`. `make test-apps` writes this page. Times are",
        "in seconds, in steps of 0.05 s.",
        "",
        f"On X11 (Xvfb, xfwm4). {conditions(mode)}",
        "",
        *table(results),
        "",
        "- Bold: a failure. A dash: the application has nothing of the kind, or the step was not reached.",
        "- A round minimizes the application, starts it a second time once it is suspended, and then closes its windows",
        "  (`wmctrl -c`, `swaymsg kill`). A second start is served when the running instance shows what it was started with. It",
        "  fails after 1 s, a close after 2 s, or either after 1 s more than it takes without suspension.",
        "- Second starts and closes are the slowest of all rounds. The rest was measured once. \"Repainted\" is the time from the",
        "  request to restore the window until it shows its old picture. SIGTERM is sent while the application is suspended.",
        "- The daemon, then the agent, are also ended by SIGKILL. The next daemon keeps the application suspended; without the",
        "  agent it runs. Browsers also download 256 KiB per second while minimized; editors have text pasted from them.",
        "- LibreOffice's launcher, oosplash, may hang after SIGTERM, also without appstated. LibreOffice itself ends.",
        "- The second start of Firefox sometimes takes 5 s longer, whether the first instance is suspended or not.",
        "- `xterm with a job` is kept from being suspended by its job. The server of gnome-terminal has no cgroup of its own",
        "  here, and the units of kate, dolphin and chromium also hold a server that they have started. No service manager",
        "  makes scopes here, so these four are stopped by signals; the others are frozen.",
        "",
    ])


def section(results, mode):
    """Returns the results on Wayland as a section of the page."""
    return "\n".join([
        WAYLAND,
        "",
        "The same on sway without a screen. Its windows float, and are minimized by moving them to the scratchpad.",
        f"{conditions(mode)}",
        "",
        *table(results),
        "",
    ])


def write(path, results, name, mode):
    """Writes the table of the desktop with this name."""
    if name == "sway":
        return desktop.put(path, WAYLAND, section(results, mode))
    path = pathlib.Path(path)
    _, mark, rest = path.read_text().partition("\n## ") if path.exists() else ("", "", "")
    path.write_text(page(results, mode) + mark + rest)


def rewrite(path, results, name):
    """Replaces the rows of these results in the table of the desktop with this name."""
    path = pathlib.Path(path)
    before, mark, rest = path.read_text().partition(f"\n{WAYLAND}\n")
    part = rest if name == "sway" else before
    part, end, others = part.partition("\n## ")
    lines = part.split("\n")
    for result in results:
        lines = [row(result) if re.match(rf"\| {re.escape(result['application'])} [|*]", line) else line for line in lines]
    part = "\n".join(lines) + end + others
    path.write_text(before + mark + part if name == "sway" else part + mark + rest)


def merge(table, files):
    """Writes the page from the results of several runs."""
    results = [one for file in files for one in json.loads(pathlib.Path(file).read_text())]
    order = list(APPLICATIONS)
    results.sort(key=lambda one: order.index(one["application"]))
    for name in ("X11", "sway"):
        part = [one for one in results if one["desktop"] == name]
        if part:
            write(table, part, name, part[0]["mode"])


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
    # Otherwise qBittorrent asks for consent at its first start, and a close leaves a minimized window as it is.
    settings = desk.directory / "home/.config/qBittorrent/qBittorrent.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text("[LegalNotice]\nAccepted=true\n[Preferences]\nGeneral\\CloseToTray=false\n")
    for path in (*files.iterdir(), *settings.parents[:2][::-1], settings):
        os.chown(path, desktop.UID, desktop.UID)


def attempt(desk, name, arguments):
    trial = Trial(desk, name, APPLICATIONS[name], arguments.rounds, arguments.seconds)
    try:
        trial.run()
    except Exception as error:
        trial.tell("harness", repr(error), False)
    return trial


def started(kind, arguments):
    """Returns a desktop on which everything runs. With --again it is started up to three times."""
    for left in (2, 1, 0) if arguments.again else (0,):
        desk = kind(arguments.mode)
        try:
            desk.start()
            desk.spawn([services.PYTHON, "-c", services.WATCHER], "watcher")
            assert wait_for(lambda: "owned" in (desk.directory / "watcher.log").read_text(), 20), "no tray"
            make_files(desk, arguments.rounds)
            return desk
        except BaseException as error:
            print(f"{desk.name:5} the desktop does not start: {error!r}", flush=True)
            desk.close()
            if not left or not isinstance(error, Exception):
                raise


def round_on(kind, arguments):
    """Tests the selected applications on a desktop of this kind. Returns their results."""
    results = []
    desk = started(kind, arguments)
    try:
        for name in arguments.applications or APPLICATIONS:
            # Another application may offer a command of this name, too.
            entry = pathlib.Path("/usr/share/applications", APPLICATIONS[name]["unit"] + ".desktop")
            if not shutil.which(APPLICATIONS[name]["argv"][0], path=desk.environment["PATH"]) or not entry.exists():
                print(f"{desk.name:5} {name:17} skipped: not installed", flush=True)
                continue
            trial = attempt(desk, name, arguments)
            if trial.failures and arguments.again:
                print(f"{desk.name:5} {name:17} is tried again", flush=True)
                trial = attempt(desk, name, arguments)
            results.append(trial.result)
            if arguments.table and not arguments.applications:
                write(arguments.table, results, desk.name, desk.mode)
    finally:
        desk.close()
    if arguments.table and arguments.applications and pathlib.Path(arguments.table).exists():
        rewrite(arguments.table, results, desk.name)
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("freezer", "signals"), default="freezer")
    parser.add_argument("--desktop", choices=("X11", "sway"), help="default: both")
    parser.add_argument("--rounds", type=int, default=1, help="how often each application is started and closed")
    parser.add_argument("--seconds", type=int, default=20, help="how long it is measured what an application uses at rest")
    parser.add_argument("--again", action="store_true", help="test a failing application once more, and start the desktop up to three times")
    parser.add_argument("--patience", type=int, default=1, help="the factor of every time limit")
    parser.add_argument("--table", help="the page to write: the tables, or only the rows of the named applications")
    parser.add_argument("--results", help="a file for the results, to merge them with those of other runs")
    parser.add_argument("--merge", nargs="+", metavar="RESULTS", help="test nothing, write the page from these files")
    parser.add_argument("applications", nargs="*", metavar="APPLICATION")
    arguments = parser.parse_args()
    if arguments.merge:
        return merge(arguments.table, arguments.merge)
    if unknown := set(arguments.applications) - set(APPLICATIONS):
        parser.error(f"unknown applications: {', '.join(sorted(unknown))}; known are {', '.join(APPLICATIONS)}")
    desktop.patience = arguments.patience
    results = []
    for kind, program in ((Desktop, "xfwm4"), (SwayDesktop, "sway")):
        if arguments.desktop not in (None, kind.name):
            continue
        if not shutil.which(program):
            print(f"{kind.name:5} skipped: {program} is not installed", flush=True)
            continue
        results += round_on(kind, arguments)
        if arguments.results:
            pathlib.Path(arguments.results).write_text(json.dumps(results, indent=1))
    return int(not results or any(one["failures"] for one in results))


if __name__ == "__main__":
    sys.exit(main())
