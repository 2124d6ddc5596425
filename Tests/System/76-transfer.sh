#!/bin/bash
# shellcheck disable=SC2034,SC2154 # shared between the files

names=('a transfer begins' 'it goes on at login after a reboot, from where it was'
    'it goes on after a power cut, from what was on the disk' 'its application is launched and told of its end'
    'the file is whole' 'nothing is left beside it' 'the application was told once')
large=/var/tmp/large
requests=/var/tmp/requests

# await_received BYTES: waits until the transfer has so many.
await_received() {
    received=0
    until [ "$received" -ge "$1" ]; do
        sleep 1
        received=$(alice appstatectl transfers --json | sed -n 's/.*"Received":\([0-9]*\).*/\1/p')
        echo "# $received bytes received"
    done
}

# offset_of NUMBER: waits for a request, and prints its offset.
offset_of() { tail -n +1 -f "$requests" | sed -n "$1{p;q}"; }

if cannot_reboot "${names[@]}"; then
    :
elif [ "$step" = 1 ]; then
    write_letters
    head -c 12M /dev/urandom >"$large"
    : >"$requests"
    printf '[Socket]\nListenStream=127.0.0.1:80\nAccept=yes\n[Install]\nWantedBy=sockets.target\n' \
        >/etc/systemd/system/serve.socket
    printf '[Service]\nExecStart=/bin/bash %s/serve %s %s\nStandardInput=socket\nStandardError=journal\n' \
        "$PWD" "$large" "$requests" >/etc/systemd/system/serve@.service
    systemctl daemon-reload
    systemctl --quiet enable --now serve.socket
    check "${names[0]}" alice appstatectl transfer begin --application org.example.Letters \
        http://127.0.0.1/large /home/alice/large
    await_received 3000000
    echo "$received" >/vm/received
    reboot_machine
elif [ "$step" = 2 ]; then
    # Nothing else starts it.
    session=$(login alice 1001 1)
    offset=$(offset_of 2)
    echo "# $offset bytes were on the disk"
    check "${names[1]}" test "$offset" -ge "$(cat /vm/received)"
    await_received $((offset + 4000000))
    echo "$offset" >/vm/received
    sync /vm/received "$requests"
    cut_power
else
    session=$(login alice 1001 1)
    offset=$(offset_of 3)
    echo "# $offset bytes were on the disk"
    check "${names[2]}" test "$offset" -gt "$(cat /vm/received)"
    start_agent
    check "${names[3]}" await "$letters" '^BackgroundTransferFinished'
    check "${names[4]}" cmp "$large" /home/alice/large
    same "${names[5]}" '' "$(find /home/alice -name '.appstate-transfer*')"
    # A new program looks what is left to do.
    alice systemctl --user restart appstate-transfer
    alice appstatectl transfers
    same "${names[6]}" 1 "$(grep -c '^BackgroundTransferFinished' "$letters")"
    systemctl --quiet disable --now serve.socket
fi
