#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

start_suspended 'an application is suspended before the upgrade' org.example.Upgraded
before=$(list)
old=$(main_pid)
check 'apt upgrades the packages' env DEBIAN_FRONTEND=noninteractive apt-get install -q -y "$PWD/second/"*.deb
check 'the new version runs' test "$old" != "$(main_pid)"
same 'the new version has lost nothing' "$before" "$(list)"
