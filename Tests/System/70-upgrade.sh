#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

if [ -z "$(list)" ]; then
    start org.example.Upgraded 'exec sleep infinity'
    register org.example.Upgraded "$pid" suspension s manual
    ask "$app" Suspend
fi
before=$(list)
old=$(main_pid)
check 'apt installs a newer version over it' env DEBIAN_FRONTEND=noninteractive apt-get install -q -y "$PWD/second/"*.deb
check 'which runs' test "$old" != "$(main_pid)"
same 'and has lost nothing' "$before" "$(list)"
