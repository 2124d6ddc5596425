#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

start_suspended 'an application is suspended before the purge' org.example.Last
rm -rf /home/alice/.local/state/appstate
check 'apt purges the packages' env DEBIAN_FRONTEND=noninteractive apt-get purge -q -y appstated appstate-session
same 'the suspended application runs again' 'frozen 0' "$(grep frozen "$held")"
check 'it has not been ended' kill -0 "$pid"
same 'no other application is suspended' '' \
    "$(find /sys/fs/cgroup/user.slice -name cgroup.events -exec grep -l 'frozen 1' {} +)"
same 'the user is gone' '' "$(getent passwd appstated)$(getent group appstated)"
same 'no files are left' '' "$(find / -xdev \( -name '*appstat*' -o -name '*org.appstate1*' \) -not -path '/proc/*' \
    -not -path '/sys/*' -not -path '/vm/*' -not -path "$scratch*" -not -path /etc/hostname 2>/dev/null)"
same 'the unit is gone' not-found "$(systemctl show --property=LoadState --value appstated.service)"
same 'no process is left' '' "$(pgrep -x appstated)"
if busctl call "$service" "$root" "$manager" ListApplications >/dev/null 2>&1; then
    not_ok 'the bus name is gone'
else
    ok 'the bus name is gone'
fi
