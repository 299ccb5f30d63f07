# kill.sh ID GRACE: kill the whole tree, with SIGTERM first. Prints `left COUNT` at the end.
# The tree is every process with the mark in its environment, or in the OS session of the runner.
id=$1 grace=$2
dir=/tmp/rekindle-$(id -u)/$id
runner=$(cat "$dir/runner" 2>/dev/null || echo none)
alive() { # print the live pids, except the waiting shell and its own helpers
    marked=" $(grep -l "REKINDLE_PROCESS=$id" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n' | tr '\n' ' ')"
    # A program name may contain any character: parse the fields after its last bracket.
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
each() { # send signal $1 to all but the pids in $2
    for one in $left; do
        case " $2 " in *" $one "*) ;; *) kill -s "$1" "$one" 2>/dev/null ;; esac
    done
}
# Spare the carriers of the terminal: they end with the program and pass on its last output and exit code.
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
# Only the waiting shell is left: wait until it has written the exit code.
tries=0
while [ -d "$dir" ] && [ ! -e "$dir/exit" ] && [ "$tries" -lt 40 ]; do
    sleep 0.05 2>/dev/null || sleep 1
    tries=$((tries + 1))
done
set -- $left
echo "left $#"
