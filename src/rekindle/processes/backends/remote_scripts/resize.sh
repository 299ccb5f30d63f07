# resize.sh ID ROWS COLUMNS: resize the terminal.
dir=/tmp/rekindle-$(id -u)/$1
stty rows "$2" cols "$3" <"$(cat "$dir/tty")"
