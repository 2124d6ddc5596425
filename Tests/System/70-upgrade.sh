#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

start org.example.Upgraded 'exec sleep infinity'
register org.example.Upgraded "$pid" suspension s manual
ask "$app" Suspend
same 'an application is suspended before the upgrade' 'frozen 1' "$(grep frozen "$cgroup/cgroup.events")"
before=$(list)
old=$(main_pid)
check 'apt upgrades the package' env DEBIAN_FRONTEND=noninteractive apt-get install -q -y "$PWD/second/"*.deb
check 'the new version runs' test "$old" != "$(main_pid)"
same 'the new version has lost nothing' "$before" "$(list)"
