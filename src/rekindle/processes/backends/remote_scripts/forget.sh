# forget.sh ID: remove the files of a process that has ended.
dir=/tmp/rekindle-$(id -u)/$1
kill "$(cat "$dir/holder" 2>/dev/null)" 2>/dev/null
rm -rf "$dir"
