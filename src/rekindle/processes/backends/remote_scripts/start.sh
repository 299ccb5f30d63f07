# start.sh ID CWD ROWS COLUMNS LINE PROGRAM ARGUMENT…: start a process that runs independently.
# $REKINDLE_RUNNER contains run.sh. ROWS is empty for a process without a terminal.
# Prints `refused WHY`, or nothing: then `probe.sh` reports the state.
id=$1 cwd=$2 rows=$3 columns=$4 line=$5
shift 5
umask 077
refuse() { rm -rf "$dir"; printf 'refused %s\n' "$1"; exit 0; }
base=/tmp/rekindle-$(id -u)
dir=$base/$id
mkdir -p "$base" 2>/dev/null
# Another user could have created the folder first, to read the files in it.
[ -d "$base" ] && [ ! -L "$base" ] && [ -O "$base" ] || refuse "the folder $base is not ours"
mkdir "$dir" 2>/dev/null || refuse "the folder $dir cannot be made"
[ -z "$cwd" ] || cd "$cwd" 2>/dev/null || refuse "no folder $cwd there"
command -v -- "$1" >/dev/null 2>&1 || refuse "no program $1 there"
case $1 in */*) [ -f "$1" ] && [ -x "$1" ] || refuse "$1 is not a program" ;; esac
if [ -n "$rows" ]; then
    command -v script >/dev/null 2>&1 || refuse "a terminal needs the program \`script\` there"
fi
mkfifo "$dir/in" || refuse "no pipe can be made in $dir"
printf '%s\n' "$REKINDLE_RUNNER" >"$dir/run" || refuse "the disk there is full"
set -- "$dir/run" "$id" "$rows" "$columns" "$line" "$@"
# A shell permanently ignores SIGINT in a command started with `&`, so `setsid` must fork instead: some
# versions have an option for that, others fork if they lead their process group.
if setsid --help 2>&1 | grep -q -- --fork; then
    setsid -f sh "$@" </dev/null >/dev/null 2>&1
elif [ "$(cut -d ' ' -f 5 /proc/$$/stat)" = "$$" ]; then
    exec setsid sh "$@" </dev/null >/dev/null 2>&1
else
    setsid sh "$@" </dev/null >/dev/null 2>&1 &
fi
