# signal.sh ID NUMBER: send a signal to the program itself.
dir=/tmp/rekindle-$(id -u)/$1
[ -e "$dir/exit" ] || kill -s "$2" "$(cat "$dir/pid")" 2>/dev/null
:
