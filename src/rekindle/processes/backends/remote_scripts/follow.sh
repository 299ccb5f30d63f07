# follow.sh ID SEEN: its output behind the first SEEN bytes, and its end.
# Lines: `output AT SIZE` with that many bytes behind it, `exit CODE`, `end` when nothing more can come,
# `beat` so that we notice when nobody listens, and `again` to be asked again: not every line tells us.
dir=/tmp/rekindle-$(id -u)/$1
at=$2 told= rounds=0 found= waiter=
pieces() { ls "$dir" 2>/dev/null | sed -n 's/^out\.//p' | sort -n; }
piece() { # the piece that holds the byte at $at, else the first one behind it
    found=
    for begin in $(pieces); do
        if [ "$begin" -le "$at" ]; then found=$begin; elif [ -z "$found" ]; then found=$begin && break; fi
    done
}
while [ -d "$dir" ]; do
    eof=
    [ ! -e "$dir/eof" ] || eof=1
    moved=
    # It does not cost much to look again: one small program for each look, while nothing comes.
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
            found=$((found + size)) moved=1 # one piece begins where the one before ends
        fi
    fi
    if [ -z "$told" ] && [ -e "$dir/exit" ]; then
        printf 'exit %s\n' "$(cat "$dir/exit")"
        told=1
    fi
    [ -z "$moved" ] || continue
    if [ -n "$eof" ] && [ -n "$told" ]; then break; fi
    # Without the shell that waits nobody learns the exit code: then it is over when the program is.
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
