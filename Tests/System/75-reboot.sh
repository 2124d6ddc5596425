#!/bin/bash
# shellcheck disable=SC2034,SC2154 # shared between the files

saved='half a sentence, never'
names=('an application saves its state before the reboot' 'the daemon starts after the reboot'
    'the machine has booted again'
    'the next launch is offered restoration' 'the exit reason is the reboot' 'it is not the first launch'
    'its saved state is complete' 'the history lists the reboot'
    'its previous state was suspended' 'a letter is opened'
    'the application is suspended before the reboot'
    'an application that is opened again has its saved text' 'it also has the newly opened part')

if cannot_reboot "${names[@]}"; then
    :
elif [ "$step" = 1 ]; then
    : >"$scratch/kept"
    chmod 666 "$scratch/kept"
    start org.example.Kept "exec $delegate org.example.Kept save '$saved' >>$scratch/kept 2>&1"
    await "$scratch/kept" DidEnterBackground
    same "${names[0]}" saved "$(grep -x saved "$scratch/kept")"
    ask "$(sed -n 's/^is //p' "$scratch/kept")" Suspend
    write_letters
    check "${names[9]}" open_letter letter:one
    await "$letters" '^text .*letter:one$'
    sed -n 's/^text //p' "$letters" >/vm/text-before
    app=$(sed -n 's/^is //p' "$letters")
    ask "$app" Suspend
    same "${names[10]}" suspended "$(state "$app")"
    cat /proc/sys/kernel/random/boot_id >/vm/boot-before
    reboot_machine
else
    check "${names[1]}" systemctl start appstated
    check "${names[2]}" test "$(cat /vm/boot-before)" != "$(cat /proc/sys/kernel/random/boot_id)"
    session=$(login alice 1001 1)
    : >"$scratch/kept"
    chmod 666 "$scratch/kept"
    start org.example.Kept "exec $delegate org.example.Kept load >>$scratch/kept 2>&1"
    await "$scratch/kept" DidEnterBackground
    sed -n 's/^option /# &/p' "$scratch/kept"
    option() { sed -n "s/^option $1 //p" "$scratch/kept"; }
    same "${names[3]}" true "$(option restorable)"
    same "${names[4]}" rebooted "$(option exit-reason)"
    same "${names[5]}" false "$(option first-launch)"
    same "${names[6]}" "$saved" "$(sed -n 's/^loaded //p' "$scratch/kept")"
    same "${names[8]}" suspended "$(option previous-state)"
    alice appstatectl history org.example.Kept 2>&1 | sed 's/^/# /'
    check "${names[7]}" sh -c "runuser -u alice -- appstatectl history org.example.Kept | grep -q rebooted"
    kill -KILL "$pid"
    : >"$letters"
    open_letter letter:two
    await "$letters" '^text .*letter:two$'
    same "${names[11]}" "$(cat /vm/text-before)" "$(sed -n 's/^loaded //p' "$letters")"
    same "${names[12]}" "$(cat /vm/text-before)+letter:two" "$(sed -n 's/^text //p' "$letters")"
fi
