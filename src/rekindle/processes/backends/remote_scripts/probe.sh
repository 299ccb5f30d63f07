# probe.sh ID [TRIES]: print the state: `running PID BOOT`, `ended CODE`, `starting`, `gone` or
# `lost WHY`. Checks up to TRIES times whether the process has started.
dir=/tmp/rekindle-$(id -u)/$1 tries=${2:-0}
[ -d "$dir" ] || { echo gone; exit 0; }
while [ "$tries" -gt 0 ] && [ ! -s "$dir/pid" ]; do
    sleep 0.02 2>/dev/null || sleep 1
    tries=$((tries - 1))
done
[ ! -e "$dir/exit" ] || { echo "ended $(cat "$dir/exit")"; exit 0; }
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
if [ ! -s "$dir/pid" ]; then
    echo starting
elif [ "$(cat "$dir/boot")" != "$boot" ]; then
    echo "lost the machine was started anew"
elif kill -0 "$(cat "$dir/waiter")" 2>/dev/null || grep -q "REKINDLE_PROCESS=$1" "/proc/$(cat "$dir/pid")/environ" 2>/dev/null; then
    echo "running $(cat "$dir/pid") $boot"
elif [ -e "$dir/exit" ]; then
    echo "ended $(cat "$dir/exit")"
else
    echo "lost the shell that waited for it was killed"
fi
