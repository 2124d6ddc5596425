#!/bin/bash
# shellcheck disable=SC2154 # shared between the files
# Applications that are started in the ways in which users start them: each is suspended as a whole, and nothing else
# is. Those that share their unit with something else get a scope of their own from the session agent.

place=$scratch/scopes
install -d -o alice "$place"

# beat FILE: a program that writes the time to the file ten times a second, and its PID to FILE.pid.
cat >"$place/beat" <<'EOF_BEAT'
#!/bin/sh
echo $$ >"$1.pid"
while :; do
    date +%s.%N >"$1.new"
    mv "$1.new" "$1"
    sleep 0.1
done
EOF_BEAT
# family NAME: a program of two processes, with the files NAME.1 and NAME.2.
cat >"$place/family" <<EOF_FAMILY
#!/bin/sh
"$place/beat" "$place/\$1.2" &
exec "$place/beat" "$place/\$1.1"
EOF_FAMILY
chmod 755 "$place/beat" "$place/family"

# goes_on FILE...: waits until all of these change.
goes_on() {
    local file before tries
    for file; do
        before=$(cat "$place/$file" 2>/dev/null)
        tries=0
        while [ "$(cat "$place/$file" 2>/dev/null)" = "$before" ]; do
            [ $((tries += 1)) -lt $((patience * 10)) ] || return 1
            sleep 0.1
        done
    done
}

stands() {
    local before
    before=$(cd "$place" && cat "$@")
    sleep 1
    [ "$(cd "$place" && cat "$@")" = "$before" ]
}

unit_of() { sed -n 's/^0:://p' "/proc/$1/cgroup" | sed 's#.*/##'; }

cgroup_of() { echo "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$1/cgroup")"; }

# family_of NAME: waits for a family; sets $pid.
family_of() {
    await "$place/$1.1.pid" '^[0-9]+$'
    pid=$(cat "$place/$1.1.pid")
    goes_on "$1.1" "$1.2"
}

# suspends WHAT NAME UNIT: registers a family and suspends it. All of it must be frozen in a unit whose name matches, and
# nothing else may be in there. It must run again after Resume. Sets $app.
suspends() {
    local what=$1 name=$2 expected=$3 begin unit
    family_of "$name"
    register "org.example.$name" "$pid" suspension s manual
    begin=$(date +%s%N)
    ask "$app" Suspend
    echo "# $what: Suspend took $((($(date +%s%N) - begin) / 1000000)) ms, with busctl"
    unit=$(unit_of "$pid")
    check "$what: it has a unit of its own" grep -E -- "$expected" <<<"$unit"
    # The shells sleep in processes of their own.
    same "$what: with all of its processes, and no others" "$pid" \
        "$(while read -r member; do
            while [ "$member" -gt 1 ] && [ "$member" != "$pid" ]; do
                member=$(status_of "$member" PPid)
            done
            echo "$member"
        done <"$(cgroup_of "$pid")/cgroup.procs" | sort -u)"
    same "$what: that unit is frozen" 'frozen 1' "$(grep frozen "$(cgroup_of "$pid")/cgroup.events")"
    check "$what: it stands still" stands "$name.1" "$name.2"
    ask "$app" Resume
    same "$what: it is thawed" 'frozen 0' "$(grep frozen "$(cgroup_of "$pid")/cgroup.events")"
    check "$what: it goes on" goes_on "$name.1" "$name.2"
}

# kills WHAT NAME: suspends the application once more, and ends it by force.
kills() {
    local cgroup
    cgroup=$(cgroup_of "$pid")
    ask "$app" Suspend
    ask "$app" Terminate b true
    check "$1: it is killed as a whole" await "$told" "org.example.$2 .*ApplicationRemoved"
    check "$1: nothing is left of it" sh -c \
        "for n in \$(seq 100); do ! grep -q 'populated 1' '$cgroup/cgroup.events' 2>/dev/null && exit; sleep 0.1; done; exit 1"
}

# terminal NAME COMMAND: a terminal emulator, as far as the kernel sees it, with a shell that has job control.
terminal() {
    start "$1" "exec script -qfc \"bash -mc '$2'\" /dev/null"
    emulator=$pid
}

monitor scopes

# An application's unit has weights before anything has asked for one
alice systemd-run --user --quiet --unit=app-org.example.Weight@1.service sleep infinity
weighted=$(alice systemctl --user show -P MainPID app-org.example.Weight@1.service)
if grep -qw cpu /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
    check 'the unit of an application has a weight' test -e "$(cgroup_of "$weighted")/cpu.weight"
else
    skip 'the unit of an application has a weight' 'no cpu controller here'
fi
alice systemctl --user --quiet stop app-org.example.Weight@1.service

# Without an agent
alice systemctl --user --quiet stop appstate-session
terminal org.example.Alone "$place/family alone"
family_of alone
register org.example.alone "$pid" suspension s manual
ask "$app" Suspend
same 'without an agent: it is suspended' suspended "$(state "$app")"
same 'without an agent: by signal' T "$(status_of "$pid" State | cut -c 1)"
check 'without an agent: it stands still' stands alone.1 alone.2
ask "$app" Resume
check 'without an agent: it goes on' goes_on alone.1 alone.2
kill -KILL "$emulator"

start_agent

# By a desktop file: GNOME, KDE and gio make a scope
start org.example.desktop "exec $place/family desktop"
suspends 'by a desktop file' desktop '^app-org.example.desktop-[0-9]+.scope$'
kills 'by a desktop file' desktop

# From a terminal, which has also started a server and another program
terminal org.example.Terminal \
    "$place/family program & $place/beat $place/other & setsid -f $place/beat $place/server; $place/beat $place/shell"
suspends 'from a terminal' program '^app-appstate-org.example.program-[0-9]+.scope$'
ask "$app" Suspend
check 'from a terminal: the terminal, another program and a server go on' goes_on shell other server
program=$app
register org.example.Terminal "$emulator" suspension s manual
ask "$program" Resume
ask "$app" Suspend
same 'a terminal that has started a server is suspended' suspended "$(state "$app")"
same 'it is frozen' 'frozen 1' "$(grep frozen "$(cgroup_of "$emulator")/cgroup.events")"
check 'with what runs in it' stands shell other
check 'the server goes on' goes_on server
check 'an application that was started in it goes on' goes_on program.1 program.2
ask "$app" Resume
check 'the terminal goes on' goes_on shell other
emulated=$app
app=$program
pid=$(cat "$place/program.1.pid")
kills 'from a terminal' program
check 'from a terminal: the terminal goes on after that' goes_on shell
ask "$emulated" Terminate b true
kill -KILL "$(cat "$place/server.pid")"

# In the scope of a login session, as everything is that startx starts
session_scope=/sys/fs/cgroup/user.slice/user-1001.slice/session-$session.scope
if [ -e "$session_scope/cgroup.procs" ]; then
    for name in session beside; do
        sh -c "echo \$\$ >$session_scope/cgroup.procs
            exec runuser -u alice -- env XDG_SESSION_ID=$session $place/family $name" </dev/null >/dev/null 2>&1 &
    done
    family_of beside
    beside=$pid
    family_of session
    same 'by startx: it begins in the scope of the session' "session-$session.scope" "$(unit_of "$pid")"
    suspends 'by startx' session '^app-appstate-org.example.session-[0-9]+.scope$'
    ask "$app" Suspend
    check 'by startx: others in the session go on' goes_on beside.1 beside.2
    same 'by startx: they stay in the session' "session-$session.scope" "$(unit_of "$beside")"
    kills 'by startx' session
    kill -KILL "$(cat "$place/beside.1.pid")" "$(cat "$place/beside.2.pid")"
else
    skip 'by startx' 'the session has no scope'
fi

# By systemd-run
alice systemd-run --user --quiet --unit=by-systemd-run "$place/family" service
suspends 'by systemd-run' service '^by-systemd-run.service$'
same 'by systemd-run: the service has its main process' "$pid" \
    "$(alice systemctl --user show --property=MainPID --value by-systemd-run)"
kills 'by systemd-run' service

# By Launch
cat >/usr/share/applications/org.example.launch.desktop <<EOF_ENTRY
[Desktop Entry]
Type=Application
Name=Launch
Exec=$place/family launch
EOF_ENTRY
check 'by Launch: it is started' alice appstatectl launch --background org.example.launch
family_of launch
app=$(alice busctl call "$service" "$root" "$manager" GetApplicationByPID u "$pid" | cut -d '"' -f 2)
ask "$app" Suspend
check 'by Launch: it has a unit of its own' grep -E '^app-appstate-org.example.launch@[0-9]+.service$' <<<"$(unit_of "$pid")"
check 'by Launch: it stands still' stands launch.1 launch.2
ask "$app" Resume
check 'by Launch: it goes on' goes_on launch.1 launch.2
kills 'by Launch' launch
rm /usr/share/applications/org.example.launch.desktop

# A service of the system that runs as the user stays where the administrator has put it
systemd-run --quiet --unit=of-system --uid=alice "$place/family" system
family_of system
register org.example.system "$pid" suspension s manual
ask "$app" Suspend
same 'a service of the system: it is suspended' suspended "$(state "$app")"
same 'a service of the system: by signal' T "$(status_of "$pid" State | cut -c 1)"
same 'a service of the system: it is not moved' of-system.service "$(unit_of "$pid")"
ask "$app" Resume
check 'a service of the system: it goes on' goes_on system.1 system.2
systemctl stop of-system

kill "$watcher"
