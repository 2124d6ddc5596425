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
same 'thirty applications, ten of them suspended' 10 "$(grep -c 'Many.*suspended' <<<"$before")"

# Somebody goes on asking; calls while nobody is there wait, or fail.
while :; do report SetMinimized ub "$first" true; done >/dev/null 2>&1 &
load=$!
for _ in 1 2 3; do
    old=$(main_pid)
    systemctl restart appstated
    new=$(main_pid)
    check 'systemctl restart: another daemon' test "$old" != "$new"
    same 'which has lost nothing' "$before" "$(list)"
done
kill "$load"
wait "$load" 2>/dev/null
same 'and what it holds is frozen' 'frozen 1' "$(grep frozen "$frozen")"

old=$(main_pid)
kill -KILL "$old"
tail --pid="$old" -f /dev/null
same 'killed: nothing lost' "$before" "$(list)"
same 'frozen all the while' 'frozen 1' "$(grep frozen "$frozen")"

followed_journal=$scratch/journal
journalctl --no-pager -f -n 0 -o cat -u appstated >"$followed_journal" &
follower=$!
# Not while it is being started: then it is the start that takes too long.
systemctl start appstated
kill -STOP "$(main_pid)"
check 'hung: the watchdog ends it' await "$followed_journal" 'Watchdog timeout'
check 'and a new one is started' await "$followed_journal" '^Started appstated'
same 'nothing lost' "$before" "$(list)"
kill "$follower"

score=/proc/$pid/oom_score_adj
same 'the last of them goes first to the kernel'"'"'s killer' 900 "$(cat "$score")"
ask "$app" Unregister
same 'given up, it has what it had of its own' 0 "$(cat "$score")"
