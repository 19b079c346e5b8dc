#!/usr/bin/env bash
# Starts a separate PostgreSQL, in a temporary folder and on a free port, and prints its URL when it answers.
#
#   tests/postgres.sh        without TLS
#   tests/postgres.sh tls    with TLS, for the host `localhost`; prints, on a second line, the folder with the certificate of
#                            its authority, `authority.crt`, and that of another one, `other.crt`
#
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

# An authority, a certificate that it has signed for `localhost`, and an authority that has nothing to do with them.
certificates() {
  local name
  cd "$folder"
  for name in authority other; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$name" \
      -keyout "$name.key" -out "$name.crt"
  done
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server.key -out server.csr
  openssl x509 -req -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 2 -out server.crt \
    -extfile <(echo subjectAltName=DNS:localhost)
  chmod 600 server.key
  cd /
}

serve() {
  local bin=$1 kind=$2 port postgres tls=()
  cd /
  folder=$(mktemp -d "${TMPDIR:-/tmp}/samewire-postgres-XXXXXX")
  trap 'rm -rf "$folder"' EXIT
  "$bin/initdb" -D "$folder/data" -A trust -U samewire -E UTF8 --locale=C --no-sync >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    return 1
  }
  if [[ $kind == tls ]]; then
    certificates >"$folder/log" 2>&1
    tls=(-c ssl=on -c "ssl_cert_file=$folder/server.crt" -c "ssl_key_file=$folder/server.key")
  fi
  for _ in 1 2 3 4 5; do
    # Somebody may take the port between this and the next line; then another one is tried.
    port=$((20000 + RANDOM % 12000))
    "$bin/postgres" -D "$folder/data" -p "$port" -k "$folder" -h 127.0.0.1 -c fsync=off -c max_connections=200 \
      "${tls[@]}" </dev/null >"$folder/log" 2>&1 &
    postgres=$!
    while kill -0 "$postgres" 2>/dev/null; do
      if "$bin/pg_isready" -q -h "$folder" -p "$port"; then
        echo "postgres://samewire@127.0.0.1:$port/postgres"
        [[ $kind != tls ]] || echo "$folder"
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
  exec runuser -u postgres -- bash -c "set -euo pipefail; $(declare -f certificates serve); serve '$bin' '${1:-plain}'"
fi
serve "$bin" "${1:-plain}"
