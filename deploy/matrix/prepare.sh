#!/bin/sh
# Generate the secrets of a Matrix server in containers, readable by you alone. What exists is kept.
#
#     sh prepare.sh SERVER_NAME
set -eu
umask 077
[ $# -eq 1 ] || { echo "Usage: sh prepare.sh SERVER_NAME, such as example.org" >&2; exit 2; }
case $1 in
*[!a-z0-9.:-]* | "" | -* | .*)
    echo "prepare.sh: $1 cannot be the name of a server. Use a domain in lower case." >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")"
mkdir -p private/media

write() { # write NAME: the standard input becomes the file, unless it exists
    [ -e "private/$1" ] && return 0
    cat >"private/.$1.part"
    mv "private/.$1.part" "private/$1"
}
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

if [ -e private/server.yaml ] && ! grep -qx "server_name: \"$1\"" private/server.yaml; then
    echo "prepare.sh: private/server.yaml is for another server. The name cannot be changed." >&2
    exit 1
fi
for name in database_password registration_shared_secret macaroon_secret_key form_secret; do
    random | write "$name"
done
printf 'postgres:5432:synapse:synapse:%s\n' "$(cat private/database_password)" | write pgpass
printf 'ed25519 a_%s %s\n' "$(random | cut -c1-4)" \
    "$(head -c 32 /dev/urandom | base64 | tr -d '=\n')" | write signing_key
printf 'server_name: "%s"\n' "$1" | write server.yaml
[ -e .env ] || printf 'MATRIX_UID=%s\nMATRIX_GID=%s\n' "$(id -u)" "$(id -g)" >.env
echo "Wrote the secrets of $1 to $(pwd)/private. Start it with: docker compose up --detach"
