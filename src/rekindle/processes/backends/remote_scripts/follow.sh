# follow.sh ID SEEN: print the output after the first SEEN bytes, then the exit code.
# Prints `output AT SIZE` followed by SIZE bytes, `exit CODE`, and `end` when no more output can come;
# `beat`, to notice when nobody is listening any more (not every connection reports that); and `again`
# to ask the caller to run this script again.
dir=/tmp/rekindle-$(id -u)/$1
at=$2 told= rounds=0 found= waiter=
pieces() { ls "$dir" 2>/dev/null | sed -n 's/^out\.//p' | sort -n; }
piece() { # find the piece that contains byte $at, or else the first one after it
    found=
    for begin in $(pieces); do
        if [ "$begin" -le "$at" ]; then found=$begin; elif [ -z "$found" ]; then found=$begin && break; fi
    done
}
while [ -d "$dir" ]; do
    eof=
    [ ! -e "$dir/eof" ] || eof=1
    moved=
    # Polling is cheap: one small program per round while there is no output.
    [ -n "$found" ] && [ -e "$dir/out.$found" ] || piece
    if [ -n "$found" ]; then
        [ "$found" -le "$at" ] || at=$found
        size=$(wc -c <"$dir/out.$found" 2>/dev/null) || continue
        skip=$((at - found)) more=$((size - skip))
        if [ "$more" -gt 0 ]; then
            [ "$more" -le 1048576 ] || more=1048576
            printf 'output %s %s\n' "$at" "$more"
            tail -c +$((skip + 1)) "$dir/out.$found" | head -c "$more"
            at=$((at + more)) moved=1
        elif [ "$size" -gt 0 ] && [ -e "$dir/out.$((found + size))" ]; then
            found=$((found + size)) moved=1 # each piece begins where the previous one ends
        fi
    fi
    if [ -z "$told" ] && [ -e "$dir/exit" ]; then
        printf 'exit %s\n' "$(cat "$dir/exit")"
        told=1
    fi
    [ -z "$moved" ] || continue
    if [ -n "$eof" ] && [ -n "$told" ]; then break; fi
    # If the waiting shell is gone, nobody learns the exit code: stop when the program has ended.
    [ -n "$waiter" ] || waiter=$(cat "$dir/waiter" 2>/dev/null)
    if [ -z "$told" ] && [ -s "$dir/pid" ] && ! kill -0 "$waiter" 2>/dev/null; then
        [ -e "$dir/exit" ] || grep -q "REKINDLE_PROCESS=$1" "/proc/$(cat "$dir/pid")/environ" 2>/dev/null || break
    fi
    rounds=$((rounds + 1))
    [ $((rounds % 100)) -ne 0 ] || echo beat || exit
    [ "$rounds" -lt 3000 ] || { echo again && exit; }
    sleep 0.1 2>/dev/null || sleep 1
done
echo end
