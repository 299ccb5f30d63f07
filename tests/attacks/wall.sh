#!/bin/sh
# Run a command behind a wall of our own, so that a hole in the sandbox under test harms nothing: a new
# root in memory with read-only programs, no network but a private loopback, no other processes.
# wall.sh USER_ID 'READ_ONLY_PATH:READ_ONLY_PATH:…' COMMAND…; needs root.
set -eu
user=$1 paths=$2
shift 2
if [ "${WALL:-}" != inside ]; then
    WALL=inside exec unshare --mount --pid --net --ipc --uts --fork --kill-child "$0" "$user" "$paths" "$@"
fi
mount --make-rprivate /
root=$(mktemp -d)
mount -t tmpfs -o mode=755 tmpfs "$root"
for path in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$path" ]; then ln -s "$(readlink "/$path")" "$root/$path"; fi
done
mkdir -p "$root/home" "$root/root" "$root/var" "$root/run" "$root/tmp" "$root/proc" "$root/dev" "$root/old"
chmod 1777 "$root/tmp"
cp -a /etc "$root/etc"
list=/usr:/opt:$paths
IFS=:
for path in $list; do
    [ -d "$path" ] || continue
    mkdir -p "$root$path"
    mount --bind "$path" "$root$path"
    mount -o remount,bind,ro,nosuid,nodev "$root$path"
done
unset IFS
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -p "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mount -t proc proc "$root/proc"
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
if command -v ip >/dev/null; then ip link set lo up; else python3 -c "import fcntl,socket,struct;s=socket.socket();fcntl.ioctl(s,0x8914,struct.pack(\"16sh14x\",b\"lo\",65))"; fi
cd "$root"
pivot_root . old
umount -l /old
rmdir /old
cd /
mkdir -p /home/ada
chown -R "$user:$user" /home/ada
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
    env -i HOME=/home/ada USER=ada LOGNAME=ada LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH="${PYTHONPATH:-}" PYTHONDONTWRITEBYTECODE=1 "$@"
