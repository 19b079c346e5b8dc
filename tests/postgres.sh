#!/usr/bin/env bash
# Starts a PostgreSQL of its own, in a temporary folder and on a free port, and prints its URL when it answers.
# It ends, and leaves nothing, when its standard input is closed: with the process that started it, however that dies.
set -euo pipefail

bin=''
for candidate in /usr/lib/postgresql/*/bin /usr/local/pgsql/bin; do
  [[ -x $candidate/initdb ]] && bin=$candidate
done
[[ -n $bin ]] || bin=$(dirname "$(command -v initdb || true)")
if [[ ! -x $bin/initdb ]]; then
  echo "PostgreSQL is missing: apt-get install postgresql" >&2
  exit 1
fi

serve() {
  local bin=$1 port postgres
  cd /
  folder=$(mktemp -d "${TMPDIR:-/tmp}/samewire-postgres-XXXXXX")
  trap 'rm -rf "$folder"' EXIT
  "$bin/initdb" -D "$folder/data" -A trust -U samewire -E UTF8 --locale=C --no-sync >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    return 1
  }
  for _ in 1 2 3 4 5; do
    # Somebody may take the port between this and the next line; then another one is tried.
    port=$((20000 + RANDOM % 12000))
    "$bin/postgres" -D "$folder/data" -p "$port" -k "$folder" -h 127.0.0.1 -c fsync=off -c max_connections=200 \
      </dev/null >"$folder/log" 2>&1 &
    postgres=$!
    while kill -0 "$postgres" 2>/dev/null; do
      if "$bin/pg_isready" -q -h "$folder" -p "$port"; then
        echo "postgres://samewire@127.0.0.1:$port/postgres"
        # Nothing comes: this waits for the end of the input.
        cat >/dev/null || true
        kill -INT "$postgres"
        wait "$postgres" || true
        return 0
      fi
      sleep 0.1
    done
  done
  cat "$folder/log" >&2
  return 1
}

if [[ $(id -u) -eq 0 ]]; then
  # It refuses to run as root.
  exec runuser -u postgres -- bash -c "set -euo pipefail; $(declare -f serve); serve '$bin'"
fi
serve "$bin"
