#!/bin/sh
# Start PostgreSQL; at the first start, create the database and its owner.
set -eu
export PGDATA=/var/lib/postgresql/data
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
run=/run/postgresql

if [ "$(id -u)" = 0 ]; then # only root can read the password; the server must not be root
    mkdir -p "$PGDATA" "$run"
    install -m 600 "$POSTGRES_PASSWORD_FILE" "$run/password"
    chown -R postgres: "$PGDATA" "$run"
    chmod 700 "$PGDATA"
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ ! -e "$PGDATA/ready" ]; then
    find "$PGDATA" -mindepth 1 -delete # of a start that was interrupted
    # shellcheck disable=SC2086  # several options
    initdb --username="$POSTGRES_USER" --pwfile="$run/password" ${POSTGRES_INITDB_ARGS:-}
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl --wait --options="-c listen_addresses=''" start
    createdb --username="$POSTGRES_USER" --template=template0 "$POSTGRES_DB" 2>/dev/null ||
        psql --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --command="" # it exists
    pg_ctl --wait --mode=fast stop
    touch "$PGDATA/ready"
fi
rm -f "$run/password"
exec postgres -c listen_addresses='*' "$@"
