#!/usr/bin/env bash
# The proxy end to end, beside nginx as a plain relay, in one run. Prints a table with the targets and writes
# target/bench/proxy.json.
#
#   benches/proxy.sh                 everything, about eight minutes
#   benches/proxy.sh --quick         a smoke run of some forty seconds
#   benches/proxy.sh --rounds 9      more rounds: the medians are taken over them
#   benches/proxy.sh --only flat64,paced200
#                                    scenarios: flat64 batch64 flat4 paced200 step200 delay200 whole prompt1m short
#                                    responses64 responses1 stored200 open2000
#   benches/proxy.sh --strict        exit with 1 when a target is missed (otherwise only when a stream arrives broken)
#   benches/proxy.sh --pin           the proxies on the last processor, engine and client on the others
#   benches/proxy.sh --workers 2     two workers for each proxy instead of one
#   benches/proxy.sh --also old=PATH another build of samewire in the same run; at most 5 % more than it are allowed
#   benches/proxy.sh --capture       the same build with every exchange captured, in the same run
#   benches/proxy.sh --also-haproxy  HAProxy beside nginx, installed if it is missing; without this, only if it is there
#   benches/proxy.sh --gateways litellm,vllm-router,smg
#                                    gateways, installed from PyPI into target/bench/venv-NAME; one that cannot be
#                                    installed, does not answer or cannot keep up is left out, with the reason
#   benches/proxy.sh --no-samewire   nginx and the direct way only: what the measuring itself costs
#   benches/proxy.sh --json FILE     the figures to another file; benches/plot.py draws them
#
# Takes samewire from $SAMEWIRE_BIN, or builds it.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tests/setup.sh
source tests/setup.sh

samewire=yes
options=()
# Names of variants of the same build, each with a variable of the environment.
settings=()
haproxy=
gateways=()
while [ $# -gt 0 ]; do
  case $1 in
    --no-samewire) samewire= ;;
    --also-haproxy) haproxy=yes ;;
    --gateways)
      [ $# -gt 1 ] || { echo "benches/proxy.sh: --gateways wants names" >&2; exit 2; }
      IFS=, read -r -a gateways <<<"$2"
      shift
      ;;
    --capture) settings+=(capture=SAMEWIRE_CAPTURE__ENABLED=true) ;;
    *) options+=("$1") ;;
  esac
  shift
done

# Two thousand streams are two thousand sockets in the client and in the engine, and twice as many in a proxy.
ulimit -n "$(ulimit -H -n)"
if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -lt 8192 ]; then
  echo "benches/proxy.sh: at most $(ulimit -n) open files; open2000 needs 8192" >&2
  exit 3
fi

# Installs a program's Debian package unless the program is there.
need() {
  local program=$1 package=$2
  command -v "$program" >/dev/null && return
  echo "Installing $program" >&2
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$package"; } \
    >&2 || { echo "benches/proxy.sh: $program is missing and could not be installed" >&2; exit 3; }
}

# Installs a gateway into its own environment, unless it is there, and names it among the options.
add_gateway() {
  local name=$1 package=$1 venv=target/bench/venv-$1 log=target/bench/venv-$1.log version
  case $name in
    litellm) package='litellm[proxy]' ;;
    vllm-router | smg) ;;
    *) echo "benches/proxy.sh: no such gateway: $name" >&2; exit 2 ;;
  esac
  if [ ! -x "$venv/bin/$name" ]; then
    echo "Installing $package from PyPI" >&2
    rm -rf "$venv"
    if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --disable-pip-version-check "$package"; } >"$log" 2>&1 ||
      [ ! -x "$venv/bin/$name" ]; then
      options+=(--missing "$name=cannot be installed: $(tail -n 1 "$log")")
      return
    fi
  fi
  version=$("$venv/bin/pip" show "$name" 2>/dev/null | sed -n 's/^Version: //p')
  options+=(--gateway "$name=$version=$venv/bin/$name")
}

# The load of a smoke run comes from a program that shares the build of the tests.
build=(cargo bench)
case " ${options[*]} " in *' --quick '*) build=(cargo test) ;; esac

need nginx nginx-light
if [ -n "$haproxy" ]; then
  need haproxy haproxy
fi
if command -v haproxy >/dev/null; then
  options+=(--haproxy)
fi

target=${CARGO_TARGET_DIR:-target}
mkdir -p target/bench
if [ -n "$samewire" ]; then
  if [ -z "${SAMEWIRE_BIN:-}" ]; then
    cargo build --release --locked --quiet
  fi
  cp "${SAMEWIRE_BIN:-$target/release/samewire}" target/bench/samewire
  options+=(--samewire target/bench/samewire)
fi
for gateway in ${gateways[@]+"${gateways[@]}"}; do
  add_gateway "$gateway"
done
for setting in ${settings[@]+"${settings[@]}"}; do
  variant=target/bench/samewire-${setting%%=*}
  printf '#!/bin/sh\n%s exec "%s" "$@"\n' "${setting#*=}" "$PWD/target/bench/samewire" >"$variant"
  chmod +x "$variant"
  options+=(--also "${setting%%=*}=$variant")
done
program=$(bench_program proxy "${build[@]}")

# A separate process group, so that the end of this script ends everything it started.
set -m
"$program" contest ${options[@]+"${options[@]}"} </dev/null &
contest=$!
trap 'kill -- "-$contest" 2>/dev/null || true; rm -rf "target/bench/proxy.run-$contest"' EXIT
trap 'exit 130' INT TERM
wait "$contest"
