#!/usr/bin/env python3
"""Measures what the daemon costs, beside the same service in C where there is one. scripts/figures describes it."""
import collections, json, os, pathlib, re, shutil, signal, subprocess, sys, time
import stage
from stage import MANAGER, ROOT, Client, Daemon, Missing, Subject, Wrong, eventually, need, program

SERVICE = {"daemon": ("org.appstate1", ROOT, MANAGER), "C": ("org.example.Beside", ROOT, "org.example.Beside")}
POLICY = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><policy context="default">
<allow own="org.example.Beside"/><allow send_destination="org.example.Beside"/>
</policy></busconfig>
"""
QUIET = "[LifeCycle]\nBackgroundGraceSec=1h\n"


def compiled():
    """The program in C."""
    need("cc", "pkg-config")
    path = stage.scratch() / "beside"
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libsystemd"], capture_output=True, text=True)
    if flags.returncode:
        raise Missing("the headers of libsystemd are missing; scripts/setup build installs them")
    subprocess.run(["cc", "-O2", "-o", path, pathlib.Path(__file__).with_name("beside.c"), *flags.stdout.split()],
                   check=True)
    return str(path)


def ask(beside, kind, service, count):
    """Makes calls. Returns the median and the 99th percentile of their times, in nanoseconds."""
    words = [*SERVICE[service], *(["MemoryPressure"] if kind == "get" else []), str(count)]
    done = subprocess.run([beside, kind, *words], capture_output=True, text=True)
    if done.returncode:
        raise Wrong(f"calls to the {service}: {done.stderr.strip()}")
    return [int(word) for word in done.stdout.split()]


def owned(beside, service):
    """Waits until the service answers."""
    def answers():
        call = [beside, "get", *SERVICE[service], "MemoryPressure", "1"]
        return subprocess.run(call, capture_output=True).returncode == 0
    eventually(f"the {service} answers", answers, 120)


def herd(client, count, options="{launch-mode=s:background}"):
    """Registers ordinary processes."""
    pids = [stage.start(["sleep", "100000"]).pid for _ in range(count)]
    return [client.register(f"org.example.Herd{number}", pid, options) for number, pid in enumerate(pids)]


def bus_process():
    """The dbus-daemon that private-bus has started."""
    for pid in stage.children(os.getppid()):
        if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "dbus-daemon":
            return pid
    raise Wrong("no dbus-daemon beside this process")


# ---- the parts, each on a bus of its own

def play_calls():
    """CPU and latency of a property's read and of lists of 100 applications, in turns, on one processor"""
    # On several, where the scheduler puts the processes would decide. The bus is moved as well.
    processor = {min(os.sched_getaffinity(0))}
    os.sched_setaffinity(0, processor)
    os.sched_setaffinity(bus_process(), processor)
    beside = compiled()
    daemon = Daemon(QUIET)
    pids = {"daemon": daemon.pid, "C": stage.start([beside, "serve", "100"]).pid}
    owned(beside, "C")
    herd(Client(), 100)
    result = {}
    for kind, name, count in [("get", "property read", 400), ("list", "list of 100", 100),
                              ("objects", "all objects of 100", 20)]:
        rounds = {service: [] for service in pids}
        for _ in range(20):
            for service, pid in pids.items():
                before = stage.cpu(pid)
                median, tail = ask(beside, kind, service, count)
                rounds[service].append(((stage.cpu(pid) - before) / count, median, tail))
        # The lower quartile is what a busy machine disturbs least.
        ours, theirs = ([sorted(column)[len(column) // 4] / 1000 for column in zip(*rounds[service])]
                        for service in ("daemon", "C"))
        ratios = [a / b for a, b in zip(ours, theirs)]
        result[name] = dict(zip(("cpu", "median", "p99"), ratios), us=ours, us_of_C=theirs)
    return result


def play_instructions():
    """instructions for each Get, by callgrind: the difference of N and 2N calls"""
    need("valgrind")
    beside = compiled()
    directory = stage.scratch()

    def total(service, count):
        file = directory / f"{service}.{count}"
        valgrind = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={file}"]
        if service == "daemon":
            process = Daemon(QUIET, wrapper=valgrind).process
        else:
            process = stage.start([*valgrind, beside, "serve", "0"])
        owned(beside, service)
        ask(beside, "get", service, count)
        process.send_signal(signal.SIGTERM)
        process.wait(120)
        found = re.findall(r"^(?:summary|totals): (\d+)", file.read_text(), re.M)
        if not found:
            raise Wrong(f"callgrind wrote no total of the {service}")
        return int(found[-1])

    count = 4000
    one = {service: (total(service, 2 * count) - total(service, count)) / count for service in SERVICE}
    return {"Get of a property": {"daemon": round(one["daemon"]), "C": round(one["C"]),
                                  "ratio": one["daemon"] / one["C"]}}


def play_memory():
    """PSS of a daemon whose text no other process shares, once it is at rest"""
    daemon = Daemon("[LifeCycle]\nBackgroundGraceSec=1h\nDrainEverySec=0\n", fresh=True)
    client = Client()
    result = {}

    def measure(what):
        time.sleep(3)
        result[what] = {key: stage.kib(daemon.pid, key) for key in ("Pss", "Locked", "Anonymous")}

    measure("empty")
    paths = herd(client, 100)
    measure("100 applications")
    for path in paths:
        client.application(path, "Suspend")
    measure("100 suspended")
    for path in paths:
        client.application(path, "Resume")
    herd(client, 900)
    measure("1000 applications")
    result["for each application, KiB"] = (result["1000 applications"]["Pss"] - result["100 applications"]["Pss"]) / 900
    return result


def play_start():
    """from exec until READY=1, 21 times each, in turns: time, and processor time"""
    beside = compiled()
    directory = stage.scratch()
    (directory / "appstated.conf").touch()
    for name in ("run", "state"):
        (directory / name).mkdir(mode=0o700)
    environment = {**os.environ, "RUNTIME_DIRECTORY": str(directory / "run"),
                   "STATE_DIRECTORY": str(directory / "state")}
    commands = {"daemon": [program("appstated"), "--config", str(directory / "appstated.conf")],
                "C": [beside, "serve", "100"]}
    times = {service: [] for service in commands}
    for _ in range(21):
        for service, command in commands.items():
            done = subprocess.run([beside, "start", "1", *command], capture_output=True, text=True, env=environment)
            if done.returncode:
                raise Wrong(f"start of the {service}: {done.stderr.strip()}")
            times[service].append([int(line.split()[0]) / 1e6 for line in done.stdout.splitlines()])
    # The shortest time is what a busy machine disturbs least.
    return {service: [min(column) for column in zip(*rows)] for service, rows in times.items()}


def play_idle(seconds, what):
    """how often a thread of the daemon is woken, and by what"""
    # Policy's drains are measured as they come by default.
    daemon = Daemon("[LifeCycle]\nBackgroundGraceSec=100ms\n" if what == "policy" else QUIET)
    client = Client().subscribe()
    subjects = [Subject() for _ in range(20)]
    suspension = "automatic" if what == "policy" else "manual"
    for number, subject in enumerate(subjects):
        options = "{launch-mode=s:background,suspension=s:%s}" % (suspension if number < 5 else "manual")
        path = client.register(f"org.example.Idle{number}", subject.pid, options)
        if number < 5 and what == "request":
            client.application(path, "Suspend")
        if number < 5 and what != "nothing":
            client.expect(path, "suspended")
    # What happens after a suspension is over by then.
    time.sleep(5)
    wakings = stage.Wakings(daemon.pid)
    drains, running, begin = 0, [False] * 5, time.monotonic()
    while time.monotonic() < begin + seconds:
        time.sleep(0.1)
        for number, subject in enumerate(subjects[:5]):
            runs = subject.runs()
            drains += what == "policy" and runs and not running[number]
            running[number] = runs
    # Signals, page faults and contested locks of other programs wake the daemon as well.
    found = wakings.read(begin, begin + seconds)
    times = [moment for moment, cause in found if cause != "others"]
    moments = sum(number == 0 or moment - times[number - 1] > 0.5 for number, moment in enumerate(times))
    return {"own": len(times), "moments": moments, "drains": drains,
            "causes": dict(collections.Counter(cause for _, cause in found))}


# ---- running the parts

def begun(part, *words):
    directory = stage.scratch()
    policy = directory / "beside.conf"
    policy.write_text(POLICY)
    return stage.group([*stage.private_bus("-p", str(policy)), sys.executable, __file__, "--play", part, *words],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process, part):
    output, errors = process.communicate()
    if process.returncode == 125:
        raise Missing(errors.strip().splitlines()[-1] if errors.strip() else f"{part} cannot be measured here")
    if process.returncode:
        raise Wrong(f"{part}: {errors.strip()[-600:]}")
    return json.loads(output.splitlines()[-1])


def calls():
    return ended(begun("calls"), "calls")


def idle(seconds):
    """The same three things at the same time, because most of it is waiting."""
    names = {"nothing": "nothing suspended", "request": "5 suspended on request", "policy": "5 suspended by policy"}
    processes = {what: begun("idle", str(seconds), what) for what in names}
    found = {what: ended(process, "idle") for what, process in processes.items()}
    return {names[what]: one for what, one in found.items()}


def told(found):
    """The wake-ups as words."""
    def words(one):
        causes = ", ".join(f"{count} {cause}" for cause, count in sorted(one["causes"].items()) if cause != "others")
        own = f"{one['own']} in {one['moments']} moments ({causes})" if one["own"] else "0"
        drains = f", {one['drains']} drains" if one["drains"] else ""
        return f"{own}{drains}, and {one['causes'].get('others', 0)} by others"
    return "; ".join(f"{what}: {words(one)}" for what, one in found.items())


PARTS = ["instructions", "calls", "memory", "start", "idle"]


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def show(part):
    if part == "idle":
        row("idle for 60 s: wake-ups", told(idle(60)), "", "")
        return
    found = ended(begun(part), part)
    if part == "instructions":
        for name, one in found.items():
            row(f"instructions, {name}", one["daemon"], one["C"], f"{one['ratio']:.2f}")
    elif part == "calls":
        for name, one in found.items():
            row(f"CPU, {name}", f"{one['us'][0]:.1f} µs", f"{one['us_of_C'][0]:.1f} µs", f"{one['cpu']:.2f}")
            row(f"latency, {name}", f"{one['us'][1]:.0f} µs", f"{one['us_of_C'][1]:.0f} µs",
                f"{one['median']:.2f} (p99: {one['p99']:.2f})")
    elif part == "memory":
        for name, one in found.items():
            if isinstance(one, dict):
                row(f"PSS, {name}", f"{one['Pss'] / 1024:.1f} MiB", "", f"locked {one['Locked'] / 1024:.1f} MiB, "
                    f"anonymous {one['Anonymous'] / 1024:.1f} MiB")
            else:
                row(f"PSS {name}", f"{one:.1f}", "", "from 100 to 1000")
    else:
        for name, ours, theirs in zip(("time", "CPU"), found["daemon"], found["C"]):
            row(f"exec to READY=1, {name}", f"{ours:.1f} ms", f"{theirs:.1f} ms", f"{ours / theirs:.2f}")


def play(words):
    try:
        if words[0] == "idle":
            result = play_idle(int(words[1]), words[2])
        else:
            result = globals()["play_" + words[0]]()
        print(json.dumps(result), flush=True)
        return 0
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 125
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 1
    finally:
        stage.clean_up()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    words = sys.argv[1:]
    if words[:1] == ["--play"]:
        return play(words[1:])
    unknown = [word for word in words if word not in PARTS]
    if unknown:
        print(f"figures: no part is called {unknown[0]}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    row("Measured", "daemon", "C", "ratio")
    row("---", "---", "---", "---")
    code = 0
    for part in words or PARTS:
        try:
            show(part)
        except Missing as missing:
            row(part, "not measured", "", missing)
        except Wrong as wrong:
            row(part, "WRONG", "", wrong)
            code = 1
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        stage.clean_up()
