#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

start org.example.Left 'exec sleep infinity'
register org.example.Left "$pid" suspension s manual
ask "$app" Suspend
left=$app
held=$cgroup/cgroup.events
same 'what is suspended is frozen' 'frozen 1' "$(grep frozen "$held")"

# From now on it finds no bus.
dropin=/run/systemd/system/appstated.service.d
mkdir -p "$dropin"
printf '[Service]\nEnvironment=DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nowhere\n' >"$dropin/broken.conf"
systemctl daemon-reload
followed_journal=$scratch/journal-release
journalctl --no-pager -f -n 0 -o cat -u appstated -u appstated-release >"$followed_journal" &
follower=$!
kill -KILL "$(main_pid)"
check 'a daemon that cannot start is started again' await "$followed_journal" 'there is no system bus to serve'
check 'until it has failed for good: then a unit lets go' await "$followed_journal" '^Finished .*Let Run'
kill "$follower"
same 'it has failed' failed "$(systemctl is-failed appstated)"
same 'and what it had suspended runs' 'frozen 0' "$(grep frozen "$held")"
check 'as the journal says' grep -q "thawed /" "$followed_journal"

rm -r "$dropin"
systemctl daemon-reload
systemctl reset-failed appstated
systemctl start appstated
same 'the next one knows it, in the background' background "$(state "$left")"
ask "$left" Unregister
