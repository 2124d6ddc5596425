#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

start_suspended 'a suspended application is frozen' org.example.Left
left=$app
followed_journal=$scratch/journal-release
journalctl --no-pager -f -n 0 -o cat -u appstated -u appstated-release >"$followed_journal" &
follower=$!

# The start limit must not be reached before the check for it.
again() { systemctl reset-failed appstated 2>/dev/null; }

# runs: whether the application is thawed, at the latest after some seconds.
runs() {
    for _ in $(seq 200); do
        ! grep -q 'frozen 1' "$held" || sleep 0.05
    done
    ! grep -q 'frozen 1' "$held"
}

# restarted PID: waits until the service manager has started another daemon.
restarted() {
    until [ "$(main_pid)" != "$1" ] && systemctl --quiet is-active appstated; do sleep 0.05; done
}

taken_over=''
for signal in KILL KILL USR1; do
    again
    old=$(main_pid)
    kill -s "$signal" "$old"
    restarted "$old"
    taken_over="$taken_over $(state "$left") $(grep frozen "$held")"
done
same 'the next daemon takes over after a crash and a planned exit' \
    ' suspended frozen 1 suspended frozen 1 suspended frozen 1' "$taken_over"
same 'a planned exit is not a failure' success "$(systemctl show --property=Result --value appstated)"
same 'the journal has the failures of the crashes only' 2 "$(grep -c "Failed with result 'signal'" "$followed_journal")"
same 'it has no other failure' '' "$(grep 'Failed with' "$followed_journal" | grep -v "'signal'")"
same 'nothing was thawed' '' "$(grep thawed "$followed_journal")"

# A stop thaws, also before the next daemon is ready, or between the two halves of a restart.
frozen_after=''
stop_after() {
    sleep "$2"
    systemctl stop appstated
    runs || frozen_after="$frozen_after $1+$2"
    again
    systemctl start appstated
    ask "$left" Suspend
}
for pause in 0 0.02 0.05 0.08 0.1 0.12 0.15 0.2 0.3 0.5; do
    again
    kill -KILL "$(main_pid)"
    stop_after crash "$pause"
done
for pause in 0 0.01 0.02 0.03 0.04 0.05 0.06 0.07 0.08 0.1 0.12 0.15; do
    again
    systemctl restart --no-block appstated
    stop_after restart "$pause"
done
same 'a stop at any moment after a crash, or during a restart, leaves nothing frozen' '' "$frozen_after"
same 'the application is suspended once more' 'suspended frozen 1' "$(state "$left") $(grep frozen "$held")"

# From now on the daemon finds no bus.
dropin=/run/systemd/system/appstated.service.d
mkdir -p "$dropin"
printf '[Service]\nEnvironment=DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nowhere\n' >"$dropin/broken.conf"
systemctl daemon-reload
again
: >"$followed_journal"
kill -KILL "$(main_pid)"
check 'a daemon that fails to start is restarted' await "$followed_journal" 'there is no system bus to serve'
check 'after its final failure the applications are resumed' await "$followed_journal" '^Stopped .*Resume What'
check 'the journal reports the thaw' await "$followed_journal" 'thawed /'
same 'the daemon has failed' failed "$(systemctl is-failed appstated)"
same 'the suspended application runs' 'frozen 0' "$(grep frozen "$held")"
# The bus would give up after 25 s.
for _ in 1 2 3; do
    busctl --timeout=15 get-property "$service" "$root" "$manager" Version 2>&1
done >"$scratch/refused"
same 'a call is refused at once while the daemon has failed' 3 "$(grep -c 'appstated has failed' "$scratch/refused")"
grep -v 'appstated has failed' "$scratch/refused" | sed 's/^/# /'
kill "$follower"

rm -r "$dropin"
systemctl daemon-reload
systemctl reset-failed appstated
systemctl start appstated
same 'the next daemon knows it, in the background' background "$(state "$left")"
ask "$left" Unregister
