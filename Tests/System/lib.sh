#!/bin/bash
# Functions for the parts. `where` is container or vm.
# shellcheck disable=SC2034,SC2154 # shared between the files

service=org.appstate1
root=/org/appstate1
manager=org.appstate1.Manager
reporter=org.appstate1.Reporter
application=org.appstate1.Application
checks=0
failures=0
# An application with a delegate; scripts/test-system builds it where there is a C compiler.
delegate=$PWD/extra/delegate
# The time limit for awaited events, in seconds. They come within milliseconds, on an emulated processor within seconds.
# Only the watchdog takes 30 s.
patience=120
scratch=$(mktemp -d)
chmod 755 "$scratch"

ok() {
    checks=$((checks + 1))
    echo "ok $checks - $1"
}

not_ok() {
    checks=$((checks + 1))
    failures=$((failures + 1))
    echo "not ok $checks - $1"
    [ -z "${2:-}" ] || printf '#   %s\n' "${2//$'\n'/$'\n#   '}"
}

skip() {
    checks=$((checks + 1))
    echo "ok $checks - $1 # SKIP $2"
}

# no_delegate NAME...: skips these checks if the delegate could not be built. False: it is there.
no_delegate() {
    local name
    [ ! -x "$delegate" ] || return
    for name; do skip "$name" 'the delegate could not be built: no C compiler or no libsystemd-dev'; done
}

# cannot_reboot NAME...: skips these checks if the machine cannot reboot, or if there is no delegate for them.
cannot_reboot() {
    local name
    if [ "$where" != container ]; then
        no_delegate "$@"
        return
    fi
    for name; do skip "$name" 'a container cannot reboot'; done
}

# check NAME COMMAND...: checks that the command succeeds, and shows its output if it fails.
check() {
    local name=$1 said
    shift
    if said=$("$@" 2>&1); then ok "$name"; else not_ok "$name" "$* : $said"; fi
}

# same NAME EXPECTED FOUND: checks that both are equal, and shows the difference if they are not.
same() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "$(diff <(echo "$2") <(echo "$3"))"; fi
}

# request_reboot: after the reboot, the count of checks continues with the part's next step.
request_reboot() {
    echo "checks=$checks failures=$failures resumed=$part step=$((step + 1))" >/vm/checks
    : >/vm/reboot
}

# reboot_machine: requests an orderly reboot. Does not return.
reboot_machine() {
    request_reboot
    exit 0
}

# cut_power: reboots as if the power had failed. Does not return.
cut_power() {
    request_reboot
    sync /vm/boot /vm/checks /vm/reboot /vm
    echo b >/proc/sysrq-trigger
    sleep infinity
}

finish() {
    echo "1..$checks"
    [ "$failures" = 0 ] || {
        echo "# $failures of $checks failed; the daemon's journal:"
        journalctl --no-pager -u appstated -n 60 | sed 's/^/#   /'
        exit 1
    }
}

# await FILE REGEX: waits until a line of the file matches.
await() {
    local follower status
    exec {followed}< <(exec timeout "$patience" tail -n +1 -F "$1" 2>/dev/null)
    follower=$!
    grep -qm1 -E -- "$2" <&"$followed"
    status=$?
    kill "$follower" 2>/dev/null
    exec {followed}<&-
    return "$status"
}

# ---- the daemon

main_pid() { systemctl show --property=MainPID --value appstated; }

status_of() { sed -n "s/^$2:\t*//p" "/proc/$1/status"; }

property() { busctl get-property "$service" "$root" "$manager" "$1" | cut -d ' ' -f 2- | tr -d '"'; }

# list: prints all applications, one per line: path, id, pid, uid, state.
list() {
    busctl --json=short call "$service" "$root" "$manager" ListApplications | tr '[' '\n' | grep -F '"/org' | sort
}

# ---- alice, a user with a session, and her applications

alice() {
    runuser -u alice -- env XDG_RUNTIME_DIR=/run/user/1001 \
        DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1001/bus "$@"
}

# login USER UID TTY: opens a session, on a terminal of the seat if there is one, and prints its id.
login() {
    local fifo=$scratch/login-$1 terminal=() session
    mkfifo "$fifo"
    chmod 666 "$fifo"
    if [ -c "/dev/tty$3" ]; then
        terminal=(-p "TTYPath=/dev/tty$3" -p StandardInput=tty-force -E XDG_SEATS=seat0 -E XDG_SEAT=seat0
            -E "XDG_VTNR=$3")
    fi
    systemd-run --quiet --unit="login-$1" --uid="$2" -p PAMName=login "${terminal[@]}" \
        -E XDG_SESSION_CLASS=user -E XDG_SESSION_TYPE=tty \
        -- sh -c "echo \"\$XDG_SESSION_ID\" >$fifo; exec sleep infinity"
    read -r session <"$fifo"
    rm "$fifo"
    echo "$session"
}

# start NAME COMMAND: runs it in a scope like a desktop's; sets $pid to its process and $cgroup to its cgroup. The
# shell runs the command once it is in the scope.
start() {
    local fifo=$scratch/start
    rm -f "$fifo"
    mkfifo "$fifo"
    chmod 666 "$fifo"
    alice systemd-run --user --scope --quiet --unit="app-$1-$RANDOM.scope" -p CPUWeight=100 \
        sh -c "echo \$\$ >$fifo; $2" </dev/null >/dev/null 2>&1 &
    read -r pid <"$fifo"
    cgroup=/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$pid/cgroup")
}

# register ID PID [OPTION...]: sets $app to its path.
register() {
    local id=$1 process=$2
    shift 2
    app=$(alice busctl call "$service" "$root" "$manager" Register 'sua{sv}' "$id" "$process" "$(($# / 3))" "$@" |
        cut -d '"' -f 2)
}

state() { alice busctl get-property "$service" "$1" "$application" State | cut -d '"' -f 2; }

report() { alice busctl call "$service" "$root" "$reporter" "$@"; }

ask() {
    local path=$1
    shift
    alice busctl call "$service" "$path" "$application" "$@"
}

# start_suspended CHECK ID: starts an application and suspends it, as the named check confirms. Sets $held to the file
# that says whether it is frozen.
start_suspended() {
    start "$2" 'exec sleep infinity'
    register "$2" "$pid" suspension s manual
    ask "$app" Suspend
    held=$cgroup/cgroup.events
    same "$1" 'frozen 1' "$(grep frozen "$held")"
}

# monitor NAME: writes the signals that alice receives to $told.
monitor() {
    told=$scratch/told-$1
    alice appstatectl monitor >"$told" 2>&1 &
    watcher=$!
    await "$told" '^listening'
}

# edges ID: prints the states that its announced edges passed through, in order.
edges() {
    sed -nE "s/^[^ ]+ +$1 +([a-z-]+) → ([a-z-]+) .*/\1 \2/p" "$told" | awk 'NR == 1 { printf $1 } { printf " " $2 }'
}

# ---- an application that is launched: its text consists of what it has opened

letters=/var/tmp/letters

# write_letters: installs its desktop entry, and makes an empty file for its output.
write_letters() {
    : >"$letters"
    chmod 666 "$letters"
    cat >/usr/share/applications/org.example.Letters.desktop <<EOF
[Desktop Entry]
Type=Application
Name=Letters
Exec=sh -c "exec $delegate org.example.Letters keep >>$letters 2>&1" %u
MimeType=x-scheme-handler/letter;
EOF
    printf '[MIME Cache]\nx-scheme-handler/letter=org.example.Letters.desktop;\n' \
        >/usr/share/applications/mimeinfo.cache
}

# start_agent: starts the session agent, which launches programs. There are no windows that it could report.
start_agent() {
    local unit=/run/systemd/user/appstate-session.service.d
    mkdir -p "$unit"
    printf '[Service]\nExecStart=\nExecStart=/usr/libexec/appstate-session --launch-only\n' >"$unit/check.conf"
    alice systemctl --user daemon-reload && alice systemctl --user start appstate-session
}

# open_letter URL: opens the URL by the desktop entry, through alice's agent and service manager.
open_letter() { start_agent && alice appstatectl open "$1"; }
