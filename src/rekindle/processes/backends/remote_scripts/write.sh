# write.sh ID SECONDS TEXT: write to the input of the process; TEXT consists of printf's octal escapes.
# Prints `taken`, `closed`, or `unread` if the process read nothing for SECONDS: TEXT is then discarded.
dir=/tmp/rekindle-$(id -u)/$1
if [ -e "$dir/exit" ] || ! kill -0 "$(cat "$dir/holder" 2>/dev/null)" 2>/dev/null; then
    echo closed
    exit 0
fi
printf "$3" >"$dir/in" 2>/dev/null &
writer=$!
(
    trap 'kill $nap; exit' TERM
    sleep "$2" &
    nap=$!
    wait $nap && kill $writer
) >/dev/null 2>&1 </dev/null &
watch=$!
if wait $writer; then echo taken; else echo unread; fi
kill $watch 2>/dev/null
:
