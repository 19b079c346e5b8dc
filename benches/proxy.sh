#!/usr/bin/env bash
# The proxy end to end, beside nginx as a plain relay, in one run. Prints a table with the targets and writes
# target/bench/proxy.json.
#
#   benches/proxy.sh                 everything, about seven minutes
#   benches/proxy.sh --quick         a smoke run of some fifteen seconds
#   benches/proxy.sh --rounds 9      more rounds: the medians are taken over them
#   benches/proxy.sh --only flat64,paced200
#                                    scenarios: flat64 batch64 flat4 paced200 step200 whole short responses64
#                                    responses1 stored200 open2000
#   benches/proxy.sh --strict        exit with 1 when a target is missed (otherwise only when a stream arrives broken)
#   benches/proxy.sh --pin           the proxies on the last processor, engine and client on the others
#   benches/proxy.sh --workers 2     two workers for each proxy instead of one
#   benches/proxy.sh --also old=PATH another build of samewire in the same run; at most 5 % more than it are allowed
#   benches/proxy.sh --capture       the same build with every exchange captured, in the same run
#   benches/proxy.sh --contract      the same build with every answer checked against the contract, in the same run
#   benches/proxy.sh --no-samewire   nginx and the direct way only: what the measuring itself costs
#   benches/proxy.sh --json FILE     the figures to another file; benches/plot.py draws them
set -euo pipefail
cd "$(dirname "$0")/.."

samewire=yes
options=()
# Names of variants of the same build, each with a variable of the environment.
settings=()
for word in "$@"; do
  case $word in
    --no-samewire) samewire= ;;
    --capture) settings+=(capture=SAMEWIRE_CAPTURE__ENABLED=true) ;;
    --contract) settings+=(contract=SAMEWIRE_CONTRACT__MODE=count) ;;
    *) options+=("$word") ;;
  esac
done

# Two thousand streams are two thousand sockets in the client and in the engine, and twice as many in a proxy.
ulimit -n "$(ulimit -H -n)"
if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -lt 8192 ]; then
  echo "benches/proxy.sh: at most $(ulimit -n) open files; open2000 needs 8192" >&2
  exit 3
fi

if ! command -v nginx >/dev/null; then
  echo "Installing nginx" >&2
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends nginx-light; } \
    >&2 || { echo "benches/proxy.sh: nginx is missing and could not be installed" >&2; exit 3; }
fi

target=${CARGO_TARGET_DIR:-target}
if [ -n "$samewire" ]; then
  cargo build --release --quiet
  options+=(--samewire "$target/release/samewire")
fi
mkdir -p target/bench
for setting in ${settings[@]+"${settings[@]}"}; do
  variant=target/bench/samewire-${setting%%=*}
  printf '#!/bin/sh\n%s exec "%s" "$@"\n' "${setting#*=}" "$(realpath "$target")/release/samewire" >"$variant"
  chmod +x "$variant"
  options+=(--also "${setting%%=*}=$variant")
done
# Cargo puts a hash into the name of a bench's program and tells it only this way.
program=$(cargo bench --bench proxy --no-run --message-format json |
  sed -n 's/.*"name":"proxy".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)

# A process group of its own, so that whatever ends this script ends everything it started.
set -m
"$program" contest ${options[@]+"${options[@]}"} </dev/null &
contest=$!
trap 'kill -- "-$contest" 2>/dev/null || true; rm -rf "target/bench/proxy.run-$contest"' EXIT
trap 'exit 130' INT TERM
wait "$contest"
