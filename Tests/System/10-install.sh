#!/bin/bash
# shellcheck disable=SC2034,SC2154 # shared between the files

check 'apt installs the packages' env DEBIAN_FRONTEND=noninteractive apt-get install -q -y "$PWD/first/"*.deb
check 'the user appstated exists' getent passwd appstated
same 'the daemon runs as that user' appstated "$(stat -c %U "/proc/$(main_pid)")"
check 'the unit is enabled' systemctl is-enabled appstated
session=$(login alice 1001 1)
mkdir -p /etc/appstated/appstated.conf.d
# The grace period must be long enough to query the state before it ends.
grace=5
[ "$where" = container ] || grace=10
printf '[LifeCycle]\nBackgroundGraceSec=%s\nDrainEverySec=2s\n' "$grace" >/etc/appstated/appstated.conf.d/check.conf
check 'systemctl reload succeeds' systemctl reload appstated
