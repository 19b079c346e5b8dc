#!/usr/bin/env bash
# Client programs read what samewire writes.
#
#   tests/clients.sh libraries   the official client libraries, against engines of all manners; "libraries python" and "libraries node"
#                                are those of one language, and need nothing of the other
#   tests/clients.sh agents      Claude Code, Codex, opencode, Qwen Code, pi, Aider, OpenAI Agents, LangChain and the AI SDK
#   tests/clients.sh browser     pages in Chromium, those that [cors] lists and others (tests/browser.sh)
#   tests/clients.sh inspector   the inspector's page in Chromium (tests/inspector.sh); "inspector page" needs no binary
#   tests/clients.sh dashboards  Prometheus with the alerts and the queries of Grafana's board (tests/dashboards.sh)
#   tests/clients.sh             libraries and agents
#
# Sets up all it needs under target/clients/ (for each a Python venv and a node_modules, from the pinned versions
# in tests/clients/, tests/agents/, tests/browser/, tests/inspector/ and tests/dashboards/), which is done once and again when a pin changes.
# Builds nothing: the binary is $SAMEWIRE_BIN, or the release or debug build.
set -euo pipefail

case ${*:-} in
  '' | libraries | 'libraries python' | 'libraries node' | agents | browser | inspector | 'inspector page' | 'inspector real' | dashboards) ;;
  *) echo "usage: tests/clients.sh [libraries [python|node]|agents|browser|inspector [page|real]|dashboards]" >&2 && exit 2 ;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

binary=${SAMEWIRE_BIN:-}
if [[ -z $binary ]]; then
  for candidate in "$root/target/release/samewire" "$root/target/debug/samewire"; do
    [[ -x $candidate ]] && binary=$candidate && break
  done
fi
if [[ ${*:-} != 'inspector page' && (-z $binary || ! -x $binary) ]]; then
  echo "clients.sh: no samewire binary${binary:+ at $binary}; run 'cargo build --release' or set SAMEWIRE_BIN" >&2
  exit 1
fi
[[ -z $binary ]] || binary=$(realpath "$binary")

# shellcheck source=tests/apt.sh
source "$root/tests/apt.sh"
python3 -c 'import ensurepip, venv' 2>/dev/null || apt_install python3 python3-venv
[[ ${*:-} == 'libraries python' ]] || command -v npm >/dev/null || apt_install nodejs npm

# Puts the pinned packages of Python in a folder.
set_up_python() {
  local pins=$1 work=$2 python=${3:-python3} stamp
  stamp=$("$python" --version; cat "$pins/python/requirements.txt")
  [[ ! -f $work/python.stamp || $(<"$work/python.stamp") != "$stamp" ]] || return 0
  echo "clients.sh: setting up Python"
  rm -rf "$work/venv" "$work/python.stamp"
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$pins/python/requirements.txt"
  "$work/venv/bin/pip" check --disable-pip-version-check
  printf '%s' "$stamp" >"$work/python.stamp"
}

# Puts the pinned packages of Node in a folder. `npm ci` wants an entry of the lock file for every optional package, those of other
# kinds of machine included. npm writes none for a version that the registry lacks: such entries are added by hand.
set_up_node() {
  local pins=$1 work=$2 stamp
  shift 2
  stamp=$(echo "$*"; cat "$pins/node/package-lock.json")
  [[ ! -f $work/node.stamp || $(<"$work/node.stamp") != "$stamp" ]] || return 0
  echo "clients.sh: setting up Node"
  rm -f "$work/node.stamp"
  cp "$pins/node/package.json" "$pins/node/package-lock.json" "$work/"
  (cd "$work" && npm ci --no-audit --no-fund --loglevel=error "$@")
  printf '%s' "$stamp" >"$work/node.stamp"
}

# The packages want Node 22. Where the machine's is older, one from the registry is put beside them.
has_node() {
  (($(node --print 'process.versions.node.split(".")[0]') >= 22))
}

node_of() {
  if has_node; then command -v node; else echo "$1/node_modules/node-linux-$(node --print process.arch)/bin/node"; fi
}

libraries() {
  local pins=$root/tests/clients work=$root/target/clients options=() suites=()
  if [[ ${1:-python} == python ]]; then
    set_up python "$work" "$pins"
    suites+=(--python "$work/venv/bin/python")
  fi
  if [[ ${1:-node} == node ]]; then
    if has_node; then options=(--omit=optional); fi
    set_up node "$work" "$pins" "${options[@]}"
    suites+=(--node "$(node_of "$work")")
  fi
  (cd "$work" && timeout --kill-after=10 600 python3 "$pins/run.py" "$binary" "$root/fixtures" "${suites[@]}")
}

# Aider pins all that it uses, so it has its own folder, and needs Python 3.10 to 3.12.
aider() {
  local work=$root/target/clients/aider python
  for python in python3.12 python3.11 python3.10 python3; do
    if "$python" -c 'import sys, venv, ensurepip; assert (3, 10) <= sys.version_info < (3, 13)' 2>/dev/null; then
      set_up python "$work" "$root/tests/agents/aider" "$python"
      aider=$work/venv/bin/aider
      return
    fi
  done
  echo "clients.sh: Aider is left out: Python 3.10, 3.11 or 3.12 is missing, with venv" >&2
}

# npm takes the programs of some agents, of which there is one for each kind of machine, for optional.
agents() {
  local pins=$root/tests/agents work=$root/target/clients/agents aider=''
  aider
  set_up python "$work" "$pins"
  set_up node "$work" "$pins"
  (cd "$work" && timeout --kill-after=10 900 "$work/venv/bin/python" "$pins/stage.py" "$binary" "$(node_of "$work")" "$aider")
}

# Sets `chromium`: $SAMEWIRE_CHROMIUM, or Debian's, which is installed where it is missing.
find_chromium() {
  chromium=${SAMEWIRE_CHROMIUM:-}
  [[ -n $chromium ]] || chromium=$(command -v chromium) || { apt_install chromium && chromium=$(command -v chromium); }
}

browser() {
  local pins=$root/tests/browser work=$root/target/clients/browser options=() chromium
  if has_node; then options=(--omit=optional); fi
  set_up node "$work" "$pins" "${options[@]}"
  find_chromium
  timeout --kill-after=10 240 "$(node_of "$work")" "$pins/run.mjs" "$binary" "$chromium" \
    "$root/tests/clients/engine.py" "$work" "$work/run"
}

# Against a mock of the admin listener, and against samewire itself.
inspector() {
  local pins=$root/tests/inspector work=$root/target/clients/inspector options=() chromium
  if has_node; then options=(--omit=optional); fi
  set_up node "$work" "$pins" "${options[@]}"
  find_chromium
  timeout --kill-after=10 900 "$(node_of "$work")" --disable-warning=MODULE_TYPELESS_PACKAGE_JSON "$pins/run.mjs" "${1:-page,real}" "$chromium" "$work" "$work/run" "$binary"
}

# Prometheus is the one on the path, or Debian's, unpacked. The alerts' own tests come first: they need no samewire. Any Node will do.
dashboards() {
  local pins=$root/tests/dashboards work=$root/target/clients/dashboards programs
  set_up node "$work" "$pins"
  command -v openssl >/dev/null || apt_install openssl
  if command -v prometheus promtool >/dev/null; then
    programs=$(dirname "$(command -v prometheus)")
  else
    programs=$work/prometheus/usr/bin
    [[ -x $programs/promtool ]] || apt_unpack "$work/prometheus" prometheus
  fi
  "$programs/promtool" check rules "$root/config/alerts.yaml"
  "$programs/promtool" test rules "$pins/alerts-test.yaml"
  node "$pins/node/check.mjs" "$root/config/grafana/samewire.json" "$work"
  rm -rf "$work/run"
  mkdir "$work/run"
  timeout --kill-after=10 480 python3 "$pins/run.py" "$binary" "$programs/prometheus" "$work/run"
}

# Sets up a folder for python or node. One run at a time does so; a second one waits and then finds everything there.
set_up() {
  local language=$1 work=$2 pins=$3
  shift 3
  mkdir -p "$work"
  exec 9>"$work/lock"
  flock 9
  "set_up_$language" "$pins" "$work" "$@"
  flock -u 9
  exec 9>&-
}

if [[ -n ${1:-} ]]; then
  "$@"
else
  libraries
  agents
fi
