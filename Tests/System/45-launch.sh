#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

if ! no_delegate 'a desktop entry is opened' 'it has its own unit' 'its exit status is known'; then
    monitor launch
    write_letters
    check 'a desktop entry is opened' open_letter letter:first
    await "$letters" '^text letter:first$'
    app=$(sed -n 's/^is //p' "$letters")
    unit=$(busctl get-property "$service" "$app" "$application" Unit | cut -d '"' -f 2)
    check 'it has its own unit' grep '^app-appstate-org.example.Letters@[0-9]*.service$' <<<"$unit"
    alice systemctl --user kill --signal=KILL "$unit"
    await "$told" 'org.example.Letters .*→ not-running'
    check 'its exit status is known' sh -c \
        "runuser -u alice -- appstatectl history org.example.Letters | grep -E 'killed .* 9$'"
    kill "$watcher"
    # For the next part that opens letters.
    rm -f "$letters"
fi
