#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

start_suspended 'a suspended application is frozen' org.example.Left
left=$app

# From now on the daemon finds no bus.
dropin=/run/systemd/system/appstated.service.d
mkdir -p "$dropin"
printf '[Service]\nEnvironment=DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nowhere\n' >"$dropin/broken.conf"
systemctl daemon-reload
followed_journal=$scratch/journal-release
journalctl --no-pager -f -n 0 -o cat -u appstated -u appstated-release >"$followed_journal" &
follower=$!
kill -KILL "$(main_pid)"
check 'a daemon that fails to start is restarted' await "$followed_journal" 'there is no system bus to serve'
check 'after its final failure a unit releases the applications' await "$followed_journal" '^Finished .*Let Run'
check 'the journal reports the thaw' await "$followed_journal" 'thawed /'
kill "$follower"
same 'the daemon has failed' failed "$(systemctl is-failed appstated)"
same 'the suspended application runs' 'frozen 0' "$(grep frozen "$held")"

rm -r "$dropin"
systemctl daemon-reload
systemctl reset-failed appstated
systemctl start appstated
same 'the next daemon knows it, in the background' background "$(state "$left")"
ask "$left" Unregister
