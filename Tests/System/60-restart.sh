#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

many=30
first=''
for ((i = 1; i <= many; i++)); do
    start "org.example.Many$i" 'exec sleep infinity'
    register "org.example.Many$i" "$pid" suspension s manual
    first=${first:-$pid}
    if ((i % 3 == 0)); then
        ask "$app" Suspend
        frozen=$cgroup/cgroup.events
    fi
done
before=$(list)
same 'there are thirty applications, ten of them suspended' 10 "$(grep -c 'Many.*suspended' <<<"$before")"

# A client keeps calling. Its calls wait or fail while no daemon runs.
while :; do report SetMinimized ub "$first" true; done >/dev/null 2>&1 &
load=$!
for _ in 1 2 3; do
    old=$(main_pid)
    systemctl restart appstated
    new=$(main_pid)
    check 'systemctl restart starts another daemon' test "$old" != "$new"
    same 'the new daemon has lost nothing' "$before" "$(list)"
done
kill "$load"
wait "$load" 2>/dev/null
same 'the suspended applications are still frozen' 'frozen 1' "$(grep frozen "$frozen")"

old=$(main_pid)
kill -KILL "$old"
tail --pid="$old" -f /dev/null
same 'a killed daemon loses nothing' "$before" "$(list)"
same 'they stay frozen after the kill' 'frozen 1' "$(grep frozen "$frozen")"

followed_journal=$scratch/journal
journalctl --no-pager -f -n 0 -o cat -u appstated >"$followed_journal" &
follower=$!
# The daemon must have started: the watchdog does not supervise the start, which has its own timeout.
systemctl start appstated
kill -STOP "$(main_pid)"
check 'the watchdog ends a daemon that hangs' await "$followed_journal" 'Watchdog timeout'
check 'a new daemon is started' await "$followed_journal" '^Started appstated'
same 'a daemon that hung loses nothing' "$before" "$(list)"
kill "$follower"

score=/proc/$pid/oom_score_adj
same 'the OOM killer takes a suspended application first' 900 "$(cat "$score")"
ask "$app" Unregister
same 'an unregistered application has its own OOM score back' 0 "$(cat "$score")"
