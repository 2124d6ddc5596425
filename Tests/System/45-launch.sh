#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

if [ ! -x "$delegate" ]; then
    for name in 'an entry is opened' 'it has a unit of its own' 'its exit status is known'; do
        skip "$name" 'the delegate could not be built: no C compiler or no libsystemd-dev'
    done
else
    monitor launch
    write_letters
    check 'an entry is opened' open_letter letter:first
    await "$letters" '^text letter:first$'
    app=$(sed -n 's/^is //p' "$letters")
    unit=$(busctl get-property "$service" "$app" "$application" Unit | cut -d '"' -f 2)
    check 'it has a unit of its own' grep '^app-appstate-org.example.Letters-[0-9]*.service$' <<<"$unit"
    alice systemctl --user kill --signal=KILL "$unit"
    await "$told" 'org.example.Letters .*→ not-running'
    check 'its exit status is known' sh -c \
        "runuser -u alice -- appstatectl history org.example.Letters | grep -E 'killed .* 9$'"
    kill "$watcher"
    # For whoever opens letters next.
    rm -f "$letters"
fi
