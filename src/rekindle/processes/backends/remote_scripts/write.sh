# write.sh ID SECONDS TEXT: give it input; TEXT is written as printf's octal escapes.
# Answers `taken`, `closed`, or `unread` when it has read nothing for so many seconds: then none of TEXT comes later.
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
