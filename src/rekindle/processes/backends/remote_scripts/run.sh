# run.sh ID ROWS COLUMNS LINE PROGRAM ARGUMENT…: run the process as its parent, in a new OS session,
# and record its exit code. LINE is the program and its arguments, quoted for the shell at a terminal.
# Output is written to pieces named by the offset of their first byte; only the last ones are kept.
dir=${0%/*} id=$1 rows=$2 columns=$3 line=$4
shift 4
unset REKINDLE_RUNNER
trap : HUP INT TERM
cat /proc/sys/kernel/random/boot_id >"$dir/boot" 2>/dev/null
# This sleep keeps the input of the process open; killing it closes the input.
(trap - HUP INT TERM && exec sleep 2147483647 >"$dir/in") &
echo $! >"$dir/holder"
echo $$ >"$dir/runner"
program() {
    sh -c 'echo $PPID' >"$dir/waiter"
    export REKINDLE_PROCESS="$id"
    if [ -n "$rows" ]; then
        export SHELL=/bin/sh REKINDLE_DIR="$dir"
        # Keys and SIGTERM are meant for the program: this shell must survive to learn its exit code.
        begin="trap : HUP INT QUIT TERM; dir=\$REKINDLE_DIR; unset REKINDLE_DIR; echo \$\$ \$PPID >\"\$dir/carriers\""
        begin="$begin; stty rows $rows cols $columns 2>/dev/null; tty >\"\$dir/tty\""
        line="$begin; sh -c 'echo \$\$ >\"\$0/pid\"; exec \"\$@\"' \"\$dir\" $line; echo \$? >\"\$dir/code\""
        script -qfc "$line" /dev/null <"$dir/in" 2>&1
        [ -e "$dir/code" ] || echo 137 >"$dir/code" # the shell at the terminal was killed too
    else
        sh -c 'echo $$ >"$0/pid"; exec "$@"' "$dir" "$@" <"$dir/in" 2>&1
        echo $? >"$dir/code"
    fi
    mv "$dir/code" "$dir/exit"
    kill "$(cat "$dir/holder")" 2>/dev/null
}

# The collector of the output is not in the session, so that killing the session does not lose the last
# output. Messages of this shell itself (`Killed`) are not output.
program "$@" 2>/dev/null | setsid sh -c '
    dir=$0 at=0 pieces=
    trap : HUP INT TERM
    while :; do
        dd bs=16384 count=4096 of="$dir/out.$at" 2>/dev/null
        size=$(wc -c <"$dir/out.$at")
        [ "$size" -gt 0 ] || break
        at=$((at + size)) pieces="$pieces $at"
        set -- $pieces
        while [ $((at - $1)) -gt 4194304 ]; do
            rm -f "$dir/out.${before:-0}"
            before=$1
            shift
        done
        pieces=$*
    done
    : >"$dir/eof"' "$dir"
