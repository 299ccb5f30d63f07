# kill.sh ID GRACE: end the whole tree, politely first. Answers `left COUNT` at the end.
# All of it carries the mark in its environment; what has thrown that away is in the session still.
id=$1 grace=$2
dir=/tmp/rekindle-$(id -u)/$id
runner=$(cat "$dir/runner" 2>/dev/null || echo none)
alive() { # without the shell that waits, what it started by itself, and the dead
    marked=" $(grep -l "REKINDLE_PROCESS=$id" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n' | tr '\n' ' ')"
    # The name of a program may hold anything: what counts stands behind its last bracket.
    sed -n 's/^\([0-9]*\) .*) \(.\) \([0-9]*\) [0-9]* \([0-9]*\) .*/\1 \2 \3 \4/p' /proc/[0-9]*/stat 2>/dev/null |
        while read -r pid state parent session; do
            case $state in Z | X) continue ;; esac
            case $marked in
            *" $pid "*) echo "$pid" ;;
            *) [ "$session" != "$runner" ] || [ "$pid" = "$runner" ] || [ "$parent" = "$runner" ] || echo "$pid" ;;
            esac
        done
}
left=$(alive)
each() { # $2: whom it is not for
    for one in $left; do
        case " $2 " in *" $one "*) ;; *) kill -s "$1" "$one" 2>/dev/null ;; esac
    done
}
# What carries a terminal ends with the program, whose last words and exit code it brings.
each TERM "$(cat "$dir/carriers" 2>/dev/null)"
waited=0
while [ -n "$left" ] && [ "$waited" -lt "$((grace * 20))" ]; do
    sleep 0.05 2>/dev/null || { sleep 1 && waited=$((waited + 19)); }
    waited=$((waited + 1))
    left=$(alive)
done
tries=0
while [ -n "$left" ] && [ "$tries" -lt 50 ]; do
    each KILL
    sleep 0.05 2>/dev/null || sleep 1
    tries=$((tries + 1))
    left=$(alive)
done
kill "$(cat "$dir/holder" 2>/dev/null)" 2>/dev/null
# What is left is the shell that waits: it writes the exit code now.
tries=0
while [ -d "$dir" ] && [ ! -e "$dir/exit" ] && [ "$tries" -lt 40 ]; do
    sleep 0.05 2>/dev/null || sleep 1
    tries=$((tries + 1))
done
set -- $left
echo "left $#"
