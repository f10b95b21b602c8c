#!/usr/bin/env bash
# POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB as in the official image.
set -euo pipefail
: "${POSTGRES_PASSWORD:?set it}" "${POSTGRES_USER:=postgres}"
: "${POSTGRES_DB:=$POSTGRES_USER}"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --username="$POSTGRES_USER" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") \
    --auth=scram-sha-256 --encoding=UTF8 >/dev/null
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  [ "$POSTGRES_DB" = postgres ] || printf 'create database "%s"\n' "$POSTGRES_DB" |
    postgres --single postgres >/dev/null
fi
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp
